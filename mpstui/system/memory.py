"""Reads what lies in other processes' memory, their arguments say, and leaves behind whoever keeps the reader waiting.

The kernel fetches that under the lock of the memory it lies in, and a process can keep that lock: one that is stuck in
a driver does, and so does one whose user wants it (seen on Linux 6.18: it gives back a changed page of a file in user
space that is never written, and asks for memory meanwhile; then ``ps`` waits too). Nothing ends such a wait but the end
of the waiting program. So a thread reads, and is left where it waits; nobody reads of that process until it comes back.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Final

from mpstui.core.late import pattern

PATIENCE: Final = 3.0
"""Seconds in which the kernel has not let a reader go on: what it reads is left."""
_AT_MOST: Final = 30.0
"""The same, where it is not seen that it is the kernel that keeps it: on a busy machine a thread may just be slow."""
_LOOK: Final = 0.1
_AGAIN: Final = 5 * _LOOK
"""As ``PATIENCE`` once one has been left: there may be many."""


INSIDE: Final = pattern(rb"/proc/[0-9]+/root(?=/|$)")
"""The root of a process in a container: not a link to read, and what is behind it is the container's own way."""


def real_path(path: str | os.PathLike[str]) -> str:
    """Without links, as a directory of two names is one; but what lies behind the root of a process is left as it is:
    that root reads as ``/``, and would lead to what has the same name here."""
    name = os.path.abspath(path)
    if INSIDE.match(os.fsencode(name)):
        return name
    try:
        return os.path.realpath(name)
    except OSError:  # it was a link when Python looked, and none any more when it was read: somebody exchanges them
        return name


def read_file(path: str, limit: int) -> bytes | None:
    """A file of /proc, whole up to ``limit`` bytes; None where it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    chunks: list[bytes] = []
    try:
        while limit > 0:
            chunk = os.read(fd, min(limit, 1 << 16))
            if not chunk:
                break
            chunks.append(chunk)
            limit -= len(chunk)
    except OSError:
        return None
    finally:
        os.close(fd)
    return b"".join(chunks)


def read_start(path: str, most: int) -> bytes:
    """What one read gives of a file of /proc, as of one that is a single line; empty where it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, most)
    except OSError:
        return b""
    finally:
        os.close(fd)


def read_memory(path: str, limit: int) -> bytes | None:
    """:func:`read_file` of one such as ``/proc/PID/cmdline``; None too where it keeps its reader waiting."""
    return read_each((path,), limit)[0]


def read_each(paths: Sequence[str], limit: int) -> list[bytes | None]:
    """:func:`read_memory` of each, with one thread for all of them that can be read. Takes ``PATIENCE`` seconds for the
    first that cannot, and less for each further one."""
    found: dict[str, bytes | None] = dict.fromkeys(paths)
    rest, patience = [path for path in found if os.path.dirname(path) not in _waits], PATIENCE
    while rest:
        order = _Order(rest, limit)
        reader = _reader()
        reader.take(order)
        order.wait(reader, patience)
        found.update(zip(rest, order.read, strict=False))
        rest, patience = rest[len(order.read) + 1 :], _AGAIN
    return [found[path] for path in paths]


def keepers() -> list[int]:
    """The processes here whose memory keeps whoever reads it waiting: so waits all that takes the lock it lies in."""
    folders = {f"/proc/{name}" for name in os.listdir("/proc") if name.isdecimal()}
    read_each([f"{folder}/cmdline" for folder in folders], 1)
    with _lock:
        return sorted(int(os.path.basename(folder)) for folder in folders & _waits)


class _Order:
    """Paths to read, in their order."""

    def __init__(self, paths: Sequence[str], limit: int) -> None:
        self.paths = paths
        self.limit = limit
        self.read: Sequence[bytes | None] = ()
        """What was read of the first ones; of the one behind them its reader is left waiting, where there is one."""
        self.so_far: list[bytes | None] = []
        self.left: str | None = None
        """The folder of that one."""
        self.over: SimpleQueue[None] = SimpleQueue()

    def wait(self, reader: _Reader, patience: float) -> None:
        """Until it is read, or nothing has come of it for so long."""
        at, since, free = 0, time.monotonic(), 0.0
        while True:
            with contextlib.suppress(Empty):
                self.over.get(timeout=_LOOK)
                self.read = self.so_far
                return
            now = time.monotonic()
            if len(self.so_far) != at:
                at, since = len(self.so_far), now
            elif not reader.kept():
                free = now
            if now - max(since, free) < patience and now - since < _AT_MOST:
                continue
            with _lock:
                if len(self.so_far) == at < len(self.paths):
                    self.read, self.left = self.so_far[:at], os.path.dirname(self.paths[at])
                    _waits.add(self.left)
                    return


class _Reader:
    """A thread that reads one order after the other."""

    def __init__(self) -> None:
        self._orders: SimpleQueue[_Order] = SimpleQueue()
        self._id = 0
        threading.Thread(target=self._run, name="reads memory", daemon=True).start()

    def take(self, order: _Order) -> None:
        self._orders.put(order)

    def kept(self) -> bool:
        """Whether it is the kernel that keeps it."""
        stat = read_file(f"/proc/self/task/{self._id}/stat", 4096) or b""
        return stat.rpartition(b") ")[2][:1] == b"D"

    def _run(self) -> None:
        self._id = threading.get_native_id()
        while True:
            order = self._orders.get()
            for path in order.paths:
                read = read_file(path, order.limit)
                with _lock:
                    order.so_far.append(read)
                    if order.left is not None:
                        _waits.discard(order.left)
                        break
            with _lock:
                _idle.append(self)
            order.over.put(None)


_lock = threading.Lock()
_idle: list[_Reader] = []
_waits: set[str] = set()
"""The folders of those whose memory a reader waits for."""


def _reader() -> _Reader:
    with _lock:
        if _idle:
            return _idle.pop()
    return _Reader()


def _forget() -> None:
    """In a child the threads are no more."""
    global _lock
    _lock = threading.Lock()
    _idle.clear()
    _waits.clear()


os.register_at_fork(after_in_child=_forget)
