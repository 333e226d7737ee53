"""A real pseudo-terminal with a screen behind it: starts a program, reads what it writes, sends keys, waits.

Used by the tests in this directory, by benchmarks/ and by scripts/gpu-check. Nothing here sleeps: every wait reads the
terminal until a condition holds or a deadline passes, so that the program never blocks on a full terminal.
"""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import tempfile
import termios
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import pyte
from wcwidth import wcwidth

COLUMNS, LINES = 160, 48
DEADLINE = 120.0
"""Seconds after which something that should have happened is taken not to."""
_AGAIN = 10.0
"""Seconds after which a key is pressed again that may have come at a wrong moment."""
TAG = "PTY_TERMINAL_TAG"
"""Environment variable by which what a program leaves behind is found, whoever its parent is by then."""
KEYS = {
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "home": "\x1b[H",
    "end": "\x1b[F",
    "enter": "\r",
    "escape": "\x1b",
    "tab": "\t",
    "backtab": "\x1b[Z",
    "space": " ",
    "backspace": "\x7f",
    "delete": "\x1b[3~",
    "f1": "\x1bOP",
    "pageup": "\x1b[5~",
    "pagedown": "\x1b[6~",
    "f2": "\x1bOQ",
    "f5": "\x1b[15~",
    "f6": "\x1b[17~",
    "f7": "\x1b[18~",
    "f8": "\x1b[19~",
    "f9": "\x1b[20~",
}
_LEFT_OUT = ("CUDA_MPS_", "MPSTUI_", "TEXTUAL", "LC_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
"""Variables by which a user's own settings would change what is measured."""
_KEPT = "MPSTUI_CONTROL_DEADLINE"
"""Set for tests: on a busy machine a control binary that is only slow is not to look blocked."""
_UNFINISHED = re.compile("\x1b(?:\\[[0-9;:<=>?$ ]*|[\\]P_^X](?:[^\x07\x1b]|\x1b(?!\\\\))*\x1b?|[()#%])?\\Z")
_STRINGS = re.compile("\x1b[P_^X].*?\x1b\\\\", re.DOTALL)
_FOREIGN = re.compile("\x1b\\[[<=>][0-9;:]*[ -/]*[@-~]|\x1b\\[\\?[0-9;]*u|\x1b\\[[0-9;:?]*[ $\"'][@-~]")
_REPEAT = re.compile("([^\x00-\x1f])\x1b\\[([0-9]{1,4})b")
_AT_ONCE = 1 << 18
"""Bytes that are taken together at most: the kernel gives 4 KB a time."""
_NARROW = "\u10ff"
"""No character up to it is a wide one."""
_MODE = re.compile("\x1b\\[\\?([0-9;]+)([hl])")


class Timeout(AssertionError):
    """A condition did not come to hold in time; the message holds the screen."""


@dataclass(frozen=True)
class Burst:
    """Output that belongs together; times on time.monotonic(), in seconds."""

    first: float
    last: float
    size: int


def until(condition: Callable[[], object], deadline: float, what: str = "condition", pace: float = 0.01) -> float:
    """Poll ``condition`` until it is true; the seconds it took. Raises Timeout after ``deadline`` seconds."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > deadline:
            raise Timeout(f"not within {deadline} s: {what}")
        select.select([], [], [], pace)
    return time.monotonic() - start


def tagged(tag: str) -> list[int]:
    """PIDs of living processes (zombies not counted) whose environment holds ``tag``."""
    needle = f"{TAG}={tag}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                environment = Path("/proc", entry, "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if needle in environment and process_state(int(entry)) not in (None, "Z"):
                found.append(int(entry))
    return found


def process_state(pid: int) -> str | None:
    """The kernel's letter for the state of a process, ``R``, ``S``, ``Z``, …; None where it is gone, or going: behind
    ``Z`` a reader may still meet ``X``."""
    try:
        letter = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return None
    return None if letter in "Xx" else letter


class Terminal:
    """A program in a terminal of its own."""

    def __init__(
        self,
        argv: Iterable[str],
        *,
        environment: Mapping[str, str] | None = None,
        columns: int = COLUMNS,
        lines: int = LINES,
        record: bool = True,
    ) -> None:
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.Stream(self.screen)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = ""
        self._rows: list[str] = []
        self._record = record
        self.looks = True
        """Whether what comes is put on the screen: where nobody looks at it, that is half of the time."""
        self.bytes = bytearray()
        """All the output, where ``record`` is set."""
        self.size = 0
        self.first_byte: float | None = None
        self.came: float | None = None
        """When the last output was there, on time.monotonic(); what it takes to draw it here, 10 ms for 4 KB, is not in
        it."""
        self.ended = False
        """The other side of the terminal was closed by all who held it."""
        self.modes: dict[int, bool] = {}
        """The last state of each private mode that the program set or reset: 1049 alternate screen, 25 cursor, …"""
        self.tag = uuid.uuid4().hex
        self._settings = tempfile.TemporaryDirectory(prefix="terminal-", ignore_cleanup_errors=True)
        env = {name: value for name, value in os.environ.items() if name == _KEPT or not name.startswith(_LEFT_OUT)}
        env |= dict.fromkeys(("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"), self._settings.name)
        env["TMPDIR"] = self._settings.name  # what a killed demo leaves goes with it
        env |= {"LANG": "C.UTF-8", "TERM": "xterm-256color", "COLORTERM": "truecolor", TAG: self.tag}
        env |= environment or {}
        self._master, slave = pty.openpty()
        self.resize(columns, lines)
        os.set_blocking(self._master, False)
        self.settings = termios.tcgetattr(slave)
        self.started = time.monotonic()

        def take_terminal() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            list(argv),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=env,
            start_new_session=True,
            preexec_fn=take_terminal,
        )
        os.close(slave)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def text(self) -> str:
        """The screen as text, one line a row. Only the rows that have changed are put together anew: a wait asks for
        it after everything that comes."""
        screen = self.screen
        if len(self._rows) != screen.lines:
            self._rows = [""] * screen.lines
            screen.dirty.update(range(screen.lines))
        for row in screen.dirty:
            if row < screen.lines:
                self._rows[row] = _row(screen, row)
        screen.dirty.clear()
        return "\n".join(self._rows)

    # -- output -------------------------------------------------------------------------------------------------

    def read(self, timeout: float) -> int:
        """Wait at most ``timeout`` seconds for output and take what is there; its size, 0 when none came."""
        if self._master < 0 or self.ended:
            select.select([], [], [], timeout)
            return 0
        if not select.select([self._master], [], [], timeout)[0]:
            return 0
        data, over = b"", False
        try:
            while not over and len(data) < _AT_ONCE:
                piece = os.read(self._master, 1 << 16)
                over = not piece
                if piece:
                    data, self.came = data + piece, time.monotonic()
                    self.first_byte = self.first_byte or self.came
        except BlockingIOError:
            pass
        except OSError:
            over = True
        if not data:
            self.ended = over
            return 0
        self.size += len(data)
        if self._record:
            self.bytes += data
        text = self._whole(data)
        if self.looks:
            self._feed(text)
        return len(data)

    def drain(self, quiet: float, deadline: float) -> Burst | None:
        """Read one burst: output until ``quiet`` seconds bring none. None when ``deadline`` passes first."""
        end = time.monotonic() + deadline
        first = last = since = 0.0
        size = 0
        while True:
            now = time.monotonic()
            wait = (since + quiet if size else end) - now
            if wait <= 0:
                return Burst(first, last, size) if size else None
            got = self.read(wait)
            if got and self.came is not None:
                since, last = time.monotonic(), self.came
                first = first or last
                size += got
            if self.ended:
                return Burst(first, last, size) if size else None

    def read_for(self, seconds: float) -> int:
        """Keep reading for so many seconds; the bytes that came."""
        before, end = self.size, time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.read(left)
        return self.size - before

    def wait_for(self, what: str | re.Pattern[str] | Callable[[Terminal], object], deadline: float = DEADLINE) -> float:
        """Read until a text, a pattern or a condition holds of the screen; the seconds since the program was started.

        Raises Timeout, with the screen in its message, after ``deadline`` seconds.
        """
        end = time.monotonic() + deadline
        while True:
            if self._holds(what):
                return time.monotonic() - self.started
            left = end - time.monotonic()
            if left <= 0:
                name = getattr(what, "pattern", None) or getattr(what, "__name__", None) or what
                state = "running" if self.process.poll() is None else f"ended with {self.process.returncode}"
                raise Timeout(f"not on the screen within {deadline} s: {name!r}; the program is {state}\n{self.text}")
            self.read(min(left, 0.05))

    def insist(self, key: str, what: str) -> None:
        """Press a key until that is on the screen: it does nothing, and says so, where what is on the screen has just
        changed by itself, as clients come and go. Raises Timeout."""
        for _ in range(int(DEADLINE / _AGAIN)):
            self.key(key)
            with contextlib.suppress(Timeout):
                self.wait_for(what, _AGAIN)
                return
        self.wait_for(what)

    def _holds(self, what: str | re.Pattern[str] | Callable[[Terminal], object]) -> bool:
        if isinstance(what, str):
            return what in self.text
        if isinstance(what, re.Pattern):
            return what.search(self.text) is not None
        return bool(what(self))

    def _whole(self, data: bytes) -> str:
        """What has come, up to the end of its last whole sequence."""
        text = self._pending + self._decoder.decode(data)
        unfinished = _UNFINISHED.search(text)
        cut = unfinished.start() if unfinished else len(text)
        text, self._pending = text[:cut], text[cut:]
        return text

    def _feed(self, text: str) -> None:
        for numbers, letter in _MODE.findall(text):
            self.modes |= {int(number): letter == "h" for number in numbers.split(";") if number}
        # What the emulator does not know it takes for text: keyboard protocols, DCS strings, REP.
        text = _FOREIGN.sub("", _STRINGS.sub("", text))
        text = _REPEAT.sub(lambda found: found[1] * (int(found[2]) + 1), text)
        self._stream.feed(text)

    # -- input --------------------------------------------------------------------------------------------------

    def send(self, text: str) -> float:
        """Type; the time at which it was sent."""
        now = time.monotonic()
        data = text.encode()
        while data:
            try:
                data = data[os.write(self._master, data) :]
            except BlockingIOError:
                self.read(0.05)
        return now

    def key(self, *names: str) -> float:
        """Press keys by name (see KEYS; ``ctrl+x``; a single character stands for itself)."""
        typed = "".join(_key(name) for name in names)
        if self.modes.get(1):  # application cursor keys
            typed = re.sub("\x1b\\[([A-DHF])", "\x1bO\\1", typed)
        return self.send(typed)

    def resize(self, columns: int, lines: int) -> None:
        """Give the terminal another size; the kernel signals the program."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.screen.resize(lines, columns)

    def tear_off(self) -> None:
        """Close the terminal as a lost connection does; the kernel sends SIGHUP."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    # -- the end ------------------------------------------------------------------------------------------------

    def current_settings(self) -> list[object]:
        """The line discipline's settings now, to compare with ``settings``."""
        return list(termios.tcgetattr(self._master))

    def wait_exit(self, deadline: float = DEADLINE) -> int:
        """Read until the program has ended; its exit status (negative: the signal). Raises Timeout."""
        end = time.monotonic() + deadline
        while self.process.poll() is None:
            if time.monotonic() > end:
                raise Timeout(f"still running after {deadline} s\n{self.text}")
            self.read(0.02)
        while self._master >= 0 and self.read(0.02):
            pass
        return self.process.returncode

    def descendants(self) -> list[int]:
        """Living processes that came from the program, itself included, reparented ones too."""
        return tagged(self.tag)

    def close(self) -> None:
        """End the program and all that came from it, by whatever it takes."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.wait_exit(3.0)
            except Timeout:
                self.process.kill()
        self.process.wait(120)
        self.tear_off()
        for pid in self.descendants():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        self._settings.cleanup()


def _row(screen: pyte.Screen, row: int) -> str:
    """As in ``screen.display``: what is behind a wide character is not seen."""
    cells, text, wide = screen.buffer[row], "", False
    for column in range(screen.columns):
        if wide:
            wide = False
        else:
            text += cells[column].data
            wide = text[-1] > _NARROW and wcwidth(cells[column].data[0]) == 2
    return text


def _key(name: str) -> str:
    if name in KEYS:
        return KEYS[name]
    if name.startswith("ctrl+"):
        return chr(ord(name[5:].upper()) & 0x1F)
    if len(name) == 1:
        return name
    raise KeyError(name)
