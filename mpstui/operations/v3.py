"""What a daemon of MPS protocol 3 is told: servers, namespaces and SM partitions made, set and deleted.

As documented; no such daemon has been tried. What it prints proves little: everything is read before and after. ``-q``,
which ends the daemon and all servers, is never sent.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

from mpstui.control.v3 import NAME
from mpstui.core.cells import client_line
from mpstui.core.late import pattern
from mpstui.core.model import Client, Daemon, ProcessKey, Snapshot
from mpstui.core.text import (
    PRIORITIES,
    PRIORITY_WORDS,
    UNKNOWN,
    device_keys,
    format_percentage,
    listed,
    mps_size,
    plural,
    printable,
    size_hint,
    typed_size,
)
from mpstui.core.v3 import DEFAULT, FEATURES, Namespace, V3Node, V3Partition, V3Server
from mpstui.observe.poll import Need
from mpstui.operations.check import Refused, parse_uid
from mpstui.operations.limits import SMALL, SMALL_LIMIT, beyond, check_least
from mpstui.operations.operation import Operation, Work, refused_result
from mpstui.operations.types import STATUS, Argument, Danger, ExitStatus, Preview, Request, Result, Verb

NOT_V3: Final = (
    "the daemon does not run MPS protocol 3 (nvidia-cuda-mps-control -p 3, driver 615): it has no namespaces"
)
_SHARE: Final = pattern(r"[0-9]{1,3}(\.[0-9]{1,2})?")
_DEVICES: Final = pattern(r"[0-9A-Za-z-]{1,80}(,[0-9A-Za-z-]{1,80}){0,63}")
_LIMITS: Final = ("active-thread-percentage", "pinned-memory-limit", "client-priority")
_NO_LIMITS: Final = "a client of a namespace without limits may have the whole GPU, whatever the server's limits are"
_OF_SERVER: Final = Argument("setting", "Server", help="the server's name", metavar="NAME", option="--server")
_LIMIT_ARGUMENTS: Final = (
    Argument(
        "setting", "Threads", help="percent of the SMs, 1 to 100", metavar="N", option="--active-thread-percentage"
    ),
    Argument("setting", "Memory", help="of each device: 900M, 10G", metavar="SIZE", option="--pinned-memory-limit"),
    Argument("setting", "Priority", help=PRIORITY_WORDS, metavar="N", option="--client-priority"),
)


def node_of(daemon: Daemon) -> V3Node:
    """What it has told; raises Refused."""
    if not daemon.named_servers:
        raise Refused(NOT_V3, ExitStatus.REFUSED_BY_SAFETY_RULE)
    if daemon.v3 is None:
        raise Refused("the daemon's servers are not known yet", ExitStatus.NO_ANSWER)
    return daemon.v3


def limits_asked(request: Request) -> list[str]:
    """The limits as options of the command; raises Refused for a value that is none."""
    share, size, priority = (request.setting(name) for name in _LIMITS)
    if share is not None and not (_SHARE.fullmatch(share) and 1 <= float(share) <= 100):
        raise Refused(f"“{printable(share, 40)}” is no percentage: 1 to 100 is needed", ExitStatus.USAGE)
    own = mps_size(size or "")
    if size is not None and (own is None or own[-1] not in "KMG"):
        what = size_hint(size) or "a whole number above 0 with K, M or G is needed, as 900M or 10G"
        raise Refused(f"“{printable(size, 40)}” is no memory limit: {what}", ExitStatus.USAGE)
    check_least(typed_size(own or ""))
    if priority not in {None, "0", "1"}:
        raise Refused(f"“{printable(priority, 40)}” is no priority: 0 or 1 is needed", ExitStatus.USAGE)
    given = zip(_LIMITS, (share, own, priority), strict=True)
    return [f"--{name}={value}" for name, value in given if value is not None]


def _of_size(request: Request, snapshot: Snapshot) -> Iterator[str]:
    """What a memory limit comes to that is taken and is hardly meant."""
    size = typed_size(request.setting(_LIMITS[1]) or "")
    if size and (none := beyond(size, snapshot.devices)) is not None:
        yield none
    if size and size < SMALL_LIMIT:
        yield SMALL


def space_words(space: Namespace | None) -> str:
    """``25 %, 8G``; what is not set is ``none``."""
    if space is None:
        return UNKNOWN
    share = space.active_thread_percentage
    parts = [
        format_percentage(share) if share is not None else "no percentage",
        space.pinned_mem_limit or "no memory limit",
    ]
    return ", ".join([*parts, *([PRIORITIES[1]] if space.client_priority == 1 else [])])


def export_line(variable: str, value: str | None) -> str:
    """What a program has to have in its environment, for a shell: the value is the daemon's to choose."""
    return f"export {variable}={UNKNOWN if value is None else shlex.quote(value)}"


