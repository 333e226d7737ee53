"""Several mpstui beside each other on one node, which is busy: none takes the others' commands for a held session."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from program import MPSTUI, WHOLE, simulated_node
from terminal import Terminal

from mpstui.control.holder import HELD_AFTER
from mpstui.sim.drills import open_session
from mpstui.sim.marker import control_binary
from mpstui.sim.node import SimNode

SCREENS, LOOPS = 3, 2


@contextlib.contextmanager
def load() -> Iterator[None]:
    """Something else to do for two processors, where they have not got it already."""
    others = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0]) - 1
    burning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 - others)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


@contextlib.contextmanager
def shell(environment: dict[str, str]) -> Iterator[None]:
    """One-shot commands of a shell, each slow to end, one after the other."""
    loop = f"while :; do (echo ps; sleep 0.2) | {shlex.join(control_binary())}; sleep 0.2; done"
    running = subprocess.Popen(["sh", "-c", loop], env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()


class Loop(threading.Thread):
    """``status --json`` again and again."""

    def __init__(self, pipe_dir: Path) -> None:
        super().__init__()
        self.healths: list[str] = []
        self.ending = threading.Event()
        self._command = [*MPSTUI, "status", "--json", "--pipe-dir", str(pipe_dir)]

    def run(self) -> None:
        while not self.ending.is_set():
            done = subprocess.run(self._command, capture_output=True, timeout=120, check=False)
            (daemon,) = json.loads(done.stdout)["daemons"]
            self.healths.append(daemon["health"])


@pytest.mark.slow
def test_many_at_once_are_no_held_session_and_one_that_stays_open_is() -> None:
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(simulated_node())
        environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(node.pipe_dir)}
        stack.enter_context(load())
        screens = [stack.enter_context(Terminal([*MPSTUI, "--pipe-dir", str(node.pipe_dir)])) for _ in range(SCREENS)]
        loops = [Loop(node.pipe_dir) for _ in range(LOOPS)]
        for loop in loops:
            loop.start()
        try:
            for screen in screens:
                screen.wait_for(WHOLE, 120)
            end = time.monotonic() + 2 * HELD_AFTER
            with shell(environment):
                while time.monotonic() < end or not all(loop.healths for loop in loops):
                    for screen in screens:
                        screen.read(0.05)
                        assert "HELD" not in screen.text, screen.text
                        assert "nblock" not in screen.text, screen.text
                        assert time.monotonic() < end + 120
        finally:
            for loop in loops:
                loop.ending.set()
            for loop in loops:
                loop.join()
        assert {health for loop in loops for health in loop.healths} == {"ok"}
        session = open_session(SimNode(node.pipe_dir, node.pipe_dir / "logs"), "get_server_list")
        try:
            for screen in screens:
                screen.wait_for(lambda t: "HELD" in t.text and f"process {session.pid}" in t.text, 120)
        finally:
            session.kill()
            session.wait()
        for screen in screens:
            screen.wait_for(lambda t: "HELD" not in t.text, 120)
