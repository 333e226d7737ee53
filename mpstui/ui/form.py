"""Text that is typed: one line of it, and a form whose fields are chosen with the arrow keys, or typed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from mpstui.core.late import dataclass
from mpstui.ui.lines import Line, fit, fit_line
from mpstui.ui.panel import Panel

LABEL: Final = 11
"""Cells of a field's name."""
_BEFORE: Final = LABEL + 2
"""Cells of a row before the value."""


class TypedLine(Input):
    """A line of text, with the cursor, the selection and the paste of Textual's.

    ``takes``: the only characters that go into it, small letters as capitals where it knows those alone; another key
    goes on to whoever has it, and a paste with another character is refused as a whole. ``about``: what may be typed,
    and what it does, for the help.
    """

    def __init__(
        self, value: str = "", *, takes: str = "", about: Sequence[tuple[str, str]] = (), **options: Any
    ) -> None:
        super().__init__(value, **options)
        self.about = about
        self.cursor_blink = False
        self.takes = takes

    def accepted(self, text: str) -> str | None:
        """The text as it would go in; None where something of it cannot."""
        if text == "?":
            return None  # help, as everywhere; a paste may have it
        if not self.takes:
            return text
        out = "".join(char if char in self.takes else char.upper() for char in text)
        return out if set(out) <= set(self.takes) else None

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """Whether no binding is to get the key."""
        return super().check_consume_key(key, character) and self.accepted(character or "") is not None

    def on_key(self, event: events.Key) -> None:
        if not event.is_printable or event.character is None:
            return
        char = self.accepted(event.character)
        if char is None:
            event.character = None  # not for Textual's own way then, and still a key
        elif char != event.character:
            event.stop()
            event.prevent_default()
            self.insert_here(char)

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        if text := self.pasted(event.text):
            self.insert_here(text)

    def pasted(self, text: str) -> str:
        """The first line of a paste as it goes in; empty, and said, where it does not."""
        line = next(iter(text.strip().splitlines()), "")
        accepted = self.accepted(line) if line.isprintable() else None
        if accepted is None:
            why = f"{only(self.takes)} here" if self.takes else "it cannot be printed"
            self.app.notify(f"{why}; nothing was pasted", title="Paste", severity="warning", markup=False)
        return accepted or ""

    def insert_here(self, text: str) -> None:
        """In place of what is selected, otherwise at the cursor."""
        self.replace(text, *self.selection)


def only(takes: str) -> str:
    """What can be typed of these characters alone: ``only 0 to 9 . , can be typed``."""
    digits = "0123456789"
    others = [char for char in takes if char not in digits and not char.isspace()]
    return f"only {' '.join([*(['0 to 9'] if set(digits) <= set(takes) else []), *others])} can be typed"


@dataclass(frozen=True, slots=True)
class FormField:
    """One line of the form. ``typed``: what can be typed into it at once; ``free``: anything, after Enter."""

    id: str
    label: str
    about: str
    typed: str = ""
    free: bool = False


def value_bindings(screen: str, step: int) -> list[BindingType]:
    """The keys of a form that give the field under the cursor another value; ``step``: values that Shift goes."""
    many = {4: "Four", 10: "Ten"}[step]
    return [
        Binding("right,plus,equals_sign", "change(1)", "Next value", show=False, id=f"{screen}.next"),
        Binding("left,minus", "change(-1)", "Previous value", show=False, id=f"{screen}.previous"),
        Binding("shift+right", f"change({step})", f"{many} values on", show=False, id=f"{screen}.next{step}"),
        Binding("shift+left", f"change({-step})", f"{many} values back", show=False, id=f"{screen}.previous{step}"),
        Binding("backspace", "erase", "Erase", show=False, id=f"{screen}.erase"),
    ]


def share_bindings(screen: str, step: int, by: str = "") -> list[BindingType]:
    """The keys of bars that grow and shrink the share under the cursor; ``step``: that of Shift."""
    grow = "screen.nudge"
    return [
        Binding("right,plus,equals_sign", f"{grow}(1)", f"Grow{by or ' the share'}", show=False, id=f"{screen}.grow"),
        Binding("left,minus", f"{grow}(-1)", f"Shrink{by or ' the share'}", show=False, id=f"{screen}.shrink"),
        Binding("shift+right", f"{grow}({step})", "Grow in a bigger step", show=False, id=f"{screen}.grow_more"),
        Binding("shift+left", f"{grow}({-step})", "Shrink in a bigger step", show=False, id=f"{screen}.shrink_more"),
    ]


