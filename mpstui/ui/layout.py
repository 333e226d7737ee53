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
FRAMED: Final = (101, 32)
"""Cells and lines from which each panel has a frame, which takes the cell that makes them one more than 100; below, a
line with its name or its headings is enough."""
_TWO_PANELS: Final = 7
_ROOM_FOR_LIMITS: Final = 34
"""Lines from which a narrow screen shows limits and servers together."""
_FEWEST_CLIENTS: Final = 5
_ENOUGH_CLIENTS: Final = 12
"""Rows of clients that nothing takes lines from unless the user has asked for it."""


READINGS: Final = 3
"""Lines of a device's readings, where there is room for all of them."""
PLOTS: Final = 4
"""Lines of a device's history at least, one for each reading; with more, its blocks are taller."""
TALLEST: Final = 8 * PLOTS
"""Lines of a device's history at most."""
BESIDE: Final = 156
"""Cells from which the events fit beside the devices, and the clients have the width below to themselves."""
_INNER_OF_PLOTS: Final = 54
"""Cells of a device's row from which it has all its readings, and a history."""
_LAST_EVENTS: Final = 4
"""Lines without borders that the newest three events take."""
_FEWEST_EVENTS: Final = 8
"""Lines with borders that events beside the devices have at least."""
_MOST_EVENTS: Final = 20
_CARD: Final = 16
"""Lines of what a condition says, and a little room."""
_STEADY: Final = 8
"""Clients that may end before the lines they had are given to something else."""


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
    """A condition stands in place of limits, servers and clients."""
    bars: int
    """Lines for tabs, problems and the filter."""
    focus: str
    """The id of the panel that the user is in: it is always shown."""
    shown: Mapping[str, bool] = EMPTY
    """What the user has decided: True, a panel that is to be shown; False, one that is hidden. Otherwise as there is
    room."""
    zoomed: bool = False
    """The panel that the user is in has the whole screen."""
    past: bool = False
    """What happened is what one has come for."""
    clients: int | None = None
    """Rows of clients to keep lines for, as :func:`reserve` says; None: not known, as many as there is room for."""


class PanelHeights(NamedTuple):
    """Heights with borders by panel id; a panel that is missing is hidden."""

    heights: dict[str, int]
    lines_per_device: int
    wide: bool
    framed: bool = True
    events_beside: bool = False
    """The events stand below limits and servers, at the right of the devices."""

    @property
    def too_small(self) -> bool:
        return not self.heights


def reserve(rows: int, kept: int) -> int:
    """Rows of clients to keep lines for, of which ``kept`` are kept now: one that comes or goes moves no panel."""
    return kept if kept - _STEADY <= rows <= kept else rows + 2


