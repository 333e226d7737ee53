"""A recording folded again, at whatever moment one asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from mpstui.core.model import EMPTY, Snapshot
from mpstui.core.text import error_text
from mpstui.core.trust import Speaker
from mpstui.history.recording import Coder, Head, RecordingError, Tape, lines, member_at
from mpstui.observe.reducer import READINGS, NodeState

_BEFORE: Final = 120
"""Snapshots before the one that is asked for that come with it, for plots."""


T = TypeVar("T")
_GAP: Final = 5.0
"""Seconds between two runs of a recorder that are told as a time of which nothing is known."""
_READ: Final = 5.0
"""Seconds from its beginning in which a recording has read its node, or has not."""


_NAMED: Final = 60.0
"""Seconds from its beginning in which the devices' indices are found that a moment before their reading lacks."""
_MOST: Final = 200_000
"""Of what is read for one look: a member costs 1,000, and each line 1 and 1 more for each KiB. A full one of a
recorder's costs 25,000, and a look reads one or two; a file of a stranger's may have members without end in which there
is nothing to be shown."""
_MEMBER: Final = 1_000


class _EnoughError(Exception):
    """A look has read as much as it may, or nobody waits for it any longer."""


class ShownMoment(NamedTuple):
    """What was shown at one time."""

    time: float
    """When it was heard."""
    snapshot: Snapshot
    before: tuple[Snapshot, ...] = ()
    """Some that came before it, oldest first."""
    indices: Mapping[str, int | None] = EMPTY
    """See ``Past.indices``."""


class Player:
    """Reads a tape. Raises RecordingError where nothing of it can be read; what is damaged later ends it there."""

    def __init__(self, tape: Tape, teller: Speaker | None = None) -> None:
        """``teller``: whose word alone all of it is."""
        self.tape, self._teller = tape, teller
        self.trouble: str | None = None
        """Why it ends where it does, where that is not its end."""
        self._until: float | None = None
        self._cursor: _Cursor | None = None
        self._begun: dict[int, bool] = {}
        self._indices: Mapping[str, int | None] | None = None
        self._rest: float = math.inf
        self._left = False

    def leave(self) -> None:
        """Ends a look at the next line, in whatever thread it is, and every later one: nobody waits for it."""
        self._left = True

    def _look(self, look: Callable[[], T | None]) -> T | None:
        """What it finds, or None where it has not found anything in as much as one look reads."""
        self._rest = _MOST
        try:
            return look()
        except _EnoughError:
            self._cursor = None
            if not self._left:
                self.trouble = "Too much of the recording has nothing to show: not all of it was read."
            return None
        finally:
            self._rest = math.inf

    def _pay(self, cost: int) -> None:
        self._rest -= cost
        if self._left or self._rest < 0:
            raise _EnoughError

    @property
    def span(self) -> tuple[float, float]:
        """Its first and its last moment."""
        heads = self.tape.heads()
        if not heads:
            return 0.0, 0.0
        return heads[0].first, heads[-1].last if self._until is None else min(self._until, heads[-1].last)

    @property
    def begin(self) -> float:
        """From when there is something to see: the first moment by which the node's devices were read, its daemons were
        looked for, and each was asked. Its first one, where that is not so soon."""
        first, _ = self.span
        found = self._look(lambda: self._begin(first))
        return first if found is None else found

    def _begin(self, first: float) -> float | None:
        asked = None
        for when, shown in self._up_to(first + _READ):
            if shown.looked and all(d.condition.cause != "unasked" for d in shown.daemons):
                asked = when if asked is None else asked
                if shown.devices:
                    return when
        return asked

    def _up_to(self, last: float) -> Iterator[tuple[float, Snapshot]]:
        """Each snapshot from its beginning to that time."""
        for number in range(len(self.tape.heads())):
            for when, shown, _ in self.moments(number):
                if when > last:
                    return
                if shown is not None:
                    yield when, shown

    def gap(self, time: float) -> tuple[float, float] | None:
        """From when to when nothing was recorded, where that time is between two pieces; None where it is in one."""
        heads = self.tape.heads()
        number = member_at(heads, time)
        if number + 1 >= len(heads):
            return None
        last, first = heads[number].last, heads[number + 1].first
        return (last, first) if last < time < first and first - last > _GAP and self._anew(number + 1) else None

    def _anew(self, number: int) -> bool:
        """Whether a recorder begins with that member, and so had looked for nothing yet."""
        if number not in self._begun:
            try:
                time, node = Coder().resumed(next(lines(self.tape, number)))
                self._begun[number] = not node.snapshot(time).looked
            except (RecordingError, StopIteration):
                self._begun[number] = False
        return self._begun[number]

    def at(self, time: float) -> ShownMoment | None:
        """What was known at that time; before the first moment: there. None where nothing is known yet."""
        found = self._look(lambda: self._at(time))
        first, _ = self.span
        if found is None or found.snapshot.devices or found.time > first + _NAMED:
            return found
        if self._indices is None:
            read = (shown.indices for _, shown in self._up_to(first + _NAMED) if shown.devices)
            self._indices = self._look(lambda: next(read, None)) or EMPTY
        return found._replace(indices=self._indices)

    def _at(self, time: float) -> ShownMoment | None:
        heads = self.tape.heads()
        if not heads:
            return None
        for number in reversed(range(member_at(heads, time) + 1)):
            if (found := self._in(number, heads[number], time)) is not None:
                return found
        for number in range(len(heads)):
            for when, shown, _ in self.moments(number):
                if shown is not None:
                    return ShownMoment(when, shown)
        return None

    def next_event(self, after: float, many: int = 1) -> ShownMoment | None:
        """The first moment behind ``after`` with an event that was not there before; None where there is none.
        ``many``: of so many the last, or the last there is."""
        return self._look(lambda: _as_far(self._later(after), many))

    def _later(self, after: float) -> Iterator[ShownMoment]:
        heads = self.tape.heads()
        for number in range(member_at(heads, after), len(heads)):
            if heads[number].events and (heads[number].last > after or number == len(heads) - 1):
                for moment in self._news(number):
                    if moment.time > after:
                        after = moment.time
                        yield moment

    def previous_event(self, before: float, many: int = 1) -> ShownMoment | None:
        """The last moment before ``before`` with an event that was not there before; None where there is none.
        ``many``: of so many the first, or the first there is."""
        return self._look(lambda: _as_far(self._earlier(before, many), many))

    def _earlier(self, before: float, many: int) -> Iterator[ShownMoment]:
        """``many``: as many as are kept of a member."""
        heads = self.tape.heads()
        for number in reversed(range(member_at(heads, before) + 1 if heads else 0)):
            if heads[number].events:
                last: dict[float, ShownMoment] = {}
                for moment in self._news(number):
                    if moment.time >= before:
                        break
                    last[moment.time] = moment
                    if len(last) > many:
                        del last[next(iter(last))]
                for before in reversed(last):
                    yield last[before]

    def _in(self, number: int, head: Head, time: float) -> ShownMoment | None:
        """The last snapshot of the member up to ``time``."""
        cursor = self._cursor
        if cursor is None or cursor.number != number or cursor.first != head.first or cursor.time > time:
            cursor = self._cursor = _Cursor(self, number, head.first)
        cursor.go(time)
        return cursor.moment

    def _news(self, number: int) -> Iterator[ShownMoment]:
        """The moments of a member at which there is a new event."""
        last: object = None
        for time, shown, told in self.moments(number):
            if shown is None:
                last = told
            elif told != last:
                last = told
                yield ShownMoment(time, shown)

    def moments(self, number: int) -> Iterator[tuple[float, Snapshot | None, object]]:
        """Each snapshot of a member with its time and what its newest event is; first, what that was before."""
        raw, coder = lines(self.tape, number), Coder()
        time = 0.0
        try:
            self._pay(_MEMBER)
            first = next(raw, None)
            if first is None:
                return
            self._pay(1 + (len(first) >> 10))
            time, node = coder.resumed(first)
            if self._teller is not None:
                node.believe_only(self._teller)
            yield time, None, _newest(node.snapshot(time))
            for line in raw:
                self._pay(1 + (len(line) >> 10))
                told_at, name, values = coder.decode(line)
                time = max(time, told_at)  # by a clock that was set back it was all at once, as a recorder has it
                made = _told(node, name, values)
                if isinstance(made, Snapshot):
                    yield time, made, _newest(made)
        except RecordingError as error:
            self.trouble = f"The recording is damaged: {error}. It is shown up to there."
            self._until = time if self._until is None else min(self._until, time)


