"""Keeps one daemon's part of the state up to date: follows its logs, asks it when the schedule says so."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from mpstui.control.answer import Answer, Outcome
from mpstui.control.holder import HELD_AFTER
from mpstui.control.mps import MpsControl
from mpstui.control.protocol import LEGACY, ControlProtocol, protocol_of
from mpstui.control.wire import Membership
from mpstui.core.model import MEMORY_VARIABLE, EventKind, ProcessKey
from mpstui.core.trust import ANYBODY, Speaker
from mpstui.observe.discovery import Place, file_id, find_speaker
from mpstui.observe.logs import CHUNK_BYTES, OTHERS_BYTES, LogWatch
from mpstui.observe.poll import Asked, Need, Schedule, ask_for, ask_limits, ask_membership
from mpstui.observe.problems import clients_left, is_silent
from mpstui.observe.reducer import Knows, NodeState, Watch, Watching
from mpstui.observe.sources import BlockingCalls
from mpstui.observe.state import FROM_START, DaemonState
from mpstui.system.trusted import REMEDY, owners_of

Clock = Callable[[], float]
_SESSION_LOOK = 0.5
"""Seconds between two looks at the log while somebody waits for the daemon's answers."""
_WHOLE = 60.0
"""Seconds after which a daemon of protocol 3 is asked for everything again, where no other time is set."""
_TRIES = 3
"""Times that the limits are asked for while somebody sets one after the other."""
_STANDARD_OUTPUT = "its log is its standard output (it was started with -f): the journal or the container's log has it"
_ELSEWHERE = "Its path leads to another directory than a moment ago: the answer is not used."
_NOTHING: frozenset[EventKind] = frozenset()


