"""What nobody has told is not known: it is neither 0 nor what an old line of the log said of a PID."""

from __future__ import annotations

import pytest

from mpstui.cli.status import _headline, exit_status, to_json
from mpstui.control.answer import Answer, Outcome
from mpstui.core.cells import health_word
from mpstui.core.condition import cut_off, ok
from mpstui.core.model import Daemon, ProcessKey, Server, ServerFault, StartFailures
from mpstui.core.trust import ANYBODY, Speaker
from mpstui.export.metrics import Metrics
from mpstui.fields import DAEMON as DAEMON_FIELDS
from mpstui.fields import View
from mpstui.fleet import from_status
from mpstui.observe.problems import find_problems
from mpstui.observe.reducer import NodeState, Watching
from mpstui.observe.sources import NvmlSample
from mpstui.operations.rescue import Unblock
from mpstui.operations.types import ExitStatus
from mpstui.system.procfs import ProcessFacts
from tests.observe.replay import PIPE, at, events, running
from tests.observe.test_logparse import control
from tests.observe.test_reducer import H100

DAEMON = {480: ProcessFacts(ProcessKey(480, 1))}
STRANGER = ProcessFacts(ProcessKey(5, 99), uid=0, user="root", command="sshd")


@pytest.fixture
def waiting() -> NodeState:
    """A node whose log tells of process 5 of user 2001, which waits for a server."""
    node = NodeState()
    node.set_places([running()._replace(pids_are_ours=True)])
    for event in events(
        "control",
        control(
            "Starting control daemon using socket /tmp/mps_0/control",
            "NEW CLIENT 5 from user 2001: Server is not ready, push client to pending list",
        ),
    ):
        node.add_event(PIPE, event, "control", at("21:24:29"))
    return node


def pending(node: NodeState) -> list[int]:
    return [client.pid for client in node.snapshot(1.0).daemons[0].pending]


@pytest.mark.parametrize("now", [{}, {5: STRANGER}], ids=["no process", "somebody else's"])
def test_who_waited_long_ago_waits_no_more_when_the_process_is_gone(waiting: NodeState, now) -> None:
    waiting.set_facts({480}, DAEMON, 1.0)  # began before the line was read, and says nothing of it
    assert pending(waiting) == [5]
    waiting.set_facts({480, 5}, {**DAEMON, **now}, 1.0)
    assert pending(waiting) == []


@pytest.mark.parametrize(
    "text",
    [
        "Volta MPS: status of client {5, 1} is ACTIVE",
        "Status of client {PID: 5, Context ID: 1} is ACTIVE",
        "Client {5, 1} exit",
        "Client process 5 disconnected",
    ],
)
def test_a_client_of_a_server_waits_for_none_though_the_daemon_does_not_say_it_again(waiting: NodeState, text) -> None:
    """In the logs of 2022 no second NEW CLIENT line follows."""

    def told(clock: str) -> list[int]:
        line = f"[2026-11-20 {clock} Other   634] {text}".encode()
        for event in events("server", [line]):
            waiting.add_event(PIPE, event, "server", at("21:24:29"))
        return pending(waiting)

    assert told("21:24:28.000") == [5]  # before it began to wait: of another process that had this PID
    assert told("21:24:28.900") == []


def test_who_waits_in_another_pid_namespace_is_not_taken_for_gone(waiting: NodeState) -> None:
    waiting.set_facts({480, 5}, {}, 1.0)
    assert pending(waiting) == [5]


@pytest.mark.parametrize(("outcome", "contexts"), [(Outcome.HELD, None), (Outcome.OK, 0)])
def test_contexts_and_servers_of_a_daemon_that_has_told_nothing_are_not_none_but_unknown(outcome, contexts) -> None:
    node = NodeState()
    node.set_places([running()])
    node.set_watching(PIPE, Watching("polling"))
    node.set_sample(NvmlSample(1.0, "580", (H100,)))
    node.set_probe(PIPE, Answer("get_server_list", outcome), 1.0)
    snapshot = node.snapshot(2.0)
    assert snapshot.devices[0].contexts == contexts
    assert snapshot.daemons[0].servers_known == (outcome is Outcome.OK)


