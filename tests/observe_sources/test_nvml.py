"""NVML's readings from a stand-in with recorded values, and what is said where there is no NVML."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from mpstui.core.model import Device
from mpstui.observe.devices import RealNvml

from .fake_nvml import NOT_AVAILABLE, UUID, FakeNvml

RECORDED = Device(
    uuid=UUID,
    index=0,
    name="NVIDIA H100 80GB HBM3",
    sm_count=132,
    compute_capability=(9, 0),
    memory_total=85520809984,
    memory_used=580780032,
    compute_mode="Default",
    mig=False,
    gpu_utilization=3.0,
    memory_utilization=0.0,
    power_watts=71.24,
    power_limit_watts=700.0,
    pci_bus_id="00000000:00:06.0",
    temperature=31.0,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_recorded_device() -> None:
    lib = FakeNvml(mps=[(2237, 543162368), (2240, None)], processes=[(1402, 69206016), (2237, 543162368)])
    sample = RealNvml(lib).sample()
    assert sample.error is None
    assert sample.driver_version == "580.159.04"
    assert sample.devices == (RECORDED,)
    assert sample.mps_clients == {UUID: {2237: 543162368, 2240: None}}
    assert sample.processes == {UUID: {1402: 69206016, 2237: 543162368}}


def test_each_slow_reading_is_taken_once_and_what_never_changes_is_not_asked_again() -> None:
    lib, clock = FakeNvml(), Clock()
    nvml = RealNvml(lib, clock)
    nvml.sample()
    lib.calls.clear()
    clock.now += 1
    nvml.sample()
    assert set(lib.calls.values()) == {1}
    assert not {"nvmlInit", "nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetNumGpuCores"} & set(lib.calls)
    assert lib.calls["nvmlGpmSampleGet"] == lib.calls["nvmlDeviceGetPowerUsage"] == 1


def test_a_steady_reading_leaves_out_what_nothing_speaks_of() -> None:
    mps, computing = "nvmlDeviceGetMPSComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses"
    lib, clock = FakeNvml(mps=[(2237, 2)], processes=[(1402, 1), (2237, 2)]), Clock()
    nvml = RealNvml(lib, clock)

    def read(seconds: float = 1.0, *, used: int | None = None) -> tuple[int, int, int]:
        """A second later: how often both lists and a mode were read."""
        clock.now += seconds
        lib.used = used or lib.used
        lib.calls.clear()
        sample = nvml.steady()
        assert sample.processes == {UUID: dict(lib.processes)}
        assert sample.mps_clients == {UUID: dict(lib.mps)}
        assert sample.devices[0].memory_used == lib.used
        assert lib.calls["nvmlDeviceGetPowerUsage"] == lib.calls["nvmlDeviceGetComputeMode"] == 1
        return lib.calls[computing], lib.calls[mps], lib.calls["nvmlDeviceGetMigMode"]

    assert read() == (1, 1, 1)
    assert {read() for _ in range(4)} == {(0, 0, 0)}
    assert read() == (1, 1, 0)  # five seconds old
    lib.processes[1] = 2237, 3  # the client has allocated
    assert read(used=600_000_000) == (1, 0, 0)
    assert read() == (0, 0, 0)
    lib.processes.append((2240, 1))  # one has come
    lib.mps.append((2240, 1))
    assert read(used=700_000_000) == (1, 1, 0)
    assert read(11) == (1, 1, 1)
    lib.mps.append((2241, 0))  # connected, without a context: the log tells, and the list alone is read
    assert nvml.membership() == {UUID: dict(lib.mps)}
    assert read() == (0, 0, 0)
    lib.calls.clear()
    nvml.sample()
    assert lib.calls[computing] == lib.calls[mps] == lib.calls["nvmlDeviceGetMigMode"] == 1
    for name in (mps, "nvmlDeviceGetMemoryInfo"):  # nothing to go by
        lib.failing = {name: 3}
        nvml.sample()
        lib.calls.clear()
        assert [nvml.steady() for _ in range(2)]
        assert lib.calls[computing] == 2


def test_membership_asks_for_the_list_alone() -> None:
    lib = FakeNvml(count=2, mps=[(643, 1 << 20)])
    nvml = RealNvml(lib)
    nvml.membership()
    lib.calls.clear()
    assert nvml.membership() == {UUID: {643: 1 << 20}, "GPU-1": {643: 1 << 20}}
    assert set(lib.calls) == {"nvmlDeviceGetMPSComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses_v2"}


@pytest.mark.parametrize(
    ("function", "fields"),
    [
        ("nvmlDeviceGetMemoryInfo", {"memory_total": None, "memory_used": None}),
        ("nvmlDeviceGetComputeMode", {"compute_mode": None}),
        ("nvmlDeviceGetMigMode", {"mig": None}),
        ("nvmlDeviceGetUtilizationRates", {"gpu_utilization": None, "memory_utilization": None}),
        ("nvmlDeviceGetPowerUsage", {"power_watts": None}),
        ("nvmlDeviceGetEnforcedPowerLimit", {"power_limit_watts": None}),
        ("nvmlDeviceGetTemperature", {"temperature": None}),
        ("nvmlDeviceGetName", {"name": None}),
        ("nvmlDeviceGetNumGpuCores", {"sm_count": None}),
        ("nvmlDeviceGetCudaComputeCapability", {"sm_count": None, "compute_capability": None}),
        ("nvmlSystemGetDriverVersion", {}),
    ],
)
def test_a_reading_that_fails_is_none_alone(function: str, fields: dict[str, None]) -> None:
    sample = RealNvml(FakeNvml(failing={function: 3})).sample()
    assert sample.devices == (replace(RECORDED, **fields),)
    assert sample.error is None
    assert (sample.driver_version is None) == (function == "nvmlSystemGetDriverVersion")


def test_a_binding_without_a_function_is_no_trouble() -> None:
    class Old(FakeNvml):
        def __getattribute__(self, name: str) -> object:
            if name.startswith("nvmlGpm") or name == "nvmlDeviceGetMigMode":
                raise AttributeError(name)
            return super().__getattribute__(name)

        def __getattr__(self, name: str) -> object:
            if name.startswith("nvmlGpm") or name == "nvmlDeviceGetMigMode":
                raise AttributeError(name)
            return super().__getattr__(name)

    (device,) = RealNvml(Old()).sample().devices
    assert (device.mig, device.sm_utilization, device.power_watts) == (None, None, 71.24)


@pytest.mark.parametrize(
    ("capability", "cores", "attributes", "count"),
    [
        ((9, 0), 16896, None, 132),
        ((9, 0), 16896, 16, 16),
        ((8, 0), 6912, None, 108),
        ((7, 0), 5120, None, 80),
        ((8, 9), 18176, None, 142),
        ((10, 0), 18944, None, 148),
        ((99, 0), 1000, None, None),
        ((9, 0), 0, None, None),
        ((9, 0), 16896, 0, 132),
    ],
)
def test_sm_count(capability: tuple[int, int], cores: int, attributes: int | None, count: int | None) -> None:
    (device,) = RealNvml(FakeNvml(capability=capability, cores=cores, attributes=attributes)).sample().devices
    assert device.sm_count == count


def test_memory_that_is_not_available_is_unknown_and_not_enormous() -> None:
    lib = FakeNvml(mps=[(1, NOT_AVAILABLE), (2, None), (3, 0)])
    assert RealNvml(lib).sample().mps_clients == {UUID: {1: None, 2: None, 3: 0}}


def test_a_list_that_fails_is_missing_and_an_empty_one_is_empty() -> None:
    lib = FakeNvml(failing={"nvmlDeviceGetMPSComputeRunningProcesses": 4})
    sample = RealNvml(lib).sample()
    assert (sample.mps_clients, sample.processes) == ({}, {UUID: {}})
    assert RealNvml(lib).membership() == {}


@pytest.mark.parametrize("mismatched", [False, True])
def test_an_older_driver_has_the_second_version_of_the_list(mismatched: bool) -> None:
    """Of which newer bindings tell by an error that is none of NVML's."""
    lib = FakeNvml(failing={"nvmlDeviceGetMPSComputeRunningProcesses": 13}, mps=[(5, 7)], mismatched=mismatched)
    assert RealNvml(lib).membership() == {UUID: {5: 7}}


