"""The simulated daemon with static SM partitions, as one that was started with ``-S``.

What it answers is as the vendor documents it and as public parsers read it; nobody has recorded it for this project. In
words of its own it says what is not documented: an unknown device or id, and that a partition was removed.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from .clients import ClientProcess
from .commands import Commands, ControlSession, atoi
from .config import Gpu
from .daemon import SimDaemon
from .server import SimServer

INVALID_RESOURCE: Final = 915
"""What a client gets that names no partition."""
_VARIABLE: Final = "CUDA_MPS_SM_PARTITION"
_MASK_BYTES: Final = 27
_HOPPER: Final = (9, 0)
_CHUNKS: Final = {132: 15}
"""Of a device with so many SMs, where it is not as many as go into them: 12 of an H100's 132 are in no chunk."""
_SHORTEST: Final = len("GPU-00")


def chunk_size(gpu: Gpu) -> int:
    """SMs of a chunk: 8 from Hopper on, 4 before."""
    return 8 if gpu.compute_capability >= _HOPPER else 4


def chunk_count(gpu: Gpu) -> int:
    """Chunks of a whole device: as documented where it is, otherwise as many as its SMs fill."""
    return _CHUNKS.get(gpu.sm_count, gpu.sm_count // chunk_size(gpu))


class Partition(NamedTuple):
    """Some chunks of a device, by their bits."""

    device: int
    mask: int

    @property
    def chunks(self) -> int:
        return bin(self.mask).count("1")

    @property
    def id(self) -> str:
        return base64.b64encode(self.mask.to_bytes(_MASK_BYTES, "little")).decode()


class Books:
    """Which chunks are in which partition."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self.gpus = gpus
        self.partitions: list[Partition] = []

    def device(self, text: str) -> int | None:
        """The one device whose UUID has this in it."""
        found = [number for number, gpu in enumerate(self.gpus) if text in gpu.uuid]
        return found[0] if text and len(found) == 1 else None

    def used(self, device: int) -> int:
        return sum(p.chunks for p in self.partitions if p.device == device)

    def add(self, device: int, chunks: int) -> Partition | None:
        """The first free chunks of a device; None where there are too few."""
        taken = sum(p.mask for p in self.partitions if p.device == device)
        free = [bit for bit in range(chunk_count(self.gpus[device])) if not taken >> bit & 1]
        if not 0 < chunks <= len(free):
            return None
        made = Partition(device, sum(1 << bit for bit in free[:chunks]))
        self.partitions.append(made)
        return made

    def find(self, device: int | None, identity: str) -> Partition | None:
        return next((p for p in self.partitions if p.device == device and p.id == identity), None)

    def named(self, value: str) -> Partition | None:
        """That of a client's variable."""
        uuid, _, identity = value.partition("/")
        return self.find(next((n for n, gpu in enumerate(self.gpus) if gpu.uuid == uuid), None), identity)

    def short(self, device: int) -> str:
        """As much of a UUID as tells it from the others."""
        uuid = self.gpus[device].uuid
        others = [gpu.uuid for number, gpu in enumerate(self.gpus) if number != device]
        length = _SHORTEST
        while any(other.startswith(uuid[:length]) for other in others):
            length += 1
        return uuid[:length]


class StaticCommands(Commands):
    """Those of every daemon, and the two of this mode."""

    def __init__(self, daemon: StaticDaemon) -> None:
        super().__init__(daemon)
        self._books = daemon.books
        self._users = daemon.users
        self._table["lspart"] = self._lspart
        self._privileged["sm_partition"] = self._sm_partition

    def _lspart(self, session: ControlSession, _args: Sequence[str]) -> None:
        session.say(f"{'GPU':<10}{'Partition':<35}{'free':<8}{'used':<8}{'free':<6}{'used':<6}clients")
        session.say(f"{'':<45}{'chunks':<8}{'chunks':<8}{'SM':<6}SM")
        for device, gpu in enumerate(self._books.gpus):
            name, size = self._books.short(device), chunk_size(gpu)
            used = self._books.used(device)
            numbers = (chunk_count(gpu) - used, used, gpu.sm_count - used * size, used * size)
            session.say(f"{name:<10}" + "".join(f"{number:<8}" for number in numbers))
            for partition in (p for p in self._books.partitions if p.device == device):
                chunks = partition.chunks
                clients = "Yes" if self._users(partition) else "No"
                session.say(f"{name:<10}{partition.id}   {chunks}   {chunks * size}   {clients}")

    def _sm_partition(self, session: ControlSession, args: Sequence[str]) -> None:
        if len(args) != 3 or args[0] not in {"add", "rm"}:
            session.say("Invalid command format.")
            return
        device = self._books.device(args[1])
        if device is None:
            session.say(f"Failed to find the device {args[1]}")
        elif args[0] == "add":
            self._add(session, device, args[2])
        else:
            self._remove(session, device, args[2])

    def _add(self, session: ControlSession, device: int, wanted: str) -> None:
        made = self._books.add(device, atoi(wanted))
        if made is None:
            what = f"Failed to fulfill the requested SM partition of {wanted} chunks"
            session.say(f"{what}, error CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION")
        else:
            session.say(f"Partition {self._books.gpus[device].uuid}/{made.id} created")

    def _remove(self, session: ControlSession, device: int, identity: str) -> None:
        name = f"Partition {self._books.gpus[device].uuid}/{identity}"
        found = self._books.find(device, identity)
        if found is None:
            session.say(f"{name} not found")
        elif self._users(found):
            session.say(f"{name} in use. Terminate all clients before removing.")
        else:
            self._books.partitions.remove(found)
            session.say(f"{name} removed")


class StaticDaemon(SimDaemon):
    """A daemon whose clients each name a partition; percentages have no effect."""

    def __init__(self, *arguments: Any) -> None:
        self._clients: dict[ClientProcess, Partition] = {}
        super().__init__(*arguments)
        self.books = Books(self.gpus)
        self._commands = StaticCommands(self)

    def users(self, partition: Partition) -> list[ClientProcess]:
        """Its clients."""
        there = [client for server in self.servers.values() for client in server.clients]
        self._clients = {client: of for client, of in self._clients.items() if client in there}
        return [client for client, of in self._clients.items() if of == partition]

    def _serve(self, server: SimServer, client: ClientProcess) -> None:
        partition = self.books.named(client.limit(_VARIABLE))
        if partition is None:
            self._waits_no_more(client)
            client.tell("refused", error=INVALID_RESOURCE)
            return
        gpu = self.gpus[partition.device]
        client.devices, client.own_sms = (partition.device,), partition.chunks * chunk_size(gpu)
        self._clients[client] = partition
        super()._serve(server, client)


def is_static(arguments: Sequence[str]) -> bool:
    """Whether a command line asks for this mode."""
    return not {"-S", "-s", "--static-partitioning"}.isdisjoint(arguments)
