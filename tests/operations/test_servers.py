"""A server is shut down: whom it hits is named before, who comes since stops it, and that it has gone is read back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mpstui.control.answer import Outcome
from mpstui.core import condition
from mpstui.core.model import PendingClient, ProcessKey, Snapshot
from mpstui.core.text import moment_text
from mpstui.core.trust import Speaker
from mpstui.load.footprint import takes
from mpstui.load.results import Experiment
from mpstui.load.types import LoadSpec
from mpstui.operations.audit import AuditLog
from mpstui.operations.load import Again, RestartLoad, RunExperiment, Start, StartLoad, beside, doubts
from mpstui.operations.registry import OPERATIONS, VERBS, operation, preview
from mpstui.operations.runner import OperationRunner
from mpstui.operations.types import Danger, ExitStatus, Request

from .fakes import GPU, OTHER_GPU, PIPE, FakeControl, FakeNode, as_root, client, node

KEY = ProcessKey(643, 1)


def shut_down(*clients: ProcessKey, force: bool = False, server: int = 634) -> Request:
    return Request("shutdown_server", PIPE, server_pid=server, clients=clients, force=force)


def of_server(snapshot: Snapshot, **changes: object) -> Snapshot:
    (daemon,) = snapshot.daemons
    return replace(snapshot, daemons=(replace(daemon, servers=(replace(daemon.servers[0], **changes),)),))


async def execute(folder: Path, fake: FakeNode, request: Request, **options: object):
    assert fake.snapshot
    return await OperationRunner(fake, AuditLog(folder / "audit.jsonl"), **options).execute(request, fake.snapshot)


def test_by_force_its_clients_are_hit_and_without_it_they_are_waited_for() -> None:
    snapshot = node(client(643), client(644))
    forced = preview(shut_down(force=True), snapshot)
    assert [hit.split()[0] for hit in forced.hits] == ["643", "644"]
    assert dict(forced.facts)["ends"] == "at once, and with it the GPU work of 2 clients"
    waits = preview(shut_down(), snapshot)
    assert waits.hits == ()
    assert [line.split()[0] for group in waits.others for line in group.clients] == ["643", "644"]
    assert dict(waits.facts)["ends"] == "when 2 clients have ended; none is touched"


def test_a_server_that_was_told_to_end_already_is_said_to_be() -> None:
    again = dict(preview(shut_down(), of_server(node(client(643)), ending=True, ending_since=0.0)).facts)
    assert again["already"] == f"told to end at {moment_text(0.0)}, by its log, and waits for 1 client"
    assert "already" not in dict(preview(shut_down(), node(client(643))).facts)


def test_a_server_whose_clients_are_not_known_is_not_said_to_have_none() -> None:
    """As where the logs that were read name no client, and it was not asked."""
    nobody = of_server(node(client(643)), clients=(), clients_known=False, ending=True)
    told = dict(preview(shut_down(), nobody).facts)
    assert told["ends"] == "when clients that are not known have ended; none is touched"
    assert told["already"] == "told to end, by its log, and waits for clients that are not known"
    forced = preview(shut_down(force=True), nobody)
    assert dict(forced.facts)["ends"] == "at once, and with it the GPU work of clients that are not known"
    some = dict(preview(shut_down(), of_server(node(client(643)), clients_known=False)).facts)
    assert some["ends"] == "when at least 1 client has ended; none is touched"


def test_what_has_come_since_of_a_server_that_was_told_to_end() -> None:
    asked, later = node(client(643)), ProcessKey(634, 2)
    told = shut_down()._replace(subject=asked.daemons[0].servers[0])
    by_now = operation("shutdown_server").by_now
    waits = by_now(told, of_server(asked, clients=(client(643), client(644)), clients_elsewhere=1))
    assert waits is not None
    assert (waits.done, waits.waits, waits.message) == (
        False,
        True,
        "server 634 was told to end, and waits for 3 clients",
    )
    for ended in (of_server(asked, key=later), node(servers=())):
        result = by_now(told, ended)
        assert result is not None
        assert (result.done, result.message) == (True, "server 634 has ended")
    unknown = (
        replace(asked, daemons=()),
        node(servers=(), condition=condition.silent("", (), False, condition.Moment())),
    )
    assert [by_now(told, snapshot) for snapshot in unknown] == [None, None]
    assert by_now(shut_down(), node(servers=())) is None, "which server was meant is not known"


def test_clients_without_a_number_here_are_counted_too() -> None:
    forced = preview(shut_down(force=True), of_server(node(), clients=(), clients_elsewhere=2))
    assert "2 clients in PID namespaces" in forced.hits[0]
    assert "2 clients" in dict(forced.facts)["ends"]


def test_who_gets_a_server_next_is_told() -> None:
    waiting = node(pending=(PendingClient(ProcessKey(700, 1), uid=2001),))
    assert dict(preview(shut_down(), waiting).facts)["then"] == "1 client that waits may get a server"


@pytest.mark.parametrize(
    ("request_", "status", "said"),
    [
        (shut_down(server=999), ExitStatus.REFUSED_BY_DAEMON, "no server 999 there; running: 634"),
        (Request("shutdown_server", PIPE), ExitStatus.USAGE, "choose a server first"),
    ],
)
def test_a_server_that_is_not_there_is_refused(request_: Request, status: ExitStatus, said: str) -> None:
    shown = preview(request_, node())
    assert (shown.error_status, shown.error) == (status, said)


def test_one_that_is_starting_goes_by_force_alone() -> None:
    starting = of_server(node(), status="INITIALIZING", clients=())
    assert preview(shut_down(), starting).error_status is ExitStatus.REFUSED_BY_DAEMON
    assert preview(shut_down(force=True), starting).error is None


def test_a_server_that_has_the_number_by_now_is_another_one() -> None:
    server = node().daemons[0].servers[0]
    named = shut_down(KEY, force=True)._replace(subject=replace(server, key=ProcessKey(634, 7)))
    shown = preview(named, node())
    assert (shown.error_status, shown.error) == (ExitStatus.REFUSED_BY_SAFETY_RULE, "server 634 is another server now")
    assert preview(named._replace(subject=server), node()).error is None


async def test_it_is_read_back_that_it_has_gone(tmp_path: Path) -> None:
    fake = FakeNode(node(), FakeControl(listed=()))
    result = await execute(tmp_path, fake, shut_down())
    assert (result.status, result.message) == (ExitStatus.DONE, "server 634 has ended")
    assert fake.control.sent == ["get_client_list 634", "shutdown_server 634", "get_server_list"]
    before, after = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert (before["server"], before["status"]) == (634, None)
    assert (after["command"], after["status"], after["sent"]) == ("shutdown_server 634", 0, True)


async def test_one_that_waits_for_its_clients_is_not_said_to_have_ended(tmp_path: Path) -> None:
    fake = FakeNode(node())
    result = await execute(tmp_path, fake, shut_down(KEY))
    assert result.status is ExitStatus.REFUSED_BY_DAEMON
    assert result.message == "server 634 was told to end, and waits for 1 client"
    assert result.waits, "it has not failed"


async def test_one_that_stays_all_the_same_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpstui.operations.servers.GONE_WITHIN", 0.0)
    monkeypatch.setattr("mpstui.operations.servers.patience", lambda seconds: seconds)
    result = await execute(tmp_path, FakeNode(node(), FakeControl(deaf=True)), shut_down(KEY, force=True))
    assert result.status is ExitStatus.REFUSED_BY_DAEMON
    assert "still there" in result.message


@pytest.mark.parametrize("named", [(), (ProcessKey(700, 1),)])
async def test_a_client_that_nobody_has_named_stops_it(tmp_path: Path, named: tuple[ProcessKey, ...]) -> None:
    """By the snapshot, or by the daemon's own list right before the command."""
    fake = FakeNode(node())
    result = await execute(tmp_path, fake, shut_down(*named, force=True))
    assert result.status is ExitStatus.REFUSED_BY_SAFETY_RULE
    assert "clients have come since: 643" in result.message
    assert not any("shutdown" in command for command in fake.control.sent)


