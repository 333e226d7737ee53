"""Comparisons that answer a question each: does MPS help, what does a share cost, what does a neighbour cost."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shlex
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from mpstui.core.text import PRIORITIES, error_text, format_change, plural, printable
from mpstui.load.footprint import BODIES
from mpstui.load.measure import ExperimentError, Lab, rates, reached, running, served, times, windows
from mpstui.load.programs import lenet
from mpstui.load.results import ExperimentResult, Plot, PlotPoint, use_plot
from mpstui.load.spread import Spread, interval
from mpstui.load.supervisor import Supervisor
from mpstui.load.types import COMMAND, INFO, KernelName, LoadSpec, WorkerReport
from mpstui.load.utilisation import Use, apart, busier
from mpstui.load.utilisation import table as used
from mpstui.system.own import temporary_place

PERCENTAGES: Final = (6, 12, 25, 37, 50, 62, 75, 87, 100)
NEIGHBOURS: Final[tuple[KernelName, ...]] = ("fma", "triad", "nbody", "small")
NBODY_NOTES: Final = (
    "Without MPS processes take turns: what a kernel leaves idle stays idle, whatever GPU-Util says.",
    "With MPS kernels of several processes run side by side: the fewer threads a kernel has, the more they gain.",
)
COMMAND_NOTES: Final = (
    "The time includes the program's start and end; a --metric gives its throughput without them.",
    "MPS gains where the device waits for one program: in pauses between kernels, and beside kernels that do not fill "
    "it.",
)
KNEE: Final = 0.95
"""The knee is the smallest share with this much of the best throughput."""
SWEEP_NOTES: Final = (
    "A kernel bound by arithmetic is faster with each SM; one bound by memory has enough SMs at its knee.",
    f"Give the SMs beyond the knee to other clients: at its knee a kernel has {KNEE:.0%} of its best or more.",
)
INTERFERENCE_NOTES: Final = (
    "Without limits MPS is not fair: a client that always has blocks waiting takes each SM that becomes free.",
    "That depends on the kernels' shape: measure your own pair (mpstui plan --measure), and divide the SMs where one "
    "must not starve the other.",
)
UNSURE: Final = "no difference seen"
"""In place of a difference between repeats whose 95 % intervals overlap."""
DIFFERENCE: Final = 0.02
"""Smaller ones are not worth a word."""
WORK_WINDOWS: Final = 3
"""One client alone works this many windows long in ``nbody``."""
_RAISED: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


async def nbody(
    lab: Lab, clients: Sequence[int] = (1, 2, 4), bodies: int | None = None, divided: bool = False
) -> ExperimentResult:
    """A fixed amount of work a client, by 1, 2 and 4 clients at a time, with and without MPS; ``divided``: a fixed
    amount in all, each client with its part of it.

    ``bodies``: few of them leave most of a device idle, many fill it; None: 65,536.
    """
    lab.progress("one client alone, to choose the amount of work")
    async with running(lab, LoadSpec("nbody", mps=False, bodies=bodies)) as (supervisor, workers):
        rate = Spread.of((await windows(lab, supervisor, workers))[0]).median * INFO["nbody"].scale
    amount = rate * lab.seconds * WORK_WINDOWS
    spec = LoadSpec("nbody", amount=amount, bodies=bodies)
    part = "its part of " if divided else ""
    what = f"for {part}{power(amount)} interactions of {bodies or BODIES:,} bodies"
    found = await _with_and_without(lab, "nbody", spec, clients, what, divided)
    return replace(found, notes=(*NBODY_NOTES, *found.notes))


async def command(lab: Lab, program: tuple[str, ...], clients: Sequence[int] = (1, 4)) -> ExperimentResult:
    """The user's own program from start to end, by several clients at a time, with and without MPS."""
    spec = LoadSpec("command", command=program)
    found = await _with_and_without(lab, COMMAND, spec, clients, f"of {_shown(program)}, start to end")
    return replace(found, notes=(*COMMAND_NOTES, *found.notes))


