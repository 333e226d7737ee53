"""Ends clients without harm to their neighbours: terminate_client first, then the process (facts 15–17)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from mpstui.control.answer import Answer, Outcome
from mpstui.control.mps import MpsControl
from mpstui.core.blast import server_of
from mpstui.core.model import Client, Daemon, ProcessKey
from mpstui.core.text import path_text
from mpstui.core.trust import Speaker
from mpstui.observe.procfs import PidFd, open_pidfd
from mpstui.operations.audit import AuditLog
from mpstui.operations.check import Refused, client_line, parse_uid
from mpstui.operations.guard import Guard
from mpstui.operations.killing import end_process
from mpstui.operations.turn import NoTurn, Turn, turn
from mpstui.operations.types import STATUS, ExitStatus, Progress, Request, Result

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
_SENT_BEFORE = "terminate_client was sent for it before; a second one would block the whole daemon"


class Ending:
    """One request to end clients, one after the other. The order is the safety rule:

    pidfd → start time and owner checked → the daemon's turn → not sent before → listed by the daemon →
    terminate_client → answer 0 → owner checked again → SIGTERM → grace → SIGKILL.
    A terminate that fails or runs out of time does not go on to a kill, nor to the next client. A client that is not
    proved to be a process of this PID namespace has no pidfd, and nothing is signalled for it.
    """

    def __init__(
        self,
        control: MpsControl,
        audit: AuditLog,
        boot: str,
        terminated: set[ProcessKey],
        grace: float,
        progress: Progress,
        newest: Callable[[], Daemon | None],
        find_speaker: Callable[[Path], Speaker],
    ) -> None:
        self._find_speaker = find_speaker
        self._control = control
        self._audit = audit
        self._boot_id = boot
        self._terminated = terminated
        self._grace = grace
        self._progress = progress
        self._newest = newest

    async def run(self, request: Request, daemon: Daemon) -> Result:
        """End every client of the request; stops at the first that could not be ended as planned."""
        details: list[str] = []
        for index, key in enumerate(request.clients):
            # Ending several takes its time: what is known of the later ones by then counts.
            now = self._newest() or daemon
            daemon = now if now.find_client(key) else daemon
            client, server = daemon.find_client(key), server_of(daemon, key)
            if client is None or server is None:
                raise AssertionError("checked by the preview on the same snapshot")
            status, text = await self._end(request, client, server.pid)
            details.append(f"{client_line(client)}: {text}")
            self._progress(details[-1])
            if status is not ExitStatus.DONE:
                left = len(request.clients) - index - 1
                if left:
                    details.append(f"{left} more not touched")
                return Result(request, status, f"client {key.pid}: {text}", tuple(details))
        count = len(request.clients)
        what = "ended" if request.action == "terminate_and_kill" else "terminated"
        return Result(request, ExitStatus.DONE, f"{count} client{'s' if count > 1 else ''} {what}", tuple(details))

    async def _end(self, request: Request, client: Client, server: int) -> tuple[ExitStatus, str]:
        kill = request.action == "terminate_and_kill"
        if not client.local:
            return await self._terminate_in_turn(request, client, server, None)
        opened = open_pidfd(client.key)
        if not isinstance(opened, PidFd):
            text = f"nothing was sent: {opened.message}"
            return self._done(request, client, "", None, ExitStatus.REFUSED_BY_SAFETY_RULE, text)
        with opened as process:
            guard = await self._guard(request) if kill else None
            if guard is not None and (reason := guard(process)) is not None:
                text = f"nothing was sent: {reason}"
                return self._done(request, client, "", None, ExitStatus.REFUSED_BY_SAFETY_RULE, text)
            if client.state != "TERMINATED":
                status, text = await self._terminate_in_turn(request, client, server, guard)
                if status is not ExitStatus.DONE:
                    return status, text
            if guard is None:
                return ExitStatus.DONE, "terminated: the daemon answered 0"
            if trouble := self._write(request, client, f"kill {client.pid}", None, None, "about to be signalled"):
                text = f"the process was not signalled: {trouble}"
                return self._done(request, client, "", None, ExitStatus.REFUSED_BY_SAFETY_RULE, text)
            status, text = await self._kill(process, guard)
            self._write(request, client, f"kill {client.pid}", None, status, text)
            return status, text

    async def _guard(self, request: Request) -> Guard:
        named = None
        if request.owner:
            with contextlib.suppress(Refused):  # checked by the preview
                named = parse_uid(request.owner)
        return await Guard.begin(request.pipe_dir, self._find_speaker, named)

    async def _terminate_in_turn(
        self, request: Request, client: Client, server: int, guard: Guard | None
    ) -> tuple[ExitStatus, str]:
        speaker = guard.speaker if guard is not None else self._find_speaker(request.pipe_dir)
        try:
            async with turn(request.pipe_dir, speaker) as mine:
                return await self._terminate(request, client, server, mine)
        except NoTurn as error:
            status = ExitStatus.NO_ANSWER if error.busy else ExitStatus.REFUSED_BY_SAFETY_RULE
            return self._done(request, client, "", None, status, f"nothing was sent: {error}")

    async def _terminate(self, request: Request, client: Client, server: int, mine: Turn) -> tuple[ExitStatus, str]:
        if (who := mine.was_sent(client)) is not None:
            text = f"{_SENT_BEFORE} ({who} did)"
            return self._done(request, client, "", None, ExitStatus.REFUSED_BY_SAFETY_RULE, text)
        if self._audit.terminate_was_sent(self._boot_id, client.key) or self._sent_before(client.key):
            return self._done(request, client, "", None, ExitStatus.REFUSED_BY_SAFETY_RULE, _SENT_BEFORE)
        listed = await self._control.get_client_list(server)
        if listed.value is None:
            text = f"nothing was sent: {listed.message}"
            return self._done(request, client, "", None, STATUS[listed.outcome], text)
        if client.pid not in listed.value:
            text = f"nothing was sent: server {server} does not list it any more"
            return self._done(request, client, "", None, ExitStatus.REFUSED_BY_SAFETY_RULE, text)
        if self._sent_before(client.key):  # by somebody else, while the list was asked for
            return self._done(request, client, "", None, ExitStatus.REFUSED_BY_SAFETY_RULE, _SENT_BEFORE)
        # Remembered before it is sent: after a crash in between, not sending again is the safe side.
        if (trouble := mine.note(client, sent=True)) is not None:
            text = f"nothing was sent: that it is sent cannot be written down for others: {trouble}"
            return self._done(request, client, "", None, ExitStatus.REFUSED_BY_SAFETY_RULE, text)
        self._terminated.add(client.key)
        command = f"terminate_client {server} {client.pid}"
        if trouble := self._write(request, client, command, None, None, "about to be sent", sent=True):
            self._terminated.discard(client.key)
            text = f"nothing was sent: {trouble}"
            return self._done(request, client, "", None, ExitStatus.REFUSED_BY_SAFETY_RULE, text)
        self._progress(command)
        answer = await self._control.terminate_client(server, client.pid)
        if answer.ok:
            return self._done(
                request, client, answer.command, answer, ExitStatus.DONE, "terminated: the daemon answered 0"
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
            self._terminated.discard(client.key)
            mine.note(client, sent=False)
            self._write(request, client, answer.command, None, None, "not taken", sent=False)
        return self._done(request, client, answer.command, answer, STATUS[answer.outcome], text)

    def _sent_before(self, key: ProcessKey) -> bool:
        """Whether this mpstui, or the log by now, knows of a terminate_client for it."""
        daemon = self._newest()
        client = daemon.find_client(key) if daemon else None
        return key in self._terminated or (client is not None and client.terminate_requested)

    async def _kill(self, process: PidFd, guard: Guard) -> tuple[ExitStatus, str]:
        status, text = await end_process(process, self._grace, self._progress, guard)
        return status, f"terminated, {'then' if status is ExitStatus.DONE else 'but'} {text}"

    def _done(
        self, request: Request, client: Client, command: str, answer: Answer[None] | None, status: ExitStatus, text: str
    ) -> tuple[ExitStatus, str]:
        self._write(request, client, command, answer, status, text)
        return status, text

    def _write(
        self,
        request: Request,
        client: Client,
        command: str,
        answer: Answer[None] | None,
        status: ExitStatus | None,
        text: str,
        *,
        sent: bool | None = None,
    ) -> str | None:
        trouble = self._audit.write(
            action=request.action,
            pipe_dir=path_text(request.pipe_dir),
            euid=os.geteuid(),
            command=command,
            sent=sent,
            boot_id=self._boot_id,
            client=[client.key.pid, client.key.start_ticks],
            client_user=client.user,
            answer=answer.stdout.decode("utf-8", "backslashreplace")[:200] if answer else "",
            status=None if status is None else int(status),
            result=text,
        )
        if trouble:
            self._progress(trouble)
        return trouble
