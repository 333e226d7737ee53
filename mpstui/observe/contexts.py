"""How many contexts each device holds; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from mpstui.observe.state import DaemonState


def contexts_by_device(states: Iterable[DaemonState]) -> Counter[str]:
    """By UUID; a context whose device is not known is not counted."""
    clients = (c for state in states for server in state.servers.values() for c in server.clients.values())
    return Counter(uuid for client in clients for uuid in client.contexts.values() if uuid is not None)
