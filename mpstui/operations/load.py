"""Load, started and ended: CUDA clients of our own beside those of others, and so a change like any other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mpstui.core.late import dataclass
from mpstui.core.model import CONTEXT_LIMIT, Client, Daemon, Device, ProcessKey, Snapshot
from mpstui.core.text import UNKNOWN, owner, path_text, plural, printable
from mpstui.core.trust import Speaker
from mpstui.load.footprint import Takes, whose
from mpstui.operations.operation import Executes, Operation, Work
from mpstui.operations.types import ExitStatus, Preview, Request, Result, Unable, Verb

# Imported by what runs a load: the table of operations costs every command as little as it can.
if TYPE_CHECKING:
    from mpstui.load.results import Experiment
    from mpstui.load.types import LoadSpec, WorkerReport


@dataclass(frozen=True, slots=True)
class Start:
    """What is to be started, and what starts it: answers the workers' numbers. It is given what tells why no worker may
    be begun now, or go on to its work: see ``Work.another``."""

    spec: LoadSpec
    begin: Callable[[Callable[[], str | None]], Awaitable[tuple[int, ...]]]


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


def harm(kernels: Iterable[str], *, mps: bool, private: bool, memory_limit: str | None) -> str | None:
    """Whom a load of these kernels endangers, where it does: to be started only by somebody who has said so."""
    found = set(kernels)
    if "illegal" in found and mps and not private:
        return "The illegal store takes down every client on the device, of all users."
    if "memory" in found and not mps:
        return (
            "Without MPS no limit reaches the filler: it takes all memory of the device, and other programs get none."
        )
    if "memory" in found and not memory_limit:
        return "Without a memory limit the filler takes all memory of the device, and other programs get none."
    return None


def beside(
    number: int, others: Sequence[Client], taken: Takes, devices: Sequence[Device], *, told: bool = False
) -> tuple[str, str, tuple[str, ...]]:
    """What is told before somebody says whether a load of ``number`` clients may run beside other users' work: beside
    whom, what it takes of ``devices``, and a line for each of ``others``; none: there are none, or, unless the daemon
    has ``told`` who is there, it does not tell of them."""
    whom = whose(others) if others else "" if told else "clients that the daemon does not list"
    in_use = [
        f"GPU {'?' if device.index is None else device.index}: {device.contexts} of {device.context_limit} contexts "
        "in use"
        if device.context_daemons < 2
        else f"GPU {'?' if device.index is None else device.index}: {plural(device.contexts, 'context')} of "
        f"{device.context_daemons} daemons in use"
        for device in devices
        if device.contexts is not None and device.context_limit is not None
    ]
    used = f" ({', '.join(in_use)})" if in_use else ""
    return (
        f"{plural(number, 'client')} of the load would run {f'beside {printable(whom, 400)} ' if whom else ''}on this "
        "daemon.",
        f"They take {taken.text}{used}, and SMs while they run.",
        tuple(
            f"{client.pid:<8}{printable(owner(client.user, client.uid))}  {printable(client.command or UNKNOWN, 200)}"
            for client in others
        ),
    )


def doubts(daemon: Daemon, euid: int, *, program: bool = False) -> tuple[str, ...]:
    """Why a load, of kernels or of a ``program``, wants a yes on this daemon, whoever works there: whose it is, or may
    be by the time that it connects."""
    return () if daemon.simulated else _doubts(daemon.speaker, daemon.pipe_dir, euid, program)


def doubts_there(pipe_dir: Path, euid: int, *, program: bool = False) -> tuple[str, ...]:
    """As :func:`doubts`, by the owners of what is in the directory now: the daemon is not asked. May block."""
    from mpstui.observe.discovery import find_speaker

    return _doubts(find_speaker(pipe_dir), pipe_dir, euid, program)


def _doubts(speaker: Speaker, pipe_dir: Path, euid: int, program: bool) -> tuple[str, ...]:
    found = list[str]()
    if speaker.uid not in {0, euid}:
        of = speaker.why if speaker.uid is not None else "a daemon whose user is not known"
        found.append(f"This is {of}: its user can read and change all that the load has on the GPU.")
    if program and speaker.stamp and not speaker.sticky:
        found.append(
            f"Other users can change {path_text(pipe_dir)}, so they can make the program connect to a daemon of"
            " their own. chmod 755 prevents this."
        )
    return tuple(found)


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
        hurts = harm((spec.kernel,), mps=spec.mps, private=spec.private, memory_limit=spec.memory_limit)
        if hurts is not None and not spec.endanger:
            return Preview(self.title, error=hurts, error_status=ExitStatus.REFUSED_BY_SAFETY_RULE)
        return Preview(self.title, (("starts", f"{plural(spec.clients, 'client')}: {spec.kernel}"),))

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
        numbers = await start.begin(work.another)
        return Result(work.request, ExitStatus.DONE, f"{plural(len(numbers), 'client')} started", outcome=numbers)


class StopLoad(_Load):
    """The load's own clients ended gracefully: ``Request.subject`` is an End."""

    id = "stop_load"
    subject = "an End"
    title = "Stop all clients"
    key = "X"
    key_id = "load.stop_all"
    help = "Stop the clients that this load has started, and no others"
    verb = None
    no_verb = (
        "a load belongs to the program that runs it: `mpstui load` ends its clients when its time is over, at Ctrl-C "
        "and at SIGTERM"
    )

    def request(self, pipe_dir: Path | None, end: End) -> Request:
        """On the daemon in ``pipe_dir``, or without MPS."""
        return Request(self.id, pipe_dir or Path(), subject=end)

    def preview(self, request: Request, snapshot: Snapshot) -> Preview:
        if not isinstance(request.subject, End):
            return Preview(self.title, error="say which load", error_status=ExitStatus.USAGE)
        return Preview(self.title, (("ends", plural(request.subject.workers, "client")),))

    async def run(self, work: Work) -> Result:
        end = work.request.subject
        if not isinstance(end, End):
            raise AssertionError("checked by the preview")
        await end.end()
        return Result(work.request, ExitStatus.DONE, f"{plural(end.workers, 'client')} ended")


