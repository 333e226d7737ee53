"""While a fatal fault lasts: what happened, who has to end, what to tell the owners; and the recovery when it comes."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Final, Literal

from textual.binding import Binding, BindingType

from mpstui.core.cells import not_told, with_indices
from mpstui.core.faults import FaultReport, OwnerNote, fault_reports
from mpstui.core.late import dataclass
from mpstui.core.model import Client, ProcessKey, Server, Snapshot
from mpstui.core.text import UNKNOWN, format_age, listed, owner, plural
from mpstui.core.trust import to_its_owner
from mpstui.fields import INTEGER, TEXT, Column, Field, Thing, View
from mpstui.operations.registry import operation
from mpstui.operations.rescue import targets
from mpstui.ui.bars import KeyHint, unless
from mpstui.ui.box import BAR, Para
from mpstui.ui.contract import Runner
from mpstui.ui.keys import own_binding
from mpstui.ui.lines import Line
from mpstui.ui.panel import Panel
from mpstui.ui.panels.table import TablePanel
from mpstui.ui.screens import ListScreen
from mpstui.ui.trouble.alert import named_by_log, recovery, recovery_text
from mpstui.ui.typeahead import opens

State = Literal["left", "claimed", "gone", "unknown", "unhurt"]
"""``claimed``: hit by the log's word alone; ``gone``: no longer a client, which is what the server waits for; its
process has ended, or has left MPS. ``unknown``: that too, and which process it was was never known."""
_STATE: Final[dict[State, tuple[str, str]]] = {
    "left": ("✕ has to end", "bad"),
    "claimed": ("? by the log", "warn"),
    "gone": ("✓ disconnected", "good"),
    "unknown": (UNKNOWN, "dim"),
    "unhurt": ("● runs on", "dim"),
}
_ORDER: Final[tuple[State, ...]] = tuple(_STATE)
_END: Final = "end_lost_clients"
_NAMED: Final = "◀ named, not proof"
_NAMED_SHORT: Final = "◀ named?"
_NAMED_ROOM: Final = 30
"""Cells from which that is said before a command as a whole."""
_NOBODY: Final = "there is nobody to end"
_ONE_NOTE: Final = "there is no other note"


@dataclass(frozen=True, slots=True)
class Victim:
    """One client of a server that had a fault."""

    key: ProcessKey
    state: State
    server_pid: int
    client: Client | None = None
    named: bool = False
    """By server.log."""


def victims_of(seen: Iterable[Victim], reports: Sequence[FaultReport], there: Collection[ProcessKey]) -> list[Victim]:
    """Those of the reports, who has to end first, and with them those of ``seen``, of earlier pictures, who are in none
    any more: who is ``there`` still has not ended. A process whose start becomes known stays one and the same."""
    before = {victim.key: victim for victim in seen}
    now: dict[ProcessKey, Victim] = {}
    for report in reports:
        hit: State = "left" if report.fault.confirmed else "claimed"
        for client in (*report.left, *report.unhurt):
            state: State = hit if client in report.left else "unhurt"
            now[client.key] = Victim(client.key, state, report.server_pid, client, client.pid in report.fault.named)
        for key in report.fault.affected:
            now.setdefault(key, before.get(key) or Victim(key, hit, report.server_pid))
    present = tuple(now.values())
    for key, victim in before.items():
        if any(each.server_pid == victim.server_pid and each.key.may_be(key) for each in present):
            continue
        if (same := key.among(there)) is not None:
            now[same] = replace(victim, key=same, state="unhurt")
        else:
            now[key] = replace(victim, state="unknown" if key.start_ticks is None else "gone")
    return sorted(now.values(), key=lambda victim: (_ORDER.index(victim.state), victim.key.pid))


def _style(victim: Victim, there: str) -> str:
    return "dim" if victim.state in {"gone", "unknown"} else there


def _command_cell(victim: Victim, view: View, cells: int) -> Line:
    named = _NAMED if cells >= _NAMED_ROOM else _NAMED_SHORT
    command = (victim.client.command if victim.client else None) or UNKNOWN
    return (*(((f"{named}  ", "warn"),) if victim.named else ()), (command, _style(victim, "text")))


VICTIM: Final[Thing[Victim]] = Thing(
    "victim",
    "A client of a server that had a fault.",
    (
        Field(
            "pid", "PID", INTEGER, lambda c, v: c.key.pid,
            column=Column(10, 9, 100, cell=lambda c, v, cells: ((str(c.key.pid), _style(c, "bold")),)),
        ),
        Field(
            "user", "user", TEXT, lambda c, v: owner(c.client.user, c.client.uid) if c.client else None,
            column=Column(20, 11, 60, style="user"),
        ),
        Field(
            "state", "state", TEXT, lambda c, v: _STATE[c.state][0],
            column=Column(30, 16, 90, cell=lambda c, v, cells: (_STATE[c.state],)),
        ),
        Field(
            "command", "command", TEXT, lambda c, v: c.client.command if c.client else None,
            column=Column(40, 10, 80, cell=_command_cell),
        ),
    ),
)  # fmt: skip


class VictimsPanel(TablePanel[Victim]):
    """Who has to end comes first."""

    KIND: ClassVar[str] = "client"
    THING: ClassVar[Thing[Victim]] = VICTIM
    STRETCH: ClassVar[bool] = True
    GUTTER: ClassVar[int] = 3
    untold = False
    """A server is in FAULT, and no log tells whom it hit."""
    unread = ""
    """Why it is not known whether a server is in FAULT."""

    def key(self, row: Victim) -> ProcessKey:
        return row.key

    def title(self) -> Line:
        left = sum(row.state == "left" for row in self.rows)
        return (("Clients", "title"), (f" {left} left to end" if left else "", "bad"))

    def empty(self) -> str:
        if self.unread:
            return f"not known: {self.unread}"
        return "not known: no log names the affected clients" if self.untold else "no client of a server in FAULT"


class FaultScreen(ListScreen):
    """Offers in order: tell the owners, end one, end all. Keeps what it has seen, so that the recovery is told too."""

    panel: VictimsPanel
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "copy", "Copy the note to its owner", show=False, id="copy"),
        Binding("Y", "copy_all", "Copy the notes to all owners", show=False, id="fault.copy_all"),
        Binding("x", "end_one", "End the process under the cursor", show=False, id="fault.end_one"),
        Binding("B", "suspects", "Suspects: who was there at each fault", show=False, id="suspects"),
        own_binding(operation("end_lost_clients"), "end_all"),
    ]

    def __init__(self, runner: Runner, snapshot: Snapshot | None, pipe_dir: Path | None) -> None:
        super().__init__(runner, snapshot, pipe_dir)
        self._reports: dict[int, FaultReport] = {}
        """By server, the newest; kept when the fault is over."""
        self._seen: list[Victim] = []

    def make_list(self) -> Panel[Victim]:
        return VictimsPanel(id="list")

    @property
    def victims(self) -> VictimsPanel:
        return self.panel

    def fill(self, snapshot: Snapshot) -> None:
        daemon = self.daemon
        present = fault_reports(daemon, snapshot) if daemon else ()
        for report in present:
            self._reports[report.server_pid] = report
        there = [*(c.key for c in daemon.clients()), *(lost.key for lost in daemon.lost)] if daemon else []
        self._seen = victims_of(self._seen, present, there)
        self.panel.untold = bool(self._failed()) and not present
        self.panel.unread = not_told(snapshot, daemon)
        self._set_rows(self._seen)

    def _set_rows(self, rows: list[Victim]) -> None:
        """When the process under the cursor has ended, the cursor goes on to the next one that still has to."""
        before, at = self.victims.cursor_row, self.victims.cursor_index
        self.victims.set_rows(rows)
        after, left = self.victims.cursor_row, sum(row.state == "left" for row in self.victims.rows)
        if before is not None and after is not None and left and (before.state, after.state) == ("left", "gone"):
            self.victims.move_to(min(at, left - 1))

    def _failed(self) -> list[Server]:
        return [server for server in self.daemon.servers if server.status == "FAULT"] if self.daemon is not None else []

    @property
    def _lasting(self) -> tuple[FaultReport, ...]:
        daemon, snapshot = self.daemon, self.snapshot
        return fault_reports(daemon, snapshot) if daemon is not None and snapshot is not None else ()

    @property
    def _report(self) -> FaultReport | None:
        """Of the server of the client under the cursor."""
        row = self.victims.cursor_row
        servers = [row.server_pid] if row is not None else []
        return next((self._reports[pid] for pid in (*servers, *self._reports)), None)

    def _note(self, report: FaultReport) -> OwnerNote | None:
        """To the owner of the client under the cursor; without a cursor the first."""
        row = self.victims.cursor_row
        if row is None:
            return next(iter(report.notes), None)
        whose = (row.client.uid, row.client.user) if row.client is not None else None
        return next((n for n in report.notes if row.key in n.clients or (n.uid, n.user) == whose), None)

    def _no_note(self) -> str:
        """Why there is none to the owner of the client under the cursor."""
        row, report = self.victims.cursor_row, self._report
        if row is None or row.client is None or report is None or not report.notes:
            return "there is no note"
        return f"there is no note to {owner(row.client.user, row.client.uid)}: {self._not_this_one()}"

    def _one(self) -> tuple[ProcessKey, ...]:
        row = self.victims.cursor_row
        return (row.key,) if row is not None and row.state == "left" and row.key in self._all() else ()

    def _not_this_one(self) -> str:
        """Why the client under the cursor is not ended, and who has to end."""
        row, left = self.victims.cursor_row, listed(key.pid for key in self._all())
        if not left or row is None:
            return _NOBODY
        what = {"unhurt": "runs on", "gone": "has disconnected", "unknown": "is not there any more"}.get(
            row.state, "does not have to end"
        )
        return f"{row.key.pid} {what}; still to end: {left}"

    def _all(self) -> tuple[ProcessKey, ...]:
        return targets(_END, self.daemon) if self.daemon is not None else ()

    def describe(self, snapshot: Snapshot) -> tuple[str, list[Para]]:
        report, daemon = self._report, self.daemon
        over = recovery(snapshot, daemon) if daemon is not None else None
        if report is None:
            if failed := self._failed():  # the daemon's own word, without a log that tells of it
                if (whose := daemon.claimant(os.geteuid()) if daemon is not None else None) is not None:
                    claim = f"{whose}'s daemon says that its server {failed[0].pid} is in FAULT."
                    return f"Only {whose}'s daemon says so", [
                        Para(claim, "text", "?"), Para(to_its_owner(whose), "accent", "→"),
                    ]  # fmt: skip
                text = f"Server {failed[0].pid} is in FAULT. No log reports it, so the affected clients are not known."
                then = "New clients are refused until the last client that was hit has ended."
                return f"Server {failed[0].pid} in FAULT", [Para(text, "bad", "✕"), Para(then, "text")]
            if why := not_told(snapshot, daemon):
                return "Fault", [Para(f"Whether a server is in FAULT is not known: {why}.", "text", UNKNOWN)]
            said = [Para("No server is in FAULT.", "good", "✓")]
            if over is not None:
                said.append(Para(f"{recovery_text(snapshot, over).capitalize()}.", "good", "✓"))
            return "Fault", said
        if all(report.server_pid != lasting.server_pid for lasting in self._lasting):
            return f"Server {report.server_pid} has recovered", list(self._recovered(report, snapshot))
        said = [*self._happened(report, snapshot), *self._offers(report)]
        return f"Server {report.server_pid} in FAULT{'' if report.fault.confirmed else '?'}", said

    def _recovered(self, report: FaultReport, snapshot: Snapshot) -> Iterator[Para]:
        daemon = self.daemon
        over = recovery(snapshot, daemon) if daemon is not None else None
        if over is not None:
            yield Para(f"{recovery_text(snapshot, over).capitalize()}.", "good", "✓")
        elif daemon is not None and daemon.find_server(report.server_pid) is not None:
            yield Para(f"Server {report.server_pid} takes new clients again.", "good", "✓")
        else:
            yield Para(f"Server {report.server_pid} has ended; the next client gets a new one.", "good", "✓")
        if report.fault.refused:
            yield Para(
                f"{plural(report.fault.refused, 'connection')} had been refused: they have to be tried again.",
                "text",
                "·",
            )
        key = self.k("events", "E")
        text = f"Start again the clients that were hit. {key} in the overview shows what the log said of the fault."
        yield Para(text, "dim", "·")

    def _happened(self, report: FaultReport, snapshot: Snapshot) -> Iterator[Para]:
        fault = report.fault
        since = "not known since when"
        if fault.since is not None:
            clock = time.strftime("%H:%M:%S", time.localtime(fault.since))
            since = f"since {clock}, {format_age(snapshot.time - fault.since)}"
        if fault.confirmed:
            yield Para(f"A fatal fault, {since}. {plural(fault.refused, 'new connection')} refused so far.", "bad", "✕")
        else:
            yield Para(f"server.log reports a fatal fault, {since}; {report.unsaid}.", "warn", "▲")
        named = named_by_log(fault, tuple(v.client for v in self._seen if v.client is not None))
        worth = ": with busy neighbours it often names the wrong one" if fault.named else ": whose it was is not known"
        yield Para(f"{named}{worth}.", "text", "·")
        yield Para(report.caveat, "warn" if fault.ended_nearby else "dim", "▲" if fault.ended_nearby else "·")
        for xid in report.xids:
            yield Para(f"The driver said: {with_indices(xid.detail, snapshot.indices)}.", "text", "·")
        yield Para(f"{self.k('suspects', 'B')} compares it with earlier faults: who was there each time.", "text", "·")
        if fault.affected and fault.confirmed:
            pids = listed(key.pid for key in fault.affected)
            yield Para(f"Still to end before the server takes new clients: {pids}.", "bold", "▸")
        yield Para()

    def _offers(self, report: FaultReport) -> Iterator[Para]:
        if not report.fault.confirmed:
            text = "mpstui asks the daemon once; until the daemon confirms FAULT, mpstui offers no action"
            if report.fault.doubt:
                text = "This report is no proof, so mpstui offers no action"
            elif self.daemon is not None and self.daemon.by_logs:
                text = "A log alone proves no fault, so mpstui offers no action"
            elif self.daemon is not None and (why := self.daemon.lacking("get_server_status")) is not None:
                text = f"get_server_status, which would confirm it, is {why}, so mpstui offers no action"
            yield Para(f"{text}: end no process because of it.", "text", "▸")
            return
        note, everyone = self._note(report), self._all()
        if not everyone:
            text = (
                "No process can be ended from here: the affected clients have ended, are in another PID namespace, or"
            )
            yield Para(f"{text} are not known.", "text", "▸")
        if note is not None:
            copy, every = self.k("copy", "y"), ""
            if len(report.notes) > 1:
                every = f", {self.k('fault.copy_all', 'Y')} those to all {len(report.notes)}"
            to = owner(note.user, note.uid)
            yield Para(f"Tell the owners: {copy} copies the note to {to}{every}.", "accent", "1")
        elif report.notes:
            copy, every = self.k("copy", "y"), self.k("fault.copy_all", "Y")
            many = f"those to all {len(report.notes)}" if len(report.notes) > 1 else "the only one"
            row = f"put the cursor on a process that has to end, then {copy}"
            yield Para(f"Tell the owners: {row}; {every} copies {many}.", "accent", "1")
        else:
            yield Para("There is no note: the owners of the affected processes are not known here.", "text", "▸")
        if everyone:
            yield from self._endings(everyone)
        if note is not None:
            yield Para()
            for line in note.text.split("\n"):
                yield Para(line.strip(), "dim", BAR)

    def _endings(self, everyone: tuple[ProcessKey, ...]) -> Iterator[Para]:
        one = self._one()
        key = self.k("fault.end_one", "x")
        row = f"{key} ends process {one[0].pid}" if one else f"put the cursor on a process that has to end, then {key}"
        yield Para(f"End them one by one: {row} (SIGTERM, grace, SIGKILL).", "accent", "2")
        key = self.k("action.end_lost_clients", "e")
        yield Para(f"End all {len(everyone)}: {key}. Their GPU work is lost already.", "accent", "3")
        if (refused := self.refusal(_END, everyone)) is not None:
            yield Para(f"Not now: {refused}.", "warn", "▲")

    def own_hints(self) -> list[KeyHint]:
        report = self._report
        mine, notes = (self._note(report), report.notes) if report is not None else (None, ())
        others = any(note is not mine for note in notes)
        refused = self.refusal(_END, self._all()) if self._all() else _NOBODY
        return [
            KeyHint(self.k("copy", "y"), "Copy note", "copy", 8, unless(mine, self._no_note())),
            KeyHint(
                self.k("fault.copy_all", "Y"),
                "All notes",
                "copy_all",
                5,
                unless(others, _ONE_NOTE),
            ),
            KeyHint(
                self.k("fault.end_one", "x"),
                "End this one",
                "end_one",
                8,
                refused if self._one() else self._not_this_one(),
            ),
            KeyHint(self.k("action.end_lost_clients", "e"), "End all", "end_all", 9, refused),
            KeyHint(self.k("suspects", "B"), "Suspects", "suspects", 7),
        ]

    def action_suspects(self) -> None:
        self.host.open_trouble("suspects", self.pipe_dir, None)

    def action_copy(self) -> None:
        if (report := self._report) is not None and (note := self._note(report)) is not None:
            self.copy(note.text, f"the note to {owner(note.user, note.uid)}")

    def action_copy_all(self) -> None:
        if (report := self._report) is not None and report.notes:
            self.copy("\n\n".join(note.text for note in report.notes), plural(len(report.notes), "note"))

    @opens
    def action_end_one(self) -> None:
        if one := self._one():
            self.act(_END, one)

    @opens
    def action_end_all(self) -> None:
        self.act(_END, self._all())
