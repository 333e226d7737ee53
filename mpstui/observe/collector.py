"""Keeps the snapshot up to date: watches logs, NVML and /proc, and asks a daemon only when something changed."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mpstui.control.channel import ControlChannel
from mpstui.control.mps import MpsControl
from mpstui.core.model import Snapshot
from mpstui.observe.asking import Need
from mpstui.observe.discovery import Place, discover
from mpstui.observe.endings import Endings
from mpstui.observe.keeper import Clock, Keeper
from mpstui.observe.notices import Notices, Watcher, open_watcher
from mpstui.observe.nvml import GPM_SECONDS
from mpstui.observe.puzzle import Puzzle
from mpstui.observe.reducer import NodeState
from mpstui.observe.schedule import Schedule
from mpstui.observe.sources import NodeSources, NvmlSample
from mpstui.observe.worker import Worker
from mpstui.observe.xid import Xid, XidWatch

Discover = Callable[[Sequence[Path], Sequence[Path]], Sequence[Place]]
Members = Mapping[str, Mapping[int, int | None]]
TICK = 0.1
"""Seconds between two looks at the logs where the kernel does not tell of changes, or while something is going on."""
REST = 1.0
"""Seconds between two looks at the logs where the kernel tells."""
MEMBERSHIP_INTERVAL = 0.25
"""Seconds between two looks at NVML's list of MPS clients where a daemon's logs do not tell of changes sooner."""
DISCOVERY_INTERVAL = 10.0
"""While every known daemon runs: that one has ended is seen in /proc or in its log, and looked into at once."""
EXPECTING_INTERVAL = 3.0
"""While one is awaited."""
STARTING_INTERVAL = 0.5
STARTING_TIME = 5.0
"""Seconds that a daemon may take from the first line of its log to being there."""
IDENTITY_PATIENCE = 0.5
"""Seconds that a snapshot waits for /proc's word on processes that are new; a user directory may be slow."""
BETWEEN_SAMPLES = 2 * GPM_SECONDS
"""Seconds between two readings of NVML that tell what is counted between them."""
TOGETHER = 0.05
"""Seconds that NVML and /proc wait for each other: one snapshot tells of both, and the screen is painted once."""
DAEMON_CHANGED = frozenset(("daemon_started", "daemon_exited"))


