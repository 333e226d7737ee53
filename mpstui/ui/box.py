"""The bordered box, with its scroll bar, that everything on the screens stands in."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from mpstui.core.late import dataclass
from mpstui.core.text import printable
from mpstui.ui.lines import Line, LineWidget, fit, fit_line, width_of

BAR = "│"
"""The mark of a paragraph that is quoted."""
_LONG = 600
"""Characters of a paragraph that are shown at most."""
_COLUMN = " " * 24
"""That of the labels."""


def upper_border(title: Line, corner: Line, width: int, edge: str) -> Line:
    """``╭─ title ───── corner ─╮``; the corner goes where there is no room for it."""
    left: Line = (("╭─ ", edge), *title, (" ", edge))
    right: Line = ((" ", edge), *corner, (" ─╮", edge)) if corner else (("╮", edge),)
    if width_of(left) + width_of(right) > width:
        right = (("╮", edge),)
    gap = width - width_of(left) - width_of(right)
    return (*fit_line((*left, ("─" * max(0, gap), edge)), width - width_of(right), edge), *right)


def lower_border(width: int, edge: str) -> Line:
    """``╰─────╯`` in so many cells of that style."""
    return (("╰" + "─" * (width - 2) + "╯", edge),)


def scroll_bar(height: int, rows: int, visible: int, top: int, *, head: int = 0) -> list[str]:
    """The right border of a box, one sign a line: heavy where the visible part of the rows is, under ``head`` lines."""
    track = ["│"] * height
    if rows > visible:
        size = max(1, (height - head) * visible // rows)
        start = round((height - head - size) * top / (rows - visible)) + head
        track[start : start + size] = ["┃"] * size
    return track


def box(
    title: Line, corner: Line, body: Sequence[Line], width: int, edge: str, track: Sequence[str] = ()
) -> list[Line]:
    """The lines in a box of ``width`` cells; ``track``: its right border, where a scroll bar is in it."""
    inner = width - 2
    return [
        upper_border(title, corner, width, edge),
        *((("│", edge), *fit_line(line, inner), (track[y] if track else "│", edge)) for y, line in enumerate(body)),
        lower_border(width, edge),
    ]


def parts(text: str, room: int) -> list[str]:
    """The text in lines of so many cells; a unit stays with its number, and a name with hyphens is whole."""
    kept = re.sub(r"(?<=\d) (?=%|SM\b|GiB|MiB|s\b)", "\u00a0", text)  # no place for a break
    return [line.replace("\u00a0", " ") for line in textwrap.wrap(kept, room, break_on_hyphens=False)]


def wrapped(text: str, width: int, style: str, first: str = "", indent: str = " ") -> list[Line]:
    """The text in lines of ``width`` cells at most; ``first`` is a mark before it, under which nothing is written
    but a bar, which goes on beside all of it."""
    room = max(8, width - len(indent) - len(first) - 1)
    lines = parts(text, room)
    below = first if first.startswith(BAR) else " " * len(first)
    return [((indent + (below if n else first) + line, style),) for n, line in enumerate(lines)]


class Box(LineWidget):
    """Subclasses give title, corner and body; the keyboard never goes here."""

    def title(self) -> Line:
        raise NotImplementedError

    def corner(self) -> Line:
        """What stands at the right of the upper border."""
        return ()

    def body(self, width: int, height: int) -> list[Line]:
        """What is inside, at most ``height`` lines of ``width`` cells."""
        raise NotImplementedError

    def lines(self, width: int, height: int) -> list[Line]:
        if width < 10 or height < 3:
            return []
        body = self.body(width - 2, height - 2)[: height - 2]
        body += [()] * (height - 2 - len(body))
        return box(self.title(), self.corner(), body, width, "border")


@dataclass(frozen=True, slots=True)
class Para:
    """One paragraph; empty, it is an empty line."""

    text: str = ""
    style: str = "text"
    mark: str = ""
    """Stands before the first line; the others are indented under it."""
    label: str = ""
    """Stands before it in a column of its own."""


def folded(paragraphs: Sequence[Para], width: int) -> list[Line]:
    """Paragraphs as lines of ``width`` cells."""
    lines: list[Line] = []
    for one in paragraphs:
        mark = f"{one.mark} " if one.mark else ""
        if one.label:
            (((first, style),), *rest) = wrapped(printable(one.text, _LONG) or " ", width, one.style, mark, _COLUMN)
            lines += [((fit(f" {one.label}", len(_COLUMN)), "label"), (first[len(_COLUMN) :], style)), *rest]
            continue
        lines += wrapped(printable(one.text, _LONG), width, one.style, mark) if one.text else [()]
    return lines


class TextBox(LineWidget, can_focus=True):
    """Paragraphs in a box, folded to its width; scrolls where they are longer than it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "scroll(1)", "Down", show=False, id="text.down"),
        Binding("k,up", "scroll(-1)", "Up", show=False, id="text.up"),
        Binding("pagedown,ctrl+d", "scroll(10)", "Page down", show=False, id="text.page_down"),
        Binding("pageup,ctrl+u", "scroll(-10)", "Page up", show=False, id="text.page_up"),
        Binding("g,home", "scroll(-10000)", "Begin", show=False, id="text.begin"),
        Binding("G,end", "scroll(10000)", "End", show=False, id="text.end"),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._title: Line = ()
        self._paragraphs: tuple[Para, ...] = ()
        self._top = 0

    def show(self, title: Line, paragraphs: Sequence[Para]) -> None:
        """Replace title and paragraphs; another title goes back to the beginning."""
        if title != self._title:
            self._top = 0
        self._title, self._paragraphs = title, tuple(paragraphs)
        self.repaint()

    def needs(self, width: int) -> int:
        """Lines for everything, the border with them."""
        return 2 + len(folded(self._paragraphs, width - 2))

    def lines(self, width: int, height: int) -> list[Line]:
        if width < 10 or height < 3:
            return []
        body, room = folded(self._paragraphs, width - 2), height - 2
        self._top = max(0, min(self._top, len(body) - room))
        track = scroll_bar(room, len(body), room, self._top)
        shown = body[self._top : self._top + room] + [()] * (room - len(body))
        corner: Line = (("⇥ scroll", "dim"),) if len(body) > room else ()
        return box(self._title, corner, shown, width, "border-focus" if self.has_focus else "border", track)

    def action_scroll(self, step: int) -> None:
        self._top = max(0, self._top + step)
        self.repaint()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_scroll(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_scroll(-3)

    def on_focus(self) -> None:
        self.repaint()

    def on_blur(self) -> None:
        self.repaint()
