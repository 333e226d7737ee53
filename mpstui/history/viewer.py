"""What a screen shows of a node at any time: of one that runs, now and before; of a recording and of logs, then."""

from __future__ import annotations

import asyncio
import math
import os
import time as system
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, TypeVar

from mpstui.control.mps import MpsControl
from mpstui.core.activity import ActivityLook
from mpstui.core.model import Past, Snapshot
from mpstui.core.text import error_text, format_size, path_text, path_word, printable, unprintable
from mpstui.core.trust import ANYBODY, Speaker, is_anothers, written_by
from mpstui.history.player import Player, ShownMoment
from mpstui.history.recording import (
    SPAN,
    FileSink,
    FileTape,
    MemoryTape,
    Recorder,
    RecordingError,
    Tape,
    is_a_screens,
    save,
)
from mpstui.observe.sources import BlockingCalls, NodeSources
from mpstui.observe.watcher import NodeWatcher
from mpstui.system.procfs import user_name

MEMORY: Final = 6 << 20
"""Bytes of memory that a screen takes at most for what was, and half of what it takes in files without a name."""
BACK: Final = 3600.0
"""Seconds that it keeps at most."""
_SPAN: Final = 300.0
"""Seconds after which all that is known is kept anew, which takes a fifth of a second with 700 clients, and a third of
the room beside 14; what came since is told again to show a moment."""
_TICK: Final = 0.25
_LATEST: Final = 2.5e11
WHY: Final = {
    "REPLAY": "this is a recording: that works on a live daemon only",
    "LOGS": "these are logs of the past: that works on a live daemon only",
    "PAST": "the screen shows the past; press End in the overview to go back to now",
}
_KEPT: Final = "A screen has saved this: it begins where what that screen had kept began."
T = TypeVar("T")
What = Literal["REPLAY", "LOGS", "PAST"]


