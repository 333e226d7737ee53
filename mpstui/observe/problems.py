"""How each daemon is, who is hit by what went wrong, and what an admin should do about it; pure."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from mpstui.control.answer import Outcome
from mpstui.control.grammar import ELSEWHERE
from mpstui.core import condition
from mpstui.core.activity import FULLY_WATCHED
from mpstui.core.blast import bridges
from mpstui.core.cells import KEEP_OLD, KEEPS_OLD
from mpstui.core.faults import caveat_text, not_said
from mpstui.core.limits import in_doubt, inherited_memory, may_be_taken, own_percentage, own_priority
from mpstui.core.model import (
    MEMORY_VARIABLE,
    NOT_SPOKEN,
    PERCENTAGE_VARIABLE,
    PRIORITY_VARIABLE,
    Client,
    Condition,
    Daemon,
    Device,
    LostClient,
    OutsideClient,
    OutsideReason,
    PendingClient,
    Problem,
    ProcessKey,
    Server,
    ServerFault,
    SessionHolder,
    Severity,
    StartFailures,
)
from mpstui.core.problems import KINDS, MULTI_USER, problem
from mpstui.core.text import UNKNOWN, client_pids, format_size, listed, moment_text, owner, path_text, printable
from mpstui.core.trust import Speaker, as_yet, cut_off_by, end_not_found, end_usurped, to_its_owner, whose_word
from mpstui.core.v3 import DEFAULT
from mpstui.observe.discovery import Place, start_checked
from mpstui.observe.sources import NvmlSample
from mpstui.observe.state import DaemonState, ServerRecord
from mpstui.system.procfs import ProcessFacts, login_name

# Devices that more than one running daemon serves; pure.


def shared_devices(daemons: Sequence[Daemon], euid: int = 0) -> Iterator[Problem]:
    """A problem for each device with clients of two daemons, or of one and within reach of another (fact 20). Which
    devices another user's daemon serves is that user's word."""
    serving: dict[str, list[Daemon]] = {}
    for daemon in daemons:
        if daemon.runs:
            for uuid in set(daemon.ordinals.values()):
                serving.setdefault(uuid, []).append(daemon)
    for uuid, found in sorted(serving.items()):
        if len(found) > 1 and any(uuid in client.device_uuids for daemon in found for client in daemon.clients()):
            others = {id(daemon): uid for daemon in found if (uid := whose_word(daemon, euid)) is not None}
            whose = {id(daemon): f" of {daemon.whose(euid)}" for daemon in found if id(daemon) in others}
            places = ", ".join(f"{path_text(daemon.pipe_dir)}{whose.get(id(daemon), '')}" for daemon in found)
            text = f"{len(found)} daemons serve it ({places}); their clients do not run at the same time."
            told = problem("warning", "shared_device", uuid, text)
            claimed = len(found) - len(others) < 2
            yield replace(told, severity="info", uid=next(iter(others.values()))) if claimed else told


# Who is hit by what went wrong: faults, lost servers, waiting users and processes outside MPS, as values; pure.


Facts = Mapping[int, ProcessFacts]
_SERVER_PROGRAM = "nvidia-cuda-mps-server"
_DEFAULT_PIPE_DIR = "/tmp/nvidia-mps"  # noqa: S108 - MPS's own default


def server_fault(server: ServerRecord, facts: Facts) -> ServerFault | None:
    """The fault that keeps the server from taking new clients; None without one."""
    fault = server.fault
    if fault is None:
        return None
    left = sorted(fault.affected & server.clients.keys())
    asked = server.told_at is not None and (fault.time is None or server.told_at >= fault.time)
    return ServerFault(
        since=fault.time,
        named=fault.named,
        suspects=fault.suspects,
        affected=tuple(_key(pid, facts) for pid in left),
        ended=tuple(sorted(fault.hit - set(left))),
        devices=fault.devices,
        refused=fault.refused,
        confirmed=asked and server.told == "FAULT",
        ended_nearby=fault.ended_nearby,
        cut=fault.cut,
    )


def blocker_key(state: DaemonState, facts: Facts) -> ProcessKey | None:
    """The client whose second terminate_client blocks the daemon (fact 16)."""
    pid = state.blocked_by
    return _key(pid, facts) if pid is not None and state.client(pid) is not None else None


def pending_clients(state: DaemonState, facts: Facts) -> tuple[PendingClient, ...]:
    """Who waits for a server, and for whose clients to end (fact 21), in the order in which they came. In multi-user
    mode one server serves all: nobody waits for it to end."""
    found = []
    elsewhere = ((None, number, event) for number, event in enumerate(state.pending_elsewhere, 1))
    for pid, number, event in (*((pid, 0, event) for pid, event in state.pending.items()), *elsewhere):
        ahead = next((s for s in state.servers.values() if s.uid != event.uid), None)
        never = state.failures is not None and ahead is not None and ahead.status == "INITIALIZING"
        if never or state.multiuser:
            ahead = None
        known = None if pid is None else facts.get(pid)
        found.append(
            PendingClient(
                key=None if pid is None else _key(pid, facts),
                uid=event.uid,
                user=known.user if known else None,
                command=known.command if known else None,
                since=event.time,
                server_pid=ahead.pid if ahead else None,
                waits_for=tuple(sorted(ahead.clients)) if ahead else (),
                elsewhere=number,
                local=known is not None,
            )
        )
    return tuple(found)


def start_failures(state: DaemonState) -> StartFailures | None:
    """The servers that did not start, since the last one that did."""
    found = state.failures
    if found is None:
        return None
    return StartFailures(
        found.count, found.since, found.last, found.server_pid, found.uid, found.reason, found.reason_pid
    )


def lost_clients(state: DaemonState, facts: Facts, there: Collection[int]) -> tuple[LostClient, ...]:
    """Processes that live on although their server has ended. ``facts`` are those of the processes that are proved to
    be the ones that are meant; ``there`` are the PIDs that somebody has here: those that nobody has are left out."""
    found = []
    for pid, (server, since) in state.lost.items():
        known = facts.get(pid)
        if known is not None:
            found.append(LostClient(known.key, server, known.uid, known.user, known.command, since))
        elif pid in there:
            found.append(LostClient(ProcessKey(pid), server, since=since, local=False))
    return tuple(found)


def ended_unseen(state: DaemonState, asked: Collection[int], facts: Facts, visible: bool) -> list[int]:
    """Who of ``asked``, by an old line of the log, waits for a server or has lost it, and ended before /proc was looked
    at: the PID is nobody's, or somebody else's. ``visible``: /proc shows the daemon, so it would show them."""
    waiting = [pid for pid, event in state.pending.items() if pid in facts and _another(facts[pid].uid, event.uid)]
    gone = (pid for pid in (*state.pending, *state.lost) if pid in asked and pid not in facts)
    return [*waiting, *gone] if visible else waiting


def _another(uid: int | None, other: int | None) -> bool:
    return uid is not None and other is not None and uid != other


def outside_pids(sample: NvmlSample | None, states: Iterable[DaemonState]) -> set[int]:
    """Processes that NVML lists as computing and not as clients of MPS, and that none of these daemons names."""
    if sample is None:
        return set()
    known: set[int] = set()
    for state in states:
        known |= state.pending.keys() | state.lost.keys() | state.servers.keys()
        for server in state.servers.values():
            known |= server.clients.keys()
    members = {pid for listing in sample.mps_clients.values() for pid in listing}
    # A device whose MPS clients are not known says nothing.
    listed = {pid for uuid, listing in sample.processes.items() if uuid in sample.mps_clients for pid in listing}
    return listed - members - known - {0}


def outside_clients(
    sample: NvmlSample | None, pids: Iterable[int], daemons: Iterable[Daemon], facts: Facts
) -> tuple[OutsideClient, ...]:
    """Those of ``pids`` that compute on a device of a running daemon without MPS, each with the likely reason."""
    found: list[OutsideClient] = []
    running = [daemon for daemon in daemons if daemon.runs and daemon.ordinals]
    if sample is None or not running:
        return ()
    for pid in sorted(pids):
        known = facts.get(pid)
        if known is None or os.path.basename((known.command or "").split(" ", 1)[0]) == _SERVER_PROGRAM:
            continue
        memory = {uuid: listing[pid] for uuid, listing in sample.processes.items() if pid in listing}
        beside = [daemon for daemon in running if memory.keys() & set(daemon.ordinals.values())]
        if not beside:
            continue
        mine = [daemon for daemon in beside if daemon.counts_for(known.uid)]
        reason, detail = _reason(known, mine) if mine else _of_nobodys(known, beside[0])
        sizes = [size for size in memory.values() if size is not None]
        found.append(
            OutsideClient(
                key=known.key,
                device_uuids=tuple(sorted(memory)),
                gpu_memory=sum(sizes) if sizes else None,
                uid=known.uid,
                user=known.user,
                command=known.command,
                start_time=known.start_time,
                reason=reason,
                detail=detail,
            )
        )
    return tuple(found)


def _reason(facts: ProcessFacts, beside: list[Daemon]) -> tuple[OutsideReason, str]:
    """Why it is no client of any of these daemons, most likely: what is certain comes first."""
    started = [daemon.start_time for daemon in beside if daemon.start_time is not None]
    if facts.start_time is not None and len(started) == len(beside) and facts.start_time < min(started):
        return "before_daemon", "it was started before the daemon"
    environment = facts.environment
    if environment is None:
        return "unknown", "its environment cannot be read, so the reason is not known"
    asked = environment.get("CUDA_MPS_PIPE_DIRECTORY")
    if (asked or _DEFAULT_PIPE_DIR).rstrip("/") not in {os.fspath(daemon.pipe_dir) for daemon in beside}:
        if asked:
            return "pipe_dir", f"its CUDA_MPS_PIPE_DIRECTORY is {printable(asked, 120)}"
        return "pipe_dir", f"it has no CUDA_MPS_PIPE_DIRECTORY, so it looked for a daemon in {_DEFAULT_PIPE_DIR}"
    if visible := environment.get("CUDA_VISIBLE_DEVICES"):
        text = f"its CUDA_VISIBLE_DEVICES is {printable(visible, 120)}, which MPS reads in the daemon's own numbering"
        return "visible_devices", text
    return "unknown", "the reason is not known; perhaps no daemon ran, or answered, when it started"


def _of_nobodys(facts: ProcessFacts, daemon: Daemon) -> tuple[OutsideReason, str]:
    """Beside daemons of other users alone, whose word it is which devices they serve."""
    return "uid", f"it belongs to {owner(facts.user, facts.uid)}, and the daemon serves {daemon.whose(facts.uid)}"


def _key(pid: int, facts: Facts) -> ProcessKey:
    known = facts.get(pid)
    return known.key if known else ProcessKey(pid)


# How a daemon is: told from where it was found, from its last answer and from its log. Every state has a remedy.


_LATELY = 30.0
"""Seconds for which an answer stands while other sessions keep the daemon busy; its logs tell of changes meanwhile."""


class Probe(NamedTuple):
    """How the last command ended."""

    time: float
    outcome: Outcome
    message: str = ""
    holder: SessionHolder | None = None
    asked: float | None = None
    """When it was sent; an answer is word of the daemon from then on."""


def condition_of(
    place: Place | None,
    probe: Probe | None,
    state: DaemonState,
    facts: Facts,
    known_at: float | None,
    euid: int,
    *,
    ended: float | None = None,
    past: bool = False,
) -> Condition:
    """``known_at``: when the daemon last answered; the detail then says from what time the rest of the screen is.
    ``euid``: who looks.
    ``ended``: when the last daemon there ended, where none has started since.
    ``past``: nobody can be asked, so that the logs' word has to do; it leads to nothing."""
    found = _condition_of(place, probe, state, facts, known_at, euid, ended, past)
    uid = whose_word(place, euid) if place is not None and place.state == "running" and not past else None
    if uid is None or found.cause not in _ON_ITS_OWN_WORD:
        return found
    if place is not None and place.usurped(euid):
        return replace(found, remedy=end_usurped(place))
    return replace(found, remedy=to_its_owner(owner(login_name(uid), uid)))


