"""How busy a device is while something runs on it, what tells a difference from chance, and how long is left."""

from __future__ import annotations

import asyncio
import math

import pytest

from mpstui.core.model import Device
from mpstui.load.measure import Pace
from mpstui.load.spread import Spread, interval
from mpstui.load.utilisation import Meter, Use, apart, busier, table
from mpstui.observe.sources import NvmlSample


class Nvml:
    """Readings that a test has written down; the last one goes on."""

    def __init__(self, *readings: tuple[float | None, float | None], error: str | None = None) -> None:
        self.readings = list(readings)
        self.taken = 0
        self.error = error

    def sample(self) -> NvmlSample:
        self.taken += 1
        if self.error:
            return NvmlSample(1.0, error=self.error)
        sm, gpu = self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]
        others = Device("GPU-other", sm_utilization=1.0)
        return NvmlSample(1.0, devices=(others, Device("GPU-1", sm_utilization=sm, gpu_utilization=gpu)))

    def membership(self) -> dict[str, dict[int, int | None]]:
        return {}

    def close(self) -> None: ...


async def read(nvml: Nvml, times: int, without: tuple[str, ...] = ()) -> Meter:
    """So many readings."""
    done = asyncio.Event()

    async def pause(_seconds: float) -> None:
        if nvml.taken >= times:
            done.set()
            await asyncio.Event().wait()

    meter = Meter(nvml, "GPU-1", pause)
    async with meter.during("x", without=without):
        await done.wait()
    return meter


async def test_what_the_first_reading_tells_was_before_and_what_is_not_told_is_never_nothing() -> None:
    meter = await read(Nvml((99.0, 100.0), (40.0, None), (60.0, None), (50.0, None)), 4)
    use = meter.uses["x"]
    assert use.values("sm_utilization")[:3] == [40.0, 60.0, 50.0]
    assert use.values("gpu_utilization") == []
    heads, rows = table([use])
    assert heads == ("on the device meanwhile", "SM activity")
    assert rows[0][1] == "50 %"
    data = use.data()
    assert data["sm_utilization"] == {"median": 50.0, "low": 50.0, "high": 50.0}
    assert data["gpu_utilization"] is data["power_watts"] is None


async def test_nothing_is_read_before_the_work_begins_and_trouble_is_an_empty_table() -> None:
    nvml = Nvml((1.0, 1.0))
    meter, begun = Meter(nvml, None, lambda seconds: asyncio.sleep(0)), asyncio.Event()
    async with meter.during("x", begun):
        await asyncio.sleep(0.01)
        assert nvml.taken == 0
    assert table(meter.uses.values())[1] == []
    broken = await read(Nvml(error="the driver is gone"), 3)
    assert table(broken.uses.values())[1] == []
    async with Meter(None).during("x"):
        pass


def test_an_interval_is_of_the_mean_and_one_repeat_tells_nothing() -> None:
    assert interval([5.0]) == Spread(5.0, -math.inf, math.inf)
    two = interval([9.0, 11.0])
    assert (two.low, two.high) == pytest.approx((10 - 12.71, 10 + 12.71))
    assert interval([3.0, 3.0, 3.0]) == Spread(3.0, 3.0, 3.0)
    many = interval([float(n % 2) for n in range(100)])
    assert many.high - many.low == pytest.approx(2 * 1.96 * 0.0503, rel=0.01)
    with pytest.raises(ValueError, match="no values"):
        interval([])


def test_two_repeats_that_only_look_apart_are_not() -> None:
    # LeNet of 2026-11-21: 10,092 and 9,209 ms of two repeats each, told as "9 % less time" then.
    assert not apart([9986.0, 10198.0], [9100.0, 9318.0])
    assert apart([7931.0, 7935.0, 7942.0], [6130.0, 6136.0, 6154.0])
    assert not apart([1.0], [100.0])


def test_busier_is_said_of_what_tells_them_apart() -> None:
    def use(*repeats: float, dram: float = 5.0) -> Use:
        return Use("x", [{"sm_utilization": [value], "dram_utilization": [dram]} for value in repeats])

    assert busier(use(40, 41, 40), use(80, 81, 80)) == "SM activity was 80 % instead of 40 %"
    assert busier(use(40, 60), use(41, 70)) == ""
    assert busier(use(50, 50), use(50, 50, dram=9.0)) == "DRAM was 9.0 % instead of 5.0 %"
    # Apart by less than is shown: the next meter, or nothing; small figures with the table's decimal.
    assert busier(use(99.6, 99.6), use(99.9, 99.9)) == ""
    assert busier(use(99.6, 99.6), use(99.9, 99.9, dram=9.0)) == "DRAM was 9.0 % instead of 5.0 %"
    assert busier(None, use(1)) == busier(use(1), None) == ""


def test_the_time_left_is_that_of_the_steps_so_far() -> None:
    now = [100.0]
    pace = Pace(lambda: now[0])
    assert pace.step("x") == "x"
    pace = Pace(lambda: now[0])
    pace.begin(4)
    now[0] = 500.0
    assert pace.step("a") == "1 of 4: a"
    now[0] = 510.0
    assert pace.step("b") == "2 of 4, about 30 s left: b"
    now[0] = 720.0
    assert pace.step("c") == "3 of 4, about 4 min left: c"
    assert Spread.of([1.0]).median == 1.0


def test_memory_in_use_is_told_beside_the_meters() -> None:
    use = Use("16 processes", [{}])
    for used in (3 << 30, 4 << 30, None):
        use.add(Device("GPU-1", memory_used=used))
    assert use.data()["memory_gib"] == {"median": 3.5, "low": 3.5, "high": 3.5}
    assert table([use]) == (("on the device meanwhile", "memory in use"), [("16 processes", "3.5 GiB")])


def test_the_edges_of_a_repeat_are_no_part_of_its_spread() -> None:
    """As on the H200s of 2026-11-22, where "100 (0–100) %" stood: readings of the start, and of the end of a run."""

    def use(*blocks: list[float], parts: int = 1) -> Use:
        found = Use("4 clients, MPS on")
        for block in blocks:
            found.blocks.append({"gpu_utilization": list(block)})
            found.over(parts)
        return found

    run = [0.0, 0.0, 30.0, 100.0, 100.0, *[100.0] * 20, 40.0, 0.0]
    assert use(run, run, run).spread("gpu_utilization") == Spread(100.0, 100.0, 100.0)
    assert use(run, [50.0] * 30).repeats("gpu_utilization") == [100.0, 50.0]
    # One that lasts for several windows is cut into them; what is too short is left as it is.
    assert use([99.0] * 5 + [10.0] * 4 + [20.0] * 4, parts=2).repeats("gpu_utilization") == [10.0, 20.0]
    assert use([7.0, 8.0], parts=3).repeats("gpu_utilization") == [7.0, 8.0]
    assert use([], parts=3).spread("gpu_utilization") is None
    assert use([7.0] * 7).values("gpu_utilization") == [7.0] * 7


async def test_what_tells_of_others_too_is_left_out() -> None:
    meter = await read(Nvml((40.0, 9.0)), 4, ("gpu_utilization",))
    assert meter.uses["x"].values("gpu_utilization") == []
    assert meter.uses["x"].values("sm_utilization") == [40.0] * 3
