"""A simulated CUDA client: a process of its own that is told what to do on its standard input.

The first line is what it is, as JSON; then one word a line: ``idle``, ``busy``, ``endless``, ``fault``, ``reset`` or
``exit``. It says what becomes of it on standard output, one JSON object a line, and ends when its input does.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any

_PACKET = 1 << 16
_KILLED_DAEMON = 806
_NOT_ACCEPTED = 805


class Client:
    """One connection to a daemon; without a daemon it works on without MPS, as a real client does (fact 19)."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.error = 0
        self.waiting = True
        self.busy = bool(spec["busy"])
        self.linger: float | None = spec["linger"]
        self.fault_at: float | None = None if spec["fault_after"] is None else time.monotonic() + spec["fault_after"]
        self.end_at: float | None = None
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        try:
            connection.connect(spec["control"])
            connection.send(json.dumps(spec["hello"]).encode())
        except OSError:
            connection.close()
            self.daemon: socket.socket | None = None
            self.waiting = False
            say("unmanaged")
        else:
            self.daemon = connection

    def send(self, word: str) -> None:
        if self.daemon is not None:
            try:
                self.daemon.send(word.encode())
            except OSError:
                self.fail(_KILLED_DAEMON, "lost")

    def fail(self, error: int, event: str, **values: Any) -> None:
        if not self.error:
            self.error = error
            self.busy = False
            say(event, error=error, **values)
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
            self.fail(_NOT_ACCEPTED if self.waiting else _KILLED_DAEMON, "refused" if self.waiting else "lost")
            self.waiting = False
            return
        event = json.loads(packet)
        kind = event.pop("event")
        if kind == "pending":
            say("pending")
        elif kind == "connected":
            self.waiting = False
            error = event.pop("error")
            say("connected", **event)
            if error:
                self.fail(error, "failed")
        else:
            self.waiting = False
            self.fail(event["error"], kind)

    def told(self, word: str) -> None:
        if word in ("idle", "busy", "endless"):
            self.busy = word != "idle" and not self.error
            self.send("busy" if self.busy else "idle")
        elif word == "fault":
            self.fault_at = None
            self.send("fault")
        elif word == "reset":
            self.send("reset")
        elif word == "exit":
            self.send("bye")
            say("result", error=self.error)
            os._exit(10 if self.error else 0)

    def next_deadline(self) -> float | None:
        times = [t for t in (self.fault_at, self.end_at) if t is not None]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def tick(self) -> None:
        now = time.monotonic()
        if self.fault_at is not None and now >= self.fault_at:
            self.told("fault")
        if self.end_at is not None and now >= self.end_at:
            self.told("exit")


def say(event: str, **values: Any) -> None:
    """Tells the starter; one that is gone takes this process with it."""
    try:
        os.write(1, json.dumps({"event": event, **values}).encode() + b"\n")
    except OSError:
        os._exit(1)


def main() -> None:
    """Runs until told to exit or until standard input ends."""
    data = b""
    while b"\n" not in data:
        chunk = os.read(0, _PACKET)
        if not chunk:
            return
        data += chunk
    first, _, data = data.partition(b"\n")
    spec = json.loads(first)
    if spec["hostile"]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open("/proc/self/comm", "wb") as comm:
        comm.write(spec["name"].encode("ascii", "replace")[:15])
    client = Client(spec)
    while True:
        *lines, data = data.split(b"\n")
        for line in lines:
            client.told(line.decode("ascii", "replace"))
        sources = [0] + ([client.daemon.fileno()] if client.daemon is not None else [])
        ready, _, _ = select.select(sources, [], [], client.next_deadline())
        for descriptor in ready:
            if descriptor != 0:
                client.heard()
        if 0 in ready:
            chunk = os.read(0, _PACKET)
            if not chunk:
                sys.exit(1)
            data += chunk
        client.tick()


if __name__ == "__main__":
    main()
