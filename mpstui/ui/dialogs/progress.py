"""Dialogs that ask, have something carried out, show progress and outcome; closed meanwhile, the work goes on."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from textual import events
from textual.app import App
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Static
from textual.worker import Worker

from mpstui.core.late import dataclass
from mpstui.core.model import Daemon, ProcessKey, Snapshot
from mpstui.operations.operation import Operation
from mpstui.operations.types import Progress, Request
from mpstui.ui.contract import Runner
from mpstui.ui.dialogs.base import ConfirmDialog
from mpstui.ui.dialogs.widgets import Lines, Listing, Push, marked, plain
from mpstui.ui.layout import room_of


@dataclass(frozen=True, slots=True)
class DialogOutcome:
    """What came of it."""

    good: bool
    message: str
    """One sentence."""
    details: tuple[str, ...] = ()
    remedy: str = ""
    waits: bool = False
    """Not done, and not failed: it goes on by itself."""

    def lines(self) -> list[Content]:
        """As the dialog shows it."""
        mark, style = ("✓", "$text-success") if self.good else ("✕", "$text-error")
        if self.waits:
            mark, style = "…", "$text-warning"
        lines = [marked(mark, self.message, f"{style} bold"), *(Content(f"  {plain(line)}") for line in self.details)]
        return [*lines, marked("→", self.remedy, "$text-warning")] if self.remedy else lines

    def notify(self, app: App[Any], title: str) -> None:
        """As a notification, where the dialog is closed."""
        parts = filter(None, (self.message, *self.details[:5], self.remedy))
        app.notify(
            "\n".join(map(plain, parts)),
            title=title,
            severity="information" if self.good else "warning" if self.waits else "error",
            timeout=8 if self.good else 30,
            markup=False,
        )


class ProgressDialog(ConfirmDialog):
    """Cancel has the focus. Subclasses give ``show()`` for the question and ``pressed()`` for the yes.

    What has the class ``question`` is there until the work begins; an ``entry`` comes back where the work has failed.
    """

    PROGRESS: ClassVar[str] = "Progress"
    """What the lines are called that come while it works."""
    MARK: ClassVar[str] = "·"
    ASKS_AGAIN: ClassVar[bool] = False
    """Whether another value in a field asks anew, where it has been carried out or has failed."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "copy", "Copy what came of it", show=False, id="copy"),
    ]
    DEFAULT_CSS = """
    ProgressDialog {
        #problem { margin-top: 1; }
        #outcome { margin-top: 1; }
        Listing { margin-top: 1; }
        .-outcome .question { display: none; }
        .-settled .entry { display: none; }
        .field { height: auto; margin-bottom: 1; }
        .field > .label { width: 13; color: $text-muted; }
        .field > Input {
            width: 1fr; height: 1; border: none; padding: 0 1; background: $panel;
            &:focus { background: $panel; border: none; background-tint: $foreground 8%; }
            &.-wrong { color: $text-error; }
            &:ansi { border: none; border-left: solid ansi_default; border-right: solid ansi_default; }
            &:ansi:focus { border: none; border-left: solid ansi_blue; border-right: solid ansi_blue; }
        }
    }
    """

    def __init__(self, snapshot: Snapshot, work_title: str) -> None:
        """``work_title``: of the notification."""
        super().__init__(snapshot)
        self.asked = snapshot
        """What was shown when it was opened, or is asked again: a yes is for the daemon of that one."""
        self.work_title = work_title
        self.state: Literal["asking", "running", "ended"] = "asking"
        self.result: DialogOutcome | None = None
        self._progress: list[str] = []
        self._worker: Worker[None] | None = None

    @property
    def settled(self) -> bool:
        """Whether it is being carried out or has been; after a failure it can be tried again."""
        return self.state == "running" or (self.result is not None and self.result.good)

    def outcome_parts(self) -> tuple[Listing, Lines]:
        return Listing(id="progress"), Lines(id="outcome")

    def foot(self, label: str, classes: str = "-go") -> tuple[Push, Push]:
        return Push("Cancel", id="cancel"), Push(label, id="apply", classes=classes)

    def on_key(self, event: events.Key) -> None:
        """With the outcome it is only read."""
        if self.state == "ended":
            self.say_works_below(event.key)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """There is nothing to copy before the end."""
        return self.result is not None if action == "copy" else super().check_action(action, parameters)

    def action_copy(self) -> None:
        """To the clipboard of the terminal that the user sits at (OSC 52), also over SSH."""
        if self.result is not None:
            told = (*self._progress, *(line.plain for line in self.result.lines()))
            self.app.copy_to_clipboard("\n".join(map(plain, (self.work_title, *told))))
            self.app.notify("Copied", markup=False, timeout=3)

    def told_hint(self) -> str:
        """An outcome, also one of an error for a ticket, can be copied."""
        hint = super().told_hint()
        return hint if self.result is None else hint.replace(" · Esc", " · y copy · Esc")

    def begin(self, work: Callable[[Progress], Coroutine[Any, Any, DialogOutcome]]) -> None:
        """Have it carried out, unless something is already; the dialog may be closed meanwhile."""
        if self.state == "running":
            return
        self.state, self.result, self._progress = "running", None, []
        self.query_one("#cancel").focus()
        self._show_outcome()
        self.show()
        self._worker = self.app.run_worker(self._carry_out(self.app, work), group="actions", exit_on_error=False)

    def give_up(self) -> None:
        """End what is being carried out, so that something else can be begun."""
        if self._worker is not None:
            self._worker.cancel()
        self.state = "asking"

    async def _carry_out(self, app: App[Any], work: Callable[[Progress], Coroutine[Any, Any, DialogOutcome]]) -> None:
        try:
            result = await work(self._add_progress)
        except Exception as error:
            result = DialogOutcome(
                False,
                f"An error of mpstui itself stopped this: {type(error).__name__}: {error}",
                remedy="What reached the daemon is not known: see the screen and the audit log before trying again.",
            )
        self.state, self.result = "ended", result
        if self.is_attached and self.is_running:
            self._show_outcome()
            self.show()
        else:
            result.notify(app, self.work_title)

    def _add_progress(self, line: str) -> None:
        self._progress.append(line)
        if self.is_attached and self.is_running:
            self._show_outcome()

    def _show_outcome(self) -> None:
        style = "$text-muted" if self.result and self.MARK else ""
        told = set(self.result.details) if self.result else set[str]()  # not twice
        came = [line for line in self._progress if line not in told]
        lines = [marked(self.MARK, line, style) if self.MARK else Content(plain(line)) for line in came]
        outcome = self.result.lines() if self.result is not None else []
        if self.state == "running":
            outcome = [marked("…", "working; closing this window does not stop it", "$text-muted")]
        box = self.query_one("#box")
        box.set_class(self.state != "asking", "-outcome")
        box.set_class(self.settled, "-settled")
        self.query_one("#progress", Listing).show(self.PROGRESS, lines, follow=True)
        self.query_one("#outcome", Lines).show(*outcome)
        self.call_after_refresh(self.query_one("#body").scroll_end, animate=False)

    def changed(self) -> None:
        if self.ASKS_AGAIN:
            self.ask_again()
        super().changed()

    def ask_again(self) -> None:
        """Back to the question, for another try."""
        if self.state == "ended":
            self.state, self.result, self._progress, self.asked = "asking", None, [], self.snapshot
            self._show_outcome()

    def show_foot(self, label: str, *, ready: bool) -> None:
        """The buttons as the state wants them."""
        apply = self.query_one("#apply", Push)
        apply.say(label)
        if apply.has_focus and not ready:
            self.query_one("#cancel").focus()
        apply.disabled = not ready
        apply.display = not (self.state == "ended" and self.settled)  # what is done is not offered once more
        self.query_one("#cancel", Push).say("Cancel" if self.state == "asking" else "Close")
        self._fit(room_of(self).height)  # the buttons may have other words
        self.tell_keys()

    def hint_meanwhile(self) -> None:
        """In place of the hint for the question, from the yes on."""
        self.say_hint(
            f"Enter marked button · Tab move · Esc {'close' if self.state == 'ended' else 'close; it goes on'}"
        )

    def say_refused(self) -> None:
        """Enter in a field whose value is not taken: it leads nowhere, and says so."""
        why = "The value is not taken: the line at ✕ says why."
        if not self.query_one("#problem", Lines).text.startswith("✕"):
            why = "Nothing is typed yet."
        self.app.notify(f"{why} Nothing was done.", title=self.work_title, severity="warning", markup=False, timeout=4)

    def show_problem(self, problem: str | None) -> None:
        """Why it cannot be done as asked."""
        self.query_one("#problem", Lines).show(*([marked("✕", problem, "$text-error")] if problem else []))


