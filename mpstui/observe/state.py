"""What the logs and the daemon's answers told: of one daemon its state, of the node its latest events; pure, times come
with the events."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Final, Literal, cast

from mpstui.control.wire import MOST_CLIENTS, DeviceQuery, LimitReading, Membership, PsRow
from mpstui.core.codec import NOT_KEPT
from mpstui.core.faults import MOMENT, xids_of
from mpstui.core.late import dataclass
from mpstui.core.limits import LimitsInForce, by_ordinal, own_memory, own_numbers, own_percentage
from mpstui.core.model import (
    DEVICES_VARIABLE,
    EMPTY,
    MEMORY_VARIABLE,
    PARTITION_VARIABLE,
    PERCENTAGE_VARIABLE,
    Client,
    Event,
    PartitionTable,
    Suspect,
    event_of,
    server_devices,
)
from mpstui.core.text import listed, lower_sizes, printable, same_limit
from mpstui.core.v3 import V3Node
from mpstui.system.procfs import ProcessFacts

# What is known of one daemon, folded from the events of its logs; pure, times come with the events.


@dataclass(slots=True)
class StartRecord:
    """Servers that ended before they were ready; over when one is."""

    since: float | None
    last: float | None
    count: int = 0
    server_pid: int | None = None
    uid: int | None = None
    reason: str | None = None
    reason_pid: int | None = None


FROM_START: Final = 0.0
"""Before any line of any log: the log was read from the daemon's start on."""
NEARBY: Final = 1.0
"""Seconds; the process of a killed client was gone 0.03 s after the fault that the kill made (fact 17)."""
_LOST_LIMIT: Final = 256
_ELSEWHERE_LIMIT: Final = 1024
_FAILED_LIMIT: Final = 64
_UID_LIMIT: Final = 4096
_LEFT_LIMIT: Final = 256
_UID: Final = Event._fields.index("uid")
_MOST_CONTEXTS: Final = 1024
"""More than any device takes: what a log says beyond that is not believed."""


@dataclass(slots=True)
class ClientRecord:
    """One client of a server, by PID."""

    pid: int
    touched: float
    """When something was last learnt about its membership or its contexts."""
    connected: float | None = None
    """None where it had connected before history begins."""
    contexts: dict[int, str | None] = field(default_factory=dict)
    limits: LimitsInForce = field(default_factory=LimitsInForce)
    """The server's limits when it connected; it keeps them."""
    asked: bool = False
    """terminate_client was sent for it."""
    ended: bool = False
    """terminate_client was carried out (fact 15)."""
    ended_contexts: set[int] = field(default_factory=set)
    left: dict[str, float] = field(default_factory=dict)
    """Devices of contexts that were closed, and when."""
    id: int | None = None
    namespace: int | None = None
    command: str | None = None
    """As ``ps`` prints it, printable; /proc's word comes first."""

    def devices(self, since: float) -> frozenset[str]:
        """Devices that it has or, since then, had a context on, as far as they are known."""
        found = set(self.contexts.values())
        for device, when in self.left.items():
            if when >= since:
                found.add(device)
        found.discard(None)
        return frozenset(cast("set[str]", found))

    def came_after(self, start: float | None) -> bool:
        """Whether it connected when a process that started then was there."""
        return self.connected is not None and start is not None and self.connected >= start - 1


@dataclass(slots=True)
class FaultRecord:
    """A fatal fault that is not over: new clients are refused until the last of ``affected`` has ended (fact 18)."""

    time: float | None
    named: tuple[int, ...]
    """Whom the log names, in its order; no proof (fact 36)."""
    affected: set[int]
    """Those of ``hit`` that have not ended yet."""
    devices: tuple[str, ...]
    hit: frozenset[int] = frozenset()
    refused: int = 0
    ended_nearby: tuple[int, ...] = ()
    """Clients that were not hit and ended within NEARBY seconds of it: one that was killed is the cause (fact 17)."""
    suspects: tuple[int, ...] = ()
    """As :meth:`DaemonState.suspects` had them when it came."""
    cut: bool = False
    """Its begin, with whom the log names, was not in what was read of that."""


@dataclass(slots=True)
class ServerRecord:
    """One server, by PID."""

    pid: int
    touched: float
    uid: int | None = None
    started: float | None = None
    """None where it was started before history begins."""
    status: str | None = None
    limits: LimitsInForce = field(default_factory=LimitsInForce)
    limits_read: float | None = None
    clients: dict[int, ClientRecord] = field(default_factory=dict)
    told: str | None = None
    """Its status in the daemon's own latest answer, and when that was asked for."""
    told_at: float | None = None
    fault: FaultRecord | None = None
    ending: bool = False
    """It waits for its clients to end, to shut down."""
    ending_since: float | None = None
    """When the logs first told so."""
    elsewhere: int = 0
    """Clients without a PID here, which are in no list."""
    departed: dict[int, tuple[float, frozenset[str]]] = field(default_factory=dict)
    """The latest clients to end: when, and the devices that they were on lately."""
    listed: bool = False
    """The daemon has told its clients."""
    unnamed: bool = False
    """A client came or went whom the log does not name, as those of older drivers."""

    @property
    def clients_known(self) -> bool:
        """Whether it has no other clients than are known."""
        return self.listed or (self.started is not None and not self.unnamed)


