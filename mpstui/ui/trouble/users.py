"""Processes that do not get what they should: waiting for a server, computing past MPS, or with their server gone."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import ClassVar, Final

from textual.binding import Binding, BindingType

from mpstui.api import Unavailable
from mpstui.core.cells import client_line, gpu_in_text, not_told
from mpstui.core.late import dataclass
from mpstui.core.model import Daemon, LostClient, OutsideClient, PendingClient, ProcessKey, Snapshot
from mpstui.core.problems import MULTI_USER
from mpstui.core.text import UNKNOWN, format_age, format_size, owner, plural
from mpstui.core.trust import to_its_owner
from mpstui.doctor.why import Diagnosis
from mpstui.fields import INTEGER, TEXT, TIME, Column, Field, Thing, View
from mpstui.operations.registry import operation
from mpstui.ui.bars import KeyHint, unless
from mpstui.ui.box import Para
from mpstui.ui.contract import Runner
from mpstui.ui.keys import own_binding
from mpstui.ui.lines import Line
from mpstui.ui.panel import Panel
from mpstui.ui.panels.table import TablePanel
from mpstui.ui.screens import ListScreen
from mpstui.ui.trouble.contract import TroubleBackend
from mpstui.ui.typeahead import opens

_KILL: Final = "terminate_and_kill"
_ALL: Final = 10_000
"""Lines: to the beginning of a text."""
_WORD: Final = {
    "PendingClient": ("◌ waits", "warn"),
    "OutsideClient": ("▲ no MPS", "bad"),
    "LostClient": ("✕ no server", "bad"),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One process, and the daemon that it concerns."""

    process: PendingClient | OutsideClient | LostClient
    daemon: Daemon | None = None

    @property
    def claimant(self) -> str | None:
        """By name the other user whose word alone it is that it waits, or has lost its server."""
        return self.daemon.claimant(os.geteuid()) if self.daemon is not None else None


def cases_of(snapshot: Snapshot, daemon: Daemon | None) -> list[Case]:
    """Those of one daemon, and those past MPS on the whole node."""
    found: list[Case] = []
    if daemon is not None:
        found += (Case(pending, daemon) for pending in daemon.pending)
        found += (Case(lost, daemon) for lost in daemon.lost)
    return found + [Case(process) for process in snapshot.outside]


_NONE: Final = "no process waits for a server, and none computes without MPS"
_NONE_WAITS: Final = "no client waits for a server"
_NOT_TOLD: Final = f"{UNKNOWN} not known yet"


def _state_cell(case: Case, view: View, cells: int) -> Line:
    word, style = _WORD[type(case.process).__name__]
    return ((word, style) if case.claimant is None else (f"? {word[2:]}", "dim"),)


def _begun(case: Case, view: View) -> float | None:
    process = case.process
    return process.start_time if isinstance(process, OutsideClient) else process.since


CASE: Final[Thing[Case]] = Thing(
    "case",
    "A process that does not get what it should.",
    (
        Field("pid", "PID", INTEGER, lambda c, v: c.process.pid, column=Column(10, 9, 100, style="bold")),
        Field(
            "user", "user", TEXT, lambda c, v: owner(c.process.user, c.process.uid),
            column=Column(20, 11, 60, style="user"),
        ),
        Field(
            "state", "state", TEXT, lambda c, v: _WORD[type(c.process).__name__][0],
            column=Column(30, 14, 90, cell=_state_cell),
        ),
        Field(
            "since", "since", TIME, _begun,
            column=Column(40, 7, 50, "FOR", cell=lambda c, v, cells: ((v.age(_begun(c, v)), "text"),)),
        ),
        Field("command", "command", TEXT, lambda c, v: c.process.command, column=Column(50, 10, 80, style="text")),
    ),
)  # fmt: skip


