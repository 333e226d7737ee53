"""What the screens beside the overview have in common: their keys and the way they fit a terminal; a list with a text
about the row under its cursor; the node that they follow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Input

from mpstui.core.cells import devices_of, no_daemon
from mpstui.core.model import Daemon, Device, ProcessKey, Server, Snapshot
from mpstui.operations.operation import Operation
from mpstui.ui.bars import Header, KeyBar, KeyHint, TooSmall
from mpstui.ui.box import Para, TextBox
from mpstui.ui.contract import Host, Runner
from mpstui.ui.form import TypedLine
from mpstui.ui.keys import FILTERING, shown_key, typing_hints
from mpstui.ui.layout import MIN_HEIGHT, MIN_WIDTH, WIDE, room_of
from mpstui.ui.lines import LineWidget, StyledScreen
from mpstui.ui.panel import NOT_FOUND, Panel
from mpstui.ui.typeahead import opens


class BarScreen(StyledScreen):
    """A header, what a subclass composes, and the keys; in a terminal that is too small, only that it is."""

    NAME: ClassVar[str] = ""
    """What its words to the user are headed with."""
    BACK: ClassVar[str] = ""
    """The id of its binding that goes back."""
    OFFERS_ACTIONS: ClassVar[bool] = False
    """The registry's actions are the overview's: palette and help leave them out here."""
    header: LineWidget
    """A subclass makes it."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,f1", "app.show_help", "Help", id="help"),
        Binding("q", "back", "Back", show=False, id="quit"),
        Binding("slash", "filter", "Filter", show=False, id="filter"),
    ]

    DEFAULT_CSS = """
    BarScreen {
        layout: vertical; overflow: hidden; background: $background;
        & > #too-small { display: none; height: 1fr; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self.keys = KeyBar()
        self._had_focus: Widget | None = None

    # What a subclass gives.

    def parts(self) -> ComposeResult:
        """What stands between header and keys."""
        raise NotImplementedError

    def hints(self) -> list[KeyHint]:
        """This screen's own keys, with the reasons of those that do nothing now."""
        raise NotImplementedError

    def show(self) -> None:
        """Bring every widget up to date; each paints only what differs."""
        raise NotImplementedError

    def _arrange(self) -> None:
        """Give every widget its place in the terminal's size."""
        raise NotImplementedError

    # What they share.

    def compose(self) -> ComposeResult:
        yield self.header
        yield from self.parts()
        yield TooSmall(id="too-small")
        yield self.keys

    @property
    def back_leads(self) -> str:
        """Where its key leads."""
        return "Back"

    def way_back(self) -> list[KeyHint]:
        """The key that leaves it."""
        return [KeyHint(self.k(self.BACK, "Esc"), self.back_leads, "back", 10)]

    def show_keys(self) -> None:
        """This screen's own keys, and those that all have."""
        self.keys.show(
            [
                *self.hints(),
                *self.way_back(),
                KeyHint(self.k("help", "?"), "Help", "app.show_help", 10),
            ]
        )

    def why_not(self, action: str) -> str | None:
        """Why the key of an action does nothing now; None where it does something, or stands in no entry."""
        return next((hint.why for hint in self.hints() if hint.action == action), None)

    def say(self, text: str) -> None:
        """A warning: how a key is told that it does nothing."""
        self.app.notify(text, title=self.NAME, severity="warning", markup=False)

    def copy(self, text: str, what: str) -> None:
        """To the clipboard of the terminal that the user sits at (OSC 52), also over SSH."""
        self.app.copy_to_clipboard(text)
        self.app.notify(what, title="Copied", markup=False, timeout=4)

    def k(self, name: str, default: str) -> str:
        """The key of the binding of that id, as the user has it."""
        return shown_key(getattr(self.app, "keymap", {}), name, default)

    @property
    def too_small(self) -> bool:
        width, height = room_of(self)
        return width < MIN_WIDTH or height < MIN_HEIGHT

    def on_screen_resume(self) -> None:
        """In front: what happened under another screen is shown now."""
        self.keys.hush(False)
        self._catch_up()
        self._arrange()
        self.show()

    def _catch_up(self) -> None:
        """Take what has come meanwhile."""

    def on_screen_suspend(self) -> None:
        self.keys.hush(True)

    async def on_event(self, event: events.Event) -> None:
        """A size that the terminal does not have is not followed: of two that were under way at once each layout sends
        its own again, and they were followed by turns for ever."""
        if not isinstance(event, events.Resize) or event.size == self.app.size:
            await super().on_event(event)

    def on_resize(self, event: events.Resize) -> None:
        self._arrange()
        self.call_after_refresh(self._repaint)

    def _repaint(self) -> None:
        """Once the widgets have their new size."""
        for painted in self.query(LineWidget):
            painted.repaint()
        self.show()

    def _hide_where_too_small(self, *selectors: str) -> None:
        """Nothing but the words that it is; ``selectors``: what else there is. What had the focus has it again after
        that: Textual gives it to what is shown first."""
        small = self.too_small
        if small and self.focused is not None:
            self._had_focus = self.focused
        for widget in (self.header, self.keys, *map(self.query_one, selectors)):
            widget.display = not small
        self.query_one("#too-small").display = small
        if not small and self._had_focus is not None:
            self.set_focus(self._had_focus, scroll_visible=False)
            self._had_focus = None

    def action_back(self) -> None:
        """The screen under it again."""
        self.app.pop_screen()

    @opens
    def action_filter(self) -> None:
        """Where there is no list of rows; said, as the key filters on the other screens."""
        self.say("There is nothing to filter on this screen.")

    @on(KeyBar.Pressed)
    async def _pressed(self, message: KeyBar.Pressed) -> None:
        if message.action != "none":
            await self.run_action(message.action)


