"""A daemon of MPS protocol 3: its servers by name, their namespaces with limits, and the clients in each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, NamedTuple

from textual.binding import Binding, BindingType

from mpstui.core.model import Daemon, Snapshot
from mpstui.core.text import UNKNOWN, nouns, plural
from mpstui.core.v3 import DEFAULT, Namespace, V3Client, V3Node, V3Partition, V3Server
from mpstui.fields import V3_PARTITION, V3_SERVER, View
from mpstui.operations.registry import operation
from mpstui.operations.types import Request
from mpstui.operations.v3 import export_line, space_words
from mpstui.ui.bars import KeyHint, unless
from mpstui.ui.box import Para
from mpstui.ui.keys import own_binding
from mpstui.ui.lines import Line, fit
from mpstui.ui.panel import Panel
from mpstui.ui.partitions.screen import AS_DOCUMENTED
from mpstui.ui.screens import ListScreen
from mpstui.ui.typeahead import opens

_CREATE_SERVER: Final = "v3_server_create"
_CREATE: Final = "v3_namespace_create"
_CREATE_PARTITION: Final = "v3_partition_create"
_OF_SERVER: Final = "The server's limits apply to its default namespace only."
_OF_SPACE: Final = "Its percentage overrides a client's own; a client's own memory limit can only lower its limit."
_DEVICE: Final = 20
"""Cells of a device's index and name: ``GPU 0 H100 80GB HBM3``."""


class Level(NamedTuple):
    """A server, one of its namespaces, or a client in one."""

    server: V3Server
    space: Namespace | None = None
    client: V3Client | None = None
    part: V3Partition | None = None
    """SMs that are set aside for the server's clients that name them."""


def levels_of(node: V3Node) -> tuple[Level, ...]:
    """Each server, its namespaces under it, the clients under those; a client of a namespace that is not listed comes
    behind them."""
    found: list[Level] = []
    for server in node.servers:
        found.append(Level(server))
        found += [Level(server, part=part) for part in node.partitions if _is_there(part, server)]
        spaces = node.of(server.name)
        for space in spaces:
            found.append(Level(server, space))
            found += [Level(server, space, client) for client in node.clients_of(server.name, space.name)]
        known = {space.name for space in spaces}
        found += [Level(server, None, c) for c in node.clients_of(server.name) if c.namespace not in known]
    return tuple(found)


def _is_there(part: V3Partition, server: V3Server) -> bool:
    """Whether it is the server's, and no row for what is free."""
    return part.server == server.name and part.name is not None and part.status != "unallocated"


def device_words(text: str | None, daemon: Daemon | None, snapshot: Snapshot | None, *, uuid: bool = False) -> str:
    """``GPU 0 H100 80GB HBM3`` for what a daemon calls a device, an ordinal of its own or a UUID; with ``uuid`` the
    whole UUID behind it. What NVML does not know stays as the daemon has it."""
    named = (text or "").strip()
    known = daemon.ordinals.get(named, named) if daemon is not None else named
    device = snapshot.device(known) if snapshot is not None else None
    if device is None or device.index is None:
        return named or UNKNOWN
    name = (device.name or "").removeprefix("NVIDIA ")
    return " ".join(filter(None, (f"GPU {device.index}", name, device.uuid if uuid else "")))


