"""Every key of the panel, what it says, and that nothing is left behind."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from textual.events import Key
from textual.widgets import Input
from ui.screen import make_app, text_of, until
from ui.snapshots import (
    GPU0,
    GPU1,
    daemon,
    no_daemon,
    one_daemon,
    server,
    unhealthy,
)

from mpstui.load.types import WorkerError
from mpstui.ui.load.dialogs import BesideDialog, EndangerDialog
from mpstui.ui.load.presets import PRESETS
from mpstui.ui.load.screen import LoadScreen
from mpstui.ui.load.setup import STEADY
from mpstui.ui.overview import Overview
from mpstui.ui.tours import read

from .fakes import DOWN, FREE, NOW, SIZE, FakeBackend, load_app, opened, running, said, setup_of


async def test_l_opens_it_and_escape_goes_back():
    app = load_app()
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot)
        assert isinstance(app.screen, LoadScreen)
        assert app.focused.id == "fields"
        await pilot.press("escape")
        assert isinstance(app.screen, Overview)


async def test_without_a_backend_there_is_no_panel():
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("L")
        assert isinstance(app.screen, Overview)


@pytest.mark.slow
async def test_each_preset_starts_what_it_says():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        backend = await opened(pilot)
        for number, chosen in enumerate(PRESETS):
            before = len(backend.private)
            await pilot.press(*["right"] * bool(number), "enter")
            if isinstance(app.screen, BesideDialog):
                await pilot.press("tab", "enter")
            await until(pilot, lambda: app.load.live and not app.load.starting)
            assert app.screen.fields.chosen is chosen
            assert len(app.load.live) == chosen.clients
            specs = [spec for spec, _ in backend.supervisors[-1].specs]
            assert {spec.kernel for spec in specs} == set(chosen.kernels)
            assert {spec.streams for spec in specs} == {chosen.way.streams}
            assert backend.private[-1:] == (["up"] if chosen.private else backend.private[-1:])
            assert chosen.private == (len(backend.private) > before)
            assert app.focused.id == "bars"
            assert chosen.title in text_of(app)
            await app.load.close()
            await pilot.press("tab")


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (100, 30), (160, 48)])
async def test_latencies_and_bars_follow_the_key_within_a_second(size):
    """By a clock of its own: the painted bar, throughput and p99 are those of the report that came after the key."""
    app, now = load_app(snapshot=FREE), [NOW]
    async with app.run_test(size=size) as pilot:
        supervisor = await running(pilot, *["right"] * [p.id for p in PRESETS].index("requests"))
        app.load.clock = lambda: now[0]
        for number in range(1, 5):
            supervisor.say(number, latency_p50=0.0048, latency_p99=0.0123, figure=6.9)
        bar = str(app.screen.bars.rows[0].report.sms)
        await until(pilot, lambda: "p99 12.3 ms" in text_of(app))
        assert "p99 up to 12.3 ms" in text_of(app)
        supervisor.lazy = True
        await pilot.press("left", "left")
        wanted = app.screen.bars.rows[0].target
        now[0] += 0.3  # the next report of a client comes by then
        supervisor.say(
            1, sms=wanted, switch_seconds=0.02, latency_p50=0.0192, latency_p99=0.0871, figure=5.1, time=now[0]
        )
        await pilot.pause()
        said = text_of(app)
        assert "p99 87.1 ms" in said
        assert "5.10 TFLOP/s" in said
        assert f"{wanted} SM" in said
        assert said.count("p99 12.3 ms") == 3, "the others stay"
        assert bar != str(wanted)
        assert now[0] - NOW < 1.0
        await pilot.resize_terminal(60, 20)
        await until(pilot, lambda: "p99 up to 87.1 ms" in text_of(app))


OF_FIELDS = [
    ("preset", ["left"], "illegal + fma"),
    ("kernel", ["right"], ("triad",)),
    ("kernel", ["left"], ("nbody",)),
    ("clients", ["plus", "plus", "minus"], 5),
    ("clients", ["shift+right"], 14),
    ("clients", ["shift+left"], 1),
    ("clients", ["8"], 8),
    ("clients", ["1", "2", "backspace"], 1),
    ("device", ["right"], (GPU1,)),
    ("device", ["left"], (GPU0, GPU1)),
    ("shares", ["left"], (24.0,)),
    ("shares", ["shift+right"], (35.0,)),
    ("shares", [*"10", "comma", *"20", "comma", *"30", "comma", *"40"], (10.0, 20.0, 30.0, 40.0)),
    ("shares", [*"12", "full_stop", *"5"], (12.5,)),
    ("shares", ["backspace"], ()),
    ("hold", ["equals_sign"], "percentage"),
    ("memory", ["right", "right"], "2G"),
    ("memory", [*"900", "m"], "900M"),
    ("memory", [*"10", "G"], "10G"),
    ("priority", ["right"], (0,)),
    ("priority", ["left"], (0, 1)),
    ("seconds", ["right"], 10.0),
    ("seconds", [*"90"], 90.0),
    ("seconds", ["9", "backspace"], None),
    ("where", ["right"], "private"),
    ("where", ["left"], "off"),
]
"""Keys in a field that is as the panel opens, and what it is then."""


@pytest.mark.slow
async def test_each_field():
    names = {"kernel": "kernels", "device": "devices", "memory": "memory_limit", "preset": "kernel_names"}
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot)
        fields, at = app.screen.fields, 0
        first = fields.setup, fields.chosen
        for field, keys, value in OF_FIELDS:
            steps = len(DOWN[field]) - at
            await pilot.press(*["down"] * steps or ["up", "down"] * (at > 0))  # what was typed ends
            fields.setup, fields.chosen = first
            at += steps
            assert (fields.field.id, fields.editing) == (field, False)
            await pilot.press(*keys)
            assert getattr(setup_of(app), names.get(field, field)) == value, (field, keys)


@pytest.mark.slow
async def test_what_is_typed_in_a_rush_goes_into_the_field_that_was_gone_to():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot, *DOWN["kernel"])
        for key, char in (("down", None), ("1", "1"), ("2", "2"), ("down", None), ("down", None), ("5", "5")):
            app.post_message(Key(key, char))
        await until(pilot, lambda: setup_of(app).shares == (5.0,))
        assert setup_of(app).clients == 12


@pytest.mark.slow
async def test_typing_ends_with_the_field_and_letters_stay_keys():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot, *DOWN["memory"], "G")  # nothing typed yet: the last field
        assert app.screen.fields.field.id == "where"
        await pilot.press("g", *DOWN["clients"], "3", "down", "up", "7")
        assert setup_of(app).clients == 7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "why"),
    [("x", "no client runs here"), ("X", "no client of the load runs"), ("R", "no client runs here")],
)
async def test_a_key_that_does_nothing_says_why(key, why):
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot, key)
        assert [n.message for n in app._notifications] == [why]
        assert app.screen.why_not("limit") is None
        await pilot.press("l")
        assert app.screen is not app.get_screen("load")


@pytest.mark.slow
async def test_a_presets_shares_follow_the_clients_and_own_shares_do_not():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot, *DOWN["clients"], "5")
        assert setup_of(app).shares == (20.0,)
        assert re.search(r"memory +the server's", text_of(app))
        await pilot.press("down", "down", "left", "up", "up", "2")
        assert setup_of(app).shares == (19.0,)
        assert "your own" in text_of(app)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["right", "plus", "equals_sign"])
async def test_grow(key):
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        supervisor = await running(pilot)
        before = app.load.members[0].report
        await pilot.press(key)
        await until(pilot, lambda: supervisor.calls)
        levels = before.levels
        assert supervisor.calls == [("share", 1, levels[levels.index(32) + 1])]
        await until(pilot, lambda: "moved in 12 ms" in text_of(app))


@pytest.mark.slow
@pytest.mark.parametrize(("key", "step"), [("left", -1), ("minus", -1), ("shift+left", -4), ("shift+right", 4)])
async def test_shrink_and_bigger_steps(key, step):
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        supervisor = await running(pilot, *["right"] * 4, *DOWN["clients"], "1")
        levels = app.load.members[0].report.levels
        middle = levels[6]
        supervisor.say(1, sms=middle)
        await pilot.press(key)
        await until(pilot, lambda: supervisor.calls)
        assert supervisor.calls == [("share", 1, levels[6 + step])]


@pytest.mark.slow
async def test_the_bar_follows_the_report_and_the_wish_is_beside_it():
    app = load_app(FakeBackend(lazy=True), FREE)
    async with app.run_test(size=SIZE) as pilot:
        supervisor = await running(pilot)
        await pilot.press("j", "right")
        wanted = app.load.members[1].target
        await until(pilot, lambda: f"32 → {wanted} SM" in text_of(app))
        supervisor.say(2, sms=wanted)
        await until(
            pilot, lambda: f"{wanted} SM" in text_of(app) and "→" not in text_of(app).split("Together")[0][-900:]
        )


@pytest.mark.slow
async def test_stop_one_restart_and_stop_all():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        supervisor = await running(pilot)
        await pilot.press("tab", "x", "R")
        assert supervisor.calls == [], "from the form nobody looks at the cursor of the clients"
        assert "Tab goes to the clients first" in [n.message for n in app._notifications]
        await pilot.press("tab", "j", "x")
        await until(pilot, lambda: ("stop", (2,)) in supervisor.calls)
        await pilot.press("j", "R")
        await until(pilot, lambda: ("restart", 3, None, 132) in supervisor.calls)
        await pilot.press("X")
        await until(pilot, lambda: ("stop", (1, 3, 4)) in supervisor.calls)
        await until(pilot, lambda: "nothing runs" in text_of(app))
        await pilot.press("x", "X", "R")  # nothing to do is no error
        assert len(supervisor.calls) == 3


@pytest.mark.slow
async def test_fault_key():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        supervisor = await running(pilot, "left")
        await pilot.press("down", "J")
        assert supervisor.calls == [("fault", 1)]


@pytest.mark.slow
async def test_tab_walks_between_fields_and_clients():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot, "tab")
        assert app.focused.id == "bars"
        await pilot.press("shift+tab")
        assert app.focused.id == "fields"


@pytest.mark.slow
async def test_it_is_said_where_the_arrow_keys_go_and_how_far():
    low = replace(FREE, daemons=(daemon(servers=(server(active_thread_percentage=25.0),)),))
    app = load_app(snapshot=low)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot)
        assert "the server's 25 %: shares move up to 32 SM" in said(app)
        await pilot.press("right", "right")
        await until(pilot, lambda: "no share gets above that" in said(app))
        assert text_of(app).count(" 32 SM   fma") == 4, "the bars are what it comes to, not what was asked for"
        await pilot.press("left", "left")
        supervisor = await running(pilot)
        assert "←→ move the share" in text_of(app)
        assert "steps" in said(app)
        assert "l raises it, then R restarts it" in said(app)
        supervisor.say(1, levels=(8, 32))
        await until(pilot, lambda: "◂ limit 32 SM" in text_of(app))
        await pilot.press("tab")
        await pilot.pause()
        assert "Tab: move shares" in text_of(app)
        assert "for 4 more clients" in said(app)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "shown"), [((80, 24), False), ((100, 50), True), ((160, 24), True)])
async def test_a_small_screen_shows_one_of_them_at_a_time(size, shown):
    app = load_app(snapshot=FREE)
    async with app.run_test(size=size) as pilot:
        await running(pilot)
        assert ("Set up" in text_of(app)) is shown
        assert "TFLOP/s" in text_of(app)
        assert "GPU-Util" in text_of(app)
        await pilot.press("tab")
        await pilot.pause()
        assert "Set up" in text_of(app)
        assert ("GPU-Util" in text_of(app)) is shown


@pytest.mark.slow
async def test_shrinking_to_nothing_and_back():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        await running(pilot)
        for size in ((20, 5), (40, 10), (1, 1), (80, 24), SIZE):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        await until(pilot, lambda: "4 running" in text_of(app))


@pytest.mark.slow
async def test_a_wrong_field_is_said_and_nothing_starts():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        backend = await opened(pilot, *DOWN["shares"], *"101")
        assert "a share is above 0 and at most 100 percent" in said(app)
        await pilot.press("enter")
        await pilot.pause()
        assert backend.supervisors == []
        assert app.screen.fields.editing


async def test_read_only_starts_nothing():
    app = load_app(snapshot=FREE, read_only=True)
    async with app.run_test(size=SIZE) as pilot:
        backend = await opened(pilot, "enter")
        assert backend.supervisors == []
        assert "read-only" in text_of(app)


@pytest.mark.parametrize("snapshot", [no_daemon(), unhealthy("absent"), unhealthy("blocked")])
async def test_without_a_daemon_a_private_one_is_offered(snapshot):
    app = load_app(snapshot=snapshot)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot)
        assert setup_of(app).where == "private"
        await pilot.press("end", "left")
        assert "no daemon answers here" in said(app)


@pytest.mark.slow
async def test_what_endangers_others_needs_the_word():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        backend = await opened(pilot, "left", "end", "left", "enter")
        assert isinstance(app.screen, EndangerDialog)
        await pilot.pause()
        assert "takes down every client" in text_of(app)
        assert "of alice, bob" in text_of(app)
        await pilot.press("enter", *"endange", "enter")
        assert isinstance(app.screen, EndangerDialog)
        assert any("Nothing was started" in note.message for note in app._notifications)
        assert backend.supervisors == []
        await pilot.press("escape")
        assert isinstance(app.screen, LoadScreen)
        await pilot.press("enter", *"endanger", "enter")
        await until(pilot, lambda: app.load.live)
        assert backend.private == []


@pytest.mark.slow
async def test_beside_others_clients_it_asks_first_and_cancel_is_the_default():
    # Some of them have another device than the load: one server has them all.
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        backend = await opened(pilot)
        assert "Enter asks first: 46 clients of alice, bob" in said(app)
        await pilot.press("enter")
        assert isinstance(app.screen, BesideDialog)
        text = " ".join(text_of(app).replace("│", " ").split())
        assert "beside 46 clients of alice, bob" in text
        assert "They take 36 contexts and about 10.7 GiB of device memory (GPU 0: 4 of 48 contexts in use)" in text
        assert "train.py" in text
        busier = tuple(replace(each, contexts=(each.contexts or 0) + 8) for each in FREE.devices)
        app.collector.push(replace(FREE, devices=busier, time=FREE.time + 1))
        await pilot.pause()
        text = " ".join(text_of(app).replace("│", " ").split())
        assert "They take 28 contexts" in text, "what is left by now"
        assert "12 of 48 contexts in use" in text
        assert "about 8.4 GiB" in text
        await pilot.press("enter")
        assert isinstance(app.screen, LoadScreen)
        assert "28 contexts in 4 clients, about 8.4 GiB" in said(app), "the screen below says the same"
        assert backend.supervisors == []
        await pilot.press("enter", "tab", "enter")
        await until(pilot, lambda: app.load.live)


@pytest.mark.slow
async def test_beside_ones_own_clients_it_does_not_ask(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1001)
    mine = replace(FREE.daemons[0], servers=tuple(
        replace(s, clients=tuple(replace(c, uid=1001) for c in s.clients)) for s in FREE.daemons[0].servers
    ))  # fmt: skip
    app = load_app(snapshot=replace(FREE, daemons=(mine,)))
    async with app.run_test(size=SIZE) as pilot:
        backend = await opened(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: app.load.live)
        assert backend.supervisors


@pytest.mark.slow
async def test_a_private_daemon_does_not_ask():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot, "end", "right")
        assert setup_of(app).where == "private"
        await pilot.press("enter")
        await until(pilot, lambda: app.load.live)


@pytest.mark.slow
async def test_the_words_button_is_dead_until_it_is_typed():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        backend = await opened(pilot, "left", "end", "left", "enter")
        await pilot.pause()
        assert app.screen.query_one("#apply").disabled
        app.screen.query_one("#word", Input).value = "endanger"
        await pilot.pause()
        await pilot.click("#apply")
        await until(pilot, lambda: app.load.live)
        assert len(backend.supervisors) == 1


@pytest.mark.slow
async def test_a_client_in_one_line_says_its_figure_and_its_gpu():
    """The narrowest screen leaves out the plot, and keeps what it is about: who runs on, where, and how fast."""
    app = load_app(snapshot=FREE)
    async with app.run_test(size=(80, 24)) as pilot:
        supervisor = await running(pilot, "left", *DOWN["clients"], *"12")
        for number in range(1, 13):
            on = GPU1 if number % 2 else GPU0
            supervisor.say(number, figure=29.4 if number > 6 else 2723.0, unit="TFLOP/s", device_uuid=on)
        supervisor.say(3, state="failed", error=WorkerError("an illegal address"))
        await until(pilot, lambda: "✕" in text_of(app))
        lines = [line for line in text_of(app).splitlines() if " 70" in line]
        assert lines
        for line in lines:
            number = int(line.split()[1])
            assert f"GPU {number % 2}" in line, line
            assert number == 3 or ("29.4 TFLOP/s" if number > 6 else "2,723 TFLOP/s") in line, line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tour", "kernels", "shares"), [("partitioning", ("fma",), (30.0, 70.0)), ("fault", ("illegal", "fma"), ())]
)
async def test_the_tours_choose_what_they_say_in_a_private_daemon(tour, kernels, shares):
    """They go to a field and a preset by how far that is: another one before it must not change what they start."""
    keys = next(step.keys for step in read(tour).steps if step.keys[:1] == ("@load",))
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot, *keys[1:])
        setup = setup_of(app)
        assert (setup.kernels, setup.shares, setup.where) == (kernels, shares, "private")
        assert setup.way is STEADY
        told = text_of(app)
        assert "for clients that start now" not in told, "that server is another daemon's"
        assert "of a daemon of its own" in told
        assert "daemon of their own" in (app.screen.why_not("limit") or "")
        await pilot.press("enter")
        await until(pilot, lambda: app.load.live and not app.load.starting)
        reports = [member.report for member in app.load.live]
        made = sum(max(1, len(report.pool)) for report in reports if report.device_uuid == GPU0)
        await until(pilot, lambda: f"4/48 contexts · {made} in the load's daemon" in text_of(app))
