"""Clients ended without harm to their neighbours, as a rule: terminate_client first, then the process (facts 15–17,
61)."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import ClassVar

from mpstui.control.answer import Answer, Outcome
from mpstui.core.blast import blast_radius, over, server_of, without
from mpstui.core.cells import client_line
from mpstui.core.model import Client, Daemon, Event, ProcessKey, Snapshot
from mpstui.core.text import listed, owner, plural
from mpstui.core.trust import is_lying, why_not
from mpstui.observe.poll import Need
from mpstui.operations.audit import Identity, identity
from mpstui.operations.check import Refused, answering_daemon, namespace_words, parse_uid
from mpstui.operations.lock import DaemonTurn, NoTurn, run_name, turn
from mpstui.operations.operation import Operation, Work
from mpstui.operations.rescue import claimed
from mpstui.operations.selectors import left
from mpstui.operations.signals import Guard, end_process
from mpstui.operations.types import STATUS, Argument, Danger, ExitStatus, Others, Preview, Request, Result, Verb
from mpstui.system.procfs import PidFd, open_pidfd

_NOT_TAKEN = frozenset(
    (
        Outcome.REFUSED,
        Outcome.NOT_PERMITTED,
        Outcome.HELD,
        Outcome.BUSY,
        Outcome.ABSENT,
        Outcome.NO_BINARY,
    )
)
_NEEDS_ALL = (
    "the server takes new clients again when all processes that the fault hit have ended: “End lost clients” ends them "
    "(e on the screen, or mpstui end-lost)"
)
_SENT_BEFORE = "terminate_client was sent for it before; a second one would block the whole daemon"
_PERHAPS_BEFORE = (
    "terminate_client was sent before for a client with this number, perhaps this one; a second one for the same "
    "client would block the whole daemon"
)

_LOOKS, _LOOK = 20, 0.05
"""How often, and after how many seconds each, the logs are looked at for a fault that came with a terminate_client: it
came in the same millisecond (fact 61), and the log may tell it a little later."""
_MORE_LOOKS = 3
"""After the log has told that the client was terminated."""
_HIT = 60
"""Named of those whom a fault hit. A device takes no more contexts, and a log may name any number."""


class TerminateClient(Operation):
    """``terminate_client`` for each of the chosen clients, once and never again (fact 16)."""

    id = "terminate_client"
    sends = "terminate_client"
    title = "Terminate"
    key = "t"
    help = "End the GPU work of the chosen clients; their processes keep running and get error 810"
    danger = Danger.HARM
    weight = 5
    verb = Verb(
        ("terminate",),
        "end a client's GPU work, as a rule without harm to others",
        example="mpstui terminate 4711 --kill",
    )
    arguments = (
        Argument("clients", "Clients", help="its process id", metavar="CLIENT_PID"),
        Argument(
            "text",
            "Job",
            help="all clients of this batch job: 123, slurm:123, 4711.server",
            metavar="ID",
            option="--job",
        ),
        Argument(
            "text", "Pod", help="all clients of this pod: NAMESPACE/NAME, or its UID", metavar="POD", option="--pod"
        ),
        Argument("text", "Unit", help="all clients of this systemd unit", metavar="NAME", option="--unit"),
        Argument(
            "text",
            "Cgroup",
            help="all clients in this cgroup and below: /a/b, as /proc/PID/cgroup has it; self: the one that this"
            " runs in, in a container the whole of it",
            metavar="PATH",
            option="--cgroup",
        ),
        Argument(
            "text",
            "PID file",
            help="the clients whose process ids are in this file, which nobody else may write to",
            metavar="FILE",
            option="--pid-file",
        ),
        Argument(
            "owner",
            "Owner",
            help="whose process it is, where the daemon is of another user: needed to kill it",
            metavar="NAME",
        ),
    )
    in_turn = False
    """For each client its own: a kill takes its time, and others may act meanwhile."""
    kill: ClassVar[bool] = False

    def needs(self, request: Request) -> Need | None:
        return Need(clients=True)

    def unavailable(self, snapshot: Snapshot, pipe_dir: Path, clients: Sequence[ProcessKey]) -> str | None:
        """The same as ``preview`` says, at a tenth of its cost."""
        if not clients:
            return "choose a client first"
        request = Request(self.id, pipe_dir, clients=tuple(clients))
        try:
            self.chosen(request, answering_daemon(request, snapshot, self.sends))
        except Refused as refused:
            return str(refused)
        return None

    def chosen(self, request: Request, daemon: Daemon) -> list[Client]:
        """The clients to end, provided that all of them may be; raises Refused."""
        if not request.clients:
            raise Refused("choose a client first", ExitStatus.USAGE)
        chosen: list[Client] = []
        for key in request.clients:
            client = daemon.find_client(key)
            if client is None:
                raise Refused(
                    f"process {key.pid} is not, or no longer, a client of this daemon",
                    ExitStatus.REFUSED_BY_SAFETY_RULE,
                )
            chosen.append(client)
        asked = [c for c in chosen if c.terminate_requested or c.state == "TERMINATED"]
        if self.kill:
            asked = [c for c in asked if c.state != "TERMINATED"]
            for client in chosen:
                if not client.local:
                    raise Refused(
                        f"client {client.pid} is {namespace_words(client)}: its process is not known here, so no "
                        "process is signalled. Terminate it without the kill: for that the daemon's number is enough",
                        ExitStatus.REFUSED_BY_SAFETY_RULE,
                    )
        if any(client.pid <= 0 for client in chosen):
            raise Refused(
                "client 0 has no number here, so mpstui cannot tell the daemon which client is meant",
                ExitStatus.NOT_PERMITTED,
            )
        if asked:
            raise Refused(
                f"terminate_client was already sent for {listed(c.pid for c in asked)}; "
                "a second one would block the whole daemon until the process ends",
                ExitStatus.REFUSED_BY_SAFETY_RULE,
            )
        return chosen

    def owner_needed(self, request: Request, chosen: Sequence[Client], daemon: Daemon) -> tuple[str, str] | None:
        """What has to be typed before the process of a client is ended whom the daemon does not speak for, and why;
        None where nothing has. Raises Refused where several were chosen, and where another owner was typed."""
        others = [client for client in chosen if not daemon.covers(client)]
        if not self.kill or not others:
            return None
        client = others[0]
        whose = owner(client.user, client.uid)
        why = why_not(daemon.speaker, client.pid, whose)
        if is_lying(daemon, client.uid):
            why += "; it cannot have clients of other users, so what it says of this one is not true"
        if len(chosen) > 1:
            raise Refused(f"{why}; choose it alone", ExitStatus.REFUSED_BY_SAFETY_RULE)
        if client.uid is None:
            raise Refused(f"{why}; its owner cannot be read from here", ExitStatus.NOT_PERMITTED)
        if request.owner and parse_uid(request.owner) != client.uid:
            raise Refused(
                f"process {client.pid} belongs to {whose}, not to {request.owner}", ExitStatus.REFUSED_BY_SAFETY_RULE
            )
        return f"{client.pid} {client.user or client.uid}", why

    def show(self, request: Request, snapshot: Snapshot, daemon: Daemon) -> Preview:
        chosen = self.chosen(request, daemon)
        needed = self.owner_needed(request, chosen, daemon)
        lost = frozenset(claimed("end_lost_clients", daemon))
        busy, hit = [c for c in chosen if c.key not in lost], [c for c in chosen if c.key in lost]
        others = _others(busy, daemon, lost)
        endangered = sum(len(group.clients) for group in others)
        if hit:
            others += _hit_too(chosen, daemon, lost)
        facts = (
            ("ends", self._ends(len(busy), len(hit))),
            *((("others", "; ".join(_counted(group) for group in others)),) if others else ()),
        )
        warnings: tuple[str, ...] = ()
        if endangered and self.kill:
            whose, process = ("their", "processes are") if len(chosen) > 1 else ("its", "process is")
            warnings = (
                f"{whose} {process} killed only after MPS has ended {whose} GPU work: "
                f"without that {plural(endangered, 'other client')} would be lost",
            )
        elif not self.kill and busy:
            warnings = ("a terminated client still counts as a client until its process ends",)
        if hit:
            warnings = (_NEEDS_ALL, *warnings)
        if daemon.watch == "polling":
            warnings += (_unseen(daemon),)
        hits = tuple(client_line(c) for c in chosen)
        if needed is None:
            return Preview(self.title, facts, (), hits, others, warnings)
        what, why = needed
        if request.owner:
            return Preview(self.title, facts, (), hits, others, (why, *warnings), type_in=what)
        error = f"{why}. To end it anyway, name its PID and its owner: {what}"
        return Preview(
            self.title, facts, (), hits, others, warnings, error, ExitStatus.REFUSED_BY_SAFETY_RULE, type_in=what
        )

    def _ends(self, busy: int, hit: int) -> str:
        """What is ended of those chosen: ``busy`` that compute, and ``hit`` whose GPU work a fault took."""
        if not hit:
            return f"the GPU work{' and the process' if self.kill else ''} of {plural(busy, 'client')}"
        taken = "a fault took its GPU work already" if hit == 1 else "a fault took their GPU work already"
        if busy:
            taken = f"a fault took the GPU work of {hit} already"
        if self.kill:
            ends = f"{plural(busy + hit, 'process')}"
        else:
            ends = f"the GPU work of {plural(busy, 'client')}" if busy else "nothing"
        return f"{ends}; {taken}"

    async def run(self, work: Work) -> Result:
        """End every client of the request; stops at the first that could not be ended as planned."""
        work.told = True
        ending = _Ending(work, kill=self.kill)
        known = {fault.key for fault in _faults(work.heard(), work.request.pipe_dir)}
        result = await self._end_each(work, ending)
        came = await _came_with(work, ending.sent, known) if ending.sent else []
        return _with_faults(result, came, work.daemon) if came else result

    async def _end_each(self, work: Work, ending: _Ending) -> Result:
        request, daemon, details = work.request, work.daemon, list[str]()
        for index, key in enumerate(request.clients):
            # Ending several takes its time: what is known of the later ones by then counts.
            now = work.newest() or daemon
            daemon = now if now.find_client(key) else daemon
            client, server = daemon.find_client(key), server_of(daemon, key)
            if client is None or server is None:
                raise AssertionError("checked by the preview on the same snapshot")
            status, text = await ending.end(client, server.pid)
            details.append(f"{client_line(client)}: {text}")
            work.progress(details[-1])
            if status is not ExitStatus.DONE:
                left = len(request.clients) - index - 1
                if left:
                    details.append(f"{left} more not touched")
                return Result(request, status, f"client {key.pid}: {text}", tuple(details))
        count = len(request.clients)
        text = f"{plural(count, 'client')} {'ended' if self.kill else 'terminated'}"
        return Result(request, ExitStatus.DONE, text, tuple(details))


def _unseen(daemon: Daemon) -> str:
    """That nobody can tell of an earlier terminate_client, and what a second one would do."""
    if daemon.named_servers:
        return (
            "mpstui cannot see whether the client was terminated before: the log format of MPS protocol 3 is not "
            "known. Up to protocol 2, a second terminate_client blocks the whole daemon until the client's process ends"
        )
    return (
        "the daemon's logs cannot be read: if the client was terminated before, a second terminate_client blocks the "
        "whole daemon until the client's process ends"
    )


class TerminateAndKill(TerminateClient):
    """``terminate_client``, and then the process: SIGTERM, grace, SIGKILL."""

    id = "terminate_and_kill"
    title = "Terminate + kill"
    brief = "+ kill"
    key = "K"
    help = "End the GPU work of the chosen clients, then their processes: SIGTERM, grace, SIGKILL"
    verb = Verb(("terminate",), "then end its process: SIGTERM, grace, SIGKILL", flag="--kill")
    kill = True


class _Ending:
    """The clients of one request, one after the other. The order is the safety rule:

    pidfd → start time and owner checked → the daemon's turn → not sent before → listed by the daemon →
    terminate_client → answer 0 → owner checked again → SIGTERM → grace → SIGKILL.
    A terminate that fails or runs out of time does not go on to a kill, nor to the next client. A client that is not
    proved to be a process of this PID namespace has no pidfd, and nothing is signalled for it.
    """

    def __init__(self, work: Work, *, kill: bool) -> None:
        self._work = work
        self._request = work.request
        self._control = work.control
        self._kill_too = kill
        self._run: str | None = None
        """Which one of its daemon, in whose turn it is."""
        self.sent: list[ProcessKey] = []
        """Whom the daemon took a terminate_client for, or may have."""

    async def end(self, client: Client, server: int) -> tuple[ExitStatus, str]:
        """How it ended, or why not."""
        if not client.local:
            return await self._terminate_in_turn(client, server, None)
        opened = open_pidfd(client.key)
        if not isinstance(opened, PidFd):
            text = f"nothing was sent: {opened.message}"
            return self._done(client, "", None, ExitStatus.REFUSED_BY_SAFETY_RULE, text)
        with opened as process:
            if (reason := left(self._request.within, client, self._work.daemon.simulated)) is not None:
                text = f"nothing was sent: {reason}"
                return self._done(client, "", None, ExitStatus.REFUSED_BY_SAFETY_RULE, text)
            guard = await self._guard() if self._kill_too else None
            if guard is not None and (reason := guard(process)) is not None:
                text = f"nothing was sent: {reason}"
                return self._done(client, "", None, ExitStatus.REFUSED_BY_SAFETY_RULE, text)
            if guard is None or client.state != "TERMINATED":
                status, text = await self._terminate_in_turn(client, server, guard)
                if status is not ExitStatus.DONE:
                    return status, text
            if guard is None:
                return ExitStatus.DONE, "terminated: the daemon has confirmed it"
            if trouble := self._write(client, f"kill {client.pid}", None, None, "about to be signalled"):
                text = f"the process was not signalled: {trouble}"
                return self._done(client, "", None, ExitStatus.REFUSED_BY_SAFETY_RULE, text)
            status, text = await self._kill(process, guard)
            self._write(client, f"kill {client.pid}", None, status, text)
            return status, text

    async def _guard(self) -> Guard:
        request, named = self._request, None
        if request.owner:
            with contextlib.suppress(Refused):  # checked by the preview
                named = parse_uid(request.owner)
        return await Guard.begin(request.pipe_dir, self._work.find_speaker, named)

    async def _terminate_in_turn(self, client: Client, server: int, guard: Guard | None) -> tuple[ExitStatus, str]:
        speaker = guard.speaker if guard is not None else self._work.find_speaker(self._request.pipe_dir)
        try:
            async with turn(self._request.pipe_dir, speaker) as mine:
                return await self._terminate(client, server, mine)
        except NoTurn as error:
            status = ExitStatus.NO_ANSWER if error.busy else ExitStatus.REFUSED_BY_SAFETY_RULE
            return self._done(client, "", None, status, f"nothing was sent: {error}")

    async def _terminate(self, client: Client, server: int, mine: DaemonTurn) -> tuple[ExitStatus, str]:
        self._run = run_name(mine.run) or None
        if (before := mine.was_sent(client)) is not None:
            # The part of the log that was read may not tell it.
            if self._kill_too and mine.was_answered(client):
                return ExitStatus.DONE, "terminated before"
            text = f"{_SENT_BEFORE if before.surely else _PERHAPS_BEFORE} ({before.who} did)"
            return self._done(client, "", None, ExitStatus.REFUSED_BY_SAFETY_RULE, text)
        told = self._work.audit.terminate_was_sent(self._work.boot_id, self._who(client), self._run)
        if told or self._sent_before(client):
            return self._done(client, "", None, ExitStatus.REFUSED_BY_SAFETY_RULE, _SENT_BEFORE)
        listed = await self._control.get_client_list(server)
        if listed.value is None:
            text = f"nothing was sent: {listed.message}"
            return self._done(client, "", None, STATUS[listed.outcome], text)
        if client.pid not in listed.value:
            text = f"nothing was sent: server {server} does not list it any more"
            return self._done(client, "", None, ExitStatus.REFUSED_BY_SAFETY_RULE, text)
        if self._sent_before(client):  # by somebody else, while the list was asked for
            return self._done(client, "", None, ExitStatus.REFUSED_BY_SAFETY_RULE, _SENT_BEFORE)
        # Remembered before it is sent: after a crash in between, not sending again is the safe side.
        if (trouble := mine.note(client, sent=True)) is not None:
            text = f"nothing was sent: the note that tells other mpstui of it cannot be written: {trouble}"
            return self._done(client, "", None, ExitStatus.REFUSED_BY_SAFETY_RULE, text)
        self._work.terminated.add(self._mark(client))
        command = self._control.protocol.terminate_client(server, client.pid).command
        if trouble := self._write(client, command, None, None, "about to be sent", sent=True):
            self._work.terminated.discard(self._mark(client))
            mine.note(client, sent=False)
            text = f"nothing was sent: {trouble}"
            return self._done(client, "", None, ExitStatus.REFUSED_BY_SAFETY_RULE, text)
        self._work.progress(command)
        answer = await self._control.terminate_client(server, client.pid)
        if answer.outcome not in _NOT_TAKEN:
            self.sent.append(client.key)
        if answer.ok:
            mine.note(client, sent=True, answered=True)
            return self._done(
                client, answer.command, answer, ExitStatus.DONE, "terminated: the daemon has confirmed it"
            )
        if answer.outcome is Outcome.BLOCKED:
            text = (
                f"terminate_client did not answer in {answer.seconds:.0f} s and may still be carried out; "
                "the process was not killed, and it is not sent again"
            )
        else:
            text = f"terminate_client failed: {answer.message}; the process was not killed"
        if answer.outcome in _NOT_TAKEN:
            # The daemon did not take it, so that it may be tried again; after a time-out or garbage nobody knows.
            self._work.terminated.discard(self._mark(client))
            mine.note(client, sent=False)
            self._write(client, answer.command, None, None, "not taken", sent=False)
        return self._done(client, answer.command, answer, STATUS[answer.outcome], text)

    def _sent_before(self, client: Client) -> bool:
        """Whether this mpstui, or the log by now, knows of a terminate_client for it."""
        daemon = self._work.newest()
        now = daemon.find_client(client.key) if daemon else None
        return self._mark(client) in self._work.terminated or (now is not None and now.terminate_requested)

    def _who(self, client: Client) -> Identity:
        return identity(client, self._work.daemon)

    def _mark(self, client: Client) -> Identity:
        return self._run, *self._who(client)

    async def _kill(self, process: PidFd, guard: Guard) -> tuple[ExitStatus, str]:
        status, text = await end_process(process, self._work.grace, self._work.progress, guard)
        return status, f"terminated, {'then' if status is ExitStatus.DONE else 'but'} {text}"

    def _done(
        self, client: Client, command: str, answer: Answer[None] | None, status: ExitStatus, text: str
    ) -> tuple[ExitStatus, str]:
        self._write(client, command, answer, status, text)
        return status, text

    def _write(
        self,
        client: Client,
        command: str,
        answer: Answer[None] | None,
        status: ExitStatus | None,
        text: str,
        *,
        sent: bool | None = None,
    ) -> str | None:
        trouble = self._work.write(
            euid=os.geteuid(),
            command=command,
            sent=sent,
            boot_id=self._work.boot_id,
            run=self._run,
            client=self._who(client),
            client_user=client.user,
            answer=answer.stdout.decode("utf-8", "backslashreplace")[:200] if answer else "",
            status=None if status is None else int(status),
            result=text,
        )
        if trouble:
            self._work.progress(trouble)
        return trouble


def _faults(heard: Snapshot | None, pipe_dir: Path) -> list[Event]:
    """Those of the daemon that its logs have told of by then."""
    events = heard.events if heard is not None else ()
    return [event for event in events if event.kind == "fatal_fault" and event.pipe_dir == pipe_dir]


async def _came_with(work: Work, sent: Collection[ProcessKey], known: Collection[tuple[object, ...]]) -> list[Event]:
    """The faults that are new since the first of ``sent`` (fact 61). Not waited for where no log is read."""
    looks = _LOOKS
    while True:
        heard, where = work.heard(), work.request.pipe_dir
        came = [fault for fault in _faults(heard, where) if fault.key not in known]
        daemon = None if heard is None else heard.daemon(where)
        if came or daemon is None or daemon.watch == "polling" or not looks:
            return came
        there = map(daemon.find_client, sent)
        told = all(client is None or client.state == "TERMINATED" for client in there)
        looks = min(looks - 1, _MORE_LOOKS) if told else looks - 1
        await asyncio.sleep(_LOOK)


def _with_faults(result: Result, faults: Sequence[Event], daemon: Daemon) -> Result:
    """The result with what came besides, whom it hit, and what is to be done."""
    asked = {key.pid for key in result.request.clients}
    pids = sorted({int(word) for fault in faults for word in fault.values.get("clients", "").split()} - asked - {0})
    lines = {client.pid: client_line(client) for client in daemon.clients()}
    hit = [f"hit by the fault: {lines.get(pid, f'client {pid}')}" for pid in pids[:_HIT]]
    if len(pids) > _HIT:
        hit.append(f"and {len(pids) - _HIT} more")
    others = f", which hit {plural(len(pids), 'other client')}" if pids else ""
    servers = listed(dict.fromkeys(fault.server_pid for fault in faults if fault.server_pid is not None))
    text = f"server.log tells of a fatal fault of server {servers} that came with it{others}"
    message, remedy = f"{result.message}; but {text}", result.remedy or _NEEDS_ALL
    return result._replace(message=message, details=(*result.details, *hit), remedy=remedy)


def _hit_too(chosen: Sequence[Client], daemon: Daemon, lost: Collection[ProcessKey]) -> tuple[Others, ...]:
    """Who is in the way of new clients besides, where one of ``chosen`` was hit by a fault."""
    mine = {client.key for client in chosen}
    hit = [client_line(client) for client in daemon.clients() if client.key in lost and client.key not in mine]
    return (Others("Hit by the fault too, and not ended", tuple(hit)),) if hit else ()


def _others(chosen: Sequence[Client], daemon: Daemon, lost: Collection[ProcessKey]) -> tuple[Others, ...]:
    """Who would be hit if one of ``chosen`` faulted or were killed while busy (facts 17, 18), by how it is reached.
    Nothing more can happen to those of ``lost``, and a device leads to nobody through them."""
    mine = {client.key for client in chosen}
    believed = daemon.claimant(os.geteuid()) is None
    them = "them" if len(chosen) > 1 else "it"
    beside: dict[int, Client] = {}
    further: dict[int, Client] = {}
    unknown: dict[int, Client] = {}
    for client in chosen:
        server = server_of(daemon, client.key)
        if server is not None:
            ended = over(daemon, server) if believed else frozenset()
            server = without(server, {*lost, *(ended - mine)})
        for other in blast_radius(server, [client.key]) if server else ():
            if other.key in mine:
                continue
            if not client.device_uuids or not other.device_uuids:
                unknown[other.pid] = other
            elif client.device_uuids & other.device_uuids:
                beside[other.pid] = other
            else:
                further[other.pid] = other
    further = {pid: client for pid, client in further.items() if pid not in beside}
    unknown = {pid: client for pid, client in unknown.items() if pid not in beside and pid not in further}
    one = "one of them" if len(chosen) > 1 else "it"
    groups = (
        (f"Share a GPU with {them}, and run on as a rule", beside),  # fact 61
        (f"More clients on other GPUs would be lost if {one} faults while it is ended", further),
        (f"May share a GPU with {them}: not all GPUs are known", unknown),
    )
    return tuple(Others(title, tuple(client_line(c) for c in group.values())) for title, group in groups if group)


def _counted(group: Others) -> str:
    """How many they are and what its title says of them: ``1 shares a GPU with it, and runs on as a rule``."""
    count, title = len(group.clients), group.title[0].lower() + group.title[1:]
    if count == 1:
        for several, one in (("share ", "shares "), (" run on", " runs on"), ("more clients ", "more client ")):
            title = title.replace(several, one, 1)
        title = title.replace("may shares ", "may share ")
    return f"{count} {title}"
