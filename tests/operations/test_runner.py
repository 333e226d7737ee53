"""Sending, reading back, the order of the safe kill, read-only mode, the audit log."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mpstui.control.answer import Outcome
from mpstui.core.model import Event, ProcessKey, Snapshot
from mpstui.core.trust import Meant, Speaker
from mpstui.operations import runner
from mpstui.operations.audit import AuditLog, default_path
from mpstui.operations.limits import SetPinnedMemLimit
from mpstui.operations.load import StopLoad
from mpstui.operations.registry import OPERATIONS, operation, preview
from mpstui.operations.runner import OperationRunner
from mpstui.operations.types import ExitStatus, Request
from mpstui.system.procfs import process_key, read_stat

from .fakes import OWN, PIPE, FakeNode, as_root, client, node


@pytest.fixture
def audit(tmp_path: Path) -> AuditLog:
    return AuditLog(tmp_path / "state" / "audit.jsonl")


def entries(audit: AuditLog) -> list[dict[str, object]]:
    return [json.loads(line) for line in audit.path.read_text().splitlines()]


STUBBORN = (
    "import signal,sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); signal.pause()"
)
MEEK = "import signal,sys; print('ready', flush=True); signal.pause()"


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def start(processes: list[subprocess.Popen[str]], program: str) -> ProcessKey:
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    processes.append(process)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    stat = read_stat(process.pid)
    assert stat
    return stat.key


async def test_what_a_server_keeps_is_said_to_be_unknown_where_it_does_not_tell(audit: AuditLog) -> None:
    """A server that is starting tells none of its limits (fact 45): it kept “—”."""
    known = node()
    (daemon,) = known.daemons
    server = replace(daemon.servers[0], active_thread_percentage=None, status="INITIALIZING")
    starting = replace(known, daemons=(replace(daemon, servers=(server,)),))
    result = await OperationRunner(FakeNode(starting), audit).execute(
        Request("set_active_thread_percentage", PIPE, "33.3"), starting, lambda text: None
    )
    assert result.status is ExitStatus.DONE
    assert f"server {server.pid} keeps its own, which is not known" in result.details


async def test_a_value_is_read_back_and_the_read_value_is_reported(audit: AuditLog) -> None:
    fake = FakeNode(node())
    result = await OperationRunner(fake, audit).execute(
        Request("set_active_thread_percentage", PIPE, "33.3"), node(), lambda text: None
    )
    assert result.status is ExitStatus.DONE
    assert result.message == "in force: 33.3 %"
    assert "server 634 keeps its own: 100 %" in result.details
    assert fake.control.sent == ["set_default_active_thread_percentage 33.3", "get_default_active_thread_percentage"]
    assert (fake.refreshed, fake.proved) == (0, 1)
    before, entry = entries(audit)
    assert (before["value"], before["status"], before["result"]) == ("33.3", None, "about to be done")
    assert entry["command"] == "set_default_active_thread_percentage 33.3"
    assert entry["read_back"] == "33.3"
    assert entry["status"] == 0


HERE = process_key(os.getpid())
HERE_CLIENT = client(HERE.pid, ticks=HERE.start_ticks)
ENDED, UNTOLD = ProcessKey(HERE.pid, 1), ProcessKey(HERE.pid, None)


@pytest.mark.parametrize(
    ("asked", "listens", "refused"),
    [
        (ENDED, 4711, True),
        (ENDED, None, False),
        (ENDED, 0, False),
        (ENDED, HERE.pid, False),
        (UNTOLD, 4711, False),
        (HERE, 4711, False),
    ],
    ids=["another", "nobody", "not told", "the same", "no start time", "it lives"],
)
async def test_what_was_asked_of_a_daemon_that_has_ended_does_not_go_to_the_next_one_there(
    audit: AuditLog, monkeypatch: pytest.MonkeyPatch, asked: ProcessKey, listens: int | None, refused: bool
) -> None:
    """Of the same user, in the same directory: its sockets' owner tells of no difference."""
    monkeypatch.setattr(runner, "lock_holder", lambda pipe_dir: listens)
    fake = FakeNode(node(key=asked))
    result = await OperationRunner(fake, audit).execute(
        Request("set_active_thread_percentage", PIPE, "33"), node(key=asked), lambda text: None
    )
    assert result.status is (ExitStatus.REFUSED_BY_SAFETY_RULE if refused else ExitStatus.DONE)
    assert ("and another one runs there" in result.message) is refused
    assert (fake.control.sent == []) is refused


