"""Recorded logs, folded, give the states that the recordings show at those times."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from mpstui.control.answer import Answer, Outcome
from mpstui.control.wire import (
    ClientContext,
    DeviceClients,
    DeviceQuery,
    LimitReading,
    Membership,
    PsRow,
    QueriedDevice,
)
from mpstui.core import condition
from mpstui.core.limits import counted
from mpstui.core.model import (
    Client,
    Context,
    Daemon,
    Device,
    Event,
    EventKind,
    LostClient,
    OldLimit,
    PendingClient,
    ProcessKey,
    Server,
    ServerFault,
    SessionHolder,
)
from mpstui.core.text import path_text
from mpstui.core.trust import Speaker
from mpstui.observe import reducer
from mpstui.observe.discovery import Place
from mpstui.observe.problems import find_problems
from mpstui.observe.reducer import NodeState, Watching
from mpstui.observe.sources import NvmlSample
from mpstui.observe.state import DaemonState
from mpstui.system.procfs import ProcessFacts
from tests.observe.replay import DATA, PIPE, at, events, fold, lines, running, shot
from tests.observe.test_logparse import control

OTHER = Path("/tmp/other")
UUID = "GPU-c6233a33-3507-69ef-fed3-0090a2cbc745"
COMMANDS = {kind: lines(DATA / f"h100/commands-{kind}.log") for kind in ("control", "server")}
FAULTS = {kind: lines(DATA / f"h100/faults-{kind}.log") for kind in ("control", "server")}
USERS = {kind: lines(DATA / f"h100/users-{kind}.log") for kind in ("control", "server")}
CONTAINMENT = {
    "server": [
        line for line in lines(DATA / "h200x4/containment.txt") if line.startswith(b"[2026") and b" 910] " in line
    ]
}
QUERY = DeviceQuery((QueriedDevice(0, "0000:00.06.00", UUID, "NVIDIA H100 80GB HBM3", "N/A"),), {})
H100 = Device(UUID, index=0, sm_count=132, compute_capability=(9, 0))


def commands(clock):
    return shot(fold(clock, **COMMANDS), clock)


def states(daemon):
    return {client.pid: client.state for client in daemon.clients()}


def test_clients_of_a_connecting_node():
    _, daemon = commands("21:24:24.500")
    assert states(daemon) == dict.fromkeys((643, 644, 645), "INACTIVE")
    _, daemon = commands("21:24:28.000")
    assert states(daemon) == dict.fromkeys((643, 644, 645), "ACTIVE")
    assert {c.contexts[0].device_uuid for c in daemon.clients()} == {UUID}
    assert daemon.servers[0].status == "ACTIVE"


@pytest.mark.parametrize(
    ("clock", "default", "own"),
    [
        ("21:24:28.740", 50.0, 100.0),
        ("21:24:28.803", 33.3, 100.0),
        ("21:24:28.805", 33.3, 25.0),
        ("21:24:28.826", 33.3, 0.1),
    ],
)
def test_percentages_as_they_were_set(clock, default, own):
    _, daemon = commands(clock)
    assert daemon.default_active_thread_percentage == default
    assert daemon.servers[0].active_thread_percentage == own


def test_a_client_keeps_the_limits_it_connected_under():
    node = fold("21:24:29.050", **COMMANDS)
    node.set_sample(NvmlSample(1.0, devices=(H100,)))
    snapshot, daemon = shot(node, "21:24:29.050")
    early, late = daemon.find_client(ProcessKey(643)), daemon.find_client(ProcessKey(1137))
    assert (early.active_thread_percentage, early.sm_count, early.outdated_limits) == (100.0, 132, True)
    assert (late.active_thread_percentage, late.sm_count, late.outdated_limits) == (0.1, 8, False)
    assert late.pinned_mem_limits["0"] == 2 << 30
    assert late.percentage_at_most, "no log names what it set itself"
    assert "active_thread_percentage" not in late.limit_source
    assert "outdated" in {problem.code for problem in snapshot.problems}


def test_a_limit_set_by_uuid_counts_for_its_ordinal():
    node = fold("21:24:33.000", **COMMANDS)
    node.fold_membership(PIPE, Membership(at("21:24:33.000"), (634,), query=QUERY), at("21:24:33.000"))
    _, daemon = shot(node, "21:24:33.000")
    assert daemon.servers[0].pinned_mem_limits == {"0": 3 << 30, "5": 2 << 30}
    assert daemon.ordinals == {"0": UUID}


def test_terminated_while_its_process_lives():
    snapshot, daemon = commands("21:24:36.000")
    assert states(daemon) == {643: "ACTIVE", 644: "ACTIVE", 645: "TERMINATED"}
    assert daemon.find_client(ProcessKey(645)).terminate_requested
    assert daemon.health == "unknown"
    assert "terminated" in {problem.code for problem in snapshot.problems}


def test_a_refused_terminate_has_not_happened():
    _, daemon = commands("21:24:35.719")
    assert not daemon.find_client(ProcessKey(645)).terminate_requested


def silent(node, clock):
    """The daemon has not answered a command."""
    node.set_probe(PIPE, Answer("get_server_list", Outcome.BLOCKED), at(clock), at(clock))


def test_a_second_terminate_blocks_and_the_log_says_so():
    snapshot, daemon = commands("21:24:39.000")
    assert daemon.health == "unknown"  # the log's word alone: nobody has asked it since
    node = fold("21:24:39.000", **COMMANDS)
    silent(node, "21:24:39.000")
    snapshot, daemon = shot(node, "21:24:39.000")
    assert daemon.health == "blocked"
    assert "645" in daemon.health_detail
    assert snapshot.problems[0].code == "daemon_blocked"


@pytest.mark.parametrize(
    ("clock", "health"), [("21:28:46.379", "unknown"), ("21:28:46.390", "blocked"), ("21:28:58.500", "unknown")]
)
def test_blocked_until_the_process_ends(clock, health):
    node = fold(clock, **FAULTS)
    if health == "blocked":
        silent(node, "21:28:46.400")
    assert shot(node, clock)[1].health == health


@pytest.mark.parametrize(
    ("clock", "status", "clients"),
    [
        ("21:29:12.190", "ACTIVE", {1133, 1134, 1135}),
        ("21:29:12.196", "FAULT", {1133, 1134, 1135}),
        ("21:29:13.000", "FAULT", {1133, 1134}),
        ("21:29:18.600", "FAULT", {1134}),
        ("21:29:18.623", "ACTIVE", set()),
    ],
)
def test_fault_and_recovery(clock, status, clients):
    _, daemon = shot(fold(clock, **FAULTS), clock)
    assert daemon.servers[0].status == status
    assert states(daemon).keys() == clients


def test_containment_spares_the_client_on_another_device():
    node = fold("21:41:52.000", **CONTAINMENT)
    node.set_facts([901, 902, 903], {pid: facts(pid) for pid in (901, 902, 903)}, at("21:41:52.000"))
    snapshot, daemon = shot(node, "21:41:52.000")
    assert daemon.servers[0].status == "FAULT"
    (problem,) = [problem for problem in snapshot.problems if problem.code == "fault"]
    assert (problem.severity, "The daemon has not confirmed it." in problem.text) == ("warning", True)
    assert "90" not in problem.remedy, "the log alone has said so"
    asked = at("21:41:51.900")
    node.fold_membership(PIPE, Membership(asked, (910,), {910: "FAULT"}), asked)
    snapshot, daemon = shot(node, "21:41:52.000")
    (problem,) = [problem for problem in snapshot.problems if problem.code == "fault"]
    assert "901, 902, 903" in problem.remedy
    assert "904" not in problem.remedy
    assert problem.severity == "error"
    assert len(daemon.find_client(ProcessKey(902, 77)).contexts) == 2
    _, daemon = shot(fold("21:41:53.650", **CONTAINMENT), "21:41:53.650")
    assert daemon.servers[0].status == "ACTIVE"
    assert states(daemon) == {904: "ACTIVE"}


def test_a_client_is_not_on_a_device_where_nvml_lists_it_with_nothing():
    """As on four H200s: each client of the server under each of its devices (fact 34)."""
    node = fold("21:41:51.000", **CONTAINMENT)
    members = {901: 0, 902: 0, 903: 0, 904: 0}
    _, daemon = shot(node, "21:41:51.000")
    (uuid,) = daemon.find_client(ProcessKey(904)).device_uuids
    listed = {uuid: {**members, 904: 543 << 20}, "GPU-of-nobody": members}
    node.set_sample(NvmlSample(1.0, "580", (), listed, {uuid: {904: 543 << 20}}))
    _, daemon = shot(node, "21:41:51.000")
    assert {c.pid: len(c.device_uuids) for c in daemon.clients()} == {901: 1, 902: 2, 903: 1, 904: 1}
    assert daemon.find_client(ProcessKey(904)).gpu_memory == {uuid: 543 << 20}
    assert daemon.find_client(ProcessKey(901)).gpu_memory == {}


def test_refusals_of_a_full_device_and_of_a_faulty_server():
    told = [e for e in shot(fold("21:31:00", **FAULTS), "21:31:00")[0].events if e.kind == "client_refused"]
    assert [(e.pid, e.values["reason"]) for e in told] == [(1113, "fault"), (1268, "fault")]


def test_a_full_device():
    node = fold("21:24:25.000", **COMMANDS)
    pids = tuple(range(2000, 2048))
    contexts = (DeviceClients(0, "00:00.0", "H100", tuple(ClientContext(pid, 1) for pid in pids)),)
    node.fold_membership(
        PIPE,
        Membership(at("21:24:26"), (634,), {634: "ACTIVE"}, {634: pids}, {634: contexts}, (), QUERY),
        at("21:24:26"),
    )
    node.set_sample(NvmlSample(1.0, devices=(H100,)))
    snapshot, daemon = shot(node, "21:24:26")
    assert len(daemon.servers[0].clients) == 48
    assert snapshot.devices[0].contexts == 48
    assert "device_full" in {problem.code for problem in snapshot.problems}


def test_another_users_client_waits():
    snapshot, _ = shot(fold("21:31:10", **USERS), "21:31:10")
    (problem,) = [problem for problem in snapshot.problems if problem.code == "pending"]
    assert "2943" in problem.subject


@pytest.mark.parametrize(("whose", "confirmed"), [(0, True), (1000, True), (2001, False), (None, False)])
def test_a_fault_is_a_daemons_claim_of_those_for_whom_it_does_not_speak(whose, confirmed):
    """What it says is enough for its own user's processes; root was told to end his, and wrote notes to himself."""
    clock = "21:41:52.000"
    node = fold(clock, **CONTAINMENT)
    node.set_facts([901, 902, 903], {pid: facts(pid, uid=1000) for pid in (901, 902, 903)}, at(clock))
    node.set_places([node.watch(PIPE).place._replace(uid=whose, speaker=Speaker(whose, "a daemon of somebody"))])
    node.fold_membership(PIPE, Membership(at("21:41:51.900"), (910,), {910: "FAULT"}), at("21:41:51.900"))
    snapshot, daemon = shot(node, clock)
    fault = daemon.servers[0].fault
    assert (fault.confirmed, "a daemon of somebody" in fault.doubt) == (confirmed, not confirmed)
    (problem,) = [problem for problem in snapshot.problems if problem.code == "fault"]
    assert ("901" in problem.remedy) == (whose == 0)
    # Who looks at his own daemon has heard it, also where a container hides whose its clients are.
    node._euid = -1 if whose is None else whose
    node.set_facts([901, 902, 903], {pid: facts(pid, uid=None) for pid in (901, 902, 903)}, at(clock) + 1)
    _, daemon = shot(node, clock)
    assert daemon.servers[0].fault.confirmed == (whose is not None)


