"""A monkey at the keyboard: after whatever it does, the terminal shows what a whole repaint would."""

from __future__ import annotations

import warnings

import pytest
from monkey import Monkey

SECONDS = 8.0
"""For each seed; ``scripts/monkey --minutes 60`` is the long run, to which a cell that is wrong for a second is a
defect too."""


@pytest.mark.parametrize("seed", range(8))
def test_the_terminal_shows_what_a_whole_repaint_would(seed: int) -> None:
    """Where it did not, the screen has put it right itself, as it does within a second or two; that is told."""
    monkey = Monkey(seed, heals=True)
    figures = monkey.play(SECONDS)
    assert figures.looks
    assert figures.keys
    for story in monkey.healed:
        warnings.warn(f"put right by itself:\n{story}", stacklevel=1)
