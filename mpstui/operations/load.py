"""Load, started and ended: CUDA clients of our own beside those of others, and so a change like any other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mpstui.core.cells import count
from mpstui.core.model import ProcessKey, Snapshot
from mpstui.operations.operation import Executes, Operation, Work
from mpstui.operations.types import ExitStatus, Preview, Request, Result, Verb

# Imported by what runs a load: the table of operations costs every command as little as it can.
if TYPE_CHECKING:
    from mpstui.load.types import LoadSpec, WorkerReport


@dataclass(frozen=True, slots=True)
class Start:
    """What is to be started, and what starts it: answers the workers' numbers."""

    spec: LoadSpec
    begin: Callable[[], Awaitable[tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class End:
    """What ends the workers, and how many there are."""

    workers: int
    end: Callable[[], Awaitable[None]]


class _Load(Operation):
    place = "load"
    in_turn = False
    """No command is sent for it."""

    def unavailable(self, snapshot: Snapshot, pipe_dir: Path, clients: Sequence[ProcessKey]) -> str | None:
        return None


class StartLoad(_Load):
    """Test kernels, or a program, as clients: ``Request.subject`` is a Start."""

    id = "start_load"
    subject = "a Start"
    title = "Start load"
    key = ""
    help = "Run test kernels, or a program, as clients"
    verb = Verb(("load",), "run CUDA test kernels, or a program, as clients", example="mpstui load fma --clients 4")

    def request(self, start: Start) -> Request:
        """On the daemon of the spec, or without MPS."""
        return Request(self.id, start.spec.pipe_dir or Path(), subject=start)

    def preview(self, request: Request, snapshot: Snapshot) -> Preview:
        if not isinstance(request.subject, Start):
            return Preview(self.title, error="say which load", error_status=ExitStatus.USAGE)
        spec = request.subject.spec
        return Preview(self.title, (("starts", f"{count(spec.clients, 'client')}: {spec.kernel}"),))

    def line(self, request: Request) -> Mapping[str, object]:
        if not isinstance(request.subject, Start):
            return {}
        spec = request.subject.spec
        return {"kernel": spec.kernel, "workers": spec.clients, "device": spec.device_uuid, "mps": spec.mps}

    async def run(self, work: Work) -> Result:
        """``Result.outcome`` are the workers' numbers. How each of them fares is told by its reports."""
        start = work.request.subject
        if not isinstance(start, Start):
            raise AssertionError("checked by the preview")
        numbers = await start.begin()
        return Result(work.request, ExitStatus.DONE, f"{count(len(numbers), 'client')} started", outcome=numbers)


class StopLoad(_Load):
    """The load's own clients ended gracefully: ``Request.subject`` is an End."""

    id = "stop_load"
    subject = "an End"
    title = "Stop load"
    key = "X"
    key_id = "load.stop_all"
    help = "Stop all clients"
    verb = None

    def request(self, pipe_dir: Path | None, end: End) -> Request:
        """On the daemon in ``pipe_dir``, or without MPS."""
        return Request(self.id, pipe_dir or Path(), subject=end)

    def preview(self, request: Request, snapshot: Snapshot) -> Preview:
        if not isinstance(request.subject, End):
            return Preview(self.title, error="say which load", error_status=ExitStatus.USAGE)
        return Preview(self.title, (("ends", count(request.subject.workers, "client")),))

    async def run(self, work: Work) -> Result:
        end = work.request.subject
        if not isinstance(end, End):
            raise AssertionError("checked by the preview")
        await end.end()
        return Result(work.request, ExitStatus.DONE, f"{count(end.workers, 'client')} ended")


class NotStarted(Exception):
    """Why no load was started, and the exit status that says so."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.message)
        self.status = result.status


class Workers(Protocol):
    """What starts and ends workers and keeps their reports; see ``mpstui.load.supervisor``."""

    @property
    def workers(self) -> tuple[WorkerReport, ...]: ...

    def subscribe(self, callback: Callable[[WorkerReport], None], /) -> Callable[[], None]: ...

    async def start(self, spec: LoadSpec, contexts_in_use: int = 0) -> tuple[int, ...]: ...

    async def set_share(self, worker: int, sms: int) -> None: ...

    async def restart(
        self, worker: int, percentage: float | None = None, pool: tuple[int, ...] | None = None
    ) -> None: ...

    def fault(self, worker: int) -> None: ...

    async def stop(self, workers: Iterable[int] | None = None) -> None: ...

    async def wait(self, workers: Iterable[int] | None = None) -> None: ...


class OperatedLoad:
    """A supervisor whose load is started and ended by operations, through the runner."""

    trouble = ""
    """What went ahead all the same: that the audit line could not be written."""

    def __init__(self, supervisor: Workers, runner: Executes, pipe_dir: Path | None) -> None:
        self._supervisor = supervisor
        self._runner = runner
        self._pipe_dir = pipe_dir
        self.subscribe = supervisor.subscribe
        self.set_share = supervisor.set_share
        self.restart = supervisor.restart
        self.fault = supervisor.fault
        self.wait = supervisor.wait

    @property
    def workers(self) -> tuple[WorkerReport, ...]:
        return self._supervisor.workers

    async def start(self, spec: LoadSpec, contexts_in_use: int = 0) -> tuple[int, ...]:
        """The workers' numbers. Raises NotStarted where it is refused."""
        start = Start(spec, lambda: self._supervisor.start(spec, contexts_in_use))
        result = await self._runner.execute(StartLoad().request(start), Snapshot(0.0))
        if not isinstance(result.outcome, tuple):
            raise NotStarted(result)
        self.trouble = "; ".join(result.details)
        return result.outcome

    async def stop(self, workers: Iterable[int] | None = None) -> None:
        """What mpstui has started it also ends, whatever comes of the audit lines; nothing where nothing lives."""
        chosen = None if workers is None else tuple(workers)
        live = [w for w in self.workers if not w.over and (chosen is None or w.worker in chosen)]
        if live:
            end = End(len(live), lambda: self._supervisor.stop(chosen))
            await self._runner.execute(StopLoad().request(self._pipe_dir, end), Snapshot(0.0))
        await self._supervisor.stop(chosen)
