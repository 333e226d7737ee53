"""The support archive: what is in it, and that nobody's name or command is."""

from __future__ import annotations

import json
import os
import re
import resource
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest
from ui.snapshots import NOW, client, daemon, server

from cli.conftest import Mpstui
from mpstui import api
from mpstui.cli.bundle import bundle
from mpstui.core.mask import Mask
from mpstui.core.model import Event, Snapshot
from mpstui.sim.node import SimNode
from mpstui.system.procfs import user_name

SECRETS = ("alice", "hunter2", "secretproject", "train_secret")


def _raise(error: Exception) -> NoReturn:
    raise error


def contents(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {
            each.name.partition("/")[2]: archive.extractfile(each).read().decode()  # type: ignore[union-attr]
            for each in archive.getmembers()
        }


def test_it_has_everything_and_names_nobody(own_node: SimNode, mpstui: Mpstui, tmp_path: Path) -> None:
    own_node.spawn("busy", user="alice", argv0=b"train_secret --password hunter2 --name secretproject")
    mpstui("status", "--pipe-dir", own_node.pipe_dir)  # the rows of ps are in control.log now
    own_node.control("ps")
    file = tmp_path / "b.tar.gz"
    told = mpstui("doctor", "--bundle", file, "--pipe-dir", own_node.pipe_dir)
    assert told.status in {0, 1}, told.err
    assert file.stat().st_mode & 0o777 == 0o600
    found = contents(file)
    logs = {"logs/0-control.log", "logs/0-server.log"}
    assert (
        set(found) == {"README.txt", "status.json", "doctor.json", "versions.json", "config.json", "events.json"} | logs
    )
    everything = "".join(found.values())
    assert [secret for secret in SECRETS if secret in everything] == []
    status = json.loads(found["status.json"])
    (shown,) = status["daemons"][0]["servers"][0]["clients"]
    assert (shown["user"][:4], shown["command"], status["host"]) == ("user", "(masked)", "host")
    assert "NEW CLIENT" in found["logs/0-control.log"] or "client" in found["logs/0-control.log"].lower()
    assert {json.loads(line)["source"] for line in found["events.json"].splitlines()} == {"simulated"}
    assert found["README.txt"].startswith("SIMULATED — no GPU, no real daemon\n")
    assert json.loads(found["versions.json"])["mpstui"]


@pytest.mark.slow
def test_who_is_named_in_a_finding_alone_is_masked_too(
    node: SimNode, mpstui: Mpstui, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose a directory of logs is, say: no client and no daemon tells of him."""
    owners = {2001: "carolsecret", 1: "daemon", 65534: "nobody"}
    monkeypatch.setattr("pwd.getpwuid", lambda uid: SimpleNamespace(pw_name=owners[uid]))
    monkeypatch.setattr("mpstui.system.procfs._NAMES", {})
    log = node.log_dir / "server.log"
    whose = [user_name(uid) for uid in owners]
    monkeypatch.setattr(
        "mpstui.api.end_of_log", lambda *_: _raise(api.Unavailable(f"{log} belongs to {user_name(2001)}"))
    )
    finding = {"check": "logs", "verdict": "error", "evidence": f"these logs belong to {', '.join(whose)}; the daemon"}
    snapshot = Snapshot(NOW, daemons=(daemon(log_dir=node.log_dir),))
    assert bundle(os.fspath(tmp_path / "b"), snapshot, {"findings": [finding]}, (), masked=True) == 0
    found = contents(tmp_path / "b")
    assert "carolsecret" not in "".join(found.values())
    (alias,) = re.findall(r"belong to (user\d+), daemon, nobody; the daemon", found["doctor.json"])
    assert f"belongs to {alias}" in found["logs/0-server.log"]


@pytest.mark.parametrize("kind", ["link", "missing"])
def test_why_a_log_is_not_in_it_is_told(own_node: SimNode, mpstui: Mpstui, tmp_path: Path, kind: str) -> None:
    """In words of the program, which are none of a log's; and no log is an error."""
    log = own_node.log_dir / "server.log"
    log.unlink()
    if kind == "link":
        log.symlink_to("/home/alice/secretproject")
    told = mpstui("doctor", "--bundle", tmp_path / "b", "--pipe-dir", own_node.pipe_dir)
    assert told.status in {0, 1}, told.err
    found = contents(tmp_path / "b")
    why = {"missing": "No such file", "link": "is a symbolic link, which is not"}[kind]
    assert found["logs/0-server.log"].startswith("not read: ")
    assert why in found["logs/0-server.log"]
    assert "secretproject" not in "".join(found.values())


def test_unmasked_it_has_the_names(own_node: SimNode, mpstui: Mpstui, tmp_path: Path) -> None:
    own_node.spawn("busy", user="alice", argv0=b"train_secret --password hunter2")
    file = tmp_path / "b.tar.gz"
    mpstui("doctor", "--bundle", file, "--unmasked", "--pipe-dir", own_node.pipe_dir)
    assert "hunter2" in contents(file)["status.json"]


def test_what_is_there_is_not_replaced(node: SimNode, mpstui: Mpstui, tmp_path: Path) -> None:
    file, link = tmp_path / "b", tmp_path / "link"
    file.write_text("mine")
    link.symlink_to(tmp_path / "elsewhere")
    for name in (file, link):
        told = mpstui("doctor", "--bundle", name, "--pipe-dir", node.pipe_dir)
        assert told.status == 1
        assert "cannot be written" in told.err
    assert file.read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.slow
def test_a_full_disk_leaves_no_part_of_it(node: SimNode, tmp_path: Path) -> None:
    import subprocess
    import sys

    told = subprocess.run(
        [sys.executable, "-m", "mpstui", "doctor", "--bundle", tmp_path / "b", "--pipe-dir", node.pipe_dir],
        capture_output=True, text=True, timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)),
        env={**os.environ, "MPSTUI_AUDIT_LOG": "/dev/null"},
    )  # fmt: skip
    assert told.returncode == 1, told.stderr
    assert "cannot be written" in told.stderr
    assert os.listdir(tmp_path) == []


