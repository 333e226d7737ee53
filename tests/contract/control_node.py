"""A vendor's control binary without a GPU, behind the contract suite's interface: ``MPSTUI_REAL_CONTROL`` names it.

Its servers never get ready, so only what needs none is asked of it. Which driver it is of follows from what it knows;
one that no row of the table is like is new, and what it says is kept as a recording.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import ClassVar, Final

import psutil

from contract.harness import WAIT, Mode, NodeClient, eventually
from mpstui.control.binary import Binary, look
from mpstui.control.drivers import COMMANDS, DRIVERS, Driver

RECORDINGS: Final = Path(__file__).parent.parent / "data" / "drivers"
STRANGER: Final = 65534
_ROOT: Final = (
    "help", "get_server_list", "ps", "ps -p 1", "ps -p 999", "get_server_status", "get_server_status 999999",
    "get_client_list", "get_client_list 999999", "get_device_client_list", "get_device_client_list 999999",
    "device_query", "device_query 1", "lspart", "sm_partition", "get_default_active_thread_percentage",
    "set_default_active_thread_percentage 50", "get_default_active_thread_percentage",
    "set_default_active_thread_percentage 33.33", "set_default_active_thread_percentage 0",
    "set_default_active_thread_percentage 101", "set_default_active_thread_percentage abc",
    "set_default_active_thread_percentage", "set_default_active_thread_percentage 0.5",
    "set_default_active_thread_percentage 100", "get_active_thread_percentage 999999",
    "set_active_thread_percentage 999999 50", "get_default_device_pinned_mem_limit 0",
    "set_default_device_pinned_mem_limit 0 1G", "get_default_device_pinned_mem_limit 0",
    "set_default_device_pinned_mem_limit 0 512MB", "get_default_device_pinned_mem_limit 0",
    "set_default_device_pinned_mem_limit 0 1500M", "get_default_device_pinned_mem_limit 0",
    "set_default_device_pinned_mem_limit 0 0", "set_default_device_pinned_mem_limit 99 2G",
    "get_default_device_pinned_mem_limit 99", "get_device_pinned_mem_limit 999999 0",
    "set_device_pinned_mem_limit 999999 0 1G", "get_default_client_priority", "set_default_client_priority 1",
    "get_default_client_priority", "set_default_client_priority 2", "set_default_client_priority 0",
    "terminate_client", "terminate_client 999999 999999", "shutdown_server", "shutdown_server 999999", "foo",
    "start_server", "start_server -uid",
)  # fmt: skip
"""What a recording asks, as the recordings of 470 to 555 do: nothing that needs a server."""
_OTHERS: Final = (
    "get_server_list", "get_default_active_thread_percentage", "set_default_active_thread_percentage 50",
    "set_default_client_priority 1", "set_default_device_pinned_mem_limit 0 1G", "start_server -uid 0",
    "shutdown_server 1", "terminate_client 1 2", "quit",
)  # fmt: skip


def binary_there() -> Path | None:
    """The binary that ``MPSTUI_REAL_CONTROL`` names."""
    named = os.environ.get("MPSTUI_REAL_CONTROL")
    return None if not named else Path(named).absolute()


def recognised(knows: Binary, unknown: frozenset[str]) -> Driver | None:
    """The row of the table that is like this binary; None for one that is new."""
    alike = [d for d in DRIVERS if d.options == knows.options and d.absent == unknown]
    return next((d for d in alike if d.binary_version == knows.version), None)


class ControlNode:
    """See ``harness.Node``."""

    real = True
    device_count = 0
    _asked: ClassVar[dict[Path, frozenset[str]]] = {}

    def __init__(self, directory: Path, binary: Path) -> None:
        self.pipe_dir, self.log_dir = directory / "pipe", directory / "log"
        self.binary: tuple[str, ...] = (str(binary),)
        self.daemon_pid = 0
        self.driver: Driver | None = None
        self.unknown: frozenset[str] = frozenset()

    @classmethod
    async def start(cls, directory: Path) -> ControlNode:
        binary = binary_there()
        assert binary is not None
        node = cls(directory, binary)
        node.pipe_dir.mkdir()
        node.log_dir.mkdir()
        status, text = await node.start_daemon()
        assert status == 0, text
        node.unknown = cls._unknown(binary, node)
        node.driver = recognised(await look(node.binary, WAIT), node.unknown)
        return node

    @classmethod
    def _unknown(cls, binary: Path, node: ControlNode) -> frozenset[str]:
        """Commands that the binary does not know: asked once, with a process for each, and not by each test's node."""
        if binary not in cls._asked:
            said = {verb: node.call(verb)[1] for verb in COMMANDS}
            cls._asked[binary] = frozenset(verb for verb in said if said[verb].startswith("Unknown command"))
        return cls._asked[binary]

    def knows(self, command: str) -> bool:
        return command not in self.unknown

    def binary_as(self, uid: int) -> tuple[str, ...]:
        return ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *self.binary)

    async def spawn(
        self, mode: Mode = "idle", *, argv0: bytes | None = None, devices: tuple[int, ...] = (0,)
    ) -> NodeClient:
        raise AssertionError("a client needs a GPU")

    def call(self, command: str, *, uid: int = 0) -> tuple[int, str, str]:
        """Exit status and what was printed, for one command on standard input."""
        binary = self.binary if not uid else self.binary_as(uid)
        done = subprocess.run(
            binary,
            input=f"{command}\n".encode(),
            env=self._environment(),
            capture_output=True,
            timeout=WAIT,
            check=False,
        )
        return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")

    async def start_daemon(self) -> tuple[int, str]:
        done = await asyncio.to_thread(
            subprocess.run,
            [*self.binary, "-d"],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=WAIT,
            check=False,
        )
        if done.returncode == 0:
            self.daemon_pid = await asyncio.to_thread(self._find)
        return done.returncode, done.stdout.decode()

    async def kill_daemon(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.daemon_pid, signal.SIGKILL)
        await self._gone()

    async def stop(self) -> None:
        await asyncio.to_thread(self.call, "quit -t 1")
        await self.kill_daemon()

    def _environment(self) -> dict[str, str]:
        own = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_")}
        return {**own, "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe_dir), "CUDA_MPS_LOG_DIRECTORY": str(self.log_dir)}

    def _find(self) -> int:
        """By its log: not every driver keeps a PID file."""
        text = (self.log_dir / "control.log").read_text()
        return int(re.findall(r"Control +(\d+)\] Starting control daemon", text)[-1])

    async def _gone(self) -> None:
        async def over() -> bool:
            try:
                return psutil.Process(self.daemon_pid).status() in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
            except psutil.NoSuchProcess:
                return True

        await eventually(over, bool)


def record(node: ControlNode, name: str) -> str:
    """What the binary says to each command, in the form of ``tests/data/drivers``; ``name`` is the driver's."""
    lines = [f"# driver {name} control daemon, no GPU", ">>> nvidia-cuda-mps-control -d", "[rc 0]"]
    for command in _ROOT:
        begun = time.monotonic()
        status, out, err = node.call(command)
        lines.append(f">>> {command}   [rc {status}, {(time.monotonic() - begun) * 1000:.0f} ms]")
        lines += [*(f"out| {line}" for line in out.splitlines()), *(f"err| {line}" for line in err.splitlines())]
    if os.geteuid() == 0 and shutil.which("setpriv"):
        lines.append(f"--- as uid {STRANGER}")
        for command in _OTHERS:
            status, out, err = node.call(command, uid=STRANGER)
            lines.append(f">>> {command} [rc {status}]")
            lines += [*(f"out| {line}" for line in out.splitlines()), *(f"err| {line}" for line in err.splitlines())]
    log = (node.log_dir / "control.log").read_text(errors="replace")
    lines += ["=== control.log", log.rstrip("\n"), "=== server.log"]
    return "\n".join(lines).replace(str(node.pipe_dir.parent), "/tmp/mps") + "\n"


def name_of(node: ControlNode, knows: Binary) -> str:
    """What a recording of it is called: the driver that MPSTUI_REAL_DRIVER names, else its version, else its sum."""
    given = os.environ.get("MPSTUI_REAL_DRIVER", "")
    if re.fullmatch(r"[0-9]{3}(\.[0-9]{1,5}){0,3}", given):
        return given
    if knows.version is not None:
        return f"binary-{knows.version}"
    return f"sha256-{hashlib.sha256(Path(node.binary[0]).read_bytes()).hexdigest()[:12]}"
