"""What happened on the node, newest last."""

from __future__ import annotations

from collections.abc import Container, Hashable, Sequence
from pathlib import Path
from typing import ClassVar, Final

from mpstui.core.cells import SEVERITY
from mpstui.core.model import Daemon, Event, EventKind, Snapshot
from mpstui.core.text import Line, owner
from mpstui.fields import EVENT, NOISE, View, severity
from mpstui.ui.lines import width_of
from mpstui.ui.panels.table import TablePanel

HIDDEN: Final[frozenset[EventKind]] = NOISE | {"client_request", "unknown"}
"""Kinds that the screen does not show until it is asked for them."""
_TALL: Final = 10
_AROUND: Final = 6
"""Cells of its line beside the title and what stands at the right."""
_FIFTH: Final = 5
"""Rows from which on a panel moves by more than one, and by which part."""


class EventsPanel(TablePanel[Event]):
    """A list that follows its end until the user moves up."""

    NUMBER: ClassVar[int] = 5
    TITLE: ClassVar[str] = "Events"
    KIND: ClassVar[str] = "event"
    THING = EVENT
    STRETCH = True
    HEADED = False

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._elsewhere: Line = ()
        self._source: tuple[Event, ...] = ()
        self._pipe_dir: Path | None = None
        self._unnamed: Container[int | None] | None = None
        """The PIDs of which an event does not say whose they are; None: any may be."""

    def know(self, snapshot: Snapshot, daemon: Daemon | None) -> bool:
        """Whose the clients are and which indices the devices have; whether that is new. An index is known from when it
        was learnt on: the past has readings without devices."""
        unnamed = self._unnamed
        clients = daemon.clients() if daemon is not None else ()
        told = (each for each in clients if each.user and (unnamed is None or each.pid in unnamed))
        users = {each.pid: owner(each.user, each.uid) for each in told}
        indices = {**self.view.indices, **snapshot.indices}
        if (users, indices) == (self.view.users, self.view.indices):
            return False
        self.view = View(users=users, indices=indices)
        return True

    def show(self, snapshot: Snapshot, daemon: Daemon | None) -> None:
        pipe_dir = daemon.pipe_dir if daemon else None
        if snapshot.events is not self._source:
            self._unnamed = frozenset(event.pid for event in snapshot.events if event.user is None)
        if not self.know(snapshot, daemon) and snapshot.events is self._source and pipe_dir == self._pipe_dir:
            return
        self._source, self._pipe_dir = snapshot.events, pipe_dir
        follows = self._index >= len(self.rows) - 1
        rows = [
            event
            for event in snapshot.events
            if event.kind not in HIDDEN and (daemon is None or event.pipe_dir in {None, daemon.pipe_dir})
        ]
        if follows:
            self._scroll(rows)
            self._index = max(0, len(rows) - 1)
            self._cursor = self.key(rows[-1]) if rows else None
        self.set_rows(rows)

    @property
    def spare(self) -> int:
        """With each event that moves all rows each of them is written again, a thousand bytes a second of them where
        clients come and go: they move by a fifth of the panel at a time."""
        return self._rows_fit // _FIFTH if self._rows_fit >= _TALL else 0

    def _scroll(self, rows: Sequence[Event]) -> None:
        """The rows stay where they are as long as there is room for the newest one, whatever is dropped of the
        oldest."""
        if self.wanted or self._top >= len(self.rows):
            return
        first = self.key(self.rows[self._top])
        self._top = next((at for at, row in enumerate(rows) if self.key(row) == first), 0)
        if len(rows) > self._top + self._rows_fit:
            self._top = len(rows) - self._rows_fit + self.spare

    def point(self, elsewhere: Line) -> None:
        """Keys of what there is no room for. They stand in the line over the rows, which is empty where there are no
        frames, as far as they have room."""
        if elsewhere != self._elsewhere:
            self._elsewhere = elsewhere
            self.repaint()

    def corner(self) -> Line:
        fits = width_of((*self.title(), *self._elsewhere)) + _AROUND <= self.size.width
        return self._elsewhere if fits and not self._framed else ()

    def key(self, row: Event) -> Hashable:
        return row.key

    def empty(self) -> str:
        return "no event is known yet"

    def plain(self, row: Event) -> str:
        """An event that is bad is so in all of its line."""
        bad = severity(row)
        return "text" if bad == "info" else SEVERITY[bad][1]
