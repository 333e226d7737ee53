"""What a daemon has and what it should have: what is in force, and the drift.

Pure: works on a snapshot's daemon; carrying the steps out is :mod:`mpstui.operations.apply`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from mpstui.core.model import Daemon, Server, Snapshot
from mpstui.core.requests import Request
from mpstui.core.text import (
    PRIORITIES,
    UNKNOWN,
    device_keys,
    format_percentage,
    format_size,
    path_text,
    same_limit,
    same_percentage,
)
from mpstui.plan.amounts import PlanError, limit_text
from mpstui.plan.profile import DaemonProfile, Limits, Profile
from mpstui.plan.types import Plan

WAITS = "no server runs: limits that are for servers alone are set once one does; apply again then"


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting that is not as it should be."""

    what: str
    """``default active thread percentage``, ``memory limit of server 634 on device 0``."""
    wanted: str
    found: str
    request: Request
    """What would set it."""


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


def as_it_runs(
    daemon: Daemon, snapshot: Snapshot, cpus: frozenset[int] | None, old: Profile | None = None
) -> DaemonProfile:
    """The daemon with its limits, its devices where they are not all, its CPUs, and the shares that it had."""
    found = replace(in_force(daemon), cpus=cpus)
    uuids = tuple(daemon.ordinals.values())
    if len(uuids) < len(snapshot.devices):
        found = replace(found, devices=uuids)
    before = next((d for d in old.daemons if d.pipe_dir in {None, daemon.pipe_dir}), None) if old else None
    return replace(found, shares=before.shares) if before else found


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
            PRIORITIES[priority],
            str(priority),
            UNKNOWN if present is None else PRIORITIES.get(present, str(present)),
        )
    return found


_FOR_MEMORY: Final = (
    ("set_default_device_pinned_mem_limit", "memory limits are"),
    ("device_query", "device_query, which tells the daemon's devices apart, is"),
)
"""Commands without which no memory limit can be set on a node of several devices, and what is then said."""


def _with_ordinals(daemon: Daemon, limits: Limits) -> Limits:
    """The same by the daemon's ordinals: a profile may name one device by ordinal here and by UUID there."""
    found: dict[str, int] = {}
    for device, limit in limits.pinned_mem_limits.items():
        ordinal = ordinal_of(daemon, device)
        if found.setdefault(ordinal, limit) != limit:
            raise PlanError(f"device {ordinal} ({daemon.ordinals[ordinal]}) is given two memory limits")
    return replace(limits, pinned_mem_limits=found)


def ordinal_of(daemon: Daemon, device: str) -> str:
    """The daemon's ordinal of a device given by ordinal, UUID or the first characters of one. Raises PlanError."""
    found = device_keys(device, daemon.ordinals)
    if len(found) != 1:
        for command, what in _FOR_MEMORY if not daemon.ordinals else ():
            if (why := daemon.lacking(command)) is not None:
                raise PlanError(f"{what} {why}: leave the memory limits out")
        known = ", ".join(f"{o} ({uuid})" for o, uuid in daemon.ordinals.items()) or "none known"
        what = f"{len(found)} devices that begin with {device}" if found else f"no device {device}"
        raise PlanError(f"the daemon at {path_text(daemon.pipe_dir)} has {what}; it has: {known}")
    return found[0]


def _by_uuid(daemon: Daemon, limits: Mapping[str, int]) -> dict[str, int]:
    """Without the limits of devices that are not there, which MPS takes too (fact 5): they bind nobody."""
    return {daemon.ordinals[device]: limit for device, limit in limits.items() if device in daemon.ordinals}
