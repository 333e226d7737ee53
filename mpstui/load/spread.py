"""Repeated values: their middle and spread, and whether two groups of them differ by more than chance."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from mpstui.core.late import dataclass
from mpstui.core.text import four_digits

_T: Final = (
    12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045,
)  # fmt: skip
"""Student's t at 97.5 %, for 1, 2, … degrees of freedom."""
_T_LARGE: Final = 1.96


@dataclass(frozen=True, slots=True)
class Spread:
    """Repeated values: the middle one, the smallest, the largest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Raises ValueError without a value."""
        known = sorted(values)
        if not known:
            raise ValueError("no values")
        return cls(statistics.median(known), known[0], known[-1])

    def figure(self) -> str:
        """As ``text``, from 1,000 on without decimals, which say nothing there."""
        return self.text(",.0f" if self.median >= 1000 else ",.1f")

    def digits(self) -> str:
        """As ``text``, four digits of each."""
        return self.text(four_digits)

    def text(self, form: str | Callable[[float], str] = ",.0f") -> str:
        """``9,137 (9,122–9,151)``; the middle alone where all are shown alike."""
        low, middle, high = (
            format(value, form) if isinstance(form, str) else form(value)
            for value in (self.low, self.median, self.high)
        )
        return middle if low == high else f"{middle} ({low}–{high})"

    def overlaps(self, other: Spread) -> bool:
        """Whether some value could be of either, so that their middles may differ by chance alone."""
        return self.low <= other.high and other.low <= self.high

    def scaled(self, factor: float) -> Spread:
        return Spread(self.median * factor, self.low * factor, self.high * factor)


def interval(repeats: Sequence[float]) -> Spread:
    """In what interval the mean of more and more repeats would lie, with 95 % confidence, around the mean of these.

    One repeat tells nothing of it: the interval is everything. Raises ValueError without one.
    """
    if not repeats:
        raise ValueError("no values")
    mean = statistics.fmean(repeats)
    free = len(repeats) - 1
    if not free:
        return Spread(mean, -math.inf, math.inf)
    t = _T[free - 1] if free <= len(_T) else _T_LARGE
    half = t * statistics.stdev(repeats) / math.sqrt(len(repeats))
    return Spread(mean, mean - half, mean + half)
