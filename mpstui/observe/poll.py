"""When a daemon is asked, what, and in which groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from mpstui.control.answer import Answer, Outcome
from mpstui.control.mps import MpsControl
from mpstui.control.protocol import ControlProtocol
from mpstui.control.wire import DeviceClients, DeviceQuery, LimitReading, Membership, PsRow, Question
from mpstui.core.late import dataclass
from mpstui.core.model import EventKind
from mpstui.core.requests import REFRESH

# NVML's list of MPS clients beside what the logs told: a difference that lasts is asked about, once; pure.


class Reconciler:
    """Remembers which clients could not be explained, and which of them the daemons were asked about."""

    def __init__(self) -> None:
        self._unexplained: frozenset[int] = frozenset()
        self._asked_about: frozenset[int] = frozenset()

    @property
    def in_doubt(self) -> bool:
        """Whether the latest lists have somebody, or lack somebody, of whom no log has told and nobody was asked."""
        return bool(self._unexplained - self._asked_about)

    def lasting(self, unexplained: frozenset[int]) -> frozenset[int]:
        """Which of these clients have been unexplained before, so that the logs have had time to tell of them, and were
        not yet asked about."""
        lasting = unexplained & self._unexplained
        self._unexplained = unexplained
        self._asked_about &= unexplained
        new = lasting - self._asked_about
        self._asked_about |= lasting
        return new


# When a daemon is to be asked, and what; pure. In a quiet node the answer is: never.


MEMBERSHIP: Final[frozenset[EventKind]] = frozenset(
    (
        "daemon_started",
        "server_starting",
        "server_ready",
        "server_exited",
        "server_failed",
        "client_request",
        "client_connected",
        "context_active",
        "context_closed",
        "client_disconnected",
        "client_pending",
        "terminate_requested",
        "terminate_succeeded",
        "fatal_fault",
        "server_recovered",
    )
)
"""What the logs may tell after which the daemon is asked who is there; up to driver 550 they do not say who asks for a
connection. Questions and sessions are not among it:
mpstui's own are in control.log too (fact 8)."""
MOVES: Final[frozenset[EventKind]] = frozenset(
    ("client_connected", "context_active", "context_closed", "client_disconnected")
)
"""Of these, what logs that tell everything tell whole: who came or went, and where."""
LIMITS: Final[frozenset[EventKind]] = frozenset(("daemon_started", "server_ready", "limit_set"))
FREEING: Final[frozenset[EventKind]] = frozenset(
    ("session_closed", "terminate_succeeded", "client_disconnected", "server_exited", "daemon_started")
)
"""What may end a daemon's silence."""
SETTLE: Final = 0.4
"""Seconds from a change to the question: what belongs together (a client, then its contexts) is asked about once. The
screen does not wait for it, as the log has told already."""
SPACING: Final = 0.5
LONGEST_SPACING: Final = 4.0
_ANSWERED: Final = frozenset((Outcome.OK, Outcome.REFUSED, Outcome.NOT_PERMITTED))
FIRST_RETRY: Final = 2.0
LONGEST_RETRY: Final = 10.0
POLLING: Final = 5.0


