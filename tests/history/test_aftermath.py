"""Who is hit, who waits and who is outside, from recorded logs and from readings made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mpstui.control.answer import Answer, Outcome
from mpstui.control.grammar import LogParser
from mpstui.control.wire import DeviceQuery, Membership, QueriedDevice
from mpstui.core.blast import blast_of, blast_radius, bridges, groups
from mpstui.core.cells import status_mark
from mpstui.core.faults import fault_reports
from mpstui.core.model import Client, Context, Daemon, Device, Event, ProcessKey, Server, SessionHolder
from mpstui.core.trust import Speaker
from mpstui.fields import LIMIT, View, limits_of, table
from mpstui.observe.discovery import Place
from mpstui.observe.problems import find_problems
from mpstui.observe.sources import NvmlSample
from mpstui.observe.state import ClientRecord, DaemonState, ServerRecord
from mpstui.operations.rescue import left_out
from mpstui.system.procfs import ProcessFacts
from tests.observe.replay import DATA, PIPE, at, events, fold, lines, running, shot

UUID = "GPU-51dbd800-8a65-a8fc-d0ec-7abe3f1ec476"
FAULTS = {kind: lines(DATA / f"h100/faults-{kind}.log") for kind in ("control", "server")}
USERS = {kind: lines(DATA / f"h100/users-{kind}.log") for kind in ("control", "server")}
CONTAINMENT = {
    "server": [
        line for line in lines(DATA / "h200x4/containment.txt") if line.startswith(b"[2026") and b" 910] " in line
    ]
}


def pids(clients):
    return {client.pid for client in clients}


def test_the_radius_is_foretold_as_it_was_on_four_gpus():
    """Before A (901) faulted: B and C would be lost, D would not; then they were, and D ran on."""
    snapshot, daemon = shot(fold("21:41:51.000", **CONTAINMENT), "21:41:51.000")
    radius = blast_of(daemon, ProcessKey(901))
    assert pids(radius.lost) == {902, 903}
    assert pids(radius.unhurt) == {904}
    assert len(radius.devices) == 2
    assert pids(radius.bridges) == {902}
    assert pids(blast_of(daemon, ProcessKey(904)).lost) == set()
    assert [each.subject for each in snapshot.problems if each.code == "bridge"] == ["client 902"]
    foretold = {901} | pids(radius.lost)
    snapshot, daemon = shot(fold("21:41:51.300", **CONTAINMENT), "21:41:51.300")
    (report,) = fault_reports(daemon, snapshot)
    assert not [each for each in snapshot.problems if each.code == "bridge"], "whose contexts are gone computes no more"
    assert pids(report.left) == foretold
    assert pids(report.unhurt) == pids(radius.unhurt)
    assert report.fault.named == (901,)
    assert report.fault.devices == ("0", "1")
    assert report.fault.ended_nearby == ()


def said_so(daemon):
    """The daemon, once its own answer has said FAULT."""
    servers = (
        replace(server, fault=server.fault and replace(server.fault, confirmed=True)) for server in daemon.servers
    )
    return replace(daemon, servers=tuple(servers))


def test_while_one_of_them_lives_new_clients_are_refused_and_counted():
    snapshot, daemon = shot(fold("21:41:53.000", **CONTAINMENT), "21:41:53.000")
    (report,) = fault_reports(daemon, snapshot)
    assert report.fault.refused == 1
    assert report.summary.endswith("; the daemon has not confirmed it"), "by the log alone"
    (report,) = fault_reports(said_so(daemon), snapshot)
    assert "3 clients have to end" in report.summary
    snapshot, daemon = shot(fold("21:41:53.500", **CONTAINMENT), "21:41:53.500")
    (report,) = fault_reports(daemon, snapshot)
    assert pids(report.left) == {903}
    assert report.fault.ended == (901, 902)
    snapshot, daemon = shot(fold("21:41:53.650", **CONTAINMENT), "21:41:53.650")
    assert fault_reports(daemon, snapshot) == ()


def test_after_a_bare_kill_the_one_that_was_killed_is_named_too():
    """Fact 17: 1069 was killed, the log names 1067."""
    snapshot, daemon = shot(fold("21:29:07.500", **FAULTS), "21:29:07.500")
    (report,) = fault_reports(daemon, snapshot)
    assert "names client 1067, which is not proof" in report.named
    assert report.fault.suspects == (1067, 1069)
    assert report.fault.ended_nearby == (1069,)
    assert "Client 1069 ended at the same moment" in report.caveat
    assert "that can be the cause" in report.caveat
    (problem,) = [problem for problem in snapshot.problems if problem.code == "fault"]
    assert "1069" in problem.text


def test_a_recovery_that_the_daemon_tells_before_the_logs_do_is_an_event_and_only_one():
    node = fold("21:41:53.500", **CONTAINMENT)
    asked = at("21:41:53.640")
    node.fold_membership(PIPE, Membership(asked, (910,), {910: "ACTIVE"}, {910: (904,)}), asked)
    snapshot, daemon = shot(node, "21:41:53.650")
    assert fault_reports(daemon, snapshot) == ()
    fold("21:41:54.000", server=[line for line in CONTAINMENT["server"] if line[12:24] > b"21:41:53.500"], node=node)
    snapshot, _ = shot(node, "21:41:54.000")
    assert [event.kind for event in snapshot.events].count("server_recovered") == 1


def test_a_status_that_was_asked_for_before_the_fault_does_not_end_it():
    node = fold("21:41:51.300", **CONTAINMENT)
    asked = at("21:41:51.000")
    node.fold_membership(PIPE, Membership(asked, (910,), {910: "ACTIVE"}), at("21:41:51.300"))
    _, daemon = shot(node, "21:41:51.300")
    assert (daemon.servers[0].status, daemon.servers[0].fault is not None) == ("FAULT", True)


GUIDE = [
    event
    for event in events("server", lines(DATA / "guide/server-2022.log"))
    if event.kind in {"context_active", "fatal_fault", "context_closed"}
]


@pytest.mark.parametrize(
    ("told", "left", "here"),
    [(4, {11641, 11643}, {11641, 11643, 11661, 11663}), (5, {11643}, {11643, 11661, 11663}), (7, None, {11661, 11663})],
)
def test_the_vendor_guides_own_fault_ends_when_those_hit_have_gone(told, left, here):
    """The form of 2022: nobody is named, no client says goodbye but by the end of its last context."""
    node = fold("21:23:00")
    for event in GUIDE[:told]:
        node.add_event(PIPE, event, "server", event.time)
    snapshot, daemon = shot(node, "21:24:30")
    (server,) = daemon.servers
    assert pids(server.clients) == here
    if left is None:
        assert (server.fault, server.status) == (None, "ACTIVE")
        kinds = [event.kind for event in snapshot.events]
        assert (kinds.count("fatal_fault"), kinds.count("server_recovered")) == (1, 1)
        return
    assert pids(server.fault.affected) == left
    assert (server.fault.named, server.fault.devices) == ((), ("0", "1"))
    (report,) = fault_reports(daemon, snapshot)
    assert report.named == "server.log names no client: whose fault it was is not known."
    assert report.fault.suspects == (11641, 11643), "nobody else was taken, so nobody else made it"
    (problem,) = [problem for problem in snapshot.problems if problem.code == "fault"]
    assert "server.log names nobody" in problem.text


def test_owners_get_a_text_of_their_own():
    node = fold("21:29:12.200", **FAULTS)
    owners = {1133: (2001, "alice"), 1134: (2001, "alice"), 1135: (2002, "bob")}
    facts = {
        pid: ProcessFacts(ProcessKey(pid, 7), vouched=True, uid=uid, user=user, command=f"python {pid}.py")
        for pid, (uid, user) in owners.items()
    }
    node.set_facts(node.pids(), facts, at("21:29:12.200"))
    snapshot, daemon = shot(node, "21:29:15.200")
    assert fault_reports(daemon, snapshot)[0].notes == (), "nobody is asked to end anything on the log's word alone"
    (report,) = fault_reports(said_so(daemon), snapshot)
    assert {note.user: pids(note.clients) for note in report.notes} == {"alice": {1133, 1134}, "bob": {1135}}
    text = next(note.text for note in report.notes if note.user == "bob")
    assert "1135  python 1135.py" in text
    assert "1134" not in text
    assert "gpu-07" in text
    assert "2026-11-20 21:29:12" in text
    assert report.fault.affected == tuple(ProcessKey(pid, 7) for pid in owners)


def test_blocked_by_a_second_terminate_whoever_sent_it():
    node = fold("21:28:47.000", **FAULTS)
    node.set_probe(PIPE, Answer("get_server_list", Outcome.BLOCKED), at("21:28:47.000"))
    _, daemon = shot(node, "21:28:47.000")
    found = daemon.condition
    assert (found.cause, found.frees) == ("terminated_twice", "unblock")
    assert found.ends == (daemon.blocked_by,)
    assert found.since == at("21:28:46.381")
    _, daemon = shot(fold("21:28:58.500", **FAULTS), "21:28:58.500")
    assert (daemon.condition.cause, daemon.blocked_by) == ("unasked", None)


def test_waiting_in_quit_names_the_clients_and_ends_with_them():
    """Another daemon was told to quit at 21:31:25.4 and its client ended at 21:31:31.7 (fact 19)."""
    node = fold("21:31:26.000", **USERS)
    snapshot, daemon = shot(node, "21:31:26.000")
    assert (daemon.health, daemon.state_word) == ("blocked", "quitting"), "nothing is wrong with it: it was told to"
    (told,) = (each for each in snapshot.problems if each.code.startswith("daemon_"))
    assert (told.severity, told.code) == ("warning", "daemon_quitting")
    assert "will not answer again" in (left_out("unblock", daemon) or "")
    found = daemon.condition
    assert (found.cause, found.since, found.frees) == ("quitting", at("21:31:25.443"), "")
    assert pids(found.ends) == pids(daemon.clients()) == {3028}
    assert "3028" in daemon.health_detail
    _, daemon = shot(fold("21:31:31.800", **USERS), "21:31:31.800")
    assert daemon.condition.cause != "quitting"


def test_waiting_in_quit_lasts_until_the_server_has_ended_too():
    """The last client is gone some seconds before the daemon looks at its servers again."""
    node = fold("21:31:26.000", **USERS)
    known = ProcessFacts(ProcessKey(3028, 7), vouched=True)
    node.set_facts({3028}, {3028: known}, at("21:31:26"))
    node.set_facts({3028}, {}, at("21:31:27"))
    node.set_probe(PIPE, Answer("get_server_list", Outcome.BLOCKED), at("21:31:33"), at("21:31:28"))
    _, daemon = shot(node, "21:31:33")
    assert (daemon.health, daemon.condition.since) == ("blocked", at("21:31:25.443"))
    assert daemon.health_detail.startswith("told to quit, and its last client has ended")
    assert "looks at them again" in daemon.remedy


def test_a_quit_that_was_refused_is_none():
    _, daemon = shot(fold("21:31:01.990", **USERS), "21:31:01.990")
    assert daemon.health == "unknown"


def test_a_server_that_was_told_to_end_says_so_until_it_is_gone():
    """It was ACTIVE like any other, and only the events told. A client of its own user that comes later is let in, and
    waited for too."""
    _, daemon = shot(fold("21:31:01.983", **USERS), "21:31:01.983")
    assert [server.ending for server in daemon.servers] == [False]
    assert not [found for found in find_problems([daemon], [], None) if found.code == "server_ending"]
    snapshot, daemon = shot(fold("21:31:03.000", **USERS), "21:31:03.000")
    (server,) = daemon.servers
    assert (server.ending, server.ending_since) == (True, at("21:31:01.984"))
    assert status_mark(server)[0] == "● ACTIVE ending"
    assert "ACTIVE ending" in table(LIMIT, limits_of(daemon), View.of(snapshot, daemon))[2], "as status prints it"
    (told,) = [found for found in snapshot.problems if found.code == "server_ending"]
    assert (told.severity, told.subject) == ("info", "server 1402")
    assert told.text.startswith("Server 1402 waits for client 2843 (")
    assert "its log says that it was told to end at 2026-11-20 21:31:01" in told.text
    assert "It still takes new clients" in told.text
    snapshot, daemon = shot(fold("21:31:15.000", **USERS), "21:31:15.000")
    assert (daemon.servers[0].ending, pids(daemon.clients()) >= {2990}) == (True, True)
    snapshot, daemon = shot(fold("21:31:18.100", **USERS), "21:31:18.100")
    assert 1402 not in {server.pid for server in daemon.servers}
    assert "server_ending" not in {found.code for found in snapshot.problems}


def test_a_daemon_that_answers_after_all_is_not_waiting_in_quit():
    node = fold("21:31:26.000", **USERS)
    node.set_probe(PIPE, Answer("get_server_list", Outcome.OK), at("21:31:27"), at("21:31:25.440"))
    assert shot(node, "21:31:28")[1].health == "blocked"  # asked before it was told to quit
    node.set_probe(PIPE, Answer("get_server_list", Outcome.OK), at("21:31:27"), at("21:31:26.990"))
    assert shot(node, "21:31:28")[1].health == "ok"


def test_held_says_by_whom_and_from_when_the_picture_is():
    node = fold("21:28:36.900", **FAULTS)
    node.set_probe(PIPE, Answer("get_server_list", Outcome.OK), at("21:28:37"))
    (opened,) = (e for e in events("control", [b"[2026-11-20 21:28:37.500 Control   443] NEW UI"]))
    node.add_event(PIPE, opened, "control", opened.time)
    holder = SessionHolder(4711, "dave", "pts/3")
    node.set_probe(PIPE, Answer("get_server_list", Outcome.HELD, holder=holder), at("21:28:39"))
    _, daemon = shot(node, "21:28:40")
    found = daemon.condition
    assert (found.cause, found.answered_at, found.since) == ("held", at("21:28:37"), opened.time)
    assert (found.frees, found.ends) == ("unblock", (holder.key,))
    likely = replace(holder, certain=False)
    node.set_probe(PIPE, Answer("get_server_list", Outcome.HELD, holder=likely), at("21:28:39"))
    found = shot(node, "21:28:41")[1].condition
    assert (found.holder, found.frees, found.ends) == (likely, "", ()), "a likely one is not to be ended by a key"


def test_silent_without_a_reason_in_the_logs():
    node = fold("21:28:36.900", **FAULTS)
    node.set_probe(PIPE, Answer("get_server_list", Outcome.BLOCKED), at("21:28:40"))
    _, daemon = shot(node, "21:28:40")
    assert daemon.condition.cause == "silent"


def test_a_daemon_that_is_found_absent_by_a_command_first_has_its_end_at_that_time():
    node = fold("21:31:41.000", **USERS)
    node.set_facts(node.pids(), {3130: ProcessFacts(ProcessKey(3130, 3), vouched=True)}, at("21:31:41"))
    node.set_probe(PIPE, Answer("get_server_list", Outcome.ABSENT), at("21:31:42"))
    node.set_places([running(3060)._replace(state="stale", daemon=None)], at("21:31:43"))
    _, daemon = shot(node, "21:31:43")
    assert [(c.pid, c.since) for c in daemon.lost] == [(3130, at("21:31:42"))]


def test_a_killed_daemon_names_those_who_lost_their_server():
    node = fold("21:31:41.000", **USERS)
    facts = {pid: ProcessFacts(ProcessKey(pid, 3), vouched=True, user="alice") for pid in (3060, 3132, 3130)}
    node.set_facts(node.pids(), facts, at("21:31:41"))
    node.set_places([running(3060)._replace(state="stale", daemon=None)])
    node.set_facts(node.pids(), {3130: facts[3130]}, at("21:31:42"))
    snapshot, daemon = shot(node, "21:31:42")
    assert [(c.key, c.server_pid, c.user) for c in daemon.lost] == [(ProcessKey(3130, 3), 3132, "alice")]
    assert (daemon.condition.cause, daemon.condition.frees) == ("gone", "daemon_start")
    assert "lost" in {problem.code for problem in snapshot.problems}
    node.set_facts(node.pids(), {}, at("21:31:45"))
    _, daemon = shot(node, "21:31:45")
    assert daemon.lost == ()


def test_a_new_daemon_keeps_those_who_lost_the_old_one_in_mind():
    node = fold("21:31:43.000", **USERS)
    node.set_facts(node.pids(), {3130: ProcessFacts(ProcessKey(3130, 3), vouched=True)}, at("21:31:43"))
    _, daemon = shot(node, "21:31:43")
    assert [(c.pid, c.since) for c in daemon.lost] == [(3130, at("21:31:42.373"))]
    assert daemon.lost
    assert daemon.health == "unknown"


def test_who_waits_for_whom():
    node = fold("21:31:03.000", **USERS)
    node.set_facts(node.pids(), {2943: ProcessFacts(ProcessKey(2943, 5), vouched=True, user="carol")}, at("21:31:03"))
    (server,) = node.watch(PIPE).state.servers.values()
    server.uid = 0  # its start is in the log of another recording
    snapshot, daemon = shot(node, "21:31:03")
    (waiting,) = daemon.pending
    assert (waiting.key, waiting.uid, waiting.user) == (ProcessKey(2943, 5), 2001, "carol")
    assert waiting.since == at("21:31:01.984")
    assert (waiting.server_pid, waiting.waits_for) == (1402, (2843,))
    (problem,) = [problem for problem in snapshot.problems if problem.code == "pending"]
    assert "carol" in problem.text
    assert "client 2843" in problem.text


def test_another_users_daemon_that_keeps_silent_hides_no_contexts_of_roots():
    """Nobody's contexts were known while it did not answer, and so no device of root's was full."""
    node = fold("21:28:37", **FAULTS)
    roots = running()._replace(uid=0, speaker=Speaker(0, "root's"))
    for whose, known in ((None, True), (64101, True), (0, False)):
        other = roots._replace(pipe_dir=Path("/tmp/other"), daemon=ProcessKey(9, 1), uid=whose, speaker=Speaker(whose))
        node.set_places([roots] if whose is None else [roots, other])
        node.set_sample(NvmlSample(1.0, devices=(Device(UUID),)))
        device = shot(node, "21:28:38")[0].devices[0]
        assert (device.contexts is not None) is known, whose
        assert (device.context_daemons > 1) is (whose == 64101), "how many it may have is not known"


def outside(
    environment, start_time=200.0, uid=0, known=True, daemon_uid=0, command="./cuda", beside=None, says=None, **place
):
    """A node with one process on its device that is no client of MPS. ``beside``: another place, whose daemon
    ``says`` so much."""
    node = fold("21:28:37", **FAULTS)
    places = [running()._replace(start_time=100.0, uid=daemon_uid, **place)]
    node.set_places([*places, *([] if beside is None else [beside])])
    if beside is not None:
        node.watch(beside.pipe_dir).state = says
    query = DeviceQuery((QueriedDevice(0, "0000:00.06.00", UUID, "H100", "N/A"),), {})
    node.fold_membership(PIPE, Membership(at("21:28:37"), (453,), {453: "ACTIVE"}, {}, {}, (), query), at("21:28:37"))
    clients = {882: 1 << 20}
    node.set_sample(
        NvmlSample(
            1.0, devices=(Device(UUID),), mps_clients={UUID: clients}, processes={UUID: {**clients, 453: 1, 77: 5}}
        )
    )
    facts = {77: ProcessFacts(ProcessKey(77, 9), start_time, uid, "eve", command, environment=environment)}
    facts[453] = ProcessFacts(ProcessKey(453, 2), vouched=True, command="nvidia-cuda-mps-server")
    node.set_facts(node.pids(), facts if known else {}, at("21:28:37"))
    return shot(node, "21:28:38")[0]


@pytest.mark.parametrize(
    ("environment", "options", "reason", "words"),
    [
        ({}, {"start_time": 50.0}, "before_daemon", "before the daemon"),
        ({}, {}, "pipe_dir", "has no CUDA_MPS_PIPE_DIRECTORY"),
        ({"CUDA_MPS_PIPE_DIRECTORY": "/tmp/\x1b[2Jx"}, {}, "pipe_dir", "\\x1b[2Jx"),
        (
            {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps_0", "CUDA_VISIBLE_DEVICES": "1"},
            {},
            "visible_devices",
            "CUDA_VISIBLE_DEVICES is 1",
        ),
        ({"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps_0/"}, {}, "unknown", "not known"),
        (None, {}, "unknown", "cannot be read"),
    ],
)
def test_outside_with_the_likely_reason(environment, options, reason, words):
    snapshot = outside(environment, **options)
    (process,) = snapshot.outside
    assert (process.pid, process.user, process.gpu_memory, process.device_uuids) == (77, "eve", 5, (UUID,))
    assert process.reason == reason
    assert words in process.detail
    assert "outside" in {problem.code for problem in snapshot.problems}


def test_that_a_strangers_daemon_serves_the_device_is_the_strangers_word():
    """Root was told to start its process again with the directory of a daemon of whoever names root's device."""
    for speaker in (Speaker(), Speaker(60_001, "his")):
        snapshot = outside({}, uid=2001, speaker=speaker, daemon_uid=60_001 if speaker == Speaker() else 0)
        (process,) = snapshot.outside
        assert (process.reason, process.detail) == ("uid", "it belongs to eve, and the daemon serves UID 60001")
        assert "outside" not in {problem.code for problem in snapshot.problems}
    assert outside({}, uid=60_001, daemon_uid=60_001).outside[0].reason == "pipe_dir"


