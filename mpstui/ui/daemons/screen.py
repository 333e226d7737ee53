"""The control daemons: what runs, where, with which devices; starting another one, stopping one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from mpstui.core.cells import devices_of
from mpstui.core.model import Daemon, Snapshot
from mpstui.core.text import UNKNOWN, path_text, printable
from mpstui.fields import DAEMON, DEVICE, Thing, View, default_facts
from mpstui.operations.registry import operation
from mpstui.ui.bars import KeyHint, unless
from mpstui.ui.box import Box, Para
from mpstui.ui.contract import Runner
from mpstui.ui.daemons.contract import DaemonBackend
from mpstui.ui.keys import own_binding
from mpstui.ui.layout import room_of
from mpstui.ui.lines import Line, fit_line, hung
from mpstui.ui.panel import Panel
from mpstui.ui.panels.table import TablePanel
from mpstui.ui.plan.contract import PlanBackend
from mpstui.ui.screens import ListScreen
from mpstui.ui.typeahead import opens

_TOLD: Final = (
    "health",
    "remedy",
    "pipe_dir",
    "log_dir",
    "version",
    "multiuser",
)
"""Fields of a daemon that are below the list; the others are in its details."""


class DaemonsPanel(TablePanel[Daemon]):
    """One line for a daemon, or for the place where one was."""

    KIND: ClassVar[str] = "daemon"
    THING: ClassVar[Thing[Daemon]] = DAEMON
    STRETCH: ClassVar[bool] = True

    def show(self, snapshot: Snapshot) -> None:
        self.view = View.of(snapshot)
        self.set_rows(snapshot.daemons)

    def key(self, row: Daemon) -> Path:
        return row.pipe_dir

    def title(self) -> Line:
        return (("Control daemons", "title"), (f" {len(self.rows)}", "dim"))

    def empty(self) -> str:
        return "no daemon is known here; S starts one" if self.view.snapshot.looked else "looking for daemons…"


def about(daemon: Daemon | None, snapshot: Snapshot, width: int) -> list[Para]:
    """What a daemon is, and the compute mode of its devices with the command that changes it; without a daemon that of
    the node's. ``width``: cells that there are for it."""
    view = View.of(snapshot, daemon)
    facts = [fact for name in _TOLD for fact in DAEMON[name].facts(daemon, view)] if daemon is not None else []
    said = [Para(fact.text, fact.style.split()[0] if fact.style else "text", label=fact.label) for fact in facts]
    if daemon is not None:
        said += [
            Para(fact.text, fact.style or "text", label=f"default {fact.label}" if fact.label else "")
            for fact in default_facts(daemon, view)
        ]
    for device in devices_of(daemon, snapshot) if daemon is not None else snapshot.devices:
        index = "?" if device.index is None else str(device.index)
        mode, good = DEVICE["compute_mode"].text(device, view), device.exclusive
        name = f"{(device.name or '').removeprefix('NVIDIA ')}  {device.uuid}"
        said.append(Para(f"compute mode {mode}  {name}", "good" if good else "warn", label=f"GPU {index}"))
        if not good:
            command = f"nvidia-smi -i {device.uuid} -c EXCLUSIVE_PROCESS"
            if width < 28 + len(command) and device.index is not None:
                command = f"nvidia-smi -i {device.index} -c EXCLUSIVE_PROCESS"
            said.append(Para(command, "bold", label="change the mode"))
    if any(each.label == "change the mode" for each in said):
        said.append(Para("Only the MPS server may use a device then. mpstui does not run the command.", "dim"))
    return said


