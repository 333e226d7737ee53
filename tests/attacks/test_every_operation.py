"""What each operation, and each card of a daemon that does not answer, may do on a stranger's word: two tables that a
new one has to be put into."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from mpstui import operations
from mpstui.cli.change import _client_of
from mpstui.core import condition
from mpstui.core.condition import Moment
from mpstui.core.model import Cause, Client, Condition, ProcessKey, ServerFault, SessionHolder, Snapshot
from mpstui.core.trust import Speaker
from mpstui.observe.procfs import PidFd, process_key
from mpstui.observe.reducer import _as_claimed
from mpstui.operations import lock
from mpstui.operations.audit import AuditLog
from mpstui.operations.check import Refused
from mpstui.operations.registry import OPERATIONS, operation
from mpstui.operations.rescue import targets
from mpstui.operations.runner import OperationRunner
from mpstui.operations.types import ExitStatus, Request
from mpstui.ui.load.setup import Setup, problem
from mpstui.ui.trouble.no_answer import way_out
from tests.operations.fakes import PIPE, FakeControl, FakeNode, client, node

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
    with pytest.raises(Refused, match="control session"):
        _client_of(VICTIM.pid, request, both, ())
    with pytest.raises(Refused, match="a daemon of mallory; to use it anyway, name it"):
        _client_of(VICTIM.pid, request, claimed, ())
    assert _client_of(VICTIM.pid, request, claimed, (PIPE,)).pipe_dir == PIPE
    his = replace(claimed, daemons=(replace(mallorys, speaker=Speaker(BYSTANDER, "a daemon of bystander")),))
    assert _client_of(VICTIM.pid, request, his, ()).pipe_dir == PIPE, "the daemon's user and the client's are one"


HOLDER = SessionHolder(VICTIM.pid, "bystander", start_ticks=1, uid=BYSTANDER)
CARDS: dict[Cause, Condition] = {
    "none": condition.ok(),
    "unasked": condition.unasked("", Moment()),
    "busy": condition.busy("busy", Moment()),
    "not_asked": condition.not_asked("no binary", Moment()),
    "not_spoken": condition.not_spoken("why"),
    "held": condition.held(HOLDER, "", None, Moment()),
    "terminated_twice": condition.terminated_twice(VICTIM, None, Moment()),
    "quitting": condition.quitting((VICTIM,), None, Moment()),
    "silent": condition.silent("", (VICTIM.pid,), False, Moment()),
    "gone": condition.gone("", "start one"),
    "absent": condition.absent("", "start one"),
}


def test_every_card_has_its_place_here() -> None:
    assert CARDS.keys() == set(get_args(Cause))


@pytest.mark.parametrize("cause", CARDS)
def test_no_card_of_a_strangers_asks_for_an_end(cause: Cause) -> None:
    of = stranger(victim(state="TERMINATED", terminate_requested=True), condition=CARDS[cause])
    daemon = _as_claimed(of.daemons[0])
    snapshot = replace(of, daemons=(daemon,))
    assert targets("unblock", daemon) == targets("end_lost_clients", daemon) == ()
    words = " ".join(text for _, text in way_out(snapshot, daemon, {}, read_only=False))
    said = f"{daemon.remedy} {words}"
    assert not re.search(rf"(?i)\bends? (process|client) {VICTIM.pid}", said), said
    if cause in {"held", "silent", "terminated_twice"}:
        own = _as_claimed(replace(of.daemons[0], speaker=Speaker(0, "root's daemon")))
        assert f"process {VICTIM.pid}" in (own.remedy or ""), "root's daemon is believed"


@pytest.mark.parametrize("mode", [{"static_partitioning": True}, {"protocol": "v3"}])
@pytest.mark.parametrize("action", ["terminate_client", "terminate_and_kill"])
async def test_a_confirmed_end_on_a_strangers_daemon_of_another_mode_signals_nobody(
    action: str, mode: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its user's daemon is told to end its own client, whoever's process it names; the process is let be."""
    sent: list[int] = []
    monkeypatch.setattr(lock, "place", lambda pipe_dir, speaker: (tmp_path / "turn.lock", os.geteuid()))
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
