"""What others have named leads to a mount that never answers: a server that is away, a file system in user space.
Root's programs waited there for ever."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mpstui import api
from mpstui.cli import main
from mpstui.control import holder
from mpstui.core.model import ProcessKey, Snapshot
from mpstui.observe import discovery
from mpstui.observe.discovery import DaemonProcess, Place, discover, file_id, find_log_dir, seen_by
from mpstui.operations.check import Refused
from mpstui.system import own

from .conftest import Stranger
from .programs import posing

WAITS = "import sys; print('ready', flush=True); sys.stdin.read()"


@pytest.fixture
def dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory in which every look waits, by whatever way it comes there, until the test ends; a test that looks
    without a thread fails. A look is late once it waits there, and never before."""
    (place := tmp_path / "dead").mkdir()
    comes, real, doing, waits = threading.Event(), os.stat(place), threading.local(), set[own._Look]()
    lstat = os.lstat

    class Look(own._Look):
        def run(self) -> None:
            doing.look = self
            super().run()

    def wait(look: own._Look, answers: float) -> None:
        while not look.over.wait(0.05) and look not in waits:
            own._pool._help()

    def held(look: Callable[..., Any], name: str) -> Callable[..., Any]:
        def looks(path: Any, *more: Any, **named: Any) -> Any:
            if not isinstance(path, int) and is_there(path, named.get("dir_fd"), last=name != "lstat"):
                assert threading.current_thread() is not threading.main_thread(), f"{path} is waited for"
                waits.add(doing.look)
                comes.wait(300)
            return look(path, *more, **named)

        return looks

    def is_there(path: Any, folder: int | None, *, last: bool) -> bool:
        if getattr(doing, "asks", False):
            return False
        doing.asks = True
        within = "" if folder is None else os.readlink(f"/proc/self/fd/{folder}")
        above, name = os.path.split(os.path.join(within, os.fsdecode(path)))
        at = os.path.realpath(os.path.join(above, name)) if last else os.path.join(os.path.realpath(above), name)
        doing.asks = False
        for each in (at, os.path.dirname(at)):
            try:
                if os.path.samestat(lstat(each), real):
                    return True
            except (OSError, ValueError):
                pass
        return False

    for name in ("_looks", "_silent"):
        monkeypatch.setattr(own, name, {})
    with monkeypatch.context() as patch:
        for name in ("stat", "lstat", "access", "open"):
            patch.setattr(os, name, held(getattr(os, name), name))
        patch.setattr(os.path, "lexists", held(os.path.lexists, "lstat"))
        patch.setattr(own, "_Look", Look)
        patch.setattr(own._pool, "wait", wait)
        yield place
        comes.set()


def _others(found: tuple[Place, ...]) -> list[str]:
    return [os.fspath(place.pipe_dir) for place in found]


def test_a_link_in_a_well_known_place_is_not_waited_for(dead: Path, crowd: Path, stranger: Stranger) -> None:
    (crowd / "mps_0").mkdir()
    (crowd / "mps_0" / "control").touch()
    stranger.run("ln", "-s", dead, crowd / "mps_1")
    (crowd / "mps_2").mkdir()
    os.chown(crowd / "mps_2", stranger.uid, stranger.uid)
    stranger.run("ln", "-s", dead / "x", crowd / "mps_2" / "control")
    found = discover(env={}, well_known=(f"{crowd}/mps_*",))
    assert os.fspath(crowd / "mps_0") in _others(found)
    assert not {os.fspath(crowd / "mps_1"), os.fspath(crowd / "mps_2")} & {*_others(found)}