_ON_ITS_OWN_WORD: Final = frozenset({"silent", "terminated_twice", "quitting", "gone", "not_found"})
"""Causes whose remedies come from what the daemon, or whoever calls itself one, says and writes: on a stranger's word
nobody is ended, and no daemon started."""


def _condition_of(
    place: Place | None,
    probe: Probe | None,
    state: DaemonState,
    facts: Facts,
    known_at: float | None,
    euid: int,
    ended: float | None,
    past: bool,
) -> Condition:
    start = start_checked(state.pipe_dir)
    moment = condition.Moment(probe.time if probe is not None else None, known_at)
    if place is not None and place.state == "closed":
        return condition.closed(place.detail, place.remedy)
    if place is None or place.state in {"absent", "unusable"}:
        return condition.absent(place.detail if place else "", place.remedy if place and place.remedy else start, ended)
    if place.state == "stale":
        return condition.gone(place.detail, place.remedy or start, ended, moment)
    blocker = blocker_key(state, facts)
    if blocker is not None and (past or is_silent(probe, state.blocked_known)):
        return condition.terminated_twice(blocker, state.blocked_since, moment)
    if state.quitting_since is not None and state.servers:
        answered = (
            probe is not None and probe.outcome is Outcome.OK and (probe.asked or probe.time) > state.quitting_since
        )
        if not answered:
            left = [_key(pid, facts) for pid in clients_left(state)]
            return condition.quitting(left, state.quitting_since, moment)
    if place.protocol == "unknown":
        return condition.not_spoken(NOT_SPOKEN)
    if state.not_understood is not None:
        return condition.not_spoken(state.not_understood)
    if probe is not None:
        return _answer_condition(place, probe, state, start, euid, moment)
    if not past:
        return condition.unasked(place.detail, moment)
    known = state.daemon_pid is not None or state.servers or state.heard
    return condition.ok(place.detail) if known else condition.untold(place.detail)


