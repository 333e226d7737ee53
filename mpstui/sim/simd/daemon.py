"""The simulated control daemon: connections, sessions, servers that come and go, and what everybody waits for."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import select
import socket
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from mpstui.control.drivers import Driver, nearest

from .clients import ClientProcess, client_from_hello, parse_percentage
from .commands import Commands, ControlSession
from .config import DRIVER_VERSION, SERVER_START, TERMINATE_FAULTS, Gpu, ordinal
from .logs import Logs
from .loop import Loop
from .server import Begin, SimServer, SimXid, start_process
from .state import StateFile

PACKET: Final = 1 << 18
SERVER_DIED: Final = 806
MAX_BACKOFF_MS: Final = 12800
_FORCED_EXIT_S: Final = 0.02
"""What a server took to exit when it was forced to."""
_START_LATEST_S: Final = 0.05
_XIDS: Final = 32
"""Faults that are remembered for who asks what the driver said of them."""
_START_AGAIN_S: Final = 0.2
_START_TRIES: Final = 6
"""Servers that fail to start before their clients are refused."""
NOT_ACCEPTED: Final = 805


def _server_start(text: str) -> float | str:
    try:
        return max(0.0, float(text or 0))
    except ValueError:
        return text


def _defaults(environment: Mapping[str, str], logs: Logs, driver: Driver) -> tuple[float, int]:
    """The percentage and the priority that the daemon's environment gives, where the driver knows of them; what is no
    value leaves the default."""
    text = environment.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "")
    percentage = parse_percentage(text)
    if text and percentage is None:
        logs.control("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE should be between (0.0, 100.0]")
    known = "get_default_client_priority" not in driver.absent
    found = re.match(r"\s*([+-]?[0-9]{1,9})", environment.get("CUDA_MPS_CLIENT_PRIORITY", "") if known else "")
    priority = int(found[1]) if found is not None else 0  # fact 27
    if priority not in {0, 1}:
        logs.control("CUDA_MPS_CLIENT_PRIORITY should be between [0,1]")
    return percentage or 100.0, int(priority == 1)


class SimDaemon:
    """One control daemon on a pipe directory whose listening sockets are given."""

    def __init__(
        self,
        pipe_dir: str,
        listeners: Sequence[socket.socket],
        gpus: Sequence[Gpu],
        logs: Logs,
        multiuser: bool,
        environment: Mapping[str, str],
    ) -> None:
        self.owner = os.getuid()
        self.gpus = gpus
        self.driver = nearest(gpus[0].driver if gpus else DRIVER_VERSION)
        self.percentage, self.priority = _defaults(environment, logs, self.driver)
        self.pinned: dict[str, int] = {}
        self._server_start = _server_start(environment.get(SERVER_START, ""))
        self._terminate_faults = bool(environment.get(TERMINATE_FAULTS))
        self._failed_starts = 0
        self.servers: dict[int, SimServer] = {}
        self.pending: list[ClientProcess] = []
        self._pipe_dir = pipe_dir
        self._logs = logs
        self._multiuser = multiuser
        self._loop = Loop()
        self._listeners = listeners
        self._session: ControlSession | None = None
        self._refusals = 0
        self._commands = Commands(self)
        self._deaf = False
        self._wanted_uid: int | None = None
        self._next_uid: int | None = None
        self._status = 0
        """Of the last server that has exited; the daemon's own word at its end, as recorded."""
        self._quitting: ControlSession | None = None
        self._xids: deque[SimXid] = deque(maxlen=_XIDS)
        self._state = StateFile(pipe_dir)
        self._loop.after_each = self._write_state
        self._write_state()

    def run(self, lifeline: int | None, wakeup: int) -> Callable[[], None]:
        """Serves until it is told to quit, a signal comes, or ``lifeline`` closes.

        Gives what is to be called when nothing of the daemon is left: whoever told it to quit waits for that.
        """
        self._hear()
        self._loop.watch(wakeup, self._loop.stop)
        if lifeline is not None:
            self._loop.watch(lifeline, lambda: self._lifeline(lifeline))
        gc.freeze()  # nothing of what is there by now is garbage
        gc.enable()
        self._loop.run()
        self.pending.clear()  # no new server for them
        for server in list(self.servers.values()):
            self._exit_server(server)
        self._state.write((), (), self._xids)
        return self._quitting.bury if self._quitting is not None else lambda: None

    def _lifeline(self, descriptor: int) -> None:
        if not os.read(descriptor, 4096):
            self._loop.stop()

    def _write_state(self) -> None:
        self._state.write(tuple(self.servers.values()), tuple(self.pending), self._xids)

    def device_key(self, device: str) -> str:
        """The ordinal of a device given by ordinal or UUID."""
        return ordinal(self.gpus, device)

    # Listening, and not: while a second terminate_client or a quit waits, nobody is heard (facts 16 and 19).

    def _hear(self) -> None:
        self._deaf = False
        for listener in self._listeners:
            self._loop.watch(listener, lambda listener=listener: self._accept(listener))  # type: ignore[misc]
        if self._session is not None:
            self._loop.watch(self._session.connection, self._session_ready)

    def _go_deaf(self) -> None:
        self._deaf = True
        for listener in self._listeners:
            self._loop.unwatch(listener)
        if self._session is not None:
            self._loop.unwatch(self._session.connection)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            return
        self._logs.control("Accepting connection...")
        poller = select.poll()
        poller.register(connection, select.POLLIN)
        if any(events & select.POLLHUP for _, events in poller.poll(0)):
            self._logs.control("Unable to accept connection")
            connection.close()
            return
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PACKET)
        connection.settimeout(2)  # an end that does not read must not stop the daemon
        self._loop.watch(connection, lambda: self._hello(connection))

    def _hello(self, connection: socket.socket) -> None:
        self._loop.unwatch(connection)
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, uid, _ = struct.unpack("3i", credentials)
        try:
            packet = connection.recv(PACKET)
            if packet.startswith(b"UI "):
                self._new_session(connection, uid, packet[3:])
            elif packet:
                client = client_from_hello(connection, json.loads(packet), (pid, uid), len(self.gpus))
                self._new_client(client)
            else:
                connection.close()
        except (OSError, ValueError, RecursionError):
            self._logs.control("User did not send valid credentials")
            connection.close()

    # Control sessions: one at a time (fact 2).

    def _new_session(self, connection: socket.socket, uid: int, lowered: bytes) -> None:
        if self._session is not None:
            word = (b"", b"-", b"!")[self._refusals % 3]
            self._refusals += 1
            if word:  # often without a word about it, status 0 or 1 (fact 30)
                with contextlib.suppress(OSError):
                    connection.send(word)
            connection.close()
            return
        if uid in (0, self.owner) and lowered.isdigit():
            uid = int(lowered)  # a privileged user may play another one
        self._refusals = 0
        self._logs.control("NEW UI")
        self._session = ControlSession(connection, uid, self._logs)
        self._loop.watch(connection, self._session_ready)
        with contextlib.suppress(OSError):
            connection.send(b"+")

    def _session_ready(self) -> None:
        session = self._session
        if session is None:
            return
        try:
            packet = session.connection.recv(PACKET, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if packet:
            self._commands.run(session, packet[1:])
            return
        self._logs.control("UI closed")
        self._loop.unwatch(session.connection)
        session.connection.close()
        self._session = None
        self._start_wanted()

    # CUDA clients.

    def _new_client(self, client: ClientProcess) -> None:
        # Whose process it stands for is in the state before any log names it: who reads the log looks there at once,
        # and takes a process of another user for one that has the number by now.
        self.pending.append(client)
        self._write_state()
        self._logs.control("User did not send valid credentials")  # a client's first knock
        self._logs.control("Accepting connection...")
        server = self._serving()
        self._loop.watch(client.connection, lambda: self._client_ready(client))
        if server is not None and not server.starting and (self._multiuser or server.uid == client.uid):
            self._logs.control(f"NEW CLIENT {client.pid} from user {client.uid}: Server already exists")
            self._serve(server, client)
            return
        self._logs.control(
            f"NEW CLIENT {client.pid} from user {client.uid}: Server is not ready, push client to pending list"
        )
        if server is not None and server.starting:
            client.tell("pending")
            return
        if server is None:
            self.want_server(0 if self._multiuser else client.uid)
            self._start_wanted()
            return
        client.tell("pending")
        if not server.retrying:
            self._try_shutdown(server, backoff=False)

    def _waits_no_more(self, client: ClientProcess) -> None:
        self.pending = [other for other in self.pending if other is not client]

    def _serve(self, server: SimServer, client: ClientProcess) -> None:
        error = server.connect(client)
        self._waits_no_more(client)
        if error:
            client.tell("refused", error=error)
            return
        for device in [d for d in client.devices for _ in range(client.contexts_per_device)]:
            self._logs.control("Accepting connection...")
            self._logs.control(f"NEW CLIENT {client.pid} from user {client.uid}: Server already exists")
            error = server.add_context(client, device)
            if error:
                client.tell("refused", error=error)
                return
        free = server.free_memory(client, client.devices[0]) if client.devices else 0
        client.error = server.allocate(client, client.memory)
        self._write_state()  # so that whoever waits for the client finds it there
        client.tell("connected", server=server.pid, sm=client.sm_count, free=free, error=client.error)

    def _client_ready(self, client: ClientProcess) -> None:
        try:
            packet = client.connection.recv(PACKET, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        server = self._server_of(client)
        if not packet:
            self._loop.unwatch(client.connection)
            client.connection.close()
            self.pending = [c for c in self.pending if c is not client]
            if server is not None:
                server.drop(client)
        elif packet in (b"busy", b"idle", b"endless"):
            client.busy = packet != b"idle" and not client.error
            client.endless = packet == b"endless" and not client.error
        elif packet.startswith(b"uses "):
            client.say_use(packet)
        elif packet == b"bye":
            client.clean = True
        elif packet == b"fault" and server is not None and not client.error:
            server.fault(client)
        elif packet == b"trap" and server is not None and not client.error:
            server.trap(client)
        elif packet == b"reset" and server is not None:
            client.busy = client.endless = False
            server.close_contexts(client)

    def _server_of(self, client: ClientProcess) -> SimServer | None:
        return next((s for s in self.servers.values() if client in s.clients), None)

    def terminate(self, session: ControlSession, server: SimServer, client: ClientProcess) -> None:
        """Answers 0 at once; for a client terminated before, only when its process ends, and nobody else till then."""

        def answer() -> None:
            session.say("0")
            session.end()
            if self._deaf:
                self._hear()

        again = client.terminated
        server.terminate(client, answer)
        if again:
            self._go_deaf()

    # Servers.

    def _serving(self) -> SimServer | None:
        return next((s for s in self.servers.values() if not s.leaving), None)

    def want_server(self, uid: int) -> None:
        """Starts a server, from 550 on as soon as no session is open, where there is none; beside another user's that
        is starting, when that one has gone."""
        serving = self._serving()
        if serving is None and self._wanted_uid is None:
            self._wanted_uid = uid
            if self.driver.number < 550:  # within the session
                self._start_wanted()
            else:
                self._loop.after(_START_LATEST_S, self._start_wanted)
        elif serving is not None and serving.starting and serving.uid != uid:
            self._next_uid = uid

    def _start_wanted(self) -> None:
        if self._wanted_uid is None:
            return
        uid, self._wanted_uid = self._wanted_uid, None
        start = self._server_start
        begin = Begin(self._pipe_dir, uid, self.gpus, self._logs, self.percentage, self.priority, start, self.driver)
        pid, link = start_process(begin)
        server = SimServer(pid, link, uid, self.gpus, self._logs, self._xids.append)
        server.terminate_faults = self._terminate_faults
        server.percentage = self.percentage
        server.pinned = dict(self.pinned)  # not what the environment names of memory (fact 57)
        server.starting = start != 0
        self.servers[pid] = server
        self._loop.watch(link, lambda: self._server_speaks(server))
        if not server.starting:
            self._server_ready(server)

    def _server_speaks(self, server: SimServer) -> None:
        """It is ready, or it has ended."""
        try:
            word = server.link.recv(1)
        except BlockingIOError:
            return
        except OSError:
            word = b""
        if not word:
            self._exit_server(server)
            return
        server.starting = False
        self._server_ready(server)

    def _server_ready(self, server: SimServer) -> None:
        pid, uid = server.pid, server.uid
        self._failed_starts = 0
        self._logs.control("Accepting connection...")
        self._logs.control(f"NEW SERVER {pid}: Ready")
        for client in [c for c in self.pending if self._multiuser or c.uid == uid]:
            self._serve(server, client)
        if self.pending:
            self._try_shutdown(server, backoff=False)

    def shut_down(self, server: SimServer, force: bool) -> None:
        """shutdown_server: when its clients have gone, or now."""
        if not server.starting and (self._try_shutdown(server, backoff=False, again=not force) or not force):
            return
        self._force(server, lambda: self._exit_server(server))

    def _force(self, server: SimServer, then: Callable[[], None]) -> None:
        if self.driver.number >= 550:
            self._logs.control(f"Force shutting down server {server.pid}")
        server.leaving = True
        self._loop.after(_FORCED_EXIT_S, then)

    def _try_shutdown(self, server: SimServer, backoff: bool, again: bool = True) -> bool:
        """Ends a server that has no clients; otherwise tries again later, after twice the pause."""
        state = "enabled" if backoff else "disabled"
        self._logs.control(f"Try shutting down server {server.pid}, backoff is {state}")
        server.log("Server has been notified to shutdown")
        workers = server.workers
        if not workers:
            server.log("Waiting for current clients to finish")
            server.log("Exiting")
            self._exit_server(server)
            return True
        server.log(f"Server was unable to shutdown due to {workers} active clients")
        self._logs.control(f"Server {server.pid} has {workers} active worker threads. Server will not shutdown.")
        if again:
            self._logs.control(
                f"Control will try shutting down server {server.pid} again in at most {server.next_try_ms}ms"
            )
            if not server.retrying:
                server.retrying = True
                self._loop.after(server.next_try_ms / 1000, lambda: self._retry(server))
            server.next_try_ms = min(MAX_BACKOFF_MS, 2 * server.next_try_ms)
        return False

    def _retry(self, server: SimServer) -> None:
        server.retrying = False
        if server.pid in self.servers and not server.leaving:
            self._try_shutdown(server, backoff=True)

    def _exit_server(self, server: SimServer) -> None:
        """The server's process is ended, or has ended; clients that it still had lose it (fact 19)."""
        if self.servers.pop(server.pid, None) is None:
            return
        self._loop.unwatch(server.link)
        server.link.close()
        _, status = os.waitpid(server.pid, 0)
        for answer in server.on_process_end.values():
            answer()
        for client in server.clients:
            client.lose(SERVER_DIED)
            self._loop.unwatch(client.connection)
            client.connection.close()
        self._status = os.WEXITSTATUS(status) if os.WIFEXITED(status) else status & 0x7F
        self._logs.control(f"Server {server.pid} exited with status {self._status}")
        if server.starting:
            self._logs.control("Removed Shm file at ")
        if self._quitting is not None:
            self._finish_quit()
        elif self._next_uid is not None:
            uid, self._next_uid = self._next_uid, None
            self.want_server(uid)
            self._start_wanted()
        elif server.starting and not server.leaving:
            self._start_failed()
        elif self.pending:
            self.want_server(0 if self._multiuser else self.pending[0].uid)
            self._start_wanted()

    def _start_failed(self) -> None:
        """Tries again for those who wait, until they are refused."""
        self._failed_starts += 1
        if self._failed_starts >= _START_TRIES:
            self._failed_starts = 0
            for client in self.pending:
                client.tell("refused", error=NOT_ACCEPTED)
            self.pending.clear()
        elif self.pending:
            uid = 0 if self._multiuser else self.pending[0].uid
            self._loop.after(_START_AGAIN_S, lambda: self.want_server(uid))

    # Quit.

    def quit(self, session: ControlSession, timeout: int | None) -> None:
        """Ends the daemon when the clients have gone, or after ``timeout`` seconds in any case."""
        self._quitting = session
        self._go_deaf()
        if timeout is not None:
            if self.driver.number >= 535:
                session.note(f"quit command issued with timeout of {timeout}")
            self._loop.after(timeout, self._quit_now)
        for server in list(self.servers.values()):
            self._try_shutdown(server, backoff=False)
        self._finish_quit()

    def _quit_now(self) -> None:
        for server in list(self.servers.values()):
            if not self._try_shutdown(server, backoff=False, again=False):
                self._force(server, lambda server=server: self._exit_server(server))  # type: ignore[misc]

    def _finish_quit(self) -> None:
        if not self.servers and self._loop.running:
            self._logs.control(f"Exit with status {self._status}")
            self._loop.stop()
