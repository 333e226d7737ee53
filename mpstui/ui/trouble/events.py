"""The events of a daemon: filtered by kind, client and time, searched, followed, and read further back in the logs."""

from __future__ import annotations

import os
import time
from collections.abc import Hashable
from pathlib import Path
from typing import ClassVar, Final

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import Input

from mpstui.api import Unavailable
from mpstui.core.model import Event, EventKind, Snapshot
from mpstui.fields import EVENT_SEVERITY, pids_of
from mpstui.ui.bars import KeyHint, unless
from mpstui.ui.box import Para
from mpstui.ui.contract import Runner
from mpstui.ui.filter import EVENT_SYNTAX, EVENT_TERMS, EventFilter
from mpstui.ui.form import TypedLine
from mpstui.ui.keys import FILTERING, FINDING, typing_hints
from mpstui.ui.layout import WIDE
from mpstui.ui.panel import Panel
from mpstui.ui.panels.events import HIDDEN
from mpstui.ui.screens import ListScreen, SideScreen
from mpstui.ui.trouble.contract import TroubleBackend
from mpstui.ui.trouble.eventlist import KINDS, EventList, KindsPanel
from mpstui.ui.typeahead import opens

OLDER: Final = 2000
"""Events that one look further back brings at most."""
MOST: Final = 20_000
"""Events that are kept; then the oldest go."""
PLAIN: Final = frozenset(KINDS) - HIDDEN
_NOT_LOOKED: Final = "no text to look for yet; f takes one"
_NO_CLIENT: Final = "this event names no client"
_READING: Final = "the logs are being read"
_NO_LOGS: Final = "there are no logs to read from"
_WINDOWS: Final = ("", "1m", "10m", "1h", "24h")


