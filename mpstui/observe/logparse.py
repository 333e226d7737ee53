"""A line of control.log or server.log in, events out; pure, one parser object a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from mpstui.core.model import Event
from mpstui.observe.controllines import ControlLines
from mpstui.observe.logline import LINE_BYTES, Clock, Line
from mpstui.observe.serverlines import ServerLines

LogKind = Literal["control", "server"]


class LogParser:
    """Turns the lines of one log file into events.

    Lines known to say nothing new give no event; lines never seen before give one of kind ``unknown``. Groups of lines
    (a fatal fault) give their event when the group is over: call :meth:`flush` when no more lines are there.

    A client chooses its argv[0], and ``ps`` copies it into control.log (facts 8 and 10): it can hold a line break and
    something that looks like a log line. So answers to commands are not read as log lines, and what ends the answer to
    a ``ps`` has to carry the daemon's PID and a time that fits (see :class:`ControlLines`). What remains possible is a
    wrong history, never a wrong membership: that is believed only with ``get_client_list`` or NVML.
    """

    __slots__ = ("_clock", "_control", "_head", "_parts", "_server")

    def __init__(self, kind: LogKind) -> None:
        self._clock = Clock()
        self._head, self._parts = b"", (0.0, b"", 0)
        self._control = ControlLines() if kind == "control" else None
        self._server = ServerLines() if kind == "server" else None

    @property
    def version(self) -> str | None:
        """The control binary's version, where control.log has said it."""
        return self._control.version if self._control else None

    def become(self, other: LogParser) -> None:
        """Goes on where ``other``, which is not used any more, has stopped."""
        for name in self.__slots__:
            setattr(self, name, getattr(other, name))

    def live(self, clock: Callable[[], float]) -> None:
        """From here on lines are fed as they are written; ``clock`` gives seconds that only grow."""
        if self._control:
            self._control.clock = clock

    def feed(self, raw: bytes) -> list[Event]:
        """Events that ``raw``, one line without its line break, completes."""
        text = raw.find(b"] ", 30, 64) + 2
        if text > 1 and (self._control or self._server).skips(raw, text):  # type: ignore[union-attr]
            return []  # four lines of five: not worth taking apart
        line = self._split(raw)
        if self._control is not None:
            return self._control.feed(line) if line else self._control.bare(raw)
        assert self._server is not None  # noqa: S101 - one of the two is there, by construction
        return self._server.feed(line) if line else self._server.bare(raw)

    def feed_all(self, block: bytes) -> Iterator[Event]:
        """Events of a block of whole lines, each with its line break: what :meth:`feed` tells of one after the other,
        but lines that tell nothing are passed over before they are cut apart."""
        if self._server is not None:
            yield from self._server.feed_all(block, self._clock, self.feed)
            return
        assert self._control is not None  # noqa: S101 - one of the two is there, by construction
        at, control = 0, self._control
        while (at := control.next_line(block, at)) < len(block):
            end = block.index(b"\n", at)
            if events := self.feed(block[at : min(end, at + LINE_BYTES)]):
                yield from events
            at = end + 1

    @property
    def gathers(self) -> bool:
        """Whether a group of lines is being told."""
        return self._server is not None and self._server.gathers

    def flush(self) -> list[Event]:
        """Events of a group that no other line has ended yet."""
        return self._server.flush() if self._server else []

    def _split(self, raw: bytes) -> Line | None:
        if raw[:1] != b"[" or raw[24:25] != b" ":
            return None
        end = raw.find(b"]", 25, 64)
        if end < 0:
            return None
        try:
            if raw[:end] != self._head:  # lines come in groups of the same moment
                tag, _, pid = raw[25:end].rpartition(b" ")
                self._parts = self._clock.read(raw[1:24]), tag.rstrip(), int(pid)
                self._head = raw[:end]
            return Line(*self._parts, raw[end + 2 :], raw)
        except (ValueError, OverflowError):
            return None
