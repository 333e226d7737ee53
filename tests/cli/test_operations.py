"""The verbs that came with the table of operations, on a simulated node, checked from outside by the control binary."""

from __future__ import annotations

import getpass
import json
import time
from pathlib import Path

import pytest

from mpstui.operations.registry import VERBS
from mpstui.sim.node import SimNode

from .conftest import Mpstui


def server_of(node: SimNode) -> str:
    return node.control("get_server_list").strip()


def gone(node: SimNode) -> bool:
    ends = time.monotonic() + 120
    while node.control("get_server_list"):
        if time.monotonic() > ends:
            return False
    return True


@pytest.mark.parametrize("words", sorted({verb.words for verb, _ in VERBS}), ids=" ".join)
def test_every_operation_is_a_verb_with_help_and_an_example(mpstui: Mpstui, words: tuple[str, ...]) -> None:
    told = mpstui(*words, "-h")
    assert told.status == 0
    assert f"example: mpstui {' '.join(words)}" in " ".join(told.out.split())


def test_a_server_is_started_and_shut_down(own_node: SimNode, mpstui: Mpstui, tmp_path: Path) -> None:
    at = ("--json", "--pipe-dir", own_node.pipe_dir)
    own = getpass.getuser()
    told = mpstui("start-server", own, *at)
    server = server_of(own_node)
    assert (told.status, told.json["action"]) == (0, "start_server")
    assert told.json["details"] == [f"server {server} has started; it takes clients once it is ready"]
    assert mpstui("start-server", own, *at).status == 6
    assert mpstui("start-server", "nosuchuser", *at).status == 2
    while own_node.control(f"get_server_status {server}").strip() != "ACTIVE":
        pass
    asked = mpstui("shutdown-server", server, *at)
    assert (asked.status, asked.json["message"]) == (6, "nothing was sent")
    assert f"Shut down server {server}" in asked.err
    assert "this ends a server: add --yes" in asked.err
    assert server_of(own_node) == server
    told = mpstui("shutdown-server", server, "--yes", *at)
    assert (told.status, told.json["message"]) == (0, f"server {server} has ended")
    assert own_node.control("get_server_list") == ""
    assert mpstui("shutdown-server", server, "--yes", *at).status == 1
    entries = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    sent = [entry["command"] for entry in entries if entry["action"] == "shutdown_server" and entry.get("sent")]
    assert sent == [f"shutdown_server {server}"]


def test_without_force_the_clients_are_waited_for_and_with_it_they_are_named(own_node: SimNode, mpstui: Mpstui) -> None:
    alice, bob = own_node.spawn("busy", user="alice"), own_node.spawn("idle", user="alice")
    server, at = server_of(own_node), ("--pipe-dir", own_node.pipe_dir)
    asked = mpstui("shutdown-server", server, "-f", *at)
    assert asked.status == 6
    for client in (alice, bob):
        assert f"ends: {client.pid} alice" in asked.err
        assert client.status() == "connected"
    told = mpstui("shutdown-server", server, "--yes", *at)
    assert told.status == 1
    assert f"server {server} was told to end, and waits for 2 clients" in told.err
    assert alice.status() == "connected"
    told = mpstui("shutdown-server", server, "-f", "--yes", *at)
    assert (told.status, told.out.strip()) == (0, f"SIMULATED: server {server} has ended")
    assert own_node.control("get_server_list") == ""
    for client in (alice, bob):
        client.tell("exit")
        assert client.wait(120) != "0"


def test_one_that_waits_ends_with_its_last_client(own_node: SimNode, mpstui: Mpstui) -> None:
    client = own_node.spawn("idle")
    assert mpstui("shutdown-server", server_of(own_node), "--yes", "--pipe-dir", own_node.pipe_dir).status == 1
    client.tell("exit")
    assert client.wait(120) == "0"
    assert gone(own_node)


def test_what_a_shutdown_costs(own_node: SimNode, mpstui: Mpstui) -> None:
    client = own_node.spawn("busy")
    server = server_of(own_node)
    log = own_node.log_dir / "control.log"
    before = log.read_text(errors="replace").count("Cmd:")
    assert mpstui("shutdown-server", server, "-f", "--yes", "--pipe-dir", own_node.pipe_dir).status == 0
    commands = [line.partition("Cmd:")[2] for line in log.read_text(errors="replace").splitlines() if "Cmd:" in line]
    sent = commands[before:]
    assert [command for command in sent if command.startswith("shutdown")] == [f"shutdown_server {server} -f"]
    assert len(sent) <= 14, sent  # most of them ask again and again whether it has gone
    client.tell("exit")
    client.wait(120)


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "scenario"), [("unblock", "blocked"), ("unblock", "held"), ("end-lost", "fault")])
def test_a_way_out_names_whom_it_ends_and_asks(mpstui: Mpstui, verb: str, scenario: str) -> None:
    asked = mpstui(verb, f"--demo={scenario}")
    assert asked.status == 6, asked
    assert "  ends: " in asked.err
    assert "this ends work: add --yes" in asked.err
    told = mpstui(verb, f"--demo={scenario}", "--yes", "--json")
    assert (told.status, told.json["done"]) == (0, True), told


