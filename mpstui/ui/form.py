"""A form as a panel: fields chosen with the arrow keys, or typed where they are amounts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from mpstui.ui.panel import Panel

LABEL: Final = 11
"""Cells of a field's name."""


@dataclass(frozen=True, slots=True)
class Field:
    """One line of the form. ``typed``: what can be typed into it at once; ``free``: anything, after Enter."""

    id: str
    label: str
    about: str
    typed: str = ""
    free: bool = False


class Form(Panel[Field]):
    """Holds what has been typed so far; a subclass holds the values."""

    KIND: ClassVar[str] = "field"
    FIELDS: ClassVar[tuple[Field, ...]] = ()

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._typing: str | None = None
        """What has been typed into the field under the cursor so far."""
        self.rows = self.FIELDS
        self._cursor = self.FIELDS[0].id

    @property
    def field(self) -> Field:
        return self.cursor_row or self.FIELDS[0]

    def action_type(self, char: str) -> None:
        """One more character of the value."""
        self._type((self._typing or "") + char)

    def action_erase(self) -> None:
        """The last character; of a value that was not typed, all of it."""
        if self.takes_text:
            self._type(self._typing[:-1] if self._typing else "")

    @property
    def takes_text(self) -> bool:
        """Whether something can be typed into the field now."""
        return bool(self.field.typed)

    def _type(self, text: str) -> None:
        """Take what has been typed so far."""
        raise NotImplementedError

    def key(self, row: Field) -> str:
        return row.id


def after(choices: Sequence[Any], value: Any, step: int) -> Any:
    """The next or previous one, round the end; from a value that is none of them, the first or last."""
    if not choices:
        return value
    at = choices.index(value) if value in choices else (-1 if step > 0 else 0)
    return choices[(at + (1 if step > 0 else -1)) % len(choices)]
