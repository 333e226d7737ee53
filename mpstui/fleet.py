"""Many nodes in one table: from Prometheus, or from each node over ssh.

What a node or a server says is a claim: bounded, printable, never a reason to do anything. A node is changed on the
node itself; ``mpstui status`` over ssh asks a daemon there what its logs do not tell.
"""

from __future__ import annotations

import asyncio
import fnmatch
import getopt
import glob
import http.client
import json
import math
import os
import re
import selectors
import signal
import socket
import stat
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, cast

from mpstui.core.cells import SEVERITY
from mpstui.core.late import dataclass
from mpstui.core.problems import words_of
from mpstui.core.requests import ExitStatus, Unable
from mpstui.core.text import UNKNOWN, error_text, format_size, path_text, plural, printable
from mpstui.fields import (
    FLAG,
    INTEGER,
    OBJECTS,
    SCHEMA,
    SIZE,
    TEXT,
    TEXTS,
    TIME,
    Column,
    Field,
    Text,
    Thing,
    Type,
    View,
)
from mpstui.system.own import find_program, own_path
from mpstui.system.parent import ended_with_us

T = TypeVar("T")
STATES: Final = (
    "FAULT", "BLOCKED", "NO ANSWER", "NOT STARTING", "HELD", "STALE", "OLD", "ERROR", "WARNING", "NOT KNOWN", "ABSENT",
    "ok",
)  # fmt: skip
"""The worst first. NO ANSWER: the node or its exporter. NOT KNOWN: a daemon has answered nobody so far. OLD: it
answers, and NVML has not for two minutes."""
OLD: Final = 120.0
DEADLINE: Final = 20.0
"""Seconds for one node over ssh, or one question to Prometheus."""
FOLLOWED: Final = 64
"""Hosts to which a connection is kept for their events; the others are asked from time to time."""
CALM: Final = 1.0
"""Seconds that more events are waited for before a host is asked."""
AT_ONCE: Final = 8
MOST: Final = 64 << 20
"""Bytes of one answer."""
NODES: Final = 20_000
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@%-]{0,252}")
"""Of a host for ssh: no option, no word of a shell."""


class FleetProblem(NamedTuple):
    """Something that a node's mpstui shows as a problem."""

    severity: str
    code: str
    text: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class FleetNode:
    """One node; what is not known is None."""

    name: str
    state: str = "ok"
    detail: str = ""
    """Why, in words."""
    clients: int | None = None
    pending: int | None = None
    outside: int | None = None
    contexts: int | None = None
    context_limit: int | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    daemons: Mapping[str, str] = field(default_factory=dict)
    """Pipe directory to state."""
    problems: tuple[FleetProblem, ...] = ()
    read_at: float | None = None
    """When the node was last read."""
    silent_since: float | None = None
    """When its exporter last answered, where it does not."""
    simulated: bool = False

    @property
    def rank(self) -> tuple[int, str]:
        """Sorts the worst first."""
        return (STATES.index(self.state) if self.state in STATES else 0, self.name)


class Fleet(NamedTuple):
    """All nodes, the worst first."""

    time: float
    nodes: Sequence[FleetNode]
    notes: Sequence[str] = ()
    """What the source is asked in vain for; sentences."""


_LARGEST: Final = 10**18
"""What a node or a Prometheus counts beyond that is none."""
_WORDS: Final = frozenset({"OK", "HELD", "BLOCKED", "STALE", "ABSENT"})
"""States of daemons; any other one is a later mpstui's, or not known there."""


class FleetError(Unable):
    """Why nothing is known of any node, or can be asked; one line."""


class PrometheusError(FleetError):
    """What it did instead of answering."""

    def __init__(self, why: str) -> None:
        super().__init__(why, ExitStatus.NO_ANSWER)


def judged(node: FleetNode, now: float, *, fault: bool = False, failures: bool = False) -> FleetNode:
    """With its state, by what is known of it."""
    words = {state.upper() for state in node.daemons.values()}
    severities = {problem.severity for problem in node.problems}
    if fault:
        state = "FAULT"
    elif "BLOCKED" in words and "daemon_quitting" not in {problem.code for problem in node.problems}:
        state = "BLOCKED"
    elif failures:
        state = "NOT STARTING"
    elif "HELD" in words:
        state = "HELD"
    elif "STALE" in words:
        state = "STALE"
    elif node.read_at is not None and now - node.read_at > OLD:
        state = "OLD"
    elif "error" in severities:
        state = "ERROR"
    elif "warning" in severities:
        state = "WARNING"
    elif words - _WORDS:
        state = "NOT KNOWN"  # a daemon runs, and nobody has had an answer from it that is understood here
    else:
        state = "ok" if "OK" in words else "ABSENT"
    first = min(node.problems, key=lambda problem: _urgency(problem.severity), default=None)
    told = "" if first is None else first.text or first.code.replace("_", " ")
    return replace(node, state=state, detail=node.detail or told)


_SEVERITIES: Final = ("error", "warning", "info")


def _urgency(severity: object) -> int:
    """Sorts the worst first, and what is none last."""
    return _SEVERITIES.index(severity) if severity in _SEVERITIES else len(_SEVERITIES)


# From Prometheus.

