"""Each drill of the simulated node is put right on the screen, with the keys that the screen offers."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from mpstui import api
from mpstui.cli.screen import nobody_runs
from mpstui.cli.settings import NodeDaemons, NodePlans
from mpstui.config import load_themes
from mpstui.core.model import Daemon, Snapshot
from mpstui.node import open_node
from mpstui.observe.watcher import NodeWatcher
from mpstui.operations.audit import AuditLog
from mpstui.operations.runner import OperationRunner
from mpstui.sim.node import SimNode
from mpstui.ui.app import MpsTuiApp
from mpstui.ui.dialogs.widgets import Lines
from mpstui.ui.theme import build_themes
from tests.ui.screen import text_of

PATIENCE = 120.0
PACE = 0.01
"""Seconds from one look to the next."""


class Drill:
    """The screen on a drill's node."""

    def __init__(self, app: MpsTuiApp, pilot: Pilot) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def snapshot(self) -> Snapshot:
        return self.app.collector.snapshot

    @property
    def daemon(self) -> Daemon:
        return self.snapshot.daemons[0]

    @property
    def text(self) -> str:
        return text_of(self.app)

    async def until(self, condition: Callable[[], object]) -> None:
        """Lets the screen go on until it holds; what is not there yet does not hold."""
        end = time.monotonic() + PATIENCE
        while True:
            await self.pilot.pause(PACE)
            try:
                if condition():
                    return
            except (AttributeError, IndexError):
                pass
            if time.monotonic() > end:
                raise TimeoutError(self.text)

    async def shows(self, *parts: str) -> None:
        await self.until(lambda: all(part in self.text for part in parts))

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def asks(self, key: str) -> None:
        """The question that a key opens. On a busy machine it may be dropped, because the screen has just changed by
        itself, which is said: then whoever sits there presses it again."""
        end = time.monotonic() + PATIENCE
        while not self.app.screen.query("#apply"):
            assert time.monotonic() < end, self.text
            await self.press(key)
            await self.until(lambda: not self.app.typeahead.busy)

    async def confirm(self, key: str) -> None:
        """Yes to the question that a key opens, whose default is no, and back when it is done."""
        await self.asks(key)
        await self.until(lambda: not self.app.screen.query_one("#apply").disabled)
        while self.app.screen.focused is None or self.app.screen.focused.id != "apply":
            await self.press("tab")
        await self.press("enter")
        await self.until(lambda: self.app.screen.state == "ended")
        assert "✓" in text_of_outcome(self.app), self.text
        await self.press("escape")


def text_of_outcome(app: MpsTuiApp) -> str:
    return app.screen.query_one("#outcome", Lines).text


@asynccontextmanager
async def drill(name: str, size: tuple[int, int] = (160, 48)) -> AsyncIterator[Drill]:
    folder = Path(tempfile.mkdtemp(prefix="mpu-", dir="/tmp"))
    node = await asyncio.to_thread(SimNode.start, folder / "n", scenario=name)
    try:
        sources, dirs = open_node([folder / "n"])
        collector = NodeWatcher(dirs, sources)
        audit = AuditLog(folder / "audit.jsonl")
        runner = OperationRunner(collector, audit, grace=2.0)
        daemons = NodeDaemons(
            "nvidia-cuda-mps-control",
            runner,
            dirs,
            demo=True,
            gone=lambda: nobody_runs(collector.snapshot),
        )
        app = MpsTuiApp(
            collector,
            runner,
            themes=build_themes(load_themes()[0]),
            theme="mpstui-dark",
            plans=NodePlans(api.open(dirs).unentered()),
            daemons=daemons,
            trouble=api.open(dirs).unentered(),
        )
        async with app.run_test(size=size) as pilot:
            yield Drill(app, pilot)
    finally:
        await asyncio.to_thread(node.stop)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
