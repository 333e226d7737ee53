"""Stops a control daemon: says who will be hit, waits, shows the clients going, and cleans up after it (fact 19)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mpstui.control.answer import Answer, Outcome
from mpstui.control.mps import MpsControl
from mpstui.core.model import Daemon, ProcessKey, Snapshot
from mpstui.core.text import path_text
from mpstui.core.trust import Speaker
from mpstui.daemons.stale import clean
from mpstui.daemons.start import READ_ONLY
from mpstui.observe.discovery import find_speaker, not_its_daemon
from mpstui.observe.procfs import PidFd, open_pidfd, process_key
from mpstui.operations.audit import REMEDY, AuditLog
from mpstui.operations.check import Refused, client_line, reachable_daemon
from mpstui.operations.guard import Guard
from mpstui.operations.killing import end_process
from mpstui.operations.turn import NoTurn, turn
from mpstui.operations.types import STATUS, ExitStatus, Progress, Request

FORCE_AFTER: Final = 1
"""Seconds that ``--force`` leaves the clients."""
_NO_END: Final = 30 * 86400.0
"""Seconds: a quit without a limit waits as long as its clients take."""
_LOOK: Final = 0.2
_SHOWN: Final = 5
_LEAVING: Final = 10.0
"""Seconds that the daemon's process may take to end once quit has answered; it took milliseconds."""


@dataclass(frozen=True, slots=True)
class StopPreview:
    """What a stop would do, from a snapshot, without asking anybody."""

    hits: tuple[str, ...]
    """The clients that it waits for, or ends, one line each."""
    effect: str
    """One sentence."""
    error: str | None = None
    error_status: ExitStatus = ExitStatus.DONE


@dataclass(frozen=True, slots=True)
class Stopped:
    """What came of a stop."""

    status: ExitStatus
    message: str
    """One sentence."""
    details: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        return self.status is ExitStatus.DONE


def preview_stop(snapshot: Snapshot, pipe_dir: Path, timeout: int | None, force: bool) -> StopPreview:
    """Whom it hits and how long it waits. With ``force`` a daemon that does not answer is ended as a process."""
    daemon = snapshot.daemon(pipe_dir)
    hits = tuple(client_line(client) for client in daemon.clients()) if daemon else ()
    error, status = None, ExitStatus.DONE
    try:
        reachable_daemon(Request("start_server", pipe_dir), snapshot)
    except Refused as refused:
        unanswering = refused.status is ExitStatus.NO_ANSWER and daemon is not None and daemon.key is not None
        if not (force and unanswering):
            hint = "; --force ends its process" if unanswering else ""
            error, status = f"{refused}{hint}", refused.status
    limit = FORCE_AFTER if force else timeout
    if not hits and daemon is not None and not daemon.servers_known:
        then = "it waits for all that there are" if limit is None else f"the GPU work of any is ended after {limit} s"
        effect = f"which clients are connected is not known, since it cannot be asked: {then}"
    elif not hits:
        effect = "no client is connected: it ends at once"
    elif limit is None:
        effect = f"it waits until {_clients(len(hits))} ended, and serves nobody else meanwhile"
    else:
        effect = f"{_clients(len(hits))} at most {limit} s to end; then their GPU work is ended with error 806"
    return StopPreview(hits, effect, error, status)


async def stop(
    daemon: Daemon,
    control: MpsControl,
    audit: AuditLog,
    *,
    timeout: int | None = None,
    force: bool = False,
    read_only: bool = False,
    progress: Progress = lambda text: None,
    speaker: Callable[[Path], Speaker] = find_speaker,
) -> Stopped:
    """``quit``, with ``timeout`` or ``force`` as ``quit -t``; then the stale files. Leaves an audit line.

    By ``force`` the daemon's turn is held over question and signals, and the process of one that answers nobody is
    ended where it is the daemon's by what the kernel says, as a client's is (``Guard``).
    """
    limit = FORCE_AFTER if force else timeout
    command = "quit" if limit is None else f"quit -t {limit}"
    if read_only:
        return refused(audit, daemon, Stopped(ExitStatus.REFUSED_BY_SAFETY_RULE, READ_ONLY))
    before = audit.write(
        action="stop_daemon",
        pipe_dir=path_text(daemon.pipe_dir),
        euid=os.geteuid(),
        daemon=daemon.pid,
        command=command,
        result="about to be sent",
    )
    if before is not None:  # it ends the clients' work
        return Stopped(ExitStatus.REFUSED_BY_SAFETY_RULE, f"nothing was sent: {before}", (REMEDY,))
    try:
        if force:
            guard = await Guard.begin(daemon.pipe_dir, speaker)
            async with turn(daemon.pipe_dir, guard.speaker):
                result = await _stop(daemon, control, command, limit, guard, progress)
        else:
            # It may wait for days, and whoever wants to force it meanwhile needs the turn.
            result = await _stop(daemon, control, command, limit, None, progress)
    except NoTurn as error:
        status = ExitStatus.NO_ANSWER if error.busy else ExitStatus.REFUSED_BY_SAFETY_RULE
        result = Stopped(status, f"nothing was sent: {error}")
    except asyncio.CancelledError:
        text = "given up waiting; the daemon may go on stopping when its clients have ended"
        _write(audit, daemon, command, Stopped(ExitStatus.NO_ANSWER, text))
        raise
    return _write(audit, daemon, command, result)


