"""The control daemons: what runs, where, with which devices; starting another one, stopping one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from mpstui.core.cells import devices_of, health_word
from mpstui.core.model import Daemon, Device, Snapshot
from mpstui.core.text import UNKNOWN, format_age, format_percentage, format_size, path_text, printable
from mpstui.operations.registry import operation
from mpstui.ui.bars import KeyHint, unless
from mpstui.ui.box import Box, wrapped
from mpstui.ui.contract import Runner
from mpstui.ui.daemons.contract import DaemonBackend
from mpstui.ui.keys import own_binding
from mpstui.ui.layout import room_of
from mpstui.ui.lines import Line, fit
from mpstui.ui.panel import Panel
from mpstui.ui.plan.contract import PlanBackend
from mpstui.ui.screens import SideScreen
from mpstui.ui.typeahead import opens

_LABEL: Final = 16
EXCLUSIVE: Final = "Exclusive_Process"


class DaemonsPanel(Panel[Daemon]):
    """One line for a daemon, or for the place where one was."""

    KIND: ClassVar[str] = "daemon"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._time = 0.0
        self._looked = False

    def show(self, snapshot: Snapshot | None) -> None:
        self._time = snapshot.time if snapshot else 0.0
        self._looked = snapshot is not None and snapshot.looked
        self.set_rows(snapshot.daemons if snapshot else ())

    def key(self, row: Daemon) -> Path:
        return row.pipe_dir

    def title(self) -> Line:
        return (("Control daemons", "title"), (f" {len(self.rows)}", "dim"))

    def empty(self) -> str:
        return "looking for daemons…" if not self._looked else "no daemon is known here; S starts one"

    def head(self, width: int) -> Line | None:
        return ((fit(" DIRECTORY", max(12, width - 54)) + "HEALTH      PID       USER        UP   CLIENTS", "head"),)

    def row_lines(self, row: Daemon, width: int) -> list[Line]:
        word, style = health_word(row)
        up = format_age(self._time - row.start_time if row.start_time is not None else None)
        clients = sum(len(server.clients) for server in row.servers)
        return [
            (
                (fit(f" {path_text(row.pipe_dir, 200)}", max(12, width - 54)), "text"),
                (fit(word, 12), style),
                (fit(UNKNOWN if row.pid is None else str(row.pid), 10), "text"),
                (fit(row.user or UNKNOWN, 12), "user"),
                (fit(up, 5), "text"),
                (f"{clients if row.servers_known else UNKNOWN:>7}", "text"),
            )
        ]


class AboutDaemon(Box):
    """All of the daemon under the cursor, and the compute mode of its devices with the command that changes it."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._daemon: Daemon | None = None
        self._devices: Sequence[Device] = ()

    def show(self, daemon: Daemon | None, snapshot: Snapshot | None) -> None:
        self._daemon = daemon
        self._devices = devices_of(daemon, snapshot) if daemon and snapshot else snapshot.devices if snapshot else ()
        self.repaint()

    def title(self) -> Line:
        where = path_text(self._daemon.pipe_dir, 100) if self._daemon else "No daemon"
        return ((where, "title"),)

    def corner(self) -> Line:
        return ((" SIMULATED ", "badge-loud"),) if self._daemon is not None and self._daemon.simulated else ()

    def needs(self, width: int) -> int:
        """Lines for everything."""
        return max(1, len(self.body(width, 0)))

    def body(self, width: int, height: int) -> list[Line]:
        lines = self._facts(width) if self._daemon is not None else []
        return [*lines, *self._modes(width)]

    def _facts(self, width: int) -> list[Line]:
        daemon = self._daemon
        assert daemon is not None  # noqa: S101
        word, style = health_word(daemon)
        found: list[Line] = [((fit(" health", _LABEL), "label"), (word, style))]
        if daemon.health_detail:
            found += wrapped(daemon.health_detail, width, "text", indent=" " * _LABEL)
        if daemon.remedy:
            found += wrapped(daemon.remedy, width, "warn", "→ ", indent=" " * _LABEL)
        serves = {True: "several users at once (-M)", False: "one user's clients at a time", None: UNKNOWN}
        several = serves[daemon.multiuser]
        process = f"{daemon.pid}  {daemon.user or UNKNOWN}  MPS {daemon.version or UNKNOWN}"
        rows = [
            ("pipe directory", path_text(daemon.pipe_dir)),
            ("log directory", path_text(daemon.log_dir) if daemon.log_dir else UNKNOWN),
            ("process", process if daemon.pid else UNKNOWN),
            ("serves", several),
            ("defaults", _defaults(daemon)),
        ]
        return found + [((fit(f" {label}", _LABEL), "label"), (printable(value, 300), "text")) for label, value in rows]

    def _modes(self, width: int) -> list[Line]:
        lines: list[Line] = []
        for device in self._devices:
            index = "?" if device.index is None else str(device.index)
            mode = device.compute_mode or UNKNOWN
            good = mode == EXCLUSIVE
            name = f"{(device.name or '').removeprefix('NVIDIA ')}  {device.uuid}"
            mode_says = (f"compute mode {mode}", "good" if good else "warn")
            lines.append(((fit(f" GPU {index}", _LABEL), "label"), mode_says, (f"  {name}", "dim")))
            if not good:
                command = f"nvidia-smi -i {device.uuid} -c EXCLUSIVE_PROCESS"
                if width < _LABEL + len(command) and device.index is not None:
                    command = f"nvidia-smi -i {device.index} -c EXCLUSIVE_PROCESS"
                why = "  only the MPS server may use it then; not run by mpstui"
                label = (fit(" to change it", _LABEL), "label")
                lines.append((label, (command, "bold"), (why if width >= 140 else "", "dim")))
        return lines


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
        lines: list[Line] = []
        for moment, text in self._lines_of_log[-height:]:
            clock = ""
            if not text.startswith("["):  # a line of a log has its own
                clock = f"{UNKNOWN if moment is None else time.strftime('%H:%M:%S', time.localtime(moment))}  "
            lines.append(((f" {clock}", "dim"), (fit(printable(text, 400), width - len(clock) - 2), "text")))
        return lines or [((" nothing yet", "dim"),)]


