"""The screen in a real browser, Chromium without a window: what is seen, and that a killed browser leaves nothing.

``make test-browser`` runs it; MPSTUI_PICTURES names a folder for its pictures.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pyte
import pytest

NGINX = shutil.which("nginx")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or "MPSTUI_BROWSER" not in os.environ, reason="needs Chromium, and MPSTUI_BROWSER=1"
)
SECONDS = 120


class Tab:
    """A page, driven by the DevTools protocol; what its websocket is told is drawn on a terminal of ours."""

    def __init__(self, devtools: aiohttp.ClientWebSocketResponse) -> None:
        self._devtools = devtools
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = 0
        self.size = (0, 0)
        self.screen = pyte.Screen(80, 24)
        self._stream = pyte.ByteStream(self.screen)
        self.changed = asyncio.Event()
        self.task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for message in self._devtools:
            told = message.json()
            if "id" in told:
                self._answers.pop(told["id"]).set_result(told.get("result", told))
            elif told["method"] == "Network.webSocketFrameSent":
                sent = told["params"]["response"]["payloadData"]
                if sent.startswith('["resize"'):
                    size = json_size(sent)
                    self.screen.resize(size[1], size[0])
                    self.size = size
            elif told["method"] == "Network.webSocketFrameReceived":
                frame = told["params"]["response"]
                if frame["opcode"] == 2:
                    self._stream.feed(base64.b64decode(frame["payloadData"]))
            self.changed.set()

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._numbers += 1
        answer = self._answers[self._numbers] = asyncio.get_running_loop().create_future()
        await self._devtools.send_json({"id": self._numbers, "method": method, "params": parameters})
        return await asyncio.wait_for(answer, SECONDS)

    async def go(self, url: str) -> None:
        for domain in ("Network", "Page", "Runtime"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=url)

    async def press(self, key: str) -> None:
        code = {"windowsVirtualKeyCode": ord(key.upper())} if len(key) == 1 else {"windowsVirtualKeyCode": 27}
        text = {"text": key} if len(key) == 1 else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **code, **text)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **code)

    async def picture(self, name: str) -> None:
        if folder := os.environ.get("MPSTUI_PICTURES"):
            shot = await self.call("Page.captureScreenshot")
            (Path(folder) / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))

    @property
    def text(self) -> str:
        return "\n".join(self.screen.display)

    async def until(self, condition: Callable[[], object]) -> None:
        async def wait() -> None:
            while not condition():
                self.changed.clear()
                await self.changed.wait()

        try:
            await asyncio.wait_for(wait(), SECONDS)
        except asyncio.TimeoutError:
            raise TimeoutError(self.text) from None


def json_size(sent: str) -> tuple[int, int]:
    size = json.loads(sent)[1]
    return size["width"], size["height"]


@asynccontextmanager
async def chromium(*more: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, Callable[[], Any]]]:
    """The browser, and what opens a tab."""
    assert CHROMIUM is not None
    folder = tempfile.mkdtemp(prefix="mpstui-browser-")
    options = ["--headless=new", "--no-sandbox", "--remote-debugging-port=0", f"--user-data-dir={folder}"]
    options += [
        "--use-angle=swiftshader",
        "--enable-unsafe-swiftshader",
        "--no-first-run",
        "--window-size=1200,800",
        *more,
    ]
    process = await asyncio.create_subprocess_exec(
        CHROMIUM, *options, "about:blank", stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    tabs: list[Tab] = []
    try:
        async with aiohttp.ClientSession() as session:
            line = ""
            while "DevTools listening on" not in line:
                line = (await asyncio.wait_for(process.stderr.readline(), SECONDS)).decode()
                assert line, "Chromium has ended"
            port = line.split()[-1].split(":")[2].partition("/")[0]

            async def tab() -> Tab:
                async with session.put(f"http://127.0.0.1:{port}/json/new?about:blank") as answer:
                    place = (await answer.json())["webSocketDebuggerUrl"]
                tabs.append(Tab(await session.ws_connect(place, max_msg_size=0)))
                return tabs[-1]

            yield process, tab
            for each in tabs:
                each.task.cancel()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def sessions(server: int) -> list[psutil.Process]:
    """Processes of the server's own that are screens."""
    return [
        each for each in psutil.Process(server).children()
        if each.status() != psutil.STATUS_ZOMBIE and "--read-only" in each.cmdline()
    ]  # fmt: skip


