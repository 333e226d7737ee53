"""What happened on the node, newest last."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping
from typing import ClassVar, Final

from mpstui.model import Client, Daemon, Event, EventKind, Severity, Snapshot
from mpstui.text import printable
from mpstui.ui.cells import SEVERITY, gpu_label
from mpstui.ui.painted import Line
from mpstui.ui.panel import Panel

HIDDEN: Final[frozenset[EventKind]] = frozenset({"command", "session_opened", "session_closed", "unknown"})
"""Noise: every look at the daemon, ours or another monitor's, writes these (fact 8)."""
_TEXT: Final[Mapping[EventKind, tuple[Severity, str]]] = {
    "daemon_started": ("info", "control daemon started"),
    "daemon_exited": ("error", "control daemon ended"),
    "server_starting": ("info", "server {server} is starting"),
    "server_ready": ("info", "server {server} is ready"),
    "server_exited": ("warning", "server {server} ended"),
    "server_shutdown_waiting": ("warning", "server {server} shuts down and waits for its clients"),
    "client_connected": ("info", "client {pid} connected{gpu}"),
    "context_active": ("info", "client {pid} made a context{gpu}"),
    "context_closed": ("info", "client {pid} closed a context{gpu}"),
    "client_disconnected": ("info", "client {pid} disconnected"),
    "client_pending": ("warning", "client {pid} waits: the server of another user has clients"),
    "client_refused": ("error", "a client was refused"),
    "terminate_requested": ("warning", "client {pid}: terminate asked for"),
    "terminate_succeeded": ("warning", "client {pid} was terminated; its process lives on"),
    "fatal_fault": ("error", "fault of client {pid}{gpu}: clients that share a GPU with it lose their contexts"),
    "server_recovered": ("info", "server {server} has recovered and takes clients again"),
    "limit_set": ("info", "limit set"),
}


class EventsPanel(Panel[Event]):
    """A list that follows its end until the user moves up."""

    NUMBER: ClassVar[int] = 5
    TITLE: ClassVar[str] = "Events"
    KIND: ClassVar[str] = "event"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._source: tuple[Event, ...] = ()
        self._daemon: Daemon | None = None
        self._clients: dict[int, Client] = {}
        self._indices: Mapping[str, int | None] = {}

    def show(self, snapshot: Snapshot, daemon: Daemon | None) -> None:
        self._indices = {device.uuid: device.index for device in snapshot.devices}
        self._clients = {client.pid: client for client in daemon.clients()} if daemon else {}
        if snapshot.events is self._source and daemon is self._daemon:
            return
        self._source, self._daemon = snapshot.events, daemon
        follows = self._index >= len(self.rows) - 1
        rows = [
            event
            for event in snapshot.events
            if event.kind not in HIDDEN and (daemon is None or event.pipe_dir in {None, daemon.pipe_dir})
        ]
        if follows:
            self._index = max(0, len(rows) - 1)
            self._cursor = self.key(rows[-1]) if rows else None
        self.set_rows(rows)

    def key(self, row: Event) -> Hashable:
        return (row.time, row.kind, row.pid, row.server_pid, row.context_id, row.raw)

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
        """How bad it is, and a sentence."""
        severity, template = _TEXT.get(event.kind, ("info", event.kind.replace("_", " ")))
        pid = "—" if event.pid is None else str(event.pid)
        client = self._clients.get(event.pid) if event.pid is not None else None
        user = client.user if client else None
        text = template.replace("{pid}", f"{pid} ({user})" if user else pid)
        text = text.replace("{server}", "—" if event.server_pid is None else str(event.server_pid))
        gpus = ",".join(gpu_label(uuid, self._indices) for uuid in event.devices)
        text = text.replace("{gpu}", f" on GPU {gpus}" if gpus else "")
        if event.detail:
            text += f": {printable(event.detail)}"
        return severity, text
