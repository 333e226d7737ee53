"""Requests by chance or with pauses, and how long each takes, queue included."""

from __future__ import annotations

import statistics

import pytest

from mpstui.load.requests import WINDOW, Latencies, Requests
from mpstui.load.worker import REQUEST_SMS

from .fakes import FakeChannel, FakeDriver
from .test_worker import stop_after, work


def test_requests_come_by_chance_whether_the_last_one_is_done_or_not() -> None:
    requests = Requests(100.0, None, 7)
    came = requests.first(50.0)
    assert came > 50.0
    gaps = []
    for _ in range(4000):
        following = requests.next(came, came, came + 99.0)  # it took very long: the next one comes all the same
        gaps.append(following - came)
        came = following
    assert statistics.fmean(gaps) == pytest.approx(0.01, rel=0.05)
    assert statistics.stdev(gaps) == pytest.approx(0.01, rel=0.1), "as Poisson's"
    other = Requests(100.0, None, 8)
    assert other.first(50.0) != Requests(100.0, None, 7).first(50.0), "two clients are not in step"


@pytest.mark.parametrize(("busy", "pause"), [(50.0, 2.0), (100.0, 0.0), (25.0, 6.0)])
def test_a_client_that_is_busy_for_a_part_of_the_time_pauses_for_the_rest(busy: float, pause: float) -> None:
    requests = Requests(None, busy, 1)
    assert requests.first(10.0) == 10.0
    assert requests.next(10.0, 10.0, 12.0) == pytest.approx(12.0 + pause)


def test_percentiles_are_of_the_last_seconds_alone() -> None:
    latencies = Latencies()
    assert latencies.percentiles(0.0) is None
    latencies.add(0.0, 99.0)
    for number in range(101):
        latencies.add(20.0, number / 1000)
    assert latencies.percentiles(20.0) == (0.05, 0.099)
    assert latencies.percentiles(20.0 + 2 * WINDOW) is None


@pytest.mark.parametrize("values", [{"arrivals": 1e6}, {"busy": 100.0}])
def test_a_request_is_as_large_whatever_the_share_and_its_latency_is_told(values: dict[str, float]) -> None:
    driver, channel = FakeDriver(), stop_after(400)
    work(driver, channel, kernel="fma", sms=8, **values)
    assert {blocks for _, blocks, _ in driver.launched} == {8 * REQUEST_SMS}
    last = channel.of("report")[-1]
    assert 0 <= last["latency_p50"] <= last["latency_p99"]
    assert not driver.blocks, "everything is given back"


def test_the_share_moves_between_two_requests() -> None:
    def script(channel: FakeChannel) -> None:
        if channel.looks == 5:
            channel.commands.append({"type": "share", "sms": 8})
        channel.stopping = channel.looks >= 60

    driver = FakeDriver()
    work(driver, FakeChannel(script), kernel="fma", pool=(8, 132), busy=100.0)
    assert len({context for _, _, context in driver.launched}) == 2


def test_without_requests_no_latency_is_told() -> None:
    channel = stop_after(5)
    work(FakeDriver(), channel, kernel="small")
    assert all("latency_p50" not in report for report in channel.of("report"))
