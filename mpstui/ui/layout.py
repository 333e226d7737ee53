"""Which panels there is room for, and how tall each is."""

from __future__ import annotations

from typing import Final, NamedTuple

WIDE: Final = 118
"""Cells from which devices and limits stand side by side."""
MIN_WIDTH: Final = 40
MIN_HEIGHT: Final = 10
_TWO_PANELS: Final = 7
_ALL_PANELS: Final = 16
_ROOM_FOR_LIMITS: Final = 34
"""Lines from which a narrow screen shows limits and servers together."""
_FEWEST_CLIENTS: Final = 5


class Needs(NamedTuple):
    """What there is to show."""

    devices: int
    limits: int
    servers: int
    explained: bool
    """A card stands in place of limits, servers and clients."""
    bars: int
    """Lines for tabs, problems and the filter."""
    focus: str
    """The id of the panel that the user is in: it is always shown."""


class Plan(NamedTuple):
    """Heights with borders by panel id; a panel that is missing is hidden."""

    heights: dict[str, int]
    lines_per_device: int
    wide: bool

    @property
    def too_small(self) -> bool:
        return not self.heights


def plan(width: int, height: int, needs: Needs) -> Plan:
    """Share out a screen. The clients are never hidden by anything but a panel that the user has jumped to."""
    wide = width >= WIDE
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        return Plan({}, 1, wide)
    room = height - 2 - needs.bars
    per_device = _lines_per_device(needs.devices, width, room)
    heights: dict[str, int] = {}
    devices = max(1, needs.devices) * per_device + 2
    limits = needs.limits + 3
    events = max(3, min(10, room // 4 - 1))
    main = "card" if needs.explained else "clients"
    if room < _TWO_PANELS:
        shown = needs.focus if needs.focus in {"devices", "events"} or not needs.explained else main
        return Plan({shown: room}, 1, wide)
    if needs.explained:
        heights["devices"] = min(devices, max(3, room // 3))
        heights["events"] = events
        if room < _ALL_PANELS:
            heights.pop("devices" if needs.focus == "events" else "events")
    elif room < _ALL_PANELS:
        # One small panel above the clients: the one that the user is in, otherwise the devices.
        above = needs.focus if needs.focus in {"limits", "servers", "events"} else "devices"
        wanted = {"devices": devices, "limits": limits, "servers": needs.servers + 3, "events": 7}[above]
        heights[above] = max(3, min(wanted, room - 6))
    else:
        if wide:
            heights["devices"] = max(4, min(max(devices, limits), room * 2 // 5))
        else:
            heights["devices"] = max(3, min(devices, room // 3))
            if room >= _ROOM_FOR_LIMITS or needs.focus == "limits":
                heights["limits"] = min(limits, 7)
        if "limits" not in heights or room >= _ROOM_FOR_LIMITS:
            heights["servers"] = min(max(1, needs.servers), 4 if room >= 30 else 2) + 3
        heights["events"] = min(events, max(4, room - sum(heights.values()) - 9))
        for spare in ("events", "servers"):
            if room - sum(heights.values()) < _FEWEST_CLIENTS and needs.focus != spare:
                heights.pop(spare, None)
    heights[main] = room - sum(heights.values())
    if wide and main == "clients" and "devices" in heights and room >= _ALL_PANELS:
        heights["limits"] = heights["devices"]
    return Plan(heights, per_device, wide)


def _lines_per_device(devices: int, width: int, room: int) -> int:
    if room < 24:
        return 1
    inner = (width // 2 if width >= WIDE else width) - 2
    for lines in (3, 2):
        needed = 54 if lines == 3 else 72
        if inner >= needed and devices * lines + 2 <= room * 3 // 10:
            return lines
    return 1