@pytest.mark.parametrize("uid", [2001, 2002])
def test_nobody_is_to_end_a_process_on_the_word_of_a_daemon_that_lies(uid):
    """It said: End client 16769. Never terminate it again."""
    victim = Client(
        ProcessKey(16769, 1),
        7,
        uid=uid,
        state="TERMINATED",
        old_limits=(OldLimit("active_thread_percentage", 100.0, 50.0),),
    )
    fault = ServerFault(1.0, named=(16769,), affected=(victim.key,))
    daemon = Daemon(
        PIPE,
        key=ProcessKey(6, 1),
        uid=2001,
        condition=condition.terminated_twice(victim.key, None, condition.Moment(None, None)),
        watch="logs",
        multiuser=False,
        speaker=Speaker(2001, "a daemon of alice"),
        servers=(Server(ProcessKey(7, 1), uid=2001, status="FAULT", clients=(victim,), fault=fault),),
        lost=(LostClient(ProcessKey(8, 1), 7, 2002),),
        pending=(PendingClient(ProcessKey(9), uid=2002, server_pid=7, waits_for=(16769,)),),
    )
    told = {p.code: p.remedy for p in find_problems([daemon], [], None)}
    about = {"fault", "terminated", "lost", "pending", "outdated", "daemon_blocked"}
    assert about <= told.keys()
    assert ("daemon_lies" in told) == (uid != 2001)
    believed = {told[code] != "Do not trust what it says." for code in about}
    assert believed == {uid == 2001}


