"""Whether a process may be signalled on a daemon's word, by what the kernel says at the moment of the signal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mpstui.core.trust import Speaker, may_signal, why_not
from mpstui.observe.discovery import settled
from mpstui.observe.procfs import PidFd, user_name

_TRIES: Final = 20
_PAUSE: Final = 0.05
"""Seconds; a directory that was changed just now is looked at again, so that the next change is seen."""


class Guard:
    """Holds what was known of the daemon before anything was asked. Called with a process right before each signal, it
    answers why that one may not be signalled; None where it may."""

    def __init__(
        self, pipe_dir: Path, speaker: Speaker, find: Callable[[Path], Speaker], named: int | None = None
    ) -> None:
        self.speaker = speaker
        self._pipe_dir = pipe_dir
        self._find = find
        self._named = named

    @classmethod
    async def begin(cls, pipe_dir: Path, find: Callable[[Path], Speaker], named: int | None = None) -> Guard:
        """``named`` is the user whose process it is, as the admin has typed: that one is enough without the daemon."""
        speaker = find(pipe_dir)
        for _ in range(_TRIES):
            if settled(speaker):
                return cls(pipe_dir, speaker, find, named)
            await asyncio.sleep(_PAUSE)
            speaker = find(pipe_dir)
        why = "its directory, which others may write to, is being changed all the time"
        return cls(pipe_dir, Speaker(None, why, speaker.stamp), find, named)

    def __call__(self, process: PidFd) -> str | None:
        uids = process.uids()
        if not uids:
            return f"whose process {process.key.pid} is cannot be seen"
        if self._named is not None and set(uids) == {self._named}:
            return None
        owner = " and ".join(user_name(uid) for uid in sorted(uids))
        if not may_signal(self.speaker, uids):
            return why_not(self.speaker, process.key.pid, owner)
        if self._find(self._pipe_dir) != self.speaker:
            return "somebody has changed the daemon's directory meanwhile, so who has answered is not known"
        return None
