"""Servers that never start, and clients in PID namespaces that the daemon does not see."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest

from mpstui.control.answer import Answer, Outcome
from mpstui.control.wire import Membership
from mpstui.core.cells import health_word
from mpstui.core.model import ProcessKey
from mpstui.doctor.checkup import examine, examine_logs
from mpstui.observe.sources import NvmlSample
from mpstui.observe.state import ClientRecord, fold_membership
from mpstui.system.procfs import ProcessFacts
from tests.doctor.test_checks import facts

from .replay import PIPE, at, fold, running, shot

FAILED = ("Failed to start : invalid argument", "Failed to start : operation not supported")


def control(*texts: str, clock: str = "21:24:28.598", pid: int = 480) -> list[bytes]:
    return [f"[2026-11-20 {clock} Control {pid:>5}] {text}".encode() for text in texts]


def server(pid: int, *texts: str, clock: str = "21:24:28.598") -> list[bytes]:
    return [f"[2026-11-20 {clock} Other {pid:>5}] {text}".encode() for text in texts]


def tries(*pids: int) -> list[bytes]:
    """As a public ticket has it: again and again, a second apart."""
    return [
        line
        for number, pid in enumerate(pids)
        for line in control(
            f"Starting new server {pid} for user 0",
            f"Server {pid} exited with status 1",
            "Removed Shm file at ",
            clock=f"21:24:{20 + number}.000",
        )
    ]


def problems(node, clock="21:25:00"):
    return {problem.code: problem for problem in shot(node, clock)[0].problems}


@pytest.mark.parametrize("words", [*FAILED, "MPS server failed to start", None])
@pytest.mark.parametrize("late", [False, True])
def test_how_often_since_when_and_why(words: str | None, late: bool) -> None:
    """The two logs are read one after the other, so either may be the first to tell."""
    logs = [("control", tries(95, 98, 103))]
    if words:
        clock = "21:24:22.900" if late else "21:24:21.999"
        logs.append(
            ("server", server(103, "Using log directory: /x", "Startup" if not late else "", words, clock=clock))
        )
    node = fold("21:25:00", **dict(logs))
    daemon = shot(node, "21:25:00")[1]
    found = daemon.start_failures
    assert (found.count, found.since, found.last) == (
        3,
        at("21:24:20"),
        at("21:24:22.900" if words and late else "21:24:22"),
    )
    assert (found.server_pid, found.uid) == (103, 0)
    assert found.reason == (None if words is None else words.partition(" : ")[2] or None)
    problem = problems(node)["server_start"]
    assert problem.severity == "error"
    assert "3 ended before they were ready since 2026-11-20 21:24:20" in problem.text
    assert "ikely cause" in problem.remedy
    assert ("give no reason" in problem.text) == (found.reason is None)
    assert daemon.health == "unknown"
    node.set_probe(PIPE, Answer("get_server_list", Outcome.OK), at("21:25:00"))
    daemon = shot(node, "21:25:00")[1]
    assert (daemon.health, daemon.state_word) == ("ok", "no server starts")
    assert health_word(daemon) == ("✕ NO SERVER STARTS", "bad")
    assert not daemon.servers


@pytest.mark.parametrize("pid", [0, 700])
@pytest.mark.parametrize("failed", [(), (95, 98, 103, 104, 105)])
def test_the_check_up_says_that_no_server_starts_and_of_no_clients_that_are_not_there(
    pid: int, failed, tmp_path
) -> None:
    wait = control(
        f"NEW CLIENT {pid} from user 1000: Server is not ready, push client to pending list", clock="21:24:19.000"
    )
    begun = control("Starting new server 110 for user 1000", clock="21:24:40.000")
    snapshot = shot(fold("21:25:00", control=[*wait, *tries(*failed), *begun]), "21:25:00")[0]
    known = replace(facts(), snapshot=snapshot)
    for found in (examine(known), examine_logs(snapshot, tmp_path, ())):
        told = [f.evidence for f in found if (f.check, f.verdict) == ("starting", "error")]
        assert [text.partition(" since")[0] for text in told] == (
            ["No server starts: 5 ended before they were ready"] if failed else []
        )
        (users,) = (f for f in found if f.check == "users")
        assert users.verdict != "warning"
        assert "somebody" not in users.evidence
        assert not users.remedy


def test_one_that_does_not_start_is_said_too_and_it_is_over_when_one_does() -> None:
    node = fold("21:25:00", control=tries(95))
    assert problems(node)["server_start"].text.startswith("A server ended before it was ready, at 2026-11-20 21:24:20")
    ready = control("Starting new server 97 for user 0", "NEW SERVER 97: Ready", clock="21:24:40.000")
    assert shot(fold("21:25:00", control=ready, node=node), "21:25:00")[1].start_failures is None
    assert "server_start" not in problems(node)


def test_it_is_over_when_the_daemon_says_that_a_server_is_active() -> None:
    node = fold("21:25:00", control=tries(95, 98))
    fold_membership(node.watch(PIPE).state, Membership(at("21:25:00"), (99,), {99: "ACTIVE"}), at("21:25:00"))
    assert shot(node, "21:25:01")[1].start_failures is None


@pytest.mark.parametrize(
    "end",
    [
        ("NEW SERVER 95: Ready", "Server 95 exited with status 1"),
        ("Force shutting down server 95", "Server 95 exited with status 0"),
        ("NEW UI", "Cmd:quit", "Server 95 exited with status 0"),
    ],
)
def test_a_server_that_was_ready_or_was_told_to_end_has_not_failed_to_start(end: tuple[str, ...]) -> None:
    node = fold("21:25:00", control=control("Starting new server 95 for user 0", *end))
    assert shot(node, "21:25:00")[1].start_failures is None


@pytest.mark.parametrize("first", ["proc", "answer", "server.log"])
def test_whoever_tells_first_that_it_is_gone_it_counts_once(first: str) -> None:
    """The log is read a moment later than the process ends; the two logs one after the other."""
    lines = tries(95)
    node = fold("21:25:00", control=lines[:1])
    node.set_facts({95}, {95: ProcessFacts(ProcessKey(95, 1))}, at("21:24:20"))
    if first == "proc":
        node.set_facts({95}, {}, at("21:24:20"))
    if first == "answer":
        fold_membership(node.watch(PIPE).state, Membership(at("21:25:00"), ()), at("21:25:00"))
    fold("21:25:00", control=lines[1:], node=node)
    if first == "server.log":
        fold("21:25:00", server=server(95, "Startup", FAILED[0], clock="21:24:19.999"), node=node)
    daemon = shot(node, "21:25:00")[1]
    assert (daemon.start_failures.count, daemon.start_failures.uid, daemon.servers) == (1, 0, ())


def test_those_who_wait_are_told_that_no_server_starts() -> None:
    wait = control("NEW CLIENT 700 from user 0: Server is not ready, push client to pending list", clock="21:24:19.000")
    problem = problems(fold("21:25:00", control=[*wait, *tries(95, 98)]))["pending"]
    assert "present server" not in problem.remedy
    assert "No server starts" in problem.remedy
    alone = problems(fold("21:25:00", control=wait))["pending"]
    assert "present server" not in alone.remedy
    assert "started" in alone.remedy


def test_what_the_problem_of_those_who_wait_is_about() -> None:
    """One client with a PID is named; of several, and of one without, it is the daemon's."""
    named = control(
        "NEW CLIENT 700 from user 0: Server is not ready, push client to pending list", clock="21:24:19.000"
    )
    more = [line.replace(b"700", b"701") for line in named]
    assert problems(fold("21:25:00", control=named))["pending"].subject == "client 700"
    assert problems(fold("21:25:00", control=[*named, *more]))["pending"].subject == str(PIPE)
    assert problems(fold("21:25:00", control=waiting(0)))["pending"].subject == str(PIPE)


