"""``status``: the stable keys, and an exit status for every state of a daemon."""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from mpstui.cli.status import exit_status, print_text, to_json
from mpstui.core.model import (
    Condition,
    Daemon,
    Device,
    OutsideClient,
    Problem,
    ProcessKey,
    Server,
    ServerFault,
    Snapshot,
)
from mpstui.core.trust import Speaker
from mpstui.sim.marker import control_binary
from mpstui.sim.node import SimNode
from tests.operations.fakes import client
from tests.operations.fakes import node as shown_node

from .conftest import Mpstui

DAEMON = {
    "pid", "uid", "pipe_dir", "log_dir", "protocol", "version", "multiuser", "speaks_for", "health", "health_detail",
    "claimant", "static_partitioning", "read_only", "start_failures",
    "inherited_pinned_mem_limits",
    "watch", "watch_detail", "user", "start_time", "remedy", "holder", "ordinals", "limits", "lacks",
    "cause", "since", "freed_by", "ends", "pending", "sm_partitions", "sm_partitions_detail", "v3",
    "pid_there", "where",
    "default_active_thread_percentage", "default_client_priority", "default_pinned_mem_limits", "servers",
}  # fmt: skip
SERVER = {
    "pid", "uid", "user", "status", "active_thread_percentage", "pinned_mem_limits", "clients", "clients_elsewhere",
    "start_time", "device_uuids", "name", "ending", "ending_since",
}  # fmt: skip
CLIENT = {
    "pid", "id", "start_time", "user", "uid", "command", "pid_namespace", "pid_proved", "container", "state",
    "contexts", "pid_here", "where", "pod", "pod_uid", "pod_namespace", "pod_name", "container_name", "container_id",
    "job", "job_step", "unit", "claimed",
    "gpu_memory", "active_thread_percentage", "sm_count", "sm_count_estimated", "pinned_mem_limits", "client_priority",
    "limit_source", "outdated_limits", "old_limits", "server_pid", "device_uuids", "cpu_percent", "terminate_requested",
    "sm_partition", "namespace", "idle_since", "launches_per_second", "not_counted", "lost",
}  # fmt: skip
DEVICE = {
    "index", "uuid", "name", "sm_count", "memory_total", "memory_used", "compute_mode", "mig", "contexts",
    "context_limit", "sm_utilization", "sm_occupancy", "dram_utilization", "gpu_utilization", "power_watts",
    "temperature", "compute_capability", "outside_processes", "context_limit_source", "memory_utilization",
    "would_gain", "gain", "sm_source", "power_limit_watts", "pci_bus_id", "persistence",
}  # fmt: skip
KEPT = json.loads((Path(__file__).parents[2] / "docs" / "schema" / "status.json").read_text())


def check_keys(told: dict[str, Any], thing: str, keys: set[str]) -> None:
    """These are there for good; what else is there is in the schema that is kept, with which keys come."""
    assert keys <= set(told)
    assert set(told) == set(KEPT["$defs"][thing]["properties"])


def test_json_has_the_keys_that_others_build_on(node: SimNode, mpstui: Mpstui) -> None:
    hostile = b"evil\n9999       9         1            GPU\x1b[31m [/bold] \xff"
    client = node.spawn("busy", argv0=hostile, user="alice", devices=(0, 1))
    told = mpstui("status", "--json", "--pipe-dir", node.pipe_dir)
    assert told.status == 0, told
    status = told.json
    assert set(status) == {"schema", "time", "source", "host", "driver_version", "daemons", "devices", "problems"}
    assert (status["schema"], status["source"]) == (1, "simulated")
    (daemon,) = status["daemons"]
    check_keys(daemon, "daemon", DAEMON)
    assert (daemon["health"], daemon["default_active_thread_percentage"]) == ("ok", 100.0)
    (server,) = daemon["servers"]
    check_keys(server, "server", SERVER)
    (shown,) = server["clients"]
    check_keys(shown, "client", CLIENT)
    assert (shown["pid"], shown["state"], shown["user"]) == (client.pid, "ACTIVE", "alice")
    assert {c["device_uuid"] for c in shown["contexts"]} == {d["uuid"] for d in status["devices"]}
    assert set(shown["gpu_memory"]) == {d["uuid"] for d in status["devices"]}
    assert "\n" not in shown["command"]
    assert "\x1b" not in shown["command"]
    for device in status["devices"]:
        check_keys(device, "device", DEVICE)
    assert [d["contexts"] for d in status["devices"]] == [1, 1]
    client.tell("exit")


