"""Answers scrapes over HTTP, in a thread with an event loop of its own: nothing that a node does keeps it waiting.

It gives a few short answers to GET and HEAD, one to a connection, so it is small enough to bound all of it: the bytes
and seconds of a request, the seconds of an answer, and the connections, of which the oldest goes first.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mpstui.core.text import printable
from mpstui.export.metrics import Metrics
from mpstui.export.webconfig import WebRules

REQUEST_BYTES: Final = 16 * 1024
REQUEST_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 30.0
CONNECTIONS: Final = 64
"""At the same time. One more ends the one that has been there longest: who never finishes his request keeps nobody
out."""
_REASONS: Final = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed",
    408: "Request Timeout", 429: "Too Many Requests", 431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}  # fmt: skip
_PLAIN: Final = "text/plain; charset=utf-8"
_PAGE: Final = b'<!doctype html><title>mpstui exporter</title><p><a href="/metrics">Metrics</a>\n'

Answer = tuple[int, str, bytes]


class _Handshakes(ssl.SSLContext):
    """Makes each connection with the certificates as they are then: where handshakes fail, as with an outdated one, no
    request comes at which a change would be seen."""

    in_force: Callable[[], ssl.SSLContext]

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        return self.in_force().wrap_bio(*arguments, **named)


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
        self._open: dict[asyncio.StreamWriter, None] = {}
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
        servers = [self._loop.run_until_complete(self._listen(each)) for each in self._sockets]
        self._loop.call_soon(self._ready.set)
        self._loop.run_forever()
        for server in servers:
            server.close()
        for writer in tuple(self._open):
            writer.transport.abort()

    async def _listen(self, listening: socket.socket) -> asyncio.Server:
        tls = seconds = None
        if self._rules.tls is not None:
            tls, seconds = _Handshakes(ssl.PROTOCOL_TLS_SERVER), REQUEST_SECONDS
            tls.in_force = self._certificates
        return await asyncio.start_server(
            self._serve, sock=listening, ssl=tls, ssl_handshake_timeout=seconds, limit=REQUEST_BYTES, backlog=128
        )

    def _certificates(self) -> ssl.SSLContext:
        self._reload()
        if self._rules.tls is None:
            raise ssl.SSLError("there is no certificate")  # not so: TLS is given up at a start only
        return self._rules.tls

    def _reload(self) -> None:
        if (trouble := self._rules.reload()) is not None:
            self._complain(trouble)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while len(self._open) >= CONNECTIONS:
            oldest = next(iter(self._open))
            self._open.pop(oldest)
            oldest.transport.abort()
        self._open[writer] = None
        try:
            await self._converse(reader, writer)
        except (OSError, asyncio.TimeoutError, EOFError, ValueError):
            writer.transport.abort()  # it did not take its answer, or has gone
        finally:
            self._open.pop(writer, None)
            writer.close()

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
    if not colon or not port.isdecimal() or not port.isascii() or int(port) > 65535:
        raise ValueError(f"{printable(address, 80)} is no address; give HOST:PORT, as 127.0.0.1:9936")
    host = host.removeprefix("[").removesuffix("]")
    if not host and socket.has_dualstack_ipv6():
        return socket.create_server(("", int(port)), family=socket.AF_INET6, dualstack_ipv6=True)
    found = socket.getaddrinfo(host or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, where = found[0]
    return socket.create_server(where[:2], family=family)


def url(listening: socket.socket, tls: bool) -> str:
    """Where it is scraped."""
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{shown}:{port}/metrics"
