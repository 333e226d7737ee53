"""The devices' readings since the program started, in bounded memory, and lines of blocks that show them."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isnan, nan
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from mpstui.core.activity import Trends
from mpstui.core.model import Daemon, Device, Snapshot

BLOCKS: Final = "▁▂▃▄▅▆▇█"
_FILLS: Final = " " + BLOCKS
WINDOWS: Final = (60, 300, 900, 3600)
"""Seconds that the plots can show."""
USUAL: Final = 300
_FINE: Final = 300
"""Readings that are kept second by second."""
COARSE_S: Final = 10.0
_COARSE: Final = 361
"""Means of ten seconds that are kept: an hour."""
_AFTER_S: Final = 0.001
"""By this much what ends now ends later: what was read now is in it."""
_DEVICES: Final = 64
"""Devices that are remembered at most."""


class Reading(NamedTuple):
    """One device at one time; None: not known."""

    time: float
    sm_utilization: float | None
    """Percent."""
    gpu_utilization: float | None
    """Percent: no measure of SM activity; it stands, by its own name, where that is not told."""
    memory: float | None
    """Percent of the device's memory."""
    power: float | None
    """Watts."""
    clients: float | None


FEW: Final = 8.0
"""Clients that fill a plot; of fewer the blocks are low, so that one does not look like all that there can be."""


class PlotRow(NamedTuple):
    """One of the plots of a device."""

    field: str
    """Of a reading."""
    label: str
    unit: str
    top: float | None
    """What a full block stands for; None: the largest that is shown."""
    least: float = 0.0
    """What it then stands for at least: an idle GPU draws little, and does not look busy."""

    def full(self, most: float | None) -> float:
        """What a full block stands for, where ``most`` is the largest that is shown."""
        return self.top or max(most or 0.0, self.least)


METRICS: Final = (
    PlotRow("sm_utilization", "SM", " %", 100.0),
    PlotRow("memory", "mem", " %", 100.0),
    PlotRow("power", "power", " W", None, 300.0),
    PlotRow("clients", "clients", "", None, FEW),
)
"""The first has another field and label where the device tells no SM activity, and power a top where its limit is
known."""


class _Spell(NamedTuple):
    """One reading, or several of ten seconds, as they are kept."""

    mean: Reading
    most: Reading
    """The largest of each."""


_ONE: Final = len(Reading._fields)
_PACKED: Final = Struct(f"{2 * _ONE}d")
"""A spell as its numbers: a quarter of what they take as objects, of which an hour of eight devices has 60,000."""


def _packed(spell: _Spell) -> bytes:
    return _PACKED.pack(*(nan if value is None else value for reading in spell for value in reading))


def _unpacked(kept: bytes) -> _Spell:
    values = [None if isnan(value) else value for value in _PACKED.unpack(kept)]
    return _Spell(Reading._make(values[:_ONE]), Reading._make(values[_ONE:]))


class _Device:
    def __init__(self) -> None:
        self.fine: deque[_Spell] = deque(maxlen=_FINE)
        self.coarse: deque[bytes] = deque(maxlen=_COARSE)
        self.gathered: list[_Spell] = []

    def take(self, reading: Reading) -> None:
        if self.fine and (since := reading.time - self.fine[-1].mean.time) < 0.9:
            if since >= 0 and reading[1:] != self.fine[-1].most[1:]:  # none is kept of it, but that it was the largest
                mean, most = self.fine[-1]
                self.fine[-1] = self.gathered[-1] = _Spell(mean, _each(max, (most, reading)))
            return
        kept = _Spell(reading, reading)
        self.fine.append(kept)
        if self.gathered and reading.time // COARSE_S != self.gathered[0].mean.time // COARSE_S:
            means, mosts = zip(*self.gathered, strict=True)
            self.coarse.append(_packed(_Spell(_each(_mean, means), _each(max, mosts))))
            self.gathered = []
        self.gathered.append(kept)

    def source(self, seconds: int) -> Iterator[_Spell]:
        """What a plot of so many seconds is made of, the newest first."""
        if seconds <= _FINE:
            return reversed(self.fine)
        return itertools.chain(reversed(self.gathered), map(_unpacked, reversed(self.coarse)))


