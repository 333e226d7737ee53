"""The program as the tests in a terminal start it, and a simulated node served by a process of its own."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from terminal import DEADLINE, until

from mpstui.sim.simd.config import STATE, read_json

MPSTUI = (sys.executable, "-c", "import sys; from mpstui.__main__ import main; sys.exit(main())")
"""As the script that pip installs begins."""
WHOLE = "⁴"  # the clients' panel: at 80×24 its title gives way to a row where all lines are needed
"""On the screen once that has taken over from the first look at the node."""


@dataclass(frozen=True)
class Node:
    """A node with a control daemon, simulated or real."""

    pipe_dir: Path
    server: subprocess.Popen[bytes] | None = None
    """The process that serves a simulated node."""

    def status(self) -> dict[str, Any] | None:
        """What ``mpstui status --json`` says of it; None while it is not up."""
        command = [*MPSTUI, "status", "--json", "--pipe-dir", str(self.pipe_dir)]
        done = subprocess.run(command, capture_output=True, timeout=120, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def client_pids(self) -> list[int]:
        """The clients' PIDs, as the command line tells them, or the simulated node itself, which takes no time."""
        if self.server is not None:
            return [client["pid"] for client in _connected(self.pipe_dir)]
        status = self.status() or {"daemons": []}
        return [c["pid"] for d in status["daemons"] for s in d["servers"] for c in s["clients"]]


@contextlib.contextmanager
def simulated_node(*options: str, clients: int = 1) -> Iterator[Node]:
    """``mpstui sim serve`` on a directory whose name fits into a socket's address, once it has so many clients."""
    directory = Path(tempfile.mkdtemp(prefix="mps"))
    command = [*MPSTUI, "sim", "serve", str(directory), *options]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    node = Node(directory, server)
    try:
        until(lambda: len(_connected(directory)) >= clients, DEADLINE, f"{clients} clients on the simulated node")
        yield node
    finally:
        server.terminate()
        server.wait(120)
        shutil.rmtree(directory, ignore_errors=True)


def _connected(directory: Path) -> list[dict[str, Any]]:
    """The clients that have a server, by the simulated node's own account."""
    try:
        return [client for client in read_json(directory / STATE)["clients"] if client["server"] is not None]
    except OSError:
        return []