def _defaults(daemon: Daemon) -> str:
    limits = ", ".join(f"{o}: {format_size(size)}" for o, size in sorted(daemon.default_pinned_mem_limits.items()))
    if daemon.default_active_thread_percentage is None and not limits:
        return UNKNOWN
    return f"{format_percentage(daemon.default_active_thread_percentage)}  memory {limits or 'no limit'}"


class DaemonScreen(SideScreen):
    """S starts, x stops; both ask, and both are refused below the screen where mpstui is read-only."""

    AUTO_FOCUS = "#daemons"
    NAME = "Daemon"
    BACK = "daemon.back"
    BINDINGS: ClassVar[list[BindingType]] = [
        own_binding(operation("start_daemon"), "start"),
        own_binding(operation("stop_daemon"), "stop"),
        Binding("y", "copy", "Copy the command for the compute mode", show=False, id="daemon.copy"),
        Binding("r", "read_again", "Look again", show=False, id="refresh"),
        Binding("escape", "back", "Back", show=False, id="daemon.back"),
    ]
    DEFAULT_CSS = """
    DaemonScreen {
        & #daemons { height: 6; }
        & #log { height: 1fr; }
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
        self.panel = DaemonsPanel(id="daemons")
        self.about = AboutDaemon(id="about")
        self.log_box = LogBox(id="log")
        places = [daemon.pipe_dir for daemon in snapshot.daemons] if snapshot else []
        self._begin = places.index(pipe_dir) if pipe_dir in places else 0

    def parts(self) -> ComposeResult:
        yield self.panel
        yield self.about
        yield self.log_box

    def on_mount(self) -> None:
        self.show()
        self.panel.move_to(self._begin)

    @property
    def daemon(self) -> Daemon | None:
        """The one under the cursor."""
        return self.panel.cursor_row

    def show(self) -> None:
        """Bring every widget up to date; each paints only what differs."""
        if not self.is_mounted:
            return
        snapshot = self.snapshot
        with self.app.batch_update():
            self.panel.show(snapshot)
            self.header.show(snapshot, self.daemon, None)
            self.about.show(self.daemon, snapshot)
            self.log_box.show(self.daemon, snapshot)
            self._arrange()
            self.show_keys()

    def hints(self) -> list[KeyHint]:
        none = unless(self.daemon, "no daemon is known here")
        same = unless(self._command(), "every device here is in the mode that MPS wants")
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
        width, height = room_of(self)
        self.panel.styles.height = max(4, min(10, height // 4, 3 + len(self.panel.rows)))
        self.about.styles.height = "1fr" if height < 20 else min(height * 3 // 5, 2 + self.about.needs(width - 2))
        self.log_box.display = not self.too_small and height >= 20
        self._hide_where_too_small("#daemons", "#about")

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
        lines = [f"nvidia-smi -i {d.uuid} -c EXCLUSIVE_PROCESS" for d in self.devices if d.compute_mode != EXCLUSIVE]
        return "\n".join(lines) or None

    def action_copy(self) -> None:
        if (command := self._command()) is not None:
            self.copy(command, command)

    def action_read_again(self) -> None:
        self.host.refresh_now(None)  # all of them

    # Messages of the widgets.

    @on(Panel.Moved)
    def _moved(self) -> None:
        self.show()

    @on(Panel.Opened)
    def _opened(self, message: Panel.Opened) -> None:
        self.host.open_details(message.kind, message.identity)
