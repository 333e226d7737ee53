"""Small pieces of text that a screen, a table or a dialog shows: meters, SM shares, symbols of states. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from mpstui.core.late import pattern
from mpstui.core.model import (
    Client,
    Daemon,
    Device,
    Health,
    LostClient,
    OutsideClient,
    PendingClient,
    Server,
    Severity,
    Snapshot,
)
from mpstui.core.partition import sm_share
from mpstui.core.text import (
    UNKNOWN,
    Line,
    at_least,
    by_device,
    format_percentage,
    format_size,
    moment_text,
    owner,
    plural,
)

HEALTH: Mapping[Health, tuple[str, str]] = {
    "ok": ("● ok", "good"),
    "held": ("◆ HELD", "warn"),
    "blocked": ("■ BLOCKED", "bad"),
    "stale": ("◌ STALE", "warn"),
    "absent": ("○ ABSENT", "dim"),
    "unknown": ("… looking", "dim"),
}
BY_LOG = ("● ok by its log", "good")
"""No daemon has answered."""
NO_WORD = ("— not known by its log", "dim")
UNREAD = ("▲ UNREAD", "warn")
UNSPOKEN = ("▲ READ-ONLY", "warn")
STARTING = ("◌ STARTING", "warn")
CLOSED = ("— CLOSED TO YOU", "warn")
QUITTING = ("◌ QUITTING", "warn")
CUT_OFF = ("✕ CUT OFF", "bad")
SERVES_NOBODY = ("✕ NO SERVER STARTS", "bad")
FAULT = ("✕ FAULT", "bad")
FAULT_BY_LOG = ("▲ FAULT?", "warn")
FAULT_CLAIMED = ("? FAULT", "dim")
SEVERITY: Mapping[Severity, tuple[str, str]] = {"info": ("·", "dim"), "warning": ("▲", "warn"), "error": ("✕", "bad")}
OUTDATED = "⟳"
OUTDATED_LEGEND = f"{OUTDATED}old"
"""The mark and what it says, in a heading."""
_BEFORE = "connected before the present limits were set, and"
KEEPS_OLD = f"{_BEFORE} keeps the old ones"
"""What outdated limits are, of one client."""
KEEP_OLD = f"{_BEFORE} keep the old ones"
"""The same of several."""
_SHORT_UUID = 12
"""Characters that tell the devices of a node apart."""
_UUID = pattern(r"\b(?:GPU|MIG)-[0-9A-Za-z/-]+")


def no_daemon(snapshot: Snapshot | None) -> str:
    """Why there is no daemon to act on."""
    looking = snapshot is None or not snapshot.looked
    return "still looking for daemons" if looking else "there is no daemon to act on"


def not_told(snapshot: Snapshot, daemon: Daemon | None, *, clients: bool = False) -> str:
    """Why nobody in a list does not mean that nobody is there; empty where it does. ``clients``: in one of all clients,
    of whom it is less often known that these are all than of the servers."""
    if not snapshot.looked:
        return "nothing of the node had been read at that time" if snapshot.past else "nothing of the node is read yet"
    if daemon is None or (daemon.clients_known if clients else daemon.servers_known):
        return ""
    return "the daemon has not told of its clients"


def client_count(daemon: Daemon) -> str:
    """``3 clients``, ``≥ 3 clients`` where there may be more; ``clients not known``."""
    count = sum(len(server.clients) for server in daemon.servers)
    if daemon.clients_known:
        return plural(count, "client")
    return f"{at_least(count, known=False)} clients" if count else "clients not known"


def health_word(daemon: Daemon, *, claimant: str | None = None) -> tuple[str, str]:
    """The mark and word of its health, and their style. With a server in FAULT a daemon that answers is not well.
    ``claimant``: the other user whose word alone that is."""
    if daemon.cut_off:
        return CUT_OFF
    if daemon.closed:
        return CLOSED
    if daemon.condition.cause == "starting":
        return STARTING
    if daemon.condition.cause == "quitting":
        return QUITTING
    if daemon.fault_word and claimant is not None:
        return FAULT_CLAIMED
    if daemon.fault_word:
        return FAULT if daemon.fault_word == "FAULT" else FAULT_BY_LOG
    if daemon.unspoken and daemon.health == "ok":
        return UNSPOKEN
    if daemon.serves_nobody:
        return SERVES_NOBODY
    if daemon.by_logs and daemon.health == "ok":
        return BY_LOG
    if daemon.by_logs and daemon.health == "unknown":
        return NO_WORD
    return UNREAD if daemon.unread else HEALTH[daemon.health]


def outdated_text(count: int, *, short: bool = False) -> str:
    """``⟳ 3 with outdated limits``, or ``⟳ 3 outdated``: how many clients the present limits do not reach."""
    return f"{OUTDATED} {count} {'outdated' if short else 'with outdated limits'}"


def meter(percent: float | None, width: int, style: str = "meter") -> Line:
    """A bar of whole and half cells: heavy up to ``percent``, light after it, so that it reads without colour too."""
    if percent is None:
        return (("┄" * width, "track"),)
    return _bar(round(max(0.0, min(100.0, percent)) / 100 * width * 2), width, style)


@lru_cache(maxsize=512)
def _bar(halves: int, width: int, style: str) -> Line:
    full, half = divmod(halves, 2)
    return (("━" * full + "╾" * half, style), ("─" * (width - full - half), "track"))


def whole(percent: float | None) -> str:
    """``87 %``, whole percent."""
    return UNKNOWN if percent is None else f"{percent:.0f} %"


def number(value: float | int | None, unit: str = "") -> str:
    """A whole number with its unit; ``—`` where not known."""
    return UNKNOWN if value is None else f"{value:.0f}{unit}"


def no_readings(detail: str) -> str:
    """Why there are none, for a place that says already that there are none."""
    return detail.removeprefix("no device readings: ")


def sm_count_text(count: int, estimated: bool, between: str = "") -> str:
    """``32 SM``, ``≈32 SM``; ``between`` stands behind the mark of an estimate."""
    return f"{'≈' + between if estimated else ''}{count} SM"


def each_sm_text(percentage: float | None, devices: Iterable[Device]) -> str:
    """SMs that a percentage comes to; where the devices differ, each one's: ``32 SM / ≈26 SM``."""
    shares = [share for device in devices if (share := sm_share(percentage, device))]
    return " / ".join(dict.fromkeys(sm_count_text(share.count, share.estimated) for share in shares))


