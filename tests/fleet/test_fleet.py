"""Many nodes: what is made of a Prometheus and of an ssh, and of those that hang, lie or are away."""

from __future__ import annotations

import ast
import asyncio
import http.server
import inspect
import json
import math
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import warm
from folders import simulated_node

from mpstui.cli import main
from mpstui.cli.fleet import _look as looking
from mpstui.cli.parser import build_parser
from mpstui.core.problems import KINDS
from mpstui.fields import View, as_json
from mpstui.fleet import (
    NODE,
    FleetError,
    FleetNode,
    FleetProblem,
    Prometheus,
    clock,
    config_of,
    follow_over_ssh,
    from_status,
    hosts_in_config,
    hosts_of,
    judged,
    opening,
    over_ssh,
    summary,
)
from mpstui.ui.fleet_filter import NodeFilter

PATIENCE = 120.0
NOW = 1_795_262_671.0

# What is made of what is known.


@pytest.mark.parametrize(
    ("known", "fault", "state"),
    [
        ({"daemons": {"/a": "ok"}}, False, "ok"),
        ({"daemons": {"/a": "ok", "/b": "held"}}, False, "HELD"),
        ({"daemons": {"/a": "held", "/b": "blocked"}}, False, "BLOCKED"),
        ({"daemons": {"/a": "blocked"}}, True, "FAULT"),
        ({"daemons": {"/a": "stale"}}, False, "STALE"),
        ({"daemons": {}}, False, "ABSENT"),
        ({"daemons": {"/a": "ok"}, "read_at": NOW - 500}, False, "OLD"),
        ({"daemons": {"/a": "ok"}, "problems": (FleetProblem("warning", "pending"),)}, False, "WARNING"),
        (
            {"daemons": {"/a": "ok"}, "problems": (FleetProblem("warning", "w"), FleetProblem("error", "contexts"))},
            False,
            "ERROR",
        ),
        ({"daemons": {"/a": "ok"}, "problems": (FleetProblem("info", "outdated"),)}, False, "ok"),
    ],
)
def test_the_worst_counts(known: dict[str, Any], fault: bool, state: str) -> None:
    assert judged(FleetNode("n", **known), NOW, fault=fault).state == state


def test_a_filter_has_words_and_their_absence_and_fields_as_the_screen_has_them() -> None:
    """The command line knew words alone: state:held was looked for as text, and found nobody."""
    node = FleetNode("gpu-07", "HELD", "alice holds it", clients=12, problems=(FleetProblem("warning", "pending"),))
    left = ("", "gpu", "held alice", "pending", "!fault", "gpu !ok", "state:held", "!state=ok", "clients>10 alice")
    assert all(NodeFilter(text).leaves(node) for text in left)
    hidden = ("gpu-08", "!held", "gpu fault", "state:fault", "clients<10", "!state:held", "clients>x")
    assert not any(NodeFilter(text).leaves(node) for text in hidden)
    silent = replace(node, silent_since=time.time() - 7200)
    assert NodeFilter("silent_since>1h").leaves(silent)
    assert not NodeFilter("silent_since>3h").leaves(silent)


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "a b", "a;b", "", "$(x)", "a\nb", "x" * 300])
def test_no_name_of_a_host_is_an_option_or_a_word_of_a_shell(host: str) -> None:
    with pytest.raises(FleetError):
        hosts_of(host)
    with pytest.raises(FleetError):
        opening("ssh -t {host} mpstui", host)


def test_a_node_is_opened_by_words() -> None:
    assert opening("ssh -t {host} 'mpstui --read-only'", "root@n1") == ["ssh", "-t", "root@n1", "mpstui --read-only"]
    for wrong in ("ssh n1", "", "ssh '{host}"):
        with pytest.raises(FleetError):
            opening(wrong, "n1")


def test_hosts_of_the_configuration_of_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config"
    file.write_text("Host gpu-* other\n User x\nHOST gpu-1 gpu-2\nhost=gpu-3\nHost cpu-1 !gpu-9\nHost -gpu-4\n")
    assert hosts_in_config("gpu-*", ("ssh", "-F", str(file))) == ["gpu-1", "gpu-2", "gpu-3"]
    with pytest.raises(FleetError, match=f"no Host in {file} matches “x"):
        hosts_in_config("x*", ("ssh", "-F", str(file)))
    for nothing, why in (("none", "cannot be read"), (".", "is no file")):
        with pytest.raises(FleetError, match=f"{re.escape(str(tmp_path / nothing))} {why}"):
            hosts_in_config("*", ("ssh", "-F", str(tmp_path / nothing)))
    was = file.stat()
    file.unlink()
    os.mkfifo(file)
    monkeypatch.setattr(Path, "stat", lambda *_, **__: was)  # it was a file a moment ago
    with pytest.raises(FleetError, match=f"{re.escape(str(file))} is no file"):
        hosts_in_config("*", ("ssh", "-F", str(file)))


@pytest.mark.parametrize(
    "ssh",
    [
        "ssh -F {}",
        "ssh -F{}",
        "/usr/bin/ssh -4 -p 22 -F {} -v",
        "ssh -p22 -4vF {}",
        "ssh -F other -F {}",
        "env LANG=C ssh -o Port=22 -F {}",
        "sshpass -e ssh -F {}",
    ],
)
def test_the_configuration_of_the_ssh_that_is_run(ssh: str, tmp_path: Path) -> None:
    words = ssh.format(tmp_path / "mine").split()
    assert config_of(words) == tmp_path / "mine"


