"""The screen of the daemons: what runs, start with everything a wish can say, stop with everybody it hits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ui.screen import text_of
from ui.snapshots import GPU0, GPU1, OTHER_PIPE, PIPE, rich, unhealthy

from mpstui.core.model import ProcessKey
from mpstui.daemons.spec import newer_modes
from mpstui.ui.daemons.screen import DaemonScreen
from mpstui.ui.daemons.starting import StartDialog
from mpstui.ui.daemons.stopping import ForceConfirm, StopDialog
from mpstui.ui.dialogs import DetailsScreen
from mpstui.ui.dialogs.widgets import Push
from mpstui.ui.overview import Overview

from .fakes import (
    CLIENTS,
    LARGE,
    PROFILE,
    SMALL,
    FakeDaemons,
    FakePlans,
    RecordingRunner,
    make_app,
    press,
    settle,
    small,
    text_in,
    typed,
)


@pytest.mark.slow
async def test_d_shows_what_runs_with_its_directories_and_compute_mode() -> None:
    app = make_app(rich())
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "d")
        assert isinstance(app.screen, DaemonScreen)
        text = text_of(app)
        for words in (str(PIPE), str(OTHER_PIPE), "/var/log/nvidia-mps", "compute mode Default", "one user's clients"):
            assert words in text
        assert f"nvidia-smi -i {GPU0} -c EXCLUSIVE_PROCESS" in text
        assert f"nvidia-smi -i {GPU1}" not in text  # it has that mode already
        await press(pilot, "y")
        assert app.copied == [f"nvidia-smi -i {GPU0} -c EXCLUSIVE_PROCESS"]
        await press(pilot, "down")
        assert app.screen.daemon.pipe_dir == OTHER_PIPE
        await press(pilot, "enter")
        assert isinstance(app.screen, DetailsScreen)
        await press(pilot, "escape", "tab")
        assert app.focused.id == "text", "what is longer than its box is scrolled, as on the other lists"
        await press(pilot, "r", "escape")
        assert isinstance(app.screen, Overview)
        assert app.collector.refreshes == [None]


@pytest.mark.slow
async def test_d_begins_at_the_daemon_that_was_in_front_and_x_stops_that_one() -> None:
    app = make_app(rich(), daemons=FakeDaemons())
    async with app.run_test(size=SMALL) as pilot:
        await press(pilot, "]", "d")
        assert app.screen.daemon.pipe_dir == OTHER_PIPE
        await press(pilot, "x")
        assert isinstance(app.screen, StopDialog)
        assert str(OTHER_PIPE) in text_of(app)


@pytest.mark.slow
async def test_a_daemon_is_started_as_the_fields_say() -> None:
    daemons = FakeDaemons()
    app = make_app(small(), daemons=daemons)
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "d", "S")
        assert isinstance(app.screen, StartDialog)
        assert "/tmp/nvidia-mps" in text_in(app, "#specs")
        await press(pilot, "down", "space", "tab", "down", "space", "tab")
        await typed(pilot, "0,2")
        await press(pilot, "tab")
        await typed(pilot, "/tmp/mps_9")
        assert f"start /tmp/mps_9 {GPU1} -M" in text_in(app, "#specs")
        await press(pilot, "tab")
        assert app.focused.id == "cancel"
        await press(pilot, "tab", "enter")
        (spec,) = daemons.started
        assert (spec.pipe_dir, spec.log_dir) == (Path("/tmp/mps_9"), Path("/tmp/mps_log_9"))
        assert (spec.devices, spec.multi_user, spec.cpus) == ((GPU1,), True, frozenset({0, 2}))
        outcome = text_in(app, "#outcome")
        assert "the daemon runs in /tmp/mps_9" in outcome
        assert daemons.watched == [Path("/tmp/mps_9")]


@pytest.mark.slow
async def test_the_form_has_the_modes_of_the_driver() -> None:
    for driver, modes in (("580.1", []), ("590.1", ["static"]), ("615.71", ["static", "protocol_3"]), (None, [])):
        assert sorted(newer_modes(driver), reverse=True) == modes
    daemons = FakeDaemons()
    app = make_app(replace(small(), driver_version="615.71"), daemons=daemons)
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "d", "S", "tab", "down", "down", "down", "space", "tab", "tab")
        await typed(pilot, "/tmp/mps_9")
        await press(pilot, "tab", "tab", "enter")
        (spec,) = daemons.started
        assert (spec.protocol, spec.static, spec.multi_user) == (3, False, False)


@pytest.mark.slow
async def test_one_for_each_gpu_stops_at_the_first_that_does_not_start_and_says_why() -> None:
    daemons = FakeDaemons(fails=Path("/tmp/mps_0"))
    app = make_app(unhealthy("absent"), daemons=daemons)
    async with app.run_test(size=SMALL) as pilot:
        await press(pilot, "d", "S", "tab", "space")
        assert text_in(app, "#specs").count("start ") == 2
        await press(pilot, "tab", "tab", "tab", "tab", "enter")
        outcome = text_in(app, "#outcome")
        assert "/tmp/mps_0 belongs to bob" in outcome
        assert "not tried: /tmp/mps_1" in outcome
        assert len(daemons.started) == 1
        await press(pilot, "tab", "enter")
        assert len(daemons.started) == 2, "tried again as it is"
        await press(pilot, "shift+tab")  # the fields are there again, as they were
        assert app.focused.id == "where"
        await typed(pilot, "/tmp/mps_9")
        assert text_in(app, "#outcome") == ""
        await press(pilot, "tab", "tab", "enter")
        assert len(daemons.started) == 4
        assert "2 daemons run" in text_in(app, "#outcome")


@pytest.mark.slow
async def test_what_cannot_be_started_is_said_and_not_tried() -> None:
    daemons = FakeDaemons()
    app = make_app(small(), daemons=daemons)
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "d", "S", "tab", "tab")
        await typed(pilot, "a")
        assert "no list of CPUs" in text_in(app, "#problem")
        await press(pilot, "backspace", "tab")
        await typed(pilot, "mps")
        assert "absolute path" in text_in(app, "#problem")
        await press(pilot, *["backspace"] * 3)
        await typed(pilot, str(PIPE))
        assert f"a daemon runs in {PIPE} already" in text_in(app, "#problem")
        assert app.screen.query_one("#apply", Push).disabled
        assert daemons.started == []


@pytest.mark.slow
async def test_a_simulated_one_is_not_started_where_programs_look_for_a_real_one() -> None:
    app = make_app(replace(small(), source="simulated"), daemons=FakeDaemons())
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "d", "S", "tab", "tab", "tab")
        assert "type a directory" in text_in(app, "#problem")
        assert app.screen.query_one("#apply", Push).disabled
        await typed(pilot, "/tmp/mps_sim")
        assert not app.screen.query_one("#apply", Push).disabled


@pytest.mark.slow
async def test_a_profile_says_everything_itself() -> None:
    daemons = FakeDaemons()
    plans = FakePlans({"two": PROFILE.replace("[[daemon]]", '[[daemon]]\npipe_dir = "/tmp/mps_7"', 1), "bad": "x"})
    app = make_app(small(), daemons=daemons, plans=plans)
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "d", "S", "shift+tab", "down")
        assert app.screen.profile is not None
        assert app.screen.query_one("#devices").disabled
        assert "start /tmp/mps_7" in text_in(app, "#specs")
        await press(pilot, "tab", "tab", "enter")
        assert daemons.started[0].limits.active_thread_percentage == 50.0
        assert "Its limits are not set yet: V" in text_in(app, "#outcome")


@pytest.mark.slow
async def test_stop_names_who_is_hit_waits_and_shows_the_clients_going() -> None:
    daemons = FakeDaemons()
    app = make_app(small(), daemons=daemons)
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "d", "x")
        assert isinstance(app.screen, StopDialog)
        assert app.focused.id == "cancel"
        hits = text_in(app, "#hits")
        assert all(str(client.pid) in hits for client in CLIENTS)
        assert "it waits until 3 clients have ended" in text_in(app, "#effect")
        await press(pilot, "down", "down")
        assert "at most 10 s" not in text_in(app, "#effect"), "arrows choose where the focus is alone"
        assert app.focused.id == "cancel"
        await press(pilot, "enter")
        assert (isinstance(app.screen, DaemonScreen), daemons.stopped) == (True, [])
        await press(pilot, "x", "shift+tab", "down")
        assert "at most 10 s" in text_in(app, "#effect")
        await press(pilot, "tab", "tab", "enter")
        assert daemons.stopped == [(10, False)]
        assert "it goes on" in text_of(app).splitlines()[-1]
        app.collector.push(small(replace(CLIENTS[0], key=ProcessKey(CLIENTS[0].pid))))
        await settle(pilot)
        assert text_in(app, "#hits").count("gone") == 2, "one whose start is known no more has not gone"
        daemons.gate.set()
        await settle(pilot)
        assert f"the daemon in {PIPE} has ended" in text_in(app, "#outcome")


@pytest.mark.slow
async def test_force_only_after_its_own_confirmation() -> None:
    daemons = FakeDaemons()
    app = make_app(small(), daemons=daemons)
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "d", "x", "shift+tab", "end", "tab", "tab", "enter")
        assert isinstance(app.screen, ForceConfirm)
        assert app.focused.id == "cancel"
        assert "error 806" in text_in(app, "#what")
        await press(pilot, "enter")
        assert (isinstance(app.screen, StopDialog), daemons.stopped) == (True, [])
        await press(pilot, "enter", "tab", "enter")
        assert daemons.stopped == [(None, True)]
        assert "has ended" in text_in(app, "#outcome")


@pytest.mark.slow
async def test_a_stop_that_waits_too_long_can_be_forced() -> None:
    daemons = FakeDaemons()
    app = make_app(small(), daemons=daemons)
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "d", "x", "tab", "enter")
        assert daemons.stopped == [(None, False)]
        assert app.focused.id == "cancel"
        await press(pilot, "tab", "enter")
        assert isinstance(app.screen, ForceConfirm)
        await press(pilot, "tab", "enter")
        assert daemons.stopped == [(None, False), (None, True)]
        assert "has ended" in text_in(app, "#outcome")


@pytest.mark.slow
async def test_another_daemon_in_the_same_directory_is_left_alone() -> None:
    daemons = FakeDaemons()
    app = make_app(small(), daemons=daemons)
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "d", "x")
        app.collector.push(unhealthy("absent"))
        await settle(pilot)
        assert "nothing will be done" in text_in(app, "#problem")
        assert app.screen.query_one("#apply", Push).disabled


@pytest.mark.slow
async def test_one_that_does_not_answer_can_only_be_forced() -> None:
    app = make_app(unhealthy("held"))
    async with app.run_test(size=SMALL) as pilot:
        await press(pilot, "d", "x")
        assert "force ends its process" in text_in(app, "#problem")
        assert app.screen.query_one("#apply", Push).disabled
        hits = app.screen.query_one("#hits")
        await press(pilot, "pagedown")
        assert (hits.scroll_y, app.focused.id) == (6, "cancel")
        await press(pilot, "shift+tab", "end")  # the list of the 46 clients, which only scrolls, comes last
        assert not app.screen.query_one("#apply", Push).disabled


async def test_read_only_and_demo_dim_and_refuse() -> None:
    daemons = FakeDaemons(cannot_start="mpstui runs read-only")
    app = make_app(small(), daemons=daemons, runner=RecordingRunner(read_only=True))
    async with app.run_test(size=LARGE) as pilot:
        await press(pilot, "d")
        styles = {text.strip(): style for text, style in app.screen.keys._lines[0]}
        assert styles["Start new"] == styles["Stop"] == "key-off"
        await press(pilot, "S", "x")
        assert isinstance(app.screen, DaemonScreen)
        assert sum("read-only" in note.message for note in app._notifications) == 1, "told once while it stands"


async def test_nothing_there_is_nothing_to_stop() -> None:
    app = make_app(unhealthy("stale"))
    async with app.run_test(size=SMALL) as pilot:
        await press(pilot, "d", "x")
        assert isinstance(app.screen, DaemonScreen)
        assert any("no daemon runs" in note.message for note in app._notifications)


async def test_what_is_not_known_of_a_place_without_a_daemon_is_not_said() -> None:
    app = make_app(replace(unhealthy("absent"), devices=()))
    async with app.run_test(size=SMALL) as pilot:
        await press(pilot, "d")
        screen = app.screen
        row = next(line for line in text_of(app).splitlines() if "ABSENT" in line and str(PIPE) in line and "│" in line)
        pid, user, _up, clients = row.split("ABSENT")[1].split()[:4]
        assert (pid, user, clients) == ("—", "—", "—"), row
        assert screen.why_not("copy") == "no device is known here"
