"""The events of a log directory in the order of time, each told once, in bounded memory; and those to come."""

from __future__ import annotations

import heapq
import math
import os
import time as system
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, repeat
from operator import itemgetter
from pathlib import Path
from typing import Final

from mpstui.control.grammar import LogKind, LogParser
from mpstui.control.protocol import LEGACY
from mpstui.core.model import Event, LogEvents
from mpstui.core.text import listed, path_text, path_word
from mpstui.core.trust import NOBODY, written_by
from mpstui.history.files import LogFile
from mpstui.history.origin import Origin
from mpstui.history.parser_process import parsed
from mpstui.observe.logs import CONTROL_LOG, CONTROL_MARKER, SERVER_LOG, LogTail, last_change, server_logs
from mpstui.observe.state import TWICE, DaemonState, EventLog, told_by
from mpstui.system.procfs import ProcessFacts, user_name
from mpstui.system.trusted import Owners, UnreadableLogError

_LEAD: Final = 256 << 10
"""Bytes read before the time asked for: what is told of a client there explains what follows."""
_LATE: Final = 60.0
"""Seconds behind the time asked for after which a log is left alone; its clock may have been set meanwhile."""
OTHERS_MOST: Final = 8 << 20
"""A second's reading or two."""
_MEMORY: Final = 200
_NAMED: Final = 4
"""Compressed logs, at most."""
_BATCH: Final = 256
"""Events that are told at a time, or a few more."""
_SPECIAL: Final = TWICE | {"daemon_started", "fatal_fault"}
"""Kinds of which :meth:`Telling._tell` has more to say than whom they are about."""
_time: Final = itemgetter(0)
People = Callable[[Iterable[int]], Mapping[int, ProcessFacts]]
KINDS: Final[tuple[LogKind, ...]] = ("control", "server")
Piece = tuple[Sequence[float], LogKind, Sequence[Event]]
"""Events of one log, and when each of them was."""
Batch = tuple[Sequence[Event], Path]
"""Events, and the pipe directory of their daemon; the log directory where no log has told it yet."""
_parser: Final = LEGACY.log_parser
"""Logs alone do not say what protocol their daemon speaks."""


def _kind(name: str) -> LogKind:
    return "control" if name == CONTROL_LOG else "server"


class Telling:
    """Folds the events of both logs of one daemon, each told once and with whom it is about."""

    def __init__(self, state: DaemonState, pipe_dir: Path | None = None, people: People | None = None) -> None:
        """``people`` asks who processes that live now are; only where the log's PIDs are those of this namespace."""
        self._people = people
        self._asked: set[int] = set()
        self.pipe_dir = pipe_dir
        self.state = state
        self.daemon = pipe_dir or state.pipe_dir
        """The pipe directory of the events' daemon; the log directory where no log has told it yet."""
        self._told = EventLog(_MEMORY)
        self._teller: int | None = None
        """Who has written the logs, where that is neither root nor this user."""

    def _tell(self, kind: LogKind, event: Event) -> Sequence[Event]:
        """The event, unless the other log has told it, and what follows from it."""
        if event.kind == "daemon_started" and self.pipe_dir is None and (place := event.values.get("pipe_dir")):
            self.daemon = self.state.pipe_dir = Path(place)
        event = self._named(event)
        derived = self.state.apply(event, event.time or 0.0)
        if event.kind in TWICE:
            if self._told.repeats(event, kind):
                return [self._named(each) for each in derived]
            self._told.add(event, kind)  # the others need not be kept: no other log tells of them
        return (event, *map(self._named, derived)) if derived else (event,)

    def _named(self, event: Event) -> Event:
        """The event with whom it is about: by the logs, and by /proc where the process lives or was seen alive."""
        event = self.state.about(event)
        if self._people is not None:
            if event.kind in {"client_connected", "client_pending", "client_admitted"} and event.pid is not None:
                self._asked.discard(event.pid)  # it may be another process by now
            pids = {pid for pid in (event.pid, *(s.pid for s in event.suspects)) if pid is not None} - self._asked
            self._asked |= pids
            for facts in self._people(pids).values() if pids else ():
                self._told.know([facts], system.time(), event.pipe_dir)
            event = self._told.named(event)
        return event if self._teller is None else told_by(self._teller, event)


