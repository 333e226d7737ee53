"""The grammar of control.log and server.log: a line in, events out; pure, one parser object a file."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Final, Literal, NamedTuple

from mpstui.control.commandline import PROOF
from mpstui.core.late import pattern
from mpstui.core.model import EMPTY, Event, EventKind, event_of, server_devices
from mpstui.core.text import client_pids, format_size, printable, taken_limit

# What the two log parsers share: the parts of a line, and how an event is made of it.


LINE_BYTES: Final = 64 << 10
"""The rest of a longer line is dropped: a client's name can be that long (fact 10)."""
_MAX_RAW: Final = 300


class Clock:
    """Local time of a log line to seconds since the epoch; the minute is remembered, as lines come in order, and the
    latest stamp, as several are written at a time.

    Of an hour that is there twice, as summer ends, it is the first one until its minutes come again; of lines that are
    just being written it is the one that is now. Of a log that is silent in the first one nothing tells which it is.
    """

    __slots__ = ("_epoch", "_minute", "_stamp", "_time", "now")

    def __init__(self) -> None:
        self._minute = self._stamp = b""
        self._epoch = self._time = 0.0
        self.now: Callable[[], float] | None = None
        """The time of this place, where lines are read as they are written."""

    def read(self, stamp: bytes) -> float:
        """``2026-11-20 21:24:28.598``; raises ValueError or OverflowError for anything else."""
        if stamp == self._stamp:
            return self._time
        minute = stamp[:16]
        if minute != self._minute:
            fields = (int(minute[:4]), int(minute[5:7]), int(minute[8:10]), int(minute[11:13]), int(minute[14:16]))
            if not 1970 <= fields[0] < 9999:
                raise ValueError("the year must be from 1970 to 9998")
            self._epoch = self._which(fields)
            self._minute = minute
        seconds = float(stamp[17:])
        if not 0 <= seconds < 61:
            raise ValueError("the seconds must be at least 0 and below 61")
        self._time, self._stamp = self._epoch + seconds, stamp
        return self._time

    def _which(self, minute: tuple[int, int, int, int, int]) -> float:
        """When it was that minute."""
        epoch = time.mktime((*minute, 0, 0, 0, -1))
        twins = (epoch + shift for shift in _SHIFTS)
        moments = sorted((epoch, *(twin for twin in twins if time.localtime(twin)[:5] == minute)))
        if len(moments) == 1:
            return epoch
        if self.now is not None:
            now = self.now()
            return min(moments, key=lambda moment: abs(moment - now))
        return next((moment for moment in moments if moment >= self._time - _DISORDER), moments[-1])


_SHIFTS: Final = (-7200, -3600, -1800, 1800, 3600, 7200)
"""Seconds by which clocks are set for summer, somewhere."""
_DISORDER: Final = 120.0
"""Seconds by which a line may be before the one above it without an hour's having come again."""


class LogLine(NamedTuple):
    """The parts of ``[2026-11-20 21:24:28.598 Control   480] text``."""

    time: float
    tag: bytes
    pid: int
    text: bytes
    raw: bytes


def raw_text(line: bytes) -> str:
    """The line as it may be shown; plain ASCII, which nearly every line is, takes the short way."""
    if len(line) <= _MAX_RAW and line.isascii():
        text = line.decode("ascii")
        if text.isprintable():
            return text
    return printable(line, _MAX_RAW)


ELSEWHERE: Final = "a client in another PID namespace"
_CLIENT_0: Final = pattern(r"\bclient 0\b")


def make_event(
    line: LogLine,
    kind: EventKind,
    detail: str,
    *,
    server: int | None = None,
    pid: int | None = None,
    context: int | None = None,
    devices: tuple[str, ...] = (),
    uid: int | None = None,
    values: Mapping[str, str] = EMPTY,
) -> Event:
    """An event at the time of ``line``, with the line as its proof. PID 0 is a process that the daemon does not see."""
    if pid == 0:
        detail, pid, values = _CLIENT_0.sub(ELSEWHERE, detail), None, {**values, "elsewhere": "1"}
    told = kind, line.time, None, server, pid, context, devices, detail, raw_text(line.raw), uid, values, None, None, ()
    return event_of(told)


_EVICTED: Final = pattern(rb"\bevict", re.IGNORECASE)
_FAILS: Final = pattern(
    rb"\b(?:fail(?:s|ed|ure|ing)?|errors?|unable|cannot|could not|denied|exception|refus(?:ed|ing)|abort(?:ed|ing)?"
    rb"|out of memory|timed? ?out)\b",
    re.IGNORECASE,
)
"""Words of trouble: a sentence with one of them is not hidden among those that nobody knows."""
_OF_CLIENT: Final = pattern(rb"(?:PID:? |client )(\d{1,10})\b", re.IGNORECASE)


def unknown(line: LogLine, server: int | None = None) -> list[Event]:
    """A line that nobody has seen before: shown as it is, never dropped, and as an error where its words are those of
    one. One that tells of an eviction, which no recording has, is told as the claim that it is: the client gets error
    810 then too."""
    if _EVICTED.search(line.text):
        found = _OF_CLIENT.search(line.text)
        pid = None if found is None else int(found[1])
        return [make_event(line, "client_evicted", raw_text(line.text), server=server, pid=pid)]
    kind: EventKind = "unknown"
    if _FAILS.search(line.text):
        kind = "daemon_error" if server is None else "server_error"
    return [make_event(line, kind, raw_text(line.text), server=server)]


def number(text: bytes) -> int | None:
    """A PID or another whole number of at most 19 digits; None for anything else."""
    return int(text) if text.isdigit() and len(text) <= 19 else None


NOT_STARTED: Final = pattern(rb"(?:Failed to start|MPS server failed to start)\b[ .:]*((?:[^ .:].*)?)", re.DOTALL)
"""How a server says why it does not start; the second form is of 2013."""


def failed_start(line: LogLine, server: int | None, reason: bytes, uid: int | None = None) -> Event:
    """A server did not start; ``reason`` in its own words, which may be none."""
    words = raw_text(reason.strip())
    which = "a server" if server is None else f"server {server}"
    detail = f"{which} failed to start" + (f": {words}" if words else "")
    values = {"reason": words} if words else {}
    return make_event(line, "server_failed", detail, server=server, uid=uid, values=values)