@dataclass(eq=False)
class DaemonState:
    """The fold over one daemon's logs. Answers of the daemon are folded in by the functions below it."""

    pipe_dir: Path
    changes: int = field(default=0, metadata=NOT_KEPT)
    """Grows with every change, so that what was made of an unchanged state need not be made again."""
    daemon_pid: int | None = None
    """Of the daemon whose start is in the log that was read."""
    heard: bool | None = field(default=None, metadata=NOT_KEPT)
    """Whether the daemon wrote to its log and has not ended since, as that tells; None where no line of it was read."""
    control_from: float = FROM_START
    """From when on control.log was read; before, a percentage may have been set unseen."""
    defaults: LimitsInForce = field(default_factory=LimitsInForce)
    ordinals: dict[str, str] = field(default_factory=dict)
    servers: dict[int, ServerRecord] = field(default_factory=dict)
    multiuser: bool | None = None
    """Whether one server serves all users; None where that is not known."""
    pending: dict[int, Event] = field(default_factory=dict)
    pending_elsewhere: list[Event] = field(default_factory=list)
    """Of clients in PID namespaces that the daemon does not see: it calls each of them 0."""
    failures: StartRecord | None = None
    _failed: dict[int, float] = field(default_factory=dict)
    """Servers that have failed to start, and when."""
    _starting: dict[int, int | None] = field(default_factory=dict)
    """Servers that are not ready yet and have not exited as the log tells, and for whom. /proc or an answer
    may know sooner that one is gone."""
    blocked_by: int | None = None
    """The client whose second terminate_client blocks the daemon (fact 16)."""
    blocked_since: float | None = None
    """When that one was sent; of the last one, where there were several."""
    blocked_known: float | None = None
    """When its line was read, or written if that was before, by the clock of this process."""
    session_since: float | None = None
    """When the control session that is open was opened; it may stay so (fact 2)."""
    quitting_since: float | None = None
    """Since when it has been told to quit and waits for its clients (fact 19)."""
    context_limit: int | None = None
    """The most contexts that a device takes, as it has said to a client that it refused (fact 13)."""
    uids: dict[int, int] = field(default_factory=dict)
    """Whose clients are and were, by PID, as control.log tells it; the latest ones."""
    _left: dict[int, None] = field(default_factory=dict, metadata=NOT_KEPT)
    """Of these, who has left a server; after so many others nothing more is told of them."""
    v3: V3Node | None = None
    """What a daemon of protocol 3 told last."""
    not_understood: str | None = None
    """Why nothing of what it answers is believed."""
    partitions: PartitionTable | None = None
    """Static SM partitions as it told them last, with the UUIDs as printed."""
    partitions_detail: str | None = None
    """Why they could not be read."""
    ended_unseen: dict[int, tuple[float, set[int]]] = field(default_factory=dict)
    """Processes that were no known clients when a terminate_client was carried out for them: when, and which contexts.
    A client that connected before the part of the log that was read is known by an answer alone, which comes later."""
    lost: dict[int, tuple[int, float | None]] = field(default_factory=dict)
    """Clients whose server ended under them: its PID, and when (fact 19)."""

    def apply(self, event: Event, now: float) -> list[Event]:
        """Folds one event; ``now`` is when it became known. Answers events that follow from it."""
        self.changes += 1
        handler = _HANDLERS.get(event.kind)
        return handler(self, event, now) if handler else []

    def client(self, pid: int) -> ClientRecord | None:
        for server in self.servers.values():
            if pid in server.clients:
                return server.clients[pid]
        return None

    def settle(self, client: ClientRecord, start_time: float | None) -> None:
        """Whether a client that is known since later had been terminated before; ``start_time``: of the process that it
        is, in seconds since the epoch, which must have been there by then."""
        when, contexts = self.ended_unseen.get(client.pid, (None, set()))
        if when is not None and start_time is not None and start_time < when:
            client.ended, client.ended_contexts = True, client.ended_contexts | contexts
            del self.ended_unseen[client.pid]

    def about(self, event: Event) -> Event:
        """The event with whom it is about, as far as the logs tell; to be asked before it is folded."""
        if event.kind == "fatal_fault":
            event = event._replace(suspects=tuple(Suspect(pid, self.uids.get(pid)) for pid in self.suspects(event)))
        if event.kind in _BY_ORDINAL:
            return by_uuid(event, self.ordinals)
        if event.pid is None or event.uid is not None or (uid := self.uids.get(event.pid)) is None:
            return event
        return event_of((*event[:_UID], uid, *event[_UID + 1 :]))

    def suspects(self, event: Event) -> tuple[int, ...]:
        """Every client that may have made a fault that is just being told: those that it takes, those that had a
        context on a device of theirs then or just before (one killed while busy is a cause, fact 17); where the log
        tells of none that it takes, all that have a context. Whom it names is not followed (fact 36)."""
        hit = _pids(event.values, "clients")
        server = self.servers.get(event.server_pid or 0)
        if server is None:
            return tuple(sorted(hit))
        since = (event.time or 0.0) - NEARBY
        there = {pid: client.devices(since) for pid, client in server.clients.items()}
        known = [there[pid] for pid in hit if pid in there]
        devices = frozenset().union(*known, (self.ordinals[o] for o in event.devices if o in self.ordinals))
        found = set(hit)
        for pid, client in server.clients.items():
            # Whoever made it is among those that it takes: one of whom it is not known where it is was not there.
            unknown = not hit and not (there[pid] and devices) and (client.contexts or client.connected is None)
            if there[pid] & devices or unknown:
                found.add(pid)
        for pid, (when, on) in server.departed.items():
            if when >= since and (not on or not devices or on & devices):
                found.add(pid)
        return tuple(sorted(found))

    def process_gone(self, pid: int, time: float) -> list[Event]:
        """The process of a client, of a server or of one that waits has ended."""
        self.changes += 1
        self.pending.pop(pid, None)
        self.lost.pop(pid, None)
        self.ended_unseen.pop(pid, None)
        self._end_server(pid, time)
        events: list[Event] = []
        for server in list(self.servers.values()):
            if pid in server.clients:
                events += self._remove(server, pid, time)
        return events

    def waits_no_more(self, event: Event) -> None:
        """A client of a server waits for none, whatever the daemon's log has left unsaid. The two logs are read one
        after the other: what was there before it began to wait says nothing."""
        asked = self.pending.get(event.pid or 0)
        if asked is not None and (event.time is None or asked.time is None or event.time >= asked.time):
            self.pending.pop(event.pid or 0)

    def reset(self, time: float | None = None) -> None:
        """The daemon has ended or is another one: nothing that was known of its servers holds."""
        self.changes += 1
        for pid in tuple(self.servers):
            self._end_server(pid, time)
        self.pending.clear()
        self.ended_unseen.clear()
        self.pending_elsewhere.clear()
        self._starting.clear()
        self.failures = None
        self.defaults, self.blocked_by = LimitsInForce(), None
        self.partitions = self.partitions_detail = None
        self.v3 = self.not_understood = None
        self.context_limit = None
        self.ordinals = {}
        self.daemon_pid = self.quitting_since = self.session_since = None

    def start_failed(self, pid: int | None, time: float | None, uid: int | None, reason: str | None) -> None:
        """A server did not start. Both logs may tell of the same one, in any order."""
        found = self.failures
        if found is None:
            found = self.failures = StartRecord(time, time)
        if pid is None or pid not in self._failed:
            found.count += 1
        if pid is not None:
            self._failed[pid] = time or 0.0
            for known in tuple(self._failed)[:-_FAILED_LIMIT]:
                del self._failed[known]
            found.server_pid = pid
        found.last = time if time is not None else found.last
        found.uid = uid if uid is not None else found.uid
        if reason:
            found.reason, found.reason_pid = reason, pid

    def started(self, pid: int) -> None:
        """A server is ready: they do start."""
        self.failures = None
        self._failed.clear()
        self._starting.pop(pid, None)

    def _ready(self, server: ServerRecord) -> None:
        """The server takes clients: those of its user who waited unseen are served now."""
        self.started(server.pid)
        self.pending_elsewhere = [
            event
            for event in self.pending_elsewhere
            if not self.multiuser and None not in {server.uid, event.uid} and server.uid != event.uid
        ]

    def _end_server(self, pid: int, time: float | None) -> None:
        """A server has ended; whoever was still connected has lost it (fact 19)."""
        server = self.servers.pop(pid, None)
        if server is not None:
            for client in server.clients:
                self.lost[client] = pid, time
            for client in tuple(self.lost)[:-_LOST_LIMIT]:
                del self.lost[client]

    def _server(self, event: Event, now: float) -> ServerRecord | None:
        if event.server_pid is None:
            return None
        server = self.servers.get(event.server_pid)
        if server is None:
            server = self.servers[event.server_pid] = ServerRecord(event.server_pid, now, status="ACTIVE")
        return server

    def _remove(self, server: ServerRecord, pid: int, time: float | None) -> list[Event]:
        client = server.clients.pop(pid, None)
        self._left.pop(pid, None)
        self._left[pid] = None
        if len(self._left) > _LEFT_LIMIT:
            del self._left[first := next(iter(self._left))]
            self.uids.pop(first, None)
        if self.blocked_by == pid:
            self.blocked_by = None
        fault, when = server.fault, time or 0.0
        on = client.devices(when - NEARBY) if client is not None else frozenset()
        departed = server.departed
        while departed and when - departed[earliest := next(iter(departed))][0] > NEARBY:
            del departed[earliest]
        # Whoever was hit or terminated before computed nothing any more: its end made no fault.
        idle = (client is not None and client.ended) or (fault is not None and pid in fault.hit)
        if not idle:
            departed.pop(pid, None)  # the latest to end is the last
            departed[pid] = when, on
        if fault is None:
            return []
        if not idle and when - (fault.time or 0.0) <= NEARBY and pid not in fault.ended_nearby:
            fault.ended_nearby += (pid,)
        fault.affected.discard(pid)
        if fault.affected & server.clients.keys():
            return []
        return [self.recovered(server, time)]

    def recovered(self, server: ServerRecord, time: float | None) -> Event:
        """The fault is over."""
        server.fault, server.status = None, "ACTIVE"
        detail = f"server {server.pid} has recovered: the last client hit by the fault has ended"
        return Event("server_recovered", time, self.pipe_dir, server.pid, detail=detail)


