"""A dialog that asks, has something carried out, shows progress and result; closed meanwhile, the work goes on."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from textual.app import App
from textual.content import Content
from textual.widgets import Button
from textual.worker import Worker

from mpstui.model import Snapshot
from mpstui.ui.dialogs.base import Dialog
from mpstui.ui.dialogs.parts import Lines, Listing, Push, marked, plain

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it."""

    good: bool
    message: str
    """One sentence."""
    details: tuple[str, ...] = ()
    remedy: str = ""


class WorkDialog(Dialog):
    """Cancel has the focus. Subclasses give ``show()`` for the question and ``go()`` for the yes."""

    AUTO_FOCUS: ClassVar[str] = "#cancel"
    TITLE_OF_WORK: ClassVar[str] = ""
    DEFAULT_CSS = """
    WorkDialog {
        #problem { margin-top: 1; }
        #outcome { margin-top: 1; }
        Listing { margin-top: 1; }
        .-outcome .question { display: none; }
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

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self.state: Literal["asking", "running", "ended"] = "asking"
        self.result: Outcome | None = None
        self.worker: Worker[None] | None = None
        self._progress: list[str] = []

    def outcome_parts(self) -> tuple[Listing, Lines]:
        return Listing(id="progress"), Lines(id="outcome")

    def foot(self, label: str, classes: str = "-go") -> tuple[Push, Push]:
        return Push("Cancel", id="cancel"), Push(label, id="apply", classes=classes)

    def begin(self, work: Callable[[Progress], Coroutine[Any, Any, Outcome]]) -> None:
        """Have it carried out; the dialog may be closed meanwhile."""
        self.state, self.result, self._progress = "running", None, []
        self.query_one("#cancel").focus()
        self._show_outcome()
        self.show()
        self.worker = self.app.run_worker(self._carry_out(self.app, work), group="actions", exit_on_error=False)

    async def _carry_out(self, app: App[Any], work: Callable[[Progress], Coroutine[Any, Any, Outcome]]) -> None:
        try:
            result = await work(self._add_progress)
        except Exception as error:
            result = Outcome(
                False,
                f"An error of mpstui itself stopped this: {type(error).__name__}: {error}",
                remedy="What reached the daemon is not known: see the screen and the audit log before trying again.",
            )
        self.state, self.result = "ended", result
        if self.is_attached and self.is_running:
            self._show_outcome()
            self.show()
            return
        parts = [
            plain(result.message),
            *map(plain, result.details[:5]),
            *([plain(result.remedy)] * bool(result.remedy)),
        ]
        app.notify(
            "\n".join(parts),
            title=self.TITLE_OF_WORK,
            severity="information" if result.good else "error",
            timeout=8 if result.good else 30,
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
        good = self.result.good
        style = f"{'$text-success' if good else '$text-error'} bold"
        lines = [marked("✓" if good else "✗", self.result.message, style)]
        lines += [Content(f"  {plain(line)}") for line in self.result.details]
        if self.result.remedy:
            lines.append(marked("→", self.result.remedy, "$text-warning"))
        return lines

    def ask_again(self) -> None:
        """Back to the question, for another try."""
        if self.state == "ended":
            self.state, self.result, self._progress = "asking", None, []
            self._show_outcome()

    def show_foot(self, label: str, *, ready: bool) -> None:
        """The buttons as the state wants them."""
        apply = self.query_one("#apply", Push)
        apply.say(label)
        if apply.has_focus and not ready:
            self.query_one("#cancel").focus()
        apply.disabled = not ready
        self.query_one("#cancel", Push).say("Cancel" if self.state == "asking" else "Close")

    def show_problem(self, problem: str | None) -> None:
        """Why it cannot be done as asked."""
        self.query_one("#problem", Lines).show(*([marked("✗", problem, "$text-error")] if problem else []))

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        if event.button.id == "cancel":
            self.action_close()
        else:
            self.take_newest()
            self.pressed(event.button.id or "")

    def pressed(self, button: str) -> None:
        """The user has said yes, by this button."""
        raise NotImplementedError


def listed(lines: Sequence[str], mark: str = "·") -> list[Content]:
    """One marked line each."""
    return [marked(mark, line) for line in lines]
