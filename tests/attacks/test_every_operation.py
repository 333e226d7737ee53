"""What each operation, and each card of a daemon that does not answer, may do on a stranger's word: two tables that a
new one has to be put into."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from contract.commands import Commands

from mpstui import operations
from mpstui.cli.change import _client_of
from mpstui.control import channel
from mpstui.control.answer import Outcome
from mpstui.control.channel import RawReply
from mpstui.core import condition
from mpstui.core.condition import Moment
from mpstui.core.model import Cause, Client, Condition, ProcessKey, ServerFault, SessionHolder, Snapshot
from mpstui.core.requests import Unable
from mpstui.core.trust import Speaker
from mpstui.load.supervisor import Supervisor
from mpstui.load.types import LoadSpec
from mpstui.observe.reducer import _as_claimed
from mpstui.operations import lock
from mpstui.operations.audit import AuditLog
from mpstui.operations.load import NotStarted, OperatedLoad
from mpstui.operations.operation import Operation, Work
from mpstui.operations.registry import OPERATIONS, operation
from mpstui.operations.rescue import targets
from mpstui.operations.runner import OperationRunner
from mpstui.operations.types import ExitStatus, Preview, Request, Result
from mpstui.system.procfs import PidFd, process_key
from mpstui.ui.load.setup import Setup, problem
from mpstui.ui.trouble.no_answer import recovery
from tests.operations.fakes import PIPE, FakeControl, FakeNode, as_root, client, node

MALLORY = Speaker(64001, "a daemon of mallory")
BYSTANDER = 64002
VICTIM = ProcessKey(643, 1)

SIGNALS = "signals processes"
COMMANDS = "sends commands to that daemon alone"
PROGRAMS = "runs a program, which that daemon's server would have"
FILES = "makes or removes files"
OF_OTHERS = "is made of others"

DOES = {
    "terminate_client": COMMANDS,
    "terminate_and_kill": SIGNALS,
    "end_lost_clients": SIGNALS,
    "unblock": SIGNALS,
    "set_active_thread_percentage": COMMANDS,
    "set_pinned_mem_limit": COMMANDS,
    "set_client_priority": COMMANDS,
    "start_server": COMMANDS,
    "shutdown_server": COMMANDS,
    "start_daemon": FILES,
    "stop_daemon": SIGNALS,
    "remove_stale_files": FILES,
    "apply_profile": OF_OTHERS,
    "go_back": OF_OTHERS,
    "add_partition": COMMANDS,
    "remove_partition": COMMANDS,
    **dict.fromkeys((f"v3_server_{verb}" for verb in ("create", "set", "delete")), COMMANDS),
    **dict.fromkeys((f"v3_namespace_{verb}" for verb in ("create", "set", "delete")), COMMANDS),
    **dict.fromkeys((f"v3_partition_{verb}" for verb in ("create", "delete")), COMMANDS),
    **dict.fromkeys((f"v3_feature_{verb}" for verb in ("enable", "disable")), COMMANDS),
    "start_load": PROGRAMS,
    "stop_load": PROGRAMS,
    "restart_load": PROGRAMS,
    "run_experiment": PROGRAMS,
}
SENDERS = {
    "signals.py": "the signals themselves, each asked for by a Guard",
    "clients.py": "terminate_and_kill",
    "rescue.py": "end_lost_clients, unblock",
    "daemons.py": "stop_daemon, by force",
}


def stranger(*clients: Client, **daemon: Any) -> Snapshot:
    return node(*clients, uid=MALLORY.uid, user="mallory", speaker=MALLORY, **daemon)


def victim(**fields: Any) -> Client:
    return replace(client(VICTIM.pid), key=VICTIM, uid=BYSTANDER, user="bystander", **fields)


def test_every_operation_has_its_place_here() -> None:
    assert {each.id for each in OPERATIONS} == DOES.keys(), "say what it does on a stranger's word"
    assert all(each.sends or each.in_turn for each in OPERATIONS if DOES.get(each.id) == COMMANDS)


def test_nobody_else_sends_signals() -> None:
    folder = Path(operations.__file__).parent
    sends = re.compile(r"end_process|os\.kill|killpg|send_signal|pidfd_send|\.send\(signal|\.terminate\(\)|\.kill\(\)")
    found = {file.name for file in folder.glob("*.py") if sends.search(file.read_text())}
    assert found == SENDERS.keys(), "whose processes may it end?"


@as_root
@pytest.mark.parametrize("action", [name for name, does in DOES.items() if does == SIGNALS])
async def test_no_process_of_others_is_ended(action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[ProcessKey] = []
    for module in ("clients", "rescue", "daemons"):
        monkeypatch.setattr(f"mpstui.operations.{module}.open_pidfd", opened.append)
    fault = ServerFault(1.0, (VICTIM.pid,), (VICTIM,), refused=2, confirmed=True)
    snapshot = stranger(victim())
    daemon = snapshot.daemons[0]
    server = replace(daemon.servers[0], status="FAULT", fault=fault)
    blocked = condition.terminated_twice(VICTIM, None, Moment()) if action == "unblock" else daemon.condition
    snapshot = replace(snapshot, daemons=(replace(daemon, servers=(server,), condition=blocked),))
    request = Request(action, PIPE, clients=(VICTIM,))
    if action == "stop_daemon":
        request = operation(action).request(replace(daemon, key=ProcessKey(481, 1)), force=True)  # type: ignore[attr-defined]
    runner = OperationRunner(FakeNode(snapshot, FakeControl()), AuditLog(tmp_path / "audit"), speaker=lambda _: MALLORY)
    result = await runner.execute(request, snapshot)
    assert result.status is ExitStatus.REFUSED_BY_SAFETY_RULE
    assert not opened


def test_no_program_is_run_from_the_screen() -> None:
    (daemon,) = stranger().daemons
    assert "daemon of mallory" in (problem(Setup(where="on"), daemon, node().devices) or "")
    assert "whose user is not known" in (problem(Setup(where="on"), replace(daemon, speaker=Speaker()), ()) or "")
    assert problem(Setup(where="on"), node().daemons[0], node().devices) is None


def test_a_pid_that_a_stranger_claims_is_not_his_to_answer_for() -> None:
    """Root's daemon is held, so that what it has is not known; mallory's says that the PID is a client of his."""
    claimed, held = stranger(victim()), node()
    (mallorys,), (roots,) = claimed.daemons, held.daemons
    roots = replace(roots, pipe_dir=Path("/tmp/root"), servers=(), condition=condition.held(None, "", None, Moment()))
    both = replace(claimed, daemons=(mallorys, roots))
    request = Request("terminate_client", Path())
    with pytest.raises(Unable, match="control session"):
        _client_of(VICTIM.pid, request, both, ())
    with pytest.raises(Unable, match="a daemon of mallory; to use it anyway, name it"):
        _client_of(VICTIM.pid, request, claimed, ())
    assert _client_of(VICTIM.pid, request, claimed, (PIPE,)).pipe_dir == PIPE
    his = replace(claimed, daemons=(replace(mallorys, speaker=Speaker(BYSTANDER, "a daemon of bystander")),))
    assert _client_of(VICTIM.pid, request, his, ()).pipe_dir == PIPE, "the daemon's user and the client's are one"


HOLDER = SessionHolder(VICTIM.pid, "bystander", start_ticks=1, uid=BYSTANDER)
CARDS: dict[Cause, Condition] = {
    "none": condition.ok(),
    "unasked": condition.unasked("", Moment()),
    "starting": condition.starting(),
    "busy": condition.busy("busy", Moment()),
    "not_asked": condition.not_asked("no binary", Moment()),
    "not_found": condition.not_found("", "start one", Moment()),
    "not_spoken": condition.not_spoken("why"),
    "held": condition.held(HOLDER, "", None, Moment()),
    "terminated_twice": condition.terminated_twice(VICTIM, None, Moment()),
    "quitting": condition.quitting((VICTIM,), None, Moment()),
    "silent": condition.silent("", (VICTIM.pid,), False, Moment()),
    "gone": condition.gone("", "start one"),
    "absent": condition.absent("", "start one"),
    "closed": condition.closed("why", "run mpstui as root"),
}


def test_every_card_has_its_place_here() -> None:
    assert CARDS.keys() == set(get_args(Cause))


@pytest.mark.parametrize("cause", CARDS)
def test_no_card_of_a_strangers_asks_for_an_end(cause: Cause) -> None:
    of = stranger(victim(state="TERMINATED", terminate_requested=True), condition=CARDS[cause])
    daemon = _as_claimed(of.daemons[0], 0)
    snapshot = replace(of, daemons=(daemon,))
    assert targets("unblock", daemon) == targets("end_lost_clients", daemon) == ()
    words = " ".join(text for _, text in recovery(snapshot, daemon, {}, read_only=False))
    said = f"{daemon.remedy} {words}"
    assert not re.search(rf"(?i)\bends? (process|client) {VICTIM.pid}", said), said
    if cause in {"held", "silent", "terminated_twice"}:
        own = _as_claimed(replace(of.daemons[0], speaker=Speaker(0, "root's daemon")), 0)
        assert f"process {VICTIM.pid}" in (own.remedy or ""), "root's daemon is believed"


OPEN = (1, 2, 3, 3)
"""Device, inode and times of a directory that is open to all; behind them its sockets'."""
EXCHANGES = {
    "nothing": (MALLORY, MALLORY),
    "his for root's": (MALLORY, Speaker(0, "root's daemon")),
    "his for another's": (MALLORY, Speaker(BYSTANDER, "a daemon of bystander")),
    "his for nobody's": (MALLORY, Speaker(None, "it is a link of somebody else's")),
    "root's for his": (Speaker(0, "root's daemon"), MALLORY),
    "nobody's for root's": (Speaker(None, "it is a link of somebody else's", (*OPEN, 4, 4)), Speaker(0, "root's")),
    "one socket of root's for another": (Speaker(0, "root's", (*OPEN, 4, 4)), Speaker(0, "root's", (*OPEN, 5, 5))),
    "one unknown for another": (
        Speaker(None, "it is a link", (*OPEN, 4, 4)),
        Speaker(None, "it is a link", (*OPEN, 5, 5)),
    ),
    "what could not be looked at for a link": (Speaker(None, "it is closed"), Speaker(None, "a link", (*OPEN, 5, 5))),
}


