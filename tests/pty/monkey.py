"""Random keys, mouse, pastes, sizes and stops, and after each handful a look whether the terminal shows the truth.

What the terminal shows, cell by cell with its colours, is held against a whole repaint of the same moment
(``monkey_program``). Every few looks the emulator is wiped first and Ctrl-L pressed. Nothing else comes to harm: the
program is ``--demo``, which acts on simulated processes of its own, in a directory of its own; and where the
interpreter is open to others, a monkey of root's runs as a user who owns nothing.
"""

from __future__ import annotations

import ast
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
NARROW = tuple((columns, 9) for columns in range(3, 15))
"""Widths at which some text has no cell left to be wrapped in."""
SHELL = (
    'set -m; "$@"; s=$?; while [ $s -gt 128 ] && jobs %1 >/dev/null 2>&1; do read x; fg >/dev/null; s=$?; done; exit $s'
)
"""Brings a stopped job back at Enter."""
LEAVING = ("q", "ctrl+c", "ctrl+q", "ctrl+backslash")
BETWEEN = " · "
STOPS = ("ctrl+z", "SIGSTOP")
HEALS = 3.0
"""Seconds in which the screen, which looks once a second, has put a wrong cell right."""
WIPED = "wiped, ctrl+l"
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

    def __init__(self, seed: int, again: str = "", heals: bool = False) -> None:
        """``again``: what a defect's story has behind ``after:``, done over and over with other pauses. ``heals``: a
        cell that the screen puts right by itself is no defect, but one of ``healed``."""
        self.heals = heals
        self.healed: list[str] = []
        self.seed = seed
        self.again = again.split(BETWEEN) if again else []
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
        demo, *again = self.again or ["--demo" if drill == "demo" else f"--demo={drill}"]
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
                    if self.again and not again:
                        break
                    for _ in range(self.rng.randint(1, 12)):
                        actions, again = (again[:1], again[1:]) if self.again else (self._choose(terminal), [])
                        for action in actions:
                            self._do(terminal, pid, action)
                        if self.rng.random() < 0.5:
                            terminal.read_for(self.rng.choice((0.0, 0.01, 0.05, 0.15)))
                    self._look(terminal, pid, directory)
                if terminal.process.poll() is not None and "Traceback" in terminal.text:
                    raise Defect(self._story(terminal.text))
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    # What it does.

    def _choose(self, terminal: Terminal) -> list[str]:
        """What to do next, as ``_do`` takes it."""
        rng = self.rng
        kind = rng.random()
        if kind < 0.70:
            names = rng.choice(
                (string.ascii_letters, string.ascii_letters, string.digits + string.punctuation + " ", "")
            )
            name = rng.choice(names or (*KEYS, "escape", "enter", "ctrl+l", "ctrl+p", "ctrl+r"))
            return ["escape" if name in LEAVING and rng.random() < 0.9 else name]
        if kind < 0.84:  # some change again before anybody has looked
            sizes = [rng.choice(NARROW if rng.random() < 0.2 else SIZES) for _ in range(rng.choice((1, 1, 2, 5)))]
            return [f"resize {columns}x{lines}" for columns, lines in sizes]
        if kind < 0.94:
            x, y = rng.randint(1, terminal.screen.columns + 2), rng.randint(1, terminal.screen.lines + 2)
            return [f"mouse {rng.choice((0, 0, 1, 2, 32, 35, 64, 65))} at {x},{y}"]
        if kind < 0.97:
            return [f"paste {''.join(rng.choice(TEXTS) for _ in range(rng.randint(1, 4)))!r}"]
        then = "resize {}x{}".format(*rng.choice(SIZES)) if rng.random() < 0.3 else ""
        return [f"{rng.choice(STOPS)} {then}".rstrip()]

    def _do(self, terminal: Terminal, pid: int, action: str) -> None:
        self.done.append(action)
        figures = self.figures
        what, _, rest = action.partition(" ")
        if what == "resize" and rest:
            terminal.resize(*map(int, rest.split("x")))
            figures.sizes += 1
        elif what == "mouse" and rest:
            button, _, place = rest.partition(" at ")
            report = f"\x1b[<{button};{place.replace(',', ';')}"
            terminal.send(f"{report}M" + (f"{report}m" if int(button) < 3 else ""))
            figures.mouse += 1
        elif what == "paste" and rest:
            terminal.send(f"\x1b[200~{ast.literal_eval(rest)}\x1b[201~")
            figures.pastes += 1
        elif action == WIPED:
            terminal.screen.erase_in_display(2)
            terminal.key("ctrl+l")
            terminal.read_for(0.02)
        elif what in STOPS:
            self._stop(terminal, pid, what, rest)
        else:
            terminal.key(action)
            figures.keys += 1

    def _stop(self, terminal: Terminal, pid: int, way: str, then: str) -> None:
        """By Ctrl-Z, or by somebody else's signal; the shell's fg brings it back."""
        self.figures.stops += 1

        def stopped() -> bool:
            return process_state(pid) in {"T", "Z", None} or terminal.process.poll() is not None

        while not stopped():
            if way == "ctrl+z":
                terminal.key(way)  # behind an Escape it is another key
            else:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            with contextlib.suppress(Timeout):
                terminal.wait_for(lambda _: stopped(), 3.0)
        if then:
            terminal.resize(*map(int, then.partition(" ")[2].split("x")))
        for _ in range(40):  # the shell has seen the job stop, or will, and waits for a line
            terminal.send("\n")
            with contextlib.suppress(Timeout):
                terminal.wait_for(lambda t: process_state(pid) != "T" or t.process.poll() is not None, 3.0)
                return
        raise Defect(self._story(f"fg does not bring it back\n{terminal.text}"))

    # What it looks at.

    def _look(self, terminal: Terminal, pid: int, directory: Path) -> None:
        """Hold what is shown against what should be."""
        if not self.again and self.rng.random() < 0.25:
            self._do(terminal, pid, WIPED)
        wrong = self._wrong(terminal, pid, directory)
        if wrong and self.heals:
            self.healed.append(self._story(wrong))
            terminal.read_for(HEALS)
            wrong = self._wrong(terminal, pid, directory)
        if wrong:
            raise Defect(self._story(wrong))

    def _where(self, terminal: Terminal, pid: int, directory: Path) -> str:
        """What a program that tells nothing does: what was left to do, why telling failed, where its threads are."""
        stacks = directory / "stacks"
        with contextlib.suppress(ProcessLookupError, Timeout):
            os.kill(pid, signal.SIGUSR2)
            terminal.wait_for(lambda _: stacks.exists() and "most recent call first" in stacks.read_text(), PATIENCE)
            terminal.read_for(0.5)
        files = (directory / name for name in ("left", "trouble", "stacks"))
        return "; ".join(file.read_text() for file in files if file.exists())

    def _wrong(self, terminal: Terminal, pid: int, directory: Path) -> str:
        """Which cells are not what they should be, and both pictures; empty where all are."""
        frame = directory / "frame"
        terminal.bytes.clear()
        (directory / "ask").touch()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)
        mark = MARK.encode()
        asked = time.monotonic()
        while mark not in terminal.bytes:
            if terminal.process.poll() is not None or process_state(pid) in {"Z", None}:
                return ""
            if time.monotonic() - asked > 5 * PATIENCE:
                state = (
                    f"no frame was told; the program is {process_state(pid)}; {self._where(terminal, pid, directory)}"
                )
                raise Defect(self._story(f"{state}\n{terminal.text}"))
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
        cells = [(y, x) for y in range(lines) for x in range(columns)]
        wrong = [(y, x) for y, x in cells if shown.buffer[y][x] != expected.buffer[y][x]]
        frame.unlink()
        if not wrong:
            return ""
        (y, x), (last, _) = wrong[0], wrong[-1]
        columns_of = [column for _, column in wrong]
        here = f"line {y + 1}, column {x + 1}: {shown.buffer[y][x]} instead of {expected.buffer[y][x]}"
        span = f"lines {y + 1} to {last + 1}, columns {min(columns_of) + 1} to {max(columns_of) + 1}"
        pictures = "\n".join(("is:", *shown.display, "should be:", *expected.display))
        return f"{told['screens']}: {len(wrong)} cells in {span}; {here}\n{pictures}"

    def _story(self, what: str) -> str:
        return f"seed {self.seed}, {self.figures}\n{what}\nafter: {BETWEEN.join(self.done)}"


__all__ = ["Defect", "Figures", "Monkey", "Timeout"]
