"""Who is torn down when a client faults: the closure over shared GPUs (fact 18). Pure."""

from __future__ import annotations

from collections.abc import Iterable

from mpstui.model import Client, Daemon, ProcessKey, Server


def blast_radius(server: Server, culprits: Iterable[ProcessKey]) -> tuple[Client, ...]:
    """The other clients of ``server`` that lose their contexts when one of ``culprits`` faults or is killed while busy.

    A client that shares a GPU with a lost client is lost, and so is every GPU of it: A{0} took B{0,1} and C{1} with it,
    D{2} ran on (fact 18). A client whose devices are not known is counted in: not knowing is no protection.
    """
    lost = {c.key for c in server.clients if c.key in set(culprits)}
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
