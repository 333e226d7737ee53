"""One map of letters for all screens, what may harm, and the page that is made of it."""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from pathlib import Path

import pytest
from textual.binding import Binding

from mpstui.cli.parser import LateParser, build_parser
from mpstui.config import _toml, load_config
from mpstui.operations.operation import Operation
from mpstui.operations.registry import ELSEWHERE, ON_OVERVIEW, OPERATIONS
from mpstui.ui import keymap
from mpstui.ui.keymap import LETTERS, places, resolve
from mpstui.ui.keys import OF_OTHER_PROGRAMS, ON_OTHER_SCREENS, written
from mpstui.ui.overview import Overview

from .screen import make_app
from .snapshots import one_daemon

PROJECT = Path(__file__).parents[2]


def test_a_letter_means_one_thing_on_all_screens_and_what_harms_does_nothing_else() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for bindings in places().values():
        for name, keys in bindings.items():
            for key in keys:
                if len(key) == 1 and key.isalpha():
                    found[key].add(name)
    assert {key: found[key] - LETTERS[key].ids for key in found} == {key: set() for key in found}
    assert set(found) == set(LETTERS), "what is in the map is bound"
    ending = {"action.terminate_client", "action.terminate_and_kill", "action.end_lost_clients", "action.unblock"}
    ending |= {"action.shutdown_server", "daemon.stop", "load.stop", "load.stop_all", "fault.end_one", "load.fault"}
    ending |= {"partition.remove", "namespace.delete", "namespace.terminate"}
    for letter in LETTERS.values():
        assert letter.harms == bool(letter.ids & ending), letter
        assert not letter.harms or letter.ids <= ending


def test_beside_q_is_no_letter_that_changes_anything() -> None:
    """``Q`` is what a finger on Shift makes of ``q``."""
    assert not any("Q" in keys for bindings in places().values() for keys in bindings.values())


def test_escape_q_help_filter_enter_and_space_are_alike_everywhere() -> None:
    for place, bindings in places().items():
        of = {key: name for name, keys in bindings.items() for key in keys}
        assert of["q"] == "quit", place
        assert of["question_mark"] == "help"
        assert of["escape"].endswith("back")
        assert of.get("slash", "filter") == "filter"
        assert of.get("enter", "open") == "open"
        assert of.get("space", "clients.choose") in {"clients.choose", "kinds.toggle", "columns.switch"}


def test_the_key_that_a_screen_says_is_the_one_that_it_has() -> None:
    """The default beside an id in the sources is the first key of that binding."""
    first = {name: keys[0] for bindings in places().values() for name, keys in bindings.items()}
    names = {
        "slash": "/",
        "question_mark": "?",
        "colon": ":",
        "escape": "Esc",
        "enter": "Enter",
        "space": "Space",
        "tab": "Tab",
        "exclamation_mark": "!",
        "ampersand": "&",
        "f2": "F2",
        "f12": "F12",
        "f4": "F4",
        "f5": "F5",
        "f6": "F6",
        "end": "End",
    }
    sources = "\n".join(file.read_text() for file in (PROJECT / "mpstui" / "ui").rglob("*.py"))
    said = re.findall(r"""\b(?:k|key|shown_key)\((?:[\w.]+, )?['"]([a-z_.]+)['"], ['"]([^'"]+)['"]\)""", sources)
    assert len(said) > 20
    wrong = {
        (i, key) for i, key in said if i in first and i != "open" and key not in {first[i], names.get(first[i], "")}
    }
    assert wrong == set()


def test_the_letter_that_a_sentence_of_the_load_names_is_the_one_that_it_has() -> None:
    sources = "\n".join(file.read_text() for file in (PROJECT / "mpstui" / "ui" / "load").rglob("*.py"))
    load = places()["load: fields"]
    for verb, name in (("restarts", "load.restart"), ("starts it again", "load.restart"), ("raises", "load.limit")):
        said = set(re.findall(rf"(?<![\w'’])([A-Za-z]) {verb}\b", sources))
        assert said == {load[name][0]}, f"{said} {verb}"


def test_a_key_is_written_alike_in_help_and_at_the_foot() -> None:
    known = ("⏎", "space", "f2", "home", "pgdn", "^d", "shift+tab", "←", "a", "A", "*", "insert")
    assert [written(key) for key in known] == [
        "Enter", "Space", "F2", "Home", "PgDn", "^d", "Shift+Tab", "←", "a", "A", "*", "Ins",
    ]  # fmt: skip


