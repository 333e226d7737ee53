"""The planner's arithmetic, its warnings, and what it refuses."""

from __future__ import annotations

from fractions import Fraction

import pytest

from mpstui.core.model import Device
from mpstui.plan import amounts
from mpstui.plan.amounts import PlanError, limit_text
from mpstui.plan.planner import make_plan
from mpstui.plan.types import RESERVED, Plan, PlanTarget, target_from, target_of

GIB = 1 << 30
H100 = target_from(132, 80 * GIB)


def figures(plan: Plan) -> list[tuple[float, int]]:
    return [(share.percentage, share.sm_count) for share in plan.shares]


def test_uniform() -> None:
    plan = make_plan(H100, "uniform", clients=4)
    assert figures(plan) == [(25.0, 32)] * 4
    assert (plan.left.sm_count, plan.left.over_sm_count, plan.left.contexts) == (4, 0, 44)
    assert "rounded down to 32" in plan.shares[0].warnings[0]
    assert any("leaves 4 of 132 SMs" in warning for warning in plan.warnings)
    limit = plan.shares[0].memory
    assert limit == 20341 << 20
    assert limit * 4 + (plan.left.memory or 0) == 80 * GIB - RESERVED


def test_a_third_is_not_rounded_down_to_two_sms_less() -> None:
    plan = make_plan(H100, "uniform", clients=3)
    assert figures(plan) == [(33.4, 44)] * 3
    assert plan.left.sm_count == 0
    assert not any(share.warnings for share in plan.shares)


def test_half_is_the_vendors_advice_and_over_committed_on_purpose() -> None:
    plan = make_plan(H100, "half", clients=4)
    assert figures(plan) == [(50.0, 66)] * 4
    assert plan.left.over_sm_count == 132
    assert any("as this strategy means it" in warning for warning in plan.warnings)
    assert figures(make_plan(H100, "half", clients=1)) == [(100.0, 132)]


def test_weighted_and_memory_by_weight() -> None:
    plan = make_plan(H100, "weighted", weights=[Fraction(30), Fraction(70)], memory="weight")
    assert figures(plan) == [(30.0, 38), (70.0, 92)]
    assert plan.left.sm_count == 2
    small, large = (share.memory or 0 for share in plan.shares)
    assert large / small == pytest.approx(7 / 3, rel=1e-3)


def test_exact_counts_get_the_smallest_percentage() -> None:
    plan = make_plan(H100, "exact", sm_counts=[24, 60], memory=[10 * GIB, 20 * GIB])
    assert figures(plan) == [(18.2, 24), (45.5, 60)]
    assert [share.affinity_sms for share in plan.shares] == [24, 60]
    assert [limit_text(share.memory or 0) for share in plan.shares] == ["10G", "20G"]
    assert plan.left.sm_count == 48
    assert not any(share.warnings for share in plan.shares)


def test_a_count_between_the_steps_gets_the_next_one_and_says_so() -> None:
    plan = make_plan(H100, "exact", sm_counts=[25, 3])
    assert [share.sm_count for share in plan.shares] == [26, 8]
    assert [share.affinity_sms for share in plan.shares] == [26, 8]
    assert all("are not possible" in share.warnings[0] for share in plan.shares)


@pytest.mark.parametrize("number", range(1, 49))
def test_every_number_of_clients_that_a_device_takes(number: int) -> None:
    plan = make_plan(H100, "uniform", clients=number)
    total = sum(share.sm_count for share in plan.shares)
    assert total + plan.left.sm_count - plan.left.over_sm_count == 132
    if number > 132 // 8:
        assert plan.left.over_sm_count
        assert "more than its share" in plan.shares[0].warnings[0]
    else:
        assert not plan.left.over_sm_count


def test_a_limit_under_a_context_of_that_size() -> None:
    plan = make_plan(H100, "uniform", clients=1, memory=[500 << 20])
    assert "could not start" in plan.shares[0].warnings[0]
    small = make_plan(H100, "exact", sm_counts=[8], memory=[500 << 20])
    assert not small.shares[0].warnings  # a context on 8 SMs takes 58 MiB


def test_limits_over_the_memory_together() -> None:
    plan = make_plan(H100, "uniform", clients=2, memory=[41 * GIB])
    assert plan.left.over_memory == 82 * GIB - (80 * GIB - RESERVED)
    assert any("over-committed: the limits" in warning for warning in plan.warnings)