def others_claims(uid, contexts=46):
    """What a daemon of this user has to say of its server, beside a daemon of root's with something small."""
    whole = tuple(Context(id_, "GPU-c") for id_ in range(contexts))
    server = Server(ProcessKey(7, 1), status="FAULT", clients=(Client(ProcessKey(8, 1), 7, contexts=whole),))
    known = {"condition": condition.ok(), "watch": "logs", "ordinals": {"0": "GPU-c"}}
    claims = Daemon(PIPE, uid=uid, servers=(server,), **known)
    outdated = Client(ProcessKey(9, 1), 6, old_limits=(OldLimit("active_thread_percentage", 100.0, 50.0),))
    roots = Daemon(OTHER, uid=0, servers=(Server(ProcessKey(6, 1), clients=(outdated,)),), **known)
    return find_problems([claims, roots], [Device("GPU-c", 0, contexts=46)], None, euid=0)


def test_what_anothers_daemon_says_is_that_users_and_comes_behind_all_that_is_the_nodes():
    found = others_claims(2001)
    assert [(p.code, p.severity, p.uid) for p in found] == [
        ("outdated", "info", None),
        ("device_nearly_full", "info", 2001),
        ("shared_device", "info", 2001),
        ("fault", "info", 2001),
    ]
    assert found[1].text == "It holds 46 contexts, 46 of them as daemons of UID 2001 say."
    assert found[2].text.startswith(f"2 daemons serve it ({path_text(PIPE)} of UID 2001, {path_text(OTHER)});")
    assert found[3].text.startswith("UID 2001's daemon says: A fatal GPU fault")
    assert found[3].remedy == "The daemon belongs to UID 2001: leave it to its owner."
    assert [p.severity for p in others_claims(0)] == ["error", "warning", "warning", "info"]
    nearly = {p.code: p for p in others_claims(2001, contexts=1)}["device_nearly_full"]
    assert (nearly.severity, nearly.uid) == ("warning", None), "without what that user's daemon says too"