def _between(times: Iterable[float]) -> float:
    """Seconds between two readings as they usually follow each other, the newest first; one, where too few tell."""
    found = sorted(later - earlier for later, earlier in itertools.pairwise(times))
    return found[len(found) // 2] if len(found) > 2 else 1.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _each(of: Callable[[Sequence[float]], float], readings: Sequence[Reading]) -> Reading:
    """One reading of several, at the time of the first one."""
    columns = ([value for value in column if value is not None] for column in zip(*readings, strict=True))
    _, *known = columns
    return Reading(readings[0].time, *(of(values) if values else None for values in known))


class DeviceHistory:
    """What the snapshots have said of each device: five minutes by the second, an hour by ten seconds; and of each
    client."""

    def __init__(self) -> None:
        self._devices: dict[str, _Device] = {}
        self.clients = Trends()
        self._counted: dict[Path, tuple[Daemon, Counter[str]]] = {}

    def take(self, snapshot: Snapshot) -> None:
        """Keep the readings of a snapshot; one of a moment that is known already changes nothing."""
        largest = max((device.memory_total or 0 for device in snapshot.devices), default=0)
        self.clients.take(snapshot.time, [each for daemon in snapshot.daemons for each in daemon.clients()], largest)
        clients: Counter[str] = Counter()
        before, self._counted = self._counted, {}
        for daemon in snapshot.daemons:  # one of which nothing new is known is the same object
            known = before.get(daemon.pipe_dir)
            if known is None or known[0] is not daemon:
                known = daemon, Counter(uuid for client in daemon.clients() for uuid in client.device_uuids)
            self._counted[daemon.pipe_dir] = known
            clients += known[1]
        for device in snapshot.devices[:_DEVICES]:
            count = None if device.contexts is None else float(clients[device.uuid])
            self._devices.setdefault(device.uuid, _Device()).take(_reading(device, snapshot.time, count))
        for gone in [uuid for uuid in self._devices if snapshot.device(uuid) is None][: len(self._devices) - _DEVICES]:
            del self._devices[gone]

    def columns(self, uuid: str, seconds: int, cells: int, now: float, *, over: bool = True) -> list[Reading | None]:
        """One mean for each cell, the oldest first; None where nothing was read. ``over``: a cell is shown when its
        time is over, so that nothing moves in between; otherwise the last one ends now."""
        known = self._devices.get(uuid)
        if known is None or cells < 1:
            return [None] * max(0, cells)
        step = seconds / cells
        first = begin(seconds, cells, now, over=over)
        origin, at = (0.0, round(first / step)) if over else (first, 0)
        bins: dict[int, list[Reading]] = {}
        read: list[tuple[int, Reading]] = []
        for kept in known.source(seconds):
            cell = int((kept.mean.time - origin) // step) - at
            read.append((cell, kept.mean))
            if cell < 0:
                break
            bins.setdefault(cell, []).append(kept.mean)
        near = 2 * max(_between(mean.time for _, mean in read), COARSE_S if seconds > _FINE else 0.0)
        for (later, after), (earlier, before) in itertools.pairwise(read):
            if after.time - before.time < near:  # there was nothing to read between the two
                bins |= {cell: [before] for cell in range(max(0, earlier + 1), later)}
        return [_each(_mean, bins[cell]) if cell in bins else None for cell in range(cells)]

    def most(self, uuid: str, seconds: int, since: float) -> Reading | None:
        """The largest of each since then, as a plot of so many seconds knows them; None where nothing was read."""
        known = self._devices.get(uuid)
        source = known.source(seconds) if known is not None else iter(())
        found = [kept.most for kept in itertools.takewhile(lambda kept: kept.mean.time >= since, source)]
        return _each(max, found) if found else None


def begin(seconds: int, cells: int, now: float, *, over: bool = True) -> float:
    """When the first cell of a plot begins."""
    step = seconds / cells
    return (now // step - cells) * step if over else now + _AFTER_S - seconds


def _reading(device: Device, time: float, clients: float | None) -> Reading:
    full = device.memory_total
    memory = None if device.memory_used is None or not full else device.memory_used / full * 100
    return Reading(time, device.sm_utilization, device.gpu_utilization, memory, device.power_watts, clients)


def spark(values: Sequence[float | None], top: float | None, rows: int = 1) -> list[str]:
    """Blocks for each value, so many rows of them, the uppermost first; a space where it is not known. ``top``: what
    the blocks of all rows but an eighth stand for."""
    known = [value for value in values if value is not None]
    full = top or max(known, default=0.0) or 1.0
    most = 8 * rows - 1  # the uppermost eighth stays free: what is drawn above it is told apart
    eighths = [0 if v is None else 1 + max(0, min(most - 1, int(v / full * (most - 0.001)))) for v in values]
    return ["".join(_FILLS[max(0, min(8, each - 8 * row))] for each in eighths) for row in range(rows - 1, -1, -1)]


def rows_of(lines: int) -> list[int]:
    """How many rows each of the readings has of so many lines: the same, and the first ones what is left."""
    each, left = divmod(max(0, lines), len(METRICS))
    return [each + (number < left) for number in range(len(METRICS))]


def window_text(seconds: int) -> str:
    """``5 min``."""
    return f"{seconds // 60} min" if seconds < 3600 else "1 h"
