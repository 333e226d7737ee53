"""The exporter beside 46 clients: what a scrape takes, what it costs, that no command is sent; and a fault as an alert
of a real Prometheus, which is looked for on PATH and in MPSTUI_PROMETHEUS."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
from node import Node, Setting, log_time
from report import Report, milliseconds

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy/prometheus/mpstui.rules.yml"
CLIENTS = 46
EVERY = 2
"""Seconds between two scrapes of Prometheus."""


def exporter(report: Report, setting: Setting) -> None:
    """46 clients, an exporter, Prometheus; then a fault of one client more."""
    binary = os.environ.get("MPSTUI_PROMETHEUS") or shutil.which("prometheus")
    with setting.node("exporter") as node, contextlib.ExitStack() as held:
        started = time.monotonic()
        for first in range(0, CLIENTS, 8):  # a few at a time: a server makes contexts one after the other
            numbers = range(first, min(first + 8, CLIENTS))
            for client in [node.launch("busy" if number < 6 else "idle") for number in numbers]:
                client.result(60)
        report.value("seconds to start the clients", round(time.monotonic() - started, 1))
        url, process = held.enter_context(_exporter(node))
        _until(lambda: _sum(_scrape(url)[0], "mps_clients") == CLIENTS, 20)
        prometheus = held.enter_context(_prometheus(binary, url, setting.out)) if binary else None
        _rest(report, node, url, process, 8.0 if setting.quick else 20.0)
        if report.check("there is a Prometheus", prometheus is not None, binary) and prometheus is not None:
            _fault(report, node, url, prometheus)


def _rest(report: Report, node: Node, url: str, process: psutil.Process, seconds: float) -> None:
    """While nothing happens."""
    log = node.log_dir / "control.log"
    told = _settled(url, log)
    size, sessions = log.stat().st_size, _sum(told, "mps_control_sessions_total")
    spent = sum(process.cpu_times()[:2])
    begun, times, text = time.monotonic(), list[float](), ""
    while time.monotonic() - begun < seconds:
        text, took = _scrape(url)
        times.append(took)
        time.sleep(0.2)
    wall = time.monotonic() - begun
    used = sum(process.cpu_times()[:2]) - spent
    with log.open("rb") as file:
        file.seek(size)
        commands = re.findall(rb"Cmd:(.*)", file.read())
    result = milliseconds(times)
    report.value("clients of the exporter", _sum(text, "mps_clients"))
    report.value(
        "a scrape (ms)",
        {"count": result["count"], "median": result["median"], "p95": result["p95"], "most": max(times) * 1000},
    )
    report.value("bytes of a scrape, samples", [len(text), sum(line[:1] != "#" for line in text.splitlines())])
    report.value("the exporter's CPU %, scraped 5 times a second and by Prometheus too", round(100 * used / wall, 2))
    report.value("the exporter's RSS, MiB", round(process.memory_info().rss / 2**20, 1))
    report.check("a scrape takes at most 50 ms (p95)", float(result["p95"]) <= 50, result["p95"])
    report.check(f"no command in {wall:.0f} s", not commands, commands[:10])
    report.check("nor does the exporter say so", _sum(text, "mps_control_sessions_total") == sessions, sessions)
    spent, begun = sum(process.cpu_times()[:2]), time.monotonic()
    time.sleep(seconds / 2)
    used, wall = sum(process.cpu_times()[:2]) - spent, time.monotonic() - begun
    report.value(f"the exporter's CPU %, scraped every {EVERY} s", round(100 * used / wall, 2))


def _fault(report: Report, node: Node, url: str, prometheus: str) -> None:
    """An illegal store of one client among the others."""
    faulty = node.client("fault")
    _until(lambda: _sum(_scrape(url)[0], "mps_clients") == CLIENTS + 1, 20)
    asked = time.time()
    faulty.fault()
    alert = _until(lambda: _alert(prometheus), 25)
    seen = time.time()
    logged = log_time([node.log_dir / "server.log"], "encountered a fatal GPU error")
    answer = _ask(prometheus, "query", query='min_over_time(timestamp(mps_servers{state="FAULT"} > 0)[1m:100ms])')
    first = min(float(each["value"][1]) for each in answer["result"])
    report.value("from the store asked for to the alert firing (s)", round(seen - asked, 2))
    report.value("from the log's line to the scrape that has it (s)", logged and round(first - logged, 2))
    report.value("the alert", {"labels": alert["labels"], "annotations": alert["annotations"]})
    late = first - (logged or asked)
    report.check(f"the first scrape after the fault, each {EVERY} s, has it", late <= EVERY + 1, round(late, 2))
    report.check("it fires within one evaluation more", seen - (logged or asked) <= EVERY + 3, round(seen - asked, 2))
    command = alert["annotations"]["command"]
    report.check("it has the command to type", command == f"mpstui --pipe-dir {node.pipe_dir} end-lost", command)
    faults = _sum(_scrape(url)[0], "mps_faults_total")
    report.check("the exporter has counted one fault", faults == 1, faults)


def _alert(prometheus: str) -> Any:
    with contextlib.suppress(OSError):
        for each in _ask(prometheus, "alerts")["alerts"]:
            if each["labels"]["alertname"] == "MpsServerFault" and each["state"] == "firing":
                return each
    return None


def _settled(url: str, log: Path) -> str:
    """The scrape after which a daemon was asked nothing for five seconds."""
    deadline, since, before = time.monotonic() + 30, time.monotonic(), log.stat().st_size
    while time.monotonic() - since < 5:
        if time.monotonic() > deadline:
            raise TimeoutError("the daemon is asked again and again")
        if (size := log.stat().st_size) != before:
            since, before = time.monotonic(), size
        time.sleep(0.2)
    return _scrape(url)[0]


@contextlib.contextmanager
def _exporter(node: Node) -> Iterator[tuple[str, psutil.Process]]:
    command = [sys.executable, "-m", "mpstui", "exporter", "--listen", "127.0.0.1:0", "--pipe-dir", str(node.pipe_dir)]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert child.stderr is not None
        found = re.search(r"metrics at (\S+)", line := child.stderr.readline())
        assert found, line
        yield found[1], psutil.Process(child.pid)
    finally:
        _end(child)


def _end(child: subprocess.Popen[Any]) -> None:
    child.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(10)
    child.kill()
    child.wait()


@contextlib.contextmanager
def _prometheus(binary: str, url: str, out: Path) -> Iterator[str]:
    """Where its API is. It has the project's rules."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "prometheus.yml")
        config = {
            "global": {"scrape_interval": f"{EVERY}s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [
                {"job_name": "mpstui", "static_configs": [{"targets": [urllib.parse.urlsplit(url).netloc]}]}
            ],
        }
        file.write_text(json.dumps(config))  # JSON is YAML
        words = [
            f"--config.file={file}",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        with (out / "prometheus.log").open("w") as log:
            child = subprocess.Popen([binary, *words], stdout=log, stderr=log)
            try:
                _until(lambda: _ask(f"http://127.0.0.1:{port}", "query", query="up == 1")["result"], 30)
                yield f"http://127.0.0.1:{port}"
            finally:
                _end(child)


def _ask(prometheus: str, what: str, **values: str) -> Any:
    with urllib.request.urlopen(f"{prometheus}/api/v1/{what}?{urllib.parse.urlencode(values)}", timeout=10) as answer:
        return json.load(answer)["data"]


def _scrape(url: str) -> tuple[str, float]:
    """Its text, and the seconds that it took."""
    begun = time.monotonic()
    with urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
    return text, time.monotonic() - begun


def _sum(text: str, name: str) -> float:
    """Of all samples of that name."""
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(rf"{name}[{{ ]", line))


def _until(what: Callable[[], Any], seconds: float) -> Any:
    """What it answers, once it is something. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError):
            if found := what():
                return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(0.1)
