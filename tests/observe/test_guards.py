"""Small guards of the fold, each of which something would go wrong without: none is a matter of course."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mpstui.control.answer import Answer, Outcome
from mpstui.control.wire import DeviceQuery, LimitReading, Membership, PsRow, QueriedDevice
from mpstui.core import condition
from mpstui.core.model import (
    Activity,
    Client,
    Context,
    Daemon,
    Device,
    Event,
    PartitionTable,
    ProcessKey,
    Server,
    ServerFault,
)
from mpstui.core.trust import REUSED, Speaker
from mpstui.observe import daemon as of_daemon
from mpstui.observe import reducer
from mpstui.observe.poll import Schedule, ask_membership
from mpstui.observe.problems import ended_unseen, find_problems
from mpstui.observe.reducer import NodeState, Watching
from mpstui.observe.sources import NvmlSample
from mpstui.observe.state import EventLog, FaultRecord, fold_membership
from mpstui.observe.watcher import NodeWatcher
from mpstui.system.procfs import ProcessFacts

from .fakes import FakeClock, FakeControl
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


@pytest.mark.parametrize(("there", "here"), [(ProcessKey(500, 1), 500), (ProcessKey(500, 2), None), (None, None)])
def test_a_client_elsewhere_is_the_process_that_the_kernel_joined_with_it_and_no_successor(
    there: ProcessKey | None, here: int | None
) -> None:
    node, away = served(), 4026532000
    row = PsRow(7, 3, SERVER, "GPU-c", away, "train")
    reading = Membership(at("21:25:00"), (SERVER,), {SERVER: "ACTIVE"}, {SERVER: (7,)}, rows=(row,))
    fold_membership(node.watch(PIPE).state, reading, at("21:25:00"))
    assert node.elsewhere() == {(away, 7)}
    assert node.set_elsewhere({(away, 7): ProcessKey(500, 1)}) == {500}
    node.set_facts({500}, {} if there is None else {500: ProcessFacts(there)}, at("21:25:00"))
    found = client(node)
    assert (found.local, found.pid_here) == (False, here)


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


@pytest.mark.parametrize(
    ("started", "server_started", "is_it"),
    [
        ("21:24:28.598", "21:24:20.000", True),
        ("21:24:29.598", "21:24:20.900", True),
        ("21:24:29.610", "21:24:20.900", False),
        ("21:24:50.000", "21:24:19.100", False),
        ("21:24:50.000", "21:24:41.000", True),
        ("21:24:50.000", None, True),
        (None, "21:24:20.000", True),
    ],
)
def test_a_process_that_is_seen_first_when_it_has_anothers_pid_is_not_its_client(
    started: str | None, server_started: str | None, is_it: bool
) -> None:
    """A client that has ended stays one while what it has forked keeps its connection. Where the server's start is
    another one by the log, the clock was set since: nothing is told by it."""
    node, here = served(), 4026531836
    row = PsRow(7, 3, SERVER, "GPU-c", here, "train")
    reading = Membership(at("21:25:00"), (SERVER,), {SERVER: "ACTIVE"}, {SERVER: (7,)}, rows=(row,))
    fold_membership(node.watch(PIPE).state, reading, at("21:25:00"))
    begun = {7: started, SERVER: server_started}
    facts = {
        pid: ProcessFacts(ProcessKey(pid, 1), start_time=None if when is None else at(when), pid_namespace=here)
        for pid, when in begun.items()
    }
    node.set_facts({7, SERVER}, facts, at("21:25:00"))
    (found,) = shot(node, "21:25:00")[1].clients()
    assert found.local is is_it
    assert found.key == ProcessKey(7, 1 if is_it else None)
    assert (found.command or "").startswith(f"({REUSED})") is not is_it


def test_the_other_context_of_a_client_is_no_second_terminate() -> None:
    """Each context is asked once by one terminate_client; only the same one again blocks the daemon (fact 16)."""
    ask = "MPS server requesting client {{PID: 7, Context ID: {}}} to exit"
    once = (ask.format(1), "Client termination succeeded.", ask.format(2))
    node = served(*once, "Client termination succeeded.")
    assert shot(node, "21:25:00")[1].health == "unknown"
    assert [client(each).terminate_requested for each in (served(), node)] == [False, True]
    assert served(*once).watch(PIPE).state.blocked_by is None
    assert served(*once, ask.format(1)).watch(PIPE).state.blocked_by == 7
    answers = served(*once, ask.format(1))
    answers.set_probe(PIPE, Answer("ps", Outcome.OK), at("21:25:00"))
    assert answers.watch(PIPE).state.blocked_by is None, "a daemon that answers is not blocked, whatever its log says"
    done = "Client termination succeeded."
    assert served(*once, ask.format(1), done).watch(PIPE).state.blocked_by is None, "it was answered after all"


def test_a_new_default_priority_reaches_the_servers_at_once() -> None:
    node = served()
    set_ = control("Cmd:set_default_client_priority 1", "UI closed", clock="21:24:40.000")
    fold("21:25:00", control=set_, node=node)
    more = server(SERVER, "Client {PID: 8, Context ID: 0} connected", clock="21:24:50.000")
    daemon = shot(fold("21:25:00", server=more, node=node), "21:25:00")[1]
    assert daemon.default_client_priority == 1
    assert node.watch(PIPE).state.servers[SERVER].limits.priority == 1
    clients = node.watch(PIPE).state.servers[SERVER].clients
    assert [clients[pid].limits.priority for pid in (7, 8)] == [None, 1]
    assert daemon.find_client(ProcessKey(8)).client_priority is None, (
        "what it set itself, which goes before, no log names"
    )


def test_a_default_priority_that_is_read_is_taken_over_and_one_that_is_not_stays() -> None:
    node = served()
    for read, known in ((1, 1), (None, 1), (0, 0)):
        node.fold_limits(PIPE, LimitReading(at("21:25:00"), priority=read))
        assert shot(node, "21:25:00")[1].default_client_priority == known


def test_a_device_that_comes_or_goes_is_taken_over() -> None:
    node = served()
    for uuid, memory in (("GPU-c", 1 << 20), ("GPU-d", 2 << 20), ("GPU-d", 3 << 20)):
        listed = {uuid: {7: memory}}
        node.set_sample(NvmlSample(at("21:25:00"), mps_clients=listed, processes=listed))
        assert client(node).gpu_memory == {uuid: memory}


@pytest.mark.parametrize(
    ("of_log", "asked", "shown"), [("13000", "13010", "13000"), (None, "13010", "13010"), (None, None, None)]
)
def test_the_version_is_what_the_log_says_or_else_what_was_asked(
    of_log: str | None, asked: str | None, shown: str | None
) -> None:
    node = served()
    node.set_places([running()._replace(version=of_log)])
    node.watch(PIPE).how = node.watch(PIPE).how._replace(version=asked)
    assert shot(node, "21:25:00")[1].version == shown


def test_partitions_that_were_read_are_in_the_next_snapshot() -> None:
    node = served()
    for table, detail in ((None, "not read"), (PartitionTable(), None), (PartitionTable(), "read before")):
        shot(node, "21:25:00")
        node.fold_partitions(PIPE, table, detail)
        daemon = shot(node, "21:25:00")[1]
        assert (daemon.partitions, daemon.partitions_detail) == (table, detail)


@pytest.mark.parametrize(("ends", "nearby"), [("21:24:29.200", (8, 9)), ("21:24:29.900", (9,))])
def test_all_who_ended_just_before_a_fault_are_told_of(ends: str, nearby: tuple[int, ...]) -> None:
    """One that was killed is the cause (fact 17): whichever it was, and not the last one alone."""
    others = [text.replace("PID: 7", f"PID: {pid}") for pid in (8, 9) for text in CONNECT]
    more = ("Client process 9 disconnected", "Client {PID: 7, Context: 1} encountered a fatal GPU error.")
    log = server(SERVER, *others, "Client process 8 disconnected") + server(SERVER, *more, clock=ends)
    fault = fold("21:25:00", server=log, node=served()).watch(PIPE).state.servers[SERVER].fault
    assert fault is not None
    assert fault.ended_nearby == nearby


def test_the_contexts_that_a_fault_names_are_their_clients() -> None:
    """Where the log is cut behind their start; those of clients whom nobody knows are nobody's."""
    gone = (
        "Status of client {PID: 7, Context ID: 9} is INACTIVE",
        "Status of client {PID: 8, Context ID: 3} is INACTIVE",
    )
    state = served("Server is handling a fatal GPU error.", *gone).watch(PIPE).state
    assert {pid: sorted(client.contexts) for pid, client in state.servers[SERVER].clients.items()} == {
        7: [1, 2, 9],
        8: [3],
    }


