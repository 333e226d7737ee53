"""Keeps the snapshot up to date: watches logs, NVML and /proc, and asks a daemon only when something changed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpstui.control.channel import ControlChannel
from mpstui.control.commandline import patience
from mpstui.control.mps import MpsControl
from mpstui.core.model import Snapshot
from mpstui.core.requests import CROWD, REFRESH, SLOWEST_REFRESH
from mpstui.core.text import error_text, path_text
from mpstui.core.xid import Xid
from mpstui.observe.daemon import Clock, DaemonWatcher
from mpstui.observe.devices import XidWatch
from mpstui.observe.discovery import Place, discover, named, steady_speaker
from mpstui.observe.logs import Wakeups, Watcher, open_watcher
from mpstui.observe.poll import Need, Reconciler, Schedule
from mpstui.observe.reducer import Listener, NodeState
from mpstui.observe.sources import BlockingCalls, LaunchSource, NodeSources, NvmlSample
from mpstui.system import starts
from mpstui.system.procfs import Exits

if TYPE_CHECKING:
    from mpstui.core.activity import ActivityLook
    from mpstui.observe.activity import ActivityWatch

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
UNSEEN = 30.0
"""Seconds between two looks in /proc at clients that are not shown and of whom the logs tell whatever else matters."""
CLAIMS = 10.0
"""Seconds between two looks through /proc for the processes of clients in other PID namespaces, while they stay the
same."""
OTHERS_PATIENCE = 1.0
"""Seconds that one complete reading waits for another user's daemon that nobody named; a command usually takes 2 to
5 ms (fact 1)."""
TOGETHER = 0.05
"""Seconds that NVML and /proc wait for each other: one snapshot tells of both, and the screen is painted once."""
DAEMON_CHANGED = frozenset(("daemon_started", "daemon_exited"))


class NodeWatcher:
    """Drives the observation of a node. All methods belong to one event loop; callbacks are called in it.

    ``pipe_dirs``: empty to discover them again and again. ``refresh``: seconds between two readings of NVML and /proc;
    None: ``REFRESH`` for each ``CROWD`` of processes, ``SLOWEST_REFRESH`` at most.
    ``reconcile``: seconds from the last change to one complete reading of a daemon; 0 for never. ``patience``: seconds
    after which a reading of NVML is called hung; it is left to itself, and taken up if it returns. In a node where
    nothing changes, no command is sent at all.
    """

    _first: NvmlSample | None = None
    """What NVML has answered to the first look, in its thread; None before, and once that is folded."""

    def __init__(
        self,
        pipe_dirs: Sequence[Path],
        sources: NodeSources,
        *,
        log_dirs: Sequence[Path] = (),
        refresh: float | None = None,
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
        self._asked_refresh, self._refresh = refresh, REFRESH if refresh is None else refresh
        self._reconcile = reconcile
        self._find = find
        self._make_control = control or self._channel
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._patience = patience
        self._watches_activity = False
        self._idle_after: float | None = None
        self._activity: ActivityWatch | None = None
        self._node = NodeState(socket.gethostname(), "simulated" if sources.simulated else "real")
        self._watchers: dict[Path, DaemonWatcher] = {}
        self._controls: dict[Path, MpsControl] = {}
        self._gpu = BlockingCalls("mpstui-nvml")
        self._files = BlockingCalls("mpstui-files")
        self._exits = Exits(self._look_after)
        self._wakeups = Wakeups(watcher, sleep)
        self._xids: XidWatch | None = None
        self._callbacks: list[Callable[[Snapshot], None]] = []
        self._snapshot: Snapshot | None = None
        self._loop_task: asyncio.Task[None] | None = None
        self._jobs: dict[str, asyncio.Task[Any]] = {}
        self._next: dict[str, float] = {}
        self._reconciler = Reconciler()
        self._dirty = False
        self._starting_until = -math.inf
        self._identified: frozenset[int] = frozenset()
        self._shown: Path | None = None
        self._all_due = -math.inf
        self._claims, self._claims_due = frozenset[tuple[int, int]](), -math.inf
        self._seeking = asyncio.Lock()
        self._unidentified_since: float | None = None
        self._sessions_before = 0
        self._stirred = True
        """Whether something happened since NVML was read that may be in its lists."""
        self._sampled: frozenset[int] = frozenset()
        """Who was known then."""
        self.read_at: float | None = None
        """When NVML last answered, be it that it has no device; seconds since the epoch."""

    @property
    def answers(self) -> Mapping[Path, float]:
        """When each daemon last answered, by pipe directory; seconds since the epoch. Without those that have not."""
        watched = self._node.watched.items()
        return {place: each.answered_at for place, each in watched if each.answered_at is not None}

    @property
    def sessions(self) -> int:
        """Control sessions with daemons so far, each with one command or more."""
        return self._sessions_before + sum(control.channel.sent for control in self._controls.values())

    @property
    def sources(self) -> NodeSources:
        """All that differs between a real and a simulated node."""
        return self._sources

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

    def listen(self, listener: Listener) -> None:
        """Tells ``listener`` of every reading before it is folded, from now on."""
        self._node.listener = listener

    def set_compute_mode(self, uuid: str, mode: str) -> str | None:
        """See NodeSources."""
        return self._sources.set_compute_mode(uuid, mode)

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
        """Ask the daemon, or all of them, now, and read the figures anew."""
        if self._loop_task is None:
            return  # nobody looks any more: what is asked now would be ended before it is answered
        now = self._monotonic()
        self._next["discovery"] = self._next["reading"] = now
        self._stirred = True
        for path, watcher in self._watchers.items():
            if pipe_dir in {None, path}:
                watcher.schedule.ask_now(now)
                watcher.step()
        self._wakeups.stir()

    def heard(self, pipe_dir: Path, /) -> Snapshot | None:
        """The newest snapshot, with what the daemon's logs have told by now; nobody is asked."""
        watcher = self._watchers.get(pipe_dir)
        if watcher is not None and watcher.hear():
            self._touch()
        return self._node.snapshot(self._clock()) if self._dirty else self._snapshot

    def changed(self, pipe_dir: Path, /) -> None:
        """A change of it was made and read back: it is asked again where its logs do not tell of it."""
        watcher = self._watchers.get(pipe_dir)
        if watcher is None or not watcher.told:
            self.request_refresh(pipe_dir)

    def look_at(self, pipe_dir: Path | None, /) -> None:
        """Whose clients are shown; of the others /proc is read each ``UNSEEN`` seconds alone. None: any may be."""
        if pipe_dir != self._shown:
            self._shown, self._all_due = pipe_dir, -math.inf
            if self._loop_task is not None:
                self._job("facts", self._read_facts)

    async def start(self) -> None:
        """Starts watching; answers at once, the first snapshot follows as soon as there is something to show."""
        if self._loop_task is None:
            self._loop_task = asyncio.get_running_loop().create_task(self._watch())
            if self._sources.xids is not None:
                self._xids = XidWatch(self._sources.xids, self._hear(asyncio.get_running_loop()))
                self._xids.start()
            if self._watches_activity:
                self._job("activity", self._watch_activity)

    async def stop(self) -> None:
        """Ends everything, a command under way included; does not wait for a hung driver."""
        tasks = [task for task in (self._loop_task, *self._jobs.values()) if task is not None]
        self._loop_task = None
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(*(watcher.close() for watcher in self._watchers.values()))
        finally:
            await starts.done()
        self._watchers.clear()
        self._exits.close()
        self._wakeups.close()
        if self._xids is not None:
            self._xids.close()
            self._xids = None
        if self._activity is not None:
            self._activity.close()
            self._activity = None
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

    def watch_activity(self, idle_after: float | None = None) -> None:
        """Count everybody's launches from now on, or once it is started. ``idle_after``: seconds without a launch that
        are a problem; None: they are none."""
        self._watches_activity, self._idle_after = True, idle_after
        if self._loop_task is not None:
            self._job("activity", self._watch_activity)

    async def activity(self, seconds: float, /) -> ActivityLook:
        """Counts the launches of everybody in the latest snapshot for so long (fact 41)."""
        from mpstui.core.activity import activity_look

        shown, window = self._snapshot, await self._counter().look(seconds)
        shown = self._snapshot or shown or Snapshot(self._clock())
        return activity_look(shown, window.seconds, window.how, window.launches, window.refused, os.geteuid())

    def _counter(self) -> ActivityWatch:
        if self._activity is None:
            from mpstui.observe.activity import ActivityWatch

            self._activity = ActivityWatch(
                self._open_launches,
                self._node.countable,
                clock=self._clock,
                monotonic=self._monotonic,
                sleep=self._sleep,
            )
        return self._activity

    def _open_launches(self) -> LaunchSource:
        if self._sources.launches is None:
            raise OSError(errno.ENOTSUP, "launches are not counted on this node")
        return self._sources.launches()

    async def _watch_activity(self) -> None:
        """Until the end, whatever goes wrong with the kernel meanwhile."""
        from mpstui.observe.activity import LONGEST, ActivityLog, ActivityWindow

        log = ActivityLog()

        def told(window: ActivityWindow) -> None:
            self._node.set_activity(log.add(window), self._idle_after)
            self._dirty = True
            self._wakeups.stir()

        while not self._node.countable():  # nobody is known yet
            await self._sleep(self._refresh)
        while True:
            try:
                await self._counter().watch(told)
            except OSError as error:
                why = dict.fromkeys(self._node.countable(), error_text(error))
                told(ActivityWindow(self._clock(), 0.0, {}, why))
                await self._sleep(LONGEST)

    async def prime(self) -> Snapshot:
        """A first look at places, logs and /proc, in whatever event loop; no daemon is asked. NVML, which takes longest
        to start, is begun with, and is in it where it has answered by then. For whoever has something else to do before
        :meth:`start`."""
        self._gpu.call(self._read_first)
        with self._node.untold():  # whoever keeps what was begins with the state that this comes to
            await self._discover()
            await self._read_facts()
            self._take_first()
            shown = self._emit()
        self._jobs.clear()
        return shown

    def catch_up(self) -> None:
        """Between :meth:`prime` and :meth:`start`: what NVML has answered since is in the snapshot."""
        with self._node.untold():
            if self._take_first():
                self._emit()

    def _read_first(self) -> None:
        self._first = self._sources.nvml.sample()

    def _take_first(self) -> bool:
        """Whether NVML has answered for the first time."""
        first, self._first = self._first, None
        if first is None:
            return False
        self._node.set_sample(first)
        self.read_at = self._clock()
        return True

    async def once(self, *, rates: bool = False, need: Need | None = None) -> Snapshot:
        """One complete reading: places, logs, NVML, every daemon that runs, and /proc. CPU percentages stay unknown.

        ``need``: a daemon whose logs tell the rest is asked this only.
        ``rates``: with SM activity, which is counted between two readings, while the daemons are asked.
        """
        sample = asyncio.get_running_loop().create_task(self._read_sample(rates))
        await self._discover()
        watchers = self._watchers.values()
        await asyncio.gather(*(self._ask(watcher, need) for watcher in watchers))
        await asyncio.wait([sample], timeout=self._patience + 1)
        sample.cancel()
        if self._look_again():
            await self._discover()
        await self._read_facts()
        if need is not None and need.clients and self._node.unproved():
            await asyncio.gather(*(self._ask(watcher, None) for watcher in watchers))  # ``ps`` tells the namespace
            await self._read_facts()
        return self._emit()

    async def _ask(self, watcher: DaemonWatcher, need: Need | None) -> None:
        """A complete reading of one daemon, or of what ``need`` names. Whoever likes starts daemons that answer late or
        never: nobody who did not name one of another user's waits long for it."""
        asking = watcher.ask_everything() if need is None else watcher.ask_for(need)
        if named(self._pipe_dirs) or not self._node.is_anothers(watcher.pipe_dir):
            await asking
            return
        task, limit = asyncio.get_running_loop().create_task(asking), patience(OTHERS_PATIENCE)
        if not (await asyncio.wait([task], timeout=limit))[0]:
            await watcher.give_up(limit)
        await task

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
            return await self._wakeups.rest(seconds)
        await self._sleep(TICK)
        return True

    def _idle(self) -> float:
        """How many seconds nothing has to be done for, unless a notice comes; 0 where none would come."""
        watchers = self._watchers.values()
        if self._dirty or not self._wakeups.relied:
            return 0
        if any(watcher.schedule.polling or not watcher.settled for watcher in watchers):
            return 0
        due = min([self._next["discovery"], self._next["reading"], *(watcher.due() for watcher in watchers)])
        return min(REST, due - self._monotonic())

    def _step(self, told: bool) -> None:
        """Whatever is due is looked at or started; nothing here waits."""
        if self._due("discovery", DISCOVERY_INTERVAL):
            self._job("discovery", self._discover)
        blind = any(watcher.schedule.polling for watcher in self._watchers.values())
        if blind and self._membership is not None and self._due("members", MEMBERSHIP_INTERVAL):
            self._job("members", self._read_members)
        if self._due("wakeups", REST) or told:
            self._wakeups.watch([path for watcher in self._watchers.values() for path in watcher.logs])
        came = False
        for watcher in self._watchers.values():
            kinds = watcher.poll_logs()
            came = came or "client_connected" in kinds
            self._dirty = self._dirty or bool(kinds)
            self._stirred = self._stirred or bool(kinds)
            if not kinds.isdisjoint(DAEMON_CHANGED):
                self._next["discovery"] = self._monotonic()
                self._starting_until = self._monotonic() + STARTING_TIME
            if not told and not watcher.settled:
                self._wakeups.missed()
            watcher.step()
        sees = not self._under_way("sample")  # one that was begun before may not have who comes
        if came and sees and self._next.get("reading", 0.0) - self._monotonic() < min(self._refresh, REFRESH) / 2:
            self._next["reading"] = self._monotonic()  # one snapshot tells of both, and the screen is painted once
        if due := self._due("reading", self._refresh):
            self._job("reading", self._read)
        if came and not (due and sees):
            self._job("arrival", self._read_arrival)
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

    def _under_way(self, *names: str) -> bool:
        """Whether one of these jobs is."""
        jobs = (self._jobs.get(name) for name in names)
        return any(job is not None and not job.done() for job in jobs)

    async def _discover(self) -> None:
        places = await self._files.call(self._look)
        for watching in self._watchers.values():
            watching.poll_logs()  # a daemon that has ended in order has said so before
        changed = self._node.set_places(places, self._clock())
        now = self._monotonic()
        left = [path for path in self._watchers if path not in self._node.watched]
        gone = [self._watchers.pop(path) for path in left]
        for path in left:
            dropped = self._controls.pop(path, None)
            self._sessions_before += dropped.channel.sent if dropped is not None else 0
        await asyncio.gather(*(watcher.close() for watcher in gone))
        for place in places:
            watcher = self._watchers.get(place.pipe_dir)
            if watcher is None:
                schedule = Schedule(self._refresh, self._reconcile)
                watcher = DaemonWatcher(
                    place.pipe_dir,
                    self._node,
                    self.control_for(place.pipe_dir),
                    schedule,
                    self._clock,
                    self._monotonic,
                    self._answered,
                )
                self._watchers[place.pipe_dir] = watcher
            elif place.pipe_dir in changed:
                watcher.schedule.ask_now(now)
        await asyncio.gather(*(watcher.open_logs(self._files) for watcher in self._watchers.values()))
        if changed:
            self._next["reading"] = now
        self._next["wakeups"] = now
        self._watch_exits()
        if self._loop_task is not None:
            await self._wakeups.open(self._files)
        if not all(watcher.running for watcher in self._watchers.values()):
            again = STARTING_INTERVAL if now < self._starting_until else EXPECTING_INTERVAL
            self._next["discovery"] = min(self._next.get("discovery", math.inf), now + again)
        self._answered()

    def _look(self) -> tuple[Place, ...]:
        found = self._find(self._pipe_dirs, self._log_dirs)
        if self._pipe_dirs:
            kept = [self._of_this_kind(place) for place in found]
        else:
            kept = [place for place in found if place.silent or not self._sources.foreign(place.pipe_dir)]
        return tuple(
            place if claim is None else place._replace(detail="; ".join(filter(None, (place.detail, claim))))
            for place in kept
            for claim in (None if place.silent else self._sources.claim(place.pipe_dir),)
        )

    def _of_this_kind(self, place: Place) -> Place:
        """The place; where its name has come to mean a node of the other kind, none that is asked or shown."""
        if place.state != "running" or not self._sources.foreign(place.pipe_dir):
            return place
        kind = "no simulated node any more" if self._sources.simulated else "a simulated node now, and was none before"
        text, where = f"{path_text(place.pipe_dir)} is {kind}", place.pipe_dir
        remedy = "start mpstui again to see what is there"
        return Place(
            where, "unusable", uid=place.uid, detail=text, remedy=remedy, speaker=place.speaker, real=place.real
        )

    async def _read(self) -> None:
        """NVML and /proc; neither is kept waiting for long by the other."""
        if self._asked_refresh is None:
            self._refresh = min(SLOWEST_REFRESH, REFRESH * max(1.0, len(self._node.pids()) / CROWD))
        both = self._job("sample", self._read_sample), self._job("facts", self._read_facts)
        await asyncio.wait(both, timeout=TOGETHER)
        self._touch()

    async def _read_arrival(self) -> None:
        """Who has come: what NVML lists and /proc says of it, in one snapshot."""
        looks = [self._job("facts", self._read_facts)]
        if self._membership is not None:
            looks.append(self._job("members", self._read_members))
        await asyncio.wait(looks, timeout=TOGETHER)
        self._touch()

    async def _read_sample(self, rates: bool = False) -> None:
        nvml = self._sources.nvml
        reading = self._gpu.call(nvml.rated if rates else nvml.steady if self._nobody_moved() else nvml.sample)
        try:
            sample = await asyncio.wait_for(asyncio.shield(reading), self._patience)
            self._node.set_sample(sample)
            self.read_at = self._clock()
            self._explain(sample.mps_clients)
        except asyncio.TimeoutError:
            text = f"NVML has not answered for {self._patience:g} s; the driver may be hung."
            self._node.set_sample(NvmlSample(self._clock(), error=text))
            self._touch()
            self._node.set_sample(await reading)
            self.read_at = self._clock()
        except Exception as error:  # any driver trouble is a message, never a traceback
            self._node.set_sample(NvmlSample(self._clock(), error=f"{type(error).__name__}: {error}"))
        self._dirty = True

    def _nobody_moved(self) -> bool:
        """Whether all that is known says that NVML lists whom it listed at the last reading."""
        known, before, stirred = self._node.pids(), self._sampled, self._stirred
        self._sampled, self._stirred = known, False
        blind = any(watcher.schedule.polling for watcher in self._watchers.values())
        return not (stirred or blind or known != before or self._reconciler.in_doubt or self._node.unproved())

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
        """NVML lists a client that no log has told of, or no longer lists one: whom it may concern is asked, once."""
        if not (lasting := self._reconciler.lasting(self._node.unexplained(members))):
            return
        for path, watcher in self._watchers.items():
            gone, strangers = self._node.concerned(path, lasting, members)
            if gone:
                watcher.schedule.want(True, False, self._monotonic())
            elif strangers:
                watcher.doubt()
        self._wakeups.stir()

    async def _read_facts(self) -> None:
        there, now = self._node.pids(), self._monotonic()
        if not there:
            return
        pids: Collection[int] = there
        if self._shown is not None and now < self._all_due:
            pids = there - (self._node.resting(self._shown) & self._identified)
        else:
            self._all_due = now + UNSEEN
        # The clock beside the reading: where the loop is late, a share of a CPU would be another one each time.
        time, facts = await self._files.call(lambda: (self._clock(), self._sources.processes.facts(pids)))
        if self._node.set_facts(pids, facts, time):
            self._next["discovery"] = self._monotonic()
            self._wakeups.stir()
        await self._find_elsewhere(now)
        self._identified = (self._identified & there) | frozenset(pids)
        self._watch_exits()
        self._touch()

    async def _find_elsewhere(self, now: float) -> None:
        """Which processes here are the clients in other PID namespaces; a look at the whole of /proc, and so not often
        where nothing has changed. Of two that want to know the second one waits for what the first one finds: a status
        went out without it, while a reading that a snapshot had asked for was looking."""
        async with self._seeking:
            claims = self._node.elsewhere()
            if claims == self._claims and (not claims or now < self._claims_due):
                return
            found = await self._files.call(lambda: self._sources.elsewhere(claims))
            pids = self._node.set_elsewhere(found)
            facts = await self._files.call(lambda: self._sources.processes.facts(pids))
            self._node.set_facts(pids, facts, self._clock())
            self._claims, self._claims_due = claims, now + CLAIMS

    def _watch_exits(self) -> None:
        if self._loop_task is not None:
            self._exits.watch(self._node.serving_pids())

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

    def _look_again(self) -> bool:
        """Whether what a daemon answered, or did not, tells that what is known of its place is no longer so."""
        return self._node.not_found() or any(watcher.elsewhere for watcher in self._watchers.values())

    def _answered(self) -> None:
        """Something was learnt that may change what is due."""
        if self._look_again():
            soon = self._monotonic() + EXPECTING_INTERVAL
            self._next["discovery"] = min(self._next.get("discovery", math.inf), soon)
        self._wakeups.stir()
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
        return self._snapshot is not None and self._under_way("reading", "arrival")

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
        channel = ControlChannel(pipe_dir, self._sources.control_binary, speaker=steady_speaker)
        return MpsControl(channel, hidden=self._sources.hidden)
