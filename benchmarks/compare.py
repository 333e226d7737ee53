"""mpstui beside other monitors, by turns on one machine; and what each way of watching costs the watched daemon.

benchmarks/compare.py simulated --json out.json          mpstui on a simulated node of 46 clients, htop, glances
benchmarks/compare.py real --pipe-dir /tmp/mps_0         mpstui and nvitop on a real one
benchmarks/compare.py quiet [--pipe-dir DIR]             control.log, commands and CPU of the daemon
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
from pty_bench import AS_INSTALLED, Program, Settings, add_settings, cpu_seconds, machine, measure, settings_of, table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from program import MPSTUI, Node, simulated_node
from terminal import Terminal

CLIENTS = 46
CONTROL = "nvidia-cuda-mps-control"


def showing(pids: Sequence[int]) -> re.Pattern[str]:
    """Any of these PIDs on the screen."""
    return re.compile(rf"(?<![\w.])(?:{'|'.join(map(str, pids))})(?![\w.])")


def mpstui(name: str, node: Node, program: Sequence[str] = MPSTUI) -> Program:
    """The screen on a node: data are there with a client's PID, all of it with the heading of the clients' panel."""
    shown = showing(node.client_pids())
    whole = re.compile(rf"⁴Clients(?:[^\n]*\n)+?[^\n]*{shown.pattern}")
    return Program(name, (*program, "--pipe-dir", str(node.pipe_dir)), shown, whole)


def restless(node: Node) -> Program:
    """The screen on a node where every row changes each second."""
    command = (sys.executable, str(Path(__file__).with_name("churn.py")))
    return mpstui(f"mpstui, all {CLIENTS} rows change each second", node, command)


def other(name: str, ready: re.Pattern[str], command: str | None = None) -> Program | None:
    """Another monitor, where it is installed: on PATH, or at the path that was given."""
    found = shutil.which(command or name)
    if found is None:
        print(f"{name} is not installed: left out", file=sys.stderr)
        return None
    return Program(name, (found,), ready)


def process_line() -> re.Pattern[str]:
    """A heading with PID and USER and a line of a process below it: htop and glances."""
    return re.compile(r"PID +USER[^\n]*(?:\n[^\n]*)*?\n[^\n]*\b\d+ +[a-z_][\w-]* ")


def simulated(options: argparse.Namespace) -> dict[str, Any]:
    """The comparison that needs no GPU."""
    with simulated_node("--scenario", "crowd", clients=CLIENTS) as crowd:
        programs = [
            mpstui(f"mpstui, {CLIENTS} clients", crowd),
            restless(crowd),
            other("htop", process_line(), options.htop),
            other("glances", process_line(), options.glances),
        ]
        return measure([p for p in programs if p], settings_of(options), options.starts, options.runs)


def real(node: Node, settings: Settings, starts: int, runs: int, nvitop: str | None = None) -> dict[str, Any]:
    """mpstui, without and with counting launches, and nvitop, which shows the processes of all GPUs."""
    pids = node.client_pids()
    programs = [
        mpstui(f"mpstui, {len(pids)} clients", node),
        mpstui("mpstui --activity, which counts launches", node, (*MPSTUI, "--activity")),
        other("nvitop", showing(pids), nvitop),
    ]
    return measure([p for p in programs if p], settings, starts, runs)


ASKED: tuple[tuple[str, str, float, str], ...] = (
    ("bytes a second", "bytes_per_second", 1500, "B/s"),
    ("CPU of a core", "cpu_percent", 1.5, "%"),
    ("memory (RSS)", "rss_mib", 50, "MiB"),
    ("key, 95th percentile", "key_done_p95_ms", 15, "ms"),
)
"""What is asked of the screen beside 46 clients at rest: name, key of ``summary``, at most, unit."""


REACHED = {True: "reached", False: "not reached"}


def asked_table(medians: dict[str, dict[str, Any]]) -> str:
    """What is asked of mpstui beside what came out, as a Markdown table; the start beside the other monitors'."""
    lines = ["| program | asked for | is | |", "|---|---|---|---|"]

    def line(name: str, asked: str, value: float | None, good: bool | None, form: str) -> None:
        shown = "not measured" if value is None else form.format(value)
        lines.append(f"| {name} | {asked} | {shown} | {'not known' if good is None else REACHED[good]} |")

    rivals = {name: entry["painted_s"] for name, entry in medians.items() if not name.startswith("mpstui")}
    for name, entry in medians.items():
        if not name.startswith("mpstui"):
            continue
        for what, key, most, unit in ASKED:
            value = entry[key]
            line(
                name,
                f"{what}: at most {most:,g} {unit}",
                value,
                None if value is None else value <= most,
                f"{{:,.4g}} {unit}",
            )
        for rival, theirs in rivals.items():
            value = entry["painted_s"]
            good = None if value is None or theirs is None else value <= theirs
            beside = "not measured" if theirs is None else f"{theirs:.2f} s"
            line(name, f"whole screen no later than {rival} ({beside})", value, good, "{:.2f} s")
    return "\n".join(lines)


