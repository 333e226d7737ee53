"""One of a list, taken by Enter: what the clients are grouped or sorted by, whose are shown."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar, NamedTuple

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from mpstui.core.model import Snapshot
from mpstui.core.text import Line, printable
from mpstui.ui.dialogs.base import USUAL_WIDTH, Dialog
from mpstui.ui.dialogs.whole import WholeText
from mpstui.ui.layout import room_of
from mpstui.ui.lines import fit
from mpstui.ui.panel import Panel

GONE = "gone"
"""What is said of one that was there when the list was opened."""
_UNCUT = 1000
"""Cells in which no row is cut."""
_AROUND = 10
"""Cells of the dialog beside its list."""


class Pick(NamedTuple):
    """One of those that can be taken."""

    value: Hashable
    label: str
    detail: str = ""
    mark: str = " "
    """One character before it: ``●`` for the one that holds now."""


class PickList(Panel[Pick]):
    """The cursor begins on the one that holds now."""

    KIND: ClassVar[str] = "pick"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "open", "Choose", show=False, id="open")]

    def __init__(self, picks: Sequence[Pick]) -> None:
        super().__init__(id="picks")
        self._index = next((at for at, pick in enumerate(picks) if pick.mark != " "), 0)
        self._cursor = self.key(picks[self._index]) if picks else None
        self._width = 0
        self.widest = 0
        """Cells of the longest row that there was."""
        self.take(picks)

    def take(self, picks: Sequence[Pick]) -> None:
        """The same rows in the same places with what they say now: who chooses reads them. New ones come last; one that
        is no longer among ``picks`` stays, and says so."""
        now = {pick.value: pick for pick in picks}
        known = [now.pop(row.value, row._replace(detail=GONE)) for row in self.rows]
        rows = (*known, *now.values())
        self._width = max((self._width, *(cell_len(printable(row.label)) for row in rows)))
        details = max((cell_len(printable(row.detail)) for row in rows), default=0)
        self.widest = max(self.widest, self._width + details + 6)
        self.set_rows(rows)

    def key(self, row: Pick) -> Hashable:
        return row.value

    def bar(self, width: int) -> None:
        """The title of the dialog is enough."""

    def empty(self) -> str:
        return "there is nothing to choose from"

    def row_lines(self, row: Pick, width: int) -> list[Line]:
        label = fit(printable(row.label), min(self._width, max(8, width - 24)))
        return [((f"  {row.mark} ", "accent"), (f"{label}  ", "text"), (printable(row.detail), "dim"))]


class PickDialog(Dialog):
    """Enter takes what the cursor is on and closes it; Escape changes nothing."""

    AUTO_FOCUS: ClassVar[str] = "#picks"
    DEFAULT_CSS = """
    PickDialog #picks { width: 100%; background: $surface; }
    """

    def __init__(self, title: str, picks: Callable[[], Sequence[Pick]], take: Callable[[Hashable], object]) -> None:
        """``picks`` is asked again with each snapshot; ``take`` gets the value that was taken, when the dialog has
        gone."""
        super().__init__(Snapshot(0.0))
        self._title, self._picks, self._take = title, picks, take
        self.panel = PickList(picks())
        self.below = WholeText(self.panel, lambda row: printable(row.detail))

    def compose(self) -> ComposeResult:
        yield self.frame(self._title, "Enter choose · ↑↓ move · Esc close", self.panel, self.below)

    def on_mount(self) -> None:
        super().on_mount()
        self.panel.frame(False)

    def _fit(self, height: int) -> None:
        super()._fit(height)
        most = max(USUAL_WIDTH, self.panel.widest + _AROUND)
        self.query_one("#box").styles.max_width = most
        width = min(most, room_of(self).width) - _AROUND
        needed, room = self.panel.needs(width), height - 6
        below = self.below.fit(width if needed > room else _UNCUT)
        self.panel.styles.height = max(1, min(needed, room - below))

    def show(self) -> None:
        rows, widest = len(self.panel.rows), self.panel.widest
        self.panel.take(self._picks())
        if (rows, widest) != (len(self.panel.rows), self.panel.widest):
            self._fit(room_of(self).height)

    @on(Panel.Moved)
    def _moved(self) -> None:
        self.below.repaint()

    @on(Panel.Opened)
    def _taken(self, message: Panel.Opened) -> None:
        message.stop()
        self.dismiss(None)
        self._take(message.identity)
