"""The two rescues: whom they end, whom they never end, and what the audit log keeps of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from mpstui.control.answer import Outcome
from mpstui.core import condition
from mpstui.core.condition import describe_holder
from mpstui.core.model import ProcessKey, ServerFault, SessionHolder
from mpstui.core.trust import NOT_PROVED, Speaker
from mpstui.observe.discovery import DEFAULT_PIPE_DIR
from mpstui.operations import lock, rescue
from mpstui.operations.audit import AuditLog
from mpstui.operations.registry import operation, preview
from mpstui.operations.rescue import targets
from mpstui.operations.runner import OperationRunner
from mpstui.operations.types import ExitStatus, Request
from mpstui.system.procfs import Trouble, process_key
from tests.operations.fakes import ME, OWN, PIPE, FakeControl, FakeNode, as_root, client, node

DEAF = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); sys.stdin.read()"
MEEK = "import sys; print(flush=True); sys.stdin.read()"


@pytest.fixture
def start():
    """Starts processes that are ready and end with the test; gives the process and its identity."""
    running = []

    def start(code=MEEK):
        process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        running.append(process)
        process.stdout.readline()
        return process, process_key(process.pid)

    yield start
    for process in running:
        process.kill()
        process.communicate()


def faulty(*hit, others=(), **fields):
    """A node whose server is in FAULT and has ``hit`` still to end."""
    snapshot = node(*(replace(client(key.pid), key=key, uid=os.geteuid(), **fields) for key in (*hit, *others)))
    daemon = snapshot.daemons[0]
    fault = ServerFault(1.0, (hit[0].pid,), tuple(hit), refused=2)
    server = replace(daemon.servers[0], status="FAULT", fault=fault)
    return replace(snapshot, daemons=(replace(daemon, servers=(server,)),))


def blocked(key):
    return node(
        replace(client(key.pid), key=key, uid=os.geteuid(), state="TERMINATED"),
        condition=condition.terminated_twice(key, None, condition.Moment()),
    )


def runner(snapshot, folder, grace=5.0, said=None, **options):
    (daemon,) = snapshot.daemons
    listed, status = tuple(c.pid for c in daemon.clients()), daemon.servers[0].status
    control = FakeControl(**({"listed": listed, "holder": daemon.holder, "status": status} | (said or {})))
    if daemon.health != "ok":
        control.answers["get_server_list"] = Outcome(daemon.health)
    return OperationRunner(FakeNode(snapshot, control), AuditLog(folder / "audit.jsonl"), grace=grace, **options)


async def test_those_hit_are_ended_and_nobody_else(start, tmp_path):
    (one, first), (two, second), (bystander, third) = start(), start(), start()
    snapshot = faulty(first, second, others=(third,))
    shown = preview(Request("end_lost_clients", PIPE), snapshot)
    assert [line.split()[0] for line in shown.hits] == [str(one.pid), str(two.pid)]
    (spared,) = shown.others
    assert [line.split()[0] for line in spared.clients] == [str(bystander.pid)]
    assert spared.title == "Not hit by the fault, and run on"
    result = await runner(snapshot, tmp_path).execute(Request("end_lost_clients", PIPE), snapshot)
    assert result.done, result
    assert (one.wait(120), two.wait(120)) == (-signal.SIGTERM, -signal.SIGTERM)
    assert bystander.poll() is None
    entries = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [pid for pid, _ in entries[0]["clients"]] == []
    assert (entries[0]["action"], entries[0]["result"]) == ("end_lost_clients", "about to be done")
    assert {(e["action"], e["client"][0], e["status"]) for e in entries[1:]} == {
        ("end_lost_clients", one.pid, 0),
        ("end_lost_clients", two.pid, 0),
    }


@pytest.mark.parametrize(("listed", "status"), [(None, 0), (True, 0), (False, ExitStatus.REFUSED_BY_SAFETY_RULE)])
async def test_what_nvml_says_of_one_stands_against_it_and_where_it_says_nothing_that_is_told(
    start, tmp_path, listed, status
):
    process, key = start()
    snapshot = faulty(key, listed=listed)
    result = await runner(snapshot, tmp_path).execute(Request("end_lost_clients", PIPE), snapshot)
    assert (result.status, process.poll() is None) == (status, listed is False)
    said = f"NVML does not tell whether {key.pid} is a client: not checked"
    assert [said in result.details, "NVML does not list process" in result.message] == [listed is None, listed is False]


RULE = ExitStatus.REFUSED_BY_SAFETY_RULE


@pytest.mark.parametrize(
    ("said", "status", "why"),
    [
        ({"listed": ()}, RULE, "server 634 lists process"),
        ({"status": "ACTIVE"}, RULE, "server 634 is not in FAULT"),
        ({"answers": {"get_server_status": Outcome.BLOCKED}}, ExitStatus.NO_ANSWER, "is not known: it said blocked"),
        ({"answers": {"get_client_list": Outcome.BLOCKED}}, ExitStatus.NO_ANSWER, "are not known: it said blocked"),
    ],
)
async def test_one_that_the_daemon_says_nothing_of_the_kind_of_is_not_ended(start, tmp_path, said, status, why):
    """The log says that the fault has hit it, and the daemon, asked right before, does not bear it out."""
    process, key = start()
    snapshot = faulty(key)
    result = await runner(snapshot, tmp_path, said=said).execute(Request("end_lost_clients", PIPE), snapshot)
    assert (result.status, result.details) == (status, ("nothing was sent",))
    assert why in result.message
    assert process.poll() is None


async def test_one_that_leaves_by_itself_keeps_nobody_else_from_being_ended(start, tmp_path):
    """PyTorch's clients free their GPU at once and take seconds to leave."""
    (leaving, first), (hung, second) = start(), start()
    snapshot = faulty(first, second)
    work = runner(snapshot, tmp_path, said={"listed": (second.pid,)})
    result = await work.execute(Request("end_lost_clients", PIPE), snapshot)
    assert (result.status, result.message) == (ExitStatus.DONE, "1 process ended")
    assert f"left alone, server 634 lists process {leaving.pid} no more" in result.details[-1]
    assert hung.wait(120) == -signal.SIGTERM
    assert leaving.poll() is None


