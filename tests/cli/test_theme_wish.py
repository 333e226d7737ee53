"""A theme that is not there: named with its reason where it was asked for, done without where config.toml wants it."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace

import pytest

from mpstui.cli import screen


def test_a_theme_of_the_configuration_that_is_missing_is_said_and_done_without() -> None:
    wanted, (message,) = screen.theme_wish(None, "nosuch", ("terminal",))
    assert wanted is None
    assert "config.toml: no theme 'nosuch'; there are: terminal" in message
    assert screen.theme_wish(None, "terminal", ("terminal",)) == ("terminal", [])
    assert screen.theme_wish("terminal", "nosuch", ("terminal",)) == ("terminal", [])
    assert screen.theme_wish(None, None, ()) == (None, [])


def test_a_broken_theme_that_is_asked_for_says_what_is_wrong_with_its_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(screen, "terminal_problem", lambda *_: None)
    monkeypatch.setattr(screen.gc, "disable", lambda: None)
    file = tmp_path / "mpstui" / "themes" / "broken.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[colors]\nprimary = "blue"\n')
    assert screen.run_screen(argparse.Namespace(theme="broken"), ()) == 2
    told = capsys.readouterr().err
    assert f"{file}: colors.primary must be a colour" in told
    assert "no theme 'broken'; there are:" in told


def test_one_heap_for_all_threads_where_the_c_library_knows_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    trims: list[int] = []
    library = SimpleNamespace(mallopt=lambda *words: told.append(words), malloc_trim=trims.append)
    libraries = iter([library, SimpleNamespace()])
    monkeypatch.setattr("ctypes.CDLL", lambda name: next(libraries))
    give_back = screen.one_heap()
    assert (-8, 1) in told, "M_ARENA_MAX"
    assert not trims
    give_back()
    assert trims == [0]
    screen.one_heap()()
