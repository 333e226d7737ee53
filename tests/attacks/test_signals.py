"""A daemon speaks for its own user: what another user's says ends nobody else's process (attacks B and D)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from terminal import Terminal

from .conftest import Stranger
from .programs import BINARY, lives, lying_daemon, mpstui, roots_process


def kill(pid: int, pipe_dir: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return mpstui("terminate", str(pid), "--kill", "--yes", *more, "--pipe-dir", pipe_dir)


def test_root_does_not_end_a_process_of_root_on_a_strangers_word(stranger: Stranger) -> None:
    with roots_process() as victim:
        lying_daemon(stranger, stranger.home / "p", clients=[victim.pid])
        done = kill(victim.pid, stranger.home / "p")
        assert done.returncode == 6, done.stderr
        assert lives(victim)
        assert f"process {victim.pid} belongs to root" in done.stderr
        assert "what it says of this one is not true" in done.stderr
        assert not (stranger.home / "p" / "heard").read_text().count("terminate_client"), "before anything is sent"


def test_root_does_not_end_another_users_process_on_a_strangers_word(stranger: Stranger, bystander: Stranger) -> None:
    victim = bystander.start("sleep", "600")
    lying_daemon(stranger, stranger.home / "p", clients=[victim.pid])
    done = kill(victim.pid, stranger.home / "p")
    assert done.returncode == 6, done.stderr
    assert lives(victim)
    assert kill(victim.pid, stranger.home / "p", "--owner", str(stranger.uid)).returncode == 6
    assert lives(victim)


def test_an_admin_who_names_the_owner_may(stranger: Stranger, bystander: Stranger) -> None:
    victim = bystander.start("sleep", "600")
    lying_daemon(stranger, stranger.home / "p", clients=[victim.pid])
    done = kill(victim.pid, stranger.home / "p", "--owner", str(bystander.uid))
    assert done.returncode == 0, done.stderr
    assert victim.wait(60) < 0


def test_a_users_daemon_may_speak_for_his_own_processes(stranger: Stranger) -> None:
    mine = stranger.start("sleep", "600")
    lying_daemon(stranger, stranger.home / "p", clients=[mine.pid])
    done = kill(mine.pid, stranger.home / "p")
    assert done.returncode == 0, done.stderr
    assert mine.wait(60) < 0


@pytest.mark.parametrize("ids", [(1, 1, 0), (1, 0, 1), (0, 1, 1)], ids=["saved", "effective", "real"])
def test_a_process_that_has_one_id_of_root_is_not_his(stranger: Stranger, ids: tuple[int, int, int]) -> None:
    """As a setuid program has it, and one that has dropped its privileges for a while."""
    words = ", ".join(str(stranger.uid * each) for each in ids)
    with roots_process(f"os.setresuid({words})") as victim:
        lying_daemon(stranger, stranger.home / "p", clients=[victim.pid])
        done = kill(victim.pid, stranger.home / "p")
        assert done.returncode == 6, done.stderr
        assert lives(victim)


def test_a_thread_of_root_in_a_process_of_his_makes_it_not_his(stranger: Stranger) -> None:
    source = (
        "import ctypes, threading\n"
        "go, stop = threading.Event(), threading.Event()\n"
        "threading.Thread(target=lambda: (go.set(), stop.wait()), daemon=True).start(); go.wait()\n"
        f"ctypes.CDLL(None).syscall(117, {stranger.uid}, {stranger.uid}, {stranger.uid})"
    )
    with roots_process(source) as victim:
        assert os.stat(f"/proc/{victim.pid}").st_uid == stranger.uid
        lying_daemon(stranger, stranger.home / "p", clients=[victim.pid])
        assert kill(victim.pid, stranger.home / "p").returncode == 6
        assert lives(victim)


def test_a_directory_that_a_stranger_can_exchange_speaks_for_nobody(stranger: Stranger) -> None:
    """Root's sockets and directory below one of the stranger's: he can put his own in their place."""
    as_root = Stranger(0, stranger.home)
    as_root.interpreter = stranger.interpreter
    with roots_process() as victim:
        try:
            lying_daemon(as_root, stranger.home / "of-root" / "p", clients=[victim.pid])
            assert (stranger.home / "of-root" / "p" / "control").stat().st_uid == 0
            done = kill(victim.pid, stranger.home / "of-root" / "p")
        finally:
            as_root.end()
        assert done.returncode == 6, done.stderr
        assert lives(victim)
        assert "mpstui ends no process for this daemon" in done.stderr


def test_the_word_of_the_daemon_whose_client_it_is_comes_before_a_strangers(
    stranger: Stranger, bystander: Stranger
) -> None:
    """Both name the process; the stranger's is looked at first."""
    mine = bystander.start("sleep", "600")
    lying_daemon(stranger, stranger.home / "p", clients=[mine.pid])
    lying_daemon(bystander, bystander.home / "p", clients=[mine.pid])
    done = mpstui(
        "terminate",
        str(mine.pid),
        "--kill",
        "--yes",
        "--pipe-dir",
        stranger.home / "p",
        "--pipe-dir",
        bystander.home / "p",
    )
    assert done.returncode == 0, done.stderr
    assert mine.wait(60) < 0
    assert "terminate_client" not in (stranger.home / "p" / "heard").read_text()


