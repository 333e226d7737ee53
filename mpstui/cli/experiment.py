"""``mpstui experiment``: runs a comparison and prints its table, its spread and its verdict."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.text import Text

from mpstui import api
from mpstui.cli.arguments import between, whole
from mpstui.cli.load import (
    FILE_WIDTH,
    ask_beside,
    cannot_write,
    find_device,
    print_rows,
    print_uses,
    tell_whose,
    with_clients,
)
from mpstui.cli.loadoptions import numbers, words
from mpstui.cli.output import complain, output
from mpstui.cli.report import MIDDLE, OF_DEVICE, ReportError, check_report, conditions, write_report
from mpstui.core.model import Device, Snapshot
from mpstui.core.text import printable, typed_count
from mpstui.fields import FLAG, INTEGER, SCHEMA, TEXT, TEXTS, Field, Thing, Type, View, as_json
from mpstui.load.results import Experiment, ExperimentResult, Measured
from mpstui.operations.load import RunExperiment
from mpstui.operations.types import ExitStatus

EXPERIMENTS = {
    "nbody": "1, 2 and 4 clients with a fixed amount of work, with and without MPS",
    "command": "the same for your own program",
    "training": "LeNet in PyTorch, images a second, small batches and large ones",
    "sweep": "throughput at each thread percentage, and from which one on more SMs help little",
    "interference": "what a neighbour costs, kernel by kernel",
    "oversubscribe": "shares that add up to more than the device, for clients that are idle half of the time",
    "priority": "two clients with different priorities: which of them waits",
    "gpu-util": "what GPU-Util says of one thread, and of all SMs",
    "streams": "small kernels in 1, 4, 16 and 32 streams, and in as many processes, without and with MPS",
    "copies": "copies to the device before and back after each kernel, in turn and at once, 1 and more clients",
    "stop": "what each way to end a client does to its neighbours",
}


GROUPED: Final = frozenset({"nbody", "command", "training", "streams", "copies"})
"""Those that take several numbers of clients."""
GROUPS: Final = ", ".join(name for name in EXPERIMENTS if name in GROUPED)


def group_sizes(text: str) -> tuple[int, ...]:
    """``1,2,4``, for argparse."""
    values = tuple(value for word in text.split(",") if (value := typed_count(word)) is not None)
    if len(values) <= text.count(","):
        raise argparse.ArgumentTypeError(f"{printable(text, 40)!r} is not a list of numbers: 1,2,4")
    if not all(1 <= value <= 48 for value in values) or len(set(values)) != len(values):
        raise argparse.ArgumentTypeError("different numbers of clients, 1 to 48 each")
    return values


def bodies(text: str) -> int:
    """A number of bodies, in whole tiles, for argparse."""
    value = whole(1, 1 << 22)(text)
    if value % 128:
        raise argparse.ArgumentTypeError(f"{value} bodies are no whole number of tiles: a multiple of 128")
    return value


def expression(text: str) -> str:
    """A regular expression with a group, for argparse."""
    try:
        groups = re.compile(text).groups
    except (re.error, RecursionError, OverflowError) as error:
        raise argparse.ArgumentTypeError(f"{printable(text, 60)!r} is no regular expression: {error}") from None
    if not groups:
        raise argparse.ArgumentTypeError(f"{printable(text, 60)!r} has no group: put the number into one, ([0-9.]+)")
    return text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``experiment``, beside those of every command."""
    names = "; ".join(f"{name}: {text}" for name, text in EXPERIMENTS.items())
    parser.add_argument("name", choices=tuple(EXPERIMENTS), metavar="NAME", help=names)
    parser.add_argument("--command", dest="program", type=words, metavar="CMD", help="the program of `command`")
    parser.add_argument(
        "--metric",
        type=expression,
        metavar="REGEX",
        help="of `command`: the throughput that the program prints, as 'images/s: ([0-9.]+)'; its start is left out",
    )
    parser.add_argument(
        "--percentages",
        type=numbers,
        default=(),
        metavar="P,P…",
        help="of `command --metric`: thread percentages to try",
    )
    parser.add_argument(
        "--python",
        default=sys.executable,
        metavar="PATH",
        help="of `training`: a Python that has PyTorch (default: this)",
    )
    parser.add_argument("--report", metavar="FILE", help="write an HTML page with the tables and plots too")
    parser.add_argument("--clients", type=group_sizes, metavar="N,N…", help=f"sizes of the groups ({GROUPS})")
    parser.add_argument(
        "--bodies", type=bodies, metavar="N", help="of `nbody`: 16384 leave most of a GPU idle, 512000 fill it"
    )
    parser.add_argument(
        "--divide", action="store_true", help="of `nbody`: the work of one client, divided among the clients"
    )
    parser.add_argument("--repeats", type=whole(1, 100), default=3, metavar="N", help="default 3")
    parser.add_argument(
        "--seconds", type=between(0.1, 86400), default=1.0, metavar="S", help="length of one measurement (default 1)"
    )
    parser.add_argument(
        "--device", metavar="DEV", help="a UUID, its first characters, or NVML's index (default: the first)"
    )
    parser.add_argument(
        "--shared", action="store_true", help="in the daemon that runs, not in one of its own (not for `stop`)"
    )
    parser.add_argument("--yes", action="store_true", help="with --shared: do not ask where others' clients are there")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _check(options: argparse.Namespace) -> None:
    """Raises Unavailable where the options do not fit together, ReportError where the page cannot be written."""
    if (options.name == "command") != (options.program is not None):
        raise api.Unavailable(
            "--command goes with the experiment `command`, and it needs one",
            "mpstui experiment command --command 'python train.py'",
            ExitStatus.USAGE,
        )
    if options.clients and options.name not in GROUPED:
        raise api.Unavailable(f"{options.name} has no groups of clients", "leave out --clients", ExitStatus.USAGE)
    if (options.metric and options.name != "command") or (options.percentages and not options.metric):
        raise api.Unavailable(
            "--metric goes with the experiment `command`, and --percentages with --metric",
            "mpstui experiment command --command 'python train.py' --metric 'images/s: ([0-9.]+)'",
            ExitStatus.USAGE,
        )
    if options.bodies and options.name != "nbody":
        raise api.Unavailable(f"{options.name} has no bodies", "leave out --bodies", ExitStatus.USAGE)
    if options.divide and options.name != "nbody":
        raise api.Unavailable(f"{options.name} has no work to divide", "leave out --divide", ExitStatus.USAGE)
    if options.report is not None:
        check_report(Path(options.report))


