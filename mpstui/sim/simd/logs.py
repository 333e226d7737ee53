"""Writes control.log and server.log in the recorded formats."""

from __future__ import annotations

import os
import time
from typing import Final

from .config import Place

_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class Logs:
    """The two logs of a daemon, appended to line by line; bytes, since a client's name may be any (fact 10)."""

    def __init__(self, directory: Place | None) -> None:
        """In ``directory``; None for both on standard output, as of a daemon in the foreground (fact 47). Where the
        directory cannot be written the daemon runs without logs; it says so unless a file is in the way."""
        self._control = self._server = 1
        self._directory, self._named = directory, dict[str, Logs]()
        if directory is None:
            return
        try:
            self._control = os.open(os.path.join(directory, "control.log"), _FLAGS, 0o644)
            self._server = os.open(os.path.join(directory, "server.log"), _FLAGS, 0o644)
        except OSError as error:
            self._control = self._server = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            if not isinstance(error, NotADirectoryError):
                where = os.fspath(directory)
                self.warning = f"Warning: Failed writing log files to directory [{where}]. No logs will be available."

    warning = ""
    """What the daemon prints at its start."""

    def of_server(self, name: str) -> Logs:
        """The logs of a server with a name: its own is in a directory of that name, as protocol 3 is documented."""
        if self._directory is None:
            return self
        if name not in self._named:
            place = os.path.join(self._directory, name)
            logs = self._named[name] = Logs(None)
            logs._control = self._control
            try:
                os.makedirs(place, 0o755, exist_ok=True)
                logs._server = os.open(os.path.join(place, "server.log"), _FLAGS, 0o644)
            except OSError:
                logs._server = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        return self._named[name]

    def control(self, text: str | bytes, pid: int | None = None) -> None:
        self._write(self._control, head("Control", pid or os.getpid()), text)

    def started(self, begin: bytes, text: str) -> None:
        """The first line of a daemon, whose ``begin`` is known before it is written."""
        self._write(self._control, begin, text)

    def server(self, pid: int, text: str | bytes, who: str = "Server") -> None:
        self._write(self._server, head(who, pid), text)

    @staticmethod
    def _write(descriptor: int, begin: bytes, text: str | bytes) -> None:
        os.write(descriptor, begin + b" " + (text.encode() if isinstance(text, str) else text) + b"\n")


def head(who: str, pid: int) -> bytes:
    """How a line begins that is written now."""
    now = time.time()
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
    return f"[{stamp}.{int(now % 1 * 1000):03d} {who} {pid:5d}]".encode("ascii")
