"""What a daemon has: its servers, the limits in force, its partitions, its namespaces."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from mpstui.core.cells import (
    FAULT_CLAIMED,
    OUTDATED,
    OUTDATED_LEGEND,
    devices_of,
    gpu_label,
    health_word,
    limits_text,
    outdated_text,
    sm_text,
    status_mark,
    threads_text,
    told_to_end,
)
from mpstui.core.condition import by_whom
from mpstui.core.faults import not_said
from mpstui.core.model import (
    Cause,
    Chunks,
    Client,
    Daemon,
    KnownHealth,
    PartitionTable,
    PendingClient,
    Server,
    SessionHolder,
    SmPartition,
    StartFailures,
    Watched,
)
from mpstui.core.text import (
    PRIORITY_WORDS,
    UNKNOWN,
    Line,
    at_least,
    by_device,
    format_percentage,
    format_size,
    path_text,
    plural,
)
from mpstui.core.v3 import Namespace, V3Device, V3Node, V3Partition, V3Server
from mpstui.fields.client import CLIENT
from mpstui.fields.common import (
    DEFAULT_PRIORITY,
    MEMORY_LIMIT,
    NO_EFFECT,
    age_cell,
    clients_text,
    default_facts,
    gpu_name,
    heading,
    inherited_facts,
    limits_known,
    memory_facts,
    priority,
    priority_cell,
    priority_word,
    started,
    user_cell,
    user_text,
    where_facts,
    who,
)
from mpstui.fields.rows import (
    FLAG,
    INTEGER,
    INTEGERS,
    OBJECT,
    OBJECTS,
    PATH,
    SHARE,
    SIZES,
    TEXT,
    TEXTS,
    TIME,
    WORDS,
    Column,
    Detail,
    Fact,
    Field,
    Metric,
    Text,
    Thing,
    View,
    enum,
)
from mpstui.system.procfs import login_name

# A server.


def _status_cell(server: Server, view: View, cells: int) -> Line:
    return (status_mark(server, claimant=view.claimant),)


def _status_row(server: Server, view: View) -> str:
    if "FAULT" in (server.status or "") and view.claimant is not None:
        return FAULT_CLAIMED[0]
    claimed = server.fault is not None and not server.fault.confirmed
    return f"{server.status or UNKNOWN}{'?' * claimed}{' ending' * server.ending}"


def _claimed(word: str, whose: str) -> str:
    return f"{word}: only {whose}'s daemon says so"


def _status_facts(server: Server, view: View) -> Iterable[Fact]:
    if "FAULT" in (server.status or "") and view.claimant is not None:
        yield Fact("status", _claimed(server.status or "", view.claimant), "dim")
    elif server.fault is not None and not server.fault.confirmed and view.daemon is not None:
        yield Fact("status", f"{server.status}?: by server.log; {not_said(view.daemon, server.fault)}", "warn")
    else:
        yield Fact("status", server.status or UNKNOWN, "bold" if server.status == "ACTIVE" else "bad bold")
    if (told := told_to_end(server)) is not None:
        yield Fact("ending", told, "warn")


def _server_memory(server: Server, view: View, cells: int) -> Line:
    daemon = view.daemon
    known = limits_known(server, daemon)
    devices = len(daemon.ordinals) if daemon is not None else 0
    return ((limits_text(server.pinned_mem_limits, known, cells - 1, devices), "plain"),)


def _clients_facts(server: Server, view: View) -> Iterable[Fact]:
    outdated = sum(client.outdated_limits for client in server.clients)
    kept = f"  {outdated_text(outdated)}" if outdated else ""
    yield Fact("clients", f"{clients_text(server)}{kept}")
    yield Fact("contexts", at_least(sum(len(client.contexts) for client in server.clients), server.clients_known))
    if view.daemon is not None:
        yield Fact("daemon", path_text(view.daemon.pipe_dir))


def _server_limit_facts(server: Server, view: View) -> Iterable[Fact]:
    none = "none" if limits_known(server, view.daemon) else UNKNOWN
    return [*memory_facts(view, server.pinned_mem_limits, None, none), *inherited_facts(view.daemon, view)]


def _server_uuids(server: Server) -> list[str]:
    return sorted({uuid for client in server.clients for uuid in client.device_uuids})


def _server_gpus(server: Server, view: View, cells: int) -> Line:
    return ((",".join(sorted({gpu_label(uuid, view.indices) for uuid in _server_uuids(server)})) or UNKNOWN, "plain"),)


def _named(view: View) -> bool:
    """Whether the daemon's servers have names."""
    return view.daemon is not None and any(server.v3 is not None for server in view.daemon.servers)


def _v3_facts(server: Server, view: View) -> Iterable[Fact]:
    if server.v3 is not None:
        yield Fact("name", server.v3.name)
        yield Fact("pipe directory", server.v3.pipe_dir or UNKNOWN)
        yield Fact("allowed devices", server.v3.allowed_devices or UNKNOWN)


def _share_in_force(server: Server, view: View) -> float | None:
    """None too where it has no effect: each client has the SMs of its static partition."""
    static = view.daemon is not None and view.daemon.static_partitioning
    return None if static else server.active_thread_percentage


def _server_threads_row(server: Server, view: View) -> str:
    if view.daemon is not None and view.daemon.static_partitioning:
        return NO_EFFECT
    none = server.active_thread_percentage is None and limits_known(server, view.daemon)
    return "none" if none else format_percentage(server.active_thread_percentage)


