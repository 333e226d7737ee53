"""The clients of a daemon: filter, sort, choose; identity is the process, never the position."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from mpstui.core.cells import OUTDATED, gpu_label, gpus_text, memory_of, number, state_mark, threads_text
from mpstui.core.model import Client, Daemon, ProcessKey, Snapshot
from mpstui.core.text import UNKNOWN, format_age, format_size
from mpstui.ui.filter import ClientFilter
from mpstui.ui.painted import Line, fit, fit_line
from mpstui.ui.panel import Panel

NEAR_LIMIT = 90
"""Percent of its memory limit at which a client is marked."""


class Column(NamedTuple):
    """A column: its name, its cells, the order in which it gives way on a small screen, and what it sorts by."""

    id: str
    name: str
    width: int
    keep: int
    """The higher, the longer it stays: columns of the lowest go first."""
    sort: Callable[[Client], Any]
    align: str = "<"


def _last(value: Any, unknown: Any) -> tuple[bool, Any]:
    """A sort key by which what is not known comes after the rest."""
    return (value is None, unknown if value is None else value)


COLUMNS: tuple[Column, ...] = (
    Column("pid", "PID", 8, 99, lambda c: c.pid),
    Column("user", "USER", 11, 90, lambda c: _last(c.user, "")),
    Column("server", "SERVER", 8, 20, lambda c: _last(c.server_pid, 0)),
    Column("gpu", "GPU", 5, 70, lambda c: sorted(c.device_uuids)),
    Column("state", "STATE", 13, 95, lambda c: c.state),
    Column("mem", "GPU MEM / LIMIT", 22, 80, lambda c: _last(-sum(c.gpu_memory.values()) if c.gpu_memory else None, 0)),
    Column("threads", "THREADS", 18, 60, lambda c: _last(c.active_thread_percentage, 0.0)),
    Column("prio", "PRIO", 6, 10, lambda c: _last(c.client_priority, 0)),
    Column("cpu", "CPU", 7, 40, lambda c: _last(None if c.cpu_percent is None else -c.cpu_percent, 0.0), ">"),
    Column("age", "AGE", 6, 30, lambda c: _last(None if c.start_time is None else -c.start_time, 0.0), ">"),
    Column("command", "COMMAND", 16, 85, lambda c: (c.command or "").lower()),
)
_GUTTER = 3


class ClientsPanel(Panel[Client]):
    """All clients of the daemon on the screen, those that the filter leaves, in the chosen order."""

    NUMBER: ClassVar[int] = 4
    TITLE: ClassVar[str] = "Clients"
    KIND: ClassVar[str] = "client"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v,x,insert", "choose", "Choose", show=False, id="clients.choose"),
        Binding("asterisk", "choose_all", "Choose all", show=False, id="clients.choose_all"),
        Binding("s", "sort", "Sort", show=False, id="clients.sort"),
        Binding("I", "invert", "Invert the order", show=False, id="clients.invert"),
    ]

    class Chosen(Message):
        """The set of chosen clients changed."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.filter = ClientFilter()
        self.chosen: frozenset[ProcessKey] = frozenset()
        self._all: Sequence[Client] = ()
        self._known = True
        self._own: Mapping[ProcessKey, int] = {}
        self._now = 0.0
        self._ordinals: Mapping[str, str] = {}
        self._indices: Mapping[str, int | None] = {}
        self._lost: frozenset[ProcessKey] = frozenset()
        self._sort = COLUMNS[0]
        self._reverse = False
        self._anchor: Hashable | None = None

    def show(self, snapshot: Snapshot, daemon: Daemon, own: Mapping[ProcessKey, int] = MappingProxyType({})) -> None:
        """``own``: test clients of this program, which are marked with their numbers."""
        self._own = own
        self._now = snapshot.time
        self._ordinals = daemon.ordinals
        self._indices = {device.uuid: device.index for device in snapshot.devices}
        self._lost = frozenset(key for server in daemon.servers if server.fault for key in server.fault.affected)
        self._all = tuple(daemon.clients())
        self._known = daemon.servers_known
        alive = frozenset(client.key for client in self._all)
        if not self.chosen <= alive:
            self.chosen &= alive
            self.post_message(self.Chosen())
        self._arrange()

    def _arrange(self) -> None:
        shown = (
            [c for c in self._all if self.filter.matches(c, gpus_text(c, self._indices))] if self.filter else self._all
        )
        ordered = sorted(shown, key=lambda c: c.pid)
        ordered.sort(key=self._sort.sort, reverse=self._reverse)
        self.set_rows(ordered, context=(self._ordinals, self._indices, self._known))

    # What actions are for.

    def targets(self) -> tuple[ProcessKey, ...]:
        """The chosen clients in the order of the table, or the one under the cursor."""
        if self.chosen:
            return tuple(client.key for client in self._all if client.key in self.chosen)
        row = self.cursor_row
        return (row.key,) if row else ()

    def begin_filter(self) -> None:
        """From here on the cursor comes back to this row whenever the filter leaves it."""
        self._anchor = self._cursor

    def set_filter(self, text: str) -> None:
        self.filter = ClientFilter(text)
        if self._anchor is not None:
            self._cursor, self._index = self._anchor, 0
        self._arrange()

    def end_filter(self) -> None:
        self._anchor = None

    def clear_chosen(self) -> bool:
        """Choose nothing; whether anything was chosen."""
        had = bool(self.chosen)
        self._choose(frozenset())
        return had

    def _choose(self, keys: frozenset[ProcessKey]) -> None:
        if keys != self.chosen:
            self.chosen = keys
            self.repaint()
            self.post_message(self.Chosen())

    def action_choose(self) -> None:
        if (row := self.cursor_row) is not None:
            self._choose(self.chosen ^ {row.key})
            self.action_move(1)

    def action_choose_all(self) -> None:
        """All that the filter leaves; none, where they already are."""
        shown = frozenset(client.key for client in self.rows)
        self._choose(self.chosen - shown if shown <= self.chosen else self.chosen | shown)

    def action_sort(self) -> None:
        visible = self._columns(self.size.width - 2)
        following = [c for c, _ in visible]
        at = following.index(self._sort) if self._sort in following else -1
        self._sort, self._reverse = following[(at + 1) % len(following)], False
        self._arrange()

    def action_invert(self) -> None:
        self._reverse = not self._reverse
        self._arrange()

    def on_click(self, event: events.Click) -> None:
        if event.y == 1:
            x = _GUTTER + 1
            for column, width in self._columns(self.size.width - 2):
                if x <= event.x < x + width:
                    self._reverse = not self._reverse if column is self._sort else False
                    self._sort = column
                    self._arrange()
                x += width
            return
        super().on_click(event)
        if event.ctrl and self.row_at(event.y) is not None and (row := self.cursor_row) is not None:
            self._choose(self.chosen ^ {row.key})

    # Painting.

    def key(self, row: Client) -> ProcessKey:
        return row.key

    def stamp(self, row: Client) -> Hashable:
        return self._age(row), row.key in self.chosen, row.key in self._lost, self._own.get(row.key)

    def _age(self, row: Client) -> str:
        return format_age(None if row.start_time is None else self._now - row.start_time)

    def title(self) -> Line:
        total = len(self._all)
        text = f" {len(self.rows)}/{total}" if self.filter else f" {total}" if total or self._known else f" {UNKNOWN}"
        chosen: Line = ((f"  ✓ {len(self.chosen)} chosen", "chosen"),) if self.chosen else ()
        return ((self.TITLE, "title"), (text, "accent" if self.filter else "dim"), *chosen)

    def corner(self) -> Line:
        if self.filter:
            return (("/ ", "key"), (fit(self.filter.text, min(40, len(self.filter.text))), "accent"))
        return (("/ ", "key"), ("filter", "dim"))

    def empty(self) -> str:
        if not self._all and not self._known:
            return f"{UNKNOWN} not known: the daemon cannot be asked"
        return "no client matches the filter; Esc clears it" if self.filter and self._all else "no clients"

    def _columns(self, width: int) -> list[tuple[Column, int]]:
        """The columns that fit, with the command taking what is left; nothing is cut into something else."""
        columns = list(COLUMNS)
        while len(columns) > 2 and sum(c.width for c in columns) + _GUTTER > width:
            columns.remove(min(columns, key=lambda c: c.keep))
        spare = width - _GUTTER - sum(c.width for c in columns)
        return [(c, c.width + (spare if c is columns[-1] else 0)) for c in columns]

    def head(self, width: int) -> Line:
        line: list[tuple[str, str]] = [(" " * _GUTTER, "head")]
        for column, cells in self._columns(width):
            if column is self._sort:
                gap = " " if len(column.name) + 2 < cells else ""  # one stays free before the next heading
                mark = "▼" if self._reverse else "▲"
                line.append((_heading(f"{column.name}{gap}{mark}", column, cells), "accent"))
            else:
                line.append((_heading(column.name, column, cells), "head"))
        return tuple(line)

    def row_lines(self, row: Client, width: int) -> list[Line]:
        chosen = row.key in self.chosen
        gone = row.state == "TERMINATED" or row.key in self._lost
        plain = "dim" if gone else "text"
        line: list[tuple[str, str]] = [(" ", "text"), ("✓ " if chosen else "  ", "chosen")]
        columns = self._columns(width)
        threads = any(column.id == "threads" for column, _ in columns)
        for column, cells in columns:
            line += _cell(self, column.id, row, cells, plain)
            if column.id == "state" and row.outdated_limits and not threads:
                line[-1] = (fit(f"{line[-1][0].rstrip()} {OUTDATED}", cells), line[-1][1])
        if chosen:
            return [tuple((text, f"{name}+marked") for text, name in fit_line(tuple(line), width))]
        return [tuple(line)]


