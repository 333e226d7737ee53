"""Every key of the plan screen: fields, bars, notes."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from textual.events import Key, Paste
from ui.screen import text_of, until
from ui.snapshots import GIB, GPU0, GPU1, PIPE, client, no_daemon, unhealthy

from mpstui.ui.dialogs import DetailsScreen, HelpScreen
from mpstui.ui.overview import Overview
from mpstui.ui.plan.bars import stacked
from mpstui.ui.plan.fields import FIELDS
from mpstui.ui.plan.screen import PlanScreen

from .fakes import (
    CLIENTS,
    LARGE,
    SMALL,
    FakePlans,
    RecordingRunner,
    make_app,
    notes,
    plan_of,
    press,
    settle,
    small,
    sms,
    text_in,
    typed,
)

KEYS = {"*": "asterisk", ",": "comma", " ": "space"}


@pytest.mark.slow
async def test_p_opens_it_for_the_tenants_there_are_and_escape_leaves() -> None:
    app = make_app(small())
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p")
        assert isinstance(app.screen, PlanScreen)
        assert sms(app) == [66, 66]
        text = text_of(app)
        assert "alice ×2" in text
        assert "2 × 66 = 132 SM" in text, "of one client, and of the tenant"
        await press(pilot, "slash")
        assert "nothing to filter" in next(iter(app._notifications)).message
        await press(pilot, "escape")
        assert isinstance(app.screen, Overview)
        await press(pilot, "p", "down", "down", "down", "right", "escape", "p")
        assert plan_of(app).strategy == "half"  # the plan is still there


@pytest.mark.slow
async def test_of_several_gpus_the_one_that_was_taken_is_said_until_one_is_chosen() -> None:
    app = make_app(small())
    async with app.run_test(size=SMALL) as pilot:
        await press(pilot, "p")
        assert "▲ GPU 0 of 2  H100 80GB HBM3, choose: ← →" in text_of(app)
        await press(pilot, "tab")
        assert "2 × 66 = 132 SM" in text_of(app), "a tenant's sum has room at 80 columns"
        await press(pilot, "shift+tab")
        await press(pilot, "right")
        assert "GPU 1 of 2" in text_of(app)
        await press(pilot, "left", "down", "down", "down", "right", "A")
        assert "on GPU 0" in text_of(app), "the question names it"
        await press(pilot, "escape", "escape", "1", "j", "p")
        assert "GPU 0 of 2" in text_of(app), "what was chosen stays"
        assert plan_of(app).strategy == "half"
    again = make_app(small())
    async with again.run_test(size=SMALL) as pilot:
        await press(pilot, "1", "j", "p")
        assert "GPU 1 of 2" in text_of(again), "the cursor was on it"
        assert "choose:" not in text_of(again)
    alone = make_app(replace(small(), devices=small().devices[:1]))
    async with alone.run_test(size=SMALL) as pilot:
        await press(pilot, "p")
        assert "choose:" not in text_of(alone)
        assert "GPU 0  H100 80GB HBM3" in text_of(alone)


@pytest.mark.slow
@pytest.mark.parametrize("size", [LARGE, SMALL])
async def test_bars_move_by_the_step_and_numbers_follow_at_once(size) -> None:
    app = make_app(small())
    async with app.run_test(size=size) as pilot:
        await press(pilot, "p", "tab")
        assert app.focused.id == "shares"
        await press(pilot, "right")
        assert sms(app) == [68, 66]
        assert "2 × 68 = 136 SM" in text_of(app)
        assert "134 of 132 SMs" in notes(app)
        await press(pilot, "shift+left")
        assert sms(app) == [60, 66]
        await press(pilot, "down", "shift+right", "down", "left")
        assert sms(app) == [60, 64]
        assert plan_of(app).shares[0].memory > plan_of(app).shares[1].memory
        await press(pilot, "plus", "minus", "minus")
        assert sms(app) == [60, 62]


@pytest.mark.parametrize(
    ("values", "total", "drawn"),
    [
        ((10, 10), 20, "1▆▆▆▆▆▆▆▆▆2▆▆▆▆▆▆▆▆▆"),
        ((14, 2, 2, 2), 40, "1▆▆▆▆▆▆2…4▁▁▁▁▁▁▁▁▁▁"),
        ((14, 2, 2), 40, "1▆▆▆▆▆▆2…▁▁▁▁▁▁▁▁▁▁▁"),
        ((2, 2, 16), 40, "1…3▆▆▆▆▆▆▆▁▁▁▁▁▁▁▁▁▁"),
        ((2, 16), 40, "1▆2▆▆▆▆▆▆▁▁▁▁▁▁▁▁▁▁▁"),
        ((1,) * 20, 20, "1……………………………………………………20"),
        ((200, 1, 199), 400, "1▆▆▆▆▆▆▆▆▆2▆3▆▆▆▆▆▆▆"),  # one that is too small to draw is told of
        ((1,) * 30, 30, "1……………………………………………………30"),
        ((1, 399), 400, "1▆2▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆"),
        ((399, 1), 400, "1▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆2"),
        ((132, 132), 132, "1▆▆▆▆▆▆▆▆┊2▆▆▆▆▆▆▆▆▆"),  # where the device ends stands beside the number
    ],
)
def test_numbers_of_narrow_parts_never_read_as_another_one(values, total, drawn) -> None:
    line = "".join(text for text, _ in stacked(values, total, 20, "meter"))
    assert line[:19] == drawn[:19]
    assert len(line) == 20
    assert not set(re.findall(r"\d+", line)) - {str(n + 1) for n in range(len(values))}


@pytest.mark.slow
async def test_tab_goes_round_and_the_hints_follow() -> None:
    app = make_app(small())
    async with app.run_test(size=SMALL) as pilot:
        await press(pilot, "p")
        for where in ("shares", "notes", "fields"):
            await press(pilot, "tab")
            assert app.focused.id == where
            assert app.focused.display
            foot = text_of(app).splitlines()[-1]
            assert ("↑↓ Scroll" in foot, "←→" in foot) == (where == "notes", where != "notes"), foot
        await press(pilot, "shift+tab")
        assert app.focused.id == "notes"
        app.screen.set_focus(app.screen.fields)  # as the mouse does
        await until(pilot, lambda: "←→ Change" in text_of(app).splitlines()[-1])
        await press(pilot, "down", "down", "down", "down", "down")
        assert " ←→ Change" not in text_of(app).splitlines()[-1], "it is typed"


@pytest.mark.slow
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


@pytest.mark.slow
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
        await press(pilot, "enter")
        assert app.screen.fields.editing, "it stays to be corrected, and the reason is told"
        assert "no size" in next(iter(app._notifications)).message
        await press(pilot, "backspace", "enter")
        assert not app.screen.fields.editing


@pytest.mark.slow
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


@pytest.mark.slow
async def test_patterns_and_amounts_are_pasted_and_mended_at_a_cursor() -> None:
    app = make_app(small())
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "down", "right", "down", "enter")
        fields = app.screen.fields
        app.post_message(Paste("*träin*, *vllm q*"))
        await until(pilot, lambda: fields.draft.patterns == ("*träin*", "*vllm q*"))
        await press(pilot, "left", "backspace", "home", "x", "enter")
        assert fields.draft.patterns == ("x*träin*", "*vllm *")
        assert not fields.editing
        await press(pilot, "down", "down", "down")
        app.post_message(Paste("24,60"))
        await until(pilot, lambda: fields.draft.sm_counts == (24, 60))
        await press(pilot, "left", "left", "left", "0")
        assert fields.draft.sm_counts == (240, 60)
        assert isinstance(app.screen, PlanScreen)


@pytest.mark.slow
async def test_what_is_typed_stays_in_its_row_where_the_form_begins_to_scroll() -> None:
    app = make_app(small())
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", *["down"] * 6, "1", "0", "G")
        for size in ((80, 14), (80, 24), (80, 13), LARGE):
            await pilot.resize_terminal(*size)
            await until(pilot, lambda: re.search(r"^│▸memory +10G ", text_of(app), re.M))
        await press(pilot, "home", "2")
        assert app.screen.fields.draft.limits[0] == 210 * GIB


@pytest.mark.slow
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


@pytest.mark.slow
async def test_who_keeps_what_and_who_would_not_fit() -> None:
    app = make_app(small())
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", *["down"] * 6)
        await typed(pilot, "20G")
        assert "would not fit: 2000 alice" in notes(app)
        assert "3 clients must be restarted" in notes(app)
        assert "2021 bob" in notes(app)


@pytest.mark.slow
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


async def test_read_only_dims_and_refuses() -> None:
    runner = RecordingRunner(read_only=True)
    app = make_app(small(), runner=runner)
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p")
        styles = {text.strip(): style for text, style in app.screen.keys._lines[0]}
        assert (styles["Apply"], styles["Export"]) == ("key-off", "text")
        assert "read-only" in notes(app)
        await press(pilot, "A")
        assert isinstance(app.screen, PlanScreen)
        assert any("read-only" in note.message for note in app._notifications)


@pytest.mark.parametrize(("make", "says"), [(lambda: unhealthy("held"), "held"), (no_daemon, "no GPU is known")])
async def test_without_a_daemon_that_answers_nothing_is_sent(make, says) -> None:
    app = make_app(make())
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "A")
        assert isinstance(app.screen, PlanScreen)
        assert says in notes(app)


class NoSuchCommand(RecordingRunner):
    """Of a daemon that has no command for what a plan sets."""

    def unavailable(self, action, snapshot, pipe_dir, clients=()):
        return "this command does not exist" if action.id.startswith("set_") else None


@pytest.mark.slow
async def test_what_a_daemon_has_no_command_for_is_not_said_to_be_set_and_nobody_has_to_be_restarted_for_it() -> None:
    app = make_app(small(), runner=NoSuchCommand())
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "right")
        assert "cannot be applied now: this command does not exist" in notes(app)
        assert "Apply sets" not in notes(app)
        assert "must be restarted" not in notes(app)
        await press(pilot, "A")
        assert isinstance(app.screen, PlanScreen)


@pytest.mark.slow
async def test_with_static_partitions_a_plan_says_that_its_percentages_have_no_effect() -> None:
    app = make_app(small(static_partitioning=True))
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p")
        assert "percentages have no effect on a daemon with static partitions: P on the overview" in notes(app)
        assert "must be restarted" not in notes(app)
        await press(pilot, "escape", "1", "enter")
        assert "P on the overview (partitions) divides it" in " ".join(app.screen.query_one("#facts").text.split())


@pytest.mark.slow
async def test_help_lists_the_keys_of_the_plan() -> None:
    app = make_app(small())
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "question_mark")
        assert isinstance(app.screen, HelpScreen)
        text = text_in(app, "#facts")
        for words in ("Apply the plan", "Export the shares", "Save as a profile", "Open a profile"):
            assert words in text
        assert re.search("Enter +Begin or end typing", text)
        assert not re.search("Enter +Details", text)


@pytest.mark.slow
async def test_the_key_bars_show_the_users_keys() -> None:
    app = make_app(small(), keys={"plan.apply": "g", "daemon.start": "N", "quit": "f10"})
    async with app.run_test(size=LARGE) as pilot:
        for key, shown in (("p", ("g Apply", "Esc Back")), ("d", ("N Start new", "Esc Back"))):
            await press(pilot, key)
            bar = text_of(app).splitlines()[-1]
            assert all(words in bar for words in shown)
            await press(pilot, "escape")


@pytest.mark.slow
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


@pytest.mark.slow
async def test_details_of_a_client_tell_where_its_limits_come_from() -> None:
    plans = FakePlans(environment_of={"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "40"})
    app = make_app(small(), plans=plans)
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "enter")
        assert isinstance(app.screen, DetailsScreen)
        text = text_in(app, "#facts")
        assert re.search(r"40 % +its environment \(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE\)", text)
        assert "execution affinity" in text


async def test_a_number_of_shares_that_no_device_has_is_refused_and_not_counted_through() -> None:
    """With nine digits the screen stood still for good."""
    app = make_app(small())
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "p", "down", "down", *(["down"] * [field.id for field in FIELDS[2:]].index("clients")))
        assert app.screen.fields.field.id == "clients"
        await press(pilot, *"100000")
        assert app.screen.fields.draft.clients <= 999
        assert "shares: at most 999" in text_of(app)
        await press(pilot, *"999")
        assert app.screen.fields.draft.clients <= 999
