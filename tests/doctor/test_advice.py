"""What the vendor's documents say of GPUs, platforms, CPUs and debuggers, where it matters on a node."""

from __future__ import annotations

import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mpstui.core.model import Event, OutsideClient, ProcessKey, Snapshot, Suspect
from mpstui.doctor import advice, setup
from mpstui.doctor.checkup import gather
from mpstui.doctor.types import BinaryFacts, Debugged, Facts, PlatformFacts
from tests.doctor.test_checks import GPU, OTHER, PIPE, client, daemon, device, facts, verdicts


@pytest.mark.parametrize(
    ("capability", "verdict", "words"),
    [
        ((3, 0), "error", "no MPS server starts"),
        ((3, 5), "warning", "16 contexts"),
        ((6, 1), "warning", "one address space"),
        ((7, 0), "ok", "limits hold"),
        ((10, 0), "ok", "limits hold"),
        (None, "unknown", "does not tell"),
    ],
)
def test_a_gpus_age(capability, verdict, words) -> None:
    (found,) = advice.architecture(facts(devices=(device(compute_capability=capability),)))
    assert (found.verdict, words in found.evidence) == (verdict, True)


def test_old_and_new_gpus_in_one_daemon() -> None:
    devices = (device(compute_capability=(9, 0)), device(OTHER, 1, compute_capability=(6, 0)))
    found = list(advice.architecture(facts(devices=devices)))
    assert [(f.verdict, f.subject) for f in found] == [
        ("ok", "GPU 0"),
        ("warning", "GPU 1"),
        ("warning", "daemon 480"),
    ]
    assert "does not use GPU 1" in found[2].evidence
    alone = facts(daemon(ordinals={"0": GPU}), devices=devices)
    assert [f.subject for f in advice.architecture(alone)] == ["GPU 0", "GPU 1"]
    unknown = facts(daemon(ordinals={}), devices=devices)
    assert "daemon 480" in [f.subject for f in advice.architecture(unknown)]


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        (None, []),
        (PlatformFacts("Linux", 64), ["ok"]),
        (PlatformFacts("Linux", 64, tegra=True), ["warning"]),
        (PlatformFacts("Linux", 32), ["error"]),
        (PlatformFacts("Darwin", 64), ["error"]),
        (PlatformFacts("QNX", 64), ["ok"]),
    ],
)
def test_the_platform(platform, expected) -> None:
    assert verdicts(advice.platform, facts(platform=platform)) == expected


@pytest.mark.parametrize(("number", "expected"), [(2, "ok"), (1, "warning"), (None, "unknown")])
def test_clients_against_cpus(number, expected) -> None:
    given = facts(daemon(client(1), client(2)), server_cpus={634: number})
    (found,) = advice.cpus(given)
    assert (found.verdict, found.subject) == (expected, "server 634")


def test_clients_that_are_not_known_are_not_counted_against_cpus() -> None:
    """“0 clients on 16 CPUs”, and “1 clients”."""
    (none,) = advice.cpus(facts(daemon(server={"clients_known": False}), server_cpus={634: 2}))
    assert (none.verdict, none.evidence) == ("unknown", "its clients are not known, and it may use 2 CPUs")
    (one,) = advice.cpus(facts(daemon(client(1)), server_cpus={634: 2}))
    assert (one.verdict, one.evidence) == ("ok", "1 client on 2 CPUs")
    given = facts(daemon(client(1), client(2), server={"clients_known": False}), server_cpus={634: 1})
    (many,) = advice.cpus(given)
    assert (many.verdict, many.evidence.split(",")[0]) == ("warning", "at least 2 clients")


def test_a_program_under_a_debugger_waits_for_the_clients() -> None:
    given = daemon(client(643), client(644))
    (waits,) = advice.debuggers(facts(given, debugged=(Debugged(99, "cuda-gdb", 98),)))
    assert waits.verdict == "warning"
    assert "waits in cuInit until clients 643, 644 have ended" in waits.evidence
    (is_client,) = advice.debuggers(facts(given, debugged=(Debugged(643, "cuda-gdb\x1b[2J", 98),)))
    assert (is_client.verdict, is_client.evidence.isprintable()) == ("warning", True)
    (alone,) = advice.debuggers(facts(daemon(), debugged=(Debugged(99, "cuda-gdb", 98),)))
    assert alone.verdict == "ok"


def fault(*suspects: tuple[str, str | None], pipe_dir: Path = PIPE, when: float = 1.0) -> Event:
    there = tuple(Suspect(number, None, user, command) for number, (user, command) in enumerate(suspects))
    return Event("fatal_fault", when, pipe_dir, suspects=there)


def with_events(*events: Event) -> Facts:
    given = facts()
    snapshot = Snapshot(1.0, daemons=given.snapshot.daemons, devices=given.snapshot.devices, events=events)
    return Facts(snapshot, given.binary)


def test_who_was_there_at_each_of_several_faults() -> None:
    bad, good = ("bob", "python bad.py"), ("eve", "python good.py")
    assert list(advice.repeated_faults(with_events(fault(bad, good)))) == []
    (found,) = advice.repeated_faults(with_events(fault(bad, good), fault(bad, when=2.0)))
    assert (found.verdict, found.subject) == ("warning", "daemon 480")
    assert "In 2 of 2 faults: bob, python bad.py; no other user or command was there at more than 1." in found.evidence
    (nobody,) = advice.repeated_faults(with_events(fault(bad), fault(good, when=2.0)))
    assert "Nobody was there each time" in nobody.evidence
    (perhaps,) = advice.repeated_faults(with_events(fault(("bob", None)), fault(bad, good, when=2.0)))
    assert "In 1 to 2 of 2 faults: bob, python bad.py" in perhaps.evidence, "the screen Suspects says the same"
    elsewhere = fault(bad, pipe_dir=Path("/tmp/mps_1"))
    assert list(advice.repeated_faults(with_events(fault(bad), elsewhere))) == []


