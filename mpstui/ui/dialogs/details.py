"""Everything that is known of one thing, kept up to date while it is looked at, and copied with one key."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import ClassVar, Protocol

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from mpstui.core.model import ProcessKey, Snapshot
from mpstui.ui.dialogs.base import Dialog
from mpstui.ui.dialogs.facts import rows_of
from mpstui.ui.dialogs.widgets import Lines, Sheet, marked


class Environments(Protocol):
    """Part of ``mpstui.ui.plan.contract.PlanBackend``."""

    async def environment(self, key: ProcessKey) -> Mapping[str, str] | None: ...


SCROLLING: list[BindingType] = [
    Binding("j", "scroll(1)", "Down", show=False),
    Binding("k", "scroll(-1)", "Up", show=False),
    Binding("g", "scroll(-100000)", "Begin", show=False),
    Binding("G", "scroll(100000)", "End", show=False),
]


class Reader(Dialog):
    """A dialog that is only read: it scrolls, and Enter or q closes it too."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *SCROLLING,
        Binding("enter,q", "close", "Close", show=False),
        Binding("y", "copy", "Copy"),
    ]

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
        yield self.frame("Details", "↑↓ scroll · y copy · Esc close", Lines(id="gone"), Sheet(id="facts"))

    def show(self) -> None:
        found = rows_of(self.snapshot, self.kind, self.identity, self._environment)
        gone = self.query_one("#gone", Lines)
        if found is None:
            gone.show(marked("✕", "It is gone; this is what was last known.", "$text-warning"))
            return
        gone.show()
        title, rows = found
        self.say_title(title)
        self.query_one("#facts", Sheet).show(rows)
