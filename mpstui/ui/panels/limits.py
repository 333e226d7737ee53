"""The limits in force: the daemon's default for servers to come, and each server's."""

from __future__ import annotations

from typing import ClassVar

from mpstui.core.cells import outdated_text
from mpstui.core.model import Daemon, Snapshot
from mpstui.core.text import Line
from mpstui.fields import LIMIT, Limit, Thing, View, limits_of
from mpstui.ui.lines import width_of
from mpstui.ui.panels.table import TablePanel


class LimitsPanel(TablePanel[Limit]):
    """Threads with the SMs they come to, memory for each device, priority, and who has outdated limits."""

    NUMBER: ClassVar[int] = 2
    TITLE: ClassVar[str] = "Limits"
    KIND: ClassVar[str] = "limit"
    THING: ClassVar[Thing[Limit]] = LIMIT
    GUTTER: ClassVar[int] = 3

    def show(self, snapshot: Snapshot, daemon: Daemon) -> None:
        self.view = View.of(snapshot, daemon)
        self.set_rows(limits_of(daemon))

    def key(self, row: Limit) -> int | None:
        return None if row.server is None else row.server.pid

    @property
    def tells(self) -> bool:
        return any(row.outdated for row in self.rows)

    def corner(self) -> Line:
        """The clients that the present limits do not reach; the mark in a row says of which server."""
        count = sum(row.outdated for row in self.rows)
        # Without a frame the headings have the same line.
        return ((outdated_text(count, short=not self._framed), "warn"),) if count else ()

    def brief(self, free: int, most: int) -> Line:
        """Mark and number, where the word would take a heading's place."""
        line = self.corner()
        return tuple((text.rpartition(" ")[0], style) for text, style in line) if width_of(line) > free else line

    def named(self) -> Line:
        """The first heading is its name."""
        return ()