async def metric(
    lab: Lab,
    program: tuple[str, ...],
    expression: str,
    clients: Sequence[int],
    percentages: Sequence[float] = (),
) -> ExperimentResult:
    """What the user's own program says of its throughput, by several clients at a time, without and with MPS, and with
    MPS at each of ``percentages``."""
    settings: list[tuple[str, bool, tuple[float, ...]]] = [("without MPS", False, ()), ("with MPS", True, ())]
    settings += [(f"with MPS, {share:g} % each", True, (share,)) for share in percentages]
    lab.begin(lab.repeats * len(clients) * len(settings))
    totals: dict[tuple[int, str], list[float]] = {}
    each: dict[tuple[int, str], list[float]] = {}
    for repeat in range(lab.repeats):
        for count in clients:
            for name, mps, shares in settings:
                label = f"{plural(count, 'client')} {name}"
                lab.step(f"repeat {repeat + 1} of {lab.repeats}: {label}")
                spec = LoadSpec("command", program, count, percentages=shares, mps=mps, metric=expression)
                found = await rates(lab, spec, label)
                totals.setdefault((count, name), []).append(sum(found))
                each.setdefault((count, name), []).extend(found)
    rows, data = _throughputs(totals, each)
    notes = (
        COMMAND_NOTES[1],
        "Where a program gives three values or more, the first is left out: it includes the start.",
    )
    title = f"What {_shown(program)} says of its throughput: {printable(expression, 80)}"
    plots = (_plot_of(totals, "total throughput, as the program gives it"),)
    verdict = metric_verdict(totals) + _used(lab, f"{plural(max(clients), 'client')} ", max(clients))
    return ExperimentResult(COMMAND, title, THROUGHPUT_COLUMNS, rows, data, verdict, notes, plots=plots)


def _shown(program: Sequence[str]) -> str:
    return printable(shlex.join(program), 80)


def _used(lab: Lab, label: str, most: int) -> str:
    """How much better the device was used with MPS, as a sentence to be added; nothing where it was not seen.
    ``label``: of the situation, before the setting."""
    used = busier(*(lab.meter.uses.get(f"{label}{name}") for name, _ in ALONE_SETTINGS))
    return f" With MPS {used} ({plural(most, 'client')})." if used else ""


THROUGHPUT_COLUMNS: Final = ("clients", "setting", "in all", "each", "gain")


def _throughputs(
    totals: Mapping[tuple[int, str], Sequence[float]], each: Mapping[tuple[int, str], Sequence[float]]
) -> tuple[tuple[tuple[str, ...], ...], tuple[dict[str, Any], ...]]:
    """Rows and data of so many clients in a setting, of which the first is what the others are held against."""
    rows, data = [], []
    for (count, name), values in totals.items():
        base = statistics.fmean(totals[count, "without MPS"])
        change = statistics.fmean(values) / base - 1 if base else 0.0
        base_values = totals[count, "without MPS"]
        said = "" if name == "without MPS" else format_change(change) if apart(base_values, values) else UNSURE
        spread, one = Spread.of(values), Spread.of(each[count, name])
        rows.append((str(count), name, spread.figure(), one.figure(), said))
        data.append(
            {"clients": count, "setting": name, "totals": list(values), "each": list(each[count, name]),
             "median": spread.median, "low": spread.low, "high": spread.high}
        )  # fmt: skip
    return tuple(rows), tuple(data)


def _plot_of(totals: Mapping[tuple[int, str], Sequence[float]], value: str) -> Plot:
    """Of so many clients in a setting."""
    return Plot(value, tuple(PlotPoint(plural(n, "client"), Spread.of(v), name) for (n, name), v in totals.items()))


BATCHES: Final = (64, 2048)
TURN_SECONDS: Final = 2.0
LEAD_SECONDS: Final = 0.1
"""From when a turn is told of until it begins, so that all begin together."""
ALONE_SETTINGS: Final = (("without MPS", False), ("with MPS", True))


@contextlib.contextmanager
def _torch_wanted() -> Iterator[None]:
    """What our own program says of a Python that it cannot use is followed by what to do about that."""
    try:
        yield
    except ExperimentError as error:
        if f"exit status {lenet.NO_TORCH}:" not in str(error):
            raise
        raise ExperimentError(str(error), "--python PATH: a Python whose PyTorch sees the GPU") from None


