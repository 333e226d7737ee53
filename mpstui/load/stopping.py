"""The experiment ``stop``: ways to end a client, and what each does to the server and to its neighbours."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from signal import SIGABRT, SIGINT, SIGSEGV, SIGTERM
from typing import Any, Final

from mpstui.core.text import plural
from mpstui.load.measure import ExperimentError, Lab, running
from mpstui.load.private_daemon import PrivateDaemon
from mpstui.load.results import ExperimentResult, Plot, PlotPoint
from mpstui.load.spread import Spread
from mpstui.load.supervisor import Supervisor
from mpstui.load.types import INFO, KernelName, LoadSpec, WorkerReport

_KERNEL: Final[dict[str, KernelName]] = {
    "graceful": "fma",
    "terminate_client": "fma",
    "terminate_client, in a long kernel": "endless",
    "kill -9, between short kernels": "fma",
    "kill -9, in a long kernel": "endless",
    "Ctrl-C, in a long kernel": "endless",
    "SIGTERM, in a long kernel": "endless",
    "segfault, in a long kernel": "endless",
    "abort, in a long kernel": "endless",
    "illegal store": "illegal",
}
_SIGNALS: Final = {"Ctrl-C": SIGINT, "SIGTERM": SIGTERM, "segfault": SIGSEGV, "abort": SIGABRT}
"""By which a program ends that has no handler for them."""
"""What the client runs that is ended so. Short kernels take 20 ms at most: a SIGKILL finds them over; what takes the
neighbours down is a kernel that is still running (fact 17)."""
WAYS: Final = tuple(_KERNEL)
NOTES: Final = (
    "Neighbours are lost when a process ends in the middle of a kernel, whatever ends it.",
    "A kill -9 between kernels does not harm them, but nobody can see when no kernel runs: use terminate_client first.",
)
NEIGHBOURS: Final = 2
WATCH_SECONDS: Final = 3.0
NEWCOMER_SECONDS: Final = 10.0
GETS_IN: Final = "gets in"
_BEFORE_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.05


async def stop(
    lab: Lab, make_daemon: Callable[[], PrivateDaemon], make_lab: Callable[[PrivateDaemon], Lab]
) -> ExperimentResult:
    """Each way ``repeats`` times, each time in a daemon of its own, so that nobody else is hit.

    ``make_lab`` gives the lab in such a daemon.
    """
    lab.begin(len(WAYS) * lab.repeats)
    data: list[dict[str, Any]] = []
    for way in WAYS:
        for repeat in range(lab.repeats):
            lab.step(f"{way}, {repeat + 1} of {lab.repeats}")
            async with make_daemon() as daemon:
                data.append(await _one(way, daemon, make_lab(daemon)))
    rows = []
    harmless = []
    for way in WAYS:
        seen = [entry for entry in data if entry["way"] == way]
        alive = [entry["neighbours_running"] for entry in seen]
        if min(alive) == NEIGHBOURS:
            harmless.append(way)
        rows.append(
            (
                way,
                _same(entry["victim"] for entry in seen),
                _range([entry["milliseconds"] for entry in seen], "ms"),
                f"{_range(alive, '')} of {NEIGHBOURS} run on",
                _same(", ".join(entry["neighbour_errors"]) or "—" for entry in seen),
                _same(" → ".join(entry["server"]) for entry in seen),
                _same(entry["new_client"] for entry in seen),
            )
        )
    harmful = [way for way in WAYS if way not in harmless]
    verdict = (
        f"The neighbours ran on after: {'; '.join(harmless) or 'none'}. They were lost after: "
        f"{'; '.join(harmful) or 'none'}."
    )
    refused = [way for way in WAYS if any(e["new_client"] != GETS_IN for e in data if e["way"] == way)]
    verdict += (
        f" A new client was not let in after: {'; '.join(refused)}."
        if refused
        else " A new client could connect after each."
    )
    columns = ("ended by", "the client", "after", "neighbours", "their error", "server", "a new client")
    title = f"Ending one of {plural(NEIGHBOURS + 1, 'client')} on a device"
    known = {
        way: [e["milliseconds"] for e in data if e["way"] == way and e["milliseconds"] is not None] for way in WAYS
    }
    points = tuple(PlotPoint(way, Spread.of(values)) for way, values in known.items() if values)
    plots = (Plot("time until the client has ended (ms)", points),)
    return ExperimentResult("stop", title, columns, tuple(rows), tuple(data), verdict, NOTES, plots=plots)


async def _one(way: str, daemon: PrivateDaemon, lab: Lab) -> dict[str, Any]:
    specs = (LoadSpec(_KERNEL[way]), LoadSpec("fma", clients=NEIGHBOURS))
    async with running(lab, *specs) as (supervisor, workers), lab.meter.during(way):
        victim, neighbours = workers[0], workers[1:]
        await asyncio.sleep(_BEFORE_SECONDS)
        listed = await daemon.control.get_server_list()
        server = listed.value[0] if listed.value else None
        before = [supervisor.report(worker).figure for worker in neighbours]
        asked = time.monotonic()
        ended: list[float] = []
        unsubscribe = supervisor.subscribe(lambda report: _note_end(report, victim, ended))
        pid = supervisor.report(victim).pid
        await _end(way, supervisor, daemon, victim, server, pid)
        states: list[str] = []
        while time.monotonic() < asked + WATCH_SECONDS:
            if server is not None:
                answer = await daemon.control.get_server_status(server)
                word = answer.value if answer.value else answer.outcome.value
                if not states or states[-1] != word:
                    states.append(word)
            await asyncio.sleep(_POLL_SECONDS)
        unsubscribe()
        after = [supervisor.report(worker) for worker in neighbours]
        last = supervisor.report(victim)
        newcomer = await _newcomer(supervisor, lab)
    return {
        "way": way,
        "victim": _end_text(last),
        "milliseconds": (ended[0] - asked) * 1000 if ended else None,
        "neighbours_running": sum(report.state == "running" for report in after),
        "neighbour_errors": sorted({_end_text(report) for report in after if report.state != "running"}),
        "neighbour_figures_before": before,
        "neighbour_figures_after": [report.figure for report in after],
        "unit": INFO["fma"].unit,
        "server": states,
        "new_client": newcomer,
    }


async def _newcomer(supervisor: Supervisor, lab: Lab) -> str:
    """What becomes of a client that is started now, in the same daemon."""
    (worker,) = await supervisor.start(lab.spec(LoadSpec("fma")))
    came = asyncio.Event()
    unsubscribe = supervisor.subscribe(lambda told: came.set() if told.worker == worker and _is_in(told) else None)
    if _is_in(supervisor.report(worker)):
        came.set()
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(came.wait(), NEWCOMER_SECONDS)
    unsubscribe()
    report = supervisor.report(worker)
    if report.over:
        return _end_text(report)
    return GETS_IN if report.state == "running" else "waits"


def _is_in(report: WorkerReport) -> bool:
    return report.state == "running" or report.over


async def _end(
    way: str, supervisor: Supervisor, daemon: PrivateDaemon, victim: int, server: int | None, pid: int | None
) -> None:
    if way == "graceful":
        await supervisor.stop([victim])
    elif way.startswith("kill -9"):
        supervisor.kill(victim)
    elif (number := _SIGNALS.get(way.split(",")[0])) is not None:
        supervisor.die(victim, number)
    elif way == "illegal store":
        supervisor.fault(victim)
    elif server is None or pid is None:
        raise ExperimentError("the private daemon has no server, so there is no client to terminate")
    else:
        # Once for this process, in a daemon that ends afterwards: never twice (fact 16).
        answer = await daemon.control.terminate_client(server, pid)
        if not answer.ok:
            raise ExperimentError(f"terminate_client: {answer.message}")


def _note_end(report: WorkerReport, victim: int, ended: list[float]) -> None:
    if report.worker == victim and report.over:
        ended.append(time.monotonic())


def _end_text(report: WorkerReport) -> str:
    if report.error is None:
        return report.state
    return f"error {report.error.code}" if report.error.code is not None else report.error.text


def _same(values: Any) -> str:
    """The values without repetition."""
    return " / ".join(dict.fromkeys(values))


def _range(values: list[Any], unit: str) -> str:
    known = sorted(value for value in values if value is not None)
    if not known:
        return "—"
    low, high = f"{known[0]:,.0f}", f"{known[-1]:,.0f}"
    return f"{low if low == high else f'{low}–{high}'} {unit}".strip()