class CasesPanel(TablePanel[Case]):
    """One line for a process."""

    KIND: ClassVar[str] = "client"
    TITLE: ClassVar[str] = "Not served by MPS"
    THING: ClassVar[Thing[Case]] = CASE
    STRETCH: ClassVar[bool] = True
    GUTTER: ClassVar[int] = 3

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.none = _NONE
        """What is said where there are no cases."""

    def key(self, row: Case) -> tuple[str, ProcessKey | int]:
        process = row.process
        unseen = process.elsewhere if isinstance(process, PendingClient) else 0
        return type(process).__name__, unseen if process.key is None else process.key

    def title(self) -> Line:
        return ((self.TITLE, "title"), (f" · {plural(len(self.rows), 'process')}", "dim"))

    def empty(self) -> str:
        return self.none


class UsersScreen(ListScreen):
    """Says of each process who waits for whom and since when, or the likely reason, and what would let it in."""

    panel: CasesPanel
    BINDINGS: ClassVar[list[BindingType]] = [
        own_binding(operation("terminate_and_kill"), "let_in"),
        Binding("y", "copy", "Copy the text", show=False, id="copy"),
    ]

    def __init__(
        self, runner: Runner, backend: TroubleBackend | None, snapshot: Snapshot | None, pipe_dir: Path | None
    ) -> None:
        super().__init__(runner, snapshot, pipe_dir)
        self._backend = backend
        self._answers: dict[ProcessKey, list[Para]] = {}
        """What a closer look has told of a process."""

    def make_list(self) -> Panel[Case]:
        return CasesPanel(id="list")

    @property
    def case(self) -> Case | None:
        """The one under the cursor."""
        return self.panel.cursor_row

    def fill(self, snapshot: Snapshot) -> None:
        daemon = self.daemon
        none = _NONE_WAITS if not snapshot.devices or (daemon is not None and daemon.by_logs) else _NONE
        self.panel.none = _NOT_TOLD if not_told(snapshot, daemon) else none
        self.panel.view = View.of(snapshot, daemon)
        self.panel.set_rows(cases_of(snapshot, daemon))

    def _ahead(self) -> tuple[ProcessKey, ...]:
        """The clients that the process under the cursor waits for."""
        case = self.case
        if case is None or case.daemon is None or not isinstance(case.process, PendingClient):
            return ()
        waits_for = case.process.waits_for if case.claimant is None else ()
        return tuple(c.key for c in case.daemon.clients() if c.pid in waits_for)

    def describe(self, snapshot: Snapshot) -> tuple[str, list[Para]]:
        case = self.case
        if case is None:
            return self.panel.TITLE, _nobody(snapshot, self.daemon, self.k("problems", "D"))
        process = case.process
        who = client_line(process)
        looked = self._answers.get(process.key, []) if process.key is not None else []
        head = [Para(who, "bold"), *looked, Para()]
        if (whose := case.claimant) is not None:
            does = "waits for a server" if isinstance(process, PendingClient) else "has lost its server"
            text = f"{whose}'s daemon says that it {does}. mpstui has not confirmed it."
            return f"Only {whose}'s daemon says so", [
                *head, Para(text, "text", "?"), Para(to_its_owner(whose), "accent", "→"),
            ]  # fmt: skip
        if isinstance(process, PendingClient):
            which = "A client in another PID namespace" if process.pid is None else f"Client {process.pid}"
            return f"{which} waits", [*head, *self._waits(process, case.daemon, snapshot)]
        if isinstance(process, OutsideClient):
            likely = [] if looked else _likely(process, self.k("open", "Enter"))
            return f"Process {process.pid} computes without MPS", [*head, *_outside(process, snapshot), *likely]
        return f"Process {process.pid} has lost its server", [
            *head,
            *_lost(process, case.daemon, snapshot, self.k("daemons", "d")),
        ]

    def _waits(self, process: PendingClient, daemon: Daemon | None, snapshot: Snapshot) -> list[Para]:
        out = [Para(f"It has waited{_since(process.since, snapshot)}.", "text", "·")]
        if process.pid is None:
            text = (
                "The daemon knows no PID of it, since it runs in a container. Whether it still waits is not known here."
            )
            out.append(Para(text, "text", "·"))
        if daemon is not None and daemon.start_failures is not None and process.server_pid is None:
            return [*out, Para("No server starts: see the problems.", "bad", "✕")]
        if process.server_pid is None or daemon is None:
            return [*out, Para("A server is being started for it.", "text", "·")]
        server = daemon.find_server(process.server_pid)
        # Of whom its process is, often root, says nothing of whom it serves.
        served = dict.fromkeys(owner(client.user, client.uid) for client in server.clients) if server else ()
        whose = f", which serves {', '.join(served)}," if served else ""
        text = f"One server runs at a time: it waits for server {process.server_pid}{whose} to end."
        out.append(Para(text, "warn", "▲"))
        ahead = [c for c in daemon.clients() if c.pid in process.waits_for]
        if ahead:
            out.append(Para("That server waits for its clients:", "text", "·"))
            out += [Para(client_line(c), "text", "  ·") for c in ahead]
        out += [Para(), Para("How this client gets a server:", "bold")]
        out.append(Para(f"{_lets_in(len(ahead))} ({self.k('copy', 'y')} copies this)", "accent", "→"))
        if ahead:
            key, them = self.k("action.terminate_and_kill", "K"), "them" if len(ahead) > 1 else "it"
            out.append(Para(f"{key} terminates and kills {them}, after asking", "accent", "→"))
            if (refused := self.refusal(_KILL, self._ahead())) is not None:
                out.append(Para(f"Not now: {refused}.", "warn", "▲"))
        out.append(Para(f"For good: a daemon in {MULTI_USER}, where users share the faults too", "accent", "→"))
        return out

    def own_hints(self) -> list[KeyHint]:
        ahead = self._ahead()
        refused = self.refusal(_KILL, ahead) if ahead else None
        return [
            *(
                [KeyHint(self.k("action.terminate_and_kill", "K"), "End those it waits for", "let_in", 8, refused)]
                if ahead
                else []
            ),
            KeyHint(self.k("open", "Enter"), "Why", "why", 7, self._no_why()),
            KeyHint(self.k("copy", "y"), "Copy", "copy", 6, unless(self.case, "nobody waits")),
        ]

    def _no_why(self) -> str | None:
        """Why no closer look can be had at the process under the cursor; None where it can."""
        if self._backend is None:
            return "nothing can be looked at here"
        if self.case is None or self.case.process.key is None:
            return "there is no process of this PID namespace under the cursor"
        return None

    def open_row(self, message: Panel.Opened) -> None:
        self.action_why()

    @opens
    def action_why(self) -> None:
        """Look at the process from where it stands; that may take seconds."""
        case, snapshot = self.case, self.snapshot
        if (why := self._no_why()) is not None or case is None or case.process.key is None or snapshot is None:
            self.notify(why or "nobody waits", markup=False)
            return
        if self._backend is not None:
            self._tell(case.process.key, [Para("It is being looked at …", "dim")])
            self.run_worker(self._look(self._backend, case.process.key, snapshot), exit_on_error=False)

    async def _look(self, backend: TroubleBackend, key: ProcessKey, snapshot: Snapshot) -> None:
        try:
            found = await backend.why(key.pid, snapshot)
            gone = found is None or (key.start_ticks is not None and found.program.key != key)
            said = [Para("It has ended.", "text", "·")] if found is None or gone else _answer(found)
        except Unavailable as error:
            said = [Para(f"Not known: {error}.", "warn", "▲")]
        self._tell(key, said)

    def _tell(self, key: ProcessKey, said: list[Para]) -> None:
        """Above what is known of the process besides, and in view where that is under the cursor."""
        self._answers[key] = [Para(), *said]
        if self.is_attached:
            self.show_text()
            if self.case is not None and self.case.process.key == key:
                self.text.action_scroll(-_ALL)

    @opens
    def action_let_in(self) -> None:
        if ahead := self._ahead():
            self.act(_KILL, ahead)

    def action_copy(self) -> None:
        if self.snapshot is not None and self.case is not None:
            title, said = self.describe(self.snapshot)
            self.copy("\n".join([title, *(para.text for para in said if para.text)]), title)