@asynccontextmanager
async def web(folder: Path, *more: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """The server on a simulated node, and its address with the token."""
    env = {**os.environ, "XDG_STATE_HOME": os.fspath(folder), "XDG_CONFIG_HOME": os.fspath(folder)}
    words = [sys.executable, "-m", "mpstui", "web", "--demo", "--listen", "127.0.0.1:0", *more]
    server = await asyncio.create_subprocess_exec(*words, env=env, stdout=asyncio.subprocess.PIPE)
    try:
        assert server.stdout is not None
        told = (await asyncio.wait_for(server.stdout.readline(), SECONDS)).decode()
        yield server, (await asyncio.to_thread(Path(told.strip().partition(" is in ")[2]).read_text)).strip()
    finally:
        server.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(server.wait(), SECONDS) == 128 + signal.SIGTERM


def configured(folder: Path, port: int) -> int:
    """What docs/web.md says of nginx, with TLS and a user, before that port; the port where it listens."""
    page = (Path(__file__).parents[2] / "docs/web.md").read_text()
    location = page[page.index("location /mps/") :].partition("\n\n")[0]
    location = location.replace("127.0.0.1:8037", f"127.0.0.1:{port}")
    location = location.replace("/etc/nginx/mps.htpasswd", f"{folder}/htpasswd")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=gw.example.org", "-days", "2"]
    subprocess.run([*made, "-keyout", folder / "key", "-out", folder / "cert"], check=True, capture_output=True)
    hashed = subprocess.run(["openssl", "passwd", "-apr1", "secret"], check=True, capture_output=True, text=True).stdout
    (folder / "htpasswd").write_text(f"admin:{hashed}")
    with socket.create_server(("127.0.0.1", 0)) as free:
        listening = int(free.getsockname()[1])
    (folder / "nginx.conf").write_text(f"""
daemon off; master_process off; pid {folder}/pid; error_log stderr;
events {{}}
http {{
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e; access_log {folder}/access.log;
  server {{
    listen 127.0.0.1:{listening} ssl; server_name gw.example.org;
    ssl_certificate {folder}/cert; ssl_certificate_key {folder}/key;
    {location}
  }}
}}
""")
    return listening


@asynccontextmanager
async def nginx(folder: Path, port: int) -> AsyncIterator[int]:
    """It runs, and listens on that port."""
    assert NGINX is not None
    listening = await asyncio.to_thread(configured, folder, port)
    process = await asyncio.create_subprocess_exec(NGINX, "-c", folder / "nginx.conf", "-e", "stderr")
    try:
        for _ in range(20 * SECONDS):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", listening)) == 0:
                    break
            assert process.returncode is None
            await asyncio.sleep(0.05)
        yield listening
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), SECONDS)


@pytest.mark.skipif(NGINX is None, reason="nginx is not here")
async def test_behind_nginx_as_the_page_says(tmp_path: Path) -> None:
    """TLS and a password of the proxy's, then the token, the websocket, and a key."""
    public = ("--public-url", "https://gw.example.org/mps")
    async with web(tmp_path, *public) as (server, url):
        port = next(each.laddr.port for each in psutil.Process(server.pid).net_connections() if each.status == "LISTEN")
        assert url.startswith("https://gw.example.org/mps/?token=")
        async with nginx(tmp_path, port) as listening:
            rules = f"--host-resolver-rules=MAP gw.example.org 127.0.0.1:{listening}"
            async with chromium(rules, "--ignore-certificate-errors") as (_, open_tab):
                tab: Tab = await open_tab()
                await tab.go(url.replace("https://", "https://admin:secret@"))
                await tab.until(lambda: "Clients" in tab.text and "alice" in tab.text)
                where = (await tab.call("Runtime.evaluate", expression="document.location.href"))["result"]["value"]
                assert where == "https://gw.example.org/mps/"
                await tab.picture("browser-nginx")
                await tab.press("E")
                await tab.until(lambda: "Events" in tab.text.splitlines()[0] or "kinds" in tab.text.lower())
            assert "token" not in (tmp_path / "access.log").read_text()


async def test_overview_drill_resize_two_sessions_and_a_killed_browser(tmp_path: Path) -> None:
    async with web(tmp_path) as (server, url), chromium() as (browser, open_tab):
        first: Tab = await open_tab()
        await first.go(url)
        await first.until(lambda: "Clients" in first.text and "alice" in first.text)
        assert "READ-ONLY" in first.text
        where = (await first.call("Runtime.evaluate", expression="document.location.href"))["result"]["value"]
        assert "token" not in where
        await first.picture("browser-overview")
        await first.press("E")
        await first.until(lambda: "Events" in first.text.splitlines()[0] or "kinds" in first.text.lower())
        await first.picture("browser-events")
        await first.press("Escape")
        await first.until(lambda: "Servers" in first.text)
        before = first.size
        await first.call("Emulation.setDeviceMetricsOverride", width=800, height=500, deviceScaleFactor=1, mobile=False)
        await first.until(lambda: first.size < before and "MEM/LIMIT" in first.text)
        await first.picture("browser-resized")
        second: Tab = await open_tab()
        await second.go(where)
        await second.until(lambda: "alice" in second.text)
        screens = sessions(server.pid)
        assert len(screens) == 2
        await second.press("t")
        await second.until(lambda: "read-only" in second.text)
        await second.press("q")
        for _ in range(20 * SECONDS):
            if any(not each.is_running() for each in screens):
                break
            await asyncio.sleep(0.05)
        assert [each.is_running() for each in screens].count(False) == 1, "q in one tab ends its session alone"
        await second.picture("browser-ended")
        os.killpg(browser.pid, signal.SIGKILL)
        gone, alive = await asyncio.to_thread(psutil.wait_procs, screens, SECONDS)
        assert (len(gone), alive) == (2, [])
