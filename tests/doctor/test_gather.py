"""Facts of this machine and of a simulated node; binaries that hang, lie or are not there."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from mpstui.cli import main
from mpstui.cli.doctor import summary
from mpstui.core.model import Daemon, Snapshot
from mpstui.doctor import checkup
from mpstui.doctor.checkup import gather
from mpstui.observe.discovery import DaemonProcess, Place


def binary(folder, text):
    path = folder / "nvidia-cuda-mps-control"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_the_version_is_what_the_binary_says(tmp_path):
    text = 'echo "CUDA MPS Control for Linux/Unix/QNX. Binary version: 13000"'
    assert gather(Snapshot(0.0), (), (binary(tmp_path, text),)).binary.version == "13000"


@pytest.mark.parametrize("text", ["exit 3", "echo nonsense", "head -c 100000 /dev/zero"])
def test_a_binary_that_says_something_else_has_no_version(tmp_path, text):
    found = gather(Snapshot(0.0), (), (binary(tmp_path, text),)).binary
    assert found.version is None
    assert found.path


@pytest.mark.slow
def test_a_binary_that_hangs_is_not_waited_for(tmp_path, usual_deadline, monkeypatch):
    monkeypatch.setattr(checkup, "_VERSION_SECONDS", 0.05)
    found = gather(Snapshot(0.0), (), (binary(tmp_path, "exec sleep 60"),)).binary
    assert "has not answered in" in found.trouble


def test_no_binary_and_a_directory_that_is_not_there(tmp_path):
    found = gather(Snapshot(0.0), (Place(tmp_path / "none", "absent", tmp_path / "logs"),), ("no-such-binary",))
    assert found.binary.path is None
    (place,) = found.directories
    assert (place.mode, place.owner) == (None, None)
    assert place.filesystem
    assert all(log.trouble for log in found.logs)


def test_a_log_that_is_a_fifo_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "control.log")
    found = gather(Snapshot(0.0), (Place(tmp_path, "running", tmp_path),), ("true",))
    assert "not a regular file" in found.logs[0].trouble


def test_a_server_log_that_is_still_to_come_is_no_trouble(tmp_path):
    (tmp_path / "control.log").write_text("x\n")
    found = gather(Snapshot(0.0), (Place(tmp_path, "running", tmp_path),), ("true",))
    assert [(log.path.name, log.trouble) for log in found.logs] == [("control.log", None)]


@pytest.mark.slow
def test_on_a_simulated_node_it_is_complete_and_sets_nothing(capsys):
    status = main(["--demo", "doctor", "--json"])
    said = json.loads(capsys.readouterr().out)
    assert (said["schema"], said["source"]) == (1, "simulated")
    found = {finding["check"]: finding["verdict"] for finding in said["findings"]}
    assert found.keys() >= {
        *("driver", "binary", "pipe_dir", "logs", "answering", "faults", "contexts", "outside", "users", "mig"),
        *("compute_mode", "persistence", "visible_devices", "shm", "open_files", "memory_limits", "percentages"),
        *("shared_device", "stray"),
    }
    assert list(said["findings"][0]) == ["check", "verdict", "subject", "evidence", "remedy"]
    assert status == (1 if said["verdict"] in {"warning", "error"} else 0)
    assert found["binary"] == "ok"


@pytest.mark.slow
def test_a_drill_is_found(capsys):
    assert main(["--demo=stale", "doctor"]) == 1
    out = capsys.readouterr().out
    assert "SIMULATED" in out
    assert "lost the server" in out
    assert re.search(r"^0 errors, \d+ warnings, \d+ unknown, \d+ ok$", out, re.M)


def test_one_finding_is_not_told_as_several():
    said = summary({"ok": 27, "unknown": 0, "warning": 1, "error": 1})
    assert said == "1 error, 1 warning, 0 unknown, 27 ok"


def _server(folder: Path) -> subprocess.Popen[bytes]:
    """A program of the server's name that does nothing, and whose parent is this one."""
    program = folder / "nvidia-cuda-mps-server"
    shutil.copy(shutil.which("sleep") or "sleep", program)
    return subprocess.Popen([program, "600"], env={"CUDA_MPS_PIPE_DIRECTORY": os.fspath(folder)})


def test_a_server_without_a_daemon_is_found_but_not_beside_another_node_that_is_simulated(tmp_path):
    """Under load the doctor of a simulated node found the server of another test, whose daemon had just ended."""
    own = Snapshot(0.0, source="simulated", daemons=(Daemon(tmp_path),))
    other = Snapshot(0.0, source="simulated", daemons=(Daemon(tmp_path / "other"),))
    server = _server(tmp_path)
    try:
        there = [
            server.pid in {one.pid for one in gather(of, (), ("true",)).strays} for of in (Snapshot(0.0), own, other)
        ]
    finally:
        server.kill()
        server.wait()
    assert there == [True, True, False]


def test_a_server_that_comes_while_it_looks_has_a_daemon_that_came_too(tmp_path, monkeypatch):
    servers = []

    def started_meanwhile() -> list[DaemonProcess]:
        servers.append(_server(tmp_path))
        return []

    monkeypatch.setattr(checkup, "running_daemons", started_meanwhile)
    found = gather(Snapshot(0.0), (), ("true",)).strays
    for server in servers:
        server.kill()
        server.wait()
    assert servers
    assert servers[0].pid not in {one.pid for one in found}
