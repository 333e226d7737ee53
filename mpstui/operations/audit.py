"""The append-only audit log: one JSON object a line for every change that was asked for, before it and after it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from mpstui.core.model import Client, Daemon, ProcessKey
from mpstui.core.text import error_text, path_text, unprintable
from mpstui.system.trusted import NotTrustedError, open_trusted

REMEDY: Final = (
    "What ends somebody's work is written down first. Make room, or set MPSTUI_AUDIT_LOG to a file in a directory that"
    " only you can write to."
)
_TAIL = 1 << 20
"""Bytes of the log that are searched for an earlier terminate."""
_WITH_NUMBER: Final = 7
_OTHERS_WRITE: Final = 0o022
_PATIENCE: Final = 1.0
"""Seconds that another mpstui may take to write its line; one that was stopped amid it is not waited for any longer."""


def default_path(environment: Mapping[str, str] = os.environ) -> Path:
    """``MPSTUI_AUDIT_LOG`` or ``audit.jsonl`` in the state folder."""
    if chosen := environment.get("MPSTUI_AUDIT_LOG"):
        return Path(chosen).absolute()
    from mpstui.config import state_folder

    return state_folder(environment) / "audit.jsonl"


class AuditLog:
    """Appends; never rewrites. The file is the user's own and nobody else's to write to or to replace; each line is
    whole, or said to be torn, and the next one begins on a line of its own."""

    written = 0
    """Lines of this process, in whatever log; one that could not be written was tried."""

    def __init__(
        self,
        path: Path,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
        *,
        simulated: bool = False,
    ) -> None:
        """``simulated``: all that is written is of a simulated node, and says so."""
        self.path = path.absolute()
        self._now = now
        self._known: dict[str, object] = {"simulated": True} if simulated else {}

    def write(self, **fields: object) -> str | None:
        """Append one entry; returns why it could not be written whole, or None."""
        AuditLog.written += 1
        entry = {"time": self._now().isoformat(timespec="milliseconds"), "login": _login(), **self._known, **fields}
        line, done = (json.dumps(entry, ensure_ascii=True, default=str) + "\n").encode(), 0
        try:
            descriptor = self._open(os.O_RDWR | os.O_APPEND | os.O_CREAT)
            try:
                _lock(descriptor)
                line = (b"\n" if _torn(descriptor) else b"") + line
                while done < len(line):
                    count = os.write(descriptor, line[done:])
                    if count == 0:
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    done += count
            finally:
                os.close(descriptor)  # a network file system may only now say that there is no room
        except (OSError, NotTrustedError) as error:
            name = f"the audit log {path_text(self.path)}"
            if 0 < done < len(line):
                return f"the last line of {name} is torn, {done} of {len(line)} bytes: {error_text(error)}"
            return f"{name} could not be written: {error_text(error)}"
        return None

    def terminate_was_sent(self, boot_id: str, client: Identity, run: str | None = None) -> bool:
        """Whether this log says that terminate_client was sent for this very process (fact 16: never twice), to this
        run of its daemon. Also where it is there and cannot be read: not to send is then the safe side."""
        try:
            with open(self._open(os.O_RDONLY), "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - _TAIL))
                lines = file.read().splitlines()
        except FileNotFoundError:
            return False
        except (OSError, NotTrustedError):
            return True
        sent = False
        for line in lines:
            if b'"terminate_client' not in line and b'"client terminate ' not in line:
                continue
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if not isinstance(entry, dict) or entry.get("boot_id") != boot_id:
                continue
            if None not in (run, entry.get("run")) and entry["run"] != run:
                continue
            found = entry.get("client")
            if entry.get("sent") is not None and isinstance(found, list) and _is_same(found, client):
                sent = bool(entry["sent"])
        return sent

    def _open(self, flags: int) -> int:
        """Raises NotTrustedError where it is no regular file of the user's own, and OSError."""
        if (problem := unprintable(self.path)) is not None:
            raise NotTrustedError(problem, "kind")
        descriptor = open_trusted(self.path, flags, {0, os.geteuid()}, make=bool(flags & os.O_CREAT))
        found = os.fstat(descriptor)
        mode = stat.S_IMODE(found.st_mode)
        if mode & _OTHERS_WRITE or found.st_uid != os.geteuid():
            os.close(descriptor)
            why = f"others may write to it (mode {mode:04o})" if mode & _OTHERS_WRITE else "it is not this user's own"
            raise NotTrustedError(why, "writable")
        return descriptor


Identity = tuple[str | int | None, ...]
"""``identity`` of a client."""


def identity(client: Client, daemon: Daemon) -> Identity:
    """PID and start time. In another PID namespace a number comes again, in each container and at each of its starts:
    there its directory, daemon and server and that daemon's running number of it besides."""
    key = client.key
    if key.start_ticks is not None:
        return key.pid, key.start_ticks
    runs = daemon.key or ProcessKey(0)
    of = path_text(daemon.pipe_dir), runs.pid, runs.start_ticks, client.server_pid
    return key.pid, None, *of, client.id


def _is_same(found: Sequence[object], client: Identity) -> bool:
    """Where the daemon's running number is not known, the same PID will do: a terminate too few does no harm."""
    if len(client) == len(found) == _WITH_NUMBER and None in {found[-1], client[-1]}:
        return tuple(found[:-1]) == client[:-1]
    return tuple(found) == client


def _lock(descriptor: int) -> None:
    """One line after the other, from several mpstui; best effort, as the line itself is more than its order."""
    ends = time.monotonic() + _PATIENCE
    while time.monotonic() < ends:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:  # a file system without locks
            return
        else:
            return


def _torn(descriptor: int) -> bool:
    """Whether the last line has no end."""
    size = os.fstat(descriptor).st_size
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"


def _login() -> str:
    """Who is behind it: the user that sudo was called by, otherwise the user's name."""
    if name := os.environ.get("SUDO_USER"):
        return name
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