async def test_where_nobody_was_asked_about_it_is_for_whoever_is_there_as_it_begins(
    audit: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = [OWN]
    monkeypatch.setattr(runner, "find_speaker", lambda pipe_dir: there[0])
    made, nobody = OperationRunner(FakeNode(None), audit), Snapshot(0.0)
    assert await made._meant(Request("daemon_start", PIPE), nobody) == Meant(PIPE, OWN)
    assert await made._meant(Request("start_load", Path()), nobody) == Meant(Path()), "of no directory"
    there[0] = Speaker(None, "its sockets cannot be looked at", (1, 2))
    assert await OperationRunner(FakeNode(None), audit)._meant(Request("daemon_start", PIPE), nobody) == Meant(PIPE)


async def test_a_percentage_between_two_that_can_be_printed_is_in_force(audit: AuditLog) -> None:
    for typed, printed in (("31.25", "31.2"), ("18.75", "18.8")):  # each is 0.05 off, and in floats a little more
        result = await OperationRunner(FakeNode(node()), audit).execute(
            Request("set_active_thread_percentage", PIPE, typed), node()
        )
        assert (result.status, result.message) == (ExitStatus.DONE, f"in force: {printed} %")


@pytest.mark.parametrize(
    ("wanted", "shown", "words"),
    [
        (1500 << 20, 1 << 30, "set: 1500M (the driver shows it as 1G)"),
        (56704 << 20, 55 << 30, "set: 56704M (the driver shows it as 55G)"),
        (900 << 20, 900 << 20, "in force: 900 MiB"),
        (None, None, "in force: none"),
    ],
)
def test_a_limit_that_the_driver_shows_rounded_is_told_as_it_was_set(
    wanted: int | None, shown: int | None, words: str
) -> None:
    assert SetPinnedMemLimit().same(wanted, shown)
    assert SetPinnedMemLimit().done_words(wanted, shown) == words  # fact 32


@pytest.mark.parametrize(
    ("name", "value", "device"),
    [
        ("set_active_thread_percentage", "25", None),
        ("set_pinned_mem_limit", "2G", "0"),
        ("set_client_priority", "1", None),
    ],
)
async def test_a_value_that_was_ignored_in_silence_is_an_error(
    audit: AuditLog, name: str, value: str, device: str | None
) -> None:
    fake = FakeNode(node())
    fake.control.deaf = True
    result = await OperationRunner(fake, audit).execute(Request(name, PIPE, value, None, device), node())
    assert result.status is ExitStatus.REFUSED_BY_DAEMON
    assert "did not take it" in result.message
    assert (fake.refreshed, fake.proved) == (1, 0)


@pytest.mark.parametrize(
    ("outcome", "status", "known"),
    [
        (Outcome.ABSENT, ExitStatus.NO_DAEMON, "nothing reached a daemon"),
        (Outcome.HELD, ExitStatus.NO_ANSWER, "nothing reached the daemon"),
        (Outcome.BLOCKED, ExitStatus.NO_ANSWER, "may still be carried out"),
        (Outcome.NOT_PERMITTED, ExitStatus.NOT_PERMITTED, "as it was"),
        (Outcome.REFUSED, ExitStatus.REFUSED_BY_DAEMON, "as it was"),
        (Outcome.UNREADABLE, ExitStatus.NO_ANSWER, "not known"),
        (Outcome.NO_BINARY, ExitStatus.NO_ANSWER, "nothing was sent"),
    ],
)
async def test_each_outcome_has_its_exit_status_and_claims_no_more_than_is_known(
    audit: AuditLog, outcome: Outcome, status: ExitStatus, known: str
) -> None:
    fake = FakeNode(node())
    fake.control.answers["set_default_active_thread_percentage"] = outcome
    result = await OperationRunner(fake, audit).execute(Request("set_active_thread_percentage", PIPE, "25"), node())
    assert result.status is status
    assert result.message == f"it said {outcome.value}"
    assert known in result.details[0]


async def test_read_only_refuses_in_the_action_layer_too(audit: AuditLog) -> None:
    fake = FakeNode(node())
    runner = OperationRunner(fake, audit, read_only=True)
    for each in OPERATIONS:
        assert runner.unavailable(each, node(), PIPE, [ProcessKey(643, 1)]) == "mpstui runs read-only"
        request = Request(each.id, PIPE, "1", None, "0", (ProcessKey(643, 1),))
        result = await runner.execute(request, node())
        assert result.status is ExitStatus.REFUSED_BY_SAFETY_RULE
    assert fake.control.sent == []
    assert all(entry["sent"] is False for entry in entries(audit))


async def test_the_newest_snapshot_is_checked_not_the_one_that_was_shown(audit: AuditLog) -> None:
    fake = FakeNode(node(client(700)))
    result = await OperationRunner(fake, audit).execute(
        Request("terminate_client", PIPE, clients=(ProcessKey(643, 1),)), node(client(643))
    )
    assert result.status is ExitStatus.REFUSED_BY_SAFETY_RULE
    assert fake.control.sent == []


@as_root
async def test_the_safe_kill_terminates_first_and_then_signals(
    audit: AuditLog, processes: list[subprocess.Popen[str]]
) -> None:
    key = start(processes, MEEK)
    fake = FakeNode(node(client(key.pid, ticks=key.start_ticks)))
    fake.control.listed = (key.pid,)
    said: list[str] = []
    result = await OperationRunner(fake, audit).execute(
        Request("terminate_and_kill", PIPE, clients=(key,)), node(), said.append
    )
    assert result.status is ExitStatus.DONE, result
    assert fake.control.sent == ["get_client_list 634", f"terminate_client 634 {key.pid}"]
    assert said[:2] == [f"terminate_client 634 {key.pid}", f"SIGTERM {key.pid}"]
    assert processes[0].wait() == -signal.SIGTERM


def fault(*pids: int, pipe_dir: Path = PIPE, server: int = 634, **values: object) -> Event:
    told = {"clients": " ".join(map(str, pids))}
    return Event("fatal_fault", 1795209865.0, pipe_dir, server, values=told, **values)


@as_root
@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.BLOCKED, Outcome.NOT_PERMITTED])
async def test_a_fault_that_comes_with_a_terminate_is_in_its_result(audit: AuditLog, outcome: Outcome) -> None:
    """And none that was there before, nor of another daemon; of one that the daemon did not take, none came of it."""
    before, other = fault(9, raw="before"), fault(8, pipe_dir=Path("/tmp/other"))
    there = replace(node(HERE_CLIENT, client(700, user="bob")), events=(before,))
    fake = FakeNode(there)
    fake.control.listed, fake.control.answers = (HERE.pid, 700), {"terminate_client": outcome}
    came = fault(HERE.pid, 700, 701)

    def send(command: str) -> None:
        if command.startswith("terminate_client"):
            fake.snapshot = replace(there, events=(before, came, other))

    fake.control.on_send = send
    result = await OperationRunner(fake, audit).execute(Request("terminate_client", PIPE, clients=(HERE,)), there)
    said = "; but server.log tells of a fatal fault of server 634 that came with it, which hit 2 other clients"
    if outcome is Outcome.NOT_PERMITTED:
        assert (said in result.message, result.remedy) == (False, None)
        return
    assert (result.done, result.message.endswith(said)) == (outcome is Outcome.OK, True), result
    assert result.details[-2:] == ("hit by the fault: 700 bob python job700.py", "hit by the fault: client 701")
    assert result.remedy is not None
    assert "end-lost" in result.remedy


