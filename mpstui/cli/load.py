"""``mpstui load``: test kernels or the user's own program as clients, without a screen."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text as RichText

from mpstui import api
from mpstui.cli.output import complain, output
from mpstui.core.model import Device, Snapshot, device_named
from mpstui.core.text import error_text, format_size, plural, printable
from mpstui.fields import (
    FLAG,
    INTEGER,
    NUMBER,
    OBJECT,
    OBJECTS,
    SCHEMA,
    SECONDS,
    SHARE,
    SIZE,
    TEXT,
    TEXTS,
    TIME,
    Field,
    Thing,
    Type,
    View,
    as_json,
    enum,
)
from mpstui.load import utilisation
from mpstui.load.errors import remedy_of
from mpstui.load.footprint import others, takes
from mpstui.load.requests import WINDOW
from mpstui.load.spread import Spread
from mpstui.load.types import COMMAND, INFO, KERNELS, REQUESTED, LoadSpec, WorkerError, WorkerReport, WorkerState
from mpstui.load.utilisation import METERS, Meter, Use
from mpstui.operations.load import OperatedLoad, StartLoad, beside, doubts, doubts_there, harm
from mpstui.operations.types import ExitStatus

DEFAULT_SECONDS = 10.0
_TICK = 1.0
BAR_FROM: Final = 72
"""Columns from which the progress has a bar beside its words."""
FILE_WIDTH = 160
PARTS: Final = 4
"""Of the time of a load, whose readings are told apart."""


def load(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    """``load``; returns the exit status. Raises Unable."""
    return asyncio.run(with_clients(run, options, pipe_dirs))


Run = Callable[[argparse.Namespace, api.AsyncNode], Awaitable[int]]


async def with_clients(run: Run, options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    """What starts CUDA clients of our own: SIGTERM and SIGHUP end them as Ctrl-C does. The exit status."""
    ended_by: list[int] = []
    task = asyncio.current_task()

    def end(number: int) -> None:
        if not ended_by and task is not None:
            ended_by.append(number)
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            asyncio.get_running_loop().add_signal_handler(number, end, number)
    try:
        async with api.open(pipe_dirs, read_only=getattr(options, "read_only", False)) as node:
            return await run(options, node)
    except asyncio.CancelledError:
        if not ended_by:
            raise
        return 128 + ended_by[0]


async def run(options: argparse.Namespace, node: api.AsyncNode) -> int:
    """Run the load to its end; returns the exit status. Raises Unable."""
    try:
        check(options)
        if (why := node.runner.unavailable(StartLoad(), Snapshot(0.0), Path())) is not None:  # before anybody is asked
            raise api.Unavailable(why, "", ExitStatus.REFUSED_BY_SAFETY_RULE)
        async with daemon_for(options, node) as pipe_dir:
            device = await find_device(options.device, node)
            spec = spec_from(options, device, pipe_dir)
            asked = None
            if spec.mps and not (options.private or options.yes or options.endanger_others):
                asked = await ask_beside(spec, node, Path(pipe_dir or ""))
            elif spec.mps and not options.private:
                await tell_whose(spec, Path(pipe_dir or ""))
            meter = node.meter(device.uuid if device else None)
            return await _run(options, spec, node.supervisor(pipe_dir, asked), meter)
    except BrokenPipeError:
        raise
    except OSError as error:
        return cannot_write(error)


def cannot_write(error: OSError) -> int:
    """For a full disk behind standard output: what is still in its buffer is let go, or it would fail again at exit."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    text, remedy = f"the result cannot be written: {error_text(error)}", "free some space; the load was ended"
    return complain(text, ExitStatus.REFUSED_BY_DAEMON, remedy)


