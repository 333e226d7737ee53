"""A file system in user space that another user runs, which says of itself what he likes: really mounted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mpstui.config import put_file
from mpstui.observe.discovery import find_speaker
from mpstui.system import own
from mpstui.system.own import own_path, temporary_place
from mpstui.system.trusted import NotTrustedError, is_believed, judge_directory, open_named, owners_of

from .conftest import Stranger
from .userspace import mounted


@pytest.fixture
def his(roots: Stranger, stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of his in one of root's, where he mounts."""
    (place := roots.home / "his").mkdir()
    os.chown(place, stranger.uid, stranger.uid)
    monkeypatch.setattr(own, "_looks", {})
    return place


@pytest.mark.parametrize("leaves_at", ["", "bin", "control.log"])
def test_nothing_of_it_is_roots_nor_when_it_is_taken_away_meanwhile(
    his: Path, stranger: Stranger, leaves_at: str
) -> None:
    """The list of what is mounted was read after the way was walked: taken away between, it was no longer there, and
    root's by its own word."""
    with mounted(his, stranger.uid, leaves_at=leaves_at):
        assert not is_believed(his / "bin" / "control.log", owners_of(0))
        if leaves_at != "bin":
            return
    with mounted(his, stranger.uid, leaves_at=leaves_at):
        assert own_path({"PATH": f"{his}/bin:/usr/bin"}) == "/usr/bin"


def test_nor_is_what_its_link_leads_to(
    his: Path, stranger: Stranger, roots: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link is root's by its own word, and leads to a directory that is root's: until he lets it lead elsewhere."""
    (mine := roots.home / "mine").mkdir()
    (mine / "control.log").write_text("")
    with mounted(his, stranger.uid, leads=mine):
        assert not is_believed(his / "link" / "control.log", owners_of(0))
        for place in (his, his / "bin", his / "link"):
            with pytest.raises(NotTrustedError, match=f"on a file system that UID {stranger.uid} runs"):
                judge_directory(place, {0})
        assert find_speaker(his / "link").steered
        monkeypatch.setenv("TMPDIR", os.fspath(his / "bin"))
        assert temporary_place() == "/tmp"
    judge_directory(mine, {0})


def test_nor_does_its_link_lead_what_root_writes_or_reads(his: Path, stranger: Stranger, roots: Stranger) -> None:
    """Root has named the directory, and not what a link in it leads to, which is root's by its own word."""
    (mine := roots.home / "mine").mkdir()
    (mine / "control.log").write_text("root's")
    with mounted(his, stranger.uid, leads=mine):
        with pytest.raises(PermissionError, match=f"UID {stranger.uid} has made a link on the way there"):
            put_file(his / "link" / "cron", "text")
        with pytest.raises(NotTrustedError):
            open_named(his / "link" / "control.log")
    assert os.listdir(mine) == ["control.log"]


def test_what_is_said_of_it_in_path_is_who_runs_it(his: Path, stranger: Stranger) -> None:
    with mounted(his, stranger.uid, leads=Path("/usr/bin")):
        said = own.why_not_roots(os.fspath(his / "link"), program=False)
    assert said.startswith(f"{his}/link is on a file system that UID {stranger.uid} runs: ")
