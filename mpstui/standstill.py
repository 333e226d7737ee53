"""A daemon that does not answer: why, since when, whom it waits for, what frees it and what still works. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

from mpstui.model import Client, Daemon, LostClient, ProcessKey, SessionHolder, Snapshot
from mpstui.text import UNKNOWN, format_age

Cause = Literal["terminated_twice", "held", "quitting", "silent", "gone"]
_SOCKETS = ("control", "control_privileged", "control_lock", "log", "nvidia-cuda-mps-control.pid")


class Standstill(NamedTuple):
    """Why a daemon answers nobody, and the way out."""

    cause: Cause
    title: str
    """One line."""
    text: str
    """What happened, a few sentences."""
    remedy: str
    works: str
    """What still works without the daemon."""
    since: float | None = None
    """Since when, as far as it is known."""
    known_at: float | None = None
    """From when what is shown of its servers and clients is; None where it has never answered."""
    end: tuple[ProcessKey, ...] = ()
    """The processes that have to end to free it: action ``unblock`` ends exactly these where ``by_action``."""
    by_action: bool = False
    clients: tuple[Client, ...] = ()
    """The clients that it waits for."""
    holder: SessionHolder | None = None
    lost: tuple[LostClient, ...] = ()
    """Processes that have lost their server."""
    stale_files: tuple[str, ...] = ()
    """Names in the pipe directory that may be left of a daemon that is gone."""


def standstill(daemon: Daemon, snapshot: Snapshot) -> Standstill | None:
    """None for a daemon that answers, and for a place where none has ever been."""
    if daemon.health == "held":
        return _held(daemon)
    if daemon.health == "blocked":
        if daemon.blocked_by is not None:
            return _terminated_twice(daemon, daemon.blocked_by)
        return _quitting(daemon) if daemon.quitting_since is not None else _silent(daemon)
    if daemon.health == "stale" or daemon.lost:
        return _gone(daemon, snapshot)
    return None


def _held(daemon: Daemon) -> Standstill:
    holder = daemon.holder
    who = "somebody" if holder is None else f"process {holder.pid} of {holder.user or UNKNOWN}"
    if holder is not None and holder.terminal:
        who += f" on {holder.terminal}"
    if holder is not None and not holder.certain:
        who += " (most likely)"
    return Standstill(
        "held",
        f"A control session is held open by {who}",
        "The daemon serves one session at a time; until this one is closed, every other command fails.",
        f"Ask for it to be closed, or end {f'process {holder.pid}' if holder else 'that process'}.",
        "Clients run and connect as ever; devices, processes and logs are watched on.",
        known_at=daemon.answered_at,
        end=(holder.key,) if holder is not None and holder.certain else (),
        by_action=holder is not None and holder.certain,
        holder=holder,
    )


def _terminated_twice(daemon: Daemon, key: ProcessKey) -> Standstill:
    client = daemon.find_client(key)
    who = f"client {key.pid}" + (f" of {client.user}" if client and client.user else "")
    return Standstill(
        "terminated_twice",
        f"Blocked by a second terminate_client for {who}",
        f"terminate_client was sent twice for {who}; until its process ends, every command and every new client hangs.",
        f"End process {key.pid}; its GPU work is over already. The daemon goes on at once.",
        "Clients that are connected run on; new ones hang. Devices, processes and logs are watched on.",
        known_at=daemon.answered_at,
        end=(key,),
        by_action=True,
        clients=(client,) if client else (),
    )


def _quitting(daemon: Daemon) -> Standstill:
    clients = tuple(daemon.clients())
    count = f"{len(clients)} client{'s' if len(clients) != 1 else ''}"
    return Standstill(
        "quitting",
        f"Told to quit, and waits for {count}",
        f"The daemon takes no command until {count} {'have' if len(clients) != 1 else 'has'} ended: "
        f"{', '.join(str(client.pid) for client in clients)}.",
        "Let them end, then start a new daemon. To end it sooner, end their processes.",
        "These clients run on; new ones hang. Devices, processes and logs are watched on.",
        since=daemon.quitting_since,
        known_at=daemon.answered_at,
        end=tuple(client.key for client in clients),
        clients=clients,
    )


def _silent(daemon: Daemon) -> Standstill:
    suspects = tuple(c for c in daemon.clients() if c.terminate_requested or c.state == "TERMINATED")
    remedy = daemon.remedy or "Look at control.log for the command that it is at."
    text = "It has not answered in time, and its logs do not say why."
    if suspects:
        pids = ", ".join(str(client.pid) for client in suspects)
        text += f" A terminated client whose process lives is the likely cause: {pids}."
    return Standstill(
        "silent",
        "The daemon does not answer",
        text,
        remedy,
        "Clients that are connected run on; new ones hang. Devices, processes and logs are watched on.",
        known_at=daemon.answered_at,
        clients=suspects,
    )


def _gone(daemon: Daemon, snapshot: Snapshot) -> Standstill:
    gone = daemon.health == "stale"
    lost = daemon.lost
    since = max((client.since for client in lost if client.since is not None), default=None)
    ago = "" if since is None else f" {format_age(snapshot.time - since)} ago"
    who = f"{len(lost)} process{'es have' if len(lost) != 1 else ' has'} lost their server{ago}"
    text = f"{who}: {', '.join(str(client.pid) for client in lost)}. Each CUDA call of theirs gives error 806."
    return Standstill(
        "gone",
        "The daemon is gone" if gone else f"{who[0].upper()}{who[1:]}",
        text if lost else "No process is known that has lost its server by it.",
        (daemon.remedy or "Start a daemon.") + (" Then let their owners start them again." if lost else ""),
        "CUDA programs that start now run without MPS, in silence." if gone else "New clients are served as ever.",
        since=since,
        known_at=daemon.answered_at,
        lost=lost,
        stale_files=_SOCKETS if gone else (),
    )
