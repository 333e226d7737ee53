"""What a daemon has and what it should have: what is in force, the drift, and the least steps from one to the other.

Pure: works on a snapshot's daemon; carrying the steps out is :mod:`mpstui.plan.apply`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from mpstui.core.model import Client, Daemon, Server, Snapshot
from mpstui.core.text import UNKNOWN, format_percentage, format_size, path_text, same_limit, same_percentage
from mpstui.operations.check import client_line
from mpstui.operations.types import Request
from mpstui.plan.amounts import PlanError, limit_text
from mpstui.plan.profile import DaemonProfile, Limits
from mpstui.plan.types import Plan

_PRIORITIES = {0: "normal", 1: "below normal"}


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting that is not as it should be."""

    what: str
    """``default active thread percentage``, ``memory limit of server 634 on device 0``."""
    wanted: str
    found: str
    request: Request
    """What would set it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One command of an apply, and the one that takes it back."""

    difference: Difference
    undo: Request | None
    """None where what was before is not known."""
    undo_note: str = ""
    """Why going back is not quite what was before; empty where it is."""


def limits_of_plan(plan: Plan) -> Limits:
    """What the daemon must allow for ``plan``: the largest of its shares. The smaller ones are the clients' own to set,
    since MPS takes the lower of the two.
    """
    limits = [share.memory for share in plan.shares]
    memory = max((limit for limit in limits if limit is not None), default=None) if None not in limits else None
    device = plan.target.uuid
    return Limits(
        max(share.percentage for share in plan.shares),
        None,
        {device: memory} if device is not None and memory is not None else {},
    )


def in_force(daemon: Daemon) -> DaemonProfile:
    """The daemon's settings as a profile. ``server_limits`` where the (first) server's differ from the default.

    What a profile cannot say, a server without the default's memory limit or several servers that differ, is the
    drift that is there at once.
    """
    default = Limits(
        daemon.default_active_thread_percentage,
        daemon.default_client_priority,
        _by_uuid(daemon, daemon.default_pinned_mem_limits),
    )
    own = None
    if daemon.servers:
        server = daemon.servers[0]
        percentage = server.active_thread_percentage
        if percentage is not None and same_percentage(percentage, default.active_thread_percentage):
            percentage = None
        memory = {
            device: limit
            for device, limit in _by_uuid(daemon, server.pinned_mem_limits).items()
            if default.pinned_mem_limits.get(device) != limit
        }
        own = Limits(percentage, None, memory) if percentage is not None or memory else None
    return DaemonProfile(
        daemon.pipe_dir,
        daemon.log_dir,
        multi_user=bool(daemon.multiuser),
        limits=default,
        server_limits=own,
    )


def drift(daemon: Daemon, wanted: DaemonProfile) -> tuple[Difference, ...]:
    """Where the daemon, or a server of it, is not as ``wanted``. Only what ``wanted`` says something about counts.

    Raises PlanError for a device that the daemon does not have, and for one that is named twice with different limits.
    """
    own = wanted.server_limits
    wanted = replace(
        wanted,
        limits=_with_ordinals(daemon, wanted.limits),
        server_limits=None if own is None else _with_ordinals(daemon, own),
    )
    return (
        *_differences(daemon, None, wanted.limits),
        *(d for server in daemon.servers for d in _differences(daemon, server, wanted.for_servers)),
    )


def waits_for_a_server(daemon: Daemon, wanted: DaemonProfile) -> bool:
    """Whether ``wanted`` has limits for servers only, and none runs that could take them."""
    return wanted.server_limits is not None and not daemon.servers


def steps(snapshot: Snapshot, pipe_dir: Path, wanted: DaemonProfile) -> tuple[Step, ...]:
    """The least commands that bring the daemon from what it has to ``wanted``; none where nothing differs.

    Raises PlanError.
    """
    daemon = snapshot.daemon(pipe_dir)
    if daemon is None:
        raise PlanError(f"no daemon at {path_text(pipe_dir)}")
    return tuple(_step(daemon, difference) for difference in drift(daemon, wanted))


class Beside(NamedTuple):
    """Devices that a plan or a profile does not mean, and whom its commands reach there all the same."""

    devices: tuple[str, ...]
    """UUIDs."""
    clients: tuple[Client, ...]
    """Those with a context there now; they get it when they start anew, and so does whoever comes later."""


def reached_beside(daemon: Daemon, wanted: DaemonProfile, planned: Sequence[Step]) -> Beside | None:
    """A percentage holds for all devices of the daemon, whichever ``wanted`` is for; None where it is for all of them,
    and where no percentage is set."""
    known = {**daemon.ordinals, **{uuid: uuid for uuid in daemon.ordinals.values()}}
    meant = {known[device] for device in wanted.devices if device in known}
    others = tuple(uuid for uuid in daemon.ordinals.values() if uuid not in meant)
    if (
        not meant
        or not others
        or not any(step.difference.request.action == "set_active_thread_percentage" for step in planned)
    ):
        return None
    return Beside(others, tuple(c for c in daemon.clients() if not c.device_uuids.isdisjoint(others)))