@pytest.mark.parametrize("whose", [0, 60_001])
@pytest.mark.parametrize("named", ["server", "client", "pending", "lost"])
def test_a_stranger_hides_no_process_by_naming_it(whose, named):
    """Whoever had a daemon, or wrote a log for one, took whom he liked from those that compute without MPS."""
    state = DaemonState(Path("/tmp/mps_9"))
    number = 77 if named == "server" else 78
    server = state.servers.setdefault(number, ServerRecord(number, 0.0))
    server.clients.update({77: ClientRecord(77, 0.0)} if named == "client" else {})
    state.pending.update({77: Event("client_pending")} if named == "pending" else {})
    state.lost.update({77: (78, 1.0)} if named == "lost" else {})
    (process,) = outside({}).outside
    assert process.pid == 77
    speaker = Speaker(whose, "whose")
    shown = outside({}, beside=running()._replace(pipe_dir=state.pipe_dir, uid=whose, speaker=speaker), says=state)
    assert [each.pid for each in shown.outside] == ([77] if whose else [])


def test_a_name_in_the_arguments_makes_no_server():
    """The server of another user's daemon is known by its program's name alone; any argument had done."""
    assert [each.pid for each in outside({}, command="./cuda nvidia-cuda-mps-server").outside] == [77]
    assert not outside({}, command="/usr/bin/nvidia-cuda-mps-server").outside


