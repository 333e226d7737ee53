"""Who keeps a control session open: the process that shuts everybody else out (fact 2)."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

import psutil

from mpstui.control.commandline import parse_command_line
from mpstui.model import SessionHolder
from mpstui.text import printable

DEFAULT_PIPE_DIRECTORY = "/tmp/nvidia-mps"  # noqa: S108  the daemon's own default


def find_holder(pipe_dir: Path, exclude: Collection[int] = (), binary: Sequence[str] = ()) -> SessionHolder | None:
    """The likely holder of the session of ``pipe_dir``: one whose environment names it before one that hides its own,
    and the oldest of several. Reads every process; call it off the event loop.
    """
    wanted = os.path.realpath(pipe_dir)
    found: list[tuple[bool, float, SessionHolder]] = []
    for process in psutil.process_iter():
        if process.pid in exclude:
            continue
        try:
            candidate = _candidate(process, wanted, binary)
            if candidate is not None:
                found.append((not candidate.certain, process.create_time(), candidate))
        except (psutil.Error, OSError):
            continue
    return min(found, key=lambda entry: entry[:2])[2] if found else None


def _candidate(process: psutil.Process, wanted: str, binary: Sequence[str]) -> SessionHolder | None:
    options = parse_command_line(process.cmdline(), binary=binary)
    if options is None or options.daemon or process.status() == psutil.STATUS_ZOMBIE:
        return None
    try:
        directory = process.environ().get("CUDA_MPS_PIPE_DIRECTORY", DEFAULT_PIPE_DIRECTORY)
    except (psutil.AccessDenied, PermissionError):
        certain = False
    else:
        certain = True
        if os.path.realpath(directory) != wanted:
            return None
    try:
        user: str | None = printable(process.username())
    except (psutil.Error, KeyError):
        user = None
    return SessionHolder(process.pid, user, process.terminal(), certain, _start_ticks(process.pid))


def _start_ticks(pid: int) -> int | None:
    """When the kernel says that it started, in clock ticks since boot; None where /proc does not show it."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in parentheses may hold blanks and parentheses itself.
            return int(file.read(4096).rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