def check(options: argparse.Namespace) -> None:
    """Raises Unavailable where the options do not fit together, or would hurt somebody."""
    usage = ExitStatus.USAGE
    if (options.kernel is None) == (options.program is None):
        raise api.Unavailable("name a kernel or a --command, one of the two", f"kernels: {', '.join(KERNELS)}", usage)
    for name, values in (
        ("active-thread-percentage", options.active_thread_percentage),
        ("sm-count", options.sm_count),
    ):
        if len(values) not in (0, 1, options.clients):
            raise api.Unavailable(
                f"--{name} has {len(values)} values for {plural(options.clients, 'client')}",
                "give one, or one for each",
                usage,
            )
    limits = (options.active_thread_percentage, options.sm_count, options.pinned_mem_limit, options.client_priority)
    if options.mps == "off" and (any(limits[:3]) or limits[3] is not None or options.private):
        raise api.Unavailable(
            "limits and --private need MPS, and --mps is off", "leave them out, or use --mps on", usage
        )
    if options.program and options.sm_count:
        raise api.Unavailable(
            "a program makes its own contexts: --sm-count does not reach it", "use --active-thread-percentage", usage
        )
    if (options.arrivals or options.busy) and options.kernel not in REQUESTED:
        what = "a program" if options.program else options.kernel
        raise api.Unavailable(
            f"{what} does not serve requests", f"--arrivals and --busy are for: {', '.join(REQUESTED)}", usage
        )
    _check_streams(options)
    hurts = harm(
        (options.kernel or COMMAND,),
        mps=options.mps == "on",
        private=options.private,
        memory_limit=options.pinned_mem_limit,
    )
    if hurts is not None and not options.endanger_others:
        safer = "--private for a daemon of its own" if options.kernel == "illegal" else "--pinned-mem-limit"
        remedy = f"add {safer}, or --endanger-others if that is what you want"
        raise api.Unavailable(hurts.rstrip("."), remedy, ExitStatus.REFUSED_BY_SAFETY_RULE)


def _check_streams(options: argparse.Namespace) -> None:
    """Raises Unavailable where streams, copies and steps do not fit the rest."""
    what = "a program" if options.program else options.kernel
    refused: tuple[str, str] | None = None
    if (options.streams or options.copies) and options.kernel not in REQUESTED:
        refused = f"{what} has no streams and no copies to choose", f"they are for: {', '.join(REQUESTED)}"
    elif options.streams and (options.arrivals or options.busy):
        refused = "requests are served one after the other, in one stream", "leave out --streams"
    elif options.default_stream and not options.streams:
        refused = "--default-stream is for launches behind those of other streams", "add --streams 8"
    elif options.steps and options.kernel != "small":
        refused = f"{what} has no steps to choose", "--steps is for: small"
    if refused is not None:
        raise api.Unavailable(*refused, ExitStatus.USAGE)


@contextlib.asynccontextmanager
async def daemon_for(options: argparse.Namespace, node: api.AsyncNode) -> AsyncIterator[Path | None]:
    """The pipe directory to work in, of a daemon that answers; None without MPS. Raises Unavailable."""
    if options.mps == "off":
        yield None
    elif options.private:
        async with node.private_daemon() as pipe_dir:
            yield pipe_dir
    else:
        yield await node.one_daemon()


def spec_from(options: argparse.Namespace, device: Device | None, pipe_dir: Path | None) -> LoadSpec:
    """What the options ask for."""
    kernel: Any = COMMAND if options.program else options.kernel
    length = options.seconds if options.seconds is not None or options.program else DEFAULT_SECONDS
    return LoadSpec(
        kernel=kernel,
        command=options.program or (),
        clients=options.clients,
        device_uuid=device.uuid if device else None,
        percentages=options.active_thread_percentage,
        sm_counts=options.sm_count,
        memory_limit=options.pinned_mem_limit,
        priority=options.client_priority,
        seconds=length,
        mps=options.mps == "on",
        arrivals=options.arrivals,
        busy=options.busy,
        streams=options.streams,
        copies=options.copies,
        default_stream=options.default_stream,
        connections=options.device_max_connections,
        steps=options.steps,
        pipe_dir=pipe_dir,
        private=options.private,
        endanger=options.endanger_others,
    )


async def ask_beside(
    spec: LoadSpec, node: api.AsyncNode, pipe_dir: Path, otherwise: str = "start a daemon for this run: --private"
) -> Snapshot:
    """Ask first where others' clients are on the daemon; answers what that was asked on. Raises Unavailable without a
    yes, and without a terminal. ``otherwise``: how to be on a daemon of its own."""
    snapshot = await node.snapshot(complete=True)
    daemon = snapshot.daemon(pipe_dir)
    there = others(daemon.clients(), os.geteuid()) if daemon else []
    why = () if daemon is None else doubts(daemon, os.geteuid(), program=spec.kernel == COMMAND)
    if not there and not why and daemon is not None and not daemon.unread:
        return snapshot
    device = next((d for d in snapshot.devices if d.uuid == spec.device_uuid), next(iter(snapshot.devices), None))
    taken = takes(
        [spec.kernel] * spec.clients,
        device.sm_count if device else None,
        spec.memory_limit or "",
        streams=spec.streams or 1,
        copies=spec.copies or 0,
    )
    told = daemon is not None and not daemon.unread
    whom, what, clients = beside(spec.clients, there, taken, () if device is None else (device,), told=told)
    print(whom, *(f"  {line}" for line in (*clients, what, *why)), sep="\n", file=sys.stderr)
    if sys.stdin.isatty():
        print("start them? [y/N] ", end="", file=sys.stderr, flush=True)
        if (await _answer()).strip().lower() in {"y", "yes"}:
            return snapshot
    matter = "others work on this daemon"
    if why and daemon is not None:
        known = daemon.speaker.uid in {0, os.geteuid()}
        matter = "other users can redirect the program to another daemon" if known else "this is another user's daemon"
    raise api.Unavailable(
        f"{matter}; nothing was started",
        f"add --yes, answer at a terminal, or {otherwise}",
        ExitStatus.REFUSED_BY_SAFETY_RULE,
    )