def test_nobody_is_outside_whose_process_is_not_seen_or_whose_device_lists_no_clients():
    assert outside({}, known=False).outside == ()
    node = fold("21:28:37", **FAULTS)
    node.set_sample(NvmlSample(1.0, processes={UUID: {77: 5}}))
    assert 77 not in node.pids()


def test_a_client_that_has_left_is_not_called_a_process_outside_until_all_lists_are_read_again():
    """NVML's list of clients is read when one comes, that of all processes up to five seconds later: whoever had left
    meanwhile, and whose process lived on, was said to compute past MPS."""
    node = fold("21:28:37", **FAULTS)
    query = DeviceQuery((QueriedDevice(0, "0000:00.06.00", UUID, "H100", "N/A"),), {})
    node.set_places([running()._replace(start_time=100.0)])
    node.fold_membership(PIPE, Membership(at("21:28:37"), (453,), {453: "ACTIVE"}, {}, {}, (), query), at("21:28:37"))
    both = {UUID: {77: 5, 882: 5}}
    node.set_sample(NvmlSample(1.0, devices=(Device(UUID),), mps_clients=both, processes={UUID: {**both[UUID], 78: 5}}))
    assert node.set_membership({UUID: {882: 5}})
    node.set_facts((77, 78), {pid: ProcessFacts(ProcessKey(pid, 9), 200.0, 0) for pid in (77, 78)}, at("21:28:37"))
    assert [each.pid for each in shot(node, "21:28:38")[0].outside] == [78]
    assert 77 not in node.pids()


