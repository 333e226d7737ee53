"""What the plan screen needs of whoever opens files: the profiles, a client's environment, what is in force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from mpstui.core.late import dataclass
from mpstui.core.model import ProcessKey, Snapshot
from mpstui.plan.profile import Profile


@dataclass(frozen=True, slots=True)
class Entry:
    """A profile of the config folder; without ``profile`` it cannot be read, and ``problem`` says why."""

    name: str
    profile: Profile | None = None
    problem: str = ""


class PlanBackend(Protocol):
    """Files and processes. Every method reads or writes, and is awaited: nothing of it runs on the event loop."""

    async def profiles(self) -> Sequence[Entry]:
        """All that are there, by name. Raises ProfileError where the folder cannot be read."""

    async def save(self, name: str, profile: Profile, *, replace: bool) -> Path:
        """Keep a profile. Raises ProfileError."""

    async def in_force(self, snapshot: Snapshot, pipe_dir: Path, old: Profile | None) -> Profile:
        """What a daemon has now, as a profile with the shares of ``old``. Raises ProfileError."""

    async def environment(self, key: ProcessKey) -> Mapping[str, str] | None:
        """The CUDA_* variables a client was started with; None where they may not be read."""