def _answer_condition(
    place: Place, probe: Probe, state: DaemonState, start: str, euid: int, moment: condition.Moment
) -> Condition:
    """By how the last command ended."""
    outcome, message = probe.outcome, probe.message
    if place.starting and outcome in {Outcome.ABSENT, Outcome.BLOCKED}:
        return condition.starting()
    if outcome is Outcome.HELD:
        opened = state.session_since  # one that was opened after the last command was not in its way
        return condition.held(probe.holder, message, None if (opened or 0.0) > probe.time else opened, moment)
    if outcome is Outcome.BUSY and (moment.answered is None or probe.time - moment.answered >= _LATELY):
        return condition.busy(message, moment)
    if outcome is Outcome.BLOCKED:
        clients = (client for server in state.servers.values() for client in server.clients.values())
        asked = [client.pid for client in clients if client.asked or client.ended]
        return condition.silent(message, asked, any(server.ending for server in state.servers.values()), moment)
    if outcome is Outcome.ABSENT and place.usurped(euid):
        return condition.unreached(cut_off_by(place), end_usurped(place), moment)
    if outcome is Outcome.ABSENT:  # it is seen to run
        return condition.not_found(place.detail, place.remedy or end_not_found(place), moment)
    if outcome in {Outcome.NO_BINARY, Outcome.UNREADABLE}:
        return condition.not_asked(message, moment, unreadable=outcome is Outcome.UNREADABLE)
    return condition.ok(place.detail)


