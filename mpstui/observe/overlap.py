"""Devices that more than one running daemon serves; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpstui.core.model import Daemon, Problem
from mpstui.core.text import path_text


def shared_devices(daemons: Sequence[Daemon]) -> Iterator[Problem]:
    """A problem for each device with clients of two daemons, or of one and within reach of another (fact 20)."""
    serving: dict[str, list[Daemon]] = {}
    for daemon in daemons:
        if daemon.health in {"ok", "held", "blocked"}:
            for uuid in set(daemon.ordinals.values()):
                serving.setdefault(uuid, []).append(daemon)
    for uuid, found in sorted(serving.items()):
        busy = [d for d in found if any(uuid in client.device_uuids for client in d.clients())]
        if len(found) > 1 and busy:
            places = ", ".join(path_text(daemon.pipe_dir) for daemon in found)
            text = f"{len(found)} daemons serve it ({places}); their clients do not run at the same time."
            remedy = "Give each daemon devices of its own with CUDA_VISIBLE_DEVICES, by UUID."
            yield Problem("warning", "shared_device", f"device {uuid}", text, remedy)