def test_nor_is_what_a_process_of_his_says_it_uses(
    dead: Path, crowd: Path, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = posing(stranger, WAITS, stranger.home / "fake", dead)
    assert seen_by(fake.pid, dead) is None
    his = DaemonProcess(ProcessKey(fake.pid, 1), stranger.uid, 1.0, False, "legacy", dead, None)
    (crowd / "mine").mkdir()
    (crowd / "mine" / "control").touch()
    mine = DaemonProcess(ProcessKey(2, 1), 0, 1.0, False, "legacy", crowd / "mine", None, file_id(crowd / "mine"))
    monkeypatch.setattr(discovery, "running_daemons", lambda: [his, mine])
    assert _others(discover(env={}, well_known=())) == [os.fspath(crowd / "mine")]
    monkeypatch.setattr(discovery, "running_daemons", lambda: [his._replace(uid=0), mine])
    told = {place.pipe_dir: place.state for place in discover(env={}, well_known=())}
    assert told[dead] == "unusable", "one of root's is shown all the same"
    assert crowd / "mine" in told


HOLDS = "import socket, sys; pair = socket.socketpair(); print('ready', flush=True); sys.stdin.read()"


def test_nor_is_what_one_names_who_may_hold_the_daemon(
    dead: Path, crowd: Path, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holder, "same_network", lambda pid: False)
    for named in (dead, dead / "x"):
        his = stranger.start_python(HOLDS, env={"CUDA_MPS_PIPE_DIRECTORY": str(named)}, stdin=subprocess.PIPE)
        assert his.stdout is not None
        assert his.stdout.readline() == "ready\n"
        connected = holder._Connected(crowd)
        assert holder._session(his.pid, b"nvidia-cuda-mps-control\0", str(crowd), (), connected) is None


def test_nor_is_a_link_to_his_logs(dead: Path, crowd: Path, stranger: Stranger) -> None:
    stranger.run("mkdir", crowd / "mps_0", crowd / "mps_log_0", crowd / "logs")
    for logs in (crowd / "mps_log_0", crowd / "logs"):
        stranger.run("ln", "-s", dead / "x", logs / "control.log")
    his = DaemonProcess(ProcessKey(2, 1), stranger.uid, 1.0, False, "legacy", crowd / "mps_0", crowd / "logs")
    assert find_log_dir(crowd / "mps_0", his, None) is None
    assert find_log_dir(crowd / "mps_0", None, None) is None


def test_of_a_directory_that_was_named_it_is_said(dead: Path, crowd: Path) -> None:
    (crowd / "link").symlink_to(dead)
    (place,) = discover((crowd / "link",), env={}, well_known=())
    assert place.state == "unusable"
    assert "is on a mount that does not answer" in place.detail


def test_a_crowd_that_names_it_is_waited_for_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of a hundred processes that call themselves a daemon kept root's programs waiting for five seconds."""
    had, late = list[float](), own._Look(lambda: "")

    def ask(questions: Any, *more: float) -> dict[Any, str]:
        had.append(more[3] if len(more) > 3 else own._ANSWERS)
        own._silent.update((place, late) for place, _ in questions)
        return dict.fromkeys(questions, own._SILENT)

    monkeypatch.setattr(own, "_silent", {})
    monkeypatch.setattr(own, "_ask", ask)
    for number in range(100):
        assert own.looked_at({f"{number} /dead": lambda: None}) == set()
    assert had[0] == own._ANSWERS
    assert sum(had) < 40
    assert min(had) >= 0.2, "one that answers late may be root's"


def test_his_links_to_directories_of_roots_crowd_out_none_of_roots(
    stranger: Stranger, crowd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "running_daemons", list)  # other tests may have some
    for number in range(100):
        os.symlink("/usr", crowd / f"mps_{number}")
        os.lchown(crowd / f"mps_{number}", stranger.uid, stranger.uid)
    (crowd / "mps_900").mkdir()
    (crowd / "mps_900" / "control").touch()
    assert os.fspath(crowd / "mps_900") in _others(discover(env={}, well_known=(f"{crowd}/mps_*",)))


@pytest.mark.parametrize(
    "words",
    [
        "status --pipe-dir {}",
        "status --pipe-dir {}/sub",
        "status --health --pipe-dir {}",
        "doctor --pipe-dir {}",
        "set active-thread-percentage 50 --default --pipe-dir {}",
        "daemon stop --yes --pipe-dir {}",
        "daemon start --yes --pipe-dir {}",
        "daemon start --yes --pipe-dir /tmp/mpstui-none --log-dir {}",
        "events --pipe-dir {}",
        "events --log-dir {}",
        "suspects --log-dir {}",
        "status --at 10m --log-dir {}",
        "doctor --log-dir {}",
        "events --pipe-dir /nonexistent --log-dir {}",
    ],
)
def test_whoever_names_it_is_told(
    dead: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setattr("sys.argv", ["mpstui"])
    assert main(words.format(dead, dead).split()) == 3
    said = capsys.readouterr().err
    assert "is on a mount that does not answer" in said
    assert "--health" in words or "see to that mount, or give another directory" in said


def test_also_of_a_file_of_pids(dead: Path) -> None:
    """An epilogue hung on it."""
    with pytest.raises(Refused, match="is on a mount that does not answer") as told:
        api.select("pid_file", os.fspath(dead / "pids"))
    assert told.value.status == 4


def test_also_by_the_short_way(dead: Path) -> None:
    told = api.health(log_dirs=[dead])
    assert (told.status, "is on a mount that does not answer" in told.reason) == (3, True)


def test_and_sees_what_else_was_named(dead: Path, tmp_path: Path) -> None:
    with api.open([dead, tmp_path / "none"]) as node:
        assert isinstance(shown := node.snapshot(), Snapshot)
    assert [daemon.pipe_dir for daemon in shown.daemons] == [dead, tmp_path / "none"]


def test_nor_is_one_of_roots_that_is_found_there(dead: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = DaemonProcess(ProcessKey(2, 1), os.geteuid(), 1.0, False, "legacy", dead, None)
    monkeypatch.setattr(discovery, "running_daemons", lambda: [mine])
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    with api.open() as node:
        assert isinstance(shown := node.snapshot(), Snapshot)
    assert dead in [daemon.pipe_dir for daemon in shown.daemons]
