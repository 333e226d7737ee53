"""Carries requests out: checks, sends, reads back, writes the audit line; read-only mode is enforced here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from mpstui.control.answer import Answer, Outcome
from mpstui.control.mps import MpsControl
from mpstui.core.model import Daemon, ProcessKey, Snapshot
from mpstui.core.text import format_percentage, format_size, path_text, same_limit, same_percentage
from mpstui.core.trust import Speaker
from mpstui.observe.discovery import find_speaker
from mpstui.operations.audit import REMEDY as AUDIT_REMEDY
from mpstui.operations.audit import AuditLog, boot_id
from mpstui.operations.check import (
    PRIORITIES,
    Refused,
    device_ordinal,
    limit_words,
    memory_text,
    parse_memory,
    parse_percentage,
    parse_priority,
    parse_uid,
    preview,
    reachable_daemon,
    refusal,
)
from mpstui.operations.ending import Ending
from mpstui.operations.registry import ACTIONS, action
from mpstui.operations.rescue import Rescue, preview_rescue
from mpstui.operations.turn import NoTurn, turn
from mpstui.operations.types import STATUS, Action, Danger, ExitStatus, Preview, Progress, Request, Result

READ_ONLY = "mpstui was started with --read-only"


class Node(Protocol):
    """What the runner needs of the collector."""

    @property
    def snapshot(self) -> Snapshot | None: ...

    def control_for(self, pipe_dir: Path) -> MpsControl: ...

    def request_refresh(self, pipe_dir: Path | None = None) -> None: ...


class Runner:
    """The action layer. ``grace`` is the time in seconds between SIGTERM and SIGKILL."""

    actions: tuple[Action, ...] = ACTIONS

    def __init__(
        self,
        node: Node,
        audit: AuditLog,
        *,
        read_only: bool = False,
        grace: float = 5.0,
        speaker: Callable[[Path], Speaker] | None = None,
    ) -> None:
        self._find_speaker = speaker or find_speaker
        self.read_only = read_only
        self.grace = grace
        self._node = node
        self._audit = audit
        self._boot_id = boot_id()
        self._terminated: set[ProcessKey] = set()

    def unavailable(
        self, action: Action, snapshot: Snapshot | None, pipe_dir: Path, clients: Sequence[ProcessKey] = ()
    ) -> str | None:
        """Why the action cannot be chosen now, in words; None where it can."""
        if self.read_only:
            return READ_ONLY
        if snapshot is None:
            return "the node has not been read yet"
        if action.finds_clients:
            return self.preview(Request(action.id, pipe_dir), snapshot).error
        if action.danger is Danger.HARM:
            if not clients:
                return "choose a client first"
            return refusal(Request(action.id, pipe_dir, clients=tuple(clients)), snapshot)
        try:
            reachable_daemon(Request(action.id, pipe_dir), snapshot)
        except Refused as refused:
            return str(refused)
        return None

    def preview(self, request: Request, snapshot: Snapshot) -> Preview:
        """What the request would do; instant, sends nothing."""
        rescue = action(request.action).finds_clients
        shown = preview_rescue(request, snapshot) if rescue else preview(request, snapshot)
        if self.read_only:
            return Preview(shown.title, shown.facts, error=READ_ONLY, error_status=ExitStatus.REFUSED_BY_SAFETY_RULE)
        return shown

    async def execute(self, request: Request, snapshot: Snapshot, progress: Progress = lambda text: None) -> Result:
        """Check again on the newest snapshot, send, read back. Every way out leaves an audit line."""
        snapshot = self._node.snapshot or snapshot
        shown = self.preview(request, snapshot)
        if shown.error is not None:
            return self.refuse(request, shown.error, shown.error_status)
        unwritten = self._announce(request)
        if unwritten is not None and action(request.action).danger is Danger.HARM:
            status = ExitStatus.REFUSED_BY_SAFETY_RULE
            return Result(request, status, f"nothing was sent: {unwritten}", remedy=AUDIT_REMEDY)
        try:
            if action(request.action).finds_clients and (blocked := snapshot.daemon(request.pipe_dir)) is not None:
                control = self._node.control_for(request.pipe_dir)
                rescue = Rescue(control, self._audit, self._boot_id, self.grace, progress, self._find_speaker)
                return await rescue.run(request, blocked)
            daemon = reachable_daemon(request, snapshot)
            control = self._node.control_for(request.pipe_dir)
            if request.clients:
                ending = Ending(
                    control,
                    self._audit,
                    self._boot_id,
                    self._terminated,
                    self.grace,
                    progress,
                    lambda: self._newest(request.pipe_dir),
                    self._find_speaker,
                )
                return await ending.run(request, daemon)
            try:
                async with turn(request.pipe_dir, self._find_speaker(request.pipe_dir)):
                    progress("sending")
                    sent, read, result = await self._change(request, snapshot, control)
            except NoTurn as error:
                if error.busy:
                    return self.refuse(request, str(error), ExitStatus.NO_ANSWER)
                progress(f"{error}; another mpstui may change it at the same time")
                sent, read, result = await self._change(request, snapshot, control)
            if result.done and request.server_pid is None:
                result = result._replace(details=(*result.details, *_keep_their_own(request, daemon)))
        finally:
            self._node.request_refresh(request.pipe_dir)
        result = self._write(request, sent.command, sent, result, read)
        if unwritten is not None and unwritten not in result.details:
            result = result._replace(details=(*result.details, unwritten))
        return result

    def _announce(self, request: Request) -> str | None:
        """The audit line before: what is about to be done, to whom. Answers why it could not be written."""
        return self._audit.write(
            action=request.action,
            pipe_dir=path_text(request.pipe_dir),
            euid=os.geteuid(),
            command="",
            boot_id=self._boot_id,
            clients=[[key.pid, key.start_ticks] for key in request.clients],
            value=request.value,
            server=request.server_pid,
            device=request.device,
            status=None,
            result="about to be done",
        )

    def refuse(self, request: Request, why: str, status: ExitStatus) -> Result:
        """What comes of a request that is not carried out; it leaves an audit line too."""
        result = Result(request, status, why, ("nothing was sent",))
        self._write(request, "", None, result)
        return result

    def _newest(self, pipe_dir: Path) -> Daemon | None:
        return self._node.snapshot.daemon(pipe_dir) if self._node.snapshot else None

    async def _change(
        self, request: Request, snapshot: Snapshot, control: MpsControl
    ) -> tuple[Answer[object], Answer[object] | None, Result]:
        daemon = reachable_daemon(request, snapshot)
        server = request.server_pid
        sent: Answer[object]
        read: Answer[object]
        if request.action == "set_active_thread_percentage":
            value = parse_percentage(request.value)
            sent, read = await control.change_active_thread_percentage(value, server)
            same = isinstance(read.value, float) and same_percentage(value, read.value)
            return sent, read, _judge(request, sent, read, same, format_percentage(value), format_percentage)
        if request.action == "set_pinned_mem_limit":
            size = parse_memory(request.value)
            text = memory_text(size)
            ordinal = device_ordinal(daemon, request.device)
            sent, read = await control.change_pinned_mem_limit(ordinal, text, server)
            return (
                sent,
                read,
                _judge(request, sent, read, _same_limit(size, read.value), _limit_words(size), _limit_words),
            )
        if request.action == "set_client_priority":
            priority = parse_priority(request.value)
            sent, read = await control.change_client_priority(priority)
            return sent, read, _judge(request, sent, read, read.value == priority, PRIORITIES[priority], PRIORITIES.get)
        uid = parse_uid(request.value)
        sent = await control.start_server(uid)
        if not sent.ok:
            return sent, None, _failed(request, sent)
        return (
            sent,
            None,
            Result(
                request,
                ExitStatus.DONE,
                f"a server for UID {uid} was asked for",
                ("it shows among the servers when it is ready; MPS says no more than that",),
            ),
        )

    def _write(
        self,
        request: Request,
        command: str,
        sent: Answer[object] | None,
        result: Result,
        read: Answer[object] | None = None,
    ) -> Result:
        trouble = self._audit.write(
            action=request.action,
            pipe_dir=path_text(request.pipe_dir),
            euid=os.geteuid(),
            command=command,
            sent=sent is not None and sent.outcome not in {Outcome.NO_BINARY, Outcome.ABSENT},
            answer=sent.stdout.decode("utf-8", "backslashreplace")[:200] if sent else "",
            read_back=read.stdout.decode("utf-8", "backslashreplace")[:200] if read else None,
            status=int(result.status),
            result=result.message,
        )
        if trouble:
            return Result(request, result.status, result.message, (*result.details, trouble), result.remedy)
        return result


def _same_limit(size: int | None, read: object) -> bool:
    return same_limit(size, read) if read is None or isinstance(read, int) else False


def _keep_their_own(request: Request, daemon: Daemon) -> Iterator[str]:
    """The running servers, which a new default does not reach (``commands.txt`` of the recordings)."""
    for server in daemon.servers:
        if request.action == "set_active_thread_percentage":
            yield f"server {server.pid} keeps its own: {format_percentage(server.active_thread_percentage)}"
        elif request.action == "set_pinned_mem_limit":
            limit = server.pinned_mem_limits.get(device_ordinal(daemon, request.device))
            yield f"server {server.pid} keeps its own: {limit_words(limit, server)}"


def _limit_words(size: int | None) -> str:
    return "none" if size is None else format_size(size)


_IN_FORCE = {
    Outcome.BLOCKED: "it may still be carried out when the daemon wakes up: read the value again then",
    Outcome.UNREADABLE: "whether it was carried out is not known: read the value again",
    Outcome.NO_BINARY: "nothing was sent",
    Outcome.HELD: "nothing reached the daemon",
    Outcome.BUSY: "nothing reached the daemon",
    Outcome.ABSENT: "nothing reached a daemon",
}
"""What is known of the value after a command that ended so; a daemon that refused has left it as it was."""


def _failed(request: Request, answer: Answer[object]) -> Result:
    known = _IN_FORCE.get(answer.outcome, "the value is as it was")
    return Result(request, STATUS[answer.outcome], answer.message, (known,))


def _judge(
    request: Request,
    sent: Answer[object],
    read: Answer[object],
    same: bool,
    wanted: str,
    words: Callable[..., str | None],
) -> Result:
    if not sent.ok:
        return _failed(request, sent)
    if not read.ok:
        return Result(
            request,
            STATUS[read.outcome],
            f"sent, but the value could not be read back: {read.message}",
            (f"sent: {sent.command}",),
        )
    found = "none" if read.value is None else words(read.value) or str(read.value)
    if not same:
        return Result(
            request,
            ExitStatus.REFUSED_BY_DAEMON,
            f"the daemon did not take it: {wanted} was sent, {found} is in force",
            (f"sent: {sent.command}",),
        )
    return Result(request, ExitStatus.DONE, f"in force: {found}", (f"sent: {sent.command}", f"read back: {found}"))