def test_many_that_wait_for_the_same_server_are_one_warning():
    waiting = tuple(
        PendingClient(ProcessKey(pid), user=user, server_pid=7, waits_for=(5,))
        for pid, user in ((11, "bob"), (12, "carol"), (13, "bob"))
    )
    new = PendingClient(ProcessKey(14), user="eve")
    server = Server(ProcessKey(7), clients=(Client(ProcessKey(5), 7, user="alice"),))
    one = Daemon(PIPE, condition=condition.ok(), watch="logs", servers=(server,), pending=(*waiting, new))
    found = find_problems([one], [], None)
    told = [(p.severity, p.text) for p in found if p.code == "pending"]
    assert told == [
        (
            "warning",
            "Clients 11, 12, 13 (bob, carol) wait until client 5 (alice) ends: server 7 serves one user at a time.",
        ),
        ("info", "Client 14 (eve) waits for a server."),
    ]


def test_a_binary_that_prints_something_else_is_not_looked_for_on_the_path():
    node = NodeState()
    node.set_places([running()])
    node.set_probe(PIPE, Answer("get_server_list", Outcome.UNREADABLE, message="it printed garbage."), 1.0)
    (daemon,) = node.snapshot(2.0).daemons
    assert daemon.remedy.startswith("What was run is not this driver's nvidia-cuda-mps-control")


def test_no_readings_are_said_once():
    (problem,) = find_problems([], [], "no device readings: NVML sees no device")
    assert problem.text == "No device readings: NVML sees no device"


def test_each_event_is_told_once_though_both_logs_tell_it():
    told = shot(fold("21:24:36", **COMMANDS), "21:24:36")[0].events
    ended = [e.kind for e in told if e.pid == 645 and e.kind.startswith("terminate")]
    assert ended == ["terminate_requested", "terminate_requested", "terminate_succeeded"]  # the first one was refused
    assert len([e for e in told if e.kind == "limit_set" and e.values.get("value") == str(2 << 30)]) == 2
    assert not [e for e in told if e.kind in {"session_opened", "session_closed"}]
    assert not [e for e in told if e.kind == "command" and not e.values.keys() & {"changes", "refused"}]