def is_silent(probe: Probe | None, since: float | None) -> bool:
    """Whether the daemon itself left a command unanswered until after ``since``: what its log says is a claim."""
    if probe is None or probe.outcome is not Outcome.BLOCKED:
        return False
    return since is None or probe.time >= since


def clients_left(state: DaemonState) -> list[int]:
    """PIDs of all its servers' clients."""
    return sorted(pid for server in state.servers.values() for pid in server.clients)


# What an admin should know now, and what to do about it; pure.


_NEARLY = 0.9
_SEVERITY: dict[str, Severity] = {"held": "error", "blocked": "error", "stale": "warning", "absent": "warning"}


def find_problems(
    daemons: Sequence[Daemon],
    devices: Sequence[Device],
    nvml_detail: str | None,
    outside: Sequence[OutsideClient] = (),
    of_daemon: Callable[[Daemon], Iterable[Problem]] | None = None,
    more: Iterable[Problem] = (),
    euid: int = 0,
) -> tuple[Problem, ...]:
    """All problems, the worst first and those of other users' daemons last. ``of_daemon`` stands in for
    :func:`problems_of`, for whoever keeps its answers. ``euid``: who looks."""
    found: list[Problem] = [*more]
    of_others: list[Problem] = []
    for daemon in daemons:
        found += _of_usurper(daemon, euid)
        (found if daemon.counts_for(euid) else of_others).extend((of_daemon or partial(problems_of, euid=euid))(daemon))
    found += _of_devices(devices, [daemon for daemon in daemons if not daemon.counts_for(euid)], euid)
    found += _of_outside(outside)
    found += shared_devices(daemons, euid)
    if nvml_detail:
        found.append(problem("warning", "nvml", "NVML", nvml_detail[0].upper() + nvml_detail[1:]))
    order = {"error": 0, "warning": 1, "info": 2}
    return tuple(sorted([*found, *of_others], key=lambda problem: order[problem.severity]))


def idle_clients(daemons: Sequence[Daemon], after: float, now: float) -> Iterable[Problem]:
    """Clients that hold memory and have launched no kernel for ``after`` seconds, as far as they were watched."""
    every = ((daemon, client) for daemon in daemons for client in daemon.clients())
    for client in (client for daemon, client in every if daemon.counts_for(client.uid)):
        held, activity = sum(client.gpu_memory.values()), client.activity
        if activity is None or activity.idle_since is None or not held or now - activity.idle_since < after:
            continue
        whose = owner(client.user, client.uid)
        who = f"Client {client.pid}" + (f" ({whose})" if whose != UNKNOWN else "")
        text = f"{who} holds {format_size(held)} and has launched no kernel since {moment_text(activity.idle_since)}"
        text += "." if activity.seen_launching else ", when it was first watched."
        if activity.watched is not None and activity.watched < FULLY_WATCHED:
            text += f" It was watched for {activity.watched:.0%} of that time; launches between are not seen."
        yield problem("info", "idle", f"client {client.pid}", text)


