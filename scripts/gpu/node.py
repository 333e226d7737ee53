"""A node for one step of the check: that of the contract suite, real or simulated, worked without async."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from contract import harness
from contract.harness import End, Mode, NodeClient

T = TypeVar("T")
LIFETIME = "3600"
"""Seconds after which a forgotten client ends; the contract suite's own time is too short for a benchmark."""
PREFIX = "gpu-check-"
_STAMP = re.compile(r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\.(\d{3})")


class Client:
    """A running client process."""

    def __init__(self, node: Node, client: NodeClient) -> None:
        self._node = node
        self._client = client

    @property
    def pid(self) -> int:
        return self._client.pid

    @property
    def running(self) -> bool:
        return self._client.running

    def fault(self) -> None:
        """Make a client of mode ``fault`` write where it may not."""
        self._node.do(self._client.fault())

    def stop(self) -> End:
        """SIGTERM, and how it ended."""
        return self._node.do(self._client.stop())

    def kill(self) -> End:
        """A bare kill -9, and how it ended."""
        return self._node.do(self._client.kill())

    def ended(self) -> End:
        """Wait until it ends by itself; raises TimeoutError."""
        return self._node.do(self._client.ended())


class Node:
    """A private daemon with private clients, all of them ended with it."""

    def __init__(self, directory: Path) -> None:
        self._loop = asyncio.new_event_loop()
        # Clients die with the thread that started them, so it lives as long as the node does.
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        if harness.chosen() == "real":
            from contract import real_node

            real_node.LIFETIME = LIFETIME
        self._node = self.do(harness.open_node(directory), 60)
        self.pipe_dir = self._node.pipe_dir
        self.log_dir = self._node.log_dir
        self.binary = self._node.binary

    def do(self, work: Coroutine[Any, Any, T], deadline: float = 90.0) -> T:
        """The result of a coroutine on the node's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(deadline)

    def client(self, mode: Mode) -> Client:
        """A client that has its context."""
        return Client(self, self.do(self._node.spawn(mode)))

    def launch(self, mode: Mode) -> Future[Client]:
        """A client that is on its way."""

        async def start() -> Client:
            return Client(self, await self._node.spawn(mode))

        return asyncio.run_coroutine_threadsafe(start(), self._loop)

    def control(self, command: str, deadline: float = 10.0) -> str:
        """One plain command, past mpstui: the check from outside. Sent again where another session is in its way.

        The answer must not be an empty one (fact 30)."""
        environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe_dir)}
        for _ in range(20):
            done = subprocess.run(
                self.binary,
                input=command + "\n",
                env=environment,
                timeout=deadline,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.stdout or (done.stderr and not done.stderr.startswith("Cannot send command")):
                break
            select.select([], [], [], 0.05)
        return (done.stdout + done.stderr).strip()

    def server(self) -> int:
        """The PID of the only server."""
        return int(self.control("get_server_list").split()[0])

    def client_pids(self) -> set[int]:
        """The PIDs of the server's clients, by the plain command."""
        return {int(line) for line in self.control(f"get_client_list {self.server()}").split() if line.isdigit()}

    def stop(self) -> None:
        self.do(self._node.stop(), 60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)


@contextlib.contextmanager
def fresh_node(keep_logs: Path) -> Iterator[Node]:
    """A node of its own in a new directory; its logs go to ``keep_logs``, and nothing else of it is left."""
    directory = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        node = Node(directory)
        try:
            yield node
        finally:
            try:
                node.stop()
            finally:
                shutil.copytree(node.log_dir, keep_logs, dirs_exist_ok=True)
    finally:
        sweep(directory)


def leftovers(directory: Path) -> list[int]:
    """PIDs of processes whose MPS pipe directory lies in this directory of ours."""
    needle = b"CUDA_MPS_PIPE_DIRECTORY=" + os.fsencode(directory) + b"/"
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                state = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
                if state != "Z" and any(v.startswith(needle) for v in (entry / "environ").read_bytes().split(b"\0")):
                    found.append(int(entry.name))
    return found


def sweep(directory: Path) -> list[int]:
    """Kill whatever is left of a node and remove its directory; the PIDs that had to be killed."""
    found = leftovers(directory)
    for pid in found:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + 10
    while leftovers(directory) and time.monotonic() < end:
        select.select([], [], [], 0.05)
    shutil.rmtree(directory, ignore_errors=True)
    return found


def log_time(files: Sequence[Path], needle: str, offset: int = 0) -> float | None:
    """Seconds since the epoch of the first log line behind ``offset`` that holds ``needle``; None without one."""
    times = []
    for file in files:
        for line in file.read_bytes()[offset:].decode(errors="replace").splitlines():
            if needle in line and (stamp := _STAMP.match(line)):
                seconds = time.mktime(time.strptime(stamp[1], "%Y-%m-%d %H:%M:%S"))
                times.append(seconds + int(stamp[2]) / 1000)
    return min(times, default=None)


@dataclass(frozen=True)
class Setting:
    """What all steps are given."""

    out: Path
    """Where results go."""
    node: Callable[[str], AbstractContextManager[Node]]
    """A fresh node for the step, or part of it, of that name."""
    quick: bool
    """A rehearsal: fewer repetitions and shorter windows."""
    nvitop: str | None = None

    @property
    def repetitions(self) -> int:
        return 3 if self.quick else 10
