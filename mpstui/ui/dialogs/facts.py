"""All that is known of a client, a server, a device, a daemon or an event, as rows. Pure: a snapshot in, rows out.

The rows are those of the table of fields; where a client's limits come from and the last events are added to them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from mpstui.core.cells import no_readings, with_indices
from mpstui.core.model import Client, Daemon, Event, ProcessKey, Server, Snapshot
from mpstui.core.text import UNKNOWN, format_size, owner, path_text
from mpstui.fields import CLIENT, DAEMON, DEVICE, EVENT, SERVER, Fact, Thing, View, default_facts
from mpstui.ui.dialogs.widgets import DetailRow, Heading

Rows = list[DetailRow | Heading]
LAST_EVENTS = 8
_CLOCK = 10
"""Cells in which a time is told to the second."""
_STYLES = {"good": "$text-success", "warn": "$text-warning", "bad": "$text-error"}


def _client_of(daemon: Daemon, key: ProcessKey) -> Client | None:
    """The client, though more of its start may be known than when it was opened, or less."""
    now = key.among({client.key for client in daemon.clients()})
    return None if now is None else daemon.find_client(now)


def rows_of(
    snapshot: Snapshot, kind: str, identity: Hashable, environment: Mapping[str, str] | None = None
) -> tuple[str, Rows] | None:
    """Title and rows of one thing; None where it is not in the snapshot.

    ``kind`` and ``identity``: ``client`` and ``server`` by ProcessKey, ``device`` by UUID, ``daemon`` by pipe
    directory, ``limit`` by server PID or None for the defaults, ``event`` by itself or by (time, kind, pid, server PID,
    context id, raw line). ``environment``: a client's own CUDA_* variables, None where they are not known.
    """
    for daemon in snapshot.daemons:
        view = View.of(snapshot, daemon)
        if kind == "client" and isinstance(identity, ProcessKey) and (client := _client_of(daemon, identity)):
            return f"Client {client.pid}", _client(view, daemon, client, environment)
        if kind == "server" and (server := next((s for s in daemon.servers if s.key == identity), None)):
            return f"Server {server.pid}", _server(view, daemon, server)
        if kind == "limit" and isinstance(identity, int) and (server := daemon.find_server(identity)):
            return f"Server {server.pid}", _server(view, daemon, server)
        if kind == "daemon" and daemon.pipe_dir == identity:
            events = _last_events(view, daemon, lambda event: event.pipe_dir is not None)
            return "Control daemon", _rows(DAEMON, daemon, view) + events
    view = View.of(snapshot)
    if kind == "device" and (device := snapshot.device(str(identity))):
        why = [DetailRow("no readings", no_readings(snapshot.nvml_detail))] if snapshot.nvml_detail else []
        first, others = _on_device(snapshot, device.uuid)
        rows = [*first, *_rows(DEVICE, device, view), *others, *why]
        return f"Device {UNKNOWN if device.index is None else device.index}", rows
    if kind == "limit" and identity is None and snapshot.daemons:
        rows = []
        for daemon in snapshot.daemons:
            facts = default_facts(daemon, View.of(snapshot, daemon))
            rows += [Heading(path_text(daemon.pipe_dir)), *map(_row, facts)]
        return "Default limits", rows
    event = identity if isinstance(identity, Event) else None
    if kind == "event" and event is None:
        event = next((e for e in reversed(snapshot.events) if e.key == identity), None)
    return None if event is None else ("Event", _rows(EVENT, event, view))


_FIRST = 6
"""Clients of a device that come before what is said of it."""
_OTHERS = "Its other clients"


def _on_device(snapshot: Snapshot, uuid: str) -> tuple[Rows, Rows]:
    """The clients that are on a device, those that hold most of its memory first; memory on this device alone. Some
    come before what is said of the device, the others behind it."""
    here = [each for daemon in snapshot.daemons for each in daemon.clients() if uuid in each.device_uuids]
    here.sort(key=lambda each: (-each.gpu_memory.get(uuid, -1), each.pid))
    rows = []
    for each in here:
        lead = f"{format_size(each.gpu_memory.get(uuid)):>9}  {owner(each.user, each.uid)}  "
        rows.append(DetailRow(str(each.pid), f"{lead}{each.command or UNKNOWN}", hang=len(lead)))
    first = rows if len(rows) <= _FIRST + 1 else rows[:_FIRST]  # the line that points below would have room for one
    others = rows[len(first) :]
    more = [DetailRow("", f"{len(others)} more below: “{_OTHERS}”", "dim")] if others else []
    return (
        [Heading("Its clients, by their memory on this device"), *first, *more, DetailRow()] if first else [],
        [DetailRow(), Heading(_OTHERS), *others] if others else [],
    )


def _row(fact: Fact) -> DetailRow:
    return DetailRow(fact.label, fact.text, " ".join(_STYLES.get(name, name) for name in fact.style.split()))


def _rows(
    thing: Thing[Any], item: Any, view: View, before: Mapping[str, Sequence[DetailRow | Heading]] | None = None
) -> Rows:
    """The details of the table, a blank line before each heading; ``before``: rows before that of a group."""
    rows: Rows = []
    for group, heading, facts in thing.details(item, view):
        rows += (before or {}).get(group, ())
        if heading and (facts or group in _ALWAYS):
            rows += [*([DetailRow()] if rows else ()), Heading(heading)]
        rows += map(_row, facts)
    return rows


_ALWAYS = frozenset({"contexts"})
"""Groups whose heading says something where there is nothing below it."""


def _client(view: View, daemon: Daemon, client: Client, environment: Mapping[str, str] | None) -> Rows:
    from mpstui.ui.dialogs.chains import chain_rows  # imported when a client's details are opened

    chains = chain_rows(view.snapshot, daemon, client, environment)
    rows = _rows(CLIENT, client, view, {"contexts": chains})
    return rows + _last_events(view, daemon, lambda event: event.pid == client.pid)


def _server(view: View, daemon: Daemon, server: Server) -> Rows:
    rows = _rows(SERVER, server, view)
    return rows + _last_events(view, daemon, lambda event: event.server_pid == server.pid)


def _last_events(view: View, daemon: Daemon, about: Callable[[Event], bool]) -> Rows:
    """Of its own daemon: another one's may have the number too, or say what it likes."""
    rows: Rows = [DetailRow(), Heading("Last events")]
    its = [event for event in view.snapshot.events if event.pipe_dir in {None, daemon.pipe_dir} and about(event)]
    shown = its[-LAST_EVENTS:]
    widest = max((len(event.kind) for event in shown), default=0)
    for event in shown:
        what = with_indices(event.sentence(most=0) or event.raw, view.indices)
        clock, kind = ("".join(text for text, _ in EVENT[name].cell(event, view, _CLOCK)) for name in ("time", "kind"))
        rows.append(DetailRow(clock, f"{kind:{widest}}  {what}"))
    return rows if len(rows) > 2 else [*rows, DetailRow("", "none seen")]
