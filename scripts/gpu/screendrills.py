"""Each state of trouble made for real beside the screen in a terminal, and put right with the keys that it offers."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from contract.harness import ClientRefused, Mode, chosen
from drive import Screen
from node import Client, Node
from report import Report
from watched import start_session

OK = re.compile(r"● ok")
YES = re.compile(r"▸ (?!Cancel|Close)\S[^◂\n]*◂")
DONE = re.compile(r"│ +([✓✗] \S[^│\n]*)")
STARTED = re.compile(r"(the daemon runs in)")
STRANGER = 2001
"""Another user."""
CONTEXTS = 48
"""Clients that a device takes (fact 13)."""


class Drill:
    """One node and the screen on it; ``times`` are seconds until the screen showed something."""

    def __init__(self, node: Node, screen: Screen) -> None:
        self.node = node
        self.screen = screen
        self.times: dict[str, float] = {}
        self.said = ""
        self._yes = 0.0

    def clients(self, *modes: Mode) -> list[Client]:
        """Clients that the screen shows, with their users."""
        clients = [self.node.client(mode) for mode in modes]
        self.screen.wait_clients([client.pid for client in clients])
        return clients

    @contextlib.contextmanager
    def until(self, name: str, *texts: str | re.Pattern[str]) -> Iterator[None]:
        """Do something, and wait until the screen shows all of it: the time of that."""
        begun = time.monotonic()
        yield
        for text in texts:
            self.screen.wait_for(text, 20)
        self.times[name] = round(time.monotonic() - begun, 3)

    def accept(self, *keys: str, done: re.Pattern[str] = DONE) -> None:
        """The offered keys, yes to the question, whose default is no, and back when it says that it is done."""
        self.screen.key(*keys)
        self.screen.wait_for("Cancel ", 10)
        self.screen.press_until("tab", YES, 16)
        self._yes = time.monotonic()
        self.screen.key("enter")
        self.screen.wait_for(done, 45)
        found = done.search(self.screen.text)
        self.said = found[1].strip() if found else ""
        self.screen.key("escape")
        self.screen.wait_for(lambda terminal: "◂" not in terminal.text, 10)

    def recovered(self, text: str | re.Pattern[str] = OK) -> None:
        """Wait until the screen shows that all is well: the time since the yes."""
        self.screen.wait_for(text, 20)
        self.times["from yes to recovery"] = round(time.monotonic() - self._yes, 3)

    def session(self, command: str, *, close: bool) -> subprocess.Popen[bytes]:
        """Somebody's control session: a command, and then the end of it or nothing more."""
        return start_session(self.node.binary, self.node.pipe_dir, command, close=close)


def fault(drill: Drill) -> None:
    """An illegal store beside a client that does nothing."""
    faulty, _ = drill.clients("fault", "idle")
    with drill.until("alert", "✕ FAULT", "e End lost clients"):
        faulty.fault()
    drill.accept("e")
    drill.recovered("✓ RECOVERED")


def blocked(drill: Drill) -> None:
    """terminate_client twice for one client."""
    client, _ = drill.clients("idle", "idle")
    command = f"terminate_client {drill.node.server()} {client.pid}"
    drill.node.control(command)
    with drill.until("alert", "■ BLOCKED", f"u  ends process {client.pid}"):
        session = drill.session(command, close=True)
    drill.accept("u")
    drill.recovered()
    session.wait(10)


def held(drill: Drill) -> None:
    """A session that is kept open."""
    drill.clients("idle")
    session = drill.session("get_server_list", close=False)
    with drill.until("alert", "◆ HELD", f"u  ends process {session.pid}"):
        pass
    drill.accept("u")
    drill.recovered()
    session.wait(10)