_BY: Final = "by (job, instance, Hostname, hostname)"
_OURS: Final = 'unless on (job, instance, Hostname, hostname, pipe_dir) mps_daemon_info{claimant!=""}'
"""Without daemons whose word is another user's than the exporter's: anybody runs one, and it is no state of the node.
An exporter of before tells it of none."""
_WINDOW: Final = "1d"
"""How long a node that does not answer is remembered by its series."""
_TARGETS: Final = 500
"""In one question."""
_SUMS: Final = {
    "clients": "mps_clients",
    "pending": "mps_clients_pending",
    "outside": "mps_gpu_outside_processes",
    "contexts": "mps_gpu_contexts",
    "context_limit": "mps_gpu_contexts_limit",
    "memory_used": "mps_gpu_memory_used_bytes",
    "memory_total": "mps_gpu_memory_total_bytes",
}


class Prometheus:
    """Asks one. ``url``: as far as, and without, ``/api/v1``; a name and a password may be in it."""

    def __init__(self, url: str, job: str = "mpstui", *, deadline: float = DEADLINE) -> None:
        try:
            parts = urllib.parse.urlsplit(url)
            port = "" if parts.port is None else f":{parts.port}"
        except ValueError:
            raise FleetError(f"{printable(url, 100)} is no URL; give one as http://prometheus:9090") from None
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise FleetError(f"{printable(url, 100)} is no URL; give one as http://prometheus:9090")
        where = (f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname) + port
        self._url = urllib.parse.urlunsplit((parts.scheme, where, parts.path.rstrip("/"), "", ""))
        self._login = None if parts.username is None else f"{parts.username}:{parts.password or ''}"
        self._job, self._deadline = job, deadline
        self._names: Mapping[tuple[str, str], str] = {}
        """What the node of a target, a job and an instance, was last called."""
        self._gone: dict[tuple[str, str], tuple[str | None, float | None]] = {}
        """The same of targets that do not answer, with the time; None where there is no series of mpstui's."""

    def ask(self, what: str, values: Mapping[str, str]) -> list[Any]:
        """The result of ``query`` or ``query_range``. Raises FleetError."""
        request = urllib.request.Request(  # noqa: S310 - http or https, as was checked
            f"{self._url}/api/v1/{what}", data=urllib.parse.urlencode(values).encode()
        )
        if self._login is not None:
            import base64

            # and of no other server that it may name
            request.add_unredirected_header("Authorization", "Basic " + base64.b64encode(self._login.encode()).decode())
        try:
            found = json.loads(_answer(request, self._deadline))
            result = found["data"]["result"]
        except urllib.error.HTTPError as error:
            if 300 <= error.code < 400 and (where := str(error.headers.get("Location") or "")):
                there = printable(where.partition("/api/v1/")[0], 200)
                raise PrometheusError(
                    f"Prometheus at {printable(self._url, 100)} redirects to another address: give {there}"
                ) from None
            raise PrometheusError(f"Prometheus answers {error.code} {printable(str(error.reason), 80)}") from None
        except (OSError, http.client.HTTPException) as error:
            reason: Any = getattr(error, "reason", error)
            text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
            raise PrometheusError(
                f"Prometheus at {printable(self._url, 100)} does not answer: {printable(text, 120)}"
            ) from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise PrometheusError("the answer is not one of Prometheus") from None
        if not isinstance(result, list):
            raise PrometheusError("the answer is not one of Prometheus")
        return result

    def look(self, now: float) -> Fleet:
        """Every node that it knows of. Raises FleetError."""
        found = _Found()

        def rows(expression: str) -> Iterable[tuple[dict[str, Any], Mapping[str, str], float]]:
            for labels, value in _samples(self.ask("query", {"query": expression})):
                if (node := found.of(labels)) is not None:
                    yield node, labels, value

        for name, metric in _SUMS.items():
            for node, labels, value in sorted(rows(f"sum {_BY} ({metric})"), key=lambda row: _target(row[1])):
                node.setdefault(name, int(value))  # of two exporters that use one name always the same one's
                node["told_by"].add(_target(labels)[1])
        for node, labels, _ in rows(f"mps_daemon_state == 1 {_OURS}"):
            node["daemons"][labels.get("pipe_dir", "")] = labels.get("state", "")
        for node, labels, _ in rows(f"mps_daemon_up == 1 {_OURS}"):
            node["daemons"].setdefault(labels.get("pipe_dir", ""), UNKNOWN)
        theirs = [
            *rows(
                'mps_daemon_state{state="ok"} == 1 and on (job, instance, Hostname, hostname, pipe_dir) '
                'mps_daemon_info{claimant!=""}'
            )
        ]
        for node, labels, _ in [each for each in theirs if not each[0]["daemons"]]:
            node["daemons"][labels.get("pipe_dir", "")] = "ok"
        for node, labels, value in rows("mps_problems > 0"):
            node["problems"][labels.get("severity", ""), labels.get("code", "")] = value
        for node, _, _ in rows(f'mps_servers{{state="FAULT"}} > 0 {_OURS}'):
            node["fault"] = True
        for node, _, _ in rows(f"mps_server_consecutive_start_failures >= 3 {_OURS}"):
            node["failures"] = True
        for node, _, value in rows(f"max {_BY} (mps_last_reading_timestamp_seconds)"):
            node["read_at"] = min(value, now)
        for node, _, _ in rows('mps_node_info{source="simulated"}'):
            node["simulated"] = True
        notes = self._silent(found, now)
        nodes = sorted((_made(name, told, now) for name, told in found.nodes.items()), key=lambda node: node.rank)
        return Fleet(now, nodes, notes)

    def _silent(self, found: _Found, now: float) -> list[str]:
        """The exporters that do not answer, by the names that their nodes had; what cannot be told of them."""
        notes = []
        jobs = [labels.get("job", "") for labels, _ in _samples(self.ask("query", {"query": "count by (job) (up)"}))]
        down = {_target(labels): None for labels, _ in _samples(self.ask("query", {"query": "up == 0"}))}
        self._gone = {target: told for target, told in self._gone.items() if target in down}
        try:
            asked = sorted((each for each in down if each not in self._gone), key=lambda each: each[0] != self._job)
            self._remember(asked[: 4 * _TARGETS], now)  # of more the rest at the next look
        except FleetError as error:
            notes.append(f"The names of the nodes that do not answer are not known: {error}.")
        seen = {job for job, _ in found.targets()}
        for job, instance in down:
            name, since = self._gone.get((job, instance), (None, None))
            if name is None and job != self._job:
                continue  # another program's, as far as is known
            seen |= {job} if name else set()
            name = name or self._names.get((job, instance)) or _host(instance)
            if found.answers(name, job, instance) or (node := found.node(name)) is None:
                continue  # its exporter answers elsewhere
            node["down"] = True
            node["since"] = max(since or 0.0, node.get("since") or 0.0) or None
        self._names = {**found.names, **{target: name for target, name in self._names.items() if target in down}}
        if self._job not in (seen or jobs):
            where = ", ".join(sorted(job or "(none)" for job in (seen or jobs))[:10]) or "none"
            notes.append(
                f"No series of mpstui for the job “{printable(self._job, 60)}”; jobs seen: {where}. A node whose "
                "exporter does not answer may be missing here: name its job with --job."
            )
        return notes

    def _remember(self, targets: Sequence[tuple[str, str]], now: float) -> None:
        """What the nodes of ``targets`` were last called, and when. Raises FleetError."""
        for at in range(0, len(targets), _TARGETS):
            some = targets[at : at + _TARGETS]
            which = json.dumps("|".join(dict.fromkeys(re.escape(instance) for _, instance in some)))
            query = f"max {_BY} (max_over_time(timestamp(mps_nvml_up{{instance=~{which}}})[{_WINDOW}:1m]))"
            told: dict[tuple[str, str], tuple[str | None, float | None]] = dict.fromkeys(some, (None, None))
            for labels, value in _samples(self.ask("query", {"query": query})):
                target = _target(labels)
                if target in told and value >= (told[target][1] or 0.0):
                    told[target] = (_name(labels) or _host(target[1]), min(value, now))
            self._gone.update(told)

    def history(self, node: str, seconds: float, points: int = 60) -> dict[str, list[float | None]]:
        """Clients, contexts and memory used of a node, from ``seconds`` ago to now. Raises FleetError."""
        end = time.time()
        by_name, by_place = json.dumps(node), json.dumps(f"{re.escape(node)}(:[0-9]+)?")
        labels = (
            f"Hostname={by_name}",
            f"hostname={by_name}",
            f'instance=~{by_place}, Hostname="", hostname=""',
        )
        told: dict[str, list[float | None]] = {}
        for name, metric in (
            ("clients", "mps_clients"),
            ("contexts", "mps_gpu_contexts"),
            ("memory", _SUMS["memory_used"]),
        ):
            step = max(1.0, seconds / points)
            values = {
                "query": f"sum({' or '.join(f'{metric}{{{match}}}' for match in labels)})",
                "start": str(end - seconds),
                "end": str(end),
                "step": str(step),
            }
            series = self.ask("query_range", values)
            line: list[float | None] = [None] * (points + 1)
            pairs = series[0].get("values") if series and isinstance(series[0], dict) else None
            for pair in pairs if isinstance(pairs, list) else ():
                value = _number(pair)
                if value is not None:
                    line[min(points, max(0, round((float(pair[0]) - end + seconds) / step)))] = value
            told[name] = line
        return told


