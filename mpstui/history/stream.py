"""Both logs of a daemon in one stream: its standard output, as the journal or a container's log keeps it (fact 47)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from mpstui.control.grammar import LINE_BYTES, LogKind
from mpstui.control.protocol import LEGACY
from mpstui.core.late import pattern
from mpstui.core.model import Event
from mpstui.history.reader import KINDS, Telling
from mpstui.observe.state import DaemonState

_STAMPED: Final = pattern(rb"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} +([A-Za-z][A-Za-z ]{0,40}?) +\d{1,10}\] ")
_PREFIXES: Final = (
    rb"",
    rb"\d{4}-\d\d-\d\dT[^ ]{8,30} (?:(?:stdout|stderr) [FP] )?",  # a container's, with and without the CRI's words
    rb"[\w.-]{1,100} {1,40}\| ",  # docker compose's
    rb"\[pod/[^\]\s]{1,300}\] (?:\d{4}-\d\d-\d\dT[^ ]{8,30} )?",  # kubectl logs --prefix
    rb"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [^ ]{1,255} [^ ]{1,80}: ",  # the journal's and syslog's
)
"""What may stand before each line. Which of them does is told by the first line: further down a client could have
chosen what a line begins with (fact 10)."""


class StreamHistory(Telling):
    """The events of a stream, as its lines come."""

    def __init__(self) -> None:
        super().__init__(DaemonState(Path()))
        self._parsers = {kind: LEGACY.log_parser(kind) for kind in KINDS}
        self._kind: LogKind = "control"
        self._prefix: re.Pattern[bytes] | None = None

    def events(self, chunks: Iterable[bytes], since: float | None = None) -> Iterator[Event | None]:
        """Events from ``since`` on, seconds since the epoch; None behind each of the ``chunks``, which end anywhere."""
        time, rest, cut = 0.0, b"", False
        for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            for number, line in enumerate(lines):
                if not (cut and number == 0):  # the end of a line that was too long
                    time, told = self._events(line[:LINE_BYTES], time)
                    yield from (event for event in told if since is None or (event.time or time) >= since)
            cut = cut and not lines
            if len(rest) > LINE_BYTES and not cut:
                _, told = self._events(rest[:LINE_BYTES], time)
                yield from (event for event in told if since is None or (event.time or time) >= since)
                cut = True
            rest = b"" if cut else rest
            yield None
        ending = self._events(rest, time)[1] if rest else []
        last = [each for kind in KINDS for event in self._parsers[kind].flush() for each in self._tell(kind, event)]
        yield from (event for event in (*ending, *last) if since is None or (event.time or time) >= since)

    def _events(self, line: bytes, time: float) -> tuple[float, list[Event]]:
        """The time of the line, or the one before, and what it tells."""
        line = self._stripped(line.removesuffix(b"\r"))
        if found := _STAMPED.match(line):
            # In the midst of an answer that a client may have chosen, nothing is the server's.
            answering = self._parsers["control"].answering
            self._kind = "control" if found[1] == b"Control" or answering else "server"
        told: list[Event] = []
        for event in self._parsers[self._kind].feed(line):
            time = event.time if event.time is not None else time
            told += self._tell(self._kind, event)
        place = self.state.pipe_dir if self.state.pipe_dir.name else None
        return time, [event._replace(pipe_dir=place) for event in told]

    def _tell(self, kind: LogKind, event: Event) -> Sequence[Event]:
        """A simulated node's mark is a file beside its logs: beside a stream there is none, whoever wrote it."""
        return [each._replace(values={**each.values, "unmarked": "1"}) for each in super()._tell(kind, event)]

    def _stripped(self, line: bytes) -> bytes:
        if self._prefix is None:
            known = (re.compile(prefix) for prefix in _PREFIXES)
            fits = (p for p in known if (found := p.match(line)) and _STAMPED.match(line, found.end()))
            self._prefix = next(fits, None)
        found = self._prefix.match(line) if self._prefix is not None else None
        return line[found.end() :] if found else line
