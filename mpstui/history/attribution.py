"""Who was behind a change that a log tells of: MPS does not write it down, but the audit log of mpstui does."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Final

from mpstui.core.model import Event
from mpstui.core.text import printable
from mpstui.system.trusted import NotTrustedError, open_trusted

_TAIL: Final = 1 << 20
_SLACK: Final = 5.0
"""Seconds between the daemon's line and the audit line, which is written when the value has been read back."""
KINDS: Final = frozenset(("limit_set", "terminate_requested"))
"""Whose author the audit log may know."""


class AuditTrail:
    """The end of an audit log, read again when it has changed. One that cannot be read knows nobody."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._entries: dict[str, list[tuple[float, str]]] = {}

    def named(self, event: Event) -> Event:
        """The event with its author in ``values["by"]`` and in its words; as it is where nobody is known."""
        command = event.values.get("command")
        if event.kind not in KINDS or command is None or event.time is None:
            return event
        self._read()
        for time, login in self._entries.get(" ".join(command.split()), ()):
            if -1.0 <= time - event.time <= _SLACK:
                return event._replace(detail=f"{event.detail}, by {login}", values={**event.values, "by": login})
        return event

    def _read(self) -> None:
        try:
            with open(open_trusted(self._path, os.O_RDONLY, {0, os.geteuid()}), "rb") as file:
                found = os.fstat(file.fileno())
                stamp = found.st_mtime_ns, found.st_size
                if stamp == self._stamp:
                    return
                file.seek(max(0, found.st_size - _TAIL))
                lines = file.read(_TAIL).splitlines()
        except (OSError, NotTrustedError):
            return
        self._stamp, self._entries = stamp, {}
        for line in lines:
            try:
                entry = json.loads(line)
                command, login = str(entry["command"]), str(entry["login"])
                time = datetime.fromisoformat(entry["time"]).timestamp()
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            if command:
                self._entries.setdefault(" ".join(command.split()), []).append((time, printable(login, 64)))
