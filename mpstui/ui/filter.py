"""The filter of the clients table: ``user:alice gpu:0 state:term train``, every term must match."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mpstui.core.model import Client

Matcher = Callable[[Client, str, str], bool]
"""Client, its GPU column and the text looked for, in lower case."""


def _state(client: Client, _gpus: str, text: str) -> bool:
    words = [client.state.lower()]
    if client.outdated_limits:
        words.append("outdated")
    return any(word.startswith(text) for word in words)


_FIELDS: dict[str, Matcher] = {
    "user": lambda c, _g, t: t in (c.user or "").lower() or t == str(c.uid),
    "gpu": lambda _c, g, t: t in g.split(","),
    "state": _state,
    "pid": lambda c, _g, t: str(c.pid).startswith(t),
    "server": lambda c, _g, t: str(c.server_pid or "").startswith(t),
    "cmd": lambda c, _g, t: t in (c.command or "").lower(),
}


@dataclass(frozen=True, slots=True)
class ClientFilter:
    """A filter. A term ``name:text`` looks in one column, ``!term`` excludes, other text is looked for in all."""

    text: str = ""

    def __bool__(self) -> bool:
        return bool(self.text.strip())

    def matches(self, client: Client, gpus: str) -> bool:
        """Whether the client is shown; ``gpus`` is what its GPU column shows, e.g. ``0,1``."""
        for term in self.text.lower().split():
            wanted = not term.startswith("!")
            word = term.removeprefix("!")
            if not word:
                continue
            name, colon, value = word.partition(":")
            if colon and name in _FIELDS:
                hit = not value or _FIELDS[name](client, gpus, value)
            else:
                shown = (
                    f"{client.pid} {client.user or ''} {client.state} {client.command or ''} {client.container or ''}"
                )
                hit = word in shown.lower()
            if hit is not wanted:
                return False
        return True
