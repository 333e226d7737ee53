"""The screen back in time: its keys, its bar, the line that takes a time, and what says that it is the past."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import replace

import pytest
from textual import events
from textual.widgets import Input, OptionList

from mpstui.core import condition
from mpstui.core.model import Past, Snapshot
from mpstui.history.log_recording import LogTape
from mpstui.history.player import Player
from mpstui.history.postmortem import as_told_there
from mpstui.history.times import parse_time
from mpstui.ui.bars import badge
from mpstui.ui.past import examples, track
from tests.observe.test_reducer import FAULTS

from .fakes import FakeCollector, FakeRunner
from .screen import make_app, push, text_of, until
from .snapshots import NOW, one_daemon

WHY = "this is a recording: that works on a live daemon only"


class Machine:
    """Says what it was asked, and shows the past that the test wants."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.earlier: tuple[Snapshot, ...] = ()
        self.begin: float | None = None
        self.why: str | None = None

    async def step(self, events: int) -> str | None:
        self.asked.append(("step", events))
        return self.why

    async def move(self, seconds: float) -> str | None:
        self.asked.append(("move", seconds))
        return self.why

    async def jump(self, text: str) -> str | None:
        self.asked.append(("jump", text))
        return None if text == "10m" else f"“{text}” is no time"

    async def to_end(self) -> str | None:
        self.asked.append(("end",))
        return None

    async def save(self, text: str) -> tuple[bool, str]:
        self.asked.append(("save", text))
        return False, "it is there"

    def meanwhile(self, callback: object) -> None: ...

    def toggle(self) -> bool:
        self.asked.append(("toggle",))
        return True


def said(app, text: str) -> bool:
    return text in [each.message for each in app._notifications]


def past(**more: object) -> Past:
    return Past("REPLAY", NOW - 60, NOW - 3600, NOW, False, 1.0, WHY)._replace(**more)


async def test_of_the_past_nothing_is_said_to_be_looked_for() -> None:
    """Seen at the first moment that a screen had kept: “… looking” and “… looking for devices”."""
    whole = replace(one_daemon(), past=past(), devices=(), driver_version=None, nvml_detail=None)
    unasked = replace(whole.daemons[0], condition=condition.unasked("", condition.Moment()))
    app = make_app(replace(whole, daemons=(unasked,)))
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.pause()
        hole = past(gap=(NOW - 120, NOW - 30))
        assert "— not recorded" in (await push(pilot, replace(one_daemon(), past=hole))).splitlines()[0]
        await push(pilot, replace(whole, daemons=(unasked,)))
        assert "— by its log · " in text_of(app).splitlines()[0], "as the clients below it are"
        gone = replace(unasked, servers=())
        assert "— not known at that time" in (await push(pilot, replace(whole, daemons=(gone,)))).splitlines()[0]
        assert "— not read yet at that time" in text_of(app)
        shown = await push(pilot, replace(whole, daemons=(), looked=False))
        assert "At that time nothing of the node had been read." in shown
        assert "ooking" not in shown


@pytest.mark.parametrize("length", [61, 119, 150, 900, 7200])
@pytest.mark.parametrize("shown", ["now", "past", "its beginning"])
def test_the_examples_of_times_lie_in_what_is_kept(length: int, shown: str) -> None:
    """A record of five minutes was offered a time of ten minutes before, and each of them was refused."""
    first = NOW + 17.25 - length
    at = {"now": None, "past": NOW - 20, "its beginning": first}[shown]
    moment = None if at is None else past(what="PAST", first=first, last=NOW + 17.25, at=at)
    day, clock, ago = re.fullmatch(
        r"go to: \d\d:\d\d  \d\d:\d\d:(\d\d)  (.*? .*?)  (\d+[ms]) = .* ago", examples(moment, first, NOW + 17.25)
    ).group(2, 1, 3)
    for text in (day, f"{day}:{clock}", ago):
        assert first <= parse_time(text, NOW + 17.25) <= NOW + 17.25, text


