"""Whom the end of a daemon hits, what is sent for it, which signals follow, and which compute modes a start and a stop
set; tests/daemons does it on a simulated node."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mpstui.control.answer import Answer, Outcome
from mpstui.core import condition
from mpstui.core.model import Client, Condition, Daemon, Health, ProcessKey, Snapshot
from mpstui.core.trust import Speaker
from mpstui.core.v3 import V3Client, V3Node, V3Server
from mpstui.daemons.spec import DaemonSpec, Started
from mpstui.operations import daemons as stopping
from mpstui.operations.daemons import RemoveStale, StartDaemon, StopDaemon, preview_stop
from mpstui.operations.types import ExitStatus, Request, Result
from mpstui.system.procfs import PidFd

from .fakes import PIPE, client, node

KEY = ProcessKey(480, 1)
SILENT, HELD = Condition("blocked", "silent"), Condition("held", "a session")
NO_ANSWER, REFUSED = ExitStatus.NO_ANSWER, ExitStatus.REFUSED_BY_SAFETY_RULE


@pytest.mark.parametrize(
    ("daemon", "force", "status", "hint"),
    [
        ({}, False, ExitStatus.DONE, False),
        ({"condition": SILENT}, False, NO_ANSWER, True),
        ({"condition": HELD}, False, NO_ANSWER, True),
        ({"condition": SILENT}, True, ExitStatus.DONE, False),
        ({"condition": SILENT, "key": None}, False, NO_ANSWER, False),  # no process is known that could be ended
        ({"condition": SILENT, "key": None}, True, NO_ANSWER, False),
        ({"condition": Condition("absent")}, True, ExitStatus.NO_DAEMON, False),
    ],
)
def test_force_is_for_a_daemon_that_does_not_answer(
    daemon: dict[str, object], force: bool, status: ExitStatus, hint: bool
) -> None:
    shown = preview_stop(node(**daemon), PIPE, None, force)
    assert (shown.error_status, shown.error is None) == (status, status is ExitStatus.DONE)
    assert ("--force ends its process" in str(shown.error)) is hint


@pytest.mark.parametrize(
    ("remedy", "forced"), [("End it: mpstui daemon stop --force", True), ("Ask its owner.", False)]
)
def test_a_daemon_that_is_not_found_is_forced_where_that_is_its_remedy(remedy: str, forced: bool) -> None:
    lost = condition.not_found("its socket is gone", remedy, condition.Moment())
    for force in (False, True):
        shown = preview_stop(node(condition=lost), PIPE, None, force)
        assert (shown.error is None) is (force and forced)
        assert ("--force ends its process" in str(shown.error)) is (forced and not force)


def test_without_a_daemon_there_is_nothing_to_force() -> None:
    shown = preview_stop(Snapshot(0.0), PIPE, None, True)
    assert (shown.error_status, shown.hits) == (ExitStatus.NO_DAEMON, ())
    assert "--force" not in str(shown.error)


@pytest.mark.parametrize(
    ("clients", "timeout", "force", "effect"),
    [
        ((), None, False, "no client is connected: it ends at once"),
        ((643,), None, False, "it waits until 1 client has ended, and serves nobody else meanwhile"),
        ((643, 645), 0, False, "2 clients have at most 0 s to end; then their GPU work is ended with error 806"),
        ((643, 645), 60, False, "2 clients have at most 60 s to end; then their GPU work is ended with error 806"),
        ((643,), 60, True, "1 client has at most 1 s to end; then their GPU work is ended with error 806"),
    ],
)
def test_how_long_it_waits_and_for_whom(clients: Sequence[int], timeout: int | None, force: bool, effect: str) -> None:
    snapshot = node(*map(client, clients)) if clients else node(servers=(), watch="logs")
    shown = preview_stop(snapshot, PIPE, timeout, force)
    assert (len(shown.hits), shown.effect, shown.error) == (len(clients), effect, None)


@pytest.mark.parametrize(
    ("timeout", "force", "then"),
    [
        (None, False, "it waits for all clients"),
        (60, False, "their GPU work is ended after 60 s"),
        (60, True, "their GPU work is ended after 1 s"),
    ],
)
def test_of_a_daemon_that_cannot_be_asked_it_is_not_said_that_nobody_is_connected(
    timeout: int | None, force: bool, then: str
) -> None:
    shown = preview_stop(node(servers=(), condition=SILENT), PIPE, timeout, force)
    assert shown.effect == f"the clients are not known, because the daemon cannot be asked; {then}"


@pytest.mark.parametrize(
    ("seen", "status"),
    [
        (KEY, ExitStatus.DONE),
        (ProcessKey(480, 2), REFUSED),  # its number, and another process
        (ProcessKey(481, 1), REFUSED),
        (None, REFUSED),
    ],
)
def test_no_other_daemon_is_stopped_than_the_one_that_was_seen(seen: ProcessKey | None, status: ExitStatus) -> None:
    snapshot = node()
    (daemon,) = snapshot.daemons
    shown = StopDaemon().preview(StopDaemon().request(replace(daemon, key=seen)), snapshot)
    assert (shown.error_status, shown.error is None) == (status, status is ExitStatus.DONE)
    unnamed = StopDaemon().preview(Request(StopDaemon.id, PIPE), snapshot)
    assert unnamed.error_status is REFUSED


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (condition.ok(), None),
        (condition.closed("it is closed to you", ""), "it is closed to you"),
        (condition.absent("", ""), "no daemon runs there"),
    ],
)
def test_where_none_can_be_stopped_it_is_said_why(found: Condition, why: str | None) -> None:
    assert StopDaemon().unavailable(node(condition=found), PIPE) == why
    assert StopDaemon().unavailable(node(), PIPE / "another") == "no daemon runs there"


@pytest.mark.parametrize(
    ("timeout", "force", "command", "of_v3"),
    [
        (None, False, "quit", "server delete, of each; SIGTERM"),
        (0, False, "quit -t 0", "server delete --force, of each; SIGTERM"),
        (60, False, "quit -t 60", "server delete --force, of each; SIGTERM"),
        (60, True, "quit -t 1", "server delete --force, of each; SIGTERM"),
    ],
)
def test_the_command_in_words(timeout: int | None, force: bool, command: str, of_v3: str) -> None:
    (daemon,) = node().daemons
    stop = StopDaemon()
    assert stop.command(stop.request(daemon, timeout, force=force)) == command
    assert stop.command(stop.request(replace(daemon, protocol="v3"), timeout, force=force)) == of_v3


class Process(PidFd):
    """Ends at the signal ``ends_at``; it was there before, or not."""

    def __init__(self, ends_at: signal.Signals | None = signal.SIGTERM, *, there: bool = True) -> None:
        super().__init__(KEY, -1)
        self.ends_at, self.there, self.sent = ends_at, there, list[signal.Signals]()

    def send(self, number: signal.Signals) -> None:
        self.sent.append(number)
        self.there = self.there and number is not self.ends_at

    def uids(self) -> frozenset[int]:
        return frozenset({0})

    async def wait(self, timeout: float) -> bool:
        return not self.there


class Control:
    """Answers ``quit`` with one outcome, and is read as one node after the other."""

    def __init__(
        self,
        outcome: Outcome = Outcome.OK,
        nodes: Sequence[V3Node | Outcome] = (),
        then: Callable[[], object] = lambda: None,
    ) -> None:
        self.channel = SimpleNamespace(deadline=7.0)
        self.outcome, self.nodes, self.then = outcome, list(nodes), then
        self.sent = list[Any]()
        self.reads = 0

    async def quit(self, limit: int | None, deadline: float | None) -> Answer[None]:
        self.sent.append((limit, deadline))
        self.then()
        return Answer("quit", self.outcome, message=f"it said {self.outcome.value}.")

    async def read_v3(self) -> tuple[Answer[None], V3Node | None]:
        self.reads += 1
        assert self.reads < 20, "it is asked for ever"
        found = self.nodes.pop(0) if len(self.nodes) > 1 else self.nodes[0]
        if isinstance(found, Outcome):
            return Answer("server list", found, message=f"it said {found.value}."), None
        return Answer("server list", Outcome.OK), found

    async def call(self, *words: str) -> Answer[None]:
        self.sent.append(" ".join(words))
        return Answer(" ".join(words), self.outcome, message=f"it said {self.outcome.value}.")


def work(control: Control, **request: Any) -> Any:
    told: list[str] = []
    return SimpleNamespace(
        request=Request(StopDaemon.id, PIPE, **request), control=control, progress=told.append, told=told, sent=None
    )


class Guard:
    """Of a daemon whose word is enough for its process, or why it is not."""

    def __init__(self, why: str | None = None) -> None:
        self.why, self.speaker = why, Speaker(0, "root's")

    def __call__(self, process: PidFd) -> str | None:
        return self.why


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    """The daemon's, which is alone; nobody's turn is waited for, and nothing is cleaned."""
    made = Process()

    @contextlib.asynccontextmanager
    async def turn(pipe_dir: Path, speaker: Speaker) -> AsyncIterator[None]:
        yield

    monkeypatch.setattr(stopping, "open_pidfd", lambda key: made)
    monkeypatch.setattr(stopping, "not_its_daemon", lambda pipe_dir, pid: None)
    monkeypatch.setattr(stopping, "_ROUND", 0)
    monkeypatch.setattr("mpstui.operations.lock.turn", turn)
    monkeypatch.setattr("mpstui.daemons.stale.clean", lambda pipe_dir: ())
    return made


@pytest.mark.parametrize(
    ("outcome", "forced", "status", "signals"),
    [
        (Outcome.OK, False, ExitStatus.DONE, []),
        (Outcome.OK, True, ExitStatus.DONE, []),
        (Outcome.HELD, False, NO_ANSWER, []),
        (Outcome.BLOCKED, False, NO_ANSWER, []),
        (Outcome.HELD, True, ExitStatus.DONE, [signal.SIGTERM]),
        (Outcome.BLOCKED, True, ExitStatus.DONE, [signal.SIGTERM]),
        (Outcome.REFUSED, True, ExitStatus.REFUSED_BY_DAEMON, []),
        (Outcome.NOT_PERMITTED, True, ExitStatus.NOT_PERMITTED, []),
        (Outcome.ABSENT, True, ExitStatus.NO_DAEMON, []),
    ],
)
async def test_a_signal_follows_a_quit_only_by_force_and_where_nobody_answers(
    process: Process, outcome: Outcome, forced: bool, status: ExitStatus, signals: list[signal.Signals]
) -> None:
    def end() -> None:
        process.there = outcome is not Outcome.OK

    control = Control(outcome, then=end)
    result = await stopping._stop(work(control), Daemon(PIPE, key=KEY), 5, Guard() if forced else None)  # type: ignore[arg-type]
    assert (result.status, process.sent) == (status, signals)
    assert control.sent == [(5, 12.0 if forced else None)]


async def test_without_a_limit_a_quit_is_waited_for_as_long_as_clients_take(process: Process) -> None:
    process.there, control = False, Control()
    assert (await stopping._stop(work(control), Daemon(PIPE, key=KEY), None, None)).done
    assert control.sent == [(None, 30 * 86400.0)]


async def test_a_daemon_that_has_answered_and_stays_has_not_ended(process: Process) -> None:
    result = await stopping._stop(work(Control()), Daemon(PIPE, key=KEY), 5, None)
    assert (result.status, result.message) == (NO_ANSWER, "quit was answered, but process 480 is still there")


async def test_a_daemon_whose_answer_is_not_used_has_ended_where_its_process_has(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its user's script takes the directory away once it has ended, or starts the next one, before it is looked at
    again whose sockets are there. What is there now is not cleaned."""
    monkeypatch.setattr("mpstui.daemons.stale.clean", lambda pipe_dir: pytest.fail("it was cleaned"))
    here = await stopping._stop(work(Control(Outcome.UNREADABLE)), Daemon(PIPE, key=KEY), 5, None)
    assert (here.status is ExitStatus.DONE, "was not stopped" in here.message) == (False, True)
    process.there = False
    gone = await stopping._stop(work(Control(Outcome.UNREADABLE)), Daemon(PIPE, key=KEY), 5, None)
    assert (gone.status, gone.message) == (ExitStatus.DONE, f"the daemon in {PIPE} has ended")
    unknown = await stopping._stop(work(Control(Outcome.UNREADABLE)), Daemon(PIPE), 5, None)
    assert unknown.status is not ExitStatus.DONE