def mask(**changes: object) -> Mask:
    one = client(0, user="bob", uid=1007, command="/home/bob/run.sh --key k9", **changes)
    shown = Snapshot(NOW, host="gpu-7.site", daemons=(daemon(servers=(server(clients=(one,)),)),))
    made = Mask()
    made.learn_from(shown, Event("client_connected", NOW, uid=1008, user="o'brien"))
    return made


@pytest.mark.parametrize("name", ["", "-"])
def test_it_needs_a_name(
    node: SimNode, mpstui: Mpstui, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    told = mpstui("--pipe-dir", node.pipe_dir, "doctor", f"--bundle={name}")
    assert (told.status, "give it a name" in told.err, (tmp_path / "-").exists()) == (2, True, False)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("client of bob waits", "client of user1 waits"),
        ("bobby and notbob stay", "bobby and notbob stay"),
        ("/tmp/mps_bob/log, /tmp/bob_mps", "/tmp/mps_user1/log, /tmp/user1_mps"),
        ("NEW CLIENT 643 from user 1007: Server", "NEW CLIENT 643 from user user1: Server"),
        ("User 1009 did", "User user3 did"),
        ("o'brien on gpu-7.site and gpu-7", "user2 on host and host"),
        ("/home/carol/x y", "(masked) y"),
        ("root's daemon", "root's daemon"),
        ("/tmp/mps_1007/control, /scratch/1007", "/tmp/mps_user1/control, /scratch/user1"),
        ("/run/user/1011/mps and 1007 MiB", "/run/user/user3/mps and 1007 MiB"),
        ("/dev/nvidia1007 /x/91007/10070", "/dev/nvidia1007 /x/91007/10070"),
        ("runs /home/bob/run.sh --key k9", "runs (masked)"),
    ],
)
def test_a_text_is_masked(text: str, masked: str) -> None:
    assert mask().text(text) == masked


def test_a_row_of_an_answer_keeps_numbers_alone() -> None:
    sentence = "[2026-11-20 21:29:12.195 Control  1] Received new client from bob"
    row = "2000 1 1402 GPU-11 4026531836 run.sh --key ACTIVE"
    assert mask().log(f"{sentence}\n{row}\n").splitlines() == [
        "[2026-11-20 21:29:12.195 Control  1] Received new client from user1",
        "2000 1 1402 GPU-11 4026531836 (masked) (masked) ACTIVE",
    ]