@as_root
async def test_of_those_whom_a_fault_hit_no_more_are_named_than_a_device_takes(audit: AuditLog) -> None:
    """Whoever writes the log names as many as he likes."""
    there = node(HERE_CLIENT)
    fake = Later(there, replace(there, events=(fault(HERE.pid, *range(10_000, 15_000)),)))
    fake.control.listed = (HERE.pid,)
    result = await OperationRunner(fake, audit).execute(Request("terminate_client", PIPE, clients=(HERE,)), there)
    assert "which hit 5000 other clients" in result.message
    assert result.details[-2:] == ("hit by the fault: client 10059", "and 4940 more")
    assert len([line for line in result.details if line.startswith("hit by the fault: ")]) == 60


@as_root
@pytest.mark.parametrize("watch", ["logs", "polling"])
async def test_a_fault_is_waited_for_where_logs_are_read(audit: AuditLog, watch: str) -> None:
    """Until the log has told that the client was ended, and a little longer; and not for ever."""
    there = node(HERE_CLIENT, client(700), watch=watch)
    fake = Later(there, replace(there, events=(fault(HERE.pid, 700),)))
    fake.control.listed = (HERE.pid, 700)
    result = await OperationRunner(fake, audit).execute(Request("terminate_client", PIPE, clients=(HERE,)), there)
    assert result.done
    assert ("which hit 1 other client" in result.message) is (watch == "logs")


