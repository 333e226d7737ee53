#!/usr/bin/env python3
"""Time and memory that it takes to read large logs: as events, and as the state at a time.

    benchmarks/log_reader.py --size 1024 [--kind both|control|server|dense] [--keep DIR]

Makes logs of that many MiB in a temporary directory (days of clients that come and go, a ``ps`` each second with 46
rows; ``dense``: a hundred short clients a second, without a pause), reads them in a process of its own and prints one
JSON object. ``command`` is ``mpstui events --json`` from exec to exit, ``grep`` beside it counts lines of the same
files: ``cpu_seconds`` are user and system time with all processes that it made, ``peak_mib`` is of the largest of them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

MIB = 1 << 20
START = 1_790_000_000.0
UUID = "GPU-51dbd800-8a65-a8fc-d0ec-7abe3f1ec476"
_DAEMON, _SERVER = 480, 634


def stamp(now: float, tag: str, pid: int) -> str:
    """The head of a line."""
    whole = int(now)
    return f"[{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(whole))}.{int(now * 1000) % 1000:03d} {tag} {pid:5d}] "


def control_lines() -> Iterator[str]:
    """A daemon's start, then a ``ps`` each second and the knocks of a client every third."""
    now, client = START, 1000
    head = stamp(now, "Control", _DAEMON)
    yield f"{head}Starting control daemon using socket /tmp/mps_0/control\n"
    yield f"{head}CUDA MPS Control binary version: 13000\n"
    yield f"{head}NEW SERVER {_SERVER}: Ready\n"
    while True:
        head = stamp(now, "Control", _DAEMON)
        for text in ("Accepting connection...", "NEW UI", "Cmd:ps"):
            yield f"{head}{text}\n"
        yield f"{head}PID       ID        SERVER         DEVICE                    NAMESPACE      COMMAND        \n"
        for row in range(46):
            yield f"{head}{client + row:<10}{row:<10}{_SERVER:<15}{UUID[:22]:<26}4026531836     /tmp/client    \n"
        yield f"{head}UI closed\n"
        if client % 3 == 0:
            for text in ("Accepting connection...", "User did not send valid credentials", "Accepting connection..."):
                yield f"{head}{text}\n"
            for _ in range(2):
                yield f"{head}NEW CLIENT {client} from user 0: Server already exists\n"
        client = 1000 + (client - 999) % 30000
        now += 1.0


def server_lines() -> Iterator[str]:
    """A server's start, then a client each third second that works for a minute."""
    now, client = START, 0
    head = stamp(now, "Other", _SERVER)
    yield f"{head}Startup\n"
    yield f"{head}Active Threads Percentage set to 100.0\n"
    yield f"{head}Server has started\n"
    while True:
        head = stamp(now, "Server", _SERVER)
        pid, gone = 1000 + client % 30000, 1000 + (client - 20) % 30000
        yield f"{head}Received new client request for {{PID: {pid}, Context ID: 0}}\n"
        yield f"{head}Client {{PID: {pid}, Context ID: 0}} connected\n"
        yield f"{head}Creating worker thread for client {{PID: {pid}, Context ID: 0}}\n"
        yield f"{head}Received new client request for {{PID: {pid}, Context ID: 0}}\n"
        yield f"{head}Client {{PID: {pid}, Context ID: 1}} connected\n"
        yield f"{head}Creating worker thread for client {{PID: {pid}, Context ID: 1}}\n"
        yield f"{head}Device NVIDIA H100 80GB HBM3 (uuid {UUID}) is associated\n"
        yield f"{head}Status of client {{PID: {pid}, Context ID: 1}} is ACTIVE\n"
        if client >= 20:
            lost = "Server failed to recevie command with status 806, assuming client"
            yield f"{head}{lost} {{PID: {gone}, Context ID: 1}} exit\n"
            yield f"{head}Client {{PID: {gone}, Context ID: 1}} exiting. Number of active client contexts is 19.\n"
            yield f"{head}{lost} {{PID: {gone}, Context ID: 0}} exit\n"
            yield f"{head}Client process {gone} disconnected\n"
        client += 1
        now += 3.0