SERVER: Final[Thing[Server]] = Thing(
    "server",
    "An nvidia-cuda-mps-server, through which clients compute: one user's, or in multi-user mode those of all.",
    (
        Field(
            "pid", "PID", INTEGER, lambda s, v: s.pid,
            column=Column(10, 9, 99, style="bold"), row=Text(10, "SERVER"), detail=Detail("server", 10),
        ),
        Field("uid", "UID", INTEGER, lambda s, v: s.uid, null=True),
        Field(
            "name", "name", TEXT, lambda s, v: s.v3.name if s.v3 else None, null=True,
            about="Of a daemon of MPS protocol 3.", column=Column(15, 10, 85, when=_named, wide=18),
            detail=Detail("server", 12, facts=_v3_facts),
        ),
        Field(
            "user", "user", TEXT, lambda s, v: s.user, null=True,
            column=Column(20, 11, 90, cell=user_cell), row=Text(20, "USER", user_text),
            detail=Detail("server", 20, facts=who),
        ),
        Field(
            "status", "status", TEXT, lambda s, v: s.status, null=True,
            about="ACTIVE, FAULT, INITIALIZING, …: what the daemon says, or its logs where it does not.",
            column=Column(30, 16, 95, cell=_status_cell, wide=18), row=Text(30, "STATUS", _status_row),
            detail=Detail("server", 30, facts=_status_facts), command="get_server_status",
            metric=Metric("servers", "MPS servers by status.", words=("ACTIVE", "INITIALIZING", "FAULT")),
        ),
        Field(
            "active_thread_percentage", "threads", SHARE, lambda s, v: s.active_thread_percentage, null=True,
            about="The share of the SMs that new clients may use.",
            column=Column(50, 9, 60, when=lambda v: v.with_limits), row=Text(50, "THREADS", _server_threads_row),
            detail=Detail("limits", 10, facts=lambda s, v: [Fact("threads", _server_threads_row(s, v))]),
            metric=Metric(
                "server_active_thread_ratio", "Share of the SMs that new clients may use; the least of several.",
                _share_in_force, fold=min,
            ),
        ),
        Field(
            "pinned_mem_limits", "memory limits", SIZES, lambda s, v: s.pinned_mem_limits,
            about="Of new clients, by the server's device ordinal.",
            column=Column(60, 13, 50, "MEM/DEVICE", cell=_server_memory, roomy=27, when=lambda v: v.with_limits, gap=0),
            row=Text(60, "MEMORY"), detail=Detail("limits", 20, facts=_server_limit_facts), command=MEMORY_LIMIT,
            metric=Metric("server_memory_limit_bytes", "Device memory that a new client may use.", fold=min),
        ),
        Field(
            "clients", "clients", OBJECTS, lambda s, v: s.clients, of=CLIENT,
            column=Column(40, 9, 80, cell=lambda s, v, n: ((clients_text(s), "plain"),)),
            row=Text(40, "CLIENTS", lambda s, v: clients_text(s)),
            detail=Detail("server", 50, facts=_clients_facts),
        ),
        Field(
            "clients_elsewhere", "clients elsewhere", INTEGER, lambda s, v: s.clients_elsewhere,
            about="Clients in PID namespaces that the daemon does not see: they have no PID, and are not listed here.",
            metric=Metric(
                "clients_elsewhere", "Clients in PID namespaces that the daemon does not see; not among mps_clients."
            ),
        ),
        Field(
            "start_time", "started", TIME, lambda s, v: s.start_time, null=True,
            column=Column(80, 6, 40, "UP", cell=age_cell, gap=0),
            row=Text(80, "UP", lambda s, v: v.age(s.start_time)),
            detail=Detail("server", 40, facts=partial(started, "started")),
            metric=Metric(
                "server_start_time_seconds", "When the server was started; of several servers the first.", fold=min
            ),
        ),
        Field(
            "ending", "ending", FLAG, lambda s, v: s.ending,
            about="The daemon's logs say that it was told to end, and it waits for its clients.",
        ),
        Field(
            "ending_since", "ending since", TIME, lambda s, v: s.ending_since, null=True,
            about="When the logs first said so.",
        ),
        Field(
            "device_uuids", "GPUs", TEXTS, lambda s, v: _server_uuids(s), about="The devices that its clients are on.",
            column=Column(70, 10, 70, cell=_server_gpus, when=lambda v: not v.with_limits),
        ),
    ),
    {"server": heading("Server"), "limits": heading("Limits of new clients")},
)  # fmt: skip


# The limits in force: the daemon's default for servers to come, and each server's.


class Limit(NamedTuple):
    """The limits of new clients of one server, or of servers that start from now on."""

    daemon: Daemon
    server: Server | None = None

    @property
    def percentage(self) -> float | None:
        return self.server.active_thread_percentage if self.server else self.daemon.default_active_thread_percentage

    @property
    def memory(self) -> Mapping[str, int]:
        return self.server.pinned_mem_limits if self.server else self.daemon.default_pinned_mem_limits

    @property
    def known(self) -> bool:
        """Whether it has been read, so that what is not set is none."""
        return limits_known(self.server or self.daemon, self.daemon)

    @property
    def outdated(self) -> int:
        """Clients that have outdated ones."""
        return sum(client.outdated_limits for client in self.server.clients) if self.server else 0

    def kept(self, name: str) -> str:
        """The mark, where a client keeps an old limit of this name."""
        clients = self.server.clients if self.server else ()
        return OUTDATED if any(old.name == name for client in clients for old in client.old_limits) else ""


