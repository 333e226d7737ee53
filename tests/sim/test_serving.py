"""``mpstui sim serve``: one ready line, clean ends, clear errors; and the scenarios."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mpstui.sim import drills
from mpstui.sim.drills import Blocked, Full, Held
from mpstui.sim.marker import control_binary, is_simulated
from mpstui.sim.node import SimError, SimNode
from mpstui.sim.scenario import Demo
from mpstui.sim.simd.config import STATE, read_marker
from mpstui.sim.simd.process import start_ticks
from mpstui.sim.sources import SimNvml

from .recorded import eventually

SERVE = (
    "import sys; from pathlib import Path; from mpstui.sim.serving import serve; sys.exit(serve(Path(sys.argv[1]), {}))"
)


def serve(directory: Path, scenario: str = "None") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SERVE.format(scenario), str(directory)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes(node_dir: Path) -> set[int]:
    """Every living process whose environment names the node's directory."""
    wanted = f"CUDA_MPS_PIPE_DIRECTORY={node_dir}".encode()
    found = set()
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and wanted in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                found.add(int(entry))
        except OSError:
            continue
    return {pid for pid in found if start_ticks(pid) is not None}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_says_when_it_is_ready_and_ends_with_a_signal(pipe_dir: Path, number: signal.Signals) -> None:
    process = serve(pipe_dir)
    assert process.stdout is not None
    assert str(pipe_dir) in process.stdout.readline()
    assert is_simulated(pipe_dir)
    assert (pipe_dir / "logs" / "control.log").exists()
    assert len(processes(pipe_dir)) == 1
    process.send_signal(number)
    assert process.communicate(timeout=120) == ("", "")
    assert process.returncode == 0
    assert processes(pipe_dir) == set()


def test_killed_it_leaves_no_process(pipe_dir: Path) -> None:
    process = serve(pipe_dir, "'demo'")
    assert process.stdout is not None
    process.stdout.readline()
    assert len(processes(pipe_dir)) > 10
    process.kill()
    process.communicate()
    eventually(lambda: processes(pipe_dir) == set())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words", "others"),
    [
        ("'demo', '470'", "driver 470.256.02: answers, logs and starts as recorded\n", {2001}),
        ("'demo', '615'", "driver 615.71: as its documents say; no recording of its control binary exists\n", {2001}),
        ("'v3'", "driver 615.71: as its documents say; no recording of its control binary exists\n", {0}),
    ],
)
def test_a_driver_is_chosen_and_what_was_never_seen_is_said(
    pipe_dir: Path, arguments: str, words: str, others: set[int]
) -> None:
    process = serve(pipe_dir, arguments)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == words
        assert "ready" in process.stdout.readline()
        assert read_marker(pipe_dir)[0].driver == words.split()[1].rstrip(":")
        users = {client["uid"] for client in json.loads((pipe_dir / STATE).read_text())["clients"]}
        assert others <= users
        assert (users == others) == ("615" not in arguments)  # without multi-user mode all are one user's
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)


SERVE_EACH = """
import json, os, signal, sys, tempfile
from pathlib import Path
from mpstui.sim.serving import serve
ended = []
for directory, *how in json.loads(sys.argv[1]):
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        if (pid := os.fork()) == 0:
            signal.alarm(110)
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            sys.exit(serve(Path(directory), *how))
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        out.seek(0)
        err.seek(0)
        ended.append((status, out.read().decode(), err.read().decode()))
print(json.dumps(ended))
"""
"""Each in a process of its own, which need not import it first; one that is not refused is ended."""


def refused(cases: list[tuple[Path | str | None, ...]]) -> list[str]:
    """What each says, to these arguments of ``serve``, that ends with status 2 and says nothing else."""
    words = json.dumps([[None if word is None else str(word) for word in case] for case in cases])
    done = subprocess.run(
        [sys.executable, "-c", SERVE_EACH, words], capture_output=True, text=True, timeout=600, check=True
    )
    ended = json.loads(done.stdout)
    assert [(status, out) for status, out, _ in ended] == [(2, "")] * len(cases), list(zip(cases, ended, strict=True))
    return [err for *_, err in ended]


@pytest.mark.slow
def test_a_driver_that_is_not_simulated_is_one_line(pipe_dir: Path) -> None:
    drivers = ("600", "47", "580.1", "", "../x", "9" * 400)
    for driver, said in zip(drivers, refused([(pipe_dir, None, driver) for driver in drivers]), strict=True):
        assert said.endswith("there are 470, 535, 550, 555, 580, 590, 615\n"), driver
        assert said.count("\n") == 1, driver


def test_a_driver_without_such_a_mode_has_no_such_node(pipe_dir: Path) -> None:
    cases = (
        ("static", "580", "static SM partitions"),
        ("v3", "590", "MPS protocol 3"),
        ("blocked", "470", "terminate_client; scenario “blocked” needs it"),
    )
    said = refused([(pipe_dir, scenario, driver) for scenario, driver, _ in cases])
    assert said == [f"mpstui: driver {driver} has no {what}\n" for _, driver, what in cases]


@pytest.mark.slow
def test_a_bad_directory_is_one_line(tmp_path: Path, pipe_dir: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "precious").write_text("")
    bad: list[tuple[Path | str | None, ...]] = [
        (tmp_path / "file", None),
        (tmp_path / "others", None),
        (tmp_path / ("d" * 120), None),
        (pipe_dir, "nonsense"),
        (Path("/proc/nowhere"), None),
    ]
    for case, said in zip(bad, refused(bad), strict=True):
        assert said.startswith("mpstui: "), case
        assert said.count("\n") == 1, case
        assert not is_simulated(Path(str(case[0]))), case