def dense_lines() -> Iterator[str]:
    """A server with a hundred short clients a second, 46 of them at a time: an event in nearly every second line."""
    now, client = START, 0
    head = stamp(now, "Other", _SERVER)
    yield f"{head}Startup\n"
    yield f"{head}Server has started\n"
    while True:
        head = stamp(now, "Server", _SERVER)
        pid, gone = 1000 + client % 30000, 1000 + (client - 46) % 30000
        yield f"{head}Received new client request for {{PID: {pid}, Context ID: 0}}\n"
        yield f"{head}Client {{PID: {pid}, Context ID: 0}} connected\n"
        yield f"{head}Creating worker thread for client {{PID: {pid}, Context ID: 0}}\n"
        yield f"{head}Device NVIDIA H100 80GB HBM3 (uuid {UUID}) is associated\n"
        yield f"{head}Status of client {{PID: {pid}, Context ID: 1}} is ACTIVE\n"
        if client >= 46:
            yield f"{head}Client {{PID: {gone}, Context ID: 1}} exiting. Number of active client contexts is 45.\n"
            yield f"{head}Client process {gone} disconnected\n"
        client += 1
        now += 0.01


def write(path: Path, lines: Iterator[str], size: int) -> None:
    """Lines until the file has ``size`` bytes."""
    written = 0
    with path.open("w", buffering=MIB) as out:
        for line in lines:
            out.write(line)
            written += len(line)
            if written >= size:
                return


def cpu_seconds() -> float:
    """User and system time of this process and of those that it has made and waited for."""
    return sum(os.times()[:4])


def read(folder: Path, what: str) -> dict[str, object]:
    """Reads the logs in this very process."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from mpstui.history.postmortem import state_at
    from mpstui.history.reader import LogHistory

    begin, cpu = time.perf_counter(), cpu_seconds()
    if what == "events":
        history = LogHistory(folder)
        count = sum(1 for _ in history.events())
        history.close()
    elif what == "late":
        newest = folder / "server.log" if (folder / "server.log").exists() else folder / "control.log"
        with newest.open("rb") as file:
            file.seek(-200, 2)
            line = file.read().splitlines()[-1]
        when = time.mktime(time.strptime(line[1:20].decode(), "%Y-%m-%d %H:%M:%S"))
        begin, cpu = time.perf_counter(), cpu_seconds()
        history = LogHistory(folder)
        count = sum(1 for _ in history.events(since=when - 3600))
        history.close()
    else:
        count = sum(1 for daemon in state_at(folder).daemons for _ in daemon.clients())
    return {
        "what": what,
        "seconds": round(time.perf_counter() - begin, 2),
        "cpu_seconds": round(cpu_seconds() - cpu, 2),
        "found": count,
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def whole(what: str, command: list[str]) -> dict[str, object]:
    """A command from exec to exit. What mpstui prints is thrown away; grep, which saw that, would look no further."""
    begin = time.perf_counter()
    stdout = subprocess.PIPE if what == "grep" else subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=stdout, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "what": what,
        "seconds": round(time.perf_counter() - begin, 2),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 2),
        "exit": process.returncode,
        "peak_mib": round(usage.ru_maxrss / 1024, 1),
    }


def main() -> int:
    """Make, read, print."""
    parser = argparse.ArgumentParser(description="Time to read large logs.")
    parser.add_argument("--size", type=int, default=1024, metavar="MIB", help="of all logs together (default 1024)")
    parser.add_argument("--kind", choices=("both", "control", "server", "dense"), default="both")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make the logs there and leave them")
    parser.add_argument("--whole", action="store_true", help="the commands alone, not the readings of the library")
    parser.add_argument("--inside", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(read(Path(options.inside[0]), options.inside[1])))
        return 0
    folder = options.keep or Path(tempfile.mkdtemp(prefix="mpstui-logs-"))
    folder.mkdir(parents=True, exist_ok=True)
    kinds = ("control", "server") if options.kind == "both" else (options.kind,)
    makers = {"control": control_lines, "server": server_lines, "dense": dense_lines}
    try:
        for kind in kinds:
            write(
                folder / f"{'server' if kind == 'dense' else kind}.log",
                makers[kind](),
                options.size * MIB // len(kinds),
            )
        size = sum(file.stat().st_size for file in folder.iterdir())
        files = [str(file) for file in folder.iterdir()]
        results = [
            whole("grep", ["grep", "-c", "is ACTIVE", *files]),
            whole("command", [sys.executable, "-m", "mpstui", "events", "--json", "--log-dir", str(folder)]),
        ]
        for what in () if options.whole else ("events", "state", "late"):
            command = [sys.executable, __file__, "--inside", str(folder), what]
            results.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
        print(json.dumps({"kind": options.kind, "mib": round(size / MIB), "readings": results}, indent=1))
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
