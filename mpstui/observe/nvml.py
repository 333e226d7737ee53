"""Readings of the devices through NVML: what does not work is None, and without NVML there is one sentence why."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mpstui.core.late import dataclass
from mpstui.core.model import Device
from mpstui.core.text import printable
from mpstui.observe.sources import NvmlSample

if TYPE_CHECKING:
    from mpstui.observe.dcgm import Dcgm

T = TypeVar("T")

RETRY_SECONDS: Final = 10.0
"""How long a library or driver that did not work is left alone."""
GPM_SECONDS: Final = 0.1
"""Two samples of the GPM counters must be at least this far apart to tell anything."""
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
    16: ("the GPU has to be reset before it can be used", "end what uses it, then nvidia-smi --gpu-reset, or reboot"),
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
    ) -> None:
        """``lib`` stands in for the pynvml module, which is otherwise imported at the first reading. ``beside``: who
        tells of devices of which NVML has no SM activity; asked for once, and where there is one such device alone."""
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
        with self._lock:
            now = time.time()
            try:
                gpus = self._open()
                devices = tuple(self._read(gpu) for gpu in gpus)
                if all(device.memory_total is None for device in devices):
                    self._check(gpus)
                return NvmlSample(
                    time=now,
                    driver_version=self._driver,
                    devices=devices,
                    mps_clients=self._lists(gpus, "nvmlDeviceGetMPSComputeRunningProcesses"),
                    processes=self._lists(gpus, "nvmlDeviceGetComputeRunningProcesses"),
                )
            except _NoReadingError as error:
                return NvmlSample(time=now, error=str(error))

    def membership(self) -> dict[str, dict[int, int | None]]:
        """Device UUID to {PID: bytes} of MPS clients, and nothing else; a device whose list is not known is missing."""
        with self._lock:
            try:
                return self._lists(self._open(), "nvmlDeviceGetMPSComputeRunningProcesses")
            except _NoReadingError:
                return {}

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
                    gpus.append(_Gpu(handle, self._describe(index, uuid, handle), _Gpm(lib, handle, self._clock)))
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

    def _read(self, gpu: _Gpu) -> Device:
        lib, handle = self._lib, gpu.handle
        memory = self._try(lambda: lib.nvmlDeviceGetMemoryInfo(handle))
        mode = self._try(lambda: lib.nvmlDeviceGetComputeMode(handle))
        mig = self._try(lambda: lib.nvmlDeviceGetMigMode(handle)[0])
        persistence = self._try(lambda: lib.nvmlDeviceGetPersistenceMode(handle))
        rates = self._try(lambda: lib.nvmlDeviceGetUtilizationRates(handle))
        milliwatts = self._try(lambda: lib.nvmlDeviceGetPowerUsage(handle))
        celsius = self._try(lambda: lib.nvmlDeviceGetTemperature(handle, lib.NVML_TEMPERATURE_GPU))
        sm, occupancy, dram = gpu.gpm.read()
        device = replace(
            gpu.device,
            memory_total=None if memory is None else int(memory.total),
            memory_used=None if memory is None else int(memory.used),
            compute_mode=None if mode is None else _COMPUTE_MODES.get(mode, f"mode {mode}"),
            mig=None if mig is None else bool(mig),
            persistence=None if persistence is None else bool(persistence),
            sm_utilization=sm,
            sm_occupancy=occupancy,
            dram_utilization=dram,
            tells_sm=gpu.gpm.tells,
            gpu_utilization=None if rates is None else float(rates.gpu),
            memory_utilization=None if rates is None else float(rates.memory),
            power_watts=None if milliwatts is None else milliwatts / 1000,
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

    def _lists(self, gpus: Iterable[_Gpu], function: str) -> dict[str, dict[int, int | None]]:
        """A list of processes of each device; a device that does not give one is missing."""
        found: dict[str, dict[int, int | None]] = {}
        for gpu in gpus:
            processes = self._try(lambda gpu=gpu: self._processes(function, gpu.handle))  # type: ignore[misc]
            if processes is not None:
                found[gpu.device.uuid] = {int(p.pid): _bytes(p.usedGpuMemory) for p in processes}
        return found

    def _processes(self, function: str, handle: Any) -> Any:
        try:
            return getattr(self._lib, function)(handle)
        except self._lib.NVMLError as error:
            if getattr(error, "value", None) != _FUNCTION_NOT_FOUND:
                raise
        # A driver older than the binding has the function's second version only.
        return getattr(self._lib, f"{function}_v2")(handle)

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


class _Gpm:
    """SM utilisation, SM occupancy and DRAM bandwidth of one device, in percent, from pairs of counter samples."""

    def __init__(self, lib: Any, handle: Any, clock: Callable[[], float]) -> None:
        self._lib = lib
        self._handle = handle
        self._clock = clock
        self._errors = (lib.NVMLError, AttributeError)
        self._last: Any = None
        self._taken = -math.inf
        self._values: tuple[float | None, float | None, float | None] = (None, None, None)
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
            self._values = (None, None, None) if self._last is None else self._metrics(self._last, sample)
        except self._errors:
            self._values = (None, None, None)
            self._free(sample)
            sample = None
        self.tells = sample is not None
        self._free(self._last)
        self._last, self._taken = sample, now
        return self._values

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
