"""A daemon in a directory as /tmp is that ends while it is asked: nobody moves what is there, and whoever comes first
takes the place that is free then."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mpstui import api
from mpstui.control import channel
from mpstui.control.answer import Outcome
from mpstui.control.channel import ControlChannel, RawReply
from mpstui.control.mps import MpsControl
from mpstui.core.trust import Speaker
from mpstui.observe import discovery
from mpstui.observe.discovery import SETTLED, find_speaker, steady_speaker

from .conftest import Stranger
from .programs import BINARY, lying_daemon, roots_process

MODES = {"as /tmp is": 0o1777, "as a daemon makes it": 0o777}


class Succession:
    """A daemon of root's, whose directory has that mode, and a stranger who once, when ``attack`` is called, takes its
    place: it has ended, its sockets with it."""

    def __init__(self, stranger: Stranger, roots: Stranger, crowd: Path, mode: int, victim: int) -> None:
        self.pipe_dir = crowd / "mps"
        self.done = False
        self._stranger, self._victim = stranger, victim
        self._daemon = lying_daemon(roots, self.pipe_dir, clients=[], mode=mode)

    def attack(self) -> None:
        if not self.done:
            self.done = True
            _ended(self._daemon, self.pipe_dir)
            lying_daemon(self._stranger, self.pipe_dir, clients=[self._victim], mode=0)

    def heard(self) -> list[str]:
        """What the stranger's was told."""
        file = self.pipe_dir / "heard"
        return file.read_text().splitlines() if file.exists() and file.stat().st_uid != 0 else []


def _ended(daemon: subprocess.Popen[str], pipe_dir: Path) -> None:
    os.killpg(daemon.pid, signal.SIGKILL)
    daemon.wait(120)
    for name in ("control", "control_privileged", "control_lock", "heard"):
        (pipe_dir / name).unlink(missing_ok=True)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("when", ["before it is held", "before it connects"])
