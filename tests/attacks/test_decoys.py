"""Processes that call themselves a control daemon: by force the one is ended that listens in that directory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from deadline import usual

from mpstui.observe.discovery import daemon_process, file_id, running_daemons, seen_by
from mpstui.system.procfs import process_uids

from .conftest import Stranger
from .programs import lives, lying_daemon, mpstui, posing

WAITS = "import sys; print('ready', flush=True); sys.stdin.read()"


def by_force(pipe_dir: Path) -> subprocess.CompletedProcess[str]:
    return mpstui("daemon", "stop", "--force", "--yes", "--pipe-dir", pipe_dir, MPSTUI_CONTROL_DEADLINE=usual())


def decoy(who: Stranger, pipe_dir: Path) -> subprocess.Popen[str]:
    """A process of that user which has a daemon's name and names the directory, and is none."""
    return posing(who, WAITS, who.home / "decoy", pipe_dir)


@pytest.mark.slow
def test_of_two_on_one_directory_the_one_that_listens_is_ended(stranger: Stranger) -> None:
    pipe_dir = stranger.home / "p"
    first = decoy(stranger, pipe_dir)
    real = lying_daemon(stranger, pipe_dir, clients=[], deaf=True)
    second = decoy(stranger, pipe_dir)
    (pipe_dir / "nvidia-cuda-mps-control.pid").write_text(f"{second.pid}\n")
    done = by_force(pipe_dir)
    assert done.returncode == 0, done.stderr
    assert real.wait(60) < 0
    assert lives(first)
    assert lives(second)


@pytest.mark.slow
def test_a_stranger_who_names_roots_directory_is_not_taken_for_its_daemon(
    stranger: Stranger, roots: Stranger, tmp_path: Path
) -> None:
    """Nor is his process asked, shown or ended in place of the one that is."""
    pipe_dir = tmp_path / "p"
    his = decoy(stranger, pipe_dir)
    real = lying_daemon(roots, pipe_dir, clients=[], deaf=True)
    (pipe_dir / "nvidia-cuda-mps-control.pid").write_text(f"{his.pid}\n")
    done = by_force(pipe_dir)
    assert done.returncode == 0, done.stderr
    assert real.wait(60) < 0
    assert lives(his)


@pytest.mark.slow
@pytest.mark.parametrize("locks", [True, False], ids=["with the lock", "without it"])
def test_a_setuid_program_of_that_name_is_no_daemon(stranger: Stranger, locks: bool) -> None:
    """It runs as root, and a stranger has started it: a lock of his stays with it, and so do sockets of his."""
    cut = shutil.which("cut")
    assert cut is not None
    program = stranger.home / "nvidia-cuda-mps-control"
    shutil.copy(cut, program)
    os.chown(program, 0, 0)
    program.chmod(0o4755)
    pipe_dir = stranger.home / "p"
    source = """
import fcntl, os, socket, sys
program, pipe = sys.argv[1:3]
os.mkdir(pipe)
for name in ("control", "control_privileged"):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(os.path.join(pipe, name)); listener.listen(8); listener.set_inheritable(True); listener.detach()
lock = os.open(os.path.join(pipe, "control_lock"), os.O_RDWR | os.O_CREAT, 0o644)
os.set_inheritable(lock, True)
if sys.argv[3] == "True": fcntl.lockf(lock, fcntl.LOCK_EX)
os.environ["CUDA_MPS_PIPE_DIRECTORY"] = pipe
print("ready", flush=True)
os.execv(program, ["nvidia-cuda-mps-control", "-d", ",", "-f", "1"])
"""
    trick = stranger.start_python(source, program, pipe_dir, str(locks), stdin=subprocess.PIPE)
    assert trick.stdout is not None
    assert trick.stdout.readline() == "ready\n"
    while (process_uids(trick.pid) or frozenset({stranger.uid})) == {stranger.uid}:
        assert trick.poll() is None, trick.stdout.read()
    assert process_uids(trick.pid) == {0, stranger.uid}
    assert daemon_process(trick.pid) is None
    done = by_force(pipe_dir)
    assert done.returncode != 0, done.stdout
    assert lives(trick)
    said = json.loads(mpstui("status", "--json", "--pipe-dir", pipe_dir, MPSTUI_CONTROL_DEADLINE=usual()).stdout)
    assert [daemon["speaks_for"] for daemon in said["daemons"]] in ([str(stranger.uid)], [None]), "never root's"


OWN_MOUNTS = r"""
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
where = os.environ["CUDA_MPS_PIPE_DIRECTORY"].encode()
if libc.unshare(0x10000000 | 0x20000):
    print("no user namespace", flush=True)
    raise SystemExit
if libc.mount(b"x", where, b"tmpfs", 0, None):
    print("no mount", flush=True)
    raise SystemExit
print("ready", flush=True)
time.sleep(600)
"""


def test_nothing_is_looked_up_in_what_a_user_has_mounted_for_himself(stranger: Stranger) -> None:
    """An overlay over a file system that never answers held up every mpstui of root's, for ever."""
    pipe_dir = stranger.home / "p"
    stranger.run("mkdir", pipe_dir)
    plain = posing(stranger, WAITS, stranger.home / "plain", pipe_dir).pid
    assert seen_by(plain, pipe_dir) == file_id(pipe_dir)
    try:
        own = posing(stranger, OWN_MOUNTS, stranger.home / "own", pipe_dir).pid
    except AssertionError as error:
        pytest.skip(f"users make no namespaces here: {error}")
    assert file_id(Path(f"/proc/{own}/root{pipe_dir}")) not in {None, file_id(pipe_dir)}, "there is another one"
    assert seen_by(own, pipe_dir) is None
    daemons = {each.key.pid: each for each in running_daemons()}
    assert (daemons[own].pipe_id, daemons[own].log_id) == (None, None)
    assert seen_by(own, None) is None
