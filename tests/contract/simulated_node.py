"""The simulated node behind the contract suite's interface."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import psutil

from contract.harness import WAIT, ClientRefused, End, Mode, eventually
from mpstui.control.drivers import driver_of
from mpstui.sim.client import Behaviour, SimClient
from mpstui.sim.marker import control_binary
from mpstui.sim.node import SimNode
from mpstui.sim.simd.config import DRIVER_VERSION

BEHAVIOURS: dict[Mode, Behaviour] = {"idle": "idle", "busy": "busy", "endless": "endless", "fault": "busy"}


class SimulatedClient:
    """A client process of the simulated node."""

    def __init__(self, client: SimClient) -> None:
        self._client = client

    @property
    def pid(self) -> int:
        return self._client.pid

    @property
    def running(self) -> bool:
        return self._client.status() != "exited"

    @property
    def sm_count(self) -> int:
        return self._client.sm_count or 0

    @property
    def free_memory(self) -> int:
        return self._client.free_memory or 0

    async def fault(self) -> None:
        self._client.tell("fault")

    async def stop(self) -> End:
        self._client.tell("exit")
        return await self.ended()

    async def kill(self) -> End:
        self._client.kill()
        return await self.ended()

    async def ended(self) -> End:
        text = int(await asyncio.to_thread(self._client.wait, WAIT))
        return End(text, None) if text < 0 else End(10 if text else 0, text)


class SimulatedNode:
    """See ``harness.Node``."""

    real = False

    def __init__(self, node: SimNode, device_count: int, driver: str | None) -> None:
        self._node = node
        self.driver = driver_of(driver or DRIVER_VERSION)
        self.pipe_dir = node.pipe_dir
        self.log_dir = node.log_dir
        self.device_count = device_count
        self.binary = control_binary(driver)
        self.daemon_pid = self._read_pid()

    @classmethod
    async def start(cls, directory: Path, devices: int, driver: str | None = None) -> SimulatedNode:
        pipe, log = directory / "pipe", directory / "log"
        node = await asyncio.to_thread(SimNode.start, pipe, log_dir=log, gpus=devices, driver=driver)
        return cls(node, devices, driver)

    def knows(self, command: str) -> bool:
        return self.driver is None or command not in self.driver.absent

    def binary_as(self, uid: int) -> tuple[str, ...]:
        return ("env", f"MPSTUI_SIM_UID={uid}", *self.binary)

    async def spawn(
        self, mode: Mode = "idle", *, argv0: bytes | None = None, devices: tuple[int, ...] = (0,)
    ) -> SimulatedClient:
        # As the compiled client does: an idle one notices at its end, the others at once.
        linger = None if mode == "idle" else 0.0
        named = {} if argv0 is None else {"argv0": argv0}
        client = await asyncio.to_thread(
            self._node.spawn, BEHAVIOURS[mode], devices=devices, linger=linger, wait=False, **named
        )

        async def status() -> str:
            return client.status()

        reached = await eventually(status, lambda status: status not in {"starting", "pending"})
        if client.error:
            client.tell("exit")
            await asyncio.to_thread(client.wait, WAIT)
            raise ClientRefused(client.error)
        assert reached == "connected", reached
        return SimulatedClient(client)

    async def start_daemon(self) -> tuple[int, str]:
        environment = {
            **os.environ,
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe_dir),
            "CUDA_MPS_LOG_DIRECTORY": str(self.log_dir),
        }
        done = await asyncio.to_thread(
            subprocess.run,
            [*self.binary, "-d"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=WAIT,
            check=False,
        )
        if done.returncode == 0:
            self.daemon_pid = self._read_pid()
        return done.returncode, done.stdout.decode()

    async def kill_daemon(self) -> None:
        await asyncio.to_thread(self._node.kill_daemon)

    async def stop(self) -> None:
        await asyncio.to_thread(self._node.stop)
        try:
            process = psutil.Process(self.daemon_pid)
            if str(self.pipe_dir) == process.environ().get("CUDA_MPS_PIPE_DIRECTORY"):
                os.kill(self.daemon_pid, signal.SIGKILL)
        except (psutil.Error, ProcessLookupError):
            return

        async def exists() -> bool:
            return process.is_running() and process.status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}

        await eventually(exists, lambda answer: not answer)

    def _read_pid(self) -> int:
        return self._node.daemon_pid or 0  # not every driver keeps a PID file