async def test_one_of_them_can_be_chosen_and_what_is_left_is_said(start, tmp_path):
    (one, first), (two, second) = start(), start()
    snapshot = faulty(first, second)
    request = Request("end_lost_clients", PIPE, clients=(second,))
    assert ("then", "1 more has to end before the server takes new clients") in preview(request, snapshot).facts
    assert (await runner(snapshot, tmp_path).execute(request, snapshot)).done
    assert two.wait(120) == -signal.SIGTERM
    assert one.poll() is None


async def test_one_that_ignores_sigterm_is_killed(start, tmp_path):
    process, key = start(DEAF)
    snapshot = blocked(key)
    result = await runner(snapshot, tmp_path, grace=0.05).execute(Request("unblock", PIPE), snapshot)
    assert result.done, result
    assert process.wait(120) == -signal.SIGKILL
    assert "SIGKILL" in result.details[-1]


async def test_who_has_the_turn_is_not_waited_for(start, tmp_path, monkeypatch: pytest.MonkeyPatch):
    """He may be the one who waits for the daemon."""
    monkeypatch.setattr(lock, "WAIT", 0.0)
    process, key = start()
    snapshot = blocked(key)
    async with lock.turn(PIPE, OWN):
        result = await runner(snapshot, tmp_path).execute(Request("unblock", PIPE), snapshot)
    assert result.done, result
    assert process.wait(120) == -signal.SIGTERM


async def test_a_successor_of_the_pid_is_never_hit(start, tmp_path):
    process, key = start()
    snapshot = blocked(ProcessKey(key.pid, key.start_ticks - 1))
    result = await runner(snapshot, tmp_path).execute(Request("unblock", PIPE), snapshot)
    assert "ended already" in result.details[-1]
    assert process.poll() is None


async def test_without_a_start_time_nothing_is_sent(start, tmp_path):
    process, key = start()
    snapshot = faulty(ProcessKey(key.pid))
    result = await runner(snapshot, tmp_path).execute(Request("end_lost_clients", PIPE), snapshot)
    assert result.status is ExitStatus.REFUSED_BY_SAFETY_RULE
    assert "nothing was sent" in result.details
    assert process.poll() is None


async def test_of_several_that_cannot_be_ended_the_first_is_the_reason_and_each_is_told(start, tmp_path, monkeypatch):
    (_, first), (_, second), (ended, third) = start(), start(), start()
    really = rescue.open_pidfd
    monkeypatch.setattr(rescue, "open_pidfd", lambda key: really(key) if key == third else Trouble(f"no {key.pid}"))
    snapshot = faulty(first, second, third)
    result = await runner(snapshot, tmp_path).execute(Request("end_lost_clients", PIPE), snapshot)
    assert (result.status, ended.wait(120)) == (ExitStatus.REFUSED_BY_SAFETY_RULE, -signal.SIGTERM)
    assert result.message == f"process {first.pid}: nothing was sent: no {first.pid}"
    told = [line for line in result.details if "nothing was sent" in line]
    assert [line.split()[0] for line in told] == [str(first.pid), str(second.pid)]


