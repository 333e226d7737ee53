"""Standard streams that are closed, full, or whose reader has gone: every command ends as other tools do."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest

from mpstui.sim.node import SimNode

COMMANDS = (
    "status --pipe-dir {}",
    "status --at 1m --pipe-dir {}",
    "events --json --pipe-dir {}",
    "plan --clients 2 --pipe-dir {}",
    "load fma --seconds 1 --pipe-dir {}",
    "status --help",
)


def shell(command: str, node: SimNode, how: str, **variables: str) -> tuple[int, str]:
    """Exit status of the command, and what came out; with a shell's own pipe in between where there is one."""
    line = f"set -o pipefail; {sys.executable} -m mpstui {command.format(shlex.quote(str(node.pipe_dir)))} {how}"
    done = subprocess.run(
        ["bash", "-c", line],
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert "Traceback" not in done.stdout, done.stdout
    assert "Exception ignored" not in done.stdout, done.stdout
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("command", "unbuffered"), [*((command, "") for command in COMMANDS), ("--version", "1"), (COMMANDS[0], "1")]
)
def test_a_full_disk_is_said_and_is_no_success(node: SimNode, command: str, unbuffered: str) -> None:
    status, told = shell(command, node, "> /dev/full", PYTHONUNBUFFERED=unbuffered)
    assert status != 0
    assert "cannot be written" in told or "could not be written" in told


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_has_gone_is_no_refusal(node: SimNode, command: str) -> None:
    """As a shell shows other programs that ended by SIGPIPE, and nothing is said."""
    assert shell(command, node, "2> /dev/null | true") == (141, "")


@pytest.mark.parametrize("command", [COMMANDS[0], "doctor --pipe-dir {}", "set client-priority 0 --pipe-dir {}"])
def test_streams_that_are_closed_are_as_good_as_none(node: SimNode, command: str) -> None:
    usual = shell(command, node, "> /dev/null 2> /dev/null")[0]
    for how in (">&-", "2>&- <&-", "2> /dev/full", ">&- 2>&- <&-"):
        assert shell(command, node, f"{how} | cat")[0] == usual, how


def test_what_is_done_is_done_where_nobody_listens(node: SimNode) -> None:
    for how in (">&- 2>&-", "> /dev/full 2> /dev/full", "2>&1 | true"):
        assert node.control("get_default_client_priority").strip() == "0"
        shell("set client-priority 1 --pipe-dir {}", node, how)
        assert node.control("get_default_client_priority").strip() == "1", how
        shell("set client-priority 0 --pipe-dir {}", node, "> /dev/null")
