"""What a terminal program costs: measures any program in a pseudo-terminal of 160×48.

    benchmarks/pty_bench.py --ready 'PID +USER' -- htop
    benchmarks/pty_bench.py --ready '\\b4711\\b' --json out.json -- mpstui --pipe-dir /tmp/mps_0

Nothing is assumed about the program but a pattern that is on its screen once it shows data. README.md beside this file
says how each number is taken.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import re
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "pty"))
from terminal import COLUMNS, LINES, Terminal

AS_INSTALLED = {"PYTHONDONTWRITEBYTECODE": ""}
"""What Python has compiled is kept, as by pip; a first start that is not counted writes it. Where that is forbidden
each start compiles everything anew: seconds, and memory that is not given back."""
TICKS = os.sysconf("SC_CLK_TCK")
MIB = 1 << 20


@dataclass(frozen=True)
class Program:
    """What to run and how to know that it shows data."""

    name: str
    argv: tuple[str, ...]
    ready: re.Pattern[str]
    """On the screen once data are shown."""
    complete: re.Pattern[str] | None = None
    """On the screen once all of it is shown, where that is later than the first data."""
    environment: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[str, str] = ("down", "up")
    """The keys pressed in the latency part: ten of the first, ten of the second, and so on."""


@dataclass(frozen=True)
class Settings:
    """How long and how often; seconds."""

    window: float = 30.0
    settle: float = 5.0
    keys: int = 200
    """So many, as of 25 the second slowest is the 95th percentile."""
    seed: int = 1
    quiet: float = 0.025
    """A burst of output ends when so long nothing came."""
    deadline: float = 30.0


@dataclass(frozen=True)
class Start:
    """One start of a program, seconds since exec."""

    first_byte: float
    data: float
    """A client is on the screen."""
    painted: float
    """And so is everything else."""


@dataclass(frozen=True)
class Run:
    """One steady run of a program. ``key_first``/``key_done``: milliseconds, one a key that was answered."""

    start: Start
    bytes_per_second: float
    bursts_per_second: float
    largest_burst: int
    cpu_percent: float
    rss_mib: float
    pss_mib: float
    processes: int
    key_first: tuple[float, ...]
    key_done: tuple[float, ...]
    keys_unanswered: int


def start_once(program: Program, settings: Settings) -> Start:
    """Start the program, wait until it shows data, end it."""
    with Terminal(program.argv, environment={**AS_INSTALLED, **program.environment}, record=False) as terminal:
        return _wait_painted(terminal, program, settings)


def run_once(program: Program, settings: Settings) -> Run:
    """Start the program, let it settle, watch it for the window, then press keys."""
    with Terminal(program.argv, environment={**AS_INSTALLED, **program.environment}, record=False) as terminal:
        start = _wait_painted(terminal, program, settings)
        terminal.read_for(settings.settle)

        cpu, since, size = cpu_seconds(terminal.pid), time.monotonic(), terminal.size
        bursts: list[int] = []
        while (left := since + settings.window - time.monotonic()) > 0:
            if burst := terminal.drain(settings.quiet, left):
                bursts.append(burst.size)
        elapsed = time.monotonic() - since
        used = cpu_seconds(terminal.pid) - cpu
        sent = terminal.size - size
        rss, pss, count = memory(terminal.pid)
        if terminal.process.poll() is not None:
            raise RuntimeError(f"{program.name} ended by itself with {terminal.process.returncode}")

        first, done, unanswered = press_keys(terminal, program.keys, settings)
        return Run(
            start=start,
            bytes_per_second=sent / elapsed,
            bursts_per_second=len(bursts) / elapsed,
            largest_burst=max(bursts, default=0),
            cpu_percent=100 * used / elapsed,
            rss_mib=rss / MIB,
            pss_mib=pss / MIB,
            processes=count,
            key_first=tuple(first),
            key_done=tuple(done),
            keys_unanswered=unanswered,
        )


def press_keys(terminal: Terminal, keys: Sequence[str], settings: Settings) -> tuple[list[float], list[float], int]:
    """Press keys at irregular times; milliseconds to the first and to the last byte of what follows each.

    Each key waits for a moment without output, so that a repaint under way is not taken for the answer.
    """
    chance = random.Random(settings.seed)
    first: list[float] = []
    done: list[float] = []
    unanswered = 0
    for number in range(settings.keys):
        terminal.read_for(chance.uniform(0.05, 0.25))
        while terminal.read(settings.quiet):
            pass
        sent = terminal.key(keys[number // 10 % len(keys)])
        burst = terminal.drain(settings.quiet, 2.0)
        if burst is None:
            unanswered += 1
            continue
        first.append(1000 * (burst.first - sent))
        done.append(1000 * (burst.last - sent))
    return first, done, unanswered


def _wait_painted(terminal: Terminal, program: Program, settings: Settings) -> Start:
    terminal.wait_for(program.ready, settings.deadline)
    data = terminal.came
    if program.complete is not None:
        terminal.wait_for(program.complete, settings.deadline)
    painted = terminal.came
    if terminal.first_byte is None or data is None or painted is None:
        raise RuntimeError(f"{program.name} has written nothing")
    return Start(terminal.first_byte - terminal.started, data - terminal.started, painted - terminal.started)


def family(pid: int) -> list[psutil.Process]:
    """The process and all that descends from it."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def cpu_seconds(pid: int, *, children: bool = True) -> float:
    """User and system time of the process, of its living descendants, and of the dead ones that were waited for."""
    total = 0
    for process in family(pid) if children else [psutil.Process(pid)]:
        try:
            fields = Path(f"/proc/{process.pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(int(value) for value in fields[11 : 15 if children else 13])  # utime, stime, cutime, cstime
    return total / TICKS


def memory(pid: int) -> tuple[int, int, int]:
    """RSS and PSS in bytes of the process and its descendants, and how many those are."""
    rss = pss = count = 0
    for process in family(pid):
        try:
            rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text(errors="replace")
        except OSError:
            continue
        sizes = {name: int(size) * 1024 for name, size in re.findall(r"^(\w+):\s+(\d+) kB", rollup, re.MULTILINE)}
        rss, pss, count = rss + sizes.get("Rss", 0), pss + sizes.get("Pss", 0), count + 1
    return rss, pss, count


_MEDIANS = ("bytes_per_second", "bursts_per_second", "largest_burst", "cpu_percent", "rss_mib", "pss_mib", "processes")


def percentile(values: Sequence[float], share: float) -> float | None:
    """The nearest-rank percentile; None of nothing."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)] if ordered else None


def summary(starts: Sequence[Start], runs: Sequence[Run]) -> dict[str, Any]:
    """Medians over starts and runs; key latencies over the keys of all runs."""
    starts = [*starts, *(run.start for run in runs)]
    result: dict[str, Any] = {
        "starts": len(starts),
        "runs": len(runs),
        "first_byte_s": _median([start.first_byte for start in starts]),
        "data_s": _median([start.data for start in starts]),
        "painted_s": _median([start.painted for start in starts]),
        "painted_max_s": max((start.painted for start in starts), default=None),
    }
    for name in _MEDIANS:
        result[name] = _median([getattr(run, name) for run in runs])
    for name in ("key_first", "key_done"):
        values = [value for run in runs for value in getattr(run, name)]
        result[f"{name}_median_ms"] = _median(values)
        result[f"{name}_p95_ms"] = percentile(values, 0.95)
    result["keys_answered"] = sum(len(run.key_first) for run in runs)
    result["keys_unanswered"] = sum(run.keys_unanswered for run in runs)
    return result


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def machine() -> dict[str, Any]:
    """Where and when the numbers were taken."""
    cpu = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "date": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
        "cpu": cpu[1] if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / (1 << 30), 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_average": os.getloadavg(),
        "terminal": f"{COLUMNS}×{LINES}, TERM=xterm-256color, COLORTERM=truecolor",
    }


COLUMNS_OF_TABLE = (
    ("1st byte", "first_byte_s", "{:.2f} s"),
    ("data", "data_s", "{:.2f} s"),
    ("painted", "painted_s", "{:.2f} s"),
    ("bytes/s", "bytes_per_second", "{:,.0f}"),
    ("CPU", "cpu_percent", "{:.2f} %"),
    ("RSS", "rss_mib", "{:.0f} MiB"),
    ("PSS", "pss_mib", "{:.0f} MiB"),
    ("key", "key_done_median_ms", "{:.1f} ms"),
    ("key p95", "key_done_p95_ms", "{:.1f} ms"),
)


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The medians as a Markdown table, one row a program."""
    rows = [["program", *(title for title, _, _ in COLUMNS_OF_TABLE)]]
    for name, result in results.items():
        values = (result.get(key) for _, key, _ in COLUMNS_OF_TABLE)
        formats = (form for _, _, form in COLUMNS_OF_TABLE)
        rows.append([name, *("—" if v is None else form.format(v) for v, form in zip(values, formats, strict=True))])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    rows.insert(1, ["-" * width for width in widths])
    padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in padded)