def _name(text: str, what: str) -> str:
    if not NAME.fullmatch(text):
        known = "small letters, digits and _, 64 at most, are needed"
        raise Refused(f"“{printable(text, 80)}” is no name of a {what}: {known}", ExitStatus.USAGE)
    return text


def _server(node: V3Node, name: str | None) -> V3Server:
    if name is None:
        raise Refused("say which server: --server NAME", ExitStatus.USAGE)
    found = node.server(_name(name, "server"))
    if found is None:
        known = ", ".join(server.name for server in node.servers) or "none"
        raise Refused(f"there is no server {name}; there are: {known}", ExitStatus.REFUSED_BY_DAEMON)
    return found


def _with_uuids(request: Request, setting: str, uuids: Mapping[str, str]) -> Request:
    """With the UUID where exactly one begins so; what means none, or several, stays as it was typed."""
    text = request.setting(setting)
    if text is None:
        return request
    found = [(device, device_keys(device, uuids)) for device in text.split(",")]
    whole = ",".join(keys[0] if len(keys) == 1 else device for device, keys in found)
    return request._replace(settings=tuple((k, whole if k == setting else v) for k, v in request.settings))


class V3Operation(Operation):
    """A subclass gives the words, what is checked, and what shows afterwards that it was done."""

    place: ClassVar[str] = "namespaces"
    looks_again: ClassVar[bool] = True
    key: ClassVar[str] = ""
    what: ClassVar[str]
    """``namespace``: whose name ``Request.value`` is."""

    def needs(self, request: Request) -> Need | None:
        return Need()

    def belongs(self, request: Request, daemon: Daemon) -> bool:
        return daemon.named_servers

    def wrong_value(self, request: Request) -> Refused | None:
        try:
            _name(request.value, self.what)
            limits_asked(request)
        except Refused as refused:
            return refused
        return None

    def check_daemon(self, daemon: Daemon) -> None:
        node_of(daemon)

    def calls(self, request: Request) -> list[list[str]]:
        """The words of each command, in their order."""
        raise NotImplementedError

    def check(self, request: Request, node: V3Node, daemon: Daemon) -> tuple[tuple[str, str], ...]:
        """What it comes to, as facts; raises Refused where it cannot be."""
        raise NotImplementedError

    def found(self, request: Request, node: V3Node) -> V3Server | Namespace | V3Partition | None:
        """What it is about, where the daemon has it."""
        name, server = request.value, request.setting("server")
        if self.what == "server":
            return node.server(name)
        if self.what == "namespace":
            return node.namespace(server, name)
        return node.partition(request.setting("server"), request.value)

    def missing(self, request: Request, node: V3Node) -> str | None:
        """What shows that it was not done; None where it was."""
        return None if self.found(request, node) is not None else f"{self.what} {request.value} is not there"

    def tell(self, request: Request, node: V3Node, daemon: Daemon) -> tuple[str, tuple[str, ...]]:
        """What came of it in a sentence, and what is known besides."""
        raise NotImplementedError

    def warnings(self, request: Request, node: V3Node) -> tuple[str, ...]:
        return ()

    def whole(self, request: Request, node: V3Node, daemon: Daemon) -> Request:
        """The same, with the whole UUID of each device that is named by its first characters."""
        return request

    def show(self, request: Request, snapshot: Snapshot, daemon: Daemon) -> Preview:
        node = node_of(daemon)
        request = self.whole(request, node, daemon)
        if (wrong := self.wrong_value(request)) is not None:
            raise wrong
        facts = self.check(request, node, daemon)
        hit = self.clients(request, daemon)
        lines = tuple(client_line(client) for client in hit)
        title = f"{self.title} {request.value}"
        error = None
        if hit and not request.force:
            their = "its" if len(hit) == 1 else "their"
            error = f"{plural(len(hit), 'client')} would lose {their} GPU work; -f ends it"
        elif request.clients and (fresh := [c for c in hit if c.key not in request.clients]):
            error = f"clients have come since: {listed(c.pid for c in fresh)}"
        warnings = (*self.warnings(request, node), *_of_size(request, snapshot))
        if error is None:
            return Preview(title, facts, hits=lines, warnings=warnings)
        return Preview(title, facts, (), lines, (), warnings, error, ExitStatus.REFUSED_BY_SAFETY_RULE)

    def clients(self, request: Request, daemon: Daemon) -> tuple[Client, ...]:
        """Those whose work it ends."""
        return ()

    def hit(self, request: Request, daemon: Daemon) -> tuple[ProcessKey, ...]:
        return tuple(client.key for client in self.clients(request, daemon))

    def command(self, request: Request) -> str:
        return "; ".join(" ".join(words) for words in self.calls(request))

    async def run(self, work: Work) -> Result:
        request, control = work.request, work.control
        answer, node = await control.read_v3()
        try:
            if node is None:
                raise Refused(answer.message or "it does not answer", STATUS[answer.outcome])
            request = self.whole(request, node, work.daemon)
            self.check(request, node, work.daemon)
            here = {c.pid for c in self.clients(request, work.daemon)}
            if fresh := self.pids(request, node) - here:
                who = ", ".join(map(str, sorted(fresh)))
                raise Refused(f"clients have come since: {who}", ExitStatus.REFUSED_BY_SAFETY_RULE)
        except Refused as refused:
            return refused_result(request, str(refused), refused.status)
        said: list[str] = []
        for words in self.calls(request):
            work.progress(" ".join(words))
            work.sent = sent = await control.call(*words)
            if not sent.ok:
                break
            said += [line for line in (sent.value or "").splitlines() if line]
        work.read, after = await control.read_v3()
        if after is None:
            text = f"sent, but what there is now could not be read: {work.read.message}"
            return Result(request, STATUS[work.read.outcome], text)
        missing = self.missing(request, after)
        if missing is not None or (work.sent is not None and not work.sent.ok):
            outcome = STATUS[work.sent.outcome] if work.sent is not None and not work.sent.ok else None
            why = (work.sent.message if work.sent is not None else "") or missing or "the daemon did not do it"
            return Result(request, outcome or ExitStatus.REFUSED_BY_DAEMON, why, (missing,) if missing else ())
        text, details = self.tell(request, after, work.daemon)
        return Result(request, ExitStatus.DONE, text, details)

    def pids(self, request: Request, node: V3Node) -> set[int]:
        """By the daemon's newest word, those whose work it ends."""
        return set()


