"""Comparisons that answer a question each: does MPS help, what does a share cost, what does a neighbour cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mpstui.core.text import format_change
from mpstui.load.measure import ExperimentError, Lab, Spread, running, times, windows
from mpstui.load.types import COMMAND, INFO, KernelName, LoadSpec, plural

PERCENTAGES: Final = (6, 12, 25, 37, 50, 62, 75, 87, 100)
NEIGHBOURS: Final[tuple[KernelName, ...]] = ("fma", "triad", "nbody", "small")
KNEE: Final = 0.95
"""The knee is the smallest share with this much of the best throughput."""
DIFFERENCE: Final = 0.02
"""Smaller ones are not worth a word."""
WORK_WINDOWS: Final = 3
"""One client alone works this many windows long in ``nbody``."""
_RAISED: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A table, the numbers behind it, and one sentence."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    data: tuple[dict[str, Any], ...]
    verdict: str
    notes: tuple[str, ...] = ()


async def nbody(lab: Lab, clients: Sequence[int] = (1, 2, 4)) -> Outcome:
    """A fixed amount of work a client, by 1, 2 and 4 clients at a time, with and without MPS."""
    lab.progress("one client alone, to choose the amount of work")
    async with running(lab, LoadSpec("nbody", mps=False)) as (supervisor, workers):
        rate = Spread.of((await windows(lab, supervisor, workers))[0]).median * INFO["nbody"].scale
    amount = rate * lab.seconds * WORK_WINDOWS
    spec = LoadSpec("nbody", amount=amount)
    return await _with_and_without(
        lab, "nbody", spec, clients, f"for {power(amount)} interactions: {INFO[spec.kernel].text}"
    )


async def command(lab: Lab, program: tuple[str, ...], clients: Sequence[int] = (1, 4)) -> Outcome:
    """The user's own program from start to end, by several clients at a time, with and without MPS."""
    spec = LoadSpec("command", command=program)
    return await _with_and_without(lab, COMMAND, spec, clients, f"of {program[0]}, start to end")


async def _with_and_without(lab: Lab, name: str, spec: LoadSpec, clients: Sequence[int], what: str) -> Outcome:
    taken: dict[tuple[int, bool], list[float]] = {(count, mps): [] for count in clients for mps in (False, True)}
    for mps in (False, True):
        # Files are read and caches filled by whoever comes first, and the first client of all starts the MPS server.
        lab.progress(f"warming up, MPS {_on(mps)}")
        await times(lab, _replace(spec, clients=min(clients), mps=mps))
    for repeat in range(lab.repeats):
        for count, mps in taken:
            lab.progress(f"repeat {repeat + 1} of {lab.repeats}: {plural(count)}, MPS {_on(mps)}")
            taken[count, mps] += await times(lab, _replace(spec, clients=count, mps=mps))
    rows, data = [], []
    spreads: dict[int, tuple[Spread, Spread]] = {}
    for count in clients:
        off, on = (Spread.of(taken[count, mps]).scaled(1000) for mps in (False, True))
        spreads[count] = off, on
        rows.append((str(count), off.text(), on.text(), format_change(_saved(off, on))))
        for mps, spread in ((False, off), (True, on)):
            values = [1000 * value for value in taken[count, mps]]
            data.append({"clients": count, "mps": mps, "milliseconds": values, "median": spread.median})
    columns = ("clients", "without MPS (ms)", "with MPS (ms)", "time saved")
    notes: tuple[str, ...] = (
        f"one run of {plural(min(clients))} without and one with MPS came first and are not counted",
    )
    if lab.repeats == 1:
        notes += ("one repeat has no spread but that among its clients: more --repeats tell chance from difference",)
    verdict = with_or_without(spreads)
    return Outcome(name, f"Time of each client {what}", columns, tuple(rows), tuple(data), verdict, notes)


def with_or_without(spreads: Mapping[int, tuple[Spread, Spread]]) -> str:
    """One sentence on the times without and with MPS, by the number of clients.

    A difference counts where no time without MPS lies among those with it, and where it is 2 % at least.
    """
    apart = {count: _saved(off, on) for count, (off, on) in spreads.items() if not off.overlaps(on)}
    best, worst = max(apart, key=lambda n: apart[n], default=0), min(apart, key=lambda n: apart[n], default=0)
    helped = f"{_take(best)} {apart[best]:.0%} less time with it than without" if best else ""
    slowed = f"{_take(worst)} {-apart[worst]:.0%} more time with it" if worst else ""
    if not apart:
        return "MPS makes no difference beyond the spread of the repeats."
    if apart[best] >= DIFFERENCE and apart[worst] <= -DIFFERENCE:
        return f"It depends: {helped}, but {slowed}."
    if apart[best] >= DIFFERENCE:
        return f"MPS helps: {helped}."
    if apart[worst] <= -DIFFERENCE:
        return f"MPS does not help here: {slowed}."
    return f"MPS makes no difference here: less than {DIFFERENCE:.0%} either way."


