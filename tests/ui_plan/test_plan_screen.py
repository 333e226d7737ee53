"""Every key of the plan screen."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from textual.events import Key
from ui.screen import text_of
from ui.snapshots import GIB, GPU0, GPU1, PIPE, client, no_daemon, unhealthy
from ui_load.fakes import until

from mpstui.plan.profile import parse
from mpstui.ui.dialogs import DetailsScreen, HelpScreen
from mpstui.ui.dialogs.parts import Chooser, Push
from mpstui.ui.overview import Overview
from mpstui.ui.plan.applying import ApplyDialog
from mpstui.ui.plan.exporting import ExportDialog
from mpstui.ui.plan.keeping import OpenDialog, SaveDialog
from mpstui.ui.plan.screen import PlanScreen

from .fakes import CLIENTS, FakePlans, RecordingRunner, make_app, press, settle, small, text_in, typed

LARGE, SMALL = (160, 48), (80, 24)
KEYS = {"*": "asterisk", ",": "comma", " ": "space"}
PROFILE = """schema = 1
description = "two tenants"
[[daemon]]
[daemon.limits]
active_thread_percentage = 50
[[daemon.share]]
name = "alice"
active_thread_percentage = 25
[[daemon.share]]
name = "bob"
"""


def plan_of(app):
    screen = app.screen_stack[1]
    assert isinstance(screen, PlanScreen)
    return screen.now.plan


def sms(app) -> list[int]:
    return [share.sm_count for share in plan_of(app).shares]


def notes(app) -> str:
    return " ".join(row.text for row in app.screen_stack[1].notes.rows)


async def test_p_opens_it_for_the_tenants_there_are_and_escape_leaves() -> None:
    app = make_app(small())
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p")
        assert isinstance(app.screen, PlanScreen)
        assert sms(app) == [66, 66]
        text = text_of(app)
        assert "alice ×2" in text
        assert "2 × 66 SM" in text
        await press(pilot, "escape")
        assert isinstance(app.screen, Overview)
        await press(pilot, "p", "down", "down", "down", "right", "escape", "p")
        assert plan_of(app).strategy == "half"  # the plan is still there


@pytest.mark.parametrize("size", [LARGE, SMALL])
async def test_bars_move_by_the_step_and_numbers_follow_at_once(size) -> None:
    app = make_app(small())
    async with app.run_test(size=size) as pilot:
        await press(pilot, "p", "tab")
        assert app.focused.id == "shares"
        await press(pilot, "right")
        assert sms(app) == [68, 66]
        assert "68 SM" in text_of(app)
        assert "134 of 132 SMs" in notes(app)
        await press(pilot, "shift+left")
        assert sms(app) == [60, 66]
        await press(pilot, "down", "shift+right", "down", "left")
        assert sms(app) == [60, 64]
        assert plan_of(app).shares[0].memory > plan_of(app).shares[1].memory
        await press(pilot, "plus", "minus", "minus")
        assert sms(app) == [60, 62]


async def test_tab_goes_round_and_the_hints_follow() -> None:
    app = make_app(small())
    async with app.run_test(size=SMALL) as pilot:
        await press(pilot, "p")
        for where in ("shares", "notes", "fields"):
            await press(pilot, "tab")
            assert app.focused.id == where
            assert app.focused.display
        await press(pilot, "shift+tab")
        assert app.focused.id == "notes"


async def test_every_field_changes_with_the_arrows() -> None:
    app = make_app(small(*CLIENTS, client(42, user="dmitri")))
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "right")
        screen = app.screen
        assert screen.fields.draft.device == GPU1
        assert screen.fields.draft.labels == ("dmitri",)
        await press(pilot, "right", "down", "right")
        assert (screen.fields.draft.device, screen.fields.draft.by) == (GPU0, "command")
        await press(pilot, "right")
        assert [label.split()[0] for label in screen.fields.draft.labels] == ["2000", "2007", "2021"]
        await press(pilot, "left", "left", "down", "down", "down", "right", "shift+right", "left")
        assert screen.fields.draft.clients == 6
        await press(pilot, "down", "down", "right")
        assert screen.fields.draft.memory == "weight"
        await press(pilot, "right")
        assert plan_of(app).shares[0].memory is None
        assert "without a memory limit" in notes(app)
        await press(pilot, "down", "right")
        assert screen.fields.draft.contexts == 2


async def test_amounts_are_typed_and_what_cannot_be_is_said() -> None:
    app = make_app(small())
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", *["down"] * 5)
        await typed(pilot, "24,60")
        assert sms(app) == [24, 60]
        assert plan_of(app).strategy == "exact"
        await typed(pilot, ",")
        assert plan_of(app) is None
        assert "SM counts" in notes(app)
        await press(pilot, "backspace")
        assert sms(app) == [24, 60]
        await typed(pilot, "0")
        assert "more than the 132" in notes(app)
        await press(pilot, "up", "up", "left")  # the strategy: weighted, by what it was
        await press(pilot, "down", "down")
        await typed(pilot, "30,70")
        assert [share.percentage for share in plan_of(app).shares] == [30.0, 70.0]
        await press(pilot, "down")
        await typed(pilot, "10G,20G")
        assert [share.memory for share in plan_of(app).shares] == [10 * GIB, 20 * GIB]
        assert "would not fit: 2000 alice" in notes(app)
        await typed(pilot, "B")
        assert "no size" in notes(app)


async def test_patterns_take_every_character_between_enter_and_enter() -> None:
    app = make_app(small())
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "down", "right", "down", "enter")
        await typed(pilot, "*train*,*aes*")
        screen = app.screen
        assert screen.fields.draft.patterns == ("*train*", "*aes*")
        await press(pilot, "escape")
        assert app.screen is screen  # the first escape only ends the typing
        assert "*train*" in screen.fields.draft.labels
        await press(pilot, "escape")
        assert isinstance(app.screen, Overview)


async def test_what_is_typed_in_a_rush_goes_into_the_field_that_was_gone_to() -> None:
    app = make_app(small())
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "down", "down", "down")
        fields = app.screen_stack[1].fields
        for key in ("down", "3", "down", "down", "5", "G", "down"):
            app.post_message(Key(key, key if len(key) == 1 else None))
        await until(pilot, lambda: fields.field.id == "contexts")
        assert (fields.draft.clients, fields.draft.limits) == (3, (5 * GIB,) * 3)
        await press(pilot, "up", "up", "up", "up", "up", "up", "right")
        for key, char in (
            ("down", None),
            ("enter", "\r"),
            *((KEYS.get(c, c), c) for c in "a*,jsqG3 e"),
            ("enter", "\r"),
        ):
            app.post_message(Key(key, char))
        await until(pilot, lambda: fields.draft.patterns == ("a*", "jsqG3 e"))
        assert isinstance(app.screen, PlanScreen)


async def test_who_keeps_what_and_who_would_not_fit() -> None:
    app = make_app(small())
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", *["down"] * 6)
        await typed(pilot, "20G")
        assert "would not fit: 2000 alice" in notes(app)
        assert "3 clients would have to start anew" in notes(app)
        assert "2021 bob" in notes(app)


async def test_clients_that_come_are_told_and_r_takes_them_in() -> None:
    app = make_app(small())
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p")
        app.collector.push(small(*CLIENTS, client(5, user="carol")))
        await settle(pilot)
        assert sms(app) == [66, 66]
        assert "carol" in notes(app)
        await press(pilot, "r")
        assert sms(app) == [44, 44, 44]
        assert app.collector.refreshes == [PIPE]


async def test_apply_lists_the_commands_and_cancel_is_the_default() -> None:
    runner = RecordingRunner()
    app = make_app(small(), runner=runner)
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "a")
        assert isinstance(app.screen, ApplyDialog)
        commands = text_in(app, "#commands")
        assert "set_default_active_thread_percentage 50 " in commands
        assert "set_active_thread_percentage 1402 50 " in commands
        assert "set_default_device_pinned_mem_limit 0 40" in commands
        assert app.focused.id == "cancel"
        await press(pilot, "enter")
        assert isinstance(app.screen, PlanScreen)
        assert runner.requests == []
        await press(pilot, "a", "tab", "enter")
        assert len(runner.requests) == 4
        assert "all of it is in force" in text_in(app, "#outcome")
        await press(pilot, "escape")
        assert isinstance(app.screen, PlanScreen)


async def test_a_failure_tells_what_is_in_force_and_offers_the_way_back() -> None:
    runner = RecordingRunner(refuses="pinned")
    app = make_app(small(), runner=runner)
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "a", "tab", "enter")
        outcome = text_in(app, "#outcome")
        assert "only a part is in force" in outcome
        assert "in force: default active thread percentage 50 %" in outcome
        assert "not in force: default memory limit" in outcome
        assert "not tried: server 1402" in outcome
        back = app.screen.query_one("#back", Push)
        assert back.display
        assert app.focused.id == "cancel"
        runner.refuses = ""
        await press(pilot, "tab", "enter")
        assert (runner.requests[-1].action, runner.requests[-1].value) == ("set_active_thread_percentage", "100")
        assert "it is as it was before" in text_in(app, "#outcome")
        assert not back.display


async def test_closed_meanwhile_the_report_comes_as_a_notification() -> None:
    app = make_app(small(), runner=RecordingRunner(refuses="pinned"))
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "a")
        dialog = app.screen
        dialog.dismiss(None)
        await settle(pilot)
        dialog.state = "asking"
        await dialog._carry_out(app, dialog._apply)
        await settle(pilot)
        assert any("only a part is in force" in note.message for note in app._notifications)


async def test_read_only_dims_and_refuses() -> None:
    runner = RecordingRunner(read_only=True)
    app = make_app(small(), runner=runner)
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p")
        styles = {text.strip(): style for text, style in app.screen.keys._lines[0]}
        assert (styles["Apply"], styles["Export"]) == ("key-off", "text")
        assert "read-only" in notes(app)
        await press(pilot, "a")
        assert isinstance(app.screen, PlanScreen)
        assert any("read-only" in note.message for note in app._notifications)


@pytest.mark.parametrize(("make", "says"), [(lambda: unhealthy("held"), "held"), (no_daemon, "no GPU is known")])
async def test_without_a_daemon_that_answers_nothing_is_sent(make, says) -> None:
    app = make_app(make())
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "a")
        assert isinstance(app.screen, PlanScreen)
        assert says in notes(app)


async def test_export_shows_and_copies_each_kind() -> None:
    app = make_app(small())
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "e")
        assert isinstance(app.screen, ExportDialog)
        await press(pilot, "y")
        assert "export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50" in app.copied[-1]
        assert app.copied[-1].count("# ") == 2
        for says in ("save the plan", 'Environment="CUDA_MPS_PIPE', "printf", "env:"):
            await press(pilot, "down")
            text = app.screen.text + text_in(app, "#problem")
            assert says in text
        await press(pilot, "tab", "down", "y")
        assert app.copied[-1].startswith("env:")
        assert app.copied[-1].count("env:") == 1
        await press(pilot, "escape")
        assert isinstance(app.screen, PlanScreen)


async def test_save_keeps_the_plan_and_replaces_on_purpose_only() -> None:
    plans = FakePlans()
    app = make_app(small(), plans=plans)
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "s")
        assert isinstance(app.screen, SaveDialog)
        await typed(pilot, "a b")
        assert "letters, digits" in text_in(app, "#problem")
        assert app.screen.query_one("#apply", Push).disabled
        await press(pilot, "backspace", "backspace", "enter")
        assert app.focused.id == "apply"
        await press(pilot, "enter")
        assert "kept as /profiles/a.toml" in text_in(app, "#outcome")
        (kept,) = plans.saved["a"].daemons
        assert (kept.pipe_dir, kept.devices, [s.name for s in kept.shares]) == (PIPE, (GPU0,), ["alice", "bob"])
        # Now the wrapper knows the profile, until the plan is another one.
        await press(pilot, "escape", "e", "down")
        assert "--profile a --share alice" in app.screen.text
        await press(pilot, "escape", "s")
        assert "already" in text_in(app, "#note")
        assert app.screen.query_one("#apply", Push).text == "Replace"
        await press(pilot, "escape", "tab", "right", "e", "down")
        assert app.screen.text == ""


async def test_a_name_that_somebody_else_took_meanwhile_is_said_and_another_can_be_typed() -> None:
    plans = FakePlans()
    app = make_app(small(), plans=plans)
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "s", "a", "enter")
        theirs = plans.saved["a"] = parse(PROFILE)
        await press(pilot, "enter")
        assert "there is a profile a already" in text_in(app, "#outcome")
        assert "“a” already; it would be replaced" in text_of(app)
        await press(pilot, "shift+tab", "shift+tab", "b", "enter", "enter")
        assert "kept as /profiles/b.toml" in text_in(app, "#outcome")
        assert plans.saved["a"] is theirs


async def test_what_is_in_force_is_kept_too() -> None:
    plans = FakePlans()
    app = make_app(small(), plans=plans)
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "s", "n", "o", "w", "tab", "down", "tab")
        assert app.screen.query_one("#what", Chooser).chosen.value == "now"
        await press(pilot, "tab", "enter")
        assert plans.saved["now"].daemons[0].limits.active_thread_percentage == 100.0


async def test_open_shows_what_differs_takes_the_shares_and_applies() -> None:
    plans = FakePlans({"broken": "schema = 2", "two": PROFILE})
    runner = RecordingRunner()
    app = make_app(small(), plans=plans, runner=runner)
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "o")
        assert isinstance(app.screen, OpenDialog)
        assert "line 1: schema must be 1" in text_in(app, "#problem")
        await press(pilot, "down")
        assert "two tenants" in text_in(app, "#facts")
        assert "default active thread percentage: is 100 %, should be 50 %" in text_in(app, "#diff")
        await press(pilot, "tab", "tab", "enter")
        assert isinstance(app.screen, PlanScreen)
        assert sms(app) == [32, 66]
        await press(pilot, "o", "down", "tab", "tab", "tab", "enter")
        assert isinstance(app.screen, ApplyDialog)
        assert "the profile two" in app.screen._what
        await press(pilot, "tab", "enter")
        assert [r.value for r in runner.requests] == ["50", "50"]


async def test_open_says_when_there_is_no_drift_and_when_there_is_no_profile() -> None:
    same = parse(PROFILE.replace("= 50", "= 100"))
    server_same = replace(same.daemons[0], server_limits=replace(same.daemons[0].limits, active_thread_percentage=25.0))
    plans = FakePlans(saved={"same": replace(same, daemons=(server_same,))})
    app = make_app(small(), plans=plans)
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "o")
        assert "Everything is as it says" in text_in(app, "#same")
        assert app.screen.query_one("#set", Push).disabled
    app = make_app(small())
    async with app.run_test(size=SMALL) as pilot:
        await press(pilot, "p", "o")
        assert "no profiles yet" in text_in(app, "#problem")


async def test_help_lists_the_keys_of_the_plan() -> None:
    app = make_app(small())
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "question_mark")
        assert isinstance(app.screen, HelpScreen)
        text = text_in(app, "#facts")
        for words in ("Apply the plan", "Export the shares", "Save as a profile", "Open a profile"):
            assert words in text


async def test_a_small_terminal_says_so_and_comes_back() -> None:
    app = make_app(small())
    async with app.run_test(size=SMALL) as pilot:
        await press(pilot, "p")
        await pilot.resize_terminal(20, 5)
        await settle(pilot)
        assert "too small" in text_of(app)
        await pilot.resize_terminal(*LARGE)
        await settle(pilot)
        assert "alice ×2" in text_of(app)


async def test_details_of_a_client_tell_where_its_limits_come_from() -> None:
    plans = FakePlans(environment_of={"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "40"})
    app = make_app(small(), plans=plans)
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "enter")
        assert isinstance(app.screen, DetailsScreen)
        text = text_in(app, "#facts")
        assert re.search(r"40 % +its environment \(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE\)", text)
        assert "execution affinity" in text