def _daemon_started(state: DaemonState, event: Event, now: float) -> list[Event]:
    state.reset(event.time)
    state.heard = True
    state.daemon_pid, state.control_from = event.pid, FROM_START
    state.defaults.memory_known = True  # none; a limit from the environment is seen when it is read back
    return []


def _daemon_exited(state: DaemonState, event: Event, now: float) -> list[Event]:
    state.reset(event.time)
    state.heard = False
    return []


def _server_starting(state: DaemonState, event: Event, now: float) -> list[Event]:
    assert event.server_pid is not None  # noqa: S101 - the parsers always know it
    known = state.servers.get(event.server_pid)
    if event.server_pid in state._failed and (event.time or 0.0) <= state._failed[event.server_pid]:
        return []  # server.log, read after control.log has told of its end
    state._starting[event.server_pid] = event.uid if event.uid is not None else state._starting.get(event.server_pid)
    for old in tuple(state._starting)[:-_FAILED_LIMIT]:
        del state._starting[old]
    if known is None or known.status != "INITIALIZING":
        limits = LimitsInForce(None, state.defaults.priority, dict(state.defaults.memory), state.defaults.memory_known)
        known = ServerRecord(event.server_pid, now, started=event.time, status="INITIALIZING", limits=limits)
        state.servers[event.server_pid] = known
    known.uid = event.uid if event.uid is not None else known.uid
    return []


def _server_ready(state: DaemonState, event: Event, now: float) -> list[Event]:
    server = state._server(event, now)
    if server is not None:
        if server.status == "INITIALIZING":
            server.status = "ACTIVE"
        state._ready(server)
    return []


def _server_failed(state: DaemonState, event: Event, now: float) -> list[Event]:
    server = state.servers.get(event.server_pid or 0)
    uid = server.uid if server is not None and event.uid is None else event.uid
    state.start_failed(event.server_pid, event.time, uid, event.values.get("reason"))
    if server is not None and server.status == "INITIALIZING":
        state._end_server(server.pid, event.time)
    return []


def _server_exited(state: DaemonState, event: Event, now: float) -> list[Event]:
    if event.server_pid is not None:
        if event.server_pid in state._starting and state.quitting_since is None:
            state.start_failed(event.server_pid, event.time, state._starting[event.server_pid], None)
        state._starting.pop(event.server_pid, None)
        state._end_server(event.server_pid, event.time)
    return []


def _server_waiting(state: DaemonState, event: Event, now: float) -> list[Event]:
    server = state._server(event, now)
    if server is not None:
        if not server.ending:
            server.ending, server.ending_since = True, event.time
        state._starting.pop(server.pid, None)
    return []


def _client_request(state: DaemonState, event: Event, now: float) -> list[Event]:
    if (server := state._server(event, now)) is not None:
        server.unnamed = True
    return []


def _client_connected(state: DaemonState, event: Event, now: float) -> list[Event]:
    server = state._server(event, now)
    if server is not None and "elsewhere" in event.values:
        server.elsewhere += 1
    if server is None or event.pid is None:
        return []
    state.pending.pop(event.pid, None)
    state.lost.pop(event.pid, None)
    state.ended_unseen.pop(event.pid, None)
    # A server that is to end may get one more client of its own user (fact 21), and waits for that one too.
    if len(server.clients) < MOST_CLIENTS or event.pid in server.clients:
        server.clients[event.pid] = ClientRecord(event.pid, now, connected=event.time, limits=server.limits.copy())
    return []


def _client_of(state: DaemonState, event: Event, now: float) -> ClientRecord | None:
    server = state._server(event, now)
    if server is None or event.pid is None:
        return None
    client = server.clients.get(event.pid)
    if client is None and len(server.clients) < MOST_CLIENTS:
        client = server.clients[event.pid] = ClientRecord(event.pid, now)
    return client


