"""The shares of the panels, for every size of a terminal."""

from __future__ import annotations

import itertools

import pytest

from mpstui.ui.layout import MIN_HEIGHT, MIN_WIDTH, PLOTS, READINGS, TALLEST, Needs, plan, reserve

FOCUS = ("devices", "limits", "servers", "clients", "events")


def filled(width: int, height: int, needs: Needs) -> None:
    """Every line of the screen is some panel's, and no line two panels'."""
    made = plan(width, height, needs)
    heights = dict(made.heights)
    right = {"limits", "servers"} | ({"events"} if made.events_beside else set())
    if made.wide and "devices" in heights and heights.keys() & right:
        assert sum(heights.pop(name, 0) for name in right) == heights["devices"], (width, height, needs, made)
    assert sum(heights.values()) == height - 2 - needs.bars, (width, height, needs, made)


def test_a_wider_terminal_never_has_a_narrower_list() -> None:
    """Seen: at 100 columns the command had a cell less than at 99, because a frame came."""
    needs = Needs(2, 2, 1, False, 1, "clients", clients=14)
    for height in (24, 31, 40, 60):
        cells = [width - (2 if plan(width, height, needs).framed else 1) for width in range(MIN_WIDTH, 220)]
        assert cells == sorted(cells), height


@pytest.mark.slow
@pytest.mark.parametrize(("explained", "focus"), itertools.product([False, True], FOCUS))
def test_every_size_is_filled_exactly_and_nothing_overlaps(explained: bool, focus: str) -> None:
    choices = ({}, {"servers": True, "limits": True, "events": True}, dict.fromkeys(("devices", "events"), False))
    for width, shown in itertools.product((40, 60, 80, 117, 118, 160, 240), choices):
        for height in range(MIN_HEIGHT, 70):
            for devices, servers, bars in ((0, 0, 0), (1, 1, 1), (2, 3, 2), (8, 12, 3)):
                needs = Needs(devices, servers + 1, servers, explained, bars, focus, shown)
                for rows in (None, 0, 14, 736):
                    filled(width, height, needs._replace(clients=rows))
                made = plan(width, height, needs)
                heights = dict(made.heights)
                assert min(heights.values()) >= (3 if made.framed else 1), (width, height, needs, made)
                if explained:
                    assert (
                        height - bars < 18 or shown or {"devices", "condition"} <= set(heights) <= {*FOCUS, "condition"}
                    )
                else:
                    assert height - bars < 9 or heights["clients"] >= 3, (width, height, needs, made)
                    assert focus in made.heights, "the panel that the user is in is shown"
                    assert focus == "events" or shown.get("events") is not False or "events" not in made.heights


@pytest.mark.parametrize(("width", "height"), [(20, 5), (MIN_WIDTH - 1, 48), (160, MIN_HEIGHT - 1), (1, 1)])
def test_too_small_is_said(width: int, height: int) -> None:
    assert plan(width, height, Needs(1, 1, 1, False, 0, "clients")).too_small


@pytest.mark.parametrize("size", [(120, 40), (160, 48), (200, 60)])
@pytest.mark.parametrize(("devices", "rows"), [(1, 3), (2, 4), (2, 14), (2, 40), (2, 736), (8, 14), (8, 736)])
def test_no_heap_of_empty_rows_beside_small_plots(size: tuple[int, int], devices: int, rows: int) -> None:
    """What the clients need not, the devices' history has, or the events; where the clients need all, they have it."""
    made = plan(*size, Needs(devices, 2, 1, False, 1, "clients", clients=rows))
    assert set(made.heights) == set(FOCUS)
    plots = made.lines_per_device - READINGS
    empty = made.heights["clients"] - 3 - rows
    assert empty <= 2 or plots == TALLEST or made.heights["devices"] + made.heights["events"] > size[1] // 2, made
    assert rows < 700 or made.heights["clients"] > size[1] // 3, made
    if made.wide:
        assert made.heights["devices"] >= devices * made.lines_per_device + 2, "no plot is cut"
    if made.events_beside:
        assert plots == TALLEST or made.heights["devices"] - 2 - devices * made.lines_per_device < devices, made
        assert made.heights["servers"] <= 1 + 3
        assert made.heights["limits"] <= 2 + 3


