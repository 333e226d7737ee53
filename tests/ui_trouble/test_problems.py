"""Problems as they stand and the doctor's findings, in one list."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from mpstui.core.model import Past, Problem
from mpstui.doctor.sharing import from_status
from mpstui.ui.panel import NOT_FOUND
from mpstui.ui.screens import ListScreen
from mpstui.ui.trouble.problems import ProblemsScreen, items_of
from tests.ui.screen import text_of, until
from tests.ui.snapshots import client

from .nodes import FINDINGS, TOLD, FakeTrouble, node, said, trouble_app

SIZE = (160, 48)
NEARLY = Problem("warning", "device_nearly_full", "GPU 0", "It holds 46 of 48 contexts.", "Use another device.")


def test_the_worst_comes_first_and_nothing_is_told_twice() -> None:
    items = items_of(node(problems=(NEARLY, TOLD)), FINDINGS)
    assert [item.severity for item in items] == ["error", "warning", "warning", "unknown", "ok"]
    assert sum("the status has told" in item.text for item in items) == 1


def test_what_the_status_tells_is_not_told_again_as_it_was_at_the_check_up() -> None:
    before = Problem("error", "server_start", "/tmp/mps", "18 ended", "")
    checked = tuple(from_status(SimpleNamespace(snapshot=node(problems=(before,)))))
    now = replace(before, text="24 ended")
    assert [i.text for i in items_of(node(problems=(now,)), checked) if i.severity == "error"] == ["24 ended"]
    assert all(item.severity != "error" for item in items_of(node(), checked)), "it is over"
    well = tuple(from_status(SimpleNamespace(snapshot=node())))
    assert [i.text for i in items_of(node(), well) if i.code == "starting"] == ["no server is seen to fail to start"]
    assert not [i for i in items_of(node(problems=(now,)), well) if i.code == "starting"], "it has begun since"


async def test_the_list_opens_with_problems_and_fills_with_findings() -> None:
    backend = FakeTrouble()
    backend.gate.clear()
    app = trouble_app(node(problems=(NEARLY, TOLD)), backend)
    async with app.run_test(size=SIZE) as pilot:
        assert "D Problems" in text_of(app)
        await pilot.press("D")
        assert "checking the set-up" in text_of(app)
        assert "a problem that the status has told" in text_of(app)
        assert "compute mode" not in text_of(app)
        backend.gate.set()
        await pilot.pause()
        await pilot.pause()
        text = text_of(app)
        assert "checked at 12:04:31" in text
        assert "compute mode is Default" in text
        assert "Problems 1 error, 2 warnings, 1 unknown, 1 ok ─" in text
        assert len(app.screen.panel.rows) == 5
        await pilot.press("g", "j", "j")
        assert "Set EXCLUSIVE_PROCESS." in said(app)
        assert "found by the check-up" in said(app)
        await pilot.press("enter")
        assert app.focused is app.screen.text, "Enter goes to the text about the row"
        await pilot.press("tab", "k")
        assert app.focused is app.screen.panel
        await pilot.press("r")
        await pilot.pause()
        assert backend.checks == 2


async def test_a_problem_says_where_it_can_be_put_right() -> None:
    app = trouble_app(node(problems=(TOLD,)))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("D")
        assert "! in the overview says who has to end" in said(app)


async def test_who_has_outdated_limits_is_shown_by_the_filter() -> None:
    outdated = Problem("info", "outdated", "server 3", "6 clients connected before.", "Restart the clients.")
    app = trouble_app(node(problems=(outdated,)))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("D")
        app.screen.panel.move_to([item.code for item in app.screen.panel.rows].index("outdated"))
        await pilot.pause()
        assert "/ in the overview shows them: type old:yes" in said(app)


async def test_the_title_counts_the_rows_that_there_are() -> None:
    hint = replace(NEARLY, severity="info")
    app = trouble_app(node(problems=(hint,)), FakeTrouble(findings=()))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("D")
        await pilot.pause()
        assert "Problems 1 info ─" in text_of(app)
        app.collector.push(node(problems=(hint, replace(hint, subject="GPU 1"), NEARLY, TOLD)))
        await pilot.pause()
        assert "Problems 1 error, 1 warning, 2 info ─" in text_of(app)
        app.collector.push(node(problems=()))
        await pilot.pause()
        assert "Problems ─" in text_of(app)


async def test_the_past_is_not_checked_and_no_key_offers_it() -> None:
    backend = FakeTrouble(findings=())
    stale = Problem("warning", "daemon_stale", "/tmp/mps", "It has ended.", "It is the past.")
    shown = Past("PAST", 5.0, 0.0, 9.0, playing=False, speed=1.0, why="this is over; press End in the overview")
    app = trouble_app(replace(node(problems=(stale,)), past=shown), backend)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("D")
        await pilot.pause()
        await pilot.press("r")
        await pilot.pause()
        text = text_of(app)
        assert "this is over; press End in the overview" in text.splitlines()[1], "why nothing is checked"
        assert "(r Check again)" in text.splitlines()[-1]
        assert backend.checks == 0
        assert "starts a daemon" not in said(app)
        app.collector.push(node(problems=(stale,)))
        await pilot.press("r")
        await pilot.pause()
        assert backend.checks == 1
        assert "starts a daemon" in said(app)


async def test_problems_go_and_come_while_the_screen_is_open() -> None:
    app = trouble_app(node(problems=(NEARLY,)), FakeTrouble(findings=()))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("D")
        await pilot.pause()
        app.collector.push(node(problems=()))
        await pilot.pause()
        assert "no problem is known" in text_of(app)
        app.collector.push(node(problems=(TOLD,)))
        await pilot.pause()
        assert "server 1402" in text_of(app)


async def test_a_check_up_that_fails_is_a_sentence_and_keeps_the_problems() -> None:
    app = trouble_app(node(problems=(NEARLY,)), FakeTrouble(broken="the check-up stopped: [/bad] disk"))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("D")
        await pilot.pause()
        assert "the check-up stopped: [/bad] disk" in text_of(app)
        assert "It holds 46 of 48" in text_of(app)


@pytest.mark.parametrize(("key", "has"), [("y", 1), ("Y", 4)])
async def test_copies_one_or_all_with_the_remedy(key, has) -> None:
    app = trouble_app(node(problems=(NEARLY,)), FakeTrouble(findings=FINDINGS[:3]))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("D")
        await pilot.pause()
        await pilot.press("g", key)
        lines = [line for line in app.clipboard.splitlines() if not line.startswith(" ")]
        assert len(lines) == has
        assert "    → Use another device." in app.clipboard


async def test_the_line_of_the_worst_problem_opens_the_list_by_mouse() -> None:
    app = trouble_app(node(problems=(NEARLY,)))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.click("#problems", offset=(10, 0))
        await pilot.pause()
        assert isinstance(app.screen, ProblemsScreen)


@pytest.mark.parametrize("key", ["D", "b", "W", "B"])
async def test_the_next_row_that_has_it_is_none_where_a_list_is_empty(key: str) -> None:
    """It ended the program, with a traceback."""
    app = trouble_app(node())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(key)
        await until(pilot, lambda: isinstance(app.screen, ListScreen))
        await pilot.press("slash", "z", "enter")
        app.screen.panel.set_rows([])
        await pilot.press("n", "N")
        assert [n.message for n in app._notifications][-1] == NOT_FOUND


@pytest.mark.slow
async def test_slash_filters_every_list_and_escape_shows_all_rows_before_it_leads_back() -> None:
    clients = [client(4711, user="alice"), client(4712, user="bob"), client(4713, user="bob")]
    app = trouble_app(node(clients, problems=(NEARLY, TOLD)))
    async with app.run_test(size=(80, 24)) as pilot:
        for key, typed, left in (("D", "holds use", 1), ("b", "!ALICE", 2), ("W", "", 0), ("B", "", 0)):
            await pilot.press(key)
            await until(pilot, lambda: isinstance(app.screen, ListScreen))
            await pilot.pause()
            panel = app.screen.panel
            rows = list(panel.rows)
            empty = text_of(app)
            await pilot.press("slash", *typed)
            assert "Enter Keep the filter" in text_of(app)
            assert len(panel.rows) == left
            if rows:
                assert f"/ {typed} {left} of {len(rows)}" in text_of(app)
                await pilot.press("space", "z", "z", "enter", "j", "y")
                assert "No row has that; Esc shows all." in text_of(app), "and not that there is nothing"
                assert "Esc All rows" in text_of(app)
                await pilot.press("slash")
            await pilot.press("escape")
            assert (list(panel.rows), isinstance(app.screen, ListScreen)) == (rows, True)
            assert rows or text_of(app) == empty
            await pilot.press("escape")
            assert app.screen is app.overview
