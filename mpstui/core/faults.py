"""What to say and do while a fatal fault lasts: who, since when, who must end, what to tell the owners. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Final, NamedTuple

from mpstui.core.model import Client, Daemon, Event, ProcessKey, Server, ServerFault, Snapshot
from mpstui.core.text import UNKNOWN, client_pids, format_age, have, owner, plural

NO_PROOF: Final = "which is not proof: with busy neighbours it often names the wrong one"
"""With idle neighbours it named the right one each time, with busy ones the wrong one in 13 of 23 (fact 36)."""

_NOT_SAID: Final = "the daemon has not confirmed it"
_NOT_ASKED: Final = "no daemon is here to confirm it"


def not_said(daemon: Daemon, fault: ServerFault) -> str:
    """Why a fault is the log's word alone, or no better than that, as a clause."""
    return _NOT_ASKED if daemon.by_logs else fault.doubt or _NOT_SAID


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
    named: str
    """Whom the log names and what that is worth, one sentence."""
    caveat: str
    """Who else it may have been, one sentence."""
    summary: str
    """One line for an alert."""
    brief: str
    """The same for a narrow screen."""
    notes: tuple[OwnerNote, ...] = ()
    """None while the fault is the log's word alone."""
    unsaid: str = ""
    """Why it is, as a clause; empty where it is not."""
    xids: tuple[Event, ...] = ()
    """What the driver said at the same moment: kind, GPU and address, and a process that is no proof (fact 37)."""


def fault_reports(daemon: Daemon, snapshot: Snapshot) -> tuple[FaultReport, ...]:
    """A report for each server of ``daemon`` that is in FAULT and whose log said why."""
    return tuple(
        _report(server, server.fault, daemon, snapshot) for server in daemon.servers if server.fault is not None
    )


def _report(server: Server, fault: ServerFault, daemon: Daemon, snapshot: Snapshot) -> FaultReport:
    """``snapshot`` gives the present time and the name of the node."""
    affected = set(fault.affected)
    left = tuple(client for client in server.clients if client.key in affected)
    ago = "" if fault.since is None else f" {format_age(snapshot.time - fault.since)} ago"
    refused = f"; {fault.refused} refused so far" if fault.refused else ""
    since = "" if fault.since is None else f", {format_age(snapshot.time - fault.since)} ago"
    xids = xids_of(fault.since, fault.devices, snapshot.events)
    ends = f"{plural(len(affected), 'client')} {have(len(affected))} to end before it takes new ones"
    waits = ends if affected else "it is recovering"
    summary = f"server {server.pid} had a fatal fault{ago}: {waits}{refused}"
    brief = f"server {server.pid}{since}: {len(affected)} to end; {fault.refused} refused"
    if not fault.confirmed:  # whoever writes the log may say what he likes: nobody is told to end anything for it
        summary = f"server.log reports a fatal fault of server {server.pid}{ago}; {not_said(daemon, fault)}"
        brief = f"server {server.pid}, by its log; {not_said(daemon, fault)}"
    return FaultReport(
        server_pid=server.pid,
        fault=fault,
        left=left,
        unhurt=tuple(client for client in server.clients if client.key not in affected),
        named=named_text(fault),
        caveat=caveat_text(fault),
        summary=summary,
        brief=brief,
        notes=tuple(_notes(left, fault, snapshot, xids)) if fault.confirmed else (),
        unsaid="" if fault.confirmed else not_said(daemon, fault),
        xids=xids,
    )


MOMENT: Final = 2.0
"""Seconds between a line of server.log and the driver's word on the same fault: 0.02 seen (fact 38), and the kernel's
clock is another one."""


def xids_of(when: float | None, devices: Collection[str], events: Iterable[Event]) -> tuple[Event, ...]:
    """The Xids of the moment of a fault on these devices, but for those on other GPUs, and those that are nearer to
    another fault among the events that may have them."""
    if when is None:
        return ()
    told = tuple(events)
    xids = [e for e in told if e.kind == "xid" and e.time is not None and abs(e.time - when) <= MOMENT]
    found = [e for e in xids if _may_share(e.devices, devices)]
    faults = [(e.time, e.devices) for e in told if e.kind == "fatal_fault" and e.time is not None] if found else []
    return tuple(
        e
        for e in found
        if all(
            abs(e.time - when) <= abs(e.time - other)  # type: ignore[operator]
            for other, there in faults
            if _may_share(e.devices, there)
        )
    )


