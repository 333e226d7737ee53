"""How busy the device is while something runs on it: readings of NVML, again and again, and what they come to."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import field
from typing import Any, Final

from mpstui.core.late import dataclass
from mpstui.core.model import Device
from mpstui.core.text import UNKNOWN
from mpstui.load.spread import Spread, interval
from mpstui.observe.sources import NvmlSource

INTERVAL: Final = 0.2
"""Seconds between two readings: GPM counts between two of them, and needs 0.1."""
EARLY: Final = 5
"""Readings at the beginning of a repeat that are left out where three or more follow: NVML takes GPU-Util of the last
second, and the power of some of it, so that they tell of what was before, another situation say."""
METERS: Final = {
    "sm_utilization": ("SM activity", " %"),
    "sm_occupancy": ("occupancy", " %"),
    "dram_utilization": ("DRAM", " %"),
    "gpu_utilization": ("GPU-Util", " %"),
    "power_watts": ("power", " W"),
    "memory_gib": ("memory in use", " GiB"),
}
"""What is read of a device: its name and unit."""


_OF_SMS: Final = frozenset({"sm_utilization", "sm_occupancy", "dram_utilization"})


def reading(device: Device, meter: str) -> float | None:
    """What the device tells of one of them; None where it does not. What DCGM told is some seconds old: another
    situation's."""
    if device.sm_source is not None and meter in _OF_SMS:
        return None
    if meter == "memory_gib":
        return None if device.memory_used is None else device.memory_used / (1 << 30)
    value: float | None = getattr(device, meter)
    return value


@dataclass
class Use:
    """The readings of one situation: a block of them for each of its repeats, or for each part of its time."""

    label: str
    blocks: list[dict[str, list[float]]] = field(default_factory=list)

    def add(self, device: Device, without: Collection[str] = ()) -> None:
        """One more reading of the latest block."""
        for meter in METERS:
            if meter not in without and (value := reading(device, meter)) is not None:
                self.blocks[-1].setdefault(meter, []).append(value)

    def values(self, meter: str) -> list[float]:
        """All readings; empty where the device does not tell it: what is not known is never 0."""
        return [value for block in self.blocks for value in block.get(meter, ())]

    def spread(self, meter: str) -> Spread | None:
        """Of the repeats, each with the middle of its readings: one reading at the edge of a repeat is none of them."""
        values = self.repeats(meter)
        return Spread.of(values) if values else None

    def over(self, parts: int) -> None:
        """The latest block is over: without what it tells of the time before, as so many repeats of equal length."""
        block = self.blocks.pop()
        late = {meter: values[EARLY:] if len(values) >= EARLY + 3 else values for meter, values in block.items()}
        count = max(1, min(parts, *(len(values) for values in late.values()))) if late else 1
        self.blocks += [
            {m: v[n * len(v) // count : (n + 1) * len(v) // count] for m, v in late.items()} for n in range(count)
        ]

    def repeats(self, meter: str) -> list[float]:
        """The middle of each repeat."""
        return [statistics.median(block[meter]) for block in self.blocks if block.get(meter)]

    def data(self) -> dict[str, Any]:
        """For JSON: null where nothing was read."""
        found: dict[str, Any] = {"situation": self.label, "readings": max(len(self.values(m)) for m in METERS)}
        for meter in METERS:
            spread = self.spread(meter)
            found[meter] = None if spread is None else {"median": spread.median, "low": spread.low, "high": spread.high}
        return found


class Meter:
    """Reads one device while its blocks last."""

    def __init__(
        self,
        nvml: NvmlSource | None = None,
        device_uuid: str | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """``device_uuid``: None for the first one. ``nvml``: None where nothing is to be read."""
        self._nvml = nvml
        self._uuid = device_uuid
        self._sleep = sleep
        self.uses: dict[str, Use] = {}

    @contextlib.asynccontextmanager
    async def during(
        self, label: str, since: asyncio.Event | None = None, parts: int = 1, without: Collection[str] = ()
    ) -> AsyncIterator[None]:
        """One more repeat of the situation of that label, or several, which are ``parts`` of the time; nothing is read
        before ``since``. A label of nothing is not read. ``without``: what tells of others than of this situation."""
        if self._nvml is None or not label:
            yield
            return
        use = self.uses.setdefault(label, Use(label))
        use.blocks.append({})
        task = asyncio.create_task(self._read(self._nvml, use, since, without))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            use.over(parts)

    async def _read(self, nvml: NvmlSource, use: Use, since: asyncio.Event | None, without: Collection[str]) -> None:
        if since is not None:
            await since.wait()
        first = True  # what it tells was before
        while True:
            sample = await asyncio.to_thread(nvml.sample)
            device = next((d for d in sample.devices if self._uuid in (None, d.uuid)), None)
            if device is not None and not first:
                use.add(device, without)
            first = False
            await self._sleep(INTERVAL)


def table(uses: Iterable[Use]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings and rows; without what the device does not tell, and without situations in which nothing was read."""
    read = [use for use in uses if any(use.values(meter) for meter in METERS)]
    kept = [meter for meter in METERS if any(use.values(meter) for use in read)]
    rows = [(use.label, *(_cell(use.spread(meter), METERS[meter][1]) for meter in kept)) for use in read]
    return ("on the device meanwhile", *(METERS[meter][0] for meter in kept)), rows


def shares(uses: Iterable[Use]) -> list[tuple[str, str, Spread]]:
    """The meters in percent: situation, meter, and its repeats."""
    return [
        (use.label, name, spread)
        for use in uses
        for meter, (name, unit) in METERS.items()
        if unit == " %" and (spread := use.spread(meter)) is not None
    ]


def _cell(spread: Spread | None, unit: str) -> str:
    if spread is None:
        return UNKNOWN
    form = ".1f" if spread.high < 10 else ".0f"
    return f"{spread.text(form)}{unit}"


def busier(before: Use | None, after: Use | None) -> str:
    """``SM activity was 82 % instead of 43 %``, of the first meter whose figures differ,
    and by more than chance; nothing where none does."""
    for meter in ("sm_utilization", "sm_occupancy", "dram_utilization") if before and after else ():
        one, other = (use.repeats(meter) if use else [] for use in (before, after))
        if one and other and apart(one, other):
            was, is_ = statistics.fmean(one), statistics.fmean(other)
            form = ".1f" if max(was, is_) < 10 else ".0f"  # as the table has it
            if format(was, form) != format(is_, form):
                return f"{METERS[meter][0]} was {is_:{form}} % instead of {was:{form}} %"
    return ""


def apart(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether two groups of repeats differ by more than chance: their 95 % intervals do not overlap."""
    return not interval(one).overlaps(interval(other))
