"""The screen that says who launches kernels: one look when it opens, one at each key, and the reasons where not."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from mpstui.core.activity import ActivityLook, Launcher, activity_look
from mpstui.core.model import Past, ProcessKey
from mpstui.ui.dialogs import DetailsScreen
from mpstui.ui.trouble.activity import SECONDS, ActivityScreen, LaunchersPanel
from tests.ui.screen import push, text_of

from .nodes import A, B, C, member, node, said, trouble_app


class Counting:
    """The collector of the app, with looks that end when the test says so."""

    def __init__(self, collector: object) -> None:
        self.looks: list[float] = []
        self.over = asyncio.Event()
        self.per_second = 100
        self.collector = collector

    async def __call__(self, seconds: float) -> ActivityLook:
        self.looks.append(seconds)
        await self.over.wait()
        self.over.clear()
        snapshot = self.collector.snapshot
        counts = {A: int(self.per_second * seconds), B: 0}
        return activity_look(snapshot, seconds, "a counter of the test", counts, {C: "it has no libcuda.so mapped"})


@pytest.mark.slow
async def test_it_looks_once_and_again_at_the_key() -> None:
    app = trouble_app(node((member(A, 0), member(B, 0), member(C, 1))))
    async with app.run_test(size=(120, 40)) as pilot:
        app.collector.activity = counting = Counting(app.collector)
        await pilot.press("a")
        assert isinstance(app.screen, ActivityScreen)
        assert counting.looks == [SECONDS]
        assert "counting for 2 s" in text_of(app)
        assert "Look again" not in text_of(app).splitlines()[-1], "it does already"
        await pilot.press("a")
        assert counting.looks == [SECONDS], "it is counting already"
        counting.over.set()
        await pilot.pause()
        text = text_of(app)
        assert "counting for" not in text
        assert [launcher.pid for launcher in app.screen.launchers.rows] == [A.pid, B.pid, C.pid]
        assert "In 2.0 s 1 of 2 clients launched kernels; 1 could not be counted." in said(app)
        assert "Launches are not SM time" in said(app)
        assert " 1 of 2 clients launch · 1 not counted" in text, "as the sentence says"
        assert "LAUNCH/s▼" in text
        assert "Enter Details" in text.splitlines()[-1]
        await pilot.press("enter")
        assert isinstance(app.screen, DetailsScreen)
        assert app.screen.identity == A
        await pilot.press("escape", "j", "j")
        assert "not counted: it has no libcuda.so mapped" in said(app)
        counting.per_second = 7
        await pilot.press("r")
        counting.over.set()
        await pilot.pause()
        await pilot.press("g")
        assert "14 launches, 100 % of all that were counted" in said(app)
        await pilot.press("escape")
        assert not isinstance(app.screen, ActivityScreen)


async def test_who_has_gone_since_the_look_is_told_of_in_the_past_tense() -> None:
    """It stayed in the list with "holds 1.0 GiB" and "client of …", and nothing said when it was counted."""
    whole = node((member(A, 0), member(B, 0)))
    app = trouble_app(whole)
    async with app.run_test(size=(80, 24)) as pilot:
        app.collector.activity = counting = Counting(app.collector)
        counting.over.set()
        await pilot.press("a")
        await pilot.pause()
        looked = time.strftime("%H:%M:%S", time.localtime(whole.time))
        assert f" 1 of 2 clients launch · {looked}" in text_of(app)
        assert ("gone" in text_of(app), "holds 1.0 GiB" in said(app)) == (False, True)
        text = await push(pilot, node((member(B, 0),)))
        assert f" 1 of 2 clients launch · {looked} · 1 gone" in text
        told = said(app)
        assert all(words in told for words in ("gone since then", "held 1.0 GiB", "was a client of"))
        assert "holds 1.0 GiB" not in told
        await pilot.press("j")
        assert "holds 1.0 GiB" in said(app)


async def test_nobody_is_counted_in_the_past_and_no_key_offers_it() -> None:
    shown = Past("PAST", 5.0, 0.0, 9.0, playing=False, speed=1.0, why="this is over")
    app = trouble_app(replace(node((member(A, 0),)), past=shown))
    async with app.run_test(size=(80, 24)) as pilot:
        app.collector.activity = counting = Counting(app.collector)
        counting.over.set()
        await pilot.press("a", "a")
        await pilot.pause()
        await pilot.press("a", "r")
        assert "(a Look again)" in text_of(app).splitlines()[-1]
        assert counting.looks == [SECONDS], "the one that says of each why he is not counted"
        app.collector.push(node((member(A, 0),)))
        await pilot.press("a")
        assert counting.looks == [SECONDS, SECONDS]


async def test_what_a_stranger_is_called_is_text() -> None:
    app = trouble_app(node((member(A, 0),)))
    async with app.run_test(size=(80, 24)) as pilot:
        evil = Launcher(ProcessKey(5), None, None, 1, None, "[red]\\x1b[2J", None, None, 5, 2.5, 100.0, "")

        async def look(seconds: float) -> ActivityLook:
            return ActivityLook(1.0, "real", seconds, "x", (evil,), 1)

        app.collector.activity = look
        await pilot.press("a")
        await pilot.pause()
        assert "[red]" in text_of(app)
        assert "computed without MPS" in said(app), "the node has no such process"
        await pilot.press("enter")
        assert isinstance(app.screen, ActivityScreen), "there is nothing more to tell, and that is said"
        assert any("not on a client of MPS" in each.message for each in app._notifications)
        assert app.screen.panel.size.height > app.screen.text.size.height, "who launches is what one has come for"


def test_where_nobody_could_be_counted_none_is_said_to_launch_nothing() -> None:
    """In the past it said “0 of 15 processes launch”."""
    snapshot = node((member(A, 0), member(B, 0)))
    panel = LaunchersPanel()
    for counts, told in (({}, " 2 clients, none counted"), ({A: 0}, " 0 of 1 client launches · 1 not counted")):
        panel.set_rows(activity_look(snapshot, 2.0, "", counts, {}).launchers)
        assert panel.title()[1][0] == told


async def test_a_long_command_is_told_whole_where_lines_are_free() -> None:
    """At 120x40 it had 11 cells, and most of the list was empty."""
    command = "python train.py --model resnet50 --batch 256"
    app = trouble_app(node([member(key, 0, command=command) for key in (A, B, C)]))
    async with app.run_test(size=(120, 40)) as pilot:
        app.collector.activity = counting = Counting(app.collector)
        counting.over.set()
        await pilot.press("a")
        await pilot.pause()
        told = " ".join(line.split("││")[0][47:].strip() for line in text_of(app).splitlines()[3:9])
        assert told == " ".join([command] * 3)
