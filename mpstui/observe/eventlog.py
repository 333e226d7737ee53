"""The node's latest events, each told once although both logs of a daemon tell some of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from mpstui.core.faults import MOMENT, xids_of
from mpstui.core.model import Event, Suspect
from mpstui.observe.sources import ProcessFacts

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
_HIDDEN: Final = frozenset(("session_opened", "session_closed", "client_admitted"))
_PEOPLE: Final = 1024
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


class EventLog:
    """Oldest first, at most ``limit``. Plain questions to the daemon, mpstui's own among them, are left out."""

    def __init__(self, limit: int = 500) -> None:
        self._told: deque[_Told] = deque(maxlen=limit)
        self._shown: tuple[Event, ...] | None = ()
        self._people: dict[tuple[Path | None, int], Identity] = {}
        self._users: dict[int, str] = {}
        self._tellers: dict[Path | None, int] = {}

    def hear(self, pipe_dir: Path, uid: int | None) -> None:
        """Whose word it is what is told of this daemon, who then tells of himself alone; None: of everybody."""
        if uid is None:
            self._tellers.pop(pipe_dir, None)
        else:
            self._tellers[pipe_dir] = uid

    def know(self, facts: ProcessFacts, now: float, pipe_dir: Path | None = None) -> None:
        """Who a process is, to the daemon of ``pipe_dir``: another one may mean another process by the same number.
        What was told of it before gets its name too, and everything keeps it when it has gone."""
        pid = facts.key.pid
        self._people.pop((pipe_dir, pid), None)
        self._people[pipe_dir, pid] = Identity(facts, facts.start_time if facts.start_time is not None else now)
        if len(self._people) > _PEOPLE:
            del self._people[next(iter(self._people))]
        new_user = facts.uid is not None and facts.user is not None and facts.uid not in self._users
        if facts.uid is not None and facts.user is not None:
            self._users[facts.uid] = facts.user
        for told in self._told:
            event = told.event
            if event.pipe_dir != pipe_dir and not new_user:
                continue
            if new_user or event.pid == pid or any(suspect.pid == pid for suspect in event.suspects):
                self._change(told, self.named(event, told.when))

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
        if any(suspect.command is None for suspect in event.suspects):
            found = tuple(s if s.command else self._who(event, s.pid, s.uid, when, s.user) for s in event.suspects)
            event = event._replace(suspects=found) if found != event.suspects else event
        teller = self._tellers.get(event.pipe_dir)
        return event if teller is None else told_by(teller, event)

    def _who(self, event: Event, pid: int, uid: int | None, when: float | None, user: str | None = None) -> Suspect:
        known = self._people.get((event.pipe_dir, pid))
        if event.pipe_dir is None:  # the driver's word, which is of no daemon in particular
            known = known or next((k for (_, number), k in self._people.items() if number == pid), None)
        if known is not None and known.fits(when, uid):
            facts = known.facts
            uid = facts.uid if uid is None else uid
            return Suspect(
                pid, uid, facts.user or user or (self._users.get(uid) if uid is not None else None), facts.command
            )
        return Suspect(pid, uid, user or (self._users.get(uid) if uid is not None else None))

    def add(self, event: Event, origin: Origin, when: float | None = None) -> None:
        """``when``: seconds since the epoch at which it became known, where that is not its own time."""
        if event.kind in _HIDDEN or (event.kind == "command" and not event.values.keys() & {"changes", "refused"}):
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
            self._told.popleft()
        self._told.insert(at - full, new)

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
        for told in self._told:
            if told.event.kind == "fatal_fault":
                self._change(told, with_xids(told.event, [e.values["xid"] for e in xids_of(told.event.time, near)]))

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
        found = [e for e in self.events if e.pipe_dir == pipe_dir and e.kind in {"daemon_started", "daemon_exited"}]
        own = [e for e in found if e.pid == pid]
        return any(e.kind == "daemon_exited" for e in own or found[-2:])

    def _confirms(self, event: Event, origin: Origin) -> bool:
        """Whether the other log has told it already; what was told once confirms one event only."""
        for told in reversed(self._told):
            if (event.time or 0.0) - (told.event.time or 0.0) > _WINDOW:
                return False
            if told.origin != origin and not told.confirmed and _same(told.event, event):
                told.confirmed = True
                return True
        return False


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
