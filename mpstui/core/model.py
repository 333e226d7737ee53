"""Frozen values of an MPS node; no I/O. Units: bytes, percent, seconds; times are seconds since the epoch.

``None`` means *not known* everywhere in this module and is shown as ``—``; it never means zero.
"Fact N" refers to the numbered recordings of a real daemon that this program is built on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from mpstui.core.late import dataclass
from mpstui.core.text import UNKNOWN, device_keys, listed, nouns, owner, printable
from mpstui.core.trust import NOBODY, Speaker, is_lying, is_usurped, may_signal, usurpation, whose_word
from mpstui.core.v3 import V3Node, V3Server
from mpstui.core.where import Where

KnownHealth = Literal["ok", "held", "blocked", "stale", "absent"]
Health = Literal[KnownHealth, "unknown"]
"""``ok``: it answers. ``held``: somebody keeps a control session open (fact 2). ``blocked``: the daemon answers nobody
(fact 16). ``stale``: files of a daemon that is gone (fact 3). ``absent``: nothing there. ``unknown``: it runs, and
whether it answers is not known, as nobody has asked it yet or can ask it, or whether it runs is not known; null in
JSON."""
_NOBODY: Final = frozenset(("not_asked", "not_found"))
"""Causes of a condition with which nobody is there who may answer."""
Cause = Literal[
    "none",
    "unasked",
    "starting",
    "busy",
    "not_asked",
    "not_found",
    "not_spoken",
    "held",
    "terminated_twice",
    "quitting",
    "silent",
    "gone",
    "absent",
    "closed",
]
"""Why a daemon is as it is; see ``mpstui.core.condition``."""
ClientState = Literal["ACTIVE", "INACTIVE", "TERMINATED"]
"""``INACTIVE``: connected without a context. ``TERMINATED``: its contexts were ended, its process lives (fact 15)."""
Source = Literal["real", "simulated"]
Watched = Literal["logs", "polling", "none"]
Severity = Literal["info", "warning", "error"]
EventKind = Literal[
    "daemon_started",
    "daemon_exited",
    "server_starting",
    "server_ready",
    "server_failed",
    "server_exited",
    "server_shutdown_waiting",
    "server_error",
    "server_context",
    "client_request",
    "client_connected",
    "context_active",
    "context_inactive",
    "context_closed",
    "client_disconnected",
    "client_pending",
    "client_admitted",
    "client_refused",
    "client_evicted",
    "debuggee",
    "connection_failed",
    "daemon_error",
    "terminate_requested",
    "terminate_succeeded",
    "fatal_fault",
    "server_recovered",
    "xid",
    "limit_set",
    "limit_ignored",
    "session_opened",
    "session_closed",
    "command",
    "unknown",
]

CONTEXT_LIMIT: Final = 48
"""Contexts a device takes on Volta and later: the 49th client gets error 46 (fact 13)."""

PERCENTAGE_VARIABLE: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MEMORY_VARIABLE: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
PRIORITY_VARIABLE: Final = "CUDA_MPS_CLIENT_PRIORITY"
PARTITION_VARIABLE: Final = "CUDA_MPS_SM_PARTITION"
DEVICES_VARIABLE: Final = "CUDA_VISIBLE_DEVICES"
LIMIT_VARIABLES: Final = (PERCENTAGE_VARIABLE, MEMORY_VARIABLE, PRIORITY_VARIABLE)
"""Of a daemon's environment, those that set limits."""

EMPTY: Final[Mapping[Any, Any]] = MappingProxyType({})


def empty() -> Mapping[Any, Any]:
    """The one empty mapping, as a dataclass default."""
    return EMPTY


@dataclass(frozen=True, slots=True)
class ProcessKey:
    """A process as long as it lives: the PID and the kernel's start time in clock ticks since boot."""

    pid: int
    start_ticks: int | None = None

    def may_be(self, other: ProcessKey) -> bool:
        """Whether both can mean one process: of one whose start is not known yet, the PID is all there is."""
        return self.pid == other.pid and (self.start_ticks is None or other.start_ticks in {None, self.start_ticks})

    def among(self, keys: Collection[ProcessKey]) -> ProcessKey | None:
        """The key that this process has among those of now: its start may have become known, or be known no more."""
        return self if self in keys else next((each for each in keys if each.may_be(self)), None)


@dataclass(frozen=True, slots=True)
class Context:
    """One CUDA context of a client on one device."""

    id: int
    device_uuid: str | None = None


@dataclass(frozen=True, slots=True)
class Activity:
    """How often a process launches kernels, counted from outside (facts 41, 49). Launches are not SM time: NVML has no
    SM activity of single MPS clients (fact 40)."""

    launches_per_second: float | None = None
    """In the last window; None where it is not counted."""
    rates: tuple[float, ...] = ()
    """Of the last windows, oldest first."""
    idle_since: float | None = None
    """The end of the last window in which it launched, or the begin of the first one; None while it launches, and where
    it is not counted."""
    seen_launching: bool = False
    """Whether it has launched since it was watched first."""
    watched: float | None = None
    """The part of the time since ``idle_since`` that was looked at, up to 1."""
    why: str = ""
    """Why it is not counted."""


