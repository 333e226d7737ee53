"""What the screen's load panel runs on: supervisors of CUDA workers, or of simulated ones on a simulated node."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

# Imported when the load panel needs them: the overview is painted without.
if TYPE_CHECKING:
    from mpstui.load.supervisor import Supervisor
    from mpstui.observe.sources import NodeSources
    from mpstui.operations.load import OperatedLoad
    from mpstui.operations.operation import Executes


class NodeLoad:
    """The load of one node; see ``mpstui.ui.load.contract.LoadBackend``."""

    def __init__(self, sources: NodeSources, pipe_dirs: Sequence[Path], runner: Executes) -> None:
        self._runner = runner
        self._sources = sources
        self._pipe_dirs = tuple(pipe_dirs)

    @property
    def simulated(self) -> bool:
        return self._sources.simulated

    def supervisor(self, pipe_dir: Path | None) -> OperatedLoad:
        """Workers of the daemon in ``pipe_dir``, started and ended through the runner; None: without MPS."""
        from mpstui.operations.load import OperatedLoad

        return OperatedLoad(self._workers(pipe_dir), self._runner, pipe_dir)

    def _workers(self, pipe_dir: Path | None) -> Supervisor:
        from mpstui.load.supervisor import Supervisor

        if not self._sources.simulated:
            return Supervisor(nvml=self._sources.nvml)
        from mpstui.sim.load import worker_command

        node = pipe_dir or self._pipe_dirs[0]
        return Supervisor(worker_command=worker_command(node), simulated=True, nvml=self._sources.nvml)

    @asynccontextmanager
    async def private_daemon(self) -> AsyncIterator[Path]:
        """A daemon of its own, by its pipe directory. Raises LoadUnavailable."""
        from mpstui.load.private import PrivateDaemon, PrivateDaemonError
        from mpstui.ui.load.contract import LoadUnavailable

        try:
            async with PrivateDaemon(self._sources.control_binary) as daemon:
                yield daemon.pipe_dir
        except PrivateDaemonError as error:
            raise LoadUnavailable(str(error), "check nvidia-cuda-mps-control by hand, and free disk") from None

    def levels(self, sm_count: int, count: int, step: int, floor: int) -> tuple[int, ...]:
        """See ``mpstui.load.supervisor.even_levels``."""
        from mpstui.load.supervisor import even_levels

        return even_levels(sm_count, count, step, floor)