def test_the_old_keys_can_be_had_again(tmp_path) -> None:
    old = PROJECT / "examples" / "keys-before.toml"
    file = tmp_path / "config.toml"
    file.write_text(old.read_text())
    config, messages = load_config(file)
    assert messages == []
    wanted = _toml(old.read_text())["keys"]
    keymap, messages = resolve(config.keys, places())
    assert not any("keeps its own" in message or "there is no" in message for message in messages), messages
    flat = {f"{a}.{b}": key for a, table in wanted.items() if isinstance(table, dict) for b, key in table.items()}
    assert {name: keymap[name] for name in flat} == flat
    assert keymap["pause"] == "space"


def test_a_key_given_twice_on_one_screen_is_refused_for_the_second() -> None:
    keymap, messages = resolve({"pause": "f8", "refresh": "f8"}, places())
    assert keymap == {"pause": "f8"}
    assert "f8 is given to pause already" in messages[0]


@pytest.mark.parametrize("each", OPERATIONS, ids=lambda each: each.id)
def test_what_calls_an_operation_comes_from_its_row(each: Operation) -> None:
    """Its key on its screen, its help there and in the palette, its command; what has neither is part of another."""
    name = each.key_id or f"action.{each.id}"
    bound = {
        (binding.id, binding.key): binding
        for pair in keymap._SCREENS.values()
        for owner in pair
        for base in owner.__mro__
        for binding in vars(base).get("BINDINGS", ())
        if isinstance(binding, Binding)
    }
    if each.key:
        binding = bound[name, each.key]
        same = {other.help for other in OPERATIONS if (other.key_id or f"action.{other.id}") == name}
        assert same & {binding.description, binding.tooltip}, "told in the words of its row"
        assert each in ON_OVERVIEW or each in ELSEWHERE, "the palette and the help are made of these"
        assert each in ON_OVERVIEW or each.place in {place.partition(":")[0] for place in keymap.places()}
        assert hasattr(Overview, f"action_{'act' if each in ON_OVERVIEW else each.place}"), "the palette's way to it"
    assert each.help, "a sentence for palette, help and dialog"
    if each.verb is not None:
        parser = build_parser()
        for word in each.verb.words:
            if isinstance(parser, LateParser):
                parser.complete()
            parser = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction)).choices[word]
        assert parser.get_default("words") == each.verb.words
    assert each.key or each.verb is not None or each.no_verb


async def test_a_letter_of_another_screen_says_on_the_overview_where_it_works(monkeypatch) -> None:
    where = places()
    here = {key for name in ("overview", "overview: devices") for keys in where[name].values() for key in keys}
    assert set(LETTERS) - here == set(ON_OTHER_SCREENS), "each letter does something, or says where it does"
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        said: list[str] = []
        monkeypatch.setattr(app, "notify", lambda text, **options: said.append(text))
        for letter, screens in ON_OTHER_SCREENS.items():
            said.clear()
            await pilot.press(letter)
            assert [text.startswith(f"{letter} is for ") for text in said] == [True], letter
            for name, key, title in screens:
                assert key in where["overview"][name], (name, key)
                assert f"{title} ({'!' if key == 'exclamation_mark' else key})" in said[0]


async def test_a_key_of_htop_or_k9s_says_which_one_it_is_here(monkeypatch) -> None:
    """Seen: F9, F10 and Ctrl-K did nothing, without a word."""
    where = places()["overview"]
    taken = {key for keys in where.values() for key in keys}
    app = make_app(one_daemon(), keys={"quit": "ctrl+x"})
    async with app.run_test(size=(80, 24)) as pilot:
        said: list[str] = []
        monkeypatch.setattr(app, "notify", lambda text, **options: said.append(f"{options['title']}: {text}"))
        for key, ours in OF_OTHER_PROGRAMS.items():
            assert key not in taken, key
            assert all(default in where[name] for name, default, _ in ours), ours
            said.clear()
            await pilot.press(key)
            assert len(said) == 1, key
        await pilot.press("f9")
        assert said[-1] == "F9: here t (Terminate), K (Terminate + kill)"
        await pilot.press("f10")
        assert said[-1] == "F10: here ^x (Quit)"


def test_no_key_has_two_bindings_on_one_screen() -> None:
    """Of two the user can change one, and the key still does what it did."""
    told = {frozenset({"past.now", "move.last"})}  # End is the list's until the past is shown
    for place, bindings in places().items():
        for key in {key for keys in bindings.values() for key in keys}:
            names = frozenset(name for name, keys in bindings.items() if key in keys)
            assert len(names) == 1 or names in told, (place, key)
