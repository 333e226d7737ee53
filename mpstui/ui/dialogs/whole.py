"""Below a list: what its row under the cursor says, whole, where the line of that row is cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from mpstui.ui.box import wrapped
from mpstui.ui.lines import Line, LineWidget, width_of
from mpstui.ui.panel import Panel

Row = TypeVar("Row")
_MOST = 3
"""Lines that it takes from the list at most."""


class WholeText(LineWidget, Generic[Row]):
    """As high as the longest of these texts, so that nothing moves with the cursor, and not there where none is cut."""

    DEFAULT_CSS = "WholeText { width: 100%; background: $surface; }"

    def __init__(self, panel: Panel[Row], told: Callable[[Row], str]) -> None:
        super().__init__()
        self._panel, self._told = panel, told

    def fit(self, width: int) -> int:
        """Take the lines that are needed below a list whose rows have so many cells, and say how many."""
        cut = [row for row in self._panel.rows if self._cut(row, width)]
        needed = min(_MOST, max((len(self._text(row, width)) for row in cut), default=0))
        self.display, self.styles.height = bool(needed), needed
        return needed

    def _cut(self, row: Row, width: int) -> bool:
        return any(width_of(line) > width for line in self._panel.row_lines(row, width))

    def _text(self, row: Row, width: int) -> list[Line]:
        return wrapped(self._told(row), width, "text", indent="  ")

    def lines(self, width: int, height: int) -> list[Line]:
        row = self._panel.cursor_row
        return self._text(row, width) if row is not None and self._cut(row, self._panel.inner) else []
