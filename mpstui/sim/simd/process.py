"""What a process may do to itself: take another's name, end with its parent, say when it started."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1
_PR_SET_MM = 35
_PR_SET_MM_ARG_END = 9
_libc = ctypes.CDLL(None)


def stat_fields(pid: int | str) -> list[str]:
    """The fields of /proc/PID/stat from the third on, empty where there is no such process."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(fd, 4096).rpartition(b")")[2].decode("ascii").split()
        finally:
            os.close(fd)
    except OSError:
        return []


def start_ticks(pid: int) -> int | None:
    """Start of the process in clock ticks since boot; None for one that is gone or a zombie."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields and fields[0] not in {"Z", "X"} else None


def rename(argv: Sequence[bytes]) -> None:
    """Shows ``argv`` as this process's command line, and its name as the kernel's (15 bytes of it).

    The arguments are overwritten where the kernel reads them; what is left of the old ones becomes empty arguments,
    unless this process may also move their end.
    """
    with open("/proc/self/comm", "wb") as comm:
        comm.write(os.path.basename(argv[0])[:15])
    start, end = (int(field) for field in stat_fields("self")[45:47])
    wanted = b"\0".join(argv) + b"\0"
    if not 0 < start < end:
        return
    shown = wanted[: end - start]
    ctypes.memmove(start, shown.ljust(end - start, b"\0"), end - start)
    _libc.prctl(_PR_SET_MM, _PR_SET_MM_ARG_END, ctypes.c_ulong(start + len(shown)), 0, 0)


def die_with_parent(parent: int) -> None:
    """SIGKILL for this process as soon as ``parent`` ends, also if it has ended already."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def pid_namespace(pid: int) -> int:
    """The inode of the process's PID namespace, 0 where that may not be read."""
    with contextlib.suppress(OSError):
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    return 0
