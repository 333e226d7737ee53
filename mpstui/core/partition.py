"""What an active thread percentage comes to in SMs; pure arithmetic on a table of measured devices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from mpstui.core.late import dataclass
from mpstui.core.model import Device

if TYPE_CHECKING:
    from fractions import Fraction


class Rounding(NamedTuple):
    """How a kind of device rounds a share of its SMs."""

    step: int
    floor: int
    measured: bool


@dataclass(frozen=True, slots=True)
class SmShare:
    """SMs that a percentage comes to."""

    count: int
    estimated: bool
    """True until the rounding of this kind of device has been measured."""


_MEASURED = {((9, 0), 132): Rounding(step=2, floor=8, measured=True)}
"""Measured at 1…100 % on an H100 80GB HBM3 (fact 22)."""
_ESTIMATE = Rounding(step=2, floor=2, measured=False)
_TENTHS = 10
"""The daemon prints a percentage with one decimal, so that a finer one could not be read back."""


def rounding_for(sm_count: int | None, compute_capability: tuple[int, int] | None) -> Rounding:
    """The rounding from the table of measured devices, otherwise an estimate marked as one.

    A device of which only the SM count is known is taken for the measured one with that many.
    """
    for (capability, count), rounding in _MEASURED.items():
        if count == sm_count and compute_capability in {None, capability}:
            return rounding
    return _ESTIMATE


def rounding_of(device: Device) -> Rounding:
    """The device's rounding; see :func:`rounding_for`."""
    return rounding_for(device.sm_count, device.compute_capability) if device.compute_capability else _ESTIMATE


def sms_of(percentage: float | Fraction, sm_count: int, rounding: Rounding) -> int:
    """SMs that ``percentage`` (0 < p ≤ 100) of ``sm_count`` comes to: rounded down to the step, never under the floor
    (fact 22), never over the device.
    """
    share, whole = _ratio(percentage)
    rounded = share * sm_count // (100 * whole * rounding.step) * rounding.step
    return min(sm_count, max(rounding.floor, rounded))


def smallest_percentage(sms: int, sm_count: int, rounding: Rounding) -> float:
    """The smallest percentage, with one decimal, that comes to at least ``sms`` (1 … ``sm_count``) SMs.

    For a count at or under the floor it is the one that the floor itself stands for.
    """
    wanted = min(sm_count, max(rounding.floor, math.ceil(sms / rounding.step) * rounding.step))
    return -(-100 * _TENTHS * wanted // sm_count) / _TENTHS


def _ratio(percentage: float | Fraction) -> tuple[int, int]:
    """It as it is written, exactly: a float's neighbour may come to another SM."""
    if isinstance(percentage, float | int):
        whole, _, rest = str(percentage).partition(".")
        if (whole + rest).isdecimal():
            return int(whole + rest), 10 ** len(rest)
        from fractions import Fraction  # 1e-05

        percentage = Fraction(str(percentage))
    return percentage.numerator, percentage.denominator


def sm_share(percentage: float | None, device: Device | None) -> SmShare | None:
    """SMs of ``device`` that ``percentage`` (0 < p ≤ 100) comes to; None where either is not known.

    25 % of 132 SMs is 32, 1 % is 8 (fact 22).
    """
    if percentage is None or device is None or device.sm_count is None:
        return None
    rounding = rounding_of(device)
    return SmShare(sms_of(percentage, device.sm_count, rounding), not rounding.measured)


_NEAR: Final = 1.0
"""Percent within which a next step is told."""


def next_step(percentage: float, device: Device | None) -> tuple[float, int] | None:
    """The next higher percentage with one decimal that comes to more SMs than this one, and to how many, where that is
    less than one percent away and the rounding of the device is measured: 33.4 % is 44 of 132 SMs, 33.3 % is 42."""
    now = sm_share(percentage, device)
    if now is None or now.estimated:
        return None
    tenths = math.floor(percentage * 10 + 1e-6)
    for each in range(tenths + 1, min(1000, tenths + round(10 * _NEAR)) + 1):
        share = sm_share(each / 10, device)
        if share is not None and share.count > now.count:
            return each / 10, share.count
    return None


def rounding_from(seen: Mapping[float, int], sm_count: int) -> Rounding | None:
    """The rounding that explains the SMs ``seen`` at each percentage; None where none does, or too little was seen.

    The least of ``seen`` is taken for the floor, so there must be a percentage under it; the step is the largest that
    fits, and it counts as measured only where it gives every value that was seen.
    """
    counts = sorted(set(seen.values()))
    if len(counts) < 4:
        return None
    floor = counts[0]
    step = math.gcd(*(count for count in counts if count != sm_count))
    found = Rounding(step, floor, measured=True)
    below = any(share * sm_count < 100 * whole * floor for share, whole in map(_ratio, seen))
    exact = all(sms_of(percentage, sm_count, found) == sms for percentage, sms in seen.items())
    return found if below and exact else None


def even_levels(device_sms: int, count: int = 12, step: int = 2, floor: int = 8) -> tuple[int, ...]:
    """``count`` shares from the smallest to all SMs, rounded as the hardware rounds (fact 22)."""
    levels = {device_sms, min(floor, device_sms)}
    for i in range(1, max(2, count)):
        sms = floor + (device_sms - floor) * i / max(1, count - 1)
        levels.add(min(device_sms, max(floor, math.ceil(sms / step) * step)))
    return tuple(sorted(levels))


def shorten(pool: tuple[int, ...], count: int, keep: int | None = None) -> tuple[int, ...]:
    """At most ``count`` of the pool's levels, evenly chosen, smallest and largest first, and ``keep`` in any case."""
    levels = sorted(set(pool))
    if count <= 0:
        return ()
    if len(levels) > count:
        last = len(levels) - 1
        chosen = {round(i * last / max(1, count - 1)) for i in range(count)} if count > 1 else {last}
        levels = [levels[i] for i in sorted(chosen)]
    if keep is not None and keep not in levels:
        if len(levels) >= count:
            levels.remove(min(levels, key=lambda level: abs(level - keep)))
        levels = sorted({*levels, keep})
    return tuple(levels)