class DaemonWatcher:
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
        self.elsewhere = False
        """Whether the directory's name was seen to lead to another one than the place that is known."""
        self._logs: LogWatch | None = None
        self._reading_history = True
        self._named: frozenset[int] = frozenset()
        """Clients of which ``ps`` had a row, and all who were there when it was asked."""
        self._sought: frozenset[int] = frozenset()
        self._whole = -math.inf
        """When a daemon of protocol 3 was last asked for everything."""
        self._asking: asyncio.Task[None] | None = None
        self._session_at: float | None = None
        self._doubts = False
        """Whether to look for clients of whom the logs have not told."""
        self._unreported = _NOTHING
        self._limits_told = 0
        self._lines_missed = 0
        self._memory_unset = False
        """Whether no memory limit was set in a part of control.log that is too long to be read."""
        self._asked_whole: ProcessKey | None = None
        """Which daemon was asked for everything, while each line that it wrote since has been read."""

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

    async def open_logs(self, worker: BlockingCalls) -> None:
        """Reads the history of the place's log directory, once for each directory."""
        watched = self._node.watch(self.pipe_dir)
        known = self._logs.log_dir if self._logs else None
        # Where a daemon that is gone wrote its logs cannot always be found out; its successor most likely writes there.
        log_dir = (watched.place.log_dir if watched.place else None) or known
        owners = watched.place.log_owners if watched.place else owners_of(None)
        look = OTHERS_BYTES if self._node.is_anothers(self.pipe_dir) else CHUNK_BYTES
        if not self._reading_history and known == log_dir:
            if self._logs is not None:
                self._logs.believe(owners, look)
            return
        if self._logs is not None:
            self._logs.close()
        spoken = _protocol(watched.place)
        self._logs = LogWatch(log_dir, owners, spoken, look) if log_dir is not None else None
        self._asked_whole, self._memory_unset = None, False
        if self._logs is not None:
            logs, self._reading_history = self._logs, True
            told = await worker.call(logs.history)
            if not logs.complete and told:
                first = next((e.time for _, e in told if e.time is not None), None)
                self._memory_unset = await worker.call(logs.memory_unset)
                start = self._clock() if first is None else first
                self._node.read_from(self.pipe_dir, start, memory_unset=self._memory_unset)
            now = self._clock()  # the daemon's local time may be ahead of ours: history is never newer than an answer
            with self._node.untold():
                for kind, event in told:
                    self._node.add_event(self.pipe_dir, event, kind, min(event.time or 0.0, now))
                    self._note_session(event.kind, self._monotonic())
            logs.live(self._monotonic)
            if not self.running:
                self._node.forget(self.pipe_dir)
        self._reading_history = False
        self._judge()

    def poll_logs(self) -> frozenset[EventKind]:
        """Folds what the logs tell since the last time, and answers what kinds of events that was."""
        kinds, self._unreported = self._unreported | self._fold_logs(), _NOTHING
        return kinds

    def hear(self) -> bool:
        """Folds what the logs tell, for whoever cannot wait for the next look; whether there was anything."""
        self._unreported |= (told := self._fold_logs())
        return bool(told)

    def _fold_logs(self) -> frozenset[EventKind]:
        if self._logs is None or self._reading_history:
            return _NOTHING
        told = self._logs.poll()
        now, wall = self._monotonic(), self._clock()
        if self._logs.missed():
            self._asked_whole, self._lines_missed = None, self._lines_missed + 1
            self._memory_unset = False
            self._node.read_from(self.pipe_dir, wall)
            self.schedule.want(True, True, now)
        for kind, event in told:
            self._node.add_event(self.pipe_dir, event, kind, wall)
            self.schedule.changed(event.kind, now)
            self._limits_told += event.kind == "limit_set"
            if event.values.get("command", "").startswith("sm_partition "):
                self.schedule.want(False, True, now)
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

    def doubt(self) -> None:
        """NVML lists a client that is not known here: another daemon's, unless the logs do not tell everything."""
        if self.told:
            self._doubts = True
            self.schedule.doubt(self._monotonic())
        else:
            self.schedule.want(True, False, self._monotonic())

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

    async def give_up(self, seconds: float) -> None:
        """Waits no longer for what has not been answered within so many ``seconds``; what was told by then holds."""
        if (asking := self._asking) is None:
            return
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        self._asking = None
        text = (
            f"The control daemon has not answered within {seconds:g} s; it is another user's, and was not waited for."
        )
        self._probed(Asked(Answer("", Outcome.BLOCKED, message=text)), self._clock())

    @property
    def told(self) -> bool:
        """Whether the logs tell who is there: they are believed and were read from the daemon's start on, or from
        before it was asked for everything."""
        return self._tell(self._seen_whole)

    @property
    def _seen_whole(self) -> bool:
        watched = self._node.watch(self.pipe_dir)
        state, place = watched.state, watched.place
        if self._logs is None or place is None or place.daemon is None:
            return False
        from_start = self._logs.complete and state.control_from == FROM_START and state.daemon_pid == place.daemon.pid
        return from_start or self._asked_whole == place.daemon

    def _tell(self, seen: bool) -> bool:
        """Of several servers server.log may tell the last one's clients alone; one that is starting or in FAULT is
        asked how it is; a memory limit of the daemon's environment is in no log."""
        watched = self._node.watch(self.pipe_dir)
        state, place = watched.state, watched.place
        return (
            seen
            and watched.how.watch == "logs"
            and self._logs is not None
            and len(state.servers) < 2
            and all(server.status == "ACTIVE" for server in state.servers.values())
            and place is not None
            and place.daemon is not None
            and place.limits is not None
            and MEMORY_VARIABLE not in place.limits
        )

    async def ask_for(self, need: Need) -> None:
        """What ``need`` names, where the logs tell the rest; everything where they do not.

        Where control.log is too long to be read whole, server.log still tells of the server and its clients. That it
        is the daemon's server is asked; a limit that was set in the part not read is asked for too, all of memory's
        where one of those was.
        """
        self._judge()
        if self._asking is None and not self.told and self._cut and (self._memory_unset or not need.memory):
            known = self._node.watch(self.pipe_dir).state.servers.values()
            unknown = need.devices and any(server.limits.percentage is None for server in known)
            need = need._replace(listed=True, servers=need.servers or unknown)
        elif self._asking is not None or not self.told:
            await self.ask_everything()
            return
        if not self.schedule.asleep:
            behind = self._logs is not None and not self._logs.serves
            await self._watched(self._ask_for(need._replace(contexts=need.clients and behind)))

    @property
    def _cut(self) -> bool:
        """Whether it is control.log's begin alone that was not read."""
        return self._logs is not None and self._logs.serves and not self._logs.complete and self._tell(True)

    async def _ask_for(self, need: Need) -> None:
        try:
            outcome, differs = await self._read_needed(need)
            if outcome is Outcome.OK and differs:
                await self._read(True, True)
            elif outcome is Outcome.OK and need.partitions:
                await self._read_partitions()
        finally:
            self._asking = None

    async def _read_needed(self, need: Need) -> tuple[Outcome, bool]:
        """What ``need`` names, folded into what the logs tell; and whether the answers say something else than those,
        so that a complete reading has to follow."""
        state, begun = self._node.watch(self.pipe_dir).state, self._clock()
        asked = await self._by_its_own(ask_for(self.control, self._clock, need, tuple(state.servers)))
        self._unreported |= self._fold_logs()
        self._probed(asked, begun)
        self._named |= asked.named
        if asked.query is not None:
            self._node.fold_devices(self.pipe_dir, asked.query)
        differs = asked.membership is not None and self._differs(asked.membership, need)
        if asked.membership is not None:
            # Which servers there are is the logs' word here, and one may have gone or come meanwhile; where the daemon
            # has named others, a complete reading follows.
            reading = asked.membership._replace(servers=tuple(state.servers))
            self._node.fold_membership(self.pipe_dir, reading, self._clock())
        if asked.limits is not None:
            self._node.fold_limits(self.pipe_dir, asked.limits)
        return asked.answer.outcome, differs

    def _differs(self, reading: Membership, need: Need) -> bool:
        """Whether a server or a client is otherwise than the logs have told by now."""
        servers = self._node.watch(self.pipe_dir).state.servers
        # Of a server whose contexts were asked for, the logs need not have told of its clients.
        listed = {pid for server, pids in reading.clients.items() if server not in reading.contexts for pid in pids}
        listed.discard(0)
        return (
            not listed <= self._clients()
            or (need.listed and set(reading.servers) != servers.keys())
            or (need.clients and not servers.keys() <= reading.clients.keys())
            or (
                need.servers
                and not self._lacks("get_server_status")
                and any(reading.status.get(pid) != server.status for pid, server in servers.items())
            )
        )

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        if self._logs is not None:
            self._logs.close()

    async def _ask(self) -> None:
        quiet = self.schedule.quiet
        membership, limits = self.schedule.begin(self._monotonic())
        outcome = Outcome.BLOCKED
        try:
            outcome = await self._read(membership, limits, quiet)
            if outcome is Outcome.OK:
                await self._read_partitions()
        finally:
            self.schedule.end(self._monotonic(), outcome)
            self._asking = None
            self._notify()

    async def _read(self, membership: bool, limits: bool, quiet: bool = False) -> Outcome:
        if self.control.protocol.named_servers:
            return await self._read_v3(quiet)
        state, begun = self._node.watch(self.pipe_dir).state, self._clock()
        place, missed = self._node.watch(self.pipe_dir).place, self._lines_missed
        devices = bool(state.ordinals) or self._lacks("device_query")
        doubts, self._doubts = self._doubts, False
        if not membership and not limits and self.told and devices:
            there = self._clients()
            new, unnamed = there - self._sought, there - self._named
            need = Need(names=bool(unnamed), clients=doubts or not new, listed=doubts)
            outcome, differs = await self._read_needed(need)
            if outcome is Outcome.OK:
                self._named, self._sought = self._named & there, there
            if differs:
                self.schedule.want(True, False, self._monotonic())
            return outcome
        if membership or not limits or not devices:
            asked = await self._by_its_own(
                ask_membership(self.control, self._clock, self._named, not state.ordinals or limits)
            )
            self._take_devices()
            self._probed(asked, begun)
            if asked.membership is None:
                return asked.answer.outcome
            self._sought = self._listed(asked)
            self._named = (self._named | asked.named) & self._sought
            self._node.fold_membership(self.pipe_dir, asked.membership, self._clock())
            self._notify()
        if limits:
            asked = await self._by_its_own(self._ask_limits(state))
            self._probed(asked, begun)
            if asked.limits is None:
                return asked.answer.outcome
            self._node.fold_limits(self.pipe_dir, asked.limits)
        if membership and limits and place is not None and self._node.watch(self.pipe_dir).place == place:
            self._asked_whole = place.daemon if self._lines_missed == missed else None
        return Outcome.OK

    async def _read_v3(self, quiet: bool) -> Outcome:
        """Everything that a daemon of protocol 3 tells; while it is ``quiet``, who is there, and the rest once in a
        while, as others may set it. What is not understood of its servers makes it read-only."""
        begun, now = self._clock(), self._monotonic()
        recent = now - self._whole < (self.schedule.reconcile or _WHOLE)
        known = self._node.watch(self.pipe_dir).state.v3 if quiet and recent else None
        answer, found = await self.control.read_v3(known)
        if (exchanged := await self._exchanged()) is not None:
            return exchanged.answer.outcome
        if known is None and found is not None:
            self._whole = now
        unclear = found is None and answer.outcome in {Outcome.UNREADABLE, Outcome.REFUSED, Outcome.NOT_PERMITTED}
        self._probed(Asked(answer if not unclear else replace(answer, outcome=Outcome.OK, message="")), begun)
        if found is None and not unclear:
            return answer.outcome
        detail = None
        if unclear:
            detail = f"it runs with MPS protocol 3, and what it answers is not understood: {answer.message.rstrip('.')}"
        self._node.fold_v3(self.pipe_dir, found, detail, begun, self._clock())
        return Outcome.OK

    async def _read_partitions(self) -> None:
        """The static partitions; a client that comes or goes may make one free."""
        if self.control.protocol.partitions() is None:
            return
        begun = self._clock()
        answer = await self.control.partitions()
        if await self._exchanged() is not None:
            return
        if answer.outcome not in {Outcome.OK, Outcome.REFUSED, Outcome.UNREADABLE}:
            self._probed(Asked(answer), begun)
            return
        self._node.fold_partitions(self.pipe_dir, answer.value, answer.message or None)

    def _lacks(self, command: str) -> bool:
        return command in self.control.capabilities.unknown

    def _take_devices(self) -> None:
        """Where the daemon cannot say which device it calls by which ordinal."""
        state = self._node.watch(self.pipe_dir).state
        if state.ordinals or not self._lacks("device_query"):
            return
        if found := self._node.ordinals_unasked(self.pipe_dir):
            self._node.take_devices(self.pipe_dir, found)
            self.schedule.want(False, True, self._monotonic())

    async def _by_its_own(self, asking: Awaitable[Asked]) -> Asked:
        """The answers, where those have given them whose the place was said to be."""
        asked = await asking
        return await self._exchanged() or asked

    async def _exchanged(self) -> Asked | None:
        """Nothing that was answered, where somebody has put other sockets there since one looked whose they are, or
        before: in a directory as a daemon makes it, anybody can, and root's daemon would have said what a stranger's,
        or another one of root's, did."""
        place = self._node.watch(self.pipe_dir).place
        if place is None or (place.speaker.folder is None and not place.speaker.stamp):
            return None
        if not place.speaker.stamp:
            self.elsewhere = await asyncio.to_thread(file_id, self.pipe_dir) not in {None, place.speaker.folder}
            return Asked(Answer("", Outcome.NOT_PERMITTED, message=_ELSEWHERE, asked=False)) if self.elsewhere else None
        now = await asyncio.to_thread(find_speaker, self.pipe_dir)
        same = now.without_times.stamp == place.speaker.without_times.stamp
        if same and now.uid == place.speaker.uid:
            return None
        why = "its sockets were exchanged while it was asked: the answer is not used"
        if same and place.speaker.uid is None:  # who listens there was looked at with the place
            why = place.speaker.why
        by = next((uid for uid in (now.uid, now.by, place.speaker.uid, place.speaker.by) if uid), ANYBODY)
        steered, reached = now.steered or place.speaker.steered, place.speaker.reached if same else None
        speaker = Speaker(
            None, why, now.stamp, by, (*now.sockets, ANYBODY), steered, reached, not same or place.speaker.listens
        )
        doubted = place._replace(speaker=speaker, detail=why)
        every = (watched.place for watched in self._node.watched.values())
        self._node.set_places([doubted if each is place else each for each in every if each is not None])
        return Asked(Answer("", Outcome.NOT_PERMITTED, message=f"{why[0].upper()}{why[1:]}.", asked=False))

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
        if not answer.asked:
            return
        self._node.set_probe(self.pipe_dir, answer, self._clock(), begun)
        self._know(self._node.watch(self.pipe_dir).place)

    def _judge(self) -> None:
        """Whether there is anybody to ask, and whether the logs can be relied on to tell when."""
        watched = self._node.watch(self.pipe_dir)
        blocker = watched.state.blocked_by
        unanswered = is_silent(watched.probe, watched.state.blocked_known)
        blocked = blocker is not None and watched.state.client(blocker) is not None and unanswered
        place = watched.place
        protocol = _protocol(place)
        silent = protocol.silent
        self.control.speak(protocol)
        self._know(place)
        self.schedule.asleep = not self.running or blocked or (silent is not None and not protocol.named_servers)
        self.schedule.asleep = self.schedule.asleep or watched.state.not_understood is not None
        foreground = place is not None and place.foreground and self._logs is None
        nowhere = _STANDARD_OUTPUT if foreground else "it is not known where its logs are"
        trouble = self._logs.trouble if self._logs else nowhere
        watch: Watch = "polling"
        detail: str | None = None
        if not self.running:
            watch = "none"
        elif protocol.named_servers:
            detail = "What a daemon of MPS protocol 3 writes into its logs is not known: it is asked every few seconds"
        elif trouble is None:
            watch = "logs"
        elif silent is not None:
            watch, detail = "none", f"It is not asked, and its logs cannot be followed: {trouble}"
        else:
            asked = "The daemon is asked every few seconds, and each question goes to its log"
            believed = self._logs is None or self._logs.believed
            first = foreground or not believed
            detail = f"{trouble[:1].upper()}{trouble[1:]}. {asked}" if first else f"{asked}: {trouble}"
        remedy = REMEDY if self._logs and not self._logs.believed else None
        if foreground:
            remedy = "Read it with “mpstui events --journal UNIT”, or pipe it into “mpstui events -”."
        if protocol.named_servers:
            remedy = "Nothing is to be done; r asks at once."
        how = Watching(watch, detail, remedy, self._logs.version if self._logs else None)
        if watch != "logs":
            self._asked_whole = None
        if how != watched.how:
            self._node.set_watching(self.pipe_dir, how)
        self.schedule.polling = watch == "polling"
        self.schedule.told = self.told

    def _know(self, place: Place | None) -> None:
        """What the daemon that runs there now has said that it does not know, to us or, in its log, to anybody."""
        daemon = place.daemon if place is not None else None
        pid, logged = self._logs.unknown if self._logs is not None and self._logs.believed else (0, frozenset())
        known = self.control.capabilities
        known.belong_to(daemon, logged if daemon is not None and daemon.pid == pid else frozenset())
        knows = Knows(known.unknown, known.known)
        if knows != self._node.watch(self.pipe_dir).knows:
            self._node.set_knows(self.pipe_dir, knows)
        self._take_devices()


def _protocol(place: Place | None) -> ControlProtocol:
    return protocol_of(place.protocol, place.static_partitioning) if place is not None else LEGACY
