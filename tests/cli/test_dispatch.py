"""What carries a command out: each command of the command line has its row, and nothing falls through to another."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from inspect import signature
from typing import Any

import pytest

from mpstui.cli import main, parser, planning
from mpstui.cli.arguments import EXPORTER_REFRESH
from mpstui.cli.dispatch import COMMANDS, Alone, OnNode, function_of
from mpstui.cli.parser import LateParser, build_parser, parse
from mpstui.config import Config
from mpstui.core.requests import CROWD, LONGEST_REFRESH, REFRESH, SHORTEST_REFRESH, SLOWEST_REFRESH
from mpstui.operations.registry import VERBS


def test_a_command_that_nobody_carries_out_is_not_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was ``doctor``."""

    def add(commands: Any, node: LateParser) -> None:
        commands.add_parser("invented", parents=[node]).set_defaults(json=False, bundle=None)

    rows = (*parser._COMMANDS, (frozenset({"invented"}), add))
    monkeypatch.setattr(parser, "_COMMANDS", rows)
    with pytest.raises(KeyError, match="invented"):
        main(["invented", "--pipe-dir", "/nonexistent/mps"])


@pytest.mark.parametrize("group", ["daemon", "profile", "server", "partition"])
def test_a_word_that_nobody_carries_out_is_not_another(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was ``daemon stop``, and ``profile diff``."""
    real = planning.add_commands

    def add(commands: Any, node: argparse.ArgumentParser, groups: Any) -> None:
        real(commands, node, groups)
        invented = groups[group].add_parser("invented", parents=[node])
        invented.set_defaults(name="p", timeout=0, exclusive=False, force=False, yes=True, json=False)

    monkeypatch.setattr(planning, "add_commands", add)
    with pytest.raises(KeyError, match="invented"):
        main([group, "invented", "--pipe-dir", "/nonexistent/mps"])


def parsers(one: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """It, and those of all words that may stand behind it, with their own arguments."""
    if isinstance(one, LateParser):
        one.complete()
    yield one
    for group in (action for action in one._actions if isinstance(action, argparse._SubParsersAction)):
        for name, inner in group.choices.items():
            assert inner.get_default("words") == (*one.get_default("words"), name)
            yield from parsers(inner)


def groups(one: argparse.ArgumentParser) -> bool:
    return any(isinstance(action, argparse._SubParsersAction) and action.required for action in one._actions)


THERE = [each.get_default("words") for each in parsers(build_parser()) if not groups(each)]
"""The commands that there are: those behind which no other word has to stand."""


@pytest.mark.parametrize("words", THERE, ids=" ".join)
def test_each_command_has_what_carries_it_out(words: tuple[str, ...]) -> None:
    assert callable(function_of(words))


def test_the_table_has_nothing_else() -> None:
    assert set(COMMANDS) <= set(THERE)
    assert {verb.words for verb, _ in VERBS} <= set(THERE)


def rows() -> list[Alone]:
    return [row for row in (*COMMANDS.values(), *map(function_of, THERE)) if isinstance(row, Alone)]


@pytest.mark.parametrize("row", dict.fromkeys(rows()), ids=lambda row: row.place)
def test_a_row_names_a_function_of_the_options_and_where_it_is_for_a_node_of_its_directories(row: Alone) -> None:
    """It is imported by its name, which mypy does not follow."""
    found = signature(row.function())
    needed = {name: each.annotation for name, each in found.parameters.items() if each.default is each.empty}
    assert (needed.pop("options"), found.return_annotation) == ("argparse.Namespace", "int")
    assert list(needed) == ["pipe_dirs"] * isinstance(row, OnNode)
    assert set(needed.values()) <= {"tuple[Path, ...]", "Sequence[Path]"}


@pytest.mark.parametrize(
    ("line", "value"),
    [("--refresh 5 record /x", 5), ("record /x --refresh 5", 5), ("--refresh 7 record /x --refresh 5", 5),
     ("--theme day web", "day"), ("web --theme day", "day"), ("--theme x web --theme day", "day")],
)  # fmt: skip
def test_an_option_of_the_whole_line_holds_before_a_command_that_has_it_too(line: str, value: object) -> None:
    options = parse(line.split())
    assert value in {options.refresh, options.theme}


def test_no_command_forgets_an_option_that_stands_before_it() -> None:
    """A default of its own would be put in the place of what was typed."""
    whole = build_parser()
    before = {action.dest for action in whole._actions} - {"help", "command"}
    again = [
        f"{each.prog} {action.dest}"
        for each in parsers(whole)
        for action in each._actions
        if each is not whole and action.dest in before and action.default is not argparse.SUPPRESS
    ]
    assert again == []


def test_the_figures_of_refresh_are_those_that_hold() -> None:
    every = [(each.prog, action) for each in parsers(build_parser()) for action in each._actions]
    told = {name: action.help for name, action in every if action.dest == "refresh"}
    crowded = f"of more than {CROWD} processes {REFRESH:g} for each {CROWD}, {SLOWEST_REFRESH:g} at most"
    assert told == {
        "mpstui": f"seconds between readings (default {REFRESH:g}; {crowded}; exporter: {EXPORTER_REFRESH:g})",
        "mpstui record": f"seconds between readings (default {REFRESH:g}; {crowded})",
    }
    assert Config().refresh is None
    for wrong in (SHORTEST_REFRESH / 2, LONGEST_REFRESH * 2):
        with pytest.raises(SystemExit):
            parse(["--refresh", str(wrong)])
