"""Where a process belongs: its pod, container, batch job and systemd unit, from the names of its cgroups. Pure, no I/O.

A cgroup is a directory, and its name is whatever its maker called it: a user with a delegated subtree makes one called
``kubepods/pod…`` as well as the kubelet does, and so does root of a container in its own part of the tree. So each name
is a claim, until the directory in which it was made is seen to be root's alone, and lies in no container.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, NamedTuple

from mpstui.core.late import dataclass, pattern
from mpstui.core.text import printable

Batch = Literal["slurm", "pbs", "torque", "htcondor"]
Kind = Literal["pod", "container", "job", "unit"]
KINDS: Final[tuple[Kind, ...]] = ("job", "pod", "container", "unit")
"""The more telling first."""
_NAME_LIMIT: Final = 64
_DEPTH_LIMIT: Final = 64
"""Directories of one path that are looked at."""
CLAIMS: Final = "claims "

_HEX: Final = "[0-9a-f]{64}"
_ID: Final = pattern(rf"(?:(?P<runtime>[a-z][a-z-]*)[-:])?(?P<id>{_HEX})(?:\.scope)?")
"""``<id>``, ``docker-<id>.scope``, ``cri-containerd-<id>.scope``, ``libpod-<id>``."""
_COLON_ID: Final = pattern(rf".*:(?P<runtime>[a-z-]+):(?P<id>{_HEX})")
"""``kubepods-besteffort-pod….slice:cri-containerd:<id>``."""
_RUNTIMES: Final = {
    "docker": "docker",
    "libpod": "podman",
    "libpod-payload": "podman",
    "crio": "cri-o",
    "cri-containerd": "containerd",
    "nerdctl": "containerd",
    "containerd": "containerd",
}
_PARENTS: Final = {"docker": "docker", "libpod": "podman", "libpod_parent": "podman", "default": "containerd"}
_LXC: Final = pattern(r"lxc\.payload\.(?P<name>.+)", re.DOTALL)
_APPTAINER: Final = pattern(r"(?:apptainer|singularity)-(?P<name>\d+)\.scope")
_UID: Final = r"(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})"
_POD: Final = pattern(rf"(?:[a-z0-9-]{{0,255}}kubepods[a-z-]*-)?pod{_UID}(?:\.slice(?::.*)?)?")
"""``pod<uid>`` of the cgroupfs driver, ``kubepods-burstable-pod<uid>.slice`` of systemd's; a static pod's is a hash."""
_SLURM: Final = pattern(r"job_(?P<id>\d{1,18})")
_STEP: Final = pattern(r"step_(?P<id>\w{1,20})")
_BATCH_ID: Final = pattern(r"\d{1,18}(?:\[\d{0,9}\])?(?:[.-][\w.-]{1,200})?")
"""``4711.server``, ``4711[3].server``."""
_CONDOR: Final = pattern(
    r"condor_[\w.-]{0,200}?_(?P<slot>slot\d{1,9}(?:_\d{1,9})?(?:@[\w.-]{1,200}?)?)(?:\.(?:slice|service|scope))?"
)
"""``condor_var_lib_condor_execute_slot1_23@node7``: HTCondor's cgroups have the slot, in which one job at a time is."""
_PBS_SLICE: Final = pattern(r"pbs(?:pro|_jobs)-(?P<id>\d.*)\.slice")
_UNIT: Final = pattern(r".+\.(?:service|scope)", re.DOTALL)
_NO_UNIT: Final = pattern(r"(?:user@\d+|session-\w+|init|user-runtime-dir@\d+)\.(?:service|scope)")
"""Every login has one of these: they tell no more than the user does."""


class PodName(NamedTuple):
    """What the kubelet calls a pod, or one of its containers."""

    namespace: str
    pod: str
    container: str | None = None


class Cgroup(NamedTuple):
    """One line of /proc/PID/cgroup."""

    controllers: str
    """``memory``, ``cpu,cpuacct``, ``name=systemd``; empty for the unified hierarchy of version 2."""
    path: str


