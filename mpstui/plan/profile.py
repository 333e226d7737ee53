"""Profiles: daemons with their limits and shares as TOML, checked, with the line of whatever is wrong; no I/O."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final

from mpstui.core.late import dataclass, pattern
from mpstui.core.model import empty
from mpstui.core.requests import Unable
from mpstui.core.text import PRIORITY_NEEDED, printable, unprintable
from mpstui.core.v3 import FEATURES
from mpstui.plan.amounts import PlanError, limit_text, size
from mpstui.plan.cpus import cpu_list, cpu_text
from mpstui.plan.exports import ShareSettings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCHEMA: Final = 1
NAME: Final = pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DEVICE: Final = pattern(r"[0-9]{1,3}|(GPU|MIG)-[A-Za-z0-9-]{1,60}")
_UUID: Final = pattern(r"(GPU|MIG)-[A-Za-z0-9-]{1,60}")
_V3_NAME: Final = pattern(r"[a-z0-9_]{1,64}")
_LINES: Final = 4000
Key = tuple[str | int, ...]


class ProfileError(Unable):
    """What is wrong with a profile, with its line where one is to blame."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a daemon's default or of its servers; None: nothing is said about it."""

    active_thread_percentage: float | None = None
    client_priority: int | None = None
    pinned_mem_limits: Mapping[str, int] = field(default_factory=empty)
    """Bytes by UUID, or by the daemon's ordinal."""


@dataclass(frozen=True, slots=True)
class PartitionProfile:
    """SMs of a device that are set aside, in whole chunks: a static partition, which has no name of its own, or one of
    a server of protocol 3."""

    device: str
    """UUID, or an ordinal as the daemon counts."""
    chunks: int
    name: str = ""
    include_remainder: bool | None = None
    """Of protocol 3: with the SMs that are in no chunk."""


@dataclass(frozen=True, slots=True)
class ServerProfile:
    """A named server of a daemon of protocol 3."""

    name: str
    uid: int | None = None
    devices: tuple[str, ...] = ()
    """UUIDs or ordinals; empty for all."""
    namespaces: tuple[ShareSettings, ...] = ()
    """Each with its limits; those of ``default`` are the server's own."""
    partitions: tuple[PartitionProfile, ...] = ()


@dataclass(frozen=True, slots=True)
class DaemonProfile:
    """One daemon: how it is started, its limits, and the shares of its clients."""

    pipe_dir: Path | None = None
    """None where the profile holds for whatever daemon is chosen."""
    log_dir: Path | None = None
    devices: tuple[str, ...] = ()
    """UUIDs; empty for all."""
    multi_user: bool = False
    cpus: frozenset[int] | None = None
    limits: Limits = field(default_factory=Limits)
    server_limits: Limits | None = None
    """For running servers, where they differ from the default."""
    shares: tuple[ShareSettings, ...] = ()
    static: bool = False
    """With static SM partitions, which cannot be turned on later."""
    partitions: tuple[PartitionProfile, ...] = ()
    """Static ones. Which id each gets is the daemon's to choose, and another one after each start."""
    protocol: int = 2
    """2, or 3 for one whose limits belong to ``servers``."""
    servers: tuple[ServerProfile, ...] = ()
    features: tuple[str, ...] = ()
    """Of protocol 3: those that are to be on."""

    @property
    def named_servers(self) -> bool:
        """As ``Daemon.named_servers``: whether it is to run with MPS protocol 3."""
        return self.protocol == 3

    @property
    def for_servers(self) -> Limits:
        """What running servers are to have: their own limits first, then the default's."""
        own, default = self.server_limits or Limits(), self.limits
        percentage = own.active_thread_percentage
        return Limits(
            default.active_thread_percentage if percentage is None else percentage,
            default.client_priority,
            {**default.pinned_mem_limits, **own.pinned_mem_limits},
        )


