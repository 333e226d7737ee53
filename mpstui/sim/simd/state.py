"""Writes what NVML and /proc would tell about the node's processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from typing import Any

from .clients import ClientProcess
from .config import STATE, Place, write_json
from .process import start_ticks
from .server import SimServer, SimXid

_COMMAND_LIMIT = 1000


class StateFile:
    """The state file of a pipe directory, rewritten only when its contents change."""

    def __init__(self, pipe_dir: Place) -> None:
        self._path = os.path.join(pipe_dir, STATE)
        self._daemon = {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid())}
        self._last: object = None

    def write(self, servers: Sequence[SimServer], pending: Sequence[ClientProcess], xids: Iterable[SimXid]) -> None:
        """Writes the present state; a directory that is gone does not end the daemon."""
        state = {
            "version": 1,
            "daemon": self._daemon,
            "servers": [{"pid": s.pid, "uid": s.uid} for s in servers],
            "clients": [_client(c, s) for s in servers for c in s.clients] + [_client(c, None) for c in pending],
            "xids": [xid._asdict() for xid in xids],
        }
        if state != self._last:
            self._last = state
            with contextlib.suppress(OSError):
                write_json(self._path, state)


def _client(client: ClientProcess, server: SimServer | None) -> dict[str, Any]:
    uuids = [gpu.uuid for gpu in server.gpus] if server else []
    return {
        "pid": client.pid,
        "start_ticks": client.start_ticks,
        "server": server.pid if server else None,
        "uid": client.uid,
        "user": client.user and client.user[:64],
        "command": client.command[:_COMMAND_LIMIT],
        "container": client.container,
        "cgroup": client.cgroup and client.cgroup[:_COMMAND_LIMIT],
        "namespace": client.namespace,
        "busy": client.busy,
        "sm": client.sm_count,
        "used_sms": client.used_sms,
        "dram": client.dram,
        "since": client.since,
        "memory": {uuids[device]: size for device, size in client.used.items()},
    }
