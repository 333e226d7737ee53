"""Processes that asyncio is starting: none is cancelled half-way, and an event loop's end waits for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from subprocess import SubprocessError
from typing import Any, Final, TypeVar

T = TypeVar("T")

_starts: Final[set[asyncio.Future[Any]]] = set()


async def started(start: Coroutine[Any, Any, T], leave: Callable[[T], Awaitable[object]]) -> T:
    """What ``start`` gives; where this is cancelled, ``leave`` is given it once it is there. Raises what ``start``
    raises.

    Not cancelled half-way: asyncio would reap the child twice then, and say so on the user's terminal.
    """
    starting = asyncio.ensure_future(start)
    _starts.add(starting)
    starting.add_done_callback(_starts.discard)
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await _outlast({starting})
        with suppress(OSError, ValueError, SubprocessError, asyncio.CancelledError):
            await leave(starting.result())
        raise


async def done() -> None:
    """Wait until no process is half started in this loop; that takes a moment.

    Whoever cancels all tasks of a loop, as the end of ``asyncio.run`` does, waits for this first: before Python 3.12
    asyncio waits for ever for a process whose start is cancelled together with what connects its pipes.
    """
    loop = asyncio.get_running_loop()
    cancelled = False
    while starts := {start for start in _starts if not start.done() and start.get_loop() is loop}:
        cancelled |= await _outlast(starts)
    if cancelled:
        raise asyncio.CancelledError


async def _outlast(starts: set[asyncio.Future[Any]]) -> bool:
    """Until all are done, however often this is cancelled, as nobody else knows the processes; whether it was."""
    cancelled = False
    while not all(start.done() for start in starts):
        try:
            await asyncio.wait(starts)
        except asyncio.CancelledError:
            cancelled = True
    return cancelled