@dataclass(frozen=True, slots=True)
class Profile:
    """A node's daemons; usually one, or one for each GPU."""

    daemons: tuple[DaemonProfile, ...]
    description: str = ""

    def share(self, name: str) -> tuple[DaemonProfile, ShareSettings] | None:
        """The share of that name and the daemon that it is of."""
        return next(((d, share) for d in self.daemons for share in d.shares if share.name == name), None)


def parse(text: str) -> Profile:
    """The profile in ``text``. Raises ProfileError with the line of the first thing that is wrong."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = printable(str(error), 160).replace(
            "at end of document", f"at its end, line {text.count(chr(10)) + 1}"
        )
        raise ProfileError(f"is not TOML: {message}") from None
    except RecursionError:
        raise ProfileError("is nested too deeply") from None
    try:
        return _profile(data)
    except _WrongError as wrong:
        line = line_of(text, wrong.key)
        raise ProfileError(f"line {line}: {wrong}" if line else str(wrong)) from None


class _WrongError(Exception):
    def __init__(self, key: Key, message: str) -> None:
        super().__init__(message)
        self.key = key


def _profile(data: Mapping[str, Any]) -> Profile:
    _only(data, (), ("schema", "description", "daemon"))
    if data.get("schema") != SCHEMA or isinstance(data.get("schema"), bool):
        raise _WrongError(("schema",), f"schema must be {SCHEMA}")
    daemons = _tables(data, (), "daemon")
    if not daemons:
        raise _WrongError((), "there is no [[daemon]] in it")
    profile = Profile(
        tuple(_daemon(daemon, ("daemon", index)) for index, daemon in enumerate(daemons)),
        _value(data, (), "description", _text, ""),
    )
    for what in ("pipe_dir", "log_dir"):
        _different([getattr(d, what) for d in profile.daemons], [("daemon", i, what) for i in range(len(daemons))])
    _different(
        [share.name for d in profile.daemons for share in d.shares],
        [("daemon", i, "share", j, "name") for i, d in enumerate(profile.daemons) for j in range(len(d.shares))],
    )
    if len(daemons) > 1:
        for index, daemon in enumerate(profile.daemons):
            if daemon.pipe_dir is None:
                raise _WrongError(("daemon", index), "with several daemons, each needs its own pipe_dir")
    return profile


def _daemon(data: Mapping[str, Any], at: Key) -> DaemonProfile:
    known = ("pipe_dir", "log_dir", "devices", "multi_user", "cpu", "limits", "server_limits", "share")
    _only(data, at, (*known, "static", "partition", "protocol", "server", "feature"))
    static, protocol = _value(data, at, "static", _truth, False), _value(data, at, "protocol", _protocol, 2)
    if "partition" in data and not static:
        raise _WrongError((*at, "partition"), "a partition needs static = true above it: it cannot be turned on later")
    for key in ("server", "feature") if protocol == 2 else ("limits", "server_limits", "static"):
        if key in data:
            of = (
                "needs protocol = 3 above it"
                if protocol == 2
                else "is not of protocol 3, where servers have the limits"
            )
            raise _WrongError((*at, key), f"{key} {of}")
    server_limits = None
    if "server_limits" in data:
        server_limits = _limits(data["server_limits"], (*at, "server_limits"), priority=False)
    shares = _tables(data, at, "share")
    return DaemonProfile(
        _value(data, at, "pipe_dir", _path, None),
        _value(data, at, "log_dir", _path, None),
        _value(data, at, "devices", _uuids, ()),
        _value(data, at, "multi_user", _truth, False),
        _value(data, at, "cpu", _cpus, None),
        _limits(data.get("limits", {}), (*at, "limits")),
        server_limits,
        tuple(_share(share, (*at, "share", index)) for index, share in enumerate(shares)),
        static,
        tuple(_partition(p, (*at, "partition", i)) for i, p in enumerate(_tables(data, at, "partition"))),
        protocol,
        _servers(_tables(data, at, "server"), at),
        _value(data, at, "feature", _features, ()),
    )


def _servers(data: Sequence[Mapping[str, Any]], at: Key) -> tuple[ServerProfile, ...]:
    found = tuple(_server(server, (*at, "server", index)) for index, server in enumerate(data))
    _different([one.name for one in found], [(*at, "server", index, "name") for index in range(len(found))])
    return found


def _server(data: Mapping[str, Any], at: Key) -> ServerProfile:
    _only(data, at, ("name", "uid", "devices", "namespace", "partition"))
    spaces, parts = _tables(data, at, "namespace"), _tables(data, at, "partition")
    found = ServerProfile(
        _name_of(data, at, "a server"),
        _value(data, at, "uid", _uid, None),
        _value(data, at, "devices", _devices, ()),
        tuple(_namespace(space, (*at, "namespace", index)) for index, space in enumerate(spaces)),
        tuple(_partition(part, (*at, "partition", index), named=True) for index, part in enumerate(parts)),
    )
    for key, named in (("namespace", found.namespaces), ("partition", found.partitions)):
        _different([one.name for one in named], [(*at, key, index, "name") for index in range(len(named))])
    return found


def _namespace(data: Mapping[str, Any], at: Key) -> ShareSettings:
    name = _name_of(data, at, "a namespace")
    found = _share(data, at)
    if (share := found.active_thread_percentage) is not None and share < 1:
        raise _WrongError((*at, "active_thread_percentage"), "active_thread_percentage of a namespace is 1 to 100")
    return replace(found, name=name)


def _partition(data: Mapping[str, Any], at: Key, *, named: bool = False) -> PartitionProfile:
    _only(data, at, ("device", "chunks", *(("name", "include_remainder") if named else ())))
    for key in ("device", "chunks"):
        if key not in data:
            raise _WrongError(at, f"a partition needs its {key}")
    return PartitionProfile(
        _value(data, at, "device", _device_name, ""),
        _value(data, at, "chunks", _chunks, 0),
        _name_of(data, at, "a partition") if named else "",
        _value(data, at, "include_remainder", _truth, None),
    )


def _name_of(data: Mapping[str, Any], at: Key, what: str) -> str:
    if "name" not in data:
        raise _WrongError(at, f"{what} needs a name")
    return str(_value(data, at, "name", _v3_name, ""))


def _limits(data: Any, at: Key, *, priority: bool = True) -> Limits:
    known = ("active_thread_percentage", "pinned_mem_limit") + (("client_priority",) if priority else ())
    _only(_table(data, at), at, known)
    memory = _table(data.get("pinned_mem_limit", {}), (*at, "pinned_mem_limit"))
    for device in memory:
        if not _DEVICE.fullmatch(device):
            raise _WrongError(
                (*at, "pinned_mem_limit", device),
                f"{_quoted(device)} is no device: an ordinal or a GPU's UUID is needed",
            )
    return Limits(
        _value(data, at, "active_thread_percentage", _percentage, None),
        _value(data, at, "client_priority", _priority, None),
        {device: _value(memory, (*at, "pinned_mem_limit"), device, _size, 0) for device in memory},
    )


def _share(data: Mapping[str, Any], at: Key) -> ShareSettings:
    _only(data, at, ("name", "active_thread_percentage", "pinned_mem_limit", "client_priority"))
    if "name" not in data:
        raise _WrongError(at, "a share needs a name")
    return ShareSettings(
        _value(data, at, "name", _name, ""),
        _value(data, at, "active_thread_percentage", _percentage, None),
        _value(data, at, "pinned_mem_limit", _size, None),
        _value(data, at, "client_priority", _priority, None),
    )


def _value(data: Mapping[str, Any], at: Key, key: str, check: Callable[[Any], Any], default: Any) -> Any:
    if key not in data:
        return default
    try:
        return check(data[key])
    except (ValueError, PlanError) as error:
        raise _WrongError((*at, key), f"{printable(key, 60)} {error}") from None


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 300 or not value.isprintable():
        raise ValueError("must be one line of text")
    return value


def _path(value: Any) -> Path:
    if not isinstance(value, str) or not value.startswith("/") or ".." in Path(value).parts:
        raise ValueError("must be an absolute path")
    if (problem := unprintable(value)) is not None:
        raise ValueError(f"is not taken: {problem}")
    if not Path(value).name:
        raise ValueError("must be a directory for the daemon alone, not /")
    return Path(value)


def _uuids(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) and _UUID.fullmatch(v) for v in value):
        raise ValueError('must be a list of UUIDs, ["GPU-…"]: ordinals change, UUIDs do not')
    if len(set(value)) != len(value):
        raise ValueError("names a device twice")
    return tuple(value)


def _protocol(value: Any) -> int:
    if isinstance(value, bool) or value not in (2, 3):
        raise ValueError("must be 2 or 3")
    return int(value)


def _uid(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**32 - 1:
        raise ValueError("must be the number of a user")
    return value


def _chunks(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 999_999:
        raise ValueError("must be a whole number above 0")
    return value


def _device_name(value: Any) -> str:
    if not isinstance(value, str) or not _DEVICE.fullmatch(value):
        raise ValueError("must be a GPU's UUID, or an ordinal as text")
    return value


def _devices(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError('must be a list of devices, ["GPU-…"]')
    found = tuple(map(_device_name, value))
    if len(set(found)) != len(found):
        raise ValueError("names a device twice")
    return found


def _features(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) and v in FEATURES for v in value):
        raise ValueError(f"must be a list of {' and '.join(FEATURES)}")
    return tuple(dict.fromkeys(value))


def _v3_name(value: Any) -> str:
    if not isinstance(value, str) or not _V3_NAME.fullmatch(value):
        raise ValueError("must be small letters, digits and _, 64 at most")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _cpus(value: Any) -> frozenset[int]:
    if not isinstance(value, str):
        raise ValueError('must be a list of CPUs as text, "0-3,8"')
    return cpu_list(value)


def _percentage(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.1 <= value <= 100:
        raise ValueError("must be a number from 0.1 to 100")
    return float(value)


def _priority(value: Any) -> int:
    if isinstance(value, bool) or value not in (0, 1):
        raise ValueError(f"must be {PRIORITY_NEEDED}")
    return int(value)


def _size(value: Any) -> int:
    if not isinstance(value, str):
        raise ValueError('must be a size as text, "10G" or "900M"')
    return size(value, "the limit")


def _name(value: Any) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise ValueError("must be letters, digits, . _ and - only, at most 64")
    return value


def _table(value: Any, at: Key) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _WrongError(at, f"{at[-1]} must be a table")
    return value


def _tables(data: Mapping[str, Any], at: Key, key: str) -> Sequence[Mapping[str, Any]]:
    value = data.get(key, [])
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        header = f"[[daemon.{key}]]" if at else f"[[{key}]]"
        raise _WrongError((*at, key), f"{key} must be tables, each under {header}")
    return value


def _only(data: Mapping[str, Any], at: Key, known: Sequence[str]) -> None:
    for key in data:
        if key not in known:
            raise _WrongError((*at, key), f"{_quoted(key)} is not known here; known: {', '.join(sorted(known))}")


def _different(values: Sequence[object], keys: Sequence[Key]) -> None:
    seen: set[object] = set()
    for value, key in zip(values, keys, strict=True):
        if value is not None and value in seen:
            raise _WrongError(key, f"{key[-1]} {_quoted(str(value))} is given twice")
        seen.add(value)


def _quoted(text: str) -> str:
    return f"“{printable(text, 60)}”"


def line_of(text: str, key: Key) -> int | None:
    """The line on which ``key`` is given: the first beginning of the file that holds it ends there.

    What is not given at all stands where what it belongs to begins.
    """
    lines = text.splitlines(keepends=True)[:_LINES]
    while key:
        low, high = 0, len(lines)
        while low < high:
            middle = (low + high) // 2
            if _holds(lines, middle, key):
                high = middle
            else:
                low = middle + 1
        if _holds(lines, low, key):
            return low
        key = key[:-1]
    return None


def _holds(lines: Sequence[str], number: int, key: Key) -> bool:
    """Whether the first ``number`` lines, or as many of them as are TOML, hold ``key``."""
    data: Any = {}
    while number:
        try:
            data = tomllib.loads("".join(lines[:number]))
            break
        except tomllib.TOMLDecodeError:
            number -= 1  # in the middle of a value of several lines
    for part in key:
        if isinstance(data, dict) and part in data:
            data = data[str(part)]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return False
    return True


def dump(profile: Profile) -> str:
    """The profile as TOML that :func:`parse` takes."""
    lines = [f"schema = {SCHEMA}"]
    if profile.description:
        lines.append(f"description = {_string(profile.description)}")
    for daemon in profile.daemons:
        lines += ["", "[[daemon]]"]
        lines += [
            f"{name} = {_string(str(path))}" for name in ("pipe_dir", "log_dir") if (path := getattr(daemon, name))
        ]
        if daemon.devices:
            lines.append(f"devices = [{', '.join(_string(uuid) for uuid in daemon.devices)}]")
        if daemon.multi_user:
            lines.append("multi_user = true")
        if daemon.static:
            lines.append("static = true")
        if daemon.named_servers:
            lines.append(f"protocol = {daemon.protocol}")
        if daemon.features:
            lines.append(f"feature = [{', '.join(map(_string, daemon.features))}]")
        if daemon.cpus:
            lines.append(f"cpu = {_string(cpu_text(daemon.cpus))}")
        lines += _dump_limits("limits", daemon.limits)
        if daemon.server_limits is not None:
            lines += _dump_limits("server_limits", daemon.server_limits)
        for part in daemon.partitions:
            lines += ["", "[[daemon.partition]]", *_dump_partition(part)]
        for server in daemon.servers:
            lines += _dump_server(server)
        for share in daemon.shares:
            lines += ["", "[[daemon.share]]", *_dump_share(share)]
    return "\n".join(lines) + "\n"


def _dump_server(server: ServerProfile) -> list[str]:
    lines = ["", "[[daemon.server]]", f"name = {_string(server.name)}"]
    if server.uid is not None:
        lines.append(f"uid = {server.uid}")
    if server.devices:
        lines.append(f"devices = [{', '.join(map(_string, server.devices))}]")
    for space in server.namespaces:
        lines += ["", "[[daemon.server.namespace]]", *_dump_share(space)]
    for part in server.partitions:
        lines += ["", "[[daemon.server.partition]]", f"name = {_string(part.name)}", *_dump_partition(part)]
    return lines


def _dump_partition(part: PartitionProfile) -> list[str]:
    lines = [f"device = {_string(part.device)}", f"chunks = {part.chunks}"]
    if part.include_remainder is not None:
        lines.append(f"include_remainder = {str(part.include_remainder).lower()}")
    return lines


def _dump_share(share: ShareSettings) -> list[str]:
    lines = [f"name = {_string(share.name)}"]
    if share.active_thread_percentage is not None:
        lines.append(f"active_thread_percentage = {share.active_thread_percentage:g}")
    if share.pinned_mem_limit is not None:
        lines.append(f"pinned_mem_limit = {_string(limit_text(share.pinned_mem_limit))}")
    if share.client_priority is not None:
        lines.append(f"client_priority = {share.client_priority}")
    return lines


def _dump_limits(table: str, limits: Limits) -> list[str]:
    lines = ["", f"[daemon.{table}]"]
    if limits.active_thread_percentage is not None:
        lines.append(f"active_thread_percentage = {limits.active_thread_percentage:g}")
    if limits.client_priority is not None:
        lines.append(f"client_priority = {limits.client_priority}")
    if limits.pinned_mem_limits:
        lines += ["", f"[daemon.{table}.pinned_mem_limit]"]
        lines += [f"{_string(dev)} = {_string(limit_text(value))}" for dev, value in limits.pinned_mem_limits.items()]
    return lines if len(lines) > 2 else []


def _string(text: str) -> str:
    """TOML's basic strings are JSON's, for printable text."""
    return json.dumps(text, ensure_ascii=False)