class _Create(V3Operation):
    """Makes something that was not there."""

    def absent(self, request: Request, node: V3Node) -> None:
        """Raises Refused where it is there already."""
        if self.found(request, node) is not None:
            raise Refused(f"{self.what} {request.value} is there already", ExitStatus.REFUSED_BY_SAFETY_RULE)


class _Delete(V3Operation):
    """Takes something away; its clients' work ends where that is forced."""

    danger = Danger.HARM
    question = "delete it?"
    then: ClassVar[str] = "a program with its pipe directory runs without MPS, and no error says so"

    def missing(self, request: Request, node: V3Node) -> str | None:
        return None if super().missing(request, node) else f"{self.what} {request.value} is still there"

    def tell(self, request: Request, node: V3Node, daemon: Daemon) -> tuple[str, tuple[str, ...]]:
        return f"{self.what} {request.value} is gone", ()

    def clients(self, request: Request, daemon: Daemon) -> tuple[Client, ...]:
        pids = self.pids(request, daemon.v3) if daemon.v3 is not None else set()
        return tuple(client for client in daemon.clients() if client.pid in pids)

    def pids(self, request: Request, node: V3Node) -> set[int]:
        server = request.value if self.what == "server" else request.setting("server") or ""
        return {client.pid for client in node.clients_of(server, None if self.what == "server" else request.value)}