def limits_of(daemon: Daemon) -> tuple[Limit, ...]:
    """The default, and each server's."""
    return (Limit(daemon), *(Limit(daemon, server) for server in daemon.servers))


def _limit_name(limit: Limit, view: View, cells: int) -> Line:
    if limit.server is None:
        return (("default", "plain"),)
    named = limit.server.v3
    return ((f"server {limit.server.pid}" if named is None else named.name, "bold"),)


def _limit_row(limit: Limit, view: View) -> str:
    return "default" if limit.server is None else f"server {limit.server.pid} {user_text(limit.server)}"


def _limit_threads(limit: Limit, view: View, cells: int) -> Line:
    if limit.daemon.static_partitioning:
        return ((NO_EFFECT, "dim"),)
    if limit.percentage is None and limit.known:
        return (("none", "plain"),)
    sms = sm_text(limit.percentage, devices_of(limit.daemon, view.snapshot))
    return ((threads_text(format_percentage(limit.percentage), sms), "plain"),)


def _limit_threads_row(limit: Limit, view: View) -> str:
    none = "none" if limit.percentage is None and limit.known else None
    return NO_EFFECT if limit.daemon.static_partitioning else none or format_percentage(limit.percentage)


def _limit_memory(limit: Limit, view: View, cells: int) -> Line:
    return ((limits_text(limit.memory, limit.known, cells - 2, len(limit.daemon.ordinals)), "plain"),)


def _limit_memory_row(limit: Limit, view: View) -> str:
    """No limit is only "none" where the limits have been read."""
    shown = "  ".join(f"{ordinal}: {format_size(size)}" for ordinal, size in by_device(limit.memory))
    return shown or ("none" if limit.known else UNKNOWN)


def _limit_priority(limit: Limit, view: View) -> str:
    return "" if limit.server else priority_word(limit.daemon.default_client_priority)


def _limit_priority_cell(limit: Limit, view: View, cells: int) -> Line:
    return (("", "plain"),) if limit.server else priority_cell(limit.daemon.default_client_priority, cells)


LIMIT: Final[Thing[Limit]] = Thing(
    "limit",
    "The limits of new clients: of one server, or of servers that start from now on.",
    (
        Field(
            "server_pid", "server", INTEGER, lambda x, v: x.server.pid if x.server else None, null=True,
            about="null: the daemon's default, for servers that start from now on.",
            column=Column(10, 15, 99, "LIMITS", cell=_limit_name, gap=0), row=Text(10, "LIMITS", _limit_row),
        ),
        Field(
            "active_thread_percentage", "threads", SHARE, lambda x, v: x.percentage, null=True,
            column=Column(
                20, 18, 90, cell=_limit_threads, gap=2,
                mark=lambda x: x.kept("active_thread_percentage"), legend=OUTDATED_LEGEND,
            ),
            row=Text(30, "THREADS", _limit_threads_row),
        ),
        Field(
            "pinned_mem_limits", "memory limits", SIZES, lambda x, v: x.memory, about="By the daemon's device ordinal.",
            column=Column(
                30, 16, 80, "MEMORY/DEVICE", cell=_limit_memory, wide=26,
                mark=lambda x: x.kept("pinned_mem_limits"), legend=OUTDATED_LEGEND,
            ),
            row=Text(40, "MEMORY", _limit_memory_row), command=MEMORY_LIMIT,
        ),
        Field(
            "client_priority", "priority", INTEGER,
            lambda x, v: None if x.server else x.daemon.default_client_priority, null=True,
            about=f"{PRIORITY_WORDS}; the daemon has one for all, so that a server has null.",
            column=Column(
                40, 8, 70, gap=0, wide=12,
                cell=_limit_priority_cell,
            ),
            row=Text(50, "PRIORITY", _limit_priority), command=DEFAULT_PRIORITY,
        ),
        Field(
            "outdated_clients", "outdated clients", INTEGER, lambda x, v: x.outdated,
            about="Clients that connected before these limits were set, and keep older ones.",
        ),
        Field(
            "status", "status", TEXT, lambda x, v: x.server.status if x.server else None, null=True,
            about="The server's.",
            row=Text(20, "STATUS", lambda x, v: _status_row(x.server, v) if x.server else ""),
        ),
        Field(
            "clients", "clients", INTEGER,
            lambda x, v: len(x.server.clients) if x.server and x.server.clients_known else None, null=True,
            about="The number of the server's clients; null where there may be more than are known.",
            row=Text(60, "CLIENTS", lambda x, v: clients_text(x.server) if x.server else ""),
        ),
    ),
)  # fmt: skip


# A daemon.


def speaks_for(daemon: Daemon) -> str | None:
    """Whose processes may be ended on this daemon's word; None: nobody's."""
    if daemon.speaker.uid is None:
        return None
    return "everybody" if daemon.speaker.uid == 0 else login_name(daemon.speaker.uid)


def _claimant(daemon: Daemon) -> str | None:
    euid = os.geteuid()
    return None if daemon.usurped(euid) else daemon.claimant(euid)


HEALTH_STYLE: Final[Mapping[str, str]] = {"ok": "good", "held": "warn", "stale": "warn", "unknown": "warn"}


