"""Random keys, mouse, pastes, sizes and stops, and after each handful a look whether the terminal shows the truth.

What the terminal shows, cell by cell with its colours, is held against a whole repaint of the same moment
(``monkey_program``). Every few looks the emulator is wiped first and Ctrl-L pressed. Nothing else comes to harm: the
program is ``--demo``, which acts on simulated processes of its own, in a directory of its own; and where the
interpreter is open to others, a monkey of root's runs as a user who owns nothing.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import shutil
import signal
import string
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import pyte
from monkey_program import MARK, PATIENCE
from terminal import KEYS, Terminal, Timeout, process_state

UID = 64_901
"""A user that no account of a usual machine is."""
DRILLS = ("demo", "fault", "blocked", "held", "pending", "full", "stale")
SIZES = ((160, 48), (80, 24), (1, 1), (20, 5), (100, 30), (250, 70), (2, 60), (300, 3), (79, 24), (132, 43))
SHELL = (
    'set -m; "$@"; s=$?; while [ $s -gt 128 ] && jobs %1 >/dev/null 2>&1; do read x; fg >/dev/null; s=$?; done; exit $s'
)
"""Brings a stopped job back at Enter."""
LEAVING = ("q", "ctrl+c", "ctrl+q")
TEXTS = ("user:bob", "日本語 ", "\x1b[31m", "e\u0301", "[/bad]", "-1e9", "\n", "GPU", "\x00\x07", "x" * 300)


@functools.cache
def _as_nobody() -> list[str]:
    """Before a command of root's: a user who owns nothing. Empty where nobody can be become, or may not read us."""
    who = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--"]
    if os.geteuid() != 0:
        return []
    look = [*who, "env", sys.executable, "-c", "import mpstui.cli, pyte"]
    try:
        return (
            who if subprocess.run(look, capture_output=True, timeout=120, cwd="/", check=False).returncode == 0 else []
        )
    except OSError:
        return []


class Defect(AssertionError):
    """The terminal does not show what it should; the message says where, and how to get there again."""


@dataclass
class Figures:
    """What was done."""

    keys: int = 0
    sizes: int = 0
    stops: int = 0
    mouse: int = 0
    pastes: int = 0
    starts: int = 0
    looks: int = 0
    screens: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        return (
            f"{self.keys} keys, {self.sizes} sizes, {self.stops} stops, {self.mouse} mouse events, "
            f"{self.pastes} pastes, {self.starts} starts; {self.looks} looks on {len(self.screens)} kinds of screen"
        )