class CreateServer(_Create):
    """``server create``."""

    id = "v3_server_create"
    title = "Create server"
    what = "server"
    key = "S"
    key_id = "namespace.create_server"
    help = "Make a server with a name, for one user's clients"
    verb = Verb(("server", "create"), "make a named server (protocol 3)", example="mpstui server create training")
    arguments = (
        Argument("value", "Name", "small letters, digits and _", "its name", "NAME"),
        Argument("setting", "User", help="whose clients it serves: a name or a number", metavar="USER", option="--uid"),
        Argument(
            "setting", "Devices", help="which it may use: UUIDs or ordinals, with commas", metavar="LIST",
            option="--allowed-devices",
        ),
    )  # fmt: skip

    def whole(self, request: Request, node: V3Node, daemon: Daemon) -> Request:
        uuids = {d.uuid: d.uuid for d in node.devices if d.uuid} | {uuid: uuid for uuid in daemon.ordinals.values()}
        return _with_uuids(request, "allowed-devices", uuids)

    def calls(self, request: Request) -> list[list[str]]:
        uid, devices = request.setting("uid"), request.setting("allowed-devices")
        more = [] if uid is None else [f"--uid={parse_uid(uid)}"]
        return [
            ["server", "create", request.value, *more, *([] if devices is None else [f"--allowed-devices={devices}"])]
        ]

    def check(self, request: Request, node: V3Node, daemon: Daemon) -> tuple[tuple[str, str], ...]:
        self.absent(request, node)
        uid, devices = request.setting("uid"), request.setting("allowed-devices")
        whose = parse_uid(uid) if uid is not None else None
        known = {device.uuid for device in node.devices} | set(daemon.ordinals.values()) | set(daemon.ordinals)
        if devices is not None:
            if not _DEVICES.fullmatch(devices):
                raise Refused(f"“{printable(devices, 80)}” names no devices", ExitStatus.USAGE)
            # The daemon takes any, and the server ends at once and is gone: its clients then run without MPS.
            if known and (absent := [d for d in devices.split(",") if d not in known]):
                raise Refused(
                    f"the daemon has no device {absent[0]}; a server with it would end at once", ExitStatus.USAGE
                )
        return (("user", UNKNOWN if whose is None else str(whose)), ("devices", devices or "all"))

    def missing(self, request: Request, node: V3Node) -> str | None:
        return f"{missing}: it has ended" if (missing := super().missing(request, node)) else None

    def tell(self, request: Request, node: V3Node, daemon: Daemon) -> tuple[str, tuple[str, ...]]:
        found = node.server(request.value)
        place = found.pipe_dir if found is not None else None
        return f"server {request.value} is there", (export_line("CUDA_MPS_PIPE_DIRECTORY", place),)

    def undo(self, request: Request, daemon: Daemon) -> Request | None:
        return Request(DeleteServer.id, request.pipe_dir, request.value)


class DeleteServer(_Delete):
    """``server delete``, which ends its clients' work where it is forced to."""

    id = "v3_server_delete"
    title = "Delete server"
    what = "server"
    key = "x"
    key_id = "namespace.delete"
    help = "Delete a named server with its namespaces"
    harms = "this deletes a server"
    verb = Verb(("server", "delete"), "delete a named server (protocol 3)", example="mpstui server delete training")
    arguments = (
        Argument("value", "Name", "", "its name", "NAME"),
        Argument("force", "Clients", help="its clients' GPU work ends with an error"),
    )

    def calls(self, request: Request) -> list[list[str]]:
        return [["server", "delete", request.value, *(["--force"] * request.force)]]

    def check(self, request: Request, node: V3Node, daemon: Daemon) -> tuple[tuple[str, str], ...]:
        _server(node, request.value)
        spaces = ", ".join(space.name for space in node.of(request.value)) or UNKNOWN
        return (
            ("server", request.value),
            ("namespaces", spaces),
            ("then", self.then),
        )


