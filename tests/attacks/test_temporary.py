"""Where root makes directories for a while: whoever may exchange them leads a command of root's to another daemon."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import mpstui
from mpstui.sim.demo import demo_directory
from mpstui.system.own import temporary_place

from .conftest import Stranger


@pytest.mark.parametrize("way", [".", "{his}", "{his}/link", "{his}/missing", "{roots}/all", "{roots}/led", ""])
def test_none_where_another_user_may_exchange_it(
    stranger: Stranger, roots: Stranger, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """``su`` and ``sudo -E`` leave a user's TMPDIR, and where /tmp is full Python goes to where one stands."""
    stranger.run("ln", "-s", "/var/tmp", stranger.home / "link")
    (roots.home / "all").mkdir()
    (roots.home / "all").chmod(0o777)
    (roots.home / "led").symlink_to(stranger.home)
    monkeypatch.chdir(stranger.home)
    monkeypatch.setenv("TMPDIR", way.format(his=stranger.home, roots=roots.home))
    assert temporary_place() == "/tmp"
    with demo_directory() as folder:
        assert folder.parent == Path("/tmp")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(FileNotFoundError, match="no place for temporary files"):
        temporary_place()


def test_why_there_is_none_is_told(roots: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod's emptyDir is 0777 and not sticky: root was told that there is no place, and not why."""
    (place := roots.home / "emptydir").mkdir()
    place.chmod(0o777)
    monkeypatch.setenv("TMPDIR", os.fspath(place))
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path == os.fspath(place) and real(path, mode))
    with pytest.raises(FileNotFoundError) as error:
        temporary_place()
    assert error.value.strerror == (
        "there is no place for temporary files that can be written and that nobody else can change"
        f" ({place} can be changed by everybody (mode 0777); /tmp is not there, or cannot be written;"
        " /var/tmp is not there, or cannot be written): set TMPDIR to a directory that only you can write to"
    )


def test_roots_own_and_sticky_ones_are_taken(roots: Stranger, crowd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (roots.home / "led").symlink_to(crowd)
    for place in (roots.home, crowd, roots.home / "led"):
        monkeypatch.setenv("TMPDIR", os.fspath(place))
        assert temporary_place() == os.fspath(place)


def test_none_is_made_elsewhere() -> None:
    makes, folder = re.compile(r"(?:mkdtemp|TemporaryDirectory)\((.*)\)"), Path(mpstui.__file__).parent
    lines = [line for file in folder.rglob("*.py") for line in makes.findall(file.read_text())]
    assert lines
    assert all("dir=temporary_place()" in line for line in lines), lines
    assert not [file for file in folder.rglob("*.py") if "gettempdir" in file.read_text()]