def measure(programs: Sequence[Program], settings: Settings, starts: int, runs: int) -> dict[str, Any]:
    """All programs by turns, so that what the machine does meanwhile hits each alike. One that fails is reported so."""
    started: dict[str, list[Start]] = {program.name: [] for program in programs}
    ran: dict[str, list[Run]] = {program.name: [] for program in programs}
    errors: dict[str, str] = {}
    for number in range(-1, starts + runs):
        for program in programs:
            if program.name in errors:
                continue
            try:
                if number < 0:
                    start_once(program, settings)
                elif number < starts:
                    started[program.name].append(start_once(program, settings))
                else:
                    print(f"{program.name}: run {number - starts + 1} of {runs}", file=sys.stderr, flush=True)
                    ran[program.name].append(run_once(program, settings))
            except (AssertionError, OSError, RuntimeError, psutil.Error) as error:
                errors[program.name] = str(error)
                print(f"{program.name}: {error}", file=sys.stderr, flush=True)
    return {
        "machine": machine(),
        "settings": asdict(settings) | {"starts": starts, "runs": runs},
        "programs": {
            program.name: {
                "command": list(program.argv),
                "median": summary(started[program.name], ran[program.name]),
                "runs": [asdict(run) for run in ran[program.name]],
                **({"error": errors[program.name]} if program.name in errors else {}),
            }
            for program in programs
        },
    }


