"""Nodes in trouble, the recorded containment case among them, and a backend that lives in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from mpstui.api import Unavailable
from mpstui.core.model import (
    Client,
    Context,
    Daemon,
    Event,
    LogEvents,
    LostClient,
    OutsideClient,
    PendingClient,
    Problem,
    ProcessKey,
    ServerFault,
    Snapshot,
)
from mpstui.doctor.types import Finding
from mpstui.doctor.why import Diagnosis
from mpstui.ui.app import MpsTuiApp
from tests.ui.screen import make_app
from tests.ui.snapshots import NOW, PIPE, daemon, device, rich, server

GPUS = tuple(f"GPU-{number}{number}{number}" for number in range(4))
A, B, C, D = (ProcessKey(3000 + n, 50 + n) for n in range(4))
_JOBS = ("python train.py", "vllm serve llama", "gmx mdrun -nb gpu", "python -m ipykernel")


def member(key: ProcessKey, *devices: int, **changes: object) -> Client:
    number = key.pid - 3000
    values = Client(
        key=key,
        server_pid=1402,
        start_time=NOW - 100,
        uid=2001 + number % 4,
        user=("alice", "bob", "carol", "dave")[number % 4],
        command=_JOBS[number % 4],
        contexts=tuple(Context(n, GPUS[n]) for n in devices),
        gpu_memory={GPUS[n]: 1 << 30 for n in devices},
    )
    return replace(values, **changes)


def containment(**changes: object) -> Snapshot:
    """The recorded case (fact 18): A on GPU 0, B on 0 and 1, C on 1, D on 2."""
    clients = (member(A, 0), member(B, 0, 1), member(C, 1), member(D, 2))
    return node(clients, **changes)


def node(clients: Sequence[Client] = (), *, server_changes: dict | None = None, **changes: object) -> Snapshot:
    """``changes`` of the snapshot; ``pending`` and ``lost`` of the daemon."""
    own = {name: changes.pop(name) for name in ("pending", "lost", "condition") if name in changes}
    one = daemon(
        servers=(server(clients=tuple(clients), **(server_changes or {})),),
        ordinals={str(n): uuid for n, uuid in enumerate(GPUS)},
        **own,
    )
    devices = tuple(replace(device(0, 1), uuid=uuid, index=n) for n, uuid in enumerate(GPUS))
    return rich(daemons=(one,), devices=devices, **{"events": (), **changes})


def event(seconds: float, kind: str, detail: str = "", **values: object) -> Event:
    """``seconds`` ago."""
    raw = f"[{kind}] {detail} {seconds}"
    return Event(kind=kind, time=NOW - seconds, pipe_dir=PIPE, server_pid=1402, detail=detail, raw=raw, **values)  # type: ignore[arg-type]


FATAL = event(
    12,
    "fatal_fault",
    "fatal GPU fault on server devices 0, 1; clients 3000, 3001, 3002 lost; no proof: server.log names client 3000",
    devices=("0", "1"),
    values={"named": "3000", "clients": "3000 3001 3002"},
)


def faulted(*left: ProcessKey, **changes: object) -> Snapshot:
    """A, B and C were hit; those in ``left`` live."""
    hit = {A.pid: (0,), B.pid: (0, 1), C.pid: (1,)}
    clients = [*(member(key, *hit[key.pid]) for key in left), member(D, 2)]
    fault = ServerFault(NOW - 12, (3000,), tuple(left), refused=2, devices=("0", "1"))
    fault = replace(fault, **changes)
    return node(clients, server_changes={"status": "FAULT", "fault": fault}, events=(FATAL,))


def recovered() -> Snapshot:
    over = event(1, "server_recovered", "server 1402 takes new clients again")
    return node((member(D, 2),), events=(FATAL, over))


def waiting() -> Snapshot:
    """Every kind of process that does not get what it should."""
    pending = PendingClient(ProcessKey(4100, 9), 2002, "bob", "vllm serve", NOW - 75, 1402, (3000, 3002))
    starting = PendingClient(ProcessKey(4101, 9), 2009, None, None, None, None, ())
    lost = LostClient(ProcessKey(4200, 9), 1300, 2003, "carol", "gmx mdrun", NOW - 30)
    outside = OutsideClient(
        ProcessKey(4300, 9),
        (GPUS[3],),
        5 << 30,
        2004,
        "dave",
        "python notebook.py",
        NOW - 3600,
        "pipe_dir",
        "its CUDA_MPS_PIPE_DIRECTORY is /tmp/other[/bad]",
    )
    return node((member(A, 0), member(C, 1)), pending=(pending, starting), lost=(lost,), outside=(outside,))


def history() -> tuple[Event, ...]:
    return (
        event(90_000, "daemon_started", "control daemon started"),
        event(900, "client_connected", "client 3000 connected", pid=3000),
        event(800, "command", "get_server_list"),
        event(700, "limit_set", "server 1402: active thread percentage set to 25 %"),
        event(300, "client_refused", "client 3900 was refused: 48 clients is the most", pid=3900),
        event(200, "unknown", "something [/bad] new"),
        event(30, "client_connected", "client 3001 connected", pid=3001),
        FATAL,
    )


FINDINGS = (
    Finding("compute_mode", "warning", "GPU 0", "compute mode is Default", "Set EXCLUSIVE_PROCESS."),
    Finding("persistence", "unknown", "GPU 1", "persistence is not known"),
    Finding("driver", "ok", "driver", "580.159.04"),
    Finding("faults", "error", "server 1402", "a problem that the status has told", "end them"),
)
TOLD = Problem("error", "fault", "server 1402", "a problem that the status has told", "end them")


class FakeTrouble:
    """Gives what it was given, when ``gate`` is open."""

    def __init__(self, older: Sequence[Event] = (), findings: Sequence[Finding] = FINDINGS, broken: str = "") -> None:
        self.older, self.found, self.broken = older, findings, broken
        self.missing: tuple[str, ...] = ()
        self.asked: list[float] = []
        self.checks = 0
        self.answers: dict[int, Diagnosis] = {}
        self.gate = asyncio.Event()
        self.gate.set()

    async def why(self, pid: int, snapshot: Snapshot) -> Diagnosis | None:
        await self.gate.wait()
        if self.broken:
            raise Unavailable(self.broken)
        return self.answers.get(pid)

    async def older_events(self, daemon: Daemon, before: float, most: int) -> LogEvents:
        self.asked.append(before)
        await self.gate.wait()
        if self.broken:
            raise Unavailable(self.broken)
        return LogEvents(tuple(self.older), self.missing)

    async def faults(self, daemon: Daemon) -> LogEvents:
        await self.gate.wait()
        if self.broken:
            raise Unavailable(self.broken)
        return LogEvents(tuple(event for event in self.older if event.kind == "fatal_fault"), self.missing)

    async def findings(self, snapshot: Snapshot) -> Sequence[Finding]:
        self.checks += 1
        await self.gate.wait()
        if self.broken:
            raise Unavailable(self.broken)
        return self.found


def trouble_app(snapshot: Snapshot, backend: FakeTrouble | None = None, **options: object) -> MpsTuiApp:
    return make_app(snapshot, trouble=backend or FakeTrouble(), **options)


def said(app: MpsTuiApp) -> str:
    """What stands beside the list, not folded, one paragraph a line."""
    return "\n".join(paragraph.text for paragraph in app.screen.describe(app.screen.snapshot)[1])
