"""What the driver tells of the node's devices: readings through NVML, and DCGM's where NVML has none; faults, as Xids.

What does not work is None, and without NVML there is one sentence why. Neither NVML nor the kernel's log says whose
fault a Xid was: among busy neighbours the kernel named an innocent client in 19 of 23, often another one than
server.log did. They do tell on which GPU it was, of what kind, and, in the kernel's line, the address.

``dcgmi`` is asked in the background, and where the configuration says so alone: while DCGM counts, no other profiler
can. What it prints is documented by its vendor; it was never tried here on a machine that has it.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from mpstui.core.late import dataclass, pattern
from mpstui.core.model import Device
from mpstui.core.text import printable
from mpstui.core.xid import Xid, parse_line, same_bus
from mpstui.observe.sources import NvmlSample, XidSource
from mpstui.system.own import ProgramError, find_program

if TYPE_CHECKING:
    import subprocess

T = TypeVar("T")

RETRY_SECONDS: Final = 10.0
"""How long a library or driver that did not work is left alone."""
GPM_SECONDS: Final = 0.1
"""Two samples of the GPM counters must be at least this far apart to tell anything."""
LISTS_SECONDS: Final = 5.0
"""How old the lists of processes of a device may become whose memory in use stays what it is, while nobody is known to
have come or gone. With 46 clients the two lists are two thirds of all that NVML costs (two H200s, 2026-11-22)."""
MODES_SECONDS: Final = 10.0
"""How often a screen reads what an admin alone changes: whether a device is divided (MIG), and persistence mode."""
_NOT_AVAILABLE: Final = (1 << 64) - 1
_COMPUTE_MODES: Final = {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}
_CORES_PER_SM: Final = {
    (7, 0): 64,
    (7, 2): 64,
    (7, 5): 64,
    (8, 0): 64,
    (8, 6): 128,
    (8, 7): 128,
    (8, 9): 128,
    (9, 0): 128,
    (10, 0): 128,
    (10, 3): 128,
    (12, 0): 128,
}
"""A constant of the hardware by compute capability: 16,896 cores of an H100 are 132 SMs (recorded)."""
_MPS_CLIENTS: Final = "nvmlDeviceGetMPSComputeRunningProcesses"
_COMPUTING: Final = "nvmlDeviceGetComputeRunningProcesses"
_FUNCTION_NOT_FOUND: Final = 13
_UNINITIALIZED: Final = 1
_LIBRARY_NOT_FOUND: Final = 12
_FATAL: Final = {
    4: (
        "NVML may not be used: not permitted",
        "give your user access to /dev/nvidiactl and /dev/nvidia*, or run mpstui as root",
    ),
    9: (
        "the NVIDIA driver is not loaded",
        "load it (modprobe nvidia), or, in a container, start it with the NVIDIA runtime",
    ),
    _LIBRARY_NOT_FOUND: (
        "NVML (libnvidia-ml.so.1) is not here",
        "install the NVIDIA driver, or, in a container, start it with the NVIDIA runtime",
    ),
    15: ("the GPU is lost: it fell off the bus or is not reachable any more", "see dmesg for Xid errors, then reboot"),
    16: (
        "the GPU has to be reset before it can be used",
        "end all processes that use the GPU, then run nvidia-smi --gpu-reset, or reboot",
    ),
    18: (
        "the driver that is loaded and the NVML library are of different versions",
        "reboot, or load the driver's kernel modules again: it was updated while in use",
    ),
}
"""NVML's error codes after which nothing can be read: what is the matter, and the remedy."""


class _NoReadingError(Exception):
    """Nothing can be read; the text says why and what to do."""


@dataclass(slots=True)
class _Gpu:
    """One device: NVML's handle, what never changes, and its counters."""

    handle: Any
    device: Device
    gpm: _Gpm
    mps: Mapping[int, int | None] | None = None
    """Its MPS clients when they were read last; None where that failed."""
    processes: Mapping[int, int | None] | None = None
    """And all processes that compute on it."""
    listed_at: float = -math.inf
    """When both were read."""
    listed_with: int | None = None
    """The memory that was in use then."""
    modes: tuple[bool | None, bool | None, float | None] = (None, None, None)
    """MIG, persistence, and the power limit in watts."""
    modes_at: float = -math.inf


