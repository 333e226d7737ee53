"""The clients of a daemon: filter, sort, choose; identity is the process, never the position."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from mpstui.core.model import Client, Daemon, ProcessKey, Snapshot
from mpstui.core.text import UNKNOWN, Line
from mpstui.fields import CLIENT, Field, Thing, View, possible_columns
from mpstui.ui.filter import ClientFilter
from mpstui.ui.painted import fit, fit_line
from mpstui.ui.panels.table import TablePanel


class ClientsPanel(TablePanel[Client]):
    """All clients of the daemon on the screen, those that the filter leaves, in the chosen order."""

    NUMBER: ClassVar[int] = 4
    TITLE: ClassVar[str] = "Clients"
    KIND: ClassVar[str] = "client"
    THING: ClassVar[Thing[Client]] = CLIENT
    STRETCH: ClassVar[bool] = True
    GUTTER: ClassVar[int] = 3
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v,space,insert", "choose", "Choose", show=False, id="clients.choose"),
        Binding("asterisk", "choose_all", "Choose all", show=False, id="clients.choose_all"),
        Binding("s", "sort", "Sort", show=False, id="clients.sort"),
        Binding("I", "invert", "Invert the order", show=False, id="clients.invert"),
    ]

    class Chosen(Message):
        """The set of chosen clients changed."""

    class Arranged(Message):
        """The order of the rows is another one."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.filter = ClientFilter()
        self.chosen: frozenset[ProcessKey] = frozenset()
        self._all: Sequence[Client] = ()
        self._known = True
        self._sort = CLIENT["pid"]
        self._reverse = False
        self._anchor: Hashable | None = None

    def show(self, snapshot: Snapshot, daemon: Daemon, own: Mapping[ProcessKey, int] = MappingProxyType({})) -> None:
        """``own``: test clients of this program, which are marked with their numbers."""
        self.view = View.of(snapshot, daemon, own)
        self._all = tuple(daemon.clients())
        self._known = daemon.servers_known
        alive = frozenset(client.key for client in self._all)
        if not self.chosen <= alive:
            self.chosen &= alive
            self.post_message(self.Chosen())
        self._arrange()

    def _arrange(self) -> None:
        view = self.view
        shown = [c for c in self._all if self.filter.matches(c, view)] if self.filter else self._all
        ordered = sorted(shown, key=lambda c: c.pid)
        if self._sort.id != "pid" or self._reverse:
            keyed = [(self._sort.order(c, view), c) for c in ordered]
            known = [pair for pair in keyed if not pair[0][0]]
            known.sort(key=lambda pair: pair[0], reverse=self._reverse)
            ordered = [c for _, c in known] + [c for order, c in keyed if order[0]]
        self.set_rows(ordered)

    # What actions are for.

    def targets(self) -> tuple[ProcessKey, ...]:
        """The chosen clients in the order of the table, or the one under the cursor."""
        if self.chosen:
            return tuple(client.key for client in self._all if client.key in self.chosen)
        row = self.cursor_row
        return (row.key,) if row else ()

    def begin_filter(self) -> None:
        """From here on the cursor comes back to this row whenever the filter leaves it."""
        self._anchor = self._cursor

    def set_filter(self, text: str) -> None:
        self.filter = ClientFilter(text)
        if self._anchor is not None:
            self._cursor, self._index = self._anchor, 0
        self._arrange()

    def end_filter(self) -> None:
        self._anchor = None

    def clear_chosen(self) -> bool:
        """Choose nothing; whether anything was chosen."""
        had = bool(self.chosen)
        self._choose(frozenset())
        return had

    def _choose(self, keys: frozenset[ProcessKey]) -> None:
        if keys != self.chosen:
            self.chosen = keys
            self.repaint()
            self.post_message(self.Chosen())

    def action_choose(self) -> None:
        if (row := self.cursor_row) is not None:
            self._choose(self.chosen ^ {row.key})
            self.action_move(1)

    def action_choose_all(self) -> None:
        """All that the filter leaves; none, where they already are."""
        shown = frozenset(client.key for client in self.rows)
        self._choose(self.chosen - shown if shown <= self.chosen else self.chosen | shown)

    def action_sort(self) -> None:
        visible = self.columns(self.inner)
        following = [c.id for c, _ in visible]
        at = following.index(self._sort.id) if self._sort.id in following else -1
        self.sort_by(following[(at + 1) % len(following)])

    def action_invert(self) -> None:
        self.sort_by(self._sort.id, not self._reverse)

    def on_click(self, event: events.Click) -> None:
        if event.y == self.above - 1:
            x = self.GUTTER + self._framed
            for column, width in self.columns(self.inner):
                if x <= event.x < x + width:
                    self.sort_by(column.id, not self._reverse if column.id == self._sort.id else False)
                x += width
            return
        super().on_click(event)
        if event.ctrl and self.row_at(event.y) is not None and (row := self.cursor_row) is not None:
            self._choose(self.chosen ^ {row.key})

    # Painting.

    def key(self, row: Client) -> ProcessKey:
        return row.key

    def title(self) -> Line:
        total = len(self._all)
        text = f" {len(self.rows)}/{total}" if self.filter else f" {total}" if total or self._known else f" {UNKNOWN}"
        chosen: Line = ((f"  ✓ {len(self.chosen)} chosen", "chosen"),) if self.chosen else ()
        shown = self._sort.id in {each.id for each, _ in self.columns(self.inner)} or self._sort.id == "pid"
        order: Line = () if shown else ((f"  {self.arrow} {self._sort.heading()}", "accent"),)
        return ((self.TITLE, "title"), (text, "accent" if self.filter else "dim"), *order, *chosen)

    def corner(self) -> Line:
        if complaint := self.filter.complaint():
            return (("▲ ", "warn"), (complaint, "warn"))
        if self.filter:
            return (("/ ", "key"), (fit(self.filter.text, min(40, len(self.filter.text))), "accent"))
        return (("/ ", "key"), ("filter", "dim"))

    def named(self) -> Line:
        """The main list: how many there are is enough."""
        return self.title()[1:]

    @property
    def tells(self) -> bool:
        return bool(self.filter)

    def empty(self) -> str:
        if not self._all and not self._known:
            return f"{UNKNOWN} not known: the daemon cannot be asked"
        if complaint := self.filter.complaint():
            return f"{complaint}  Esc clears the filter"
        return "no client matches the filter; Esc clears it" if self.filter and self._all else "no clients"

    def sorted_by(self, each: Field[Client]) -> str:
        return self.arrow if each.id == self._sort.id else ""

    @property
    def arrow(self) -> str:
        """▲ where the smallest comes first, ▼ where the largest does."""
        falling = self._sort.column is not None and self._sort.column.falling
        return "▼" if falling is not self._reverse else "▲"

    @property
    def sort(self) -> tuple[str, bool]:
        """The field that the rows are in the order of, and whether it is the other way round than usual."""
        return self._sort.id, self._reverse

    def sort_by(self, name: str, reverse: bool = False) -> None:
        """Put the rows in the order of that field; one that does not exist changes nothing."""
        found = next((each for each in possible_columns(self.THING) if each.id == name), None)
        if found is None:
            return
        self._sort, self._reverse = found, reverse
        self._arrange()
        self.post_message(self.Arranged())

    def plain(self, row: Client) -> str:
        return "dim" if row.state == "TERMINATED" or row.key in self.view.lost else "text"

    def lead(self, row: Client) -> Line:
        return ((" ", "text"), ("✓ " if row.key in self.chosen else "  ", "chosen"))

    def row_lines(self, row: Client, width: int) -> list[Line]:
        lines = super().row_lines(row, width)
        if row.key not in self.chosen:
            return lines
        return [tuple((text, f"{name}+marked") for text, name in fit_line(lines[0], width))]
