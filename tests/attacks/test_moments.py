"""What changes between the question and the signal: another user's program in the same process, another socket in the
same directory."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from mpstui.observe.discovery import find_speaker
from mpstui.observe.procfs import PidFd, open_pidfd, process_key, process_uids
from mpstui.operations.signals import Guard

from .conftest import Stranger
from .programs import lives, lying_daemon, mpstui, roots_process

BECOMES_ROOTS = """
import os, signal, sys, time
def change(*_):
    os.execv(sys.argv[1], ["cut", "-d", ",", "-f", "1"])
signal.signal(signal.SIGTERM, change)
print("ready", flush=True)
while True: time.sleep(600)
"""


def test_a_process_that_becomes_roots_after_sigterm_is_not_killed(stranger: Stranger) -> None:
    """It runs a setuid program from then on, with the PID and the start time that it had."""
    cut = shutil.which("cut")
    assert cut is not None
    program = stranger.home / "setuid"
    shutil.copy(cut, program)
    os.chown(program, 0, 0)
    program.chmod(0o4755)
    his = stranger.start_python(BECOMES_ROOTS, program, stdin=subprocess.PIPE)
    assert his.stdout is not None
    assert his.stdout.readline() == "ready\n"
    lying_daemon(stranger, stranger.home / "p", clients=[his.pid])
    done = mpstui("terminate", str(his.pid), "--kill", "--yes", "--pipe-dir", stranger.home / "p")
    assert process_uids(his.pid) == {0, stranger.uid}, "it took SIGTERM for that"
    assert done.returncode == 6, done.stderr
    assert "the process lives" in done.stderr
    assert lives(his)


SWAPS = {
    "his own": "os.rename(pipe + '/control', pipe + '/x'); s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); "
    "s.bind(pipe + '/control')",
    "there and back": "os.rename(pipe + '/control', pipe + '/x'); os.rename(pipe + '/x', pipe + '/control')",
    "one for the other": "os.rename(pipe + '/control', pipe + '/x'); "
    "os.rename(pipe + '/control_privileged', pipe + '/control'); os.rename(pipe + '/x', pipe + '/control_privileged')",
    "a link": "os.rename(pipe + '/control', pipe + '/x'); os.symlink(pipe + '/x', pipe + '/control')",
}


@pytest.mark.parametrize("swap", SWAPS.values(), ids=SWAPS)
async def test_a_socket_that_is_exchanged_before_the_signal_ends_nobody(
    stranger: Stranger, roots: Stranger, swap: str
) -> None:
    """Root's daemon has made its directory itself, open to everybody; whoever answered is not known any more."""
    pipe_dir: Path = roots.home / "p"
    with roots_process() as victim:
        lying_daemon(roots, pipe_dir, clients=[victim.pid], mode=0o777)
        guard = await Guard.begin(pipe_dir, find_speaker)
        assert guard.speaker.uid == 0
        key = process_key(victim.pid)
        assert key is not None
        opened = open_pidfd(key)
        assert isinstance(opened, PidFd)
        with opened as process:
            assert guard(process) is None
            stranger.python(f"import os, socket, sys; pipe = sys.argv[1]; {swap}", pipe_dir)
            said = guard(process)
            assert said is not None
            assert "somebody has changed the daemon's directory meanwhile" in said
            assert lives(victim)
