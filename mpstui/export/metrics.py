"""A snapshot as families of metrics, and what happened as counters.

What is exported is said in ``mpstui.fields``: a row with a ``metric``. Here are the labels, the folding of clients into
groups, and the counters. Nothing here looks at the node.
"""

from __future__ import annotations

import os
import platform
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from mpstui import __version__
from mpstui.core.model import EMPTY, Client, Daemon, Device, EventKind, PendingClient, Problem, Server, Snapshot
from mpstui.core.text import path_text, printable
from mpstui.core.where import Where
from mpstui.fields import DAEMON, SNAPSHOT, Field, Thing, View

GROUPS: Final = 100
"""Groups of clients with series of their own, unless told otherwise; the rest is one group more."""
PROCESSES: Final = 1000
"""As many with a series for each process: 16 devices have at most 768 clients (fact 13)."""
DAEMONS: Final = 64
"""Daemons that are exported: a directory that looks like one's can be made by anybody."""
OTHER: Final = "(other)"
"""No name of a user can be written so."""
_COMMAND: Final = 80
_WHO: Final = ("user", "container", "pod", "namespace", "pod_uid", "hpc_job", "pid", "command")
_PERCENT: Final = "percent"

_FORMS: Final = {
    "application/openmetrics-text": "application/openmetrics-text; version=1.0.0; charset=utf-8",
    "text/plain": "text/plain; version=0.0.4; charset=utf-8",
}
"""What is answered, whatever versions of it and escapings somebody accepts: no name here needs one."""

Labels = dict[str, str]


class _Count(NamedTuple):
    """A kind of event that is counted."""

    name: str
    help: str
    label: str = ""
    words: tuple[str, ...] = ("",)
    """The values of ``label`` that begin with 0, so that the first event is an increase."""


COUNTED: Final[Mapping[EventKind, _Count]] = {
    "fatal_fault": _Count("faults", "Fatal faults that a server's log told of."),
    "client_refused": _Count(
        "clients_refused", "Clients refused.", "reason", ("fault", "limit", "terminate", "unknown")
    ),
    "server_failed": _Count("server_start_failures", "Servers that ended before they were ready."),
    "client_connected": _Count("clients_connected", "Clients that have connected."),
    "client_disconnected": _Count("clients_disconnected", "Clients that were seen to disconnect."),
    "terminate_requested": _Count(
        "terminate_requests", "Times that terminate_client was sent, by mpstui or by others."
    ),
    "daemon_started": _Count("daemon_starts", "Times that the control daemon was started."),
}
"""Since the exporter was started; what is in the logs from before is not counted."""
BY_LOGS: Final[frozenset[EventKind]] = frozenset(
    ("fatal_fault", "client_refused", "server_failed", "terminate_requested", "daemon_started")
)
"""Kinds of which nothing but a daemon's logs tells: where they are not followed, that none has come is not known."""


class _Family:
    """One metric while it is being collected."""

    def __init__(self, name: str, help_: str, kind: str) -> None:
        self.help, self.kind = help_, kind
        self._suffix = {"counter": "_total", "info": "_info"}.get(kind, "")
        self._base = f"mps_{name}".removesuffix(self._suffix)
        self._samples: dict[tuple[tuple[str, str], ...], float] = {}

    def add(self, labels: Labels, value: float, fold: Callable[[float, float], float]) -> None:
        key = tuple(labels.items())
        before = self._samples.get(key)
        self._samples[key] = value if before is None else fold(before, value)

    def done(self, every: Labels) -> Family:
        family = Family(self._base, self.help, self.kind)
        for key, value in self._samples.items():
            family.add_sample(self._base + self._suffix, {**every, **dict(key)}, value)
        return family

    def lines(self, every: Labels, known: dict[tuple[tuple[str, str], ...], str], open_metrics: bool) -> Iterator[str]:
        """As prometheus_client writes it, in a third of the time: a series' labels are the same in many families, and
        are written once."""
        name, kind, text = self._base + self._suffix, self.kind, self.help.replace("\\", r"\\").replace("\n", r"\n")
        if open_metrics:
            text = text.replace('"', r"\"")
        elif kind == "info":
            kind = "gauge"
        about = self._base if open_metrics else name
        yield f"# HELP {about} {text}\n# TYPE {about} {kind}\n"
        for key, value in self._samples.items():
            labels = known.get(key)
            if labels is None:
                labels = known[key] = _written({**every, **dict(key)})
            yield f"{name}{labels} {floatToGoString(value)}\n"  # type: ignore[no-untyped-call]


