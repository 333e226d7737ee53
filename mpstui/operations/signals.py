"""Signals: whether a process may be sent one on a daemon's word, by what the kernel says at that moment, and its end by
SIGTERM, grace and SIGKILL, through a pidfd so that no other process can be hit."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

from mpstui.core.trust import Speaker, may_signal, why_not
from mpstui.observe.discovery import steady_speaker
from mpstui.operations.lock import make_ready
from mpstui.operations.types import ExitStatus, Progress
from mpstui.system.procfs import PidFd, user_name


class Guard:
    """Holds what was known of the daemon before anything was asked. Called with a process right before each signal, it
    answers why that one may not be signalled; None where it may."""

    def __init__(
        self,
        pipe_dir: Path,
        speaker: Speaker,
        find: Callable[[Path], Speaker],
        named: int | None = None,
        *,
        has_servers_there: bool = False,
    ) -> None:
        """``has_servers_there``: the daemon itself makes and removes its servers' directories in its own meanwhile."""
        self.speaker = speaker
        self._has_servers_there = has_servers_there
        self._pipe_dir = pipe_dir
        self._find = find
        self._named = named

    @classmethod
    async def begin(
        cls,
        pipe_dir: Path,
        find: Callable[[Path], Speaker],
        named: int | None = None,
        *,
        has_servers_there: bool = False,
    ) -> Guard:
        """``named`` is the user whose process it is, as the admin has typed: that one is enough without the daemon."""
        speaker = await asyncio.to_thread(_begun, pipe_dir, find)
        return cls(pipe_dir, speaker, find, named, has_servers_there=has_servers_there)

    def __call__(self, process: PidFd) -> str | None:
        uids = process.uids()
        if not uids:
            return f"the owner of process {process.key.pid} cannot be read"
        if self._named is not None and set(uids) == {self._named}:
            return None
        owner = " and ".join(user_name(uid) for uid in sorted(uids))
        if not may_signal(self.speaker, uids):
            return why_not(self.speaker, process.key.pid, owner)
        before, now = self.speaker, self._find(self._pipe_dir)
        if self._has_servers_there:
            before, now = before.without_times, now.without_times
        if now != before:
            return "the daemon's directory has changed, so mpstui does not know which daemon answered"
        return None


def _begun(pipe_dir: Path, find: Callable[[Path], Speaker]) -> Speaker:
    make_ready(pipe_dir, find(pipe_dir))
    return steady_speaker(pipe_dir, find)


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
