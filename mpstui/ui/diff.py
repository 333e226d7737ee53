"""Writes only the cells that differ from what the terminal already shows.

Textual sends a changed region again from the left edge of the widget it lies in; over SSH that is most of the traffic.
``ScreenDiff`` keeps the cells that were last written and turns Textual's updates into the smallest sequence of cursor
moves, colours and text.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from rich.cells import get_character_cell_size
from rich.color import ColorSystem
from rich.console import Console
from textual.strip import Strip

from mpstui.ui.private import Update, colours_of, sgr_of

_MERGE_GAP = 4
"""Unchanged cells that are cheaper to write again than to jump over."""
_narrow: set[str] = set(map(chr, range(32, 127)))
"""Characters known to take one cell."""


@lru_cache(maxsize=2048)
def _parts(sgr: str) -> tuple[str, str, str]:
    """Attributes, foreground and background of an SGR parameter string."""
    attributes: list[str] = []
    colours = {"3": "", "4": ""}
    codes = iter(sgr.split(";") if sgr else ())
    for code in codes:
        if code in {"38", "48"}:
            mode = next(codes, "")
            rest = [next(codes, "") for _ in range(3 if mode == "2" else 1)]
            colours[code[0]] = ";".join([code, mode, *rest])
        elif code.isdigit() and (30 <= int(code) <= 37 or 90 <= int(code) <= 97):
            colours["3"] = code
        elif code.isdigit() and (40 <= int(code) <= 47 or 100 <= int(code) <= 107):
            colours["4"] = code
        elif code not in {"39", "49"}:
            attributes.append(code)
    return ";".join(attributes), colours["3"], colours["4"]


@lru_cache(maxsize=8192)
def transition(old: str, new: str) -> str:
    """The shortest sequence that takes the terminal from one SGR state to another."""
    if old == new:
        return ""
    if not new:
        return "\x1b[0m"
    old_attributes, old_fg, old_bg = _parts(old)
    new_attributes, new_fg, new_bg = _parts(new)
    if old_attributes and old_attributes != new_attributes:
        return f"\x1b[0;{new}m"
    codes = [] if old_attributes == new_attributes else [new_attributes]
    if old_fg != new_fg:
        codes.append(new_fg or "39")
    if old_bg != new_bg:
        codes.append(new_bg or "49")
    return f"\x1b[{';'.join(codes)}m" if codes else ""


def _add_cells(cells: list[str], text: str) -> None:
    """Append one string for each cell; the second cell of a wide character is empty."""
    if _narrow.issuperset(text):
        cells += text
        return
    for char in text:
        width = get_character_cell_size(char)
        if width == 1:
            _narrow.add(char)
            cells.append(char)
        elif width == 2:
            cells += [char, ""]
        elif cells:
            cells[-1 if cells[-1] or len(cells) < 2 else -2] += char


class ScreenDiff:
    """The cells on the terminal, and the way from there to Textual's next update."""

    def __init__(self) -> None:
        self._width = 0
        self._chars: list[list[str] | None] = []
        self._sgrs: list[list[str]] = []

    def reset(self) -> None:
        """Forget what is on the terminal: the next update is written whole."""
        self._chars, self._sgrs, self._width = [], [], 0

    def sequence(self, update: Update, console: Console) -> str | None:
        """The terminal sequence for ``update``, empty where nothing changed; None for a part of a screen that is not
        known."""
        if update.size is not None and update.size != (self._width, len(self._chars)):
            self._width = update.size.width
            self._chars = [None] * update.size.height
            self._sgrs = [[] for _ in range(update.size.height)]
        if not self._chars:
            return None
        return self._write(update.spans, colours_of(console))

    def _write(self, spans: Iterable[tuple[int, int, list[Strip]]], system: ColorSystem) -> str:
        out: list[str] = []
        sgr = ""
        for y, x, strips in spans:
            if y >= len(self._chars):
                continue
            chars: list[str] = []
            sgrs: list[str] = []
            for strip in strips:
                for text, style, control in strip:
                    if control or not text:
                        continue
                    _add_cells(chars, text)
                    ansi = "" if style is None else sgr_of(style, system)
                    sgrs += [ansi] * (len(chars) - len(sgrs))
            del chars[self._width - x :], sgrs[self._width - x :]
            sgr = self._write_span(out, y, x, chars, sgrs, sgr)
        if sgr:
            out.append("\x1b[0m")
        return "".join(out)

    def _write_span(self, out: list[str], y: int, x: int, chars: list[str], sgrs: list[str], sgr: str) -> str:
        """Write what differs of one span; returns the SGR state that the terminal is left in."""
        line = self._chars[y]
        if line is None:
            line = self._chars[y] = ["\0"] * self._width
            self._sgrs[y] = ["\0"] * self._width
        line_sgrs = self._sgrs[y]
        end = x + len(chars)
        if line[x:end] == chars and line_sgrs[x:end] == sgrs:
            return sgr
        simple = _narrow.issuperset(line[x:end]) or "\0" in line
        # Of a wide character that an edge cuts a blank is left, as of one that Textual cuts.
        if chars and not line[x]:
            line[x - 1] = " "
        if end < self._width and not line[end]:
            line[end] = " "
        changed = [i for i in range(len(chars)) if chars[i] != line[x + i] or sgrs[i] != line_sgrs[x + i]]
        line[x:end], line_sgrs[x:end] = chars, sgrs
        if simple and _narrow.issuperset(chars):
            runs = _runs([x + i for i in changed], line_sgrs)
        else:
            # Terminals disagree about the width of some characters: such a line is written whole, from its edge.
            runs = [(0, self._width)] if "\0" not in line else [(x, end)]
        for number, (start, stop) in enumerate(runs):
            out.append(f"\x1b[{y + 1};{start + 1}H" if number == 0 else f"\x1b[{start + 1}G")
            at = start
            while at < stop:
                style, begin = line_sgrs[at], at
                while at < stop and line_sgrs[at] == style:
                    at += 1
                out.append(transition(sgr, style) + "".join(line[begin:at]))
                sgr = style
        return sgr


def _runs(changed: list[int], sgrs: list[str]) -> list[tuple[int, int]]:
    """Changed cells as runs, joined over short gaps that need no change of colour."""
    runs: list[tuple[int, int]] = []
    for x in changed:
        if runs:
            start, stop = runs[-1]
            if x == stop or (x - stop <= _MERGE_GAP and len(set(sgrs[stop - 1 : x + 1])) == 1):
                runs[-1] = (start, x + 1)
                continue
        runs.append((x, x + 1))
    return runs