def experiment(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    """``experiment``; returns the exit status. Raises Unable."""
    return asyncio.run(with_clients(run, options, pipe_dirs))


async def run(options: argparse.Namespace, node: api.AsyncNode) -> int:
    """Run the experiment; returns the exit status. Raises Unable."""
    try:
        _check(options)
        device = await find_device(options.device, node)
        sample = await node.hardware()
        # Looked for only where it may be: what is refused anyway is said before.
        shared = await node.one_daemon() if options.shared and options.name != "stop" else None
    except ReportError as error:
        return complain(str(error), error.status, "nothing was measured")
    asked = Experiment(
        options.name,
        device.uuid if device else None,
        options.repeats,
        options.seconds,
        Path() if options.shared and options.name == "stop" else shared,
        tuple(options.clients or ()),
        (options.python,) if options.name == "training" else tuple(options.program or ()),
        options.bodies,
        options.divide,
        options.metric or "",
        tuple(dict.fromkeys(options.percentages or ())),  # one that is named twice is one setting
    )
    outcome = await carried_out(node, asked, yes=options.yes)
    if not isinstance(outcome, ExperimentResult):
        return outcome if isinstance(outcome, ExitStatus) else ExitStatus.REFUSED_BY_DAEMON
    clear()
    about = describe(sample, device, node.simulated)
    return _tell(options, outcome, about)


def _tell(options: argparse.Namespace, outcome: ExperimentResult, about: dict[str, Any]) -> int:
    """Write the page and print the result, that also where the page could not be written; the exit status."""
    failed: ReportError | None = None
    try:
        if options.report is not None:
            write_report(Path(options.report), outcome, about)
    except ReportError as error:
        failed = error
    try:
        if options.json:
            print(json.dumps(to_json(outcome, about), ensure_ascii=False))
        else:
            print_table(outcome, about, output(FILE_WIDTH))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        return cannot_write(error)
    if failed is not None:
        return complain(str(failed), failed.status, "the result is printed above")
    return ExitStatus.DONE


async def carried_out(
    node: api.AsyncNode, asked: Experiment, remedy: str = "", *, yes: bool = False
) -> ExperimentResult | Measured | ExitStatus:
    """What came of it; the exit status where that is nothing, which has been said then. ``remedy``: beside its own.
    ``yes``: nobody is asked where others work on the daemon."""
    shown = Snapshot(0.0)
    refused_anyway = node.runner.unavailable(RunExperiment(), Snapshot(0.0), Path()) is not None
    if asked.shared is not None and asked.name != "stop" and not yes and not refused_anyway:
        shown = await ask_beside(asked.most_at_once(), node, asked.shared, "leave out --shared")
    elif asked.shared is not None and not refused_anyway:
        await tell_whose(asked.most_at_once(), asked.shared)
    result = await node.do(RunExperiment().request(asked), progress, snapshot=shown)
    if isinstance(result.outcome, ExperimentResult | Measured):
        return result.outcome
    more = remedy if result.status is ExitStatus.REFUSED_BY_DAEMON else ""
    clear()
    complain(result.message, result.status, "; ".join(filter(None, (result.remedy, more))))
    return result.status


def describe(sample: api.NvmlSample, device: Device | None, simulated: bool) -> dict[str, Any]:
    """Where and when a result was measured, and who else was on the device."""
    shown = device or next(iter(sample.devices), None)
    others = sample.mps_clients.get(shown.uuid, {}) if shown else {}
    return {
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "gpu": shown.name if shown else None,
        "driver": sample.driver_version,
        "simulated": simulated,
        "other_clients": len(others),
    }


def print_table(outcome: ExperimentResult, about: dict[str, Any], console: Console) -> None:
    """The table under the word SIMULATED where it is, then the verdict and what it rests on."""
    word = "SIMULATED · " if about["simulated"] else ""
    words = len(outcome.columns) if outcome.name == "stop" else 1
    print_rows(f"{word}{outcome.title}", outcome.columns, outcome.rows, console, words)
    of_device = print_uses(outcome.uses, word, console) or outcome.name == "gpu-util"
    console.print(f"{word}{outcome.verdict}")
    console.print(" · ".join(conditions(about)))
    console.print(MIDDLE)
    if of_device:
        console.print(OF_DEVICE)
    for note in outcome.notes:
        console.print(note)


class PrintedResult(NamedTuple):
    """A result as it is printed."""

    outcome: ExperimentResult
    about: dict[str, Any]
    """Where and when it was measured: see :func:`describe`."""


_ROWS: Final = Type({"type": "array", "items": {"type": "array", "items": {"type": "string"}}}, str)
_DATA: Final = Type({"type": "array", "items": {"type": "object"}}, str)

EXPERIMENT: Final[Thing[PrintedResult]] = Thing(
    "experiment",
    "The result of a comparison.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda t, v: SCHEMA),
        Field("experiment", "experiment", TEXT, lambda t, v: t.outcome.name),
        Field("time", "time", TEXT, lambda t, v: t.about["time"], about="When it was over, in UTC."),
        Field("gpu", "GPU", TEXT, lambda t, v: t.about["gpu"], null=True),
        Field("driver", "driver", TEXT, lambda t, v: t.about["driver"], null=True),
        Field("simulated", "simulated", FLAG, lambda t, v: t.about["simulated"]),
        Field(
            "other_clients", "other clients", INTEGER, lambda t, v: t.about["other_clients"],
            about="MPS clients that were on the device when it began.",
        ),
        Field("title", "title", TEXT, lambda t, v: t.outcome.title),
        Field("columns", "columns", TEXTS, lambda t, v: t.outcome.columns, about="Of the table, as it is printed."),
        Field("rows", "rows", _ROWS, lambda t, v: [list(row) for row in t.outcome.rows]),
        Field("data", "data", _DATA, lambda t, v: list(t.outcome.data), about="The numbers behind it."),
        Field(
            "utilisation", "utilisation", _DATA, lambda t, v: [use.data() for use in t.outcome.uses],
            about="How busy the device was in each situation.",
        ),
        Field(
            "verdict", "verdict", TEXT,
            lambda t, v: f"{'SIMULATED: ' if t.about['simulated'] else ''}{t.outcome.verdict}",
        ),
        Field("notes", "notes", TEXTS, lambda t, v: t.outcome.notes),
    ),
)  # fmt: skip


def to_json(outcome: ExperimentResult, about: dict[str, Any]) -> dict[str, Any]:
    """The whole result; ``simulated`` is always there."""
    return as_json(EXPERIMENT, PrintedResult(outcome, about), View())


def progress(text: str) -> None:
    """What is being measured, on stderr. On a terminal in one line, cut where it is too long for that: only one line is
    taken off again."""
    if sys.stderr.isatty():
        shown = Text(text)
        shown.truncate(max(1, _width() - 1), overflow="ellipsis")
        print(f"\r\x1b[K{shown.plain}", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


def _width() -> int:
    """Columns of the terminal behind stderr; 80 where it does not tell."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def clear() -> None:
    """Take the last word of the progress off the terminal."""
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
