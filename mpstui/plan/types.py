"""What a plan is made for and what it comes to. Values only, no I/O. Units: bytes, percent, SMs."""

from __future__ import annotations

from dataclasses import field
from typing import Final, Literal

from mpstui.core.late import dataclass
from mpstui.core.model import CONTEXT_LIMIT, Device
from mpstui.core.partition import Rounding, rounding_for, rounding_of

Strategy = Literal["uniform", "half", "weighted", "exact"]
STRATEGIES: Final[tuple[Strategy, ...]] = ("uniform", "half", "weighted", "exact")
_MIB: Final = 1 << 20
_CONTEXT_ON_8: Final = 58 * _MIB
_CONTEXT_ON_132: Final = 514 * _MIB
"""What a context took of a limit on an H100 at 8 and at 132 SMs; it grew with the SMs in between (facts 23 and 25)."""
RESERVED: Final = 553 * _MIB
"""What the driver (487 MiB) and the MPS server (66 MiB) took of an H100's memory before any client."""


@dataclass(frozen=True, slots=True)
class PlanTarget:
    """A device to divide."""

    sm_count: int
    memory_total: int | None = None
    """As NVML counts it; None where memory is not planned."""
    rounding: Rounding = field(default_factory=lambda: rounding_for(None, None))
    context_limit: int = CONTEXT_LIMIT
    name: str | None = None
    uuid: str | None = None

    @property
    def usable_memory(self) -> int | None:
        """What there is for clients."""
        return None if self.memory_total is None else max(0, self.memory_total - RESERVED)

    def context_memory(self, sms: int) -> int:
        """Bytes that one context on ``sms`` SMs takes, of its limit too (fact 25): an estimate from an H100."""
        return max(0, _CONTEXT_ON_8 + (sms - 8) * (_CONTEXT_ON_132 - _CONTEXT_ON_8) // 124)


def target_of(device: Device) -> PlanTarget | None:
    """The target that a device is; None where NVML does not tell how many SMs it has."""
    if not device.sm_count:
        return None
    limit = device.context_limit or CONTEXT_LIMIT
    return PlanTarget(device.sm_count, device.memory_total, rounding_of(device), limit, device.name, device.uuid)


def target_from(sm_count: int, memory_total: int | None) -> PlanTarget:
    """The target known only by its size."""
    return PlanTarget(sm_count, memory_total, rounding_for(sm_count, None))


@dataclass(frozen=True, slots=True)
class Share:
    """What one client is to get."""

    name: str
    percentage: float
    """To be sent; with one decimal, as the daemon prints it."""
    sm_count: int
    """What that percentage comes to."""
    wanted_sms: float
    """What was asked for, before rounding."""
    memory: int | None = None
    """Limit in bytes, whole MiB; None for none."""
    context_memory: int = 0
    """What of it the contexts themselves take."""
    affinity_sms: int | None = None
    """For ``exact``: what a program that uses execution affinity gets if it asks for its count (fact 22)."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rest:
    """What a plan leaves, or takes too much of: ``over_…`` are above 0 then and the others 0."""

    sm_count: int
    memory: int | None
    contexts: int
    over_sm_count: int = 0
    over_memory: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """A device divided."""

    target: PlanTarget
    strategy: Strategy
    shares: tuple[Share, ...]
    left: Rest
    warnings: tuple[str, ...] = ()
