"""The overview on fakes in a real terminal, for tests that need one.

Arguments: ``quiet`` or ``rows``; then ``twice``, where the terminal changes again while its size is read, ``deaf``,
where no signal tells that it has changed, ``timeless``, where the timer that paints ends at the first mark, or
``forgetful``, where from then on what was to be laid out and painted is forgotten.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import struct
import sys
import termios
from collections.abc import Callable
from dataclasses import replace

from mpstui.ui import typeahead

from .fakes import FakeCollector
from .screen import make_app
from .snapshots import one_daemon

MARK = "\x1b]7777;ten\x07"
"""On the terminal behind what ten snapshots have had written."""


class Ticking(FakeCollector):
    """A new snapshot ten times a second; what changes in it depends on the mode. A mark behind each ten of them.

    The next one comes when there was a moment with nothing to do since the last: where a busy machine takes longer than
    a tenth of a second for one, keys, which wait for such a moment, would never be handed on.
    """

    mark: Callable[[], None]

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
            while asyncio.get_running_loop()._ready:  # noqa: ASYNC110 - of a moment without anything nobody tells
                await asyncio.sleep(0.005)
            if number % 10 == 0:
                self.mark()


def changed(snapshot, number: int):
    """Every client with another CPU share, every device with another utilisation."""
    daemon = snapshot.daemons[0]
    server = daemon.servers[0]
    clients = tuple(replace(c, cpu_percent=float((c.pid + number * 7) % 100)) for c in server.clients)
    devices = tuple(replace(d, sm_utilization=float((number * 13) % 101)) for d in snapshot.devices)
    return replace(snapshot, devices=devices, daemons=(replace(daemon, servers=(replace(server, clients=clients),)),))


def change_while_it_is_read() -> None:
    """Have a terminal that is found at 100x30 become 120x40 before anybody is told."""
    read = os.get_terminal_size

    def reading(fd: int = 1) -> os.terminal_size:
        size = read(fd)
        if size == (100, 30):
            fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        return size

    os.get_terminal_size = reading


def forget(screen) -> None:
    """Have the screen take for done what it has been asked for."""
    screen._update_timer.pause()
    screen._layout_required = screen._scroll_required = screen._repaint_required = False
    screen._dirty_widgets.clear()


def main(mode: str, terminal: str = "") -> int:
    if terminal == "twice":
        change_while_it_is_read()
    elif terminal == "deaf":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})  # threads inherit it
    typeahead.PATIENCE = 120.0  # a screen that a busy machine opens late has not failed to open
    app = make_app(None)
    app.collector = Ticking(mode)

    def mark() -> None:
        app._driver.write(MARK)
        if terminal == "timeless":
            app.screen._update_timer.stop()
        elif terminal == "forgetful":
            app.screen._update_timer._callback = lambda: forget(app.screen)

    app.collector.mark = mark
    return app.finish() or 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
