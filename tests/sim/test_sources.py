"""The stand-ins for NVML and /proc, and what they do with a state file that lies."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from mpstui.core.model import ProcessKey
from mpstui.sim import sources
from mpstui.sim.marker import is_simulated
from mpstui.sim.node import SimNode
from mpstui.sim.simd.config import MARKER, STATE, read_json
from mpstui.sim.simd.process import start_ticks
from mpstui.sim.sources import SimNvml, SimProcesses
from mpstui.system.procfs import ProcessFacts

from .recorded import eventually

MIB = 1 << 20


class Proc:
    """A ProcessSource that knows only who is there."""

    def facts(self, pids: Iterable[int]) -> dict[int, ProcessFacts]:
        return {
            pid: ProcessFacts(ProcessKey(pid, start_ticks(pid)), uid=0, user="root", command="real", cpu_seconds=0.5)
            for pid in pids
            if start_ticks(pid) is not None
        }


def test_who_computes_without_mps_takes_turns_at_the_memory_too() -> None:
    """Four programs that want 90 % of the bandwidth each had 100 % of it together, more than with MPS (fact 24)."""
    one = sources._Process(1, 1, 0, None, "", None, None, None, True, 132, 132, 90, 0.0, {}, mps=False)
    assert sources._loads([one], 132) == (1.0, 0.9)
    assert sources._loads([one] * 4, 132) == (1.0, pytest.approx(0.9 * 0.826))
    small = replace(one, used_sms=33, dram=0)
    assert sources._loads([one, small], 132) == (0.625, pytest.approx(0.45 * 0.826))
    assert sources._loads([replace(small, mps=True)] * 2, 132) == (0.5, 0.0)


def test_nvml_tells_of_clients_and_the_server(start: Callable[..., SimNode]) -> None:
    node = start()
    one = node.spawn("busy", memory=100 * MIB)
    two = node.spawn("idle", devices=(0, 1))
    sample = SimNvml(node.pipe_dir).sample()
    first, second = (device.uuid for device in sample.devices)
    server = int(node.control("get_server_list"))
    assert sample.error is None
    assert sample.mps_clients == {
        first: {one.pid: 614 * MIB, two.pid: 514 * MIB},
        second: {one.pid: 0, two.pid: 514 * MIB},
    }
    assert sample.processes[second] == {server: 66 * MIB, two.pid: 514 * MIB}
    busy, idle = sample.devices
    assert (busy.name, busy.sm_count, busy.compute_capability) == ("NVIDIA H100 80GB HBM3", 132, (9, 0))
    assert busy.memory_total == 81559 * MIB
    assert 30 < (busy.sm_utilization or 0) < 70
    assert busy.gpu_utilization == 100, "some kernel runs all the time, on however few SMs"
    assert (idle.sm_utilization, idle.gpu_utilization) == (0, 0)
    one.tell("idle")
    eventually(lambda: SimNvml(node.pipe_dir).sample().devices[0].sm_utilization == 0)


def test_lists_are_the_same_until_somebody_comes_or_goes(start: Callable[..., SimNode]) -> None:
    """Also where the daemon does not say so: a client whose process has ended is in no list of NVML's."""
    node = start(gpus=1)
    first = node.spawn("busy")
    nvml = SimNvml(node.pipe_dir)
    (uuid,) = nvml.sample().mps_clients
    eventually(lambda: nvml.sample().mps_clients is nvml.sample().mps_clients)
    second = node.spawn("busy")
    eventually(lambda: set(nvml.sample().mps_clients[uuid]) == {first.pid, second.pid})
    both = nvml.sample()
    daemon = int(read_json(node.pipe_dir / STATE)["daemon"]["pid"])
    os.kill(daemon, signal.SIGSTOP)
    try:
        os.kill(second.pid, signal.SIGKILL)
        eventually(lambda: set(nvml.sample().mps_clients[uuid]) == {first.pid})
        left = nvml.sample()
        assert both.processes[uuid].keys() - left.processes[uuid].keys() == {second.pid}
        assert (left.devices[0].memory_used or 0) < (both.devices[0].memory_used or 0)
    finally:
        os.kill(daemon, signal.SIGCONT)


