"""What supervisor and worker say to each other: an order first, then JSON lines both ways, folded into a report."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any, Final, cast

from mpstui.core.late import dataclass
from mpstui.core.text import printable
from mpstui.load.types import Computation, PooledContext, WorkerError, WorkerReport, WorkerState

LINE_LIMIT: Final = 1 << 20
"""Bytes of a line; a worker's longest, with the processes of a command, is some KB."""
_TEXT_LIMIT: Final = 400
_ITEMS: Final = 4096


@dataclass(frozen=True, slots=True)
class Order(Computation):
    """The first line to a worker: what it is to do. ``clients``: how many share the device's memory."""

    parent: int = 0
    """PID of the supervisor, whose end is the worker's."""
    sms: int | None = None
    """By execution affinity; None: as many as there are."""
    pool: tuple[int, ...] = ()
    """SM counts of the contexts that it makes ahead."""
    memory_limited: bool = False
    """Whether its environment has a memory limit."""

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Order:
        """Raises ValueError where the line is no order."""
        try:
            values = json.loads(line)
            given = {"kernel": values["kernel"], "parent": values["parent"]}
            known = given | {f.name: values[f.name] for f in fields(cls) if f.name in values}
            known["command"] = tuple(str(word) for word in known.get("command", ()))
            known["pool"] = tuple(int(sms) for sms in known.get("pool", ()))
            return cls(**known)
        except (TypeError, AttributeError, KeyError) as error:
            raise ValueError("not an order") from error


def encode(kind: str, values: Mapping[str, Any]) -> bytes:
    """One line of either side."""
    return json.dumps({"type": kind, **values}).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any] | None:
    """The message of a line, or None for one that is none: what a library printed, say."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) and isinstance(message.get("type"), str) else None


_STATES: Final[dict[str, WorkerState]] = {"ready": "ready", "running": "running", "end": "ended", "error": "failed"}
_NUMBERS: Final = ("figure", "done", "running_seconds", "switch_seconds", "time", "latency_p50", "latency_p99")
_INTEGERS: Final = ("launches", "copied", "sms", "memory", "device_sms")
_FLAGS: Final = ("affinity", "mps", "simulated")
_TEXTS: Final = ("device_uuid", "device_name", "unit", "no_metric")


def fold(report: WorkerReport, message: Mapping[str, Any]) -> WorkerReport:
    """The report after the message. Values of the wrong type are left out: a worker that went wrong is shown as far
    as it makes sense, and never takes the screen with it."""
    changes: dict[str, Any] = {}
    for name in _NUMBERS:
        if isinstance(value := message.get(name), (int, float)) and not isinstance(value, bool):
            changes[name] = float(value)
    for name in _INTEGERS:
        if isinstance(value := message.get(name), int) and not isinstance(value, bool):
            changes[name] = value
    for name in _FLAGS:
        if isinstance(value := message.get(name), bool):
            changes[name] = value
    for name in _TEXTS:
        if isinstance(value := message.get(name), str):
            changes[name] = printable(value, _TEXT_LIMIT)
    changes |= _lists(message)
    if isinstance(pool := message.get("pool"), list):
        changes["pool"] = tuple(_pooled(entry) for entry in pool[:_ITEMS] if isinstance(entry, dict))
    if isinstance(note := message.get("note"), str):
        changes["notes"] = (*report.notes, printable(note, _TEXT_LIMIT))[-8:]
    if (state := _STATES.get(str(message["type"]))) is not None:
        changes["state"] = state
    if message["type"] == "error":
        changes["error"] = _error(message)
    return replace(report, **changes)


def _lists(message: Mapping[str, Any]) -> dict[str, Any]:
    """Bounded, without what is no number of theirs."""
    changes: dict[str, Any] = {}
    if isinstance(levels := message.get("levels"), list):
        changes["levels"] = tuple(sorted(level for level in levels[:_ITEMS] if isinstance(level, int)))
    if isinstance(pids := message.get("pids"), list):
        changes["pids"] = tuple(pid for pid in pids[:_ITEMS] if isinstance(pid, int) and pid > 0)
    if isinstance(metrics := message.get("metrics"), list):
        found = (float(each) for each in metrics[:_ITEMS] if isinstance(each, (int, float)))
        changes["metrics"] = tuple(each for each in found if math.isfinite(each))
    return changes


def _pooled(entry: Mapping[str, Any]) -> PooledContext:
    values = [entry.get(name) for name in ("sms", "seconds", "size")]
    sms, seconds, size = (cast(float, v) if isinstance(v, (int, float)) else 0 for v in values)
    return PooledContext(int(sms), float(seconds), int(size))


def _error(message: Mapping[str, Any]) -> WorkerError:
    code = message.get("code")
    words = [printable(str(message.get(name, "")), _TEXT_LIMIT) for name in ("text", "remedy", "name", "kind")]
    return WorkerError(
        words[0] or "ended without a word", words[1], code if isinstance(code, int) else None, words[2], words[3]
    )
