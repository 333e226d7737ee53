"""The experiments ``streams`` and ``copies``: what runs beside what in one process, and in several."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mpstui.core.late import dataclass
from mpstui.core.text import plural
from mpstui.load.measure import ExperimentError, Lab, running, windows
from mpstui.load.results import GROUPS, ExperimentResult, Plot, PlotPoint
from mpstui.load.spread import Spread
from mpstui.load.types import COPIED, DEFAULT_STREAM_NAMES, INFO, LoadSpec, WorkerReport
from mpstui.load.utilisation import apart

CONNECTIONS: Final = (1, 8, 32)
STEPS: Final = 200_000
"""A launch of a few blocks that lasts some tenths of a millisecond: one CPU thread can feed 32 streams with it."""
ONE: Final = "1 stream"
COPY_KERNEL: Final = "fma"
COPY_STREAMS: Final = 4
IN_TURN: Final = "1 process, in turn"
OVERLAPPED: Final = "1 process, overlapped"
BY_STEP: Final = "1 process, overlapped, step by step"
"""All copies to the device, then all kernels, then all copies back; otherwise one stream after the other."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a situation came to: a total for each window, or why there is none."""

    totals: tuple[float, ...] = ()
    copied: float | None = None
    """Bytes a second, to the device and back, of all clients."""
    error: str = ""


async def streams(lab: Lab, sizes: Sequence[int] = GROUPS["streams"]) -> ExperimentResult:
    """Small kernels in so many streams of one process, and in so many processes without and with MPS."""
    several = [size for size in sorted(set(sizes)) if size > 1]
    if not several:
        raise ExperimentError("one stream has nothing beside it", "name larger groups: --clients 1,4,16,32")
    most = several[-1]
    asked = {ONE: _grids(streams=1)}
    asked |= {f"{size} streams": _grids(streams=size) for size in several}
    for size in several:
        asked[f"{size} processes, MPS off"] = _grids(clients=size)
        asked[f"{size} processes, MPS on"] = _grids(clients=size, mps=True)
    for count in CONNECTIONS:
        asked[_connected(most, count)] = _grids(streams=most, connections=count)
    for name in DEFAULT_STREAM_NAMES:
        asked[f"{most} streams, {name} default stream between"] = _grids(streams=most, default_stream=name)
    taken = await _take(lab, asked)
    rows, data, notes = _told(taken, asked, ONE)
    columns = ("who launches", INFO["small"].unit, f"of {ONE}")
    return ExperimentResult(
        "streams", "Kernels of four blocks, in streams and in processes", columns, rows, data,
        streams_verdict(taken, most),
        (
            "Streams let one process fill a GPU that its small kernels leave idle, as far as there are queues for them "
            "(Hyper-Q).",
            "Several processes take turns without MPS, however small their kernels are; with MPS their kernels run "
            "side by side as those of streams do.",
            *notes,
        ),
        plots=(_plot(taken, INFO["small"].unit),),
    )  # fmt: skip


def _plot(taken: Mapping[str, Taken], value: str) -> Plot:
    return Plot(value, tuple(PlotPoint(label, Spread.of(each.totals)) for label, each in taken.items() if each.totals))


def streams_verdict(taken: Mapping[str, Taken], most: int) -> str:
    """What streams bring, what MPS brings, and what queues and the default stream take; each as sure as it is."""
    off, on = (f"{most} processes, MPS {word}" for word in ("off", "on"))
    queues = ", ".join(f"{_against(taken, ONE, _connected(most, count))} with {count}" for count in CONNECTIONS)
    between = ", ".join(
        f"{_against(taken, ONE, f'{most} streams, {name} default stream between')} in the {name} one"
        for name in DEFAULT_STREAM_NAMES
    )
    return (
        f"{most} streams of one process compared with one stream: {_against(taken, ONE, f'{most} streams')}. "
        f"{most} processes with MPS compared with as many without it: {_against(taken, off, on)}. "
        f"{most} streams, by CUDA_DEVICE_MAX_CONNECTIONS: {queues}. "
        f"{most} streams with launches in the default stream between them: {between}."
    )


async def copies(lab: Lab, clients: Sequence[int] = GROUPS["copies"]) -> ExperimentResult:
    """A copy to the device, a kernel and a copy back, again and again: in one stream, where each waits for the one
    before it, and in several; by one process and by several, without and with MPS."""
    several = [count for count in sorted(set(clients)) if count > 1]
    asked = {IN_TURN: _copying(), OVERLAPPED: _copying(streams=COPY_STREAMS)}
    asked[BY_STEP] = _copying(streams=COPY_STREAMS, by_step=True)
    for count in several:
        for name, number in (("in turn", None), ("overlapped", COPY_STREAMS)):
            for mps in (False, True):
                label = _several(count, name, mps)
                asked[label] = _copying(clients=count, streams=number, mps=mps)
    taken = await _take(lab, asked)
    rows, data, notes = _told(taken, asked, IN_TURN)
    columns = ("who copies and computes", INFO[COPY_KERNEL].unit, "copied (GB/s)", f"of {IN_TURN}")
    return ExperimentResult(
        "copies", f"{COPIED >> 20} MiB to the device, a kernel, {COPIED >> 20} MiB back", columns, rows, data,
        copies_verdict(taken, several[-1] if several else 0),
        (
            "A GPU copies in both directions while it computes, but only for a program that has several streams and "
            "pinned memory: in one stream each step waits for the one before it.",
            "Several processes overlap each other's steps, whether they were written for it or not; MPS lets their "
            "kernels run side by side besides.",
            *notes,
        ),
        plots=(_plot(taken, INFO[COPY_KERNEL].unit),),
    )  # fmt: skip


