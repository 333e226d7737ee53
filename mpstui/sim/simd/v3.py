"""The simulated daemon of MPS protocol 3: named servers, namespaces with limits and directories, clients in them.

What it answers is as the vendor documents it; nobody has recorded one for this project. What is not documented, the
words of a success and of most errors among it, is its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from .calls import PACKET
from .clients import ClientProcess, client_from_hello, parse_percentage, parse_size
from .config import Gpu
from .daemon import SimDaemon
from .partitions import Books, Partition, chunk_count, chunk_size
from .server import Begin, SimServer, start_process

NOT_PERMITTED: Final = 800
_NAME: Final = re.compile(r"[a-z0-9_]{1,64}")
_DEFAULT: Final = "default"
_LIMITS: Final = ("pinned-memory-limit", "active-thread-percentage", "client-priority")
_MEMORY: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
_SHARE: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


GARBLED: Final = "MPSTUI_SIM_GARBLED"
"""A variable: the servers are listed in words that no reader of tables understands."""


class CallError(Exception):
    """Why a command is not carried out: it goes to standard error, with status 1."""


class Space:
    """A namespace: its limits as they were given, and where its clients connect."""

    def __init__(self) -> None:
        self.limits: dict[str, str] = {}
        self.listener: socket.socket | None = None


class Named(NamedTuple):
    """A server by its name."""

    name: str
    uid: int
    devices: tuple[int, ...]
    pid: int
    spaces: dict[str, Space]


def is_v3(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a command line, or the variable that comes before it, asks for this protocol."""
    given = environment.get("CUDA_MPS_PROTOCOL_VERSION")
    if given:
        return given.startswith("3")
    text = " ".join(arguments)
    return re.search(r"(?:^| )(?:-p ?|--protocol[ =])3(?: |$)", text) is not None


