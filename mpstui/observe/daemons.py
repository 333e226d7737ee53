"""Finds the control daemons that run on this machine: one pass over /proc, without a word to any of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from mpstui.control.commandline import PROGRAM, Protocol, parse_command_line
from mpstui.core.model import EMPTY, ProcessKey
from mpstui.observe.limits import LIMIT_VARIABLES
from mpstui.observe.procfs import (
    HiddenProcessError,
    effective_uid,
    process_uids,
    read_arguments,
    read_environment,
    read_proc,
    read_stat,
    start_time,
)

DEFAULT_PIPE_DIR: Final = Path("/tmp/nvidia-mps")  # noqa: S108 - MPS's own default
DEFAULT_V3_PIPE_DIR: Final = Path("/run/nvidia-mps")
DEFAULT_LOG_DIR: Final = Path("/var/log/nvidia-mps")
_SO_ACCEPTCON: Final = b"00010000"
_SOCKETS_LIMIT: Final = 1 << 22
_SOCKET_DIRS_LIMIT: Final = 64
_COMM: Final = (PROGRAM[:15].encode(), b"python", b"pypy")
"""The kernel cuts names at 15 bytes; an interpreter may run a stand-in of that name."""
FileId = tuple[int, int]


class DaemonProcess(NamedTuple):
    """A running control daemon and what may be known of it from outside."""

    key: ProcessKey
    uid: int | None
    start_time: float | None
    multiuser: bool
    protocol: Protocol
    pipe_dir: Path | None
    """As the daemon names it, in its own mount namespace; None where its environment may not be read."""
    log_dir: Path | None
    pipe_id: FileId | None = None
    """The directory behind that name, seen from within the daemon; None where it is gone or out of reach."""
    log_id: FileId | None = None
    static_partitioning: bool = False
    limits: Mapping[str, str] | None = EMPTY
    """The variables of its environment that set limits; None where that may not be read."""


def running_daemons() -> list[DaemonProcess]:
    """Every control daemon that /proc shows, oldest first. Costs some 10 µs a process of the machine."""
    found = [daemon for pid in _candidates() if (daemon := daemon_process(pid)) is not None]
    return sorted(found, key=lambda daemon: (daemon.key.start_ticks or 0, daemon.key.pid))


def daemon_process(pid: int) -> DaemonProcess | None:
    """The daemon that this PID is, judged by its own command line; None for anything else, a zombie among it."""
    try:
        stat = read_stat(pid)
    except HiddenProcessError:
        return None
    if stat is None or stat.gone:
        return None
    environment = read_environment(pid)
    options = parse_command_line([os.fsdecode(argument) for argument in read_arguments(pid) or []], environment)
    if options is None or not options.daemon:
        return None
    uid = effective_uid(pid)
    if process_uids(pid) not in ({uid}, None):
        return None  # a setuid program that somebody has started under this name
    pipe_dir = log_dir = None
    if environment is not None:
        default = DEFAULT_V3_PIPE_DIR if options.protocol == "v3" and uid == 0 else DEFAULT_PIPE_DIR
        pipe_dir = _absolute(environment.get("CUDA_MPS_PIPE_DIRECTORY"), default)
        log_dir = _absolute(environment.get("CUDA_MPS_LOG_DIRECTORY"), DEFAULT_LOG_DIR)
    return DaemonProcess(
        key=stat.key,
        uid=uid,
        start_time=start_time(stat.start_ticks),
        multiuser=options.multiuser,
        protocol=options.protocol,
        pipe_dir=pipe_dir,
        log_dir=log_dir,
        pipe_id=seen_by(pid, pipe_dir),
        log_id=seen_by(pid, log_dir),
        static_partitioning=options.static_partitioning,
        limits=None if environment is None else {k: v for k, v in environment.items() if k in LIMIT_VARIABLES},
    )


def listening_dirs() -> list[Path]:
    """Directories in which somebody of this network namespace listens as a control daemon would.

    Everybody may read that, so it finds the daemon whose environment is closed; anybody may bind such a socket too.
    """
    found = []
    for line in (read_proc("/proc/net/unix", _SOCKETS_LIMIT) or b"").splitlines():
        fields = line.split(maxsplit=7)
        listens = len(fields) == 8 and fields[3] == _SO_ACCEPTCON and fields[7].startswith(b"/")
        if listens and fields[7].endswith(b"/control_privileged"):
            found.append(Path(os.fsdecode(os.path.dirname(fields[7]))))
    return found[:_SOCKET_DIRS_LIMIT]


def seen_by(pid: int, path: Path | None) -> FileId | None:
    """Device and inode of ``path`` as the process sees it, which in a container is not what the path is here."""
    if path is None:
        return None
    return file_id(Path(f"/proc/{pid}/root" + os.fspath(path)))


def file_id(path: Path) -> FileId | None:
    """Device and inode, which tell whether two paths are one directory."""
    try:
        stat = os.stat(path)
    except (OSError, ValueError):
        return None
    return stat.st_dev, stat.st_ino


def _candidates() -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (read_proc(f"/proc/{name}/comm", 16) or b"").startswith(_COMM):
            yield int(name)


def _absolute(text: str | None, default: Path) -> Path | None:
    """A directory from an environment; None for a relative one, since where the daemon stood then is not known."""
    if not text:
        return default
    return Path(text) if text.startswith("/") else None
