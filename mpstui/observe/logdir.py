"""Finds the log directory that belongs to a pipe directory, and reads what its control.log says of the daemon."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mpstui.observe.daemons import DEFAULT_LOG_DIR, DEFAULT_PIPE_DIR, DEFAULT_V3_PIPE_DIR, DaemonProcess, file_id
from mpstui.observe.logfile import Owners, UnreadableLogError, is_believed, is_there, open_log, owners_of

_LOG: Final = "control.log"
_WINDOW: Final = 1 << 16
_VERSION: Final = re.compile(rb"Control +(\d+)\] CUDA MPS Control binary version: (\d{1,9})")


def find_log_dir(pipe_dir: Path, daemon: DaemonProcess | None, wanted: Path | None) -> Path | None:
    """The directory whose control.log is this daemon's; None where none is to be found.

    ``wanted`` (an option, or the user's own environment) is taken at its word. Everything else counts only with a
    control.log in it, and a guess only where that file is believed: a log decides what is shown of a client, and
    anybody can make a directory in /tmp. Whether the daemon's own directory is believed is said where it is read.
    """
    if wanted is not None:
        return wanted
    owners = owners_of(daemon.uid if daemon is not None else None)
    guesses = list(_siblings(pipe_dir))
    if daemon is not None and daemon.log_dir is not None:
        if daemon.log_id is None:
            return daemon.log_dir if is_there(daemon.log_dir / _LOG) else None
        # The daemon may run in a container: its directory is known by what it is, not by what it is called there.
        within = Path(f"/proc/{daemon.key.pid}/root" + os.fspath(daemon.log_dir))
        for path in (daemon.log_dir, *guesses, within):
            if file_id(path) == daemon.log_id and is_there(path / _LOG):
                return path
        return None
    for path in guesses:
        if is_believed(path / _LOG, owners):
            return path
    if is_believed(DEFAULT_LOG_DIR / _LOG, owners) and (
        pipe_dir in {DEFAULT_PIPE_DIR, DEFAULT_V3_PIPE_DIR}
        or b"CUDA_MPS_PIPE_DIRECTORY=%s\n" % os.fsencode(pipe_dir) in _ends(DEFAULT_LOG_DIR / _LOG, owners)
    ):
        return DEFAULT_LOG_DIR
    return None


def binary_version(log_dir: Path, pid: int | None, owners: Owners) -> str | None:
    """The version, ``13000``, that the daemon wrote to control.log when it started; the last one where ``pid`` is not
    in it (a PID namespace). Only the first and last 64 KiB are looked at: None where it is between them, and where the
    log is none of ``owners``'.
    """
    last = None
    for match in _VERSION.finditer(_ends(log_dir / _LOG, owners)):
        last = match[2].decode("ascii")
        if pid is not None and int(match[1]) == pid:
            return last
    return last


def last_written(log_dir: Path, owners: Owners) -> float | None:
    """When control.log was last written to, in seconds since the epoch."""
    try:
        fd = open_log(log_dir / _LOG, owners)
    except UnreadableLogError:
        return None
    try:
        return os.fstat(fd).st_mtime
    finally:
        os.close(fd)


def _siblings(pipe_dir: Path) -> Iterator[Path]:
    """Where deployments put the logs: of ``/tmp/mps_0`` to ``/tmp/mps_log_0``, of ``…/pipe`` to ``…/log``."""
    name, parent = pipe_dir.name, pipe_dir.parent
    head, mps, tail = name.rpartition("mps")
    names = []
    if "pipe" in name:
        names.append(name.replace("pipe", "log"))
    if mps:
        names += [f"{head}mps_log{tail}", f"{head}mps-log{tail}", f"{head}log{tail}"]
    yield from (parent / other for other in (*names, f"{name}-log", f"{name}_log"))
    # In the pipe directory itself ``log`` is a FIFO of the daemon's, elsewhere it may be a directory.
    yield pipe_dir / "log"
    yield pipe_dir / "logs"
    yield pipe_dir


def _ends(path: Path, owners: Owners) -> bytes:
    """The first and the last 64 KiB; empty where the log is not to be read."""
    try:
        fd = open_log(path, owners)
    except UnreadableLogError:
        return b""
    try:
        head = os.pread(fd, _WINDOW, 0)
        start = max(len(head), os.fstat(fd).st_size - _WINDOW)
        return head + b"\n" + os.pread(fd, _WINDOW, start)
    except OSError:
        return b""
    finally:
        os.close(fd)
