"""A minute of a figure, as braille: time steps in whole cells, so that a steady figure changes nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

SECONDS: Final = 60.0
COLUMNS: Final = 40
"""Cells of the widest plot; each shows two points."""
POINT_SECONDS: Final = SECONDS / (2 * COLUMNS)
_LEFT: Final = (0x40, 0x04, 0x02, 0x01)
_RIGHT: Final = (0x80, 0x20, 0x10, 0x08)
"""Dots of a braille cell from below."""


class RateHistory:
    """The means of a figure over three quarters of a second each, for the last minute."""

    def __init__(self) -> None:
        self._points: dict[int, tuple[float, int]] = {}

    def add(self, time: float, value: float) -> None:
        """A reading at ``time``, in seconds of one steady clock."""
        point = math.floor(time / POINT_SECONDS)
        total, count = self._points.get(point, (0.0, 0))
        self._points[point] = (total + value, count + 1)
        for old in [p for p in self._points if p < point - 2 * COLUMNS - 2]:
            del self._points[old]

    def points(self, now: float, columns: int = COLUMNS) -> list[float | None]:
        """``2 * columns`` points that end with the present pair; None where nothing was read."""
        last = math.floor(now / POINT_SECONDS) | 1
        found: list[float | None] = []
        for point in range(last - 2 * columns + 1, last + 1):
            total, count = self._points.get(point, (0.0, 0))
            found.append(total / count if count else None)
        # The pair that is still coming in: nothing is known of it yet, so it is as before.
        for index in (-2, -1):
            if found[index] is None and last + index + 1 >= math.floor(now / POINT_SECONDS) and len(found) > 2:
                found[index] = found[index - 1]
        return found

    @property
    def highest(self) -> float:
        return max((total / count for total, count in self._points.values()), default=0.0)


def round_up(value: float) -> float:
    """The next of 1, 1.5, 2, 3, 4, 5, 6, 8, 10 × 10ⁿ: a scale that seldom changes."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((s * power for s in (1, 1.5, 2, 3, 4, 5, 6, 8) if s * power >= value), 10 * power)


def plot(points: Sequence[float | None], top: float, height: int) -> Sequence[str]:
    """Rows of braille from above, filled up to each point; ``top`` is the upper edge. A point above zero shows."""
    return _braille(tuple(0 if p is None or top <= 0 else _dots(p / top, height) for p in points), height)


@lru_cache(maxsize=128)
def _braille(dots: tuple[int, ...], height: int) -> tuple[str, ...]:
    """The rows for so many dots at each point. Most of a load's plots are as they were a moment before."""
    rows = []
    for row in range(height - 1, -1, -1):
        cells = []
        for left, right in zip(dots[::2], dots[1::2], strict=True):
            bits = sum(_LEFT[: max(0, min(4, left - 4 * row))]) + sum(_RIGHT[: max(0, min(4, right - 4 * row))])
            cells.append(chr(0x2800 + bits) if bits else " ")
        rows.append("".join(cells))
    return tuple(rows)


def _dots(share: float, height: int) -> int:
    return 0 if share <= 0 else max(1, min(4 * height, round(share * 4 * height)))
