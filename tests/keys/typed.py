"""What the tests of typing ahead have in common: the keys, and the program that writes down where each goes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from terminal import DEADLINE, KEYS, Terminal, Timeout
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.keys import _character_to_key

SCREENS = ("overview", "past", "events", "plan", "daemons", "load", "problems")
OTHERS = {
    "": (
        "overview: devices",
        "overview: limits",
        "overview: servers",
        "overview: events",
        "events: kinds",
        "plan: shares",
        "load: bars",
        "blast",
        "suspects",
        "users",
        "activity",
        "partitions",
        "past: devices",
        "past: events",
        *(f"past > {key}" for key in ("f2", "question_mark", "enter", "slash", "T", "w", "E", "B")),
        *(
            f"overview > {key}"
            for key in ("f2", "question_mark", "colon", "enter", "slash", "t", "K", "l", "m", "o", "S", "Z", "T", "w")
        ),
        *("daemons > S", "daemons > x", "plan > A", "plan > w", "plan > V", "plan > C"),
    ),
    "--scenario fault": ("overview", "fault", "fault > x", "overview > e"),
    "--scenario held": ("overview", "daemons"),
    "--static": ("overview", "partitions", "partitions > S", "load"),
    "--protocol 3": ("overview", "namespaces", "namespaces > A", "namespaces > S", "namespaces > l", "load"),
}
"""What else takes keys, by the node that has it: a screen, its part that has the focus, or what a key opens there."""
REPLAY = "replay"
"""In place of a node's options: what was kept of a node without any, as a recording."""
REPLAYED = ("overview", "past", "past: devices", "past > T", "past > E", "past > enter", "past > slash")
GOES = "f9"
"""Goes to the screen whose name has been written beside the file."""
STAYS = ""
"""In place of a screen's name: goes nowhere."""
SAVES = "save "
"""In place of a screen's name: what is kept of the past is written into the file that follows."""
RESTS = "f10"
"""Tells where a key goes when all that was set off is done."""
TELLS = ("f7", "f3")
"""Used in turn, so that no late answer is taken for that to the next question."""
AGAIN = 0.25
"""Seconds from one question to the next; an answer that only comes late is the same."""
SYMBOLS = "".join(map(chr, range(32, 127)))
"""Every letter, digit and symbol of the keyboard."""
FRAMES = "10"
"""Pictures a second: what is only done after the next one is late for every key, as on a busy machine."""
_SENT = {keys[0].value: text for text, keys in reversed(ANSI_SEQUENCES_KEYS.items()) if isinstance(keys, tuple)}
_SENT |= {_character_to_key(character): character for character in SYMBOLS}
HERE = Path(__file__).parent


def sent(key: str) -> str:
    """What a terminal sends for a key by its name in a binding."""
    if key in KEYS:
        return KEYS[key]
    return key if len(key) == 1 else _SENT[key]


def can_be_sent(key: str) -> bool:
    """Whether a terminal has it; Textual binds more."""
    return key in KEYS or len(key) == 1 or key in _SENT


