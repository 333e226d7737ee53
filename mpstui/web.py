"""The screen in a browser: textual-serve's page and packets, behind a token, with a bounded number of sessions.

The only place that imports textual_serve and aiohttp. Each browser tab gets a process of its own, which is this program
with a driver that talks packets instead of a terminal; it ends with its tab, and all end with the server (docs/web.md).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import re
import secrets
import signal
import socket
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import field
from html import escape
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

from aiohttp import WSCloseCode, WSMsgType, web
from aiohttp.http_exceptions import HttpProcessingError
from textual_serve.app_service import AppService
from textual_serve.server import Server

from mpstui.core.late import dataclass
from mpstui.system.parent import ended_with_us

GRACE: Final = 5.0
"""Seconds that a session's process has to end by itself."""
_LAST: Final = 2.0
"""Seconds from SIGTERM to SIGKILL."""
HEAD_SECONDS: Final = 10.0
"""That a connection has until a request on it has the token or its cookie."""
STRANGERS: Final = 256
"""Connections without such a request at the same time: any user of the machine can make some. One more ends the
oldest."""
AGAIN: Final = 1.0
"""Seconds until the next try where there is no descriptor left for a connection."""
_MESSAGE: Final = 1 << 18
"""Bytes of one message of a browser at most: what is pasted."""
_COLUMNS: Final = (1, 1000)
_LINES: Final = (1, 500)
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""Names that only the browser's own machine has, with whatever port: ``ssh -L`` gives it another one."""
_HOST: Final = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?", re.IGNORECASE)
TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{20,200}")
"""What a token may be; one that is made here has 43 characters."""

_WHERE: Final = "the address that mpstui web gave, on its terminal or in a file"
_PAGE: Final = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<link rel="icon" href="data:,"><link rel="stylesheet" href="{base}/static/css/xterm.css">
<script src="{base}/static/js/textual.js"></script><script src="{base}/focus.js"></script>
<style>
@font-face {{ font-family: "Roboto Mono"; src: url("{base}/static/fonts/RobotoMono-VariableFont_wght.ttf"); }}
html, body {{ margin: 0; height: 100%; background: #0c181f; color: #ddd; overflow: hidden;
  font-family: "Roboto Mono", monospace; }}
#terminal {{ width: 100vw; height: 100vh; }}
#start, #ended {{ display: none; position: absolute; inset: 0; align-items: center; justify-content: center;
  background: #0c181fee; z-index: 20; }}
