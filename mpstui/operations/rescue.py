"""Ends processes that hold everybody else up: those that a fault has hit, and the one that blocks the daemon."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from mpstui.control.answer import Outcome
from mpstui.control.mps import MpsControl
from mpstui.core.model import Client, Daemon, ProcessKey, Snapshot
from mpstui.core.text import UNKNOWN, path_text
from mpstui.core.trust import Speaker, why_not
from mpstui.observe.discovery import DEFAULT_PIPE_DIR, file_id, seen_by
from mpstui.observe.procfs import PidFd, open_pidfd, process_key, read_environment
from mpstui.operations.audit import AuditLog
from mpstui.operations.check import client_line, namespace_words
from mpstui.operations.guard import Guard
from mpstui.operations.killing import end_process
from mpstui.operations.types import STATUS, ActionId, ExitStatus, Others, Preview, Progress, Request, Result

_TITLES = {"end_lost_clients": "End lost clients", "unblock": "Unblock the daemon"}


def targets(action: ActionId, daemon: Daemon) -> tuple[ProcessKey, ...]:
    """The processes that the action is there to end, by the present state; empty where there is nothing to do.

    Only those that the daemon's word is enough for, and that are proved to be the ones: never another user's.

    ``end_lost_clients``: what a fatal fault has hit; they have lost their contexts, and nobody can connect while one
    of them lives (fact 18). ``unblock``: the client whose second terminate_client blocks the daemon (fact 16), or the
    process that surely is the one that holds its control session open (fact 2).
    """
    there = processes(daemon)
    return tuple(
        key for key in claimed(action, daemon) if key.start_ticks is not None and daemon.covers(there.get(key))
    )


def claimed(action: ActionId, daemon: Daemon) -> tuple[ProcessKey, ...]:
    """The processes that would have to end, whoever's they are."""
    if action == "end_lost_clients":
        faults = (server.fault for server in daemon.servers)
        return tuple(key for fault in faults if fault is not None and fault.confirmed for key in fault.affected)
    if action == "unblock" and daemon.health == "blocked" and daemon.blocked_by is not None:
        return (daemon.blocked_by,)
    if action == "unblock" and daemon.health == "held" and daemon.holder is not None and daemon.holder.certain:
        return (daemon.holder.key,)
    return ()


def left_out(action: ActionId, daemon: Daemon) -> str | None:
    """Why a process that would have to end is not offered; None where there is no such."""
    if action == "end_lost_clients" and any(server.fault and not server.fault.confirmed for server in daemon.servers):
        return "server.log tells of a fault, and the daemon has not been heard to say so"
    there, offered = processes(daemon), targets(action, daemon)
    for key in claimed(action, daemon):
        if key in offered:
            continue
        process = there.get(key)
        if process is not None and not process.local:
            return f"client {key.pid} is {namespace_words(process)}"
        if process is None or key.start_ticks is None:
            return f"process {key.pid} is not known here"
        owner = process.user or (UNKNOWN if process.uid is None else str(process.uid))
        return why_not(daemon.speaker, key.pid, owner)
    return None


def processes(daemon: Daemon) -> dict[ProcessKey, Client]:
    """All that a rescue can end, the holder of the control session described as a client is."""
    found = {client.key: client for client in daemon.clients()}
    if (holder := daemon.holder) is not None:
        where = f" on {holder.terminal}" if holder.terminal else ""
        found[holder.key] = Client(holder.key, uid=holder.uid, user=holder.user, command=f"control session{where}")
    return found