class RealNvml:
    """The NvmlSource of a real node. May be called from several threads; one call at a time goes to NVML.

    Measured on an H100: the first reading takes 120 ms, each further one 1.2 ms (7 ms at most), ``membership`` 0.2 ms
    with 8 clients and 1 ms with 48. SM utilisation, occupancy and DRAM need two samples: the first has None for them.
    """

    def __init__(
        self,
        lib: Any = None,
        clock: Callable[[], float] = time.monotonic,
        beside: Callable[[], Dcgm | None] = lambda: None,
        sleep: Callable[[float], None] = time.sleep,
        counted: Mapping[int, Counted] | None = None,
    ) -> None:
        """``lib`` stands in for the pynvml module, which is otherwise imported at the first reading. ``beside``: who
        tells of devices of which NVML has no SM activity; asked for once, and where there is one such device alone.
        ``counted``: by device index, the samples of the counters that the first reading counts from, in the binding's
        type; they are freed here."""
        self._counted = dict(counted or {})
        self._sleep = sleep
        self._beside: Callable[[], Dcgm | None] | None = beside
        self._dcgm: Dcgm | None = None
        self._lib = lib
        self._clock = clock
        self._lock = threading.Lock()
        self._gpus: list[_Gpu] | None = None
        self._driver: str | None = None
        self._error = ""
        self._retry_at = -math.inf

    def sample(self) -> NvmlSample:
        """All devices, or an ``error``; after one NVML is tried again, at most every ten seconds."""
        return self._sample(steady=False)

    def steady(self) -> NvmlSample:
        """See NvmlSource. A context takes memory of its device, and so does what its process allocates: whoever comes,
        goes or has another share of it changes what is in use there, which costs a fiftieth of the lists."""
        return self._sample(steady=True)

    def _sample(self, steady: bool) -> NvmlSample:
        with self._lock:
            now = time.time()
            try:
                gpus = self._open()
                devices = tuple(self._read(gpu, steady) for gpu in gpus)
                if all(device.memory_total is None for device in devices):
                    self._check(gpus)
                for gpu, device in zip(gpus, devices, strict=True):
                    self._list(gpu, device.memory_used, steady)
                return NvmlSample(
                    time=now,
                    driver_version=self._driver,
                    devices=devices,
                    mps_clients={gpu.device.uuid: gpu.mps for gpu in gpus if gpu.mps is not None},
                    processes={gpu.device.uuid: gpu.processes for gpu in gpus if gpu.processes is not None},
                )
            except _NoReadingError as error:
                return NvmlSample(time=now, error=str(error))

    def rated(self) -> NvmlSample:
        """:meth:`sample`, and another one where the counters' first reading is too young to tell anything yet."""
        found = self.sample()
        with self._lock:
            left = max((gpu.gpm.left() for gpu in self._gpus or ()), default=0.0)
        if left <= 0:
            return found
        self._sleep(left)
        return self.sample()

    def membership(self) -> dict[str, Mapping[int, int | None]]:
        """Device UUID to {PID: bytes} of MPS clients, and nothing else; a device whose list is not known is missing."""
        with self._lock:
            try:
                gpus = self._open()
            except _NoReadingError:
                return {}
            for gpu in gpus:
                gpu.mps = self._processes(_MPS_CLIENTS, gpu.handle)
            return {gpu.device.uuid: gpu.mps for gpu in gpus if gpu.mps is not None}

    def close(self) -> None:
        """Give back the counters and NVML. A later reading would begin anew."""
        with self._lock:
            self._close()
            if self._dcgm is not None:
                self._dcgm.close()

    def _told_beside(self, device: Device) -> Device:
        """With what DCGM has of a device of which NVML tells no SM activity."""
        if self._beside is not None:
            self._dcgm, self._beside = self._beside(), None
        if self._dcgm is None:
            return device
        sm, occupancy, dram = self._dcgm.read(device.uuid)
        if sm is None and occupancy is None and dram is None:
            return device
        return replace(device, sm_utilization=sm, sm_occupancy=occupancy, dram_utilization=dram, sm_source="DCGM")

    def _open(self) -> list[_Gpu]:
        if self._gpus is not None:
            return self._gpus
        if self._clock() < self._retry_at:
            raise _NoReadingError(self._error)
        try:
            lib = self._library()
            try:
                lib.nvmlInit()
            except lib.NVMLError as error:
                raise _no_reading(error) from None
            self._driver = self._try(lambda: _text(lib.nvmlSystemGetDriverVersion()))
            self._gpus = self._enumerate()
        except _NoReadingError as error:
            self._error = str(error)
            self._retry_at = self._clock() + RETRY_SECONDS
            raise
        return self._gpus

    def _library(self) -> Any:
        if self._lib is None:
            try:
                import pynvml
            except ImportError:
                raise _NoReadingError(
                    "no device readings: the Python package nvidia-ml-py is not installed; install it beside mpstui"
                ) from None
            self._lib = pynvml
        return self._lib

    def _enumerate(self) -> list[_Gpu]:
        lib = self._lib
        gpus: list[_Gpu] = []
        trouble = _NoReadingError("no device readings: NVML sees no device; see nvidia-smi -L")
        try:
            for index in range(lib.nvmlDeviceGetCount()):
                # One that is lost or closed to us has no name to show it by; the others are there all the same.
                try:
                    handle = lib.nvmlDeviceGetHandleByIndex(index)
                    uuid = _text(lib.nvmlDeviceGetUUID(handle))
                except lib.NVMLError as error:
                    trouble = _no_reading(error)
                else:
                    gpm = _Gpm(lib, handle, self._clock, self._counted.pop(index, None))
                    gpus.append(_Gpu(handle, self._describe(index, uuid, handle), gpm))
        except lib.NVMLError as error:
            trouble = _no_reading(error)
        if not gpus:
            self._shut_down()
            raise trouble
        return gpus

    def _describe(self, index: int, uuid: str, handle: Any) -> Device:
        """What never changes of a device."""
        lib = self._lib
        capability = self._try(lambda: lib.nvmlDeviceGetCudaComputeCapability(handle))
        return Device(
            uuid=uuid,
            index=index,
            name=self._try(lambda: _text(lib.nvmlDeviceGetName(handle))),
            pci_bus_id=self._try(lambda: _text(lib.nvmlDeviceGetPciInfo(handle).busId)),
            sm_count=self._sm_count(handle, capability),
            compute_capability=None if capability is None else (int(capability[0]), int(capability[1])),
        )

    def _sm_count(self, handle: Any, capability: Any) -> int | None:
        lib = self._lib
        count = self._try(lambda: lib.nvmlDeviceGetAttributes_v2(handle).multiprocessorCount)
        if count:
            return int(count)
        cores = self._try(lambda: lib.nvmlDeviceGetNumGpuCores(handle))
        per_sm = None if capability is None else _CORES_PER_SM.get((int(capability[0]), int(capability[1])))
        return None if not cores or per_sm is None else int(cores) // per_sm

    def _read(self, gpu: _Gpu, steady: bool) -> Device:
        lib, handle = self._lib, gpu.handle
        memory = self._try(lambda: lib.nvmlDeviceGetMemoryInfo(handle))
        mode = self._try(lambda: lib.nvmlDeviceGetComputeMode(handle))
        mig, persistence, limit = self._modes(gpu, steady)
        rates = self._try(lambda: lib.nvmlDeviceGetUtilizationRates(handle))
        milliwatts = self._try(lambda: lib.nvmlDeviceGetPowerUsage(handle))
        celsius = self._try(lambda: lib.nvmlDeviceGetTemperature(handle, lib.NVML_TEMPERATURE_GPU))
        sm, occupancy, dram = gpu.gpm.read()
        device = replace(
            gpu.device,
            memory_total=None if memory is None else int(memory.total),
            memory_used=None if memory is None else int(memory.used),
            compute_mode=None if mode is None else _COMPUTE_MODES.get(mode, f"mode {mode}"),
            mig=mig,
            persistence=persistence,
            sm_utilization=sm,
            sm_occupancy=occupancy,
            dram_utilization=dram,
            tells_sm=gpu.gpm.tells,
            gpu_utilization=None if rates is None else float(rates.gpu),
            memory_utilization=None if rates is None else float(rates.memory),
            power_watts=None if milliwatts is None else milliwatts / 1000,
            power_limit_watts=limit,
            temperature=None if celsius is None else float(celsius),
        )
        return device if device.tells_sm else self._told_beside(device)

    def _check(self, gpus: Iterable[_Gpu]) -> None:
        """Give NVML up, to begin anew later, where the devices do not answer because they or the driver are gone."""
        for gpu in gpus:
            try:
                self._lib.nvmlDeviceGetMemoryInfo(gpu.handle)
            except self._lib.NVMLError as error:
                if error.value not in {_UNINITIALIZED, *_FATAL}:
                    return
                trouble = _no_reading(error)
            else:
                return
        self._close()
        self._error, self._retry_at = str(trouble), self._clock() + RETRY_SECONDS
        raise trouble

    def _modes(self, gpu: _Gpu, steady: bool) -> tuple[bool | None, bool | None, float | None]:
        lib, handle, now = self._lib, gpu.handle, self._clock()
        if not steady or now - gpu.modes_at >= MODES_SECONDS:
            mig = self._try(lambda: lib.nvmlDeviceGetMigMode(handle)[0])
            persistence = self._try(lambda: lib.nvmlDeviceGetPersistenceMode(handle))
            limit = self._try(lambda: lib.nvmlDeviceGetEnforcedPowerLimit(handle))
            gpu.modes = (
                None if mig is None else bool(mig),
                None if persistence is None else bool(persistence),
                None if limit is None else limit / 1000,
            )
            gpu.modes_at = now
        return gpu.modes

    def _list(self, gpu: _Gpu, used: int | None, steady: bool) -> None:
        """Read the lists of processes, unless those of before stand. Who is no client of MPS does not become one: where
        the same processes compute, the clients are the same."""
        now, known = self._clock(), None not in (gpu.mps, gpu.processes)
        if not steady or not known or now - gpu.listed_at >= LISTS_SECONDS:
            gpu.mps = self._processes(_MPS_CLIENTS, gpu.handle)
            gpu.processes = self._processes(_COMPUTING, gpu.handle)
            gpu.listed_at = now
        elif used is None or used != gpu.listed_with:
            before, gpu.processes = gpu.processes, self._processes(_COMPUTING, gpu.handle)
            if before is None or gpu.processes is None or before.keys() != gpu.processes.keys():
                gpu.mps = self._processes(_MPS_CLIENTS, gpu.handle)
        gpu.listed_with = used

    def _processes(self, function: str, handle: Any) -> dict[int, int | None] | None:
        """A list of processes of a device, with their bytes; None where it gives none."""
        found = self._try(lambda: self._of_some_version(function, handle))
        return None if found is None else {int(each.pid): _bytes(each.usedGpuMemory) for each in found}

    def _of_some_version(self, function: str, handle: Any) -> Any:
        lib = self._lib
        mismatch = getattr(lib, "NVMLLibraryMismatchError", lib.NVMLError)  # newer bindings', and none of NVML's
        try:
            return getattr(lib, function)(handle)
        except (lib.NVMLError, mismatch) as error:
            if isinstance(error, lib.NVMLError) and getattr(error, "value", None) != _FUNCTION_NOT_FOUND:
                raise
        # A driver older than the binding has the function's second version only.
        return getattr(lib, f"{function}_v2")(handle)

    def _try(self, read: Callable[[], T]) -> T | None:
        """One reading; None where the device, the driver or the binding does not have it."""
        try:
            return read()
        except (self._lib.NVMLError, AttributeError, ValueError):
            return None

    def _close(self) -> None:
        if self._gpus is not None:
            for gpu in self._gpus:
                gpu.gpm.close()
            self._gpus = None
            self._shut_down()

    def _shut_down(self) -> None:
        self._try(self._lib.nvmlShutdown)


