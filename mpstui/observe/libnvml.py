"""The part of NVML's C interface that mpstui uses, by ctypes: the functions and structures of nvml.h, and no more.

A function has its C name without the version; what NVML answers with a code other than 0 raises :class:`NVMLError`,
and so does one that the driver's library does not have. A binding of all of NVML takes six times the processor time
to import (24 and 4 ms, 2026-11-22) and 2 MiB, which every command and the screen's first picture would pay.
"""

from __future__ import annotations

from ctypes import (
    CDLL,
    POINTER,
    Structure,
    byref,
    c_char,
    c_char_p,
    c_double,
    c_int,
    c_uint,
    c_ulonglong,
    c_void_p,
    create_string_buffer,
)
from typing import Any, Final

LIBRARY: Final = "libnvidia-ml.so.1"
NVML_TEMPERATURE_GPU: Final = 0
NVML_GPM_METRIC_SM_UTIL: Final = 2
NVML_GPM_METRIC_SM_OCCUPANCY: Final = 3
NVML_GPM_METRIC_DRAM_BW_UTIL: Final = 10
NVML_GPM_METRICS_GET_VERSION: Final = 1
_GPM_SUPPORT_VERSION: Final = 1
_GPM_METRICS: Final = 512
"""Metrics that a request has room for: more than any nvml.h names, as the library may clear what its own has."""
_INSUFFICIENT_SIZE: Final = 7
_LIBRARY_NOT_FOUND: Final = 12
_FUNCTION_NOT_FOUND: Final = 13
_NOT_AVAILABLE: Final = (1 << 64) - 1
_MESSAGES: Final = {_LIBRARY_NOT_FOUND: f"{LIBRARY} is not here", _FUNCTION_NOT_FOUND: "function not found"}
"""Of what has no library to say it."""


