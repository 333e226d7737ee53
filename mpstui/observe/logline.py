"""What the two log parsers share: the parts of a line, and how an event is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from mpstui.model import EMPTY, Event, EventKind
from mpstui.text import format_size, printable

_MAX_RAW: Final = 300


class Line(NamedTuple):
    """The parts of ``[2026-11-20 21:24:28.598 Control   480] text``."""

    time: float
    tag: bytes
    pid: int
    text: bytes
    raw: bytes


def raw_text(line: bytes) -> str:
    """The line as it may be shown; plain ASCII, which nearly every line is, takes the short way."""
    if len(line) <= _MAX_RAW and line.isascii():
        text = line.decode("ascii")
        if text.isprintable():
            return text
    return printable(line, _MAX_RAW)


def make_event(
    line: Line,
    kind: EventKind,
    detail: str,
    *,
    server: int | None = None,
    pid: int | None = None,
    context: int | None = None,
    devices: tuple[str, ...] = (),
    uid: int | None = None,
    values: Mapping[str, str] = EMPTY,
) -> Event:
    """An event at the time of ``line``, with the line as its proof."""
    return Event(kind, line.time, None, server, pid, context, devices, detail, raw_text(line.raw), uid, values)


def unknown(line: Line, server: int | None = None) -> list[Event]:
    """A line that nobody has seen before: shown as it is, never dropped."""
    return [make_event(line, "unknown", raw_text(line.text), server=server)]


def number(text: bytes) -> int | None:
    """A PID or another whole number of at most 19 digits; None for anything else."""
    return int(text) if text.isdigit() and len(text) <= 19 else None


def memory_limit(
    line: Line, scope: str, server: int | None, device: str, size: int, command: str | None = None
) -> Event:
    """A pinned memory limit was set; ``size`` in bytes, 0 where it was taken away (fact 26)."""
    whom = "default" if server is None else f"server {server}:"
    values = {"what": "pinned_mem_limit", "scope": scope, "value": str(size), "device": device}
    if command:
        values["command"] = command
    becomes = f"set to {format_size(size)}" if size else "taken away"
    detail = f"{whom} pinned memory limit of device {device} {becomes}"
    return make_event(line, "limit_set", detail, server=server, devices=(device,), values=values)