async def training(lab: Lab, python: str, clients: Sequence[int] = (1, 4)) -> ExperimentResult:
    """LeNet in PyTorch, with batches that leave most of a device idle and with some that do not.

    As many programs as there are clients at most are started without MPS and with it, once; then they train by turns.
    """
    if min(clients) < 1:
        raise ExperimentError("a group has at least one client")
    lab.begin(1 + lab.repeats * len(BATCHES) * len(clients) * len(ALONE_SETTINGS))
    totals: dict[int, dict[tuple[int, str], list[float]]] = {batch: {} for batch in BATCHES}
    each: dict[int, dict[tuple[int, str], list[float]]] = {batch: {} for batch in BATCHES}
    groups = [mps for _, mps in ALONE_SETTINGS for _ in range(max(clients))]
    try:
        place = tempfile.TemporaryDirectory(prefix="mpstui-training-", dir=temporary_place())
    except OSError as error:
        raise ExperimentError(f"no place for what the programs agree on: {error_text(error)}") from None
    with place as folder, _torch_wanted():
        file = Path(folder, "turns")
        _tell(file, "")
        specs = [_trainer(python, file, number % max(clients), mps) for number, mps in enumerate(groups)]
        lab.step(f"{plural(len(specs), 'program')} start, which takes longest")
        async with running(lab, *specs) as (supervisor, workers):
            await reached(supervisor, workers, lambda reports: all(_has_said(report, 1) for report in reports))
            for repeat in range(lab.repeats):
                for batch, count in itertools.product(BATCHES, clients):
                    for name, mps in ALONE_SETTINGS:
                        label = f"batch {batch:,}: {plural(count, 'client')} {name}"
                        lab.step(f"repeat {repeat + 1} of {lab.repeats}: {label}")
                        chosen = [worker for worker, group in zip(workers, groups, strict=True) if group == mps][:count]
                        # The memory is that of all programs, also of those that wait for their turn.
                        async with lab.meter.during(label, without=("memory_gib",)):
                            found = await _turn(supervisor, chosen, file, batch, mps)
                        totals[batch].setdefault((count, name), []).append(sum(found))
                        each[batch].setdefault((count, name), []).extend(found)
            _tell(file, "end")
            await supervisor.wait(workers)
    rows: list[tuple[str, ...]] = []
    data: list[dict[str, Any]] = []
    for batch in BATCHES:
        told = _throughputs(totals[batch], each[batch])
        rows += [(f"{batch:,}", *row) for row in told[0]]
        data += [{"batch": batch, **entry} for entry in told[1]]
    most = max(clients)
    told_of = {batch: _used(lab, f"batch {batch:,}: {plural(most, 'client')} ", most) for batch in BATCHES}
    said = " ".join(f"Batch {batch:,}: {metric_verdict(totals[batch])}{told_of[batch]}" for batch in BATCHES)
    notes = (
        "With small batches the GPU mostly waits for the programs: kernels seldom meet, and MPS gains little.",
        "With large batches kernels of several clients run at the same time, and one uses what another leaves idle.",
        "The programs are started once and train in turn; the others wait. No figure includes their start.",
    )
    title = "Images a second of LeNet, trained on random data of CIFAR-10's shape"
    plots = tuple(_plot_of(totals[batch], f"images/s in all, batches of {batch:,}") for batch in BATCHES)
    columns = ("batch", *THROUGHPUT_COLUMNS)
    return ExperimentResult("training", title, columns, tuple(rows), tuple(data), said, notes, plots=plots)


def _trainer(python: str, turns: Path, number: int, mps: bool) -> LoadSpec:
    """One program that waits for its turns."""
    command = (
        python, os.fspath(lenet.__file__), "--turns", os.fspath(turns), "--group", _on(mps), "--number", f"{number}",
        "--batches", ",".join(map(str, BATCHES)),
    )  # fmt: skip
    return LoadSpec("command", command, mps=mps, metric=r"^(?:warm after s|images/s): ([0-9.]+)$")


async def _turn(supervisor: Supervisor, workers: Sequence[int], turns: Path, batch: int, mps: bool) -> list[float]:
    """Images a second of each of these programs, all at work at the same time."""
    known = {worker: len(supervisor.report(worker).metrics) for worker in workers}
    _tell(turns, f"{time.monotonic() + LEAD_SECONDS} {TURN_SECONDS} {batch} {_on(mps)} {len(workers)}")
    reports = await reached(
        supervisor, workers, lambda reports: all(_has_said(report, known[report.worker] + 1) for report in reports)
    )
    return [report.metrics[-1] for report in reports]


def _has_said(report: WorkerReport, count: int) -> bool:
    """Whether a program has told so many figures. Raises ExperimentError where it will not any more."""
    if len(report.metrics) < count and report.over:
        raise ExperimentError("a program ended before its turn", "run it again; see mpstui events for what happened")
    return len(report.metrics) >= count


