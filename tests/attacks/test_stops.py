"""A daemon that answers nobody is ended as a process: only the one that listens in that directory (attacks B and D)."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from deadline import usual

from mpstui.control.commandline import SOCKETS
from mpstui.daemons.stale import REMOVED, clean
from mpstui.observe.discovery import find_speaker, lock_holder, pids_are_ours
from mpstui.system import trusted

from .conftest import Stranger
from .programs import lives, lying_daemon, mpstui


def stop(pipe_dir: Path) -> str:
    words = ("daemon", "stop", "--force", "--yes")
    done = mpstui(*words, "--pipe-dir", pipe_dir, timeout=300, MPSTUI_CONTROL_DEADLINE=usual())
    return done.stdout + done.stderr


@pytest.mark.slow
def test_a_link_to_the_lock_of_roots_daemon_does_not_have_it_ended(stranger: Stranger, roots: Stranger) -> None:
    """The lock is everybody's to write to (fact 42), so everybody may make a second name of it, in his own directory;
    the kernel names root's daemon as the one that holds it."""
    innocent = lying_daemon(roots, roots.home / "p", clients=[])
    (roots.home / "p" / "control_lock").chmod(0o666)
    mine = stranger.home / "p"
    stranger.run("mkdir", mine)
    stranger.run("ln", roots.home / "p" / "control_lock", mine / "control_lock")
    deaf = lying_daemon(stranger, mine, clients=[], lock=False, deaf=True)
    shown = mpstui("status", "--json", "--pipe-dir", mine, MPSTUI_CONTROL_DEADLINE=usual()).stdout
    assert f'"pid": {innocent.pid}' not in shown, "whose daemon it is said to be"
    said = stop(mine)
    assert lives(innocent), said
    assert not lives(deaf), "the one that does not answer is ended"


def test_a_second_name_of_the_lock_takes_nothing_from_the_daemon_that_holds_it(
    stranger: Stranger, roots: Stranger
) -> None:
    daemon = lying_daemon(roots, roots.home / "p", clients=[], mode=0o777)
    (roots.home / "p" / "control_lock").chmod(0o666)
    stranger.run("ln", roots.home / "p" / "control_lock", stranger.home / "link")
    assert lock_holder(roots.home / "p") == daemon.pid
    assert pids_are_ours(roots.home / "p", find_speaker(roots.home / "p"))


@pytest.mark.slow
def test_a_lock_that_was_moved_there_from_another_daemon_of_root_does_not_have_that_one_ended(
    stranger: Stranger, roots: Stranger
) -> None:
    """Daemons leave directories that they make open to everybody."""
    innocent = lying_daemon(roots, roots.home / "of-another", clients=[], mode=0o777)
    silent = lying_daemon(roots, roots.home / "p", clients=[], mode=0o777, deaf=True)
    stranger.run("mv", "-f", roots.home / "of-another" / "control_lock", roots.home / "p" / "control_lock")
    said = stop(roots.home / "p")
    assert lives(innocent), said
    assert not lives(silent), said


def test_a_lock_that_a_stranger_puts_there_does_not_name_the_daemon(stranger: Stranger, roots: Stranger) -> None:
    daemon = lying_daemon(roots, roots.home / "p", clients=[], mode=0o777)
    hold = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True)"
    stranger.run("rm", "-f", roots.home / "p" / "control_lock")
    holder = stranger.start_python(f"{hold}; sys.stdin.read()", roots.home / "p" / "control_lock", stdin=-1)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    shown = mpstui("status", "--json", "--pipe-dir", roots.home / "p").stdout
    assert f'"pid": {daemon.pid}' in shown
    assert f'"pid": {holder.pid}' not in shown


def test_a_file_system_that_a_stranger_runs_makes_nobody_root(
    stranger: Stranger, roots: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may say of its sockets that root owns them (where fuse.conf lets others in)."""
    lying_daemon(roots, roots.home / "p", clients=[])
    assert find_speaker(roots.home / "p").uid == 0
    read, real = trusted.read_proc, os.stat

    def mounted(path: str, limit: int = 1 << 20) -> bytes | None:
        found = read(path, limit)
        options = b" - fuse.evil evil rw,user_id=%d" % stranger.uid
        return re.sub(rb"(?m) - .*$", options, found or b"") if path.endswith("/mountinfo") else found

    monkeypatch.setattr(trusted, "read_proc", mounted)
    # What is on the root's own is not looked up: here nothing is.
    monkeypatch.setattr(os, "stat", lambda path, *more, **named: real("/proc" if path == "/" else path, *more, **named))
    assert find_speaker(roots.home / "p").uid is None


def _leads(stranger: Stranger, place: Path) -> Path:
    stranger.run("ln", "-s", place.parent, stranger.home / "way")
    return stranger.home / "way" / place.name


def _steps_back(stranger: Stranger, place: Path) -> Path:
    stranger.run("ln", "-s", place, stranger.home / "way")
    return stranger.home / "way" / ".." / place.name


@pytest.mark.parametrize("lead", [_leads, _steps_back])
def test_root_removes_nothing_where_a_stranger_leads_the_name(
    stranger: Stranger, roots: Stranger, lead: Callable[[Stranger, Path], Path]
) -> None:
    """He would choose whose files go: those of a daemon of root's that has ended, or of any program whose socket is
    called so."""
    place = roots.home / "p"
    place.mkdir()
    for name in SOCKETS:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as left:
            left.bind(str(place / name))
    before = sorted(os.listdir(place))
    (said,) = clean(lead(stranger, place))
    assert "other users can change the path" in said
    assert sorted(os.listdir(place)) == before
    (said,) = clean(place)
    assert said.startswith(REMOVED)
    assert os.listdir(place) == []
