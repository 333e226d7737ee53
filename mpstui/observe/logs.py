"""Follows logs, through rotation and truncation, and tells when one of them was written to."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol, cast

from mpstui.control.grammar import LINE_BYTES, LogKind, LogParser
from mpstui.control.protocol import LEGACY, ControlProtocol
from mpstui.control.v3 import NAME
from mpstui.core.model import Event
from mpstui.observe.sources import BlockingCalls
from mpstui.system.trusted import Owners, UnreadableLogError, open_log

# Follows one log file: from its end on, through rotation and truncation, at the cost of one ``stat`` a poll.


HISTORY_BYTES: Final = 4 << 20
CHUNK_BYTES: Final = 1 << 20
"""Read at most this much a poll, so that a log written at full speed does not stop the screen."""
BEHIND_BYTES: Final = 32 << 20
"""Further behind than this, the tail skips to the newest ``HISTORY_BYTES``."""
OTHERS_BYTES: Final = 256 << 10
"""Instead of ``CHUNK_BYTES``, of a log of another user's: what folds its lines answers keys too, and whoever writes
without end keeps it busy."""
_BLOCK: Final = 256 << 10
_PRINT: Final = 512
"""Bytes at a file's begin, and as many before the place that it is read to, by which it is known again."""
_TICK_NS: Final = 100_000_000
"""The kernel's clock for files goes in steps of up to 10 ms, and that of a file server is another one: a change that
came so soon after the last one may have left the file's time as it was."""