async def test_a_client_that_only_the_daemon_knows_of_stops_it(tmp_path: Path) -> None:
    fake = FakeNode(node(), FakeControl(listed=(643, 4711)))
    result = await execute(tmp_path, fake, shut_down(KEY, force=True))
    assert (result.status, result.message) == (ExitStatus.REFUSED_BY_SAFETY_RULE, "clients have come since: 4711")


@pytest.mark.parametrize(("named", "status"), [(0, ExitStatus.REFUSED_BY_SAFETY_RULE), (1, ExitStatus.DONE)])
async def test_a_client_of_another_pid_namespace_that_came_since_stops_it(
    tmp_path: Path, named: int, status: ExitStatus
) -> None:
    """The daemon's list has a 0 for it: by the list, and by the snapshot."""
    server = replace(node().daemons[0].servers[0], clients_elsewhere=named)
    request = shut_down(KEY, force=True)._replace(subject=server)
    fake = FakeNode(of_server(node(), clients_elsewhere=named), FakeControl(listed=(643, 0)))
    result = await execute(tmp_path, fake, request)
    assert result.status is status
    if not named:
        since = "clients have come since: 1 client in PID namespaces that are not seen from here"
        assert result.message == since
        assert preview(request, of_server(node(), clients_elsewhere=1)).error == since
        assert not any("shutdown" in command for command in fake.control.sent)