def test_a_forged_row_is_dropped_and_a_disputed_one_not_believed():
    node = fold("21:24:25.000", **COMMANDS)
    rows = (
        PsRow(645, 2, 634, "GPU-c6233a33", 4026531836, "/tmp/client"),
        PsRow(643, 3, 634, "GPU-c6233a33", 4026531836, "/tmp/client"),
        PsRow(643, 9, 634, "GPU-c6233a33", 1, "forged for 643"),
        PsRow(999, 4, 634, "GPU-c6233a33", 1, "forged"),
    )
    reading = Membership(at("21:24:26"), (634,), {634: "ACTIVE"}, {634: (643, 645)}, {}, rows, QUERY)
    node.fold_membership(PIPE, reading, at("21:24:26"))
    _, daemon = shot(node, "21:24:26")
    assert states(daemon).keys() == {643, 645}
    assert daemon.find_client(ProcessKey(645)).id == 2
    assert daemon.find_client(ProcessKey(643)).id is None
    assert daemon.find_client(ProcessKey(643)).command is None


def test_answers_do_not_undo_what_the_log_told_meanwhile():
    node = fold("21:24:28.000", **COMMANDS)
    asked = at("21:24:24.100")  # before the clients connected
    node.fold_membership(PIPE, Membership(asked, (634,), {634: "ACTIVE"}, {634: ()}), at("21:24:28.001"))
    assert states(shot(node, "21:24:28")[1]).keys() == {643, 644, 645}


def test_an_unexplained_limit_was_so_from_the_start_where_the_logs_are_followed():
    node = fold("21:24:28.000", **COMMANDS)
    reading = LimitReading(at("21:24:28"), 100.0, 0, {"0": None}, {634: 100.0}, {634: {"0": 1 << 30}})
    node.fold_limits(PIPE, reading)
    client = shot(node, "21:24:28")[1].find_client(ProcessKey(643))
    assert client.pinned_mem_limits == {"0": 1 << 30}
    assert not client.outdated_limits


def test_a_server_of_which_no_log_tells_has_its_clients_from_the_first_reading():
    node = NodeState()
    node.set_places([running()])
    node.fold_membership(PIPE, Membership(1.0, (634,), {634: "ACTIVE"}, {634: (643,)}), 1.02)  # asked, answered
    node.fold_limits(PIPE, LimitReading(1.03, 100.0, 0, {}, {634: 25.0}, {634: {"0": 1 << 30}}))
    node.fold_membership(PIPE, Membership(2.0, (634,), {634: "ACTIVE"}, {634: (643,)}), 2.02)
    client = node.snapshot(3.0).daemons[0].find_client(ProcessKey(643))
    assert client is not None
    assert (client.active_thread_percentage, client.pinned_mem_limits) == (None, {})  # it may be older than they are


def test_without_logs_nothing_is_claimed_of_clients_that_were_there_before():
    node = NodeState()
    node.set_places([running()])
    node.set_watching(PIPE, Watching("polling"))
    node.fold_membership(PIPE, Membership(1.0, (634,), {634: "ACTIVE"}, {634: (643,)}), 1.0)
    node.fold_limits(PIPE, LimitReading(1.0, 100.0, 0, {}, {634: 25.0}, {634: {}}))
    node.fold_membership(PIPE, Membership(6.0, (634,), {634: "ACTIVE"}, {634: (643, 700)}), 6.0)
    daemon = node.snapshot(7.0).daemons[0]
    assert daemon.find_client(ProcessKey(643)).active_thread_percentage is None
    assert daemon.find_client(ProcessKey(700)).active_thread_percentage == 25.0
    node.fold_limits(PIPE, LimitReading(7.0, 100.0, 0, {}, {634: 50.0}, {634: {}}))
    daemon = node.snapshot(8.0).daemons[0]
    assert daemon.servers[0].active_thread_percentage == 50.0
    assert daemon.find_client(ProcessKey(700)).active_thread_percentage is None


def facts(pid, **known):
    return ProcessFacts(ProcessKey(pid, 77), start_time=1.0, vouched=True, **known)


