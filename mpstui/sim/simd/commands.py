"""The commands of a control session and their answers, byte for byte as recorded."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .clients import parse_percentage
from .logs import Logs
from .memlimit import limit_text, read_limit
from .process import start_ticks
from .server import NO_CONTEXT, SimServer

if TYPE_CHECKING:
    from typing import Protocol

    from mpstui.control.drivers import Driver

    from .clients import ClientProcess
    from .config import Gpu

    class Commanded(Protocol):
        """What commands need of the daemon that carries them out."""

        owner: int
        gpus: Sequence[Gpu]
        driver: Driver
        percentage: float
        priority: int
        pinned: dict[str, int]
        servers: dict[int, SimServer]

        def device_key(self, device: str, /) -> str: ...

        def want_server(self, uid: int, /) -> None: ...

        def shut_down(self, server: SimServer, force: bool) -> None: ...

        def terminate(self, session: ControlSession, server: SimServer, client: ClientProcess, /) -> None: ...

        def quit(self, session: ControlSession, timeout: int | None, /) -> None: ...


_CHUNK = 32768
_MOST_ORDINALS = 64
"""17 was taken for a device and 99 was not (drivers 535 to 580); where between them it ends is not known."""
_DEVICE_TABLE = "%-16s%-15s%-42s%-34s%s"
_PS_TABLE = b"%-10b%-10b%-15b%-26b%-15b%-15b"


_OF_ANOTHER = {
    "start_server": "start server for another user",
    "shutdown_server": "shutdown another user's server",
    "terminate_client": "terminate clients on another user's server",
    "set_active_thread_percentage": "change settings for another user's server",
    "set_device_pinned_mem_limit": "change settings for another user's server",
}
"""What a stranger may not do to another user's server, in the words of 550 and 555."""


class ControlSession:
    """One control session: what it says goes to the other end and to control.log."""

    def __init__(self, connection: socket.socket, uid: int, logs: Logs) -> None:
        self.connection = connection
        self.uid = uid
        self._logs = logs

    def say(self, text: str | bytes) -> None:
        """A line of the answer."""
        if text:  # an empty line is no line of the log
            self._logs.control(text)
        data = (text.encode() if isinstance(text, str) else text) + b"\n"
        with contextlib.suppress(OSError):
            for start in range(0, len(data), _CHUNK):
                self.connection.send(b"D" + data[start : start + _CHUNK])

    def note(self, text: str | bytes) -> None:
        """A line for control.log only."""
        self._logs.control(text)

    def end(self) -> None:
        """The answer is complete."""
        with contextlib.suppress(OSError):
            self.connection.send(b"E")

    def bury(self) -> None:
        """The daemon has ended: the binary says nothing of what it was told before, as in 28 of 40 tries (fact 30)."""
        with contextlib.suppress(OSError):
            self.connection.send(b"Q")


def atoi(text: str) -> int:
    """The number that a text begins with, 0 where it begins with none."""
    match = re.match(r"\s*[+-]?[0-9]{1,18}", text, re.ASCII)
    return int(match[0]) if match else 0


def _beyond(device: str) -> bool:
    """Whether it is the ordinal of more devices than the daemon knows to count."""
    return device.isascii() and device.isdigit() and int(device[:9]) >= _MOST_ORDINALS


def _uid(args: Sequence[str]) -> int | None:
    """Of ``-uid N``; None where it is not right."""
    if args[:1] == ["-uid"] and len(args) > 1 and args[1].isascii() and args[1].isdigit():
        return int(args[1])
    return None