def test_readings_move_with_the_time_alone(start: Callable[..., SimNode]) -> None:
    node = start(gpus=1)
    node.spawn("busy")
    clock = iter(range(1000, 1100))
    nvml = SimNvml(node.pipe_dir, clock=lambda: float(next(clock)))
    before = (node.pipe_dir / "mpstui-simulated.json").stat().st_mtime_ns
    readings = [nvml.sample().devices[0] for _ in range(60)]
    assert (node.pipe_dir / "mpstui-simulated.json").stat().st_mtime_ns == before
    values = [device.sm_utilization or 0 for device in readings]
    assert len(set(values)) > 30
    assert max(abs(a - b) for a, b in itertools.pairwise(values)) < 5
    assert all(0 <= (d.sm_occupancy or 0) <= 100 and 0 <= (d.dram_utilization or 0) <= 100 for d in readings)


def test_a_node_without_daemon_has_devices_and_no_processes(start: Callable[..., SimNode]) -> None:
    node = start()
    client = node.spawn("idle")
    nvml = SimNvml(node.pipe_dir)
    assert any(nvml.sample().mps_clients.values())
    node.kill_daemon()
    sample = nvml.sample()
    assert sample.error is None
    assert len(sample.devices) == 2
    assert not any(sample.processes.values())
    facts = SimProcesses(node.pipe_dir, Proc()).facts([client.pid])[client.pid]
    assert facts.command == "/tmp/client", "its process lives on and keeps its name"


def test_who_has_lost_a_daemon_keeps_the_name_when_another_one_starts(start: Callable[..., SimNode]) -> None:
    node = start()
    client = node.spawn("idle", user="alice", uid=2001)
    processes = SimProcesses(node.pipe_dir, Proc())
    assert processes.facts([client.pid])[client.pid].user == "alice"
    server = int(node.control("get_server_list"))
    of_server = processes.facts([server])[server]
    assert (of_server.uid, of_server.user) == (2001, "alice"), "a server of one user runs as that user"
    node.kill_daemon()
    node.start_daemon()
    assert processes.facts([client.pid])[client.pid].user == "alice"


def test_a_node_that_is_gone_is_an_error_in_the_sample(pipe_dir: Path) -> None:
    assert not is_simulated(pipe_dir)
    sample = SimNvml(pipe_dir).sample()
    assert sample.devices == ()
    assert "is gone" in (sample.error or "")
    assert SimProcesses(pipe_dir, Proc()).facts([os.getpid()])[os.getpid()].user == "root"


def test_processes_play_their_users(start: Callable[..., SimNode]) -> None:
    node = start(multiuser=True)
    client = node.spawn(
        "busy",
        user="alice",
        uid=2001,
        argv0=b"python",
        command="python train.py\x1b[2J",
        container="train",
        namespace=7,
    )
    clock = [0.0]
    processes = SimProcesses(node.pipe_dir, Proc(), clock=lambda: clock[0])
    server = int(node.control("get_server_list"))
    facts = processes.facts([client.pid, server, os.getpid(), 2**22 + 1])
    assert set(facts) == {client.pid, server, os.getpid()}
    mine = facts[client.pid]
    assert (mine.user, mine.uid, mine.command) == ("alice", 2001, "python train.py\\x1b[2J")
    assert (mine.container, mine.pid_namespace) == ("train", 7)
    assert mine.key == ProcessKey(client.pid, start_ticks(client.pid))
    assert facts[server].command == "real"
    assert facts[server].user == "root", "it serves everybody"
    clock[0] = node.state()["clients"][0]["since"] + 100
    assert 70 <= (processes.facts([client.pid])[client.pid].cpu_seconds or 0) <= 101


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        '{"daemon": {}, "servers": 3, "clients": []}',
        '{"daemon": {"pid": 1e999, "start_ticks": 1}, "servers": [], "clients": []}',
        '{"daemon": {"pid": 1, "start_ticks": 1}, "servers": [], "clients": [{"pid": 1}]}',
        '{"daemon": {"pid": 1, "start_ticks": 1}, "servers": [], "clients": {"a": 1}}',
        "\udcff\udcfe",
        "1" * (3 << 20),
    ],
)
def test_a_state_file_that_lies_is_not_believed(pipe_dir: Path, text: str) -> None:
    state = pipe_dir / "mpstui-simulated.json"
    good = {
        "version": 1,
        "devices": [
            {"index": 0, "uuid": "GPU-0", "name": "X", "sm_count": 1, "memory_total": 5, "compute_capability": [9, 0]}
        ],
    }
    (pipe_dir / MARKER).write_text(json.dumps(good))
    state.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert not any(SimNvml(pipe_dir).sample().processes.values())
    (pipe_dir / MARKER).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert SimNvml(pipe_dir).sample().error is not None


