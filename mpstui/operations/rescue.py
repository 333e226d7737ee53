"""Ends processes that hold everybody else up: those that a fault has hit, and the one that blocks the daemon."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from mpstui.control.answer import Outcome
from mpstui.control.holder import connections, sockets_of
from mpstui.core.cells import client_line
from mpstui.core.condition import on_terminal
from mpstui.core.model import Client, Condition, Daemon, ProcessKey, Snapshot
from mpstui.core.text import UNKNOWN, have, listed, owner, path_text, plural
from mpstui.core.trust import why_not
from mpstui.observe.discovery import DEFAULT_PIPE_DIR, file_id, seen_by
from mpstui.observe.poll import Need
from mpstui.operations.check import namespace_words
from mpstui.operations.operation import NOTHING_SENT, Operation, Work
from mpstui.operations.signals import Guard, end_process
from mpstui.operations.types import STATUS, Argument, Danger, ExitStatus, Others, Preview, Request, Result, Verb
from mpstui.system.procfs import PidFd, open_pidfd, process_key, read_environment


def targets(action: str, daemon: Daemon) -> tuple[ProcessKey, ...]:
    """The processes that the action is there to end, by the present state; empty where there is nothing to do.

    Only those that the daemon's word is enough for, and that are proved to be the ones: never another user's.

    ``end_lost_clients``: what a fatal fault has hit; they have lost their contexts, and nobody can connect while one
    of them lives (fact 18). ``unblock``: the client whose second terminate_client blocks the daemon (fact 16), or the
    process that surely is the one that holds its control session open (fact 2).
    """
    wanted = claimed(action, daemon)
    there = processes(daemon) if wanted else {}
    return tuple(key for key in wanted if key.start_ticks is not None and daemon.covers(there.get(key)))


def claimed(action: str, daemon: Daemon) -> tuple[ProcessKey, ...]:
    """The processes that would have to end, whoever's they are."""
    if action == "end_lost_clients":
        faults = (server.fault for server in daemon.servers)
        return tuple(key for fault in faults if fault is not None and fault.confirmed for key in fault.affected)
    return daemon.condition.ends if action == "unblock" and daemon.condition.frees == "unblock" else ()


def left_out(action: str, daemon: Daemon) -> str | None:
    """Why a process that would have to end is not offered; None where there is no such."""
    if action == "end_lost_clients" and any(server.fault and not server.fault.confirmed for server in daemon.servers):
        doubts = [server.fault.doubt for server in daemon.servers if server.fault and server.fault.doubt]
        if doubts:
            return f"server.log and its daemon report a fault; {doubts[0]}"
        unsaid = "server.log reports a fault; the daemon has not confirmed it"
        why = daemon.lacking("get_server_status")
        return f"server.log reports a fault; get_server_status, which would confirm it, is {why}" if why else unsaid
    if action == "unblock" and (why := _nobody_to_end(daemon.condition)) is not None:
        return why
    if not (wanted := claimed(action, daemon)):
        return None
    there, offered = processes(daemon), targets(action, daemon)
    for key in wanted:
        if key in offered:
            continue
        process = there.get(key)
        if process is not None and not process.local:
            return f"client {key.pid} is {namespace_words(process)}"
        if process is None or key.start_ticks is None:
            return f"process {key.pid} is not known here"
        whose = owner(process.user, process.uid)
        return why_not(daemon.speaker, key.pid, whose)
    return None


def _nobody_to_end(found: Condition) -> str | None:
    """Why nobody is to end: nobody is in the way, or it is not known for sure who."""
    if found.health == "ok":
        return "the daemon answers: no process is in its way"
    if found.cause == "quitting":
        return f"{found.detail}: the daemon is ending and will not answer again; ending a process does not help"
    if found.health == "unknown" and found.cause != "busy":
        return found.detail
    if found.cause == "busy":
        return f"{found.detail}. Sessions come one after the other and none stays open: no process has to end"
    if found.cause != "held" or found.ends:
        return None
    if found.holder is None:
        return "a control session is kept open, by a process that cannot be seen from here"
    return f"{found.detail}: mpstui cannot see the connections of this process, so another process may hold the session"


