"""One thing that changes a node: what it is called, what it is told, what it would do, how it is done and taken back.

The classes say what is particular to them. Read-only mode, the newest snapshot, the daemon's turn and the audit lines
before and after are the runner's, for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from mpstui.control.answer import Answer
from mpstui.core.late import dataclass
from mpstui.core.model import Daemon, ProcessKey, Snapshot
from mpstui.core.text import path_text, path_word
from mpstui.core.trust import Speaker
from mpstui.observe.poll import Need
from mpstui.operations.check import Refused, answering_daemon, parse_size, reachable_daemon
from mpstui.operations.types import LATER, Argument, Danger, ExitStatus, Preview, Progress, Request, Result, Verb

if TYPE_CHECKING:
    from mpstui.control.mps import MpsControl
    from mpstui.observe.sources import NodeSources
    from mpstui.operations.audit import AuditLog, Identity


class Executes(Protocol):
    """The runner: each request is checked, sent, read back and written to the audit log."""

    async def execute(self, request: Request, snapshot: Snapshot, progress: Progress = ..., /) -> Result: ...


@dataclass
class Work:
    """One request as it is carried out: what an operation works with."""

    request: Request
    snapshot: Snapshot
    """The newest one, on which the request was checked."""
    control_for: Callable[[Path], MpsControl]
    audit: AuditLog
    boot_id: str
    terminated: set[Identity]
    """Whom this mpstui has sent a terminate_client for."""
    grace: float
    """Seconds between SIGTERM and SIGKILL."""
    progress: Progress
    heard: Callable[[], Snapshot | None]
    """The newest snapshot, with what the daemon's logs have told by now."""
    find_speaker: Callable[[Path], Speaker]
    """Whose the directory is now; nobody's where that is not what was asked about."""
    another: Callable[[], str | None]
    """Why the daemon behind the directory's name is not, or not surely, the one that was asked about, as a sentence;
    None where it is. To be asked, besides by the runner, right before a program is given to it. Blocks."""
    runner: Executes
    """Carries out what is itself made of operations."""
    sources: Callable[[], NodeSources]
    """Of the node."""
    set_compute_mode: Callable[[str, str], str | None] = lambda uuid, mode: "it cannot be set here"
    """Sets the compute mode of a device, by its UUID; why it could not be, or None. May block."""
    sent: Answer[Any] | None = None
    """The command that the audit line tells of, with its answer."""
    read: Answer[Any] | None = None
    """The answer that proves it."""
    told: bool = field(default=False)
    """The operation has written its audit lines itself, one for each process."""

    @property
    def control(self) -> MpsControl:
        """Of the daemon of the request."""
        return self.control_for(self.request.pipe_dir)

    @property
    def daemon(self) -> Daemon:
        """Of the request, as it was checked."""
        found = self.snapshot.daemon(self.request.pipe_dir)
        if found is None:
            raise AssertionError("checked by the preview on the same snapshot")
        return found

    def newest(self) -> Daemon | None:
        """The daemon of the request as it is known by now."""
        heard = self.heard()
        return None if heard is None else heard.daemon(self.request.pipe_dir)

    def write(self, **fields: object) -> str | None:
        """One audit line of this request; why it could not be written, or None."""
        request = self.request
        return self.audit.write(action=request.action, pipe_dir=path_text(request.pipe_dir), **fields)