def memory_limit(
    line: LogLine, scope: str, server: int | None, device: str, size: int, command: str | None = None
) -> Event:
    """A pinned memory limit was set; ``size`` in bytes, 0 where it was taken away (fact 26)."""
    whom = "default" if server is None else f"server {server}:"
    values = {"what": "pinned_mem_limit", "scope": scope, "value": str(size), "device": device}
    if command:
        values["command"] = command
    becomes = f"set to {format_size(size)}" if size else "taken away"
    detail = f"{whom} pinned memory limit of device {device} {becomes}"
    return make_event(line, "limit_set", detail, server=server, devices=(device,), values=values)


# control.log: what the daemon did, and what it was asked to do by whom.


_CONTROL_PARTS: Final[Mapping[bytes, EventKind]] = {
    b"Accepting connection": "client_admitted",
    b"User did not send valid credentials": "client_admitted",
    b"To connect CUDA applications": "daemon_started",
    b"Try shutting down server": "server_shutdown_waiting",
    b"Control will try shutting down server": "server_shutdown_waiting",
    b"quit command issued": "command",
    b"Removed Shm file": "server_exited",
}
"""How sentences begin that tell nothing of their own, with the event that each belongs to. Whoever connects, a session
too, is accepted and asked for credentials first."""
_CONTROL_NOISE: Final = tuple(_CONTROL_PARTS)
_VERSION: Final = b"CUDA MPS Control binary version:"
_STARTING_DAEMON: Final = b"Starting control daemon"
_START: Final = b"Start"
"""All that a daemon, or a server, of driver 460 says of its start."""
_DAEMON_ERRORS: Final = (
    b"Failed to create control pid file",
    b"Cannot access CUDA_MPS_PIPE_DIRECTORY",
    b"Warning: Failed writing log files",
    b"An instance of this daemon is already running",
    b"Only root user may enable -multiuser-server",
)
"""What a daemon says of its own set-up; where it runs in the foreground its log holds that too (fact 47)."""
_CONNECTION_FAILED: Final[Mapping[bytes, str]] = {
    b"Unable to accept connection": "the daemon could not accept a connection",
    b"Unable to read new connection type information": "the daemon could not read what a new connection wants",
}
_DEBUGGEE: Final = pattern(rb"NEW DEBUGGEE (\d{1,10}) from user (\d{1,10})\b")
_CRASHED: Final = b"Server encountered a fatal exception"
_TROUBLE: Final = (*_DAEMON_ERRORS, *_CONNECTION_FAILED, _CRASHED, b"NEW DEBUGGEE")
_ENDS_PS: Final = (b"UI closed", b"Cmd:", b"Accepting connection", _STARTING_DAEMON)
_MAY_END_PS: Final = pattern(rb"\].(?:" + b"|".join(map(re.escape, _ENDS_PS)) + rb")")
_NEW_CLIENT: Final = pattern(rb"NEW CLIENT (\d{1,10}) from user (\d{1,10}): (.*)")
_STARTING: Final = pattern(rb"Starting new server (\d{1,10}) for user (\d{1,10})\b")
_READY: Final = pattern(rb"(?:NEW SERVER (?=\d+: Ready)|Server (?=\d+ is ready\b))(\d{1,10})\b")
"""The second form was reported from Kubernetes."""
_BUSY: Final = pattern(rb"Server (\d{1,10}) is <busy>")
_EXITED: Final = pattern(rb"Server (\d{1,10}) exited with status (-?\d{1,10})\b")
_WAITING: Final = pattern(rb"Server (\d{1,10}) has (\d{1,10}) active worker threads")
_FORCED: Final = pattern(rb"Force shutting down server (\d{1,10})\b")
_REFUSALS: Final = (
    b"Invalid",
    b"Insufficient privilege",
    b"Not enough privilege",
    b"Unknown command",
    b"A user id",
    b"A server PID",
    b"Failed",
)
_PROOF: Final = PROOF.encode()
_NOT_STARTED: Final = pattern(
    rb"Failed to start server(?: using uid (\d{1,10})\b)?[.,:]?\s*(?:error:\s*)?((?:\S.*)?)", re.DOTALL
)
_IGNORED: Final = pattern(rb"(CUDA_MPS_[A-Z_]{1,64}) should be between (.{1,40})", re.DOTALL)
_NOT_FOUND: Final = pattern(rb"Server \d{1,20} (?:not found|is <busy>)")
"""What is said in place of doing what a command asks of a server: there is none, or it is starting (fact 45)."""
_VERB: Final = pattern(rb"[a-z_]{1,64}")
_MOST_UNKNOWN: Final = 64
"""Commands that are remembered as unknown: anybody may type what he likes."""
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

    __slots__ = (
        "_asked_at",
        "_command",
        "_owner",
        "_read_at",
        "_session",
        "_starting",
        "_waiting",
        "clock",
        "unknown",
        "version",
    )

    def __init__(self) -> None:
        self.clock: Callable[[], float] | None = None
        self.version: str | None = None
        self.unknown: tuple[int, frozenset[str]] = (0, frozenset())
        """The daemon's PID as its log has it, and the commands that it said it does not know, whoever sent them."""
        self._command: _Command | None = None
        self._owner = 0
        self._asked_at = 0.0
        self._read_at = 0.0
        self._session = False
        self._starting: int | None = None
        self._waiting: int | None = None

    @property
    def untrusted(self) -> bool:
        """Whether the answer to a ``ps`` is being read, in which clients may have written what they like."""
        return self._command is not None and self._command.untrusted

    def part_of(self, text: bytes) -> EventKind | None:
        """The kind of the event that a line belongs to which gave none; asked behind that line."""
        if self._command is not None:
            return "command"
        if text.startswith(_VERSION):
            return "daemon_started"
        if _WAITING.match(text):
            return "server_shutdown_waiting"
        if found := _NEW_CLIENT.match(text):
            return "client_admitted" if int(found[1]) == 0 else None
        return next((kind for begin, kind in _CONTROL_PARTS.items() if text.startswith(begin)), None)

    def skips(self, raw: bytes, text: int) -> bool:
        """Whether the line, whose text begins at ``text``, changes nothing whatever its time and tag are."""
        if self._command is not None and self._command.untrusted:
            return not self._command.fresh and not raw.startswith(_ENDS_PS, text)
        return raw.startswith(_CONTROL_NOISE, text)

    def next_line(self, block: bytes, at: int) -> int:
        """Where the next line from ``at`` on begins that may tell something; the block's length where none does."""
        if self._command is None or not self._command.untrusted or self._command.fresh:
            return at
        found = _MAY_END_PS.search(block, at)
        return len(block) if found is None else max(at, block.rfind(b"\n", at, found.start()) + 1)

    def bare(self, raw: bytes) -> list[Event]:
        """A line without a time: always the rest of an answer or of a client's name, never an event of its own."""
        if self._command is not None or self._session or not raw.strip():
            return []
        kind: EventKind = "daemon_error" if raw.startswith(_DAEMON_ERRORS) else "unknown"
        return [Event(kind, detail=printable(raw), raw=printable(raw))]

    def feed(self, line: LogLine) -> list[Event]:
        command, text = self._command, line.text
        if command is not None and command.fresh:
            # The first line of an answer is the daemon's own; those behind it may be a client's to choose (fact 10).
            command.fresh = False
            self._learn(command, line)
        if command is not None and command.untrusted and not self._ends_untrusted(line):
            return []
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
        if own := self._trouble(line):
            return [own]
        if command is not None and command.answer(text):
            return self._finish() if command.complete else []
        return self._daemon_line(line)

    def _trouble(self, line: LogLine) -> Event | None:
        """What the daemon says of itself, of a server that broke, or of who comes under a debugger."""
        text = line.text
        if not text.startswith(_TROUBLE):
            return None
        if text.startswith(_DAEMON_ERRORS):
            return make_event(line, "daemon_error", raw_text(text))
        for begin, detail in _CONNECTION_FAILED.items():
            if text.startswith(begin):
                return make_event(line, "connection_failed", detail)
        if text.startswith(_CRASHED):
            server, detail = self._starting, "met a fatal exception and shuts down"
            if server is None:
                return make_event(line, "server_error", f"a server {detail}")
            return make_event(line, "server_failed", f"server {server} {detail}", server=server)
        if found := _DEBUGGEE.match(text):
            pid, uid = int(found[1]), int(found[2])
            whose = "a process in another PID namespace" if pid == 0 else f"process {pid}"
            return make_event(line, "debuggee", f"{whose} of user {uid} starts under a debugger", pid=pid, uid=uid)
        return None

    def _ends_untrusted(self, line: LogLine) -> bool:
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

    def _learn(self, command: _Command, line: LogLine) -> None:
        """A command that the daemon does not know: it says so in its log too (fact 46)."""
        if line.text != b'Unknown command "%b"' % command.name or not _VERB.fullmatch(command.name):
            return
        pid, known = self.unknown
        verbs = (known if pid == line.pid else frozenset()) | {command.name.decode("ascii")}
        if len(verbs) <= _MOST_UNKNOWN:
            self.unknown = line.pid, verbs
        command.untrusted = False

    def _begin(self, line: LogLine) -> list[Event]:
        self._session = True
        self._owner, self._asked_at = line.pid, line.time
        self._read_at = self.clock() if self.clock else 0.0
        self._command = _Command(line)
        return self._command.at_once()

    def _finish(self) -> list[Event]:
        command, self._command = self._command, None
        return command.outcome() if command else []

    def _daemon_line(self, line: LogLine) -> list[Event]:
        text = line.text
        if text.startswith(_CONTROL_NOISE) or not text:
            if self._command is not None and self._command.untrusted:
                self._command = None
            return []
        if found := _NEW_CLIENT.match(text):
            return self._client(line, int(found[1]), int(found[2]), found[3])
        if (told := self._server_line(line, text)) is not None:
            return told
        if text.startswith(_STARTING_DAEMON) or text == _START:
            self._waiting, self._starting, self._command, self._session = None, None, None, False
            self.unknown = line.pid, frozenset()
            place, _, name = raw_text(text.rpartition(b" ")[2]).rpartition("/")
            values = {"pipe_dir": place} if place and name == "control" else {}
            detail = f"control daemon {line.pid} started"
            return [make_event(line, "daemon_started", detail, pid=line.pid, values=values)]
        if found := _IGNORED.match(text):
            name, allowed = found[1].decode(), raw_text(found[2])
            detail = (
                f"{name} of the daemon's environment is ignored, and the default is used: it must be between {allowed}"
            )
            return [make_event(line, "limit_ignored", detail, values={"variable": name})]
        if text.startswith(_VERSION):
            self.version = raw_text(text.partition(b":")[2].strip())
            return []
        if text.startswith(b"Exit with status"):
            return [make_event(line, "daemon_exited", f"control daemon {line.pid} exited", pid=line.pid)]
        if self._command is not None:
            return []  # the answer to a plain question
        return _busy(line) if text.endswith(b"<busy>") else unknown(line)

    def _server_line(self, line: LogLine, text: bytes) -> list[Event] | None:
        """Of a server that starts, is ready, is to go or has gone; None of anything else."""
        if found := _WAITING.match(text):
            server = int(found[1])
            if server == self._waiting:
                return []
            self._waiting = server
            detail = f"server {server} is to shut down and waits for its clients"
            return [make_event(line, "server_shutdown_waiting", detail, server=server)]
        if found := _STARTING.match(text):
            server, uid = self._starting, _ = int(found[1]), int(found[2])
            detail = f"server {server} is starting for user {uid}"
            return [make_event(line, "server_starting", detail, server=server, uid=uid)]
        if found := _READY.match(text):
            self._starting = None
            return [make_event(line, "server_ready", f"server {int(found[1])} is ready", server=int(found[1]))]
        if found := _EXITED.match(text):
            server, self._waiting, self._starting = int(found[1]), None, None
            detail = f"server {server} exited with status {found[2].decode()}"
            return [make_event(line, "server_exited", detail, server=server, values={"status": found[2].decode()})]
        if found := _FORCED.match(text):
            detail = f"server {int(found[1])} is being shut down by force"
            return [make_event(line, "server_shutdown_waiting", detail, server=int(found[1]), values={"force": "1"})]
        return None

    def _client(self, line: LogLine, pid: int, uid: int, what: bytes) -> list[Event]:
        if what.startswith(b"Server already exists"):
            detail = f"client {pid} of user {uid} is sent to the server"
            return [make_event(line, "client_admitted", detail, pid=pid, uid=uid)] if pid else []
        if b"pending list" in what:
            detail = f"client {pid} of user {uid} waits for a server"
            return [make_event(line, "client_pending", detail, pid=pid, uid=uid)]
        return [make_event(line, "unknown", raw_text(line.text), pid=pid, uid=uid)]