class SideScreen(BarScreen):
    """Follows the node: the app calls :meth:`update_snapshot` while it is seen, in front or under a window."""

    header: Header

    def __init__(self, runner: Runner, snapshot: Snapshot | None = None, pipe_dir: Path | None = None) -> None:
        super().__init__()
        self.runner = runner
        self.snapshot = snapshot
        self.pipe_dir = pipe_dir
        self.header = Header(read_only=runner.read_only)

    def refusal(self, action_id: str, clients: tuple[ProcessKey, ...] = ()) -> str | None:
        """Why an operation cannot be used now."""
        if self.daemon is None or self.snapshot is None:
            return no_daemon(self.snapshot)
        return self.runner.unavailable(self._operation(action_id), self.snapshot, self.daemon.pipe_dir, clients)

    def act(self, action_id: str, clients: tuple[ProcessKey, ...] = (), server: Server | None = None) -> None:
        """Open the dialog of an operation, for exactly these processes."""
        action, daemon, snapshot = self._operation(action_id), self.daemon, self.snapshot
        if daemon is None or snapshot is None:
            return
        if (refusal := self.refusal(action_id, clients)) is not None:
            self.app.notify(refusal, title=action.title, severity="warning", markup=False)
            return
        self.host.open_action(action, daemon.pipe_dir, snapshot, clients, server, None)

    def _operation(self, action_id: str) -> Operation:
        return next(action for action in self.runner.actions if action.id == action_id)

    @property
    def host(self) -> Host:
        return cast("Host", self.app)

    @property
    def daemon(self) -> Daemon | None:
        """The daemon whose tab was open in the overview."""
        if self.snapshot is None or not self.snapshot.daemons:
            return None
        found = self.snapshot.daemon(self.pipe_dir) if self.pipe_dir else None
        return found or self.snapshot.daemons[0]

    @property
    def face(self) -> tuple[object, ...]:
        """What gives its keys another meaning: whose daemon it is about."""
        return (self.daemon.pipe_dir if self.daemon else None,)

    @property
    def why_past(self) -> str | None:
        """Why nothing of now can be looked at, where the past is shown."""
        past = self.snapshot.past if self.snapshot is not None else None
        return past.why if past is not None else None

    @property
    def devices(self) -> Sequence[Device]:
        """The daemon's; without a daemon the node's."""
        snapshot, daemon = self.snapshot, self.daemon
        if snapshot is None:
            return ()
        return devices_of(daemon, snapshot) if daemon else snapshot.devices

    def update_snapshot(self, snapshot: Snapshot) -> None:
        """Take the newest snapshot; a cursor stays with what it is on."""
        self.snapshot = snapshot
        self.show()

    def _catch_up(self) -> None:
        self.host.catch_up()

    def action_read_again(self) -> None:
        self.host.refresh_now(self.daemon.pipe_dir if self.daemon is not None else None)


