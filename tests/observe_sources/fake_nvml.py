"""A stand-in for the pynvml module that gives the values recorded on the H100 and fails as it is told to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

UUID = "GPU-51dbd800-8a65-a8fc-d0ec-7abe3f1ec476"
NOT_AVAILABLE = 0xFFFFFFFFFFFFFFFF


class NVMLError(Exception):
    def __init__(self, value: int, text: str = "") -> None:
        super().__init__(text or f"code {value}")
        self.value = value


class NVMLLibraryMismatchError(Exception):
    """What newer bindings raise of a function that the driver has in an earlier version only; no NVMLError."""


@dataclass
class FakeNvml:
    """``failing`` maps a function's name to the error code it fails with, ``"*"`` all of them but nvmlInit."""

    failing: dict[str, int] = field(default_factory=dict)
    count: int = 1
    capability: tuple[int, int] = (9, 0)
    cores: int = 16896
    attributes: int | None = None
    """SM count of nvmlDeviceGetAttributes_v2; None: not supported, as on a device without MIG."""
    mps: list[tuple[int, int | None]] = field(default_factory=list)
    processes: list[tuple[int, int | None]] = field(default_factory=list)
    gpm_supported: bool = True
    gpm_values: tuple[float, float, float] = (87.5, 41.25, 0.0005555293737721757)
    gpm_return: int = 0
    used: int = 580780032
    calls: Counter[str] = field(default_factory=Counter)
    samples: set[int] = field(default_factory=set)
    allocated: int = 0
    open: int = 0

    NVMLError = NVMLError
    NVMLLibraryMismatchError = NVMLLibraryMismatchError
    mismatched: bool = False
    """Whether functions that are not there are told so by that error."""
    NVML_TEMPERATURE_GPU = 0
    NVML_GPM_METRIC_SM_UTIL = 2
    NVML_GPM_METRIC_SM_OCCUPANCY = 3
    NVML_GPM_METRIC_DRAM_BW_UTIL = 10
    NVML_GPM_METRICS_GET_VERSION = 1

    def _call(self, name: str) -> None:
        self.calls[name] += 1
        code = self.failing.get(name, self.failing.get("*") if name != "nvmlInit" else None)
        if code == 13 and self.mismatched:
            raise NVMLLibraryMismatchError
        if code is not None:
            raise NVMLError(code)
        assert self.open or name in {"nvmlInit", "nvmlShutdown"}, f"{name} before nvmlInit"

    def nvmlInit(self) -> None:
        self._call("nvmlInit")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1
        self._call("nvmlShutdown")

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        self._call("nvmlDeviceGetHandleByIndex")
        self._call(f"nvmlDeviceGetHandleByIndex {index}")
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        self._call("nvmlDeviceGetUUID")
        return UUID if handle == 0 else f"GPU-{handle}"

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:
        self._call("nvmlDeviceGetPciInfo")
        return SimpleNamespace(busId=f"00000000:{handle:02X}:06.0".encode())

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        self._call("nvmlDeviceGetMemoryInfo")
        self._call(f"nvmlDeviceGetMemoryInfo {handle}")
        return SimpleNamespace(total=85520809984, free=84940029952, used=self.used)

    def nvmlDeviceGetAttributes_v2(self, handle: int) -> Any:
        self._call("nvmlDeviceGetAttributes_v2")
        if self.attributes is None:
            raise NVMLError(3)
        return SimpleNamespace(multiprocessorCount=self.attributes)

    def nvmlDeviceGetMPSComputeRunningProcesses(self, handle: int) -> list[Any]:
        self._call("nvmlDeviceGetMPSComputeRunningProcesses")
        return self.nvmlDeviceGetMPSComputeRunningProcesses_v2(handle)

    def nvmlDeviceGetMPSComputeRunningProcesses_v2(self, handle: int) -> list[Any]:
        self._call("nvmlDeviceGetMPSComputeRunningProcesses_v2")
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self.mps]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        self._call("nvmlDeviceGetComputeRunningProcesses")
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self.processes]

    def nvmlGpmQueryDeviceSupport(self, handle: int) -> Any:
        self._call("nvmlGpmQueryDeviceSupport")
        return SimpleNamespace(isSupportedDevice=int(self.gpm_supported))

    def nvmlGpmSampleAlloc(self) -> int:
        self._call("nvmlGpmSampleAlloc")
        self.allocated += 1
        self.samples.add(self.allocated)
        return self.allocated

    def nvmlGpmSampleGet(self, handle: int, sample: int) -> int:
        self._call("nvmlGpmSampleGet")
        assert sample in self.samples
        return sample

    def nvmlGpmSampleFree(self, sample: int) -> None:
        self._call("nvmlGpmSampleFree")
        self.samples.remove(sample)

    def c_nvmlGpmMetricsGet_t(self) -> Any:
        return SimpleNamespace(metrics=[SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(333)])

    def nvmlGpmMetricsGet(self, request: Any) -> Any:
        self._call("nvmlGpmMetricsGet")
        assert request.version == 1
        assert request.numMetrics == 3
        assert {request.sample1, request.sample2} <= self.samples
        assert request.sample1 < request.sample2
        values = dict(zip((2, 3, 10), self.gpm_values, strict=True))
        for metric in request.metrics[:3]:
            metric.value, metric.nvmlReturn = values[metric.metricId], self.gpm_return
        return request

    def __getattr__(self, name: str) -> Any:
        simple: dict[str, Any] = {
            "nvmlSystemGetDriverVersion": "580.159.04",
            "nvmlDeviceGetCount": self.count,
            "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
            "nvmlDeviceGetCudaComputeCapability": self.capability,
            "nvmlDeviceGetNumGpuCores": self.cores,
            "nvmlDeviceGetComputeMode": 0,
            "nvmlDeviceGetMigMode": [0, 0],
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=3, memory=0),
            "nvmlDeviceGetPowerUsage": 71240,
            "nvmlDeviceGetEnforcedPowerLimit": 700000,
            "nvmlDeviceGetTemperature": 31,
        }
        if name not in simple:
            raise AttributeError(name)

        def call(*_: Any) -> Any:
            self._call(name)
            return simple[name]

        return call
