"""What the plan and daemon screens run on: the profiles' folder, /proc, and daemons started and stopped."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mpstui.core.text import path_text

# Imported when a screen needs them: the overview is painted without.
if TYPE_CHECKING:
    from mpstui.api import AsyncNode, Runner
    from mpstui.core.model import Daemon, Device, Snapshot
    from mpstui.daemons.spec import DaemonSpec, Wish
    from mpstui.operations.types import Progress, Result
    from mpstui.plan.profile import Profile
    from mpstui.ui.plan.contract import Entry

_OWN = "the demo has one simulated daemon; no second one can be started in it"


class NodePlans:
    """See ``mpstui.ui.plan.contract.PlanBackend``."""

    def __init__(self, node: AsyncNode) -> None:
        self._node = node
        self.environment = node.environment

    async def profiles(self) -> Sequence[Entry]:
        """All that are there, broken ones with what is wrong."""
        return await asyncio.to_thread(_entries)

    async def save(self, name: str, profile: Profile, *, replace: bool) -> Path:
        """Keep a profile. Raises ProfileError."""
        from mpstui.plan import store

        return await asyncio.to_thread(lambda: store.write(name, profile, replace=replace))

    async def in_force(self, snapshot: Snapshot, pipe_dir: Path, old: Profile | None) -> Profile:
        """What a daemon has now. Raises ProfileError."""
        from mpstui.plan.profile import Profile, ProfileError

        daemon = snapshot.daemon(pipe_dir)
        if daemon is None:
            raise ProfileError(f"the daemon in {path_text(pipe_dir)} is gone")
        return Profile((await self._node.in_force(daemon, snapshot, old),))


def _entries() -> tuple[Entry, ...]:
    from mpstui.plan import store
    from mpstui.plan.profile import ProfileError
    from mpstui.ui.plan.contract import Entry

    found = []
    for name in store.names():
        try:
            found.append(Entry(name, store.read(name)[0]))
        except ProfileError as error:
            found.append(Entry(name, problem=str(error)))
    return tuple(found)


class NodeDaemons:
    """See ``mpstui.ui.daemons.contract.DaemonBackend``."""

    def __init__(
        self,
        program: str,
        runner: Runner,
        pipe_dirs: Sequence[Path],
        *,
        demo: bool,
        gone: Callable[[], bool] = lambda: False,
        watch: Callable[[Path], None] = lambda pipe_dir: None,
    ) -> None:
        """``pipe_dirs``: those that are watched; empty where daemons are found by themselves. ``gone``: whether the
        demo's own daemon is; that one may be started again. ``watch``: takes one more directory in.
        """
        self._program = program
        self._runner = runner
        self._pipe_dirs = tuple(pipe_dirs)
        self._demo = demo
        self._gone = gone
        self._watch = watch

    @property
    def cannot_start(self) -> str | None:
        """A daemon outlives mpstui, and a demo's node does not."""
        from mpstui.core.model import Snapshot
        from mpstui.operations.daemons import StartDaemon

        if (refused := self._runner.unavailable(StartDaemon(), Snapshot(0.0), Path())) is not None:
            return refused
        return _OWN if self._demo and not self._gone() else None

    def specs(self, wish: Wish, devices: Sequence[Device]) -> tuple[DaemonSpec, ...]:
        """The daemons that a wish comes to. Raises PlanError."""
        from mpstui.daemons.spec import specs_of

        return specs_of(wish, devices, os.environ, root=os.geteuid() == 0)

    def specs_of_profile(self, profile: Profile) -> tuple[DaemonSpec, ...]:
        """The daemons that a profile describes."""
        from mpstui.daemons.spec import spec_of_profile

        return tuple(spec_of_profile(one, os.environ) for one in profile.daemons)

    def command(self, spec: DaemonSpec) -> str:
        """As one would type it."""
        import shlex

        from mpstui.plan.cpus import cpu_text

        words = [
            f"CUDA_MPS_PIPE_DIRECTORY={path_text(spec.pipe_dir)}",
            f"CUDA_MPS_LOG_DIRECTORY={path_text(spec.log_dir)}",
        ]
        if spec.devices:
            words.append(f"CUDA_VISIBLE_DEVICES={','.join(spec.devices)}")
        if spec.cpus is not None:
            words += ["taskset", "-c", cpu_text(spec.cpus)]
        words += [self._program, "-d", *spec.options]
        return " ".join(shlex.quote(word) for word in words)

    async def start(self, spec: DaemonSpec, progress: Progress) -> Result:
        """Through the runner, as every change; a demo's rule comes before it."""
        from mpstui.core.model import Snapshot
        from mpstui.operations.daemons import StartDaemon
        from mpstui.operations.types import ExitStatus

        request = StartDaemon().request(spec)
        refused = self.cannot_start or (_OWN if self._demo and spec.pipe_dir not in self._pipe_dirs else None)
        if refused is not None:
            return self._runner.refuse(request, refused, ExitStatus.REFUSED_BY_SAFETY_RULE)
        return await self._runner.execute(request, Snapshot(0.0), progress)

    async def stop(self, daemon: Daemon, *, timeout: int | None, force: bool, progress: Progress) -> Result:
        """Through the runner, and so through the daemon's one control channel."""
        from mpstui.core.model import Snapshot
        from mpstui.operations.daemons import StopDaemon

        request = StopDaemon().request(daemon, timeout, force=force)
        return await self._runner.execute(request, Snapshot(0.0, daemons=(daemon,)), progress)

    def watch(self, pipe_dir: Path) -> None:
        """Have the daemon there come onto the screen, whichever directories it was started for."""
        self._watch(pipe_dir)