def test_a_large_screen_shows_the_history_and_all_panels() -> None:
    for rows in (14, 736):
        made = plan(160, 48, Needs(2, 2, 1, False, 1, "clients", clients=rows))
        assert made.events_beside
        assert made.lines_per_device >= READINGS + PLOTS
        assert made.heights["clients"] >= 3 + min(rows, 20)


def test_beside_a_card_too_the_devices_use_the_room() -> None:
    made = plan(160, 48, Needs(3, 1, 0, True, 2, "devices"))
    assert made.lines_per_device > READINGS
    assert 16 <= made.heights["condition"] <= 22, made


def test_a_large_screen_stays_as_it_is_until_the_clients_are_known() -> None:
    known = plan(160, 48, Needs(2, 2, 1, False, 1, "clients", clients=736))
    assert plan(160, 48, Needs(2, 2, 1, False, 1, "clients")) == known


def test_a_client_that_comes_or_goes_does_not_move_the_panels() -> None:
    kept = 0
    seen = []
    for rows in (14, 15, 14, 13, 12, 15, 16, 12, 30, 28, 26, 12):
        kept = reserve(rows, kept)
        assert rows <= kept <= rows + 10
        seen.append(kept)
    assert seen[:8] == [seen[0]] * 8
    assert len(set(seen)) == 3


@pytest.mark.parametrize("bars", [0, 2])
def test_eighty_by_twenty_four_keeps_room_for_clients(bars: int) -> None:
    """A line for each device, the headings, and twelve rows of clients, also below two lines of a problem."""
    for devices in (1, 2, 4):
        made = plan(80, 24, Needs(devices, 2, 1, False, bars, "clients"))
        assert not made.framed
        assert made.heights["devices"] == devices
        assert made.heights["clients"] >= 1 + 12
    assert plan(80, 24, Needs(8, 2, 1, False, bars, "clients")).heights["devices"] == 8
    few = plan(80, 24, Needs(4, 2, 1, False, bars + 2, "clients", clients=3)).heights
    assert few["events"] >= 7, "lines that few clients leave empty"
    assert few["clients"] >= 1 + 5
    many = plan(80, 24, Needs(2, 2, 1, False, bars, "clients", clients=14)).heights
    assert many["clients"] >= 1 + 12


@pytest.mark.parametrize("clients", [3, 13, None])
@pytest.mark.parametrize("devices", [1, 2, 4])
def test_in_the_past_the_newest_events_stay(devices: int, clients: int | None) -> None:
    """With four devices and 13 clients there was one blank line in place of what had happened."""
    made = plan(80, 24, Needs(devices, 2, 1, False, 3, "clients", past=True, clients=clients)).heights
    assert made["events"] >= 4
    assert made["clients"] >= 1 + 5


@pytest.mark.parametrize("past", [False, True])
def test_who_has_left_the_events_has_the_clients_rows_back(past: bool) -> None:
    """After a visit the clients had four rows less for good."""
    usual, visited, left = (
        plan(80, 24, Needs(4, 2, 1, False, 3, focus, shown, past=past, clients=13)).heights
        for focus, shown in (("clients", {}), ("events", {"events": True}), ("clients", {"events": True}))
    )
    assert visited["events"] > left["events"] == 4
    assert left["clients"] >= usual["clients"] - (0 if past else 4)
    assert left["clients"] > visited["clients"]


def test_a_zoomed_panel_of_devices_uses_the_room_for_their_history() -> None:
    made = plan(200, 60, Needs(2, 2, 1, False, 1, "devices", {}, True))
    assert made.heights["devices"] - 2 - 2 * made.lines_per_device <= 1
    assert plan(80, 24, Needs(2, 2, 1, False, 1, "devices", {}, True)).lines_per_device >= READINGS + PLOTS


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (160, 48), (200, 60)])
@pytest.mark.parametrize("focus", FOCUS)
def test_a_zoomed_panel_has_all_of_it(size: tuple[int, int], focus: str) -> None:
    assert plan(*size, Needs(2, 2, 1, False, 1, focus, {}, True)).heights == {focus: size[1] - 3}