@pytest.mark.parametrize(
    ("outcome", "status"),
    [(Outcome.NOT_PERMITTED, ExitStatus.NOT_PERMITTED), (Outcome.BLOCKED, ExitStatus.NO_ANSWER)],
)
async def test_a_command_that_is_not_carried_out_has_its_status(
    tmp_path: Path, outcome: Outcome, status: ExitStatus
) -> None:
    fake = FakeNode(node(), FakeControl(answers={"shutdown_server": outcome}))
    assert (await execute(tmp_path, fake, shut_down(KEY, force=True))).status is status


async def test_it_is_not_done_when_it_cannot_be_written_down(tmp_path: Path) -> None:
    fake = FakeNode(node())
    result = await OperationRunner(fake, AuditLog(Path("/proc/nowhere/audit.jsonl"))).execute(
        shut_down(KEY, force=True), node()
    )
    assert result.status is ExitStatus.REFUSED_BY_SAFETY_RULE
    assert fake.control.sent == []


@as_root
async def test_a_server_that_was_started_is_named(tmp_path: Path) -> None:
    fake = FakeNode(node(), FakeControl(servers=(634, 777)))
    result = await execute(tmp_path, fake, Request("start_server", PIPE, "2001"))
    assert result.status is ExitStatus.DONE
    assert result.details == ("server 777 has started; it takes clients once it is ready",)


def test_every_operation_says_what_it_is_and_how_it_is_called() -> None:
    for each in OPERATIONS:
        assert each.id
        assert each.title
        assert each.help
        assert operation(each.id) is each
    verbs = [(verb.words, verb.flag) for verb, each in VERBS if verb.help]
    assert [each.id for each in OPERATIONS if (each.verb is None) != bool(each.no_verb)] == [], "a verb, or why not"
    assert {each.id for each in OPERATIONS if each.verb is None} == {"stop_load", "restart_load"}
    assert len(verbs) == len([each for each in OPERATIONS if each.verb is not None])
    assert len(set(verbs)) == len(verbs)
    ends = {each.id for each in OPERATIONS if each.danger is Danger.HARM}
    assert {"terminate_client", "terminate_and_kill", "end_lost_clients", "unblock", "shutdown_server"} <= ends


@pytest.mark.parametrize(
    ("request_", "control", "typed"),
    [
        (Request("set_active_thread_percentage", PIPE, "25"), "set_default_active_thread_percentage 25",
         "mpstui set active-thread-percentage 25 --default --pipe-dir /tmp/mps_0"),
        (Request("set_pinned_mem_limit", PIPE, "2G", 634, "0"), "set_device_pinned_mem_limit 634 0 2G",
         "mpstui set pinned-mem-limit 2G --server 634 --device 0 --pipe-dir /tmp/mps_0"),
        (Request("set_client_priority", PIPE, "1"), "set_default_client_priority 1",
         "mpstui set client-priority 1 --pipe-dir /tmp/mps_0"),
        (Request("start_server", PIPE, "root"), "start_server -uid 0",
         "mpstui start-server root --pipe-dir /tmp/mps_0"),
        (shut_down(force=True), "shutdown_server 634 -f", "mpstui shutdown-server 634 -f --pipe-dir /tmp/mps_0"),
        (Request("terminate_and_kill", PIPE, clients=(KEY,)), "",  # which one it is depends on the daemon's protocol
         "mpstui terminate 643 --kill --pipe-dir /tmp/mps_0"),
        (Request("end_lost_clients", PIPE, clients=(KEY,)), "", "mpstui end-lost 643 --pipe-dir /tmp/mps_0"),
        (Request("v3_namespace_set", PIPE, "small", settings=(("server", "a"), ("client-priority", "1"))),
         "namespace set small --server=a --client-priority=1",
         "mpstui namespace set small --server a --client-priority 1 --pipe-dir /tmp/mps_0"),
    ],
)  # fmt: skip
def test_in_the_words_of_the_daemon_and_of_the_command_line(request_: Request, control: str, typed: str) -> None:
    each = operation(request_.action)
    assert (each.command(request_), each.command_line(request_)) == (control, typed)


