"""Who is torn down when a client faults: the closure over shared GPUs (fact 18). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import NamedTuple

from mpstui.core.model import Client, Daemon, PendingClient, ProcessKey, Server


def blast_radius(server: Server, causes: Iterable[ProcessKey]) -> tuple[Client, ...]:
    """The other clients of ``server`` that lose their contexts when one of ``causes`` faults or is killed while busy.

    A client that shares a GPU with a lost client is lost, and so is every GPU of it: A{0} took B{0,1} and C{1} with it,
    D{2} ran on (fact 18). A client whose devices are not known is counted in: not knowing is no protection.
    """
    lost = {c.key for c in server.clients if c.key in set(causes)}
    start = set(lost)
    hit_devices: set[str] = set()
    unknown = False
    changed = bool(lost)
    while changed:
        changed = False
        for client in server.clients:
            devices = client.device_uuids
            if client.key in lost:
                unknown = unknown or not devices
                if devices - hit_devices:
                    hit_devices |= devices
                    changed = True
            elif not devices or devices & hit_devices or unknown:
                lost.add(client.key)
                changed = True
    return tuple(c for c in server.clients if c.key in lost - start)


def server_of(daemon: Daemon, key: ProcessKey) -> Server | None:
    """The server that the client belongs to; None where it is not one of the daemon's clients."""
    return next((s for s in daemon.servers if any(c.key == key for c in s.clients)), None)


class BlastRadius(NamedTuple):
    """What a fault of one client would do (fact 18)."""

    client: Client
    lost: tuple[Client, ...]
    """The others that lose their contexts."""
    devices: frozenset[str]
    """UUIDs of the devices that are reset; not complete where a client's devices are not known."""
    unhurt: tuple[Client, ...]
    """Clients of the same server that run on."""
    refused: tuple[PendingClient, ...]
    """Who waits already and would be refused, like every new client of the server on whatever device, until the last
    one of those hit has ended."""
    over: tuple[Client, ...]
    """Clients of the same server whose GPU work has ended already."""
    bridges: tuple[Client, ...]
    """Clients that join what would be separate groups without them: moving one makes the radius smaller."""


def over(daemon: Daemon, server: Server) -> frozenset[ProcessKey]:
    """Clients whose GPU work has ended, by terminate_client or by a fault that the daemon confirms: they can fault no
    more, have nothing left to lose, and nobody is lost through them."""
    hit = server.fault.affected if server.fault is not None and server.fault.confirmed else ()
    return frozenset(hit) | {c.key for c in server.clients if c.state == "TERMINATED" or c.key == daemon.blocked_by}


def without(server: Server, keys: Collection[ProcessKey]) -> Server:
    """The server as if these were no clients of it."""
    return replace(server, clients=tuple(c for c in server.clients if c.key not in keys)) if keys else server


def blast_of(daemon: Daemon, key: ProcessKey, *, believed: bool = True) -> BlastRadius | None:
    """The radius of one client; None where it is not one of the daemon's. ``believed``: whether the daemon's word is
    enough for whose GPU work has ended."""
    whole = server_of(daemon, key)
    client = daemon.find_client(key)
    if whole is None or client is None:
        return None
    ended = over(daemon, whole) - {key} if believed else frozenset()
    server = without(whole, ended)
    lost = blast_radius(server, [key])
    hit = {key} | {other.key for other in lost}
    return BlastRadius(
        client=client,
        lost=lost,
        devices=frozenset().union(*(c.device_uuids for c in server.clients if c.key in hit)),
        unhurt=tuple(c for c in server.clients if c.key not in hit),
        refused=tuple(p for p in daemon.pending if p.server_pid in {None, server.pid}),
        over=tuple(c for c in whole.clients if c.key in ended),
        bridges=tuple(c for c in bridges(server) if c.key in hit),
    )


def groups(server: Server) -> tuple[tuple[Client, ...], ...]:
    """The clients by who goes down with whom; the largest group first. Clients without a device are left out."""
    return tuple(sorted(_groups([c for c in server.clients if c.device_uuids]), key=len, reverse=True))


def bridges(server: Server) -> tuple[Client, ...]:
    """Clients without which their group would fall into two or more: each makes the faults of both its own."""
    found: list[Client] = []
    if not any(len(client.device_uuids) > 1 for client in server.clients):
        return ()  # as on every node with one device: there is nothing to look through
    for group in groups(server):
        found += (
            client
            for client in group
            if len(client.device_uuids) > 1 and len(_groups([c for c in group if c.key != client.key])) > 1
        )
    return tuple(found)


def _groups(clients: list[Client]) -> list[tuple[Client, ...]]:
    found: list[tuple[set[str], list[Client]]] = []
    for client in clients:
        mine, members = set(client.device_uuids), [client]
        apart = []
        for devices, others in found:
            if devices & mine:
                mine |= devices
                members = others + members
            else:
                apart.append((devices, others))
        found = [*apart, (mine, members)]
    return [tuple(sorted(members, key=lambda c: c.pid)) for _, members in found]
