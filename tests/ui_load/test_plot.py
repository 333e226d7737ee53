"""The plot of the last minute: buckets, scale and dots."""

from __future__ import annotations

import pytest

from mpstui.ui.load.plot import COLUMNS, POINT_SECONDS, RateHistory, plot, round_up


def test_points_are_means_that_end_now():
    history = RateHistory()
    for time, value in ((10.0, 1.0), (10.1, 3.0), (10.8, 8.0)):
        history.add(time, value)
    points = history.points(11.2)
    assert len(points) == 2 * COLUMNS
    assert points[-4:] == [None, 2.0, 8.0, 8.0]  # the last is still to come, and is as the one before


def test_a_minute_is_kept_and_no_more():
    history = RateHistory()
    for number in range(400):
        history.add(number * POINT_SECONDS, float(number))
    assert len(history._points) <= 2 * COLUMNS + 3
    points = history.points(399 * POINT_SECONDS)
    assert points[0] == 320.0
    assert points[-1] == 399.0
    assert history.highest == 399.0


def test_who_has_ended_leaves_the_plot():
    history = RateHistory()
    history.add(10.0, 5.0)
    assert not any(history.points(10.0 + 90))


def test_a_steady_figure_changes_no_cell():
    history = RateHistory()
    pictures = set()
    for tick in range(1000):
        now = tick * 0.25
        history.add(now, 57.2)
        if now > 62:
            pictures.add(tuple(plot(history.points(now), 60.0, 3)))
    assert len(pictures) == 1


@pytest.mark.parametrize(
    ("points", "rows"),
    [
        ([10.0, 10.0], ["⣿", "⣿"]),
        ([5.0, 5.0], [" ", "⣿"]),
        ([0.01, 10.0], ["⢸", "⣸"]),
        ([None, 0.0], [" ", " "]),
        ([20.0, None], ["⡇", "⡇"]),
    ],
)
def test_dots(points, rows):
    assert list(plot(points, 10.0, 2)) == rows


def test_an_empty_scale_draws_nothing():
    assert list(plot([1.0, 1.0], 0.0, 1)) == [" "]


@pytest.mark.parametrize(("value", "top"), [(0, 1), (0.7, 0.8), (1, 1), (57.2, 60), (2723, 3000), (9.1, 10), (8, 8)])
def test_the_scale_is_round(value, top):
    assert round_up(value) == pytest.approx(top)