@pytest.mark.parametrize(
    ("by", "outcome", "health"),
    [
        (None, Outcome.OK, "ok"),
        (2001, Outcome.OK, "ok"),
        (ANYBODY, Outcome.OK, "ok"),
        (2001, None, "unknown"),
        (2001, Outcome.HELD, "held"),
    ],
)
def test_a_daemon_with_another_users_sockets_is_cut_off_in_every_word(by, outcome, health) -> None:
    """Root's command reaches it where one socket is still root's: “● ok” stood beside the red problem."""
    node = NodeState(euid=0)
    speaker = (
        Speaker(0, "root's daemon") if by is None else Speaker(None, "its sockets are not its own", (), by, (0, by))
    )
    node.set_places([running()._replace(uid=0, speaker=speaker)])
    if outcome is not None:
        node.set_probe(PIPE, Answer("get_server_list", outcome), 1.0)
    snapshot = node.snapshot(2.0)
    daemon = snapshot.daemons[0]
    told = any(problem.code == "daemon_usurped" for problem in snapshot.problems)
    words = {"ok": ("● ok", "ok"), "held": ("◆ HELD", "held")}
    cut = by is not None and outcome is not Outcome.HELD
    assert (daemon.health, told) == (health, by is not None)
    assert (health_word(daemon)[0], daemon.state_word) == (("✕ CUT OFF", "cut off") if cut else words[health])
    (row,) = DAEMON_FIELDS["health"].detail.facts(daemon, View.of(snapshot, daemon))
    assert (row.text.startswith("cut off: its sockets"), row.style == "bad bold") == (cut, cut)
    assert ("cut off" in _headline(daemon)) is cut


@pytest.mark.parametrize("before", [None, Outcome.NO_BINARY, Outcome.UNREADABLE, Outcome.BUSY])
def test_that_a_daemon_answers_is_said_by_its_answer_alone(before) -> None:
    """Nobody has asked it yet, or nobody could: not "ok", anywhere, and no reason either to end a process."""
    node = NodeState()
    node.set_places([running()])
    if before is not None:
        node.set_probe(PIPE, Answer("get_server_list", before, message="why"), 1.0)
    snapshot = node.snapshot(2.0)
    daemon = snapshot.daemons[0]
    (told,) = to_json(snapshot)["daemons"]
    metrics = Metrics()
    metrics.take(snapshot, 0.0)
    text = metrics.rendered("")[1].decode()
    assert (daemon.health, told["health"]) == ("unknown", None)
    assert "ok" not in {*health_word(daemon)[0].split(), *daemon.state_word.split()}
    assert (daemon.answers, daemon.runs, daemon.explained) == (False, True, False)
    assert ("mps_daemon_up{" in text, "mps_daemon_state{" in text) == (True, False)
    assert exit_status(snapshot) is ExitStatus.NO_ANSWER
    assert [problem.code for problem in snapshot.problems] == ([] if before is None else ["daemon_unread"])
    assert ("not known" if before is None else "why") in str(Unblock().unavailable(snapshot, PIPE, ()))
    fleet = from_status("node7", to_json(snapshot), 2.0)
    assert fleet.state == ("NOT KNOWN" if before is None else "WARNING")
    node.set_probe(PIPE, Answer("get_server_list", Outcome.OK), 3.0)
    assert node.snapshot(3.0).daemons[0].health == "ok"


def test_what_a_daemon_said_is_not_said_of_its_successor() -> None:
    node = NodeState()
    node.set_places([running()])
    node.set_probe(PIPE, Answer("get_server_list", Outcome.OK), 1.0)
    assert node.snapshot(1.0).daemons[0].health == "ok"
    node.set_places([running(4711)])
    daemon = node.snapshot(2.0).daemons[0]
    assert (daemon.health, daemon.answered_at, daemon.servers_known) == ("unknown", None, False)


@pytest.mark.parametrize(("confirmed", "logged"), [(False, True), (True, False)])
def test_what_the_log_of_a_usurped_daemon_tells_is_the_word_of_the_logs_owner(confirmed: bool, logged: bool) -> None:
    """Root's own log was the word of whoever had put a socket there, and the daemon to be left to him."""
    speaker = Speaker(None, "its sockets are not its own", (), 2001, (0, 2001))
    server = Server(ProcessKey(9), status="FAULT", fault=ServerFault(1.0, (), (), confirmed=confirmed))
    failures = StartFailures(3, reason="out of memory")
    daemon = Daemon(
        PIPE, key=ProcessKey(480), uid=0, user="root", speaker=speaker, start_failures=failures, servers=(server,),
        condition=cut_off(ok(), speaker.why),
    )  # fmt: skip
    told = {each.code: each for each in find_problems([daemon], (), None, euid=0)}
    assert (told["server_start"].uid, told["server_start"].severity) == (None, "error")
    assert told["server_start"].text.startswith("No server starts")
    assert (told["fault"].uid is None) is logged, "what was answered is his"
    assert ("UID 2001 may have made this up" in told["fault"].text) is not logged
    assert not any("leave it to its owner" in (each.remedy or "") for each in told.values())