def power(value: float) -> str:
    """``2.81×10¹²``."""
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa}×10{str(int(exponent)).translate(_RAISED)}"


def _saved(off: Spread, on: Spread) -> float:
    return 1 - on.median / off.median


def _take(count: int) -> str:
    return f"{plural(count)} {'takes' if count == 1 else 'take'}"


def _on(mps: bool) -> str:
    return "on" if mps else "off"


async def sweep(
    lab: Lab, kernels: Sequence[KernelName] = ("fma", "triad"), percentages: Sequence[float] = PERCENTAGES
) -> Outcome:
    """One client's throughput over its thread percentage."""
    figures: dict[tuple[KernelName, float], Spread] = {}
    sms: dict[float, int | None] = {}
    for kernel in kernels:
        for percentage in percentages:
            lab.progress(f"{kernel} at {percentage:g} %")
            async with running(lab, LoadSpec(kernel, percentages=(percentage,))) as (supervisor, workers):
                figures[kernel, percentage] = Spread.of((await windows(lab, supervisor, workers))[0])
                sms[percentage] = supervisor.report(workers[0]).sms
    best = {kernel: max(figures[kernel, p].median for p in percentages) for kernel in kernels}
    knees = {k: min(p for p in percentages if figures[k, p].median >= KNEE * best[k]) for k in kernels}
    rows = []
    for percentage in percentages:
        cells = [f"{percentage:g} %", str(sms[percentage] or "—")]
        for kernel in kernels:
            spread = figures[kernel, percentage]
            mark = "  ← knee" if knees[kernel] == percentage else ""
            cells += [spread.text(",.1f"), f"{spread.median / best[kernel]:.0%}{mark}"]
        rows.append(tuple(cells))
    data = tuple(
        {
            "kernel": kernel,
            "active_thread_percentage": percentage,
            "sms": sms[percentage],
            "unit": INFO[kernel].unit,
            "median": spread.median,
            "low": spread.low,
            "high": spread.high,
            "knee": knees[kernel] == percentage,
        }
        for (kernel, percentage), spread in figures.items()
    )
    heads = [text for kernel in kernels for text in (f"{kernel} ({INFO[kernel].unit})", "of its best")]
    said = ", ".join(f"{kernel} at {knees[kernel]:g} %" for kernel in kernels)
    return Outcome(
        "sweep",
        "One client's throughput over its active thread percentage",
        ("threads", "SMs", *heads),
        tuple(rows),
        data,
        f"{KNEE:.0%} of the best throughput is reached by {said}.",
    )


async def interference(lab: Lab, kernels: Sequence[KernelName] = NEIGHBOURS) -> Outcome:
    """What each kernel keeps of its throughput beside each other one, without limits."""
    alone: dict[KernelName, Spread] = {}
    beside: dict[tuple[KernelName, KernelName], Spread] = {}
    for kernel in kernels:
        lab.progress(f"{kernel} alone")
        async with running(lab, LoadSpec(kernel)) as (supervisor, workers):
            alone[kernel] = Spread.of((await windows(lab, supervisor, workers))[0])
    for i, first in enumerate(kernels):
        for second in kernels[i:]:
            lab.progress(f"{first} beside {second}")
            async with running(lab, LoadSpec(first), LoadSpec(second)) as (supervisor, workers):
                seen = await windows(lab, supervisor, workers)
            for (me, other), values in zip(((first, second), (second, first)), seen, strict=True):
                if (me, other) not in beside:
                    beside[me, other] = Spread.of(value / alone[me].median for value in values)
    rows = tuple(
        (me, f"{alone[me].text(',.1f')} {INFO[me].unit}", *(beside[me, other].text(".0%") for other in kernels))
        for me in kernels
    )
    data = tuple(
        {"kernel": me, "beside": other, "kept": s.median, "low": s.low, "high": s.high, "alone": alone[me].median}
        for (me, other), s in beside.items()
    )
    worst = min(beside, key=lambda pair: beside[pair].median)
    best = max(beside, key=lambda pair: beside[pair].median)
    verdict = (
        f"The dearest neighbour: {worst[0]} beside {worst[1]} keeps {beside[worst].median:.0%} of what it does alone; "
        f"the cheapest: {best[0]} beside {best[1]} keeps {beside[best].median:.0%}."
    )
    if beside[worst].overlaps(beside[best]):
        verdict = "No neighbour costs more than another beyond the spread of the windows."
    columns = ("kernel", "alone", *(f"beside {kernel}" for kernel in kernels))
    return Outcome("interference", "What is left of a kernel's throughput beside another", columns, rows, data, verdict)


def _replace(spec: LoadSpec, *, clients: int, mps: bool) -> LoadSpec:
    if clients < 1:
        raise ExperimentError("a group has at least one client")
    return LoadSpec(spec.kernel, spec.command, clients, amount=spec.amount, mps=mps)