body.-closed #ended {{ display: flex; }}
a {{ color: #8be; }}
</style></head>
<body><div id="start"></div>
<div id="ended"><p>The session has ended, or there are {most} already. <a href="{base}/">Again</a></p></div>
<div id="terminal" class="textual-terminal" data-session-websocket-url="{socket}" data-font-size="{size}"></div>
</body></html>
"""
_FOCUS: Final = """window.addEventListener("load", () => {
  const typed = () => document.querySelector(".xterm-helper-textarea")?.focus();
  typed();
  document.body.addEventListener("click", typed);
});
"""
"""The keyboard is the terminal's from the beginning."""
_ENTERED: Final = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">
<meta http-equiv="refresh" content="0;url={base}/"><title>mpstui</title></head><body></body></html>
"""


@dataclass(frozen=True, slots=True)
class Rules:
    """Who may see the screen, and how many at once."""

    token: str
    port: int
    public: str = ""
    """The address that browsers have for it, without a slash at its end; empty where it is loopback's."""
    sessions: int = 4
    idle: float = 1800.0
    """Seconds without a key, a click or a move of the mouse after which a session is closed."""
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def name(self) -> str:
        """Of the cookie: a browser sends those of a host to all its ports."""
        return f"mpstui-{self.port}"

    def has_token(self, told: str) -> bool:
        return _same(told, self.token)

    def has_cookie(self, told: str) -> bool:
        return _same(told, self.cookie)

    def origin(self, host: str) -> str | None:
        """The only ``Origin`` of a page of ours that the browser asks by this ``Host``; None where it is not a name of
        ours: a page of another site may have had its own name lead here (DNS rebinding)."""
        found = _HOST.fullmatch(host)
        if found is None:
            return None
        public = urlsplit(self.public)
        if self.public and host.lower() == public.netloc.lower():
            return f"{public.scheme}://{public.netloc}".lower()
        return f"http://{host}".lower() if found["name"].lower() in _LOCAL else None

    def base(self, host: str) -> str:
        """What stands before the paths of our pages."""
        public = urlsplit(self.public)
        return self.public if self.public and host.lower() == public.netloc.lower() else f"http://{host}"


def _same(told: str, kept: str) -> bool:
    """In a time that does not tell how much of it is right."""
    digests = (hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in (told, kept))
    return hmac.compare_digest(*digests)


class BrowserSession(AppService):
    """One tab and its process. The process is started without a shell, and does not outlive the tab or the server."""

    def __init__(self, words: Sequence[str], socket: web.WebSocketResponse, **options: Any) -> None:
        async def close() -> None:
            await socket.close()

        super().__init__("", write_bytes=socket.send_bytes, write_str=socket.send_str, close=close, **options)
        self._words = tuple(words)
        self._deaf = False

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        pipe = asyncio.subprocess.PIPE
        self._process = process = await asyncio.create_subprocess_exec(
            *self._words,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env={**self._build_environment(width, height), "TERM": "xterm-256color", "COLORTERM": "truecolor"},
            cwd="/",  # python -m looks for the program here first
            start_new_session=True,
            preexec_fn=ended_with_us(),
        )
        self._stdin = process.stdin
        return process

    async def run(self) -> None:
        """The tab ends with the process, also with one that had no time to say so."""
        try:
            await super().run()
        finally:
            if not self._deaf:
                with suppress(ConnectionError, RuntimeError):
                    await self.remote_close()

    async def on_data(self, payload: bytes) -> None:
        """What comes after the tab has gone is read, so that the process can end, and dropped."""
        if not self._deaf:
            try:
                await super().on_data(payload)
            except (ConnectionError, RuntimeError):
                self._deaf = True

    async def stop(self) -> None:
        """Ask the process to end, and see to it that it does."""
        process, task, self._deaf = self._process, self._task, True
        if process is None:
            return
        try:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.send_meta({"type": "quit"}), 1.0)
            for patience, number in ((GRACE, signal.SIGTERM), (_LAST, signal.SIGKILL)):
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(process.wait(), patience)
                    break
                with suppress(OSError):
                    process.send_signal(number)
        finally:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


class TerminalSize(NamedTuple):
    """Of a browser's terminal, in cells."""

    width: int = 80
    height: int = 24

    @classmethod
    def of(cls, width: object, height: object) -> TerminalSize:
        """Within bounds, whatever a browser says."""
        return cls(_bounded(width, *_COLUMNS, cls().width), _bounded(height, *_LINES, cls().height))


def _bounded(value: object, least: int, most: int, default: int) -> int:
    number = (
        int(value) if isinstance(value, int) or (isinstance(value, str) and re.fullmatch("[0-9]{1,6}", value)) else 0
    )
    return min(most, max(least, number)) if number > 0 else default


class WebServer(Server):
    """textual-serve's server, whose pages are for whoever has the token alone."""

    def __init__(self, words: Sequence[str], rules: Rules, title: str) -> None:
        super().__init__("mpstui", port=rules.port, title=title)
        self._words = tuple(words)
        self._rules = rules
        self._open: dict[web.WebSocketResponse, None] = {}
        self._strangers: dict[asyncio.Transport, None] = {}
        self._reserved = 0
        self._closing = False
        self._free = asyncio.Condition()

    @property
    def sessions(self) -> int:
        """How many there are, those that are about to end among them."""
        return self._reserved

    def initialize_logging(self) -> None:
        """No log: an address has the token in it."""

    async def on_startup(self, app: web.Application) -> None:
        """Nothing is printed here."""

    async def _make_app(self) -> web.Application:
        app = await super()._make_app()
        app.router.add_get("/focus.js", self._focus)
        app.middlewares.append(self._guard)
        app.on_response_prepare.append(self._head)
        return app

    async def serve_on(
        self, listening: Sequence[socket.socket], ready: Callable[[], None], end: Callable[[], Awaitable[int]]
    ) -> int:
        """Until ``end`` gives a signal's number, which is handed on. All sessions have ended then."""
        runner = web.AppRunner(
            await self._make_app(), access_log=None, logger=_log(), handle_signals=False, shutdown_timeout=1.0
        )
        await runner.setup()
        doors = [asyncio.create_task(self._let_in(each, runner)) for each in listening]
        try:
            ready()
            return await end()
        finally:
            self._closing = True
            for door in doors:
                door.cancel()
            await asyncio.gather(*doors, return_exceptions=True)
            for each in listening:
                each.close()
            closing = [tab.close(code=WSCloseCode.GOING_AWAY) for tab in list(self._open)]
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.gather(*closing, return_exceptions=True), 2.0)
                await asyncio.wait_for(self._all_ended(), GRACE + 2 * _LAST)
            await runner.cleanup()

    async def _all_ended(self) -> None:
        async with self._free:
            await self._free.wait_for(lambda: not self._reserved)

    # Who may.

    async def _let_in(self, listening: socket.socket, runner: web.AppRunner) -> None:
        """Takes connections. Each is a stranger's until a request on it is allowed."""
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        while (handler := runner.server) is not None:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError:  # no descriptor is left, or who asked has gone
                await asyncio.sleep(AGAIN)
                continue
            transport, _ = await loop.connect_accepted_socket(handler, connection)
            if len(self._strangers) >= STRANGERS:
                self._strangers = {each: None for each in self._strangers if not each.is_closing()}
            for oldest in list(self._strangers)[: max(0, len(self._strangers) - STRANGERS + 1)]:
                self._dismiss(oldest)
            self._strangers[transport] = None
            loop.call_later(HEAD_SECONDS, self._dismiss, transport)

    def _dismiss(self, transport: asyncio.Transport) -> None:
        if transport in self._strangers:
            del self._strangers[transport]
            transport.abort()

    def _know(self, request: web.Request) -> None:
        """Its connection is no stranger's any more."""
        if request.transport is not None:
            self._strangers.pop(request.transport, None)

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        rules, host = self._rules, request.headers.get("Host", "")
        origin, told = rules.origin(host), request.headers.get("Origin")
        if origin is None:
            return _refusal(421, "This server does not answer to that name. See --public-url.")
        if told is not None and told.lower() != origin:
            return _refusal(403, "A page of another site has asked for this.")
        if request.method not in {"GET", "HEAD"}:
            return _refusal(405, "Only GET.")
        if (token := request.query.get("token")) is not None and request.path == "/":
            if not rules.has_token(token):
                return _refusal(403, f"The token is wrong. The right one is in {_WHERE}.")
            self._know(request)
            entered = web.Response(text=_ENTERED.format(base=escape(rules.base(host))), content_type="text/html")
            entered.set_cookie(
                rules.name, rules.cookie, httponly=True, samesite="Strict", secure=origin.startswith("https:"), path="/"
            )
            return entered
        if not rules.has_cookie(request.cookies.get(rules.name, "")):
            return _refusal(401, f"Open {_WHERE}: it has a token in it.")
        self._know(request)
        if request.path == "/ws" and told is None:
            return _refusal(403, "The request does not say which page sent it: use a browser.")
        return await handler(request)

    async def _head(self, request: web.Request, response: web.StreamResponse) -> None:
        """What the browser may do with our pages: nothing beside them, and no other page may show them."""
        host = request.headers.get("Host", "")
        told = self._rules.base(host) if self._rules.origin(host) else "http://localhost"
        there = urlsplit(told)
        ws = f"{'wss' if there.scheme == 'https' else 'ws'}://{there.netloc}"
        response.headers.update(
            {
                "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
                f"font-src 'self'; img-src 'self' data:; connect-src 'self' {ws}; base-uri 'none'; form-action 'none'; "
                "frame-ancestors 'none'",
                "X-Frame-Options": "DENY",
                "X-Content-Type-Options": "nosniff",
                "Referrer-Policy": "no-referrer",
                "Cross-Origin-Resource-Policy": "same-origin",
                "Cross-Origin-Opener-Policy": "same-origin",
            }
        )
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers.pop("Server", None)

    # The page and its sessions.

    async def handle_index(self, request: web.Request) -> Any:
        base = self._rules.base(request.headers.get("Host", ""))
        page = _PAGE.format(
            title=escape(self.title),
            base=escape(base),
            socket=escape("ws" + base.removeprefix("http") + "/ws"),
            size=_bounded(request.query.get("fontsize"), 6, 60, 16),
            most=self._rules.sessions,
        )
        return web.Response(text=page, content_type="text/html")

    async def _focus(self, request: web.Request) -> web.Response:
        return web.Response(text=_FOCUS, content_type="text/javascript")

    async def handle_websocket(self, request: web.Request) -> Any:
        """One session, as long as its tab is there and somebody uses it."""
        if self._closing or self._reserved >= self._rules.sessions:
            return _refusal(503, f"There are {self._rules.sessions} sessions already.")
        self._reserved += 1
        tab = web.WebSocketResponse(heartbeat=15, max_msg_size=_MESSAGE)
        session = BrowserSession(self._words, tab, download_manager=self.download_manager)
        try:
            await tab.prepare(request)
            self._open[tab] = None
            size = TerminalSize.of(request.query.get("width"), request.query.get("height"))
            await session.start(*size)
            await self._converse(tab, session)
        except (OSError, RuntimeError):
            pass  # the tab has gone, or no process could be started: it ends all the same
        finally:
            self._open.pop(tab, None)
            try:
                await asyncio.shield(session.stop())
            finally:
                self._reserved -= 1
                async with self._free:
                    self._free.notify_all()
                with suppress(Exception):
                    await tab.close()
        return tab

    async def _converse(self, tab: web.WebSocketResponse, session: BrowserSession) -> None:
        loop = asyncio.get_running_loop()
        used = loop.time()
        while (left := used + self._rules.idle - loop.time()) > 0:
            try:
                message = await tab.receive(timeout=left)
            except asyncio.TimeoutError:
                return
            if message.type is not WSMsgType.TEXT:
                if message.type is WSMsgType.BINARY:
                    continue
                return
            try:
                kind, *rest = message.json()
            except (ValueError, TypeError, RecursionError):
                return
            told = rest[0] if rest else None
            if kind == "stdin" and isinstance(told, str):
                used = loop.time()
                await session.send_bytes(told.encode("utf-8", "replace"))
            elif kind == "resize" and isinstance(told, dict):
                await session.set_terminal_size(*TerminalSize.of(told.get("width"), told.get("height")))
            elif kind == "ping" and isinstance(told, str):
                await tab.send_json(["pong", told[:40]])
            elif kind in ("blur", "focus"):
                await (session.blur() if kind == "blur" else session.focus())


def _log() -> logging.Logger:
    """For errors of ours. What is no request any user of the machine can send, and it leaves no line."""
    log = logging.getLogger("mpstui.web")
    log.addFilter(_is_ours)
    return log


def _is_ours(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


async def signalled() -> int:
    """The number of the first signal that asks the program to end."""
    told: asyncio.Queue[int] = asyncio.Queue()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, told.put_nowait, int(number))
    return await told.get()


def _refusal(status: int, words: str) -> web.Response:
    """The connection ends with it: who is refused keeps no place."""
    refused = web.Response(status=status, text=f"mpstui: {words}\n")
    refused.force_close()
    return refused


def address(rules: Rules, listening: socket.socket) -> str:
    """What to open, with the token."""
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{rules.public or f'http://{shown}:{port}'}/?token={quote(rules.token)}"