@pytest.mark.parametrize(
    ("used", "code"), [(48, "device_full"), (47, "device_nearly_full"), (44, "device_nearly_full"), (43, None)]
)
def test_a_device_is_nearly_full_before_it_is_full(used: int, code: str | None) -> None:
    found = find_problems((), (Device("GPU-c", 0, contexts=used),), None)
    assert [(p.code, p.severity) for p in found] == (
        [] if code is None else [(code, "error" if code == "device_full" else "warning")]
    )


@pytest.mark.parametrize(("used", "nearly"), [(53, False), (54, True)])
def test_nine_tenths_of_the_contexts_are_nearly_all(used: int, nearly: bool) -> None:
    found = find_problems((), (Device("GPU-c", 0, contexts=used, context_limit=60),), None)
    assert [p.code for p in found] == ["device_nearly_full"] * nearly


@pytest.mark.parametrize(("used", "severity"), [(55, "info"), (56, "warning")])
def test_a_device_that_is_nearly_full_without_a_strangers_claims_is_so_for_everybody(used: int, severity: str) -> None:
    """Two contexts are the word of another user's daemon; nine tenths of 60 are 54."""
    held = Client(ProcessKey(8, 1), 7, contexts=(Context(0, "GPU-c"), Context(1, "GPU-c")))
    server = Server(ProcessKey(7, 1), clients=(held,))
    daemon = Daemon(PIPE, uid=2001, servers=(server,), condition=condition.ok(), ordinals={"0": "GPU-c"})
    device = Device("GPU-c", 0, contexts=used, context_limit=60)
    found = {p.code: p for p in find_problems([daemon], (device,), None, euid=0)}
    assert found["device_nearly_full"].severity == severity