class OldLimit(NamedTuple):
    """A limit that a client keeps, and would get anew if it connected now."""

    name: Literal["active_thread_percentage", "pinned_mem_limits"]
    """The field of the client."""
    kept: float | None
    """Percent, or bytes; None: no limit."""
    now: float | None
    device: str | None = None
    """Of memory: the server's device ordinal."""


@dataclass(frozen=True, slots=True)
class Client:
    """One client process of a server."""

    key: ProcessKey
    server_pid: int | None = None
    id: int | None = None
    """The running number that ``ps`` prints."""
    start_time: float | None = None
    uid: int | None = None
    user: str | None = None
    command: str | None = None
    """Printable: control characters were made visible before they got here."""
    pid_namespace: int | None = None
    container: str | None = None
    where: Where | None = None
    """Where its process belongs: pod, container, job, unit; None where nothing tells."""
    pid_here: int | None = None
    """Of one that is not ``local``: the PID in this namespace of the process that the kernel joins with what the daemon
    says, its number and its namespace's inode. It is to be looked at, and nothing is signalled for it."""
    state: ClientState = "ACTIVE"
    contexts: tuple[Context, ...] = ()
    gpu_memory: Mapping[str, int] = field(default_factory=empty)
    """Bytes by device UUID."""
    cpu_percent: float | None = None
    active_thread_percentage: float | None = None
    percentage_at_most: bool = False
    """Whether that is what its server gave it, and its own setting, which may be lower, is not known."""
    percentage_known: bool = False
    """Of a daemon of protocol 3: whether no percentage means that none is set; else it is not known."""
    sm_count: int | None = None
    sm_count_estimated: bool = False
    pinned_mem_limits: Mapping[str, int] = field(default_factory=empty)
    """Bytes by the server's device ordinal."""
    memory_limit_known: bool = False
    """Whether a device that is not in ``pinned_mem_limits`` has no limit; else it is not known."""
    client_priority: int | None = None
    limit_source: Mapping[str, str] = field(default_factory=empty)
    """Limit name to where it came from: ``server``, ``client``, ``default``."""
    old_limits: tuple[OldLimit, ...] = ()
    """Those that it keeps because it connected before the server's present ones were set."""
    terminate_requested: bool = False
    """terminate_client was sent for this process, by anybody: it must never be sent again (fact 16)."""
    local: bool = True
    """Whether its number is proved to be a PID of this PID namespace. Where not, it is shown with what the daemon says
    alone: there is no start time, no user, no command, and nothing here may be signalled for it."""
    sm_partition: str | None = None
    """The static partition that its own environment names, of a daemon that has such: a claim, printable."""
    namespace: str | None = None
    """The namespace of its server that it connected to, of a daemon of protocol 3."""
    listed: bool | None = None
    """Whether NVML lists it among the clients of MPS, as it also does once its contexts are lost; None where
    NVML does not say."""
    activity: Activity | None = None
    """None where launches are not watched."""

    @property
    def pid(self) -> int:
        return self.key.pid

    @property
    def outdated_limits(self) -> bool:
        """Whether it keeps an old limit."""
        return bool(self.old_limits)

    @property
    def device_uuids(self) -> frozenset[str]:
        """Every device it is known to be on, by context or by memory."""
        return frozenset(c.device_uuid for c in self.contexts if c.device_uuid) | frozenset(self.gpu_memory)


@dataclass(frozen=True, slots=True)
class ServerFault:
    """A fatal fault that lasts: new clients are refused until the last of ``affected`` has ended (fact 18)."""

    since: float | None
    named: tuple[int, ...]
    """PIDs that server.log names, which is not proof: with busy neighbours it names an innocent one (fact 36), and
    after a bare ``kill -9`` too (fact 17). Empty where it names nobody (fact 37)."""
    affected: tuple[ProcessKey, ...]
    """Clients that have lost their contexts and whose processes still live."""
    ended: tuple[int, ...] = ()
    """PIDs of clients that were hit and have ended since."""
    devices: tuple[str, ...] = ()
    """The server's ordinals."""
    refused: int = 0
    """Connections refused because of it; a client that tries again counts again."""
    confirmed: bool = True
    """Whether the daemon itself, asked since, has said that the server is in FAULT, and its word is enough for all of
    ``affected``. Until then it is the log's word."""
    doubt: str = ""
    """Why the daemon's word is not enough, as a clause; empty where it is, or where it has not said so."""
    ended_nearby: tuple[int, ...] = ()
    """PIDs of clients that were not hit and whose processes ended at the time of the fault: if one of them was killed,
    it is the cause (fact 17)."""
    suspects: tuple[int, ...] = ()
    """PIDs of every client that may have made it: all that had a context on its devices."""
    cut: bool = False
    """Its begin, with whom server.log names, was not in what was read of that."""


