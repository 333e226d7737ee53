"""What the driver says of a fault stands beside it: told once, in its place, and as proof of nobody."""

from __future__ import annotations

import pytest

from mpstui.control.wire import Membership
from mpstui.core.faults import fault_reports
from mpstui.core.model import Event
from mpstui.core.xid import Xid, parse_line
from mpstui.observe.state import same_xid
from mpstui.sim.node import SimNode
from tests.observe.replay import DATA, PIPE, at, events, fold, lines, shot
from tests.observe.test_simulated import Watched

FAULTS = {kind: lines(DATA / f"h100/faults-{kind}.log") for kind in ("control", "server")}
UUID = "GPU-51dbd800-8a65-a8fc-d0ec-7abe3f1ec476"
WHEN = at("21:29:12.195")
LINE = (
    "NVRM: Xid (PCI:0000:06:00): 31, pid=1134, name=client, channel 0x00000010, intr 00000000. MMU Fault: ENGINE "
    "GRAPHICS GPC3 faulted @ 0x0_00000010. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE"
)


def xids(node):
    return [e for e in shot(node, "21:29:59")[0].events if e.kind == "xid"]


@pytest.mark.parametrize(
    ("fields", "same"),
    [
        ({}, True),
        ({"devices": ()}, True),
        ({"devices": ("GPU-b",)}, False),
        ({"values": {"xid": "43"}}, False),
        ({"raw": "another line"}, False),
        ({"time": WHEN + 60}, False),
    ],
)
def test_which_two_are_one(fields, same):
    kernels = Event("xid", WHEN, devices=("GPU-a",), values={"xid": "31"}, raw="a line")
    nvmls = kernels._replace(raw="")._replace(**fields)
    assert same_xid(kernels, nvmls) is same_xid(nvmls, kernels) is same


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_nvml_and_the_kernel_tell_of_one(order):
    both = (Xid(WHEN + 0.02, 31, UUID), parse_line(LINE, WHEN + 0.4))
    node = fold("21:29:15.000", **FAULTS)
    for index in order:
        node.add_xids([both[index]])
    (event,) = xids(node)
    assert (event.devices, event.raw) == ((UUID,), LINE)
    assert event.values["address"] == "0x0_00000010"
    fault = [e for e in shot(node, "21:29:59")[0].events if e.kind == "fatal_fault"][-1]
    assert fault.values["xid"] == "31"
    snapshot, daemon = shot(node, "21:29:15.000")
    (report,) = fault_reports(daemon, snapshot)
    assert report.xids == (event,)
    asked = at("21:29:14.000")
    node.fold_membership(PIPE, Membership(asked, (report.server_pid,), {report.server_pid: "FAULT"}), asked)
    snapshot, daemon = shot(node, "21:29:15.000")
    note = fault_reports(daemon, snapshot)[0].notes[0].text
    assert "The driver said: Xid 31" in note
    assert "no proof: the kernel names process 1134" in note


@pytest.mark.parametrize("known_first", [True, False])
def test_the_gpu_of_a_fault_is_called_as_that_of_its_xid(known_first: bool) -> None:
    """The server counts its devices by itself (fact 11): its device 0 may be NVML's GPU 3."""
    early = "21:29:12.000" if known_first else "21:29:15.000"
    node = fold(early, **FAULTS)
    (own,) = [e for e in shot(node, early)[0].events if e.kind == "fatal_fault" and "1067" in e.values["clients"]]
    assert own.detail.startswith("fatal GPU fault on server device 0; "), "until it is known which one that is"
    node.take_devices(PIPE, {"0": UUID})
    later = [line for line in FAULTS["server"] if known_first and line[1:24] > b"2026-11-20 " + early.encode()]
    for event in events("server", [line for line in later if line[12:24] < b"21:29:15.000"]):
        node.add_event(PIPE, event, "server", at("21:29:15.000"))
    told = [e for e in shot(node, "21:29:15.000")[0].events if e.kind == "fatal_fault"]
    assert [e.devices for e in told] == [("0",), (UUID,)], "of a server that has gone nobody tells which one it was"
    assert told[-1].detail.startswith(f"fatal GPU fault on {UUID}; clients 1133, 1134, 1135 lost")


