"""Several things of which each is on or off, by the space bar or the mouse."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widget import Widget

from mpstui.ui.dialogs.parts import Choice, plain


class Toggles(Widget, can_focus=True):
    """What is on has a cross, so that it reads without colour."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Previous", show=False),
        Binding("down,j", "move(1)", "Next", show=False),
        Binding("space", "switch", "On or off", show=False),
        Binding("enter", "app.focus_next", "On", show=False),
    ]
    DEFAULT_CSS = """
    Toggles {
        height: auto; width: 1fr; padding: 0 1; pointer: pointer;
        &:focus { background: $panel; }
        &:disabled { color: $text-muted; }
    }
    """

    @dataclass
    class Changed(Message):
        """One was switched."""

        toggles: Toggles

    def __init__(self, choices: Sequence[Choice], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.choices = tuple(choices)
        self.on: frozenset[Hashable] = frozenset()
        self._at = 0

    def watch_has_focus(self, _has_focus: bool) -> None:
        super().watch_has_focus(_has_focus)
        self.refresh()

    def action_move(self, step: int) -> None:
        self._at = max(0, min(self._at + step, len(self.choices) - 1))
        self.refresh()

    def action_switch(self) -> None:
        if self.choices:
            self.on = self.on ^ {self.choices[self._at].value}
            self.refresh()
            self.post_message(self.Changed(self))

    def on_click(self, event: events.Click) -> None:
        row = event.get_content_offset_capture(self).y
        if 0 <= row < len(self.choices) and not self.disabled:
            self._at = row
            self.action_switch()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(1, len(self.choices))

    def render(self) -> Content:
        if not self.choices:
            return Content.styled("— none known", "$text-muted")
        lines = []
        for index, choice in enumerate(self.choices):
            chosen = choice.value in self.on
            style = "$text-primary bold" if chosen else ""
            if index == self._at and self.has_focus:
                style += " reverse"
            label = Content.styled(f"{'[x]' if chosen else '[ ]'} {plain(choice.label)}", style)
            lines.append(Content.assemble(label, (f"  {plain(choice.detail)}", "$text-muted")))
        return Content("\n").join(line.truncate(self.content_size.width, ellipsis=True) for line in lines)