def quiet_cost(node: Node, binary: str, seconds: float, settle: float = 10.0, polling: bool = True) -> dict[str, Any]:
    """What the daemon pays for being watched for so long while nothing happens, by each way of watching. ``polling``:
    also by a command a second.

    Returns for each: bytes that control.log grew by, commands in it, and CPU percent of daemon and servers together.
    """
    status = node.status()
    assert status is not None
    daemon = status["daemons"][0]
    log = Path(daemon["log_dir"], "control.log")
    pids = [daemon["pid"], *(server["pid"] for server in daemon["servers"])]
    loop = f"while :; do clear; echo ps | {binary}; sleep 1; done"
    screen = mpstui("mpstui", node)
    watchers: dict[str, tuple[str, ...]] = {"nobody": (), screen.name: screen.argv}
    if polling:
        watchers[f"while :; do echo ps | {CONTROL}; sleep 1; done"] = ("sh", "-c", loop)
    ready = {screen.name: screen.complete}
    return {name: _cost(argv, node, log, pids, seconds, settle, ready.get(name)) for name, argv in watchers.items()}


def _cost(
    argv: Sequence[str],
    node: Node,
    log: Path,
    pids: Sequence[int],
    seconds: float,
    settle: float,
    ready: re.Pattern[str] | None = None,
) -> dict[str, Any]:
    with _watcher(argv or ("sleep", "86400"), node) as terminal:
        if ready is not None:  # on a busy machine it takes as long as it is given to settle
            terminal.wait_for(ready)
        terminal.read_for(settle)
        size, cpu = log.stat().st_size, _cpu(pids)
        terminal.read_for(seconds)
        used = _cpu(pids) - cpu
        with log.open("rb") as file:
            file.seek(size)
            grown = file.read()
    commands = [line.decode(errors="replace") for line in re.findall(rb"Cmd:(.*)", grown)]
    return {
        "seconds": seconds,
        "log_bytes": len(grown),
        "log_bytes_per_second": len(grown) / seconds,
        "commands": len(commands),
        "first_commands": commands[:10],
        "daemon_cpu_percent": 100 * used / seconds,
    }


@contextlib.contextmanager
def _watcher(argv: Sequence[str], node: Node) -> Iterator[Terminal]:
    environment = {**AS_INSTALLED, "CUDA_MPS_PIPE_DIRECTORY": str(node.pipe_dir)}
    with Terminal(argv, environment=environment, record=False) as terminal:
        yield terminal


def _cpu(pids: Sequence[int]) -> float:
    total = 0.0
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            total += cpu_seconds(pid, children=False)
    return total


def cost_table(cost: dict[str, Any]) -> str:
    """The costs as a Markdown table."""
    lines = ["| watched by | control.log | commands | daemon's CPU |", "|---|---|---|---|"]
    for name, entry in cost.items():
        escaped = name.replace("|", "\\|")
        lines.append(
            f"| `{escaped}` | {entry['log_bytes']:,} B in {entry['seconds']:.0f} s | {entry['commands']} "
            f"| {entry['daemon_cpu_percent']:.2f} % |"
        )
    return "\n".join(lines)


@contextlib.contextmanager
def _chosen(options: argparse.Namespace) -> Iterator[tuple[Node, str]]:
    """The node of --pipe-dir, or a simulated one, and the control binary to use there."""
    if options.pipe_dir:
        yield Node(options.pipe_dir), CONTROL
        return
    from mpstui.sim.marker import control_binary

    with simulated_node("--scenario", "crowd", clients=CLIENTS) as node:
        yield node, " ".join(control_binary())


def main() -> int:
    """One of the comparisons, as a table and with --json in full."""
    parser = argparse.ArgumentParser(description="mpstui beside other monitors; see README.md beside this file.")
    commands = parser.add_subparsers(dest="comparison", required=True)
    for name in ("simulated", "real", "quiet"):
        command = commands.add_parser(name)
        add_settings(command)
        command.add_argument("--pipe-dir", type=Path, required=name == "real")
        for program in ("htop", "glances", "nvitop"):
            command.add_argument(f"--{program}", metavar="PATH", help=f"where {program} is, if not on PATH")
    options = parser.parse_args()
    if options.comparison == "quiet":
        with _chosen(options) as (node, binary):
            cost = quiet_cost(node, binary, options.window)
            result: dict[str, Any] = {"machine": machine(), "quiet": cost}
        text = cost_table(cost)
    else:
        if options.comparison == "simulated":
            result = simulated(options)
        else:
            node = Node(options.pipe_dir)
            result = real(node, settings_of(options), options.starts, options.runs, options.nvitop)
        text = table({name: entry["median"] for name, entry in result["programs"].items()})
    if options.json:
        options.json.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
