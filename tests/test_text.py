"""Text from outside on one line, and sizes as people read them."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from pathlib import Path

import pytest

import mpstui
from mpstui.cli import loadoptions, past
from mpstui.core.text import (
    about,
    client_pids,
    format_age,
    format_change,
    format_percentage,
    format_size,
    listed,
    owner,
    parse_size,
    path_text,
    plural,
    printable,
    same_limit,
    taken_limit,
    unprintable,
)
from mpstui.operations.check import Refused
from mpstui.operations.limits import parse_memory
from mpstui.plan import amounts
from mpstui.ui.filter import ClientFilter
from mpstui.ui.load.setup import Setup
from mpstui.ui.load.setup import problem as load_problem


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"python train.py", "python train.py"),
        (b"a\nb", "a\\nb"),
        (b"\x1b[31mred", "\\x1b[31mred"),
        (b"\xff\xfe", "\\xff\\xfe"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\u200b", "\\u200b"),
        ("[/bold]", "[/bold]"),
        ("naïve 漢字", "naïve 漢字"),
        ("\x9b31m", "\\x9b31m"),
        ("e\u0301 ja\u0302\u0323", "e\u0301 ja\u0302\u0323"),
        ("\u0301x \u0301y", "\\u0301x \\u0301y"),
        ("a" + "\u0301" * 6, "a" + "\u0301" * 4 + "\\u0301" * 2),
        ("\u202e\u0301", "\\u202e\\u0301"),
        ("\N{THUMBS UP SIGN}\U0001f3fd", "\N{THUMBS UP SIGN}\\U0001f3fd"),
        ("\U0001f1e9\U0001f1ea", "\\U0001f1e9\\U0001f1ea"),
        ("\u0915\u093e\u0301", "\u0915\\u093e\\u0301"),
        ("\u2630 \u3248 \U0001d300", "\\u2630 \\u3248 \\U0001d300"),
        ("\u1112\u1161\u11ab", "\u1112\u1161\u11ab"),
        ("j" + "\u1161" * 6, "j" + "\u1161" * 4 + "\\u1161" * 2),
        ("\u1161\ud7b0", "\\u1161\\ud7b0"),
    ],
)
def test_control_characters_become_visible(raw: bytes | str, shown: str) -> None:
    assert printable(raw) == shown


def test_a_directory_that_is_only_wider_in_some_terminal_can_be_used() -> None:
    """Words of Hindi, and a flag: shown by their escapes, as a column must not move, and told from every other name."""
    assert unprintable("/home/\u092e\u0940\u0930\u093e/\U0001f1e9\U0001f1ea") is None
    assert path_text("/home/\u092e\u0940") == "/home/\u092e\\u0940"
    assert unprintable("/tmp/mps_\u202e") is not None
    assert unprintable(b"/tmp/mps_\xff".decode("utf-8", "surrogateescape")) is not None


def test_a_name_of_100_kb_is_cut_and_says_so() -> None:
    shown = printable(b"x" * 100_000)
    assert len(shown) == 300
    assert shown.endswith("…")


@pytest.mark.parametrize(("text", "size"), [("2G", 2 << 30), ("900M", 900 << 20), ("1024K", 1 << 20)])
def test_limits_are_binary_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["512MB", "-1G", "0G", "abc", "", "1.5G", "G", "10"])
def test_what_mps_does_not_take_is_no_size(text: str) -> None:
    assert parse_size(text) is None


def test_a_daemon_prints_whole_gib() -> None:
    """56704M was sent to an H100's daemon, and it printed 55G (fact 26)."""
    assert same_limit(56704 << 20, 55 << 30)
    assert same_limit(900 << 20, 900 << 20)
    assert same_limit(None, None)
    assert not same_limit(56704 << 20, 56 << 30)
    assert not same_limit(900 << 20, None)
    assert not same_limit(None, 1 << 30)


def test_numbers_for_people() -> None:
    assert [format_size(s) for s in (None, 0, 1023, 2 << 30, 543162368, 85520809984)] == [
        "—",
        "0 B",
        "1023 B",
        "2.0 GiB",
        "518 MiB",
        "79.6 GiB",
    ]
    assert [format_percentage(p) for p in (None, 25.0, 33.3)] == ["—", "25 %", "33.3 %"]
    assert [format_age(a) for a in (None, 0, 59.9, 60, 3599, 3600, 86400 * 12)] == [
        "—",
        "0s",
        "59s",
        "1m",
        "59m",
        "1h",
        "12d",
    ]


