"""A monkey at the keyboard: after whatever it does, the terminal shows what a whole repaint would."""

from __future__ import annotations

import pytest
from monkey import Monkey

SECONDS = 8.0
"""For each seed; ``scripts/monkey --minutes 60`` is the long run."""


@pytest.mark.parametrize("seed", range(8))
def test_the_terminal_shows_what_a_whole_repaint_would(seed: int) -> None:
    figures = Monkey(seed).play(SECONDS)
    assert figures.looks
    assert figures.keys
