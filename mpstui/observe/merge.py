"""Answers of the daemon and its logs made one: clients, servers, and which limits hold for each client; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from mpstui.control.wire import DeviceClients, DeviceQuery, PsRow
from mpstui.core.model import (
    DEVICES_VARIABLE,
    EMPTY,
    MEMORY_VARIABLE,
    PARTITION_VARIABLE,
    PERCENTAGE_VARIABLE,
    PRIORITY_VARIABLE,
    Client,
    Context,
    Device,
    Event,
    PartitionTable,
)
from mpstui.core.text import device_keys, lower_sizes, printable, same_limit, taken_limit
from mpstui.core.v3 import V3Node
from mpstui.observe.state import ClientRecord, DaemonState, LimitsInForce, ServerRecord

# Answers of the daemon, folded into what its logs told; pure. Answers know what is, logs know since when.


class Membership(NamedTuple):
    """Who is there. ``time`` is when the first question was put: what the logs told later is newer."""

    time: float
    servers: tuple[int, ...] = ()
    status: Mapping[int, str] = EMPTY
    clients: Mapping[int, tuple[int, ...]] = EMPTY
    """Server to the PIDs of its clients; a server without an answer is missing."""
    contexts: Mapping[int, tuple[DeviceClients, ...]] = EMPTY
    rows: tuple[PsRow, ...] = ()
    """Of ``ps``, which a client can forge (fact 10)."""
    query: DeviceQuery | None = None


class LimitReading(NamedTuple):
    """The limits in force; what had no answer is missing or None."""

    time: float
    percentage: float | None = None
    priority: int | None = None
    memory: Mapping[str, int | None] | None = None
    """Default bytes by ordinal; None as a value: no limit."""
    server_percentage: Mapping[int, float] = EMPTY
    server_memory: Mapping[int, Mapping[str, int | None]] = EMPTY


def fold_membership(state: DaemonState, reading: Membership, now: float) -> list[Event]:
    """Makes the state agree with the answers, save for what the logs told after the questions were put."""
    events: list[Event] = []
    state.changes += 1
    for server in state.servers.values():
        # Later only where the clock was set back: from then on answers count again.
        server.touched = min(server.touched, now)
        for client in server.clients.values():
            client.touched = min(client.touched, now)
    if reading.query is not None:
        fold_devices(state, reading.query)
    for pid in [pid for pid, server in state.servers.items() if server.touched < reading.time]:
        if pid not in reading.servers:
            del state.servers[pid]
    for pid in reading.servers:
        server = state.servers.setdefault(pid, ServerRecord(pid, reading.time))  # known by this reading alone
        status = reading.status.get(pid)
        if status is not None:
            server.told, server.told_at = status, reading.time
        if status is not None and status != "FAULT" and server.fault is not None:
            if (server.fault.time or 0.0) < reading.time:
                events.append(state.recovered(server, now))  # the logs will tell how
                server.status = status
        elif status is not None:
            server.status = status
            if status == "ACTIVE":
                state.started(pid)
        if pid in reading.clients:
            events += _fold_clients(state, server, reading, now)
    _fold_rows(state, reading.rows)
    return events


def fold_devices(state: DaemonState, query: DeviceQuery) -> None:
    """Takes over which device the daemon calls by which ordinal (fact 11)."""
    found = query.default or next(iter(query.servers.values()), ())
    state.changes += 1
    state.ordinals = {str(device.ordinal): device.uuid for device in found}


def fold_partitions(state: DaemonState, found: PartitionTable | None, detail: str | None = None) -> None:
    """Takes over which static partitions there are; ``detail``: why that could not be read."""
    if (state.partitions, state.partitions_detail) != (found, detail):
        state.partitions, state.partitions_detail = found, detail
        state.changes += 1


def fold_v3(state: DaemonState, node: V3Node | None, detail: str | None, started: float, now: float) -> list[Event]:
    """Takes over what a daemon of protocol 3 has told, as answered to questions from ``started`` on. None: ``detail``
    says why nothing of it is understood, and what was known stays."""
    if (node, detail) != (state.v3, state.not_understood):
        state.v3, state.not_understood = node or state.v3, detail
        state.changes += 1
    if node is None:
        return []
    state.ordinals = {d.ordinal: d.uuid for d in node.devices if d.ordinal and d.uuid} or state.ordinals
    running = [server for server in node.servers if server.pid]
    reading = Membership(
        started,
        tuple(server.pid or 0 for server in running),
        {server.pid or 0: _status_word(server.status) for server in running},
        {server.pid or 0: tuple(c.pid for c in node.clients_of(server.name)) for server in running},
    )
    events = fold_membership(state, reading, now)
    for server in running:
        record = state.servers[server.pid or 0]
        record.uid = server.uid
        for client in record.clients.values():
            row = node.client(client.pid)
            client.command = row.command if row is not None else None
            device = None if row is None or row.device is None else state.ordinals.get(row.device, row.device)
            client.contexts = {1: device} if device is not None and device.startswith(("GPU-", "MIG-")) else {}
    return events


def _status_word(status: str | None) -> str:
    """A server that takes clients is ACTIVE, whatever the protocol calls it."""
    word = (status or "").upper()
    return "ACTIVE" if word in {"READY", "RUNNING"} else word or "UNKNOWN"


def in_namespace(client: Client, environment: Mapping[str, str] | None, node: V3Node) -> Client:
    """The client of a daemon of protocol 3. A namespace's percentage comes before the client's own variable, its
    memory limit is lowered by that; a namespace with a name has nothing of its server."""
    row = node.client(client.pid)
    space = node.namespace(row.server, row.namespace) if row is not None else None
    own = own_percentage((environment or {}).get(PERCENTAGE_VARIABLE))
    percentage = own if space is None or space.active_thread_percentage is None else space.active_thread_percentage
    source = {}
    if percentage is not None:
        source["active_thread_percentage"] = "client" if percentage is own else "namespace"
    if space is not None and space.client_priority is not None:
        source["client_priority"] = "namespace"
    return replace(
        client,
        namespace=row.namespace if row is not None else None,
        active_thread_percentage=percentage,
        client_priority=space.client_priority if space is not None else None,
        limit_source=source or EMPTY,
    )


def partitioned(client: Client, environment: Mapping[str, str] | None, table: PartitionTable | None) -> Client:
    """The client of a daemon with static partitions: its SMs are those of the partition that its own environment
    names, and no percentage has an effect."""
    named = printable((environment or {}).get(PARTITION_VARIABLE, "").encode("utf-8", "surrogateescape"), 200) or None
    found = table.find(named) if table is not None and named is not None else None
    source = {what: whence for what, whence in client.limit_source.items() if what != "active_thread_percentage"}
    return replace(
        client,
        active_thread_percentage=None,
        sm_count=found.sm_count if found is not None else None,
        sm_count_estimated=False,
        limit_source=source or EMPTY,
        sm_partition=named,
    )


def _fold_clients(state: DaemonState, server: ServerRecord, reading: Membership, now: float) -> list[Event]:
    listed = [pid for pid in reading.clients[server.pid] if pid]  # 0 is no process
    server.elsewhere = reading.clients[server.pid].count(0)
    events: list[Event] = []
    for pid in [pid for pid, c in server.clients.items() if pid not in listed and c.touched < reading.time]:
        events += state.process_gone(pid, now)
    for pid in listed:
        if pid not in server.clients and not (server.touched > reading.time):
            limits = server.limits.copy() if server.limits_read is not None else LimitsInForce()
            server.clients[pid] = ClientRecord(pid, reading.time, limits=limits)
    devices = reading.contexts.get(server.pid)
    if devices is None:
        return events
    ordinals = _ordinals(reading.query, server.pid) or state.ordinals
    seen: dict[int, dict[int, str | None]] = {}
    for device in devices:
        for context in device.contexts:
            seen.setdefault(context.pid, {})[context.context] = ordinals.get(str(device.ordinal))
    for pid, client in server.clients.items():
        if client.touched <= reading.time:
            known, client.contexts = client.contexts, seen.get(pid, {})
            for number, uuid in client.contexts.items():
                if uuid is None:
                    client.contexts[number] = known.get(number)
    return events


def _ordinals(query: DeviceQuery | None, server: int) -> dict[str, str]:
    found = query.servers.get(server, ()) if query is not None else ()
    return {str(device.ordinal): device.uuid for device in found}


def _fold_rows(state: DaemonState, rows: tuple[PsRow, ...]) -> None:
    """A row is believed only of a listed client, and only if it is the one row that claims to be its (fact 10)."""
    claims: dict[int, set[PsRow]] = {}
    for row in rows:
        claims.setdefault(row.pid, set()).add(row)
    for server in state.servers.values():
        for pid, client in server.clients.items():
            rival = claims.get(pid, set())
            if len(rival) == 1:
                row = next(iter(rival))
                if row.server == server.pid:
                    client.id, client.namespace, client.command = row.id, row.namespace, row.command
            elif rival:
                client.id = client.namespace = client.command = None


def fold_limits(state: DaemonState, reading: LimitReading, logged: bool) -> None:
    """Takes over the limits read.

    ``logged``: the logs are followed and would have told of a change. A limit that differs from what they told has then
    been so all along (a variable in the daemon's environment), for the clients as well; otherwise it was changed at
    some time, and of clients seen since the last reading it is not known what they got.
    """
    state.changes += 1
    defaults = state.defaults
    if reading.percentage is not None:
        defaults.percentage = reading.percentage
    if reading.priority is not None:
        defaults.priority = reading.priority
        for server in state.servers.values():
            _take_priority(server, reading.priority, state.control_from if logged else None)
    if reading.memory is not None:
        defaults.memory = _exact(reading.memory, by_ordinal(defaults.memory, state.ordinals))
        defaults.memory_known = True
    for server in state.servers.values():
        percentage = reading.server_percentage.get(server.pid)
        if percentage is not None:
            _take_percentage(server, percentage, state.control_from if logged else None)
        _take_memory(server, reading.server_memory.get(server.pid), state.ordinals, logged)
        if percentage is not None or server.pid in reading.server_memory:
            server.limits_read = reading.time


def _since_last(server: ServerRecord) -> list[ClientRecord]:
    """Clients first seen after the limits were last read."""
    read = server.limits_read
    return [client for client in server.clients.values() if read is None or client.touched > read]


def _take_priority(server: ServerRecord, value: int, logged_from: float | None) -> None:
    old, server.limits.priority = server.limits.priority, value
    if old == value:
        return
    for client in server.clients.values() if logged_from is not None else _since_last(server):
        if client.limits.priority == old:
            client.limits.priority = value if _seen_connecting(client, logged_from) else None


def _take_percentage(server: ServerRecord, value: float, logged_from: float | None) -> None:
    old, server.limits.percentage = server.limits.percentage, value
    if old == value:
        return
    for client in server.clients.values() if logged_from is not None else _since_last(server):
        if client.limits.percentage == old:
            client.limits.percentage = value if _seen_connecting(client, logged_from) else None


def _seen_connecting(client: ClientRecord, logged_from: float | None) -> bool:
    """Whether every change of a limit since it connected is in the logs that were read."""
    return logged_from is not None and client.connected is not None and client.connected >= logged_from


def _take_memory(
    server: ServerRecord, found: Mapping[str, int | None] | None, ordinals: Mapping[str, str], logged: bool
) -> None:
    if found is None:
        return
    old = by_ordinal(server.limits.memory, ordinals)
    known = server.limits.memory_known
    new = _exact(found, old)
    kept = {device: size for device, size in old.items() if device not in found}  # devices that nobody has (fact 5)
    server.limits.memory, server.limits.memory_known = {**new, **kept}, True
    if known and server.limits.memory == old:
        return
    for client in server.clients.values() if logged else _since_last(server):
        if client.limits.memory_known == known and by_ordinal(client.limits.memory, ordinals) == old:
            sure = logged and client.connected is not None and server.started is not None
            client.limits.memory = dict(server.limits.memory) if sure else {}
            client.limits.memory_known = sure


def _exact(found: Mapping[str, int | None], told: Mapping[str, int]) -> dict[str, int]:
    """What was read, with the whole size where the logs told it: a daemon prints whole GiB from 1 GiB on (fact 26)."""
    sizes = ((device, size) for device, size in found.items() if size is not None)
    return {device: told[device] if same_limit(told.get(device), size) else size for device, size in sizes}


def counted(visible: str, uuids: Sequence[str]) -> dict[str, str]:
    """The ordinals of a program that sees the devices that ``visible`` names, each by its UUID or the first characters
    of one, of the node's ``uuids``. Empty where one of them is named otherwise, or is none of those: CUDA counts them
    in an order of its own, and ends at the first that it does not know."""
    named = [device_keys(name, {uuid: uuid for uuid in uuids}) for name in visible.split(",")]
    if any(len(keys) != 1 for keys in named) or len({keys[0] for keys in named}) < len(named):
        return {}
    return {str(number): keys[0] for number, keys in enumerate(named)}


def by_ordinal(memory: Mapping[str, int], ordinals: Mapping[str, str]) -> dict[str, int]:
    """Limits by ordinal: one set by UUID reads back by ordinal, and the last one set wins (fact 6)."""
    if not memory:
        return {}
    index = {uuid: ordinal for ordinal, uuid in ordinals.items()}
    result: dict[str, int] = {}
    for device, size in memory.items():
        result[index.get(device, device)] = size
    return result


# Which limits hold for one client: those of its server when it connected, and its own environment's.


class Effective(NamedTuple):
    """What a client got."""

    percentage: float | None = None
    memory: Mapping[str, int] = EMPTY
    """Bytes by the server's ordinal."""
    priority: int | None = None
    source: Mapping[str, str] = EMPTY
    outdated: bool = False
    memory_known: bool = False
    """Whether ``memory`` is all of it."""


def effective(
    at_connect: LimitsInForce,
    present: LimitsInForce,
    ordinals: Mapping[str, str],
    environment: Mapping[str, str] | None,
    *,
    doubt: bool = False,
) -> Effective:
    """The lower one wins, the server's or the client's own, of percentages and of memory limits; of priorities its own.

    Memory limits, the server's too, go by the client's own numbers of its devices (fact 35).
    ``doubt``: something besides, of which nobody knows whether it holds, may limit the memory (``in_doubt``).
    A client is outdated where it would get other limits if it connected now; where history does not tell, it is not.
    """
    known = at_connect.memory_known and environment is not None and not doubt
    environment = environment or {}
    own = own_percentage(environment.get(PERCENTAGE_VARIABLE))
    numbers = own_numbers(ordinals, environment.get(DEVICES_VARIABLE))
    known = known and (bool(numbers) or DEVICES_VARIABLE not in environment)
    own_sizes = own_memory(environment.get(MEMORY_VARIABLE), numbers, ordinals)
    known = known and own_sizes is not None
    own_sizes = own_sizes or {}
    source: dict[str, str] = {}
    percentage = _lower(at_connect.percentage, own)
    if percentage is not None:
        source["active_thread_percentage"] = "server" if percentage == at_connect.percentage else "client"
    served = _of_devices(by_ordinal(at_connect.memory, ordinals), numbers)
    memory = lower_sizes(served, own_sizes)
    if memory:
        source["pinned_mem_limits"] = "server" if memory == served else "client"
    priority = own_priority(environment.get(PRIORITY_VARIABLE))
    if priority is not None:
        source["client_priority"] = "client"
    elif at_connect.priority is not None:
        priority, source["client_priority"] = at_connect.priority, "default"
    again = _lower(present.percentage, own)
    outdated = percentage is not None and again is not None and percentage != again
    if at_connect.memory_known and present.memory_known:
        again_served = _of_devices(by_ordinal(present.memory, ordinals), numbers)
        outdated = outdated or memory != lower_sizes(again_served, own_sizes)
    return Effective(percentage, memory, priority, source, outdated, known)


def own_numbers(ordinals: Mapping[str, str], visible: str | None) -> dict[str, str]:
    """The client's own number of each device that it sees, by the server's ordinal.

    ``visible``: its CUDA_VISIBLE_DEVICES, in which numbers are the server's (fact 11); what follows a name that is no
    device is not seen.
    """
    if visible is None:
        return {ordinal: ordinal for ordinal in ordinals}
    found: dict[str, str] = {}
    for name in (word.strip() for word in visible[:4096].split(",")):
        matches = [
            o for o, uuid in ordinals.items() if name == o or (not name.isdigit() and name and uuid.startswith(name))
        ]
        if len(matches) != 1:
            break
        found.setdefault(matches[0], str(len(found)))
    return found


def _of_devices(sizes: Mapping[str, int], numbers: Mapping[str, str]) -> dict[str, int]:
    """Limits by the client's numbers as limits by the server's ordinals. Without numbers, where the server's devices
    are not known, both are taken for the same."""
    if not numbers:
        return dict(sizes)
    return {ordinal: sizes[number] for ordinal, number in numbers.items() if number in sizes}


def _lower(served: float | None, own: float | None) -> float | None:
    """None where the server's is not known: the client's own may then be the higher one."""
    return own if served is not None and own is not None and own < served else served


def own_percentage(text: str | None) -> float | None:
    """``CUDA_MPS_ACTIVE_THREAD_PERCENTAGE``; None where it says nothing usable."""
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value <= 100 else None


def own_priority(text: str | None) -> int | None:
    """``CUDA_MPS_CLIENT_PRIORITY``; None where it is neither 0 nor 1."""
    return int(text) if text in {"0", "1"} else None


def own_memory(text: str | None, numbers: Mapping[str, str], ordinals: Mapping[str, str]) -> dict[str, int] | None:
    """``CUDA_MPS_PINNED_DEVICE_MEM_LIMIT``, ``0=1G,1=512M``, in bytes by the server's ordinal.

    ``numbers``: the process's own number of each device that it sees, by ordinal. An entry for a device that it does
    not see, or one without a device, drops all of them (fact 43). None where that cannot be told: its devices are not
    known.
    """
    entries = [part.partition("=") for part in (text or "").split(",") if part.strip()]
    if entries and not numbers:
        return None
    named = {number: ordinal for ordinal, number in numbers.items()}
    named |= {uuid: ordinal for ordinal, uuid in ordinals.items() if ordinal in numbers}
    found: dict[str, int] = {}
    for device, equals, size in entries:
        ordinal = named.get(device.strip())
        if not equals or ordinal is None:
            return {}
        found[ordinal] = taken_limit(size.strip())
    return {ordinal: size for ordinal, size in found.items() if size}


def inherited_memory(environment: Mapping[str, str] | None, ordinals: Mapping[str, str]) -> dict[str, int] | None:
    """The memory limits that the daemon's own environment names, by ordinal; None where it may not be read, or its
    devices are not known. They limit no client of driver 580 (fact 57)."""
    if environment is None:
        return None
    return own_memory(environment.get(MEMORY_VARIABLE), {ordinal: ordinal for ordinal in ordinals}, ordinals)


def in_doubt(inherited: Mapping[str, int] | None, driver: str | None) -> bool:
    """Whether clients may be limited by what the daemon's environment names: only of driver 580 is it known that they
    are not."""
    return inherited is None or (bool(inherited) and not (driver or "").startswith("580."))


def first_device(
    contexts: Sequence[Context], memory: Mapping[str, int], devices: Mapping[str, Device]
) -> Device | None:
    """The device of the first context; failing that the lowest one with memory, or the only one there is."""
    for context in contexts:
        if context.device_uuid is not None and context.device_uuid in devices:
            return devices[context.device_uuid]
    held = sorted((devices[u] for u in memory if u in devices), key=lambda device: device.index or 0)
    if held:
        return held[0]
    return next(iter(devices.values())) if len(devices) == 1 else None
