"""The devices of the node: contexts that are left, utilisation, memory, power and heat."""

from __future__ import annotations

from typing import ClassVar

from mpstui.model import Device, Snapshot
from mpstui.text import UNKNOWN
from mpstui.ui.cells import meter, number, whole
from mpstui.ui.painted import Line, fit, fit_line, justify
from mpstui.ui.panel import Panel

_GIB = 1 << 30
NEAR_FULL = 5
"""Contexts left at which a device is marked: the client after the last one gets an error (fact 13)."""


class DevicesPanel(Panel[Device]):
    """Three lines for a device where there is room, otherwise two or one."""

    NUMBER: ClassVar[int] = 1
    TITLE: ClassVar[str] = "Devices"
    KIND: ClassVar[str] = "device"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._detail: str | None = None

    def show(self, snapshot: Snapshot, lines_per_device: int) -> None:
        self._detail = snapshot.nvml_detail
        self.set_rows(snapshot.devices, lines_per_device)

    def key(self, row: Device) -> str:
        return row.uuid

    def empty(self) -> str:
        return f"{UNKNOWN} no readings: {self._detail}" if self._detail else f"{UNKNOWN} no device found"

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
        lines = [justify(first, contexts(row, wide=True), width)]
        if self._lines_per_row == 2:
            bar = max(4, (width - 58) // 2)
            text = (
                ("    SM ", "dim"),
                *meter(row.sm_utilization, bar, _heat(row.sm_utilization)),
                (f"{whole(row.sm_utilization):>6}", "text"),
                ("  mem ", "dim"),
                *meter(_memory_percent(row), bar, _fill(_memory_percent(row))),
                (f" {_memory(row)}", "text"),
                (f"  {number(row.power_watts, ' W'):>5} {number(row.temperature, ' °C'):>6} ", "text"),
            )
            return [*lines, fit_line(text, width)]
        bar = max(6, width - 46)
        tail: Line = (("  occupancy", "dim"), (f"{whole(row.sm_occupancy):>6}", "text"))
        dram: Line = (("  DRAM", "dim"), (f"{whole(row.dram_utilization):>6} ", "text"))
        lines.append(
            (
                ("    SM   ", "dim"),
                *meter(row.sm_utilization, bar, _heat(row.sm_utilization)),
                (f"{whole(row.sm_utilization):>6}", "text"),
                *tail,
                *dram,
            )
        )
        memory = (("    mem  ", "dim"), *meter(_memory_percent(row), bar, _fill(_memory_percent(row))))
        watts = f"{number(row.power_watts, ' W'):>8}  {number(row.temperature, ' °C'):>6} "
        lines.append(justify((*memory, (" " + _memory(row), "text")), ((watts, "text"),), width))
        return lines


def contexts(device: Device, *, wide: bool) -> Line:
    """``46/48 contexts  2 left ▲``: used, the most there can be, and what is left; ▲ when near full, ✕ when full."""
    if device.contexts is None or device.context_limit is None:
        return ((f"{UNKNOWN}/{number(device.context_limit)}", "dim"), (" contexts " if wide else " ctx ", "dim"))
    left = max(0, device.context_limit - device.contexts)
    style, mark = ("bad", "✕") if left == 0 else ("warn", "▲") if left <= NEAR_FULL else ("text", " ")
    used = f"{device.contexts}/{device.context_limit}"
    if not wide:
        return ((f"{used:>5}{mark}", style),)
    rest = "full" if left == 0 else f"{left} left"
    return ((used, style), (" contexts  ", "dim"), (f"{rest:>7} {mark} ", style))


def _one_line(device: Device, width: int) -> Line:
    """What fits: the name gives way first, then power and heat, then the bar."""
    head: Line = ((f"{number(device.index):>2} ", "text"),)
    used: Line = (*contexts(device, wide=False), ("ctx ", "dim"))
    load: Line = (("SM ", "dim"), (f"{whole(device.sm_utilization):>5} ", "text"))
    memory: Line = (("mem ", "dim"), (f"{_memory(device)} ", "text"))
    heat: Line = ((f"{number(device.power_watts, ' W'):>5} {number(device.temperature, ' °C'):>6} ", "text"),)
    fixed = 3 + 10 + 9 + 19
    bar: Line = ()
    if width >= fixed + 13 + 8 + 12:
        bar = (*meter(device.sm_utilization, 8, _heat(device.sm_utilization)), (" ", "text"))
    if width < fixed + 13 + 8:
        heat = ()
    name = max(0, width - fixed - (9 if bar else 0) - (13 if heat else 0))
    label: Line = (
        ((fit(f"{_short_name(device)}  {number(device.sm_count)} SM", name - 1) + " ", "bold"),) if name > 6 else ()
    )
    return fit_line((*head, *label, *used, ("SM ", "dim"), *bar, load[1], *memory, *heat), width)


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


def _heat(percent: float | None) -> str:
    return "meter"


def _fill(percent: float | None) -> str:
    return "meter-high" if percent is not None and percent >= 90 else "meter-memory"
