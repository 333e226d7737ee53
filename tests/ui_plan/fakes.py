"""Profiles, daemons and an action layer in memory, and a node of few clients to plan for."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from textual.pilot import Pilot
from ui.fakes import FakeCollector, FakeRunner
from ui.screen import until
from ui.snapshots import GIB, GPU0, PIPE, client, daemon, rich, server

from mpstui.config import load_themes
from mpstui.core.model import Daemon, Device, ProcessKey, Snapshot
from mpstui.daemons.spec import DaemonSpec, Wish, spec_of_profile, specs_of
from mpstui.node import open_node
from mpstui.observe.watcher import NodeWatcher
from mpstui.operations.audit import AuditLog
from mpstui.operations.daemons import StartDaemon, StopDaemon
from mpstui.operations.registry import operation
from mpstui.operations.runner import OperationRunner
from mpstui.operations.types import ExitStatus, Request, Result
from mpstui.plan.profile import Profile, ProfileError, parse
from mpstui.plan.settings import in_force
from mpstui.plan.types import Plan
from mpstui.sim.node import SimNode
from mpstui.ui.app import MpsTuiApp
from mpstui.ui.plan.contract import Entry
from mpstui.ui.plan.screen import PlanScreen
from mpstui.ui.theme import build_themes

LARGE, SMALL = (160, 48), (80, 24)
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
CLIENTS = (
    client(0, user="alice", active_thread_percentage=50.0, sm_count=66, gpu_memory={GPU0: 30 * GIB}),
    client(1, user="alice", active_thread_percentage=50.0, sm_count=66, gpu_memory={GPU0: 5 * GIB}),
    client(3, user="bob", active_thread_percentage=25.0, sm_count=32, gpu_memory={GPU0: 2 * GIB}),
)


def small(*clients, **changes) -> Snapshot:
    """Alice with two clients and Bob with one, on GPU 0; the daemon is of whoever runs the tests."""
    own = {"uid": os.geteuid(), **changes}
    one = daemon(servers=(server(clients=clients or CLIENTS, pinned_mem_limits={}),), **own)
    return rich(daemons=(one,), devices=(rich().devices[0], rich().devices[1]))


@contextmanager
def served(scenario: str) -> Iterator[Path]:
    """A short directory, with a simulated node in its ``node``."""
    place = Path(tempfile.mkdtemp(prefix="mpp-", dir="/tmp"))
    node = SimNode.start(place / "node", scenario=scenario)
    try:
        yield place
    finally:
        node.stop()
        shutil.rmtree(place, ignore_errors=True)


def opened(folder: Path) -> tuple[NodeWatcher, MpsTuiApp]:
    """The program on that node, with a log of its own."""
    sources, dirs = open_node((folder / "node",))
    collector = NodeWatcher(dirs, sources)
    runner = OperationRunner(collector, AuditLog(folder / "audit.jsonl"))
    return collector, MpsTuiApp(collector, runner, themes=build_themes(load_themes()[0]), theme="mpstui-dark")


async def applied(pilot: Pilot[Any]) -> str:
    """Carries out what the dialog asks, and waits for its end; what it tells."""
    app = pilot.app
    await until(pilot, lambda: app.screen.query("#apply") and not app.screen.query_one("#apply").disabled)
    app.screen.query_one("#apply").focus()
    await until(pilot, lambda: app.screen.focused is not None and app.screen.focused.id == "apply")
    await press(pilot, "enter")
    await until(pilot, lambda: app.screen.state == "ended")
    return text_in(app, "#outcome")


class RecordingRunner(FakeRunner):
    """Keeps what it was asked; refuses what ``refuses`` is in."""

    def __init__(
        self, *, read_only: bool = False, refuses: str = "", status: ExitStatus = ExitStatus.REFUSED_BY_DAEMON
    ) -> None:
        """``status``: of what is refused."""
        super().__init__(read_only=read_only)
        self.requests: list[Request] = []
        self.refuses, self.status = refuses, status

    async def execute(
        self, request: Request, snapshot: Snapshot, progress: Callable[[str], None] = lambda text: None
    ) -> Result:
        if request.action in {"apply_profile", "go_back"}:  # made of the others, each of which is kept
            return await operation(request.action).carry_out(self, request, snapshot, progress)
        self.requests.append(request)
        if self.refuses and self.refuses in request.action:
            return Result(request, self.status, "the daemon did not take it")
        return Result(request, ExitStatus.DONE, f"in force: {request.value}")


@dataclass
class FakePlans:
    """The profiles' folder; a text that is none stays a broken profile."""

    texts: dict[str, str] = field(default_factory=dict)
    saved: dict[str, Profile] = field(default_factory=dict)
    environment_of: Mapping[str, str] | None = None

    async def profiles(self) -> Sequence[Entry]:
        found = [Entry(name, profile) for name, profile in self.saved.items()]
        for name, text in self.texts.items():
            try:
                found.append(Entry(name, parse(text)))
            except ProfileError as error:
                found.append(Entry(name, problem=str(error)))
        return found

    async def save(self, name: str, profile: Profile, *, replace: bool) -> Path:
        if name in self.saved and not replace:
            raise ProfileError(f"there is a profile {name} already")
        self.saved[name] = profile
        return Path(f"/profiles/{name}.toml")

    async def in_force(self, snapshot: Snapshot, pipe_dir: Path, old: Profile | None) -> Profile:
        found = snapshot.daemon(pipe_dir)
        assert found
        return Profile((in_force(found),))

    async def environment(self, key: ProcessKey) -> Mapping[str, str] | None:
        return self.environment_of