@dataclass(frozen=True, slots=True)
class PendingClient:
    """A process that waits for a server, mostly because one of another user runs (fact 21)."""

    key: ProcessKey | None
    """None for one in a PID namespace that the daemon does not see: it says PID 0, which is no process."""
    uid: int | None = None
    user: str | None = None
    command: str | None = None
    since: float | None = None
    server_pid: int | None = None
    """The server that has to end first; None where one is only being started."""
    waits_for: tuple[int, ...] = ()
    """PIDs of that server's clients."""
    elsewhere: int = 0
    """The how many-th of those without a PID it is, from 1; 0 for one with a PID."""
    local: bool = True
    """As of a client."""

    @property
    def pid(self) -> int | None:
        return self.key.pid if self.key else None


@dataclass(frozen=True, slots=True)
class StartFailures:
    """Servers that have ended before they were ready, one after the other; over when one is ready."""

    count: int
    since: float | None = None
    last: float | None = None
    server_pid: int | None = None
    """The latest one."""
    uid: int | None = None
    """Whom it was for."""
    reason: str | None = None
    """A server's own words, printable, the latest; None where none left any."""
    reason_pid: int | None = None
    """Whose words those are."""


@dataclass(frozen=True, slots=True)
class LostClient:
    """A process whose server or daemon ended under it: each of its CUDA calls gives error 806 (fact 19)."""

    key: ProcessKey
    server_pid: int
    uid: int | None = None
    user: str | None = None
    command: str | None = None
    since: float | None = None
    local: bool = True
    """As of a client."""

    @property
    def pid(self) -> int:
        return self.key.pid


OutsideReason = Literal["before_daemon", "pipe_dir", "visible_devices", "uid", "unknown"]


@dataclass(frozen=True, slots=True)
class OutsideClient:
    """A process that computes on a daemon's device without being a client of MPS (NVML lists it, fact 9)."""

    key: ProcessKey
    device_uuids: tuple[str, ...]
    gpu_memory: int | None = None
    uid: int | None = None
    user: str | None = None
    command: str | None = None
    start_time: float | None = None
    reason: OutsideReason = "unknown"
    """The likely one."""
    detail: str = ""
    """The reason in words."""

    @property
    def pid(self) -> int:
        return self.key.pid


@dataclass(frozen=True, slots=True)
class Server:
    """One nvidia-cuda-mps-server."""

    key: ProcessKey
    uid: int | None = None
    user: str | None = None
    status: str | None = None
    """The daemon's own word: ``ACTIVE``, ``FAULT``, ``INITIALIZING``, …"""
    start_time: float | None = None
    active_thread_percentage: float | None = None
    pinned_mem_limits: Mapping[str, int] = field(default_factory=empty)
    clients: tuple[Client, ...] = ()
    ending: bool = False
    """It was told to end and waits for its clients, as its daemon's logs say."""
    ending_since: float | None = None
    """When they first said so; None where that is not known."""
    fault: ServerFault | None = None
    v3: V3Server | None = None
    """Its name and directories, of a daemon of protocol 3."""
    clients_elsewhere: int = 0
    """Clients in PID namespaces that the daemon does not see, which have no PID here and are not among ``clients``."""
    clients_known: bool = True
    """False where there may be more: logs alone tell of them, which do not reach back to its start, or name nobody."""

    @property
    def pid(self) -> int:
        return self.key.pid


@dataclass(frozen=True, slots=True)
class SessionHolder:
    """The process that keeps a control session open and so shuts everybody else out (fact 2)."""

    pid: int
    user: str | None = None
    terminal: str | None = None
    certain: bool = True
    """False where its pipe directory could not be read and it is only the likely one."""
    start_ticks: int | None = None
    uid: int | None = None

    @property
    def key(self) -> ProcessKey:
        return ProcessKey(self.pid, self.start_ticks)


@dataclass(frozen=True, slots=True)
class Condition:
    """How a daemon is, in words; ``mpstui.core.condition`` makes it, and nobody else."""

    health: Health = "absent"
    cause: Cause = "absent"
    title: str = ""
    """A heading for it."""
    detail: str | None = None
    """What is the matter, one clause; None where there is nothing to say."""
    meaning: str = ""
    """What follows from it, whole sentences."""
    remedy: str | None = None
    since: float | None = None
    """Since when it is held, blocked or gone, as far as its logs tell."""
    holder: SessionHolder | None = None
    """By whom it is held."""
    ends: tuple[ProcessKey, ...] = ()
    """The processes that have to end to free it."""
    frees: Literal["", "unblock", "daemon_start"] = ""
    """The operation that frees it: ``unblock`` ends exactly those in ``ends``."""
    works: str = ""
    """What goes on all the same."""
    answered_at: float | None = None
    """From when what is shown of its servers and clients is; None where it answers, or never has."""
    cut_off: bool = False
    """Whether what is in the place of its sockets is another user's, or one is not there, for who looks: it may answer
    root, and yet no program is sure to reach it."""


