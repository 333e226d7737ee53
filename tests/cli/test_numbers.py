"""What is no number is refused in a few words, whichever argument it is given to; Python takes more for one."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from warm import run

from mpstui.cli import main
from mpstui.cli.parser import build_parser
from mpstui.core.text import typed_count, typed_number
from mpstui.history.times import parse_time

FIVE_THOUSAND = "9" * 5000
"""More digits than Python makes a number of."""
HIDDEN = "0" * 19 + "1" + "0" * 300
"""The beginning of it is 1."""
NONE = ("nan", "inf", "-inf", "1e999", "1e1", "٣", "１", "²", "1_0", "-1", "+3", "0x10", "", FIVE_THOUSAND, HIDDEN)
_OTHER = {"words", "_fields", "_directory", "_file", "expression"}
"""What takes words that are no numbers, by the function that reads them."""


def _short(word: str) -> str:
    return word if len(word) < 20 else f"{word[:20]} of {len(word)}"


def _arguments(parser: argparse.ArgumentParser, *before: str) -> Iterator[tuple[str, argparse.Action]]:
    getattr(parser, "complete", lambda: None)()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                yield from _arguments(sub, *before, name)
        elif action.type is not None:
            yield " ".join((*before, (action.option_strings or [action.dest])[-1])), action


READERS = {
    name: action
    for name, action in _arguments(build_parser())
    if getattr(action.type, "__name__", "") not in _OTHER and name != "partition add --sms"  # the operation reads it
}


def test_the_arguments_that_are_numbers_are_known() -> None:
    assert {"--refresh", "events --client", "terminate client_pid", "load --seconds", "web --idle"} <= set(READERS)


@pytest.mark.parametrize("name", READERS)
def test_an_argument_takes_numbers_alone(name: str) -> None:
    read = READERS[name].type
    assert callable(read)
    for word in (f"{none}{unit}" for none in NONE for unit in ("", "s", "m", "d", "M", "G", ",1")):
        taken, said = None, ""
        try:
            taken = read(word)
        except argparse.ArgumentTypeError as error:
            said = str(error)
        assert len(said) < 300, "not all 5,000 digits"
        ago = word.startswith("-1") and name.endswith(("--since", "--at", "--for", "--max-age"))  # -10m is 10m ago
        assert taken is None or ago, word[:40]


@pytest.mark.parametrize("word", NONE, ids=_short)
def test_no_number_is_made_of_it(word: str) -> None:
    assert (typed_number(word), typed_count(word)) == (None, None)
    with pytest.raises(ValueError, match="is no time") as error:
        parse_time(f"@{word}", 1e9)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("text", "number"), [("25", 25.0), ("0.5", 0.5), (".5", 0.5), ("5.", 5.0), (" 7 ", 7.0), ("007", 7.0)]
)
def test_a_number_is_one(text: str, number: float) -> None:
    assert typed_number(text) == number
    assert typed_count(text) == (int(number) if "." not in text else None)


@pytest.mark.parametrize(
    "command",
    [
        ("start-server", "@"),
        ("terminate", "@"),
        ("web", "--listen", "127.0.0.1:@"),
        ("exporter", "--listen", "127.0.0.1:@"),
        ("events", "--client", "@"),
        ("sim", "serve", "/nonexistent/x", "--driver", "@"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("word", [FIVE_THOUSAND, HIDDEN, "٣", "1_0"], ids=_short)
def test_a_command_says_what_is_wrong_with_it(
    command: tuple[str, ...], word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [each.replace("@", word) for each in command]
    node = ["--pipe-dir", os.fspath(tmp_path)] if command[0] != "sim" else []
    status: object = None
    try:
        status = main([*arguments, *node])
    except SystemExit as end:
        status = end.code
    said = capsys.readouterr().err
    assert status == 2, said
    assert 0 < len(said) < 2000, "in a few words"


@pytest.mark.parametrize("variable", ["COLUMNS", "LINES"])
@pytest.mark.parametrize("word", [FIVE_THOUSAND, "²", "٣", "-3", "nan", "0", "99999999"], ids=_short)
def test_a_size_of_the_terminal_that_is_none_is_not_taken(variable: str, word: str, tmp_path: Path) -> None:
    """The help asks for it, and so does what writes tables; of this machine's figures, which change, only the first
    line counts."""
    usual = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    for command, lines in ((("--help",), None), (("status", "--pipe-dir", os.fspath(tmp_path)), 1)):
        told, plain = (run(*command, env=each) for each in ({**usual, variable: word}, usual))
        assert (told.returncode, "Traceback" in told.stderr) == (plain.returncode, False)
        assert told.stdout.splitlines()[:lines] == plain.stdout.splitlines()[:lines] != []