def _nobody(snapshot: Snapshot, daemon: Daemon | None, problems: str) -> list[Para]:
    """What is known where no process waits, computes past MPS or has lost its server."""
    out: list[Para] = []
    if not_told(snapshot, daemon):
        return [Para("The daemon has not listed its clients yet, so it is not known who waits.", "text", UNKNOWN)]
    if daemon is not None and daemon.serves_nobody:
        out.append(Para(f"No server starts: {problems} shows the problems.", "bad", "✕"))
    if not snapshot.devices:
        text = "Which processes compute without MPS is not known: there are no readings of the devices."
        if daemon is not None and daemon.by_logs:
            text = "Logs do not tell which processes compute without MPS."
        return [*out, Para(text, "warn", "▲")]
    if any(True for each in snapshot.daemons for _ in each.clients()):
        return [*out, Para("Every known process on the GPUs is a client of MPS.", "good", "✓")]
    return [*out, Para("MPS has no client here, and no process is known to compute without it.", "text", "·")]


def _lets_in(ahead: int) -> str:
    """What has to end before a client of another user gets a server."""
    if not ahead:
        return "It gets a server when that server ends: wait, or ask its owner"
    if ahead == 1:
        return "It gets a server when 1 client ends: wait, or ask its owner"
    return f"It gets a server when {ahead} clients end: wait, or ask their owners"


