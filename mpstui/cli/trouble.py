"""What the screens of trouble run on: the logs further back, and the doctor's check-up, each in a thread of its own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mpstui.core.text import error_text
from mpstui.observe.wakeups import Worker
from mpstui.ui.trouble.contract import TroubleUnavailable

# Imported when a screen needs them: the overview is painted without.
if TYPE_CHECKING:
    from mpstui.core.model import Daemon, Event, Snapshot
    from mpstui.doctor.types import Finding
    from mpstui.doctor.why import Answer
    from mpstui.observe.sources import NodeSources
    from mpstui.observe.trusted import Owners

_FIRST_SPAN: Final = 600.0
"""Seconds of log that are read first; four times as many, again and again, until there are events enough."""
_SPANS: Final = 9
"""After so many spans, 1.2 years, the rest of the logs is read whole."""


class NodeTrouble:
    """See ``mpstui.ui.trouble.contract.TroubleBackend``."""

    def __init__(self, sources: NodeSources, pipe_dirs: Sequence[Path], log_dirs: Sequence[Path]) -> None:
        self._sources = sources
        self._pipe_dirs = tuple(pipe_dirs)
        self._log_dirs = tuple(log_dirs)
        # Daemon threads: a file system that hangs holds up neither the screen nor its end.
        self._logs = Worker("older events")
        self._doctor = Worker("check-up")

    async def older_events(self, daemon: Daemon, before: float, most: int) -> Sequence[Event]:
        """See the contract. Reading stops when nobody waits for it any more."""
        return await self._read(
            daemon,
            lambda log_dir, over: last_events(
                log_dir, daemon.pipe_dir, before, most, over, self._owners(daemon.pipe_dir)
            ),
        )

    async def faults(self, daemon: Daemon) -> Sequence[Event]:
        """See the contract."""
        return await self._read(
            daemon, lambda log_dir, over: all_faults(log_dir, daemon.pipe_dir, over, self._owners(daemon.pipe_dir))
        )

    async def _read(self, daemon: Daemon, read: Callable[[Path, threading.Event], list[Event]]) -> Sequence[Event]:
        """``read`` is given the log directory, and what is set when nobody waits for it any more."""
        from mpstui.observe.trusted import UnreadableLogError

        if daemon.log_dir is None:
            raise TroubleUnavailable("the daemon's log directory is not known; name it with --log-dir")
        log_dir, over = daemon.log_dir, threading.Event()
        try:
            return await self._logs.call(lambda: read(log_dir, over))
        except (UnreadableLogError, OSError) as error:
            raise TroubleUnavailable(error_text(error)) from None
        finally:
            over.set()

    async def why(self, pid: int, snapshot: Snapshot) -> Answer | None:
        """See the contract."""
        from mpstui.doctor.why import gather

        try:
            return await self._doctor.call(lambda: gather(pid, snapshot))
        except OSError as error:
            raise TroubleUnavailable(f"the look at it stopped: {error_text(error)}") from None

    async def findings(self, snapshot: Snapshot) -> Sequence[Finding]:
        """See the contract."""
        try:
            return await self._doctor.call(lambda: self._examine(snapshot))
        except OSError as error:
            raise TroubleUnavailable(f"the check-up stopped: {error_text(error)}") from None

    def _owners(self, pipe_dir: Path) -> Owners:
        """Whose logs are believed there, by who runs the daemon now."""
        from mpstui.observe.discovery import discover
        from mpstui.observe.trusted import owners_of

        return next((place.log_owners for place in discover((pipe_dir,), env={})), owners_of(None))

    def _examine(self, snapshot: Snapshot) -> Sequence[Finding]:
        from mpstui.doctor.checkup import examine, gather
        from mpstui.observe.discovery import discover

        return examine(gather(snapshot, discover(self._pipe_dirs, self._log_dirs), self._sources.control_binary))


def all_faults(log_dir: Path, pipe_dir: Path, over: threading.Event, owners: Owners) -> list[Event]:
    """Every fatal fault in the logs, oldest first; none when ``over`` is set meanwhile. Raises UnreadableLogError."""
    from mpstui.history.reader import LogHistory

    history, found = LogHistory(log_dir, pipe_dir, owners), []
    try:
        for event in history.events():
            if over.is_set():
                return []
            if event.kind == "fatal_fault":
                found.append(event._replace(pipe_dir=pipe_dir))
    finally:
        history.close()
    return found


def last_events(
    log_dir: Path, pipe_dir: Path, before: float, most: int, over: threading.Event, owners: Owners
) -> list[Event]:
    """The last ``most`` events up to ``before``, oldest first; looks back further and further until there are enough.

    What is read grows with how far back they lie, not with the size of the logs. Fewer when ``over`` is set meanwhile.
    Raises UnreadableLogError.
    """
    from mpstui.history.reader import LogHistory

    span: float | None = _FIRST_SPAN
    for number in range(_SPANS + 1):
        if number == _SPANS:
            span = None
        history = LogHistory(log_dir, pipe_dir, owners)
        found: deque[Event] = deque(maxlen=most)
        try:
            for event in history.events(None if span is None else before - span, before):
                if over.is_set():
                    return []
                found.append(event._replace(pipe_dir=pipe_dir))
        finally:
            history.close()
        if span is None or len(found) == most:
            break
        span *= 4
    return list(found)
