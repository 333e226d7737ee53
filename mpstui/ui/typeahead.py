"""Keys that are typed faster than the screen opens: each waits for what the key before it opened, and reaches no other.

Textual hands a key to the widget that has the focus when it is read, and carries out afterwards, message by message,
what the key is bound to. So without this the letters of ``/train``, typed at once, are commands of the table below.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar, cast

from textual import events
from textual.app import App
from textual.binding import Binding
from textual.command import CommandPalette
from textual.errors import NoWidget
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.worker import Worker

from mpstui.ui.bars import KeyBar
from mpstui.ui.keys import key_name
from mpstui.ui.private import WritingApp, leaving, toast_racks

P = ParamSpec("P")
R = TypeVar("R")

OPENING: Final = "opening"
"""The group of workers after which keys mean something else: one that opens a screen once an answer has come, or fills
a dialog before anything in it can be chosen. Give it to ``run_worker``; keys typed ahead wait for the worker's end."""
PATIENCE: Final = 10.0
"""Seconds after which keys no longer wait for what does not end. They are dropped then: what they would reach is not
what they were typed for."""
START: Final = 3.0
"""Seconds that keys typed before the first picture wait for what is known of the node."""
UNSEEN = 1.0
"""Seconds after which a change counts as seen even if no picture followed it."""
HAND: Final = 0.5
"""Seconds that a button, or what a line of keys says, has to be seen at its place before a click on it can be meant for
it: no hand is faster, and no double click slower."""
_PACE: Final = 0.005
_LEAVES: Final = frozenset({"quit_app", "app.quit_app"})
_NONE: Final[frozenset[str]] = frozenset()
_ADDS: Final = {"move": frozenset({"minutes(-1)", "minutes(1)"}), "step": frozenset({"step(-1)", "step(1)"})}
"""The actions that add to the worker of that name while it is under way: their keys may be held."""
_MOVES: Final = _NONE.union(*_ADDS.values())
_SAME: Final = _LEAVES | _MOVES
"""What means the same on a screen whatever has come on it."""
_REDRAWS: Final = frozenset({"redraw", "app.redraw"})
_BEFORE: Final = "typed before this screen was there"
_BEHIND: Final = "typed right behind a key that did nothing"
_MOVED: Final = "made when the button had just come there"
_NAMED: Final = 8
"""Keys that are named, of those that were dropped together."""
_TURNS: Final = 200
"""Turns of an event loop that does not tell whether it has something to do: more than any chain of messages takes."""


def opens(action: Callable[P, R]) -> Callable[P, R]:
    """Marks an action that opens something: where it opens nothing, what was typed after its key is for nothing."""

    @wraps(action)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        typeahead = getattr(cast("Any", args[0]).app, "typeahead", None)
        if isinstance(typeahead, Typeahead):
            typeahead.expect()
        return action(*args, **kwargs)

    return run


def _clicked_as(widget: Widget) -> object:
    """What a click on it does, in a dialog: where it is, whether a notification lies over it, and whether it can be
    pressed or which keys it names; None where it is neither a button nor a line of keys."""
    from textual.widgets import Button  # only a dialog has any

    if not isinstance(widget, Button | KeyBar):
        return None
    toasts = (toast for rack in toast_racks(widget.screen) for toast in rack.query("Toast"))
    covered = any(toast.region.overlaps(widget.region) for toast in toasts)
    return widget.region, covered, widget.seen if isinstance(widget, KeyBar) else not widget.disabled