class Monkey:
    """One seed gives one sequence; what the program makes of it depends on the machine's speed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.figures = Figures()
        self.done: list[str] = []
        """What was done since the program was started."""

    def play(self, seconds: float) -> Figures:
        """Start the program and start it again where it has ended, for so many seconds. Raises Defect."""
        end = time.monotonic() + seconds
        while time.monotonic() < end or not self.figures.looks:
            self._one_program(end)
        return self.figures

    def _one_program(self, end: float) -> None:
        directory = Path(tempfile.mkdtemp(prefix="monkey-"))
        as_nobody = _as_nobody()
        if as_nobody:
            os.chown(directory, UID, UID)
        program = Path(__file__).with_name("monkey_program.py")
        drill = self.rng.choice(DRILLS)
        demo = "--demo" if drill == "demo" else f"--demo={drill}"
        argv = [*as_nobody, "env", "-C", str(directory), "bash", "-c", SHELL, "bash", sys.executable, str(program)]
        names = ("HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
        environment = dict.fromkeys(names, str(directory))
        self.done = [demo]
        self.figures.starts += 1
        try:
            with Terminal([*argv, str(directory), demo], environment=environment) as terminal:
                told = directory / "pid"
                terminal.wait_for(lambda t: (told.exists() and told.read_text()) or t.process.poll() is not None)
                assert terminal.process.poll() is None, terminal.text
                pid = int(told.read_text())
                self._look(terminal, pid, directory)
                begun = False
                while terminal.process.poll() is None and (time.monotonic() < end or not begun):
                    begun = True
                    for _ in range(self.rng.randint(1, 12)):
                        self._act(terminal, pid)
                    self._look(terminal, pid, directory)
                if terminal.process.poll() is not None and "Traceback" in terminal.text:
                    raise Defect(self._story(terminal.text))
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    # What it does.

    def _act(self, terminal: Terminal, pid: int) -> None:
        rng, figures = self.rng, self.figures
        kind = rng.random()
        if kind < 0.70:
            self._key(terminal)
        elif kind < 0.84:
            for _ in range(rng.choice((1, 1, 2, 5))):  # some change again before anybody has looked
                columns, lines = rng.choice(SIZES)
                self.done.append(f"resize {columns}x{lines}")
                terminal.resize(columns, lines)
                figures.sizes += 1
        elif kind < 0.94:
            self._mouse(terminal)
        elif kind < 0.97:
            text = "".join(rng.choice(TEXTS) for _ in range(rng.randint(1, 4)))
            self.done.append(f"paste {text!r}")
            terminal.send(f"\x1b[200~{text}\x1b[201~")
            figures.pastes += 1
        else:
            self._stop(terminal, pid)
        if rng.random() < 0.5:
            terminal.read_for(rng.choice((0.0, 0.01, 0.05, 0.15)))

    def _key(self, terminal: Terminal) -> None:
        rng = self.rng
        names = rng.choice((string.ascii_letters, string.ascii_letters, string.digits + string.punctuation + " ", None))
        name = rng.choice(names) if names else rng.choice((*KEYS, "escape", "enter", "ctrl+l", "ctrl+p", "ctrl+r"))
        if name in LEAVING and rng.random() < 0.9:
            name = "escape"
        self.done.append(name)
        terminal.key(name)
        self.figures.keys += 1

    def _mouse(self, terminal: Terminal) -> None:
        rng = self.rng
        x, y = rng.randint(1, terminal.screen.columns + 2), rng.randint(1, terminal.screen.lines + 2)
        button = rng.choice((0, 0, 1, 2, 32, 35, 64, 65))
        self.done.append(f"mouse {button} at {x},{y}")
        terminal.send(f"\x1b[<{button};{x};{y}M" + (f"\x1b[<{button};{x};{y}m" if button < 3 else ""))
        self.figures.mouse += 1

    def _stop(self, terminal: Terminal, pid: int) -> None:
        """By Ctrl-Z and fg, or by somebody else's signals."""
        self.figures.stops += 1
        by_key = self.rng.random() < 0.5
        self.done.append("ctrl+z, fg" if by_key else "SIGSTOP, SIGCONT")

        def stopped() -> bool:
            return process_state(pid) in {"T", "Z", None} or terminal.process.poll() is not None

        while not stopped():
            if by_key:
                terminal.key("ctrl+z")  # behind an Escape it is another key
            else:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            with contextlib.suppress(Timeout):
                terminal.wait_for(lambda _: stopped(), 3.0)
        if self.rng.random() < 0.3:
            terminal.resize(*self.rng.choice(SIZES))
        terminal.send("\n")  # the shell has seen the job stop, and waits for a line
        terminal.wait_for(lambda t: process_state(pid) != "T" or t.process.poll() is not None)

    # What it looks at.

    def _look(self, terminal: Terminal, pid: int, directory: Path) -> None:
        """Hold what is shown against what should be."""
        wiped = self.rng.random() < 0.25
        if wiped:
            self.done.append("wiped, ctrl+l")
            terminal.screen.erase_in_display(2)
            terminal.key("ctrl+l")
            terminal.read_for(0.02)
        frame = directory / "frame"
        terminal.bytes.clear()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)
        mark = MARK.encode()
        asked = time.monotonic()
        while mark not in terminal.bytes:
            if terminal.process.poll() is not None or process_state(pid) in {"Z", None}:
                return
            if time.monotonic() - asked > 3 * PATIENCE:
                raise Defect(self._story(f"no frame was told; the program is {process_state(pid)}\n{terminal.text}"))
            terminal.read(0.05)
            if process_state(pid) == "T":  # a key has stopped it late, or the palette's Suspend has
                terminal.send("\n")
                self.figures.stops += 1
                with contextlib.suppress(Timeout):
                    terminal.wait_for(lambda _: process_state(pid) != "T", 3.0)
            with contextlib.suppress(ProcessLookupError):  # it may have been leaving a screen, or stopped
                if time.monotonic() - asked > 5:
                    os.kill(pid, signal.SIGUSR1)
        told = json.loads(frame.read_text())
        self.figures.looks += 1
        self.figures.screens.add(told["screens"].rpartition(" ")[2].partition("(")[0].strip("["))
        if told["stuck"]:
            raise Defect(self._story(f"the screen stays with this left to do: {told['stuck']}\n{terminal.text}"))
        columns, lines = told["columns"], told["lines"]
        expected = pyte.Screen(columns, lines)
        stream = pyte.Stream(expected)
        stream.feed("\x1b[?7l" + told["sequence"])
        shown = terminal.screen
        if (shown.columns, shown.lines) != (columns, lines):
            raise Defect(self._story(f"drawn at {columns}x{lines} in a terminal of {shown.columns}x{shown.lines}"))
        for y in range(lines):
            for x in range(columns):
                if shown.buffer[y][x] != expected.buffer[y][x]:
                    here = f"line {y + 1}, column {x + 1}: {shown.buffer[y][x]} instead of {expected.buffer[y][x]}"
                    pictures = "\n".join(("is:", *shown.display, "should be:", *expected.display))
                    raise Defect(self._story(f"{told['screens']}: {here}\n{pictures}"))
        frame.unlink()

    def _story(self, what: str) -> str:
        return f"seed {self.seed}, {self.figures}\n{what}\nafter: {' · '.join(self.done[-60:])}"


__all__ = ["Defect", "Figures", "Monkey", "Timeout"]