def test_facts_give_identity_cpu_and_the_clients_own_limit():
    node = fold("21:24:28.000", **COMMANDS)
    node.set_sample(NvmlSample(1.0, devices=(H100,)))
    own = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "10", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1G"}
    node.set_facts([643], {643: facts(643, user="alice", cpu_seconds=1.0, environment=own)}, 10.0)
    node.set_facts([643], {643: facts(643, user="alice", cpu_seconds=2.0, environment=own)}, 12.0)
    client = shot(node, "21:24:28")[1].find_client(ProcessKey(643, 77))
    assert (client.user, client.cpu_percent, client.active_thread_percentage, client.sm_count) == (
        "alice",
        50.0,
        10.0,
        12,
    )
    assert client.limit_source == {"active_thread_percentage": "client"}
    assert (client.pinned_mem_limits, client.memory_limit_known) == ({}, False), (
        "whether device 0 is visible is not known"
    )
    node.watch(PIPE).state.ordinals = {"0": H100.uuid}
    node.watch(PIPE).state.changes += 1
    client = shot(node, "21:24:28")[1].find_client(ProcessKey(643, 77))
    assert client.limit_source == {"active_thread_percentage": "client", "pinned_mem_limits": "client"}
    assert client.pinned_mem_limits == {"0": 1 << 30}


def test_what_is_on_the_only_device_is_known_and_of_several_it_is_not():
    node = fold("21:24:28.000", **COMMANDS)
    assert node.ordinals_unasked(PIPE) == {}, "NVML has told nothing"
    mig = Device(UUID, index=0, mig=True)
    for devices, known in (((H100,), {"0": UUID}), ((H100, Device("GPU-b", index=1)), {}), ((mig,), {}), ((), {})):
        node.set_sample(NvmlSample(1.0, devices=devices))
        assert node.ordinals_unasked(PIPE) == known


@pytest.mark.parametrize(
    ("visible", "known"),
    [
        ("GPU-bd-2,GPU-a", ["GPU-bd-2", "GPU-aa"]),  # in its own order, by first characters too
        (" GPU-aa , GPU-bd-1", ["GPU-aa", "GPU-bd-1"]),
        ("GPU-bd", []),  # two begin so
        ("GPU-aa,1", []),  # a number: CUDA's order is not NVML's
        ("GPU-aa,GPU-aa", []),
        ("GPU-aa,GPU-cc", []),
        ("GPU-aa,", []),
        ("1,0", []),
        ("", []),
    ],
)
def test_devices_that_are_visible_by_uuid_are_counted(visible: str, known: list[str]) -> None:
    assert counted(visible, ["GPU-aa", "GPU-bd-1", "GPU-bd-2"]) == {str(n): uuid for n, uuid in enumerate(known)}


def test_of_whom_there_is_something_to_read_and_who_may_wait():
    node = fold("21:24:28.000", **COMMANDS)
    assert {643, 644, 645} <= node.pids()
    assert 0 not in node.pids(), "a client of another PID namespace has no process here"
    shot(node, "21:24:28")
    assert node.resting(PIPE) == frozenset(), "the daemon that is shown"
    assert node.resting(PIPE / "other") == frozenset(), "the daemon has not been asked yet"


def test_a_process_that_ends_has_left():
    node = fold("21:24:28.000", **COMMANDS)
    node.set_facts([643, 644], {643: facts(643), 644: facts(644)}, 10.0)
    node.set_facts([643, 644], {644: facts(644)}, 11.0)
    assert states(shot(node, "21:24:28")[1]).keys() == {644, 645}


def test_a_blocking_process_that_ends_frees_the_daemon():
    node = fold("21:24:39.000", **COMMANDS)
    node.set_facts([645], {645: facts(645)}, 10.0)
    silent(node, "21:24:39.000")
    assert shot(node, "21:24:39")[1].health == "blocked"
    node.set_facts([645], {}, 11.0)
    assert shot(node, "21:24:39")[1].health == "unknown"  # until it is asked again


def test_held_names_the_holder_and_comes_back():
    node = fold("21:24:28.000", **COMMANDS)
    holder = SessionHolder(4711, "bob", "/dev/pts/3")
    node.set_probe(PIPE, Answer("ps", Outcome.HELD, message="held by 4711", holder=holder), 5.0)
    daemon = node.snapshot(5.0).daemons[0]
    assert (daemon.health, daemon.holder) == ("held", holder)
    assert len(daemon.servers[0].clients) == 3
    node.set_probe(PIPE, Answer("ps", Outcome.OK), 6.0)
    assert node.snapshot(6.0).daemons[0].health == "ok"