@dataclass(frozen=True, slots=True)
class SmPartition:
    """SMs of a device that were set aside for the clients that name them: one row of ``lspart``."""

    device: str
    """The device's UUID; as printed where no device of the node, or several, begin with that."""
    id: str
    """The daemon's own name for it; good until the daemon ends."""
    chunks: int | None = None
    sm_count: int | None = None
    in_use: bool | None = None
    """Whether it has clients, by the daemon's word."""

    @property
    def name(self) -> str:
        """What its clients have in CUDA_MPS_SM_PARTITION."""
        return f"{self.device}/{self.id}"

    def is_named(self, text: str) -> bool:
        """Whether ``text`` means it: its id, or its id behind the beginning of its device's UUID."""
        device, slash, identity = text.partition("/")
        if slash and device.startswith(("GPU-", "MIG-")):
            return identity == self.id and self.device.startswith(device)
        return text == self.id


@dataclass(frozen=True, slots=True)
class Chunks:
    """What of a device is in partitions, and what may still be. SMs that are in no chunk can be in no partition."""

    device: str
    """As of :class:`SmPartition`."""
    free: int
    used: int
    free_sms: int | None = None
    """SMs that are in no partition, those that are in no chunk among them."""
    used_sms: int | None = None

    @property
    def total(self) -> int:
        return self.free + self.used


@dataclass(frozen=True, slots=True)
class PartitionTable:
    """The static SM partitions of a daemon, as it tells them."""

    devices: tuple[Chunks, ...] = ()
    partitions: tuple[SmPartition, ...] = ()
    not_understood: tuple[str, ...] = ()
    """Lines of the answer that are none of the known forms, printable."""

    def device(self, uuid: str) -> Chunks | None:
        return next((found for found in self.devices if found.device == uuid), None)

    def of(self, uuid: str) -> tuple[SmPartition, ...]:
        return tuple(found for found in self.partitions if found.device == uuid)

    def find(self, name: str) -> SmPartition | None:
        """The one that is meant; None where there is none, or where several may be."""
        found = [partition for partition in self.partitions if partition.is_named(name)]
        return found[0] if len(found) == 1 else None

    def sms_per_chunk(self, uuid: str) -> int | None:
        """As read back from what is in partitions; None where nothing is, or where they differ."""
        of = [(partition.sm_count, partition.chunks) for partition in self.of(uuid)]
        if (device := self.device(uuid)) is not None:
            of.append((device.used_sms, device.used))
        found = {sms / chunks for sms, chunks in of if sms and chunks}
        only = next(iter(found)) if len(found) == 1 else 0.0
        return int(only) if only >= 1 and only == int(only) else None