def test_two_events_of_one_second_are_two_times() -> None:
    """The key that led from the one to the other seemed to do nothing."""
    seen = [badge(past(at=NOW - 60 + part)) for part in (0.0, 0.25, 0.5)]
    assert [each.rpartition(":")[2][2:] for each in seen] == [" ", ".250 ", ".500 "]
    assert "." not in badge(past(at=NOW - 59.5, playing=True)), "it would run through them"


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=str)
async def test_the_past_is_said_all_the_time_and_its_keys_move(size) -> None:
    app = make_app(one_daemon())
    app.past = machine = Machine()
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        assert "REPLAY" not in text_of(app)
        await pilot.press("end")
        assert machine.asked == []
        shown = await push(pilot, replace(one_daemon(), past=past()))
        head, bar = shown.splitlines()[:2]
        assert time.strftime(" REPLAY %Y-%m-%d %H:%M:%S ", time.localtime(NOW - 60)) in head
        assert "●" in bar
        assert "< > event  { } minute  T time  F play  " in bar
        await pilot.press(
            "less_than_sign", "greater_than_sign", "left_curly_bracket", "right_curly_bracket", "end", "F"
        )
        wanted = [("step", -1), ("step", 1), ("move", -60.0), ("move", 60.0), ("end",), ("toggle",)]
        await until(pilot, lambda: len(machine.asked) == len(wanted))
        assert sorted(map(str, machine.asked)) == sorted(map(str, wanted))
        machine.asked.clear()
        await pilot.press("T", *"25:00", "enter")
        await until(pilot, lambda: said(app, "“25:00” is no time"))
        assert machine.asked == [("jump", "25:00")]
        assert app.overview.asks_time, "what is typed next corrects it, and is no command"
        await pilot.press(*"10m", "enter")
        await until(pilot, lambda: not app.overview.asks_time)
        assert machine.asked == [("jump", "25:00"), ("jump", "10m")]
        await pilot.press("T", *"12", "escape", "slash", *"a<T", "end", "escape")
        assert len(machine.asked) == 2
        assert "T time" in text_of(app)
        await pilot.press("question_mark")
        await until(pilot, lambda: app.screen is not app.overview)
        for key in "Ldp":
            await pilot.press("escape", key)
            await until(pilot, lambda: said(app, WHY))
            assert app.screen is app.overview
            app.clear_notifications()
        await pilot.press("E")
        await until(pilot, lambda: "REPLAY" in text_of(app).splitlines()[0])
        await pilot.press("escape")
        machine.why = "There is no later event."
        await pilot.press("greater_than_sign")
        await until(pilot, lambda: said(app, "There is no later event."))
        assert "REPLAY" not in await push(pilot, one_daemon())


async def test_what_is_typed_right_behind_a_move_is_for_the_past_that_it_leads_to() -> None:
    """It went to what was shown before: to the clients of now, and p opened the plan."""
    app = make_app(one_daemon())
    found = asyncio.Event()

    class Slow(Machine):
        async def move(self, seconds: float) -> str | None:
            await found.wait()
            app.collector.push(replace(one_daemon(), past=past(what="PAST")))
            return None

    app.past = Slow()
    async with app.run_test(size=(80, 24)) as pilot:
        row = app.overview.clients.cursor_index
        for key in ("{", "j", "p"):
            app.post_message(events.Key("left_curly_bracket" if key == "{" else key, key))
        for _ in range(50):
            await asyncio.to_thread(len, ())  # sleep(0) leaves the loop no moment in which it has nothing to do
        assert app.overview.clients.cursor_index == row
        assert app.screen is app.overview
        found.set()
        await until(pilot, lambda: said(app, WHY))
        assert app.screen is app.overview
        assert app.overview.clients.cursor_index == row + 1


@pytest.mark.slow
@pytest.mark.parametrize(("key", "how"), [("left_curly_bracket", "move"), ("less_than_sign", "step")])
async def test_a_key_that_moves_in_time_adds_to_the_move_that_is_under_way(key: str, how: str) -> None:
    """20 presses were 20 moves one after the other: the screen came three minutes far in four seconds."""
    app = make_app(one_daemon())
    found, all_asked = asyncio.Event(), asyncio.Event()

    class Slow(Machine):
        async def step(self, events: int) -> str | None:
            return await self.wait("step")

        async def move(self, seconds: float) -> str | None:
            return await self.wait("move")

        async def wait(self, how: str) -> str | None:
            self.asked.append((how,))
            if len(self.asked) == 20:
                all_asked.set()
            await found.wait()
            app.collector.push(replace(one_daemon(), past=past(what="PAST")))
            return None

    app.past = machine = Slow()
    async with app.run_test(size=(80, 24)) as pilot:
        row = app.overview.clients.cursor_index
        for each in (*[key] * 20, "j", key, "end"):
            app.post_message(events.Key(each, None))
        await asyncio.wait_for(all_asked.wait(), 60)
        for _ in range(50):
            await asyncio.to_thread(len, ())  # sleep(0) leaves the loop no moment in which it has nothing to do
        assert machine.asked == [(how,)] * 20
        assert app.overview.clients.cursor_index == row, "every other key waits for what is seen then"
        found.set()
        await until(pilot, lambda: machine.asked == [*[(how,)] * 21, ("end",)])
        assert app.overview.clients.cursor_index == row + 1
        assert not any("Dropped" in each.message for each in app._notifications)


