"""What the screens of trouble share: a list, a text beside it that scrolls, the keys, and the newest snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from mpstui.core.model import Snapshot
from mpstui.core.text import UNKNOWN
from mpstui.ui.bars import KeyHint
from mpstui.ui.box import Para, TextBox
from mpstui.ui.contract import Runner
from mpstui.ui.layout import WIDE
from mpstui.ui.panel import Panel
from mpstui.ui.side import SideScreen


class TroubleScreen(SideScreen):
    """A list and a text, side by side where there is room. Escape goes back."""

    AUTO_FOCUS = "#list"
    BACK = "trouble.back"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab,shift+tab", "other", "List or text", show=False, id="trouble.other"),
        Binding("escape", "back", "Back", show=False, id="trouble.back"),
    ]
    DEFAULT_CSS = """
    TroubleScreen {
        & #body { height: 1fr; layout: horizontal; }
        & #list { width: 1fr; height: 100%; }
        & #text { width: 1fr; height: 100%; }
        &.-narrow #body { layout: vertical; }
        &.-narrow #list { width: 100%; height: 2fr; }
        &.-narrow #text { width: 100%; height: 3fr; }
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
        other = "Text" if self.focused is self.list else "List"
        return [*self.own_hints(), KeyHint(self.k("trouble.other", "Tab"), other, "other", 2)]

    def own_hints(self) -> list[KeyHint]:
        """This screen's keys beside that one."""
        raise NotImplementedError

    # What it shows.

    def parts(self) -> ComposeResult:
        with Container(id="body"):
            yield self.list
            yield self.text

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
        self.show_keys()

    def _arrange(self) -> None:
        self.set_class(self.app.size.width < WIDE, "-narrow")
        self._hide_where_too_small("#body")

    # Keys.

    def action_other(self) -> None:
        self.set_focus(self.text if self.focused is self.list else self.list, scroll_visible=False)
        self.show_text()

    @on(Panel.Moved)
    def _moved(self) -> None:
        self.show_text()


def owner(user: str | None, uid: int | None) -> str:
    """A user's name, otherwise the number."""
    return user or (UNKNOWN if uid is None else f"UID {uid}")
