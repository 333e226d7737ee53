"""NVML's own library, as far as it is read here: its functions by their names, called through ctypes.

The vendor's Python package has all of NVML, 2,486 names: to import it takes 4.4 MiB of memory and 0.02 s of processor
time (2026-11-22), more than the readings of an hour. Structures and numbers are those of ``nvml.h``; a test holds them
against the package. Methods raise NvmlError; with a handle they are ``nvmlDevice…(handle)``.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import (
    CDLL,
    Structure,
    byref,
    c_char,
    c_char_p,
    c_double,
    c_uint,
    c_ulonglong,
    c_void_p,
    create_string_buffer,
)
from typing import Any, Final, NamedTuple

LIBRARY: Final = "libnvidia-ml.so.1"
_INSUFFICIENT_SIZE: Final = 7
_LIBRARY_NOT_FOUND: Final = 12
_FUNCTION_NOT_FOUND: Final = 13
_NOT_AVAILABLE: Final = (1 << 64) - 1
_NAME_BYTES: Final = 96
_UUID_BYTES: Final = 96
_VERSION_BYTES: Final = 80


class NvmlError(Exception):
    """``value`` is NVML's return code."""

    def __init__(self, value: int, text: str = "") -> None:
        super().__init__(text or f"NVML Error with code {value}")
        self.value = value


class Memory(Structure):
    """nvmlMemory_t; bytes."""

    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class Utilization(Structure):
    """nvmlUtilization_t; percent."""

    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class Attributes(Structure):
    """nvmlDeviceAttributes_t."""

    _fields_ = (
        ("multiprocessorCount", c_uint),
        ("sharedCopyEngineCount", c_uint),
        ("sharedDecoderCount", c_uint),
        ("sharedEncoderCount", c_uint),
        ("sharedJpegCount", c_uint),
        ("sharedOfaCount", c_uint),
        ("gpuInstanceSliceCount", c_uint),
        ("computeInstanceSliceCount", c_uint),
        ("memorySizeMB", c_ulonglong),
    )


class ProcessInfo(Structure):
    """nvmlProcessInfo_t, in its second and third version."""

    _fields_ = (
        ("pid", c_uint),
        ("usedGpuMemory", c_ulonglong),
        ("gpuInstanceId", c_uint),
        ("computeInstanceId", c_uint),
    )


