"""Sockets and links that a stranger exchanges while root asks: nothing that he answers is root's daemon's word."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from deadline import usual

from mpstui import api
from mpstui.cli import main
from mpstui.cli.status import exit_status
from mpstui.control.answer import Answer, Outcome
from mpstui.core.trust import ANYBODY
from mpstui.doctor.health import NO_ANSWER, probe
from mpstui.observe import discovery
from mpstui.observe.discovery import DaemonProcess, discover, find_speaker, held, is_starting, not_usurped
from mpstui.observe.reducer import NodeState
from mpstui.system.procfs import process_key

from .conftest import Stranger
from .programs import BINARY, USURPS, lives, lying_daemon, mpstui, posing, roots_process, usurped

SOCKETS = r"""
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
pipe_dir, mine, pause = sys.argv[1:]
names = "control", "control_privileged"
for name in names:
    os.rename(os.path.join(mine, name), os.path.join(pipe_dir, name + ".x"))
print("ready", flush=True)
while True:
    time.sleep(float(pause))
    for name in names:
        path = os.path.join(pipe_dir, name).encode()
        libc.renameat2(-100, path, -100, path + b".x", 2)
"""
LINK = r"""
import os, sys, time
link, *leads_to = sys.argv[1:]
print("ready", flush=True)
while True:
    for to in leads_to:
        os.symlink(to, link + ".n")
        os.rename(link + ".n", link)
        time.sleep(0.03)
"""


@pytest.mark.parametrize("what", ["sockets", "link"])
def test_what_a_stranger_answers_is_not_the_word_of_roots_daemon(
    stranger: Stranger, roots: Stranger, crowd: Path, what: str
) -> None:
    """Root was told of a fault, and to end the clients hit by it, as said by his own daemon."""
    pipe_dir, theirs = crowd / "mps", stranger.home / "p"
    pipe_dir.mkdir()
    pipe_dir.chmod(0o777)  # as a daemon leaves the one that it makes
    server = stranger.start("sleep", "600").pid
    with roots_process() as victim:
        lying_daemon(roots, pipe_dir, clients=[victim.pid], server=os.getpid(), mode=0o777)
        lying_daemon(stranger, theirs, clients=[victim.pid], server=server, status="FAULT")
        if what == "link":
            asked = stranger.home / "link"
            flips = stranger.start_python(LINK, asked, pipe_dir, theirs)
        else:
            asked = pipe_dir
            flips = stranger.start_python(SOCKETS, pipe_dir, theirs, "0.03")
        assert flips.stdout is not None
        assert flips.stdout.readline() == "ready\n"
        for _ in range(6):
            told = mpstui("status", "--json", "--pipe-dir", asked, MPSTUI_CONTROL_DEADLINE=usual())
            problems = json.loads(told.stdout)["problems"] if told.stdout else []
            said = [each for each in problems if each["code"] in {"fault", "daemon_lies"}]
            assert all(each["uid"] in {stranger.uid, ANYBODY} for each in said), said
            assert not any("End the clients" in each["remedy"] for each in problems)


@pytest.mark.parametrize("first", ["root's", "his"])
def test_a_link_that_leads_elsewhere_meanwhile_joins_no_process_to_the_word_of_another_ones(
    stranger: Stranger, roots: Stranger, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """``daemon stop`` named root's process then, and sent ``quit`` to the stranger's daemon."""
    daemon = lying_daemon(roots, roots.home / "p", clients=[])
    his = lying_daemon(stranger, stranger.home / "p", clients=[])
    link, leads = stranger.home / "link", [roots.home / "p", stranger.home / "p"]
    if first == "his":
        leads.reverse()
    real = discovery._found

    def flips(*args: object) -> object:
        led_to(leads[1])
        found = real(*args)  # type: ignore[arg-type]
        led_to(leads[0])
        return found

    def led_to(there: Path) -> None:
        stranger.run("ln", "-sfn", there, link)

    led_to(leads[0])
    monkeypatch.setattr(discovery, "_found", flips)
    (place,) = discover((link,), env={})
    assert (place.pid, place.speaker.uid) in {(daemon.pid, None), (his.pid, stranger.uid), (his.pid, None)}, place
    assert place.speaker.steered
    assert "keep changing which directory its name leads to" in place.speaker.why
    monkeypatch.undo()
    assert [each.pid for each in discover((link,), env={})] == [daemon.pid if first == "root's" else his.pid]


@pytest.mark.parametrize("called", ["nvidia-cuda-mps-control", "python"])
def test_who_takes_the_place_of_roots_daemon_that_has_ended_is_not_its_life(
    stranger: Stranger, roots: Stranger, crowd: Path, called: str
) -> None:
    """A probe went on saying that root's daemon runs, which a stranger had put his own in the place of."""
    pipe_dir = crowd / "mps"
    pipe_dir.mkdir()
    pipe_dir.chmod(0o777)
    daemon = lying_daemon(roots, pipe_dir, clients=[], mode=0)
    assert mpstui("status", "--health", "--pipe-dir", pipe_dir).returncode == 0
    (pipe_dir / "control_lock").chmod(0o666)  # fact 42
    os.killpg(daemon.pid, signal.SIGKILL)
    daemon.wait(120)
    lying_daemon(stranger, pipe_dir, clients=[], mode=0, called=called)
    health = mpstui("status", "--health", "--pipe-dir", pipe_dir)
    assert (health.returncode, f"sockets of UID {stranger.uid}" in health.stderr) == (4, True), health
    meant = (
        f"If you want the daemon of UID {stranger.uid}, run mpstui as that user, or chown the directory to that user"
    )
    assert (meant in health.stderr, "is seen to run" in health.stderr) == (True, False), health
    status = mpstui("status", "--pipe-dir", pipe_dir)
    assert (status.returncode, meant in status.stderr) == (4, True), "status and the probe go by one rule"
    own = lying_daemon(stranger, stranger.home / "p", clients=[])
    assert mpstui("status", "--health", "--pipe-dir", stranger.home / "p").returncode == 0, own.pid
    assert mpstui("status", "--pipe-dir", stranger.home / "p").returncode == 0, own.pid