@as_root
@pytest.mark.parametrize("kill", [False, True])
async def test_what_the_log_tells_of_somebody_elses_terminate_is_no_answer_to_this_one(
    audit: AuditLog, processes: list[subprocess.Popen[str]], kill: bool
) -> None:
    """Of several mpstui at once three said that theirs was confirmed. A kill goes on: whom it is for has been ended."""
    key = start(processes, MEEK)
    there = node(client(key.pid, ticks=key.start_ticks))
    ended = node(client(key.pid, ticks=key.start_ticks, terminate_requested=True, state="TERMINATED"))

    class Heard(FakeNode):
        def heard(self, pipe_dir: Path) -> Snapshot | None:
            return ended

    fake = Heard(there)
    fake.control.listed = (key.pid,)
    action = "terminate_and_kill" if kill else "terminate_client"
    result = await OperationRunner(fake, audit).execute(Request(action, PIPE, clients=(key,)), there)
    assert result.status is (ExitStatus.DONE if kill else ExitStatus.REFUSED_BY_SAFETY_RULE), result
    assert f"terminate_client 634 {key.pid}" not in fake.control.sent
    assert "confirmed" not in str(result)


class Later(FakeNode):
    """A node whose log tells some looks after the terminate_client what came with it."""

    def __init__(self, snapshot: Snapshot, after: Snapshot) -> None:
        super().__init__(snapshot)
        self._after, self._looks = after, 0

    def heard(self, pipe_dir: Path) -> Snapshot | None:
        self._looks += any(command.startswith("terminate_client") for command in self.control.sent)
        return self._after if self._looks > 5 else self.snapshot


@as_root
async def test_a_process_that_ignores_sigterm_gets_sigkill(
    audit: AuditLog, processes: list[subprocess.Popen[str]]
) -> None:
    key = start(processes, STUBBORN)
    fake = FakeNode(node(client(key.pid, ticks=key.start_ticks)))
    fake.control.listed = (key.pid,)
    result = await OperationRunner(fake, audit, grace=0.05).execute(
        Request("terminate_and_kill", PIPE, clients=(key,)), node()
    )
    assert result.status is ExitStatus.DONE
    assert "SIGKILL" in result.details[0]
    assert processes[0].wait() == -signal.SIGKILL


