"""The shares of the panels, for every size of a terminal."""

from __future__ import annotations

import itertools

import pytest

from mpstui.ui.layout import MIN_HEIGHT, MIN_WIDTH, Needs, plan

FOCUS = ("devices", "limits", "servers", "clients", "events")


@pytest.mark.parametrize(("explained", "focus"), itertools.product([False, True], FOCUS))
def test_every_size_is_filled_exactly_and_nothing_overlaps(explained: bool, focus: str) -> None:
    choices = ({}, {"servers": True, "limits": True, "events": True}, dict.fromkeys(("devices", "events"), False))
    for width, shown in itertools.product((40, 60, 80, 117, 118, 160, 240), choices):
        for height in range(MIN_HEIGHT, 70):
            for devices, servers, bars in ((0, 0, 0), (1, 1, 1), (2, 3, 2), (8, 12, 3)):
                needs = Needs(devices, servers + 1, servers, explained, bars, focus, shown)
                made = plan(width, height, needs)
                heights = dict(made.heights)
                if made.wide and "devices" in heights and heights.keys() & {"limits", "servers"}:
                    assert heights.pop("limits", 0) + heights.pop("servers", 0) == heights["devices"]
                assert sum(heights.values()) == height - 2 - bars, (width, height, needs, made)
                assert min(heights.values()) >= (3 if made.framed else 1), (width, height, needs, made)
                if explained:
                    assert height - bars < 18 or shown or {"devices", "card"} <= set(heights) <= {*FOCUS, "card"}
                else:
                    assert height - bars < 9 or heights["clients"] >= 3, (width, height, needs, made)
                    assert focus in made.heights, "the panel that the user is in is shown"
                    assert focus == "events" or shown.get("events") is not False or "events" not in made.heights


@pytest.mark.parametrize(("width", "height"), [(20, 5), (MIN_WIDTH - 1, 48), (160, MIN_HEIGHT - 1), (1, 1)])
def test_too_small_is_said(width: int, height: int) -> None:
    assert plan(width, height, Needs(1, 1, 1, False, 0, "clients")).too_small


def test_a_large_screen_shows_all_panels_with_three_lines_a_device() -> None:
    made = plan(160, 48, Needs(2, 2, 1, False, 0, "clients"))
    assert set(made.heights) == set(FOCUS)
    assert made.lines_per_device == 3
    assert made.heights["clients"] >= 20


@pytest.mark.parametrize("bars", [0, 2])
def test_eighty_by_twenty_four_keeps_room_for_clients(bars: int) -> None:
    """A line for each device, the headings, and twelve rows of clients, also below two lines of a problem."""
    for devices in (1, 2, 4):
        made = plan(80, 24, Needs(devices, 2, 1, False, bars, "clients"))
        assert not made.framed
        assert made.heights["devices"] == devices
        assert made.heights["clients"] >= 1 + 12
    assert plan(80, 24, Needs(8, 2, 1, False, bars, "clients")).heights["devices"] == 8


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (160, 48), (200, 60)])
@pytest.mark.parametrize("focus", FOCUS)
def test_a_zoomed_panel_has_all_of_it(size: tuple[int, int], focus: str) -> None:
    assert plan(*size, Needs(2, 2, 1, False, 1, focus, {}, True)).heights == {focus: size[1] - 3}