class LevelsPanel(Panel[Level]):
    """One line for each."""

    KIND: ClassVar[str] = "namespace"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._snapshot: Snapshot | None = None
        self._daemon: Daemon | None = None

    def show(self, snapshot: Snapshot, daemon: Daemon | None) -> None:
        self._snapshot, self._daemon = snapshot, daemon
        node = daemon.v3 if daemon is not None else None
        context = (daemon, node, [(device.uuid, device.index, device.name) for device in snapshot.devices])
        self.set_rows(levels_of(node) if node is not None else (), context=context)

    def _device(self, text: str | None) -> str:
        return device_words(text, self._daemon, self._snapshot)

    def _user(self, server: V3Server) -> str | None:
        """By name, as everywhere, where its process tells that."""
        process = None if self._daemon is None or server.pid is None else self._daemon.find_server(server.pid)
        return None if process is None else process.user

    def key(self, row: Level) -> tuple[str, str, int, str]:
        client, part = row.client.pid if row.client else 0, row.part.name or "" if row.part else ""
        return row.server.name, row.space.name if row.space else "", client, part

    def title(self) -> Line:
        return (("Servers and namespaces", "title"), (f"  {AS_DOCUMENTED}", "dim"))

    def empty(self) -> str:
        return "no namespaces"

    def why_none(self) -> str:
        """Why there are none."""
        if self._daemon is None:
            return "There is no daemon here"
        if not self._daemon.named_servers:
            return "This daemon does not run MPS protocol 3. It has no namespaces"
        return self._daemon.not_understood or ("There is no server" if self._daemon.v3 is not None else "Not read yet")

    def row_lines(self, row: Level, width: int) -> list[Line]:
        node = self._daemon.v3 if self._daemon is not None else None
        if row.client is not None:
            return [
                (
                    (f"     {row.client.pid:<9}", "bold"),
                    (fit(self._device(row.client.device), _DEVICE) + " ", "dim"),
                    (fit(row.client.command or UNKNOWN, max(8, width - _DEVICE - 16)), "text"),
                )
            ]
        if row.part is not None:
            part = row.part
            chunks, sms = (V3_PARTITION[name].text(part, View()) for name in ("chunks", "sm_count"))
            size = f"{chunks} {nouns(part.chunks or 0, 'chunk')}, {sms} SM"
            return [
                (
                    (f"   {fit(part.name or '', 20)}", "accent"),
                    (fit(f"▦ {size}", 20) + " ", "text"),
                    (fit(self._device(part.device), _DEVICE) + " ", "dim"),
                    (V3_PARTITION["status"].text(part, View()), "dim"),
                )
            ]
        if row.space is None:
            pid, uid, state = (V3_SERVER[name].text(row.server, View()) for name in ("pid", "uid", "status"))
            return [
                (
                    (f" {fit(row.server.name, 22)}", "bold"),
                    (fit(f"PID {pid}", 13), "text"),
                    (fit(self._user(row.server) or f"UID {uid}", 11), "user"),
                    (state, "good" if state.lower() == "ready" else "warn"),
                )
            ]
        clients = len(node.clients_of(row.server.name, row.space.name)) if node is not None else 0
        default = node.namespace(row.server.name, DEFAULT) if node is not None else None
        free = row.space.unlimited and row.space.name != DEFAULT and default is not None and not default.unlimited
        return [
            (
                (f"   {fit(row.space.name, 20)}", "text"),
                (fit(plural(clients, "client"), 13), "dim"),
                ("no limits" if free else space_words(row.space), "warn" if free else "text"),
                ("  ▲ the server's limits do not apply" if free else "", "warn"),
            )
        ]


def export_of(row: Level) -> str:
    """What a program has to have in its environment."""
    if row.part is not None:
        return export_line("CUDA_MPS_SM_PARTITION", row.part.visible_uuid)
    return export_line("CUDA_MPS_PIPE_DIRECTORY", (row.space or row.server).pipe_dir)


def about(row: Level | None, daemon: Daemon | None, snapshot: Snapshot | None) -> list[Para]:
    """All of what the cursor is on, what a program exports to be its client, and what of the answers is not known."""
    said: list[Para] = []
    node = daemon.v3 if daemon is not None else None
    if row is not None and row.client is not None:
        on_device = Para(f"device: {device_words(row.client.device, daemon, snapshot, uuid=True)}")
        own = Para("A program chooses this text itself.", "dim")
        said = [Para(row.client.command or UNKNOWN, "bold"), on_device, own]
    elif row is not None and row.part is not None:
        on_device = Para(f"device: {device_words(row.part.device, daemon, snapshot, uuid=True)}")
        rule = "For a client of the server that names it; others do not get these SMs."
        said = [Para(export_of(row), "accent"), on_device, Para(rule, "dim"), *_more(row.part.more)]
    elif row is not None:
        rule = _OF_SERVER if row.space is None else _OF_SPACE
        more = _more((row.space or row.server).more)
        said = [Para(export_of(row), "accent"), _devices(row, daemon, snapshot), Para(rule, "dim"), *more]
    if node is not None:
        said += [Para(f"not understood: {line}", "warn") for line in node.not_understood]
        said += [Para(f"{what} list not read: {why}", "warn") for what, why in node.not_read.items()]
    return said


def _devices(row: Level, daemon: Daemon | None, snapshot: Snapshot | None) -> Para:
    each = (row.server.allowed_devices or UNKNOWN).split(",")
    return Para(f"devices: {', '.join(device_words(one, daemon, snapshot, uuid=True) for one in each)}")


def _more(values: Mapping[str, str]) -> list[Para]:
    return [Para(f"{name}: {value}", "dim") for name, value in values.items()]