def _tell(file: Path, line: str) -> None:
    with file.open("a", encoding="ascii") as out:
        out.write(f"{line}\n")


def metric_verdict(totals: Mapping[tuple[int, str], Sequence[float]]) -> str:
    """One sentence: the best setting against ``without MPS``, of those whose 95 % intervals are apart from it."""
    gains: dict[tuple[int, str], float] = {}
    for (count, name), values in totals.items():
        base = totals[count, "without MPS"]
        if name != "without MPS" and apart(base, values) and statistics.fmean(base) > 0:
            gains[count, name] = statistics.fmean(values) / statistics.fmean(base) - 1
    best, worst = max(gains, key=gains.__getitem__, default=None), min(gains, key=gains.__getitem__, default=None)
    if best is not None and gains[best] >= DIFFERENCE:
        helped = f"{_do(best)} {gains[best]:.0%} more than without"
        # That a small share costs something is no word against MPS; that all of the device does is.
        slowed = min((each for each in gains if each[1] == "with MPS"), key=gains.__getitem__, default=best)
        if gains[slowed] <= -DIFFERENCE:
            return f"It depends: {helped}, but {_do(slowed)} {-gains[slowed]:.0%} less."
        return f"MPS helps: {helped}."
    if worst is not None and gains[worst] <= -DIFFERENCE:
        return f"MPS does not help here: {_do(worst)} {-gains[worst]:.0%} less than without."
    if gains:
        return f"MPS makes no difference here: less than {DIFFERENCE:.0%} either way."
    return "No difference seen: the 95 % intervals of the repeats overlap."


async def _with_and_without(
    lab: Lab, name: str, spec: LoadSpec, clients: Sequence[int], what: str, divided: bool = False
) -> ExperimentResult:
    taken: dict[tuple[int, bool], list[list[float]]] = {(count, mps): [] for count in clients for mps in (False, True)}
    lab.begin(2 + lab.repeats * len(taken))
    for mps in (False, True):
        # Files are read and caches filled by whoever comes first, and the first client of all starts the MPS server.
        lab.step(f"warming up, MPS {_on(mps)}")
        await times(lab, _replace(spec, clients=min(clients), mps=mps))
    for repeat in range(lab.repeats):
        for count, mps in taken:
            label = _situation(count, mps)
            lab.step(f"repeat {repeat + 1} of {lab.repeats}: {label}")
            asked = _replace(spec, clients=count, mps=mps)
            if divided and spec.amount is not None:
                asked = replace(asked, amount=spec.amount / count)
            taken[count, mps].append(await times(lab, asked, label))
    rows, data, points = [], [], []
    intervals: dict[int, tuple[Spread, Spread]] = {}
    for count in clients:
        off, on = (Spread.of(itertools.chain(*taken[count, mps])).scaled(1000) for mps in (False, True))
        without, with_ = ([statistics.fmean(group) for group in taken[count, mps]] for mps in (False, True))
        intervals[count] = interval(without), interval(with_)
        saved = UNSURE if intervals[count][0].overlaps(intervals[count][1]) else format_change(_saved(off, on))
        rows.append((str(count), off.text(), on.text(), saved))
        for mps, spread in ((False, off), (True, on)):
            values = [1000 * value for group in taken[count, mps] for value in group]
            data.append({"clients": count, "mps": mps, "milliseconds": values, "median": spread.median})
            points.append(PlotPoint(plural(count, "client"), spread, "with MPS" if mps else "without MPS"))
    columns = ("clients", "without MPS (ms)", "with MPS (ms)", "time saved")
    notes = (f"one run of {plural(min(clients), 'client')} without and one with MPS came first and are not counted",)
    verdict = with_or_without(intervals)
    if divided:
        verdict += f" {scaling(intervals)}"
    most = max(clients)
    used = busier(*(lab.meter.uses.get(_situation(most, mps)) for mps in (False, True)))
    verdict += f" With MPS {used} ({plural(most, 'client')})." if used else ""
    plots = (Plot("time of each client (ms)", tuple(points)),)
    return ExperimentResult(
        name, f"Time of each client {what}", columns, tuple(rows), tuple(data), verdict, notes, plots=plots
    )


