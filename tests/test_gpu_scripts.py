"""What the scripts for a GPU machine do without one: end what they started, and judge what they measured."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from terminal import until

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
sys.path.insert(0, str(SCRIPTS / "gpu"))

STARTER = """
import subprocess, sys
sys.path.insert(0, sys.argv[1])
from ending import nothing_left
with nothing_left():
    child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    print(child.pid, flush=True)
    try:
        sys.stdin.read()
    finally:
        print("on the way out", flush=True)
"""


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, None])
def test_what_a_script_started_ends_with_it_however_it_ends(end: signal.Signals | None) -> None:
    script = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(SCRIPTS / "gpu")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert script.stdout is not None
    child = int(script.stdout.readline())
    try:
        assert _lives(child)
        if end is not None:
            script.send_signal(end)
        said, _ = script.communicate(timeout=120)
        assert script.returncode == {None: 0, signal.SIGKILL: -signal.SIGKILL}.get(end, 128 + int(end or 0))
        assert ("on the way out" in said) == (end != signal.SIGKILL)
        until(lambda: not _lives(child), 120, "the process of its own session is gone")
    finally:
        if _lives(child):
            os.kill(child, signal.SIGKILL)


def test_every_script_for_a_gpu_machine_leaves_nothing() -> None:
    scripts = [path for path in SCRIPTS.glob("gpu-*") if b"python" in path.read_bytes().splitlines()[0]]
    assert len(scripts) > 5
    assert [path.name for path in scripts if "with nothing_left()" not in path.read_text()] == []
