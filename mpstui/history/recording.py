"""What entered the fold, line by line, compressed: written while a node is watched, read back to be folded again.

A recording is a row of gzip members, each whole in itself: its first line is all that the fold went by, the others are
the readings since (``mpstui.observe.reducer.READINGS``). So a file can be entered anywhere, its oldest part can be
thrown away, and ``zcat`` shows it. A member's header tells its length and from when to when it is, so that nobody has
to unpack what he does not look at.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import stat
import struct
import time as system
import typing
import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import cache
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from mpstui.core.codec import Codec, Unfit, codec, compact, definitions, difference, patched
from mpstui.core.late import pattern
from mpstui.core.text import error_text, path_text
from mpstui.core.trust import ANYBODY
from mpstui.observe.reducer import READINGS, Kept, NodeState
from mpstui.system.trusted import NotTrustedError, open_named, open_trusted, teller_of

if TYPE_CHECKING:
    from mpstui.core.mask import Mask

VERSION: Final = 1
SPAN: Final = 60.0
"""Seconds of a member."""
_FULL: Final = 4 << 20
"""Bytes of lines of a member, before they are packed."""
_MANY: Final = 20_000
"""Lines of a member."""
LINE: Final = 8 << 20
_UNPACKED: Final = 48 << 20
_MEMBERS: Final = 200_000
_CUT: Final = 3
"""Parts of a recording that are looked through for where they were cut off; of more only where they begin is told."""
FLUSH: Final = 5.0
"""Seconds after which a line is in the file."""
_FIXED: Final = b"\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\xff"
"""gzip, with extra fields."""
_EXTRA: Final = struct.Struct("<H2sHBBHIddI")
_HEADER: Final = len(_FIXED) + _EXTRA.size
_NAMED: Final = b"MP"
_PIECE: Final = 1 << 16
_GZIP: Final = 16
"""To zlib: what comes is gzip."""
_LEVEL: Final = 3
"""Of bzip2, in 100 kB: nine would save another ninth, and need 7.6 MB for a tenth of a second and not 2.8."""
_FOLDERS: Final = ("/var/tmp", "/tmp")  # noqa: S108 – files there get no name
"""For what need not stay; the second one is memory on many a machine."""
_WHOLE: Final = frozenset(("add_event", "add_xids", "snapshot"))
"""Readings that are told whole; of the others, what has changed since the last of the kind."""
_LATEST: Final = 2.5e11
_SCREEN: Final = "screen"
"""Where a recording is from that no ``mpstui record`` has written."""
_ROTATED: Final = pattern(r"\.([1-9][0-9]?)")
_LAST_PART: Final = 99
_NO_LIMIT: Final = 1 << 62


class RecordingError(Exception):
    """A recording that cannot be read, or not further, or not be written; the text is a sentence for a person."""


class Head(NamedTuple):
    """Of a member: where it is, how many bytes it has, its first and last moment, and how many events were told."""

    size: int
    first: float
    last: float
    events: int


def _packed(head: Head) -> bytes:
    return _FIXED + _EXTRA.pack(
        _EXTRA.size - 2, _NAMED, _EXTRA.size - 6, VERSION, 0, 0, head.size, head.first, head.last, head.events
    )


def _head(raw: bytes) -> Head:
    """Raises RecordingError."""
    if len(raw) < _HEADER or raw[: len(_FIXED)] != _FIXED:
        raise RecordingError("it is not a recording of mpstui")
    _, name, _, version, _, _, size, first, last, events = _EXTRA.unpack(raw[len(_FIXED) : _HEADER])
    if name != _NAMED:
        raise RecordingError("it is not a recording of mpstui")
    if version != VERSION:
        raise RecordingError(f"it has format {version}, and this mpstui reads format {VERSION}")
    if not 0 <= first <= last <= _LATEST or (size and size < _HEADER):
        raise RecordingError("its header is damaged")
    return Head(size, first, last, events)


# Lines.


class _Reading(NamedTuple):
    names: tuple[str, ...]
    codecs: tuple[Codec, ...]


@cache
def _reading(name: str) -> _Reading:
    hints = typing.get_type_hints(READINGS[name])
    hints.pop("return", None)
    return _Reading(tuple(hints), tuple(codec(kind) for kind in hints.values()))


def line_schema() -> dict[str, Any]:
    """The JSON Schema of a line."""
    first = {
        "type": "object",
        "description": "The first line of each gzip member: all that the state at that time is made of.",
        "properties": {
            "mpstui_recording": {"const": VERSION},
            "time": {"type": "number"},
            "state": codec(Kept).schema,
            "from": {
                "const": _SCREEN,
                "description": "In the first member of a recording that a screen has saved.",
            },
        },
        "required": ["mpstui_recording", "time", "state"],
        "additionalProperties": False,
    }
    others = []
    for name in sorted(READINGS):
        reading = _reading(name)
        values = dict(zip(reading.names, (each.schema for each in reading.codecs), strict=True))
        told: dict[str, Any] = {
            "t": {"type": "number", "description": "When, in seconds since the epoch."},
            "r": {"const": name, "description": str(READINGS[name].__doc__ or name).split("\n\n")[0].strip()},
            "v": {"type": "object", "properties": values, "additionalProperties": False},
        }
        if name not in _WHOLE:
            told["d"] = {"type": "object", "description": "What has changed since the last one of this kind."}
            told["of"] = {
                "type": "string",
                "description": "Which series the last one belongs to: a pipe directory, or one of the two of /proc.",
            }
        others.append({"type": "object", "properties": told, "required": ["t", "r"], "additionalProperties": False})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "mpstui record: each line of what zcat prints of its file.",
        "anyOf": [first, *others],
        "$defs": definitions([first, *others]),
    }


class Coder:
    """Lines of one member, written or read in their order; with ``mask``, written so that they name nobody."""

    def __init__(self, mask: Mask | None = None) -> None:
        self._last: dict[tuple[str, str], Any] = {}
        self._given: dict[tuple[str, str], tuple[Sequence[object], dict[str, Any]]] = {}
        self._asked: dict[str, frozenset[int]] = {}
        """Of whom /proc was asked last, in each series."""
        self._mask = mask

    def begin(self, node: NodeState, time: float) -> bytes:
        """The first line."""
        first = {"mpstui_recording": VERSION, "time": time}
        if self._mask is not None:
            return _line({**first, "state": self._masked(codec(Kept).encode(node.kept()))})
        line = bytearray(compact(first)[:-1].encode() + b',"state":')
        for piece in codec(Kept).text(node.kept(), _DEPTH):
            line += piece.encode()
        return bytes(line + b"}\n")

    def _masked(self, told: Any) -> Any:
        if self._mask is None:
            return told
        self._mask.learn(told)
        return self._mask.json(told)

    def encode(self, time: float, name: str, values: Sequence[object]) -> bytes:
        """One of the others."""
        reading = _reading(name)
        line: dict[str, Any] = {"t": round(time, 4), "r": name}
        if name in _WHOLE:
            given = zip(reading.names, reading.codecs, values, strict=False)
            return _line({**line, "v": self._masked({each: code.encode(value) for each, code, value in given})})
        series = self._series(values[0]) if name == "set_facts" and isinstance(values[0], Collection) else ""
        plain = self._encoded(reading, (name, series), values)
        told = self._masked(plain)
        key = name, series or str(told.get("pipe_dir", ""))
        before, self._last[key] = self._last.get(key), told
        if before is None:
            return _line({**line, **({"of": series} if series else {}), "v": told})
        return _line({**line, **({"of": key[1]} if key[1] else {}), "d": difference(before, told)})

    def _series(self, asked: Collection[Any]) -> str:
        """Who is shown is read each second, and all now and then: beside each other hundreds would come and go."""
        now = frozenset(asked)
        name = next((name for name, then in self._asked.items() if then == now), None)
        if name is None and len(self._asked) < len(_SERIES):
            name = _SERIES[len(self._asked)]
        if name is None:
            name = min(self._asked, key=lambda each: len(self._asked[each] ^ now))
        self._asked[name] = now
        return name

    def _encoded(self, reading: _Reading, kind: tuple[str, str], values: Sequence[object]) -> dict[str, Any]:
        """What has not changed since the last one of its kind is not encoded again."""
        key = (kind[0], str(values[0])) if reading.names[:1] == ("pipe_dir",) else kind
        known = self._given.get(key)
        given = zip(reading.names, reading.codecs, values, strict=False)
        if known is None or len(known[0]) != len(values):
            told = {each: code.encode(value) for each, code, value in given}
        else:
            told = {
                each: code.again(value, old, known[1][each])
                for (each, code, value), old in zip(given, known[0], strict=True)
            }
        self._given[key] = values, told
        return told

    @staticmethod
    def resumed(line: bytes) -> tuple[float, NodeState]:
        """What the first line tells. Raises RecordingError."""
        told = _parsed(line)
        if told.get("mpstui_recording") != VERSION:
            raise RecordingError("a part of it does not begin with a state")
        try:
            return codec(float).decode(told.get("time")), NodeState.resumed(codec(Kept).decode(told.get("state")))
        except (Unfit, TypeError, ValueError, KeyError) as error:
            raise RecordingError(f"a state in it is damaged: {error_text(error)}") from None

    def decode(self, line: bytes) -> tuple[float, str, list[Any]]:
        """When, which reading, and its values. Raises RecordingError."""
        told = _parsed(line)
        name = told.get("r")
        if not isinstance(name, str) or name not in READINGS:
            raise RecordingError("a line of it is of no known kind")
        reading = _reading(name)
        try:
            time = codec(float).decode(told.get("t"))
            if "v" in told:
                values = told["v"]
                key = name, str(told.get("of", values.get("pipe_dir", "")))
            else:
                key = name, str(told.get("of", ""))
                values = patched(self._last[key], told["d"])
            if name not in _WHOLE:
                self._last[key] = values
            if not values.keys() <= set(reading.names):
                raise Unfit("values that are not known")
            known = zip(reading.names, reading.codecs, strict=True)
            return time, name, [code.decode(values[each]) for each, code in known if each in values]
        except (Unfit, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            text = str(error) if isinstance(error, Unfit) else "it does not fit together"
            raise RecordingError(f"a line of it is damaged: {text}") from None


_SERIES: Final = ("", "more")


_DEPTH: Final = 4
"""Of a state: all, its events, one of them; all, its daemons, one of them, and what is known of it."""


def _line(value: object) -> bytes:
    return compact(value).encode() + b"\n"


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        told = json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise RecordingError("a line of it is no JSON") from None
    if not isinstance(told, dict):
        raise RecordingError("a line of it is no JSON object")
    return told


def _no_number(text: str) -> float:
    raise ValueError(text)


# Where members are kept.


class Sink(Protocol):
    """Takes members as they are written."""

    def begin(self, head: Head) -> None: ...

    def write(self, data: bytes) -> None: ...

    def end(self, head: Head) -> None:
        """The member is whole, and its head is this one."""


class Tape(Protocol):
    """Gives members as they are read."""

    def heads(self) -> Sequence[Head]:
        """Of all members, oldest first; one that is still being written has size 0."""

    def read(self, number: int, offset: int, most: int) -> bytes:
        """Bytes of a member, as they are packed; empty at its end."""


class _Member:
    """One that a program keeps for itself: in the pieces that it was written in, as one that grows would be moved again
    and again and leave holes; once it is whole, in a file, or its lines in one piece of bzip2."""

    __slots__ = ("head", "kept")

    def __init__(self, head: Head, kept: list[bytes] | bytes | FileIO) -> None:
        self.head, self.kept = head, kept

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        kept = self.kept  # another thread may pack it meanwhile
        if isinstance(kept, list):
            return sum(map(len, kept))
        return len(kept) if isinstance(kept, bytes) else self.head.size

    def copy(self) -> _Member:
        """What is there now."""
        kept = self.kept
        return _Member(self.head, list(kept) if isinstance(kept, list) else kept)


def _set_down(data: bytes) -> FileIO | None:
    """These bytes in a file without a name, which nobody else can open and which ends with whoever has it open; None
    where there is no room for one."""
    from tempfile import TemporaryFile

    for folder in (os.environ.get("TMPDIR"), *_FOLDERS):
        with suppress(OSError, ValueError):
            file = TemporaryFile(buffering=0, dir=folder) if folder else None  # noqa: SIM115 – it is what is answered
            if isinstance(file, FileIO) and file.write(data) == len(data):
                return file
    return None


class MemoryTape:
    """The latest members, at most ``most`` bytes of them in memory, twice that in files, and ``seconds`` back."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._members: deque[_Member] = deque()
        self._opened: tuple[bytes, bytes] = (b"", b"")
        """What was read last of what is packed tighter, and as it is read."""

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return sum(member.size for member in self._members)

    @property
    def in_files(self) -> int:
        """Of these, bytes that take no memory."""
        return sum(member.size for member in tuple(self._members) if isinstance(member.kept, FileIO))

    def copy(self) -> MemoryTape:
        """What is there now, to be read elsewhere while this one goes on."""
        found = MemoryTape(self._most, self._seconds)
        found._members.extend(member.copy() for member in tuple(self._members))
        return found

    def tighten(self) -> None:
        """Whole members into files; where there is no room for one, packed again, a third smaller, which takes 0.13 s
        of processor time for five minutes beside 14 clients. In whatever thread, while another one writes."""
        from bz2 import compress

        for member in tuple(self._members):
            kept = member.kept
            if member.head.size and isinstance(kept, list):
                packed = b"".join(kept)
                file = _set_down(packed)
                unpacked = b"" if file is not None else zlib.decompress(packed, zlib.MAX_WBITS | _GZIP)
                member.kept = file if file is not None else compress(unpacked, _LEVEL)

    def _is_full(self) -> bool:
        in_files = self.in_files
        return in_files > 2 * self._most or self.size - in_files > self._most

    def begin(self, head: Head) -> None:
        """Makes room for it."""
        while len(self._members) > 1 and (self._is_full() or self._members[0].head.last < head.first - self._seconds):
            self._members.popleft()
        self._members.append(_Member(head, [_packed(head)]))

    def write(self, data: bytes) -> None:
        """To the newest one."""
        kept = self._members[-1].kept
        if data and isinstance(kept, list):
            kept.append(data)

    def end(self, head: Head) -> None:
        """The newest one is whole, or has come so far."""
        self._members[-1].head = head

    def heads(self) -> Sequence[Head]:
        """See Tape."""
        return [member.head for member in self._members]

    def read(self, number: int, offset: int, most: int) -> bytes:
        """See Tape."""
        member = self._members[number]
        kept = member.kept
        if isinstance(kept, FileIO):
            return os.pread(kept.fileno(), most, offset)
        for piece in (self._open(member, kept),) if isinstance(kept, bytes) else kept:
            if offset < len(piece):
                return piece[offset : offset + most]
            offset -= len(piece)
        return b""

    def _open(self, member: _Member, kept: bytes) -> bytes:
        """A member that is packed tighter, as it was written."""
        if self._opened[0] is not kept:
            from bz2 import decompress

            packer = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
            whole = _packed(member.head) + packer.compress(decompress(kept)) + packer.flush()
            self._opened = kept, whole
        return self._opened[1]


