"""The kernel's tie between a process and its parent: who ends with whom, and whose an orphan becomes."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


def ended_with_us(number: signal.Signals = signal.SIGKILL) -> Callable[[], None]:
    """For ``preexec_fn``: the kernel signals the program that is started when this process ends, however it ends. Made
    before the fork, after which nothing can be loaded."""
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def start() -> None:
        prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)  # it has ended before that was said

    return start


def end_with_parent(parent: int, number: signal.Signals = signal.SIGTERM) -> bool:
    """Have the kernel signal this process when its parent dies; False where ``parent`` is gone already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    return os.getppid() == parent


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that none of them gets away."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