def _context_active(state: DaemonState, event: Event, now: float) -> list[Event]:
    client = _client_of(state, event, now)
    state.waits_no_more(event)
    if client is not None and event.context_id is not None:
        client.contexts[event.context_id] = event.devices[0] if event.devices else None
        client.touched = now
    return []


def _context_closed(state: DaemonState, event: Event, now: float) -> list[Event]:
    state.waits_no_more(event)
    client = state.client(event.pid) if event.pid is not None else None
    if client is None or event.context_id is None:
        return []
    if device := client.contexts.pop(event.context_id, None):
        client.left[device] = event.time or 0.0
    client.touched = now
    if "exit" in event.values and not client.contexts and event.server_pid in state.servers:
        detail = f"client {client.pid} disconnected"
        gone = Event("client_disconnected", event.time, state.pipe_dir, event.server_pid, client.pid, detail=detail)
        return [gone, *state._remove(state.servers[event.server_pid], client.pid, event.time)]
    return []


def _client_disconnected(state: DaemonState, event: Event, now: float) -> list[Event]:
    state.waits_no_more(event)
    server = state.servers.get(event.server_pid or 0)
    if server is not None and "elsewhere" in event.values:
        server.elsewhere = max(0, server.elsewhere - 1)
    if server is None or event.pid is None:
        if server is not None and "elsewhere" not in event.values:
            server.unnamed = True
        return []
    server.touched = now
    return state._remove(server, event.pid, event.time)


def _client_pending(state: DaemonState, event: Event, now: float) -> list[Event]:
    if event.pid is not None:
        state.pending[event.pid] = event
    elif "elsewhere" in event.values and len(state.pending_elsewhere) < _ELSEWHERE_LIMIT:
        state.pending_elsewhere.append(event)
    return _client_admitted(state, event, now)


def _client_admitted(state: DaemonState, event: Event, now: float) -> list[Event]:
    state.heard = True
    if event.pid and event.uid is not None:
        state._left.pop(event.pid, None)
        state.uids.pop(event.pid, None)
        state.uids[event.pid] = event.uid
        if len(state.uids) > _UID_LIMIT:
            del state.uids[next(iter(state.uids))]
    return []


def _client_refused(state: DaemonState, event: Event, now: float) -> list[Event]:
    server = state.servers.get(event.server_pid or 0)
    if event.values.get("reason") == "limit" and 0 < int(event.values["limit"]) <= _MOST_CONTEXTS:
        state.context_limit = int(event.values["limit"])
    if server is not None and server.fault is not None and event.values.get("reason") == "fault":
        server.fault.refused += 1
    return []


def _terminate_requested(state: DaemonState, event: Event, now: float) -> list[Event]:
    client = state.client(event.pid) if event.pid is not None else None
    if client is None:
        return []
    again = client.ended if event.context_id is None else event.context_id in client.ended_contexts
    if again:
        state.blocked_by, state.blocked_since, state.blocked_known = client.pid, event.time, now
    client.asked = True
    return []


def _session(state: DaemonState, event: Event, now: float) -> list[Event]:
    state.heard = True
    state.session_since = event.time if event.kind == "session_opened" else None
    return []


def _terminate_succeeded(state: DaemonState, event: Event, now: float) -> list[Event]:
    client = state.client(event.pid) if event.pid is not None else None
    if client is None:
        if event.pid and event.time is not None:
            _, contexts = state.ended_unseen.pop(event.pid, (0.0, set()))
            if event.context_id is not None:
                contexts.add(event.context_id)
            state.ended_unseen[event.pid] = event.time, contexts
            if len(state.ended_unseen) > _UID_LIMIT:
                del state.ended_unseen[next(iter(state.ended_unseen))]
        return []
    client.ended = True
    if event.context_id is not None:
        client.ended_contexts.add(event.context_id)
    if state.blocked_by == client.pid:
        state.blocked_by = None
    return []


def _command(state: DaemonState, event: Event, now: float) -> list[Event]:
    """A terminate_client or a quit that was refused has not happened."""
    state.heard = True
    if event.values.get("command", "").split()[:1] == ["quit"]:
        state.quitting_since = None if "refused" in event.values else event.time
    if event.pid is not None and "refused" in event.values:
        state.blocked_by = None if state.blocked_by == event.pid else state.blocked_by
        if (client := state.client(event.pid)) is not None and not client.ended:
            client.asked = False
    return []


def _fatal_fault(state: DaemonState, event: Event, now: float) -> list[Event]:
    server = state._server(event, now)
    if server is None:
        return []
    suspects = state.suspects(event)
    affected, named = _pids(event.values, "clients"), event.named
    server.status = "FAULT"
    # Whoever is hit is a client, though its start was not in the log; one that has just ended is none any more.
    for pid in affected - server.clients.keys() - server.departed.keys():
        server.clients[pid] = ClientRecord(pid, now)
    for word in event.values.get("contexts", "").split():
        whose, _, context = word.partition(".")
        if (client := server.clients.get(int(whose))) is not None:
            client.contexts.setdefault(int(context), None)
    begun, refused, hit, devices = event.time, 0, frozenset(affected), event.devices
    if (known := server.fault) is not None:  # another one while the first lasts
        affected |= known.affected
        begun, refused, hit = known.time, known.refused, hit | known.hit
        named = tuple(sorted({*known.named, *named}))
        devices = tuple(dict.fromkeys((*known.devices, *devices)))
        suspects = tuple(sorted({*known.suspects, *suspects}))
    lately = ((pid, when) for pid, (when, _) in server.departed.items())
    nearby = tuple(pid for pid, when in lately if pid not in hit and abs((event.time or 0.0) - when) <= NEARBY)
    cut = "cut" in event.values or (known is not None and known.cut)
    server.fault = FaultRecord(begun, named, affected, devices, hit, refused, nearby, suspects, cut)
    return []


def _limit_set(state: DaemonState, event: Event, now: float) -> list[Event]:
    values = event.values
    if values.get("what") == "active_thread_percentage" and (event.time or 0.0) < state.control_from:
        return []  # server.log tells the first percentage only; the later ones are in the part not read
    scope: list[LimitsInForce] = []
    if values.get("scope") == "default":
        scope.append(state.defaults)
    elif (server := state._server(event, now)) is not None:
        scope.append(server.limits)
    if values.get("what") == "client_priority":  # one for the daemon; every server takes it over at once
        scope = [state.defaults, *(server.limits for server in state.servers.values())]
    for limits in scope:
        set_limit(limits, values)
    return []