NOT_SPOKEN: Final = (
    "it was started with an MPS protocol (-p or CUDA_MPS_PROTOCOL_VERSION) that is neither 2 nor 3: "
    "mpstui does not speak it"
)
"""Why a daemon is sent nothing at all, one clause."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """One control daemon, or the place where one is expected."""

    pipe_dir: Path
    log_dir: Path | None = None
    key: ProcessKey | None = None
    uid: int | None = None
    user: str | None = None
    start_time: float | None = None
    protocol: str | None = None
    """``legacy`` (commands on standard input) or ``v3``."""
    version: str | None = None
    multiuser: bool | None = None
    condition: Condition = Condition()
    default_active_thread_percentage: float | None = None
    default_client_priority: int | None = None
    default_pinned_mem_limits: Mapping[str, int] = field(default_factory=empty)
    ordinals: Mapping[str, str] = field(default_factory=empty)
    """The daemon's device ordinal to UUID, from ``device_query`` (fact 11)."""
    servers: tuple[Server, ...] = ()
    pending: tuple[PendingClient, ...] = ()
    lost: tuple[LostClient, ...] = ()
    watch: Watched = "none"
    """How changes are noticed: by the logs, by asking the daemon again and again, or not at all."""
    watch_detail: str | None = None
    watch_remedy: str | None = None
    simulated: bool = False
    where: Where | None = None
    """Where its process belongs."""
    pid_there: int | None = None
    """Its PID in its own PID namespace, where that is another one than this."""
    environment: Mapping[str, str] | None = field(default_factory=empty)
    """The limits that its own environment sets, by variable, as written; None where that may not be read."""
    inherited_mem_limits: Mapping[str, int] = field(default_factory=empty)
    """Bytes by ordinal, as its environment names them; they limit no client of driver 580 (fact 57)."""
    start_failures: StartFailures | None = None
    """None where the latest server became ready, or none was started."""
    static_partitioning: bool | None = None
    """Whether it was started with ``-S``: its clients get static SM partitions, and percentages have no effect."""
    v3: V3Node | None = None
    """What a daemon of protocol 3 has told; None for others, and where it has told nothing yet."""
    not_understood: str | None = None
    """Why nothing is believed of what a daemon of protocol 3 answers; None where it is understood."""
    partitions: PartitionTable | None = None
    """None where it has none, or they have not been read."""
    partitions_detail: str | None = None
    """Why they could not be read."""
    speaker: Speaker = NOBODY
    """Whose word it is what the daemon and its logs say."""
    lacks: frozenset[str] = frozenset()
    """Commands that it does not know: its driver is older than they are (fact 46)."""
    driver: str | None = None
    """The node's driver, as NVML names it."""
    by_logs: bool = False
    """Whether all that is told of it is its logs' word: there is no daemon that could be asked."""

    @property
    def pid(self) -> int | None:
        return self.key.pid if self.key else None

    @property
    def health(self) -> Health:
        return self.condition.health

    @property
    def health_detail(self) -> str | None:
        return self.condition.detail

    @property
    def remedy(self) -> str | None:
        return self.condition.remedy

    @property
    def holder(self) -> SessionHolder | None:
        return self.condition.holder

    @property
    def blocked_by(self) -> ProcessKey | None:
        """The client whose second terminate_client blocks the daemon, whoever sent it (fact 16)."""
        return self.condition.ends[0] if self.condition.cause == "terminated_twice" else None

    @property
    def answered_at(self) -> float | None:
        return self.condition.answered_at

    @property
    def own_numbers(self) -> bool:
        """Whether it cannot be asked which devices it has, so that they go by the numbers that it gives them."""
        return not self.ordinals and self.lacking("device_query") is not None

    def lacking(self, command: str) -> str | None:
        """``not in driver 470`` where the daemon does not know the ``command``; None where it does, and where that is
        not known yet."""
        if command not in self.lacks:
            return None
        major = (self.driver or "").partition(".")[0]
        return f"not in driver {major}" if major else "not in this driver"

    @property
    def runs(self) -> bool:
        """A process of it is there, whether it answers or not; not where nobody may look."""
        return self.health not in {"stale", "absent"} and not self.closed

    @property
    def closed(self) -> bool:
        """Its directory is closed to who asks: whether it runs is not known."""
        return self.condition.cause == "closed"

    @property
    def answers(self) -> bool:
        """It answered the last question, and its answers are understood."""
        return self.health == "ok" and not self.unread

    @property
    def read_once(self) -> bool:
        """Whether it was asked and, where it answers, for its limits, of which the default priority comes last."""
        if not self.answers or self.v3 is not None or self.lacking("get_default_client_priority") is not None:
            return self.condition.cause != "unasked"
        return self.default_client_priority is not None

    @property
    def serves_nobody(self) -> bool:
        """It answers, and each server that it starts ends before it is ready: more than one has."""
        return self.answers and self.start_failures is not None and self.start_failures.count > 1

    @property
    def explained(self) -> bool:
        """Its condition is told in place of what there would be to see of it."""
        return self.health not in {"ok", "unknown"}

    @property
    def unread(self) -> bool:
        """It runs, and is not to be asked: no control binary, one whose answers cannot be read, or ``unspoken``."""
        return self.condition.cause in {"busy", "not_asked", "not_found", "not_spoken"}

    @property
    def unspoken(self) -> str | None:
        """Why it is shown read-only and sent nothing that changes it: its answers are not understood, or not even its
        protocol is known."""
        return NOT_SPOKEN if self.protocol == "unknown" else self.not_understood

    @property
    def cut_off(self) -> bool:
        """Whether that is what is said of how it is: ``Condition.cut_off``, where nothing else explains it."""
        return self.condition.cut_off and not self.explained

    @property
    def fault_word(self) -> str:
        """``FAULT`` where it answers and a server of it is in FAULT, ``FAULT?`` where that is its log's word alone;
        else empty."""
        hit = [server for server in self.servers if "FAULT" in (server.status or "")] if self.health == "ok" else []
        sure = any(server.fault is None or server.fault.confirmed for server in hit)
        return "" if not hit else "FAULT" if sure else "FAULT?"

    @property
    def state_word(self) -> str:
        """Its health in words for text; a daemon that is cut off, not to be asked, serves nobody, has a server in FAULT
        or is known by its logs alone is not merely ``ok``."""
        if self.cut_off:
            return "cut off"
        if self.closed:
            return "closed to you"
        if self.condition.cause == "starting":
            return "starting"
        if self.condition.cause == "quitting":
            return "quitting"
        if self.condition.cause == "unasked":
            return "not known by its log" if self.by_logs else "not asked yet"
        if self.fault_word:
            return self.fault_word
        if self.serves_nobody:
            return "no server starts"
        if not self.unread:
            return f"{self.health} by its log" if self.by_logs and self.health == "ok" else self.health
        return "read-only" if self.unspoken else "cannot be asked"

    @property
    def clients_known(self) -> bool:
        """Whether its servers have no other clients than are known."""
        return self.servers_known and all(server.clients_known for server in self.servers)

    @property
    def servers_known(self) -> bool:
        """Whether no servers means that there are none."""
        asked = self.health in {"ok", "stale", "absent"} and not self.unread
        told = self.watch == "logs" and (not self.unread or self.unspoken is not None)
        return bool(self.servers) or asked or self.answered_at is not None or told

    def covers(self, process: Client | SessionHolder | None) -> bool:
        """Whether the word of this daemon is enough to end that process: root's is, a user's is for processes of that
        user. What its simulated clients stand for are made-up users; whose they are is looked at when it is done."""
        return process is not None and not (isinstance(process, Client) and not process.local) and self.vouches(process)

    def vouches(self, process: Client | SessionHolder | None) -> bool:
        """Whether its word on that process is enough to believe it; None: on one of which nothing is known here."""
        uid = process.uid if process is not None else None
        return self.simulated or may_signal(self.speaker, () if uid is None else (uid,))

    def counts_for(self, uid: int | None) -> bool:
        """Whether what it says counts for this user, who looks or whose process it is about, and is not merely another
        user's word (``trust.whose_word``)."""
        return whose_word(self, uid) is None or (self.simulated and self.speaker.by is None)

    def whose(self, euid: int | None) -> str:
        """The name of the other user whose word it is what it says (``trust.whose_word``); — where there is none."""
        uid = whose_word(self, euid)
        return owner(self.user if uid == self.uid else None, uid)

    def claimant(self, euid: int | None) -> str | None:
        """By name whose word alone it is what it says, for this user who looks; None where it counts for him."""
        return None if self.counts_for(euid) else self.whose(euid)

    def who_answers(self, euid: int | None) -> str | None:
        """As :meth:`claimant`; None too where nobody is there who may answer."""
        return self.claimant(euid) if self.condition.cause not in _NOBODY and self.speaker.listens else None

    def usurped(self, euid: int | None) -> bool:
        """Whether another user has put himself, or may have, in the place of this daemon of root's or of ``euid``'s
        (``trust.is_usurped``)."""
        return self.runs and self.pid is not None and not self.by_logs and is_usurped(self, euid)

    def usurpation(self, where: str = "") -> str:
        """What is seen of it where it is usurped (``trust.usurpation``)."""
        return usurpation(self, owner(self.user, self.uid), where)

    def lies(self) -> list[tuple[str, Server | Client]]:
        """Processes that it names and cannot have, each as what: a user's daemon has that user's alone."""
        if self.simulated:
            return []
        named: list[tuple[str, Server | Client]] = []
        named += [("client", client) for client in self.clients() if client.local]
        named += [("server", server) for server in self.servers if server.user is not None]
        return [(what, of) for what, of in named if is_lying(self, of.uid)]

    def claimed(self, euid: int | None) -> Collection[ProcessKey]:
        """Those of its clients that its word alone does not make clients: which it cannot have, and each one where it
        is not known whose word it is, and may be another user's."""
        if self.speaker.uid is None and not self.counts_for(euid):
            return {client.key for client in self.clients()}
        return {of.key for what, of in self.lies() if what == "client"}

    def clients(self) -> Iterator[Client]:
        for server in self.servers:
            yield from server.clients

    @property
    def named_servers(self) -> bool:
        """Whether it runs with MPS protocol 3: its servers have names, and namespaces with limits of their own."""
        return self.protocol == "v3"

    @property
    def log_names(self) -> tuple[str, ...]:
        """Its logs, as paths in its log directory: with protocol 3 each server has one of its own, by its name."""
        named = [server.name for server in self.v3.servers] if self.v3 is not None else []
        return ("control.log", "server.log", *(f"{name}/server.log" for name in named))

    def contexts_on(self, device_uuid: str) -> int:
        """How many contexts its clients hold on a device."""
        return sum(context.device_uuid == device_uuid for client in self.clients() for context in client.contexts)

    def limited(self, device: Device) -> Device:
        """The device as its limit holds for this daemon's clients: where several have contexts on it with this one's
        alone, for the limit was measured with one."""
        several = device.contexts is not None and device.context_daemons > 1
        return replace(device, contexts=self.contexts_on(device.uuid)) if several else device

    def clients_in(self, partition: SmPartition) -> tuple[Client, ...]:
        """Those whose own environment names it: their claim."""
        return tuple(c for c in self.clients() if c.sm_partition is not None and partition.is_named(c.sm_partition))

    def find_client(self, key: ProcessKey) -> Client | None:
        return next((c for c in self.clients() if c.key == key), None)

    def find_server(self, pid: int) -> Server | None:
        return next((s for s in self.servers if s.pid == pid), None)


