"""How a daemon is: told from where it was found, from its last answer and from its log. Every state has a remedy."""

from __future__ import annotations

from typing import Final, NamedTuple

from mpstui.control.answer import Outcome
from mpstui.core.model import Health, SessionHolder, unspoken
from mpstui.core.text import format_age
from mpstui.observe.discovery import Place, how_to_start
from mpstui.observe.state import DaemonState

_LATELY = 30.0
"""Seconds for which an answer stands while other sessions keep the daemon busy; its logs tell of changes meanwhile."""


class Probe(NamedTuple):
    """How the last command ended."""

    time: float
    outcome: Outcome
    message: str = ""
    holder: SessionHolder | None = None
    asked: float | None = None
    """When it was sent; an answer is word of the daemon from then on."""


class Condition(NamedTuple):
    """A daemon's health, in words."""

    health: Health
    detail: str | None = None
    remedy: str | None = None
    holder: SessionHolder | None = None
    since: float | None = None
    """Since when, as its logs tell."""


def condition(
    place: Place | None, probe: Probe | None, state: DaemonState, known_at: float | None, *, past: bool = False
) -> Condition:
    """``known_at``: when the daemon last answered; the detail then says from what time the rest of the screen is.
    ``past``: nobody can be asked, so that the logs' word has to do; it leads to nothing."""
    start = how_to_start(state.pipe_dir)
    if place is None or place.state in {"absent", "unusable"}:
        detail = place.detail if place and place.detail else "no control daemon there"
        return Condition("absent", detail, place.remedy if place and place.remedy else start)
    if place.state == "stale":
        detail = place.detail or "the files of a control daemon that is gone"
        return Condition("stale", detail, place.remedy or start)
    client = state.client(state.blocked_by) if state.blocked_by is not None else None
    if client is not None and (past or is_silent(probe, state.blocked_known)):
        detail = f"blocked by a second terminate_client for client {client.pid}, whose process still lives"
        remedy = f"End process {client.pid}, with Unblock on the screen. The daemon goes on at once."
        return Condition("blocked", detail + _age(probe, known_at), remedy, since=state.blocked_since)
    if state.quitting_since is not None and state.servers:
        answered = (
            probe is not None and probe.outcome is Outcome.OK and (probe.asked or probe.time) > state.quitting_since
        )
        if not answered:
            detail, remedy = _quitting(clients_left(state))
            return Condition("blocked", detail + _age(probe, known_at), remedy, since=state.quitting_since)
    if (reason := unspoken(place.protocol, place.static_partitioning)) is not None:
        return Condition("ok", reason, _OTHER_COMMANDS["v3" if place.protocol == "v3" else "static"])
    if probe is None:
        return Condition("ok", place.detail or None)
    age = _age(probe, known_at)
    if probe.outcome is Outcome.HELD:
        holder = probe.holder
        who = f"process {holder.pid}" if holder else "the process that does"
        remedy = f"Close that session, or end {who}; clients still connect meanwhile."
        detail = (probe.message or "a control session is kept open").rstrip(".")
        return Condition("held", detail + age, remedy, holder, state.session_since)
    if probe.outcome is Outcome.BUSY:
        if known_at is not None and probe.time - known_at < _LATELY:
            return Condition("ok", place.detail or None)
        return Condition(
            "ok", probe.message.rstrip(".") + age, "Wait until they are over; mpstui asks again by itself."
        )
    if probe.outcome is Outcome.BLOCKED:
        detail = (probe.message or "it does not answer").rstrip(".")
        return Condition("blocked", detail + age, _blocked_remedy(state))
    if probe.outcome is Outcome.ABSENT:
        return Condition("stale", probe.message or "the files of a control daemon that is gone", start)
    if probe.outcome in {Outcome.NO_BINARY, Outcome.UNREADABLE}:
        remedy = "Put nvidia-cuda-mps-control on PATH or its path in MPSTUI_CONTROL_BINARY."
        if probe.outcome is Outcome.UNREADABLE:
            remedy = "What was run is not this driver's nvidia-cuda-mps-control: see MPSTUI_CONTROL_BINARY and PATH."
        return Condition("ok", probe.message.rstrip(".") + age, remedy)
    return Condition("ok", place.detail or None)


_OTHER_COMMANDS: Final = {
    "v3": "Use the daemon's own commands, such as nvidia-cuda-mps-control server list and … client list.",
    "static": "Use the daemon's own commands, such as lspart and sm_partition in nvidia-cuda-mps-control.",
}


def is_silent(probe: Probe | None, since: float | None) -> bool:
    """Whether the daemon itself left a command unanswered until after ``since``: what its log says is a claim."""
    if probe is None or probe.outcome is not Outcome.BLOCKED:
        return False
    return since is None or probe.time >= since


def _quitting(waits_for: list[int]) -> tuple[str, str]:
    """With its last client a daemon is not gone yet: it looks at its servers again after 12.8 s at most (fact 19)."""
    if not waits_for:
        return (
            "told to quit, and its last client has ended; it takes no command",
            "It ends its servers when it looks at them again, in some seconds. Then start a new daemon.",
        )
    return (
        f"told to quit; it waits for {_clients(waits_for)} and takes no command",
        "It is gone when they have ended. To have it back, let them end, then start a new daemon.",
    )


def clients_left(state: DaemonState) -> list[int]:
    """PIDs of all its servers' clients."""
    return sorted(pid for server in state.servers.values() for pid in server.clients)


def _clients(pids: list[int]) -> str:
    return f"client{'s' if len(pids) > 1 else ''} {', '.join(map(str, pids[:8]))}" + (" …" if len(pids) > 8 else "")


def _blocked_remedy(state: DaemonState) -> str:
    asked = [str(c.pid) for s in state.servers.values() for c in s.clients.values() if c.asked or c.ended]
    if asked:
        return f"A terminated client whose process lives is the likely cause: end process {', '.join(asked)}."
    if any(server.ending for server in state.servers.values()):
        return "It is told to quit and waits for its clients to end."
    return "Look at control.log for the command it is at; ending the client that it waits for frees it."


def _age(probe: Probe | None, known_at: float | None) -> str:
    if probe is None or known_at is None or probe.time - known_at < 1:
        return ""
    return f"; what is shown is {format_age(probe.time - known_at)} old at least"
