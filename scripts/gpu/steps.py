"""The steps of the check. Each starts a node of its own, works on it, and records what came back."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from functools import partial
from pathlib import Path

import panel
import scraped
import screendrills
from contract.harness import End
from drive import Screen
from node import Client, Node, Setting, log_time
from report import Report, milliseconds

ROOT = Path(__file__).resolve().parents[2]


def contract(report: Report, setting: Setting) -> None:
    """The contract suite on the real daemon."""
    results = setting.out / "contract.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "tests/contract",
        "-p",
        "no:cacheprovider",
        "-rs",
        f"--junitxml={results}",
    ]
    done = subprocess.run(command, cwd=ROOT, check=False)
    suite = ElementTree.parse(results).getroot().find("testsuite")
    assert suite is not None
    counts = {name: int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")}
    results.unlink()
    report.value("contract", counts)
    report.check(
        "the contract suite passes", done.returncode == 0 and counts.get("tests", 0) > 0, f"exit {done.returncode}"
    )


def tui(report: Report, setting: Setting) -> None:
    """Each of the three commands, done from its keys beside four clients and checked from outside."""
    with setting.node("tui") as node:
        clients = [node.client("idle"), node.client("busy"), node.client("idle")]
        victim = node.client("busy")
        server = node.server()
        with Screen(node.pipe_dir) as screen:
            everybody = [client.pid for client in [*clients, victim]]
            report.attempt("the screen shows the clients", lambda: screen.wait_clients(everybody))
            report.value("seconds until it showed them", round(time.monotonic() - screen.started, 2))
            (setting.out / "screen-tui.txt").write_text(screen.text)
            for name, key, value, scope, above, question, wanted in (
                ("threads of the server", "l", "25", server, 1, f"get_active_thread_percentage {server}", "25.0"),
                ("threads by default", "l", "50", None, 1, "get_default_active_thread_percentage", "50.0"),
                ("memory of the server", "m", "2G", server, 2, f"get_device_pinned_mem_limit {server} 0", "2G"),
                ("memory by default", "m", "3G", None, 2, "get_default_device_pinned_mem_limit 0", "3G"),
            ):
                work = partial(screen.set_limit, key, value, scope, above)
                report.value(f"{name}: the screen said", report.attempt(f"{name} from the keys", work))
                answer = node.control(question)
                report.check(f"{name}: the daemon says so", answer == wanted, f"{question} → {answer!r}")
            _terminate(report, screen, node, victim, clients)
            newcomer = node.client("idle")
            report.attempt("a new client is shown", lambda: screen.wait_clients([newcomer.pid]))
            (setting.out / "screen-tui-after.txt").write_text(screen.text)
            report.check("the screen is left with status 0", report.attempt("leaving", screen.leave) == 0)
            report.check("no process of the screen is left", not screen.descendants(), screen.descendants())


def _terminate(report: Report, screen: Screen, node: Node, victim: Client, others: list[Client]) -> None:
    screen.choose_client(victim.pid)
    said = report.attempt("terminate from the keys", lambda: screen.confirm("t", victim.pid, "Terminate"))
    report.value("terminate: the screen said", said)
    end = report.attempt("the terminated client ends", victim.ended)
    report.check("the client was told that it was terminated (810)", end == End(10, 810), end)
    connected = node.client_pids()
    report.check("it is no client any more", victim.pid not in connected)
    report.check("the other clients are connected still", {client.pid for client in others} <= connected)
    report.check("the other clients run on", all(client.running for client in others))
    screen.forget_choice()


def kill(report: Report, setting: Setting) -> None:
    """The safe kill of a client in a never-ending kernel beside three busy ones, and a bare kill -9 of another."""
    with setting.node("kill-safe") as node:
        neighbours = [node.client("busy") for _ in range(3)]
        victim = node.client("endless")
        with Screen(node.pipe_dir) as screen:
            screen.wait_clients([victim.pid])
            screen.choose_client(victim.pid)
            said = report.attempt(
                "safe kill from the keys", lambda: screen.confirm("K", victim.pid, "Terminate + kill")
            )
            report.value("safe kill: the screen said", said)
            report.value("safe kill: how the process ended", report.attempt("the process ends", victim.ended))
            screen.read_for(5)  # time for the harm that must not come
        running = _neighbours(report, "safe kill", node, neighbours)
        report.check("safe kill: all neighbours run on", running == len(neighbours), f"{running} of {len(neighbours)}")
        ends = [report.attempt("the neighbour ends", client.stop) for client in neighbours]
        report.check("safe kill: the neighbours saw no error", all(end == End(0, 0) for end in ends), ends)
    with setting.node("kill-bare") as node:
        neighbours = [node.client("busy") for _ in range(3)]
        victim = node.client("endless")
        report.value("bare kill -9: how the process ended", report.attempt("the process ends", victim.kill))
        ends = [report.attempt("the neighbour ends by itself", client.ended) for client in neighbours]
        running = _neighbours(report, "bare kill -9", node, neighbours)
        report.value("bare kill -9: how the neighbours ended", ends)
        report.check(
            "bare kill -9: it takes the neighbours down", running == 0 and all(e and e.error for e in ends), ends
        )


def _neighbours(report: Report, what: str, node: Node, neighbours: list[Client]) -> int:
    report.value(f"{what}: server", node.control(f"get_server_status {node.server()}"))
    return sum(client.running for client in neighbours)


def latency(report: Report, setting: Setting) -> None:
    """From the daemon's log line of a connect and of a fault until the screen shows it."""
    chance = random.Random(1)
    with setting.node("connect") as node, Screen(node.pipe_dir) as screen:
        logs = [node.log_dir / "control.log", node.log_dir / "server.log"]
        screen.wait_clients([node.client("idle").pid])
        connects: list[float] = []
        for _ in range(setting.repetitions):
            screen.read_for(chance.uniform(0.5, 1.6))
            client, seen = screen.wait_newcomer(node.launch("idle"), 10)
            logged = log_time(logs, f"CLIENT {client.pid} ") or log_time(logs, f"{{PID: {client.pid},")
            if logged is not None:
                connects.append(seen - logged)
        _judge(report, "connect to screen", connects)

    faults: list[float] = []
    told: list[float] = []
    with setting.node("fault") as node, Screen(node.pipe_dir) as screen:
        log = node.log_dir / "server.log"
        for _ in range(setting.repetitions):
            # The neighbour is idle: it notices the fault when it is stopped, and until then the server stays in FAULT.
            clients = [node.client("fault"), node.client("idle")]
            server = node.server()
            screen.wait_clients([client.pid for client in clients])
            screen.wait_for(re.compile(rf"\b{server}\b[^\n]*ACTIVE"), 10)
            screen.read_for(chance.uniform(0.5, 1.6))
            offset, sent = log.stat().st_size, time.time()
            clients[0].fault()
            screen.wait_for(re.compile(rf"\b{server}\b[^\n]*FAULT"), 10)
            seen = time.time()
            told.append(seen - sent)
            logged = log_time([log], "encountered a fatal GPU error", offset)
            if logged is not None:
                faults.append(seen - logged)
            report.attempt("the faulting client ends", clients[0].ended)
            report.attempt("its neighbour ends", clients[1].stop)
        _judge(report, "fault to screen", faults)
        report.value("illegal store asked for until FAULT on the screen (ms)", milliseconds(told))


