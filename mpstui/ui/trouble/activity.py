"""Who launches kernels: one look at all clients of the node at once, and another one at a key."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import ClassVar, Final

from textual.binding import Binding, BindingType

from mpstui.core.activity import CAVEAT, ActivityLook, Launcher, launching_words
from mpstui.core.model import ProcessKey, Snapshot
from mpstui.core.text import UNKNOWN, nouns, owner, path_text, plural
from mpstui.fields import LAUNCHER, Field, Thing, View
from mpstui.ui.bars import KeyHint, unless
from mpstui.ui.box import Para
from mpstui.ui.contract import Runner
from mpstui.ui.lines import Line
from mpstui.ui.panel import Panel
from mpstui.ui.panels.table import TablePanel
from mpstui.ui.screens import ListScreen
from mpstui.ui.typeahead import opens

SECONDS: Final = 2.0


class LaunchersPanel(TablePanel[Launcher]):
    """Who launched most comes first."""

    KIND: ClassVar[str] = "client"
    THING: ClassVar[Thing[Launcher]] = LAUNCHER
    STRETCH: ClassVar[bool] = True
    GUTTER: ClassVar[int] = 3

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.under_way: Line = ()
        self.looked: float | None = None
        """When it was counted."""
        self.gone: frozenset[ProcessKey] = frozenset()
        """Who has ended since then, or has left MPS."""

    def key(self, row: Launcher) -> Hashable:
        return row.key

    def title(self) -> Line:
        counted = [row for row in self.rows if row.launches is not None]
        told = ""
        if self.rows:
            clients = all(row.pipe_dir is not None for row in self.rows)
            none = f"{plural(len(self.rows), 'client' if clients else 'process')}, none counted"
            told = f" {launching_words(counted, 'launch', 'launches') if counted else none}"
            missing = len(self.rows) - len(counted)
            told += f" · {missing} not counted" if counted and missing else ""
            told += time.strftime(" · %H:%M:%S", time.localtime(self.looked)) if self.looked is not None else ""
            told += f" · {len(self.gone)} gone" if self.gone else ""
        return (("Launches", "title"), (told, "dim"), *self.under_way)

    def sorted_by(self, each: Field[Launcher]) -> str:
        return "▼" if each.id == "launches_per_second" else ""

    def empty(self) -> str:
        return "" if self.under_way else "there is no client"


class ActivityScreen(ListScreen):
    """Counts for two seconds when it is opened; nothing is counted after that."""

    NAME = "Activity"
    panel: LaunchersPanel
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a,r", "again", "Look again", show=False, id="activity.again"),
    ]
    DEFAULT_CSS = """
    ActivityScreen {
        & #list { width: 3fr; }
        & #text { width: 2fr; }
        &.-narrow #list { height: 4fr; }
        &.-narrow #text { height: 3fr; }
    }
    """

    def __init__(self, runner: Runner, snapshot: Snapshot | None, pipe_dir: Path | None) -> None:
        super().__init__(runner, snapshot, pipe_dir)
        self._look: ActivityLook | None = None
        self._counting = False

    def make_list(self) -> Panel[Launcher]:
        return LaunchersPanel(id="list")

    @property
    def launchers(self) -> LaunchersPanel:
        return self.panel

    def on_mount(self) -> None:
        super().on_mount()
        self.action_again()

    def action_again(self) -> None:
        """Count once more; what was counted before stays in sight until then. In the past, where nobody is counted,
        one look says so of each."""
        if self._counting or (self.why_past is not None and self._look is not None):
            return
        self._counting = True
        self.launchers.under_way = ((f"  counting for {SECONDS:g} s …", "warn"),)
        self.run_worker(self._count(), exit_on_error=False)
        self.show()

    async def _count(self) -> None:
        try:
            self._look = await self.host.activity(SECONDS)
        finally:
            self._counting = False
            self.launchers.under_way = ()
            if self.is_attached:
                self.show()

    def fill(self, snapshot: Snapshot) -> None:
        rows = self._look.launchers if self._look else ()
        panel = self.launchers
        panel.looked = self._look.time if self._look else None
        panel.gone = _gone(rows, snapshot)
        panel.set_rows(rows, context=(self._look, self._counting, panel.gone))

    def describe(self, snapshot: Snapshot) -> tuple[str, list[Para]]:
        look, said = self._look, []
        if look is not None:
            simulated = "SIMULATED: " if look.source == "simulated" else ""
            said.append(Para(simulated + look.sentence, "bold"))
        said += [Para(CAVEAT, "dim", "·"), Para("A graph counts as one launch, whatever it holds.", "dim", "·")]
        if look is not None and look.how:
            after = "counting goes on in windows" if snapshot.watches_activity else "nothing is attached now"
            said.append(Para(f"Counted from outside, by {look.how}; {after}.", "dim", "·"))
        row = self.launchers.cursor_row
        if row is not None and look is not None:
            said += [Para(), *_about(row, gone=row.key in self.launchers.gone)]
        return "What it says", said

    def own_hints(self) -> list[KeyHint]:
        again = KeyHint(self.k("activity.again", "a"), "Look again", "again", 8, self.why_past)
        why = unless(self._client(), "there is no client of MPS under the cursor")
        details = KeyHint(self.k("open", "Enter"), "Details", "details", 7, why)
        return [details] if self._counting else [again, details]  # the result comes in a moment

    def _client(self) -> ProcessKey | None:
        """The client under the cursor, if it is one still."""
        row, snapshot = self.launchers.cursor_row, self.snapshot
        known = (
            row is not None
            and snapshot is not None
            and any(client.key == row.key for daemon in snapshot.daemons for client in daemon.clients())
        )
        return row.key if row is not None and known else None

    def open_row(self, message: Panel.Opened) -> None:
        self.action_details()

    @opens
    def action_details(self) -> None:
        """All that is known of the client."""
        key, snapshot = self._client(), self.snapshot
        if key is None or snapshot is None:
            self.say("The cursor is not on a client of MPS: what is known of the process is below.")
            return
        self.host.open_details("client", key)


def _gone(rows: Sequence[Launcher], snapshot: Snapshot) -> frozenset[ProcessKey]:
    """Who is there no more, by those who know: the daemon of a client, NVML of the others."""
    there = {client.key for daemon in snapshot.daemons for client in daemon.clients()}
    there |= {each.key for each in snapshot.outside}

    def known(row: Launcher) -> bool:
        daemon = snapshot.daemon(row.pipe_dir) if row.pipe_dir is not None else None
        return daemon.servers_known if daemon is not None else snapshot.nvml_detail is None

    return frozenset(row.key for row in rows if row.key.among(there) is None and known(row))


def _about(row: Launcher, *, gone: bool) -> list[Para]:
    """The process under the cursor; ``gone``: since the look."""
    said = [Para(f"{row.pid}: {owner(row.user, row.uid)}", "accent", "▸")]
    if gone:
        said.append(Para("gone since then", "warn", "–"))
    if row.launches is None:
        said.append(Para(f"not counted: {row.why}", "warn", "▲"))
    else:
        of_all = "" if row.share is None else f", {LAUNCHER['share'].text(row, View())} of all that were counted"
        said.append(Para(f"{row.launches:,} {nouns(row.launches, 'launch')}{of_all}", "text", "·"))
    if row.gpu_memory is not None:
        said.append(Para(f"{'held' if gone else 'holds'} {LAUNCHER['gpu_memory'].text(row, View())}", "text", "·"))
    if row.pipe_dir is None:
        said.append(Para("computed without MPS" if gone else "computes without MPS", "bad", "▲"))
    else:
        said.append(Para(f"{'was a ' if gone else ''}client of {path_text(row.pipe_dir)}", "dim", "·"))
    if row.container:
        said.append(Para(f"{'was ' if gone else ''}in {row.container}", "dim", "·"))
    return [*said, Para(row.command or UNKNOWN, "text", "·")]
