"""Xids: what the driver says of a fault, by NVML as an event and by the kernel as a line of its log (facts 37 and 38).

Neither says whose fault it was: among busy neighbours the kernel named an innocent client in 19 of 23, often another
one than server.log did. They do tell on which GPU it was, of what kind, and, in the kernel's line, the address.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final, Protocol

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
WAIT: Final = 1.0
"""Seconds that one wait for NVML's events lasts: so long a thread may outlive the program's wish to end."""
_KMSG: Final = "/dev/kmsg"
_RECORD: Final = 8192
"""Bytes; the kernel's own limit of a record of its log."""
_MOST: Final = 100_000
"""Records read at once at most: a kernel that writes faster than it is read is not followed for ever."""
_LINE: Final = pattern(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]{7,16})\): (\d{1,5})(?:, pid='?(\d{1,10})'?)?")
_ADDRESS: Final = pattern(r"faulted @ (0x[0-9a-fA-F_]{1,24})")
_FAULT: Final = pattern(r"Fault is of type (\w{1,40})(?: ACCESS_TYPE_(\w{1,40}))?")
_TIMEOUT: Final = 10
_CRITICAL: Final = 0x8
"""nvmlEventTypeXidCriticalError."""


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


class XidSource(Protocol):
    """Where Xids come from. Called from one thread of its owner's."""

    def past(self) -> list[Xid]:
        """Those of before that are still to be had, oldest first; to be asked before the first :meth:`wait`."""

    def wait(self, seconds: float) -> list[Xid]:
        """Those since the last call; comes back after about ``seconds`` where there is none. Never raises."""

    def close(self) -> None: ...


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
    """``; FAULT_PDE at 0x0_00000000; the kernel names process 947, which is not proof``."""
    text = f"; {values['fault']}" if "fault" in values else ""
    text += f" on {values['access'].lower().replace('_', ' ')}" if "access" in values else ""
    text += f" at {values['address']}" if "address" in values else ""
    if "kernel_names" in values:
        text += f"; the kernel names process {values['kernel_names']}, which is not proof"
    return text


def _uptime() -> float:
    """Seconds of the clock that goes as the kernel log's does: nobody sets it right, so that both drift alike."""
    return time.clock_gettime(time.CLOCK_MONOTONIC_RAW)