def test_no_variable_makes_a_node_s_directory_go_with_it(pipe_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One did, whoever had set it: for each scenario that was started from a program, also one that was refused."""
    (pipe_dir / "precious").write_text("")
    monkeypatch.setenv("MPSTUI_SIM_REMOVES", "1")
    with pytest.raises(SimError, match="there is no scenario"):
        SimNode.start(pipe_dir, scenario="nonsense")
    assert (pipe_dir / "precious").exists()


@pytest.mark.slow
def test_the_demo_has_users_devices_and_outdated_limits(start: Callable[..., SimNode]) -> None:
    node = start(scenario="demo")
    clients = node.state()["clients"]
    assert 12 <= len(clients) <= 16
    assert len({client["user"] for client in clients}) == 5
    assert len({client["sm"] for client in clients}) >= 3
    server = node.control("get_server_list").strip()
    assert (
        node.control(f"get_active_thread_percentage {server}\nget_default_active_thread_percentage") == "25.0\n50.0\n"
    )
    assert (
        node.control(f"get_device_pinned_mem_limit {server} 0\nget_device_pinned_mem_limit {server} 1") == "16G\n24G\n"
    )
    sample = SimNvml(node.pipe_dir).sample()
    assert len(sample.devices) == 2
    on_both = [set(pids) for pids in sample.mps_clients.values()]
    assert on_both[0] & on_both[1]
    assert all((d.memory_used or 0) < (d.memory_total or 0) for d in sample.devices)


@pytest.mark.slow
def test_guests_of_the_demo_come_and_go(start: Callable[..., SimNode]) -> None:
    node = start(multiuser=True)
    demo = Demo(seed=3)
    demo.begin(node, 0.0)
    first = {client.pid for client in node.clients}
    now = 0.0
    while now < 45:
        pause = demo.step(node, now)
        assert pause <= 20
        now += pause
        eventually(lambda: all(c.status() in {"connected", "exited"} for c in node.clients))
        node.reap()
    present = {client.pid for client in node.clients}
    assert present - first
    assert first - present
    assert len(present) >= 12


@pytest.mark.slow
def test_whoever_is_ended_in_the_demo_comes_back(start: Callable[..., SimNode]) -> None:
    node = start(multiuser=True)
    demo = Demo()
    demo.begin(node, 0.0)
    victim = node.clients[0]
    victim.kill()
    victim.wait(120)
    before = len(node.clients)
    demo.step(node, 1.0)
    node.reap()
    assert victim not in node.clients
    demo.step(node, 22.0)
    assert len(node.clients) >= before


@pytest.mark.parametrize("kind", [Held, Blocked])
def test_a_drill_has_begun_when_its_session_is_there(
    start: Callable[..., SimNode], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Held | Blocked]
) -> None:
    """Also where the machine is slow to start it: whoever looks then would see a daemon that answers."""
    slow = tmp_path / "slow"
    slow.write_text(f'#!/bin/sh\nsleep 0.3\nexec {shlex.join(control_binary())} "$@"\n')
    slow.chmod(0o755)
    node = start(multiuser=True, gpus=3)
    monkeypatch.setattr(drills, "control_binary", lambda: (str(slow),))
    drill = kind()
    drill.begin(node, 0.0)
    assert drill._session is not None
    try:
        assert (node.log_dir / "control.log").read_text().rpartition("NEW UI")[2].count("Cmd:") == 1
        assert "UI closed" not in (node.log_dir / "control.log").read_text().rpartition("NEW UI")[2]
    finally:
        drill._session.kill()
        drill._session.wait()


def test_a_drill_goes_on_when_its_newcomer_was_reaped_first(start: Callable[..., SimNode]) -> None:
    node = start()
    drill = Full()
    drill.step(node, 0.0)
    (newcomer,) = node.clients
    eventually(lambda: newcomer.status() == "connected")
    newcomer.tell("exit")
    newcomer.wait(120)
    node.reap()
    drill.step(node, 1.0)
    drill.step(node, 30.0)
    assert [client.pid for client in node.clients] != [newcomer.pid]


@pytest.mark.slow
def test_a_crowd_stays(start: Callable[..., SimNode]) -> None:
    node = start(scenario="crowd")
    assert len(node.state()["clients"]) == 46
    assert len(node.control("ps").splitlines()) == 47


def test_a_path_that_is_too_long_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    below = os.fspath(tmp_path / "file") + "/"
    with pytest.raises(SimError, match=r"too long for the daemon's sockets \(at most 88 bytes\)"):
        SimNode.start(below.ljust(89, "x"))
    with pytest.raises(SimError, match="Not a directory"):  # as it has the length
        SimNode.start(below.ljust(88, "x"))


def test_a_simulated_node_imports_no_event_loop() -> None:
    program = "import sys, mpstui.sim.serving; sys.exit('asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "echo first >&2; printf 'last \\033 words\\n' >&2; exit 3",
            r"it ended with exit status 3; .* ends with “last \\x1b words”",
        ),
        ("kill -9 $$", "it ended by signal 9; .*simulator.log says nothing"),
    ],
    ids=["by itself", "killed"],
)
def test_a_node_that_does_not_become_ready_says_what_it_last_said_and_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    monkeypatch.setattr("mpstui.sim.node.control_binary", lambda: ("/bin/sh", "-c", script))
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "simulator.log").write_text("of the one before\n")
    with pytest.raises(SimError, match=f"did not become ready: {said}"):
        SimNode.start(tmp_path)


def test_nor_one_that_is_not_ready_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpstui.sim.node.control_binary", lambda: ("/bin/sh", "-c", "read line"))
    with pytest.raises(SimError, match=r"did not become ready within 0 s; .*simulator.log says nothing"):
        SimNode.start(tmp_path, timeout=0)
