"""The lock of a daemon is everybody's to hold once it has ended: whether it lives the kernel tells of its sockets."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mpstui.core.model import ProcessKey
from mpstui.daemons.directories import free_lock
from mpstui.daemons.spec import DaemonSpec
from mpstui.daemons.start import taken
from mpstui.observe import discovery
from mpstui.observe.discovery import discover, lock_holder
from mpstui.system import procfs
from mpstui.system.procfs import HiddenProcessError

from .conftest import Stranger
from .programs import LIAR, ROOT, lying_daemon, mpstui, posing

HOLDS = {
    "to write": "f = open(lock, 'w'); fcntl.lockf(f, fcntl.LOCK_EX)",
    "to read": "f = open(lock); fcntl.lockf(f, fcntl.LOCK_SH)",
    "by a program that runs as root": "f = os.open(lock, os.O_RDWR); fcntl.lockf(f, fcntl.LOCK_EX);"
    " os.set_inheritable(f, True); print('held', flush=True); os.execv(sys.argv[2], ['cut', '-f', '1'])",
}


def left_by(daemon: subprocess.Popen[str], pipe_dir: Path) -> None:
    """What a daemon of root's leaves that was killed."""
    (pipe_dir / "control_lock").chmod(0o666)
    daemon.kill()
    daemon.wait()


