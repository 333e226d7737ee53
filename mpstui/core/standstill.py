"""A daemon that does not answer: why, whom it waits for, who has lost it, and what frees it. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

from mpstui.core.model import Client, Daemon, LostClient, ProcessKey

Cause = Literal["terminated_twice", "held", "quitting", "silent", "gone"]


class Standstill(NamedTuple):
    """Why a daemon answers nobody, and the way out."""

    cause: Cause
    known_at: float | None
    """From when what is shown of its servers and clients is; None where it has never answered."""
    end: tuple[ProcessKey, ...] = ()
    """The processes that have to end to free it: action ``unblock`` ends exactly these where ``by_action``."""
    by_action: bool = False
    clients: tuple[Client, ...] = ()
    """The clients that it waits for."""
    lost: tuple[LostClient, ...] = ()
    """Processes that have lost their server."""


def standstill(daemon: Daemon) -> Standstill | None:
    """None for a daemon that answers, and for a place where none has ever been."""
    answered = daemon.answered_at
    if daemon.health == "held":
        holder = daemon.holder
        certain = holder is not None and holder.certain
        return Standstill("held", answered, (holder.key,) if holder is not None and certain else (), certain)
    if daemon.health == "blocked":
        if daemon.blocked_by is not None:
            return Standstill("terminated_twice", answered, (daemon.blocked_by,), by_action=True)
        if daemon.quitting_since is not None:
            clients = tuple(daemon.clients())
            return Standstill("quitting", answered, tuple(client.key for client in clients), clients=clients)
        return Standstill("silent", answered)
    if daemon.health == "stale" or daemon.lost:
        return Standstill("gone", answered, lost=daemon.lost)
    return None
