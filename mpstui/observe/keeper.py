"""Keeps one daemon's part of the state up to date: follows its logs, asks it when the schedule says so."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from mpstui.control.answer import Answer, Outcome
from mpstui.control.holder import HELD_AFTER
from mpstui.control.mps import MpsControl
from mpstui.core.model import EventKind, unspoken
from mpstui.observe.asking import Asked, Need, ask_for, ask_limits, ask_membership
from mpstui.observe.health import clients_left, is_silent
from mpstui.observe.limits import MEMORY_VARIABLE
from mpstui.observe.logfile import REMEDY, owners_of
from mpstui.observe.readings import Membership, fold_devices
from mpstui.observe.reducer import NodeState
from mpstui.observe.schedule import Schedule
from mpstui.observe.state import DaemonState
from mpstui.observe.watching import LogWatch
from mpstui.observe.worker import Worker

Clock = Callable[[], float]
_SESSION_LOOK = 0.5
"""Seconds between two looks at the log while somebody waits for the daemon's answers."""
_TRIES = 3
"""Times that the limits are asked for while somebody sets one after the other."""
_NOTHING: frozenset[EventKind] = frozenset()


class Keeper:
    """One daemon. ``clock`` gives seconds since the epoch, ``monotonic`` seconds that only grow; ``notify`` is called
    after each group of answers."""

    def __init__(
        self,
        pipe_dir: Path,
        node: NodeState,
        control: MpsControl,
        schedule: Schedule,
        clock: Clock,
        monotonic: Clock,
        notify: Callable[[], None],
    ) -> None:
        self.pipe_dir = pipe_dir
        self.control = control
        self.schedule = schedule
        self._node = node
        self._clock = clock
        self._monotonic = monotonic
        self._notify = notify
        self._logs: LogWatch | None = None
        self._reading_history = True
        self._named: frozenset[int] = frozenset()
        self._asking: asyncio.Task[None] | None = None
        self._session_at: float | None = None
        self._unreported = _NOTHING
        self._limits_told = 0

    @property
    def logs(self) -> tuple[Path, ...]:
        """The files that tell of this daemon."""
        return self._logs.paths if self._logs is not None else ()

    @property
    def settled(self) -> bool:
        """Whether there was nothing new at the last look."""
        return self._logs is None or self._logs.settled

    def due(self) -> float:
        """When there is something to do though nothing happens; monotonic seconds."""
        session = math.inf if self._session_at is None else self._session_at + HELD_AFTER
        return session if self._asking is not None else min(session, self.schedule.due())

    @property
    def running(self) -> bool:
        place = self._node.watch(self.pipe_dir).place
        return place is not None and place.state == "running"

    async def open_logs(self, worker: Worker) -> None:
        """Reads the history of the place's log directory, once for each directory."""
        watched = self._node.watch(self.pipe_dir)
        known = self._logs.log_dir if self._logs else None
        # Where a daemon that is gone wrote its logs cannot always be found out; its successor most likely writes there.
        log_dir = (watched.place.log_dir if watched.place else None) or known
        owners = watched.place.log_owners if watched.place else owners_of(None)
        if not self._reading_history and known == log_dir:
            if self._logs is not None:
                self._logs.believe(owners)
            return
        if self._logs is not None:
            self._logs.close()
        self._logs = LogWatch(log_dir, owners) if log_dir is not None else None
        if self._logs is not None:
            logs, self._reading_history = self._logs, True
            told = await worker.call(logs.history)
            if not logs.complete and told:
                watched.state.control_from = next((e.time for _, e in told if e.time is not None), 0.0)
            now = self._clock()  # the daemon's local time may be ahead of ours: history is never newer than an answer
            for kind, event in told:
                self._node.add_event(self.pipe_dir, event, kind, min(event.time or 0.0, now))
                self._note_session(event.kind, self._monotonic())
            logs.live(self._monotonic)
            if not self.running:
                watched.state.reset()
        self._reading_history = False
        self._judge()

    def poll_logs(self) -> frozenset[EventKind]:
        """Folds what the logs tell since the last time, and answers what kinds of events that was."""
        kinds, self._unreported = self._unreported | self._fold_logs(), _NOTHING
        return kinds

    def _fold_logs(self) -> frozenset[EventKind]:
        if self._logs is None or self._reading_history:
            return _NOTHING
        told = self._logs.poll()
        now, wall = self._monotonic(), self._clock()
        if self._logs.missed():
            self._node.watch(self.pipe_dir).state.control_from = wall
            self.schedule.want(True, True, now)
        for kind, event in told:
            self._node.add_event(self.pipe_dir, event, kind, wall)
            self.schedule.changed(event.kind, now)
            self._limits_told += event.kind == "limit_set"
            self._note_session(event.kind, now)
        return frozenset(event.kind for _, event in told) if told else _NOTHING

    def step(self) -> None:
        """Starts a reading if one is due and none is under way."""
        if self._reading_history:
            return
        self._judge()
        now = self._monotonic()
        if self._session_stays() and self._asking is None:
            self._session_at = None
            self.schedule.ask_now(now)  # only the daemon's own refusal tells a held session from a slow command
        if self._asking is None and self.schedule.due() <= now:
            self._asking = asyncio.get_running_loop().create_task(self._ask())

    async def ask_everything(self) -> None:
        """One complete reading, whatever the schedule says, unless nobody can be asked."""
        self._judge()
        if self._asking is not None:
            await asyncio.wait([self._asking])
        self.schedule.ask_now(self._monotonic())
        if not self.schedule.asleep:
            await self._watched(self._ask())

    async def _watched(self, asking: Coroutine[Any, Any, None]) -> None:
        """Waits for a reading, and looks meanwhile whether the log tells of a session that stays open."""
        self._asking = task = asyncio.get_running_loop().create_task(asking)
        while not task.done():
            await asyncio.wait([task], timeout=_SESSION_LOOK)
            self._unreported |= self._fold_logs()
            self._session_stays()

    @property
    def told(self) -> bool:
        """Whether the logs tell who is there: they are believed and were read from the daemon's start on.

        Of several servers server.log may tell the last one's clients alone; one that is starting or in FAULT is asked
        how it is; a memory limit of the daemon's environment is in no log.
        """
        watched = self._node.watch(self.pipe_dir)
        state, place = watched.state, watched.place
        return (
            watched.watch == "logs"
            and self._logs is not None
            and self._logs.complete
            and state.control_from == -math.inf
            and len(state.servers) < 2
            and all(server.status == "ACTIVE" for server in state.servers.values())
            and place is not None
            and place.limits is not None
            and MEMORY_VARIABLE not in place.limits
            and place.daemon is not None
            and state.daemon_pid == place.daemon.pid
        )

    async def ask_for(self, need: Need) -> None:
        """What ``need`` names, where the logs tell the rest; everything where they do not."""
        self._judge()
        if self._asking is not None or not self.told:
            await self.ask_everything()
        elif not self.schedule.asleep:
            await self._watched(self._ask_for(need))

    async def _ask_for(self, need: Need) -> None:
        try:
            outcome, differs = await self._read_needed(need)
            if outcome is Outcome.OK and differs:
                await self._read(True, True)
        finally:
            self._asking = None

    async def _read_needed(self, need: Need) -> tuple[Outcome, bool]:
        """What ``need`` names, folded into what the logs tell; and whether the answers say something else than those,
        so that a complete reading has to follow."""
        state, begun = self._node.watch(self.pipe_dir).state, self._clock()
        asked = await ask_for(self.control, self._clock, need, tuple(state.servers))
        self._unreported |= self._fold_logs()
        self._probed(asked, begun)
        if asked.query is not None:
            fold_devices(state, asked.query)
        differs = asked.membership is not None and self._differs(asked.membership, need)
        if asked.membership is not None:
            # Which servers there are is the logs' word here, and one may have gone or come meanwhile.
            reading = asked.membership._replace(servers=tuple(state.servers))
            self._node.fold_membership(self.pipe_dir, reading, self._clock())
        if asked.limits is not None:
            self._node.fold_limits(self.pipe_dir, asked.limits)
        return asked.answer.outcome, differs

    def _differs(self, reading: Membership, need: Need) -> bool:
        """Whether a server or a client is otherwise than the logs have told by now."""
        servers = self._node.watch(self.pipe_dir).state.servers
        listed = {pid for pids in reading.clients.values() for pid in pids} - {0}
        return (
            not listed <= self._clients()
            or (need.clients and not servers.keys() <= reading.clients.keys())
            or (need.servers and any(reading.status.get(pid) != server.status for pid, server in servers.items()))
        )

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        if self._logs is not None:
            self._logs.close()

    async def _ask(self) -> None:
        membership, limits = self.schedule.begin(self._monotonic())
        outcome = Outcome.BLOCKED
        try:
            outcome = await self._read(membership, limits)
        finally:
            self.schedule.end(self._monotonic(), outcome)
            self._asking = None
            self._notify()

    async def _read(self, membership: bool, limits: bool) -> Outcome:
        state, begun = self._node.watch(self.pipe_dir).state, self._clock()
        if not membership and not limits and self.told and state.ordinals:
            there = self._clients()
            unnamed = there - self._named
            outcome, differs = await self._read_needed(Need(names=bool(unnamed), clients=not unnamed))
            if outcome is Outcome.OK:
                self._named = there
            if differs:
                self.schedule.want(True, False, self._monotonic())
            return outcome
        if membership or not limits or not state.ordinals:
            asked = await ask_membership(self.control, self._clock, self._named, not state.ordinals or limits)
            self._probed(asked, begun)
            if asked.membership is None:
                return asked.answer.outcome
            self._named = (self._named & self._listed(asked)) | asked.named
            self._node.fold_membership(self.pipe_dir, asked.membership, self._clock())
            self._notify()
        if limits:
            asked = await self._ask_limits(state)
            self._probed(asked, begun)
            if asked.limits is None:
                return asked.answer.outcome
            self._node.fold_limits(self.pipe_dir, asked.limits)
        return Outcome.OK

    async def _ask_limits(self, state: DaemonState) -> Asked:
        """The limits, and the log up to them: who connected before one was set is told apart by their order only."""
        for _ in range(_TRIES):
            self._unreported |= self._fold_logs()
            told = self._limits_told
            asked = await ask_limits(self.control, self._clock, tuple(state.servers), tuple(state.ordinals))
            self._unreported |= self._fold_logs()
            if self._limits_told == told:
                break
        return asked

    def _session_stays(self) -> bool:
        """Whether the log has shown one open session for long enough; the channel is told."""
        stays = self._session_at is not None and self._monotonic() - self._session_at >= HELD_AFTER
        if stays:
            self.control.session_stays(True)
        return stays

    def _note_session(self, kind: EventKind, now: float) -> None:
        if kind in {"session_opened", "session_closed", "daemon_started"}:
            self._session_at = now if kind == "session_opened" else None
            self.control.session_stays(False)

    def _clients(self) -> frozenset[int]:
        """As the logs and the answers so far tell."""
        return frozenset(clients_left(self._node.watch(self.pipe_dir).state))

    def _listed(self, asked: Asked) -> frozenset[int]:
        clients = asked.membership.clients.values() if asked.membership else ()
        return frozenset(pid for pids in clients for pid in pids)

    def _probed(self, asked: Asked, begun: float) -> None:
        answer: Answer[object] = asked.answer
        self._node.set_probe(self.pipe_dir, answer, self._clock(), begun)

    def _judge(self) -> None:
        """Whether there is anybody to ask, and whether the logs can be relied on to tell when."""
        watched = self._node.watch(self.pipe_dir)
        blocker = watched.state.blocked_by
        unanswered = is_silent(watched.probe, watched.state.blocked_known)
        blocked = blocker is not None and watched.state.client(blocker) is not None and unanswered
        place = watched.place
        silent = unspoken(place.protocol, place.static_partitioning) if place is not None else None
        self.control.keep_silent(silent)
        self.schedule.asleep = not self.running or blocked or silent is not None
        trouble = self._logs.trouble if self._logs else "it is not known where its logs are"
        if not self.running or (place is not None and place.protocol == "v3"):
            watched.watch, watched.watch_detail = "none", None  # v3 writes other logs
        elif trouble is None:
            watched.watch, watched.watch_detail = "logs", None
        elif silent is not None:
            watched.watch, watched.watch_detail = "none", f"It is not asked, and its logs cannot be followed: {trouble}"
        else:
            watched.watch = "polling"
            asked = "The daemon is asked every few seconds, and each question goes to its log"
            believed = self._logs is None or self._logs.believed
            watched.watch_detail = f"{asked}: {trouble}" if believed else f"{trouble[:1].upper()}{trouble[1:]}. {asked}"
        watched.watch_remedy = REMEDY if self._logs and not self._logs.believed else None
        self.schedule.polling = watched.watch == "polling"
        self.schedule.told = self.told
        watched.version = self._logs.version if self._logs else None