@pytest.mark.parametrize(("mode", "word"), [({"protocol": "v3"}, "protocol 3")])
def test_a_mode_that_is_not_spoken_is_a_problem_with_its_reason_and_remedy(mode: dict[str, object], word: str) -> None:
    node = served()
    node.set_places([running()._replace(**mode)])
    shot(node, "21:25:00")
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


@pytest.mark.parametrize("more", [(), ("Client termination succeeded.",)])
def test_whoever_a_log_has_asked_to_exit_is_not_to_be_ended_for_a_silent_daemon(more: tuple[str, ...]) -> None:
    """Told to exit once, carried out or not; nothing proves that a process of this namespace is that client."""
    node = served("MPS server requesting client {PID: 7, Context ID: 1} to exit", *more)
    node.set_probe(PIPE, Answer("get_server_list", Outcome.BLOCKED), at("21:24:59"), at("21:24:54"))
    found = shot(node, "21:25:00")[1].condition
    assert found.cause == "silent"
    assert "end process" not in (found.remedy or "")


def test_where_nobody_was_told_to_end_a_silent_daemon_has_its_usual_remedy() -> None:
    node = served()
    node.set_probe(PIPE, Answer("get_server_list", Outcome.BLOCKED), at("21:24:59"), at("21:24:54"))
    assert (shot(node, "21:25:00")[1].condition.remedy or "").startswith("See control.log for the command that it runs")


