"""The screen in a browser: who gets in, how many, and that nothing outlives its tab or the server."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from mpstui.cli.web import _is_url, _listen, _told
from mpstui.config import PrivateFileError, private_file, read_private
from mpstui.system.procfs import read_stat
from mpstui.web import Rules, TerminalSize, WebServer, address

TOKEN = "a" * 43
CHILD = """
import os, sys, time
mode = sys.argv[1]
print(os.getpid(), flush=True)
sys.stdout.buffer.write(b"__GANGLION__\\n"); sys.stdout.buffer.flush()
def say(data): sys.stdout.buffer.write(b"D" + len(data).to_bytes(4, "big") + data); sys.stdout.buffer.flush()
say(b"pid %d %s" % (os.getpid(), os.environ["COLUMNS"].encode()))
if mode == "deaf":
    import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)
while True:
    head = sys.stdin.buffer.read(5)
    if not head: time.sleep(600)
    data = sys.stdin.buffer.read(int.from_bytes(head[1:], "big"))
    if head[:1] == b"M" and b"quit" in data: break
    say(head[:1] + data)
"""
"""Speaks textual-serve's packets; prints what it hears."""


class Serving:
    def __init__(self, server: WebServer, rules: Rules, port: int, browser: aiohttp.ClientSession) -> None:
        self.server, self.rules, self.port, self.browser = server, rules, port, browser
        self.at = f"http://127.0.0.1:{port}"

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        async with self.browser.get(self.at + path, headers=headers) as answer:
            return answer.status, await answer.text()

    async def enter(self) -> None:
        assert (await self.get(f"/?token={TOKEN}"))[0] == 200

    async def tab(self, query: str = "", **headers: str) -> aiohttp.ClientWebSocketResponse:
        told = {"Origin": self.at, **headers}
        return await self.browser.ws_connect(f"{self.at}/ws{query}", headers=told)

    async def status_of_tab(self, **headers: str) -> int:
        try:
            tab = await self.tab(**headers)
        except aiohttp.WSServerHandshakeError as error:
            return error.status
        await tab.close()
        return 101


@asynccontextmanager
async def serving(mode: str = "echo", **rules: object) -> AsyncIterator[Serving]:
    """A server whose sessions are small programs; it has ended, with them, at the end."""
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    known = Rules(TOKEN, port, **rules)
    server, end, ready = (
        WebServer([sys.executable, "-c", CHILD, mode], known, "mpstui"),
        asyncio.Event(),
        asyncio.Event(),
    )

    async def until_end() -> int:
        await end.wait()
        return 15

    task = asyncio.create_task(server.serve_on([listening], ready.set, until_end))
    await ready.wait()
    jar = aiohttp.CookieJar(unsafe=True)  # of an address that is a number
    try:
        async with aiohttp.ClientSession(cookie_jar=jar) as browser:
            yield Serving(server, known, port, browser)
    finally:
        end.set()
        assert await asyncio.wait_for(task, 120) == 15
        assert server.sessions == 0


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2400):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise TimeoutError


def ended(pid: int) -> bool:
    found = read_stat(pid)
    return found is None or found.gone


async def pid_of(tab: aiohttp.ClientWebSocketResponse) -> int:
    return int((await asyncio.wait_for(tab.receive_bytes(), 120)).split()[1])


def test_what_keeps_a_session_is_said_with_the_mouse() -> None:
    """A browser's terminal tells each move of the mouse as it tells a key; key and click alone were said."""
    for page in ("web.md", "command-line.md"):
        told = (Path(__file__).parents[2] / "docs" / page).read_text()
        assert "without a key, a click or a move of the mouse" in told, page


