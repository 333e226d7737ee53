"""The two lists of the events screen: the events, and their kinds with a mark for those that are shown."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import ClassVar, Final, get_args

from textual.binding import Binding, BindingType
from textual.message import Message

from mpstui.core.late import dataclass
from mpstui.core.model import Daemon, Event, EventKind, Snapshot
from mpstui.core.text import UNKNOWN, as_shown
from mpstui.fields import EVENT, Field, Shown, View
from mpstui.ui.lines import Line, Span, justify
from mpstui.ui.panel import Panel
from mpstui.ui.panels.events import EventsPanel

KINDS: Final[tuple[EventKind, ...]] = get_args(EventKind)
_MARKED: Final = "chosen"
_WORDS: Final = (EVENT["kind"], EVENT["detail"])
_TIMES: Final = (Shown("time", 14), Shown("severity"), Shown("detail"))
_KINDS: Final = (*_TIMES[:2], Shown("kind"), _TIMES[2])


class EventList(EventsPanel):
    """Events with their day where it changes and what is looked for marked; follows its end until the user moves up."""

    NUMBER: ClassVar[int] = 0
    KIND: ClassVar[str] = "event"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("F", "follow", "Follow", show=False, id="events.follow")]
    NOTE_AT_RIGHT = True

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.follows = True
        self.needle = ""
        self.complaint = ""
        """What of the filter is not understood."""
        self._hits: dict[Hashable, int] = {}
        """The places of those with what is looked for."""
        self._anchor: Hashable = None
        """Where the search began; None at the end of a list that follows."""
        self.past = False
        """Whether a time that is over is shown."""
        self.said: Line = ()
        """What stands behind its title."""
        self._unseen = 0
        self._dates: dict[Hashable, str] = {}
        self._words: dict[Hashable, str] = {}

    def know(self, snapshot: Snapshot, daemon: Daemon | None) -> bool:
        """Whose the clients are and which indices the devices have, as the lines tell it."""
        new = super().know(snapshot, daemon)
        if new:
            self._words.clear()
        return new

    def fill(self, events: Sequence[Event], today: str) -> None:
        """Show these; a list that follows goes to its end."""
        self._dates, day = {}, today
        for event in events:
            if event.time is not None and (date := time.strftime("%Y-%m-%d", time.localtime(event.time))) != day:
                self._dates[self.key(event)], day = date, date
        if self.follows:
            self._unseen = 0
            self._index = max(0, len(events) - 1)
            self._cursor = self.key(events[-1]) if events else None
        elif events and self.rows and self.key(events[-1]) != self.key(self.rows[-1]):
            last = self.key(self.rows[-1])
            new = next((n for n, event in enumerate(reversed(events)) if self.key(event) == last), 0)
            self._unseen += new
        self.set_rows(events)
        self._count_hits()

    def _count_hits(self) -> None:
        low = self.needle.lower()
        self._hits = {self.key(e): n for n, e in enumerate(self.rows) if low in self.shown(e).lower()} if low else {}

    def stamp(self, row: Event, width: int) -> Hashable:
        """A row is drawn again when what is looked for changes, too."""
        return self.needle, super().stamp(row, width)

    def note(self, row: Event, width: int) -> Line:
        """Its date, where that is another than that of the row before."""
        day = self._dates.get(self.key(row))
        return ((f"  {day} ", "dim"),) if day else ()

    def _lay(self, width: int) -> tuple[View, list[tuple[Field[Event], int]]]:
        self.chosen_columns = _KINDS if width >= 100 else _TIMES if width >= 70 else ()
        return super()._lay(width)

    def empty(self) -> str:
        return f"Esc clears the filter: {self.complaint}" if self.complaint else "no event passes the filter"

    @property
    def marks_cursor(self) -> bool:
        """What is found is marked while its text is typed."""
        return bool(self.needle)

    def title(self) -> Line:
        sought: Line = ()
        if self.needle:
            at = list(self._hits).index(self._cursor) + 1 if self._cursor in self._hits else UNKNOWN
            sought = (
                (f"  f {self.needle}", "accent"),
                (f"  {at} of {len(self._hits)}" if self._hits else "  none", "dim"),
            )
        return (("Events", "title"), (f" {len(self.rows)}", "dim"), *self.said, *sought)

    def corner(self) -> Line:
        if self.past:
            return ()  # nothing comes that could be followed
        if self.follows:
            return (("● following", "good"),)
        if self._unseen:
            return ((f"↓ {self._unseen} new · F to follow", "warn"),)
        return (("‖ frozen · F to follow", "dim"),)

    def row_lines(self, row: Event, width: int) -> list[Line]:
        plain = self.plain(row)
        return [
            tuple(span for each in line for span in (marked(*each, self.needle) if each[1] == plain else (each,)))
            for line in super().row_lines(row, width)
        ]

    def shown(self, event: Event) -> str:
        """The words of its line, for filter and search."""
        key = self.key(event)
        words = self._words.get(key)
        if words is None:
            cells = (span for each in _WORDS for span in each.cell(event, self.view, 100))
            words = self._words[key] = " ".join(text for text, _ in cells)
        return words

    def move_to(self, index: int) -> None:
        """Moving up stops following, and reaching the end goes on with it."""
        super().move_to(index)
        self.follows = bool(self.rows) and self._index == len(self.rows) - 1
        if self.follows:
            self._unseen = 0
        self.repaint()

    def action_follow(self) -> None:
        if self.follows:
            self.follows = False
            self.repaint()
        else:
            self.action_edge(1)

    def go_to(self, key: Hashable) -> None:
        """Put the cursor on the event of that key, where it is shown."""
        index = next((i for i, row in enumerate(self.rows) if self.key(row) == key), None)
        if index is not None:
            self.move_to(index)

    @property
    def found(self) -> int:
        """How many events have what is looked for."""
        return len(self._hits)

    def begin_search(self) -> None:
        """What is looked for is looked for from here on."""
        self._anchor = None if self.follows else self._cursor

    def find(self, text: str) -> None:
        """The newest with this text, from where the search began backwards, gets the cursor."""
        self.needle = as_shown(text)
        self._count_hits()
        if self.needle and self._anchor is None:
            self.action_edge(1)
        elif self.needle:
            self.go_to(self._anchor)
        self.seek(-1, here=True)
        self.repaint()

    def seek(self, step: int, *, here: bool = False) -> bool:
        """To the next (1) or previous (-1) event with what is looked for, round the end too; False where there is none.
        ``here``: the one under the cursor counts."""
        places = list(self._hits.values())
        if not places:
            return False
        before = [place for place in places if place < self._index + here]
        after = [place for place in places if place > self._index - here]
        self.move_to((before or places)[-1] if step < 0 else (after or places)[0])
        return True


def marked(text: str, style: str, needle: str) -> Line:
    """The text with each ``needle`` in another style."""
    if not needle:
        return ((text, style),)
    spans: list[Span] = []
    low, at = text.lower(), 0
    while (found := low.find(needle.lower(), at)) >= 0 and len(low) == len(text):
        spans += [(text[at:found], style), (text[found : found + len(needle)], _MARKED)]
        at = found + len(needle)
    return (*spans, (text[at:], style))


@dataclass(frozen=True, slots=True)
class KindRow:
    """One kind of event."""

    kind: EventKind
    count: int
    on: bool


class KindsPanel(Panel[KindRow]):
    """Every kind with its number of events, none left out; those without a mark are not shown."""

    KIND: ClassVar[str] = "kind"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space,v", "mark", "Show or hide the kind", show=False, id="kinds.toggle"),
        Binding("enter", "open", "Show or hide the kind", show=False, id="open"),
        Binding("asterisk", "mark_all", "All kinds or none", show=False, id="kinds.all"),
    ]

    @dataclass
    class Toggled(Message):
        """Other kinds are shown now."""

    def __init__(self, hidden: Iterable[EventKind], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.shown: set[EventKind] = set(KINDS) - set(hidden)
        self._counts: Mapping[EventKind, int] = {}

    def count(self, events: Iterable[Event]) -> None:
        """Count the kinds of all events, shown or not."""
        self._counts = Counter(event.kind for event in events)
        self._show()

    def _show(self) -> None:
        self.set_rows([KindRow(kind, self._counts.get(kind, 0), kind in self.shown) for kind in KINDS])

    def key(self, row: KindRow) -> EventKind:
        return row.kind

    def title(self) -> Line:
        return (("Kinds", "title"), (f" {len(self.shown)}/{len(KINDS)}", "dim"))

    def row_lines(self, row: KindRow, width: int) -> list[Line]:
        style = "text" if row.count and row.on else "dim"
        number = f"{row.count} " if row.count else ""
        name = row.kind.replace("_", " ")
        return [
            justify((("  ", "text"), ("[x] " if row.on else "[ ] ", style), (name, style)), ((number, style),), width)
        ]

    def action_mark(self) -> None:
        if (row := self.cursor_row) is not None:
            self.shown ^= {row.kind}
            self._tell()

    def action_mark_all(self) -> None:
        self.shown = set() if self.shown == set(KINDS) else set(KINDS)
        self._tell()

    def only(self, kinds: Iterable[EventKind]) -> None:
        """Show these kinds alone."""
        self.shown = set(kinds)
        self._tell()

    def action_open(self) -> None:
        self.action_mark()

    def _tell(self) -> None:
        self._show()
        self.post_message(self.Toggled())
