"""Which limits hold for one client: those of its server when it connected, and its own environment's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mpstui.model import empty
from mpstui.observe.readings import by_ordinal
from mpstui.observe.state import LimitsInForce
from mpstui.text import parse_size

PERCENTAGE_VARIABLE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MEMORY_VARIABLE = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"


@dataclass(frozen=True, slots=True)
class Effective:
    """What a client got."""

    percentage: float | None = None
    memory: Mapping[str, int] = field(default_factory=empty)
    """Bytes by the server's ordinal."""
    priority: int | None = None
    source: Mapping[str, str] = field(default_factory=empty)
    outdated: bool = False


def effective(
    at_connect: LimitsInForce,
    present: LimitsInForce,
    ordinals: Mapping[str, str],
    environment: Mapping[str, str] | None,
) -> Effective:
    """The lower one wins, the server's or the client's own, of percentages and of memory limits."""
    environment = environment or {}
    source: dict[str, str] = {}
    percentage = at_connect.percentage
    if percentage is not None:
        source["active_thread_percentage"] = "server"
    own = own_percentage(environment.get(PERCENTAGE_VARIABLE))
    if own is not None and percentage is not None and own < percentage:
        percentage = own
        source["active_thread_percentage"] = "client"
    memory = by_ordinal(at_connect.memory, ordinals)
    if memory:
        source["pinned_mem_limits"] = "server"
    for device, size in own_memory(environment.get(MEMORY_VARIABLE)).items():
        device = next((ordinal for ordinal, uuid in ordinals.items() if uuid == device), device)
        if size < memory.get(device, size + 1):
            memory[device] = size
            source["pinned_mem_limits"] = "client"
    if at_connect.priority is not None:
        source["client_priority"] = "default"
    return Effective(percentage, memory, at_connect.priority, source, _outdated(at_connect, present, ordinals))


def _outdated(at_connect: LimitsInForce, present: LimitsInForce, ordinals: Mapping[str, str]) -> bool:
    """False where history does not tell."""
    old, new = at_connect.percentage, present.percentage
    if old is not None and new is not None and old != new:
        return True
    if not (at_connect.memory_known and present.memory_known):
        return False
    return by_ordinal(at_connect.memory, ordinals) != by_ordinal(present.memory, ordinals)


def own_percentage(text: str | None) -> float | None:
    """``CUDA_MPS_ACTIVE_THREAD_PERCENTAGE``; None where it says nothing usable."""
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value <= 100 else None


def own_memory(text: str | None) -> dict[str, int]:
    """``CUDA_MPS_PINNED_DEVICE_MEM_LIMIT``, ``0=1G,1=512M``, in bytes by device."""
    found: dict[str, int] = {}
    if not text:
        return found
    for part in text[:4096].split(","):
        device, _, size = part.partition("=")
        bytes_ = parse_size(size)
        if bytes_ is not None:
            found[device.strip()] = bytes_
    return found