def test_a_server_without_a_fault_is_told_as_it_is_beside_one_whose_fault_is_a_claim() -> None:
    hit = Client(ProcessKey(8, 1), 7, uid=2002)
    faulty = Server(ProcessKey(7, 1), clients=(hit,), fault=ServerFault(1.0, (8,), (hit.key,), confirmed=True))
    well = Server(ProcessKey(6, 1), clients=(Client(ProcessKey(9, 1), 6, uid=2002),))
    speaker = Speaker(2001, "a daemon of alice")
    daemon = Daemon(PIPE, uid=2001, speaker=speaker, condition=condition.ok(), servers=(faulty, well))
    claimed, same = reducer._as_claimed(daemon, 0).servers
    assert same is well
    assert claimed.fault is not None
    assert not claimed.fault.confirmed


def test_a_client_needs_proof_of_its_own_though_its_daemon_counts_processes_as_we_do() -> None:
    node = served()
    node.set_places([running()._replace(pids_are_ours=True)])
    node.set_facts([7], {7: ProcessFacts(ProcessKey(7, 70), 1.0, uid=0, pid_namespace=1)}, at("21:25:00"))
    assert node.unproved()
    node.set_sample(NvmlSample(1.0, mps_clients={"GPU-c": {7: 1 << 20}}))
    assert not node.unproved()
    node.set_sample(NvmlSample(2.0))
    assert not node.unproved(), "the process is the same"


@pytest.mark.parametrize(("ours", "user"), [(True, "alice"), (None, "alice"), (False, None)])
def test_a_daemon_that_counts_otherwise_does_not_mean_the_mps_client_of_that_number_here(ours, user) -> None:
    """NVML lists one, which is another daemon's."""
    node = served()
    node.set_places([running()._replace(pids_are_ours=ours)])
    node.set_sample(NvmlSample(1.0, mps_clients={"GPU-c": {7: 1 << 20}}))
    node.set_facts([7], {7: ProcessFacts(ProcessKey(7, 70), 1.0, 2001, "alice", pid_namespace=1)}, at("21:25:00"))
    (found,) = shot(node, "21:25:00")[1].clients()
    assert (found.user, found.local) == (user, user is not None)


def test_ordinals_that_are_told_alone_are_shown() -> None:
    node = served()
    shot(node, "21:25:00")
    node.fold_devices(PIPE, DeviceQuery((QueriedDevice(0, "0000:06:00.0", "GPU-c", "H100", ""),), {}))
    assert shot(node, "21:25:00")[1].ordinals == {"0": "GPU-c"}


def test_a_daemon_that_starts_again_may_count_its_devices_otherwise() -> None:
    """Until it is asked, no limit and no fault is one of the GPU that its predecessor called so."""
    node = served()
    node.fold_devices(PIPE, DeviceQuery((QueriedDevice(0, "0000:06:00.0", "GPU-c", "H100", ""),), {}))
    node.watch(PIPE).state.reset(at("21:25:00"))
    assert node.watch(PIPE).state.ordinals == {}


@pytest.mark.parametrize(("asked", "status"), [("21:24:00", "FAULT"), ("21:24:58", "ACTIVE")])
def test_an_answer_ends_a_fault_that_is_older_than_the_question_alone(asked: str, status: str) -> None:
    node = served()
    state = node.watch(PIPE).state
    state.servers[SERVER].fault, state.servers[SERVER].status = FaultRecord(at("21:24:50"), (7,), {7}, ("0",)), "FAULT"
    told = fold_membership(state, Membership(at(asked), (SERVER,), {SERVER: "ACTIVE"}), at("21:25:00"))
    assert (shot(node, "21:25:00")[1].servers[0].status, [event.kind for event in told]) == (
        (status, ["server_recovered"] if status == "ACTIVE" else [])
    )


