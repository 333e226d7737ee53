"""Words of a command line: those that are numbers, for argparse, and what two commands share."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from typing import Final

from mpstui.core.requests import CROWD, LONGEST_REFRESH, REFRESH, SHORTEST_REFRESH, SLOWEST_REFRESH
from mpstui.core.text import printable, typed_count, typed_number

EXPORTER_REFRESH: Final = 5.0
"""Seconds between two readings for the exporter, where --refresh does not say otherwise."""

FLEET_VARIABLE: Final = "MPSTUI_FLEET"
"""1 in the environment of a screen that ``fleet`` opens, so that Esc leads back there."""


def between(least: float, most: float, unit: str = "seconds") -> Callable[[str], float]:
    """A number of ``least`` to ``most``; behind one of percent its sign may stand."""

    def number(text: str) -> float:
        value = typed_number(text.strip().removesuffix("%") if unit == "percent" else text)
        if value is None or not least <= value <= most:
            raise ArgumentTypeError(f"{printable(text, 40)!r} is not {least:g} to {most:.7g} {unit}")
        return value

    return number


def whole(least: int, most: int) -> Callable[[str], int]:
    """A whole number of ``least`` to ``most``."""

    def number(text: str) -> int:
        value = typed_count(text)
        if value is None or not least <= value <= most:
            raise ArgumentTypeError(f"{printable(text, 40)!r} is no whole number from {least} to {most}")
        return value

    return number


def add_refresh(parser: ArgumentParser, *, of_command: bool = False) -> None:
    """``--refresh``, of the whole line, or again of one command: where it is not given there, the line's holds."""
    crowded = f"of more than {CROWD} processes {REFRESH:g} for each {CROWD}, {SLOWEST_REFRESH:g} at most"
    exporter = "" if of_command else f"; exporter: {EXPORTER_REFRESH:g}"
    parser.add_argument(
        "--refresh",
        type=between(SHORTEST_REFRESH, LONGEST_REFRESH),
        default=SUPPRESS if of_command else None,
        metavar="S",
        help=f"seconds between readings (default {REFRESH:g}; {crowded}{exporter})",
    )


def pid(text: str) -> int:
    """A process id."""
    value = typed_count(text)
    if value is None or not 0 < value < 1 << 31:
        raise ArgumentTypeError(f"{printable(text, 40)!r} is no process id: a whole number above 0 is needed")
    return value