@dataclass(frozen=True, slots=True)
class Again:
    """The number of a worker that is to be started again, and what does it."""

    worker: int
    begin: Callable[[], Awaitable[None]]


class RestartLoad(_Load):
    """One of the load's own clients ended and started anew, under today's limits: ``Request.subject`` is an Again."""

    id = "restart_load"
    subject = "an Again"
    title = "Restart client"
    key = "R"
    key_id = "load.restart"
    help = "Restart a client of the load under the present limits"
    verb = None
    no_verb = (
        "the clients of a load are children of the program that runs it, and no other program can start them again"
    )

    def request(self, pipe_dir: Path | None, again: Again) -> Request:
        """On the daemon in ``pipe_dir``, or without MPS."""
        return Request(self.id, pipe_dir or Path(), subject=again)

    def preview(self, request: Request, snapshot: Snapshot) -> Preview:
        if not isinstance(request.subject, Again):
            return Preview(self.title, error="say which client", error_status=ExitStatus.USAGE)
        return Preview(self.title, (("restarts", f"client {request.subject.worker}"),))

    def line(self, request: Request) -> Mapping[str, object]:
        return {"worker": request.subject.worker} if isinstance(request.subject, Again) else {}

    async def run(self, work: Work) -> Result:
        again = work.request.subject
        if not isinstance(again, Again):
            raise AssertionError("checked by the preview")
        await again.begin()
        return Result(work.request, ExitStatus.DONE, f"client {again.worker} was started again")


class RunExperiment(_Load):
    """A comparison, in a daemon of its own or in the one that runs: ``Request.subject`` is an Experiment."""

    id = "run_experiment"
    subject = "an Experiment"
    title = "Run experiment"
    key = ""
    help = "Run test kernels, or a program, in several ways and compare"
    verb = Verb(
        ("experiment",), "compare: does MPS help, and how much", example="mpstui experiment nbody --clients 1,2,4"
    )
    given_up = "given up; its clients and its daemon were ended"

    def request(self, experiment: Experiment) -> Request:
        """In the daemon that runs, or in one of its own."""
        return Request(self.id, experiment.shared or Path(), subject=experiment)

    def preview(self, request: Request, snapshot: Snapshot) -> Preview:
        from mpstui.load.results import Experiment

        if not isinstance(request.subject, Experiment):
            return Preview(self.title, error="say which experiment", error_status=ExitStatus.USAGE)
        if request.subject.name == "stop" and request.subject.shared is not None:
            why, status = "`stop` makes faults: never in a shared daemon", ExitStatus.REFUSED_BY_SAFETY_RULE
            return Preview(self.title, error=why, error_status=status)
        return Preview(self.title, (("experiment", request.subject.name),))

    def line(self, request: Request) -> Mapping[str, object]:
        from mpstui.load.results import Experiment

        asked = request.subject
        return {"experiment": asked.name, "device": asked.device_uuid} if isinstance(asked, Experiment) else {}

    async def run(self, work: Work) -> Result:
        """``Result.outcome`` is an Outcome, of an ``advice`` a Measured; ``work.progress`` is told of each step."""
        from mpstui.load.experiment_daemon import perform
        from mpstui.load.measure import ExperimentError
        from mpstui.load.private_daemon import REMEDY, PrivateDaemonError
        from mpstui.load.results import Experiment

        asked = work.request.subject
        if not isinstance(asked, Experiment):
            raise AssertionError("checked by the preview")
        try:
            outcome = await perform(asked, work.sources(), work.progress, work.another)
        except PrivateDaemonError as error:
            return Result(work.request, ExitStatus.NO_DAEMON, str(error), remedy=REMEDY)
        except ExperimentError as error:
            return Result(work.request, ExitStatus.REFUSED_BY_DAEMON, str(error), remedy=error.remedy)
        return Result(work.request, ExitStatus.DONE, f"the experiment {asked.name} was done", outcome=outcome)


