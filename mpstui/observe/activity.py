"""What the clients' activity is: windows in which their kernel launches are counted, and what the windows come to."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import field
from typing import Final, NamedTuple, TypeVar

from mpstui.core.late import dataclass
from mpstui.core.model import Activity, ProcessKey
from mpstui.core.text import error_text
from mpstui.observe.sources import LaunchSource
from mpstui.observe.wakeups import Worker

T = TypeVar("T")
WINDOW: Final = 0.5
"""Seconds of a window after which it is known how often the clients launch."""
INTERVAL: Final = 2.0
"""Seconds of a window where counting costs next to nothing, so that it goes on."""
BUDGET: Final = 0.01
"""What watching may cost the busiest client, as a part of its time."""
LONGEST: Final = 120.0
"""Seconds between two windows at most."""
RATES: Final = 16
"""Windows that are remembered of each client."""
PATIENCE: Final = 30.0
"""Seconds after which a look gives the kernel up: a library on a file system that hangs, say."""


class Window(NamedTuple):
    """How often each process launched, from one reading of the counters to the next."""

    end: float
    """Seconds since the epoch."""
    seconds: float
    launches: Mapping[ProcessKey, int]
    refused: Mapping[ProcessKey, str]
    """Who is not counted, and why."""
    how: str = ""


@dataclass(slots=True)
class _Record:
    begun: float
    """When the first window began."""
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=RATES))
    launched: float | None = None
    """The end of the last window in which it launched."""
    counted: float = 0.0
    """Seconds of windows since then."""


class ActivityLog:
    """What successive windows tell of each process; pure."""

    def __init__(self) -> None:
        self._records: dict[ProcessKey, _Record] = {}

    def add(self, window: Window) -> dict[ProcessKey, Activity]:
        """All that is known after this window; who is in it no more is forgotten."""
        found: dict[ProcessKey, Activity] = {key: Activity(why=why) for key, why in window.refused.items()}
        records: dict[ProcessKey, _Record] = {}
        for key, launches in window.launches.items():
            record = records[key] = self._records.get(key) or _Record(window.end - window.seconds)
            rate = round(launches / window.seconds, 1) if window.seconds > 0 else 0.0
            record.rates.append(rate)
            if launches:
                record.launched, record.counted = window.end, 0.0
            else:
                record.counted += window.seconds
            since = record.begun if record.launched is None else record.launched
            passed = max(window.end - since, window.seconds)
            found[key] = Activity(
                launches_per_second=rate,
                rates=tuple(record.rates),
                idle_since=None if launches else since,
                seen_launching=record.launched is not None,
                watched=None if launches or passed <= 0 else min(1.0, round(record.counted / passed, 2)),
            )
        self._records = records
        return found


class ActivityWatch:
    """Counts in windows. Whatever may block is done in a thread of its own; methods belong to one event loop.

    ``keys``: the processes to be counted, asked again for each window.
    """

    def __init__(
        self,
        source: Callable[[], LaunchSource],
        keys: Callable[[], Collection[ProcessKey]],
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._open = source
        self._keys = keys
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._worker = Worker("mpstui-activity")
        self._source: LaunchSource | None = None
        self._holds = 0

    async def look(self, seconds: float) -> Window:
        """One window of so many seconds."""
        if not self._keys():
            return Window(self._clock(), 0.0, {}, {})
        try:
            refused = await asyncio.wait_for(self._attach(), PATIENCE)
        except asyncio.TimeoutError:
            why = f"the kernel has not attached the counters within {PATIENCE:g} s"
            return Window(self._clock(), 0.0, {}, dict.fromkeys(self._keys(), why))
        except OSError as error:
            return Window(self._clock(), 0.0, {}, dict.fromkeys(self._keys(), error_text(error)))
        try:
            return await self._window(seconds, refused)
        finally:
            self._release()

    async def watch(self, told: Callable[[Window], None]) -> None:
        """Window after window until it is cancelled: without a gap where counting costs next to nothing, otherwise with
        gaps, so that the busiest client loses ``BUDGET`` of its time at most (fact 49)."""
        while True:
            begun, cost = self._monotonic(), 0.0
            refused = await self._attach()
            try:
                seconds = WINDOW
                while cost <= BUDGET:
                    window = await self._window(seconds, refused)
                    told(window)
                    busiest = max(window.launches.values(), default=0) / max(window.seconds, 1e-3)
                    cost, seconds = busiest * (self._source.launch_seconds if self._source else 0.0), INTERVAL
                    if cost <= BUDGET:
                        refused = await self._call(lambda source: source.attach(self._keys()))
            except BaseException:
                self._release()
                raise
            await self._release()
            attached = self._monotonic() - begun
            await self._sleep(min(LONGEST, attached * (cost / BUDGET - 1)))

    def close(self) -> None:
        """Nothing stays attached; does not wait."""
        source, self._source = self._source, None
        self._worker.close(source.close if source is not None else None)

    async def _window(self, seconds: float, refused: Mapping[ProcessKey, str]) -> Window:
        first = await self._call(lambda source: source.read())
        await self._sleep(seconds)
        last = await self._call(lambda source: source.read())
        both = {key: last.counts[key] - count for key, count in first.counts.items() if key in last.counts}
        how = self._source.how if self._source is not None else ""
        return Window(self._clock(), last.time - first.time, both, refused, how)

    async def _attach(self) -> Mapping[ProcessKey, str]:
        self._holds += 1
        try:
            return await self._call(lambda source: source.attach(self._keys()))
        except BaseException:
            self._release()
            raise

    def _release(self) -> asyncio.Future[None]:
        """Detach, where nobody else counts; need not be waited for."""
        self._holds -= 1
        last = not self._holds
        return self._worker.call(lambda: self._source.detach() if last and self._source is not None else None)

    def _call(self, do: Callable[[LaunchSource], T]) -> asyncio.Future[T]:
        def done() -> T:
            if self._source is None:
                self._source = self._open()
            return do(self._source)

        return self._worker.call(done)
