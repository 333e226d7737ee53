"""Small pieces of text shared by the panels: meters, SM shares, symbols of states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from mpstui.model import Client, Daemon, Device, Health, Server, Severity, Snapshot
from mpstui.partition import sm_share
from mpstui.text import UNKNOWN, format_percentage, format_size
from mpstui.ui.painted import Line

HEALTH: Mapping[Health, tuple[str, str]] = {
    "ok": ("● ok", "good"),
    "held": ("◆ HELD", "warn"),
    "blocked": ("■ BLOCKED", "bad"),
    "stale": ("◌ STALE", "warn"),
    "absent": ("○ ABSENT", "dim"),
}
SEVERITY: Mapping[Severity, tuple[str, str]] = {"info": ("·", "dim"), "warning": ("▲", "warn"), "error": ("✕", "bad")}
OUTDATED = "⟳"


@lru_cache(maxsize=4096)
def meter(percent: float | None, width: int, style: str = "meter") -> Line:
    """A bar of whole and half cells: heavy up to ``percent``, light after it, so that it reads without colour too."""
    if percent is None:
        return (("┄" * width, "track"),)
    halves = round(max(0.0, min(100.0, percent)) / 100 * width * 2)
    full, half = divmod(halves, 2)
    return (("━" * full + "╾" * half, style), ("─" * (width - full - half), "track"))


def whole(percent: float | None) -> str:
    """``87 %``, whole percent."""
    return UNKNOWN if percent is None else f"{percent:.0f} %"


def number(value: float | int | None, unit: str = "") -> str:
    """A whole number with its unit; ``—`` where not known."""
    return UNKNOWN if value is None else f"{value:.0f}{unit}"


def count(value: int, noun: str) -> str:
    """``1 server``, ``2 servers``."""
    return f"{value} {noun}" if value == 1 else f"{value} {noun}s"


def sm_text(percentage: float | None, devices: Iterable[Device]) -> str:
    """SMs that a percentage comes to, ``32 SM``; ``≈`` where the rounding of the device is not measured (fact 22)."""
    shares = {share for device in devices if (share := sm_share(percentage, device))}
    if not shares:
        return ""
    counts = sorted({share.count for share in shares})
    mark = "≈ " if any(share.estimated for share in shares) else ""
    return f"{mark}{'/'.join(map(str, counts))} SM"


def threads_text(percentage: float | None, sms: str) -> str:
    """``25 %  32 SM`` in aligned columns."""
    return f"{format_percentage(percentage):>6}  {sms}" if sms else f"{format_percentage(percentage):>6}"


def devices_of(daemon: Daemon, snapshot: Snapshot) -> list[Device]:
    """The devices that a daemon serves; all of the node while that is not known."""
    known = [d for uuid in daemon.ordinals.values() if (d := snapshot.device(uuid))]
    return known or list(snapshot.devices)


def gpu_label(device_uuid: str, indices: Mapping[str, int | None]) -> str:
    """A device's index; ``?`` where NVML does not know the device."""
    index = indices.get(device_uuid)
    return "?" if index is None else str(index)


def gpus_text(client: Client, indices: Mapping[str, int | None]) -> str:
    """``0,1``; ``—`` where no device of the client is known."""
    return ",".join(sorted({gpu_label(u, indices) for u in client.device_uuids})) or UNKNOWN


def memory_of(client: Client, ordinals: Mapping[str, str]) -> tuple[int | None, int | None, float | None]:
    """Bytes used, the limit and the share of it in percent, of the device that is nearest to its limit.

    Where no limit is known, the bytes on all devices.
    """
    fullest: tuple[int, int, float] | None = None
    for ordinal, limit in client.pinned_mem_limits.items():
        used = client.gpu_memory.get(ordinals.get(ordinal, ordinal))
        if used is not None and limit and (fullest is None or used / limit * 100 > fullest[2]):
            fullest = (used, limit, used / limit * 100)
    if fullest is not None:
        return fullest
    limit_only = min(client.pinned_mem_limits.values(), default=None)
    return (sum(client.gpu_memory.values()) if client.gpu_memory else None), limit_only, None


def limits_text(limits: Mapping[str, int], known: bool, width: int) -> str:
    """``2.0 GiB``, or ``0: 2.0 GiB  1: 4.0 GiB`` where devices differ; ``none`` where no limit is set (fact 6).

    ``by device`` where that is longer than ``width``: the details tell.
    """
    if not limits:
        return "none" if known else UNKNOWN
    if len(limits) > 1 and len(set(limits.values())) == 1:
        return f"{format_size(next(iter(limits.values())))} each"
    if len(limits) == 1 and "0" in limits:
        return format_size(limits["0"])
    text = "  ".join(f"{device}: {format_size(size)}" for device, size in sorted(limits.items()))
    return text if len(text) <= width else "by device"


def state_mark(client: Client) -> tuple[str, str]:
    """Symbol, word and style of a client's state."""
    if client.state == "TERMINATED":
        return "✕ TERMINATED", "bad"
    if client.terminate_requested:
        return "◌ ENDING", "warn"
    return ("● ACTIVE", "good") if client.state == "ACTIVE" else ("○ INACTIVE", "dim")


def status_mark(server: Server) -> tuple[str, str]:
    """Symbol, the daemon's own word and style of a server's status."""
    status = (server.status or "").upper()
    if not status:
        return UNKNOWN, "dim"
    if status == "ACTIVE":
        return "● ACTIVE", "good"
    return (f"✕ {status}", "bad") if "FAULT" in status else (f"◌ {status}", "warn")
