"""What a process sees of MPS from where it stands: its own root, devices, namespaces and user. Reads, runs nothing.

All of it is the process's own to arrange, and its root may be a container's: so each name is looked up by itself, in
the directory that was opened before, no link leads out of that root, nothing is opened that could wait for somebody (a
FIFO, a file system of the process's own), and what takes too long is given up.
"""

from __future__ import annotations

import errno
import os
import queue
import re
import stat
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import field, replace
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeVar

from mpstui.core.late import dataclass, pattern
from mpstui.core.model import EMPTY, ProcessKey
from mpstui.core.text import path_text, printable
from mpstui.core.where import Where
from mpstui.observe.discovery import DEFAULT_PIPE_DIR, FileId
from mpstui.observe.sources import ProcessSource
from mpstui.system.procfs import (
    Cgroups,
    HiddenProcessError,
    ProcProcesses,
    namespace_pids,
    read_proc,
    read_stat,
)
from mpstui.system.trusted import walk

PATIENCE: Final = 5.0
"""Seconds for everything that is read of one process; a file system of its own may never answer."""
NAMESPACES: Final = ("pid", "ipc", "mnt", "net", "user")
_MAPS_LIMIT: Final = 1 << 20
_DEVICES: Final = 64
"""GPUs of a node whose files are looked for."""
_LIBCUDA: Final = pattern(rb"/libcuda\.so[.0-9]*$", re.MULTILINE)
_ELF: Final = {1: 32, 2: 64}

T = TypeVar("T")


class Inside(NamedTuple):
    """A pipe directory as a process sees it."""

    path: str
    """As the process calls it, not printable."""
    set: bool
    """Whether its environment says so; otherwise it is MPS' default."""
    state: Literal["there", "absent", "closed", "unknown"] = "unknown"
    """``closed``: its user may not enter it."""
    id: FileId | None = None
    socket: bool | None = None
    """Whether there is a socket ``control`` in it that its user may write to."""
    detail: str = ""
    """Why it is not there, or closed; printable."""


class Shm(NamedTuple):
    """A process's /dev/shm."""

    id: FileId | None
    free: int | None = None
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Program:
    """A process, and what it sees. What could not be read is None."""

    key: ProcessKey
    start_time: float | None = None
    uid: int | None = None
    user: str | None = None
    command: str | None = None
    environment: Mapping[str, str] | None = None
    namespaces: Mapping[str, int] = field(default_factory=lambda: EMPTY)
    """Inodes, by ``NAMESPACES``."""
    pids: tuple[int, ...] = ()
    """Its PIDs from this namespace down to its own."""
    where: Where | None = None
    tracer: str | None = None
    """Who debugs it, ``cuda-gdb (4711)``; empty for nobody."""
    bits: int | None = None
    """32 or 64."""
    cuda: bool | None = None
    """Whether it has CUDA's driver library in memory."""
    devices: tuple[str, ...] | None = None
    """The device files of the driver in its /dev."""
    shm: Shm | None = None
    pipe: Inside | None = None
    trouble: str = ""
    """Why its root could not be looked at."""

    @property
    def pid(self) -> int:
        return self.key.pid


def read_program(pid: int, patience: float = PATIENCE, processes: ProcessSource | None = None) -> Program | None:
    """What the process sees; None where there is no such process. Its own words and its root take ``patience`` seconds
    each at most. ``processes``: who tells of it, as far as a policy lets them; all of it otherwise."""
    try:
        stat_now = read_stat(pid)
    except HiddenProcessError:
        return Program(ProcessKey(pid), trouble="/proc does not show it: run mpstui as root")
    if stat_now is None or stat_now.gone:
        return None
    status = _status(pid)
    slow = f"takes longer than {patience:g} s: the process may wait for a file system in its own mount namespace"
    base = within(lambda: _say(pid, status, processes or ProcProcesses(Cgroups().where)), patience)
    if base is None:
        return Program(stat_now.key, trouble=f"reading /proc/{pid} {slow}") if _is_still(stat_now.key) else None
    told = base.environment or {}
    path = told.get("CUDA_MPS_PIPE_DIRECTORY") or os.fspath(DEFAULT_PIPE_DIR)
    asked = Inside(path, bool(told.get("CUDA_MPS_PIPE_DIRECTORY")))
    groups = frozenset(map(int, status.get("Groups", "").split())) | _ids(status.get("Gid", ""))
    seen = within(lambda: _look(pid, asked, base.uid, groups), patience)
    if base.key != stat_now.key or not _is_still(base.key):
        return None  # what was read may be its successor's
    if seen is None:
        return replace(base, pipe=asked, trouble=f"reading its root directory {slow}")
    devices, shm, pipe, trouble = seen
    return replace(base, devices=devices, shm=shm, pipe=pipe if base.environment is not None else None, trouble=trouble)


def _say(pid: int, status: Mapping[str, str], processes: ProcessSource) -> Program | None:
    """What the process says of itself: its memory and its program file, which may be on anything."""
    facts = processes.facts([pid]).get(pid)
    if facts is None:
        return None
    return Program(
        facts.key,
        facts.start_time,
        facts.uid,
        facts.user,
        facts.command,
        facts.environment,
        read_namespaces(pid),
        namespace_pids(pid),
        facts.where,
        _tracer(status),
        _bits(pid),
        _has_cuda(pid),
    )


def read_namespaces(pid: int) -> Mapping[str, int]:
    """The inodes of a process's namespaces; without those that may not be read."""
    return {name: inode for name in NAMESPACES if (inode := _inode(pid, name)) is not None}


def shm_of(pid: int, patience: float = PATIENCE) -> Shm | None:
    """A process's /dev/shm; None where it cannot be seen."""
    return within(lambda: _shm(pid), patience)