class LogTail:
    """The lines of ``path`` as they are written, while ``owners`` are those who write it (see ``open_log``). No method
    raises for anything the file does.

    ``marker`` is what the line holds from which on history matters; the newest such line within the last ``far`` bytes
    is where the first poll starts, else ``history`` bytes before the end.
    """

    __slots__ = (
        "_access",
        "_buffer",
        "_far",
        "_fd",
        "_floor",
        "_history",
        "_identity",
        "_left",
        "_marker",
        "_offset",
        "_overlong",
        "_owners",
        "_print",
        "_settled",
        "believed",
        "error",
        "from_start",
        "look",
        "path",
        "skipped",
    )

    def __init__(
        self,
        path: Path,
        marker: bytes = b"",
        history: int | None = None,
        owners: Owners | None = None,
        far: int = 0,
        look: int = CHUNK_BYTES,
    ) -> None:
        self.path = path
        self.look = look
        """Bytes of one look at most; with fewer all else is less in proportion."""
        self.error: str | None = None
        """Why there are no lines, one sentence; None while the file can be read."""
        self.believed = True
        """False while it is somebody else's, who could write what he likes."""
        self.skipped = False
        """True once lines were left out because the log grew faster than it was read."""
        self.from_start = True
        """False where older lines than the first one were left out and no marker was found."""
        self._marker = marker
        self._history: int | None = self._part(HISTORY_BYTES) if history is None else history
        self._far = max(self._history, self._part(far))
        self._floor = 0
        """Where the first poll started, when what is before that was left out."""
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
        self._print: tuple[bytes, int, bytes] | None = None
        """What the file began with, and what stood before which place, when it was last read."""
        self._settled: tuple[int, int, int] | None = None
        """Size and times of the file with that print, where a later change would show in them."""

    def _part(self, size: int) -> int:
        return size * self.look // CHUNK_BYTES

    def poll(self, most: int | None = None) -> list[bytes]:
        """New whole lines without their line breaks; at most ``most`` bytes of them, so poll until none comes."""
        most = self.look if most is None else min(most, self.look)
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
        if (found.st_size, found.st_mtime_ns, found.st_ctime_ns) == self._settled:
            return []
        if found.st_size < self._offset or self._is_another():  # written anew in place: what is there now is new
            self._offset, self._buffer, self._overlong = 0, b"", False
        lines = self._read(found.st_size, most) if found.st_size > self._offset else []
        self._remember(found)
        return lines

    def _is_another(self) -> bool:
        """Whether the open file no longer holds what was read of it, whatever length it has."""
        if self._fd is None or self._print is None:
            return False
        begin, at, before = self._print
        now = _pread(self._fd, len(begin), 0), _pread(self._fd, len(before), at - len(before))
        return now != (begin, before)

    def _remember(self, found: os.stat_result) -> None:
        """What the file is known by from now on. ``found``: as it was before it was read."""
        if self._fd is None:
            return
        at = self._offset
        self._print = _pread(self._fd, min(_PRINT, at), 0), at, _pread(self._fd, min(_PRINT, at), max(0, at - _PRINT))
        stamp = found.st_size, found.st_mtime_ns, found.st_ctime_ns
        quiet = time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) > _TICK_NS
        self._settled = stamp if quiet and found.st_size == at else None

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
        self._print = self._settled = None
        if self._left is not None and self._left[0] == self._identity:
            _, self._offset, self._overlong = self._left
            self._left = None
        elif self._history is not None:
            self._offset = self._start(fd, found.st_size, self._history)
            self._history = None
        return True

    def _start(self, fd: int, size: int, history: int) -> int:
        """Where history begins: the newest marker's line, else the first whole line within ``history`` bytes."""
        floor, far = max(0, size - history), max(0, size - self._far)
        if self._marker:
            end, overlap = size, b""
            while end > far:
                begin = max(far, end - _BLOCK)
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
        self._floor = floor
        return floor

    def never_had(self, words: Sequence[bytes], most: int) -> bool:
        """Whether none of ``words`` is in what was left out, which begins with the marker's line and is not longer than
        ``most``. It is not read for what it tells, as it may hold what clients have chosen (fact 10): of such a text
        there is at worst a word too many."""
        if (
            self._fd is None
            or self._floor > most
            or self._marker not in _pread(self._fd, _PRINT, 0).partition(b"\n")[0]
        ):
            return False
        overlap = max(map(len, words))
        starts = range(0, self._floor, CHUNK_BYTES)
        blocks = (_pread(self._fd, min(CHUNK_BYTES, self._floor - at) + overlap, at) for at in starts)
        return not any(word in block for block in blocks for word in words)

    def _read(self, size: int, most: int = CHUNK_BYTES) -> list[bytes]:
        if self._fd is None:
            return []
        if size - self._offset > self._part(BEHIND_BYTES):
            self._offset = size - self._part(HISTORY_BYTES)
            self._buffer, self._overlong, self.skipped, self.from_start = b"", True, True, False
        data = _pread(self._fd, min(most, size - self._offset), self._offset)
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


# Follows the two logs of one daemon: history first, then what is written.


Told = tuple[LogKind, Event]
GROUP: Final = 0.03
"""Seconds without a line after which a group of lines is over: two looks may come closer together than the lines of one
fault are written."""
CONTROL_BYTES: Final = 24 << 20
"""So far back a daemon's start is looked for in its log: only what was set since then is known without asking for it,
each limit by a command and a proof that it arrived. Less than ``BEHIND_BYTES``."""
_BLOCKS: Final = CONTROL_BYTES // _BLOCK + 2
"""So many hold as much of a log as there was at first."""
LOOKED_THROUGH: Final = 256 << 20
"""A control.log up to this is looked through for the commands that set a memory limit, in 0.1 s or so; where there is
none of them, no such limit has to be asked for."""
_SET_MEMORY: Final = (b"set_default_device_pinned_mem_limit", b"set_device_pinned_mem_limit")
_SESSION: Final = frozenset(("session_opened", "session_closed"))
CONTROL_MARKER: Final = b"Starting control daemon using socket"
SERVER_MARKER: Final = b"] Startup"
CONTROL_LOG: Final = "control.log"
SERVER_LOG: Final = "server.log"
SIMULATED: Final = "mpstui-simulated"
"""What a simulated node leaves beside its logs, and in its pipe directory."""
SIMULATED_STARTS: Final = "mpstui-simulated.starts"
"""Beside the logs: how the line of control.log begins with which each simulated daemon has started. Other daemons may
write to the same logs."""
_SERVERS_LIMIT: Final = 64
"""Servers of one daemon of protocol 3 whose logs are read."""