class LogHistory(Telling):
    """control.log, server.log and the logs of servers of one directory. Raises UnreadableLogError where none can be
    read; to be closed.

    ``pipe_dir`` is what the events are given as their daemon's; without it, what control.log says. ``owners`` are those
    whose logs are believed; None for a directory that somebody named to have it read. ``simulated``: they are a
    simulated node's, unless it has written down which part is. ``most``: bytes that are read, the last ones, of a log
    that another user has written and that nobody asked to have read: it is as long as he likes.
    """

    def __init__(
        self,
        log_dir: Path,
        pipe_dir: Path | None = None,
        owners: Owners | None = None,
        people: People | None = None,
        simulated: bool = False,
        most: int = OTHERS_MOST,
    ) -> None:
        super().__init__(DaemonState(pipe_dir or log_dir), pipe_dir, people)
        self.log_dir = log_dir
        self._simulated = simulated
        self._owners = owners
        self._files: dict[str, LogFile] = {}
        """By their names in the directory; with protocol 3 each server has one, in a directory of its own."""
        self._parsers: dict[str, LogParser] = {name: _parser(_kind(name)) for name in (CONTROL_LOG, SERVER_LOG)}
        self.cut = False
        """Whether :meth:`entries` has left something older out."""
        self.trouble: list[str] = []
        """Why one of the two logs could not be read."""
        errors: list[UnreadableLogError] = []
        for name in (CONTROL_LOG, SERVER_LOG, *self._of_servers()):
            try:
                self._files[name] = LogFile(log_dir / name, owners)
            except UnreadableLogError as error:
                if name in self._parsers or os.path.lexists(log_dir / name):
                    self.trouble.append(str(error))
                    errors.append(error)
                continue
            self._parsers.setdefault(name, _parser(_kind(name)))
        if not self._files:
            raise errors[0]
        self.packed = tuple(name for _, file in sorted(self._files.items()) for name in file.packed)
        """Older logs that are compressed, which are not read."""
        self.of_others = tuple(name for _, file in sorted(self._files.items()) for name in file.others)
        """Older logs that belong to neither root nor the owner of the newest, which are not read."""
        if owners is not None:
            self.trouble += self._bounded(most)
        others = {file.uid for file in self._files.values()} - {0, os.geteuid()}
        self._teller = min(others) if others and owners is not None else None
        self.speaker = written_by(min(others), user_name(min(others))) if others else NOBODY
        """Whose word all of it is, where another user has written it."""

    def _bounded(self, most: int) -> list[str]:
        """What is said of the logs of others of which the beginning is left out now."""
        believed = {0, os.geteuid()}
        cut = [name for name, file in self._files.items() if file.uid not in believed and file.keep_last(most)]
        where, size = self.log_dir, f"{most >> 20} MiB"
        size, them = (f"{size} each", "them") if len(cut) > 1 else (size, "it")
        read = f"only the last {size} of {listed(cut, _NAMED)} is read, as another user has written {them}"
        return [f"{path_text(where)}: {read}; all of it: mpstui events --log-dir {path_word(where)}"] if cut else []

    @cached_property
    def origin(self) -> Origin:
        """Which part of them a simulated node has written."""
        return Origin(self.log_dir, tuple(self._files.values()), self._files.get(CONTROL_LOG), self._simulated)

    @property
    def of_daemon(self) -> bool:
        """Whether control.log is among them, which alone tells whether a daemon runs that has no server."""
        return CONTROL_LOG in self._files

    def close(self) -> None:
        """Gives the files back."""
        for file in self._files.values():
            file.close()

    @property
    def left_out(self) -> tuple[str, ...]:
        """What is missing where everything is asked for."""
        why = {
            "what was compressed is not read, and its events are missing": self.packed,
            "what belongs to neither root nor the owner of the newest log is not read": self.of_others,
        }
        where = path_text(self.log_dir)
        return tuple(f"{where}: {text}: {listed(names, _NAMED)}" for text, names in why.items() if names)

    @property
    def version(self) -> str | None:
        """The control binary's version, once its line has been read."""
        return self._parsers[CONTROL_LOG].version

    def _of_servers(self) -> list[str]:
        return [os.fspath(path.relative_to(self.log_dir)) for path in server_logs(self.log_dir, self._owners)]

    def events(
        self, since: float | None = None, until: float | None = None, *, latest: bool = False
    ) -> Iterator[Event]:
        """Events from ``since`` to ``until``, seconds since the epoch. May be used once. ``latest``: only those that
        were written last are wanted; where the clock was set back since, those before may be missing."""
        for events, _ in self.batches(since, until, latest=latest):
            yield from events

    def batches(
        self, since: float | None = None, until: float | None = None, *, latest: bool = False
    ) -> Iterator[Batch]:
        """The same, some at a time, each time with the daemon that they are of: for who reads millions of them."""
        starts = dict.fromkeys(self._files, 0)
        if since is not None:
            first = LogFile.offset_of if latest else LogFile.first_from
            starts = {name: self._line_before(file, first(file, since) - _LEAD) for name, file in self._files.items()}
        return self._fold(starts, since, until)

    def replay(self, until: float | None = None) -> Iterator[Event]:
        """Events from the start of the daemon that ran at ``until`` (None: the last one) up to that time."""
        end = math.inf if until is None else until
        starts = dict.fromkeys(self._files, 0)
        control = self._files.get(CONTROL_LOG)
        if control is not None:
            limit = control.size if until is None else control.offset_of(until)
            begin = control.last_line_with(CONTROL_MARKER, limit)
            first = next((e.time for e in self._first_events(control, begin)), None) if begin is not None else None
            if begin is not None and first is not None:
                starts = {name: file.offset_of(min(first, end)) for name, file in self._files.items()}
                starts[CONTROL_LOG] = begin
        for events, _ in self._fold(starts, None, until):
            yield from events

    def entries(self, most: int) -> Iterator[tuple[float, LogKind, Event]]:
        """What each log tells by itself, in the order of time: of the newest ``most`` bytes of each."""
        starts = {name: self._line_before(file, file.size - most) for name, file in self._files.items()}
        self.cut = any(start > 0 for start in starts.values())
        for times, kind, events in _merged([self._stream(name, starts[name], None) for name in self._files]):
            yield from zip(times, repeat(kind), events, strict=False)

    def follow(self) -> Iterator[Event | None]:
        """Events as they are written, after :meth:`events` has been read; None when there is no more at present."""
        tails: dict[str, LogTail] = {}
        listed = None
        try:
            while True:
                if (changed := last_change(self.log_dir)) is None or changed != listed:  # a server may be new
                    listed = changed
                    for name in (CONTROL_LOG, SERVER_LOG, *self._of_servers()):
                        if name not in tails:
                            tails[name] = _Continued(self.log_dir / name, self._files.get(name), self._owners)
                            self._parsers.setdefault(name, _parser(_kind(name))).live(system.monotonic)
                written = {name: tail.poll() for name, tail in tails.items()}
                streams = (self._written(name, lines) for name, lines in written.items())
                for _, kind, event in heapq.merge(*streams, key=_time):
                    yield from self._tell(kind, event)
                if not any(written.values()):
                    yield None
        finally:
            for tail in tails.values():
                tail.close()

    def _fold(self, starts: dict[str, int], since: float | None, until: float | None) -> Iterator[Batch]:
        end = math.inf if until is None else until
        begin = -math.inf if since is None else since
        # Nearly all events are told by one log, and by the logs alone: those go the short way, which is the same.
        short = self._people is None and self._teller is None
        about, apply, uids = self.state.about, self.state.apply, self.state.uids
        told: list[Event] = []
        for times, kind, events in _merged([self._stream(name, starts[name], until) for name in self._files]):
            for time, event in zip(times, events, strict=True):
                if time > end:
                    continue
                if not short or event[0] in _SPECIAL:
                    daemon, found = self.daemon, self._tell(kind, event)
                    if daemon is not self.daemon and told:
                        yield told, daemon
                        told = []
                    if time >= begin:
                        told += found
                    continue
                if event[4] in uids:
                    event = about(event)
                derived = apply(event, event[1] or 0.0)
                if time >= begin:
                    told.append(event)
                    if derived:
                        told += map(about, derived)
            if len(told) >= _BATCH:
                yield told, self.daemon
                told = []
        yield told, self.daemon

    def _stream(self, name: str, start: int, until: float | None) -> Iterator[Piece]:
        """Events with their times; one without a time has that of the one before."""
        parser, kind, time = self._parsers[name], _kind(name), 0.0
        late = math.inf if until is None else until + _LATE
        for events in chain(parsed(self._files[name], start, parser), map(LogParser.flush, (parser,))):
            times = [time if (at := event[1]) is None else (time := at) for event in events]
            if late < math.inf and (last := next((n for n, at in enumerate(times, 1) if at > late), None)) is not None:
                yield times[:last], kind, events[:last]
                return
            yield times, kind, events

    def _written(self, name: str, lines: list[bytes]) -> Iterator[tuple[float, LogKind, Event]]:
        """Events of lines just written; a group that nothing has followed for one look is over."""
        parser, kind, time = self._parsers[name], _kind(name), 0.0
        for event in (event for line in lines for event in parser.feed(line)) if lines else parser.flush():
            time = event.time if event.time is not None else time
            yield time, kind, event

    @staticmethod
    def _line_before(file: LogFile, offset: int) -> int:
        if offset <= 0:
            return 0
        found = file.last_line_with(b"\n", offset)
        return 0 if found is None else found

    @staticmethod
    def _first_events(file: LogFile, start: int) -> Iterator[Event]:
        parser = _parser("control")
        for lines in file.blocks(start):
            yield from parser.feed_all(lines)