async def test_a_client_that_is_not_to_be_ended_is_refused(start, tmp_path):
    (hit, first), (bystander, second) = start(), start()
    snapshot = faulty(first, others=(second,))
    request = Request("end_lost_clients", PIPE, clients=(first, second))
    result = await runner(snapshot, tmp_path).execute(request, snapshot)
    assert result.status is ExitStatus.REFUSED_BY_SAFETY_RULE
    assert hit.poll() is None
    assert bystander.poll() is None


async def test_the_newest_picture_decides(start, tmp_path):
    """The question was put while the server was in FAULT; by the time of the answer it has recovered."""
    process, key = start()
    old = faulty(key)
    request = Request("end_lost_clients", PIPE)
    result = await runner(node(client(key.pid)), tmp_path).execute(request, old)
    assert result.status is ExitStatus.REFUSED_BY_SAFETY_RULE
    assert process.poll() is None


async def test_read_only_ends_nobody(start, tmp_path):
    process, key = start()
    snapshot = blocked(key)
    made = runner(snapshot, tmp_path, read_only=True)
    assert made.unavailable(operation("unblock"), snapshot, PIPE)
    result = await made.execute(Request("unblock", PIPE), snapshot)
    assert result.status is ExitStatus.REFUSED_BY_SAFETY_RULE
    assert process.poll() is None


def test_offered_only_where_there_is_something_to_end(tmp_path):
    well = node(client(643))
    made = runner(well, tmp_path)
    for name in ("end_lost_clients", "unblock"):
        assert made.unavailable(operation(name), well, PIPE, (ProcessKey(643, 1),))
        assert targets(name, well.daemons[0]) == ()
    key = ProcessKey(643, 1)
    assert made.unavailable(operation("unblock"), blocked(key), PIPE) is None
    assert made.unavailable(operation("end_lost_clients"), faulty(key), PIPE) is None
    assert targets("unblock", replace(blocked(key).daemons[0], condition=condition.ok())) == ()


def test_clients_that_a_quitting_daemon_waits_for_are_in_nobodys_way():
    key = ProcessKey(643, 1)
    snapshot = node(client(643), condition=condition.quitting((key,), 0.0, condition.Moment()))
    assert snapshot.daemons[0].condition.ends == (key,)
    assert targets("unblock", snapshot.daemons[0]) == ()
    shown = preview(Request("unblock", PIPE), snapshot)
    assert (shown.hits, shown.error_status) == ((), ExitStatus.REFUSED_BY_SAFETY_RULE)
    assert "told to quit; it waits for client 643" in (shown.error or ""), "and not that nobody is known"


@pytest.mark.parametrize(
    ("local", "speaker", "why"),
    [
        (False, OWN, f"client 643 is {NOT_PROVED}"),
        (True, Speaker(ME + 1, "mallory's daemon"), "mallory's daemon is trusted for its user only"),
    ],
)
def test_why_one_that_the_fault_has_hit_is_not_among_them(local, speaker, why):
    snapshot = faulty(ProcessKey(643, 1), local=local)
    snapshot = replace(snapshot, daemons=(replace(snapshot.daemons[0], speaker=speaker),))
    shown = preview(Request("end_lost_clients", PIPE), snapshot)
    assert (shown.hits, shown.error_status) == ((), RULE)
    assert why in shown.error


def test_another_users_process_is_refused_before_anything_is_sent(monkeypatch):
    snapshot = faulty(ProcessKey(643, 1))
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    shown = preview(Request("end_lost_clients", PIPE), snapshot)
    assert shown.error_status is ExitStatus.NOT_PERMITTED
    assert "643" in shown.error


def test_the_first_of_several_of_another_users_is_named(monkeypatch):
    snapshot = faulty(ProcessKey(643, 1), ProcessKey(645, 1))
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    shown = preview(Request("end_lost_clients", PIPE), snapshot)
    assert shown.error == "process 643 belongs to another user; only that user and root may end it"


@pytest.mark.parametrize(("pids", "what"), [((643,), "it holds"), ((643, 645), "they hold")])
def test_what_those_lose_that_are_ended(pids, what):
    shown = preview(Request("end_lost_clients", PIPE), faulty(*(ProcessKey(pid, 1) for pid in pids)))
    assert shown.warnings == (f"what {what} outside the GPU, such as unsaved results, is lost",)