class Form(Panel[FormField]):
    """A subclass holds the values, and is given what is typed, at each character."""

    KIND: ClassVar[str] = "field"
    FIELDS: ClassVar[tuple[FormField, ...]] = ()
    MOST: ClassVar[int] = 200
    """Characters of one value."""
    DEFAULT_CSS = """
    Form > TypedLine {
        position: absolute; display: none; height: 1; border: none; padding: 0;
        background: $mps-cursor; text-style: bold;
        &:focus { border: none; background: $mps-cursor; background-tint: $foreground 0%; }
        &:ansi { border: none; background: ansi_default; }
        &:ansi:focus { border: none; background: ansi_default; }
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.entry = TypedLine(max_length=self.MOST, select_on_focus=False)
        self.rows = self.FIELDS
        self._cursor = self.FIELDS[0].id

    def compose(self) -> ComposeResult:
        yield self.entry

    # What a subclass gives.

    def typed(self, text: str) -> None:
        """Take what has been typed so far."""
        raise NotImplementedError

    def value(self, row: FormField) -> tuple[str, str]:
        """The value as it is shown, and its style."""
        raise NotImplementedError

    def arrows(self, row: FormField) -> bool:
        """Whether the row says that its value can be chosen."""
        raise NotImplementedError

    def takes_text(self, row: FormField) -> bool:
        """Whether something can be typed or pasted into the field now."""
        return bool(row.typed)

    # Typing.

    @property
    def field(self) -> FormField:
        return self.cursor_row or self.FIELDS[0]

    @property
    def editing(self) -> bool:
        """Whether keys go into the field."""
        return bool(self.entry.display)

    def edit(self, text: str, *, told: bool = True) -> None:
        """Begin to type into the field under the cursor. ``told``: ``text`` is a new value already."""
        self._begin()
        with self.entry.prevent(Input.Changed):
            self.entry.value = text
        self.entry.cursor_position = len(text)
        self.entry.display = True
        self._place_entry()
        self.entry.focus(scroll_visible=False)
        if told:
            self.typed(text)
        self.repaint()

    def _begin(self) -> None:
        self.entry.takes = "" if self.field.free else self.field.typed

    def end(self) -> bool:
        """End the typing; whether there was any."""
        if not self.editing:
            return False
        if self.entry.has_focus or self.screen.focused is self.entry:
            self.screen.set_focus(self, scroll_visible=False)
        self.entry.display = False
        self.repaint()
        return True

    @property
    def room(self) -> int:
        """Cells of a value that is shown between the arrows."""
        return self.inner - _BEFORE - 2

    def _place_entry(self) -> None:
        self.entry.styles.offset = (1 + _BEFORE, 1 + self.cursor_index - self.top)
        self.entry.styles.width = max(1, self.size.width - 2 - _BEFORE)

    def on_key(self, event: events.Key) -> None:
        """A digit begins a value. Letters stay keys until one has begun."""
        char, field = event.character or "", self.field
        begins = self.takes_text(field) and char in field.typed and not char.isalpha() and not char.isspace()
        if char and begins and not self.editing:
            event.stop()
            event.prevent_default()
            self.edit(char)
        elif len(event.key) == 1 and event.key.isalpha() and not (char and self.editing):
            self._say_unread(event.key)

    def _say_unread(self, key: str) -> None:
        """A letter that is no part of the value, and no key: a word that is typed here is not taken in silence."""
        if key in self.screen.active_bindings:
            return
        how = f"{only(self.field.typed)} here" if self.takes_text(self.field) else "← → change it"
        text = f"“{key}” is no part of {self.field.label}: {how}"
        self.app.notify(text, title="Form", severity="warning", markup=False, timeout=4)

    def on_paste(self, event: events.Paste) -> None:
        if self.takes_text(self.field) and not self.editing:
            self._begin()
            if text := self.entry.pasted(event.text):
                self.edit(text)

    def action_erase(self) -> None:
        """Of a value that was not typed, all of it."""
        if self.takes_text(self.field):
            self.edit("")

    @on(Input.Changed)
    def _entry_changed(self, message: Input.Changed) -> None:
        message.stop()
        if self.editing:
            self.typed(message.value)

    @on(Input.Submitted)
    def _entry_submitted(self, message: Input.Submitted) -> None:
        message.stop()
        self.action_open()

    @on(Input.Blurred)
    def _entry_left(self) -> None:
        if self.app.app_focus and self.screen.focused is not self.entry:
            self.end()

    def move_to(self, index: int) -> None:
        self.end()
        super().move_to(index)

    def on_resize(self) -> None:
        self.call_after_refresh(self._place_entry)  # which rows are shown follows from the new size

    # Painting.

    def key(self, row: FormField) -> str:
        return row.id

    def row_lines(self, row: FormField, width: int) -> list[Line]:
        here = row.id == self.field.id and self.has_focus_within
        label = (fit(f" {row.label}", LABEL), "label")
        if here and self.editing:
            return [fit_line((label,), width)]
        left, right = ("‹ ", " ›") if here and self.arrows(row) else ("  ", "  ")
        return [fit_line((label, (left, "key"), self.value(row), (right, "key")), width)]


def after(choices: Sequence[Any], value: Any, step: int) -> Any:
    """The next or previous one, round the end; from a value that is none of them, the first or last."""
    if not choices:
        return value
    at = choices.index(value) if value in choices else (-1 if step > 0 else 0)
    return choices[(at + (1 if step > 0 else -1)) % len(choices)]
