"""A widget that keeps its lines as values, and repaints those that changed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar, Final, cast

from rich.cells import cell_len, chop_cells, get_character_cell_size, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.filter import LineFilter
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from mpstui.core.text import Line as Line
from mpstui.core.text import Span as Span


def width_of(line: Line) -> int:
    """Cells that a line takes. Span by span, as Rich remembers the width of thousands of texts: whole lines are long,
    and seldom come again."""
    return sum([len(text) if text.isascii() else cell_len(text) for text, _ in line])


def pointed(strip: Strip) -> Strip:
    """With the sign of the cursor in its first cell, where that is blank: a ground alone is not seen without colour."""
    first, rest = strip.crop(0, 1), strip.crop(1)
    if first.text != " ":
        return strip
    return Strip.join([Strip([Segment("▸", each.style) for each in first], 1), rest])


def fit(text: str, width: int, align: str = "<") -> str:
    """Exactly ``width`` cells; a text that was cut ends in ``…``, so that half a number is not taken for all of it. Of
    blanks nothing is missed."""
    if width <= 0:
        return ""
    length = len(text) if text.isascii() else cell_len(text)
    if length > width:
        if text.isascii() and not text[width:].strip():
            return text[:width]
        return set_cell_size(set_cell_size(text, width - 1).rstrip() + "…", width)
    return text + " " * (width - length) if align == "<" else " " * (width - length) + text


def fit_line(line: Line, width: int, style: str = "text") -> Line:
    """Exactly ``width`` cells: padded in ``style``, or cut with an ellipsis."""
    room = width_of(line)
    if room == width:
        return line
    if room < width:
        return (*line, (" " * (width - room), style))
    out: list[Span] = []
    room = width
    for number, (text, name) in enumerate(line):
        cells = cell_len(text)
        if cells >= room:
            more = any(not later.isspace() for later, _ in line[number + 1 :] if later)
            out.append((fit(text + "…" if more else text, room), name))
            break
        out.append((text, name))
        room -= cells
    return tuple(out)


_HANG: Final = 16
"""Cells that a text has at least where it goes on below itself."""
_WORD: Final = re.compile(r"\S+\s*|\s+")


def hung(before: Line, text: Line, width: int) -> list[Line]:
    """A text behind what stands before it: in one line, or going on below itself; cut where it would be a column of
    words."""
    start = width_of(before)
    room = width - start
    if width_of(text) <= room or room < _HANG:
        return [(*before, *text)]
    out: list[list[Span]] = [[]]
    free = room
    for told, style in text:
        for word in _WORD.findall(told):
            cells = cell_len(word.rstrip())
            if cells > free and out[-1]:
                out.append([])
                free = room
            for n, part in enumerate(chop_cells(word, room) if cells > room else (word,)):
                if n:
                    out.append([])
                    free = room
                out[-1].append((part, style))
                free -= cell_len(part)
    blank = " " * start
    lines = [
        tuple((part.rstrip() if at == len(line) - 1 else part, s) for at, (part, s) in enumerate(line)) for line in out
    ]
    return [(*before, *lines[0]), *(((blank, "text"), *line) for line in lines[1:])]


def merged(line: Line) -> Line:
    """The same with neighbours of one style as one: whatever is done with a line is done for each of its parts. A line
    that has none is given back itself, and is known for the one that is shown."""
    out: list[Span] = []
    for span in line:
        if out and out[-1][1] == span[1]:
            out[-1] = out[-1][0] + span[0], span[1]
        else:
            out.append(span)
    return tuple(out) if len(out) < len(line) else line


def justify(left: Line, right: Line, width: int, style: str = "text") -> Line:
    """Left and right at the ends of ``width`` cells; the left one gives way where there is no room for both."""
    room = width - width_of(right)
    if room <= 0:
        return fit_line(right, width, style)
    return (*fit_line(left, room, style), *right)


_CSS = """
StyledScreen {
    & > .ui--dim { color: $mps-muted; }
    & > .ui--label { color: $mps-muted; }
    & > .ui--good { color: $mps-ok; }
    & > .ui--warn { color: $mps-warn; }
    & > .ui--bad { color: $mps-error; text-style: bold; }
    & > .ui--accent { color: $accent; }
    & > .ui--user { color: $secondary; }
    & > .ui--bold { text-style: bold; }
    & > .ui--brand { color: $primary; text-style: bold; }
    & > .ui--border { color: $mps-edge; }
    & > .ui--border-focus { color: $primary; }
    & > .ui--title { text-style: bold; }
    & > .ui--head { color: $mps-muted; }
    & > .ui--bar { background: $surface; }
    & > .ui--track { color: $mps-edge; }
    & > .ui--meter { color: $mps-bar; }
    & > .ui--meter-memory { color: $mps-bar-memory; }
    & > .ui--meter-high { color: $mps-bar-high; }
    & > .ui--cursor { background: $mps-cursor; }
    & > .ui--cursor-blur { background: $mps-cursor-blur; }
    & > .ui--chosen { color: $accent; text-style: bold; }
    & > .ui--marked { background: $mps-chosen; }
    & > .ui--badge-loud { background: $mps-warn; color: $background; text-style: bold; }
    & > .ui--badge { background: $mps-badge; color: $mps-badge-text; text-style: bold; }
    & > .ui--key { color: $primary; text-style: bold; }
    & > .ui--key-off { color: $mps-off; }
    & > .ui--tab { background: $mps-cursor; text-style: bold; }
    &:ansi {
        & > .ui--dim, & > .ui--label, & > .ui--head, & > .ui--track, & > .ui--key-off {
            color: ansi_default; text-style: dim;
        }
        & > .ui--border { color: ansi_default; text-style: dim; }
        & > .ui--cursor { background: ansi_default; color: ansi_default; text-style: reverse; }
        & > .ui--cursor-blur { background: ansi_default; text-style: bold; }
        & > .ui--marked { background: ansi_default; text-style: underline; }
        & > .ui--bar { background: ansi_default; color: ansi_default; text-style: underline; }
        & > .ui--badge-loud { background: ansi_default; color: $mps-warn; text-style: bold reverse; }
        & > .ui--badge { background: ansi_default; color: ansi_default; text-style: bold reverse; }
        & > .ui--tab { background: ansi_default; text-style: bold reverse; }
    }
    & ToastRack { margin-bottom: 1; max-height: 50%; overflow-y: hidden; }
    & Toast { width: 100%; max-width: 100%; margin-top: 0; padding: 0 1; }
}
"""
"""Styles by name; only theme variables, so that every theme works, and words and symbols where there is no colour."""


class StyledScreen(Screen[None]):
    """Holds the styles for all painted widgets on it: Textual works them out once, not again for each widget."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"ui--text", *re.findall("ui--[a-z-]+", _CSS)}
    DEFAULT_CSS = _CSS