class RowsScreen(BarScreen):
    """A list, and a text that scrolls about the row under its cursor: beside it where there is room, or below it."""

    BELOW: ClassVar[bool] = False
    """Whether the text is always below: the list's lines are long."""
    AUTO_FOCUS = "#list"
    BACK = "list.back"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab,shift+tab", "other", "List or text", show=False, id="list.other"),
        Binding("n", "seek(1)", "Next match", show=False, id="events.next"),
        Binding("N", "seek(-1)", "Previous match", show=False, id="events.previous"),
        Binding("escape", "back", "Back", show=False, id="list.back"),
    ]
    DEFAULT_CSS = """
    RowsScreen {
        & #body { height: 1fr; layout: horizontal; }
        & #list { width: 1fr; height: 100%; }
        & #text { width: 1fr; height: 100%; }
        &.-narrow #body, &.-below #body { layout: vertical; }
        &.-narrow #list { width: 100%; height: 2fr; }
        &.-narrow #text { width: 100%; height: 3fr; }
        &.-below #list { width: 100%; height: 1fr; }
        &.-below #text { width: 100%; height: 9; max-height: 50%; }
        & #filter { height: 1; border: none; padding: 0 1; background: $surface; display: none; }
    }
    """

    def __init__(self, *followed: Any) -> None:
        """``followed``: for that of its bases which follows something."""
        super().__init__(*followed)
        self.panel: Panel[Any] = self.make_list()
        self.text = TextBox(id="text")
        self.filter = TypedLine(placeholder="filter: words of a row  !word    Enter keep  Esc all", id="filter")

    # What a subclass gives.

    def make_list(self) -> Panel[Any]:
        """The panel with the id ``list``."""
        raise NotImplementedError

    def told(self) -> tuple[str, list[Para]] | None:
        """Title and text of what is beside the list; None where nothing is known yet."""
        raise NotImplementedError

    def hints(self) -> list[KeyHint]:
        other = "Text" if self.focused is self.panel else "List"
        own = self.own_hints()
        if self._none_passes:  # what they say of an empty list is not so
            own = [hint._replace(why=hint.why and NOT_FOUND) for hint in own]
        slash = KeyHint(self.k("filter", "/"), "Filter", "filter", 3)
        return [*own, slash, KeyHint(self.k("list.other", "Tab"), other, "other", 2)]

    def own_hints(self) -> list[KeyHint]:
        """This screen's keys beside that one."""
        raise NotImplementedError

    # What it shows.

    def parts(self) -> ComposeResult:
        with Container(id="body"):
            yield self.panel
            yield self.text
        yield self.filter

    def on_mount(self) -> None:
        self._arrange()
        self.show()

    def show_text(self) -> None:
        """The text and the keys follow the cursor."""
        none = ("Filter", [Para(f"{NOT_FOUND[0].upper()}{NOT_FOUND[1:]}.")])
        if (told := none if self._none_passes else self.told()) is not None:
            title, paragraphs = told
            self.text.show(((title, "title"),), paragraphs)
            self.show_keys()

    def _arrange(self) -> None:
        self.set_class(self.BELOW, "-below")
        self.set_class(not self.BELOW and room_of(self).width < WIDE, "-narrow")
        self._hide_where_too_small("#body")

    # The filter.

    @property
    def back_leads(self) -> str:
        return "All rows" if self.filter.value else "Back"

    @property
    def _none_passes(self) -> bool:
        return self.panel.hides_all

    def show_keys(self) -> None:
        """Those of the line that is typed into, where one is."""
        if self.filter.has_focus:
            self.keys.show(typing_hints(*FILTERING, "app.show_help"))
        else:
            super().show_keys()

    @opens
    def action_filter(self) -> None:
        """Only the rows that have what is typed."""
        self.filter.display = True
        self.filter.focus()

    @on(events.DescendantFocus)
    def _focus_moved(self) -> None:
        self.show_keys()

    @on(Input.Changed, "#filter")
    def _filter_changed(self, message: Input.Changed) -> None:
        self._set_filter(message.value)

    @on(Input.Submitted)
    def _submitted(self, message: Input.Submitted) -> None:
        if message.input is self.filter and (why := self.filter_trouble):
            self.app.notify(why, title="Filter", severity="warning", markup=False)
            return
        message.input.display = False
        self.set_focus(self.panel, scroll_visible=False)

    @property
    def filter_trouble(self) -> str:
        """Why the filter is not understood; it stays open then."""
        return ""

    def action_seek(self, step: int) -> None:
        """Through the rows that the filter leaves, and round the end."""
        if not self.filter.value:
            self.say(f"no text to look for: {self.k('filter', '/')} filters")
        elif not self.panel.rows:
            self.say(NOT_FOUND)
        else:
            self.panel.move_to((self.panel.cursor_index + step) % len(self.panel.rows))
            self.show_text()

    def _set_filter(self, text: str) -> None:
        self.panel.want(text.strip())
        self.show_text()

    async def action_end_typing(self) -> None:
        """As Enter in the line that is typed into."""
        if isinstance(self.focused, Input):
            await self.focused.action_submit()

    def action_back(self) -> None:
        """All rows again where some are looked for; otherwise back."""
        if not self.filter.value and not self.filter.has_focus:
            super().action_back()
            return
        self.filter.value = ""
        self.filter.display = False
        self.set_focus(self.panel, scroll_visible=False)

    # Keys.

    def action_other(self) -> None:
        self.set_focus(self.text if self.focused is self.panel else self.panel, scroll_visible=False)
        self.show_text()

    def open_row(self, message: Panel.Opened) -> None:
        """Enter: to the text about the row, where nothing more is known of it."""
        self.action_other()

    @on(Panel.Opened)
    def _opened(self, message: Panel.Opened) -> None:
        message.stop()
        self.open_row(message)

    @on(Panel.Moved)
    def _moved(self) -> None:
        self.show_text()


class ListScreen(RowsScreen, SideScreen):
    """A list of what is on the node."""

    # What a subclass gives.

    def fill(self, snapshot: Snapshot) -> None:
        """Bring the list up to the snapshot."""
        raise NotImplementedError

    def describe(self, snapshot: Snapshot) -> tuple[str, list[Para]]:
        """Title and text of what is beside the list."""
        raise NotImplementedError

    # What it shows.

    def show(self) -> None:
        snapshot = self.snapshot
        if not self.is_mounted or snapshot is None:
            return
        with self.app.batch_update():
            self.fill(snapshot)
            self.header.show(snapshot, self.daemon, None)
            self.show_text()

    def told(self) -> tuple[str, list[Para]] | None:
        return self.describe(self.snapshot) if self.snapshot is not None else None
