"""What the screens of one node and of many have in common: themes, keys, signals, what is written to the terminal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual import constants, events
from textual.actions import ActionParseResult
from textual.app import App
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.screen import Screen
from textual.theme import Theme

from mpstui.ui.diff import ScreenDiff
from mpstui.ui.keys import shown_key
from mpstui.ui.private import Update, leaving, toast_racks
from mpstui.ui.terminal import TerminalDriver, can_come_back
from mpstui.ui.theme import variable_defaults
from mpstui.ui.typeahead import Typeahead, TypedApp, opens

if TYPE_CHECKING:
    from mpstui.ui.panel import Panel
    from mpstui.ui.screens import BarScreen

_LOOK_S = 1.0
"""Seconds between two looks whether the terminal shows what it should."""
_LOOKS = 2
"""Looks after a key: the first may come before all that the key has set off."""
_PASSING = 10
"""Seconds that a notification stands at most which only says that something was done."""


def _must_be_read(options: Mapping[str, Any]) -> bool:
    """Of a notification, by how it was told."""
    return options.get("severity", "information") != "information" or (options.get("timeout") or 0) > _PASSING


class ScreenProgram(TypedApp[int]):
    """Returns the exit status: 0, or 128 and the number of the signal that ended it."""

    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c,ctrl+q,ctrl+backslash", "quit_app", "Quit", show=False, id="interrupt", priority=True),
        Binding("ctrl+z", "suspend_process", "Suspend; fg comes back", show=False, id="suspend", priority=True),
        Binding("f12", "mouse", "Mouse off, so that the terminal selects text; again: on", show=False, id="mouse"),
        Binding("ctrl+l", "redraw", "Redraw", show=False, id="redraw", priority=True),
    ]

    def __init__(self, themes: Sequence[Theme], theme: str, keys: Mapping[str, str] | None) -> None:
        """``keys`` maps ids of bindings to the user's keys, settled by ``mpstui.ui.keymap.resolve``."""
        # Textual chooses at construction how NO_COLOR is obeyed: without any colour only where the theme is ``ansi``.
        # In a browser (mpstui.web) the environment names the driver.
        driver = None if constants.DRIVER else TerminalDriver
        super().__init__(driver_class=driver, ansi_color=any(t.ansi and t.name == theme for t in themes))
        self.set_reactive(App.ansi_color, None)
        self.animation_level = "none"
        self.mouse = True
        """Whether clicks are wanted. Before the start: as the user has said."""
        self.typeahead = Typeahead(self, self.begun)
        self._diff = ScreenDiff()
        self._unpainted: Screen[object] | None = None
        self._toasts = 0
        """Notifications that stood on the screen at the last look."""
        self._looks = 0
        """Looks that are left to hold the terminal's cells against the whole screen."""
        self._signals: list[signal.Signals] = []
        for each in themes:
            self.register_theme(each)
        if theme in self.available_themes:
            self.theme = theme
        self._user_keys = dict(keys or {})
        if keys:
            self.set_keymap(self._user_keys)

    # What a subclass gives.

    def begun(self) -> bool:
        """Whether there is something to type for."""
        raise NotImplementedError

    def action_quit_app(self) -> None:
        """Leave."""
        raise NotImplementedError

    def placed(self, screen: Screen[Any]) -> bool:
        """Whether what is on it has its place: until then it is blank, and what the terminal shows stays there."""
        return True

    def taking_over(self) -> None:
        """Signals are heeded, and the terminal is about to be taken."""

    async def ended(self) -> None:
        """The screen is gone."""

    @property
    def keymap(self) -> Mapping[str, str]:
        return self._user_keys

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return variable_defaults(self.current_theme)

    # Beginning and end.

    def on_load(self) -> None:
        """Before the terminal is taken: from then on whoever ends the program must give it back."""
        if not self.is_headless:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
                loop.add_signal_handler(number, self._on_signal, number)
                self._signals.append(number)
        self.taking_over()

    async def on_mount(self) -> None:
        self.app_resume_signal.subscribe(self, lambda _app: self.action_redraw())
        self.set_interval(_LOOK_S, self._heal)

    async def on_unmount(self) -> None:
        self.typeahead.close()
        if self.mouse and isinstance(self.terminal_driver, TerminalDriver):
            self.terminal_driver.report_mouse(False)
        for number in self._signals:
            asyncio.get_running_loop().remove_signal_handler(number)
        await self.ended()

    def _on_signal(self, number: signal.Signals) -> None:
        self.exit(128 + number, return_code=128 + number)

    def terminal_lost(self) -> None:
        """Nobody reads or writes any more: leave, as on a hangup."""
        self._on_signal(signal.SIGHUP)

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Nothing that is typed after ``q`` opens a screen, while the program is on its way out. A key that does
        nothing now says why, as far as its screen or its list knows."""
        if leaving(self):
            return False
        asked = cast("BarScreen | Panel[Any]", default_namespace)
        why_not = getattr(asked, "why_not", None) if isinstance(action, str) else None
        if why_not is not None and (why := why_not(action)) is not None:
            asked.say(why)
            return True
        return await super().run_action(action, default_namespace, namespaces)

    def action_suspend_process(self) -> None:
        driver = self.terminal_driver
        if isinstance(driver, TerminalDriver) and can_come_back():
            self.typeahead.leave_terminal()
            driver.stop_job()
        else:
            self.notify("There is no shell here that could bring mpstui back (fg); q quits.", severity="warning")

    def action_mouse(self) -> None:
        driver = self.terminal_driver
        if not isinstance(driver, TerminalDriver):
            return
        self.mouse = not self.mouse
        driver.report_mouse(self.mouse)
        again = shown_key(self.keymap, "mouse", "F12")
        text = "on: clicks go to mpstui" if self.mouse else f"off: the terminal selects text; {again} turns it on again"
        self.notify(text, title="Mouse", timeout=4)

    # Keys.

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.InputEvent | events.Paste) and not event.is_forwarded:
            self._looks = _LOOKS
        await super().on_event(event)

    def push_screen(self, *screen: Any, **options: Any) -> Any:
        """What was said in passing of what went before does not stand over the buttons of what comes."""
        self.clear_notifications(_must_be_read)
        return super().push_screen(*screen, **options)

    def help_screen(self) -> Screen[None]:
        """What is told of what is seen."""
        from mpstui.ui.dialogs import HelpScreen

        return HelpScreen()

    @opens
    def action_show_help(self) -> None:
        from mpstui.ui.dialogs import HelpScreen

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(self.help_screen())

    # Output.

    def on_resize(self, event: events.Resize) -> None:
        """Nothing is known of the terminal's cells any more, also where it has its old size again: write them all."""
        self._diff.reset()
        self._looks = _LOOKS
        self.refresh()

    def _heal(self) -> None:
        """Whatever was lost on the way to the terminal: its size, the tick that paints, or that there is what to paint.

        After a key or a change of size, and while notifications stand there or have just gone, all cells are held
        against the whole screen; only those that differ are written. Textual was seen to leave the place of a
        notification blank, and a scrollbar that had gone.
        """
        if leaving(self) or not self.screen_stack:
            return
        self._look_at_size()
        screen = self.screen
        waits = self.unpainted(screen)
        if waits and self._unpainted is screen:
            self.paint(screen)
        self._unpainted = screen if waits else None
        before, self._toasts = self._toasts, sum(len(rack.children) for rack in toast_racks(screen))
        if self._looks or before or self._toasts:
            self._looks = max(0, self._looks - 1)
            self.write_all(screen)

    def _look_at_size(self) -> None:
        """Whatever has become of a change of size, the screen follows: a signal can be lost, and so can an event."""
        driver = self.terminal_driver
        size = driver.terminal_size() if isinstance(driver, TerminalDriver) else None
        if size is None:
            return
        if size != self.size:
            self.post_message(events.Resize(size, size))
            return
        for screen in self.screen_stack:
            if screen.outer_size != size:
                screen.post_message(events.Resize(size, size))

    def action_redraw(self) -> None:
        """Write the whole screen again, at once and all of it, for when something else wrote over it."""
        self._look_at_size()
        self._diff.reset()
        self.write_all(self.screen)

    def written_instead(self, update: Update | None, screen: Screen[Any]) -> str | None:
        """Only the cells that differ from what the terminal shows."""
        if not self.placed(screen):
            return ""
        sequence = self._diff.sequence(update, self.console) if update is not None else None
        if sequence is None and (whole := self.whole(screen)) is not None:  # a part, of what nobody knows
            sequence = self._diff.sequence(whole, self.console)
        if sequence is None:
            self._diff.reset()
        return sequence

    def written(self) -> None:
        self.typeahead.painted()
