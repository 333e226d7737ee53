"""NVML's list of MPS clients beside what the logs told: a difference that lasts is asked about, once; pure."""

from __future__ import annotations


class Puzzle:
    """Remembers which clients could not be explained, and which of them the daemons were asked about."""

    def __init__(self) -> None:
        self._unexplained: frozenset[int] = frozenset()
        self._asked_about: frozenset[int] = frozenset()

    def lasts(self, unexplained: frozenset[int]) -> bool:
        """Whether one of these clients has been unexplained before, so that the logs have had time to tell of it, and
        was not yet asked about."""
        lasting = unexplained & self._unexplained
        self._unexplained = unexplained
        self._asked_about &= unexplained
        new = lasting - self._asked_about
        self._asked_about |= lasting
        return bool(new)