def led_elsewhere(daemons: Sequence[Daemon], led: Mapping[Path, str | None]) -> Iterable[Problem]:
    """Names that came to mean another directory while one looked."""
    for path, how in ((daemon.pipe_dir, led.get(daemon.pipe_dir)) for daemon in daemons):
        if how is not None:
            text = f"{how}: mpstui shows what is in the new directory."
            yield problem("warning", "daemon_led_elsewhere", path_text(path), text)


def problems_of(daemon: Daemon, euid: int = 0) -> Iterable[Problem]:
    """What an admin should know of a daemon, its servers and its clients; ``euid``: who looks. Where it lies, nothing
    is advised on its word about its clients: nobody is to end a process, or to ask for it, because of what a liar
    says. Of another user's daemon whatever is told is that user's: it names whose it is, and is nothing that is wrong
    with the node."""
    found = list(_all_of(daemon))
    lies = any(each.code == "daemon_lies" for each in found)
    anothers = not daemon.counts_for(euid)
    if not lies and not anothers:
        return found
    of_log = [each for each in found if daemon.usurped(euid) and (each.code, each.severity) in _OF_ITS_LOG]
    if anothers:
        found = [each if each in of_log else _claimed(each, daemon, euid) for each in found]
    remedy = OF_A_LIAR if lies else left_to(daemon, euid)
    claims = [each.code in _ON_ITS_WORD and each not in of_log for each in found]
    return [replace(each, remedy=remedy) if claim else each for each, claim in zip(found, claims, strict=True)]


def _claimed(found: Problem, daemon: Daemon, euid: int) -> Problem:
    """The same as another user's daemon has it: anybody starts one and has it say what he likes."""
    text = found.text
    if daemon.runs and found.code != "daemon_lies":  # that one names the owner, as the place without a daemon does
        says = " says" if found.code in _SAID and not daemon.usurped(euid) else ""
        text = f"{claim_of(daemon, euid)}{says}: {text}"
    return replace(found, severity="info", text=text, uid=whose_word(daemon, euid))


def claim_of(daemon: Daemon, euid: int) -> str:
    """Whose claim it is what is said of a daemon that is another user's, or in whose place he may answer."""
    whose = daemon.whose(euid)
    return f"{whose} may have made this up" if daemon.usurped(euid) else f"{whose}'s daemon"


def left_to(daemon: Daemon, euid: int) -> str:
    """What there is to do about such a claim, a sentence."""
    return end_usurped(daemon) if daemon.usurped(euid) else to_its_owner(daemon.whose(euid))


def as_written(found: Problem, teller: Speaker) -> Problem:
    """The same where another user has written down all of it, what NVML and /proc are to have said too."""
    if found.uid is not None or teller.by is None:
        return found
    whose = owner(login_name(teller.by), teller.by)
    return replace(found, severity="info", text=f"{whose} has written: {found.text}", uid=teller.by)


OF_A_LIAR: Final = "Do not trust what it says."
"""Of a user's daemon that has another user's processes as its clients."""
_SAID: Final = frozenset({"fault", "lost", "terminated", "pending", "outdated", "bridge", "server_start"})
"""Problems drawn from what a daemon says of its clients and servers, whose remedies are about them."""
_ON_ITS_WORD: Final = _SAID | {"daemon_blocked", "daemon_quitting"}
_OF_ITS_LOG: Final = frozenset(
    {("server_start", "error"), ("fault", "warning"), ("pending", "info"),
     ("daemon_environment", "warning"), ("daemon_environment", "info"), ("polling", "info")}
)  # fmt: skip
"""Problems that nobody has answered: a log is believed where root or the daemon's own user has written it, whoever has
put a socket in its place."""


def _all_of(daemon: Daemon) -> Iterable[Problem]:
    subject = path_text(daemon.pipe_dir)
    if daemon.condition.cause == "quitting":  # as somebody wants it to
        yield problem("warning", "daemon_quitting", subject, daemon.health_detail or "", daemon.remedy or "")
    elif daemon.explained:
        yield problem(
            _SEVERITY[daemon.health],
            f"daemon_{daemon.health}",
            subject,
            daemon.health_detail or daemon.health,
            daemon.remedy or "",
        )
    elif daemon.unspoken is not None:
        text = daemon.unspoken[0].upper() + daemon.unspoken[1:] + "."
        yield problem("warning", "daemon_read_only", subject, text, daemon.remedy or "")
    elif daemon.unread and not daemon.cut_off:  # which is a problem of its own
        yield problem("warning", "daemon_unread", subject, daemon.health_detail or "", daemon.remedy or "")
    if daemon.watch == "polling":
        yield problem("info", "polling", subject, daemon.watch_detail or "", daemon.watch_remedy or None)
    yield from _of_namespaces(daemon)
    yield from _of_environment(daemon)
    yield from _of_start(daemon)
    yield from _of_pending(daemon)
    if daemon.lost:
        who = client_pids([client.pid for client in daemon.lost]).capitalize()
        text = f"{who} lost the server; each CUDA call of theirs gives error 806."
        yield problem("warning", "lost", subject, text)
    yield from _of_lies(daemon)
    for server in daemon.servers:
        yield from _of_server(server, daemon)


