"""Who launches how many kernels: the processes of a node, after a look at all of them at once; pure."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import isnan, nan
from pathlib import Path
from typing import Final, NamedTuple

from mpstui.core.model import Client, Daemon, ProcessKey, Snapshot, Source
from mpstui.core.text import UNKNOWN, owner, path_text, plural

CAVEAT = "Launches are not SM time: one long kernel keeps a GPU as busy as a thousand short ones."
ELSEWHERE = "it is in another PID namespace, and which process it is here is not proved"
FULLY_WATCHED = 0.95
"""The part of a time that was watched from which on nothing more is said of it."""
_BARS = "▁▂▃▄▅▆▇"


class Launcher(NamedTuple):
    """A process, and how many kernels it launched while it was looked at."""

    key: ProcessKey
    pipe_dir: Path | None
    """Of its daemon; None for one that computes without MPS."""
    server_pid: int | None
    uid: int | None
    user: str | None
    command: str | None
    container: str | None
    gpu_memory: int | None
    launches: int | None
    """None where it was not counted."""
    per_second: float | None
    share: float | None
    """Percent of all launches that were counted."""
    why: str
    """Why it was not counted."""
    devices: tuple[str, ...] = ()
    """UUIDs of those that it has a context on; none where nobody tells."""
    memory_by_device: Mapping[str, int] | None = None
    """Bytes; None where it is not told apart."""

    @property
    def pid(self) -> int:
        return self.key.pid


def launching_words(launchers: Sequence[Launcher], verb: str, one: str) -> str:
    """``11 of 14 clients launch, 1 of 2 without MPS``: clients are counted as everywhere else, and the others apart.
    ``one``: the verb where it is one client."""
    inside = [each for each in launchers if each.pipe_dir is not None]
    outside = [each for each in launchers if each.pipe_dir is None]
    said = []
    if inside:
        said.append(f"{_busy(inside)} of {plural(len(inside), 'client')} {one if len(inside) == 1 else verb}")
    if outside:
        of = f"{len(outside)}" if inside else plural(len(outside), "process")
        said.append(
            f"{_busy(outside)} of {of} without MPS" + ("" if inside else f" {one if len(outside) == 1 else verb}")
        )
    return ", ".join(said)


def _busy(launchers: Iterable[Launcher]) -> int:
    return sum(bool(each.launches) for each in launchers)


NOT_THERE: Final = "No MPS daemon runs here, so that there is no client to count."


class ActivityLook(NamedTuple):
    """One look; who launched most comes first, who was not counted last."""

    time: float
    source: Source
    seconds: float
    """How long was counted."""
    how: str
    """In words; empty where nobody could be counted."""
    launchers: tuple[Launcher, ...]
    daemons: int
    """That run."""
    unknown: tuple[str, ...] = ()
    """What the look cannot know, and why, a sentence each: daemons that are not there or do not answer, NVML."""
    closed: int = 0
    """Daemons of which it is not known whether they run: their directories are closed to who looks."""

    @property
    def counted(self) -> list[Launcher]:
        """Who could be counted."""
        return [each for each in self.launchers if each.launches is not None]

    @property
    def sentence(self) -> str:
        """What it comes to."""
        counted = self.counted
        if not self.launchers:
            none = "There is no client, and nobody computes without MPS."
            return " ".join(self.unknown) or (none if self.daemons else NOT_THERE)
        if not counted:
            return f"No client could be counted: {self.launchers[0].why}."
        missing = len(self.launchers) - len(counted)
        text = f"In {self.seconds:.1f} s {launching_words(counted, 'launched kernels', 'launched kernels')}"
        return " ".join((f"{text}; {missing} could not be counted." if missing else f"{text}.", *self.unknown))


def activity_look(
    snapshot: Snapshot,
    seconds: float,
    how: str,
    launches: Mapping[ProcessKey, int],
    refused: Mapping[ProcessKey, str],
    euid: int | None = None,
) -> ActivityLook:
    """``launches`` of the snapshot's processes within ``seconds``; ``refused``: of whom they are not known, and why;
    ``euid``: who looks."""
    total = sum(launches.values())
    found: list[Launcher] = []

    def add(key: ProcessKey, local: bool, *rest: object, **more: object) -> None:
        count = launches.get(key) if local else None
        why = "" if count is not None else refused.get(key, "it came or went meanwhile") if local else ELSEWHERE
        rate = round(count / seconds, 1) if count is not None and seconds > 0 else None
        share = 100 * count / total if count is not None and total else None
        found.append(Launcher(key, *rest, count, rate, share, why, **more))  # type: ignore[call-arg, arg-type]

    for daemon in snapshot.daemons:
        claimed = _claimed(snapshot, daemon, euid)
        for c in (c for c in daemon.clients() if c.key not in claimed):
            memory = sum(c.gpu_memory.values()) if c.gpu_memory else None
            shown = (daemon.pipe_dir, c.server_pid, c.uid, c.user, c.command, c.container, memory)
            add(c.key, c.local, *shown, devices=tuple(c.device_uuids), memory_by_device=c.gpu_memory or None)
    for o in snapshot.outside:
        add(o.key, True, None, None, o.uid, o.user, o.command, None, o.gpu_memory, devices=tuple(o.device_uuids))
    found.sort(key=lambda each: (each.launches is None, -(each.launches or 0), each.pid))
    running = sum(daemon.runs for daemon in snapshot.daemons)
    unknown = tuple(_unknown(snapshot, euid))
    closed = sum(daemon.closed for daemon in snapshot.daemons)
    return ActivityLook(snapshot.time, snapshot.source, seconds, how, tuple(found), running, unknown, closed)


def _claimed(snapshot: Snapshot, daemon: Daemon, euid: int | None) -> Collection[ProcessKey]:
    """Of what another user has recorded it is said once that all of it is his word."""
    return daemon.claimed(euid if snapshot.past is None else daemon.speaker.by)


def _unknown(snapshot: Snapshot, euid: int | None) -> Iterator[str]:
    """What nobody tells of who uses the devices."""
    running = any(daemon.runs for daemon in snapshot.daemons)
    if not snapshot.looked:
        yield "The clients are not known: nothing of the node was read."
    for daemon in snapshot.daemons:
        why = f"{path_text(daemon.pipe_dir)} is {daemon.state_word}: {(daemon.health_detail or UNKNOWN).rstrip('.')}"
        if daemon.closed:
            yield f"The clients are not known: {daemon.health_detail or UNKNOWN}."
        elif not running and not daemon.servers:
            yield f"No daemon to ask: {why}."
        elif daemon.runs and not daemon.servers_known:
            yield f"The clients are not known: {why}."
        if not (claimed := _claimed(snapshot, daemon, euid)):
            continue
        if daemon.speaker.uid is None:
            named = f"The daemon in {path_text(daemon.pipe_dir)} claims {plural(len(claimed), 'client')}"
            yield f"{named}, not counted: its owner is not known ({daemon.speaker.why})."
        else:
            named = f"{owner(daemon.user, daemon.uid)}'s daemon in {path_text(daemon.pipe_dir)} names"
            yield f"{named} {plural(len(claimed), 'process')} of other users as its clients, which cannot be so."
    if snapshot.nvml_detail is not None and running:
        yield f"Who computes without MPS is not known: {snapshot.nvml_detail}."


def share_of_all(share: float) -> str:
    """``50 %``, ``≈7 %`` of 7.49: shares that are rounded do not always add up to 100; what is above 0 is not 0."""
    if 0 < share < 1:
        return "<1 %"
    return f"{'' if share == int(share) else '≈'}{share:.0f} %"


def rate_text(rate: float | None) -> str:
    """``12,830``; below 10 with one decimal, so that one launch in some seconds is not 0."""
    if rate is None:
        return UNKNOWN
    return f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"


def sparkline(rates: Sequence[float | None], width: int, least: float = 0.0) -> str:
    """The last of them as bars, the highest one seven eighths of a line, so that it does not touch the line above, or
    what ``least`` is where none is higher; what is above 0 is never an empty bar, what is not known a blank. Nothing,
    where that highest one is 0."""
    shown = rates[-width:] if width > 0 else ()
    known = [rate for rate in shown if rate is not None]
    top = max((*known, least)) if known else 0.0
    if not top:
        return ""
    return "".join(" " if rate is None else _BARS[int(6 * rate / top + 0.999)] if rate else _BARS[0] for rate in shown)


def short_rate(rate: float | None) -> str:
    """In five cells at most: ``9,342``, ``13.7k``, ``274k``, ``1.2M``."""
    if rate is None or rate < 9999.5:
        return rate_text(rate)
    thousands = rate / 1000
    if thousands < 999.5:
        return f"{thousands:.1f}k" if thousands < 99.95 else f"{thousands:.0f}k"
    return f"{rate / 1e6:.1f}M" if rate < 99.95e6 else f"{rate / 1e6:.0f}M"


_LEAST: Final = (float(1 << 30), 100.0)
"""What a full bar of memory, and of CPU, stands for at least."""


class Trends:
    """GPU memory and CPU of each client since it was first seen: one value every ten seconds, ten minutes of them, in
    half a kilobyte a client."""

    STEP: Final = 10.0
    _KEPT: Final = 60
    _CLIENTS: Final = 4096

    def __init__(self) -> None:
        self._of: dict[ProcessKey, tuple[array[float], array[float]]] = {}
        self._drawn: dict[tuple[ProcessKey, int, int], str] = {}
        self.step: float | None = None
        """Which step the newest values are of."""
        self._full = _LEAST
        self.most_launches = 0.0
        """The largest rate of any client: one scale for all, as rows are compared."""

    def take(self, now: float, clients: Sequence[Client], device: int | None = None) -> None:
        """Note what these have now, once in a step; what is not among them has ended, and is forgotten. ``device``:
        bytes of the largest device, where that is known."""
        if self.step == (this := now // self.STEP):
            return
        self.step = this
        self._drawn.clear()
        rates = (rate for each in clients if each.activity is not None for rate in each.activity.rates)
        self.most_launches = max((rate for rate in rates if rate is not None), default=0.0)
        before, self._of = self._of, {}
        for client in islice(clients, self._CLIENTS):
            kept = self._of[client.key] = before.get(client.key) or (array("f"), array("f"))
            values = sum(client.gpu_memory.values()) if client.gpu_memory else None, client.cpu_percent
            for column, value in zip(kept, values, strict=True):
                column.append(nan if value is None else value)
                if len(column) > self._KEPT:
                    del column[0]
        most = [max((x for kept in self._of.values() for x in kept[n] if not isnan(x)), default=0.0) for n in (0, 1)]
        self._full = float(device or max(most[0], _LEAST[0])), max(most[1], _LEAST[1])

    def memory(self, key: ProcessKey, cells: int) -> str:
        """Its GPU memory as bars in so many cells, the newest last; a full one is the largest device, and where that is
        not known the most that any client had, a GiB at least."""
        return self._bars(key, 0, cells)

    def cpu(self, key: ProcessKey, cells: int) -> str:
        """Its CPU as bars, of which a full one is the most that any client had, a core at least."""
        return self._bars(key, 1, cells)

    def _bars(self, key: ProcessKey, column: int, cells: int) -> str:
        """They are drawn once in a step."""
        asked = key, column, cells
        drawn = self._drawn.get(asked)
        if drawn is None:
            kept = self._of.get(key)
            values = kept[column][-cells:] if kept is not None and cells > 0 else ()
            shown = [None if isnan(value) else value for value in values]
            drawn = self._drawn[asked] = sparkline(shown, cells, self._full[column])
        return drawn