def _judge(report: Report, name: str, seconds: list[float]) -> None:
    if report.check(f"{name}: measured", bool(seconds)):
        result = milliseconds(seconds)
        report.value(f"{name} (ms)", result)
        report.check(f"{name}: p95 at most 500 ms", float(result["p95"]) <= 500, result["p95"])


def drills(report: Report, setting: Setting) -> None:
    """Each state of trouble, put right from the screen."""
    screendrills.drills(report, setting.out, setting.node)


def bench(report: Report, setting: Setting) -> None:
    """46 clients: mpstui beside nvitop, and what the daemon pays in a quiet minute."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import compare
    from pty_bench import Settings, measure, table

    quick = setting.quick
    with setting.node("bench") as node:
        started = time.monotonic()
        for first in range(0, compare.CLIENTS, 8):  # a few at a time: a server makes contexts one after the other
            numbers = range(first, min(first + 8, compare.CLIENTS))
            for client in [node.launch("busy" if number < 6 else "idle") for number in numbers]:
                client.result(60)
        report.value("seconds to start the clients", round(time.monotonic() - started, 1))
        watched = compare.Node(node.pipe_dir)
        report.check("46 clients are connected", len(node.client_pids()) == compare.CLIENTS, len(node.client_pids()))
        window = 5.0 if quick else 60.0
        binary, settle = " ".join(node.binary), 3.0 if quick else 10.0
        cost = report.attempt(
            "cost of watching", lambda: compare.quiet_cost(watched, binary, window, settle, polling=not quick)
        )
        report.value("cost of watching", cost)
        if cost:
            print(compare.cost_table(cost), flush=True)
            report.check("mpstui: no command in a quiet minute", cost["mpstui"]["commands"] == 0, cost["mpstui"])
        settings = Settings(window=10.0, settle=4.0) if quick else Settings(window=60.0)
        starts = 2 if quick else 4
        result = report.attempt("benchmark", lambda: compare.real(watched, settings, starts, 1, setting.nvitop))
        report.value("benchmark", result)
        restless = Settings(window=window / 2, keys=20)
        worst = (
            None
            if quick
            else report.attempt("worst case", lambda: measure([compare.restless(watched)], restless, 0, 1))
        )
        if worst:
            report.value("worst case", worst)
        for found in filter(None, (result, worst)):
            print(table({name: entry["median"] for name, entry in found["programs"].items()}), flush=True)
        if result:
            medians = {name: entry["median"] for name, entry in result["programs"].items()}
            print(compare.asked_table(medians), flush=True)


def shots(report: Report, setting: Setting) -> None:
    """Pictures of the screen and of the load panel on this node, as SVG, and a recording of the panel."""
    folder = setting.out / "shots"
    folder.mkdir(exist_ok=True)
    with setting.node("shots") as node:
        for mode in ("busy", "idle", "busy", "idle", "idle", "busy"):
            node.client(mode)
        node.control(f"set_active_thread_percentage {node.server()} 25")
        node.client("busy")
        script = [sys.executable, str(ROOT / "scripts" / "screenshots.py"), "--pipe-dir", str(node.pipe_dir)]
        done = subprocess.run(
            [*script, "--out", str(folder), "--prefix", "real-", "--svg-only"], check=False, timeout=240
        )
    with setting.node("panel") as node:
        report.attempt("the load panel from its keys", lambda: panel.tour(report, node, folder))
    pictures = sorted(path.name for path in folder.iterdir())
    report.check("pictures were made", done.returncode == 0 and bool(pictures), pictures)


STEPS: dict[str, tuple[Callable[[Report, Setting], None], int]] = {
    "contract": (contract, 240),
    "tui": (tui, 120),
    "kill": (kill, 150),
    "latency": (latency, 240),
    "drills": (drills, 240),
    "bench": (bench, 560),
    "exporter": (scraped.exporter, 110),
    "shots": (shots, 240),
}
"""Each step with its time limit in seconds."""
