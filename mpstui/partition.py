"""What an active thread percentage comes to in SMs; pure arithmetic on a table of measured devices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from mpstui.model import Device


@dataclass(frozen=True, slots=True)
class Rounding:
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


def rounding_of(device: Device) -> Rounding:
    """The device's rounding from the table of measured devices, otherwise an estimate marked as one."""
    if device.compute_capability is None or device.sm_count is None:
        return _ESTIMATE
    return _MEASURED.get((device.compute_capability, device.sm_count), _ESTIMATE)


def sm_share(percentage: float | None, device: Device | None) -> SmShare | None:
    """SMs of ``device`` that ``percentage`` (0 < p ≤ 100) comes to; None where either is not known.

    Rounded down to the device's step and never under its floor: 25 % of 132 SMs is 32, 1 % is 8 (fact 22).
    """
    if percentage is None or device is None or device.sm_count is None:
        return None
    rounding = rounding_of(device)
    exact = Fraction(str(percentage)) * device.sm_count / 100
    rounded = math.floor(exact / rounding.step) * rounding.step
    return SmShare(max(rounding.floor, min(rounded, device.sm_count)), not rounding.measured)
