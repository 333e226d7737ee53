"""Simulated figures follow the measured ones (facts 23, 24), and messages are folded into reports with care."""

from __future__ import annotations

import itertools

import pytest

from mpstui.load.errors import cuda_error
from mpstui.load.measure import ExperimentError, cut
from mpstui.load.protocol import Order, decode, encode, fold
from mpstui.load.spread import Spread
from mpstui.load.types import LoadSpec, WorkerReport, value_for
from mpstui.sim.load import Peer, event, rate, round_affinity


def group(kernel: str, count: int, mps: bool, sms: int = 132) -> list[Peer]:
    return [Peer(kernel, sms, 0, mps)] * count


@pytest.mark.parametrize(
    ("kernel", "count", "mps", "measured"),
    [
        ("fma", 1, False, 57.4e12),
        ("fma", 2, False, 43.2e12),
        ("fma", 4, False, 43.1e12),
        ("fma", 1, True, 57.2e12),
        ("fma", 2, True, 59.5e12),
        ("fma", 4, True, 59.6e12),
        ("triad", 1, True, 2.72e12),
        ("triad", 4, False, 2.25e12),
        ("triad", 4, True, 2.80e12),
    ],
)
def test_clients_together(kernel: str, count: int, mps: bool, measured: float) -> None:
    peers = group(kernel, count, mps)
    assert sum(rate(peer, peers, 132) for peer in peers) == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize("kernel", ["fma", "triad", "nbody", "small"])
@pytest.mark.parametrize(("count", "sms"), [(2, 32), (2, 66), (4, 32), (16, 8)])
def test_small_shares_add_up_to_no_more_than_the_device_gives(kernel: str, count: int, sms: int) -> None:
    small, whole = group(kernel, count, True, sms), group(kernel, count, True)
    assert sum(rate(p, small, 132) for p in small) <= 1.001 * sum(rate(p, whole, 132) for p in whole)


@pytest.mark.parametrize(("sms", "measured"), [(8, 3.59), (12, 5.37), (34, 14.58), (66, 28.75), (100, 37.92)])
def test_one_client_by_its_share(sms: int, measured: float) -> None:
    assert rate(Peer("fma", sms, 0, True), group("fma", 1, True, sms), 132) == pytest.approx(measured * 1e12, rel=0.01)


@pytest.mark.parametrize("kernel", ["fma", "triad", "nbody", "small"])
def test_no_neighbour_makes_a_client_faster_than_it_is_alone(kernel: str) -> None:
    for sms, other in itertools.product((8, 66, 132), ("fma", "triad", "nbody", "small")):
        me = Peer(kernel, sms, 0, True)
        alone = rate(me, [me], 132)
        assert rate(me, [me, Peer(other, 132, 0, True)], 132) <= alone * 1.04
        assert rate(me, [me, Peer(other, 132, 1, True)], 132) == alone, "another device"


def test_affinity_is_rounded_up() -> None:
    assert [round_affinity(sms, 132) for sms in (1, 8, 9, 33, 131, 132, 200)] == [8, 8, 10, 34, 132, 132, 132]


def test_events_of_the_simulated_daemon() -> None:
    assert event(b"lost error=700") == ("lost", {"error": 700})
    assert event(b"pending") == ("pending", {})
    assert event(b"x \xff = y=-1") == ("x", {})


def test_an_order_survives_the_line() -> None:
    order = Order("fma", ("a", "b c"), 3, 1.5, mps=False, parent=1, sms=8, pool=(8, 66), memory_limited=True)
    assert Order.decode(order.encode()) == order
    for wrong in (b"", b"7", b"[]", b"{}", b'{"kernel": "fma", "parent": 1, "pool": ["x"]}', b"\xff"):
        with pytest.raises(ValueError):
            Order.decode(wrong)


def test_values_of_the_wrong_kind_change_nothing() -> None:
    report = WorkerReport(1, "fma", "running", 0.0)
    wrong = {"type": "report", "figure": "x", "sms": 1.5, "levels": {}, "mps": 1, "pool": [7, {}], "launches": True}
    after = fold(report, wrong)
    assert (after.figure, after.sms, after.levels, after.mps, after.launches) == (None, None, (), None, 0)
    assert fold(report, {"type": "report", "note": "a\x1b[31m"}).notes == ("a\\x1b[31m",)
    error = fold(report, {"type": "error", "code": "x", "text": "no\nline"}).error
    assert error is not None
    assert (error.code, error.text) == (None, "no\\nline")
    assert decode(encode("go", {"a": 1})) == {"type": "go", "a": 1}
    assert [decode(line) for line in (b"[]", b"{}", b'{"type": 1}', b"[" * 100_000)] == [None] * 4


@pytest.mark.parametrize("code", [46, 806, 807, 810, 700, 2])
def test_errors_have_words_and_a_remedy(code: int) -> None:
    error = cuda_error(code)
    assert error.text.startswith(f"CUDA error {code}: ")
    assert error.remedy


def test_an_unknown_error_keeps_its_number() -> None:
    assert "12345" in cuda_error(12345, "CUDA_ERROR_NEW").text


def test_spread() -> None:
    assert Spread.of([9151, 9122, 9137]).text() == "9,137 (9,122–9,151)"
    assert Spread.of([5.001, 5.002]).text(".1f") == "5.0"
    with pytest.raises(ValueError):
        Spread.of([])


def test_windows_are_cut_from_report_to_report() -> None:
    points = [(0.25 * i, 0.25 * i * 100 if i < 8 else 200 + (0.25 * i - 2) * 300) for i in range(17)]
    assert cut(points, 2, 10.0) == pytest.approx([10.0, 30.0])
    with pytest.raises(ExperimentError):
        cut(points[:3], 2, 1.0)


def test_one_value_for_all_or_one_each() -> None:
    assert value_for((), 1) is None
    assert value_for((30.0,), 1) == 30.0
    assert value_for((30.0, 70.0), 1) == 70.0
    assert LoadSpec().clients == 1
