"""What a node has, which is all of it; the fields that somebody names; what an operation came to."""

from __future__ import annotations

from typing import Any, Final

from mpstui.core.model import (
    Snapshot,
    Source,
)
from mpstui.core.text import (
    printable,
)
from mpstui.fields.client import CLIENT
from mpstui.fields.daemon import DAEMON, LIMIT, SERVER
from mpstui.fields.device import DEVICE
from mpstui.fields.event import PROBLEM
from mpstui.fields.rows import FLAG, INTEGER, OBJECTS, PATH, SCHEMA, TEXT, TEXTS, TIME, Field, Metric, Thing, Type, enum
from mpstui.operations.types import Result

_NODE_INFO: Final = Metric("node_info", "The node: whether it is real or simulated, and its driver.", info=True)


SNAPSHOT: Final[Thing[Snapshot]] = Thing(
    "status",
    "mpstui status --json: one snapshot of the node.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda s, v: SCHEMA),
        Field(
            "time", "time", TIME, lambda s, v: s.moment, null=True,
            about="Of logs alone that of their last line; null where none has one.",
        ),
        Field(
            "source", "source", enum(Source), lambda s, v: s.source,
            metric=_NODE_INFO,
        ),
        Field("host", "host", TEXT, lambda s, v: s.host, about="The node's name."),
        Field(
            "driver_version", "driver", TEXT, lambda s, v: s.driver_version, null=True, about="As NVML names it.",
            metric=_NODE_INFO,
        ),
        Field("daemons", "daemons", OBJECTS, lambda s, v: s.daemons, of=DAEMON),
        Field("devices", "devices", OBJECTS, lambda s, v: s.devices, of=DEVICE),
        Field("problems", "problems", OBJECTS, lambda s, v: s.problems, of=PROBLEM),
    ),
    whole=True,
)  # fmt: skip


CHOICES: Final[tuple[Thing[Any], ...]] = (CLIENT, SERVER, DAEMON, DEVICE, LIMIT, PROBLEM)
"""Whose fields ``status --fields`` takes; a bare name is that of the first which has it."""


class UnknownFieldError(Exception):
    """There is no such field; the text is one line, with the nearest names."""


def choose(names: str) -> dict[str, list[str]]:
    """The fields named in ``a,b,c``; ``server.pid`` says whose where several things have one. Raises
    UnknownFieldError."""
    chosen: dict[str, list[str]] = {}
    for name in (part.strip() for part in names.split(",")):
        owner, dot, identity = name.rpartition(".")
        found = next(
            (t for t in CHOICES if owner in ({t.name} if dot else {""}) and any(f.id == identity for f in t.fields)),
            None,
        )
        if found is None:
            raise UnknownFieldError(f"there is no field “{printable(name, 60)}”{_nearest(name)}")
        if identity not in (ids := chosen.setdefault(found.name, [])):
            ids.append(identity)
    return chosen


def _nearest(name: str) -> str:
    """The fields whose names, or headings, look most like it."""
    from difflib import get_close_matches  # only where somebody has mistyped

    known: dict[str, str] = {}
    for thing in reversed(CHOICES):
        for each in thing.fields:
            known[f"{thing.name}.{each.id}"] = f"{thing.name}.{each.id}"
            for word in (each.title.lower(), each.heading().lower(), each.word, each.id):
                if word:
                    known[word] = each.id
    near = dict.fromkeys(known[word] for word in get_close_matches(name.lower()[:60], known, 5, 0.5))
    return f"; nearest: {', '.join(near)}" if near else "; “mpstui schema status” prints all"


def _carried_out(result: Any) -> bool:
    return isinstance(result, Result)


RESULT: Final[Thing[Any]] = Thing(
    "result",
    "The result of a change. The later keys are there where the daemon is known.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda r, v: SCHEMA),
        Field("done", "done", FLAG, lambda r, v: _carried_out(r) and r.done),
        Field("exit_status", "exit status", INTEGER, lambda r, v: int(r.status)),
        Field("message", "message", TEXT, lambda r, v: r.message if _carried_out(r) else str(r)),
        Field("action", "operation", TEXT, lambda r, v: r.request.action, only=_carried_out),
        Field("pipe_dir", "pipe directory", PATH, lambda r, v: r.request.pipe_dir, only=_carried_out),
        Field(
            "details", "details", TEXTS, lambda r, v: r.details, only=_carried_out,
            about="What else is known: the value read back, how each client ended.",
        ),
        Field("remedy", "remedy", TEXT, lambda r, v: r.remedy, null=True, only=_carried_out),
        Field(
            "source", "source", enum(Source), lambda r, v: "simulated" if r.simulated else "real", only=_carried_out
        ),
    ),
)  # fmt: skip
"""Of a ``Result``, or of what refused it before there was one."""
