"""A daemon, an NVML and a /proc that a test moves by hand, and a clock that only the collector's sleeping moves."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from mpstui.control.answer import Answer, Outcome
from mpstui.control.protocol import LEGACY, Capabilities
from mpstui.control.wire import ClientContext, DeviceClients, DeviceQuery, PsRow, QueriedDevice
from mpstui.core.model import Device, ProcessKey
from mpstui.observe.discovery import Place
from mpstui.observe.sources import NodeSources, NvmlSample
from mpstui.observe.watcher import NodeWatcher
from mpstui.system.procfs import ProcessFacts

UUID = "GPU-c6233a33-3507-69ef-fed3-0090a2cbc745"


class FakeClock:
    """Seconds that pass when somebody sleeps, at once."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        for _ in range(12):  # lets whatever was started get on
            await asyncio.sleep(0)


class FakeControl:
    """Answers like a daemon with one server, 634, and notes what it was asked."""

    def __init__(self) -> None:
        self.clients: list[int] = []
        self.rows: tuple[PsRow, ...] = ()
        self.percentage = 100.0
        self.status = "ACTIVE"
        self.outcome = Outcome.OK
        self.sent: list[str] = []
        self.session = False
        self.also: tuple[QueriedDevice, ...] = ()
        """Its devices behind the first one."""
        self.protocol = LEGACY
        self.capabilities = Capabilities()

    def session_stays(self, open_):
        self.session = open_

    def speak(self, protocol):
        self.protocol = protocol

    def _answer(self, command, value):
        self.sent.append(command)
        if self.outcome is not Outcome.OK:
            return Answer(command, self.outcome, message=f"it is {self.outcome.value}")
        return Answer(command, Outcome.OK, value)

    async def ask_all(self, *asked):
        """Each question's own answer."""
        words = [question.command.split() for question in asked]
        return tuple([await getattr(self, command)(*arguments) for command, *arguments in words])

    async def get_server_list(self):
        return self._answer("get_server_list", (634,))

    async def get_server_status(self, server):
        return self._answer("get_server_status", self.status)

    async def get_client_list(self, server):
        return self._answer("get_client_list", tuple(self.clients))

    async def get_device_client_list(self, server=None):
        contexts = tuple(ClientContext(pid, 1) for pid in self.clients)
        return self._answer("get_device_client_list", (DeviceClients(0, "00:00.0", "H100", contexts),))

    async def ps(self, server=None):
        return self._answer("ps", self.rows)

    async def device_query(self):
        row = QueriedDevice(0, "0000:00.06.00", UUID, "H100", "N/A")
        return self._answer("device_query", DeviceQuery((row, *self.also), {}))

    async def get_default_active_thread_percentage(self):
        return self._answer("get_default_active_thread_percentage", 100.0)

    async def get_active_thread_percentage(self, server):
        return self._answer("get_active_thread_percentage", self.percentage)

    async def get_default_device_pinned_mem_limit(self, device):
        return self._answer("get_default_device_pinned_mem_limit", None)

    async def get_device_pinned_mem_limit(self, server, device):
        return self._answer("get_device_pinned_mem_limit", None)

    async def get_default_client_priority(self):
        return self._answer("get_default_client_priority", 0)


class FakeNvml:
    """One H100; hangs while ``gate`` is not set."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.members: dict[str, dict[int, int | None]] = {UUID: {}}
        self.wholes = self.steadies = 0

    def sample(self) -> NvmlSample:
        self.wholes += 1
        return self._taken()

    def steady(self) -> NvmlSample:
        self.steadies += 1
        return self._taken()

    def _taken(self) -> NvmlSample:
        self.gate.wait(120)
        return NvmlSample(1.0, "580", (Device(UUID, index=0, sm_count=132),), mps_clients=self._members())

    def membership(self):
        self.gate.wait(120)
        return self._members()

    def _members(self) -> dict[str, dict[int, int | None]]:
        return {uuid: dict(found) for uuid, found in self.members.items()}

    def close(self) -> None:
        pass


class AtOnce:
    """Calls without a thread."""

    def call(self, function):
        future = asyncio.get_running_loop().create_future()
        try:
            future.set_result(function())
        except Exception as error:
            future.set_exception(error)
        return future

    def close(self, last=None):
        pass


class FakeProcesses:
    """Whoever is in ``living`` lives; None: nothing is known of anybody."""

    def __init__(self) -> None:
        self.living: set[int] | None = None

    def facts(self, pids):
        return {
            pid: ProcessFacts(ProcessKey(pid, 1), user="alice", vouched=True)
            for pid in pids
            if pid in (self.living or ())
        }


class Node:
    """A collector on stand-ins, with log files in ``folder``."""

    def __init__(self, folder: Path, logs: bool = True, patience: float = 5.0, refresh: float | None = None) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.control = FakeControl()
        self.nvml = FakeNvml()
        self.processes = FakeProcesses()
        self.place = Place(folder, "running", folder if logs else None, ProcessKey(480, 1))
        if logs:
            self.log("control", "Starting control daemon using socket /tmp/mps_0/control", "NEW SERVER 634: Ready")
            self.log("server", "Startup", "Active Threads Percentage set to 100.0", "Server has started")
        self.collector = NodeWatcher(
            [folder],
            NodeSources(False, ("none",), self.nvml, self.processes),
            patience=patience,
            refresh=refresh,
            find=lambda dirs, logs: self.places if self.places is not None else (self.place,),
            control=lambda path: self.control,
            clock=self.clock,
            monotonic=self.clock,
            sleep=self.clock.sleep,
            watcher=lambda: None,
        )
        # /proc and NVML answer at once: the clock of the tests does not wait for a thread.
        self.collector._files = AtOnce()
        self.collector._gpu = AtOnce()
        self.seen = []
        self.places: tuple[Place, ...] | None = None
        self.collector.subscribe(self.seen.append)

    def log(self, kind: str, *texts: str) -> None:
        tag, pid = ("Control", 480) if kind == "control" else ("Server", 634)
        with (self.folder / f"{kind}.log").open("a") as out:
            for text in texts:
                out.write(f"[2026-11-20 21:24:28.598 {tag} {pid:>5}] {text}\n")

    def connect(self, pid: int) -> None:
        self.control.clients.append(pid)
        self.nvml.members[UUID][pid] = 1 << 20
        self.log(
            "server",
            f"Client {{PID: {pid}, Context ID: 0}} connected",
            f"Client {{PID: {pid}, Context ID: 1}} connected",
            f"Device NVIDIA H100 (uuid {UUID}) is associated",
            f"Status of client {{PID: {pid}, Context ID: 1}} is ACTIVE",
        )

    @property
    def daemon(self):
        return self.collector.snapshot.daemons[0]

    async def until(self, condition, patience: float = 120.0) -> None:
        """Waits for ``condition``; real seconds, as threads are part of it."""
        deadline = asyncio.get_running_loop().time() + patience
        while not condition():
            assert asyncio.get_running_loop().time() < deadline, "it did not happen in time"
            await asyncio.sleep(0)

    async def pass_time(self, seconds: float) -> None:
        """Waits until so many seconds have passed on the collector's own clock."""
        end = self.clock.now + seconds
        await self.until(lambda: self.clock.now >= end)

    async def settled(self) -> None:
        """Waits until the first complete reading is over."""
        await self.until(lambda: self.collector.snapshot and self.collector.snapshot.daemons)
        await self.until(lambda: "get_device_pinned_mem_limit" in self.control.sent)
        await self.until(lambda: self.collector.snapshot.devices or not self.nvml.gate.is_set())
        await self.pass_time(2)
