"""Standard streams that are closed, full, or whose reader has gone: every command ends as other tools do."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys

import pytest
import warm

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


@pytest.mark.slow
@pytest.mark.parametrize(("command", "unbuffered"), [(COMMANDS[0], ""), ("--version", "1"), (COMMANDS[0], "1")])
def test_a_full_disk_is_said_and_is_no_success(node: SimNode, command: str, unbuffered: str) -> None:
    status, told = shell(command, node, "> /dev/full", PYTHONUNBUFFERED=unbuffered)
    assert status != 0
    assert "cannot be written" in told or "could not be written" in told


def words(command: str, node: SimNode) -> list[str]:
    return shlex.split(command.format(shlex.quote(str(node.pipe_dir))))


def test_so_it_is_by_each_command(node: SimNode) -> None:
    with open("/dev/full", "w") as full:
        for command in COMMANDS:
            done = warm.run(*words(command, node), stdout=full)
            assert done.returncode not in {0, 128 + signal.SIGPIPE}, command
            assert "cannot be written" in done.stderr or "could not be written" in done.stderr, (command, done.stderr)
            assert "Traceback" not in done.stderr, (command, done.stderr)


@pytest.mark.slow
def test_a_reader_that_has_gone_is_no_refusal(node: SimNode) -> None:
    """As a shell shows other programs that ended by SIGPIPE, and nothing is said."""
    assert shell(COMMANDS[0], node, "2> /dev/null | true") == (141, "")
    reader, writer = os.pipe()
    os.close(reader)
    try:
        for command in COMMANDS:
            done = warm.run(*words(command, node), stdout=writer)
            assert (done.returncode, "Traceback" in done.stderr) == (141, False), (command, done.stderr)
    finally:
        os.close(writer)


CLOSED = {">&-": (1,), "2>&- <&-": (0, 2), "2> /dev/full": (), ">&- 2>&- <&-": (0, 1, 2)}
FORKS = """
import importlib, json, os, sys, warm
from mpstui.__main__ import main
for name in warm._IMPORTED:
    importlib.import_module(f"mpstui.{name}")
statuses = []
for words, closed, full in json.loads(sys.argv[1]):
    if (pid := os.fork()) == 0:
        if full:
            os.dup2(os.open("/dev/full", os.O_WRONLY), 2)
        for number in closed:
            name = ("stdin", "stdout", "stderr")[number]
            setattr(sys, name, None)
            setattr(sys, f"__{name}__", None)
            os.close(number)
        sys.argv[1:] = words
        sys.exit(main())
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(json.dumps(statuses))
"""
"""Each of these in a process that is as Python starts one: a stream that is closed is none."""


@pytest.mark.slow
def test_streams_that_are_closed_are_as_good_as_none(node: SimNode) -> None:
    """``status`` by a shell, all that it is; others of what they do then in processes that have imported it."""
    usual = warm.run(*words(COMMANDS[0], node)).returncode
    for how in CLOSED:
        assert shell(COMMANDS[0], node, f"{how} | cat")[0] == usual, how
    commands = [words(each, node) for each in ("doctor --pipe-dir {}", "set client-priority 0 --pipe-dir {}")]
    cases = [(each, closed, "full" in how) for each in commands for how, closed in {"": (), **CLOSED}.items()]
    done = subprocess.run(
        [sys.executable, "-c", FORKS, json.dumps(cases)],
        env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(__file__))},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for word in ("Traceback", "Exception ignored"):
        assert word not in done.stdout + done.stderr, done.stdout + done.stderr
    statuses = json.loads(done.stdout.splitlines()[-1])
    for number, command in enumerate(commands):
        assert len({*statuses[number * 5 : number * 5 + 5]}) == 1, (command, ["usual", *CLOSED], statuses)
    assert statuses[5] == 0


@pytest.mark.slow
def test_what_is_done_is_done_where_nobody_listens(node: SimNode) -> None:
    for how in (">&- 2>&-", "> /dev/full 2> /dev/full", "2>&1 | true"):
        assert node.control("get_default_client_priority").strip() == "0"
        shell("set client-priority 1 --pipe-dir {}", node, how)
        assert node.control("get_default_client_priority").strip() == "1", how
        node.control("set_default_client_priority 0")
