"""A supervisor without processes, a backend that makes it, and the app with the panel open on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from textual.pilot import Pilot
from ui.screen import make_app, until
from ui.snapshots import GPU0, daemon, device, one_daemon, rich, server

from mpstui.api import Unavailable
from mpstui.core.model import ProcessKey, Snapshot
from mpstui.load.types import INFO, LoadSpec, PooledContext, WorkerReport
from mpstui.ui.app import MpsTuiApp
from mpstui.ui.load.dialogs import BesideDialog

NOW = 1000.0
SIZE = (160, 48)
FIGURES = {"fma": 57.2, "triad": 2723.0, "nbody": 1200.0, "small": 200_000.0, "illegal": 3.0, "memory": 2.0}
PRIVATE = Path("/tmp/mpstui-load-x/pipe")


class FakeSupervisor:
    """Workers run as soon as they are started, and follow each command at once unless ``lazy``."""

    trouble = ""

    def __init__(self, pipe_dir: Path | None, *, affinity: bool = True, sms: int = 132, lazy: bool = False) -> None:
        self.pipe_dir = pipe_dir
        self.affinity, self.sms, self.lazy = affinity, sms, lazy
        self.specs: list[tuple[LoadSpec, int]] = []
        self.calls: list[tuple] = []
        self._reports: dict[int, WorkerReport] = {}
        self._callbacks: list[Callable[[WorkerReport], None]] = []

    @property
    def workers(self) -> tuple[WorkerReport, ...]:
        return tuple(self._reports.values())

    def subscribe(self, callback):
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def say(self, number: int, **changes) -> None:
        """A report of a worker."""
        report = self._reports[number] = replace(self._reports[number], **changes)
        for callback in tuple(self._callbacks):
            callback(report)

    async def start(self, spec: LoadSpec, contexts: int = 48) -> tuple[int, ...]:
        self.specs.append((spec, contexts))
        numbers = []
        for index in range(spec.clients):
            number = len(self._reports) + 1
            shares = spec.sm_counts or (self.sms,)
            sms = shares[min(index, len(shares) - 1)]
            levels = tuple(sorted({*spec.pool, sms})) if spec.pool and self.affinity and spec.mps else (sms,)
            self._reports[number] = WorkerReport(
                number,
                spec.kernel,
                "running",
                NOW,
                key=ProcessKey(7000 + number, 500 + number),
                figure=FIGURES.get(spec.kernel, 0.0) * sms / 132,
                unit=INFO[spec.kernel].unit,
                sms=sms,
                levels=levels,
                affinity=self.affinity and spec.mps,
                pool=tuple(PooledContext(level, 0.105, (58 + 3 * level) << 20) for level in levels),
                device_uuid=spec.device_uuid or GPU0,
                device_sms=self.sms,
                mps=spec.mps,
            )
            numbers.append(number)
        return tuple(numbers)

    async def set_share(self, worker: int, sms: int) -> None:
        self.calls.append(("share", worker, sms))
        if not self.lazy:
            self.say(worker, sms=sms, switch_seconds=0.012, figure=57.2 * sms / 132)

    async def restart(self, worker: int, percentage: float | None = None, pool: tuple[int, ...] | None = None) -> None:
        self.calls.append(("restart", worker, percentage, *([max(pool)] if pool else [])))
        self.say(worker, state="restarting", notes=("restarted: a change of limits reaches new clients only",))

    def fault(self, worker: int) -> None:
        self.calls.append(("fault", worker))

    async def stop(self, workers: Iterable[int] | None = None) -> None:
        chosen = tuple(self._reports if workers is None else workers)
        self.calls.append(("stop", chosen if workers is not None else None))
        for number in chosen:
            if not self._reports[number].over:
                self.say(number, state="ended")


class FakeBackend:
    """Remembers its supervisors, the newest last, and whether the private daemon lives."""

    def __init__(self, *, simulated: bool = False, unavailable: str = "", **options) -> None:
        self.simulated = simulated
        self.unavailable = unavailable
        self.supervisors: list[FakeSupervisor] = []
        self.private: list[str] = []
        self._options = options

    def supervisor(self, pipe_dir: Path | None, asked: Snapshot) -> FakeSupervisor:
        self.supervisors.append(FakeSupervisor(pipe_dir, **self._options))
        return self.supervisors[-1]

    @asynccontextmanager
    async def private_daemon(self):
        if self.unavailable:
            raise Unavailable(self.unavailable, "free some disk")
        self.private.append("up")
        try:
            yield PRIVATE
        finally:
            self.private.append("down")


def load_app(backend: FakeBackend | None = None, snapshot: Snapshot | None = None, **options) -> MpsTuiApp:
    return make_app(one_daemon() if snapshot is None else snapshot, load=backend or FakeBackend(), **options)


async def opened(pilot: Pilot, *keys: str) -> FakeBackend:
    """Open the panel and press some keys on it, with a yes to running beside others; figures stand still."""
    await pilot.press("L")
    pilot.app.load.clock = lambda: NOW
    for key in keys:
        await pilot.press(key)
        if isinstance(pilot.app.screen, BesideDialog):
            await pilot.press("tab", "enter")
    await pilot.pause()
    return pilot.app.load.backend


async def running(pilot: Pilot, *keys: str) -> FakeSupervisor:
    """The panel with what the fields say, after ``keys``, running."""
    backend = await opened(pilot, *keys, "enter")
    await until(pilot, lambda: pilot.app.load.live and not pilot.app.load.starting)
    await pilot.pause()
    return backend.supervisors[-1]


FREE = rich(daemons=(daemon(servers=(server(active_thread_percentage=100.0),)),), devices=(device(0, 4), device(1, 0)))


def setup_of(app):
    return app.screen.fields.setup


def said(app) -> str:
    """The words of the box that explains, without its borders."""
    lines = ("".join(text for text, _ in line) for line in app.screen.about._lines)
    return " ".join(" ".join(lines).replace("│", " ").split())


DOWN = {field: ["down"] * n for n, field in enumerate(
    ("preset", "kernel", "clients", "device", "shares", "hold", "memory", "priority", "seconds", "way", "where")
)}  # fmt: skip
"""The keys from the first field to each one."""