class FileSink:
    """A file that grows, for its owner alone, and its older parts, ``FILE.1`` and so on.

    ``most``: bytes of all of them together; ``seconds``: how old a part may become. A file that is there is gone on
    with where it is a recording of this user's that nobody else can read, and it is not to be ``new``. Raises
    RecordingError.
    """

    PARTS: Final = 4

    def __init__(
        self, path: Path, most: int, seconds: float, clock: Callable[[], float] = system.time, *, new: bool = False
    ) -> None:
        self.path = path
        self._new = new
        self._most, self._seconds, self._clock = most // self.PARTS, seconds, clock
        self._at = 0
        self._owners = frozenset((0, os.geteuid()))
        self._fd = self._open()

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            try:
                return open_trusted(self.path, flags | os.O_CREAT | os.O_EXCL, self._owners)
            except FileExistsError:
                if self._new:
                    raise RecordingError(
                        f"{path_text(self.path)} is there, and may name people; give another name"
                    ) from None
                fd = open_trusted(self.path, flags, self._owners)
        except NotTrustedError as error:
            raise RecordingError(f"{path_text(self.path)} is not written: {error}") from None
        except OSError as error:
            raise RecordingError(f"{path_text(self.path)} cannot be written: {error_text(error)}") from None
        try:
            self._go_on(fd)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _go_on(self, fd: int) -> None:
        """At the end of a recording that is there; one that was torn off in a member is ended there."""
        found = os.fstat(fd)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise RecordingError(f"{path_text(self.path)} is there, and others may read it; give another name")
        offset = 0
        while offset < found.st_size:
            try:
                head = _head(os.pread(fd, _HEADER, offset))
            except RecordingError:
                why = "is there and is no recording" if not offset else "is there and is damaged"
                raise RecordingError(f"{path_text(self.path)} {why}; give another name") from None
            if not head.size or offset + head.size > found.st_size:
                os.pwrite(fd, _packed(head._replace(size=found.st_size - offset)), offset)
                break
            offset += head.size
        os.lseek(fd, 0, os.SEEK_END)

    def begin(self, head: Head) -> None:
        """A member begins; where the file is full, in a new one."""
        self._at = os.lseek(self._fd, 0, os.SEEK_END)
        if self._at >= self._most:
            self._rotate()
        self._write(_packed(head))

    def _rotate(self) -> None:
        places = self._places()
        with suppress(OSError):
            os.unlink(places[-1])
        for newer, older in reversed(tuple(itertools.pairwise(places))):
            if os.path.lexists(newer):
                os.rename(newer, older)
        self.close()
        self._fd = self._open()
        self._at = 0
        for part in places[1:]:
            with suppress(OSError):
                if os.lstat(part).st_mtime < self._clock() - self._seconds:
                    os.unlink(part)

    def _places(self) -> list[Path]:
        """The file, and where its older parts go, newest first: in /tmp anybody makes a directory of such a name, which
        would end the recording."""
        found = [self.path]
        for part in (_older(self.path, number) for number in range(1, _LAST_PART + 1)):
            try:
                there = os.lstat(part)
            except FileNotFoundError:
                found.append(part)
            else:
                if stat.S_ISREG(there.st_mode) and there.st_uid == os.geteuid():
                    found.append(part)
            if len(found) == self.PARTS:
                break
        return found

    def write(self, data: bytes) -> None:
        """To the member."""
        self._write(data)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def end(self, head: Head) -> None:
        """The member is whole."""
        if head.size:
            os.pwrite(self._fd, _packed(head), self._at)

    def close(self) -> None:
        """Gives the file back."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class FileTape:
    """A recording that somebody named, with its older parts, to be read. Raises RecordingError.

    ``trouble``: where it is damaged, in a sentence; what is before that is read. ``uid``: whose file it is, and so
    whose word what it tells; ANYBODY where others may write to it.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.uid = path, 0
        self.trouble: str | None = None
        self._cut = 0
        self._files: list[int] = []
        self._members: list[tuple[Head, int, int]] = []
        """Its head, its file, and where it is there."""
        try:
            newest = open_named(path)
            self._files.append(newest)
            self.uid = os.fstat(newest).st_uid
            for part in _parts(path):
                self._take_older(part)
            self._index(newest, path)
            if any(teller_of(fd) == ANYBODY for fd in self._files):
                self.uid = ANYBODY
        except (OSError, NotTrustedError) as error:
            self.close()
            text = error_text(error) if isinstance(error, OSError) else str(error)
            raise RecordingError(f"{path_text(path)} cannot be read: {text}") from None
        except RecordingError:
            self.close()
            raise
        if not self._members:
            self.close()
            raise RecordingError(f"{path_text(path)}: {self.trouble or 'the recording is empty'}")

    def _take_older(self, part: Path) -> None:
        """An older part, where root or the newest one's owner owns it: in /tmp anybody makes a file of that name."""
        try:
            fd = open_named(part)
            if os.fstat(fd).st_uid not in {0, self.uid}:
                os.close(fd)
                raise RecordingError("it belongs to another user than the newest part")
            self._files.append(fd)
            self._index(fd, part)
        except (OSError, NotTrustedError, RecordingError) as error:
            self.trouble = f"{path_text(part)} is left out: {error_text(error)}"

    def _index(self, fd: int, part: Path) -> None:
        size, offset = os.fstat(fd).st_size, 0
        while offset < size and len(self._members) < _MEMBERS:
            try:
                head = _head(os.pread(fd, _HEADER, offset))
            except RecordingError as error:
                if not offset:
                    raise RecordingError(f"{path_text(part)}: {error}") from None
                self.trouble = f"{path_text(part)} is damaged at byte {offset}; it is shown up to there"
                return
            whole = head.size if head.size and offset + head.size <= size else size - offset
            if self._members and head.first < self._members[-1][0].first:
                self.trouble = f"{path_text(part)} goes back in time at byte {offset}; it is shown up to there"
                return
            self._members.append((head._replace(size=whole), fd, offset))
            if whole < head.size:
                self.trouble = f"{path_text(part)} is cut off: its end is missing; it is shown up to there"
                self._cut += 1
                end = self._end_of(head) if self._cut <= _CUT else head.first
                self._members[-1] = (head._replace(size=whole, last=end), fd, offset)
            offset += whole

    def _end_of(self, head: Head) -> float:
        """The moment of the last whole line of the newest member, which is cut: its head tells of what is missing."""
        line = b""
        try:
            for each in lines(self, len(self._members) - 1):
                line = each
        except RecordingError:
            pass  # what cannot be unpacked is missing too
        try:
            time = _parsed(line).get("t")
        except RecordingError:
            return head.first
        return min(max(time, head.first), head.last) if isinstance(time, float | int) else head.first

    def heads(self) -> Sequence[Head]:
        """See Tape."""
        return [head for head, _, _ in self._members]

    def read(self, number: int, offset: int, most: int) -> bytes:
        """See Tape."""
        head, fd, begin = self._members[number]
        return os.pread(fd, max(0, min(most, head.size - offset)), begin + offset)

    def close(self) -> None:
        """Gives the files back."""
        files, self._files = self._files, []
        for fd in files:
            os.close(fd)


