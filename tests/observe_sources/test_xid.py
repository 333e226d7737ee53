"""Xids by NVML's events and by the kernel's log: read without waiting, ended without hanging, proof of nobody."""

from __future__ import annotations

import os
import re
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from mpstui.core.xid import Xid, meaning, parse_line, same_bus
from mpstui.observe.devices import KernelLog, NodeXids, NvmlXids, XidWatch
from tests.observe.replay import DATA, lines

from .fake_nvml import UUID, FakeNvml, NVMLError

RECORDED = [
    line.decode().removeprefix("   xid: ")
    for line in lines(DATA / "h200/blame-and-utilisation.txt")
    if line.startswith(b"   xid: ") and b"Xid" in line
]
TIMEOUT = 10


class EventNvml(FakeNvml):
    """NVML with events: ``told`` are those to come, each a device and a number; an exception is raised."""

    def __init__(self, *told: Any, **options: Any) -> None:
        super().__init__(**options)
        self.told = list(told)
        self.registered: list[tuple[int, int]] = []
        self.sets = 0

    def nvmlEventSetCreate(self) -> str:
        self._call("nvmlEventSetCreate")
        self.sets += 1
        return "set"

    def nvmlEventSetFree(self, events: str) -> None:
        self.sets -= 1
        self._call("nvmlEventSetFree")

    def nvmlDeviceRegisterEvents(self, handle: int, kinds: int, events: str) -> None:
        self._call("nvmlDeviceRegisterEvents")
        self.registered.append((handle, kinds))

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:
        return SimpleNamespace(busId=f"00000000:0{6 + handle}:00.0")

    def nvmlEventSetWait_v2(self, events: str, milliseconds: int) -> Any:
        self._call("nvmlEventSetWait_v2")
        if not self.told:
            raise NVMLError(TIMEOUT)
        told = self.told.pop(0)
        if isinstance(told, Exception):
            raise told
        device, number, *kind = told
        return SimpleNamespace(device=device, eventType=kind[0] if kind else 8, eventData=number)


def kernel(*records: Any, **options: Any) -> KernelLog:
    """A kernel's log of these records; then there is nothing, for now."""
    left = list(records)

    def read(fd: int, size: int) -> bytes:
        record = left.pop(0) if left else BlockingIOError()
        if isinstance(record, Exception):
            raise record
        return record

    return KernelLog(path="/dev/null", clock=lambda: 1000.0, uptime=lambda: 100.0, read=read, **options)


def record(text: str, seconds: float = 90.0) -> bytes:
    return f"3,2013,{round(seconds * 1e6)},-;{text}\n SUBSYSTEM=pci\n".encode()


def test_the_recorded_lines_tell_kind_address_and_whom_the_kernel_names() -> None:
    assert len(RECORDED) == 8
    found = [parse_line(line, 5.0) for line in RECORDED]
    assert [xid.number for xid in found] == [31] * 6 + [43] * 2
    assert found[0].pci == "0000:00:06"
    assert found[0].values == {
        "fault": "FAULT_PDE", "access": "VIRT_WRITE", "address": "0x0_00000000", "kernel_names": "947",
    }  # fmt: skip
    assert found[7].values == {"kernel_names": "898"}
    told = found[0].event()
    assert told.kind == "xid"
    assert told.detail == (
        "Xid 31 on PCI 0000:00:06: memory page fault: a kernel used an address that is not mapped; FAULT_PDE on virt "
        "write at 0x0_00000000; no proof: the kernel names process 947"
    )
    assert told.pid is None


@pytest.mark.parametrize(
    "line",
    ["NVRM: GPU at PCI:0000:00:06: GPU-3ea7", "NVRM: GPU Board Serial Number: 1", "usb 1-1: new device", "Xid 31", ""],
)
def test_other_lines_are_none(line) -> None:
    assert parse_line(line, 1.0) is None


def test_older_forms_of_the_line_and_hostile_ones() -> None:
    assert parse_line("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", 1.0).number == 79
    assert parse_line("NVRM: Xid (PCI:0000:3b:00): 31, pid='<unknown>', name=<unknown>, x", 1.0).values == {}
    assert parse_line("NVRM: Xid (PCI:0000:3b:00): 45, pid='812', name=x", 1.0).values["kernel_names"] == "812"
    shown = parse_line("NVRM: Xid (PCI:0000:3b:00): 31, pid=5, name=\x1b[2Jx\u202e", 1.0).line
    assert shown.isprintable()
    assert "\x1b" not in shown


def test_a_number_that_is_not_common_has_no_made_up_meaning() -> None:
    assert meaning(31).startswith("memory page fault")
    assert meaning(777) == "see NVIDIA's Xid catalogue"


def test_the_kernels_log_is_read_to_its_end_with_the_kernels_time() -> None:
    line = re.sub(r"^\[.*?\] ", "", RECORDED[0])
    log = kernel(
        record("usb 1-1: new device"), BrokenPipeError(), record(line, 90.0), b"torn", record("NVRM: Xid torn"),
        uuids=lambda: {"00000000:00:06.0": UUID},
    )  # fmt: skip
    (xid,) = log.read()
    assert (xid.time, xid.number, xid.uuid) == (990.0, 31, UUID)
    assert log.read() == []
    log.close()
    log.close()


