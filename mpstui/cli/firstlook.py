"""What is known of the node, shown while the screen is still being loaded: on a slow disk that takes seconds."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, TypeVar

from mpstui.api import Collector
from mpstui.core.model import Snapshot

C = TypeVar("C", bound=Collector)
PATIENCE: Final = 0.3
"""Seconds that the first look may take; a directory that hangs holds up nothing longer than that."""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_KEYBOARD: Final = 0
_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[H"
_LEAVE: Final = "\x1b[?1049l\x1b[?25h"


def first_look(make: Callable[[], C]) -> tuple[C, Snapshot | None]:
    """A collector and what it has seen; where that takes too long, one that has not looked yet, and None."""
    made = make()
    seen: list[Snapshot] = []

    def look() -> None:
        with contextlib.suppress(Exception):  # whatever it is, the screen meets it again, and says it
            seen.append(asyncio.run(made.prime()))

    thread = threading.Thread(target=look, name="mpstui-first-look", daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if thread.is_alive():
        return make(), None
    return made, seen[0] if seen else None


@contextmanager
def shown(snapshot: Snapshot | None) -> Iterator[Callable[[], None]]:
    """Shows the status as ``mpstui status`` prints it. The terminal is given back at the end, unless what is yielded
    was called: the screen has taken it over, and handles signals by itself."""
    if snapshot is None or sys.__stderr__ is None:
        yield lambda: None
        return
    terminal, taken = sys.__stderr__, False

    def take() -> None:
        nonlocal taken
        taken = True
        if keys is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(_KEYBOARD, termios.TCSANOW, keys)

    before = {number: signal.signal(number, _leave) for number in _SIGNALS}
    keys = _keep_keys()
    try:
        with contextlib.suppress(OSError, ValueError):
            terminal.write(_ENTER + _text(snapshot, *_size(terminal.fileno())))
            terminal.flush()
        yield take
    finally:
        if not taken:
            take()
            with contextlib.suppress(OSError, ValueError):
                terminal.write(_LEAVE)
                terminal.flush()
        for number, handler in before.items():
            signal.signal(number, handler)


def _keep_keys() -> list[Any] | None:
    """What is typed from now on, Ctrl-Z too, is kept for the screen and not echoed. Answers how it was before."""
    try:
        before = termios.tcgetattr(_KEYBOARD)
        flags, characters = before[3] & ~(termios.ECHO | termios.ICANON), [*before[6]]
        characters[termios.VSUSP] = b"\0"
        termios.tcsetattr(_KEYBOARD, termios.TCSANOW, [*before[:3], flags, *before[4:6], characters])
    except termios.error:
        return None
    return before


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _size(fd: int) -> tuple[int, int]:
    try:
        size = os.get_terminal_size(fd)
    except OSError:
        return 80, 24
    return size.columns, size.lines


def _text(snapshot: Snapshot, columns: int, lines: int) -> str:
    """As much of the status as there is room for."""
    from rich.console import Console

    from mpstui.cli.status import print_text

    buffer = io.StringIO()
    console = Console(file=buffer, width=max(1, columns), highlight=False, markup=False, color_system=None)
    print_text(snapshot, console)
    return "\r\n".join(buffer.getvalue().splitlines()[: max(1, lines - 1)])