def test_a_percentage_that_was_read_alone_is_of_those_who_had_come_by_then() -> None:
    """Without logs: whoever came before that reading has what it says, whatever is read later."""
    node = NodeState()
    node.set_places([running()])
    node.set_watching(PIPE, Watching("polling"))
    for time, clients, percentage in ((1.0, (), 25.0), (2.0, (7,), 25.0), (3.0, (7,), 50.0)):
        node.fold_membership(PIPE, Membership(time, (SERVER,), {SERVER: "ACTIVE"}, {SERVER: clients}), time)
        node.fold_limits(PIPE, LimitReading(time + 0.1, server_percentage={SERVER: percentage}))
    assert shot(node, "21:25:00")[1].find_client(ProcessKey(7)).active_thread_percentage == 25.0


# Whose an event is.


def person(pid: int, started: float = 0.0) -> ProcessFacts:
    return ProcessFacts(ProcessKey(pid, 1), start_time=started, uid=70001, user="alice", command=f"train {pid}")


def ends(*pids: int, when: float) -> list[Event]:
    return [Event("client_disconnected", when, PIPE, SERVER, pid, detail="gone") for pid in pids]


def test_a_line_that_comes_just_after_the_end_names_whom_it_is_of() -> None:
    log = EventLog()
    log.know([person(pid) for pid in range(1000, 1100)], 10.0, PIPE)
    log.left(1000, 20.0)
    log.know([person(pid) for pid in range(2000, 2100)], 20.5, PIPE)  # so many that whoever is of no use is forgotten
    log.add(ends(1000, when=21.0)[0], "server")
    assert log.events[0].command == "train 1000"


def test_what_was_told_before_gets_the_name_that_is_learnt_of_the_same_daemon() -> None:
    log = EventLog()
    log.know([person(1)], 10.0, PIPE)
    log.add(Event("xid", 11.0, values={"xid": "31"}), "driver")
    for event in ends(70007, when=12.0):
        log.add(event, "server")
        log.add(event._replace(pipe_dir=PIPE / "other"), "server")
    log.know([person(int("70007"))], 12.0, Path(f"{PIPE}"))
    assert [event.command for event in log.events] == [None, "train 70007", None]


def test_what_happened_to_a_quiet_daemon_is_kept_beside_a_busy_one() -> None:
    """Seen: 500 events of one were kept, and of the other the screen said that nothing had happened yet."""
    log, quiet = EventLog(limit=10), PIPE / "quiet"
    for event in ends(1, 2, 3, when=1.0):
        log.add(event._replace(pipe_dir=quiet), "server")
    for pid in range(10, 60):
        log.add(ends(pid, when=float(pid))[0], "server")
    assert [event.pid for event in log.events] == [1, 2, 3, *range(53, 60)]
    for pid in range(60, 80):
        log.add(ends(pid, when=float(pid))[0]._replace(pipe_dir=quiet), "server")
    assert len(log.events) == 10
    assert [event.pid for event in log.events if event.pipe_dir == PIPE] == [55, 56, 57, 58, 59]


@pytest.mark.parametrize(("later", "told"), [(0.9, 1), (1.1, 2)])
def test_what_both_logs_tell_at_the_same_time_is_told_once(later: float, told: int) -> None:
    log, event = EventLog(), Event("limit_set", 100.0, PIPE, values={"what": "client_priority", "value": "1"})
    log.add(event, "control")
    log.add(event._replace(time=event.time + later), "server")
    assert len(log.events) == told


@pytest.mark.parametrize(("ours", "waits"), [(True, False), (False, True), (None, True)])
def test_a_number_of_another_namespace_is_not_gone_because_nobody_has_it_here(ours: bool | None, waits: bool) -> None:
    pending = control("NEW CLIENT 9 from user 1000: Server is not ready, push client to pending list")
    node = fold("21:25:00", control=pending)
    node.set_places([running()._replace(pids_are_ours=ours)])
    node.set_facts({9, 480}, {480: ProcessFacts(ProcessKey(480, 1))}, at("21:25:00"))
    assert (9 in node.watch(PIPE).state.pending) is waits


