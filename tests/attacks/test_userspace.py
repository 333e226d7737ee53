"""A file system in user space that another user runs, which says of itself what he likes: really mounted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mpstui.config import PrivateFileError, make_folder, private_file, put_file
from mpstui.daemons import directories
from mpstui.daemons.directories import DaemonError
from mpstui.observe.discovery import find_speaker
from mpstui.sim.node import SimError, SimNode
from mpstui.system import own
from mpstui.system.own import own_path, temporary_place
from mpstui.system.trusted import NotTrustedError, is_believed, judge_directory, open_named, open_trusted, owners_of

from .conftest import Stranger
from .userspace import mounted

REFUSALS = (NotTrustedError, PrivateFileError, SimError, DaemonError)


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


MAKERS: dict[str, Callable[[Path, Path], object]] = {
    "the audit log": lambda there, own: open_trusted(there / "new" / "log", os.O_CREAT | os.O_WRONLY, {0}, make=True),
    "a file of root's own": lambda there, own: private_file(there / "new" / "url", "text"),
    "a folder for the state": lambda there, own: make_folder(there / "new" / "mpstui"),
    "a simulated node": lambda there, own: SimNode.start(there / "new" / "node", daemon=False),
    "its logs": lambda there, own: SimNode.start(own / "node", log_dir=there / "new" / "logs", daemon=False),
    "a daemon's directory": lambda there, own: directories.prepare(there / "new" / "mps", 0o755),
}


@pytest.mark.parametrize("what", MAKERS)
def test_nor_does_root_make_a_directory_where_its_link_leads(
    his: Path, stranger: Stranger, roots: Stranger, what: str
) -> None:
    """It was made while the way was walked, and who runs the file system was looked at behind that."""
    (mine := roots.home / "mine").mkdir()
    (own_place := roots.home / "own").mkdir()
    with mounted(his, stranger.uid, leads=mine), pytest.raises(REFUSALS, match=f"UID {stranger.uid} runs"):
        MAKERS[what](his / "link", own_place)
    assert os.listdir(mine) == []


def test_nor_is_what_it_calls_roots_a_daemons_directory(his: Path, stranger: Stranger) -> None:
    with mounted(his, stranger.uid), pytest.raises(DaemonError, match=f"UID {stranger.uid} runs"):
        directories.prepare(his, 0o755)


def test_what_is_said_of_it_in_path_is_who_runs_it(his: Path, stranger: Stranger) -> None:
    with mounted(his, stranger.uid, leads=Path("/usr/bin")):
        said = own.why_not_roots(os.fspath(his / "link"), program=False)
    assert said.startswith(f"{his}/link is on a file system that UID {stranger.uid} runs: ")