class PciInfo(Structure):
    """nvmlPciInfo_t, in its third version."""

    _fields_ = (
        ("busIdLegacy", c_char * 16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("pciDeviceId", c_uint),
        ("pciSubSystemId", c_uint),
        ("busId", c_char * 32),
    )


class EventData(Structure):
    """nvmlEventData_t."""

    _fields_ = (
        ("device", c_void_p),
        ("eventType", c_ulonglong),
        ("eventData", c_ulonglong),
        ("gpuInstanceId", c_uint),
        ("computeInstanceId", c_uint),
    )


class GpmSupport(Structure):
    """nvmlGpmSupport_t."""

    _fields_ = (("version", c_uint), ("isSupportedDevice", c_uint))


class _MetricInfo(Structure):
    _fields_ = (("shortName", c_char_p), ("longName", c_char_p), ("unit", c_char_p))


class GpmMetric(Structure):
    """nvmlGpmMetric_t."""

    _fields_ = (("metricId", c_uint), ("nvmlReturn", c_uint), ("value", c_double), ("metricInfo", _MetricInfo))


class GpmMetricsGet(Structure):
    """nvmlGpmMetricsGet_t; ``numMetrics`` of ``metrics`` are asked for. How many there is room for has grown."""

    _fields_ = (
        ("version", c_uint),
        ("numMetrics", c_uint),
        ("sample1", c_void_p),
        ("sample2", c_void_p),
        ("metrics", GpmMetric * 477),
    )


class Process(NamedTuple):
    """A row of a list of processes; bytes, None where they are not told."""

    pid: int
    usedGpuMemory: int | None


class Library:
    """The library, loaded by :meth:`nvmlInit`. ``load`` stands in for it."""

    NVMLError: Final = NvmlError
    NVML_TEMPERATURE_GPU: Final = 0
    NVML_GPM_METRIC_SM_UTIL: Final = 2
    NVML_GPM_METRIC_SM_OCCUPANCY: Final = 3
    NVML_GPM_METRIC_DRAM_BW_UTIL: Final = 10
    NVML_GPM_METRICS_GET_VERSION: Final = 1
    c_nvmlGpmMetricsGet_t: Final = GpmMetricsGet

    def __init__(self, load: Callable[[str], Any] = CDLL) -> None:
        self._load = load
        self._loaded: Any = None

    def _call(self, name: str, *arguments: Any) -> None:
        code = self._code(name, *arguments)
        if code:
            raise NvmlError(code, self._said(code))

    def _code(self, name: str, *arguments: Any) -> int:
        """What it returns."""
        if self._loaded is None:
            try:
                self._loaded = self._load(LIBRARY)
            except OSError:
                raise NvmlError(_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found") from None
        try:
            function = getattr(self._loaded, name)
        except AttributeError:
            raise NvmlError(_FUNCTION_NOT_FOUND, "Function Not Found") from None
        return int(function(*arguments))

    def _said(self, code: int) -> str:
        """NVML's own words for it."""
        try:
            function = self._loaded.nvmlErrorString
            function.restype = c_char_p
            return bytes(function(c_uint(code))).decode("utf-8", "replace")
        except (AttributeError, TypeError):
            return ""

    def _number(self, name: str, *arguments: Any) -> int:
        found = c_uint()
        self._call(name, *arguments, byref(found))
        return found.value

    def _text(self, name: str, size: int, *arguments: Any) -> bytes:
        found = create_string_buffer(size)
        self._call(name, *arguments, found, c_uint(size))
        return found.value

    def nvmlInit(self) -> None:
        self._call("nvmlInitWithFlags", c_uint(0))

    def nvmlShutdown(self) -> None:
        self._call("nvmlShutdown")

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return self._text("nvmlSystemGetDriverVersion", _VERSION_BYTES)

    def nvmlDeviceGetCount(self) -> int:
        return self._number("nvmlDeviceGetCount_v2")

    def nvmlDeviceGetHandleByIndex(self, index: int) -> c_void_p:
        handle = c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(handle))
        return handle

    def nvmlDeviceGetUUID(self, handle: Any) -> bytes:
        """``handle`` may be the one in an event."""
        return self._text("nvmlDeviceGetUUID", _UUID_BYTES, c_void_p(handle) if isinstance(handle, int) else handle)

    def nvmlDeviceGetName(self, handle: Any) -> bytes:
        return self._text("nvmlDeviceGetName", _NAME_BYTES, handle)

    def nvmlDeviceGetCudaComputeCapability(self, handle: Any) -> tuple[int, int]:
        return self._two("nvmlDeviceGetCudaComputeCapability", handle)

    def nvmlDeviceGetMigMode(self, handle: Any) -> tuple[int, int]:
        """The current one, and the one after the next reset."""
        return self._two("nvmlDeviceGetMigMode", handle)

    def _two(self, name: str, handle: Any) -> tuple[int, int]:
        first, second = c_uint(), c_uint()
        self._call(name, handle, byref(first), byref(second))
        return first.value, second.value

    def nvmlDeviceGetAttributes_v2(self, handle: Any) -> Attributes:
        found = Attributes()
        self._call("nvmlDeviceGetAttributes_v2", handle, byref(found))
        return found

    def nvmlDeviceGetNumGpuCores(self, handle: Any) -> int:
        return self._number("nvmlDeviceGetNumGpuCores", handle)

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Memory:
        found = Memory()
        self._call("nvmlDeviceGetMemoryInfo", handle, byref(found))
        return found

    def nvmlDeviceGetComputeMode(self, handle: Any) -> int:
        return self._number("nvmlDeviceGetComputeMode", handle)

    def nvmlDeviceGetPersistenceMode(self, handle: Any) -> int:
        return self._number("nvmlDeviceGetPersistenceMode", handle)

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Utilization:
        found = Utilization()
        self._call("nvmlDeviceGetUtilizationRates", handle, byref(found))
        return found

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:
        """Milliwatts."""
        return self._number("nvmlDeviceGetPowerUsage", handle)

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int:
        return self._number("nvmlDeviceGetTemperature", handle, c_uint(sensor))

    def nvmlDeviceGetPciInfo(self, handle: Any) -> PciInfo:
        found = PciInfo()
        self._call("nvmlDeviceGetPciInfo_v3", handle, byref(found))
        return found

    def nvmlDeviceGetMPSComputeRunningProcesses(self, handle: Any) -> list[Process]:
        return self._processes("nvmlDeviceGetMPSComputeRunningProcesses_v3", handle)

    def nvmlDeviceGetMPSComputeRunningProcesses_v2(self, handle: Any) -> list[Process]:
        return self._processes("nvmlDeviceGetMPSComputeRunningProcesses_v2", handle)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> list[Process]:
        return self._processes("nvmlDeviceGetComputeRunningProcesses_v3", handle)

    def nvmlDeviceGetComputeRunningProcesses_v2(self, handle: Any) -> list[Process]:
        return self._processes("nvmlDeviceGetComputeRunningProcesses_v2", handle)

    def _processes(self, name: str, handle: Any) -> list[Process]:
        """Asked how many there are, and for some more than that, as they come and go meanwhile."""
        count = c_uint()
        code = self._code(name, handle, byref(count), None)
        if not code:
            return []
        if code != _INSUFFICIENT_SIZE:
            raise NvmlError(code, self._said(code))
        count.value = 2 * count.value + 5
        rows = (ProcessInfo * count.value)()
        self._call(name, handle, byref(count), rows)
        told = ((row.pid, row.usedGpuMemory) for row in rows[: count.value])
        return [Process(pid, None if used == _NOT_AVAILABLE else used) for pid, used in told]

    def nvmlGpmQueryDeviceSupport(self, handle: Any) -> GpmSupport:
        found = GpmSupport(version=1)
        self._call("nvmlGpmQueryDeviceSupport", handle, byref(found))
        return found

    def nvmlGpmSampleAlloc(self) -> c_void_p:
        sample = c_void_p()
        self._call("nvmlGpmSampleAlloc", byref(sample))
        return sample

    def nvmlGpmSampleGet(self, handle: Any, sample: c_void_p) -> None:
        self._call("nvmlGpmSampleGet", handle, sample)

    def nvmlGpmMetricsGet(self, request: GpmMetricsGet) -> None:
        self._call("nvmlGpmMetricsGet", byref(request))

    def nvmlGpmSampleFree(self, sample: c_void_p) -> None:
        self._call("nvmlGpmSampleFree", sample)

    def nvmlEventSetCreate(self) -> c_void_p:
        found = c_void_p()
        self._call("nvmlEventSetCreate", byref(found))
        return found

    def nvmlDeviceRegisterEvents(self, handle: Any, kinds: int, events: c_void_p) -> None:
        self._call("nvmlDeviceRegisterEvents", handle, c_ulonglong(kinds), events)

    def nvmlEventSetWait_v2(self, events: c_void_p, milliseconds: int) -> EventData:
        found = EventData()
        self._call("nvmlEventSetWait_v2", events, byref(found), c_uint(milliseconds))
        return found

    def nvmlEventSetFree(self, events: c_void_p) -> None:
        self._call("nvmlEventSetFree", events)
