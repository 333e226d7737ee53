"""Nobody is blamed on a stranger's word, and his logs take no longer than what is in them (attacks B and D)."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from sim.recorded import eventually

from mpstui.control.holder import HeldSession, find_sessions
from mpstui.control.wire import MOST_CLIENTS
from mpstui.core.model import Snapshot
from mpstui.doctor.checkup import gather
from mpstui.history.files import LogFile
from mpstui.sim.node import SimNode

from .conftest import Stranger
from .programs import lives, lying_daemon, mpstui, roots_process


def _logs(stranger: Stranger, clients: dict[int, int]) -> Path:
    """Logs of the stranger's own daemon that tell of three faults, each among these processes of these users."""
    control, server, number = [], [], os.getpid()
    for i in range(3):
        when = time.strftime("%Y-%m-%d %H:%M:%S.000", time.gmtime(time.time() - 600 + 100 * i))
        server.append(f"[{when} Server {number}] Server has started")
        for pid, uid in clients.items():
            control.append(f"[{when} Control {number}] NEW CLIENT {pid} from user {uid}: Server already exists")
            server.append(f"[{when} Server {number}] Client {{PID: {pid}, Context ID: 0}} connected")
        named = next(iter(clients))
        server.append(f"[{when} Server {number}] Client {{PID: {named}, Context: 1}} encountered a fatal GPU error.")
        server.append(f"[{when} Server {number}] Server is handling a fatal GPU error.")
    folder = stranger.home / "logs"
    stranger.run("mkdir", folder)
    stranger.run("tee", folder / "control.log", input="\n".join(control) + "\n")
    stranger.run("tee", folder / "server.log", input="\n".join(server) + "\n")
    return folder


def test_a_strangers_logs_make_no_suspects_of_others(stranger: Stranger, bystander: Stranger) -> None:
    victim = bystander.start("sleep", "600")
    own = stranger.start("sleep", "600")
    with roots_process() as of_root:
        _logs(stranger, {victim.pid: bystander.uid, of_root.pid: 0, own.pid: stranger.uid})
        lying_daemon(stranger, stranger.home / "p", clients=[victim.pid, of_root.pid, own.pid], status="FAULT")
        ranked = json.loads(mpstui("suspects", "--json", "--pipe-dir", stranger.home / "p", TZ="UTC").stdout)
        lines = mpstui("events", "--json", "--all", "--pipe-dir", stranger.home / "p", TZ="UTC").stdout.splitlines()
        assert lives(victim)
    told = [json.loads(line) for line in lines]
    faults = [event for event in told if event["kind"] == "fatal_fault"]
    assert len(faults) == 3
    assert {one["uid"] for fault in faults for one in fault["suspects"]} <= {None, stranger.uid}
    assert {event["uid"] for event in told} <= {None, stranger.uid}
    assert {each["uid"] for each in ranked["suspects"]} <= {stranger.uid}, ranked


def test_a_log_with_a_hole_is_read_in_the_time_of_what_is_in_it(stranger: Stranger) -> None:
    folder = _logs(stranger, {1: stranger.uid})
    for name in ("control.log", "server.log"):
        stranger.run("truncate", "-s", "1T", folder / name)
        stranger.run("sh", "-c", f"printf '%s\\n' '[2026-11-21 00:00:00.000 Other 1] Startup' >> {name}", cwd=folder)
    lying_daemon(stranger, stranger.home / "p", clients=[])
    done = mpstui("events", "--all", "--json", "--pipe-dir", stranger.home / "p", TZ="UTC", timeout=120)
    assert done.returncode == 0, done.stderr
    assert sum('"fatal_fault"' in line for line in done.stdout.splitlines()) == 3
    log = LogFile(folder / "server.log")
    try:
        assert log.whole_lines_end() == (folder / "server.log").stat().st_size
    finally:
        log.close()


def test_a_daemon_that_claims_more_clients_than_there_can_be_is_not_looked_after(stranger: Stranger) -> None:
    """Each of a hundred thousand would be looked up in /proc and shown: `status` took a minute."""
    lying_daemon(stranger, stranger.home / "p", clients=list(range(1, 1 + 2 * MOST_CLIENTS)), ps=False)
    said = json.loads(mpstui("status", "--json", "--pipe-dir", stranger.home / "p").stdout)
    assert [c for d in said["daemons"] for s in d["servers"] for c in s["clients"]] == []
    assert "cannot be true" in said["daemons"][0]["health_detail"]


HOLDS = """
import os, socket, sys
held = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
held.connect(sys.argv[1])
held.set_inheritable(True)
os.execv(sys.argv[2], ["nvidia-cuda-mps-control"])
"""


@pytest.mark.skipif(not os.path.exists("/usr/bin/su"), reason="no setuid program that waits is here")
def test_what_a_stranger_does_with_a_setuid_program_is_not_roots(stranger: Stranger, roots: Stranger) -> None:
    """It waits for a password for as long as he likes, and was root's session and root's server."""
    lying_daemon(roots, roots.home / "p", clients=[])
    names = [stranger.home / name for name in ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server")]
    for name in names:
        name.symlink_to("/usr/bin/su")
    (roots.home / "p" / "control").chmod(0o666)
    holds = stranger.start_python(HOLDS, roots.home / "p" / "control", names[0], stdin=subprocess.PIPE)
    serves = stranger.start(names[1], stdin=subprocess.PIPE)
    for each in (holds, serves):
        assert each.stdout is not None
        assert each.stdout.read(9) == "Password:"
    sessions: list[HeldSession] = []
    # A process whose words do not come at once, as on a busy machine, is left out of a look.
    eventually(lambda: sessions.extend(find_sessions(roots.home / "p")) or sessions)
    (session,) = sessions
    assert (session.holder.pid, session.holder.uid) == (holds.pid, stranger.uid)
    strays = {each.pid: each.uid for each in gather(Snapshot(0.0), (), ("true",)).strays}
    assert strays[serves.pid] == stranger.uid


SESSION = """
import socket, sys
one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
one.connect(sys.argv[1] + "/control")
one.send(b"UI ")
print("ready" if one.recv(9) else "refused", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_who_holds_roots_daemon_is_ended_whatever_directory_his_process_names(stranger: Stranger, crowd: Path) -> None:
    """His connection is seen by the kernel's word; his environment is his, and led away from it: root was told that it
    is a session with another daemon, and could not end it."""
    program = stranger.home / "nvidia-cuda-mps-control"
    program.write_text(SESSION)
    with SimNode.start(crowd / "mine" / "p", multiuser=True) as node:
        env = {"CUDA_MPS_PIPE_DIRECTORY": os.fspath(stranger.home)}
        held = stranger.start(stranger.interpreter, "-I", "-S", program, node.pipe_dir, env=env, stdin=subprocess.PIPE)
        assert held.stdout is not None
        assert held.stdout.readline() == "ready\n"
        done = mpstui("unblock", "--yes", "--pipe-dir", node.pipe_dir, timeout=300)
        assert done.returncode == 0, done.stderr
        assert held.wait(60) < 0