def test_another_users_client_does_not_wait_for_a_server_that_never_starts_to_end() -> None:
    """Where servers do start, the one that is starting for another user is what it waits for (fact 21)."""
    wait = control("NEW CLIENT 700 from user 5: Server is not ready, push client to pending list", clock="21:24:40.000")
    begun = control("Starting new server 103 for user 0", clock="21:24:39.000")
    assert shot(fold("21:25:00", control=[*begun, *wait]), "21:25:00")[1].pending[0].server_pid == 103
    assert shot(fold("21:25:00", control=[*tries(95), *begun, *wait]), "21:25:00")[1].pending[0].server_pid is None


def test_in_multi_user_mode_nobody_waits_for_the_server_that_starts_to_end() -> None:
    """One server serves all users: who came too early is taken when it is ready."""
    begun = control("Starting new server 103 for user 0", clock="21:24:39.000")
    wait = control("NEW CLIENT 700 from user 5: Server is not ready, push client to pending list", clock="21:24:40.000")
    node = fold("21:25:00", control=[*begun, *wait])
    node.set_places([running()._replace(multiuser=True)])
    snapshot, daemon = shot(node, "21:25:00")
    assert (daemon.pending[0].server_pid, daemon.pending[0].waits_for) == (None, ())
    assert "when the server that is being started is ready" in problems(node)["pending"].remedy
    assert snapshot.problems