def add_settings(parser: argparse.ArgumentParser) -> None:
    """The options that all benchmarks share."""
    parser.add_argument("--window", type=float, default=30.0, help="seconds watched in each run (official: 60)")
    parser.add_argument("--settle", type=float, default=5.0, help="seconds between the first data and the window")
    parser.add_argument("--starts", type=int, default=4, help="starts measured besides the runs")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--keys", type=int, default=Settings.keys, help="keys pressed in each run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all numbers, each run's too")


def settings_of(options: argparse.Namespace) -> Settings:
    """The settings of the options of ``add_settings``."""
    return Settings(window=options.window, settle=options.settle, keys=options.keys)


def main() -> int:
    """Measure the one program of the command line."""
    parser = argparse.ArgumentParser(description="Measure a terminal program in a pseudo-terminal of 160×48.")
    parser.add_argument("--ready", required=True, help="pattern on the screen once it shows data")
    parser.add_argument("--name", help="its name in the table")
    add_settings(parser)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    program = Program(options.name or Path(options.command[0]).name, tuple(options.command), re.compile(options.ready))
    result = measure([program], settings_of(options), options.starts, options.runs)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    print(table({name: entry["median"] for name, entry in result["programs"].items()}))
    return 1 if any("error" in entry for entry in result["programs"].values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
