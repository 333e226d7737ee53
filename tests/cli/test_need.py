"""How many commands a change costs: each one, the proof included, is a line ``Cmd:`` of control.log (fact 8)."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from mpstui.observe.logs import CONTROL_BYTES, HISTORY_BYTES
from mpstui.sim.node import SimNode

from .conftest import Mpstui

Sent = Callable[[], list[str]]


@pytest.fixture
def sent(own_node: SimNode) -> Sent:
    """The commands in control.log that were not there when it was asked before."""
    seen = 0

    def new() -> list[str]:
        nonlocal seen
        lines = (own_node.log_dir / "control.log").read_text(errors="replace").splitlines()
        found = [line.partition("Cmd:")[2] for line in lines if "Cmd:" in line]
        new, seen = found[seen:], len(found)
        return new

    return new


CHANGES = (
    ("active-thread-percentage", "50", "--default"),
    ("active-thread-percentage", "25", "--server"),
    ("pinned-mem-limit", "10G", "--device", "1", "--default"),
    ("pinned-mem-limit", "none", "--device", "1", "--default"),
    ("pinned-mem-limit", "2G", "--device", "0", "--server"),
    ("client-priority", "1"),
)


@pytest.mark.parametrize("change", CHANGES, ids=" ".join)
def test_a_limit_costs_four_commands_at_most(
    own_node: SimNode, mpstui: Mpstui, sent: Sent, change: tuple[str, ...]
) -> None:
    client = own_node.spawn("idle")
    server = (own_node.control("get_server_list").strip(),) if change[-1] == "--server" else ()
    sent()
    told = mpstui("set", *change, *server, "--pipe-dir", own_node.pipe_dir)
    assert told.status == 0, told
    commands = sent()
    assert 2 <= len(commands) <= 4, commands
    assert any(command.startswith("set_") for command in commands)
    client.tell("exit")


def test_what_it_was_before_and_what_it_comes_to_are_still_told(own_node: SimNode, mpstui: Mpstui) -> None:
    at = ("--pipe-dir", own_node.pipe_dir)
    told = mpstui("set", "active-thread-percentage", "50", "--default", *at)
    assert "now 100 % 132 SM" in words(told.err)
    assert "new value 50 % 66 SM" in words(told.err)
    assert "now normal" in words(mpstui("set", "client-priority", "1", *at).err)
    assert "now below normal" in words(mpstui("set", "client-priority", "0", *at).err)


def words(text: str) -> str:
    return " ".join(text.split())


def test_terminate_and_kill_cost_six_commands_at_most(own_node: SimNode, mpstui: Mpstui, sent: Sent) -> None:
    victim, neighbour = own_node.spawn("endless"), own_node.spawn("busy")
    sent()
    told = mpstui("terminate", victim.pid, "--kill", "--yes", "--pipe-dir", own_node.pipe_dir)
    assert told.status == 0, told
    commands = sent()
    assert len(commands) <= 6, commands
    assert [c for c in commands if c.startswith("terminate")] == [commands[-1]]
    assert victim.wait(120) == -9 or victim.status() == "exited"
    assert neighbour.status() == "connected"
    neighbour.tell("exit")


def test_a_client_that_the_logs_do_not_tell_of_is_among_those_in_danger(
    own_node: SimNode, mpstui: Mpstui, sent: Sent
) -> None:
    """server.log was emptied while it was there: the daemon's own list shows that not everything is in it."""
    unseen = own_node.spawn("busy")
    (own_node.log_dir / "server.log").write_bytes(b"")
    victim = own_node.spawn("endless")
    told = mpstui("terminate", victim.pid, "--kill", "--pipe-dir", own_node.pipe_dir)
    assert told.status == 6
    assert f" {unseen.pid} " in told.err.partition("Share a GPU with it, and run on as a rule: ")[2]
    assert "May share a GPU" not in told.err
    told = mpstui("terminate", unseen.pid, "--kill", "--yes", "--pipe-dir", own_node.pipe_dir)
    assert told.status == 0, told
    own_node.kill_daemon()
    assert mpstui("set", "client-priority", "1", "--pipe-dir", own_node.pipe_dir).status == 3


