"""Small guards of the fold, each of which something would go wrong without: none is a matter of course."""

from __future__ import annotations

import pytest

from mpstui.control.answer import Answer, Outcome
from mpstui.control.wire import Membership, PsRow
from mpstui.core.model import Device, ProcessKey
from mpstui.observe.problems import find_problems
from mpstui.observe.sources import ProcessFacts
from mpstui.observe.state import fold_membership

from .replay import PIPE, at, fold, running, shot
from .test_starts import control, server

SERVER = 634
CONNECT = ("Client {PID: 7, Context ID: 0} connected", "Status of client {PID: 7, Context ID: 1} is ACTIVE")


def served(*more: str):
    """A node whose server 634 has client 7, with two contexts."""
    texts = (*CONNECT, "Status of client {PID: 7, Context ID: 2} is ACTIVE", *more)
    begun = control(f"Starting new server {SERVER} for user 0", f"NEW SERVER {SERVER}: Ready", clock="21:24:20.000")
    return fold("21:25:00", control=begun, server=server(SERVER, *texts))


def client(node):
    return shot(node, "21:25:00")[1].find_client(ProcessKey(7))


@pytest.mark.parametrize(("claimed", "command"), [(SERVER, "train"), (635, None), (0, None)])
def test_a_row_of_ps_that_claims_another_server_is_not_believed(claimed: int, command: str | None) -> None:
    """A client chooses what stands in it (fact 10)."""
    node = served()
    row = PsRow(7, 3, claimed, "GPU-c", 4026531836, "train")
    reading = Membership(at("21:25:00"), (SERVER,), {SERVER: "ACTIVE"}, {SERVER: (7,)}, rows=(row,))
    fold_membership(node.watch(PIPE).state, reading, at("21:25:00"))
    found = client(node)
    assert (found.command, found.id) == (command, 3 if command else None)


@pytest.mark.parametrize(
    ("started", "stays"),
    [("21:24:28.598", True), ("21:24:29.598", True), ("21:24:29.600", False), ("21:24:40.000", False), (None, False)],
)
def test_a_process_that_has_the_pid_of_another_is_its_successor_only_if_it_connected(
    started: str | None, stays: bool
) -> None:
    """Start times are whole ticks and the log's clock another one: a second is given."""
    node = served()
    node.set_facts({7}, {7: ProcessFacts(ProcessKey(7, 1), start_time=at("21:20:00"), vouched=True)}, at("21:24:50"))
    after = None if started is None else at(started)
    node.set_facts({7}, {7: ProcessFacts(ProcessKey(7, 2), start_time=after, vouched=True)}, at("21:24:51"))
    found = shot(node, "21:25:00")[1]
    assert [one.pid for one in found.clients()] == ([7] if stays else [])


def test_the_other_context_of_a_client_is_no_second_terminate() -> None:
    """Each context is asked once by one terminate_client; only the same one again blocks the daemon (fact 16)."""
    ask = "MPS server requesting client {{PID: 7, Context ID: {}}} to exit"
    once = (ask.format(1), "Client termination succeeded.", ask.format(2))
    node = served(*once, "Client termination succeeded.")
    assert shot(node, "21:25:00")[1].health == "unknown"
    assert client(node).terminate_requested
    assert served(*once).watch(PIPE).state.blocked_by is None
    assert served(*once, ask.format(1)).watch(PIPE).state.blocked_by == 7


def test_a_new_default_priority_reaches_the_servers_at_once() -> None:
    node = served()
    set_ = control("Cmd:set_default_client_priority 1", "UI closed", clock="21:24:40.000")
    fold("21:25:00", control=set_, node=node)
    more = server(SERVER, "Client {PID: 8, Context ID: 0} connected", clock="21:24:50.000")
    daemon = shot(fold("21:25:00", server=more, node=node), "21:25:00")[1]
    assert daemon.default_client_priority == 1
    assert node.watch(PIPE).state.servers[SERVER].limits.priority == 1
    assert daemon.find_client(ProcessKey(8)).client_priority == 1
    assert daemon.find_client(ProcessKey(7)).client_priority is None


@pytest.mark.parametrize(
    ("used", "code"), [(48, "device_full"), (47, "device_nearly_full"), (44, "device_nearly_full"), (43, None)]
)
def test_a_device_is_nearly_full_before_it_is_full(used: int, code: str | None) -> None:
    found = find_problems((), (Device("GPU-c", 0, contexts=used),), None)
    assert [(p.code, p.severity) for p in found] == (
        [] if code is None else [(code, "error" if code == "device_full" else "warning")]
    )


@pytest.mark.parametrize(("mode", "word"), [({"protocol": "v3"}, "protocol 3")])
def test_a_mode_that_is_not_spoken_is_a_problem_with_its_reason_and_remedy(mode: dict[str, object], word: str) -> None:
    node = served()
    node.set_places([running()._replace(**mode)])
    node.fold_v3(PIPE, None, "it runs with MPS protocol 3, and what it answers is not understood: x", 0.0, 0.0)
    snapshot, daemon = shot(node, "21:25:00")
    (problem,) = [problem for problem in snapshot.problems if problem.code == "daemon_read_only"]
    assert problem.text == f"{daemon.unspoken[0].upper()}{daemon.unspoken[1:]}."
    assert word in problem.text
    assert problem.remedy == daemon.remedy
    assert "nvidia-cuda-mps-control" in problem.remedy
    assert (daemon.health, daemon.state_word) == ("ok", "read-only")


@pytest.mark.parametrize("message", ["", "held by 4711."])
def test_a_held_daemon_says_what_the_command_said(message: str) -> None:
    node = served()
    node.set_probe(PIPE, Answer("ps", Outcome.HELD, message=message), at("21:25:00"))
    detail = shot(node, "21:25:00")[1].health_detail
    assert detail.startswith(message.rstrip(".") or "a control session is kept open")


def test_no_process_is_to_be_ended_on_the_word_of_a_log_alone() -> None:
    """The daemon is silent, and its log accuses a client that nothing proves to be a process of this namespace."""
    ask = "MPS server requesting client {PID: 7, Context ID: 1} to exit"
    node = served(ask, "Client termination succeeded.", ask)
    node.set_probe(PIPE, Answer("get_server_list", Outcome.BLOCKED), at("21:24:59"), at("21:24:54"))
    daemon = shot(node, "21:25:00")[1]
    assert (daemon.health, daemon.blocked_by) == ("blocked", ProcessKey(7))
    assert "its log says that client 7" in (daemon.health_detail or "")
    assert "End process" not in (daemon.remedy or "")
