"""Reads /proc: one process's stat, arguments, environment, user; what may not be read is None.

/proc is read directly: one read of ``stat`` gives the identity, the state, the terminal and the CPU time of one
moment, and its start ticks do not move when the clock is set.
"""

from __future__ import annotations

import functools
import os
import pwd
import time
from typing import Final, NamedTuple

from mpstui.core.model import ProcessKey
from mpstui.core.text import printable

TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_READ_LIMIT: Final = 1 << 20
_VALUE_LIMIT: Final = 4096
_CLOCK_STEP: Final = 1.0
_boot = 0.0


class Stat(NamedTuple):
    """One reading of /proc/PID/stat."""

    pid: int
    comm: bytes
    state: str
    tty: int
    cpu_ticks: int
    threads: int
    start_ticks: int
    stack: int
    """Where its stack starts, changed by exec; 0 without permission."""

    @property
    def key(self) -> ProcessKey:
        return ProcessKey(self.pid, self.start_ticks)

    @property
    def gone(self) -> bool:
        """A zombie holds no GPU, except one whose other threads still run, e.g. inside the driver."""
        return self.state in "ZXx" and self.threads <= 1


class HiddenProcessError(Exception):
    """The process exists, but /proc does not show it (mounted with hidepid)."""


def read_stat(pid: int) -> Stat | None:
    """The process's ``stat``, or None where there is no such process. Raises HiddenProcessError."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            raw = os.read(fd, 4096)
        finally:
            os.close(fd)
    except PermissionError:
        raise HiddenProcessError from None
    except OSError:
        if _exists(pid):
            raise HiddenProcessError from None
        return None
    # The name may hold spaces and parentheses: the fields start behind the last one.
    end = raw.rfind(b")")
    fields = raw[end + 2 :].split()
    if end < 0 or len(fields) < 26:
        return None
    return Stat(
        pid=pid,
        comm=raw[raw.find(b"(") + 1 : end],
        state=fields[0].decode("ascii", "replace"),
        tty=int(fields[4]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        threads=int(fields[17]),
        start_ticks=int(fields[19]),
        stack=int(fields[25]),
    )


def _exists(pid: int) -> bool:
    """Whether a process that /proc does not show is there all the same. One's own and root's view are complete."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def process_key(pid: int) -> ProcessKey | None:
    """The identity of the living process that has this PID now."""
    try:
        stat = read_stat(pid)
    except HiddenProcessError:
        return ProcessKey(pid)
    return None if stat is None or stat.gone else stat.key


@functools.lru_cache(maxsize=1024)
def user_name(uid: int) -> str:
    """The login name, or the number as text. May ask a directory service the first time, so it may block."""
    try:
        return printable(pwd.getpwuid(uid).pw_name, 64)
    except (KeyError, OverflowError):
        return str(uid)


def read_environment(pid: int) -> dict[str, str] | None:
    """The CUDA_* variables that the process was started with, decoded as file names are (so not
    printable); None where not permitted."""
    raw = read_proc(f"/proc/{pid}/environ")
    if raw is None:
        return None
    found: dict[str, str] = {}
    for entry in raw.split(b"\0"):
        if entry.startswith(b"CUDA_"):
            name, _, value = entry.partition(b"=")
            # Like getenv: of a name given twice the first one counts.
            found.setdefault(os.fsdecode(name[:_VALUE_LIMIT]), os.fsdecode(value[:_VALUE_LIMIT]))
    return found


def read_arguments(pid: int) -> list[bytes] | None:
    """argv as the process has it now; [] for a kernel thread or a zombie, None if gone or not permitted."""
    raw = read_proc(f"/proc/{pid}/cmdline", 1 << 16)
    if raw is None:
        return None
    raw = raw.rstrip(b"\0")
    return raw.split(b"\0") if raw else []


def effective_uid(pid: int) -> int | None:
    """The effective user, which is whom MPS takes a client for."""
    for line in (read_proc(f"/proc/{pid}/status") or b"").splitlines():
        if line.startswith(b"Uid:"):
            return int(line.split()[2])
    return None


def process_uids(pid: int) -> frozenset[int] | None:
    """Every user ID that the process has: real, effective and saved, of each of its threads. None where it is gone, or
    not shown."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return None
    found: set[int] = set()
    for thread in threads:
        for line in (read_proc(f"/proc/{pid}/task/{thread}/status") or b"").splitlines():
            if line.startswith(b"Uid:"):
                found.update(map(int, line.split()[1:4]))
    return frozenset(found) or None


def pid_namespace(pid: int | str) -> int | None:
    """The inode of the PID namespace that the process is in; None where that may not be read.

    Of another user's process everybody may read how many PIDs it has: one that has a single one is in the namespace
    that /proc shows, which is this process's own where that, too, has one.
    """
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except PermissionError:
        return pid_namespace("self") if _is_at_the_top(pid) and _is_at_the_top("self") else None
    except OSError:
        return None


def _is_at_the_top(pid: int | str) -> bool:
    lines = (read_proc(f"/proc/{pid}/status") or b"").splitlines()
    return any(line.startswith(b"NSpid:") and len(line.split()) == 2 for line in lines)


def terminal_name(tty: int) -> str | None:
    """The name of a terminal's device number as ``ps`` writes it: ``pts/3``, ``tty1``, ``ttyS0``."""
    major, minor = (tty >> 8) & 0xFFF, (tty & 0xFF) | ((tty >> 12) & 0xFFF00)
    if 136 <= major <= 143:
        return f"pts/{minor + 256 * (major - 136)}"
    if major == 4:
        return f"tty{minor}" if minor < 64 else f"ttyS{minor - 64}"
    return None


def start_time(start_ticks: int) -> float:
    """Start ticks as seconds since the epoch, by today's clock."""
    return boot_time() + start_ticks / TICKS_PER_SECOND


def read_proc(path: str, limit: int = _READ_LIMIT) -> bytes | None:
    """A file of /proc, whole up to ``limit`` bytes; None where it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    chunks: list[bytes] = []
    try:
        while limit > 0:
            chunk = os.read(fd, min(limit, 1 << 16))
            if not chunk:
                break
            chunks.append(chunk)
            limit -= len(chunk)
    except OSError:
        return None
    finally:
        os.close(fd)
    return b"".join(chunks)


def boot_time() -> float:
    """When the machine started, in seconds since the epoch by today's clock.

    The same number each time, so that start times stay what they are, until the clock is set by more than a second.
    """
    global _boot
    now = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    if abs(now - _boot) > _CLOCK_STEP:
        _boot = now
    return _boot
