"""Lines that are too long go on below themselves where lines are free, and are cut where none is."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

import pytest

from mpstui.core.model import Problem
from mpstui.core.text import Line
from mpstui.ui.lines import hung, width_of
from mpstui.ui.panel import Panel

from .screen import make_app, text_of
from .snapshots import one_daemon

LONG = "its compute mode is Default: a program that does not find the daemon runs without MPS, and no error says so"


def told(lines: list[Line], start: int) -> str:
    return " ".join("".join(text for text, _ in line)[start:].strip() for line in lines)


@pytest.mark.parametrize("seed", range(40))
def test_a_text_that_goes_on_below_itself_loses_nothing_and_is_nowhere_too_wide(seed: int) -> None:
    chance = Random(seed)
    text = "".join(chance.choices("ab  漢é", k=chance.randrange(1, 200))) + "x" * chance.choice((1, 150))
    width = chance.randrange(20, 80)
    lines = hung((("  ▲ ", "warn"),), ((text[:50], "text"), (text[50:], "dim")), width)
    assert all(width_of(line) <= width for line in lines)
    assert told(lines, 4).replace(" ", "") == text.replace(" ", "")


def test_where_there_is_a_column_of_words_alone_it_is_one_line() -> None:
    assert len(hung((("x" * 30, "text"),), ((LONG, "text"),), 40)) == 1


class Rows(Panel[str]):
    """As many as are given."""

    KIND = "row"

    def key(self, row: str) -> str:
        return row

    def row_lines(self, row: str, width: int) -> list[Line]:
        return [(("  ", "text"), (f"{row[:2]} ", "bold"), (row, "text"))]


@pytest.mark.parametrize("height", [6, 8])
def test_rows_have_the_lines_that_are_free_and_no_others(height: int) -> None:
    panel = Rows()
    panel.set_rows([f"{n} {LONG}" for n in range(3)])
    lines = ["".join(text for text, _ in line) for line in panel.lines(80, height)]
    free = height - 2 - 3
    assert len(lines) == height
    assert sum("…" in line for line in lines) == 3 - min(3, free)
    assert [panel.row_at(y) for y in range(1, height - 1)] == ([0, 0, 1, 2] if free == 1 else [0, 0, 1, 1, 2, 2])


def test_a_list_that_is_full_is_cut_and_scrolls_as_before() -> None:
    panel = Rows()
    panel.set_rows([f"{n} {LONG}" for n in range(30)])
    lines = panel.lines(80, 12)
    assert sum("…" in text for line in lines for text, _ in line) == 10


async def test_a_problem_is_whole_where_lines_are_free_and_takes_none_from_clients() -> None:
    """At 80x24 both of its lines were cut, with ten lines of events below three clients."""
    problem = Problem(
        "warning", "x", "server 1402", "something is wrong " * 8 + "FIRST", "do this about it " * 6 + "SECOND"
    )
    node = one_daemon()
    (server,) = node.daemons[0].servers
    few = replace(node.daemons[0], servers=(replace(server, clients=server.clients[:3]),))
    for daemons, whole in (((few,), True), (node.daemons, False)):
        app = make_app(replace(node, daemons=daemons, problems=(problem,)))
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.pause()
            shown = text_of(app)
            rows = [line for line in shown.splitlines() if re.match(r"[ ▸] {2}2\d\d\d ", line)]
            assert len(rows) >= min(12, len(tuple(daemons[0].clients())))
            assert (" FIRST" in shown, " SECOND" in shown) == (whole, whole), shown
