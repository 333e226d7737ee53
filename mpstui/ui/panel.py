"""A bordered list with a cursor that is kept by identity, drawn line by line."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, ClassVar, Final, Generic, TypeVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from mpstui.core.late import dataclass
from mpstui.core.text import as_shown
from mpstui.ui.box import lower_border, scroll_bar, upper_border, wrapped
from mpstui.ui.lines import Line, LineWidget, fit_line, hung, merged, width_of
from mpstui.ui.typeahead import opens

Row = TypeVar("Row")
SUPERSCRIPT = "⁰¹²³⁴⁵⁶⁷⁸⁹"
_WHOLE = 400
"""Cells of a line that is looked through: its texts are hardly cut there."""
NOT_FOUND = "no row has that; Esc shows all"
NO_ROW: Final = "there is no row"


@lru_cache(maxsize=16)
def _blank(width: int) -> Line:
    """One and the same empty line for each width."""
    return ((" " * width, "text"),)


class Panel(LineWidget, Generic[Row], can_focus=True):
    """Rows of one kind. The cursor is a row's key: sorting, insertion and removal never move it to another row."""

    NUMBER: ClassVar[int] = 0
    """The key that goes to it, in its border; 0: none does."""
    WHOLE_BAND: ClassVar[bool] = True
    """Whether the cursor is seen on all lines of a row. A bar keeps its colours: only its first line is marked."""
    WRAPS: ClassVar[bool] = True
    """Whether a line that is too long goes on below itself, where lines are free."""
    TITLE: ClassVar[str] = ""
    KIND: ClassVar[str] = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "Down", show=False, id="move.down"),
        Binding("k,up", "move(-1)", "Up", show=False, id="move.up"),
        Binding("g,home", "edge(-1)", "First", show=False, id="move.first"),
        Binding("G,end", "edge(1)", "Last", show=False, id="move.last"),
        Binding("pagedown,ctrl+d", "page(1)", "Page down", show=False, id="move.page_down"),
        Binding("pageup,ctrl+u", "page(-1)", "Page up", show=False, id="move.page_up"),
        Binding("enter", "open", "Details", show=False, id="open"),
    ]
    ON_ROWS: ClassVar[frozenset[str]] = frozenset({"open"})
    """Its actions that are for a row, or several."""

    @dataclass
    class Opened(Message):
        """The user asked for the details of a row."""

        kind: str
        identity: Hashable

    @dataclass
    class Moved(Message):
        """The cursor is on another row."""

        panel: Panel[Any]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows: Sequence[Row] = ()
        self.wanted = ""
        """What rows have to say to be shown, as the user typed it."""
        self._given: Sequence[Row] = ()
        self._cursor: Hashable | None = None
        self._index = 0
        self._top = 0
        self._pressed: tuple[Hashable, Hashable] = None, None
        """The rows under the last two presses of the mouse; None where there was none."""
        self._lines_per_row = 1
        self._rows_fit = 1
        """Rows that there was room for when it was painted last."""
        self._framed = True
        self._drawn_with: object = None
        self._drawn: dict[Hashable, tuple[Row, Hashable, list[Line]]] = {}
        self._heights: list[int] = []
        """Of the rows from the first on, the lines that each has, where one has more than the usual ones: all are in
        view then."""
        self._edged: list[tuple[Line, str, str, Line]] = []

    # What a subclass gives.

    def key(self, row: Row) -> Hashable:
        """The identity of a row."""
        raise NotImplementedError

    def row_lines(self, row: Row, width: int) -> list[Line]:
        """The lines of one row."""
        raise NotImplementedError

    def whole(self, row: Row, width: int) -> list[Line]:
        """The same with nothing cut: what is too long goes on below its last part."""
        told: list[Line] = []
        for line in self.row_lines(row, width):
            told += hung(line[:-1], line[-1:], width) if width_of(line) > width else [line]
        return told

    def needs(self, width: int) -> int:
        """Lines in which nothing of its rows is cut, and one where there is none."""
        return sum(len(self.whole(row, width)) for row in self.rows) or 1

    def stamp(self, row: Row, width: int) -> Hashable:
        """All that goes into a row's lines while its panel's context is the same.

        None, where that is not known: its lines are made again each time.
        """
        return None

    def head(self, width: int) -> Line | None:
        """The line with the column names, if there is one."""
        return None

    def title(self) -> Line:
        return ((self.TITLE, "title"),)

    def corner(self) -> Line:
        """What stands at the right of the upper border."""
        return ()

    def bar(self, width: int) -> Line | None:
        """Where there is no frame: the one line over the rows that says which panel this is, if there is one."""
        number: Line = ((SUPERSCRIPT[self.NUMBER], "key"),) if self.NUMBER else ()
        edge = "border-focus" if self.has_focus_within else "border"
        left: Line = (("─", edge), *number, *self.title(), (" ", edge))
        right: Line = ((" ", edge), *corner, (" ", edge)) if (corner := self.corner()) else ()
        gap = width - width_of(left) - width_of(right)
        return fit_line((*left, ("─" * max(0, gap), edge), *right), width, edge)

    def frame(self, framed: bool) -> None:
        """With or without a frame."""
        if framed != self._framed:
            self._framed = framed
            self._drawn.clear()
            self._edged.clear()
            self.repaint()

    @property
    def above(self) -> int:
        """Lines over the first row."""
        if self._framed:
            return 1 + (self.head(self.inner) is not None)
        return int(self.bar(self.inner) is not None)

    @property
    def inner(self) -> int:
        """Cells that a row has: without a frame the scroll bar alone stands beside it."""
        return self.size.width - (2 if self._framed else 1)

    def empty(self) -> str:
        """What to say where there are no rows."""
        return ""

    def text_of(self, row: Row) -> str:
        """What a filter looks through: all that the row's lines say."""
        return " ".join(text for line in self.row_lines(row, _WHOLE) for text, _ in line)

    # The filter.

    def want(self, text: str) -> None:
        """Show only the rows that have all words of ``text``, and none of those behind a ``!``."""
        if text != self.wanted:
            self.wanted = text
            self.set_rows(self._given, self._lines_per_row, self._drawn_with)

    def _passing(self, rows: Sequence[Row]) -> Sequence[Row]:
        words = [(word.lstrip("!").lower(), word.startswith("!")) for word in map(as_shown, self.wanted.split())]
        texts = ((row, self.text_of(row).lower()) for row in rows)
        return [row for row, text in texts if all((word in text) != out for word, out in words if word)]

    @property
    def hides_all(self) -> bool:
        """Whether there are rows, and the filter leaves none."""
        return bool(self.wanted and self._given) and not self.rows

    def _filtered(self) -> Line:
        """Behind the title: what is looked for, and of how many rows those are that have it."""
        found = f" {len(self.rows)} of {len(self._given)}"
        return ((f"  / {self.wanted}", "accent"), (found, "dim")) if self.wanted else ()

    # The cursor.

    @property
    def cursor_row(self) -> Row | None:
        return self.rows[self._index] if self.rows else None

    @property
    def cursor(self) -> Hashable | None:
        """The identity of the row under the cursor."""
        return self._cursor

    @property
    def cursor_index(self) -> int:
        return self._index

    @property
    def top(self) -> int:
        """The index of the first row that is shown."""
        return self._top

    def begin_at(self, key: Hashable) -> None:
        """The row that the cursor is on when there are rows."""
        self._cursor = key

    def set_rows(self, rows: Sequence[Row], lines_per_row: int = 1, context: object = None) -> None:
        """Show these rows. The cursor stays on its row; if that is gone, it goes to the nearest one.

        ``context`` is what all rows are drawn with: where it differs from the one before, all are drawn again.
        """
        if (lines_per_row, context) != (self._lines_per_row, self._drawn_with):
            self._drawn_with = context
            self._drawn.clear()
        self._given = rows
        if self.wanted:
            rows = self._passing(rows)
        self.rows, self._lines_per_row = rows, lines_per_row
        last = max(0, len(rows) - 1)
        index = min(self._index, last)
        if rows and self.key(rows[index]) != self._cursor:
            index = next((i for i, row in enumerate(rows) if self.key(row) == self._cursor), index)
        self._index = index
        self._cursor = self.key(rows[index]) if rows else self._cursor
        self.repaint()

    def move_to(self, index: int) -> None:
        if not self.rows:
            return
        index = max(0, min(index, len(self.rows) - 1))
        changed = index != self._index
        self._index, self._cursor = index, self.key(self.rows[index])
        self.repaint()
        if changed:
            self.post_message(self.Moved(self))

    def action_move(self, step: int) -> None:
        self.move_to(self._index + step)

    def action_edge(self, direction: int) -> None:
        self.move_to(0 if direction < 0 else len(self.rows) - 1)

    def action_page(self, direction: int) -> None:
        self.move_to(self._index + direction * max(1, self._visible_rows() - 1))

    @opens
    def action_open(self) -> None:
        if (row := self.cursor_row) is not None:
            self.post_message(self.Opened(self.KIND, self.key(row)))

    def why_not(self, action: str) -> str | None:
        """Why the key of an action does nothing now; None where it does something."""
        return NO_ROW if action in self.ON_ROWS and not self.rows else None

    def say(self, text: str) -> None:
        """A warning: how a key is told that it does nothing."""
        self.app.notify(text, title=self.TITLE, severity="warning", markup=False)

    # Painting.

    def _body(self) -> int:
        """Lines between the borders and under the head."""
        return max(0, self.size.height - self.above - self._framed)

    def _visible_rows(self) -> int:
        return max(1, self._body() // self._lines_per_row)

    def lines(self, width: int, height: int) -> list[Line]:
        # The size is asked for once: Textual looks for the widget on its screen each time.
        inner = width - (2 if self._framed else 1)
        if inner < 4 or height < (3 if self._framed else 1):
            return []
        head = self.head(inner) if self._framed else self.bar(inner)
        room = height - 2 if self._framed else height
        visible = self._rows_fit = max(1, (room - (head is not None)) // self._lines_per_row)
        self._top = max(0, min(self._top, len(self.rows) - visible + self.spare, self._index))
        self._top = max(self._top, self._index - visible + 1)
        body: list[Line] = [] if head is None else [fit_line(head, inner)]
        shown = self._visible(range(self._top, min(self._top + visible, len(self.rows))), inner)
        body += self._spread(shown, inner, room - len(body))
        if not self.rows and (said := NOT_FOUND if self.hides_all else self.empty()):
            text = wrapped(said, inner, "dim", indent="  ")[: room - len(body)]
            body += [fit_line(line, inner) for line in text]
        body += [_blank(inner)] * (room - len(body))
        top = min(self._top, max(0, len(self.rows) - visible))
        track = scroll_bar(room, len(self.rows), visible, top, head=head is not None)
        return self._in_frame(body, track, width, height) if self._framed else self._beside_track(body[:room], track)

    @property
    def spare(self) -> int:
        """Rows at its end that may stay empty."""
        return 0

    def _beside_track(self, body: list[Line], track: list[str]) -> list[Line]:
        """Without a frame: nothing but the mark of the visible part at the right edge."""
        style = "border-focus" if self.has_focus_within else "border"
        before, self._edged = self._edged, []
        out: list[Line] = []
        for y, line in enumerate(body):
            mark = track[y] if track[y] != "│" else " "
            known = before[y] if y < len(before) else None
            if known is None or known[0] is not line or known[1:3] != (style, mark):
                known = line, style, mark, (*line, (mark, style))
            self._edged.append(known)
            out.append(known[3])
        return out

    def _in_frame(self, body: list[Line], track: list[str], width: int, height: int) -> list[Line]:
        edge = "border-focus" if self.has_focus_within else "border"
        number: Line = ((SUPERSCRIPT[self.NUMBER], "key"),) if self.NUMBER else ()
        out = [upper_border((*number, *self.title(), *self._filtered()), self.corner(), width, edge)]
        before, self._edged = self._edged, []
        for y, line in enumerate(body[: height - 2]):
            frame = before[y] if y < len(before) else None
            if frame is None or frame[0] is not line or frame[1:3] != (edge, track[y]):
                frame = line, edge, track[y], (("│", edge), *line, (track[y], edge))
            self._edged.append(frame)
            out.append(frame[3])
        out.append(lower_border(width, edge))
        return out

    def _visible(self, indices: range, inner: int) -> list[Line]:
        """The lines of these rows; the same objects as before where nothing that they are made of has changed."""
        before, self._drawn = self._drawn, {}
        lines: list[Line] = []
        for index in indices:
            row = self.rows[index]
            changing = self.stamp(row, inner)
            stamp = changing, inner, self._band(index)
            drawn = before.get(self.key(row)) if changing is not None else None
            if drawn is None or drawn[1] != stamp:
                drawn = row, stamp, [merged(fit_line(line, inner)) for line in self._decorated(index, inner)]
            self._drawn[self.key(row)] = drawn
            lines += drawn[2]
        return lines

    def _spread(self, shown: list[Line], inner: int, room: int) -> list[Line]:
        """The lines that are shown, and of rows that are cut what is missing, from the first on as far as lines are
        free."""
        self._heights = []
        usual, free = self._lines_per_row, room - len(shown)
        if not self.WRAPS or free <= 0 or len(shown) != len(self.rows) * usual:
            return shown
        parts = [shown[at : at + usual] for at in range(0, len(shown), usual)]
        for index, part in enumerate(parts):
            if any("…" in text for line in part for text, _ in line):
                more = len(whole := self.whole(self.rows[index], inner)) - usual
                if 0 < more <= free:
                    parts[index] = [merged(fit_line(line, inner)) for line in self._marked(index, whole, inner)]
                    free -= more
        if free < room - len(shown):
            self._heights = [len(part) for part in parts]
        return [line for part in parts for line in part]

    def _band(self, index: int) -> str | None:
        """The style of the cursor, if it is seen on this row."""
        if index != self._index:
            return None
        within = self.has_focus_within
        return "cursor" if within else "cursor-blur" if self.marks_cursor else None

    @property
    def marks_cursor(self) -> bool:
        """Whether it is seen also while the keys are for something else."""
        return self.KIND == "client"

    def _decorated(self, index: int, inner: int) -> list[Line]:
        return self._marked(index, self.row_lines(self.rows[index], inner), inner)

    def _marked(self, index: int, lines: list[Line], inner: int) -> list[Line]:
        band = self._band(index)
        if band is None:
            return lines
        marked: list[Line] = []
        for number, line in enumerate(lines):
            if number and not self.WHOLE_BAND:
                marked.append(line)
                continue
            text, name = line[0]
            if number == 0 and text.startswith(" "):
                line = (("▸▹"[band == "cursor-blur"] + text[1:], name if name != "text" else "accent"), *line[1:])
            marked.append(tuple((t, f"{n}+{band}") for t, n in fit_line(line, inner)))
        return marked

    # The mouse and the focus.

    def row_at(self, y: int) -> int | None:
        """The index of the row at a line of the widget."""
        line = y - self.above
        if self._heights:
            ends = accumulate(self._heights)
            return next((index for index, end in enumerate(ends) if 0 <= line < end), None)
        index = self._top + line // self._lines_per_row
        return index if line >= 0 and index < len(self.rows) and y < self.size.height - self._framed else None

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Which row it is that is pressed: at the release another one may stand there."""
        index = self.row_at(event.y)
        self._pressed = self._pressed[1], None if index is None else self.key(self.rows[index])

    def clicked(self) -> int | None:
        """The index of the row that was pressed; None where there was none, or it has gone since."""
        pressed = self._pressed[1]
        return next((index for index, row in enumerate(self.rows) if self.key(row) == pressed), None)

    def on_click(self, event: events.Click) -> None:
        index = self.clicked()
        if index is None:
            return
        self.move_to(index)
        if event.chain > 1 and self._pressed[0] == self._pressed[1]:
            self.action_open()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_move(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_move(-3)

    def on_focus(self) -> None:
        self.repaint()

    def on_blur(self) -> None:
        self.repaint()
