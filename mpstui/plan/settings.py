"""What a daemon has and what it should have: what is in force, and the drift.

Pure: works on a snapshot's daemon; carrying the steps out is :mod:`mpstui.operations.apply`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from mpstui.core.late import dataclass
from mpstui.core.model import Daemon, Server, SmPartition, Snapshot
from mpstui.core.requests import LATER, Request
from mpstui.core.text import (
    PRIORITIES,
    UNKNOWN,
    device_keys,
    format_percentage,
    format_size,
    is_own_number,
    owner,
    path_text,
    plural,
    same_limit,
    same_percentage,
)
from mpstui.core.v3 import DEFAULT, FEATURES, Namespace, V3Node
from mpstui.plan.amounts import PlanError, limit_text
from mpstui.plan.exports import ShareSettings
from mpstui.plan.profile import DaemonProfile, Limits, PartitionProfile, Profile, ServerProfile
from mpstui.plan.types import Plan

WAITS = "no server runs, so the server limits are not set; start a server, then apply again"


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
    if daemon.named_servers:
        return DaemonProfile(
            daemon.pipe_dir,
            daemon.log_dir,
            multi_user=bool(daemon.multiuser),
            protocol=3,
            servers=_named_servers(daemon.v3 or V3Node()),
            features=tuple(name for name in FEATURES if (daemon.v3 or V3Node()).switched(name)),
        )
    static = bool(daemon.static_partitioning)  # where percentages have no effect
    default = Limits(
        None if static else daemon.default_active_thread_percentage,
        daemon.default_client_priority,
        _by_uuid(daemon, daemon.default_pinned_mem_limits),
    )
    own = None
    if daemon.servers:
        server = daemon.servers[0]
        percentage = None if static else server.active_thread_percentage
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
        static=static,
        partitions=tuple(PartitionProfile(p.device, p.chunks) for p in _made(daemon) if p.chunks),
    )


def _made(daemon: Daemon) -> tuple[SmPartition, ...]:
    return daemon.partitions.partitions if daemon.partitions is not None else ()


def _named_servers(node: V3Node) -> tuple[ServerProfile, ...]:
    return tuple(
        ServerProfile(
            server.name,
            server.uid,
            tuple(device.strip() for device in (server.allowed_devices or "").split(",") if device.strip()),
            tuple(
                ShareSettings(s.name, s.active_thread_percentage, _whole(s.memory), s.client_priority)
                for s in node.of(server.name)
            ),
            tuple(
                PartitionProfile(p.device, p.chunks, p.name, p.include_remainder or None)
                for p in node.partitions
                if p.server == server.name and p.name and p.device and p.chunks and p.status != "unallocated"
            ),
        )
        for server in node.servers
    )


def _whole(size: int | None) -> int | None:
    """What a limit can say: whole MiB."""
    return size if size is not None and size >= 1 << 20 and not size % (1 << 20) else None


def unsaid(daemon: Daemon, made: DaemonProfile) -> tuple[str, ...]:
    """What the daemon has and ``made``, which was made of it, does not say, a sentence each."""
    node, table = daemon.v3, daemon.partitions
    if daemon.named_servers:
        if node is None:
            return ("which servers it has is not known",)
        found = [
            f"the {what} list is not in it, since it could not be read: {why}" for what, why in node.not_read.items()
        ]
        found += [
            f"the memory limit of {space.server}/{space.name} is {space.pinned_mem_limit}; a profile cannot store this"
            for space in node.namespaces
            if space.pinned_mem_limit is not None and _whole(space.memory) is None
        ]
        return (*found, *(f"not understood, and not in it: {line}" for line in node.not_understood))
    if daemon.static_partitioning and table is None:
        return (f"which partitions it has is not known: {daemon.partitions_detail or 'they were not read'}",)
    odd = table.not_understood if table is not None else ()
    return (
        *(f"{d.what} is {d.found}; a profile cannot store this" for d in drift(daemon, made)),
        *(f"not understood, and not in it: {line}" for line in odd),
    )


def as_it_runs(
    daemon: Daemon, snapshot: Snapshot, cpus: frozenset[int] | None, old: Profile | None = None
) -> DaemonProfile:
    """The daemon with its limits, its devices where they are not all, its CPUs, and the shares that it had."""
    found = replace(in_force(daemon), cpus=cpus)
    uuids = tuple(daemon.ordinals.values())
    # Protocol 3 tells those that its servers have alone, and each server says which itself.
    if not daemon.named_servers and len(uuids) < len(snapshot.devices):
        found = replace(found, devices=uuids)
    before = next((d for d in old.daemons if d.pipe_dir in {None, daemon.pipe_dir}), None) if old else None
    return replace(found, shares=before.shares) if before else found


def drift(daemon: Daemon, wanted: DaemonProfile) -> tuple[Difference, ...]:
    """Where the daemon, or a server of it, is not as ``wanted``. Only what ``wanted`` says something about counts.

    Raises PlanError for a device that the daemon does not have, and for one that is named twice with different limits.
    """
    if wanted.named_servers:
        return tuple(_of_v3(daemon, wanted))
    own = wanted.server_limits
    wanted = replace(
        wanted,
        limits=_with_ordinals(daemon, wanted.limits),
        server_limits=None if own is None else _with_ordinals(daemon, own),
    )
    return (
        *_differences(daemon, None, wanted.limits),
        *(d for server in daemon.servers for d in _differences(daemon, server, wanted.for_servers)),
        *(_of_partitions(daemon, wanted) if wanted.static else ()),
    )


def _of_partitions(daemon: Daemon, wanted: DaemonProfile) -> Iterator[Difference]:
    """Partitions that are wanted and not there: of each device so many of each size, whatever their ids. Those that are
    there besides stay. Raises PlanError."""
    if not daemon.static_partitioning:
        raise PlanError(
            f"the daemon at {path_text(daemon.pipe_dir)} was not started with static partitions, "
            "which cannot be turned on later: mpstui daemon start --profile starts one with them"
        )
    if daemon.partitions is None:
        raise PlanError(f"which partitions it has is not known: {daemon.partitions_detail or 'they were not read'}")
    known = {device.device: device.device for device in daemon.partitions.devices}
    there = Counter((p.device, p.chunks) for p in daemon.partitions.partitions)
    for part in wanted.partitions:
        keys = device_keys(daemon.ordinals.get(part.device, part.device), known)
        if len(keys) != 1:
            raise PlanError(f"the daemon has no device {part.device}; it has: {', '.join(known) or 'none'}")
        if there[keys[0], part.chunks]:
            there[keys[0], part.chunks] -= 1
            continue
        size = plural(part.chunks, "chunk")
        request = Request("add_partition", daemon.pipe_dir, size, device=keys[0], subject=LATER)
        yield Difference(f"partition of {size} on {keys[0]}", "there", "not there", request)


def _of_v3(daemon: Daemon, wanted: DaemonProfile) -> Iterator[Difference]:
    """What is wanted of a daemon of protocol 3 and not there, in the order in which it can be made. Nothing is deleted:
    what is there besides stays. Raises PlanError."""
    at, node = path_text(daemon.pipe_dir), daemon.v3
    if not daemon.named_servers:
        raise PlanError(f"the daemon at {at} does not run MPS protocol 3, as the profile's does")
    if node is None or any(part in node.not_read for part in ("server", "namespace", "sm-partition")):
        raise PlanError(f"what the daemon at {at} has is not known: it could not be read")
    for server in wanted.servers:
        there = node.server(server.name)
        if there is None:
            uid = None if server.uid is None else str(server.uid)
            given = {"uid": uid, "allowed_devices": ",".join(server.devices) or None}
            what = f"server {server.name}"
            yield _to_make(daemon, what, "there", "not there", "v3_server_create", server.name, **given)
        elif server.uid is not None and there.uid not in {None, server.uid}:
            text = f"server {server.name} belongs to {owner(None, there.uid)}, but the profile says"
            raise PlanError(f"{text} {owner(None, server.uid)}: delete the server first")
        yield from _of_namespaces(daemon, node, server)
        yield from _of_v3_partitions(daemon, node, server)
    for name in wanted.features:
        if not node.switched(name):
            yield _to_make(daemon, f"feature {name}", "enabled", "not enabled", "v3_feature_enable", name)


def _of_namespaces(daemon: Daemon, node: V3Node, server: ServerProfile) -> Iterator[Difference]:
    for space in server.namespaces:
        now, limits = node.namespace(server.name, space.name), _v3_limits(space)
        wanted, found = _v3_words(space), "not there" if now is None else _v3_words(now)
        if space.name == DEFAULT:
            if limits and not _as_wanted(space, now):
                what = f"limits of server {server.name}"
                yield _to_make(daemon, what, wanted, found, "v3_server_set", server.name, **limits)
        elif now is None or not _as_wanted(space, now):
            what, action = f"namespace {server.name}/{space.name}", "v3_namespace_set"
            if now is None:
                wanted, action = f"there, {wanted}", "v3_namespace_create"
            yield _to_make(daemon, what, wanted, found, action, space.name, server=server.name, **limits)


def _of_v3_partitions(daemon: Daemon, node: V3Node, server: ServerProfile) -> Iterator[Difference]:
    for part in server.partitions:
        made, what = node.partition(server.name, part.name), f"SM partition {server.name}/{part.name}"
        if made is None:
            remainder = None if part.include_remainder is None else str(part.include_remainder).lower()
            given = {"device": part.device, "chunks": str(part.chunks), "include_remainder": remainder}
            wanted = f"{plural(part.chunks, 'chunk')} of {part.device}"
            action = "v3_partition_create"
            yield _to_make(daemon, what, wanted, "not there", action, part.name, server=server.name, **given)
        elif made.chunks not in {None, part.chunks}:
            raise PlanError(
                f"{what} has {plural(made.chunks or 0, 'chunk')}, and the profile's {part.chunks}: delete it first"
            )


def _to_make(
    daemon: Daemon, what: str, wanted: str, found: str, action: str, name: str, **settings: str | None
) -> Difference:
    given = tuple((key.replace("_", "-"), value) for key, value in settings.items() if value is not None)
    return Difference(what, wanted, found, Request(action, daemon.pipe_dir, name, settings=given, subject=LATER))


def _v3_limits(space: ShareSettings) -> dict[str, str | None]:
    """As settings of a request; what is not set is left out."""
    share, memory, priority = space.active_thread_percentage, space.pinned_mem_limit, space.client_priority
    found = {
        "active_thread_percentage": None if share is None else f"{share:g}",
        "pinned_memory_limit": None if memory is None else limit_text(memory),
        "client_priority": None if priority is None else str(priority),
    }
    return {name: value for name, value in found.items() if value is not None}


def _as_wanted(space: ShareSettings, now: Namespace | None) -> bool:
    if now is None:
        return False
    pairs = (
        (space.active_thread_percentage, now.active_thread_percentage),
        (space.pinned_mem_limit, now.memory),
        (space.client_priority, now.client_priority),
    )
    return all(wanted is None or wanted == found for wanted, found in pairs)


def _v3_words(space: ShareSettings | Namespace | None) -> str:
    if space is None:
        return "not there"
    share, priority = space.active_thread_percentage, space.client_priority
    memory = space.memory if isinstance(space, Namespace) else space.pinned_mem_limit
    said = [
        *([] if share is None else [format_percentage(share)]),
        *([] if memory is None else [format_size(memory)]),
        *([] if priority is None else [PRIORITIES[priority] if priority in PRIORITIES else str(priority)]),
    ]
    return ", ".join(said) or "no limits"


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
            raise PlanError(f"device {ordinal} ({daemon.ordinals.get(ordinal, UNKNOWN)}) is given two memory limits")
    return replace(limits, pinned_mem_limits=found)


def ordinal_of(daemon: Daemon, device: str) -> str:
    """The daemon's ordinal of a device given by ordinal, UUID or the first characters of one. Raises PlanError."""
    if daemon.own_numbers and is_own_number(device):
        return device
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
    """Without the limits of devices that are not there, which MPS takes too (fact 5): they bind nobody. By the daemon's
    own numbers where no more is known."""
    if daemon.own_numbers:
        return dict(limits)
    return {daemon.ordinals[device]: limit for device, limit in limits.items() if device in daemon.ordinals}
