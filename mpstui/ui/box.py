"""A bordered box with lines in it."""

from __future__ import annotations

import re
import textwrap

from mpstui.ui.painted import Line, Painted, fit_line, upper_border


def wrapped(text: str, width: int, style: str, first: str = "", indent: str = " ") -> list[Line]:
    """The text in lines of ``width`` cells at most; ``first`` is a mark before it, under which nothing is written."""
    room = max(8, width - len(indent) - len(first) - 1)
    # A unit stays with its number: a no-break space is no place for a break.
    kept = re.sub(r"(?<=\d) (?=%|SM\b|GiB|MiB|s\b)", "\u00a0", text)
    lines = [line.replace("\u00a0", " ") for line in textwrap.wrap(kept, room)]
    return [((indent + (first if n == 0 else " " * len(first)) + line, style),) for n, line in enumerate(lines)]


class Box(Painted):
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
        inner = width - 2
        if inner < 8 or height < 3:
            return []
        body = self.body(inner, height - 2)[: height - 2]
        body += [()] * (height - 2 - len(body))
        return [
            upper_border(self.title(), self.corner(), width, "border"),
            *((("│", "border"), *fit_line(line, inner), ("│", "border")) for line in body),
            (("╰" + "─" * inner + "╯", "border"),),
        ]
