"""What root is told of other users' links, files and daemons: no command to follow, nobody to end, and no alarm."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from mpstui import cli
from mpstui.core.model import Daemon
from mpstui.core.trust import whose_word
from mpstui.export.webconfig import WebConfigError, load
from mpstui.observe.discovery import discover, find_speaker
from mpstui.system.procfs import user_name

from .conftest import Stranger
from .programs import BINARY, alone, lying_daemon, mpstui, roots_process
from .test_screen import Accusation


@pytest.mark.parametrize("target", ["nowhere", "etc"])
def test_no_command_is_offered_that_follows_a_strangers_link(stranger: Stranger, crowd: Path, target: str) -> None:
    link = crowd / "mps"
    stranger.run("ln", "-s", "/etc" if target == "etc" else "/var/lib/nowhere-of-his", link)
    done = mpstui("status", "--pipe-dir", link)
    assert "nvidia-cuda-mps-control -d" not in done.stdout + done.stderr


def test_of_a_strangers_directory_without_a_daemon_no_daemon_is_told(stranger: Stranger) -> None:
    stranger.run("touch", stranger.home / "control")
    told = mpstui("status", "--pipe-dir", stranger.home).stdout
    assert f"belongs to {user_name(stranger.uid)}, so its files (control) prove nothing" in told
    assert "The daemon belongs" not in told
    assert "start one in a directory of your own" in told


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o1775])
def test_nor_in_one_that_others_may_write_to(crowd: Path, mode: int) -> None:
    (crowd / "mps").mkdir()
    (crowd / "mps").chmod(mode)
    told = mpstui("status", "--pipe-dir", crowd / "mps")
    assert "nvidia-cuda-mps-control -d" not in told.stdout + told.stderr


@pytest.mark.parametrize("whose", ["his", "root's"])
def test_a_link_of_a_strangers_leads_to_no_configuration(crowd: Path, stranger: Stranger, whose: str) -> None:
    """The web configuration that root names: with the stranger's link he chose which of root's files it is, and when
    it is another one."""
    (config := crowd / "roots.yml").write_text("basic_auth_users: {}\n")
    link = crowd / "web.yml"
    stranger.run("ln", "-s", config, link) if whose == "his" else link.symlink_to(config)
    if whose == "root's":
        assert load(link).users == {}
        return
    with pytest.raises(WebConfigError, match=f"is a link of UID {stranger.uid}'s"):
        load(link)


def test_a_link_of_a_strangers_in_a_shared_directory_of_roots(crowd: Path, stranger: Stranger) -> None:
    stranger.run("mkfifo", crowd / "log")
    stranger.run("ln", "-s", "/etc/shadow", crowd / "nvidia-cuda-mps-control.pid")
    done = mpstui("status", "--pipe-dir", crowd)
    assert "nvidia-cuda-mps-control -d" not in done.stdout + done.stderr


def test_nor_in_one_of_roots_that_a_strangers_group_may_write_to(crowd: Path, stranger: Stranger) -> None:
    (crowd / "mps").mkdir()
    os.chown(crowd / "mps", 0, stranger.uid)
    (crowd / "mps").chmod(0o2770)
    (place,) = discover((crowd / "mps",))
    assert f"{crowd}/mps can be changed by the group {stranger.uid}" in place.remedy
    assert "nvidia-cuda-mps-control -d" not in place.remedy


def test_nor_behind_a_link_of_roots_that_leads_through_a_strangers_directory(crowd: Path, stranger: Stranger) -> None:
    stranger.run("ln", "-s", "/etc", stranger.home / "x")
    (crowd / "mps").symlink_to(stranger.home / "x")
    (place,) = discover((crowd / "mps",))
    assert f"{stranger.home} belongs to {user_name(stranger.uid)}" in place.remedy
    assert "nvidia-cuda-mps-control -d" not in place.remedy


def test_a_strangers_daemon_in_a_directory_of_roots_is_the_strangers(stranger: Stranger, crowd: Path) -> None:
    """By no name that tells it, in one that is open to everybody, as a daemon leaves the directory that it makes."""
    (crowd / "mps").mkdir()
    (crowd / "mps").chmod(0o777)
    server = stranger.start("sleep", "600").pid
    pose = lying_daemon(stranger, crowd / "mps", called="x.py", mode=0, clients=[], server=server, status="FAULT")
    for mode in (0o1777, 0o777):
        (crowd / "mps").chmod(mode)
        (place,) = discover((crowd / "mps",))
        assert (place.daemon and place.daemon.pid, place.uid, whose_word(place, 0)) == (
            pose.pid,
            stranger.uid,
            stranger.uid,
        )
    told = json.loads(mpstui("status", "--json", "--pipe-dir", crowd / "mps").stdout)["problems"]
    (fault,) = [each for each in told if each["subject"] == f"server {server}"]
    assert (fault["severity"], fault["uid"]) == ("info", stranger.uid)
    assert fault["remedy"] == f"The daemon belongs to UID {stranger.uid}: leave it to its owner."


def test_what_a_strangers_link_in_the_place_of_roots_socket_answers_is_the_strangers(
    stranger: Stranger, crowd: Path
) -> None:
    """Nobody's daemon it is to send a change to, and the stranger's to listen to."""
    (crowd / "mps").mkdir()
    (crowd / "mps").chmod(0o777)
    stranger.run("ln", "-s", stranger.home / "p" / "control", crowd / "mps" / "control")
    found = find_speaker(crowd / "mps")
    assert found.uid is None
    assert whose_word(Daemon(crowd / "mps", uid=0, speaker=found), 0) == stranger.uid


@pytest.mark.parametrize("lost", [False, True])
def test_why_says_nothing_of_roots_process_on_a_strangers_word(stranger: Stranger, lost: bool) -> None:
    with roots_process() as victim:
        logs = Accusation(stranger, victim.pid, 0)
        if lost:
            logs.write("control.log", 20, f"Server {logs.server} exited with status 1")
        server, clients = (0, []) if lost else (logs.server, [victim.pid])
        lying_daemon(stranger, stranger.home / "p", server=server, clients=clients)
        told = mpstui("why", str(victim.pid), "--pipe-dir", stranger.home / "p").stdout
    assert "it waits in" not in told
    assert "its server" not in told
    assert "End its process" not in told
    assert "Start it as that user" not in told


@pytest.mark.slow
@pytest.mark.usefixtures("usual_deadline")
def test_a_silent_daemon_of_a_strangers_does_not_advise_an_end(stranger: Stranger) -> None:
    lying_daemon(stranger, stranger.home / "p", clients=[], deaf=True)
    done = mpstui("status", "--pipe-dir", stranger.home / "p")
    assert "ending the client that it waits for" not in done.stdout + done.stderr
    assert f"The daemon belongs to UID {stranger.uid}: leave it to its owner" in done.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("usual_deadline")
def test_a_silent_daemon_of_a_strangers_does_not_fail_roots_status(
    stranger: Stranger, roots: Stranger, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    lying_daemon(roots, roots.home / "p", clients=[], server=os.getpid())
    lying_daemon(stranger, stranger.home / "p", clients=[], deaf=True)
    alone(monkeypatch, stranger, roots)
    monkeypatch.setenv("MPSTUI_CONTROL_BINARY", str(BINARY))
    status = cli.main(["status", "--json"])
    out, err = capfd.readouterr()
    healths = {d["pipe_dir"]: d["health"] for d in json.loads(out)["daemons"]}
    assert healths == {str(roots.home / "p"): "ok", str(stranger.home / "p"): "blocked"}
    assert status == 0, err
    for each, named in ((roots, 0), (stranger, 4)):
        assert cli.main(["status", "--pipe-dir", str(each.home / "p")]) == named
    roots.end()
    shutil.rmtree(roots.home / "p")
    capfd.readouterr()
    assert cli.main(["status"]) == 3, "root has none: that a stranger's is deaf, or well, is nothing that root's has"
    assert "no daemon of root's, or of your own, runs here" in capfd.readouterr().err


@pytest.mark.usefixtures("usual_deadline")
def test_a_strangers_fault_is_the_strangers_and_nothing_wrong_with_roots_node(
    stranger: Stranger, roots: Stranger
) -> None:
    server = stranger.start("sleep", "600").pid
    lying_daemon(roots, roots.home / "p", clients=[], server=os.getpid())
    lying_daemon(stranger, stranger.home / "p", clients=[], server=server, status="FAULT")
    told = json.loads(mpstui("status", "--json", CUDA_MPS_PIPE_DIRECTORY="").stdout)["problems"]
    (fault,) = [each for each in told if each["subject"] == f"server {server}"]
    assert fault["text"].startswith(f"UID {stranger.uid}'s daemon says: A fatal GPU fault")
    assert (fault["severity"], fault["uid"]) == ("info", stranger.uid)
    assert fault["remedy"] == f"The daemon belongs to UID {stranger.uid}: leave it to its owner."
    found = json.loads(mpstui("doctor", "--json", CUDA_MPS_PIPE_DIRECTORY="").stdout)["findings"]
    verdicts = [each["verdict"] for each in found if each["subject"] == fault["subject"] and each["check"] == "faults"]
    assert verdicts == ["unknown"]
