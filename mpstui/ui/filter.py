"""The filter of the clients table: ``user:alice gpu:0 state:term train``, every term must match."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from mpstui.core.model import Client
from mpstui.fields import CLIENT, Field, View, searched


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