def test_text_says_that_it_is_simulated(node: SimNode, mpstui: Mpstui) -> None:
    told = mpstui("status", "--pipe-dir", node.pipe_dir)
    assert told.status == 0
    assert "SIMULATED" in told.out
    assert "\x1b" not in told.out


def test_what_is_not_known_is_null() -> None:
    status = to_json(Snapshot(0.0, daemons=(Daemon(Path("/tmp/x")),)))
    (daemon,) = status["daemons"]
    unknown = set(daemon) - {
        "pipe_dir", "health", "cause", "default_pinned_mem_limits", "inherited_pinned_mem_limits", "servers", "watch",
        "ordinals", "limits", "lacks", "ends", "pending",
    }  # fmt: skip
    assert {key for key, value in daemon.items() if value is None} == unknown


@pytest.mark.parametrize(
    ("confirmed", "watch", "lost"),
    [(True, "logs", (True, False)), (False, "logs", (None, False)), (True, "polling", (True, None))],
)
def test_who_is_lost_is_told_beside_the_state_that_the_daemon_says(
    confirmed: bool, watch: str, lost: tuple[bool | None, ...]
) -> None:
    hit, unhurt = client(643), client(644)
    fault = ServerFault(0.0, (), (hit.key,), confirmed=confirmed)
    snapshot = shown_node(servers=(Server(ProcessKey(634, 1), fault=fault, clients=(hit, unhurt)),), watch=watch)
    (daemon,) = to_json(snapshot)["daemons"]
    (told,) = daemon["servers"]
    assert [each["state"] for each in told["clients"]] == ["ACTIVE", "ACTIVE"]
    assert tuple(each["lost"] for each in told["clients"]) == lost


@pytest.mark.parametrize(("estimated", "words"), [(True, "25 %  ≈26 SM"), (False, "25 %  26 SM")])
def test_an_estimated_share_is_marked_as_one(estimated: bool, words: str) -> None:
    snapshot = shown_node(client(643, active_thread_percentage=25.0, sm_count=26, sm_count_estimated=estimated))
    console = Console(width=500, file=io.StringIO())
    print_text(snapshot, console)
    assert words in console.file.getvalue()
    (daemon,) = to_json(snapshot)["daemons"]
    assert daemon["servers"][0]["clients"][0]["sm_count_estimated"] is estimated


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.write_text(""), "not a directory"),
        (lambda path: path.mkdir(), ""),
    ],
)
def test_no_daemon_there(tmp_path: Path, mpstui: Mpstui, make, words: str) -> None:
    place = tmp_path / "mps"
    make(place)
    told = mpstui("status", "--json", "--pipe-dir", place)
    assert told.status == 3
    assert words in told.err
    (daemon,) = told.json["daemons"]
    assert daemon["health"] in {"absent", "stale"}


