"""The worker's side of the line to its supervisor: commands in, reports out, and an end that nothing can prevent.

A busy MPS client that is killed takes its neighbours along (fact 17). So a worker ends itself: on request, on SIGTERM,
SIGINT or SIGHUP, when its standard input ends, and when its supervisor dies, for which the kernel sends SIGTERM. A
thread waits for all of these, so that they are heard while the main thread is inside the driver; only where the main
thread does not finish within the grace does the thread end the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import threading
from collections import deque
from typing import Any, Final, NoReturn

from mpstui.load.protocol import LINE_LIMIT, Order, decode, encode
from mpstui.load.types import WorkerError
from mpstui.system.parent import end_with_parent

GRACE: Final = 8.0
"""Seconds from the wish to end to the forced end."""
EXIT_FAILED: Final = 10
EXIT_FORCED: Final = 70
NO_END: Final = frozenset({int(signal.SIGVTALRM)})
"""Signals that a worker sends itself."""
_DEADLY: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT)


class Channel:
    """Made in the main thread of a worker. Raises SystemExit where there is no supervisor or no order."""

    def __init__(self, grace: float = GRACE) -> None:
        self.stopping = False
        self._grace = grace
        self._wakeup, wakeup_write = os.pipe()
        os.set_blocking(wakeup_write, False)
        signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        # The driver and its libraries may print on standard output: that goes to standard error from here on.
        self._out = os.dup(1)
        os.dup2(2, 1)
        self._rest = b""
        self.order = self._read_order()
        if not end_with_parent(self.order.parent):
            raise SystemExit(EXIT_FORCED)
        self._commands: deque[dict[str, Any]] = deque()
        self._something = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()

    def _read_order(self) -> Order:
        data = b""
        while b"\n" not in data and len(data) <= LINE_LIMIT:
            chunk = os.read(0, 1 << 16)
            if not chunk:
                raise SystemExit(EXIT_FORCED)
            data += chunk
        line, _, self._rest = data.partition(b"\n")
        try:
            return Order.decode(line)
        except ValueError as error:
            raise SystemExit(f"worker: {error}") from None

    def _listen(self) -> None:
        """Commands, signals and the end of the input; then the last resort."""
        data = self._rest
        stop = False
        while not stop:
            *lines, data = data.split(b"\n")
            for line in lines:
                message = decode(line)
                if message is not None:
                    if message["type"] == "die":
                        self._die(message.get("signal"))
                    self._hear(message)
                    stop = stop or message["type"] == "stop"
            if stop:
                break
            ready, _, _ = select.select([0, self._wakeup], [], [])
            chunk = os.read(0, 1 << 16) if 0 in ready else b""
            signalled = self._wakeup in ready and any(number not in NO_END for number in os.read(self._wakeup, 4096))
            stop = signalled or (0 in ready and not chunk) or len(data) > LINE_LIMIT
            data += chunk
        self.stop()
        threading.Event().wait(self._grace)
        os._exit(EXIT_FORCED)

    def _die(self, number: object) -> None:
        """As a program without a handler does, and without a core file."""
        if number in _DEADLY:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            ctypes.CDLL(None).signal(number, None)  # signal.signal is the main thread's alone
            os.kill(os.getpid(), int(str(number)))

    def _hear(self, message: dict[str, Any]) -> None:
        with self._something:
            self._commands.append(message)
            self._something.notify()

    def stop(self) -> None:
        """Wish for the end, from any thread."""
        self.stopping = True
        self._hear({"type": "stop"})

    def poke(self) -> None:
        """Wake up who waits, from any thread."""
        self._hear({"type": "poke"})

    def take(self) -> list[dict[str, Any]]:
        """The commands that came since the last time; never waits."""
        taken = []
        with contextlib.suppress(IndexError):
            while True:
                taken.append(self._commands.popleft())
        return taken

    def wait(self, timeout: float | None) -> list[dict[str, Any]]:
        """The commands, after waiting for the first of them for at most ``timeout`` seconds."""
        with self._something:
            if not self._commands and not self.stopping:
                self._something.wait(timeout)
        return self.take()

    def wait_for_go(self) -> bool:
        """Whether the supervisor said go, rather than stop. Other commands that came before it are kept."""
        kept: list[dict[str, Any]] = []
        while not self.stopping:
            for message in self.wait(None):
                if message["type"] == "go":
                    self._commands.extendleft(reversed(kept))
                    return True
                kept.append(message)
        return False

    def say(self, kind: str, /, *, droppable: bool = False, **values: Any) -> None:
        """One message. One that may be dropped is, where the supervisor does not keep up; where it is gone, stops."""
        if droppable and not select.select([], [self._out], [], 0)[1]:
            return
        data = encode(kind, values)
        try:
            while data:
                data = data[os.write(self._out, data) :]
        except OSError:
            self.stop()

    def fail(self, error: WorkerError) -> NoReturn:
        """Say why, and end at once.

        No context is destroyed: after a fault that would wait for a server which is being torn down.
        """
        self.say("error", code=error.code, text=error.text, remedy=error.remedy, name=error.name, kind=error.kind)
        os._exit(EXIT_FAILED)

    def end(self, **values: Any) -> NoReturn:
        """Say that all is done, and end without the interpreter's own slow end."""
        self.say("end", **values)
        os._exit(0)