def _parts(path: Path) -> list[Path]:
    """Older parts, oldest first."""
    try:
        names = os.listdir(path.parent)
    except OSError:
        return []
    found = [
        int(number[1])
        for name in names
        if name.startswith(path.name) and (number := _ROTATED.fullmatch(name[len(path.name) :]))
    ]
    return [_older(path, number) for number in sorted(found, reverse=True)]


def _older(path: Path, number: int) -> Path:
    return Path(os.fspath(path) + "." + str(number))


# Writing.


class Recorder:
    """The listener of a NodeState. ``clock``: seconds since the epoch. A member has ``span`` seconds or ``many`` lines.

    It never raises: ``trouble`` says why it has stopped. ``mask``: whoever it names is named so.
    """

    def __init__(
        self,
        sink: Sink,
        clock: Callable[[], float],
        *,
        span: float = SPAN,
        many: int = _MANY,
        flush: float = FLUSH,
        mask: Mask | None = None,
    ) -> None:
        self._sink, self._clock, self._span, self._many, self._flush = sink, clock, span, many, flush
        self._head: Head | None = None
        self._mask = mask
        self._coder = Coder(mask)
        self._packer = zlib.compressobj(6, zlib.DEFLATED, -15)
        self._check = self._lines = self._size = self._told = 0
        self._waiting: list[bytes] = []
        self._waits = 0
        self._flushed = 0.0
        self.trouble: str | None = None

    def __call__(self, node: NodeState, name: str, values: tuple[object, ...], /) -> None:
        """Writes the reading down; see Listener."""
        if self.trouble is not None:
            return
        try:
            now = max(self._clock(), self._head.last if self._head is not None else 0.0)
            if self._head is None or self._is_full(now):
                self._begin(node, now)
            self._add(self._coder.encode(now, name, values), now, event=name in {"add_event", "add_xids"})
            if now - self._flushed >= self._flush:
                self.flush()
        except OSError as error:
            self.trouble = error_text(error)
        except RecordingError as error:
            self.trouble = str(error)

    def _is_full(self, now: float) -> bool:
        head = self._head
        return head is not None and (now - head.first >= self._span or self._lines >= self._many or self._told >= _FULL)

    def _begin(self, node: NodeState, now: float) -> None:
        self._member(now)
        self._add(self._coder.begin(node, now), now, event=False)

    def _member(self, now: float) -> None:
        self.end()
        self._head, self._coder = Head(0, now, now, 0), Coder(self._mask)
        self._packer = zlib.compressobj(6, zlib.DEFLATED, -15)
        self._check = self._lines = self._told = 0
        self._size = _HEADER
        self._sink.begin(self._head)
        self._flushed = now

    def copy(self, tape: MemoryTape) -> None:
        """All that a screen has kept. Raises OSError, and RecordingError."""
        for number, head in enumerate(tape.heads()):
            self._member(head.first)
            for place, line in enumerate(lines(tape, number)):
                first = not number and not place
                self._add(_line({**_parsed(line), "from": _SCREEN}) if first else line + b"\n", head.last, event=False)
            if self._head is not None:
                self._head = self._head._replace(events=head.events)
        self.end()

    def _add(self, line: bytes, now: float, *, event: bool) -> None:
        if self._head is None:
            return
        self._head = self._head._replace(last=now, events=self._head.events + event)
        self._lines += 1
        self._told += len(line)
        self._waiting.append(line)
        self._waits += len(line)
        if self._waits >= _PIECE:  # as a log's history is told, all at once
            self._pack(zlib.Z_NO_FLUSH)

    def anew(self) -> None:
        """See Listener."""
        try:
            self.end()
        except OSError as error:
            self.trouble = error_text(error)

    def flush(self) -> None:
        """What was told so far can be read."""
        if self._head is None:
            return
        self._pack(zlib.Z_SYNC_FLUSH)
        self._flushed = self._head.last
        self._sink.end(self._head)

    def _pack(self, how: int) -> None:
        lines, self._waiting, self._waits = b"".join(self._waiting), [], 0
        self._check = zlib.crc32(lines, self._check)
        packed = self._packer.compress(lines) + self._packer.flush(how)
        self._size += len(packed)
        self._sink.write(packed)

    def end(self) -> None:
        """The member is whole; the next reading begins another one."""
        if self._head is None:
            return
        self._pack(zlib.Z_FINISH)
        self._sink.write(struct.pack("<II", self._check, self._told & 0xFFFFFFFF))
        self._sink.end(self._head._replace(size=self._size + 8))
        self._head = None