def _busy(line: LogLine) -> list[Event]:
    """A server took no command, which is not there: so where a log begins behind it."""
    found = _BUSY.match(line.text)
    if not found:
        return unknown(line)
    detail = f"server {int(found[1])} is starting and took no command"
    return [make_event(line, "command", detail, server=int(found[1]), values={"refused": "1"})]


class _Command:
    """One ``Cmd:`` line and its answer so far."""

    __slots__ = ("_answer", "_line", "_text", "_words", "complete", "fresh", "name", "untrusted")

    def __init__(self, line: LogLine) -> None:
        self._line = line
        self._text = raw_text(line.text[4:].strip())
        self._words = line.text[4:].split()[:5]
        self.name = self._words[0] if self._words else b""
        self._answer: list[bytes] = []
        self.complete = False
        self.untrusted = self.name == b"ps"
        """Its answer holds text of the clients."""
        self.fresh = True
        """Nothing of its answer has come yet."""

    def at_once(self) -> list[Event]:
        """Events that need not wait for the answer: a terminate may never get one (fact 16)."""
        if self.name == b"terminate_client":
            server, pid = self._number(1), self._number(2)
            return [self._make("terminate_requested", f"client {pid} is asked to end", server, pid)]
        if self.name in {b"quit", b"shutdown_server", b"start_server", b"sm_partition"}:
            return [self._make("command", f"asked for: {self._text}", self._number(1), changes="1")]
        if self.name.startswith(b"set_") or self.name == _PROOF:
            return []
        return [self._make("command", f"asked for: {self._text}")]

    def answer(self, text: bytes) -> bool:
        """Takes a line of the answer; False where it is the daemon's own."""
        if text.startswith(_REFUSALS) or _NOT_FOUND.match(text):
            self._answer.append(text)
            return True
        if self.name == b"terminate_client" and number(text) is not None:
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
        if refusal is None and self.name == b"terminate_client" and self._answer and b"0" not in self._answer:
            refusal = self._answer[0]  # a number alone (fact 28)
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


