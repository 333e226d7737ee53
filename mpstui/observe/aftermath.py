"""Who is hit by what went wrong: faults, lost servers, waiting users and processes outside MPS, as values; pure."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping

from mpstui.core.model import (
    Daemon,
    LostClient,
    OutsideClient,
    OutsideReason,
    PendingClient,
    ProcessKey,
    ServerFault,
    StartFailures,
)
from mpstui.core.text import printable
from mpstui.observe.sources import NvmlSample, ProcessFacts
from mpstui.observe.state import DaemonState, ServerRecord

Facts = Mapping[int, ProcessFacts]
_SERVER_PROGRAM = "nvidia-cuda-mps-server"
_DEFAULT_PIPE_DIR = "/tmp/nvidia-mps"  # noqa: S108 - MPS's own default


def server_fault(server: ServerRecord, facts: Facts) -> ServerFault | None:
    """The fault that keeps the server from taking new clients; None without one."""
    fault = server.fault
    if fault is None:
        return None
    left = sorted(fault.affected & server.clients.keys())
    asked = server.told_at is not None and (fault.time is None or server.told_at >= fault.time)
    return ServerFault(
        since=fault.time,
        named=fault.named,
        suspects=fault.suspects,
        affected=tuple(_key(pid, facts) for pid in left),
        ended=tuple(sorted(fault.hit - set(left))),
        devices=fault.devices,
        refused=fault.refused,
        confirmed=asked and server.told == "FAULT",
        ended_nearby=fault.ended_nearby,
    )


def blocker_key(state: DaemonState, facts: Facts) -> ProcessKey | None:
    """The client whose second terminate_client blocks the daemon (fact 16)."""
    pid = state.blocked_by
    return _key(pid, facts) if pid is not None and state.client(pid) is not None else None


def pending_clients(state: DaemonState, facts: Facts) -> tuple[PendingClient, ...]:
    """Who waits for a server, and for whose clients to end (fact 21), in the order in which they came. In multi-user
    mode one server serves all: nobody waits for it to end."""
    found = []
    elsewhere = ((None, number, event) for number, event in enumerate(state.pending_elsewhere, 1))
    for pid, number, event in (*((pid, 0, event) for pid, event in state.pending.items()), *elsewhere):
        ahead = next((s for s in state.servers.values() if s.uid != event.uid), None)
        never = state.failures is not None and ahead is not None and ahead.status == "INITIALIZING"
        if never or state.multiuser:
            ahead = None
        known = None if pid is None else facts.get(pid)
        found.append(
            PendingClient(
                key=None if pid is None else _key(pid, facts),
                uid=event.uid,
                user=known.user if known else None,
                command=known.command if known else None,
                since=event.time,
                server_pid=ahead.pid if ahead else None,
                waits_for=tuple(sorted(ahead.clients)) if ahead else (),
                elsewhere=number,
                local=known is not None,
            )
        )
    return tuple(found)


def start_failures(state: DaemonState) -> StartFailures | None:
    """The servers that did not start, since the last one that did."""
    found = state.failures
    if found is None:
        return None
    return StartFailures(found.count, found.since, found.last, found.server_pid, found.uid, found.reason)


def lost_clients(state: DaemonState, facts: Facts, there: Collection[int]) -> tuple[LostClient, ...]:
    """Processes that live on although their server has ended. ``facts`` are those of the processes that are proved to
    be the ones that are meant; ``there`` are the PIDs that somebody has here: those that nobody has are left out."""
    found = []
    for pid, (server, since) in state.lost.items():
        known = facts.get(pid)
        if known is not None:
            found.append(LostClient(known.key, server, known.uid, known.user, known.command, since))
        elif pid in there:
            found.append(LostClient(ProcessKey(pid), server, since=since, local=False))
    return tuple(found)


def ended_unseen(state: DaemonState, asked: Collection[int], facts: Facts, visible: bool) -> list[int]:
    """Who of ``asked``, by an old line of the log, waits for a server or has lost it, and ended before /proc was looked
    at: the PID is nobody's, or somebody else's. ``visible``: /proc shows the daemon, so it would show them."""
    waiting = [pid for pid, event in state.pending.items() if pid in facts and _another(facts[pid].uid, event.uid)]
    gone = (pid for pid in (*state.pending, *state.lost) if pid in asked and pid not in facts)
    return [*waiting, *gone] if visible else waiting


def _another(uid: int | None, other: int | None) -> bool:
    return uid is not None and other is not None and uid != other


def outside_pids(sample: NvmlSample | None, states: Iterable[DaemonState]) -> set[int]:
    """Processes that NVML lists as computing and not as clients of MPS, and that no log knows as a client."""
    if sample is None:
        return set()
    known: set[int] = set()
    for state in states:
        known |= state.pending.keys() | state.lost.keys() | state.servers.keys()
        for server in state.servers.values():
            known |= server.clients.keys()
    members = {pid for listing in sample.mps_clients.values() for pid in listing}
    # A device whose MPS clients are not known says nothing.
    listed = {pid for uuid, listing in sample.processes.items() if uuid in sample.mps_clients for pid in listing}
    return listed - members - known - {0}


def outside_clients(
    sample: NvmlSample | None, states: Iterable[DaemonState], daemons: Iterable[Daemon], facts: Facts
) -> tuple[OutsideClient, ...]:
    """Processes that compute on a device of a running daemon without MPS, each with the likely reason."""
    found: list[OutsideClient] = []
    running = [daemon for daemon in daemons if daemon.health in {"ok", "held", "blocked"} and daemon.ordinals]
    if sample is None or not running:
        return ()
    for pid in sorted(outside_pids(sample, states)):
        known = facts.get(pid)
        if known is None or _SERVER_PROGRAM in (known.command or ""):
            continue
        memory = {uuid: listing[pid] for uuid, listing in sample.processes.items() if pid in listing}
        beside = [daemon for daemon in running if memory.keys() & set(daemon.ordinals.values())]
        if not beside:
            continue
        reason, detail = _reason(known, beside)
        sizes = [size for size in memory.values() if size is not None]
        found.append(
            OutsideClient(
                key=known.key,
                device_uuids=tuple(sorted(memory)),
                gpu_memory=sum(sizes) if sizes else None,
                uid=known.uid,
                user=known.user,
                command=known.command,
                start_time=known.start_time,
                reason=reason,
                detail=detail,
            )
        )
    return tuple(found)


def _reason(facts: ProcessFacts, beside: list[Daemon]) -> tuple[OutsideReason, str]:
    """Why it is no client of any of these daemons, most likely: what is certain comes first."""
    started = [daemon.start_time for daemon in beside if daemon.start_time is not None]
    if facts.start_time is not None and len(started) == len(beside) and facts.start_time < min(started):
        return "before_daemon", "it was started before the daemon"
    environment = facts.environment
    if environment is None:
        return "unknown", "why is not known: its environment may not be read"
    asked = environment.get("CUDA_MPS_PIPE_DIRECTORY")
    if (asked or _DEFAULT_PIPE_DIR).rstrip("/") not in {os.fspath(daemon.pipe_dir) for daemon in beside}:
        if asked:
            return "pipe_dir", f"its CUDA_MPS_PIPE_DIRECTORY is {printable(asked, 120)}"
        return "pipe_dir", f"it has no CUDA_MPS_PIPE_DIRECTORY, so it looked for a daemon in {_DEFAULT_PIPE_DIR}"
    if visible := environment.get("CUDA_VISIBLE_DEVICES"):
        text = f"its CUDA_VISIBLE_DEVICES is {printable(visible, 120)}, which MPS reads in the daemon's own numbering"
        return "visible_devices", text
    if facts.uid is not None and all(
        not daemon.multiuser and daemon.uid not in {0, facts.uid, None} for daemon in beside
    ):
        return (
            "uid",
            f"it belongs to {facts.user or facts.uid}, and the daemon serves {beside[0].user or beside[0].uid}",
        )
    return "unknown", "why is not known: the daemon may not have run, or not have answered, when it started"


def _key(pid: int, facts: Facts) -> ProcessKey:
    known = facts.get(pid)
    return known.key if known else ProcessKey(pid)
