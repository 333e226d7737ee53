"""What a script on a GPU machine started ends with it, however it ends: a client that is left holds the device, and
makes every later measurement wrong."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Coroutine, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn, TypeVar

sys.path.insert(0, os.fspath(Path(__file__).resolve().parents[2]))

from mpstui.system.procfs import read_proc

T = TypeVar("T")

TAG: Final = "GPU_SCRIPT_TAG"
"""In the environment of all that a script starts, and so in that of daemons and servers too."""
SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
GRACE: Final = int(os.environ.get("GPU_SCRIPT_GRACE", "20"))
"""Seconds for the way out; then the script is ended as it stands, and what it started by its guard."""
_PATIENCE: Final = 10.0


class Ended(SystemExit):
    """A signal has ended the script: what it had opened is closed on the way out."""


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """A signal becomes ``Ended`` within; behind it, and after a kill -9 too, no process is left that was started
    within, in whatever session it is."""
    tag = os.environ.get(TAG)
    if tag is not None:  # a part of a script that looks after it
        for number in SIGNALS:
            signal.signal(number, _end)
        yield
        return
    tag = os.environ[TAG] = uuid.uuid4().hex
    guard = subprocess.Popen(
        [sys.executable, __file__, tag, str(os.getpid())],
        stdin=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != TAG},
        start_new_session=True,
    )
    try:
        for number in SIGNALS:
            signal.signal(number, _end)
        yield
    finally:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        guard.communicate(b"done", 60)


def _last() -> None:
    """No further signal, and only so long for the way out."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(GRACE)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    _last()
    raise Ended(128 + number)


def run_to_its_end(main: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run`` in such a script: a signal cancels ``main`` alone, so that what it awaits on its way out (its
    workers' last words, say) goes on until it is out. An exception out of the loop would cancel that too."""
    ended: list[int] = []

    async def led() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(main)

        def end(number: int, frame: FrameType | None) -> None:
            _last()
            ended.append(number)
            loop.call_soon_threadsafe(task.cancel)

        for number in SIGNALS:
            signal.signal(number, end)
        return await task

    try:
        return asyncio.run(led())
    except asyncio.CancelledError:
        if ended:
            raise Ended(128 + ended[0]) from None
        raise
    finally:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN if ended else _end)


def tagged(tag: str, but: int) -> list[int]:
    """PIDs of processes with this tag, without zombies and without ``but``."""
    needle, found = f"{TAG}={tag}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != but:
            with contextlib.suppress(OSError, IndexError):
                state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
                if state != b"Z" and needle in (read_proc(f"{entry}/environ") or b"").split(b"\0"):
                    found.append(int(entry.name))
    return found


def sweep(tag: str, but: int) -> None:
    """End them all; again, as one may start another meanwhile."""
    end = time.monotonic() + _PATIENCE
    while (left := tagged(tag, but)) and time.monotonic() < end:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        select.select([], [], [], 0.05)


def _guard(tag: str, script: int) -> None:
    """Wait until the script is gone, or says that it is done."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    os.read(0, 1)
    sweep(tag, script)


if __name__ == "__main__":
    _guard(sys.argv[1], int(sys.argv[2]))
