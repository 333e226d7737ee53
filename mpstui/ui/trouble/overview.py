"""What the overview has of trouble: the alert over its panels, and the keys that open the screens behind it."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, cast

from textual import events
from textual.binding import Binding, BindingType

from mpstui.core.model import Daemon, Snapshot
from mpstui.ui.bars import KeyHint, ProblemBar, unless
from mpstui.ui.contract import Host
from mpstui.ui.keys import shown_key
from mpstui.ui.lines import StyledScreen
from mpstui.ui.panels import ClientsPanel
from mpstui.ui.trouble.alert import Alert
from mpstui.ui.typeahead import opens


class WithTrouble(StyledScreen):
    """A screen on one daemon that shows the alert and offers the screens of trouble."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b", "trouble('blast')", "Blast radius: who loses work if a client faults", show=False, id="blast"),
        Binding("E", "trouble('events')", "Events: filter, search, follow", show=False, id="events"),
        Binding("D", "trouble('problems')", "Problems and the doctor's check-up", show=False, id="problems"),
        Binding(
            "W",
            "trouble('users')",
            "Not served by MPS: who waits, computes without it, or lost its server",
            show=False,
            id="users",
        ),
        Binding("exclamation_mark", "trouble('fault')", "Fault: what to do", show=False, id="fault"),
        Binding("a", "trouble('activity')", "Activity: who launches kernels", show=False, id="activity"),
        Binding("B", "trouble('suspects')", "Suspects: who was there at each fault", show=False, id="suspects"),
    ]

    clients: ClientsPanel
    """The subclass's; its choice or its cursor is the client that the radius is shown of."""

    def __init__(self) -> None:
        super().__init__()
        self.alert = Alert()

    @property
    def daemon(self) -> Daemon | None:
        """The daemon that the screen shows."""
        raise NotImplementedError

    def arrange_alert(self, snapshot: Snapshot | None, daemon: Daemon | None) -> int:
        """Give the alert its lines; returns how many."""
        lines = self.alert.take(snapshot, daemon)
        self.alert.display = lines > 0
        if lines:
            self.alert.styles.height = lines
        self.alert.repaint()
        return lines

    def trouble_hints(self, snapshot: Snapshot | None, daemon: Daemon | None) -> list[KeyHint]:
        """The keys as they matter now: what is wrong comes before what may be looked at any time."""
        if snapshot is None:
            return []

        def key(name: str, default: str) -> str:
            return shown_key(cast("Host", self.app).keymap, name, default)

        clients = daemon is not None and any(True for _ in daemon.clients())
        waiting = bool(snapshot.outside) or (daemon is not None and bool(daemon.pending or daemon.lost))
        who = "Waiting" if daemon is not None and daemon.pending else "Not served"
        faults = [server.fault for server in daemon.servers if server.fault] if daemon is not None else []
        what = "What to do" if any(fault.confirmed for fault in faults) else "Fault?"
        return [
            *([KeyHint(key("fault", "!"), what, "trouble('fault')", 9)] if faults else []),
            *([KeyHint(key("users", "W"), who, "trouble('users')", 7)] if waiting else []),
            KeyHint(key("blast", "b"), "Blast radius", "trouble('blast')", 3, unless(clients, "there is no client")),
            KeyHint(key("events", "E"), "Events", "trouble('events')", 2),
            KeyHint(key("activity", "a"), "Activity", "trouble('activity')", 2),
            KeyHint(key("problems", "D"), "Problems", "trouble('problems')", 7 if snapshot.problems else 2),
        ]

    @opens
    def action_trouble(self, name: str) -> None:
        """Open one of the screens, for this daemon and, for the radius, the client under the cursor."""
        targets = self.clients.targets()
        self.open_trouble(name, self.daemon.pipe_dir if self.daemon else None, targets[0] if targets else None)

    def open_trouble(self, name: str, pipe_dir: Path | None, identity: object = None) -> None:
        cast("Host", self.app).open_trouble(name, pipe_dir, identity)

    def on_click(self, event: events.Click) -> None:
        if isinstance(event.widget, ProblemBar):
            self.action_trouble("problems")
        elif event.widget is self.alert:
            self.action_trouble("fault")
