"""``set`` and ``terminate`` on a simulated node, checked from outside by the control binary."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from mpstui.sim.node import SimNode

from .conftest import Mpstui


def test_a_percentage_is_set_and_read_back(node: SimNode, mpstui: Mpstui, tmp_path: Path) -> None:
    told = mpstui("set", "active-thread-percentage", "33.3", "--default", "--json", "--pipe-dir", node.pipe_dir)
    assert (told.status, told.json["done"], told.json["message"]) == (0, True, "in force: 33.3 %")
    assert node.control("get_default_active_thread_percentage").strip() == "33.3"
    _, entry = map(json.loads, (tmp_path / "audit.jsonl").read_text().splitlines())
    assert (entry["command"], entry["status"]) == ("set_default_active_thread_percentage 33.3", 0)


def test_a_change_of_a_simulated_node_says_so_in_words_in_json_and_in_the_audit_log(
    node: SimNode, mpstui: Mpstui, tmp_path: Path
) -> None:
    words = ("set", "active-thread-percentage", "33.3", "--default", "--pipe-dir", node.pipe_dir)
    assert mpstui(*words).out.startswith("SIMULATED: in force: 33.3 %\n")
    assert mpstui(*words, "--json").json["source"] == "simulated"
    asked = ("why", os.getpid(), "--pipe-dir", node.pipe_dir)
    assert mpstui(*asked).out.startswith("SIMULATED — no GPU, no real daemon\n")
    assert mpstui(*asked, "--json").json["source"] == "simulated"
    lines = (tmp_path / "audit.jsonl").read_text().splitlines()
    assert {json.loads(line)["simulated"] for line in lines} == {True}


def test_a_server_gets_its_own(node: SimNode, mpstui: Mpstui) -> None:
    client = node.spawn("idle")
    server = node.control("get_server_list").strip()
    at = ("--pipe-dir", node.pipe_dir)
    assert mpstui("set", "active-thread-percentage", "25", "--server", server, *at).status == 0
    assert node.control(f"get_active_thread_percentage {server}").strip() == "25.0"
    assert mpstui("set", "pinned-mem-limit", "2G", "--device", "1", "--server", server, *at).status == 0
    assert node.control(f"get_device_pinned_mem_limit {server} 1").strip() == "2G"
    client.tell("exit")


def test_memory_limit_and_priority(node: SimNode, mpstui: Mpstui) -> None:
    at = ("--pipe-dir", node.pipe_dir)
    assert mpstui("set", "pinned-mem-limit", "900M", "--device", "0", "--default", *at).status == 0
    assert node.control("get_default_device_pinned_mem_limit 0").strip() == "900M"
    assert mpstui("set", "pinned-mem-limit", "none", "--device", "0", "--default", *at).status == 0
    assert node.control("get_default_device_pinned_mem_limit 0") == ""
    assert mpstui("set", "client-priority", "1", *at).status == 0
    assert node.control("get_default_client_priority").strip() == "1"
    assert mpstui("set", "client-priority", "0", *at).status == 0


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("active-thread-percentage", "0", "--default"), 2),
        (("active-thread-percentage", "101", "--default"), 2),
        (("active-thread-percentage", "-5", "--default"), 2),
        (("active-thread-percentage", "abc", "--default"), 2),
        (("active-thread-percentage", "50", "--server", "999999"), 1),
        (("active-thread-percentage", "50"), 2),
        (("pinned-mem-limit", "512MB", "--device", "0", "--default"), 2),
        (("pinned-mem-limit", "-1G", "--device", "0", "--default"), 2),
        (("pinned-mem-limit", "0G", "--device", "0", "--default"), 2),
        (("pinned-mem-limit", "abc", "--device", "0", "--default"), 2),
        (("pinned-mem-limit", "1G", "--device", "5", "--default"), 2),
        (("client-priority", "7"), 2),
    ],
)
def test_wrong_values_are_refused_and_change_nothing(
    node: SimNode, mpstui: Mpstui, arguments: tuple[str, ...], status: int
) -> None:
    ask = "get_default_active_thread_percentage\nget_default_device_pinned_mem_limit 0\nget_default_client_priority"
    before = node.control(ask)
    told = mpstui("set", *arguments, "--pipe-dir", node.pipe_dir)
    assert told.status == status, told
    assert told.err
    assert node.control(ask) == before


def test_a_new_limit_tells_what_it_comes_to_and_what_is_odd_about_it(node: SimNode, mpstui: Mpstui) -> None:
    client = node.spawn("idle")
    server = node.control("get_server_list").strip()
    at = ("--default", "--pipe-dir", node.pipe_dir)
    told = mpstui("set", "active-thread-percentage", "0.1", *at)
    assert "new value   0.1 %" in told.err
    assert "less than the smallest share" in told.err
    assert f"server {server} keeps its own:" in told.out
    told = mpstui("set", "pinned-mem-limit", "100M", "--device", "0", *at)
    assert "a CUDA context counts against the limit" in told.err
    assert mpstui("set", "pinned-mem-limit", "none", "--device", "0", *at).status == 0
    assert mpstui("set", "active-thread-percentage", "100", *at).status == 0
    client.tell("exit")


def test_terminate_names_who_shares_the_gpu(node: SimNode, mpstui: Mpstui) -> None:
    victim, neighbour = node.spawn("busy"), node.spawn("busy")
    told = mpstui("terminate", victim.pid, "--pipe-dir", node.pipe_dir)
    shared = told.err.partition("Share a GPU with it, and run on as a rule: ")[2]
    assert f" {neighbour.pid} " in shared
    for client in (victim, neighbour):
        assert client.status() == "connected"
        client.tell("exit")


def test_terminate_needs_a_yes(node: SimNode, mpstui: Mpstui) -> None:
    client = node.spawn("busy", user="bob")
    told = mpstui("terminate", client.pid, "--pipe-dir", node.pipe_dir)
    assert told.status == 6
    assert f"{client.pid} bob" in told.err
    assert client.status() == "connected"
    client.tell("exit")


def test_terminate_and_never_twice(node: SimNode, mpstui: Mpstui) -> None:
    victim, neighbour = node.spawn("endless"), node.spawn("busy")
    at = ("--pipe-dir", node.pipe_dir)
    assert mpstui("terminate", victim.pid, "--yes", *at).status == 0
    again = mpstui("terminate", victim.pid, "--yes", "--json", *at)
    assert (again.status, again.json["done"]) == (6, False)
    assert "block the whole daemon" in again.json["message"]
    os.kill(victim.pid, signal.SIGKILL)
    assert neighbour.status() == "connected"
    neighbour.tell("exit")


def test_safe_kill_leaves_the_neighbours_alone(node: SimNode, mpstui: Mpstui) -> None:
    neighbours = [node.spawn("busy") for _ in range(3)]
    victim = node.spawn("endless")
    server = node.control("get_server_list").strip()
    told = mpstui("terminate", victim.pid, "--kill", "--yes", "--pipe-dir", node.pipe_dir)
    assert told.status == 0, told
    assert node.control(f"get_server_status {server}").strip() == "ACTIVE"
    assert str(victim.pid) not in node.control(f"get_client_list {server}").split()
    for neighbour in neighbours:
        assert neighbour.status() == "connected"
        neighbour.tell("exit")


def test_a_process_that_is_no_client(node: SimNode, mpstui: Mpstui) -> None:
    told = mpstui("terminate", os.getpid(), "--kill", "--yes", "--json", "--pipe-dir", node.pipe_dir)
    assert (told.status, told.json["done"]) == (6, False)
    assert "not a client" in told.json["message"]


def test_read_only_changes_nothing(node: SimNode, mpstui: Mpstui) -> None:
    before = node.control("get_default_active_thread_percentage")
    at = ("--pipe-dir", node.pipe_dir)
    told = mpstui("--read-only", "set", "active-thread-percentage", "77", "--default", *at)
    assert told.status == 6
    assert node.control("get_default_active_thread_percentage") == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("active-thread-percentage", "0", "--default"), "'0' is no percentage"),
        (("active-thread-percentage", "100.1", "--server", "4711"), "'100.1' is no percentage"),
        (("pinned-mem-limit", "512MB", "--device", "0", "--default"), "'512MB' is no memory limit"),
        (("client-priority", "7"), "'7' is no priority"),
    ],
)
def test_a_wrong_value_is_refused_before_anything_is_asked(
    node: SimNode, mpstui: Mpstui, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    """Beside a session that somebody held it said "held", and nothing of the value."""
    log = node.log_dir / "control.log"
    node.control("get_server_list")  # comes behind what a command of before has left with the daemon
    before = log.read_text().count("NEW UI")  # the end of a session is written after its answer
    told = mpstui("set", *arguments, "--json", "--pipe-dir", node.pipe_dir)
    assert (told.status, told.json["done"], told.json["exit_status"]) == (2, False, 2)
    assert words in told.json["message"]
    assert log.read_text().count("NEW UI") == before
    (entry,) = map(json.loads, (tmp_path / "audit.jsonl").read_text().splitlines())
    assert (entry["status"], words in entry["result"]) == (2, True)
    assert mpstui("set", *arguments, "--pipe-dir", tmp_path / "nowhere").status == 2
