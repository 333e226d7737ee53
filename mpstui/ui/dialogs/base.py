"""What all dialogs share: the frame and live snapshots."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

from rich.cells import cell_len
from rich.console import RenderableType
from rich.segment import Segment
from rich.style import Style
from textual import events, on
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.css.query import NoMatches
from textual.renderables.background_screen import BackgroundScreen
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Button, Input

from mpstui.core.model import Snapshot
from mpstui.ui.bars import KeyBar, KeyHint
from mpstui.ui.dialogs.widgets import Chooser, Listing, Push, Scroll, Toggles, plain
from mpstui.ui.keys import key_name, shown_key
from mpstui.ui.layout import MIN_HEIGHT, MIN_WIDTH, room_of
from mpstui.ui.lines import StyledScreen
from mpstui.ui.private import toast_racks
from mpstui.ui.typeahead import OPENING

KEYS: Final = 1
"""Rows of the keys, under the frame."""
_KEEPS: Final = {"Esc": 8, "Enter": 7, "Tab": 7, "↑↓": 4}
"""The higher, the longer a key stays where there is no room for all."""
_ARROWS: Final = frozenset({"choose", "scroll lists"})
_SCROLLS: Final = KeyHint("↑↓", "scroll lists", "none", 9, brief="scroll")
"""Nobody reads on who is not told that there is more."""
_PRESSES: Final = frozenset({"next", "marked button", "presses the marked button"})
"""What a dialog's hint says of the arrows and of Enter, where that follows from what has the focus."""
_LEAST: Final = f"{MIN_WIDTH}×{MIN_HEIGHT}"
"""Columns and lines of the smallest terminal in which a question can be read."""
_AGAIN: Final = "Now it can be read: press again."
"""In one line also of the smallest terminal, which lies over nothing that is asked."""
_BUTTON: Final = 14
"""Cells of a button at least, with its margin."""
_AROUND: Final = 10
"""Cells of a button beside its label: arrows, padding and margin."""
_BESIDE: Final = 6
"""Cells of a box beside its foot."""
_DOES: Final = {"Esc": "close", "Tab": "app.focus_next", "y": "copy", "Enter": "press"}
"""What a click on a key's entry does."""


def _hint(key: str, text: str) -> KeyHint:
    return KeyHint(key, text, _DOES.get(key, "none"), _KEEPS.get(key, 6))


class _Shade(BackgroundScreen):
    """The screen below, tinted as Textual does it, but once for each of its styles and not for each of its cells' runs:
    a dialog that opens paints it four times. The line at the top is not tinted: it is to be read."""

    @classmethod
    def process_segments(cls, segments: Iterable[Segment], color: Color) -> Iterable[Segment]:
        tinted: dict[Style | None, Style | None] = {}
        tint = color.with_alpha(0)
        for text, style, control in segments:
            if not control and style not in tinted:
                (one,) = super().process_segments([Segment(text, style)], tint)
                tinted[style] = one.style
            yield Segment(text, style if control else tinted[style], control)
            if text == "\n" and tint is not color:
                tint = color
                tinted.clear()


USUAL_WIDTH: Final = 100
"""Cells of a dialog where the screen has them: longer lines read badly. One whose lines are cut gets more."""


