"""What dcgmi prints, as its vendor documents it, and one that hangs, floods or is not root's."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from terminal import until

from mpstui.load.utilisation import reading
from mpstui.observe import devices
from mpstui.observe.devices import Dcgm, DcgmMeters, RealNvml, dcgm_devices, dcgm_meters, dcgm_trouble, find_dcgmi
from mpstui.system import own

from .fake_nvml import UUID, FakeNvml

LIST = f"""1 GPU found.
+--------+----------------------------------------------------------------------+
| GPU ID | Device Information                                                   |
+--------+----------------------------------------------------------------------+
| 3      | Name: NVIDIA A100-SXM4-40GB                                          |
|        | PCI Bus ID: 00000000:3B:00.0                                         |
|        | Device UUID: {UUID}                |
+--------+----------------------------------------------------------------------+
0 NvSwitches found.
"""
PLAIN = f"1 GPU found.\n\nGPU ID: 3\nName: Quadro RTX 5000\nPCI Bus ID: 0:3B\nDevice UUID: {UUID}\n\n0 CPUs found.\n"
DMON = """  # Entity  SMACT  SMOCC  DRAMA
      Id
   GPU 3  N/A    N/A    N/A
   GPU 3  0.429  0.364  0.4
   GPU-I 0  0.000  0.000  0.000
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (DMON, {"3": DcgmMeters(42.9, 36.4, 40.0)}),
        # Another order of columns, and others between them.
        (
            "# EntityId  GPUTL  DRAMA  SMACT  SMOCC\nGPU 0  79  0.382  0.652  0.206\n",
            {"0": DcgmMeters(65.2, 20.6, 38.2)},
        ),
        ("#Entity SMACT SMOCC DRAMA\nGPU 1 0.5 N/A 7\n", {"1": DcgmMeters(50.0, None, None)}),
        ("#Entity SMACT SMOCC DRAMA\nGPU 1 nan inf -1\n", {}),
        ("GPU 1 0.5 0.5 0.5\n", {}),
        ("# Entity  GRACT\nGPU 0 0.5\n", {}),
        ("Error: unable to establish a connection to the specified host: localhost\n", {}),
        ("", {}),
    ],
)
def test_the_readings_are_found_below_their_names(text: str, found: dict[str, DcgmMeters]) -> None:
    told = dcgm_meters(text)
    assert told.keys() == found.keys()
    for number, meters in found.items():
        assert told[number] == pytest.approx(meters)


def test_its_numbers_are_not_nvmls() -> None:
    assert dcgm_devices(LIST) == dcgm_devices(PLAIN) == {"3": UUID}
    assert dcgm_devices("0 GPUs found.\n") == {}


def fake(folder: Path, body: str) -> Path:
    path = folder / "dcgmi"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def told(tmp_path: Path) -> Path:
    (tmp_path / "list").write_text(LIST)
    (tmp_path / "dmon").write_text(DMON)
    return fake(tmp_path, f'if [ "$1" = discovery ]; then cat {tmp_path}/list; else cat {tmp_path}/dmon; fi')


def test_a_device_of_which_nvml_has_no_sm_activity_has_dcgms_by_that_name(told: Path) -> None:
    asked = Dcgm(told)
    nvml = RealNvml(FakeNvml(gpm_supported=False), beside=lambda: asked)
    try:
        first = nvml.sample().devices[0]
        assert (first.sm_utilization, first.sm_source) == (None, None), "nobody waits for it"
        until(lambda: nvml.sample().devices[0].sm_source == "DCGM", 120, "its reading")
        device = nvml.sample().devices[0]
        assert (device.sm_utilization, device.sm_occupancy, device.dram_utilization) == pytest.approx((42.9, 36.4, 40))
        assert not device.tells_sm
        # A result is not told by readings of some seconds ago.
        assert reading(device, "sm_utilization") is reading(device, "dram_utilization") is None
        assert reading(device, "gpu_utilization") is not None
    finally:
        nvml.close()
    never = RealNvml(FakeNvml(), beside=lambda: pytest.fail("NVML tells it itself"))
    assert never.sample().devices[0].sm_source is None
    never.close()


def test_a_reading_does_not_last_and_the_next_look_waits(told: Path) -> None:
    now = [0.0]
    asked = Dcgm(told, lambda: now[0])
    until(lambda: asked.read(UUID).sm_utilization, 120, "its reading")
    before = threading.active_count()
    asked.read(UUID)
    assert threading.active_count() == before
    told.write_text("#!/bin/sh\nexit 1\n")
    now[0] = devices.DCGM_LASTS + 1
    assert asked.read(UUID) == DcgmMeters()
    until(lambda: asked._looking is None, 120, "the look that fails")
    assert asked.read(UUID) == DcgmMeters()
    asked.close()


@pytest.mark.parametrize("body", ["exec sleep 600", "sleep 600 & wait", "exec cat /dev/zero", "exit 3", "kill -9 $$"])
def test_one_that_hangs_floods_or_fails_is_ended_and_nothing_is_shown(
    tmp_path: Path, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "DCGM_DEADLINE", 0.2)
    asked = Dcgm(fake(tmp_path, body))
    begun = time.monotonic()
    assert asked.read(UUID) == DcgmMeters()
    assert time.monotonic() - begun < 60
    until(lambda: asked._looking is None, 120, "the end of it")
    assert asked.read(UUID) == DcgmMeters()
    asked.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: files of other users")
def test_only_what_root_alone_can_have_put_there_is_run(tmp_path: Path) -> None:
    assert find_dcgmi(os.fspath(tmp_path)) is None
    assert dcgm_trouble(os.fspath(tmp_path)) == "dcgmi cannot be run: it is not on PATH"
    folder = Path("/usr/local/lib/mpstui-test-dcgm")
    folder.mkdir(mode=0o755)
    path = fake(folder, "exit 0")
    try:
        assert find_dcgmi(os.fspath(folder)) == path
        assert dcgm_trouble(os.fspath(folder)) == ""
        path.chmod(0o777)
        own._looks.clear()
        assert find_dcgmi(os.fspath(folder)) is None
        why = f"{path} can be changed by everybody (mode 0777): chmod go-w {path}"
        assert dcgm_trouble(os.fspath(folder)) == f"dcgmi cannot be run: PATH leads to {path}, which is not used: {why}"
        path.chmod(0o755)
        os.chown(path, 64_101, 64_101)
        own._looks.clear()
        assert find_dcgmi(os.fspath(folder)) is None
        os.chown(path, 0, 0)
        folder.chmod(0o777)
        own._looks.clear()
        assert find_dcgmi(os.fspath(folder)) is None
    finally:
        path.unlink()
        folder.rmdir()