def test_held_since_is_of_the_session_that_was_in_the_way_and_of_none_that_came_later():
    node = fold("21:25:00.000", control=control("NEW UI", clock="21:24:50.000"))
    node.set_probe(PIPE, Answer("ps", Outcome.HELD), at("21:25:00"))
    assert shot(node, "21:25:00")[1].condition.since == at("21:24:50")
    fold("21:25:02.000", control=control("UI closed", "NEW UI", clock="21:25:01.000"), node=node)
    assert (shot(node, "21:25:02")[1].health, shot(node, "21:25:02")[1].condition.since) == ("held", None)


@pytest.mark.parametrize("state", ["stale", "absent", "unusable"])
def test_a_daemon_that_is_gone_takes_its_clients_with_it(state):
    node = fold("21:24:28.000", **COMMANDS)
    node.set_places([Place(PIPE, state, detail="gone", remedy="start one")])
    snapshot = node.snapshot(9.0)
    daemon = snapshot.daemons[0]
    assert daemon.health == ("stale" if state == "stale" else "absent")
    assert (daemon.health_detail, daemon.remedy, daemon.servers) == ("gone", "start one", ())
    node.set_places([running(500)])
    assert node.snapshot(10.0).daemons[0].health == "unknown"


def test_nothing_new_is_the_same_objects():
    node = fold("21:24:36", **COMMANDS)
    node.set_sample(NvmlSample(1.0, devices=(H100,)))
    node.set_facts([643], {643: facts(643, cpu_seconds=1.0)}, 1.0)
    one = node.snapshot(1.0)
    node.set_sample(NvmlSample(2.0, devices=(H100,)))
    two = node.snapshot(2.0)
    assert one.daemons is two.daemons
    assert one.devices is two.devices
    assert one.problems is two.problems
    assert one.events is two.events


def test_changed_client_leaves_the_others_alone():
    node = fold("21:24:28.000", **COMMANDS)
    one = node.snapshot(1.0).daemons[0].servers[0].clients
    node.set_facts([643], {643: facts(643)}, 1.0)
    two = node.snapshot(2.0).daemons[0].servers[0].clients
    assert two[0] is not one[0]
    assert two[1] is one[1]
    assert two[2] is one[2]


def test_before_the_part_of_the_log_that_was_read_no_percentage_is_claimed():
    """The server tells its first percentage alone; later ones are in control.log, and here its beginning is missing."""
    node = NodeState()
    node.set_places([running()])
    node.watch(PIPE).state.control_from = at("21:24:29.100")
    tail = [line for line in COMMANDS["control"] if line[12:24] > b"21:24:29.100"]
    fold("21:24:30", control=tail, server=COMMANDS["server"], node=node)
    node.fold_limits(PIPE, LimitReading(at("21:24:30"), 33.3, 0, {}, {634: 0.1}, {634: {"0": 2 << 30}}))
    daemon = shot(node, "21:24:30")[1]
    assert daemon.find_client(ProcessKey(643)).active_thread_percentage is None
    assert daemon.find_client(ProcessKey(1142)).active_thread_percentage == 0.1


def test_a_daemon_of_which_nothing_new_is_known_is_not_made_again(monkeypatch):
    """Counted: a client whose share of a CPU is another one now is a copy; nothing else is worked out again."""
    node = fold("21:24:28.000", **COMMANDS)
    made = Counter()
    for name in ("_make_daemon", "_build"):
        method = getattr(NodeState, name)
        monkeypatch.setattr(
            NodeState, name, lambda self, *args, m=method, n=name: (made.update([n]), m(self, *args))[1]
        )
    pids = [client.pid for client in node.snapshot(at("21:24:28")).daemons[0].clients()]
    for second, seconds in ((28, 1.0), (29, 1.5)):
        node.set_facts(pids, {pid: facts(pid, cpu_seconds=seconds) for pid in pids}, at(f"21:24:{second}"))
        before = node.snapshot(at(f"21:24:{second}")).daemons[0]
    made.clear()
    assert node.snapshot(at("21:24:43")).daemons[0] is before
    assert not made
    node.set_facts(pids[:1], {pids[0]: facts(pids[0], cpu_seconds=2.4)}, at("21:24:43"))
    after = node.snapshot(at("21:24:44")).daemons[0]
    assert made == {"_make_daemon": 1}
    assert [old is new for old, new in zip(before.clients(), after.clients(), strict=True)].count(False) == 1
    assert node.snapshot(at("21:24:45")).problems is node.snapshot(at("21:24:46")).problems


