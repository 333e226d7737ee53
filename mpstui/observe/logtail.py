"""Follows one log file: from its end on, through rotation and truncation, at the cost of one ``stat`` a poll."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from mpstui.observe.logfile import Owners, UnreadableLogError, open_log
from mpstui.observe.logline import LINE_BYTES

HISTORY_BYTES: Final = 4 << 20
CHUNK_BYTES: Final = 1 << 20
"""Read at most this much a poll, so that a log written at full speed does not stop the screen."""
BEHIND_BYTES: Final = 32 << 20
"""Further behind than this, the tail skips to the newest ``HISTORY_BYTES``."""
_BLOCK: Final = 256 << 10


class LogTail:
    """The lines of ``path`` as they are written, while ``owners`` are those who write it (see ``open_log``). No method
    raises for anything the file does.

    ``marker`` is what the line holds from which on history matters; the newest such line within the last ``history``
    bytes is where the first poll starts, else that many bytes before the end.
    """

    __slots__ = (
        "_access",
        "_buffer",
        "_fd",
        "_history",
        "_identity",
        "_left",
        "_marker",
        "_offset",
        "_overlong",
        "_owners",
        "believed",
        "error",
        "from_start",
        "path",
        "skipped",
    )

    def __init__(
        self, path: Path, marker: bytes = b"", history: int = HISTORY_BYTES, owners: Owners | None = None
    ) -> None:
        self.path = path
        self.error: str | None = None
        """Why there are no lines, one sentence; None while the file can be read."""
        self.believed = True
        """False while it is somebody else's, who could write what he likes."""
        self.skipped = False
        """True once lines were left out because the log grew faster than it was read."""
        self.from_start = True
        """False where older lines than the first one were left out and no marker was found."""
        self._marker = marker
        self._history: int | None = history
        self._fd: int | None = None
        self._identity: tuple[int, int] | None = None
        self._access = (0, 0, 0)
        """Owner, mode and number of names that were judged."""
        self._owners = owners
        self._left: tuple[tuple[int, int], int, bool] | None = None
        """Which file was read how far when its owner was no longer believed."""
        self._offset = 0
        self._buffer = b""
        self._overlong = False

    def poll(self) -> list[bytes]:
        """New whole lines without their line breaks; at most ``CHUNK_BYTES`` of them, so poll until none comes."""
        try:
            found = os.lstat(self.path)
        except OSError as error:
            return self._lost(error)
        identity = (found.st_dev, found.st_ino)
        if identity == self._identity and (found.st_uid, found.st_mode, found.st_nlink) != self._access:
            self._access = found.st_uid, found.st_mode, found.st_nlink
            self._judge()
        if identity != self._identity:
            if self._fd is not None:
                rest = self._rest(self._fd)
                if rest:
                    return rest
            if not self._open():
                return []
            found = os.fstat(self._fd) if self._fd is not None else found
        if found.st_size == self._offset:
            return []
        if found.st_size < self._offset:  # truncated in place: what is there now is new
            self._offset, self._buffer, self._overlong = 0, b"", False
        return self._read(found.st_size)

    def believe(self, owners: Owners | None) -> None:
        """From now on whoever these are; a file of anybody else is left."""
        if owners == self._owners:
            return
        self._owners = owners
        self._judge()

    def _judge(self) -> None:
        """Leaves a file that is not, or no longer, to be believed."""
        if self._fd is None or self._identity is None:
            return
        try:
            os.close(open_log(self.path, self._owners))
        except UnreadableLogError as error:
            self._left = self._identity, self._offset - len(self._buffer), self._overlong
            self.close()
            self.error, self.believed = str(error), not error.not_believed

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._fd, self._identity = None, None

    def _lost(self, error: OSError) -> list[bytes]:
        """The path cannot be reached; an open file, renamed or deleted, is read to its end first."""
        if self._fd is not None:
            rest = self._rest(self._fd)
            if rest:
                return rest
            self.close()
        self._history = None if isinstance(error, FileNotFoundError) else self._history
        self._open()  # says why not; also of the way to a file that is not there
        return []

    def _rest(self, fd: int) -> list[bytes]:
        try:
            return self._read(os.fstat(fd).st_size)
        except OSError:  # a file server that knows it no more
            return []

    def _open(self) -> bool:
        self.close()
        try:
            fd = open_log(self.path, self._owners)
        except UnreadableLogError as error:
            self.error, self.believed = str(error), not error.not_believed
            return False
        found = os.fstat(fd)
        self._fd, self._identity = fd, (found.st_dev, found.st_ino)
        self._access = found.st_uid, found.st_mode, found.st_nlink
        self._offset, self._buffer, self._overlong, self.error, self.believed = 0, b"", False, None, True
        if self._left is not None and self._left[0] == self._identity:
            _, self._offset, self._overlong = self._left
            self._left = None
        elif self._history is not None:
            self._offset = self._start(fd, found.st_size, self._history)
            self._history = None
        return True

    def _start(self, fd: int, size: int, history: int) -> int:
        """Where history begins: the newest marker's line, else the first whole line within ``history`` bytes."""
        floor = max(0, size - history)
        if self._marker:
            end, overlap = size, b""
            while end > floor:
                begin = max(floor, end - _BLOCK)
                block = _pread(fd, end - begin, begin) + overlap
                at = block.rfind(self._marker)
                if at >= 0:
                    line = block.rfind(b"\n", 0, at)
                    if line >= 0 or begin == 0:
                        return begin + line + 1
                overlap, end = block[: len(self._marker) + 256], begin
        if floor == 0:
            return 0
        self._overlong = True  # the first piece is the rest of a line
        self.from_start = False
        return floor

    def _read(self, size: int) -> list[bytes]:
        if self._fd is None:
            return []
        if size - self._offset > BEHIND_BYTES:
            self._offset = size - HISTORY_BYTES
            self._buffer, self._overlong, self.skipped, self.from_start = b"", True, True, False
        data = _pread(self._fd, min(CHUNK_BYTES, size - self._offset), self._offset)
        if not data:
            return []
        self._offset += len(data)
        if self._overlong:
            _, found, data = data.partition(b"\n")
            if not found:
                return []
            self._overlong = False
        lines = (self._buffer + data).split(b"\n")
        self._buffer = lines.pop()
        if len(self._buffer) > LINE_BYTES:
            lines.append(self._buffer[:LINE_BYTES])
            self._buffer, self._overlong = b"", True
        return [line if len(line) <= LINE_BYTES else line[:LINE_BYTES] for line in lines]


def _pread(fd: int, length: int, offset: int) -> bytes:
    """What is there; nothing where the file cannot be read."""
    try:
        return os.pread(fd, max(0, length), offset)
    except OSError:
        return b""
