"""Everything that is wrong, or might be: the node's problems as they stand, and the doctor's check-up of the set-up."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from textual.binding import Binding, BindingType

from mpstui.api import Unavailable
from mpstui.core.cells import SEVERITY
from mpstui.core.late import dataclass
from mpstui.core.model import Severity, Snapshot
from mpstui.core.text import about, plural
from mpstui.doctor.types import Finding, Verdict
from mpstui.ui.bars import KeyHint, unless
from mpstui.ui.box import Para
from mpstui.ui.contract import Runner
from mpstui.ui.lines import Line, fit
from mpstui.ui.panel import Panel
from mpstui.ui.screens import ListScreen
from mpstui.ui.trouble.contract import TroubleBackend

_MARK: Final[dict[Severity | Verdict, tuple[str, str]]] = {
    "error": SEVERITY["error"],
    "warning": SEVERITY["warning"],
    "info": SEVERITY["info"],
    "ok": ("✓", "good"),
    "unknown": ("?", "dim"),
}
_RANK: Final[dict[Severity | Verdict, int]] = {"error": 0, "warning": 1, "info": 2, "unknown": 3, "ok": 4}
_BAD: Final[dict[Severity | Verdict, str]] = {"error": "bad", "warning": "warn"}
_WHERE: Final = {
    "fault": ("fault", "!", "says who has to end"),
    "bridge": ("blast", "b", "shows who loses work if a client faults"),
    "pending": ("users", "W", "says who waits for whom"),
    "outside": ("users", "W", "says why"),
    "lost": ("users", "W", "names them"),
    "outdated": ("filter", "/", "shows them: type old:yes"),
    "daemon_stale": ("daemons", "d", "starts a daemon"),
    "daemon_absent": ("daemons", "d", "starts a daemon"),
}
"""Where in the overview a problem is dealt with: the key's id, its default, and what it does."""


@dataclass(frozen=True, slots=True)
class Item:
    """A problem or a finding, as one thing."""

    severity: Severity | Verdict
    code: str
    subject: str
    text: str
    remedy: str
    checked: bool
    """Found by the check-up, not by the watching."""


def items_of(snapshot: Snapshot, findings: Sequence[Finding]) -> list[Item]:
    """Problems as they are now, then findings. The worst first. A finding about the problems of the status is that of
    the moment of the check-up: they tell it themselves, in their words of now, or it is over."""
    items = [Item(p.severity, p.code, p.subject, p.text, p.remedy, False) for p in snapshot.problems]
    told, codes = {(p.subject, p.text) for p in snapshot.problems}, {p.code for p in snapshot.problems}
    items += (
        Item(f.verdict, f.check, f.subject, f.evidence, f.remedy, True)
        for f in findings
        if (f.subject, f.evidence) not in told and not (codes & set(f.codes) if f.verdict == "ok" else f.codes)
    )
    return sorted(items, key=lambda item: (_RANK[item.severity], item.checked))