def no_test_clients(protocol: str | None, static_partitioning: bool | None) -> str | None:
    """Why this program's own test clients cannot compute through a daemon; None where they can."""
    if protocol == "unknown":
        return NOT_SPOKEN
    if protocol == "v3":
        return (
            "it runs with MPS protocol 3: a client needs the pipe directory of a server or a namespace, "
            "and the test clients of mpstui know none"
        )
    if static_partitioning:
        return (
            "it runs with static SM partitioning (-S): a client needs a partition of its own, "
            "and the test clients of mpstui name none"
        )
    return None


EXCLUSIVE_PROCESS: Final = "EXCLUSIVE_PROCESS"
DEFAULT_MODE: Final = "DEFAULT"
COMPUTE_MODES: Final = frozenset((DEFAULT_MODE, EXCLUSIVE_PROCESS, "PROHIBITED"))
"""Those that can be set, as ``nvidia-smi -c`` is told them; NVML writes Exclusive_Process."""


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU as NVML sees it. Utilisations are percent of the whole device."""

    uuid: str
    index: int | None = None
    name: str | None = None
    sm_count: int | None = None
    compute_capability: tuple[int, int] | None = None
    memory_total: int | None = None
    memory_used: int | None = None
    compute_mode: str | None = None
    mig: bool | None = None
    persistence: bool | None = None
    """Whether the driver stays loaded without a process."""
    contexts: int | None = None
    context_limit: int | None = CONTEXT_LIMIT
    sm_utilization: float | None = None
    sm_occupancy: float | None = None
    dram_utilization: float | None = None
    tells_sm: bool = True
    """Whether NVML tells the two above and the next one of it: from Hopper on."""
    sm_source: str | None = None
    """Who else than NVML told SM activity, occupancy and DRAM: ``DCGM``."""
    gpu_utilization: float | None = None
    """Percent of the time in which some kernel ran, however small."""
    memory_utilization: float | None = None
    """Percent of the time in which its memory was read or written, however little; no bandwidth."""
    power_watts: float | None = None
    power_limit_watts: float | None = None
    """What it may draw, as it is enforced now."""
    temperature: float | None = None
    context_limit_source: str | None = None
    """Whose number the limit is, in words: ``said by the daemon``, ``measured with 580``."""
    context_daemons: int = 1
    """Daemons that have contexts on it, or may. Of several nobody has measured whether the limit is for each or for
    all."""
    pci_bus_id: str | None = None
    """As nvidia-smi writes it: ``00000000:06:00.0``."""

    @property
    def called(self) -> str:
        """``GPU 0``; its UUID where NVML gives it no index."""
        return self.uuid if self.index is None else f"GPU {self.index}"

    @property
    def settable_mode(self) -> str | None:
        """One of COMPUTE_MODES; None where its mode is not known, or none that can be set."""
        mode = (self.compute_mode or "").upper()
        return mode if mode in COMPUTE_MODES else None

    @property
    def exclusive(self) -> bool:
        """Whether it lets in one process, the MPS server, and all its clients with it."""
        return self.settable_mode == EXCLUSIVE_PROCESS

    @property
    def contexts_left(self) -> int | None:
        """None where it is not known: beside contexts of other daemons, too."""
        if self.contexts is None or self.context_limit is None or self.context_daemons > 1:
            return None
        return max(0, self.context_limit - self.contexts)

    @property
    def limit_is_claim(self) -> bool:
        """Whether nobody has measured that it takes so many contexts."""
        return (self.context_limit_source or "").startswith("claimed") or self.context_daemons > 1


@dataclass(frozen=True, slots=True)
class Suspect:
    """A client that may have made a fault, as far as it was known at the time."""

    pid: int
    uid: int | None = None
    user: str | None = None
    command: str | None = None


class Event(NamedTuple):
    """Something that happened, with the line of the log that says so. A tuple: a log has millions of them."""

    kind: EventKind
    time: float | None = None
    pipe_dir: Path | None = None
    server_pid: int | None = None
    pid: int | None = None
    context_id: int | None = None
    devices: tuple[str, ...] = ()
    detail: str = ""
    raw: str = ""
    uid: int | None = None
    """Of the process ``pid``, or of whom a server is for; it stays when that has gone, as do the next two."""
    values: Mapping[str, str] = EMPTY
    """Kind-specific fields, e.g. limit_set: ``what``, ``scope``, ``value``, ``device``."""
    user: str | None = None
    command: str | None = None
    """Of the process ``pid``, printable."""
    suspects: tuple[Suspect, ...] = ()
    """fatal_fault: every client that had a context on its devices; whom the log names is no proof (fact 36)."""

    @property
    def is_question(self) -> bool:
        """A command that changes nothing, and was not refused."""
        return self.kind == "command" and not self.values.keys() & {"changes", "refused"}

    @property
    def key(self) -> tuple[object, ...]:
        """What tells it from every other one."""
        return (self.time, self.kind, self.pid, self.server_pid, self.context_id, self.raw)

    @property
    def named(self) -> tuple[int, ...]:
        """fatal_fault: the PIDs that server.log names, which is no proof (fact 36); empty after a trap (fact 37)."""
        return tuple(pid for pid in map(int, self.values.get("named", "").split()) if pid)

    def sentence(self, user: str | None = None, most: int = 40) -> str:
        """``detail`` with the client's user, or else ``user``, or the user's number, and at most ``most`` characters of
        its command; none of it where that is too few to tell it by."""
        command = self.command or ""
        if len(command) > most:
            command = command[: most - 1].rstrip() + "…" if most > 5 else ""
        whose = owner(self.user or user, self.uid)
        said = f"user {self.uid}"
        who = f"client {self.pid}"
        if self.pid is None or who not in self.detail:  # of a server that starts
            return self.detail if self.uid is None else self.detail.replace(said, whose, 1)
        about = [part for part in (whose if whose != UNKNOWN else "", command) if part]
        named = f"{who} ({', '.join(about)})" if about else who
        said = f"{who} of {said}"  # as the daemon writes of one that comes
        return self.detail.replace(said if said in self.detail else who, named, 1)


def server_devices(ordinals: Sequence[str]) -> str:
    """``server devices 0, 1``: how an event names those of which only the server's own numbers are known (fact 11)."""
    return f"server {nouns(len(ordinals), 'device')} {listed(ordinals)}"


