"""Whether the names of a process's cgroups are root's word, and what the kubelet calls its pods; reads alone.

The kubelet keeps a folder of logs for each pod and a link for each container, whose names tell pod, namespace and
container without any right to ask the cluster's API. They are small: only names are read, and never what they lead to.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mpstui.core.late import pattern
from mpstui.core.where import Cgroup, PodName, Where, find_where, parse_cgroups
from mpstui.observe.procfs import read_proc

CONTAINER_LOGS: Final = Path("/var/log/containers")
POD_LOGS: Final = Path("/var/log/pods")
_ENTRIES_LIMIT: Final = 20_000
_CGROUP_LIMIT: Final = 1 << 16
_SYSTEM_GIDS: Final = 1000
_NAME: Final = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"
_CONTAINER_LOG: Final = pattern(
    rf"(?P<pod>{_NAME})_(?P<namespace>{_NAME})_(?P<container>{_NAME})-(?P<id>[0-9a-f]{{64}})\.log"
)
"""``train-0_ml_trainer-<id>.log``."""
_POD_LOG: Final = pattern(rf"(?P<namespace>{_NAME})_(?P<pod>{_NAME})_(?P<uid>[0-9a-f-]{{32,36}})")
"""``ml_train-0_<uid>``."""
_OCTAL: Final = pattern(rb"\\([0-7]{3})")


class Cgroups:
    """Where processes belong, with what was read for one of them kept for the next. May be used by several threads."""

    def __init__(self, container_logs: Path = CONTAINER_LOGS, pod_logs: Path = POD_LOGS) -> None:
        self._by_container = _Names(container_logs, _CONTAINER_LOG, "id")
        self._by_pod = _Names(pod_logs, _POD_LOG, "uid")
        self._mounts: Mapping[str, Path] | None = None
        self._lock = threading.Lock()

    def where(self, text: str) -> Where | None:
        """Where the process belongs whose /proc/PID/cgroup says ``text``."""
        with self._lock:
            self._mounts = _mounts() if self._mounts is None else self._mounts
            return find_where(parse_cgroups(text), self._is_roots, self._name)

    def where_is(self, pid: int) -> Where | None:
        """Where a process belongs now; None where that may not be read, or it is gone."""
        return self.where((read_proc(f"/proc/{pid}/cgroup", _CGROUP_LIMIT) or b"").decode("utf-8", "replace"))

    def _is_roots(self, cgroup: Cgroup) -> bool:
        """Whether root alone can make cgroups in this one and move processes into it; False where that cannot be
        seen."""
        mount = (self._mounts or {}).get(cgroup.controllers.split(",")[0])
        if mount is None or ".." in cgroup.path.split("/"):
            return False
        folder = os.fspath(mount) + cgroup.path.rstrip("/")
        try:
            found = [os.lstat(folder)]
        except (OSError, ValueError):
            return False
        for name in ("cgroup.procs", "tasks"):
            try:
                found.append(os.lstat(f"{folder}/{name}"))
            except FileNotFoundError:
                continue
            except OSError:
                return False
        return all(each.st_uid == 0 and not _others_write(each) for each in found)

    def _name(self, uid: str, container: str | None) -> PodName | None:
        if container is not None and (found := self._by_container.find(container)) is not None:
            return PodName(found["namespace"], found["pod"], found["container"])
        found = self._by_pod.find(uid) or self._by_pod.find(uid.replace("-", ""))
        return None if found is None else PodName(found["namespace"], found["pod"])


class _Names:
    """The names in a folder of the kubelet's, read again when the folder has changed. A folder that others than root
    can write to tells nothing: anybody could call a container as he likes."""

    def __init__(self, folder: Path, pattern: re.Pattern[str], key: str) -> None:
        self._folder, self._pattern, self._key = folder, pattern, key
        self._stamp: tuple[int, int] | None = None
        self._found: Mapping[str, Mapping[str, str]] = {}

    def find(self, identity: str) -> Mapping[str, str] | None:
        try:
            way = [os.lstat(place) for place in (self._folder, *self._folder.parents)]
            stamp = way[0].st_ino, way[0].st_mtime_ns
            if stamp != self._stamp:
                self._found = self._read() if all(_is_roots_folder(each) for each in way) else {}
                self._stamp = stamp
        except OSError:
            self._stamp, self._found = None, {}
        return self._found.get(identity)

    def _read(self) -> Mapping[str, Mapping[str, str]]:
        with os.scandir(self._folder) as entries:
            names = [entry.name for entry in itertools.islice(entries, _ENTRIES_LIMIT)]
        matches = (self._pattern.fullmatch(name) for name in names)
        return {match[self._key]: match.groupdict() for match in matches if match is not None}


def _is_roots_folder(found: os.stat_result) -> bool:
    sticky = bool(found.st_mode & stat.S_ISVTX)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == 0 and (sticky or not _others_write(found))


def _others_write(found: os.stat_result) -> bool:
    """Whether others than root may write to it. The groups of the system, as syslog's of /var/log, stand with it."""
    shared = bool(found.st_mode & stat.S_IWGRP) and found.st_gid >= _SYSTEM_GIDS
    return shared or bool(found.st_mode & stat.S_IWOTH)


def _mounts() -> Mapping[str, Path]:
    """Where each hierarchy is mounted whole: by each controller of version 1, ``name=systemd`` and such, and ``""`` for
    version 2."""
    found: dict[str, Path] = {}
    for line in (read_proc("/proc/self/mountinfo") or b"").splitlines():
        head, _, tail = line.partition(b" - ")
        where, kind = head.split(b" "), tail.split(b" ")
        if len(where) < 5 or len(kind) < 3 or kind[0] not in {b"cgroup", b"cgroup2"} or where[3] != b"/":
            continue
        place = Path(os.fsdecode(_OCTAL.sub(lambda match: bytes([int(match[1], 8)]), where[4])))
        names = [""] if kind[0] == b"cgroup2" else os.fsdecode(kind[2]).split(",")
        for name in names:
            found.setdefault(name, place)
    return found
