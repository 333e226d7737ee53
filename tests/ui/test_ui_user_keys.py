"""Keys that the user chose: what is granted, what is said about the rest, and what the key bar shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mpstui.ui.dialogs import HarmConfirm
from mpstui.ui.keymap import places, resolve
from mpstui.ui.keys import shown_key

from .screen import make_app, text_of
from .snapshots import one_daemon

PROJECT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["terminate_client", "action.terminate_client"])
def test_an_action_goes_by_its_id(name: str) -> None:
    assert resolve({name: "f8"}, places()) == ({"action.terminate_client": "f8"}, [])


def test_an_unknown_id_is_named_with_those_like_it() -> None:
    keymap, (message,) = resolve({"action.terminate": "T", "quit": "f10"}, places())
    assert keymap == {"quit": "f10"}
    assert "no action.terminate;" in message
    assert "action.terminate_client" in message
    assert "docs/keys.md" in resolve({"zzzzzzz": "T"}, places())[1][0]


def test_a_key_is_taken_from_who_has_others() -> None:
    keymap, (message,) = resolve({"action.unblock": "insert"}, places())
    assert keymap == {"action.unblock": "insert", "clients.choose": "v,space"}
    assert message == "keys: insert is now action.unblock; clients.choose keeps v, space"


def test_the_only_key_of_another_is_refused_unless_that_one_gets_another() -> None:
    keymap, (message,) = resolve({"pause": "p"}, places())
    assert keymap == {}
    assert "p is the only key of plan" in message
    assert resolve({"pause": "p", "plan": "f9"}, places()) == ({"pause": "p", "plan": "f9"}, [])
    assert resolve({"pause": "p", "plan": "F"}, places())[0] == {"pause": "p", "plan": "F"}


def test_what_all_screens_share_clashes_with_the_keys_of_each() -> None:
    for key, owner in (("a", "activity"), ("V", "plan.open")):
        _, messages = resolve({"quit": key}, places())
        assert any(f"{key} is the only key of {owner}" in message for message in messages)


def test_the_same_key_on_different_screens_is_no_clash() -> None:
    assert resolve({"action.unblock": "X"}, places()) == ({"action.unblock": "X"}, [])


@pytest.mark.parametrize(
    ("key", "shown"), [("ctrl+x", "^x"), ("question_mark", "?"), ("space", "space"), ("X,y", "X"), ("f5", "f5")]
)
def test_how_a_key_is_written(key: str, shown: str) -> None:
    assert shown_key({"quit": key}, "quit", "q") == shown
    assert shown_key({}, "quit", "q") == "q"


@pytest.mark.slow
async def test_the_key_bar_shows_the_users_keys_and_they_work() -> None:
    keymap, _ = resolve({"quit": "f10", "pause": "f8", "terminate_client": "x"}, places())
    app = make_app(one_daemon(), keys=keymap)
    async with app.run_test(size=(240, 48)) as pilot:
        bar = text_of(app).splitlines()[-1]
        for shown in ("x Terminate", "f8 Freeze", "f10 Quit"):
            assert shown in bar
        await pilot.press("t")
        assert app.screen is app.overview
        await pilot.press("x")
        assert isinstance(app.screen, HarmConfirm)


def test_every_id_is_documented_with_its_keys() -> None:
    known = {name: keys for bindings in places().values() for name, keys in bindings.items()}
    sources = "\n".join(file.read_text() for file in (PROJECT / "mpstui" / "ui").rglob("*.py"))
    bound = set(re.findall(r'Binding\([^)]*?\bid="([a-z0-9_.]+)"', sources, re.DOTALL))
    assert bound <= known.keys(), "a screen is missing in mpstui.ui.keymap.places"
    rows = dict(
        re.findall(
            r"^\| `([a-z0-9_.]+)` \| (.*?) \|",
            (PROJECT / "docs" / "keys.md").read_text().partition("## Overview")[2],
            re.MULTILINE,
        )
    )
    told = {name: tuple(re.findall(r"`(.*?)`", keys)) for name, keys in rows.items()}
    assert told == known, "docs/keys.md"
