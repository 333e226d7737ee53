"""A client's number that is another process's by now: whoever ends lets go of his, and may have kept the place."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mpstui.sim.node import SimNode

from .conftest import Stranger
from .programs import BINARY, lives, mpstui

LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
LEAVES = """
import base64, json, os, socket, sys
if os.fork():  # the number of a session's leader stays taken
    os.wait()
    sys.exit()
one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
one.connect(sys.argv[1] + "/control")
hello = {"devices": [0], "user": None, "argv0": base64.b64encode(b"./x").decode(), "command": "./x", "contexts": 1}
one.send(json.dumps({**hello, "memory": 0, "env": {}, "busy": False}).encode())
while not one.recv(1 << 16).startswith(b"connected"): pass
if os.fork():
    print(os.getpid(), flush=True)
    os._exit(0)
while one.recv(1 << 16): pass
"""


@contextmanager
def successor(pid: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process of root's that gets this number."""
    for _ in range(1000):
        LAST_PID.write_text(f"{pid - 1}")
        with subprocess.Popen(["sleep", "600"]) as process:
            try:
                if process.pid == pid:
                    yield process
                    return
            finally:
                process.kill()
    pytest.skip(f"another process of the machine has the number {pid}")


@pytest.mark.skipif(not os.access(LAST_PID, os.W_OK), reason="nobody says here which number a process gets")
def test_who_has_the_number_of_a_client_that_ended_is_not_ended_for_it(stranger: Stranger, crowd: Path) -> None:
    with SimNode.start(crowd / "mine" / "p", multiuser=True) as node:
        (node.pipe_dir / "mpstui-simulated").unlink()
        client = stranger.start_python(LEAVES, node.pipe_dir)
        assert client.stdout is not None
        pid, since = int(client.stdout.readline()), time.time()
        client.wait(60)
        while time.time() < since + 1.1:  # by less the two cannot be told apart
            os.sched_yield()
        at = ("--pipe-dir", node.pipe_dir)
        with successor(pid) as innocent:
            (daemon,) = json.loads(mpstui("status", "--json", *at, MPSTUI_CONTROL_BINARY=str(BINARY)).stdout)["daemons"]
            (shown,) = daemon["servers"][0]["clients"]
            assert (shown["pid"], shown["pid_proved"], shown["user"], shown["start_time"]) == (pid, False, None, None)
            assert "its process has ended, and another one has its PID" in shown["command"]
            done = mpstui("terminate", str(pid), "--kill", "--yes", *at)
            assert (done.returncode, lives(innocent)) == (6, True), done.stderr
            assert "no process is signalled" in done.stderr