def test_where_nothing_is_wrong_nobody_is_ended(node: SimNode, mpstui: Mpstui) -> None:
    at = ("--yes", "--pipe-dir", node.pipe_dir)
    unblock, lost = mpstui("unblock", *at), mpstui("end-lost", *at)
    assert (unblock.status, lost.status) == (6, 6)
    assert "the daemon answers: no process is in its way" in unblock.err
    assert "no client has been hit by a fault" in lost.err
    assert mpstui("end-lost", "4711", *at).status == 6


ALL = (
    ("set", "active-thread-percentage", "5", "--default"),
    ("set", "pinned-mem-limit", "1G", "--device", "0", "--default"),
    ("set", "client-priority", "1"),
    ("start-server", "root"),
    ("shutdown-server", "4711", "--yes"),
    ("terminate", "4711", "--yes"),
    ("terminate", "4711", "--kill", "--yes"),
    ("unblock", "--yes"),
    ("end-lost", "--yes"),
)


@pytest.mark.parametrize("arguments", ALL, ids=" ".join)
def test_read_only_refuses_each_of_them(
    node: SimNode, mpstui: Mpstui, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    log = node.log_dir / "control.log"
    told = mpstui("--read-only", *arguments, "--json", "--pipe-dir", node.pipe_dir)
    assert (told.status, told.json["done"]) == (6, False), told
    sent = log.read_text(errors="replace").rpartition("Cmd:")[2]
    assert "set_" not in sent
    assert (tmp_path / "audit.jsonl").read_text().count("\n") == 1


def actions(folder: Path) -> list[tuple[str, int | None]]:
    entries = [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]
    return [(entry["action"], entry.get("status")) for entry in entries]


def test_a_load_is_started_and_ended_as_every_change_is_made(node: SimNode, mpstui: Mpstui, tmp_path: Path) -> None:
    words = ("load", "fma", "--seconds", "0.3", "--yes", "--pipe-dir", node.pipe_dir)
    refused = mpstui("--read-only", *words)
    assert refused.status == 6
    assert "mpstui runs read-only" in refused.err
    assert actions(tmp_path) == [("command line", 6)]
    assert "mpstui runs read-only" in (tmp_path / "audit.jsonl").read_text()
    (tmp_path / "audit.jsonl").unlink()
    assert mpstui(*words).status == 0
    assert actions(tmp_path)[:2] == [("start_load", None), ("start_load", 0)]


def test_a_load_whose_audit_line_cannot_be_written_says_so(node: SimNode, mpstui: Mpstui) -> None:
    words = ("load", "fma", "--seconds", "0.3", "--yes", "--pipe-dir", node.pipe_dir)
    told = mpstui(*words, MPSTUI_AUDIT_LOG="/proc/nowhere/audit.jsonl")
    assert told.status == 0
    assert "audit log /proc/nowhere/audit.jsonl could not be written" in told.err


def test_a_profile_is_applied_and_each_of_its_steps_is_written_down(
    own_node: SimNode, mpstui: Mpstui, tmp_path: Path
) -> None:
    at, home = ("--pipe-dir", own_node.pipe_dir), {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    profiles = tmp_path / "config" / "mpstui" / "profiles"
    profiles.mkdir(parents=True)
    text = "schema = 1\n[[daemon]]\n[daemon.limits]\nactive_thread_percentage = 50\nclient_priority = 1\n"
    (profiles / "day.toml").write_text(text)
    told = mpstui("profile", "apply", "day", *at, **home)
    assert told.status == 0, told
    assert own_node.control("get_default_active_thread_percentage").strip() == "50.0"
    assert actions(tmp_path) == [
        ("apply_profile", None),
        ("set_active_thread_percentage", None),
        ("set_active_thread_percentage", 0),
        ("set_client_priority", None),
        ("set_client_priority", 0),
        ("apply_profile", 0),
    ]
    assert "nothing had to be changed" in mpstui("profile", "apply", "day", *at, **home).out
    assert len(actions(tmp_path)) == 6
    refused = mpstui("--read-only", "profile", "apply", "day", *at, **home)
    assert (refused.status, len(actions(tmp_path))) == (0, 6), "nothing differs"
    own_node.control("set_default_client_priority 0")
    refused = mpstui("--read-only", "profile", "apply", "day", *at, **home)
    assert refused.status == 6
    assert own_node.control("get_default_client_priority").strip() == "0"
    assert actions(tmp_path)[6:] == [("apply_profile", 6)]