@pytest.mark.parametrize(("part", "text"), [(0.029, "+2.9%"), (-0.21, "-21.0%"), (-0.0001, "0.0%"), (0.0, "0.0%")])
def test_a_change_that_rounds_to_nothing_has_no_sign(part: float, text: str) -> None:
    assert format_change(part) == text


@pytest.mark.parametrize(
    ("limit", "read", "same"),
    [  # in MiB: from 1 GiB on whole GiB are printed, or what was set (fact 26); nothing else between is the same
        (1500, 1024, True),
        (1500, 1500, True),
        (1500, 1400, False),
        (1500, 1501, False),
        (1500, 2048, False),
        (2500, 2047, False),
        (2047, 1024, True),
        (2048, 2048, True),
        (2048, 1024, False),
        (1024, 1023, False),
        (1023, 1023, True),
        (1023, 1022, False),
        (1023, 0, False),
    ],
)
def test_a_limit_within_a_gib_is_not_any_other_within_it(limit: int, read: int, same: bool) -> None:
    assert same_limit(limit << 20, read << 20) is same


@pytest.mark.parametrize(
    ("typed", "mib"),
    [("2G", 2048), ("2g", 2048), ("2GB", 2048), ("2m", 2), ("2", 2), ("512MB", 512), ("1T", 1), ("0g", 0), ("g", 0)],
)
def test_the_unit_that_mps_takes(typed: str, mib: int) -> None:
    assert taken_limit(typed) == mib << 20


def test_a_text_that_begins_with_its_subject_does_not_name_it_twice() -> None:
    assert about("client 645", "Client 645 was terminated.") == "Client 645 was terminated."
    assert about("client 64", "Client 645 was terminated.") == "client 64: Client 645 was terminated."
    assert about("server 7", "2 clients wait.") == "server 7: 2 clients wait."
    assert about(None, "It waits.") == "It waits."


def test_whose_it_is() -> None:
    assert [owner("alice", 1001), owner("alice", None), owner(None, 1001), owner("", 0), owner(None, None)] == [
        "alice",
        "alice",
        "UID 1001",
        "root",
        "—",
    ]


def test_several_things_in_words() -> None:
    assert [plural(number, "process") for number in (0, 1, 2)] == ["0 processes", "1 process", "2 processes"]
    assert [client_pids(pids) for pids in ((5,), (5, 6))] == ["client 5", "clients 5, 6"]
    assert client_pids(range(9), 8) == "clients 0, 1, 2, 3, 4, 5, 6, 7 and 1 more"
    assert [listed(range(3), most) for most in (None, 3, 2)] == ["0, 1, 2", "0, 1, 2", "0, 1 and 1 more"]


def test_no_plural_is_made_by_hand() -> None:
    by_hand = re.compile(r"""(['"])e?s\1 if [^'"\n]+ else ['"]{2}|(['"])\2 if [^'"\n]+ else (['"])e?s\3""")
    files = sorted(Path(mpstui.__file__).parent.rglob("*.py"))
    found = {file.name for file in files if file.name != "text.py" and by_hand.search(file.read_text())}
    assert not found, "core.text.plural and nouns make them"


SIZE_READERS = {
    "a limit": parse_memory,
    "a plan's": lambda text: amounts.size(text, "memory"),
    "load's": lambda text: parse_memory(loadoptions.size(text)),
    "a recording's": past._bytes,
    "the filter's": lambda text: ClientFilter(f"mem>{text.replace(' ', '')}").complaint(),
    "the load screen's": lambda text: load_problem(Setup(memory_limit=text, where="off"), None, ()),
}


@pytest.mark.parametrize("where", SIZE_READERS)
def test_a_size_is_written_in_one_way_wherever_it_is_typed(where: str) -> None:
    read = SIZE_READERS[where]
    for text in ("10G", "10g", "10 G", "10GiB", "10.0 GiB"):
        assert read(text) in {10 << 30, "", None}, text
    told = None
    try:
        told = read("10GB")
    except (Refused, amounts.PlanError, ArgumentTypeError) as error:
        told = str(error)
    assert isinstance(told, str), "1000 or 1024 MB"
    assert "10GiB" in told or where == "the filter's"
