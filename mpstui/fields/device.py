"""What a device has."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Final

from mpstui.core.cells import (
    number,
)
from mpstui.core.gain import gain_of
from mpstui.core.model import (
    Device,
)
from mpstui.core.text import (
    UNKNOWN,
    Line,
    format_size,
    path_text,
)
from mpstui.fields.common import heading, limits_known
from mpstui.fields.rows import (
    DEGREES,
    FLAG,
    INTEGER,
    LOAD,
    SIZE,
    TEXT,
    WATTS,
    Column,
    Detail,
    Fact,
    Field,
    Metric,
    Text,
    Thing,
    View,
)


def _index_facts(device: Device, view: View) -> Iterable[Fact]:
    yield Fact("NVML index", UNKNOWN if device.index is None else str(device.index))
    for daemon in view.snapshot.daemons:
        for ordinal, uuid in daemon.ordinals.items():
            if uuid == device.uuid:
                yield Fact("daemon's ordinal", f"{ordinal} at {path_text(daemon.pipe_dir)}")


def contexts_text(device: Device) -> str:
    """``16/48``; ``?`` behind a limit that nobody has measured, as of several daemons together."""
    claim = "?" if device.limit_is_claim else ""
    return f"{UNKNOWN if device.contexts is None else device.contexts}/{device.context_limit or UNKNOWN}{claim}"


_CONTEXTS_HELP: Final = "Contexts in use, without those that daemons of other users claim."


def _counted_contexts(device: Device, view: View) -> int | None:
    """Without those that are other users' word alone."""
    if device.contexts is None:
        return None
    claims = (d.contexts_on(device.uuid) for d in view.snapshot.daemons if d.claimant(os.geteuid()) is not None)
    return max(0, device.contexts - sum(claims))


def _contexts_facts(device: Device, view: View) -> Iterable[Fact]:
    used, most = ("" if n is None else str(n) for n in (device.contexts, device.context_limit))
    yield Fact("contexts", f"{used or UNKNOWN} of {most or UNKNOWN}")
    held = {daemon.pipe_dir: daemon.contexts_on(device.uuid) for daemon in view.snapshot.daemons}
    for place, contexts in held.items() if len(held) > 1 and used else ():
        yield Fact("of these", f"{contexts} of the daemon in {path_text(place)}")
    if device.context_limit_source is not None:
        many = "; whether for each of the daemons here or for all is not known" if device.context_daemons > 1 else ""
        yield Fact("context limit", f"{most}, {device.context_limit_source}{many}")
    here = sum(device.uuid in c.device_uuids for daemon in view.snapshot.daemons for c in daemon.clients())
    yield Fact("clients", str(here) if here or used else UNKNOWN)


def _used_row(device: Device, view: View) -> str:
    return f"{format_size(device.memory_used)} / {format_size(device.memory_total)}"


def _used_facts(device: Device, view: View) -> Iterable[Fact]:
    percent = memory_percent(device)
    full = "" if percent is None else f", {percent:.0f} %"
    yield Fact("memory", f"{format_size(device.memory_used)} of {format_size(device.memory_total)}{full}")


def _limit_facts(device: Device, view: View) -> Iterable[Fact]:
    """What a new client may take of its memory, by the daemons' defaults and by their servers."""
    several = len(view.snapshot.daemons) > 1
    label = "memory limits"
    for daemon in view.snapshot.daemons:
        ordinal = next((each for each, uuid in daemon.ordinals.items() if uuid == device.uuid), None)
        if ordinal is None:
            continue
        of = f" of {path_text(daemon.pipe_dir)}" if several else ""
        limits = [(f"default{of}", daemon.default_pinned_mem_limits, limits_known(daemon, daemon))]
        limits += [
            (f"server {each.pid}", each.pinned_mem_limits, limits_known(each, daemon)) for each in daemon.servers
        ]
        for whose, sizes, known in limits:
            size = sizes.get(ordinal)
            yield Fact(label, f"{whose} {format_size(size) if size is not None else 'none' if known else UNKNOWN}")
            label = ""