async def test_who_gets_in() -> None:
    async with serving() as web:
        for path in ("/", "/static/js/textual.js", "/download/x", "/focus.js"):
            status, words = await web.get(path)
            assert status == 401, path
            assert "gave, on its terminal or in a file" in words, "it prints none where its output may be a log"
        assert await web.status_of_tab() == 401
        for wrong in ("x", "", TOKEN[:-1], TOKEN + "a", "%ff%00", "ä"):
            status, text = await web.get(f"/?token={wrong}")
            assert status == 403
            assert TOKEN not in text
        await web.enter()
        status, text = await web.get("/")
        assert status == 200
        assert TOKEN not in text, "the address that stays has no token"
        assert f'data-session-websocket-url="ws://127.0.0.1:{web.port}/ws"' in text
        assert "googleapis" not in text
        (cookie,) = web.browser.cookie_jar
        assert TOKEN not in cookie.value
        assert (cookie["httponly"], cookie["samesite"]) == (True, "Strict")
        assert await web.status_of_tab() == 101
        for headers, status in (
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": f"https://127.0.0.1:{web.port}"}, 403),
            ({"Origin": f"http://127.0.0.1:{web.port + 1}"}, 403),
            ({"Origin": ""}, 403),
            ({"Host": "evil.example"}, 421),
            ({"Host": f"evil.example:{web.port}", "Origin": f"http://evil.example:{web.port}"}, 421),
            ({"Host": "localhost.evil.example"}, 421),
        ):
            assert await web.status_of_tab(**headers) == status, headers
        forwarded = {"Host": "localhost:9000", "Origin": "http://localhost:9000"}
        assert await web.status_of_tab(**forwarded) == 101, "by ssh -L, on another port"
        assert "ws://localhost:9000/ws" in (await web.get("/", Host="localhost:9000"))[1]
        async with web.browser.post(web.at + "/") as answer:
            assert answer.status == 405
        async with web.browser.get(web.at + "/") as answer:
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["Referrer-Policy"] == "no-referrer"


async def test_behind_a_proxy_it_goes_by_its_public_name() -> None:
    async with serving(public="https://gw.example/mps") as web:
        host = {"Host": "gw.example"}
        async with web.browser.get(web.at + f"/?token={TOKEN}", headers=host) as answer:
            assert answer.status == 200
            assert "url=https://gw.example/mps/" in await answer.text()
            assert "Secure" in answer.headers["Set-Cookie"]
        cookie = {"Cookie": f"{web.rules.name}={web.rules.cookie}"}
        assert "wss://gw.example/mps/ws" in (await web.get("/", **host, **cookie))[1]
        assert await web.status_of_tab(**host, **cookie, Origin="https://gw.example") == 101
        assert await web.status_of_tab(**host, **cookie, Origin="http://gw.example") == 403


async def test_a_session_is_what_its_tab_says_within_bounds() -> None:
    async with serving() as web:
        await web.enter()
        tab = await web.tab("?width=99999&height=x")
        assert (await asyncio.wait_for(tab.receive_bytes(), 120)).endswith(b" 1000")
        for told, heard in (
            (["stdin", "q é"], "Dq é".encode()),
            (["resize", {"width": 120, "height": 40}], b'M{"type": "resize", "width": 120, "height": 40}'),
            (["resize", {"width": 10**12, "height": -5}], b'M{"type": "resize", "width": 1000, "height": 24}'),
            (["resize", {"width": True, "height": "x" * 9}], b'M{"type": "resize", "width": 1, "height": 24}'),
            (["focus"], b'M{"type": "focus"}'),
        ):
            await tab.send_json(told)
            assert await asyncio.wait_for(tab.receive_bytes(), 120) == heard
        for nonsense in (["stdin", 5], ["resize", 5], ["nothing"], ["ping", 5], [["x"], 1]):
            await tab.send_json(nonsense)
        await tab.send_json(["ping", "7"])
        assert json.loads(await asyncio.wait_for(tab.receive_str(), 120)) == ["pong", "7"]
        await tab.send_str("[" * 5000)
        assert (await asyncio.wait_for(tab.receive(), 120)).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)