def processes(daemon: Daemon) -> dict[ProcessKey, Client]:
    """All that a rescue can end, the holder of the control session described as a client is."""
    found = {client.key: client for client in daemon.clients()}
    if (holder := daemon.holder) is not None:
        command = f"control session{on_terminal(holder)}"
        found[holder.key] = Client(holder.key, uid=holder.uid, user=holder.user, command=command)
    return found


Against = dict[ProcessKey, tuple[ExitStatus, str]]
"""Of each process that is not to be ended, why not."""


class _Rescue(Operation):
    """Every process is held by a pidfd and checked once more before it is signalled."""

    danger = Danger.HARM
    weight = 6
    arguments = (Argument("clients", "Processes", help="some of them; without one all", metavar="PID"),)
    finds_clients = True
    in_turn = False
    """Whoever has the turn may be the one who waits for the daemon."""
    preview_title: str
    nothing: str
    """Why there is nothing to do, where the daemon says nothing of the kind."""

    def needs(self, request: Request) -> Need | None:
        return None

    def unavailable(self, snapshot: Snapshot, pipe_dir: Path, clients: Sequence[ProcessKey]) -> str | None:
        return self.preview(Request(self.id, pipe_dir), snapshot).error

    def preview(self, request: Request, snapshot: Snapshot) -> Preview:
        """What the request would end; ``request.clients`` may be some of the targets, or empty for all of them."""
        title = self.preview_title
        daemon = snapshot.daemon(request.pipe_dir)
        if daemon is None:
            return Preview(
                title, error=f"no daemon at {path_text(request.pipe_dir)}", error_status=ExitStatus.NO_DAEMON
            )
        if daemon.closed:
            return Preview(title, error=daemon.health_detail, error_status=ExitStatus.NOT_PERMITTED)
        wanted = targets(self.id, daemon)
        rule = ExitStatus.REFUSED_BY_SAFETY_RULE
        if daemon.unspoken is not None:
            return Preview(title, error=daemon.unspoken, error_status=rule)
        if not wanted:
            why = left_out(self.id, daemon) or self.nothing
            return Preview(title, error=why, error_status=rule)
        chosen = request.clients or wanted
        if strangers := [key for key in chosen if key not in wanted]:
            why = f"process {strangers[0].pid} is not, or no longer, one of those to end: " + listed(
                key.pid for key in wanted
            )
            return Preview(title, error=why, error_status=rule)
        clients = processes(daemon)
        if closed := [key for key in chosen if not _permitted(clients.get(key), daemon)]:
            why = f"process {closed[0].pid} belongs to another user; only that user and root may end it"
            return Preview(title, error=why, error_status=ExitStatus.NOT_PERMITTED)
        hits = tuple(_line(key, clients.get(key)) for key in chosen)
        facts, others, warnings = self.come_of(daemon, chosen, wanted)
        return Preview(title, facts, hits=hits, others=others, warnings=warnings)

    def come_of(
        self, daemon: Daemon, chosen: tuple[ProcessKey, ...], wanted: tuple[ProcessKey, ...]
    ) -> tuple[tuple[tuple[str, str], ...], tuple[Others, ...], tuple[str, ...]]:
        """Facts, others and warnings of ending ``chosen``, out of ``wanted``."""
        raise NotImplementedError

    async def run(self, work: Work) -> Result:
        """Ends all of them at the same time; one that cannot be ended does not save the others."""
        request, daemon, work.told = work.request, work.daemon, True
        keys = request.clients or targets(self.id, daemon)
        clients = processes(daemon)
        guard = await Guard.begin(request.pipe_dir, work.find_speaker)
        work.progress("the daemon is asked first")
        spared = await self._check(work, daemon, keys)
        if spared.keys() >= set(keys):
            status, text = spared[keys[0]]
            _write(work, f"kill {' '.join(str(key.pid) for key in keys)}", None, None, status, text)
            return Result(request, status, text, NOTHING_SENT)
        left_alone = tuple(f"{_line(key, clients.get(key))}: left alone, {text}" for key, (_, text) in spared.items())
        keys = tuple(key for key in keys if key not in spared)
        ends = await asyncio.gather(*(_end(work, key, clients.get(key), guard) for key in keys))
        details = tuple(
            f"NVML does not tell whether {key.pid} is a client: not checked"
            for key in keys
            if key in {client.key for client in daemon.clients()} and clients[key].listed is None
        )
        details += tuple(f"{_line(key, clients.get(key))}: {text}" for key, (_, text) in zip(keys, ends, strict=True))
        details += left_alone
        failed = [(key, status, text) for key, (status, text) in zip(keys, ends, strict=True) if status]
        if failed:
            key, status, text = failed[0]
            return Result(request, status, f"process {key.pid}: {text}", details)
        what = f"{plural(len(keys), 'process')} ended"
        return Result(request, ExitStatus.DONE, what, details)

    async def _check(self, work: Work, daemon: Daemon, keys: tuple[ProcessKey, ...]) -> Against:
        """What stands against ending them, by how the daemon behaves now and by NVML."""
        of = {client.key: client for client in daemon.clients()}
        if strangers := [key for key in keys if key in of and of[key].listed is False]:
            why = f"NVML does not list process {strangers[0].pid} as a client of MPS"
            return dict.fromkeys(keys, (ExitStatus.REFUSED_BY_SAFETY_RULE, why))
        return await self.proved(work, daemon, keys)

    async def proved(self, work: Work, daemon: Daemon, keys: tuple[ProcessKey, ...]) -> Against:
        """The same, by how the daemon behaves now."""
        raise NotImplementedError