class FakeDaemons:
    """Starts and stops nothing; a stop waits for ``gate``."""

    def __init__(self, cannot_start: str | None = None, fails: Path | None = None) -> None:
        self.cannot_start = cannot_start
        self.fails = fails
        self.started: list[DaemonSpec] = []
        self.watched: list[Path] = []
        self.stopped: list[tuple[int | None, bool]] = []
        self.gate = asyncio.Event()

    def specs(self, wish: Wish, devices: Sequence[Device]) -> tuple[DaemonSpec, ...]:
        return specs_of(wish, devices, {}, root=True)

    def specs_of_profile(self, profile: Profile) -> tuple[DaemonSpec, ...]:
        return tuple(spec_of_profile(one, {"CUDA_MPS_PIPE_DIRECTORY": str(PIPE)}) for one in profile.daemons)

    def command(self, spec: DaemonSpec) -> str:
        return f"start {spec.pipe_dir} {','.join(spec.devices)}{' -M' if spec.multi_user else ''}"

    async def start(self, spec: DaemonSpec, progress: Callable[[str], None]) -> Result:
        self.started.append(spec)
        if spec.pipe_dir == self.fails:
            return Result(StartDaemon().request(spec), ExitStatus.NOT_PERMITTED, f"{spec.pipe_dir} belongs to bob")
        progress("waiting until it answers")
        return Result(StartDaemon().request(spec), ExitStatus.DONE, f"the daemon runs in {spec.pipe_dir}, PID 77")

    async def stop(
        self, daemon: Daemon, *, timeout: int | None, force: bool, progress: Callable[[str], None]
    ) -> Result:
        self.stopped.append((timeout, force))
        progress("quit")
        if not force:
            await self.gate.wait()
        return Result(StopDaemon().request(daemon), ExitStatus.DONE, f"the daemon in {daemon.pipe_dir} has ended")

    def watch(self, pipe_dir: Path) -> None:
        self.watched.append(pipe_dir)


def make_app(
    snapshot: Snapshot,
    *,
    runner: FakeRunner | None = None,
    plans: FakePlans | None = None,
    daemons: FakeDaemons | None = None,
    theme: str = "mpstui-dark",
    **options: Any,
) -> MpsTuiApp:
    themes = build_themes(load_themes()[0])
    app = MpsTuiApp(
        FakeCollector(snapshot),
        runner or RecordingRunner(),
        themes=themes,
        theme=theme,
        plans=plans or FakePlans(),
        daemons=daemons or FakeDaemons(),
        **options,
    )
    app.copied = []  # type: ignore[attr-defined]
    app.copy_to_clipboard = app.copied.append  # type: ignore[method-assign,attr-defined]
    return app


async def press(pilot: Pilot, *keys: str) -> None:
    await pilot.press(*keys)
    await settle(pilot)


async def settle(pilot: Pilot) -> None:
    """Until workers that do not wait for the test have ended, and messages are dealt with."""
    await pilot.pause()
    await pilot.pause()


async def typed(pilot: Pilot, text: str) -> None:
    names = {",": "comma", ".": "full_stop", "-": "minus", "*": "asterisk", "/": "slash", "_": "underscore"}
    await press(pilot, *(names.get(char, char) for char in text))


def text_in(app: MpsTuiApp, selector: str) -> str:
    """What a widget of the screen in front says."""
    widget = app.screen.query_one(selector)
    text = getattr(widget, "text", None)
    return text if isinstance(text, str) else "\n".join("".join(part for part, _ in line) for line in widget._lines)


def plan_of(app: MpsTuiApp) -> Plan | None:
    """The plan of the screen over the overview."""
    screen = app.screen_stack[1]
    assert isinstance(screen, PlanScreen)
    return screen.now.plan


def sms(app: MpsTuiApp) -> list[int]:
    """The SMs of each share."""
    return [share.sm_count for share in plan_of(app).shares]


def notes(app: MpsTuiApp) -> str:
    """What the panel beside the plan says."""
    return " ".join(row.text for row in app.screen_stack[1].notes.rows)
