"""The logs of a node: which there are, whose they are, and their events in order, with those of the driver."""

from __future__ import annotations

import heapq
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from mpstui.core.faults import MOMENT, xids_of
from mpstui.core.late import pattern
from mpstui.core.limits import counted
from mpstui.core.model import Event, Snapshot
from mpstui.core.text import path_text
from mpstui.history.attribution import KINDS, AuditTrail
from mpstui.history.origin import ALWAYS, Span
from mpstui.history.postmortem import state_at
from mpstui.history.reader import OTHERS_MOST, LogHistory, People
from mpstui.history.times import local_text
from mpstui.observe.discovery import discover
from mpstui.observe.sources import NodeSources, ProcessSource
from mpstui.observe.state import by_uuid, with_xids
from mpstui.operations.audit import default_path
from mpstui.system.trusted import Owners, UnreadableLogError, UnreadableNodeError, owners_of

_LOOK: Final = 0.2
"""Seconds between two looks at logs in which nothing happens."""
_OTHERS: Final = 32 << 20
"""Bytes of the logs of one kind that other users have written, of all together; at least a MiB of each is read."""
_MOST_NEAR: Final = 256
"""Faults that are compared with each other's Xids; those of a few seconds are far fewer."""
_TOUCHED: Final = KINDS | {"xid", "fatal_fault"}
"""Kinds to which other events, or the audit log, have something to add."""
_UUID: Final = pattern(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
Told = tuple[Sequence[Event], Path | None]
"""Events and the pipe directory of their daemon; None where it is the driver's word."""


class LogPlace(NamedTuple):
    """A log directory, with whom its daemon is known to be."""

    log_dir: Path
    pipe_dir: Path | None = None
    owners: Owners | None = None
    """Whose logs are believed; None: somebody asked to have this directory read, whosever it is."""
    people: People | None = None
    """Whom to ask for processes, where its PIDs are known to be those of here."""
    since: float | None = None
    """From when on the daemon runs, where one does."""
    visible: str | None = None
    """The CUDA_VISIBLE_DEVICES that it has."""

    @property
    def ordinals(self) -> dict[str, str]:
        """Of the daemon that runs, where it sees devices by their whole UUIDs: NVML, which would know the others, may
        answer nobody just after a fault."""
        uuids = (self.visible or "").split(",")
        known = self.since is not None and all(map(_UUID.fullmatch, uuids))
        return counted(self.visible or "", uuids) if known else {}


def alone(log_dirs: Sequence[Path]) -> list[LogPlace]:
    """Directories that are to be read by themselves, of whatever node."""
    return [LogPlace(log_dir) for log_dir in log_dirs]


def of_node(pipe_dirs: Sequence[Path], log_dirs: Sequence[Path], sources: NodeSources | None) -> list[LogPlace]:
    """Those of the node's daemons. ``sources``: who processes are is asked there."""
    places = [place for place in discover(pipe_dirs, log_dirs) if place.log_dir is not None]
    here: frozenset[int] = frozenset()
    if sources is not None:
        here = _namespaces(sources.processes, [place.daemon.pid for place in places if place.daemon is not None])
    people = sources.processes.facts if sources is not None else None
    return [
        LogPlace(
            place.log_dir,
            place.pipe_dir,
            place.log_owners,
            people
            if place.daemon is not None and place.daemon.pid in here and place.pids_are_ours is not False
            else None,
            place.start_time if place.daemon is not None else None,
            place.visible,
        )
        for place in places
        if place.log_dir is not None
    ]


def owners(pipe_dir: Path) -> Owners:
    """Whose logs are believed there, by who runs the daemon now."""
    return next((place.log_owners for place in discover((pipe_dir,), env={})), owners_of(None))


def _namespaces(processes: ProcessSource, daemons: Sequence[int]) -> frozenset[int]:
    """Those of the daemons whose PIDs are those of this PID namespace; in a log of any other one, a number is somebody
    else here (fact 14)."""
    facts = processes.facts([*daemons, os.getpid()])
    own = facts.get(os.getpid())
    mine = own.pid_namespace if own is not None else None
    return frozenset(pid for pid in daemons if mine is not None and pid in facts and facts[pid].pid_namespace == mine)


class Simulated(NamedTuple):
    """A log directory, and when a simulated node has written there."""

    log_dir: Path
    spans: tuple[Span, ...]

    @property
    def whole(self) -> bool:
        """Whether nothing else has."""
        return self.spans == (ALWAYS,)

    @property
    def text(self) -> str:
        """For a person: the directory with the times, where it is a part."""
        times = (
            ""
            if span == ALWAYS
            else f" before {local_text(span[1])}"
            if span[0] == ALWAYS[0]
            else f" since {local_text(span[0])}"
            if span[1] == ALWAYS[1]
            else f" between {local_text(span[0])} and {local_text(span[1])}"
            for span in self.spans
        )
        return f"{path_text(self.log_dir)}{','.join(times)}"


class NodeLogs:
    """The logs of these places, opened; to be closed. Raises UnreadableNodeError where none can be read."""

    def __init__(self, places: Sequence[LogPlace], sources: NodeSources | None = None) -> None:
        """``sources``: what the driver says of faults is told too."""
        self._histories: list[LogHistory] = []
        self._sources = sources
        self._given: dict[LogHistory, tuple[float, dict[str, str]]] = {}
        """From when on the daemon that runs does, and the UUIDs of its devices, where they are known."""
        errors: list[UnreadableLogError] = []
        most = max(1 << 20, min(OTHERS_MOST, _OTHERS // max(1, len(places))))
        for place in places:
            try:
                made_up = sources is not None and sources.simulated
                self._histories.append(history := LogHistory(*place[:4], made_up, most))
                if place.since is not None and place.ordinals:
                    self._given[history] = place.since, place.ordinals
            except UnreadableLogError as error:
                errors.append(error)
        if not self._histories:
            raise UnreadableNodeError(errors)
        self.trouble: tuple[str, ...] = (
            *map(str, errors),
            *(text for each in self._histories for text in each.trouble),
        )
        """Why some of them could not be read."""
        self.claims: tuple[str, ...] = tuple(
            f"{path_text(each.log_dir)}: this is {each.speaker.why}, and mpstui has not confirmed it"
            for each in self._histories
            if each.speaker.by is not None
        )
        """Of those that another user has written, whose word they are."""
        self.left_out: tuple[str, ...] = tuple(text for each in self._histories for text in each.left_out)
        """What is missing where everything is asked for."""

    def __len__(self) -> int:
        return len(self._histories)

    def simulated(self, since: float | None = None) -> list[Simulated]:
        """What of them a simulated node has written from ``since`` on."""
        found = (Simulated(each.log_dir, each.origin.since(since)) for each in self._histories)
        return [each for each in found if each.spans]

    def close(self) -> None:
        """Gives the files back."""
        for history in self._histories:
            history.close()

    def told(self, since: float | None = None, *, follow: bool = False) -> Iterator[Told | None]:
        """Events from ``since`` on, oldest first and some at a time, each once, with the author of a change and the
        Xids of a fault in its values. ``follow``: those to come too, and None whenever there is no more at present. May
        be used once."""
        driver = self._sources.xids() if self._sources is not None and self._sources.xids is not None else None
        trail = AuditTrail(default_path())
        try:
            simulated = self._sources is not None and self._sources.simulated
            xids = [xid.event() for xid in driver.past()] if driver is not None else []
            xids = [*map(as_simulated, xids)] if simulated else xids
            near = _Near(xids)
            past: Iterator[Told] = (((xid,), None) for xid in xids if since is None or (xid.time or 0.0) >= since)
            streams: list[Iterator[Told]] = [self._batches(history, since) for history in self._histories]
            if len(streams) > 1 or xids:
                single = ((([event], daemon) for events, daemon in stream for event in events) for stream in streams)
                merged: Iterator[Told] = heapq.merge(*single, past, key=lambda told: told[0][0].time or 0.0)
                merged = _seen_ahead(merged, near) if xids else merged
            else:
                merged = streams[0]
            for events, daemon in merged:
                yield [_completed(each, near, trail) if each[0] in _TOUCHED else each for each in events], daemon
            if not follow:
                return
            tails = [(history, history.follow()) for history in self._histories]
            while True:
                for history, tail in tails:
                    for event in tail:
                        if event is None:
                            break
                        history.origin.follow(event)
                        yield [_completed(self._known(history, event), near, trail)], history.daemon
                yield None
                if driver is None:
                    time.sleep(_LOOK)
                    continue
                for xid in driver.wait(_LOOK):
                    event = as_simulated(xid.event()) if simulated else xid.event()
                    near.add(event)
                    yield [_completed(event, near, trail)], None
        finally:
            if driver is not None:
                driver.close()

    def _batches(self, history: LogHistory, since: float | None) -> Iterator[Told]:
        plain = history.speaker.by is None and history not in self._given and not history.origin.spans
        for events, daemon in history.batches(since):
            yield (events if plain else [self._known(history, event) for event in events]), daemon

    def _known(self, history: LogHistory, event: Event) -> Event:
        """With the other user whose word it is, where it is one's, with the UUIDs of the devices, and whether it is
        simulated."""
        since, ordinals = self._given.get(history, (0.0, {}))
        if ordinals and (event.time or 0.0) >= since:
            event = by_uuid(event, ordinals)
        by = history.speaker.by
        if history.origin.source(event.time) == "simulated":
            event = as_simulated(event)
        return event if by is None else event._replace(values={**event.values, "claimed_by": str(by)})


def as_simulated(event: Event) -> Event:
    """The event as one of a simulated node."""
    return event._replace(values={**event.values, "simulated": "1"})


class _Near:
    """The Xids, and the last faults, among which those of one moment are looked for."""

    def __init__(self, xids: Iterable[Event]) -> None:
        self._xids = [*xids]
        self._faults: deque[Event] = deque(maxlen=_MOST_NEAR)

    @property
    def events(self) -> tuple[Event, ...]:
        return (*self._xids, *self._faults)

    def add(self, event: Event) -> None:
        if event.kind == "xid":
            self._xids.append(event)
        elif event.kind == "fatal_fault":
            self._faults.append(event)

    def with_xids(self, fault: Event) -> Event:
        """The fault with the Xids of its moment."""
        if not self._xids:
            return fault
        return with_xids(fault, (xid.values["xid"] for xid in xids_of(fault.time, fault.devices, self.events)))


def _seen_ahead(told: Iterator[Told], near: _Near) -> Iterator[Told]:
    """The same, each once all faults of its moment are in ``near``: an Xid is that of the nearest one. Where the clock
    was set back meanwhile that moment is over."""
    held: deque[Told] = deque()
    for each in told:
        first = each[0][0]
        for event in each[0]:
            if event.kind == "fatal_fault":
                near.add(event)
        held.append(each)
        while held and abs((first.time or 0.0) - (held[0][0][0].time or 0.0)) > 2 * MOMENT:
            yield held.popleft()
    yield from held


def _completed(event: Event, near: _Near, trail: AuditTrail) -> Event:
    """With the author of a change, and the Xids of a fault, which is kept for the faults that are told after it."""
    if event.kind == "fatal_fault":
        near.add(event)
        event = near.with_xids(event)
    return trail.named(event)


def past(places: Sequence[LogPlace], at: float | None) -> list[Snapshot]:
    """The state that each place's logs come to at that time. Raises UnreadableNodeError."""
    if not places:
        raise UnreadableNodeError(())
    try:
        return [state_at(place.log_dir, at, place.owners) for place in places]
    except UnreadableLogError as error:
        raise UnreadableNodeError((error,)) from None