@as_root
@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.OK])
async def test_a_terminate_that_fails_does_not_go_on_to_a_kill(
    audit: AuditLog, processes: list[subprocess.Popen[str]], outcome: Outcome
) -> None:
    first, second = start(processes, MEEK), start(processes, MEEK)
    fake = FakeNode(node(*(client(k.pid, ticks=k.start_ticks) for k in (first, second))))
    fake.control.listed = (first.pid, second.pid)
    fake.control.answers["terminate_client"] = outcome
    result = await OperationRunner(fake, audit).execute(
        Request("terminate_and_kill", PIPE, clients=(first, second)), node()
    )
    assert not result.done
    assert [p.poll() for p in processes] == [None, None]
    assert ("may still be carried out" in result.message) is (outcome is Outcome.BLOCKED)
    assert fake.control.sent.count(f"terminate_client 634 {first.pid}") == 1
    assert not any(command.endswith(f" {second.pid}") for command in fake.control.sent), "634 may be its number, too"
    assert "1 more not touched" in result.details


async def test_terminate_is_never_sent_twice_even_by_the_next_mpstui(
    audit: AuditLog, processes: list[subprocess.Popen[str]]
) -> None:
    """The snapshot does not know yet (no readable logs): the runner and, after a restart, the audit log do."""
    key = start(processes, MEEK)
    fake = FakeNode(node(client(key.pid, ticks=key.start_ticks)))
    fake.control.listed = (key.pid,)
    fake.control.answers["terminate_client"] = Outcome.BLOCKED
    request = Request("terminate_client", PIPE, clients=(key,))
    runner = OperationRunner(fake, audit)
    assert (await runner.execute(request, node())).status is ExitStatus.NO_ANSWER
    assert (await runner.execute(request, node())).status is ExitStatus.REFUSED_BY_SAFETY_RULE
    assert (await OperationRunner(fake, audit).execute(request, node())).status is ExitStatus.REFUSED_BY_SAFETY_RULE
    assert fake.control.sent.count(f"terminate_client 634 {key.pid}") == 1


async def test_a_terminate_that_the_daemon_did_not_take_may_be_tried_again(
    audit: AuditLog, processes: list[subprocess.Popen[str]]
) -> None:
    key = start(processes, MEEK)
    fake = FakeNode(node(client(key.pid, ticks=key.start_ticks)))
    fake.control.listed = (key.pid,)
    fake.control.answers["terminate_client"] = Outcome.HELD
    request = Request("terminate_client", PIPE, clients=(key,))
    assert (await OperationRunner(fake, audit).execute(request, node())).status is ExitStatus.NO_ANSWER
    fake.control.answers.clear()
    assert (await OperationRunner(fake, audit).execute(request, node())).status is ExitStatus.DONE


@as_root
async def test_whom_another_mpstui_has_terminated_can_still_be_killed(
    audit: AuditLog, tmp_path: Path, processes: list[subprocess.Popen[str]]
) -> None:
    key = start(processes, MEEK)
    fake = FakeNode(node(client(key.pid, ticks=key.start_ticks)))
    fake.control.listed = (key.pid,)
    first = await OperationRunner(fake, audit).execute(Request("terminate_client", PIPE, clients=(key,)), node())
    another = OperationRunner(fake, AuditLog(tmp_path / "another.jsonl"))
    then = await another.execute(Request("terminate_and_kill", PIPE, clients=(key,)), node())
    assert (first.done, then.done) == (True, True), then
    assert processes[0].wait(120) == -signal.SIGTERM
    assert fake.control.sent.count(f"terminate_client 634 {key.pid}") == 1


def test_an_audit_line_has_the_directory_of_the_daemon_and_none_where_it_is_about_none(audit: AuditLog) -> None:
    made = OperationRunner(FakeNode(node()), audit)
    for where in (PIPE, Path()):
        made.refuse(Request("terminate_client", where), "no", ExitStatus.USAGE)
    assert [entry["pipe_dir"] for entry in entries(audit)] == [str(PIPE), None]