@runtime_checkable
class GoesBack(Protocol):
    """An app that has a key for what was before the last change."""

    def keep_way_back(self, back: Request, daemon: Daemon) -> None: ...


class ActionDialog(ProgressDialog):
    """A dialog that has an action of the registry carried out."""

    DEFAULT_CSS = """
    ActionDialog {
        #help { height: auto; color: $text-muted; margin-bottom: 1; }
        .-short #help { display: none; }
    }
    """

    def __init__(self, runner: Runner, action: Operation, pipe_dir: Path, snapshot: Snapshot) -> None:
        super().__init__(snapshot, action.title)
        self.runner = runner
        self.action = action
        self.pipe_dir = pipe_dir
        self.sent: Request | None = None
        """The wish that was carried out last."""

    def help_line(self) -> Static:
        return Static(Content(plain(self.action.help)), id="help", markup=False)

    def unavailable(self, clients: Sequence[ProcessKey]) -> str | None:
        """Why the action cannot be used now, for example because the program is read-only."""
        return self.runner.unavailable(self.action, self.snapshot, self.pipe_dir, clients)

    def request(self) -> Request:
        """The wish as it stands."""
        raise NotImplementedError

    def update_snapshot(self, snapshot: Snapshot) -> None:
        """What goes on by itself is followed to its end."""
        if self.result is not None and self.result.waits and self.sent is not None:
            now = self.action.by_now(self.sent, snapshot)
            if now is not None and now.message != self.result.message:
                self.result = DialogOutcome(now.done, now.message, now.details, now.remedy or "", now.waits)
                self._show_outcome()
        super().update_snapshot(snapshot)

    def pressed(self, button: str) -> None:
        if self.state == "ended" and self.ASKS_AGAIN:
            self.asked = self.snapshot  # another yes, after the outcome, to what is shown by now
        self.sent = request = self.request()
        app, daemon = self.app, self.snapshot.daemon(self.pipe_dir)
        back = self.action.undo(request, daemon) if daemon is not None else None
        way_back = (back, daemon) if daemon is not None and back is not None and back != request else None
        self.begin(lambda progress: self._execute(app, request, way_back, progress))

    async def _execute(
        self, app: App[Any], request: Request, way_back: tuple[Request, Daemon] | None, progress: Progress
    ) -> DialogOutcome:
        """``way_back``: what would take it back, on the daemon as it was before."""
        result = await self.runner.execute(request, self.asked, progress)
        details = result.details
        if result.done and way_back is not None and isinstance(app, GoesBack):
            back, daemon = way_back
            app.keep_way_back(back, daemon)
            key = f"{self.k('take_back', 'F4')} on the overview"
            was = self.action.said_value(back) if back.action == request.action else ""
            details = (
                *details,
                f"the value before was {was}: {key} sets it again, after asking"
                if was
                else f"{key} undoes it, after asking",
            )
        return DialogOutcome(result.done, result.message, details, result.remedy or "", result.waits)