class _SetLimits(V3Operation):
    """The limits of a namespace; those of a server are its default namespace's."""

    def wrong_value(self, request: Request) -> Refused | None:
        wrong = super().wrong_value(request)
        if wrong is None and not limits_asked(request):
            what = ", ".join(f"--{name}" for name in _LIMITS)
            return Refused(f"say what is to be set: {what}", ExitStatus.USAGE)
        return wrong

    def space(self, request: Request, node: V3Node) -> Namespace | None:
        raise NotImplementedError

    def missing(self, request: Request, node: V3Node) -> str | None:
        return unlike(request, self.space(request, node))

    def tell(self, request: Request, node: V3Node, daemon: Daemon) -> tuple[str, tuple[str, ...]]:
        found = space_words(self.space(request, node))
        return f"in force: {found}", ("NVIDIA does not document when connected clients get the new limits",)

    def undo(self, request: Request, daemon: Daemon) -> Request | None:
        """Only where each of them had a value: how a limit is taken away is not documented."""
        before = self.space(request, daemon.v3) if daemon.v3 is not None else None
        if before is None:
            return None
        share, priority = before.active_thread_percentage, before.client_priority
        old = {
            "active-thread-percentage": None if share is None else f"{share:g}",
            "pinned-memory-limit": before.pinned_mem_limit,
            "client-priority": None if priority is None else str(priority),
        }
        values = [(name, old.get(name, value)) for name, value in request.settings]
        if any(value is None for _, value in values):
            return None
        return request._replace(settings=tuple((name, value or "") for name, value in values))


def unlike(request: Request, space: Namespace | None) -> str | None:
    """What of the limits that were asked for is not in force; None where all are."""
    if space is None:
        return "the daemon does not list it"
    share, size, priority = (request.setting(name) for name in _LIMITS)
    wrong = [
        share is not None and space.active_thread_percentage != float(share),
        size is not None and space.memory != typed_size(size),
        priority is not None and space.client_priority != int(priority),
    ]
    return f"in force: {space_words(space)}" if any(wrong) else None


class SetServer(_SetLimits):
    """``server set``: the limits of its default namespace, and of no other."""

    id = "v3_server_set"
    title = "Set server"
    what = "server"
    key = "l"
    key_id = "namespace.limits"
    help = "Set the limits of a server's default namespace; they do not apply to its other namespaces"
    verb = Verb(
        ("server", "set"), "limits of a server's default namespace (protocol 3)",
        example="mpstui server set training --active-thread-percentage 50",
    )  # fmt: skip
    arguments = (Argument("value", "Name", "", "its name", "NAME"), *_LIMIT_ARGUMENTS)

    def space(self, request: Request, node: V3Node) -> Namespace | None:
        return node.namespace(request.value, DEFAULT)

    def calls(self, request: Request) -> list[list[str]]:
        return [["server", "set", request.value, *limits_asked(request)]]

    def check(self, request: Request, node: V3Node, daemon: Daemon) -> tuple[tuple[str, str], ...]:
        _server(node, request.value)
        return (("now", space_words(self.space(request, node))), ("new value", " ".join(limits_asked(request))))

    def warnings(self, request: Request, node: V3Node) -> tuple[str, ...]:
        others = [space.name for space in node.of(request.value) if space.name != DEFAULT]
        return (f"these limits do not apply to namespaces {', '.join(others)}",) if others else ()


class SetNamespace(_SetLimits):
    """``namespace set``."""

    id = "v3_namespace_set"
    title = "Set namespace"
    what = "namespace"
    key = "l"
    key_id = "namespace.limits"
    help = "Set the limits of a namespace; its percentage comes before the clients' own"
    verb = Verb(
        ("namespace", "set"), "limits of a namespace (protocol 3)",
        example="mpstui namespace set small --server training --active-thread-percentage 25",
    )  # fmt: skip
    arguments = (Argument("value", "Name", "", "its name", "NAME"), _OF_SERVER, *_LIMIT_ARGUMENTS)

    def space(self, request: Request, node: V3Node) -> Namespace | None:
        return node.namespace(request.setting("server"), request.value)

    def calls(self, request: Request) -> list[list[str]]:
        return [["namespace", "set", request.value, f"--server={request.setting('server')}", *limits_asked(request)]]

    def check(self, request: Request, node: V3Node, daemon: Daemon) -> tuple[tuple[str, str], ...]:
        server = _server(node, request.setting("server"))
        _there(node, server, request.value)
        return (
            ("server", server.name),
            ("now", space_words(self.space(request, node))),
            ("new value", " ".join(limits_asked(request))),
        )


