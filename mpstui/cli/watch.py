"""``status --watch``: what comes, goes and changes on a node, in words, a line each: for who listens to a screen, or
keeps a log of it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from time import localtime, strftime
from typing import Any, Final, NamedTuple

from mpstui import api
from mpstui.cli.output import SIMULATED, complain
from mpstui.core.cells import OUTDATED, client_line, with_indices
from mpstui.core.late import pattern
from mpstui.core.model import EMPTY, Snapshot
from mpstui.core.text import UNKNOWN, about, owner, path_text, printable
from mpstui.fields import CLIENT, DAEMON, DEVICE, SERVER, Thing, View
from mpstui.operations.types import ExitStatus

_SAID: Final[Mapping[str, tuple[str, ...]]] = {
    "daemon": ("health", "default_active_thread_percentage", "default_pinned_mem_limits", "default_client_priority"),
    "device": ("compute_mode",),
    "server": ("status", "active_thread_percentage", "pinned_mem_limits"),
    "client": (
        "state", "server_pid", "device_uuids", "active_thread_percentage", "pinned_mem_limits", "outdated_limits",
    ),
}  # fmt: skip
"""Fields that are said: those that somebody or something changes. What moves by itself each second is not."""
_OF_DEVICES: Final = ("device_uuids", "pinned_mem_limits", "default_pinned_mem_limits")
"""Fields whose texts name devices: a name that becomes known, or is no longer, is no change."""
_FIRST_S: Final = 10.0
"""So long is waited for all of the node to have been read once: nothing of that is a change. Then what is known."""
_BY_LOG: Final = pattern(r"(?<=FAULT)\?|(?<=LOST)\?")
_OF_DEVICE: Final = pattern(r"(^|  )(\d+):(?= )")
_ALONE: Final = ("json", "fields", "group_by", "health", "at", "log_dir")


class WatchedThing(NamedTuple):
    """One thing of the node, as it was said last."""

    name: str
    values: Mapping[str, str]
    """By the title of a field."""
    by_uuid: Mapping[str, object] = EMPTY
    """What is said of devices in ``values``, before they are named."""

    def line(self) -> str:
        """All of it; what is not known, and what is not so, is left out."""
        known = [f"{title} {text}" for title, text in self.values.items() if text not in {UNKNOWN, "no", "none", ""}]
        return ": ".join(part for part in (self.name, ", ".join(known)) if part)


def _in_words(text: str, ordinals: Mapping[str, str]) -> str:
    """Without signs that are easily missed, and with the devices of a list of sizes. ``ordinals``: UUIDs of the devices
    by the daemon's numbers."""
    text = _BY_LOG.sub(" by the log", text)
    return _OF_DEVICE.sub(lambda m: f"{', ' if m[1] else ''}{ordinals.get(m[2], f'device {m[2]}')}:", text)


def things(snapshot: Snapshot) -> dict[Hashable, WatchedThing]:
    """All that is said of a node, by what each is."""
    whole, euid = View.of(snapshot), os.geteuid()
    found: dict[Hashable, WatchedThing] = {}

    def add(key: Hashable, name: str, thing: Thing[Any], item: object, view: View) -> None:
        fields = [thing[each] for each in _SAID[thing.name]]
        numbers = view.daemon.ordinals if view.daemon is not None else {}
        texts = {each.title: with_indices(_in_words(each.text(item, view), numbers), view.indices) for each in fields}
        values = {title: printable(text.replace(OUTDATED, "").strip()) for title, text in texts.items()}
        by_uuid = {each.title: each.value(item, view) for each in fields if each.id in _OF_DEVICES}
        found[thing.name, key] = WatchedThing(printable(name, 400), values, by_uuid)

    for device in snapshot.devices:
        index = "?" if device.index is None else device.index
        add(device.uuid, f"GPU {index} {device.name or UNKNOWN}", DEVICE, device, whole)
    for daemon in snapshot.daemons:
        view = View.of(snapshot, daemon)
        place = path_text(daemon.pipe_dir)
        claimant = daemon.claimant(euid)
        word = "" if claimant is None else f", as {claimant}'s daemon says"
        add(place, f"daemon in {place}{word}", DAEMON, daemon, view)
        for server in daemon.servers:
            whose = owner(server.user, server.uid)
            add((place, server.key), f"server {server.key.pid} of {whose}{word}", SERVER, server, view)
            for client in server.clients:
                add((place, client.key), f"client {client_line(client)}{word}", CLIENT, client, view)
    for problem in snapshot.problems:
        subject = with_indices(problem.subject, whole.indices)
        text, remedy = (with_indices(part, whole.indices) for part in (problem.text, problem.remedy))
        said = f"{problem.severity}: {about(subject, text)}"
        name = f"{said.removesuffix('.')}. Remedy: {remedy}" if remedy else said
        found["problem", problem.severity, problem.subject, problem.text] = WatchedThing(printable(name, 600), {})
    return found


def differences(before: Mapping[Hashable, WatchedThing], now: Mapping[Hashable, WatchedThing]) -> Iterator[str]:
    """A line for each thing that has come, gone or changed; what has gone first."""
    yield from (f"gone: {told.name}" for key, told in before.items() if key not in now)
    for key, told in now.items():
        known = before.get(key)
        if known is None:
            yield f"new: {told.line()}"
            continue
        for title, text in told.values.items():
            was = known.values.get(title, UNKNOWN)
            if was == text or ((meant := told.by_uuid.get(title)) and meant == known.by_uuid.get(title)):
                continue
            if text == UNKNOWN:
                yield f"{told.name}: {title} no longer known, was {was}"
            else:
                yield f"{told.name}: {title} " + (text if was == UNKNOWN else f"from {was} to {text}")


def watch_status(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    """Until it is interrupted; returns the exit status. Raises Unable."""
    for name in _ALONE:
        if getattr(options, name, None):
            return complain(f"--watch stands alone: not with --{name.replace('_', '-')}", ExitStatus.USAGE)
    with api.open(pipe_dirs) as node:
        before: dict[Hashable, WatchedThing] = {}
        for snapshot in node.watch(whole_within=_FIRST_S):
            now = things(snapshot)
            if snapshot.source == "simulated" and not before:
                print(SIMULATED, flush=True)
            clock = strftime("%H:%M:%S", localtime(snapshot.time))
            for line in differences(before, now):
                print(f"{clock} {line}", flush=True)
            before = now
    return ExitStatus.DONE
