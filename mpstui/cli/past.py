"""The options of ``events``, ``activity``, ``doctor`` and ``status --at``, and whether logs alone are to be read."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any, Final, get_args

from mpstui.cli.arguments import add_refresh, between, pid
from mpstui.core.activity import CAVEAT
from mpstui.core.model import EventKind
from mpstui.core.text import printable, size_hint, typed_size, unprintable
from mpstui.history.times import parse_time

DRILLS: Final = ("fault", "blocked", "held", "pending", "full", "stale", "nostart")
"""Scenarios of the simulated node in which something is wrong."""
MODES: Final = ("static", "v3")
"""Scenarios of daemons in other modes."""
NODES: Final = ("demo", "crowd", *DRILLS, *MODES)
"""What ``--demo=`` takes."""
LONGEST_LOOK: Final = 600.0
"""Seconds of ``activity``."""


def add_events(commands: Any, node: argparse.ArgumentParser) -> None:
    """The options of ``events``."""
    events = commands.add_parser(
        "events",
        parents=[node],
        help="what happened, from the logs",
        description="What happened, from the logs, oldest first. With --log-dir and without --pipe-dir no daemon is "
        "needed: logs of a dead or distant node will do. A daemon that was started with -f has no log files: its log "
        "is its standard output, which “-” and --journal read.",
        epilog="example: kubectl logs mps-daemon | mpstui events -",
    )
    events.add_argument(
        "stream", nargs="?", choices=("-",), metavar="-", help="read the output of a daemon started with -f from stdin"
    )
    events.add_argument("--journal", metavar="UNIT", help="read it from the journal of this systemd unit")
    events.add_argument("--json", action="store_true", help="print one JSON object a line")
    events.add_argument("--follow", action="store_true", help="go on with what is written, until interrupted")
    events.add_argument("--since", type=_time, metavar="T", help="10m, 21:29:12, 2026-11-20T21:29:12; default: all")
    events.add_argument(
        "--kind",
        action="append",
        choices=get_args(EventKind),
        metavar="KIND",
        help="only this kind; may be repeated",
    )
    events.add_argument(
        "--all",
        action="store_true",
        help="also control sessions and the commands sent in them, which are left out otherwise, with --json too",
    )
    events.add_argument("--client", type=pid, metavar="PID", help="only events of this process")


def add_suspects(commands: Any, node: argparse.ArgumentParser) -> None:
    """The options of ``suspects``."""
    suspects = commands.add_parser(
        "suspects",
        parents=[node],
        help="which clients ran at each fatal fault",
        description="Compares all fatal faults in the logs and ranks users and commands by the number of faults at "
        "which they had a client. The client that server.log names is not proof: with busy neighbours it often names "
        "the wrong one.",
        epilog="example: mpstui suspects --since 7d",
    )
    suspects.add_argument("--json", action="store_true", help="print JSON")
    suspects.add_argument("--since", type=_time, metavar="T", help="7d, 21:29:12, 2026-11-20T21:29:12; default: all")


def add_activity(commands: Any, node: argparse.ArgumentParser) -> None:
    """The options of ``activity``."""
    parser = commands.add_parser(
        "activity",
        parents=[node],
        help="who launches kernels: all clients at once, counted from outside",
        description="Counts the kernel launches of all clients, and of those that compute without MPS, for a moment; "
        f"no client is changed or needs to be. {CAVEAT} Needs root, or CAP_BPF and CAP_PERFMON.",
        epilog="example: mpstui activity --seconds 5",
    )
    parser.add_argument(
        "--seconds", type=between(0.1, LONGEST_LOOK), default=2.0, metavar="S", help="how long is counted (default 2)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_why(commands: Any, node: argparse.ArgumentParser) -> None:
    """The options of ``why`` and ``explain``."""
    why = commands.add_parser(
        "why",
        parents=[node],
        help="why a process is not a client of MPS, or cannot become one",
        description="Looks at what a process sees: its environment, its root, its namespaces, its user and "
        "its devices, beside the daemons that run. Nothing is run, and nothing is changed. "
        "Exit status: 0 told · 2 no such process · 5 its environment cannot be read.",
        epilog="example: mpstui why 4711",
    )
    why.add_argument("pid", type=pid, metavar="PID", help="its process id, as it is here")
    why.add_argument("--json", action="store_true", help="print JSON")
    explain = commands.add_parser(
        "explain",
        help="what an error of CUDA means under MPS",
        epilog="example: mpstui explain cudaErrorMpsClientTerminated",
    )
    explain.add_argument("code", nargs="?", metavar="CODE", help="its number or name; without it: all that are known")
    explain.add_argument("--json", action="store_true", help="print JSON")


def add_past(status: argparse.ArgumentParser) -> None:
    """The option of ``status`` that asks for a past state."""
    status.add_argument(
        "--at", type=_time, metavar="T", help="the state at that time, from the logs: 10m, 2026-11-20T21:29:12"
    )


def add_record(commands: Any, node: argparse.ArgumentParser) -> None:
    """The options of ``record`` and ``replay``."""
    record = commands.add_parser(
        "record",
        parents=[node],
        help="write down all that is seen of the node, for replay",
        description="Writes down what the node's logs, NVML, /proc and the daemons' answers tell, until it is "
        "interrupted. FILE is for you alone (0600): it has users and commands in it, unless --mask is given. An older "
        "recording of yours is continued. When it is full, it becomes FILE.1, that FILE.2, and so on.",
        epilog="example: mpstui record /var/tmp/night.mps",
    )
    record.add_argument("file", type=_file, metavar="FILE", help="as night.mps")
    record.add_argument("--for", dest="seconds", type=_span, metavar="T", help="how long: 90s, 10m, 8h")
    record.add_argument(
        "--max-size", type=_bytes, default=256 << 20, metavar="N", help="of all parts together: 64M, 1G (default 256M)"
    )
    record.add_argument(
        "--max-age", type=_span, default=7 * 86400.0, metavar="T", help="older parts are deleted (default 7d)"
    )
    add_refresh(record, of_command=True)
    record.add_argument(
        "--mask",
        action="store_true",
        help="to give away: users are user1, user2, …, the machine is host; commands, containers, pods, jobs and home "
        "directories are masked. FILE must be new",
    )
    replay = commands.add_parser(
        "replay",
        help="the screen on a recording",
        description="Plays a recording of mpstui record on the screen. Nothing of this machine is looked at, and "
        "nothing can be changed. < and > step through events, { and } through minutes, T goes to a time, F stops and "
        "plays, End goes to the end.",
        epilog="example: mpstui replay night.mps --speed 10",
    )
    replay.add_argument("file", type=_file, metavar="FILE", help="as night.mps")
    replay.add_argument(
        "--speed", type=_speed, default=1.0, metavar="N", help="speed: 0.1 to 1000 times; 0 stays at the end"
    )


def _file(text: str) -> Path:
    if not text or text == "-":
        raise argparse.ArgumentTypeError("a file is needed")
    if (problem := unprintable(os.path.abspath(text))) is not None:
        raise argparse.ArgumentTypeError(problem)
    return Path(text).absolute()


def _span(text: str) -> float:
    try:
        value = time.time() - parse_time(text, time.time()) if text[-1:] in "smhd" else 0.0
    except ValueError:
        value = 0.0
    if not 0.5 <= value <= 366 * 86400:
        raise argparse.ArgumentTypeError(f"{printable(text, 40)!r} is no span of time: write 90s, 10m, 8h or 7d")
    return round(value, 1)


def _bytes(text: str) -> int:
    size = typed_size(text)
    if size is None or not 1 << 20 <= size <= 1 << 40:
        hint = f"; {told}" if (told := size_hint(text)) else ""
        raise argparse.ArgumentTypeError(f"{printable(text, 40)!r} is not 1M to 1024G{hint}")
    return size


def _speed(text: str) -> float:
    return 0.0 if text.strip() == "0" else between(0.1, 1000, "times as fast")(text)


def add_doctor(commands: Any, node: argparse.ArgumentParser) -> None:
    """The options of ``doctor``."""
    doctor = commands.add_parser(
        "doctor",
        parents=[node],
        help="check the node's MPS set-up",
        description="Checks the set-up of MPS on this node and says what to do about it; changes nothing. "
        "With --log-dir and without --pipe-dir these logs are examined, and nothing of this machine. "
        "Exit status: 0 every check is ok or could not be made \u00b7 1 a warning or an error \u00b7 2 usage.",
        epilog="example: mpstui doctor --bundle mps.tar.gz",
    )
    doctor.add_argument("--json", action="store_true", help="print JSON")
    doctor.add_argument(
        "--bundle",
        metavar="FILE",
        help="write a support archive (.tar.gz) too: findings, versions, the logs' ends; users and commands masked",
    )
    doctor.add_argument("--unmasked", action="store_true", help="with --bundle: leave users and commands readable")


def add_demo(group: Any) -> None:
    """``--demo`` and ``--demo=NAME``; a name apart from it would be taken for the command."""
    group.add_argument(
        "--demo",
        action="store_const",
        const="demo",
        help="work on a simulated node, started for this and ended with it; --demo=NAME for one on which something is "
        f"wrong: {', '.join(DRILLS)}; or of a daemon in another mode: {', '.join(MODES)}",
    )
    for name in NODES:
        group.add_argument(f"--demo={name}", dest="demo", action="store_const", const=name, help=argparse.SUPPRESS)


def logs_alone(options: argparse.Namespace) -> list[Path]:
    """The log directories to read without a daemon; empty where one is meant."""
    if getattr(options, "demo", None) or getattr(options, "pipe_dir", None):
        return []
    return [Path(path).absolute() for path in getattr(options, "log_dir", None) or ()]


def wants_past(options: argparse.Namespace) -> bool:
    """Whether ``status`` is asked for a state from logs."""
    return options.command == "status" and (options.at is not None or bool(logs_alone(options)))


def _time(text: str) -> float:
    try:
        return parse_time(text, time.time())
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
