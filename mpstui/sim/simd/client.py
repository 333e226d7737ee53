"""A simulated CUDA client: a process of its own that is told what to do on its standard input.

Its arguments are the daemon's socket, a name, whether it is busy and hostile, and two times in seconds or ``-``: how
long it outlives an error, and when it faults by itself. The first line of input is what it says to the daemon; then
comes one word a line: ``idle``, ``busy``, ``endless``, ``fault``, ``trap``, ``reset`` or ``exit``. It says on standard
output what becomes of it, one line an event, and ends when its input does.
"""

from __future__ import annotations

import select
import sys
import time
from _socket import (
    AF_UNIX,
    SO_SNDBUF,
    SOCK_SEQPACKET,
    SOL_SOCKET,
    socket,
)  # the public modules, and os, double the time to start
from posix import _exit, read, write

_PACKET = 1 << 16
_KILLED_DAEMON = 806
_NOT_ACCEPTED = 805


class DaemonConnection:
    """One connection to a daemon; without a daemon it works on without MPS, as a real client does (fact 19)."""

    def __init__(self, address: str, hello: bytes, busy: bool, linger: str) -> None:
        self.error = 0
        self.waiting = True
        self.busy = busy
        self.linger = None if linger == "-" else float(linger)
        self.end_at: float | None = None
        self.daemon: socket | None = socket(AF_UNIX, SOCK_SEQPACKET)
        self.daemon.setsockopt(SOL_SOCKET, SO_SNDBUF, 1 << 20)
        try:
            self.daemon.connect(address)
            self.daemon.send(hello)
        except OSError:
            self.daemon.close()
            self.daemon = None
            self.waiting = False
            say("unmanaged")

    def send(self, word: str) -> None:
        if self.daemon is not None:
            try:
                self.daemon.send(word.encode())
            except OSError:
                self.fail("lost", _KILLED_DAEMON)

    def fail(self, event: str, error: int) -> None:
        if not self.error:
            self.error = error
            self.busy = False
            say(f"{event} error={error}")
            if self.linger is not None:
                self.end_at = time.monotonic() + self.linger

    def heard(self) -> None:
        """An event of the daemon, or its end."""
        if self.daemon is None:
            return
        try:
            packet = self.daemon.recv(_PACKET)
        except OSError:
            packet = b""
        if not packet:
            self.daemon.close()
            self.daemon = None
            event = ("refused", _NOT_ACCEPTED) if self.waiting else ("lost", _KILLED_DAEMON)
            self.waiting = False
            self.fail(*event)
            return
        kind, *values = packet.decode().split()
        error = next((int(v.removeprefix("error=")) for v in values if v.startswith("error=")), 0)
        if kind != "pending":
            self.waiting = False
        if kind in ("pending", "connected"):
            say(packet.decode())
            kind = "failed"
        if error:
            self.fail(kind, error)

    def told(self, word: str) -> None:
        if word in ("idle", "busy", "endless"):
            self.busy = word != "idle" and not self.error
            self.send(word if self.busy else "idle")
        elif word in ("fault", "trap", "reset"):
            self.send(word)
        elif word == "exit":
            self.send("bye")
            _exit(10 if self.error else 0)

    def next_deadline(self) -> float | None:
        return None if self.end_at is None else max(0.0, self.end_at - time.monotonic())

    def tick(self) -> None:
        if self.end_at is not None and time.monotonic() >= self.end_at:
            self.told("exit")


def say(event: str) -> None:
    """Tells the starter; one that is gone takes this process with it."""
    try:
        write(1, event.encode() + b"\n")
    except OSError:
        _exit(1)


def main(address: str, name: str, busy: str, hostile: str, linger: str) -> None:
    """Runs until told to exit or until standard input ends."""
    if hostile == "1":
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open("/proc/self/comm", "wb") as comm:
        comm.write(name.encode("utf-8", "surrogateescape")[:15])
    data = b""
    while b"\n" not in data:
        chunk = read(0, _PACKET)
        if not chunk:
            return
        data += chunk
    hello, _, data = data.partition(b"\n")
    client = DaemonConnection(address, hello, busy == "1", linger)
    while True:
        *lines, data = data.split(b"\n")
        for line in lines:
            client.told(line.decode("ascii", "replace"))
        sources = [0] if client.daemon is None else [0, client.daemon.fileno()]
        ready, _, _ = select.select(sources, [], [], client.next_deadline())
        if len(ready) > (0 in ready):
            client.heard()
        if 0 in ready:
            chunk = read(0, _PACKET)
            if not chunk:
                return
            data += chunk
        client.tick()


if __name__ == "__main__":
    main(*sys.argv[1:])
