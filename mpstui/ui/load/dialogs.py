"""Three questions: leave with a load running, start one beside others' clients, start one that endangers them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Input, Static

from mpstui.core.model import Client, Device, Snapshot
from mpstui.core.text import plural
from mpstui.load.footprint import Takes
from mpstui.operations.load import beside
from mpstui.ui.dialogs.base import ConfirmDialog
from mpstui.ui.dialogs.widgets import Lines, Listing, Push, in_columns, marked, plain
from mpstui.ui.form import TypedLine
from mpstui.ui.load.session import LoadSession
from mpstui.ui.load.setup import WORD


class LeaveDialog(ConfirmDialog):
    """Stops the load while it is in front, and then leaves; without a yes nothing ends."""

    def __init__(self, session: LoadSession, leave: Callable[[], None]) -> None:
        super().__init__(Snapshot(0.0))
        self._session = session
        self._leave = leave
        self._stopping = False
        self._unsubscribe: Callable[[], None] | None = None

    def compose(self) -> ComposeResult:
        yield self.frame(
            "Quit",
            "↑↓ scroll lists · Enter presses the marked button · Tab move · Esc stay",
            Lines(id="what"),
            foot=(Push("Stay", id="cancel"), Push("Stop all and quit", id="apply", classes="-go")),
        )

    def on_mount(self) -> None:
        self._unsubscribe = self._session.subscribe(lambda at_once: self.show() if at_once else None)
        super().on_mount()

    def on_unmount(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()

    def show(self) -> None:
        live = len(self._session.live)
        clients = f"{plural(live, 'client')} of the load"
        lines = [marked("·", f"Not ended: {clients}. The load has to be stopped first.")]
        if self._session.private_dir is not None:
            lines.append(marked("·", "The private daemon ends with them."))
        if self._stopping:
            lines = [marked("…", f"stopping: {clients} left")]
        self.query_one("#what", Lines).show(*lines)

    def pressed(self, button: str) -> None:
        if not self._stopping:
            self._stopping = True
            self.query_one("#apply", Push).disabled = True
            self.show()
            self.app.run_worker(self._end(), group="load", exit_on_error=False)

    async def _end(self) -> None:
        await self._session.close()
        self._leave()

    def action_close(self) -> None:
        if not self._stopping:
            self.dismiss(None)


class BesideDialog(ConfirmDialog):
    """Names whose clients are there and what the load takes; Cancel has the focus."""

    DEFAULT_CSS = "BesideDialog #hits { margin-top: 1; }"

    def __init__(
        self,
        number: int,
        others: Callable[[], Sequence[Client]],
        taken: Callable[[], Takes],
        devices: Callable[[], Sequence[Device]],
        start: Callable[[], None],
    ) -> None:
        """``number``: how many would be started. ``others``: whose clients are there now; what the load would take of
        which devices is asked anew too, as it shares out what they have left."""
        super().__init__(Snapshot(0.0))
        self._number = number
        self._others = others
        self._taken = taken
        self._devices = devices
        self._start = start

    def compose(self) -> ComposeResult:
        yield self.frame(
            "Others work here",
            "↑↓ scroll lists · Enter presses the marked button · Tab move · Esc cancel",
            Lines(id="what"),
            Listing(id="hits"),
            foot=(
                Push("Cancel", id="cancel"),
                Push(f"Start {plural(self._number, 'client')}", id="apply", classes="-harm"),
            ),
            harm=True,
        )

    def show(self) -> None:
        whom, what, clients = beside(self._number, self._others(), self._taken(), self._devices())
        self.query_one("#what", Lines).show(
            marked("▲", whom, "$text-warning"),
            marked("▲", what, "$text-warning"),
            marked("·", "MPS ‹private daemon› keeps them out of this server; they still share the device."),
        )
        self.query_one("#hits", Listing).show(
            f"There now: {len(clients)}",
            [Content(plain(client)) for client in in_columns(clients)],
        )

    def pressed(self, button: str) -> None:
        self.dismiss(None)
        self._start()


class EndangerDialog(ConfirmDialog):
    """Names the harm; the way on is to type the word."""

    AUTO_FOCUS: ClassVar[str] = "#word"
    DEFAULT_CSS = """
    EndangerDialog {
        #word { width: 24; height: 1; border: none; padding: 0 1; background: $panel; margin: 1 0 0 2; }
        #how { margin-top: 1; height: auto; color: $text-muted; }
    }
    """

    def __init__(self, text: str, safer: str, hits: str, start: Callable[[], None]) -> None:
        super().__init__(Snapshot(0.0))
        self._text = text
        self._safer = safer
        self._hits = hits
        self._start = start

    def compose(self) -> ComposeResult:
        word = TypedLine(id="word", max_length=32, placeholder=WORD)
        yield self.frame(
            "This endangers others",
            "↑↓ scroll lists · Esc cancel",
            Lines(id="what"),
            Static(Content(plain(f"Type {WORD} to start it anyway. Better: {self._safer}.")), id="how"),
            word,
            foot=(Push("Cancel", id="cancel"), Push("Start", id="apply", classes="-harm")),
            harm=True,
        )

    def show(self) -> None:
        lines = [marked("▲", self._text, "$text-warning")]
        if self._hits:
            lines.append(marked("✕", self._hits))
        self.query_one("#what", Lines).show(*lines)
        self.query_one("#apply", Push).disabled = not self._typed

    @property
    def _typed(self) -> bool:
        return self.query_one("#word", Input).value.strip() == WORD

    @on(Input.Submitted)
    def _submitted(self) -> None:
        if self._typed:
            self.answer("apply")
        else:
            text = f"Nothing was started. To start, type {WORD} exactly as shown."
            self.app.notify(text, title="Load", severity="warning", markup=False, timeout=4)

    def pressed(self, button: str) -> None:
        self.dismiss(None)
        self._start()