@dataclass(slots=True)
class Schedule:
    """Times are seconds of one monotonic clock."""

    refresh: float = REFRESH
    reconcile: float = 60.0
    """Seconds from the last change to one full reading; 0: never."""
    polling: bool = False
    told: bool = False
    """The logs tell who is there: of a client that comes or goes, no more than its name or its end is asked for."""
    asleep: bool = False
    """Nobody is there to be asked, or the one who would be is known to be blocked until a process ends."""
    membership: bool = True
    limits: bool = True
    moved: bool = False
    """A client came or went, and the logs have told all of it."""
    _ended: float = -math.inf
    _changed: float = -math.inf
    _complete: float = -math.inf
    _spacing: float = SPACING
    _retry: float | None = None
    _urgent: bool = True
    _wanted: float = -math.inf

    def changed(self, kind: EventKind, now: float) -> None:
        """The logs told of ``kind``."""
        self._urgent = self._urgent or (self._retry is not None and kind in FREEING)
        moved = self.told and kind in MOVES
        self.want(kind in MEMBERSHIP and not moved, kind in LIMITS, now, moved=moved)

    def want(self, membership: bool, limits: bool, now: float, *, moved: bool = False) -> None:
        """Something was seen to change."""
        if membership or limits or moved:
            if not (self.membership or self.limits or self.moved):
                self._wanted = now
            self.moved = self.moved or moved
            self.membership = self.membership or membership
            self.limits = self.limits or limits
            self._changed = now

    def doubt(self, now: float) -> None:
        """Somebody is to be looked for of whom the logs do not tell; that is no change yet, and no reason for a whole
        reading a while later."""
        if not (self.membership or self.limits or self.moved):
            self._wanted = now
        self.moved = True

    def ask_now(self, now: float) -> None:
        """The user wants to see what is true."""
        self.membership = self.limits = self._urgent = True
        self._changed = now

    @property
    def quiet(self) -> bool:
        """Whether nothing in particular was seen to change, and nobody has asked."""
        return not (self.membership or self.limits or self.moved or self._urgent) and self._retry is None

    def due(self) -> float:
        """When to ask next; infinity for not at all."""
        if self.asleep:
            return math.inf
        if self._urgent:
            return -math.inf
        if self._retry is not None:
            return self._ended + self._retry
        if self.membership or self.limits or self.moved:
            return max(self._ended + self._spacing, self._wanted + SETTLE)
        if self.polling:
            return self._ended + max(POLLING, self.refresh)
        if self.reconcile > 0 and self._changed > self._complete:
            return self._changed + self.reconcile
        return math.inf

    def begin(self, now: float) -> tuple[bool, bool]:
        """What to ask: who is there, the limits. Both, where nothing in particular was seen to change; neither, where
        clients came or went and the logs have told of it."""
        wanted = self.membership, self.limits
        if not any(wanted) and not self.moved:
            wanted = True, True
        quickly = now - self._ended < 2 * self._spacing
        self._spacing = min(LONGEST_SPACING, 2 * self._spacing) if quickly else SPACING
        self.membership = self.limits = self.moved = self._urgent = False
        if all(wanted):
            self._complete = now
        return wanted

    def end(self, now: float, outcome: Outcome) -> None:
        """The reading is over. One that failed is taken again, later and later."""
        self._ended = now
        if outcome not in _ANSWERED:
            self._retry = FIRST_RETRY if self._retry is None else min(LONGEST_RETRY, 2 * self._retry)
            self.membership = self.limits = True
        else:
            self._retry = None


# Puts the questions of one reading to a daemon, in groups, and stops at the first answer that says it is no use.


_HOPELESS = frozenset((Outcome.ABSENT, Outcome.HELD, Outcome.BUSY, Outcome.BLOCKED, Outcome.NO_BINARY))


class Need(NamedTuple):
    """What one operation has to be told by the daemon that its logs do not tell; nothing: only whether it answers."""

    percentage: bool = False
    """The default one."""
    priority: bool = False
    devices: bool = False
    """Its ordinals (fact 11)."""
    clients: bool = False
    """Of each server, as the daemon lists them: what cannot be forged (fact 10)."""
    servers: bool = False
    """How each server is, and its percentage."""
    partitions: bool = False
    """The static ones, of a daemon that has such."""
    memory: bool = False
    """Limits of memory; those are in the logs, all of them where they tell everything."""
    listed: bool = False
    """Which servers there are."""
    names: bool = False
    """The rows of ``ps``, which a client can forge: nothing could be told apart behind them, in the same session."""
    contexts: bool = False
    """Where the clients are, of a server whose log was not read from its start."""


STATUS: Final = Need(
    percentage=True, priority=True, devices=True, clients=True, servers=True, partitions=True, memory=True, names=True
)
"""For a whole snapshot: contexts are in the logs too, all of them where those tell everything."""


PRESENT: Final = Need(clients=True, servers=True, listed=True)
"""For a refusal on the word of the logs: who is there, as the daemon says."""


class Asked(NamedTuple):
    """What came of a group of questions. ``reading`` is None where the daemon could not be read."""

    answer: Answer[object]
    """The one that ended the group, else the last one."""
    membership: Membership | None = None
    limits: LimitReading | None = None
    named: frozenset[int] = frozenset()
    """Processes of which ``ps`` had a row; one that has no context yet may have none."""
    query: DeviceQuery | None = None