@dataclass(frozen=True, slots=True)
class Where:
    """Where a process belongs. All names are printable."""

    pod_uid: str | None = None
    pod: str | None = None
    """The pod's name; None where the kubelet's log folders do not tell it."""
    namespace: str | None = None
    """Of Kubernetes."""
    container_name: str | None = None
    """Within the pod."""
    runtime: str | None = None
    """``docker``, ``podman``, ``containerd``, ``cri-o``, ``lxc``, …; ``container`` where that is not told."""
    container_id: str | None = None
    batch: Batch | None = None
    job: str | None = None
    """The batch system's number, with its server: ``123``, ``4711.server``; HTCondor's slot, ``slot1_23@node7``."""
    step: str | None = None
    unit: str | None = None
    """``trainer.service``."""
    claimed: frozenset[Kind] = frozenset()
    """Of what the name may have been made by the process's own user, or in a container."""

    @property
    def container(self) -> str | None:
        """``docker:0123456789ab``, ``lxc:name``."""
        if self.container_id is None:
            return None
        short = self.container_id[:12] if re.fullmatch(_HEX, self.container_id) else self.container_id
        return printable(f"{self.runtime or 'container'}:{short}", _NAME_LIMIT)

    def name(self, kind: Kind) -> str | None:
        """What groups are called: ``ml/train-0``, ``slurm:123``, ``trainer.service``; None where it is in none. What
        is only a claim says so, and so is another group than the one that it claims to be."""
        found: str | None
        if kind == "pod":
            found = self.pod_uid and (f"{self.namespace}/{self.pod}" if self.pod else f"pod {self.pod_uid}")
        elif kind == "job":
            found = None if self.job is None else f"{self.batch}:{self.job}"
        elif kind == "container":
            found = self.container
        else:
            found = self.unit
        return CLAIMS + found if found is not None and kind in self.claimed else found

    def text(self) -> str:
        """The most telling of them in a word, ``ml/train-0/trainer``, ``slurm:123.0``; empty where there is none."""
        for kind in KINDS:
            if (found := self.name(kind)) is not None:
                if kind == "job" and self.step is not None:
                    return f"{found}.{self.step}"
                if kind == "pod" and self.container_name is not None:
                    return f"{found}/{self.container_name}"
                return found
        return ""

    def inner(self, kind: Kind) -> tuple[str, ...]:
        """What a part of it is called: the step of a job, a pod's container, as ``text`` shows them."""
        if kind == "job" and self.step is not None and self.job is not None:
            return f"{self.batch}:{self.job}.{self.step}", f"{self.job}.{self.step}"
        if kind == "pod" and self.container_name is not None and self.pod:
            return (f"{self.namespace}/{self.pod}/{self.container_name}",)
        return ()

    def matches(self, kind: Kind, text: str) -> bool:
        """Whether a filter's ``text``, in lower case, means it: part of a name, a whole UID's or number's beginning, or
        all that is shown of it."""
        if text and text in {name.lower() for name in self.inner(kind)}:
            return True
        if kind == "job":
            whole, job = (self.name("job") or "").removeprefix(CLAIMS), self.job or ""
            return bool(job) and (job.lower() == text or whole.lower() == text or _number(job).startswith(text))
        parts = {
            "pod": (self.pod_uid and self.name("pod"), self.pod_uid),
            "container": (self.container, self.container_id, self.container_name),
            "unit": (self.unit,),
        }[kind]
        return any(part is not None and text in part.lower() for part in parts)


NOWHERE: Final = Where()


def _number(job: str) -> str:
    return re.split(r"[.-]", job, maxsplit=1)[0]


def parse_cgroups(text: str) -> tuple[Cgroup, ...]:
    """The lines of /proc/PID/cgroup, the telling ones first: version 2, then systemd's, then the longest paths."""
    found: dict[str, Cgroup] = {}
    for line in text.split("\n"):  # the one character that no cgroup has in its name
        hierarchy, controllers, path = (*line.split(":", 2), "", "")[:3]
        if path.startswith("/"):
            name = "" if hierarchy == "0" else controllers
            found.setdefault(name, Cgroup(name, path))
    order = {"": 0, "name=systemd": 1}
    return tuple(sorted(found.values(), key=lambda each: (order.get(each.controllers, 2), -len(each.path))))


def _never(cgroup: Cgroup) -> bool:
    return False


def find_where(
    cgroups: Sequence[Cgroup],
    is_roots: Callable[[Cgroup], bool] = _never,
    names: Callable[[str, str | None], PodName | None] = lambda uid, container: None,
) -> Where | None:
    """Where the process of these cgroups belongs; None where nothing is known of it.

    ``is_roots``: whether root alone can make a cgroup in that one, or move a process into it. ``names``: what the
    kubelet calls a pod, by its UID and the id of its container. What is proved comes before what is claimed, and of
    several the innermost counts.
    """
    best: dict[Kind, tuple[bool, Where]] = {}
    for cgroup in cgroups:
        for kind, proved, found in _of_path(cgroup, is_roots):
            if kind not in best or (proved and not best[kind][0]):
                best[kind] = proved, found
    if not best:
        return None
    whole = NOWHERE
    for kind, (proved, found) in best.items():
        whole = _joined(whole, kind, found)
        if not proved:
            whole = replace(whole, claimed=whole.claimed | {kind})
    if whole.pod_uid is not None and (told := names(whole.pod_uid, whole.container_id)) is not None:
        whole = replace(whole, namespace=told.namespace, pod=told.pod, container_name=told.container)
    return whole


def _joined(whole: Where, kind: Kind, found: Where) -> Where:
    if kind == "pod":
        return replace(whole, pod_uid=found.pod_uid)
    if kind == "container":
        return replace(whole, runtime=found.runtime, container_id=found.container_id)
    if kind == "job":
        return replace(whole, batch=found.batch, job=found.job, step=found.step)
    return replace(whole, unit=found.unit)


