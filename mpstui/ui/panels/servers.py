"""The MPS servers of a daemon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from mpstui.core.cells import OUTDATED, count, gpu_label, limits_text, status_mark
from mpstui.core.model import EMPTY, Daemon, ProcessKey, Server, Snapshot
from mpstui.core.text import UNKNOWN, format_age, format_percentage
from mpstui.ui.painted import Line, fit, fit_line, width_of
from mpstui.ui.panel import Panel


class ServersPanel(Panel[Server]):
    """PID, user, status, clients, devices, age; the limits too where their own panel has no room."""

    NUMBER: ClassVar[int] = 3
    TITLE: ClassVar[str] = "Servers"
    KIND: ClassVar[str] = "server"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._now = 0.0
        self._indices: Mapping[str, int | None] = {}
        self._with_limits = False
        self._devices = 0
        self._known = True
        self._inherited: Mapping[str, int] = EMPTY
        self._failed = 0

    def show(self, snapshot: Snapshot, daemon: Daemon, *, with_limits: bool) -> None:
        self._now = snapshot.time
        self._indices = {device.uuid: device.index for device in snapshot.devices}
        self._with_limits = with_limits
        self._devices = len(daemon.ordinals)
        self._known = daemon.servers_known
        self._inherited = daemon.inherited_mem_limits
        self._failed = daemon.start_failures.count if daemon.start_failures is not None else 0
        context = (self._indices, with_limits, self._devices, self._known, self._inherited, self._failed)
        self.set_rows(daemon.servers, context=context)

    def key(self, row: Server) -> ProcessKey:
        return row.key

    def stamp(self, row: Server) -> str:
        return format_age(None if row.start_time is None else self._now - row.start_time)

    def empty(self) -> str:
        if not self._known:
            return f"{UNKNOWN} not known: the daemon cannot be asked"
        if self._failed:
            were = "it was" if self._failed == 1 else "they were"
            return f"no server: {count(self._failed, 'server')} ended before {were} ready"
        return "no server: the daemon starts one with the first client"

    def head(self, width: int) -> Line:
        columns = " " + fit("PID", 9) + fit("USER", 11) + fit("STATUS", 16) + fit("CLIENTS", 9)
        columns += (fit("THREADS", 9) + fit("MEM/DEVICE", 13)) if self._with_limits else fit("GPUS", 10)
        return fit_line(((columns + "UP", "head"),), width)

    def row_lines(self, row: Server, width: int) -> list[Line]:
        status, style = status_mark(row)
        gpus = sorted({gpu_label(uuid, self._indices) for client in row.clients for uuid in client.device_uuids})
        outdated = sum(client.outdated_limits for client in row.clients)
        terminated = sum(client.state == "TERMINATED" for client in row.clients)
        line: list[tuple[str, str]] = [
            (" " + fit(str(row.pid), 9), "bold"),
            (fit(_user(row), 10) + " ", "user"),
            (fit(status, 15) + " ", style),
            (fit(str(len(row.clients)), 9), "text"),
        ]
        if self._with_limits:
            known = row.active_thread_percentage is not None
            line.append((fit(format_percentage(row.active_thread_percentage), 9), "text"))
            line.append(
                (fit(limits_text(row.pinned_mem_limits, known, 12, self._devices, self._inherited), 13), "text")
            )
        else:
            line.append((fit(",".join(gpus) or UNKNOWN, 9) + " ", "text"))
        line.append((fit(self.stamp(row), 6), "text"))
        notes: list[tuple[str, str]] = []
        if terminated:
            notes.append((f"  {terminated} ✕ terminated", "bad"))
        if outdated:
            notes.append((f"  {outdated} {OUTDATED} outdated limits", "warn"))
        if "FAULT" in (row.status or ""):
            notes.append(("  new clients are refused until every affected client has ended", "bad"))
        if width_of(tuple(line)) + width_of(tuple(notes)) > width:
            notes = []
        return [(*line, *notes)]


def _user(server: Server) -> str:
    return server.user or (UNKNOWN if server.uid is None else str(server.uid))
