"""The devices of the node: contexts that are left, utilisation, memory, power and heat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from mpstui.core.cells import meter, no_readings, number, whole
from mpstui.core.model import Device, Snapshot
from mpstui.core.text import UNKNOWN
from mpstui.ui.painted import Line, fit, fit_line, justify, width_of
from mpstui.ui.panel import Panel
from mpstui.ui.plots import METRICS, USUAL, WINDOWS, History, peak, spark, window_text

_GIB = 1 << 30
_READINGS = 3
"""Lines of a device's readings; what it has more are of its history."""
_UNITS = {"sm": " %", "memory": " %", "power": " W", "clients": ""}
_LONGEST_BAR = 60
NEAR_FULL = 5
"""Contexts left at which a device is marked: the client after the last one gets an error (fact 13)."""


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
        self._history = History()
        self._now = 0.0
        self._window = USUAL

    def show(self, snapshot: Snapshot, lines_per_device: int, history: History) -> None:
        self._detail = snapshot.nvml_detail
        self._history, self._now = history, snapshot.time
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
        if self._lines_per_row <= _READINGS:
            return ()
        return (("- +", "key"), (f" {window_text(self._window)}", "dim"))

    def _plots(self, row: Device, width: int) -> list[Line]:
        """A line for each reading: its blocks, the newest at the right, and the largest."""
        cells = max(10, width - 24)
        readings = self._history.columns(row.uuid, self._window, cells, self._now)
        lines: list[Line] = []
        for name, label, top in METRICS[: self._lines_per_row - _READINGS]:
            values = [None if reading is None else getattr(reading, name) for reading in readings]
            told = peak(values, _UNITS[name])
            style = "meter-memory" if name == "memory" else "meter"
            lines.append(((f"    {label:<8}", "dim"), (spark(values, top), style), (f" {told:>9} ", "dim")))
        return lines

    def key(self, row: Device) -> str:
        return row.uuid

    def bar(self, width: int) -> None:
        """A device's line says by itself what it is."""

    def empty(self) -> str:
        return f"{UNKNOWN} no readings: {no_readings(self._detail)}" if self._detail else f"{UNKNOWN} no device found"

    def title(self) -> Line:
        return (("Devices", "title"), (f" {len(self.rows)}", "dim")) if len(self.rows) > 1 else (("Devices", "title"),)

    def row_lines(self, row: Device, width: int) -> list[Line]:
        if self._lines_per_row == 1:
            return [_one_line(row, width)]
        name = f"{number(row.index):>2}  "
        mode: Line = (("  MIG", "warn"),) if row.mig else ()
        first: Line = (
            (name, "text"),
            (_short_name(row), "bold"),
            (f"  {number(row.sm_count)} SM", "text"),
            (f"  {row.compute_mode or UNKNOWN}", "dim"),
            *mode,
        )
        bar = max(6, min(_LONGEST_BAR, width - 46))
        used = contexts(row, wide=True)
        room = bar + 46 if self._lines_per_row >= _READINGS else width
        if width_of((*first, *used)) > room:
            first = first[:3]
        lines = [justify(first, used, room)]
        if self._lines_per_row == 2:
            bar = max(4, (width - 58) // 2)
            name, value = load(row)
            text = (
                (f"    {name} "[-9:], "dim"),
                *meter(value, bar),
                (f"{whole(value):>6}", "text"),
                ("  mem ", "dim"),
                *meter(_memory_percent(row), bar, _fill(_memory_percent(row))),
                (f" {_memory(row)}", "text"),
                (f"  {number(row.power_watts, ' W'):>5} {number(row.temperature, ' °C'):>6} ", "text"),
            )
            return [*lines, fit_line(text, width)]
        tail: Line = (("  occupancy", "dim"), (f"{whole(row.sm_occupancy):>6}", "text"))
        dram: Line = (("  DRAM", "dim"), (f"{whole(row.dram_utilization):>6} ", "text"))
        name, value = load(row)
        if name != "SM":
            tail, dram = (("  memory utilisation", "dim"), (f"{whole(row.memory_utilization):>6}", "text")), ()
        lines.append(
            (
                (f"{'    SM' if name == 'SM' else name:<9}", "dim"),
                *meter(value, bar),
                (f"{whole(value):>6}", "text"),
                *tail,
                *dram,
            )
        )
        memory = (("    mem  ", "dim"), *meter(_memory_percent(row), bar, _fill(_memory_percent(row))))
        watts = f"{number(row.power_watts, ' W'):>8}  {number(row.temperature, ' °C'):>6} "
        lines.append(justify((*memory, (" " + _memory(row), "text")), ((watts, "text"),), bar + 46))
        return [*lines, *self._plots(row, width)]


def load(device: Device) -> tuple[str, float | None]:
    """``SM`` and its activity, or what NVML tells of a GPU without it, by its name."""
    if device.tells_sm or device.sm_utilization is not None:
        return "SM", device.sm_utilization
    return "GPU-Util", device.gpu_utilization


def contexts(device: Device, *, wide: bool) -> Line:
    """``46/48 contexts  2 left ▲``: used, the most there can be, and what is left; ▲ when near full, ✕ when full, ?
    where the most is a claim that nobody has measured."""
    if device.contexts is None or device.context_limit is None:
        used = f"{UNKNOWN}/{number(device.context_limit)}"
        return ((f"{used} contexts " if wide else f"{used:>5} ", "dim"),)
    left = max(0, device.context_limit - device.contexts)
    style, mark = ("bad", "✕") if left == 0 else ("warn", "▲") if left <= NEAR_FULL else ("text", " ")
    used = f"{device.contexts}/{device.context_limit}"
    claim = "?" if device.limit_is_claim else " "
    if not wide:
        return ((f"{used:>5}{mark if mark.strip() else claim}", style),)
    rest = "full" if left == 0 else f"{left} left"
    return ((used, style), (f" contexts{claim} ", "dim"), (f"{rest:>7} {mark} ", style))


def _one_line(device: Device, width: int) -> Line:
    """Contexts, utilisation and memory always; then what fits of the name, power and heat, a bar, the SMs."""
    memory = ("mem ", "dim"), (f"{_memory(device)} ", "text")
    what, value = load(device)
    used: Line = ((" ctx ", "dim"), *contexts(device, wide=False), (f" {what} ", "dim"))
    busy: Line = ((f"{whole(value):>5} ", "text"),)
    room = width - 3 - width_of((*used, *busy, *memory))
    name = _short_name(device)
    cells = min(len(name), max(0, room))
    room -= cells
    heat: Line = ((f"{number(device.power_watts, ' W'):>5} {number(device.temperature, ' °C'):>6} ", "text"),)
    if room >= width_of(heat):
        room -= width_of(heat)
    else:
        heat = ()
    bar: Line = ()
    if room >= 6:
        cells_of_bar = min(24, room)
        bar = meter(value, cells_of_bar)
        room -= cells_of_bar
    count = f" {number(device.sm_count)} SM"
    label = fit(name, cells) + (count if room >= len(count) else "")
    return ((f"{number(device.index):>2} ", "text"), (label, "bold"), *used, *bar, *busy, *memory, *heat)


def _short_name(device: Device) -> str:
    return (device.name or UNKNOWN).removeprefix("NVIDIA ")


def _memory_percent(device: Device) -> float | None:
    if device.memory_used is None or not device.memory_total:
        return None
    return device.memory_used / device.memory_total * 100


def _memory(device: Device) -> str:
    used = UNKNOWN if device.memory_used is None else f"{device.memory_used / _GIB:.1f}"
    total = UNKNOWN if device.memory_total is None else f"{device.memory_total / _GIB:.1f}"
    return f"{used:>5}/{total} GiB"


def _fill(percent: float | None) -> str:
    return "meter-high" if percent is not None and percent >= 90 else "meter-memory"
