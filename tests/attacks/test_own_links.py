"""A link of root's, or of one's own, in the place of a socket: what leads elsewhere is sent nothing, and what makes it
well again is said. What a stranger has led elsewhere is told of without a command."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.commands import Commands

from mpstui.control.answer import Outcome
from mpstui.control.channel import MEANT, ControlChannel, nothing_sent
from mpstui.control.commandline import SOCKETS
from mpstui.core.trust import Meant
from mpstui.daemons.stale import clean
from mpstui.observe.discovery import discover, find_speaker
from mpstui.sim.marker import control_binary
from mpstui.sim.node import SimNode
from tests.cli.conftest import Mpstui, mpstui  # noqa: F401 - a fixture

from .conftest import Stranger


@pytest.fixture
def home(crowd: Path) -> Path:
    """A directory that nobody else can change, with a space in its name."""
    folder = crowd / "root's own"
    folder.mkdir(mode=0o755)
    return folder


@pytest.fixture
def node(home: Path) -> Iterator[SimNode]:
    started = SimNode.start(home / "p", gpus=1)
    yield started
    started.stop()


def test_what_the_link_leads_to_is_put_back(node: SimNode, home: Path) -> None:
    for name in SOCKETS:
        os.rename(node.pipe_dir / name, home / f"its {name}")
        (node.pipe_dir / name).symlink_to(f"../its {name}")
        found = find_speaker(node.pipe_dir)
        assert found.uid is None
        assert shlex.quote(str(home / f"its {name}")) in found.remedy
        assert found.remedy in nothing_sent(node.pipe_dir, found, None)
    subprocess.run(["sh", "-c", found.remedy.partition(": ")[2]], check=True)
    assert find_speaker(node.pipe_dir).uid == os.geteuid()


@pytest.mark.parametrize("uid", [0, 1000])
async def test_a_change_is_not_sent_by_a_link_to_another_daemon(
    node: SimNode, home: Path, uid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain user's went to the other one, and the one that it was for was told to have it."""
    other = SimNode.start(home / "other", gpus=1)
    try:
        for name in SOCKETS:
            (node.pipe_dir / name).unlink()
            (node.pipe_dir / name).symlink_to(other.pipe_dir / name)
        found = find_speaker(node.pipe_dir)
        monkeypatch.setattr(os, "geteuid", lambda: uid)
        one = ControlChannel(node.pipe_dir, control_binary(), speaker=lambda _: found)
        control, before = Commands(one), MEANT.set(Meant(node.pipe_dir, found))
        try:
            answer = await control.set_default_client_priority(1)
        finally:
            MEANT.reset(before)
        assert (answer.outcome, one.sent) == (Outcome.NOT_PERMITTED, 0)
        assert found.remedy in answer.message
        assert (await control.get_default_client_priority()).ok, "a question goes anywhere"
    finally:
        other.stop()


def test_a_link_to_another_daemons_socket_is_taken_away_with_its_daemon(
    node: SimNode,
    home: Path,
    mpstui: Mpstui,  # noqa: F811
) -> None:
    other = SimNode.start(home / "other", gpus=1)
    try:
        for name in SOCKETS:
            (node.pipe_dir / name).unlink()
            (node.pipe_dir / name).symlink_to(other.pipe_dir / name)
        found = find_speaker(node.pipe_dir)
        taken, stop = found.remedy.partition("Remove it: ")[2].split("; when the daemon's clients have ended, run: ")
        assert mpstui("set", "client-priority", "1", "--pipe-dir", node.pipe_dir).status != 0
        subprocess.run(["sh", "-c", taken], check=True)
        words = shlex.split(stop)
        assert words[0] == "mpstui"
        run = mpstui(*words[1:], "--yes")
        assert run.status == 0, run
        assert [place.state for place in discover((node.pipe_dir, other.pipe_dir))] == ["absent", "running"]
    finally:
        other.stop()


def test_a_strangers_link_has_no_command(node: SimNode, home: Path, stranger: Stranger) -> None:
    theirs = stranger.home / "p"
    stranger.run("mkdir", theirs)
    for name in SOCKETS:
        stranger.run("ln", "-s", node.pipe_dir / name, theirs / name)
    (node.pipe_dir / "control").rename(stranger.home / "control")
    stranger.run("ln", "-s", stranger.home / "control", stranger.home / "link")
    os.rename(stranger.home / "link", node.pipe_dir / "control")
    for place, words in ((theirs, ""), (node.pipe_dir, "rm ")):
        found = find_speaker(place)
        assert (found.uid, found.by) == (None, stranger.uid)
        assert words in found.remedy
        assert "mv " not in found.remedy, "root moves nothing out of a stranger's directory"
    assert not find_speaker(theirs).remedy


def test_what_is_not_removed_says_where_the_links_lead(node: SimNode, home: Path) -> None:
    """The daemon of the directory has ended, and links of one's own to another daemon's sockets are left."""
    other = SimNode.start(home / "other", gpus=1)
    try:
        node.stop()
        for name in SOCKETS:
            (node.pipe_dir / name).unlink(missing_ok=True)
            (node.pipe_dir / name).symlink_to(other.pipe_dir / name)
        (line,) = clean(node.pipe_dir)
        assert f"nothing was removed from {node.pipe_dir}" in line
        assert f"the daemon in {other.pipe_dir}" in line
        assert f"control is a link to {other.pipe_dir / 'control'}" in line
        assert "a daemon runs there" not in line
    finally:
        other.stop()
    (line,) = clean(node.pipe_dir)
    assert f"control is a link to {other.pipe_dir / 'control'}, which is left" in line, "nobody's any more"