class NVMLError(Exception):
    """``value``: NVML's code; the text is NVML's own where its library is there."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        if _lib is None or self.value in _MESSAGES:
            return _MESSAGES.get(self.value, f"error {self.value}")
        _lib.nvmlErrorString.restype = c_char_p
        return (_lib.nvmlErrorString(c_int(self.value)) or b"").decode(errors="replace") or f"error {self.value}"


class Memory(Structure):
    """Bytes of a device."""

    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class Utilization(Structure):
    """Percent of the last sample period in which a kernel ran, or memory was read or written."""

    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class Attributes(Structure):
    """Of a device that can be divided."""

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


class Process(Structure):
    """The second and third version of it, which are the same."""

    _fields_ = (
        ("pid", c_uint),
        ("usedGpuMemory", c_ulonglong),
        ("gpuInstanceId", c_uint),
        ("computeInstanceId", c_uint),
    )


class _Opaque(Structure):
    """Behind a handle that is a field: one of c_void_p would be read as an int, of which a call passes the half."""


class PciInfo(Structure):
    """Where a device is; ``busId`` is ``00000000:06:00.0``."""

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
    """An event; ``eventData`` is the Xid of a critical one."""

    _fields_ = (
        ("device", POINTER(_Opaque)),
        ("eventType", c_ulonglong),
        ("eventData", c_ulonglong),
        ("gpuInstanceId", c_uint),
        ("computeInstanceId", c_uint),
    )


class GpmSupport(Structure):
    _fields_ = (("version", c_uint), ("isSupportedDevice", c_uint))


class GpmMetric(Structure):
    """What is asked, ``metricId``, and the answer; the rest is names and a unit."""

    _fields_ = (
        ("metricId", c_uint),
        ("nvmlReturn", c_uint),
        ("value", c_double),
        ("shortName", c_char_p),
        ("longName", c_char_p),
        ("unit", c_char_p),
    )


class GpmMetricsGet(Structure):
    _fields_ = (
        ("version", c_uint),
        ("numMetrics", c_uint),
        ("sample1", c_void_p),
        ("sample2", c_void_p),
        ("metrics", GpmMetric * _GPM_METRICS),
    )


c_nvmlGpmMetricsGet_t = GpmMetricsGet
_lib: CDLL | None = None


def _call(name: str, *arguments: Any) -> None:
    """Calls NVML. Raises NVMLError."""
    try:
        function = getattr(_lib, name)
    except AttributeError:
        raise NVMLError(_FUNCTION_NOT_FOUND) from None
    code = function(*arguments)
    if code:
        raise NVMLError(code)


def _number(name: str, *arguments: Any) -> int:
    found = c_uint()
    _call(name, *arguments, byref(found))
    return found.value


def _pair(name: str, handle: c_void_p) -> tuple[int, int]:
    one, other = c_uint(), c_uint()
    _call(name, handle, byref(one), byref(other))
    return one.value, other.value


def _text(name: str, *arguments: Any) -> bytes:
    found = create_string_buffer(96)  # the longest that nvml.h names
    _call(name, *arguments, found, c_uint(len(found)))
    return found.value


def _made(name: str, *arguments: Any) -> c_void_p:
    found = c_void_p()
    _call(name, *arguments, byref(found))
    return found


def _filled(name: str, handle: c_void_p, found: Any) -> Any:
    _call(name, handle, byref(found))
    return found


def _processes(name: str, handle: c_void_p) -> list[Any]:
    """As many as there are: NVML says how many where there is no room for all, and some may have come since."""
    room = 64
    while True:
        count, found = c_uint(room), (Process * room)()
        try:
            _call(name, handle, byref(count), found)
        except NVMLError as error:
            if error.value != _INSUFFICIENT_SIZE or room > 1 << 16:
                raise
            room = 2 * max(room, count.value)
        else:
            return list(found[: count.value])


def nvmlInit() -> None:
    """Opens it; as often as it is opened it has to be shut down."""
    global _lib
    if _lib is None:
        try:
            _lib = CDLL(LIBRARY)
        except OSError:
            raise NVMLError(_LIBRARY_NOT_FOUND) from None
    _call("nvmlInit_v2")


def nvmlShutdown() -> None:
    _call("nvmlShutdown")


def nvmlSystemGetDriverVersion() -> bytes:
    return _text("nvmlSystemGetDriverVersion")


def nvmlDeviceGetCount() -> int:
    return _number("nvmlDeviceGetCount_v2")


def nvmlDeviceGetHandleByIndex(index: int) -> c_void_p:
    return _made("nvmlDeviceGetHandleByIndex_v2", c_uint(index))


def nvmlDeviceGetUUID(handle: c_void_p) -> bytes:
    return _text("nvmlDeviceGetUUID", handle)


def nvmlDeviceGetName(handle: c_void_p) -> bytes:
    return _text("nvmlDeviceGetName", handle)


def nvmlDeviceGetPciInfo(handle: c_void_p) -> PciInfo:
    found: PciInfo = _filled("nvmlDeviceGetPciInfo_v3", handle, PciInfo())
    return found


def nvmlDeviceGetCudaComputeCapability(handle: c_void_p) -> tuple[int, int]:
    return _pair("nvmlDeviceGetCudaComputeCapability", handle)


def nvmlDeviceGetAttributes_v2(handle: c_void_p) -> Attributes:
    found: Attributes = _filled("nvmlDeviceGetAttributes_v2", handle, Attributes())
    return found


def nvmlDeviceGetNumGpuCores(handle: c_void_p) -> int:
    return _number("nvmlDeviceGetNumGpuCores", handle)


def nvmlDeviceGetMemoryInfo(handle: c_void_p) -> Memory:
    found: Memory = _filled("nvmlDeviceGetMemoryInfo", handle, Memory())
    return found


def nvmlDeviceGetComputeMode(handle: c_void_p) -> int:
    return _number("nvmlDeviceGetComputeMode", handle)


def nvmlDeviceGetMigMode(handle: c_void_p) -> tuple[int, int]:
    """Now, and after the next reset."""
    return _pair("nvmlDeviceGetMigMode", handle)


def nvmlDeviceGetPersistenceMode(handle: c_void_p) -> int:
    return _number("nvmlDeviceGetPersistenceMode", handle)


def nvmlDeviceGetUtilizationRates(handle: c_void_p) -> Utilization:
    found: Utilization = _filled("nvmlDeviceGetUtilizationRates", handle, Utilization())
    return found


def nvmlDeviceGetPowerUsage(handle: c_void_p) -> int:
    """In milliwatts."""
    return _number("nvmlDeviceGetPowerUsage", handle)


def nvmlDeviceGetTemperature(handle: c_void_p, sensor: int) -> int:
    """In °C."""
    return _number("nvmlDeviceGetTemperature", handle, c_uint(sensor))


def nvmlDeviceGetMPSComputeRunningProcesses(handle: c_void_p) -> list[Any]:
    return _processes("nvmlDeviceGetMPSComputeRunningProcesses_v3", handle)


def nvmlDeviceGetMPSComputeRunningProcesses_v2(handle: c_void_p) -> list[Any]:
    return _processes("nvmlDeviceGetMPSComputeRunningProcesses_v2", handle)


def nvmlDeviceGetComputeRunningProcesses(handle: c_void_p) -> list[Any]:
    return _processes("nvmlDeviceGetComputeRunningProcesses_v3", handle)


def nvmlDeviceGetComputeRunningProcesses_v2(handle: c_void_p) -> list[Any]:
    return _processes("nvmlDeviceGetComputeRunningProcesses_v2", handle)


def nvmlGpmQueryDeviceSupport(handle: c_void_p) -> GpmSupport:
    found: GpmSupport = _filled("nvmlGpmQueryDeviceSupport", handle, GpmSupport(_GPM_SUPPORT_VERSION))
    return found


def nvmlGpmSampleAlloc() -> c_void_p:
    return _made("nvmlGpmSampleAlloc")


def nvmlGpmSampleGet(handle: c_void_p, sample: c_void_p) -> None:
    _call("nvmlGpmSampleGet", handle, sample)


def nvmlGpmSampleFree(sample: c_void_p) -> None:
    _call("nvmlGpmSampleFree", sample)


def nvmlGpmMetricsGet(request: GpmMetricsGet) -> None:
    """Fills in the answers."""
    _call("nvmlGpmMetricsGet", byref(request))


def nvmlEventSetCreate() -> c_void_p:
    return _made("nvmlEventSetCreate")


def nvmlDeviceRegisterEvents(handle: c_void_p, kinds: int, events: c_void_p) -> None:
    _call("nvmlDeviceRegisterEvents", handle, c_ulonglong(kinds), events)


def nvmlEventSetWait_v2(events: c_void_p, milliseconds: int) -> EventData:
    found = EventData()
    _call("nvmlEventSetWait_v2", events, byref(found), c_uint(milliseconds))
    return found


def nvmlEventSetFree(events: c_void_p) -> None:
    _call("nvmlEventSetFree", events)
