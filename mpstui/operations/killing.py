"""Ends one process for good: SIGTERM, grace, SIGKILL, through a pidfd so that no other process can be hit."""

from __future__ import annotations

import signal
from collections.abc import Callable

from mpstui.observe.procfs import PidFd
from mpstui.operations.types import ExitStatus, Progress

AFTER_KILL = 5.0
"""Seconds that a process may take to go after SIGKILL: the driver frees its memory first."""


async def end_process(
    process: PidFd,
    grace: float,
    progress: Progress,
    forbidden: Callable[[PidFd], str | None],
    *,
    kill: bool = True,
) -> tuple[ExitStatus, str]:
    """``grace`` is in seconds. The text says how it ended, or why it has not. ``forbidden`` is asked right before each
    signal, for a reason not to send it. Without ``kill`` SIGTERM is all that it gets."""
    pid = process.key.pid
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, AFTER_KILL))[: 1 + kill]:
        if (reason := forbidden(process)) is not None:
            if await process.wait(0):
                return ExitStatus.DONE, "it had ended already"
            return ExitStatus.REFUSED_BY_SAFETY_RULE, f"the process lives: {reason}"
        progress(f"{number.name} {pid}")
        if trouble := process.send(number):
            status = ExitStatus.NOT_PERMITTED if trouble.not_permitted else ExitStatus.REFUSED_BY_SAFETY_RULE
            return status, f"the process lives: {trouble.message}"
        if await process.wait(patience):
            return ExitStatus.DONE, f"ended by {number.name}"
    return ExitStatus.NO_ANSWER, f"the process is still there {patience:.0f} s after {number.name}"
