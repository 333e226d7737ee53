"""An event keeps for good whom it was about: from /proc while the process lives, otherwise what the logs tell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpstui.core.model import Event, ProcessKey
from mpstui.history.reader import LogHistory
from mpstui.observe.state import ClientRecord, DaemonState, EventLog
from mpstui.system.procfs import ProcessFacts
from tests.observe.replay import DATA, PIPE, at, events, fold, lines, shot
from tests.observe.test_logparse import control, server

FAULTS = {kind: lines(DATA / f"h100/faults-{kind}.log") for kind in ("control", "server")}
BEGUN = at("21:29:10.000")


def facts(pid: int, user: str, start: float = BEGUN, uid: int | None = None) -> dict[int, ProcessFacts]:
    return {pid: ProcessFacts(ProcessKey(pid, int(start)), start, uid, user, f"python {user}.py", vouched=True)}


def told(node, kind: str, pid: int):
    return next(e for e in reversed(shot(node, "21:29:59")[0].events) if (e.kind, e.pid) == (kind, pid))


def test_who_has_gone_keeps_name_and_command():
    node = fold("21:29:11.000", **FAULTS)
    node.set_facts(node.pids(), facts(1134, "alice"), at("21:29:11.100"))
    assert told(node, "client_connected", 1134).command == "python alice.py", "told before /proc was read"
    later = [line for line in FAULTS["server"] if line[12:24] > b"21:29:11.000"]
    fold("21:29:12.300", server=later, node=node)
    node.set_facts({1134}, {}, at("21:29:18.400"))  # /proc saw its end before the log told it
    fold("21:29:19.000", server=[line for line in later if line[12:24] > b"21:29:12.300"], node=node)
    gone = told(node, "client_disconnected", 1134)
    assert (gone.user, gone.command) == ("alice", "python alice.py")
    assert "client 1134 (alice, python alice.py) disconnected" in gone.sentence()
    fault = next(e for e in reversed(shot(node, "21:29:59")[0].events) if e.kind == "fatal_fault")
    assert {(s.pid, s.user) for s in fault.suspects} >= {(1133, None), (1134, "alice"), (1135, None)}


def test_a_client_that_waits_has_its_user_once():
    said = b"NEW CLIENT 2943 from user 2001: Server is not ready, push client to pending list"
    (event,) = events("control", [b"[2026-11-20 21:29:40.000 Control   443] " + said])
    assert event.sentence() == "client 2943 (UID 2001) waits for a server"
    assert event.sentence("eve") == "client 2943 (eve) waits for a server"
    known = event._replace(command="python x.py")
    assert known.sentence() == "client 2943 (UID 2001, python x.py) waits for a server"
    assert known._replace(user="eve").sentence() == "client 2943 (eve, python x.py) waits for a server"


def test_whose_client_it_was_is_told_by_the_number_where_the_user_has_no_name_here():
    """Logs of another node, or of a user who is gone: the number is what is known."""
    event = Event("client_disconnected", pid=2943, detail="client 2943 disconnected", uid=2001)
    assert event.sentence() == "client 2943 (UID 2001) disconnected"
    assert event.sentence("eve") == "client 2943 (eve) disconnected"
    assert event._replace(command="python x.py").sentence() == "client 2943 (UID 2001, python x.py) disconnected"
    assert event._replace(user="2001").sentence() == "client 2943 (UID 2001) disconnected", (
        "as /proc tells of who has no name"
    )
    assert event._replace(uid=0).sentence() == "client 2943 (root) disconnected"
    assert event._replace(uid=None).sentence() == "client 2943 disconnected"


def test_a_server_that_starts_is_for_a_user_by_name_where_one_is_known():
    raw = control("Starting new server 1500 for user 2001")
    (event,) = [found for found in events("control", raw) if found.kind == "server_starting"]
    assert event.sentence() == "server 1500 is starting for UID 2001"
    node = fold("21:29:11.000", **FAULTS)
    node.add_event(PIPE, event, "control", event.time)
    node.set_facts(node.pids(), facts(1134, "alice", uid=2001), at("21:29:11.100"))
    shown = next(e for e in shot(node, "21:29:59")[0].events if (e.kind, e.server_pid) == ("server_starting", 1500))
    assert shown.sentence() == "server 1500 is starting for alice"


def test_no_line_that_is_cut_names_a_client_without_what_that_is_worth():
    """In 100 to 120 columns the lines of the events and of the problems ended behind the name."""
    snapshot = shot(fold("21:29:14.000", **FAULTS), "21:29:14.000")[0]
    told = [event.sentence() for event in snapshot.events if event.kind == "fatal_fault"]
    told += [problem.text for problem in snapshot.problems if problem.code == "fault"]
    assert sum("server.log names client" in line for line in told) == len(told) > 1
    for cut in (line[:cells] for line in told for cells in range(60, 160)):
        assert "server.log names" not in cut or "no proof" in cut


def test_the_next_owner_of_a_pid_is_another():
    node = fold("21:29:11.000", **FAULTS)
    node.set_facts(node.pids(), facts(1134, "alice"), at("21:29:11.100"))
    node.set_facts({1134}, {}, at("21:29:20.000"))
    (event,) = events("server", [b"[2026-11-20 21:29:40.000 Server  1140] Client {PID: 1134, Context ID: 0} connected"])
    node.add_event(PIPE, event, "server", event.time)
    assert told(node, "client_connected", 1134).user is None
    node.set_facts(node.pids(), facts(1134, "bob", at("21:29:39.500")), at("21:29:40.500"))
    assert told(node, "client_connected", 1134).user == "bob"
    first = next(e for e in shot(node, "21:29:59")[0].events if (e.kind, e.pid) == ("client_connected", 1134))
    assert first.user == "alice"


def test_a_process_that_began_later_or_of_another_user_is_not_whom_an_old_line_was_about():
    raw = control("NEW CLIENT 77 from user 2001: Server already exists")
    node = fold("21:29:30.000", server=server("Client {PID: 77, Context ID: 0} connected"))
    before = events("control", raw)
    for event in before:
        node.add_event(PIPE, event, "control", event.time)
    node.set_facts(node.pids(), facts(77, "mallory", at("23:00:00.000")), at("23:00:01.000"))
    assert told(node, "client_connected", 77).user is None
    node.set_facts(node.pids(), facts(77, "mallory", at("21:00:00.000"), uid=2666), at("23:00:02.000"))
    node.add_event(PIPE, events("server", server("Client process 77 disconnected"))[0], "server", at("23:00:03.000"))
    gone = told(node, "client_disconnected", 77)
    assert (gone.uid, gone.user, gone.command) == (2001, None, None), "the log says that it was of user 2001"


def test_past_logs_tell_the_user_alone(tmp_path):
    for kind in ("control", "server"):
        (tmp_path / f"{kind}.log").write_bytes((DATA / f"h100/users-{kind}.log").read_bytes())
    history = LogHistory(tmp_path)
    try:
        found = [e for e in history.events() if e.kind in {"client_connected", "client_disconnected"}]
    finally:
        history.close()
    assert len(found) > 10
    assert {e.uid for e in found} == {0}, "control.log said whose each was when it came"
    assert {(e.user, e.command) for e in found} == {(None, None)}


@pytest.mark.parametrize(("asked", "user"), [({}, None), (facts(1134, "alice"), "alice")])
def test_a_history_asks_for_who_lives(tmp_path, asked, user):
    for kind, raw in FAULTS.items():
        (tmp_path / f"{kind}.log").write_bytes(b"\n".join(raw))
    history = LogHistory(tmp_path, people=lambda pids: {pid: asked[pid] for pid in pids if pid in asked})
    try:
        found = list(history.events())
    finally:
        history.close()
    assert {e.user for e in found if e.pid == 1134} == {user}


def test_suspects_are_all_that_were_on_the_devices_and_nobody_else():
    """Clients on another device, without a context, or of an unknown device that it did not take are none; one that has
    just ended is."""
    uuids = ("GPU-a", "GPU-b")
    raw = []
    for pid, device in ((10, 0), (11, 0), (12, 1), (13, None), (14, 0)):
        raw.append(f"Client {{PID: {pid}, Context ID: 0}} connected")
        if device is not None:
            raw.append(f"Device X (uuid {uuids[device]}) is associated")
            raw.append(f"Status of client {{PID: {pid}, Context ID: 1}} is ACTIVE")
    raw += [
        "Client {PID: 14, Context ID: 1} exiting. Number of active client contexts is 2.",
        "Client process 14 disconnected",
        "Client {PID: 10, Context: 1} encountered a fatal GPU error.",
        "Server is handling a fatal GPU error.",
        "All clients belonging to error trigging process 10 will be torn down",
    ]
    node = fold("21:29:30.000", server=server("Status of client {PID: 15, Context ID: 1} is ACTIVE", *raw))
    (fault,) = [e for e in shot(node, "21:29:31")[0].events if e.kind == "fatal_fault"]
    assert (fault.named, [s.pid for s in fault.suspects]) == ((10,), [10, 11, 14])
    assert fault.pid is None


def test_a_client_that_is_named_and_was_not_there_is_neither_lost_nor_a_suspect():
    """The log's word is shown as its word. The fault is over when those have ended that the log says it takes."""
    raw = ["Device X (uuid GPU-a) is associated", "Status of client {PID: 11, Context ID: 1} is ACTIVE"]
    raw += [
        "Client {PID: 99, Context: 1} encountered a fatal GPU error.",
        "Server is handling a fatal GPU error.",
        "All clients belonging to error trigging process 11 will be torn down",
        "Client {PID: 11, Context ID: 1} on the error-trigging process 11 to be torn down",
    ]
    node = fold("21:29:30.000", server=server(*raw, "Client process 11 disconnected"))
    events = shot(node, "21:29:31")[0].events
    (fault,) = [e for e in events if e.kind == "fatal_fault"]
    assert fault.detail == "fatal GPU fault; client 11 lost; no proof: server.log names client 99"
    assert (fault.named, [s.pid for s in fault.suspects]) == ((99,), [11])
    assert [e.kind for e in events][-1] == "server_recovered"


