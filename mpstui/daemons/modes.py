"""The compute mode of a device, set as an admin does it: by ``nvidia-smi -c``, which needs root; and which it was."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mpstui.config import make_folder, put_file, state_folder
from mpstui.core.model import COMPUTE_MODES, DEFAULT_MODE, EXCLUSIVE_PROCESS, Daemon, Device, ProcessKey, Snapshot
from mpstui.core.text import error_text, path_text, printable
from mpstui.core.trust import is_anothers, whose_word
from mpstui.observe.discovery import running_daemons
from mpstui.system.own import find_program, own_path
from mpstui.system.procfs import boot_id
from mpstui.system.trusted import NotTrustedError, judge_directory, open_trusted

_LIMIT: Final = 1 << 16
_SECONDS: Final = 60.0
"""A driver without persistence mode loads first."""
_TURN, _AGAIN = 10.0, 0.005
"""Seconds that another process that writes the file is waited for, and between two tries: it takes a millisecond."""


def set_compute_mode(uuid: str, mode: str) -> str | None:
    """Sets the mode of the device; why it could not be, or None. Waits for at most a minute."""
    command = ["nvidia-smi", "-i", uuid, "-c", mode]
    try:
        done = subprocess.run(
            command,
            executable=find_program(command[0]),
            env={**os.environ, "PATH": own_path(), "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"nvidia-smi has not ended in {_SECONDS:g} s"
    except OSError as error:
        return f"nvidia-smi cannot be run: {error_text(error)}"
    if done.returncode:
        return printable(done.stdout[:2000].strip(), 200) or f"nvidia-smi exited with status {done.returncode}"
    return None


def modes_before() -> Mapping[str, str]:
    """UUID to the mode that a device had before a daemon was started with ``--exclusive`` in this boot.

    From a file in the state folder that nobody but this user can have written; nothing where there is none.
    """
    try:
        with open(open_trusted(_kept(), os.O_RDONLY, {0, os.geteuid()}), "rb") as file:
            raw = file.read(_LIMIT + 1)
        data = json.loads(raw) if len(raw) <= _LIMIT else None
    except (OSError, NotTrustedError, ValueError, RecursionError):
        return {}
    boot = boot_id()
    if not isinstance(data, dict) or not boot or data.get("boot_id") != boot or not isinstance(data.get("modes"), dict):
        return {}
    return dict(_valid(data["modes"]))


def _valid(modes: Mapping[object, object]) -> Iterator[tuple[str, str]]:
    for uuid, mode in modes.items():
        if isinstance(uuid, str) and isinstance(mode, str) and mode in COMPUTE_MODES:
            yield uuid, mode


def served_by_others(devices: Sequence[Device], but: ProcessKey | None) -> dict[str, int]:
    """UUIDs of the devices that a running daemon of this machine serves, one other than ``but``, by what it was started
    with, each with a daemon's PID; all of them where that does not tell.

    Only daemons of root's or one's own count: anybody calls a process so and says that it has all devices, and one that
    serves them runs on in the other mode too."""
    found: dict[str, int] = {}
    for daemon in running_daemons():
        words = [word.strip() for word in (daemon.visible or "").split(",") if word.strip()]
        if daemon.key == but or is_anothers(daemon.uid, os.geteuid()):
            continue
        named = words and all(word.startswith("GPU-") for word in words)
        for device in devices:
            if not named or any(device.uuid.startswith(word) for word in words):
                found.setdefault(device.uuid, daemon.key.pid)
    return found


def to_give_back(daemon: Daemon, snapshot: Snapshot, *, kept: bool = False) -> dict[str, str]:
    """Its exclusive devices that no other daemon has, with the mode that each had before the start; DEFAULT where that
    was not kept: who made them exclusive did it by hand, or as another user. Of a daemon that is gone it is not known
    which were its: those of which it was kept. ``kept``: those alone of any."""
    mine = _devices(daemon, snapshot)
    taken = _taken(daemon, snapshot)
    before = modes_before()
    back = [d.uuid for d in snapshot.devices if d.exclusive and d.uuid in mine and d.uuid not in taken]
    known = {uuid for uuid, mode in before.items() if mode != EXCLUSIVE_PROCESS}
    return {uuid: before.get(uuid, DEFAULT_MODE) for uuid in back if uuid in known or (daemon.runs and not kept)}


def that_stay(daemon: Daemon, snapshot: Snapshot) -> dict[str, int]:
    """Its exclusive devices that stay so after it, as another daemon has them, each with the PID of that one."""
    mine, taken = _devices(daemon, snapshot), _taken(daemon, snapshot)
    return {d.uuid: taken[d.uuid] for d in snapshot.devices if d.exclusive and d.uuid in mine and d.uuid in taken}


def _devices(daemon: Daemon, snapshot: Snapshot) -> set[str]:
    return set(daemon.ordinals.values()) or {device.uuid for device in snapshot.devices}


def _taken(daemon: Daemon, snapshot: Snapshot) -> dict[str, int]:
    """UUIDs of its devices that another daemon of root's or one's own has too, each with the PID of that one."""
    mine, taken = _devices(daemon, snapshot), dict[str, int]()
    for other in snapshot.daemons:
        if other.pid is not None and other.key != daemon.key and whose_word(other, os.geteuid()) is None:
            taken.update(dict.fromkeys(set(other.ordinals.values()) or mine, other.pid))
    if snapshot.source == "real":  # what was not named, or is in a container, serves them as well
        taken.update(served_by_others([d for d in snapshot.devices if d.uuid in mine], daemon.key))
    return taken


def keep_modes(found: Mapping[str, str], gone: Collection[str] = ()) -> str | None:
    """Remember the modes that devices had before they were set, and forget those of ``gone``; why that could not be
    written, or None. Of one that is exclusive, what is remembered already holds: a daemon that ended by itself gave
    nothing back."""
    path = _kept()
    try:
        make_folder(path.parent)
        judge_directory(path.parent, {0, os.geteuid()})
        with _alone(path.parent):
            before = modes_before()
            wanted = {**before, **{u: m for u, m in found.items() if m != EXCLUSIVE_PROCESS or u not in before}}
            wanted = {uuid: mode for uuid, mode in wanted.items() if uuid not in gone}
            if wanted != before:
                put_file(path, json.dumps({"boot_id": boot_id(), "modes": wanted}))
    except (OSError, NotTrustedError) as error:
        return f"{path_text(path)}: {error_text(error)}"
    return None


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """While it is read and written anew: of two starts at once one would forget the other's. Whoever stands still in it
    is not waited for beyond some seconds."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + _TURN
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    break
                time.sleep(_AGAIN)
        yield
    finally:
        os.close(descriptor)


def _kept() -> Path:
    return state_folder() / "compute-modes.json"