class _Found:
    """What has been told in one look, by the names of the nodes."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.names: dict[tuple[str, str], str] = {}
        self._targets: dict[str, set[tuple[str, str]]] = {}

    def node(self, name: str) -> dict[str, Any] | None:
        """None where there are too many."""
        if name not in self.nodes and len(self.nodes) >= NODES:
            return None
        return self.nodes.setdefault(name, {"daemons": {}, "problems": {}, "told_by": set()})

    def of(self, labels: Mapping[str, str]) -> dict[str, Any] | None:
        """The node that a series is of."""
        target = _target(labels)
        if name := _name(labels):
            self.names[target] = name
        name = name or self.names.get(target) or _host(target[1])
        self._targets.setdefault(name, set()).add(target)
        return self.node(name)

    def targets(self) -> Iterable[tuple[str, str]]:
        for targets in self._targets.values():
            yield from targets

    def answers(self, name: str, job: str, instance: str) -> bool:
        """Whether there are series of it that come from elsewhere."""
        return bool(self._targets.get(name, set()) - {(job, instance)})


def _target(labels: Mapping[str, str]) -> tuple[str, str]:
    return labels.get("job", ""), labels.get("instance", "")


def _name(labels: Mapping[str, str]) -> str:
    return labels.get("Hostname") or labels.get("hostname") or ""


def _host(instance: str) -> str:
    return instance.rpartition(":")[0] or instance or "(no name)"


def _answer(request: urllib.request.Request, deadline: float) -> bytes:
    """What a server answers within ``deadline`` seconds, whatever it says until then; only that server. Raises OSError,
    TimeoutError, HTTPException, FleetError."""
    held, over = list[socket.socket](), threading.Event()

    class Plain(http.client.HTTPConnection):
        def connect(self) -> None:
            super().connect()
            held.append(self.sock.dup())
            if over.is_set():
                raise TimeoutError

    class Tls(http.client.HTTPSConnection, Plain):
        """Comes by Plain's before the two agree on a cipher."""

    class Http(urllib.request.HTTPHandler):
        def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Plain, req)

    class Https(urllib.request.HTTPSHandler):
        def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Tls, req)

    class Stays(urllib.request.HTTPRedirectHandler):
        """Who is led elsewhere takes no question along, and may not take a password."""

        def redirect_request(self, *_: Any) -> None:
            return None

    def end() -> None:
        over.set()
        for each in held:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(deadline, end)
    timer.daemon = True
    timer.start()
    try:
        opener = urllib.request.build_opener(Http, Https, Stays)
        with opener.open(request, timeout=deadline) as answer:
            raw = _read(answer, time.monotonic() + deadline)
    except (OSError, http.client.HTTPException, ValueError):
        if over.is_set():
            raise TimeoutError("it is too slow") from None
        raise
    finally:
        timer.cancel()
        for each in held:
            each.close()
    if over.is_set():
        raise TimeoutError("it is too slow")
    return raw


