"""Measures what a plan is to be made from: loads at a handful of shares, and what two of them cost each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from mpstui.core.partition import rounding_from, smallest_percentage, sms_of
from mpstui.load.measure import ExperimentError, Lab, cut, running, times, windows
from mpstui.load.results import Cost, Measured, name_of
from mpstui.load.spread import Spread
from mpstui.load.types import COMMAND, INFO, LoadSpec, WorkerReport
from mpstui.plan.advice import Advice, MeasuredShare, advise, divide, first_guess
from mpstui.plan.types import PlanTarget

PERCENTAGES: Final = (6.0, 12.0, 25.0, 37.0, 50.0, 75.0, 100.0)
UNMEASURED: Final = (1.0, 18.0, 62.0, 87.0)
"""Measured too where it is not known how the device rounds: with them floor and step can be told."""
COMMAND_SECONDS: Final = 600.0
"""A program that has not ended by then is not one that can be measured from start to end."""


async def advise_on(lab: Lab, loads: Sequence[LoadSpec], target: PlanTarget, clients: int = 1) -> Measured:
    """Measure one load for ``clients`` like ones, or two loads for one client each. Raises ExperimentError."""
    advices: dict[LoadSpec, Advice] = {}
    for load in loads:
        if load not in advices:
            target, advices[load] = await _curve(lab, load, target)
    wanted = [advices[load].chosen.sms for load in loads] * (clients if len(loads) == 1 else 1)
    counts = divide(wanted, target)
    costs = await _costs(lab, loads, advices, counts, target) if len(loads) > 1 else ()
    return Measured(target, tuple(loads), tuple(advices[load] for load in loads), counts, costs)


async def _curve(lab: Lab, load: LoadSpec, target: PlanTarget) -> tuple[PlanTarget, Advice]:
    told = load.kernel != COMMAND  # a program does not tell how many SMs it sees
    percentages = sorted({*PERCENTAGES, *(UNMEASURED if told and not target.rounding.measured else ())})
    points: dict[int, MeasuredShare] = {}
    seen: dict[float, int] = {}

    async def take(percentage: float) -> None:
        planned = sms_of(percentage, target.sm_count, target.rounding)
        lab.progress(f"{name_of(load)} at {percentage:g} %, {planned} SMs")
        values, reports = await _together(lab, replace(load, percentages=(percentage,)))
        seen[percentage] = (reports[0].sms if told and reports else None) or planned
        points[seen[percentage]] = MeasuredShare(seen[percentage], percentage, tuple(values[0]))

    for percentage in percentages:
        if told or sms_of(percentage, target.sm_count, target.rounding) not in points:
            await take(percentage)
    if told and not target.rounding.measured and (rounding := rounding_from(seen, target.sm_count)):
        target = replace(target, rounding=rounding)
    if (guess := first_guess(list(points.values()), target)) is not None:
        await take(guess[1])
    return target, advise(list(points.values()))


async def _costs(
    lab: Lab, loads: Sequence[LoadSpec], advices: dict[LoadSpec, Advice], counts: Sequence[int], target: PlanTarget
) -> tuple[Cost, ...]:
    names = " beside ".join(map(name_of, loads))
    lab.progress(f"{names}, no limits")
    beside, _ = await _together(lab, *loads)
    lab.progress(f"{names}, {' and '.join(map(str, counts))} SMs")
    percentages = [smallest_percentage(count, target.sm_count, target.rounding) for count in counts]
    limited = [replace(load, percentages=(p,)) for load, p in zip(loads, percentages, strict=True)]
    shared, _ = await _together(lab, *limited)
    alone = [Spread.of(max(advices[load].points, key=lambda point: point.sms).values) for load in loads]
    return tuple(
        Cost(load, a, Spread.of(b), Spread.of(s)) for load, a, b, s in zip(loads, alone, beside, shared, strict=True)
    )


async def _together(lab: Lab, *loads: LoadSpec) -> tuple[list[list[float]], list[WorkerReport]]:
    """Throughput of each load beside the others, a value a repeat, and the reports of the workers of kernels.

    A program is run ``repeats`` times from start to end, one run after the other, and kernels work meanwhile.
    """
    programs = [load for load in loads if load.kernel == COMMAND]
    kernels = [load for load in loads if load.kernel != COMMAND]
    if len(programs) > 1:
        raise ExperimentError("two programs do not begin and end together", "measure one beside a kernel")
    if not kernels:
        return [await _runs(lab, programs[0])], []
    async with running(lab, *kernels) as (supervisor, workers):
        reports = [supervisor.report(worker) for worker in workers]
        if not programs:
            return await windows(lab, supervisor, workers), reports
        points: list[tuple[float, float]] = []

        def note(report: WorkerReport) -> None:
            if report.state == "running":
                points.append((report.time, report.done))

        unsubscribe = supervisor.subscribe(note)
        try:
            runs = await _runs(lab, programs[0])
        finally:
            unsubscribe()
        try:
            figures = cut(points, lab.repeats, INFO[kernels[0].kernel].scale)
        except ExperimentError:
            raise ExperimentError(
                "the program ends too soon to see what it costs its neighbour", "let one run take a second or more"
            ) from None
    return [runs if load.kernel == COMMAND else figures for load in loads], reports


async def _runs(lab: Lab, program: LoadSpec) -> list[float]:
    """Runs a minute, one after the other."""
    found = []
    for _ in range(lab.repeats):
        took = (await times(lab, replace(program, seconds=COMMAND_SECONDS)))[0]
        if took >= COMMAND_SECONDS:
            raise ExperimentError(
                f"the program had not ended after {COMMAND_SECONDS:.0f} s", "measure a run that ends: fewer steps"
            )
        found.append(60 / max(took, 1e-3))
    return found