class EndLostClients(_Rescue):
    """The processes that a fatal fault has hit (fact 18)."""

    id = "end_lost_clients"
    title = preview_title = "End lost clients"
    brief = "End lost"
    key = "e"
    help = "End the processes that a fatal fault has hit: SIGTERM, grace, SIGKILL; their GPU work is lost already"
    verb = Verb(("end-lost",), "end the processes that a fatal fault has hit", example="mpstui end-lost --yes")
    nothing = "no client has been hit by a fault"

    def come_of(
        self, daemon: Daemon, chosen: tuple[ProcessKey, ...], wanted: tuple[ProcessKey, ...]
    ) -> tuple[tuple[tuple[str, str], ...], tuple[Others, ...], tuple[str, ...]]:
        left = len(wanted) - len(chosen)
        then = "the server takes new clients again"
        if left:
            then = f"{left} more {have(left)} to end before the server takes new clients"
        facts = (
            ("ends", f"{plural(len(chosen), 'process')} whose CUDA contexts are lost already"),
            ("then", then),
        )
        spared = tuple(
            _line(client.key, client)
            for server in daemon.servers
            if server.fault
            for client in server.clients
            if client.key not in wanted
        )
        others = (Others("Not hit by the fault, and run on", spared),) if spared else ()
        holds = "they hold" if len(chosen) > 1 else "it holds"
        warnings = (f"what {holds} outside the GPU, such as unsaved results, is lost",)
        return facts, others, warnings

    async def proved(self, work: Work, daemon: Daemon, keys: tuple[ProcessKey, ...]) -> Against:
        """One that its server lists no more has freed its GPU and is leaving: it is in nobody's way."""
        rule = ExitStatus.REFUSED_BY_SAFETY_RULE
        left: Against = {}
        for server in daemon.servers:
            mine = [key for key in keys if key in {client.key for client in server.clients}]
            if not mine:
                continue
            status = await work.control.get_server_status(server.pid)
            if status.value is None:
                why = f"whether server {server.pid} is in FAULT is not known: {status.message}"
                return dict.fromkeys(keys, (STATUS[status.outcome], why))
            if status.value != "FAULT":
                return dict.fromkeys(
                    keys, (rule, f"server {server.pid} is not in FAULT: the daemon says {status.value}")
                )
            listed = await work.control.get_client_list(server.pid)
            if listed.value is None:
                return dict.fromkeys(
                    keys, (STATUS[listed.outcome], f"the affected clients are not known: {listed.message}")
                )
            gone = [key for key in mine if key.pid not in listed.value and process_key(key.pid) == key]
            left |= {key: (rule, f"server {server.pid} lists process {key.pid} no more") for key in gone}
        return left


