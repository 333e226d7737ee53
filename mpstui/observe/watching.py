"""Follows the two logs of one daemon: history first, then what is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from mpstui.core.model import Event
from mpstui.observe.logfile import Owners, is_there
from mpstui.observe.logparse import LogKind, LogParser
from mpstui.observe.logtail import LogTail

Told = tuple[LogKind, Event]
GROUP: Final = 0.03
"""Seconds without a line after which a group of lines is over: two looks may come closer together than the lines of one
fault are written."""
CONTROL_MARKER: Final = b"Starting control daemon using socket"
SERVER_MARKER: Final = b"] Startup"


class LogWatch:
    """control.log and server.log of ``log_dir``, where ``owners`` have written them (see ``open_log``). :meth:`history`
    may take a second: run it off the event loop."""

    def __init__(self, log_dir: Path, owners: Owners) -> None:
        self.log_dir = log_dir
        self._control = LogTail(log_dir / "control.log", CONTROL_MARKER, owners=owners)
        self._server = LogTail(log_dir / "server.log", SERVER_MARKER, owners=owners)
        self._parsers = {"control": LogParser("control"), "server": LogParser("server")}
        self._tails: tuple[tuple[LogKind, LogTail], ...] = (("control", self._control), ("server", self._server))
        self._clock: Callable[[], float] | None = None
        self._read_at = 0.0
        self.settled = True
        """Whether the last poll found nothing: else there may be more, or a group of lines that is not over."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files whose changes are of interest: whoever writes to others wakes nobody."""
        return tuple(tail.path for _, tail in self._tails if tail.believed)

    def believe(self, owners: Owners) -> None:
        """From now on whoever these are: another daemon may run, or none."""
        for _, tail in self._tails:
            tail.believe(owners)

    @property
    def version(self) -> str | None:
        return self._parsers["control"].version

    @property
    def trouble(self) -> str | None:
        """Why the logs do not tell everything, one sentence; a server.log that is still to come is no trouble."""
        if self._control.error is not None:
            return self._control.error
        if self._server.error is not None and is_there(self._server.path):
            return self._server.error
        return None

    @property
    def believed(self) -> bool:
        """False where the logs, or one of them, could have been written by somebody else."""
        return all(tail.believed for _, tail in self._tails)

    @property
    def complete(self) -> bool:
        """Whether history reaches back to the daemon's start."""
        return self._control.from_start

    def history(self) -> list[Told]:
        """Everything that is there, in the order of time."""
        told: list[Told] = []
        for kind, tail in self._tails:
            while lines := tail.poll():
                told += self._parse(kind, lines)
            told += ((kind, event) for event in self._parsers[kind].flush())
        return _ordered(told)

    def live(self, monotonic: Callable[[], float]) -> None:
        """From here on lines are read as they are written."""
        self._clock = monotonic
        for parser in self._parsers.values():
            parser.live(monotonic)

    def poll(self) -> list[Told]:
        """What was written since; costs two ``stat`` where nothing was."""
        told: list[Told] = []
        self.settled = True
        for kind, tail in self._tails:
            lines = tail.poll()
            now = self._clock() if self._clock is not None else 0.0
            if lines:
                self.settled = False
                self._read_at = now
                told += self._parse(kind, lines)
            elif self._clock is None or now - self._read_at >= GROUP or not self._parsers[kind].gathers:
                told += ((kind, event) for event in self._parsers[kind].flush())
            else:
                self.settled = False
        return _ordered(told) if len(told) > 1 else told

    def missed(self) -> bool:
        """Whether lines were left out since this was last asked, as a log grew faster than it was read."""
        skipped = [tail for _, tail in self._tails if tail.skipped]
        for tail in skipped:
            tail.skipped = False
        return bool(skipped)

    def close(self) -> None:
        for _, tail in self._tails:
            tail.close()

    def _parse(self, kind: LogKind, lines: list[bytes]) -> list[Told]:
        feed = self._parsers[kind].feed
        return [(kind, event) for line in lines for event in feed(line)]


def _ordered(told: list[Told]) -> list[Told]:
    """By time; where both logs say the same moment, the daemon's word comes first, as it acted first."""
    latest = 0.0
    keyed: list[tuple[float, int, int, Told]] = []
    for index, (kind, event) in enumerate(told):
        latest = event.time if event.time is not None else latest
        keyed.append((latest, 0 if kind == "control" else 1, index, (kind, event)))
    keyed.sort(key=lambda entry: entry[:3])
    return [entry[3] for entry in keyed]