class LogEvents(NamedTuple):
    """Events that were read from a daemon's logs, oldest first."""

    events: tuple[Event, ...] = ()
    missing: tuple[str, ...] = ()
    """What of the logs was not read though it was asked for, and why: a sentence without a full stop each."""


event_of: Final[Callable[[tuple[Any, ...]], Event]] = partial(tuple.__new__, Event)
"""An event of all its fields in their order, in a third of the time that Event takes to be called."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something an admin should know, and what to do about it."""

    severity: Severity
    code: str
    subject: str
    text: str
    remedy: str
    uid: int | None = None
    """Of another user's daemon: that user, whose word it may be. None: of root's, of one's own, or of the node."""


class Past(NamedTuple):
    """That a snapshot tells of the past, and where in it that is; times are seconds since the epoch."""

    what: Literal["REPLAY", "LOGS", "PAST"]
    """A recording, logs without a daemon, or what was before on a node that runs."""
    at: float
    first: float
    last: float
    """From when to when there is something."""
    playing: bool
    speed: float
    why: str
    """Why nothing can be changed, one clause."""
    note: str | None = None
    """What is the matter with it, one sentence."""
    gap: tuple[float, float] | None = None
    """From when to when nothing was recorded, where that time is within: what is shown is of before."""
    indices: Mapping[str, int | None] = EMPTY
    """Before the devices were read: the index of each by UUID, as it was when they were."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole node at one time."""

    time: float
    source: Source = "real"
    host: str = ""
    driver_version: str | None = None
    nvml_detail: str | None = None
    """Why there are no device readings; None where NVML works."""
    daemons: tuple[Daemon, ...] = ()
    devices: tuple[Device, ...] = ()
    problems: tuple[Problem, ...] = ()
    events: tuple[Event, ...] = ()
    """Oldest first, bounded."""
    outside: tuple[OutsideClient, ...] = ()
    looked: bool = True
    """Whether it has been looked for daemons yet; where not, no daemons means nothing."""
    watches_activity: bool = False
    """Whether launches are counted, window after window."""
    past: Past | None = None
    """None: it is of now."""

    @property
    def moment(self) -> float | None:
        """``time``; None where it is of logs and no line of them has one."""
        return self.time or None

    @property
    def indices(self) -> Mapping[str, int | None]:
        """NVML's index of each device, by UUID."""
        known = {device.uuid: device.index for device in self.devices}
        return known or (self.past.indices if self.past is not None else known)

    @property
    def asked_nvml(self) -> bool:
        """Whether it has said something, or why it says nothing; where not, no devices means nothing."""
        return bool(self.devices or self.nvml_detail or self.driver_version)

    @property
    def whole(self) -> bool:
        """Whether all was read once: what is told later has changed, or could not be read."""
        return self.looked and self.asked_nvml and all(daemon.read_once for daemon in self.daemons)

    def daemon(self, pipe_dir: Path) -> Daemon | None:
        return next((d for d in self.daemons if d.pipe_dir == pipe_dir), None)

    def device(self, uuid: str) -> Device | None:
        return next((d for d in self.devices if d.uuid == uuid), None)


def device_named(text: str, devices: Sequence[Device]) -> Device:
    """The device of an index, a UUID or the first characters of one; raises LookupError with a sentence."""
    by_key = {str(position if d.index is None else d.index): d for position, d in enumerate(devices)}
    found = device_keys(text, {key: device.uuid for key, device in by_key.items()})
    if len(found) == 1:
        return by_key[found[0]]
    known = ", ".join(f"{device.index} ({device.uuid})" for device in devices) or "none that is known"
    shown = printable(text, 60)
    if found:
        raise LookupError(f"{len(found)} GPUs begin with “{shown}”; there are: {known}")
    raise LookupError(f"there is no GPU “{shown}”; there are: {known}")