def _since(since: float | None, snapshot: Snapshot) -> str:
    if since is None:
        return ""
    clock = time.strftime("%H:%M:%S", time.localtime(since))
    return f" for {format_age(snapshot.time - since)}, since {clock}"


def _outside(process: OutsideClient, snapshot: Snapshot) -> list[Para]:
    gpus = ", ".join(gpu_in_text(uuid, snapshot.indices) for uuid in process.device_uuids)
    started = "" if process.start_time is None else f", for {format_age(snapshot.time - process.start_time)}"
    return [
        Para(f"On {gpus or f'GPU {UNKNOWN}'}, {format_size(process.gpu_memory)}{started}.", "text", "·"),
        Para("It takes turns with the clients on the GPU: while it computes, they stand still.", "text", "·"),
    ]


def _likely(process: OutsideClient, key: str) -> list[Para]:
    what = "Start it again with the daemon's CUDA_MPS_PIPE_DIRECTORY in its environment."
    if process.reason == "uid":
        what = "Only a daemon of root or of the process's own user can serve it; none is known in that directory."
    return [
        Para(f"Likely reason: {process.detail or process.reason}.", "warn", "▲"),
        Para(),
        Para(what, "accent", "→"),
        Para(f"{key} looks closer: its root, namespaces, user and devices.", "dim"),
    ]


_MARKS: Final = {"sure": ("✕", "bad"), "likely": ("▲", "warn"), "possible": ("·", "text")}


def _answer(found: Diagnosis) -> list[Para]:
    """What ``mpstui why`` prints."""
    out = [Para(found.sentence, "bold")]
    for number, reason in enumerate(found.reasons):
        mark, style = _MARKS[reason.certainty]
        if number or found.is_client:  # the sentence has the first
            out += [Para(), Para(f"{reason.text[0].upper()}{reason.text[1:]}.", style, mark)]
        out += [Para(text, "dim", "  ") for text in reason.evidence]
        out.append(Para(reason.remedy, "accent", "→"))
    if found.program.trouble:
        out.append(Para(found.program.trouble, "warn", "?"))
    return out


def _lost(process: LostClient, daemon: Daemon | None, snapshot: Snapshot, key: str) -> list[Para]:
    again = f"Let its owner start it again, once a daemon runs: {key} in the overview starts one."
    if daemon is not None and daemon.runs:
        again = "Let its owner end it and start it again: a daemon runs here now."
    return [
        Para(
            f"Server {process.server_pid} has been gone{_since(process.since, snapshot)}."
            if process.since is not None
            else f"Server {process.server_pid} is gone; nobody saw it go, and the log does not say when.",
            "bad",
            "✕",
        ),
        Para("Each CUDA call of it gives error 806.", "text", "·"),
        Para(),
        Para(again, "accent", "→"),
    ]