class V3Daemon(SimDaemon):
    """A daemon whose commands are modules and verbs."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.named: dict[str, Named] = {}
        self._garbled = bool(os.environ.get(GARBLED))
        self._routes: dict[ClientProcess, tuple[str, str]] = {}
        self._books = Books(self.gpus)
        self._parts: dict[tuple[str, str], Partition] = {}
        self._with_remainder: set[Partition] = set()
        self._features: dict[str, bool] = {"memacct": False, "context-share": False}

    # Whoever connects.

    def _hello(self, connection: socket.socket) -> None:
        try:
            begun = connection.recv(3, socket.MSG_PEEK)
        except OSError:
            begun = b""
        if begun != b"V3 ":
            super()._hello(connection)
            return
        self._loop.unwatch(connection)
        _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        out, error, status = b"", b"", 0
        try:
            lowered, *words = connection.recv(PACKET)[3:].decode("utf-8", "surrogateescape").split("\0")
            if uid in (0, self.owner) and lowered.isdigit():
                uid = int(lowered)  # a privileged user may play another one
            out = self._run(uid, words).encode("utf-8", "surrogateescape")
        except CallError as refused:
            error, status = f"{refused}\n".encode(), 1
        except (OSError, ValueError, IndexError, KeyError) as trouble:
            error, status = f"Invalid command: {type(trouble).__name__}\n".encode(), 1
        with contextlib.suppress(OSError):
            for mark, text in ((b"O", out), (b"X", error)):
                for start in range(0, len(text), 32768):
                    connection.send(mark + text[start : start + 32768])
            connection.send(b"S%d" % status)
        connection.close()

    def _new_client(self, client: ClientProcess) -> None:
        """At the daemon's own socket: by its user."""
        found = next((n for n in self._there().values() if n.uid == client.uid), None)
        self._enter(client, found or self._create(f"uid_{client.uid}", client.uid, ""), _DEFAULT)

    def _place(self, server: str, space: str = _DEFAULT) -> str:
        """The directory at which a namespace's clients connect."""
        return os.path.join(self._pipe_dir, server, *([] if space == _DEFAULT else [space]))

    def _listen(self, named: Named, space: str) -> None:
        place = self._place(named.name, space)
        os.makedirs(place, exist_ok=True)
        path = os.path.join(place, "control")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(path)
        os.chmod(path, 0o666)  # noqa: S103 - as the daemon's own socket
        listener.listen(64)
        listener.setblocking(False)
        named.spaces[space].listener = listener
        self._loop.watch(listener, lambda: self._knock(listener, named, space))

    def _knock(self, listener: socket.socket, named: Named, space: str) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        connection.settimeout(2)
        self._loop.watch(connection, lambda: self._hello_in(connection, named, space))

    def _hello_in(self, connection: socket.socket, named: Named, space: str) -> None:
        self._loop.unwatch(connection)
        pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        try:
            client = client_from_hello(connection, json.loads(connection.recv(PACKET)), (pid, uid), len(self.gpus))
        except (OSError, ValueError, RecursionError):
            connection.close()
            return
        self._enter(client, named, space)

    def _enter(self, client: ClientProcess, named: Named, space: str) -> None:
        self._loop.watch(client.connection, lambda: self._client_ready(client))
        server = self.servers.get(named.pid)
        if server is None or (named.uid != client.uid and not self._multiuser):
            client.tell("refused", error=NOT_PERMITTED)
            return
        limits = named.spaces[space].limits
        own = dict(client.env)
        if "active-thread-percentage" in limits:
            own[_SHARE] = limits["active-thread-percentage"]
        if "pinned-memory-limit" in limits and _MEMORY not in own:
            own[_MEMORY] = ",".join(f"{n}={limits['pinned-memory-limit']}" for n in range(len(self.gpus)))
        client.env = own
        self._routes[client] = named.name, space
        self._serve(server, client)

    # Commands.

    def _there(self) -> dict[str, Named]:
        """Servers whose process runs: one that has ended vanishes from the list."""
        for name in [name for name, named in self.named.items() if named.pid not in self.servers]:
            self._forget(self.named.pop(name))
        return self.named

    def _run(self, uid: int, words: list[str]) -> str:
        module, verb, *rest = words
        options = dict(_option(word) for word in rest if word.startswith("--") or "=" in word)
        names = [word for word in rest if not word.startswith("--") and "=" not in word]
        table: dict[tuple[str, str], Callable[[list[str], dict[str, str]], str]] = {
            ("server", "list"): self._server_list,
            ("namespace", "list"): self._namespace_list,
            ("client", "list"): self._client_list,
            ("client", "get"): self._client_get,
            ("device", "list"): self._device_list,
            ("sm-partition", "list"): self._part_list,
            ("feature", "describe"): self._describe,
        }
        changes: dict[tuple[str, str], Callable[[list[str], dict[str, str]], str]] = {
            ("server", "create"): self._server_create,
            ("server", "delete"): self._server_delete,
            ("server", "set"): self._server_set,
            ("namespace", "create"): self._namespace_create,
            ("namespace", "delete"): self._namespace_delete,
            ("namespace", "set"): self._namespace_set,
            ("client", "terminate"): self._client_terminate,
            ("sm-partition", "create"): self._part_create,
            ("sm-partition", "delete"): self._part_delete,
            ("feature", "enable"): lambda n, o: self._switch(n, True),
            ("feature", "disable"): lambda n, o: self._switch(n, False),
        }
        if (module, verb) in changes:
            self._logs.control("Call:" + " ".join(words))
            if uid not in (0, self.owner):
                raise CallError(f"Insufficient privileges for UID {uid}")
            return changes[module, verb](names, options)
        if (module, verb) not in table:
            raise CallError(f"Unknown command: {module} {verb}")
        return table[module, verb](names, options)

    def _find(self, name: str | None) -> Named:
        found = self._there().get(name or "")
        if found is None:
            raise CallError(f"Server '{name}' not found")
        return found

    def _create(self, name: str, uid: int, allowed: str) -> Named:
        devices = tuple(self._device(text) for text in allowed.split(",")) if allowed else tuple(range(len(self.gpus)))
        known = tuple(device for device in devices if device is not None)
        gpus = tuple(self.gpus[device] for device in known)
        logs = self._logs.of_server(name)
        begin = Begin(self._place(name), uid, gpus, logs, 100.0, 0, 0, self.driver)
        pid, link = start_process(begin)
        server = SimServer(pid, link, uid, gpus or self.gpus, logs, self._xids.append)
        self.servers[pid] = server
        self._loop.watch(link, lambda: self._server_speaks(server))
        named = self.named[name] = Named(name, uid, known, pid, {_DEFAULT: Space()})
        self._listen(named, _DEFAULT)
        if None in devices:  # it succeeds, and the server exits
            self._exit_server(server)
        return named

    def _forget(self, named: Named) -> None:
        for name, space in named.spaces.items():
            self._close(named, name, space)
        with contextlib.suppress(OSError):
            os.rmdir(self._place(named.name))
        for key in [key for key in self._parts if key[0] == named.name]:
            self._books.partitions.remove(self._parts.pop(key))

    def _close(self, named: Named, name: str, space: Space) -> None:
        place = self._place(named.name, name)
        if space.listener is not None:
            self._loop.unwatch(space.listener)
            space.listener.close()
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(place, "control"))
        if name != _DEFAULT:
            with contextlib.suppress(OSError):
                os.rmdir(place)

    def _server_create(self, names: list[str], options: dict[str, str]) -> str:
        uid = int(options.get("uid", str(self.owner)))
        name = _checked(names[0] if names else f"uid_{uid}")
        if name in self._there():
            raise CallError(f"Server '{name}' already exists")
        self._create(name, uid, options.get("allowed-devices", ""))
        return f"Server '{name}' created\nCUDA_MPS_PIPE_DIRECTORY=" + self._place(name) + "\n"

    def _server_delete(self, names: list[str], options: dict[str, str]) -> str:
        named = self._find(names[0])
        server = self.servers[named.pid]
        if server.clients and "force" not in options:
            raise CallError(f"Server '{named.name}' has {len(server.clients)} active clients")
        self._exit_server(server)
        self._there()
        return f"Server '{named.name}' deleted\n"

    def _server_set(self, names: list[str], options: dict[str, str]) -> str:
        named = self._find(names[0])
        named.spaces[_DEFAULT].limits.update(_limits(options))
        return f"Server '{named.name}' updated\n"

    def _server_list(self, names: list[str], options: dict[str, str]) -> str:
        rows = [
            [
                named.name,
                str(named.uid),
                str(named.pid),
                "Fault" if self.servers[named.pid].status == "FAULT" else "Ready",
                self._place(named.name),
                ",".join(self.gpus[device].uuid for device in named.devices),
                "-",
            ]
            for named in self._there().values()
            if not names or named.name == names[0]
        ]
        if self._garbled:
            return "".join(f"Server {name!r} is there.\n" for name in self.named) or "No servers.\n"
        heading = ("name", "uid", "pid", "status", "pipe-directory", "allowed-devices", "context-ids")
        return _table(heading, rows, options)

    def _namespace_create(self, names: list[str], options: dict[str, str]) -> str:
        named, name = self._find(options.get("server")), _checked(names[0])
        if name in named.spaces:
            raise CallError(f"Namespace '{name}' already exists")
        named.spaces[name] = Space()
        self._listen(named, name)
        return f"Namespace '{name}' created\nCUDA_MPS_PIPE_DIRECTORY=" + self._place(named.name, name) + "\n"

    def _space(self, names: list[str], options: dict[str, str]) -> tuple[Named, Space]:
        named = self._find(options.get("server"))
        if names[0] not in named.spaces:
            raise CallError(f"Namespace '{names[0]}' not found")
        return named, named.spaces[names[0]]

    def _namespace_delete(self, names: list[str], options: dict[str, str]) -> str:
        named, space = self._space(names, options)
        users = [c for c in self.servers[named.pid].clients if self._routes.get(c) == (named.name, names[0])]
        if names[0] == _DEFAULT:
            raise CallError("The default namespace cannot be deleted")
        if users and "force" not in options:
            raise CallError(f"Namespace '{names[0]}' has {len(users)} active clients")
        for client in users:
            self.servers[named.pid].terminate(client, lambda: None)
        self._close(named, names[0], space)
        del named.spaces[names[0]]
        return f"Namespace '{names[0]}' deleted\n"

    def _namespace_set(self, names: list[str], options: dict[str, str]) -> str:
        _, space = self._space(names, options)
        space.limits.update(_limits(options))
        return f"Namespace '{names[0]}' updated\n"

    def _namespace_list(self, names: list[str], options: dict[str, str]) -> str:
        rows = []
        for named in self._there().values():
            for name, space in named.spaces.items():
                if options.get("server") in {None, named.name} and (not names or name == names[0]):
                    share = parse_percentage(space.limits.get("active-thread-percentage", ""))
                    place = self._place(named.name, name)
                    rows.append(
                        [
                            name,
                            named.name,
                            "Ready",
                            space.limits.get("pinned-memory-limit", "-"),
                            "-" if share is None else f"{share:.2f}",
                            space.limits.get("client-priority", "-"),
                            os.fspath(place),
                        ]
                    )
        return _table(("name", "server", "server-status", *_LIMITS, "pipe-directory"), rows, options)

    def _rows(self) -> list[tuple[Named, str, ClientProcess]]:
        found = []
        for named in self._there().values():
            for client in self.servers[named.pid].listed():
                found.append((named, self._routes.get(client, (named.name, _DEFAULT))[1], client))
        return found

    def _client_list(self, names: list[str], options: dict[str, str]) -> str:
        rows = [
            [
                str(client.pid),
                named.name,
                self.gpus[client.contexts[0].device].uuid if client.contexts else "-",
                space,
                client.command.encode("utf-8", "replace").decode(),
            ]
            for named, space, client in self._rows()
            if options.get("server") in {None, named.name}
        ]
        return _table(("pid", "server", "device", "namespace", "cmd"), rows, options)

    def _client(self, text: str) -> tuple[Named, str, ClientProcess]:
        found = next((row for row in self._rows() if str(row[2].pid) == text), None)
        if found is None:
            raise CallError(f"Client {text} not found")
        return found

    def _client_get(self, names: list[str], _options: dict[str, str]) -> str:
        named, space, client = self._client(names[0])
        told = {"pid": str(client.pid), "server": named.name, "maws-ns": space, "cmd": client.command}
        if names[1] not in told:
            raise CallError(f"Unknown field '{names[1]}'")
        return told[names[1]] + "\n"

    def _client_terminate(self, names: list[str], _options: dict[str, str]) -> str:
        named, _, client = self._client(names[0])
        self.servers[named.pid].terminate(client, lambda: None)
        return f"Client {client.pid} terminated\n"

    def _device(self, text: str) -> int | None:
        """A device by ordinal or UUID."""
        numbers = {str(number): number for number in range(len(self.gpus))}
        return numbers.get(text, next((n for n, gpu in enumerate(self.gpus) if gpu.uuid == text), None))

    def _device_list(self, _names: list[str], options: dict[str, str]) -> str:
        rows = [
            [str(n), named.name, f"0000:00.{gpu.index + 6:02x}.00", gpu.uuid, gpu.name, *_sizes(gpu), "N/A"]
            for named in self._there().values()
            if options.get("server") in {None, named.name}
            for n, gpu in enumerate(self.gpus[device] for device in named.devices)
        ]
        heading = ("Ordinal", "Server", "PCI ID", "Device UUID", "Name", "Total SMs", "Total Chunks", "Attributes")
        return _table(heading, rows, options)

    def _part_create(self, names: list[str], options: dict[str, str]) -> str:
        named, name = self._find(options.get("server")), _checked(names[0])
        device = self._device(options.get("device", ""))
        if device is None or (named.name, name) in self._parts:
            raise CallError(f"SM partition '{name}' already exists, or there is no such device")
        if any(x.device == device for c in self.servers[named.pid].clients for x in c.contexts):
            raise CallError("There are active clients on the device")
        made = self._books.add(device, int(options["chunks"]))
        if made is None:
            raise CallError(f"There are not {options['chunks']} free chunks")
        self._parts[named.name, name] = made
        if options.get("include-remainder") == "true":
            self._with_remainder.add(made)
        uuid = self.gpus[device].uuid
        sms = self._sms(made)
        where = f"SM partition '{name}' created on device {uuid} (sm-count={sms})"
        return f"{where}\nCUDA_MPS_SM_PARTITION={uuid}/{made.id}\n"

    def _sms(self, part: Partition) -> int:
        gpu = self.gpus[part.device]
        rest = gpu.sm_count - chunk_count(gpu) * chunk_size(gpu) if part in self._with_remainder else 0
        return part.chunks * chunk_size(gpu) + rest

    def _part_delete(self, names: list[str], options: dict[str, str]) -> str:
        found = self._parts.pop((options.get("server", ""), names[0]), None)
        if found is None:
            raise CallError(f"SM partition '{names[0]}' not found")
        self._books.partitions.remove(found)
        return f"SM partition '{names[0]}' deleted\n"

    def _part_list(self, _names: list[str], options: dict[str, str]) -> str:
        rows = []
        for (server, name), part in self._parts.items():
            gpu = self.gpus[part.device]
            rest = str(part in self._with_remainder).lower()
            shown = (name, str(part.chunks), str(self._sms(part)), rest, "created", f"{gpu.uuid}/{part.id}")
            rows.append([server, gpu.uuid, *shown])
        for number, gpu in enumerate(self.gpus):
            left = chunk_count(gpu) - self._books.used(number)
            rows.append(["-", gpu.uuid, "-", str(left), str(left * chunk_size(gpu)), "-", "unallocated", "-"])
        heading = ("server", "device", "name", "chunks", "sm-count", "include-remainder", "status", "visible-uuid")
        return _table(heading, rows, options)

    def _describe(self, _names: list[str], _options: dict[str, str]) -> str:
        return "".join(f"{name}: {'enabled' if on else 'disabled'}\n" for name, on in self._features.items())

    def _switch(self, names: list[str], on: bool) -> str:
        if names[0] not in self._features:
            raise CallError(f"Unknown feature '{names[0]}'")
        self._features[names[0]] = on
        return f"Feature '{names[0]}' {'enabled' if on else 'disabled'}\n"