async def ask_membership(
    control: MpsControl, clock: Callable[[], float], named: Collection[int] | None, ordinals: bool
) -> Asked:
    """Servers, their status, their clients and contexts: 2 commands, and 4 a server in one session.

    ``named`` are the clients whose row of ``ps`` has been read: it is asked for only while there are others, because
    it prints what clients chose (fact 10); None asks for no row. ``ordinals``: ask ``device_query`` as well.
    """
    started = clock()
    servers = await control.get_server_list()
    if servers.value is None:
        return Asked(servers)
    status: dict[int, str] = {}
    clients: dict[int, tuple[int, ...]] = {}
    contexts: dict[int, tuple[DeviceClients, ...]] = {}
    query: DeviceQuery | None = None
    say = control.protocol
    for server in servers.value:
        # The proof stands behind the clients, whose list has no end of its own.
        asked = say.server_status(server), say.client_list(server), say.default_percentage(), say.contexts(server)
        word, listed, _, devices = answers = await control.ask_all(*asked)
        hopeless = next((answer for answer in answers if answer.outcome in _HOPELESS), None)
        if hopeless is not None or listed.outcome is Outcome.UNREADABLE:
            return Asked(hopeless or listed)  # that it has no clients is not known
        if word.value is not None:
            status[server] = word.value
        if listed.value is not None:
            clients[server] = listed.value
        if devices.value is not None:
            contexts[server] = devices.value
    if ordinals:
        devices_known = await control.device_query()
        if devices_known.outcome in _HOPELESS:
            return Asked(devices_known)
        query = devices_known.value
    everybody = frozenset(pid for pids in clients.values() for pid in pids)
    rows = None
    if named is not None and everybody - frozenset(named):
        rows = await control.ps()
        if rows.outcome in _HOPELESS:
            return Asked(rows)
    reading = Membership(
        started, servers.value, status, clients, contexts, (rows.value or ()) if rows is not None else (), query
    )
    return Asked(servers, reading, None, _named(rows))


async def ask_for(control: MpsControl, clock: Callable[[], float], need: Need, servers: Sequence[int]) -> Asked:
    """What is needed, in one session, and the rows of ``ps`` in another; of these ``servers``, one at most, of which
    the logs have told."""
    started = clock()
    say = control.protocol
    # A list of numbers ends where the proof stands, or how a server is. So which servers there are can wait for the
    # rows, which take a proof along, and the clients need none of their own.
    ended = need.servers and bool(servers) and "get_server_status" not in control.capabilities.unknown
    listing: dict[str, Question[Any]] = {}
    if need.listed:
        listing = {"servers": say.server_list(), "proof": say.default_percentage()}
    elif need.contexts and ended and need.names:
        listing = {"percentage": say.default_percentage()}  # the rows' proof too
    wanted = {} if ended and need.names else dict(listing)
    for server in servers[:1]:
        if need.clients:
            wanted[f"clients of {server}"] = say.client_list(server)
        if need.servers:
            wanted[f"status of {server}"] = say.server_status(server)
    if (need.clients and not ended) or (need.percentage and not listing) or need == Need():
        wanted["percentage"] = say.default_percentage()
    if need.priority:
        wanted["priority"] = say.priority()
    if need.servers:
        wanted |= {f"percentage of {server}": say.percentage(server) for server in servers[:1]}
    # Neither of these has an end of its own: each is the last of its session.
    where = {f"contexts of {server}": say.contexts(server) for server in servers[:1] if need.contexts}
    devices = {"devices": say.devices()} if need.devices else {}
    answers: dict[str, Answer[Any]] = {}
    for group in ({**wanted, **where}, devices) if where else ({**wanted, **devices},):
        if group:
            answers |= dict(zip(group, await control.ask_all(*group.values()), strict=True))
    hopeless = next((answer for answer in answers.values() if answer.outcome in _HOPELESS), None)
    clients = _of_servers("clients", servers, {name: answer.value for name, answer in answers.items()})
    if hopeless is None:
        late = {name: question for name, question in listing.items() if name not in wanted}
        answers |= await _ask_last(control, late, need.names and (any(clients.values()) or not need.clients))
        hopeless = next((answer for answer in answers.values() if answer.outcome in _HOPELESS), None)
    told = {name: answer.value for name, answer in answers.items()}
    if hopeless is not None:
        return Asked(hopeless)
    there = tuple(servers)
    if need.listed:  # no server has the number 0: a list that cannot be read is not the one that the logs tell
        there = (0,) if told["servers"] is None else told["servers"]
    return Asked(
        next((answer for answer in answers.values() if answer.ok), tuple(answers.values())[-1]),
        Membership(
            started,
            there,
            _of_servers("status", servers, told),
            clients,
            _of_servers("contexts", servers, told),
            told.get("rows") or (),
        ),
        LimitReading(
            started,
            told.get("percentage", told.get("proof")),
            told.get("priority"),
            server_percentage=_of_servers("percentage", servers, told),
        ),
        named=_named(answers.get("rows")),
        query=told.get("devices"),
    )


