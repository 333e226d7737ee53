"""What to say and do while a fatal fault lasts: who, since when, who must end, what to tell the owners. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from mpstui.model import Client, Daemon, ProcessKey, Server, ServerFault, Snapshot
from mpstui.text import UNKNOWN, format_age


class OwnerNote(NamedTuple):
    """A ready-made message to one user whose processes were hit."""

    user: str | None
    uid: int | None
    clients: tuple[ProcessKey, ...]
    text: str


class FaultReport(NamedTuple):
    """A server's fault as a person needs it."""

    server_pid: int
    fault: ServerFault
    left: tuple[Client, ...]
    """Clients that were hit and live: the server takes no new one until the last of them has ended (fact 18)."""
    unhurt: tuple[Client, ...]
    """Clients of the server that run on."""
    culprit: str
    """Whom the log blames, one sentence."""
    caveat: str
    """What the log cannot tell, one sentence (fact 17)."""
    summary: str
    """One line for an alert."""
    brief: str
    """The same for a narrow screen, the culprit too."""
    notes: tuple[OwnerNote, ...] = ()


def fault_reports(daemon: Daemon, snapshot: Snapshot) -> tuple[FaultReport, ...]:
    """A report for each server of ``daemon`` that is in FAULT and whose log said why."""
    return tuple(fault_report(server, server.fault, snapshot) for server in daemon.servers if server.fault is not None)


def fault_report(server: Server, fault: ServerFault, snapshot: Snapshot) -> FaultReport:
    """``snapshot`` gives the present time and the name of the node."""
    affected = set(fault.affected)
    left = tuple(client for client in server.clients if client.key in affected)
    culprit = culprit_text(fault)
    ago = "" if fault.since is None else f" {format_age(snapshot.time - fault.since)} ago"
    refused = f"; {fault.refused} refused so far" if fault.refused else ""
    since = "" if fault.since is None else f", {format_age(snapshot.time - fault.since)} ago"
    waits = f"{_count(len(affected))} to end before it takes new ones" if affected else "it is recovering"
    return FaultReport(
        server_pid=server.pid,
        fault=fault,
        left=left,
        unhurt=tuple(client for client in server.clients if client.key not in affected),
        culprit=culprit,
        caveat=caveat_text(fault),
        summary=f"server {server.pid} had a fatal fault{ago}: {waits}{refused}",
        brief=f"server {server.pid}{since}{_seen_in(fault)}: {len(affected)} to end; {fault.refused} refused",
        notes=tuple(_notes(left, fault, snapshot)),
    )


def culprit_text(fault: ServerFault) -> str:
    """Whom the log names."""
    if not fault.blamed:
        return "The log does not say in which client the fault was."
    return f"The log saw the fault in {_named(fault.blamed)}."


def caveat_text(fault: ServerFault) -> str:
    """How far the log may be believed. A bare ``kill -9`` of a busy client is blamed on its neighbour (fact 17)."""
    if fault.ended_nearby:
        who = _named(fault.ended_nearby)
        return (
            f"{who[0].upper()}{who[1:]} ended at the same moment: if it was killed while busy, without "
            "terminate_client, that was the cause and whoever the log blames is innocent."
        )
    return (
        "The log would blame an innocent neighbour had a busy client been killed without terminate_client; "
        "it tells of none that ended at that moment."
    )


def _notes(left: tuple[Client, ...], fault: ServerFault, snapshot: Snapshot) -> Iterator[OwnerNote]:
    owners: dict[tuple[int | None, str | None], list[Client]] = {}
    for client in left:
        owners.setdefault((client.uid, client.user), []).append(client)
    for (uid, user), clients in owners.items():
        yield OwnerNote(user, uid, tuple(c.key for c in clients), _note(user, uid, clients, fault, snapshot))


def _note(user: str | None, uid: int | None, clients: list[Client], fault: ServerFault, snapshot: Snapshot) -> str:
    when = "" if fault.since is None else f" at {datetime.fromtimestamp(fault.since):%Y-%m-%d %H:%M:%S}"
    mine = {client.pid for client in clients}
    blamed = mine & set(fault.blamed)
    lines = [
        f"To {user or (f'UID {uid}' if uid is not None else 'the owner')}:",
        f"A fatal GPU fault{when} on {snapshot.host or 'this node'} took the CUDA contexts of your processes:",
        *(f"  {client.pid}  {client.command or UNKNOWN}" for client in clients),
        _why(blamed, fault),
        "Their GPU work is lost, and every CUDA call of theirs fails from now on.",
    ]
    lines.append("Please end them: until the last one has ended, nobody can start GPU work on this server.")
    return "\n".join(lines)


def _why(own: set[int], fault: ServerFault) -> str:
    """What hit an owner's processes, of which the log blames ``own``; as far as the log can be believed (fact 17)."""
    if not fault.blamed:
        return "The log does not say in which process it was; yours share a GPU with it, or with others that it hit."
    whose = f"your {_named(tuple(sorted(own)))}" if own else _named(fault.blamed)
    said = f"The log saw it in {whose}"
    if fault.ended_nearby:
        said += f", which may be innocent: {_named(fault.ended_nearby)} ended at the same moment"
    elif own:
        said += ", as it would had a busy neighbour been killed with kill -9 at that moment"
    return f"{said}." if own else f"{said}; yours share a GPU with it, or with others that it hit."


def _named(pids: tuple[int, ...]) -> str:
    return f"client{'s' if len(pids) > 1 else ''} {', '.join(map(str, pids))}"


def _seen_in(fault: ServerFault) -> str:
    if not fault.blamed:
        return ""
    return f", seen in {fault.blamed[0]}{f' +{len(fault.blamed) - 1}' if len(fault.blamed) > 1 else ''}"


def _count(number: int) -> str:
    return f"{number} client{'s have' if number != 1 else ' has'}"
