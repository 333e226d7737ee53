"""A simulated node for load workers, and waiting with a deadline."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mpstui.load.supervisor import Supervisor
from mpstui.load.types import WorkerReport
from mpstui.sim.load import worker_command
from mpstui.sim.node import SimNode
from mpstui.system.procfs import is_alive, process_key

DEADLINE = 120.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SimNode]:
    """A simulated node with one device and no clients."""
    with SimNode.start(tmp_path / "pipe", gpus=1) as started:
        yield started


@pytest.fixture
def supervisor(node: SimNode) -> Supervisor:
    """A supervisor of simulated workers; they end with the test's process at the latest."""
    return Supervisor(worker_command=worker_command(node.pipe_dir), simulated=True)


async def until(supervisor: Supervisor, condition: Callable[[tuple[WorkerReport, ...]], bool]) -> None:
    """Wait until the workers' reports fulfil the condition. Raises TimeoutError with the reports."""
    changed = asyncio.Event()
    unsubscribe = supervisor.subscribe(lambda _: changed.set())
    end = time.monotonic() + DEADLINE
    try:
        while not condition(supervisor.workers):
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{supervisor.workers}")
            changed.clear()
            try:
                await asyncio.wait_for(changed.wait(), left)
            except asyncio.TimeoutError:
                raise TimeoutError(f"{supervisor.workers}") from None
    finally:
        unsubscribe()


async def gone(pids: list[int]) -> None:
    """Wait until none of these processes lives. Raises TimeoutError."""
    keys = [key for key in map(process_key, pids) if key is not None]
    end = time.monotonic() + DEADLINE
    while any(is_alive(key) for key in keys):
        if time.monotonic() > end:
            raise TimeoutError(f"still there: {[key.pid for key in keys if is_alive(key)]}")
        await asyncio.sleep(0.01)


def processes_with(needle: str) -> list[int]:
    """PIDs of processes whose command line or environment holds ``needle``, without this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0].decode()
            except OSError:
                continue
            if needle.encode() in text and state not in "ZX":
                found.append(int(entry.name))
    return found
