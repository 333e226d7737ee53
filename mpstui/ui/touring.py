"""The screen with a guide: captions over whatever is in front, and the keys of each step pressed for the reader.

Nothing is done behind the reader's back: on a node that is not the tour's own simulated one it presses no key that ends
work and answers no question. The reader does, or leaves it. What the reader has opened, on whatever node, it leaves to
the reader.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

from rich.cells import cell_len
from textual import events
from textual.command import CommandPalette
from textual.content import Content
from textual.keys import key_to_character
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from mpstui.core.text import plural
from mpstui.ui.app import MpsTuiApp
from mpstui.ui.keymap import LETTERS
from mpstui.ui.tours import ENDED_STATES, Tour, TourCondition, TourStep

NEXT: Final = "f8"
END: Final = "f7"
_PACE: Final = 0.25
"""Seconds between two keys, so that each can be followed."""
_PATIENCE: Final = 30.0
"""Seconds after which it says that what it waits for does not come."""
_LONGEST: Final = 60.0
"""Seconds that a tour which goes on by itself waits at least, ten times what the step stands: then it does without."""
_ANSWERS: Final = "Push, Button, #apply"
"""Of a question. ``Push`` is by name: to Textual's queries it is no ``Button``."""
_BESIDE: Final = 3
"""Columns of a caption's line that its mark and padding take."""
_LEAST: Final = 14
"""Lines that are left to the screen; a caption is cut to what is below them, and has two in any case."""
_HARMS: Final = frozenset(id for letter in LETTERS.values() if letter.harms for id in letter.ids)
_NOT_PRESSED: Final = "You have not pressed the key, or not answered: the tour goes on without it."
_LEFT_OUT: Final = "The tour skips this step: it needs “{}”, which did not appear."
_NAMES: Final = {
    "/": "slash", ":": "colon", ".": "full_stop", ",": "comma", "-": "minus", "+": "plus", "?": "question_mark",
    "%": "percent_sign", "=": "equals_sign", "_": "underscore", "!": "exclamation_mark", "@": "at",
}  # fmt: skip
_CHARACTERS: Final = {name: character for character, name in _NAMES.items()}
_MOVES: Final = frozenset({"escape", "up", "down", "left", "right", "pageup", "pagedown", "home", "end"})
"""What says yes to no question, as a character that is typed does not."""
_SHOWN: Final = _CHARACTERS | {
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
    "enter": "Enter",
    "escape": "Esc",
    "tab": "Tab",
}