def test_files_that_the_configuration_includes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh" / "more").mkdir(parents=True)
    (tmp_path / ".ssh" / "config").write_text(
        f'Include more/*\nInclude {tmp_path}/away ~/.ssh/config\nHost\t"gpu-1" # gpu-7\nHost = gpu-2\n'
    )
    (tmp_path / ".ssh" / "more" / "a").write_text("Host gpu-3\n")
    (tmp_path / ".ssh" / "more" / "b").write_text("Host gpu-4\n")
    assert hosts_in_config("gpu-*") == ["gpu-3", "gpu-4", "gpu-1", "gpu-2"]


# Over ssh.

FAKE = """\
import json, sys, time
words = sys.argv[1:]
host, command = words[words.index("--") + 1:]
assert command == "mpstui status --json" and "BatchMode=yes" in words and "ForwardAgent=no" in words
if host == "hangs": time.sleep(600)
if host == "dribbles":
    while True: print("x", end="", flush=True); time.sleep(0.05)
if host == "asks": print("Password: ", end=""); sys.exit(input() and 0)
if host == "refuses": sys.exit("root@refuses: Permission denied (publickey).\\x1b[2J")
if host == "new":
    print("Warning: Permanently added 'new' (ED25519) to the list of known hosts.", file=sys.stderr)
    print("bash: mpstui: garbage"); sys.exit(0)
if host == "lies": print(json.dumps({"daemons": [{"health": 1}], "devices": 5, "problems": None}))
if host == "list": print("[1, 2]")
if host == "deep": print("[" * 100000)
if host == "silent": pass
if host == "floods":
    for _ in range(5000): sys.stdout.write("y" * 65536)
if host == "greets": print("Welcome to gpu-7\\x1b[2J\\n  { not this one")
if host in ("good", "greets"):
    print(json.dumps({"daemons": [{"pipe_dir": "/tmp/mps\\x1b[2J", "health": "ok", "start_failures": None,
        "pending": [{}], "servers": [{"status": "ACTIVE", "clients": [{}, {}]}]}],
        "devices": [{"contexts": 3, "context_limit": 48, "memory_used": 10, "memory_total": 100,
            "outside_processes": 1}],
        "problems": [{"severity": "warning", "code": "pending", "text": "bob waits", "remedy": "wait"}]}))
    print("Goodbye" if host == "greets" else "")
    sys.exit(4)
"""


def ask(tmp_path: Path, *hosts: str, deadline: float = PATIENCE) -> dict[str, FleetNode]:
    program = tmp_path / "ssh.py"
    program.write_text(FAKE)
    found: dict[str, FleetNode] = {}
    ssh = (sys.executable, str(program))
    asyncio.run(over_ssh(hosts, lambda node: found.update({node.name: node}), ssh=ssh, deadline=deadline))
    return found


@pytest.mark.slow
def test_each_host_is_a_row_whatever_it_says(tmp_path: Path) -> None:
    hosts = ("good", "greets", "asks", "refuses", "lies", "list", "deep", "silent", "floods", "new")
    found = ask(tmp_path, *hosts)
    good, greets = found.pop("good"), found.pop("greets")
    assert (greets.state, greets.clients, greets.daemons) == (good.state, good.clients, good.daemons)
    assert (good.state, good.clients, good.pending, good.outside, good.contexts) == ("WARNING", 2, 1, 1, 3)
    assert (good.detail, list(good.daemons)) == ("bob waits", ["/tmp/mps\\x1b[2J"])
    assert {node.state for node in found.values()} == {"NO ANSWER"}
    assert found["refuses"].detail == "root@refuses: Permission denied (publickey).\\x1b[2J"
    assert "too large" in found["floods"].detail
    assert found["new"].detail == "it prints “bash: mpstui: garbage” and no status; is mpstui there, and on PATH?"
    assert found["silent"].detail == "it prints nothing; is mpstui there, and on PATH?"
    assert all(node.detail.isprintable() and node.detail for node in found.values())