_UNTOLD: Final = (None, None, None)
Counted: TypeAlias = tuple[float, Any]
"""When a sample of the counters was taken, in monotonic seconds, and the sample."""


class _Gpm:
    """SM utilisation, SM occupancy and DRAM bandwidth of one device, in percent, from pairs of counter samples."""

    def __init__(self, lib: Any, handle: Any, clock: Callable[[], float], first: Counted | None = None) -> None:
        self._lib = lib
        self._handle = handle
        self._clock = clock
        self._errors = (lib.NVMLError, AttributeError)
        self._taken: float
        self._last: Any
        self._taken, self._last = first or (-math.inf, None)
        self._values: tuple[float | None, float | None, float | None] = _UNTOLD
        try:
            self._supported = bool(lib.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
        except self._errors:
            self._supported = False
        self.tells = self._supported
        """Whether the device takes part; not where it has failed."""

    def read(self) -> tuple[float | None, float | None, float | None]:
        """Means since the last sample; those of before where that was less than 0.1 s ago; None where not supported."""
        now = self._clock()
        if not self._supported or now - self._taken < GPM_SECONDS:
            return self._values
        sample = None
        try:
            sample = self._lib.nvmlGpmSampleAlloc()
            self._lib.nvmlGpmSampleGet(self._handle, sample)
            self._values = _UNTOLD if self._last is None else self._metrics(self._last, sample)
        except self._errors:
            self._values = _UNTOLD
            self._free(sample)
            sample = None
        self.tells = sample is not None
        self._free(self._last)
        self._last, self._taken = sample, now
        return self._values

    def left(self) -> float:
        """Seconds until a reading tells something; 0 where the last one did, or none will."""
        if not self._supported or self._last is None or self._values != _UNTOLD:
            return 0.0
        return max(0.0, self._taken + GPM_SECONDS - self._clock())

    def close(self) -> None:
        """Free the sample that is kept."""
        self._free(self._last)
        self._last = None

    def _metrics(self, first: Any, second: Any) -> tuple[float | None, float | None, float | None]:
        lib = self._lib
        asked = (lib.NVML_GPM_METRIC_SM_UTIL, lib.NVML_GPM_METRIC_SM_OCCUPANCY, lib.NVML_GPM_METRIC_DRAM_BW_UTIL)
        request = lib.c_nvmlGpmMetricsGet_t()
        request.version = lib.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(asked)
        request.sample1, request.sample2 = first, second
        for index, metric in enumerate(asked):
            request.metrics[index].metricId = metric
        lib.nvmlGpmMetricsGet(request)
        sm, occupancy, dram = (_percent(request.metrics[index]) for index in range(len(asked)))
        return sm, occupancy, dram

    def _free(self, sample: Any) -> None:
        if sample is not None:
            try:
                self._lib.nvmlGpmSampleFree(sample)
            except self._errors:
                return


def _no_reading(error: Exception) -> _NoReadingError:
    code = getattr(error, "value", None)
    if code in _FATAL:
        what, remedy = _FATAL[code]
        return _NoReadingError(f"no device readings: {what}; {remedy}")
    return _NoReadingError(f"no device readings: NVML says “{printable(str(error), 120)}”; see nvidia-smi and dmesg")


def _percent(metric: Any) -> float | None:
    value = float(metric.value)
    return value if metric.nvmlReturn == 0 and math.isfinite(value) else None


def _bytes(used: Any) -> int | None:
    return None if used is None or used == _NOT_AVAILABLE else int(used)


def _text(value: bytes | str) -> str:
    return printable(value, 96)


# The driver's word of a fault: Xids, by NVML as events and by the kernel as lines of its log (facts 37 and 38).


XID_WAIT: Final = 1.0
"""Seconds that one wait for NVML's events lasts: so long a thread may outlive the program's wish to end."""
_KMSG: Final = "/dev/kmsg"
_RECORD_BYTES: Final = 8192
"""Bytes; the kernel's own limit of a record of its log."""
_RECORDS: Final = 100_000
"""Records read at once at most: a kernel that writes faster than it is read is not followed for ever."""
_NO_EVENT: Final = 10
_XID_EVENT: Final = 0x8
"""nvmlEventTypeXidCriticalError."""


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
        for _ in range(_RECORDS if self._fd >= 0 else 0):
            try:
                record = self._one(self._fd, _RECORD_BYTES)
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
            if getattr(error, "value", None) != _NO_EVENT:
                self.close()
                self._rest(seconds)
            return []
        if not int(data.eventType) & _XID_EVENT:
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
                    lib.nvmlDeviceRegisterEvents(handle, _XID_EVENT, registered)
                    some = True
        self._set = registered
        if not some:
            self.close(opened=True)
        return some


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
    ``XID_WAIT`` of :meth:`close`, and holds up no exit: NVML may hang in it."""

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
                found = source.wait(XID_WAIT)
        finally:
            source.close()


# SM activity, occupancy and DRAM of devices of which NVML tells none (before Hopper), as DCGM has them.


DCGM_EVERY: Final = 10.0
"""Seconds from the end of one look to the next."""
DCGM_LASTS: Final = 30.0
"""Seconds for which a reading is shown."""
DCGM_DEADLINE: Final = 8.0
_DCGM_BYTES: Final = 256 << 10
_DCGM_FIELDS: Final = "1002,1003,1005"
"""SM activity, SM occupancy, DRAM: their short names are those of ``_DCGM_TAGS``."""
_DCGM_TAGS: Final = ("SMACT", "SMOCC", "DRAMA")
_DCGM_ROW: Final = pattern(r"\s*GPU\s+(\d{1,4})\s+(\S.*)")
_DCGM_ID: Final = pattern(r"\|?\s*(?:GPU ID:\s*)?(\d{1,4})\s*(?:\|.*)?$")
_DCGM_UUID: Final = pattern(r"Device UUID:\s*(GPU-[0-9a-fA-F-]{1,60})\b")


class DcgmMeters(NamedTuple):
    """Percent of the device; None where DCGM does not tell."""

    sm_utilization: float | None = None
    sm_occupancy: float | None = None
    dram_utilization: float | None = None


def find_dcgmi(path: str | None = None) -> Path | None:
    """``dcgmi`` of PATH, which root looks for as for whatever it runs; None where there is none to run."""
    try:
        return Path(find_program("dcgmi", os.environ if path is None else {"PATH": path}))
    except ProgramError:
        return None


def dcgm_trouble(path: str | None = None) -> str:
    """Why ``dcgmi`` is not run, as a clause; empty where it is."""
    try:
        find_program("dcgmi", os.environ if path is None else {"PATH": path})
    except ProgramError as error:
        return f"dcgmi cannot be run: {error.why}"
    return ""


def dcgm_devices(text: str) -> dict[str, str]:
    """UUIDs by DCGM's own numbers, of ``dcgmi discovery -l``."""
    found: dict[str, str] = {}
    number: str | None = None
    for line in text.splitlines():
        if (named := _DCGM_ID.match(line)) is not None:
            number = named[1]
        elif number is not None and (uuid := _DCGM_UUID.search(line)) is not None:
            found[number] = uuid[1]
    return found


def dcgm_meters(text: str) -> dict[str, DcgmMeters]:
    """The last reading of each device by DCGM's own numbers, of ``dcgmi dmon``: ratios below their short names."""
    found: dict[str, DcgmMeters] = {}
    heads: list[str] = []
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            heads = [word for word in line.replace("#", " ").split() if not word.startswith("Entity")]
        elif (row := _DCGM_ROW.match(line)) is not None and set(_DCGM_TAGS) <= set(heads):
            values = dict(zip(heads, row[2].split(), strict=False))
            read = DcgmMeters(*(_of_ratio(values.get(tag, "")) for tag in _DCGM_TAGS))
            if any(value is not None for value in read):
                found[row[1]] = read
    return found


def _of_ratio(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return 100 * value if 0 <= value <= 1.001 else None  # not a number is not in it either


class Dcgm:
    """What ``dcgmi`` told last. A reader never waits for it."""

    def __init__(self, binary: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._binary = binary
        self._clock = clock
        self._lock = threading.Lock()
        self._known: Mapping[str, DcgmMeters] = {}
        self._devices: Mapping[str, str] = {}
        self._read_at = -math.inf
        self._due = -math.inf
        self._looking: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def read(self, uuid: str) -> DcgmMeters:
        """Of this device; all None where nothing was told for a while. Has the next look taken where it is time."""
        with self._lock:
            now = self._clock()
            if self._looking is None and now >= self._due and not self._closed:
                self._looking = threading.Thread(target=self._look, name="dcgmi", daemon=True)
                self._looking.start()
            fresh = now - self._read_at <= DCGM_LASTS
            return self._known.get(uuid, DcgmMeters()) if fresh else DcgmMeters()

    def close(self) -> None:
        """End a look that is under way."""
        with self._lock:
            self._closed = True
            self._end()

    def _look(self) -> None:
        devices = self._devices or dcgm_devices(self._ask("discovery", "-l"))
        # Two readings: the first one after a field is asked for may be N/A.
        told = dcgm_meters(self._ask("dmon", "-e", _DCGM_FIELDS, "-d", "1000", "-c", "2")) if devices else {}
        with self._lock:
            now = self._clock()
            if told:
                self._known, self._read_at = {devices[n]: each for n, each in told.items() if n in devices}, now
            self._devices = devices if told else {}
            self._due, self._looking = now + DCGM_EVERY, None

    def _ask(self, *words: str) -> str:
        """What it printed; nothing where it failed or took too long."""
        import subprocess  # only where the configuration asks for DCGM

        try:
            with self._lock:
                if self._closed:
                    return ""
                process = self._process = subprocess.Popen(
                    [self._binary, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
                    start_new_session=True,
                )
        except OSError:
            return ""
        late = threading.Timer(DCGM_DEADLINE, self._end)
        late.start()
        try:
            with process:
                raw = b"" if process.stdout is None else process.stdout.read(_DCGM_BYTES + 1)
                if len(raw) > _DCGM_BYTES:
                    self._end()
                    return ""
            return raw.decode("utf-8", "replace") if process.returncode == 0 else ""
        finally:
            late.cancel()
            self._process = None

    def _end(self) -> None:
        """Its whole session, which holds the pipe open; only as long as it has not been waited for."""
        process = self._process
        if process is not None and process.returncode is None:
            try:
                os.killpg(process.pid, 9)
            except OSError:
                return
