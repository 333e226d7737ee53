"""server.log: clients, contexts, faults and limits as the server itself reports them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from mpstui.core.model import EMPTY, Event
from mpstui.core.text import client_pids
from mpstui.observe.logline import (
    ELSEWHERE,
    LINE_BYTES,
    NOT_STARTED,
    Clock,
    Line,
    failed_start,
    make_event,
    memory_limit,
    number,
    raw_text,
    unknown,
)

_CLIENT: Final = re.compile(rb"\{(?:PID: )?(-?\d{1,10}), (?:Context(?: ID)?: )?(\d{1,10})\}")
_PROCESS_GONE: Final = re.compile(rb"Client process (\d{1,10}) disconnected")
_UUID: Final = re.compile(rb"\(uuid ([A-Za-z0-9-]{1,64})\) is associated")
_ON_DEVICE: Final = re.compile(rb" on device (\d{1,4}) to be torn down")
_PERCENTAGE: Final = re.compile(
    rb"(?:Active Threads Percentage|activeThreadsPercentage) set to (\d{1,3}(?:\.\d{1,6})?)"
)
_MEMORY: Final = re.compile(rb"Device pinned memory limit for device (\S{1,64}) set to 0x([0-9a-fA-F]{1,16}) bytes")
_PRIORITY: Final = re.compile(rb"Client Priority set to (\d{1,3})")
_ACTIVE: Final = re.compile(rb"unable to shutdown due to (\d{1,10}) active")
_STATUS: Final = re.compile(rb"with status (\d{1,6})")
_LIMIT: Final = re.compile(rb"Maximum number of clients \((\d{1,6})\)")
_NOISE: Final = (
    b"Using log directory",
    b"Connecting to control",
    b"Initializing server",
    b"Creating server context",
    b"Creating worker thread",
    b"Created anonymous",
    b"CUDA MPS Server for",
    b"Display Driver version",
    b"Received new client",
    b"Received device query",
    b"Server Priority set",
    b"Server has been",
    b"Server failed to",
    b"Destroy server context",
    b"Waiting for current",
)
_NOISE_WORDS: Final = frozenset(noise.partition(b" ")[0] for noise in _NOISE)
_ID: Final = rb"([1-9][0-9]{0,9})"
_USUAL: Final = (
    rb"\[([0-9: .-]{23}) \w{1,16} {1,8}([0-9]{1,9})\] "
    rb"(?:Client \{PID: " + _ID + rb", Context ID: ([0-9]{1,9})\} (connected|exiting[ -~]{0,150})"
    rb"|Client process " + _ID + rb" disconnected"
    rb"|Status of client \{PID: " + _ID + rb", Context ID: ([0-9]{1,9})\} is ACTIVE"
    rb"|Device [^(\n]{1,100}\(uuid ([A-Za-z0-9-]{1,64})\) is associated)$"
)
_PASSED_OVER: Final = rb"\[[^\]\n]{29,61}\] (?:" + b"|".join(map(re.escape, _NOISE)) + rb")"
_TOLD: Final = re.compile(rb"^(" + _USUAL + rb"|(?!" + _PASSED_OVER + rb").+)", re.MULTILINE)
"""Every line of a block that :meth:`ServerLines.skips` does not skip, and perhaps a few that it does; of the four that
nearly all of a busy log are made of, the parts."""
_VOLTA: Final = b"Volta MPS: "


class _Fault:
    """The lines of one fatal fault, gathered."""

    __slots__ = ("clients", "contexts", "devices", "handled", "line", "listing", "named")

    def __init__(self, line: Line) -> None:
        self.line = line
        self.named: list[int] = []
        self.clients: list[int] = []
        self.contexts: list[str] = []
        self.devices: list[str] = []
        self.handled = False
        """Whether the server has said that it handles the fault: if it says so again, that is another one."""
        self.listing: list[int] | list[str] | None = None
        """What the bare numbers that follow are."""

    def event(self) -> Event:
        """Without a ``pid``: whom the log names is not who it was (fact 36), and after a trap it names nobody (37)."""
        values = {
            "named": " ".join(map(str, self.named)),
            "clients": " ".join(map(str, self.clients)),
            "contexts": " ".join(self.contexts),
        }
        values = {name: value for name, value in values.items() if value or name == "named"}
        return make_event(
            self.line, "fatal_fault", self._told(), server=self.line.pid, devices=tuple(self.devices), values=values
        )

    def _told(self) -> str:
        where = f" on device{'s' if len(self.devices) > 1 else ''} {', '.join(self.devices)}" if self.devices else ""
        text = f"fatal GPU fault{where}"
        if self.clients:
            text += f"; {_whom(self.clients)} lost"
        if self.named:
            return f"{text}; server.log names {_whom(self.named)}, which is not proof"
        return f"{text}; server.log names no client"


def _whom(pids: list[int]) -> str:
    """The clients; one that the server calls 0 has no PID that it knows."""
    here = [pid for pid in pids if pid]
    parts = [client_pids(here)] if here else []
    return " and ".join([*parts, *([ELSEWHERE] if len(here) < len(pids) else [])])


class ServerLines:
    """The state that reading server.log takes: the fault being told, the device of the next context, whom to end."""

    __slots__ = ("_device", "_ending", "_fault", "_handlers", "_refused", "_waiting")

    def __init__(self) -> None:
        self._device: dict[int, str] = {}
        self._ending: dict[int, tuple[int, int]] = {}
        self._fault: _Fault | None = None
        self._refused: int | None = None
        self._waiting: int | None = None
        self._handlers: dict[bytes, Callable[[Line, bytes], list[Event]]] = {
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
            b"Exiting": self._exiting,
        }

    def skips(self, raw: bytes, text: int) -> bool:
        """Whether the line, whose text begins at ``text``, changes nothing whatever its time is."""
        return raw.startswith(_NOISE, text)

    def bare(self, raw: bytes) -> list[Event]:
        """A line without a time."""
        return [Event("unknown", detail=raw_text(raw), raw=raw_text(raw))] if raw.strip() else []

    @property
    def gathers(self) -> bool:
        """Whether the lines of a fault are being told."""
        return self._fault is not None

    def flush(self) -> list[Event]:
        fault, self._fault = self._fault, None
        return [fault.event()] if fault else []

    def feed(self, line: Line) -> list[Event]:
        text = line.text
        if text.startswith(_VOLTA):
            text = text[len(_VOLTA) :]
        word = text.partition(b" ")[0]
        if not text or (word in _NOISE_WORDS and text.startswith(_NOISE)):
            return []
        if self._fault is not None:
            if self._gather(line, text):
                return []
            return [*self.flush(), *self.feed(line)]
        handler = self._handlers.get(word)
        return handler(line, text) if handler else unknown(line, line.pid)

    def feed_all(self, block: bytes, clock: Clock, feed: Callable[[bytes], list[Event]]) -> Iterator[Event]:
        """What ``feed`` tells of the lines of ``block``, one after the other; the usual ones are told in one step."""
        for raw, stamp, by, client, context, what, gone, active, opened, device in _TOLD.findall(block):
            if not stamp or self._fault is not None:
                yield from feed(raw[:LINE_BYTES])
                continue
            try:
                time = clock.read(stamp)
            except (ValueError, OverflowError):
                yield from feed(raw)
                continue
            server = int(by)
            if device:
                self._device[server] = device.decode()
                continue
            text = raw.decode()
            if active:
                pid, number, uuid = int(active), int(opened), self._device.get(server)
                detail, devices = _opened(pid, number, uuid)
                yield Event("context_active", time, None, server, pid, number, devices, detail, text)
            elif gone or (context == b"0" and what != b"connected"):
                pid = int(gone or client)
                detail = f"client {pid} disconnected"
                yield Event("client_disconnected", time, None, server, pid, None, (), detail, text)
            elif what != b"connected":
                pid, number = int(client), int(context)
                detail = f"client {pid} closed context {number}"
                yield Event("context_closed", time, None, server, pid, number, (), detail, text)
            elif context == b"0":
                pid = int(client)
                yield Event("client_connected", time, None, server, pid, None, (), f"client {pid} connected", text)

    def _client(self, line: Line, text: bytes) -> list[Event]:
        server = line.pid
        if found := _CLIENT.search(text):
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
                self._fault = _Fault(line)
                self._gather(line, text)
                return []
        elif found := _PROCESS_GONE.match(text):
            return [self._gone(line, int(found[1]))]
        elif text.startswith(b"Client termination succeeded"):
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
        return unknown(line, server)

    def _gone(self, line: Line, pid: int) -> Event:
        return make_event(line, "client_disconnected", f"client {pid} disconnected", server=line.pid, pid=pid)

    def _status(self, line: Line, text: bytes) -> list[Event]:
        found = _CLIENT.search(text)
        if not found or not text.endswith(b" is ACTIVE"):
            return unknown(line, line.pid)
        pid, context = int(found[1]), int(found[2])
        uuid = self._device.get(line.pid)
        detail, devices = _opened(pid, context, uuid)
        return [make_event(line, "context_active", detail, server=line.pid, pid=pid, context=context, devices=devices)]

    def _device_line(self, line: Line, text: bytes) -> list[Event]:
        if found := _UUID.search(text):
            self._device[line.pid] = found[1].decode()
            return []
        if found := _MEMORY.match(text):
            return [memory_limit(line, "server", line.pid, raw_text(found[1]), int(found[2], 16))]
        return unknown(line, line.pid)

    def _percentage(self, line: Line, text: bytes) -> list[Event]:
        found = _PERCENTAGE.match(text)
        if not found:
            return unknown(line, line.pid)
        value = f"{float(found[1]):g}"
        values = {"what": "active_thread_percentage", "scope": "server", "value": value}
        detail = f"server {line.pid}: active thread percentage set to {value} %"
        return [make_event(line, "limit_set", detail, server=line.pid, values=values)]

    def _ask(self, line: Line, text: bytes) -> list[Event]:
        if found := NOT_STARTED.match(text):
            return [failed_start(line, line.pid, found[1])]
        found = _CLIENT.search(text)
        if not found or not text.startswith(b"MPS server requesting client"):
            return unknown(line, line.pid)
        pid, context = int(found[1]), int(found[2])
        self._ending[line.pid] = pid, context
        detail = f"client {pid} is asked to end"
        return [make_event(line, "terminate_requested", detail, server=line.pid, pid=pid, context=context)]

    def _server(self, line: Line, text: bytes) -> list[Event]:
        server = line.pid
        if text.startswith(b"Server has started"):
            return [make_event(line, "server_ready", f"server {server} is ready", server=server)]
        if text.startswith(b"Server is handling a fatal"):
            self._fault = _Fault(line)
            self._gather(line, text)
            return []
        if text.startswith(b"Server teardown in progress"):
            found = _CLIENT.search(text)
            pid = int(found[1]) if found else None
            self._refused = pid
            detail = f"client {pid} was refused: server {server} is in FAULT"
            return [make_event(line, "client_refused", detail, server=server, pid=pid, values={"reason": "fault"})]
        if _ACTIVE.search(text):
            if self._waiting == server:
                return []
            self._waiting = server
            detail = f"server {server} is to shut down and waits for its clients"
            return [make_event(line, "server_shutdown_waiting", detail, server=server)]
        return unknown(line, server)

    def _failed(self, line: Line, text: bytes) -> list[Event]:
        server = line.pid
        if found := NOT_STARTED.match(text):
            return [failed_start(line, server, found[1])]
        if found := _LIMIT.search(text):
            detail = f"a client was refused: {found[1].decode()} clients is the most that a device takes"
            values = {"reason": "limit", "limit": found[1].decode()}
            return [make_event(line, "client_refused", detail, server=server, values=values)]
        found, status = _CLIENT.search(text), _STATUS.search(text)
        if not found or not text.startswith(b"Failed to accept client"):
            return unknown(line, server)
        pid = int(found[1])
        if pid == self._refused:  # the line before said why
            self._refused = None
            return []
        code = status[1].decode() if status else ""
        reason = {"807": "fault", "808": "limit", "809": "limit"}.get(code, "unknown")
        values = {"reason": reason, "status": code}
        detail = f"client {pid} was refused with CUDA error {code}" if code else f"client {pid} was refused"
        return [make_event(line, "client_refused", detail, server=server, pid=pid, values=values)]

    def _startup(self, line: Line, text: bytes) -> list[Event]:
        self._waiting = None
        self._device.pop(line.pid, None)
        self._ending.pop(line.pid, None)
        return [make_event(line, "server_starting", f"server {line.pid} is starting", server=line.pid)]

    def _exiting(self, line: Line, text: bytes) -> list[Event]:
        self._waiting = None
        return [make_event(line, "server_exited", f"server {line.pid} exited", server=line.pid)]

    def _group(self, line: Line, text: bytes) -> list[Event]:
        """A list without a word of a fault before it is none: in 2022 a terminate_client made such lists too."""
        if b"torn down" not in text:
            return [] if text.startswith(b"The following devices") else unknown(line, line.pid)
        self._fault = _Fault(line)
        self._gather(line, text)
        return []

    def _gather(self, line: Line, text: bytes) -> bool:
        """Takes a line of the group of a fatal fault; False where the group is over."""
        fault = self._fault
        assert fault is not None  # noqa: S101 - the callers have just looked
        if line.pid != fault.line.pid:
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
        found = _CLIENT.search(text)
        if found and text.endswith(b" is INACTIVE"):  # may stand between a list and its numbers
            _add(fault.clients, int(found[1]))
            fault.contexts.append(f"{int(found[1])}.{int(found[2])}")
            return True
        if text.startswith(b"Server is handling a fatal"):
            again, fault.handled = fault.handled, True
            return not again
        fault.listing = None
        if found and (b"fatal GPU error" in text or b"torn down" in text):
            pid = int(found[1])
            _add(fault.clients, pid)
            if b"fatal GPU error" in text:
                _add(fault.named, pid)
            if device := _ON_DEVICE.search(text):
                _add(fault.devices, device[1].decode())
            return True
        if text.startswith(b"The following devices"):
            fault.listing = fault.devices
            return True
        if text.startswith(b"The following client"):
            fault.listing = fault.clients
            return True
        return b"torn down" in text or b"reset" in text


def _opened(pid: int, context: int, uuid: str | None) -> tuple[str, tuple[str, ...]]:
    """The words and the devices of a context that became active."""
    detail = f"client {pid} opened context {context}"
    return (f"{detail} on {uuid}", (uuid,)) if uuid else (detail, ())


def _add(to: list[int] | list[str], what: int | str) -> None:
    """Appends what is not there yet: the server names a client once for each reason."""
    if what not in to:
        to.append(what)  # type: ignore[arg-type]
