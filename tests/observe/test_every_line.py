"""Logs of all drivers: each line gives an event or belongs to one, and nothing recorded is unknown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpstui.control.grammar import LogKind, LogParser
from mpstui.core.model import Event
from tests.observe.replay import DATA
from tests.observe.test_logparse import control, server

STAMPED = re.compile(rb"\[\d{4}-\d\d-\d\d [\d:.]{12} (\w[\w ]*?) +\d+\] .*")


def recordings() -> list[Path]:
    """Every file with lines of a log in it: logs, and transcripts that quote them."""
    return sorted(p for p in DATA.rglob("*.*") if p.suffix in {".log", ".txt"} and STAMPED.search(p.read_bytes()))


def quoted(path: Path) -> Iterator[tuple[LogKind, bytes]]:
    """The lines of a log in ``path``, each with the log that it is of."""
    for raw in path.read_bytes().split(b"\n"):
        if found := STAMPED.search(raw):
            yield ("control" if found[1] == b"Control" else "server"), found[0]


def read(path: Path) -> tuple[Counter[str], list[Event]]:
    """How many lines of ``path`` gave an event, belong to one, or neither; and the events."""
    parsers: dict[LogKind, LogParser] = {"control": LogParser("control"), "server": LogParser("server")}
    lines: Counter[str] = Counter()
    told: list[Event] = []
    for kind, raw in quoted(path):
        parser = parsers[kind]
        found = parser.feed(raw)
        told += found
        part = parser.part_of(raw)
        lines["event" if found else "part" if part is not None else "dropped"] += 1
        if not found and part is None:
            lines[f"dropped: {raw.decode()}"] += 1
    for parser in parsers.values():
        told += parser.flush()
    return lines, told


@pytest.mark.parametrize("path", recordings(), ids=lambda p: f"{p.parent.name}/{p.name}")
def test_each_line_gives_an_event_or_belongs_to_one(path: Path) -> None:
    lines, told = read(path)
    assert {name for name in lines if name.startswith("dropped")} == set()
    assert lines["event"] > 0
    assert lines["event"] + lines["part"] == len(list(quoted(path)))
    assert [event.detail for event in told if event.kind == "unknown"] == []


def test_the_recordings_are_those_of_all_drivers() -> None:
    names = " ".join(f"{path.parent.name}/{path.name}" for path in recordings())
    for driver in ("2013", "460", "2022", "470", "535", "550", "555", "h100", "h200"):
        assert driver in names
    assert sum(1 for path in recordings() for _ in quoted(path)) > 4_000


def test_a_part_belongs_to_a_kind_of_event_that_the_same_log_has() -> None:
    """Else a sentence would be called a part of something that never happened."""
    path = DATA / "h100/faults-server.log"
    parser, kinds = LogParser("server"), set()
    belongs = set()
    for _, raw in quoted(path):
        kinds |= {event.kind for event in parser.feed(raw)}
        if (part := parser.part_of(raw)) is not None:
            belongs.add(part)
    kinds |= {event.kind for event in parser.flush()}
    assert belongs
    assert belongs <= kinds


def kinds_of(name: str) -> list[str]:
    return [event.kind for event in read(DATA / name)[1]]


def test_driver_460() -> None:
    """Without PIDs, with prefixes, and with "Start" for both."""
    _, told = read(DATA / "older/460-control.log")
    assert [event.kind for event in told] == [
        "daemon_started",
        "client_pending",
        "server_starting",
        "server_ready",
        "session_opened",
        "command",
        "session_closed",
    ]
    assert kinds_of("older/460-server.log") == [
        "server_starting",
        "limit_set",
        "server_ready",
        "client_request",
        "client_request",
        "context_closed",
        "client_disconnected",
    ]


def test_driver_550_in_a_container() -> None:
    assert kinds_of("older/550-server.log") == [
        "server_starting",
        "limit_set",
        "limit_set",
        "server_ready",
        "client_request",
        "client_request",
        "context_active",
        "context_closed",
        "client_disconnected",
    ]
    failures = [event for event in read(DATA / "older/550-control.log")[1] if event.kind == "server_failed"]
    assert [event.server_pid for event in failures] == [92, 95]
    assert failures[0].detail == "server 92 met a fatal exception and shuts down"


def test_the_guides_oldest_lines() -> None:
    _, told = read(DATA / "older/2013-server.log")
    assert [(event.kind, event.pid) for event in told][:2] == [
        ("client_connected", 14781),
        ("client_disconnected", 14777),
    ]
    assert told[-1].kind == "server_failed"
    assert "64-bit" in told[-1].values["reason"]
    assert kinds_of("older/2013-control.log")[-2:] == ["connection_failed", "server_exited"]


def test_a_server_makes_its_contexts_anew_after_a_fault() -> None:
    told = [event for event in read(DATA / "guide/server-2022.log")[1] if event.kind == "server_context"]
    assert [(event.values["what"], event.devices) for event in told] == [
        ("destroyed", ("0",)),
        ("destroyed", ("1",)),
        ("created", ("0",)),
        ("created", ("1",)),
    ]
    assert told[0].detail == "server 11570 destroyed its context on server device 0"
    assert told[2].detail == "server 11570 created its context on server device 0 again"


@pytest.mark.parametrize(
    ("text", "kind", "detail"),
    [
        ("Unable to accept connection", "connection_failed", "the daemon could not accept a connection"),
        (
            "Unable to read new connection type information",
            "connection_failed",
            "the daemon could not read what a new connection wants",
        ),
        ("NEW DEBUGGEE 4711 from user 1000", "debuggee", "process 4711 of user 1000 starts under a debugger"),
        (
            "NEW DEBUGGEE 0 from user 7",
            "debuggee",
            "a process in another PID namespace of user 7 starts under a debugger",
        ),
        (
            "Server encountered a fatal exception. Shutting down",
            "server_error",
            "a server met a fatal exception and shuts down",
        ),
        (
            "Failed to create control pid file /tmp/nvidia-mps/nvidia-cuda-mps-control.pid",
            "daemon_error",
            "Failed to create control pid file /tmp/nvidia-mps/nvidia-cuda-mps-control.pid",
        ),
        (
            "Warning: Failed writing log files to directory [/x]. No logs will be available.",
            "daemon_error",
            "Warning: Failed writing log files to directory [/x]. No logs will be available.",
        ),
    ],
)
def test_sentences_of_the_daemon(text: str, kind: str, detail: str) -> None:
    (event,) = [e for line in control(text) for e in LogParser("control").feed(line)]
    assert (event.kind, event.detail) == (kind, detail)


@pytest.mark.parametrize("text", ["NEW DEBUGGEE 4711 from user 1000", "Unable to accept connection"])
def test_what_the_daemon_says_while_a_command_is_answered_is_no_answer(text: str) -> None:
    parser = LogParser("control")
    told = [e.kind for line in control("NEW UI", "Cmd:get_server_list", text, "634") for e in parser.feed(line)]
    assert told[-1] in {"debuggee", "connection_failed"}


@pytest.mark.parametrize(
    "text", ["MPS Server failed to create/open SHM segment.", "Volta MPS: Server failed to create/open SHM segment"]
)
def test_shared_memory_that_cannot_be_made_names_the_remedy(text: str) -> None:
    (event,) = LogParser("server").feed(server(text)[0])
    assert event.kind == "server_error"
    assert "open files" in event.detail


def test_a_block_tells_what_its_lines_tell() -> None:
    for path in recordings():
        if path.suffix == ".log":
            kind: LogKind = "control" if "control" in path.name else "server"
            one, all_ = LogParser(kind), LogParser(kind)
            data = path.read_bytes()
            alone = [e for line in data.splitlines() for e in one.feed(line)] + one.flush()
            assert [*all_.feed_all(data), *all_.flush()] == alone


def test_a_usual_line_ends_a_list_in_a_block_too() -> None:
    lines = server(
        "The following clients have a sticky error set:",
        "11641",
        "Client {PID: 5, Context ID: 0} connected",
        "7",
    )
    one, all_ = LogParser("server"), LogParser("server")
    alone = [e for line in lines for e in one.feed(line)]
    assert [e.kind for e in alone] == ["client_connected", "unknown"]
    assert list(all_.feed_all(b"\n".join(lines) + b"\n")) == alone


@pytest.mark.parametrize("context", [0, 1])
@pytest.mark.parametrize("what", ["connected", "exiting. Number of active client contexts is 0."])
def test_a_usual_line_tells_in_a_block_what_it_tells_alone(what: str, context: int) -> None:
    """A server of today ends context 0 with ``exit`` alone; one that says more means the same by it."""
    (line,) = server(f"Client {{PID: 5, Context ID: {context}}} {what}")
    assert list(LogParser("server").feed_all(line + b"\n")) == LogParser("server").feed(line)


def test_a_container_has_both_logs_in_one() -> None:
    """A daemon in the foreground, as Kubernetes runs it: what each of the two tells alone, in the order of time."""
    paths = DATA / "older/460-control.log", DATA / "older/460-server.log"
    lines = sorted((line for path in paths for line in path.read_bytes().splitlines()), key=lambda line: line[1:24])
    parser = LogParser("control")
    told, lost = [], []
    for line in lines:
        found = parser.feed(line)
        told += found
        if not found and parser.part_of(line) is None:
            lost.append(line)
    told += parser.flush()
    apart = Counter(event.raw for path in paths for event in read(path)[1])
    assert Counter(event.raw for event in told) == apart
    assert lost == []
    assert list(LogParser("control").feed_all(b"\n".join(lines) + b"\n")) == told


def test_a_fault_among_the_daemons_lines_is_one() -> None:
    raw = [
        *server("Server is handling a fatal GPU error.", "The following devices will be reset:", "0"),
        *control("Accepting connection...", "NEW CLIENT 5 from user 0: Server already exists"),
        *server("The following client process have a sticky error set:", "643", "Client process 643 disconnected"),
    ]
    parser = LogParser("control")
    told = [event for line in raw for event in parser.feed(line)]
    assert [event.kind for event in told] == ["client_admitted", "fatal_fault", "client_disconnected"]
    assert (told[1].devices, told[1].values["clients"]) == (("0",), "643")


def test_a_server_line_in_the_answer_to_ps_is_no_line_of_a_server() -> None:
    forged = server("Client {PID: 999, Context ID: 0} connected", "Server is handling a fatal GPU error.")
    parser = LogParser("control")
    raw = [*control("NEW UI", "Cmd:ps", "PID ID SERVER DEVICE NAMESPACE COMMAND"), *forged, *control("UI closed")]
    kinds = [event.kind for line in raw for event in parser.feed(line)]
    assert kinds == ["session_opened", "command", "session_closed"]
    assert not parser.gathers


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Failed to allocate a channel for client {PID: 5, Context: 1}", "error"),
        ("Unable to map the context of a client", "error"),
        ("Could not open /dev/nvidia-caps", "error"),
        ("Connection timed out", "error"),
        ("Errorless operation", "unknown"),
        ("Everything is well", "unknown"),
    ],
)
def test_trouble_that_nobody_has_seen_before_is_not_hidden(text: str, kind: str) -> None:
    (of_server,) = LogParser("server").feed(server(text)[0])
    (of_daemon,) = LogParser("control").feed(control(text)[0])
    assert (of_server.kind, of_daemon.kind) == (
        ("server_error", "daemon_error") if kind == "error" else ("unknown", "unknown")
    )
    assert of_server.detail == of_daemon.detail == text