async def test_fault_one_is_told_one_is_ended_then_all_and_the_recovery_is_seen() -> None:
    async with drill("fault") as node:
        await node.shows("✕ FAULT", "3 clients have to end", "! what to do", "e End lost clients")
        await node.until(lambda: all(key.start_ticks for key in node.daemon.servers[0].fault.affected))
        alice = next(c.pid for c in node.daemon.clients() if c.user == "alice")
        await node.press("exclamation_mark")
        bob = next(c.pid for c in node.daemon.clients() if c.user == "bob")
        await node.shows("in FAULT", f"{alice}", f"server.log names client {bob} (bob", "▸ Still to end")
        await node.press("B")
        await node.shows("In 1 to 2 of 2 faults: alice, python train.py; no other user or command was")
        await node.press("escape")
        await node.until(lambda: node.daemon.servers[0].fault.refused)
        await node.press("y")
        assert f"  {alice}  python train.py --model vit-b16" in node.app.clipboard
        assert "Please end them" in node.app.clipboard
        await node.confirm("x")
        await node.shows("✓ disconnected", "2 left to end")
        assert node.daemon.servers[0].status == "FAULT"
        await node.confirm("e")
        await node.shows("has recovered", "takes new clients again, since")
        await node.press("escape")
        await node.shows("✓ RECOVERED", "takes new clients again")
        await node.until(lambda: node.daemon.servers[0].status == "ACTIVE")


@pytest.mark.slow
@pytest.mark.usefixtures("usual_deadline")
async def test_blocked_is_freed_by_the_one_key_on_the_card() -> None:
    async with drill("blocked") as node:
        await node.shows("■ BLOCKED", "u  ends process")
        await node.until(lambda: node.daemon.blocked_by.start_ticks)
        pid = node.daemon.blocked_by.pid
        assert f"u  ends process {pid} of alice" in node.text
        await node.confirm("u")
        await node.until(lambda: node.daemon.health == "ok")
        await node.shows("● ok", "Clients")


@pytest.mark.slow
async def test_held_is_freed_by_the_same_key_and_names_who_held_it() -> None:
    async with drill("held", (80, 24)) as node:
        await node.shows("◆ HELD", "u  ends process")
        holder = node.daemon.holder.pid
        await node.asks("u")
        await node.shows(str(holder), "control session")
        await node.confirm("u")
        await node.until(lambda: node.daemon.health == "ok")
        await node.shows("● ok", "COMMAND")


@pytest.mark.slow
async def test_pending_says_who_waits_for_whom_and_lets_it_in() -> None:
    async with drill("pending") as node:
        await node.until(lambda: node.daemon.pending[0].user and node.daemon.pending[0].waits_for)
        await node.until(lambda: all(c.key.start_ticks for c in node.daemon.clients()))
        bob = node.daemon.pending[0].pid
        await node.shows("W Waiting")
        await node.press("W")
        await node.shows(f"Client {bob} waits", "alice python eval.py", "K terminates and kills them")
        await node.confirm("K")
        await node.until(lambda: not node.daemon.pending and any(c.user == "bob" for c in node.daemon.clients()))
        await node.shows("no process waits")


@pytest.mark.slow
async def test_full_says_so_and_takes_the_next_one_when_one_has_gone() -> None:
    async with drill("full") as node:
        await node.shows("48 of 48 contexts")
        await node.until(lambda: node.app.overview.clients.cursor_row.key.start_ticks)
        await node.press("D")
        await node.shows("device full", "the next client gets error 46")
        await node.press("escape", "E")
        await node.shows("was refused")
        await node.press("escape")
        await node.confirm("K")
        await node.until(lambda: any(c.user == "erin" for c in node.daemon.clients()))


@pytest.mark.slow
async def test_stale_names_who_lost_the_server_and_starts_a_daemon_again() -> None:
    async with drill("stale") as node:
        await node.shows("◌ STALE", "lost server", "alice python train.py", "d  then S starts a daemon here")
        await node.until(lambda: len(node.daemon.lost) == 3)
        await node.press("W")
        await node.shows("has lost its server", "error 806")
        await node.press("escape", "d")
        await node.confirm("S")
        await node.press("escape")
        await node.until(lambda: node.daemon.health == "ok")
        await node.shows("● ok")