class NamespacesScreen(ListScreen):
    """A makes a namespace of the server under the cursor, S a server; l sets limits, x deletes, t terminates."""

    NAME = "Namespaces"
    BELOW = True
    panel: LevelsPanel
    BINDINGS: ClassVar[list[BindingType]] = [
        own_binding(operation(_CREATE), "create"),
        own_binding(operation(_CREATE_SERVER), "create_server"),
        own_binding(operation(_CREATE_PARTITION), "create_partition"),
        own_binding(operation("v3_namespace_set"), "limits"),
        own_binding(operation("v3_namespace_delete"), "delete"),
        Binding("t", "terminate", "Terminate the client", show=False, id="namespace.terminate"),
        Binding("y", "copy", "Copy what a program exports", show=False, id="copy"),
        Binding("r", "read_again", "Read again", show=False, id="refresh"),
    ]

    def make_list(self) -> LevelsPanel:
        return LevelsPanel(id="list")

    @property
    def row(self) -> Level | None:
        """What the cursor is on."""
        return self.panel.cursor_row

    def fill(self, snapshot: Snapshot) -> None:
        self.panel.show(snapshot, self.daemon)

    def describe(self, snapshot: Snapshot) -> tuple[str, list[Para]]:
        row = self.row
        if row is None:
            return "No namespaces", [
                Para(f"{self.panel.why_none()}."),
                *about(None, self.daemon, snapshot),
            ]
        what = "Client" if row.client else "Namespace" if row.space else "Server"
        what = "SM partition" if row.part is not None else what
        return what, about(row, self.daemon, snapshot)

    def own_hints(self) -> list[KeyHint]:
        row, cannot = self.row, self._why_not()
        level = unless(row is not None and row.client is None, "the cursor is on no server and no namespace")
        part = "an SM partition has no limits" if row is not None and row.part is not None else None
        client = unless(row is not None and row.client is not None, "the cursor is on no client")
        return [
            KeyHint(self.k("namespace.create", "A"), "New namespace", "create", 9, cannot or unless(row, "no server")),
            KeyHint(self.k("namespace.create_server", "S"), "New server", "create_server", 7, cannot),
            KeyHint(
                self.k("namespace.partition", "P"),
                "SM partition",
                "create_partition",
                4,
                cannot or unless(row, "no server"),
            ),
            KeyHint(self.k("namespace.limits", "l"), "Limits", "limits", 9, cannot or level or part),
            KeyHint(self.k("namespace.delete", "x"), "Delete", "delete", 8, cannot or level or self._default()),
            KeyHint(self.k("namespace.terminate", "t"), "Terminate", "terminate", 8, client),
            KeyHint(self.k("copy", "y"), "Copy export", "copy", 5, level),
            KeyHint(self.k("refresh", "r"), "Read again", "read_again", 3),
        ]

    def _default(self) -> str | None:
        default = self.row is not None and self.row.space is not None and self.row.space.name == DEFAULT
        return "the default namespace is deleted only together with its server" if default else None

    def _why_not(self) -> str | None:
        if self.daemon is None or self.snapshot is None:
            return "there is no daemon here"
        return self.runner.unavailable(operation(_CREATE), self.snapshot, self.daemon.pipe_dir, ())

    def _open(self, action: str, value: str = "", **settings: str) -> None:
        if self.daemon is not None:
            asked = Request(action, self.daemon.pipe_dir, value, settings=tuple(settings.items()))
            self.host.open_request(operation(action), asked)

    @opens
    def action_create(self) -> None:
        if self.row is not None:
            self._open(_CREATE, server=self.row.server.name)

    @opens
    def action_create_server(self) -> None:
        self._open(_CREATE_SERVER)

    @opens
    def action_create_partition(self) -> None:
        if self.row is not None:
            self._open(_CREATE_PARTITION, server=self.row.server.name)

    @opens
    def action_limits(self) -> None:
        row = self.row
        if row is not None and row.part is not None:
            return
        if row is not None and row.space is not None and row.space.name != DEFAULT:
            self._open("v3_namespace_set", row.space.name, server=row.server.name)
        elif row is not None:
            self._open("v3_server_set", row.server.name)

    @opens
    def action_delete(self) -> None:
        row, daemon = self.row, self.daemon
        if row is None or daemon is None:
            return
        what = "v3_server_delete" if row.space is None else "v3_namespace_delete"
        settings: tuple[tuple[str, str], ...] = () if row.space is None else (("server", row.server.name),)
        name = row.server.name if row.space is None else row.space.name
        if row.part is not None:
            what, name = "v3_partition_delete", row.part.name or ""
            settings = tuple(
                (key, value) for key, value in (("server", row.part.server), ("device", row.part.device)) if value
            )
        asked = Request(what, daemon.pipe_dir, name, settings=settings)
        hit = operation(what).hit(asked, daemon)
        self.host.open_request(operation(what), asked._replace(clients=hit, force=bool(hit)))

    @opens
    def action_terminate(self) -> None:
        row, daemon = self.row, self.daemon
        if row is not None and row.client is not None and daemon is not None:
            found = next((client for client in daemon.clients() if client.pid == row.client.pid), None)
            if found is not None:
                self.act("terminate_client", (found.key,))

    def action_copy(self) -> None:
        if self.row is not None and self.row.client is None:
            self.copy(export_of(self.row), export_of(self.row))
