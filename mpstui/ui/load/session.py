"""The load of one run of the program: its clients with their last minute, and everything that is done to them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final

from mpstui.api import Unavailable
from mpstui.core.late import dataclass
from mpstui.core.model import CONTEXT_LIMIT, Daemon, Device, ProcessKey, Snapshot
from mpstui.core.partition import rounding_for, smallest_percentage, sms_of
from mpstui.load.types import LoadSpec, WorkerReport
from mpstui.operations.load import NotStarted
from mpstui.ui.load.contract import LoadBackend, LoadSupervisor
from mpstui.ui.load.plot import RateHistory
from mpstui.ui.load.setup import LEFT_TO_OTHERS, Setup, groups, pool_of, server_limit
from mpstui.ui.load.share import no_further

BIG_STEP: Final = 4
"""Levels of a pool that Shift moves at once."""


@dataclass(slots=True)
class Member:
    """One client of the load."""

    spec: LoadSpec
    report: WorkerReport
    history: RateHistory = field(default_factory=RateHistory)
    target: int | None = None
    """SMs that were asked for and are not there yet; without a pool those of its next start."""
    stopped: bool = False
    """The user has ended it."""

    @property
    def number(self) -> int:
        return self.report.worker

    @property
    def pooled(self) -> bool:
        """Whether its share moves while it runs."""
        return len(self.report.levels) > 1


class LoadSession:
    """To be used from one event loop. ``subscribe`` tells whether something changed that is to be shown at once."""

    def __init__(self, backend: LoadBackend, clock: Callable[[], float] = time.monotonic) -> None:
        self.backend = backend
        self.clock = clock
        self.message = ""
        """What it is doing, or why it did not."""
        self.failed = False
        """Whether ``message`` is bad news."""
        self.private_dir: Path | None = None
        self.starting = False
        self.ending = False
        self._supervisor: LoadSupervisor | None = None
        self._unsubscribe: Callable[[], None] = _nothing
        self._members: dict[int, Member] = {}
        self._stack = AsyncExitStack()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listeners: list[Callable[[bool], None]] = []
        self._devices: Mapping[str | None, Device] = {}
        self._limits: Mapping[Path, float | None] = {}

    # What there is to see.

    @property
    def members(self) -> tuple[Member, ...]:
        return tuple(self._members.values())

    @property
    def live(self) -> tuple[Member, ...]:
        """Those whose process has not ended for good."""
        return tuple(member for member in self._members.values() if not member.report.over)

    @property
    def busy(self) -> bool:
        """Whether leaving now would leave something behind."""
        return self.starting or bool(self.live) or self.private_dir is not None

    @property
    def keys(self) -> dict[ProcessKey, int]:
        """The load's own processes that live, with their numbers."""
        return {m.report.key: m.number for m in self.live if m.report.key is not None}

    def totals(self) -> dict[str, float]:
        """Throughput of all that run, by unit."""
        sums: dict[str, float] = {}
        for member in self.live:
            report = member.report
            if report.figure is not None and report.unit and report.state in {"running", "stopping"}:
                sums[report.unit] = sums.get(report.unit, 0.0) + report.figure
        return sums

    @property
    def slowest(self) -> float | None:
        """The largest p99 of those that run and get requests, in seconds."""
        found = [m.report.latency_p99 for m in self.live if m.report.latency_p99 is not None]
        return max(found, default=None)

    def means(self) -> dict[str, float]:
        """What those that have ended did on average while they ran, added up by unit."""
        sums: dict[str, float] = {}
        for member in self.members:
            if member.report.over and (mean := member.report.mean) is not None:
                sums[member.report.unit] = sums.get(member.report.unit, 0.0) + mean
        return sums

    def total_sms(self, uuid: str | None) -> int | None:
        """SMs of the whole device: a client under a percentage sees only its part of them."""
        seen = [m.report.device_sms for m in self.members if m.report.device_uuid == uuid]
        known = self._devices.get(uuid)
        return max((sms for sms in (*seen, known.sm_count if known else None) if sms), default=None)

    def index(self, uuid: str | None) -> str:
        """NVML's index of a device; ``?`` where it is not known."""
        device = self._devices.get(uuid)
        return "?" if device is None or device.index is None else str(device.index)

    def subscribe(self, callback: Callable[[bool], None]) -> Callable[[], None]:
        """Have ``callback(at_once)`` called after each change; ``at_once`` is False for a mere new figure."""
        self._listeners.append(callback)

        def unsubscribe() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(callback)

        return unsubscribe

    def _tell(self, at_once: bool = True) -> None:
        for listener in tuple(self._listeners):
            listener(at_once)

    def _say(self, message: str, *, failed: bool = False) -> None:
        self.message, self.failed = message, failed
        self._tell()

    # Starting.

    def start(
        self,
        setup: Setup,
        snapshot: Snapshot,
        daemon: Daemon | None,
        devices: Sequence[Device],
        *,
        asked: Snapshot | None = None,
        endanger: bool = False,
    ) -> None:
        """Add these clients to the ones that run. Clients that have ended give their place to the new ones.

        ``asked``: what was shown when the user was asked, if he was. ``endanger``: he has typed that it may hurt
        others.
        """
        if self.starting or self.ending:
            return
        self.starting = True
        self._run(self._start(setup, snapshot, daemon, devices, asked or snapshot, endanger))

    async def _start(
        self,
        setup: Setup,
        snapshot: Snapshot,
        daemon: Daemon | None,
        devices: Sequence[Device],
        asked: Snapshot,
        endanger: bool,
    ) -> None:
        try:
            place = daemon.pipe_dir if daemon else None
            if setup.where == "private":
                place = await self._open_private()
            if not self.live:
                self._begin_anew(place, asked)
            supervisor = self._supervisor
            if supervisor is None:
                return
            self._say("starting")
            for spec in groups(setup, place, devices, server_limit(setup, daemon), endanger):
                free = self._free(snapshot, spec.device_uuid, daemon, alone=setup.where == "private")
                numbers = await supervisor.start(spec, free - LEFT_TO_OTHERS)
                for report in supervisor.workers:
                    if report.worker in numbers:
                        self._take(report, spec)
            self._say(supervisor.trouble)
        except NotStarted as error:
            self._say(str(error), failed=True)
        except Unavailable as error:
            self._say(f"{error}{f'  → {error.remedy}' if error.remedy else ''}", failed=True)
        finally:
            self.starting = False
            self._tidy()
            self._tell()

    async def _open_private(self) -> Path:
        if self.private_dir is None:
            self._say("starting a private daemon")
            self.private_dir = await self._stack.enter_async_context(self.backend.private_daemon())
        return self.private_dir

    def _begin_anew(self, pipe_dir: Path | None, asked: Snapshot) -> None:
        self._unsubscribe()
        self._members.clear()
        self._supervisor = self.backend.supervisor(pipe_dir, asked)
        self._unsubscribe = self._supervisor.subscribe(self._receive)

    def _free(self, snapshot: Snapshot, uuid: str | None, daemon: Daemon | None, *, alone: bool) -> int:
        """Contexts that a device has for this load, its own among them: the supervisor counts those by itself."""
        device = snapshot.device(uuid) if uuid else next(iter(snapshot.devices), None)
        limit = (device.context_limit if device is not None else None) or CONTEXT_LIMIT
        if alone or device is None or device.contexts is None:
            return limit
        own = self.keys
        mine = [c for d in snapshot.daemons for client in d.clients() if client.key in own for c in client.contexts]
        in_use = device.contexts if daemon is None else daemon.limited(device).contexts or 0
        return limit - max(0, in_use - sum(context.device_uuid == device.uuid for context in mine))

    def beside(self, device: Device | None, snapshot: Snapshot | None) -> Device | None:
        """The device without the contexts of the load's own daemon, where that is among those that are watched."""
        daemon = snapshot.daemon(self.private_dir) if snapshot is not None and self.private_dir is not None else None
        if device is None or device.contexts is None or daemon is None:
            return device
        own = daemon.contexts_on(device.uuid)
        left = max(1, device.context_daemons - bool(own))
        return replace(device, contexts=device.contexts - own, context_daemons=left)

    def private_contexts(self, uuid: str | None) -> int:
        """Contexts on a device in the load's own daemon, as its clients tell."""
        if self.private_dir is None:
            return 0
        mine = (member.report for member in self.live if member.report.device_uuid == uuid)
        return sum(max(1, len(report.pool)) for report in mine)

    # Reports.

    def _receive(self, report: WorkerReport) -> None:
        member = self._members.get(report.worker)
        if member is None:
            return
        old = member.report
        self._take(report, member.spec)
        changed = (
            old.state != report.state
            or old.sms != report.sms
            or old.switch_seconds != report.switch_seconds
            or old.levels != report.levels
            or old.notes != report.notes
        )
        if report.over:
            self._tidy()
        self._tell(changed)

    def _tidy(self) -> None:
        """A private daemon ends with its last client."""
        if self.private_dir is not None and not self.live and not self.starting and not self.ending:
            self._run(self._close_private())

    def _take(self, report: WorkerReport, spec: LoadSpec) -> None:
        member = self._members.get(report.worker)
        if member is None:
            member = self._members[report.worker] = Member(spec, report)
        member.report = report
        if report.sms is not None and report.sms == member.target:
            member.target = None
        if report.figure is not None and report.state == "running":
            member.history.add(report.time, report.figure)

    # What can be done to one.

    def nudge(self, number: int, steps: int) -> None:
        """Grow or shrink a client's share by ``steps`` levels, or steps of the hardware where it has no pool."""
        member = self._members[number]
        report = member.report
        if not member.spec.mps:
            self._say("without MPS there are no shares: clients take turns on the whole GPU")
        elif report.over:
            self._say(f"client {number} has ended")
        elif report.sms is None or not report.levels:
            self._say(f"client {number} is not ready yet")
        elif member.pooled:
            levels = report.levels
            base = report.sms if member.target is None else member.target
            at = min(range(len(levels)), key=lambda i: abs(levels[i] - base))
            wanted = levels[max(0, min(at + steps, len(levels) - 1))]
            if wanted == base:
                self._say(self._no_further(member, base, steps))
                return
            member.target = wanted
            self._run(self._set_share(number, wanted))
            self._say("")
        else:
            self._aim(member, steps)

    def _aim(self, member: Member, steps: int) -> None:
        """Choose the share of the next start: this client's contexts have none of their own."""
        report = member.report
        total = self.total_sms(report.device_uuid)
        if total is None or report.sms is None:
            return
        rounding = rounding_for(total, None)
        base = report.sms if member.target is None else member.target
        most = max(report.sms, self.limit_of(member)[1] or total)
        wanted = max(min(rounding.floor, total), min(most, base + steps * rounding.step))
        member.target = None if wanted == report.sms else wanted
        if wanted == base:
            self._say(self._no_further(member, base, steps))
            return
        why = "this device cannot set a context's share" if report.affinity is False else "it has no pool of shares"
        self._say(f"client {member.number}: {why}, so R restarts it with {wanted} SM" if member.target else "")

    def know(self, devices: Sequence[Device], limits: Mapping[Path, float | None]) -> None:
        """Take over what NVML says of the devices, and the percentage that each daemon's servers have now."""
        self._devices = {device.uuid: device for device in devices}
        self._limits = limits

    def limit_of(self, member: Member) -> tuple[float | None, int | None]:
        """The percentage under which a client would be that started now, and its SMs; None where not known."""
        limit = self._limits.get(member.spec.pipe_dir) if member.spec.pipe_dir else None
        total = self.total_sms(member.report.device_uuid)
        if limit is None or total is None:
            return None, None
        return limit, sms_of(limit, total, rounding_for(total, None))

    def _no_further(self, member: Member, at: int, steps: int) -> str:
        return no_further(
            member.number, at, steps, self.total_sms(member.report.device_uuid) or at, *self.limit_of(member)
        )

    async def _set_share(self, number: int, sms: int) -> None:
        if self._supervisor is not None:
            await self._supervisor.set_share(number, sms)

    def restart(self, number: int) -> None:
        """Start a client again: under the share that was chosen for it, or under the server's present limits."""
        member = self._members[number]
        if member.stopped:
            self._say(f"client {number} was stopped; Enter in the fields on the left starts new ones")
            return
        if member.report.state in {"restarting", "stopping"} or self.ending:
            return
        percentage = None
        if member.target is not None and not member.pooled and (total := self.total_sms(member.report.device_uuid)):
            percentage = smallest_percentage(member.target, total, rounding_for(total, None))
        limit, pool = self.limit_of(member)[0], None
        if member.spec.pool and percentage is None and limit is not None:
            device = self._devices.get(member.report.device_uuid)
            pool = pool_of(member.report.kernel, device, limit) or None
        member.target = None
        self._say("")
        self._run(self._restart(number, percentage, pool))

    async def _restart(self, number: int, percentage: float | None, pool: tuple[int, ...] | None) -> None:
        if self._supervisor is not None:
            try:
                await self._supervisor.restart(number, percentage, pool)
            except NotStarted as error:
                self._say(str(error), failed=True)

    def fault(self, number: int) -> None:
        """Have a client with the illegal kernel make its store now."""
        if self._supervisor is not None and self._members[number].report.kernel == "illegal":
            self._supervisor.fault(number)

    # Ending.

    def stop(self, numbers: Sequence[int]) -> None:
        """End these clients gracefully."""
        for number in numbers:
            self._members[number].stopped = True
        self._say("")
        self._run(self._stop(numbers))

    async def _stop(self, numbers: Sequence[int]) -> None:
        if self._supervisor is not None:
            await self._supervisor.stop(numbers)

    async def close(self) -> None:
        """End all clients gracefully and the private daemon after them; returns when they are gone."""
        self.ending = True
        try:
            for member in self.members:
                member.stopped = True
            self._tell()
            for _ in range(2):  # a start that was under way may have added some
                if self._supervisor is not None:
                    await self._supervisor.stop()
                if self._tasks:
                    await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._close_private()
        finally:
            self.ending = False
            self._tell()

    async def _close_private(self) -> None:
        if self.private_dir is not None:
            stack, self._stack = self._stack, AsyncExitStack()
            self.private_dir = None
            await stack.aclose()
            self._tell()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it beside the screen, which goes on; ``close`` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _nothing() -> None:
    return None