def sm_text(percentage: float | None, devices: Iterable[Device]) -> str:
    """SMs that a percentage comes to, ``32 SM``; ``≈`` where the rounding of the device is not measured (fact 22)."""
    shares = {share for device in devices if (share := sm_share(percentage, device))}
    if not shares:
        return ""
    counts = sorted({share.count for share in shares})
    mark = "≈ " if any(share.estimated for share in shares) else ""
    return f"{mark}{'/'.join(map(str, counts))} SM"


def share_text(client: Client) -> str:
    """``25 %``; ``≤25 %`` where its own setting, which may be lower, is not known."""
    return ("≤" if client.percentage_at_most else "") + format_percentage(client.active_thread_percentage)


def threads_text(percentage: str, sms: str) -> str:
    """``25 %  32 SM`` in aligned columns."""
    return f"{percentage:>6}  {sms}" if sms else f"{percentage:>6}"


def devices_of(daemon: Daemon, snapshot: Snapshot) -> list[Device]:
    """The devices that a daemon serves; all of the node while that is not known."""
    known = [d for uuid in daemon.ordinals.values() if (d := snapshot.device(uuid))]
    return known or list(snapshot.devices)


def gpu_label(device_uuid: str, indices: Mapping[str, int | None]) -> str:
    """A device's index; ``—`` where NVML does not know the device."""
    index = indices.get(device_uuid)
    return UNKNOWN if index is None else str(index)


def gpu_in_text(device_uuid: str, indices: Mapping[str, int | None]) -> str:
    """``GPU 0`` in a sentence; ``GPU-51dbd800…`` where NVML does not know the device."""
    return with_short_uuids(with_indices(device_uuid, indices))


def with_indices(text: str, indices: Mapping[str, int | None]) -> str:
    """``GPU 0`` in place of each UUID that NVML knows; nothing else of the text is touched."""
    return _UUID.sub(lambda m: m[0] if indices.get(m[0]) is None else f"GPU {indices[m[0]]}", text)


def with_short_uuids(text: str) -> str:
    """``GPU-bd233e8e…`` in place of each UUID."""
    return _UUID.sub(lambda m: m[0] if len(m[0]) < _SHORT_UUID + 2 else f"{m[0][:_SHORT_UUID]}…", text)


def gpus_text(client: Client, indices: Mapping[str, int | None]) -> str:
    """``0,1``, ``GPU-130f1685`` where NVML does not know it; ``—`` where no device of the client is known."""
    known = ((indices.get(uuid), uuid[:_SHORT_UUID]) for uuid in client.device_uuids)
    return ",".join(sorted({short if index is None else str(index) for index, short in known})) or UNKNOWN


class MemoryUse(NamedTuple):
    """GPU memory of a client: bytes on all its devices, and how full the device is that is nearest to its limit."""

    total: int | None
    limit: int | None = None
    """Bytes, of that one device; None where none of its devices has a limit."""
    percent: float | None = None
    device: str | None = None
    """That device's UUID where the client is on several, so that ``total`` is not what the limit is held against."""
    limits: int | None = None
    """Bytes, of all its devices together, where its memory is on several and each of them has one."""