def set_limit(limits: LimitsInForce, values: Mapping[str, str]) -> None:
    """Folds a ``limit_set`` event's values."""
    what, value = values.get("what"), values.get("value", "")
    if what == "active_thread_percentage":
        limits.percentage = float(value)
    elif what == "client_priority":
        limits.priority = int(value)
    elif what == "pinned_mem_limit":
        device = values.get("device", "")
        limits.memory.pop(device, None)
        if int(value):  # 0 takes the limit away (fact 26)
            limits.memory[device] = int(value)


def _pids(values: Mapping[str, str], name: str) -> set[int]:
    return {int(word) for word in values.get(name, "").split()} - {0}  # which is no process


_HANDLERS = {
    "daemon_started": _daemon_started,
    "daemon_exited": _daemon_exited,
    "server_starting": _server_starting,
    "server_ready": _server_ready,
    "server_exited": _server_exited,
    "server_failed": _server_failed,
    "server_shutdown_waiting": _server_waiting,
    "client_request": _client_request,
    "client_connected": _client_connected,
    "context_active": _context_active,
    "context_closed": _context_closed,
    "client_disconnected": _client_disconnected,
    "client_pending": _client_pending,
    "client_admitted": _client_admitted,
    "client_refused": _client_refused,
    "session_opened": _session,
    "session_closed": _session,
    "terminate_requested": _terminate_requested,
    "terminate_succeeded": _terminate_succeeded,
    "command": _command,
    "fatal_fault": _fatal_fault,
    "limit_set": _limit_set,
}


# The node's latest events, each told once although both logs of a daemon tell some of them.


Origin = Literal["control", "server", "derived", "driver"]
TWICE: Final = frozenset(
    (
        "server_starting",
        "server_ready",
        "server_exited",
        "server_shutdown_waiting",
        "terminate_requested",
        "terminate_succeeded",
        "limit_set",
    )
)
"""Kinds that both logs of a daemon may tell of."""
_WINDOW: Final = 1.0
"""Seconds between the two logs telling the same thing."""
_BY_ORDINAL: Final = frozenset(("fatal_fault", "server_context"))
"""Kinds whose line of the log has the server's own numbers of its devices."""
_HIDDEN: Final = frozenset(("session_opened", "session_closed", "client_admitted"))
_PEOPLE: Final = 1024
_FEW: Final = 128
"""People of whom nobody asks whether anything that is kept is about them."""
_MORE: Final = 32
"""As many more have to come before that is asked again."""
_LATE: Final = 2.0
"""Seconds for which a log may go on to tell of a process that has ended."""
_BEFORE: Final = 1.0
"""Seconds by which a process' start and a line of the log on it may be out of order."""


@dataclass(slots=True)
class Identity:
    """Whose a process is, and from when to when that is known to hold for its PID."""

    facts: ProcessFacts
    since: float
    until: float | None = None

    def fits(self, when: float | None, uid: int | None) -> bool:
        """Whether something that happened then to this PID, of a process of ``uid`` as the logs say, happened to it."""
        if uid is not None and self.facts.uid is not None and uid != self.facts.uid:
            return False
        if when is None:
            return self.until is None
        return when >= self.since - _BEFORE and (self.until is None or when <= self.until + _LATE)


@dataclass(slots=True)
class _Told:
    event: Event
    origin: Origin
    when: float | None
    confirmed: bool = False