def test_status_says_that_such_a_daemon_lies(stranger: Stranger) -> None:
    with roots_process() as victim:
        lying_daemon(stranger, stranger.home / "p", clients=[victim.pid])
        said = json.loads(mpstui("status", "--json", "--pipe-dir", stranger.home / "p").stdout)
    (problem,) = [p for p in said["problems"] if p["code"] == "daemon_lies"]
    assert str(victim.pid) in problem["text"]
    (daemon,) = said["daemons"]
    assert daemon["speaks_for"] == str(stranger.uid)


def test_doctor_advises_nothing_on_a_strangers_lie(stranger: Stranger, bystander: Stranger) -> None:
    """It said: run it as root."""
    lying_daemon(stranger, stranger.home / "p", clients=[bystander.start("sleep", "600").pid])
    said = json.loads(mpstui("doctor", "--json", "--pipe-dir", stranger.home / "p").stdout)
    (about,) = [found for found in said["findings"] if found["check"] == "users"]
    assert about["verdict"] == "unknown"
    assert about["evidence"].startswith(f"UID {stranger.uid}'s daemon: ")
    assert f"names clients of UID {bystander.uid}" in about["evidence"]
    assert "which it cannot have: its answers are false" in about["evidence"]
    assert "root" not in about["remedy"]


@pytest.mark.slow
@pytest.mark.parametrize("typed", ["", "y", "yes", "{pid}", "{pid} root", "{pid} {uid} x", "{uid} {pid}"])
def test_at_a_terminal_pid_and_owner_are_asked_for_and_nothing_else_will_do(
    stranger: Stranger, bystander: Stranger, typed: str
) -> None:
    victim = bystander.start("sleep", "600")
    lying_daemon(stranger, stranger.home / "p", clients=[victim.pid])
    answer = typed.format(pid=victim.pid, uid=bystander.uid)
    with asked(victim.pid, stranger.home / "p") as terminal:
        terminal.send(f"{answer}\r")
        assert terminal.wait_exit() == 6, terminal.text
        assert "nothing was sent" in terminal.text
    assert lives(victim)
    assert "terminate_client" not in (stranger.home / "p" / "heard").read_text()


def test_at_a_terminal_whoever_types_pid_and_owner_may(stranger: Stranger, bystander: Stranger) -> None:
    victim = bystander.start("sleep", "600")
    lying_daemon(stranger, stranger.home / "p", clients=[victim.pid])
    with asked(victim.pid, stranger.home / "p") as terminal:
        text = " ".join(terminal.text.split())
        assert (
            f"process {victim.pid} belongs to UID {bystander.uid}; a daemon of UID {stranger.uid} is trusted for"
            in text
        )
        assert "what it says of this one is not true" in text
        terminal.send(f" {victim.pid}  {bystander.uid}\r")
        assert terminal.wait_exit() == 0, terminal.text
    assert victim.wait(60) < 0


@contextmanager
def asked(pid: int, pipe_dir: Path) -> Iterator[Terminal]:
    """``terminate --kill`` in a terminal of its own, when it has asked."""
    environment = {"MPSTUI_CONTROL_BINARY": str(BINARY)}
    argv = [sys.executable, "-m", "mpstui", "terminate", str(pid), "--kill", "--pipe-dir", os.fspath(pipe_dir)]
    with Terminal(argv, environment=environment, columns=400) as terminal:
        terminal.wait_for("PID and owner: ")
        yield terminal


def test_status_says_that_a_server_of_somebody_elses_is_none_of_its(stranger: Stranger) -> None:
    with roots_process() as victim:
        lying_daemon(stranger, stranger.home / "p", server=victim.pid, clients=[])
        said = json.loads(mpstui("status", "--json", "--pipe-dir", stranger.home / "p").stdout)
    (problem,) = [p for p in said["problems"] if p["code"] == "daemon_lies"]
    assert f"names process {victim.pid} of root as its server" in problem["text"]


def test_a_users_daemon_has_no_server_for_anybody_else(stranger: Stranger, bystander: Stranger) -> None:
    """It was sent to him, and “was asked for”."""
    lying_daemon(stranger, stranger.home / "p", clients=[], server=stranger.start("sleep", "600").pid)
    for uid in (bystander.uid, 0):
        done = mpstui("start-server", str(uid), "--pipe-dir", stranger.home / "p")
        assert done.returncode == 6, done
        assert f"a daemon of UID {stranger.uid} can have servers of that user alone" in done.stderr
    assert "start_server" not in (stranger.home / "p" / "heard").read_text()
    lying_daemon(stranger, stranger.home / "q", clients=[], server=stranger.start("sleep", "600").pid)
    assert "is running already" in mpstui("start-server", str(stranger.uid), "--pipe-dir", stranger.home / "q").stderr