@pytest.mark.parametrize(
    "text", ["Failed to start server using uid 5. out of memory", "Failed to start server using uid 5, error: 3"]
)
@pytest.mark.parametrize("asked", [(), ("NEW UI", "Cmd:start_server -uid 5")])
def test_a_daemon_that_cannot_make_the_process_says_so(text: str, asked: tuple[str, ...]) -> None:
    found = shot(fold("21:25:00", control=control(*asked, text)), "21:25:00")[1].start_failures
    assert (found.count, found.uid, found.server_pid) == (1, 5, None)
    assert found.reason == re.split(r"\. |error: ", text)[1]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Server 337 is ready", "server_ready"),  # reported from Kubernetes
        ("NEW SERVER 337: Ready", "server_ready"),
        ("Server 337 is <busy>", "command"),  # where a log begins behind the command
    ],
)
def test_what_a_daemon_says_of_a_server_is_known(text: str, kind: str) -> None:
    snapshot, _ = shot(fold("21:25:00", control=control(text)), "21:25:00")
    assert [(event.kind, event.server_pid) for event in snapshot.events] == [(kind, 337)]


ZERO = "NEW CLIENT 0 from user {}: Server is not ready, push client to pending list"


def waiting(*uids: int) -> list[bytes]:
    return control(
        "Starting control daemon using socket /p/control", *(ZERO.format(uid) for uid in uids), clock="21:24:19.000"
    )


def test_a_client_without_a_pid_is_called_what_it_is_and_counted() -> None:
    node = fold("21:25:00", control=waiting(0, 0, 1000))
    snapshot, daemon = shot(node, "21:25:00")
    assert [(p.key, p.pid, p.uid, p.elsewhere) for p in daemon.pending] == [
        (None, None, 0, 1),
        (None, None, 0, 2),
        (None, None, 1000, 3),
    ]
    assert problems(node)["pending"].text == (
        "3 clients in other PID namespaces (root, UID 1000) wait for a server. "
        "Whether they still wait cannot be seen from here."
    )
    told = [event for event in snapshot.events if event.kind == "client_pending"]
    assert {event.pid for event in told} == {None}
    assert {event.detail for event in told} >= {"a client in another PID namespace of user 0 waits for a server"}
    assert 0 not in node.pids()
    one = problems(fold("21:25:00", control=waiting(0)))["pending"]
    assert one.text.startswith("A client in another PID namespace (root) waits for a server.")


@pytest.mark.parametrize(
    ("multiuser", "user", "left"), [(None, 0, [1000]), (False, 1000, [0, 0]), (True, 0, []), (True, 1000, [])]
)
def test_it_ends_when_a_server_takes_those_of_its_user(multiuser: bool | None, user: int, left: list[int]) -> None:
    node = fold("21:24:19", control=waiting(0, 0, 1000))
    node.set_places([running()._replace(multiuser=multiuser)])
    ready = control(f"Starting new server 337 for user {user}", "NEW SERVER 337: Ready", clock="21:24:22.000")
    daemon = shot(fold("21:25:00", control=ready, node=node), "21:25:00")[1]
    assert [p.uid for p in daemon.pending] == left


