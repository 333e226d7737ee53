"""From the keys to a daemon and back: a plan applied and a daemon stopped on a simulated node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ui.screen import until

from mpstui import api
from mpstui.cli.settings import NodeDaemons, NodePlans
from mpstui.config import load_themes
from mpstui.node import open_node
from mpstui.observe.watcher import NodeWatcher
from mpstui.operations.audit import AuditLog
from mpstui.operations.runner import OperationRunner
from mpstui.ui.app import MpsTuiApp
from mpstui.ui.theme import build_themes

from .fakes import press, served, settle, text_in, typed


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with served("demo") as place:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(place / "config"))
        yield place


@pytest.mark.slow
async def test_a_plan_is_applied_kept_and_seen_and_the_daemon_stopped(folder: Path) -> None:
    sources, dirs = open_node((folder / "node",))
    collector = NodeWatcher(dirs, sources)
    audit = AuditLog(folder / "audit.jsonl")
    runner = OperationRunner(collector, audit)
    daemons = NodeDaemons("nvidia-cuda-mps-control", runner, dirs, demo=True)
    app = MpsTuiApp(
        collector,
        OperationRunner(collector, audit),
        themes=build_themes(load_themes()[0]),
        theme="mpstui-dark",
        plans=NodePlans(api.open((folder / "node",)).unentered()),
        daemons=daemons,
    )

    def server():
        found = collector.snapshot.daemons[0].servers if collector.snapshot and collector.snapshot.daemons else ()
        return found[0] if found else None

    async with app.run_test(size=(160, 48)) as pilot:
        await until(pilot, lambda: server() is not None and len(server().clients) > 3)
        await until(pilot, lambda: bool(collector.snapshot.devices))
        await until(pilot, lambda: bool(collector.snapshot.daemons[0].ordinals))
        await press(pilot, "p", *["down"] * 5)
        await typed(pilot, "24,60")
        await press(pilot, "A", "tab")
        assert app.screen.focused.id == "apply", list(app._notifications)
        await press(pilot, "enter")
        await until(pilot, lambda: app.screen.state == "ended")
        assert "all of it is in force" in text_in(app, "#outcome")
        await until(pilot, lambda: server().active_thread_percentage == 45.5)
        await press(pilot, "escape")
        await until(pilot, lambda: any("nothing to set" in row.text for row in app.screen.notes.rows))
        await press(pilot, "A")
        assert any("nothing to set" in note.message for note in app._notifications)
        await press(pilot, "w", "n", "i", "t", "e", "enter", "enter")
        await until(pilot, lambda: app.screen.state == "ended")
        await press(pilot, "escape", "V")
        await until(pilot, lambda: "Everything is as the profile says" in text_in(app, "#same"))
        await press(pilot, "escape", "escape", "d", "S")
        assert any("the demo has one simulated daemon" in note.message for note in app._notifications)
        await press(pilot, "x")
        app.screen.query_one("#wait").focus()
        await settle(pilot)
        await press(pilot, "end")
        app.screen.query_one("#apply").focus()
        await settle(pilot)
        await press(pilot, "enter", "tab", "enter")
        await until(pilot, lambda: app.screen.state == "ended")
        assert "has ended" in text_in(app, "#outcome")
    assert '"command": "quit -t 1"' in (folder / "audit.jsonl").read_text()