class Recorded:
    """The program in a terminal, and what it has written down."""

    def __init__(self, terminal: Terminal, file: Path) -> None:
        self.terminal = terminal
        self._file = file
        self._at = 0
        self._asked = 0
        self._lines: list[dict[str, Any]] = []

    def lines(self) -> list[dict[str, Any]]:
        """All that was written since :meth:`forget`."""
        with self._file.open("rb") as file:
            file.seek(self._at)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._at += len(whole)
        self._lines += [json.loads(line) for line in whole.splitlines()]
        return self._lines

    def forget(self) -> None:
        self.lines()
        self._lines = []

    def wait(self, done: Callable[[list[dict[str, Any]]], object], what: str) -> list[dict[str, Any]]:
        """Read the terminal until the lines are complete. Raises Timeout."""
        end = time.monotonic() + DEADLINE
        while not done(self.lines()):
            if time.monotonic() > end:
                raise Timeout(f"{what}: {self._lines}\n{self.terminal.text}")
            self.terminal.read(0.002)
        return self._lines

    def base(self, name: str, done: int | None = None) -> dict[str, Any]:
        """Go to a screen; what it says of itself: ``at``, where keys go, and ``keys``, one for each thing it does.

        ``done``: so many keys are carried out there; of the others it is only written down what would take them.
        """
        self.forget()
        self._file.with_suffix(".base").write_text(json.dumps([name, done]))
        lines = self._typed(GOES, "base", name)
        return next(line for line in lines if "base" in line)

    def _typed(self, key: str, answer: str, what: str) -> list[dict[str, Any]]:
        """Press it until there is a line of that; a key is dropped, and says so, where the screen has just changed by
        itself. Raises Timeout."""
        dropped = -1

        def done(lines: list[dict[str, Any]]) -> bool:
            nonlocal dropped
            if any(answer in line for line in lines):
                return True
            if len(self.dropped) > dropped:
                dropped = len(self.dropped)
                self.terminal.send(sent(key))
            return False

        return self.wait(done, what)

    def opened_from(self, name: str) -> dict[str, Any]:
        """:meth:`base`, once the key that it ends with opens something there: it is refused until what it needs of the
        daemon is known. Raises Timeout."""
        end = time.monotonic() + DEADLINE
        while not (begun := self.base(name))["opened"]:
            if time.monotonic() > end:
                raise Timeout(f"{name} opens nothing: {self._lines}\n{self.terminal.text}")
        return begun

    def burst(self, text: str) -> list[tuple[str, str]]:
        """Type all of it in one write: each key that was taken, and what took it."""
        self.forget()
        self.told(text)
        return [(line["key"], line["to"]) for line in self._lines if "key" in line]

    def rest(self, text: str) -> list[dict[str, Any]]:
        """:meth:`burst`, whole; the last one is where the next key would go when all is done that this has set off."""
        self.burst(text)
        self._typed(RESTS, "rest", "all done")
        return [line for line in self._lines if "key" in line or "rest" in line]

    @property
    def refused(self) -> bool:
        """Whether a key has been refused since :meth:`forget`: what was typed with it is dropped. One on clients is
        where the client under the cursor has just ended."""
        return any("refused" in line for line in self._lines)

    def told(self, text: str) -> str:
        """Type it, and ask in the same write where a key would go then; what is typed before a refusal is seen is
        dropped, so that the question is asked until there is an answer. Raises Timeout."""
        self._asked += 1
        by = TELLS[self._asked % len(TELLS)]
        end = time.monotonic() + DEADLINE
        self.terminal.send(text + sent(by))
        asked = time.monotonic()
        while not (answers := [line["tell"] for line in self.lines() if line.get("by") == by]):
            if time.monotonic() > end:
                raise Timeout(f"{text!r}: {self._lines}\n{self.terminal.text}")
            if time.monotonic() - asked > AGAIN:
                self.terminal.send(sent(by))
                asked = time.monotonic()
            self.terminal.read(0.002)
        return str(answers[0])

    def seen(self, text: str) -> None:
        """Wait until that is on the screen. Raises Timeout."""
        self.terminal.looks = True
        self.terminal.key("ctrl+l")
        self.terminal.wait_for(text)
        self.terminal.looks = False

    @property
    def dropped(self) -> list[str]:
        """What was named as dropped since :meth:`forget`."""
        return [line["dropped"] for line in self._lines if "dropped" in line]


@contextmanager
def recorded(folder: Path, arguments: Sequence[str], shown: str = "⁴") -> Iterator[Recorded]:
    """The program with these arguments, once that is shown."""
    file = folder / "keys"
    where = ":".join(map(str, (HERE, HERE.parent / "pty", HERE.parents[1])))
    command = [sys.executable, str(HERE / "recorder.py"), str(file), *arguments]
    with Terminal(command, environment={"PYTHONPATH": where, "TEXTUAL_FPS": FRAMES}, columns=100, lines=30) as terminal:
        terminal.wait_for(shown)
        terminal.looks = False
        yield Recorded(terminal, file)
