"""The MPS servers of a daemon."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from mpstui.core.cells import outdated_text, told_to_end
from mpstui.core.model import Daemon, ProcessKey, Server, Snapshot
from mpstui.core.text import UNKNOWN, Line, plural
from mpstui.fields import SERVER, Thing, View
from mpstui.ui.panels.table import TablePanel


class ServersPanel(TablePanel[Server]):
    """PID, user, status, clients, devices, age; the limits too where their own panel has no room."""

    NUMBER: ClassVar[int] = 3
    TITLE: ClassVar[str] = "Servers"
    KIND: ClassVar[str] = "server"
    THING: ClassVar[Thing[Server]] = SERVER
    GUTTER: ClassVar[int] = 3

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._known = True
        self._failed = 0

    def show(self, snapshot: Snapshot, daemon: Daemon, *, with_limits: bool) -> None:
        self.view = replace(View.of(snapshot, daemon), with_limits=with_limits)
        self._known = daemon.servers_known
        self._failed = daemon.start_failures.count if daemon.start_failures is not None else 0
        self.set_rows(daemon.servers)

    def key(self, row: Server) -> ProcessKey:
        return row.key

    def empty(self) -> str:
        if not self._known:
            return f"{UNKNOWN} not known: the daemon cannot be asked"
        if self._failed:
            were = "it was" if self._failed == 1 else "they were"
            return f"no server: {plural(self._failed, 'server')} ended before {were} ready"
        return "no server: the daemon starts one with the first client"

    def note(self, row: Server, width: int) -> Line:
        outdated = sum(client.outdated_limits for client in row.clients)
        terminated = sum(client.state == "TERMINATED" for client in row.clients)
        notes: list[tuple[str, str]] = []
        if terminated:
            notes.append((f"  {terminated} ✕ terminated", "bad"))
        if outdated:
            notes.append((f"  {outdated_text(outdated)}", "warn"))
        sure = (row.fault is None or row.fault.confirmed) and self.view.claimant is None
        if "FAULT" in (row.status or "") and sure:
            notes.append(("  new clients are refused until every affected client has ended", "bad"))
        if (told := told_to_end(row)) is not None:
            notes.append((f"  {told}", "warn"))
        return tuple(notes)
