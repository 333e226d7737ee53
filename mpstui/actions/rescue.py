"""Ends processes that hold everybody else up: those that a fault has hit, and the one that blocks the daemon."""

from __future__ import annotations

import asyncio
import os

from mpstui.actions.audit import AuditLog
from mpstui.actions.check import client_line
from mpstui.actions.killing import end_process
from mpstui.actions.types import ActionId, ExitStatus, Others, Preview, Progress, Request, Result
from mpstui.model import Client, Daemon, ProcessKey, Snapshot
from mpstui.observe.processes import PidFd, open_pidfd
from mpstui.text import UNKNOWN, path_text

_TITLES = {"end_lost_clients": "End lost clients", "unblock": "Unblock the daemon"}


def targets(action: ActionId, daemon: Daemon) -> tuple[ProcessKey, ...]:
    """The processes that the action is there to end, by the present state; empty where there is nothing to do.

    ``end_lost_clients``: what a fatal fault has hit; they have lost their contexts, and nobody can connect while one
    of them lives (fact 18). ``unblock``: the client whose second terminate_client blocks the daemon (fact 16), or the
    process that surely is the one that holds its control session open (fact 2).
    """
    if action == "end_lost_clients":
        return tuple(key for server in daemon.servers if server.fault for key in server.fault.affected)
    if action == "unblock" and daemon.health == "blocked" and daemon.blocked_by is not None:
        return (daemon.blocked_by,)
    if action == "unblock" and daemon.health == "held" and daemon.holder is not None and daemon.holder.certain:
        return (daemon.holder.key,)
    return ()


def processes(daemon: Daemon) -> dict[ProcessKey, Client]:
    """All that a rescue can end, the holder of the control session described as a client is."""
    found = {client.key: client for client in daemon.clients()}
    if (holder := daemon.holder) is not None:
        where = f" on {holder.terminal}" if holder.terminal else ""
        found[holder.key] = Client(holder.key, user=holder.user, command=f"control session{where}")
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
        return Preview(title, facts, hits=hits, warnings=("whoever works in that session loses it",))
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

    def __init__(self, audit: AuditLog, boot: str, grace: float, progress: Progress) -> None:
        self._audit = audit
        self._boot_id = boot
        self._grace = grace
        self._progress = progress

    async def run(self, request: Request, daemon: Daemon) -> Result:
        """Ends all of them at the same time; one that cannot be ended does not save the others."""
        keys = request.clients or targets(request.action, daemon)
        clients = processes(daemon)
        ends = await asyncio.gather(*(self._end(request, key, clients.get(key)) for key in keys))
        details = tuple(f"{_line(key, clients.get(key))}: {text}" for key, (_, text) in zip(keys, ends, strict=True))
        failed = [(key, status, text) for key, (status, text) in zip(keys, ends, strict=True) if status]
        if failed:
            key, status, text = failed[0]
            return Result(request, status, f"process {key.pid}: {text}", details)
        what = f"{len(keys)} process{'es' if len(keys) > 1 else ''} ended"
        return Result(request, ExitStatus.DONE, what, details)

    async def _end(self, request: Request, key: ProcessKey, client: Client | None) -> tuple[ExitStatus, str]:
        opened = open_pidfd(key)
        if isinstance(opened, PidFd):
            with opened as process:
                status, text = await end_process(process, self._grace, self._progress)
        elif opened.gone:
            status, text = ExitStatus.DONE, "it had ended already"
        else:
            status = ExitStatus.NOT_PERMITTED if opened.not_permitted else ExitStatus.REFUSED_BY_SAFETY_RULE
            text = f"nothing was sent: {opened.message}"
        trouble = self._audit.write(
            action=request.action,
            pipe_dir=path_text(request.pipe_dir),
            euid=os.geteuid(),
            command=f"kill {key.pid}",
            boot_id=self._boot_id,
            client=[key.pid, key.start_ticks],
            client_user=client.user if client else None,
            status=int(status),
            result=text,
        )
        self._progress(f"{key.pid}: {text}")
        if trouble:
            self._progress(trouble)
        return status, text


def _permitted(client: Client | None, daemon: Daemon) -> bool:
    """Whether this user may signal it, as far as one can tell: a simulated client's user is a made-up one."""
    return client is None or client.uid is None or daemon.simulated or os.geteuid() in {0, client.uid}


def _line(key: ProcessKey, client: Client | None) -> str:
    return f"{key.pid} {UNKNOWN}" if client is None else client_line(client)


def _pids(keys: tuple[ProcessKey, ...]) -> str:
    return ", ".join(str(key.pid) for key in keys)
