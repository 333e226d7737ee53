"""What a terminal sends, cut into keys, sequences and pastes, however it arrives."""

from __future__ import annotations

import os
import pty
import select
import termios
import threading
import tty
from typing import Any

import pytest
from textual import events

from mpstui.ui.private import reader
from mpstui.ui.rawinput import LULL, RawInput
from mpstui.ui.terminal import TerminalDriver


def typed(*reads: str) -> list[str]:
    """The keys, and ``paste:…``, of what was read; nothing more comes after it."""
    raw, events_of = RawInput(), reader()
    assert events_of is not None
    messages = []
    for read in reads:
        messages += events_of(raw.feed(read))
    if raw.undecided:
        messages += events_of(raw.decide())
    said = []
    for message in messages:
        if isinstance(message, events.Key):
            said.append(message.key)
        else:
            said.append(f"paste:{message.text}" if isinstance(message, events.Paste) else type(message).__name__)
    return said


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("\x1bd\r", ["escape", "d", "enter"]),
        ("\x1b/train", ["escape", "slash", *"train"]),
        ("\x1b" + "j" * 40, ["escape", *"j" * 40]),
        ("\x1bb\x1bf", ["escape", "b", "escape", "f"]),
        ("\x1b\x1bK", ["escape", "escape", "K"]),
        ("\x1b\r\x1b ", ["escape", "enter", "escape", "space"]),
        ("\x1b", ["escape"]),
        ("\x1b\x1b[A", ["escape", "up"]),
        ("\x1b[A\x1bOB\x1b[1;5C\x1b[3~j", ["up", "down", "ctrl+right", "delete", "j"]),
        ("\x1bOP\x1b[[A\x1b[15~", ["f1", "f1", "f5"]),
        ("\x1b[27u\x1b[107;3u", ["escape", "alt+k"]),
        ("\x1b[99999zK", ["K"]),
        ("\x1b[?1;2cK", ["K"]),
        ("\x1b[<0;10;5M\x1b[<0;10;5mK", ["MouseDown", "MouseUp", "K"]),
        ("\x1b[M abK", ["K"]),
        ("\x1b[I\x1b[Oj", ["AppFocus", "AppBlur", "j"]),
        ("\x1b[?2026;2$yj", ["TerminalSupportsSynchronizedOutput", "j"]),
        ("é\x1bü→", ["é", "escape", "ü", "rightwards_arrow"]),
    ],
)
def test_escape_is_a_key_unless_a_sequence_follows(text: str, keys: list[str]) -> None:
    assert typed(text) == keys
    if "\x1b[M" not in text and "[[" not in text:
        assert typed(*text) == keys, "one character at a time"


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 1000])
def test_nothing_of_a_paste_is_a_key(step: int) -> None:
    inside = "K\rq\x1b[31mred\x1b[0m \x1bd" + "\x1b[A" * 20 + "K" * 50
    text = f"j\x1b[200~{inside}\x1b[201~k"
    said = typed(*(text[at : at + step] for at in range(0, len(text), step)))
    assert said == ["j", "paste:" + inside.replace("\x1b", "").replace("\r", "\n"), "k"]


def test_a_paste_that_never_ends_is_ended_by_hand() -> None:
    raw = RawInput()
    assert list(raw.feed("\x1b[200~Kq")) == []
    assert list(raw.feed("\x03", LULL / 2)) == [], "part of what is pasted"
    assert [piece.kind for piece in raw.feed("\x03", LULL * 2)] == ["paste", "text"]
    assert [piece.text for piece in raw.feed("j")] == ["j"]


def test_a_torn_report_of_the_mouse_is_no_keys() -> None:
    raw = RawInput()
    assert list(raw.feed("\x1b[<35;10;")) == []
    assert not raw.undecided
    assert [piece.text for piece in raw.feed("5M")] == ["\x1b[<35;10;5M"]


class Read(TerminalDriver):
    """Reads a terminal that is given, until a ``q`` is typed."""

    def __init__(self, fileno: int) -> None:
        self.fileno, self.exit_event, self._reads = fileno, threading.Event(), False
        self._woken, self._wake = os.pipe()
        self.keys: list[str] = []

    def process_message(self, message: Any) -> None:
        self.keys.append(message.key)
        if message.key == "q":
            self.exit_event.set()

    def tell_lost(self) -> None:
        raise AssertionError


def test_enter_typed_while_the_terminal_was_still_the_shells_is_enter() -> None:
    """It came as a line feed, which is Ctrl+J, and did nothing."""
    us, terminal = pty.openpty()

    def written(data: bytes) -> None:
        os.write(us, data)
        assert select.select([terminal], [], [], 120)[0]

    driver = Read(terminal)
    try:
        as_shell = termios.tcgetattr(terminal)
        assert as_shell[tty.IFLAG] & termios.ICRNL
        written(b"L\r\rq")
        tty.setraw(terminal, termios.TCSANOW)
        driver.run_input_thread()
        written(b"\n\rq")
        driver.exit_event.clear()
        driver.run_input_thread()
    finally:
        for fd in (us, terminal, driver._woken, driver._wake):
            os.close(fd)
    assert driver.keys == ["L", "enter", "enter", "q", "ctrl+j", "enter", "q"]
