"""The panel on a simulated node with workers that are processes: shares move, faults stay inside, nothing is left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from load.conftest import gone, processes_with
from ui.fakes import FakeRunner
from ui.screen import text_of

from mpstui import api
from mpstui.config import load_themes
from mpstui.sim.node import SimNode
from mpstui.ui.app import MpsTuiApp
from mpstui.ui.theme import build_themes

from .fakes import SIZE

DEADLINE = 120.0


@pytest.fixture
def node(tmp_path):
    with SimNode.start(tmp_path / "pipe", gpus=2) as started:
        yield started


@pytest.fixture
def app(node, tmp_path, monkeypatch) -> MpsTuiApp:
    monkeypatch.setenv("MPSTUI_AUDIT_LOG", str(tmp_path / "audit.jsonl"))
    opened = api.open((node.pipe_dir,), refresh=0.2).unentered()
    themes = build_themes(load_themes()[0])
    return MpsTuiApp(opened.live(0.0), FakeRunner(), themes=themes, theme="mpstui-dark", load=opened)


async def until(app: MpsTuiApp, condition: Callable[[], object]) -> None:
    """Wait, with a deadline, while processes work. Raises TimeoutError with what is on the screen."""
    end = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(text_of(app))
        await asyncio.sleep(0.02)


def seen(app: MpsTuiApp) -> bool:
    """Whether who takes keys is on the screen: what is typed before is dropped."""
    return app.typeahead._left is not None and app.typeahead._shown == app.typeahead._place()


@pytest.mark.slow
async def test_from_the_key_to_the_last_process(app, node) -> None:
    async with app.run_test(size=SIZE) as pilot:
        await until(app, lambda: app.snapshot and app.snapshot.daemons and app.snapshot.daemons[0].health == "ok")
        await until(app, lambda: "0 servers" in text_of(app) and seen(app))
        await pilot.press("L", "right", "enter")
        await until(app, lambda: app.load and [m.report.state for m in app.load.members] == ["running"] * 2)
        pids = [m.report.pid for m in app.load.members]
        await until(app, lambda: "SIMULATED" in text_of(app) and str(pids[0]) in text_of(app))
        await until(app, lambda: app.load.members[0].report.figure)
        before = app.load.members[0].report
        assert before.sms == 38
        await pilot.press("shift+right", "shift+right", "shift+right")
        await until(app, lambda: app.load.members[0].report.sms == 132)
        moved = app.load.members[0].report
        assert moved.switch_seconds is not None
        await until(app, lambda: app.load.members[0].report.figure > 1.5 * before.figure)
        await pilot.press("escape")
        await until(app, lambda: "◆ load 1" in text_of(app) and "◆ load 2" in text_of(app))
        await pilot.press("ctrl+c", "tab", "enter")
        await until(app, lambda: app.return_value == 0)
    await gone(pids)
    assert not [p for p in processes_with("mpstui.sim.load") if p in pids]


@pytest.mark.slow
async def test_a_fault_in_a_private_daemon_stays_inside(app, node) -> None:
    innocent = node.spawn("busy")
    status = innocent.status()
    async with app.run_test(size=SIZE) as pilot:
        await until(app, lambda: app.snapshot and app.snapshot.daemons and app.snapshot.daemons[0].servers)
        await until(app, lambda: "1 server · 1 client" in text_of(app) and seen(app))
        await pilot.press("L", "left", "enter")
        await until(app, lambda: app.load and sum(m.report.state == "running" for m in app.load.members) == 4)
        private = app.load.private_dir
        assert private is not None
        await pilot.press("J")
        await until(app, lambda: sum(m.report.state == "failed" for m in app.load.members) == 2)
        lost = {m.report.device_uuid for m in app.load.members if m.report.state == "failed"}
        assert len(lost) == 1
        await until(app, lambda: "CUDA error 700: an illegal memory access" in text_of(app))
        assert innocent.status() == status
        await pilot.press("X")
        await until(app, lambda: app.load.private_dir is None)
        await until(app, lambda: not private.exists())
        app.exit(0)