def _may_share(xid: Collection[str], fault: Collection[str]) -> bool:
    """Whether both may be on one GPU: what the server calls by its own numbers may be any (fact 11)."""
    known = all(not device.isdecimal() for device in (*xid, *fault))
    return not known or not xid or not fault or not set(xid).isdisjoint(fault)


def named_text(fault: ServerFault) -> str:
    """Whom the log names, and what that is worth (facts 36 and 37)."""
    if not fault.named and fault.cut:
        return "The begin of the fault is not in server.log: whom that names is not known."
    if not fault.named:
        return "server.log names no client: whose fault it was is not known."
    return f"server.log names {client_pids(fault.named)}, {NO_PROOF}."


def caveat_text(fault: ServerFault) -> str:
    """Who else it may have been: one killed while busy (fact 17), otherwise any that computed on those GPUs."""
    if fault.ended_nearby:
        who = client_pids(fault.ended_nearby)
        them = "one of them" if len(fault.ended_nearby) > 1 else "it"
        return (
            f"{who[0].upper()}{who[1:]} ended at the same moment: if {them} was killed while busy, without "
            "terminate_client, that can be the cause."
        )
    if (many := len(fault.suspects)) > 1:
        return f"It may have been any of {many} clients with a context on its GPUs: all get the same error at once."
    return (
        "All clients that were hit get the same error at the same moment, so the error does not show which client "
        "caused the fault."
    )


def _notes(
    left: tuple[Client, ...], fault: ServerFault, snapshot: Snapshot, xids: tuple[Event, ...]
) -> Iterator[OwnerNote]:
    owners: dict[tuple[int | None, str | None], list[Client]] = {}
    for client in left:
        owners.setdefault((client.uid, client.user), []).append(client)
    for (uid, user), clients in owners.items():
        yield OwnerNote(user, uid, tuple(c.key for c in clients), _note(user, uid, clients, fault, snapshot, xids))


def _note(
    user: str | None,
    uid: int | None,
    clients: list[Client],
    fault: ServerFault,
    snapshot: Snapshot,
    xids: tuple[Event, ...],
) -> str:
    when = "" if fault.since is None else f" at {datetime.fromtimestamp(fault.since):%Y-%m-%d %H:%M:%S}"
    mine = {client.pid for client in clients}
    lines = [
        f"To {'the owner' if user is None and uid is None else owner(user, uid)}:",
        f"A fatal GPU fault{when} on {snapshot.host or 'this node'} took the CUDA contexts of your processes:",
        *(f"  {client.pid}  {client.command or UNKNOWN}" for client in clients),
        *(f"The driver said: {xid.detail}." for xid in xids),
        *_why(mine & set(fault.named), fault),
        "Their GPU work is lost, and every CUDA call of theirs fails from now on.",
    ]
    lines.append("Please end them: until the last one has ended, nobody can start GPU work on this server.")
    lines.append("They may be ended in any way, by kill -9 too.")
    lines.append("Do not kill a client that is not listed here while its kernel runs:")
    lines.append("Ctrl-C or a kill can then take the contexts of more clients.")
    lines.append("Let it finish its GPU work first (cudaDeviceSynchronize).")
    return "\n".join(lines)


def _why(own: set[int], fault: ServerFault) -> Iterator[str]:
    """What hit an owner's processes, ``own`` of which the log names; as far as the log can be believed."""
    if own:
        yield f"server.log names your {client_pids(sorted(own))}, {NO_PROOF}."
    else:
        yield named_text(fault)
    if fault.ended_nearby:
        yield caveat_text(fault)
    yield "Run it alone under compute-sanitizer to find out whether yours makes such faults."