def _failed(daemon: Daemon) -> int | None:
    """Servers that failed one after the other; None where its logs, which alone tell of them, are not followed."""
    if daemon.start_failures is not None:
        return daemon.start_failures.count
    return None if daemon.runs and daemon.watch != "logs" else 0


def _health_facts(daemon: Daemon, view: View) -> Iterable[Fact]:
    if not daemon.cut_off and daemon.fault_word and (whose := daemon.claimant(os.geteuid())) is not None:
        yield Fact("health", _claimed(daemon.fault_word.removesuffix("?"), whose), "dim")
        return
    detail = f": {daemon.health_detail}" if daemon.health_detail else ""
    style = "bad" if daemon.cut_off or daemon.serves_nobody else HEALTH_STYLE.get(daemon.health, "bad")
    style = "warn" if daemon.condition.cause == "quitting" else style
    yield Fact("health", f"{daemon.state_word}{detail}", f"{style} bold")


def _holder_facts(daemon: Daemon, view: View) -> Iterable[Fact]:
    yield Fact("session held by", (daemon.holder and by_whom(daemon)) or UNKNOWN)


def _there_facts(daemon: Daemon, view: View) -> Iterable[Fact]:
    if daemon.pid_there is not None:
        yield Fact("PID there", f"{daemon.pid_there}, in its own PID namespace")


def _serves_facts(daemon: Daemon, view: View) -> Iterable[Fact]:
    whom = {True: "several users at once (-M)", False: "one user's clients at a time", None: UNKNOWN}
    yield Fact("serves", whom[daemon.multiuser])


def _client_count(daemon: Daemon) -> str:
    """``—`` where no daemon runs too: none was asked, and who computes there is not known."""
    if not daemon.runs or not daemon.servers_known:
        return UNKNOWN
    return at_least(sum(1 for _ in daemon.clients()), daemon.clients_known)


def _servers_facts(daemon: Daemon, view: View) -> Iterable[Fact]:
    none = "none" if daemon.runs and daemon.servers_known else UNKNOWN
    yield Fact("servers", ", ".join(str(server.pid) for server in daemon.servers) or none)
    yield Fact("clients", _client_count(daemon))


def _run_by_cell(daemon: Daemon, view: View, cells: int) -> Line:
    return user_cell(daemon, view, cells) if daemon.runs else ((UNKNOWN, "dim"),)


def _clients_cell(daemon: Daemon, view: View, cells: int) -> Line:
    return ((_client_count(daemon), "plain"),)


def _ordinals_facts(daemon: Daemon, view: View) -> Iterable[Fact]:
    found = [Fact(ordinal, f"{gpu_name(view, uuid)}  {uuid}") for ordinal, uuid in daemon.ordinals.items()]
    return found or [Fact("", daemon.lacking("device_query") or "none known")]


def _lacks_facts(daemon: Daemon, view: View) -> Iterable[Fact]:
    if daemon.lacks:
        yield Fact("does not know", ", ".join(sorted(daemon.lacks)))


def _watch_facts(daemon: Daemon, view: View) -> Iterable[Fact]:
    yield Fact("watched by", f"{daemon.watch}{f': {daemon.watch_detail}' if daemon.watch_detail else ''}")


START_FAILURES: Final[Thing[StartFailures]] = Thing(
    "start_failures",
    "Servers that have ended before they were ready, one after the other; over when one is ready.",
    (
        Field("count", "count", INTEGER, lambda s, v: s.count),
        Field("since", "since", TIME, lambda s, v: s.since, null=True),
        Field("last", "last", TIME, lambda s, v: s.last, null=True),
        Field("server_pid", "server", INTEGER, lambda s, v: s.server_pid, null=True, about="The latest one."),
        Field("uid", "UID", INTEGER, lambda s, v: s.uid, null=True, about="Whom it was for."),
        Field("reason", "reason", TEXT, lambda s, v: s.reason, null=True, about="The server's own words."),
    ),
)


HOLDER: Final[Thing[SessionHolder]] = Thing(
    "holder",
    "The process that keeps a control session open and so shuts everybody else out.",
    (
        Field("pid", "PID", INTEGER, lambda h, v: h.pid),
        Field("user", "user", TEXT, lambda h, v: h.user, null=True),
        Field("terminal", "terminal", TEXT, lambda h, v: h.terminal, null=True),
        Field("certain", "certain", FLAG, lambda h, v: h.certain, about="false: it is probably this process."),
    ),
)


def _clients_in(partition: SmPartition, view: View) -> tuple[Client, ...]:
    return view.daemon.clients_in(partition) if view.daemon is not None else ()


def _in_use_row(partition: SmPartition, view: View) -> str:
    return UNKNOWN if partition.in_use is None else "yes" if partition.in_use else "no"


def _client_row(partition: SmPartition, view: View) -> str:
    return ", ".join(f"{c.pid} {user_text(c)}" for c in _clients_in(partition, view)) or UNKNOWN


def _device_row(uuid: str, view: View) -> str:
    index = view.indices.get(uuid)
    return uuid if index is None else f"{index} {uuid}"


