"""Holds an action back just after the client that it was meant for has ended and the cursor has gone to another."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from mpstui.core.model import Daemon, ProcessKey

HOLD: Final = 1.5
"""Seconds in which a key was most likely pressed for the client that was under the cursor before."""


class Slip:
    """Told of each change of the table: whom an action would have meant before it, and the daemon as it is now."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._place: Path | None = None
        self._ended: tuple[int, ...] = ()
        self._at = 0.0

    def watch(self, meant: Sequence[ProcessKey], daemon: Daemon) -> None:
        """``meant``: the clients that an action was for until now; on another daemon's table it says nothing."""
        same, self._place = self._place == daemon.pipe_dir, daemon.pipe_dir
        if same and meant and not any(daemon.find_client(key) for key in meant):
            self._ended, self._at = tuple(key.pid for key in meant), self.clock()

    def refusal(self) -> str | None:
        """Why an action on clients is not begun now; None where it may be."""
        if not self._ended or self.clock() - self._at > HOLD:
            return None
        who = ", ".join(map(str, self._ended))
        return (
            f"{who} {'has' if len(self._ended) == 1 else 'have'} ended; nothing was done. The cursor is on another one"
        )