def _there(node: V3Node, server: V3Server, name: str) -> Namespace:
    found = node.namespace(server.name, name)
    if found is None:
        known = ", ".join(space.name for space in node.of(server.name)) or "none"
        raise Refused(f"server {server.name} has no namespace {name}; it has: {known}", ExitStatus.REFUSED_BY_DAEMON)
    return found


class CreateNamespace(_Create):
    """``namespace create``, and ``namespace set`` right behind it where limits are given."""

    id = "v3_namespace_create"
    title = "Create namespace"
    what = "namespace"
    key = "A"
    key_id = "namespace.create"
    help = "Make a namespace of a server, with limits of its own"
    verb = Verb(
        ("namespace", "create"), "make a namespace of a server (protocol 3)",
        example="mpstui namespace create small --server training --active-thread-percentage 25",
    )  # fmt: skip
    arguments = (
        Argument("value", "Name", "small letters, digits and _", "its name", "NAME"), _OF_SERVER, *_LIMIT_ARGUMENTS
    )  # fmt: skip

    def calls(self, request: Request) -> list[list[str]]:
        server, limits = f"--server={request.setting('server')}", limits_asked(request)
        made = [["namespace", "create", request.value, server]]
        return [*made, ["namespace", "set", request.value, server, *limits]] if limits else made

    def check(self, request: Request, node: V3Node, daemon: Daemon) -> tuple[tuple[str, str], ...]:
        server = _server(node, request.setting("server"))
        self.absent(request, node)
        return (("server", server.name), ("limits", " ".join(limits_asked(request)) or "none"))

    def warnings(self, request: Request, node: V3Node) -> tuple[str, ...]:
        return () if limits_asked(request) else (_NO_LIMITS,)

    def missing(self, request: Request, node: V3Node) -> str | None:
        return unlike(request, node.namespace(request.setting("server"), request.value))

    def tell(self, request: Request, node: V3Node, daemon: Daemon) -> tuple[str, tuple[str, ...]]:
        found = node.namespace(request.setting("server"), request.value)
        place = found.pipe_dir if found is not None else None
        return (
            f"namespace {request.value} is there: {space_words(found)}",
            (export_line("CUDA_MPS_PIPE_DIRECTORY", place),),
        )

    def undo(self, request: Request, daemon: Daemon) -> Request | None:
        server = (("server", request.setting("server") or ""),)
        return Request(DeleteNamespace.id, request.pipe_dir, request.value, settings=server)


class DeleteNamespace(_Delete):
    """``namespace delete``."""

    id = "v3_namespace_delete"
    title = "Delete namespace"
    what = "namespace"
    key = "x"
    key_id = "namespace.delete"
    help = "Delete a namespace of a server"
    harms = "this deletes a namespace"
    verb = Verb(
        ("namespace", "delete"), "delete a namespace (protocol 3)",
        example="mpstui namespace delete small --server training",
    )  # fmt: skip
    arguments = (
        Argument("value", "Name", "", "its name", "NAME"),
        _OF_SERVER,
        Argument("force", "Clients", help="its clients' GPU work ends with an error"),
    )

    def calls(self, request: Request) -> list[list[str]]:
        force = ["--force"] * request.force
        return [["namespace", "delete", request.value, f"--server={request.setting('server')}", *force]]

    def check(self, request: Request, node: V3Node, daemon: Daemon) -> tuple[tuple[str, str], ...]:
        server = _server(node, request.setting("server"))
        found = _there(node, server, request.value)
        if found.name == DEFAULT:
            raise Refused(
                "the default namespace is deleted only together with its server", ExitStatus.REFUSED_BY_SAFETY_RULE
            )
        return (
            ("namespace", found.name),
            ("server", server.name),
            ("limits", space_words(found)),
            ("then", self.then),
        )


