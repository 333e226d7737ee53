"""One owned thread for calls that may block for ever: a hung driver must stop neither the event loop nor the exit."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

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
