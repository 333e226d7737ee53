"""The sentence under a comparison: it claims no more than its numbers show."""

from __future__ import annotations

import pytest

from mpstui.load.experiments import with_or_without
from mpstui.load.spread import Spread

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
