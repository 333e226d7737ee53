"""``mpstui plan --measure``: shares from measured throughput, with the curves that they come from."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from mpstui import api
from mpstui.cli.experiment import carried_out, clear, describe
from mpstui.cli.loadoptions import words
from mpstui.cli.shares import choose_device, plan_of
from mpstui.core.text import format_change, format_percentage, four_digits, printable
from mpstui.load.results import Cost, Experiment, Measured, name_of, unit
from mpstui.load.spread import Spread
from mpstui.load.types import COMMAND, LoadSpec
from mpstui.operations.types import ExitStatus
from mpstui.plan import amounts
from mpstui.plan.advice import ENOUGH, Advice, MeasuredShare, plot
from mpstui.plan.amounts import PlanError
from mpstui.plan.types import Plan, PlanTarget, target_of

EXCLUSIVE: Final = (
    "the compute mode is EXCLUSIVE_PROCESS: where another daemon has the GPU, measure in that one with --shared"
)
Result = tuple[Plan, bool, dict[str, Any]]
"""The plan, whether it is simulated, and what ``--json`` has in addition."""


def measure(options: argparse.Namespace, pipe_dirs: tuple[Path, ...]) -> Result | int:
    """Measure, print the curves unless JSON or an export is asked for, and plan with the shares that are advised.

    An exit status where it came to nothing, which has been said then. Raises Unable.
    """
    loads = _loads(options)
    clients = _clients(options, loads)
    with api.open(pipe_dirs, read_only=getattr(options, "read_only", False)) as node:
        sample, simulated = node.hardware(), node.simulated
        target = _target(options, sample)
        if clients > target.context_limit:
            raise PlanError(f"{clients} clients are more than the {target.context_limit} contexts of a device")
        device = next((d for d in sample.devices if d.uuid == target.uuid), None)
        exclusive = device is not None and device.exclusive
        shared = node.one_daemon() if options.shared else None
        asked = Experiment(
            "advice", target.uuid, options.repeats or 3, options.seconds or 1.0, shared,
            loads=tuple(loads), target=target, clients=clients,
        )  # fmt: skip
        hint = EXCLUSIVE if exclusive and not options.shared else ""
        measured = node.wait_for(carried_out(node.asynchronous, asked, hint, yes=options.yes))
    if not isinstance(measured, Measured):
        return measured if isinstance(measured, ExitStatus) else ExitStatus.REFUSED_BY_DAEMON
    clear()
    labels = [COMMAND if load.kernel == COMMAND else load.kernel for load in loads]
    if len(set(labels)) != len(measured.sm_counts):
        labels = []
    made = plan_of(options, measured.target, measured.sm_counts, labels)
    about = describe(sample, device, simulated)
    if not options.json and options.export is None:
        for line in _text(measured, about, options.shared):
            print(line)
    return made, simulated, {"measured": to_json(measured, about)}


def _loads(options: argparse.Namespace) -> tuple[LoadSpec, ...]:
    """One or two. Raises PlanError."""
    if options.sm_count_total is not None:
        raise PlanError("--measure needs the GPU itself: leave out --sm-count-total")
    if options.strategy or options.weights is not None or options.sm_count is not None:
        raise PlanError("the measurement gives the shares: leave out --strategy, --weights and --sm-count")
    loads = [LoadSpec(kernel) for kernel in options.measure]
    if options.program is not None:
        try:
            command = words(options.program)
        except argparse.ArgumentTypeError as error:
            raise PlanError(f"--command: {error}") from None
        if shutil.which(command[0]) is None:
            raise PlanError(f"--command: there is no program {printable(command[0], 80)} that could be started")
        loads.append(LoadSpec(COMMAND, command=command))
    if len(loads) > 2:
        raise PlanError(f"{len(loads)} loads were given: one is measured, or two together")
    return tuple(loads)


def _clients(options: argparse.Namespace, loads: Sequence[LoadSpec]) -> int:
    clients = 1 if options.clients is None else amounts.count(options.clients, "--clients")
    if len(loads) > 1 and options.clients is not None and clients != len(loads):
        raise PlanError("two loads are measured for one client each: leave out --clients")
    return clients


def _target(options: argparse.Namespace, sample: api.NvmlSample) -> PlanTarget:
    if not sample.devices:
        raise api.Unavailable(
            f"there is no GPU to measure on: {sample.error or 'none is known here'}",
            "on a machine without one, --demo shows how it goes",
            ExitStatus.NO_DAEMON,
        )
    target = target_of(choose_device(sample.devices, options.device, options.apply or options.save is not None))
    if target is None:
        raise PlanError("how many SMs the GPU has is not known, so that nothing can be said of a share")
    return target


def _text(measured: Measured, about: dict[str, Any], shared: bool) -> list[str]:
    word = "SIMULATED " if about["simulated"] else ""
    place = "in the daemon that runs" if shared else "in a daemon of its own"
    lines = []
    for load, advice in dict(zip(measured.loads, measured.advices, strict=True)).items():
        lines += [f"{word}{name_of(load)}, one client {place}: throughput in {unit(load)} over SMs", ""]
        lines += _table(advice)
        lines += ["", *plot(advice), "", f"{word}{advice_text(load, advice)}", ""]
        if shared and load.kernel != COMMAND and (most := max(p.sms for p in advice.points)) < measured.target.sm_count:
            lines += [f"The curve ends at {most} of {measured.target.sm_count} SMs: this is the server's limit."]
            lines += ["To measure with more SMs, raise the limit or leave out --shared.", ""]
    if measured.costs:
        lines += [f"{word}side by side: throughput of each, and how much that is of what it does alone", ""]
        lines += _cost_table(measured)
        lines.append("")
    facts = [about["gpu"] or "GPU unknown", f"driver {about['driver'] or 'unknown'}", about["time"]]
    if about["other_clients"]:
        facts.append(f"{about['other_clients']} other MPS clients were on the device when it began")
    lines += [" · ".join(facts), "median (smallest–largest) of the repeats; * measured, . fitted, ^ advised", ""]
    if not measured.costs:
        lines += [
            "Clients on one GPU can slow each other down even with enough SMs: to measure this, give two loads.",
            "",
        ]
    return lines


def advice_text(load: LoadSpec, advice: Advice) -> str:
    """What the curve says, in a sentence or three."""
    fit, chosen, most = advice.fit, advice.chosen, max(advice.points, key=lambda point: point.sms)
    low, high = advice.knees
    each = f"Each SM adds {fit.per_sm:.3g} {unit(load)}"
    if advice.saturates:
        spread = f"{low}–{high}" if low != high else f"{low} in each repeat"
        rest, more = most.sms - chosen.sms, most.median / chosen.median - 1 if chosen.median else 0.0
        said = (
            f"{each} up to about {fit.knee} SMs ({spread}), further ones little: {chosen.sms} SMs"
            f" ({format_percentage(chosen.percentage)}) give {_of(chosen, advice)} of the best, and {rest} SMs more"
            f" change that by {format_change(more)}."
        )
    else:
        said = f"{each}, the last one too: more SMs help up to all {most.sms}."
    if advice.poor:
        said += f" The fit is poor (off by up to {fit.error:.0%} of the best): go by the table."
    return said


def _of(point: MeasuredShare, advice: Advice) -> str:
    return f"{point.median / advice.best:.0%}" if advice.best else "—"


def _table(advice: Advice) -> list[str]:
    rows = [("THREADS", "SMS", "THROUGHPUT", "OF BEST", "FITTED")]
    rows += [
        (
            format_percentage(point.percentage),
            str(point.sms),
            Spread.of(point.values).digits(),
            _of(point, advice),
            four_digits(advice.fit.at(point.sms)) + ("  <- advised" if point is advice.chosen else ""),
        )
        for point in advice.points
    ]
    return _aligned(rows)


def _cost_table(measured: Measured) -> list[str]:
    shares = " and ".join(map(str, measured.sm_counts))
    rows = [("LOAD", "ALONE", "BESIDE THE OTHER", "KEEPS", f"WITH {shares} SMS", "KEEPS")]
    for cost in measured.costs:
        beside, shared = cost.beside.digits(), cost.with_shares.digits()
        alone = f"{cost.alone.digits()} {unit(cost.load)}"
        rows.append(
            (name_of(cost.load), alone, beside, _kept(cost.beside, cost), shared, _kept(cost.with_shares, cost))
        )
    return _aligned(rows)


def _kept(spread: Spread, cost: Cost) -> str:
    return f"{spread.median / cost.alone.median:.0%}" if cost.alone.median else "—"


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Columns at least as wide as their widest cell; the last one ragged."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    return [
        "  " + "  ".join([*(f"{cell:>{w}}" for cell, w in zip(row, widths, strict=False)), row[-1]]) for row in rows
    ]


def to_json(measured: Measured, about: dict[str, Any]) -> dict[str, Any]:
    """What ``plan --json`` has under ``measured``; throughput in ``unit``, null for what was not measured."""
    return {
        **about,
        "loads": [
            _load_json(load, advice) for load, advice in zip(measured.loads, measured.advices, strict=True)
        ],
        "together": [
            {
                "load": name_of(cost.load),
                "unit": unit(cost.load),
                "alone": _spread_json(cost.alone),
                "beside": _spread_json(cost.beside),
                "with_shares": {"sm_count": sms, **_spread_json(cost.with_shares)},
            }
            for cost, sms in zip(measured.costs, measured.sm_counts, strict=False)
        ],
        "enough": ENOUGH,
    }  # fmt: skip


def _load_json(load: LoadSpec, advice: Advice) -> dict[str, Any]:
    return {
        "load": name_of(load),
        "kernel": None if load.kernel == COMMAND else load.kernel,
        "command": list(load.command) or None,
        "unit": unit(load),
        "curve": [
            {
                "active_thread_percentage": point.percentage,
                "sm_count": point.sms,
                **_spread_json(Spread.of(point.values)),
                "fitted": advice.fit.at(point.sms),
            }
            for point in advice.points
        ],
        "per_sm": advice.fit.per_sm,
        "knee_sm_count": {"fitted": advice.fit.knee, "low": advice.knees[0], "high": advice.knees[1]},
        "largest_error": advice.fit.error,
        "saturates": advice.saturates,
        "advised": {"active_thread_percentage": advice.chosen.percentage, "sm_count": advice.chosen.sms},
        "text": advice_text(load, advice),
    }


def _spread_json(spread: Spread) -> dict[str, float]:
    return {"median": spread.median, "low": spread.low, "high": spread.high}
