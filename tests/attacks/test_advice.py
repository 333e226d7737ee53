"""What root is told of other users' links, files and daemons: no command to follow, nobody to end, and no alarm."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mpstui.system.procfs import user_name

from .conftest import Stranger
from .programs import lying_daemon, mpstui


@pytest.mark.parametrize("target", ["nowhere", "etc"])
def test_no_command_is_offered_that_follows_a_strangers_link(stranger: Stranger, crowd: Path, target: str) -> None:
    link = crowd / "mps"
    stranger.run("ln", "-s", "/etc" if target == "etc" else "/var/lib/nowhere-of-his", link)
    done = mpstui("status", "--pipe-dir", link)
    assert "nvidia-cuda-mps-control -d" not in done.stdout + done.stderr


def test_of_a_strangers_directory_without_a_daemon_no_daemon_is_told(stranger: Stranger) -> None:
    stranger.run("touch", stranger.home / "control")
    told = mpstui("status", "--pipe-dir", stranger.home).stdout
    assert f"belongs to {user_name(stranger.uid)}, and control in it say nothing" in told
    assert "The daemon belongs" not in told
    assert "start one in a directory of your own" in told


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o1775])
def test_nor_in_one_that_others_may_write_to(crowd: Path, mode: int) -> None:
    (crowd / "mps").mkdir()
    (crowd / "mps").chmod(mode)
    told = mpstui("status", "--pipe-dir", crowd / "mps")
    assert "nvidia-cuda-mps-control -d" not in told.stdout + told.stderr


def test_a_link_of_a_strangers_in_a_shared_directory_of_roots(crowd: Path, stranger: Stranger) -> None:
    stranger.run("mkfifo", crowd / "log")
    stranger.run("ln", "-s", "/etc/shadow", crowd / "nvidia-cuda-mps-control.pid")
    done = mpstui("status", "--pipe-dir", crowd)
    assert "nvidia-cuda-mps-control -d" not in done.stdout + done.stderr


@pytest.mark.usefixtures("usual_deadline")
def test_a_silent_daemon_of_a_strangers_does_not_advise_an_end(stranger: Stranger) -> None:
    lying_daemon(stranger, stranger.home / "p", clients=[], deaf=True)
    done = mpstui("status", "--pipe-dir", stranger.home / "p")
    assert "ending the client that it waits for" not in done.stdout + done.stderr
    assert f"The daemon belongs to UID {stranger.uid}: leave it to its owner" in done.stdout


@pytest.mark.usefixtures("usual_deadline")
def test_a_silent_daemon_of_a_strangers_does_not_fail_roots_status(stranger: Stranger, roots: Stranger) -> None:
    lying_daemon(roots, roots.home / "p", clients=[], server=os.getpid())
    lying_daemon(stranger, stranger.home / "p", clients=[], deaf=True)
    done = mpstui("status", "--json", CUDA_MPS_PIPE_DIRECTORY="")
    healths = {d["pipe_dir"]: d["health"] for d in json.loads(done.stdout)["daemons"]}
    assert healths[str(roots.home / "p")] == "ok"
    assert done.returncode == 0, done.stderr


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