@dataclass(eq=False)
class EventLog:
    """Oldest first, at most ``limit``; of several daemons the one of which most is kept makes room, so that a quiet one
    is told of beside a busy one. Plain questions to the daemon, mpstui's own among them, are left out."""

    limit: int = 500
    _told: deque[_Told] = field(default_factory=deque)
    _people: dict[tuple[Path | None, int], Identity] = field(default_factory=dict)
    _enough: int = _FEW
    _users: dict[int, str] = field(default_factory=dict)
    _tellers: dict[Path | None, int] = field(default_factory=dict)
    _shown: tuple[Event, ...] | None = field(default=None, metadata=NOT_KEPT)
    _many: Counter[Path | None] = field(default_factory=Counter, metadata=NOT_KEPT)
    """How many are kept of each daemon."""

    def __post_init__(self) -> None:
        self._told = deque(self._told, maxlen=self.limit)
        self._many = Counter(told.event.pipe_dir for told in self._told)

    def hear(self, pipe_dir: Path, uid: int | None) -> None:
        """Whose word it is what is told of this daemon, who then tells of himself alone; None: of everybody."""
        if uid is None:
            self._tellers.pop(pipe_dir, None)
        else:
            self._tellers[pipe_dir] = uid

    def believe_only(self, pipe_dirs: Iterable[Path], uid: int | None) -> None:
        """As :meth:`hear`, of what was told before too."""
        for pipe_dir in pipe_dirs:
            self.hear(pipe_dir, uid)
        for told in self._told:
            self._change(told, self.named(told.event, told.when))

    def know(self, people: Collection[ProcessFacts], now: float, pipe_dir: Path | None = None) -> None:
        """Who processes are, to the daemon of ``pipe_dir``: another one may mean another process by the same number.
        What was told of them before gets their names too, and everything keeps them when they have gone."""
        new_user = False
        for facts in people:
            pid = facts.key.pid
            self._people.pop((pipe_dir, pid), None)
            self._people[pipe_dir, pid] = Identity(facts, facts.start_time if facts.start_time is not None else now)
            if facts.uid is not None and facts.user is not None:
                new_user = new_user or facts.uid not in self._users
                self._users[facts.uid] = facts.user
        if len(self._people) > self._enough:
            self._forget(now)
        pids = {facts.key.pid for facts in people}
        for told in self._told:
            event = told.event
            if new_user or (
                event.pipe_dir == pipe_dir
                and (event.pid in pids or any(suspect.pid in pids for suspect in event.suspects))
            ):
                self._change(told, self.named(event, told.when))

    def _forget(self, now: float) -> None:
        """Whoever has ended, and is in no event that is kept."""
        events = [told.event for told in self._told]
        told = {(event.pipe_dir, event.pid) for event in events}
        told |= {(event.pipe_dir, suspect.pid) for event in events for suspect in event.suspects}
        self._people = {
            who: known
            for who, known in self._people.items()
            if known.until is None or known.until >= now - _LATE or who in told
        }
        for who in tuple(self._people)[:-_PEOPLE]:
            del self._people[who]
        self._enough = min(_PEOPLE, max(_FEW, len(self._people) + _MORE))

    def join(self, pipe_dir: Path, state: DaemonState) -> None:
        """Which GPUs the devices of its servers are, in what was told before that was known."""
        for told in self._told:
            if told.event.pipe_dir == pipe_dir and told.event.server_pid in state.servers:
                self._change(told, by_uuid(told.event, state.ordinals))

    def left(self, pid: int, now: float) -> None:
        """The process has ended, or is of no interest any more: what the PID does later is another's."""
        for (_, number), known in self._people.items():
            if number == pid and known.until is None:
                known.until = now

    def _change(self, told: _Told, event: Event) -> None:
        if event != told.event:
            told.event, self._shown = event, None

    def named(self, event: Event, when: float | None = None) -> Event:
        """The event with the user and the command of whom it is about, as far as they are known."""
        if not self._people and not self._tellers:
            return event
        when = event.time if when is None else when
        if event.pid is not None and event.command is None:
            known = self._who(event, event.pid, event.uid, when)
            if (event.uid, event.user, event.command) != (known.uid, known.user, known.command):
                event = event._replace(uid=known.uid, user=event.user or known.user, command=known.command)
        elif event.pid is None and event.uid is not None and event.user is None and event.uid in self._users:
            event = event._replace(user=self._users[event.uid])
        if any(suspect.command is None for suspect in event.suspects):
            found = tuple(s if s.command else self._who(event, s.pid, s.uid, when, s.user) for s in event.suspects)
            event = event._replace(suspects=found) if found != event.suspects else event
        teller = self._tellers.get(event.pipe_dir)
        return event if teller is None else told_by(teller, event)

    def _who(self, event: Event, pid: int, uid: int | None, when: float | None, user: str | None = None) -> Suspect:
        known = self._people.get((event.pipe_dir, pid))
        if known is not None and known.fits(when, uid):
            facts = known.facts
            uid = facts.uid if uid is None else uid
            return Suspect(
                pid, uid, facts.user or user or (self._users.get(uid) if uid is not None else None), facts.command
            )
        return Suspect(pid, uid, user or (self._users.get(uid) if uid is not None else None))

    def add(self, event: Event, origin: Origin, when: float | None = None) -> None:
        """``when``: seconds since the epoch at which it became known, where that is not its own time."""
        if event.kind in _HIDDEN or event.is_question:
            return
        if self.repeats(event, origin):
            return
        told = _Told(self.named(event, when), origin, when)
        if event.kind == "xid":
            self._add_xid(told)
        else:
            self._place(told)
            if event.kind == "fatal_fault":
                self._link()
        self._shown = None

    def _place(self, new: _Told) -> None:
        """At the end; what the driver says and what the logs say come in any order, and are put into that of time."""
        at, when, full = len(self._told), new.event.time or 0.0, len(self._told) == self._told.maxlen
        while at and (self._told[at - 1].event.time or 0.0) > when:
            if "xid" not in {new.event.kind, self._told[at - 1].event.kind}:
                break
            at -= 1
        if full and at == 0:
            return  # older than all that is kept
        if full:
            busiest = max(self._many, key=self._many.__getitem__)
            oldest = next(n for n, told in enumerate(self._told) if told.event.pipe_dir == busiest)
            del self._told[oldest]
            self._many[busiest] -= 1
            at -= oldest < at
        self._told.insert(at, new)
        self._many[new.event.pipe_dir] += 1

    def _add_xid(self, told: _Told) -> None:
        """At its place in time; NVML and the kernel each tell of one, which is told once, with what the kernel adds."""
        event = told.event
        for other in reversed(self._told):
            if other.event.kind == "xid" and same_xid(other.event, event):
                kept = event if event.raw else other.event
                self._change(other, kept._replace(time=other.event.time, devices=event.devices or other.event.devices))
                break
        else:
            self._place(told)
        self._link()

    def _link(self) -> None:
        """Each fault has the numbers of the Xids of its moment."""
        near = [told.event for told in self._told if told.event.kind in {"fatal_fault", "xid"}]
        if all(event.kind != "xid" for event in near):
            return
        for told in self._told:
            if told.event.kind == "fatal_fault":
                own = xids_of(told.event.time, told.event.devices, near)
                self._change(told, with_xids(told.event, [e.values["xid"] for e in own]))

    def repeats(self, event: Event, origin: Origin) -> bool:
        """Whether the other log has told it; ask once for each event, as what was told once is repeated once."""
        return event.kind in TWICE and self._confirms(event, origin)

    @property
    def events(self) -> tuple[Event, ...]:
        """The same tuple until an event is added."""
        if self._shown is None:
            self._shown = tuple(told.event for told in self._told)
        return self._shown

    def told_of_end(self, pipe_dir: Path, pid: int) -> bool:
        """Whether the log has said that this daemon exits. In a container a daemon has another PID there than here: it
        is then the last one that the log tells of, or the one before a successor that has started already."""
        found = self._starts_and_ends(pipe_dir)
        own = [e for e in found if e.pid == pid]
        return any(e.kind == "daemon_exited" for e in own or found[-2:])

    def ended(self, pipe_dir: Path) -> float | None:
        """When the last daemon there ended; None too where another one has started since."""
        last = next(reversed(self._starts_and_ends(pipe_dir)), None)
        return last.time if last is not None and last.kind == "daemon_exited" else None

    def _starts_and_ends(self, pipe_dir: Path) -> list[Event]:
        return [e for e in self.events if e.pipe_dir == pipe_dir and e.kind in {"daemon_started", "daemon_exited"}]

    def _confirms(self, event: Event, origin: Origin) -> bool:
        """Whether the other log has told it already; what was told once confirms one event only."""
        for told in reversed(self._told):
            if (event.time or 0.0) - (told.event.time or 0.0) > _WINDOW:
                return False
            if told.origin != origin and not told.confirmed and _same(told.event, event):
                told.confirmed = True
                return True
        return False


def by_uuid(event: Event, ordinals: Mapping[str, str]) -> Event:
    """The event with the UUIDs of its devices, where it has the server's own numbers and all of them are known."""
    if event.kind not in _BY_ORDINAL or not event.devices or not ordinals.keys() >= {*event.devices}:
        return event
    uuids = tuple(ordinals[number] for number in event.devices)
    told = event.detail.replace(server_devices(event.devices), listed(uuids), 1)
    return event._replace(devices=uuids, detail=told)


