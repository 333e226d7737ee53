"""Xids: what the driver says of a fault, as NVML's event and as a line of the kernel's log (facts 37 and 38); pure.

Neither says whose fault it was: among busy neighbours the kernel named an innocent client in 19 of 23, often another
one than server.log did. They do tell on which GPU it was, of what kind, and, in the kernel's line, the address.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from mpstui.core.late import dataclass, pattern
from mpstui.core.model import Event, empty
from mpstui.core.text import printable

MEANING: Final = {
    13: "exception in a kernel",
    31: "memory page fault: a kernel used an address that is not mapped",
    32: "invalid or corrupted push buffer",
    43: "a program's error stopped its work, such as a trap in a kernel",
    45: "cleaned up after an earlier error, or a program was ended",
    48: "double-bit ECC error: memory that cannot be corrected",
    61: "internal microcontroller warning",
    62: "internal microcontroller halted",
    63: "memory was marked for remapping or retirement",
    64: "memory could not be remapped or retired",
    69: "graphics engine class error",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "many single-bit ECC errors",
    94: "contained memory error: one program was hit",
    95: "uncontained memory error",
    119: "the GPU's system processor (GSP) does not answer",
    120: "error of the GPU's system processor (GSP)",
    154: "the recovery that the GPU needs has changed",
}
"""What the driver's vendor calls the common ones, in words; see its public Xid catalogue for all."""
_LINE: Final = pattern(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]{7,16})\): (\d{1,5})(?:, pid='?(\d{1,10})'?)?")
_ADDRESS: Final = pattern(r"faulted @ (0x[0-9a-fA-F_]{1,24})")
_FAULT: Final = pattern(r"Fault is of type (\w{1,40})(?: ACCESS_TYPE_(\w{1,40}))?")


@dataclass(frozen=True, slots=True)
class Xid:
    """One Xid as one source tells it. ``time``: seconds since the epoch."""

    time: float
    number: int
    uuid: str | None = None
    pci: str | None = None
    line: str = ""
    """The kernel's, printable; empty where NVML told it."""
    values: Mapping[str, str] = field(default_factory=empty)
    """What the line holds: ``address``, ``fault``, ``access``, and ``kernel_names``, a PID that is no proof."""

    def event(self) -> Event:
        """As an event of the node."""
        values = {"xid": str(self.number), **({"pci": self.pci} if self.pci else {}), **self.values}
        where = self.uuid or (f"PCI {self.pci}" if self.pci else "a GPU")
        devices = (self.uuid,) if self.uuid else ()
        detail = f"Xid {self.number} on {where}: {meaning(self.number)}{_of_line(self.values)}"
        return Event("xid", self.time, devices=devices, detail=detail, raw=self.line, values=values)


def meaning(number: int) -> str:
    """In words; of one that is not common, where to look it up."""
    return MEANING.get(number, "see NVIDIA's Xid catalogue")


def parse_line(line: str, when: float) -> Xid | None:
    """The Xid of a line of the kernel's log; None where it is none."""
    found = _LINE.search(line)
    if found is None:
        return None
    values: dict[str, str] = {}
    if kind := _FAULT.search(line):
        values["fault"] = kind[1]
        if kind[2]:
            values["access"] = kind[2]
    if address := _ADDRESS.search(line):
        values["address"] = address[1]
    if found[3]:
        values["kernel_names"] = found[3]
    return Xid(when, int(found[2]), pci=found[1].lower(), line=printable(line[found.start() :]), values=values)


def _of_line(values: Mapping[str, str]) -> str:
    """``; FAULT_PDE at 0x0_00000000; no proof: the kernel names process 947``."""
    text = f"; {values['fault']}" if "fault" in values else ""
    text += f" on {values['access'].lower().replace('_', ' ')}" if "access" in values else ""
    text += f" at {values['address']}" if "address" in values else ""
    if "kernel_names" in values:
        text += f"; no proof: the kernel names process {values['kernel_names']}"
    return text


def same_bus(one: str, other: str) -> bool:
    """Whether two PCI addresses are one device's: NVML writes ``00000000:06:00.0``, the kernel ``0000:06:00``."""
    first, second = _bus(one), _bus(other)
    return first is not None and first == second


def _bus(address: str) -> tuple[int, int, int] | None:
    try:
        domain, bus, device = address.lower().split(":")
        return int(domain, 16), int(bus, 16), int(device.split(".")[0], 16)
    except ValueError:
        return None