def quitting(drill: Drill) -> None:
    """``quit`` beside a client: nobody can be asked; when the client has ended, a new daemon is started."""
    (client,) = drill.clients("idle")
    with drill.until("alert", "■ BLOCKED", f"waits for client {client.pid}"):
        session = drill.session("quit", close=True)
    with drill.until("its end", "starts a daemon here"):
        client.stop()
    session.wait(10)
    _start(drill)


def stale(drill: Drill) -> None:
    """kill -9 of the daemon beside a client."""
    (client,) = drill.clients("idle")
    pid = int((drill.node.pipe_dir / "nvidia-cuda-mps-control.pid").read_text())
    with drill.until("alert", "◌ STALE", "lost server", str(client.pid)):
        os.kill(pid, signal.SIGKILL)
    _start(drill)


def _start(drill: Drill) -> None:
    drill.screen.key("d")
    drill.screen.wait_for("Control daemons", 10)
    drill.accept("S", done=STARTED)
    drill.recovered()
    drill.screen.key("escape")  # in the daemons' form `q` is a letter
    drill.screen.wait_for("Clients", 10)


def full(drill: Drill) -> None:
    """One client more than a device takes; it comes in when another one has been ended."""
    for begin in range(0, CONTEXTS, 8):
        for coming in [drill.node.launch("idle") for _ in range(begin, min(begin + 8, CONTEXTS))]:
            coming.result(60)
    with drill.until("alert", f"{CONTEXTS} of {CONTEXTS} contexts"):
        pass
    try:
        drill.node.client("idle")
        raise RuntimeError("one client more than the device takes was taken")
    except ClientRefused as refused:
        print(f"  one more: {refused}", flush=True)
    drill.accept("K")
    drill.node.client("idle")  # raises where it is refused


def pending(drill: Drill) -> None:
    """A client of another user waits until the first one has been ended."""
    from contract.real_node import LIFETIME, compiled_client

    (first,) = drill.clients("idle")
    for folder in (drill.node.pipe_dir.parent, drill.node.pipe_dir.parents[1]):
        folder.chmod(0o755)
    stranger = subprocess.Popen(
        [compiled_client(), "idle", LIFETIME],
        env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(drill.node.pipe_dir)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        user=STRANGER,
        group=STRANGER,
        extra_groups=[],
    )
    try:
        drill.screen.wait_for("W Waiting", 10)
        drill.screen.key("W")
        drill.screen.wait_for(f"Client {stranger.pid} waits", 10)
        drill.screen.wait_for(str(first.pid), 10)
        drill.accept("K")
        drill.recovered("no process waits")
        drill.screen.key("escape")
        drill.screen.wait_for(re.compile(rf"▸ +{stranger.pid} "), 20)  # a user without a name, so not wait_clients
    finally:
        stranger.kill()
        stranger.wait(10)


DRILLS: dict[str, Callable[[Drill], None]] = {
    "fault": fault,
    "blocked": blocked,
    "held": held,
    "quitting": quitting,
    "stale": stale,
    "full": full,
    "pending": pending,
}


def drills(report: Report, folder: Path, node: Callable[[str], contextlib.AbstractContextManager[Node]]) -> None:
    """All of them; a picture in text of each alert's screen goes to ``folder``."""
    for name, work in DRILLS.items():
        if name == "pending" and (chosen() != "real" or os.geteuid() != 0):
            print("  pending is left out: it needs a real daemon and root", flush=True)
            continue
        with node(f"drill-{name}") as place, Screen(place.pipe_dir) as screen:
            screen.wait_for(OK, 20)
            drill = Drill(place, screen)
            solved = report.attempt(f"{name}: solved from the screen", lambda w=work, d=drill: (w(d), True)[1])
            (folder / f"drill-{name}.txt").write_text(screen.text)
            report.check(
                f"{name}: put right with the offered keys", bool(solved) and not drill.said.startswith("✗"), drill.said
            )
            report.value(f"{name}: seconds", drill.times)
            report.check(f"{name}: the screen is left with status 0", report.attempt("leaving", screen.leave) == 0)
