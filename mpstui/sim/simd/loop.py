"""An event loop of sockets and timers, small enough to cost nothing while nothing happens."""

from __future__ import annotations

import heapq
import itertools
import selectors
import socket
import time
from collections.abc import Callable

Callback = Callable[[], None]


class Loop:
    """Calls back when a socket becomes readable or a time has come; ``after_each`` runs once after every wake-up."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callback]] = []
        self._order = itertools.count()
        self.running = False
        self.after_each: Callback = lambda: None

    def watch(self, source: socket.socket | int, callback: Callback) -> None:
        self._selector.register(source, selectors.EVENT_READ, callback)

    def unwatch(self, source: socket.socket | int) -> None:
        """Forgets ``source``; not watched is fine."""
        try:
            self._selector.unregister(source)
        except (KeyError, ValueError):
            return

    def after(self, seconds: float, callback: Callback) -> None:
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), callback))

    def stop(self) -> None:
        self.running = False

    def run(self) -> None:
        self.running = True
        while self.running:
            wait = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
            for key, _ in self._selector.select(wait):
                # An earlier callback of this round may have closed a later one's socket.
                if self.running and self._selector.get_map().get(key.fd) is key:
                    key.data()
            while self.running and self._timers and self._timers[0][0] <= time.monotonic():
                heapq.heappop(self._timers)[2]()
            self.after_each()