@pytest.mark.slow
async def test_a_hundred_tabs_are_as_many_sessions_as_allowed_and_all_end() -> None:
    async with serving(sessions=3) as web:
        await web.enter()
        came = await asyncio.gather(*(web.tab() for _ in range(100)), return_exceptions=True)
        tabs = [tab for tab in came if isinstance(tab, aiohttp.ClientWebSocketResponse)]
        assert len(tabs) == 3
        assert {error.status for error in came if isinstance(error, aiohttp.WSServerHandshakeError)} == {503}
        pids = [await pid_of(tab) for tab in tabs]
        tabs[0]._response.connection.transport.abort()  # kill -9 of a browser
        await until(lambda: ended(pids[0]) and web.server.sessions == 2)
        assert not ended(pids[1])
        assert await web.status_of_tab() == 101, "there is room again"
        os.kill(pids[1], signal.SIGKILL)
        assert (await asyncio.wait_for(tabs[1].receive(), 120)).type is not aiohttp.WSMsgType.BINARY
    assert all(ended(pid) for pid in pids), "they end with the server"


async def test_who_does_not_come_back_and_who_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpstui.web.GRACE", 0.1)
    monkeypatch.setattr("mpstui.web._LAST", 0.1)
    async with serving("deaf", idle=0.5) as web:
        await web.enter()
        tab = await web.tab()
        pid = await pid_of(tab)
        assert (await asyncio.wait_for(tab.receive(), 120)).type is aiohttp.WSMsgType.CLOSE, "idle"
        await until(lambda: ended(pid))


def test_addresses(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert address(Rules("t", port), taken) == f"http://127.0.0.1:{port}/?token=t"
        assert address(Rules("t", port, "https://x/y"), taken) == "https://x/y/?token=t"
        with pytest.raises(OSError, match="in use"):
            _listen(f"127.0.0.1:{port}", anywhere=False)
    for wrong in ("", "x", "127.0.0.1", ":80", "127.0.0.1:99999999", "127.0.0.1:x"):
        with pytest.raises(ValueError, match="HOST:PORT"):
            _listen(wrong, anywhere=True)
    with pytest.raises(ValueError, match="other hosts can reach this address"):
        _listen("0.0.0.0:0", anywhere=False)
    for good in ("https://gw.example", "http://node7:8037", "https://gw.example/mps"):
        assert _is_url(good)
    for bad in ("gw.example", "ftp://x", "https://u:p@x", "https://x/?a", "https://x/#a", "https://x:y", 'https://x/"'):
        assert not _is_url(bad), bad
    assert (TerminalSize.of("12", 34), TerminalSize.of(None, {}), TerminalSize.of(True, "99999")) == (
        (12, 34),
        (80, 24),
        (1, 500),
    )
    file = tmp_path / "new" / "url"
    private_file(file, "secret")
    assert read_private(file) == "secret"
    assert file.stat().st_mode & 0o777 == 0o600
    private_file(file, "new")
    assert read_private(file) == "new"
    file.chmod(0o644)
    with pytest.raises(PrivateFileError, match="others can read it"):
        read_private(file)
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(PrivateFileError, match="link"):
        private_file(tmp_path / "link", "x")


def test_the_token_is_nowhere_but_in_a_file_of_the_user_s_own(tmp_path: Path) -> None:
    """Not in what is printed where that may be a log, in no argument and no environment; and a port that is taken."""
    env = {**os.environ, "XDG_STATE_HOME": os.fspath(tmp_path / "state")}
    words = [sys.executable, "-m", "mpstui", "web", "--listen", "127.0.0.1:0"]
    server = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        file = Path(line.strip().partition(" is in ")[2])
        token = file.read_text().strip().partition("token=")[2]
        assert len(token) == 43
        assert token not in line
        assert file.stat().st_mode & 0o777 == 0o600
        for name in ("cmdline", "environ"):
            assert token.encode() not in Path(f"/proc/{server.pid}/{name}").read_bytes()
        port = file.stem.rpartition("-")[2]
        words[-1] = f"127.0.0.1:{port}"
        second = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)
        assert second.returncode == 2
        assert ": Address already in use; a program has that port" in second.stderr
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(120) == 128 + signal.SIGTERM
    assert not file.exists()