def test_without_memory_there_are_no_limits() -> None:
    plan = make_plan(target_from(132, None), "uniform", clients=2)
    assert [share.memory for share in plan.shares] == [None, None]
    assert plan.left.memory is None
    assert make_plan(H100, "uniform", clients=2, memory="none").shares[0].memory is None


def test_contexts_count_against_the_limit() -> None:
    assert make_plan(H100, "uniform", clients=4, contexts=12).left.contexts == 0
    with pytest.raises(PlanError, match="48 contexts"):
        make_plan(H100, "uniform", clients=4, contexts=13)
    with pytest.raises(PlanError, match="49 clients"):
        make_plan(H100, "uniform", clients=49)


def test_an_unmeasured_device_is_said_to_be_one() -> None:
    device = Device("GPU-1", sm_count=108, compute_capability=(8, 0), memory_total=40 * GIB)
    target = target_of(device)
    assert isinstance(target, PlanTarget)
    assert any("estimates" in warning for warning in make_plan(target, "uniform", clients=2).warnings)
    assert target_of(Device("GPU-1")) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "uniform"}, "how many clients"),
        ({"strategy": "uniform", "clients": 2, "weights": [Fraction(1)]}, "neither weights nor"),
        ({"strategy": "weighted", "clients": 2}, "needs weights"),
        ({"strategy": "weighted", "clients": 3, "weights": [Fraction(1), Fraction(2)]}, "weights: 2 were given for 3"),
        ({"strategy": "exact"}, "needs SM counts"),
        ({"strategy": "exact", "sm_counts": [133]}, "133 SMs are more than the 132"),
        ({"strategy": "uniform", "clients": 2, "memory": [GIB] * 3}, "3 were given for 2"),
        ({"strategy": "uniform", "clients": 2, "memory": [81 * GIB]}, "more than the 80.0 GiB"),
        ({"strategy": "uniform", "clients": 2, "names": ["a", "a"]}, "given twice"),
        ({"strategy": "uniform", "clients": 1, "names": ["a", "b"]}, "1 client needs one name, and 2 were given"),
        ({"strategy": "uniform", "clients": 2, "names": ["a"]}, "2 clients need a name each, and 1 was given"),
        ({"strategy": "uniform", "clients": 1, "memory": [GIB] * 2}, "2 were given for 1 client$"),
        ({"strategy": "weighted", "clients": 1, "weights": [Fraction(1)] * 2}, "weights: 2 were given for 1 client$"),
    ],
)
def test_what_cannot_be_is_said(options: dict, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make_plan(H100, **options)


def test_a_device_too_small_for_its_clients() -> None:
    with pytest.raises(PlanError, match="too little"):
        make_plan(target_from(132, 554 << 20), "uniform", clients=2)


def test_one_client_and_one_sm_are_no_plurals() -> None:
    with pytest.raises(PlanError, match="too little for 1 client"):
        make_plan(target_from(132, 1 << 19), "uniform", clients=1, memory="even")
    (share,) = make_plan(H100, "exact", sm_counts=[1]).shares
    assert share.warnings[0].startswith("1 SM is not possible: SMs come in steps")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("80GiB", 80 * GIB), ("10G", 10 * GIB), ("900M", 900 << 20), ("1.5 GiB", 3 * GIB // 2), ("2t", 2 << 40)],
)
def test_sizes(text: str, expected: int) -> None:
    assert amounts.size(text, "memory") == expected


@pytest.mark.parametrize("text", ["", "0G", "-1G", "abc", "10", "512MB", "1e9G", "G", "10 G G", "٣G", "1K", "10G,"])
def test_wrong_sizes(text: str) -> None:
    with pytest.raises(PlanError, match="memory"):
        amounts.sizes(text, "memory")


@pytest.mark.parametrize("text", ["", "0", "-1", "30,", "a,b", "30;70", "nan", "inf", "1e3", "\x1b[31m"])
def test_wrong_weights_and_counts(text: str) -> None:
    with pytest.raises(PlanError, match="above 0") as error:
        amounts.weights(text)
    assert str(error.value).isprintable()
    with pytest.raises(PlanError, match="above 0"):
        amounts.counts(text, "SM counts")


@pytest.mark.parametrize(("size", "text"), [(10 * GIB, "10G"), (900 << 20, "900M"), ((900 << 20) + 5, "900M")])
def test_limits_as_mps_writes_them(size: int, text: str) -> None:
    assert limit_text(size) == text