def _named(rows: Answer[tuple[PsRow, ...]] | None) -> frozenset[int]:
    return frozenset(row.pid for row in (rows.value or ())) if rows is not None else frozenset()


async def _ask_last(control: MpsControl, late: Mapping[str, Question[Any]], rows: bool) -> dict[str, Answer[Any]]:
    """What is ``late``, and behind it the ``rows``."""
    if not late:
        return {"rows": await control.ps()} if rows else {}
    if rows:
        return dict(zip((*late, "rows"), await control.ps_behind(*late.values()), strict=True))
    return dict(zip(late, await control.ask_all(*late.values()), strict=True))


def _of_servers(what: str, servers: Sequence[int], told: Mapping[str, Any]) -> dict[int, Any]:
    return {server: found for server in servers if (found := told.get(f"{what} of {server}")) is not None}


async def ask_limits(
    control: MpsControl, clock: Callable[[], float], servers: Collection[int], devices: Collection[str]
) -> Asked:
    """The default limits and those of ``servers``, in one session each: 2 commands, and 2 a device."""
    started, say = clock(), control.protocol
    asked = say.default_percentage(), *_with_memory(say, say.priority(), None, devices)
    percentage, priority, *rest = answers = await control.ask_all(*asked)
    if (hopeless := next((answer for answer in answers if answer.outcome in _HOPELESS), None)) is not None:
        return Asked(hopeless)
    memory = _memory_told(devices, rest)
    by_server: dict[int, float] = {}
    memory_of: dict[int, Mapping[str, int | None]] = {}
    for server in servers:
        own, *rest = answers = await control.ask_all(*_with_memory(say, say.percentage(server), server, devices))
        if own.outcome is Outcome.UNREADABLE:
            own = await control.get_active_thread_percentage(server)
            answers = own, *rest
            if own.value is not None:
                by_server[server] = own.value
                continue  # it has become ready, after its memory limits were asked for
        if (hopeless := next((answer for answer in answers if answer.outcome in _HOPELESS), None)) is not None:
            return Asked(hopeless)
        if own.outcome is Outcome.STARTING:
            continue  # of its memory limits an empty answer would say that there are none
        if own.value is not None:
            by_server[server] = own.value
        if devices:
            memory_of[server] = _memory_told(devices, rest)
    reading = LimitReading(started, percentage.value, priority.value, memory if devices else None, by_server, memory_of)
    return Asked(percentage, None, reading)


def _with_memory(
    say: ControlProtocol, first: Question[Any], server: int | None, devices: Collection[str]
) -> list[Question[Any]]:
    """``first``, and each device's memory limit, with the proof between two: one that is not set prints nothing."""
    asked = [first]
    for device in devices:
        if len(asked) > 1:
            asked.append(say.default_percentage())
        asked.append(say.memory_limit(server, device))
    return asked


def _memory_told(devices: Collection[str], answers: Sequence[Answer[Any]]) -> dict[str, int | None]:
    """By device, of the answers behind the first one of ``_with_memory``."""
    return {device: answer.value for device, answer in zip(devices, answers[::2], strict=True) if answer.ok}