def with_or_without(spreads: Mapping[int, tuple[Spread, Spread]]) -> str:
    """One sentence on the times without and with MPS, by the number of clients: the 95 % intervals of both.

    A difference counts where they do not overlap, and where it is 2 % at least.
    """
    apart = {count: _saved(off, on) for count, (off, on) in spreads.items() if not off.overlaps(on)}
    best, worst = max(apart, key=lambda n: apart[n], default=0), min(apart, key=lambda n: apart[n], default=0)
    helped = f"{_take(best)} {apart[best]:.0%} less time with it than without" if best else ""
    slowed = f"{_take(worst)} {-apart[worst]:.0%} more time with it" if worst else ""
    if not apart:
        return "No difference seen: the 95 % intervals of the repeats overlap."
    if apart[best] >= DIFFERENCE and apart[worst] <= -DIFFERENCE:
        return f"It depends: {helped}, but {slowed}."
    if apart[best] >= DIFFERENCE:
        return f"MPS helps: {helped}."
    if apart[worst] <= -DIFFERENCE:
        return f"MPS does not help here: {slowed}."
    return f"MPS makes no difference here: less than {DIFFERENCE:.0%} either way."


def scaling(spreads: Mapping[int, tuple[Spread, Spread]]) -> str:
    """One sentence on work that is divided: how much sooner the most clients have done what the fewest do, without and
    with MPS, where their 95 % intervals do not overlap."""
    few, most = min(spreads), max(spreads)
    if few == most:
        return "With one number of clients it cannot be seen how the work scales."
    said = []
    for one, other, how in zip(spreads[few], spreads[most], ("without MPS", "with it"), strict=True):
        ratio = UNSURE if one.overlaps(other) else f"×{one.median / other.median:.2f}"
        said.append(f"{ratio} {how}")
    return f"Speed-up from {few} to {plural(most, 'client')} that divide the work: {', '.join(said)}."


def power(value: float) -> str:
    """``2.81×10¹²``."""
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa}×10{str(int(exponent)).translate(_RAISED)}"


def _saved(off: Spread, on: Spread) -> float:
    return 1 - on.median / off.median


def _take(count: int) -> str:
    return f"{plural(count, 'client')} {'takes' if count == 1 else 'take'}"


def _do(setting: tuple[int, str]) -> str:
    """So many clients in a setting, and their verb."""
    return f"{plural(setting[0], 'client')} {setting[1]} {'does' if setting[0] == 1 else 'do'}"


def _situation(count: int, mps: bool) -> str:
    return f"{plural(count, 'client')}, MPS {_on(mps)}"


def _on(mps: bool) -> str:
    return "on" if mps else "off"


REQUESTS_KERNEL: Final = "fma"


async def oversubscribe(lab: Lab, clients: int = 4) -> ExperimentResult:
    """Clients that are at work half of the time: with shares that fit the device, and with twice as large ones."""
    shares = {f"{share:g} % each": share for share in (100 / clients, min(100.0, 200 / clients), 100.0)}
    lab.begin(lab.repeats * len(shares))
    seen: dict[str, list[Sequence[WorkerReport]]] = {name: [] for name in shares}
    for repeat in range(lab.repeats):
        for name, share in shares.items():
            lab.step(f"repeat {repeat + 1} of {lab.repeats}: {plural(clients, 'client')} at {name}")
            spec = LoadSpec(REQUESTS_KERNEL, clients=clients, percentages=(share,), busy=50.0)
            seen[name].append(await served(lab, spec, label=name))
    totals = {name: [sum(r.figure or 0.0 for r in reports) for reports in runs] for name, runs in seen.items()}
    waits = {name: [_worst(reports) for reports in runs] for name, runs in seen.items()}
    unit = INFO[REQUESTS_KERNEL].unit
    rows = tuple(
        (name, Spread.of(totals[name]).figure(), *(Spread.of(values).text(",.2f") for values in _latencies(runs)))
        for name, runs in seen.items()
    )
    data = tuple(
        {"setting": name, "totals": totals[name], "worst_p99_seconds": waits[name], "unit": unit,
         **_three(Spread.of(totals[name]))}
        for name in seen
    )  # fmt: skip
    fit, double = list(shares)[:2]
    said = f"No difference seen in total throughput between {fit} and {double}."
    if apart(totals[fit], totals[double]):
        gain = statistics.fmean(totals[double]) / statistics.fmean(totals[fit]) - 1
        said = f"With {double} total throughput is {abs(gain):.0%} {'higher' if gain > 0 else 'lower'} than with {fit}."
    if apart(waits[fit], waits[double]):
        slow = (1000 * statistics.fmean(waits[name]) for name in (fit, double))
        said += " p99 of the slowest is {1:,.1f} ms instead of {0:,.1f} ms.".format(*slow)
    else:
        said += " No difference seen in p99 of the slowest."
    notes = (
        "Clients that are idle half of the time leave their share unused; shares of 200 % in all lend it to others.",
        "A gain in throughput for one may cost another one p99, when all work at the same time.",
    )
    columns = ("threads", f"in all ({unit})", "p50 (ms)", "p99 (ms)")
    title = f"{plural(clients, 'client')} that are at work half of the time, by their shares"
    plots = [Plot(f"throughput in all ({unit})", tuple(PlotPoint(name, Spread.of(totals[name])) for name in seen))]
    for index, value in enumerate(("p50 of a request (ms)", "p99 of a request (ms)")):
        points = (PlotPoint(name, Spread.of(_latencies(runs)[index])) for name, runs in seen.items())
        plots.append(Plot(value, tuple(points)))
    return ExperimentResult("oversubscribe", title, columns, rows, data, said, notes, plots=tuple(plots))