class Typeahead:
    """Gives the app one key, click or paste after the other, each when all that the one before it set off is done.

    What opens or moves the focus by itself takes no key that was typed before it was painted: such a key was meant for
    what stood there before, and is dropped. So is what was typed after a key that was refused, before that was seen.
    Whatever is dropped is named to the user.
    """

    def __init__(self, app: App[Any], begun: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        """``begun``: whether there is something to type for. ``clock`` is that of ``Message.time``."""
        self._app = app
        self._begun = begun
        self._clock = clock
        self._waiting: deque[events.Event] = deque()
        self._given: events.Event | None = None
        self._task: asyncio.Task[None] | None = None
        self._left: tuple[object, ...] | None = None
        """Who takes keys as the last key left it; None before the first one."""
        self._blind = float("-inf")
        """Until when what is typed was typed before anything of the node was seen, while no key has been given yet."""
        self._noticed: tuple[tuple[object, ...], float] | None = None
        """Who takes keys by itself, and since when that is known."""
        self._shown: tuple[object, ...] | None = None
        self._shown_at = float("inf")
        """Since when that is on the screen."""
        self._first_shown: float | None = None
        self._expected: tuple[object, ...] | None = None
        self._refused: float | None = None
        """When the key that is being carried out was refused."""
        self._painted = float("-inf")
        self._by_itself = False
        """Something has changed that the key which is being carried out did not ask for."""
        self._deaf = float("-inf")
        """What was typed until then is dropped: the key before it was refused."""
        self._away = float("-inf")
        """What was typed until then was typed for whoever had the terminal meanwhile."""
        self._dropped: list[tuple[str, str]] = []
        """What was typed and is not done, and why, to be told."""
        self._buttons: dict[Widget, tuple[object, float]] = {}
        """Of the dialog in front: as what each button and line of keys is seen, and since when."""
        self._unpressed = False
        """A press of the mouse was dropped; what is left of it is of no meaning either."""
        self._abandoned: set[Worker[Any]] = set()
        self._spins = False
        self._turns = 0

    # What the app tells.

    def keeps(self, event: events.Event) -> bool:
        """Whether the app must leave the event alone: it comes again when its time has come."""
        if event is self._given:
            self._given = None
            return False
        if (isinstance(event, events.MouseMove) and not self.busy) or self._means(event, _REDRAWS):
            return False  # to write the screen anew means the same whatever is in front
        self._waiting.append(event)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._give())
        return True

    @property
    def busy(self) -> bool:
        """Whether something typed is still to be done."""
        return bool(self._waiting) or (self._task is not None and not self._task.done())

    def painted(self) -> None:
        """The screen has just been written to the terminal."""
        now, place = self._clock(), self._place()
        self._painted = now
        if place != self._shown:
            self._shown, self._shown_at = place, now
        if self._first_shown is None:
            self._first_shown = now
        if self._left is None and self._begun():
            self._left, self._blind = place, now
        self._deaf, self._away = min(self._deaf, now), min(self._away, now)
        if isinstance(place[0], ModalScreen):
            self._see_buttons(place[0], now)

    def _see_buttons(self, front: ModalScreen[Any], now: float) -> None:
        before, self._buttons = self._buttons, {}
        for widget in front.walk_children(Widget):  # a query goes by what a style sheet knows it as
            if (face := _clicked_as(widget)) is not None:
                seen, since = before.get(widget, (None, now))
                self._buttons[widget] = face, since if seen == face else now

    def leave_terminal(self) -> None:
        """A shell has the terminal from now on, until the screen is painted again."""
        self._away = float("inf")

    @contextmanager
    def by_itself(self) -> Iterator[None]:
        """Around what no key asks for: what the node's state brings."""
        before = self._place()
        yield
        if (now := self._place()) != before:
            # Known from now on, and not from the next key on: that one is dropped where nothing is painted meanwhile.
            self._by_itself, self._noticed = True, (now, self._clock())

    def expect(self) -> None:
        """The key that is being carried out should open something."""
        self._expected = self._place()

    def refuse(self) -> None:
        """The key that is being carried out does nothing, and the user is told so."""
        self._refused = self._clock()

    def close(self) -> None:
        """Give nothing any more."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    # One after the other.

    async def _give(self) -> None:
        try:
            await self._give_waiting()
        except Exception as error:  # nobody waits for this task, and the keys would be done with a later one
            self._waiting.clear()
            text = f"An error of mpstui itself dropped what was typed. {type(error).__name__}: {error}"
            self._app.notify(text, title="Keys", severity="error", timeout=30, markup=False)

    async def _give_waiting(self) -> None:
        since = self._clock()
        opened = False
        while self._waiting or self._openings() or opened:
            if self._clock() - since > PATIENCE:
                self._give_up()
                since = self._clock()
            event = self._waiting[0] if self._waiting else None
            if self._moving():
                await asyncio.sleep(0)
            elif self._openings() if event is None else self._too_soon(event):
                opened = True
                await asyncio.sleep(_PACE)
            elif opened:  # by a worker that the last key started, so asked for
                opened, self._left = False, self._place()
            elif event is not None:
                self._waiting.popleft()
                if self._lost(event):
                    self._drop(event)
                else:
                    self._tell_dropped()
                    await self._deliver(event)
                since = self._clock()
        self._tell_dropped()

    def _drop(self, event: events.Event) -> None:
        """A key that does nothing says so. The rest of a click or a wheel does not: what it began with has."""
        why = _BEHIND if self._away < event.time <= self._deaf else _MOVED if self._at_new_button(event) else _BEFORE
        if isinstance(event, events.Key):
            self._dropped.append((key_name(event.key), why))
        elif isinstance(event, events.Paste | events.MouseDown):
            self._dropped.append(("a paste" if isinstance(event, events.Paste) else "a click", why))

    def _tell_dropped(self) -> None:
        """Once for all that was dropped together for one reason."""
        dropped = list(dict.fromkeys(self._dropped))
        self._dropped.clear()
        for why in dict.fromkeys(why for _, why in dropped):
            names = [name for name, for_what in dropped if for_what == why]
            shown = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
            if not leaving(self._app):
                self.dropped(shown, why)

    def dropped(self, shown: str, why: str) -> None:
        """Tell it."""
        self._app.notify(f"Dropped: {shown}. It was {why}.", title="Keys", timeout=4, markup=False)

    async def _deliver(self, event: events.Event) -> None:
        """Have it carried out, with all that comes of it."""
        if leaving(self._app):
            return
        if isinstance(event, events.Key | events.MouseDown | events.Paste) and isinstance(self._app, TypedApp):
            self._app.drop_refusals()
        if not self._app.post_message(event):
            return
        self._refused, self._expected, self._by_itself, self._given = None, None, False, event
        self._blind = float("-inf")
        end = self._clock() + PATIENCE
        while self._under_way(end):  # noqa: ASYNC110 - it waits for there to be no event left
            await asyncio.sleep(0)
        place = self._place()
        if (unheard := self._unheard(place)) is not None:
            self._deaf = unheard
        if not self._by_itself:
            self._left, self._noticed = place, None

    def _unheard(self, place: tuple[object, ...]) -> float | None:
        """Until when what is typed was typed for what did not open; None where the key has done what it should."""
        if self._refused is None:
            return self._clock() if place == self._expected else None
        return self._painted if self._painted > self._refused else self._clock() + UNSEEN

    def _under_way(self, end: float) -> bool:
        """Whether the app has not taken what it was given, or has, until ``end``, something to do that came of it."""
        return self._given is not None or (self._moving() and self._clock() < end)

    def _moving(self) -> bool:
        """Whether the event loop has something to do at once; to wait for a timer, process or thread is not that."""
        ready = getattr(asyncio.get_running_loop(), "_ready", None)
        if ready is None:
            self._turns = (self._turns + 1) % _TURNS
            return self._turns != 0
        if not ready:
            self._spins = False
        return bool(ready) and not self._spins

    def _openings(self) -> list[Worker[Any]]:
        """Workers after which keys mean something else."""
        return [
            worker
            for worker in self._app.workers
            if not worker.is_finished
            and worker not in self._abandoned
            and (worker.group == OPENING or isinstance(worker.node, CommandPalette))
        ]

    def _too_soon(self, event: events.Event) -> bool:
        """Whether what the event is for is still being opened."""
        first = self._first_shown
        if (first is None or event.time < first) and not self._begun() and not self._means(event, _LEAVES):
            return first is None or self._clock() - first < START
        stack = self._app.screen_stack
        if not stack or not stack[-1].is_mounted:
            return True
        # In a dialog that is on the screen while it is filled, a key is for what is seen: Escape closes it.
        seen = self._shown == self._place() and event.time >= self._shown_at
        for worker in self._openings():
            if isinstance(worker.node, CommandPalette):
                # Its list is of what was typed before: letters may come, what chooses from it may not.
                if not (isinstance(event, events.Key) and event.is_printable):
                    return True
            elif self._means(event, _ADDS.get(worker.name, _NONE)):
                continue
            elif stack[-1] not in worker.node.ancestors_with_self or not seen:
                return True
        return False

    def _means(self, event: events.Event, actions: frozenset[str]) -> bool:
        """Whether it is a key of one of these actions: to leave the program, say, nothing needs to be known."""
        if not isinstance(event, events.Key) or not self._app.screen_stack:
            return False
        bound = self._app.screen.active_bindings.get(event.key)
        return bound.binding.action in actions if bound is not None else self._means_everywhere(event, actions)

    def _means_everywhere(self, event: events.Event, actions: frozenset[str]) -> bool:
        """Whether it is one of these actions whatever is in front: one of the program's own that come first, which a
        modal screen hides from its list."""
        if not isinstance(event, events.Key):
            return False
        keymap: Mapping[str, str] = getattr(self._app, "keymap", {})
        return any(
            event.key in keymap.get(own.id or "", own.key).split(",")
            for own in self._app.BINDINGS
            if isinstance(own, Binding) and own.priority and own.action in actions
        )

    def _lost(self, event: events.Event) -> bool:
        """Whether it is to be dropped."""
        if isinstance(event, events.MouseUp) and self._unpressed:
            return True
        lost = self._stale(event) or self._at_new_button(event)
        if isinstance(event, events.MouseDown):
            self._unpressed = lost
        return lost

    def _at_new_button(self, event: events.Event) -> bool:
        """Whether it is a click on a button that had not been seen there for as long as a hand takes: the second one of
        two is not for what the first one brought, and one on Close not for what has come to its place. Nor is one on a
        line of keys for what it says since less."""
        if not isinstance(event, events.MouseDown) or not isinstance(self._app.screen, ModalScreen):
            return False
        try:
            at, _ = self._app.screen.get_widget_at(event.x, event.y)
        except NoWidget:
            return False
        if (face := _clicked_as(at)) is None:
            return False
        seen, since = self._buttons.get(at, (None, event.time))
        return seen != face or event.time < since + HAND

    def _stale(self, event: events.Event) -> bool:
        """Whether it was typed for something that is no longer there, or did not open."""
        if event.time <= self._away:
            return True
        if self._means_everywhere(event, _LEAVES):
            return False
        if event.time <= self._deaf:
            return not self._means(event, _MOVES)
        if not self._app.app_focus and not isinstance(event, events.MouseMove):
            self._app.app_focus = True  # somebody types: the focus that left with the terminal's comes back
        place = self._place()
        if self._left is None or place == self._left or event.time < self._blind:
            return False
        if place[0] is self._left[0] and self._means(event, _SAME):
            return False
        if self._noticed is None or self._noticed[0] != place:
            self._noticed = place, self._clock()
        shown = self._shown_at if self._shown == place else self._noticed[1] + UNSEEN
        if event.time >= shown:
            self._left, self._noticed = place, None
            return False
        return True

    def _place(self) -> tuple[object, ...]:
        """Who takes keys: the screen in front, what has its focus, and what the screen says that it shows."""
        stack = self._app.screen_stack
        if not stack:
            return (None,)
        return stack[-1], stack[-1].focused, getattr(stack[-1], "face", None)

    def _give_up(self) -> None:
        """What does not end is waited for no longer, and what was typed meanwhile is dropped, but for leaving. Before
        the first picture nothing is: a program that starts slowly has not failed to open anything."""
        kept = [event for event in self._waiting if self._means_everywhere(event, _LEAVES)]
        if not kept and self._first_shown is None:
            return
        self._abandoned.update(self._openings())
        self._spins = True
        dropped = len(self._waiting) - len(kept)
        self._waiting = deque(kept)
        if dropped:
            text = "What was typed meanwhile is dropped: the screen did not open in time."
            self._app.notify(text, title="Keys", severity="warning", timeout=15)


_REFUSAL: Final = 6.0
"""Seconds that it stands at most why a key does nothing; a warning that stands longer has to be read."""


def _is_refusal(options: Mapping[str, Any]) -> bool:
    """Of a notification, by how it was told: the next one takes its place, so that five keys that do nothing do not
    cover the screen with five lines."""
    return options.get("severity") == "warning" and (options.get("timeout") or 0) <= _REFUSAL


class TypedApp(WritingApp[R]):
    """An app whose keys go through its ``typeahead``, which is there before the first event."""

    typeahead: Typeahead

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._standing: dict[tuple[str, str], tuple[float, dict[str, Any]]] = {}
        """Until when a notification stands, by title and text, and how it was told."""

    async def on_event(self, event: events.Event) -> None:
        """What is typed, clicked or pasted goes to what takes it one after the other."""
        typed = isinstance(event, events.InputEvent | events.Paste) and not event.is_forwarded
        if not (typed and self.typeahead.keeps(event)):
            await super().on_event(event)

    def notify(self, message: str, **options: Any) -> None:
        """A warning is how a key is told that it does nothing. What stands there already is not told once more."""
        if options.get("severity", "information") != "information":
            self.typeahead.refuse()
        told, now = (str(options.get("title", "")), message), time.monotonic()
        if _is_refusal(options) and told not in self._standing:
            self.clear_notifications(lambda how: not _is_refusal(how))
        self._standing = {each: stands for each, stands in self._standing.items() if stands[0] > now}
        if told not in self._standing:
            self._standing[told] = now + (options.get("timeout") or self.NOTIFICATION_TIMEOUT), options
            super().notify(message, **options)

    def drop_refusals(self) -> None:
        """What a key did not do is of no interest any more once the next one is carried out."""
        if any(_is_refusal(how) for _, how in self._standing.values()):
            self.clear_notifications(lambda how: not _is_refusal(how))

    def clear_notifications(self, keep: Callable[[Mapping[str, Any]], bool] = lambda options: False) -> None:
        """``keep``: told how each was told; those that it is true of stand on until their time is over."""
        now, kept = time.monotonic(), self._standing
        self._standing = {each: (until, how) for each, (until, how) in kept.items() if until > now and keep(how)}
        super().clear_notifications()
        for (_, message), (until, how) in self._standing.items():
            super().notify(message, **{**how, "timeout": until - now})

    def written(self) -> None:
        self.typeahead.painted()
