"""Measures loads: windows of steady throughput, times of a fixed amount of work, and their spread."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from mpstui.core.late import dataclass
from mpstui.load.supervisor import Supervisor
from mpstui.load.types import INFO, LoadSpec, WorkerReport
from mpstui.load.utilisation import Meter

SETTLE_SECONDS = 0.5
"""Left out at the start: clocks rise and caches fill."""


PATIENCE = 5.0
"""How many times as long the windows may become."""
LATER_SECONDS = 0.1


class ExperimentError(Exception):
    """It cannot go on; the message says why, ``remedy`` what to do."""

    def __init__(self, text: str, remedy: str = "") -> None:
        super().__init__(text)
        self.remedy = remedy


class Pace:
    """How far an experiment has come, and how long the rest will take if it goes on like this."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun = clock()
        self.total = 0
        self.done = 0

    def begin(self, total: int) -> None:
        """So many steps are to come."""
        self.total += total

    def step(self, text: str) -> str:
        """One more begins: ``3 of 14, about 40 s left: …``."""
        if not self.done:
            self._begun = self._clock()
        self.done += 1
        if not self.total:
            return text
        over = self.done - 1
        left = "" if not over else f", {_about((self._clock() - self._begun) / over * (self.total - over))} left"
        return f"{self.done} of {max(self.total, self.done)}{left}: {text}"


def _about(seconds: float) -> str:
    """``about 40 s``, ``about 3 min``."""
    seconds = max(1.0, seconds)
    return f"about {seconds:.0f} s" if seconds < 90 else f"about {seconds / 60:.0f} min"


@dataclass(frozen=True, slots=True)
class Lab:
    """Where an experiment runs and how long."""

    make_supervisor: Callable[[], Supervisor]
    pipe_dir: Path
    progress: Callable[[str], None]
    device_uuid: str | None = None
    repeats: int = 3
    seconds: float = 1.0
    """Of one window."""
    meter: Meter = field(default_factory=Meter)
    """Reads the device in the meantime."""
    pace: Pace = field(default_factory=Pace)

    def begin(self, steps: int) -> None:
        """So many steps are to come."""
        self.pace.begin(steps)

    def step(self, text: str) -> None:
        """Say what is done now, and how long the rest will take."""
        self.progress(self.pace.step(text))

    def spec(self, spec: LoadSpec) -> LoadSpec:
        """The spec in this lab's place."""
        return replace(spec, pipe_dir=self.pipe_dir if spec.mps else None, device_uuid=self.device_uuid)


@contextlib.asynccontextmanager
async def running(lab: Lab, *specs: LoadSpec) -> AsyncIterator[tuple[Supervisor, list[int]]]:
    """These loads, all of them at work; ended with the block. Raises ExperimentError where one does not get there."""
    supervisor = lab.make_supervisor()
    try:
        workers: list[int] = []
        for spec in specs:
            workers += await supervisor.start(lab.spec(spec))
        await reached(supervisor, workers, lambda reports: all(report.state == "running" for report in reports))
        yield supervisor, workers
    finally:
        await supervisor.stop()


async def reached(
    supervisor: Supervisor, workers: Sequence[int], holds: Callable[[Sequence[WorkerReport]], bool]
) -> list[WorkerReport]:
    """Wait until that holds of these workers' reports, which it returns. Raises ExperimentError where one fails."""
    changed = asyncio.Event()
    unsubscribe = supervisor.subscribe(lambda _: changed.set())
    try:
        while True:
            changed.clear()
            reports = [supervisor.report(worker) for worker in workers]
            raise_failed(reports)
            if holds(reports):
                return reports
            await changed.wait()
    finally:
        unsubscribe()


def raise_failed(reports: Iterable[WorkerReport]) -> None:
    """Raises ExperimentError with the words of the first worker that failed."""
    for report in reports:
        if report.error is not None:
            raise ExperimentError(report.error.text, report.error.remedy)


