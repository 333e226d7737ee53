"""Requests instead of one launch after the other: when they come, and how long each takes from then to its end."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Final

WINDOW: Final = 10.0
"""Seconds of which the percentiles tell."""
MOST: Final = 200_000
"""Requests that are remembered at most."""


class Requests:
    """When the next one comes. Pure but for its chance.

    ``arrivals``: so many a second, one independent of the other (Poisson), whether the last one is done or not, so that
    a slow one delays those behind it. Otherwise one comes after the other with a pause between them, so that the client
    is at work ``busy`` percent of the time.
    """

    def __init__(self, arrivals: float | None, busy: float | None, seed: int) -> None:
        self._arrivals = arrivals
        self._pause = 0.0 if busy is None else (100.0 - busy) / busy
        self._chance: Callable[[float], float] = random.Random(seed).expovariate  # noqa: S311 - when requests come

    def first(self, now: float) -> float:
        """When the first one comes."""
        return now if self._arrivals is None else now + self._chance(self._arrivals)

    def next(self, came: float, begun: float, ended: float) -> float:
        """When the one after it comes."""
        if self._arrivals is not None:
            return came + self._chance(self._arrivals)
        return ended + (ended - begun) * self._pause


class Latencies:
    """From when a request came to when it was done, of the last ten seconds."""

    def __init__(self) -> None:
        self._known: deque[tuple[float, float]] = deque(maxlen=MOST)

    def add(self, now: float, seconds: float) -> None:
        self._known.append((now, seconds))

    def forget(self) -> None:
        """What was before a change tells nothing of what is after it."""
        self._known.clear()

    def percentiles(self, now: float) -> tuple[float, float] | None:
        """p50 and p99, in seconds; None where there was no request."""
        while self._known and self._known[0][0] < now - WINDOW:
            self._known.popleft()
        values = sorted(seconds for _, seconds in self._known)
        if not values:
            return None
        last = len(values) - 1
        return values[round(0.5 * last)], values[round(0.99 * last)]