class Collector:
    """Drives the observation of a node. All methods belong to one event loop; callbacks are called in it.

    ``pipe_dirs``: empty to discover them again and again. ``refresh``: seconds between two readings of NVML and /proc.
    ``reconcile``: seconds from the last change to one complete reading of a daemon; 0 for never. ``patience``: seconds
    after which a reading of NVML is called hung; it is left to itself, and taken up if it returns. In a node where
    nothing changes, no command is sent at all.
    """

    def __init__(
        self,
        pipe_dirs: Sequence[Path],
        sources: NodeSources,
        *,
        log_dirs: Sequence[Path] = (),
        refresh: float = 1.0,
        reconcile: float = 60.0,
        find: Discover = discover,
        control: Callable[[Path], MpsControl] | None = None,
        clock: Clock = time.time,
        monotonic: Clock = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        patience: float = 5.0,
        watcher: Callable[[], Watcher | None] = open_watcher,
    ) -> None:
        self._pipe_dirs = tuple(pipe_dirs)
        self._log_dirs = tuple(log_dirs)
        self._sources = sources
        # An NvmlSource may tell the MPS clients alone, at a fraction of a sample's cost.
        self._membership: Callable[[], Members] | None = getattr(sources.nvml, "membership", None)
        self._refresh = refresh
        self._reconcile = reconcile
        self._find = find
        self._make_control = control or self._channel
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._patience = patience
        self._node = NodeState(socket.gethostname(), "simulated" if sources.simulated else "real")
        self._keepers: dict[Path, Keeper] = {}
        self._controls: dict[Path, MpsControl] = {}
        self._gpu = Worker("mpstui-nvml")
        self._files = Worker("mpstui-files")
        self._endings = Endings(self._look_after)
        self._notices = Notices(watcher, sleep)
        self._xids: XidWatch | None = None
        self._callbacks: list[Callable[[Snapshot], None]] = []
        self._snapshot: Snapshot | None = None
        self._loop_task: asyncio.Task[None] | None = None
        self._jobs: dict[str, asyncio.Task[Any]] = {}
        self._next: dict[str, float] = {}
        self._puzzle = Puzzle()
        self._dirty = False
        self._starting_until = -math.inf
        self._identified: frozenset[int] = frozenset()
        self._unidentified_since: float | None = None

    @property
    def snapshot(self) -> Snapshot | None:
        """The latest one; None until something has been seen."""
        return self._snapshot

    def subscribe(self, callback: Callable[[Snapshot], None], /) -> Callable[[], None]:
        """Calls ``callback`` with each snapshot that differs from the one before, until the answer is called."""
        self._callbacks.append(callback)

        def unsubscribe() -> None:
            with contextlib.suppress(ValueError):
                self._callbacks.remove(callback)

        return unsubscribe

    def control_for(self, pipe_dir: Path) -> MpsControl:
        """The one control channel of a daemon, shared with the actions."""
        found = self._controls.get(pipe_dir)
        if found is None:
            found = self._controls[pipe_dir] = self._make_control(pipe_dir)
        return found

    def watch(self, pipe_dir: Path) -> None:
        """Take one more directory in, where they were named; those that are discovered come by themselves."""
        if self._pipe_dirs and pipe_dir not in self._pipe_dirs:
            self._pipe_dirs += (pipe_dir,)
            self._sources.add(pipe_dir)
        self.request_refresh()

    def request_refresh(self, pipe_dir: Path | None = None, /) -> None:
        """Ask the daemon, or all of them, now."""
        if self._loop_task is None:
            return  # nobody looks any more: what is asked now would be ended before it is answered
        now = self._monotonic()
        self._next["discovery"] = now
        for path, keeper in self._keepers.items():
            if pipe_dir in {None, path}:
                keeper.schedule.ask_now(now)
                keeper.step()
        self._notices.stir()

    async def start(self) -> None:
        """Starts watching; answers at once, the first snapshot follows as soon as there is something to show."""
        if self._loop_task is None:
            self._loop_task = asyncio.get_running_loop().create_task(self._watch())
            if self._sources.xids is not None:
                self._xids = XidWatch(self._sources.xids, self._hear(asyncio.get_running_loop()))
                self._xids.start()

    async def stop(self) -> None:
        """Ends everything, a command under way included; does not wait for a hung driver."""
        tasks = [task for task in (self._loop_task, *self._jobs.values()) if task is not None]
        self._loop_task = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(keeper.close() for keeper in self._keepers.values()))
        self._keepers.clear()
        self._endings.close()
        self._notices.close()
        if self._xids is not None:
            self._xids.close()
            self._xids = None
        self._gpu.close(self._sources.nvml.close)
        self._files.close()

    def _hear(self, loop: asyncio.AbstractEventLoop) -> Callable[[list[Xid]], None]:
        """What a thread calls with the Xids that it was told."""

        def take(xids: list[Xid]) -> None:
            if self._xids is not None:
                self._node.add_xids(xids)
                self._answered()

        def told(xids: list[Xid]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
                loop.call_soon_threadsafe(take, xids)

        return told

    async def prime(self) -> Snapshot:
        """A first look at places, logs and /proc, in whatever event loop; no daemon is asked. NVML, which takes longest
        to start, is begun with. For whoever has something else to do before :meth:`start`."""
        self._gpu.call(self._sources.nvml.sample)
        await self._discover()
        await self._read_facts()
        shown = self._emit()
        self._jobs.clear()
        return shown

    async def once(self, *, rates: bool = False, need: Need | None = None) -> Snapshot:
        """One complete reading: places, logs, NVML, every daemon that runs, and /proc. CPU percentages stay unknown.

        ``need``: a daemon whose logs tell the rest is asked this only.
        ``rates``: NVML is read a second time where a device's SM activity is not known; it is counted between two.
        """
        sample = asyncio.get_running_loop().create_task(self._read_sample())
        await self._discover()
        keepers = self._keepers.values()
        asking = (keeper.ask_everything() if need is None else keeper.ask_for(need) for keeper in keepers)
        await asyncio.gather(*asking)
        await asyncio.wait([sample], timeout=self._patience + 1)
        sample.cancel()
        if rates and self._node.lacks_rates:
            await self._sleep(BETWEEN_SAMPLES)
            again = asyncio.get_running_loop().create_task(self._read_sample())
            await asyncio.wait([again], timeout=self._patience + 1)
            again.cancel()
        await self._read_facts()
        if need is not None and need.clients and self._node.unproved():
            await asyncio.gather(*(keeper.ask_everything() for keeper in keepers))  # ``ps`` tells the namespace
            await self._read_facts()
        return self._emit()

    async def _watch(self) -> None:
        told = True
        while True:
            self._step(told)
            told = await self._rest()

    async def _rest(self) -> bool:
        """Waits until something is due, is asked for, or was written. Answers whether there may be something new in
        the logs; False where they were relied on to tell and did not."""
        seconds = self._idle()
        if seconds > TICK:
            return await self._notices.rest(seconds)
        await self._sleep(TICK)
        return True

    def _idle(self) -> float:
        """How many seconds nothing has to be done for, unless a notice comes; 0 where none would come."""
        keepers = self._keepers.values()
        if self._dirty or not self._notices.relied:
            return 0
        if any(keeper.schedule.polling or not keeper.settled for keeper in keepers):
            return 0
        due = min([self._next["discovery"], self._next["reading"], *(keeper.due() for keeper in keepers)])
        return min(REST, due - self._monotonic())

    def _step(self, told: bool) -> None:
        """Whatever is due is looked at or started; nothing here waits."""
        if self._due("discovery", DISCOVERY_INTERVAL):
            self._job("discovery", self._discover)
        if self._due("reading", self._refresh):
            self._job("reading", self._read)
        blind = any(keeper.schedule.polling for keeper in self._keepers.values())
        if blind and self._membership is not None and self._due("members", MEMBERSHIP_INTERVAL):
            self._job("members", self._read_members)
        if self._due("notices", REST) or told:
            self._notices.watch([path for keeper in self._keepers.values() for path in keeper.logs])
        for keeper in self._keepers.values():
            kinds = keeper.poll_logs()
            self._dirty = self._dirty or bool(kinds)
            if not kinds.isdisjoint(DAEMON_CHANGED):
                self._next["discovery"] = self._monotonic()
                self._starting_until = self._monotonic() + STARTING_TIME
            if "client_connected" in kinds:
                self._job("facts", self._read_facts)
                if self._membership is not None:
                    self._job("members", self._read_members)
            if not told and not keeper.settled:
                self._notices.missed()
            keeper.step()
        self._emit_if_dirty()

    def _due(self, name: str, interval: float) -> bool:
        now = self._monotonic()
        if now < self._next.get(name, now):
            return False
        self._next[name] = now + interval
        return True

    def _job(self, name: str, job: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Starts ``job`` unless the one before is still under way; answers the one that is."""
        running = self._jobs.get(name)
        if running is not None and not running.done():
            return running
        if running is not None and not running.cancelled():
            running.exception()  # a reading that failed is taken again; what it said is in the snapshot
        started = self._jobs[name] = asyncio.get_running_loop().create_task(job())
        return started

    async def _discover(self) -> None:
        places = await self._files.call(self._look)
        for watching in self._keepers.values():
            watching.poll_logs()  # a daemon that has ended in order has said so before
        changed = self._node.set_places(places, self._clock())
        now = self._monotonic()
        left = [path for path in self._keepers if path not in self._node.watched]
        gone = [self._keepers.pop(path) for path in left]
        for path in left:
            self._controls.pop(path, None)
        await asyncio.gather(*(keeper.close() for keeper in gone))
        for place in places:
            keeper = self._keepers.get(place.pipe_dir)
            if keeper is None:
                schedule = Schedule(self._refresh, self._reconcile)
                keeper = Keeper(
                    place.pipe_dir,
                    self._node,
                    self.control_for(place.pipe_dir),
                    schedule,
                    self._clock,
                    self._monotonic,
                    self._answered,
                )
                self._keepers[place.pipe_dir] = keeper
            elif place.pipe_dir in changed:
                keeper.schedule.ask_now(now)
        await asyncio.gather(*(keeper.open_logs(self._files) for keeper in self._keepers.values()))
        if changed:
            self._next["reading"] = now
        self._next["notices"] = now
        self._watch_endings()
        if self._loop_task is not None:
            await self._notices.open(self._files)
        if not all(keeper.running for keeper in self._keepers.values()):
            again = STARTING_INTERVAL if now < self._starting_until else EXPECTING_INTERVAL
            self._next["discovery"] = min(self._next.get("discovery", math.inf), now + again)
        self._answered()

    def _look(self) -> tuple[Place, ...]:
        found = self._find(self._pipe_dirs, self._log_dirs)
        kept = found if self._pipe_dirs else (p for p in found if not self._sources.foreign(p.pipe_dir))
        return tuple(
            place if claim is None else place._replace(detail="; ".join(filter(None, (place.detail, claim))))
            for place in kept
            for claim in (self._sources.claim(place.pipe_dir),)
        )

    async def _read(self) -> None:
        """NVML and /proc; neither is kept waiting for long by the other."""
        both = self._job("sample", self._read_sample), self._job("facts", self._read_facts)
        await asyncio.wait(both, timeout=TOGETHER)
        self._touch()

    async def _read_sample(self) -> None:
        reading = self._gpu.call(self._sources.nvml.sample)
        try:
            sample = await asyncio.wait_for(asyncio.shield(reading), self._patience)
            self._node.set_sample(sample)
            self._explain(sample.mps_clients)
        except asyncio.TimeoutError:
            text = f"NVML has not answered for {self._patience:g} s; the driver may be hung."
            self._node.set_sample(NvmlSample(self._clock(), error=text))
            self._touch()
            self._node.set_sample(await reading)
        except Exception as error:  # any driver trouble is a message, never a traceback
            self._node.set_sample(NvmlSample(self._clock(), error=f"{type(error).__name__}: {error}"))
        self._dirty = True

    async def _read_members(self) -> None:
        if self._membership is None:
            return
        try:
            members = await self._gpu.call(self._membership)
        except Exception:  # any driver trouble; the next full sample says what is the matter
            return
        if self._node.set_membership(members):
            self._dirty = True
        self._explain(members)

    def _explain(self, members: Members) -> None:
        """NVML lists a client that no log has told of, or no longer lists one: the daemons are asked, once."""
        if self._puzzle.lasts(self._node.unexplained(members)):
            for keeper in self._keepers.values():
                keeper.schedule.want(True, False, self._monotonic())
            self._notices.stir()

    async def _read_facts(self) -> None:
        pids = self._node.pids()
        if not pids:
            return
        facts = await self._files.call(lambda: self._sources.processes.facts(pids))
        if self._node.set_facts(pids, facts, self._clock()):
            self._next["discovery"] = self._monotonic()
            self._notices.stir()
        self._identified = frozenset(pids)
        self._watch_endings()
        self._touch()

    def _watch_endings(self) -> None:
        if self._loop_task is not None:
            self._endings.watch(self._node.serving_pids())

    def _look_after(self, _: object = None) -> None:
        """A daemon or a server has ended: /proc is read, and again where a reading is under way, which may have been
        there too early."""
        under_way = self._jobs.get("facts")
        if self._loop_task is None:
            return
        if under_way is not None and not under_way.done():
            under_way.add_done_callback(self._look_after)
        else:
            self._job("facts", self._read_facts)

    def _answered(self) -> None:
        """Something was learnt that may change what is due."""
        self._notices.stir()
        self._touch()

    def _touch(self) -> None:
        """Something happened: a snapshot follows at once, however much is learnt before the loop comes to it."""
        self._dirty = True
        asyncio.get_running_loop().call_soon(self._emit_if_dirty)

    def _emit_if_dirty(self) -> None:
        if self._dirty and not self._awaits_reading() and not self._awaits_identities():
            self._emit()

    def _awaits_reading(self) -> bool:
        """Whether a reading is under way whose end is a snapshot; the very first snapshot does not wait for NVML."""
        reading = self._jobs.get("reading")
        return self._snapshot is not None and reading is not None and not reading.done()

    def _awaits_identities(self) -> bool:
        """A process is shown once its start time is known and, of a client, once NVML or ``ps`` has told that it is the
        one: a selection that was made before would hold another identity than the same process has a moment later."""
        identified = self._node.pids() <= self._identified
        if identified and not self._node.unproved():
            self._unidentified_since = None
            return False
        if not identified:
            self._job("facts", self._read_facts)
        now = self._monotonic()
        if self._unidentified_since is None:
            self._unidentified_since = now
        return now - self._unidentified_since < IDENTITY_PATIENCE

    def _emit(self) -> Snapshot:
        self._dirty = False
        before, shown = self._snapshot, self._node.snapshot(self._clock())
        self._snapshot = shown
        if before is None or replace(before, time=shown.time) != shown:
            for callback in tuple(self._callbacks):
                callback(shown)
        return shown

    def _channel(self, pipe_dir: Path) -> MpsControl:
        return MpsControl(ControlChannel(pipe_dir, self._sources.control_binary))
