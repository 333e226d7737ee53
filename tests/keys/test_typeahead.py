"""The rule behind typing ahead, on fakes: what waits, what is dropped, and that nothing waits for ever."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest
from textual import events, messages
from textual.app import ComposeResult
from textual.command import CommandPalette
from textual.keys import _character_to_key
from textual.pilot import Pilot
from textual.screen import ModalScreen
from textual.widgets import Input
from ui.screen import make_app, text_of, until
from ui.snapshots import one_daemon

from mpstui.core import condition
from mpstui.ui import program, typeahead
from mpstui.ui.dialogs import DetailsScreen, HelpScreen
from mpstui.ui.dialogs.base import ConfirmDialog
from mpstui.ui.dialogs.commands import Palette
from mpstui.ui.dialogs.confirm import HarmConfirm
from mpstui.ui.dialogs.widgets import Lines, Push
from mpstui.ui.private import toast_racks
from mpstui.ui.typeahead import OPENING

SIZE = (160, 48)
WHY = "It was typed before this screen was there."
BEHIND = "It was typed right behind a key that did nothing."


def type_at_once(pilot: Pilot[Any], *keys: str, at: float | None = None) -> None:
    """As they come from one read of the terminal; ``at``: the time of that."""
    for key in keys:
        event = events.Key(_character_to_key(key) if len(key) == 1 else key, key if len(key) == 1 else None)
        if at is not None:
            event.time = at
        pilot.app.post_message(event)


def held(snapshot):
    daemon = replace(snapshot.daemons[0], condition=condition.held(None, "somebody holds it", None, condition.Moment()))
    return replace(snapshot, daemons=(daemon,))


async def then_held(pilot: Pilot[Any]) -> float:
    """The daemon is held after a key; the time between them."""
    await pilot.press("j")
    before = time.monotonic()
    await asyncio.sleep(0)
    pilot.app.collector.push(held(one_daemon()))  # type: ignore[attr-defined]
    await pilot.pause()
    return before


async def test_the_letters_of_a_filter_go_into_it() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        type_at_once(pilot, "slash", *"Ktrain")
        await pilot.pause()
        assert len(app.screen_stack) == 1
        assert app.overview.query_one(Input).value == "Ktrain"


@pytest.mark.slow
async def test_what_follows_a_question_goes_to_it_and_what_follows_its_end_to_what_is_below() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        first = app.overview.clients.cursor_index
        type_at_once(pilot, "K", "j", "escape", "j", "question_mark", "q", "j", "enter")
        await pilot.pause()
        assert isinstance(app.screen, DetailsScreen)
        assert app.overview.clients.cursor_index == first + 2


@pytest.mark.slow
async def test_a_question_mark_in_the_palette_is_help_as_a_key_and_text_behind_other_text_and_in_a_paste() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        type_at_once(pilot, "colon", *"?/sort")
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)
        assert app.screen.query_one(Input).value == "sort"
        type_at_once(pilot, *["escape"] * 2, *"so?")
        await pilot.pause()
        assert isinstance(app.screen, Palette)
        assert app.screen.query_one(Input).value == "so?", "which a regular expression may have"
        type_at_once(pilot, "escape", "colon")
        app.post_message(events.Paste("?"))
        await pilot.pause()
        assert isinstance(app.screen, Palette)
        assert app.screen.query_one(Input).value == "?"


@pytest.mark.slow
async def test_a_click_waits_its_turn_among_the_keys() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        region = app.overview.clients.region
        type_at_once(pilot, "question_mark")
        for kind in (events.MouseDown, events.MouseUp):
            x, y = region.x + 5, region.y + 6
            app.post_message(kind(None, x, y, 0, 0, 1, False, False, False, screen_x=x, screen_y=y))
        type_at_once(pilot, "escape")
        row = app.overview.clients.cursor_index
        await pilot.pause()
        assert app.screen is app.overview
        assert app.overview.clients.cursor_index == row, "the click was for the help that was open then"


@pytest.mark.slow
async def test_a_card_that_opens_by_itself_takes_no_key_that_was_typed_before_it_was_painted() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        before = await then_held(pilot)
        assert "HELD" in str(app.overview.daemon and app.overview.daemon.health).upper()
        type_at_once(pilot, "question_mark", "K", "K", "ctrl+d", at=before)
        await pilot.pause()
        assert app.screen is app.overview
        assert [n.message for n in app._notifications] == [f"Dropped: ?, K, ^d. {WHY}"]
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen), "typed with the card on the screen"


@pytest.mark.slow
async def test_a_change_that_nothing_of_was_painted_takes_the_first_key_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("j")
        monkeypatch.setattr(app.typeahead, "painted", lambda: None)
        app.collector.push(held(one_daemon()))
        await pilot.pause()
        monkeypatch.setattr(app.typeahead, "_clock", lambda: time.monotonic() + 3600)
        type_at_once(pilot, "question_mark", at=time.monotonic() + 3600)
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen), "an hour later"


@pytest.mark.slow
async def test_a_dialog_that_a_worker_opens_by_itself_takes_no_key_that_was_typed_before() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("j")
        before = time.monotonic()
        app.push_screen(HelpScreen())
        await pilot.pause()
        type_at_once(pilot, "q", at=before)
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)


@pytest.mark.slow
async def test_what_is_typed_ahead_waits_for_a_worker_that_opens_something_once_it_has_an_answer() -> None:
    app = make_app(one_daemon())
    answered = asyncio.Event()

    async def ask() -> None:
        await answered.wait()
        app.push_screen(HelpScreen())

    app.action_suspend_process = lambda: app.run_worker(ask(), group=OPENING)  # type: ignore[method-assign,assignment]
    async with app.run_test(size=SIZE) as pilot:
        row = app.overview.clients.cursor_index
        type_at_once(pilot, "ctrl+z", "j", "j", "q")
        for _ in range(50):
            await asyncio.sleep(0)
        assert app.overview.clients.cursor_index == row
        assert app.typeahead.busy
        answered.set()
        await pilot.pause()
        assert app.screen is app.overview, "q closed the help"
        assert app.overview.clients.cursor_index == row
        await pilot.press("j")
        assert app.overview.clients.cursor_index == row + 1


async def test_keys_wait_for_nothing_for_ever_and_are_dropped_rather_than_misled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(typeahead, "PATIENCE", 0.05)
    app = make_app(one_daemon())
    app.action_suspend_process = lambda: app.run_worker(asyncio.Event().wait(), group=OPENING)  # type: ignore[method-assign,assignment]
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        row = app.overview.clients.cursor_index
        type_at_once(pilot, "ctrl+z", "j", "K")
        await until(pilot, lambda: any("dropped" in n.message for n in app._notifications))
        assert app.screen is app.overview
        assert app.overview.clients.cursor_index == row
        await pilot.press("j")
        assert app.overview.clients.cursor_index == row + 1, "what does not end is waited for once"


async def test_what_an_error_has_stopped_is_not_done_with_a_later_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the task: its error was lost, and the keys were kept for whatever came next."""
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("j")

        def broken(event: events.Event) -> bool:
            raise RuntimeError("of the program's own")

        with monkeypatch.context() as patched:
            patched.setattr(app.typeahead, "_stale", broken)
            type_at_once(pilot, "k", "K")
            await until(pilot, lambda: app._notifications)
        (told,) = app._notifications
        assert told.message == "An error of mpstui itself dropped what was typed. RuntimeError: of the program's own"
        await pilot.press("j")
        assert app.screen is app.overview, "a K of before asks nothing now"