def _option(word: str) -> tuple[str, str]:
    name, _, value = word.lstrip("-").partition("=")
    return name, value


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise CallError(f"Invalid name '{name}'")
    return name


def _limits(options: Mapping[str, str]) -> dict[str, str]:
    """Of the options those that are limits, checked."""
    found = {name: options[name] for name in _LIMITS if name in options}
    share, size, priority = (
        found.get(name) for name in ("active-thread-percentage", "pinned-memory-limit", _LIMITS[2])
    )
    if share is not None and (parse_percentage(share) is None or parse_percentage(share) != float(share)):
        raise CallError(f"Invalid active-thread-percentage '{share}'")
    if size is not None and parse_size(size) is None:
        raise CallError(f"Invalid pinned-memory-limit '{size}'")
    if priority not in {None, "0", "1"}:
        raise CallError(f"Invalid client-priority '{priority}'")
    return found


def _sizes(gpu: Gpu) -> list[str]:
    return [str(gpu.sm_count), str(chunk_count(gpu))]


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]], options: Mapping[str, str]) -> str:
    wanted = options.get("format", "").split(",")
    if "csv" not in wanted:
        return "".join("  ".join(row) + "\n" for row in (heading, *rows))
    shown = rows if "noheader" in wanted else (heading, *rows)
    return "".join(",".join(row) + "\n" for row in shown)