class Unblock(_Rescue):
    """The one process that keeps the daemon from answering (facts 2, 16)."""

    id = "unblock"
    title = "Unblock"
    preview_title = "Unblock the daemon"
    key = "u"
    help = "End the process that keeps the daemon from answering: a client terminated twice, or an open session"
    verb = Verb(("unblock",), "end the process that keeps the daemon from answering", example="mpstui unblock")
    nothing = "no process is known that keeps it from answering"

    def come_of(
        self, daemon: Daemon, chosen: tuple[ProcessKey, ...], wanted: tuple[ProcessKey, ...]
    ) -> tuple[tuple[tuple[str, str], ...], tuple[Others, ...], tuple[str, ...]]:
        then = ("then", "the daemon answers again at once")
        if daemon.health == "held":
            ends = f"process {chosen[0].pid}, which holds a control session open; no client is touched"
            return (("ends", ends), then), (), ("the person who works in that session loses it",)
        ends = f"process {chosen[0].pid}; its GPU work was ended by the first terminate_client"
        return (("ends", ends), then), (), ()

    async def proved(self, work: Work, daemon: Daemon, keys: tuple[ProcessKey, ...]) -> Against:
        against = await self._against(work, daemon)
        return dict.fromkeys(keys, against) if against else {}

    async def _against(self, work: Work, daemon: Daemon) -> tuple[ExitStatus, str] | None:
        answer = await work.control.get_server_list()
        rule = ExitStatus.REFUSED_BY_SAFETY_RULE
        if answer.outcome in {Outcome.OK, Outcome.REFUSED, Outcome.NOT_PERMITTED}:
            return rule, "the daemon answers: nothing has to be ended for that"
        wanted = Outcome.BLOCKED if daemon.health == "blocked" else Outcome.HELD
        if answer.outcome is not wanted:
            return (
                STATUS[answer.outcome],
                f"the daemon is no longer {daemon.health}: {answer.message}",
            )
        if wanted is Outcome.HELD:
            now, before = answer.holder, daemon.holder
            if now is None or before is None or now.key != before.key:
                return rule, "another session holds the daemon now: look again"
            if not await asyncio.to_thread(_has_session, daemon.pipe_dir, now.pid):
                return rule, f"process {now.pid} holds a session with another daemon, not with this one"
        return None


async def _end(work: Work, key: ProcessKey, client: Client | None, guard: Guard) -> tuple[ExitStatus, str]:
    opened = open_pidfd(key)
    if isinstance(opened, PidFd):
        with opened as process:
            status, text = await end_process(process, work.grace, work.progress, guard)
    elif opened.gone:
        status, text = ExitStatus.DONE, "it had ended already"
    else:
        status = ExitStatus.NOT_PERMITTED if opened.not_permitted else ExitStatus.REFUSED_BY_SAFETY_RULE
        text = f"nothing was sent: {opened.message}"
    _write(work, f"kill {key.pid}", key, client, status, text)
    work.progress(f"{key.pid}: {text}")
    return status, text


def _write(
    work: Work,
    command: str,
    key: ProcessKey | None,
    client: Client | None,
    status: ExitStatus,
    text: str,
) -> None:
    trouble = work.write(
        euid=os.geteuid(),
        command=command,
        boot_id=work.boot_id,
        client=[key.pid, key.start_ticks] if key else None,
        client_user=client.user if client else None,
        status=int(status),
        result=text,
    )
    if trouble:
        work.progress(trouble)


def _has_session(pipe_dir: Path, pid: int) -> bool:
    """By its connection, as the kernel shows it; where it shows none of it, by the directory that the process names,
    which may be any."""
    if (sockets_of(pid) or frozenset()) & (connections(pipe_dir, by_name=False) or frozenset()):
        return True
    theirs = seen_by(pid, Path(_session_directory(pid)))
    return theirs is not None and theirs == file_id(pipe_dir)


def _session_directory(pid: int) -> str:
    """The pipe directory of a control session, as its process names it."""
    return (read_environment(pid) or {}).get("CUDA_MPS_PIPE_DIRECTORY") or os.fspath(DEFAULT_PIPE_DIR)


def _permitted(client: Client | None, daemon: Daemon) -> bool:
    """Whether this user may signal it, as far as one can tell: a simulated client's user is a made-up one."""
    return client is None or client.uid is None or daemon.simulated or os.geteuid() in {0, client.uid}


def _line(key: ProcessKey, client: Client | None) -> str:
    return f"{key.pid} {UNKNOWN}" if client is None else client_line(client)
