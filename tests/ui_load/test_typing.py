"""What is typed into a field has a cursor, a selection and a paste, and stays in the field that it was typed for."""

from __future__ import annotations

import pytest
from textual.events import Key, Paste
from ui.screen import text_of, until

from mpstui.ui.load.screen import LoadScreen
from mpstui.ui.overview import Overview

from .fakes import DOWN, FREE, SIZE, load_app, opened, setup_of

TYPED = [
    ("clients", ["1", "2", "left", "5"], 152),
    ("clients", ["1", "2", "home", "5"], 512),
    ("clients", ["1", "2", "home", "delete"], 2),
    ("clients", ["1", "2", "shift+left", "7"], 17),
    ("clients", ["1", "2", "shift+home", "7"], 7),
    ("clients", ["1", "2", "ctrl+u", "3"], 3),
    ("seconds", ["9", "0", "left", "full_stop"], 9.0),
    ("seconds", ["9", "0", "left", "full_stop", "5"], 9.50),
]


@pytest.mark.slow
async def test_a_cursor_and_a_selection() -> None:
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot)
        fields, at = app.screen.fields, 0
        first = fields.setup
        for field, keys, value in TYPED:
            steps = len(DOWN[field]) - at
            at += steps
            await pilot.press(*["down"] * steps or ["up", "down"])  # what was typed ends
            fields.setup = first
            assert (fields.field.id, fields.editing) == (field, False)
            await pilot.press(*keys)
            assert getattr(setup_of(app), field) == value, keys
            assert isinstance(app.screen, LoadScreen)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "keys", "pasted", "attribute", "value"),
    [
        ("shares", [], "10,20,30", "shares", (10.0, 20.0, 30.0)),
        ("shares", ["1"], "0,25\n", "shares", (10.0, 25.0)),
        ("shares", [*"15", "left"], "0,2", "shares", (10.0, 25.0)),
        ("memory", [], "2g", "memory_limit", "2G"),
        ("memory", [*"10"], " gib", "memory_limit", "10G"),
        ("clients", ["5", "shift+left"], "12", "clients", 12),
    ],
)
async def test_a_paste_goes_into_the_field(field, keys, pasted, attribute, value) -> None:
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot, *DOWN[field], *keys)
        app.post_message(Paste(pasted))
        await until(pilot, lambda: getattr(setup_of(app), attribute) == value)
        await pilot.press("down", "up")
        assert getattr(setup_of(app), attribute) == value, "the typing has ended, the value stays"


@pytest.mark.parametrize("field", ["clients", "kernel"])
async def test_a_paste_of_something_else_does_nothing_at_all(field) -> None:
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot, *DOWN[field])
        before = setup_of(app)
        app.post_message(Paste("12 xX\nq\x1b[31mq"))
        await pilot.pause()
        assert setup_of(app) == before
        assert isinstance(app.screen, LoadScreen)
        if field == "clients":
            assert "nothing was pasted" in next(iter(app._notifications)).message
            assert not app.screen.fields.editing


@pytest.mark.slow
async def test_keys_typed_ahead_stay_with_the_field_that_the_key_before_went_to() -> None:
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot, *DOWN["clients"])
        for key, char in (
            *(("1", "1"), ("2", "2"), ("left", None), ("3", "3"), ("down", None), ("down", None), ("4", "4")),
            *(("comma", ","), ("5", "5"), ("backspace", None), ("6", "6"), ("tab", "\t"), ("7", "7"), ("tab", "\t")),
            *(("8", "8"), ("up", None), ("up", None), ("9", "9"), ("escape", "\x1b"), ("j", "j")),
        ):
            app.post_message(Key(key, char))
        await until(pilot, lambda: isinstance(app.screen, Overview))
        setup = app.load and app.get_screen("load").fields.setup
        assert (setup.clients, setup.shares) == (9, (8.0,))


@pytest.mark.slow
async def test_the_typing_ends_with_the_focus_and_what_is_no_part_of_a_value_is_still_a_key() -> None:
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot, *DOWN["clients"], "1", "6")
        fields = app.screen.fields
        assert fields.editing
        await pilot.press("tab", "tab")
        assert not fields.editing
        assert app.focused is fields
        await pilot.press("7", "j")
        assert (fields.field.id, fields.editing, setup_of(app).clients) == ("device", False, 7)
        await pilot.press("k", "2", "question_mark")
        assert "Typing" in text_of(app)


@pytest.mark.slow
async def test_what_is_typed_stands_in_its_row() -> None:
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot, *DOWN["clients"], "4", "0")
        row = next(line for line in text_of(app).splitlines() if line.startswith("│▸clients"))
        assert row.startswith("│▸clients     40 ")
        assert row[45] == "│"


@pytest.mark.slow
async def test_it_ends_where_the_screen_is_left() -> None:
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot, *DOWN["clients"], "4", "escape", "L")
        assert (app.screen.fields.editing, app.focused) == (False, app.screen.fields)
        await pilot.press("5")
        assert setup_of(app).clients == 5


@pytest.mark.slow
async def test_a_word_in_a_field_for_numbers_is_not_taken_in_silence() -> None:
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        backend = await opened(pilot, *DOWN["clients"], "t")
        assert [n.message for n in app._notifications] == ["“t” is no part of clients: only 0 to 9 can be typed here"]
        await pilot.press("5", "z")
        assert "“z” is no part of clients" in [n.message for n in app._notifications][-1]
        assert setup_of(app).clients == 5
        await pilot.press("down", "t")
        assert [n.message for n in app._notifications][-1] == "“t” is no part of device: ← → change it"
        assert isinstance(app.screen, LoadScreen)
        assert backend.supervisors == []


async def test_a_number_of_clients_that_no_load_has_is_refused_and_not_counted_through() -> None:
    """With six digits each key took seconds, with nine the screen stood still for good."""
    app = load_app(snapshot=FREE)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot, *DOWN["clients"], *"100000")
        assert setup_of(app).clients <= 9999
        await pilot.press("9", "9", "9", "9", "enter")
        assert "1 to 64 clients" in text_of(app)
        assert setup_of(app).clients <= 9999
        assert not app.load.members