def _written(labels: Labels) -> str:
    told = []
    for name, value in sorted(labels.items()):
        text = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
        told.append(f'{name}="{text}"')
    return f"{{{','.join(told)}}}" if told else ""


def _form(accept: str) -> str:
    """The content type that is answered, one of ``_FORMS``."""
    try:
        return _FORMS[choose_encoder(accept)[1].partition(";")[0]]
    except (TypeError, ValueError):  # a version that is none
        return _FORMS["text/plain"]


class _Families:
    """All of one scrape, in the order in which they are first told of."""

    def __init__(self) -> None:
        self._found: dict[str, _Family] = {}
        self._infos: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[str, Labels]] = {}

    def add(
        self,
        name: str,
        help_: str,
        labels: Labels,
        value: float,
        *,
        kind: str = "gauge",
        fold: Callable[[float, float], float] = max,
    ) -> None:
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = _Family(name, help_, kind)
        found.add(labels, value, fold)

    def info(self, name: str, help_: str, labels: Labels, more: Labels) -> None:
        """Several fields make one sample."""
        _, told = self._infos.setdefault((name, tuple(labels.items())), (help_, dict(labels)))
        told.update(more)

    def done(self) -> Iterable[_Family]:
        for (name, _), (help_, labels) in self._infos.items():
            self.add(name, help_, labels, 1, kind="info")
        self._infos.clear()
        return self._found.values()


