"""`daemon start` in a directory whose way a stranger can change: refused, and nothing is made before that is known."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from mpstui import cli
from mpstui.core.model import Daemon, ProcessKey
from mpstui.daemons import directories
from mpstui.observe.discovery import find_speaker

from .conftest import Stranger

WAYS: dict[str, Callable[[Stranger, Path], Path]] = {
    "below his directory": lambda him, crowd: him.home / "a" / "b" / "p",
    "his directory itself": lambda him, crowd: him.home,
    "below his link to root's": lambda him, crowd: (him.run("ln", "-s", "own", crowd / "l"), crowd / "l/a/p")[1],
    "below his link to nowhere": lambda him, crowd: (him.run("ln", "-s", "/nowhere", crowd / "l"), crowd / "l/a/p")[1],
    "below his chain of links": lambda him, crowd: (
        him.run("ln", "-s", crowd / "m", crowd / "l"), os.symlink(crowd / "own", crowd / "m"), crowd / "l" / "a" / "p"
    )[2],
    "below his circle of links": lambda him, crowd: (him.run("ln", "-s", "l", crowd / "l"), crowd / "l" / "a" / "p")[1],
    "below a directory of everybody's": lambda him, crowd: (
        (crowd / "open").mkdir(), (crowd / "open").chmod(0o777), crowd / "open" / "a" / "p"
    )[2],
    "below root's, below his": lambda him, crowd: ((him.home / "r").mkdir(), him.home / "r" / "a" / "p")[1],
    "below his file": lambda him, crowd: (him.run("touch", crowd / "f"), crowd / "f" / "a" / "p")[1],
}  # fmt: skip


def all_below(*folders: Path) -> set[str]:
    return {os.fspath(found) for folder in folders for found in folder.rglob("*")}


@pytest.mark.parametrize("option", ["--pipe-dir", "--log-dir"])
@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_made_on_a_way_that_he_can_change(
    way: str,
    option: str,
    stranger: Stranger,
    crowd: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MPSTUI_CONTROL_BINARY", "/bin/false")
    (crowd / "own").mkdir()
    wrong = WAYS[way](stranger, crowd)
    others = {"--pipe-dir": crowd / "own" / "a" / "p", "--log-dir": crowd / "own" / "a" / "log", option: wrong}
    before = all_below(crowd, stranger.home)

    status = cli.main(["daemon", "start", *(str(word) for pair in others.items() for word in pair)])

    said = capfd.readouterr().err
    assert status in {2, 5, 6} or "cannot be made or opened" in said, said
    assert "exit status 1" not in said, "the binary was run"
    if way != "his directory itself":  # that is seen when its own turn comes
        assert all_below(crowd, stranger.home) == before


def test_a_directory_that_somebody_makes_meanwhile_is_seen(
    stranger: Stranger, crowd: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Between the look at the way and the making of what is missing there is time for him, in /tmp."""
    monkeypatch.setenv("MPSTUI_CONTROL_BINARY", "/bin/false")
    make = directories._make_if_missing

    def made_first(directory: Path) -> None:
        if directory == crowd / "new":
            stranger.run("mkdir", directory)
        make(directory)

    monkeypatch.setattr(directories, "_make_if_missing", made_first)

    status = cli.main(["daemon", "start", "--pipe-dir", str(crowd / "new" / "p")])

    assert status == 5
    assert "other users could replace a daemon's directory there" in capfd.readouterr().err
    assert not (crowd / "new" / "p").exists()


@pytest.mark.parametrize("mode", [0o775, 0o777, 0o755])
def test_what_is_behind_a_way_that_others_may_change_ends_nobody(crowd: Path, stranger: Stranger, mode: int) -> None:
    """All of it is root's but for the group of a directory above, as below Debian's /var/local: it is root's daemon
    still, whose health counts, and nobody is to be ended on its word. Its faults were those of "an unknown user", and
    the node had no daemon."""
    pipe_dir = crowd / "above" / "mps"
    pipe_dir.mkdir(parents=True)
    os.chown(pipe_dir.parent, 0, stranger.uid)
    pipe_dir.parent.chmod(mode)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one, socket.socket(socket.AF_UNIX) as other:
        one.bind(os.fspath(pipe_dir / "control"))
        other.bind(os.fspath(pipe_dir / "control_privileged"))
        speaker = find_speaker(pipe_dir)
    daemon = Daemon(pipe_dir, ProcessKey(1), uid=0, speaker=speaker)
    assert daemon.counts_for(0), speaker
    assert not daemon.usurped(0)
    assert daemon.vouches(None) is (mode == 0o755)