def server_logs(log_dir: Path, owners: Owners | None = None) -> list[Path]:
    """Where the servers of a daemon of protocol 3 write, each in a directory of its name, as is documented; a directory
    that is none of ``owners``' is none of theirs, and one with a control.log is another daemon's. Servers that are gone
    leave theirs: of many those are told that were written to last, so that none of a server that runs is left out."""
    found = []
    try:
        with os.scandir(log_dir) as entries:
            for each in entries:
                folder = each.stat(follow_symlinks=False)
                theirs = owners is None or folder.st_uid in owners
                if theirs and NAME.fullmatch(each.name) and each.is_dir(follow_symlinks=False):
                    log = log_dir / each.name / SERVER_LOG
                    if not os.path.lexists(log_dir / each.name / CONTROL_LOG):
                        found.append((_written(log, folder.st_mtime_ns), log))
    except OSError:
        return []
    return sorted(log for _, log in sorted(found, reverse=True)[:_SERVERS_LIMIT])


def _written(log: Path, otherwise: int) -> int:
    """When it was written to last, by its own clock; ``otherwise`` where it is still to come."""
    try:
        return os.lstat(log).st_mtime_ns
    except OSError:
        return otherwise


def last_change(folder: Path) -> int | None:
    """When a directory was changed last, by its own clock. None where that cannot be seen, and while another change may
    have left it as it is."""
    try:
        changed = os.stat(folder).st_mtime_ns
    except OSError:
        return None
    return changed if time.time_ns() - changed > _TICK_NS else None


class _Log(NamedTuple):
    """A log that is followed, with the reader of its lines: those of two servers are never one group."""

    kind: LogKind
    tail: LogTail
    parser: LogParser


