"""Attack B to its end: a stranger's daemon that falls silent, logs of his that accuse another user's process, and the
screen of a root who looks at it. Nothing that it offers, and no key, ends that process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deadline import usual
from terminal import Terminal

from .conftest import Stranger
from .programs import BINARY, lives, lying_daemon, roots_process


class Accusation:
    """Logs of a stranger's in which his server's client ``pid`` is told to end, and then once more."""

    def __init__(self, stranger: Stranger, pid: int, owner: int) -> None:
        self._stranger = stranger
        self.pid = pid
        self.folder = stranger.home / "logs"
        self.server = stranger.start("sleep", "600").pid
        self._begun = time.time() - 60
        self.write("control.log", 0, "Starting control daemon using socket /x/control")
        self.write("control.log", 1, f"Starting new server {self.server} for user {stranger.uid}")
        self.write("control.log", 2, f"NEW SERVER {self.server}: Ready")
        self.write("control.log", 3, f"NEW CLIENT {pid} from user {owner}: Server already exists")
        self.write("server.log", 1, "Server has started")
        for context in (0, 1):
            self.write("server.log", 3, f"Client {{PID: {pid}, Context ID: {context}}} connected")
        self.write("server.log", 4, f"Status of client {{PID: {pid}, Context ID: 1}} is ACTIVE")
        self.terminate(10, "0", "UI closed")

    def terminate(self, after: float, *answer: str) -> None:
        """``terminate_client``, sent so many seconds after the daemon's start, and what comes of it."""
        for text in ("NEW UI", f"Cmd:terminate_client {self.server} {self.pid}", *answer):
            self.write("control.log", after, text)

    def write(self, name: str, after: float, text: str) -> None:
        when = time.strftime("%Y-%m-%d %H:%M:%S.000", time.localtime(self._begun + after))
        who = f"Control {os.getpid()}" if name == "control.log" else f"Server {self.server}"
        line = f"[{when} {who}] {text}\n"
        self._stranger.run("sh", "-c", 'mkdir -p "$1" && cat >> "$1/$2"', "sh", self.folder, name, input=line)


@pytest.fixture
def accused(request: pytest.FixtureRequest, bystander: Stranger) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """A process, its owner and how that one is named."""
    if request.param == "root's":
        with roots_process() as process:
            yield process, 0, "root"
    else:
        yield bystander.start("sleep", "600"), bystander.uid, f"UID {bystander.uid}"


@contextmanager
def screen(pipe_dir: Path) -> Iterator[Terminal]:
    environment = {"MPSTUI_CONTROL_BINARY": str(BINARY), "MPSTUI_CONTROL_DEADLINE": usual(), "TZ": "UTC"}
    argv = [sys.executable, "-m", "mpstui", "--pipe-dir", os.fspath(pipe_dir)]
    with Terminal(argv, environment=environment) as terminal:
        yield terminal


def read(terminal: Terminal) -> str:
    """The screen's words without frames, and without the bar of a notification and what is beside it."""
    return " ".join(re.sub(r"[│▌]", " ", terminal.text).split())


def says(terminal: Terminal, *words: str) -> None:
    terminal.wait_for(lambda terminal: all(word in read(terminal) for word in words))


def press(terminal: Terminal, key: str, come: Callable[[], object]) -> None:
    """Press it until that has come of it: a key that is typed before a refusal is seen is dropped."""

    def pressed(terminal: Terminal) -> object:
        terminal.key(key)
        terminal.read_for(1)
        return come()

    terminal.wait_for(pressed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("accused", "deaf_from"),
    [("a bystander's", "later"), ("root's", "later"), ("root's", "its start")],  # before it is known, whose is the same
    indirect=["accused"],
)
def test_a_silent_daemon_of_a_strangers_accuses_in_vain(
    stranger: Stranger, accused: tuple[subprocess.Popen[str], int, str], deaf_from: str
) -> None:
    victim, owner, name = accused
    pipe_dir: Path = stranger.home / "p"
    logs = Accusation(stranger, victim.pid, owner)
    lying_daemon(stranger, pipe_dir, clients=[victim.pid], server=logs.server, deaf=deaf_from == "its start")
    with screen(pipe_dir) as terminal:
        why = f"client {victim.pid} is not proved to be a PID of this namespace"
        if deaf_from == "later":  # whose process it is has been seen by then
            says(terminal, "⁴Clients 1", f"client {victim.pid} ({name}) connected")
            stranger.run("touch", pipe_dir / "deaf")
            why = f"process {victim.pid} belongs to {name}; a daemon of UID {stranger.uid} is trusted for"
        logs.terminate(60)
        terminal.key("r")
        says(terminal, "BLOCKED", f"client {victim.pid} was told to end twice", f"u ends nobody: {why}")
        says(terminal, "End no process only because this daemon names it")
        assert f"ends process {victim.pid}" not in read(terminal)
        for key in ("u", "K", "t"):
            press(terminal, key, lambda said=_REFUSED[key]: all(words in read(terminal) for words in said))
            terminal.key("enter")
            assert lives(victim)
            terminal.key("escape")  # where there is a GPU, Enter opens its details
        press(terminal, "q", lambda: terminal.process.poll() is not None)
        assert terminal.wait_exit() == 0
    assert lives(victim)
    heard = pipe_dir / "heard"
    assert not heard.exists() or "terminate_client" not in heard.read_text()


_REFUSED = {"u": ("Unblock",), "K": ("Terminate + kill", "is blocked"), "t": ("Terminate", "is blocked")}