def within(read: Callable[[], T], patience: float) -> T | None:
    """What ``read`` answers; None where it takes longer than ``patience`` seconds, or raises OSError. It is then left
    to itself, and does not keep the program from ending."""
    answers: queue.SimpleQueue[T | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put(read())
        except OSError:
            answers.put(None)

    threading.Thread(target=run, daemon=True, name="mpstui-look").start()
    try:
        return answers.get(timeout=patience)
    except queue.Empty:
        return None


def _look(
    pid: int, asked: Inside, uid: int | None, groups: frozenset[int]
) -> tuple[tuple[str, ...] | None, Shm | None, Inside, str]:
    try:
        os.close(os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError as error:
        return None, None, asked, f"its root may not be looked at: {error.strerror}"
    return _devices(pid), _shm(pid), _pipe(pid, asked, uid, groups), ""


def _rooted(pid: int, path: str) -> Path:
    return Path(f"/proc/{pid}/root" + os.path.join("/", path))


def _devices(pid: int) -> tuple[str, ...] | None:
    try:
        with ExitStack() as held:
            way, _ = walk(_rooted(pid, "/dev/-"), held, None)
            return tuple(_driver_files(way[-1]))
    except OSError:
        return None


def _driver_files(folder: int) -> list[str]:
    """Those of the driver's files that are in a directory which is held without being open."""
    wanted = ["nvidiactl", "nvidia-uvm", *(f"nvidia{number}" for number in range(_DEVICES))]
    found = []
    for name in wanted:
        try:
            if stat.S_ISCHR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                found.append(name)
        except OSError:
            continue
    return found


def _shm(pid: int) -> Shm | None:
    try:
        with ExitStack() as held:
            way, _ = walk(_rooted(pid, "/dev/shm/-"), held, None)  # noqa: S108 - the kernel's name for it
            found = os.fstat(way[-1])
            free = os.fstatvfs(way[-1])
            return Shm((found.st_dev, found.st_ino), free.f_bavail * free.f_frsize)
    except FileNotFoundError:
        return Shm(None)
    except OSError:
        return None


def _pipe(pid: int, asked: Inside, uid: int | None, groups: frozenset[int]) -> Inside:
    """The directory, and whether its user gets through to the socket in it."""
    if not asked.path.startswith("/") or "\0" in asked.path or len(asked.path) > 4000:
        return asked._replace(state="absent", detail="it is no absolute path")
    shown = path_text(asked.path)
    try:
        with ExitStack() as held:
            way, _ = walk(_rooted(pid, asked.path + "/-"), held, None)
            for folder in way:
                if not _may(os.fstat(folder), uid, groups, 1):
                    return asked._replace(state="closed", detail=f"its user may not enter {shown}, or a way to it")
            here = os.fstat(way[-1])
            asked = asked._replace(state="there", id=(here.st_dev, here.st_ino))
            try:
                found = os.stat("control", dir_fd=way[-1], follow_symlinks=False)
            except FileNotFoundError:
                return asked._replace(socket=False, detail=f"there is no socket in {shown}")
            if not stat.S_ISSOCK(found.st_mode):
                return asked._replace(socket=False, detail=f"“control” in {shown} is no socket")
            if not _may(found, uid, groups, 2):
                return asked._replace(socket=False, detail=f"its user may not write to the socket in {shown}")
            return asked._replace(socket=True)
    except FileNotFoundError:
        return asked._replace(state="absent", detail=f"there is no {shown} where it looks")
    except NotADirectoryError:
        return asked._replace(state="absent", detail=f"{shown} is no directory")
    except OSError as error:
        known = error.errno == errno.ELOOP
        return asked._replace(detail=f"{shown}: {'too many links' if known else error.strerror or ''}")


def _may(found: os.stat_result, uid: int | None, groups: frozenset[int], bit: int) -> bool:
    """Whether the mode lets a user in (1) or lets him write (2); where the user is not known, as if it did."""
    if uid in {0, None}:
        return True
    if found.st_uid == uid:
        return bool(found.st_mode >> 6 & bit)
    return bool((found.st_mode >> 3 if found.st_gid in groups else found.st_mode) & bit)


def _inode(pid: int, name: str) -> int | None:
    try:
        return os.stat(f"/proc/{pid}/ns/{name}").st_ino
    except OSError:
        return None


def _status(pid: int) -> dict[str, str]:
    text = (read_proc(f"/proc/{pid}/status", 1 << 14) or b"").decode("ascii", "replace")
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.split("\n"))}


def _ids(text: str) -> frozenset[int]:
    return frozenset(map(int, text.split()[1:2]))


def _tracer(status: Mapping[str, str]) -> str | None:
    """Who debugs it, by the name that program has given itself."""
    told = status.get("TracerPid")
    if told is None or not told.isdecimal():
        return None
    if int(told) == 0:
        return ""
    name = (read_proc(f"/proc/{told}/comm", 64) or b"").rstrip(b"\n")
    return f"{printable(name, 32)} ({told})"


def _bits(pid: int) -> int | None:
    """Of its program file, which it runs from and so is a regular one."""
    head = read_proc(f"/proc/{pid}/exe", 5)
    return _ELF.get(head[4]) if head is not None and len(head) == 5 and head.startswith(b"\x7fELF") else None


def _has_cuda(pid: int) -> bool | None:
    maps = read_proc(f"/proc/{pid}/maps", _MAPS_LIMIT)
    if maps is None:
        return None
    if _LIBCUDA.search(maps):
        return True
    return False if len(maps) < _MAPS_LIMIT else None


def _is_still(key: ProcessKey) -> bool:
    try:
        now = read_stat(key.pid)
    except HiddenProcessError:
        return True
    return now is not None and not now.gone and (key.start_ticks is None or now.key == key)