class Viewer:
    """A collector, as a screen needs one, that can be moved in time. All methods belong to one event loop.

    ``open_tape`` is called in a thread, once; a recording begins to play at ``speed``, or stands where that is 0. The
    methods that move answer why they did not, in a sentence. ``teller``: whose word alone all of it is.
    """

    def __init__(
        self,
        what: What,
        open_tape: Callable[[], Tape],
        *,
        speed: float = 1.0,
        trouble: Callable[[], str | None] = lambda: None,
        teller: Speaker | None = None,
        clock: Callable[[], float] = system.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._what = what
        self._open_tape = open_tape
        self._player: Player | None = None
        self._worker = BlockingCalls("mpstui-past")
        self._speed = speed or 1.0
        self._playing = bool(speed)
        self._goes = asyncio.Event()
        """Set when it is to play: until then nothing looks at the clock."""
        self._trouble, self._teller = trouble, teller
        self._clock, self._sleep = clock, sleep
        self._at: float | None = None
        self._short: str | None = None
        """Why it is not the time that was asked for which is shown now."""
        self._moment: ShownMoment | None = None
        self._shown: Snapshot | None = None
        self._callbacks: list[Callable[[Snapshot], None]] = []
        self._meanwhile: Callable[[Snapshot], None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._moving = asyncio.Lock()
        self._events, self._seconds = 0, 0.0
        """What was asked for while a move was under way: it is one move, by the sum."""

    @property
    def live(self) -> NodeWatcher | None:
        """Of the node that runs; None where there is none."""
        return None

    @property
    def why(self) -> str:
        """Why nothing can be changed in the past, one clause."""
        return WHY[self._what]

    def meanwhile(self, callback: Callable[[Snapshot], None], /) -> None:
        """Tell it of now, while the past is shown."""
        self._meanwhile = callback

    # As a collector.

    @property
    def snapshot(self) -> Snapshot | None:
        """What is shown."""
        return self._shown

    @property
    def earlier(self) -> tuple[Snapshot, ...]:
        """Some of what was before it, oldest first; for plots."""
        return self._moment.before if self._moment is not None else ()

    @property
    def begin(self) -> float | None:
        """When what is kept begins; None: not known yet."""
        return self._player.span[0] if self._player is not None else None

    def subscribe(self, callback: Callable[[Snapshot], None], /) -> Callable[[], None]:
        """See Collector."""
        self._callbacks.append(callback)

        def unsubscribe() -> None:
            with suppress(ValueError):
                self._callbacks.remove(callback)

        return unsubscribe

    async def prime(self) -> Snapshot:
        """The first moment, in whatever event loop."""
        player = self._open()
        moment = player.at(player.begin if self._playing else player.span[1])
        return self._dated(moment, moment.time, player) if moment is not None else Snapshot(0.0)

    async def start(self) -> None:
        """See Collector."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._play())

    async def stop(self) -> None:
        """See Collector."""
        task, self._task = self._task, None
        if self._player is not None and self._what == "REPLAY":  # only of a file nobody begins anew
            self._player.leave()
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._worker.close()

    def watch(self, pipe_dir: Path, /) -> None:
        """Nobody is asked."""

    def request_refresh(self, pipe_dir: Path | None = None, /) -> None:
        """Nobody is asked."""

    def heard(self, pipe_dir: Path, /) -> Snapshot | None:
        """What is shown: nothing of it changes."""
        return self._shown

    def changed(self, pipe_dir: Path, /) -> None:
        """Nobody is asked."""

    def look_at(self, pipe_dir: Path | None, /) -> None:
        """Everything is known alike."""

    def watch_activity(self, idle_after: float | None = None) -> None:
        """What was counted was counted."""

    async def activity(self, seconds: float, /) -> ActivityLook:
        """Nobody is counted in the past."""
        from mpstui.core.activity import activity_look

        shown = self._shown or Snapshot(0.0)
        clients = [client for daemon in shown.daemons for client in daemon.clients()]
        return activity_look(shown, seconds, "", {}, {client.key: WHY[self._what] for client in clients})

    # As the node of the operations.

    @property
    def sources(self) -> NodeSources:
        """None: no operation comes so far."""
        raise RecordingError(WHY[self._what])

    def control_for(self, pipe_dir: Path) -> MpsControl:
        """None: no operation comes so far."""
        raise RecordingError(WHY[self._what])

    def set_compute_mode(self, uuid: str, mode: str) -> str | None:
        """Not in the past."""
        return WHY[self._what]

    # Moving.

    async def step(self, events: int) -> str | None:
        """To the next event, or with -1 to the one before; of several, as far as there are so many."""
        self._events += events
        async with self._moving:
            events, self._events = self._events, 0
            at = self._now()
            if not events:
                return None

            def look(player: Player) -> ShownMoment | None:
                return player.next_event(at, events) if events > 0 else player.previous_event(at, -events)

            found, span = await self._ask(lambda player: (look(player), player.span))
            if found is None and events > 0:
                return "There is no later event."
            if found is None:
                return f"The record has no earlier event: it begins at {_told(span[0], span)}."
            await self._stand(found.time)
            return None

    async def move(self, seconds: float) -> str | None:
        """So far on, or back."""
        self._seconds += seconds
        async with self._moving:
            seconds, self._seconds = self._seconds, 0.0
            return await self._go(self._now() + seconds) if seconds else None

    async def jump(self, text: str) -> str | None:
        """To a time as a person writes it: HH:MM, HH:MM:SS, with a date before it, 10m for ten minutes ago.
        A time of day is the one nearest to what is shown that the record has, or else that was before its end. Of a
        time before the record its beginning is shown, which is said there."""
        from mpstui.history.times import time_within

        async with self._moving:
            span = await self._ask(lambda player: player.span)
            try:
                wanted = time_within(text, self._now(), *span)
            except (ValueError, OverflowError):
                wanted = math.nan
            if not 0 <= wanted <= _LATEST:
                shown = printable(text, 40)
                since = "ago" if self._what == "PAST" else "before the end"
                return f"“{shown}” is no time: write 21:29, 21:29:12, 2026-11-20 21:29, or 10m for 10 minutes {since}"
            reach = min(span[0], wanted), max(span[1], wanted)
            first, last, there = (_told(each, reach) for each in (*span, wanted))
            if wanted > span[1] + 1:
                return f"no record of {there}: the record is from {first} to {last}"
            if wanted < span[0] - 1 and self._at != span[0]:
                self._short = f"This is the beginning, {first}: there is no record of {there}."
                await self._stand(span[0])
                return None
            if wanted < span[0] - 1:
                return f"no record of {there}: this is the beginning, {first}"
            return await self._go(wanted)

    async def to_end(self) -> str | None:
        """To now; of a recording, to its end."""
        async with self._moving:
            await self._leave()
            return None

    async def save(self, text: str) -> tuple[bool, str]:
        """Write what is kept into a new file, as a recording; whether it was, and a sentence."""
        try:
            path = _named(text)
            if (problem := unprintable(os.fspath(path))) is not None:
                return False, f"Nothing is written: {problem}"
            async with self._moving:
                (first, last), size = await self._ask(lambda player: (player.span, self._save(player, path)))
        except (RecordingError, RuntimeError, OSError) as error:  # no home folder for that name, or no folder to be in
            return False, error_text(error)
        told = f"{_told(first, (first, last))} to {_told(last, (first, last))}"
        return True, f"{told}, {format_size(size)}, readable by you alone. mpstui replay {path_word(path)} shows it."

    def _save(self, player: Player, path: Path) -> int:
        if not isinstance(player.tape, MemoryTape):
            raise RecordingError("This is a recording already: copy its file.")
        return save(player.tape, path)

    def toggle(self) -> bool:
        """Let time go on from here, or stand; answers whether it is the past that is shown."""
        if self._at is None:
            return False
        self._playing = not self._playing
        self._goes.set()
        self._emit()
        return True

    def _now(self) -> float:
        return self._at if self._at is not None else self._end()

    def _end(self) -> float:
        return self._player.span[1] if self._player is not None else 0.0

    async def _go(self, wanted: float) -> str | None:
        span = await self._ask(lambda player: player.span)
        if wanted >= span[1]:
            late = self._at is not None and self._at >= span[1]
            await self._leave()
            return "This is the end." if late else None
        early = self._at is not None and self._at <= span[0] and wanted < span[0]
        await self._stand(max(span[0], wanted))
        return f"There is no record from before {_told(span[0], span)}." if early else None

    async def _stand(self, time: float) -> None:
        self._playing = False
        await self._show(time)

    async def _show(self, time: float) -> None:
        moment = await self._ask(lambda player: player.at(time))
        if moment is not None:
            self._at, self._moment = time, moment
            self._emit()
        self._short = None

    async def _leave(self) -> None:
        self._playing = False
        span = await self._ask(lambda player: player.span)
        await self._show(span[1])

    async def _ask(self, look: Callable[[Player], T]) -> T:
        return await self._worker.call(lambda: look(self._open()))

    def _open(self) -> Player:
        if self._player is None:
            self._player = Player(self._open_tape(), self._teller)
        return self._player

    def _dated(self, moment: ShownMoment, at: float, player: Player) -> Snapshot:
        first, last = player.span
        gap = player.gap(at) if self._what == "REPLAY" else None
        nothing = f"Nothing was recorded from {_told(gap[0], gap)} to {_told(gap[1], gap)}." if gap else None
        note = " ".join(filter(None, (self._short, nothing, player.trouble, self._trouble()))) or None
        past = Past(self._what, at, first, last, self._playing, self._speed, WHY[self._what], note, gap, moment.indices)
        return replace(self._told(moment.snapshot), past=past)

    def _told(self, snapshot: Snapshot) -> Snapshot:
        """What is to be done is to be done there."""
        from mpstui.history.postmortem import as_told_there

        return as_told_there(snapshot)

    def _emit(self) -> None:
        if self._moment is None or self._at is None or self._player is None:
            return
        self._tell(self._dated(self._moment, self._at, self._player))

    def _tell(self, shown: Snapshot) -> None:
        self._shown = shown
        for callback in tuple(self._callbacks):
            callback(shown)

    async def _play(self) -> None:
        """From its beginning on; where it is not to play, its end."""
        async with self._moving:
            await self._show(await self._ask(lambda player: player.begin if self._playing else player.span[1]))
        await self._go_on()

    async def _go_on(self) -> None:
        before = self._clock()
        while True:
            if not self._playing:
                self._goes.clear()
                await self._goes.wait()
                before = self._clock()
            await self._sleep(_TICK)
            now = self._clock()
            passed, before = now - before, now
            if not self._playing or self._at is None:
                continue
            async with self._moving:
                if self._playing and self._at is not None:
                    end = self._end()
                    await self._show(min(end, self._at + passed * self._speed))
                    if self._at is not None and self._at >= end:
                        await self._arrived()

    async def _arrived(self) -> None:
        """It has come to its end by itself."""
        self._playing = False
        self._emit()


def of_file(path: Path, speed: float) -> Viewer:
    """Of a recording. Raises RecordingError."""
    tape = FileTape(path)
    teller = None
    told = [_KEPT] if is_a_screens(tape) else []
    if is_anothers(tape.uid, os.geteuid()):
        teller = written_by(tape.uid, user_name(tape.uid))
        whose = user_name(tape.uid)
        text = f"This file belongs to {whose}: it shows what {whose} wrote."
        if tape.uid == ANYBODY:
            text = "Other users can write to this file: anybody may have made up what it shows."
        told.insert(0, text)
    player = Player(tape, teller)
    if player.at(player.span[0]) is None:
        tape.close()
        why = player.trouble or "it ends before anything of the node was read"
        raise RecordingError(f"{path_text(path)}: {why.removesuffix(' It is shown up to there.')}")
    return Viewer(
        "REPLAY",
        lambda: tape,
        speed=speed,
        trouble=lambda: " ".join(filter(None, (tape.trouble, *told))),
        teller=teller,
    )


def of_logs(log_dirs: Sequence[Path]) -> Viewer:
    """Of logs without a daemon. Raises RecordingError where none can be opened."""
    from mpstui.history.log_recording import LogTape
    from mpstui.history.reader import LogHistory
    from mpstui.system.trusted import UnreadableLogError

    errors = []
    for log_dir in log_dirs:
        try:
            LogHistory(log_dir).close()
        except UnreadableLogError as error:
            errors.append(str(error))
    if len(errors) == len(log_dirs):
        raise RecordingError("; ".join(errors))
    read: list[LogTape] = []

    def open_tape() -> LogTape:
        read[:] = [LogTape(log_dirs)]
        return read[0]

    return Viewer("LOGS", open_tape, speed=0.0, trouble=lambda: read[0].trouble if read else None)


class LiveViewer(Viewer):
    """A node that runs, and what was seen of it before: the last hour, as far as ``MEMORY`` goes."""

    def __init__(self, live: NodeWatcher, *, most: int = MEMORY, back: float = BACK) -> None:
        self._tape = MemoryTape(most, back)
        super().__init__("PAST", lambda: self._tape.copy(), speed=0.0)
        self._live = live
        # Who looks back has all of it written first: until then what waits need not be packed each few seconds.
        self._recorder = Recorder(self._tape, system.time, span=_SPAN, flush=math.inf)
        self._tightening: asyncio.Task[None] | None = None
        self._first: float | None = None
        live.listen(self._recorder)
        live.subscribe(self._receive)

    @property
    def live(self) -> NodeWatcher | None:
        """Of the node."""
        return self._live

    @property
    def snapshot(self) -> Snapshot | None:
        """What is shown: the newest one, or one of the past."""
        return self._shown if self._at is not None else self._live.snapshot

    @property
    def kept(self) -> int:
        """Bytes that are kept of what was."""
        return self._tape.size

    @property
    def begin(self) -> float | None:
        """See Viewer; of what was written so far, and before anything was, of what was seen first."""
        heads = self._tape.heads()
        return heads[0].first if heads else self._first

    def _receive(self, snapshot: Snapshot) -> None:
        if self._first is None:
            self._first = snapshot.time
        if self._at is None:
            if not self._moving.locked():
                self._player = None  # of one that saved, or found no other moment
            self._tell(snapshot)
        elif self._meanwhile is not None:
            self._meanwhile(snapshot)

    async def prime(self) -> Snapshot:
        """See Collector."""
        return await self._live.prime()

    async def start(self) -> None:
        """See Collector."""
        await self._live.start()
        if self._task is None:
            self._moving = asyncio.Lock()
            self._task = asyncio.get_running_loop().create_task(self._go_on())
            self._tightening = asyncio.get_running_loop().create_task(self._tighten())

    async def _tighten(self) -> None:
        """What was is kept where it takes least memory, soon after it is whole."""
        while True:
            await self._sleep(SPAN)
            await self._worker.call(self._tape.tighten)

    async def stop(self) -> None:
        """See Collector."""
        task, self._tightening = self._tightening, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await super().stop()
        await self._live.stop()

    def watch(self, pipe_dir: Path, /) -> None:
        """See Collector."""
        self._live.watch(pipe_dir)

    def request_refresh(self, pipe_dir: Path | None = None, /) -> None:
        """See Collector."""
        self._live.request_refresh(pipe_dir)

    def heard(self, pipe_dir: Path, /) -> Snapshot | None:
        """See Collector."""
        return self._live.heard(pipe_dir)

    def changed(self, pipe_dir: Path, /) -> None:
        """See Collector."""
        self._live.changed(pipe_dir)

    def look_at(self, pipe_dir: Path | None, /) -> None:
        """See Collector."""
        self._live.look_at(pipe_dir)

    def watch_activity(self, idle_after: float | None = None) -> None:
        """See Collector."""
        self._live.watch_activity(idle_after)

    async def activity(self, seconds: float, /) -> ActivityLook:
        """See Collector."""
        return await (super().activity(seconds) if self._at is not None else self._live.activity(seconds))

    @property
    def sources(self) -> NodeSources:
        """Of the node."""
        return self._live.sources

    def control_for(self, pipe_dir: Path) -> MpsControl:
        """Of the node."""
        return self._live.control_for(pipe_dir)

    def set_compute_mode(self, uuid: str, mode: str) -> str | None:
        """Of the node."""
        return self._live.set_compute_mode(uuid, mode)

    def _told(self, snapshot: Snapshot) -> Snapshot:
        return snapshot

    def _now(self) -> float:
        return self._at if self._at is not None else system.time()

    async def _ask(self, look: Callable[[Player], T]) -> T:
        """On what is kept up to this moment."""
        self._recorder.flush()
        self._player = None
        return await super()._ask(look)

    async def _leave(self) -> None:
        await self._arrived()

    async def _arrived(self) -> None:
        """Back to now; nothing of what was read of before is kept."""
        self._playing, self._at, self._moment, self._player = False, None, None, None
        if self._live.snapshot is not None:
            self._tell(self._live.snapshot)


def _named(text: str) -> Path:
    """The file that somebody typed. Raises RuntimeError where the home folder that it names is not known."""
    return Path(text.strip()).expanduser().absolute()


def _told(time: float, span: tuple[float, float]) -> str:
    """With the date where the span is longer than a day."""
    moment = datetime.fromtimestamp(time)
    same = datetime.fromtimestamp(span[0]).date() == datetime.fromtimestamp(span[1]).date() == moment.date()
    return moment.strftime("%H:%M:%S" if same else "%Y-%m-%d %H:%M:%S")


class Recording:
    """Writes down all that a collector hears, into a file; enter it, and leave it at the end. Raises RecordingError."""

    def __init__(self, live: NodeWatcher, path: Path, most: int, seconds: float, *, masked: bool = False) -> None:
        self._live = live
        self._sink = FileSink(path, most, seconds, new=masked)
        mask = None
        if masked:
            from mpstui.core.mask import Mask

            mask = Mask(shaped=True, names=user_name)
        self._recorder = Recorder(self._sink, system.time, mask=mask)
        live.listen(self._recorder)

    @property
    def trouble(self) -> str | None:
        """Why nothing more is written; None while it is."""
        return self._recorder.trouble

    @property
    def snapshot(self) -> Snapshot | None:
        """The latest one."""
        return self._live.snapshot

    async def __aenter__(self) -> Recording:
        await self._live.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._live.stop()
        with suppress(OSError):
            self._recorder.end()
        self._sink.close()
