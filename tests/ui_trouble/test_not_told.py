"""Nobody in a list is not nobody there: before anything was read, and where a daemon has told nothing so far."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpstui.core.activity import activity_look
from mpstui.core.condition import Condition
from mpstui.core.model import Past, Snapshot
from tests.ui.screen import push, text_of, until
from tests.ui.snapshots import NOW

from .nodes import A, B, FakeTrouble, member, node, said, trouble_app

SIZE = (160, 48)


def unread() -> Snapshot:
    """The first moment of a recording."""
    return Snapshot(NOW, looked=False, past=Past("REPLAY", NOW, NOW, NOW + 60, False, 1.0, "this is a recording"))


def held() -> Snapshot:
    """A daemon that has answered nothing so far, and whose logs are not read."""
    known = node()
    (one,) = known.daemons
    one = replace(one, servers=(), condition=Condition("held", "held"), watch="polling")
    return replace(known, daemons=(one,))


@pytest.mark.parametrize(
    ("key", "claim"),
    [
        ("exclamation_mark", "No server is in FAULT"),
        ("b", "There is no client that could fault"),
        ("b", "nothing can be lost"),
        ("B", "No fatal fault is in the history"),
        ("P", "There is no daemon here"),
    ],
)
async def test_before_anything_was_read_nothing_is_said_not_to_be_there(key: str, claim: str) -> None:
    app = trouble_app(unread())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press(key)
        await pilot.pause()
        told = said(app) + text_of(app)
        assert claim not in told
        assert "not known" in told.lower()
        assert "read" in told


@pytest.mark.parametrize(
    ("key", "claim"),
    [("exclamation_mark", "No server is in FAULT"), ("b", "There is no client"), ("b", "nothing can be lost")],
)
async def test_a_daemon_that_has_told_nothing_is_not_one_without_clients(key: str, claim: str) -> None:
    app = trouble_app(held())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press(key)
        await pilot.pause()
        told = said(app) + text_of(app)
        assert claim not in told
        assert "not known" in told.lower()


def test_a_look_at_what_was_not_read_finds_nobody_missing() -> None:
    sentence = activity_look(unread(), 0.0, "", {}, {}).sentence
    assert sentence == "The clients are not known: nothing of the node was read."


async def test_nothing_is_said_not_to_have_happened() -> None:
    app = trouble_app(unread())
    async with app.run_test(size=SIZE):
        assert "nothing has happened" not in text_of(app)
        assert "no event is known" in text_of(app)


async def test_whose_clients_are_there_is_not_told_from_another_time() -> None:
    """At the begin of a replay it listed who is there at its end."""
    app = trouble_app(node((member(A, 0), member(B, 0, 1))))
    async with app.run_test(size=SIZE) as pilot:
        await push(pilot, unread())
        await pilot.press("U")
        told = text_of(app)
        assert "alice" not in told
        assert "everybody  not known" in told


async def test_no_fault_is_not_said_of_a_daemon_whose_logs_are_not_read() -> None:
    """They alone tell of faults: it was "✓ No fatal fault is in the history", with a remark below."""
    known = node()
    deaf = replace(known, daemons=(replace(known.daemons[0], watch="polling"),))
    app = trouble_app(deaf, FakeTrouble(broken="the daemon's log directory is not known"))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("B")
        await until(pilot, lambda: "log directory" in said(app))
        assert "No fatal fault is in the history" not in said(app)
        assert "Whether there was a fatal fault is not known" in said(app)
