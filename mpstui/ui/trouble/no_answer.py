"""What is said besides of a daemon that does not answer: the key that helps, who waits, who lost the server."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping

from mpstui.core.cells import client_line
from mpstui.core.model import Condition, Daemon, Snapshot
from mpstui.core.text import format_age, owner, plural
from mpstui.operations.rescue import left_out, processes, targets
from mpstui.ui.keys import shown_key

_NAMED = 5
"""Processes that are named; ``W`` and ``b`` show all."""


def recovery(
    snapshot: Snapshot, daemon: Daemon, keymap: Mapping[str, str], *, read_only: bool, brief: bool = False
) -> list[tuple[str, str]]:
    """Labels and texts, the key first. ``brief``: processes are counted, not listed."""
    found = daemon.condition

    def key(name: str, default: str) -> str:
        return shown_key(keymap, name, default)

    start = f"{key('daemons', 'd')}  then {key('daemon.start', 'S')} starts a daemon here"
    fields = [("key", text) for text in _keys(daemon, key("action.unblock", "u"), start, read_only)]
    if found.cause == "quitting" and not brief:  # whose numbers are told as what is the matter
        lines = map(client_line, daemon.clients())
        fields += _listed("waits for", lines, len(found.ends))
    if daemon.lost and brief:
        number = plural(len(daemon.lost), "client")
        fields.append(("lost server", f"{number}: each CUDA call gives error 806; {key('users', 'W')} shows them"))
    elif daemon.lost:
        lines = map(client_line, daemon.lost)
        fields += _listed("lost server", lines, len(daemon.lost))
        fields.append(("", f"each CUDA call of theirs gives error 806; {key('users', 'W')} shows them"))
    if daemon.servers:
        clients = sum(1 for _ in daemon.clients())
        before = f"{plural(len(daemon.servers), 'server')}, {plural(clients, 'client')}"
        fields.append(("before", f"{before}, {_as_of(found, snapshot)}; {key('blast', 'b')} shows them"))
    return fields


def _as_of(found: Condition, snapshot: Snapshot) -> str:
    """How old what is known of the daemon is."""
    if found.answered_at is None:
        return "from its logs only"
    clock = time.strftime("%H:%M:%S", time.localtime(found.answered_at))
    return f"as it said at {clock}, {format_age(snapshot.time - found.answered_at)} ago"


def _keys(daemon: Daemon, unblock: str, start: str, read_only: bool) -> Iterator[str]:
    found = daemon.condition
    if read_only:
        return
    if found.frees == "unblock" and not targets("unblock", daemon):
        if (why := left_out("unblock", daemon)) is not None:
            yield f"{unblock}  ends nobody: {why}"
    elif found.frees == "unblock":
        process = processes(daemon).get(found.ends[0])
        who = f" of {owner(process.user, process.uid)}: {process.command}" if process and process.user else ""
        yield f"{unblock}  ends process {found.ends[0].pid}{who}"
    elif found.frees == "daemon_start":
        yield start


def _listed(label: str, lines: Iterable[str], number: int) -> Iterator[tuple[str, str]]:
    for at, line in enumerate(lines):
        if at == _NAMED:
            yield "", f"and {number - _NAMED} more"
            return
        yield label if at == 0 else "", line