class Commands:
    """Carries out the commands of sessions on a daemon."""

    def __init__(self, daemon: Commanded) -> None:
        self._daemon = daemon
        self._table: dict[str, Callable[[ControlSession, Sequence[str]], bool | None]] = {
            "get_server_list": self._get_server_list,
            "get_server_status": self._get_server_status,
            "get_client_list": self._get_client_list,
            "get_device_client_list": self._get_device_client_list,
            "ps": self._ps,
            "get_default_active_thread_percentage": self._get_default_percentage,
            "get_active_thread_percentage": self._get_percentage,
            "get_default_device_pinned_mem_limit": self._get_default_limit,
            "get_device_pinned_mem_limit": self._get_limit,
            "get_default_client_priority": self._get_priority,
            "device_query": self._device_query,
        }
        self._privileged: dict[str, Callable[[ControlSession, Sequence[str]], bool | None]] = {
            "set_default_active_thread_percentage": self._set_default_percentage,
            "set_active_thread_percentage": self._set_percentage,
            "set_default_device_pinned_mem_limit": self._set_default_limit,
            "set_device_pinned_mem_limit": self._set_limit,
            "set_default_client_priority": self._set_priority,
            "start_server": self._start_server,
            "shutdown_server": self._shutdown_server,
            "terminate_client": self._terminate_client,
        }
        self._driver = daemon.driver
        for name in self._driver.absent:
            self._table.pop(name, None)
            self._privileged.pop(name, None)

    def run(self, session: ControlSession, line: bytes) -> None:
        """Carries out one line and ends the answer, at once or when what it waits for has happened."""
        session.note(b"Cmd:" + line)
        words = line.decode("latin-1").split()
        name, args = (words[0], words[1:]) if words else ("", [])
        allowed = session.uid in (0, self._daemon.owner)
        if name == "quit":
            if allowed:
                self._daemon.quit(session, atoi(args[1]) if args[:1] == ["-t"] and len(args) > 1 else None)
                return
            session.say("Not enough privilege to execute quit command")
        elif name in self._privileged and not allowed and (no := self._refusal(session.uid, name, args)) is not None:
            session.say(f"Insufficient privileges for UID {session.uid}{no}")
        elif name in self._table or name in self._privileged:
            if (self._table.get(name) or self._privileged[name])(session, args):
                return
        else:
            session.say(b'Unknown command "%b"' % name.encode("latin-1"))
        session.end()

    def _refusal(self, uid: int, name: str, args: Sequence[str]) -> str | None:
        """Why a user who does not own the daemon may not do that, behind his number; None where he may: a server of his
        own is his, up to 535 the defaults are everybody's, and of a server that is not there that is said (fact 48)."""
        if self._driver.number >= 580:
            return ". Control deamon settings can only be modified by the user who started it or by the root user."
        if name.startswith("set_default_"):
            if self._driver.strangers_set:
                return None
            return ". Control deamon settings can only be modified by the user started it or by the root user."
        server = self._daemon.servers.get(atoi(args[0]) if args else 0)
        whose = _uid(args) if name == "start_server" else None if server is None else server.uid
        if whose in (uid, None):
            return None
        return "" if self._driver.strangers_set else f". Only the root user may {_OF_ANOTHER[name]}."

    def _server(self, session: ControlSession, args: Sequence[str]) -> SimServer | None:
        pid = atoi(args[0]) if args else 0
        server = self._daemon.servers.get(pid)
        if server is None:
            session.say(f"Server {pid} not found")
        return server

    def _ready_server(self, session: ControlSession, args: Sequence[str]) -> SimServer | None:
        """For what a server that is starting takes no part in: then nothing is printed, and nothing set (fact 45)."""
        server = self._server(session, args)
        if server is not None and server.starting:
            session.note(f"Server {server.pid} is <busy>")
            return None
        return server

    def _get_server_list(self, session: ControlSession, _args: Sequence[str]) -> None:
        for pid in self._daemon.servers:
            session.say(str(pid))

    def _get_server_status(self, session: ControlSession, args: Sequence[str]) -> None:
        if not args:
            session.say("A server PID is required")
        elif server := self._server(session, args):
            session.say(server.status)

    def _get_client_list(self, session: ControlSession, args: Sequence[str]) -> None:
        if server := self._server(session, args):
            for client in server.listed():
                session.say(str(client.pid))

    def _get_device_client_list(self, session: ControlSession, args: Sequence[str]) -> None:
        servers: list[SimServer | None] = list(self._daemon.servers.values())
        if args:
            servers = [self._server(session, args)]
        for server in servers:
            for device, gpu in enumerate(server.gpus if server else ()):
                rows = [
                    f"{client.pid}.{context.id}"
                    for client in (server.listed() if server else ())
                    for context in client.contexts
                    if context.device == device
                ]
                if rows:
                    session.say(f"[{device}] 00:{device:02x}.0, {gpu.name}")
                for row in rows:
                    session.say(row)

    def _ps(self, session: ControlSession, args: Sequence[str]) -> None:
        servers = [server for server in self._daemon.servers.values() if not server.starting]
        if args[:1] == ["-p"]:
            server = self._server(session, args[1:])
            if server is not None and server.starting:
                session.say(f"Server {server.pid} not found")
                session.say("")
                return
            if server is None:
                self._server(session, args[1:])  # the real one says it twice
                if self._driver.number < 580:
                    session.say("")
                return
            servers = [server]
        if not servers:
            session.say("Server not found")
        rows = [(server, client) for server in servers for client in server.listed() if client.contexts]
        if rows:
            session.say(_PS_TABLE % (b"PID", b"ID", b"SERVER", b"DEVICE", b"NAMESPACE", b"COMMAND"))
        for server, client in rows:
            numbers = [b"%d" % n for n in (client.pid, client.number, server.pid, client.namespace)]
            device = server.gpus[client.contexts[0].device].uuid.encode()[:22]
            session.say(_PS_TABLE % (*numbers[:3], device, numbers[3], client.argv0))

    def _get_default_percentage(self, session: ControlSession, _args: Sequence[str]) -> None:
        session.say(f"{self._daemon.percentage:.1f}")

    def _set_default_percentage(self, session: ControlSession, args: Sequence[str]) -> None:
        self._daemon.percentage = self._percentage(session, args, self._daemon.percentage)
        session.say(f"{self._daemon.percentage:.1f}")

    def _get_percentage(self, session: ControlSession, args: Sequence[str]) -> None:
        if server := self._ready_server(session, args):
            session.say(f"{server.percentage:.1f}")

    def _set_percentage(self, session: ControlSession, args: Sequence[str]) -> None:
        if server := self._ready_server(session, args):
            server.percentage = self._percentage(session, args[1:], server.percentage)
            session.say(f"{server.percentage:.1f}")

    @staticmethod
    def _percentage(session: ControlSession, args: Sequence[str], present: float) -> float:
        value = parse_percentage(args[0]) if args else None
        if value is None:
            session.note("Invalid percentage, expected between (0.0, 100.0]")
            return present
        return value

    def _get_default_limit(self, session: ControlSession, args: Sequence[str]) -> None:
        if not args and self._driver.number >= 580:
            session.note("Invalid command format.")
        elif args and _beyond(args[0]):
            session.note("Invalid device ordinal!")
        elif value := self._daemon.pinned.get(self._daemon.device_key(args[0])) if args else None:
            session.say(limit_text(value))
        else:
            session.note("No default pinned memory limit set for the device!")

    def _set_default_limit(self, session: ControlSession, args: Sequence[str]) -> None:
        if len(args) < 2:
            if self._driver.number >= 580:
                session.note("Invalid command format.")
            return
        if self._driver.number >= 580:
            session.note(f"set_default_device_pinned_mem_limit {args[0]} {args[1]}.")
        if _beyond(args[0]):
            session.note("Invalid device ordinal!")
        elif (key := self._daemon.device_key(args[0])).isdigit() or self._driver.number >= 580:
            self._daemon.pinned[key] = read_limit(args[1])  # of a UUID that is not here 555 keeps nothing

    def _get_limit(self, session: ControlSession, args: Sequence[str]) -> None:
        if len(args) < 2:
            session.note("Invalid command format.")
        elif (server := self._ready_server(session, args)) and (value := server.pinned.get(server.device_key(args[1]))):
            session.say(limit_text(value))

    def _set_limit(self, session: ControlSession, args: Sequence[str]) -> None:
        if len(args) < 3:
            session.note("Invalid command format.")
        elif server := self._ready_server(session, args):
            size = server.pinned[server.device_key(args[1])] = read_limit(args[2])
            server.log(f"Device pinned memory limit for device {args[1]} set to {size:#x} bytes")

    def _get_priority(self, session: ControlSession, _args: Sequence[str]) -> None:
        session.say(str(self._daemon.priority))

    def _set_priority(self, session: ControlSession, args: Sequence[str]) -> None:
        value = atoi(args[0]) if args else 0  # what is no number, and nothing at all, sets 0
        if value not in (0, 1):
            session.say("Invalid priority value - must be 0 or 1!")
            return
        self._daemon.priority = value
        for server in self._daemon.servers.values():
            if not server.starting:
                server.log(f"Client Priority set to {value}")

    def _device_query(self, session: ControlSession, args: Sequence[str]) -> None:
        wanted = [a for a in args if a != "--csv"]
        servers: Sequence[SimServer | None] = (None, *(s for s in self._daemon.servers.values() if not s.starting))
        if wanted:
            server = self._server(session, wanted)
            if server is None:
                return
            servers = (server,)
        table = "%s,%s,%s,%s,%s" if "--csv" in args else _DEVICE_TABLE
        for server in servers:
            session.say("Default" if server is None else f"{'' if wanted else chr(10)}Server {server.pid}")
            session.say(table % ("Device Ordinal", "PCI IDs", "UUID", "Name", "Attributes"))
            for device, gpu in enumerate(self._daemon.gpus):
                session.say(table % (device, f"0000:00.{gpu.index + 6:02x}.00", gpu.uuid, gpu.name, "N/A"))
            if server is not None:
                server.log(f"Received device query command. There are {len(self._daemon.gpus)} devices")

    def _start_server(self, session: ControlSession, args: Sequence[str]) -> None:
        if (uid := _uid(args)) is not None:
            self._daemon.want_server(uid)
        else:
            session.say("A user id (UID) is required to start a new server")

    def _shutdown_server(self, session: ControlSession, args: Sequence[str]) -> None:
        if (server := self._server(session, args)) and (not server.starting or "-f" in args[1:]):
            self._daemon.shut_down(server, force="-f" in args[1:])

    def _terminate_client(self, session: ControlSession, args: Sequence[str]) -> bool:
        server = self._server(session, args)
        pid = atoi(args[1]) if len(args) > 1 else 0
        if server is not None and server.starting:
            session.note(f"Server {server.pid} is <busy>")
            session.say(f"Server {server.pid} not found!")
            session.say("1")
            return False
        client = next((c for c in server.listed() if c.pid == pid), None) if server else None
        if server is not None and client is None and start_ticks(pid) is not None:
            session.say(str(NO_CONTEXT))
            return False
        if server is None or client is None:
            session.say(f"Invalid process {pid}!" if server else f"Server {atoi(args[0]) if args else 0} not found!")
            session.say("1")
            return False
        self._daemon.terminate(session, server, client)
        return True
