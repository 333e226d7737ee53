"""The strangers of these tests are real: other users, who can do what such users can and no more."""

from __future__ import annotations

import os
from pathlib import Path

from .conftest import Stranger


def test_a_stranger_is_another_user_without_privileges(stranger: Stranger, bystander: Stranger, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("root's")
    secret.chmod(0o600)
    tmp_path.chmod(0o755)

    assert stranger.python("import os; print(os.getuid(), os.getgroups())").stdout.split()[0] == str(stranger.uid)
    assert "Permission denied" in stranger.run("cat", secret, check=False).stderr
    assert "Permission denied" in stranger.run("touch", bystander.home / "x", check=False).stderr
    assert stranger.run("sh", "-c", "grep CapEff /proc/self/status").stdout.split()[1].strip("0") == ""


def test_in_the_crowd_everybody_makes_things_and_nobody_removes_those_of_others(
    stranger: Stranger, bystander: Stranger, crowd: Path
) -> None:
    stranger.run("mkdir", crowd / "his")

    assert (crowd / "his").stat().st_uid == stranger.uid
    assert bystander.run("rmdir", crowd / "his", check=False).returncode != 0
    assert os.path.isdir(crowd / "his")


def test_what_a_stranger_starts_runs_as_himself_until_the_test_ends(stranger: Stranger) -> None:
    process = stranger.start("sh", "-c", "echo here; sleep 600")

    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    assert os.stat(f"/proc/{process.pid}").st_uid == stranger.uid
