"""Which panels there is room for, and how tall each is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mpstui.core.model import EMPTY
from mpstui.ui.private import WritingApp

if TYPE_CHECKING:
    from textual.geometry import Size
    from textual.screen import Screen

WIDE: Final = 118
"""Cells from which devices and limits stand side by side."""
MIN_WIDTH: Final = 40
MIN_HEIGHT: Final = 10
FRAMED: Final = (100, 32)
"""Cells and lines from which each panel has a frame; below, a line with its name or its headings is enough."""
_TWO_PANELS: Final = 7
_ALL_PANELS: Final = 16
_ROOM_FOR_LIMITS: Final = 34
"""Lines from which a narrow screen shows limits and servers together."""
_FEWEST_CLIENTS: Final = 5
_ENOUGH_CLIENTS: Final = 12
"""Rows of clients that nothing takes lines from unless the user has asked for it."""


PLOTS: Final = 4
"""Lines of a device's history, where there is room for all of them."""


def room_of(screen: Screen[Any]) -> Size:
    """Columns and lines that a screen may use: all but what a tour's caption takes below it."""
    size, app = screen.app.size, screen.app
    taken = app.lines_taken if isinstance(app, WritingApp) else 0
    return size.with_height(max(0, size.height - taken))


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
    shown: Mapping[str, bool] = EMPTY
    """What the user has decided: True, a panel that is to be shown; False, one that is hidden. Otherwise as there is
    room."""
    zoomed: bool = False
    """The panel that the user is in has the whole screen."""


class Plan(NamedTuple):
    """Heights with borders by panel id; a panel that is missing is hidden."""

    heights: dict[str, int]
    lines_per_device: int
    wide: bool
    framed: bool = True

    @property
    def too_small(self) -> bool:
        return not self.heights


def plan(width: int, height: int, needs: Needs) -> Plan:
    """Share out a screen. The clients are never hidden by anything but a panel that the user has jumped to."""
    framed = width >= FRAMED[0] and height >= FRAMED[1]
    wide = width >= WIDE and framed
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        return Plan({}, 1, wide, framed)
    room = height - 2 - needs.bars
    main = "card" if needs.explained else "clients"
    inside = needs.focus if needs.focus in {"devices", "events"} or not needs.explained else main
    if room < _TWO_PANELS or needs.zoomed:
        alone = needs.zoomed and inside == "devices"
        lines = _lines_per_device(needs.devices, width, room, wide=False, most=1.0) if framed or alone else 1
        return Plan({inside: room}, lines, wide, framed)
    if not framed:
        return Plan(_bare(room, needs, main), 1, wide, framed)
    per_device = _lines_per_device(needs.devices, width, room, wide=wide)
    heights, beside = _with_frames(room, needs, main, per_device, wide=wide)
    heights[main] = room - sum(tall for name, tall in heights.items() if name not in beside)
    return Plan(heights, per_device, wide, framed)


def _wanted(needs: Needs, name: str, *, otherwise: bool) -> bool:
    """Whether a panel is to be shown; ``otherwise``: where the user has not said."""
    return name == needs.focus or needs.shown.get(name, otherwise)


def _bare(room: int, needs: Needs, main: str) -> dict[str, int]:
    """Without frames: a line a device, headings over the lists, the events last."""
    heights: dict[str, int] = {}
    if _wanted(needs, "devices", otherwise=True):
        heights["devices"] = min(max(1, needs.devices), max(2, room // 2))
    events = 2 if needs.focus == "events" else 0
    fewest = 4 if needs.focus != main or needs.shown else _FEWEST_CLIENTS
    if not needs.explained:
        rows = {"limits": needs.limits, "servers": max(1, needs.servers)}
        for name in rows:
            if _wanted(needs, name, otherwise=False):
                left = room - sum(heights.values()) - fewest - events
                if left < 2 and name != needs.focus:
                    continue
                if left < 2:
                    heights.pop("devices", None)
                    left = room - sum(heights.values()) - fewest - events
                heights[name] = max(2, min(rows[name] + 1, 6, left))
    left = room - sum(heights.values())
    if _wanted(needs, "events", otherwise=True):
        asked = needs.shown.get("events") or needs.focus == "events"
        spare = left - (fewest if asked else 1 + _ENOUGH_CLIENTS)
        if spare < 3 and needs.focus == "events":
            heights.pop("devices", None)
            spare = room - sum(heights.values()) - fewest
        if spare >= (2 if asked else 3):
            heights["events"] = min(spare, max(3, room // (3 if asked else 5)))
    heights[main] = room - sum(heights.values())
    return heights


def _with_frames(
    room: int, needs: Needs, main: str, per_device: int, *, wide: bool
) -> tuple[dict[str, int], frozenset[str]]:
    """All but the main one, and which of them stand beside the devices."""
    heights: dict[str, int] = {}
    beside: set[str] = set()
    devices = max(1, needs.devices) * per_device + 2
    limits, servers = needs.limits + 3, min(max(1, needs.servers), 4 if room >= 30 else 2) + 3
    events = max(3, min(10, room // 4 - 1))
    with_devices = _wanted(needs, "devices", otherwise=True)
    if needs.explained:
        if with_devices:
            heights["devices"] = min(devices, max(3, room // 3))
        if _wanted(needs, "events", otherwise=True):
            heights["events"] = events
        return heights, frozenset()
    with_limits = _wanted(needs, "limits", otherwise=wide or room >= _ROOM_FOR_LIMITS)
    with_servers = _wanted(needs, "servers", otherwise=wide or not with_limits or room >= _ROOM_FOR_LIMITS)
    if wide and with_devices:
        column = limits * with_limits + servers * with_servers
        heights["devices"] = top = max(8, min(max(devices, column), room * 2 // 5 + 1))
        if with_limits:
            beside.add("limits")
            heights["limits"] = max(4, min(limits, top - servers, top - 4)) if with_servers else top
        if with_servers:
            beside.add("servers")
            heights["servers"] = top - heights.get("limits", 0)
    else:
        if with_devices:
            heights["devices"] = max(3, min(devices, room // 3))
        if with_limits:
            heights["limits"] = min(limits, 7)
        if with_servers:
            heights["servers"] = servers

    def left() -> int:
        return room - sum(tall for name, tall in heights.items() if name not in beside)

    if _wanted(needs, "events", otherwise=True):
        heights["events"] = min(events, max(4, left() - 9))
    for spare in ("events", "servers", "limits"):
        if left() < _FEWEST_CLIENTS and needs.focus != spare and spare not in beside:
            heights.pop(spare, None)
    return heights, frozenset(beside)


def _lines_per_device(devices: int, width: int, room: int, *, wide: bool, most: float = 0.3) -> int:
    """One to three lines of readings, and lines of history where there is room. ``most``: the part of the room that may
    be taken."""
    if room < 24 and most < 1:
        return 1
    inner = (width // 2 if wide else width) - 2
    if inner >= 54 and max(1, devices) * (3 + PLOTS) + 2 <= room * max(most, 0.33):
        return 3 + PLOTS
    for lines in (3, 2):
        needed = 54 if lines == 3 else 72
        if inner >= needed and devices * lines + 2 <= room * most:
            return lines
    return 1
