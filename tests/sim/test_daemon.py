"""The daemon's life: quitting, being killed, other users, held sessions (facts 2, 3, 4, 19, 20 and 21)."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mpstui.sim.marker import control_binary
from mpstui.sim.node import SimError, SimNode
from mpstui.sim.simd.clients import client_from_hello
from mpstui.sim.simd.config import STATE, default_gpus
from mpstui.sim.simd.daemon import SimDaemon
from mpstui.sim.simd.server import SimServer

from .recorded import DATA, between, eventually, log_lines, one_shot


def control_log(node: SimNode, **pids: int) -> list[str]:
    names = {pid: int(name.removeprefix("p")) for name, pid in pids.items()}
    return log_lines((node.log_dir / "control.log").read_text(), names)


def recorded_log() -> list[str]:
    return log_lines((DATA / "h100" / "users-control.log").read_text())


def remaining(node: SimNode) -> set[str]:
    return {path.name for path in node.pipe_dir.iterdir()} - {"logs", "mpstui-simulated", "mpstui-simulated.json"}


def session(node: SimNode) -> subprocess.Popen[bytes]:
    """A control session that stays open."""
    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(node.pipe_dir)}
    return subprocess.Popen(control_binary(), env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_quit_waits_for_the_clients_and_hears_nobody(start: Callable[..., SimNode]) -> None:
    node = start(gpus=1)
    daemon = node.daemon_pid or 0
    client = node.spawn("busy")
    server = int(node.control("get_server_list"))
    quitting = session(node)
    quitting.stdin.write(b"quit\n")
    quitting.stdin.close()
    quitting.stdin = None
    tries = node.log_dir / "control.log"
    eventually(lambda: "again in at most 400ms" in tries.read_text())
    with pytest.raises(subprocess.TimeoutExpired):
        node.control("ps", timeout=0.2)
    client.tell("exit")
    assert client.wait(120) == "0"
    assert quitting.communicate(timeout=120)[0] == b""
    assert quitting.returncode == 0
    ours = between(control_log(node, p3023=daemon, p3030=server), "Cmd:quit", "Exit with status 0")
    theirs = between(recorded_log()[recorded_log().index("Control 3023 Cmd:quit") :], "Cmd:quit", "Exit with")
    cut = next(i for i, line in enumerate(theirs) if "at most 400ms" in line)
    assert ours[: cut + 1] == theirs[: cut + 1]
    assert ours[-3:] == theirs[-3:]
    assert remaining(node) == {"control", "control_lock", "control_privileged"}
    assert tries.read_text().count("Exit with status 0") == 1
    gone = one_shot(node, "ps")
    assert (gone.returncode, gone.stderr) == (1, b"Cannot find MPS control daemon process\n")


def test_quit_with_a_time_limit_takes_the_clients_along(start: Callable[..., SimNode]) -> None:
    node = start(gpus=1)
    daemon = node.daemon_pid or 0
    client = node.spawn("busy")
    server = int(node.control("get_server_list"))
    assert one_shot(node, "quit -t 1").returncode == 0
    assert client.wait_status("lost")
    assert client.error == 806
    ours = between(control_log(node, p1314=daemon, p1402=server), "Cmd:quit -t", "Exit with status 0")
    theirs = between(recorded_log(), "Cmd:quit -t", "Exit with status 0")
    adapted = [line.replace("timeout of 2", "timeout of 1").replace("quit -t 2", "quit -t 1") for line in theirs]
    # The real one had tried for so long before that no attempt fell into its two seconds.
    again = next(i for i, line in enumerate(ours) if "backoff is enabled" in line)
    forced = next(i for i, line in enumerate(ours) if i > again and "backoff is disabled" in line)
    assert ours[:again] + ours[forced:] == [line.replace("12800ms", "200ms") for line in adapted]


def test_shutdown_server_waits_and_force_does_not(start: Callable[..., SimNode]) -> None:
    node = start(gpus=1)
    daemon = node.daemon_pid or 0
    client = node.spawn("busy")
    server = int(node.control("get_server_list"))
    assert node.control(f"shutdown_server {server}") == ""
    assert node.control("get_server_list") == f"{server}\n"
    assert node.control(f"shutdown_server {server} -f") == ""
    assert client.wait_status("lost")
    assert client.error == 806
    eventually(lambda: node.control("get_server_list") == "")
    names = {"p3060": daemon, "p3067": server}
    ended = "Control 3060 Server 3067 exited with status 0"
    for first, last in (("Cmd:shutdown_server 3067", "UI closed"), ("Cmd:shutdown_server 3067 -f", "UI closed")):
        recorded = between(recorded_log(), first, last)
        written = [line for line in control_log(node, **names) if line != ended]  # before or after the session's end
        assert between(written, first, last) == recorded
    assert ended in control_log(node, **names)


def test_a_killed_daemon_leaves_its_files_and_takes_its_clients(start: Callable[..., SimNode]) -> None:
    node = start(gpus=1)
    client = node.spawn("idle")
    server = int(node.control("get_server_list"))
    node.kill_daemon()
    assert client.wait_status("lost")
    assert client.error == 806
    assert node.daemon_pid is None
    eventually(lambda: not os.path.exists(f"/proc/{server}/exe"))
    files = {"control", "control_lock", "control_privileged", "log", "nvidia-cuda-mps-control.pid"}
    assert remaining(node) == files
    assert one_shot(node, "ps").returncode == 1
    assert node.spawn("idle").status() == "unmanaged"
    node.start_daemon()
    assert node.control("get_server_list") == ""
    assert node.spawn("idle").status() == "connected"


def test_a_second_daemon_is_refused(start: Callable[..., SimNode]) -> None:
    node = start()
    with pytest.raises(SimError, match="An instance of this daemon is already running"):
        node.start_daemon()


def test_a_daemon_in_the_background(pipe_dir: Path) -> None:
    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(pipe_dir), "CUDA_MPS_LOG_DIRECTORY": str(pipe_dir / "l")}
    subprocess.run([*control_binary(), "-d", "-M"], env=environment, timeout=120, check=True)
    pid = int((pipe_dir / "nvidia-cuda-mps-control.pid").read_text())
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        assert command == [b"nvidia-cuda-mps-control", b"-d", b"-M"]
        assert Path(f"/proc/{pid}/comm").read_text() == "nvidia-cuda-mps\n"
        shown = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        assert {f"{key}={value}".encode() for key, value in environment.items()} <= set(shown)
    finally:
        os.kill(pid, signal.SIGTERM)
    eventually(lambda: not (pipe_dir / "log").exists())


def test_servers_can_be_found_in_proc(start: Callable[..., SimNode]) -> None:
    node = start()
    node.spawn("idle")
    server = int(node.control("get_server_list"))
    assert Path(f"/proc/{server}/cmdline").read_bytes().rstrip(b"\0") == b"nvidia-cuda-mps-server"
    assert Path(f"/proc/{server}/stat").read_text().split(") ")[1].split()[1] == str(node.daemon_pid)


def test_a_held_session_shuts_everybody_else_out_but_clients(start: Callable[..., SimNode]) -> None:
    node = start()
    holder = session(node)
    holder.stdin.write(b"get_default_client_priority\n")
    holder.stdin.flush()
    log = node.log_dir / "control.log"
    eventually(lambda: "Cmd:get_default_client_priority" in log.read_text())
    shut_out = one_shot(node, "ps")
    assert (shut_out.returncode, shut_out.stdout) == (1, b"")
    assert shut_out.stderr == b"Cannot send command to MPS control daemon process\n"
    assert node.spawn("idle").status() == "connected"
    assert holder.communicate(b"bogus\n", timeout=120)[0] == b'0\nUnknown command "bogus"\n'
    assert one_shot(node, "get_default_client_priority").stdout == b"0\n"
    assert "NEW UI" not in log.read_text().split("Cmd:get_default_client_priority")[1].split("UI closed")[0]


def test_several_lines_and_the_argument_form(start: Callable[..., SimNode]) -> None:
    node = start()
    batch = node.control("get_default_active_thread_percentage\nps\nget_default_client_priority\nbogus")
    assert batch == '100.0\nServer not found\n0\nUnknown command "bogus"\n'
    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(node.pipe_dir)}
    argument = subprocess.run(
        [*control_binary(), "ps"], env=environment, input=b"", capture_output=True, timeout=120, check=False
    )
    assert (argument.returncode, argument.stdout, argument.stderr) == (0, b"", b"")


def test_version_and_help_are_the_recorded_ones() -> None:
    text = (DATA / "h100" / "commands.txt").read_text()
    shown = {
        option: subprocess.run(
            [*control_binary(), option], capture_output=True, timeout=120, check=True
        ).stdout.decode()
        for option in ("-v", "-h")
    }
    assert shown["-v"] + "CUDA MPS Server" in text
    assert shown["-h"] + "\n##### nvcc" in text


@pytest.mark.slow
def test_another_user_may_ask_but_not_set(start: Callable[..., SimNode]) -> None:
    node = start()
    client = node.spawn("idle")
    server = node.control("get_server_list").strip()
    other = {"MPSTUI_SIM_UID": "2001"}
    assert node.control("get_server_list", env=other) == f"{server}\n"
    assert node.control("get_default_active_thread_percentage", env=other) == "100.0\n"
    transcript = (DATA / "h100" / "users-quit-daemons.txt").read_text()
    for command in (
        "set_default_active_thread_percentage 40",
        f"set_active_thread_percentage {server} 40",
        "set_default_device_pinned_mem_limit 0 1G",
        f"set_device_pinned_mem_limit {server} 0 1G",
        "set_default_client_priority 1",
        "start_server -uid 2001",
        f"shutdown_server {server} -f",
        f"terminate_client {server} {client.pid}",
        "quit",
    ):
        answer = node.control(command, env=other)
        assert answer
        assert answer in transcript
    assert node.control("get_default_active_thread_percentage") == "100.0\n"
    assert client.status() == "connected"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_the_other_user_is_known_by_the_socket(start: Callable[..., SimNode]) -> None:
    node = start()
    node.pipe_dir.chmod(0o755)
    for python in (control_binary()[0], "/usr/bin/python3"):
        try:
            answer = subprocess.run(
                [python, *control_binary()[1:]],
                env={"CUDA_MPS_PIPE_DIRECTORY": str(node.pipe_dir)},
                input=b"quit\n",
                capture_output=True,
                timeout=120,
                check=False,
                user=2001,
            )
        except OSError:
            continue
        if not answer.stderr:
            break
    else:
        pytest.skip("no interpreter that other users may run, or they may not read the stand-in")
    assert answer.stdout == b"Not enough privilege to execute quit command\n"


def test_another_users_client_waits_for_the_server_to_go(start: Callable[..., SimNode]) -> None:
    node = start(gpus=1)
    daemon = node.daemon_pid or 0
    first = node.spawn("busy")
    server = int(node.control("get_server_list"))
    other = node.spawn("idle", uid=2001, user="bob")
    assert other.status() == "pending"
    third = node.spawn("idle")
    assert third.status() == "connected"
    third.tell("exit")
    third.wait(120)
    first.tell("exit")
    first.wait(120)
    assert other.wait_status("connected")
    assert node.control("get_server_list") != f"{server}\n"
    ours = control_log(node, p1314=daemon, p1402=server, p2943=other.pid)
    theirs = recorded_log()
    key = "NEW CLIENT 2943 from user 2001"
    assert between(ours, key, "again in at most 200ms") == between(theirs, key, "again in at most 200ms")
    text = "\n".join(ours)
    assert "Control 1314 Server 1402 exited with status 0" in text
    assert re.search(r"Starting new server \d+ for user 2001", text)


def test_several_users_share_a_server_in_multi_user_mode(start: Callable[..., SimNode]) -> None:
    node = start(multiuser=True)
    clients = [node.spawn("idle", uid=uid, user=user) for uid, user in ((0, "root"), (2001, "bob"))]
    assert [c.status() for c in clients] == ["connected", "connected"]
    assert len(node.control("get_server_list").split()) == 1


@pytest.mark.slow
def test_names_are_printed_as_they_are(start: Callable[..., SimNode]) -> None:
    node = start(gpus=1)
    forged = b"x\n643       3         634            GPU-51dbd800-8a65-a8fc    4026531836     /tmp/client    "
    names = [forged, b"\x1b[2J\x1b]0;title\x07", b"\xff\xfe\x80", b"[red]markup[/]", b"A" * 100_000, b""]
    clients = [node.spawn("hostile", argv0=name) for name in names]
    assert {c.status() for c in clients} == {"connected"}
    shown = one_shot(node, "ps").stdout
    for name in names:
        assert b"4026531836     " + name.ljust(15) + b"\n" in re.sub(rb"\b40265\d{5}\b", b"4026531836", shown)
        assert name in (node.log_dir / "control.log").read_bytes()
    listed = node.control("get_client_list " + node.control("get_server_list").strip())
    assert sorted(listed.split()) == sorted(str(c.pid) for c in clients)


def test_a_server_that_is_killed_takes_its_clients_and_frees_a_blocked_daemon(start: Callable[..., SimNode]) -> None:
    node = start(gpus=1)
    client = node.spawn("endless")
    other = node.spawn("idle")
    server = int(node.control("get_server_list"))
    node.control(f"terminate_client {server} {client.pid}")
    with pytest.raises(subprocess.TimeoutExpired):
        node.control(f"terminate_client {server} {client.pid}", timeout=0.2)
    os.kill(server, signal.SIGKILL)
    assert other.wait_status("lost")
    assert other.error == 806
    assert node.control("get_server_list") == ""
    assert node.spawn("idle").status() == "connected"


def test_a_signal_ends_the_daemon_though_somebody_is_pending(start: Callable[..., SimNode]) -> None:
    node = start(gpus=1)
    node.spawn("idle")
    other = node.spawn("idle", uid=2001)
    assert other.status() == "pending"
    daemon = node.daemon_pid
    assert daemon, "0 is the group of the tests"
    os.kill(daemon, signal.SIGTERM)
    assert other.wait_status("refused")
    eventually(lambda: node.daemon_pid is None)
    assert (node.log_dir / "control.log").read_text().count("Starting new server") == 1


def test_percentages_are_read_as_the_real_one_reads_them(start: Callable[..., SimNode]) -> None:
    node = start()
    for typed, shown in (("33.37", "33.4"), ("0.05", "0.1"), ("1e1", "10.0"), ("50%", "50.0"), ("nan", "50.0")):
        assert node.control(f"set_default_active_thread_percentage {typed}") == f"{shown}\n"


def test_terminate_of_a_living_process_that_is_no_client(start: Callable[..., SimNode]) -> None:
    node = start()
    node.spawn("idle")
    server = node.control("get_server_list").strip()
    assert node.control(f"terminate_client {server} {os.getpid()}") == "201\n"
    assert node.control(f"terminate_client {server} 99999999") == "Invalid process 99999999!\n1\n"


def test_nonsense_at_the_sockets_does_not_stop_the_daemon(start: Callable[..., SimNode]) -> None:
    import socket

    node = start()
    for packet in (b"{", b"[]", b'{"devices": [9]}', b"\xff" * 1000, b"[" * 50_000, b"UI x", b'{"devices":"x"}'):
        for name in ("control", "control_privileged"):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                connection.connect(str(node.pipe_dir / name))
                connection.send(packet)
    eventually(lambda: one_shot(node, "get_default_client_priority").stdout == b"0\n")
    for line in (b"\xff\xfe", b"x" * 10_000, b"terminate_client", b"get_server_status", b"ps -p", b"quit_ -t x"):
        assert one_shot(node, line).returncode == 0
    assert node.daemon_pid is not None


def test_no_log_names_a_process_before_the_state_says_for_whom_it_stands(tmp_path: Path) -> None:
    """Who read of one that waits, and found root's process under its number, took it for somebody else's and left it
    out for good."""
    named = dict.fromkeys((4711, 4712), 0)

    class Logs:
        def control(self, text: str | bytes, pid: int | None = None) -> None:
            self.server(0, text)

        def server(self, pid: int, text: str | bytes, who: str = "") -> None:
            state = {entry["pid"]: entry["user"] for entry in json.loads((tmp_path / STATE).read_text())["clients"]}
            for each in (pid for pid in named if str(pid) in str(text)):
                named[each] += 1
                assert state.get(each) == "bob", text

    ends = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(3)]
    daemon = SimDaemon(str(tmp_path), [], default_gpus(1), Logs(), False, {})  # type: ignore[arg-type]
    server = SimServer(7, ends[0][0], 2002, daemon.gpus, Logs())  # type: ignore[arg-type]
    server.starting, daemon.servers = True, {7: server}
    hello = {
        "devices": [0], "user": "bob", "uid": 2002, "argv0": "", "command": "x", "contexts": 1, "memory": 0, "env": {},
        "busy": False,
    }  # fmt: skip
    for pid, (connection, _) in zip(named, ends[1:], strict=True):
        daemon._new_client(client_from_hello(connection, hello, (pid, 0), 1))
        server.starting = False
        if pid == 4711:
            daemon._server_ready(server)
    assert ([client.pid for client in server.clients], daemon.pending) == ([4711, 4712], [])
    assert min(named.values()) > 2
    for one, other in ends:
        one.close()
        other.close()