async def test_leaving_is_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typeahead, "PATIENCE", 0.05)
    app = make_app(one_daemon())
    app.action_suspend_process = lambda: app.run_worker(asyncio.Event().wait(), group=OPENING)  # type: ignore[method-assign,assignment]
    async with app.run_test(size=SIZE) as pilot:
        type_at_once(pilot, "ctrl+z", "K", "ctrl+c")
        await pilot.pause()
    assert app.return_value == 0


@pytest.mark.slow
async def test_what_was_typed_with_a_key_that_is_refused_is_dropped() -> None:
    app = make_app(held(one_daemon()))
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        type_at_once(pilot, "K", "d", "question_mark", at=time.monotonic())
        await pilot.pause()
        assert app.screen is app.overview
        assert [n.title for n in app._notifications] == ["Terminate + kill", "Keys"]
        assert BEHIND in [*app._notifications][-1].message
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)


@pytest.mark.slow
async def test_what_was_typed_with_a_key_that_opens_nothing_is_dropped() -> None:
    nobody = one_daemon()
    daemon = replace(nobody.daemons[0], servers=())
    app = make_app(replace(nobody, daemons=(daemon,)))
    async with app.run_test(size=SIZE) as pilot:
        typed = time.monotonic()
        type_at_once(pilot, "enter", "question_mark", *"abcdefgh", at=typed)
        await pilot.pause()
        assert app.screen is app.overview
        dropped = f"Dropped: ?, a, b, c, d, e, f, g and 1 more. {BEHIND}"
        assert [n.message for n in app._notifications] == ["there is no row", dropped]
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        assert len(app._notifications) == 0, "what is done is not told, and what was told in passing is over"