class Guide:
    """Where a tour is, and what comes next."""

    def __init__(
        self, app: TouringApp, tour: Tour, *, own_demo: bool, auto: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``own_demo``: the node is a simulated one, started for this tour: everything may be done to it."""
        self.app, self.tour, self.own_demo, self.auto, self._clock = app, tour, own_demo, auto, clock
        self._at = -1
        self._left: list[str] = []
        """Keys of the step that are still to be pressed."""
        self._pressed: list[str] = []
        self._since = 0.0
        """When the step's last key was pressed."""
        self._ready_at: float | None = None
        self._heard: events.Key | None = None
        self._sent: events.Key | None = None
        """The tour's own latest key, which comes back as a key of the reader's would."""
        self._sent_at: float | None = None
        """None where the latest key was the reader's."""
        self._own: WeakKeyDictionary[ModalScreen[Any], bool] = WeakKeyDictionary()
        """Dialogs that were seen, and whether it was the tour that opened them."""
        self._over = False
        self._hurries = 0
        """How often the reader has asked for the next step before this one was done."""
        self._missing: TourCondition | None = None
        """What a step waited for and the reader did not: what follows is about it."""

    @property
    def step(self) -> TourStep | None:
        """The present one."""
        return self.tour.steps[self._at] if not self._over and self._at >= 0 else None

    def lead_on(self) -> None:
        """The next thing that can be done now, if anything can: a key, or the next step where nobody presses keys."""
        if self._over or not self.app.screen_stack:
            return
        if self.step is None:
            if self.app.overview.knows:
                self._go(0)
            return
        if self.app.typeahead.busy:
            return
        front = self.app.screen
        if isinstance(front, ModalScreen) and front not in self._own:
            self._own[front] = self._sent_at is not None and self._clock() - self._sent_at < _PATIENCE
        if self._left:
            if self._whose_turn() is None:
                self._press(self._left.pop(0))
            elif self.auto and not self._is_theirs and self._has_stood:
                self.app.notify(_NOT_PRESSED, title=self.tour.title, markup=False)
                self._give_up()
                return
            else:
                self._hurries = 0  # the reader's turn is not passed over unseen
        elif self._hurries and not self._waits:
            self._hurries -= 1
            self._go(self._at + 1)
            return
        elif not self._waits and self._ready_at is None:
            self._ready_at = self._clock()
        elif self.auto and self._waits and self._has_stood:
            missing = f"“{self.step.wait.words}” was not seen: the tour goes on without it." if self.step.wait else ""
            self.app.notify(missing, title=self.tour.title, markup=False)
            self._give_up()
            return
        elif self.auto and self._ready_at is not None and self._clock() - self._ready_at >= self.step.seconds:
            self.next()
            return
        self._tell()

    def next(self) -> None:
        """The next step, as soon as this one is done. Keys of this one that the tour may press it presses before, and
        what they set off it waits for: that is what the next caption speaks of. Asked again, it gives up the wait."""
        if self._over:
            return
        if self._left and self._whose_turn() is None:
            self._hurries += 1
        elif not self._left and self._waits and not self._hurries and not self._late:
            self._hurries = 1
            self._tell()
        else:
            self._give_up()

    def escaped(self) -> bool:
        """Escape, where the reader waits for the next step: the wait is given up. Whether it was that."""
        if self._over or not self._hurried or isinstance(self.app.screen, ModalScreen):
            return False
        self._give_up()
        return True

    @property
    def _hurried(self) -> bool:
        """Whether the next step was asked for, and what this one waits for is not there yet."""
        return bool(self._hurries) and not self._left and self._waits

    def _give_up(self) -> None:
        """The next step without what this one waits for; what cannot be so without it is left out."""
        if not self._left and self._waits and self.step is not None:
            self._missing = self.step.wait
        self._hurries = 0
        self._go(self._at + 1)

    def end(self) -> None:
        """The screen goes on without it."""
        self._over = True
        self.app.caption("", ())
        if left := self._load_left():
            self.app.notify(left, title=self.tour.title, markup=False)

    def _load_left(self) -> str:
        """What has not ended; empty where all has."""
        count = sum(member.report.state not in ENDED_STATES for member in self.app.load.members) if self.app.load else 0
        if not count:
            return ""
        return f"Not ended: {plural(count, 'test client')}. X on the load's screen (L) stops all of the load."

    def _go(self, at: int) -> None:
        if at >= len(self.tour.steps):
            self.end()
            over = "The tour is over; the screen stays. q leaves it."
            self.app.notify(over, title=self.tour.title, markup=False)
            return
        if self._missing is not None and self._holds(self._missing):
            self._missing = None
        step = self.tour.steps[at]
        self._at, self._left, self._pressed = at, [] if self._left_out(step) else list(step.keys), []
        self._since, self._ready_at = self._clock(), None
        self._tell()

    # Keys.

    def _whose_turn(self) -> str | None:
        """What the reader has to do first; None where the tour may press its next key. On its own simulated node it
        does all but what the reader has begun."""
        if self._is_theirs:
            return "This is not part of the tour: answer or close it, and the tour goes on."
        if self.own_demo:
            return None
        typed = len(self._left[0]) == 1 or self._left[0] in _MOVES
        if isinstance(self.app.screen, ModalScreen) and self.app.screen.query(_ANSWERS) and not typed:
            return "The answer is yours: the tour answers no question on this node. F8 leaves it."
        key, binding = self._resolved(self._left[0])
        if key is not None and self._is_readers(key, binding):
            return f"Press {self._shown(key)} yourself, or F8 to leave it: it acts on this node."
        return None

    @property
    def _is_theirs(self) -> bool:
        """Whether a dialog that the reader has opened is in front."""
        return isinstance(self.app.screen, ModalScreen) and not self._own.get(self.app.screen, False)

    @property
    def _has_stood(self) -> bool:
        """Whether a tour that goes on by itself has stood in this step as long as it does for anything."""
        seconds = self.step.seconds if self.step is not None else 0.0
        return self._clock() - self._since >= max(_LONGEST, 10 * seconds)

    def _is_readers(self, key: str, binding: str | None) -> bool:
        """Whether a key is the reader's alone to press, where the node is not the tour's own. In the palette that is
        Enter, as any key and any command has a name there."""
        runs = key == "enter" and isinstance(self.app.screen, CommandPalette)
        return runs or binding in _HARMS or key in {spec.key for spec in self.app.commands}

    def _resolved(self, key: str) -> tuple[str | None, str | None]:
        """The key and the id of what it does on the screen in front; no key where the screen has none for that id."""
        active = self.app.screen.active_bindings
        if key.startswith("@") and len(key) > 1:
            found = next((k for k, bound in active.items() if bound.binding.id == key[1:]), None)
            return found, key[1:]
        name = _NAMES.get(key, key)
        bound = active.get(name)
        return name, bound.binding.id if bound is not None else None

    def _press(self, key: str) -> None:
        name, binding = self._resolved(key)
        if name is None:
            self._pressed.append(f"(no key for {binding} here)")
        else:
            character = key if len(key) == 1 else " " if key == "space" else name if len(name) == 1 else None
            self._pressed.append(self._shown(name))
            self._sent = events.Key(name, character)
            self._sent_at = self._clock()
            self.app.post_message(self._sent)
        self._since = self._clock()

    def typed(self, event: events.Key) -> None:
        """The reader has pressed a key: the one that was asked for is done with."""
        if event is self._sent:
            return
        self._sent_at = None
        if self.step is None or not self._left or self.own_demo or event is self._heard:
            return
        self._heard = event  # it comes once more when its turn has come
        key, binding = self._resolved(self._left[0])
        if key is not None and event.key == key and self._is_readers(key, binding):
            self._left.clear()  # what comes of it is the reader's too
            self._pressed.append(self._shown(key))
            self._since = self._clock()

    def _shown(self, key: str) -> str:
        plain = key.removeprefix("shift+")
        function = plain.upper() if plain[:1] == "f" and plain[1:].isdigit() else plain
        return f"{'⇧' if plain != key else ''}{_SHOWN.get(plain) or key_to_character(plain) or function}"

    # What is waited for, and what is said.

    @property
    def _waits(self) -> bool:
        """Whether the step waits for something that has not been seen since its keys were pressed."""
        step = self.step
        if step is None or step.wait is None or self._ready_at is not None or self._left_out(step):
            return False
        return not self._holds(step.wait)

    @property
    def _late(self) -> bool:
        """Whether it has waited so long that it need not come any more."""
        return self._clock() - self._since > _PATIENCE

    def _left_out(self, step: TourStep) -> bool:
        """Whether what it shows needs what was not waited for. A way back is taken in any case."""
        return self._missing is not None and not (step is self.tour.steps[-1] and set(step.keys) <= {"escape"})

    def _holds(self, condition: TourCondition | None) -> bool:
        if condition is None:
            return True
        load = {member.report.state for member in self.app.load.members} if self.app.load is not None else set()
        return self.app.snapshot is not None and condition.holds(self.app.snapshot, load)

    def _caption(self, step: TourStep) -> str:
        """What is said: that which is so."""
        if self._missing is not None and step.holds is None:
            return _LEFT_OUT.format(self._missing.words)
        return step.caption if self._holds(step.holds) else step.otherwise

    def _state(self, step: TourStep) -> str:
        """The line below it: whose turn it is, or the keys that were pressed and what is waited for."""
        if self._left and (turn := self._whose_turn()) is not None:
            return turn
        parts = [f"keys: {' '.join(self._pressed)}{' …' if self._left else ''}"] if self._pressed or self._left else []
        if not self._left and self._waits and step.wait is not None:
            if self._hurried:
                parts.append(f"waiting for {step.wait.words}: F8 again or Esc gives up")
            else:
                parts.append(f"waits for: {step.wait.words}{' (not seen yet; F8 gives up)' if self._late else ''}")
        return " · ".join(parts)

    def _tell(self) -> None:
        step = self.step
        if step is None:
            return
        width = max(20, self.app.size.width - _BESIDE)
        lines, state = _wrapped(self._caption(step), width), self._state(step)
        last_line = textwrap.wrap(state, width, max_lines=1, placeholder=" …") if state else []
        # Where there is no room for all, what the reader has to do is not what is left out; the keys are.
        room = max(2, self.app.size.height - _LEAST) - 1
        if room == 1 and not (self._left and self._whose_turn() is not None):
            last_line = []
        room -= len(last_line)
        if len(lines) > room:
            lines = [*lines[: max(0, room - 1)], f"{lines[room - 1][: width - 2]} …"] if room > 0 else []
        lines += last_line
        # As many lines in all steps, so that nothing on the screen moves with them.
        said = [text for each in self.tour.steps for text in (each.caption, each.otherwise)]
        said += [_LEFT_OUT.format(each.wait.words) for each in self.tour.steps if each.wait is not None]
        most = max(len(_wrapped(text, width)) for text in said) + 1
        last = self._at + 1 == len(self.tour.steps)
        place = f"{self._at + 1} of {len(self.tour.steps)} · F8 {'ends the tour' if last else 'next'} · F7 no tour"
        whole = f"{self.tour.title} · {place}"
        title = whole if cell_len(whole) <= width else place
        self.app.caption(title, (*lines, *[""] * (most - len(lines))))


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width // 2 if cell_len(text) > len(text) else width)


class Caption(Static):
    """What a tour says, below a screen and over nothing of it."""

    DEFAULT_CSS = """
    Caption { dock: bottom; background: $panel; color: $foreground; padding: 0 1; border-left: outer $success; }
    """


class TouringApp(MpsTuiApp):
    """F8: the next step; F7: no tour any more."""

    guide: Guide
    """Given before it runs."""
    _told: tuple[str, Sequence[str]] = ("", ())

    async def on_mount(self) -> None:
        await super().on_mount()
        self.set_interval(_PACE, self.guide.lead_on)

    def caption(self, title: str, lines: Sequence[str]) -> None:
        """Say this below every screen; nothing where the title is empty."""
        self._told = (title, lines)
        wanted = 1 + len(lines) if title else 0
        self.lines_taken = min(wanted, max(2, self.size.height - _LEAST))
        for screen in self.screen_stack:
            self._caption_of(screen)

    def _caption_of(self, screen: Screen[Any]) -> None:
        title, lines = self._told
        text = Content.assemble((title, "bold"), *(f"\n{line}" for line in lines[: self.lines_taken - 1]))
        mine = next(iter(screen.query_children(Caption)), None)
        before = 0 if mine is None else mine.styles.height.value if mine.styles.height is not None else 0
        if not title:
            if mine is not None:
                mine.remove()
        elif mine is None:
            mine = Caption(text)
            mine.styles.height = self.lines_taken
            screen.mount(mine)
        elif mine.content != text or before != self.lines_taken:
            mine.styles.height = self.lines_taken
            mine.update(text)
        # A dialog has its keys a moment after itself: they may come when the caption is there.
        docked = [other for other in screen.children if other is not mine and other.styles.dock == "bottom"]
        over = [other for other in docked if other.styles.margin.bottom != self.lines_taken]
        for other in over:
            other.styles.margin = (0, 0, self.lines_taken, 0)
        if over or before != self.lines_taken:
            screen.call_after_refresh(screen.post_message, events.Resize(self.size, self.size))

    async def on_event(self, event: events.Event) -> None:
        """The guide's keys wait for nothing that its own have set off."""
        if isinstance(event, events.Key) and event.key in {NEXT, END}:
            self.guide.next() if event.key == NEXT else self.guide.end()
            return
        if isinstance(event, events.Key) and event.key == "escape" and self.guide.escaped():
            return
        if isinstance(event, events.Key):
            self.guide.typed(event)
        await super().on_event(event)


def led(tour: Tour, *, own_demo: bool, auto: bool) -> Callable[..., TouringApp]:
    """What makes the screen with this tour."""

    def make(*arguments: Any, **options: Any) -> TouringApp:
        app = TouringApp(*arguments, **options)
        app.guide = Guide(app, tour, own_demo=own_demo, auto=auto)
        return app

    return make
