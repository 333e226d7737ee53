"""What a measured curve of throughput over SMs advises: a line up to a knee, flat from there. Pure, no I/O."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Final

from mpstui.core.late import dataclass
from mpstui.core.partition import smallest_percentage, sms_of
from mpstui.core.text import four_digits
from mpstui.plan.types import PlanTarget

ENOUGH: Final = 0.95
"""A share is enough where this much of the best throughput was measured."""
POOR: Final = 0.1
"""A fit that misses a point by more than this much of the best throughput is not to be trusted."""


@dataclass(frozen=True, slots=True)
class MeasuredShare:
    """Throughput of one client at one share, in its load's unit, one value a repeat."""

    sms: int
    percentage: float
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)


@dataclass(frozen=True, slots=True)
class Fit:
    """``per_sm`` for each SM up to ``knee`` SMs, and nothing for more."""

    per_sm: float
    knee: int
    error: float
    """The largest miss of a point, as a fraction of the best throughput."""

    def at(self, sms: float) -> float:
        """Throughput on ``sms`` SMs."""
        return self.per_sm * min(sms, self.knee)


@dataclass(frozen=True, slots=True)
class Advice:
    """The share at which the next SM buys little."""

    points: tuple[MeasuredShare, ...]
    fit: Fit
    knees: tuple[int, int]
    """The smallest and the largest knee, where each repeat is fitted by itself."""
    chosen: MeasuredShare
    """The smallest measured share with ``ENOUGH`` of the best throughput, as measured and as fitted."""
    best: float

    @property
    def saturates(self) -> bool:
        """Whether there is a share beyond which more SMs buy little."""
        return self.chosen.sms < max(point.sms for point in self.points)

    @property
    def poor(self) -> bool:
        """Whether the curve is none of a line and a level."""
        return self.fit.error > POOR


def fit(points: Iterable[tuple[int, float]]) -> Fit:
    """The least squares fit to (SMs, throughput); of equally good knees the smallest. Raises ValueError without points.

    The line goes through the origin: no SM, no throughput. So only the knee has to be searched, SM by SM.
    """
    known = sorted(points)
    if not known or min(sms for sms, _ in known) < 1:
        raise ValueError("no points, or some without an SM")
    best = max(value for _, value in known)
    found: tuple[float, int, float] | None = None
    for knee in range(known[0][0], known[-1][0] + 1):
        used = [min(sms, knee) for sms, _ in known]
        slope = sum(x * y for x, (_, y) in zip(used, known, strict=True)) / sum(x * x for x in used)
        squares = sum((slope * x - y) ** 2 for x, (_, y) in zip(used, known, strict=True))
        # A knee further right must be better by more than the rounding of the sums.
        if found is None or squares < found[0] - 1e-9 * best * best:
            found = (squares, knee, slope)
    assert found is not None  # noqa: S101 - the range has at least one knee
    _, knee, slope = found
    misses = (abs(slope * min(sms, knee) - value) for sms, value in known)
    return Fit(slope, knee, max(misses) / best if best > 0 else 0.0)


def first_guess(points: Sequence[MeasuredShare], target: PlanTarget) -> tuple[int, float] | None:
    """SMs and percentage of the smallest share of ``target`` that reaches the fitted knee: to be measured too.

    None where a share as good was measured already.
    """
    knee = fit((point.sms, point.median) for point in points).knee
    if any(ENOUGH * knee <= point.sms <= knee for point in points):
        return None
    percentage = smallest_percentage(min(knee, target.sm_count), target.sm_count, target.rounding)
    return sms_of(percentage, target.sm_count, target.rounding), percentage


def advise(points: Sequence[MeasuredShare]) -> Advice:
    """The advice of a curve. Raises ValueError without points."""
    ordered = tuple(sorted(points, key=lambda point: point.sms))
    whole = fit((point.sms, point.median) for point in ordered)
    repeats = min(len(point.values) for point in ordered)
    knees = [fit((point.sms, point.values[i]) for point in ordered).knee for i in range(repeats)]
    best = max(point.median for point in ordered)
    enough = (p for p in ordered if p.sms >= ENOUGH * whole.knee and p.median >= ENOUGH * best)
    return Advice(ordered, whole, (min(knees), max(knees)), next(enough, ordered[-1]), best)


def divide(wanted: Sequence[int], target: PlanTarget) -> tuple[int, ...]:
    """What each of several clients gets of ``target``: what it wants, as far as there is; the modest are served first
    and the others share evenly what is left, in steps of the device.

    Where there are more clients than smallest shares, each gets that, and the plan is over-committed.
    """
    rounding = target.rounding
    found = [0] * len(wanted)
    left, order = target.sm_count, sorted(range(len(wanted)), key=lambda index: wanted[index])
    for place, index in enumerate(order):
        even = max(rounding.floor, left // (len(order) - place) // rounding.step * rounding.step)
        if wanted[index] > even:  # and so do all that come after it
            for other in order[place:]:
                found[other] = even
            break
        found[index] = max(rounding.floor, wanted[index])
        left = max(0, left - found[index])
    return tuple(found)


def plot(advice: Advice, width: int = 60, height: int = 10) -> list[str]:
    """The curve in letters any terminal has: ``*`` measured, ``.`` the fit, ``^`` the share that is advised."""
    last = max(point.sms for point in advice.points)
    top = max(advice.best, advice.fit.at(last)) or 1.0
    grid = [[" "] * (width + 1) for _ in range(height + 1)]

    def put(sms: float, value: float, mark: str) -> None:
        grid[height - round(value / top * height)][round(sms / last * width)] = mark

    for column in range(width + 1):
        sms = column / width * last
        put(sms, advice.fit.at(sms), ".")
    for point in advice.points:
        put(point.sms, point.median, "*")
    labels = [""] * (height + 1)
    labels[0], labels[-1] = four_digits(top), "0"
    size = max(map(len, labels))
    lines = [f"{label:>{size}} |{''.join(row).rstrip()}" for label, row in zip(labels, grid, strict=True)]
    axis = ["-"] * (width + 1)
    axis[round(advice.chosen.sms / last * width)] = "^"
    end = f"{last} SMs"
    return [*lines, f"{'':>{size}} +{''.join(axis)}", f"{'':>{size}}  0{end:>{width}}"]
