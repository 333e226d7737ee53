"""Operations on daemons, carried out as the command line and the screen do: through the runner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from mpstui.control.channel import ControlChannel
from mpstui.control.commandline import patience
from mpstui.control.mps import MpsControl
from mpstui.core.model import Daemon, Snapshot
from mpstui.core.trust import Speaker
from mpstui.daemons.spec import DaemonSpec, Started
from mpstui.operations.audit import AuditLog
from mpstui.operations.daemons import StartDaemon, StopDaemon
from mpstui.operations.runner import OperationRunner
from mpstui.operations.types import Result


@dataclass
class OneControl:
    """A node with one control channel."""

    control: MpsControl
    snapshot: Snapshot | None = None

    def control_for(self, pipe_dir: Path) -> MpsControl:
        return self.control

    def request_refresh(self, pipe_dir: Path | None = None) -> None:
        return

    def heard(self, pipe_dir: Path) -> Snapshot | None:
        return self.snapshot

    def changed(self, pipe_dir: Path) -> None:
        return


async def start(
    spec: DaemonSpec,
    binary: tuple[str, ...],
    audit: AuditLog,
    *,
    read_only: bool = False,
    deadline: float | None = None,
) -> Started:
    """The daemon that was started, or what came of it."""
    node = OneControl(MpsControl(ControlChannel(spec.pipe_dir, binary)))
    runner = OperationRunner(node, audit, read_only=read_only)
    with patch("mpstui.daemons.start.patience", (lambda _: deadline) if deadline is not None else patience):
        result = await runner.execute(StartDaemon().request(spec), Snapshot(0.0))
    if isinstance(result.outcome, Started):
        return result.outcome
    return Started(spec, result.status, result.message, details=result.details)


async def stop(
    daemon: Daemon,
    control: MpsControl,
    audit: AuditLog,
    *,
    timeout: int | None = None,
    force: bool = False,
    read_only: bool = False,
    progress: Callable[[str], None] = lambda text: None,
    speaker: Callable[[Path], Speaker] | None = None,
) -> Result:
    runner = OperationRunner(OneControl(control), audit, read_only=read_only, speaker=speaker)
    snapshot = Snapshot(0.0, daemons=(daemon,))
    return await runner.execute(StopDaemon().request(daemon, timeout, force=force), snapshot, progress)
