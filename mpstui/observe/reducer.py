"""The node's state, a fold over everything that was observed, and the snapshot made of it; pure, no I/O, no clock."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import wraps
from pathlib import Path
from typing import Concatenate, Final, Generic, Literal, NamedTuple, ParamSpec, Protocol, TypeVar, cast

from mpstui.control.answer import Answer, Outcome
from mpstui.control.drivers import contexts_of
from mpstui.control.partitions import whole_uuids
from mpstui.control.protocol import lacking
from mpstui.control.wire import STARTING, DeviceQuery, LimitReading, Membership
from mpstui.core.codec import NOT_KEPT
from mpstui.core.condition import as_claimed, cut_off
from mpstui.core.late import dataclass
from mpstui.core.limits import by_ordinal, counted, effective, in_doubt, inherited_memory
from mpstui.core.model import (
    EMPTY,
    Activity,
    Client,
    Context,
    Daemon,
    Device,
    Event,
    OutsideClient,
    PartitionTable,
    Problem,
    ProcessKey,
    Server,
    SessionHolder,
    Snapshot,
    Source,
)
from mpstui.core.partition import SmShare, sm_share
from mpstui.core.text import moment_text, path_text
from mpstui.core.trust import ANOTHER_NAMESPACE, NOT_PROVED, REUSED, Speaker, cut_off_by, same_namespace, whose_word
from mpstui.core.v3 import DEFAULT, V3Node
from mpstui.core.xid import Xid
from mpstui.observe.discovery import Place
from mpstui.observe.problems import (
    Probe,
    as_written,
    condition_of,
    ended_unseen,
    find_problems,
    idle_clients,
    led_elsewhere,
    lost_clients,
    outside_clients,
    outside_pids,
    pending_clients,
    problems_of,
    server_fault,
    start_failures,
)
from mpstui.observe.sources import NvmlSample
from mpstui.observe.state import (
    ClientRecord,
    DaemonState,
    EventLog,
    Origin,
    ServerRecord,
    fold_devices,
    fold_limits,
    fold_membership,
    fold_partitions,
    fold_v3,
    in_namespace,
    partitioned,
)
from mpstui.system.procfs import ProcessFacts


def contexts_by_device(state: DaemonState) -> Counter[str]:
    """How many contexts each device holds, by UUID; a context whose device is not known is not counted."""
    clients = (client for server in state.servers.values() for client in server.clients.values())
    return Counter(uuid for client in clients for uuid in client.contexts.values() if uuid is not None)


# The node's state, a fold over everything that was observed, and the snapshot made of it; pure, no I/O, no clock.


Watch = Literal["logs", "polling", "none"]
T = TypeVar("T")
_SAME_CLOCK: Final = 1.0
"""Seconds by which a process that has just begun may be behind, or before, the line that tells of it."""
_CPU_INTERVAL = 0.5
"""Seconds under which a CPU percentage would be noise: the kernel counts in hundredths."""
_CPU_TICK = 1.0
"""Percent in one second that a hundredth of it is: a share that is less away from the one before is the same one."""


class _Kept(Generic[T]):
    """What was made last: the same object until what it is made of is another."""

    __slots__ = ("_made", "_of")

    def __init__(self) -> None:
        self._of: tuple[object, ...] | None = None
        self._made: T | None = None

    def get(self, of: tuple[object, ...], make: Callable[[], T]) -> T:
        """``of``: all that ``make`` goes by."""
        if self._of != of:
            self._made, self._of = make(), of
        return cast("T", self._made)


@dataclass(slots=True)
class _Made:
    """A client, and all that it was made of but for its share of a CPU."""

    of: tuple[object, ...]
    client: Client


class Watching(NamedTuple):
    """How one learns what a daemon does."""

    watch: Watch = "none"
    detail: str | None = None
    remedy: str | None = None
    version: str | None = None
    """Of the control binary, as its log says."""


class Knows(NamedTuple):
    """Commands that a daemon has shown not to know, and to know."""

    unknown: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()


@dataclass(slots=True)
class Watched:
    """One pipe directory and all that is known of it."""

    state: DaemonState
    place: Place | None = None
    probe: Probe | None = None
    answered_at: float | None = None
    how: Watching = field(default_factory=Watching)
    knows: Knows | None = None
    """What the daemon that runs there knows; None where nobody has been asked."""
    led: str | None = None
    """Where its name leads, and led before, where somebody has led it elsewhere while one looked; a clause."""
    led_at_first: Path | None = None
    """Where it led before that; once it leads there again nothing is told."""
    led_last: Place | None = None
    """The place as it was when its name was last seen to lead anywhere: it may lead nowhere in between."""
    past: bool = False
    """Nobody can be asked: its logs of long ago are all that there is."""
    partitions: PartitionTable | None = field(default=None, metadata=NOT_KEPT)
    """Its static partitions, with whole UUIDs."""
    told: dict[int, ProcessFacts] = field(default_factory=dict)
    """What the events were told of its processes."""
    ours: set[ProcessKey] = field(default_factory=set)
    """Processes that were proved to be the ones that the daemon means; they stay so as long as they live."""
    clients: dict[ProcessKey, _Made] = field(default_factory=dict, metadata=NOT_KEPT)
    learnt: int = field(default=0, metadata=NOT_KEPT)
    """Grows whenever /proc or NVML tells something else of one of its processes."""
    named: _Kept[frozenset[int]] = field(default_factory=_Kept, metadata=NOT_KEPT)
    proofless: _Kept[bool] = field(default_factory=_Kept, metadata=NOT_KEPT)
    contexts: _Kept[Counter[str]] = field(default_factory=_Kept, metadata=NOT_KEPT)
    daemon: _Kept[Daemon] = field(default_factory=_Kept, metadata=NOT_KEPT)
    problems: _Kept[tuple[Problem, ...]] = field(default_factory=_Kept, metadata=NOT_KEPT)
    steady: _Kept[frozenset[int]] = field(default_factory=_Kept, metadata=NOT_KEPT)
    elsewhere: Mapping[tuple[int, int], ProcessKey] = field(default_factory=lambda: EMPTY)
    """The processes here of clients in other PID namespaces, by the inode of the namespace and the number there."""

    @property
    def known(self) -> tuple[object, ...]:
        """What everything that is said of its processes goes by."""
        return self.place, self.state.changes, self.learnt

    def pids(self) -> frozenset[int]:
        """The daemon, its servers and their clients, and who waits for a server or has lost it."""
        return self.named.get((self.place, self.state.changes, self.elsewhere), self._pids)

    def told_of(self) -> frozenset[int]:
        """Clients whose end the logs tell: of a server in order, of a daemon that answers."""
        state = self.state
        told = self.how.watch == "logs" and state.blocked_by is None and state.quitting_since is None
        if not told or self.probe is None or self.probe.outcome is not Outcome.OK:
            return frozenset()
        return self.steady.get((self.place, state.changes), self._told_of)

    def _told_of(self) -> frozenset[int]:
        servers = (s for s in self.state.servers.values() if s.status == "ACTIVE" and not s.ending)
        return frozenset(pid for server in servers for pid, client in server.clients.items() if not client.ended)

    def notice_where(self, now: float | None) -> None:
        """Whether its name leads elsewhere than when it last led anywhere: a link also where there is nothing, as
        whoever leads it away may let it lead nowhere for one look."""
        place, before = self.place, self.led_last
        if place is None or (where := _where(place)) is None:
            return
        self.led_last = place
        if before is None or (then := _where(before)) in {None, where}:
            return
        if place.speaker.folder is not None and place.speaker.folder == before.speaker.folder:
            return
        self.led_at_first = self.led_at_first or then
        self.led = None if where == self.led_at_first else _led(before, place, now)

    def _pids(self) -> frozenset[int]:
        state, daemon = self.state, self.place.daemon if self.place is not None else None
        clients = (pid for server in state.servers.values() for pid in server.clients)
        own = () if daemon is None else (daemon.pid,)
        joined = (key.pid for key in self.elsewhere.values())
        return frozenset((*own, *state.servers, *clients, *state.pending, *state.lost, *joined)) - {0}


def _where(place: Place) -> Path | None:
    """Where its name leads; None where nothing has that name."""
    return place.real or (None if place.speaker.folder is None else place.pipe_dir)


def _led(before: Place, place: Place, now: float | None) -> str:
    since = "" if now is None else f" since {moment_text(now)}"
    there, then = (path_text(each.real or each.pipe_dir) for each in (place, before))
    return f"{path_text(place.pipe_dir)} leads to {there}{since}, and led to {then} before"


@dataclass
class Kept:
    """All that a NodeState goes by, for another one that goes on from here."""

    host: str = ""
    source: Source = "real"
    euid: int = 0
    """Of whom it was that looked."""
    watched: dict[Path, Watched] = field(default_factory=dict)
    events: EventLog = field(default_factory=EventLog)
    sample: NvmlSample | None = None
    facts: dict[int, ProcessFacts] = field(default_factory=dict)
    cpu: dict[ProcessKey, tuple[float, float, float | None]] = field(default_factory=dict)
    looked: bool = False
    activity: Mapping[ProcessKey, Activity] | None = None
    idle_after: float | None = None


P = ParamSpec("P")
R = TypeVar("R")
READINGS: Final[dict[str, Callable[..., object]]] = {}
"""The ways into the fold, by name: whoever calls the same ones with the same values comes to the same snapshots."""


class Listener(Protocol):
    """Is told of each reading before it is folded."""

    def __call__(self, node: NodeState, name: str, values: tuple[object, ...], /) -> None: ...

    def anew(self) -> None:
        """Something was folded that it is not told: what comes goes by the state that the next reading finds."""


def _reading(
    method: Callable[Concatenate[NodeState, P], R],
) -> Callable[Concatenate[NodeState, P], R]:
    READINGS[method.__name__] = method

    @wraps(method)
    def told(self: NodeState, /, *values: P.args, **named: P.kwargs) -> R:
        if self.listener is not None:
            if named:
                raise TypeError("a reading has no names for its values")
            self.listener(self, method.__name__, values)
        return method(self, *values, **named)

    return cast("Callable[Concatenate[NodeState, P], R]", told)


class NodeState:
    """Give it readings in the order in which they were taken; :meth:`snapshot` answers what they come to.

    Unchanged parts of successive snapshots are the same objects. Everything that changes it is one of ``READINGS``.
    """

    def __init__(self, host: str = "", source: Source = "real", euid: int | None = None) -> None:
        """``euid``: whose word is believed beside root's; None: this process' user."""
        self.listener: Listener | None = None
        self._euid = os.geteuid() if euid is None else euid
        self.watched: dict[Path, Watched] = {}
        self._host = host
        self._source: Source = source
        self._events = EventLog()
        self._sample: NvmlSample | None = None
        self._facts: dict[int, ProcessFacts] = {}
        self._cpu: dict[ProcessKey, tuple[float, float, float | None]] = {}
        self._last: Snapshot | None = None
        self._looked = False
        self._listings = 0
        """Grows whenever NVML lists other processes, or other memory of theirs."""
        self._outside: _Kept[frozenset[int]] = _Kept()
        self._named: _Kept[frozenset[int]] = _Kept()
        self._unexplained: _Kept[frozenset[int]] = _Kept()
        self._kinds: tuple[object, ...] = ()
        self._shares: dict[tuple[object, ...], SmShare | None] = {}
        self._listed: frozenset[int] = frozenset()
        self._computing: frozenset[int] = frozenset()
        self._activity: Mapping[ProcessKey, Activity] | None = None
        self._idle_after: float | None = None
        self._teller: Speaker | None = None

    def believe_only(self, teller: Speaker) -> None:
        """All that is known and to be told is what one other user has written down, and so that user's word alone,
        whoever it is said to be of."""
        self._teller, self._euid = teller, os.geteuid()
        for watched in self.watched.values():
            if watched.place is not None:
                watched.place = watched.place._replace(speaker=teller)
        self._events.believe_only(self.watched, teller.by)

    def is_anothers(self, pipe_dir: Path) -> bool:
        """Whether the place is another user's: neither root's nor that of whoever looks."""
        place = self.watch(pipe_dir).place
        return place is not None and whose_word(place, self._euid) is not None

    @contextmanager
    def untold(self) -> Iterator[None]:
        """For readings of what was before: thousands of them, of which the state that they come to says enough."""
        listener, self.listener = self.listener, None
        try:
            yield
        finally:
            self.listener = listener
            if listener is not None:
                listener.anew()

    def kept(self) -> Kept:
        """What it goes by; its parts are this state's own."""
        return Kept(
            self._host,
            self._source,
            self._euid,
            self.watched,
            self._events,
            self._sample,
            self._facts,
            self._cpu,
            self._looked,
            self._activity,
            self._idle_after,
        )

    @classmethod
    def resumed(cls, kept: Kept) -> NodeState:
        """One that goes on from there; ``kept`` is its own from now on."""
        node = cls(kept.host, kept.source, kept.euid)
        node.watched, node._events, node._facts, node._cpu = kept.watched, kept.events, kept.facts, kept.cpu
        node._looked, node._activity, node._idle_after = kept.looked, kept.activity, kept.idle_after
        if kept.sample is not None:
            node._take_sample(kept.sample)
        return node

    def watch(self, pipe_dir: Path) -> Watched:
        """The entry of a pipe directory, made when it is first asked for."""
        found = self.watched.get(pipe_dir)
        if found is None:
            found = self.watched[pipe_dir] = Watched(DaemonState(pipe_dir))
        return found

    @_reading
    def set_places(self, places: Sequence[Place], now: float | None = None) -> list[Path]:
        """Takes a discovery over. Answers the directories whose daemon came, went or is another one."""
        self._looked = True
        changed: list[Path] = []
        if self._teller is not None:
            places = [place._replace(speaker=self._teller) for place in places]
        for place in places:
            watched = self.watch(place.pipe_dir)
            before, watched.place = watched.place, place
            if watched.state.multiuser != place.multiuser:
                watched.state.multiuser = place.multiuser
                watched.state.changes += 1
            heard = place.state == "running" or self._teller is not None
            self._events.hear(place.pipe_dir, whose_word(place, self._euid) if heard else None)
            old = (before.state, before.daemon) if before else None
            elsewhere = before is not None and place.speaker.is_elsewhere(before.speaker)
            watched.notice_where(now)
            if old == (place.state, place.daemon) and not elsewhere:
                continue
            changed.append(place.pipe_dir)
            watched.probe = watched.answered_at = None
            if before is not None and before.daemon is not None and watched.how.watch == "logs" and not elsewhere:
                self._tell_of_end(place.pipe_dir, before.daemon.pid, now)
            if place.state != "running" or (
                before is not None and place.daemon and watched.state.daemon_pid != place.daemon.pid
            ):
                watched.state.reset(now)
        for pipe_dir in self.watched.keys() - {place.pipe_dir for place in places}:
            del self.watched[pipe_dir]
            changed.append(pipe_dir)
        order = {place.pipe_dir: index for index, place in enumerate(places)}
        self.watched = dict(sorted(self.watched.items(), key=lambda item: order[item[0]]))
        return changed

    @_reading
    def add_event(self, pipe_dir: Path, event: Event, origin: Origin, now: float) -> None:
        """An event from a daemon's log; ``now`` is the moment at which the line was read."""
        watched = self.watch(pipe_dir)
        state, blocker = watched.state, watched.state.blocked_by
        self._tell(pipe_dir, state.about(event), origin, now)
        for derived in state.apply(event, now):
            self._tell(pipe_dir, state.about(derived), "derived", now)
        _forget_silence(watched, blocker)

    @_reading
    def add_xids(self, xids: Iterable[Xid]) -> None:
        """What the driver says of faults; of no daemon in particular."""
        for xid in xids:
            self._events.add(xid.event(), "driver", None)

    @_reading
    def set_sample(self, sample: NvmlSample) -> None:
        """What NVML says."""
        self._take_sample(sample)

    def _take_sample(self, sample: NvmlSample) -> None:
        self._learn(self._relisted(sample))
        self._sample = sample
        self._listed = frozenset(pid for listing in sample.mps_clients.values() for pid in listing)
        self._computing = frozenset(pid for listing in sample.processes.values() for pid in listing)

    def _relisted(self, sample: NvmlSample) -> Collection[int] | None:
        """Of which processes this sample says something else than the one before; None: maybe of all."""
        before = self._sample
        pairs = (
            () if before is None else ((before.mps_clients, sample.mps_clients), (before.processes, sample.processes))
        )
        if before is not None and all(old == new for old, new in pairs):
            return ()
        self._listings += 1
        if before is None or any(old.keys() != new.keys() for old, new in pairs):
            return None
        return {pid for old, new in pairs for uuid in new for pid, _ in old[uuid].items() ^ new[uuid].items()}

    def _learn(self, pids: Collection[int] | None) -> None:
        """There is something new to be told of these processes; None: of all."""
        if pids is None or pids:
            for watched in self.watched.values():
                if pids is None or not watched.pids().isdisjoint(pids):
                    watched.learnt += 1

    @_reading
    def set_membership(self, members: Mapping[str, Mapping[int, int | None]]) -> bool:
        """NVML's list of MPS clients, taken between two full samples; whether it says anything new."""
        if self._sample is None or self._sample.mps_clients == members:
            return False
        # Who has left is in the older list of all processes yet, and does not compute past MPS for that.
        left = {uuid: pids.keys() - members.get(uuid, pids).keys() for uuid, pids in self._sample.mps_clients.items()}
        processes = {
            uuid: {pid: size for pid, size in listing.items() if pid not in left.get(uuid, ())}
            for uuid, listing in self._sample.processes.items()
        }
        self._take_sample(replace(self._sample, mps_clients=members, processes=processes))
        return True

    def unexplained(self, members: Mapping[str, Mapping[int, int | None]]) -> frozenset[int]:
        """Clients that NVML lists and no daemon is known to have, and clients with a context on a device whose list
        does not have them. A device whose list is not known is not in ``members``."""
        changes = tuple((watched, watched.state.changes) for watched in self.watched.values())
        return self._unexplained.get((members, changes), lambda: self._find_unexplained(members))

    def _find_unexplained(self, members: Mapping[str, Mapping[int, int | None]]) -> frozenset[int]:
        listed = {pid for listing in members.values() for pid in listing}
        for watched in self.watched.values():
            for server in watched.state.servers.values():
                for pid, client in server.clients.items():
                    devices = {uuid for uuid in client.contexts.values() if uuid in members}
                    if pid in listed:
                        listed.remove(pid)
                    elif devices and not client.ended:
                        listed.add(pid)
        return frozenset(listed)

    def concerned(
        self, pipe_dir: Path, unexplained: frozenset[int], members: Mapping[str, Mapping[int, int | None]]
    ) -> tuple[bool, bool]:
        """What of these clients is to be asked there: whether one of the daemon's own is gone, and whether it may have
        one of the others. A client is listed under devices of its daemon: who is under others alone is another's, and
        where all that are known here are listed under every device (fact 34), so is who is under some of them."""
        state = self.watched[pipe_dir].state
        own = {pid for server in state.servers.values() for pid in server.clients}
        strangers, devices = unexplained - own, set(state.ordinals.values())
        if devices and devices <= members.keys():  # else it has a part of one, or one whose list is not known
            lists = [members[uuid].keys() for uuid in devices]
            anywhere, everywhere = set().union(*lists), set(lists[0]).intersection(*lists)
            known = own & anywhere
            strangers &= everywhere if known and known <= everywhere else anywhere
        return not own.isdisjoint(unexplained), bool(strangers)

    @_reading
    def set_facts(self, asked: Collection[int], facts: Mapping[int, ProcessFacts], time: float) -> bool:
        """/proc's word on the processes ``asked`` for. One that was there and is gone has left MPS as well.

        Answers whether a daemon was there and is gone.
        """
        daemons, ended = self._daemon_pids(), False
        news: set[int] = set()
        for pid in asked:
            new, old = facts.get(pid), self._facts.get(pid)
            if old is not None and (new is None or new.key != old.key):
                self._events.left(pid, time)
                self._gone(pid, old, new, time)
                ended = ended or pid in daemons
                news.add(pid)
            if new is None:
                self._facts.pop(pid, None)
                continue
            if self._count_cpu(new, time):
                news.add(pid)
            if old is None or not new.alike(old):
                self._facts[pid] = new
                news.add(pid)
        for watched in self.watched.values():
            if watched.place is not None and watched.place.pids_are_ours:
                for pid in ended_unseen(watched.state, asked, facts, not daemons.isdisjoint(facts)):
                    watched.state.process_gone(pid, time)
        wanted = self.pids()
        for pid in self._facts.keys() - wanted:
            self._cpu.pop(self._facts.pop(pid).key, None)
            self._events.left(pid, time)
            news.add(pid)
        if not news:
            return ended
        self._learn(news)
        for path, watched in self.watched.items():
            if watched.told.keys() & news or not news.isdisjoint(watched.pids()):
                self._tell_who(path, watched, self._facts_of(watched), time)
                known = ((key, self._facts.get(key.pid)) for key in watched.ours)
                watched.ours = {key for key, facts in known if facts is not None and facts.key == key}
        return ended

    def unproved(self) -> bool:
        """Whether there is a client whose process may be here, and nothing has told so far that it is."""
        return any(
            watched.proofless.get(watched.known, lambda watched=watched: self._is_unproved(watched))  # type: ignore[misc]
            for watched in self.watched.values()
        )

    def _is_unproved(self, watched: Watched) -> bool:
        return (
            watched.place is not None
            and bool(watched.place.pids_are_ours)
            and any(
                pid in self._facts and record.namespace is None and self._joined(watched, pid) is None
                for server in watched.state.servers.values()
                for pid, record in server.clients.items()
            )
        )

    def _joined(self, watched: Watched, pid: int, *, client: bool = True) -> ProcessFacts | None:
        """/proc's word on the process that the daemon means by this number; None where that is not proved. A client
        needs proof of its own; of what else the daemon names, it is enough that it counts PIDs as we do."""
        facts = self._facts.get(pid)
        if facts is None or facts.vouched:
            return facts
        ours = watched.place.pids_are_ours if watched.place is not None else None
        record = watched.state.client(pid)
        claimed = record.namespace if record is not None else None
        another = claimed is not None and facts.pid_namespace not in {None, claimed}
        if ours is False or another or (client and self._came_later(watched, pid, facts)):
            watched.ours.discard(facts.key)
            return None
        if facts.key in watched.ours or (ours and not client):
            return facts
        if not same_namespace(claimed, facts.pid_namespace, pid in (self._listed if client else self._computing)):
            return None
        watched.ours.add(facts.key)
        return facts

    def _came_later(self, watched: Watched, pid: int, facts: ProcessFacts) -> bool:
        """Whether the process began after the client of this number had connected: that one has ended, and whatever it
        has started keeps its connection. By the logs, where the clock has not been set since: their server began at the
        same time by both."""
        for server in watched.state.servers.values():
            client, known = server.clients.get(pid), self._facts.get(server.pid)
            if client is None or known is None or None in {known.start_time, server.started, client.connected}:
                continue
            clock = abs((known.start_time or 0.0) - (server.started or 0.0))
            return clock <= _SAME_CLOCK and facts.start_time is not None and not client.came_after(facts.start_time)
        return False

    def elsewhere(self) -> frozenset[tuple[int, int]]:
        """Clients that are in other PID namespaces: the inode of each one's, and the daemon's number for it."""
        return frozenset(claim for watched in self.watched.values() for claim in self._elsewhere(watched))

    def _elsewhere(self, watched: Watched) -> Iterator[tuple[int, int]]:
        for server in watched.state.servers.values():
            for pid, record in server.clients.items():
                if record.namespace is not None and pid > 0 and self._joined(watched, pid) is None:
                    yield record.namespace, pid

    @_reading
    def set_elsewhere(self, found: Mapping[tuple[int, int], ProcessKey]) -> frozenset[int]:
        """Which processes here they are, by the kernel's word; answers the PIDs here."""
        pids: set[int] = set()
        for watched in self.watched.values():
            mine = {claim: found[claim] for claim in self._elsewhere(watched) if claim in found}
            pids.update(key.pid for key in mine.values())
            if mine != watched.elsewhere:
                watched.elsewhere = mine or EMPTY
                watched.learnt += 1
        return frozenset(pids)

    def _facts_of(self, watched: Watched) -> dict[int, ProcessFacts]:
        """What /proc tells of the processes that the daemon names, of those that are proved to be the ones."""
        state, found = watched.state, dict[int, ProcessFacts]()
        for server in state.servers.values():
            for pid in (server.pid, *server.clients):
                if (facts := self._joined(watched, pid, client=pid != server.pid)) is not None:
                    found[pid] = facts
        for pid in (*state.pending, *state.lost):
            if (facts := self._joined(watched, pid, client=False)) is not None:
                found[pid] = facts
        return found

    def _tell_who(self, path: Path, watched: Watched, known: dict[int, ProcessFacts], time: float) -> None:
        before = watched.told
        news = [
            facts
            for pid, facts in known.items()
            if (old := before.get(pid)) is None or (old is not facts and not facts.alike(old))
        ]
        if news:
            self._events.know(news, time, path)
        watched.told = known

    def pids(self) -> frozenset[int]:
        """Processes whose facts matter now. 0 is the number of a process that has none here."""
        of = (*(watched.pids() for watched in self.watched.values()), self._outside_pids())
        return self._named.get(of, lambda: frozenset[int]().union(*of) - {0})

    def _outside_pids(self) -> frozenset[int]:
        of = self._listings, tuple(watched.known[:2] for watched in self.watched.values())
        return self._outside.get(of, lambda: frozenset(outside_pids(self._sample, self._believed_states())))

    def resting(self, shown: Path) -> frozenset[int]:
        """Clients of other daemons than this one, of whom the logs tell whatever matters but their share of a CPU."""
        others = (watched.told_of() for path, watched in self.watched.items() if path != shown)
        here = self.watched[shown].pids() if shown in self.watched else frozenset[int]()
        return frozenset[int]().union(*others) - here

    def serving_pids(self) -> set[int]:
        """The daemons and their servers."""
        return self._daemon_pids().union(*(state.servers for state in self._states()))

    def _daemon_pids(self) -> set[int]:
        places = (watched.place for watched in self.watched.values())
        return {place.daemon.pid for place in places if place is not None and place.daemon is not None}

    def countable(self) -> frozenset[ProcessKey]:
        """Who may launch kernels and is proved to be a process of this PID namespace: the clients of all daemons, and
        who computes past them."""
        shown = self._last
        if shown is None:
            return frozenset()
        clients = (client.key for daemon in shown.daemons for client in daemon.clients() if client.local)
        return frozenset((*clients, *(process.key for process in shown.outside)))

    @_reading
    def set_activity(self, activity: Mapping[ProcessKey, Activity], idle_after: float | None = None) -> None:
        """How often each of them launches. ``idle_after``: seconds without a launch that are a problem."""
        before = self._activity or {}
        self._learn({key.pid for key in {*before, *activity} if before.get(key) != activity.get(key)})
        self._activity, self._idle_after = activity, idle_after

    @_reading
    def fold_membership(self, pipe_dir: Path, reading: Membership, now: float) -> None:
        state = self.watch(pipe_dir).state
        for event in fold_membership(state, reading, now):
            self._tell(pipe_dir, event, "derived", now)
        self._events.join(pipe_dir, state)

    @_reading
    def fold_v3(self, pipe_dir: Path, node: V3Node | None, detail: str | None, started: float, now: float) -> None:
        """What a daemon of protocol 3 has told, or why that is not understood."""
        for event in fold_v3(self.watch(pipe_dir).state, node, detail, started, now):
            self._tell(pipe_dir, event, "derived", now)

    @_reading
    def fold_limits(self, pipe_dir: Path, reading: LimitReading) -> None:
        watched = self.watch(pipe_dir)
        fold_limits(watched.state, reading, watched.how.watch == "logs")

    @_reading
    def fold_devices(self, pipe_dir: Path, query: DeviceQuery) -> None:
        """Which device the daemon calls by which ordinal."""
        state = self.watch(pipe_dir).state
        fold_devices(state, query)
        self._events.join(pipe_dir, state)

    @_reading
    def fold_partitions(self, pipe_dir: Path, found: PartitionTable | None, detail: str | None) -> None:
        """Its static partitions, or why they could not be read."""
        fold_partitions(self.watch(pipe_dir).state, found, detail)

    @_reading
    def take_devices(self, pipe_dir: Path, ordinals: Mapping[str, str]) -> None:
        """What is known of its ordinals without asking it."""
        state = self.watch(pipe_dir).state
        state.ordinals = dict(ordinals)
        state.changes += 1
        self._events.join(pipe_dir, state)

    @_reading
    def read_from(self, pipe_dir: Path, time: float, *, memory_unset: bool = False) -> None:
        """What is before that time in control.log was not read; ``memory_unset``: no memory limit was set there."""
        state = self.watch(pipe_dir).state
        state.control_from = time
        state.defaults.memory_known = memory_unset or state.defaults.memory_known

    @_reading
    def forget(self, pipe_dir: Path) -> None:
        """No daemon runs there: nothing of what its logs told holds."""
        self.watch(pipe_dir).state.reset()

    @_reading
    def set_watching(self, pipe_dir: Path, how: Watching) -> None:
        """How one learns what the daemon does."""
        self.watch(pipe_dir).how = how

    @_reading
    def set_knows(self, pipe_dir: Path, knows: Knows) -> None:
        """Which commands the daemon knows."""
        self.watch(pipe_dir).knows = knows

    @_reading
    def set_past(self, pipe_dir: Path) -> None:
        """Nobody can be asked there: its logs of long ago are all that there is."""
        self.watch(pipe_dir).past = True

    def set_probe(self, pipe_dir: Path, answer: Answer[object], now: float, asked: float | None = None) -> None:
        """How the latest command to the daemon ended, and when it was sent."""
        self.take_probe(pipe_dir, Probe(now, answer.outcome, answer.message, answer.holder, asked))

    @_reading
    def take_probe(self, pipe_dir: Path, probe: Probe) -> None:
        """How the latest command to the daemon ended."""
        watched = self.watch(pipe_dir)
        watched.probe = probe
        if probe.outcome in {Outcome.OK, Outcome.REFUSED, Outcome.NOT_PERMITTED}:
            watched.answered_at = probe.time
            known = watched.state.blocked_known
            if watched.state.blocked_by is not None and (known is None or (probe.asked or probe.time) > known):
                watched.state.blocked_by = None  # a daemon that answers is not blocked, whatever its log says
                watched.state.changes += 1
        elif probe.outcome is Outcome.ABSENT:
            watched.state.reset(probe.time)

    def not_found(self) -> bool:
        """Whether a daemon that was seen to run was not found by the latest command to it: it may have ended since."""
        every = ((watched.place, watched.probe) for watched in self.watched.values())
        return any(
            place is not None and place.state == "running" and probe is not None and probe.outcome is Outcome.ABSENT
            for place, probe in every
        )

    @_reading
    def snapshot(self, time: float) -> Snapshot:
        sample = self._sample
        devices = self._devices()
        by_uuid = {device.uuid: device for device in devices}
        self._kinds = tuple((device.uuid, device.compute_capability, device.sm_count) for device in devices)
        daemons = tuple(self._daemon(path, watched, by_uuid, time) for path, watched in self.watched.items())
        nvml = sample.error if sample else None
        outside = outside_clients(sample, self._outside_pids(), daemons, self._facts)
        last = self._last
        shown = Snapshot(
            time,
            self._source,
            self._host,
            sample.driver_version if sample else None,
            nvml,
            _kept(last.daemons if last else (), daemons),
            _kept(last.devices if last else (), devices),
            _kept(last.problems if last else (), self._find_problems(daemons, devices, nvml, outside, time)),
            self._events.events,
            outside,
            self._looked,
            self._activity is not None,
        )
        self._last = shown
        return shown

    def _find_problems(
        self,
        daemons: Sequence[Daemon],
        devices: Sequence[Device],
        nvml: str | None,
        outside: Sequence[OutsideClient],
        time: float,
    ) -> tuple[Problem, ...]:
        idle = () if self._idle_after is None else idle_clients(daemons, self._idle_after, time)
        more = (*idle, *led_elsewhere(daemons, {path: watched.led for path, watched in self.watched.items()}))
        found = find_problems(daemons, devices, nvml, outside, self._problems, more, self._euid)
        return found if self._teller is None else tuple(as_written(each, self._teller) for each in found)

    def _problems(self, daemon: Daemon) -> tuple[Problem, ...]:
        return self.watched[daemon.pipe_dir].problems.get((daemon,), lambda: tuple(problems_of(daemon, self._euid)))

    def ordinals_unasked(self, pipe_dir: Path) -> dict[str, str]:
        """The daemon's ordinals, as far as they are known without asking it: the node's only device, where it is not
        cut into MIG instances, is its first one; and it counts those that its CUDA_VISIBLE_DEVICES names by UUID."""
        devices = self._sample.devices if self._sample is not None else ()
        if len(devices) == 1 and not devices[0].mig:
            return {"0": devices[0].uuid}
        place = self.watch(pipe_dir).place
        return counted((place.visible if place is not None else None) or "", [device.uuid for device in devices])

    def _inherited(self, watched: Watched) -> dict[str, int] | None:
        devices = self._sample.devices if self._sample is not None else ()
        number = len(devices) if devices and not any(device.mig for device in devices) else None
        return inherited_memory(watched.place.limits if watched.place else EMPTY, watched.state.ordinals, number)

    def _states(self) -> list[DaemonState]:
        return [watched.state for watched in self.watched.values()]

    def _believed_states(self) -> list[DaemonState]:
        """Of the daemons whose PIDs may be ours. Another user's names whom he likes: that hides nobody."""
        return [watched.state for watched in self.watched.values() if self._is_believed(watched)]

    def _is_believed(self, watched: Watched) -> bool:
        place = watched.place
        return place is None or (place.pids_are_ours is not False and whose_word(place, self._euid) is None)

    def _tell(self, pipe_dir: Path, event: Event, origin: Origin, now: float | None) -> None:
        self._events.add(event if event.pipe_dir == pipe_dir else event._replace(pipe_dir=pipe_dir), origin, now)

    def _tell_of_end(self, pipe_dir: Path, pid: int, now: float | None) -> None:
        """An event for a daemon that ended without a word, which its log would have had by now (fact 3)."""
        if not self._events.told_of_end(pipe_dir, pid):
            detail = f"control daemon {pid} is gone, and its log does not say why: killed, or crashed"
            self._tell(pipe_dir, Event("daemon_exited", now, pid=pid, detail=detail), "derived", now)

    def _gone(self, pid: int, old: ProcessFacts, new: ProcessFacts | None, time: float) -> None:
        self._cpu.pop(old.key, None)
        for path, watched in self.watched.items():
            client = watched.state.client(pid)
            if self._joined(watched, pid, client=client is not None) is None:
                continue  # another process than the one that the daemon calls so
            if new is not None and client is not None and client.came_after(new.start_time):
                continue  # the PID's next owner has connected, and the logs have told so already
            blocker = watched.state.blocked_by
            for event in watched.state.process_gone(pid, time):
                self._tell(path, event, "derived", time)
            _forget_silence(watched, blocker)

    def _count_cpu(self, facts: ProcessFacts, time: float) -> bool:
        """Whether its share of a core is another one now."""
        if facts.cpu_seconds is None:
            return False
        before = self._cpu.get(facts.key)
        if before is None or time < before[0]:  # the clock was set back
            self._cpu[facts.key] = time, facts.cpu_seconds, None
            return before is not None
        if time - before[0] < _CPU_INTERVAL:
            return False
        used = max(0.0, round(100 * (facts.cpu_seconds - before[1]) / (time - before[0]), 1))
        if used and before[2] and abs(used - before[2]) < _CPU_TICK / (time - before[0]):
            used = before[2]
        self._cpu[facts.key] = time, facts.cpu_seconds, used
        return used != before[2]

    def _devices(self) -> tuple[Device, ...]:
        if self._sample is None:
            return ()
        devices = tuple(self._with_limit(device) for device in self._sample.devices)
        running = [w for w in self.watched.values() if w.place and w.place.state == "running"]
        # One has told of its clients once it has answered, or by a log that reaches back to its start. Another user's
        # that keeps silent hides nothing of the others'.
        silent = [w for w in running if w.answered_at is None and w.state.daemon_pid is None]
        if not running or any(w.place is None or whose_word(w.place, self._euid) is None for w in silent):
            return devices
        counts = [w.contexts.get((w.state.changes,), lambda w=w: contexts_by_device(w.state)) for w in running]  # type: ignore[misc]
        held = [[count[device.uuid] for count in counts if count[device.uuid]] for device in devices]
        return tuple(
            replace(device, contexts=sum(each), context_daemons=max(1, len(each) + len(silent)))
            for device, each in zip(devices, held, strict=True)
        )

    def _with_limit(self, device: Device) -> Device:
        """With the most contexts that it takes: as a daemon of root's or of this user's has said, when it refused a
        client; else as the table of drivers has it."""
        said = [
            w.state.context_limit
            for w in self.watched.values()
            if w.state.context_limit is not None
            and w.place is not None
            and w.place.uid is not None
            and whose_word(w.place, self._euid) is None
            and (not w.state.ordinals or device.uuid in w.state.ordinals.values())
        ]
        if said:
            return replace(device, context_limit=min(said), context_limit_source="said by the daemon")
        driver = self._sample.driver_version if self._sample is not None else None
        limit, source = contexts_of(driver, device.compute_capability)
        return replace(device, context_limit=limit, context_limit_source=source)

    def _daemon(self, pipe_dir: Path, watched: Watched, devices: Mapping[str, Device], time: float) -> Daemon:
        """The same object as before where nothing has changed that it is made of."""
        driver = self._sample.driver_version if self._sample is not None else None
        knows = watched.knows
        lacks = lacking(knows.unknown, knows.known, driver) if knows is not None else frozenset[str]()
        how = watched.probe, watched.answered_at, watched.how
        of = (*watched.known, *how, watched.past, driver, lacks, self._kinds)
        return watched.daemon.get(of, lambda: self._make_daemon(pipe_dir, watched, devices, time, lacks, driver))

    def _make_daemon(
        self,
        pipe_dir: Path,
        watched: Watched,
        devices: Mapping[str, Device],
        time: float,
        lacks: frozenset[str],
        driver: str | None,
    ) -> Daemon:
        place, state = watched.place, watched.state
        key = place.daemon if place else None
        facts = self._facts.get(key.pid) if key else None
        known = self._facts_of(watched)
        self._tell_who(pipe_dir, watched, known, time)
        ended = self._events.ended(pipe_dir) if place is None or place.state != "running" else None
        found = condition_of(
            place, watched.probe, state, known, watched.answered_at, self._euid, ended=ended, past=watched.past
        )
        defaults = state.defaults
        uuids = frozenset(devices) | frozenset(state.ordinals.values())
        watched.partitions = whole_uuids(state.partitions, uuids) if state.partitions is not None else None
        seen: dict[ProcessKey, _Made] = {}
        daemon = Daemon(
            pipe_dir=pipe_dir,
            log_dir=place.log_dir if place else None,
            key=key,
            uid=place.uid if place else None,
            user=facts.user if facts else None,
            where=facts.where if facts else None,
            pid_there=place.pid_there if place else None,
            start_time=place.start_time if place else None,
            protocol=place.protocol if place else None,
            version=(place.version if place else None) or watched.how.version,
            multiuser=place.multiuser if place else None,
            static_partitioning=place.static_partitioning if place else None,
            v3=state.v3,
            not_understood=state.not_understood,
            partitions=watched.partitions,
            partitions_detail=state.partitions_detail,
            condition=found,
            default_active_thread_percentage=defaults.percentage,
            default_client_priority=defaults.priority,
            default_pinned_mem_limits=by_ordinal(defaults.memory, state.ordinals) or EMPTY,
            ordinals=state.ordinals or EMPTY,
            servers=tuple(self._server(server, watched, devices, known, seen) for server in state.servers.values()),
            pending=pending_clients(state, known),
            start_failures=start_failures(state),
            environment=place.limits if place else EMPTY,
            inherited_mem_limits=self._inherited(watched) or EMPTY,
            lost=lost_clients(state, known, self._facts),
            watch=watched.how.watch,
            watch_detail=watched.how.detail,
            watch_remedy=watched.how.remedy,
            simulated=self._source == "simulated",
            speaker=place.speaker if place else Speaker(),
            lacks=lacks,
            driver=driver,
            by_logs=watched.past,
        )
        watched.clients = seen
        return daemon if watched.past else _as_claimed(daemon, self._euid)

    def _server(
        self,
        server: ServerRecord,
        watched: Watched,
        devices: Mapping[str, Device],
        known: Mapping[int, ProcessFacts],
        seen: dict[ProcessKey, _Made],
    ) -> Server:
        facts, state = known.get(server.pid), watched.state
        driver = self._sample.driver_version if self._sample is not None else None
        doubt = in_doubt(self._inherited(watched), driver)
        limits = server.limits
        given = (limits.percentage, tuple(limits.memory.items()), limits.memory_known)
        static = watched.place is not None and watched.place.static_partitioning
        of = (
            server.pid,
            *given,
            static,
            watched.partitions,
            state.v3,
            tuple(state.ordinals.items()),
            doubt,
            self._kinds,
        )
        clients = [
            self._client(client, server, watched, devices, known.get(client.pid), doubt, of)
            for client in server.clients.values()
        ]
        seen.update((made.client.key, made) for made in clients)
        percentage, memory = limits.percentage, by_ordinal(limits.memory, state.ordinals)
        if state.v3 is not None:  # what its log may tell of limits is not known
            named = state.v3.server_of(server.pid)
            space = state.v3.namespace(named.name if named is not None else None, DEFAULT)
            percentage, memory = space.active_thread_percentage if space is not None else None, {}
        if server.status == STARTING:  # nobody can ask it, and the default may become another one yet (fact 45)
            memory = {}
        return Server(
            key=facts.key if facts else ProcessKey(server.pid),
            uid=facts.uid if facts and facts.uid is not None else server.uid,
            user=facts.user if facts else None,
            status=server.status,
            start_time=facts.start_time if facts and facts.start_time is not None else server.started,
            active_thread_percentage=percentage,
            pinned_mem_limits=memory or EMPTY,
            clients=tuple(sorted((made.client for made in clients), key=lambda client: client.key.pid)),
            ending=server.ending,
            ending_since=server.ending_since,
            fault=server_fault(server, known),
            v3=state.v3.server_of(server.pid) if state.v3 is not None else None,
            clients_elsewhere=server.elsewhere,
            clients_known=server.clients_known,
        )

    def _client(
        self,
        client: ClientRecord,
        server: ServerRecord,
        watched: Watched,
        devices: Mapping[str, Device],
        facts: ProcessFacts | None,
        doubt: bool,
        of_server: tuple[object, ...],
    ) -> _Made:
        """``of_server``: what all its clients are made of."""
        key, place = facts.key if facts else ProcessKey(client.pid), watched.place
        # NVML alone may know of it, where /proc shows nobody of that number.
        ours = facts is not None or (
            client.pid not in self._facts and (place is None or place.pids_are_ours is not False)
        )
        there = None if facts is not None or client.namespace is None else self._there(client, watched)
        memory = self._memory(client.pid) if ours else {} if there is None else self._memory(there.key.pid)
        listed = self._is_listed(client.pid) if ours else None
        counted = self._cpu.get(key)
        cpu = counted[2] if counted is not None else None
        if facts is not None and client.pid in watched.state.ended_unseen:
            watched.state.settle(client, facts.start_time)
        limits = client.limits
        told = (client.id, client.namespace, client.command, client.ended, client.asked, tuple(client.contexts.items()))
        given = (limits.percentage, limits.priority, tuple(limits.memory.items()), limits.memory_known)
        said = None if facts is not None and facts.command else self._said(client, watched, there)
        of = (facts, there, memory, listed, said, *told, *given, of_server)
        made = watched.clients.get(key)
        if made is None or made.of != of:
            built = self._build(client, key, server, watched, devices, facts, memory, listed, cpu, doubt, said, there)
            if place is not None and place.static_partitioning:
                built = partitioned(built, facts.environment if facts else None, watched.partitions)
            elif watched.state.v3 is not None:
                built = in_namespace(built, facts.environment if facts else None, watched.state.v3)
                share = self._share(
                    built.active_thread_percentage, first_device(built.contexts, built.gpu_memory, devices)
                )
                built = replace(
                    built,
                    sm_count=share.count if share else None,
                    sm_count_estimated=share.estimated if share else False,
                )
            made = _Made(of, made.client if made is not None and made.client == built else built)
        activity = self._activity.get(key) if self._activity is not None and ours else None
        if made.client.cpu_percent != cpu or made.client.activity != activity:
            return _Made(made.of, replace(made.client, cpu_percent=cpu, activity=activity))
        return made

    def _is_listed(self, pid: int) -> bool | None:
        """Whether NVML has it among the clients of MPS; None where it does not tell of every device."""
        if pid in self._listed:
            return True
        sample = self._sample
        complete = sample is not None and all(device.uuid in sample.mps_clients for device in sample.devices)
        return False if complete and sample is not None and sample.devices else None

    def _build(
        self,
        client: ClientRecord,
        key: ProcessKey,
        server: ServerRecord,
        watched: Watched,
        devices: Mapping[str, Device],
        facts: ProcessFacts | None,
        memory: dict[str, int],
        listed: bool | None,
        cpu: float | None,
        doubt: bool,
        said: str | None,
        there: ProcessFacts | None,
    ) -> Client:
        contexts = tuple(Context(id_, uuid) for id_, uuid in sorted(client.contexts.items()))
        unknown = any(context.device_uuid is None for context in contexts)
        limits = effective(
            client.limits,
            server.limits,
            watched.state.ordinals,
            facts.environment if facts else None,
            doubt=doubt,
            on=() if unknown else {context.device_uuid or "" for context in contexts} | memory.keys(),
        )
        share = self._share(limits.percentage, first_device(contexts, memory, devices))
        return Client(
            key=key,
            server_pid=server.pid,
            id=client.id,
            start_time=facts.start_time if facts else None,
            uid=facts.uid if facts else watched.state.uids.get(client.pid) if watched.past else None,
            user=facts.user if facts else None,
            command=facts.command if facts and facts.command else said,
            pid_namespace=facts.pid_namespace if facts and facts.pid_namespace is not None else client.namespace,
            local=facts is not None,
            listed=listed,
            container=facts.container if facts else there.container if there else None,
            where=facts.where if facts else there.where if there else None,
            pid_here=there.key.pid if there else None,
            state="TERMINATED" if client.ended else "ACTIVE" if contexts or memory else "INACTIVE",
            contexts=contexts,
            gpu_memory=memory or EMPTY,
            cpu_percent=cpu,
            active_thread_percentage=limits.percentage,
            percentage_at_most=limits.percentage_at_most,
            sm_count=share.count if share else None,
            sm_count_estimated=share.estimated if share else False,
            pinned_mem_limits=limits.memory or EMPTY,
            memory_limit_known=limits.memory_known,
            client_priority=limits.priority,
            limit_source=limits.source or EMPTY,
            old_limits=limits.old,
            terminate_requested=client.asked or client.ended,
        )

    def _there(self, client: ClientRecord, watched: Watched) -> ProcessFacts | None:
        """/proc's word on the process of a client in another PID namespace, whom the kernel joins with it."""
        key = watched.elsewhere.get((client.namespace or 0, client.pid))
        facts = self._facts.get(key.pid) if key is not None else None
        return facts if facts is not None and facts.key == key else None

    def _said(self, client: ClientRecord, watched: Watched, there: ProcessFacts | None) -> str | None:
        """The command that the daemon tells, behind the reason why nothing here is taken for the process, with the PID
        that it has here where the kernel joins the two."""
        place, here = watched.place, self._facts.get(client.pid)
        elsewhere = place is not None and place.pids_are_ours is False
        if here is not None and not elsewhere and self._came_later(watched, client.pid, here):
            return f"({REUSED}) {client.command or ''}".rstrip()
        # Of one whose namespace nobody here may see, as with hidepid, it is not known that it is another one.
        if elsewhere or (here is not None and None not in {here.pid_namespace, client.namespace}):
            here_too = f"{there.key.pid} here, " if there is not None else ""
            return f"({here_too}{ANOTHER_NAMESPACE}) {client.command or ''}".rstrip()
        return f"({NOT_PROVED}) {client.command or ''}".rstrip() if here is not None else client.command

    def _share(self, percentage: float | None, device: Device | None) -> SmShare | None:
        """``sm_share``, worked out once for each percentage and kind of device."""
        if percentage is None or device is None:
            return None
        key = percentage, device.compute_capability, device.sm_count
        if key not in self._shares:
            self._shares[key] = sm_share(percentage, device)
        return self._shares[key]

    def _memory(self, pid: int) -> dict[str, int]:
        sample = self._sample
        if sample is None:
            return {}
        # With several devices NVML lists each client under each device of its server, with 0 where it is not (fact 34).
        found = {uuid: size for uuid, listing in sample.mps_clients.items() if (size := listing.get(pid))}
        for uuid, listing in sample.processes.items():
            if (size := listing.get(pid)) is not None:
                found[uuid] = size
        return found