class LogWatch:
    """control.log and server.log of ``log_dir``, where ``owners`` have written them (see ``open_log``). :meth:`history`
    may take a second: run it off the event loop. Where the ``protocol`` names servers many of them run at a time, so
    that the newest one's start is no beginning of history, and each may have a log of its own (:func:`server_logs`)."""

    def __init__(
        self,
        log_dir: Path,
        owners: Owners,
        protocol: ControlProtocol = LEGACY,
        look: int = CHUNK_BYTES,
    ) -> None:
        self.log_dir = log_dir
        self._bytes = look
        self._owners, self._parser, self._several = owners, protocol.log_parser, protocol.named_servers
        tail = LogTail(log_dir / CONTROL_LOG, CONTROL_MARKER, owners=owners, far=CONTROL_BYTES, look=look)
        self._control = _Log("control", tail, self._parser("control"))
        self._logs = [self._control]
        self._add(log_dir / SERVER_LOG, b"" if self._several else SERVER_MARKER)
        self._listed: int | None = None
        """When the directory had changed last, by its own clock, as it was looked through for logs of servers."""
        self._clock: Callable[[], float] | None = None
        self._read_at = 0.0
        self.settled = True
        """Whether the last poll found nothing: else there may be more, or a group of lines that is not over."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files whose changes are of interest: whoever writes to others wakes nobody."""
        return tuple(each.tail.path for each in self._logs if each.tail.believed)

    def believe(self, owners: Owners, look: int = CHUNK_BYTES) -> None:
        """From now on whoever these are: another daemon may run, or none."""
        self._owners, self._bytes = owners, look
        for each in self._logs:
            each.tail.believe(owners)
            each.tail.look = look

    @property
    def version(self) -> str | None:
        return self._control.parser.version

    @property
    def unknown(self) -> tuple[int, frozenset[str]]:
        """The daemon's PID as its log has it, and the commands that it said it does not know."""
        return self._control.parser.unknown

    @property
    def trouble(self) -> str | None:
        """Why the logs do not tell everything, one sentence; a server.log that is still to come is no trouble."""
        if self._control.tail.error is not None:
            return self._control.tail.error
        tails = (each.tail for each in self._logs[1:])
        return next((tail.error for tail in tails if tail.error is not None and os.path.lexists(tail.path)), None)

    @property
    def believed(self) -> bool:
        """False where the logs, or one of them, could have been written by somebody else."""
        return all(each.tail.believed for each in self._logs)

    @property
    def complete(self) -> bool:
        """Whether history reaches back to the daemon's start."""
        return self._control.tail.from_start

    def memory_unset(self) -> bool:
        """Whether no memory limit was set before history begins, which is for the daemon's log to tell; to be asked
        behind :meth:`history`, and may take as long."""
        return self.complete or self._control.tail.never_had(_SET_MEMORY, LOOKED_THROUGH)

    @property
    def serves(self) -> bool:
        """Whether server.log was read from the server's start on."""
        return all(each.tail.from_start for each in self._logs[1:])

    def history(self) -> list[Told]:
        """Everything that is there, in the order of time; of sessions, of which a monitor opens one each second, the
        last one's begin or end alone, and no questions. What is written meanwhile is left to :meth:`poll`: a log that
        grows as fast as it is read has no end."""
        told: list[Told] = []
        self._look()
        for kind, tail, parser in self._logs:
            session: list[Told] = []
            for _ in range(_BLOCKS):
                if not (lines := tail.poll(_BLOCK)):
                    break
                for each in ((kind, event) for line in lines for event in parser.feed(line)):
                    if each[1].kind in _SESSION:
                        session = [each]
                    elif not each[1].is_question:
                        told.append(each)
            told += session
            told += ((kind, event) for event in parser.flush())
        return _ordered(told)

    def live(self, monotonic: Callable[[], float]) -> None:
        """From here on lines are read as they are written."""
        self._clock = monotonic
        for each in self._logs:
            each.parser.live(monotonic)

    def poll(self) -> list[Told]:
        """What was written since; costs two ``stat`` where nothing was."""
        told: list[Told] = []
        self.settled = True
        self._look()
        for kind, tail, parser in self._logs:
            lines = tail.poll()
            now = self._clock() if self._clock is not None else 0.0
            if lines:
                self.settled = False
                self._read_at = now
                told += ((kind, event) for line in lines for event in parser.feed(line))
            elif self._clock is None or now - self._read_at >= GROUP or not parser.gathers:
                told += ((kind, event) for event in parser.flush())
            else:
                self.settled = False
        return _ordered(told) if len(told) > 1 else told

    def missed(self) -> bool:
        """Whether lines were left out since this was last asked, as a log grew faster than it was read."""
        skipped = [each.tail for each in self._logs if each.tail.skipped]
        for tail in skipped:
            tail.skipped = False
        return bool(skipped)

    def close(self) -> None:
        for each in self._logs:
            each.tail.close()

    def _add(self, path: Path, marker: bytes = b"") -> None:
        log = _Log("server", LogTail(path, marker, owners=self._owners, look=self._bytes), self._parser("server"))
        self._logs.append(log)

    def _look(self) -> None:
        """Finds the logs of servers that are new; costs one ``stat`` where there is none."""
        if not self._several:
            return
        changed = last_change(self.log_dir)
        if changed is not None and changed == self._listed:
            return
        self._listed = changed
        known = {each.tail.path for each in self._logs}
        for path in server_logs(self.log_dir, self._owners):
            if path not in known:
                self._add(path)
                if self._clock is not None:
                    self._logs[-1].parser.live(self._clock)


def _ordered(told: list[Told]) -> list[Told]:
    """By time; where both logs say the same moment, the daemon's word comes first, as it acted first: its log is read
    first."""
    latest = 0.0

    def time_of(each: Told) -> float:
        nonlocal latest
        latest = each[1].time if each[1].time is not None else latest
        return latest

    told.sort(key=time_of)
    return told


# The kernel's word that a log was written to, so that nobody has to look for it ten times a second.