def test_a_daemon_that_does_not_run_has_nobody_beside_it():
    assert outside({}, state="stale", daemon=None).outside == ()


def client(pid, *devices):
    contexts = tuple(Context(number, f"GPU-{device}") for number, device in enumerate(devices, 1))
    return Client(ProcessKey(pid, 1), 1, contexts=contexts)


def test_a_bridge_is_who_joins_what_is_separate_without_it():
    server = Server(ProcessKey(1), clients=(client(10, 0), client(11, 0, 1), client(12, 1), client(13, 2)))
    assert [pids(group) for group in groups(server)] == [{10, 11, 12}, {13}]
    assert pids(bridges(server)) == {11}
    twice = replace(server, clients=(*server.clients, client(14, 0, 1)))
    assert bridges(twice) == ()
    alone = Server(ProcessKey(1), clients=(client(11, 0, 1),))
    assert bridges(alone) == ()


def test_a_client_that_waits_is_among_those_refused():
    server = Server(ProcessKey(1), clients=(client(10, 0), client(11, 0)))
    waiting = shot(fold("21:31:03.000", **USERS), "21:31:03.000")[1].pending
    daemon = Daemon(PIPE, servers=(server,), pending=tuple(replace(p, server_pid=1) for p in waiting))
    assert pids(blast_of(daemon, ProcessKey(10, 1)).refused) == {2943}
    assert blast_of(daemon, ProcessKey(99, 1)) is None
    assert pids(blast_radius(server, [ProcessKey(10, 1)])) == {11}