CHUNKS: Final[Thing[Chunks]] = Thing(
    "chunks",
    "A device as a daemon with static SM partitions divides it.",
    (
        Field(
            "device_uuid", "device", TEXT, lambda c, v: c.device, about="As printed, where no one device begins so.",
            row=Text(10, "DEVICE", lambda c, v: _device_row(c.device, v)),
        ),
        Field("chunks_free", "free chunks", INTEGER, lambda c, v: c.free, row=Text(20, "FREE CHUNKS")),
        Field("chunks_used", "used chunks", INTEGER, lambda c, v: c.used, row=Text(30, "USED")),
        Field(
            "sms_free", "SMs in no partition", INTEGER, lambda c, v: c.free_sms, null=True,
            row=Text(40, "SMS IN NO PARTITION"),
            about="Free SMs as lspart prints them, also those that belong to no chunk, which no partition can use.",
        ),
        Field("sms_used", "used SMs", INTEGER, lambda c, v: c.used_sms, null=True, row=Text(50, "USED")),
        Field(
            "sms_per_chunk", "SMs a chunk", INTEGER,
            lambda c, v: t.sms_per_chunk(c.device) if v.daemon and (t := v.daemon.partitions) else None, null=True,
            row=Text(60, "SMS A CHUNK"), about="Read from what is in partitions; null: nothing is, or it differs.",
        ),
    ),
)  # fmt: skip


PARTITION: Final[Thing[SmPartition]] = Thing(
    "partition",
    "SMs of a device that are set aside for the clients that name them.",
    (
        Field(
            "name", "partition", TEXT, lambda p, v: p.name, row=Text(10, "PARTITION"),
            about="What a client has in CUDA_MPS_SM_PARTITION; good until the daemon ends.",
        ),
        Field("id", "id", TEXT, lambda p, v: p.id),
        Field("device_uuid", "device", TEXT, lambda p, v: p.device),
        Field("chunks", "chunks", INTEGER, lambda p, v: p.chunks, null=True, row=Text(20, "CHUNKS")),
        Field("sm_count", "SMs", INTEGER, lambda p, v: p.sm_count, null=True, row=Text(30, "SMS")),
        Field(
            "in_use", "in use", FLAG, lambda p, v: p.in_use, null=True, row=Text(40, "IN USE", _in_use_row),
            about="Whether it has clients, by the daemon's word.",
        ),
        Field(
            "clients", "clients", INTEGERS, lambda p, v: [c.pid for c in _clients_in(p, v)],
            row=Text(50, "CLIENTS", _client_row), about="PIDs of those whose own environment names it: their claim.",
        ),
    ),
)  # fmt: skip


PARTITIONS: Final[Thing[PartitionTable]] = Thing(
    "partitions",
    "The static SM partitions of a daemon.",
    (
        Field("devices", "devices", OBJECTS, lambda t, v: t.devices, of=CHUNKS),
        Field("partitions", "partitions", OBJECTS, lambda t, v: t.partitions, of=PARTITION),
        Field(
            "not_understood",
            "not understood",
            TEXTS,
            lambda t, v: list(t.not_understood),
            about="Lines of the daemon's answer that are none of the known forms.",
        ),
    ),
)


def _owner_name(thing: V3Server | Namespace, view: View) -> str:
    node = view.daemon.v3 if view.daemon is not None else None
    if isinstance(thing, Namespace):
        return str(len(node.clients_of(thing.server, thing.name))) if node is not None else UNKNOWN
    return str(len(node.clients_of(thing.name))) if node is not None else UNKNOWN


def _space_limit(space: Namespace, text: str | None) -> str:
    return text if text is not None else "none"


def _space_threads(space: Namespace, view: View) -> str:
    value = space.active_thread_percentage
    return _space_limit(space, None if value is None else format_percentage(value))


NAMESPACE: Final[Thing[Namespace]] = Thing(
    "namespace",
    "A part of a server of a daemon of MPS protocol 3, with limits of its own and nothing of the server's.",
    (
        Field("server", "server", TEXT, lambda n, v: n.server, row=Text(10, "SERVER")),
        Field("name", "namespace", TEXT, lambda n, v: n.name, row=Text(20, "NAMESPACE")),
        Field("server_status", "server's status", TEXT, lambda n, v: n.server_status, null=True),
        Field(
            "active_thread_percentage", "threads", SHARE, lambda n, v: n.active_thread_percentage, null=True,
            about="Comes before the client's own variable, higher or lower. null: none is set.",
            row=Text(
                30, "THREADS",
                _space_threads,
            ),
        ),
        Field(
            "pinned_mem_limit", "memory limit", TEXT, lambda n, v: n.pinned_mem_limit, null=True,
            about="As the daemon prints it; a client's own variable lowers it. null: none is set.",
            row=Text(40, "MEMORY", lambda n, v: _space_limit(n, n.pinned_mem_limit)),
        ),
        Field(
            "client_priority", "priority", INTEGER, lambda n, v: n.client_priority, null=True,
            row=Text(50, "PRIORITY", lambda n, v: "" if n.client_priority is None else priority(n.client_priority)),
        ),
        Field(
            "clients", "clients", INTEGER,
            lambda n, v: len(v.daemon.v3.clients_of(n.server, n.name)) if v.daemon and v.daemon.v3 else None, null=True,
            row=Text(60, "CLIENTS", _owner_name),
        ),
        Field(
            "pipe_dir", "pipe directory", TEXT, lambda n, v: n.pipe_dir, null=True, row=Text(70, "PIPE DIRECTORY"),
            about="What its clients have in CUDA_MPS_PIPE_DIRECTORY.",
        ),
        Field("more", "more", WORDS, lambda n, v: n.more, about="Columns that this mpstui does not know."),
    ),
)  # fmt: skip


