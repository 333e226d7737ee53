"""The columns of the clients: which, in what order, how wide, and the order of the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from mpstui.core.model import Snapshot
from mpstui.core.text import Line
from mpstui.fields import CLIENT, Field, Shown, place_of, possible_columns, wished
from mpstui.ui.dialogs.base import USUAL_WIDTH, Dialog
from mpstui.ui.dialogs.whole import WholeText
from mpstui.ui.layout import room_of
from mpstui.ui.lines import fit
from mpstui.ui.panel import Panel

_WIDEST = 200
_USUAL = frozenset(one.id for one in wished(CLIENT, ()))
_AROUND = 11
"""Cells of the dialog beside its list."""
_BESIDE = 45
"""Cells of the dialog beside what a column is."""
_WIDER = "on wider screens; Space: here too"
"""What is said of one that the user wants and this width has no room for; a word of it stands in its CELLS."""


class ColumnChoice(NamedTuple):
    """A column as the list shows it."""

    field: Field[Any]
    asked: bool | None
    """As Shown has it."""
    width: int

    @property
    def shown(self) -> bool:
        """Whether it is hidden in no size."""
        return self.asked is not False


class ColumnList(Panel[ColumnChoice]):
    """All fields that a client has; those that are shown first, in their order, with those that there is no room for at
    this size: what is changed here is kept for all sizes."""

    TITLE: ClassVar[str] = "Columns"
    KIND: ClassVar[str] = "column"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space,v", "switch", "Show or hide", show=False, id="columns.switch"),
        Binding("enter", "open", "Show or hide", show=False, id="open"),
        Binding("less_than_sign", "shift(-1)", "Further to the left", show=False, id="columns.left"),
        Binding("greater_than_sign", "shift(1)", "Further to the right", show=False, id="columns.right"),
        Binding("plus,equals_sign,right", "widen(1)", "Wider", show=False, id="columns.wider"),
        Binding("minus,left", "widen(-1)", "Narrower", show=False, id="columns.narrower"),
        Binding("s", "sort", "Sort by it; again: reverse the order", show=False, id="columns.sort"),
        Binding("0", "usual", "The usual columns", show=False, id="columns.usual"),
    ]

    def __init__(
        self,
        shown: Sequence[Shown],
        sort: tuple[str, bool],
        take: Callable[[Sequence[Shown]], None],
        order: Callable[[str, bool], None],
        fit: Callable[[], Mapping[str, int]],
    ) -> None:
        """``shown``: what was chosen before, if anything. ``take`` and ``order`` are told of each change; ``fit``:
        the ids of those that there is room for, and their cells."""
        super().__init__(id="columns")
        self._take, self._order, self._fit_now = take, order, fit
        self.sort = sort
        self._before: dict[str, ColumnChoice] = {}
        """What those were that Space has changed, for the Space that takes it back."""
        self.rows = self._wishes(shown)
        self._cursor = self.rows[0].field.id

    def _wishes(self, shown: Sequence[Shown]) -> list[ColumnChoice]:
        fields = {each.id: each for each in possible_columns(CLIENT)}
        first = [
            ColumnChoice(fields[one.id], one.asked, one.width)
            for one in wished(CLIENT, shown)
            if one.asked is not False
        ]
        there = {wish.field.id for wish in first}
        return [*first, *(ColumnChoice(each, False, 0) for name, each in fields.items() if name not in there)]

    def key(self, row: ColumnChoice) -> str:
        return row.field.id

    def head(self, width: int) -> Line:
        return ((f"    {'COLUMN':<21}{'CELLS':>6}  ", "head"), ("WHAT IT IS", "head"))

    def row_lines(self, row: ColumnChoice, width: int) -> list[Line]:
        name, reverse = self.sort
        falling = row.field.column is not None and row.field.column.falling
        mark = (" ▼" if falling is not reverse else " ▲") if name == row.field.id else ""
        room = self._fit_now().get(row.field.id)
        here = row.shown and (row.asked is True or room is not None)
        cells = "" if not row.shown else str(row.width or room or "") if here else "wider"
        about, warned = self._about(row, room, here)
        style = "text" if here else "dim"
        return [
            (
                (" [x]" if here else " [·]" if row.shown else " [ ]", "key" if here else "dim"),
                (f" {fit(f'{row.field.heading()}{mark}', 20)}{cells:>6}  ", style),
                (about, "warn" if warned else "dim"),
            )
        ]

    @staticmethod
    def _about(row: ColumnChoice, room: int | None, here: bool) -> tuple[str, bool]:
        """What stands in its last column, and whether that is a warning. ``room``: its cells at this size."""
        if row.shown and not here:
            return f"{row.field.brief}; {_WIDER}", False
        if row.shown and room is None:
            return "no room: hide or narrow another", True
        if room is not None and row.width and row.width != room:
            warned = room < row.width
            return f"{row.width}, {'room for' if warned else 'and what is left:'} {room} here", warned
        return row.field.brief, False

    def about(self, row: ColumnChoice) -> str:
        """What stands in its last column."""
        room = self._fit_now().get(row.field.id)
        return self._about(row, room, row.shown and (row.asked is True or room is not None))[0]

    # Keys.

    def _changed(self, rows: Sequence[ColumnChoice]) -> None:
        self.set_rows(list(rows), context=(self.sort, tuple((w.field.id, w.asked, w.width) for w in rows)))
        self._take([Shown(w.field.id, w.width, w.asked) for w in rows if w.shown or w.field.id in _USUAL])
        self.repaint()  # which of them there is room for is known now

    def action_switch(self) -> None:
        """At its place, and the same key takes it back."""
        rows, at = list(self.rows), self.cursor_index
        row, there = rows[at], self._fit_now()
        before = self._before.pop(row.field.id, None)
        if row.shown and (row.asked or row.field.id in there):
            if not there.keys() - {row.field.id}:
                self.app.notify("one column stays", title="Columns", severity="warning")
                return
            hidden = before if before is not None and before.shown else row._replace(asked=False, width=0)
            self._before[row.field.id] = row
            self._changed([*rows[:at], hidden, *rows[at + 1 :]])
            return
        if before is not None:
            self._changed([*rows[:at], before, *rows[at + 1 :]])
            return
        if not row.shown:
            del rows[at]
            places = [n for n, wish in enumerate(rows) if wish.shown]
            after = place_of(row.field, [rows[n].field for n in places])
            at = places[after] if after < len(places) else places[-1] + 1
            rows.insert(at, row)
        else:
            self._before[row.field.id] = row
        usual = not row.shown and row.field.id in _USUAL
        self._changed([*rows[:at], row._replace(asked=None if usual else True, width=0), *rows[at + 1 :]])
        if usual and row.field.id not in self._fit_now():  # it has no room of its own here
            self._changed([w._replace(asked=True) if w.field.id == row.field.id else w for w in self.rows])

    def action_open(self) -> None:
        self.action_switch()

    def action_shift(self, step: int) -> None:
        rows, at = list(self.rows), self.cursor_index
        beside = range(at + 1, len(rows)) if step > 0 else range(at - 1, -1, -1)
        to = next((n for n in beside if rows[n].shown), None)
        if not rows[at].shown or to is None:
            return
        rows.insert(to, rows.pop(at))
        self._changed(rows)

    def action_widen(self, step: int) -> None:
        rows, at = list(self.rows), self.cursor_index
        row = rows[at]
        if row.shown:
            usual = row.field.column.width if row.field.column is not None else 10
            rows[at] = row._replace(asked=True, width=max(4, min(_WIDEST, (row.width or usual) + step)))
            self._changed(rows)
        else:
            text = f"{row.field.heading()} is hidden and has no width to change: Space shows it"
            self.app.notify(text, title="Columns", severity="warning", markup=False)

    def action_sort(self) -> None:
        row = self.cursor_row
        if row is not None:
            self.sort = row.field.id, not self.sort[1] if self.sort[0] == row.field.id else False
            self._order(*self.sort)
            self.set_rows(self.rows, context=self.sort)

    def action_usual(self) -> None:
        self._take([])
        self._before.clear()
        self.set_rows(self._wishes(()), context=self.sort)


class ColumnsDialog(Dialog):
    """Changes show behind it, and stay; Escape closes it."""

    AUTO_FOCUS: ClassVar[str] = "#columns"
    DEFAULT_CSS = "ColumnsDialog #columns { height: 18; width: 100%; background: $surface; }"

    def __init__(self, panel: ColumnList) -> None:
        super().__init__(Snapshot(0.0))
        self.panel = panel
        self.below = WholeText(panel, panel.about)

    def compose(self) -> ComposeResult:
        yield self.frame(
            "Columns of the clients",
            "Space show/hide · <> move · +- width · s sort · 0 reset · Esc close",
            self.panel,
            self.below,
        )

    def _fit(self, height: int) -> None:
        super()._fit(height)
        longest = max(len(row.field.brief) for row in self.panel.rows)
        most = max(USUAL_WIDTH, longest + _BESIDE)
        self.query_one("#box").styles.max_width = most
        below = self.below.fit(min(most, room_of(self).width) - _AROUND)
        self.panel.styles.height = max(3, min(24, height - 6 - below))

    def show(self) -> None:
        self.panel.repaint()
        self.below.repaint()

    @on(Panel.Moved)
    def _moved(self) -> None:
        self.below.repaint()