async def test_no_command_is_for_who_takes_the_place_of_a_daemon_that_has_ended(
    stranger: Stranger, roots: Stranger, crowd: Path, mode: int, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """His sockets were judged to be root's a moment before, and his answer was the daemon's."""
    succession = Succession(stranger, roots, crowd, mode, os.getpid())
    run = channel.exchange

    def looked_at(path: Path) -> Speaker:
        found = find_speaker(path)
        if when == "before it is held":
            succession.attack()
        return found

    async def late(*args: Any, **more: Any) -> RawReply:
        succession.attack()
        return await run(*args, **more)

    monkeypatch.setattr(channel, "exchange", late)
    control = MpsControl(ControlChannel(succession.pipe_dir, (str(BINARY),), speaker=looked_at))
    answer = await control.start_server(0)
    assert (succession.done, answer.ok, answer.outcome is Outcome.UNREADABLE) == (True, False, False), answer
    assert not [line for line in succession.heard() if line.startswith("start_server")]  # others may look at him, too


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("by_another", [True, False])
async def test_what_a_third_user_answers_in_the_place_of_anothers_daemon_is_not_its_word(
    stranger: Stranger, bystander: Stranger, crowd: Path, mode: int, by_another: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What root changes there is sent with the rights of whose daemon it was, and who has these cannot be held to a
    socket of root's choice. Nor is the next daemon of the same user the one that was asked."""
    succession = Succession(stranger if by_another else bystander, bystander, crowd, mode, os.getpid())
    run = channel.exchange

    async def late(*args: Any, **more: Any) -> RawReply:
        succession.attack()
        return await run(*args, **more)

    monkeypatch.setattr(channel, "exchange", late)
    control = MpsControl(ControlChannel(succession.pipe_dir, (str(BINARY),), speaker=find_speaker))
    answer = await control.start_server(0)
    assert (answer.outcome, "the answer is not used" in answer.message) == (Outcome.UNREADABLE, True), answer


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
async def test_what_he_answers_in_its_place_is_not_its_word(
    stranger: Stranger, roots: Stranger, crowd: Path, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root was shown the stranger's clients as those of root's own daemon."""
    with roots_process() as victim:
        succession = Succession(stranger, roots, crowd, mode, victim.pid)
        run = channel.exchange

        async def late(*args: Any, **more: Any) -> RawReply:
            succession.attack()
            return await run(*args, **more)

        monkeypatch.setattr(channel, "exchange", late)
        monkeypatch.setenv("MPSTUI_CONTROL_BINARY", str(BINARY))
        async with api.open([succession.pipe_dir]) as node:
            (daemon,) = (await node.snapshot()).daemons
        assert succession.heard(), "he was asked"
        assert daemon.speaker.uid != 0 or not daemon.servers, daemon


@pytest.mark.parametrize("mode", [0o1777, 0o1775, 0o1755])
def test_what_others_have_there_besides_makes_roots_daemon_nobodys_at_no_time(
    stranger: Stranger, roots: Stranger, crowd: Path, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As /tmp itself, which is changed all the time; what is in the place of a socket changes the stamp."""
    pipe_dir = crowd / "mps"
    lying_daemon(roots, pipe_dir, clients=[], mode=0o1777)
    newest = max(os.stat(pipe_dir / name).st_ctime for name in ("control", "control_privileged"))
    if mode & 0o020:
        os.chown(pipe_dir, -1, stranger.uid)
    pipe_dir.chmod(mode)
    looks = 0

    def looked_at(path: Path) -> Speaker:
        nonlocal looks
        looks += 1
        (pipe_dir / f"of-another-{looks}").touch()
        return find_speaker(path)

    monkeypatch.setattr("mpstui.observe.discovery.time.time", lambda: newest + 2 * SETTLED)
    found = steady_speaker(pipe_dir, looked_at)
    assert (found.uid, bool(found.stamp), found.sticky, looks) == (0, mode != 0o1755, mode != 0o1755, 1)
    (pipe_dir / "control").unlink()
    roots.python("import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])", pipe_dir / "control")
    assert (find_speaker(pipe_dir).stamp == found.stamp) is (mode == 0o1755)


@pytest.mark.parametrize("name", ["control", "control_privileged"])
def test_the_last_change_of_either_socket_counts_whatever_time_it_was_given(
    roots: Stranger, crowd: Path, name: str
) -> None:
    """By the time that nobody can set: a change just before the look may be followed by one that does not show."""
    lying_daemon(roots, pipe_dir := crowd / "mps", clients=[], mode=0o1777)
    (other,) = {"control", "control_privileged"} - {name}
    while (pipe_dir / name).stat().st_ctime_ns <= (pipe_dir / other).stat().st_ctime_ns:  # to the clock's next tick
        os.utime(pipe_dir / name, (0, 0))
    os.utime(pipe_dir / name, (0, 0))
    found = find_speaker(pipe_dir)
    assert (found.sticky, max(found.stamp[2:4])) == (True, (pipe_dir / name).stat().st_ctime_ns)


def test_the_way_to_another_directory_proves_nothing_of_the_one_that_is_held(
    stranger: Stranger, roots: Stranger, crowd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name led to root's by the time that the way was judged: the sockets that were judged before are a
    stranger's to exchange."""
    lying_daemon(roots, crowd / "roots", clients=[])
    (crowd / "his").mkdir()
    lying_daemon(roots, crowd / "his" / "mps", clients=[])
    os.chown(crowd / "his", stranger.uid, stranger.uid)
    name = crowd / "link"
    name.symlink_to(crowd / "his" / "mps")
    judge = discovery._open_to_others

    def late(*args: Any) -> Any:
        name.unlink(missing_ok=True)
        name.symlink_to(crowd / "roots")
        return judge(*args)

    monkeypatch.setattr(discovery, "_open_to_others", late)
    found = find_speaker(name)
    assert (found.uid, "led to another directory just now" in found.why) == (None, True), found
