"""``doctor --bundle``: an archive for whoever is asked for help, with users, commands and names of machines masked."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import sys
import tarfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import distributions
from itertools import islice
from pathlib import Path
from typing import Any, Final

from mpstui import __version__, api
from mpstui.cli.say import complain
from mpstui.core.model import Daemon, Event, Snapshot
from mpstui.core.text import error_text, path_text, printable
from mpstui.operations.types import ExitStatus

LOG_BYTES: Final = 256 * 1024
"""Of the end of each log."""
EVENTS: Final = 2000
_LOGS: Final = ("control.log", "server.log")
_PACKAGES: Final = frozenset(
    {"textual", "rich", "nvidia-ml-py", "psutil", "inotify-simple", "platformdirs", "prometheus-client"}
)
_SHORT: Final = 3
"""A name of fewer characters is masked where it stands alone as a JSON value, and not within a text."""
_SENTENCE: Final = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\](?! *\d+\s)")
"""What a line of MPS' logs begins with. One that goes on with a number is a row of an answer, as of ``ps``, which has
commands in it; so may what has no such beginning."""
_HEAD: Final = re.compile(r"(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.\d]* (?:Control|Server|Other) +\d+\] *)?")
_ROW_WORD: Final = re.compile(
    r"(?:[\d.,:%()-]+[KMGT]?B?|0x[0-9a-fA-F]+|GPU-[0-9a-f-]+|MIG-[0-9a-f-]+|[A-Z][A-Z_]{1,30}|GPU|UUID|TRUE|FALSE)"
)
"""Numbers, devices and words in capitals: what an answer says of itself."""
_HOME: Final = re.compile(r"/(?:home|users|data/home)/[^\s/\"]+[^\s\"]*", re.IGNORECASE)
_PATH: Final = re.compile(r"/[^\s\"]*")
_NUMBER: Final = re.compile(r"(?<![^\W_])\d{1,10}(?![^\W_])")
_RUN: Final = re.compile(r"(/run/user/)(\d{1,10})(?=/|$|\W)")
_UID: Final = re.compile(r"\b((?:from )?(?:[Uu]ser|[Uu][Ii][Dd])[ =:]+)(\d{2,10})\b")
README: Final = """\
A support archive of mpstui, made by `mpstui doctor --bundle`.

