"""What a daemon of MPS protocol 3 has: servers with names, namespaces with limits, their clients. Values, no I/O.

Known from the vendor's documents alone; nobody has recorded such a daemon for this project. ``None``: not known, or not
set where the daemon prints a dash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from mpstui.core.late import dataclass, pattern
from mpstui.core.text import parse_size

DEFAULT: Final = "default"
"""The namespace that a server has of itself; a server's own limits are its limits, and no other namespace's."""
FEATURES: Final = ("memacct", "context-share")
_EMPTY: Final[Mapping[str, str]] = {}
_SWITCHED: Final = pattern(r"(?P<name>[a-z-]{1,40}) ?[:=] ?(?P<state>enabled|disabled)")


def _none() -> Mapping[str, str]:
    return _EMPTY


@dataclass(frozen=True, slots=True)
class V3Server:
    """A row of ``server list``."""

    name: str
    uid: int | None = None
    pid: int | None = None
    """None where no process runs for it."""
    status: str | None = None
    """The daemon's own word."""
    pipe_dir: str | None = None
    allowed_devices: str | None = None
    """As printed, with its commas."""
    more: Mapping[str, str] = field(default_factory=_none)
    """Columns that are not known, printable."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """A row of ``namespace list``. A namespace with a name inherits nothing of its server, and may exceed it."""

    name: str
    server: str
    server_status: str | None = None
    pinned_mem_limit: str | None = None
    """As printed: ``4G``, or one for each device."""
    active_thread_percentage: float | None = None
    """Comes before the client's own variable, higher or lower."""
    client_priority: int | None = None
    pipe_dir: str | None = None
    more: Mapping[str, str] = field(default_factory=_none)

    @property
    def unlimited(self) -> bool:
        """Whether its clients may have the whole GPU."""
        return self.pinned_mem_limit is None and self.active_thread_percentage is None

    @property
    def memory(self) -> int | None:
        """Bytes, where it is one size."""
        return parse_size(self.pinned_mem_limit or "")

    def memory_limits(self, ordinals: Mapping[str, str]) -> dict[str, int]:
        """Bytes by the daemon's number of the device: one for all of ``ordinals``, or one each, ``0=8G,GPU-1=4G``."""
        limits: dict[str, int] = {}
        uuids = {uuid: number for number, uuid in ordinals.items()}
        for part in (self.pinned_mem_limit or "").split(","):
            device, named, text = part.strip().rpartition("=")
            if (size := parse_size(text)) is None:
                continue
            for number in (uuids.get(device, device),) if named else ordinals:
                limits[number] = size
        return limits


@dataclass(frozen=True, slots=True)
class V3Client:
    """A row of ``client list``, as printed: a client can forge one by its command."""

    pid: int
    server: str | None = None
    device: str | None = None
    """An ordinal or a UUID."""
    namespace: str | None = None
    """Its name, without the server and the number that may stand about it."""
    command: str | None = None
    """The client's to choose; printable."""


@dataclass(frozen=True, slots=True)
class V3Device:
    """A row of ``device list``."""

    ordinal: str | None = None
    server: str | None = None
    pci: str | None = None
    uuid: str | None = None
    name: str | None = None
    sm_count: int | None = None
    chunks: int | None = None
    attributes: str | None = None
    more: Mapping[str, str] = field(default_factory=_none)


@dataclass(frozen=True, slots=True)
class V3Partition:
    """A row of ``sm-partition list``."""

    name: str | None = None
    server: str | None = None
    device: str | None = None
    chunks: int | None = None
    sm_count: int | None = None
    include_remainder: bool | None = None
    status: str | None = None
    """``configured``, ``created``, or ``unallocated`` for what is free."""
    visible_uuid: str | None = None
    """What a client has in CUDA_MPS_SM_PARTITION."""
    more: Mapping[str, str] = field(default_factory=_none)


@dataclass(frozen=True, slots=True)
class V3Node:
    """Everything that a daemon of protocol 3 has told."""

    servers: tuple[V3Server, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    clients: tuple[V3Client, ...] = ()
    devices: tuple[V3Device, ...] = ()
    partitions: tuple[V3Partition, ...] = ()
    features: tuple[str, ...] = ()
    """Lines of ``feature describe``, as printed."""
    not_read: Mapping[str, str] = field(default_factory=_none)
    """Lists that could not be read, and why: ``namespace`` to a sentence."""
    not_understood: tuple[str, ...] = ()
    """Rows that are none of the known forms, printable."""

    def server(self, name: str | None) -> V3Server | None:
        return next((found for found in self.servers if found.name == name), None)

    def server_of(self, pid: int) -> V3Server | None:
        """The one that runs as this process."""
        return next((found for found in self.servers if found.pid == pid), None)

    def namespace(self, server: str | None, name: str | None) -> Namespace | None:
        return next((found for found in self.namespaces if (found.server, found.name) == (server, name)), None)

    def of(self, server: str) -> tuple[Namespace, ...]:
        return tuple(found for found in self.namespaces if found.server == server)

    def clients_of(self, server: str, namespace: str | None = None) -> tuple[V3Client, ...]:
        return tuple(c for c in self.clients if c.server == server and namespace in {None, c.namespace})

    def switched(self, feature: str) -> bool | None:
        """Whether a feature is on, by the lines of ``feature describe``; None where they do not tell."""
        for line in self.features:
            match = _SWITCHED.match(line.strip().lower())
            if match is not None and match["name"] == feature:
                return match["state"] == "enabled"
        return None

    def partition(self, server: str | None, name: str | None) -> V3Partition | None:
        return next((found for found in self.partitions if (found.server, found.name) == (server, name)), None)

    def client(self, pid: int) -> V3Client | None:
        """None too where several rows claim the number."""
        found = [client for client in self.clients if client.pid == pid]
        return found[0] if len(found) == 1 else None
