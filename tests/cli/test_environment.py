"""Limits in the environment of the daemon itself, and of a client: what is taken, inherited and ignored (fact 43)."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mpstui.control.grammar import LogParser
from mpstui.sim.node import SimNode
from tests.sim.recorded import DATA

from .conftest import Mpstui

GIB = 1 << 30
NAMES = ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_CLIENT_PRIORITY", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")


@pytest.fixture
def start() -> Iterator[Callable[..., SimNode]]:
    """Starts a node with two devices and these limits in its daemon's environment."""
    nodes: list[SimNode] = []

    def run(*texts: str, driver: str | None = None) -> SimNode:
        node = SimNode.start(Path(tempfile.mkdtemp(prefix="mpstui-env-")), daemon=False, driver=driver)
        nodes.append(node)
        node.start_daemon(env=dict(zip(NAMES, texts, strict=True)))
        return node

    yield run
    for node in nodes:
        node.stop()
        shutil.rmtree(node.pipe_dir, ignore_errors=True)


def test_what_the_daemon_takes_of_its_environment(start: Callable[..., SimNode], mpstui: Mpstui) -> None:
    """A share and a priority; a memory limit limits no client (fact 57)."""
    node = start("25", "1", "0=2G")
    client = node.spawn(user="alice")
    assert client.sm_count == 32
    assert client.free_memory > 70 * GIB
    other = node.spawn(user="bob", env={NAMES[2]: "0=1G"})
    assert other.free_memory < GIB
    dropped = node.spawn(user="carol", env={NAMES[2]: "0=1G,7=512MB"})
    assert dropped.free_memory > 70 * GIB
    (daemon,) = mpstui("status", "--json", "--pipe-dir", node.pipe_dir).json["daemons"]
    assert (daemon["default_active_thread_percentage"], daemon["default_client_priority"]) == (25.0, 1)
    assert (daemon["default_pinned_mem_limits"], daemon["inherited_pinned_mem_limits"]) == ({}, {"0": 2 * GIB})
    shown = {c["user"]: c for c in daemon["servers"][0]["clients"]}
    limits = {user: (c["pinned_mem_limits"], c["limit_source"].get("pinned_mem_limits")) for user, c in shown.items()}
    assert limits == {"alice": ({}, None), "bob": ({"0": GIB}, "client"), "carol": ({}, None)}
    text = mpstui("status", "--pipe-dir", node.pipe_dir).out
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2G: with driver 580 it limits no client. The default holds." in text


def test_what_is_no_value_is_ignored_and_said(start: Callable[..., SimNode], mpstui: Mpstui) -> None:
    node = start("150", "7", "0=1G,2=512MB")
    client = node.spawn()
    assert (client.sm_count, client.free_memory > 70 * GIB) == (132, True)
    status = mpstui("status", "--json", "--pipe-dir", node.pipe_dir).json
    (daemon,) = status["daemons"]
    assert (daemon["default_active_thread_percentage"], daemon["default_client_priority"]) == (100.0, 0)
    assert daemon["inherited_pinned_mem_limits"] == {}
    told = [problem["text"] for problem in status["problems"] if problem["code"] == "daemon_environment"]
    assert [name for name in NAMES if not any(name in text for text in told)] == []
    doctor = mpstui("doctor", "--json", "--pipe-dir", node.pipe_dir).json["findings"]
    found = [(one["verdict"], one["evidence"]) for one in doctor if one["check"] == "environment"]
    assert found == [("warning", text) for text in told]
    events = mpstui("events", "--pipe-dir", node.pipe_dir).out
    assert [line.split()[3:5] for line in events.splitlines() if "limit_ignored" in line] == [
        ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "of"],
        ["CUDA_MPS_CLIENT_PRIORITY", "of"],
    ]


def test_a_device_that_the_node_does_not_have_is_no_limit_of_an_old_driver_either(
    start: Callable[..., SimNode], mpstui: Mpstui
) -> None:
    status = mpstui("status", "--json", "--pipe-dir", start("", "", "0=2G,7=3G", driver="550").pipe_dir).json
    assert status["daemons"][0]["inherited_pinned_mem_limits"] == {}
    (told,) = [problem for problem in status["problems"] if problem["code"] == "daemon_environment"]
    assert "sets no limit with CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2G,7=3G" in told["text"]


def test_the_words_of_the_recording_are_those_of_the_simulated_daemon(start: Callable[..., SimNode]) -> None:
    recorded = (DATA / "drivers" / "start-options-555.58.02.txt").read_text()
    words = set(re.findall(r"(CUDA_MPS_\w+ should be between .*)", recorded))
    assert len(words) == 2
    log = (start("0", "7", "").log_dir / "control.log").read_text()
    assert {word for word in words if word in log} == words
    parser = LogParser("control")
    events = [event for line in log.encode().split(b"\n") for event in parser.feed(line)]
    assert [event.kind for event in events] == ["daemon_started", "limit_ignored", "limit_ignored"]
