"""Words of a command line that are numbers, for argparse."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable

from mpstui.core.text import printable


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


def whole(least: int, most: int) -> Callable[[str], int]:
    """A whole number of ``least`` to ``most``."""

    def number(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) < 20 and least <= int(text) <= most):
            raise ArgumentTypeError(f"{printable(text, 40)!r} is no whole number from {least} to {most}")
        return int(text)

    return number
