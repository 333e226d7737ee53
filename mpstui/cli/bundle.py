"""``doctor --bundle``: an archive for whoever is asked for help, with users, commands and names of machines masked."""

from __future__ import annotations

import asyncio
import io
import json
import math
import os
import platform
import sys
import tarfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import distributions
from itertools import islice
from pathlib import Path
from typing import Any, Final

from mpstui import __version__, api
from mpstui.cli.output import SIMULATED, complain
from mpstui.config import folder_of
from mpstui.core.mask import Mask
from mpstui.core.model import Daemon, Event, Snapshot
from mpstui.core.text import error_text, path_text, printable
from mpstui.operations.types import ExitStatus

LOG_BYTES: Final = 256 * 1024
"""Of the end of each log."""
EVENTS: Final = 2000
_PEOPLE: Final = 500
_NOBODY: Final = 65534
"""People have numbers from the first one on, but for the second."""
_PACKAGES: Final = frozenset(
    {"textual", "rich", "nvidia-ml-py", "psutil", "inotify-simple", "platformdirs", "prometheus-client"}
)
README: Final = """\
A support archive of mpstui, made by `mpstui doctor --bundle`.

status.json    the node (mpstui status --json)       doctor.json    the checks of the set-up
events.json    what the logs tell, one object a line  versions.json  program, Python, driver, kernel
config.json    the configuration in force             logs/          the ends of the daemons' logs
{masked}
"""
MASKED: Final = """
Users are user1, user2, …, the machine is host; commands, containers, pods, jobs and home directories are (masked), and
so is every text in a log that is not MPS's own. The same user has the same number everywhere here. Look at it before
you give it away.
"""
CLEAR: Final = "\nNothing is masked: users and their commands are readable.\n"


def bundle(
    target: str, snapshot: Snapshot, findings: Mapping[str, Any], pipe_dirs: Sequence[Path], *, masked: bool
) -> int:
    """Writes the archive ``target``, whole or not at all; the exit status."""
    if target in {"", "-"}:
        return complain("--bundle writes a file: give it a name, as mps.tar.gz", ExitStatus.USAGE)
    path = Path(target).absolute()
    events = asyncio.run(_events(snapshot, pipe_dirs))
    config = _config()
    logs = {
        f"logs/{number}-{name.replace('/', '-')}": _log(daemon, name)
        for number, daemon in enumerate(snapshot.daemons)
        for name in daemon.log_names
    }
    mask = Mask() if masked else None
    if mask is not None:
        mask.learn_from(snapshot, *events)
        # Owners of directories, say, of whom only a finding tells: whoever was named until now.
        mask.learn({"_users": {uid: name for uid, name in api.named_users().items() if _is_person(uid)}})
    made_up = f"{SIMULATED}\n\n" if snapshot.source == "simulated" else ""
    files: dict[str, str] = {"README.txt": made_up + README.format(masked=MASKED if masked else CLEAR)}
    for name, data in (
        ("status.json", api.to_json(snapshot)),
        ("doctor.json", findings),
        ("versions.json", _versions(snapshot)),
        ("config.json", config),
    ):
        files[name] = json.dumps(mask.json(data) if mask else data, ensure_ascii=False, indent=1) + "\n"
    told = (api.to_json(event) for event in events)
    files["events.json"] = "".join(
        json.dumps(mask.json(each) if mask else each, ensure_ascii=False) + "\n" for each in told
    )
    for there, (text, why_not) in logs.items():
        shown = text if mask is None else mask.log(text)
        files[there] = f"{mask.text(why_not) if mask else why_not}\n" if why_not else shown
    return _write(path, files)


def _is_person(uid: int) -> bool:
    """A service's account has a word for a name, as daemon and nobody have, and is nobody's secret."""
    return uid >= _PEOPLE and uid != _NOBODY


async def _events(snapshot: Snapshot, pipe_dirs: Sequence[Path]) -> list[Event]:
    """The latest ones; none where no log can be read. What is read of the logs does not grow with them."""
    last = deque[Event](maxlen=EVENTS)
    with suppress(api.UnreadableNodeError, api.UnusableNode):
        async with api.open(pipe_dirs) as node:
            since: float | None = None
            for daemon in snapshot.daemons:
                with suppress(api.Unavailable):
                    for event in (await node.older_events(daemon, math.inf, EVENTS)).events[:1]:
                        since = event.time if since is None else min(since, event.time or since)
            async for event in node.events(since):
                last.append(event)
    return list(last)


def _log(daemon: Daemon, name: str) -> tuple[str, str]:
    """The end of a log that its daemon's user, or root, wrote, and otherwise why it is not here."""
    if daemon.log_dir is None:
        return "", "its directory is not known"
    try:
        end, whole = api.end_of_log(daemon, name, LOG_BYTES)
    except api.Unavailable as error:
        return "", f"not read: {printable(str(error), 300)}"
    lines = end.decode("utf-8", "replace").splitlines()
    return "".join(f"{printable(line, 4000)}\n" for line in (lines if whole else lines[1:])), ""


def _versions(snapshot: Snapshot) -> dict[str, Any]:
    found = islice(((each.metadata["Name"], each.version) for each in distributions()), 5000)
    return {
        "mpstui": __version__,
        "python": sys.version.split()[0],
        "driver": snapshot.driver_version,
        "nvml": snapshot.nvml_detail,
        "kernel": platform.release(),
        "machine": platform.machine(),
        "euid_is_root": os.geteuid() == 0,
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "packages": {name: version for name, version in sorted(found) if name and name.lower() in _PACKAGES},
    }


def _config() -> dict[str, Any]:
    from mpstui.cli.config import told
    from mpstui.config import load_config

    config, messages = load_config()
    return {"values": [[name, value, origin] for name, value, origin in told(config)], "messages": messages}


def _write(path: Path, files: Mapping[str, str]) -> int:
    """A new file, for its owner alone: what is there is never replaced, and a part of one is taken away again."""
    try:
        with folder_of(path) as folder:
            size = _archive(folder / path.name, files)
    except OSError as error:
        status = ExitStatus.NOT_PERMITTED if isinstance(error, PermissionError) else 1
        return complain(f"{path_text(path)} cannot be written: {error_text(error)}", status)
    print(f"{path_text(path)}: {size >> 10} KiB, {len(files)} files", file=sys.stderr)
    return ExitStatus.DONE


def _archive(path: Path, files: Mapping[str, str]) -> int:
    """Bytes of it. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with open(descriptor, "wb") as file:
            with tarfile.open(fileobj=file, mode="w:gz") as archive:
                for name, text in files.items():
                    raw = text.encode("utf-8", "replace")
                    entry = tarfile.TarInfo(f"mpstui-bundle/{name}")
                    entry.size, entry.mtime, entry.mode = len(raw), int(time.time()), 0o600
                    archive.addfile(entry, io.BytesIO(raw))
            file.flush()
            os.fsync(descriptor)
            return os.fstat(descriptor).st_size
    except OSError:
        with suppress(OSError):
            os.unlink(path)
        raise