_CHANGES: Final = frozenset({b"terminate_client", b"quit", b"shutdown_server", b"start_server", b"sm_partition"})


def _is_decimal(text: bytes) -> bool:
    return len(text) < 12 and text.replace(b".", b"", 1).isdigit()


# server.log: clients, contexts, faults and limits as the server itself reports them.


_CLIENT_CONTEXT: Final = pattern(rb"\{(?:PID: )?(-?\d{1,10}), (?:Context(?: ID)?: )?(\d{1,10})\}")
_PROCESS_GONE: Final = pattern(rb"Client process (\d{1,10}) disconnected")
_UUID: Final = pattern(rb"\(uuid ([A-Za-z0-9-]{1,64})\) is associated")
_TORN_DOWN: Final = pattern(rb"process (\d{1,10}) will be torn down")
_ON_DEVICE: Final = pattern(rb" on device (\d{1,4}) to be torn down")
_PERCENTAGE: Final = pattern(rb"(?:Active Threads Percentage|activeThreadsPercentage) set to (\d{1,3}(?:\.\d{1,6})?)")
_MEMORY: Final = pattern(rb"Device pinned memory limit for device (\S{1,64}) set to 0x([0-9a-fA-F]{1,16}) bytes")
_PRIORITY: Final = pattern(rb"Client Priority set to (\d{1,3})")
_ACTIVE: Final = pattern(rb"unable to shutdown due to (\d{1,10}) active")
_STATUS: Final = pattern(rb"with status (\d{1,6})")
_OLD_CLIENT: Final = pattern(rb"New client (\d{1,10}) connected")
_OLD_CLIENT_GONE: Final = pattern(rb"Client (\d{1,10}) disconnected")
"""As in 2013."""
_NO_SHM: Final = b"failed to create/open SHM segment"
_LIMIT: Final = pattern(rb"Maximum number of clients \((\d{1,6})\)")
_SERVER_PARTS: Final[Mapping[bytes, EventKind]] = {
    b"Using log directory": "server_starting",
    b"Connecting to control": "server_starting",
    b"Initializing server": "server_starting",
    b"Creating worker thread": "client_connected",
    b"Created anonymous": "server_starting",
    b"Created named": "server_starting",
    b"CUDA MPS Server for": "server_starting",
    b"Display Driver version": "server_starting",
    b"Received new client request for": "client_connected",
    b"Received device query": "command",
    b"Receive command failed": "client_disconnected",
    b"Server Priority set": "server_starting",
    b"Server has been notified": "server_shutdown_waiting",
    b"Server failed to rec": "client_disconnected",
    b"Waiting for current": "server_shutdown_waiting",
    b"Worker created": "client_request",
    b"worker created": "client_request",
    b"Server connecting to control": "server_starting",
}
"""How sentences begin that tell nothing of their own, with the event that each belongs to."""
_SERVER_NOISE: Final = tuple(_SERVER_PARTS)
_SERVER_NOISE_WORDS: Final = frozenset(noise.partition(b" ")[0] for noise in _SERVER_NOISE)
_ID: Final = r"([1-9][0-9]{0,9})"
_USUAL: Final = (
    r"\[([0-9: .-]{23}) \w{1,16} {1,8}([0-9]{1,9})\] "
    r"(?:Client \{PID: " + _ID + r", Context ID: ([0-9]{1,9})\} (connected|exiting[ -~]{0,150})"
    r"|Client process " + _ID + r" disconnected"
    r"|Status of client \{PID: " + _ID + r", Context ID: ([0-9]{1,9})\} is ACTIVE"
    r"|Device [^(\n]{1,100}\(uuid ([A-Za-z0-9-]{1,64})\) is associated)$"
)


_BYTES: Final = "latin-1"


def _one_of(begins: Collection[str]) -> str:
    """A pattern of any of these beginnings that looks at each character of a line once."""
    if "" in begins:
        return ""
    heads = dict.fromkeys(begin[:1] for begin in begins)
    ways = [re.escape(head) + _one_of([b[1:] for b in begins if b.startswith(head)]) for head in heads]
    return ways[0] if len(ways) == 1 else "(?:" + "|".join(ways) + ")"


_PASSED_OVER: Final = r"\[.{29}[^\]\n]{0,32}\] " + _one_of([noise.decode() for noise in _SERVER_NOISE]) + r".*\n|\n+"
_TOLD: Final = pattern(r"(?:" + _PASSED_OVER + r"){0,99}(" + _USUAL + r"|.+|\Z)\n?", re.MULTILINE | re.ASCII)
"""Every line of a block that :meth:`ServerLines.skips` does not skip, and perhaps a few that it does; of the four that
nearly all of a busy log are made of, the parts. Each match takes what is passed over before it along: a search for the
next one would try at each character."""
_PREFIXES: Final = (b"Volta MPS", b"MPS ")
_PREFIX: Final = pattern(rb"(?:Volta )?MPS(?: Server)?: |MPS (?=Server connecting|Server is started)")
"""What sentences of drivers before 535 carry in front."""
_ON_SERVER_DEVICE: Final = pattern(rb"(Creating|Destroy) server context on device (\d{1,4})")


