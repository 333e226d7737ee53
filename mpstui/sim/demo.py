"""The directory of a ``--demo``: made for it, locked while its owner lives, and removed by him, by the simulated
node where he was killed, or by the next demo.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import re
import shutil
import signal
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from mpstui.sim.marker import owners
from mpstui.sim.node import LOGS, SimNode
from mpstui.sim.simd.config import MARKER
from mpstui.system.own import temporary_place
from mpstui.system.trusted import NotTrustedError, judge_directory

_PREFIX: Final = "mpstui-demo-"
_NAME: Final = re.compile(rf"{_PREFIX}[a-z0-9_]{{8}}")
"""As tempfile makes it: a directory that a person has called so is not one of these."""
_UNWRITTEN: Final = re.compile(rf"\.{re.escape(MARKER)}\.[0-9]+")
"""The marker, while it is written."""
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MOST: Final = 100
"""That are looked at in one start."""


@contextlib.contextmanager
def held_back() -> Iterator[Callable[[], None]]:
    """What would end this process waits until it is called what is given here, or to the end of the block: whatever is
    made before that has somebody who removes it."""
    came: list[int] = []
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in _ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                before[number] = signal.signal(number, lambda number, _frame: came.append(number))

    def release() -> None:
        while before:
            signal.signal(*before.popitem())
        while came:
            os.kill(os.getpid(), came.pop())

    try:
        yield release
    finally:
        release()


@contextlib.contextmanager
def demo_directory() -> Iterator[Path]:
    """A directory for a demo, of this user alone. It is removed at the end, and what killed ones left before that."""
    remove_left()
    folder, lock = _make()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_left() -> None:
    """Removes the directories of this user's demos whose owner is gone; never waits and never fails.

    The owner holds the lock of the directory itself, which ends with its process, however that ends. Only a directory
    of this user's that nobody else can look into counts, with a demo's name and marker in it; no link is followed.
    """
    with contextlib.suppress(OSError, NotTrustedError):
        place = Path(temporary_place())
        judge_directory(place, owners())  # elsewhere somebody could put another directory under the name
        names = [name for name in os.listdir(place) if _NAME.fullmatch(name)]
        for name in itertools.islice((name for name in names if _is_mine(place / name)), _MOST):
            with contextlib.suppress(OSError):
                _remove(place / name)


def _make() -> tuple[Path, int]:
    """The directory, and the descriptor that holds its lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=temporary_place()))
        # Another start may take it for one that was left before it is locked: then it is gone, and so is the lock.
        try:
            lock = _open(folder)
        except FileNotFoundError:
            continue
        with contextlib.suppress(OSError):  # on a file system without locks nothing is ever taken for left
            fcntl.flock(lock, fcntl.LOCK_EX)
        if _is(folder, lock):
            return folder, lock
        os.close(lock)


def _remove(folder: Path) -> None:
    lock = _open(folder)
    try:
        found = os.fstat(lock)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != stat.S_IRWXU:
            return
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        names = os.listdir(lock)
        if not _is_demo_s(folder, names) or (names and SimNode(folder, folder).daemon_pid is not None):
            return  # a person's; or an owner of before there was a lock lives
        if _is(folder, lock):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _is_demo_s(folder: Path, names: Sequence[str]) -> bool:
    """Whether it has the marker, or nothing but what there is before that: an empty folder for the logs, and the marker
    while it is written."""
    if MARKER in names:
        return True
    files = [name for name in names if name != LOGS]
    empty = len(files) == len(names) or not os.listdir(folder / LOGS)
    return empty and all(_UNWRITTEN.fullmatch(name) and (folder / name).is_file() for name in files)


def _is_mine(folder: Path) -> bool:
    try:
        return os.lstat(folder).st_uid == os.geteuid()
    except OSError:
        return False


def _open(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _is(folder: Path, descriptor: int) -> bool:
    """Whether the name still is that of the open directory."""
    try:
        return os.path.samestat(os.lstat(folder), os.fstat(descriptor))
    except FileNotFoundError:
        return False
