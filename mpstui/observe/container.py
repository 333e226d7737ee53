"""The container, batch job or systemd unit that a cgroup path stands for; pure text in, text out."""

from __future__ import annotations

import re
from typing import Final

from mpstui.core.text import printable

_NAME_LIMIT: Final = 64
_ID: Final = re.compile(r"(?:(?P<runtime>[a-z][a-z-]*)[-:])?(?P<id>[0-9a-f]{64})(?:\.scope)?")
"""``<id>``, ``docker-<id>.scope``, ``cri-containerd-<id>.scope``, ``libpod-<id>``."""
_COLON_ID: Final = re.compile(r".*:(?P<runtime>[a-z-]+):(?P<id>[0-9a-f]{64})")
"""``kubepods-besteffort-pod….slice:cri-containerd:<id>``."""
_RUNTIMES: Final = {
    "docker": "docker",
    "libpod": "podman",
    "crio": "cri-o",
    "cri-containerd": "containerd",
    "nerdctl": "containerd",
    "containerd": "containerd",
}
_PARENTS: Final = {"docker": "docker", "libpod": "podman", "libpod_parent": "podman", "default": "containerd"}
_LXC: Final = re.compile(r"lxc\.payload\.(?P<name>.+)", re.DOTALL)
_APPTAINER: Final = re.compile(r"(?:apptainer|singularity)-(?P<name>\d+)\.scope")
_SLURM: Final = re.compile(r"job_(?P<name>\d+)")
_UNIT: Final = re.compile(r"(?P<name>.+)\.(?:service|scope)", re.DOTALL)
_NO_UNIT: Final = re.compile(r"(?:user@\d+|session-\w+|init|user-runtime-dir@\d+)\.(?:service|scope)")
"""Every login has one of these: they tell no more than the user does."""


def cgroup_path(text: str) -> str | None:
    """The telling path of /proc/PID/cgroup: the unified hierarchy, else systemd's, else the longest one (v1)."""
    paths: dict[str, str] = {}
    for line in text.splitlines():
        hierarchy, controllers, path = (*line.split(":", 2), "", "")[:3]
        if path.startswith("/"):
            paths.setdefault("" if hierarchy == "0" else controllers, path)
    if not paths:
        return None
    for controllers in ("", "name=systemd"):
        if paths.get(controllers, "/") != "/":
            return paths[controllers]
    return max(paths.values(), key=len)


def container_of(cgroup: str) -> str | None:
    """``docker:0123456789ab``, ``kubernetes:…``, ``podman:…``, ``containerd:…``, ``lxc:name``, ``apptainer:4711``,
    ``slurm:1234``, or the short name of the systemd unit; None for a login session and the root.

    The innermost one counts. Names are printable: a user may choose some of them.
    """
    parts = [part for part in cgroup.split("/") if part]
    for index in range(len(parts) - 1, -1, -1):
        found = _of_part(parts[index], parts[:index])
        if found is not None:
            return printable(found, _NAME_LIMIT)
    return None


def _of_part(part: str, parents: list[str]) -> str | None:
    parent = parents[-1] if parents else ""
    match = _ID.fullmatch(part) or _COLON_ID.fullmatch(part)
    if match is not None and not part.startswith("libpod-conmon-"):
        if part.startswith("kubepods") or any(p.startswith("kubepods") for p in parents):
            kind = "kubernetes"
        else:
            kind = _RUNTIMES.get(match["runtime"] or "", _PARENTS.get(parent, "container"))
        return f"{kind}:{match['id'][:12]}"
    for kind, pattern in (("lxc", _LXC), ("apptainer", _APPTAINER)):
        if match := pattern.fullmatch(part):
            return f"{kind}:{match['name']}"
    if parent in {"lxc", "lxc.payload"}:
        return f"lxc:{part}"
    if parent in {"apptainer", "singularity"}:
        return f"apptainer:{part}"
    if (match := _SLURM.fullmatch(part)) and any("slurm" in p for p in parents):
        return f"slurm:{match['name']}"
    if _NO_UNIT.fullmatch(part) is None and (match := _UNIT.fullmatch(part)):
        return re.sub(r"\\x([0-9a-f]{2})", lambda m: chr(int(m[1], 16)), match["name"])
    return None
