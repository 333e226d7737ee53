"""A mistake of mpstui's own is said in two lines; the traceback, with what it says of the node, is the user's file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
import mpstui.cli
from mpstui.__main__ import main

def broken(*_):
    raise {error}

mpstui.cli.main = broken
sys.exit(main())
"""


def run(error: str, state: Path) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a command that ends with that error."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(error=error)],
        env={**os.environ, "XDG_STATE_HOME": os.fspath(state)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("ZeroDivisionError('integer modulo by zero')", "ZeroDivisionError: integer modulo by zero"),
        ("ValueError('a\\x1b[31m\\nb')", "ValueError: a"),
        ("OSError(5, 'Input/output error', '/x')", "OSError: Input/output error"),
        ("KeyError()", "KeyError: KeyError"),
    ],
)
def test_it_is_said_in_two_lines_and_kept_in_a_file(error: str, said: str, tmp_path: Path) -> None:
    status, out, told = run(error, tmp_path)
    first, second = told.splitlines()
    assert (status, out) == (os.EX_SOFTWARE, "")
    assert first.startswith(f"mpstui: a mistake of mpstui's own: {said}")
    assert first.endswith("line 7)")
    assert second.startswith("  → If something was to be changed, look whether it is. ")
    assert "\x1b" not in told
    file = tmp_path / "mpstui" / "mistake.txt"
    assert second.endswith(f"the Traceback is in {file}.")
    kept = file.read_text()
    assert kept.startswith("Traceback (most recent call last)")
    assert "\x1b" not in kept, "whoever has put it there"
    assert file.stat().st_mode & 0o777 == 0o600


def test_where_it_cannot_be_kept_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "mpstui").write_text("")
    status, _, told = run("ZeroDivisionError('of it')", tmp_path)
    assert (status, len(told.splitlines())) == (os.EX_SOFTWARE, 2)
    assert "the Traceback could not be kept: " in told


def test_an_installation_that_is_not_whole_is_said_to_be_that(tmp_path: Path) -> None:
    status, _, told = run("""ModuleNotFoundError("No module named 'textual'")""", tmp_path)
    assert status == os.EX_SOFTWARE
    assert told == "mpstui: No module named 'textual': the installation is not whole\n  → Install mpstui again.\n"
