"""The real daemon in private directories, with CUDA clients compiled from ``tests/gpu/client.cu``."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import operator
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import psutil

from contract.harness import WAIT, ClientRefused, End, Mode, eventually
from mpstui.control.drivers import driver_of

CONTROL = "nvidia-cuda-mps-control"
SOURCE = Path(__file__).parent.parent / "gpu" / "client.cu"
LIFETIME = "120"
"""Seconds after which a client that was forgotten ends by itself."""


def missing() -> str | None:
    """Why there can be no real node here."""
    lacking = [name for name in (CONTROL, "nvcc", "nvidia-smi") if shutil.which(name) is None]
    return f"needs {', '.join(lacking)}" if lacking else None


@functools.cache
def compiled_client() -> Path:
    """The client, compiled for the GPU that is here."""
    path = Path(tempfile.mkdtemp(prefix="mpstui-client-")) / "client"
    subprocess.run(["nvcc", "-O2", "-arch=native", "-o", path, SOURCE], check=True, timeout=120)
    path.parent.chmod(0o755)
    return path


class RealClient:
    """A process of the compiled client."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.sm_count = 0
        self.free_memory = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.returncode is None

    async def line(self) -> list[str]:
        """The next line in words; none after the last one."""
        assert self._process.stdout is not None
        return (await asyncio.wait_for(self._process.stdout.readline(), WAIT)).decode().split()

    async def fault(self) -> None:
        self._process.send_signal(signal.SIGUSR1)

    async def stop(self) -> End:
        self._signal(signal.SIGTERM)
        return await self.ended()

    async def kill(self) -> End:
        self._signal(signal.SIGKILL)
        return await self.ended()

    async def ended(self) -> End:
        words = await self.line()
        error = int(words[1]) if words[:1] == ["end"] else None
        return End(await asyncio.wait_for(self._process.wait(), WAIT), error)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)


class RealNode:
    """See ``harness.Node``."""

    real = True
    binary: tuple[str, ...] = (CONTROL,)

    def __init__(self, directory: Path) -> None:
        self.pipe_dir = directory / "pipe"
        self.log_dir = directory / "log"
        self.daemon_pid = 0
        listing = subprocess.run(["nvidia-smi", "-L"], check=True, capture_output=True, text=True, timeout=120)
        self.driver = driver_of(_driver_version())
        self.device_count = sum(line.startswith("GPU ") for line in listing.stdout.splitlines())
        self._clients: list[RealClient] = []

    @classmethod
    async def start(cls, directory: Path) -> RealNode:
        node = cls(directory)
        node.pipe_dir.mkdir()
        node.log_dir.mkdir()
        status, text = await node.start_daemon()
        assert status == 0, text
        return node

    def knows(self, command: str) -> bool:
        return self.driver is None or command not in self.driver.absent

    def binary_as(self, uid: int) -> tuple[str, ...]:
        return ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", CONTROL)

    async def spawn(
        self, mode: Mode = "idle", *, argv0: bytes | None = None, devices: tuple[int, ...] = (0,)
    ) -> RealClient:
        path = await asyncio.to_thread(compiled_client)
        arguments = {"idle": ["idle", LIFETIME], "endless": ["endless"]}.get(mode, [mode, LIFETIME])
        environment = self._environment()
        if devices != (0,):
            assert mode == "idle", "only idle clients are made on several devices or on others than the first"
            arguments = ["multi", ",".join(map(str, devices)), LIFETIME]
        process = await asyncio.create_subprocess_exec(
            os.fsencode(path) if argv0 is None else argv0,
            *arguments,
            executable=path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        client = RealClient(process)
        self._clients.append(client)
        words = await client.line()
        if words[:1] == ["end"]:
            await asyncio.wait_for(process.wait(), WAIT)
            raise ClientRefused(int(words[1]))
        assert words[:1] == ["ready"], words
        told = dict(zip(words[1::2], map(int, words[2::2]), strict=False))
        client.sm_count, client.free_memory = told["sm"], told["free"] << 20
        return client

    async def start_daemon(self) -> tuple[int, str]:
        # A file and not a pipe: the daemon keeps its standard output open.
        with tempfile.TemporaryFile() as output:
            process = await asyncio.create_subprocess_exec(
                CONTROL, "-d", env=self._environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
            status = await asyncio.wait_for(process.wait(), WAIT)
            output.seek(0)
            text = output.read().decode()
        if status == 0:
            self.daemon_pid = int((self.pipe_dir / f"{CONTROL}.pid").read_text())
        return status, text

    async def kill_daemon(self) -> None:
        os.kill(self.daemon_pid, signal.SIGKILL)
        await self._gone(self.daemon_pid)

    async def stop(self) -> None:
        for client in self._clients:
            if client.running:
                await client.kill()
        servers = [p.pid for p in psutil.Process(self.daemon_pid).children()] if _alive(self.daemon_pid) else []
        if _alive(self.daemon_pid):
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(
                    subprocess.run, [CONTROL], input=b"quit -t 1\n", env=self._environment(), timeout=120, check=False
                )
        for pid in (self.daemon_pid, *servers):
            if _alive(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                await self._gone(pid)

    def _environment(self) -> dict[str, str]:
        own = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_")}
        return {
            **own,
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe_dir),
            "CUDA_MPS_LOG_DIRECTORY": str(self.log_dir),
        }

    async def _gone(self, pid: int) -> None:
        async def alive() -> bool:
            return _alive(pid)

        await eventually(alive, operator.not_)


def _driver_version() -> str:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(query, check=True, capture_output=True, text=True, timeout=120).stdout.partition("\n")[0]


def _alive(pid: int) -> bool:
    """Whether the process runs; one that nobody reaps is dead."""
    try:
        return psutil.Process(pid).status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    except psutil.NoSuchProcess:
        return False
