"""A file system in user space that another user runs, which says of itself what he likes: really mounted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
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
from .programs import ROOT
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


APART = """
import sys
from pathlib import Path
from mpstui.system.trusted import NotTrustedError, judge_directory
try:
    judge_directory(Path(sys.argv[1]), set(map(int, sys.argv[2].split(","))))
except NotTrustedError as error:
    sys.exit(str(error))
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare")
@pytest.mark.parametrize(("runs", "owners"), [(65534, "0,65534"), (64101, "0,64101"), (0, "0")])
def test_in_a_user_namespace_its_users_are_told_by_the_numbers_of_the_one_above(
    his: Path, runs: int, owners: str
) -> None:
    """The list of what is mounted has the numbers of where it was mounted: those of a user above were one's own, and
    nobody's those of all who have none, among them the machine's root."""
    with mounted(his, runs):
        apart = ("unshare", "--user", "--map-root-user", sys.executable, "-c", APART, his / "bin", owners)
        done = subprocess.run(apart, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    if done.stderr.startswith("unshare:"):
        pytest.skip(f"no user namespaces here: {done.stderr}")
    assert (done.returncode == 0) is (runs == 0), done
    assert runs == 0 or f"that UID {runs} runs, which is not known" in done.stderr, done


BELOW = """
import os
from pathlib import Path
from mpstui.system import trusted
device, read = os.stat("/proc").st_dev, trusted.read_proc
line = f"77 1 {os.major(device)}:{os.minor(device)} / /proc rw - fuse his rw,user_id=0,group_id=0".encode()
trusted.read_proc = lambda path, *more: line if path == "/proc/self/mountinfo" else read(path, *more)
try:
    trusted.judge_directory(Path("/proc"), {0})
    print("root's")
except trusted.NotTrustedError as error:
    print(error)
"""


@pytest.mark.skipif(shutil.which("nsenter") is None, reason="there is no nsenter")
@pytest.mark.parametrize("user", [True, False])
def test_among_the_mounts_of_a_container_its_root_is_not_the_machines(roots: Stranger, user: bool) -> None:
    within = ["unshare", "--mount", *(["--user", "--map-root-user"] if user else []), "sh", "-c", "echo ready; read x"]
    container = roots.start(*within, stdin=subprocess.PIPE)
    assert container.stdout is not None
    if (line := container.stdout.readline()) != "ready\n":
        pytest.skip(f"no user namespaces here: {line}")
    entered = ("nsenter", f"--mount=/proc/{container.pid}/ns/mnt", sys.executable, "-c", BELOW)
    done = subprocess.run(entered, capture_output=True, text=True, timeout=120, check=True, cwd=ROOT)
    said = ("not known to be a UID of this user namespace" in done.stdout, done.stdout == "root's\n")
    assert said == (user, not user), done
