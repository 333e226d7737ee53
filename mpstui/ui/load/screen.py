"""The screen of the load: fields at the left, running clients at the right, and what the device says below them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from mpstui.core.model import Client, Device, ProcessKey, Server, Snapshot
from mpstui.core.text import are, owner, plural
from mpstui.load.footprint import Takes, others, whose
from mpstui.load.types import WorkerReport
from mpstui.operations.registry import operation
from mpstui.ui.bars import KeyHint, unless
from mpstui.ui.contract import Runner
from mpstui.ui.keys import own_binding
from mpstui.ui.layout import WIDE, room_of
from mpstui.ui.load.bars import BarsPanel
from mpstui.ui.load.boxes import AboutBox, DeviceBox, TogetherBox
from mpstui.ui.load.dialogs import BesideDialog, EndangerDialog
from mpstui.ui.load.fields import FieldsPanel
from mpstui.ui.load.presets import PRESETS
from mpstui.ui.load.session import LoadSession, Member
from mpstui.ui.load.setup import (
    Where,
    harm,
    held_back,
    limit_of,
    problem,
    safer,
    server_limit,
    sm_counts,
    taken,
    under_limit,
)
from mpstui.ui.screens import SideScreen
from mpstui.ui.typeahead import opens

TICK_SECONDS = 0.25
"""Figures are painted this often; a change of state or share at once."""
_TALL = 44
"""Lines from which a narrow screen shows fields and clients together."""
_ROOMY = 32
"""Lines from which each meter has a line of its own."""
_NONE_RUNS = "no client of the load runs"
_NO_ANSWER = "no daemon answers here"


class LoadScreen(SideScreen):
    """Shows a :class:`LoadSession`; the session outlives it, so that the overview can be looked at meanwhile."""

    AUTO_FOCUS = "#fields"
    NAME = "Load"
    BACK = "load.back"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab,shift+tab", "other", "Fields or clients", show=False, id="load.other"),
        own_binding(operation("restart_load"), "restart"),
        Binding("x", "stop_one", "Stop the client", show=False, id="load.stop"),
        own_binding(operation("stop_load"), "stop_all"),
        Binding("J", "fault", "Make the illegal store now", show=False, id="load.fault"),
        Binding("l", "limit", "Change the server's percentage", show=False, id="load.limit"),
        Binding("escape", "back", "Back; the load goes on", show=False, id="load.back"),
    ]
    DEFAULT_CSS = """
    LoadScreen {
        & #load { height: 1fr; layout: horizontal; }
        & #left { width: 46; height: 100%; layout: vertical; }
        & #right { width: 1fr; height: 100%; layout: vertical; }
        & #fields { height: 13; }
        & #about { height: 1fr; }
        & #bars { height: 1fr; }
        & #together { height: 6; }
        & #device { height: 7; }
        &.-short #together { height: 5; }
        &.-short #device { height: 5; }
        &.-narrow #load { layout: vertical; }
        &.-narrow #left { width: 100%; }
        &.-narrow #right { width: 100%; }
        &.-stacked #left { height: 13; }
        &.-stacked #about { display: none; }
        &.-stacked #right { height: 1fr; }
    }
    """

    def __init__(self, session: LoadSession, runner: Runner) -> None:
        super().__init__(runner)
        self.session = session
        self._asked: Snapshot | None = None
        """What was shown when the load was wished for."""
        self._due = self._stale = False
        self.fields = FieldsPanel(id="fields")
        self.about = AboutBox(id="about")
        self.bars = BarsPanel(id="bars")
        self.together = TogetherBox(id="together")
        self.device_box = DeviceBox(id="device")

    def parts(self) -> ComposeResult:
        with Container(id="load"):
            with Container(id="left"):
                yield self.fields
                yield self.about
            with Container(id="right"):
                yield self.bars
                yield self.together
                yield self.device_box

    def on_mount(self) -> None:
        self.session.subscribe(self._changed)
        self.set_interval(TICK_SECONDS, self.tick)

    # What it shows.

    def open_for(self, snapshot: Snapshot | None, pipe_dir: Path | None) -> None:
        """The node and the daemon whose clients the load is to be. Before it is pushed."""
        self.snapshot, self.pipe_dir = snapshot, pipe_dir
        self._know()
        if self.fields.chosen is None and not self.session.members:
            self.fields.take(PRESETS[0])

    def update_snapshot(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._know()
        self.show()

    def _know(self) -> None:
        daemons = self.snapshot.daemons if self.snapshot else ()
        limits = {daemon.pipe_dir: limit_of(daemon) for daemon in daemons}
        self.session.know(self.snapshot.devices if self.snapshot else (), limits)
        self.fields.show(self.devices, has_daemon=self._answers)

    @property
    def _answers(self) -> bool:
        return self.daemon is not None and not self.daemon.explained

    def _server(self) -> Server | None:
        """The server that has the load's clients, otherwise the daemon's first."""
        servers = self.daemon.servers if self.daemon else ()
        own = self.session.keys
        mine = (s for s in servers if any(client.key in own for client in s.clients))
        return next(mine, servers[0] if servers else None)

    def _device(self) -> Device | None:
        """The device of the client under the cursor, otherwise the chosen one."""
        row = self.bars.cursor_row
        uuid = row.report.device_uuid if row is not None and not row.report.over else None
        uuid = uuid or next(iter(self.fields.setup.devices), None)
        return next((d for d in self.devices if d.uuid == uuid), None) or next(iter(self.devices), None)

    def _changed(self, at_once: bool) -> None:
        """The session has something new."""
        self._stale = True
        if at_once and not self._due and self.is_current:
            self._due = True
            self.call_later(self._catch_up)

    def _catch_up(self) -> None:
        self._due = False
        self.show()

    def tick(self) -> None:
        """Paint new figures, and let the plots go on."""
        if self.is_current and (self._stale or self.session.live):
            self._stale = False
            self.show()

    def show(self) -> None:
        """Bring every widget up to date; each paints only what differs."""
        if not self.is_mounted:
            return
        with self.app.batch_update():
            self.header.show(self.snapshot, self.daemon, None)
            self.bars.show(self.session, self._outdated)
            self._show_whole()
            self._show_about()
            self.show_keys()

    @property
    def _outdated(self) -> frozenset[ProcessKey]:
        """Clients of the load that are older than their server's limits."""
        own, daemons = self.session.keys, self.snapshot.daemons if self.snapshot else ()
        return frozenset(c.key for d in daemons for c in d.clients() if c.outdated_limits and c.key in own)

    def _show_whole(self) -> None:
        """What all clients come to, and the device."""
        self.together.show(self.session, self._server(), self._where, len(self._outdated))
        device = self._device()
        private = self.session.private_contexts(device.uuid) if device is not None else 0
        beside = self.session.beside(device, self.snapshot)
        self.device_box.show(beside, simulated=self.session.backend.simulated, private=private)

    @property
    def _where(self) -> Where:
        """Whose server the clients that run have; where none runs, those that would be started."""
        if self.session.private_dir is not None:
            return "private"
        if live := self.session.live:
            return "on" if any(member.spec.mps for member in live) else "off"
        return self.fields.setup.where

    def _no_limit(self) -> str | None:
        """Why a server's percentage would not reach the load's clients; None where it does."""
        own = "the load's clients have a daemon of their own" if self._where == "private" else None
        without = "without MPS no limit reaches the load's clients" if self._where == "off" else None
        return own or without or unless(self._answers, _NO_ANSWER)

    def _show_about(self) -> None:
        row = self.bars.cursor_row
        if self.focused is self.bars and row is not None:
            self.about.show_client(self.session, row)
        else:
            self._show_setup()

    def _show_setup(self) -> None:
        setup = self.fields.setup
        counts = sm_counts(setup, self.devices)
        device = next((d for d in self.devices if d.uuid in setup.devices), None)
        limit = server_limit(setup, self.daemon)
        more = self.session.live != ()
        self.about.show(setup, self.fields.about, counts, self._limited, limit, self._verdict(), more)
        self.bars.show_plan(setup, under_limit(setup, counts, limit, self.devices), device.sm_count if device else None)

    def _verdict(self) -> tuple[str, str, str]:
        setup = self.fields.setup
        wrong = self._refused() or problem(setup, self.daemon, self.devices)
        if wrong is not None:
            return "✕", wrong, "bad"
        danger, self._asked = harm(setup), self.snapshot
        if danger is not None:
            return "▲", f"{danger} Enter asks first.", "warn"
        held = held_back(setup, self.daemon)
        if held is not None:
            return "▲", held, "warn"
        if beside := self._beside():
            return "▲", f"Enter asks first: {whose(beside)} {are(len(beside))} here.", "warn"
        more = "adds" if self.session.live else "starts"
        return "⏎", f"Enter {more} {plural(setup.clients, 'client')}", "good"

    def hints(self) -> list[KeyHint]:
        in_fields, row = self.fields.has_focus_within, self.bars.cursor_row
        mark, verdict, _ = self._verdict()
        tab = self.k("load.other", "Tab")  # who is stopped is seen: at 80 columns the clients are behind the form
        nobody = unless(row, "no client runs here") or unless(not in_fields, f"{tab} goes to the clients first")
        over = nobody or unless(row and not row.report.over, "this client has ended")
        fixed = over or unless(row and row.spec.mps, "without MPS there is no share")
        stopped = nobody or unless(row and not row.stopped, "this client was stopped")
        faulty = any(member.report.kernel == "illegal" for member in self.session.live)
        return [
            *(
                [
                    KeyHint("Enter", "Start", "begin", 9, verdict if mark == "✕" else None),
                    KeyHint("←→", "Change", "none", 8),
                ]
                if in_fields
                else [KeyHint("←→", "Share", "none", 9, fixed), KeyHint("⇧←→", "More", "none", 4, fixed)]
            ),
            KeyHint(self.k("load.restart", "R"), "Restart", "restart", 6, stopped),
            KeyHint(self.k("load.stop", "x"), "Stop", "stop_one", 6, over),
            KeyHint(self.k("load.stop_all", "X"), "Stop all", "stop_all", 7, unless(self.session.live, _NONE_RUNS)),
            *([KeyHint(self.k("load.fault", "J"), "Fault", "fault", 6)] if faulty else []),
            KeyHint(self.k("load.limit", "l"), "Server's threads", "limit", 3, self._no_limit()),
            KeyHint(tab, "Clients" if in_fields else "Fields", "other", 7),
        ]

    # Layout.

    def _arrange(self) -> None:
        width, height = room_of(self)
        narrow = width < WIDE
        stacked = narrow and height >= _TALL
        self.set_class(narrow, "-narrow")
        self.set_class(stacked, "-stacked")
        self.set_class(height < _ROOMY, "-short")
        in_fields = self.focused is not self.bars
        self.query_one("#left").display = not narrow or stacked or in_fields
        self.query_one("#right").display = not narrow or stacked or not in_fields
        self._hide_where_too_small("#load")

    def action_other(self) -> None:
        """To the clients, or back to the fields."""
        self._go_to(self.bars if self.focused is not self.bars else self.fields)

    def _go_to(self, panel: FieldsPanel | BarsPanel) -> None:
        # A panel that is not shown takes no focus.
        self.query_one("#left" if panel is self.fields else "#right").display = True
        self.set_focus(panel, scroll_visible=False)
        self._arrange()
        self.show()
        self.call_after_refresh(self._repaint)

    # What is done.

    @on(FieldsPanel.Started)
    def action_begin(self) -> None:
        """Start what the fields say; what endangers others, once the word is typed."""
        setup = self.fields.setup
        wrong = self._refused() or problem(setup, self.daemon, self.devices)
        if wrong is not None:
            self.say(wrong)
            return
        self.fields.end()
        danger = harm(setup)
        if danger is not None:
            self.app.push_screen(EndangerDialog(danger, safer(setup), self._hits(), self._start_anyway))
        elif self._beside():
            self.app.push_screen(BesideDialog(setup.clients, self._beside, self._taken, self._chosen, self._start))
        else:
            self._start()

    def _refused(self) -> str | None:
        """Why no load can be started at all."""
        return self.runner.unavailable(operation("start_load"), self.snapshot or Snapshot(0.0), Path())

    def _beside(self) -> list[Client]:
        """Others' clients of the daemon."""
        daemon, setup = self.daemon, self.fields.setup
        if daemon is None or setup.where != "on":
            return []
        own = self.session.keys
        return others((c for c in daemon.clients() if c.key not in own), os.geteuid())

    def _taken(self) -> Takes:
        setup = self.fields.setup
        return taken(setup, self._limited, server_limit(setup, self.daemon))

    @property
    def _limited(self) -> list[Device]:
        """The devices with the contexts that count against the limit of this daemon's clients."""
        return [self.daemon.limited(each) if self.daemon else each for each in self.devices]

    def _chosen(self) -> list[Device]:
        """The devices that the load is for."""
        return [device for device in self.devices if device.uuid in self.fields.setup.devices]

    def _hits(self) -> str:
        """Whose work is on the devices."""
        own, chosen = self.session.keys, set(self.fields.setup.devices)
        others = [
            client
            for daemon in (self.snapshot.daemons if self.snapshot else ())
            for client in daemon.clients()
            if client.key not in own and client.device_uuids & chosen
        ]
        users = sorted({owner(client.user, client.uid) for client in others})
        return f"{plural(len(others), 'client')} there now, of {', '.join(users)}" if others else ""

    def _start_anyway(self) -> None:
        self._start(endanger=True)

    def _start(self, *, endanger: bool = False) -> None:
        if self.snapshot is None:
            return
        setup, asked = self.fields.setup, self._asked
        self.session.start(setup, self.snapshot, self.daemon, self.devices, asked=asked, endanger=endanger)
        self._go_to(self.bars)

    @property
    def _row(self) -> Member | None:
        return self.bars.cursor_row

    def action_nudge(self, steps: int) -> None:
        """Grow or shrink the share of the client under the cursor."""
        if (row := self._row) is not None:
            self.session.nudge(row.number, steps)

    def action_restart(self) -> None:
        if (row := self._row) is not None:
            self.session.restart(row.number)

    def action_stop_one(self) -> None:
        if (row := self._row) is not None and not row.report.over:
            self.session.stop([row.number])

    def action_stop_all(self) -> None:
        if self.session.live:
            self.session.stop([member.number for member in self.session.live])

    def action_fault(self) -> None:
        """The illegal store of the client under the cursor, or of the first that has one."""
        rows = [self._row, *self.session.live]
        report = next((r.report for r in rows if r is not None and _can_fault(r.report)), None)
        if report is not None:
            self.session.fault(report.worker)

    @opens
    def action_limit(self) -> None:
        """The form for the server's percentage, as from the overview."""
        self.act("set_active_thread_percentage", server=self._server())

    def action_back(self) -> None:
        """The overview again; the load goes on, what was typed stays, and nothing is being typed any more."""
        self.fields.end()
        super().action_back()

    # Messages of the widgets.

    @on(FieldsPanel.Changed)
    def _field_changed(self) -> None:
        self._show_about()
        self.show_keys()
        self._show_whole()

    @on(BarsPanel.Moved)
    def _moved(self) -> None:
        self.show()

    @on(BarsPanel.Opened)
    def _opened(self, message: BarsPanel.Opened) -> None:
        """The details of the client as the daemon knows it."""
        row = self._row
        key = row.report.key if row is not None else None
        known = self.snapshot is not None and any(d.find_client(key) for d in self.snapshot.daemons if key)
        if message.kind == BarsPanel.KIND and known and key is not None:
            self.host.open_details("client", key)


def _can_fault(report: WorkerReport) -> bool:
    return report.kernel == "illegal" and not report.over