def read_between(node: NodeState, number: int, when: float) -> None:
    """What is read behind the event of that number: always the same, and some processes are missing each time."""
    pids = sorted(node.pids())
    if number % 3 == 0:
        there = {pid: facts(pid, cpu_seconds=number * pid % 7 / 9) for pid in pids if (pid + number) % 11}
        node.set_facts(pids, there, when)
    if number % 4 == 0:
        memory = {pid: (number // 20 + pid) % 3 << 20 for pid in pids if (pid + number) % 5}
        node.set_sample(NvmlSample(when, "580", (H100,), {UUID: memory}, {UUID: {**memory, 99: 5}}))
    if number % 7 == 0:
        outcome = (Outcome.OK, Outcome.BLOCKED, Outcome.HELD)[number // 7 % 3]
        node.set_probe(PIPE, Answer("ps", outcome), when, when)


@pytest.mark.slow
@pytest.mark.parametrize("logs", [COMMANDS, FAULTS, USERS], ids=["commands", "faults", "users"])
def test_what_is_kept_is_what_would_be_made_anew(logs, monkeypatch):
    """A recording line by line, with readings between: one node keeps what it made, the other one makes all anew."""
    told = sorted(
        ((event.time, kind, event) for kind, raw in logs.items() for event in events(kind, raw) if event.time),
        key=lambda each: each[:2],
    )
    anew = NodeState("gpu-07")
    nodes = NodeState("gpu-07"), anew
    for node in nodes:
        node.set_places([running()])
        node.set_watching(PIPE, Watching("logs"))
    for number, (when, kind, event) in enumerate(told):
        found = []
        for node in nodes:
            with monkeypatch.context() as patch:
                if node is anew:
                    patch.setattr(reducer._Kept, "get", lambda kept, of, make: make())
                    node.watch(PIPE).clients.clear()
                node.add_event(PIPE, event, kind, when)
                read_between(node, number, when)
                if number % 13 == 0:
                    node.fold_limits(PIPE, LimitReading(when, float(number % 100 + 1), server_percentage={634: 50.0}))
                found.append((node.snapshot(when), node.pids(), node.unproved(), node.unexplained({UUID: {643: 1}})))
        assert found[0] == found[1], (number, event)


@pytest.mark.slow
def test_whoever_came_and_went_is_forgotten_once_no_event_is_about_him():
    """Counted in objects: what 1,500 clients leave, one after the other, is what 500 leave; 250 events are kept."""
    node = fold("21:24:28.000", **COMMANDS)
    kept = []
    for number in range(1500):
        pid, when = 5000 + number, at("21:24:40") + number
        for kind in ("client_connected", "client_disconnected"):
            node.add_event(PIPE, Event(kind, when, PIPE, 634, pid, detail=kind), "server", when)
            if kind == "client_connected":
                node.set_facts([pid], {pid: facts(pid, user="alice", command=f"train {pid}")}, when)
                if number % 10 == 9:
                    assert node.snapshot(when).events[-1].command == f"train {pid}"
        node.set_facts([pid], {}, when + 0.5)
        if number in {499, 999, 1499}:
            watched = node.watch(PIPE)
            held = (node._facts, node._cpu, watched.ours, watched.told, watched.clients, watched.state.lost)
            kept.append((*map(len, held), len(node._events._people)))
            assert {event.command for event in node.snapshot(when).events} == {
                f"train {pid}" for pid in range(pid - 249, pid + 1)
            }
    assert kept[0][:-1] == kept[1][:-1] == kept[2][:-1]
    assert max(each[-1] for each in kept) <= 290, "half as many more were kept between two looks"


def test_whose_a_client_was_is_forgotten_once_many_others_have_left() -> None:
    """And of one that stays, or comes again, it is known: what grew with each client that came and went."""
    state = DaemonState(PIPE)

    def told(kind: EventKind, pid: int, uid: int | None = None) -> int | None:
        event = state.about(Event(kind, 1.0, PIPE, 1, pid, uid=uid))
        state.apply(event, 1.0)
        return event.uid

    told("client_admitted", 5, 7)
    told("client_connected", 5)
    for pid in range(100, 2100):
        told("client_admitted", pid, pid % 3)
        assert told("client_connected", pid) == pid % 3
        assert told("client_disconnected", pid) == pid % 3
        told("client_admitted", 6, 9)
        told("client_connected", 6)
        assert told("client_disconnected", 6) == 9
    assert told("client_disconnected", 2099) == 2099 % 3, "a line that comes late"
    assert len(state.uids) < 300
    assert told("client_disconnected", 5) == 7