def _outside_facts(device: Device, view: View) -> Iterable[Fact]:
    yield Fact("processes without MPS", number(_outside(device, view)))


def _sm_row(device: Device, view: View) -> str:
    """Of a GPU of which NVML does not tell it, what NVML does tell, by its name."""
    if device.sm_utilization is not None or device.tells_sm or device.gpu_utilization is None:
        return UNKNOWN if device.sm_utilization is None else LOAD.text(device.sm_utilization)
    return f"GPU-Util {LOAD.text(device.gpu_utilization)}"


NEAR_FULL: Final = 5
"""Contexts left at which a device is marked: the client after the last one gets an error (fact 13)."""
_IN_WORDS: Final = 20
"""Cells from which the contexts of a device are told in words."""
_GIB: Final = 1 << 30


def device_load(device: Device) -> tuple[str, str, float | None]:
    """The id of the field that tells how busy it is, what the screen calls that, and its value: SM activity, or what
    NVML tells of a GPU without it, by its name."""
    if device.tells_sm or device.sm_utilization is not None:
        return "sm_utilization", "SM", device.sm_utilization
    return "gpu_utilization", "GPU-Util", device.gpu_utilization


def memory_percent(device: Device) -> float | None:
    """How full it is."""
    if device.memory_used is None or not device.memory_total:
        return None
    return device.memory_used / device.memory_total * 100


def _contexts_cell(device: Device, view: View, cells: int) -> Line:
    """``46/48 contexts  2 left ▲``: used, the most there can be, and what is left; ▲ when near full, ✕ when full, ?
    where the most is a claim that nobody has measured. What is left beside contexts of other daemons is not known."""
    wide = cells >= _IN_WORDS
    if device.contexts is None or device.context_limit is None:
        used = f"{UNKNOWN}/{number(device.context_limit)}"
        return ((f"{used} contexts " if wide else f"{used:>5} ", "dim"),)
    left = device.contexts_left
    style, mark = "text", " "
    if left is not None and left <= NEAR_FULL:
        style, mark = ("bad", "✕") if left == 0 else ("warn", "▲")
    used = f"{device.contexts}/{device.context_limit}"
    claim = "?" if device.limit_is_claim else " "
    if not wide:
        return ((f"{used:>5}{mark if mark.strip() else claim}", style),)
    rest = f"{device.context_daemons} daemons" if left is None else "full" if left == 0 else f"{left} left"
    return ((used, style), (f" contexts{claim} ", "dim"), (f"{rest:>7} {mark} ", style))


def _device_memory_cell(device: Device, view: View, cells: int) -> Line:
    """``18.2/79.6 GiB``, the one aligned with that of other devices."""
    used = UNKNOWN if device.memory_used is None else f"{device.memory_used / _GIB:.1f}"
    total = UNKNOWN if device.memory_total is None else f"{device.memory_total / _GIB:.1f}"
    return ((f"{used:>5}/{total} GiB", "text"),)


def _rounded(name: str, unit: str = "") -> Callable[[Device, View, int], Line]:
    """A whole number with its unit; ``—`` where not known."""
    return lambda device, view, cells: ((number(getattr(device, name), unit), "text"),)


def _memory_utilization_facts(device: Device, view: View) -> Iterable[Fact]:
    if not device.tells_sm:
        value = device.memory_utilization
        yield Fact("memory utilisation", UNKNOWN if value is None else LOAD.text(value))
        yield Fact(
            "",
            "NVML has no SM activity for this GPU (Hopper and later have it). GPU-Util is the part of the "
            "time in which any kernel ran, even a small one",
            "dim",
        )


def _sm_source_facts(device: Device, view: View) -> Iterable[Fact]:
    if device.sm_source is not None:
        yield Fact("SM activity by", f"{device.sm_source}, some seconds ago")


def _capability(device: Device) -> str | None:
    return None if device.compute_capability is None else ".".join(map(str, device.compute_capability))


