"""What a daemon is asked and what it answers, whatever words its protocol has for it: neutral types. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeVar

from mpstui.core.late import dataclass
from mpstui.core.model import EMPTY

T_co = TypeVar("T_co", covariant=True)
STARTING: Final = "INITIALIZING"
"""A server's status until it takes part in anything (fact 45)."""
MOST_SERVERS = 256
MOST_CLIENTS = 4096
"""More than any node has: a device takes 48 clients (fact 13), and a daemon has one server for each user at most.
A user can have his daemon claim as many as he likes, and each of them costs a look."""


class Unreadable(NamedTuple):
    """Text that the command never prints."""

    reason: str


class PsRow(NamedTuple):
    """A row of ``ps``, as printed: a client can forge one through its argv[0] (fact 10)."""

    pid: int
    id: int
    server: int
    device: str
    """The first part of the first device's UUID; empty where there is none (fact 9)."""
    namespace: int
    """Inode of the PID namespace (fact 14)."""
    command: str
    """Printable; lines that are no row belong to the row above."""


class ClientContext(NamedTuple):
    """``pid.context`` of ``get_device_client_list``."""

    pid: int
    context: int


class DeviceClients(NamedTuple):
    """The clients of one device. Devices without clients are not listed, and the order means nothing (fact 9)."""

    ordinal: int
    pci: str
    """As printed, which is not the real one (fact 9)."""
    name: str
    contexts: tuple[ClientContext, ...] = ()


class QueriedDevice(NamedTuple):
    """A row of ``device_query``. The ordinal is the daemon's or the server's, not NVML's (fact 11)."""

    ordinal: int
    pci: str
    uuid: str
    name: str
    attributes: str


class DeviceQuery(NamedTuple):
    """The devices of the daemon, and of each server by its PID."""

    default: tuple[QueriedDevice, ...]
    servers: Mapping[int, tuple[QueriedDevice, ...]]


class Extent(Enum):
    """Where an answer ends. One line that is an error may stand in the place of any of them (fact 4)."""

    LINE = "one line that its parser takes"
    NUMBERS = "lines of whole numbers, or none; only before the proof or a status, which are none, or at the end"
    OPTIONAL = "one line that its parser takes, or none; only before the proof, or at the end"
    SILENT = "nothing"
    REST = "whatever is left; only at the end"


@dataclass(frozen=True, slots=True)
class Question(Generic[T_co]):
    """A command and what its answer looks like."""

    command: str
    parser: Callable[[bytes], T_co | Unreadable]
    extent: Extent = Extent.REST
    proof: bool = False
    """Its answer is never empty, whatever there is: without one the session has not reached the daemon (fact 30)."""

    @property
    def verb(self) -> str:
        """The command's name, which a driver has or has not."""
        return self.command.partition(" ")[0]


class Membership(NamedTuple):
    """Who is there. ``time`` is when the first question was put: what the logs told later is newer."""

    time: float
    servers: tuple[int, ...] = ()
    status: Mapping[int, str] = EMPTY
    clients: Mapping[int, tuple[int, ...]] = EMPTY
    """Server to the PIDs of its clients; a server without an answer is missing."""
    contexts: Mapping[int, tuple[DeviceClients, ...]] = EMPTY
    rows: tuple[PsRow, ...] = ()
    """Of ``ps``, which a client can forge (fact 10)."""
    query: DeviceQuery | None = None


class LimitReading(NamedTuple):
    """The limits in force; what had no answer is missing or None."""

    time: float
    percentage: float | None = None
    priority: int | None = None
    memory: Mapping[str, int | None] | None = None
    """Default bytes by ordinal; None as a value: no limit."""
    server_percentage: Mapping[int, float] = EMPTY
    server_memory: Mapping[int, Mapping[str, int | None]] = EMPTY