def test_an_answer_that_the_daemon_logged_names_no_program() -> None:
    """As recorded: each row of an answer has the time and the daemon before it."""
    log = Path(__file__).parents[1].joinpath("data/h100/commands-control.log").read_text("utf-8")
    rows = [line for line in log.splitlines() if line.rstrip().endswith("/tmp/client")]
    assert rows
    told = mask().log("\n".join(rows)).splitlines()
    assert [line for line in told if "client" in line] == []
    assert all(line.startswith(row[:40]) and line.endswith("(masked)") for line, row in zip(told, rows, strict=True))
    row = "[2026-11-20 21:24:28.533 Control   480]  645  2  634  GPU-c6  4026531836  my prog"
    assert mask().log(row).split("]")[1].split() == ["645", "2", "634", "GPU-c6", "4026531836", "(masked)", "(masked)"]


def test_a_program_that_was_there_at_each_fault_is_not_named() -> None:
    from dataclasses import replace

    from mpstui.core.model import Suspect
    from mpstui.doctor.advice import repeated_faults
    from mpstui.doctor.types import BinaryFacts, Facts

    long = "/opt/env/bin/python3.11 train_secretproject_with_a_long_name.py --password hunter2 --epochs 90"
    there = (Suspect(7, 2001, "alice", long), Suspect(8, 2001, "alice", "secretproject"))
    faults = tuple(Event("fatal_fault", NOW + number, suspects=there) for number in range(2))
    snapshot = replace(Snapshot(NOW), events=faults)
    (finding,) = repeated_faults(Facts(snapshot, BinaryFacts(None)))
    assert "alice" in finding.evidence
    mask = Mask()
    mask.learn_from(snapshot)
    masked = mask.json({"evidence": finding.evidence})["evidence"]
    assert [word for word in ("alice", "secret", "hunter2") if word in masked] == []


@pytest.mark.parametrize("command", ["python secret.py --epochs 90", "secretsolver -n 3", "python -m secret.main --x"])
def test_a_command_is_masked_up_to_its_first_option_too(command: str) -> None:
    """As the comparison of faults names a program: of shorter commands that stood there in full."""
    from mpstui.core.suspects import program

    mask = Mask()
    mask.learn({"uid": 2001, "user": "alice", "command": command})
    assert mask.text(f"In 2 of 2 faults: alice, {program(command)}; no other") == (
        "In 2 of 2 faults: user1, (masked); no other"
    )


@pytest.mark.parametrize("command", ["nvidia-cuda-mps-control -d", "/usr/bin/nvidia-cuda-mps-server"])
def test_a_program_of_mps_is_nobodys_secret(command: str) -> None:
    """A remedy was “(masked) -M” where somebody had started a daemon by hand."""
    mask = Mask()
    mask.learn({"uid": 2001, "user": "alice", "command": command})
    assert mask.text(f"To serve them together: {command} -M") == f"To serve them together: {command} -M"
    for secret in (f"{command} hunter2", f"/opt/hunter2/{command.rpartition('/')[2]}"):
        mask.learn({"uid": 2001, "user": "alice", "command": secret})
        assert "hunter2" not in mask.text(f"a client runs {secret}")


def test_a_cgroups_name_is_not_in_it() -> None:
    finding = {"check": "cgroup_memory", "verdict": "ok", "subject": "client 7", "evidence": "by cgroup /alice/train"}
    masked = Mask().json({"findings": [finding]})
    assert masked == {"findings": [{**finding, "evidence": "(masked)"}]}


def test_the_program_is_masked_in_each_of_the_kernels_lines() -> None:
    """In all but the last one of a text it was not, where nothing comes behind its name."""
    lines = [
        f"NVRM: Xid (PCI:0000:00:06): 43, pid='94{n}', name=secret{n}{end}" for n, end in enumerate(("", ", Ch 8"))
    ]
    masked = Mask().text("\n".join((*lines, *lines)))
    assert "secret" not in masked
    assert masked.count(", Ch 8\n") == 1
    assert masked.endswith(", Ch 8")
