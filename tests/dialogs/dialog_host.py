"""A node of values, a runner in memory and a small app, on which the dialogs are tried out."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.widgets import Static

from mpstui.config import load_themes
from mpstui.core import condition
from mpstui.core.model import (
    Client,
    Context,
    Daemon,
    Device,
    Event,
    OldLimit,
    ProcessKey,
    Server,
    SessionHolder,
    Snapshot,
)
from mpstui.core.trust import Speaker
from mpstui.operations.registry import ON_OVERVIEW, preview
from mpstui.operations.types import ExitStatus, Request, Result
from mpstui.ui.dialogs.base import Dialog
from mpstui.ui.theme import build_themes, variable_defaults

NOW = 1_700_000_000.0
PIPE = Path("/tmp/mps_0")
UUIDS = ("GPU-c6233a33-3507-69ef-fed3-0090a2cbc745", "GPU-11112222-3333-4444-5555-666677778888")
HOSTILE = "[/bad] [bold red]x[/] \x1b[31mred\x1b[0m\nforged 1402 \u202eevil"
USERS = ("alice", "bob", "carol", "dave")


def client(pid: int, **changes) -> Client:
    """One client on device 0, or as ``changes`` have it."""
    base = Client(
        key=ProcessKey(pid, pid * 100),
        server_pid=1402,
        id=pid - 4000,
        start_time=NOW - 60 * (pid - 4000) - 5,
        uid=1000 + pid % 4,
        user=USERS[pid % 4],
        command=f"python train.py --config configs/run-{pid % 7}.yaml",
        pid_namespace=4026531836,
        contexts=(Context(1, UUIDS[0]),),
        gpu_memory={UUIDS[0]: (pid % 5 + 1) * 512 << 20},
        cpu_percent=97.0,
        active_thread_percentage=25.0,
        sm_count=32,
        pinned_mem_limits={"0": 2 << 30},
        client_priority=0,
        limit_source={"active_thread_percentage": "server", "pinned_mem_limits": "default"},
    )
    return dataclasses.replace(base, **changes)


def node(clients: tuple[Client, ...] | None = None, **changes) -> Snapshot:
    """A daemon with one server, two devices and, unless said, three clients."""
    clients = (
        (client(4011), client(4012), client(4013, old_limits=(OldLimit("active_thread_percentage", 100.0, 50.0),)))
        if clients is None
        else clients
    )
    server = Server(ProcessKey(1402, 9000), 0, "root", "ACTIVE", NOW - 7200, 25.0, {"0": 2 << 30}, clients)
    daemon = Daemon(
        PIPE,
        Path("/var/log/nvidia-mps"),
        ProcessKey(1300, 8000),
        None,
        "root",
        NOW - 90000,
        "legacy",
        "13000",
        False,
        condition.ok(),
        default_active_thread_percentage=100.0,
        default_client_priority=0,
        ordinals={"0": UUIDS[0], "1": UUIDS[1]},
        servers=(server,),
        watch="logs",
        speaker=Speaker(0, "root's daemon"),
    )
    devices = tuple(
        Device(
            uuid, index, "NVIDIA H100 80GB HBM3", 132, (9, 0), 80 << 30, 24 << 30, "Default", False, 3, 48, 87.0, 41.0
        )
        for index, uuid in enumerate(UUIDS)
    )
    events = (
        Event("client_connected", NOW - 65, PIPE, 1402, 4011, detail="client 4011 connected", raw="NEW CLIENT 4011"),
        Event("context_active", NOW - 64, PIPE, 1402, 4011, 1, (UUIDS[0],), "context 1 on GPU 0", "status ACTIVE"),
    )
    snapshot = Snapshot(NOW, "real", "gpu-07", "580.159.04", None, (daemon,), devices, (), events)
    return dataclasses.replace(snapshot, **changes)


def held(snapshot: Snapshot) -> Snapshot:
    """The same node while somebody keeps a control session open."""
    daemon = dataclasses.replace(
        snapshot.daemons[0],
        condition=dataclasses.replace(
            condition.held(SessionHolder(777, "bob", "pts/3"), "", None, condition.Moment()),
            detail="a control session is kept open by 777 (bob, pts/3)",
            remedy="ask bob to leave it, or end process 777",
        ),
    )
    return dataclasses.replace(snapshot, daemons=(daemon,))


def without_server(snapshot: Snapshot) -> Snapshot:
    """The same node after its server has ended."""
    return dataclasses.replace(snapshot, daemons=(dataclasses.replace(snapshot.daemons[0], servers=()),))


class FakeRunner:
    """Previews as the real one; ``execute`` waits until the test says how it ends."""

    actions = ON_OVERVIEW

    def __init__(self, read_only: bool = False) -> None:
        self.read_only = read_only
        self.requests: list[Request] = []
        self.asked: Snapshot | None = None
        """What was shown, by whoever has it carried out."""
        self.steps: tuple[str, ...] = ()
        self.ending: asyncio.Future[Result]

    def unavailable(self, action, snapshot, pipe_dir, clients):
        return "mpstui runs read-only" if self.read_only else None

    def preview(self, request, snapshot):
        return preview(request, snapshot)

    async def execute(self, request, snapshot, progress):
        self.ending = asyncio.get_running_loop().create_future()
        self.requests.append(request)
        self.asked = snapshot
        for step in self.steps:
            progress(step)
        return await self.ending

    def end(self, status: ExitStatus, message: str, details: tuple[str, ...] = (), remedy: str | None = None) -> None:
        self.ending.set_result(Result(self.requests[-1], status, message, details, remedy))


class Host(App[None]):
    """A screen with a dialog on it."""

    BINDINGS = [  # noqa: RUF012
        Binding("s", "sort", "Sort", id="sort"),
        Binding("slash", "filter", "Filter"),
        Binding("space", "pause", "Pause", tooltip="Stop the picture"),
        Binding("q", "quit", "Quit"),
        Binding("t", "act('terminate_client')", "Terminate", id="action.terminate_client"),
        Binding("y", "sort", "Never from a dialog", show=False),
    ]

    def __init__(self, dialog: Dialog | None = None, theme: str = "mpstui-dark") -> None:
        super().__init__()
        for made in build_themes(load_themes(Path("/nonexistent"))[0]):
            self.register_theme(made)
        self.theme = theme
        self.dialog = dialog
        self.copied: list[str] = []
        self.begun: list[str] = []

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return variable_defaults(self.current_theme)

    def compose(self) -> ComposeResult:
        yield Static("\n".join(f"{n:3} a row of the screen below " * 6 for n in range(60)))

    def on_mount(self) -> None:
        if self.dialog is not None:
            self.push_screen(self.dialog)

    def copy_to_clipboard(self, text: str) -> None:
        self.copied.append(text)

    def action_sort(self) -> None:
        self.begun.append("sort")

    def action_filter(self) -> None:
        self.begun.append("filter")

    def action_pause(self) -> None:
        self.begun.append("pause")

    def action_act(self, action_id: str) -> None:
        self.begun.append(action_id)