def test_a_directory_with_too_long_a_name_says_so(tmp_path: Path, mpstui: Mpstui) -> None:
    place = tmp_path / ("x" * 100)
    place.mkdir()
    told = mpstui("status", "--pipe-dir", place)
    assert told.status == 3
    assert "too long" in told.err


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (None, "cannot be run: it is not there, or is no program"),
        ("echo hello", "cannot be read"),
        ("exit 7", "exited with status 7"),
    ],
)
def test_a_daemon_that_cannot_be_asked_is_not_ok(tmp_path: Path, mpstui: Mpstui, lines: str | None, words: str) -> None:
    pipe_dir = Path(tempfile.mkdtemp(prefix="mps"))
    program, binary, waits = (tmp_path / name for name in ("nvidia-cuda-mps-control", "binary", "waits"))
    shutil.copy("/bin/sh", program)
    waits.write_text("echo there; read line")
    if lines is not None:
        binary.write_text(f"#!/bin/sh\n{lines}\n")
        binary.chmod(0o755)
    environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(pipe_dir), "CUDA_MPS_LOG_DIRECTORY": str(tmp_path)}
    pipe = subprocess.PIPE
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as privileged,
        subprocess.Popen([program, "-f", waits], env=environment, stdin=pipe, stdout=pipe) as daemon,
    ):
        # A new program is in place before its command line can be read (13 ms on a quiet machine): none then.
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == b"there\n"
        control.bind(str(pipe_dir / "control"))
        privileged.bind(str(pipe_dir / "control_privileged"))
        (pipe_dir / "nvidia-cuda-mps-control.pid").write_text(f"{daemon.pid}\n")
        told = mpstui("status", "--pipe-dir", pipe_dir, MPSTUI_CONTROL_BINARY=str(binary))
        assert (told.status, "cannot be asked" in told.out) == (4, True), told
        assert words in told.err
        assert "0 clients" not in told.out
        assert "none" not in told.out
        changed = mpstui("set", "client-priority", "1", "--pipe-dir", pipe_dir, MPSTUI_CONTROL_BINARY=str(binary))
        assert changed.status == 4
        ended = mpstui("terminate", "4242", "--yes", "--pipe-dir", pipe_dir, MPSTUI_CONTROL_BINARY=str(binary))
        assert ended.status == 4
        assert "is not a client" not in ended.err
        daemon.communicate(b"\n")
    shutil.rmtree(pipe_dir)