async def tell_whose(spec: LoadSpec, pipe_dir: Path) -> None:
    """Where nobody is asked: that the daemon is another user's, or may be by the time that a program connects."""
    program = spec.kernel == COMMAND
    for line in await asyncio.to_thread(lambda: doubts_there(pipe_dir, os.geteuid(), program=program)):
        print(f"mpstui: {line}", file=sys.stderr)


async def _answer() -> str:
    """A line from the terminal; Ctrl-C and SIGTERM end the wait."""
    loop, typed = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), typed.set)
    try:
        await typed.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return sys.stdin.readline()


async def find_device(name: str | None, node: api.AsyncNode) -> Device | None:
    """The device of a UUID, the first characters of one, or an index; None where none was named. Raises Unavailable."""
    if name is None:
        return None
    sample = await node.hardware()
    try:
        return device_named(name, sample.devices)
    except LookupError as error:
        remedy = sample.error or "name it by its index, its UUID, or the first characters of that"
        raise api.Unavailable(str(error), remedy, ExitStatus.USAGE) from None


async def _run(options: argparse.Namespace, spec: LoadSpec, supervisor: OperatedLoad, meter: Meter) -> int:
    started = time.monotonic()
    bar, at_work = _progress(spec, options.json), asyncio.Event()
    supervisor.subscribe(lambda report: at_work.set() if report.state == "running" else None)
    stopped: asyncio.CancelledError | None = None
    try:
        async with meter.during(spec.kernel, at_work, PARTS):
            bar.start()
            task = bar.add_task("starting", total=spec.seconds)
            numbers_ = await supervisor.start(spec)
            if supervisor.trouble:
                print(f"mpstui: {printable(supervisor.trouble, 2000)}", file=sys.stderr)
            waiting = asyncio.create_task(supervisor.wait(numbers_))
            while not waiting.done():
                await asyncio.wait([waiting], timeout=_TICK)
                reports = supervisor.workers
                went = max((report.running_seconds for report in reports), default=0.0)
                bar.update(task, completed=went, description=_line(spec, reports))
                if options.json and not waiting.done():
                    print(json.dumps(to_json(spec, reports, final=False), ensure_ascii=False), flush=True)
    except asyncio.CancelledError as interrupted:
        stopped = interrupted  # Ctrl-C: what was measured until then is told all the same
    finally:
        bar.stop()
        await supervisor.stop()
    reports = supervisor.workers
    if options.json:
        told = to_json(spec, reports, final=True, use=meter.uses.get(spec.kernel))
        print(json.dumps(told, ensure_ascii=False), flush=True)
    else:
        console = output(FILE_WIDTH)
        print_table(spec, reports, console, time.monotonic() - started)
        word = "SIMULATED · " if any(report.simulated for report in reports) else ""
        if print_uses(meter.uses.values(), word, console):
            parts = max(len(use.blocks) for use in meter.uses.values())
            of = f"{plural(parts, 'part')} of the time"
            console.print(f"median (smallest–largest) of {of}; each part counts with its median")
    sys.stdout.flush()
    if stopped is not None:
        raise stopped
    failed = [report for report in reports if report.state == "failed"]
    for error in dict.fromkeys(report.error for report in failed if report.error):
        complain(error.text, ExitStatus.REFUSED_BY_DAEMON, remedy_of(error, private=spec.private))
    return ExitStatus.REFUSED_BY_DAEMON if failed else ExitStatus.DONE


def _progress(spec: LoadSpec, quiet: bool, console: Console | None = None) -> Progress:
    """On a narrow terminal the words give way, then the bar; the time stays."""
    console = console or Console(stderr=True)
    bar = spec.seconds is not None and console.width >= BAR_FROM
    time_width = len("0:00:00")
    words = Column(no_wrap=True, overflow="ellipsis", max_width=max(1, console.width - time_width - (22 if bar else 2)))
    columns: list[ProgressColumn] = [TextColumn("{task.description}", markup=False, table_column=words)]
    if bar:
        columns.append(BarColumn())
    time_ = Column(no_wrap=True, min_width=time_width)
    columns.append((TimeElapsedColumn if spec.seconds is None else TimeRemainingColumn)(table_column=time_))
    return Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)


