"""A control channel that answers from memory, and a node with it, for the action layer's unit tests."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from mpstui.control.answer import Answer, Outcome
from mpstui.control.protocol import LEGACY, ControlProtocol
from mpstui.control.wire import Question
from mpstui.core import condition
from mpstui.core.model import Client, Context, Daemon, Device, ProcessKey, Server, SessionHolder, Snapshot
from mpstui.core.trust import Speaker

PIPE = Path("/tmp/mps_0")
ME = os.geteuid()
OWN = Speaker(ME, "root's daemon")
"""Whoever runs the tests is root in them, by name; of two users there are tests for root alone."""
as_root = pytest.mark.skipif(ME != 0, reason="a daemon of root's alone speaks for other users' processes")
GPU = "GPU-c6233a33-3507-69ef-fed3-0090a2cbc745"
OTHER_GPU = "GPU-51dbd800-8a65-a8fc-d0ec-7abe3f1ec476"


def client(pid: int, *gpus: str, ticks: int | None = 1, **fields: object) -> Client:
    contexts = tuple(Context(number, gpu) for number, gpu in enumerate(gpus or (GPU,), 1))
    made = Client(ProcessKey(pid, ticks), 634, user="alice", command=f"python job{pid}.py", contexts=contexts)
    return replace(made, **fields)


def node(*clients: Client, **daemon: object) -> Snapshot:
    server = Server(
        ProcessKey(634, 1),
        ME,
        "root",
        "ACTIVE",
        active_thread_percentage=100.0,
        clients=clients or (client(643),),
    )
    fields: dict[str, object] = {
        "key": ProcessKey(480, 1),
        "uid": ME,
        "user": "root",
        "speaker": OWN,
        "condition": condition.ok(),
        "ordinals": {"0": GPU, "1": OTHER_GPU},
        "default_active_thread_percentage": 100.0,
        "default_client_priority": 0,
        "servers": (server,),
    } | daemon
    devices = tuple(
        Device(uuid, index, "NVIDIA H100 80GB HBM3", 132, (9, 0), 85520809984)
        for index, uuid in enumerate((GPU, OTHER_GPU))
    )
    return Snapshot(1795209864.0, daemons=(Daemon(PIPE, **fields),), devices=devices)


@dataclass
class FakeControl:
    """Takes values like the daemon of the recordings: wrong ones are ignored in silence (fact 5)."""

    sent: list[str] = field(default_factory=list)
    protocol: ControlProtocol = LEGACY
    percentage: float = 100.0
    limits: dict[str, int] = field(default_factory=dict)
    priority: int = 0
    listed: tuple[int, ...] = (643,)
    servers: tuple[int, ...] = (634,)
    deaf: bool = False
    """Takes a command, says nothing wrong, does nothing."""
    answers: dict[str, Outcome] = field(default_factory=dict)
    on_send: Callable[[str], object] = lambda command: None
    holder: SessionHolder | None = None
    status: str = "ACTIVE"
    yields: bool = False
    """Lets others run while it answers, as a real one does."""

    def _say(self, command: str, value: object = None) -> Answer:
        self.sent.append(command)
        self.on_send(command)
        outcome = self.answers.get(command.split()[0], Outcome.OK)
        if outcome is not Outcome.OK:
            return Answer(command, outcome, message=f"it said {outcome.value}", seconds=30.0)
        return Answer(command, outcome, value, stdout=str(value).encode())

    async def set_default_active_thread_percentage(self, value: float) -> Answer:
        if not self.deaf:
            self.percentage = value
        return self._say(f"set_default_active_thread_percentage {value:g}", self.percentage)

    async def get_default_active_thread_percentage(self) -> Answer:
        return self._say("get_default_active_thread_percentage", round(self.percentage, 1))

    async def set_active_thread_percentage(self, server: int, value: float) -> Answer:
        if not self.deaf:
            self.percentage = value
        return self._say(f"set_active_thread_percentage {server} {value:g}", self.percentage)

    async def get_active_thread_percentage(self, server: int) -> Answer:
        return self._say(f"get_active_thread_percentage {server}", round(self.percentage, 1))

    async def set_default_device_pinned_mem_limit(self, device: str, text: str) -> Answer:
        if not self.deaf:
            self.limits.pop(device, None)
            if text != "0":
                self.limits[device] = int(text[:-1]) << {"M": 20, "G": 30}[text[-1]]
        return self._say(f"set_default_device_pinned_mem_limit {device} {text}")

    async def get_default_device_pinned_mem_limit(self, device: str) -> Answer:
        return self._say(f"get_default_device_pinned_mem_limit {device}", self.limits.get(device))

    async def set_default_client_priority(self, value: int) -> Answer:
        if not self.deaf:
            self.priority = value
        return self._say(f"set_default_client_priority {value}")

    async def get_default_client_priority(self) -> Answer:
        return self._say("get_default_client_priority", self.priority)

    async def change(self, change: Question, read: Question, server: int | None = None) -> tuple[Answer, Answer]:
        return await self._carry_out(change.command), await self._carry_out(read.command)

    async def _carry_out(self, command: str) -> Answer:
        name, *words = command.split()
        kinds = {"set_default_active_thread_percentage": (float,), "set_active_thread_percentage": (int, float)}
        kinds |= {"set_default_client_priority": (int,), "get_active_thread_percentage": (int,)}
        values = [kind(word) for kind, word in zip(kinds.get(name, (str, str)), words, strict=False)]
        return await getattr(self, name)(*values)

    async def shutdown_server(self, server: int, force: bool = False) -> Answer:
        answer = self._say(f"shutdown_server {server}{' -f' * force}")
        if answer.ok and not self.deaf and (force or not self.listed):
            self.servers = ()
        return answer

    async def start_server(self, uid: int) -> Answer:
        return self._say(f"start_server -uid {uid}")

    async def get_server_list(self) -> Answer:
        answer = self._say("get_server_list", self.servers)
        return replace(answer, holder=self.holder) if answer.outcome is Outcome.HELD else answer

    async def get_server_status(self, server: int) -> Answer:
        return self._say(f"get_server_status {server}", self.status)

    async def get_client_list(self, server: int) -> Answer:
        if self.yields:
            await asyncio.sleep(0)
        return self._say(f"get_client_list {server}", self.listed)

    async def terminate_client(self, server: int, pid: int) -> Answer:
        return self._say(f"terminate_client {server} {pid}")


@dataclass
class FakeNode:
    snapshot: Snapshot | None
    control: FakeControl = field(default_factory=FakeControl)
    refreshed: int = 0
    proved: int = 0

    def control_for(self, pipe_dir: Path) -> FakeControl:
        return self.control

    def request_refresh(self, pipe_dir: Path | None = None) -> None:
        self.refreshed += 1

    def heard(self, pipe_dir: Path) -> Snapshot | None:
        return self.snapshot

    def changed(self, pipe_dir: Path) -> None:
        self.proved += 1
