"""control.log: what the daemon did, and what it was asked to do by whom."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from mpstui.control.channel import PROOF
from mpstui.core.model import Event
from mpstui.core.text import printable, taken_limit
from mpstui.observe.logline import Line, failed_start, make_event, memory_limit, number, raw_text, unknown

_NOISE: Final = (
    b"Accepting connection",
    b"User did not send valid credentials",
    b"To connect CUDA applications",
    b"Try shutting down server",
    b"Control will try shutting down server",
    b"quit command issued",
    b"Removed Shm file",
)
_STARTING_DAEMON: Final = b"Starting control daemon"
_ENDS_PS: Final = (b"UI closed", b"Cmd:", b"Accepting connection", _STARTING_DAEMON)
_MAY_END_PS: Final = re.compile(rb"\].(?:" + b"|".join(map(re.escape, _ENDS_PS)) + rb")")
_CLIENT: Final = re.compile(rb"NEW CLIENT (\d{1,10}) from user (\d{1,10}): (.*)")
_STARTING: Final = re.compile(rb"Starting new server (\d{1,10}) for user (\d{1,10})")
_READY: Final = re.compile(rb"NEW SERVER (\d{1,10}): Ready")
_EXITED: Final = re.compile(rb"Server (\d{1,10}) exited with status (-?\d{1,10})")
_WAITING: Final = re.compile(rb"Server (\d{1,10}) has (\d{1,10}) active worker threads")
_FORCED: Final = re.compile(rb"Force shutting down server (\d{1,10})")
_REFUSALS: Final = (
    b"Invalid",
    b"Insufficient privilege",
    b"Not enough privilege",
    b"Unknown command",
    b"A user id",
    b"Failed",
)
_PROOF: Final = PROOF.encode()
_NOT_STARTED: Final = re.compile(
    rb"Failed to start server(?: using uid (\d{1,10}))?[.,:]?\s*(?:error:\s*)?(.*)", re.DOTALL
)
_IGNORED: Final = re.compile(rb"(CUDA_MPS_[A-Z_]{1,64}) should be between (.{1,40})", re.DOTALL)
_NOT_FOUND: Final = re.compile(rb"Server \d{1,20} (?:not found|is <busy>)")
"""What is said in place of doing what a command asks of a server: there is none, or it is starting (fact 45)."""
_SLACK: Final = 1.0
"""Seconds by which a line in the log and the moment of reading it may differ."""
_ANSWERED: Final = 5.0
"""Seconds from reading a ``ps`` after which what is read is no row of its answer: a daemon writes that at once."""


class ControlLines:
    """The state that reading control.log takes: which command is being answered.

    ``clock`` is None while history is read. Once it is set, a line that ends the answer to a ``ps`` is believed only if
    the log's clock has not run further since the command than the reader's own: a forged line was written into argv
    before anybody knew when ``ps`` would be asked. A reader that was suspended, or a daemon that was killed, may leave
    an answer without such an end: it is then over after ``_ANSWERED`` seconds, or, in history, with the next daemon.
    """

    __slots__ = ("_asked_at", "_command", "_owner", "_read_at", "_session", "_waiting", "clock", "version")

    def __init__(self) -> None:
        self.clock: Callable[[], float] | None = None
        self.version: str | None = None
        self._command: _Command | None = None
        self._owner = 0
        self._asked_at = 0.0
        self._read_at = 0.0
        self._session = False
        self._waiting: int | None = None

    def skips(self, raw: bytes, text: int) -> bool:
        """Whether the line, whose text begins at ``text``, changes nothing whatever its time and tag are."""
        if self._command is not None and self._command.untrusted:
            return not raw.startswith(_ENDS_PS, text)
        return raw.startswith(_NOISE, text)

    def next_line(self, block: bytes, at: int) -> int:
        """Where the next line from ``at`` on begins that may tell something; the block's length where none does."""
        if self._command is None or not self._command.untrusted:
            return at
        found = _MAY_END_PS.search(block, at)
        return len(block) if found is None else max(at, block.rfind(b"\n", at, found.start()) + 1)

    def bare(self, raw: bytes) -> list[Event]:
        """A line without a time: always the rest of an answer or of a client's name, never an event of its own."""
        if self._command is not None or self._session:
            return []
        return [Event("unknown", detail=printable(raw), raw=printable(raw))] if raw.strip() else []

    def feed(self, line: Line) -> list[Event]:
        command = self._command
        if command is not None and command.untrusted and not self._ends_untrusted(line):
            return []
        text = line.text
        if text.startswith(b"Cmd:"):
            if command is not None and command.name == _PROOF:
                self._command = None  # asked only to prove that the next one arrives
            return [*self._finish(), *self._begin(line)]
        if text == b"UI closed":
            events = self._finish()
            self._session = False
            events.append(make_event(line, "session_closed", "a control session was closed"))
            return events
        if text == b"NEW UI":
            events = self._finish()
            self._session = True
            events.append(make_event(line, "session_opened", "a control session was opened"))
            return events
        if found := _NOT_STARTED.match(text):
            return [failed_start(line, None, found[2], None if found[1] is None else int(found[1]))]
        if command is not None and command.answer(text):
            return self._finish() if command.complete else []
        return self._daemon_line(line)

    def _ends_untrusted(self, line: Line) -> bool:
        text = line.text
        if line.tag != b"Control" or not text.startswith(_ENDS_PS):
            return False
        if self.clock is not None and self.clock() - self._read_at > _ANSWERED:
            return True
        if line.time < self._asked_at:
            return False
        if text.startswith(_STARTING_DAEMON):
            return self.clock is None
        if line.pid != self._owner:
            return False
        if self.clock is not None and line.time - self._asked_at > self.clock() - self._read_at + _SLACK:
            return False
        return text == b"UI closed" or text.startswith((b"Cmd:", b"Accepting connection"))

    def _begin(self, line: Line) -> list[Event]:
        self._session = True
        self._owner, self._asked_at = line.pid, line.time
        self._read_at = self.clock() if self.clock else 0.0
        self._command = _Command(line)
        return self._command.at_once()

    def _finish(self) -> list[Event]:
        command, self._command = self._command, None
        return command.outcome() if command else []

    def _daemon_line(self, line: Line) -> list[Event]:
        text = line.text
        if text.startswith(_NOISE) or not text:
            if self._command is not None and self._command.untrusted:
                self._command = None
            return []
        if found := _CLIENT.match(text):
            return self._client(line, int(found[1]), int(found[2]), found[3])
        if found := _WAITING.match(text):
            server = int(found[1])
            if server == self._waiting:
                return []
            self._waiting = server
            detail = f"server {server} is to shut down and waits for its clients"
            return [make_event(line, "server_shutdown_waiting", detail, server=server)]
        if found := _STARTING.match(text):
            server, uid = int(found[1]), int(found[2])
            detail = f"server {server} is starting for user {uid}"
            return [make_event(line, "server_starting", detail, server=server, uid=uid)]
        if found := _READY.match(text):
            return [make_event(line, "server_ready", f"server {int(found[1])} is ready", server=int(found[1]))]
        if found := _EXITED.match(text):
            server, self._waiting = int(found[1]), None
            detail = f"server {server} exited with status {found[2].decode()}"
            return [make_event(line, "server_exited", detail, server=server, values={"status": found[2].decode()})]
        if found := _FORCED.match(text):
            detail = f"server {int(found[1])} is being shut down by force"
            return [make_event(line, "server_shutdown_waiting", detail, server=int(found[1]), values={"force": "1"})]
        if text.startswith(_STARTING_DAEMON):
            self._waiting, self._command, self._session = None, None, False
            place, _, name = raw_text(text.rpartition(b" ")[2]).rpartition("/")
            values = {"pipe_dir": place} if place and name == "control" else {}
            detail = f"control daemon {line.pid} started"
            return [make_event(line, "daemon_started", detail, pid=line.pid, values=values)]
        if found := _IGNORED.match(text):
            name, allowed = found[1].decode(), raw_text(found[2])
            detail = (
                f"{name} of the daemon's environment is not taken, the default holds: it should be between {allowed}"
            )
            return [make_event(line, "limit_ignored", detail, values={"variable": name})]
        if text.startswith(b"CUDA MPS Control binary version:"):
            self.version = raw_text(text.partition(b":")[2].strip())
            return []
        if text.startswith(b"Exit with status"):
            return [make_event(line, "daemon_exited", f"control daemon {line.pid} exited", pid=line.pid)]
        if self._session or self._command is not None:
            return []  # the answer to a plain question
        return unknown(line)

    def _client(self, line: Line, pid: int, uid: int, what: bytes) -> list[Event]:
        if what.startswith(b"Server already exists"):
            detail = f"client {pid} of user {uid} is sent to the server"
            return [make_event(line, "client_admitted", detail, pid=pid, uid=uid)] if pid else []
        if b"pending list" in what:
            detail = f"client {pid} of user {uid} waits for a server"
            return [make_event(line, "client_pending", detail, pid=pid, uid=uid)]
        return [make_event(line, "unknown", raw_text(line.text), pid=pid, uid=uid)]