class EventsScreen(ListScreen):
    """Keeps every event that it has seen while it is open; what is hidden is counted among the kinds."""

    panel: EventList
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "search", "Find", show=False, id="events.search"),
        Binding("H", "trouble", "Warnings and errors only, all but noise, everything", show=False, id="events.trouble"),
        Binding("c", "client", "This client only", show=False, id="events.client"),
        Binding("h", "window", "How far back", show=False, id="events.window"),
        Binding("O", "older", "Older events, from the logs", show=False, id="events.older"),
        Binding("y", "copy", "Copy the line of the log", show=False, id="copy"),
        Binding("B", "suspects", "Suspects: who was there at each fault", show=False, id="suspects"),
    ]
    DEFAULT_CSS = """
    EventsScreen {
        & #text { width: 30; }
        & #kinds { width: 34; height: 100%; }
        & #filter, & #search { height: 1; border: none; padding: 0 1; background: $surface; display: none; }
        &.-narrow #kinds { display: none; width: 100%; height: 100%; }
        &.-narrow #list { height: 100%; }
        &.-kinds #kinds { display: block; }
        &.-kinds #list { display: none; }
    }
    """

    def __init__(
        self, runner: Runner, backend: TroubleBackend | None, snapshot: Snapshot | None, pipe_dir: Path | None,
        start: Hashable = None,
    ) -> None:  # fmt: skip
        """``start`` is the key of the event to begin at; without one it follows the end."""
        super().__init__(runner, snapshot, pipe_dir)
        self._backend = backend
        self._start = start
        self._known: dict[Hashable, Event] = {}
        self._filter = EventFilter()
        self._window = 0
        self._reading = False
        self._source: tuple[Event, ...] | None = None
        self.trouble = frozenset(kind for kind in KINDS if EVENT_SEVERITY.get(kind, "info") != "info")
        self.kinds = KindsPanel(HIDDEN, id="kinds")
        self.filter = TypedLine(placeholder=EVENT_TERMS, id="filter", about=EVENT_SYNTAX)
        self.search = TypedLine(placeholder="look for", id="search")

    def make_list(self) -> Panel[Event]:
        return EventList(id="list")

    @property
    def timeline(self) -> EventList:
        return self.panel

    def parts(self) -> ComposeResult:
        with Container(id="body"):
            yield self.panel
            yield self.kinds
        yield self.filter
        yield self.search

    # What it shows.

    def fill(self, snapshot: Snapshot) -> None:
        daemon = self.daemon
        # The describing of events needs users and device indices.
        self.timeline.know(snapshot, daemon)
        self.timeline.past = snapshot.past is not None
        if snapshot.events is not self._source:
            self._source = snapshot.events
            mine = [e for e in snapshot.events if daemon is None or e.pipe_dir in {None, daemon.pipe_dir}]
            self._add(mine, older=False)
            self._sift()
        else:
            self.timeline.repaint()
        if self._start is not None:
            self.timeline.go_to(self._start)
            self._start = None

    def _add(self, new: list[Event], *, older: bool) -> int:
        """Take events over, in the order of time; returns how many were not known."""
        told = {self.timeline.key(event): event for event in new}
        fresh = {key: event for key, event in told.items() if key not in self._known}
        if older:
            self._known = {**fresh, **self._known}
        else:
            self._known.update(told)  # whose process it was may be known only now
        if any(event.kind == "xid" for event in fresh.values()):  # the driver's word comes when it likes
            self._known = dict(sorted(self._known.items(), key=lambda item: item[1].time or 0.0))
        for key in list(self._known)[: max(0, len(self._known) - MOST)]:
            del self._known[key]
        return len(fresh)

    def _sift(self) -> None:
        """Bring list and kinds up to what is known and to the filter."""
        if self.snapshot is None:
            return
        known = list(self._known.values())
        panel, kinds, chosen = self.timeline, self.kinds.shown, self._filter
        passing = [
            e for e in known if e.kind in kinds and (not chosen or chosen.matches(e, panel.view, panel.shown(e)))
        ]
        self.kinds.count(known)
        note: list[tuple[str, str]] = [(f" of {len(known)}", "dim")]
        if (daemon := self.daemon) is not None and (whose := daemon.claimant(os.geteuid())) is not None:
            note.append((f"  ▲ only {whose}'s daemon says so", "warn"))
        if chosen:
            note.append((f"  / {chosen.text}", "accent"))
        panel.complaint = chosen.complaint()
        if panel.complaint:
            note.append(("  ✕ not understood" if not passing else f"  ✕ {panel.complaint}", "bad"))
        if self._reading:
            note.append(("  reading the logs …", "warn"))
        panel.said = tuple(note)
        panel.fill(passing, time.strftime("%Y-%m-%d", time.localtime(self.snapshot.time)))

    def show_text(self) -> None:
        self.show_keys()

    def describe(self, snapshot: Snapshot) -> tuple[str, list[Para]]:
        return "", []

    def hints(self) -> list[KeyHint]:
        row = self.timeline.cursor_row
        reading = _READING if self._reading else unless(self._backend, _NO_LOGS)
        on_kinds = self.focused is self.kinds
        first = (
            [KeyHint(self.k("kinds.toggle", "Space"), "Show/hide", "mark", 8)]
            if on_kinds
            else [KeyHint(self.k("open", "Enter"), "Details", "open", 8)]
        )
        trouble = "Warnings" if self.kinds.shown == PLAIN else "All" if self.kinds.shown == self.trouble else "Less"
        return [
            *first,
            KeyHint(self.k("filter", "/"), "Filter", "filter", 9),
            KeyHint(self.k("events.search", "f"), "Find", "search", 8),
            KeyHint(self.k("events.next", "n"), "Next", "seek(1)", 6, unless(self.timeline.needle, _NOT_LOOKED)),
            KeyHint(self.k("events.trouble", "H"), trouble, "trouble", 7),
            KeyHint(
                self.k("events.client", "c"),
                "This client",
                "client",
                5,
                unless(row and pids_of(row), _NO_CLIENT),
            ),
            KeyHint(
                self.k("events.window", "h"),
                f"Since {_WINDOWS[(self._window + 1) % len(_WINDOWS)] or 'ever'}",
                "window",
                4,
            ),
            KeyHint(self.k("events.follow", "F"), "Freeze" if self.timeline.follows else "Follow", "follow", 7),
            KeyHint(
                self.k("events.older", "O"),
                "Older",
                "older",
                6,
                reading,
            ),
            KeyHint(self.k("copy", "y"), "Copy", "copy", 2, unless(row, "there is no event")),
            *(
                [KeyHint(self.k("suspects", "B"), "Suspects", "suspects", 8)]
                if row is not None and row.kind == "fatal_fault"
                else []
            ),
            KeyHint(self.k("list.other", "Tab"), "Events" if on_kinds else "Kinds", "other", 5),
        ]

    def show_keys(self) -> None:
        """Those of the line that is typed into, where one is."""
        typed = next((field for field in (self.filter, self.search) if field.has_focus), None)
        if typed is None:
            SideScreen.show_keys(self)
        else:
            self.keys.show(typing_hints(*(FINDING if typed is self.search else FILTERING), "app.show_help"))

    # Filter and search.

    @opens
    def action_search(self) -> None:
        """Open the line of the search."""
        self.search.display = True
        self.search.focus()
        self.timeline.begin_search()

    @on(Input.Changed, "#search")
    def _search_changed(self, message: Input.Changed) -> None:
        self.timeline.find(message.value.strip())
        self.show_text()

    @on(Input.Submitted, "#search")
    def _sought(self) -> None:
        if self.timeline.needle and not self.timeline.found:
            self._none_found()

    def _set_filter(self, text: str) -> None:
        now = self.snapshot.time if self.snapshot else time.time()
        self._filter = EventFilter(text, now)
        self._sift()
        self.show_text()

    @property
    def filter_trouble(self) -> str:
        return self._filter.complaint()

    def _replace_term(self, name: str, value: str) -> None:
        words = [word for word in self.filter.value.split() if not word.startswith(f"{name}:")]
        self.filter.value = " ".join([*words, *([f"{name}:{value}"] if value else [])])

    def action_back(self) -> None:
        """Out of an open line, clearing it; otherwise clear what is set; otherwise back."""
        for field in (self.filter, self.search):
            if field.has_focus or (not self.filter.has_focus and not self.search.has_focus and field.value):
                field.value = ""
                field.display = False
                self._window = 0 if field is self.filter else self._window
                self.set_focus(self.panel, scroll_visible=False)
                return
        SideScreen.action_back(self)

    def action_seek(self, step: int) -> None:
        if self.timeline.needle and not self.timeline.seek(step):
            self._none_found()
        self.show_text()

    def _none_found(self) -> None:
        self.app.notify(f"no event shown has {self.timeline.needle}", title="Search", markup=False, timeout=3)

    def action_trouble(self) -> None:
        """From all but noise to trouble alone, to everything, and back."""
        shown = self.kinds.shown
        kinds: frozenset[EventKind] = (
            self.trouble if shown == PLAIN else frozenset(KINDS) if shown == self.trouble else PLAIN
        )
        self.kinds.only(kinds)

    def action_client(self) -> None:
        """Only events of the client under the cursor; pressed again, those of all."""
        row = self.timeline.cursor_row
        if any(word.startswith("client:") for word in self.filter.value.split()):
            self._replace_term("client", "")
        elif row is not None and (pids := pids_of(row)):
            pid = str(row.pid) if row.pid is not None else min(pids)
            self._replace_term("client", pid)

    def action_window(self) -> None:
        """Only events of the last minute, ten minutes, hour, day; or all."""
        self._window = (self._window + 1) % len(_WINDOWS)
        self._replace_term("since", _WINDOWS[self._window])

    @on(KindsPanel.Toggled)
    def _toggled(self) -> None:
        self._sift()
        self.show_text()

    # Further back.

    def action_older(self) -> None:
        """Read events from before those that are known, out of the logs."""
        daemon = self.daemon
        if self._backend is None or self._reading or daemon is None:
            return
        times = [event.time for event in self._known.values() if event.time is not None]
        before = min(times, default=self.snapshot.time if self.snapshot else time.time())
        self._reading = True
        self._sift()
        self.show_text()
        self.run_worker(self._read(self._backend, before), exit_on_error=False)

    async def _read(self, backend: TroubleBackend, before: float) -> None:
        daemon = self.daemon
        try:
            if daemon is not None:
                older = await backend.older_events(daemon, before, OLDER)
                new = self._add(list(older.events), older=True)
                if older.missing:
                    self.app.notify("; ".join(older.missing), title="Older events", markup=False, timeout=8)
                elif not new:
                    self.app.notify("the logs begin here", title="Older events", markup=False, timeout=4)
        except Unavailable as error:
            self.app.notify(str(error), title="Older events", severity="warning", markup=False)
        finally:
            self._reading = False
            self.timeline.follows = False
            if self.is_attached:
                self._sift()
                self.show_text()

    # Keys.

    def action_follow(self) -> None:
        self.timeline.action_follow()
        self.show_text()

    @opens
    def action_open(self) -> None:
        if (row := self.timeline.cursor_row) is not None:
            self.host.open_details("event", row)

    def action_mark(self) -> None:
        self.kinds.action_mark()

    def open_row(self, message: Panel.Opened) -> None:
        self.action_open()

    def action_suspects(self) -> None:
        self.host.open_trouble("suspects", self.pipe_dir, None)

    def action_copy(self) -> None:
        if (row := self.timeline.cursor_row) is not None:
            self.copy(row.raw or row.detail, row.raw or row.detail)

    def action_other(self) -> None:
        """To the kinds and back; on a narrow screen they take the place of the events."""
        to_kinds = self.focused is not self.kinds
        self.set_class(to_kinds and self.app.size.width < WIDE, "-kinds")
        self.set_focus(self.kinds if to_kinds else self.panel, scroll_visible=False)
        self.show_text()
        self.call_after_refresh(self._repaint)

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(self.focused is self.kinds and event.size.width < WIDE, "-kinds")
        super().on_resize(event)
