"""A key pressed for a client that has just ended does not reach its neighbour."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpstui.core.model import Past, ProcessKey
from mpstui.ui.dialogs import DetailsScreen, HarmConfirm
from mpstui.ui.stale_target import HOLD

from .screen import make_app, text_of
from .snapshots import NOW, OTHER_PIPE, client, daemon, rich, server

SIZE = (160, 48)
ONE, TWO, THREE = client(0), client(1), client(2)


def node(*clients, other=()):
    second = daemon(pipe_dir=OTHER_PIPE, servers=(server(clients=other),))
    return rich(daemons=(daemon(servers=(server(clients=clients),)), second))


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.slow
@pytest.mark.parametrize("choose", [False, True])
async def test_an_action_is_held_back_where_the_client_meant_has_ended(choose: bool) -> None:
    app = make_app(node(ONE, TWO, THREE))
    async with app.run_test(size=SIZE) as pilot:
        clock = app.overview.stale.clock = Clock()
        if choose:
            await pilot.press("v")
        app.collector.push(node(TWO, THREE))
        await pilot.pause()
        clock.now += HOLD / 2
        await pilot.press("K")
        assert app.screen is app.overview
        says = f"{ONE.pid} has ended; nothing was done"
        assert [n.message for n in app._notifications][-1] == f"{says}. The cursor is on another one"
        assert app.overview.stale.refusal(()) == says, "there is no other one"
        clock.now += HOLD
        await pilot.press("K")
        assert isinstance(app.screen, HarmConfirm), "by then the user has seen where the cursor is"


@pytest.mark.parametrize("why", ["the past", "read-only"])
async def test_what_holds_for_whomever_is_said_and_no_earlier_client_named(why: str) -> None:
    """After a jump in a recording `t` said "2801 has ended", and the next `t` that it is a recording."""
    past = Past("REPLAY", NOW - 60, NOW - 3600, NOW, False, 1.0, "this is a recording") if why == "the past" else None
    app = make_app(replace(node(ONE, TWO), past=past), read_only=why == "read-only")
    async with app.run_test(size=SIZE) as pilot:
        app.overview.stale.clock = Clock()
        app.collector.push(replace(node(TWO, THREE), past=past))
        await pilot.pause()
        await pilot.press("K")
        said = [n.message for n in app._notifications][-1]
        assert said == ("this is a recording" if past else "mpstui runs read-only")


@pytest.mark.slow
async def test_an_end_under_a_window_counts_from_when_the_window_has_gone() -> None:
    app = make_app(node(ONE, TWO, THREE))
    async with app.run_test(size=SIZE) as pilot:
        clock = app.overview.stale.clock = Clock()
        await pilot.press("question_mark")
        for left in ((TWO, THREE), (THREE,)):
            app.collector.push(node(*left))
            await pilot.pause()
        clock.now += 10 * HOLD
        await pilot.press("escape", "K")
        assert app.screen is app.overview
        assert f"{ONE.pid} has ended; nothing was done" in [n.message for n in app._notifications][-1]
        clock.now += 2 * HOLD
        await pilot.press("K")
        assert isinstance(app.screen, HarmConfirm)


@pytest.mark.slow
@pytest.mark.parametrize("left", [(ONE, THREE), (ONE, TWO)])
async def test_the_end_of_another_holds_nothing_back(left) -> None:
    app = make_app(node(ONE, TWO, THREE))
    async with app.run_test(size=SIZE) as pilot:
        app.collector.push(node(*left))
        await pilot.pause()
        await pilot.press("t")
        assert isinstance(app.screen, HarmConfirm)


@pytest.mark.slow
async def test_a_client_whose_start_becomes_known_has_not_ended() -> None:
    """It was told as ended, chosen no more, and gone in its details and in the question."""
    doubted = replace(ONE, key=ProcessKey(ONE.pid))
    app = make_app(node(doubted, TWO))
    async with app.run_test(size=SIZE) as pilot:
        app.collector.push(node(ONE, TWO))
        await pilot.pause()
        assert app.overview.clients.cursor == ONE.key
        app.collector.push(node(doubted, TWO))
        await pilot.pause()
        assert app.overview.clients.cursor == doubted.key
        await pilot.press("space", "enter")
        app.collector.push(node(ONE, TWO))
        await pilot.pause()
        assert app.overview.clients.chosen == {ONE.key}
        assert isinstance(app.screen, DetailsScreen)
        assert "It is gone" not in text_of(app)


@pytest.mark.slow
async def test_the_question_follows_a_client_whose_start_becomes_known_and_no_other() -> None:
    doubted = replace(ONE, key=ProcessKey(ONE.pid))
    app = make_app(node(doubted, TWO))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("t")
        for clients, present, said in (
            ((ONE, TWO), (ONE.key,), "Terminate"),
            ((doubted, TWO), (), "not known to be the same process; left alone"),
            ((ONE, TWO), (ONE.key,), "Terminate"),
            ((replace(ONE, key=ProcessKey(ONE.pid, 5)), TWO), (), "gone; left alone"),
        ):
            app.collector.push(node(*clients))
            await pilot.pause()
            assert isinstance(app.screen, HarmConfirm)
            assert app.screen.present() == present
            assert said in text_of(app)
            assert ("gone" in text_of(app)) == ("gone" in said)


@pytest.mark.slow
async def test_another_daemons_table_is_not_a_client_that_ended() -> None:
    app = make_app(node(ONE, other=(TWO,)))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("right_square_bracket", "t")
        assert isinstance(app.screen, HarmConfirm)
        assert app.screen.clients == (TWO.key,)


@pytest.mark.slow
async def test_details_say_of_a_key_of_the_screen_below_where_it_works() -> None:
    app = make_app(node(ONE, TWO))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter")
        for key, said in (
            ("t", "t (Terminate) works"),
            ("K", "K (Terminate"),
            ("space", "space (Choose)"),
            ("m", "m ("),
        ):
            app.clear_notifications()
            await pilot.press(key)
            assert isinstance(app.screen, DetailsScreen), "and it does nothing"
            (told,) = [n.message for n in app._notifications]
            assert told.startswith(said)
            assert told.endswith("works on the screen below; Esc closes this one.")
        app.clear_notifications()
        await pilot.press("slash", *"tK", "down", "escape", "j", "G")
        assert not list(app._notifications), "typed, or a key of its own"
