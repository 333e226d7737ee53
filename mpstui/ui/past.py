"""Back in time: the keys that move, the bar that shows where one is, and the line that takes a time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final, cast

from textual.binding import Binding, BindingType

from mpstui.core.model import Past, Snapshot
from mpstui.ui.contract import Host
from mpstui.ui.keys import shown_key
from mpstui.ui.lines import Line, LineWidget, StyledScreen, justify, width_of
from mpstui.ui.typeahead import opens

if TYPE_CHECKING:
    from textual.widgets import Input

MINUTE = 60.0
TIMES: Final = (
    ("21:29", "that time of day, the one nearest to what is shown; 21:29:12 with seconds"),
    ("2026-11-20 21:29", "on another day"),
    ("10m", "10 minutes ago; in a recording, or in logs alone: before their end; 30s, 2h, 1d"),
)
"""What may be typed for a time, and what it means."""
_AGO: Final = ((600, "10m = 10 minutes"), (120, "2m = 2 minutes"), (60, "1m = a minute"), (10, "10s = 10 seconds"))
_TRACK = 8
"""Cells of the bar that it is shown with at least."""


def track(past: Past, width: int) -> str:
    """Where in it one is, on a line of so many cells."""
    whole = past.last - past.first
    part = (past.at - past.first) / whole if whole > 0 else 1.0
    at = round(min(1.0, max(0.0, part)) * (width - 1))
    return "━" * at + "●" + "─" * (width - 1 - at)


def examples(past: Past | None, begin: float | None, now: float) -> str:
    """Times that may be typed. They lie in what is kept, where that is long enough for a whole minute."""
    first, last = (past.first, past.last) if past is not None else (begin if begin is not None else now, now)
    at = past.at if past is not None else last - 10 * MINUTE  # none that is to come
    at = min(max(at, first + MINUTE), last)
    since = "ago" if past is None or past.what == "PAST" else "before the end"
    back = next((text for seconds, text in _AGO if last - first >= seconds), _AGO[-1][1])
    return time.strftime("go to: %H:%M  %H:%M:%S  %Y-%m-%d %H:%M  ", time.localtime(at)) + f"{back} {since}"


class PastBar(LineWidget):
    """From when to when there is something, where one is, and the keys that move."""

    DEFAULT_CSS = "PastBar { height: 1; display: none; background: $surface; }"

    def __init__(self) -> None:
        super().__init__(id="past")
        self._past: Past | None = None
        self._keys: Line = ()
        self._more: Sequence[Line] = ()

    def show(self, past: Past | None, keys: Line, more: Sequence[Line] = ()) -> None:
        """What is shown of the past; None: nothing. ``more``: keys of which each is told where there is room."""
        self._past, self._keys, self._more = past, keys, more
        self.repaint()

    def lines(self, width: int, height: int) -> list[Line]:
        """See LineWidget."""
        past = self._past
        if past is None:
            return [()]
        same = time.localtime(past.first)[:3] == time.localtime(past.last)[:3]
        form = "%H:%M:%S" if same else "%m-%d %H:%M"
        first, last = (time.strftime(form, time.localtime(each)) for each in (past.first, past.last))
        how = f" ×{past.speed:g} " if past.playing else ""
        right: Line = ((f"{how}", "bold"), *self._keys)
        room = width - width_of(right) - len(first) - len(last) - 6
        for more in self._more:
            if room - width_of(more) >= _TRACK:
                right, room = (*right, *more), room - width_of(more)
        bar = track(past, min(60, max(_TRACK, room)))
        left: Line = ((f" {first} ", "dim"), (bar, "label"), (f" {last} ", "dim"))
        return [justify(left, (*right, (" ", "dim")), width)]


class WithPast(StyledScreen):
    """A screen that can be moved in time."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("less_than_sign", "step(-1)", "Time: to the event before", show=False, id="past.event_before"),
        Binding("greater_than_sign", "step(1)", "Time: to the next event", show=False, id="past.event_next"),
        Binding("left_curly_bracket", "minutes(-1)", "Time: a minute back", show=False, id="past.minute_back"),
        Binding("right_curly_bracket", "minutes(1)", "Time: a minute on", show=False, id="past.minute_on"),
        Binding("T", "ask_time", "Time: go to a time", show=False, id="past.time"),
        Binding("w", "save", "Write what is kept of the past into a file", show=False, id="past.save"),
        Binding("end", "now", "Time: back to now", show=False, id="past.now", priority=True),
    ]
    DEFAULT_CSS = """
    WithPast { & #time { height: 1; border: none; padding: 0 1; background: $surface; display: none; } }
    """

    def __init__(self) -> None:
        super().__init__()
        self.past_bar = PastBar()
        self._time: Input | None = None

    @property
    def _in_past(self) -> Past | None:
        shown = self._shown_snapshot
        return shown.past if shown is not None else None

    @property
    def _shown_snapshot(self) -> Snapshot | None:
        """The subclass's."""
        raise NotImplementedError

    def arrange_past(self) -> int:
        """Give the bar, and the line for a time, their lines; returns how many."""
        past = self._in_past
        self.past_bar.display = past is not None
        asks = self._time is not None and bool(self._time.display)
        if past is not None:
            keymap = cast("Host", self.app).keymap
            parts: list[tuple[str, str]] = []
            for names, defaults, word in (
                (("past.event_before", "past.event_next"), "<>", "event"),
                (("past.minute_back", "past.minute_on"), "{}", "minute"),
                (("past.time",), "T", "time"),
                (("pause",), "F", "stop" if past.playing else "play"),
            ):
                keys = " ".join(shown_key(keymap, name, key) for name, key in zip(names, defaults, strict=True))
                parts += [(f"  {keys}", "key"), (f" {word}", "dim")]
            more: list[Line] = []
            if past.what != "REPLAY":
                more.append(((f"  {shown_key(keymap, 'past.save', 'w')}", "key"), (" save", "dim")))
            more.append((("  End", "key"), (" now" if past.what == "PAST" else " last", "dim")))  # the foot has it, too
            self.past_bar.show(past, tuple(parts), more)
        return (past is not None) + asks

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """``End`` is the list's, or the text's, until the past is shown."""
        if action == "now":
            return self._in_past is not None and getattr(self.focused, "value", None) is None
        return super().check_action(action, parameters)

    def action_step(self, events: int) -> None:
        self._move("step", events)

    def action_minutes(self, minutes: int) -> None:
        self._move("move", minutes * MINUTE)

    @opens
    def action_save(self) -> None:
        """The line of commands, with a name that can be typed over."""
        cast("Host", self.app).open_palette(time.strftime("save ~/mpstui-%Y%m%d-%H%M%S.mps"))

    def action_now(self) -> None:
        self._move("to_end")

    def back_to_now(self) -> bool:
        """Out of the past that the live screen shows; whether it did."""
        past = self._in_past
        if past is None or past.what != "PAST":
            return False
        self.action_now()
        return True

    def _move(self, how: str, *values: object) -> None:
        cast("Host", self.app).travel(how, *values)

    @opens
    async def action_ask_time(self) -> None:
        """A line that takes a time."""
        if self._time is None:
            from mpstui.ui.form import TypedLine

            self._time = TypedLine("", id="time", about=TIMES)
            await self.mount(self._time, before=self.past_bar)
        machine = cast("Host", self.app).past
        self._time.placeholder = examples(self._in_past, machine.begin if machine is not None else None, time.time())
        self._time.value = ""
        self._time.display = True
        self._time.focus()
        self.time_line_changed()

    def time_line_changed(self) -> None:
        """The line for a time has come or gone; the subclass makes room."""

    @property
    def asks_time(self) -> bool:
        """Whether the line for a time has the keys."""
        return self._time is not None and bool(self._time.display) and self.focused is self._time

    def take_time(self, text: str) -> None:
        """What was typed there. A text that is no time stays, and what is typed next takes its place."""
        if text.strip():
            cast("Host", self.app).travel("jump", text, done=self._time_taken)
        else:
            self.close_time()

    def _time_taken(self, went: bool) -> None:
        if self._time is None or not self._time.display:
            return
        if went:
            self.close_time()
        else:
            self._time.action_select_all()

    def close_time(self) -> None:
        """The line goes."""
        if self._time is not None:
            self._time.display = False
