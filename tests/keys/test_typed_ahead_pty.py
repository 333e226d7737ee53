"""In a real terminal: what is typed at once with a key that opens something reaches only what that key opens.

All pairs of keys take minutes: ``MPSTUI_ALL_KEYS=1``. Otherwise each opening key is followed by some of the symbols,
in turn.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest
from program import simulated_node
from typed import BASES, SYMBOLS, Recorded, recorded, sent

ALL = "MPSTUI_ALL_KEYS" in os.environ
TRIES = 20


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    with (
        simulated_node() as node,
        recorded(tmp_path_factory.mktemp("keys"), ["--pipe-dir", str(node.pipe_dir)]) as program,
    ):
        yield program


def typed_anew(program: Recorded, base: str, text: str, wanted: list[str] | None) -> list[tuple[str, str]]:
    """:meth:`Recorded.burst` from that screen; again where a key was refused and it did not reach what was wanted: a
    client may end under the cursor, and what is typed with a refused key is dropped."""
    for _ in range(TRIES):
        program.base(base)
        reached = program.burst(text)
        if not program.refused or [to for _, to in reached] == wanted:
            break
    return reached


@pytest.mark.timeout(7200 if ALL else 180)
@pytest.mark.parametrize("base", BASES)
def test_what_follows_an_opening_key_at_once_reaches_only_what_it_opened(program: Recorded, base: str) -> None:
    symbols = itertools.cycle(SYMBOLS)
    begun = program.base(base)
    wrong, opening = [], []
    for key in begun["keys"]:
        program.base(base)
        opened = program.alone(key)
        if opened == begun["at"]:
            continue
        opening.append(key)
        for symbol in SYMBOLS if ALL else itertools.islice(symbols, 1):
            reached = typed_anew(program, base, sent(key) + symbol, [begun["at"], opened])
            if [to for _, to in reached] != [begun["at"], opened]:
                wrong.append((symbol, reached, opened))
    assert not wrong
    assert len(opening) > 2, "it has keys that open something"


@pytest.mark.parametrize(
    ("base", "typed", "where"),
    [
        ("overview", "/train", "Overview TypedLine filter"),
        ("overview", "/Kpython", "Overview TypedLine filter"),
        ("events", "/open", "EventsScreen TypedLine filter"),
        ("events", "fKt", "EventsScreen TypedLine search"),
    ],
)
def test_the_letters_of_a_filter_are_its_text(program: Recorded, base: str, typed: str, where: str) -> None:
    program.base(base)
    assert [to for _, to in program.burst(typed)[1:]] == [where] * (len(typed) - 1)


def test_what_follows_the_key_that_closes_reaches_what_is_below(program: Recorded) -> None:
    below = "Overview ClientsPanel clients"
    for opening, closing in (("?", "\x1b"), ("?", "\r"), ("/tr", "\x1b"), ("/tr", "\r"), ("K", "\x1b")):
        reached = typed_anew(program, "overview", f"{opening}{closing}jE", None)
        assert reached[-2:] == [("j", below), ("E", below)], (opening, closing)


def test_a_whole_way_typed_at_once_goes_where_it_goes_key_by_key(program: Recorded) -> None:
    way = [
        "slash",
        *"train",
        "enter",
        "j",
        "K",
        "j",
        "escape",
        "question_mark",
        "j",
        "q",
        "d",
        "n",
        "tab",
        "escape",
        "x",
    ]
    way += ["escape", "escape", "L", "j", "j", "7", "escape", "colon", *"help", "escape", "E", "slash", "o", "escape"]
    for _ in range(TRIES):
        program.base("overview")
        slowly, refused = [], False
        for key in way:
            slowly.append((key, program.burst(sent(key))[0][1]))
            refused |= program.refused
        if not refused:
            break
    assert typed_anew(program, "overview", "".join(map(sent, way)), None) == slowly


def test_nothing_of_a_paste_is_a_key(program: Recorded) -> None:
    program.base("overview")
    assert program.burst(f"\x1b[200~K\rq\x1b[31m{'K' * 50}\x1bd\x1b\x1b[Ax\x1b[201~") == []
    program.burst("/\x1b[200~user:me\x1b[201~")
    program.terminal.wait_for("user:me")