class NotStarted(Unable):
    """Why no load was started."""


class Workers(Protocol):
    """What starts and ends workers and keeps their reports; see ``mpstui.load.supervisor``."""

    @property
    def workers(self) -> tuple[WorkerReport, ...]: ...

    def subscribe(self, callback: Callable[[WorkerReport], None], /) -> Callable[[], None]: ...

    async def start(self, spec: LoadSpec, contexts: int = CONTEXT_LIMIT) -> tuple[int, ...]: ...

    async def set_share(self, worker: int, sms: int) -> None: ...

    async def restart(
        self, worker: int, percentage: float | None = None, pool: tuple[int, ...] | None = None
    ) -> None: ...

    def fault(self, worker: int) -> None: ...

    async def stop(self, workers: Iterable[int] | None = None) -> None: ...

    async def wait(self, workers: Iterable[int] | None = None) -> None: ...


class Guarded(Workers, Protocol):
    """Workers that are begun, and let go on to their work, as long as nothing stands against it."""

    why_not: Callable[[], str | None] | None
    """Asked in a thread for a reason, before each worker under MPS is started and before it goes on."""


class OperatedLoad:
    """A supervisor whose load is started and ended by operations, through the runner."""

    trouble = ""
    """What went ahead all the same: that the audit line could not be written."""

    def __init__(
        self, supervisor: Guarded, runner: Executes, pipe_dir: Path | None, asked: Snapshot | None = None
    ) -> None:
        """``asked``: what was shown to whoever was asked for a yes."""
        self._asked = Snapshot(0.0) if asked is None else asked
        self._supervisor = supervisor
        self._runner = runner
        self._pipe_dir = pipe_dir
        self.subscribe = supervisor.subscribe
        self.set_share = supervisor.set_share
        self.fault = supervisor.fault
        self.wait = supervisor.wait

    @property
    def workers(self) -> tuple[WorkerReport, ...]:
        return self._supervisor.workers

    async def start(self, spec: LoadSpec, contexts: int = CONTEXT_LIMIT) -> tuple[int, ...]:
        """The workers' numbers. Raises NotStarted where it is refused."""

        async def begin(why_not: Callable[[], str | None]) -> tuple[int, ...]:
            self._supervisor.why_not = why_not
            return await self._supervisor.start(spec, contexts)

        result = await self._runner.execute(StartLoad().request(Start(spec, begin)), self._asked)
        if not isinstance(result.outcome, tuple):
            raise NotStarted(result.message, result.status)
        self.trouble = "; ".join(result.details)
        return result.outcome

    async def restart(self, worker: int, percentage: float | None = None, pool: tuple[int, ...] | None = None) -> None:
        """Raises NotStarted where it is refused."""
        again = Again(worker, lambda: self._supervisor.restart(worker, percentage, pool))
        result = await self._runner.execute(RestartLoad().request(self._pipe_dir, again), self._asked)
        if not result.done:
            raise NotStarted(result.message, result.status)

    async def stop(self, workers: Iterable[int] | None = None) -> None:
        """What mpstui has started it also ends, whatever comes of the audit lines; nothing where nothing lives."""
        chosen = None if workers is None else tuple(workers)
        live = [w for w in self.workers if not w.over and (chosen is None or w.worker in chosen)]
        if live:
            end = End(len(live), lambda: self._supervisor.stop(chosen))
            await self._runner.execute(StopLoad().request(self._pipe_dir, end), Snapshot(0.0))
        await self._supervisor.stop(chosen)