def _merged(streams: Sequence[Iterator[Piece]]) -> Iterator[Piece]:
    """In the order of time as ``heapq.merge`` has it, but as many of one stream as come before the others' next."""
    filled = [filter(_time, stream) for stream in streams]
    heads = [(piece[0][0], n, 0, piece) for n, stream in enumerate(filled) if (piece := next(stream, None))]
    while heads:
        heads.sort()
        _, stream, begin, piece = heads[0]
        times, kind, events = piece
        bound, other = heads[1][:2] if len(heads) > 1 else (math.inf, math.inf)
        last = bound if stream < other else math.nextafter(bound, -math.inf)
        at, end = begin + 1, len(times)
        while at < end and times[at] <= last:
            at += 1
        yield times[begin:at], kind, events[begin:at]
        if at < end:
            heads[0] = times[at], stream, at, piece
        elif following := next(filled[stream], None):
            heads[0] = following[0][0], stream, 0, following
        else:
            del heads[0]


class _Continued(LogTail):
    """A tail that goes on where the history that was read ended."""

    def __init__(self, path: Path, file: LogFile | None, owners: Owners | None) -> None:
        super().__init__(path, owners=owners)
        self._from = 0 if file is None else file.whole_lines_end()

    def _start(self, fd: int, size: int, history: int) -> int:
        return min(self._from, size)


