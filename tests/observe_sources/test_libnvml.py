"""The functions of NVML's C interface: their answers are where nvml.h has them, as the vendor's binding finds them."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml
import pytest

from mpstui.observe import libnvml
from mpstui.observe.nvml import RealNvml
from mpstui.observe.xid import NvmlXids

STUB = Path(__file__).with_name("nvml_stub.c")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (libnvml.Memory, pynvml.c_nvmlMemory_t),
        (libnvml.Utilization, pynvml.c_nvmlUtilization_t),
        (libnvml.Attributes, pynvml.c_nvmlDeviceAttributes),
        (libnvml.Process, pynvml.c_nvmlProcessInfo_v2_t),
        (libnvml.Process, pynvml.c_nvmlProcessInfo_v3_t),
        (libnvml.PciInfo, pynvml.nvmlPciInfo_t),
        (libnvml.EventData, pynvml.c_nvmlEventData_t),
        (libnvml.GpmSupport, pynvml.c_nvmlGpmSupport_t),
    ],
)
def test_a_structure_is_as_the_vendor_has_it(ours: Any, theirs: Any) -> None:
    assert ctypes.sizeof(ours) == ctypes.sizeof(theirs)
    assert [(name, getattr(ours, name).offset, getattr(ours, name).size) for name, _ in ours._fields_] == [
        (name, getattr(theirs, name).offset, getattr(theirs, name).size) for name, *_ in theirs._fields_
    ]


def test_a_request_for_metrics_has_room_for_more_than_the_vendor_names() -> None:
    ours, theirs = libnvml.GpmMetricsGet, pynvml.c_nvmlGpmMetricsGet_t
    assert ctypes.sizeof(libnvml.GpmMetric) == ctypes.sizeof(pynvml.c_nvmlGpmMetric_t)
    assert libnvml.GpmMetric.value.offset == pynvml.c_nvmlGpmMetric_t.value.offset
    assert ours.metrics.offset == theirs.metrics.offset
    assert ctypes.sizeof(ours) >= ctypes.sizeof(theirs)
    for name in ("NVML_GPM_METRIC_SM_UTIL", "NVML_GPM_METRIC_SM_OCCUPANCY", "NVML_GPM_METRIC_DRAM_BW_UTIL"):
        assert getattr(libnvml, name) == getattr(pynvml, name)
    assert libnvml.NVML_GPM_METRICS_GET_VERSION == pynvml.NVML_GPM_METRICS_GET_VERSION


def _reads(lib: Any) -> list[Any]:
    now = [0.0]
    nvml = RealNvml(lib, clock=lambda: now[0])
    first = nvml.sample()
    now[0] = 1.0
    found = [replace(sample, time=0.0) for sample in (first, nvml.sample())]
    xids = NvmlXids(lib, clock=lambda: 0.0)
    told = [*found, nvml.membership(), dict(xids.buses()), xids.wait(0.079)]
    xids.close()
    nvml.close()
    return told


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_it_reads_what_the_vendors_binding_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = os.fspath(tmp_path / "libnvidia-ml.so.1")
    subprocess.run(["cc", "-w", "-shared", "-fPIC", "-o", library, os.fspath(STUB)], check=True, timeout=120)
    monkeypatch.setattr(libnvml, "LIBRARY", library)
    monkeypatch.setattr(libnvml, "_lib", None)
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(library))
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    ours = _reads(libnvml)
    assert ours == _reads(pynvml)
    sample, (_, divided), (members, none) = ours[1], ours[1].devices, ours[2].values()
    assert (sample.error, sample.driver_version) == (None, "580.159.04")
    assert (divided.sm_count, divided.sm_utilization, divided.temperature) == (60, 3 + 16, 31.0)
    assert (len(members), members[101], members[249], none) == (150, None, (1 << 33) + 149, {})
    assert [(xid.number, xid.uuid) for xid in ours[4]] == [(79, "GPU-1")]
    device = libnvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(libnvml.NVMLError, match="Not Supported"):
        libnvml.nvmlDeviceGetAttributes_v2(device)
    with pytest.raises(libnvml.NVMLError) as missing:
        libnvml.nvmlDeviceGetMPSComputeRunningProcesses_v2(device)
    assert missing.value.value == 13, "an older library has not each function"


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libnvml, "LIBRARY", "libmpstui-none.so.1")
    monkeypatch.setattr(libnvml, "_lib", None)
    nvml = RealNvml()
    assert "libnvidia-ml.so.1" in (nvml.sample().error or "")
    assert nvml.membership() == {}
    nvml.close()