@pytest.mark.slow
@pytest.mark.parametrize("how", USURPS)
def test_who_takes_the_place_of_roots_daemon_is_told_of_and_does_not_make_it_his(
    stranger: Stranger, roots: Stranger, crowd: Path, how: str
) -> None:
    """In the directory as a daemon makes it anybody can. Root's node had no daemon then, its fault was his word, and
    that its directory is open was left to him to mend."""
    pipe_dir = crowd / "mps"
    daemon = usurped(roots, stranger, pipe_dir, how)
    told = mpstui("status", "--json", "--pipe-dir", pipe_dir, MPSTUI_CONTROL_DEADLINE=usual())
    (found,) = [each for each in json.loads(told.stdout)["problems"] if each["code"] == "daemon_usurped"]
    assert (told.returncode, found["severity"], found["uid"]) == (4, "error", None)
    assert f"Daemon {daemon.pid} of root runs here, but" in found["text"]
    assert f"UID {stranger.uid}" in found["text"]
    assert found["text"] in told.stderr
    health = mpstui("status", "--health", "--pipe-dir", pipe_dir)
    assert health.returncode == 4
    assert f"daemon {daemon.pid} runs, but" in health.stderr
    doctor = mpstui("doctor", "--json", "--pipe-dir", pipe_dir, MPSTUI_CONTROL_DEADLINE=usual())
    findings = [each for each in json.loads(doctor.stdout)["findings"] if str(pipe_dir) in str(each)]
    said = {(each["check"], each["verdict"]) for each in findings}
    assert {("answering", "error"), ("pipe_dir", "warning")} <= said
    node = [each for each in json.loads(doctor.stdout)["findings"] if each["subject"] == "node"]
    assert not any("is there" in each["evidence"] for each in node), "a daemon of root's is"
    client = roots.start("sleep", "600", env={"CUDA_MPS_PIPE_DIRECTORY": str(pipe_dir)})
    why = json.loads(
        mpstui("why", client.pid, "--json", "--pipe-dir", pipe_dir, MPSTUI_CONTROL_DEADLINE=usual()).stdout
    )
    (reason,) = [each for each in why["reasons"] if each["code"] in {"user", "usurped", "no_daemon", "no_variable"}]
    assert (reason["code"], reason["certainty"]) == ("usurped", "sure")
    assert f"daemon {daemon.pid} of root runs in {pipe_dir}, but" in reason["text"]
    assert f"mpstui daemon stop --force --pipe-dir {pipe_dir}" in reason["remedy"]
    elsewhere = roots.start("sleep", "600", env={"CUDA_MPS_PIPE_DIRECTORY": str(roots.home)})
    why = json.loads(
        mpstui("why", elsewhere.pid, "--json", "--pipe-dir", pipe_dir, MPSTUI_CONTROL_DEADLINE=usual()).stdout
    )
    assert "no daemon of root's" not in str(why)
    assert f"daemon {daemon.pid} of root runs in {pipe_dir}, but" in str(why)