@pytest.mark.parametrize(
    ("request_", "value"),
    [
        (Request("set_active_thread_percentage", PIPE, "25"), "100"),
        (Request("set_active_thread_percentage", PIPE, "25", 634), "100"),
        (Request("set_pinned_mem_limit", PIPE, "25G", 634, "0"), "none"),
        (Request("set_pinned_mem_limit", PIPE, "25G", device="1"), "8G"),
        (Request("set_pinned_mem_limit", PIPE, "25G", device=OTHER_GPU), "8G"),
        (Request("set_client_priority", PIPE, "1"), "0"),
    ],
)
def test_a_limit_is_taken_back_by_what_it_was(request_: Request, value: str) -> None:
    undo = operation(request_.action).undo(request_, node(default_pinned_mem_limits={"1": 8 << 30}).daemons[0])
    assert undo == request_._replace(value=value)


def test_what_it_was_is_not_guessed() -> None:
    unread = node(default_active_thread_percentage=None, default_client_priority=None).daemons[0]
    for name in ("set_active_thread_percentage", "set_client_priority"):
        assert operation(name).undo(Request(name, PIPE, "1"), unread) is None
    memory = operation("set_pinned_mem_limit")
    for device in ("0", GPU, "7"):
        assert memory.undo(Request(memory.id, PIPE, "25G", device=device), unread) is None
    assert memory.undo(Request(memory.id, PIPE, "25G", device="7"), node().daemons[0]) is None
    assert operation("shutdown_server").undo(shut_down(), unread) is None


@pytest.mark.parametrize(
    ("spec", "refused"),
    [
        (LoadSpec("illegal", pipe_dir=PIPE), "every client on the device"),
        (LoadSpec("illegal", pipe_dir=PIPE, private=True), None),
        (LoadSpec("illegal", pipe_dir=PIPE, endanger=True), None),
        (LoadSpec("illegal", mps=False), None),
        (LoadSpec("memory", mps=False), "Without MPS no limit"),
        (LoadSpec("memory", pipe_dir=PIPE), "Without a memory limit"),
        (LoadSpec("memory", pipe_dir=PIPE, memory_limit="1G"), None),
        (LoadSpec("fma", pipe_dir=PIPE), None),
    ],
)
async def test_a_load_that_hurts_others_is_refused_by_the_operation(
    tmp_path: Path, spec: LoadSpec, refused: str | None
) -> None:
    """Whoever asks for it: command, screen or a program."""
    begun: list[LoadSpec] = []

    async def begin(why_not: object) -> tuple[int, ...]:
        begun.append(spec)
        return (1,)

    result = await execute(tmp_path, FakeNode(node()), StartLoad().request(Start(spec, begin)))
    assert result.done is (refused is None)
    assert begun == [] if refused else [spec]
    if refused is not None:
        assert result.status is ExitStatus.REFUSED_BY_SAFETY_RULE
        assert refused in result.message


async def test_read_only_restarts_no_client_and_runs_no_experiment(tmp_path: Path) -> None:
    async def never() -> None:
        raise AssertionError("begun")

    for request in (
        RestartLoad().request(PIPE, Again(1, never)),
        RunExperiment().request(Experiment("nbody")),
    ):
        audit = AuditLog(tmp_path / f"{request.action}.jsonl")
        result = await OperationRunner(FakeNode(node()), audit, read_only=True).execute(request, node())
        assert (result.status, result.message) == (ExitStatus.REFUSED_BY_SAFETY_RULE, "mpstui runs read-only")
        assert request.action in audit.path.read_text()


async def test_a_client_of_the_load_is_restarted_by_what_came_with_the_request(tmp_path: Path) -> None:
    begun: list[int] = []

    async def begin() -> None:
        begun.append(3)

    result = await execute(tmp_path, FakeNode(node()), RestartLoad().request(PIPE, Again(3, begin)))
    assert (result.done, result.message, begun) == (True, "client 3 was started again", [3])


async def test_an_experiment_that_makes_faults_is_never_in_a_shared_daemon(tmp_path: Path) -> None:
    request = RunExperiment().request(Experiment("stop", shared=PIPE))
    result = await execute(tmp_path, FakeNode(node()), request)
    assert result.status is ExitStatus.REFUSED_BY_SAFETY_RULE
    assert "`stop` makes faults" in result.message


