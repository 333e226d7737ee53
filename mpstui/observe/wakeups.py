"""What wakes the watcher: a log was written to, a process ended, a call that may block for ever has answered."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, Protocol, TypeVar, cast

# One owned thread for calls that may block for ever: a hung driver must stop neither the event loop nor the exit.


T = TypeVar("T")
_Job = Callable[[], None]


class Worker:
    """Runs calls one after the other in a daemon thread. While one of them hangs, the later ones wait with it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """The answer of ``function``, or its exception, as a future of the running loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if self._thread is None:
            self._thread = threading.Thread(target=_run, args=(self._jobs,), name=self._name, daemon=True)
            self._thread.start()

        def job() -> None:
            try:
                result, error = function(), None
            except Exception as raised:  # handed to whoever asked
                result, error = None, raised
            with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
                loop.call_soon_threadsafe(_settle, future, result, error)

        self._jobs.put(job)
        return future

    def close(self, last: Callable[[], None] | None = None) -> None:
        """Ends the thread after ``last``, without waiting for it; a later call begins a new one."""
        if self._thread is None:
            return
        jobs, self._jobs, self._thread = self._jobs, SimpleQueue(), None
        if last is not None:
            jobs.put(last)
        jobs.put(None)


def _run(jobs: SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        job()


def _settle(future: asyncio.Future[Any], result: object, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


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

    async def open(self, worker: Worker) -> None:
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


# Tells at once when one of a few processes ends, where the kernel has pidfds (Linux 5.3).


class Exits:
    """Calls ``ended`` in the event loop when a watched process ends, each time once. Nothing raises: a process that
    cannot be watched is left to whoever looks at /proc now and then."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._watched: dict[int, int | None] = {}
        """Descriptors by PID; None for a process that has ended, which is told once."""

    def watch(self, pids: Collection[int]) -> None:
        """From now on these processes and no others. Costs two system calls for each that is new."""
        for pid in [pid for pid in self._watched if pid not in pids]:
            self._forget(pid)
        for pid in pids:
            if pid not in self._watched:
                self._begin(pid)

    def close(self) -> None:
        """Give all descriptors back."""
        self.watch(())

    def _begin(self, pid: int) -> None:
        try:
            fd = os.pidfd_open(pid)
        except (OSError, OverflowError, ValueError, AttributeError):
            return
        try:
            asyncio.get_running_loop().add_reader(fd, self._over, pid)
        except (OSError, NotImplementedError):
            os.close(fd)
        else:
            self._watched[pid] = fd

    def _over(self, pid: int) -> None:
        self._forget(pid)
        self._watched[pid] = None
        self._ended()

    def _forget(self, pid: int) -> None:
        fd = self._watched.pop(pid)
        if fd is not None:
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)
