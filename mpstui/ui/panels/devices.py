"""The devices of the node: contexts that are left, utilisation, memory, power and heat."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator
from typing import ClassVar, NamedTuple

from textual.binding import Binding, BindingType
from textual.message import Message

from mpstui.core.cells import meter, no_readings, number
from mpstui.core.late import dataclass
from mpstui.core.model import Device, Snapshot
from mpstui.core.text import UNKNOWN
from mpstui.fields import DEVICE, View, device_load, memory_percent
from mpstui.ui.layout import READINGS
from mpstui.ui.lines import Line, Span, fit, fit_line, justify, width_of
from mpstui.ui.panel import SUPERSCRIPT, Panel
from mpstui.ui.plots import (
    COARSE_S,
    METRICS,
    USUAL,
    WINDOWS,
    DeviceHistory,
    PlotRow,
    Reading,
    begin,
    rows_of,
    spark,
    window_text,
)

_LONGEST_BAR = 60
_NUMBERED = 56
"""Cells from which a device's line has room for the number of its panel."""
_WORDS = 29
"""Cells in which the contexts are told in words."""
_FIELDS = {each.id: each for each in DEVICE.fields}
_NOTHING = View()


class _Drawn(NamedTuple):
    """What the plots of a device are drawn of; they are the same as long as this is."""

    history: DeviceHistory
    window: int
    since: float
    """When the first cell begins."""
    cells: int
    lines: int
    framed: bool
    load: tuple[str, str]
    peaks: tuple[int | None, ...]