@pytest.mark.parametrize("when", ["before it is carried out", "while it is"])
@pytest.mark.parametrize("action", [each.id for each in OPERATIONS])
async def test_a_change_goes_to_whose_daemon_it_was_asked_for(
    action: str, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the operation does: what it sends, signals and starts is for the daemon that somebody has said yes to,
    and not for what is behind its directory's name by then."""
    sent: list[str] = []

    async def exchange(argv: Any, stdin: bytes, environment: Any, deadline: float, command: str, *_: Any) -> RawReply:
        sent.append(command)
        return RawReply(command, stdout=b"100.0\n100.0\n", exit_status=0)

    monkeypatch.setattr(channel, "exchange", exchange)
    monkeypatch.setattr(lock, "places", lambda *_: [lock.TurnPlace(tmp_path / "turn.lock", os.geteuid(), beside=True)])
    (tmp_path / "control").touch()
    of = OPERATIONS[[each.id for each in OPERATIONS].index(action)]
    monkeypatch.setattr(type(of), "preview", lambda self, request, snapshot: Preview("as it was asked"))
    for name, (asked, other) in EXCHANGES.items():
        now, sent[:], seen = [other if when == "before it is carried out" else asked], [], []
        one = channel.ControlChannel(tmp_path, ("control",), speaker=lambda _, now=now: now[0])
        control = Commands(one)

        async def run(self: Operation, work: Work, now: list[Speaker] = now, other: Speaker = other) -> Result:
            now[0] = other
            answer = await work.control.set_default_active_thread_percentage(10)
            calls = [await work.control.call("server", "delete", "a"), await work.control.quit(1)]
            calls.append(await work.control.get_client_list(1))  # on which a change may stand
            told = [answer.outcome, *(each.outcome for each in calls)]
            allowed = [work.find_speaker(tmp_path).uid is not None, work.another() is None]
            seen.extend([*told, *allowed])  # noqa: B023 - of this exchange
            return Result(work.request, ExitStatus.DONE, "done")

        monkeypatch.setattr(type(of), "run", run)
        (shown,) = stranger().daemons
        snapshot = replace(stranger(), daemons=(replace(shown, pipe_dir=tmp_path, speaker=asked),))
        newest = replace(snapshot, daemons=(replace(shown, pipe_dir=tmp_path, speaker=other),))
        runner = OperationRunner(
            FakeNode(newest, control), AuditLog(tmp_path / "audit"), speaker=lambda _, now=now: now[0]
        )  # type: ignore[arg-type]
        result = await runner.execute(Request(action, tmp_path), snapshot)
        if asked == other:
            assert len(sent) == 4, "it goes out"
            continue
        assert sent == [], name
        if when == "while it is":
            assert seen == [Outcome.NOT_PERMITTED] * 4 + [False] * 2, name
        else:
            assert result.status in {ExitStatus.NOT_PERMITTED, ExitStatus.REFUSED_BY_SAFETY_RULE}, (name, result)
            assert "Nothing was sent" in result.message
            assert seen == [], name
    assert channel.MEANT.get() is None


@as_root
async def test_each_step_of_a_plan_goes_to_whose_daemon_the_plan_was_shown_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step is carried out on what is there by then, which may be another's, and was asked for with the others."""
    monkeypatch.setattr(lock, "places", lambda *_: [lock.TurnPlace(tmp_path / "turn.lock", os.geteuid(), beside=True)])
    (tmp_path / "control").touch()
    now, control = [MALLORY], FakeControl()
    (shown,) = stranger().daemons
    asked = replace(stranger(), daemons=(replace(shown, pipe_dir=tmp_path),))
    fake = FakeNode(asked, control)
    runner = OperationRunner(fake, AuditLog(tmp_path / "audit"), speaker=lambda _: now[0])  # type: ignore[arg-type]
    came: list[Result] = []

    async def run(self: Operation, work: Work) -> Result:
        for value in ("10", "20"):
            came.append(await work.runner.execute(Request("set_active_thread_percentage", tmp_path, value), newest))
            now[0] = Speaker(0, "root's daemon")
            fake.snapshot = newest
        return came[-1]

    newest = replace(asked, daemons=(replace(asked.daemons[0], speaker=Speaker(0, "root's daemon")),))
    monkeypatch.setattr(type(operation("apply_profile")), "preview", lambda *_: Preview("as it was asked"))
    monkeypatch.setattr(type(operation("apply_profile")), "run", run)
    result = await runner.execute(Request("apply_profile", tmp_path), asked)
    assert [each.status for each in came] == [ExitStatus.DONE, ExitStatus.REFUSED_BY_SAFETY_RULE]
    assert "now: root's daemon" in result.message
    assert [command for command in control.sent if "20" in command] == []


def test_a_change_goes_out_where_it_is_held_against_what_was_asked() -> None:
    """Nothing else runs the control binary, and what changes a node has its channel from the runner's node."""
    folder = Path(operations.__file__).parents[1]
    sources = {file.relative_to(folder).as_posix(): file.read_text() for file in folder.rglob("*.py")}
    runs = {name for name, text in sources.items() if re.search(r"(?<!def )(?<!\w)exchange\(", text)}
    assert runs == {"control/channel.py", "control/binary.py"}, "the second asks the binary for its help and version"
    makes = {name for name, text in sources.items() if "ControlChannel(" in text}
    own = {"daemons/start.py", "load/private_daemon.py"}
    assert makes - own == {"observe/watcher.py"}, "with whose the directory is"


@as_root
@pytest.mark.parametrize("mode", [{"static_partitioning": True}, {"protocol": "v3"}])
@pytest.mark.parametrize("action", ["terminate_client", "terminate_and_kill"])
async def test_a_confirmed_end_on_a_strangers_daemon_of_another_mode_signals_nobody(
    action: str, mode: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its user's daemon is told to end its own client, whoever's process it names; the process is let be."""
    sent: list[int] = []
    monkeypatch.setattr(lock, "places", lambda *_: [lock.TurnPlace(tmp_path / "turn.lock", os.geteuid(), beside=True)])
    monkeypatch.setattr(PidFd, "send", lambda self, number: sent.append(number))
    here = process_key(os.getpid())
    assert here is not None
    snapshot = stranger(replace(victim(), key=here), **mode)
    control = FakeControl(listed=(here.pid,))
    runner = OperationRunner(FakeNode(snapshot, control), AuditLog(tmp_path / "audit"), speaker=lambda _: MALLORY)
    result = await runner.execute(Request(action, PIPE, clients=(here,)), snapshot)
    told = [command for command in control.sent if command.startswith("terminate_client")]
    assert sent == []
    if action == "terminate_and_kill":
        assert (result.status, told) == (ExitStatus.REFUSED_BY_SAFETY_RULE, [])
        assert "name its PID and its owner" in result.message
    else:
        assert (result.status, len(told)) == (ExitStatus.DONE, 1), result.message


@pytest.mark.parametrize("looks", [0, 1, 2], ids=["at once", "before its process", "before its work"])
async def test_a_load_goes_to_whose_daemon_it_was_asked_for(looks: int, tmp_path: Path) -> None:
    """It is exchanged after so many looks: a program is begun, and goes on to its work, as long as it is the one."""
    (tmp_path / "control").touch()
    said: list[Speaker] = []

    def speaker(_: Path) -> Speaker:
        said.append(MALLORY if len(said) < looks else Speaker(0, "root's daemon"))
        return said[-1]

    (shown,) = stranger().daemons
    snapshot = replace(stranger(), daemons=(replace(shown, pipe_dir=tmp_path),))
    runner = OperationRunner(FakeNode(snapshot), AuditLog(tmp_path / "audit"), speaker=speaker)  # type: ignore[arg-type]
    load = OperatedLoad(Supervisor(), runner, tmp_path, snapshot)
    spec = LoadSpec("command", command=("touch", str(tmp_path / "ran")), pipe_dir=tmp_path)
    if looks == 0:
        with pytest.raises(NotStarted, match="now: root's daemon"):
            await load.start(spec)
        assert load.workers == ()
    else:
        await load.start(spec)
        await load.wait()
        (report,) = load.workers
        assert report.error is not None
        assert (report.state, report.error.kind) == ("failed", "refused")
        assert "(before: a daemon of mallory; now: root's daemon)" in report.error.text
        assert (report.key is not None) is (looks == 2)
        await load.stop()
    assert not (tmp_path / "ran").exists()