class CreatePartition(_Create):
    """``sm-partition create``; refused by the daemon where the device has clients."""

    id = "v3_partition_create"
    key = "P"
    key_id = "namespace.partition"
    title = "Create SM partition"
    what = "partition"
    help = "Set SMs of a device aside for a server's clients that name them"
    verb = Verb(
        ("sm-partition", "create"), "set SMs of a device aside (protocol 3)",
        example="mpstui sm-partition create large --server training --device 0 --chunks 4",
    )  # fmt: skip
    arguments = (
        Argument("value", "Name", "small letters, digits and _", "its name", "NAME"),
        _OF_SERVER,
        Argument("setting", "Device", help="an ordinal or a UUID", metavar="DEV", option="--device"),
        Argument("setting", "Chunks", help="how many", metavar="N", option="--chunks"),
        Argument(
            "setting", "Remainder", help="true: with the SMs that are in no chunk", metavar="BOOL",
            option="--include-remainder",
        ),
    )  # fmt: skip

    def wrong_value(self, request: Request) -> Refused | None:
        chunks = request.setting("chunks") or ""
        wrong = super().wrong_value(request)
        if wrong is None and not re.fullmatch(r"[1-9][0-9]{0,5}", chunks):
            return Refused(f"“{printable(chunks, 40)}” is no number of chunks above 0", ExitStatus.USAGE)
        remainder = request.setting("include-remainder")
        if wrong is None and remainder not in {None, "true", "false"}:
            return Refused(f"“{printable(remainder, 40)}” is neither true nor false", ExitStatus.USAGE)
        return wrong

    def whole(self, request: Request, node: V3Node, daemon: Daemon) -> Request:
        of = (None, request.setting("server"))
        return _with_uuids(request, "device", {d.uuid: d.uuid for d in node.devices if d.uuid and d.server in of})

    def calls(self, request: Request) -> list[list[str]]:
        names = ("server", "device", "chunks", "include-remainder")
        options = [f"--{name}={value}" for name in names if (value := request.setting(name)) is not None]
        return [["sm-partition", "create", request.value, *options]]

    def check(self, request: Request, node: V3Node, daemon: Daemon) -> tuple[tuple[str, str], ...]:
        server, device = _server(node, request.setting("server")), request.setting("device") or ""
        known = [d for d in node.devices if device in {d.ordinal, d.uuid} and d.server in {None, server.name}]
        if not known:
            there = (
                ", ".join(f"{d.ordinal} ({d.uuid})" for d in node.devices if d.server in {None, server.name}) or "none"
            )
            raise Refused(f"the server has no device “{printable(device, 80)}”; it has: {there}", ExitStatus.USAGE)
        self.absent(request, node)
        return (
            ("server", server.name),
            ("device", f"{known[0].name or UNKNOWN}  {known[0].uuid}"),
            ("chunks", request.setting("chunks") or ""),
        )

    def missing(self, request: Request, node: V3Node) -> str | None:
        found = node.partition(request.setting("server"), request.value)
        if found is None:
            return f"partition {request.value} is not there"
        wrong = found.chunks is not None and found.chunks != int(request.setting("chunks") or 0)
        return (
            f"it has {plural(found.chunks, 'chunk')}"
            if wrong and found is not None and found.chunks is not None
            else None
        )

    def tell(self, request: Request, node: V3Node, daemon: Daemon) -> tuple[str, tuple[str, ...]]:
        found = node.partition(request.setting("server"), request.value)
        sms = UNKNOWN if found is None or found.sm_count is None else str(found.sm_count)
        name = found.visible_uuid if found is not None else None
        return f"partition {request.value} is there: {sms} SMs", (export_line("CUDA_MPS_SM_PARTITION", name),)

    def undo(self, request: Request, daemon: Daemon) -> Request | None:
        settings = tuple((name, value) for name, value in request.settings if name in {"server", "device"})
        return Request(DeletePartition.id, request.pipe_dir, request.value, settings=settings)


