"""What carries a command out: each command of the command line has its row, and nothing falls through to another."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from inspect import signature
from typing import Any

import pytest

from mpstui.cli import main, parser, planning
from mpstui.cli.dispatch import COMMANDS, Alone, OnNode, function_of
from mpstui.cli.parser import LateParser, build_parser
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


def leaves(one: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The commands that there are, by what one types: those behind which no other word has to stand."""
    if isinstance(one, LateParser):
        one.complete()
    groups = [action for action in one._actions if isinstance(action, argparse._SubParsersAction)]
    if not any(group.required for group in groups):
        assert one.get_default("words") == words
        yield words
    for name, inner in (each for group in groups for each in group.choices.items()):
        yield from leaves(inner, (*words, name))


THERE = list(leaves(build_parser()))


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
