"""Logs that nobody writes any more, as a recording: so that a screen can show them at any time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import merge
from itertools import chain
from pathlib import Path
from typing import Final

from mpstui.control.grammar import LogKind
from mpstui.core.model import Event, ProcessKey
from mpstui.core.text import path_text
from mpstui.history.postmortem import standing_of
from mpstui.history.reader import LogHistory
from mpstui.history.recording import MemoryTape, Recorder, RecordingError
from mpstui.observe.discovery import Place
from mpstui.observe.reducer import NodeState
from mpstui.system.trusted import UnreadableLogError

READ: Final = 32 << 20
"""Bytes of each log that are read, the newest ones."""
_KEPT: Final = 64 << 20
_MANY: Final = 1000


class LogTape(MemoryTape):
    """What the logs in some directories tell. Raises RecordingError where none can be read."""

    def __init__(self, log_dirs: Sequence[Path]) -> None:
        super().__init__(_KEPT, math.inf)
        self.trouble: str | None = None
        """Whose word they are, and what of them is missing; sentences."""
        histories: list[LogHistory] = []
        told: list[str] = []
        try:
            for log_dir in log_dirs:
                try:
                    histories.append(LogHistory(log_dir))
                except UnreadableLogError as error:
                    told.append(str(error))
            if not histories:
                raise RecordingError("; ".join(told) or "no log directory is known")
            told += [text for history in histories for text in (*history.trouble, *history.left_out)]
            whose = [f"{path_text(h.log_dir)} holds {h.speaker.why}" for h in histories if h.speaker.by is not None]
            if self._read(histories):
                told.append(f"only the last {READ >> 20} MiB of each log are shown")
        finally:
            for history in histories:
                history.close()
        missing = [f"A part is missing: {'; '.join(told)}."] if told else []
        self.trouble = " ".join([*(f"{each}." for each in whose), *missing]) or None
        if not self.heads() or not self.heads()[-1].last:
            raise RecordingError(f"the logs in {', '.join(map(path_text, log_dirs))} have no events")

    def _read(self, histories: Sequence[LogHistory]) -> bool:
        """Answers whether something older was left out."""
        now = 0.0
        streams = [
            ((time, number, kind, event) for time, kind, event in history.entries(READ))
            for number, history in enumerate(histories)
        ]
        entries = merge(*streams, key=lambda entry: entry[0])
        first = next(entries, None)
        # A recording is of one node: where a part of it is simulated, of none of it is said that it is real.
        made_up = any(history.origin.since(first[0] if first is not None else None) for history in histories)
        node = NodeState(source="simulated" if made_up else "real")
        node.listener = recorder = Recorder(self, lambda: now, span=math.inf, many=_MANY, flush=math.inf)
        places = {
            history: Place(history.log_dir, "absent", history.log_dir, speaker=history.speaker) for history in histories
        }
        for time, number, kind, event in chain(() if first is None else (first,), entries):
            if time > now:
                if now:
                    recorder(node, "snapshot", (now,))
                now = time
            history = histories[number]
            places[history] = self._fold(node, history, places, kind, event, now)
        if now:
            recorder(node, "snapshot", (now,))
        recorder.end()
        return any(history.cut for history in histories)

    @staticmethod
    def _fold(
        node: NodeState,
        history: LogHistory,
        places: dict[LogHistory, Place],
        kind: LogKind,
        event: Event,
        now: float,
    ) -> Place:
        """Folds an event; answers how its daemon is by then. One that was killed runs until another one starts."""
        place = places[history]
        first = place.pipe_dir not in node.watched
        if event.kind == "daemon_started" and (told := event.values.get("pipe_dir")):
            taken = {each.pipe_dir for other, each in places.items() if other is not history}
            place = place._replace(pipe_dir=place.pipe_dir if Path(told) in taken else Path(told))
        if first or place != places[history]:
            node.set_places(tuple({**places, history: place}.values()), now)
            node.set_past(place.pipe_dir)
        node.add_event(place.pipe_dir, event, kind, now)
        state = node.watch(place.pipe_dir).state
        standing, how = standing_of(history, state)
        shown = place._replace(
            state=standing,
            daemon=ProcessKey(state.daemon_pid) if state.daemon_pid is not None else None,
            start_time=event.time if event.kind == "daemon_started" else place.start_time,
            version=history.version,
            protocol="legacy",
            detail=how,
        )
        if shown != place:
            node.set_places(tuple({**places, history: shown}.values()), now)
            node.set_past(shown.pipe_dir)
        return shown
