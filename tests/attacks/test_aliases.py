"""Names that a stranger gives a directory of root's: none becomes that of root's daemon, and by none is it ended."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mpstui import cli
from mpstui.core.model import Daemon
from mpstui.core.trust import Speaker
from mpstui.observe import daemon as of_daemon
from mpstui.observe import discovery
from mpstui.observe.discovery import Place, discover, find_speaker
from mpstui.operations import daemons as stopping
from mpstui.operations.types import ExitStatus
from mpstui.system.procfs import process_key

from .conftest import Stranger
from .programs import BINARY, USURPS, lives, lying_daemon, posing, usurped
from .test_decoys import WAITS

STARTED: dict[str, Callable[[Path, Path], list[str]]] = {
    "": lambda real, folder: [],
    "where it is mounted elsewhere": lambda real, folder: [
        "unshare", "--mount", "sh", "-c", f'mount --bind {real} {folder} && exec "$@"', "-",
    ],
}  # fmt: skip


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch, crowd: Path, stranger: Stranger, roots: Stranger) -> Callable[..., Any]:
    """What is found unnamed on a node with nothing but what this test has started."""
    every = discovery.running_daemons
    mine = lambda: [each for each in every() if each.key.pid in started(stranger, roots)]  # noqa: E731
    monkeypatch.setattr(discovery, "running_daemons", mine)
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)

    def look(*well_known: str) -> list[Place]:
        return list(discover(env={}, well_known=[f"{crowd}/{each}" for each in well_known]))

    return look


def started(*whose: Stranger) -> set[int]:
    return {process.pid for each in whose for process in each._started}


@pytest.fixture
def real(crowd: Path) -> Path:
    """A directory that root keeps well."""
    (crowd / "zz" / "mps").mkdir(parents=True)
    return crowd / "zz" / "mps"


def process_in(who: Stranger, folder: Path) -> Path:
    """The folder in /proc of a process of that user, which is his by now."""
    process = who.start_python("print('ready', flush=True); input()", cwd=folder, stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return Path(f"/proc/{process.pid}")


ALIASES: dict[str, Callable[[Stranger, Path, Path], Path]] = {
    "a link": lambda him, crowd, real: (him.run("ln", "-s", real, crowd / "a"), crowd / "a")[1],
    "a link above": lambda him, crowd, real: (him.run("ln", "-s", real.parent, crowd / "a"), crowd / "a" / "mps")[1],
    "up from a directory": lambda him, crowd, real: (
        him.run("mkdir", crowd / "a"), crowd / "a" / ".." / real.relative_to(crowd)
    )[1],
    "the root of a process": lambda him, crowd, real: Path(f"{process_in(him, real)}/root{real}"),
    "by another directory": lambda him, crowd, real: Path(f"{crowd}/../..{process_in(him, real)}/cwd"),
}  # fmt: skip


@pytest.mark.parametrize("alias", ALIASES)
def test_a_name_of_a_strangers_does_not_become_that_of_roots_daemon(
    found: Callable[..., list[Place]], stranger: Stranger, roots: Stranger, crowd: Path, real: Path, alias: str
) -> None:
    """It came first in the order of names; whatever root's daemon said was the stranger's word then."""
    daemon = lying_daemon(roots, real, clients=[])
    (before,) = found()
    posing(stranger, WAITS, stranger.home / "decoy", ALIASES[alias](stranger, crowd, real), cwd=real)
    assert [(place.pipe_dir, place.pid) for place in found()] == [(real, daemon.pid)]
    assert found() == [before]
    assert before.speaker.uid == 0


@pytest.mark.parametrize("how", STARTED)
def test_a_link_among_the_well_known_places_does_not_name_it_either(
    found: Callable[..., list[Place]], stranger: Stranger, roots: Stranger, crowd: Path, real: Path, how: str
) -> None:
    if how and shutil.which("unshare") is None:
        pytest.skip("there is no unshare")
    (inside := crowd / "in").mkdir()
    program = roots.home / "d" / "nvidia-cuda-mps-control"
    program.parent.mkdir()
    program.write_text(WAITS)
    daemon = roots.start(
        *STARTED[how](real, inside), sys.executable, program, "-d",
        env={"CUDA_MPS_PIPE_DIRECTORY": os.fspath(inside if how else real)}, stdin=subprocess.PIPE,
    )  # fmt: skip
    assert daemon.stdout is not None
    assert daemon.stdout.readline() == "ready\n"
    name = Path(f"/proc/{daemon.pid}/root{inside}") if how else real
    assert [place.pipe_dir for place in found("mps_*")] == [name]
    stranger.run("ln", "-s", real, crowd / "mps_alink")
    assert [place.pipe_dir for place in found("mps_*")] == [name]
    assert [place.pipe_dir for place in found("mps_*", "zz/*")] == [real], "its own name is a well-known one"


def test_what_only_a_link_of_his_leads_to_is_not_found_where_it_is_not_his(
    found: Callable[..., list[Place]], stranger: Stranger, crowd: Path, real: Path
) -> None:
    """He would say which directories of root's are a daemon's."""
    (real / "control").touch()
    stranger.run("ln", "-s", real, crowd / "mps_x")
    stranger.run("mkdir", stranger.home / "mps")
    stranger.run("touch", stranger.home / "mps" / "control")
    stranger.run("ln", "-s", stranger.home / "mps", crowd / "mps_y")
    assert {place.pipe_dir for place in found("mps_*")} == {crowd / "mps_y"}


def test_a_link_of_roots_own_names_it_as_before(
    found: Callable[..., list[Place]], roots: Stranger, crowd: Path, real: Path
) -> None:
    (crowd / "mps_own").symlink_to(real)
    daemon = lying_daemon(roots, crowd / "mps_own", clients=[])
    assert [(each.pipe_dir, each.pid, each.speaker.uid) for each in found()] == [(crowd / "mps_own", daemon.pid, 0)]


def test_a_users_daemon_has_the_name_that_he_gives_it(
    found: Callable[..., list[Place]], stranger: Stranger, crowd: Path
) -> None:
    stranger.run("mkdir", stranger.home / "mps")
    stranger.run("ln", "-s", stranger.home / "mps", crowd / "his")
    daemon = lying_daemon(stranger, crowd / "his", clients=[])
    assert [(each.pipe_dir, each.pid) for each in found()] == [(crowd / "his", daemon.pid)]


class Flips:
    """A stranger's link, which leads to root's well-kept directory or to that of his own daemon."""

    def __init__(self, stranger: Stranger, roots: Stranger, real: Path) -> None:
        self.link, self.leads = stranger.home / "l", {"roots": real, "his": stranger.home / "p"}
        self._stranger = stranger
        self.daemon = lying_daemon(roots, real, clients=[])
        lying_daemon(stranger, self.leads["his"], clients=[])
        self.to("his")

    def to(self, whose: str) -> None:
        self._stranger.run("ln", "-sfn", self.leads[whose], self.link)

    def late(self, function: Callable[..., Any], first: str, then: str) -> Callable[..., Any]:
        """That function, before and after which he exchanges where it leads."""

        def exchanged(*args: Any, **more: Any) -> Any:
            self.to(first)
            try:
                return function(*args, **more)
            finally:
                self.to(then)

        return exchanged


@pytest.fixture
def flips(found: object, stranger: Stranger, roots: Stranger, real: Path) -> Iterator[Flips]:
    return Flips(stranger, roots, real)


def test_a_link_that_he_exchanges_usurps_nobody(flips: Flips, monkeypatch: pytest.MonkeyPatch) -> None:
    """His sockets were seen by it at one moment, and root's daemon, who has his own, at the next."""
    monkeypatch.setattr(discovery, "_found", flips.late(discovery._found, "roots", "his"))
    (place,) = discover([flips.link], env={})
    assert not place.usurped(0), place
    assert place.speaker.uid != 0