def test_gpm_needs_two_samples_and_a_tenth_of_a_second() -> None:
    lib, clock = FakeNvml(), Clock()
    nvml = RealNvml(lib, clock)

    def gpm() -> tuple[float | None, ...]:
        (device,) = nvml.sample().devices
        return device.sm_utilization, device.sm_occupancy, device.dram_utilization

    assert gpm() == (None, None, None)
    clock.now += 0.05
    assert gpm() == (None, None, None)
    assert lib.calls["nvmlGpmSampleGet"] == 1
    clock.now += 0.06
    assert gpm() == lib.gpm_values
    before, lib.gpm_values = lib.gpm_values, (1.0, math.nan, 3.0)
    clock.now += 0.09
    assert gpm() == before
    clock.now += 0.9
    assert gpm() == (1.0, None, 3.0)
    assert len(lib.samples) == 1, "the others were freed"
    lib.gpm_return = 3
    clock.now += 1
    assert gpm() == (None, None, None)
    lib.gpm_return, lib.failing = 0, {"nvmlGpmSampleGet": 999}
    clock.now += 1
    assert gpm() == (None, None, None)
    assert lib.samples == set()
    lib.failing = {}
    clock.now += 1
    assert gpm() == (None, None, None)
    clock.now += 1
    assert gpm() == (1.0, None, 3.0)
    nvml.close()
    assert lib.samples == set()
    assert lib.open == 0


