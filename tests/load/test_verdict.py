"""The sentence under a comparison: it claims no more than its numbers show."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mpstui.load import experiments
from mpstui.load.experiments import nbody, scaling, with_or_without
from mpstui.load.measure import Lab
from mpstui.load.spread import Spread
from mpstui.load.types import LoadSpec

NONE = "No difference seen: the 95 % intervals of the repeats overlap."


@pytest.mark.parametrize(
    ("times", "verdict"),
    [
        ({4: ((100, 102), (78, 80))}, "MPS helps: 4 clients take 22% less time with it than without."),
        ({1: ((100, 100), (90, 90))}, "MPS helps: 1 client takes 10% less time with it than without."),
        ({1: ((100, 101), (110, 111))}, "MPS does not help here: 1 client takes 10% more time with it."),
        ({4: ((80, 120), (70, 82))}, NONE),
        ({4: ((80, 120), (85, 100))}, NONE),
        ({1: ((100, 100), (100, 100))}, NONE),
        ({1: ((100, 100), (99, 99))}, "MPS makes no difference here: less than 2% either way."),
        (
            {1: ((100, 100), (110, 110)), 4: ((400, 400), (300, 300))},
            "It depends: 4 clients take 25% less time with it than without, but 1 client takes 10% more time with it.",
        ),
        # A great gain whose values overlap does not hide a small one that is sure.
        (
            {2: ((50, 150), (20, 60)), 4: ((100, 100), (95, 95))},
            "MPS helps: 4 clients take 5% less time with it than without.",
        ),
    ],
)
def test_with_or_without(times: dict[int, tuple[tuple[float, float], tuple[float, float]]], verdict: str) -> None:
    spreads = {count: (Spread.of(off), Spread.of(on)) for count, (off, on) in times.items()}
    assert with_or_without(spreads) == verdict


def test_work_that_is_divided_is_said_to_be_done_sooner_where_the_repeats_are_apart() -> None:
    one, four = Spread(100, 99, 101), Spread(50, 49, 51)
    assert scaling({1: (one, one), 4: (one, four)}) == (
        "Speed-up from 1 to 4 clients that divide the work: no difference seen without MPS, ×2.00 with it."
    )
    assert "cannot be seen" in scaling({4: (one, four)})


@pytest.mark.parametrize("divided", [False, True])
async def test_divided_each_client_has_its_part_of_the_work_of_one(
    monkeypatch: pytest.MonkeyPatch, divided: bool
) -> None:
    asked: list[tuple[int, float]] = []

    async def times(lab: Lab, spec: LoadSpec, label: str = "") -> list[float]:
        if label:
            asked.append((spec.clients, spec.amount or 0.0))
        return [(spec.amount or 0.0) * (1 + len(asked) / 1e4)] * spec.clients

    @asynccontextmanager
    async def running(lab: Lab, spec: LoadSpec) -> Any:
        yield None, [1]

    async def windows(lab: Lab, supervisor: Any, workers: Sequence[int]) -> list[list[float]]:
        return [[1e-9]]

    monkeypatch.setattr(experiments, "times", times)
    monkeypatch.setattr(experiments, "running", running)
    monkeypatch.setattr(experiments, "windows", windows)
    lab = Lab(lambda: None, Path("/x"), lambda _: None, repeats=3)  # type: ignore[arg-type, return-value]
    outcome = await nbody(lab, (1, 2, 4), divided=divided)
    alone = asked[0][1]
    assert {(count, amount / alone) for count, amount in asked} == {(n, 1 / n if divided else 1.0) for n in (1, 2, 4)}
    assert ("its part of" in outcome.title) == divided
    assert ("Speed-up from 1 to 4 clients that divide the work: ×4.00 without MPS" in outcome.verdict) == divided


@pytest.mark.parametrize(
    "lesson",
    ["NBODY_NOTES", "COMMAND_NOTES", "SWEEP_NOTES", "INTERFERENCE_NOTES"],
)
def test_a_lesson_is_two_sentences(lesson: str) -> None:
    assert [note[-1] for note in getattr(experiments, lesson)] == [".", "."]


def test_what_the_share_of_the_knee_costs_is_what_the_knee_is() -> None:
    """“A smaller share costs such a kernel nothing”: at the knee it has 95 % of its best, and may have no more."""
    assert f"at its knee a kernel has {experiments.KNEE:.0%} of its best or more" in experiments.SWEEP_NOTES[1]
    assert "nothing" not in " ".join(experiments.SWEEP_NOTES)
