"""Tells at once when one of a few processes ends, where the kernel has pidfds (Linux 5.3)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection


class Endings:
    """Calls ``ended`` in the event loop when a watched process ends, each time once. Nothing raises: a process that
    cannot be watched is left to whoever looks at /proc now and then."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._watched: dict[int, int | None] = {}
        """Descriptors by PID; None for a process that has ended, which is told once."""

    def watch(self, pids: Collection[int]) -> None:
        """From now on these processes and no others. Costs two system calls for each that is new."""
        for pid in [pid for pid in self._watched if pid not in pids]:
            self._forget(pid)
        for pid in pids:
            if pid not in self._watched:
                self._begin(pid)

    def close(self) -> None:
        """Give all descriptors back."""
        self.watch(())

    def _begin(self, pid: int) -> None:
        try:
            fd = os.pidfd_open(pid)
        except (OSError, OverflowError, ValueError, AttributeError):
            return
        try:
            asyncio.get_running_loop().add_reader(fd, self._over, pid)
        except (OSError, NotImplementedError):
            os.close(fd)
        else:
            self._watched[pid] = fd

    def _over(self, pid: int) -> None:
        self._forget(pid)
        self._watched[pid] = None
        self._ended()

    def _forget(self, pid: int) -> None:
        fd = self._watched.pop(pid)
        if fd is not None:
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)