def test_a_server_that_the_logs_call_ready_and_that_is_starting_again(own_node: SimNode, mpstui: Mpstui) -> None:
    """What was told is not what is: the server is gone."""
    client = own_node.spawn("idle")
    server = own_node.control("get_server_list").strip()
    client.tell("exit")
    client.wait(120)
    own_node.control(f"shutdown_server {server} -f")
    told = mpstui("set", "active-thread-percentage", "25", "--server", server, "--pipe-dir", own_node.pipe_dir)
    assert told.status == 1
    assert "Traceback" not in told.err


def test_status_costs_eight_commands_at_most_and_tells_all(own_node: SimNode, mpstui: Mpstui, sent: Sent) -> None:
    own_node.control("set_default_device_pinned_mem_limit 1 20G")
    clients = [own_node.spawn("idle", devices=(0, 1)), own_node.spawn("busy", argv0=b"x\n4711 9 1 GPU-1 1 forged")]
    server = own_node.control("get_server_list").strip()
    own_node.control(f"set_active_thread_percentage {server} 25\nset_device_pinned_mem_limit {server} 0 2G")
    sent()
    told = mpstui("status", "--json", "--pipe-dir", own_node.pipe_dir)
    assert told.status == 0, told
    commands = sent()
    assert 2 <= len(commands) <= 8, commands
    (daemon,) = told.json["daemons"]
    (found,) = daemon["servers"]
    assert (daemon["default_active_thread_percentage"], daemon["default_client_priority"]) == (100.0, 0)
    assert daemon["default_pinned_mem_limits"] == {"1": 20 << 30}
    assert (found["status"], found["active_thread_percentage"]) == ("ACTIVE", 25.0)
    assert found["pinned_mem_limits"] == {"0": 2 << 30, "1": 20 << 30}
    assert {client["pid"] for client in found["clients"]} == {client.pid for client in clients}
    for client in found["clients"]:
        assert client["id"] is not None
        assert client["pid_proved"] is True
        uuids = [context["device_uuid"] for context in client["contexts"]]
        assert uuids == [device["uuid"] for device in told.json["devices"]][: len(uuids)]
        assert (len(uuids), client["outdated_limits"]) == (2 if client["pid"] == clients[0].pid else 1, True)


