"""A short directory for pipe directories, whose daemons are all ended with it."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpstui.actions.audit import AuditLog
from mpstui.observe.daemons import DaemonProcess, running_daemons


def daemons_below(folder: Path) -> list[DaemonProcess]:
    return [d for d in running_daemons() if d.pipe_dir is not None and folder in d.pipe_dir.parents]


@pytest.fixture
def place() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="mpd-", dir="/tmp"))
    try:
        yield folder
    finally:
        for daemon in daemons_below(folder):
            os.kill(daemon.key.pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def audit(tmp_path: Path) -> AuditLog:
    return AuditLog(tmp_path / "audit.jsonl")
