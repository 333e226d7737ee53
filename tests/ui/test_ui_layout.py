"""The shares of the panels, for every size of a terminal."""

from __future__ import annotations

import itertools

import pytest

from mpstui.ui.layout import MIN_HEIGHT, MIN_WIDTH, Needs, plan

FOCUS = ("devices", "limits", "servers", "clients", "events")


@pytest.mark.parametrize(("explained", "focus"), itertools.product([False, True], FOCUS))
def test_every_size_is_filled_exactly_and_nothing_overlaps(explained: bool, focus: str) -> None:
    for width in (40, 60, 80, 117, 118, 160, 240):
        for height in range(MIN_HEIGHT, 70):
            for devices, servers, bars in ((0, 0, 0), (1, 1, 1), (2, 3, 2), (8, 12, 3)):
                needs = Needs(devices, servers + 1, servers, explained, bars, focus)
                made = plan(width, height, needs)
                heights = dict(made.heights)
                if "limits" in heights and made.wide and "devices" in heights:
                    assert heights.pop("limits") == heights["devices"]
                assert sum(heights.values()) == height - 2 - bars, (width, height, needs, made)
                assert min(heights.values()) >= 3
                if explained:
                    assert height - bars < 18 or set(heights) == {"devices", "card", "events"}
                else:
                    assert height - bars < 9 or heights["clients"] >= 3
                    assert focus in made.heights, "the panel that the user is in is shown"


@pytest.mark.parametrize(("width", "height"), [(20, 5), (MIN_WIDTH - 1, 48), (160, MIN_HEIGHT - 1), (1, 1)])
def test_too_small_is_said(width: int, height: int) -> None:
    assert plan(width, height, Needs(1, 1, 1, False, 0, "clients")).too_small


def test_a_large_screen_shows_all_panels_with_three_lines_a_device() -> None:
    made = plan(160, 48, Needs(2, 2, 1, False, 0, "clients"))
    assert set(made.heights) == set(FOCUS)
    assert made.lines_per_device == 3
    assert made.heights["clients"] >= 20


def test_eighty_by_twenty_four_keeps_room_for_clients() -> None:
    made = plan(80, 24, Needs(2, 2, 1, False, 0, "clients"))
    assert made.lines_per_device == 1
    assert "limits" not in made.heights
    assert made.heights["clients"] >= 9
