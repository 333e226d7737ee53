"""Works the screen of mpstui from its keys, as a person does: looks, presses, and waits for what must come."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "pty"))
from program import MPSTUI
from terminal import COLUMNS, LINES, Terminal, Timeout

if TYPE_CHECKING:
    from node import Client


def word(number: int | str) -> re.Pattern[str]:
    """The number as a word of its own."""
    return re.compile(rf"(?<![\w.]){re.escape(str(number))}(?![\w.])")


class Screen(Terminal):
    """mpstui on one pipe directory."""

    def __init__(self, pipe_dir: Path, *options: str, columns: int = COLUMNS, lines: int = LINES) -> None:
        super().__init__([*MPSTUI, "--pipe-dir", str(pipe_dir), *options], columns=columns, lines=lines)

    def wait_clients(self, pids: Iterable[int], deadline: float = 20.0) -> None:
        """Wait until these clients are shown, and whose they are: from then on the screen knows who is who."""
        self.wait_for("⁴", deadline)  # the list of clients, in every size
        for pid in pids:
            self.wait_for(word(pid), deadline)
            self.wait_for(re.compile(rf"(?<![\w.]){pid} +[a-z_]"), deadline)

    def wait_newcomer(self, coming: Future[Client], deadline: float) -> tuple[Client, float]:
        """Wait until a client that is on its way is on the screen; the client, and when it was seen (since the epoch).

        Its PID is not known before it has its context, and it may be on the screen by then.
        """
        end = time.monotonic() + deadline
        seen: dict[int, float] = {}
        while time.monotonic() < end:
            for number in re.findall(r"(?<![\w.])\d+(?![\w.])", self.text):
                seen.setdefault(int(number), time.time())
            if coming.done() and coming.result().pid in seen:
                return coming.result(), seen[coming.result().pid]
            self.read(0.02)
        raise Timeout(f"the newcomer is not on the screen within {deadline} s\n{self.text}")

    def press_until(self, key: str, text: str | re.Pattern[str], times: int = 8) -> None:
        """Press a key until a text shows; raises Timeout after so many times."""
        for _ in range(times):
            if self._holds(text):
                return
            self.key(key)
            try:
                self.wait_for(text, 0.5)
            except Timeout:
                continue
        self.wait_for(text, 2)

    def choose_client(self, pid: int) -> None:
        """Filter the clients' table down to one client, so that the cursor can be on no other."""
        self.key("/")
        self.wait_quiet()
        self.send(f"pid:{pid}")
        self.wait_quiet()
        self.key("enter")
        self.wait_quiet()

    def forget_choice(self) -> None:
        """Leave the filter."""
        self.key("escape")
        self.wait_quiet()

    def wait_quiet(self) -> None:
        """Read on until the answer to the last key is complete."""
        self.drain(0.15, 1.0)

    def set_limit(self, key: str, value: str, server: int | None = None, above: int = 1) -> str:
        """Fill in the form behind ``key`` and apply it; the line that says how it ended.

        ``server``: None for the default. The choice of it stands ``above`` fields over the value's.
        """
        self.press_until(key, "Nothing is sent before Apply", 20)  # refused until the daemon has answered
        self.send(value)
        self.wait_for(value, 3)
        self.key(*["backtab"] * above)
        self.press_until("up", "● default", 8)
        if server is not None:
            self.press_until("down", f"● server {server}", 8)
        self.press_until("enter", re.compile("▸ (Cancel|Apply) ◂"), 4)
        self.press_until("tab", "▸ Apply ◂", 3)
        self.key("enter")
        return self._outcome()

    def confirm(self, key: str, pid: int, button: str) -> str:
        """Ask for the action behind ``key`` on the chosen client and say yes, if the question names the right one."""
        self.press_until(key, "▸ Cancel ◂", 20)  # refused until the client is proved to be a process of this namespace
        self.wait_for(re.compile(rf"● {pid}\b"), 3)
        self.press_until("tab", f"▸ {button}", 3)
        self.key("enter")
        return self._outcome()

    def _outcome(self, deadline: float = 45.0) -> str:
        self.wait_for(re.compile(r"[✓✗] \S"), deadline)
        self.wait_for("Close", deadline)
        self.wait_quiet()
        found = re.search(r"([✓✗] \S.*?)\s*│", self.text)
        said = found[1] if found else ""
        self.key("escape")
        self.wait_quiet()
        return said

    def leave(self) -> int:
        """Quit; the exit status."""
        self.key("q")
        return self.wait_exit(5)
