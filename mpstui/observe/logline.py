"""What the two log parsers share: the parts of a line, and how an event is made of it."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from mpstui.core.model import EMPTY, Event, EventKind
from mpstui.core.text import format_size, printable

LINE_BYTES: Final = 64 << 10
"""The rest of a longer line is dropped: a client's name can be that long (fact 10)."""
_MAX_RAW: Final = 300


class Clock:
    """Local time of a log line to seconds since the epoch; the minute is remembered, as lines come in order."""

    __slots__ = ("_epoch", "_minute")

    def __init__(self) -> None:
        self._minute = b""
        self._epoch = 0.0

    def read(self, stamp: bytes) -> float:
        """``2026-11-20 21:24:28.598``; raises ValueError or OverflowError for anything else."""
        minute = stamp[:16]
        if minute != self._minute:
            fields = (int(minute[:4]), int(minute[5:7]), int(minute[8:10]), int(minute[11:13]), int(minute[14:16]))
            if not 1970 <= fields[0] < 9999:
                raise ValueError("a year that no calendar of every time zone has")
            self._epoch = time.mktime((*fields, 0, 0, 0, -1))
            self._minute = minute
        seconds = float(stamp[17:])
        if not 0 <= seconds < 61:
            raise ValueError("no seconds of a minute")
        return self._epoch + seconds


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


ELSEWHERE: Final = "a client in another PID namespace"
_CLIENT_0: Final = re.compile(r"\bclient 0\b")


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
    """An event at the time of ``line``, with the line as its proof. PID 0 is a process that the daemon does not see."""
    if pid == 0:
        detail, pid, values = _CLIENT_0.sub(ELSEWHERE, detail), None, {**values, "elsewhere": "1"}
    return Event(kind, line.time, None, server, pid, context, devices, detail, raw_text(line.raw), uid, values)


def unknown(line: Line, server: int | None = None) -> list[Event]:
    """A line that nobody has seen before: shown as it is, never dropped."""
    return [make_event(line, "unknown", raw_text(line.text), server=server)]


def number(text: bytes) -> int | None:
    """A PID or another whole number of at most 19 digits; None for anything else."""
    return int(text) if text.isdigit() and len(text) <= 19 else None


NOT_STARTED: Final = re.compile(rb"(?:Failed to start|MPS server failed to start)\b[ .:]*(.*)", re.DOTALL)
"""How a server says why it does not start; the second form is of 2013."""


def failed_start(line: Line, server: int | None, reason: bytes, uid: int | None = None) -> Event:
    """A server did not start; ``reason`` in its own words, which may be none."""
    words = raw_text(reason.strip())
    which = "a server" if server is None else f"server {server}"
    detail = f"{which} failed to start" + (f": {words}" if words else "")
    values = {"reason": words} if words else {}
    return make_event(line, "server_failed", detail, server=server, uid=uid, values=values)


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
