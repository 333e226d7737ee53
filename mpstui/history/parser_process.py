"""A large log is parsed by a process of its own, ahead of the reader of its events, who has enough to do with them."""

from __future__ import annotations

import contextlib
import fcntl
import marshal
import os
import pickle
import signal
import threading
from collections.abc import Iterator
from itertools import chain, islice, repeat
from typing import Any, BinaryIO, Final

from mpstui.control.grammar import LogParser
from mpstui.core.model import EMPTY, Event, event_of
from mpstui.history.files import LogFile

LARGE: Final = 16 << 20
"""Bytes from which on a process of its own is worth its start."""
_LENGTH: Final = 4
"""Bytes of a piece's length."""
_FORMAT: Final = 2
"""Of marshal: what comes after it looks for each object among those that it has written."""
_PIECE: Final = 500
"""Events sent at a time."""
_AHEAD: Final = 1 << 20
"""Bytes of events that wait for their reader at most."""
_VALUES: Final = Event._fields.index("values")
"""What stands before it in an event comes from the log, what stands behind it from elsewhere."""
_REST: Final = tuple(map(repeat, Event("unknown")[_VALUES:]))


def parsed(file: LogFile, start: int, parser: LogParser) -> Iterator[list[Event]]:
    """The events of the log from ``start`` on, in order and some at a time; ``parser`` has then read all of it.

    The other process is ended with this iterator, and by the kernel with this process. Where there can be none (one
    core, other threads, no memory), and from where it was killed on, the log is parsed here.
    """
    told = 0
    if _worthwhile(file.size - start):
        with contextlib.suppress(OSError, EOFError):
            for piece in _pieces(file, start, parser):
                told += len(piece)
                yield piece
            return
    for piece in map(parser.feed_all, file.blocks(start)):
        yield piece[told:]
        told = max(0, told - len(piece))


def _worthwhile(size: int) -> bool:
    return size >= LARGE and len(os.sched_getaffinity(0)) > 1 and threading.active_count() == 1


def _pieces(file: LogFile, start: int, parser: LogParser) -> Iterator[list[Event]]:
    """What the other process sends; raises OSError or EOFError where that ends too early."""
    reading, writing = os.pipe()
    with open(reading, "rb") as pipe:
        try:
            with contextlib.suppress(OSError):
                fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _AHEAD)
            parent, child = os.getpid(), os.fork()
            if child == 0:
                _send(file, start, parser, parent, writing)
        finally:
            os.close(writing)
        try:
            while isinstance(piece := _received(pipe), tuple):
                yield _events(*piece)
            parser.become(pickle.loads(piece))  # noqa: S301 - as above
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _send(file: LogFile, start: int, parser: LogParser, parent: int, writing: int) -> None:
    """The other process; does not return."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it too, and ends this
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        from mpstui.system.parent import end_with_parent

        if end_with_parent(parent, signal.SIGKILL):
            with open(writing, "wb") as pipe:
                events = chain.from_iterable(map(parser.feed_all, file.blocks(start)))
                while piece := list(islice(events, _PIECE)):
                    _send_piece(pipe, _columns(piece))
                _send_piece(pipe, pickle.dumps(parser))
    finally:
        os._exit(0)


def _send_piece(pipe: BinaryIO, piece: Any) -> None:
    data = marshal.dumps(piece, _FORMAT)
    pipe.write(len(data).to_bytes(_LENGTH, "big") + data)


def _received(pipe: BinaryIO) -> Any:
    """A piece. Read whole first: ``marshal.load`` asks the file for each number and each string by itself, which was
    half of what a reader's processor time was spent on. Raises EOFError where the other process has ended."""
    length = int.from_bytes(pipe.read(_LENGTH), "big")
    data = pipe.read(length)
    if not length or len(data) < length:
        raise EOFError
    return marshal.loads(data)  # noqa: S302 - this program has written it


def _columns(events: list[Event]) -> tuple[list[tuple[Any, ...]], dict[int, dict[str, str]]]:
    """What the log tells of the events, field by field: half of what it takes to send them one by one. Few have
    values: those have their numbers."""
    *told, values = islice(zip(*events, strict=True), _VALUES + 1)
    return told, {number: dict(each) for number, each in enumerate(values) if each is not EMPTY}


def _events(told: list[tuple[Any, ...]], values: dict[int, dict[str, str]]) -> list[Event]:
    """The other way."""
    events = list(map(event_of, zip(*told, *_REST, strict=False)))
    for number, each in values.items():
        events[number] = events[number]._replace(values=each)
    return events