def _of_namespaces(daemon: Daemon) -> Iterable[Problem]:
    """Namespaces whose clients may have more than their server's limits say: they have nothing of those."""
    node = daemon.v3
    for space in node.namespaces if node is not None else ():
        default = node.namespace(space.server, DEFAULT) if node is not None else None
        if space.name != DEFAULT and space.unlimited and default is not None and not default.unlimited:
            text = (
                f"Namespace {space.name} of server {space.server} has no limits. The server's limits apply to "
                "its default namespace only, so a client of this namespace can use the whole GPU."
            )
            remedy = (
                f"Set its own: mpstui namespace set {space.name} --server {space.server} --active-thread-percentage N."
            )
            yield problem("warning", "namespace_unlimited", f"{space.server}/{space.name}", text, remedy)
    for line in node.not_understood if node is not None else ():
        text = f"mpstui does not understand a line of the daemon's answer, and leaves it out: {line}"
        yield problem("warning", "not_understood", path_text(daemon.pipe_dir), text)


def _of_lies(daemon: Daemon) -> Iterable[Problem]:
    """What cannot be: a user's daemon has that user's processes as clients alone."""
    if false := daemon.lies():
        what, first = false[0]
        whose = f"process {first.pid} of {owner(first.user, first.uid)}"
        more = f" and {len(false) - 1} more of others" if len(false) > 1 else ""
        text = f"{daemon.speaker.why[0].upper()}{daemon.speaker.why[1:]} names {whose}{more} as its {what}."
        text += " It can have a server and clients of its own user only, so this is not true."
        yield problem("warning", "daemon_lies", path_text(daemon.pipe_dir), text)


def _of_usurper(daemon: Daemon, euid: int) -> Iterable[Problem]:
    """Seen here, and nobody's word: whoever may change the directory takes the daemon's place, or shuts it off."""
    if daemon.condition.cut_off:
        seen = daemon.usurpation("here")
        whose = daemon.who_answers(euid)
        means = (
            "it is not certain that a program can become its client"
            if whose is None
            else f"{whose} may have made up any answer"
        )
        means = (as_yet(daemon) if daemon.speaker.reached else None) or means
        text = f"{seen[0].upper()}{seen[1:]}: {means}."
        yield problem("error", "daemon_usurped", path_text(daemon.pipe_dir), text, end_usurped(daemon))


def _of_environment(daemon: Daemon) -> Iterable[Problem]:
    """Variables of the daemon that do not do what they were meant to."""
    wrong = []
    environment = daemon.environment or {}
    text = None if may_be_taken(daemon, PERCENTAGE_VARIABLE) else environment.get(PERCENTAGE_VARIABLE)
    if text and own_percentage(text) is None:
        wrong.append(f"{PERCENTAGE_VARIABLE}={printable(text, 60)}: a number above 0 and at most 100 is needed")
    text = None if may_be_taken(daemon, PRIORITY_VARIABLE) else environment.get(PRIORITY_VARIABLE)
    if text and own_priority(text) is None:
        wrong.append(f"{PRIORITY_VARIABLE}={printable(text, 60)}: 0 or 1 is needed")
    text, inherited = environment.get(MEMORY_VARIABLE), inherited_memory(environment, daemon.ordinals)
    if text and inherited is not None and not daemon.inherited_mem_limits:
        reason = "an entry has no size, or names no device of the daemon: then no entry counts"
        wrong.append(f"{MEMORY_VARIABLE}={printable(text, 60)}: {reason}")
    elif text and daemon.inherited_mem_limits and not in_doubt(daemon.inherited_mem_limits, daemon.driver):
        wrong.append(f"{MEMORY_VARIABLE}={printable(text, 60)}: with driver 580 it limits no client")
    elif text and daemon.inherited_mem_limits:
        named = (
            f"The daemon's environment sets a memory limit, {MEMORY_VARIABLE}={printable(text, 60)}. No command can "
        )
        named += "read it back, and with this driver it is not known whether clients get it."
        yield problem("info", "daemon_environment", path_text(daemon.pipe_dir), named)
    for text in wrong:
        yield problem(
            "warning",
            "daemon_environment",
            path_text(daemon.pipe_dir),
            f"The daemon's environment sets no limit with {text}. The default holds.",
        )


