"""A daemon of MPS protocol 3 as the file that ``nvidia-cuda-mps-control -a FILE`` applies. Pure.

The sections are those that the vendor documents. The names of the keys inside a section are not documented where this
could be read: they are guessed by the options of the commands, and each line of such a key says so. A daemon takes keys
that it does not know for errors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from mpstui.core.late import pattern
from mpstui.core.v3 import DEFAULT, Namespace, V3Node, V3Server

HEAD: Final = """\
# For nvidia-cuda-mps-control -a FILE, as the daemon was when this was made. Sections and schema_version are as
# documented. Each key that ends in “# a guess” is named like the option of the command, which nobody has tried: a
# daemon refuses the file where a key has another name. “mpstui profile save” and “profile apply” need no guess.
schema_version = "1.0"
"""
_GUESS: Final = "  # a guess"
_NAME: Final = pattern(r"[a-z0-9_]{1,64}")


def apply_file(node: V3Node) -> str:
    """The text; servers, namespaces and features whose names cannot be are left out."""
    return "\n".join([HEAD, *_servers(node), *_features(node)])


def _servers(node: V3Node) -> Iterator[str]:
    for server in node.servers:
        if not _NAME.fullmatch(server.name):
            continue
        yield _section(f"[servers.{server.name}]", {"uid": server.uid, **_limits(node.namespace(server.name, DEFAULT))})
        for space in node.of(server.name):
            if space.name != DEFAULT and _NAME.fullmatch(space.name):
                yield _section(f"[servers.{server.name}.namespaces.{space.name}]", _limits(space))
        yield from _devices(server, node)


def _devices(server: V3Server, node: V3Node) -> Iterator[str]:
    for device in (server.allowed_devices or "").split(","):
        of = [p for p in node.partitions if (p.server, p.device) == (server.name, device) and p.status != "unallocated"]
        if device.strip():
            yield _section(f"[[servers.{server.name}.devices]]", {"device": device.strip()})
        for part in of:
            told = {"name": part.name, "chunks": part.chunks, "include_remainder": part.include_remainder}
            yield _section(f"[[servers.{server.name}.devices.sm_partitions]]", told)


def _features(node: V3Node) -> Iterator[str]:
    for line in node.features:
        name, colon, state = line.partition(":")
        if colon and re.fullmatch(r"[a-z-]{1,40}", name.strip()) and state.strip() in {"enabled", "disabled"}:
            yield _section(f"[features.{name.strip()}]", {"enabled": state.strip() == "enabled"})


def _limits(space: Namespace | None) -> dict[str, object]:
    if space is None:
        return {}
    return {
        "pinned_memory_limit": space.pinned_mem_limit,
        "active_thread_percentage": space.active_thread_percentage,
        "client_priority": space.client_priority,
    }


def _section(heading: str, values: Mapping[str, object]) -> str:
    """What is not set is left out."""
    lines = [f"{name} = {json.dumps(value)}{_GUESS}" for name, value in values.items() if value is not None]
    return "\n".join([heading, *lines, ""])
