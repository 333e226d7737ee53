"""What the screens of trouble share: a list, a text beside it that scrolls, the keys, and the newest snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from mpstui.core.cells import no_daemon
from mpstui.core.model import ProcessKey, Snapshot
from mpstui.core.text import UNKNOWN, printable
from mpstui.ui.bars import KeyHint, TooSmall
from mpstui.ui.box import wrapped
from mpstui.ui.contract import Runner
from mpstui.ui.layout import WIDE
from mpstui.ui.painted import Line, Painted, fit_line, upper_border
from mpstui.ui.panel import Panel
from mpstui.ui.side import SideScreen

_LONG = 600
"""Characters of a paragraph that are shown at most."""


@dataclass(frozen=True, slots=True)
class Para:
    """One paragraph; empty, it is an empty line."""

    text: str = ""
    style: str = "text"
    mark: str = ""
    """Stands before the first line; the others are indented under it."""


class TextBox(Painted, can_focus=True):
    """Paragraphs in a box, folded to its width; scrolls where they are longer than it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "scroll(1)", "Down", show=False, id="text.down"),
        Binding("k,up", "scroll(-1)", "Up", show=False, id="text.up"),
        Binding("pagedown,ctrl+d", "scroll(10)", "Page down", show=False, id="text.page_down"),
        Binding("pageup,ctrl+u", "scroll(-10)", "Page up", show=False, id="text.page_up"),
        Binding("g,home", "scroll(-10000)", "Begin", show=False, id="text.begin"),
        Binding("G,end", "scroll(10000)", "End", show=False, id="text.end"),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._title: Line = ()
        self._paragraphs: tuple[Para, ...] = ()
        self._top = 0

    def show(self, title: Line, paragraphs: Sequence[Para]) -> None:
        """Replace title and paragraphs; another title goes back to the beginning."""
        if title != self._title:
            self._top = 0
        self._title, self._paragraphs = title, tuple(paragraphs)
        self.repaint()

    def lines(self, width: int, height: int) -> list[Line]:
        inner = width - 2
        if inner < 8 or height < 3:
            return []
        edge = "border-focus" if self.has_focus else "border"
        body = self._folded(inner)
        room = height - 2
        self._top = max(0, min(self._top, len(body) - room))
        track = ["│"] * room
        if len(body) > room:
            size = max(1, room * room // len(body))
            start = round((room - size) * self._top / (len(body) - room))
            track[start : start + size] = ["┃"] * size
        shown = body[self._top : self._top + room] + [()] * (room - len(body))
        return [
            upper_border(self._title, (("⇥ scroll", "dim"),) if len(body) > room else (), width, edge),
            *((("│", edge), *fit_line(line, inner), (track[y], edge)) for y, line in enumerate(shown)),
            (("╰" + "─" * inner + "╯", edge),),
        ]

    def _folded(self, inner: int) -> list[Line]:
        body: list[Line] = []
        for paragraph in self._paragraphs:
            if not paragraph.text:
                body.append(())
                continue
            mark = f"{paragraph.mark} " if paragraph.mark else ""
            body += wrapped(printable(paragraph.text, _LONG), inner, paragraph.style, mark)
        return body

    def action_scroll(self, step: int) -> None:
        self._top = max(0, self._top + step)
        self.repaint()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_scroll(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_scroll(-3)

    def on_focus(self) -> None:
        self.repaint()

    def on_blur(self) -> None:
        self.repaint()


class TroubleScreen(SideScreen):
    """A list and a text, side by side where there is room. Escape goes back."""

    AUTO_FOCUS = "#list"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab,shift+tab", "other", "List or text", show=False, id="trouble.other"),
        Binding("escape", "back", "Back", show=False, id="trouble.back"),
    ]
    DEFAULT_CSS = """
    TroubleScreen {
        layout: vertical; overflow: hidden; background: $background;
        & #body { height: 1fr; layout: horizontal; }
        & #list { width: 1fr; height: 100%; }
        & #text { width: 1fr; height: 100%; }
        &.-narrow #body { layout: vertical; }
        &.-narrow #list { width: 100%; height: 2fr; }
        &.-narrow #text { width: 100%; height: 3fr; }
        & #too-small { display: none; height: 1fr; }
    }
    """

    def __init__(self, runner: Runner, snapshot: Snapshot | None, pipe_dir: Path | None) -> None:
        super().__init__(runner, snapshot, pipe_dir)
        self.list: Panel[Any] = self.make_list()
        self.text = TextBox(id="text")

    # What a subclass gives.

    def make_list(self) -> Panel[Any]:
        """The panel with the id ``list``."""
        raise NotImplementedError

    def fill(self, snapshot: Snapshot) -> None:
        """Bring the list up to the snapshot."""
        raise NotImplementedError

    def describe(self, snapshot: Snapshot) -> tuple[str, list[Para]]:
        """Title and text of what is beside the list."""
        raise NotImplementedError

    def hints(self) -> list[KeyHint]:
        """This screen's own keys."""
        raise NotImplementedError

    # What it shows.

    def compose(self) -> ComposeResult:
        yield self.header
        with Container(id="body"):
            yield self.list
            yield self.text
        yield TooSmall(id="too-small")
        yield self.keys

    def on_mount(self) -> None:
        self._arrange()
        self.show()

    def show(self) -> None:
        """Bring every widget up to date; each paints only what differs."""
        snapshot = self.snapshot
        if not self.is_mounted or snapshot is None:
            return
        with self.app.batch_update():
            self.header.show(snapshot, self.daemon, None)
            self.fill(snapshot)
            self.show_text()

    def show_text(self) -> None:
        """The text and the keys follow the cursor."""
        if self.snapshot is None:
            return
        title, paragraphs = self.describe(self.snapshot)
        self.text.show(((title, "title"),), paragraphs)
        self.keys.show(
            [
                *self.hints(),
                KeyHint(self.k("trouble.other", "Tab"), "Text" if self.focused is self.list else "List", "other", 2),
                KeyHint(self.k("trouble.back", "Esc"), "Back", "back", 7),
                KeyHint(self.k("help", "?"), "Help", "app.show_help", 5),
                KeyHint(self.k("quit", "q"), "Quit", "app.quit_app", 4),
            ]
        )

    def _arrange(self) -> None:
        self.set_class(self.app.size.width < WIDE, "-narrow")
        self._hide_where_too_small("#body")

    # Keys.

    def action_other(self) -> None:
        self.set_focus(self.text if self.focused is self.list else self.list, scroll_visible=False)
        self.show_text()

    def copy(self, text: str, what: str) -> None:
        """To the clipboard of the terminal that the user sits at (OSC 52), also over SSH."""
        self.app.copy_to_clipboard(text)
        self.app.notify(what, title="Copied", markup=False, timeout=4)

    def act(self, action_id: str, clients: tuple[ProcessKey, ...]) -> None:
        """Open the question before an action, for exactly these processes."""
        action = next(a for a in self.runner.actions if a.id == action_id)
        daemon, snapshot = self.daemon, self.snapshot
        if daemon is None or snapshot is None:
            return
        refusal = self.runner.unavailable(action, snapshot, daemon.pipe_dir, clients)
        if refusal is not None:
            self.app.notify(refusal, title=action.title, severity="warning", markup=False)
            return
        self.host.open_action(action, daemon.pipe_dir, snapshot, clients, None, None)

    def refusal(self, action_id: str, clients: tuple[ProcessKey, ...]) -> str | None:
        """Why the action cannot be used now."""
        action = next(a for a in self.runner.actions if a.id == action_id)
        if self.daemon is None or self.snapshot is None:
            return no_daemon(self.snapshot)
        return self.runner.unavailable(action, self.snapshot, self.daemon.pipe_dir, clients)

    @on(Panel.Moved)
    def _moved(self) -> None:
        self.show_text()


def owner(user: str | None, uid: int | None) -> str:
    """A user's name, otherwise the number."""
    return user or (UNKNOWN if uid is None else f"UID {uid}")
