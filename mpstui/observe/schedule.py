"""When a daemon is to be asked, and what; pure. In a quiet node the answer is: never."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from mpstui.control.answer import Outcome
from mpstui.core.model import EventKind

MEMBERSHIP: Final[frozenset[EventKind]] = frozenset(
    (
        "daemon_started",
        "server_starting",
        "server_ready",
        "server_exited",
        "server_failed",
        "client_connected",
        "context_active",
        "context_closed",
        "client_disconnected",
        "client_pending",
        "terminate_requested",
        "terminate_succeeded",
        "fatal_fault",
        "server_recovered",
    )
)
"""What the logs may tell after which the daemon is asked who is there. Questions and sessions are not among it:
mpstui's own are in control.log too (fact 8)."""
MOVES: Final[frozenset[EventKind]] = frozenset(
    ("client_connected", "context_active", "context_closed", "client_disconnected")
)
"""Of these, what logs that tell everything tell whole: who came or went, and where."""
LIMITS: Final[frozenset[EventKind]] = frozenset(("daemon_started", "server_ready", "limit_set"))
FREEING: Final[frozenset[EventKind]] = frozenset(
    ("session_closed", "terminate_succeeded", "client_disconnected", "server_exited", "daemon_started")
)
"""What may end a daemon's silence."""
SETTLE: Final = 0.4
"""Seconds from a change to the question: what belongs together (a client, then its contexts) is asked about once. The
screen does not wait for it, as the log has told already."""
SPACING: Final = 0.5
LONGEST_SPACING: Final = 4.0
_ANSWERED: Final = frozenset((Outcome.OK, Outcome.REFUSED, Outcome.NOT_PERMITTED))
FIRST_RETRY: Final = 2.0
LONGEST_RETRY: Final = 10.0
POLLING: Final = 5.0


@dataclass(slots=True)
class Schedule:
    """Times are seconds of one monotonic clock."""

    refresh: float = 1.0
    reconcile: float = 60.0
    """Seconds from the last change to one full reading; 0: never."""
    polling: bool = False
    told: bool = False
    """The logs tell who is there: of a client that comes or goes, no more than its name or its end is asked for."""
    asleep: bool = False
    """Nobody is there to be asked, or the one who would be is known to be blocked until a process ends."""
    membership: bool = True
    limits: bool = True
    moved: bool = False
    """A client came or went, and the logs have told all of it."""
    _ended: float = -math.inf
    _changed: float = -math.inf
    _complete: float = -math.inf
    _spacing: float = SPACING
    _retry: float | None = None
    _urgent: bool = True
    _wanted: float = -math.inf

    def changed(self, kind: EventKind, now: float) -> None:
        """The logs told of ``kind``."""
        self._urgent = self._urgent or (self._retry is not None and kind in FREEING)
        moved = self.told and kind in MOVES
        self.want(kind in MEMBERSHIP and not moved, kind in LIMITS, now, moved=moved)

    def want(self, membership: bool, limits: bool, now: float, *, moved: bool = False) -> None:
        """Something was seen to change."""
        if membership or limits or moved:
            if not (self.membership or self.limits or self.moved):
                self._wanted = now
            self.moved = self.moved or moved
            self.membership = self.membership or membership
            self.limits = self.limits or limits
            self._changed = now

    def ask_now(self, now: float) -> None:
        """The user wants to see what is true."""
        self.membership = self.limits = self._urgent = True
        self._changed = now

    def due(self) -> float:
        """When to ask next; infinity for not at all."""
        if self.asleep:
            return math.inf
        if self._urgent:
            return -math.inf
        if self._retry is not None:
            return self._ended + self._retry
        if self.membership or self.limits or self.moved:
            return max(self._ended + self._spacing, self._wanted + SETTLE)
        if self.polling:
            return self._ended + max(POLLING, self.refresh)
        if self.reconcile > 0 and self._changed > self._complete:
            return self._changed + self.reconcile
        return math.inf

    def begin(self, now: float) -> tuple[bool, bool]:
        """What to ask: who is there, the limits. Both, where nothing in particular was seen to change; neither, where
        clients came or went and the logs have told of it."""
        wanted = self.membership, self.limits
        if not any(wanted) and not self.moved:
            wanted = True, True
        quickly = now - self._ended < 2 * self._spacing
        self._spacing = min(LONGEST_SPACING, 2 * self._spacing) if quickly else SPACING
        self.membership = self.limits = self.moved = self._urgent = False
        if all(wanted):
            self._complete = now
        return wanted

    def end(self, now: float, outcome: Outcome) -> None:
        """The reading is over. One that failed is taken again, later and later."""
        self._ended = now
        if outcome not in _ANSWERED:
            self._retry = FIRST_RETRY if self._retry is None else min(LONGEST_RETRY, 2 * self._retry)
            self.membership = self.limits = True
        else:
            self._retry = None