def holds(who: Stranger, pipe_dir: Path, how: str, *start: str) -> subprocess.Popen[str]:
    program = who.home / "cut"
    shutil.copy(shutil.which("cut") or "", program)
    os.chown(program, 0, 0)
    program.chmod(0o4755)
    source = f"import fcntl, os, sys; lock = sys.argv[1]; pipe = os.path.dirname(lock); {HOLDS[how]};"
    source += " print('held', flush=True); sys.stdin.read()"
    command = [*start, who.interpreter, "-c", source, pipe_dir / "control_lock", program]
    holder = who.start(*command, stdin=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


@pytest.mark.parametrize("how", HOLDS)
def test_who_holds_the_lock_of_one_that_has_ended_does_not_make_it_live(
    stranger: Stranger, roots: Stranger, how: str
) -> None:
    """It was running then, and healthy, and nobody could start another one."""
    pipe_dir = roots.home / "p"
    left_by(lying_daemon(roots, pipe_dir, clients=[]), pipe_dir)
    assert discover([pipe_dir], env={})[0].state == "stale"
    holds(stranger, pipe_dir, how)
    place = discover([pipe_dir], env={})[0]
    assert (place.state, place.daemon, lock_holder(pipe_dir)) == ("stale", None, None)
    assert taken(DaemonSpec(pipe_dir, pipe_dir)) is None


def test_nor_does_one_that_is_called_as_a_daemon_is(stranger: Stranger, roots: Stranger) -> None:
    pipe_dir = roots.home / "p"
    left_by(lying_daemon(roots, pipe_dir, clients=[]), pipe_dir)
    lock = f"import fcntl, sys; f = open('{pipe_dir}/control_lock', 'w'); fcntl.lockf(f, fcntl.LOCK_EX)"
    posing(stranger, f"{lock}; print('ready', flush=True); sys.stdin.read()", stranger.home / "d", pipe_dir)
    assert discover([pipe_dir], env={})[0].state == "stale"


LOOK = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from mpstui.observe.discovery import discover, lock_holder
place = discover([Path(sys.argv[2])], env={})[0]
print(place.state, place.daemon and place.daemon.pid, lock_holder(Path(sys.argv[2])))
"""
needs_namespaces = pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare")
APART = ("unshare", "--pid", "--fork", "--mount-proc")


def seen(pipe_dir: Path, *start: str) -> str:
    command = [*start, sys.executable, "-c", LOOK, ROOT, pipe_dir]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.strip()


@needs_namespaces
def test_nor_does_who_has_no_number_there(stranger: Stranger, roots: Stranger) -> None:
    """Of whom it is not seen whose he is."""
    daemon = lying_daemon(roots, roots.home / "p", clients=[])
    for apart in (APART, (*APART, "--net")):
        assert seen(roots.home / "p", *apart) == "running None 0"
    left_by(daemon, roots.home / "p")
    holds(stranger, roots.home / "p", "to write")
    assert seen(roots.home / "p", *APART) == "stale None 0"


@needs_namespaces
@pytest.mark.parametrize("how", ["as it is", "in other namespaces", "over what the one before left"])
def test_a_daemon_of_roots_that_is_not_called_so_lives_by_each_of_its_names(roots: Stranger, how: str) -> None:
    real, program = roots.home / "p", roots.home / "another"
    program.write_text(LIAR)
    if how.startswith("over"):
        left_by(lying_daemon(roots, real, clients=[]), real)
    apart = [*APART, "--net", "--kill-child"] if how.startswith("in") else []
    spec = json.dumps({"server": 1, "clients": []})
    daemon = roots.start(*apart, sys.executable, program, "-d", real, spec)
    assert daemon.stdout is not None
    assert daemon.stdout.readline() == "ready\n"
    (roots.home / "link").symlink_to(real)
    (links := roots.home / "links").mkdir()
    (mounts := roots.home / "mounts").mkdir()
    for name in ("control", "control_privileged", "control_lock"):
        (links / name).symlink_to(real / name)
        (mounts / name).touch()
    assert [discover([each], env={})[0].state for each in (real, roots.home / "link", links)] == ["running"] * 3
    mount = " && ".join(f"mount --bind {real}/{name} {mounts}/{name}" for name in os.listdir(mounts))
    assert seen(mounts, "unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "-").startswith("running ")
    lower = "mount -t tmpfs none /mnt && mkdir /mnt/u /mnt/w /mnt/m && mount -t overlay -o"
    lower += f' lowerdir={real},upperdir=/mnt/u,workdir=/mnt/w none /mnt/m && exec "$@"'
    copied = seen(Path("/mnt/m"), "unshare", "--mount", "sh", "-c", lower, "-")
    assert copied.startswith("stale "), "a copy of its sockets leads nowhere"


def test_nor_does_a_number_in_its_pid_file_of_a_process_that_is_not_shown(
    roots: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody may write to it; where /proc hides others' processes, and root's socket may not be asked either."""
    pipe_dir = roots.home / "p"
    left_by(lying_daemon(roots, pipe_dir, clients=[]), pipe_dir)
    (pipe_dir / "nvidia-cuda-mps-control.pid").write_text("1\n")

    def hidden(pid: int) -> None:
        raise HiddenProcessError

    monkeypatch.setattr(procfs, "read_stat", hidden)
    monkeypatch.setattr(discovery, "read_stat", hidden)
    monkeypatch.setattr(discovery, "is_served", lambda path: None if path.name.endswith("privileged") else False)
    place = discover([pipe_dir], env={})[0]
    assert (place.state, place.daemon) == ("stale", None)
    monkeypatch.setattr(discovery, "is_served", lambda path: True)
    monkeypatch.setattr(discovery, "lock_holder", lambda *_: 4711)
    assert discover([pipe_dir], env={})[0].daemon == ProcessKey(4711)


def test_a_copy_of_a_daemons_files_does_not_say_that_it_was_killed(roots: Stranger) -> None:
    """As an overlay shows them, in which nobody comes to the sockets."""
    daemon = lying_daemon(roots, roots.home / "p", clients=[])
    (roots.home / "p" / "nvidia-cuda-mps-control.pid").write_text(f"{daemon.pid}\n")
    shutil.copytree(roots.home / "p", roots.home / "q", ignore=lambda *_: ["control", "control_privileged"])
    place = discover([roots.home / "q"], env={})[0]
    assert place.state == "stale"
    where = f"is a daemon that runs in {roots.home}/p: this may be a copy of its files"
    assert place.detail.endswith(f"; process {daemon.pid}, which is named there, {where}")


def test_a_lock_that_a_stranger_holds_takes_no_daemon_from_its_user(stranger: Stranger, bystander: Stranger) -> None:
    """Of an old driver's nobody knows that it holds it."""
    pipe_dir = bystander.home / "p"
    daemon = lying_daemon(bystander, pipe_dir, clients=[], lock=False)
    (pipe_dir / "control_lock").chmod(0o666)
    holds(stranger, pipe_dir, "to read")
    place = discover([pipe_dir], env={})[0]
    assert (place.state, place.pid) == ("running", daemon.pid)


@pytest.mark.slow
def test_a_lock_that_was_left_and_a_stranger_holds_keeps_root_from_no_start(
    stranger: Stranger, roots: Stranger
) -> None:
    """The daemon's own program says then that one runs already, and mpstui said so too."""
    pipe_dir, log_dir = roots.home / "mps", roots.home / "log"
    at = ("--pipe-dir", pipe_dir)
    pipe_dir.mkdir()
    (pipe_dir / "control_lock").touch()
    (pipe_dir / "control_lock").chmod(0o666)
    hold = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True)"
    his = stranger.start_python(f"{hold}; sys.stdin.read()", pipe_dir / "control_lock", stdin=subprocess.PIPE)
    assert his.stdout is not None
    assert his.stdout.readline() == "held\n"
    done = mpstui("daemon", "start", *at, "--log-dir", log_dir, timeout=300)
    try:
        assert done.returncode == 0, done.stderr
        assert f"was locked by process {his.pid} of UID {stranger.uid}; a new one is made" in done.stdout + done.stderr
        assert free_lock(pipe_dir) == (), "the daemon's own is left"
        assert (pipe_dir / "control_lock").exists()
    finally:
        stopped = mpstui("daemon", "stop", "--force", "--yes", *at, timeout=300)
    assert stopped.returncode == 0, stopped.stderr
    assert his.poll() is None