_GROUP: Final = 1.0
"""Seconds from the first line of a fault to its last, at most: 0.002 seen."""


_AT_ONCE: Final = 16
"""Servers whose faults are gathered at a time."""
_MOST_LOST: Final = 1024
"""Clients, and contexts, of one fault: 60 on each of 16 devices, and some more."""
_MOST_REFUSED: Final = 64


class _Fault:
    """The lines of one fatal fault, gathered."""

    __slots__ = ("clients", "contexts", "cut", "devices", "handled", "line", "listing", "named")

    def __init__(self, line: LogLine, cut: bool) -> None:
        self.line = line
        self.cut = cut
        """The log begins in the midst of it."""
        self.named: list[int] = []
        self.clients: list[int] = []
        """Whom the log says that it takes."""
        self.contexts: list[str] = []
        self.devices: list[str] = []
        self.handled = False
        """Whether the server has said that it handles the fault: if it says so again, that is another one."""
        self.listing: list[int] | list[str] | None = None
        """What the bare numbers that follow are."""

    def may_go_on(self, time: float) -> bool:
        """Whether lines of it may come behind one of another server at ``time``: they are written within milliseconds,
        and the clock may be set back."""
        return abs(time - self.line.time) <= _GROUP

    @property
    def full(self) -> bool:
        """Whether more is told than can be of one fault: who writes the log may write what he likes."""
        told = len(self.named), len(self.clients), len(self.contexts), len(self.devices)
        return max(told) >= _MOST_LOST

    def event(self) -> Event:
        """Without a ``pid``: whom the log names is not who it was (fact 36), and after a trap it names nobody (37)."""
        values = {
            "named": " ".join(map(str, sorted(self.named))),
            "clients": " ".join(map(str, self.lost)),
            "contexts": " ".join(self.contexts),
        }
        values = {name: value for name, value in values.items() if value or name == "named"}
        if self.cut:
            values["cut"] = "1"
        return make_event(
            self.line, "fatal_fault", self._told(), server=self.line.pid, devices=tuple(self.devices), values=values
        )

    @property
    def lost(self) -> list[int]:
        """Whom it takes, by PID: an order by whom the log names would accuse. Whom it only names is none of them,
        unless it lists nobody."""
        return sorted(self.clients or self.named)

    def _told(self) -> str:
        """What a name is worth stands before it, so that no narrow line cuts that alone."""
        where = f" on {server_devices(self.devices)}" if self.devices else ""
        text = f"fatal GPU fault{', whose begin is not in the log,' if self.cut else ''}{where}"
        if self.lost:
            text += f"; {'at least ' if self.cut else ''}{_whom(self.lost)} lost"
        if self.cut and not self.named:
            return f"{text}; whom server.log names is not known"
        if self.named:
            return f"{text}; no proof: server.log names {_whom(sorted(self.named))}"
        return f"{text}; server.log names no client"


def _whom(pids: list[int]) -> str:
    """The clients; one that the server calls 0 has no PID that it knows."""
    here = [pid for pid in pids if pid]
    parts = [client_pids(here)] if here else []
    return " and ".join([*parts, *([ELSEWHERE] if len(here) < len(pids) else [])])


_REST: Final = Event("unknown")[Event._fields.index("uid") :]
"""What the usual lines of a log do not tell of an event."""


