"""The panel and what is around it: leaving, the overview, the daemon, the words for what went wrong."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from ui.screen import text_of, until
from ui.snapshots import (
    GPU0,
    GPU1,
    OTHER_PIPE,
    PIPE,
    client,
    daemon,
    device,
    rich,
    server,
)
from ui.snapshots import NOW as SNAPSHOT_TIME

from mpstui.core.model import OldLimit, ProcessKey
from mpstui.load.types import WorkerError
from mpstui.ui.dialogs import ChangeForm, DetailsScreen, HelpScreen
from mpstui.ui.dialogs.commands import ActionCommands
from mpstui.ui.load.dialogs import LeaveDialog
from mpstui.ui.load.presets import PRESETS
from mpstui.ui.load.screen import LoadScreen

from .fakes import DOWN, FREE, SIZE, FakeBackend, load_app, opened, running, said, setup_of


@pytest.mark.slow
async def test_quitting_with_a_load_asks_and_stops_all():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        supervisor = await running(pilot)
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert isinstance(app.screen, LeaveDialog)
        assert "Not ended: 4 clients of the load" in text_of(app)
        await pilot.press("enter")  # the button that is marked: stay
        assert isinstance(app.screen, LoadScreen)
        assert supervisor.calls == []
        await pilot.press("ctrl+c", "ctrl+c", "tab", "enter")
        await until(pilot, lambda: app.return_code is not None or not app.is_running)
        assert ("stop", None) in supervisor.calls
    assert app.return_value == 0


@pytest.mark.slow
async def test_a_signal_stops_all_without_asking():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        supervisor = await running(pilot, "left")
        app.exit(129)
    assert ("stop", None) in supervisor.calls
    assert app.load.backend.private == ["up", "down"]


async def test_quitting_without_a_load_does_not_ask():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot, "q", "q")
    assert app.return_value == 0


@pytest.mark.slow
async def test_own_clients_are_marked_in_the_overview_and_the_load_goes_on():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=(180, 48)) as pilot:
        supervisor = await running(pilot, *["right"] * 4)
        mine = client(0, key=ProcessKey(7001, 501), command="mpstui-load nbody")
        reused = client(1, key=ProcessKey(7001, 999), command="somebody else")
        await pilot.press("escape")
        app.collector.push(rich(daemons=(daemon(servers=(server(clients=(mine, reused)),)),)))
        await pilot.pause()
        assert "◆ load 1 mpstui-load nbody" in text_of(app)
        assert text_of(app).count("◆") == 1
        assert supervisor.calls == []
        supervisor.say(1, state="ended")
        app.collector.push(rich(daemons=(daemon(servers=(server(clients=(mine,)),)),), time=SNAPSHOT_TIME + 1))
        await pilot.pause()
        assert "◆" not in text_of(app)


@pytest.mark.slow
async def test_clients_older_than_the_servers_limit_are_marked():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        await running(pilot, *["right"] * 4)
        mine = client(0, key=ProcessKey(7001, 501), old_limits=(OldLimit("active_thread_percentage", 100.0, 50.0),))
        app.collector.push(rich(daemons=(daemon(servers=(server(clients=(mine,)),)),)))
        await until(pilot, lambda: "⟳ outdated limits: R restarts it" in text_of(app))
        assert "25 % for clients that start now; ⟳ 1 outdated: R restarts one" in text_of(app)


@pytest.mark.slow
async def test_the_servers_percentage_is_changed_from_here():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot, "l")
        assert isinstance(app.screen, ChangeForm)
        assert app.screen.action.id == "set_active_thread_percentage"


@pytest.mark.slow
async def test_details_of_a_client_that_the_daemon_knows():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        await running(pilot, *["right"] * 4)
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, LoadScreen)
        mine = client(0, key=ProcessKey(7001, 501))
        app.collector.push(rich(daemons=(daemon(servers=(server(clients=(mine,)),)),)))
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, DetailsScreen)


@pytest.mark.slow
async def test_help_and_palette_list_the_panels_keys_and_no_actions():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=(160, 60)) as pilot:
        await running(pilot)
        titles = {command.title for command in ActionCommands(app.screen).commands()}
        assert {"Grow the share", "Stop all clients"} <= titles
        assert not titles & {action.title for action in app.runner.actions}
        await pilot.press("question_mark")
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)
        assert "Grow the share" in text_of(app)
        assert "Terminate + kill" not in text_of(app)


@pytest.mark.slow
async def test_the_overviews_help_names_the_key():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=(160, 100)) as pilot:
        await pilot.press("question_mark")
        await pilot.pause()
        assert "Load: test clients" in text_of(app)


@pytest.mark.slow
@pytest.mark.parametrize("clients", ["2", "20"])
async def test_a_dead_client_says_why_in_words(clients):
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        supervisor = await running(pilot, *DOWN["clients"], *clients)
        error = WorkerError(
            "CUDA error 807: the MPS server takes no clients now [bold]\x1b[2J", "end the affected", 807
        )
        supervisor.say(1, state="failed", error=error)
        supervisor.say(2, state="failed", error=error, figure=None, unit="")
        await until(pilot, lambda: "2 failed" in text_of(app))
        assert "the MPS server takes no clients now [bold]\\x1b" in text_of(app)
        assert ("→ end the affected" in text_of(app)) is (clients == "2")


@pytest.mark.slow
async def test_what_a_load_in_a_daemon_of_its_own_is_told_of_a_fault_names_no_logs_that_end_with_it():
    error = WorkerError("CUDA error 700: an illegal memory access", "mpstui suspects names who was there", 700)
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        supervisor = await running(pilot, *["right"] * [p.id for p in PRESETS].index("fault"))
        supervisor.say(1, state="failed", error=error)
        await until(pilot, lambda: "→ only clients of this load were in the daemon" in text_of(app))
        assert "mpstui suspects" not in text_of(app)


@pytest.mark.slow
async def test_without_affinity_it_says_so_and_offers_the_restart():
    app = load_app(FakeBackend(affinity=False), FREE)
    async with app.run_test(size=SIZE) as pilot:
        supervisor = await running(pilot, *["right"] * 4)
        assert "no affinity here: choose with ←→, R restarts" in text_of(app)
        await pilot.press("left", "left")
        await until(pilot, lambda: "132 → 128 SM" in text_of(app))
        assert "so R restarts it with 128 SM" in text_of(app)
        await pilot.press("R")
        await until(pilot, lambda: supervisor.calls)
        assert supervisor.calls == [("restart", 1, 97.0)]


@pytest.mark.slow
async def test_without_mps():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        supervisor = await running(pilot, *["right"] * 5, *DOWN["where"], "left")
        assert supervisor.specs[0][0].mps is False
        assert re.search(r"memory +no limit", text_of(app))
        assert "takes turns" in text_of(app)
        assert "no limit reaches these clients" in text_of(app)
        await pilot.press("right")
        await until(pilot, lambda: "without MPS there are no shares" in text_of(app))


@pytest.mark.slow
async def test_the_pool_says_what_it_costs():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot)
        assert "36 contexts in 4 clients" in said(app)
        await pilot.press("enter", "tab", "enter")
        await until(pilot, lambda: "48 contexts in 4 clients" in text_of(app))
        assert "made ahead in 1.3 s" in text_of(app)


@pytest.mark.slow
async def test_figures_are_added_and_painted_by_the_tick():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        supervisor = await running(pilot, *["right"] * 5)
        for number in (1, 2):
            supervisor.say(number, figure=600.0 + number)
        app.screen.tick()
        await pilot.pause()
        assert "1,203 Ginteractions/s" in text_of(app)
        assert "601 Ginteractions/s" in text_of(app)
        assert "shares 264 of 132 SM, overlapping" in text_of(app)


@pytest.mark.slow
async def test_what_a_run_came_to_stays_after_its_end():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        supervisor = await running(pilot, *["right"] * 5)
        for number, done in ((1, 5.5e12), (2, 6.5e12)):
            supervisor.say(number, state="ended", done=done, running_seconds=10.0)
        await until(pilot, lambda: "0 running" in text_of(app))
        assert "mean 550 Ginteractions/s" in text_of(app)
        assert "nothing runs; means of the run:  1,200 Ginteractions/s" in text_of(app)
        assert "R starts it again" in said(app)


@pytest.mark.parametrize(
    ("readings", "words"),
    [
        ({"gpu_utilization": 100.0, "sm_utilization": 8.0}, "GPU-Util says 100 %, yet only 8 % of the SMs had work"),
        ({"gpu_utilization": 100.0, "sm_utilization": 97.0}, "with one small kernel as with this load"),
        ({"gpu_utilization": 0.0, "sm_utilization": 0.0}, "as soon as any kernel runs"),
        ({"gpu_utilization": 100.0, "sm_utilization": None}, "NVML has no SM activity for this GPU"),
    ],
)
async def test_the_lesson(readings, words):
    app = load_app(snapshot=replace(FREE, devices=(device(0, 4, **readings),)))
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot)
        assert words in text_of(app)


@pytest.mark.slow
async def test_a_device_that_goes_gives_way():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot, *DOWN["device"], "right")
        assert setup_of(app).devices == (GPU1,)
        here = daemon(ordinals={"0": GPU0}, servers=())
        app.collector.push(rich(daemons=(here,), devices=(device(0, 4),)))
        await pilot.pause()
        assert setup_of(app).devices == (GPU0,)


@pytest.mark.slow
async def test_the_panel_is_for_the_daemon_whose_tab_is_open():
    app = load_app(snapshot=rich())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("right_square_bracket")
        supervisor = await running(pilot)
        assert supervisor.pipe_dir == OTHER_PIPE
        assert supervisor.pipe_dir != PIPE


@pytest.mark.slow
async def test_simulated_is_said():
    app = load_app(FakeBackend(simulated=True), FREE)
    async with app.run_test(size=(80, 24)) as pilot:
        await running(pilot)
        assert "SIMULATED" in text_of(app)


@pytest.mark.slow
async def test_the_users_keys_are_the_ones_that_are_shown_and_work():
    app = load_app(snapshot=FREE, keys={"load.stop_all": "Z"})
    async with app.run_test(size=SIZE) as pilot:
        supervisor = await running(pilot)
        assert "Z Stop all" in text_of(app)
        await pilot.press("X")
        assert supervisor.calls == []
        await pilot.press("Z")
        await until(pilot, lambda: supervisor.calls)


@pytest.mark.slow
async def test_the_device_is_named_where_there_are_several_also_on_a_small_screen():
    app = load_app(snapshot=FREE)
    async with app.run_test(size=(80, 24)) as pilot:
        await running(pilot, "left")
        await until(pilot, lambda: "illegal  GPU 0 " in text_of(app) and text_of(app).count("fma  GPU 1 ") == 2)
