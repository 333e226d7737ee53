"""What happened on the node, newest last."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import ClassVar, Final

from mpstui.core.cells import SEVERITY, with_indices
from mpstui.core.model import Daemon, Event, EventKind, Severity, Snapshot
from mpstui.core.text import printable
from mpstui.ui.painted import Line
from mpstui.ui.panel import Panel

_COMMAND: Final = 20
"""Characters of a command in a line: what happened comes behind it."""
HIDDEN: Final[frozenset[EventKind]] = frozenset(
    {"command", "session_opened", "session_closed", "client_admitted", "client_request", "unknown"}
)
"""Noise: every look at the daemon, ours or another monitor's, writes these (fact 8)."""
_SEVERITY: Final[Mapping[EventKind, Severity]] = {
    "daemon_exited": "error",
    "server_exited": "warning",
    "server_failed": "error",
    "server_error": "error",
    "daemon_error": "error",
    "connection_failed": "warning",
    "debuggee": "warning",
    "client_evicted": "error",
    "limit_ignored": "warning",
    "server_shutdown_waiting": "warning",
    "client_pending": "warning",
    "client_refused": "error",
    "terminate_requested": "warning",
    "terminate_succeeded": "warning",
    "fatal_fault": "error",
    "xid": "warning",
}
"""How bad an event is; ``info`` where it is not listed."""


class EventsPanel(Panel[Event]):
    """A list that follows its end until the user moves up."""

    NUMBER: ClassVar[int] = 5
    TITLE: ClassVar[str] = "Events"
    KIND: ClassVar[str] = "event"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._source: tuple[Event, ...] = ()
        self._pipe_dir: Path | None = None
        self._users: dict[int, str] = {}
        self._indices: Mapping[str, int | None] = {}

    def show(self, snapshot: Snapshot, daemon: Daemon | None) -> None:
        before = self._source, self._pipe_dir, self._users, self._indices
        self._pipe_dir = daemon.pipe_dir if daemon else None
        self._users = {client.pid: client.user for client in daemon.clients() if client.user} if daemon else {}
        self._indices = {device.uuid: device.index for device in snapshot.devices}
        if snapshot.events is before[0] and (self._pipe_dir, self._users, self._indices) == before[1:]:
            return
        self._source = snapshot.events
        follows = self._index >= len(self.rows) - 1
        rows = [
            event
            for event in snapshot.events
            if event.kind not in HIDDEN and (daemon is None or event.pipe_dir in {None, daemon.pipe_dir})
        ]
        if follows:
            self._index = max(0, len(rows) - 1)
            self._cursor = self.key(rows[-1]) if rows else None
        self.set_rows(rows, context=(self._users, self._indices))

    def key(self, row: Event) -> Hashable:
        return row.key

    def stamp(self, row: Event) -> Hashable:
        return ()

    def empty(self) -> str:
        return "nothing has happened yet"

    def row_lines(self, row: Event, width: int) -> list[Line]:
        severity, text = self.describe(row)
        symbol, style = SEVERITY[severity]
        clock = "—       " if row.time is None else time.strftime("%H:%M:%S", time.localtime(row.time))
        return [
            ((" ", "text"), (clock, "dim"), (f"  {symbol} ", style), (text, "text" if severity == "info" else style))
        ]

    def describe(self, event: Event) -> tuple[Severity, str]:
        """How bad it is, and the log's sentence with the user's name and with indices in place of UUIDs."""
        user = self._users.get(event.pid) if event.pid is not None else None
        text = printable(event.sentence(user, _COMMAND) or event.kind.replace("_", " "))
        return _SEVERITY.get(event.kind, "info"), with_indices(text, self._indices)