class DevicesPanel(Panel[Device]):
    """Three lines for a device where there is room, otherwise two or one."""

    NUMBER: ClassVar[int] = 1
    TITLE: ClassVar[str] = "Devices"
    KIND: ClassVar[str] = "device"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("plus,equals_sign", "window(1)", "Longer history", show=False, id="devices.longer"),
        Binding("minus", "window(-1)", "Shorter history", show=False, id="devices.shorter"),
    ]

    @dataclass
    class Window(Message):
        """Another stretch of time is shown."""

        seconds: int

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._detail: str | None = None
        self._history = DeviceHistory()
        self._now = 0.0
        self._past = self._by_logs = self._asked = False
        self._window = USUAL
        self._plotted: dict[str, tuple[object, list[Line]]] = {}
        """Of each device what its plots were drawn of last, and they."""
        self._over: dict[str, tuple[object, Reading | None]] = {}
        """Of each device the largest readings of the cells whose time is over, and of which cells."""

    def show(self, snapshot: Snapshot, lines_per_device: int, history: DeviceHistory) -> None:
        self._detail, self._asked = snapshot.nvml_detail, snapshot.asked_nvml
        self._by_logs = snapshot.past is not None and snapshot.past.what == "LOGS"
        self._history, self._now, self._past = history, snapshot.time, snapshot.past is not None
        here = {row.uuid for row in snapshot.devices}
        self._plotted = {uuid: drawn for uuid, drawn in self._plotted.items() if uuid in here}
        self._over = {uuid: most for uuid, most in self._over.items() if uuid in here}
        self.set_rows(snapshot.devices, lines_per_device)

    def set_window(self, seconds: int) -> None:
        """Show so much of the past; what is none of the stretches that there are changes nothing."""
        if seconds in WINDOWS:
            self._window = seconds
            self.repaint()

    def action_window(self, step: int) -> None:
        at = max(0, min(len(WINDOWS) - 1, WINDOWS.index(self._window) + step))
        self.set_window(WINDOWS[at])
        self.post_message(self.Window(self._window))

    def corner(self) -> Line:
        """How far back the history goes."""
        if self._lines_per_row <= READINGS or not self.rows:
            return ()
        return (("- +", "key"), (f" {window_text(self._window)}", "dim"))

    def _plots(self, row: Device, width: int) -> list[Line]:
        """What :meth:`_plot` draws, anew where a cell's time is over or there is another largest reading: in between
        nothing of it moves."""
        drawn_of = self._drawn_of(row, width)
        known = self._plotted.get(row.uuid)
        if known is None or known[0] != drawn_of:
            known = self._plotted[row.uuid] = drawn_of, self._plot(row, drawn_of)
        return known[1]

    def _drawn_of(self, row: Device, width: int) -> _Drawn:
        cells = _cells(width)
        since = begin(self._window, cells, self._now, over=not self._past)
        shape = cells, self._lines_per_row, self._framed
        return _Drawn(self._history, self._window, since, *shape, device_load(row)[:2], self._peaks(row, since))

    def _peaks(self, row: Device, since: float) -> tuple[int | None, ...]:
        """Of each plot the largest reading of the time that it shows, the present one too: what is drawn are the means
        of cells, and of those whose time is over."""
        what = self._history, self._window, since
        known = self._over.get(row.uuid)
        if known is None or known[0] != what:
            known = self._over[row.uuid] = what, self._history.most(row.uuid, self._window, since)
        ends = since + self._window - COARSE_S  # what came since may be kept with what was up to ten seconds before
        fresh = self._history.most(row.uuid, self._window, ends)
        found = [most for most in (known[1], fresh) if most is not None]
        values = ([getattr(most, plot.field) for most in found] for plot in metrics_of(row))
        return tuple(round(max(told)) if (told := [v for v in each if v is not None]) else None for each in values)

    def stamp(self, row: Device, width: int) -> Hashable:
        return row, self._is_upper(row), self._drawn_of(row, width)

    def _is_upper(self, row: Device) -> bool:
        return row is self.rows[min(self._top, len(self.rows) - 1)]

    def _plot(self, row: Device, of: _Drawn) -> list[Line]:
        """Of each reading its blocks, as tall as there is room for, the newest at the right, and the largest."""
        cells = of.cells
        readings = self._history.columns(row.uuid, of.window, cells, self._now, over=not self._past)
        lines: list[Line] = []
        room = of.lines - READINGS
        axis = room > len(METRICS)
        plots = zip(metrics_of(row), rows_of(room - axis), of.peaks, strict=True)
        for plot, rows, most in plots:
            values = [None if reading is None else getattr(reading, plot.field) for reading in readings]
            style = "meter-memory" if plot.field == "memory" else "meter"
            for at, drawn in enumerate(spark(values, plot.full(most), rows)):
                said = ("", "") if at else (plot.label, UNKNOWN if most is None else f"max {number(most, plot.unit)}")
                lines.append(((f"    {said[0]:<8}", "dim"), (drawn, style), (f" {said[1]:>10} ", "dim")))
        if axis:
            since, until = f"{window_text(of.window)} ago", "now"
            if self._past:  # by its clock: what is shown was now once
                until = time.strftime("%H:%M:%S", time.localtime(self._now))
                since = f"{window_text(of.window)} before"
            keys = ("           ", "dim") if of.framed else ("       - +  ", "key")  # a frame has them in its border
            lines.append(((f"    {'time':<8}{since}{until:>{cells - len(since)}}", "dim"), keys))
        return lines

    def key(self, row: Device) -> str:
        return row.uuid

    def bar(self, width: int) -> None:
        """A device's line says by itself what it is; the key that leads here stands in the first one."""

    def empty(self) -> str:
        if self._by_logs:
            return f"{UNKNOWN} logs tell nothing of the devices"
        if not self._asked:
            return f"{UNKNOWN} not read yet at that time" if self._past else "… looking for devices"
        return f"{UNKNOWN} no readings: {no_readings(self._detail)}" if self._detail else f"{UNKNOWN} no device found"

    def title(self) -> Line:
        return (("Devices", "title"), (f" {len(self.rows)}", "dim")) if len(self.rows) > 1 else (("Devices", "title"),)

    def row_lines(self, row: Device, width: int) -> list[Line]:
        if self._lines_per_row == 1 and (self._framed or width < _NUMBERED):
            return [_one_line(row, width)]
        if self._lines_per_row == 1:
            number = SUPERSCRIPT[self.NUMBER] if self._is_upper(row) else " "
            return [((" ", "text"), (number, "key"), *_one_line(row, width - 2))]
        first: Line = (
            (f"{_text('index', row, 2)}  ", "text"),
            *_cell("name", row),
            (f"  {_text('sm_count', row)}", "text"),
            (f"  {_text('compute_mode', row)}", "dim"),
            *((f"  {text}", style) for text, style in _cell("mig", row)),
        )
        bar = max(6, min(_LONGEST_BAR, width - 46))
        used = _cell("contexts", row, _WORDS)
        room = bar + 46 if self._lines_per_row >= READINGS else width
        if width_of((*first, *used)) > room:
            first = first[:3]
        lines = [justify(first, used, room)]
        field, name, value = device_load(row)
        full = memory_percent(row)
        if self._lines_per_row == 2:
            bar = max(4, (width - 58) // 2)
            text = (
                (f"    {name} "[-9:], "dim"),
                *meter(value, bar),
                (_text(field, row, 6), "text"),
                ("  mem ", "dim"),
                *meter(full, bar, _fill(full)),
                (f" {_text('memory_used', row)}", "text"),
                (f"  {_text('power_watts', row, 5)} {_text('temperature', row, 6)} ", "text"),
            )
            return [*lines, fit_line(text, width)]
        busy: list[Span] = [(f"{'    SM' if name == 'SM' else name:<9}", "dim"), *meter(value, bar)]
        busy.append((_text(field, row, 6), "text"))
        for other in ("sm_occupancy", "dram_utilization") if name == "SM" else ("memory_utilization",):
            busy += [(f"  {_FIELDS[other].heading()}", "dim"), (_text(other, row, 6), "text")]
        lines.append(tuple(busy) if name != "SM" else (*busy[:-1], (f"{busy[-1][0]} ", "text")))
        memory: Line = (("    mem  ", "dim"), *meter(full, bar, _fill(full)))
        watts = f"{_text('power_watts', row, 8)}  {_text('temperature', row, 6)} "
        lines.append(justify((*memory, (f" {_text('memory_used', row)}", "text")), ((watts, "text"),), bar + 46))
        return [*lines, *self._plots(row, width)]


def metrics_of(row: Device) -> Iterator[PlotRow]:
    """As METRICS, with what this device tells of its load, and what it may draw."""
    for plot in METRICS:
        if plot.field == "sm_utilization":
            field, label, _ = device_load(row)
            yield plot._replace(field=field, label=label)
        else:
            yield plot._replace(top=row.power_limit_watts) if plot.field == "power" else plot


def _cells(width: int) -> int:
    """Of a plot."""
    return max(10, width - 24)


def _cell(name: str, device: Device, cells: int = 0) -> Line:
    """What its field says."""
    return _FIELDS[name].cell(device, _NOTHING, cells)


def _text(name: str, device: Device, cells: int = 0) -> str:
    """The same as text, at the right of so many cells."""
    return "".join(text for text, _ in _cell(name, device)).rjust(cells)


def _one_line(device: Device, width: int) -> Line:
    """Contexts, utilisation and memory always; then what fits of the name, power and heat, a bar, the SMs."""
    memory = ("mem ", "dim"), (f"{_text('memory_used', device)} ", "text")
    field, what, value = device_load(device)
    used: Line = ((" ctx ", "dim"), *_cell("contexts", device), (f" {what} ", "dim"))
    busy: Line = ((f"{_text(field, device, 5)} ", "text"),)
    room = width - 3 - width_of((*used, *busy, *memory))
    name = _text("name", device)
    cells = min(len(name), max(0, room))
    room -= cells
    heat: Line = ((f"{_text('power_watts', device, 5)} {_text('temperature', device, 6)} ", "text"),)
    if room >= width_of(heat):
        room -= width_of(heat)
    else:
        heat = ()
    bar: Line = ()
    if room >= 6:
        cells_of_bar = min(24, room)
        bar = meter(value, cells_of_bar)
        room -= cells_of_bar
    count = f" {_text('sm_count', device)}"
    label = fit(name, cells) + (count if room >= len(count) else "")
    return ((f"{_text('index', device, 2)} ", "text"), (label, "bold"), *used, *bar, *busy, *memory, *heat)


def _fill(percent: float | None) -> str:
    return "meter-high" if percent is not None and percent >= 90 else "meter-memory"