def plan(width: int, height: int, needs: Needs) -> PanelHeights:
    """Share out a screen. The clients are never hidden by anything but a panel that the user has jumped to."""
    framed = width >= FRAMED[0] and height >= FRAMED[1]
    wide = width >= WIDE and framed
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        return PanelHeights({}, 1, wide, framed)
    room = height - 2 - needs.bars
    main = "condition" if needs.explained else "clients"
    inside = needs.focus if needs.focus in {"devices", "events"} or not needs.explained else main
    if room < _TWO_PANELS or needs.zoomed:
        alone = needs.zoomed and inside == "devices"
        lines = _lines_per_device(needs.devices, width, room, wide=False, most=1.0) if framed or alone else 1
        return PanelHeights({inside: room}, lines, wide, framed)
    if not framed:
        return PanelHeights(_bare(room, needs, main), 1, wide, framed)
    if width >= BESIDE and needs.devices and not needs.explained and (beside := _beside(room, needs)) is not None:
        return beside
    per_device = _lines_per_device(needs.devices, width, room, wide=wide)
    heights, right = _with_frames(room, needs, main, per_device, wide=wide)
    heights[main] = room - sum(tall for name, tall in heights.items() if name not in right)
    least = _CARD if needs.explained else needs.clients
    if least is not None:
        inner = (width // 2 if wide and not needs.explained else width) - 2
        per_device = _spend(heights, main, max(least, _FEWEST_CLIENTS) + 3, needs.devices, per_device, right, inner)
    return PanelHeights(heights, per_device, wide, framed)


def spares(usual: PanelHeights, with_less: PanelHeights, needs: Needs) -> bool:
    """Whether the lines that the second has less are of no use to the panels of the first: nobody misses a panel, a
    client or the newest events."""
    main = "condition" if needs.explained else "clients"
    least = (
        usual.heights.get(main, 0) if needs.explained or needs.clients is None else needs.clients + 1 + 2 * usual.framed
    )
    for name, tall in usual.heights.items():
        enough = {main: least, "events": _FEWEST_EVENTS}.get(name, tall)
        if with_less.heights.get(name, 0) < min(tall, enough):
            return False
    return not needs.zoomed


def _beside(room: int, needs: Needs) -> PanelHeights | None:
    """Devices at the left, with their history; limits, servers and events at the right; the clients below. None: the
    user has it otherwise, or there is no room for all of it."""
    if not (_wanted(needs, "devices", otherwise=True) and _wanted(needs, "events", otherwise=True)):
        return None
    devices = max(1, needs.devices)
    right: dict[str, int] = {}
    if _wanted(needs, "limits", otherwise=True):
        right["limits"] = needs.limits + 3
    if _wanted(needs, "servers", otherwise=True):
        right["servers"] = min(max(1, needs.servers), 4) + 3
    free = room - 3 - (needs.clients if needs.clients is not None else room)
    may = min(max(free, room * 9 // 20), room - 3 - _FEWEST_CLIENTS)
    right_least = sum(right.values()) + _FEWEST_EVENTS
    usual = READINGS + PLOTS if devices * (READINGS + PLOTS) + 2 <= may else READINGS
    if max(devices * usual + 2, right_least) > may:
        return None
    per_device = max(usual, min(READINGS + TALLEST, (min(free, may) - 2) // devices))
    top = max(right_least, devices * per_device + 2)
    per_device = min(READINGS + TALLEST, (top - 2) // devices)
    heights = {"devices": top, **right, "events": top - sum(right.values()), "clients": room - top}
    return PanelHeights(heights, per_device, True, True, True)


def _spend(
    heights: dict[str, int], main: str, least: int, devices: int, per_device: int, right: frozenset[str], inner: int
) -> int:
    """Give the lines that the main panel has no use for to the devices' history, then to the events; how many lines a
    device has then. ``least``: lines that the main one keeps; ``inner``: cells of a device's row."""
    spare, top = heights[main] - least, heights.get("devices", 0)
    if top and devices and inner >= _INNER_OF_PLOTS and spare > 0:
        most = min(READINGS + TALLEST, (top + spare - 2) // max(1, devices))
        if most > max(per_device, READINGS - 1):
            grown = max(0, max(1, devices) * most + 2 - top)
            per_device, spare = most, spare - grown
            heights["devices"] += grown
            heights[main] -= grown
            if right:
                heights["servers" if "servers" in right else "limits"] += grown
    if "events" in heights and spare > 0:
        grown = max(0, min(spare, _MOST_EVENTS - heights["events"]))
        heights["events"] += grown
        heights[main] -= grown
    return per_device


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
        asked = needs.focus == "events"
        enough = _ENOUGH_CLIENTS
        if needs.clients is not None and not needs.explained:
            enough = max(_FEWEST_CLIENTS, min(_ENOUGH_CLIENTS, needs.clients))
        spare = left - (fewest if asked else 1 + enough)
        least = _LAST_EVENTS if needs.past or needs.shown.get("events") else 3
        if not asked and least == _LAST_EVENTS:
            spare = max(spare, min(least, left - fewest))
        if spare < 3 and needs.focus == "events":
            heights.pop("devices", None)
            spare = room - sum(heights.values()) - fewest
        if spare >= (2 if asked else 3):
            part = 3 if asked else 5
            heights["events"] = min(spare, max(least, room // (2 if enough < _ENOUGH_CLIENTS else part)))
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
    if not devices or (room < 24 and most < 1):
        return 1
    inner = (width // 2 if wide else width) - 2
    if inner >= _INNER_OF_PLOTS and max(1, devices) * (READINGS + PLOTS) + 2 <= room * max(most, 0.33):
        return READINGS + (PLOTS if most < 1 else min(TALLEST, (room - 2) // max(1, devices) - READINGS))
    for lines in (READINGS, 2):
        needed = _INNER_OF_PLOTS if lines == READINGS else 72
        if inner >= needed and devices * lines + 2 <= room * most:
            return lines
    return 1
