"""What watching costs a client, from its own counts in slices of some milliseconds: pure.

Each window in which its launches are counted is held against the time right before and right behind it, so that a
machine that becomes faster and slower as minutes go by hits both alike. The same is done with windows in which nobody
counted anything: what comes out there is the noise.
"""

from __future__ import annotations

import bisect
import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from mpstui.load.spread import interval

Times = Sequence[float]
MARGIN: Final = 0.05
"""Seconds around a window that are no one's: the client's slices are not as sharp as the marks."""
FEWEST: Final = 4
"""Windows of which an average is told."""
SURE: Final = 6
"""Pairs whose smallest and largest hold the median with 95 % confidence."""


@dataclass(frozen=True)
class Pairs:
    """What part of its launches a client lost in each window."""

    lost: tuple[float, ...]
    """0.1: a tenth of what it does before and behind."""
    seconds: tuple[float, ...]
    """Of the windows."""

    def data(self) -> dict[str, Any]:
        low, high = median_interval(self.lost) if len(self.lost) >= SURE else (None, None)
        return {
            "pairs": len(self.lost), "median": _percent(statistics.median(self.lost) if self.lost else None),
            "low": _percent(low), "high": _percent(high), "all": [_percent(each) for each in self.lost],
        }  # fmt: skip


def _percent(part: float | None) -> float | None:
    return None if part is None else round(100 * part, 2)


def done_at(times: Times, done: Times, moment: float) -> float:
    """Launches until then, between two slices as if they came evenly."""
    after = min(max(bisect.bisect_left(times, moment), 1), len(times) - 1)
    (t0, t1), (d0, d1) = times[after - 1 : after + 1], done[after - 1 : after + 1]
    return d0 + (d1 - d0) * ((moment - t0) / (t1 - t0) if t1 > t0 else 0.0)


def pairs(
    times: Times, done: Times, windows: Sequence[tuple[float, float]], others: Sequence[tuple[float, float]]
) -> Pairs:
    """Each window against as long a time on both sides; those left out that lie at an edge of what was seen, or
    have one of ``others`` beside them."""
    lost, lasted = [], []
    for begin, end in windows:
        begin, end = begin - MARGIN, end + MARGIN
        length = end - begin
        first, last = begin - length, end + length
        if first < times[0] or last > times[-1]:
            continue
        if any(b < last and e > first for b, e in others if not (b >= begin and e <= end)):
            continue
        inside = done_at(times, done, end) - done_at(times, done, begin)
        around = done_at(times, done, last) - done_at(times, done, first) - inside
        if around > 0:
            lost.append(1 - 2 * inside / around)
            lasted.append(length)
    return Pairs(tuple(lost), tuple(lasted))


def between(windows: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Where nobody counts: a window of the usual length in the middle of each gap."""
    if len(windows) < 2:
        return []
    length = statistics.median(end - begin for begin, end in windows)
    gaps = [(one[1], two[0]) for one, two in itertools.pairwise(windows)]
    return [((a + b - length) / 2, (a + b + length) / 2) for a, b in gaps if b - a > 3 * length]


def average(found: Pairs, windows: Sequence[tuple[float, float]]) -> dict[str, float] | None:
    """What part of all its launches the client loses by being watched, with a 95 % interval of the mean: what it loses
    in a window, by how often one comes. None where there are too few windows."""
    if len(found.lost) < FEWEST or len(windows) < 2:
        return None
    period = (windows[-1][0] - windows[0][0]) / (len(windows) - 1)
    spread = interval([part * length / period for part, length in zip(found.lost, found.seconds, strict=True)])
    return {"percent": 100 * spread.median, "low": 100 * spread.low, "high": 100 * spread.high, "period": period}


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Between which two of the values the median of more and more of them lies, with 95 % confidence and whatever they
    are distributed like; with few of them the smallest and the largest."""
    known, count = sorted(values), len(values)
    low, tail = 0, 0.5**count
    while low + 1 < count // 2 and tail + math.comb(count, low + 1) * 0.5**count <= 0.025:
        low += 1
        tail += math.comb(count, low) * 0.5**count
    return known[low], known[count - 1 - low]