UUIDS = {"0": "GPU-a", "1": "GPU-b"}


def among() -> DaemonState:
    """Clients of server 7 at 100 s: one each on GPU-a (21) and GPU-b (22), one on a GPU that is not told (23), one
    without a context (24), one of before the log (25), and three that have ended, a second ago at the most: on GPU-a
    (26), on GPU-b (27), and where is not told (28)."""
    state = DaemonState(PIPE, ordinals=dict(UUIDS))
    where = {21: "GPU-a", 22: "GPU-b", 23: None, 24: "", 26: "GPU-a", 27: "GPU-b", 28: None}
    for pid, device in where.items():
        state.apply(Event("client_connected", 90.0, PIPE, 7, pid), 90.0)
        if device != "":
            on = () if device is None else (device,)
            state.apply(Event("context_active", 90.0, PIPE, 7, pid, context_id=1, devices=on), 90.0)
    state.apply(Event("context_closed", 95.0, PIPE, 7, 25, context_id=1), 95.0)
    state.servers[7].clients[25] = ClientRecord(25, 95.0)
    for pid in (26, 27, 28):
        state.apply(Event("client_disconnected", 99.0, PIPE, 7, pid), 99.0)
    return state


@pytest.mark.parametrize(
    ("devices", "found"),
    [(("0",), (21, 23, 25, 26, 28)), ((), (21, 22, 23, 25, 26, 27, 28)), (("1",), (22, 23, 25, 27, 28))],
)
def test_a_log_that_tells_of_none_that_is_lost_acquits_only_who_was_elsewhere_or_had_no_context(devices, found):
    fault = Event("fatal_fault", 100.0, PIPE, 7, devices=devices, values={"named": ""})
    assert among().suspects(fault) == found