def test_pid_0_is_never_a_process() -> None:
    """Not as a client of a server either: no row, no look into /proc, and each of them counted."""
    lines = [f"Client {{PID: 0, Context ID: {number}}} connected" for number in (0, 1, 0, 1)]
    lines += ["Status of client {PID: 0, Context ID: 1} is ACTIVE", "Client {PID: 7, Context ID: 0} connected"]
    node = fold(
        "21:25:00",
        control=control("Starting new server 337 for user 0", "NEW SERVER 337: Ready"),
        server=server(337, *lines),
    )
    snapshot, daemon = shot(node, "21:25:00")
    assert ([c.pid for c in daemon.clients()], daemon.servers[0].clients_elsewhere) == ([7], 2)
    assert 0 not in node.pids()
    assert not [event for event in snapshot.events if event.pid == 0]
    reading = Membership(at("21:25:00"), (337,), {337: "ACTIVE"}, {337: (0, 7, 0, 0)})
    fold_membership(node.watch(PIPE).state, reading, at("21:25:00"))
    daemon = shot(node, "21:25:01")[1]
    assert ([c.pid for c in daemon.clients()], daemon.servers[0].clients_elsewhere) == ([7], 3)
    gone = server(337, "Client process 0 disconnected", clock="21:25:02.000")
    assert shot(fold("21:25:03", server=gone, node=node), "21:25:03")[1].servers[0].clients_elsewhere == 2
    node.set_sample(NvmlSample(1.0, "580", (), {"GPU-1": {7: 1}}, {"GPU-1": {0: 1, 7: 1}}))
    assert node.pids() >= {7, 337}
    assert 0 not in node.pids()
    node.set_facts({7}, {7: ProcessFacts(ProcessKey(7, 1))}, at("21:25:03"))
    assert {client.key for client in shot(node, "21:25:03")[1].clients()} == {ProcessKey(7, 1)}


def test_a_fault_does_not_hit_process_0() -> None:
    texts = itertools.chain(
        ("Client {PID: 7, Context ID: 0} connected", "Client {PID: 0, Context: 1} encountered a fatal GPU error."),
        ("Server is handling a fatal GPU error.", "The following devices will be reset:", "0"),
        ("The following client process have a sticky error set:", "0", "7", "Server has been notified"),
    )
    daemon = shot(fold("21:25:00", server=server(337, *texts)), "21:25:00")[1]
    fault = daemon.servers[0].fault
    assert [key.pid for key in fault.affected] == [7]
    assert 0 not in (*fault.named, *fault.ended, *fault.suspects)


@pytest.mark.parametrize(
    ("connected", "start", "after"),
    [
        (100.0, 50.0, True),
        (100.0, 101.0, True),
        (100.0, 101.1, False),
        (None, 50.0, False),
        (100.0, None, False),
    ],
)
def test_a_client_came_after_a_process_that_was_there_then(
    connected: float | None, start: float | None, after: bool
) -> None:
    """/proc tells a start to a hundredth, the log a line's: within a second they are one."""
    assert ClientRecord(7, 0.0, connected).came_after(start) is after


def test_one_failed_start_is_not_told_to_who_waits_as_no_server_starts() -> None:
    """Another one was being started for them, and the problem beside it said "A server ended before it was ready"."""
    wait = control("NEW CLIENT 700 from user 0: Server is not ready, push client to pending list", clock="21:24:19.000")
    again = control("Starting new server 98 for user 0", clock="21:24:21.000")
    found = problems(fold("21:25:00", control=[*wait, *tries(95), *again]))
    assert "No server starts" not in found["pending"].remedy
    assert "when one is ready" in found["pending"].remedy


def test_a_log_that_was_not_read_is_not_said_to_give_no_reason() -> None:
    text = problems(fold("21:25:00", control=tries(95)))["server_start"].text
    assert "server.log" not in text
    assert text.endswith("The logs that were read give no reason.")


def test_a_server_that_has_failed_to_start_is_not_one_that_starts() -> None:
    """In a server.log alone it was INITIALIZING for ever, beside "a server ended before it was ready"."""
    lines = server(425, "Startup", "Initializing server process", FAILED[0], clock="21:24:20.000")
    daemon = shot(fold("21:25:00", server=lines), "21:25:00")[1]
    assert daemon.servers == ()
    assert daemon.start_failures.count == 1
    both = fold("21:25:00", server=lines, control=tries(425))
    assert shot(both, "21:25:00")[1].start_failures.count == 1


def test_the_reason_of_one_server_is_not_given_to_another() -> None:
    """Two users' servers that fail by turns, of which one says why."""
    lines = [*tries(95), *control("Starting new server 96 for user 1000", clock="21:24:21.000")]
    lines += control("Server 96 exited with status 1", clock="21:24:21.500")
    node = fold("21:25:00", control=lines, server=server(95, "Startup", FAILED[1], clock="21:24:20.000"))
    text = problems(node)["server_start"].text
    assert "(server 96)" in text
    assert "Its reason" not in text
    assert text.endswith("Server 95 gave as its reason: “operation not supported”.")