def _outside(device: Device, view: View) -> int | None:
    if view.snapshot.nvml_detail is not None:
        return None
    return sum(device.uuid in each.device_uuids for each in view.snapshot.outside)


_GPU_INFO: Final = Metric("gpu_info", "What the device is.", info=True)


DEVICE: Final[Thing[Device]] = Thing(
    "device",
    "A GPU as NVML sees it. Utilisations are percent of the whole device.",
    (
        Field(
            "index", "GPU", INTEGER, lambda d, v: d.index, null=True, about="NVML's.",
            row=Text(10, "GPU"), column=Column(10, 3, 99, cell=_rounded("index")),
            detail=Detail("device", 30, facts=_index_facts),
        ),
        Field("uuid", "UUID", TEXT, lambda d, v: d.uuid, detail=Detail("device", 20)),
        Field(
            "pci_bus_id", "PCI bus ID", TEXT, lambda d, v: d.pci_bus_id, null=True,
            about="As nvidia-smi writes it.", detail=Detail("device", 25),
        ),
        Field(
            "name", "name", TEXT, lambda d, v: d.name, null=True,
            row=Text(20, "NAME", lambda d, v: d.name or d.uuid),
            column=Column(
                20, 22, 60, cell=lambda d, v, cells: (((d.name or UNKNOWN).removeprefix("NVIDIA "), "bold"),)
            ),
            detail=Detail("device", 10, style="bold"),
            metric=_GPU_INFO,
        ),
        Field(
            "sm_count", "SMs", INTEGER, lambda d, v: d.sm_count, null=True,
            row=Text(30, "SM"), column=Column(30, 7, 40, cell=_rounded("sm_count", " SM")), detail=Detail("device", 50),
            metric=Metric("gpu_sms", "SMs of the device."),
        ),
        Field(
            "memory_total", "memory", SIZE, lambda d, v: d.memory_total, null=True,
            detail=Detail("now", 25, facts=_limit_facts),
            metric=Metric("gpu_memory_total_bytes", "Memory of the device."),
        ),
        Field(
            "memory_used", "memory used", SIZE, lambda d, v: d.memory_used, null=True,
            row=Text(50, "MEMORY", _used_row), column=Column(70, 14, 95, "MEMORY", cell=_device_memory_cell),
            detail=Detail("now", 20, facts=_used_facts),
            metric=Metric("gpu_memory_used_bytes", "Memory of the device in use, by clients and by all others."),
        ),
        Field(
            "compute_mode", "compute mode", TEXT, lambda d, v: d.compute_mode, null=True,
            row=Text(110, "MODE"), column=Column(40, 18, 30, "MODE", style="dim"), detail=Detail("device", 60),
            metric=_GPU_INFO,
        ),
        Field(
            "persistence", "persistence mode", FLAG, lambda d, v: d.persistence, null=True,
            about="Whether the driver stays loaded without a process.", detail=Detail("device", 65),
        ),
        Field(
            "mig", "MIG", FLAG, lambda d, v: d.mig, null=True, detail=Detail("device", 70),
            column=Column(45, 5, 35, cell=lambda d, v, cells: (("MIG", "warn"),) if d.mig else ()),
        ),
        Field(
            "contexts", "contexts", INTEGER, lambda d, v: d.contexts, null=True, about="In use.",
            row=Text(40, "CONTEXTS", lambda d, v: contexts_text(d)),
            column=Column(50, 6, 97, cell=_contexts_cell, wide=29),
            detail=Detail("now", 10, facts=_contexts_facts),
            metric=Metric("gpu_contexts", _CONTEXTS_HELP, value=_counted_contexts),
        ),
        Field(
            "context_limit", "context limit", INTEGER, lambda d, v: d.context_limit, null=True,
            about="The next client beyond it gets an error. context_limit_source says where the number is from.",
            metric=Metric(
                "gpu_contexts_limit",
                "Contexts that the device takes; context_limit_source of mps_gpu_info says how that is known. "
                "Of several daemons nobody has measured whether it is for each or for all.",
            ),
        ),
        Field(
            "context_limit_source", "context limit by", TEXT, lambda d, v: d.context_limit_source, null=True,
            about="Where the limit is from: said by the daemon, measured with a driver, documented, or claimed.",
            metric=_GPU_INFO,
        ),
        Field(
            "sm_utilization", "SM utilisation", LOAD, lambda d, v: d.sm_utilization, null=True,
            row=Text(60, "SM UTIL", _sm_row), column=Column(60, 6, 96, "SM", cell=_rounded("sm_utilization", " %")),
            detail=Detail("now", 30),
        ),
        Field(
            "sm_source", "SM activity by", TEXT, lambda d, v: d.sm_source, null=True,
            about="DCGM, some seconds old, where the configuration has dcgm = true and NVML has no value; null: NVML.",
            detail=Detail("now", 35, facts=_sm_source_facts),
        ),
        Field(
            "sm_occupancy", "SM occupancy", LOAD, lambda d, v: d.sm_occupancy, null=True,
            row=Text(70, "OCCUPANCY"), column=Column(62, 6, 20, "occupancy", cell=_rounded("sm_occupancy", " %")),
            detail=Detail("now", 40),
        ),
        Field(
            "dram_utilization", "DRAM bandwidth", LOAD, lambda d, v: d.dram_utilization, null=True,
            row=Text(80, "DRAM"), column=Column(64, 6, 20, "DRAM", cell=_rounded("dram_utilization", " %")),
            detail=Detail("now", 50),
        ),
        Field(
            "gpu_utilization", "GPU utilisation", LOAD, lambda d, v: d.gpu_utilization, null=True,
            about="Percent of the time in which any kernel ran, even a small one. It does not show how busy SMs are.",
            detail=Detail("now", 60, "GPU-Util"),
            column=Column(61, 6, 96, "GPU-Util", cell=_rounded("gpu_utilization", " %")),
        ),
        Field(
            "memory_utilization", "memory utilisation", LOAD, lambda d, v: d.memory_utilization, null=True,
            about="Percent of the time in which its memory was read or written, even a little. It is no bandwidth.",
            detail=Detail("now", 65, facts=_memory_utilization_facts),
            column=Column(63, 6, 20, "memory utilisation", cell=_rounded("memory_utilization", " %")),
        ),
        Field(
            "power_watts", "power", WATTS, lambda d, v: d.power_watts, null=True,
            row=Text(90, "POWER"), column=Column(80, 5, 50, cell=_rounded("power_watts", " W")),
            detail=Detail("now", 70),
        ),
        Field(
            "power_limit_watts", "power limit", WATTS, lambda d, v: d.power_limit_watts, null=True,
            about="The power that it may draw, as the driver enforces it now.",
            detail=Detail("now", 75),
        ),
        Field(
            "temperature", "temperature", DEGREES, lambda d, v: d.temperature, null=True,
            row=Text(100, "TEMP"), column=Column(90, 6, 50, cell=_rounded("temperature", " °C")),
            detail=Detail("now", 80),
        ),
        Field(
            "compute_capability", "compute capability", TEXT, lambda d, v: _capability(d), null=True, about="9.0",
            detail=Detail("device", 40),
        ),
        Field(
            "outside_processes", "processes outside MPS", INTEGER, _outside, null=True,
            about="Those that compute on it beside the clients of MPS; null: NVML does not say.",
            detail=Detail("now", 15, facts=_outside_facts),
            metric=Metric("gpu_outside_processes", "Processes that compute on the device without MPS."),
        ),
        Field(
            "would_gain", "would gain from MPS", FLAG, lambda d, v: gain_of(d, v.snapshot).would, null=True,
            about="Whether MPS, or more clients, would get more work done, by its readings now; null: not "
            "known. No reading tells that they would not.",
        ),
        Field(
            "gain", "gain from MPS", TEXT, lambda d, v: gain_of(d, v.snapshot).text,
            about="The readings behind would_gain, and what follows from them.",
            detail=Detail("now", 90),
        ),
    ),
    {"device": heading("Device"), "now": heading("Now")},
)  # fmt: skip