def _latest(report: WorkerReport) -> float | None:
    return report.figure


def _mean(report: WorkerReport) -> float | None:
    return report.mean


def total(reports: Sequence[WorkerReport], figure: Callable[[WorkerReport], float | None] = _latest) -> float | None:
    """The figures that are there, added up; None where there is none, and for programs, whose figure is a time."""
    found = [value for r in reports if r.kernel != COMMAND and (value := figure(r)) is not None]
    return sum(found) if found else None


def _line(spec: LoadSpec, reports: Sequence[WorkerReport]) -> str:
    running = [report for report in reports if report.state == "running"]
    figure = total(running)
    shown = f"  {figure:,.1f} {INFO[spec.kernel].unit}" if figure is not None and INFO[spec.kernel].unit else ""
    simulated = "SIMULATED " if any(report.simulated for report in reports) else ""
    return f"{simulated}{spec.kernel}: {len(running)} of {spec.clients} running{shown}"


def print_table(spec: LoadSpec, reports: Sequence[WorkerReport], console: Console, took: float) -> None:
    """One row a client and their sum."""
    simulated = any(report.simulated for report in reports)
    unit = INFO[spec.kernel].unit
    table = Table(title=f"{'SIMULATED · ' if simulated else ''}{spec.kernel}, MPS {'on' if spec.mps else 'off'}")
    latency = any(report.latency_p50 is not None for report in reports)
    heads = (*(("p50 ms", "p99 ms") if latency else ()), *(("copied GB/s",) if spec.copies else ()))
    for name in ("PID", "SMs", unit or "figure", *heads, "allocated", "seconds", "state"):
        table.add_column(name, justify="left" if name == "state" else "right")
    for report in reports:
        figure = report.mean
        words_ = report.error.text if report.error else report.state
        table.add_row(
            str(report.pid or "—"),
            str(report.sms or "—"),
            "—" if figure is None else f"{figure:,.2f}",
            *((_milliseconds(report.latency_p50), _milliseconds(report.latency_p99)) if latency else ()),
            *((_copied(report),) if spec.copies else ()),
            format_size(report.memory),
            f"{report.running_seconds:.1f}",
            "; ".join((words_, *report.notes)),
        )
    if len(reports) > 1 and (together := total(reports, _mean)) is not None:
        table.add_row("all", "", f"{together:,.2f}", *("" for _ in heads), "", f"{took:.1f}", "")
    console.print(table)
    if spec.copies:
        console.print(f"copied: {format_size(spec.copies)} to the device before each launch and back after it")
    if latency:
        console.print(f"p50 and p99: from when a request came to when it was done, of the last {WINDOW:g} s")


def _copied(report: WorkerReport) -> str:
    """To the device and back, over its whole run."""
    if report.copied is None or report.running_seconds <= 0:
        return "—"
    return f"{report.copied / report.running_seconds / 1e9:,.1f}"


def _milliseconds(seconds: float | None) -> str:
    return "—" if seconds is None else f"{1000 * seconds:,.2f}"


ERROR: Final[Thing[WorkerError]] = Thing(
    "worker_error",
    "Why a worker ended.",
    (
        Field("text", "text", TEXT, lambda e, v: e.text),
        Field("remedy", "remedy", TEXT, lambda e, v: e.remedy),
        Field("code", "code", INTEGER, lambda e, v: e.code, null=True, about="The CUDA error; null: it was none."),
        Field("name", "name", TEXT, lambda e, v: e.name),
        Field("kind", "kind", TEXT, lambda e, v: e.kind, about="cuda, or what was missing: no_driver, died, …"),
    ),
)