def test_what_was_not_there_at_the_last_look_did_not_happen_before_it() -> None:
    line = record("NVRM: Xid (PCI:0000:06:00): 31, x", seconds=20.0)
    log = kernel(BlockingIOError(), line)
    assert log.read() == []
    (xid,) = log.read()
    assert xid.time == 1000.0, "the kernel's clock has drifted"


@pytest.mark.parametrize("error", [PermissionError(), FileNotFoundError(), OSError(5, "input/output error")])
def test_a_kernels_log_that_may_not_be_read_is_empty(error, tmp_path) -> None:
    log = kernel(error)
    assert (log.read(), log.read()) == ([], [])
    assert KernelLog(path=str(tmp_path / "none")).read() == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("00000000:06:00.0", "0000:06:00", True),
        ("00000000:3B:00.0", "0000:3b:00", True),
        ("00000000:06:00.0", "0000:07:00", False),
        ("nonsense", "nonsense", False),
    ],
)
def test_nvml_and_the_kernel_write_an_address_each_in_its_way(one, other, same) -> None:
    assert same_bus(one, other) is same


def test_nvml_tells_number_and_device_and_changes_no_setting() -> None:
    lib = EventNvml((1, 31), (0, 5, 1), count=2)
    source = NvmlXids(lib, clock=lambda: 77.0)
    assert source.wait(0.5) == [Xid(77.0, 31, "GPU-1")]
    assert source.wait(0.5) == [], "an event of another kind"
    assert source.wait(0.5) == [], "time is up"
    assert (lib.open, lib.sets) == (1, 1), "what comes before the next call is not missed"
    assert lib.registered == [(0, 8), (1, 8)]
    assert not [name for name in lib.calls if "Set" in name and not name.startswith("nvmlEventSet")]
    source.close()
    assert (lib.open, lib.sets) == (0, 0)


@pytest.mark.parametrize(
    "failing",
    [
        {"nvmlInit": 9},
        {"nvmlEventSetCreate": 3},
        {"nvmlDeviceGetCount": 999},
        {"nvmlDeviceRegisterEvents": 3},
        {"nvmlDeviceGetUUID": 15},
        {"nvmlEventSetWait_v2": 15},
    ],
)
def test_without_nvml_or_its_events_nothing_is_told_nothing_raised_and_it_is_tried_again(failing) -> None:
    lib = EventNvml((0, 31), (0, 31), failing=failing)
    rested: list[float] = []
    now = [0.0]
    source = NvmlXids(lib, rest=rested.append, monotonic=lambda: now[0])
    assert (source.wait(0.5), source.wait(0.5)) == ([], [])
    assert rested == [0.5, 0.5], "it waits all the same"
    assert (lib.open, lib.sets) == (0, 0)
    lib.failing.clear()
    now[0] = 11.0
    assert [xid.number for xid in source.wait(0.5)] == [31]


def test_a_node_has_both_and_one_may_fail() -> None:
    lib = EventNvml((0, 31))
    line = record("NVRM: Xid (PCI:0000:06:00): 31, pid=3, x")
    node = NodeXids(NvmlXids(lib), lambda uuids: kernel(line, BlockingIOError(), uuids=uuids))
    assert [(xid.number, xid.uuid, bool(xid.line)) for xid in node.past()] == [(31, UUID, True)]
    assert [(xid.number, xid.uuid, bool(xid.line)) for xid in node.wait(0.1)] == [(31, UUID, False)]
    node.close()
    assert lib.open == 0


class Held:
    """A source whose wait lasts until it is let go."""

    def __init__(self) -> None:
        self.gate, self.waits, self.closed = threading.Event(), threading.Event(), threading.Event()

    def past(self) -> list[Xid]:
        return [Xid(1.0, 79)]

    def wait(self, seconds: float) -> list[Xid]:
        self.waits.set()
        self.gate.wait(60)
        return [Xid(2.0, 31)]

    def close(self) -> None:
        self.closed.set()


def test_the_thread_ends_when_it_is_told_and_holds_up_nobody() -> None:
    source, told = Held(), []
    watch = XidWatch(lambda: source, told.extend)
    watch.start()
    assert source.waits.wait(60)
    assert [xid.number for xid in told] == [79]
    watch.close()  # comes back though the driver hangs
    assert not source.closed.is_set()
    source.gate.set()
    assert source.closed.wait(60)
    assert watch.join(60)
    assert [xid.number for xid in told] == [79], "nobody is called any more"


def test_a_program_whose_driver_hangs_can_end() -> None:
    """The thread is no reason for an interpreter to stay."""
    import subprocess
    import sys

    code = (
        "import threading, time\n"
        "from mpstui.observe.devices import XidWatch\n"
        "class Hung:\n"
        "    def past(self): return []\n"
        "    def wait(self, seconds): time.sleep(3600)\n"  # print would be cut off with its lock held
        "    def close(self): pass\n"
        "XidWatch(Hung, print).start()\n"
        "time.sleep(0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_kernel_log_is_closed_once_and_one_that_is_not_there_never(tmp_path, monkeypatch):
    closed = []
    logs = [KernelLog(path=str(path)) for path in (tmp_path / "none", os.devnull)]
    fd = logs[1]._fd
    with monkeypatch.context() as patch:
        patch.setattr(os, "close", closed.append)
        for log in (*logs, *logs):
            log.close()
    os.close(fd)
    assert closed == [fd]
