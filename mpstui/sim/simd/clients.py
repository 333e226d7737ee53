"""A client of the simulated daemon: what it asked for, what it holds, and how it is told."""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
import socket
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from .config import MIB, Gpu
from .process import pid_namespace, start_ticks

_NUMBER: Final = re.compile(r"[+-]?([0-9]{1,300}(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]{1,3})?", re.ASCII | re.IGNORECASE)
_SM_STEP: Final = 2
_SM_FLOOR: Final = 8
_CONTEXT_BASE: Final = 58
"""MiB of a context on 8 SMs, and ``_CONTEXT_MAX`` on all of them (fact 25 and the recorded limits)."""
_CONTEXT_MAX: Final = 514
SIZES: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_size(text: str) -> int | None:
    """Bytes of ``900M`` or ``10G``; None for everything that a daemon ignores in silence (fact 5)."""
    number, unit = text[:-1], text[-1:]
    if unit not in SIZES or not number.isascii() or not number.isdigit() or len(number) > 12:
        return None
    return int(number) * SIZES[unit] or None


def parse_percentage(text: str) -> float | None:
    """The number that a text begins with, ``50`` of ``50%``, where it is in (0, 100]; otherwise None (fact 27)."""
    match = _NUMBER.match(text)
    value = float(match[0]) if match else 0.0
    return value if 0 < value <= 100 else None


def sm_share(percentage: float, gpu: Gpu) -> int:
    """SMs of a percentage: rounded down to a multiple of 2, never under 8 (fact 22)."""
    exact = round(percentage * gpu.sm_count, 6) / 100
    return min(gpu.sm_count, max(_SM_FLOOR, int(exact // _SM_STEP) * _SM_STEP))


def context_memory(sms: int, gpu: Gpu) -> int:
    """Bytes that a context on ``sms`` SMs takes before it allocates anything (fact 25)."""
    share = (sms - _SM_FLOOR) / max(1, gpu.sm_count - _SM_FLOOR)
    return int(_CONTEXT_BASE + share * (_CONTEXT_MAX - _CONTEXT_BASE)) * MIB


class SimContext(NamedTuple):
    """A CUDA context of a client; its device by ordinal."""

    id: int
    device: int


class ClientProcess:
    """One client process. ``error`` is the CUDA error that every call of it gives from now on."""

    def __init__(self, **told: Any) -> None:
        """``told``: what stands here without a value."""
        vars(self).update(told)
        self.contexts = []
        self.used = {}
        self.since = time.time()

    connection: socket.socket
    pid: int
    uid: int
    user: str | None
    argv0: bytes
    command: str
    container: str | None
    cgroup: str | None
    """The path of the cgroup that it is shown in."""
    namespace: int
    devices: tuple[int, ...]
    contexts_per_device: int
    memory: int
    env: Mapping[str, str]
    busy: bool
    """Whether it launches kernels."""
    endless: bool
    """Whether one of them is long: at any moment it is still running. Short ones are over when a SIGKILL comes."""
    start_ticks: int | None
    number: int = 0
    """The running number that ``ps`` prints."""
    connected: bool = False
    contexts: list[SimContext]
    percentage: float = 100.0
    sm_count: int = 0
    own_sms: int | None = None
    """SMs of its static partition, whatever the percentages are."""
    used_sms: int | None = None
    """SMs that its kernels are on, where it says so: a context's share moves, and small grids reach few."""
    dram: int = 0
    """Percent of the memory's bandwidth that they use, where it says so."""
    used: dict[int, int]
    """Bytes by device ordinal."""
    terminated: bool = False
    error: int = 0
    closed: bool = False
    clean: bool = False
    """It said goodbye before it closed its connection."""
    since: float

    def tell(self, event: str, **values: int) -> None:
        """Sends an event to the process. One that does not listen is not waited for: the socket's buffer takes it."""
        with contextlib.suppress(OSError):
            text = " ".join([event, *(f"{key}={value}" for key, value in values.items())])
            self.connection.send(text.encode(), socket.MSG_DONTWAIT)

    def lose(self, error: int) -> None:
        """Its contexts are gone; the first error stays."""
        if not self.error:
            self.error = error
            self.busy = self.endless = False
            self.tell("lost", error=error)

    def say_use(self, packet: bytes) -> None:
        """``uses SMS DRAM``: what its kernels use from now on; nonsense changes nothing."""
        words = packet.split()[1:]
        if len(words) == 2 and all(word.isdigit() and len(word) < 5 for word in words):
            self.used_sms, self.dram = int(words[0]), min(100, int(words[1]))

    def limit(self, name: str) -> str:
        return self.env.get(name, "")


def client_from_hello(
    connection: socket.socket, hello: dict[str, Any], peer: tuple[int, int], count: int
) -> ClientProcess:
    """The client that says hello; raises ValueError where it says nonsense. ``count`` is the number of devices."""
    pid, real_uid = peer
    try:
        devices = tuple(int(d) for d in hello["devices"])
        uid = hello.get("uid")
        namespace = hello.get("namespace")
        client = ClientProcess(
            connection=connection,
            pid=pid,
            uid=real_uid if uid is None else int(uid),
            user=hello["user"] and str(hello["user"]),
            argv0=base64.b64decode(hello["argv0"]),
            command=str(hello["command"]),
            container=hello.get("container"),
            cgroup=hello.get("cgroup"),
            namespace=pid_namespace(pid) if namespace is None else int(namespace),
            devices=devices,
            contexts_per_device=int(hello["contexts"]),
            memory=int(hello["memory"]),
            env={str(k): str(v) for k, v in hello["env"].items()},
            busy=bool(hello["busy"]),
            endless=bool(hello.get("endless")),
            start_ticks=start_ticks(pid),
        )
    except (KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise ValueError("not a client") from error
    if not all(0 <= d < count for d in devices):
        raise ValueError("no such device")
    return client
