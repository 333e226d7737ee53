"""What the command line says of arguments that are wrong, and where it cannot write."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mpstui.cli.parser import build_parser, parse
from mpstui.sim.node import SimNode

from .conftest import Mpstui


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("set", "pinned-mem-limit", "-1G", "--device", "0", "--default"), "'-1G' is no memory limit"),
        (("set", "active-thread-percentage", "-5%", "--default"), "'-5' is no percentage"),
        (("terminate", "abc"), "'abc' is no process id"),
        (("terminate", "0"), "'0' is no process id"),
        (("--refresh", "abc"), "'abc' is not 0.1 to 3600 seconds"),
        (("--demo=nosuch", "status"), "there is no simulated node 'nosuch'; there are: demo, crowd, fault"),
        (("status", "--demo=nosuch"), "there is no simulated node 'nosuch'"),
    ],
)
def test_wrong_arguments_are_named(node: SimNode, mpstui: Mpstui, arguments: tuple[str, ...], said: str) -> None:
    at = () if "nosuch" in " ".join(arguments) or arguments[0] == "--refresh" else ("--pipe-dir", node.pipe_dir)
    told = mpstui(*arguments, *at)
    assert told.status == 2
    assert said in told.err


@pytest.mark.parametrize("limit", ["active-thread-percentage", "pinned-mem-limit", "client-priority"])
def test_help_says_what_a_value_is(mpstui: Mpstui, limit: str) -> None:
    told = mpstui("set", limit, "-h")
    assert any(line.split()[:1] == ["VALUE"] and len(line.split()) > 3 for line in told.out.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("-h",), ("status",)])
@pytest.mark.parametrize(
    "locale",
    [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}],
    ids=["ascii", "C"],
)
def test_a_terminal_that_knows_ascii_only(node: SimNode, mpstui: Mpstui, arguments, locale) -> None:
    told = mpstui(*arguments, "--pipe-dir", node.pipe_dir, **locale)
    assert told.status == 0
    assert told.out.isascii()


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("status",), ("status", "--json"), ("events",)])
def test_a_full_disk_is_said_in_one_line(node: SimNode, arguments: tuple[str, ...]) -> None:
    where = ("--pipe-dir", str(node.pipe_dir))
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "mpstui", *arguments, *where],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, env=os.environ, stdin=subprocess.DEVNULL,
            check=False,
        )  # fmt: skip
    assert done.returncode == 1
    said, remedy = done.stderr.splitlines()
    assert said == "mpstui: the output could not be written: No space left on device"
    assert remedy.startswith("  → Free some space, then ask again.")


def test_events_leave_the_commands_out_unless_they_are_asked_for(node: SimNode, mpstui: Mpstui) -> None:
    at = ("--pipe-dir", node.pipe_dir)
    node.control("get_default_client_priority")
    assert "get_default_client_priority" not in mpstui("events", *at).out
    assert "get_default_client_priority" in mpstui("events", "--kind", "command", *at).out


def test_status_prints_limits_in_the_order_of_the_devices(node: SimNode, mpstui: Mpstui) -> None:
    at = ("--default", "--pipe-dir", node.pipe_dir)
    for device in ("1", "0"):
        assert mpstui("set", "pinned-mem-limit", "20G", "--device", device, *at).status == 0
    assert "0: 20.0 GiB  1: 20.0 GiB" in mpstui("status", "--pipe-dir", node.pipe_dir).out
    for device in ("1", "0"):
        assert mpstui("set", "pinned-mem-limit", "none", "--device", device, *at).status == 0


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--pipe-dir", "/tmp/x", "--fresh"],
        ["--pipe-dir", "/tmp/x", "status", "--json"],
        ["--pipe-dir", "status", "--demo"],
        ["--demo", "events", "--follow"],
        ["--demo", "set", "active-thread-percentage", "50", "--default"],
        ["--demo", "daemon", "stop"],
        ["--pipe-dir", "/tmp/x", "foo"],
        ["--pipe-dir", "/tmp/x", "status", "--foo"],
        ["--foo"],
        ["--pipe-dir"],
        ["--demo", "--version"],
        ["--demo", "-h"],
        ["--demo", "status", "--help"],
        ["--de", "--hel"],
    ],
)
def test_a_line_means_the_same_to_the_parser_that_has_but_what_it_names(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def told(run: Callable[[], object]) -> object:
        try:
            return run(), *capsys.readouterr()
        except SystemExit as ended:
            return ended.code, *capsys.readouterr()

    assert told(lambda: parse(words)) == told(lambda: build_parser().parse_args(words))
