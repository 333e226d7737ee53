"""Answers scrapes over HTTP, in a thread with an event loop of its own: nothing that a node does keeps it waiting.

It gives a few short answers to GET and HEAD, one to a connection, so it is small enough to bound all of it: the bytes
and seconds of a request, the seconds of an answer, and the connections, of which the oldest goes first.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from mpstui.core.text import printable, typed_count
from mpstui.export.metrics import Metrics
from mpstui.export.webconfig import WebRules

REQUEST_BYTES: Final = 16 * 1024
REQUEST_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 30.0
CONNECTIONS: Final = 64
"""At the same time. One more ends the one that has been there longest: who never finishes his request keeps nobody
out."""
AGAIN: Final = 1.0
"""Seconds until the next try where there is no descriptor left for a connection."""
_REASONS: Final = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed",
    408: "Request Timeout", 429: "Too Many Requests", 431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}  # fmt: skip
_PLAIN: Final = "text/plain; charset=utf-8"
_PAGE: Final = b'<!doctype html><title>mpstui exporter</title><p><a href="/metrics">Metrics</a>\n'

Answer = tuple[int, str, bytes]


class MetricsServer:
    """Serves ``metrics`` on listening ``sockets`` until it is closed. ``complain`` is told what an admin should know;
    it is called in another thread."""

    def __init__(
        self,
        metrics: Metrics,
        sockets: Sequence[socket.socket],
        rules: WebRules,
        complain: Callable[[str], None],
    ) -> None:
        self._metrics, self._sockets, self._rules, self._complain = metrics, sockets, rules, complain
        self._open: dict[asyncio.Task[None], None] = {}
        """Of each connection, from its first moment on."""
        self._checking = asyncio.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="mpstui-exporter", daemon=True)
        self._ready = threading.Event()

    def start(self) -> None:
        """Answers from now on."""
        self._thread.start()
        self._ready.wait()

    def close(self) -> None:
        """Ends it, whoever is connected."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(lambda loop, context: None)  # torn connections are everyday
        doors = [self._loop.create_task(self._let_in(each)) for each in self._sockets]
        self._loop.call_soon(self._ready.set)
        self._loop.run_forever()
        ending = (*doors, *self._open)
        for task in ending:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*ending, return_exceptions=True))

    async def _let_in(self, listening: socket.socket) -> None:
        """Takes connections; each is counted before it has said a word of TLS."""
        listening.setblocking(False)
        while True:
            try:
                connection, _ = await self._loop.sock_accept(listening)
            except OSError:  # no descriptor is left, or who asked has gone
                await asyncio.sleep(AGAIN)
                continue
            while len(self._open) >= CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                oldest.cancel()
            task = self._loop.create_task(self._serve(connection))
            self._open[task] = None
            task.add_done_callback(lambda ended: self._open.pop(ended, None))
            await asyncio.sleep(0)  # it has begun: one that is ended before that would not close its connection

    def _reload(self) -> None:
        if (trouble := self._rules.reload()) is not None:
            self._complain(trouble)

    async def _serve(self, connection: socket.socket) -> None:
        reader = asyncio.StreamReader(limit=REQUEST_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            # Also here, and not at a request alone: where handshakes fail, as with an outdated certificate, none comes.
            self._reload()
            tls = self._rules.tls
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=tls, ssl_handshake_timeout=None if tls is None else REQUEST_SECONDS
            )
            try:
                await self._converse(reader, asyncio.StreamWriter(transport, protocol, reader, self._loop))
            finally:
                transport.abort()  # where it did not take its answer, or has gone
        except (OSError, asyncio.TimeoutError, EOFError, ValueError):
            pass  # torn connections are everyday
        finally:
            with suppress(OSError):  # its transport sees that and closes it, also in the midst of a handshake
                connection.shutdown(socket.SHUT_RDWR)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, headers = "GET", dict[str, str]()
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), REQUEST_SECONDS)
        except asyncio.TimeoutError:
            answer = _text(408, "the request took too long")
        except asyncio.LimitOverrunError:
            answer = _text(431, "the request is too large")
        else:
            try:
                method, path, headers = _parsed(head)
            except ValueError:
                answer = _text(400, "this is no HTTP request")
            else:
                answer = await self._answer(method, path, headers)
        status, content, body = answer
        lines = [
            f"HTTP/1.1 {status} {_REASONS[status]}",
            f"Content-Type: {content}",
            f"Content-Length: {len(body)}",
            "Connection: close",
            *(f"{name}: {value}" for name, value in self._rules.config.headers.items()),
            *(['WWW-Authenticate: Basic realm="mpstui"'] if status == 401 else []),
        ]
        writer.write("\r\n".join((*lines, "", "")).encode("latin-1", "replace") + (b"" if method == "HEAD" else body))
        await asyncio.wait_for(writer.drain(), ANSWER_SECONDS)
        writer.close()
        await asyncio.wait_for(writer.wait_closed(), ANSWER_SECONDS)

    async def _answer(self, method: str, path: str, headers: Mapping[str, str]) -> Answer:
        self._reload()
        if not self._rules.in_time():
            return _text(429, "too many requests")
        authorization = headers.get("authorization", "")
        allowed = self._rules.allows(authorization)
        if allowed is None:
            async with self._checking:  # one at a time: who guesses gets one core, and nobody else's scrape
                allowed = self._rules.allows(authorization)
                if allowed is None:
                    allowed = await asyncio.to_thread(self._rules.check, authorization)
        if not allowed:
            return _text(401, "a name and a password are needed")
        if method not in {"GET", "HEAD"}:
            return _text(405, "GET and HEAD only")
        path = path.partition("?")[0]
        if path == "/metrics":
            return 200, *self._metrics.rendered(headers.get("accept", ""))
        if path == "/":
            return 200, "text/html; charset=utf-8", _PAGE
        return _text(404, "there is /metrics")


def _text(status: int, text: str) -> Answer:
    return status, _PLAIN, f"{text}\n".encode()


def _parsed(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Method, path and headers by their names in lower case. Raises ValueError."""
    first, *rest = head.decode("latin-1").split("\r\n")
    method, path, version = first.split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(version)
    headers: dict[str, str] = {}
    for line in filter(None, rest):
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError(line)
        headers[name.strip().lower()] = value.strip()
    return method, path, headers


def listen(address: str) -> socket.socket:
    """A listening socket for ``HOST:PORT``, ``[IPV6]:PORT`` or ``:PORT``, which is every address. Raises ValueError
    and OSError."""
    host, colon, port = address.rpartition(":")
    number = typed_count(port)
    if not colon or number is None or number > 65535:
        raise ValueError(f"{printable(address, 80)} is no address; give HOST:PORT, as 127.0.0.1:9936")
    host = host.removeprefix("[").removesuffix("]")
    if not host and socket.has_dualstack_ipv6():
        return socket.create_server(("", number), family=socket.AF_INET6, dualstack_ipv6=True)
    found = socket.getaddrinfo(host or None, number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, where = found[0]
    return socket.create_server(where[:2], family=family)


def url(listening: socket.socket, tls: bool) -> str:
    """Where it is scraped."""
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{shown}:{port}/metrics"
