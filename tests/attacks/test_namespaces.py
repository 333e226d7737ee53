"""A number is a PID of this namespace only where that is proved (attack E)."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpstui.control.holder import find_sessions
from mpstui.observe import discovery
from mpstui.observe.discovery import discover
from mpstui.operations.lock import FILE as LOCK
from mpstui.sim.node import SimNode
from mpstui.sim.simd.config import default_gpus, write_marker
from mpstui.system.procfs import process_key

from .conftest import Stranger
from .programs import LIAR, ROOT, lives, lying_daemon, mpstui, roots_process

NODE = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from mpstui.sim.node import SimNode
with SimNode.start(Path(sys.argv[2])) as node:
    clients = [node.spawn("busy", argv0=b"./train", linger=None) for _ in range(12)]
    (node.pipe_dir / "mpstui-simulated").unlink()
    print("ready", *(client.pid for client in clients), flush=True)
    sys.stdin.read()
"""

needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="root alone may make a PID namespace"
)


@pytest.fixture(autouse=True)
def with_others_on_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever daemons run beside the tests crowd out none of theirs."""
    monkeypatch.setattr(discovery, "_PLACES_LIMIT", 10_000)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[tuple[Path, list[int]]]:
    """The pipe directory of a daemon in another PID namespace, and its clients' numbers there."""
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-c", NODE, ROOT]
    with subprocess.Popen(
        [*command, tmp_path / "p"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            word, *pids = process.stdout.readline().split()
            assert word == "ready"
            yield tmp_path / "p", [int(pid) for pid in pids]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
            process.stdin.close()  # type: ignore[union-attr]


@needs_namespaces
def test_clients_elsewhere_are_not_joined_with_processes_here(elsewhere: tuple[Path, list[int]]) -> None:
    pipe_dir, pids = elsewhere
    shared = [pid for pid in pids if process_key(pid) is not None]
    assert shared, f"no process here has a number of {pids}"
    said = json.loads(mpstui("status", "--json", "--pipe-dir", pipe_dir).stdout)
    (daemon,) = said["daemons"]
    clients = {c["pid"]: c for server in daemon["servers"] for c in server["clients"]}
    assert set(clients) == set(pids)
    for client in clients.values():
        assert not client["pid_proved"]
        assert (client["user"], client["start_time"]) == (None, None)
        assert client["pid_here"] not in {None, client["pid"]}
        assert client["command"] == f"({client['pid_here']} here, in another PID namespace) ./train"
        status = Path(f"/proc/{client['pid_here']}/status").read_text()
        assert f"NSpid:\t{client['pid_here']}\t{client['pid']}\n" in status
    (server,) = daemon["servers"]
    assert server["user"] is None


@needs_namespaces
def test_they_are_terminated_by_the_daemons_number_and_nothing_is_signalled(
    elsewhere: tuple[Path, list[int]],
) -> None:
    pipe_dir, pids = elsewhere
    pid = next(pid for pid in pids if process_key(pid) is not None)
    before = process_key(pid)
    log = pipe_dir / "logs" / "control.log"
    done = mpstui("terminate", str(pid), "--kill", "--yes", "--owner", "root", "--pipe-dir", pipe_dir)
    assert done.returncode == 6, done.stderr
    assert "in another PID namespace" in done.stderr
    assert b"terminate_client" not in log.read_bytes()
    (daemon,) = json.loads(mpstui("status", "--json", "--pipe-dir", pipe_dir).stdout)["daemons"]
    here = next(c["pid_here"] for server in daemon["servers"] for c in server["clients"] if c["pid"] == pid)
    done = mpstui("terminate", str(here), "--yes", "--pipe-dir", pipe_dir)
    told = f"nothing was sent: process {here} is in another PID namespace, and the daemon knows it as client {pid}."
    assert (done.returncode, told in done.stderr) == (6, True), done.stderr
    done = mpstui("terminate", str(pid), "--yes", "--pipe-dir", pipe_dir)
    assert done.returncode == 0, done.stderr
    assert log.read_bytes().count(b"Cmd:terminate_client") == 1
    assert process_key(pid) == before
    again = mpstui("terminate", str(pid), "--yes", "--pipe-dir", pipe_dir)
    assert again.returncode == 6, again.stderr
    assert log.read_bytes().count(b"Cmd:terminate_client") == 1


APART = """
import os, subprocess, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
subprocess.run(["mount", "-t", "tmpfs", "none", sys.argv[2]], check=True)
from mpstui.sim.node import SimNode
with SimNode.start(Path(sys.argv[2]) / "p") as node:
    clients = [node.spawn("busy", argv0=b"./train", linger=None) for _ in range(2)]
    (node.pipe_dir / "mpstui-simulated").unlink()
    print("ready", node.daemon_pid, *(client.pid for client in clients), flush=True)
    sys.stdin.read()
"""


@needs_namespaces
def test_a_daemon_behind_another_mount_is_found_beside_the_one_of_that_name_here() -> None:
    """Its directory has the name of another daemon's here, as /tmp/nvidia-mps has in each container."""
    command = ["unshare", "--pid", "--mount", "--ipc", "--fork", "--mount-proc", "--kill-child", sys.executable]
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        SimNode.start((tmp_path := Path(folder)) / "p") as here,
        subprocess.Popen(
            [*command, "-c", APART, ROOT, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        (here.pipe_dir / "mpstui-simulated").unlink()
        try:
            assert process.stdout is not None
            word, there, *pids = process.stdout.readline().split()
            assert word == "ready"
            name = f"{tmp_path}/p"
            places = [os.fspath(place.pipe_dir) for place in discover(env={}, well_known=())]
            mine = [place for place in places if place.endswith(name)]
            assert name in mine
            (other,) = [place for place in mine if place != name]
            said = json.loads(mpstui("status", "--json", "--pipe-dir", other).stdout)
            (found,) = said["daemons"]
            assert found["pid_there"] == int(there)
            assert found["pid"] != found["pid_there"]
            assert found["pipe_dir"] == other == f"/proc/{found['pid']}/root{name}"
            clients = [client for server in found["servers"] for client in server["clients"]]
            assert {client["pid"] for client in clients} == set(map(int, pids))
            assert not any(client["pid_proved"] for client in clients)
            done = mpstui("terminate", pids[0], "--kill", "--yes", "--pipe-dir", found["pipe_dir"])
            assert done.returncode == 6, done.stderr
            done = mpstui("terminate", pids[0], "--yes", "--pipe-dir", found["pipe_dir"])
            assert done.returncode == 0, done.stderr
            assert os.path.exists(f"{other}/{LOCK}"), "who changes it in there waits for the same turn"
            assert not os.path.exists(f"{name}/{LOCK}"), "and it is not that of the daemon of this name here"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
            process.stdin.close()  # type: ignore[union-attr]


@needs_namespaces
def test_a_daemon_is_not_shown_by_a_name_that_somebody_has_mounted_it_under() -> None:
    """Whoever calls his process a daemon, and has another one's directory in his own root, does not take its place."""
    code = "import os, sys; print('ready', flush=True); sys.stdin.read()"
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, SimNode.start(Path(folder) / "p") as here:
        (here.pipe_dir / "mpstui-simulated").unlink()
        (alias := Path(folder) / "a").mkdir()
        (program := Path(folder) / "nvidia-cuda-mps-control").write_text(code)
        inside = f'mount --bind {here.pipe_dir} {alias} && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", inside, "-", sys.executable, program, "-d"]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(alias)},
        ) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                places = [place for place in discover(env={}, well_known=()) if folder in os.fspath(place.pipe_dir)]
                assert [(place.pipe_dir, place.state) for place in places] == [(here.pipe_dir, "running")]
                assert places[0].daemon is not None
                assert places[0].daemon.pid == here.daemon_pid
            finally:
                process.stdin.close()  # type: ignore[union-attr]


@needs_namespaces
def test_an_end_here_is_none_there(elsewhere: tuple[Path, list[int]]) -> None:
    """A marked one, as `mpstui sim serve` in a container, is watched by the same rule."""
    pipe_dir, pids = elsewhere
    write_marker(pipe_dir, default_gpus(2))
    said = json.loads(mpstui("status", "--json", "--pipe-dir", pipe_dir).stdout)
    clients = [c for d in said["daemons"] for s in d["servers"] for c in s["clients"]]
    assert {c["pid"] for c in clients} == set(pids)
    assert not any(c["pid_proved"] or c["user"] for c in clients)


@pytest.mark.parametrize("spec", [{"ps": False}, {"namespace": 1}, {"ps": False, "lock": False}])
def test_a_namespace_that_is_not_the_process_own_or_not_told_is_no_proof(
    stranger: Stranger, spec: dict[str, object]
) -> None:
    """As of a daemon of driver 470, which has no ``ps``: not even root's word ends the process then."""
    as_root = Stranger(0, stranger.home)
    as_root.interpreter = stranger.interpreter
    os.chown(stranger.home, 0, 0)
    with roots_process() as victim:
        try:
            lying_daemon(as_root, stranger.home / "p", clients=[victim.pid], **spec)
            done = mpstui("terminate", str(victim.pid), "--kill", "--yes", "--pipe-dir", stranger.home / "p")
            shown = json.loads(mpstui("status", "--json", "--pipe-dir", stranger.home / "p").stdout)
        finally:
            as_root.end()
        assert done.returncode == 6, done.stderr
        assert lives(victim)
        assert "namespace" in done.stderr
        (client,) = [c for d in shown["daemons"] for s in d["servers"] for c in s["clients"]]
        assert client["user"] is None


def test_zero_is_no_process(stranger: Stranger) -> None:
    lying_daemon(stranger, stranger.home / "p", clients=[0, 0])
    said = json.loads(mpstui("status", "--json", "--pipe-dir", stranger.home / "p").stdout)
    assert not any(c["pid_proved"] or c["user"] for d in said["daemons"] for s in d["servers"] for c in s["clients"])


@needs_namespaces
def test_a_client_of_another_container_is_not_the_one_that_was_terminated(roots: Stranger, tmp_path: Path) -> None:
    """Each has a client 7, and the second daemon was never sent anything, nor the one that was started in the place of
    the first one, of which all numbers come again."""
    program, log, done = roots.home / "nvidia-cuda-mps-control", tmp_path / "audit.jsonl", []
    program.write_text(LIAR)
    for name in ("one", "two", "one"):
        pipe_dir, spec = roots.home / name, json.dumps({"server": 5, "clients": [7]})
        if pipe_dir.exists():
            roots.end()
            for path in pipe_dir.iterdir():
                if path.name != LOCK:
                    path.unlink()
        apart = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
        env = {"CUDA_MPS_PIPE_DIRECTORY": str(pipe_dir), "CUDA_MPS_LOG_DIRECTORY": str(roots.home / "logs")}
        daemon = roots.start(*apart, roots.interpreter, program, "-d", pipe_dir, spec, env=env)
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == "ready\n"
        for _ in range(2):
            done.append(mpstui("terminate", "7", "--yes", "--pipe-dir", pipe_dir, MPSTUI_AUDIT_LOG=str(log)))
        assert (pipe_dir / "heard").read_text().count("terminate_client") == 1
    assert [each.returncode for each in done] == [0, 6, 0, 6, 0, 6], done


SESSION_ELSEWHERE = """
import os, socket, subprocess, sys
subprocess.run(["mount", "-t", "tmpfs", "none", sys.argv[1]], check=True)
pipe = sys.argv[1] + "/p"
os.mkdir(pipe)
daemon = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
daemon.bind(pipe + "/control")
daemon.listen()
program = sys.argv[1] + "/nvidia-cuda-mps-control"
with open(program, "w") as file:
    file.write("import socket, sys; own = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\\n"
               "own.connect(sys.argv[1]); print(flush=True); sys.stdin.read()")
env = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": pipe}
session = subprocess.Popen([sys.executable, "-I", "-S", program, pipe + "/control"], env=env, stdout=subprocess.PIPE)
session.stdout.readline()
served = daemon.accept()
print("ready", session.pid, flush=True)
sys.stdin.read()
"""


@needs_namespaces
@pytest.mark.parametrize("network", [[], ["--net"]], ids=["the network of here", "one of its own"])
def test_a_session_with_a_daemon_of_that_name_in_a_container_does_not_hold_the_one_here(
    network: list[str],
) -> None:
    """In each of them /tmp/nvidia-mps is another directory; whoever keeps the one here busy, it is not that session."""
    command = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", *network, sys.executable]
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        SimNode.start(Path(folder) / "p") as here,
        subprocess.Popen(
            [*command, "-c", SESSION_ELSEWHERE, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            word, _ = process.stdout.readline().split()
            assert word == "ready"
            assert find_sessions(here.pipe_dir) == []
        finally:
            process.kill()