async def windows(lab: Lab, supervisor: Supervisor, workers: Sequence[int], label: str = "") -> list[list[float]]:
    """Each worker's throughput, in its unit, in ``repeats`` windows after one another. ``label``: what the device's
    readings of that time are called."""
    points: dict[int, list[tuple[float, float]]] = {worker: [] for worker in workers}

    def note(report: WorkerReport) -> None:
        if report.worker in points and report.state == "running":
            points[report.worker].append((report.time, report.done))

    await asyncio.sleep(SETTLE_SECONDS)
    unsubscribe = supervisor.subscribe(note)
    try:
        async with lab.meter.during(label, parts=lab.repeats):
            length = lab.seconds * lab.repeats + 0.3
            await asyncio.sleep(length)
            # Many processes on few cores report late: the windows last longer then.
            end = time.monotonic() + PATIENCE * length
            while _too_few(points, lab.repeats) and time.monotonic() < end and not _any_over(supervisor, workers):  # noqa: ASYNC110 - until several have come
                await asyncio.sleep(LATER_SECONDS)
    finally:
        unsubscribe()
    raise_failed(supervisor.report(worker) for worker in workers)
    return [cut(points[w], lab.repeats, INFO[supervisor.report(w).kernel].scale) for w in workers]


def _too_few(points: Mapping[int, Sequence[object]], count: int) -> bool:
    """Whether some worker has reported too seldom for so many windows."""
    return any(len(seen) < 2 * count for seen in points.values())


def _any_over(supervisor: Supervisor, workers: Iterable[int]) -> bool:
    return any(supervisor.report(worker).over for worker in workers)


def cut(points: Sequence[tuple[float, float]], count: int, scale: float) -> list[float]:
    """Throughput in ``count`` equal parts of what was seen (seconds, work done), each from report to report.

    Raises ExperimentError where there are too few.
    """
    if _too_few({0: points}, count):
        raise ExperimentError("a worker reported too seldom to be measured", "give the windows more --seconds")
    edges = [round(i * (len(points) - 1) / count) for i in range(count + 1)]
    figures = []
    for first, last in itertools.pairwise(edges):
        (t0, done0), (t1, done1) = points[first], points[last]
        figures.append((done1 - done0) / (t1 - t0) / scale)
    return figures


async def served(lab: Lab, *specs: LoadSpec, label: str = "") -> list[WorkerReport]:
    """The reports of clients that serve requests, after one window beside each other; ``figure`` is of that window."""
    one = replace(lab, repeats=1)
    async with running(one, *specs) as (supervisor, workers):
        figures = await windows(one, supervisor, workers, label)
        reports = [supervisor.report(worker) for worker in workers]
    if any(report.latency_p99 is None for report in reports):
        raise ExperimentError("a client has served no request", "give the windows more --seconds")
    return [replace(report, figure=values[0]) for report, values in zip(reports, figures, strict=True)]


async def rates(lab: Lab, spec: LoadSpec, label: str = "") -> list[float]:
    """What each program of the group said of its throughput: the middle of its values, without the first one where
    there are three, as its start is in that. Raises ExperimentError where one says nothing."""
    reports = await _ended(lab, spec, label)
    silent = [report for report in reports if not report.metrics]
    if wrong := next((report.no_metric for report in silent if report.no_metric), ""):
        raise ExperimentError(
            f"the metric matches, but its group is not a finite number: {wrong}",
            "make the group match only the number; if it already does, the program printed nan or inf",
        )
    if silent:
        raise ExperimentError(
            "the program has printed no line that the metric matches",
            "try the expression on its output: its first group has to be the number",
        )
    return [statistics.median(r.metrics[1:] if len(r.metrics) > 2 else r.metrics) for r in reports]


async def _ended(lab: Lab, spec: LoadSpec, label: str) -> list[WorkerReport]:
    """The last word of each client of the group, once all have ended by themselves. Raises ExperimentError."""
    supervisor, at_work = lab.make_supervisor(), asyncio.Event()
    supervisor.subscribe(lambda report: at_work.set() if report.metrics or report.state == "running" else None)
    try:
        workers = await supervisor.start(lab.spec(spec))
        async with lab.meter.during(label, at_work):
            await supervisor.wait(workers)
    finally:
        await supervisor.stop()
    reports = [supervisor.report(worker) for worker in workers]
    raise_failed(reports)
    return reports


async def times(lab: Lab, spec: LoadSpec, label: str = "") -> list[float]:
    """Seconds that each client of the group took for its amount of work, or its program. ``label``: what the device's
    readings meanwhile are called."""
    reports = await _ended(lab, spec, label)
    if spec.amount is None:
        return [report.running_seconds for report in reports]
    return [report.running_seconds * spec.amount / report.done for report in reports if report.done]
