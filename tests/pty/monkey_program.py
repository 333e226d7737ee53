"""mpstui that tells, when asked, what its screen should show; otherwise the program as it is.

    python monkey_program.py DIRECTORY [arguments of mpstui]

At SIGUSR2 it writes to ``DIRECTORY/stacks`` where each thread is. At SIGUSR1, where there is a file
``DIRECTORY/ask``, it waits until nothing is left to paint and the screen has the terminal's size. Then it takes that
file away, so that a second signal is no second question, and writes ``DIRECTORY/frame``, JSON: ``columns``,
``lines``, ``sequence`` (a whole repaint, as Textual itself would write it), ``screens``, and ``stuck``, which is not
empty where it gave up. A mark follows on the terminal, and the program does nothing more until the file is taken
away: what the terminal got before the mark is what belongs to the frame.
"""

from __future__ import annotations

import asyncio
import faulthandler
import fcntl
import json
import os
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path

from textual.widget import Widget

from mpstui.cli import main
from mpstui.ui.app import MpsTuiApp

MARK = "\x1b]7777;frame\x07"
PATIENCE = 60.0
"""Seconds after which a screen that has still the same to paint is taken never to paint it."""


def _has_to_do(widget: Widget) -> bool:
    """A widget tells its screen of what it needs in its own turn; until then only it knows."""
    return widget._repaint_required or widget._layout_required or not widget._message_queue.empty()


def left_to_do(app: MpsTuiApp) -> str:
    """What keeps the screen from being what it should be; empty where nothing does."""
    screen = app.screen
    size = os.get_terminal_size(sys.__stdin__.fileno())
    unread = struct.unpack("i", fcntl.ioctl(sys.__stdin__.fileno(), termios.FIONREAD, bytes(4)))[0]
    waits = {
        "keys": unread,
        "size": (app.size, screen.outer_size) != (size, size),
        "resize": app._resize_event is not None,
        "batch": app._batch_count,
        "mount": not screen._is_mounted,
        "layout": screen._layout_required or screen._scroll_required or screen._recompose_required,
        "repaint": screen._repaint_required or screen._dirty_widgets or screen._compositor._dirty_regions,
        "messages": app._message_queue.qsize() or screen._message_queue.qsize(),
        "calls": app._next_callbacks or screen._next_callbacks or screen._callbacks,
        "going": [widget for widget in screen.walk_children() if widget._pruning],
        "widgets": [widget for widget in screen.walk_children() if widget.size and _has_to_do(widget)],
    }
    return " ".join(f"{name}={value}" for name, value in waits.items() if value)


class Teller:
    """Answers one question after the other."""

    def __init__(self, app: MpsTuiApp, directory: Path) -> None:
        self.app = app
        self.ask = directory / "ask"
        self.frame = directory / "frame"
        self.task: asyncio.Task[None] | None = None

    def asked(self) -> None:
        if self.task is not None and self.task.done() and not self.task.cancelled() and self.task.exception():
            (self.ask.parent / "trouble").write_text(repr(self.task.exception()))
        if self.ask.exists() and (self.task is None or self.task.done()):
            self.task = asyncio.create_task(self.tell())

    async def tell(self) -> None:
        since, left, quiet = time.monotonic(), "", 0
        while quiet < 20:  # a key can be on its way from its thread, a message between two widgets
            await asyncio.sleep(0.005)
            if self.app._exit or not self.app.screen_stack:
                return
            before, left = left, left_to_do(self.app)
            quiet = 0 if left else quiet + 1
            if left != before:
                since = time.monotonic()
                (self.ask.parent / "left").write_text(f"{before} / {left}")
            elif left and time.monotonic() - since > PATIENCE:
                break
        app, screen = self.app, self.app.screen
        update = screen._compositor.render_update(full=True, screen_stack=app._background_screens)
        known = {
            "columns": app.size.width,
            "lines": app.size.height,
            "sequence": update.render_segments(app.console).replace("\n", ""),
            "screens": str(app.screen_stack),
            "stuck": left,
        }
        self.ask.unlink()
        draft = self.frame.with_suffix(".draft")
        draft.write_text(json.dumps(known))
        draft.rename(self.frame)
        app._driver.write(MARK)
        while self.frame.exists():
            select.select([], [], [], 0.002)


def run(directory: Path, arguments: list[str]) -> int:
    faulthandler.register(signal.SIGUSR2, (directory / "stacks").open("w"), all_threads=True)
    loading = MpsTuiApp.on_load

    def on_load(app: MpsTuiApp) -> None:
        loading(app)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, Teller(app, directory).asked)
        (directory / "draft").write_text(str(os.getpid()))
        (directory / "draft").rename(directory / "pid")

    MpsTuiApp.on_load = on_load
    return main(arguments)


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.argv[2:]))