STREAM_PRIORITY: Final = -3
"""As CUDA counts: a high one."""
URGENT: Final = f"one below normal, its stream {STREAM_PRIORITY}"


async def priority(lab: Lab) -> ExperimentResult:
    """Two clients with a request always under way: both of normal priority, one of them below normal, and that one with
    a stream of a high priority of its own."""
    settings: dict[str, tuple[tuple[int, int | None], ...]] = {
        "both normal": ((0, None), (0, None)),
        "one below normal": ((0, None), (1, None)),
        URGENT: ((0, None), (1, STREAM_PRIORITY)),
    }
    lab.begin(lab.repeats * len(settings))
    seen: dict[str, list[Sequence[WorkerReport]]] = {name: [] for name in settings}
    for repeat in range(lab.repeats):
        for name, priorities in settings.items():
            lab.step(f"repeat {repeat + 1} of {lab.repeats}: {name}")
            specs = [
                LoadSpec(REQUESTS_KERNEL, priority=each, stream_priority=stream, busy=100.0)
                for each, stream in priorities
            ]
            seen[name].append(await served(lab, *specs, label=name))
    rows, data = [], []
    points: dict[str, list[PlotPoint]] = {"p50 of a request (ms)": [], "p99 of a request (ms)": []}
    middles: dict[tuple[str, int], list[float]] = {}
    for name, priorities in settings.items():
        for index, (each, stream) in enumerate(priorities):
            mine = [(reports[index],) for reports in seen[name]]
            figure = Spread.of(reports[0].figure or 0.0 for reports in mine)
            middles[name, index] = [1000 * (reports[0].latency_p50 or 0.0) for reports in mine]
            waits = [Spread.of(values) for values in _latencies(mine)]
            latency = (spread.text(",.2f") for spread in waits)
            who = f"{index + 1}: {PRIORITIES[each]}"
            for told, spread in zip(points.values(), waits, strict=True):
                told.append(PlotPoint(name, spread, who))
            rows.append((name, who, figure.figure(), *latency))
            data.append(
                {"setting": name, "client": index + 1, "priority": each, "stream_priority": stream,
                 "p50_milliseconds": middles[name, index],
                 "p99_milliseconds": [1000 * (reports[0].latency_p99 or 0.0) for reports in mine], **_three(figure)}
            )  # fmt: skip
    first, second = middles["one below normal", 0], middles["one below normal", 1]
    verdict = "No difference seen between the two priorities: the 95 % intervals of their p50 overlap."
    if apart(first, second):
        low, high = statistics.fmean(first), statistics.fmean(second)
        who = f"The client {'below normal' if high > low else 'of normal'} priority waits longer"
        verdict = f"{who}: its p50 is {max(low, high):,.2f} ms, the other's {min(low, high):,.2f} ms."
    plain, urgent = second, middles[URGENT, 1]
    if apart(plain, urgent):
        verdict += f" With a stream of priority {STREAM_PRIORITY} the p50 of the client below normal is"
        verdict += f" {statistics.fmean(urgent):,.2f} ms"
        verdict += f" instead of {statistics.fmean(plain):,.2f} ms."
    else:
        verdict += f" No difference seen where the stream of the client below normal has priority {STREAM_PRIORITY}."
    notes = (
        "NVIDIA's guide: the client's priority comes first. A stream's priority only orders streams of one client.",
        "A priority says whose blocks are placed first where both wait for the same SMs; it reserves nothing.",
        "Where the SMs are divided (thread percentages), or a kernel is already running, it changes little.",
    )
    columns = ("setting", "client", f"each ({INFO[REQUESTS_KERNEL].unit})", "p50 (ms)", "p99 (ms)")
    title = "Two clients with a request always under way, by their priorities"
    plots = tuple(Plot(value, tuple(told)) for value, told in points.items())
    return ExperimentResult("priority", title, columns, tuple(rows), tuple(data), verdict, notes, plots=plots)