def _read(answer: Any, until: float) -> bytes:
    """All of it, in time; whoever sends a byte now and then is not waited for."""
    parts: list[bytes] = []
    size = 0
    while part := answer.read1(1 << 16):
        parts.append(part)
        size += len(part)
        if size > MOST:
            raise PrometheusError("the answer of Prometheus is too large")
        if time.monotonic() > until:
            raise TimeoutError("it is too slow")
    return b"".join(parts)


def _samples(result: Sequence[Any]) -> Iterable[tuple[dict[str, str], float]]:
    for each in result:
        if isinstance(each, dict) and isinstance(each.get("metric"), dict):
            value = _number(each.get("value"))
            labels = {str(k): printable(str(v), 255) for k, v in each["metric"].items()}
            if value is not None:
                yield labels, value


def _number(pair: Any) -> float | None:
    """The value of a time and a value; None where either is none."""
    try:
        when, value = float(pair[0]), float(pair[1])
    except (TypeError, ValueError, OverflowError, IndexError, KeyError):
        return None
    return value if math.isfinite(when) and 0 <= value < _LARGEST else None


def _made(name: str, told: Mapping[str, Any], now: float) -> FleetNode:
    node = FleetNode(
        name,
        daemons=told["daemons"],
        problems=tuple(
            _problem(severity, code, number)
            for (severity, code), number in sorted(told["problems"].items(), key=lambda each: _urgency(each[0][0]))
        ),
        read_at=told.get("read_at"),
        simulated="simulated" in told,
    )
    sums: dict[str, Any] = {key: told.get(key) for key in _SUMS}
    runs = any(state not in {"stale", "absent"} for state in told["daemons"].values())
    sums["pending"] = told.get("pending", 0 if runs else None)
    node = replace(node, **sums)
    if told.get("down"):
        since = told.get("since")
        text = "its exporter does not answer Prometheus"
        if since is not None:
            text = f"its exporter has not answered Prometheus since {clock(since)}"
        return replace(node, state="NO ANSWER", detail=text, silent_since=since)
    node = judged(node, now, fault="fault" in told, failures="failures" in told)
    if len(told["told_by"]) > 1:
        who = sorted(told["told_by"])
        more = f" and {len(who) - 3} more" if len(who) > 3 else ""
        twice = f"{len(who)} exporters use this name ({', '.join(who[:3])}{more}): the counts are of the first"
        node = replace(node, detail=f"{node.detail}; {twice}" if node.detail else twice)
    return node


def _problem(severity: str, code: str, number: float) -> FleetProblem:
    text, remedy = words_of(severity, code)
    return FleetProblem(severity, code, f"{text} ({number:.0f} of them)" if number > 1 else text, remedy)


