"""The one wrapper around all operations: read-only mode, the newest snapshot, the daemon's turn, the audit lines."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from mpstui.control.answer import Outcome
from mpstui.control.channel import MEANT, nothing_sent
from mpstui.control.mps import MpsControl
from mpstui.core.model import Daemon, ProcessKey, Snapshot
from mpstui.core.text import path_text
from mpstui.core.trust import NOBODY, Meant, Speaker, is_anothers
from mpstui.observe.discovery import find_speaker, lock_holder
from mpstui.observe.sources import NodeSources
from mpstui.operations.audit import REMEDY as AUDIT_REMEDY
from mpstui.operations.audit import AuditLog, Identity
from mpstui.operations.lock import NoTurn, turn
from mpstui.operations.operation import Operation, Work, refused_result
from mpstui.operations.registry import ON_OVERVIEW, operation
from mpstui.operations.types import READ_ONLY, Danger, ExitStatus, Preview, Progress, Request, Result
from mpstui.system.procfs import boot_id, process_key


def _whose(daemon: Daemon | None) -> tuple[tuple[str, str], ...]:
    """The fact that a daemon is neither root's nor one's own: who names a directory need not know who has come there
    since."""
    if daemon is None or not daemon.runs or not is_anothers(daemon.speaker.uid, os.geteuid()):
        return ()
    return (("daemon", daemon.speaker.why),)


class ObservedNode(Protocol):
    """What the runner needs of the collector."""

    @property
    def snapshot(self) -> Snapshot | None: ...

    @property
    def sources(self) -> NodeSources: ...

    def control_for(self, pipe_dir: Path) -> MpsControl: ...

    def set_compute_mode(self, uuid: str, mode: str) -> str | None: ...

    def request_refresh(self, pipe_dir: Path | None = None) -> None: ...

    def heard(self, pipe_dir: Path) -> Snapshot | None: ...

    def changed(self, pipe_dir: Path) -> None: ...


class OperationRunner:
    """The operation layer. ``grace`` is the time in seconds between SIGTERM and SIGKILL."""

    actions: tuple[Operation, ...] = ON_OVERVIEW

    def __init__(
        self,
        node: ObservedNode,
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
        self._terminated: set[Identity] = set()

    def unavailable(
        self, action: Operation, snapshot: Snapshot | None, pipe_dir: Path, clients: Sequence[ProcessKey] = ()
    ) -> str | None:
        """Why the operation cannot be chosen now, in words; None where it can."""
        if (past := self._past(snapshot)) is not None:
            return past
        if self.read_only:
            return READ_ONLY
        if snapshot is None:
            return "the node has not been read yet"
        return action.unavailable(snapshot, pipe_dir, clients)

    def _past(self, snapshot: Snapshot | None) -> str | None:
        """Why nothing can be changed, where that is not of now from which it is asked, or which is shown."""
        shown = self._node.snapshot
        found = (each.past for each in (snapshot, shown) if each is not None and each.past is not None)
        return next((past.why for past in found), None)

    def preview(self, request: Request, snapshot: Snapshot) -> Preview:
        """What the request would do; instant, sends nothing."""
        shown = operation(request.action).preview(request, snapshot)
        shown = shown._replace(facts=(*_whose(snapshot.daemon(request.pipe_dir)), *shown.facts))
        refused = self._past(snapshot) or (READ_ONLY if self.read_only else None)
        if refused is not None:
            return Preview(shown.title, shown.facts, error=refused, error_status=ExitStatus.REFUSED_BY_SAFETY_RULE)
        return shown

    async def execute(self, request: Request, snapshot: Snapshot, progress: Progress = lambda text: None) -> Result:
        """Check again on the newest snapshot, carry out, read back. Every way out leaves an audit line.

        ``snapshot`` is what was shown to whoever was asked: the change goes to the daemon of that one, or nowhere.
        """
        found, asked = operation(request.action), snapshot
        snapshot = self._node.snapshot or snapshot
        shown = self.preview(request, asked if asked.past is not None else snapshot)
        if shown.error is not None:
            return self.refuse(request, shown.error, shown.error_status)
        unwritten = self._announce(request)
        if unwritten is not None and found.danger is Danger.HARM:
            status = ExitStatus.REFUSED_BY_SAFETY_RULE
            return Result(request, status, f"nothing was sent: {unwritten}", remedy=AUDIT_REMEDY)
        before = MEANT.get()
        meant = (
            before if before is not None and before.pipe_dir == request.pipe_dir else await self._meant(request, asked)
        )
        work = Work(
            request,
            snapshot,
            self._node.control_for,
            self._audit,
            self._boot_id,
            self._terminated,
            self.grace,
            progress,
            lambda: self._node.heard(request.pipe_dir),
            lambda pipe_dir: self._speaker_of(pipe_dir, meant),
            lambda: self._another(meant),
            self,
            lambda: self._node.sources,
            lambda uuid, mode: self._node.set_compute_mode(uuid, mode),
        )
        proved = False
        MEANT.set(meant)
        try:
            result = await self._in_turn(found, work)
            proved = result.done and work.read is not None
        except asyncio.CancelledError:
            self._write(work, Result(request, ExitStatus.NO_ANSWER, found.given_up))
            raise
        except Exception as error:
            text = f"an error of mpstui itself stopped it: {type(error).__name__}: {error}"
            self._write(work, Result(request, ExitStatus.NO_ANSWER, text))
            raise
        finally:
            MEANT.set(before)
            if proved:
                self._node.changed(request.pipe_dir)
            else:
                self._node.request_refresh(request.pipe_dir)
        if not work.told:
            result = self._write(work, result)
            if unwritten is not None and unwritten not in result.details:
                result = result._replace(details=(*result.details, unwritten))
        return result

    async def _in_turn(self, found: Operation, work: Work) -> Result:
        """With the daemon's turn, where the operation wants it; one that changes a limit may go without."""
        if not found.in_turn:
            return await self._as_meant(found, work)
        pipe_dir = work.request.pipe_dir
        try:
            async with turn(pipe_dir, work.find_speaker(pipe_dir)):
                return await self._as_meant(found, work)
        except NoTurn as error:
            if error.busy or found.danger is Danger.HARM:
                status = ExitStatus.NO_ANSWER if error.busy else ExitStatus.REFUSED_BY_SAFETY_RULE
                return refused_result(work.request, str(error), status)
            work.progress(f"{error}; another mpstui may change it at the same time")
            return await self._as_meant(found, work)

    async def _as_meant(self, found: Operation, work: Work) -> Result:
        """For the daemon that was asked about."""
        if not found.is_for_process(work.request) and (why := await asyncio.to_thread(work.another)) is not None:
            unknown = (await asyncio.to_thread(self._find_speaker, work.request.pipe_dir)).uid is None
            status = ExitStatus.NOT_PERMITTED if unknown else ExitStatus.REFUSED_BY_SAFETY_RULE
            return Result(work.request, status, why)
        return await found.run(work)

    async def _meant(self, request: Request, asked: Snapshot) -> Meant:
        """Of what was asked; where nobody was, of what is there as it begins."""
        daemon, where = asked.daemon(request.pipe_dir), request.pipe_dir
        key = None if daemon is None else daemon.key
        process = None if key is None else (key.pid, key.start_ticks)
        if daemon is not None and daemon.speaker != NOBODY:
            return Meant(where, daemon.speaker, process)
        if where == Path():
            return Meant(where)
        there = await asyncio.to_thread(self._find_speaker, where)
        return Meant(where, NOBODY if there.uid is None else there, process)

    def _speaker_of(self, pipe_dir: Path, meant: Meant) -> Speaker:
        now = self._find_speaker(pipe_dir)
        why = meant.why_not(now) if pipe_dir == meant.pipe_dir else None
        return now if why is None or now.uid is None else Speaker(None, why, now.stamp)

    def _another(self, meant: Meant) -> str | None:
        if meant.speaker == NOBODY:
            return None
        now, (pid, ticks) = self._find_speaker(meant.pipe_dir), meant.process or (0, None)
        why = meant.why_not(now)
        ended = ticks is not None and process_key(pid) != ProcessKey(pid, ticks)
        if why is None and ended and lock_holder(meant.pipe_dir) not in {None, 0, pid}:
            why = "the daemon has ended since mpstui looked at it, and another one runs there"
        if why is None or (now.uid is None and not os.path.lexists(meant.pipe_dir / "control")):
            return None  # where there is none any more, that is told by who looks for it
        return nothing_sent(meant.pipe_dir, now, why)

    def refuse(self, request: Request, why: str, status: ExitStatus) -> Result:
        """What comes of a request that is not carried out; it leaves an audit line too."""
        result = refused_result(request, why, status)
        self._line(request, result)
        return result

    def _announce(self, request: Request) -> str | None:
        """The audit line before: what is about to be done, to whom. Answers why it could not be written."""
        fields: dict[str, object] = {
            "command": "",
            "boot_id": self._boot_id,
            "clients": [[key.pid, key.start_ticks] for key in request.clients],
            "value": request.value,
            "server": request.server_pid,
            "device": request.device,
            "status": None,
            "result": "about to be done",
        }
        return self._append(request, fields)

    def _write(self, work: Work, result: Result) -> Result:
        """The audit line after; told where it could not be written."""
        trouble = self._line(work.request, result, work)
        return result._replace(details=(*result.details, trouble)) if trouble else result

    def _line(self, request: Request, result: Result, work: Work | None = None) -> str | None:
        sent, read = (work.sent, work.read) if work is not None else (None, None)
        fields: dict[str, object] = {
            "command": sent.command if sent is not None else "",
            "sent": sent is not None and sent.asked and sent.outcome not in {Outcome.NO_BINARY, Outcome.ABSENT},
            "answer": sent.stdout.decode("utf-8", "backslashreplace")[:200] if sent else "",
            "read_back": read.stdout.decode("utf-8", "backslashreplace")[:200] if read else None,
            "status": int(result.status),
            "result": result.message,
        }
        return self._append(request, fields)

    def _append(self, request: Request, fields: dict[str, object]) -> str | None:
        """One audit line; why it could not be written."""
        where = None if request.pipe_dir == Path() else path_text(request.pipe_dir)
        known = {"action": request.action, "pipe_dir": where, "euid": os.geteuid()}
        return self._audit.write(**{**known, **fields, **operation(request.action).line(request)})
