"""A log and its rotated predecessors as one file that is read in blocks: never more than a block is in memory."""

from __future__ import annotations

import errno
import os
import time as system
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from mpstui.control.grammar import LINE_BYTES, Clock
from mpstui.core.late import pattern
from mpstui.core.trust import ANYBODY
from mpstui.system.trusted import Owners, UnreadableLogError, open_log, teller_of

BLOCK: Final = 1 << 18
_ROTATED: Final = pattern(
    r"(?:\.(?P<number>[0-9]{1,4})|-(?P<date>[0-9]{8}(?:[0-9]{2})?)(?:-(?P<second>[0-9]{1,12}))?)"
    r"(?P<packed>\.(?:gz|bz2|xz|zst|lz4|Z))?"
)
"""As logrotate names them: by number, or by date (``dateext``)."""
_MANY: Final = 64
_PROBE: Final = 1 << 16
_HOURS: Final = 3 * 3600.0
"""Longer than the hour that comes again."""
_STAMPED: Final = pattern(rb"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} ")
_PIECES: Final = 4096
"""What is behind as many holes is not read."""


class LogFile:
    """``control.log`` with ``control.log.1``, ``.2``, … or ``control.log-20261120``, … before it, oldest first. To be
    closed.

    ``owners`` as for ``open_log``. Raises UnreadableLogError where the newest cannot be read; a predecessor that cannot
    be, or is neither root's nor of the owner of the newest, is left out: where everybody may make files, anybody makes
    one of that name. Offsets count through all of them, in bytes.
    """

    def __init__(self, path: Path, owners: Owners | None = None) -> None:
        self.path = path
        self._files: list[int] = []
        self._parts: list[tuple[int, int, int]] = []
        """Descriptor, where in it the part begins, and its length."""
        self.size = 0
        self.uid = 0
        """Whose they are, and so what they say, root's older ones among it; ANYBODY where others may write to one."""
        found = sorted(_predecessors(path))
        self.packed = tuple(part.name for _, packed, part in found if packed)
        """Names of predecessors that are compressed, which are not read."""
        older = [part for _, packed, part in found if not packed]
        newest = open_log(path, owners)
        self.uid = os.fstat(newest).st_uid
        others: list[str] = []
        for part in older[-_MANY:]:
            with suppress(UnreadableLogError):
                fd = open_log(part, owners)
                if os.fstat(fd).st_uid in {0, self.uid}:
                    self._files.append(fd)
                else:
                    os.close(fd)
                    others.append(part.name)
        self.others = tuple(others)
        """Names of predecessors that belong to neither root nor the newest one's owner, and are not read."""
        self._files.append(newest)
        for fd in self._files:
            if teller_of(fd) == ANYBODY:
                self.uid = ANYBODY
            for begin, end in _written(fd):
                self._parts.append((fd, begin, end - begin))
                self.size += end - begin

    def close(self) -> None:
        """Gives the descriptors back."""
        for fd in self._files:
            os.close(fd)
        self._files, self._parts = [], []

    def keep_last(self, most: int) -> bool:
        """Leave out what is before the last ``most`` bytes, and the line that they begin in; whether that is anything.
        Offsets count from there."""
        if (surplus := self.size - most) <= 0:
            return False
        head = self.read(surplus - 1, LINE_BYTES + 1)
        surplus += max(0, head.find(b"\n"))
        self.size -= surplus
        while self._parts and surplus >= self._parts[0][2]:
            surplus -= self._parts.pop(0)[2]
        if self._parts:
            fd, begin, size = self._parts[0]
            self._parts[0] = fd, begin + surplus, size - surplus
        return True

    def read(self, offset: int, length: int) -> bytes:
        """At most ``length`` bytes, not beyond the part that ``offset`` lies in; empty behind the end."""
        for fd, begin, size in self._parts:
            if offset < size:
                return os.pread(fd, min(length, size - offset), begin + offset)
            offset -= size
        return b""

    def blocks(self, start: int) -> Iterator[bytes]:
        """The whole lines from ``start`` on, each with its line break, a block's at a time.

        Of a line that goes on beyond a block and is long, the rest is left out. A last line without a line break is
        left to whoever follows the file: it may be half a line.
        """
        rest, overlong = b"", False
        while data := self.read(start, BLOCK):
            start += len(data)
            if overlong:
                _, found, data = data.partition(b"\n")
                if not found:
                    continue
                overlong = False
            end = data.rfind(b"\n") + 1
            whole, rest = (rest + data[:end], data[end:]) if end else (b"", rest + data)
            if len(rest) > LINE_BYTES:
                whole += rest[:LINE_BYTES] + b"\n"
                rest, overlong = b"", True
            yield whole

    def whole_lines_end(self) -> int:
        """Where, in the newest file, the last line break is, plus one."""
        for fd, floor, size in reversed(self._parts):
            end = floor + size
            while end > floor and fd == self._files[-1]:
                begin = max(floor, end - _PROBE)
                at = os.pread(fd, end - begin, begin).rfind(b"\n")
                if at >= 0:
                    return begin + at + 1
                end = begin
        return 0

    def first_from(self, time: float) -> int:
        """Where the first line that is not before ``time`` (seconds since the epoch) begins, also where the clock was
        set back since: a bisection sees nothing of that. What is before the line that it finds is looked through for
        later ones, at some seconds a GiB."""
        end, position = self.offset_of(time), 0
        try:
            floor = _least_stamp(time)
        except (OverflowError, ValueError, OSError):  # beyond the calendar
            return end
        while position < end:
            if not (block := self.read(position, min(BLOCK, end - position))):  # cut meanwhile, as by copytruncate
                break
            *lines, rest = block.split(b"\n")
            whole = lines or [rest]  # longer than a block, or the end of a part
            if max(whole) >= floor:
                begin = position
                for line in whole:
                    if line >= floor and _STAMPED.match(line):
                        return begin
                    begin += len(line) + 1
            position += sum(map(len, lines)) + len(lines) if lines else len(rest)
        return end

    def offset_of(self, time: float) -> int:
        """Where the first line that is not before ``time`` (seconds since the epoch) begins, by bisection."""
        low, high = 0, self.size
        while low < high:
            middle = (low + high) // 2
            begin, found = self._stamp(Clock(), middle, high)
            if found is None:
                high = middle
            elif found < time:
                low = begin + 1
            else:
                high = middle
        begin, found = self._stamp(Clock(), low, self.size)
        return self.size if found is None else begin

    def last_line_with(self, marker: bytes, before: int) -> int | None:
        """Where the last line that holds ``marker`` and begins before ``before`` begins; None without one."""
        end, overlap = before, b""
        while end > 0:
            begin = max(0, end - BLOCK)
            block = self._span(begin, end) + overlap
            at = block.rfind(marker)
            line = block.rfind(b"\n", 0, max(0, at))
            if at >= 0 and (line >= 0 or not begin or at > LINE_BYTES):
                return begin + line + 1
            overlap, end = block[: len(marker) + max(at, 256)], begin  # a line that begins before has its end here
        return None

    def _span(self, begin: int, end: int) -> bytes:
        pieces = []
        while begin < end and (data := self.read(begin, end - begin)):
            pieces.append(data)
            begin += len(data)
        return b"".join(pieces)

    def _stamp(self, clock: Clock, offset: int, limit: int) -> tuple[int, float | None]:
        """The first line that begins at or behind ``offset``, before ``limit``, and has a time."""
        position, whole = max(0, offset - 1), offset == 0
        while position < limit:
            end = min(self.size, position + _PROBE)
            *lines, rest = self._span(position, end).split(b"\n")
            for line in (*lines, rest):
                if position >= limit:
                    break
                if whole and line[:1] == b"[" and line[24:25] == b" ":
                    try:
                        return position, clock.read(line[1:24])
                    except (ValueError, OverflowError):
                        pass
                position, whole = position + len(line) + 1, True
            if end >= self.size:
                break
            # On with the line that the probe cut; one that fills it is passed over: it has no time, or no end in sight.
            position, whole = (end - len(rest), True) if lines else (end, False)
        return limit, None


