"""Draws a terminal's screen as SVG: text as text, lines and blocks as shapes, so that all lines up in any font."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from html import escape
from itertools import groupby

import pyte
from pyte.screens import Char

WIDTH, HEIGHT = 9.0, 18.0
"""Of a cell; at 4/3 of that both are whole pixels, so that a picture has no seams."""
FONT_SIZE = 15
FONTS = "'DejaVu Sans Mono', 'Fira Code', Menlo, Consolas, 'Liberation Mono', monospace"
SYMBOLS = "⟳"
"""Characters that DejaVu Sans Mono lacks."""
SYMBOL_FONTS = "'DejaVu Sans', 'Noto Sans Symbols', sans-serif"
NAMED = {
    "black": "#000000",
    "red": "#cd3131",
    "green": "#0dbc79",
    "brown": "#e5e510",
    "blue": "#2472c8",
    "magenta": "#bc3fbc",
    "cyan": "#11a8cd",
    "white": "#e5e5e5",
    "brightblack": "#666666",
    "brightred": "#f14c4c",
    "brightgreen": "#23d18b",
    "brightbrown": "#f5f543",
    "brightblue": "#3b8eea",
    "brightmagenta": "#d670d6",
    "bfightmagenta": "#d670d6",  # as the emulator spells it
    "brightcyan": "#29b8db",
    "brightwhite": "#ffffff",
}
"""A terminal's own sixteen colours; "brown" is the emulator's word for yellow."""
_ARMS = {
    "─": "lr", "━": "LR", "│": "ud", "┃": "UD", "┌": "rd", "┐": "ld", "└": "ru", "┘": "lu",
    "├": "rud", "┤": "lud", "┬": "lrd", "┴": "lru", "┼": "lrud", "╴": "l", "╵": "u", "╶": "r", "╷": "d",
    "╸": "L", "╹": "U", "╺": "R", "╻": "D", "╼": "lR", "╾": "Lr",
}  # fmt: skip
"""Which arms a line character has; a capital is a heavy one."""
_CORNERS = {"╭": (1, 1), "╮": (-1, 1), "╰": (1, -1), "╯": (-1, -1)}
_ARM_PATHS = {"l": f"h{-WIDTH / 2 - 0.2:g}", "r": f"h{WIDTH / 2 + 0.2:g}"}
_ARM_PATHS |= {"u": f"v{-HEIGHT / 2 - 0.2:g}", "d": f"v{HEIGHT / 2 + 0.2:g}"}
_SHADES = {"░": 0.25, "▒": 0.5, "▓": 0.75}


def screen_svg(screen: pyte.Screen, title: str, foreground: str = "#e0e0e0", background: str = "#121212") -> str:
    """The screen as an SVG document; the two colours are those of a terminal that was not told others."""
    width, height = screen.columns * WIDTH, screen.lines * HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}">',
        f"<title>{escape(title)}</title>",
        f'<g font-family="{FONTS}" font-size="{FONT_SIZE}" xml:space="preserve">',
    ]
    rows = [[screen.buffer[y][x] for x in range(screen.columns)] for y in range(screen.lines)]
    ground = ground_of(rows, foreground, background)
    parts.append(f'<rect width="{width:g}" height="{height:g}" fill="{ground}"/>')
    for y, row in enumerate(rows):
        parts += _grounds(row, y, ground, foreground, background)
    for y, row in enumerate(rows):
        parts += _words(row, y, foreground, background)
    return "\n".join([*parts, "</g>", "</svg>"]) + "\n"


def ground_of(rows: list[list[Char]], foreground: str = "#e0e0e0", background: str = "#121212") -> str:
    """The colour behind most cells."""
    return Counter(_colours(cell, foreground, background)[1] for row in rows for cell in row).most_common(1)[0][0]


def row_svg(row: list[Char], y: int, ground: str, foreground: str = "#e0e0e0", background: str = "#121212") -> str:
    """One row of the screen, for a document whose ground is that."""
    return "".join((*_grounds(row, y, ground, foreground, background), *_words(row, y, foreground, background)))


def _grounds(row: list[Char], y: int, ground: str, foreground: str, background: str) -> Iterator[str]:
    for x, cells in _runs(row, lambda cell: _colours(cell, foreground, background)[1]):
        colour = _colours(cells[0], foreground, background)[1]
        if colour != ground:
            yield _rect(x, y, len(cells), 1, colour)


def _words(row: list[Char], y: int, foreground: str, background: str) -> Iterator[str]:
    for x, cells in _runs(row, lambda cell: (_colours(cell, foreground, background)[0], _style(cell))):
        yield from _run(x, y, cells, _colours(cells[0], foreground, background)[0])


def _runs(row: list[Char], key: object) -> Iterator[tuple[int, list[Char]]]:
    x = 0
    for _, group in groupby(row, key):  # type: ignore[call-overload]
        cells = list(group)
        yield x, cells
        x += len(cells)


def _colours(cell: Char, foreground: str, background: str) -> tuple[str, str]:
    front = foreground if cell.fg == "default" else NAMED.get(cell.fg, f"#{cell.fg}")
    back = background if cell.bg == "default" else NAMED.get(cell.bg, f"#{cell.bg}")
    return (back, front) if cell.reverse else (front, back)


def _style(cell: Char) -> tuple[bool, bool, bool, bool]:
    return cell.bold, cell.italics, cell.underscore, cell.strikethrough


def _rect(x: float, y: float, columns: float, lines: float, colour: str, opacity: float = 1.0) -> str:
    # Half a pixel more to the right and below: neighbours must leave no seam.
    size = f'width="{columns * WIDTH + 0.4:.2f}" height="{lines * HEIGHT + 0.4:.2f}"'
    faint = "" if opacity == 1 else f' fill-opacity="{opacity}"'
    return f'<rect x="{x * WIDTH:.2f}" y="{y * HEIGHT:.2f}" {size} fill="{colour}"{faint}/>'


def _run(x: int, y: int, cells: list[Char], colour: str) -> Iterator[str]:
    """Neighbours of one style: words as text, each drawn character as a shape."""
    style = _attributes(cells[0])
    at = x
    for kind, group in groupby(cells, _kind):
        part = list(group)
        if kind == "shape":
            number = at
            for char, same in groupby(cell.data for cell in part):
                count = len(list(same))
                if char in "─━":
                    yield _line(number, y, count, colour, 1.2 if char == "─" else 2.6)
                else:
                    for place in range(number, number + count):
                        yield from _shape(char, place, y, colour)
                number += count
        else:
            # Each letter at its own place: no renderer's letter spacing can then shift the columns.
            places = " ".join(f"{(at + number) * WIDTH:g}" for number in range(len(part)))
            text = escape("".join(cell.data for cell in part))
            font = f' font-family="{SYMBOL_FONTS}" font-size="{FONT_SIZE - 3}"' if part[0].data in SYMBOLS else ""
            yield f'<text x="{places}" y="{y * HEIGHT + 13.7:g}" fill="{colour}"{style}{font}>{text}</text>'
        at += len(part)


def _kind(cell: Char) -> str:
    char = cell.data
    return "shape" if _is_drawn(char) or char in (" ", "") else "symbol" if char in SYMBOLS else "text"


def _attributes(cell: Char) -> str:
    lines = [name for name, on in (("underline", cell.underscore), ("line-through", cell.strikethrough)) if on]
    return (
        (' font-weight="bold"' if cell.bold else "")
        + (' font-style="italic"' if cell.italics else "")
        + (f' text-decoration="{" ".join(lines)}"' if lines else "")
    )


def _is_drawn(char: str) -> bool:
    return (
        char in _ARMS
        or char in _CORNERS
        or char in _SHADES
        or (len(char) == 1 and ("▀" <= char <= "▐" or "⠀" <= char <= "⣿"))
    )


def _line(x: int, y: int, count: int, colour: str, thick: float) -> str:
    left, centre = x * WIDTH, (y + 0.5) * HEIGHT
    path = f"M{left - 0.2:g} {centre:g}H{left + count * WIDTH + 0.2:g}"
    return f'<path d="{path}" stroke="{colour}" stroke-width="{thick}"/>'


def _shape(char: str, x: int, y: int, colour: str) -> Iterator[str]:
    left, top = x * WIDTH, y * HEIGHT
    middle, centre = left + WIDTH / 2, top + HEIGHT / 2
    if char in _SHADES:
        yield _rect(x, y, 1, 1, colour, _SHADES[char])
    elif char in _CORNERS:
        right, down = _CORNERS[char]
        ends = f"{middle:g} {centre + down * HEIGHT / 2:g}", f"{middle + right * WIDTH / 2:g} {centre:g}"
        bend = f"M{ends[0]}Q{middle:g} {centre:g} {ends[1]}"
        yield f'<path d="{bend}" fill="none" stroke="{colour}" stroke-width="1.2"/>'
    elif char in _ARMS:
        for heavy in (False, True):
            arms = "".join(
                f"M{middle:g} {centre:g}" + _ARM_PATHS[arm.lower()] for arm in _ARMS[char] if arm.isupper() is heavy
            )
            if arms:
                yield f'<path d="{arms}" stroke="{colour}" stroke-width="{2.6 if heavy else 1.2}"/>'
    elif "⠀" <= char <= "⣿":
        for number in range(8):
            if (ord(char) - ord("⠀")) >> number & 1:
                column, line = (number // 3, number % 3) if number < 6 else (number - 6, 3)
                across, down = left + (column + 0.5) * WIDTH / 2, top + (line + 0.5) * HEIGHT / 4
                yield f'<circle cx="{across:g}" cy="{down:g}" r="1.5" fill="{colour}"/>'
    elif char == "▀":
        yield _rect(x, y, 1, 0.5, colour)
    elif char == "▐":
        yield _rect(x + 0.5, y, 0.5, 1, colour)
    elif "▁" <= char <= "█":
        share = (ord(char) - ord("▁") + 1) / 8
        yield _rect(x, y + 1 - share, 1, share, colour)
    elif "▉" <= char <= "▏":
        yield _rect(x, y, 1 - (ord(char) - ord("▉") + 1) / 8, 1, colour)