async def test_a_filter_opens_also_where_there_is_nothing_to_filter() -> None:
    app = make_app(held(one_daemon()))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("slash", *"dK")
        assert app.screen is app.overview
        assert app.overview.query_one(Input).value == "dK"
        await pilot.press("escape", "j")
        assert app.focused is app.overview.devices


async def test_what_is_typed_while_the_program_starts_waits_for_the_first_that_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(typeahead, "START", 60.0)
    app = make_app(None)
    async with app.run_test(size=SIZE) as pilot:
        type_at_once(pilot, "slash", *"train", at=0.0)
        for _ in range(50):
            await asyncio.sleep(0)
        assert not app.overview.query(Input)
        app.collector.push(one_daemon())
        await pilot.pause()
        assert app.overview.query_one(Input).value == "train"


async def test_what_was_typed_before_the_first_picture_is_for_the_screen_as_it_is_when_its_turn_comes() -> None:
    """What a busy machine does with such keys late is what another does at once: nobody has seen anything change."""
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        app.collector.push(held(one_daemon()))
        await pilot.pause()
        type_at_once(pilot, "slash", *"train", at=0.0)
        await pilot.pause()
        assert app.overview.query_one(Input).value == "train"
        assert not app._notifications


async def test_a_key_that_leaves_from_before_a_change_and_after_it_is_not_dropped() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        before = await then_held(pilot)
        type_at_once(pilot, "q", at=before)
        await pilot.pause()
    assert app.return_value == 0


@pytest.mark.slow
@pytest.mark.parametrize("key", ["ctrl+c", "f9"])
async def test_what_leaves_from_everywhere_is_dropped_nowhere(key: str) -> None:
    app = make_app(held(one_daemon()), keys={} if key == "ctrl+c" else {"interrupt": key})
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("j")
        before = time.monotonic()
        await asyncio.sleep(0)
        app.push_screen(HelpScreen())
        await pilot.pause()
        type_at_once(pilot, "q", key, at=before)
        await pilot.pause()
    assert app.return_value == 0


async def test_what_leaves_is_not_dropped_behind_a_refused_key() -> None:
    app = make_app(held(one_daemon()))
    async with app.run_test(size=SIZE) as pilot:
        type_at_once(pilot, "K", "d", "ctrl+c", at=time.monotonic())
        await pilot.pause()
    assert app.return_value == 0


