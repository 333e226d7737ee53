"""What all dialogs share: the frame, live snapshots, and for actions the way from the question to the result."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from textual import events
from textual.app import App
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.css.query import NoMatches
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from mpstui.actions.types import Action, ExitStatus, Request, Result
from mpstui.model import ProcessKey, Snapshot
from mpstui.ui.contract import Runner
from mpstui.ui.dialogs.parts import Lines, Listing, Push, marked, plain

State = Literal["asking", "running", "ended"]


class Dialog(ModalScreen[None]):
    """A framed dialog over the screen: a body that scrolls and a foot that stays. Escape closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "Close")]
    AUTO_FOCUS: ClassVar[str] = "#body"
    DEFAULT_CSS = """
    Dialog {
        align: center middle;
        & > #box {
            width: 100%; max-width: 100; height: auto; max-height: 100%;
            background: $surface; border: round $primary; padding: 0 2 0 2;
            border-title-color: $text-primary; border-title-style: bold;
            border-subtitle-color: $text-muted; border-subtitle-style: none;
        }
        & > #box.-harm { border: round $error; border-title-color: $text-error; }
        #body { height: auto; scrollbar-size-vertical: 1; overflow-x: hidden; margin-top: 1; padding-right: 1; }
        #foot { height: 1; margin-top: 1; align-horizontal: right; }
        &:ansi { & > #box { background: ansi_default; } }
    }
    """
    TALL = 30
    """Rows from which there is room for explanations."""
    CHROME = 3
    """Rows of the frame: two of the border and the margin above the body."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def update_snapshot(self, snapshot: Snapshot) -> None:
        """Take the newest snapshot; what was typed and chosen stays."""
        self.snapshot = snapshot
        if self.is_mounted:
            # While the program ends, the widgets go before the dialog does.
            with contextlib.suppress(NoMatches):
                self.show()

    def take_newest(self) -> None:
        """The app's newest snapshot, also where the screen is paused: nobody acts on an old picture."""
        newest = getattr(self.app, "snapshot", None)
        if isinstance(newest, Snapshot) and newest.time >= self.snapshot.time:
            self.snapshot = newest

    def show(self) -> None:
        """Bring the widgets up to the snapshot."""
        raise NotImplementedError

    def frame(self, title: str, hint: str, *body: Any, foot: Sequence[Button] = (), harm: bool = False) -> Vertical:
        """The box with its body and its foot."""
        parts: list[Any] = [VerticalScroll(*body, id="body", can_focus=not foot)]
        if foot:
            parts.append(Horizontal(*foot, id="foot"))
        box = Vertical(*parts, id="box", classes="-harm" if harm else "")
        box.border_title = Content(f" {plain(title)} ")
        box.border_subtitle = Content(f" {hint} ")
        return box

    def say_title(self, title: str) -> None:
        """Replace the title in the upper border."""
        self.query_one("#box").border_title = Content(f" {plain(title)} ")

    def say_hint(self, hint: str) -> None:
        """Replace the hint in the lower border."""
        self.query_one("#box").border_subtitle = Content(f" {hint} ")

    def on_mount(self) -> None:
        self.take_newest()
        self._fit(self.size.height)
        self.show()

    def on_resize(self, event: events.Resize) -> None:
        self._fit(event.size.height)

    def _fit(self, height: int) -> None:
        """Keep the foot on the screen, however small it is."""
        foot = 2 if self.query("#foot") else 0
        self.query_one("#box").set_class(height < self.TALL, "-short")
        self.query_one("#body").styles.max_height = max(1, height - self.CHROME - foot)

    def action_close(self) -> None:
        self.dismiss(None)