def _heading(name: str, column: Column, cells: int) -> str:
    return fit(name, cells) if column.align == "<" else fit(name, cells - 2, ">") + "  "


def _cell(panel: ClientsPanel, column: str, client: Client, cells: int, plain: str) -> Line:
    room = cells - 1
    match column:
        case "pid":
            return ((fit(str(client.pid), cells), "bold"),)
        case "user":
            name = client.user or (UNKNOWN if client.uid is None else str(client.uid))
            return ((fit(name, room) + " ", "user"),)
        case "server":
            return ((fit(number(client.server_pid), cells), "dim"),)
        case "gpu":
            return ((fit(gpus_text(client, panel._indices), room) + " ", plain),)
        case "state":
            word, style = state_mark(client, lost=client.key in panel._lost)
            return ((fit(word, cells), style),)
        case "mem":
            return _memory_cell(panel, client, cells, plain)
        case "threads":
            sms = "" if client.sm_count is None else f"{'≈ ' if client.sm_count_estimated else ''}{client.sm_count} SM"
            text = fit(threads_text(client.active_thread_percentage, sms), cells - 2)
            return ((text, plain), (f"{OUTDATED} " if client.outdated_limits else "  ", "warn"))
        case "prio":
            return ((fit(number(client.client_priority), cells), plain),)
        case "cpu":
            cpu = UNKNOWN if client.cpu_percent is None else f"{client.cpu_percent:.0f} %"
            return ((f"{cpu:>{cells - 2}}  ", plain),)
        case "age":
            return ((f"{panel._age(client):>{cells - 2}}  ", plain),)
        case _:
            command = client.command or UNKNOWN
            where: Line = (
                ((f"[{fit(client.container, min(20, len(client.container)))}] ", "label"),) if client.container else ()
            )
            own = panel._own.get(client.key)
            mine: Line = ((f"◆ load {own} ", "accent"),) if own is not None else ()
            return fit_line((*mine, *where, (command, plain)), cells)


def _memory_cell(panel: ClientsPanel, client: Client, cells: int, plain: str) -> Line:
    """What it uses in all, and of what; on several devices how full the fullest is, because a limit is a device's."""
    total, limit, percent, device = memory_of(client, panel._ordinals)
    text = f"{format_size(total):>9}"
    if limit is None:
        unknown = f" / {UNKNOWN}" if total is not None and not client.memory_limit_known else ""
        return ((fit(text + unknown, cells), plain),)
    style, mark = ("warn", " ▲") if percent is not None and percent >= NEAR_LIMIT else (plain, "")
    if device is not None and percent is not None:
        return ((fit(f"{text} GPU{gpu_label(device, panel._indices)} {percent:.0f} %{mark}", cells), style),)
    return ((fit(f"{text} / {format_size(limit)}{mark}", cells), style),)