class Ground(Widget):
    """What shows nothing of its own but a background: others lie on it. Textual works out border, padding and content
    of each of its lines again, with each repaint of what lies on it."""

    def render_lines(self, crop: Region) -> list[Strip]:
        background = self.background_colors[1]
        strip = Strip.blank(crop.width, Style(bgcolor=background.rich_color))
        for each in self.get_line_filters():
            strip = strip.apply_filter(each, background)
        return [strip] * crop.height


@lru_cache(maxsize=1024)
def _apart(text: str) -> tuple[str, ...]:
    """A text, or each of its letters with the marks on it where one has some. Where a dialog's edge cuts a line Rich
    would leave a mark to what stands behind the cut, and it would be drawn over the dialog's frame."""
    begins = [at for at, char in enumerate(text) if not at or get_character_cell_size(char)]
    return (text,) if len(begins) == len(text) else tuple(text[a:b] for a, b in pairwise([*begins, len(text)]))


class LineWidget(Widget):
    """Subclasses give ``lines()``; ``repaint()`` compares them with what is shown and refreshes what differs."""

    DEFAULT_CSS = "LineWidget { background: $background; color: $foreground; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._lines: list[Line] = []
        self._strips: list[Strip | None] = []
        """Of each line, as it is written: filtered, and of the widget's width."""
        self._made_for: tuple[int, Sequence[LineFilter]] = (0, ())
        """The width and the filters of these."""
        self._resolved: dict[str, Style] = {}
        self._written: dict[str, Style | None] = {}
        """By the same names, as the filters leave them."""

    def lines(self, width: int, height: int) -> list[Line]:
        """What to show, one entry for each line of the widget."""
        raise NotImplementedError

    def repaint(self) -> None:
        """Work out the lines again, and refresh those that are not what is shown."""
        width, height = self.size
        if not width or not height or not self.is_attached:
            return
        fresh = self.lines(width, height)[:height]
        fresh += [((" " * width, "text"),)] * (height - len(fresh))
        shown = self._lines
        if len(shown) != height:
            self._lines = [fit_line(line, width) for line in fresh]
            self._strips = [None] * height
            self.refresh()
            return
        changed: list[int] = []
        for y, line in enumerate(fresh):
            if line == shown[y]:
                shown[y] = line  # which is found faster where it comes again
            elif (fitted := fit_line(line, width)) != shown[y]:
                shown[y] = fitted
                changed.append(y)
        for y in changed:
            self._strips[y] = None
        if changed:
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines as they are: painted widgets draw their own borders, and Textual's would cost ten times as much."""
        width, filters = made_for = self.size.width, self.get_line_filters()
        if made_for != self._made_for:
            self._made_for, self._strips = made_for, [None] * len(self._lines)
            self._written.clear()
        known = self._strips
        for y in crop.line_range:
            if y >= len(known):
                known += [None] * (y + 1 - len(known))
            if known[y] is None:
                known[y] = self._strip(y, width, filters)
        strips = cast("list[Strip]", known[crop.y : crop.bottom])
        return strips if crop.column_span == (0, width) else [strip.crop(*crop.column_span) for strip in strips]

    def _strip(self, y: int, width: int, filters: Sequence[LineFilter]) -> Strip:
        """A line as it is written. Filters alter styles, whatever the text: each style is filtered once."""
        segments, line = [], self._lines[y] if y < len(self._lines) else ((" " * width, "text"),)
        for text, name in line:
            if text:
                if name not in self._written:
                    self._written[name] = self._style_written(name, filters)
                parts = (text,) if text.isascii() else _apart(text)
                segments += [Segment(part, self._written[name]) for part in parts]
        # Before the widget has heard of its size the lines have the width of before: what is beside it would move.
        return Strip(segments, width_of(line)).adjust_cell_length(width)

    def _style_written(self, name: str, filters: Sequence[LineFilter]) -> Style | None:
        segments, background = [Segment(" ", self._style(name))], self.background_colors[1]
        for each in filters:
            segments = each.apply(segments, background)
        return segments[0].style

    def on_resize(self) -> None:
        self._lines, self._strips = [], []
        self.repaint()

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self._forget_styles())

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._forget_styles()

    def _forget_styles(self) -> None:
        self._resolved.clear()
        self._written.clear()
        self._strips = [None] * len(self._strips)
        self.refresh()

    def _style(self, names: str) -> Style:
        style = self._resolved.get(names)
        if style is None:
            style = self._resolved[names] = self._resolve(names)
        return style

    def _resolve(self, names: str) -> Style:
        background = self.background_colors[1]
        foreground = self.styles.color
        attributes = Style()
        for name in names.split("+"):
            styles = self.screen.get_component_styles(f"ui--{name}")
            if styles.has_rule("background") and styles.background.a:
                background = background + styles.background
            if styles.has_rule("color"):
                foreground = styles.color
            if styles.has_rule("text_style"):
                attributes += styles.text_style
        if attributes.reverse:
            attributes += Style(dim=False)
        return Style(color=(background + foreground).rich_color, bgcolor=background.rich_color) + attributes
