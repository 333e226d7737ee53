"""What the card of a daemon that does not answer says besides: the key that helps, who waits, who lost the server."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping

from mpstui.core.cells import count
from mpstui.core.model import Daemon, Snapshot
from mpstui.core.standstill import Standstill, standstill
from mpstui.core.text import UNKNOWN, format_age
from mpstui.operations.rescue import left_out, processes, targets
from mpstui.ui.keys import shown_key

_NAMED = 5
"""Processes that the card names; ``W`` and ``b`` show all."""


def way_out(
    snapshot: Snapshot, daemon: Daemon, keymap: Mapping[str, str], *, read_only: bool, brief: bool = False
) -> list[tuple[str, str]]:
    """Labels and texts, the key first. ``brief``: processes are counted, not listed."""
    found = standstill(daemon)

    def key(name: str, default: str) -> str:
        return shown_key(keymap, name, default)

    start = f"{key('daemons', 'd')}  then {key('daemon.start', 'n')} starts a daemon here"
    if found is None:
        return [("key", start)] if daemon.health in {"absent", "stale"} and not read_only else []
    fields = [("key", text) for text in _keys(found, daemon, key("action.unblock", "u"), start, read_only)]
    if found.cause == "quitting" and brief:
        some = ", ".join(str(client.pid) for client in found.clients[:_NAMED])
        more = ", …" if len(found.clients) > _NAMED else ""
        fields.append(("waits for", f"{count(len(found.clients), 'client')}: {some}{more}"))
    elif found.cause == "quitting":
        lines = (f"{c.pid} {c.user or UNKNOWN} {c.command or UNKNOWN}" for c in found.clients)
        fields += _listed("waits for", lines, len(found.clients))
    if found.lost and brief:
        number = count(len(found.lost), "client")
        fields.append(("lost server", f"{number}: each CUDA call gives error 806; {key('users', 'W')} shows them"))
    elif found.lost:
        lines = (f"{c.pid} {c.user or UNKNOWN} {c.command or UNKNOWN}" for c in found.lost)
        fields += _listed("lost server", lines, len(found.lost))
        fields.append(("", f"each CUDA call of theirs gives error 806; {key('users', 'W')} shows them"))
    if daemon.servers:
        clients = sum(1 for _ in daemon.clients())
        before = f"{count(len(daemon.servers), 'server')}, {count(clients, 'client')}"
        fields.append(("before", f"{before}, {_as_of(found, snapshot)}; {key('blast', 'b')} shows them"))
    return fields


def _as_of(found: Standstill, snapshot: Snapshot) -> str:
    """How old what is known of the daemon is."""
    if found.known_at is None:
        return "by its logs alone"
    clock = time.strftime("%H:%M:%S", time.localtime(found.known_at))
    return f"as it said at {clock}, {format_age(snapshot.time - found.known_at)} ago"


def _keys(found: Standstill, daemon: Daemon, unblock: str, start: str, read_only: bool) -> Iterator[str]:
    if read_only:
        return
    if found.by_action and found.end and not targets("unblock", daemon):
        if (why := left_out("unblock", daemon)) is not None:
            yield f"{unblock}  ends nobody: {why}"
    elif found.by_action and found.end:
        process = processes(daemon).get(found.end[0])
        who = f" of {process.user}: {process.command}" if process and process.user else ""
        yield f"{unblock}  ends process {found.end[0].pid}{who}"
    elif found.cause == "gone":
        yield start


def _listed(label: str, lines: Iterable[str], number: int) -> Iterator[tuple[str, str]]:
    for at, line in enumerate(lines):
        if at == _NAMED:
            yield "", f"and {number - _NAMED} more"
            return
        yield label if at == 0 else "", line