def preview_rescue(request: Request, snapshot: Snapshot) -> Preview:
    """What the request would end; ``request.clients`` may be some of the targets, or empty for all of them."""
    title = _TITLES[request.action]
    daemon = snapshot.daemon(request.pipe_dir)
    if daemon is None:
        return Preview(title, error=f"no daemon at {path_text(request.pipe_dir)}", error_status=ExitStatus.NO_DAEMON)
    wanted = targets(request.action, daemon)
    rule = ExitStatus.REFUSED_BY_SAFETY_RULE
    if daemon.unspoken is not None:
        return Preview(title, error=daemon.unspoken, error_status=rule)
    if not wanted:
        fault = request.action == "end_lost_clients"
        why = "no client has been hit by a fault" if fault else "no process is known that keeps it from answering"
        why = left_out(request.action, daemon) or why
        return Preview(title, error=why, error_status=rule)
    chosen = request.clients or wanted
    if strangers := [key for key in chosen if key not in wanted]:
        why = f"process {strangers[0].pid} is not, or no longer, one of those to end: " + _pids(wanted)
        return Preview(title, error=why, error_status=rule)
    clients = processes(daemon)
    if closed := [key for key in chosen if not _permitted(clients.get(key), daemon)]:
        why = f"process {closed[0].pid} belongs to another user; only that user and root may end it"
        return Preview(title, error=why, error_status=ExitStatus.NOT_PERMITTED)
    hits = tuple(_line(key, clients.get(key)) for key in chosen)
    if request.action == "unblock" and daemon.health == "held":
        facts = (
            ("ends", f"process {chosen[0].pid}, which holds a control session open; no client is touched"),
            ("then", "the daemon answers again at once"),
        )
        return Preview(title, facts, hits=hits, warnings=("the person who works in that session loses it",))
    if request.action == "unblock":
        facts = (
            ("ends", f"process {chosen[0].pid}; its GPU work was ended by the first terminate_client"),
            ("then", "the daemon answers again at once"),
        )
        return Preview(title, facts, hits=hits)
    left = len(wanted) - len(chosen)
    then = "the server takes new clients again"
    if left:
        then = f"{left} more {'have' if left > 1 else 'has'} to end before the server takes new clients"
    facts = (
        ("ends", f"{len(chosen)} process{'es' if len(chosen) > 1 else ''} whose CUDA contexts are lost already"),
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
    return Preview(title, facts, hits=hits, others=others, warnings=warnings)


class Rescue:
    """One request, carried out: every process is held by a pidfd and checked once more before it is signalled."""

    def __init__(
        self,
        control: MpsControl,
        audit: AuditLog,
        boot: str,
        grace: float,
        progress: Progress,
        find_speaker: Callable[[Path], Speaker],
    ) -> None:
        self._control = control
        self._find_speaker = find_speaker
        self._audit = audit
        self._boot_id = boot
        self._grace = grace
        self._progress = progress

    async def run(self, request: Request, daemon: Daemon) -> Result:
        """Ends all of them at the same time; one that cannot be ended does not save the others."""
        keys = request.clients or targets(request.action, daemon)
        clients = processes(daemon)
        guard = await Guard.begin(request.pipe_dir, self._find_speaker)
        self._progress("the daemon is asked first")
        if (refused := await self._check(request, daemon, keys)) is not None:
            status, text = refused
            self._write(request, f"kill {' '.join(str(key.pid) for key in keys)}", None, None, status, text)
            return Result(request, status, text, ("nothing was sent",))
        ends = await asyncio.gather(*(self._end(request, key, clients.get(key), guard) for key in keys))
        details = tuple(
            f"NVML does not tell whether {key.pid} is a client: not checked"
            for key in keys
            if key in {client.key for client in daemon.clients()} and clients[key].listed is None
        )
        details += tuple(f"{_line(key, clients.get(key))}: {text}" for key, (_, text) in zip(keys, ends, strict=True))
        failed = [(key, status, text) for key, (status, text) in zip(keys, ends, strict=True) if status]
        if failed:
            key, status, text = failed[0]
            return Result(request, status, f"process {key.pid}: {text}", details)
        what = f"{len(keys)} process{'es' if len(keys) > 1 else ''} ended"
        return Result(request, ExitStatus.DONE, what, details)

    async def _check(
        self, request: Request, daemon: Daemon, keys: tuple[ProcessKey, ...]
    ) -> tuple[ExitStatus, str] | None:
        """Why none is ended, by how the daemon behaves now and by NVML; None where both bear the claim out."""
        rule = ExitStatus.REFUSED_BY_SAFETY_RULE
        of = {client.key: client for client in daemon.clients()}
        if strangers := [key for key in keys if key in of and of[key].listed is False]:
            return rule, f"NVML does not list process {strangers[0].pid} as a client of MPS"
        if request.action == "unblock":
            return await self._check_silence(daemon)
        for server in daemon.servers:
            mine = [key for key in keys if key in {client.key for client in server.clients}]
            if not mine:
                continue
            status = await self._control.get_server_status(server.pid)
            if status.value is None:
                return STATUS[status.outcome], f"whether server {server.pid} is in FAULT is not known: {status.message}"
            if status.value != "FAULT":
                return rule, f"server {server.pid} is not in FAULT: the daemon says {status.value}"
            listed = await self._control.get_client_list(server.pid)
            if listed.value is None:
                return STATUS[listed.outcome], f"who is hit is not known: {listed.message}"
            if gone := [key for key in mine if key.pid not in listed.value and process_key(key.pid) == key]:
                return rule, f"server {server.pid} does not list process {gone[0].pid}"
        return None

    async def _check_silence(self, daemon: Daemon) -> tuple[ExitStatus, str] | None:
        answer = await self._control.get_server_list()
        rule = ExitStatus.REFUSED_BY_SAFETY_RULE
        if answer.outcome in {Outcome.OK, Outcome.REFUSED, Outcome.NOT_PERMITTED}:
            return rule, "the daemon answers: nothing has to be ended for that"
        wanted = Outcome.BLOCKED if daemon.health == "blocked" else Outcome.HELD
        if answer.outcome is not wanted:
            return (
                STATUS[answer.outcome],
                f"the daemon is not {daemon.health}, as was thought: {answer.message}",
            )
        if wanted is Outcome.HELD:
            now, before = answer.holder, daemon.holder
            if now is None or before is None or now.key != before.key:
                return rule, "another session holds the daemon now: look again"
            theirs = seen_by(now.pid, Path(_session_directory(now.pid)))
            if theirs is None or theirs != file_id(daemon.pipe_dir):
                return rule, f"the session of process {now.pid} is one of another daemon, as that process sees it"
        return None

    async def _end(
        self, request: Request, key: ProcessKey, client: Client | None, guard: Guard
    ) -> tuple[ExitStatus, str]:
        opened = open_pidfd(key)
        if isinstance(opened, PidFd):
            with opened as process:
                status, text = await end_process(process, self._grace, self._progress, guard)
        elif opened.gone:
            status, text = ExitStatus.DONE, "it had ended already"
        else:
            status = ExitStatus.NOT_PERMITTED if opened.not_permitted else ExitStatus.REFUSED_BY_SAFETY_RULE
            text = f"nothing was sent: {opened.message}"
        self._write(request, f"kill {key.pid}", key, client, status, text)
        self._progress(f"{key.pid}: {text}")
        return status, text

    def _write(
        self,
        request: Request,
        command: str,
        key: ProcessKey | None,
        client: Client | None,
        status: ExitStatus,
        text: str,
    ) -> None:
        trouble = self._audit.write(
            action=request.action,
            pipe_dir=path_text(request.pipe_dir),
            euid=os.geteuid(),
            command=command,
            boot_id=self._boot_id,
            client=[key.pid, key.start_ticks] if key else None,
            client_user=client.user if client else None,
            status=int(status),
            result=text,
        )
        if trouble:
            self._progress(trouble)


def _session_directory(pid: int) -> str:
    """The pipe directory of a control session, as its process names it."""
    return (read_environment(pid) or {}).get("CUDA_MPS_PIPE_DIRECTORY") or os.fspath(DEFAULT_PIPE_DIR)


def _permitted(client: Client | None, daemon: Daemon) -> bool:
    """Whether this user may signal it, as far as one can tell: a simulated client's user is a made-up one."""
    return client is None or client.uid is None or daemon.simulated or os.geteuid() in {0, client.uid}


def _line(key: ProcessKey, client: Client | None) -> str:
    return f"{key.pid} {UNKNOWN}" if client is None else client_line(client)


def _pids(keys: tuple[ProcessKey, ...]) -> str:
    return ", ".join(str(key.pid) for key in keys)
