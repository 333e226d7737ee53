"""The limits in force: the daemon's default for servers to come, and each server's."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar, NamedTuple

from mpstui.core.cells import OUTDATED, devices_of, limits_text, sm_text, threads_text
from mpstui.core.model import Daemon, Snapshot
from mpstui.core.text import UNKNOWN
from mpstui.ui.painted import Line, fit, justify
from mpstui.ui.panel import Panel

_PRIORITY = {0: "normal", 1: "below normal"}


class LimitRow(NamedTuple):
    """One line: whose limits, and what they are."""

    server_pid: int | None
    threads: str
    memory: str
    priority: str
    outdated: int


class LimitsPanel(Panel[LimitRow]):
    """Threads with the SMs they come to, memory for each device, priority, and who is still on older limits."""

    NUMBER: ClassVar[int] = 2
    TITLE: ClassVar[str] = "Limits"
    KIND: ClassVar[str] = "limit"

    def show(self, snapshot: Snapshot, daemon: Daemon) -> None:
        devices = devices_of(daemon, snapshot)
        default = daemon.default_active_thread_percentage
        priority = daemon.default_client_priority
        inherited = daemon.inherited_mem_limits
        cells = _memory_cells(self.size.width - 2) - 1
        rows = [
            LimitRow(
                None,
                threads_text(default, sm_text(default, devices)),
                limits_text(
                    daemon.default_pinned_mem_limits, default is not None, cells, len(daemon.ordinals), inherited
                ),
                UNKNOWN if priority is None else _PRIORITY.get(priority, str(priority)),
                0,
            )
        ]
        for server in daemon.servers:
            percentage = server.active_thread_percentage
            rows.append(
                LimitRow(
                    server.pid,
                    threads_text(percentage, sm_text(percentage, devices)),
                    limits_text(
                        server.pinned_mem_limits, percentage is not None, cells, len(daemon.ordinals), inherited
                    ),
                    "",
                    sum(client.outdated_limits for client in server.clients),
                )
            )
        self.set_rows(rows)

    def key(self, row: LimitRow) -> int | None:
        return row.server_pid

    def stamp(self, row: LimitRow) -> Hashable:
        return ()

    def head(self, width: int) -> Line:
        memory = fit("MEMORY/DEVICE", _memory_cells(width))
        return ((" " + fit("", 15) + fit("THREADS", 18) + memory + "PRIORITY", "head"),)

    def row_lines(self, row: LimitRow, width: int) -> list[Line]:
        name = "default" if row.server_pid is None else f"server {row.server_pid}"
        memory = _memory_cells(width)
        line: Line = (
            (" " + fit(name, 15), "text" if row.server_pid is None else "bold"),
            (fit(row.threads, 17) + " ", "text"),
            (fit(row.memory, memory - 1) + " ", "text"),
            (row.priority, "text"),
        )
        if not row.outdated:
            return [line]
        return [justify(line, ((f"{row.outdated} {OUTDATED}{' outdated' if width >= 72 else ''} ", "warn"),), width)]


def _memory_cells(width: int) -> int:
    return 26 if width >= 72 else 16