def clock(when: float) -> str:
    """A time here, to the minute."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(when))
    except (OverflowError, ValueError, OSError):
        return UNKNOWN


# Over ssh.


def hosts_of(names: str) -> list[str]:
    """``a,b,c``. Raises FleetError where one is no name of a host."""
    hosts = list(dict.fromkeys(part.strip() for part in names.split(",") if part.strip()))
    wrong = next((host for host in hosts if _NAME.fullmatch(host) is None), None)
    if wrong is not None or not hosts:
        raise FleetError(f"“{printable(wrong or names, 60)}” is no name of a host")
    return hosts


_OPTIONS: Final = "46AaCfGgKkMNnqsTtVvXxYyB:b:c:D:E:e:F:I:i:J:L:l:m:O:o:P:p:Q:R:S:W:w:"
"""Of ssh, as getopt has them."""
_DEEP: Final = 16
"""Of files that include others: as ssh."""


def config_of(ssh: Sequence[str]) -> Path:
    """The user's configuration that such a command reads: the file behind ``-F``, otherwise ~/.ssh/config. Raises
    FleetError."""
    named = [at for at, word in enumerate(ssh) if word.rpartition("/")[2] == "ssh"]
    files = []
    try:
        found, _ = getopt.getopt(list(ssh[named[0] + 1 if named else 1 :]), _OPTIONS)
        files = [value for option, value in found if option == "-F"]
    except getopt.GetoptError as error:
        if named:
            raise FleetError(f"--ssh: {error}") from None  # otherwise a program with options of its own
    return Path(os.path.expanduser(files[-1] if files else "~/.ssh/config"))


def hosts_in_config(pattern: str, ssh: Sequence[str] = ("ssh",)) -> list[str]:
    """The hosts that the configuration of such an ssh names and ``gpu-*`` matches, those of the files that it includes
    too. Raises FleetError."""
    file = config_of(ssh)
    hosts = [
        name for name in dict.fromkeys(_named(file, 0)) if _NAME.fullmatch(name) and fnmatch.fnmatchcase(name, pattern)
    ]
    if not hosts:
        raise FleetError(f"no Host in {path_text(file)} matches “{printable(pattern, 60)}”")
    return hosts


def _named(file: Path, deep: int) -> Iterable[str]:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise FleetError(f"{path_text(file)} is no file")
            text = os.read(descriptor, 1 << 20).decode(errors="replace")
        finally:
            os.close(descriptor)
    except OSError as error:
        if deep:
            return  # as ssh does
        raise FleetError(f"{path_text(file)} cannot be read: {error_text(error)}") from None
    for line in text.splitlines():
        name, *rest = re.split(r"[\s=]+", line.strip(), maxsplit=1)
        words = rest[0].partition("#")[0].replace('"', "").split() if rest else []
        if name.lower() == "host":
            yield from words
        elif name.lower() == "include" and deep < _DEEP:
            for word in words:
                place = os.path.expanduser(word if word[:1] in {"/", "~"} else f"~/.ssh/{word}")
                for found in sorted(glob.glob(place)):
                    yield from _named(Path(found), deep + 1)


async def over_ssh(
    hosts: Sequence[str],
    tell: Callable[[FleetNode], None],
    *,
    ssh: Sequence[str] = ("ssh",),
    command: str = "mpstui status --json",
    deadline: float = DEADLINE,
) -> None:
    """Asks each host once, a few at a time, and tells of each as it answers; one that does not is told of too."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(host: str) -> None:
        async with turn:
            tell(await _status(host, ssh, command, deadline))

    await asyncio.gather(*(one(host) for host in hosts))