def on_device(sizes: Mapping[str, int], device: str | None) -> Mapping[str, int]:
    """Of sizes by device those of this one; all where none is named."""
    return sizes if device is None else {uuid: size for uuid, size in sizes.items() if uuid == device}


def memory_of(client: Client, ordinals: Mapping[str, str], device: str | None = None) -> MemoryUse:
    """What a client uses, and of the limit what the fullest of its devices does; ``device``: on that one alone."""
    devices = client.device_uuids if device is None else frozenset({device})
    used = on_device(client.gpu_memory, device)
    limits = {ordinals.get(ordinal, ordinal): limit for ordinal, limit in client.pinned_mem_limits.items() if limit}
    held = {uuid: limit for uuid, limit in limits.items() if uuid in devices or not devices}
    total = sum(used.values()) if used else None
    if not held:
        return MemoryUse(total)
    shares = {uuid: 100 * used[uuid] / held[uuid] for uuid in held if uuid in used}
    if not shares:
        return MemoryUse(total, min(held.values()))
    fullest = max(shares, key=lambda uuid: shares[uuid])
    if len(used) < 2:
        return MemoryUse(total, held[fullest], shares[fullest])
    return MemoryUse(
        total, held[fullest], shares[fullest], fullest, sum(held.values()) if devices <= set(held) else None
    )


def limits_text(limits: Mapping[str, int], known: bool, width: int, devices: int) -> str:
    """``2.0 GiB`` of the only one of ``devices``, ``2.0 GiB each`` where all have it, otherwise ``0: 2.0 GiB  1: …``.

    ``none`` where no limit is set (fact 6); ``by device`` where it is longer than ``width``: the details tell.
    """
    if not limits:
        return "none" if known else UNKNOWN
    if len(limits) == devices and len(set(limits.values())) == 1:
        return format_size(next(iter(limits.values()))) + (" each" if devices > 1 else "")
    text = "  ".join(f"{device}: {format_size(size)}" for device, size in by_device(limits))
    return text if len(text) <= width else "by device"


def state_mark(client: Client, *, lost: bool = False, claimed: bool = False) -> tuple[str, str]:
    """Symbol, word and style of a client's state; ``lost``: a fault took its contexts (fact 18); ``claimed``: by
    server.log alone."""
    if lost:
        return ("▲ LOST?", "warn") if claimed else ("✕ LOST", "bad")
    if client.state == "TERMINATED":
        return "✕ TERMINATED", "bad"
    if client.terminate_requested:
        return "◌ ENDING", "warn"
    if client.state != "ACTIVE":
        return "○ INACTIVE", "dim"
    found = launching(client)
    return ("● ACTIVE", "plain") if found is None else ("● LAUNCHES", "good") if found else ("○ NO LAUNCH", "plain")


_HELD: Final = 3
"""Windows for which a client counts as one that launches after it has: a pause of seconds between two steps is none."""


def launching(client: Client) -> bool | None:
    """Whether it launches kernels, by the last windows in which they were counted; None where they are not. ``ACTIVE``
    says no more than that it has a context."""
    counted = client.activity
    if counted is None or counted.launches_per_second is None:
        return None
    return any((*counted.rates[-_HELD:], counted.launches_per_second))


def status_mark(server: Server, *, claimant: str | None = None) -> tuple[str, str]:
    """Symbol, word and style of a server's status: the daemon's own word; with a ``?``, that of server.log alone, or of
    another user, ``claimant``."""
    status = (server.status or "").upper()
    if "FAULT" in status and claimant is not None:
        return FAULT_CLAIMED
    if server.fault is not None and not server.fault.confirmed:
        return FAULT_BY_LOG
    if not status:
        return UNKNOWN, "dim"
    if status == "ACTIVE":
        return ("● ACTIVE ending", "warn") if server.ending else ("● ACTIVE", "good")
    return (f"✕ {status}", "bad") if "FAULT" in status else (f"◌ {status}", "warn")


def clients_of(server: Server) -> str:
    """``2 clients``, those that the daemon does not see included; ``at least 2 clients`` where there may be more."""
    count = len(server.clients) + server.clients_elsewhere
    if server.clients_known:
        return plural(count, "client")
    return f"at least {plural(count, 'client')}" if count else "clients that are not known"


def told_to_end(server: Server) -> str | None:
    """``told to end at 2026-11-22 15:09:51, by its log, and waits for 2 clients``; None for one that was not."""
    if not server.ending:
        return None
    at = "" if server.ending_since is None else f" at {moment_text(server.ending_since)}"
    return f"told to end{at}, by its log, and waits for {clients_of(server)}"


def client_line(client: Client | PendingClient | LostClient | OutsideClient) -> str:
    """``4711 alice python train.py``: how a process is named in a line."""
    return f"{client.pid or UNKNOWN} {owner(client.user, client.uid)} {client.command or UNKNOWN}"