GATHER: Final = 0.02
"""Seconds from a notice to the look: what is written together is read together."""
_MISSES: Final = 2
"""Times that something was found without a notice before notices are relied on no more. One may be a coincidence."""


class Watcher(Protocol):
    """The part of ``inotify_simple.INotify`` that is used here."""

    def fileno(self) -> int: ...
    def add_watch(self, path: Path, mask: int, /) -> int: ...
    def rm_watch(self, wd: int, /) -> None: ...
    def read(self, timeout: int) -> object: ...
    def close(self) -> None: ...


def open_watcher() -> Watcher | None:
    """An inotify descriptor; None where there is none to be had. May take 10 ms: it asks where the C library is."""
    try:
        from inotify_simple import INotify

        return cast("Watcher", INotify(nonblocking=True))
    except (ImportError, OSError, AttributeError):
        return None


class Wakeups:
    """Ends the rest of an event loop whenever one of the watched files changes.

    Files are watched, not their folder, which may be somebody else's busy one; a symbolic link is not followed. A file
    that takes the place of another is watched from the next :meth:`watch` on. No method raises.
    """

    def __init__(self, watcher: Callable[[], Watcher | None], sleep: Callable[[float], Awaitable[None]]) -> None:
        self._open = watcher
        self._sleep = sleep
        self._watcher: Watcher | None = None
        self._opened = False
        self._numbers: set[int] = set()
        self._complete = False
        self._misses = 0
        self._noticed = False
        self._over = asyncio.Event()

    @property
    def relied(self) -> bool:
        """Whether every change is told of. False also once changes were found that nobody had told of, as on some
        network and stacked file systems."""
        return self._watcher is not None and self._complete and self._misses < _MISSES

    async def open(self, worker: BlockingCalls) -> None:
        """Begin, where the kernel can tell; at most once."""
        if not self._opened:
            self._opened = True
            self._watcher = await worker.call(self._open)
            if self._watcher is not None:
                asyncio.get_running_loop().add_reader(self._watcher.fileno(), self._read)

    def close(self) -> None:
        watcher, self._watcher, self._opened = self._watcher, None, False
        if watcher is not None:
            asyncio.get_running_loop().remove_reader(watcher.fileno())
            watcher.close()

    def watch(self, paths: Collection[Path]) -> None:
        """From now on these files and no others. Two system calls a file."""
        if self._watcher is None:
            return
        before, self._numbers, self._complete = self._numbers, set(), True
        for path in paths:
            self._add(self._watcher, path)
        for number in before - self._numbers:
            with suppress(OSError):  # the kernel forgets a deleted file by itself
                self._watcher.rm_watch(number)

    def missed(self) -> None:
        """A change was found without a notice."""
        self._misses += 1

    def stir(self) -> None:
        """End the rest."""
        self._noticed = True
        self._over.set()

    async def rest(self, seconds: float) -> bool:
        """Waits so long, or until there is a notice; answers whether there was one."""
        # Not asyncio.wait_for: before Python 3.12 that may swallow a cancellation.
        timer = asyncio.get_running_loop().call_later(seconds, self._over.set)
        try:
            await self._over.wait()
        finally:
            timer.cancel()
        if noticed := self._noticed:
            await self._sleep(GATHER)
        self._noticed = False
        self._over.clear()
        return noticed

    def _read(self) -> None:
        if self._watcher is not None:
            self._watcher.read(timeout=0)
        self._misses = 0
        self.stir()

    def _add(self, watcher: Watcher, path: Path) -> None:
        from inotify_simple import flags

        try:
            try:
                changes = flags.MODIFY | flags.MOVE_SELF | flags.DELETE_SELF
                self._numbers.add(watcher.add_watch(path, changes | flags.DONT_FOLLOW))
            except FileNotFoundError:  # until it is there
                self._numbers.add(watcher.add_watch(path.parent, flags.CREATE | flags.MOVED_TO | flags.ONLYDIR))
        except OSError:  # the user's limit of watches, a file that may not be read, no such folder
            self._complete = False