async def follow_over_ssh(
    hosts: Sequence[str],
    tell: Callable[[FleetNode], None],
    *,
    ssh: Sequence[str] = ("ssh",),
    command: str,
    events: str = "mpstui events --follow --json",
    deadline: float = DEADLINE,
    again: float = 30.0,
) -> None:
    """Keeps a connection to each host, and asks the host anew when an event has come over it: what it says is not
    looked at. Does not end by itself; whoever cancels it ends the connections. ``again``: seconds until the next try
    where a connection has ended."""
    turn = asyncio.Semaphore(AT_ONCE)
    # It uses a master that is there and is none itself: others' sessions would end with it.
    more = ("ServerAliveInterval=15", "ServerAliveCountMax=4", "ControlMaster=no")

    def start(words: Sequence[str]) -> subprocess.Popen[bytes]:
        null = subprocess.DEVNULL
        return subprocess.Popen(
            words, executable=find_program(words[0]), env=_environment(), stdin=null, stdout=subprocess.PIPE,
            stderr=null, start_new_session=True, preexec_fn=ended_with_us(),
        )  # fmt: skip

    async def one(host: str) -> None:
        child = start(_words(host, ssh, events, deadline, more))
        output = asyncio.StreamReader()
        pipe = None
        try:
            pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(output), child.stdout
            )
            while await output.read(1 << 16):
                await asyncio.sleep(CALM)
                async with turn:
                    tell(await _status(host, ssh, command, deadline))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # its group is its own
            child.wait()
            (pipe or child.stdout).close()  # type: ignore[union-attr]

    async def on_and_on(host: str) -> None:
        while True:
            with suppress(OSError):
                await one(host)
            await asyncio.sleep(again)

    work = [asyncio.create_task(on_and_on(host)) for host in hosts[:FOLLOWED]]
    try:
        await asyncio.wait(work, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for each in work:
            each.cancel()
        await asyncio.gather(*work, return_exceptions=True)


def _words(host: str, ssh: Sequence[str], command: str, deadline: float, more: Sequence[str] = ()) -> list[str]:
    """No question is answered for anybody (BatchMode), and neither agent nor display is handed on."""
    options = ("BatchMode=yes", f"ConnectTimeout={max(1, round(deadline / 2))}", "ForwardAgent=no", "ForwardX11=no")
    return [*ssh, "-T", *(word for option in (*options, *more) for word in ("-o", option)), "--", host, command]


async def _status(host: str, ssh: Sequence[str], command: str, deadline: float) -> FleetNode:
    words = _words(host, ssh, command, deadline)
    away = FleetNode(host, "NO ANSWER")
    try:
        out, err = await in_thread(lambda: _talk(words, deadline))
    except TimeoutError:
        return replace(away, detail=f"it has not answered for {deadline:g} s")
    except OSError as error:
        return replace(away, detail=f"{printable(words[0])} cannot be run: {error_text(error)}")
    except ValueError:
        return replace(away, detail="its answer is too large")
    try:
        status = _object_in(out)
    except (ValueError, RecursionError):
        return replace(away, detail=_no_status(out, err))
    try:
        return from_status(host, status, time.time())
    except (ValueError, KeyError, TypeError, AttributeError):
        return replace(away, detail=_another_status(status))


def _no_status(out: bytes, err: bytes) -> str:
    lines = (line.strip() for line in reversed(err.decode("utf-8", "replace").splitlines()))
    # ssh warns of what it did all the same, such as to add a key; that is no reason
    last = next((line for line in lines if line and not line.lower().startswith("warning:")), "")
    said = next((line for line in out.decode("utf-8", "replace").splitlines() if line.strip()), "")
    prints = f"“{printable(said.strip(), 60)}” and no status" if said else "nothing"
    return printable(last, 160) or f"it prints {prints}; is mpstui there, and on PATH?"


def _another_status(status: Mapping[str, Any]) -> str:
    number = status.get("schema", SCHEMA)
    if number == SCHEMA:
        return "what it prints is no status that is read here: is its mpstui of another version?"
    schema = printable(str(number), 20)
    return f"its status has schema {schema}, and schema {SCHEMA} is read here: its mpstui is of another version"


def _object_in(out: bytes) -> dict[str, Any]:
    """The JSON object that begins a line of it: a shell may greet before it and take its leave behind it. Raises
    ValueError and RecursionError."""
    text = out.decode("utf-8", "replace")
    begin = re.search(r"^\{", text, re.MULTILINE)
    if begin is None:
        raise ValueError
    found: dict[str, Any] = json.JSONDecoder().raw_decode(text, begin.start())[0]
    return found


async def in_thread(work: Callable[[], T]) -> T:
    """What ``work`` answers. The thread is left to itself when nobody waits any more: no way out waits for a server."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def tell(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(cast("T", result))

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as raised:
            error = raised
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(tell, result, error)

    threading.Thread(target=run, daemon=True).start()
    return await done


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": own_path()}


def _talk(words: Sequence[str], deadline: float) -> tuple[bytes, bytes]:
    """What a program prints until it closes its standard output. Its standard error may stay open: ssh's ControlMaster
    keeps it. Raises TimeoutError, ValueError where it is too much, and OSError."""
    until = time.monotonic() + deadline
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    child = subprocess.Popen(
        words, executable=find_program(words[0]), env=_environment(), stdin=null, stdout=pipe, stderr=pipe,
        start_new_session=True, preexec_fn=ended_with_us(),
    )  # fmt: skip
    told = {child.stdout: bytearray(), child.stderr: bytearray()}
    try:
        with selectors.DefaultSelector() as selector:
            for stream in told:
                os.set_blocking(stream.fileno(), False)  # type: ignore[union-attr]
                selector.register(stream, selectors.EVENT_READ)  # type: ignore[arg-type]
            while child.stdout in {key.fileobj for key in selector.get_map().values()}:
                if (left := until - time.monotonic()) <= 0:
                    raise TimeoutError
                for key, _ in selector.select(left):
                    part = os.read(key.fd, 1 << 16)
                    told[key.fileobj] += part  # type: ignore[index]
                    if not part:
                        selector.unregister(key.fileobj)
                    if len(told[key.fileobj]) > MOST:  # type: ignore[index]
                        raise ValueError("too large")
        with suppress(subprocess.TimeoutExpired):
            child.wait(max(0.0, min(1.0, until - time.monotonic())))
        with suppress(BlockingIOError):
            told[child.stderr] += os.read(child.stderr.fileno(), 1 << 16)  # type: ignore[union-attr]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # its group is its own; what ControlMaster leaves has one of its own
        child.wait()
        for stream in told:
            stream.close()  # type: ignore[union-attr]
    return bytes(told[child.stdout]), bytes(told[child.stderr])


_NO_NVML: Final = "nvml"
"""The problem of a node whose NVML does not answer."""


def _runs(daemon: Mapping[str, Any]) -> bool:
    """A mpstui of before tells no cause."""
    return daemon["health"] not in {"absent", "stale"} and daemon.get("cause") != "closed"


def _told(daemon: Mapping[str, Any]) -> bool:
    """Whether no servers means that it has none: it answers, or its logs are followed."""
    return bool(daemon["servers"]) or daemon["health"] == "ok" or daemon.get("watch") == "logs"


def from_status(name: str, told: Mapping[str, Any], now: float) -> FleetNode:
    """What ``status --json`` of a node says. Raises KeyError, TypeError, ValueError or AttributeError where it is
    none, or one of another schema."""
    if told.get("schema", SCHEMA) != SCHEMA:
        raise ValueError
    every, devices = list(told["daemons"]), list(told["devices"])
    # Of other users' daemons those that answer are told where there is no other; what is wrong with them is no state of
    # the node, as in its own status. A mpstui of before tells it of none.
    own = [daemon for daemon in every if daemon.get("claimant") is None]
    running = [daemon for daemon in own if _runs(daemon)]
    theirs = [daemon for daemon in every if daemon.get("claimant") is not None and daemon["health"] == "ok"]
    daemons = own if running else [*own, *theirs]
    servers = [server for daemon in daemons for server in daemon["servers"]]
    known = [daemon for daemon in daemons if _runs(daemon)]
    problems = tuple(
        FleetProblem(*(printable(str(each[key]), 300) for key in ("severity", "code", "text", "remedy")))
        for each in sorted(told["problems"], key=lambda each: _urgency(each["severity"]))[:100]
    )
    node = FleetNode(
        printable(name, 255),
        clients=sum(_many(server["clients"]) for server in servers) if known and all(map(_told, known)) else None,
        pending=sum(_many(daemon.get("pending", [])) for daemon in daemons) if known else None,
        outside=_sum(device.get("outside_processes") for device in devices),
        contexts=_sum(device["contexts"] for device in devices),
        context_limit=_sum(device["context_limit"] for device in devices),
        memory_used=_sum(device["memory_used"] for device in devices),
        memory_total=_sum(device["memory_total"] for device in devices),
        daemons={printable(str(d["pipe_dir"]), 255): printable(str(d["health"] or UNKNOWN), 20) for d in daemons},
        problems=problems,
        read_at=None if any(each.code == _NO_NVML for each in problems) else now,
        simulated=told.get("source") == "simulated",
    )
    failures = any((daemon["start_failures"] or {}).get("count", 0) >= 3 for daemon in own)
    fault = any(server["status"] == "FAULT" for daemon in own for server in daemon["servers"])
    return judged(node, now, fault=fault, failures=failures)


def _many(told: object) -> int:
    """Raises TypeError where it is no list."""
    if not isinstance(told, list):
        raise TypeError
    return len(told)


def _sum(values: Iterable[Any]) -> int | None:
    """None where one of them is not known, cannot be, or none is there."""
    found = list(values)
    numbers = [v for v in found if isinstance(v, int) and not isinstance(v, bool) and 0 <= v < _LARGEST]
    return sum(numbers) if numbers and len(numbers) == len(found) else None


# How it is shown.


def _of(
    used: int | None, most: int | None, text: Callable[[int | None], str] = lambda n: UNKNOWN if n is None else str(n)
) -> str:
    return UNKNOWN if used is None else f"{text(used)}/{text(most)}"


STATE_STYLES: Final[Mapping[str, str]] = {
    "FAULT": "bad", "BLOCKED": "bad", "NO ANSWER": "bad", "NOT STARTING": "bad",
    "HELD": "warn", "STALE": "warn", "OLD": "warn", "ERROR": "bad", "WARNING": "warn",
    "NOT KNOWN": "dim", "ABSENT": "dim",
    "ok": "good",
}  # fmt: skip


def why_of(node: FleetNode) -> str:
    """``SIMULATED · bob waits``; empty of a real node that is well."""
    return " · ".join(filter(None, ("SIMULATED" if node.simulated else "", node.detail)))


def contexts_of(node: FleetNode) -> str:
    """``5/144``"""
    return _of(node.contexts, node.context_limit)


def memory_of(node: FleetNode) -> str:
    """``30.1 GiB/239 GiB``"""
    return _of(node.memory_used, node.memory_total, format_size)


FLEET_PROBLEM: Final[Thing[FleetProblem]] = Thing(
    "fleet_problem",
    "A problem of a node.",
    (
        Field("severity", "severity", TEXT, lambda p, v: p.severity),
        Field("code", "code", TEXT, lambda p, v: p.code),
        Field(
            "text", "text", TEXT, lambda p, v: p.text, about="From Prometheus in general words: it has the code alone."
        ),
        Field("remedy", "remedy", TEXT, lambda p, v: p.remedy),
    ),
)
NAME: Final[Column[Any]] = Column(10, 30, 100, "NODE", narrow=16, roomy=46)
"""Of a node's name."""
NODE: Final[Thing[FleetNode]] = Thing(
    "node",
    "One node of many.",
    (
        Field("name", "name", TEXT, lambda n, v: n.name, row=Text(10, "NODE"), column=NAME),
        Field(
            "state", "state", Type({"enum": list(STATES)}), lambda n, v: n.state, row=Text(20, "STATE"),
            column=Column(20, 13, 99, "STATE", cell=lambda n, v, cells: ((n.state, STATE_STYLES[n.state]),)),
            about="The worst that is known of it.",
        ),
        Field(
            "clients", "clients", INTEGER, lambda n, v: n.clients, null=True, row=Text(30, "CLIENTS"),
            column=Column(30, 9, 80, align=">", falling=True),
        ),
        Field(
            "pending", "pending", INTEGER, lambda n, v: n.pending, null=True, row=Text(40, "WAIT"),
            column=Column(40, 6, 75, "WAIT", align=">", falling=True),
        ),
        Field(
            "outside_processes", "outside MPS", INTEGER, lambda n, v: n.outside, null=True, row=Text(50, "OUTSIDE"),
            column=Column(50, 9, 20, "OUTSIDE", align=">", falling=True),
        ),
        Field(
            "contexts", "contexts", INTEGER, lambda n, v: n.contexts, null=True,
            row=Text(60, "CONTEXTS", lambda n, v: contexts_of(n)),
            column=Column(60, 10, 15, cell=lambda n, v, cells: ((contexts_of(n), "plain"),), align=">", falling=True),
        ),
        Field("context_limit", "context limit", INTEGER, lambda n, v: n.context_limit, null=True),
        Field(
            "memory_used", "memory used", SIZE, lambda n, v: n.memory_used, null=True,
            row=Text(70, "GPU MEM", lambda n, v: memory_of(n)),
            column=Column(
                70, 20, 10, "GPU MEM", cell=lambda n, v, cells: ((memory_of(n), "plain"),), align=">", falling=True
            ),
        ),
        Field("memory_total", "memory", SIZE, lambda n, v: n.memory_total, null=True),
        Field(
            "detail", "why", TEXT, lambda n, v: n.detail, row=Text(80, "WHY", lambda n, v: why_of(n)),
            column=Column(80, 24, 95, "WHY", cell=lambda n, v, cells: ((why_of(n), "plain"),)),
            about="In words; empty where it is well.",
        ),
        Field(
            "simulated", "simulated", FLAG, lambda n, v: n.simulated,
            about="Whether it is a simulated node: no GPU, no real daemon.",
        ),
        Field(
            "daemons", "daemons", Type({"type": "object", "additionalProperties": {"type": "string"}}, json=dict),
            lambda n, v: n.daemons, about="Pipe directory to state.",
        ),
        Field("problems", "problems", OBJECTS, lambda n, v: n.problems, of=FLEET_PROBLEM),
        Field("read_at", "read", TIME, lambda n, v: n.read_at, null=True, about="When NVML there last answered."),
        Field(
            "silent_since", "silent since", TIME, lambda n, v: n.silent_since, null=True,
            about="When its exporter last answered Prometheus, where it does not now and that was within a day.",
        ),
    ),
)  # fmt: skip


class NodeProblem(NamedTuple):
    """A problem, and the node that has it."""

    node: FleetNode
    number: int
    problem: FleetProblem


_WIDTHS: Final[Mapping[str, Column[NodeProblem]]] = {
    "severity": Column(
        20, 10, 90, cell=lambda p, v, cells: ((p.problem.severity, severity_mark(p.problem.severity)[1]),)
    ),
    "code": Column(30, 24, 15),
    "text": Column(40, 40, 99, "WHAT", narrow=24, roomy=80),
    "remedy": Column(50, 24, 80, "REMEDY"),
}


def told_problems(node: FleetNode) -> list[NodeProblem]:
    """Its problems; of a node that tells none, as it does not answer or for another reason, its state."""
    problems = node.problems
    if not problems and node.state not in {"ok", "ABSENT"}:
        severity = {"NOT KNOWN": "info", "OLD": "warning", "STALE": "warning", "WARNING": "warning"}
        remedy = "Open it with Enter: ssh says why it does not answer." if node.state == "NO ANSWER" else ""
        code = node.state.lower().replace(" ", "_")
        problems = (FleetProblem(severity.get(node.state, "error"), code, node.detail or UNKNOWN, remedy),)
    return [NodeProblem(node, at, each) for at, each in enumerate(problems)]


def severity_mark(severity: str) -> tuple[str, str]:
    """Sign and style; of a severity that is none those of the least."""
    return next((mark for known, mark in SEVERITY.items() if known == severity), SEVERITY["info"])


def _with_its_node(each: Field[FleetProblem]) -> Field[NodeProblem]:
    def value(row: NodeProblem, view: View) -> Any:
        return each.value(row.problem, view)

    return Field(each.id, each.title, each.type, value, column=_WIDTHS[each.id])


NODE_PROBLEM: Final[Thing[NodeProblem]] = Thing(
    "node_problem",
    "A problem of one node of many.",
    (
        Field("name", "name", TEXT, lambda p, v: p.node.name, column=NAME),
        *map(_with_its_node, FLEET_PROBLEM.fields),
    ),
)


FLEET: Final[Thing[Fleet]] = Thing(
    "fleet",
    "mpstui fleet --json: many nodes, the worst first.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda f, v: SCHEMA),
        Field("time", "time", TIME, lambda f, v: f.time),
        Field("nodes", "nodes", OBJECTS, lambda f, v: f.nodes, of=NODE),
        Field("notes", "notes", TEXTS, lambda f, v: f.notes, about="What Prometheus has no series for; sentences."),
    ),
)