class Metrics(Collector):
    """What the node was last seen to be, for the threads that answer scrapes; only :meth:`take` is told of the node.

    ``groups``: how many groups of clients get series of their own. ``per_process``: a group for each process.
    ``host_label``: ``Hostname``, ``hostname``, or empty for none.
    """

    def __init__(self, *, groups: int = GROUPS, per_process: bool = False, host_label: str = "Hostname") -> None:
        self._most = groups
        self._per_process = per_process
        self._host_label = host_label
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._read_at: float | None = None
        self._sessions: int | None = None
        self._log_bytes: Mapping[tuple[str, str], int] = {}
        self._answers: Mapping[Path, float] = {}
        self._counting = False
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._seen: frozenset[tuple[object, ...]] = frozenset()
        self._groups: dict[tuple[str, ...], None] = {}
        self._rendered: tuple[object, dict[str, tuple[str, bytes]]] = (None, {})

    # Told by whoever watches the node.

    def take(self, snapshot: Snapshot, since: float | None) -> None:
        """The node as it is now. ``since``: from when on events count, in seconds since the epoch; None: none is
        counted, so that no number of them is told."""
        keys = {event.key: event for event in snapshot.events}
        with self._lock:
            self._counting = since is not None
            for key, event in keys.items():
                if since is None or key in self._seen or event.time is None or event.time < since:
                    continue
                place = "" if event.pipe_dir is None else path_text(event.pipe_dir)
                if event.kind == "xid":
                    for device in event.devices or ("",):
                        self._counts["xid", device, event.values.get("xid", "")] += 1
                elif (count := COUNTED.get(event.kind)) is not None:
                    word = event.values.get(count.label, "") if count.label else ""
                    self._counts[event.kind, place, word if word in count.words else "unknown"] += 1
            self._seen = frozenset(keys)
            self._snapshot = snapshot

    def watched(
        self,
        read_at: float | None,
        sessions: int | None,
        log_bytes: Mapping[tuple[str, str], int],
        answers: Mapping[Path, float] = EMPTY,
    ) -> None:
        """When the node was last read, how often a daemon was asked, the bytes of its logs by pipe directory and the
        log's name, and when each last answered, by pipe directory."""
        with self._lock:
            self._read_at, self._sessions, self._log_bytes = read_at, sessions, log_bytes
            if answers != self._answers:
                self._answers = answers

    # Asked by whoever answers a scrape.

    def rendered(self, accept: str) -> tuple[str, bytes]:
        """The content type and the text, in the form that is accepted; made once for each state of the node."""
        content = _form(accept)
        with self._lock:
            state = (self._snapshot, self._read_at, self._sessions, self._log_bytes, self._answers)
            known, texts = self._rendered
            if known is None or any(a is not b for a, b in zip(known, state, strict=True)):  # type: ignore[call-overload]
                self._rendered = state, (texts := {})
            if content not in texts:
                texts[content] = content, self._text(content is _FORMS["application/openmetrics-text"])
            return texts[content]

    def _text(self, open_metrics: bool) -> bytes:
        every, families = self._told()
        known: dict[tuple[tuple[str, str], ...], str] = {}
        lines = [line for family in families for line in family.lines(every, known, open_metrics)]
        return ("".join(lines) + ("# EOF\n" if open_metrics else "")).encode()

    def collect(self) -> Iterator[Family]:
        """The families, for whoever has a registry of prometheus_client."""
        with self._lock:
            every, families = self._told()
        for family in families:
            yield family.done(every)

    def _told(self) -> tuple[Labels, Iterable[_Family]]:
        """The labels of each series, and the families."""
        found, shown = _Families(), self._snapshot
        build = {"version": __version__, "pythonversion": platform.python_version()}
        found.info("exporter_build", "Version of mpstui and of Python.", {}, build)
        if self._read_at is not None:
            text = "When NVML last answered; it does not change while the driver hangs."
            found.add("last_reading_timestamp_seconds", text, {}, self._read_at)
        if self._sessions is not None:
            text = "Times that this exporter has asked a control daemon; on a node where nothing changes it does not."
            found.add("control_sessions", text, {}, self._sessions, kind="counter")
        if shown is not None:
            daemons = _exported(shown.daemons)
            self._walk(found, shown, daemons)
            if self._counting:
                self._count(found, shown, daemons)
            text = "When the daemon last answered; its state is from that time. It is asked only after a change."
            for daemon in daemons:
                if daemon.pid is not None and (answered := self._answers.get(daemon.pipe_dir)) is not None:
                    place = path_text(daemon.pipe_dir)
                    found.add("daemon_last_answer_timestamp_seconds", text, {"pipe_dir": place}, answered)
            for (place, log), size in self._log_bytes.items():
                found.add("log_bytes", "Size of a daemon's log.", {"pipe_dir": place, "log": log}, size)
        every = {self._host_label: host(shown)} if self._host_label and shown is not None else {}
        return every, found.done()

    def _walk(self, found: _Families, shown: Snapshot, daemons: Sequence[Daemon]) -> None:
        up = shown.nvml_detail is None and shown.driver_version is not None
        found.add("nvml_up", "Whether NVML answers; without it there are no devices here.", {}, up)
        groups = self._named(shown, daemons)
        whole = View.of(shown)
        for each in SNAPSHOT.fields:
            if each.metric is not None:
                _tell(found, each, shown, whole, {})
            if each.of is not None and each.of is not DAEMON:
                for item in each.value(shown, whole) or ():
                    self._thing(found, each.of, item, whole, {}, groups)
        for daemon in daemons:
            self._thing(found, DAEMON, daemon, View.of(shown, daemon), {}, groups)
        folded = sum(who not in groups for daemon in daemons for who in map(self._who, _people(daemon)))
        text = "Clients that are told of as (other), because there are too many groups of them."
        found.add("exporter_folded_clients", text, {}, folded)
        text = "Daemons, or places of one, that are not exported, because there are too many."
        found.add("exporter_left_out_daemons", text, {}, len(shown.daemons) - len(daemons))

    def _thing(
        self,
        found: _Families,
        thing: Thing[Any],
        item: Any,
        view: View,
        labels: Labels,
        groups: Mapping[tuple[str, ...], Labels],
    ) -> None:
        if isinstance(item, Client | PendingClient):
            labels = {**labels, **groups.get(self._who(item), {"user": OTHER})}
        else:
            labels = {**labels, **_labels(item, view)}
        if isinstance(item, Server):
            below = {name: value for name, value in labels.items() if name != "user"}
        else:
            below = labels
        for each in thing.fields:
            if each.metric is not None:
                _tell(found, each, item, view, labels)
            if each.of is None or not any(_has_metrics(each.of)):
                continue
            inner = each.value(item, view)
            for one in inner if isinstance(inner, tuple | list) else () if inner is None else (inner,):
                self._thing(found, each.of, one, view, below, groups)

    def _count(self, found: _Families, shown: Snapshot, daemons: Sequence[Daemon]) -> None:
        for kind, count in COUNTED.items():
            for daemon in daemons:
                place = path_text(daemon.pipe_dir)
                deaf = kind in BY_LOGS and daemon.runs and daemon.watch != "logs"
                expected = () if deaf else count.words
                words = dict.fromkeys((*expected, *(w for k, p, w in self._counts if (k, p) == (kind, place))))
                for word in words:
                    labels = {"pipe_dir": place, **({count.label: word} if count.label else {})}
                    found.add(count.name, count.help, labels, self._counts[kind, place, word], kind="counter")
        for (what, uuid, xid), number in list(self._counts.items()):
            if what == "xid":
                labels = {**_device(uuid, shown.indices), "xid": xid}
                found.add("xids", "Xids that the driver reported.", labels, number, kind="counter")

    # Whose clients they are.

    def _who(self, client: Client | PendingClient) -> tuple[str, ...]:
        """The values of ``_WHO``. What the user may have made up, by a cgroup of that name, is no label: others pay for
        what they are labelled with."""
        user = client.user or ("" if client.uid is None else str(client.uid))
        place: tuple[str | None, ...] = ("", "", "", "", "")
        if isinstance(client, Client):
            where = client.where or Where()
            box = "" if "container" in where.claimed else where.container_name or client.container
            pod = ("", "", "") if "pod" in where.claimed else (where.pod, where.namespace, where.pod_uid)
            place = (box, *pod, "" if "job" in where.claimed else where.job)
        process = (str(client.pid), printable(client.command or "", _COMMAND)) if self._per_process else ("", "")
        return (user, *(each or "" for each in place), *process)

    def _named(self, shown: Snapshot, daemons: Sequence[Daemon]) -> dict[tuple[str, ...], Labels]:
        """The labels of each group that has series of its own. Who has them keeps them, and the next who comes gets
        those of one that has gone: no series comes and goes with somebody else's memory."""
        there = dict.fromkeys(self._who(client) for daemon in daemons for client in _people(daemon))
        self._groups = {who: None for who in self._groups if who in there}
        for who in there:
            if len(self._groups) >= self._most:
                break
            self._groups[who] = None
        return {
            who: {name: value for name, value in zip(_WHO, who, strict=True) if value or name == "user"}
            for who in self._groups
        }


