"""What a daemon speaks, chosen by how it was started, and what its driver has of that, learnt from its answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Final, Protocol

from mpstui.control.answer import Outcome
from mpstui.control.drivers import COMMANDS, absent_from, together
from mpstui.control.grammar import LogKind, LogParser
from mpstui.control.legacy import Legacy
from mpstui.control.partitions import StaticPartitions
from mpstui.control.v3 import V3Protocol
from mpstui.control.wire import DeviceClients, DeviceQuery, PsRow, Question
from mpstui.core.model import NOT_SPOKEN, PartitionTable


class ControlProtocol(Protocol):
    """The words of one protocol: commands with the parsers of their answers, and the grammar of its logs."""

    @property
    def name(self) -> str: ...

    @property
    def silent(self) -> str | None:
        """Why nothing is said in it, one clause; None where it is spoken."""
        ...

    @property
    def named_servers(self) -> bool:
        """Whether its servers have names, and a log each; it is asked by lists then (``MpsControl.read_v3``)."""
        ...

    @property
    def log_parser(self) -> Callable[[LogKind], LogParser]:
        """Makes a reader for one log file."""
        ...

    def judge(self, command: str, stdout: bytes, stderr: bytes, exit_status: int | None) -> tuple[Outcome, str]:
        """Outcome and message of an answer."""
        ...

    def unknown_command(self, line: bytes) -> str | None:
        """The command that this first line of an answer says the daemon does not know; None for other answers."""
        ...

    def split(self, asked: Sequence[Question[object]], stdout: bytes) -> list[bytes] | None:
        """The answer to each of several questions put in one session; None where they cannot be told apart."""
        ...

    def server_list(self) -> Question[tuple[int, ...]]: ...
    def server_status(self, server: int) -> Question[str]: ...
    def client_list(self, server: int) -> Question[tuple[int, ...]]: ...
    def contexts(self, server: int | None = None) -> Question[tuple[DeviceClients, ...]]: ...
    def rows(self, server: int | None = None) -> Question[tuple[PsRow, ...]]: ...
    def devices(self) -> Question[DeviceQuery]: ...
    def default_percentage(self) -> Question[float]: ...
    def set_default_percentage(self, value: float) -> Question[float]: ...
    def percentage(self, server: int) -> Question[float]: ...
    def set_percentage(self, server: int, value: float) -> Question[float]: ...
    def priority(self) -> Question[int]: ...
    def set_priority(self, value: int) -> Question[None]: ...
    def number(self, name: str) -> Question[int]: ...
    def set_number(self, name: str, value: int) -> Question[None]: ...
    def memory_limit(self, server: int | None, device: str) -> Question[int | None]: ...
    def set_memory_limit(self, server: int | None, device: str, text: str) -> Question[None]: ...
    def start_server(self, uid: int) -> Question[None]: ...
    def shutdown_server(self, server: int, force: bool) -> Question[None]: ...
    def terminate_client(self, server: int, client: int) -> Question[None]: ...
    def quit(self, timeout: int | None) -> Question[None]: ...
    def partitions(self) -> Question[PartitionTable] | None:
        """None where the daemon has no static partitions."""
        ...


class UnknownProtocol(Legacy):
    """Nothing is ever sent in it."""

    name = "unknown"
    silent = NOT_SPOKEN


LEGACY: Final[ControlProtocol] = Legacy()
_STATIC: Final[ControlProtocol] = StaticPartitions()
_V3: Final[ControlProtocol] = V3Protocol()
_UNKNOWN: Final[ControlProtocol] = UnknownProtocol()


def protocol_of(name: str | None, static_partitioning: bool | None) -> ControlProtocol:
    """The protocol of a daemon that was started so; see ``commandline.parse_command_line``."""
    if name == "v3":
        return _V3
    if name == "unknown":
        return _UNKNOWN
    return _STATIC if static_partitioning else LEGACY


class Capabilities:
    """Which commands one daemon knows: learnt from its own answers, each once, and kept for as long as it runs."""

    def __init__(self) -> None:
        self.unknown: frozenset[str] = frozenset()
        self.known: frozenset[str] = frozenset()
        self._daemon: Hashable = None

    def belong_to(self, daemon: Hashable, logged: Collection[str] = ()) -> None:
        """From now on they are this daemon's; what was learnt of another one is forgotten. ``logged``: commands that
        its log says it did not know, whoever asked."""
        if daemon != self._daemon:
            self._daemon, self.unknown, self.known = daemon, frozenset(), frozenset()
        if told := COMMANDS.intersection(logged) - self.unknown:  # anybody may type what he likes
            self.unknown |= together(told)

    def learn(self, verb: str, known: bool) -> None:
        if not known:
            self.unknown |= together((verb,))
        elif verb in COMMANDS:
            self.known |= {verb}


def lacking(unknown: frozenset[str], known: frozenset[str], driver: str | None) -> frozenset[str]:
    """The commands that a daemon has said it does not know, and what its driver is known not to have."""
    return unknown | (absent_from(driver) - known)