WORKER: Final[Thing[WorkerReport]] = Thing(
    "worker",
    "A test client.",
    (
        Field("pid", "PID", INTEGER, lambda r, v: r.pid, null=True),
        Field("state", "state", enum(WorkerState), lambda r, v: r.state),
        Field("figure", "figure", NUMBER, lambda r, v: r.figure, null=True, about="In unit, at present."),
        Field("mean", "mean", NUMBER, lambda r, v: r.mean, null=True, about="In unit, over all of its time."),
        Field(
            "latency_p50",
            "p50",
            Type({"type": "number"}, unit="seconds"),
            lambda r, v: r.latency_p50,
            null=True,
            about="From when a request came to when it was done, of the last 10 s; null: it gets no requests.",
        ),
        Field("latency_p99", "p99", Type({"type": "number"}, unit="seconds"), lambda r, v: r.latency_p99, null=True),
        Field("sms", "SMs", INTEGER, lambda r, v: r.sms, null=True, about="The share that it launches on now."),
        Field("active_thread_percentage", "threads", SHARE, lambda r, v: r.percentage, null=True),
        Field("launches", "launches", INTEGER, lambda r, v: r.launches),
        Field(
            "copied_bytes",
            "copied",
            SIZE,
            lambda r, v: r.copied,
            null=True,
            about="To the device and back so far; null: it copies nothing.",
        ),
        Field("running_seconds", "running", SECONDS, lambda r, v: r.running_seconds, about="Since it was told to go."),
        Field("memory", "memory", SIZE, lambda r, v: r.memory, null=True, about="That it has allocated."),
        Field("device_uuid", "device", TEXT, lambda r, v: r.device_uuid, null=True),
        Field("device_name", "device name", TEXT, lambda r, v: r.device_name, null=True),
        Field("mps", "MPS", FLAG, lambda r, v: r.mps, null=True, about="Whether its context is one of an MPS server."),
        Field("notes", "notes", TEXTS, lambda r, v: r.notes),
        Field("error", "error", OBJECT, lambda r, v: r.error, null=True, of=ERROR),
    ),
)


SPREAD: Final[Thing[Spread]] = Thing(
    "spread",
    "Readings: the middle one, the smallest, the largest.",
    (
        Field("median", "median", NUMBER, lambda s, v: s.median),
        Field("low", "low", NUMBER, lambda s, v: s.low),
        Field("high", "high", NUMBER, lambda s, v: s.high),
    ),
)


def _meter(name: str) -> Field[Use]:
    title, unit = METERS[name]
    return Field(
        name, title, OBJECT, lambda u, v: u.spread(name), null=True, of=SPREAD,
        about=f"In{unit.replace('%', 'percent').replace(' W', ' watts')}; null: the device does not tell it.",
    )  # fmt: skip


USE: Final[Thing[Use]] = Thing(
    "use",
    "How busy the device was while the clients were at work, others' work included.",
    tuple(_meter(name) for name in METERS),
)


class LoadLine(NamedTuple):
    """What is printed once a second."""

    spec: LoadSpec
    reports: Sequence[WorkerReport]
    final: bool
    use: Use | None = None


LOAD: Final[Thing[LoadLine]] = Thing(
    "load",
    "How the test clients do.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda n, v: SCHEMA),
        Field("time", "time", TIME, lambda n, v: time.time()),
        Field("final", "final", FLAG, lambda n, v: n.final),
        Field("kernel", "kernel", TEXT, lambda n, v: n.spec.kernel),
        Field("mps", "MPS", FLAG, lambda n, v: n.spec.mps),
        Field("unit", "unit", TEXT, lambda n, v: INFO[n.spec.kernel].unit or None, null=True),
        Field(
            "total", "total", NUMBER, lambda n, v: total(n.reports, _mean if n.final else _latest), null=True,
            about="The figures added up; at the end their means.",
        ),
        Field("workers", "workers", OBJECTS, lambda n, v: n.reports, of=WORKER),
        Field(
            "device", "device", OBJECT, lambda n, v: n.use, null=True, of=USE,
            about="How busy it was meanwhile: at the end alone.", only=lambda n: n.final,
        ),
        Field(
            "simulated", "simulated", FLAG, lambda n, v: True, about="Only on a simulated node.",
            only=lambda n: any(report.simulated for report in n.reports),
        ),
    ),
)  # fmt: skip


def to_json(spec: LoadSpec, reports: Sequence[WorkerReport], final: bool, use: Use | None = None) -> dict[str, Any]:
    """One line of ``--json``; bytes and numbers, null where not known."""
    return as_json(LOAD, LoadLine(spec, reports, final, use), View())


def print_uses(uses: Iterable[Use], word: str, console: Console) -> bool:
    """How busy the device was meanwhile; False and nothing where nothing was read. ``word``: what stands before."""
    heads, rows = utilisation.table(uses)
    if not rows:
        return False
    print_rows(f"{word}{heads[0]}", ("situation", *heads[1:]), rows, console)
    return True


def print_rows(
    title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], console: Console, left: int = 1
) -> None:
    """A table under its title, which is as long as it is: a table's own is cut to the table's width. ``left``: columns
    of words."""
    console.print(RichText(title, style="italic"))
    table = Table()
    for index, head in enumerate(heads):
        table.add_column(head, justify="left" if index < left else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
