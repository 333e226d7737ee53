"""Words of a command line: those that are numbers, for argparse, and one that two commands share."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from typing import Final

from mpstui.core.text import printable

FLEET_VARIABLE: Final = "MPSTUI_FLEET"
"""1 in the environment of a screen that ``fleet`` opens, so that Esc leads back there."""


def between(least: float, most: float, unit: str = "seconds") -> Callable[[str], float]:
    """A number of ``least`` to ``most``; behind one of percent its sign may stand."""

    def number(text: str) -> float:
        try:
            value = float(text.strip().removesuffix("%") if unit == "percent" else text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise ArgumentTypeError(f"{printable(text, 40)!r} is not {least:g} to {most:.7g} {unit}")
        return value

    return number


def add_refresh(parser: ArgumentParser) -> None:
    """``--refresh``; what holds without it is the watcher's, and a test compares the two."""
    parser.add_argument(
        "--refresh",
        type=between(0.1, 3600),
        metavar="S",
        help="seconds between readings (default 1; of more than 256 processes 1 for each 256, 5 at most)",
    )


def whole(least: int, most: int) -> Callable[[str], int]:
    """A whole number of ``least`` to ``most``."""

    def number(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) < 20 and least <= int(text) <= most):
            raise ArgumentTypeError(f"{printable(text, 40)!r} is no whole number from {least} to {most}")
        return int(text)

    return number
