"""The filter of the clients table: ``user:alice gpu:0 state:term train``, every term must match."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Final

from mpstui.core.model import Client
from mpstui.core.text import printable
from mpstui.fields import CLIENT, Field, View, searched

_USUAL: Final = frozenset({"user", "gpu", "state", "cmd", "mem", "threads", "server", "pid", "container"})
"""Fields that are named where none like the one asked for exists."""


@lru_cache(maxsize=1)
def _words() -> dict[str, Field[Client]]:
    """A client's fields by the words that a term may begin with."""
    return {name: each for each in CLIENT.fields for name in (each.id, each.word) if name}


@dataclass(frozen=True, slots=True)
class ClientFilter:
    """A filter. A term ``name:text`` looks in one field, ``!term`` excludes, other text is looked for in all."""

    text: str = ""

    def __bool__(self) -> bool:
        return bool(self.text.strip())

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names before a colon that no field of a client has: the term is looked for as text."""
        names = (term.removeprefix("!").partition(":") for term in self.text.lower().split())
        return tuple(name for name, colon, _ in names if colon and name.isidentifier() and name not in _words())

    def complaint(self) -> str:
        """What is wrong with it, and what may stand there; empty where nothing is."""
        if not self.unknown:
            return ""
        near = get_close_matches(self.unknown[0], _words(), 1)
        hint = f"did you mean {near[0]}:?" if near else f"fields: {', '.join(sorted(set(_words()) & _USUAL))} …"
        return f"no field “{printable(self.unknown[0], 20)}”; {hint}"

    def matches(self, client: Client, view: View) -> bool:
        """Whether the client is shown."""
        words = _words()
        for term in self.text.lower().split():
            wanted = not term.startswith("!")
            word = term.removeprefix("!")
            if not word:
                continue
            name, colon, value = word.partition(":")
            if colon and name in words:
                hit = not value or words[name].hit(client, view, value)
            else:
                hit = searched(CLIENT, client, view, word)
            if hit is not wanted:
                return False
        return True
