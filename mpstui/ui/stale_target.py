"""Holds an action back just after the cursor has gone to another row by itself: the client that it was meant for has
ended, or is no longer among those that are shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from mpstui.core.model import Daemon, ProcessKey
from mpstui.core.text import are, have

HOLD: Final = 1.5
"""Seconds in which a key was most likely pressed for the client that was under the cursor before."""


class StaleTarget:
    """Told of each change of the table: whom an action would have meant before it, and the daemon as it is now."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._place: Path | None = None
        self._meant: tuple[int, ...] = ()
        self._ended = False
        self._at = 0.0
        self._under = False
        """Whether it happened under a window, and has not been in front since."""

    def watch(self, meant: Sequence[ProcessKey], daemon: Daemon, *, moved: bool = False, under: bool = False) -> None:
        """``meant``: the clients that an action was for until now; on another daemon's table it says nothing.
        ``moved``: the cursor is on another row than before. ``under``: a window is in front, and the next key is typed
        for the row that was there before it."""
        same, self._place = self._place == daemon.pipe_dir, daemon.pipe_dir
        here = {client.key for client in daemon.clients()}
        ended = not any(key.among(here) for key in meant)
        if same and meant and (ended or moved) and not self._under:
            self._meant, self._ended, self._at = tuple(key.pid for key in meant), ended, self.clock()
            self._under = under

    def in_front(self) -> None:
        """The window has gone, and only now may a key be typed for what was there before."""
        if self._under:
            self._under, self._at = False, self.clock()

    def refusal(self, others: object) -> str | None:
        """Why an action on clients is not begun now; None where it may be. ``others``: whether there is another row."""
        if not self._meant or self.clock() - self._at > HOLD:
            return None
        who = ", ".join(map(str, self._meant))
        many = len(self._meant)
        what = f"{have(many)} ended" if self._ended else f"{are(many)} no longer in that row"
        return f"{who} {what}; nothing was done{'. The cursor is on another one' if others else ''}"