class DeletePartition(_Delete):
    """``sm-partition delete``."""

    id = "v3_partition_delete"
    key_id = "namespace.delete"
    title = "Delete SM partition"
    what = "partition"
    help = "Give the SMs of a partition back to its device"
    harms = "programs that name this partition cannot start any more"
    verb = Verb(
        ("sm-partition", "delete"), "give the SMs of a partition back (protocol 3)",
        example="mpstui sm-partition delete large --server training",
    )  # fmt: skip
    arguments = (Argument("value", "Name", "", "its name", "NAME"), _OF_SERVER)

    def whole(self, request: Request, node: V3Node, daemon: Daemon) -> Request:
        return _with_uuids(request, "device", {d.uuid: d.uuid for d in node.devices if d.uuid})

    def calls(self, request: Request) -> list[list[str]]:
        device = request.setting("device")
        options = [f"--server={request.setting('server')}", *([] if device is None else [f"--device={device}"])]
        return [["sm-partition", "delete", request.value, *options]]

    def check(self, request: Request, node: V3Node, daemon: Daemon) -> tuple[tuple[str, str], ...]:
        server = _server(node, request.setting("server"))
        found = node.partition(server.name, request.value)
        if found is None:
            raise Refused(f"server {server.name} has no partition {request.value}", ExitStatus.REFUSED_BY_DAEMON)
        chunks = plural(found.chunks, "chunk") if found.chunks else f"{UNKNOWN} chunks"
        size = f"{chunks}, {found.sm_count or UNKNOWN} SMs"
        return (
            ("partition", request.value),
            ("server", server.name),
            ("device", found.device or UNKNOWN),
            ("size", size),
        )

    def pids(self, request: Request, node: V3Node) -> set[int]:
        """The daemon refuses it where there are any."""
        return set()


class _Feature(V3Operation):
    """Switches something of the daemon. What it says of it afterwards has no documented form."""

    what = "feature"
    on: ClassVar[bool]
    arguments = (Argument("value", "Feature", " or ".join(FEATURES), " or ".join(FEATURES), "NAME"),)

    def wrong_value(self, request: Request) -> Refused | None:
        if request.value in FEATURES:
            return None
        known = f"there are: {', '.join(FEATURES)}"
        return Refused(f"there is no feature “{printable(request.value, 80)}”; {known}", ExitStatus.USAGE)

    def calls(self, request: Request) -> list[list[str]]:
        return [["feature", "enable" if self.on else "disable", request.value]]

    def check(self, request: Request, node: V3Node, daemon: Daemon) -> tuple[tuple[str, str], ...]:
        now = node.switched(request.value)
        said = UNKNOWN if now is None else "enabled" if now else "disabled"
        return (("feature", request.value), ("now", said), ("for", "the whole daemon"))

    def missing(self, request: Request, node: V3Node) -> str | None:
        wrong = node.switched(request.value) is (not self.on)
        return f"{request.value} is {'disabled' if self.on else 'enabled'} as before" if wrong else None

    def tell(self, request: Request, node: V3Node, daemon: Daemon) -> tuple[str, tuple[str, ...]]:
        word = "enabled" if self.on else "disabled"
        if node.switched(request.value) is None:
            told = "feature describe does not confirm it"
            return f"{request.value}: the daemon took it; {told}", node.features
        return f"{request.value} is {word}", ()

    def undo(self, request: Request, daemon: Daemon) -> Request | None:
        before = daemon.v3.switched(request.value) if daemon.v3 is not None else None
        if before is None or before is self.on:
            return None
        return request._replace(action=(EnableFeature if before else DisableFeature).id)


class EnableFeature(_Feature):
    """``feature enable``."""

    id = "v3_feature_enable"
    title = "Enable feature"
    help = "Switch memory accounting, or sharing of contexts, on for the daemon"
    on = True
    verb = Verb(
        ("feature", "enable"), "switch a feature on (protocol 3)", example="mpstui feature enable memacct"
    )  # fmt: skip


class DisableFeature(_Feature):
    """``feature disable``."""

    id = "v3_feature_disable"
    title = "Disable feature"
    help = "Switch memory accounting, or sharing of contexts, off for the daemon"
    on = False
    verb = Verb(
        ("feature", "disable"), "switch a feature off (protocol 3)", example="mpstui feature disable memacct"
    )  # fmt: skip


V3_OPERATIONS: Final[tuple[Operation, ...]] = (
    CreateServer(),
    SetServer(),
    DeleteServer(),
    CreateNamespace(),
    SetNamespace(),
    DeleteNamespace(),
    CreatePartition(),
    DeletePartition(),
    EnableFeature(),
    DisableFeature(),
)
