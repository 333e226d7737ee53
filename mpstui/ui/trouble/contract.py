"""What the screens of trouble need of whoever reads logs and checks the set-up; both may block, so both are awaited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from mpstui.core.model import Daemon, LogEvents, Snapshot

if TYPE_CHECKING:  # the overview is painted without
    from mpstui.doctor.types import Finding
    from mpstui.doctor.why import Diagnosis


class TroubleBackend(Protocol):
    """Reads what the snapshot does not hold."""

    async def older_events(self, daemon: Daemon, before: float, most: int, /) -> LogEvents:
        """The last ``most`` events of the daemon's logs up to ``before`` (seconds since the epoch); some of them may
        be in the snapshot too. None where the logs begin later. Raises Unavailable.
        """

    async def faults(self, daemon: Daemon, /) -> LogEvents:
        """Every fatal fault in the daemon's logs. Raises Unavailable."""

    async def why(self, pid: int, snapshot: Snapshot, /) -> Diagnosis | None:
        """Why a process is no client of MPS, by what it sees itself; None where it is gone. Raises
        Unavailable."""

    async def findings(self, snapshot: Snapshot, /) -> Sequence[Finding]:
        """The check-up of the set-up, the worst finding first. Raises Unavailable."""