async def test_a_start_that_takes_longer_than_keys_wait_for_a_screen_drops_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = make_app(one_daemon())
    ahead, now, left = app.typeahead, 0.0, 50

    def moving(really=ahead._moving) -> bool:
        nonlocal now, left
        now, left = now + 3600 * (left > 0), left - 1
        return left > 0 or really()

    async with app.run_test(size=SIZE) as pilot:
        ahead._first_shown = ahead._left = None
        monkeypatch.setattr(ahead, "painted", lambda: None)
        monkeypatch.setattr(ahead, "_clock", lambda: now)
        monkeypatch.setattr(ahead, "_moving", moving)
        type_at_once(pilot, "slash", *"train", at=0.0)
        await pilot.pause()
        assert app.overview.query_one(Input).value == "train"
        assert not app._notifications


@pytest.mark.parametrize("by_its_tab", [False, True])
async def test_what_is_looked_for_while_the_screen_is_taken_down_is_no_error(by_its_tab: bool) -> None:
    """A program that is ended while it starts has some of its widgets and is told its size all the same; a browser's
    tab ends it by another message than ``q`` does."""
    app = make_app(one_daemon())
    looked = list[str]()

    def look() -> None:
        looked.append("for it")
        app.overview.query_one("#gone")

    async with app.run_test(size=SIZE):
        if by_its_tab:
            app.post_message(messages.ExitApp())
        else:
            app.exit(0)
        app.call_later(look)
        app.overview.call_later(look)
        app.overview.call_after_refresh(look)
    assert looked
    assert app.return_value == 0