V3_SERVER: Final[Thing[V3Server]] = Thing(
    "v3_server",
    "A server of a daemon of MPS protocol 3, by its name; it may be without a process.",
    (
        Field("name", "name", TEXT, lambda s, v: s.name, row=Text(10, "SERVER")),
        Field("uid", "UID", INTEGER, lambda s, v: s.uid, null=True, row=Text(20, "UID")),
        Field("pid", "PID", INTEGER, lambda s, v: s.pid, null=True, row=Text(30, "PID")),
        Field("status", "status", TEXT, lambda s, v: s.status, null=True, row=Text(40, "STATUS")),
        Field(
            "allowed_devices", "allowed devices", TEXT, lambda s, v: s.allowed_devices, null=True,
            row=Text(50, "DEVICES"),
        ),
        Field("pipe_dir", "pipe directory", TEXT, lambda s, v: s.pipe_dir, null=True, row=Text(60, "PIPE DIRECTORY")),
        Field("more", "more", WORDS, lambda s, v: s.more, about="Columns that this mpstui does not know."),
    ),
)  # fmt: skip


V3_DEVICE: Final[Thing[V3Device]] = Thing(
    "v3_device",
    "A device of a server of a daemon of MPS protocol 3.",
    (
        Field("ordinal", "ordinal", TEXT, lambda d, v: d.ordinal, null=True, row=Text(10, "ORDINAL")),
        Field("server", "server", TEXT, lambda d, v: d.server, null=True, row=Text(20, "SERVER")),
        Field("uuid", "UUID", TEXT, lambda d, v: d.uuid, null=True, row=Text(30, "DEVICE")),
        Field("name", "name", TEXT, lambda d, v: d.name, null=True, row=Text(40, "NAME")),
        Field("sm_count", "SMs", INTEGER, lambda d, v: d.sm_count, null=True, row=Text(50, "SMS")),
        Field("chunks", "chunks", INTEGER, lambda d, v: d.chunks, null=True, row=Text(60, "CHUNKS")),
        Field("attributes", "attributes", TEXT, lambda d, v: d.attributes, null=True),
        Field("more", "more", WORDS, lambda d, v: d.more, about="Columns that this mpstui does not know."),
    ),
)  # fmt: skip


V3_PARTITION: Final[Thing[V3Partition]] = Thing(
    "v3_partition",
    "SMs of a device that are set aside, of a daemon of MPS protocol 3.",
    (
        Field("server", "server", TEXT, lambda p, v: p.server, null=True, row=Text(10, "SERVER")),
        Field("name", "name", TEXT, lambda p, v: p.name, null=True, row=Text(20, "PARTITION")),
        Field("device", "device", TEXT, lambda p, v: p.device, null=True, row=Text(30, "DEVICE")),
        Field("chunks", "chunks", INTEGER, lambda p, v: p.chunks, null=True, row=Text(40, "CHUNKS")),
        Field("sm_count", "SMs", INTEGER, lambda p, v: p.sm_count, null=True, row=Text(50, "SMS")),
        Field("include_remainder", "with the remainder", FLAG, lambda p, v: p.include_remainder, null=True),
        Field("status", "status", TEXT, lambda p, v: p.status, null=True, row=Text(60, "STATUS")),
        Field(
            "visible_uuid", "visible UUID", TEXT, lambda p, v: p.visible_uuid, null=True,
            about="What a client has in CUDA_MPS_SM_PARTITION.", row=Text(70, "CUDA_MPS_SM_PARTITION"),
        ),
        Field("more", "more", WORDS, lambda p, v: p.more, about="Columns that this mpstui does not know."),
    ),
)  # fmt: skip


V3: Final[Thing[V3Node]] = Thing(
    "v3",
    "What a daemon of MPS protocol 3 tells, as documented.",
    (
        Field("servers", "servers", OBJECTS, lambda n, v: n.servers, of=V3_SERVER),
        Field("namespaces", "namespaces", OBJECTS, lambda n, v: n.namespaces, of=NAMESPACE),
        Field("devices", "devices", OBJECTS, lambda n, v: n.devices, of=V3_DEVICE),
        Field("sm_partitions", "SM partitions", OBJECTS, lambda n, v: n.partitions, of=V3_PARTITION),
        Field("features", "features", TEXTS, lambda n, v: list(n.features), about="As the daemon prints them."),
        Field("not_read", "not read", WORDS, lambda n, v: n.not_read, about="Lists that could not be read, and why."),
        Field(
            "not_understood",
            "not understood",
            TEXTS,
            lambda n, v: list(n.not_understood),
            about="Rows that are none of the known forms.",
        ),
    ),
)


def _v3_daemon_facts(daemon: Daemon, view: View) -> Iterable[Fact]:
    if daemon.v3 is not None:
        yield Fact("namespaces", ", ".join(f"{n.server}/{n.name}" for n in daemon.v3.namespaces) or "none")


def _partition_facts(daemon: Daemon, view: View) -> Iterable[Fact]:
    if not daemon.static_partitioning:
        return
    if daemon.partitions is None:
        yield Fact("static partitions", f"not known: {daemon.partitions_detail or 'not read yet'}", "warn")
        return
    used, free = sum(d.used for d in daemon.partitions.devices), sum(d.free for d in daemon.partitions.devices)
    yield Fact("static partitions", f"{len(daemon.partitions.partitions)}  {plural(used, 'chunk')} used, {free} free")


