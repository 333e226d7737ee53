"""The writer of differences: whatever Textual updates, a terminal shows the same as if all had been written."""

from __future__ import annotations

import random

import pyte
import pytest
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, CompositorUpdate, InlineUpdate, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

from mpstui.ui.diff import ScreenDiff, transition
from mpstui.ui.private import update_of

WIDTH, HEIGHT = 40, 6
NO_WRAP = "\x1b[?7l"
"""As Textual's driver sets it."""
STYLES = [
    Style.parse(text)
    for text in (
        "none",
        "red",
        "bold red",
        "green on blue",
        "bold",
        "dim italic",
        "#ff8000 on #102030",
        "default on default",
    )
]
CONSOLE = Console(force_terminal=True, color_system="truecolor", width=WIDTH, height=HEIGHT)


def strip_of(rng: random.Random, width: int, alphabet: list[str]) -> Strip:
    segments = []
    room = width
    while room:
        text = "".join(rng.choice(alphabet) for _ in range(min(room, rng.randint(1, 7))))
        segment = Segment(text, rng.choice(STYLES))
        if segment.cell_length > room:
            segment = Segment(" " * room, segment.style)
        segments.append(segment)
        room -= segment.cell_length
    return Strip(segments, width)


def shown(screen: pyte.Screen) -> list[list[pyte.screens.Char]]:
    return [[screen.buffer[y][x] for x in range(WIDTH)] for y in range(HEIGHT)]


def full(lines: list[Strip]) -> LayoutUpdate:
    return LayoutUpdate([[line] for line in lines], Region(0, 0, WIDTH, HEIGHT))


def sequence(diff: ScreenDiff, update: CompositorUpdate, console: Console = CONSOLE) -> str | None:
    known = update_of(update)
    assert known is not None
    return diff.sequence(known, console)


@pytest.mark.parametrize(
    "alphabet",
    [list("ab "), list("ab│━╾⟳✕ "), list("ab日本 "), ["a\u0301", "b", "日", " "]],
    ids=["ascii", "marks", "wide", "combining"],
)
@pytest.mark.parametrize("seed", range(8))
def test_what_is_shown_is_what_was_meant(alphabet: list[str], seed: int) -> None:
    rng = random.Random(seed)
    diff = ScreenDiff()
    actual, expected = pyte.Screen(WIDTH, HEIGHT), pyte.Screen(WIDTH, HEIGHT)
    actual_stream, expected_stream = pyte.Stream(actual), pyte.Stream(expected)
    lines = [strip_of(rng, WIDTH, alphabet) for _ in range(HEIGHT)]
    actual_stream.feed(NO_WRAP)
    actual_stream.feed(sequence(diff, full(lines)))
    for _ in range(25):
        y = rng.randrange(HEIGHT)
        if rng.random() < 0.2:
            lines = [strip_of(rng, WIDTH, alphabet) for _ in range(HEIGHT)]
            update: CompositorUpdate = full(lines)
        else:
            changed, left, right = strip_of(rng, WIDTH, alphabet), 0, WIDTH
            if all(len(character) == 1 for character in alphabet):
                # Where it cuts a character of two cells, the whole line has a blank for the half that is left.
                left, right = rng.choice([0, 10, 11]), rng.choice([24, 25, WIDTH])
                changed = Strip.join([lines[y].crop(0, left), changed.crop(left, right), lines[y].crop(right, WIDTH)])
            lines[y] = changed
            chops = [{0: lines[y] if row == y else None} for row in range(HEIGHT)]
            update = ChopsUpdate(chops, [(y, left, right)], [[WIDTH]] * HEIGHT)
        actual_stream.feed(sequence(diff, update))
        expected.reset()
        expected_stream.feed(NO_WRAP)
        expected_stream.feed(full(lines).render_segments(CONSOLE).replace("\n", ""))
        assert shown(actual) == shown(expected)


def test_nothing_is_written_where_nothing_changed() -> None:
    diff = ScreenDiff()
    lines = [strip_of(random.Random(1), WIDTH, ["a", "b", " "]) for _ in range(HEIGHT)]
    assert sequence(diff, full(lines))
    assert sequence(diff, full(lines)) == ""
    assert sequence(diff, ChopsUpdate([{0: line} for line in lines], [(2, 0, WIDTH)], [[WIDTH]] * HEIGHT)) == ""


def test_one_changed_cell_costs_a_few_bytes() -> None:
    diff = ScreenDiff()
    style = Style.parse("#ff8000 on #102030")
    sequence(diff, full([Strip([Segment("x" * WIDTH, style)])] * HEIGHT))
    line = Strip([Segment("x" * 20 + "y" + "x" * 19, style)])
    written = sequence(diff, ChopsUpdate([{0: line}] * HEIGHT, [(3, 0, WIDTH)], [[WIDTH]] * HEIGHT))
    assert written == "\x1b[4;21H\x1b[38;2;255;128;0;48;2;16;32;48my\x1b[0m"


def test_after_a_reset_all_is_written_again() -> None:
    diff = ScreenDiff()
    lines = [Strip([Segment("x" * WIDTH)])] * HEIGHT
    first = sequence(diff, full(lines))
    diff.reset()
    partial = ChopsUpdate([{0: line} for line in lines], [(0, 0, WIDTH)], [[WIDTH]] * HEIGHT)
    assert sequence(diff, partial) is None, "a part cannot be compared with a screen that is not known"
    assert sequence(diff, full(lines)) == first


def test_a_screen_of_another_size_is_written_whole() -> None:
    diff = ScreenDiff()
    sequence(diff, full([Strip([Segment("x" * WIDTH)])] * HEIGHT))
    smaller = LayoutUpdate([[Strip([Segment("x" * 10)])]] * 3, Region(0, 0, 10, 3))
    assert sequence(diff, smaller).count("x") == 30


def test_an_update_of_another_kind_is_left_to_textual() -> None:
    assert update_of(InlineUpdate([])) is None
    beside = LayoutUpdate([[Strip([Segment("x")])]], Region(3, 2, 1, 1))
    assert update_of(beside) is None


@pytest.mark.parametrize(
    ("old", "new", "shortest"),
    [
        ("1;31", "1;31", ""),
        ("1;31", "", "\x1b[0m"),
        ("", "1;31", "\x1b[1;31m"),
        ("1;31", "1;32", "\x1b[32m"),
        ("1;31", "32", "\x1b[0;32m"),
        ("31;44", "31", "\x1b[49m"),
        ("38;2;1;2;3;48;2;4;5;6", "38;2;1;2;3;48;2;7;8;9", "\x1b[48;2;7;8;9m"),
        ("38;5;200", "1;38;5;200", "\x1b[1m"),
        ("", "39;49", ""),
    ],
)
def test_the_shortest_way_between_two_styles(old: str, new: str, shortest: str) -> None:
    assert transition(old, new) == shortest


def test_fewer_colours_are_written_on_a_terminal_that_has_fewer() -> None:
    console = Console(force_terminal=True, color_system="standard", width=WIDTH, height=HEIGHT)
    assert console._color_system is ColorSystem.STANDARD
    styled = Strip([Segment("x" * WIDTH, Style.parse("rgb(250,1,1)"))])
    assert "38;2" not in sequence(ScreenDiff(), full([styled] * HEIGHT), console)