def test_the_address_of_a_server_that_was_killed_goes_with_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", os.fspath(tmp_path))
    folder = tmp_path / "mpstui"
    monkeypatch.setattr("socket.gethostname", lambda: "node7")
    for name in ("web-node7-1.url", "web-node7-2.url", "web-node8-1.url", "web-node7-x.url", "other.url"):
        private_file(folder / name, f"http://127.0.0.1/?token={TOKEN}\n")
    (folder / "web-node7-3.url").symlink_to(folder / "other.url")
    with _told("http://127.0.0.1:2/", 2) as live:
        live()
        with _told("http://127.0.0.1:4/", 4) as tell:
            tell()
            assert {each.name for each in folder.iterdir()} == {
                "web-node7-2.url", "web-node7-3.url", "web-node7-4.url", "web-node7-x.url", "web-node8-1.url",
                "other.url",
            }  # fmt: skip
        assert (folder / "web-node7-2.url").read_text() == "http://127.0.0.1:2/\n"
        assert not (folder / "web-node7-4.url").exists()
    assert not (folder / "web-node7-2.url").exists()


async def test_strangers_share_the_door_and_nobody_else_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any user of the machine can connect to loopback: without the token a connection has a few seconds, and one of a
    few places. Who has the token has neither bound."""
    monkeypatch.setattr("mpstui.web.STRANGERS", 8)
    async with serving() as web:
        await web.enter()
        tab = await web.tab()
        pid = await pid_of(tab)
        flood = [await asyncio.open_connection("127.0.0.1", web.port) for _ in range(60)]
        for _, writer in flood:
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        refused = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for reader, _ in flood[:-8]:
            with suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(1), 120) == b"", "one more ends the oldest"
        assert not flood[-1][0].at_eof()
        assert (await web.get("/"))[0] == 200, "by the connection that is known"
        cookies = {web.rules.name: web.rules.cookie}
        async with aiohttp.ClientSession(cookies=cookies) as again, again.get(web.at + "/") as answer:
            assert answer.status == 200, "and by a new one"
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        writer.write(refused)
        answer = await asyncio.wait_for(reader.read(), 120)
        assert b" 401 " in answer.partition(b"\r\n")[0], "refused, and its connection has ended"
        assert not ended(pid)
        await tab.send_json(["ping", "7"])
        assert json.loads(await asyncio.wait_for(tab.receive_str(), 120)) == ["pong", "7"]
        for _, writer in flood:
            writer.transport.abort()


async def test_a_stranger_who_never_says_who_he_is_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpstui.web.HEAD_SECONDS", 0.3)
    async with serving() as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        writer.write(b"GET / HTTP/1.1\r\n")
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 120) == b""
        body = b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        writer.write(body)
        with suppress(ConnectionError):
            assert b" 401 " in await asyncio.wait_for(reader.read(), 120), "answered, and not waited for its body"


async def test_what_is_no_request_leaves_no_line(caplog: pytest.LogCaptureFixture) -> None:
    """Any user of the machine could fill the terminal, or the journal, of who runs it."""
    async with serving() as web:
        for wrong in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01\x00\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: " + b"a" * 20_000,
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
            writer.write(wrong)
            with suppress(ConnectionError):
                assert b" 400 " in await asyncio.wait_for(reader.read(), 120)
            writer.close()
        assert caplog.records == []
        logging.getLogger("mpstui.web").error("of ours")
    assert [record.message for record in caplog.records] == ["of ours"]


async def test_without_a_descriptor_left_the_door_stays(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Other things of this process may hold them all for a while; nothing is printed each second."""
    monkeypatch.setattr("mpstui.web.AGAIN", 0.01)
    loop, tried = asyncio.get_running_loop(), list[int]()
    accept = loop.sock_accept

    async def full(listening: socket.socket) -> object:
        tried.append(1)
        if len(tried) < 5:
            raise OSError(errno.EMFILE, "Too many open files")
        return await accept(listening)

    monkeypatch.setattr(loop, "sock_accept", full)
    async with serving() as web:
        await web.enter()
    assert len(tried) >= 5
    assert capfd.readouterr().err == ""