# Reading.


def lines(tape: Tape, number: int) -> Iterator[bytes]:
    """The lines of a member. A last one that is torn is left out. Raises RecordingError."""
    unpacker, offset, unpacked, many = zlib.decompressobj(-15), _HEADER, 0, 0
    held: list[bytes] = []
    waiting = 0
    while not unpacker.eof:
        packed = unpacker.unconsumed_tail or tape.read(number, offset, _PIECE)
        if not unpacker.unconsumed_tail:
            offset += len(packed)
        if not packed:
            return
        try:
            piece = unpacker.decompress(packed, _PIECE)
        except zlib.error:
            raise RecordingError("a part of it is damaged: it cannot be unpacked") from None
        unpacked += len(piece)
        held.append(piece)
        waiting += len(piece)
        whole: list[bytes] = []
        if b"\n" in piece:
            *whole, rest = b"".join(held).split(b"\n")
            held, waiting, many = [rest], len(rest), many + len(whole)
        if unpacked > _UNPACKED or waiting > LINE or many > 2 * _MANY:
            raise RecordingError("a part of it is larger than any recording's")
        yield from whole


def is_a_screens(tape: Tape) -> bool:
    """Whether it is what a screen had kept, and not all that somebody wanted written. Raises RecordingError."""
    first = next(lines(tape, 0), None)
    return first is not None and _parsed(first).get("from") == _SCREEN


def save(tape: MemoryTape, path: Path) -> int:
    """What is kept there as a new recording, for its owner alone, whole or not at all; its bytes. Raises
    RecordingError."""
    sink = FileSink(path, _NO_LIMIT, math.inf, new=True)
    try:
        Recorder(sink, system.time).copy(tape)
        return os.path.getsize(path)
    except (OSError, RecordingError) as error:
        with suppress(OSError):
            os.unlink(path)
        raise RecordingError(f"{path_text(path)} cannot be written: {error_text(error)}") from None
    finally:
        sink.close()


def member_at(heads: Sequence[Head], time: float) -> int:
    """The number of the member that is or was going on at that time; the first one where it is before all."""
    return max(0, bisect_right([head.first for head in heads], time) - 1)