@pytest.mark.parametrize("pause", ["0.03", "0.4"])
def test_health_sees_sockets_that_are_exchanged_again_and_again(
    stranger: Stranger, roots: Stranger, crowd: Path, pause: str
) -> None:
    """It looked once, and every other time root's own were there."""
    pipe_dir, theirs = crowd / "mps", stranger.home / "p"
    pipe_dir.mkdir()
    daemon = lying_daemon(roots, pipe_dir, clients=[], mode=0o777)
    assert mpstui("status", "--health", "--pipe-dir", pipe_dir).returncode == 0
    lying_daemon(stranger, theirs, clients=[])
    flips = stranger.start_python(SOCKETS, pipe_dir, theirs, pause)
    assert flips.stdout is not None
    assert flips.stdout.readline() == "ready\n"
    for _ in range(4):
        health = mpstui("status", "--health", "--pipe-dir", pipe_dir)
        assert (health.returncode, f"daemon {daemon.pid} runs, but" in health.stderr) == (4, True), health.stderr


@pytest.mark.parametrize("mode", [0o777, 0o755])
def test_a_daemon_whose_socket_is_not_there_is_told_of(
    stranger: Stranger, roots: Stranger, crowd: Path, mode: int
) -> None:
    """Commands of root's still reach it by the other one, and no client does."""
    pipe_dir = crowd / "mps"
    pipe_dir.mkdir()
    daemon = lying_daemon(roots, pipe_dir, clients=[], mode=mode)
    (stranger if mode & 0o002 else roots).run("mv", pipe_dir / "control", pipe_dir / "x")
    told = mpstui("status", "--json", "--pipe-dir", pipe_dir, MPSTUI_CONTROL_DEADLINE=usual())
    (found,) = [each for each in json.loads(told.stdout)["problems"] if each["code"] == "daemon_usurped"]
    assert (told.returncode, found["severity"], found["uid"]) == (4, "error", None)
    assert f"Daemon {daemon.pid} of root runs here, but its socket control is not there" in found["text"]
    assert ("an unknown user may have made up any answer" in found["text"]) is bool(mode & 0o002), "by whom"
    health = mpstui("status", "--health", "--pipe-dir", pipe_dir)
    assert (health.returncode, "its socket control is not there" in health.stderr) == (4, True)
    roots.run("mv", pipe_dir / "x", pipe_dir / "control")
    assert mpstui("status", "--pipe-dir", pipe_dir, MPSTUI_CONTROL_DEADLINE=usual()).returncode == 0
    roots.run("mv", pipe_dir / "control_privileged", pipe_dir / "x")
    health = mpstui("status", "--health", "--pipe-dir", pipe_dir)
    assert (health.returncode, "its socket control_privileged is not there" in health.stderr) == (4, True)
    told = mpstui("status", "--pipe-dir", pipe_dir, MPSTUI_CONTROL_DEADLINE=usual())  # root's commands come to no other
    assert (told.returncode, f"Daemon {daemon.pid} of root runs here, but" in told.stderr) == (4, True), told.stderr
    assert not any(word in told.stdout + told.stderr for word in ("stale", "Start a daemon")), told