def test_another_number_another_gpu_and_another_time_are_others():
    node = fold("21:29:15.000", **FAULTS)
    node.add_xids([Xid(WHEN, 31, UUID), Xid(WHEN, 31, "GPU-other"), Xid(WHEN, 43, UUID), Xid(WHEN + 9, 31, UUID)])
    assert len(xids(node)) == 4
    snapshot, daemon = shot(node, "21:29:15.000")
    assert [x.values["xid"] for x in fault_reports(daemon, snapshot)[0].xids] == ["31", "31", "43"]
    node.add_xids([Xid(WHEN, 31, UUID)])
    assert len(xids(node)) == 5, "NVML told of two"


@pytest.mark.parametrize("first", [True, False])
def test_of_two_faults_at_the_same_moment_each_has_the_xid_that_is_nearer(first):
    node = fold("21:29:15.000", **FAULTS)
    xids = [Xid(WHEN + 0.02, 31, UUID), Xid(WHEN + 0.93, 43, UUID)]
    node.add_xids(xids if first else [])  # NVML may be faster than the log
    again = b"[2026-11-20 21:29:13.100 Server  1140] Client {PID: 1134, Context: 1} encountered a fatal GPU error."
    node.add_event(PIPE, events("server", [again])[0], "server", at("21:29:13.200"))
    node.add_xids([] if first else xids)
    told = [e.values["xid"] for e in shot(node, "21:29:59")[0].events if "xid" in e.values and e.kind == "fatal_fault"]
    assert told == ["31", "43"]


@pytest.mark.parametrize("first", [True, False])
def test_of_two_faults_on_two_gpus_at_the_same_moment_each_has_the_xid_of_its_gpu(first):
    node = fold("21:29:12.000", **FAULTS)
    other = "GPU-00000000-8a65-a8fc-d0ec-7abe3f1ec476"
    node.take_devices(PIPE, {"0": UUID, "1": other})
    xids = [Xid(WHEN + 0.01, 43, other), Xid(WHEN + 0.02, 31, UUID)]
    node.add_xids(xids if first else [])
    for device, moment in ((0, "12.195"), (1, "12.205")):
        texts = ("Server is handling a fatal GPU error.", "The following devices will be reset:", f"{device}")
        raw = [f"[2026-11-20 21:29:{moment} Server  1140] {text}".encode() for text in texts]
        node.add_event(PIPE, events("server", raw)[0], "server", WHEN)
    node.add_xids([] if first else xids)
    told = [e for e in shot(node, "21:29:59")[0].events if e.kind == "fatal_fault" and "xid" in e.values]
    assert [(e.devices, e.values["xid"]) for e in told] == [((UUID,), "31"), ((other,), "43")]


def test_what_comes_late_stands_in_its_place():
    """The kernel's log of before is read while the daemon's logs are."""
    node = fold("21:29:10.000", **FAULTS)
    node.add_xids([Xid(WHEN + 100, 79, UUID)])
    later = {kind: [line for line in raw if line[12:24] > b"21:29:10.000"] for kind, raw in FAULTS.items()}
    fold("21:29:15.000", node=node, **later)
    node.add_xids([Xid(WHEN - 1000, 79, UUID)])
    times = [e.time for e in shot(node, "21:35:00")[0].events]
    assert times == sorted(times)
    assert shot(node, "21:35:00")[0].events[-1].kind == "xid"


async def test_the_simulated_driver_is_heard_by_the_collector_and_let_go(tmp_path):
    node = SimNode.start(tmp_path / "pipe", gpus=1)
    watched = Watched(node)
    try:
        from mpstui.node import open_node
        from mpstui.observe.watcher import NodeWatcher

        watched.collector = NodeWatcher([node.pipe_dir], open_node([node.pipe_dir])[0])
        watched.collector.subscribe(lambda snapshot: watched._news.set())
        await watched.collector.start()
        one, other = await watched.spawn("busy"), await watched.spawn("busy")
        await watched.until(lambda daemon: {c.pid for c in daemon.clients()} == {one.pid, other.pid})
        one.tell("fault")
        snapshot = lambda: watched.collector.snapshot  # noqa: E731
        await watched.until(lambda daemon: any(e.kind == "xid" for e in snapshot().events))
        (event,) = [e for e in snapshot().events if e.kind == "xid"]
        assert event.values["kernel_names"] == str(other.pid), "among busy neighbours the kernel names the wrong one"
        assert event.devices == (snapshot().devices[0].uuid,)
        await watched.until(lambda daemon: any("xid" in e.values for e in snapshot().events if e.kind == "fatal_fault"))
    finally:
        await watched.collector.stop()
        node.stop()
    assert watched.collector._xids is None
