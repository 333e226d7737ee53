"""The store of :mod:`warm`: what it starts is as a process that was started for itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import warm


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [("--version",), ("suspects", "--json", "--log-dir", "there"), ("set", "x"), ("plan", "--clients", "\udce9", "-é")],
)
def test_it_says_and_returns_the_same(words: tuple[str, ...], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mpstui", *words]
    environment = {**os.environ, "MPSTUI_AUDIT_LOG": str(tmp_path / "audit.jsonl")}
    alone = subprocess.run(
        command, capture_output=True, stdin=subprocess.DEVNULL, cwd=tmp_path, env=environment, timeout=120, check=False
    )
    forked = warm.run(*words, cwd=tmp_path, env=environment, text=False)
    told = [(done.returncode, _without_time(done.stdout), done.stderr) for done in (alone, forked)]
    assert told[0] == told[1]


def _without_time(said: bytes) -> object:
    return {**json.loads(said), "time": ""} if said.startswith(b"{") else said


def test_it_is_a_process_of_its_own_that_is_signalled_and_waited_for(tmp_path: Path) -> None:
    (tmp_path / "control.log").touch()  # where there is no log, it ends by itself
    words = ["events", "--follow", "--log-dir", str(tmp_path)]
    with warm.Popen(words, stderr=subprocess.PIPE, env={**os.environ, "TZ": "UTC"}) as process:
        argv = Path(f"/proc/{process.pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        assert [os.fsdecode(word) for word in argv] == [sys.executable, "-m", "mpstui", *words]
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait(120) == -signal.SIGKILL


def test_its_output_may_have_no_reader() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert warm.run("--help", stdout=writer).returncode == 128 + signal.SIGPIPE
    finally:
        os.close(writer)
