"""Who waits for whom, who computes without MPS and why, and who has lost the server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpstui.core import condition
from mpstui.core.model import LostClient, ProcessKey, StartFailures
from mpstui.core.trust import Speaker
from mpstui.doctor.program import Program
from mpstui.doctor.why import Diagnosis, Reason
from mpstui.ui.dialogs import HarmConfirm
from mpstui.ui.trouble.users import UsersScreen
from tests.ui.screen import text_of, until
from tests.ui.snapshots import NOW

from .nodes import A, C, FakeTrouble, containment, node, said, trouble_app, waiting

SIZE = (160, 48)


async def test_each_process_is_explained() -> None:
    app = trouble_app(waiting())
    async with app.run_test(size=SIZE) as pilot:
        assert "W Waiting" in text_of(app)
        assert "· 2 clients · 2 wait " in text_of(app), "the header has who waits"
        await pilot.press("W")
        assert "Not served by MPS · 4 processes" in text_of(app)
        text = said(app)
        assert "It has waited for 1m, since 12:03:16." in text
        assert "it waits for server 1402, which serves alice, carol, to end" in text
        assert "3000 alice python train.py" in text
        assert "multi-user mode (drivers from 555 on)" in text
        assert "It gets a server when 2 clients end: wait, or ask their owners" in text
        await pilot.press("j")
        assert "A server is being started for it." in said(app)
        assert "UID 2009" in text_of(app)
        await pilot.press("j")
        assert "Server 1300 has been gone for 30s, since 12:04:01." in said(app)
        assert "error 806" in said(app)
        assert "a daemon runs here now" in said(app)
        await pilot.press("j")
        assert "Likely reason: its CUDA_MPS_PIPE_DIRECTORY is /tmp/other[/bad]." in said(app)
        assert "On GPU 3, 5.0 GiB, for 1h." in said(app)
        assert "/tmp/other[/bad]" in text_of(app)


async def test_what_another_users_daemon_says_of_who_waits_is_that_users_word() -> None:
    """Root was told, of a process of his, that its server is gone, to end it and start it again."""
    told = waiting()
    outside = tuple(replace(each, reason="uid", detail="the daemon serves mallory") for each in told.outside)
    theirs = replace(told.daemons[0], uid=64101, user="mallory", speaker=Speaker(64101, "a daemon of mallory"))
    app = trouble_app(replace(told, daemons=(theirs,), outside=outside))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("W")
        assert [text_of(app).count(word) for word in ("? waits", "? no server", "✕ no server")] == [2, 1, 0]
        for does in ("waits for a server", "waits for a server", "has lost its server"):
            assert f"mallory's daemon says that it {does}. mpstui has not confirmed it." in said(app)
            assert "The daemon belongs to mallory: leave it to its owner." in said(app)
            await pilot.press("K", "j")
            assert isinstance(app.screen, UsersScreen), "nobody is offered"
        assert "Only a daemon of root or of the process's own user can serve it" in said(app)


async def test_a_closer_look_at_one_past_mps() -> None:
    backend = FakeTrouble()
    app = trouble_app(waiting(), backend)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("W", "G")
        process = app.screen.case.process
        reason = Reason("no_daemon", "sure", "no daemon runs in /x[/b]", ("its variable is /x[/b]",), "Start it again.")
        backend.answers[process.pid] = Diagnosis(Program(process.key, user="eve"), (reason,))
        backend.gate.clear()
        await pilot.press("enter")
        assert "It is being looked at" in said(app)
        backend.gate.set()
        await pilot.pause()
        assert f"Process {process.pid} (eve) is not a client of MPS: no daemon runs in /x[/b]." in said(app)
        assert "/x[/b]" in text_of(app)
        del backend.answers[process.pid]
        await pilot.press("enter")
        await pilot.pause()
        assert "It has ended." in said(app)
        backend.broken = "no"
        await pilot.press("enter")
        await pilot.pause()
        assert "Not known: no." in said(app)


async def test_the_answer_is_in_view_where_the_text_is_longer_than_the_screen() -> None:
    backend = FakeTrouble()
    app = trouble_app(waiting(), backend)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("W")
        key = app.screen.case.process.key
        backend.answers[key.pid] = Diagnosis(Program(key, user="bob"), (Reason("x", "sure", "so it is", (), "Wait."),))
        assert "That server waits for its clients" in text_of(app)
        await pilot.press("enter")
        await pilot.pause()
        assert "so it is" in text_of(app)
        assert "→ Wait." in text_of(app)
        await pilot.press("tab", "g")
        await pilot.pause()
        app.screen.show_text()
        await pilot.pause()
        assert "It has waited" in text_of(app), "who scrolls back stays there"


@pytest.mark.slow
async def test_those_ahead_are_ended_by_identity_after_a_question() -> None:
    app = trouble_app(waiting())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("W", "K")
        assert isinstance(app.screen, HarmConfirm)
        assert app.screen.clients == (A, C)
        await pilot.press("escape", "G", "K")
        assert isinstance(app.screen, UsersScreen), "one without MPS waits for nobody"


async def test_read_only_says_why_not_and_still_copies() -> None:
    app = trouble_app(waiting(), read_only=True)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("W", "K")
        assert isinstance(app.screen, UsersScreen)
        assert "Not now: mpstui runs read-only." in said(app)
        await pilot.press("y")
        assert app.clipboard.startswith("Client 4100 waits\n4100 bob vllm serve")


async def test_nobody_is_said_and_who_goes_leaves_the_list() -> None:
    app = trouble_app(waiting())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("W")
        app.collector.push(node())
        await pilot.pause()
        assert "no process waits for a server, and none computes without MPS" in text_of(app)
        await pilot.press("K", "y", "escape")
        assert app.screen is app.overview
        assert "W Waiting" not in text_of(app)


async def test_nobody_is_no_client_of_mps_where_there_is_none() -> None:
    failed = StartFailures(17, NOW - 20, NOW - 1, 900, 0, "operation not supported")
    nowhere = node()
    none = replace(nowhere, daemons=(replace(nowhere.daemons[0], servers=(), start_failures=failed),))
    app = trouble_app(none)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("W")
        text = said(app)
        assert "is a client of MPS" not in text
        assert "MPS has no client here, and no process is known to compute without it." in text
        assert "No server starts: D shows the problems." in text
        app.collector.push(containment())
        await until(pilot, lambda: "Every known process on the GPUs is a client of MPS." in said(app))
        app.collector.push(replace(containment(), devices=(), nvml_detail="no NVML"))
        await until(pilot, lambda: "Which processes compute without MPS is not known" in said(app))


async def test_nobody_is_not_said_of_a_daemon_that_has_told_nothing_yet() -> None:
    """While the first answer was waited for it said that MPS has no client here."""
    whole = node()
    silent = replace(whole.daemons[0], servers=(), condition=condition.unasked("", condition.Moment()), watch="none")
    assert not silent.servers_known
    app = trouble_app(replace(whole, daemons=(silent,)))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("W")
        assert said(app) == "The daemon has not listed its clients yet, so it is not known who waits."
        assert "not known yet" in text_of(app)
        assert "no process waits" not in text_of(app)
        app.collector.push(replace(whole, devices=(), nvml_detail="no NVML"))
        await until(pilot, lambda: "no client waits for a server" in text_of(app))
        assert "none computes without MPS" not in text_of(app), "which nobody knows without NVML"


async def test_the_card_of_a_stale_directory_counts_the_lost_where_there_is_no_room_to_list_them() -> None:
    keys = (ProcessKey(4200 + n, 9) for n in range(3))
    lost = tuple(LostClient(key, 1300, 2003, "carol", "gmx mdrun", NOW - 30) for key in keys)
    app = trouble_app(node(condition=condition.gone("", ""), lost=lost))
    async with app.run_test(size=(80, 24)) as pilot:
        text = text_of(app)
        for part in (
            "3 clients: each CUDA call gives error 806; W shows them",
            "then S starts a daemon",
            "still works",
        ):
            assert part in text
        assert "gmx mdrun" not in text
        await pilot.press("W")
        assert "once a daemon runs: d in the overview starts one" in said(app)