def test_a_long_control_log_is_read_from_the_daemon_s_start_on(own_node: SimNode, mpstui: Mpstui, sent: Sent) -> None:
    """A monitor that asks ps each second writes 4 MiB in a quarter of an hour: what was set before is still known."""
    at = ("--pipe-dir", own_node.pipe_dir)
    client = own_node.spawn("idle")
    server = own_node.control("get_server_list").strip()
    own_node.control(f"set_default_device_pinned_mem_limit 1 20G\nset_active_thread_percentage {server} 25")
    with open(own_node.log_dir / "control.log", "ab") as log:
        log.write(LONG * (HISTORY_BYTES // len(LONG) + 1))
    sent()
    status = mpstui("status", "--json", *at)
    commands = sent()
    assert 2 <= len(commands) <= 8, commands
    (daemon,) = status.json["daemons"]
    assert daemon["default_pinned_mem_limits"] == {"1": 20 << 30}
    assert daemon["servers"][0]["active_thread_percentage"] == 25.0
    assert [each["pid"] for each in daemon["servers"][0]["clients"]] == [client.pid]
    assert mpstui("set", "pinned-mem-limit", "2G", "--device", "0", "--server", server, *at).status == 0
    assert 2 <= len(sent()) <= 4


LONG = b"[2026-11-22 11:00:00.000 Control     7] Accepting connection..." + b"." * 900 + b"\n"


@pytest.mark.slow
def test_a_control_log_too_long_to_be_read_whole_costs_little_more(
    own_node: SimNode, mpstui: Mpstui, sent: Sent
) -> None:
    """Server.log tells who is there; that it is this daemon's server is asked."""
    at = ("--pipe-dir", own_node.pipe_dir)
    victim, neighbour = own_node.spawn("endless"), own_node.spawn("busy")
    server = own_node.control("get_server_list").strip()
    own_node.control("set_default_device_pinned_mem_limit 1 20G\nset_default_client_priority 1")
    with open(own_node.log_dir / "control.log", "ab") as log:
        log.write(LONG * (CONTROL_BYTES // len(LONG) + 1))

    def asked(*words: object) -> list[str]:
        sent()
        told = mpstui(*words, *at)
        assert told.status == 0, told
        return sent()

    assert len(asked("set", "active-thread-percentage", "50", "--default")) <= 7
    assert len(asked("set", "active-thread-percentage", "25", "--server", server)) <= 8
    told = mpstui("set", "client-priority", "0", *at)
    assert "now below normal" in words(told.err)
    told = mpstui("set", "pinned-mem-limit", "10G", "--device", "1", "--default", *at)
    assert "now 20.0 GiB" in words(told.err)
    sent()
    status = mpstui("status", "--json", *at)
    assert len(sent()) <= 19
    (daemon,) = status.json["daemons"]
    assert (daemon["default_active_thread_percentage"], daemon["default_client_priority"]) == (50.0, 0)
    assert daemon["default_pinned_mem_limits"] == {"1": 10 << 30}
    assert {client["pid"] for client in daemon["servers"][0]["clients"]} == {victim.pid, neighbour.pid}
    commands = asked("terminate", victim.pid, "--kill", "--yes")
    assert len(commands) <= 8, commands
    assert neighbour.status() == "connected"
    neighbour.tell("exit")


def test_a_server_of_which_a_long_log_does_not_tell_is_found(own_node: SimNode, mpstui: Mpstui) -> None:
    unseen = own_node.spawn("busy")
    (own_node.log_dir / "server.log").write_bytes(b"")
    with open(own_node.log_dir / "control.log", "ab") as log:
        log.write(LONG * (CONTROL_BYTES // len(LONG) + 1))
    told = mpstui("terminate", unseen.pid, "--kill", "--yes", "--pipe-dir", own_node.pipe_dir)
    assert told.status == 0, told


def test_a_refusal_costs_the_daemon_s_word_of_who_is_there(own_node: SimNode, mpstui: Mpstui, sent: Sent) -> None:
    client = own_node.spawn("idle")
    for asked in (
        ("terminate", "1", "--kill", "--yes"),
        ("start-server", str(os.geteuid())),
        ("set", "active-thread-percentage", "25", "--server", "99999"),
        ("shutdown-server", "99999", "--yes"),
    ):
        sent()
        told = mpstui(*asked, "--pipe-dir", own_node.pipe_dir)
        assert told.status in {1, 6}, told
        assert len(sent()) <= 10, asked
    for asked in (
        ("terminate", client.pid, "--kill", "--yes", "--read-only"),
        ("set", "client-priority", "1", "--read-only"),
        ("set", "active-thread-percentage", "101", "--default"),
    ):
        sent()
        assert mpstui(*asked, "--pipe-dir", own_node.pipe_dir).status != 0
        assert len(sent()) <= 6, asked
    client.tell("exit")


def test_a_server_that_the_logs_do_not_tell_of_is_not_refused(own_node: SimNode, mpstui: Mpstui) -> None:
    """They were emptied while it was there: the daemon's own list shows it."""
    client = own_node.spawn("idle")
    server = own_node.control("get_server_list").strip()
    for name in ("control.log", "server.log"):
        (own_node.log_dir / name).write_bytes(b"")
    told = mpstui("set", "active-thread-percentage", "25", "--server", server, "--pipe-dir", own_node.pipe_dir)
    assert told.status == 0, told
    client.tell("exit")
