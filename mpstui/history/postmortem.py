"""The state of a node that its logs come to at a given time, without a daemon, NVML or /proc."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Final

from mpstui.core.model import Daemon, Event, ProcessKey, Snapshot
from mpstui.core.text import path_text
from mpstui.history.reader import LogHistory
from mpstui.observe.discovery import Place, State
from mpstui.observe.reducer import NodeState, Watching
from mpstui.observe.state import DaemonState
from mpstui.system.trusted import Owners

_EVENTS = 500


def state_at(log_dir: Path, at: float | None = None, owners: Owners | None = None) -> Snapshot:
    """The snapshot at ``at``, seconds since the epoch; None: where the logs end. ``time`` is that of the last event; 0
    where no line has one.

    A daemon that was killed leaves no word of it (fact 3): it is shown as running until another one starts. Devices,
    users and commands are not in the logs and stay unknown. ``owners`` as for LogHistory. Raises UnreadableLogError.
    """
    history = LogHistory(log_dir, owners=owners)
    latest: deque[Event] = deque(maxlen=_EVENTS)
    last, started = at, None
    try:
        for event in history.replay(at):
            if event.kind not in {"session_opened", "session_closed", "client_admitted"}:
                latest.append(event)
            if event.kind == "daemon_started":
                started = event.time
            if at is None and event.time is not None:
                last = event.time
        source = history.origin.source(last)
    finally:
        history.close()
    state = history.state
    standing, how = standing_of(history, state)
    detail = "; ".join([how, *history.trouble])
    node = NodeState(source=source)
    watched = node.watch(state.pipe_dir)
    watched.state, watched.how, watched.past = state, Watching(version=history.version), True
    watched.place = Place(
        state.pipe_dir,
        standing,
        log_dir,
        ProcessKey(state.daemon_pid) if state.daemon_pid is not None else None,
        start_time=started,
        protocol="legacy",
        detail=detail,
        remedy="" if standing == "running" else _OVER,
        speaker=history.speaker,
    )
    shown = node.snapshot(last or 0.0)
    events = tuple(event._replace(pipe_dir=state.pipe_dir) for event in latest)
    return as_told_there(replace(shown, looked=True, events=events))


def standing_of(history: LogHistory, state: DaemonState) -> tuple[State, str]:
    """Whether a daemon was running by then, as far as its logs tell, and that as a clause. Of server.log alone it is
    known by its servers; without one it may have been running or not."""
    where = path_text(history.log_dir)
    if state.daemon_pid is not None or state.servers:
        return "running", f"as its logs tell, in {where}"
    if state.heard:
        return "running", f"a daemon was running, as its log tells; its start is not in it, in {where}"
    if state.heard is None and state.changes and not history.of_daemon:
        return (
            "running",
            f"no server was running; whether a daemon was running is not known from server.log alone, in {where}",
        )
    if state.heard is None:
        return "running", f"whether a daemon was running is not known: the logs tell nothing of it, in {where}"
    return "absent", f"no daemon was running, as its logs tell, in {where}"


def as_told_there(snapshot: Snapshot) -> Snapshot:
    """With remedies that are for that node, if things still are so there. Of a place without a daemon, and of how it is
    watched, the remedy or the directory in it is the file's own, whoever wrote that: of these nothing is advised."""
    return replace(
        snapshot,
        daemons=tuple(_as_told_there(daemon) for daemon in snapshot.daemons),
        problems=tuple(
            replace(problem, remedy=_OVER if problem.code in _OF_THE_FILE else _there(problem.remedy))
            for problem in snapshot.problems
        ),
    )


_OVER: Final = "It is the past: nothing can be done there."
_OF_THE_FILE: Final = frozenset({"daemon_absent", "daemon_stale", "polling"})


def _as_told_there(daemon: Daemon) -> Daemon:
    found = daemon.condition
    remedy = _OVER if found.cause in {"absent", "gone", "closed"} else _there(daemon.remedy)
    return replace(daemon, condition=replace(found, remedy=remedy or None))


def _there(remedy: str | None) -> str:
    """A process that the logs name is one of their node, then; here and now its number may be another's."""
    if not remedy or remedy == _OVER:
        return remedy or ""
    first = remedy[0].lower() if remedy[1:2].islower() else remedy[0]
    return f"On that node, if it is still so: {first}{remedy[1:]}"