async def test_a_client_has_its_own_lines_in_the_audit_log_and_all_of_them_have_none(audit: AuditLog) -> None:
    fake = FakeNode(node(client(HERE.pid, ticks=HERE.start_ticks)))
    fake.control.listed = (HERE.pid,)
    await OperationRunner(fake, audit).execute(Request("terminate_client", PIPE, clients=(HERE,)), node())
    assert [(entry["command"], entry["result"]) for entry in entries(audit)] == [
        ("", "about to be done"),
        (f"terminate_client 634 {HERE.pid}", "about to be sent"),
        (f"terminate_client 634 {HERE.pid}", "terminated: the daemon has confirmed it"),
    ]


async def test_a_terminate_that_could_not_be_noted_in_the_audit_log_was_not_sent_and_may_be(
    audit: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeNode(node(client(HERE.pid, ticks=HERE.start_ticks)))
    fake.control.listed = (HERE.pid,)
    request, made = Request("terminate_client", PIPE, clients=(HERE,)), OperationRunner(fake, audit)
    with monkeypatch.context() as patch:
        write = audit.write
        patch.setattr(
            audit, "write", lambda **entry: "full" if entry["result"] == "about to be sent" else write(**entry)
        )
        result = await made.execute(request, node())
    assert (result.status, "nothing was sent: " in result.message) == (ExitStatus.REFUSED_BY_SAFETY_RULE, True)
    assert fake.control.sent == ["get_client_list 634"]
    result = await made.execute(request, node())
    assert result.done, result
    assert fake.control.sent.count(f"terminate_client 634 {HERE.pid}") == 1


def test_a_process_that_is_not_known_here_is_terminated_by_its_number_and_not_killed() -> None:
    snapshot = node(client(643), client(645, local=False))
    keys = (ProcessKey(643, 1), ProcessKey(645, 1))
    shown = preview(Request("terminate_and_kill", PIPE, clients=keys), snapshot)
    assert shown.error_status is ExitStatus.REFUSED_BY_SAFETY_RULE
    assert "its process is not known here, so no process is signalled" in str(shown.error)
    assert preview(Request("terminate_client", PIPE, clients=keys), snapshot).error is None


@pytest.mark.parametrize("remembers", ["mpstui itself", "the daemon's turn", "the audit log"])
@pytest.mark.parametrize(
    ("outcome", "again"),
    [(Outcome.OK, False), (Outcome.BLOCKED, False), (Outcome.UNREADABLE, False), (Outcome.HELD, True)],
)
async def test_each_of_three_memories_alone_keeps_from_a_second_terminate(
    audit: AuditLog, tmp_path: Path, remembers: str, outcome: Outcome, again: bool
) -> None:
    """Another mpstui has its turn's file alone, another user's no audit log, one without a snapshot no log."""
    fake = FakeNode(node(client(HERE.pid, ticks=HERE.start_ticks)))
    fake.control.listed = (HERE.pid,)
    fake.control.answers["terminate_client"] = outcome
    request, ended = Request("terminate_client", PIPE, clients=(HERE,)), OperationRunner(fake, audit)
    assert (await ended.execute(request, node())).done is (outcome is Outcome.OK)
    fake.control.answers.clear()
    if remembers != "mpstui itself":
        ended = OperationRunner(fake, audit if remembers == "the audit log" else AuditLog(tmp_path / "another.jsonl"))
    if remembers != "the audit log":
        audit.path.unlink()
    if remembers != "the daemon's turn":
        (tmp_path / "turn.lock").write_bytes(b"")
    status = ExitStatus.DONE if again else ExitStatus.REFUSED_BY_SAFETY_RULE
    assert (await ended.execute(request, node())).status is status
    assert fake.control.sent.count(f"terminate_client 634 {HERE.pid}") == 1 + again


@pytest.mark.parametrize(("run", "again"), [("a-1", False), ("b-2", True), ("", False)])
async def test_what_was_sent_to_a_run_of_a_daemon_that_has_ended_is_of_no_client_of_this_one(
    audit: AuditLog, monkeypatch: pytest.MonkeyPatch, run: str, again: bool
) -> None:
    fake = FakeNode(node(client(HERE.pid, ticks=HERE.start_ticks)))
    fake.control.listed = (HERE.pid,)
    request = Request("terminate_client", PIPE, clients=(HERE,))
    for now in ("a-1", run):
        monkeypatch.setattr("mpstui.operations.clients.run_name", lambda run, now=now: now)
        for turn in audit.path.parent.parent.rglob("turn.lock"):
            turn.write_bytes(b"")  # it is the audit log that tells
        await OperationRunner(fake, audit).execute(request, node())
    assert fake.control.sent.count(f"terminate_client 634 {HERE.pid}") == 1 + again


@as_root
async def test_a_client_that_the_daemon_does_not_list_is_left_alone(
    audit: AuditLog, processes: list[subprocess.Popen[str]]
) -> None:
    key = start(processes, MEEK)
    fake = FakeNode(node(client(key.pid, ticks=key.start_ticks)))
    fake.control.listed = ()
    result = await OperationRunner(fake, audit).execute(Request("terminate_and_kill", PIPE, clients=(key,)), node())
    assert result.status is ExitStatus.REFUSED_BY_SAFETY_RULE
    assert fake.control.sent == ["get_client_list 634"]
    assert processes[0].poll() is None


@as_root
async def test_a_reused_pid_is_left_alone(audit: AuditLog, processes: list[subprocess.Popen[str]]) -> None:
    key = start(processes, MEEK)
    old = ProcessKey(key.pid, (key.start_ticks or 0) - 1)
    fake = FakeNode(node(client(old.pid, ticks=old.start_ticks)))
    fake.control.listed = (key.pid,)
    result = await OperationRunner(fake, audit).execute(Request("terminate_and_kill", PIPE, clients=(old,)), node())
    assert result.status is ExitStatus.REFUSED_BY_SAFETY_RULE
    assert fake.control.sent == []
    assert processes[0].poll() is None


def test_the_end_of_a_load_is_written_of_its_daemon() -> None:
    end: Any = None
    assert [StopLoad().request(each, end).pipe_dir for each in (PIPE, None)] == [PIPE, Path()]


async def test_a_full_disk_does_not_stop_the_admin_but_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    fake = FakeNode(node())
    result = await OperationRunner(fake, AuditLog(tmp_path / "file" / "audit.jsonl")).execute(
        Request("set_client_priority", PIPE, "1"), node()
    )
    assert (result.status, result.waits, result.simulated) == (ExitStatus.DONE, False, False)
    assert "could not be written" in result.details[-1]


def test_a_broken_audit_log_is_survived(audit: AuditLog) -> None:
    audit.path.parent.mkdir()
    audit.path.write_bytes(b'\xff\x00"terminate_client\n{"command": "terminate_client 1 2"\n["terminate_client"]\n')
    assert audit.terminate_was_sent("boot", (2, 1)) is False
    audit.write(action="x", command="terminate_client 1 2", client=[2, 1], boot_id="boot", sent=True)
    assert audit.terminate_was_sent("boot", (2, 1)) is True
    assert audit.terminate_was_sent("another boot", (2, 1)) is False
    audit.write(action="x", command="client terminate 3", client=[3, 1], boot_id="boot", sent=True)
    assert audit.terminate_was_sent("boot", (3, 1)) is True, "protocol 3 has other words"
    assert audit.path.read_bytes().startswith(b"\xff")
    audit.write(action="x", command="terminate_client 1 4", client=[4, 1], boot_id="boot", run="a-1", sent=True)
    told = [audit.terminate_was_sent("boot", (4, 1), run) for run in ("a-1", "a-2", None)]
    assert told == [True, False, True], "of another daemon that was started there it says nothing"
    there = (7, None, "/p", 5, 1, 6, 1)
    audit.write(action="x", command="terminate_client 6 7", client=there, boot_id="boot", sent=True)
    of_others = [(7, None, "/q", *there[3:]), (*there[:3], 8, *there[4:]), (*there[:6], 2)]
    assert [audit.terminate_was_sent("boot", each) for each in (there, *of_others)] == [True, False, False, False]
    assert audit.terminate_was_sent("boot", (*there[:6], None)), "which one it is is not known"


def test_the_audit_log_has_its_place() -> None:
    assert default_path({"MPSTUI_AUDIT_LOG": "/x/y"}) == Path("/x/y")
    assert default_path({}).name == "audit.jsonl"


def test_keys_are_unique_and_ids_resolve() -> None:
    keys = {(a.place, a.key, a.key_id or a.id) for a in OPERATIONS if a.key}
    assert len({key[:2] for key in keys}) == len(keys), "what shares a key has one name on that screen"
    assert all(operation(a.id) is a for a in OPERATIONS)


async def test_two_that_end_the_same_client_at_once_send_one_terminate(
    audit: AuditLog, processes: list[subprocess.Popen[str]]
) -> None:
    key = start(processes, MEEK)
    fake = FakeNode(node(client(key.pid, ticks=key.start_ticks)))
    fake.control.listed = (key.pid,)
    fake.control.yields = True
    runner, request = OperationRunner(fake, audit), Request("terminate_client", PIPE, clients=(key,))
    both = await asyncio.gather(runner.execute(request, node()), runner.execute(request, node()))
    assert fake.control.sent.count(f"terminate_client 634 {key.pid}") == 1
    assert sorted(result.status for result in both) == [ExitStatus.DONE, ExitStatus.REFUSED_BY_SAFETY_RULE]


@pytest.mark.parametrize("during", ["terminate_client", "get_client_list"])
async def test_what_somebody_else_terminates_meanwhile_is_not_terminated_again(
    audit: AuditLog, processes: list[subprocess.Popen[str]], during: str
) -> None:
    """Ending several takes seconds; in between the log tells of somebody's own terminate_client for the next one."""
    first, second = start(processes, MEEK), start(processes, MEEK)
    alive = [client(k.pid, ticks=k.start_ticks) for k in (first, second)]
    fake = FakeNode(node(*alive))
    fake.control.listed = (first.pid, second.pid)
    turns = iter((False, True) if during == "get_client_list" else (True,))

    def sent(command: str) -> None:
        if command.startswith(during) and next(turns):
            fake.snapshot = node(alive[0], client(second.pid, ticks=second.start_ticks, terminate_requested=True))

    fake.control.on_send = sent
    result = await OperationRunner(fake, audit).execute(
        Request("terminate_client", PIPE, clients=(first, second)), node()
    )
    assert result.status is ExitStatus.REFUSED_BY_SAFETY_RULE
    assert [c for c in fake.control.sent if c.startswith("terminate")] == [f"terminate_client 634 {first.pid}"]


async def test_one_that_goes_while_the_others_are_ended_is_known_by_what_was_known_of_it(
    audit: AuditLog, processes: list[subprocess.Popen[str]]
) -> None:
    """The newest snapshot has it no more: it is told of by the one before, and nothing is sent for it."""
    keys = start(processes, MEEK), start(processes, MEEK)
    clients = [client(key.pid, ticks=key.start_ticks) for key in keys]
    fake = FakeNode(node(*clients))
    fake.control.listed = (keys[0].pid,)

    def goes(command: str) -> None:
        if command.startswith("terminate_client"):
            fake.snapshot = node(clients[0])

    fake.control.on_send = goes
    result = await OperationRunner(fake, audit).execute(Request("terminate_client", PIPE, clients=keys), node())
    assert [line.split()[0] for line in result.details] == [str(key.pid) for key in keys]
    assert [command for command in fake.control.sent if "terminate" in command] == [
        f"terminate_client 634 {keys[0].pid}"
    ]