def test_the_servers_binary_is_looked_for_beside_the_control_binary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = tmp_path / "nvidia-cuda-mps-control"
    control.write_text("#!/bin/sh\nexit 0\n")
    control.chmod(control.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", "/nowhere")
    found = gather(Snapshot(0.0), (), (str(control),))
    assert found.server_binary == ""
    assert verdicts(setup.server_binary, found) == ["warning"]
    server = tmp_path / "nvidia-cuda-mps-server"
    server.write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\n")
    server.chmod(server.stat().st_mode | stat.S_IXUSR)
    found = gather(Snapshot(0.0), (), (str(control),))
    assert found.server_binary == str(server)
    assert verdicts(setup.server_binary, found) == ["ok"]
    assert not (tmp_path / "was-run").exists()
    assert verdicts(setup.server_binary, Facts(Snapshot(0.0), BinaryFacts(None))) == []
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gather(Snapshot(0.0), (), ()).server_binary == str(server), "also where no control binary is named"


TRACER = """
import ctypes, os, sys, time
child = os.fork()
if not child:
    time.sleep(600)
ctypes.CDLL(None).ptrace(16, child, 0, 0)  # PTRACE_ATTACH
os.waitpid(child, 0)
ctypes.CDLL(None).prctl(15, b"cuda-gdb", 0, 0, 0)  # its name
print(child, flush=True)
sys.stdin.read()
os.kill(child, 9)
"""


def test_a_real_tracer_of_that_name_is_found() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TRACER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as tracer:
        assert tracer.stdout is not None
        child = int(tracer.stdout.readline())
        try:
            if f"TracerPid:\t{tracer.pid}" not in Path(f"/proc/{child}/status").read_text():
                pytest.skip("nobody may trace another process here")
            found = gather(Snapshot(0.0), (), ("true",)).debugged
            assert Debugged(child, "cuda-gdb", tracer.pid) in found
        finally:
            tracer.communicate("", timeout=120)


def test_a_terminate_under_way_is_not_taken_for_a_fault() -> None:
    from mpstui.control.grammar import LogParser
    from tests.observe.test_logparse import server

    parser = LogParser("server")
    refused = "Failed to accept client {PID: 9, Context ID: 0} with status 807"
    lines = [
        refused,
        "MPS server requesting client {PID: 7, Context ID: 1} to exit",
        refused,
        "Client termination succeeded.",
        refused,
    ]
    told = [event for line in server(*lines) for event in parser.feed(line)]
    assert [e.values["reason"] for e in told if e.kind == "client_refused"] == ["fault", "terminate", "fault"]


@pytest.mark.parametrize(
    ("meters", "past_mps", "verdict", "said"),
    [
        ((None, None, None), 0, "unknown", "NVML does not tell how busy it is"),
        ((30.0, 4.0, 2.0), 3, "ok", "too little work now to tell"),
        ((97.0, None, None), 3, "unknown", "not how much of the GPU it uses"),
        ((97.0, 23.0, 6.0), 0, "ok", "GPU-Util 97 %, SM activity 23 %, occupancy 6 %: most SMs have no work: room for"),
        ((97.0, 23.0, None), 1, "ok", "room for more clients; mpstui experiment command measures"),
        ((97.0, 23.0, 6.0), 3, "warning", "most SMs have no work, and 3 processes take turns on it without MPS"),
        ((97.0, 90.0, 6.0), 0, "ok", "its SMs are busy, but each with few threads: more clients may gain; mpstui"),
        # Measured on an H200: four programs in turn without MPS, which gained 13, 13 and 30 % by it.
        (
            (100.0, 89.0, 53.0),
            4,
            "unknown",
            "in use; whether 4 programs outside MPS gain from it is measured by mpstui",
        ),
        (
            (100.0, 93.0, 92.0),
            4,
            "unknown",
            "in use; whether 4 programs outside MPS gain from it is measured by mpstui",
        ),
        (
            (100.0, 80.0, None),
            2,
            "unknown",
            "in use; whether 2 programs outside MPS gain from it is measured by mpstui",
        ),
        # No figure is known above which nobody gains: four that took turns at 93 and 92 % gained 13 %.
        (
            (97.0, 90.0, 60.0),
            1,
            "ok",
            "its SMs are in use; what more clients gain is measured by mpstui experiment",
        ),
        (
            (97.0, 51.0, 26.0),
            0,
            "ok",
            "SM activity 51 %, occupancy 26 %: its SMs are in use; what more clients gain",
        ),
        ((97.0, 90.0, None), 0, "ok", "its SMs are in use; what more"),
    ],
)
def test_whether_a_device_would_gain_is_told_by_its_meters(meters, past_mps, verdict, said) -> None:
    named = dict(zip(("gpu_utilization", "sm_utilization", "sm_occupancy"), meters, strict=True))
    given = facts(devices=(device(**named), device(OTHER, 1)))
    outside = tuple(OutsideClient(ProcessKey(900 + n, 5), (GPU,)) for n in range(past_mps))
    snapshot = replace(given.snapshot, outside=(*outside, OutsideClient(ProcessKey(990, 5), (OTHER,))))
    found, other = advice.gain(replace(given, snapshot=snapshot))
    assert (found.verdict, said in found.evidence) == (verdict, True), found.evidence
    assert bool(found.remedy) == (verdict == "warning")
    assert other.verdict == "unknown"