class Dialog(StyledScreen, ModalScreen[None]):
    """A framed dialog over the screen: a body that scrolls and a foot that stays. Escape closes it, and so does q where
    nothing is typed. The keys at the foot of the terminal are its own while it is in front; the line at the top stays
    what it is: which node is asked about, and whether it is a simulated one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "Close", id="back"),
        Binding("q", "close", "Close", show=False, id="quit"),
        Binding("question_mark,f1", "app.show_help", "Help", show=False, id="help"),
    ]
    AUTO_FOCUS: ClassVar[str] = "#body"
    DEFAULT_CSS = """
    Dialog {
        align: center middle; background: $background 60%;
        &:ansi { background: transparent; }
        & > KeyBar { dock: bottom; }
        & > #box {
            width: 100%; max-width: 100; height: auto; max-height: 100%; margin-top: 1;
            background: $surface; border: round $primary; padding: 0 2 0 2;
            border-title-color: $text-primary; border-title-style: bold;
        }
        & > #box.-harm { border: round $error; border-title-color: $text-error; }
        #body { height: auto; scrollbar-size-vertical: 1; overflow-x: hidden; margin-top: 1; padding-right: 1; }
        #foot { height: 1; margin-top: 1; align-horizontal: right; }
        .-tight > #body, .-tight > #foot { margin-top: 0; }
        .-stacked > #foot { layout: vertical; height: auto; }
        .-stacked > #foot > Push { min-width: 0; max-width: 100%; padding: 0; margin: 0; }
        &:ansi { & > #box { background: ansi_default; } }
    }
    """
    HELPED: ClassVar[bool] = True
    """Whether help can be called over it."""
    OFFERS_ACTIONS: ClassVar[bool] = False
    """Help over it names its own keys: the overview's actions do nothing here."""
    TALL = 30
    """Rows from which there is room for explanations."""
    CHROME = 3
    """Rows that are not its body: the line at the top and two of the border."""
    TIGHT = 16
    """Rows below which there is no air above the body and the foot."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot
        self._hint = ""
        self.keys = KeyBar()

    @property
    def focus_chain(self) -> list[Widget]:
        """Fields and buttons first: a list that is only looked at is in nobody's way between them."""
        return sorted(super().focus_chain, key=lambda each: isinstance(each, Listing))

    def render(self) -> RenderableType:
        made = super().render()
        return _Shade(made.screen, made.color) if type(made) is BackgroundScreen else made

    def update_snapshot(self, snapshot: Snapshot) -> None:
        """Take the newest snapshot; what was typed and chosen stays."""
        self.snapshot = snapshot
        if self.is_mounted:
            # While the program ends, the widgets go before the dialog does.
            with contextlib.suppress(NoMatches):
                self.show()

    def take_newest(self) -> None:
        """The app's newest snapshot, also where the screen is paused: nobody acts on an old picture."""
        newest = getattr(self.app, "snapshot", None)
        if isinstance(newest, Snapshot) and newest.time >= self.snapshot.time:
            self.snapshot = newest

    def show(self) -> None:
        """Bring the widgets up to the snapshot."""
        raise NotImplementedError

    def frame(self, title: str, hint: str, *body: Any, foot: Sequence[Button] = (), harm: bool = False) -> Vertical:
        """The box with its body and its foot."""
        parts: list[Any] = [Scroll(*body, id="body", can_focus=not foot)]
        if foot:
            parts.append(Horizontal(*foot, id="foot"))
        box = Vertical(*parts, id="box", classes="-harm" if harm else "")
        box.border_title = Content(f" {plain(title)} ")
        self.say_hint(hint)
        return box

    def say_title(self, title: str) -> None:
        """Replace the title in the upper border."""
        self.query_one("#box").border_title = Content(f" {plain(title)} ")

    def say_hint(self, hint: str) -> None:
        """What its keys do: ``Enter next · Tab move · Esc close``."""
        self._hint = hint
        self.tell_keys()

    def told_hint(self) -> str:
        """What was last said of the keys."""
        return self._hint

    def tell_keys(self) -> None:
        """The keys at the foot, with what Enter and Tab do where the focus is now."""
        parts = [(key, text) for key, _, text in (part.partition(" ") for part in self.told_hint().split(" · "))]
        if self.is_mounted:
            if isinstance(self.focused, Chooser) and any(key == "Tab" for key, _ in parts):
                parts = parts if any(key == "↑↓" for key, _ in parts) else [("↑↓", "choose"), *parts]
            parts = [(key, here) for key, text in parts if (here := self._here(key, text))]
        hints = [_SCROLLS if text == _SCROLLS.text else _hint(key, text) for key, text in parts]
        self.keys.show([*hints, *([KeyHint("?", "Help", "app.show_help", 8)] if self.HELPED else [])])

    def _here(self, key: str, text: str) -> str:
        """What a key does where the focus is; empty for nothing. The arrows choose on a choice alone, and scroll the
        lists from anywhere else: a choice may be harmful, and changes only where one stands."""
        at = self.focused
        if key == "↑↓" and text in _ARROWS:
            if isinstance(at, Chooser):
                return "move" if isinstance(at, Toggles) else "choose"
            long = any(listing.long and listing.display for listing in self.query(Listing))
            cut = any(body.max_scroll_y > 0 for body in self.query("#body").results(VerticalScroll))
            return "scroll lists" if long or cut else ""
        if (key, text) == ("y", "copy"):
            return "" if isinstance(at, Input) else text
        if (key, text) == ("Space", "on/off"):
            return text if isinstance(at, Toggles) else ""
        if key == "Enter" and text in _PRESSES and at is not None and not isinstance(at, Push):
            return "" if isinstance(at, Scroll) else "next"
        return self._on_button(at, key, text) if isinstance(at, Push) else text

    def _on_button(self, button: Push, key: str, text: str) -> str:
        """What a key does on a button: its own name for Enter, and for Tab the button that it leads to."""
        if key == "Enter":
            return button.text
        if (key, text, button.id) == ("Tab", "move", "cancel"):
            others = [each for each in self.focus_chain if each is not button and not isinstance(each, Listing)]
            ready = [each for each in others if isinstance(each, Push)]
            return f"to {ready[0].text}" if ready else "move" if others else ""
        return text

    @on(events.DescendantFocus)
    @on(events.DescendantBlur)
    def _focus_moved(self) -> None:
        self.tell_keys()

    @on(KeyBar.Pressed)
    async def _key_pressed(self, message: KeyBar.Pressed) -> None:
        message.stop()
        if message.action == "press":
            if isinstance(self.focused, Button):
                self.focused.press()
        elif message.action != "none":
            await self.run_action(message.action)

    def on_mount(self) -> None:
        self.mount(self.keys)
        self.take_newest()
        self._fit(room_of(self).height)
        self.show()
        if type(self).look is not Dialog.look:
            self.run_worker(self.look(), group=OPENING, exit_on_error=False)

    async def look(self) -> None:
        """What is read first; keys typed ahead wait for it."""

    @on(Input.Changed)
    @on(Chooser.Changed)
    def _value_changed(self) -> None:
        self.changed()

    def say_works_below(self, key: str) -> None:
        """A key that does something on the screen below and nothing here says so, rather than nothing."""
        stack = self.app.screen_stack
        if self.app.screen is not self or len(stack) < 2 or key in self.active_bindings:
            return
        below = stack[-2].active_bindings.get(key)
        if below is not None and below.binding.description:
            named = f"{key_name(key)} ({plain(below.binding.description)})"
            self.app.notify(f"{named} works on the screen below; Esc closes this one.", markup=False, timeout=4)

    def k(self, name: str, default: str) -> str:
        """The key of the binding of that id, as the user has it."""
        return shown_key(getattr(self.app, "keymap", {}), name, default)

    def changed(self) -> None:
        """A field has another value."""
        self.show()

    def on_resize(self) -> None:
        self._fit(room_of(self).height)

    def _fit(self, height: int) -> None:
        """Keep the foot on the screen, however small it is."""
        box, tight = self.query_one("#box"), height < self.TIGHT
        box.set_class(height < self.TALL, "-short")
        box.set_class(tight, "-tight")
        for listing in self.query(Listing):
            if listing.id != "progress":
                listing.fit(height)
        taken = self.CHROME + self._foot_rows() + KEYS + (0 if tight else 2 if self.query("#foot") else 1)
        self.query_one("#body").styles.max_height = max(1, height - taken)
        self.call_after_refresh(self.tell_keys)  # there may be something to scroll now

    def _foot_rows(self) -> int:
        """Lines that there are below the body."""
        return 0

    def action_close(self) -> None:
        self.dismiss(None)


