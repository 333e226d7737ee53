"""In a real terminal: what is typed at once with a key that opens something reaches only what that key opens.

All pairs of keys, on all screens and in a recording, take many minutes: ``MPSTUI_ALL_KEYS=1``. There each opening key
is followed in one write by all symbols. Otherwise each is followed by one of the symbols, in turn, and Enter; none is
carried out.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from program import simulated_node
from terminal import DEADLINE, Terminal, until
from typed import OTHERS, REPLAY, REPLAYED, SAVES, SCREENS, STAYS, SYMBOLS, Recorded, can_be_sent, recorded, sent

ALL = "MPSTUI_ALL_KEYS" in os.environ
TRIES = 20
ROUNDS = 2 if ALL else 1
"""How often each opening key is tried, each time with another symbol right behind it."""


Programs = Callable[[str], Recorded]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    """The program on a node that ``sim serve`` makes with these options; one at a time, in the order of the tests."""
    with contextlib.ExitStack() as open_now:
        running: dict[str, Recorded] = {}

        def program(options: str) -> Recorded:
            if options not in running:
                arguments, shown = ["replay"], "REPLAY"
                folder = tmp_path_factory.mktemp("keys")
                if options == REPLAY:
                    arguments += [str(folder / "kept.mps"), "--speed", "0"]
                    program("").base("past")  # so much has been kept
                    program("").base(SAVES + arguments[1])
                open_now.close()
                running.clear()
                if options != REPLAY:
                    node = open_now.enter_context(simulated_node(*options.split()))
                    arguments = ["--pipe-dir", str(node.pipe_dir)]
                    shown = "HELD" if "held" in options else "⁴"
                running[options] = open_now.enter_context(recorded(folder, arguments, shown))
            return running[options]

        yield program


@pytest.fixture
def program(programs: Programs) -> Recorded:
    return programs("")


def typed_anew(
    program: Recorded, base: str, text: str, wanted: list[str] | None, done: int | None = None
) -> list[tuple[str, str]]:
    """:meth:`Recorded.burst` from that screen; again where a key was refused or dropped and it did not reach what was
    wanted: a client may end under the cursor, and what is typed with a refused key is dropped, as is what was typed
    before a change by itself, of a daemon's state say, was seen."""
    for _ in range(TRIES):
        program.base(base, done)
        reached = program.burst(text)
        if not (program.refused or program.dropped) or [to for _, to in reached] == wanted:
            break
    return reached


Held = tuple[object, object, object]


def held(line: dict[str, Any], where: str = "to") -> Held:
    """Where a key went, to which text, and at which moment."""
    return line[where], line["text"], line["time"]


def wrongly_reached(program: Recorded, base: str, followed: Iterator[str]) -> tuple[list[object], list[str]]:
    """Each key that opens something, followed in the same write by symbols and Enter, none of which is carried out:
    what reached another place, text or moment than those that were there when all was done; and those keys."""
    begun = program.opened_from(base)
    wrong: list[object] = []
    opening: list[str] = []
    left = True
    for key in filter(can_be_sent, begun["keys"]):
        for symbols in itertools.islice(followed, ROUNDS):
            before: list[object] = []
            for _ in range(TRIES):
                if left:
                    first = held(program.base(base, 1), "at")
                else:
                    program.base(STAYS, 1)
                *reached, rest = program.rest(sent(key) + symbols + sent("enter"))
                opened = held(rest, "rest")
                left = opened != first
                good = all(line["to"] == begun["at"] for line in reached[:1])
                good = good and all(held(line) == opened for line in reached[1:])
                good = good and all(line["chosen"] == rest["chosen"] for line in reached[1:] if line["key"] == "enter")
                lost = program.refused or program.dropped
                if good and (len(reached) == len(symbols) + 2 or (lost and not left)):
                    break
                left = True
                if not lost and before[:1] == [opened[:2]]:  # otherwise it opens another thing by now
                    wrong.append((key, symbols, *before))
                    break
                if not lost:
                    before = [opened[:2], reached, rest]
        if left:
            opening.append(key)
    return wrong, opening


def no_sequence(symbol: str) -> bool:
    """Whether it is a key also with an Escape before and the next one behind it."""
    return symbol not in "[O"


def all_symbols() -> Iterator[str]:
    """Every symbol of the keyboard, another one first each time."""
    at = 0
    while True:
        at = (at + 37) % len(SYMBOLS)
        if not no_sequence(SYMBOLS[at]):
            continue
        yield SYMBOLS[at:] + SYMBOLS[:at]


@pytest.mark.slow
@pytest.mark.timeout(14400 if ALL else 900)
@pytest.mark.parametrize(
    ("node", "base"),
    [
        *(("", base) for base in SCREENS),
        *((node, base) for node in OTHERS for base in OTHERS[node] if ALL),
        *((REPLAY, base) for base in REPLAYED if ALL),
    ],
)
def test_what_follows_an_opening_key_at_once_reaches_only_what_it_opened(
    programs: Programs, node: str, base: str
) -> None:
    followed = all_symbols() if ALL else itertools.cycle(filter(no_sequence, SYMBOLS))
    wrong, opening = wrongly_reached(programs(node), base, followed)
    assert not wrong, wrong[0]
    assert opening, "it has keys that open or close something"
    if ALL:
        print(f"{node} {base}: {' '.join(opening)}: {len(opening) * len(SYMBOLS)} pairs, {ROUNDS} times")


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


@pytest.mark.slow
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
        "i",
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


def test_looking_again_may_begin_within_a_sequence() -> None:
    """A colour that had come in part while nobody looked was taken for another command of the terminal's."""
    with Terminal(["sh", "-c", "printf '\\033[38;2;1'; read line; printf '20;3mCats'; read line"]) as terminal:
        terminal.looks = False
        until(lambda: terminal.read(0.01) and terminal.bytes.endswith(b";1"), DEADLINE)
        terminal.looks = True
        terminal.key("enter")
        terminal.wait_for(re.compile("^Cats", re.MULTILINE))


@pytest.mark.slow
def test_nothing_of_a_paste_is_a_key(program: Recorded) -> None:
    program.base("overview")
    assert program.burst(f"\x1b[200~K\rq\x1b[31m{'K' * 50}\x1bd\x1b\x1b[Ax\x1b[201~") == []
    program.burst("/\x1b[200~user:me\x1b[201~")
    program.seen("user:me")