@pytest.mark.slow
def test_a_held_daemon_names_who_holds_it(node: SimNode, mpstui: Mpstui) -> None:
    environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(node.pipe_dir)}
    log = node.log_dir / "control.log"
    before = log.read_bytes().count(b"NEW UI")
    with subprocess.Popen(
        control_binary(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment
    ) as holder:
        while log.read_bytes().count(b"NEW UI") == before:
            assert holder.poll() is None
        told = mpstui("status", "--json", "--pipe-dir", node.pipe_dir)
        holder.communicate()
    assert told.status == 4
    assert told.json["daemons"][0]["health"] == "held"
    assert str(holder.pid) in told.err


def test_no_command_line_option_is_taken_for_another(mpstui: Mpstui) -> None:
    for wrong in (["status", "--nonsense"], ["set"], ["terminate", "abc"], ["terminate", "-1"], ["nonsense"]):
        assert mpstui(*wrong).status == 2
    assert mpstui("--demo", "--pipe-dir", "/tmp/x", "status").status == 2


def test_headless_commands_do_not_import_textual(node: SimNode) -> None:
    program = (
        "import sys; from mpstui.cli import main\n"
        f"status = main(['status', '--json', '--pipe-dir', {str(node.pipe_dir)!r}])\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('textual', 'cuda')], file=sys.stderr); sys.exit(status)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr.strip()) == (0, "[]")


def test_a_directorys_name_moves_no_cursor(tmp_path: Path, mpstui: Mpstui) -> None:
    told = mpstui("status", "--pipe-dir", tmp_path / "x\x1b[31m")
    assert told.status == 2
    assert "\x1b" not in told.out + told.err
    assert "\\x1b[31m" in told.err


def test_only_the_fields_that_were_asked_for(node: SimNode, mpstui: Mpstui) -> None:
    client = node.spawn("busy", user="alice")
    told = mpstui("status", "--fields", "user,pid", "--pipe-dir", node.pipe_dir)
    assert told.status == 0, told
    assert [line.split() for line in told.out.splitlines()[1:]] == [["USER", "PID"], ["alice", str(client.pid)]]
    told = mpstui("status", "--json", "--fields", "user,pid,server.pid", "--pipe-dir", node.pipe_dir)
    (server,) = told.json["daemons"][0]["servers"]
    assert server["clients"] == [{"user": "alice", "pid": client.pid}]
    assert list(server) == ["pid", "clients"]
    client.tell("exit")


@pytest.mark.parametrize(
    ("util", "sms", "outside", "would", "line"),
    [
        (
            97.0,
            12.0,
            2,
            True,
            "GPU 0: gain from MPS: yes. GPU-Util 97 %, SM activity 12 %: most SMs have no work, and",
        ),
        (
            97.0,
            12.0,
            0,
            True,
            "GPU 0: gain from MPS: yes. GPU-Util 97 %, SM activity 12 %: most SMs have no work: ",
        ),
        (97.0, 92.0, 1, None, "GPU 0: gain from MPS: not known. GPU-Util 97 %, SM activity 92 %: its SMs are in use"),
        (97.0, 92.0, 2, None, "GPU 0: gain from MPS: not known. GPU-Util 97 %, SM activity 92 %: its SMs are in use"),
        (97.0, None, 2, None, "GPU 0: gain from MPS: not known. GPU-Util 97 % says that some kernel runs"),
        (3.0, 1.0, 2, None, "GPU 0, GPU 1: too little work now to tell what MPS would gain"),
        (None, None, 2, None, "GPU 1: too little work now to tell what MPS would gain"),
    ],
)
def test_whether_a_device_would_gain_is_told_with_its_figures(util, sms, outside, would, line) -> None:
    devices = (
        Device("GPU-a", 0, gpu_utilization=util, sm_utilization=sms),
        Device("GPU-b", 1, gpu_utilization=0.0, sm_utilization=0.0),
    )
    past_mps = tuple(OutsideClient(ProcessKey(900 + n, 5), ("GPU-a",)) for n in range(outside))
    snapshot = Snapshot(0.0, devices=devices, outside=past_mps)
    told = to_json(snapshot)["devices"][0]
    assert told["would_gain"] is would
    assert told["gain"]
    text = io.StringIO()
    print_text(snapshot, Console(file=text, width=400))
    assert line in text.getvalue()


def test_a_problem_says_what_it_is_about_once() -> None:
    """“error: A fatal GPU fault; …”: of which server?"""
    told = (
        Problem("error", "fault", "server 7", "A fatal GPU fault", "End the clients."),
        Problem("warning", "pending", "client 9", "Client 9 (bob) waits", ""),
    )
    text = io.StringIO()
    print_text(Snapshot(0.0, problems=told), Console(file=text, width=400))
    assert text.getvalue().splitlines() == [
        "error: server 7: A fatal GPU fault  → End the clients.",
        "warning: Client 9 (bob) waits",
    ]


def test_the_limits_and_clients_of_two_daemons_say_whose_they_are() -> None:
    one, other = (shown_node(client(pid)).daemons[0] for pid in (643, 644))
    both = Snapshot(0.0, daemons=(one, replace(other, pipe_dir=Path("/tmp/other"))))
    text = io.StringIO()
    print_text(both, Console(file=text, width=400))
    lines = text.getvalue().splitlines()
    assert [line for line in lines if line.startswith("/")][2:] == [str(one.pipe_dir), "/tmp/other"]
    at = lines.index("/tmp/other")
    assert lines[at + 1].startswith("LIMITS")
    assert any("643" in line for line in lines[:at])
    assert any("644" in line for line in lines[at:])


def test_an_unknown_field_is_a_mistake_of_the_command_line(mpstui: Mpstui) -> None:
    told = mpstui("status", "--fields", "pid,gpu_mem")
    assert (told.status, told.out) == (2, "")
    assert "gpu_mem" in told.err
    assert "nearest: gpu_memory" in told.err


HIS = Speaker(64301, "a daemon of mallory", sockets=(64301,))
IN_BOBS_HOME = Speaker(None, "bob's home", by=64302, sockets=(0,))


@pytest.mark.parametrize(
    ("daemons", "status"),
    [
        ([(64301, "ok", HIS)], 0),
        ([(64301, "blocked", HIS)], 3),
        ([(64301, "blocked", HIS), (0, "ok", Speaker(0))], 0),
        ([(64301, "ok", HIS), (0, "blocked", Speaker(0))], 4),
        ([(64301, "ok", HIS), (0, "ok", HIS)], 4),
        ([(0, "ok", IN_BOBS_HOME)], 0),
    ],
)
def test_whose_daemons_the_exit_status_of_all_is_of(
    daemons: list[tuple[int, Any, Speaker]], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others' count where there are only those, as for who works on one by sudo; and a deaf one of theirs is no trouble
    of the node's. Where another user's sockets are in the place of root's own daemon, that is."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    found = [
        replace(
            shown_node(key=ProcessKey(number), uid=uid, speaker=speaker).daemons[0],
            condition=Condition(health, "none" if health == "ok" else "silent"),
        )
        for number, (uid, health, speaker) in enumerate(daemons, 1)
    ]
    assert exit_status(replace(shown_node(), daemons=tuple(found)), named=False) == status
