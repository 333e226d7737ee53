"""Clients that are named by what they belong to: a job, a pod, a unit, a cgroup, a file of PIDs.

The kernel says what a process belongs to, and the daemon says that it is its client: only where both do is anything
ended, and the kernel is asked again at that moment. A name that somebody may have made up names nobody.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

from mpstui.core.late import pattern
from mpstui.core.model import Client, Daemon
from mpstui.core.text import path_text, printable
from mpstui.core.where import Cgroup, Kind, Where, parse_cgroups
from mpstui.operations.check import Refused
from mpstui.operations.types import SELECTORS, ExitStatus
from mpstui.system.own import looked_at
from mpstui.system.procfs import Cgroups, process_key, read_proc, start_time
from mpstui.system.trusted import NotTrustedError, open_trusted

_CLOCKS_DIFFER: Final = 60.0
"""Seconds. When a process began is counted from the boot, and a file may be on another machine's disk."""
_PID_FILE_LIMIT: Final = 1 << 16
_PIDS: Final = pattern(rb"[0-9]{1,10}")
_ID: Final = pattern(r"\S{1,300}")
OWN: Final = "self"
"""As a cgroup: the one that this process is in; in a container the whole of it."""
_FIRST_NAMESPACE: Final = 0xEFFFFFFB
"""The inode that the kernel gives the first cgroup namespace, the node's."""


class Selection(NamedTuple):
    """What clients belong to, and so who they are; :func:`select` makes it. As text ``job slurm:123``, for a person."""

    within: str
    """``job:slurm:123``: for ``Request.within``, by which it is checked again when each of them is ended."""
    pids: frozenset[int] = frozenset()
    """Of a file of PIDs."""
    written: float | None = None
    """When that file was written to last, seconds since the epoch."""

    def __str__(self) -> str:
        return _words(self.within)

    def clients(self, daemon: Daemon) -> list[Client]:
        """The clients of a daemon that belong to it, by the kernel's word of now."""
        if self.within.startswith("pid_file:"):
            return [each for each in daemon.clients() if _number(each) in self.pids and not self._began_later(each)]
        return [client for client in daemon.clients() if _is_within(self.within, client, daemon.simulated)]

    def reused(self, daemon: Daemon) -> list[Client]:
        """The clients that have a number of the file and began after it was written: whoever wrote it cannot have meant
        them."""
        return [each for each in daemon.clients() if _number(each) in self.pids and self._began_later(each)]

    def _began_later(self, client: Client) -> bool:
        began = client.start_time
        here = process_key(client.pid_here) if not client.local and client.pid_here is not None else None
        if here is not None and here.start_ticks is not None:
            began = start_time(here.start_ticks)
        return self.written is not None and began is not None and began > self.written + _CLOCKS_DIFFER

    def unknown(self, daemon: Daemon) -> tuple[int, str]:
        """Of how many clients it is not known here whether they belong to it, and why; 0 where it can of all."""
        away = [client for client in daemon.clients() if _number(client) is None]
        if away and (self.pids or not self.within.startswith("pid_file:")):
            return len(away), "they are in another PID namespace (a pod needs hostPID: true)"
        if self.within.startswith("pid_file:"):
            return 0, ""
        if daemon.simulated or self.within == "cgroup:/" or _namespace("self") == _FIRST_NAMESPACE:
            return 0, ""
        seen = Cgroups()
        lost = [client for client in daemon.clients() if (pid := _number(client)) and seen.where_is(pid) is None]
        why = "this process is in a container and sees no names of cgroups above its own"
        return (len(lost), f"{why}; --cgroup {OWN} names this container") if lost else (0, "")


def select(kind: str, name: str) -> Selection:
    """``kind`` is one of ``SELECTORS``. Raises Refused where it can name nothing, or somebody else may write the
    file."""
    within = _within(kind, name)
    return Selection(within, *pids_in(Path(name))) if kind == "pid_file" else Selection(within)


def _within(option: str, text: str) -> str:
    if option not in SELECTORS:
        raise Refused(f"clients are not chosen by {printable(option, 40)}", ExitStatus.USAGE)
    if not _ID.fullmatch(text) or not text.isprintable():
        raise Refused(f"--{option.replace('_', '-')} “{printable(text, 60)}” names nothing", ExitStatus.USAGE)
    if option == "cgroup" and text == OWN:
        return f"cgroup:{_own_cgroup()}"
    if option == "cgroup":
        parts = [part for part in text.split("/") if part]
        if not text.startswith("/") or not parts or ".." in parts or "." in parts:
            why = "a path below the root is needed, as /proc/PID/cgroup has it: /system.slice/job_123"
            raise Refused(f"--cgroup {printable(text, 60)}: {why}", ExitStatus.USAGE)
        return f"cgroup:/{'/'.join(parts)}"
    return f"{option}:{text}"


