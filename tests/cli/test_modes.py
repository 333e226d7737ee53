"""A daemon whose answers are not understood is shown read-only, with the reason, and is sent nothing."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpstui.control.drivers import number_of
from mpstui.observe.discovery import _kernel_driver
from mpstui.sim.node import SimNode

from .conftest import Mpstui

MODES = {
    "v3 by its option": (("-p3",), {}, "protocol 3"),
    "v3 by its variable": ((), {"CUDA_MPS_PROTOCOL_VERSION": "3"}, "protocol 3"),
    "a later one by its option": (("--protocol=4",), {}, "neither 2 nor 3"),
    "a later one by its variable": ((), {"CUDA_MPS_PROTOCOL_VERSION": "4"}, "neither 2 nor 3"),
}


@pytest.fixture(params=MODES, scope="module")
def odd(request: pytest.FixtureRequest) -> Iterator[tuple[SimNode, str, int]]:
    """A node in such a mode, the word that says so, and a client of it."""
    options, env, word = MODES[request.param]
    directory = Path(tempfile.mkdtemp(prefix="mpstui-mode-"))
    node = SimNode.start(directory, daemon=False, driver="615.71")
    try:
        node.start_daemon(options=options, env={**env, "MPSTUI_SIM_GARBLED": "1"})
        yield node, word, node.spawn(user="alice").pid
    finally:
        node.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.skipif((number_of(_kernel_driver()) or 0) >= 615, reason="the driver of this machine knows the variable")
def test_a_variable_that_the_driver_does_not_know_changes_nothing(mpstui: Mpstui) -> None:
    """It was shown read-only for a stray one."""
    directory = Path(tempfile.mkdtemp(prefix="mpstui-mode-"))
    node = SimNode.start(directory, daemon=False, driver="580.159.04")
    try:
        node.start_daemon(env={"CUDA_MPS_PROTOCOL_VERSION": "3"})
        (daemon,) = mpstui("status", "--json", "--pipe-dir", directory).json["daemons"]
        assert (daemon["protocol"], daemon["read_only"]) == ("legacy", None)
        assert mpstui("set", "active-thread-percentage", "50", "--default", "--pipe-dir", directory).status == 0
    finally:
        node.stop()
        shutil.rmtree(directory, ignore_errors=True)


def commands(node: SimNode) -> list[str]:
    text = (node.log_dir / "control.log").read_text("utf-8", "replace")
    return [line for line in text.splitlines() if "Cmd:" in line or "NEW UI" in line or "Call:" in line]


def test_it_is_shown_with_the_reason_and_sent_nothing(odd: tuple[SimNode, str, int], mpstui: Mpstui) -> None:
    node, word, _ = odd
    told = mpstui("status", "--json", "--pipe-dir", node.pipe_dir)
    assert told.status == 0, told
    (daemon,) = told.json["daemons"]
    assert word in daemon["read_only"]
    assert word in daemon["health_detail"]
    assert daemon["health"] == "ok"
    assert daemon["protocol"] == ("v3" if word == "protocol 3" else "unknown")
    assert daemon["static_partitioning"] is False
    assert daemon["default_active_thread_percentage"] is None
    assert [p for p in told.json["problems"] if p["code"] == "daemon_read_only" and word in p["text"]]
    text = mpstui("status", "--pipe-dir", node.pipe_dir)
    assert text.status == 0
    assert word in text.out
    assert "read-only" in text.out.splitlines()[1]
    assert commands(node) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("set", "active-thread-percentage", "50", "--default"),
        ("set", "pinned-mem-limit", "2G", "--device", "0", "--default"),
        ("set", "client-priority", "1"),
        ("terminate", "PID", "--yes"),
        ("terminate", "PID", "--yes", "--kill"),
        ("daemon", "stop", "--yes"),
        ("daemon", "stop", "--yes", "--force"),
        ("load", "fma", "--seconds", "1"),
    ],
)
def test_nothing_is_changed_and_the_reason_is_said(
    odd: tuple[SimNode, str, int], mpstui: Mpstui, arguments: tuple[str, ...]
) -> None:
    node, word, pid = odd
    words = [str(pid) if argument == "PID" else argument for argument in arguments]
    told = mpstui(*words, "--pipe-dir", node.pipe_dir)
    assert (told.status, word in told.err + told.out) == (6, True), told
    assert commands(node) == []
    assert node.daemon_pid is not None
    assert node.clients[0].status() == "connected"