def test_a_reading_that_tells_rates_waits_for_them_no_longer_than_they_take() -> None:
    clock, slept = Clock(), []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.now += seconds + 1e-6

    lib = FakeNvml()
    nvml = RealNvml(lib, clock, sleep=sleep)
    nvml.sample()
    clock.now += 0.03
    assert nvml.rated().devices[0].sm_utilization == 87.5
    assert nvml.rated().devices[0].sm_utilization == 87.5
    assert slept == [pytest.approx(0.07)]
    for without in (
        FakeNvml(gpm_supported=False),
        FakeNvml(failing={"nvmlGpmSampleGet": 3}),
        FakeNvml(failing={"nvmlInit": 9}),
    ):
        RealNvml(without, clock, sleep=sleep).rated()
    assert len(slept) == 1


def test_counters_that_were_begun_before_the_first_reading_tell_after_what_is_left_and_nothing_sooner() -> None:
    clock, slept = Clock(), []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.now += seconds + 1e-6

    lib = FakeNvml(samples={-1})
    nvml = RealNvml(lib, clock, sleep=sleep, counted={0: (clock.now - 0.07, -1)})
    assert nvml.sample().devices == (RECORDED,), "0.07 s tell nothing"
    assert nvml.rated().devices[0].sm_utilization == 87.5
    assert slept == [pytest.approx(0.03)]
    nvml.close()
    assert lib.samples == set()
    lib = FakeNvml(samples={-1})
    assert RealNvml(lib, clock, counted={0: (clock.now - 0.11, -1)}).sample().devices[0].sm_utilization == 87.5
    without = FakeNvml(gpm_supported=False, samples={-1})
    RealNvml(without, clock, sleep=sleep, counted={0: (clock.now, -1)}).rated()
    assert len(slept) == 1


def test_gpm_is_left_alone_where_the_device_has_none() -> None:
    lib, clock = FakeNvml(gpm_supported=False), Clock()
    nvml = RealNvml(lib, clock)
    nvml.sample()
    clock.now += 1
    assert nvml.sample().devices == (replace(RECORDED, tells_sm=False),)
    assert lib.calls["nvmlGpmSampleGet"] == 0


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (4, ("not permitted", "/dev/nvidiactl")),
        (9, ("driver is not loaded", "modprobe nvidia")),
        (12, ("libnvidia-ml.so.1", "install the NVIDIA driver")),
        (15, ("lost", "Xid")),
        (18, ("different versions", "reboot")),
        (999, ("code 999", "nvidia-smi")),
    ],
)
def test_no_nvml_is_said_in_words_and_tried_again_after_ten_seconds(code: int, words: tuple[str, ...]) -> None:
    lib, clock = FakeNvml(failing={"nvmlInit": code}), Clock()
    nvml = RealNvml(lib, clock)
    sample = nvml.sample()
    assert sample.error is not None
    assert all(word in sample.error for word in words)
    assert (sample.devices, sample.mps_clients, sample.processes, sample.driver_version) == ((), {}, {}, None)
    lib.failing = {}
    clock.now += 9.9
    assert nvml.sample().error == sample.error
    assert nvml.membership() == {}
    assert lib.calls["nvmlInit"] == 1
    clock.now += 0.1
    assert nvml.sample().devices == (RECORDED,)