def test_a_place_without_a_daemon_says_how_one_is_started():
    node = fold("21:24:00")
    node.set_places([Place(PIPE, "absent")])
    _, daemon = shot(node, "21:24:00")
    assert (daemon.condition.cause, daemon.condition.frees) == ("absent", "daemon_start")
    assert "mpstui daemon start" in daemon.remedy


def test_a_fault_during_a_fault_keeps_what_is_known_of_the_first():
    raw = [
        "Client {PID: 10, Context ID: 0} connected",
        "Client {PID: 11, Context ID: 0} connected",
        "Client {PID: 10, Context: 1} encountered a fatal GPU error.",
        "Server teardown in progress. Refusing to accept new client {PID: 12, Context ID: 0}",
        "Client {PID: 11, Context: 1} encountered a fatal GPU error.",
        "Client process 99 disconnected",
    ]
    parser = LogParser("server")
    told = [
        event
        for second, text in enumerate(raw)
        for event in parser.feed(f"[2026-11-20 21:24:{second:02}.000 Server    1] {text}".encode())
    ]
    node = fold("21:23:00")
    for event in told:
        node.add_event(PIPE, event, "server", event.time)
    fault = shot(node, "21:24:30")[1].servers[0].fault
    assert (fault.named, fault.refused, fault.since) == ((10, 11), 1, at("21:24:02"))
    assert {key.pid for key in fault.affected} == {10, 11}