@as_root
@pytest.mark.parametrize(("uid", "refused"), [("2001", True), ("1001", False), ("3001", False)])
def test_a_second_server_of_one_user_alone_is_refused(uid: str, refused: bool) -> None:
    server = replace(node().daemons[0].servers[0], uid=2001)
    shown = preview(Request("start_server", PIPE, uid), node(servers=(server,)))
    assert (shown.error is not None) is refused
    assert not refused or "running already" in str(shown.error)


@as_root
@pytest.mark.parametrize(("owner", "refused"), [("2001", None), ("1999", "belongs to"), ("3000", "belongs to")])
def test_the_owner_that_is_typed_has_to_be_the_processes_own(owner: str, refused: str | None) -> None:
    """Where a daemon does not speak for its client: whoever is above or below in number is not the one."""
    his = client(643, uid=2001, user="2001")
    request = Request("terminate_and_kill", PIPE, clients=(his.key,), owner=owner)
    shown = preview(request, node(his, uid=1500, user="1500", speaker=Speaker(1500, "a daemon of 1500")))
    assert shown.type_in == ("643 2001" if refused is None else "")
    assert (shown.error is None) if refused is None else refused in str(shown.error)


def test_where_no_server_runs_there_is_none_to_shut_down() -> None:
    shutdown = operation("shutdown_server")
    assert shutdown.unavailable(node(), PIPE, ()) is None
    assert shutdown.unavailable(node(servers=()), PIPE, ()) == "no server is running"
    assert shutdown.unavailable(Snapshot(0.0), PIPE, ()) not in {None, "no server is running"}


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Outcome.REFUSED, "no server 634 there any more"),
        (Outcome.BLOCKED, "the clients of server 634 are not known: it said blocked"),
    ],
)
async def test_a_server_that_has_gone_is_not_one_that_nothing_is_known_of(
    tmp_path: Path, outcome: Outcome, said: str
) -> None:
    fake = FakeNode(node(), FakeControl(answers={"get_client_list": outcome}))
    result = await execute(tmp_path, fake, shut_down(KEY, force=True))
    assert (result.done, result.message) == (False, said)
    assert not any("shutdown" in command for command in fake.control.sent)


async def test_a_client_with_the_first_pid_of_all_counts(tmp_path: Path) -> None:
    """In a container that is the program itself."""
    result = await execute(tmp_path, FakeNode(node(), FakeControl(listed=(643, 1))), shut_down(KEY, force=True))
    assert result.message == "clients have come since: 1"


@pytest.mark.parametrize(
    ("speaker", "program", "simulated", "said"),
    [
        (Speaker(0, "root's daemon"), True, False, ()),
        (Speaker(2001, "one's own"), True, False, ()),
        (Speaker(2002, "a daemon of bob"), False, False, ("This is a daemon of bob: its user can read",)),
        (Speaker(None, "no sockets"), False, False, ("This is a daemon whose user is not known: its user",)),
        (Speaker(0, "root's daemon", (1, 2)), False, False, ()),
        (Speaker(0, "root's daemon", (1, 2)), True, False, (f"Other users can change {PIPE}, so",)),
        (
            Speaker(2002, "a daemon of bob", (1, 2)),
            True,
            False,
            ("This is a daemon of bob", f"Other users can change {PIPE}, so"),
        ),
        (Speaker(2002, "a daemon of bob", (1, 2)), True, True, ()),
    ],
)
def test_a_load_wants_a_yes_where_the_daemon_is_anothers_or_may_be_by_then(speaker, program, simulated, said) -> None:
    (daemon,) = node(speaker=speaker, simulated=simulated).daemons
    found = doubts(daemon, 2001, program=program)
    assert len(found) == len(said)
    assert all(each.startswith(begun) for each, begun in zip(found, said, strict=True))


def test_a_load_beside_others_says_whose_they_are_or_that_nobody_tells() -> None:
    taken, others = takes(["fma"], 132), (client(643), client(644, user=None, uid=2001, command=None))
    cases = ((others, True), ((), True), ((), False))
    asked = [beside(2, who, taken, node().devices, told=told) for who, told in cases]
    assert [first for first, _, _ in asked] == [
        "2 clients of the load would run beside 2 clients of UID 2001, alice on this daemon.",
        "2 clients of the load would run on this daemon.",
        "2 clients of the load would run beside clients that the daemon does not list on this daemon.",
    ]
    assert asked[0][2] == ("643     alice  python job643.py", "644     UID 2001  —")
