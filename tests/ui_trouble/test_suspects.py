"""The screen that compares faults: reached from where a fault is shown, honest about what it does not know."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpstui.core.model import Past, Suspect
from mpstui.ui.trouble.fault import FaultScreen
from mpstui.ui.trouble.opening import open_screen
from mpstui.ui.trouble.suspects import SuspectsScreen
from tests.ui.fakes import FakeRunner
from tests.ui.screen import push, text_of, until

from .nodes import FATAL, A, B, C, FakeTrouble, faulted, node, said, trouble_app

NOW_HIT = (
    Suspect(3000, 2001, "alice", "python train.py --seed 9"),
    Suspect(3001, 2002, "bob", "vllm serve llama"),
    Suspect(3002, 2003, "carol", "gmx mdrun"),
)
LATEST = FATAL._replace(suspects=NOW_HIT)
OLDER = FATAL._replace(
    time=FATAL.time - 3600,
    raw="older",
    values={"named": "2900"},
    suspects=(Suspect(2900, 2003), Suspect(2901, 2001)),
)


def shown(**changes: object):
    return replace(faulted(A, B, C), events=(LATEST,), **changes)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(160, 48), (80, 24)])
async def test_faults_of_the_logs_and_of_the_screen_are_compared(size) -> None:
    app = trouble_app(shown(), FakeTrouble((OLDER,)))
    async with app.run_test(size=size) as pilot:
        await pilot.press("exclamation_mark")
        assert isinstance(app.screen, FaultScreen)
        assert "B compares it with earlier faults" in said(app)
        await pilot.press("B")
        assert isinstance(app.screen, SuspectsScreen)
        await pilot.pause()
        text = said(app)
        assert "Equal: each was there at up to 2 of 2 faults: alice, python train.py; carol, gmx mdrun" in text
        assert "bob" not in text.split(";")[0]
        assert "Of some clients only the user is known" in text
        assert "one at a time, each alone in a daemon of its own" in text
        assert "client 2901 (command not known); server.log names client 2900" in text
        assert "1 to 2 of 2" in text_of(app)
        await pilot.press("y")
        assert app.clipboard.startswith("mpstui daemon start --pipe-dir /run/mps-suspect")
        await pilot.press("escape", "escape")
        assert app.screen is app.overview


async def test_another_fault_decides_while_the_screen_is_open() -> None:
    app = trouble_app(shown())
    async with app.run_test(size=(160, 48)) as pilot:
        await pilot.press("B")
        assert "One fault so far; any client that was there may have made it" in said(app)
        again = LATEST._replace(time=LATEST.time + 5, raw="again", suspects=NOW_HIT[1:2])
        await push(pilot, replace(shown(), events=(LATEST, again)))
        assert "In 2 of 2 faults: bob, vllm serve llama; no other user or command was there at more than 1." in said(
            app
        )


async def test_logs_that_cannot_be_read_and_no_fault_are_said() -> None:
    app = trouble_app(node(), FakeTrouble(broken="the log is a directory"))
    async with app.run_test(size=(160, 48)) as pilot:
        await pilot.press("B")
        await pilot.pause()
        assert "No fatal fault is in the history." in said(app)
        assert "Older faults could not be read: the log is a directory." in said(app)
        await pilot.press("y")
        assert not app.clipboard


@pytest.mark.slow
async def test_what_of_the_history_is_not_read_is_said() -> None:
    """Who compares "all faults" with half of the logs compressed has not compared them."""
    backend = FakeTrouble((OLDER,))
    backend.missing = ("/var/log/nvidia-mps: what was compressed is not read, and its events are missing: a.gz",)
    app = trouble_app(shown(), backend)
    async with app.run_test(size=(160, 48)) as pilot:
        await pilot.press("E", "O")
        await until(pilot, lambda: any("its events are missing" in note.message for note in app._notifications))
        await pilot.press("escape", "B")
        await until(pilot, lambda: "its events are missing: a.gz." in said(app))


async def test_in_the_past_the_faults_that_came_later_are_none_yet() -> None:
    """The logs were read to their end: who looked at 02:10 saw the fault of 02:30 counted."""
    later = OLDER._replace(time=LATEST.time + 60)
    then = Past("PAST", LATEST.time + 1, 0.0, LATEST.time + 99, False, 1.0, "the screen shows the past")
    app = trouble_app(replace(shown(), past=then), FakeTrouble((OLDER, later)))
    async with app.run_test(size=(160, 48)) as pilot:
        await pilot.press("B")
        await until(pilot, lambda: "of 2 faults" in said(app))


async def test_a_recording_says_what_it_does_not_know_and_not_that_nothing_can_be_changed() -> None:
    past = Past("REPLAY", 5.0, 0.0, 10.0, False, 1.0, "this is a recording")
    app = trouble_app(replace(node(), past=past), FakeTrouble(broken="this is a recording"))
    async with app.run_test(size=(160, 48)) as pilot:
        await pilot.press("B")
        await pilot.pause()
        assert "Faults before the record begins are not known." in said(app)
        assert "recording" not in said(app)


@pytest.mark.slow
async def test_an_event_says_whom_it_was_about_and_a_fault_its_suspects() -> None:
    app = trouble_app(shown())
    async with app.run_test(size=(160, 48)) as pilot:
        await pilot.press("E", "enter")
        text = text_of(app)
        assert "Suspects: each client with a context on these GPUs then" in text
        assert "alice  python train.py --seed 9  ◀ no proof: named by server.log" in text
        assert "bob  vllm serve llama" in text


def test_a_screen_that_is_not_there_is_not_another() -> None:
    """It was that of the problems."""
    with pytest.raises(KeyError, match="invented"):
        open_screen("invented", FakeRunner(), None, None, None, None)
