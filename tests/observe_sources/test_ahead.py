"""NVML in a process of its own, which begins to count before the command is imported."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mpstui.observe import ahead
from mpstui.observe.ahead import NvmlProcess, begin_ahead, begun_ahead, count
from mpstui.observe.devices import RealNvml

from .fake_nvml import UUID, FakeNvml
from .test_nvml import RECORDED


class Library:
    """NVML as ctypes has it; ``failing``: names of functions that do, and of those that it has not."""

    def __init__(self, failing: str = "", missing: str = "") -> None:
        self.failing, self.missing, self.called = failing.split(), missing.split(), list[str]()

    def __getattr__(self, name: str) -> Any:
        if name in self.missing:
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.called.append(name)
            last = arguments[-1] if arguments else None
            if name in self.failing or (name == "nvmlDeviceGetHandleByIndex_v2" and str(arguments[0]) in self.failing):
                return 999
            if name == "nvmlGpmSampleGet":
                assert arguments[0].value, "a device's handle"
            elif last is not None:
                last._obj.value = 3 if name == "nvmlDeviceGetCount_v2" else 0x1000 + len(self.called)
            return 0

        return call


def counted_by(monkeypatch: pytest.MonkeyPatch, library: Library) -> dict[int, tuple[float, int]]:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    return dict(count())


def test_a_sample_of_each_device_is_taken_first_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, library = time.monotonic(), Library()
    counted = counted_by(monkeypatch, library)
    assert list(counted) == [0, 1, 2]
    assert all(begin <= when <= time.monotonic() for when, _ in counted.values())
    assert len({at for _, at in counted.values()}) == 3
    assert library.called[0] == "nvmlInit_v2"


@pytest.mark.parametrize(
    ("failing", "missing", "devices"),
    [
        ("nvmlInit_v2", "", []),
        ("nvmlDeviceGetCount_v2", "", []),
        ("1", "", [0, 2]),  # a device that is lost
        ("nvmlGpmSampleAlloc", "", []),
        ("nvmlGpmSampleGet", "", []),  # before Hopper
        ("", "nvmlGpmSampleAlloc", []),  # an older driver
    ],
)
def test_what_does_not_count_is_left_to_the_first_reading(
    monkeypatch: pytest.MonkeyPatch, failing: str, missing: str, devices: list[int]
) -> None:
    assert list(counted_by(monkeypatch, Library(failing, missing))) == devices


def test_without_the_library_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert count() == {}


def test_a_sample_is_handed_on_in_the_bindings_type() -> None:
    import pynvml

    ((when, sample),) = ahead._samples({4: (1.5, 0x1230)}).values()
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.sample1 = sample
    assert when == 1.5
    assert ctypes.cast(request.sample1, ctypes.c_void_p).value == 0x1230


def test_nothing_is_imported_before_the_counting_begins() -> None:
    """What would be is time in which nothing is counted: 0.1 s have to lie between two samples."""
    body = (
        "import sys, json, os\n"
        "before = set(sys.modules)\n"
        "import mpstui.__main__, mpstui.observe.ahead\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", body], capture_output=True, text=True, check=True, timeout=120)
    assert set(json.loads(done.stdout)) <= {
        "__future__", "gc", "mpstui", "mpstui.__main__", "mpstui.observe", "mpstui.observe.ahead",
    }  # fmt: skip


@pytest.mark.slow
def test_nvml_in_a_process_of_its_own_tells_the_same_and_is_read_here_once_that_has_ended(tmp_path: Path) -> None:
    """In a program of one thread, as the command is: a fork beside other threads may never end."""
    body = "import sys; from observe_sources.test_ahead import told_by_another; told_by_another(sys.argv[1])"
    run = [sys.executable, "-c", body, str(tmp_path)]
    path = os.pathsep.join((str(Path(__file__).parents[1]), *sys.path))
    done = subprocess.run(
        run, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")


def told_by_another(device: str) -> None:
    """See the test above."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ahead, "NVIDIACTL", device)
        patched.setattr("os.sched_getaffinity", lambda pid: {0, 1})
        patched.setattr(ahead, "count", lambda: {0: (time.monotonic(), -1)})
        there, here = FakeNvml(mps=[(5, 7)], processes=[(5, None)], samples={-1}), FakeNvml(mps=[(6, 8)])
        begin_ahead(lambda counted: RealNvml(there, counted=dict(counted)))
    source = begun_ahead(RealNvml(here))
    assert isinstance(source, NvmlProcess)
    told = source.rated()
    assert told == replace(RealNvml(there).sample(), time=told.time, devices=told.devices)
    sm, occupancy, dram = there.gpm_values
    assert told.devices == (replace(RECORDED, sm_utilization=sm, sm_occupancy=occupancy, dram_utilization=dram),)
    assert source.membership() == {UUID: {5: 7}}
    assert sorted(os.listdir(f"/proc/{source.child}/fd"), key=int) == ["0", "1", "2", "3", "4"], "nobody's pipe"
    os.kill(source.child, signal.SIGKILL)
    assert source.membership() == {UUID: {6: 8}}
    assert source.sample().mps_clients == {UUID: {6: 8}}
    source.close()
    assert begun_ahead(source) is source, "nothing was begun"


HANGS_IN_NVML = """
import os, sys, time
from mpstui.observe import ahead
ahead.NVIDIACTL = sys.argv[1]
os.sched_getaffinity = lambda pid: {0, 1}
def count():
    os.write(inside, b"i")
    while True: time.sleep(60)
ahead.count, ahead._keep = count, lambda questions, answers: os.closerange(0, 3)
there, inside = os.pipe()
ahead.begin_ahead()
os.read(there, 1)
print(ahead._begun[0][0], flush=True)
time.sleep(600)
"""


def test_one_that_hangs_in_the_driver_ends_with_a_command_that_is_killed(tmp_path: Path) -> None:
    """``timeout -k 5 10 mpstui status`` on a sick node, again and again, left one process behind each time."""
    with subprocess.Popen(
        [sys.executable, "-c", HANGS_IN_NVML, tmp_path], stdout=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        child = os.pidfd_open(int(command.stdout.readline()))
        command.kill()
    try:
        assert select.select([child], [], [], 120)[0]
    finally:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(child, signal.SIGKILL)
        os.close(child)


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_where_a_standard_stream_is_closed_no_pipe_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: int
) -> None:
    monkeypatch.setattr(ahead, "NVIDIACTL", tmp_path)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.delattr("os.fork")
    fstat = os.fstat
    monkeypatch.setattr("os.fstat", lambda fd: fstat(-1 if fd == closed else fd))
    begin_ahead()


def test_without_a_driver_no_process_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "NVIDIACTL", tmp_path / "none")
    monkeypatch.delattr("os.fork")
    begin_ahead()