async def test_no_process_is_ended_that_is_not_known(process: Process) -> None:
    result = await stopping._stop(work(Control(Outcome.BLOCKED)), Daemon(PIPE), 5, Guard())  # type: ignore[arg-type]
    assert (result.status, process.sent) == (NO_ANSWER, [])


async def test_a_process_that_is_not_the_daemons_is_not_ended(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = work(Control(Outcome.BLOCKED))
    monkeypatch.setattr(stopping, "not_its_daemon", lambda pipe_dir, pid: f"process {pid} is another")
    result = await stopping._stop(blocked, Daemon(PIPE, key=KEY), 5, Guard())  # type: ignore[arg-type]
    assert (result.status, process.sent) == (REFUSED, [])
    assert "was not killed: process 480 is another" in result.message
    monkeypatch.setattr(stopping, "not_its_daemon", lambda pipe_dir, pid: None)
    result = await stopping._stop(blocked, Daemon(PIPE, key=KEY), 5, Guard("it is mallory's"))  # type: ignore[arg-type]
    assert (result.status, process.sent) == (REFUSED, [])
    assert "the process lives: it is mallory's" in result.message


def v3(*servers: str, clients: Sequence[str] = (), **fields: Any) -> V3Node:
    made = tuple(V3Client(700 + number, server) for number, server in enumerate(clients))
    return V3Node(tuple(map(V3Server, servers)), clients=made, **fields)


async def stop_v3(process: Process, control: Control, limit: int | None = None, **request: Any) -> Any:
    daemon = Daemon(PIPE, key=KEY, protocol="v3")
    return await stopping._stop_v3(work(control, **request), daemon, limit, Guard())  # type: ignore[arg-type]


async def test_of_protocol_3_servers_go_as_their_clients_do_and_then_the_process(process: Process) -> None:
    control = Control(nodes=[v3("a", "b", clients=["b"]), v3("b", clients=["b"]), v3("b"), v3()])
    assert (await stop_v3(process, control)).done
    assert control.sent == ["server delete a", "server delete b"]
    assert process.sent == [signal.SIGTERM]


async def test_of_protocol_3_servers_are_deleted_by_force_once_the_time_is_over(process: Process) -> None:
    control = Control(nodes=[v3("a", "b", clients=["b"]), v3()])
    assert (await stop_v3(process, control, 0)).done
    assert control.sent == ["server delete a --force", "server delete b --force"]
    control = Control(nodes=[v3("a", "b", clients=["b"]), v3("b"), v3()])
    assert (await stop_v3(process, control, 10**6)).done
    assert control.sent == ["server delete a", "server delete b"]


async def test_of_protocol_3_sigkill_is_for_who_forces(process: Process) -> None:
    process.ends_at = signal.SIGKILL
    result = await stop_v3(process, Control(nodes=[v3()]))
    assert (result.status, process.sent) == (NO_ANSWER, [signal.SIGTERM])
    assert result.message.startswith(f"its servers are gone, but not the daemon in {PIPE}: ")
    process.sent.clear()
    result = await stop_v3(process, Control(nodes=[v3()]), 1, force=True)
    assert result.message == f"the daemon in {PIPE} has ended"
    assert (result.status, process.sent) == (ExitStatus.DONE, [signal.SIGTERM, signal.SIGKILL])


@pytest.mark.parametrize(
    ("outcome", "force", "status", "signals"),
    [
        (Outcome.BLOCKED, False, NO_ANSWER, []),
        (Outcome.HELD, False, NO_ANSWER, []),
        (Outcome.BLOCKED, True, ExitStatus.DONE, [signal.SIGTERM]),
        (Outcome.HELD, True, ExitStatus.DONE, [signal.SIGTERM]),
        (Outcome.NOT_PERMITTED, True, ExitStatus.NOT_PERMITTED, []),
    ],
)
async def test_of_protocol_3_who_does_not_answer_is_ended_by_force_alone(
    process: Process, outcome: Outcome, force: bool, status: ExitStatus, signals: list[signal.Signals]
) -> None:
    control = Control(nodes=[outcome])
    result = await stop_v3(process, control, 1, force=force)
    assert (result.status, process.sent, control.sent) == (status, signals, [])


@pytest.mark.parametrize("unread", ["server", "client"])
async def test_of_protocol_3_nothing_is_deleted_of_which_it_is_not_known_who_uses_it(
    process: Process, unread: str
) -> None:
    control = Control(nodes=[v3("a", not_read={unread: f"no {unread} list"})])
    result = await stop_v3(process, control, 0, force=True)
    assert (result.status, control.sent, process.sent) == (NO_ANSWER, [], [])
    assert f"no {unread} list" in result.message
    control = Control(nodes=[v3(not_read={"namespace": "no namespace list"})])
    assert (await stop_v3(process, control)).done


async def test_of_protocol_3_a_server_that_stays_is_not_deleted_for_ever(process: Process) -> None:
    control = Control(Outcome.REFUSED, nodes=[v3("a")])
    result = await stop_v3(process, control)
    assert (result.status, len(control.sent), process.sent) == (ExitStatus.REFUSED_BY_DAEMON, 4, [])
    assert "server a stays: it said refused" in result.message


async def test_of_protocol_3_each_time_that_some_have_gone_is_told(process: Process) -> None:
    nodes = [v3("a", clients=["a"] * 2), v3("a", clients=["a"] * 2), v3("a", clients=["a"]), v3("a"), v3()]
    asked = work(Control(nodes=nodes))
    await stopping._stop_v3(asked, Daemon(PIPE, key=KEY, protocol="v3"), None, Guard())  # type: ignore[arg-type]
    assert asked.told == ["2 left", "1 left", "server delete a", "0 left", "SIGTERM 480"]


async def test_of_protocol_3_whose_process_is_not_seen_nothing_is_deleted(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = work(Control(nodes=[v3("a")]))
    for daemon, guard in ((Daemon(PIPE, protocol="v3"), Guard()), (Daemon(PIPE, key=KEY, protocol="v3"), Guard("no"))):
        result = await stopping._stop_v3(asked, daemon, 0, guard)  # type: ignore[arg-type]
        assert (result.status, asked.control.sent, process.sent) == (REFUSED, [], [])
    monkeypatch.setattr(stopping, "not_its_daemon", lambda pipe_dir, pid: "another listens")
    result = await stop_v3(process, asked.control, 0)
    assert (result.status, asked.control.sent, process.sent) == (REFUSED, [], [])


@pytest.mark.parametrize(
    ("timeout", "force", "protocol", "way", "limit", "guarded"),
    [
        (None, False, "legacy", "_stop", None, False),
        (60, False, "legacy", "_stop", 60, False),
        (None, True, "legacy", "_stop", 1, True),
        (60, True, "legacy", "_stop", 1, True),
        (None, False, "v3", "_stop_v3", None, True),
        (60, False, "v3", "_stop_v3", 60, True),
        (60, True, "v3", "_stop_v3", 1, True),
    ],
)
async def test_only_by_force_or_of_protocol_3_may_a_signal_follow(
    process: Process,
    monkeypatch: pytest.MonkeyPatch,
    timeout: int | None,
    force: bool,
    protocol: str,
    way: str,
    limit: int | None,
    guarded: bool,
) -> None:
    gone: list[object] = []
    for name in ("_stop", "_stop_v3"):

        async def went(asked: object, daemon: object, limit: object, guard: object, name: str = name) -> None:
            gone.extend((name, limit, guard is not None))

        monkeypatch.setattr(stopping, name, went)
    (daemon,) = node(protocol=protocol).daemons
    asked = work(Control())
    asked.request, asked.daemon = StopDaemon().request(daemon, timeout, force=force), daemon
    asked.find_speaker = lambda pipe_dir: Speaker(0, "root's")
    await StopDaemon()._end(asked)
    assert gone == [way, limit, guarded]


def test_of_a_client_elsewhere_the_end_is_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "process_key", lambda pid: ProcessKey(pid, 1) if pid in {5, 6} else None)
    for made, may_be in (
        (Client(ProcessKey(5, 1)), True),
        (Client(ProcessKey(5, 2)), False),
        (Client(ProcessKey(7, 1)), False),
        (Client(ProcessKey(7), local=False), True),
        (Client(ProcessKey(7), local=False, pid_here=6), True),
        (Client(ProcessKey(6), local=False, pid_here=7), False),
    ):
        assert stopping._may_be_there(made) is may_be


A, B, C = "GPU-a", "GPU-b", "GPU-c"
EXCLUSIVE = "EXCLUSIVE_PROCESS"


class Modes:
    """The devices' compute modes, of which ``fixed`` cannot be set; and what is kept of them for a later stop."""

    def __init__(self, *fixed: tuple[str, str]) -> None:
        self.fixed, self.set, self.forgotten = fixed, list[tuple[str, str]](), list[set[str]]()

    def change(self, uuid: str, mode: str) -> str | None:
        if (uuid, mode) in self.fixed:
            return "it cannot"
        self.set.append((uuid, mode))
        return None

    def keep(self, before: Mapping[str, str], forgotten: Collection[str] = ()) -> None:
        self.forgotten += [] if before else [set(forgotten)]


@pytest.mark.parametrize(
    ("ended", "fixed", "status", "changed", "forgotten"),
    [
        (ExitStatus.DONE, (), ExitStatus.DONE, [(A, "DEFAULT"), (C, "PROHIBITED")], [{A, B, C}]),
        (NO_ANSWER, (), NO_ANSWER, [], []),  # it runs on, and keeps what it has
        (ExitStatus.DONE, [(C, "PROHIBITED")], ExitStatus.REFUSED_BY_DAEMON, [(A, "DEFAULT")], [{A, B}]),
        (ExitStatus.DONE, [(A, "DEFAULT")], ExitStatus.REFUSED_BY_DAEMON, [], [{B}]),
    ],
)
async def test_a_stop_gives_devices_back_the_modes_that_they_had(
    monkeypatch: pytest.MonkeyPatch,
    ended: ExitStatus,
    fixed: Sequence[tuple[str, str]],
    status: ExitStatus,
    changed: list[tuple[str, str]],
    forgotten: list[set[str]],
) -> None:
    modes, stop = Modes(*fixed), StopDaemon()
    monkeypatch.setattr("mpstui.daemons.modes.keep_modes", modes.keep)

    async def end(self: object, asked: Any) -> Result:
        return Result(asked.request, ended, "so it ended")

    monkeypatch.setattr(StopDaemon, "_end", end)
    asked = work(Control())
    asked.set_compute_mode = modes.change
    (daemon,) = node().daemons
    asked.request = stop.request(daemon, exclusive={A: "DEFAULT", B: EXCLUSIVE, C: "PROHIBITED"})
    result = await stop.run(asked)
    assert (result.status, modes.set, modes.forgotten) == (status, changed, forgotten)


@pytest.mark.parametrize(
    ("runs", "modes", "ends"), [(True, {A: "DEFAULT"}, True), (True, {}, True), (False, {A: "DEFAULT"}, False)]
)
async def test_where_no_daemon_runs_the_modes_alone_are_given_back(
    monkeypatch: pytest.MonkeyPatch, runs: bool, modes: dict[str, str], ends: bool
) -> None:
    ended: list[object] = []

    async def end(self: object, asked: Any) -> Result:
        ended.append(asked)
        return Result(asked.request, ExitStatus.DONE, "it has ended")

    monkeypatch.setattr(StopDaemon, "_end", end)
    monkeypatch.setattr("mpstui.daemons.modes.keep_modes", Modes().keep)
    (daemon,) = node(condition=condition.ok() if runs else Condition("absent")).daemons
    stop, asked = StopDaemon(), work(Control())
    asked.request, asked.set_compute_mode = stop.request(daemon, exclusive=modes), Modes().change
    assert (await stop.run(asked)).done
    assert bool(ended) is ends
    shown = stop.preview(asked.request, node() if runs else Snapshot(0.0))
    assert (shown.error, ("compute mode", f"DEFAULT again, for all users: {A}") in shown.facts) == (None, bool(modes))


BEFORE = {A: "DEFAULT", B: EXCLUSIVE, C: "PROHIBITED"}
TO_BOTH = [(A, EXCLUSIVE), (C, EXCLUSIVE)]


@pytest.mark.parametrize(
    ("before", "taken", "fixed", "started", "status", "changed", "forgotten"),
    [
        (BEFORE, [None], (), True, ExitStatus.DONE, TO_BOTH, []),
        ({}, [None], (), True, ExitStatus.DONE, [], []),
        (BEFORE, ["a daemon"], (), None, NO_ANSWER, [], []),  # no mode is set for nothing
        (
            BEFORE,
            [None, None],
            (),
            False,
            ExitStatus.USAGE,
            [*TO_BOTH, (A, "DEFAULT"), (C, "PROHIBITED")],
            [{A, C}],
        ),
        (BEFORE, [None, "another"], (), False, ExitStatus.USAGE, TO_BOTH, []),  # whose stop gives them back
        (
            BEFORE,
            [None, None],
            [(C, EXCLUSIVE)],
            None,
            ExitStatus.REFUSED_BY_DAEMON,
            [(A, EXCLUSIVE), (A, "DEFAULT")],
            [{A, C}],
        ),
        (BEFORE, [None], [(A, EXCLUSIVE)], None, ExitStatus.REFUSED_BY_DAEMON, [], [{A, C}]),
        (
            BEFORE,
            [None, None],
            [(A, "DEFAULT")],  # it stays exclusive, and a stop is to give it back
            False,
            ExitStatus.USAGE,
            TO_BOTH,
            [set()],
        ),
    ],
)
async def test_a_start_that_fails_gives_back_what_was_set_for_it(
    monkeypatch: pytest.MonkeyPatch,
    before: dict[str, str],
    taken: list[str | None],
    fixed: Sequence[tuple[str, str]],
    started: bool | None,
    status: ExitStatus,
    changed: list[tuple[str, str]],
    forgotten: list[set[str]],
) -> None:
    modes, begun, spec = Modes(*fixed), list[DaemonSpec](), DaemonSpec(PIPE, PIPE)

    def there(asked: DaemonSpec) -> Started | None:
        return None if (who := taken.pop(0)) is None else Started(asked, NO_ANSWER, who)

    async def start(asked: DaemonSpec, binary: object, *, progress: object) -> Started:
        begun.append(asked)
        return Started(asked, ExitStatus.DONE if started else ExitStatus.USAGE, "it was tried")

    monkeypatch.setattr("mpstui.daemons.modes.keep_modes", modes.keep)
    monkeypatch.setattr("mpstui.daemons.start.taken", there)
    monkeypatch.setattr("mpstui.daemons.start.start", start)
    asked = work(Control())
    asked.control.channel.binary = ("control",)
    asked.request, asked.set_compute_mode = StartDaemon().request(spec, before), modes.change
    result = await StartDaemon().run(asked)
    assert (result.status, modes.set, modes.forgotten) == (status, changed, forgotten)
    assert begun == ([] if started is None else [spec])


@pytest.mark.parametrize(
    ("health", "why"),
    [
        ("stale", None),
        ("absent", "there are no files of a daemon"),
        ("ok", "a daemon runs there"),
        ("blocked", "a daemon runs there"),
        ("unknown", "a daemon runs there"),
    ],
)
def test_only_what_a_daemon_that_is_gone_has_left_is_removed(health: Health, why: str | None) -> None:
    found = node(condition=Condition(health))
    shown = RemoveStale().preview(Request(RemoveStale.id, PIPE), found)
    assert (shown.error_status, shown.error is None) == (ExitStatus.NO_DAEMON if why else ExitStatus.DONE, why is None)
    assert why is None or str(shown.error).endswith(why)
    assert RemoveStale().belongs(Request(RemoveStale.id, PIPE), found.daemons[0]) is (why is None)
    nowhere = RemoveStale().preview(Request(RemoveStale.id, PIPE), Snapshot(0.0))
    assert nowhere.error_status is ExitStatus.NO_DAEMON


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (("stale files were removed: control",), ExitStatus.DONE),
        (("x belongs to mallory", "stale files were removed: control"), ExitStatus.DONE),
        (("a daemon runs there",), ExitStatus.NO_DAEMON),
        ((), ExitStatus.NO_DAEMON),
    ],
)
async def test_what_was_removed_is_what_is_said(
    monkeypatch: pytest.MonkeyPatch, lines: tuple[str, ...], status: ExitStatus
) -> None:
    monkeypatch.setattr("mpstui.daemons.stale.clean", lambda pipe_dir: lines)
    result = await RemoveStale().run(work(Control()))
    assert (result.status, result.details) == (status, lines)
    assert result.message.startswith("stale files were" if result.done else "nothing was removed")
