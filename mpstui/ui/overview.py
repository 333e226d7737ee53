"""The overview: one screen with everything an admin needs to see of a node."""

from __future__ import annotations

import shlex
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from rich.cells import cell_len
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.widget import Widget

from mpstui.config import CommandSpec
from mpstui.core.cells import client_line, no_daemon, with_indices
from mpstui.core.model import Client, Daemon, Device, Event, Problem, ProcessKey, Server, Snapshot
from mpstui.core.text import UNKNOWN, Line, Span, path_text, plural, printable
from mpstui.fields import CLIENT, Group, Limit, Shown, groups_of, possible_columns, wished
from mpstui.operations.operation import Operation
from mpstui.operations.registry import ON_OVERVIEW
from mpstui.operations.rescue import targets as rescue_targets
from mpstui.ui.bars import DaemonTabs, Header, KeyBar, KeyHint, ProblemBar, TooSmall, unless
from mpstui.ui.condition import ConditionPanel
from mpstui.ui.contract import Host, Runner, none_now
from mpstui.ui.filter import CLIENT_TERMS
from mpstui.ui.keys import (
    ACTION_PREFIX,
    FILTERING,
    FINDING,
    action_binding,
    here_it_is,
    key_name,
    program_hints,
    shown_key,
    typing_hints,
    where_it_works,
    written,
)
from mpstui.ui.layout import Needs, PanelHeights, plan, reserve, room_of, spares
from mpstui.ui.lines import Ground, LineWidget, fit
from mpstui.ui.panel import NO_ROW, Panel
from mpstui.ui.panels import ClientsPanel, DevicesPanel, EventsPanel, LimitsPanel, ServersPanel
from mpstui.ui.panels.table import TablePanel
from mpstui.ui.past import WithPast
from mpstui.ui.plots import BLOCKS, USUAL
from mpstui.ui.private import toast_racks
from mpstui.ui.stale_target import StaleTarget
from mpstui.ui.trouble.overview import WithTrouble
from mpstui.ui.typeahead import opens

if TYPE_CHECKING:
    from textual.widgets import Input

    from mpstui.ui.dialogs.command_words import Typed

PANELS = ("devices", "limits", "servers", "clients", "events")
_RIGHT = ("limits", "servers")
"""Beside the devices, where there is room."""
_SORTED: Final = ("pid", False)
"""How the clients are sorted where nothing was chosen."""
_DRAWN: Final = str.maketrans(dict.fromkeys("━╾─┄" + BLOCKS, " "))
"""What meters and plots are drawn with."""
_BY = ("user", "gpu", "server", "pod", "job", "unit", "container")
"""What the clients can be grouped by, the most asked for first."""
_COPIED = 4000
"""Cells of a row that is copied: nothing of its command is cut."""
_FOLDS = 200
"""Names of folded groups, and pinned rows, that are remembered."""
_KEPT = 22
"""Cells of a filter at the foot."""
_FILTER = 500
"""Characters of a filter that is remembered."""
_THREADS, _MEMORY = "act('set_active_thread_percentage')", "act('set_pinned_mem_limit')"
_NEAR: Final[Mapping[str, Mapping[str, int]]] = {
    "clients": {_THREADS: 5, "users_of": 5, "order": 5, "group": 4},
    "devices": {_THREADS: 5, _MEMORY: 5, "open": 6, "trouble('activity')": 4},
    "limits": {_THREADS: 5, _MEMORY: 5, "act('set_client_priority')": 5, "open": 5},
    "servers": {_THREADS: 5, _MEMORY: 5, "act('start_server')": 5, "act('shutdown_server')": 5, "open": 5},
    "events": {"trouble('events')": 6, "open": 5},
}
"""How long the foot keeps these while a panel has the focus."""
_MOST_OF_PROBLEM = 6
"""Lines that a problem and its remedy have at most."""
_TWO_OF_PROBLEM = 20
"""Lines of the screen from which a problem's remedy may have one of its own."""