status.json    the node (mpstui status --json)       doctor.json    the checks of the set-up
events.json    what the logs tell, one object a line  versions.json  program, Python, driver, kernel
config.json    the configuration in force             logs/          the ends of the daemons' logs
{masked}
"""
MASKED: Final = """
Users are user1, user2, …, the machine is host; commands, containers, pods, jobs and home directories are (masked), and
so is whatever in a log is no sentence of MPS' own. The same user has the same number everywhere here. Look at it before
you give it away.
"""
CLEAR: Final = "\nNothing is masked: users and their commands are readable.\n"
_PRIVATE: Final = frozenset(
    {"command", "container", "container_name", "container_id", "pod", "pod_uid", "pod_name", "pod_namespace", "job",
     "job_step", "unit", "where", "variables", "terminal"}
)  # fmt: skip
"""Keys whose values are masked whole."""


_PRIVATE_CHECKS: Final = frozenset({"cgroup_memory"})
"""Checks of doctor's whose evidence has a cgroup's name, and with it a pod's or a user's."""


class Mask:
    """Replaces what tells of people. Learns names first, so that they are found within texts too."""

    def __init__(self, snapshot: Snapshot, events: Iterable[Event], host: str) -> None:
        self._users: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        for name in filter(None, {host, host.partition(".")[0]}):
            self._texts[name] = "host"
        for daemon in snapshot.daemons:
            self._person(daemon.uid, daemon.user)
            for server in daemon.servers:
                self._person(server.uid, server.user)
            for client in daemon.clients():
                self._person(client.uid, client.user, client.command, client.container)
            for waiting in daemon.pending:
                self._person(waiting.uid, waiting.user, waiting.command)
            for lost in daemon.lost:
                self._person(lost.uid, lost.user, lost.command)
        for outside in snapshot.outside:
            self._person(outside.uid, outside.user, outside.command)
        for event in events:
            self._person(event.uid, event.user, event.command)
            for suspect in event.suspects:
                self._person(suspect.uid, suspect.user, suspect.command)
        names = sorted((name for name in self._texts if len(name) >= _SHORT), key=len, reverse=True)
        self._within = re.compile("|".join(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])" for name in names) or r"(?!)")

    def _person(self, uid: int | None, user: str | None, *texts: str | None) -> None:
        number = str(uid) if uid else None  # root's is no secret
        known = [self._users[name] for name in (user, number) if name in self._users]
        alias = "root" if user == "root" else known[0] if known else self._next()
        if user:
            self._users[user] = self._texts[user] = alias
        if number and user != "root":
            self._users[number] = alias
        for text in filter(None, texts):
            for cut in (None, 60, 40, 39, 30, 20):  # as sentences quote it
                self._texts.setdefault(text[:cut].rstrip(), "(masked)")

    def _next(self) -> str:
        return f"user{len(set(self._users.values()) - {'root'}) + 1}"

    def user(self, name: str) -> str:
        """``user3``; somebody who was not learnt is a new one."""
        if name not in self._users:
            self._users[name] = self._next()
        return self._users[name]

    def text(self, text: str) -> str:
        """With names, home directories and user numbers replaced."""
        text = self._within.sub(lambda match: self._texts.get(match[0], "(masked)"), text)
        text = _HOME.sub("(masked)", text)
        text = _RUN.sub(lambda match: match[1] + self.user(match[2]) if match[2] != "0" else match[0], text)
        # A user's number in a path is his name: /tmp/mps_1001, /scratch/1001/mps.
        text = _PATH.sub(lambda path: _NUMBER.sub(lambda found: self._users.get(found[0], found[0]), path[0]), text)
        return _UID.sub(lambda match: match[1] + self.user(match[2]), text)

    def json(self, value: Any, key: str = "") -> Any:
        """The same, of everything in it."""
        if isinstance(value, dict):
            if value.get("check") in _PRIVATE_CHECKS:
                value = {**value, "evidence": "(masked)"}
            return {name: self.json(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.json(inner, key) for inner in value]
        if value is None or isinstance(value, bool):
            return value
        if key in _PRIVATE:
            return "(masked)"
        if key == "uid":
            return 0 if value == 0 else self.user(str(value))
        if key in {"user", "speaks_for"} and value != "everybody":
            return self.user(str(value)) if value != "root" else value
        if key == "host":
            return "host"
        return self.text(value) if isinstance(value, str) else value

    def log(self, text: str) -> str:
        """A log's lines: of MPS' sentences the names are replaced, of anything else numbers and capitals are left."""
        lines = []
        for line in text.splitlines():
            if _SENTENCE.match(line):
                lines.append(self.text(line))
            else:
                head = re.match(_HEAD, line)[0]  # type: ignore[index]
                words = line[len(head) :].split()
                lines.append(head + " ".join(w if _ROW_WORD.fullmatch(w) else "(masked)" for w in words))
        return "\n".join(lines) + "\n" if lines else ""


def bundle(
    target: str, snapshot: Snapshot, findings: Mapping[str, Any], pipe_dirs: Sequence[Path], *, masked: bool
) -> int:
    """Writes the archive ``target``, whole or not at all; the exit status."""
    if target in {"", "-"}:
        return complain("--bundle writes a file: give it a name, as mps.tar.gz", ExitStatus.USAGE)
    path = Path(target).absolute()
    events = _events(pipe_dirs)
    mask = Mask(snapshot, events, snapshot.host) if masked else None
    files: dict[str, str] = {"README.txt": README.format(masked=MASKED if masked else CLEAR)}
    for name, data in (
        ("status.json", api.to_json(snapshot)),
        ("doctor.json", findings),
        ("versions.json", _versions(snapshot)),
        ("config.json", _config()),
    ):
        files[name] = json.dumps(mask.json(data) if mask else data, ensure_ascii=False, indent=1) + "\n"
    told = (api.to_json(event) for event in events)
    files["events.json"] = "".join(
        json.dumps(mask.json({**each, "raw": mask.log(each["raw"]).rstrip()}) if mask else each, ensure_ascii=False)
        + "\n"
        for each in told
    )
    for number, daemon in enumerate(snapshot.daemons):
        for name in _LOGS:
            text = _log(daemon, name)
            files[f"logs/{number}-{name}"] = mask.log(text) if mask else text
    return _write(path, files)


def _events(pipe_dirs: Sequence[Path]) -> list[Event]:
    """The latest ones; none where no log can be read."""
    with suppress(api.UnreadableNodeError, api.UnusableNode), api.open(pipe_dirs) as node:
        return list(node.events())[-EVENTS:]
    return []


def _log(daemon: Daemon, name: str) -> str:
    """The end of a log that its daemon's user, or root, wrote; otherwise why it is not here."""
    if daemon.log_dir is None:
        return "its directory is not known\n"
    try:
        end, whole = api.end_of_log(daemon, name, LOG_BYTES)
    except api.Unavailable as error:
        return f"not read: {printable(str(error), 300)}\n"
    lines = end.decode("utf-8", "replace").splitlines()
    return "".join(f"{printable(line, 4000)}\n" for line in (lines if whole else lines[1:]))


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
    made = False
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        made = True
        with open(descriptor, "wb") as file:
            with tarfile.open(fileobj=file, mode="w:gz") as archive:
                for name, text in files.items():
                    raw = text.encode("utf-8", "replace")
                    entry = tarfile.TarInfo(f"mpstui-bundle/{name}")
                    entry.size, entry.mtime, entry.mode = len(raw), int(time.time()), 0o600
                    archive.addfile(entry, io.BytesIO(raw))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if made:
            with suppress(OSError):
                os.unlink(path)
        status = ExitStatus.NOT_PERMITTED if isinstance(error, PermissionError) else 1
        return complain(f"{path_text(path)} cannot be written: {error_text(error)}", status)
    print(f"{path_text(path)}: {os.path.getsize(path) >> 10} KiB, {len(files)} files", file=sys.stderr)
    return ExitStatus.DONE
