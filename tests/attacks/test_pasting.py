"""A command that root is told to paste is for the very file, whatever its name: another one's may look like it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from mpstui.core.model import Daemon
from mpstui.core.text import path_word
from mpstui.core.trust import NotNamedError, Speaker, meant
from mpstui.system import own
from mpstui.system.own import ProgramError, find_program
from mpstui.system.trusted import NotTrustedError, judge_open

from .conftest import Stranger

NAMES = (
    b"/tmp/mps_0",
    b"/tmp/a b;touch 'x'$(id)`id`",
    b"/tmp/mps_\x1b]52;c;aGk=\x07'\\'0",
    b"/tmp/\xff\xfe\n$HOME\t1",
    b"/tmp/\\x1b[31m",
    "/tmp/ü\u202e0\u200b".encode(),
    b"/" + b"\x01" * 4000,
)
needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash to paste into")


@needs_bash
@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_bash_takes_the_word_for_the_path(name: bytes) -> None:
    word = path_word(os.fsdecode(name))
    assert word.isprintable()
    assert _bash(f"printf %s {word}").stdout == name


def test_what_no_file_is_called_is_a_word_too() -> None:
    assert path_word("/tmp/mps_\ud800") == r"$'/tmp/mps_\\ud800'"


def _bash(command: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["bash", "-c", command], capture_output=True, timeout=120, check=True)


@pytest.fixture
def both(roots: Stranger) -> tuple[Path, Path]:
    """A directory of a name that cannot be shown, which everybody may write to, and one that is called as it looks."""
    places = roots.home / "bin\x1b[31m'0", roots.home / "bin\\x1b[31m'0"
    for place in places:
        place.mkdir()
        place.chmod(0o777)
    return places


def _modes(*places: Path) -> list[int]:
    return [stat.S_IMODE(place.stat().st_mode) for place in places]


@needs_bash
def test_the_place_of_path_is_closed_and_no_other_one(both: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "_looks", {})
    (both[0] / "smi").write_text("#!/bin/sh\n")
    (both[0] / "smi").chmod(0o755)
    with pytest.raises(ProgramError) as error:
        find_program("smi", {"PATH": os.fspath(both[0])})
    _bash(f"chmod{error.value.why.partition(': chmod')[2]}")
    assert _modes(*both) == [0o755, 0o777]


@needs_bash
def test_the_folder_of_a_configuration_is_closed_and_no_other_one(both: tuple[Path, Path]) -> None:
    file = both[0] / "config.toml"
    file.write_text("")
    with file.open() as opened, pytest.raises(NotTrustedError) as error:
        judge_open(file, opened.fileno(), {0})
    _bash(f"chmod{str(error.value).partition(': chmod')[2]}")
    assert _modes(*both) == [0o755, 0o777]


def test_another_users_daemon_is_named_by_one_word() -> None:
    """His directory's name was the rest of the command, as he wrote it."""
    place = Path("/tmp/mps; touch /root/x")
    daemon = Daemon(place, None, uid=64101, speaker=Speaker(64101, "a daemon of mallory"))
    with pytest.raises(NotNamedError, match=r"--pipe-dir '/tmp/mps; touch /root/x'$"):
        meant([daemon], lambda one: True, 0)
