"""What the daemon screen needs of whoever runs commands: what a wish comes to, start and stop."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from mpstui.core.model import Daemon, Device
from mpstui.daemons.spec import DaemonSpec, Wish
from mpstui.operations.types import Progress, Result
from mpstui.plan.profile import Profile


class DaemonBackend(Protocol):
    """Starts and stops daemons; refuses where mpstui is read-only, whatever the screen offers."""

    @property
    def cannot_start(self) -> str | None:
        """Why no daemon can be started from here, in words."""

    def specs(self, wish: Wish, devices: Sequence[Device]) -> tuple[DaemonSpec, ...]:
        """The daemons that a wish comes to. Raises PlanError."""

    def specs_of_profile(self, profile: Profile) -> tuple[DaemonSpec, ...]:
        """The daemons that a profile describes."""

    def command(self, spec: DaemonSpec) -> str:
        """What would be run, for a person to read."""

    async def start(self, spec: DaemonSpec, progress: Progress) -> Result: ...

    async def stop(self, daemon: Daemon, *, timeout: int | None, force: bool, progress: Progress) -> Result: ...

    def watch(self, pipe_dir: Path) -> None:
        """Have the daemon there come onto the screen."""
