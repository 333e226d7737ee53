"""A command of the user's own: the question before it, its output while it runs, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from mpstui.commands import (
    CommandTarget,
    Ended,
    Filled,
    RefusedError,
    announce,
    conclude,
    fill,
    refusal,
    run,
    stopped_by,
)
from mpstui.config import CommandSpec
from mpstui.core.model import Snapshot
from mpstui.core.text import are, plural
from mpstui.ui.dialogs.progress import DialogOutcome, ProgressDialog
from mpstui.ui.dialogs.widgets import DetailRow, Lines, Push, Sheet

LINES = 1000
"""Lines of output that are kept: the last ones."""
_PACE = 0.2
"""Seconds between two pictures of the output, however fast it comes."""
_HINT = "Enter marked button · Tab move · Esc cancel"


class OwnCommandDialog(ProgressDialog):
    """Says what would be run, for which row, and has it run. One that is marked safe runs at once."""

    DEFAULT_CSS = """
    OwnCommandDialog {
        #facts { margin-bottom: 1; }
        #said { height: auto; color: $text-muted; }
        #progress { max-height: 100%; }
        #progress > Static { text-wrap: wrap; }
    }
    """

    PROGRESS = "Output"
    MARK = ""

    def __init__(
        self,
        spec: CommandSpec,
        snapshot: Snapshot,
        target: CommandTarget,
        *,
        read_only: bool,
        in_terminal: Callable[[CommandSpec, Filled], None],
    ) -> None:
        """``in_terminal`` runs one that is given the terminal, after the yes."""
        super().__init__(snapshot, spec.name)
        self._spec = spec
        self._target = target
        self._read_only = read_only
        self._in_terminal = in_terminal
        self._filled: Filled | None = None
        self._dropped = 0
        self._waits = False

    def compose(self) -> ComposeResult:
        yield self.frame(
            self._spec.name,
            _HINT,
            Sheet(id="facts"),
            Static(Content(self._words()), id="said", classes="question", markup=False),
            Lines(id="problem"),
            *self.outcome_parts(),
            foot=(*self.foot("Run"), Push("Stop", id="stop", classes="-harm")),
        )

    def _words(self) -> str:
        where = "It gets this terminal until it ends." if self._spec.terminal else "Its output is shown here."
        return f"A command of your own ({self._spec.origin}). mpstui does not know what it does. {where}"

    def on_mount(self) -> None:
        super().on_mount()
        if self._spec.safe and not self._spec.terminal:
            self._start()

    def show(self) -> None:
        self._show_stop()
        if self.state != "asking":
            self.show_foot("Repeat", ready=self.state == "ended")
            self.say_hint("Enter marked button · Tab move · Esc close" + "; it goes on" * (self.state == "running"))
            return
        try:
            self._filled = fill(self._spec, self.snapshot, self._target)
            problem = refusal(self._spec, read_only=self._read_only)
            rows = [DetailRow("for", self._filled.about), DetailRow("program", self._filled.program)]
            rows += [DetailRow("argument" if not at else "", word) for at, word in enumerate(self._filled.words[1:])]
            self.query_one("#facts", Sheet).show(rows)
        except RefusedError as error:
            self._filled, problem = None, str(error)
        self.show_problem(problem)
        self.show_foot("Run", ready=problem is None)

    def _show_stop(self) -> None:
        """A button of its own, which stays at its place when the command has ended: a press that was meant for it a
        moment ago starts nothing."""
        stop = self.query_one("#stop", Push)
        if stop.has_focus and self.state != "running":
            self.query_one("#cancel").focus()
        stop.display = self.state != "asking"
        stop.disabled = self.state != "running"

    def answer(self, button: str) -> None:
        """Stop is no yes to what is asked, and counts in whatever terminal."""
        if button == "stop":
            self.pressed(button)
        else:
            super().answer(button)

    def pressed(self, button: str) -> None:
        if button == "stop":
            self.give_up()
            self.state = "ended"
            self.result = DialogOutcome(False, f"{self._spec.name} was ended")
            self._show_outcome()
            self.show()
        else:
            self.ask_again()
            self.show()
            self._start()

    def _start(self) -> None:
        filled = self._filled
        if filled is None or self.query_one("#apply", Push).disabled:
            return
        if self._spec.terminal:
            self.dismiss(None)
            self.app.call_later(self._in_terminal, self._spec, filled)
            return
        self._dropped = 0
        self.begin(lambda _progress: self._run(filled))

    async def _run(self, filled: Filled) -> DialogOutcome:
        unwritten = announce(self._spec, filled)
        why = stopped_by(filled) or (None if self._spec.safe else unwritten)
        ended = Ended(None, "was ended with mpstui, or by its user")
        try:
            if why is not None:
                ended = Ended(None, f"nothing was run: {why}")
            else:
                ended = await run(filled, self._spec.seconds, self._hear)
        finally:
            after = conclude(self._spec, filled, ended)
        trouble = tuple(dict.fromkeys(each for each in (unwritten, after) if each and each != why))
        dropped = (
            (f"{plural(self._dropped, 'line')} before these {are(self._dropped)} not kept",) if self._dropped else ()
        )
        return DialogOutcome(ended.good, f"{self._spec.name}: {ended.words}", (*dropped, *trouble))

    def _hear(self, lines: Sequence[str]) -> None:
        self._progress += lines
        self._dropped += max(0, len(self._progress) - LINES)
        del self._progress[:-LINES]
        if not self._waits and self.is_attached and self.is_running:
            self._waits = True
            self.set_timer(_PACE, self._show_heard)

    def _show_heard(self) -> None:
        self._waits = False
        if self.state == "running":
            self._show_outcome()
