"""A collector and a runner that live in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mpstui.core.model import ProcessKey, Snapshot
from mpstui.operations.operation import Operation
from mpstui.operations.registry import ON_OVERVIEW
from mpstui.operations.rescue import targets
from mpstui.operations.types import Danger, ExitStatus, Preview, Request, Result


class FakeCollector:
    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self._snapshot = snapshot
        self._callbacks: list[Callable[[Snapshot], None]] = []
        self.started = self.stopped = False
        self.refreshes: list[Path | None] = []

    @property
    def snapshot(self) -> Snapshot | None:
        return self._snapshot

    def subscribe(self, callback: Callable[[Snapshot], None]) -> Callable[[], None]:
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def push(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        for callback in self._callbacks:
            callback(snapshot)

    async def start(self) -> None:
        self.started = True

    async def stop(self) -> None:
        self.stopped = True

    def look_at(self, pipe_dir: Path | None) -> None:
        pass

    def request_refresh(self, pipe_dir: Path | None = None) -> None:
        self.refreshes.append(pipe_dir)


class FakeRunner:
    actions = ON_OVERVIEW

    def __init__(self, *, read_only: bool = False) -> None:
        self.read_only = read_only

    def unavailable(
        self, action: Operation, snapshot: Snapshot, pipe_dir: Path, clients: Sequence[ProcessKey] = ()
    ) -> str | None:
        if self.read_only:
            return "mpstui runs read-only"
        if action.place != "overview":
            return action.unavailable(snapshot, pipe_dir, clients)
        daemon = snapshot.daemon(pipe_dir)
        if daemon is None or (daemon.health != "ok" and not action.finds_clients):
            return "the daemon does not answer"
        if action.finds_clients:
            return None if targets(action.id, daemon) else "nobody to end"
        return "choose a client first" if action.danger is Danger.HARM and not clients else None

    def preview(self, request: Request, snapshot: Snapshot) -> Preview:
        return Preview(request.action, error="mpstui runs read-only" if self.read_only else None)

    async def execute(self, request: Request, snapshot: Snapshot, progress: Callable[[str], None]) -> Result:
        return Result(request, ExitStatus.DONE, "done")