class Operation:
    """One thing that changes a node. Stateless: there is one object of each class, in the registry."""

    id: ClassVar[str]
    """``Request.action``, and what the audit log calls it."""
    title: ClassVar[str]
    """In the key bar, the palette and the notifications."""
    brief: ClassVar[str] = ""
    """In the key bar of a narrow screen, where ``title`` is long."""
    help: ClassVar[str]
    """One sentence, for palette, help and dialog."""
    key: ClassVar[str] = ""
    """On the screen ``place``; the user may choose another (docs/keys.md). Empty: it is part of what another
    one asks, or of the command line alone."""
    place: ClassVar[str] = "overview"
    key_id: ClassVar[str] = ""
    """By which the user names the key, where that is not ``action.`` and the id."""
    verb: ClassVar[Verb | None]
    """None where the command line cannot do it; ``no_verb`` says why."""
    no_verb: ClassVar[str] = ""
    sends: ClassVar[str] = ""
    """The control command that it cannot do without, where not every driver has it."""
    weight: ClassVar[int] = 4
    """In the key bar: what has less of it goes first where there is little room."""
    danger: ClassVar[Danger] = Danger.CHANGE
    arguments: ClassVar[tuple[Argument, ...]] = ()
    subject: ClassVar[str] = ""
    """What ``Request.subject`` has to be; empty where the other values say everything."""
    finds_clients: ClassVar[bool] = False
    """Its clients follow from the daemon's state (``mpstui.operations.rescue.targets``) instead of being chosen."""
    question: ClassVar[str] = "end it?"
    harms: ClassVar[str] = "this ends work"
    """Why a yes is needed, where nobody can be asked."""
    given_up: ClassVar[str] = "stopped waiting; what was sent may still take effect"
    """What is known when it is ended while it is carried out."""
    looks_again: ClassVar[bool] = False
    """What it stands on is read and checked anew when it is carried out: so it may be one of several in a row, of which
    the first makes what the next one needs (``LATER``)."""
    in_turn: ClassVar[bool] = True
    """The daemon's turn is held from the last check to the read back. An operation that takes it by itself, or must do
    without, says False."""

    def needs(self, request: Request) -> Need | None:
        """What has to be asked before it can be shown; None: a complete reading."""
        return Need()

    def is_for_process(self, request: Request) -> bool:
        """Whether it is for the daemon's own process alone, whoever answers in its directory."""
        return False

    def belongs(self, request: Request, daemon: Daemon) -> bool:
        """Whether it can be for this daemon, of several; where it can be for none of them, it may be for any."""
        return request.server_pid is not None and daemon.find_server(request.server_pid) is not None

    def hit(self, request: Request, daemon: Daemon) -> tuple[ProcessKey, ...]:
        """Whose work it ends, where neither clients nor a server are named; for ``Request.clients``, so that one that
        comes meanwhile stops it."""
        return ()

    def wrong_value(self, request: Request) -> Refused | None:
        """Why the value is wrong on whatever node; None where it may be right. To be said before anybody is asked."""
        return None

    def unavailable(self, snapshot: Snapshot, pipe_dir: Path, clients: Sequence[ProcessKey]) -> str | None:
        """Why it cannot be chosen now, in words; None where it can."""
        try:
            self.check_daemon(answering_daemon(Request(self.id, pipe_dir), snapshot, self.sends))
        except Refused as refused:
            return str(refused)
        return None

    def check_daemon(self, daemon: Daemon) -> None:
        """Raises Refused where it cannot be chosen for that daemon now, whatever is asked."""

    def preview(self, request: Request, snapshot: Snapshot) -> Preview:
        """What ``request`` would do to the node as it is in ``snapshot``; never asks the daemon, never raises."""
        try:
            daemon = reachable_daemon(request, snapshot, self.sends)
        except Refused as refused:
            refused = self.wrong_value(request) or refused
            return Preview(self.title, error=str(refused), error_status=refused.status)
        if request.subject is LATER and self.looks_again:
            return Preview(self.title, (("command", self.command(request)),))
        try:
            return self.show(request, snapshot, daemon)
        except Refused as refused:
            return Preview(self.title, error=str(refused), error_status=refused.status)

    def show(self, request: Request, snapshot: Snapshot, daemon: Daemon) -> Preview:
        """The preview on a daemon that answers and may be changed. Raises Refused."""
        raise NotImplementedError

    async def run(self, work: Work) -> Result:
        """Carry it out and prove it; ``work`` was checked by ``preview`` a moment ago."""
        raise NotImplementedError

    def undo(self, request: Request, daemon: Daemon) -> Request | None:
        """The request that takes it back, on the daemon as it is before; None where that is not known."""
        return None

    def by_now(self, request: Request, snapshot: Snapshot) -> Result | None:
        """What has come since of a request that goes on by itself (``Result.waits``); None where that is not known."""
        return None

    def said_value(self, request: Request) -> str:
        """The value that is asked for, in words; empty where it is no value that is set."""
        return ""

    def line(self, request: Request) -> Mapping[str, object]:
        """What its audit lines have besides."""
        return {}

    def command(self, request: Request) -> str:
        """The control command, for a person to read; empty where it is none."""
        return ""

    def command_line(self, request: Request) -> str:
        """The same as ``mpstui`` is told; empty where that takes more than a request's own values."""
        import shlex

        if self.verb is None or self.subject:
            return ""
        told = (_typed(each, request) for each in self.arguments)
        words = [word for each in sorted(told, key=lambda words: "".join(words).startswith("-")) for word in each]
        words += [self.verb.flag] * bool(self.verb.flag)
        return f"{shlex.join(['mpstui', *self.verb.words, *words])} --pipe-dir {path_word(request.pipe_dir)}"


def _typed(argument: Argument, request: Request) -> list[str]:
    """The words of a request's command line that tell an argument: of each kind there is."""
    match argument.kind:
        case "value" | "choice":
            return [request.value]
        case "clients":
            return [str(key.pid) for key in request.clients]
        case "server":
            return [str(request.server_pid)]
        case "owner":
            return ["--owner", request.owner] if request.owner else []
        case "device":
            return ["--device", request.device] if request.device is not None else []
        case "scope":
            return ["--default"] if request.server_pid is None else ["--server", str(request.server_pid)]
        case "force":
            return ["-f"] if request.force else []
        case "size":
            size = parse_size(request.value)
            return ["--chunks", str(size.chunks)] if size.chunks is not None else ["--sms", str(size.sms)]
        case "setting":
            value = request.setting(argument.option.lstrip("-"))
            return [argument.option, value] if value is not None else []
        case "name" | "text" | "list" | "flag" | "option" | "seconds":  # a request has none of them
            return []


NOTHING_SENT: Final = ("nothing was sent",)
"""The details of a result where that is so; of several requests it is so of that one alone."""


def refused_result(request: Request, why: str, status: ExitStatus) -> Result:
    """Of a request that nothing was sent for."""
    return Result(request, status, why, NOTHING_SENT)