def _can_scroll(part: VerticalScroll, step: int) -> bool:
    return part.scroll_y < part.max_scroll_y if step > 0 else part.scroll_y > 0


def _has_come(part: Listing, body: VerticalScroll, step: int) -> bool:
    """Whether the list is in view to its end, or fills all that is in view."""
    top = part.virtual_region.y - round(body.scroll_y)
    above, below = top >= 0, top + part.outer_size.height <= body.size.height
    return (below or top <= 0) if step > 0 else (above or not below)


class ConfirmDialog(Dialog):
    """One with a foot: Cancel has the focus, another button says yes, and the arrows scroll what has no room.

    Where the terminal is too small for a question to be read, there is no yes to it.
    """

    AUTO_FOCUS: ClassVar[str] = "#cancel"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_lists(-1)", "Up", show=False),
        Binding("down,j", "scroll_lists(1)", "Down", show=False),
        Binding("pageup,ctrl+u", "scroll_lists(-6)", "Page up", show=False),
        Binding("pagedown,ctrl+d", "scroll_lists(6)", "Page down", show=False),
    ]

    @property
    def readable(self) -> bool:
        width, height = room_of(self)
        return width >= MIN_WIDTH and height >= MIN_HEIGHT

    def told_hint(self) -> str:
        """Whatever is asked may have no room: where it has, nothing is told of it."""
        hint = super().told_hint()
        return hint if "↑↓" in hint else f"↑↓ scroll lists · {hint}"

    def tell_keys(self) -> None:
        super().tell_keys()
        if self.is_mounted and not self.readable:
            self.keys.show([KeyHint(_LEAST, "to answer", "none", 9), KeyHint("Esc", "close", "close", 8)])

    def action_scroll_lists(self, step: int) -> None:
        """The way that one reads, without leaving the marked button: a list where the body has come to it."""
        body = self.query_one("#body", VerticalScroll)
        lists = [listing for listing in self.query(Listing) if listing.display]
        ready = [part for part in (lists if step > 0 else lists[::-1]) if _can_scroll(part, step)]
        part: VerticalScroll | None = next((part for part in ready if _has_come(part, body, step)), None)
        if part is None and _can_scroll(body, step):
            part = body
        elif part is None and ready:
            part = ready[0]
        if part is not None:
            part.scroll_relative(y=step, animate=False)

    def _foot_rows(self) -> int:
        """Below each other where they are wider than the dialog: what a button does is never cut."""
        buttons = [button for button in self.query("#foot > Push").results(Push) if button.display]
        needed = sum(max(_BUTTON, cell_len(button.text) + _AROUND) for button in buttons)
        box = self.query_one("#box")
        most = box.styles.max_width
        room = room_of(self).width if most is None else min(room_of(self).width, round(most.value))
        stacked = needed > room - _BESIDE
        box.set_class(stacked, "-stacked")
        return len(buttons) if stacked else 1

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        if event.button.id == "cancel":
            self.action_close()
            return
        self.take_newest()
        self.show()
        if event.button.display and not event.button.disabled:
            self.answer(event.button.id or "")

    def answer(self, button: str) -> None:
        """A yes, which counts where what was asked can be seen."""
        if not self.readable:
            text = f"This terminal is too small to read the question: {_LEAST} is the least. Nothing was done."
            self.app.notify(text, severity="warning", markup=False, timeout=4)
        elif self._covered:
            self.app.clear_notifications()
            self.app.notify(_AGAIN, severity="warning", markup=False, timeout=4)
        else:
            self.pressed(button)

    @property
    def _covered(self) -> bool:
        """Whether a notification lies over what is asked."""
        body = self.query_one("#body").region
        return any(toast.region.overlaps(body) for rack in toast_racks(self) for toast in rack.query("Toast"))

    def pressed(self, button: str) -> None:
        """The user has said yes, by this button, which the newest snapshot allows."""
        raise NotImplementedError