async def test_of_a_key_that_is_held_at_the_beginning_nothing_is_said_to_be_dropped() -> None:
    app = make_app(one_daemon())
    app.past = machine = Machine()
    machine.why = "There is no record from before 12:00:00."
    async with app.run_test(size=(80, 24)) as pilot:
        for each in ("left_curly_bracket", "left_curly_bracket", "left_curly_bracket", "p"):
            app.post_message(events.Key(each, None))
        await until(pilot, lambda: any("Dropped: p." in each.message for each in app._notifications))
        assert machine.asked == [("move", -60.0)] * 3
        assert not any("{" in each.message for each in app._notifications)
        assert said(app, machine.why)


@pytest.mark.slow
async def test_the_keys_at_the_foot_lead_back_to_now_and_escape_does_too() -> None:
    app = make_app(one_daemon())
    app.past = machine = Machine()
    async with app.run_test(size=(80, 24)) as pilot:
        shown = await push(pilot, replace(one_daemon(), past=past(what="PAST")))
        footer = shown.splitlines()[-1]
        assert "End Now" in footer
        assert "Go on" not in footer, "F plays, as the bar says"
        await pilot.press("slash", *"bob", "enter", "escape")
        assert machine.asked == [], "what is open is closed first"
        await pilot.press("escape")
        await until(pilot, lambda: machine.asked == [("end",)])
        recording = await push(pilot, replace(one_daemon(), past=past()))
        assert "End Last" in recording.splitlines()[-1]
        assert "End last" in recording
        assert "● ok ·" in recording
        quiet = replace(one_daemon(), past=past(what="LOGS"), problems=())
        quiet = replace(quiet, daemons=(replace(quiet.daemons[0], watch="none", by_logs=True),))
        logs = await push(pilot, quiet)
        assert "● ok by its log" in logs.splitlines()[0], "no daemon has answered"
        assert "not watched" not in logs
        assert "not watched" in await push(pilot, replace(quiet, past=None))
        await push(pilot, replace(one_daemon(), past=past()))
        await pilot.press("escape")
        await pilot.pause()
        assert len(machine.asked) == 1, "a recording has no now"


@pytest.mark.slow
async def test_what_is_kept_is_saved_by_a_key_and_by_name() -> None:
    app = make_app(one_daemon())
    app.past = machine = Machine()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("w")
        await until(pilot, lambda: bool(app.screen.query("CommandInput")))
        line = app.screen.query_one("CommandInput", Input)
        await until(pilot, lambda: line.value.startswith("save ~/mpstui-"))
        line.value = "save /tmp/Night 1.mps"
        found = app.screen.query_one(OptionList)
        await until(pilot, lambda: [each.hit.text for each in found.options] == [line.value])
        await pilot.press("enter")
        await until(pilot, lambda: said(app, "it is there"))
        assert machine.asked == [("save", "/tmp/Night 1.mps")]
        assert " w save" in await push(pilot, replace(one_daemon(), past=past(what="PAST", last=NOW - 60)))
        assert " w save" not in await push(pilot, replace(one_daemon(), past=past()))


@pytest.mark.slow
@pytest.mark.parametrize("keys", [("w", "enter"), ("w", "x", "enter"), ("w", "enter", "tab", "enter")])
async def test_keys_behind_w_reach_the_line_with_the_files_name_and_nothing_else(keys: tuple[str, ...]) -> None:
    """Enter opened Terminate in three of six tries: the line was there before its words were."""
    app = make_app(one_daemon())
    app.past = machine = Machine()
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        for key in keys:
            app.post_message(events.Key(key, "\r" if key == "enter" else key))
        await until(pilot, lambda: bool(machine.asked))
        ((how, file),) = machine.asked
        assert (how, file.endswith(".mps" + "".join(key for key in keys[1:] if key == "x"))) == ("save", True)
        assert type(app.screen).__name__ in {"Overview", "Palette"}


