"""docs/coverage.md: each statement has its line, and each file, command and check that is named there exists."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from mpstui.cli import main

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/coverage.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in PAGE.splitlines() if line.startswith("| 0")]
STATES = ("done", "not done", "no")
CHECK = re.compile(r"`mpstui doctor` \((\w+)\)")
QUOTED = re.compile(r"`([^`]+)`")
CHECKS = frozenset(
    name
    for path in (ROOT / "mpstui/doctor").glob("*.py")
    for name in re.findall(r'Finding\(\s*"(\w+)"|^    "(\w+)": \(|_finding\("(\w+)"', path.read_text(), re.MULTILINE)
    for name in name
    if name
)
SOURCES = "\n".join(path.read_text() for path in (ROOT / "mpstui").rglob("*.py"))


def test_each_statement_has_one_line() -> None:
    assert len(ROWS) == 340
    assert {len(row) for row in ROWS} == {4}
    counts = Counter(row[2] for row in ROWS)
    assert set(counts) <= set(STATES)
    for state in STATES:
        assert f"**{state}** ({counts[state]})" in PAGE


@pytest.mark.parametrize("row", [row for row in ROWS if row[2] == "done"], ids=lambda row: row[0])
def test_what_is_done_says_where(row: list[str]) -> None:
    assert QUOTED.search(row[3]) or "panel" in row[3]


def test_files_exist() -> None:
    named = {word for row in ROWS for word in QUOTED.findall(row[3]) if re.search(r"/|\.md$", word) and " " not in word}
    assert len(named) > 30
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_checks_of_doctor_exist() -> None:
    named = {name for row in ROWS for name in CHECK.findall(row[3])}
    assert len(named) > 15
    assert sorted(named - CHECKS) == []


@cache
def help_of(words: tuple[str, ...]) -> str:
    """What the command prints for ``--help``; a command that is not known ends otherwise."""
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0, (words, out.getvalue())
    return out.getvalue()


def commands() -> list[str]:
    return sorted({word for row in ROWS for word in QUOTED.findall(row[3]) if re.match(r"mpstui( |$)", word)})


@pytest.mark.parametrize("command", commands())
def test_commands_are_understood(command: str) -> None:
    words = command.split()[1:]
    first = next((number for number, word in enumerate(words) if word.startswith("-")), len(words))
    text = help_of(tuple(words[:first]))
    assert "usage: mpstui" in text
    for word in words[first:]:
        if word.startswith("-"):
            assert re.search(rf"{re.escape(word.partition('=')[0])}\b", text), (word, text)


def test_names_of_events_problems_and_keys_exist() -> None:
    others = {word for row in ROWS for word in QUOTED.findall(row[3]) if re.fullmatch(r"[a-z]+(_[a-z]+)+", word)}
    assert len(others) > 10
    assert sorted(word for word in others if f'"{word}"' not in SOURCES) == []
