"""What the contract suite asks of a node, simulated or real, and helpers to wait for what happens on one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from contract.commands import Commands
from mpstui.control.channel import ControlChannel
from mpstui.control.drivers import Driver

T = TypeVar("T")
Mode = Literal["idle", "busy", "endless", "fault"]
"""``idle``: contexts that do nothing. ``busy``: short kernels. ``endless``: one kernel that never ends. ``fault``: busy
until it is told to fault. All but ``endless`` end cleanly when stopped."""
WAIT = 120.0
"""Seconds after which something that should have happened is taken not to."""


@dataclass(frozen=True, slots=True)
class End:
    """How a client process ended."""

    exit_status: int
    """0, 10 after a CUDA error, or the signal's number, negative."""
    error: int | None
    """The CUDA error that it saw last, 0 for none; None where it was killed."""


class ClientRefused(Exception):
    """A client got a CUDA error in place of a context."""

    def __init__(self, error: int) -> None:
        super().__init__(f"refused with CUDA error {error}")
        self.error = error


class NodeClient(Protocol):
    """A running client process."""

    @property
    def pid(self) -> int: ...

    @property
    def running(self) -> bool: ...

    @property
    def sm_count(self) -> int:
        """SMs that CUDA reported to it."""

    @property
    def free_memory(self) -> int:
        """Bytes that CUDA reported as free when it was ready."""

    async def fault(self) -> None:
        """Make a ``fault`` client write where it may not."""

    async def stop(self) -> End:
        """Ask it to end, and wait until it has."""

    async def kill(self) -> End:
        """SIGKILL, and wait until it is gone."""

    async def ended(self) -> End:
        """Wait until it ends by itself."""


class Node(Protocol):
    """A private daemon in private directories. Servers and clients come with ``spawn``."""

    real: bool
    pipe_dir: Path
    log_dir: Path
    device_count: int
    binary: tuple[str, ...]
    daemon_pid: int
    driver: Driver | None
    """The row of the table that it is of; None for one without a row."""

    def knows(self, command: str) -> bool:
        """Whether its daemon has this command: what it has not is not asked."""

    def binary_as(self, uid: int) -> tuple[str, ...]:
        """The control binary as another user runs it."""

    async def spawn(
        self, mode: Mode = "idle", *, argv0: bytes | None = None, devices: tuple[int, ...] = (0,)
    ) -> NodeClient:
        """A client that has its contexts. Raises ClientRefused where it gets none."""

    async def start_daemon(self) -> tuple[int, str]:
        """Start the daemon in its directories (again); exit status and what was printed."""

    async def kill_daemon(self) -> None:
        """SIGKILL the daemon, and wait until it is gone."""

    async def stop(self) -> None:
        """End everything that was started."""


def chosen() -> Literal["real", "control", "sim"]:
    """Which node the suite runs on: ``MPSTUI_CONTRACT=real``, ``control`` (a binary without a GPU) or ``sim``."""
    wanted = os.environ.get("MPSTUI_CONTRACT")
    return "real" if wanted == "real" else "control" if wanted == "control" else "sim"


async def open_node(directory: Path, devices: int = 2, driver: str | None = None) -> Node:
    """Start a node below ``directory``, which must be short. ``devices`` and ``driver``: of a simulated one."""
    if chosen() == "control":
        from contract.control_node import ControlNode

        return await ControlNode.start(directory)
    if chosen() == "real":
        from contract.real_node import RealNode

        return await RealNode.start(directory)
    from contract.simulated_node import SimulatedNode

    return await SimulatedNode.start(directory, devices, driver)


def control_of(node: Node, *, uid: int | None = None, deadline: float = 120.0) -> Commands:
    """The daemon's commands, as this user or as another one."""
    binary = node.binary if uid is None else node.binary_as(uid)
    return Commands(ControlChannel(node.pipe_dir, binary, deadline=deadline, log_dir=node.log_dir))


@contextlib.contextmanager
def raw_session(node: Node) -> Iterator[subprocess.Popen[bytes]]:
    """A control session that stays open: what mpstui itself never does. Killed at the end where it still runs."""
    environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(node.pipe_dir)}
    with subprocess.Popen(node.binary, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as session:
        try:
            yield session
        finally:
            session.kill()


@contextlib.contextmanager
def one_shots(node: Node, shells: int = 2) -> Iterator[None]:
    """Shells that run one command after the other, with sessions slow to end: the daemon is never free for long."""
    loop = f"while :; do (echo get_server_list; sleep 0.5) | {shlex.join(node.binary)}; done"
    environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(node.pipe_dir)}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    running = [
        subprocess.Popen(["sh", "-c", loop], env=environment, start_new_session=True, **quiet) for _ in range(shells)
    ]
    try:
        yield
    finally:
        for shell in running:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()


async def eventually(ask: Callable[[], Awaitable[T]], wanted: Callable[[T], bool], seconds: float = WAIT) -> T:
    """Ask until the answer is as wanted; fails with the last one."""
    end = time.monotonic() + seconds
    while True:
        answer = await ask()
        if wanted(answer):
            return answer
        assert time.monotonic() < end, f"it stayed {answer}"
        await asyncio.sleep(0.02)


async def logged(node: Node, text: str, times: int = 1) -> None:
    """Wait until control.log holds ``text`` so many times."""

    async def count() -> int:
        return (node.log_dir / "control.log").read_text(errors="replace").count(text)

    await eventually(count, lambda count: count >= times)


async def only_server(control: Commands) -> int:
    """The PID of the one server, once it is ready."""
    servers = await eventually(control.get_server_list, lambda answer: bool(answer.ok and answer.value))
    assert servers.value is not None
    (server,) = servers.value
    await status_becomes(control, server, "ACTIVE")
    return server


async def status_becomes(control: Commands, server: int, status: str) -> None:
    """A driver without ``get_server_status`` shows by the percentage that a server is ready (fact 45)."""
    if (await control.get_server_status(server)).message.startswith(("Unknown command", "This daemon does not know")):
        assert status == "ACTIVE", "there is no other way to see it"
        await eventually(lambda: control.get_active_thread_percentage(server), lambda answer: answer.ok)
        return
    await eventually(lambda: control.get_server_status(server), lambda answer: answer.value == status)
