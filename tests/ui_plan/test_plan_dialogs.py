"""The dialogs of the plan screen: apply, export, save, open."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ui.screen import text_of
from ui.snapshots import GIB, GPU0, PIPE, client

from mpstui.operations.types import ExitStatus
from mpstui.plan.profile import parse
from mpstui.ui.dialogs.widgets import Chooser, Push
from mpstui.ui.plan.applying import ApplyDialog
from mpstui.ui.plan.exporting import ExportDialog
from mpstui.ui.plan.profiles import OpenDialog, SaveDialog
from mpstui.ui.plan.screen import PlanScreen

from .fakes import (
    CLIENTS,
    LARGE,
    PROFILE,
    SMALL,
    FakePlans,
    RecordingRunner,
    make_app,
    press,
    settle,
    small,
    sms,
    text_in,
    typed,
)


@pytest.mark.slow
async def test_apply_lists_the_commands_and_cancel_is_the_default() -> None:
    runner = RecordingRunner()
    app = make_app(small(), runner=runner)
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "A")
        assert isinstance(app.screen, ApplyDialog)
        commands = text_in(app, "#commands")
        assert "set_default_active_thread_percentage 50 " in commands
        assert "set_active_thread_percentage 1402 50 " in commands
        assert "set_default_device_pinned_mem_limit 0 40" in commands
        assert "new clients on GPU 1 get it too (no client is there now)" in text_in(app, "#after")
        assert "not fit" not in text_in(app, "#after")
        assert app.focused.id == "cancel"
        await press(pilot, "enter")
        assert isinstance(app.screen, PlanScreen)
        assert runner.requests == []
        await press(pilot, "A", "tab", "enter")
        assert len(runner.requests) == 4
        assert "all of it is in force" in text_in(app, "#outcome")
        await press(pilot, "escape")
        assert isinstance(app.screen, PlanScreen)


@pytest.mark.slow
async def test_apply_names_the_clients_that_do_not_fit() -> None:
    app = make_app(small(client(0, user="alice", gpu_memory={GPU0: 50 * GIB}), CLIENTS[2]))
    async with app.run_test(size=SMALL) as pilot:
        await press(pilot, "p", "A")
        shown = " ".join(text_in(app, "#after").split())
        assert "1 client does not fit when restarted: 2000 alice" in shown
        assert "uses 50.0 GiB, and its limit would be 39" in shown


@pytest.mark.slow
async def test_a_failure_tells_what_is_in_force_and_offers_the_way_back() -> None:
    runner = RecordingRunner(refuses="pinned")
    app = make_app(small(), runner=runner)
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "A", "tab", "enter")
        outcome = text_in(app, "#outcome")
        assert "only a part is in force" in outcome
        assert "in force: default active thread percentage 50 %" in outcome
        assert "not in force: default memory limit" in outcome
        assert "not tried: server 1402" in outcome
        back = app.screen.query_one("#back", Push)
        assert back.display
        assert app.focused.id == "cancel"
        assert " Tab to Go back " in text_of(app).splitlines()[-1]
        runner.refuses = ""
        await press(pilot, "tab", "enter")
        assert (runner.requests[-1].action, runner.requests[-1].value) == ("set_active_thread_percentage", "100")
        assert "everything is as it was before" in text_in(app, "#outcome")
        assert not back.display
        assert " Tab " not in text_of(app).splitlines()[-1]


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (ExitStatus.REFUSED_BY_DAEMON, "nothing of it was set"),
        (ExitStatus.NO_ANSWER, "nothing of it is known to be in force"),
    ],
)
async def test_where_the_first_step_fails_no_part_is_said_to_be_in_force(status: ExitStatus, says: str) -> None:
    """It said “only a part is in force” where another daemon had come meanwhile, and nothing was sent."""
    app = make_app(small(), runner=RecordingRunner(refuses="set_", status=status))
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "A", "tab", "enter")
        outcome = text_in(app, "#outcome")
        assert says in outcome
        assert "only a part" not in outcome
        assert not app.screen.query_one("#back", Push).display


@pytest.mark.slow
async def test_closed_meanwhile_the_report_comes_as_a_notification() -> None:
    app = make_app(small(), runner=RecordingRunner(refuses="pinned"))
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "A")
        dialog = app.screen
        dialog.dismiss(None)
        await settle(pilot)
        dialog.state = "asking"
        await dialog._carry_out(app, dialog._apply)
        await settle(pilot)
        assert any("only a part is in force" in note.message for note in app._notifications)


@pytest.mark.slow
async def test_export_shows_and_copies_each_kind() -> None:
    app = make_app(small())
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "C")
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


@pytest.mark.slow
async def test_save_keeps_the_plan_and_replaces_on_purpose_only() -> None:
    plans = FakePlans()
    app = make_app(small(), plans=plans)
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "w")
        assert isinstance(app.screen, SaveDialog)
        await typed(pilot, "a b")
        assert "letters, digits" in text_in(app, "#problem")
        assert app.screen.query_one("#apply", Push).disabled
        await press(pilot, "backspace", "backspace", "enter")
        assert app.focused.id == "apply"
        await press(pilot, "enter")
        assert "the plan is kept as /profiles/a.toml" in text_in(app, "#outcome")
        (kept,) = plans.saved["a"].daemons
        assert (kept.pipe_dir, kept.devices, [s.name for s in kept.shares]) == (PIPE, (GPU0,), ["alice", "bob"])
        # Now the wrapper knows the profile, until the plan is another one.
        await press(pilot, "escape", "C", "down")
        assert "--profile a --share alice" in app.screen.text
        await press(pilot, "escape", "w")
        assert "already" in text_in(app, "#note")
        assert app.screen.query_one("#apply", Push).text == "Replace"
        await press(pilot, "escape", "tab", "right", "C", "down")
        assert app.screen.text == ""


@pytest.mark.slow
async def test_where_the_plan_cannot_be_kept_it_is_said_that_something_else_is() -> None:
    app = make_app(small(), plans=FakePlans())
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", *["down"] * 4)
        await typed(pilot, "3000")
        await press(pilot, "w")
        assert "Save what is in force as a profile, not the plan" in text_of(app)
        assert "the plan is not kept: " in text_in(app, "#note")
        await press(pilot, "a", "enter", "enter")
        assert "what is in force is kept as /profiles/a.toml" in text_in(app, "#outcome")


@pytest.mark.slow
async def test_a_name_that_somebody_else_took_meanwhile_is_said_and_another_can_be_typed() -> None:
    plans = FakePlans()
    app = make_app(small(), plans=plans)
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "w", "a", "enter")
        theirs = plans.saved["a"] = parse(PROFILE)
        await press(pilot, "enter")
        assert "there is a profile a already" in text_in(app, "#outcome")
        assert "“a” already; it would be replaced" in text_of(app)
        await press(pilot, "shift+tab", "shift+tab", "b", "enter", "enter")
        assert "kept as /profiles/b.toml" in text_in(app, "#outcome")
        assert plans.saved["a"] is theirs


@pytest.mark.slow
async def test_what_is_in_force_is_kept_too() -> None:
    plans = FakePlans()
    app = make_app(small(), plans=plans)
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "w", "n", "o", "w", "tab", "down", "tab")
        assert app.screen.query_one("#what", Chooser).chosen.value == "now"
        await press(pilot, "tab", "enter")
        assert plans.saved["now"].daemons[0].limits.active_thread_percentage == 100.0


@pytest.mark.slow
async def test_open_shows_what_differs_takes_the_shares_and_applies() -> None:
    plans = FakePlans({"broken": "schema = 2", "two": PROFILE})
    runner = RecordingRunner()
    app = make_app(small(), plans=plans, runner=runner)
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "V")
        assert isinstance(app.screen, OpenDialog)
        assert "line 1: schema must be 1" in text_in(app, "#problem")
        await press(pilot, "down")
        assert "two tenants" in text_in(app, "#facts")
        assert "default active thread percentage: is 100 %, should be 50 %" in text_in(app, "#diff")
        await press(pilot, "tab", "tab", "enter")
        assert isinstance(app.screen, PlanScreen)
        assert sms(app) == [32, 66]
        await press(pilot, "V", "down", "tab", "tab", "tab", "enter")
        assert isinstance(app.screen, ApplyDialog)
        assert "the profile two" in app.screen._what
        await press(pilot, "tab", "enter")
        assert [r.value for r in runner.requests] == ["50", "50"]


@pytest.mark.slow
async def test_open_says_when_there_is_no_drift_and_when_there_is_no_profile() -> None:
    same = parse(PROFILE.replace("= 50", "= 100"))
    server_same = replace(same.daemons[0], server_limits=replace(same.daemons[0].limits, active_thread_percentage=25.0))
    plans = FakePlans(saved={"same": replace(same, daemons=(server_same,))})
    app = make_app(small(), plans=plans)
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "V")
        assert "Everything is as the profile says" in text_in(app, "#same")
        assert app.screen.query_one("#set", Push).disabled
    app = make_app(small())
    async with app.run_test(size=SMALL) as pilot:
        await press(pilot, "p", "V")
        assert "no profiles yet" in text_in(app, "#problem")