def told_by(uid: int, event: Event) -> Event:
    """The event as it is believed of this user, neither root nor oneself: what it says of others' processes, and whose
    a number in his logs is, nobody knows. An innocent is not blamed on a stranger's word."""
    if event.uid not in {None, uid}:
        event = event._replace(uid=None, user=None, command=None)
    if any(suspect.uid not in {None, uid} for suspect in event.suspects):
        found = tuple(s if s.uid in {None, uid} else Suspect(s.pid) for s in event.suspects)
        event = event._replace(suspects=found)
    return event


def with_xids(fault: Event, numbers: Iterable[str]) -> Event:
    """The fault with the numbers in ``values["xid"]``, each once."""
    told = " ".join(dict.fromkeys(numbers))
    others = {name: value for name, value in fault.values.items() if name != "xid"}
    return fault._replace(values={**others, **({"xid": told} if told else {})})


def same_xid(one: Event, other: Event) -> bool:
    """Whether NVML and the kernel tell of the same one: one of the two has a line, the other has none."""
    near = abs((one.time or 0.0) - (other.time or 0.0)) <= MOMENT
    where = not one.devices or not other.devices or one.devices == other.devices
    return near and where and one.values.get("xid") == other.values.get("xid") and bool(one.raw) != bool(other.raw)


def _same(one: Event, other: Event) -> bool:
    if (one.kind, one.pid, one.pipe_dir) != (other.kind, other.pid, other.pipe_dir):
        return False
    if one.kind == "limit_set":
        return all(one.values.get(name) == other.values.get(name) for name in ("what", "value", "device"))
    return one.server_pid == other.server_pid


# Answers of the daemon, folded into what its logs told. Answers know what is, logs know since when.


def fold_membership(state: DaemonState, reading: Membership, now: float) -> list[Event]:
    """Makes the state agree with the answers, save for what the logs told after the questions were put."""
    events: list[Event] = []
    state.changes += 1
    for server in state.servers.values():
        # Later only where the clock was set back: from then on answers count again.
        server.touched = min(server.touched, now)
        for client in server.clients.values():
            client.touched = min(client.touched, now)
    if reading.query is not None:
        fold_devices(state, reading.query)
    for pid in [pid for pid, server in state.servers.items() if server.touched < reading.time]:
        if pid not in reading.servers:
            del state.servers[pid]
    for pid in reading.servers:
        server = state.servers.setdefault(pid, ServerRecord(pid, reading.time))  # known by this reading alone
        status = reading.status.get(pid)
        if status is not None:
            server.told, server.told_at = status, reading.time
        if status is not None and status != "FAULT" and server.fault is not None:
            if (server.fault.time or 0.0) < reading.time:
                events.append(state.recovered(server, now))  # the logs will tell how
                server.status = status
        elif status is not None:
            server.status = status
            if status == "ACTIVE":
                state.started(pid)
        if pid in reading.clients:
            events += _fold_clients(state, server, reading, now)
    _fold_rows(state, reading.rows)
    return events


def fold_devices(state: DaemonState, query: DeviceQuery) -> None:
    """Takes over which device the daemon calls by which ordinal (fact 11)."""
    found = query.default or next(iter(query.servers.values()), ())
    state.changes += 1
    state.ordinals = {str(device.ordinal): device.uuid for device in found}


def fold_partitions(state: DaemonState, found: PartitionTable | None, detail: str | None = None) -> None:
    """Takes over which static partitions there are; ``detail``: why that could not be read."""
    if (state.partitions, state.partitions_detail) != (found, detail):
        state.partitions, state.partitions_detail = found, detail
        state.changes += 1


def fold_v3(state: DaemonState, node: V3Node | None, detail: str | None, started: float, now: float) -> list[Event]:
    """Takes over what a daemon of protocol 3 has told, as answered to questions from ``started`` on. None: ``detail``
    says why nothing of it is understood, and what was known stays."""
    if (node, detail) != (state.v3, state.not_understood):
        state.v3, state.not_understood = node or state.v3, detail
        state.changes += 1
    if node is None:
        return []
    state.ordinals = {d.ordinal: d.uuid for d in node.devices if d.ordinal and d.uuid} or state.ordinals
    running = [server for server in node.servers if server.pid]
    reading = Membership(
        started,
        tuple(server.pid or 0 for server in running),
        {server.pid or 0: _status_word(server.status) for server in running},
        {server.pid or 0: tuple(c.pid for c in node.clients_of(server.name)) for server in running},
    )
    events = fold_membership(state, reading, now)
    for server in running:
        record = state.servers[server.pid or 0]
        record.uid = server.uid
        for client in record.clients.values():
            row = node.client(client.pid)
            client.command = row.command if row is not None else None
            device = None if row is None or row.device is None else state.ordinals.get(row.device, row.device)
            client.contexts = {1: device} if device is not None and device.startswith(("GPU-", "MIG-")) else {}
    return events


def _status_word(status: str | None) -> str:
    """A server that takes clients is ACTIVE, whatever the protocol calls it."""
    word = (status or "").upper()
    return "ACTIVE" if word in {"READY", "RUNNING"} else word or "UNKNOWN"


def in_namespace(client: Client, environment: Mapping[str, str] | None, node: V3Node) -> Client:
    """The client of a daemon of protocol 3. A namespace's percentage comes before the client's own variable, its
    memory limit is lowered by that; a namespace with a name has nothing of its server."""
    row = node.client(client.pid)
    space = node.namespace(row.server, row.namespace) if row is not None else None
    own = own_percentage((environment or {}).get(PERCENTAGE_VARIABLE))
    percentage = own if space is None or space.active_thread_percentage is None else space.active_thread_percentage
    told = space is not None and environment is not None and PERCENTAGE_VARIABLE not in environment
    source = {}
    if percentage is not None:
        source["active_thread_percentage"] = "client" if percentage is own else "namespace"
    if space is not None and space.client_priority is not None:
        source["client_priority"] = "namespace"
    ordinals = {device.ordinal: device.uuid for device in node.devices if device.ordinal and device.uuid}
    own_sizes = own_memory(
        (environment or {}).get(MEMORY_VARIABLE),
        own_numbers(ordinals, (environment or {}).get(DEVICES_VARIABLE)),
        ordinals,
    )
    served = space.memory_limits(ordinals) if space is not None else {}
    # One entry of its own for a GPU that it does not see takes every memory limit of it away, as is documented.
    dropped = own_sizes == {} and bool((environment or {}).get(MEMORY_VARIABLE))
    memory = {} if dropped else lower_sizes(served, own_sizes or {})
    if memory:
        source["pinned_mem_limits"] = "namespace" if memory == served else "client"
    return replace(
        client,
        namespace=row.namespace if row is not None else None,
        active_thread_percentage=percentage,
        percentage_at_most=False,
        percentage_known=percentage is not None or told,
        pinned_mem_limits=memory or EMPTY,
        memory_limit_known=space is not None and environment is not None and own_sizes is not None,
        client_priority=space.client_priority if space is not None else None,
        limit_source=source or EMPTY,
    )