def _of_start(daemon: Daemon) -> Iterable[Problem]:
    """Servers that end before they are ready: nobody is served, though the daemon is well."""
    found = daemon.start_failures
    if found is None:
        return
    last = f"at {moment_text(found.last)}" if found.last is not None else "at a time that is not known"
    which = f" (server {found.server_pid})" if found.server_pid is not None else ""
    if found.count > 1:
        since = f" since {moment_text(found.since)}" if found.since is not None else ""
        text = f"No server starts: {found.count} ended before they were ready{since}, the last one {last}{which}."
    else:
        text = f"A server ended before it was ready, {last}{which}."
    whose = "Its reason:"
    if found.reason_pid not in {None, found.server_pid}:
        whose = f"Server {found.reason_pid} gave as its reason:"
    reason = found.reason
    text += f" {whose} “{reason.rstrip('.')}”." if reason else " The logs that were read give no reason."
    yield problem("error", "server_start", path_text(daemon.pipe_dir), text, _START_REMEDY.get(found.reason or ""))


_START_REMEDY: Final = {
    "operation not supported": (
        "Likely cause: a sandbox that does not let an MPS server run, such as gVisor. Run the daemon outside of it."
    ),
}


def _of_pending(daemon: Daemon) -> Iterable[Problem]:
    """One for all that wait for the same server: it is one stoppage, however many stand in it."""
    waiting: dict[int | None, list[PendingClient]] = {}
    for pending in daemon.pending:
        waiting.setdefault(pending.server_pid, []).append(pending)
    for server, group in waiting.items():
        users = ", ".join(dict.fromkeys(owner(p.user, p.uid) for p in group))
        many = len(group) > 1
        who = f"{_waiting(group)} ({users})"
        they = "they get" if many else "it gets"
        subject = path_text(daemon.pipe_dir) if many or group[0].pid is None else f"client {group[0].pid}"
        unseen = f" Whether {'they still wait' if many else 'it still waits'} cannot be seen from here."
        unseen = unseen if group[-1].pid is None else ""
        if server is None:
            text = f"{who} {'wait' if many else 'waits'} for a server.{unseen}"
            remedy = f"{they.capitalize()} a server when the server that is being started is ready."
            if (failed := daemon.start_failures) is not None:
                remedy = f"No server starts (see that problem). Until it is solved, {they} error 805."
                if failed.count == 1:
                    remedy = (
                        f"{they.capitalize()} a server when one is ready; one has ended before that (see that problem)."
                    )
            yield problem("info", "pending", subject, text, remedy)
            continue
        remedy = (
            f"{they.capitalize()} a server when the present server has no clients left, "
            f"or the daemon runs in {MULTI_USER}."
        )
        until = f"server {server} ends"
        if ahead := [client for client in daemon.clients() if client.pid in group[0].waits_for]:  # what frees it first
            until = (
                f"{_of_users(ahead)} {'end' if len(ahead) > 1 else 'ends'}: server {server} serves one user at a time"
            )
        text = f"{who} {'wait' if many else 'waits'} until {until}.{unseen}"
        yield problem("warning", "pending", subject, text, remedy)


def _waiting(group: Sequence[PendingClient]) -> str:
    """``Clients 11, 12 and a client in another PID namespace``."""
    pids = [p.pid for p in group if p.pid is not None]
    unseen = len(group) - len(pids)
    parts = [client_pids(pids)] if pids else []
    if unseen:
        parts.append(_elsewhere(unseen))
    text = " and ".join(parts)
    return text[0].upper() + text[1:]


def _of_users(clients: Sequence[Client]) -> str:
    """``clients 5, 6 (alice)``."""
    users = dict.fromkeys(owner(client.user, client.uid) for client in clients)
    return f"{client_pids([client.pid for client in clients])} ({', '.join(users)})"


def _elsewhere(number: int) -> str:
    return ELSEWHERE if number == 1 else f"{number} clients in other PID namespaces"


def _of_outside(outside: Sequence[OutsideClient]) -> Iterable[Problem]:
    """Not of those who have no daemon there that serves them: that others serve the device is those users' word."""
    for process in outside:
        if process.reason == "uid":
            continue
        text = f"Process {process.pid} of {owner(process.user, process.uid)} computes without MPS: {process.detail}."
        yield problem("warning", "outside", f"process {process.pid}", text)


