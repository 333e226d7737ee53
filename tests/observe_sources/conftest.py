"""Real child processes for the tests of the observation sources."""

from __future__ import annotations

import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Spawn = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def room() -> Iterator[Path]:
    """A short directory that everybody may look into: a control socket's path must fit."""
    path = Path(tempfile.mkdtemp(prefix="mps", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Starts a command and returns when it has printed its first line; it is killed at the end."""
    running: list[subprocess.Popen[bytes]] = []

    def start(argv: list[str | bytes | Path], **options: object) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)  # type: ignore[call-overload]
        running.append(process)
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], 120)
        assert ready, "the child did not start"
        assert process.stdout.readline() == b"ready\n"
        return process

    yield start
    for process in running:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=120)


@pytest.fixture
def waiter(spawn: Spawn) -> Callable[..., subprocess.Popen[bytes]]:
    """A child that waits on its standard input; ``code`` runs first."""

    def start(code: str = "", **options: object) -> subprocess.Popen[bytes]:
        script = f"import os, sys\n{code}\nprint('ready', flush=True)\nsys.stdin.read()"
        return spawn([sys.executable, "-S", "-c", script], **options)

    return start