def test_a_gpu_that_is_lost_and_comes_back() -> None:
    lib, clock = FakeNvml(), Clock()
    nvml = RealNvml(lib, clock)
    assert nvml.sample().error is None
    lib.failing = {"*": 15}
    lost = nvml.sample()
    assert lost.error is not None
    assert "lost" in lost.error
    assert lost.devices == ()
    assert lib.open == 0
    lib.failing = {}
    assert nvml.sample().error == lost.error
    clock.now += 10
    assert nvml.sample().devices == (RECORDED,)
    assert lib.open == 1


def test_one_lost_gpu_does_not_hide_the_others() -> None:
    lib, clock = FakeNvml(count=2), Clock()
    nvml = RealNvml(lib, clock)
    nvml.sample()
    lib.failing = {"nvmlDeviceGetMemoryInfo 0": 15}
    first, second = nvml.sample().devices
    assert (first.uuid, first.memory_total, second.memory_total) == (UUID, None, 85520809984)
    nvml.close()
    lib.failing = {"nvmlDeviceGetHandleByIndex 0": 15}
    assert [device.uuid for device in nvml.sample().devices] == ["GPU-1"]
    nvml.close()
    lib.failing = {"nvmlDeviceGetHandleByIndex": 4}
    assert "not permitted" in (nvml.sample().error or "")
    assert lib.open == 0


def test_a_device_whose_memory_is_not_supported_goes_on() -> None:
    lib = FakeNvml(failing={"nvmlDeviceGetMemoryInfo": 3})
    nvml = RealNvml(lib)
    assert nvml.sample().error is None
    assert nvml.sample().devices[0].name == "NVIDIA H100 80GB HBM3"
    assert nvml.sample().devices[0].pci_bus_id == "00000000:00:06.0"


def test_no_device_at_all() -> None:
    lib = FakeNvml(count=0)
    assert "sees no device" in (RealNvml(lib).sample().error or "")
    assert lib.open == 0


def test_closing_twice_and_before_anything() -> None:
    lib = FakeNvml()
    nvml = RealNvml(lib)
    nvml.close()
    nvml.sample()
    nvml.close()
    nvml.close()
    assert (lib.open, lib.calls["nvmlInit"], lib.calls["nvmlShutdown"]) == (0, 1, 1)


def test_two_threads_open_it_once() -> None:
    lib = FakeNvml()
    nvml = RealNvml(lib)
    threads = [threading.Thread(target=nvml.sample if n % 2 else nvml.membership) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lib.calls["nvmlInit"] == 1


def test_without_the_python_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    nvml = RealNvml()
    assert "nvidia-ml-py" in (nvml.sample().error or "")
    assert nvml.membership() == {}
    nvml.close()


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml

    def missing(*_: object) -> None:
        raise OSError("libnvidia-ml.so.1: cannot open shared object file")

    monkeypatch.setattr(pynvml, "CDLL", missing)
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    nvml = RealNvml()
    assert "libnvidia-ml.so.1" in (nvml.sample().error or "")
    nvml.close()


def test_importing_it_does_not_import_pynvml() -> None:
    code = "import sys, mpstui.observe.devices; sys.exit('pynvml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=120, check=False).returncode == 0


def test_before_hopper_it_says_that_no_sm_activity_is_told_and_what_is_told_instead() -> None:
    old = RealNvml(FakeNvml(gpm_supported=False, capability=(8, 0))).sample().devices[0]
    assert (old.tells_sm, old.sm_utilization) == (False, None)
    assert old.gpu_utilization is not None
    assert old.memory_utilization is not None
    assert RealNvml(FakeNvml()).sample().devices[0].tells_sm
    broken = RealNvml(FakeNvml(failing={"nvmlGpmSampleGet": 3})).sample().devices[0]
    assert not broken.tells_sm, "it takes part, and gives none, as one that is divided (MIG)"