def test_nor_has_roots_daemon_a_second_place_by_it(
    flips: Flips, stranger: Stranger, real: Path, found: Callable[..., list[Place]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It led to a directory that has no other name when the names were gathered."""
    stranger.run("mkdir", stranger.home / "q")
    flips.leads["his"] = stranger.home / "q"
    flips.to("his")
    posing(stranger, WAITS, stranger.home / "decoy", flips.link)
    assert flips.link in {place.pipe_dir for place in found()}
    monkeypatch.setattr(discovery, "_place", flips.late(discovery._place, "roots", "his"))
    assert [place.pipe_dir for place in found() if place.pid == flips.daemon.pid] == [real]


def test_nor_does_one_that_he_exchanges_while_it_is_asked(
    flips: Flips, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    flips.to("roots")
    monkeypatch.setenv("MPSTUI_CONTROL_BINARY", str(BINARY))
    monkeypatch.setattr(of_daemon, "find_speaker", flips.late(find_speaker, "his", "roots"))
    cli.main(["status", "--json", "--pipe-dir", str(flips.link)])
    said = json.loads(capfd.readouterr().out)
    assert not [each for each in said["problems"] if each["code"] == "daemon_usurped"], said["problems"]


def end(pipe_dir: Path, pid: int, sockets: tuple[int, ...]) -> Any:
    """Root's daemon ended that was seen to be usurped in this directory."""
    speaker = Speaker(None, "a mixture", by=sockets[-1], sockets=sockets)
    daemon = Daemon(pipe_dir, key=process_key(pid), uid=0, speaker=speaker)
    request = stopping.StopDaemon().request(daemon, force=True)
    work: Any = SimpleNamespace(request=request, progress=lambda text: None)
    return stopping._end_usurped(work, daemon)


async def test_roots_daemon_is_not_ended_by_a_link_that_he_exchanges(
    flips: Flips, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that mpstui itself had named ended it, healthy as it was."""
    flips.to("roots")
    result = await end(flips.link, flips.daemon.pid, (stranger.uid,))
    assert (result.status, lives(flips.daemon)) == (ExitStatus.REFUSED_BY_SAFETY_RULE, True), result.message
    assert " ln " not in result.message, "no link to make is offered"


@pytest.mark.parametrize("how", USURPS)
async def test_who_has_his_sockets_again_is_not_ended(
    stranger: Stranger, roots: Stranger, crowd: Path, how: str
) -> None:
    """What was seen is looked at again before each signal."""
    pipe_dir = crowd / "mps"
    daemon = usurped(roots, stranger, pipe_dir, how)
    assert discover([pipe_dir], env={})[0].usurped(0)
    for path in [*pipe_dir.iterdir()]:
        if path.name.startswith("x"):
            path.rename(pipe_dir / path.name[1:])
    if (pipe_dir / "c2").exists():
        (pipe_dir / "c2").rename(pipe_dir / "control")
    assert not discover([pipe_dir], env={})[0].usurped(0)
    result = await end(pipe_dir, daemon.pid, (0, stranger.uid))
    assert (result.status, lives(daemon)) == (ExitStatus.REFUSED_BY_SAFETY_RULE, True), result.message


@pytest.mark.parametrize("when", ["when it was found", "when it is to be ended"])
async def test_a_daemon_whose_own_name_is_a_strangers_link_is_not_usurped_elsewhere(
    stranger: Stranger, roots: Stranger, crowd: Path, when: str
) -> None:
    """He leads that name to a directory of root's in which anybody may put a socket."""
    (his := crowd / "l").symlink_to(crowd / "other")
    os.lchown(his, stranger.uid, stranger.uid)
    (pipe_dir := crowd / "other").mkdir()
    daemon = posing(roots, WAITS, roots.home / "d", his)
    pipe_dir.chmod(0o777)
    usurper = stranger.start_python(
        "import socket, sys\nfor name in 'control', 'control_privileged':\n"
        " s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.bind(sys.argv[1] + '/' + name); s.listen(5)\n"
        "print('ready', flush=True)\nsys.stdin.read()", pipe_dir, stdin=subprocess.PIPE,
    )  # fmt: skip
    assert usurper.stdout is not None
    assert usurper.stdout.readline() == "ready\n"
    if when == "when it was found":
        assert not discover([pipe_dir], env={})[0].usurped(0)
        return
    result = await end(pipe_dir, daemon.pid, (stranger.uid,))
    assert (result.status, lives(daemon)) == (ExitStatus.REFUSED_BY_SAFETY_RULE, True), result.message


def test_the_root_of_a_process_is_its_users_to_say(
    stranger: Stranger, roots: Stranger, crowd: Path, real: Path
) -> None:
    """As a container's is; a link in there is one like any other, and what else a process has open is nobody's name."""
    (crowd / "own").symlink_to(real)
    stranger.run("ln", "-s", real, crowd / "his")
    for who, steered in ((roots, False), (stranger, True)):
        process = process_in(who, real)
        for name in (real, crowd / "own"):
            assert find_speaker(Path(f"{process}/root{name}")).steered is steered, (who.uid, name)
        assert find_speaker(Path(f"{process}/root{crowd / 'his'}")).steered
        assert find_speaker(process / "cwd").steered
    assert not find_speaker(crowd / "own").steered
    for who in (roots, stranger):
        lying_daemon(who, who.home / "mps", clients=[])
        found = find_speaker(who.home / "mps")
        assert (found.uid, found.steered) == (who.uid, who is stranger), "who owns a way leads it, for root too"