class Overview(WithPast, WithTrouble, Ground):
    """Applies a snapshot to its panels; each repaints only the lines that differ."""

    AUTO_FOCUS = "#clients"
    OWN: ClassVar[Sequence[CommandSpec]] = ()
    """Commands of the user's own, which :func:`offering` gives keys."""
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(n), f"jump('{name}')", name.title(), show=False, id=f"jump.{name}")
            for n, name in enumerate(PANELS, 1)
        ),
        Binding("z", "zoom", "Zoom: this panel alone, and back", show=False, id="zoom"),
        Binding("f2", "columns", "Columns: which, their order, widths, and the sort", show=False, id="columns"),
        Binding("f5", "group", "Groups: clients by user, GPU, server, pod or job, with sums", show=False, id="group"),
        Binding("f6", "order", "Sort: choose the column", show=False, id="order"),
        Binding("M", "by_memory", "Sort by GPU memory, the largest first", show=False, id="clients.by_memory"),
        Binding("slash", "filter", "Filter", id="filter"),
        Binding(
            "f",
            "find",
            "Find: go to the next row with the text; n and N: next, previous",
            show=False,
            id="clients.find",
        ),
        Binding("n", "found(1)", "Next match", show=False, id="clients.next"),
        Binding("N", "found(-1)", "Previous match", show=False, id="clients.previous"),
        Binding("U", "users_of", "User: whose clients are shown", show=False, id="clients.user"),
        Binding("escape", "back", "Back", show=False, id="back"),
        Binding("F", "app.pause", "Freeze the screen, and go on", id="pause"),
        Binding("r", "refresh_now", "Refresh", id="refresh"),
        Binding("left_square_bracket,ctrl+left", "daemon(-1)", "Previous daemon", show=False, id="daemon.previous"),
        Binding("right_square_bracket,ctrl+right", "daemon(1)", "Next daemon", show=False, id="daemon.next"),
        Binding("y", "copy", "Copy the row", show=False, id="copy"),
        Binding("f4", "take_back", "Undo the last change, after asking", show=False, id="take_back"),
        Binding("d", "daemons", "Daemons: start and stop", show=False, id="daemons"),
        Binding("P", "partitions", "SM partitions; namespaces of protocol 3", show=False, id="partitions"),
        Binding("p", "plan", "Plan: divide a GPU", show=False, id="plan"),
        Binding("L", "load", "Load: test clients", show=False, id="load"),
        Binding("question_mark,f1", "app.show_help", "Help", id="help"),
        Binding("colon", "app.command_palette", "Commands by name", show=False, id="palette"),
        Binding("q", "app.quit_app", "Quit", id="quit"),
        *(action_binding(action) for action in ON_OVERVIEW if action.key),
    ]
    DEFAULT_CSS = """
    Overview {
        layout: vertical; overflow: hidden; background: $background;
        & #top, & #right { width: 1fr; height: auto; layout: vertical; overflow: hidden; }
        & #top.-wide { layout: horizontal; }
        & #top.-wide > Panel { width: 1fr; }
        & #top.-wide > #right { width: 1fr; }
        & #filter { height: 1; border: none; padding: 0 1; background: $surface; display: none; }
        & Panel { display: none; width: 100%; }
        & #condition { display: none; }
        & #too-small { display: none; height: 1fr; }
    }
    """

    def __init__(self, runner: Runner, keymap: Mapping[str, str] | None = None) -> None:
        """``keymap``: the user's keys by id of a binding."""
        super().__init__()
        self._runner = runner
        self._snapshot: Snapshot | None = None
        self._paused: float | None = None
        self._pipe_dir: Path | None = None
        self._plan: PanelHeights | None = None
        self._sizes: list[Size] = []
        """The size of the screen and of all on it, when it was last told its own."""
        self._filter: Input | None = None
        self._finding = False
        """Whether what is typed is looked for, and hides nothing."""
        self._rescues: tuple[str, ...] = ()
        self._shown: dict[str, bool] = {}
        """Panels that the user has asked for, or hidden."""
        self._zoomed = False
        self._kept = 0
        """Rows that are kept for clients."""
        self._above = 0
        """Lines over the panels."""
        self._left: str | None = None
        """The panel that the focus had to leave because it went; it gets the focus back."""
        self.header = Header(read_only=runner.read_only)
        self.tabs = DaemonTabs()
        self.devices = DevicesPanel(id="devices")
        self.limits = LimitsPanel(id="limits")
        self.servers = ServersPanel(id="servers")
        self.clients = ClientsPanel(id="clients")
        self.log_panel = EventsPanel(id="events")
        self.condition = ConditionPanel(read_only=runner.read_only)
        self.problems = ProblemBar()
        self.keys = KeyBar()
        self.stale = StaleTarget()
        self._keymap = keymap or {}

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.tabs
        yield self.past_bar
        yield self.alert
        with Ground(id="top"):
            yield self.devices
            with Ground(id="right"):
                yield self.limits
                yield self.servers
        yield self.clients
        yield self.condition
        yield self.log_panel
        yield TooSmall(id="too-small")
        yield self.problems
        yield self.keys

    # Snapshots.

    @property
    def focus_chain(self) -> list[Widget]:
        """In the order of the panels, wherever they stand: by places, as Textual has it, Tab from a line that has just
        come and has none yet goes elsewhere than a moment later."""
        order = {each: place for place, each in enumerate(self.walk_children())}
        return sorted(super().focus_chain, key=lambda each: order.get(each, len(order)))

    @property
    def _shown_snapshot(self) -> Snapshot | None:
        return self._snapshot

    @property
    def _host(self) -> Host:
        return cast("Host", self.app)

    def on_screen_resume(self) -> None:
        """Back in front: what happened under the dialog is shown now."""
        self.keys.hush(False)
        self._host.catch_up()
        self.stale.in_front()

    def on_screen_suspend(self) -> None:
        self.keys.hush(True)

    @property
    def daemon(self) -> Daemon | None:
        """The daemon whose tab is open."""
        if self._snapshot is None or not self._snapshot.daemons:
            return None
        found = self._snapshot.daemon(self._pipe_dir) if self._pipe_dir else None
        return found or self._snapshot.daemons[0]

    @property
    def knows(self) -> bool:
        """Whether anything of the node is shown."""
        return self._snapshot is not None

    @property
    def placed(self) -> bool:
        """Whether all on it have been told their sizes."""
        return bool(self._sizes)

    @property
    def face(self) -> tuple[object, ...]:
        """What gives its keys another meaning: which daemon is shown, whether its condition stands in for its panels,
        and who can be rescued."""
        daemon = self.daemon
        if daemon is None or (self._filter is not None and self.focused is self._filter):
            return ()
        return daemon.pipe_dir, daemon.explained, self._rescues

    def on_mount(self) -> None:
        """As it was left."""
        panels, zoomed = self._host.remembered("panels"), self._host.remembered("zoomed")
        if isinstance(panels, dict):
            self._shown = {name: shown for name, shown in panels.items() if name in PANELS and isinstance(shown, bool)}
        self._zoomed = zoomed is True or zoomed in PANELS
        if isinstance(zoomed, str) and zoomed in PANELS:
            self.set_focus(self.query_one(f"#{zoomed}"), scroll_visible=False)
        self._recall_clients()
        if isinstance(window := self._host.remembered("window"), int):
            self.devices.set_window(window)

    def apply(self, snapshot: Snapshot | None, paused: float | None) -> None:
        """Show this snapshot; ``paused`` is the time at which the screen was stopped."""
        self._snapshot, self._paused = snapshot, paused
        if not self.is_mounted:
            return
        if self._pipe_dir is None and (daemon := self.daemon) is not None and daemon.runs:
            self._pipe_dir = daemon.pipe_dir  # one that comes later does not take its place
        with self.app.batch_update():
            self._arrange()
            self._fill()
        if self.app.screen is self:
            self._host.look_at(self.daemon.pipe_dir if self.daemon else None)

    def _fill(self) -> None:
        snapshot, daemon = self._snapshot, self.daemon
        self.header.show(snapshot, daemon, self._paused)
        shown = self._plan.heights if self._plan else {}
        if snapshot is not None:
            current = daemon.pipe_dir if daemon else None
            self.tabs.show(snapshot.daemons, current, self._host.load_daemon, snapshot.past)
            self.devices.show(snapshot, self._plan.lines_per_device if self._plan else 1, self._host.history)
            self.log_panel.show(snapshot, daemon)
            self.problems.repaint()
        if snapshot is not None and daemon is not None and not daemon.explained:
            self.limits.show(snapshot, daemon)
            self.servers.show(snapshot, daemon, with_limits="limits" not in shown)
            meant, at, aimed = self.clients.targets(), self.clients.cursor, bool(self.clients.in_view)
            self.clients.show(snapshot, daemon, self._host.load_keys, self._host.history.clients)
            moved = not self.clients.in_view and (aimed or not self.clients.is_at(at))
            self.stale.watch(meant, daemon, moved=moved, under=self.app.screen is not self)
        if "condition" in shown:
            self.condition.show(snapshot, daemon)
        self._show_keys()

    def _problems(self) -> list[Problem]:
        """The node's problems, and how this daemon is watched where that is slower than it could be."""
        if self._snapshot is None:
            return []
        indices = self._snapshot.indices
        problems = [
            replace(
                each,
                subject=with_indices(each.subject, indices),
                text=with_indices(each.text, indices),
                remedy=with_indices(each.remedy, indices),
            )
            for each in self._snapshot.problems
        ]
        daemon = self.daemon
        now = self._snapshot.past is None  # nothing of the past is watched
        if now and daemon and not daemon.explained and daemon.watch != "logs" and not problems:
            how = "watched by asking it again and again" if daemon.watch == "polling" else "not watched"
            text = f"{how}: {daemon.watch_detail}" if daemon.watch_detail else how
            problems.append(Problem("warning", "watch", path_text(daemon.pipe_dir), text, ""))
        return problems

    # Layout.

    def _arrange(self) -> None:
        snapshot, daemon = self._snapshot, self.daemon
        tabs = snapshot is not None and len(snapshot.daemons) > 1
        width, height = room_of(self)
        problems = self.problems.take(self._problems(), width, 2 if height >= _TWO_OF_PROBLEM else 1)
        filtering = self._filter is not None and bool(self._filter.display)
        focused = self.focused.id if self.focused is not None and self.focused.id in PANELS else "clients"
        alert = self.arrange_alert(snapshot, daemon)
        past = self.arrange_past()
        needs = Needs(
            devices=len(snapshot.devices) if snapshot else 1,
            limits=1 + len(daemon.servers) if daemon else 1,
            servers=len(daemon.servers) if daemon else 0,
            explained=daemon is None or daemon.explained,
            bars=tabs + problems + filtering + alert + past,
            focus=str(focused),
            shown=self._shown,
            zoomed=self._zoomed,
            past=bool(past),
            clients=self._rows_kept(daemon),
        )
        fresh = plan(width, height, needs)
        if (
            problems
            and height >= _TWO_OF_PROBLEM
            and (more := self.problems.take(self._problems(), width, _MOST_OF_PROBLEM) - problems) > 0
        ):
            longer = plan(width, height, needs._replace(bars=needs.bars + more))
            if spares(fresh, longer, needs):
                fresh, problems = longer, problems + more
            else:
                self.problems.take(self._problems(), width, problems)
        if fresh.too_small:
            tabs = problems = self.alert.display = self.past_bar.display = False
        self.tabs.display = tabs
        self.problems.display = bool(problems)
        for rack in toast_racks(self):  # what is told covers no key and no remedy
            if rack.styles.margin.bottom != 1 + problems:
                rack.styles.margin = (0, 0, 1 + problems, 0)
        above = 1 + tabs + alert + past
        if (fresh, above) == (self._plan, self._above):
            return
        self._plan, self._above = fresh, above
        self.query_one("#top").set_class(fresh.wide, "-wide")
        self.query_one("#top").display = bool(fresh.heights.keys() & {"devices", *_RIGHT})
        self.query_one("#right").display = any(name in fresh.heights for name in _RIGHT)
        self.query_one("#too-small").display = fresh.too_small
        self.header.display = self.keys.display = not fresh.too_small
        for name in (*PANELS, "condition"):
            widget = self.query_one(f"#{name}")
            widget.display = name in fresh.heights
            if isinstance(widget, Panel):
                widget.frame(fresh.framed)
            if name in fresh.heights:
                widget.styles.height = fresh.heights[name]
        self._place_events(fresh, above)
        self.log_panel.point(self._elsewhere(fresh))
        self._keep_focus()

    def _elsewhere(self, made: PanelHeights) -> Line:
        """The keys of the panels that are not shown, and of what nobody looks for who has not been told."""
        lists = () if "condition" in made.heights else tuple(name for name in _RIGHT if name not in made.heights)
        hidden = [(f"jump.{name}", str(PANELS.index(name) + 1), name.title()) for name in lists]
        more = [("activity", "a", "Activity"), ("past.time", "T", "Back in time")]
        parts: list[Span] = []
        for binding, default, word in (*hidden, *more):
            parts += [(("  " if parts else "") + shown_key(self._keymap, binding, default), "key"), (f" {word}", "dim")]
        return tuple(parts)

    def _rows_kept(self, daemon: Daemon | None) -> int | None:
        """Rows to keep for the clients, whatever the filter leaves of them; None while they are not known."""
        if daemon is None or not daemon.servers_known:
            return None
        clients = tuple(daemon.clients())
        rows = len(clients) + (len(groups_of(clients, by, self.clients.view)) if (by := self.clients.by) else 0)
        self._kept = reserve(rows, self._kept)
        return self._kept

    def _place_events(self, made: PanelHeights, top: int) -> None:
        """Below limits and servers, where that is their place: over the lines that those leave of theirs."""
        styles = self.log_panel.styles
        if not made.events_beside:
            for name in ("position", "offset", "width"):
                styles.clear_rule(name)
            return
        left = self.app.size.width // 2
        above = sum(made.heights.get(name, 0) for name in _RIGHT)
        styles.position, styles.offset, styles.width = "absolute", (left, top + above), self.app.size.width - left

    def _keep_focus(self) -> None:
        """The focus never stays on a panel that is not shown."""
        shown = self._plan.heights if self._plan else {}
        focused = self.focused.id if self.focused is not None else None
        if self._left in shown and focused in {None, "devices"}:
            self.set_focus(self.query_one(f"#{self._left}"), scroll_visible=False)
            self._left = None
        elif focused is None or (focused in PANELS and focused not in shown):
            self._left = focused or "clients"
            for name in ("clients", "devices", "events"):
                if name in shown:
                    self.set_focus(self.query_one(f"#{name}"), scroll_visible=False)
                    return

    def on_resize(self) -> None:
        """A screen that starts is told its size three times: where nothing on it has another, nothing is to be done."""
        painted = list(self.query(LineWidget))
        sizes = [room_of(self), *(each.size for each in painted)]
        if sizes == self._sizes:
            return
        self._sizes = sizes
        self.apply(self._snapshot, self._paused)
        for each in painted:
            each.repaint()

    def on_descendant_focus(self) -> None:
        self._arrange()
        self._show_keys()

    # Keys.

    def _show_keys(self) -> None:
        if typed := self._typed_hints():
            self.keys.show(typed)
            return
        snapshot, daemon = self._snapshot, self.daemon
        hints: list[KeyHint] = []
        rescues = []
        for action in self._runner.actions:
            refusal = self.unavailable(action)
            if not action.key or (action.finds_clients and refusal is not None):
                continue  # a rescue shows when there is something to rescue
            if action.finds_clients:
                rescues.append(action.id)
            key = shown_key(self._keymap, f"{ACTION_PREFIX}{action.id}", action.key)
            hint = KeyHint(key, action.title, f"act('{action.id}')", action.weight, refusal, action.brief)
            hints.insert(len(rescues) - 1 if action.finds_clients else len(hints), hint)  # what helps leads
        self._rescues = tuple(rescues)
        past = snapshot.past if snapshot is not None else None
        unknown = past.why if past is not None else unless(snapshot, "the node is still being read")
        silent = unless(daemon and not daemon.explained, "no daemon answers here")
        hints += self.trouble_hints(snapshot, daemon)
        stands = self._paused is not None or (past is not None and not past.playing)
        hints += [
            KeyHint(shown_key({spec.name: spec.key}, spec.name, ""), spec.name, f"own({number})", 1)
            for number, spec in enumerate(self.OWN)
        ]
        if self._host.can_take_back and past is None:
            hints.append(KeyHint(shown_key(self._keymap, "take_back", "F4"), "Undo", "take_back", 6))
        rows = isinstance(self.focused, Panel) and bool(self.focused.rows)
        enter = shown_key(self._keymap, "open", "Enter")
        if self.focused is self.clients and (group := self.clients.cursor_group) is not None:
            hints.append(KeyHint(enter, "Unfold" if group.name in self.clients.folded else "Fold", "open", 5))
        else:
            hints.append(KeyHint(enter, "Details", "open", 2, unless(rows, NO_ROW)))
        hints += program_hints(
            self._keymap,
            unknown=unknown,
            silent=silent,
            paused=stands,
            fleet=self._host.fleet and past is None and not self._zoomed,
            past=past,
            zoomed=self._zoomed,
        )
        if self._plan is not None and not self._plan.framed and (kept := self._kept_text()):
            hints = [hint._replace(**kept[hint.action]) if hint.action in kept else hint for hint in hints]
        near = _NEAR.get(str(self.focused.id), {}) if self.focused is not None else {}
        self.keys.show([hint._replace(keep=max(hint.keep, near.get(hint.action, 0))) for hint in hints])

    def _kept_text(self) -> Mapping[str, dict[str, Any]]:
        """What the list is filtered by, and what is looked for in it, in the entries of their keys."""
        clients = self.clients
        texts = {"filter": clients.filter.text, "find": clients.search.text}
        return {
            name: {"text": fit(shown, min(_KEPT, cell_len(shown))), "keep": 8}
            for name, text in texts.items()
            if (shown := printable(text.strip()))
        }

    def _typed_hints(self) -> list[KeyHint]:
        """The keys of the line that is typed into; empty where none is: the letters are text meanwhile."""
        if self.asks_time:
            return typing_hints("Go to that time", "Stay here", "show_help")
        if self._filter is not None and self.focused is self._filter:
            return typing_hints(*(FINDING if self._finding else FILTERING), "show_help")
        return []

    def action_end_typing(self) -> None:
        """As Enter in the line that is typed into."""
        if self.asks_time and self._time is not None:
            self.take_time(self._time.value)
        elif self._filter is not None and self._filter.display:
            self._end_filter()

    def unavailable(self, action: Operation) -> str | None:
        """Why an action cannot be used now. One on clients is for those that are seen to be chosen, or for the one
        under the cursor that the user moves: of a list that is not shown, or that another panel has the keys of, it
        would end somebody whom nobody looks at."""
        daemon = self.daemon
        if self._snapshot is None or daemon is None:
            return no_daemon(self._snapshot)
        why = self._runner.unavailable(action, self._snapshot, daemon.pipe_dir, self.clients.targets())
        if why is not None or not _on_clients(action) or self._aims:
            return why
        return f"choose a client first: {shown_key(self._keymap, 'jump.clients', '4')} goes to the clients"

    @property
    def _aims(self) -> bool:
        """Whether it is seen whom a key for clients is for."""
        shown = self._plan is not None and "clients" in self._plan.heights
        return shown and (bool(self.clients.in_view) or self.focused is self.clients)

    @opens
    def action_own(self, number: int) -> None:
        """A command of the user's own, for the row under the cursor, or the one client that is chosen."""
        from mpstui.commands import CommandTarget

        daemon, focused = self.daemon, self.focused
        target = CommandTarget(daemon.pipe_dir if daemon else None)
        row: object = focused.cursor_row if isinstance(focused, Panel) else None
        if isinstance(row, Limit) and row.server is not None:
            row = row.server
        if isinstance(row, Server):
            target = target._replace(server=row.key)
        elif isinstance(row, Device):
            target = target._replace(device=row.uuid)
        elif isinstance(focused, ClientsPanel) and (clients := self.clients.targets()):
            target = target._replace(client=clients[0], many=len(clients) if len(clients) > 1 else 0)
        self._host.open_own(self.OWN[number], target)

    @opens
    def action_act(self, action_id: str) -> None:
        """Open an action's dialog, for the clients that are chosen now: nothing changes its mind while it is open."""
        action = next(a for a in self._runner.actions if a.id == action_id)
        daemon, snapshot = self.daemon, self._snapshot
        refusal = none_now(self._runner.read_only, snapshot)
        if refusal is None and _on_clients(action):
            refusal = self.stale.refusal(self.clients.rows)
        refusal = refusal or self.unavailable(action)
        if refusal is not None or daemon is None or snapshot is None:
            self.app.notify(refusal or "", title=action.title, severity="warning", markup=False)
            return
        server: Server | None = None
        device: str | None = None
        focused = self.focused
        row: object = focused.cursor_row if isinstance(focused, Panel) else None
        if isinstance(row, Server):
            server = row
        elif isinstance(row, Limit) and row.server is not None:
            server = daemon.find_server(row.server.pid)
        elif isinstance(row, Device):
            device = row.uuid
            on_it = [each for each in daemon.servers if any(device in client.device_uuids for client in each.clients)]
            server = on_it[0] if len(on_it) == 1 else None
        elif isinstance(focused, ClientsPanel) and (pid := focused.cursor_server) is not None:
            server = daemon.find_server(pid)
        elif not isinstance(row, Limit):  # the default, which reaches no running server, is for who points at it
            of_event = daemon.find_server(row.server_pid) if isinstance(row, Event) and row.server_pid else None
            server = of_event or (daemon.servers[0] if len(daemon.servers) == 1 else None)
        clients = rescue_targets(action.id, daemon) if action.finds_clients else self.clients.targets()
        self._host.open_action(action, daemon.pipe_dir, snapshot, clients, server, device)

    def open_typed(self, typed: Typed) -> None:
        """The dialog of an operation that was typed by name, for what was named with it."""
        daemon, snapshot, operation = self.daemon, self._snapshot, typed.operation
        if operation is None:
            return
        refusal = (
            self._runner.unavailable(operation, snapshot, daemon.pipe_dir, typed.clients)
            if daemon is not None and snapshot is not None
            else no_daemon(snapshot)
        )
        if refusal is not None or daemon is None or snapshot is None:
            self.app.notify(refusal or "", title=operation.title, severity="warning", markup=False)
            return
        clients = typed.clients
        if operation.finds_clients:
            found = rescue_targets(operation.id, daemon)
            clients = tuple(key for key in found if key in typed.clients) if typed.clients else found
            if not clients:
                named = ", ".join(str(key.pid) for key in typed.clients)
                self.app.notify(f"not for {named}", title=operation.title, severity="warning", markup=False)
                return
        server = next((s for s in daemon.servers if s.key == typed.server), None)
        self._host.open_action(operation, daemon.pipe_dir, snapshot, clients, server, typed.device, typed.value)

    def action_jump(self, name: str) -> None:
        """To a panel, which comes if it is not there; from it, the panel goes."""
        panel = self.query_one(f"#{name}", Panel)
        if self._plan is None or self._plan.too_small:
            return
        explained = self.daemon is None or self.daemon.explained
        if explained and name not in {"devices", "events"}:
            return
        if self.focused is panel and name != "clients" and not self._zoomed:
            self._hide(name, None if explained else self.query_one("#clients", Panel))
        else:
            if self._shown.get(name, name in self._plan.heights) is False or name not in self._plan.heights:
                self._shown[name] = True
            panel.display = True
            self.set_focus(panel, scroll_visible=False)
        self._remember()
        self.apply(self._snapshot, self._paused)

    def _hide(self, name: str, target: Panel[Any] | None) -> None:
        """The panel goes: where it has a place at this size it is hidden at all of them, otherwise it is as if nobody
        had asked for it. Its key is said where no line of the screen does."""
        self._shown.pop(name, None)
        self._left = None
        self.set_focus(target, scroll_visible=False)
        self._arrange()
        if self._plan is None or name not in self._plan.heights:
            return
        self._shown[name] = False
        self._arrange()
        if self._plan.framed or name not in _RIGHT or "events" not in self._plan.heights:
            key = shown_key(self._keymap, f"jump.{name}", str(PANELS.index(name) + 1))
            self.app.notify(f"hidden; {key} shows it again", title=name.title(), markup=False, timeout=4)

    def action_zoom(self) -> None:
        """The panel that the user is in has the whole screen, or its place again."""
        self._zoomed = not self._zoomed
        self._remember()
        self.apply(self._snapshot, self._paused)

    @opens
    def action_columns(self) -> None:
        """Which columns the clients have; each change shows at once, and is remembered."""
        from mpstui.ui.dialogs.columns import ColumnList, ColumnsDialog

        clients = self.clients
        self.app.push_screen(
            ColumnsDialog(
                ColumnList(clients.chosen_columns, clients.sort, self._take_columns, clients.sort_by, clients.laid_out)
            )
        )

    def _take_columns(self, chosen: Sequence[Shown]) -> None:
        self.clients.choose_columns(chosen)
        self._host.remember("columns", [list(each) for each in chosen])

    @on(DevicesPanel.Window)
    def _window_chosen(self, message: DevicesPanel.Window) -> None:
        self._host.remember("window", message.seconds)

    @on(ClientsPanel.Arranged)
    def _arranged(self) -> None:
        clients = self.clients
        self._host.remember("sort", list(clients.sort))
        names = sorted((name for name in clients.folded if name), key=str.lower)[:_FOLDS]
        pinned = [[key.pid, key.start_ticks] for key in clients.pinned if key.start_ticks is not None][:_FOLDS]
        self._host.remember("pinned", pinned)
        self._host.remember("groups", None if clients.by is None else [clients.by, names, None in clients.folded])

    @opens
    def action_group(self) -> None:
        """In what groups the clients are; what there is just one of is not worth one, but can be had."""
        from mpstui.ui.dialogs.pick import Pick, PickDialog

        clients = self.clients

        def picks() -> list[Pick]:
            ways = [Pick(None, "in no groups", "one list", " " if clients.by else "●")]
            for by in _BY:
                words = plural(clients.groups_by(by), "group")
                ways.append(Pick(by, f"by {'GPU' if by == 'gpu' else by}", words, "●" if clients.by == by else " "))
            return ways

        self.app.push_screen(PickDialog("Group the clients", picks, self._group_by))

    def _group_by(self, by: Hashable) -> None:
        self.clients.group(by if isinstance(by, str) else None)
        self._to_clients()

    @opens
    def action_order(self) -> None:
        """By which column the clients are sorted; the one that they are sorted by is turned round."""
        from mpstui.ui.dialogs.pick import Pick, PickDialog

        clients, (now, reverse) = self.clients, self.clients.sort
        picks = [
            Pick(each.id, each.heading(), each.brief, clients.arrow if each.id == now else " ")
            for each in possible_columns(CLIENT)
        ]
        title = "Sort the clients by: Enter on the current one reverses the order"

        def sort(name: Hashable) -> None:
            clients.sort_by(str(name), name == now and not reverse)
            self._to_clients()

        self.app.push_screen(PickDialog(title, lambda: picks, sort))

    def action_by_memory(self) -> None:
        """htop's key for it, which a newcomer presses first."""
        self.clients.sort_by("gpu_memory")
        self._to_clients()

    def _recall_clients(self) -> None:
        """Columns and order as they were left; what cannot be read is left out."""
        columns, sort = self._host.remembered("columns"), self._host.remembered("sort")
        groups = self._host.remembered("groups")
        if isinstance(columns, list):
            rows = [[*each, True][:3] for each in columns if isinstance(each, list) and len(each) in (2, 3)]
            known = {each.id for each in possible_columns(CLIENT)}
            chosen = [
                Shown(name, min(width, 200), asked)
                for name, width, asked in rows
                if isinstance(name, str) and name in known and isinstance(width, int) and width >= 0
                if asked is None or isinstance(asked, bool)
            ]
            self.clients.choose_columns(wished(CLIENT, chosen) if any(one.asked is not False for one in chosen) else ())
        if isinstance(sort, list) and len(sort) == 2 and isinstance(sort[0], str):
            self.clients.sort_by(sort[0], sort[1] is True)
        if isinstance(groups, list) and len(groups) == 3 and groups[0] in _BY and isinstance(groups[1], list):
            folded = {name for name in groups[1] if isinstance(name, str)}
            self.clients.group(groups[0], folded | ({None} if groups[2] is True else set()))
        pinned, text = self._host.remembered("pinned"), self._host.remembered("filter")
        if isinstance(pinned, list):
            pairs = [each for each in pinned if isinstance(each, list) and len(each) == 2]
            self.clients.pinned = frozenset(
                ProcessKey(pid, ticks) for pid, ticks in pairs if isinstance(pid, int) and isinstance(ticks, int)
            )
        if isinstance(text, str) and text.strip():
            self.clients.set_filter(text[:_FILTER])
            self.app.notify(
                f"{printable(text[:_FILTER])}: others are hidden. Esc shows all", title="Filter, as you left it",
                markup=False,
            )  # fmt: skip
        elif self._as_left:
            colon = shown_key(self._keymap, "palette", ":")
            self.app.notify(f"{colon}reset view shows the usual one", title="The view is as you left it", markup=False)

    def _remember(self) -> None:
        self._host.remember("panels", dict(self._shown))
        panel = self.focused.id if isinstance(self.focused, Panel) else self._left
        self._host.remember("zoomed", self._zoomed and (panel or True))

    def action_daemon(self, step: int) -> None:
        if self._snapshot is None or len(self._snapshot.daemons) < 2:
            self.app.notify("no other daemon is known", title="Daemons", markup=False)
            return
        places = [daemon.pipe_dir for daemon in self._snapshot.daemons]
        current = self.daemon
        at = places.index(current.pipe_dir) if current else 0
        self.pick(places[(at + step) % len(places)])

    @on(DaemonTabs.Picked)
    def _picked(self, message: DaemonTabs.Picked) -> None:
        self.pick(message.pipe_dir)

    def pick(self, pipe_dir: Path) -> None:
        """Show that daemon."""
        self._pipe_dir = pipe_dir
        self.clients.clear_chosen()
        self.apply(self._snapshot, self._paused)

    def action_refresh_now(self) -> None:
        daemon = self.daemon
        self._host.refresh_now(daemon.pipe_dir if daemon else None)

    @opens
    def action_load(self) -> None:
        self._host.open_load(self.daemon.pipe_dir if self.daemon else None)

    @opens
    def action_plan(self) -> None:
        row = self.focused.cursor_row if isinstance(self.focused, DevicesPanel) else None
        device = row.uuid if row is not None else None
        self._host.open_plan(self.daemon.pipe_dir if self.daemon else None, device)

    @opens
    def action_namespaces(self) -> None:
        """The same key: which of the two it is follows from the daemon."""
        self.action_partitions()

    def action_partitions(self) -> None:
        self._host.open_partitions(self.daemon.pipe_dir if self.daemon else None)

    @opens
    def action_take_back(self) -> None:
        self._host.take_back()

    @opens
    def action_daemons(self) -> None:
        self._host.open_daemons(self.daemon.pipe_dir if self.daemon else None)

    def action_copy(self) -> None:
        """Copy the row under the cursor as text (OSC 52, so it works over SSH): the cells of a table with tabs between
        them, as a sheet takes them."""
        panel = self.focused
        if not isinstance(panel, Panel):
            return
        if (row := panel.cursor_row) is None:
            panel.say(NO_ROW)
            return
        if isinstance(panel, TablePanel) and not isinstance(row, Group):
            found = ["\t".join(map(_plain, panel.cells_of(row, _COPIED)))]
        else:
            found = [words for words in map(_plain, panel.row_lines(row, _COPIED)) if words] or [""]
        self.app.copy_to_clipboard("\n".join(found))
        many = f"{plural(len(found), 'line')}: " if len(found) > 1 else ""
        self.app.notify(many + found[0].replace("\t", "  "), title="Copied", markup=False)

    def views(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        """What can be had shown by name: each command, and the words that may follow with what they are; none: text."""
        columns = [(each.word or each.id, each.title) for each in possible_columns(CLIENT)]
        users = [(group.name or UNKNOWN, plural(len(group.clients), "client")) for group in self._by_user()]
        return {
            "group": [("none", "one list"), *((by, plural(self.clients.groups_by(by), "group")) for by in _BY)],
            "sort": columns,
            "user": [("everybody", "all clients"), *users],
            "filter": (),
            "find": (),
            "reset": [("view", "the usual panels, columns, order and history; no groups, filter or pinned clients")],
            "time": (),
            "save": (),
        }

    def show_view(self, name: str, word: str) -> None:
        """Carry such a command out."""
        clients = self.clients
        if name == "group":
            clients.group(word)
        elif name == "sort":
            found = next((each.id for each in possible_columns(CLIENT) if word in {each.word, each.id}), "")
            now, reverse = clients.sort
            clients.sort_by(found, found == now and not reverse)
        elif name == "user":
            found_group = next((group for group in self._by_user() if (group.name or UNKNOWN) == word), None)
            first = found_group.clients[0] if found_group else None
            self._show_user(None if first is None else (first.user, first.uid))
        elif name == "filter":
            clients.set_filter(word)
            self._keep_filter()
        elif name == "find":
            clients.find(word)
        elif name == "reset":
            self._reset_view()
        elif name == "time":
            self._host.travel("jump", word)
        elif name == "save":
            self._host.save_past(word)
        if name not in {"save", "time"}:
            self._to_clients()
        self._show_keys()

    def _reset_view(self) -> None:
        """As it is where nothing was chosen, and remembered so."""
        clients = self.clients
        self._shown, self._zoomed, self._left = {}, False, None
        self._remember()
        self._take_columns(())
        clients.pinned = frozenset()
        clients.group(None)
        clients.sort_by(*_SORTED)
        clients.find("")
        clients.set_filter("")
        self._keep_filter()
        self.devices.set_window(USUAL)
        self._host.remember("window", USUAL)
        self.apply(self._snapshot, self._paused)

    @property
    def _as_left(self) -> bool:
        """Whether the view is another one than the usual one."""
        clients = self.clients
        return bool(self._shown or self._zoomed or clients.chosen_columns or clients.by or clients.sort != _SORTED)

    def _to_clients(self) -> None:
        """What was just chosen is seen there, and the next keys are for it."""
        if self.focused is not self.clients:
            self.action_jump("clients")

    def _by_user(self) -> list[Group]:
        clients = self.clients
        return sorted(groups_of(self._everybody() or (), "user", clients.view), key=lambda each: each.order)

    def _everybody(self) -> Sequence[Client] | None:
        """All clients of the daemon, None while they are not known; their panel, while it is not shown, has those that
        were there before."""
        daemon = self.daemon
        return tuple(daemon.clients()) if daemon is not None and daemon.servers_known else None

    # The filter.

    def on_key(self, event: events.Key) -> None:
        """A key of the clients that does nothing in the panel with the focus says so, and so does a letter of another
        screen, rather than nothing."""
        panel = self.focused
        if not isinstance(panel, Panel) or event.key in self.active_bindings:
            return
        if says := where_it_works(self._keymap, event.key):
            self.app.notify(says, title="Not on this screen", markup=False, timeout=4)
        if says := here_it_is(self._keymap, event.key):
            self.app.notify(says, title=written(self.app.get_key_display(Binding(event.key, ""))), markup=False)
        if panel is self.clients:
            return
        for binding in ClientsPanel.BINDINGS:
            assert isinstance(binding, Binding)  # noqa: S101
            if event.key in self._keymap.get(binding.id or "", binding.key).split(","):
                four = shown_key(self._keymap, "jump.clients", "4")
                says = f"{key_name(event.key)} works in the clients: {four} goes there"
                self.app.notify(says, title=binding.description, markup=False, timeout=4)

    @opens
    async def action_filter(self) -> None:
        await self._type(finding=False)

    @opens
    async def action_find(self) -> None:
        await self._type(finding=True)

    async def _type(self, *, finding: bool) -> None:
        # Also where there is nothing to filter: the letters that are typed next are for nothing else.
        self._finding = finding
        self.clients.begin_filter()
        text = (self.clients.search if finding else self.clients.filter).text
        if self._filter is None:
            from mpstui.ui.form import TypedLine

            self._filter = TypedLine(text, id="filter", about=CLIENT_TERMS)
            await self.mount(self._filter, before=self.problems)
        self._filter.placeholder = (
            f"{'find' if finding else 'filter'}: text  user:alice  mem>4G  gpu:0  !text    ? fields"
        )
        self._filter.value = text
        self._filter.cursor_position = len(text)
        self._filter.display = True
        self._filter.focus()
        self.apply(self._snapshot, self._paused)

    def on_input_changed(self, event: Any) -> None:
        if event.input is not self._filter:
            return
        if self._finding:
            self.clients.find(event.value)
        else:
            self.clients.set_filter(event.value)
        self._show_keys()

    def action_found(self, step: int) -> None:
        """To the next one that was looked for; where nothing was, through the rows that the filter leaves."""
        clients = self.clients
        if not clients.search and not clients.filter:
            self.app.notify("no text to look for: f finds, / filters", title="Next", severity="warning", markup=False)
        elif not clients.go_on(step):
            self.app.notify("no client matches", title="Next", severity="warning", markup=False)
        elif clients.display:
            self.set_focus(clients, scroll_visible=False)

    @opens
    def action_users_of(self) -> None:
        """Whose clients are shown: a filter like any other."""
        from mpstui.ui.dialogs.pick import Pick, PickDialog

        clients = self.clients

        def picks() -> list[Pick]:
            known = self._everybody()
            count = "not known" if known is None else plural(len(known), "client")
            everybody = Pick(None, "everybody", count, " " if clients.filter else "●")
            return [everybody, *map(of_user, self._by_user())]

        def of_user(group: Group) -> Pick:
            parts = [plural(len(group.clients), "client")]
            for name in ("gpu_memory", "cpu_percent"):
                if (column := CLIENT[name].column) is not None and column.total is not None:
                    told = "".join(text for text, _ in column.total.cell(group, 40)).strip()
                    parts.append(f"{CLIENT[name].title} {told}")
            first = group.clients[0]
            value = (first.user or (UNKNOWN if first.uid is None else str(first.uid)), first.uid)
            text = clients.filter.of_user(first.user, first.uid) if value[0] != UNKNOWN else f"user={UNKNOWN}"
            mark = "●" if clients.filter.text == text else " "
            return Pick((first.user, first.uid), value[0], " · ".join(parts), mark)

        self.app.push_screen(PickDialog("Whose clients", picks, self._show_user))

    def _show_user(self, who: Hashable) -> None:
        name, uid = who if isinstance(who, tuple) else (None, None)
        unknown = UNKNOWN if isinstance(who, tuple) and name is None and uid is None else name
        self.clients.set_filter(self.clients.filter.of_user(unknown, uid))
        self._keep_filter()
        self._to_clients()
        self._show_keys()

    def _keep_filter(self) -> None:
        self._host.remember("filter", self.clients.filter.text)

    def on_input_submitted(self, event: Any) -> None:
        if event.input is self._filter:
            self._end_filter()
        else:
            self.take_time(event.value)

    def time_line_changed(self) -> None:
        self.apply(self._snapshot, self._paused)

    def close_time(self) -> None:
        super().close_time()
        shown = self._plan is not None and "clients" in self._plan.heights
        self.set_focus(self.clients if shown else None, scroll_visible=False)
        self.apply(self._snapshot, self._paused)
        self._keep_focus()

    def _end_filter(self) -> None:
        """What is not understood stays to be corrected: its letters would be keys of the table."""
        typed = self.clients.search if self._finding else self.clients.filter
        if why := typed.complaint():
            self.app.notify(why, title="Find" if self._finding else "Filter", severity="warning", markup=False)
            return
        if self._filter is not None:
            self._filter.display = False
        self.clients.end_filter()
        self._keep_filter()
        shown = self._plan is not None and "clients" in self._plan.heights
        self.set_focus(self.clients if shown else None, scroll_visible=False)
        self.apply(self._snapshot, self._paused)
        self._keep_focus()

    def action_back(self) -> None:
        """Escape: out of the filter and clear it, otherwise choose nothing, otherwise look for nothing, otherwise clear
        the filter; where there is nothing of that, from the past back to now, from one panel back to all, or back to
        the fleet that has opened this."""
        if self.asks_time:
            self.close_time()
            return
        editing = self._filter is not None and bool(self._filter.display)
        if not editing and self.clients.in_view:
            self.clients.clear_chosen()
            return
        if not (editing or self.clients.search or self.clients.filter):
            if self.back_to_now():
                return
            if self._zoomed:
                self.action_zoom()
                return
        open_ = editing or self.clients.search or self.clients.filter or (self._snapshot and self._snapshot.past)
        if self._host.fleet and not open_:
            self._host.action_quit_app()
            return
        if self.clients.search if not editing else self._finding:
            self.clients.find("")
        else:
            if self._filter is not None:
                self._filter.value = ""
            self.clients.set_filter("")
            self._keep_filter()
        if editing:
            self._end_filter()
        self._show_keys()

    @on(ClientsPanel.Ended)
    def _pinned_ended(self, message: ClientsPanel.Ended) -> None:
        for client in message.clients[:3]:
            self.app.notify(f"{client_line(client)} is no longer a client", title="Pinned", timeout=30, markup=False)
        self._arranged()

    # Messages of the panels.

    @on(ClientsPanel.Chosen)
    @on(Panel.Moved)
    def _targets_changed(self) -> None:
        self._show_keys()

    @on(Panel.Opened)
    def _opened(self, message: Panel.Opened) -> None:
        if message.kind == EventsPanel.KIND:
            self.open_trouble("events", self.daemon.pipe_dir if self.daemon else None, message.identity)
            return
        self._host.open_details(message.kind, message.identity)

    @on(KeyBar.Pressed)
    async def _pressed(self, message: KeyBar.Pressed) -> None:
        if message.action == "choose":
            await self.clients.run_action(message.action)
        elif message.action == "open" and isinstance(self.focused, Panel):
            await self.focused.run_action(message.action)
        elif message.action in {"pause", "show_help", "command_palette", "quit_app"}:
            await self.app.run_action(message.action, self.app)
        else:
            await self.run_action(message.action)


def _plain(line: Line) -> str:
    return " ".join("".join(part for part, _ in line).translate(_DRAWN).split())


def _on_clients(action: Operation) -> bool:
    """Whether it is for clients that the user chooses."""
    return any(argument.kind == "clients" for argument in action.arguments) and not action.finds_clients


def offering(specs: Sequence[CommandSpec]) -> type[Overview]:
    """The overview with the keys of these commands."""
    if not specs:
        return Overview
    keys: list[BindingType] = [
        Binding(
            spec.key,
            f"own({number})",
            spec.name,
            show=False,
            id=f"own.{number}",
            tooltip=f"{spec.name}: own command, {shlex.join(map(printable, spec.run))}",
        )
        for number, spec in enumerate(specs)
    ]
    return type("OwnOverview", (Overview,), {"BINDINGS": keys, "OWN": tuple(specs)})