def test_whose_launches_may_be_counted_and_what_came_of_it_is_in_the_next_snapshot() -> None:
    node, key = served(), ProcessKey(7, 1)
    assert node.countable() == frozenset()
    node.set_facts({7}, {7: ProcessFacts(key, pid_namespace=1, vouched=True)}, at("21:25:00"))
    shot(node, "21:25:00")
    assert node.countable() == {key}
    for launches in (5.0, 0.0):
        node.set_activity({key: Activity(launches)})
        found = shot(node, "21:25:00")[1].find_client(key)
        assert found is not None
        assert found.activity == Activity(launches)


def test_the_end_of_a_daemon_before_is_not_the_end_of_the_one_that_runs() -> None:
    """In a container its PID is another one there, so the newest that the log tells of has to be it."""
    log = EventLog()
    for number, kind in enumerate(("daemon_started", "daemon_exited", "daemon_started", "daemon_started")):
        log.add(Event(kind, float(number), PIPE, pid=1), "control")  # type: ignore[arg-type]
    assert not log.told_of_end(PIPE, 4711)
    log.add(Event("daemon_exited", 4.0, PIPE, pid=1), "control")
    assert log.told_of_end(PIPE, 4711)


def test_who_asked_and_is_seen_to_be_the_same_user_still_waits() -> None:
    """The user is compared by number, which the log and /proc give apart from each other."""
    waits = "NEW CLIENT 7 from user 70001: Server is not ready, push client to pending list"
    node = fold("21:25:00", control=control(waits, clock="21:24:40.000"))
    state = node.watch(PIPE).state
    assert list(state.pending) == [7]
    assert ended_unseen(state, {7}, {7: person(7)}, True) == []
    assert ended_unseen(state, {7}, {7: replace(person(7), uid=70002)}, True) == [7]


@pytest.mark.parametrize(
    ("seen", "said"),
    [(None, "(not proved to be a PID of this namespace) train"), (4026531836, "(in another PID namespace) train")],
)
def test_of_a_process_that_nobody_here_may_see_no_other_namespace_is_known(seen: int | None, said: str) -> None:
    """With hidepid, for whoever is not root, each client was in another PID namespace."""
    node, claimed = served(), 4026532000
    row = PsRow(7, 3, SERVER, "GPU-c", claimed, "train")
    reading = Membership(at("21:25:00"), (SERVER,), {SERVER: "ACTIVE"}, {SERVER: (7,)}, rows=(row,))
    fold_membership(node.watch(PIPE).state, reading, at("21:25:00"))
    node.set_facts({7}, {7: ProcessFacts(ProcessKey(7, 1), pid_namespace=seen)}, at("21:25:00"))
    found = client(node)
    assert (found.local, found.command) == (False, said)


def test_the_namespace_of_a_process_is_the_kernels_to_say() -> None:
    """Driver 470 has no ps that could."""
    node = served()
    facts = ProcessFacts(ProcessKey(7, 1), pid_namespace=4026531836, vouched=True)
    node.set_facts({7}, {7: facts}, at("21:25:00"))
    found = shot(node, "21:25:00")[1].find_client(facts.key)
    assert found is not None
    assert found.pid_namespace == 4026531836


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("listens", [True, False])
async def test_of_sockets_that_were_exchanged_it_is_known_that_nobody_listens_only_where_they_are_the_same(
    monkeypatch: pytest.MonkeyPatch, same: bool, listens: bool
) -> None:
    node, stamp = served(), (1, 2, 0, 0, 5, 0, 6, 0)
    node.set_places([running()._replace(speaker=Speaker(0, "root's", stamp, listens=listens))])
    now = Speaker(2001, "his", stamp if same else (*stamp[:4], 7, 0, 8, 0))
    monkeypatch.setattr(of_daemon, "find_speaker", lambda pipe_dir: now)
    asked = await of_daemon.DaemonWatcher._exchanged(SimpleNamespace(_node=node, pipe_dir=PIPE))  # type: ignore[arg-type]
    assert asked is not None
    assert asked.answer.outcome is Outcome.NOT_PERMITTED
    place = node.watch(PIPE).place
    assert place is not None
    assert (place.speaker.uid, place.speaker.by, place.speaker.listens) == (None, 2001, not same or listens)


