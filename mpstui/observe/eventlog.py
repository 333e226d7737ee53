"""The node's latest events, each told once although both logs of a daemon tell some of them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from mpstui.model import Event

Origin = Literal["control", "server", "derived"]
_TWICE: Final = frozenset(
    (
        "server_starting",
        "server_ready",
        "server_exited",
        "server_shutdown_waiting",
        "terminate_requested",
        "terminate_succeeded",
        "limit_set",
    )
)
_WINDOW: Final = 1.0
"""Seconds between the two logs telling the same thing."""
_HIDDEN: Final = frozenset(("session_opened", "session_closed"))


@dataclass(slots=True)
class _Told:
    event: Event
    origin: Origin
    confirmed: bool = False


class EventLog:
    """Oldest first, at most ``limit``. Plain questions to the daemon, mpstui's own among them, are left out."""

    def __init__(self, limit: int = 500) -> None:
        self._told: deque[_Told] = deque(maxlen=limit)
        self._shown: tuple[Event, ...] | None = ()

    def add(self, event: Event, origin: Origin) -> None:
        if event.kind in _HIDDEN or (event.kind == "command" and not event.values.keys() & {"changes", "refused"}):
            return
        if self.repeats(event, origin):
            return
        self._told.append(_Told(event, origin))
        self._shown = None

    def repeats(self, event: Event, origin: Origin) -> bool:
        """Whether the other log has told it; ask once for each event, as what was told once is repeated once."""
        return event.kind in _TWICE and self._confirms(event, origin)

    @property
    def events(self) -> tuple[Event, ...]:
        """The same tuple until an event is added."""
        if self._shown is None:
            self._shown = tuple(told.event for told in self._told)
        return self._shown

    def told_of_end(self, pipe_dir: Path, pid: int) -> bool:
        """Whether the log has said that this daemon exits. In a container a daemon has another PID there than here: it
        is then the last one that the log tells of, or the one before a successor that has started already."""
        found = [e for e in self.events if e.pipe_dir == pipe_dir and e.kind in {"daemon_started", "daemon_exited"}]
        own = [e for e in found if e.pid == pid]
        return any(e.kind == "daemon_exited" for e in own or found[-2:])

    def _confirms(self, event: Event, origin: Origin) -> bool:
        """Whether the other log has told it already; what was told once confirms one event only."""
        for told in reversed(self._told):
            if (event.time or 0.0) - (told.event.time or 0.0) > _WINDOW:
                return False
            if told.origin != origin and not told.confirmed and _same(told.event, event):
                told.confirmed = True
                return True
        return False


def _same(one: Event, other: Event) -> bool:
    if (one.kind, one.pid, one.pipe_dir) != (other.kind, other.pid, other.pipe_dir):
        return False
    if one.kind == "limit_set":
        return all(one.values.get(name) == other.values.get(name) for name in ("what", "value", "device"))
    return one.server_pid == other.server_pid