def _least_stamp(moment: float) -> bytes:
    """What lines from this moment on begin with, or something greater, letter by letter. Where the clock is set for
    winter thereabouts it is of hours before: an hour comes again, and which it is shows by what is before it."""
    before, at, later = (system.localtime(moment + hours).tm_gmtoff for hours in (-_HOURS, 0, _HOURS))
    offset = min(before, at, later)
    early = 0.0 if before == at == later else _HOURS
    return system.strftime("[%Y-%m-%d %H:%M:%S", system.gmtime(moment - early + offset)).encode()


def _written(fd: int) -> Iterator[tuple[int, int]]:
    """Where bytes were written, from and to. The rest are holes: ``copytruncate`` leaves one where the writer does not
    append, and its owner may make the log as large as he likes, in no time and without a byte on the disk."""
    at, end = 0, os.fstat(fd).st_size
    try:
        for _ in range(_PIECES):
            begin = os.lseek(fd, at, os.SEEK_DATA)
            at = min(end, os.lseek(fd, begin, os.SEEK_HOLE))
            if begin >= at:
                return
            yield begin, at
    except OSError as error:
        if error.errno != errno.ENXIO:  # no data behind that
            yield 0, end


def _predecessors(path: Path) -> Iterator[tuple[tuple[int, str, int], bool, Path]]:
    """Each with what puts them into the order of time, and whether it is compressed."""
    try:
        names = os.listdir(path.parent)
    except OSError:
        return
    for name in names:
        if name.startswith(path.name) and (found := _ROTATED.fullmatch(name[len(path.name) :])):
            order = (1, "", -int(found["number"])) if found["number"] else (0, found["date"], int(found["second"] or 0))
            yield order, found["packed"] is not None, path.parent / name