def watcher(node: NodeState, notify=lambda: None) -> of_daemon.DaemonWatcher:
    """Of a daemon whose log was not read from its start on."""
    clock = FakeClock()
    made = of_daemon.DaemonWatcher(PIPE, node, FakeControl(), Schedule(), clock, clock, notify)  # type: ignore[arg-type]
    made._logs = SimpleNamespace(complete=False, believed=False)  # type: ignore[assignment]
    made._fold_logs = lambda: of_daemon._NOTHING  # type: ignore[method-assign]
    return made


@pytest.mark.parametrize(
    ("membership", "limits", "whole"), [(True, True, True), (True, False, False), (False, True, False)]
)
async def test_only_who_was_asked_for_clients_and_limits_was_asked_for_everything(membership, limits, whole):
    node = NodeState()
    node.set_places([running()])
    made = watcher(node)
    assert not made._seen_whole
    assert await made._read(membership, limits) is Outcome.OK
    assert made._seen_whole is whole


@pytest.mark.parametrize("before", [[running()], []], ids=["another daemon", "none was known"])
async def test_what_was_answered_while_a_daemon_came_is_not_its_whole_state(before):
    node = NodeState()
    node.set_places(before)
    made = watcher(node, lambda: node.set_places([running(481)]))
    assert await made._read(True, True) is Outcome.OK
    assert not made._seen_whole


async def test_a_daemon_is_due_by_its_schedule_unless_it_is_being_asked():
    made = watcher(NodeState())
    made.schedule.want(True, False, 0.0)
    assert made.due() == made.schedule.due() < math.inf
    made._asking = asyncio.ensure_future(asyncio.sleep(0))  # type: ignore[assignment]
    assert made.due() == math.inf
    await made._asking


@pytest.mark.parametrize(
    ("command", "outcome"),
    [
        ("get_client_list", Outcome.UNREADABLE),
        ("get_client_list", Outcome.BLOCKED),
        ("get_server_status", Outcome.HELD),
    ],
)
async def test_clients_that_could_not_be_asked_for_are_not_said_to_be_none(command: str, outcome: Outcome) -> None:
    control = FakeControl()
    really = control._answer
    control._answer = lambda asked, value: (  # type: ignore[method-assign]
        Answer(asked, outcome, message="no") if asked.startswith(command) else really(asked, value)
    )
    asked = await ask_membership(control, FakeClock(), None, False)  # type: ignore[arg-type]
    assert asked.membership is None
    assert (asked.answer.outcome, asked.answer.command.split()[0]) == (outcome, command)


def test_nothing_is_read_of_a_process_of_number_0() -> None:
    """A client of another namespace is called so."""
    node = served()
    node.fold_membership(PIPE, Membership(at("21:25:00"), (SERVER,), {SERVER: "ACTIVE"}, {SERVER: (0, 1, 7)}), 1.0)
    assert node.pids() >= {1, 7, SERVER}
    assert 0 not in node.pids()


@pytest.mark.parametrize("named", [(), (PIPE,)])
def test_a_place_of_the_other_kind_is_shown_where_it_was_named_and_left_out_where_it_was_found(named) -> None:
    """A simulated node's beside a real one's."""
    sources = SimpleNamespace(foreign=lambda pipe_dir: pipe_dir == PIPE, simulated=False, claim=lambda pipe_dir: None)
    found = (running(), running()._replace(pipe_dir=Path("/other")))
    self: Any = SimpleNamespace(_find=lambda *dirs: found, _pipe_dirs=named, _log_dirs=(), _sources=sources)
    self._of_this_kind = lambda place: NodeWatcher._of_this_kind(self, place)
    kept = [(place.pipe_dir, place.state) for place in NodeWatcher._look(self)]
    assert kept == [(PIPE, "unusable")] * bool(named) + [(Path("/other"), "running")]