def faults(
    log_dir: Path,
    pipe_dir: Path | None = None,
    owners: Owners | None = None,
    over: Callable[[], bool] = lambda: False,
) -> LogEvents:
    """Every fatal fault in the logs; none where it is ``over`` meanwhile. Raises UnreadableLogError."""
    history, found = LogHistory(log_dir, pipe_dir, owners), list[Event]()
    try:
        for event in history.events():
            if over():
                return LogEvents()
            if event.kind == "fatal_fault":
                found.append(event if pipe_dir is None else event._replace(pipe_dir=pipe_dir))
    finally:
        history.close()
    return LogEvents(tuple(found), (*history.trouble, *history.left_out))


_FIRST_SPAN: Final = 600.0
"""Seconds of log that are read first; four times as many, again and again, until there are events enough."""
_SPANS: Final = 9
"""After so many spans, 1.2 years, the rest of the logs is read whole."""


def last_events(
    before: float, most: int, log_dir: Path, pipe_dir: Path, owners: Owners | None, over: Callable[[], bool]
) -> LogEvents:
    """The last ``most`` events up to ``before``; looks back further and further until there are enough.

    What is read grows with how far back they lie, not with the size of the logs. Fewer where it is ``over`` meanwhile.
    Raises UnreadableLogError.
    """
    span: float | None = _FIRST_SPAN
    for number in range(_SPANS + 1):
        if number == _SPANS:
            span = None
        history = LogHistory(log_dir, pipe_dir, owners)
        found: deque[Event] = deque(maxlen=most)
        try:
            for event in history.events(None if span is None else before - span, before, latest=True):
                if over():
                    return LogEvents()
                found.append(event._replace(pipe_dir=pipe_dir))
        finally:
            history.close()
        missing = (*history.trouble, *(history.left_out if len(found) < most else ()))
        if span is None or len(found) == most:
            break
        span *= 4
    return LogEvents(tuple(found), missing)