def _latencies(runs: Iterable[Iterable[WorkerReport]]) -> tuple[list[float], list[float]]:
    """p50 and p99 of all clients of all repeats, in milliseconds."""
    reports = [report for run in runs for report in run]
    return [1000 * (r.latency_p50 or 0.0) for r in reports], [1000 * (r.latency_p99 or 0.0) for r in reports]


def _worst(reports: Iterable[WorkerReport]) -> float:
    return max(report.latency_p99 or 0.0 for report in reports)


def _three(spread: Spread) -> dict[str, float]:
    return {"median": spread.median, "low": spread.low, "high": spread.high}


ONE_THREAD: Final = "one block of one thread"
EACH_SM: Final = "a block on each SM"
OTHERS: Final = 5.0
"""Percent of SM activity that one thread cannot have made: it is on one SM."""
UTIL_SETTLE: Final = 1.5
"""Seconds until GPU-Util, which NVML takes of the last second, tells of this kernel alone."""


async def gpu_util(lab: Lab) -> ExperimentResult:
    """What GPU-Util says of a kernel of one thread, and of one on all SMs; and what the other meters say."""
    specs = {ONE_THREAD: LoadSpec("endless", blocks=1), EACH_SM: LoadSpec("endless")}
    lab.begin(len(specs) * lab.repeats)
    for repeat in range(lab.repeats):
        for label, spec in specs.items():
            lab.step(f"repeat {repeat + 1} of {lab.repeats}: {label}")
            async with running(lab, spec):
                await asyncio.sleep(UTIL_SETTLE)
                async with lab.meter.during(label):
                    await asyncio.sleep(lab.seconds + 0.5)
    uses = [lab.meter.uses.get(label, Use(label)) for label in specs]
    heads, rows = used(uses)
    little = uses[0].spread("gpu_utilization"), uses[0].spread("sm_utilization")
    if little[0] is None:
        raise ExperimentError("NVML has no utilisation for this device", "see nvidia-smi and mpstui doctor")
    verdict = f"One thread is enough for a GPU-Util of {little[0].median:.0f} %"
    verdict += "." if little[1] is None else f"; SM activity says {little[1].median:.1f} %."
    if little[1] is not None and little[1].median > OTHERS:
        verdict = "Others work on this device, and its readings include them: repeat this on an idle one."
    notes = (
        "GPU-Util is the part of the last second, or of less than that, in which some kernel ran, however small.",
        "A GPU at 100 % may be almost idle: look at SM activity, which NVML has from Hopper on.",
    )
    data = tuple(use.data() for use in uses)
    return ExperimentResult(
        "gpu-util", "What the meters say of one thread, and of all SMs", ("kernel", *heads[1:]), tuple(rows), data,
        verdict, notes, plots=(use_plot(uses),),
    )  # fmt: skip


async def sweep(
    lab: Lab, kernels: Sequence[KernelName] = ("fma", "triad"), percentages: Sequence[float] = PERCENTAGES
) -> ExperimentResult:
    """One client's throughput over its thread percentage."""
    lab.begin(len(kernels) * len(percentages))
    taken: dict[tuple[KernelName, float], Sequence[float]] = {}
    sms: dict[float, int | None] = {}
    for kernel in kernels:
        for percentage in percentages:
            label = f"{kernel} at {percentage:g} %"
            lab.step(label)
            async with running(lab, LoadSpec(kernel, percentages=(percentage,))) as (supervisor, workers):
                taken[kernel, percentage] = (await windows(lab, supervisor, workers, label))[0]
                sms[percentage] = supervisor.report(workers[0]).sms
    figures = {key: Spread.of(values) for key, values in taken.items()}
    best = {kernel: max(figures[kernel, p].median for p in percentages) for kernel in kernels}
    knees = {k: min(p for p in percentages if figures[k, p].median >= KNEE * best[k]) for k in kernels}
    rows = []
    for percentage in percentages:
        cells = [f"{percentage:g} %", str(sms[percentage] or "—")]
        for kernel in kernels:
            spread = figures[kernel, percentage]
            mark = "  ← knee" if knees[kernel] == percentage else ""
            cells += [spread.figure(), f"{spread.median / best[kernel]:.0%}{mark}"]
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
    said = ", ".join(
        f"{kernel} at {knees[kernel]:g} %{unsure_from(taken, kernel, knees[kernel])}" for kernel in kernels
    )
    plots = tuple(
        Plot(
            f"{kernel} ({INFO[kernel].unit})",
            tuple(PlotPoint(percentage, figures[kernel, percentage]) for percentage in percentages),
            "active thread percentage (%)",
        )
        for kernel in kernels
    )
    return ExperimentResult(
        "sweep",
        "One client's throughput over its active thread percentage",
        ("threads", "SMs", *heads),
        tuple(rows),
        data,
        f"{KNEE:.0%} of the best throughput is reached by {said}.",
        SWEEP_NOTES,
        plots=plots,
    )