def partitioned(client: Client, environment: Mapping[str, str] | None, table: PartitionTable | None) -> Client:
    """The client of a daemon with static partitions: its SMs are those of the partition that its own environment
    names, and no percentage has an effect."""
    named = printable((environment or {}).get(PARTITION_VARIABLE, "").encode("utf-8", "surrogateescape"), 200) or None
    found = table.find(named) if table is not None and named is not None else None
    source = {what: whence for what, whence in client.limit_source.items() if what != "active_thread_percentage"}
    return replace(
        client,
        active_thread_percentage=None,
        percentage_at_most=False,
        sm_count=found.sm_count if found is not None else None,
        sm_count_estimated=False,
        limit_source=source or EMPTY,
        sm_partition=named,
    )


def _fold_clients(state: DaemonState, server: ServerRecord, reading: Membership, now: float) -> list[Event]:
    listed = [pid for pid in reading.clients[server.pid] if pid]  # 0 is no process
    server.listed = True
    server.elsewhere = reading.clients[server.pid].count(0)
    events: list[Event] = []
    for pid in [pid for pid, c in server.clients.items() if pid not in listed and c.touched < reading.time]:
        events += state.process_gone(pid, now)
    for pid in listed:
        if pid not in server.clients and not (server.touched > reading.time):
            limits = server.limits.copy() if server.limits_read is not None else LimitsInForce()
            server.clients[pid] = ClientRecord(pid, reading.time, limits=limits)
    devices = reading.contexts.get(server.pid)
    if devices is None:
        return events
    ordinals = _ordinals(reading.query, server.pid) or state.ordinals
    seen: dict[int, dict[int, str | None]] = {}
    for device in devices:
        for context in device.contexts:
            seen.setdefault(context.pid, {})[context.context] = ordinals.get(str(device.ordinal))
    for pid, client in server.clients.items():
        if client.touched <= reading.time:
            known, client.contexts = client.contexts, seen.get(pid, {})
            for number, uuid in client.contexts.items():
                if uuid is None:
                    client.contexts[number] = known.get(number)
    return events


def _ordinals(query: DeviceQuery | None, server: int) -> dict[str, str]:
    found = query.servers.get(server, ()) if query is not None else ()
    return {str(device.ordinal): device.uuid for device in found}


def _fold_rows(state: DaemonState, rows: tuple[PsRow, ...]) -> None:
    """A row is believed only of a listed client, and only if it is the one row that claims to be its (fact 10)."""
    claims: dict[int, set[PsRow]] = {}
    for row in rows:
        claims.setdefault(row.pid, set()).add(row)
    for server in state.servers.values():
        for pid, client in server.clients.items():
            rival = claims.get(pid, set())
            if len(rival) == 1:
                row = next(iter(rival))
                if row.server == server.pid:
                    client.id, client.namespace, client.command = row.id, row.namespace, row.command
            elif rival:
                client.id = client.namespace = client.command = None


def fold_limits(state: DaemonState, reading: LimitReading, logged: bool) -> None:
    """Takes over the limits read.

    ``logged``: the logs are followed and would have told of a change. A limit that differs from what they told has then
    been so all along (a variable in the daemon's environment), for the clients as well; otherwise it was changed at
    some time, and of clients seen since the last reading it is not known what they got.
    """
    state.changes += 1
    defaults = state.defaults
    if reading.percentage is not None:
        defaults.percentage = reading.percentage
    if reading.priority is not None:
        defaults.priority = reading.priority
        for server in state.servers.values():
            _take(server, "priority", reading.priority, state.control_from if logged else None)
    if reading.memory is not None:
        defaults.memory = _exact(reading.memory, by_ordinal(defaults.memory, state.ordinals))
        defaults.memory_known = True
    for server in state.servers.values():
        percentage = reading.server_percentage.get(server.pid)
        if percentage is not None:
            _take(server, "percentage", percentage, state.control_from if logged else None)
        _take_memory(server, reading.server_memory.get(server.pid), state.ordinals, logged)
        if percentage is not None or server.pid in reading.server_memory:
            server.limits_read = reading.time


def _since_last(server: ServerRecord) -> list[ClientRecord]:
    """Clients first seen after the limits were last read."""
    read = server.limits_read
    return [client for client in server.clients.values() if read is None or client.touched > read]


def _take(
    server: ServerRecord, name: Literal["percentage", "priority"], value: float, logged_from: float | None
) -> None:
    """What the server has now; a client that had what it had before has that too, where the logs say when it came."""
    old = getattr(server.limits, name)
    setattr(server.limits, name, value)
    if old == value:
        return
    for client in server.clients.values() if logged_from is not None else _since_last(server):
        if getattr(client.limits, name) == old:
            setattr(client.limits, name, value if _seen_connecting(client, logged_from) else None)


def _seen_connecting(client: ClientRecord, logged_from: float | None) -> bool:
    """Whether every change of a limit since it connected is in the logs that were read."""
    return logged_from is not None and client.connected is not None and client.connected >= logged_from


def _take_memory(
    server: ServerRecord, found: Mapping[str, int | None] | None, ordinals: Mapping[str, str], logged: bool
) -> None:
    if found is None:
        return
    old = by_ordinal(server.limits.memory, ordinals)
    known = server.limits.memory_known
    new = _exact(found, old)
    kept = {device: size for device, size in old.items() if device not in found}  # devices that nobody has (fact 5)
    server.limits.memory, server.limits.memory_known = {**kept, **new}, True  # what was read is the latest
    if known and server.limits.memory == old:
        return
    for client in server.clients.values() if logged else _since_last(server):
        if client.limits.memory_known == known and by_ordinal(client.limits.memory, ordinals) == old:
            sure = logged and client.connected is not None and server.started is not None
            client.limits.memory = dict(server.limits.memory) if sure else {}
            client.limits.memory_known = sure


def _exact(found: Mapping[str, int | None], told: Mapping[str, int]) -> dict[str, int]:
    """What was read, with the whole size where the logs told it: a daemon prints whole GiB from 1 GiB on (fact 26)."""
    sizes = ((device, size) for device, size in found.items() if size is not None)
    return {device: told[device] if same_limit(told.get(device), size) else size for device, size in sizes}
