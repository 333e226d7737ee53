"""What reaches a real terminal: nothing when nothing changes, and after thousands of differences the right screen."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from terminal import Terminal

TESTS = Path(__file__).parents[1]
MARK = b"\x1b]7777;ten\x07"
"""See pty_program."""


def start(*modes: str, **environment: str) -> Terminal:
    where = {"PYTHONPATH": f"{TESTS}:{TESTS.parent}", "TZ": "UTC"}
    return Terminal([sys.executable, "-m", "ui.pty_program", *modes], environment=where | environment)


def fills(terminal: Terminal) -> bool:
    """The keys stand in the last line, and the first line goes to the last column."""
    first, *_, last = terminal.screen.display
    return "Help" in last and first.rstrip() != "" and len(first) - len(first.rstrip()) <= 1


def settle(terminal: Terminal) -> None:
    """Until ten snapshots have had nothing written."""
    terminal.bytes.clear()
    terminal.wait_for(lambda t: 2 * MARK in t.bytes)


@pytest.mark.slow
def test_nothing_is_written_when_nothing_changes() -> None:
    with start("quiet") as terminal:
        terminal.wait_for("46 clients")
        terminal.wait_for(lambda t: 4 * MARK in t.bytes)


@pytest.mark.slow
@pytest.mark.parametrize("colors", [{}, {"COLORTERM": "", "TERM": "xterm"}], ids=["truecolor", "few colours"])
def test_after_many_differences_the_screen_is_the_one_that_a_full_repaint_gives(colors: dict[str, str]) -> None:
    with start("rows", **colors) as terminal:
        terminal.wait_for("46 clients")
        for keys in (
            ["j", "j", "v", "v"], ["G"], ["s", "s", "I"], ["5", "g"], ["4", "/"], [*"user:b"], ["enter"], ["escape"],
            ["?"], ["escape"], ["t"], ["escape"],
        ):  # fmt: skip
            terminal.key(*keys)
            terminal.read_for(0.15)  # a tick or two
        terminal.resize(80, 24)
        terminal.read_for(0.3)
        terminal.resize(160, 48)
        terminal.wait_for("Limits")
        terminal.key("F")
        terminal.wait_for("FROZEN")
        settle(terminal)
        shown = list(terminal.screen.display)
        buffer = [[terminal.screen.buffer[y][x] for x in range(160)] for y in range(48)]
        terminal.screen.erase_in_display(2)
        terminal.key("ctrl+l")
        terminal.wait_for("FROZEN")
        terminal.wait_for(lambda t: list(t.screen.display) == shown)
        settle(terminal)
        assert list(terminal.screen.display) == shown
        assert [[terminal.screen.buffer[y][x] for x in range(160)] for y in range(48)] == buffer


@pytest.mark.slow
def test_a_tick_in_which_every_row_changes_is_small() -> None:
    with start("rows") as terminal:
        terminal.wait_for("46 clients")
        terminal.bytes.clear()
        terminal.wait_for(lambda t: t.bytes.count(MARK) > 3)
        for ten in terminal.bytes.split(MARK)[2:-1]:
            assert 0 < len(ten) / 10 < 2500, "bytes for each snapshot with 46 rows and 2 devices changed"


@pytest.mark.slow
def test_a_terminal_that_changes_again_while_its_size_is_read_is_filled_as_it_is_then() -> None:
    with start("quiet", "twice") as terminal:
        terminal.wait_for("46 clients")
        terminal.resize(100, 30)
        terminal.screen.resize(40, 120)
        terminal.wait_for(fills)


@pytest.mark.slow
def test_a_change_of_size_that_no_signal_told_is_seen_all_the_same() -> None:
    with start("quiet", "deaf") as terminal:
        terminal.wait_for("46 clients")
        for columns, lines in ((80, 24), (200, 60), (160, 48)):
            terminal.resize(columns, lines)
            terminal.wait_for(fills)


@pytest.mark.slow
def test_ctrl_l_writes_every_cell_again_whatever_is_on_the_terminal() -> None:
    with start("quiet") as terminal:
        terminal.wait_for("46 clients")
        settle(terminal)
        terminal.key("t")
        terminal.wait_for("Cancel")
        settle(terminal)
        shown = list(terminal.screen.display)
        terminal.screen.erase_in_display(2)
        terminal.key("ctrl+l")
        terminal.wait_for(lambda t: list(t.screen.display) == shown)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["timeless", "forgetful"])
def test_what_the_timer_does_not_paint_is_painted_all_the_same(way: str) -> None:
    with start("quiet", way) as terminal:
        terminal.wait_for("46 clients")
        settle(terminal)
        terminal.key("F")
        terminal.wait_for("FROZEN")
        terminal.key("F")
        terminal.wait_for(lambda t: "FROZEN" not in t.text)