def copies_verdict(taken: Mapping[str, Taken], count: int) -> str:
    """What overlapping brings to one process, and MPS to several; each as sure as it is."""
    said = [
        f"One process, overlapped, compared with in turn: {_against(taken, IN_TURN, OVERLAPPED)}.",
        "Step by step over all streams compared with one stream after the other: "
        f"{_against(taken, OVERLAPPED, BY_STEP)}.",
    ]
    for name in ("in turn", "overlapped") if count else ():
        off, on = (_several(count, name, mps) for mps in (False, True))
        said.append(f"{count} processes, {name}, with MPS compared with no MPS: {_against(taken, off, on)}.")
    return " ".join(said)


def _grids(mps: bool = False, **values: Any) -> LoadSpec:
    return LoadSpec("small", steps=STEPS, mps=mps, **values)


def _copying(mps: bool = False, **values: Any) -> LoadSpec:
    return LoadSpec(COPY_KERNEL, copies=COPIED, mps=mps, **values)


def _connected(streams: int, count: int) -> str:
    return f"{streams} streams, {plural(count, 'connection')}"


def _several(count: int, name: str, mps: bool) -> str:
    return f"{count} processes, {name}, MPS {'on' if mps else 'off'}"


async def _take(lab: Lab, asked: Mapping[str, LoadSpec]) -> dict[str, Taken]:
    """Each situation once, in as many windows as there are repeats. One that cannot be had leaves the others."""
    lab.begin(len(asked))
    taken = {}
    for label, spec in asked.items():
        lab.step(label)
        try:
            async with running(lab, spec) as (supervisor, workers):
                values = await windows(lab, supervisor, workers, label)
                reports = [supervisor.report(worker) for worker in workers]
        except ExperimentError as error:
            taken[label] = Taken(error=f"{error}; {error.remedy}" if error.remedy else str(error))
        else:
            taken[label] = Taken(tuple(map(sum, zip(*values, strict=True))), _copied(reports))
    if not any(each.totals for each in taken.values()):
        raise ExperimentError(next(iter(taken.values())).error, "see mpstui doctor")
    return taken


def _copied(reports: Sequence[WorkerReport]) -> float | None:
    found = [r.copied / r.running_seconds for r in reports if r.copied is not None and r.running_seconds > 0]
    return sum(found) if found else None


def _told(
    taken: Mapping[str, Taken], asked: Mapping[str, LoadSpec], base: str
) -> tuple[tuple[tuple[str, ...], ...], tuple[dict[str, Any], ...], tuple[str, ...]]:
    """Rows, data, and notes on what could not be had."""
    rows, data, notes = [], [], []
    for label, each in taken.items():
        spec = asked[label]
        told: dict[str, Any] = {
            "situation": label, "clients": spec.clients, "mps": spec.mps, "streams": spec.streams,
            "connections": spec.connections, "default_stream": spec.default_stream, "by_step": spec.by_step,
            "unit": INFO[spec.kernel].unit,
            "totals": list(each.totals), "error": each.error or None,
        }  # fmt: skip
        copied = [] if spec.copies is None else ["—" if each.copied is None else f"{each.copied / 1e9:,.1f}"]
        if each.totals:
            spread = Spread.of(each.totals)
            told |= {"median": spread.median, "low": spread.low, "high": spread.high}
            rows.append((label, spread.figure(), *copied, _ratio(taken, base, label) or "—"))
        else:
            notes.append(f"{label} could not be measured: {each.error}")
            rows.append((label, "—", *copied, "—"))
        if spec.copies is not None:
            told["copied_bytes_per_second"] = each.copied
        data.append(told)
    return tuple(rows), tuple(data), tuple(notes)


def _ratio(taken: Mapping[str, Taken], base: str, label: str) -> str:
    """``×12.3``; nothing where one of them was not measured."""
    one, other = taken[base].totals, taken[label].totals
    mean = statistics.fmean(one) if one else 0.0
    return f"×{statistics.fmean(other) / mean:.2f}" if other and mean > 0 else ""


def _against(taken: Mapping[str, Taken], base: str, label: str) -> str:
    """``×12.3``, where the 95 % intervals of the windows are apart."""
    ratio = _ratio(taken, base, label)
    if not ratio:
        return "not measured"
    return ratio if apart(taken[base].totals, taken[label].totals) else "no difference seen"