def words_in(node: FleetNode) -> str:
    """What a filter looks through: its name, state, reason and problems."""
    problems = (f"{p.code} {p.text}" for p in node.problems)
    return " ".join((node.name, node.state, why_of(node), *node.daemons, *problems))


def summary(nodes: Sequence[FleetNode]) -> str:
    """``1000 nodes: 2 FAULT, 1 HELD, 997 ok · 7312 clients``, and how many of them are simulated ones."""
    told = ", ".join(f"{number} {state}" for state, number in by_state(nodes))
    simulated = sum(node.simulated for node in nodes)
    made_up = f" · {simulated} SIMULATED" if simulated else ""
    return f"{plural(len(nodes), 'node')}: {told or 'none'} · {clients_in(nodes)}{made_up}"


def by_state(nodes: Sequence[FleetNode]) -> list[tuple[str, int]]:
    """How many are in each state that one is in, the worst first."""
    states = ((state, sum(node.state == state for node in nodes)) for state in STATES)
    return [(state, number) for state, number in states if number]


def clients_in(nodes: Sequence[FleetNode]) -> str:
    """``7312 clients``; at least as many, where there is a node of which that is not known."""
    known = [node.clients for node in nodes if node.clients is not None]
    if not known and nodes:
        return f"{UNKNOWN} clients"
    unknown = any(node.clients is None and not _without_daemon(node) for node in nodes)
    return ("≥ " if unknown else "") + plural(sum(known), "client")


def _without_daemon(node: FleetNode) -> bool:
    return bool(node.daemons) and all(state in {"absent", "stale"} for state in node.daemons.values())


def opening(command: str, host: str) -> list[str]:
    """The words of the command that opens a node, ``{host}`` being its name. Raises FleetError."""
    import shlex

    if _NAME.fullmatch(host) is None:
        raise FleetError(f"“{printable(host, 60)}” is no name of a host that ssh is given")
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise FleetError(f"--open: {error}") from None
    if not words or not any("{host}" in word for word in words):
        raise FleetError("--open needs {host}, as in “ssh -t {host} mpstui”")
    return [word.replace("{host}", host) for word in words]