def refused(audit: AuditLog, daemon: Daemon, result: Stopped) -> Stopped:
    """A stop that nothing was sent for; it leaves an audit line all the same."""
    return _write(audit, daemon, "", result)


def remove_stale(audit: AuditLog, pipe_dir: Path) -> tuple[str, ...]:
    """``clean`` of what a daemon that is gone has left, with its audit lines."""
    fields = {"action": "remove_stale_files", "pipe_dir": path_text(pipe_dir), "euid": os.geteuid()}
    before = audit.write(**fields, result="about to be removed")
    lines = clean(pipe_dir)
    after = audit.write(**fields, result="; ".join(lines) or "nothing was removed")
    return (*lines, *dict.fromkeys(trouble for trouble in (before, after) if trouble))


async def _stop(
    daemon: Daemon,
    control: MpsControl,
    command: str,
    limit: int | None,
    guard: Guard | None,
    progress: Progress,
) -> Stopped:
    progress(command)
    task = asyncio.create_task(control.quit(limit, _deadline(control, limit, guard is not None)))
    try:
        await _watch(task, daemon, progress)
        answer = await task
    finally:
        task.cancel()
    name = path_text(daemon.pipe_dir)
    if not answer.ok:
        if guard is not None and daemon.key is not None and answer.outcome in {Outcome.HELD, Outcome.BLOCKED}:
            return await _kill(daemon, daemon.key, answer, guard, progress)
        return Stopped(STATUS[answer.outcome], f"the daemon in {name} was not stopped: {answer.message}")
    if not await _gone(daemon.key):
        return Stopped(ExitStatus.NO_ANSWER, f"quit was answered, but process {daemon.pid} is still there")
    return Stopped(ExitStatus.DONE, f"the daemon in {name} has ended", await asyncio.to_thread(clean, daemon.pipe_dir))


def _deadline(control: MpsControl, limit: int | None, force: bool) -> float | None:
    """Seconds that the answer to ``quit`` may take; ``None`` is what the control channel gives a terminate.

    By force an answer is waited for as for any other command: whoever has said ``--force`` to a daemon that does not
    answer has been told so, and wants it ended.
    """
    if limit is None:
        return _NO_END
    return control.channel.deadline + limit if force else None


async def _watch(task: asyncio.Task[Answer[None]], daemon: Daemon, progress: Progress) -> None:
    """Tells of the clients that are left each time that some have gone, until the task is done."""
    clients = list(daemon.clients())
    told = len(clients)
    while not task.done():
        await asyncio.wait({task}, timeout=_LOOK)
        clients = [client for client in clients if process_key(client.pid) == client.key]
        if len(clients) != told:
            told = len(clients)
            names = "; ".join(client_line(client) for client in clients[:_SHOWN])
            more = f" and {told - _SHOWN} more" if told > _SHOWN else ""
            progress(f"{told} left{': ' if names else ''}{names}{more}")


async def _kill(daemon: Daemon, key: ProcessKey, answer: Answer[None], guard: Guard, progress: Progress) -> Stopped:
    """Ends the process of a daemon that answers nobody. Its clients get 806 (fact 19)."""
    opened = open_pidfd(key)
    if not isinstance(opened, PidFd):
        return Stopped(STATUS[answer.outcome], f"{answer.message} It was not killed: {opened.message}")
    with opened as process:
        if (why := await asyncio.to_thread(not_its_daemon, daemon.pipe_dir, key.pid)) is not None:
            text = f"{answer.message.rstrip('.')}. It was not killed: {why}"
            return Stopped(ExitStatus.REFUSED_BY_SAFETY_RULE, text)
        status, text = await end_process(process, _LEAVING / 2, progress, guard)
    if status is not ExitStatus.DONE:
        return Stopped(status, f"{answer.message.rstrip('.')}. It was not killed: {text}")
    details = await asyncio.to_thread(clean, daemon.pipe_dir)
    name = path_text(daemon.pipe_dir)
    return Stopped(ExitStatus.DONE, f"the daemon in {name} did not answer and {_was(text)}", details)


def _was(text: str) -> str:
    return f"was {text}" if text.startswith("ended by") else "has ended"


async def _gone(key: ProcessKey | None) -> bool:
    if key is None:
        return True
    opened = open_pidfd(key)
    if not isinstance(opened, PidFd):
        return process_key(key.pid) != key
    with opened as process:
        return await process.wait(_LEAVING)


def _clients(count: int) -> str:
    return "1 client has" if count == 1 else f"{count} clients have"


def _write(audit: AuditLog, daemon: Daemon, command: str, result: Stopped) -> Stopped:
    trouble = audit.write(
        action="stop_daemon",
        pipe_dir=path_text(daemon.pipe_dir),
        euid=os.geteuid(),
        daemon=daemon.pid,
        command=command,
        status=int(result.status),
        result=result.message,
    )
    return Stopped(result.status, result.message, (*result.details, trouble)) if trouble else result