class ActionDialog(Dialog):
    """A dialog that asks, has an action carried out, and shows its progress and its result.

    Closed meanwhile, the action goes on and its result arrives as a notification.
    """

    AUTO_FOCUS: ClassVar[str] = "#cancel"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll_lists(-1)", "Up", show=False),
        Binding("down", "scroll_lists(1)", "Down", show=False),
        Binding("pageup", "scroll_lists(-6)", "Page up", show=False),
        Binding("pagedown", "scroll_lists(6)", "Page down", show=False),
    ]
    DEFAULT_CSS = """
    ActionDialog {
        #help { height: auto; color: $text-muted; margin-bottom: 1; }
        #problem { margin-top: 1; }
        #outcome { margin-top: 1; }
        Listing { margin-top: 1; }
        .-short #help { display: none; }
        .-outcome .question { display: none; }
    }
    """

    def __init__(self, runner: Runner, action: Action, pipe_dir: Path, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self.runner = runner
        self.action = action
        self.pipe_dir = pipe_dir
        self.state: State = "asking"
        self.result: Result | None = None
        self._progress: list[str] = []

    def help_line(self) -> Static:
        return Static(Content(plain(self.action.help)), id="help", markup=False)

    def outcome_parts(self) -> tuple[Listing, Lines]:
        return Listing(id="progress"), Lines(id="outcome")

    def unavailable(self, clients: Sequence[ProcessKey]) -> str | None:
        """Why the action cannot be used now, for example because the program is read-only."""
        return self.runner.unavailable(self.action, self.snapshot, self.pipe_dir, clients)

    def action_scroll_lists(self, step: int) -> None:
        """One list after the other, and then the body, without leaving the marked button."""
        parts = [listing for listing in self.query(Listing) if listing.display] + [
            self.query_one("#body", VerticalScroll)
        ]
        for part in parts if step > 0 else reversed(parts):
            if part.scroll_y < part.max_scroll_y if step > 0 else part.scroll_y > 0:
                part.scroll_visible(animate=False)
                part.scroll_relative(y=step, animate=False)
                return

    def begin(self, request: Request) -> None:
        """Have the request carried out; the dialog may be closed meanwhile."""
        if self.state == "running":
            return
        self.state = "running"
        self.result = None
        self._progress = []
        self.query_one("#cancel").focus()
        self._show_outcome()
        self.show()
        self.app.run_worker(self._carry_out(self.app, request), group="actions", exit_on_error=False)

    async def _carry_out(self, app: App[Any], request: Request) -> None:
        try:
            result = await self.runner.execute(request, self.snapshot, self._add_progress)
        except Exception as error:
            result = Result(
                request,
                ExitStatus.NO_ANSWER,
                f"An error of mpstui itself stopped this: {type(error).__name__}: {error}",
                remedy="What reached the daemon is not known: see the screen and the audit log before trying again.",
            )
        self.state = "ended"
        self.result = result
        if self.is_attached and self.is_running:
            self._show_outcome()
            self.show()
            return
        parts = [
            plain(result.message),
            *map(plain, result.details[:5]),
            *([plain(result.remedy)] if result.remedy else []),
        ]
        app.notify(
            "\n".join(parts),
            title=self.action.title,
            severity="information" if result.done else "error",
            timeout=8 if result.done else 30,
            markup=False,
        )

    def _add_progress(self, line: str) -> None:
        self._progress.append(line)
        if self.is_attached and self.is_running:
            self._show_outcome()

    def _show_outcome(self) -> None:
        lines = [marked("·", line, "$text-muted" if self.result else "") for line in self._progress]
        self.query_one("#box").set_class(self.state != "asking", "-outcome")
        self.query_one("#progress", Listing).show("Progress", lines, follow=True)
        self.query_one("#outcome", Lines).show(*self._outcome())
        self.call_after_refresh(self.query_one("#body").scroll_end, animate=False)

    def _outcome(self) -> list[Content]:
        if self.state == "running":
            return [marked("…", "working; closing this window does not stop it", "$text-muted")]
        if self.result is None:
            return []
        good = self.result.done
        lines = [
            marked("✓" if good else "✗", self.result.message, f"{'$text-success' if good else '$text-error'} bold")
        ]
        lines += [Content(f"  {plain(line)}") for line in self.result.details]
        if self.result.remedy:
            lines.append(marked("→", self.result.remedy, "$text-warning"))
        return lines

    def forget_outcome(self) -> None:
        """Back to the question, for another try."""
        self.state = "asking"
        self.result = None
        self._progress = []
        self._show_outcome()

    def foot(self, label: str, classes: str) -> tuple[Push, Push]:
        return Push("Cancel", id="cancel"), Push(label, id="apply", classes=classes)

    def show_foot(self, label: str, ready: bool) -> None:
        """The buttons as the state wants them."""
        apply = self.query_one("#apply", Push)
        apply.say(label)
        if apply.has_focus and not ready:
            self.query_one("#cancel").focus()
        apply.disabled = not ready
        self.query_one("#cancel", Push).say("Cancel" if self.state == "asking" else "Close")

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        if event.button.id == "cancel":
            self.action_close()
        else:
            self.take_newest()
            self.apply()

    def apply(self) -> None:
        """The user has said yes."""
        raise NotImplementedError