def _as_claimed(daemon: Daemon, euid: int) -> Daemon:
    """Whom a log accuses of blocking its daemon, who holds it, or whom a fault has hit is told as that daemon's claim,
    unless its word covers him: no remedy asks for the end of a process that is not proved to be the one, or is
    somebody else's. ``euid``: who looks; whose own daemon has hit clients in a container knows them better than we."""
    if daemon.speaker.uid != euid and any(
        server.fault is not None and server.fault.confirmed for server in daemon.servers
    ):
        daemon = replace(daemon, servers=tuple(_fault_as_claimed(server, daemon) for server in daemon.servers))
    if daemon.usurped(euid):
        daemon = replace(daemon, condition=cut_off(daemon.condition, cut_off_by(daemon)))
    found, accused = daemon.condition, list[Client | SessionHolder | None]()
    if daemon.blocked_by is not None:
        accused = [daemon.find_client(daemon.blocked_by)]
    elif found.cause == "silent":
        accused = [c for c in daemon.clients() if c.terminate_requested or c.state == "TERMINATED"]
    elif found.cause == "held" and found.holder is not None:
        accused = [found.holder]
    if all(map(daemon.covers, accused)):
        return daemon
    return replace(daemon, condition=as_claimed(found))


def _fault_as_claimed(server: Server, daemon: Daemon) -> Server:
    fault = server.fault
    if fault is None or not fault.confirmed:
        return server
    there = {client.key: client for client in server.clients}
    if all(daemon.vouches(there.get(key)) for key in fault.affected):
        return server
    doubt = f"what this daemon says about other users' processes is no proof: {daemon.speaker.why}"
    return replace(server, fault=replace(fault, confirmed=False, doubt=doubt))


def _forget_silence(watched: Watched, blocker: int | None) -> None:
    """Whoever blocked the daemon has ended: that it did not answer before tells nothing of now."""
    freed = blocker is not None and watched.state.blocked_by is None
    if freed and watched.probe is not None and watched.probe.outcome is Outcome.BLOCKED:
        watched.probe = None


def _kept(before: tuple[T, ...], now: tuple[T, ...]) -> tuple[T, ...]:
    """``now`` with the objects of ``before`` wherever they are equal; ``before`` itself where all are."""
    if before == now:
        return before
    by_place = dict(enumerate(before))
    return tuple(by_place[i] if i in by_place and by_place[i] == new else new for i, new in enumerate(now))


def first_device(
    contexts: Sequence[Context], memory: Mapping[str, int], devices: Mapping[str, Device]
) -> Device | None:
    """The device of the first context; failing that the lowest one with memory, or the only one there is."""
    for context in contexts:
        if context.device_uuid is not None and context.device_uuid in devices:
            return devices[context.device_uuid]
    held = sorted((devices[u] for u in memory if u in devices), key=lambda device: device.index or 0)
    if held:
        return held[0]
    return next(iter(devices.values())) if len(devices) == 1 else None
