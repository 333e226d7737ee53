"""A server that is starting: it takes no limit, and says so by saying nothing (fact 45)."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpstui.control.grammar import LogParser
from mpstui.sim.node import SimNode
from tests.sim.recorded import DATA, one_shot

from .conftest import Mpstui

RECORDED = DATA / "drivers" / "server-standin-555.58.02.txt"


@pytest.fixture
def starting() -> Iterator[tuple[SimNode, int]]:
    """A node whose server will be ready in ten minutes, and that server."""
    directory = Path(tempfile.mkdtemp(prefix="mpstui-start-"))
    node = SimNode.start(directory, daemon=False)
    try:
        node.start_daemon(env={"MPSTUI_SIM_SERVER_START": "600"})
        node.control("set_default_device_pinned_mem_limit 0 3G\nstart_server -uid 0")
        while not (listed := node.control("get_server_list").split()):
            pass
        yield node, int(listed[0])
    finally:
        node.stop()
        shutil.rmtree(directory, ignore_errors=True)


def test_the_simulated_one_answers_as_recorded(starting: tuple[SimNode, int]) -> None:
    node, pid = starting
    text = RECORDED.read_text().replace("3949", str(pid))
    commands = re.findall(r"^>>> (.*?)   \[rc 0\]\n((?:out\| ?.*\n)*)", text, re.MULTILINE)
    asked = [(line, out) for line, out in commands if line != "quit" and "-uid" not in line]
    assert len(asked) > 12
    assert asked[-2][0].endswith("-f")
    for line, out in asked:
        expected = [row[5:].rstrip() for row in out.splitlines()]
        end = (
            time.monotonic() + 120 if (line, out) == asked[-1] else 0.0
        )  # who is ended by force is listed a moment more
        while (said := one_shot(node, line).stdout.decode().splitlines()) != expected and time.monotonic() < end:
            pass
        assert said == expected, line
    told = (node.log_dir / "control.log").read_text()
    assert told.count(f"Server {pid} is <busy>") == 7


@pytest.mark.parametrize(
    "arguments",
    [
        ("active-thread-percentage", "50"),
        ("pinned-mem-limit", "1G", "--device", "0"),
        ("pinned-mem-limit", "3G", "--device", "0"),
        ("pinned-mem-limit", "none", "--device", "0"),
    ],
)
def test_a_limit_is_not_set_and_nobody_says_that_it_was(
    starting: tuple[SimNode, int], mpstui: Mpstui, arguments: tuple[str, ...]
) -> None:
    node, pid = starting
    told = mpstui("set", *arguments, "--server", pid, "--pipe-dir", node.pipe_dir)
    assert told.status == 1, told
    assert f"Server {pid} is starting; try again." in told.err
    assert "the value is as it was" in told.err
    events = mpstui("events", "--pipe-dir", node.pipe_dir).out
    assert f"limit_set                server {pid}" not in events


def test_status_says_that_it_starts_and_of_its_limits_nothing(starting: tuple[SimNode, int], mpstui: Mpstui) -> None:
    node, pid = starting
    (server,) = mpstui("status", "--json", "--pipe-dir", node.pipe_dir).json["daemons"][0]["servers"]
    assert (server["pid"], server["status"], server["active_thread_percentage"]) == (pid, "INITIALIZING", None)
    assert server["pinned_mem_limits"] == {}, "the default's 3 GiB were said to be its own, which nobody can ask it"
    table = mpstui("status", "--pipe-dir", node.pipe_dir).out
    assert [line.split()[4:7] for line in table.splitlines() if line.startswith(f"server {pid}")] == [["—", "—", "0"]]


def test_it_becomes_ready_and_takes_who_waits() -> None:
    directory = Path(tempfile.mkdtemp(prefix="mpstui-start-"))
    node = SimNode.start(directory, daemon=False)
    try:
        node.start_daemon(env={"MPSTUI_SIM_SERVER_START": "0.3"})
        client = node.spawn(wait=False)
        assert client.wait_status("connected", 60)
        assert node.control("get_server_status " + node.control("get_server_list").strip()).strip() == "ACTIVE"
    finally:
        node.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.parametrize("multiuser", [True, False])
def test_who_comes_while_it_starts_waits_until_it_is_ready(multiuser: bool) -> None:
    directory = Path(tempfile.mkdtemp(prefix="mpstui-start-"))
    node = SimNode.start(directory, daemon=False)
    try:
        node.start_daemon(multiuser=multiuser, env={"MPSTUI_SIM_SERVER_START": "600"})
        node.spawn(wait=False)
        while not (listed := node.control("get_server_list").split()):
            pass
        assert node.spawn(wait=False).wait_status("pending", 60)
        told = (node.log_dir / "control.log").read_text()
        assert told.count("Server is not ready, push client to pending list") == 2
        assert "Server already exists" not in told
        assert node.control(f"get_client_list {listed[0]}").split() == []
    finally:
        node.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.parametrize("name", ["server-standin-470.256.02.txt", "server-standin-555.58.02.txt"])
def test_in_recorded_logs_what_a_busy_server_was_told_is_no_limit(name: str) -> None:
    lines = [line for line in (DATA / "drivers" / name).read_bytes().split(b"\n") if line.startswith(b"[20")]
    at = next(i for i, line in enumerate(lines) if b"<busy>" in line)
    pid = re.search(rb"Server (\d+) is <busy>", lines[at])[1]
    set_ = [lines[at - 1].partition(b"Cmd:")[0] + b"Cmd:set_device_pinned_mem_limit " + pid + b" 0 1G", lines[at]]
    parser = LogParser("control")
    events = [event for line in [*lines[:at], *set_, *lines[at + 1 :]] for event in parser.feed(line)]
    assert not [event for event in events if event.kind in {"limit_set", "unknown"}]
    assert [event.detail for event in events if "refused" in event.values] == [
        f"refused: set_device_pinned_mem_limit {int(pid)} 0 1G (Server {int(pid)} is <busy>)"
    ]