def _own_cgroup() -> str:
    """The path of the cgroup that this process is in, as the kernel shows paths here. In a cgroup namespace, as a
    container has one, ``/`` is all that is in it. Raises Refused where that would be the whole node."""
    own, mine = _cgroups("self"), _namespace("self")
    inside = _all_below_root(own)
    path = next((each.path for each in own if each.path != "/"), "/")
    if inside and path != "/":
        return path
    first = mine in {None, _FIRST_NAMESPACE} or (_all_below_root(_cgroups("1")) and _namespace("1") != mine)
    if not inside or first:
        why = "this process is in no cgroup of its own, nor in a container with one"
        raise Refused(f"--cgroup {OWN} names nothing: {why}", ExitStatus.REFUSED_BY_SAFETY_RULE)
    return "/"


def _namespace(process: str) -> int | None:
    """The inode of a process's cgroup namespace; None where it may not be read."""
    try:
        return os.stat(f"/proc/{process}/ns/cgroup").st_ino
    except OSError:
        return None


def _cgroups(process: str) -> tuple[Cgroup, ...]:
    return parse_cgroups((read_proc(f"/proc/{process}/cgroup", 1 << 16) or b"").decode("utf-8", "replace"))


def _all_below_root(found: tuple[Cgroup, ...]) -> bool:
    """Whether it is in this cgroup namespace: in each hierarchy, since all processes share those of version 1 that a
    container has no cgroup of its own in."""
    return bool(found) and all(".." not in each.path.split("/") for each in found)


def pids_in(file: Path) -> tuple[frozenset[int], float]:
    """The process ids in a file, one a line or with spaces between, and when it was written to last, in seconds since
    the epoch. Raises Refused where somebody else may write to it: whoever can would choose whose work is ended.

    The way there may lead to a file system of anybody's that never answers, and an epilogue must come to its end."""
    found: list[tuple[frozenset[int], float] | Refused] = []

    def look() -> None:
        try:
            found.append(_pids_in(file))
        except Refused as why:
            found.append(why)

    looked_at({"pids " + os.fspath(file): look})
    if not found:
        text = f"--pid-file {path_text(file)} is on a mount that does not answer"
        raise Refused(text, ExitStatus.NO_ANSWER, "see to that mount, or name another file")
    if isinstance(told := found[0], Refused):
        raise told
    return told


def _pids_in(file: Path) -> tuple[frozenset[int], float]:
    shown = path_text(file)
    try:
        fd = open_trusted(file.absolute(), os.O_RDONLY, {0, os.geteuid()})
    except NotTrustedError as error:
        raise Refused(f"--pid-file: {error}", ExitStatus.REFUSED_BY_SAFETY_RULE) from None
    except OSError as error:
        raise Refused(f"--pid-file {shown}: {error.strerror}", ExitStatus.USAGE) from None
    try:
        raw, written = os.read(fd, _PID_FILE_LIMIT + 1), os.fstat(fd).st_mtime
    finally:
        os.close(fd)
    words = raw.split()
    if len(raw) > _PID_FILE_LIMIT or any(not _PIDS.fullmatch(word) or int(word) <= 0 for word in words):
        raise Refused(f"{shown} holds something else than process ids", ExitStatus.USAGE)
    return frozenset(map(int, words)), written


def left(within: str, client: Client, simulated: bool) -> str | None:
    """Why a client is not, or no longer, what was named; None where it is. PIDs that were named are what they are."""
    if not within or within.startswith("pid_file:") or _is_within(within, client, simulated):
        return None
    return f"process {client.pid} is not, or no longer, in {_words(within)}"


def _words(within: str) -> str:
    kind, _, name = within.partition(":")
    return f"{kind.replace('pid_file', 'the file')} {name}"


def _number(client: Client) -> int | None:
    """In this PID namespace; None where it is not known. What its daemon calls it may be anybody's here."""
    return client.pid if client.local else client.pid_here


def _is_within(within: str, client: Client, simulated: bool) -> bool:
    """By /proc; a simulated client is where it is said to be, or else, and by cgroup always, where it really is."""
    kind, _, name = within.partition(":")
    if (pid := _number(client)) is None:
        return False
    if kind == "cgroup":
        found = _cgroups(str(pid))
        return _all_below_root(found) if name == "/" else any(_is_below(each, name) for each in found)
    where = (client.where if simulated else None) or Cgroups().where_is(pid)
    return where is not None and is_named(where, kind, name)


def _is_below(cgroup: Cgroup, path: str) -> bool:
    return cgroup.path == path or cgroup.path.startswith(f"{path}/")


def is_named(where: Where, kind: str, name: str) -> bool:
    """Whether it is exactly what was named, and no claim. A job may be named without its system and its server; a step
    of it, or one container of a pod, as the column WHERE has it."""
    kinds: tuple[Kind, ...] = ("job", "pod", "unit")
    proper = next((each for each in kinds if each == kind), None)
    if proper is None or proper in where.claimed:
        return False
    if name in where.inner(proper):
        return proper != "pod" or "container" not in where.claimed
    if proper == "job":
        return where.job is not None and name in {where.job, f"{where.batch}:{where.job}", _without_server(where.job)}
    if proper == "pod":
        return where.pod_uid is not None and name in {where.pod_uid, where.name("pod")}
    return where.unit is not None and name in {where.unit, where.unit.removesuffix(".service")}


def _without_server(job: str) -> str:
    """``4711[3]`` of ``4711[3].server``."""
    return job.split(".", 1)[0]
