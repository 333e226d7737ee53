"""A private node with mpstui's collector and runner on it, as behind the screen, and sessions that get in its way."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from contract import harness

from mpstui.node import open_node as open_sources
from mpstui.observe.watcher import NodeWatcher
from mpstui.operations.audit import AuditLog
from mpstui.operations.runner import OperationRunner
from mpstui.operations.types import Request

SEEN = 20.0
"""Seconds after which an alert is taken not to come."""


class Watched:
    """A private node, and mpstui's collector and runner on it, as behind the screen."""

    def __init__(self, node: harness.Node, folder: Path) -> None:
        self.node = node
        sources, _ = open_sources([node.pipe_dir])
        self.collector = NodeWatcher([node.pipe_dir], sources, log_dirs=[node.log_dir])
        self.runner = OperationRunner(self.collector, AuditLog(folder / "audit.jsonl"), grace=2.0)

    async def until(self, condition: Callable[[Any, Any], Any]) -> tuple[Any, float]:
        """What the condition gives for the first snapshot that has it, and the time at which that came."""
        found: asyncio.Future[tuple[Any, float]] = asyncio.get_running_loop().create_future()

        def look(snapshot: Any) -> None:
            value = condition(snapshot, snapshot.daemons[0]) if snapshot.daemons else None
            if value and not found.done():
                found.set_result((value, time.time()))

        leave = self.collector.subscribe(look)
        try:
            if self.collector.snapshot is not None:
                look(self.collector.snapshot)
            return await asyncio.wait_for(found, SEEN)
        finally:
            leave()

    async def quiet(self) -> None:
        """Until the daemon answers and its servers are well."""
        await self.until(lambda s, d: d.health == "ok" and all(x.status == "ACTIVE" for x in d.servers))

    async def ready(self, *clients: Any) -> None:
        """Until the snapshot has these clients, with their start times."""
        pids = {client.pid for client in clients}
        await self.until(lambda s, d: pids <= {c.pid for c in d.clients() if c.key.start_ticks})

    async def act(self, action: Any) -> str:
        """Carries an action out; what it said. Raises where it was not done."""
        result = await self.runner.execute(Request(action, self.node.pipe_dir), self.collector.snapshot)
        if not result.done:
            raise RuntimeError(f"{action}: {result.message} {result.details}")
        return result.message

    async def session(self, command: str, *, close: bool) -> tuple[subprocess.Popen[bytes], float]:
        """A control session that lasts, and when it began; sent again while another session is in its way (fact 2)."""
        for _ in range(20):
            asked = time.time()
            process = start_session(self.node.binary, self.node.pipe_dir, command, close=close)
            try:
                await asyncio.to_thread(process.wait, 0.3)
            except subprocess.TimeoutExpired:
                return process, asked
            end_session(process)
        raise RuntimeError(f"{command}: its session ends at once")

    async def control(self, command: str) -> str:
        """One plain question, past mpstui; asked again where another session is in its way (facts 2, 30)."""
        for _ in range(20):
            process = await asyncio.create_subprocess_exec(
                *self.node.binary,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(self.node.pipe_dir)},
            )
            out, err = await asyncio.wait_for(process.communicate(command.encode() + b"\n"), 15)
            if out or (err and not err.startswith(b"Cannot send command")):
                break
            await asyncio.sleep(0.05)
        return out.decode().strip()


def start_session(binary: Sequence[str], pipe_dir: Path, command: str, *, close: bool) -> subprocess.Popen[bytes]:
    """A control session past mpstui: one command, and then its end, or nothing more."""
    environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(pipe_dir)}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(binary, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, env=environment, bufsize=0)
    assert process.stdin is not None
    process.stdin.write(command.encode() + b"\n")
    if close:
        process.stdin.close()
    return process


def end_session(process: subprocess.Popen[bytes]) -> None:
    """Closes a session and waits for its process; one that stays is killed."""
    if process.stdin is not None and not process.stdin.closed:
        process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(3)
        return
    process.kill()
    process.wait()