def _of_path(cgroup: Cgroup, is_roots: Callable[[Cgroup], bool]) -> list[tuple[Kind, bool, Where]]:
    """What one path tells, the innermost first, those that are proved before the others."""
    parts = [part for part in cgroup.path.split("/") if part][:_DEPTH_LIMIT]
    found: list[tuple[Kind, bool, Where]] = []
    proved = ".." not in parts
    for index, part in enumerate(parts):
        told = _of_part(part, parts[:index], parts[index + 1 :])
        if told:
            proved = proved and is_roots(Cgroup(cgroup.controllers, "/" + "/".join(parts[:index])))
        found += [(kind, proved, value) for kind, value in told.items()]
        if "container" in told:
            proved = False  # what is in a container is the container's root's to make
    if found and found[-1][1] and not is_roots(cgroup):
        # Others can move their processes in, without making a directory.
        found = [(kind, False, value) for kind, _, value in found]
    found.reverse()
    return sorted(found, key=lambda each: not each[1])


def _of_part(part: str, above: Sequence[str], below: Sequence[str]) -> Mapping[Kind, Where]:
    parent = above[-1] if above else ""
    found: dict[Kind, Where] = {}
    if any("kubepods" in each for each in (*above, part)) and (pod := _POD.fullmatch(part)):
        found["pod"] = Where(pod_uid=pod["uid"].replace("_", "-"))
    match = _ID.fullmatch(part) or _COLON_ID.fullmatch(part)
    if match is not None and not part.startswith("libpod-conmon-"):
        runtime = _RUNTIMES.get(match["runtime"] or "", _PARENTS.get(parent, "container"))
        found["container"] = Where(runtime=runtime, container_id=match["id"])
        return found
    for runtime, named in (("lxc", _LXC), ("apptainer", _APPTAINER)):
        if match := named.fullmatch(part):
            return {"container": Where(runtime=runtime, container_id=printable(match["name"], _NAME_LIMIT))}
    if parent in {"lxc", "lxc.payload", "apptainer", "singularity"}:
        runtime = parent.partition(".")[0] if parent.startswith("lxc") else "apptainer"
        return {"container": Where(runtime=runtime, container_id=printable(part, _NAME_LIMIT))}
    if part == "payload" and parent.endswith((".service", ".scope")):  # of systemd-nspawn
        return {"container": Where(runtime="nspawn", container_id=printable(parent, _NAME_LIMIT))}
    if (job := _job(part, above, below)) is not None:
        return {"job": job}
    if _UNIT.fullmatch(part) and _NO_UNIT.fullmatch(part) is None and not found:
        found["unit"] = Where(unit=printable(_unescaped(part), _NAME_LIMIT))
    return found


def _job(part: str, above: Sequence[str], below: Sequence[str]) -> Where | None:
    parent = above[-1] if above else ""
    if (match := _SLURM.fullmatch(part)) and any("slurm" in each for each in above):
        step = _STEP.fullmatch(below[0]) if below else None
        return Where(batch="slurm", job=match["id"], step=step["id"] if step else None)
    if parent == "torque" and _BATCH_ID.fullmatch(part):
        return Where(batch="torque", job=part)
    if parent in {"jobid", "pbspro", "pbs_jobs"} and any(each.startswith("pbs") for each in above):
        name = _unescaped(part)
        return Where(batch="pbs", job=name) if _BATCH_ID.fullmatch(name) else None
    if parent.startswith("htcondor") and (match := _CONDOR.fullmatch(part)):
        return Where(batch="htcondor", job=match["slot"])
    if (match := _PBS_SLICE.fullmatch(part)) and _BATCH_ID.fullmatch(name := _unescaped(match["id"])):
        return Where(batch="pbs", job=name)
    return None


def _unescaped(name: str) -> str:
    """A name as systemd writes it, with its ``\\x2d``."""
    return re.sub(r"\\x([0-9a-f]{2})", lambda m: chr(int(m[1], 16)), name)


def cgroup_path(text: str) -> str | None:
    """The telling path of /proc/PID/cgroup: the unified hierarchy, else systemd's, else the longest one (v1)."""
    found = parse_cgroups(text)
    return next((each.path for each in found if each.path != "/"), found[0].path if found else None)


def container_of(path: str) -> str | None:
    """The innermost container, batch job or systemd unit of a cgroup's path, in a word: ``docker:0123456789ab``,
    ``kubernetes:…``, ``slurm:1234``, ``trainer``; None for a login session and the root.

    It is what the name says, whoever made it, and printable: a user may choose some of them.
    """
    parts = [part for part in path.split("/") if part][-_DEPTH_LIMIT:]
    for index in range(len(parts) - 1, -1, -1):
        told = _of_part(parts[index], parts[:index], parts[index + 1 :])
        if (box := told.get("container")) is not None:
            in_pod = any("kubepods" in part for part in parts[: index + 1])
            return f"kubernetes:{(box.container_id or '')[:12]}" if in_pod else box.container
        if (job := told.get("job")) is not None:
            return job.name("job")
        if (unit := told.get("unit")) is not None:
            return re.sub(r"\.(?:service|scope)$", "", unit.unit or "")
    return None