async def test_another_error_on_the_way_out_is_told() -> None:
    app = make_app(one_daemon())

    async def leave() -> None:
        async with app.run_test(size=SIZE):
            app.exit(0)
            app.overview.call_later(lambda: 1 // 0)

    with pytest.raises(ZeroDivisionError):
        await leave()


async def test_leaving_needs_nothing_to_be_known() -> None:
    app = make_app(None)
    async with app.run_test(size=SIZE) as pilot:
        type_at_once(pilot, "q", at=0.0)
        await pilot.pause()
    assert app.return_value == 0


@pytest.mark.slow
async def test_enter_in_the_palette_takes_what_was_found_for_what_was_typed() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        type_at_once(pilot, "colon", *"Help", "enter")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        type_at_once(pilot, "escape", "colon", *"no such thing", "enter")
        await pilot.pause()
        assert isinstance(app.screen, CommandPalette), "nothing was found, so nothing is done"


@pytest.mark.slow
async def test_a_paste_is_never_a_key() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        app.post_message(events.Paste("K\nq"))
        await pilot.pause()
        assert app.screen is app.overview
        type_at_once(pilot, "slash")
        app.post_message(events.Paste("user:a\nK"))
        type_at_once(pilot, "enter", "K")
        await pilot.pause()
        assert isinstance(app.screen, HarmConfirm | ModalScreen)
        assert app.overview.clients.filter.text == "user:a"


async def test_to_write_the_screen_anew_waits_for_nothing() -> None:
    app = make_app(one_daemon())
    told: list[str] = []
    opened = asyncio.Event()
    app.action_suspend_process = lambda: app.run_worker(opened.wait(), group=OPENING)  # type: ignore[method-assign,assignment]
    app.action_redraw = lambda: told.append("redraw")  # type: ignore[method-assign]
    async with app.run_test(size=SIZE) as pilot:
        row = app.overview.clients.cursor_index
        type_at_once(pilot, "ctrl+z", "j", "ctrl+l")
        for _ in range(50):
            await asyncio.sleep(0)
        assert (told, app.typeahead.busy) == (["redraw"], True)
        assert app.overview.clients.cursor_index == row, "the key before it still waits"
        opened.set()


@pytest.mark.slow
@pytest.mark.parametrize("key", ["ctrl+l", "f9"])
async def test_it_waits_for_nothing_where_a_dialog_is_in_front(key: str) -> None:
    """A modal screen hides the program's own bindings, and this one works behind it; the user may have another key."""
    app = make_app(one_daemon(), keys={} if key == "ctrl+l" else {"redraw": key})
    told: list[str] = []
    opened = asyncio.Event()
    app.action_redraw = lambda: told.append("redraw")  # type: ignore[method-assign]
    async with app.run_test(size=SIZE) as pilot:
        await app.push_screen(HelpScreen())
        app.run_worker(opened.wait(), group=OPENING)
        type_at_once(pilot, "j", key)
        for _ in range(50):
            await asyncio.sleep(0)
        assert (told, app.typeahead.busy) == (["redraw"], True)
        opened.set()


async def test_a_refusal_that_was_seen_drops_nothing_that_is_typed_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it was painted before all that came of the key was done, and nothing is painted after it."""
    monkeypatch.setattr(typeahead, "UNSEEN", 3600.0)
    app = make_app(one_daemon())

    def refuse() -> None:
        app.typeahead.refuse()
        app.typeahead.painted()
        app.typeahead.painted = lambda: None  # type: ignore[method-assign]

    app.action_suspend_process = refuse  # type: ignore[method-assign]
    async with app.run_test(size=SIZE) as pilot:
        type_at_once(pilot, "ctrl+z")
        await pilot.pause()
        assert app.typeahead._deaf <= app.typeahead._clock()


async def test_what_is_typed_while_a_shell_has_the_terminal_reaches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was meant for the shell, or for nobody yet: from Ctrl-Z on, until the whole screen is painted again."""
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        driver = type(app.terminal_driver)
        for name in ("stop_job", "terminal_size", "report_mouse"):
            monkeypatch.setattr(driver, name, lambda *_: None, raising=False)
        monkeypatch.setattr(program, "TerminalDriver", driver)
        monkeypatch.setattr(program, "can_come_back", lambda: True)
        monkeypatch.setattr(app, "written", lambda: None)  # nothing is painted while it is stopped
        type_at_once(pilot, "ctrl+z", "K", "ctrl+c")
        await pilot.pause()
        assert (len(app.screen_stack), app.return_code) == (1, None)
        assert [told.message for told in app._notifications] == [f"Dropped: K, ^c. {WHY}"]
        app.typeahead.painted()
        type_at_once(pilot, "K")
        await pilot.pause()
        assert isinstance(app.screen, HarmConfirm)


class Yielding(ConfirmDialog):
    """Its yes brings another button, where that yes had been."""

    def __init__(self, hint: str = "Tab move") -> None:
        super().__init__(one_daemon())
        self.said: list[str] = []
        self._told = hint

    def compose(self) -> ComposeResult:
        foot = (Push("Cancel", id="cancel"), Push("Apply all", id="apply"), Push("Go back", id="back"))
        yield self.frame("Apply", self._told, Lines(id="what"), foot=foot)

    def show(self) -> None:
        self.query_one("#back").display = bool(self.said)
        self.query_one("#apply").display = not self.said

    def pressed(self, button: str) -> None:
        self.said.append(button)
        self.show()


def click(pilot: Pilot[Any], x: int, y: int, at: float) -> None:
    """As a terminal tells of it, at that time."""
    for kind in (events.MouseDown, events.MouseUp):
        event = kind(None, x, y, 0, 0, 1, False, False, False, screen_x=x, screen_y=y)
        event.time = at
        pilot.app.post_message(event)


async def test_a_click_is_for_the_button_that_was_seen_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second click of two on Apply was Go back, and so was one on Close, which had been there a moment ago."""
    app, dialog, now = make_app(one_daemon()), Yielding(), time.monotonic() + 1000
    async with app.run_test(size=SIZE) as pilot:
        monkeypatch.setattr(app.typeahead, "_clock", lambda: now)
        app.push_screen(dialog)
        await pilot.pause()
        app.typeahead.painted()
        x, y = dialog.query_one("#apply").region.center
        place = int(x), int(y)
        click(pilot, *place, at=now + typeahead.HAND / 2)
        await pilot.pause()
        assert dialog.said == [], "a click that was made before the question could be seen"
        now += 10
        click(pilot, *place, at=now)
        await pilot.pause()
        assert dialog.said == ["apply"]
        app.typeahead.painted()
        assert dialog.query_one("#back").region.contains(*place)
        click(pilot, *place, at=now + typeahead.HAND / 2)
        await pilot.pause()
        assert dialog.said == ["apply"]
        assert any("button had just come there" in told.message for told in app._notifications)
        now += 10
        click(pilot, *place, at=now)
        await pilot.pause()
        assert dialog.said == ["apply", "back"]


async def test_a_click_on_the_keys_is_for_what_stood_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A double click on “Tab to Terminate + kill” was a yes: the first one had brought “Enter Terminate + kill” there.
    Seen in a terminal: a client was ended."""
    app, dialog, now = make_app(one_daemon()), Yielding("Enter marked button · Tab move"), time.monotonic() + 1000
    async with app.run_test(size=SIZE) as pilot:
        monkeypatch.setattr(app.typeahead, "_clock", lambda: now)
        app.push_screen(dialog)
        await pilot.pause()
        app.typeahead.painted()
        foot = text_of(app).splitlines()[-1]
        assert "Enter Cancel  Tab to Apply all" in foot
        place = foot.index("Tab"), SIZE[1] - 1
        now += 10
        for _ in range(2):
            click(pilot, *place, at=now)
        await pilot.pause()
        assert dialog.said == []
        assert text_of(app).splitlines()[-1].index("Apply all") < place[0]
        for later in (0.0, typeahead.HAND / 2):
            app.typeahead.painted()
            click(pilot, *place, at=now + later)
            await pilot.pause()
            assert dialog.said == []
        assert any("button had just come there" in told.message for told in app._notifications)
        now += 10
        click(pilot, *place, at=now)
        await pilot.pause()
        assert dialog.said == ["apply"], "it is one on what is seen there"


async def test_a_click_is_not_for_the_button_that_a_notification_lay_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two on a notification: the first one took it away, and the second one was a yes below it."""
    app, dialog, now = make_app(one_daemon()), Yielding(), time.monotonic() + 1000
    async with app.run_test(size=(40, 10), notifications=True) as pilot:
        monkeypatch.setattr(app.typeahead, "_clock", lambda: now)
        app.push_screen(dialog)
        await pilot.pause()
        app.notify("It could not be done. " * 20, severity="error", timeout=300)
        await pilot.pause()
        toasts = [toast for rack in toast_racks(dialog) for toast in rack.query("Toast")]
        at = dialog.query_one("#apply").region.intersection(toasts[0].region)
        assert at, "it lies over the button"
        app.typeahead.painted()
        now += 10
        for _ in range(2):
            click(pilot, at.x, at.y, at=now)
            await pilot.pause()
        await until(pilot, lambda: not any(rack.query("Toast") for rack in toast_racks(dialog)))
        app.typeahead.painted()
        click(pilot, at.x, at.y, at=now + typeahead.HAND / 2)
        await pilot.pause()
        assert dialog.said == []
        now += 10
        click(pilot, at.x, at.y, at=now)
        await pilot.pause()
        assert dialog.said == ["apply"]


async def test_of_a_click_that_is_dropped_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its release, which came later, was the end of the click before it where both were at one place."""
    app, dialog, now = make_app(one_daemon()), Yielding(), time.monotonic() + 1000
    async with app.run_test(size=SIZE) as pilot:
        monkeypatch.setattr(app.typeahead, "_clock", lambda: now)
        app.push_screen(dialog)
        await pilot.pause()
        app.typeahead.painted()
        button = dialog.query_one("#apply")
        x, y = map(int, button.region.center)
        app._mouse_down_widget = button
        for kind, at in ((events.MouseDown, now), (events.MouseUp, now + 10)):
            event = kind(None, x, y, 0, 0, 1, False, False, False, screen_x=x, screen_y=y)
            event.time = at
            app.post_message(event)
        await pilot.pause()
        assert dialog.said == []
