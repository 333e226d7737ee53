"""What the panel needs of whoever starts workers: a supervisor, a private daemon, and the shares of a pool."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from mpstui.core.model import Snapshot
from mpstui.operations.load import Workers


class LoadSupervisor(Workers, Protocol):
    """Workers, and what the panel tells of them besides."""

    trouble: str
    """What was wrong though it was started: that the audit line could not be written; empty where nothing was."""


class LoadBackend(Protocol):
    """Real workers, or simulated ones on a simulated node."""

    @property
    def simulated(self) -> bool: ...

    def supervisor(self, pipe_dir: Path | None, asked: Snapshot, /) -> LoadSupervisor:
        """A fresh one for workers of the daemon in ``pipe_dir``, as it is in ``asked``; None: without MPS."""

    def private_daemon(self) -> AbstractAsyncContextManager[Path]:
        """A daemon of its own, by its pipe directory, gone at the end. Raises Unavailable."""
