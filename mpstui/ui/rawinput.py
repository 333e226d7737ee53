"""What a terminal sends, cut into keys, sequences and pastes, also where several of them arrive at once.

An Escape that begins no sequence is the key: with the letter after it, it is not Alt and that letter, of which nothing
would come, so that Escape, typed to leave a dialog, would be lost and what follows would be typed into the dialog. And
nothing of a paste is ever a key, whatever escape sequences are in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

Kind = Literal["text", "sequence", "escape", "paste"]

_ESCAPE: Final = "\x1b"
_SEQUENCE: Final = re.compile(
    r"\x1b(?:\[(?:M.{3}|\[[A-E]|(?![M\[])[0-?]*[ -/]*[@-~]|[0-?]+[ -/]*M)|O[0-9;]*[A-Za-z])", re.DOTALL
)
"""CSI and SS3, with the mouse's old reports and the function keys of Linux' console; strings are not asked for."""
_UNFINISHED: Final = re.compile(r"\x1b(?:\[(?:M.{0,2}|\[|[0-?]*[ -/]*)|O[0-9;]*)?\Z", re.DOTALL)
_PASTE: Final = "\x1b[200~"
_PASTE_END: Final = "\x1b[201~"
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_LONGEST: Final = 1 << 20
"""Characters of a paste that are kept."""
LULL: Final = 1.0
"""Seconds of silence after which Ctrl-C or Escape ends a paste whose end never came."""


class Piece(NamedTuple):
    """``text``: characters, each a key; ``sequence``: a complete one; ``escape``: the key; ``paste``: its text."""

    kind: Kind
    text: str


class RawInput:
    """Takes what is read, in whatever pieces it comes."""

    def __init__(self) -> None:
        self._rest = ""
        self._pasted: str | None = None

    @property
    def undecided(self) -> bool:
        """Whether only time can tell what the last characters are: a key, or the beginning of a sequence."""
        return self._pasted is None and self._rest in {_ESCAPE, "\x1b[", "\x1bO"}

    def decide(self) -> Iterator[Piece]:
        """Nothing came after them: they are keys."""
        rest, self._rest = self._rest, ""
        yield Piece("escape", _ESCAPE)
        if rest[1:]:
            yield Piece("text", rest[1:])

    def feed(self, text: str, silence: float = 0.0) -> Iterator[Piece]:
        """What ``text`` completes. ``silence``: seconds since the characters before it."""
        if self._pasted is not None and silence > LULL and text in {"\x03", _ESCAPE}:
            yield self._paste()
            self._rest = ""
        text, self._rest = self._rest + text, ""
        at = 0
        while at < len(text):
            if self._pasted is not None:
                end = text.find(_PASTE_END, at)
                if end < 0:
                    keep = next((n for n in range(len(_PASTE_END) - 1, 0, -1) if text.endswith(_PASTE_END[:n])), 0)
                    keep = min(keep, len(text) - at)
                    self._add(text[at : len(text) - keep])
                    self._rest = text[len(text) - keep :]
                    return
                self._add(text[at:end])
                yield self._paste()
                at = end + len(_PASTE_END)
                continue
            escape = text.find(_ESCAPE, at)
            if escape != at:
                end = len(text) if escape < 0 else escape
                yield Piece("text", text[at:end])
                at = end
            elif (found := _SEQUENCE.match(text, at)) is not None:
                at = found.end()
                if found[0] == _PASTE:
                    self._pasted = ""
                elif found[0] != _PASTE_END:
                    yield Piece("sequence", found[0])
            elif _UNFINISHED.match(text, at) is not None:
                self._rest = text[at:]
                return
            else:
                yield Piece("escape", _ESCAPE)
                at += 1

    def _add(self, text: str) -> None:
        self._pasted = ((self._pasted or "") + text)[:_LONGEST]

    def _paste(self) -> Piece:
        text, self._pasted = self._pasted or "", None
        return Piece("paste", _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))