class KernelLog:
    """The kernel's log from its beginning on, read without waiting. Where it may not be read, or is not there, it is
    empty. ``uuids`` gives the devices by PCI address, as far as they are known.

    Times are the kernel's; those of long ago may be off by seconds.
    """

    def __init__(
        self,
        uuids: Callable[[], Mapping[str, str]] = dict,
        *,
        path: str = _KMSG,
        clock: Callable[[], float] = time.time,
        uptime: Callable[[], float] = _uptime,
        read: Callable[[int, int], bytes] = os.read,
    ) -> None:
        self._uuids, self._clock, self._uptime, self._one = uuids, clock, uptime, read
        self._read_at = 0.0
        self._fd = -1
        with contextlib.suppress(OSError, ValueError):
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)

    def close(self) -> None:
        """Gives the descriptor back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def read(self) -> list[Xid]:
        """The Xids since the last call, oldest first."""
        found, now = [], self._clock()
        uuids: Mapping[str, str] | None = None
        for record in self._records():
            head, semicolon, text = record.partition(b";")
            if not semicolon or b"NVRM: Xid" not in text:
                continue
            line = text.split(b"\n", 1)[0].decode("utf-8", "backslashreplace")
            try:
                seconds = int(head.split(b",")[2]) / 1e6
            except (IndexError, ValueError):
                continue
            when = now - max(0.0, self._uptime() - seconds)
            xid = parse_line(line, max(when, self._read_at))  # it was not there at the last look
            if xid is None:
                continue
            uuids = self._uuids() if uuids is None else uuids
            found.append(_with_uuid(xid, uuids))
        self._read_at = now
        return found

    def _records(self) -> Iterator[bytes]:
        for _ in range(_MOST if self._fd >= 0 else 0):
            try:
                record = self._one(self._fd, _RECORD)
            except BlockingIOError:
                return
            except BrokenPipeError:  # records were overwritten before they were read; the next one is there
                continue
            except OSError:
                return self.close()
            if not record:
                return
            yield record


def _with_uuid(xid: Xid, uuids: Mapping[str, str]) -> Xid:
    uuid = next((uuid for pci, uuid in uuids.items() if same_bus(pci, xid.pci or "")), None)
    return Xid(xid.time, xid.number, uuid, xid.pci, xid.line, xid.values) if uuid else xid


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


class NvmlXids:
    """NVML's events; registering for them changes no setting (fact 38). Holds NVML open by its own reference.

    Where there is no NVML, no device or no such event, it tells nothing, waits all the same, and is tried again.
    """

    RETRY: Final = 10.0

    def __init__(
        self,
        lib: Any = None,
        clock: Callable[[], float] = time.time,
        rest: Callable[[float], object] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``lib`` stands in for the pynvml module. ``rest`` waits that many seconds."""
        self._lib = lib
        self._clock, self._monotonic = clock, monotonic
        self._rest = rest or threading.Event().wait
        self._set: Any = None
        self._uuids: dict[str, str] = {}
        self._retry_at = -1e18

    def buses(self) -> Mapping[str, str]:
        """UUIDs of the devices by PCI address; empty where NVML does not work."""
        if self._set is None and not self._uuids:
            self._open()
        return self._uuids

    def past(self) -> list[Xid]:
        """NVML tells what happens, not what has happened."""
        return []

    def wait(self, seconds: float) -> list[Xid]:
        """See the protocol."""
        if self._set is None and not self._open():
            self._rest(seconds)
            return []
        lib = self._lib
        try:
            data = lib.nvmlEventSetWait_v2(self._set, max(1, round(seconds * 1000)))
        except Exception as error:  # a driver that is being updated raises whatever it likes
            if getattr(error, "value", None) != _TIMEOUT:
                self.close()
                self._rest(seconds)
            return []
        if not int(data.eventType) & _CRITICAL:
            return []
        uuid = None
        with contextlib.suppress(Exception):
            uuid = _text(lib.nvmlDeviceGetUUID(data.device))
        return [Xid(self._clock(), int(data.eventData), uuid)]

    def close(self, *, opened: bool = False) -> None:
        """Gives the events and NVML back; a later wait begins anew, after a while. ``opened``: NVML is open though no
        events are."""
        if self._set is None and not opened:
            return
        with contextlib.suppress(Exception):
            if self._set is not None:
                self._lib.nvmlEventSetFree(self._set)
        with contextlib.suppress(Exception):
            self._lib.nvmlShutdown()
        self._set = None
        self._retry_at = self._monotonic() + self.RETRY

    def _open(self) -> bool:
        if self._monotonic() < self._retry_at:
            return False
        self._retry_at = self._monotonic() + self.RETRY
        try:
            if self._lib is None:
                import pynvml

                self._lib = pynvml
            self._lib.nvmlInit()
        except Exception:  # no binding, no library, no driver
            return False
        lib, some, registered = self._lib, False, None
        with contextlib.suppress(Exception):  # an old driver, or one that is not permitted
            registered = lib.nvmlEventSetCreate()
            for index in range(lib.nvmlDeviceGetCount()):
                with contextlib.suppress(Exception):  # a device that is lost or has no events
                    handle = lib.nvmlDeviceGetHandleByIndex(index)
                    uuid = _text(lib.nvmlDeviceGetUUID(handle))
                    with contextlib.suppress(Exception):
                        self._uuids[_text(lib.nvmlDeviceGetPciInfo(handle).busId)] = uuid
                    lib.nvmlDeviceRegisterEvents(handle, _CRITICAL, registered)
                    some = True
        self._set = registered
        if not some:
            self.close(opened=True)
        return some


def _text(value: bytes | str) -> str:
    return printable(value, 96)


class NodeXids:
    """Those of a real node: by NVML's events, and by the kernel's log where it may be read."""

    def __init__(self, nvml: NvmlXids | None = None, kernel: Callable[..., KernelLog] = KernelLog) -> None:
        self._nvml = nvml or NvmlXids()
        self._kernel = kernel(self._nvml.buses)

    def past(self) -> list[Xid]:
        """What the kernel's log still holds."""
        return self._kernel.read()

    def wait(self, seconds: float) -> list[Xid]:
        """See the protocol."""
        return [*self._nvml.wait(seconds), *self._kernel.read()]

    def close(self) -> None:
        """Gives both back."""
        self._nvml.close()
        self._kernel.close()


class XidWatch:
    """Waits for Xids in a thread of its own; ``told`` is called there with those that came. The thread ends within
    ``WAIT`` of :meth:`close`, and holds up no exit: NVML may hang in it."""

    def __init__(self, source: Callable[[], XidSource], told: Callable[[list[Xid]], None]) -> None:
        """``source`` is opened in the thread: a driver that hangs holds up nobody."""
        self._open, self._told = source, told
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mpstui-xid", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Does not wait for the thread."""
        self._over.set()

    def join(self, seconds: float) -> bool:
        """Whether the thread has ended by then."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        source = self._open()
        try:
            found = source.past()
            while not self._over.is_set():
                if found:
                    self._told(found)
                found = source.wait(WAIT)
        finally:
            source.close()