def unsure_from(taken: Mapping[tuple[KernelName, float], Sequence[float]], kernel: KernelName, knee: float) -> str:
    """From which smaller share on no difference to the one at the knee was seen, in parentheses; nothing where the next
    smaller one is surely slower."""
    least = knee
    for percentage in sorted((p for name, p in taken if name == kernel and p < knee), reverse=True):
        if apart(taken[kernel, percentage], taken[kernel, knee]):
            break
        least = percentage
    return f" ({UNSURE} from {least:g} % on)" if least < knee else ""


async def interference(lab: Lab, kernels: Sequence[KernelName] = NEIGHBOURS) -> ExperimentResult:
    """What each kernel keeps of its throughput beside each other one, without limits."""
    lab.begin(len(kernels) + len(kernels) * (len(kernels) + 1) // 2)
    alone: dict[KernelName, Spread] = {}
    beside: dict[tuple[KernelName, KernelName], Spread] = {}
    kept: dict[tuple[KernelName, KernelName], list[float]] = {}
    for kernel in kernels:
        lab.step(f"{kernel} alone")
        async with running(lab, LoadSpec(kernel)) as (supervisor, workers):
            alone[kernel] = Spread.of((await windows(lab, supervisor, workers, f"{kernel} alone"))[0])
    for i, first in enumerate(kernels):
        for second in kernels[i:]:
            label = f"{first} beside {second}"
            lab.step(label)
            async with running(lab, LoadSpec(first), LoadSpec(second)) as (supervisor, workers):
                seen = await windows(lab, supervisor, workers, label)
            for (me, other), values in zip(((first, second), (second, first)), seen, strict=True):
                if (me, other) not in beside:
                    kept[me, other] = [value / alone[me].median for value in values]
                    beside[me, other] = Spread.of(kept[me, other])
    rows = tuple(
        (me, f"{alone[me].figure()} {INFO[me].unit}", *(beside[me, other].text(".0%") for other in kernels))
        for me in kernels
    )
    data = tuple(
        {"kernel": me, "beside": other, "kept": s.median, "low": s.low, "high": s.high, "alone": alone[me].median}
        for (me, other), s in beside.items()
    )
    worst = min(beside, key=lambda pair: beside[pair].median)
    best = max(beside, key=lambda pair: beside[pair].median)
    verdict = (
        f"Worst pair: beside {worst[1]}, {worst[0]} keeps {beside[worst].median:.0%} of its throughput alone. "
        f"Best pair: beside {best[1]}, {best[0]} keeps {beside[best].median:.0%}."
    )
    if not apart(kept[worst], kept[best]):
        verdict = "No difference seen between neighbours: the 95 % intervals of the windows overlap."
    columns = ("kernel", "alone", *(f"beside {kernel}" for kernel in kernels))
    title = "What is left of a kernel's throughput beside another"
    points = (PlotPoint(me, spread.scaled(100), f"beside {other}") for (me, other), spread in beside.items())
    plots = (Plot("throughput kept (% of what it does alone)", tuple(points)),)
    return ExperimentResult("interference", title, columns, rows, data, verdict, INTERFERENCE_NOTES, plots=plots)


def _replace(spec: LoadSpec, *, clients: int, mps: bool) -> LoadSpec:
    if clients < 1:
        raise ExperimentError("a group has at least one client")
    return replace(spec, clients=clients, mps=mps)