def host(shown: Snapshot | None) -> str:
    """As DCGM's exporter: in a pod the node's name is in the environment."""
    return printable(os.environ.get("NODE_NAME") or (shown.host if shown is not None else ""), 255)


def _people(daemon: Daemon) -> Iterator[Client | PendingClient]:
    yield from daemon.clients()
    yield from daemon.pending


def _exported(daemons: Sequence[Daemon]) -> Sequence[Daemon]:
    """Those that run first, each without what it names and cannot have: others pay for what is told of them."""
    return [_possible(daemon) for daemon in sorted(daemons, key=lambda daemon: daemon.pid is None)[:DAEMONS]]


def _possible(daemon: Daemon) -> Daemon:
    lies = {of.key for _, of in daemon.lies()}
    if not lies:
        return daemon
    true = (server for server in daemon.servers if server.key not in lies)
    servers = (replace(server, clients=tuple(c for c in server.clients if c.key not in lies)) for server in true)
    return replace(daemon, servers=tuple(servers))


def _labels(item: Any, view: View) -> Labels:
    if isinstance(item, Daemon):
        return {"pipe_dir": path_text(item.pipe_dir)}
    if isinstance(item, Server):
        return {"user": item.user or ("" if item.uid is None else str(item.uid))}
    if isinstance(item, Device):
        return _device(item.uuid, view.indices)
    if isinstance(item, Problem):
        return {"severity": item.severity, "code": item.code}
    return {}


def _device(uuid: str, indices: Mapping[str, int | None]) -> Labels:
    index = indices.get(uuid)
    return {"gpu": "" if index is None else str(index), "UUID": uuid}


def _has_metrics(thing: Thing[Any]) -> Iterable[bool]:
    for each in thing.fields:
        yield each.metric is not None
        if each.of is not None:
            yield any(_has_metrics(each.of))


def _tell(found: _Families, each: Field[Any], item: Any, view: View, labels: Labels) -> None:
    """The samples of one field."""
    metric = each.metric
    if metric is None:
        return
    value = metric.value(item, view) if metric.value is not None else each.value(item, view)
    if metric.info:
        found.info(
            metric.name.removesuffix("_info"),
            metric.help,
            labels,
            {each.id: "" if value is None else each.type.text(value)},
        )
        return
    if value is None:
        return
    words = metric.words or each.type.schema.get("enum") or ()
    if isinstance(value, str):
        untold = metric.untold(item, view) if metric.untold is not None else ()
        words = [word for word in words if word == value or word not in untold]
        for word in dict.fromkeys((*words, *(() if value in words else ("other",)))):
            hit = word == value or (word == "other" and value not in words)
            found.add(metric.name, metric.help, {**labels, "state": word}, hit, fold=metric.fold)
    elif isinstance(value, Mapping):
        ordinals = view.daemon.ordinals if view.daemon is not None else {}
        for device, size in value.items():
            uuid = ordinals.get(device, device)
            if uuid in view.indices:
                found.add(metric.name, metric.help, {**labels, **_device(uuid, view.indices)}, size, fold=metric.fold)
    else:
        scale = 100 if each.type.unit == _PERCENT else 1
        found.add(metric.name, metric.help, labels, float(value) / scale, fold=metric.fold)