class ServerLines:
    """The state that reading server.log takes: the fault being told, the device of the next context, whom to end."""

    __slots__ = (
        "_destroyed",
        "_device",
        "_ending",
        "_faults",
        "_handlers",
        "_listing",
        "_refused",
        "_terminating",
        "_waiting",
    )

    def __init__(self) -> None:
        self._device: dict[int, str] = {}
        self._ending: dict[int, tuple[int, int]] = {}
        self._terminating: set[int] = set()
        """Servers in which a terminate_client is under way."""
        self._destroyed: dict[int, set[str]] = {}
        """Servers and their devices whose context was destroyed, as after a fault, and is made again when needed."""
        self._faults: dict[int, _Fault] = {}
        """By server: several write to one log, and their lines may stand in between each other's."""
        self._listing: set[int] = set()
        self._refused: deque[tuple[int, int]] = deque(maxlen=_MOST_REFUSED)
        """Servers and clients of which the next line says again that they were refused."""
        self._waiting: set[int] = set()
        self._handlers: dict[bytes, Callable[[LogLine, bytes], list[Event]]] = {
            b"Client": self._client,
            b"Server": self._server,
            b"Device": self._device_line,
            b"Status": self._status,
            b"status": self._status,
            b"Failed": self._failed,
            b"MPS": self._ask,
            b"Active": self._percentage,
            b"activeThreadsPercentage": self._percentage,
            b"All": self._group,
            b"The": self._group,
            b"Startup": self._startup,
            b"Start": self._startup,
            b"Exiting": self._exiting,
            b"Received": self._request,
            b"New": self._new,
            b"Creating": self._context,
            b"Destroy": self._context,
        }

    def skips(self, raw: bytes, text: int) -> bool:
        """Whether the line, whose text begins at ``text``, changes nothing whatever its time is."""
        return raw.startswith(_SERVER_NOISE, text)

    def bare(self, raw: bytes) -> list[Event]:
        """A line without a time."""
        return [Event("unknown", detail=raw_text(raw), raw=raw_text(raw))] if raw.strip() else []

    def part_of(self, text: bytes, server: int | None) -> EventKind | None:
        """The kind of the event that a line of ``server`` belongs to which gave none; asked behind that line."""
        text = _bare_text(text)
        if server in self._faults:
            return "fatal_fault"
        if server in self._listing:
            return "context_inactive"
        if _ON_SERVER_DEVICE.match(text):
            return "server_starting"
        if text.startswith(b"Device ") or text.endswith(b" connected"):
            return "context_active"
        if _ACTIVE.search(text):
            return "server_shutdown_waiting"
        if text.startswith(b"Failed to accept client"):
            return "client_refused"
        return next((kind for begin, kind in _SERVER_PARTS.items() if text.startswith(begin)), None)

    @property
    def gathers(self) -> bool:
        """Whether the lines of a fault are being told."""
        return bool(self._faults)

    def flush(self) -> list[Event]:
        faults, self._faults = self._faults, {}
        return [fault.event() for fault in faults.values()]

    def _told(self, line: LogLine) -> list[Event]:
        """Faults that are over behind ``line``: of servers that have written nothing since."""
        over = [server for server, fault in self._faults.items() if not fault.may_go_on(line.time)]
        return [self._faults.pop(server).event() for server in over]

    def feed(self, line: LogLine) -> list[Event]:
        text = _bare_text(line.text)
        word = text.partition(b" ")[0]
        if not text or (word in _SERVER_NOISE_WORDS and text.startswith(_SERVER_NOISE)):
            return []
        over = self._told(line) if self._faults else []
        if line.pid in self._faults:
            if self._gather(line, text):
                return over
            over.append(self._faults.pop(line.pid).event())
        if line.pid in self._listing:
            if text.strip().isdigit():
                return over
            self._listing.discard(line.pid)
        handler = self._handlers.get(word)
        return over + (handler(line, text) if handler else unknown(line, line.pid))

    def feed_all(self, block: bytes, clock: Clock, feed: Callable[[bytes], list[Event]]) -> list[Event]:
        """What ``feed`` tells of the lines of ``block``, one after the other; the usual ones are told in one step."""
        last, whose, time, server, events = "", "", 0.0, 0, list[Event]()
        tell = events.append
        # As text at once, a character for each byte: one by one that takes longer.
        for raw, stamp, by, client, context, what, gone, active, opened, device in _TOLD.findall(block.decode(_BYTES)):
            if not stamp or self._faults:
                if raw:
                    events += feed(raw[:LINE_BYTES].encode(_BYTES))
                continue
            if stamp != last:
                try:
                    time, last = clock.read(stamp.encode(_BYTES)), stamp
                except (ValueError, OverflowError):
                    events += feed(raw.encode(_BYTES))
                    continue
            if by != whose:
                server, whose = int(by), by
            if self._listing:
                self._listing.discard(server)
            if device:
                self._device[server] = device
            elif active:
                pid, number, uuid = int(active), int(opened), self._device.get(server)
                detail, devices = _opened(pid, number, uuid)
                tell(event_of(("context_active", time, None, server, pid, number, devices, detail, raw, *_REST)))
            elif gone or (context == "0" and what != "connected"):
                pid = int(gone or client)
                detail = f"client {pid} disconnected"
                tell(event_of(("client_disconnected", time, None, server, pid, None, (), detail, raw, *_REST)))
            elif what != "connected":
                pid, number = int(client), int(context)
                detail = f"client {pid} closed context {number}"
                tell(event_of(("context_closed", time, None, server, pid, number, (), detail, raw, *_REST)))
            elif context == "0":
                pid = int(client)
                detail = f"client {pid} connected"
                tell(event_of(("client_connected", time, None, server, pid, None, (), detail, raw, *_REST)))
        return events

    def _client(self, line: LogLine, text: bytes) -> list[Event]:
        server = line.pid
        if found := _CLIENT_CONTEXT.search(text):
            pid, context = int(found[1]), int(found[2])
            rest = text[found.end() :]
            if rest == b" connected":
                if context:
                    return []  # told again, with its device, when it is ACTIVE
                return [make_event(line, "client_connected", f"client {pid} connected", server=server, pid=pid)]
            if rest.startswith(b" exit"):
                if context == 0:
                    return [self._gone(line, pid)]
                detail = f"client {pid} closed context {context}"
                # Older drivers end the line here, and their word on the last context is the only one on the process.
                values = {"exit": "1"} if rest == b" exit" else EMPTY
                return [
                    make_event(line, "context_closed", detail, server=server, pid=pid, context=context, values=values)
                ]
            if b"fatal GPU error" in rest or b"torn down" in rest:
                return self._begin_fault(line, text)
        elif found := _PROCESS_GONE.match(text):
            return [self._gone(line, int(found[1]))]
        elif text.startswith(b"Client termination succeeded"):
            self._terminating.discard(server)
            pid, context = self._ending.get(server, (0, 0))
            if not pid:
                return unknown(line, server)
            detail = f"client {pid} was ended by the server"
            return [make_event(line, "terminate_succeeded", detail, server=server, pid=pid, context=context)]
        elif found := _PRIORITY.match(text):
            value = found[1].decode()
            values = {"what": "client_priority", "scope": "server", "value": value}
            detail = f"server {server}: client priority set to {value}"
            return [make_event(line, "limit_set", detail, server=server, values=values)]
        elif text.startswith(b"Client disconnected"):
            return [make_event(line, "context_closed", f"a client of server {server} closed a context", server=server)]
        elif text == b"Client process disconnected":
            detail = f"a client of server {server} disconnected"
            return [make_event(line, "client_disconnected", detail, server=server)]
        elif found := _OLD_CLIENT_GONE.match(text):
            return [self._gone(line, int(found[1]))]
        return unknown(line, server)

    def _request(self, line: LogLine, text: bytes) -> list[Event]:
        """Up to 550 nothing says who asks, nor whether it is for a process or for a context of one."""
        if text != b"Received new client request":
            return unknown(line, line.pid)
        detail = f"a client asks server {line.pid} for a connection"
        return [make_event(line, "client_request", detail, server=line.pid)]

    def _new(self, line: LogLine, text: bytes) -> list[Event]:
        found = _OLD_CLIENT.match(text)
        if not found:
            return unknown(line, line.pid)
        pid = int(found[1])
        return [make_event(line, "client_connected", f"client {pid} connected", server=line.pid, pid=pid)]

    def _context(self, line: LogLine, text: bytes) -> list[Event]:
        """The server's own context on a device: destroyed when the last client that a fault has hit there ends."""
        server, found = line.pid, _ON_SERVER_DEVICE.match(text)
        if not found:
            return unknown(line, server)
        device = found[2].decode()
        if found[1] == b"Destroy":
            self._destroyed.setdefault(server, set()).add(device)
            what, detail = "destroyed", f"server {server} destroyed its context on {server_devices((device,))}"
        elif device in self._destroyed.get(server, ()):
            self._destroyed[server].discard(device)
            what, detail = "created", f"server {server} created its context on {server_devices((device,))} again"
        else:
            return []  # a server that starts
        return [make_event(line, "server_context", detail, server=server, devices=(device,), values={"what": what})]

    def _gone(self, line: LogLine, pid: int) -> Event:
        return make_event(line, "client_disconnected", f"client {pid} disconnected", server=line.pid, pid=pid)

    def _status(self, line: LogLine, text: bytes) -> list[Event]:
        found = _CLIENT_CONTEXT.search(text)
        if not found or not text.endswith((b" is ACTIVE", b" is INACTIVE")):
            return unknown(line, line.pid)
        pid, context = int(found[1]), int(found[2])
        if text.endswith(b" is INACTIVE"):
            detail = f"context {context} of client {pid} became INACTIVE"
            return [make_event(line, "context_inactive", detail, server=line.pid, pid=pid, context=context)]
        uuid = self._device.get(line.pid)
        detail, devices = _opened(pid, context, uuid)
        return [make_event(line, "context_active", detail, server=line.pid, pid=pid, context=context, devices=devices)]

    def _device_line(self, line: LogLine, text: bytes) -> list[Event]:
        if found := _UUID.search(text):
            self._device[line.pid] = found[1].decode()
            return []
        if found := _MEMORY.match(text):
            return [memory_limit(line, "server", line.pid, raw_text(found[1]), int(found[2], 16))]
        return unknown(line, line.pid)

    def _percentage(self, line: LogLine, text: bytes) -> list[Event]:
        found = _PERCENTAGE.match(text)
        if not found:
            return unknown(line, line.pid)
        value = f"{float(found[1]):g}"
        values = {"what": "active_thread_percentage", "scope": "server", "value": value}
        detail = f"server {line.pid}: active thread percentage set to {value} %"
        return [make_event(line, "limit_set", detail, server=line.pid, values=values)]

    def _ask(self, line: LogLine, text: bytes) -> list[Event]:
        if found := NOT_STARTED.match(text):
            return [failed_start(line, line.pid, found[1])]
        if text.startswith(b"MPS is only supported"):
            return [failed_start(line, line.pid, text)]
        if _NO_SHM in text:
            return [self._no_shm(line)]
        found = _CLIENT_CONTEXT.search(text)
        if not found or not text.startswith(b"MPS server requesting client"):
            return unknown(line, line.pid)
        pid, context = int(found[1]), int(found[2])
        self._ending[line.pid] = pid, context
        self._terminating.add(line.pid)
        # One command makes a line for each context; control.log's own, and the first of them, are one event.
        detail = f"client {pid} is asked to end: its context {context}"
        return [make_event(line, "terminate_requested", detail, server=line.pid, pid=pid, context=context)]

    def _no_shm(self, line: LogLine) -> Event:
        detail = (
            f"server {line.pid} could not make or open shared memory: it has probably used up its open files "
            "(ulimit -n: 16384 or more)"
        )
        return make_event(line, "server_error", detail, server=line.pid)

    def _server(self, line: LogLine, text: bytes) -> list[Event]:
        server = line.pid
        if _NO_SHM in text:
            return [self._no_shm(line)]
        if text.startswith((b"Server has started", b"Server is started")):
            return [make_event(line, "server_ready", f"server {server} is ready", server=server)]
        if text.startswith(b"Server is handling a fatal"):
            return self._begin_fault(line, text)
        if text.startswith(b"Server teardown in progress"):
            found = _CLIENT_CONTEXT.search(text)
            pid = int(found[1]) if found else None
            if pid is not None:
                self._refused.append((server, pid))
            detail = f"client {pid} was refused: server {server} is in FAULT"
            return [make_event(line, "client_refused", detail, server=server, pid=pid, values={"reason": "fault"})]
        if _ACTIVE.search(text):
            if server in self._waiting:
                return []
            self._waiting.add(server)
            detail = f"server {server} is to shut down and waits for its clients"
            return [make_event(line, "server_shutdown_waiting", detail, server=server)]
        return unknown(line, server)

    def _failed(self, line: LogLine, text: bytes) -> list[Event]:
        server = line.pid
        if found := NOT_STARTED.match(text):
            return [failed_start(line, server, found[1])]
        if found := _LIMIT.search(text):
            detail = f"a client was refused: {found[1].decode()} clients is the most that a device takes"
            values = {"reason": "limit", "limit": found[1].decode()}
            return [make_event(line, "client_refused", detail, server=server, values=values)]
        found, status = _CLIENT_CONTEXT.search(text), _STATUS.search(text)
        if not found or not text.startswith(b"Failed to accept client"):
            return unknown(line, server)
        pid = int(found[1])
        if (server, pid) in self._refused:  # a line before said why
            self._refused.remove((server, pid))
            return []
        code = status[1].decode() if status else ""
        reason = {"807": "fault", "808": "limit", "809": "limit"}.get(code, "unknown")
        if code == "807" and server in self._terminating:
            reason = "terminate"  # a terminate_client under way lets nobody in either
        values = {"reason": reason, "status": code}
        detail = f"client {pid} was refused with CUDA error {code}" if code else f"client {pid} was refused"
        return [make_event(line, "client_refused", detail, server=server, pid=pid, values=values)]

    def _startup(self, line: LogLine, text: bytes) -> list[Event]:
        if text not in {b"Startup", b"Start"}:
            return unknown(line, line.pid)
        self._waiting.discard(line.pid)
        self._destroyed.pop(line.pid, None)
        self._device.pop(line.pid, None)
        self._ending.pop(line.pid, None)
        self._terminating.discard(line.pid)
        return [make_event(line, "server_starting", f"server {line.pid} is starting", server=line.pid)]

    def _exiting(self, line: LogLine, text: bytes) -> list[Event]:
        self._waiting.discard(line.pid)
        self._destroyed.pop(line.pid, None)
        return [make_event(line, "server_exited", f"server {line.pid} exited", server=line.pid)]

    def _group(self, line: LogLine, text: bytes) -> list[Event]:
        """A list without a word of a fault before it is none: in 2022 a terminate_client made such lists too."""
        if b"torn down" not in text:
            if not text.startswith(b"The following"):
                return unknown(line, line.pid)
            self._listing.add(line.pid)
            return []
        return self._begin_fault(line, text)

    def _begin_fault(self, line: LogLine, text: bytes) -> list[Event]:
        """Gives those that are no longer waited for."""
        over = [self._faults.pop(server).event() for server in list(self._faults)[: 1 - _AT_ONCE]]
        # Each begins with the client that it names, or, after a trap, with the server's word of it.
        self._faults[line.pid] = _Fault(line, cut=b"fatal" not in text)
        self._gather(line, text)
        return over

    def _gather(self, line: LogLine, text: bytes) -> bool:
        """Takes a line of the group of its server's fault; False where the group is over."""
        fault = self._faults[line.pid]
        if fault.full:
            return False
        value = number(text.strip())
        if value is not None:
            if fault.listing is None:
                return False
            if fault.listing is fault.devices:
                _add(fault.devices, str(value))
            else:
                _add(fault.clients, value)
            return True
        found = _CLIENT_CONTEXT.search(text)
        if found and text.endswith(b" is INACTIVE"):  # may stand between a list and its numbers
            _add(fault.clients, int(found[1]))
            fault.contexts.append(f"{int(found[1])}.{int(found[2])}")
            return True
        if text.startswith(b"Server is handling a fatal"):
            again, fault.handled = fault.handled, True
            return not again
        fault.listing = None
        if found and (b"fatal GPU error" in text or b"torn down" in text):
            _add(fault.named if b"fatal GPU error" in text else fault.clients, int(found[1]))
            if device := _ON_DEVICE.search(text):
                _add(fault.devices, device[1].decode())
            return True
        if text.startswith(b"The following devices"):
            fault.listing = fault.devices
            return True
        if text.startswith(b"The following client"):
            fault.listing = fault.clients
            return True
        if found := _TORN_DOWN.search(text):
            _add(fault.clients, int(found[1]))
        return b"torn down" in text or b"reset" in text


