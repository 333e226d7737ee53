"""The append-only audit log: one JSON object a line for every change that was asked for."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path

from mpstui.model import ProcessKey
from mpstui.text import path_text

_TAIL = 1 << 20
"""Bytes of the log that are searched for an earlier terminate."""


def default_path(environment: Mapping[str, str] = os.environ) -> Path:
    """``MPSTUI_AUDIT_LOG`` or ``audit.jsonl`` in the user's state folder."""
    if chosen := environment.get("MPSTUI_AUDIT_LOG"):
        return Path(chosen)
    from platformdirs import user_state_path

    return user_state_path("mpstui") / "audit.jsonl"


class AuditLog:
    """Appends; never rewrites. Each line is one ``write`` to a file opened with O_APPEND."""

    def __init__(self, path: Path, now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)) -> None:
        self.path = path
        self._now = now

    def write(self, **fields: object) -> str | None:
        """Append one entry; returns why it could not be written, or None."""
        entry = {"time": self._now().isoformat(timespec="milliseconds"), "login": _login(), **fields}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, (json.dumps(entry, ensure_ascii=True) + "\n").encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            return f"the audit log {path_text(self.path)} could not be written: {error.strerror}"
        return None

    def terminate_was_sent(self, boot_id: str, key: ProcessKey) -> bool:
        """Whether this log says that terminate_client was sent for this very process (fact 16: never twice)."""
        try:
            with self.path.open("rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - _TAIL))
                lines = file.read().splitlines()
        except OSError:
            return False
        sent = False
        for line in lines:
            if b'"terminate_client' not in line:
                continue
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if not isinstance(entry, dict) or entry.get("boot_id") != boot_id:
                continue
            if entry.get("client") == [key.pid, key.start_ticks] and entry.get("sent") is not None:
                sent = bool(entry["sent"])
        return sent


def boot_id() -> str:
    """The kernel's id of this boot: start ticks identify a process within one boot only. Empty where unreadable."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def _login() -> str:
    """Who is behind it: the user that sudo was called by, otherwise the user's name."""
    if name := os.environ.get("SUDO_USER"):
        return name
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
