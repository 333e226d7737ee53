"""Folders of a test's own: a short one for pipe directories, whose daemons end with it, and the logs of a dead node."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mpstui.observe.discovery import DaemonProcess, running_daemons
from mpstui.sim.node import SimNode

_RECORDED = Path(__file__).parent / "data" / "h100"


def daemons_below(folder: Path) -> list[DaemonProcess]:
    """A child of a daemon that has not become its server yet has the daemon's command line, and is none."""
    found = [d for d in running_daemons() if d.pipe_dir is not None and folder in d.pipe_dir.parents]
    pids = {d.key.pid for d in found}
    return [d for d in found if _parent(d.key.pid) not in pids]


def _parent(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])


@contextmanager
def place_for_daemons() -> Iterator[Path]:
    """Short enough for the path of a socket, wherever tests are told to keep their files."""
    folder = Path(tempfile.mkdtemp(prefix="mpd-", dir="/tmp"))
    try:
        yield folder
    finally:
        for daemon in daemons_below(folder):
            os.kill(daemon.key.pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def simulated_node() -> Iterator[SimNode]:
    """A node with the usual devices, whose directory goes with it."""
    with tempfile.TemporaryDirectory(prefix="mps", dir="/tmp") as place, SimNode.start(Path(place)) as node:
        yield node


def leave_logs(folder: Path) -> Path:
    """The logs of the recording with the faults, where a dead node left them."""
    for kind in ("control", "server"):
        shutil.copy(_RECORDED / f"faults-{kind}.log", folder / f"{kind}.log")
    return folder


@contextmanager
def others_memory(*, kept: bool) -> Iterator[None]:
    """Of the tests of this machine, one that keeps a process's memory from all (``kept``) runs without those that
    attach counters, which do nothing beside it."""
    place = Path(tempfile.gettempdir()) / f"mpstui-tests-memory-{os.geteuid()}.lock"
    fd = os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX if kept else fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)
