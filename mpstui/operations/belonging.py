"""Clients that are named by what they belong to: a job, a pod, a unit, a cgroup, a file of PIDs.

The kernel says what a process belongs to, and the daemon says that it is its client: only where both do is anything
ended, and the kernel is asked again at that moment. A name that somebody may have made up names nobody.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from mpstui.core.late import pattern
from mpstui.core.model import Client, Daemon
from mpstui.core.text import path_text, printable
from mpstui.core.where import Cgroup, Kind, Where, parse_cgroups
from mpstui.observe.cgroups import Cgroups
from mpstui.observe.procfs import read_proc
from mpstui.observe.trusted import NotTrustedError, open_trusted
from mpstui.operations.check import Refused
from mpstui.operations.types import ExitStatus

OPTIONS: Final = ("job", "pod", "unit", "cgroup", "pid_file")
"""How they can be named, as options of ``terminate``; the first three are kinds of ``core.where``."""
_PID_FILE_LIMIT: Final = 1 << 16
_PIDS: Final = pattern(rb"[0-9]{1,10}")
_ID: Final = pattern(r"\S{1,300}")


def checked(option: str, text: str) -> str:
    """What ``Request.within`` says of an option's value. Raises Refused where it can name nothing."""
    if not _ID.fullmatch(text) or not text.isprintable():
        raise Refused(f"--{option.replace('_', '-')} “{printable(text, 60)}” names nothing", ExitStatus.USAGE)
    if option == "cgroup":
        parts = [part for part in text.split("/") if part]
        if not text.startswith("/") or not parts or ".." in parts or "." in parts:
            why = "a path below the root is needed, as /proc/PID/cgroup has it: /system.slice/job_123"
            raise Refused(f"--cgroup {printable(text, 60)}: {why}", ExitStatus.USAGE)
        return f"cgroup:/{'/'.join(parts)}"
    return f"{option}:{text}"


def pids_in(file: Path) -> frozenset[int]:
    """The process ids in a file, one a line or with spaces between. Raises Refused where somebody else may write to it:
    whoever can would choose whose work is ended."""
    shown = path_text(file)
    try:
        fd = open_trusted(file.absolute(), os.O_RDONLY, {0, os.geteuid()})
    except NotTrustedError as error:
        raise Refused(f"--pid-file: {error}", ExitStatus.REFUSED_BY_SAFETY_RULE) from None
    except OSError as error:
        raise Refused(f"--pid-file {shown}: {error.strerror}", ExitStatus.USAGE) from None
    try:
        raw = os.read(fd, _PID_FILE_LIMIT + 1)
    finally:
        os.close(fd)
    words = raw.split()
    if len(raw) > _PID_FILE_LIMIT or any(not _PIDS.fullmatch(word) or int(word) <= 0 for word in words):
        raise Refused(f"{shown} holds something else than process ids", ExitStatus.USAGE)
    return frozenset(map(int, words))


def members(daemon: Daemon, within: str, pids: frozenset[int] = frozenset()) -> list[Client]:
    """The clients of a daemon that belong to it, by the kernel's word of now. ``pids``: of a file of PIDs."""
    if within.startswith("pid_file:"):
        return [client for client in daemon.clients() if client.pid in pids]
    return [client for client in daemon.clients() if _is_within(within, client, daemon.simulated)]


def left(within: str, client: Client, simulated: bool) -> str | None:
    """Why a client is not, or no longer, what was named; None where it is. PIDs that were named are what they are."""
    if not within or within.startswith("pid_file:") or _is_within(within, client, simulated):
        return None
    return f"process {client.pid} is not, or no longer, in {named(within)}"


def named(within: str) -> str:
    """``job slurm:123``, for a person."""
    kind, _, name = within.partition(":")
    return f"{kind.replace('pid_file', 'the file')} {name}"


def _is_within(within: str, client: Client, simulated: bool) -> bool:
    """By /proc; a simulated client is where it is said to be, and in its real cgroup."""
    kind, _, name = within.partition(":")
    pid = client.pid if client.local else client.pid_here
    if pid is None:
        return False
    if kind == "cgroup":
        text = (read_proc(f"/proc/{pid}/cgroup", 1 << 16) or b"").decode("utf-8", "replace")
        return any(_is_below(each, name) for each in parse_cgroups(text))
    where = client.where if simulated else Cgroups().where_is(pid)
    return where is not None and is_named(where, kind, name)


def _is_below(cgroup: Cgroup, path: str) -> bool:
    return cgroup.path == path or cgroup.path.startswith(f"{path}/")


def is_named(where: Where, kind: str, name: str) -> bool:
    """Whether it is exactly what was named, and no claim. A job may be named without its system and its server."""
    kinds: tuple[Kind, ...] = ("job", "pod", "unit")
    proper = next((each for each in kinds if each == kind), None)
    if proper is None or proper in where.claimed:
        return False
    if proper == "job":
        return where.job is not None and name in {where.job, f"{where.batch}:{where.job}", _without_server(where.job)}
    if proper == "pod":
        return where.pod_uid is not None and name in {where.pod_uid, where.name("pod")}
    return where.unit is not None and name in {where.unit, where.unit.removesuffix(".service")}


def _without_server(job: str) -> str:
    """``4711[3]`` of ``4711[3].server``."""
    return job.split(".", 1)[0]
