"""Facts of processes at a cost that does not matter once a second, and a handle for killing one safely."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Iterable
from types import TracebackType
from typing import Final, NamedTuple

from mpstui.core.model import ProcessKey
from mpstui.core.text import printable
from mpstui.observe.container import cgroup_path, container_of
from mpstui.observe.procfs import (
    TICKS_PER_SECOND,
    HiddenProcessError,
    Stat,
    boot_time,
    effective_uid,
    pid_namespace,
    process_key,
    process_uids,
    read_environment,
    read_proc,
    read_stat,
    terminal_name,
    user_name,
)
from mpstui.observe.sources import ProcessFacts

_COMMAND_LIMIT: Final = 1000
_CACHE_LIMIT: Final = 1024


def is_alive(key: ProcessKey) -> bool:
    """Whether this very process lives: False for a zombie and where the PID belongs to a successor.

    A key without start ticks, or a process that /proc hides, is judged by its PID alone.
    """
    now = process_key(key.pid)
    return now is not None and (key.start_ticks is None or now.start_ticks is None or now == key)


class ProcProcesses:
    """The ProcessSource of a real node. May block (``user_name``); the caller runs it off the event loop.

    What does not change is read once for each process and again after an exec; a tick then reads one file for each
    process: 48 processes take 0.7 ms, and 9 ms the first time.
    """

    def __init__(self) -> None:
        self._known: dict[ProcessKey, tuple[Stat, ProcessFacts]] = {}
        self._boot = boot_time()

    def facts(self, pids: Iterable[int]) -> dict[int, ProcessFacts]:
        """Facts by PID; a process that is gone, or a zombie, is missing."""
        boot = boot_time()
        if boot != self._boot:
            # The clock was set: start times as they were read before are wrong now.
            self._boot = boot
            self._known.clear()
        found: dict[int, ProcessFacts] = {}
        seen: set[ProcessKey] = set()
        for pid in pids:
            facts = self._facts(pid)
            if facts is not None:
                found[pid] = facts
                seen.add(facts.key)
        if len(self._known) > _CACHE_LIMIT:
            self._known = {key: known for key, known in self._known.items() if key in seen}
        return found

    def _facts(self, pid: int) -> ProcessFacts | None:
        try:
            stat = read_stat(pid)
        except HiddenProcessError:
            return ProcessFacts(ProcessKey(pid))
        if stat is None:
            return None
        known = self._known.get(stat.key)
        if stat.gone:
            self._known.pop(stat.key, None)
            return None
        if known is None or _identity(known[0]) != _identity(stat):
            facts = self._read_all(stat)
            if process_key(pid) != stat.key:
                return None  # It ended meanwhile: what was read may be its successor's.
        elif known[0].cpu_ticks != stat.cpu_ticks:
            facts = _with_cpu(known[1], stat.cpu_ticks / TICKS_PER_SECOND)
        else:
            return known[1]
        self._known[stat.key] = (stat, facts)
        return facts

    def _read_all(self, stat: Stat) -> ProcessFacts:
        pid = stat.pid
        uid = effective_uid(pid)
        cgroup = cgroup_path((read_proc(f"/proc/{pid}/cgroup") or b"").decode("utf-8", "replace"))
        return ProcessFacts(
            key=stat.key,
            start_time=self._boot + stat.start_ticks / TICKS_PER_SECOND,
            uid=uid,
            user=None if uid is None else user_name(uid),
            command=_command(pid, stat.comm),
            cpu_seconds=stat.cpu_ticks / TICKS_PER_SECOND,
            cgroup=None if cgroup is None else printable(cgroup, _COMMAND_LIMIT),
            container=None if cgroup is None else container_of(cgroup),
            terminal=terminal_name(stat.tty),
            pid_namespace=pid_namespace(pid),
            environment=read_environment(pid),
        )


def _identity(stat: Stat) -> tuple[bytes, int]:
    """What an exec or a new process title alters: PID and start ticks stay as they are."""
    return stat.comm, stat.stack


def _with_cpu(facts: ProcessFacts, cpu_seconds: float) -> ProcessFacts:
    return ProcessFacts(
        facts.key,
        facts.start_time,
        facts.uid,
        facts.user,
        facts.command,
        cpu_seconds,
        facts.cgroup,
        facts.container,
        facts.terminal,
        facts.pid_namespace,
        facts.environment,
    )


def _command(pid: int, comm: bytes) -> str | None:
    raw = read_proc(f"/proc/{pid}/cmdline", 1 << 14)
    if raw is None:
        return None
    raw = raw.rstrip(b"\0")
    if not raw:
        return printable(b"[" + comm + b"]", _COMMAND_LIMIT)
    return printable(raw.replace(b"\0", b" "), _COMMAND_LIMIT)


class Trouble(NamedTuple):
    """Why a process could not be held or signalled."""

    message: str
    """In words for a person."""
    not_permitted: bool = False
    gone: bool = False
    """It has ended, or its PID belongs to a successor."""


class PidFd:
    """One process, held by a pidfd: a signal through it cannot reach a successor of the PID.

    Made by ``open_pidfd``; to be closed.
    """

    def __init__(self, key: ProcessKey, fd: int) -> None:
        self.key = key
        self._fd = fd

    def send(self, number: signal.Signals) -> Trouble | None:
        """Signal this very process. None where it was sent, or had nobody to reach any more: ``wait`` tells at once."""
        try:
            signal.pidfd_send_signal(self._fd, number)
        except ProcessLookupError:
            return None
        except OSError as error:
            return _trouble(self.key.pid, error)
        return None

    def uids(self) -> frozenset[int] | None:
        """Every user ID that this very process has now, of all its threads; None where they cannot be read."""
        found = process_uids(self.key.pid)
        try:
            signal.pidfd_send_signal(self._fd, 0)  # it is there after they were read, so they are its own
        except PermissionError:
            pass
        except OSError:
            return None
        return found

    async def wait(self, timeout: float) -> bool:
        """Whether the process ended within ``timeout`` seconds; all its threads, reaped or not."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        # A descriptor of its own: a loop knows one reader for each, and two may wait.
        fd = os.dup(self._fd)
        try:
            loop.add_reader(fd, ended.set)
            try:
                await asyncio.wait_for(ended.wait(), timeout)
            except asyncio.TimeoutError:
                return False
            finally:
                loop.remove_reader(fd)
        finally:
            os.close(fd)
        return True

    def close(self) -> None:
        """Give the descriptor back; a second time does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> PidFd:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_pidfd(key: ProcessKey) -> PidFd | Trouble:
    """A handle on this very process.

    The descriptor is opened before the start time is compared: whatever takes the PID afterwards, the descriptor stays
    with the process that was checked.
    """
    if key.start_ticks is None:
        return Trouble(f"the start time of process {key.pid} is not known, so it cannot be told from a successor")
    gone = Trouble(f"process {key.pid} has ended", gone=True)
    try:
        fd = os.pidfd_open(key.pid)
    except (ProcessLookupError, OverflowError):
        return gone
    except AttributeError:
        return _trouble(key.pid, OSError(errno.ENOSYS, ""))
    except OSError as error:
        # EINVAL: the number of a thread now, so the process that had it is gone.
        return gone if error.errno == errno.EINVAL else _trouble(key.pid, error)
    try:
        stat = read_stat(key.pid)
    except HiddenProcessError:
        os.close(fd)
        return Trouble(
            f"/proc does not show process {key.pid}, so its start time cannot be checked", not_permitted=True
        )
    if stat is None or stat.gone or stat.key != key:
        os.close(fd)
        return gone
    return PidFd(key, fd)


def _trouble(pid: int, error: OSError) -> Trouble:
    if error.errno == errno.ENOSYS:
        return Trouble("this kernel or Python has no pidfds (Linux 5.3 has), so no process can be signalled safely")
    if error.errno == errno.EPERM:
        return Trouble(f"process {pid} belongs to somebody else, or pidfds are forbidden here", not_permitted=True)
    return Trouble(f"no handle on process {pid}: {os.strerror(error.errno or 0)}")