PENDING: Final[Thing[PendingClient]] = Thing(
    "pending",
    "A process that waits for a server.",
    (
        Field(
            "pid", "PID", INTEGER, lambda p, v: p.pid, null=True,
            about="null: it is in a PID namespace that the daemon does not see.",
            metric=Metric("clients_pending", "Processes that wait for a server.", lambda p, v: 1),
        ),
        Field("uid", "UID", INTEGER, lambda p, v: p.uid, null=True),
        Field("user", "user", TEXT, lambda p, v: p.user, null=True),
        Field("command", "command", TEXT, lambda p, v: p.command, null=True),
        Field(
            "since", "since", TIME, lambda p, v: p.since, null=True,
            metric=Metric(
                "clients_pending_since_timestamp_seconds", "Since when the one that has waited longest waits.", fold=min
            ),
        ),
        Field(
            "server_pid", "server", INTEGER, lambda p, v: p.server_pid, null=True,
            about="The server that has to end first; null: one is being started.",
        ),
    ),
)  # fmt: skip


_DAEMON_INFO: Final = Metric("daemon_info", "What the control daemon is.", info=True)


DAEMON: Final[Thing[Daemon]] = Thing(
    "daemon",
    "A control daemon, or the place where one is expected.",
    (
        Field(
            "pid", "PID", INTEGER, lambda d, v: d.pid, null=True, detail=Detail("daemon", 60),
            column=Column(20, 10, 50),
            metric=Metric(
                "daemon_up", "Whether a control daemon runs there; mps_daemon_state tells whether it answers.",
                lambda d, v: d.pid is not None,
            ),
        ),
        Field("uid", "UID", INTEGER, lambda d, v: d.uid, null=True),
        Field(
            "pipe_dir", "pipe directory", PATH, lambda d, v: d.pipe_dir, detail=Detail("daemon", 40),
            column=Column(60, 24, 100, "DIRECTORY"),
        ),
        Field("log_dir", "log directory", PATH, lambda d, v: d.log_dir, null=True, detail=Detail("daemon", 50)),
        Field(
            "protocol", "protocol", TEXT, lambda d, v: d.protocol, null=True,
            about="legacy (commands on standard input) or v3; unknown: neither, and it is sent nothing.",
            detail=Detail("daemon", 100),
            metric=_DAEMON_INFO,
        ),
        Field(
            "version", "version", TEXT, lambda d, v: d.version, null=True, detail=Detail("daemon", 90),
            metric=_DAEMON_INFO,
        ),
        Field(
            "lacks", "does not know", TEXTS, lambda d, v: sorted(d.lacks),
            about="Commands that it does not know, because its driver is older than they are.",
            detail=Detail("daemon", 95, facts=_lacks_facts),
        ),
        Field(
            "multiuser", "several users", FLAG, lambda d, v: d.multiuser, null=True,
            detail=Detail("daemon", 120, facts=_serves_facts),
            metric=_DAEMON_INFO,
        ),
        Field(
            "speaks_for", "trusted for", TEXT, lambda d, v: speaks_for(d), null=True,
            about="The users whose processes mpstui may end when this daemon names them as clients: one user, or all; "
            "null: none.",
        ),
        Field(
            "claimant", "word of", TEXT, lambda d, v: _claimant(d), null=True,
            about="Another user, who alone confirms what this daemon says; null: you need nobody else to confirm it.",
            metric=_DAEMON_INFO,
        ),
        Field(
            "static_partitioning", "static partitions", FLAG, lambda d, v: d.static_partitioning, null=True,
            about="Whether it was started with -S; then percentages have no effect, and each client names a partition.",
            detail=Detail("daemon", 110),
        ),
        Field(
            "v3", "protocol 3", OBJECT, lambda d, v: d.v3, null=True, of=V3,
            about="Servers, namespaces, devices and partitions by their names; null: it runs another protocol.",
            detail=Detail("daemon", 115, facts=_v3_daemon_facts),
        ),
        Field(
            "sm_partitions", "SM partitions", OBJECT, lambda d, v: d.partitions, null=True, of=PARTITIONS,
            about="null: it has none, or they are not known.", detail=Detail("daemon", 112, facts=_partition_facts),
        ),
        Field(
            "sm_partitions_detail", "why not known", TEXT, lambda d, v: d.partitions_detail, null=True,
            about="Why its partitions are not known.",
        ),
        Field(
            "read_only", "read-only", TEXT, lambda d, v: d.unspoken, null=True,
            about="Why it is shown and sent no command; null: it is sent commands.",
        ),
        Field(
            "health", "health", enum(KnownHealth), lambda d, v: None if d.health == "unknown" else d.health, null=True,
            about="ok: it answers. held: somebody keeps a control session open. blocked: the daemon answers nobody. "
            "stale: files of a daemon that is gone. absent: nothing there. null: it runs, and whether it answers is "
            "not known; where the cause is closed, it is not known either whether it runs.",
            detail=Detail("daemon", 10, facts=_health_facts),
            column=Column(10, 13, 90, cell=lambda d, v, cells: (health_word(d, claimant=d.claimant(os.geteuid())),)),
            metric=Metric(
                "daemon_state", "The state of the control daemon is 1, the others are 0; no sample while whether it "
                "answers is not known.",
            ),
        ),
        Field(
            "cause", "cause", enum(Cause), lambda d, v: d.condition.cause,
            about="Why its health is so. none: it is well.",
        ),
        Field(
            "since", "since", TIME, lambda d, v: d.condition.since, null=True,
            about="Since when it is held, blocked or gone, as far as its logs tell.",
            metric=Metric("daemon_state_since_timestamp_seconds", "Since when it is held, blocked or gone."),
        ),
        Field(
            "freed_by", "freed by", TEXT, lambda d, v: d.condition.frees or None, null=True,
            about="The operation that makes it answer again: unblock, daemon_start.",
        ),
        Field(
            "ends", "has to end", INTEGERS, lambda d, v: [key.pid for key in d.condition.ends],
            about="The processes that have to end before it answers again.",
        ),
        Field("health_detail", "health in words", TEXT, lambda d, v: d.health_detail, null=True),
        Field(
            "watch", "watched by", enum(Watched), lambda d, v: d.watch,
            about="How changes are noticed.", detail=Detail("daemon", 130, facts=_watch_facts),
        ),
        Field("watch_detail", "why watched so", TEXT, lambda d, v: d.watch_detail, null=True),
        Field(
            "default_active_thread_percentage", "default threads", SHARE,
            lambda d, v: d.default_active_thread_percentage, null=True,
            detail=Detail("defaults", 10, facts=default_facts),
            metric=Metric(
                "daemon_default_active_thread_ratio", "Share of the SMs for clients of new servers.",
                lambda d, v: None if d.static_partitioning else d.default_active_thread_percentage,
            ),
        ),
        Field(
            "default_client_priority", "default priority", INTEGER._replace(text=priority),
            lambda d, v: d.default_client_priority, null=True,
            about=f"{PRIORITY_WORDS}.", command=DEFAULT_PRIORITY,
        ),
        Field(
            "default_pinned_mem_limits", "default memory limits", SIZES, lambda d, v: d.default_pinned_mem_limits,
            about="By the daemon's device ordinal.", command=MEMORY_LIMIT,
            metric=Metric("daemon_default_memory_limit_bytes", "Memory limit for clients of new servers."),
        ),
        Field(
            "inherited_pinned_mem_limits", "inherited memory limits", SIZES, lambda d, v: d.inherited_mem_limits,
            about="Named by the daemon's environment: no client of driver 580 gets them.",
        ),
        Field(
            "start_failures", "start failures", OBJECT, lambda d, v: d.start_failures, null=True, of=START_FAILURES,
            row=Text(20, "START FAILURES", lambda d, v: UNKNOWN if (n := _failed(d)) is None else str(n)),
            about="null: the latest server became ready, or none was started, or its logs, which tell it, are not "
            "followed.",
            metric=Metric(
                "server_consecutive_start_failures", "Servers that ended before they were ready, one after the other.",
                lambda d, v: _failed(d),
            ),
        ),
        Field(
            "servers", "servers", OBJECTS, lambda d, v: d.servers, of=SERVER,
            detail=Detail("daemon", 140, facts=_servers_facts),
            column=Column(50, 9, 40, "CLIENTS", cell=_clients_cell, align=">"),
        ),
        Field(
            "user", "user", TEXT, lambda d, v: d.user, null=True, detail=Detail("daemon", 70, facts=who),
            column=Column(30, 12, 60, cell=_run_by_cell),
            metric=_DAEMON_INFO,
        ),
        Field(
            "pid_there", "PID in its namespace", INTEGER, lambda d, v: d.pid_there, null=True,
            about="null: it is in this PID namespace.", detail=Detail("daemon", 65, facts=_there_facts),
        ),
        Field(
            "where", "where", TEXT, lambda d, v: (d.where.text() or None) if d.where else None, null=True,
            about="Its pod, job, unit or container.", detail=Detail("daemon", 75, facts=where_facts),
        ),
        Field(
            "start_time", "started", TIME, lambda d, v: d.start_time, null=True,
            detail=Detail("daemon", 80, facts=partial(started, "started")),
            column=Column(40, 7, 30, "UP", cell=age_cell),
            metric=Metric("daemon_start_time_seconds", "When the control daemon was started."),
        ),
        Field(
            "remedy", "remedy", TEXT, lambda d, v: d.remedy, null=True, about="What to do where its health is not ok.",
            detail=Detail("daemon", 20, facts=lambda d, v: (Fact("remedy", d.remedy, "warn"),) if d.remedy else ()),
        ),
        Field(
            "holder", "session held by", OBJECT, lambda d, v: d.holder, null=True, of=HOLDER,
            row=Text(30, "HOLDER", lambda d, v: str(d.holder.pid) if d.holder else UNKNOWN),
            detail=Detail("daemon", 30, facts=_holder_facts),
        ),
        Field(
            "ordinals", "devices", WORDS, lambda d, v: d.ordinals, about="The daemon's device ordinal to UUID.",
            detail=Detail("devices", 10, facts=_ordinals_facts),
        ),
        Field(
            "limits", "limits", OBJECTS, lambda d, v: limits_of(d), of=LIMIT,
            about="The default first, then each server's.",
        ),
        Field(
            "pending", "pending", OBJECTS, lambda d, v: d.pending, of=PENDING,
            about="Who waits for a server, in the order in which they came.",
        ),
    ),
    {
        "daemon": lambda d, v: "Simulated" if d.simulated else "Daemon",
        "defaults": heading("Defaults for new servers"),
        "devices": heading("Devices, by the daemon's ordinal"),
    },
    view=lambda daemon, view: View.of(view.snapshot, daemon),
)  # fmt: skip