class ItemsPanel(Panel[Item]):
    """One line for each."""

    KIND: ClassVar[str] = "problem"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.state: Line = ()

    def key(self, row: Item) -> tuple[str, str, str]:
        # The text may count seconds or clients; the row is the same one.
        return row.code, row.subject, row.text if row.checked else ""

    def title(self) -> Line:
        """How many rows there are of each severity, the worst first."""
        many = Counter(item.severity for item in self.rows)
        there = [word for word in _RANK if many[word]]
        said = [(word, plural(many[word], word) if word in _BAD else f"{many[word]} {word}") for word in there]
        counts = [(f"{', ' if at else ' '}{text}", _BAD.get(word, "dim")) for at, (word, text) in enumerate(said)]
        return (("Problems", "title"), *counts)

    def corner(self) -> Line:
        return self.state

    def empty(self) -> str:
        return "no problem is known"

    def text_of(self, row: Item) -> str:
        return f"{row.severity} {_plain(row)}"

    def row_lines(self, row: Item, width: int) -> list[Line]:
        symbol, style = _MARK[row.severity]
        room = 16 if width < 60 else max(26, width // 3)
        return [
            (
                (f"  {symbol} ", style),
                (fit(row.subject, room) + " ", "bold" if row.severity in {"error", "warning"} else "label"),
                (row.text, "text" if row.severity in {"error", "warning"} else "dim"),
            )
        ]


class ProblemsScreen(ListScreen):
    """Runs the check-up when it is opened and again on ``r``; the problems are live."""

    panel: ItemsPanel
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "check", "Check again", show=False, id="refresh"),
        Binding("y", "copy", "Copy evidence and remedy", show=False, id="copy"),
        Binding("Y", "copy_all", "Copy all of it", show=False, id="problems.copy_all"),
    ]
    DEFAULT_CSS = """
    ProblemsScreen {
        & #list { width: 3fr; }
        & #text { width: 2fr; }
        &.-narrow #list { height: 3fr; }
        &.-narrow #text { height: 2fr; }
    }
    """

    def __init__(
        self, runner: Runner, backend: TroubleBackend | None, snapshot: Snapshot | None, pipe_dir: Path | None
    ) -> None:
        super().__init__(runner, snapshot, pipe_dir)
        self._backend = backend
        self._findings: tuple[Finding, ...] = ()
        self._checking = False
        self._checked_at: float | None = None
        self._trouble = ""

    def make_list(self) -> Panel[Item]:
        return ItemsPanel(id="list")

    @property
    def items(self) -> ItemsPanel:
        return self.panel

    def on_mount(self) -> None:
        self.action_check()

    def fill(self, snapshot: Snapshot) -> None:
        self.items.state = self._state()
        self.items.set_rows(items_of(snapshot, self._findings))

    def _state(self) -> Line:
        if self._backend is None:
            return ()
        if self.why_past is not None:
            return ((self.why_past, "warn"),)
        if self._checking:
            return (("checking the set-up …", "warn"),)
        if self._trouble:
            return ((self._trouble, "bad"),)
        if self._checked_at is None:
            return ()
        return ((f"checked at {time.strftime('%H:%M:%S', time.localtime(self._checked_at))}", "dim"),)

    def describe(self, snapshot: Snapshot) -> tuple[str, list[Para]]:
        item = self.items.cursor_row
        if item is None:
            return "Nothing", [Para("No problem is known.", "good", "✓")]
        symbol, style = _MARK[item.severity]
        out = [Para(item.subject, "bold"), Para(), Para(item.text, "text" if style == "dim" else style, symbol)]
        if item.remedy and item.severity != "ok":
            out += [Para(), Para(item.remedy, "accent", "→")]
        deals = item.code in _WHERE and (self.why_past is None or _WHERE[item.code][0] != "daemons")
        if not item.checked and deals:
            name, key, what = _WHERE[item.code]
            if item.code == "fault" and item.severity != "error":
                what = "tells more"  # nobody is to end on that word
            out.append(Para(f"{self.k(name, key)} in the overview {what}", "accent", "→"))
        past = "as it was then" if snapshot.past is not None else "clears by itself"
        out += [Para(), Para("found by the check-up" if item.checked else past, "dim", "·")]
        return item.code.replace("_", " "), out

    def own_hints(self) -> list[KeyHint]:
        nothing = unless(self.items.rows, "nothing was found")
        return [
            KeyHint(
                self.k("refresh", "r"),
                "Check again",
                "check",
                8,
                "it is being checked"
                if self._checking
                else self.why_past or unless(self._backend, "nothing can be checked here"),
            ),
            KeyHint(self.k("copy", "y"), "Copy", "copy", 6, nothing),
            KeyHint(self.k("problems.copy_all", "Y"), "Copy all", "copy_all", 5, nothing),
        ]

    def action_check(self) -> None:
        """Have the set-up checked; it reads files and may take seconds."""
        if self._backend is not None and not self._checking and self.snapshot is not None and self.why_past is None:
            self._checking = True
            self.show()
            self.run_worker(self._check(self._backend, self.snapshot), exit_on_error=False)

    async def _check(self, backend: TroubleBackend, snapshot: Snapshot) -> None:
        try:
            self._findings = tuple(await backend.findings(snapshot))
            self._trouble, self._checked_at = "", snapshot.time
        except Unavailable as error:
            self._trouble = str(error)
        finally:
            self._checking = False
            if self.is_attached:
                self.show()

    def action_copy(self) -> None:
        if (item := self.items.cursor_row) is not None:
            self.copy(_plain(item), item.subject)

    def action_copy_all(self) -> None:
        self.copy("\n".join(_plain(item) for item in self.items.rows), plural(len(self.items.rows), "finding"))


def _plain(item: Item) -> str:
    remedy = f"\n    → {item.remedy}" if item.remedy and item.severity != "ok" else ""
    return f"{item.severity:<8} {about(item.subject, item.text)}{remedy}"
