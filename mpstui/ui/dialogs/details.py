"""Everything that is known of one thing, kept up to date while it is looked at, and copied with one key."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import ClassVar, Final, Protocol

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widget import Widget

from mpstui.core.model import ProcessKey, Snapshot
from mpstui.core.text import as_shown
from mpstui.ui.dialogs.base import Dialog
from mpstui.ui.dialogs.facts import rows_of
from mpstui.ui.dialogs.widgets import DetailRow, Heading, Lines, Sheet, marked
from mpstui.ui.form import TypedLine


class Environments(Protocol):
    """Part of ``mpstui.ui.plan.contract.PlanBackend``."""

    async def environment(self, key: ProcessKey) -> Mapping[str, str] | None: ...


_HINT: Final = "↑↓ scroll · / find · y copy · Esc close"
SCROLLING: list[BindingType] = [
    Binding("j", "scroll(1)", "Down", show=False),
    Binding("k", "scroll(-1)", "Up", show=False),
    Binding("g", "scroll(-100000)", "Begin", show=False),
    Binding("G", "scroll(100000)", "End", show=False),
]


class Reader(Dialog):
    """A dialog that is only read: it scrolls, finds rows, and Enter or q closes it too."""

    LOOK_FOR: ClassVar[str] = "what to look for, as memory"
    BINDINGS: ClassVar[list[BindingType]] = [
        *SCROLLING,
        Binding("enter,q", "close", "Close", show=False),
        Binding("y", "copy", "Copy"),
        Binding("slash", "find", "Find", show=False, id="filter"),
    ]
    DEFAULT_CSS = "Reader #find { height: 1; border: none; padding: 0; background: transparent; display: none; }"

    def reader(self, title: str, *above: Widget) -> Vertical:
        """The box: the line that takes a search, what stands ``above``, and the rows."""
        self._line = TypedLine(placeholder=self.LOOK_FOR, id="find")
        return self.frame(title, _HINT, self._line, *above, Sheet(id="facts"))

    def fill(self, rows: Sequence[DetailRow | Heading], more: Sequence[DetailRow | Heading] = ()) -> None:
        """Show these, or those of them that are looked for, and then of ``more`` too."""
        words = as_shown(self._line.value).lower().split()
        self.query_one("#facts", Sheet).show(found([*rows, *more], words) if words else rows)

    def action_find(self) -> None:
        """Only the rows that have what is typed."""
        self._line.display = True
        self._line.focus()
        self.query_one("#body").scroll_home(animate=False)
        self.say_hint("type to find · Enter scroll · Esc show all")

    @on(TypedLine.Submitted, "#find")
    def _keep(self) -> None:
        self.query_one("#body").focus()
        self.say_hint(_HINT.replace("Esc close", "Esc show all") if self._line.display else _HINT)

    def action_close(self) -> None:
        """Out of the search first, then away."""
        if not self._line.display:
            super().action_close()
            return
        self._line.value = ""
        self._line.display = False
        self._keep()

    def on_key(self, event: events.Key) -> None:
        self.say_works_below(event.key)

    def action_scroll(self, step: int) -> None:
        self.query_one("#body").scroll_relative(y=step, animate=False)

    def action_copy(self) -> None:
        """To the clipboard of the terminal that the user sits at (OSC 52), also over SSH."""
        self.app.copy_to_clipboard(self.query_one(Sheet).text)
        self.app.notify("Copied", markup=False, timeout=3)


class DetailsScreen(Reader):
    """All fields of a client, server, device, daemon, limit or event; see ``facts.rows_of`` for the identities."""

    DEFAULT_CSS = "DetailsScreen #gone { margin-bottom: 1; }"

    def __init__(self, snapshot: Snapshot, kind: str, identity: Hashable) -> None:
        super().__init__(snapshot)
        self.kind = kind
        self.identity = identity
        self._environment: Mapping[str, str] | None = None

    def on_mount(self) -> None:
        super().on_mount()
        if self.kind == "client" and isinstance(self.identity, ProcessKey):
            self.run_worker(self._read_environment(self.identity), exit_on_error=False)

    async def _read_environment(self, key: ProcessKey) -> None:
        """What the client was started with has a say in its limits."""
        backend: Environments | None = getattr(self.app, "plans", None)
        if backend is not None:
            self._environment = await backend.environment(key)
            if self.is_attached:
                self.show()

    def compose(self) -> ComposeResult:
        yield self.reader("Details", Lines(id="gone"))

    def show(self) -> None:
        known = rows_of(self.snapshot, self.kind, self.identity, self._environment)
        gone = self.query_one("#gone", Lines)
        if known is None:
            gone.show(marked("✕", "It is gone; this is what was last known.", "$text-warning"))
            return
        gone.show()
        title, rows = known
        self.say_title(title)
        if self.kind == "device":
            rows = [*rows, DetailRow(), DetailRow("a share of it", self._divided_by())]
        self.fill(rows)

    def _divided_by(self) -> str:
        """What gives somebody a share of one GPU."""
        partitions = f"{self.k('partitions', 'P')} on the overview"
        if any(daemon.static_partitioning for daemon in self.snapshot.daemons):
            return f"{partitions} (partitions) divides it: percentages have no effect"
        if any(daemon.named_servers for daemon in self.snapshot.daemons):
            text = f"{partitions} (SM partitions, namespaces) divides it"
            return f"{text}: a namespace's percentage cannot be set for one GPU"
        return f"{self.k('plan', 'p')} on the overview (plan) divides it: a percentage cannot be set for one GPU"


_STEM = 3
"""Letters of a word from which on an s at its end may be missing."""


def found(rows: Sequence[DetailRow | Heading], words: Sequence[str]) -> list[DetailRow | Heading]:
    """The rows that have all ``words`` (small letters), each below its heading; a line that says so where none has. Of
    ``limits`` it is found too what has ``limit``."""
    stems = [word[:-1] if len(word) > _STEM and word.endswith("s") else word for word in words]
    kept: list[DetailRow | Heading] = []
    heading: Heading | None = None
    for row in rows:
        if isinstance(row, Heading):
            heading = row
        elif all(word in f"{row.label} {row.value} {heading.text if heading else ''}".lower() for word in stems):
            if not (row.label or row.value):
                continue
            if heading is not None and heading not in kept:
                kept += [*([DetailRow()] if kept else ()), heading]
            kept.append(row)
    return kept or [DetailRow("", "nothing here has that; Esc shows all")]