def test_who_ended_longer_ago_than_a_fault_takes_to_be_told_is_no_suspect():
    assert among().suspects(Event("fatal_fault", 100.1, PIPE, 7, devices=("0",), values={})) == (21, 23, 25)


def test_as_long_as_a_log_may_go_on_about_who_has_ended_his_name_is_kept_among_many():
    log, many = EventLog(), [next(iter(facts(pid, "bob").values())) for pid in range(1000, 1200)]
    log.know(facts(11, "alice", start=1.0).values(), 10.0, PIPE)
    log.left(11, 10.0)
    log.know(many, 12.0, PIPE)
    for pid in (11, 1000):
        log.add(Event("client_disconnected", 12.0, PIPE, 7, pid), "server")
    assert [event.user for event in log.events] == ["alice", None], "who began later is another"


def test_of_more_that_live_than_a_node_can_have_the_latest_are_known():
    log = EventLog()
    log.know([next(iter(facts(pid, "bob", start=1.0).values())) for pid in range(1000, 2030)], 12.0, PIPE)
    for pid in (1000, 1005, 1006, 2029):
        log.add(Event("client_disconnected", 12.0, PIPE, 7, pid), "server")
    assert [event.user for event in log.events] == [None, None, "bob", "bob"]


def test_a_users_name_stays_known_where_it_cannot_be_found_for_a_later_process():
    log = EventLog()
    log.know(facts(11, "alice", uid=2001).values(), 10.0, PIPE)
    (later,) = facts(12, "alice", uid=2001).values()
    log.know([replace(later, user=None)], 10.0, PIPE)
    log.add(Event("server_starting", 11.0, PIPE, 7, uid=2001), "server")
    assert [event.user for event in log.events] == ["alice"]


def test_whose_word_it_is_counts_for_what_was_told_before_that_was_known():
    """A stranger's log says that client 11 is root's: nobody knows whose it is."""
    log = EventLog()
    for pid, uid in ((11, 0), (12, 2001)):
        log.add(Event("client_connected", 10.0, PIPE, 7, pid, uid=uid), "server")
    assert [event.uid for event in log.events] == [0, 2001]
    log.believe_only([PIPE], 2001)
    assert [event.uid for event in log.events] == [None, 2001]