class _Command:
    """One ``Cmd:`` line and its answer so far."""

    __slots__ = ("_answer", "_line", "_text", "_words", "complete", "name", "untrusted")

    def __init__(self, line: Line) -> None:
        self._line = line
        self._text = raw_text(line.text[4:].strip())
        self._words = line.text[4:].split()[:5]
        self.name = self._words[0] if self._words else b""
        self._answer: list[bytes] = []
        self.complete = False
        self.untrusted = self.name == b"ps"
        """Its answer holds text of the clients."""

    def at_once(self) -> list[Event]:
        """Events that need not wait for the answer: a terminate may never get one (fact 16)."""
        if self.name == b"terminate_client":
            server, pid = self._number(1), self._number(2)
            return [self._make("terminate_requested", f"client {pid} is asked to end", server, pid)]
        if self.name in {b"quit", b"shutdown_server", b"start_server"}:
            return [self._make("command", f"asked for: {self._text}", self._number(1), changes="1")]
        if self.name.startswith(b"set_") or self.name == _PROOF:
            return []
        return [self._make("command", f"asked for: {self._text}")]

    def answer(self, text: bytes) -> bool:
        """Takes a line of the answer; False where it is the daemon's own."""
        if text.startswith(_REFUSALS) or _NOT_FOUND.match(text):
            self._answer.append(text)
            return True
        if self.name == b"terminate_client" and text in {b"0", b"1"}:
            self._answer.append(text)
            self.complete = True
            return True
        if self.name.startswith(b"set_") and (_is_decimal(text) or text.startswith(self.name)):
            self._answer.append(text)
            self.complete = True
            return True
        return False

    def outcome(self) -> list[Event]:
        """Events once the answer is there."""
        refusal = next((t for t in self._answer if t.startswith(_REFUSALS) or _NOT_FOUND.match(t)), None)
        if refusal is not None:
            if not (self.name.startswith(b"set_") or self.name in _CHANGES):
                return []
            detail = f"refused: {self._text} ({raw_text(refusal)})"
            pid = self._number(2) if self.name == b"terminate_client" else None
            return [self._make("command", detail, pid=pid, refused="1")]
        if self.name == b"terminate_client":
            if b"0" not in self._answer:
                return []
            server, pid = self._number(1), self._number(2)
            return [self._make("terminate_succeeded", f"client {pid} was ended by the server", server, pid)]
        return self._limit()

    def _limit(self) -> list[Event]:
        words = self._words
        if self.name == b"set_default_active_thread_percentage" and len(words) > 1:
            return self._percentage(None)
        if self.name == b"set_active_thread_percentage" and len(words) > 2:
            return self._percentage(self._number(1))
        if self.name == b"set_default_device_pinned_mem_limit" and len(words) > 2:
            return self._memory(None, words[1], words[2])
        if self.name == b"set_device_pinned_mem_limit" and len(words) > 3:
            return self._memory(self._number(1), words[2], words[3])
        if self.name == b"set_default_client_priority" and len(words) > 1 and words[1] in {b"0", b"1"}:
            value = words[1].decode()
            detail = f"default client priority set to {value}"
            return [self._make("limit_set", detail, what="client_priority", scope="default", value=value)]
        told = self.name.startswith(b"set_") or self.name == _PROOF
        return [self._make("command", f"asked for: {self._text}")] if told else []

    def _percentage(self, server: int | None) -> list[Event]:
        said = next((a for a in self._answer if _is_decimal(a)), None)
        if said is None:
            return [self._make("command", f"asked for: {self._text}")]
        value = f"{float(said):g}"
        whom = "default" if server is None else f"server {server}:"
        detail = f"{whom} active thread percentage set to {value} %"
        scope = "default" if server is None else "server"
        return [self._make("limit_set", detail, server, what="active_thread_percentage", scope=scope, value=value)]

    def _memory(self, server: int | None, device: bytes, wanted: bytes) -> list[Event]:
        scope = "default" if server is None else "server"
        return [
            memory_limit(
                self._line, scope, server, raw_text(device), taken_limit(wanted[:64].decode("latin-1")), self._text
            )
        ]

    def _number(self, index: int) -> int | None:
        return number(self._words[index]) if len(self._words) > index else None

    def _make(self, kind: str, detail: str, server: int | None = None, pid: int | None = None, **values: str) -> Event:
        values["command"] = self._text
        return make_event(self._line, kind, detail, server=server, pid=pid, values=values)  # type: ignore[arg-type]


_CHANGES: Final = frozenset({b"terminate_client", b"quit", b"shutdown_server", b"start_server"})


def _is_decimal(text: bytes) -> bool:
    return len(text) < 12 and text.replace(b".", b"", 1).isdigit()
