"""Who may make the faults of a daemon: all faults in its history compared, and how to find the one that does."""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType

from mpstui.api import Unavailable
from mpstui.core.cells import not_told
from mpstui.core.model import Event, Snapshot
from mpstui.core.suspects import ADVICE, RUN, START, Ranked, Ranking, faults_of, rank
from mpstui.core.text import UNKNOWN, client_pids, plural
from mpstui.fields import RANKED, Thing
from mpstui.ui.bars import KeyHint, unless
from mpstui.ui.box import BAR, Para
from mpstui.ui.contract import Runner
from mpstui.ui.lines import Line
from mpstui.ui.panel import Panel
from mpstui.ui.panels.table import TablePanel
from mpstui.ui.screens import ListScreen
from mpstui.ui.trouble.contract import TroubleBackend

_SHOWN = 6
"""Faults and clients that are named at most."""


class SuspectsPanel(TablePanel[Ranked]):
    """Who was at most faults comes first."""

    KIND: ClassVar[str] = "suspect"
    THING: ClassVar[Thing[Ranked]] = RANKED
    STRETCH: ClassVar[bool] = True
    GUTTER: ClassVar[int] = 3

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.total = 0
        self.leaders: frozenset[Hashable] = frozenset()
        self.under_way: Line = ()

    def take(self, ranking: Ranking) -> None:
        """Show these."""
        self.total = len(ranking.faults)
        self.leaders = frozenset(self.key(each) for each in ranking.leaders)
        self.set_rows(ranking.ranked, context=(self.total, self.leaders))

    def key(self, row: Ranked) -> Hashable:
        return row.uid, row.user, row.program

    def title(self) -> Line:
        return (("Suspects", "title"), (f" {plural(self.total, 'fault')}", "dim"), *self.under_way)

    unread = ""
    """Why it is not known whether there was a fault."""

    def empty(self) -> str:
        return f"not known: {self.unread}" if self.unread else "nobody: no fatal fault is in the history"

    def plain(self, row: Ranked) -> str:
        return "bold" if self.key(row) in self.leaders else "text"


class SuspectsScreen(ListScreen):
    """The faults that the snapshot holds, and those further back in the logs, which are read once."""

    panel: SuspectsPanel
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "copy", "Copy the command that starts a daemon of its own", show=False, id="copy"),
    ]

    def __init__(
        self, runner: Runner, backend: TroubleBackend | None, snapshot: Snapshot | None, pipe_dir: Path | None
    ) -> None:
        super().__init__(runner, snapshot, pipe_dir)
        self._backend = backend
        self._known: dict[Hashable, Event] = {}
        self._ranking = rank(())
        self._trouble = ""
        self._missing: tuple[str, ...] = ()

    def make_list(self) -> Panel[Ranked]:
        return SuspectsPanel(id="list")

    @property
    def suspects(self) -> SuspectsPanel:
        return self.panel

    def on_mount(self) -> None:
        super().on_mount()
        if self._backend is not None and self.daemon is not None:
            self.suspects.under_way = (("  reading the logs …", "warn"),)
            self.run_worker(self._read(self._backend), exit_on_error=False)

    async def _read(self, backend: TroubleBackend) -> None:
        daemon = self.daemon
        try:
            if daemon is not None:
                read = await backend.faults(daemon)
                until = shown.past.at if (shown := self.snapshot) is not None and shown.past is not None else math.inf
                self._add(event for event in read.events if (event.time or 0.0) <= until)
                self._missing = read.missing
        except Unavailable as error:
            past = self.snapshot is not None and self.snapshot.past is not None
            unread = f"Older faults could not be read: {error}."
            self._trouble = "Faults before the record begins are not known." if past else unread
        finally:
            self.suspects.under_way = ()
            if self.is_attached:
                self.show()

    def _add(self, events: Iterable[Event]) -> None:
        """Faults by what tells them from each other; one of the snapshot knows whom it was about, and stays."""
        for event in events:
            if event.kind == "fatal_fault":
                self._known.setdefault(event.key, event)

    def fill(self, snapshot: Snapshot) -> None:
        daemon = self.daemon
        for event in snapshot.events:
            if event.kind == "fatal_fault" and (daemon is None or event.pipe_dir in {None, daemon.pipe_dir}):
                self._known[event.key] = event
        users = {client.uid: client.user for client in (daemon.clients() if daemon else ()) if client.user}
        self._ranking = rank(sorted(self._known.values(), key=lambda event: event.time or 0.0), users)
        why = not_told(snapshot, daemon)
        if not why and self._trouble and daemon is not None and daemon.watch != "logs":
            why = "the daemon's logs, which alone tell of faults, are not read"
        self.suspects.unread = "" if self._known else why
        self.suspects.take(self._ranking)

    def describe(self, snapshot: Snapshot) -> tuple[str, list[Para]]:
        return "Clients that may have caused the faults", list(self._said())

    def _said(self) -> Iterator[Para]:
        ranking, row = self._ranking, self.suspects.cursor_row
        if self.suspects.unread:
            yield Para(f"Whether there was a fatal fault is not known: {self.suspects.unread}.", "text", UNKNOWN)
        else:
            yield Para(ranking.sentence, "bold" if ranking.faults else "good", "" if ranking.faults else "✓")
        for note in ranking.notes:
            yield Para(note, "dim", "·")
        if self._trouble:
            yield Para(self._trouble, "warn", "▲")
        for text in self._missing:
            yield Para(f"{text}.", "warn", "▲")
        if row is not None:
            yield Para()
            yield Para(f"{row.text}: {row.presence}", "accent", "▸")
            for fault, clients in faults_of(row, ranking.faults)[-_SHOWN:]:
                when = UNKNOWN
                if fault.time is not None:
                    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(fault.time))
                mine = client_pids([s.pid for s in clients], _SHOWN)
                mine += " (command not known)" if all(s.command is None for s in clients) else ""
                named = client_pids(fault.named) if fault.named else "no client"
                yield Para(f"{when}  {mine}; server.log names {named}", "text", "·")
        if ranking.faults:
            yield Para()
            yield Para(f"{ADVICE[0]} {self.k('copy', 'y')} copies the commands:", "accent", "1")
            yield Para(START, "text", BAR)
            yield Para(RUN, "text", BAR)
            yield Para(ADVICE[1], "accent", "2")
            yield Para(ADVICE[2], "dim", "·")

    def own_hints(self) -> list[KeyHint]:
        return [
            KeyHint(self.k("copy", "y"), "Copy commands", "copy", 8, unless(self._ranking.faults, "there was no fault"))
        ]

    def action_copy(self) -> None:
        if self._ranking.faults:
            self.copy(f"{START}\n{RUN}", "the commands that run a suspect in a daemon of its own")