def _as_far(moments: Iterator[ShownMoment], many: int) -> ShownMoment | None:
    """The last of so many, or as far as they can be read."""
    found = None
    try:
        for moment in islice(moments, many):
            found = moment
    except _EnoughError:
        if found is None:
            raise
    return found


def _newest(snapshot: Snapshot) -> object:
    return snapshot.events[-1].key if snapshot.events else None


def _told(node: NodeState, name: str, values: list[object]) -> object:
    """Whatever a line tells that no node says ends the recording there, and not the program."""
    try:
        return READINGS[name](node, *values)
    except Exception as error:
        raise RecordingError(
            f"a line of the recording cannot be read ({type(error).__name__}: {error_text(error)})"
        ) from None


class _Cursor:
    """How far a member has been read."""

    def __init__(self, player: Player, number: int, first: float) -> None:
        self.number, self.first = number, first
        self.time = first
        self.moment: ShownMoment | None = None
        self._before: list[Snapshot] = []
        self._moments = player.moments(number)
        self._ahead: tuple[float, Snapshot] | None = None

    def go(self, time: float) -> None:
        """Up to that time."""
        while True:
            if self._ahead is None:
                for when, shown, _ in self._moments:
                    if shown is not None:
                        self._ahead = when, shown
                        break
                else:
                    break
            if self._ahead[0] > time:
                break
            if self.moment is not None:
                self._before = [*self._before[-_BEFORE:], self.moment.snapshot]
            self.moment, self._ahead = ShownMoment(*self._ahead), None
        self.time = time
        if self.moment is not None:
            self.moment = self.moment._replace(before=tuple(self._before))
