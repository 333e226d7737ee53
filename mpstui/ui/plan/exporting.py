"""The shares of a plan as text for other programs, copied with one key."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Static

from mpstui.core.model import Snapshot
from mpstui.plan.amounts import PlanError
from mpstui.plan.exports import EXPORTS, ExportKind, ShareSettings, environment, export_text
from mpstui.ui.dialogs.base import Dialog
from mpstui.ui.dialogs.widgets import Choice, Chooser, Lines, labelled, marked

_ABOUT: Final[dict[ExportKind, str]] = {
    "shell": "lines for the shell that starts the client",
    "wrapper": "a script that runs a command with its share",
    "systemd": "a drop-in for the client's unit",
    "slurm": "lines for TaskProlog",
    "kubernetes": "the env block of a container",
}


class ExportDialog(Dialog):
    """↑↓ choose the kind and the share; y copies what is shown."""

    AUTO_FOCUS: ClassVar[str] = "#kind"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "copy", "Copy"),
        Binding("q", "close", "Close", show=False),
    ]
    DEFAULT_CSS = """
    ExportDialog {
        .field { height: auto; margin-bottom: 1; }
        .field > .label { width: 10; color: $text-muted; }
        #text { height: auto; border-top: solid $border-blurred; padding: 1 1 0 1; }
        #problem { margin-top: 1; }
    }
    """

    def __init__(
        self,
        shares: Sequence[ShareSettings],
        pipe_dir: Path | None,
        devices: Sequence[str],
        profile: str | None,
    ) -> None:
        """``profile``: under which name the plan is kept, for the wrapper."""
        super().__init__(Snapshot(0.0))
        self._shares = tuple(shares)
        self._pipe_dir = pipe_dir
        self._devices = tuple(devices)
        self._profile = profile
        self.text = ""

    def compose(self) -> ComposeResult:
        kinds = [Choice(kind, kind, _ABOUT[kind]) for kind in EXPORTS]
        shares = [Choice(share.name, share.name) for share in self._shares]
        if len(shares) > 1:
            shares.insert(0, Choice(None, "all shares"))
        yield self.frame(
            "Export the shares",
            "↑↓ choose · Tab move · y copy · Esc close",
            labelled("For", Chooser(kinds, id="kind")),
            labelled("Share", Chooser(shares, id="share")),
            Static(id="text", markup=False),
            Lines(id="problem"),
        )

    def show(self) -> None:
        kind = self.query_one("#kind", Chooser).chosen
        share = self.query_one("#share", Chooser).chosen
        chosen = [s for s in self._shares if share is None or share.value in {None, s.name}]
        parts: list[str] = []
        problem = ""
        for one in chosen:
            try:
                variables = environment(one, self._pipe_dir, self._devices)
                text = export_text(kind.value if kind else "shell", one, variables, self._profile)  # type: ignore[arg-type]
            except PlanError as error:
                problem = str(error).replace("with --save NAME", "with s")
                break
            parts.append(f"# {one.name}\n{text}" if len(chosen) > 1 else text)
        self.text = "\n".join(parts) if not problem else ""
        self.query_one("#text", Static).update(Content(self.text.rstrip("\n")))
        self.query_one("#problem", Lines).show(*([marked("▲", problem, "$text-warning")] if problem else []))

    def action_copy(self) -> None:
        """To the clipboard of the terminal that the user sits at (OSC 52), also over SSH."""
        if self.text:
            self.app.copy_to_clipboard(self.text)
            self.app.notify("Copied", markup=False, timeout=3)