def beside_words(beside: Beside, snapshot: Snapshot) -> tuple[str, tuple[str, ...]]:
    """A sentence, and one line for each client."""
    found = [device for uuid in beside.devices if (device := snapshot.device(uuid)) is not None]
    names = [str(device.index) for device in found if device.index is not None]
    if len(names) < len(beside.devices):
        names = list(beside.devices)
    where = f"GPU{'s' if len(names) > 1 else ''} {', '.join(names)}"
    count = len(beside.clients)
    who = f"{count} client{'' if count == 1 else 's'} there now" if count else "no client is there now"
    return f"A percentage holds for all GPUs of the daemon: clients that start on {where} get it too ({who}).", tuple(
        client_line(client) for client in beside.clients
    )


def _differences(daemon: Daemon, server: Server | None, wanted: Limits) -> list[Difference]:
    found: list[Difference] = []
    pid = None if server is None else server.pid
    whose = "default" if server is None else f"server {server.pid}:"

    def add(action: str, what: str, text: str, value: str, present: str, device: str | None = None) -> None:
        request = Request(action, daemon.pipe_dir, value, pid, device)
        found.append(Difference(f"{whose} {what}", text, present, request))

    percentage = wanted.active_thread_percentage
    today = server.active_thread_percentage if server else daemon.default_active_thread_percentage
    if percentage is not None and not same_percentage(percentage, today):
        add(
            "set_active_thread_percentage",
            "active thread percentage",
            format_percentage(percentage),
            f"{percentage:g}",
            format_percentage(today),
        )
    limits = server.pinned_mem_limits if server else daemon.default_pinned_mem_limits
    for ordinal, limit in wanted.pinned_mem_limits.items():
        if not same_limit(limit, limits.get(ordinal)):
            add(
                "set_pinned_mem_limit",
                f"memory limit on device {ordinal}",
                format_size(limit),
                limit_text(limit),
                format_size(limits[ordinal]) if ordinal in limits else "none",
                ordinal,
            )
    priority = wanted.client_priority
    if server is None and priority is not None and daemon.default_client_priority != priority:
        present = daemon.default_client_priority
        add(
            "set_client_priority",
            "client priority",
            _PRIORITIES[priority],
            str(priority),
            UNKNOWN if present is None else _PRIORITIES.get(present, str(present)),
        )
    return found


def _with_ordinals(daemon: Daemon, limits: Limits) -> Limits:
    """The same by the daemon's ordinals: a profile may name one device by ordinal here and by UUID there."""
    found: dict[str, int] = {}
    for device, limit in limits.pinned_mem_limits.items():
        ordinal = ordinal_of(daemon, device)
        if found.setdefault(ordinal, limit) != limit:
            raise PlanError(f"device {ordinal} ({daemon.ordinals[ordinal]}) is given two memory limits")
    return replace(limits, pinned_mem_limits=found)


def ordinal_of(daemon: Daemon, device: str) -> str:
    """The daemon's ordinal of a device given by ordinal or UUID. Raises PlanError."""
    if device in daemon.ordinals:
        return device
    ordinal = next((o for o, uuid in daemon.ordinals.items() if uuid == device), None)
    if ordinal is None:
        known = ", ".join(f"{o} ({uuid})" for o, uuid in daemon.ordinals.items()) or "none known"
        raise PlanError(f"the daemon at {path_text(daemon.pipe_dir)} has no device {device}; it has: {known}")
    return ordinal


def _step(daemon: Daemon, difference: Difference) -> Step:
    request = difference.request
    server = None if request.server_pid is None else daemon.find_server(request.server_pid)

    def back(value: str) -> Step:
        return Step(difference, Request(request.action, request.pipe_dir, value, request.server_pid, request.device))

    if request.action == "set_active_thread_percentage":
        before = server.active_thread_percentage if server else daemon.default_active_thread_percentage
        return Step(difference, None, "what it was is not known") if before is None else back(f"{before:g}")
    if request.action == "set_client_priority":
        priority = daemon.default_client_priority
        return Step(difference, None, "what it was is not known") if priority is None else back(str(priority))
    limits = server.pinned_mem_limits if server else daemon.default_pinned_mem_limits
    ordinal = request.device or ""
    return back(limit_text(limits[ordinal]) if ordinal in limits else "none")


def _by_uuid(daemon: Daemon, limits: Mapping[str, int]) -> dict[str, int]:
    """Without the limits of devices that are not there, which MPS takes too (fact 5): they bind nobody."""
    return {daemon.ordinals[device]: limit for device, limit in limits.items() if device in daemon.ordinals}
