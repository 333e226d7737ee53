"""The overview on fakes in a real terminal, for tests that need one. Argument: quiet or rows."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace

from .fakes import FakeCollector
from .screen import make_app
from .snapshots import one_daemon


class Ticking(FakeCollector):
    """A new snapshot ten times a second; what changes in it depends on the mode."""

    def __init__(self, mode: str) -> None:
        super().__init__(one_daemon())
        self._mode = mode
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._tick())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _tick(self) -> None:
        number = 0
        while True:
            await asyncio.sleep(0.1)
            number += 1
            self.push(changed(one_daemon(), number) if self._mode == "rows" else one_daemon())


def changed(snapshot, number: int):
    """Every client with another CPU share, every device with another utilisation."""
    daemon = snapshot.daemons[0]
    server = daemon.servers[0]
    clients = tuple(replace(c, cpu_percent=float((c.pid + number * 7) % 100)) for c in server.clients)
    devices = tuple(replace(d, sm_utilization=float((number * 13) % 101)) for d in snapshot.devices)
    return replace(snapshot, devices=devices, daemons=(replace(daemon, servers=(replace(server, clients=clients),)),))


def main(mode: str) -> int:
    app = make_app(None)
    app.collector = Ticking(mode)
    return app.run() or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