def _of_ending(server: Server) -> Problem:
    """It was told to end, by an admin or for a client of another user, and is there until its clients have ended."""
    ahead = []
    if server.clients:
        ahead.append(_of_users(server.clients))
    if server.clients_elsewhere:
        ahead.append(_elsewhere(server.clients_elsewhere))
    waits = f"waits for {' and '.join(ahead)}, and then ends" if ahead else "is ending, and no client of it is known"
    at = f" at {moment_text(server.ending_since)}" if server.ending_since is not None else ""
    text = f"Server {server.pid} {waits}: its log says that it was told to end{at}."
    if ahead:
        text += " It still takes new clients, and waits for them too."
    return problem("info", "server_ending", f"server {server.pid}", text)


def _of_server(server: Server, daemon: Daemon) -> Iterable[Problem]:
    subject = f"server {server.pid}"
    if server.ending:
        yield _of_ending(server)
    if server.status == "FAULT":
        fault = server.fault
        text = KINDS["fault"]["error"].text
        if fault:
            whom = f"no proof: server.log names {client_pids(fault.named)}"
            nobody = "whom server.log names is not known" if fault.cut else "server.log names nobody"
            named = whom if fault.named else nobody
            text = f"{text[:-1]}; {named}."
        if fault and fault.ended_nearby:
            text += " " + caveat_text(fault)
        hit = [key.pid for key in fault.affected if daemon.covers(daemon.find_client(key))] if fault else []
        whom = f" ({', '.join(map(str, hit))})" if hit else ""
        remedy = f"End the clients hit by it{whom}: their work is lost already."
        if fault and not fault.confirmed:
            unsaid = not_said(daemon, fault)
            text = f"server.log reports a{text[1:]} {unsaid[0].upper()}{unsaid[1:]}."
            remedy = KINDS["fault"]["warning"].remedy
            if daemon.by_logs or fault.doubt:
                remedy = "End no process because of the log alone."
            elif (why := daemon.lacking("get_server_status")) is not None:
                remedy = (
                    f"End no process because of the log alone: get_server_status, which would confirm it, is {why}."
                )
        yield problem("error" if not fault or fault.confirmed else "warning", "fault", subject, text, remedy)
    # Whose contexts are gone computes no more.
    over = {
        *(server.fault.affected if server.fault else ()),
        *(c.key for c in server.clients if c.state == "TERMINATED"),
    }
    left = replace(server, clients=tuple(c for c in server.clients if c.key not in over)) if over else server
    for client in bridges(left):
        text = (
            f"Client {client.pid} computes on {len(client.device_uuids)} devices, "
            "so that one fault can end the GPU work on all of them."
        )
        yield problem("info", "bridge", f"client {client.pid}", text)
    for client in server.clients:
        if client.state == "TERMINATED":
            yield problem(
                "warning",
                "terminated",
                f"client {client.pid}",
                f"Client {client.pid} was terminated and its process lives.",
                f"End {'process' if daemon.covers(client) else 'client'} {client.pid}. Never terminate it again: "
                "that blocks the daemon.",
            )
    outdated = [client for client in server.clients if client.outdated_limits]
    if outdated:
        several = len(outdated) > 1
        text = f"{len(outdated)} clients {KEEP_OLD}." if several else f"Client {outdated[0].pid} {KEEPS_OLD}."
        yield problem("info", "outdated", subject, text)


def _of_devices(devices: Sequence[Device], of_others: Sequence[Daemon], euid: int) -> Iterable[Problem]:
    """``of_others``: daemons of other users, whose word it is which contexts they have."""
    for device in devices:
        used, limit = device.contexts, device.context_limit
        if used is None or limit is None or used < _NEARLY * limit:
            continue
        subject = device.called
        claims = [daemon for daemon in of_others if daemon.contexts_on(device.uuid)]
        claimed = sum(daemon.contexts_on(device.uuid) for daemon in claims)
        if claimed and used - claimed < _NEARLY * limit:
            whose = listed(list(dict.fromkeys(daemon.whose(euid) for daemon in claims)), 8)
            text = f"It holds {used} contexts, {claimed} of them as daemons of {whose} say."
            told = problem("warning", "device_nearly_full", subject, text)
            yield replace(told, severity="info", uid=whose_word(claims[0], euid))
        elif device.context_daemons > 1:
            text = f"It holds {used} contexts of {device.context_daemons} daemons"
            text = f"{text}; whether {limit} is the limit of each or of all together is not known."
            yield problem("warning", "device_nearly_full", subject, text)
        elif used >= limit:
            yield problem(
                "error",
                "device_full",
                subject,
                f"It holds {used} of {limit} contexts; the next client gets error 46, or 808 in CUDA's driver API.",
            )
        else:
            yield problem("warning", "device_nearly_full", subject, f"It holds {used} of {limit} contexts.")
