"""Recorded logs through parser and reducer, up to a given time of the day."""

from __future__ import annotations

import time
from pathlib import Path

from mpstui.control.grammar import LogParser
from mpstui.core.model import Daemon, ProcessKey, Snapshot
from mpstui.core.trust import Speaker
from mpstui.observe.discovery import Place
from mpstui.observe.reducer import NodeState, Watching

DATA = Path(__file__).parent.parent / "data"
PIPE = Path("/tmp/mps_0")
ORDER = {"control": 0, "server": 1}


def at(clock: str, day: str = "2026-11-20") -> float:
    """Epoch seconds of ``21:29:12.195`` on the day of the recordings, in local time as the logs are."""
    base, _, milli = clock.partition(".")
    return time.mktime(time.strptime(f"{day} {base}", "%Y-%m-%d %H:%M:%S")) + float(f"0.{milli or 0}")


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().split(b"\n")


def events(kind, raw):
    parser = LogParser(kind)
    found = [event for line in raw for event in parser.feed(line)]
    return [*found, *parser.flush()]


def running(pid: int = 480) -> Place:
    return Place(PIPE, "running", None, ProcessKey(pid, 1), speaker=Speaker(0, "root's daemon"))


def fold(until: str, control=(), server=(), node: NodeState | None = None) -> NodeState:
    """A node that has read these log lines up to and including ``until``."""
    node = node or NodeState("gpu-07")
    limit = at(until) + 0.0005
    told = [
        (e.time, ORDER[kind], e, kind)
        for kind, raw in (("control", control), ("server", server))
        for e in events(kind, raw)
    ]
    if PIPE not in node.watched:
        node.set_places([running()])
    node.set_watching(PIPE, Watching("logs"))
    for when, _, event, kind in sorted((t for t in told if t[0] is not None), key=lambda t: t[:2]):
        if when <= limit:
            node.add_event(PIPE, event, kind, when)
    return node


def shot(node: NodeState, clock: str) -> tuple[Snapshot, Daemon]:
    snapshot = node.snapshot(at(clock))
    return snapshot, snapshot.daemons[0]
