"""Opens the screens for when something is wrong; they are imported when one is."""

from __future__ import annotations

from pathlib import Path

from mpstui.core.model import ProcessKey, Snapshot
from mpstui.ui.contract import Runner
from mpstui.ui.screens import ListScreen
from mpstui.ui.trouble.contract import TroubleBackend


def open_screen(
    name: str,
    runner: Runner,
    backend: TroubleBackend | None,
    snapshot: Snapshot | None,
    pipe_dir: Path | None,
    identity: object,
) -> ListScreen:
    """``name`` is ``events``, ``blast``, ``fault``, ``suspects``, ``activity``, ``users`` or ``problems``;
    ``identity`` is where its cursor begins: an event's key for the events, a client's for the radius.
    """
    if name == "events":
        from mpstui.ui.trouble.events import EventsScreen

        return EventsScreen(runner, backend, snapshot, pipe_dir, identity if isinstance(identity, tuple) else None)
    if name == "blast":
        from mpstui.ui.trouble.blast import BlastScreen

        return BlastScreen(runner, snapshot, pipe_dir, identity if isinstance(identity, ProcessKey) else None)
    if name == "fault":
        from mpstui.ui.trouble.fault import FaultScreen

        return FaultScreen(runner, snapshot, pipe_dir)
    if name == "suspects":
        from mpstui.ui.trouble.suspects import SuspectsScreen

        return SuspectsScreen(runner, backend, snapshot, pipe_dir)
    if name == "activity":
        from mpstui.ui.trouble.activity import ActivityScreen

        return ActivityScreen(runner, snapshot, pipe_dir)
    if name == "users":
        from mpstui.ui.trouble.users import UsersScreen

        return UsersScreen(runner, backend, snapshot, pipe_dir)
    if name != "problems":
        raise KeyError(name)
    from mpstui.ui.trouble.problems import ProblemsScreen

    return ProblemsScreen(runner, backend, snapshot, pipe_dir)