def test_one_that_hangs_is_left_after_its_deadline_and_ended(tmp_path: Path) -> None:
    found = ask(tmp_path, "hangs", "dribbles", deadline=1.0)
    assert [node.detail for node in found.values()] == ["it has not answered for 1 s"] * 2
    left = subprocess.run(["pgrep", "-f", f"{tmp_path}/ssh.py"], capture_output=True, text=True, timeout=60)
    assert left.stdout == ""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_ssh_that_hangs_ends_with_the_program(number: signal.Signals) -> None:
    """It is in a session of its own, which Ctrl-C does not reach, and stayed for good."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.settimeout(PATIENCE)
        hangs = f"import socket; socket.create_connection(('127.0.0.1', {door.getsockname()[1]})).recv(1)"
        words = ["--hosts", "n1", "--once", "--deadline", "3600", "--ssh", shlex.join((sys.executable, "-c", hangs))]
        with subprocess.Popen([sys.executable, "-m", "mpstui", "fleet", *words], stderr=subprocess.DEVNULL) as child:
            child_of_it, _ = door.accept()
            with child_of_it:
                child_of_it.settimeout(PATIENCE)
                child.send_signal(number)
                child.wait(PATIENCE)
                assert child_of_it.recv(1) == b"", "its end closes the connection"


STATUS: dict[str, Any] = {
    "schema": 1,
    "source": "real",
    "daemons": [{"pipe_dir": "/p", "health": "ok", "start_failures": None, "servers": []}],
    "devices": [],
    "problems": [],
}


def printing(tmp_path: Path, told: object) -> FleetNode:
    """What is made of a host whose status is this."""
    program = tmp_path / "ssh.py"
    program.write_text(f"print({json.dumps(told)!r})")
    found: list[FleetNode] = []
    asyncio.run(over_ssh(["n1"], found.append, ssh=(sys.executable, str(program)), deadline=PATIENCE))
    return found[0]


def test_a_status_of_another_version_is_called_that(tmp_path: Path) -> None:
    """It said “{” and no status, and asked whether mpstui is there."""
    without = {name: value for name, value in STATUS.items() if name != "devices"}
    older, newer = printing(tmp_path, without), printing(tmp_path, {**STATUS, "schema": 2})
    assert (older.state, newer.state) == ("NO ANSWER", "NO ANSWER")
    assert older.detail == "what it prints is no status that is read here: is its mpstui of another version?"
    assert newer.detail == "its status has schema 2, and schema 1 is read here: its mpstui is of another version"
    assert printing(tmp_path, {**STATUS, "schema": "\x1b[2J" * 99}).detail.isprintable()
    assert printing(tmp_path, {**STATUS, "new": {}}).state == "ok"


@pytest.mark.parametrize("name", ["clients", "pending"])
@pytest.mark.parametrize("value", ["abcdef", {"a": 1, "b": 2}, 7])
def test_what_is_no_list_is_not_counted(name: str, value: object) -> None:
    """A text of six letters was six clients that wait."""
    (daemon,) = STATUS["daemons"]
    wrong = {"servers": [{"status": "ACTIVE", "clients": value}]} if name == "clients" else {"pending": value}
    with pytest.raises(TypeError):
        from_status("n1", {**STATUS, "daemons": [{**daemon, **wrong}]}, NOW)


def test_a_state_that_is_not_known_here_is_not_that_there_is_no_daemon() -> None:
    """A later mpstui may have one more; ABSENT says that none runs."""
    told = {**STATUS, "daemons": [{**STATUS["daemons"][0], "health": "draining"}]}
    assert from_status("n1", told, NOW).state == "NOT KNOWN"
    assert judged(FleetNode("n1", daemons={"/p": "other"}), NOW).state == "NOT KNOWN", "the exporter's word for it"


@pytest.mark.parametrize(("watch", "clients"), [("logs", 0), ("polling", None), ("none", None)])
def test_no_servers_of_a_daemon_that_has_told_nothing_are_not_0_clients(watch: str, clients: int | None) -> None:
    held = {**STATUS["daemons"][0], "health": "held", "cause": "held", "servers": [], "watch": watch}
    node = from_status("n1", {**STATUS, "daemons": [held]}, NOW)
    assert (node.state, node.clients) == ("HELD", clients)


def test_of_a_directory_that_is_closed_nobody_knows_who_waits_there() -> None:
    closed = {**STATUS["daemons"][0], "health": None, "cause": "closed", "servers": []}
    node = from_status("n1", {**STATUS, "daemons": [closed]}, NOW)
    assert (node.state, node.clients, node.pending) == ("NOT KNOWN", None, None)
    assert judged(FleetNode("n1", daemons={"/p": "absent"}), NOW).state == "ABSENT"


def test_a_node_whose_driver_does_not_answer_was_not_read() -> None:
    """It was read “0 s ago”, which is when ssh had answered; the JSON says when NVML has."""
    told = {**STATUS, "problems": [{"severity": "warning", "code": "nvml", "text": "it hangs", "remedy": ""}]}
    node = from_status("n1", told, NOW)
    assert (node.read_at, node.state) == (None, "WARNING")
    assert from_status("n1", STATUS, NOW).read_at == NOW


def test_what_stays_behind_with_standard_error_is_not_waited_for(tmp_path: Path) -> None:
    """ssh's ControlMaster does so: the connection is kept for the next one."""
    script = (
        "import subprocess as s; p = s.Popen(['sleep', '300'], stdout=s.DEVNULL, start_new_session=True); "
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(p.pid)); print('[]')"
    )
    begun, found = time.monotonic(), list[FleetNode]()
    asyncio.run(over_ssh(["n1"], found.append, ssh=(sys.executable, "-c", script), deadline=250.0))
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert time.monotonic() - begun < 200
    assert "and no status" in found[0].detail


FOLLOWED = """\
import os, sys, time
words, here = sys.argv[2:], sys.argv[1]
host, command = words[words.index("--") + 1:]
if command == "mpstui status --json":
    with open(f"{here}/asked", "a") as file: print(host, file=file)
elif host == "ends": pass
else:
    assert command == "mpstui events --follow --json" and "ControlMaster=no" in words
    with open(f"{here}/pid", "w") as file: print(os.getpid(), file=file)
    print("\\x1b[2J{", flush=True)
    time.sleep(600)
"""


