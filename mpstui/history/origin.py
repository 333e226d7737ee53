"""Which part of the logs in a directory a simulated node has written: its mark beside them tells."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from mpstui.control.grammar import Clock
from mpstui.core.late import pattern
from mpstui.core.model import Event, Source
from mpstui.history.files import LogFile
from mpstui.observe.logs import SIMULATED, SIMULATED_STARTS
from mpstui.system.trusted import NotTrustedError, open_trusted

Span = tuple[float, float]
"""From a moment to another, seconds since the epoch; infinite where it has no such end."""
ALWAYS: Final[Span] = (-math.inf, math.inf)
_MOST: Final = 4 << 20
_HEAD: Final = pattern(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) Control +\d{1,10}\](?= |$)")
_START: Final = pattern(rb"(?m)^(\[[^\]\n]{1,60}\]) Starting control daemon using socket ")


class Origin:
    """Who wrote the logs of a directory, by when it was written: where a simulated daemon's start stands in the log,
    it is its own until another daemon starts."""

    def __init__(
        self, log_dir: Path, files: Sequence[LogFile], control: LogFile | None, simulated: bool = False
    ) -> None:
        """``simulated``: what has no mark is too."""
        self._log_dir = log_dir
        self._files = files
        self._starts: dict[float, bool] = {}
        """Of each daemon that has started, whether it is a simulated one."""
        self.spans: tuple[Span, ...] = ()
        """When a simulated node has written them."""
        if _read(log_dir / SIMULATED) is None:
            self.spans = (ALWAYS,) if simulated else ()
            return
        if (heads := self._listed()) is None:
            self.spans = (ALWAYS,)
            return
        for head in () if control is None else _starts(control):
            self._note(head, heads)
        for head in heads:  # the line itself may have gone, with an older log
            self._note(head, heads)
        self._join()

    def source(self, moment: float | None) -> Source:
        """Whose what was written then is; of what has no time, and may be a simulated node's, it is not said that it
        is real."""
        return "simulated" if any(moment is None or begin <= moment < end for begin, end in self.spans) else "real"

    def follow(self, event: Event) -> None:
        """Takes notice of a daemon that has started since."""
        if event.kind != "daemon_started" or self.spans == (ALWAYS,) or _read(self._log_dir / SIMULATED) is None:
            return
        heads = self._listed()
        if heads is None:
            self.spans = (ALWAYS,)
            return
        found = _HEAD.match(event.raw.encode())
        if found is not None:
            self._note(found[0], heads)
            self._join()

    def since(self, moment: float | None) -> tuple[Span, ...]:
        """What of the spans is to come by then."""
        if moment is None:
            return self.spans
        return tuple((-math.inf if begin <= moment else begin, end) for begin, end in self.spans if end > moment)

    def _listed(self) -> frozenset[bytes] | None:
        """How the line begins with which each simulated daemon has started; None where that is not known."""
        data = _read(self._log_dir / SIMULATED_STARTS)
        return None if data is None else frozenset(line for line in data.split(b"\n") if _HEAD.fullmatch(line))

    def _note(self, head: bytes, heads: Iterable[bytes]) -> None:
        found = _HEAD.fullmatch(head)
        try:
            moment = Clock().read(found[1]) if found is not None else None
        except (ValueError, OverflowError):
            return
        if moment is not None:
            self._starts[moment] = self._starts.get(moment, False) or head in heads

    def _join(self) -> None:
        spans, begun = list[Span](), None
        for moment, simulated in sorted(self._starts.items()):
            if simulated and begun is None:
                begun = moment
            elif not simulated and begun is not None:
                spans.append((begun, moment))
                begun = None
        if begun is not None:
            spans.append((begun, math.inf))
        if spans and not any(file.offset_of(spans[0][0]) for file in self._files):  # nothing is before that
            spans[0] = (-math.inf, spans[0][1])
        self.spans = tuple(spans)


def _starts(control: LogFile) -> Iterator[bytes]:
    """How each line begins with which a daemon says that it has started."""
    for block in control.blocks(0):
        yield from _START.findall(block)


def _read(path: Path) -> bytes | None:
    """What root or this user has written there; None where it is not there, or is somebody else's."""
    try:
        with open(open_trusted(path.absolute(), os.O_RDONLY, {0, os.geteuid()}), "rb") as file:
            data = file.read(_MOST + 1)
    except (NotTrustedError, OSError, ValueError):
        return None
    return None if len(data) > _MOST else data
