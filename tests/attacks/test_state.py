"""What root keeps is in no other user's directory, and nothing is made by the way of his links, whatever sudo or su has
left of his environment."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from mpstui.config import ScreenMemory, config_dir, state_folder
from mpstui.daemons.modes import keep_modes

from .conftest import Stranger

ROOTS = Path(pwd.getpwuid(0).pw_dir) / ".local/state/mpstui"


@pytest.mark.parametrize("name", ["HOME", "XDG_STATE_HOME"])
@pytest.mark.parametrize("way", ["", "missing/below", "link", "link/missing"])
def test_root_keeps_nothing_where_another_user_is_at_home(
    stranger: Stranger, roots: Stranger, monkeypatch: pytest.MonkeyPatch, name: str, way: str
) -> None:
    """``sudo -E`` and ``su`` leave both. Root made a directory where a link of that user's led."""
    stranger.run("ln", "-s", roots.home, stranger.home / "link")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv(name, os.fspath(stranger.home / way))
    assert state_folder() == ROOTS


def test_nor_where_it_stands(stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stranger.home)
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    assert state_folder() == ROOTS


def test_a_link_of_roots_leads_to_roots_folder(roots: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    (roots.home / "data").mkdir()
    (roots.home / "state").symlink_to("data")
    for place in ("state", "state/new", "data"):
        monkeypatch.setenv("XDG_STATE_HOME", os.fspath(roots.home / place))
        assert state_folder() == roots.home / place / "mpstui"


def test_nothing_is_made_by_the_way_of_a_strangers_link(
    stranger: Stranger, roots: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger.run("ln", "-s", roots.home, stranger.home / "link")
    place = stranger.home / "link/mpstui"
    ScreenMemory(place / "screen.json").put("theme", "dark")
    monkeypatch.setattr("mpstui.daemons.modes.state_folder", lambda: place)
    assert keep_modes({"GPU-0": "DEFAULT"}) is not None
    assert os.listdir(roots.home) == []


@pytest.mark.parametrize("home", [None, "stranger's"])
def test_whoever_has_no_entry_and_no_home_has_folders_all_the_same(
    stranger: Stranger, monkeypatch: pytest.MonkeyPatch, home: str | None
) -> None:
    """In a container without /etc/passwd each command was a traceback."""

    def none(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    if home is not None:
        monkeypatch.setenv("HOME", os.fspath(stranger.home))
    monkeypatch.setattr(pwd, "getpwuid", none)
    assert state_folder() == Path("/.local/state/mpstui")
    if home is None:
        assert config_dir() == Path("/.config/mpstui")