OWN_FILES = {
    "its FIFO": ("mv $0/control $0/x; mv $0/log $0/control", "its socket control is not there"),
    "its other socket": (
        "mv $0/control $0/x; mv $0/control_privileged $0/control; mv $0/x $0/control_privileged",
        "its sockets control and control_privileged were exchanged",
    ),
    "its other socket alone": (
        "mv $0/control_privileged $0/control", "its socket control_privileged is not there",
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", OWN_FILES)
def test_what_is_roots_own_in_the_place_of_a_socket_is_none(
    stranger: Stranger, roots: Stranger, crowd: Path, how: str
) -> None:
    """In a directory as the daemon makes it a stranger renames root's files too: nothing of what is there is his."""
    pipe_dir, (command, said) = crowd / "mps", OWN_FILES[how]
    pipe_dir.mkdir()
    daemon = lying_daemon(roots, pipe_dir, clients=[], mode=0o777)
    (pipe_dir / "control_privileged").chmod(0o755)  # fact 42
    os.mkfifo(pipe_dir / "log")
    assert mpstui("status", "--health", "--pipe-dir", pipe_dir).returncode == 0
    stranger.run("sh", "-c", command, pipe_dir)
    health = mpstui("status", "--health", "--pipe-dir", pipe_dir)
    assert (health.returncode, f"daemon {daemon.pid} runs, but {said}" in health.stderr) == (4, True), health.stderr
    told = mpstui("status", "--pipe-dir", pipe_dir, MPSTUI_CONTROL_DEADLINE=usual())
    assert (told.returncode, said in told.stderr) == (4, True), told.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["control", "control_privileged"])
def test_another_daemon_of_roots_in_the_place_of_a_socket_does_not_speak_for_this_one(
    stranger: Stranger, roots: Stranger, crowd: Path, name: str
) -> None:
    """Both are root's: owners and modes are as they should be, and what the one said was shown as the other's."""
    pipe_dir, other = crowd / "mps", crowd / "other"
    with roots_process() as victim:
        pipe_dir.mkdir()
        other.mkdir()
        daemon = lying_daemon(roots, pipe_dir, clients=[], mode=0o777)
        lying_daemon(roots, other, clients=[victim.pid], mode=0o777)
        assert mpstui("status", "--health", "--pipe-dir", pipe_dir).returncode == 0
        assert mpstui("status", "--health", "--pipe-dir", other).returncode == 0
        stranger.run("mv", pipe_dir / name, pipe_dir / "x")
        stranger.run("mv", other / name, pipe_dir / name)
        said = f"its socket {name} is another process's"
        health = mpstui("status", "--health", "--pipe-dir", pipe_dir)
        assert (health.returncode, f"daemon {daemon.pid} runs, but {said}" in health.stderr) == (4, True), health.stderr
        told = mpstui("status", "--pipe-dir", pipe_dir, MPSTUI_CONTROL_DEADLINE=usual())
        assert (told.returncode, said in told.stderr, str(victim.pid) in told.stdout) == (4, True, False), told
        changed = mpstui("set", "client-priority", "1", "--pipe-dir", pipe_dir, MPSTUI_CONTROL_DEADLINE=usual())
        assert changed.returncode not in {0, 1}, "nothing is sent to the other one"
        ended = mpstui(
            "terminate", victim.pid, "--kill", "--yes", "--pipe-dir", pipe_dir, MPSTUI_CONTROL_DEADLINE=usual()
        )
        assert ended.returncode != 0
        assert os.path.exists(f"/proc/{victim.pid}")
        assert victim.poll() is None
        stopped = mpstui("daemon", "stop", "--force", "--yes", "--pipe-dir", pipe_dir, MPSTUI_CONTROL_DEADLINE=usual())
        assert (stopped.returncode, daemon.wait(60) < 0) == (0, True), stopped.stderr


BIND = """
import socket, sys
for name in sys.argv[1:]:
    socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).bind(name)
"""
SHUT_OFF = {
    "both are gone": "mv $0/control $0/x1; mv $0/control_privileged $0/x2",
    "both and the lock": "mv $0/control $0/x1; mv $0/control_privileged $0/x2; mv $0/control_lock $0/x3",
    "directories": "mv $0/control $0/x1; mv $0/control_privileged $0/x2; mkdir $0/control $0/control_privileged",
    "his own, and nobody listens": "mv $0/control $0/x1; mv $0/control_privileged $0/x2",
    "root's own, and nobody listens": "mv $0/control $0/x1; mv $0/control_privileged $0/x2; "
    "mv $1/control $1/control_privileged $0",
}


@pytest.mark.parametrize("how", SHUT_OFF)
def test_a_daemon_that_nobody_comes_to_runs_in_every_word_and_is_ended_as_a_process(
    stranger: Stranger, roots: Stranger, crowd: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stale, its files to be left to the stranger, and a daemon to be started in its place; its process could
    not be ended."""
    monkeypatch.setenv("MPSTUI_CONTROL_DEADLINE", usual())
    pipe_dir, dead = crowd / "mps", crowd / "dead"
    pipe_dir.mkdir()
    dead.mkdir()
    dead.chmod(0o777)
    roots.python(BIND, dead / "control", dead / "control_privileged")
    daemon = lying_daemon(roots, pipe_dir, clients=[], mode=0o777)
    stranger.run("sh", "-c", SHUT_OFF[how], pipe_dir, dead)
    if how.startswith("his"):
        stranger.python(BIND, pipe_dir / "control", pipe_dir / "control_privileged")
    named = ("--pipe-dir", pipe_dir)
    said = f"daemon {daemon.pid} of root runs in {pipe_dir}, but"
    health = mpstui("status", "--health", *named)
    assert (health.returncode, f"daemon {daemon.pid} runs, but" in health.stderr) == (4, True), health.stderr
    told = mpstui("status", "--json", *named)
    (found,) = [each for each in json.loads(told.stdout)["problems"] if each["code"].startswith("daemon_")]
    assert (told.returncode, found["code"], found["severity"], found["uid"]) == (4, "daemon_usurped", "error", None)
    assert "what answers" not in found["text"], "nobody does"
    assert mpstui("status", CUDA_MPS_PIPE_DIRECTORY=str(pipe_dir)).returncode == 4
    doctor = json.loads(mpstui("doctor", "--json", *named).stdout)["findings"]
    wrong = f"UID {stranger.uid}'s daemon", "leave it to its owner", "no daemon runs", "is not there yet"
    assert not [each for each in doctor if str(daemon.pid) in each["subject"] and any(w in str(each) for w in wrong)]
    client = roots.start("sleep", "600", env={"CUDA_MPS_PIPE_DIRECTORY": str(pipe_dir)})
    why = json.loads(mpstui("why", client.pid, "--json", *named).stdout)
    (reason,) = [each for each in why["reasons"] if each["code"] in {"user", "usurped", "no_daemon", "no_variable"}]
    assert (reason["code"], reason["certainty"], said in reason["text"]) == ("usurped", "sure", True)
    assert "what answers" not in str(why), "nobody does"
    started = mpstui("daemon", "start", *named)
    assert (started.returncode, said in started.stderr) == (6, True), started.stderr
    stopped = mpstui("daemon", "stop", "--yes", *named)
    assert (stopped.returncode, said in stopped.stderr, lives(daemon)) == (6, True, True), stopped.stderr
    forced = mpstui("daemon", "stop", "--force", "--yes", *named)
    assert (forced.returncode, lives(daemon)) == (0, False), forced.stderr
    assert not any(word in forced.stdout + forced.stderr for word in ("no daemon runs", "a daemon runs"))
    assert ("to another user" in forced.stdout + forced.stderr) is how.startswith(("his", "dir")), "what is there"


CLIENTS_GO_ON = "once its clients have ended"


@pytest.mark.parametrize("moved", ["control_privileged", "control"])
def test_why_is_sure_and_ends_work_only_where_no_program_comes_to_the_daemon(
    stranger: Stranger, roots: Stranger, crowd: Path, moved: str
) -> None:
    """Everybody's work went on by the one socket, and why was sure that no program comes to it."""
    pipe_dir = crowd / "mps"
    pipe_dir.mkdir()
    daemon = lying_daemon(roots, pipe_dir, clients=[], mode=0o777)
    stranger.run("mv", pipe_dir / moved, pipe_dir / "x")
    client = roots.start("sleep", "600", env={"CUDA_MPS_PIPE_DIRECTORY": str(pipe_dir)})
    told = mpstui("why", client.pid, "--json", "--pipe-dir", pipe_dir, MPSTUI_CONTROL_DEADLINE=usual()).stdout
    (reason,) = [each for each in json.loads(told)["reasons"] if each["code"] == "usurped"]
    comes = moved == "control_privileged"
    assert f"daemon {daemon.pid} of root runs in {pipe_dir}, but its socket {moved} is not there" in reason["text"]
    assert (reason["certainty"], "no program comes" in reason["text"]) == (
        ("possible", False) if comes else ("sure", True)
    )
    assert (CLIENTS_GO_ON in reason["remedy"]) is comes
    assert ("can still connect" in str(reason["evidence"])) is comes
    told = mpstui("status", "--json", "--pipe-dir", pipe_dir, MPSTUI_CONTROL_DEADLINE=usual())
    (found,) = [each for each in json.loads(told.stdout)["problems"] if each["code"] == "daemon_usurped"]
    assert (CLIENTS_GO_ON in found["remedy"], "can still connect" in found["text"]) == (comes, comes)
    assert "As root" in found["remedy"], "whoever reads it"


@pytest.mark.parametrize("name", ["control_privileged", "control"])
def test_a_socket_of_a_strangers_beside_roots_lock_hides_no_daemon_of_roots(
    stranger: Stranger, roots: Stranger, crowd: Path, name: str
) -> None:
    """Root's daemon was hidden, in another container or of another name, and its logs were lost."""
    pipe_dir, logs = crowd / "mps", roots.home / "logs"
    pipe_dir.mkdir()
    logs.mkdir()
    (logs / "control.log").touch()
    daemon = lying_daemon(roots, pipe_dir, clients=[], mode=0o777, logs=logs)
    stranger.run("mv", pipe_dir / name, pipe_dir / "x")
    his = stranger.start_python(f"{BIND}print('ready', flush=True)\nsys.stdin.read()", pipe_dir / name, stdin=-1)
    assert his.stdout is not None
    assert his.stdout.readline() == "ready\n"
    (place,) = discover((pipe_dir,), env={})
    assert (place.pid, place.log_dir, place.usurped(0), place.detail) == (daemon.pid, logs, True, "")
    health = mpstui("status", "--health", "--pipe-dir", pipe_dir)
    assert (health.returncode, f"daemon {daemon.pid} runs, but" in health.stderr) == (4, True), health.stderr


def test_a_daemon_that_has_no_socket_yet_is_starting(
    roots: Stranger, crowd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stale, and its socket gone, until it had bound it."""
    pipe_dir = crowd / "mps"
    pipe_dir.mkdir()
    monkeypatch.setattr(discovery, "STARTS_WITHIN", float("inf"))
    waits = "import sys\nprint('ready', flush=True)\nsys.stdin.read()"
    daemon = posing(roots, waits, roots.home / "young", pipe_dir)
    (place,) = discover((pipe_dir,), env={})
    assert (place.pid, place.starting, place.usurped(0)) == (daemon.pid, True, False)
    health = probe((pipe_dir,))
    assert (health.status, health.reason) == (
        NO_ANSWER,
        f"{pipe_dir}: daemon {daemon.pid} is starting: it does not have its sockets yet",
    )
    node = NodeState(euid=0)
    node.set_places([place])
    node.set_probe(pipe_dir, Answer("get_server_list", Outcome.ABSENT, message="No control daemon answers there."), 1.0)
    snapshot = node.snapshot(2.0)
    assert (snapshot.daemons[0].state_word, snapshot.daemons[0].runs, exit_status(snapshot)) == ("starting", True, 4)
    assert not [each for each in snapshot.problems if each.code.startswith("daemon_")]
    key = process_key(daemon.pid)
    assert key is not None
    monkeypatch.undo()
    ages = {now: is_starting(key, 1000.0, now) for now in (989.0, 1000.0, 1009.0, 1011.0)}
    assert ages == {989.0: False, 1000.0: True, 1009.0: True, 1011.0: False}


def test_a_daemon_whose_sockets_were_moved_away_is_not_starting(
    stranger: Stranger, roots: Stranger, crowd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe_dir = crowd / "mps"
    pipe_dir.mkdir()
    monkeypatch.setattr(discovery, "STARTS_WITHIN", float("inf"))
    lying_daemon(roots, pipe_dir, clients=[], mode=0o777)
    stranger.run("sh", "-c", SHUT_OFF["both are gone"], pipe_dir)
    (place,) = discover((pipe_dir,), env={})
    assert (place.starting, place.usurped(0)) == (False, True)


OWN_LINKS = {
    "relative": "mv $0/control $0/x; ln -s x $0/control",
    "absolute": "mv $0/control $0/x; ln -s $0/x $0/control",
    "one by another": "mv $0/control $0/x; ln -s x $0/y; ln -s y $0/control",
    "to another directory": "mv $0/control $1/x; ln -s $1/x $0/control",
    "the privileged one": "mv $0/control_privileged $0/x; ln -s x $0/control_privileged",
    "both": "for each in control control_privileged; do mv $0/$each $0/$each.x; ln -s $each.x $0/$each; done",
}


@pytest.mark.parametrize("mode", [0o755, 0o777])
@pytest.mark.parametrize("how", OWN_LINKS)
def test_a_link_of_roots_own_in_the_place_of_a_socket_is_what_it_leads_to(
    roots: Stranger, crowd: Path, how: str, mode: int
) -> None:
    """Whoever connects follows it. The daemon was cut off, and ended as such, with everybody's work."""
    pipe_dir = crowd / "mps"
    pipe_dir.mkdir()
    daemon = lying_daemon(roots, pipe_dir, clients=[], mode=mode)
    (pipe_dir / "control_privileged").chmod(0o755)  # fact 42
    roots.run("sh", "-c", OWN_LINKS[how], pipe_dir, roots.home)
    (place,) = discover((pipe_dir,), env={})
    assert (place.pid, place.usurped(0), place.starting) == (daemon.pid, False, False), place
    with held(pipe_dir) as folder:
        assert not_usurped(pipe_dir, folder, daemon.pid) == f"the sockets in {pipe_dir} are its own now"
    told = mpstui("status", "--json", "--pipe-dir", pipe_dir, MPSTUI_CONTROL_DEADLINE=usual())
    assert not [each for each in json.loads(told.stdout)["problems"] if each["code"] == "daemon_usurped"]
    assert mpstui("status", "--health", "--pipe-dir", pipe_dir).returncode == 0


YOUNG = """
import os, socket, sys
pipe, wait, order = os.environ["CUDA_MPS_PIPE_DIRECTORY"], sys.argv[2], sys.argv[3:]
listeners = []
def pause(at):
    if at == wait:
        print("ready", flush=True)
        sys.stdin.read()
for number, name in enumerate(order):
    path = os.path.join(pipe, name)
    if os.path.lexists(path): os.unlink(path)
    listeners.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    listeners[-1].bind(path)
    pause(f"bound {number}")
    listeners[-1].listen()
    pause(f"listens {number}")
"""


@pytest.mark.slow
@pytest.mark.parametrize("at", ["bound 0", "listens 0", "bound 1"])
@pytest.mark.parametrize("order", [("control", "control_privileged"), ("control_privileged", "control")])
@pytest.mark.parametrize(("stale", "mode"), [(False, 0o755), (True, 0o777)])
def test_a_daemon_that_does_not_listen_at_all_of_its_sockets_yet_is_starting(
    roots: Stranger,
    crowd: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    at: str,
    order: tuple[str, str],
    stale: bool,
    mode: int,
) -> None:
    """Those of the one before stay in their places, after quit too (fact 3): it was cut off, and ended as such."""
    pipe_dir = crowd / "mps"
    pipe_dir.mkdir()
    pipe_dir.chmod(mode)
    monkeypatch.setattr(discovery, "STARTS_WITHIN", float("inf"))
    if stale:
        roots.python(BIND, pipe_dir / "control", pipe_dir / "control_privileged")
    daemon = posing(roots, YOUNG, roots.home / "young", pipe_dir, words=(at, *order))
    (place,) = discover((pipe_dir,), env={})
    assert (place.pid, place.starting, place.usurped(0)) == (daemon.pid, True, False), place
    with held(pipe_dir) as folder:
        assert "was started a moment ago" in str(not_usurped(pipe_dir, folder, daemon.pid))
    monkeypatch.setenv("MPSTUI_CONTROL_BINARY", str(BINARY))
    monkeypatch.setenv("MPSTUI_CONTROL_DEADLINE", usual())
    for words in (("set", "client-priority", "1"), ("daemon", "stop", "--force", "--yes")):
        status = main([*words, "--pipe-dir", str(pipe_dir)])  # here, where it is young for as long as this takes
        said = capfd.readouterr().err
        assert (status, "the daemon is starting" in said, lives(daemon)) == (4, True, True), said
    monkeypatch.undo()
    monkeypatch.setattr(discovery, "STARTS_WITHIN", -1.0)
    assert not discover((pipe_dir,), env={})[0].starting, "it stays so"


def test_where_another_process_listens_in_its_place_a_young_daemon_is_not_starting(
    stranger: Stranger, roots: Stranger, crowd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe_dir = crowd / "mps"
    pipe_dir.mkdir()
    pipe_dir.chmod(0o777)
    monkeypatch.setattr(discovery, "STARTS_WITHIN", float("inf"))
    his = stranger.start_python(
        "import socket, sys\n"
        "ones = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for name in sys.argv[1:]]\n"
        "for one, name in zip(ones, sys.argv[1:]):\n    one.bind(name)\n    one.listen()\n"
        "print('ready', flush=True)\nsys.stdin.read()",
        pipe_dir / "control",
        stdin=-1,
    )
    assert his.stdout is not None
    assert his.stdout.readline() == "ready\n"
    posing(roots, YOUNG, roots.home / "young", pipe_dir, words=("listens 0", "control_privileged"))
    (place,) = discover((pipe_dir,), env={})
    assert (place.starting, place.usurped(0)) == (False, True), place


def test_what_is_in_a_young_daemons_directory_and_is_anothers_has_no_word_yet(
    stranger: Stranger, roots: Stranger, crowd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It listens nowhere there, and whose the directory is would have spoken for it."""
    pipe_dir = crowd / "mps"
    stranger.run("mkdir", pipe_dir)
    stranger.python(BIND, pipe_dir / "control", pipe_dir / "control_privileged")
    monkeypatch.setattr(discovery, "STARTS_WITHIN", float("inf"))
    assert find_speaker(pipe_dir).uid == stranger.uid
    daemon = posing(roots, YOUNG, roots.home / "young", pipe_dir, words=("bound 0", "another"))
    monkeypatch.setattr(discovery, "_daemon_of", lambda path, daemons: _one(daemons, daemon.pid))
    (place,) = discover((pipe_dir,), env={})
    assert (place.pid, place.starting, place.speaker.uid) == (daemon.pid, True, None), place


def _one(daemons: Sequence[DaemonProcess], pid: int) -> DaemonProcess:
    return next(each for each in daemons if each.key.pid == pid)


def test_a_daemon_that_is_just_ending_is_not_cut_off(
    roots: Stranger, crowd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes its sockets away first; one that is cut off is seen so twice."""
    pipe_dir = crowd / "mps"
    pipe_dir.mkdir()
    daemon = lying_daemon(roots, pipe_dir, clients=[], mode=0o777)
    roots.run("sh", "-c", "rm $0/control $0/control_privileged", pipe_dir)

    def ends(seconds: float) -> None:
        monkeypatch.undo()
        daemon.kill()
        daemon.wait(120)

    monkeypatch.setattr(discovery.time, "sleep", ends)
    (place,) = discover((pipe_dir,), env={})
    assert (place.state, place.daemon, place.usurped(0)) == ("absent", None, False)


def test_sockets_of_a_daemon_that_are_led_to_another_directory_are_listened_at(roots: Stranger, crowd: Path) -> None:
    """As containers have them: it was stale, with the advice to start one in its place."""
    lying_daemon(roots, crowd / "mps", clients=[])
    led = roots.home / "led"
    roots.run("sh", "-c", "mkdir $0; ln -s $1/control $1/control_privileged $0", led, crowd / "mps")
    (place,) = discover((led,), env={})
    assert (place.state, place.daemon) == ("running", None), place
    assert place.detail == f"what listens there is the daemon in {crowd / 'mps'}"
    assert place.remedy == f"name {crowd / 'mps'}: --pipe-dir {crowd / 'mps'}"
    assert mpstui("status", "--health", "--pipe-dir", led).returncode == 0
    led.chmod(0o777)
    (place,) = discover((led,), env={})
    assert place.state == "stale", "anybody may have put them there"
    assert place.detail.startswith(f"what listens there is the daemon in {crowd / 'mps'}; {led} can be changed by")
    assert mpstui("status", "--health", "--pipe-dir", led).returncode == 3


def test_a_strangers_sockets_in_a_directory_of_his_send_nobody_to_his_daemon(stranger: Stranger, crowd: Path) -> None:
    """Where others decide what is in a directory, what listens there is told only of root's daemons, or of one's own:
    root was sent to the stranger's, by name."""
    lying_daemon(stranger, crowd / "his", clients=[])
    led = stranger.home / "led"
    stranger.run("sh", "-c", "mkdir $0; ln -s $1/control $1/control_privileged $0", led, crowd / "his")
    (place,) = discover((led,), env={})
    assert (place.state, place.daemon) == ("stale", None), place
    assert "what listens there" not in place.detail, place
    assert not place.remedy.startswith("name "), place
    os.chown(led, 0, 0)
    os.chown(stranger.home, 0, 0)
    for name in ("control", "control_privileged"):
        os.chown(led / name, 0, 0, follow_symlinks=False)
    (place,) = discover((led,), env={})
    assert place.detail == f"what listens there is the daemon in {crowd / 'his'}", "root has put it there"


def test_a_service_users_daemon_that_nobody_has_named_is_no_fault_of_the_node(
    stranger: Stranger, crowd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a directory of root's that all may write to: who names that directory is told, who looks at all is not."""
    (crowd / "mps").mkdir()
    (crowd / "mps").chmod(0o777)
    lying_daemon(stranger, crowd / "mps", clients=[], mode=0, server=stranger.start("sleep", "600").pid)
    monkeypatch.setenv("MPSTUI_CONTROL_BINARY", str(BINARY))
    with api.open([crowd / "mps"]) as node:
        snapshot = node.snapshot()
    assert [daemon.health for daemon in snapshot.daemons] == ["ok"]
    assert [int(exit_status(snapshot, named=named)) for named in (True, False)] == [4, 0]
