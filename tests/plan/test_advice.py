"""Fit, advice and division on measured curves: those of docs/experiments.md on an H200, the others on an H100."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mpstui.core.partition import rounding_from
from mpstui.plan.advice import MeasuredShare, advise, divide, first_guess, fit, plot
from mpstui.plan.types import PlanTarget, target_from

ROOT = Path(__file__).parents[2]
AFFINITY = ROOT / "tests" / "data" / "h100" / "sm-affinity.txt"
LIMITED = ROOT / "tests" / "data" / "h100" / "users-quit-daemons.txt"
H100 = target_from(132, 80 << 30)


def sweep(column: int) -> list[MeasuredShare]:
    """A column of the sweep in docs/experiments.md: 1 is fma, 2 is triad; smallest, middle and largest value."""
    rows = re.findall(r"^\| ([0-9]+) % \| ([0-9]+) \| ([^|]*) \| [^|]* \| ([^|]*) \|", experiments(), re.MULTILINE)
    assert len(rows) == 9
    points = []
    for percentage, sms, *cells in rows:
        values = [float(word) for word in re.findall(r"[0-9.]+", cells[column - 1].replace(",", ""))]
        points.append(
            MeasuredShare(int(sms), float(percentage), tuple(sorted(values)) if len(values) == 3 else (values[0],) * 3)
        )
    return points


def experiments() -> str:
    return (ROOT / "docs" / "experiments.md").read_text()


def points_of(pairs: list[tuple[int, float]]) -> list[MeasuredShare]:
    return [MeasuredShare(sms, sms / 1.32, (value,)) for sms, value in pairs]


def test_arithmetic_follows_the_sms_up_to_the_last() -> None:
    found = advise(sweep(1))
    assert found.fit.per_sm == pytest.approx(0.493, abs=0.005)
    assert not found.saturates
    assert (found.chosen.sms, found.poor) == (132, False)


def test_bandwidth_is_full_with_a_third_of_the_sms() -> None:
    found = advise(sweep(2))
    assert found.saturates
    assert 34 <= found.fit.knee <= 40
    assert found.knees[0] <= found.fit.knee <= found.knees[1]
    # The fitted knee lies between two measured shares, and the next one is taken because it was seen to do.
    assert (found.chosen.sms, found.chosen.percentage, found.poor) == (48, 37.0, False)


@pytest.mark.parametrize(
    ("file", "pattern", "per_sm"),
    [
        (AFFINITY, r"ctx ([0-9]+) SMs: switch [0-9]+ us, ([0-9.]+) TFLOP/s", 0.42),
        (LIMITED, r"sm ([0-9]+) free .*\n.*launches/s [0-9.]+ +TFLOP/s +([0-9.]+)", 0.43),
    ],
    ids=["execution affinity", "thread percentage"],
)
def test_recorded_fma_has_no_knee(file: Path, pattern: str, per_sm: float) -> None:
    pairs = {int(sms): float(value) for sms, value in re.findall(pattern, file.read_text())}
    assert len(pairs) >= 3
    found = advise(points_of(list(pairs.items())))
    assert found.fit.per_sm == pytest.approx(per_sm, abs=0.01)
    assert found.chosen.sms == max(pairs)
    assert not found.saturates
    assert found.fit.error < 0.07  # fact 23: 37.9 instead of 43 on 100 SMs


def test_what_one_sm_saturates_needs_no_more_than_the_least_share() -> None:
    found = advise(points_of([(8, 2.0), (66, 2.0), (132, 2.0)]))
    assert (found.fit.knee, found.chosen.sms, found.fit.error) == (8, 8, pytest.approx(0))


def test_a_curve_of_another_kind_is_called_one() -> None:
    assert advise(points_of([(8, 1.0), (32, 9.0), (66, 3.0), (132, 8.0)])).poor
    nothing = advise(points_of([(8, 0.0), (132, 0.0)]))
    assert (nothing.fit.error, nothing.best, nothing.chosen.sms) == (0.0, 0.0, 8)
    assert plot(nothing)
    with pytest.raises(ValueError, match="no points"):
        fit([])


def test_the_knee_is_measured_at_a_share_that_the_device_has() -> None:
    points = points_of([(8, 8.0), (14, 14.0), (66, 27.0), (132, 27.0)])
    assert first_guess(points, H100) == (28, 21.3)  # the knee is at 27; 28 is 21.2 % of 132, which comes to 26
    assert first_guess(points_of([(8, 2.0), (132, 2.0)]), H100) is None


def test_noise_on_a_level_does_not_move_the_advice() -> None:
    noisy = points_of([(48, 99.0), (66, 100.0), (132, 101.0)])
    assert fit((point.sms, point.median) for point in noisy).knee > 48
    assert first_guess(noisy, H100) is None
    assert advise(noisy).chosen.sms == 48


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ((32, 32), (32, 32)),
        ((32, 132), (32, 100)),
        ((132, 32), (100, 32)),
        ((132, 132), (66, 66)),
        ((48,) * 4, (32,) * 4),
        ((8, 60, 132), (8, 60, 64)),
        ((132,) * 20, (8,) * 20),  # over-committed: less than the floor there is not
    ],
)
def test_divide(wanted: tuple[int, ...], found: tuple[int, ...]) -> None:
    assert divide(wanted, H100) == found


def test_the_plot_shows_points_fit_and_advice() -> None:
    lines = plot(advise(points_of([(33, 50.0), (66, 100.0), (132, 100.0)])), width=40, height=4)
    assert lines == [
        "100 |                  ..*...................*",
        "    |             .....",
        "    |        ..*..",
        "    |   .....",
        "  0 |...",
        "    +--------------------^--------------------",
        "     0                                 132 SMs",
    ]


def test_rounding_from_what_clients_saw() -> None:
    recorded = (ROOT / "tests" / "data" / "h100" / "faults-kills-limits.txt").read_text()
    seen = {float(p): int(sm) for p, sm in re.findall(r"(\d+) sm (\d+);", recorded)}
    found = rounding_from({p: seen[p] for p in (1, 6, 12, 18, 25, 37, 50, 62, 75, 87, 100)}, 132)
    assert found == H100.rounding
    assert rounding_from({p: seen[p] for p in (25, 50, 75, 100)}, 132) is None, "nothing under the floor"
    assert rounding_from({1: 8, 100: 132}, 132) is None, "too little"
    assert rounding_from({1: 8, 25: 40, 50: 66, 100: 132}, 132) is None, "no rounding down"


def test_target_takes_a_rounding_for_measured_or_estimated() -> None:
    assert H100.rounding.measured
    assert not PlanTarget(108).rounding.measured