class LogBox(Box):
    """The last lines that the logs told of a daemon."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines_of_log: list[tuple[float | None, str]] = []
        self._where = UNKNOWN

    def show(self, daemon: Daemon | None, snapshot: Snapshot | None) -> None:
        happened = snapshot.events if snapshot and daemon else ()
        mine = [e for e in happened if daemon is not None and e.pipe_dir == daemon.pipe_dir]
        self._lines_of_log = [(e.time, e.raw or e.detail) for e in mine]
        self._where = path_text(daemon.log_dir) if daemon and daemon.log_dir else UNKNOWN
        self.repaint()

    def title(self) -> Line:
        return (("Log", "title"), (f"  {printable(self._where, 100)}", "dim"))

    def body(self, width: int, height: int) -> list[Line]:
        """The newest whole, and those before it as far as lines are free."""
        lines: list[Line] = []
        for moment, text in reversed(self._lines_of_log[-height:]):
            clock = ""
            if not text.startswith("["):  # a line of a log has its own
                clock = f"{UNKNOWN if moment is None else time.strftime('%H:%M:%S', time.localtime(moment))}  "
            before: Line = ((f" {clock}", "dim"),)
            whole: Line = ((printable(text, 400), "text"),)
            told = hung(before, whole, width - 1)
            if lines and len(lines) + len(told) > height:
                told = [fit_line((*before, *whole), width - 1)]
            lines = [*told, *lines][-max(height, len(told)) :]
            if len(lines) >= height:
                break
        return lines[:height] or [((" nothing yet", "dim"),)]


class DaemonScreen(ListScreen):
    """S starts, x stops; both ask, and both are refused below the screen where mpstui is read-only."""

    NAME = "Daemon"
    BELOW = True
    panel: DaemonsPanel
    BINDINGS: ClassVar[list[BindingType]] = [
        own_binding(operation("start_daemon"), "start"),
        own_binding(operation("stop_daemon"), "stop"),
        Binding("y", "copy", "Copy the command for the compute mode", show=False, id="daemon.copy"),
        Binding("r", "read_again", "Look again", show=False, id="refresh"),
    ]
    DEFAULT_CSS = """
    DaemonScreen {
        & #log { height: 1fr; }
        &.-below #text { max-height: 100%; }
    }
    """

    def __init__(
        self,
        backend: DaemonBackend,
        plans: PlanBackend,
        runner: Runner,
        snapshot: Snapshot | None,
        pipe_dir: Path | None,
    ) -> None:
        super().__init__(runner, snapshot, pipe_dir)
        self._backend = backend
        self._plans = plans
        self.log_box = LogBox(id="log")
        self.panel.begin_at(pipe_dir)

    def make_list(self) -> DaemonsPanel:
        return DaemonsPanel(id="list")

    def parts(self) -> ComposeResult:
        yield from super().parts()
        yield self.log_box

    @property
    def daemon(self) -> Daemon | None:
        """The one under the cursor."""
        return self.panel.cursor_row

    def fill(self, snapshot: Snapshot) -> None:
        self.panel.show(snapshot)

    def describe(self, snapshot: Snapshot) -> tuple[str, list[Para]]:
        daemon = self.daemon
        where = path_text(daemon.pipe_dir, 100) if daemon is not None else "No daemon"
        return where, about(daemon, snapshot, room_of(self).width)

    def show_text(self) -> None:
        super().show_text()
        self.log_box.show(self.daemon, self.snapshot)
        self._arrange()

    def own_hints(self) -> list[KeyHint]:
        none = unless(self.daemon, "no daemon is known here")
        known = unless(self.devices, "no device is known here")
        same = known or unless(self._command(), "every device here is in the mode that MPS wants")
        return [
            KeyHint(self.k("daemon.start", "S"), "Start new", "start", 9, self._backend.cannot_start),
            KeyHint(self.k("daemon.stop", "x"), "Stop", "stop", 9, self._cannot_stop()),
            KeyHint(self.k("open", "Enter"), "Details", "none", 4, none),
            KeyHint(self.k("daemon.copy", "y"), "Copy command", "copy", 4, same),
            KeyHint(self.k("refresh", "r"), "Look again", "read_again", 3),
        ]

    def _cannot_stop(self) -> str | None:
        where = self.daemon.pipe_dir if self.daemon is not None else Path()
        return self.runner.unavailable(operation("stop_daemon"), self.snapshot, where)

    def _arrange(self) -> None:
        super()._arrange()
        width, height = room_of(self)
        rows = max(4, min(10, height // 4, 3 + len(self.panel.rows)))
        told = min(height * 3 // 5, self.text.needs(width))
        with_log = not self.too_small and height >= 20
        self.log_box.display = with_log
        self.panel.styles.height = rows
        self.text.styles.height = told if with_log else "1fr"
        self.query_one("#body").styles.height = rows + told if with_log else "1fr"

    # What is done.

    @opens
    def action_start(self) -> None:
        if self._backend.cannot_start is not None:
            self.say(self._backend.cannot_start)
            return
        from mpstui.ui.daemons.starting import StartDialog

        if self.snapshot is not None:
            gone = self.daemon if self.daemon is not None and not self.daemon.runs else None
            self.app.push_screen(StartDialog(self._backend, self._plans, self.runner, self.snapshot, gone))

    @opens
    def action_stop(self) -> None:
        if (refusal := self._cannot_stop()) is not None:
            self.say(refusal)
        elif self.daemon is not None and self.snapshot is not None:
            from mpstui.ui.daemons.stopping import StopDialog

            self.app.push_screen(StopDialog(self._backend, self.snapshot, self.daemon))

    def _command(self) -> str | None:
        """The commands that set the compute mode, for the admin to run."""
        lines = [f"nvidia-smi -i {d.uuid} -c EXCLUSIVE_PROCESS" for d in self.devices if not d.exclusive]
        return "\n".join(lines) or None

    def action_copy(self) -> None:
        if (command := self._command()) is not None:
            self.copy(command, command)

    def action_read_again(self) -> None:
        self.host.refresh_now(None)  # all of them

    # Messages of the widgets.

    def open_row(self, message: Panel.Opened) -> None:
        self.host.open_details(message.kind, message.identity)