def test_ordinals_are_the_daemons_and_indices_are_nvmls(start: Callable[..., SimNode]) -> None:
    node = start(gpus=3, visible="2,0,9,1")
    devices = SimNvml(node.pipe_dir).sample().devices
    assert [device.index for device in devices] == [0, 1, 2]
    rows = [line.split() for line in node.control("device_query").splitlines()[2:]]
    assert [(row[0], row[2]) for row in rows] == [("0", devices[2].uuid), ("1", devices[0].uuid)]
    client = node.spawn("idle", devices=(0,))
    assert SimNvml(node.pipe_dir).sample().mps_clients[devices[2].uuid] == {client.pid: 514 * MIB}
    assert node.control("get_device_client_list").startswith("[0] 00:00.0, NVIDIA")
    server = node.control("get_server_list").strip()
    node.control(f"set_device_pinned_mem_limit {server} {devices[0].uuid} 2G")
    assert node.control(f"get_device_pinned_mem_limit {server} 1") == "2G\n"


def test_two_daemons_share_the_devices(start: Callable[..., SimNode], pipe_dir: Path) -> None:
    first = start()
    with SimNode.start(pipe_dir / "2") as second:
        clients = [node.spawn("idle", user=user) for node, user in ((first, "alice"), (second, "bob"))]
        dirs = (first.pipe_dir, second.pipe_dir)
        sample = SimNvml(dirs).sample()
        assert set(sample.mps_clients[sample.devices[0].uuid]) == {client.pid for client in clients}
        facts = SimProcesses(dirs, Proc()).facts(client.pid for client in clients)
        assert [facts[client.pid].user for client in clients] == ["alice", "bob"]


def test_the_marker_of_a_stranger_does_not_count(pipe_dir: Path) -> None:
    (pipe_dir / MARKER).write_text("{}")
    assert is_simulated(pipe_dir)
    if os.getuid() == 0:
        os.chown(pipe_dir / MARKER, 2001, 2001)
        assert not is_simulated(pipe_dir)
        os.chown(pipe_dir, 2001, 2001)
        assert not is_simulated(pipe_dir)


def test_links_and_fifos_in_the_directory_are_not_followed(pipe_dir: Path, tmp_path: Path) -> None:
    other = tmp_path / "marker"
    other.write_text("{}")
    (pipe_dir / MARKER).symlink_to(other)
    assert not is_simulated(pipe_dir)
    assert SimNvml(pipe_dir).sample().error is not None
    (pipe_dir / MARKER).unlink()
    os.mkfifo(pipe_dir / MARKER)
    assert not is_simulated(pipe_dir)
    assert SimNvml(pipe_dir).sample().error is not None


@pytest.mark.slow
def test_what_computes_without_mps_keeps_the_device_busy(start: Callable[..., SimNode]) -> None:
    """The daemon knows nothing of it; NVML lists it among the processes of the device, and not among the clients."""
    node = start()
    nvml = SimNvml(node.pipe_dir)
    command = [sys.executable, "-m", "mpstui", "load", "fma", "--mps", "off", "--clients", "2", "--seconds", "600"]
    load = subprocess.Popen(
        [*command, "--pipe-dir", str(node.pipe_dir)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        eventually(lambda: nvml.sample().devices[0].gpu_utilization == 100.0)
        eventually(lambda: len(nvml.sample().processes[nvml.sample().devices[0].uuid]) == 2)
        sample = nvml.sample()
        busy, idle = sample.devices
        assert (busy.sm_utilization or 0) > 80
        assert (idle.sm_utilization, idle.gpu_utilization, sample.processes[idle.uuid]) == (0.0, 0.0, {})
        assert set(sample.processes[busy.uuid].values()) == {514 * MIB}
        assert busy.memory_used == (idle.memory_used or 0) + 2 * 514 * MIB
        assert sample.mps_clients == {busy.uuid: {}, idle.uuid: {}}
    finally:
        load.terminate()
        load.wait(60)
    eventually(lambda: nvml.sample().devices[0].gpu_utilization == 0.0)


@pytest.mark.parametrize(
    "entry", ["[]", "{}", '{"mps": false, "start_ticks": 1}', "9" * 400, '{"mps": false, "device":']
)
def test_a_worker_s_file_that_lies_is_no_process(start: Callable[..., SimNode], entry: str) -> None:
    node = start()
    (node.pipe_dir / "load").mkdir()
    (node.pipe_dir / "load" / f"{os.getpid()}.json").write_text(entry)
    sample = SimNvml(node.pipe_dir).sample()
    assert sample.error is None
    assert [device.gpu_utilization for device in sample.devices] == [0.0, 0.0]