def _bare_text(text: bytes) -> bytes:
    """The sentence without what older drivers put in front of it."""
    if text.startswith(_PREFIXES) and (found := _PREFIX.match(text)):
        return text[found.end() :]
    return text


def _opened(pid: int, context: int, uuid: str | None) -> tuple[str, tuple[str, ...]]:
    """The words and the devices of a context that became active."""
    detail = f"client {pid} opened context {context}"
    return (f"{detail} on {uuid}", (uuid,)) if uuid else (detail, ())


def _add(to: list[int] | list[str], what: int | str) -> None:
    """Appends what is not there yet: the server names a client once for each reason."""
    if what not in to:
        to.append(what)  # type: ignore[arg-type]


# A line of control.log or server.log in, events out; pure, one parser object a file.


LogKind = Literal["control", "server"]


class LogParser:
    """Turns the lines of one log file into events. A control.log may hold the servers' lines too: a daemon in the
    foreground writes all of them to its standard output (fact 47).

    Lines known to say nothing new give no event; lines never seen before give one of kind ``unknown``. Groups of lines
    (a fatal fault) give their event when the group is over: call :meth:`flush` when no more lines are there.

    A client chooses its argv[0], and ``ps`` copies it into control.log (facts 8 and 10): it can hold a line break and
    something that looks like a log line. So answers to commands are not read as log lines, and what ends the answer to
    a ``ps`` has to carry the daemon's PID and a time that fits (see :class:`ControlLines`). What remains possible is a
    wrong history, never a wrong membership: that is believed only with ``get_client_list`` or NVML.
    """

    __slots__ = ("_clock", "_control", "_head", "_parts", "_server")

    def __init__(self, kind: LogKind) -> None:
        self._clock = Clock()
        self._head, self._parts = b"", (0.0, b"", 0)
        self._control = ControlLines() if kind == "control" else None
        self._server = ServerLines() if kind == "server" else None

    @property
    def version(self) -> str | None:
        """The control binary's version, where control.log has said it."""
        return self._control.version if self._control else None

    @property
    def unknown(self) -> tuple[int, frozenset[str]]:
        """The daemon's PID as its log has it, and the commands that it said it does not know."""
        return self._control.unknown if self._control else (0, frozenset())

    @property
    def answering(self) -> bool:
        """Whether what comes now is an answer in which a client may have chosen the words (fact 10)."""
        return self._control is not None and self._control.untrusted

    def become(self, other: LogParser) -> None:
        """Goes on where ``other``, which is not used any more, has stopped."""
        for name in self.__slots__:
            setattr(self, name, getattr(other, name))

    def live(self, clock: Callable[[], float], now: Callable[[], float] = time.time) -> None:
        """From here on lines are fed as they are written; ``clock`` gives seconds that only grow."""
        self._clock.now = now
        if self._control:
            self._control.clock = clock

    def feed(self, raw: bytes) -> list[Event]:
        """Events that ``raw``, one line without its line break, completes."""
        text = raw.find(b"] ", 30, 64) + 2
        if text > 1 and (self._control or self._server).skips(raw, text):  # type: ignore[union-attr]
            return []  # four lines of five: not worth taking apart
        line = self._split(raw)
        if self._control is not None:
            if line is not None and line.tag != b"Control" and not self._control.untrusted:
                return self._servers().feed(line)
            return self._control.feed(line) if line else self._control.bare(raw)
        return self._servers().feed(line) if line else self._servers().bare(raw)

    def _servers(self) -> ServerLines:
        """The state of the servers' lines. A daemon in the foreground, as in a container, writes them among its own."""
        if self._server is None:
            self._server = ServerLines()
        return self._server

    def part_of(self, raw: bytes) -> EventKind | None:
        """The kind of the event that ``raw``, just fed without completing one, belongs to: it is of the answer to a
        command, of a fault, or a sentence that tells nothing of its own. None where nothing is known of it."""
        line = self._split(raw)
        text = line.text if line else raw
        if self._control is not None and not (line and line.tag != b"Control" and not self._control.untrusted):
            return self._control.part_of(text)
        return self._servers().part_of(text, line.pid if line else None)

    def feed_all(self, block: bytes) -> list[Event]:
        """Events of a block of whole lines, each with its line break: what :meth:`feed` tells of one after the other,
        but lines that tell nothing are passed over before they are cut apart."""
        if self._control is None:
            return self._servers().feed_all(block, self._clock, self.feed)
        at, control, events = 0, self._control, list[Event]()
        while (at := control.next_line(block, at)) < len(block):
            end = block.index(b"\n", at)
            events += self.feed(block[at : min(end, at + LINE_BYTES)])
            at = end + 1
        return events

    @property
    def gathers(self) -> bool:
        """Whether a group of lines is being told."""
        return self._server is not None and self._server.gathers

    def flush(self) -> list[Event]:
        """Events of a group that no other line has ended yet."""
        return self._server.flush() if self._server else []

    def _split(self, raw: bytes) -> LogLine | None:
        if raw[:1] != b"[" or raw[24:25] != b" ":
            return None
        end = raw.find(b"]", 25, 64)
        if end < 0:
            return None
        try:
            if raw[:end] != self._head:  # lines come in groups of the same moment
                tag, _, pid = raw[25:end].rpartition(b" ")
                self._parts = self._clock.read(raw[1:24]), tag.rstrip(), int(pid)
                self._head = raw[:end]
            return LogLine(*self._parts, raw[end + 2 :], raw)
        except (ValueError, OverflowError):
            return None
