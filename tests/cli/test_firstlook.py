"""What is shown while the screen is loaded: in the terminal's size, and never left behind."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from mpstui.cli import firstlook
from mpstui.core import condition
from mpstui.core.model import Client, Daemon, ProcessKey, Server, Snapshot

CLIENTS = tuple(Client(ProcessKey(2000 + n, 1), 1402, user="alice", command="python train.py " * 20) for n in range(60))
SERVER = Server(ProcessKey(1402, 1), status="ACTIVE", clients=CLIENTS)
DAEMON = Daemon(Path("/tmp/mps_0"), key=ProcessKey(1400, 1), condition=condition.ok(), servers=(SERVER,))
NODE = Snapshot(1.0, source="simulated", daemons=(DAEMON,))


@pytest.fixture
def terminal(monkeypatch):
    written = io.StringIO()
    monkeypatch.setattr(written, "fileno", lambda: 2, raising=False)
    monkeypatch.setattr(sys, "__stderr__", written)
    monkeypatch.setattr(firstlook, "_size", lambda fd: (80, 24))
    return written


def test_the_status_is_shown_in_the_size_of_the_terminal_and_taken_away(terminal):
    with firstlook.shown(NODE):
        text = terminal.getvalue()
        assert text.startswith("\x1b[?1049h")
        lines = text.removeprefix("\x1b[?1049h\x1b[?25l\x1b[H").split("\r\n")
        assert "SIMULATED" in lines[0]
        assert any("2000" in line for line in lines)
        assert len(lines) == 23
        assert max(map(len, lines)) <= 80
    assert terminal.getvalue().endswith("\x1b[?1049l\x1b[?25h")


def test_a_screen_that_took_over_gives_the_terminal_back_itself(terminal):
    with firstlook.shown(NODE) as take_over:
        take_over()
    assert "\x1b[?1049l" not in terminal.getvalue()


def test_a_signal_meanwhile_gives_the_terminal_back(terminal):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, firstlook.shown(NODE):
        os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == 128 + signal.SIGTERM
    assert terminal.getvalue().endswith("\x1b[?1049l\x1b[?25h")
    assert signal.getsignal(signal.SIGTERM) == before


def test_signals_are_left_to_the_screen_from_the_moment_it_takes_over(terminal):
    before, screens = signal.getsignal(signal.SIGTERM), lambda *_: None
    with firstlook.shown(NODE) as take_over:
        assert signal.getsignal(signal.SIGTERM) != before
        signal.signal(signal.SIGTERM, screens)
        take_over()
        assert signal.getsignal(signal.SIGTERM) == screens
    assert signal.getsignal(signal.SIGTERM) == before


def test_nothing_seen_is_nothing_shown(terminal):
    with firstlook.shown(None) as take_over:
        take_over()
    assert terminal.getvalue() == ""


class Looking:
    """A collector whose first look ends when ``gate`` is opened."""

    def __init__(self, gate: threading.Event) -> None:
        self._gate = gate

    async def prime(self) -> Snapshot:
        await asyncio.to_thread(self._gate.wait)
        return NODE


def test_a_look_that_hangs_is_left_to_itself(monkeypatch):
    monkeypatch.setattr(firstlook, "PATIENCE", 0.001)
    gate, made = threading.Event(), []

    def make():
        made.append(Looking(gate))
        return made[-1]

    try:
        assert firstlook.first_look(make) == (made[1], None)
    finally:
        gate.set()


def test_a_look_that_fails_leaves_it_to_the_screen():
    class Broken:
        async def prime(self):
            raise OSError("no /proc")

    made = Broken()
    assert firstlook.first_look(lambda: made) == (made, None)


def test_what_was_seen_comes_with_its_collector(monkeypatch):
    monkeypatch.setattr(firstlook, "PATIENCE", 30.0)
    gate = threading.Event()
    gate.set()
    made = Looking(gate)
    assert firstlook.first_look(lambda: made) == (made, NODE)