def test_the_bar_says_where_one_is() -> None:
    assert track(past(at=NOW - 3600), 11) == "●" + "─" * 10
    assert track(past(at=NOW - 1800), 11) == "━" * 5 + "●" + "─" * 5
    assert track(past(at=NOW + 9), 11) == "━" * 10 + "●"
    assert track(past(first=NOW, last=NOW), 3) == "━━●"


async def test_without_a_past_the_keys_say_so() -> None:
    app = make_app(one_daemon())
    assert isinstance(app.collector, FakeCollector)
    assert isinstance(app.runner, FakeRunner)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("less_than_sign")
        await until(pilot, lambda: said(app, "No earlier states are kept here."))


@pytest.mark.slow
async def test_what_logs_alone_tell_names_them_and_agrees_with_itself(tmp_path) -> None:
    """FAULT stood beside FAULT?, a daemon said ACTIVE where none is, no limit was “none” here and — there, and a server
    that had ended took new clients."""
    for kind, raw in FAULTS.items():
        (tmp_path / f"{kind}.log").write_bytes(b"\n".join(raw) + b"\n")
    player = Player(LogTape([tmp_path]))
    first, last = player.span

    def then(at: float) -> Snapshot:
        found = player.at(at)
        assert found is not None
        return replace(as_told_there(found.snapshot), past=past(what="LOGS", first=first, at=at, last=last))

    fault = [each.time for each in then(last).events if each.kind == "fatal_fault"][-1]
    app = make_app(None)
    async with app.run_test(size=(120, 40)) as pilot:
        shown = await push(pilot, then(fault))
        assert "no daemon is here to confirm it" in shown
        assert "▲ FAULT?" in next(line for line in shown.splitlines() if "1140     root" in line)
        assert "▲ LOST?" in shown
        for wrong in ("has not confirmed", "✕ FAULT", "✕ LOST", "none", "no device found", " ?  "):
            assert wrong not in shown
        await pilot.press("enter")
        assert "LOST?: a fault took its contexts, by server.log alone" in text_of(app)
        assert "the daemon says" not in text_of(app)
        await pilot.press("escape", "exclamation_mark")
        assert "A log alone proves no fault" in text_of(app)
        await pilot.press("escape", "b")
        assert "Contexts lost on GPU-51dbd800…" in text_of(app)
        assert "GPU ?" not in text_of(app)
        await pilot.press("escape", "D")
        remedies = {each.code: each.remedy for each in then(fault).problems}
        assert remedies["fault"] == "On that node, if it is still so: end no process because of the log alone."
        assert "clears by itself" not in text_of(app)
        await pilot.press("escape", "W")
        assert "Logs do not tell which processes compute without MPS" in text_of(app)
        await pilot.press("escape")
        shown = await push(pilot, then(last))
        assert "ABSENT" in shown
        for wrong in ("RECOVERED", "is live", "clears by itself", "starts a daemon here"):
            assert wrong not in shown


@pytest.mark.parametrize(
    ("what", "said"), [("PAST", "10m = 10 minutes ago"), ("REPLAY", "10m = 10 minutes before the end")]
)
async def test_the_line_for_a_time_says_from_when_ten_minutes_count(what: str, said: str) -> None:
    """On the live screen there is no end: it said that they were before one."""
    app = make_app(replace(one_daemon(), past=past(what=what)))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("T")
        await until(pilot, lambda: "go to" in text_of(app))
        assert said in text_of(app)


@pytest.mark.slow
@pytest.mark.parametrize("shown", ["now", "past", "read-only"])
async def test_help_says_of_the_actions_that_none_can_be_used_and_why(shown: str) -> None:
    """It listed them under ``Actions`` as if they could be."""
    whole = replace(one_daemon(), past=past()) if shown == "past" else one_daemon()
    app = make_app(whole, read_only=shown == "read-only")
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("question_mark")
        await pilot.pause()
        await pilot.press("slash", *"actions", "enter")
        told = text_of(app)
        assert ("Actions: none can be used now" in told) is (shown != "now")
        assert (WHY in told, "mpstui runs read-only" in told) == (shown == "past", shown == "read-only")
