"""A terminal driver that notices when the terminal is gone, instead of spinning on it or waiting for it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import shutil
import signal
import struct
import sys
import termios
import time
from codecs import getincrementaldecoder
from collections.abc import Callable
from io import TextIOWrapper
from typing import IO, Any, cast

from textual import events
from textual.app import App
from textual.geometry import Size

from mpstui.ui.private import PrivateDriver, reader
from mpstui.ui.rawinput import RawInput

_MOUSE = (1000, 1003, 1015, 1006)
"""The terminal's modes for clicks, movement, and numbers that are large enough."""
_POLL_S = 0.1
"""Longest wait for the rest of a sequence: an Escape key is told from the beginning of one by it."""


def can_come_back() -> bool:
    """Whether a shell with job control would notice that this process group stops, and could bring it back.

    The only program of a terminal, as in ``ssh -t node mpstui`` or a tmux pane of its own, would stop for good.
    """
    pid, group, session = os.getpid(), os.getpgrp(), os.getsid(0)
    while (pid := _parent(pid)) > 1:
        try:
            if os.getsid(pid) != session:
                return False
            if os.getpgid(pid) != group:
                return True
        except OSError:
            return False
    return False


def _parent(pid: int) -> int:
    """The parent's PID; 0 where it cannot be known."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


class _Output:
    """The terminal's output. After the first error everything is dropped: Textual's writer thread must never die."""

    def __init__(self, file: IO[str], lost: Callable[[], None]) -> None:
        self._file = file
        self._lost = lost
        self._gone = False

    def write(self, text: str) -> None:
        self._try(self._file.write, text)

    def flush(self) -> None:
        self._try(self._file.flush)

    def fileno(self) -> int:
        return self._file.fileno()

    def _try(self, call: Callable[..., object], *args: str) -> None:
        if self._gone:
            return
        try:
            call(*args)
        except (OSError, ValueError):
            self._gone = True
            self._lost()


class TerminalDriver(PrivateDriver):
    """Calls ``app.terminal_lost()`` once when reading or writing says that nobody is there any more."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        self.app = app
        self._lost_told = False
        self._reads = False
        self._woken, self._wake = os.pipe()
        if isinstance(sys.__stderr__, TextIOWrapper):  # a terminal is drawn in UTF-8, whatever the locale says
            sys.__stderr__.reconfigure(encoding="utf-8", errors="replace")
        self._output = _Output(cast("IO[str]", sys.__stderr__), self.tell_lost)
        self.write_to(self._output)

    def tell_lost(self) -> None:
        if not self._lost_told:
            self._lost_told = True
            self.app.call_later(cast("Any", self.app).terminal_lost)

    def start_application_mode(self) -> None:
        """Take the terminal, and hear of its changes of size from the event loop.

        Textual reads the size in the signal's handler. A second change can interrupt that between reading and
        telling; then the older size is told last, and the screen stays in it.
        """
        cast("Any", super()).start_application_mode()
        asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, self.tell_size)

    def tell_size(self) -> None:
        """Tell the app how big the terminal is now."""
        size = self.terminal_size() or Size(*shutil.get_terminal_size())
        self.send_message(events.Resize(size, size))

    def terminal_size(self) -> Size | None:
        """Columns and lines of the terminal that is written to, as the kernel has them; None where it has none."""
        try:
            size = Size(*os.get_terminal_size(self._output.fileno()))
        except (OSError, ValueError):
            return None
        return size or None

    def size_now(self) -> Size | None:
        """What the kernel says; COLUMNS and LINES, which do not follow the terminal, only where it says nothing."""
        return self.terminal_size()

    def report_mouse(self, on: bool) -> None:
        """Have the terminal report clicks, or leave the mouse to it: then it selects text as everywhere else."""
        self.write("".join(f"\x1b[?{mode}{'h' if on else 'l'}" for mode in _MOUSE))
        self.flush()

    def stop_job(self) -> None:
        """Give the terminal back and stop the whole job: a shell would not see it while a ``make`` above runs on."""
        self.suspend_application_mode()
        self.told_of_stop()
        os.killpg(0, signal.SIGSTOP)

    def came_back(self) -> None:
        cast("Any", self.app).typeahead.leave_terminal()  # until all of it is painted
        self.send_message(self.SignalResume())

    def disable_input(self) -> None:
        """Ends the thread that reads; it sleeps until there is something to read."""
        os.write(self._wake, b"\0")
        super().disable_input()
        os.read(self._woken, 1)

    def typed_ahead(self) -> int:
        """Bytes typed before the program first read a key: the terminal, as a shell has it, made line feeds of each
        Enter among them (ICRNL)."""
        if self._reads:
            return 0
        self._reads = True
        try:
            (waiting,) = struct.unpack("i", fcntl.ioctl(self.fileno, termios.FIONREAD, bytes(struct.calcsize("i"))))
        except OSError:
            return 0
        return int(waiting)

    def run_input_thread(self) -> None:
        """Read until told to stop, or until there is nothing to read from."""
        read = reader()
        if read is None:
            super().run_input_thread()
            return
        decode = getincrementaldecoder("utf-8")("replace").decode
        raw, at, ahead = RawInput(), time.monotonic(), self.typed_ahead()
        while not self.exit_event.is_set():
            patience = _POLL_S if raw.undecided else None  # nobody types: sleep, not ten looks a second
            try:
                ready, _, _ = select.select([self.fileno, self._woken], [], [], patience)
                data = os.read(self.fileno, 4096) if self.fileno in ready else None
            except (OSError, ValueError):
                data = b""
            if data == b"":
                self.tell_lost()
                return
            if data:
                early, data = data[:ahead], data[ahead:]
                ahead -= len(early)
                data = early.replace(b"\n", b"\r") + data
                before, at = at, time.monotonic()
                pieces = raw.feed(decode(data), at - before)
            elif raw.undecided:
                pieces = raw.decide()
            else:
                continue
            for message in read(pieces):
                message.time = at  # what was read at once was typed before anything came of its beginning
                self.process_message(message)