def held(holder):
    return node(client(1), condition=condition.held(holder, "", None, condition.Moment()))


@as_root
async def test_the_holder_of_the_control_session_is_ended_and_no_client(start, tmp_path, monkeypatch):
    monkeypatch.setattr(rescue, "seen_by", lambda pid, path: (1, 1))
    monkeypatch.setattr(rescue, "file_id", lambda path: (1, 1))
    process, key = start()
    snapshot = held(SessionHolder(key.pid, "dave", "pts/3", start_ticks=key.start_ticks))
    shown = preview(Request("unblock", PIPE), snapshot)
    assert shown.hits == (f"{key.pid} dave control session on pts/3",)
    assert dict(shown.facts)["ends"] == f"process {key.pid}, which holds a control session open; no client is touched"
    assert shown.warnings == ("the person who works in that session loses it",)
    result = await runner(snapshot, tmp_path).execute(Request("unblock", PIPE), snapshot)
    assert result.done, result
    assert process.wait(120) == -signal.SIGTERM


@as_root
@pytest.mark.parametrize(
    ("theirs", "now", "why"),
    [
        (None, "the same", "holds a session with another daemon"),
        ((1, 2), "the same", "holds a session with another daemon"),
        ((1, 1), "another", "another session holds the daemon now"),
        ((1, 1), "nobody", "another session holds the daemon now"),
    ],
)
async def test_only_the_session_that_was_shown_is_ended_and_for_its_own_daemon(
    start, tmp_path, monkeypatch, theirs, now, why
):
    monkeypatch.setattr(rescue, "seen_by", lambda pid, path: theirs)
    monkeypatch.setattr(rescue, "file_id", lambda path: (1, 1))
    process, key = start()
    shown = SessionHolder(key.pid, "dave", "pts/3", start_ticks=key.start_ticks)
    holder = {"the same": shown, "another": replace(shown, start_ticks=key.start_ticks - 1), "nobody": None}[now]
    snapshot = held(shown)
    result = await runner(snapshot, tmp_path, said={"holder": holder}).execute(Request("unblock", PIPE), snapshot)
    assert result.status is ExitStatus.REFUSED_BY_SAFETY_RULE
    assert why in result.message
    assert process.poll() is None


@as_root
@pytest.mark.parametrize("named", [None, "/elsewhere"])
async def test_the_daemon_of_a_session_is_the_one_that_its_process_names(
    start, tmp_path, monkeypatch: pytest.MonkeyPatch, named: str | None
):
    monkeypatch.setattr(rescue, "read_environment", lambda pid: {"CUDA_MPS_PIPE_DIRECTORY": named} if named else None)
    monkeypatch.setattr(rescue, "seen_by", lambda pid, path: (1, 1) if path == DEFAULT_PIPE_DIR else (1, 2))
    monkeypatch.setattr(rescue, "file_id", lambda path: (1, 1))
    process, key = start()
    snapshot = held(SessionHolder(key.pid, "dave", "pts/3", start_ticks=key.start_ticks))
    result = await runner(snapshot, tmp_path).execute(Request("unblock", PIPE), snapshot)
    assert (result.done, process.poll() is None) == (named is None, named is not None), result


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (condition.held(None, "", None, condition.Moment()), "by a process that cannot be seen from here"),
        (
            condition.held(
                likely := SessionHolder(4711, "dave", certain=False, start_ticks=1),
                describe_holder(likely),
                None,
                condition.Moment(),
            ),
            "most likely kept open by PID 4711, user dave: mpstui cannot see the connections of this process",
        ),
        (condition.busy("Other sessions kept it busy.", condition.Moment()), "none stays open"),
        (condition.ok(), "the daemon answers: no process is in its way"),
    ],
)
def test_a_session_of_nobody_for_sure_ends_nobody_and_says_what_is_known(found, why):
    shown = preview(Request("unblock", PIPE), node(client(1), condition=found))
    assert shown.error_status is ExitStatus.REFUSED_BY_SAFETY_RULE
    assert why in shown.error


async def test_a_holder_whose_start_is_not_known_is_not_signalled(start, tmp_path):
    process, key = start()
    snapshot = held(SessionHolder(key.pid, "dave"))
    result = await runner(snapshot, tmp_path).execute(Request("unblock", PIPE), snapshot)
    assert result.status is ExitStatus.REFUSED_BY_SAFETY_RULE
    assert process.poll() is None