async def test_a_host_is_asked_at_once_when_something_happens_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for what has come, whatever it is; and the connection ends with who follows."""
    monkeypatch.setattr("mpstui.fleet.CALM", 0.01)
    program = tmp_path / "ssh.py"
    program.write_text(FOLLOWED)
    heard: asyncio.Queue[FleetNode] = asyncio.Queue()
    ssh = (sys.executable, str(program), str(tmp_path))
    work = asyncio.create_task(
        follow_over_ssh(
            ["n1", "ends"], heard.put_nowait, ssh=ssh, command="mpstui status --json", deadline=PATIENCE, again=0.05
        )
    )
    assert (await asyncio.wait_for(heard.get(), PATIENCE)).name == "n1"
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    assert (tmp_path / "asked").read_text() == "n1\n"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_without_ssh_that_is_said() -> None:
    found: list[FleetNode] = []
    asyncio.run(over_ssh(["n1"], found.append, ssh=("/nonexistent/ssh",)))
    assert "cannot be run" in found[0].detail


def test_a_status_of_a_real_node(tmp_path: Path) -> None:
    with simulated_node() as node:
        node.spawn()
        told = warm.run("status", "--json", "--pipe-dir", node.pipe_dir)
    made = from_status("n1", json.loads(told.stdout), time.time())
    assert (made.clients, made.pending, made.context_limit) == (1, 0, 96)
    assert summary([made]).endswith(" · 1 SIMULATED")
    assert as_json(NODE, made, View())["simulated"] is True
    assert "SIMULATED" not in summary([FleetNode("n2")])


# From Prometheus.

Answer = Callable[[str], Any]


@pytest.fixture
def lying() -> Iterator[Callable[[Any, int], str]]:
    """A server that answers everything with this, byte for byte or as JSON; its URL."""
    with ExitStack() as held:

        def start(
            body: Any,
            status: int = 200,
            *,
            headers: Mapping[str, str] = MappingProxyType({}),
            heard: list[str] | None = None,
        ) -> str:
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()

            class Handler(http.server.BaseHTTPRequestHandler):
                def do_POST(self) -> None:
                    if heard is not None:
                        heard.append(self.path)
                    self.rfile.read(int(self.headers.get("Content-Length", 0)))
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(raw)))
                    self.end_headers()
                    self.wfile.write(raw)

                do_GET = do_POST

                def log_message(self, *_: Any) -> None:
                    pass

            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            held.callback(server.server_close)
            held.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_address[1]}"

        yield start


@pytest.mark.parametrize(
    "body", [b"<html>", b"", b"[" * 100_000, {"data": 1}, {"data": {"result": {"a": 1}}}, [], b"\xff"]
)
def test_who_is_no_prometheus_is_told_so(lying: Any, body: Any) -> None:
    with pytest.raises(FleetError, match="not one of Prometheus"):
        Prometheus(lying(body)).look(NOW)


def test_a_refusal_is_told(lying: Any) -> None:
    with pytest.raises(FleetError, match="answers 401"):
        Prometheus(lying({}, 401)).look(NOW)


def test_one_that_is_away_or_slow_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(FleetError, match="does not answer"):
            Prometheus(url, deadline=0.3).look(NOW)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # so that nobody else is there
        with pytest.raises(FleetError, match="does not answer"):
            Prometheus(f"http://127.0.0.1:{deaf.getsockname()[1]}").look(NOW)


@pytest.mark.parametrize(
    ("begins", "goes_on"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
    ],
)
def test_one_that_says_something_now_and_then_is_not_waited_for(begins: bytes, goes_on: bytes) -> None:
    """Each byte is in time; all of them are not."""
    ended = threading.Event()

    def drip(listening: socket.socket) -> None:
        with suppress(OSError):
            connection, _ = listening.accept()
            with connection:
                connection.sendall(begins)
                while not ended.wait(0.05):
                    connection.sendall(goes_on)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=drip, args=(listening,), daemon=True).start()
        told: list[str] = []

        def ask() -> None:
            try:
                Prometheus(f"http://127.0.0.1:{listening.getsockname()[1]}", deadline=0.4).look(NOW)
            except FleetError as error:
                told.append(str(error))

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(PATIENCE)
        ended.set()
    assert told, "it still waits"
    assert told[0].endswith("does not answer: it is too slow")


@pytest.mark.parametrize("status", [302, 308])
def test_who_sends_elsewhere_is_not_followed_and_the_address_is_said(lying: Any, status: int) -> None:
    """What is asked would be lost on the way, and the password might go to another server."""
    asked: list[str] = []
    other = lying({"data": {"result": []}}, heard=asked)
    url = lying({}, status, headers={"Location": f"{other}/p/api/v1/query?a=b"})
    with pytest.raises(FleetError) as raised:
        Prometheus(url).look(NOW)
    assert str(raised.value) == f"Prometheus at {url} redirects to another address: give {other}/p"
    nowhere = lying({}, status, headers={"Location": "/login\x1b[2J"})
    with pytest.raises(FleetError, match=r"redirects to another address: give /login\\x1b\[2J"):
        Prometheus(nowhere).look(NOW)
    assert asked == []


@pytest.mark.parametrize(
    "url",
    [
        "",
        "prometheus:9090",
        "file:///etc/passwd",
        "ftp://x",
        "http://",
        "http://x:abc",
        "http://x:99999",
        "http://[::1",
    ],
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(FleetError, match="URL"):
        Prometheus(url)


def test_an_address_of_ipv6_and_a_password_that_goes_to_that_server_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[urllib.request.Request] = []

    def urlopen(request: urllib.request.Request, **_: object) -> object:
        asked.append(request)
        raise OSError("away")

    monkeypatch.setattr("urllib.request.OpenerDirector.open", lambda self, request, **_: urlopen(request))
    with pytest.raises(FleetError, match="away"):
        Prometheus("http://me:secret@[::1]:9090/p/").look(NOW)
    assert asked[0].full_url == "http://[::1]:9090/p/api/v1/query"
    assert "Authorization" not in asked[0].headers, "urllib hands these on to whom a redirect names"
    assert asked[0].unredirected_hdrs["Authorization"].startswith("Basic ")


def test_samples_that_lie_are_left_out(lying: Any) -> None:
    odd = [
        {"metric": {"Hostname": "n1\x1b[2J", "pipe_dir": "/p", "state": "ok"}, "value": [1, "2"]},
        {"metric": {"Hostname": "n2"}, "value": [1, "NaN"]},
        {"metric": {"Hostname": "n3"}, "value": [1, "1e300"]},
        {"metric": {"Hostname": "n4"}, "value": None},
        {"metric": {"Hostname": "n5"}, "value": [1, "-1"]},
        {"metric": {"Hostname": "n6"}, "value": [1, 10**400]},
        {"metric": {"Hostname": "n7"}, "value": [10**400, "1"]},
        {"metric": {"Hostname": "n8"}, "value": [math.inf, "1"]},
        {"metric": 5, "value": [1, "1"]},
        "x",
        None,
    ]
    nodes = Prometheus(lying({"data": {"result": odd}})).look(NOW).nodes
    assert [node.name for node in nodes] == ["n1\\x1b[2J"]
    (late,) = (
        Prometheus(lying({"data": {"result": [{"metric": {"Hostname": "n"}, "value": [1, "1e17"]}]}})).look(NOW).nodes
    )
    assert late.read_at == NOW
    assert as_json(NODE, late, View())["read_at"]


@pytest.mark.parametrize("when", [math.inf, -math.inf, math.nan, 10**400, "1e400", None])
def test_times_that_lie_are_left_out_of_a_history(lying: Any, when: object) -> None:
    for values in ([[when, "1"], [NOW, "7"]], when):
        told = Prometheus(lying({"data": {"result": [{"metric": {}, "values": values}]}})).history("n", 3600)
        assert {value for line in told.values() for value in line} <= {None, 7.0}


@pytest.mark.parametrize("number", [10**400, -1, 1 << 62, True, 1.5, "9"])
def test_a_number_that_cannot_be_is_not_known(number: object) -> None:
    names = ("contexts", "context_limit", "memory_used", "memory_total", "outside_processes")
    told = {"daemons": [], "devices": [dict.fromkeys(names, number)], "problems": []}
    node = from_status("n", told, NOW)
    assert (node.contexts, node.memory_used, node.outside) == (None, None, None)
    assert "—" in " ".join(each.text(node, View()) for each in NODE.fields if each.row is not None)
    assert as_json(NODE, node, View())["memory_used"] is None


def labelled(value: float = 1, **labels: str) -> dict[str, Any]:
    return {"metric": labels, "value": [NOW, str(value)]}


class Told(Prometheus):
    """Answers by the beginning of the question."""

    def __init__(self, job: str = "mpstui", **answers: list[Any]) -> None:
        super().__init__("http://x", job)
        self.answers, self.asked = answers, list[str]()

    def ask(self, what: str, values: Any) -> list[Any]:
        self.asked.append(values["query"])
        known = {
            "clients": "(mps_clients)",
            "up": "count by (job) (up)",
            "down": "up == 0",
            "gone": "max_over_time",
            "problems": "mps_problems",
            "simulated": "mps_node_info",
            "up_daemons": "mps_daemon_up",
            "states": "mps_daemon_state ==",
        }
        name = next((name for name, part in known.items() if part in values["query"]), "")
        found = self.answers.get(name, [])
        if "fails" in found:
            raise FleetError("Prometheus answers 422 Unprocessable Entity")
        return found


LIVE = labelled(3, job="gpus", instance="10.0.0.1:9936", Hostname="n1")
GONE = labelled(NOW - 90, job="gpus", instance="10.0.0.2:9936", Hostname="n2")
DOWN = [
    labelled(0, job="gpus", instance="10.0.0.2:9936"),
    labelled(0, job="node", instance="10.0.0.3:9100"),
]
JOBS = [labelled(2, job="gpus"), labelled(1, job="node")]


def test_a_wrong_job_is_said_and_hides_no_node_that_was_seen() -> None:
    server = Told(job="gpu", clients=[LIVE], gone=[GONE], down=DOWN, up=JOBS)
    found = server.look(NOW)
    assert {node.name: node.state for node in found.nodes} == {"n1": "ABSENT", "n2": "NO ANSWER"}
    (note,) = found.notes
    assert "job “gpu”" in note
    assert "jobs seen: gpus." in note
    assert "node" not in note.partition(":")[2].partition(".")[0].split()
    assert Told(job="gpus", clients=[LIVE], gone=[GONE], down=DOWN, up=JOBS).look(NOW).notes == []
    (alone,) = Told(job="x", up=JOBS).look(NOW).notes
    assert "jobs seen: gpus, node." in alone
    (none,) = Told(job="x").look(NOW).notes
    assert "jobs seen: none." in none


def test_a_node_that_does_not_answer_keeps_its_name_and_says_since_when() -> None:
    server = Told(job="gpus", clients=[LIVE], gone=[GONE], down=DOWN, up=JOBS)
    node = server.look(NOW).nodes[0]
    assert (node.name, node.state, node.silent_since) == ("n2", "NO ANSWER", NOW - 90)
    assert node.detail == f"its exporter has not answered Prometheus since {clock(NOW - 90)}"
    asked = len([each for each in server.asked if "max_over_time" in each])
    server.look(NOW)
    assert len([each for each in server.asked if "max_over_time" in each]) == asked, "asked once for each death"


def test_one_that_prometheus_cannot_tell_of_keeps_the_name_that_was_seen_here() -> None:
    server = Told(job="gpus", clients=[LIVE], up=JOBS)
    server.look(NOW)
    server.answers = {"down": [labelled(0, job="gpus", instance="10.0.0.1:9936")], "gone": ["fails"], "up": JOBS}
    found = server.look(NOW)
    assert [(node.name, node.state) for node in found.nodes] == [("n1", "NO ANSWER")]
    assert "422" in found.notes[0]
    found = server.look(NOW)
    assert [node.name for node in found.nodes] == ["n1"], "and goes on keeping it"


def test_a_node_whose_exporter_has_moved_answers() -> None:
    moved = labelled(NOW - 90, job="gpus", instance="10.0.0.2:9936", Hostname="n1")
    (node,) = Told(job="gpus", clients=[LIVE], gone=[moved], down=DOWN, up=JOBS).look(NOW).nodes
    assert (node.name, node.clients) == ("n1", 3)


def test_a_problem_from_prometheus_has_the_words_that_the_program_has() -> None:
    place = {"job": "mpstui", "instance": "n1:9936", "Hostname": "n1"}
    kinds = [("error", "fault"), ("warning", "fault"), ("info", "outdated"), ("x", "pending"), ("warning", "new\x1b")]
    told = [labelled(2, **place, severity=severity, code=code) for severity, code in kinds]
    (node,) = Told(problems=told, up=[labelled(1, job="mpstui")]).look(NOW).nodes
    fault, claimed, unknown, outdated, pending = node.problems
    assert fault.text == "A fatal GPU fault; new clients are refused until the last client hit has ended. (2 of them)"
    assert fault.remedy == "End the clients hit by it: their work is lost already."
    assert claimed.remedy.startswith("End no process until the daemon itself")
    assert outdated.remedy == "Restart the clients that are to get the new limits."
    assert pending.text
    assert "“new\\x1b”" in unknown.text
    assert all(each.text.isprintable() and each.remedy for each in node.problems)


@pytest.mark.parametrize("codes", [("bridge", "fault"), ("fault", "bridge")])
def test_the_worst_problem_stands_first_whatever_its_code(codes: tuple[str, str]) -> None:
    """Prometheus tells of them by their code, a node as it likes."""
    severity = {"bridge": "info", "fault": "error"}
    place = {"job": "mpstui", "instance": "n1:9936", "Hostname": "n1"}
    told = [labelled(1, **place, severity=severity[code], code=code) for code in codes]
    (node,) = Told(problems=told, up=[labelled(1, job="mpstui")]).look(NOW).nodes
    assert [each.code for each in node.problems] == ["fault", "bridge"]
    said = [{"severity": severity[code], "code": code, "text": code, "remedy": ""} for code in codes]
    many = [{"severity": "info", "code": str(n), "text": "", "remedy": ""} for n in range(120)]
    status = {"daemons": [], "devices": [], "problems": many + said}
    assert from_status("n1", status, NOW).problems[0].code == "fault", "behind more than are kept"


def test_a_simulated_node_is_one_from_prometheus_too() -> None:
    """It was counted among the real ones; and which one it is was said nowhere."""
    place = {"job": "gpus", "instance": "10.0.0.1:9936", "Hostname": "n1"}
    told = Told(job="gpus", clients=[LIVE], simulated=[labelled(1, **place)], up=JOBS).look(NOW)
    (node,) = told.nodes
    assert node.simulated
    assert summary(told.nodes).endswith(" · 1 SIMULATED")
    assert as_json(NODE, node, View())["simulated"] is True
    (row,) = [each for each in NODE.fields if each.id == "detail"]
    assert row.text(node, View()) == "SIMULATED"
    assert row.text(replace(node, detail="bob waits"), View()) == "SIMULATED · bob waits"
    assert row.text(replace(node, simulated=False), View()) == ""
    assert NodeFilter("simulated").leaves(node)
    (real,) = Told(job="gpus", clients=[LIVE], up=JOBS).look(NOW).nodes
    assert not real.simulated


def test_the_documentation_counts_what_prometheus_is_asked() -> None:
    """It said fifteen, and there were sixteen."""
    server = Told(job="gpus", clients=[LIVE], up=JOBS)
    server.look(NOW)
    page = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text()
    assert f"**Prometheus** is asked {len(server.asked)} questions at each look" in page


def test_where_no_daemon_runs_nobody_is_known_to_wait() -> None:
    """Over ssh that was not known, and from Prometheus it was 0."""
    place = {"job": "gpus", "instance": "10.0.0.1:9936", "Hostname": "n1", "pipe_dir": "/p"}
    for state, pending in (("stale", None), ("ok", 0)):
        (node,) = Told(job="gpus", states=[labelled(1, **place, state=state)], up=JOBS).look(NOW).nodes
        assert (node.daemons, node.pending) == ({"/p": state}, pending)


def test_two_exporters_of_one_name_are_said_and_their_counts_not_mixed() -> None:
    other = labelled(40, job="gpus", instance="10.0.0.9:9936", Hostname="n1")
    for clients in ([LIVE, other], [other, LIVE]):
        (node,) = Told(job="gpus", clients=clients, up=JOBS).look(NOW).nodes
        assert node.clients == 3
        assert node.detail == ("2 exporters use this name (10.0.0.1:9936, 10.0.0.9:9936): the counts are of the first")
    again = labelled(3, job="node", instance="10.0.0.1:9936", Hostname="n1")
    (node,) = Told(job="gpus", clients=[LIVE, again], up=JOBS).look(NOW).nodes
    assert not node.detail, "one that two jobs scrape"


def test_every_problem_that_the_program_can_show_has_words_without_the_node() -> None:
    """Read from the source: a kind that is new there is new in the table."""
    import mpstui.observe.problems as module

    used: set[tuple[str, str]] = {(severity, f"daemon_{health}") for health, severity in module._SEVERITY.items()}
    for call in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            assert call.func.id != "Problem", "made by problem(), which has the words of its code"
            if call.func.id == "problem":
                severities = [each.value for each in ast.walk(call.args[0]) if isinstance(each, ast.Constant)]
                code = call.args[1]
                if isinstance(code, ast.Constant):
                    used |= {(str(severity), str(code.value)) for severity in severities}
    known = {(severity, code) for code, kinds in KINDS.items() for severity in kinds}
    assert used == known
    assert len(used) > 20


needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="Prometheus is not installed (apt-get install prometheus)",
)


def series(nodes: int, end: float) -> str:
    """Ten minutes of so many nodes, as a recording: one in FAULT, one blocked, one held, one whose exporter is away."""
    lines: dict[str, list[str]] = {}
    for number in range(nodes):
        label = "hostname" if number == 12 else "Hostname"
        labels = f'{label}="gpu-{number:04}",instance="10.0.{number // 256}.{number % 256}:9936",job="mpstui"'
        state = {7: "blocked", 8: "held"}.get(number, "ok")
        for at in (end - 1200, end - 600, end - 300, end - 15):
            for metric, more, value in (
                ("mps_clients", ',user="alice",state="ACTIVE"', number % 48),
                ("mps_daemon_state", f',pipe_dir="/tmp/mps_0",state="{state}"', 1),
                ("mps_servers", ',user="root",state="FAULT"', int(number == 3)),
                ("mps_gpu_contexts", ',gpu="0"', number % 48),
                ("mps_gpu_contexts_limit", ',gpu="0"', 48),
                ("mps_last_reading_timestamp_seconds", "", at),
                ("mps_nvml_up", "", 1),
                ("up", "", int(number != 5 or at <= end - 600)),
            ):
                if not (number == 5 and metric != "up" and at > end - 600):
                    lines.setdefault(metric, []).append(f"{metric}{{{labels}{more}}} {value} {at}")
    return "".join("".join(f"{line}\n" for line in found) for found in lines.values()) + "# EOF\n"


@needs_prometheus
def test_a_thousand_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    end = round(time.time())
    (tmp_path / "series").write_text(series(1000, end))
    blocks = ["promtool", "tsdb", "create-blocks-from", "openmetrics", tmp_path / "series", tmp_path / "data"]
    subprocess.run(blocks, check=True, capture_output=True, timeout=PATIENCE)
    (tmp_path / "prometheus.yml").write_text("{}")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    command.append(f"--web.listen-address=127.0.0.1:{port}")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        try:
            url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + PATIENCE
            while True:
                try:
                    urllib.request.urlopen(f"{url}/-/ready", timeout=5).read()
                    break
                except OSError:
                    assert time.monotonic() < deadline
                    time.sleep(0.1)  # it starts
            assert main(["fleet", "--prometheus", url, "--json"]) == 0
            printed = json.loads(capsys.readouterr().out)
            told = printed["nodes"]
            assert main(["fleet", "--prometheus", url, "--json", "--job", "gpus"]) == 0
            wrong = capsys.readouterr()
            history = Prometheus(url).history("gpu-0011", 1200)
            other = Prometheus(url).history("gpu-0012", 1200)
        finally:
            child.terminate()
    assert len(told) == 1000
    worst = [(node["name"], node["state"]) for node in told[:5]]
    assert worst[:4] == [
        ("gpu-0003", "FAULT"),
        ("gpu-0007", "BLOCKED"),
        ("gpu-0005", "NO ANSWER"),
        ("gpu-0008", "HELD"),
    ]
    assert worst[4][1] == "ok"
    assert printed["notes"] == []
    died = datetime.fromisoformat({node["name"]: node["silent_since"] for node in told}["gpu-0005"])
    assert died.timestamp() == end - 600
    assert "jobs seen: mpstui." in wrong.err
    assert [node["name"] for node in json.loads(wrong.out)["nodes"]] == [node["name"] for node in told]
    assert {node["name"]: node["clients"] for node in told}["gpu-0011"] == 11
    assert {value for value in history["clients"] if value is not None} == {11.0}
    assert {value for value in other["clients"] if value is not None} == {12.0}, "by DCGM's other label"


# The command line.


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--hosts=-x"], 2, "name of a host"),
        (["--hosts", ""], 2, "name of a host"),
        (["--prometheus", ""], 2, "URL"),
        (["--ssh-config-pattern", "x", "--ssh", "ssh -F"], 2, "option -F requires argument"),
        (
            ["--prometheus", "http://me:secret@127.0.0.1:1/p"],
            4,
            "at http://127.0.0.1:1/p does not answer: Connection refused\n",
        ),
        (["--hosts", "a", "--open", "ssh x"], 2, "needs {host}"),
        (["--hosts", "a", "--ssh", "'"], 2, "--ssh"),
        (["--prometheus", "x"], 2, "URL"),
        (["--prometheus", "http://127.0.0.1:1"], 4, "does not answer"),
        (["--hosts", "a", "--ssh", "false"], 4, "no node answers"),
    ],
)
def test_a_mistake_is_a_sentence(
    arguments: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        ended = main(["fleet", "--once", *arguments])
    except SystemExit as error:
        ended = int(error.code or 0)
    assert (ended, said in capsys.readouterr().err) == (status, True)


def test_a_host_is_a_row_from_the_beginning_and_then_what_it_was_until_it_answers_again() -> None:
    options = build_parser("fleet").parse_args(["fleet", "--hosts", "a,b", "--ssh", "false"])
    look, told = looking(options, None), list[FleetNode]()
    for _ in range(2):
        asyncio.run(look(told.append))
    assert [(node.name, node.state) for node in told[:2]] == [("a", "NOT KNOWN"), ("b", "NOT KNOWN")]
    assert {node.detail for node in told[:2]} == {"no answer yet"}, "eight at a time are asked: not that it was"
    assert sorted((node.name, node.state) for node in told[2:]) == [("a", "NO ANSWER")] * 2 + [("b", "NO ANSWER")] * 2


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("sshd") is None, reason="needs root and an sshd (openssh-server)")
def test_three_nodes_over_a_real_sshd(tmp_path: Path) -> None:
    os.makedirs("/run/sshd", exist_ok=True)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True, timeout=60)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "sshd").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host\nAuthorizedKeysFile {tmp_path}/user.pub\n"
        f"StrictModes no\nUsePAM no\nPermitRootLogin yes\nAcceptEnv CUDA_MPS_PIPE_DIRECTORY\nPidFile none\n"
    )
    sshd = shutil.which("sshd") or ""
    with ExitStack() as held:
        nodes = [held.enter_context(simulated_node()) for _ in range(3)]
        for number, node in enumerate(nodes):
            for _ in range(number):
                node.spawn()
        hosts = "".join(
            f"Host n{number}\n SetEnv CUDA_MPS_PIPE_DIRECTORY={node.pipe_dir}\n" for number, node in enumerate(nodes)
        )
        (tmp_path / "config").write_text(
            f"{hosts}Host away\n Port 1\nHost *\n HostName 127.0.0.1\n Port {port}\n User root\n"
            f" IdentityFile {tmp_path}/user\n IdentitiesOnly yes\n StrictHostKeyChecking no\n"
            f" UserKnownHostsFile {tmp_path}/known\n LogLevel ERROR\n"
        )
        child = subprocess.Popen([sshd, "-D", "-e", "-f", tmp_path / "sshd"], stderr=subprocess.DEVNULL)
        held.callback(child.wait, 60)
        held.callback(child.terminate)
        command = [
            sys.executable, "-m", "mpstui", "fleet", "--hosts", "n0,n1,n2,away", "--json", "--deadline", "120",
            "--ssh", f"ssh -F {tmp_path}/config", "--command", f"{sys.executable} -m mpstui status --json",
        ]  # fmt: skip
        told = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE)
    assert told.returncode == 0, told.stderr
    found = {node["name"]: node for node in json.loads(told.stdout)["nodes"]}
    assert [found[f"n{number}"]["clients"] for number in range(3)] == [0, 1, 2], told.stdout
    assert {found[f"n{number}"]["state"] for number in range(3)} == {"ok"}
    assert found["away"]["state"] == "NO ANSWER"
    assert "refused" in found["away"]["detail"]


def test_what_no_node_tells_is_no_number_above_them() -> None:
    """A node that does not answer, alone behind a filter, had "0 clients" above it."""
    away, one = FleetNode("a", "NO ANSWER"), FleetNode("b", "ok", clients=1)
    assert summary([away]) == "1 node: 1 NO ANSWER · — clients"
    assert summary([away, one]) == "2 nodes: 1 NO ANSWER, 1 ok · ≥ 1 client", "the other may have some"
    none = FleetNode("c", "ABSENT", daemons={"/p": "absent"})
    assert summary([none, one]) == "2 nodes: 1 ABSENT, 1 ok · 1 client"
    assert summary([]) == "0 nodes: none · 0 clients"
