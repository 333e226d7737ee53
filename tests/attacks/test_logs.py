"""Logs that others have written, or have put in the place of a daemon's own: they are not read, and it is said whose.

A log decides who is shown as lost, or as the one that blocks the daemon, and so who is ended.
"""

from __future__ import annotations

import ast
import grp
import json
import os
import pwd
import re
import shutil
import signal
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import warm
from contract.harness import eventually
from folders import daemons_below, leave_logs

import mpstui
from mpstui.daemons.spec import DaemonSpec
from mpstui.history.reader import LogHistory
from mpstui.node import open_node
from mpstui.observe.discovery import binary_version, discover, find_log_dir, last_written
from mpstui.observe.logs import LogTail, LogWatch
from mpstui.observe.watcher import NodeWatcher
from mpstui.operations.audit import AuditLog
from mpstui.sim.marker import control_binary
from mpstui.system import trusted
from mpstui.system.trusted import NotTrustedError, UnreadableLogError, is_believed, open_log, owners_of
from tests.attacks.conftest import FIRST_UID, Stranger
from tests.daemons.carried_out import start

LINE = "[2026-11-20 21:24:23.049 Control   9] CUDA MPS Control binary version: 31337\n"
FORGED = """
[2026-11-20 21:24:23.049 Control   9] Starting control daemon using socket /tmp/x/control
[2026-11-20 21:24:23.049 Control   9] CUDA MPS Control binary version: 31337
[2026-11-20 21:24:33.842 Control   9] Accepting connection...
[2026-11-20 21:24:33.842 Control   9] NEW CLIENT 31337 from user 0: Server is not ready, push client to pending list
"""
ROOT = owners_of(0)
OWN = owners_of(None)
"""Of whoever runs the tests: ROOT for root."""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a directory away")


@pytest.fixture
def mpstui_as_root(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*words: object) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "MPSTUI_AUDIT_LOG": str(tmp_path / "audit.jsonl")}
        done = warm.run(*words, env=environment)
        assert "Traceback" not in done.stderr
        return done

    return run


@pytest.fixture
async def daemon(crowd: Path, tmp_path: Path, stranger: Stranger) -> Any:
    """Root's own daemon, its directories in the crowd's."""
    spec = DaemonSpec(crowd / "mps_0", crowd / "mps_log_0")
    started = await start(spec, control_binary(), AuditLog(tmp_path / "audit.jsonl"))
    assert started.done, started
    yield spec
    for process in daemons_below(crowd):
        os.kill(process.key.pid, signal.SIGKILL)
    await eventually(lambda: _below(crowd), lambda left: not left)


async def _below(folder: Path) -> list[object]:
    return list(daemons_below(folder))


def secret(tmp_path: Path) -> Path:
    """A file of root's with the name of a log, for root alone to read."""
    folder = tmp_path / "secret"
    folder.mkdir(exist_ok=True)
    for name in ("control.log", "server.log"):
        (folder / name).write_text(FORGED.replace("31337", "41414"))
        (folder / name).chmod(0o600)
    return folder


FILES = """
import os, sys
folder, text = sys.argv[1:3]
os.makedirs(folder, exist_ok=True)
for name in ("control.log", "server.log"):
    open(os.path.join(folder, name), "w").write(text)
"""


def remade_plainly(stranger: Stranger, folder: Path, tmp_path: Path) -> None:
    stranger.python(FILES, folder, FORGED)


def remade_as_a_link(stranger: Stranger, folder: Path, tmp_path: Path) -> None:
    stranger.python(FILES, stranger.home / "logs", FORGED)
    stranger.run("ln", "-s", stranger.home / "logs", folder)


def remade_with_a_link_to_what_is_roots(stranger: Stranger, folder: Path, tmp_path: Path) -> None:
    stranger.run("mkdir", folder)
    for name in ("control.log", "server.log"):
        stranger.run("ln", "-s", secret(tmp_path) / name, folder / name)


def remade_as_a_link_to_what_is_roots(stranger: Stranger, folder: Path, tmp_path: Path) -> None:
    stranger.run("ln", "-s", secret(tmp_path), folder)


def remade_with_fifos(stranger: Stranger, folder: Path, tmp_path: Path) -> None:
    stranger.run("mkdir", folder)
    stranger.run("mkfifo", folder / "control.log", folder / "server.log")


def remade_with_a_file_of_roots(stranger: Stranger, folder: Path, tmp_path: Path) -> None:
    """As where hard links to others' files are not forbidden and the file's own directory was reaped."""
    stranger.run("mkdir", "-m", "755", folder)
    for name in ("control.log", "server.log"):
        (folder / name).write_text(FORGED)


def left_open_to_all(stranger: Stranger, folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    for name in ("control.log", "server.log"):
        (folder / name).write_text(FORGED)


def left_writable(stranger: Stranger, folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    (folder / "control.log").write_text("")
    (folder / "control.log").chmod(0o31337)
    stranger.python(FILES.replace("server.log", "control.log"), folder, FORGED)


def left_writable_by_a_group(stranger: Stranger, folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    os.chown(folder, 0, stranger.uid)
    folder.chmod(0o775)
    stranger.python(FILES, folder, FORGED)
    for name in ("control.log", "server.log"):
        os.chown(folder / name, 0, 0)


REMADE = [
    remade_plainly,
    remade_as_a_link,
    remade_with_a_link_to_what_is_roots,
    remade_as_a_link_to_what_is_roots,
    remade_with_fifos,
    remade_with_a_file_of_roots,
    left_open_to_all,
    left_writable,
    left_writable_by_a_group,
]


@pytest.mark.parametrize("remade", REMADE)
async def test_a_log_directory_that_is_made_again_is_not_read_by_any_command(
    daemon: DaemonSpec, stranger: Stranger, tmp_path: Path, remade: Any, mpstui_as_root: Any
) -> None:
    shutil.rmtree(daemon.log_dir)  # the reaper of /tmp
    remade(stranger, daemon.log_dir, tmp_path)
    where = ("--pipe-dir", daemon.pipe_dir)
    status = mpstui_as_root("status", "--json", *where)
    assert status.returncode == 0
    (found,) = json.loads(status.stdout)["daemons"]
    assert found["watch"] == "polling"
    assert "not read" in found["watch_detail"].lower()
    assert found["version"] is None
    assert "31337" not in status.stdout + status.stderr
    assert "41414" not in status.stdout
    text = mpstui_as_root("status", *where)
    assert "not read" in text.stdout.lower()
    events = mpstui_as_root("events", "--json", *where)
    assert (events.returncode, events.stdout) == (6, "")
    assert "not read" in events.stderr.lower()
    doctor = mpstui_as_root("doctor", *where).stdout
    assert "not read" in doctor.lower()
    assert "31337" not in doctor
    if remade is remade_plainly:
        for said in (found["watch_detail"], text.stdout, events.stderr, doctor):
            assert f"hese logs belong to UID {stranger.uid}; not read" in said
        assert "to a directory that only the daemon's user can change" in text.stdout, "and what to do"


async def test_a_directory_that_is_made_again_while_it_is_watched_tells_nothing(
    daemon: DaemonSpec, stranger: Stranger, tmp_path: Path
) -> None:
    sources, dirs = open_node((daemon.pipe_dir,))
    collector = NodeWatcher(dirs, sources, refresh=0.2)
    await collector.start()
    try:

        async def shown() -> Any:
            return collector.snapshot.daemon(daemon.pipe_dir) if collector.snapshot else None

        await eventually(shown, lambda found: found is not None and found.watch == "logs")
        shutil.rmtree(daemon.log_dir)
        stranger.python(FILES, daemon.log_dir, FORGED)
        found = await eventually(shown, lambda found: found.watch == "polling")
        said = f"These logs belong to UID {stranger.uid}; not read ({daemon.log_dir} belongs"
        assert found.watch_detail.startswith(said)
        stranger.python(FILES.replace('"w"', '"a"'), daemon.log_dir, FORGED)
        before = collector.snapshot
        collector.request_refresh()
        await eventually(shown, lambda _: collector.snapshot is not before)
        assert not [event for event in collector.snapshot.events if event.pid == 31337 or "31337" in event.raw]
        assert not (await shown()).pending
    finally:
        await collector.stop()


def test_a_tail_goes_by_who_owns_what_is_there_now(crowd: Path, stranger: Stranger) -> None:
    folder = crowd / "logs"
    folder.mkdir()
    (folder / "control.log").write_text("one\n")
    tail = LogTail(folder / "control.log", owners=ROOT)
    assert tail.poll() == [b"one"]
    folder.rename(crowd / "old")
    stranger.python(FILES, folder, "forged\n")
    assert tail.poll() == []
    assert (tail.believed, f"belong to UID {stranger.uid}" in (tail.error or "")) == (False, True)
    assert LogWatch(folder, ROOT).paths, "not looked at yet"
    watch = LogWatch(folder, ROOT)
    assert watch.history() == []
    assert watch.paths == (), "whoever writes there wakes nobody"
    stranger.run("rm", "-r", folder)
    folder.mkdir()
    (folder / "control.log").write_text("two\n")
    assert tail.poll() == [b"two"]
    assert (tail.believed, tail.error) == (True, None)
    # Rotation: another user's file in the place of the old one.
    (folder / "control.log").unlink()
    (folder / "control.log").symlink_to(stranger.home / "mine.log")
    stranger.python("import sys; open(sys.argv[1], 'w').write('three\\n')", stranger.home / "mine.log")
    assert tail.poll() == []
    assert tail.error is not None
    assert "symbolic link" in tail.error
    tail.close()


def test_a_missing_log_on_a_strangers_way_is_said_to_be_his(crowd: Path, stranger: Stranger) -> None:
    stranger.run("mkdir", crowd / "logs")
    tail = LogTail(crowd / "logs" / "control.log", owners=ROOT)
    assert tail.poll() == []
    assert f"belong to UID {stranger.uid}" in (tail.error or "")
    assert not tail.believed


def test_when_the_daemons_user_changes_so_does_who_is_believed(crowd: Path, stranger: Stranger) -> None:
    stranger.python(FILES, crowd / "logs", "one\ntwo")
    tail = LogTail(crowd / "logs" / "control.log", owners=owners_of(stranger.uid))
    assert tail.poll() == [b"one"]
    tail.believe(ROOT)
    stranger.python(FILES.replace('"w"', '"a"'), crowd / "logs", "\nthree\n")
    assert (tail.poll(), tail.believed) == ([], False)
    tail.believe(owners_of(stranger.uid))
    assert tail.poll() == [b"two", b"three"], "each line once"
    tail.close()


def test_a_log_that_others_may_write_to_by_now_is_left(crowd: Path) -> None:
    (crowd / "control.log").write_text("one\n")
    tail = LogTail(crowd / "control.log", owners=OWN)
    assert tail.poll() == [b"one"]
    (crowd / "control.log").chmod(0o666)
    with (crowd / "control.log").open("a") as log:
        log.write("two\n")
    assert (tail.poll(), tail.believed) == ([], False)
    (crowd / "control.log").chmod(0o644)
    assert (tail.poll(), tail.believed) == ([b"two"], True)
    tail.close()


@needs_root
@pytest.mark.parametrize(
    ("name", "members", "believed"),
    [
        ("syslog", (104,), True),  # /var/log of Ubuntu
        ("syslog", (104, 1000), False),
        ("root", (0, 5), True),
        ("video", (), False),
        ("video", (104,), False),
        ("alice", (1000,), False),
        ("root", (0, FIRST_UID), False),
    ],
)
def test_a_group_that_may_write_is_known_by_its_members(
    crowd: Path, monkeypatch: pytest.MonkeyPatch, name: str, members: tuple[int, ...], believed: bool
) -> None:
    users = [pwd.struct_passwd((f"u{uid}", "x", uid, 4242, "", "/", "/bin/sh")) for uid in members]
    users.append(pwd.struct_passwd(("carol", "x", FIRST_UID, 4243, "", "/", "/bin/sh")))  # of another group
    monkeypatch.setattr(trusted.grp, "getgrgid", lambda gid: grp.struct_group((name, "x", gid, [])))
    monkeypatch.setattr(trusted.pwd, "getpwall", lambda: users)
    trusted._is_shared.cache_clear()
    try:
        folder = crowd / "log"
        folder.mkdir()
        os.chown(folder, 0, 4242)
        folder.chmod(0o775)
        (folder / "control.log").write_text(LINE)
        assert is_believed(folder / "control.log", ROOT) is believed
    finally:
        trusted._is_shared.cache_clear()


@needs_root
@pytest.mark.parametrize(
    ("user", "primary", "believed"), [("carol", 4242, True), ("dave", 4242, False), ("carol", 100, False)]
)
def test_a_group_of_which_nobody_is_listed_is_the_users_own_by_name_and_number(
    crowd: Path, monkeypatch: pytest.MonkeyPatch, user: str, primary: int, believed: bool
) -> None:
    """As a directory service has them: a user may be put into a group of other people as his first one."""
    his = pwd.struct_passwd((user, "x", FIRST_UID, primary, "", "/", "/bin/sh"))
    monkeypatch.setattr(trusted.grp, "getgrgid", lambda gid: grp.struct_group(("carol", "x", gid, [])))
    monkeypatch.setattr(trusted.pwd, "getpwall", list)
    monkeypatch.setattr(trusted.pwd, "getpwuid", {FIRST_UID: his}.__getitem__)
    trusted._is_shared.cache_clear()
    try:
        folder = crowd / "log"
        folder.mkdir()
        (folder / "control.log").write_text(LINE)
        for path in (folder / "control.log", folder):
            os.chown(path, FIRST_UID, 4242)
        folder.chmod(0o775)
        assert is_believed(folder / "control.log", owners_of(FIRST_UID)) is believed
    finally:
        trusted._is_shared.cache_clear()


@needs_root
@pytest.mark.parametrize(
    ("mode", "own"), [(0o755, True), (0o1755, True), (0o1777, False), (0o1775, False), (0o777, False)]
)
def test_a_directory_in_which_others_make_files_is_not_ones_own(crowd: Path, mode: int, own: bool) -> None:
    """A sticky one too, of everybody's or of a group's."""
    (place := crowd / "place").mkdir()
    os.chown(place, 0, 4242)
    place.chmod(mode)
    if own:
        trusted.judge_own(place, {0})
        return
    with pytest.raises(NotTrustedError) as error:
        trusted.judge_own(place, {0})
    assert error.value.fault == "writable"


def test_a_link_of_this_process_in_proc_leads_where_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of another process its user decides on, at any moment."""
    monkeypatch.chdir("/")
    trusted.judge_directory(Path(f"/proc/{os.getpid()}/cwd"), {0, os.geteuid()})
    with pytest.raises(NotTrustedError, match="another process controls its target"):
        trusted.judge_directory(Path(f"/proc/{os.getppid()}/cwd"), {0, os.geteuid()})


@needs_root
def test_an_access_control_list_that_names_somebody_is_seen(crowd: Path) -> None:
    folder = crowd / "log"
    folder.mkdir()
    (folder / "control.log").write_text(LINE)
    entries = ((1, 7, -1), (2, 7, FIRST_UID), (4, 5, -1), (16, 7, -1), (32, 5, -1))
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(folder, "system.posix_acl_access", acl)
    except OSError as error:
        pytest.skip(f"no access control lists here: {error}")
    with pytest.raises(UnreadableLogError, match="access control list"):
        open_log(folder / "control.log", ROOT)


def test_a_guess_is_no_strangers(crowd: Path, stranger: Stranger) -> None:
    stranger.python(FILES, crowd / "mps_log_7", LINE)
    assert find_log_dir(crowd / "mps_7", None, None) is None
    assert binary_version(crowd / "mps_log_7", 9, ROOT) is None
    assert last_written(crowd / "mps_log_7", ROOT) is None


def test_the_logs_of_a_users_own_daemon_are_read(crowd: Path, stranger: Stranger, bystander: Stranger) -> None:
    stranger.python(FILES, stranger.home / "logs", LINE)
    os.close(open_log(stranger.home / "logs" / "control.log", owners_of(stranger.uid)))
    with pytest.raises(UnreadableLogError, match=f"belong to UID {stranger.uid}; not read"):
        open_log(stranger.home / "logs" / "control.log", owners_of(bystander.uid))
    # Not, by his daemon, those of others that he leads to.
    folder = crowd / "secret"
    folder.mkdir()
    (folder / "control.log").write_text(LINE)
    stranger.run("ln", "-s", folder, stranger.home / "there")
    with pytest.raises(UnreadableLogError, match="owns a directory or link in its path"):
        open_log(stranger.home / "there" / "control.log", owners_of(stranger.uid))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_stranger_above_can_exchange_all_that_is_below(crowd: Path, stranger: Stranger, depth: int) -> None:
    folder = crowd.joinpath(*"abcd")
    folder.mkdir(parents=True)
    (folder / "control.log").write_text(LINE)
    os.close(open_log(folder / "control.log", ROOT))
    os.chown(folder.parents[depth - 1], stranger.uid, stranger.uid)
    with pytest.raises(UnreadableLogError, match=f"belong to UID {stranger.uid}"):
        open_log(folder / "control.log", ROOT)
    os.chown(folder.parents[depth - 1], 0, 0)
    folder.parents[depth - 1].chmod(0o777)
    with pytest.raises(UnreadableLogError, match="can be changed by everybody"):
        open_log(folder / "control.log", ROOT)
    folder.parents[depth - 1].chmod(0o1777)
    os.close(open_log(folder / "control.log", ROOT))


def test_links_and_dots_on_the_way_are_walked_one_by_one(crowd: Path, stranger: Stranger) -> None:
    (crowd / "a" / "b").mkdir(parents=True)
    (crowd / "a" / "control.log").write_text(LINE)
    (crowd / "link").symlink_to("a/b/../b")
    os.close(open_log(crowd / "link" / ".." / "control.log", ROOT))
    (crowd / "round").symlink_to("round")
    with pytest.raises(UnreadableLogError, match="symbolic links"):
        open_log(crowd / "round" / "control.log", ROOT)
    stranger.run("ln", "-s", "a", crowd / "his")
    with pytest.raises(UnreadableLogError, match=f"belong to UID {stranger.uid}"):
        open_log(crowd / "his" / "control.log", ROOT)
    with pytest.raises(UnreadableLogError):
        open_log(crowd / "a\0b" / "control.log", ROOT)


def test_as_many_links_as_the_kernel_follows_are_followed_and_nothing_is_above_the_root(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "control.log").write_text("told")
    (tmp_path / "1").symlink_to("logs")
    for number in range(2, 42):
        (tmp_path / str(number)).symlink_to(str(number - 1))
    with ExitStack() as held:
        for way in ("40", f"/../..{tmp_path}/logs/../1"):
            above, _ = trusted.walk(tmp_path / way / "control.log", held, None, False)
            assert os.path.samestat(os.fstat(above[-1]), os.stat(folder))
        with pytest.raises(OSError, match="symbolic links"):
            trusted.walk(tmp_path / "41" / "control.log", held, None, False)
        for way in ("/../x", f"{Path(*tmp_path.parts[:2])}/../x"):
            (root,), _ = trusted.walk(Path(way), held, None, False)
            assert os.path.samestat(os.fstat(root), os.stat("/"))


def test_a_pipe_that_this_process_has_open_is_waited_for_whatever_else_it_has_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is looked for among all that is open: what was opened to be looked at only, and what is closed by now, do not
    end the search."""
    os.mkfifo(fifo := tmp_path / "fifo")
    looked_at, given = os.open(fifo, os.O_PATH), os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    other, found = os.open("/dev/null", os.O_RDONLY), os.stat(fifo)
    try:
        for names, is_given in (
            ((), False),
            ((other, looked_at), False),
            ((given,), True),
            ((1 << 20, other, looked_at, given, other), True),
            ((other, looked_at, 1 << 20), False),
        ):
            with monkeypatch.context() as here:
                here.setattr(trusted.os, "listdir", lambda place, names=names: list(map(str, names)))
                assert trusted._is_given(found) is is_given, names
    finally:
        for fd in (looked_at, given, other):
            os.close(fd)


def test_a_second_name_is_not_trusted(crowd: Path) -> None:
    (crowd / "control.log").write_text(LINE)
    os.close(open_log(crowd / "control.log", OWN))
    os.link(crowd / "control.log", crowd / "other")
    with pytest.raises(UnreadableLogError, match="2 names"):
        open_log(crowd / "control.log", OWN)


@needs_root
@pytest.mark.parametrize(
    ("line", "believed"),
    [
        ("77 1 {its} / /x rw - fuse.sshfs host rw,user_id=0,group_id=0", True),
        ("77 1 {its} / /x rw - fuse.sshfs host rw,user_id=64101,group_id=0", False),
        ("77 1 {its} / /x rw - fuseblk /dev/sdb1 rw,user_id=64101,group_id=0", False),
        (
            "78 1 0:2050 / /y rw - fuse.sshfs host rw,user_id=64101,group_id=0\n77 1 {its} / /x rw - xfs /dev/sda1 rw",
            True,
        ),
        ("77 1 {its} / /x rw - ext4 /dev/sda1 rw,user_id=64101", True),
        ("77 1 0:2050 / /x rw - btrfs /dev/sda1 rw,subvol=/x", True),  # its files have a number that is in no line
        ("78 1 0:2050 / /y rw - ext4 /dev/sda1 rw", False),  # no longer mounted
    ],
)
def test_who_runs_a_file_system_says_who_owns_its_files(
    crowd: Path, monkeypatch: pytest.MonkeyPatch, line: str, believed: bool
) -> None:
    """One that is not the root's; test_userspace.py has it really mounted."""
    (crowd / "control.log").write_text(LINE)
    real, its = os.stat, os.stat(crowd).st_dev
    told = line.format(its=f"{os.major(its)}:{os.minor(its)}").encode()

    def read_proc(path: str, limit: int = 0) -> bytes:
        return told if path == "/proc/self/mountinfo" else b"pos:\t0\nflags:\t0100000\nmnt_id:\t77\n"

    monkeypatch.setattr(trusted, "read_proc", read_proc)
    monkeypatch.setattr(os, "stat", lambda path, *more, **named: real("/proc" if path == "/" else path, *more, **named))
    assert is_believed(crowd / "control.log", ROOT) is believed


def test_a_container_is_walked_from_its_own_root(crowd: Path) -> None:
    (crowd / "control.log").write_text(LINE)
    os.close(open_log(Path(f"/proc/{os.getpid()}/root{crowd}/control.log"), OWN))


@needs_root
def test_a_file_of_roots_in_a_users_container_is_no_log_of_his_daemon(crowd: Path) -> None:
    """Who runs a container mounts there what he likes, another daemon's log too."""
    (crowd / "control.log").write_text(LINE)
    his = owners_of(FIRST_UID)
    os.close(open_log(crowd / "control.log", his))
    with pytest.raises(UnreadableLogError, match=f"but UID {FIRST_UID} owns a directory or link in its path"):
        open_log(Path(f"/proc/{os.getpid()}/root{crowd}/control.log"), his)


# A directory that somebody names to have its logs read.


def test_the_logs_of_a_dead_node_are_read_whosever_they_are(stranger: Stranger, mpstui_as_root: Any) -> None:
    folder = stranger.home / "logs"
    folder.mkdir()
    leave_logs(folder)
    for path in (folder, *folder.iterdir()):
        os.chown(path, stranger.uid, stranger.uid)
    done = mpstui_as_root("events", "--json", "--log-dir", folder)
    assert done.returncode == 0
    assert "fatal_fault" in done.stdout
    assert mpstui_as_root("status", "--log-dir", folder).returncode in {0, 3}


@pytest.mark.parametrize(
    "made", [remade_with_a_link_to_what_is_roots, remade_as_a_link_to_what_is_roots, remade_with_fifos]
)
@pytest.mark.parametrize("command", [("events",), ("status",), ("status", "--at", "1m")])
def test_what_somebody_leads_to_is_not_printed(
    stranger: Stranger, tmp_path: Path, mpstui_as_root: Any, made: Any, command: tuple[str, ...]
) -> None:
    made(stranger, stranger.home / "logs", tmp_path)
    done = mpstui_as_root(*command, "--log-dir", stranger.home / "logs")
    assert done.returncode == 6
    assert "not read" in done.stderr.lower()
    assert "41414" not in done.stdout


def test_a_hard_link_to_what_is_not_his_is_not_printed(stranger: Stranger, tmp_path: Path) -> None:
    stranger.run("mkdir", stranger.home / "logs")
    os.link(
        secret(stranger.home) / "control.log", stranger.home / "logs" / "control.log"
    )  # as without protected_hardlinks
    with pytest.raises(UnreadableLogError, match="not read"):
        LogHistory(stranger.home / "logs")


def test_predecessors_are_opened_as_the_log_is(crowd: Path, stranger: Stranger, tmp_path: Path) -> None:
    stranger.python(FILES, stranger.home / "logs", "")
    stranger.run("ln", "-s", secret(tmp_path) / "control.log", stranger.home / "logs" / "control.log.1")
    stranger.run("mkfifo", stranger.home / "logs" / "control.log.2")
    history = LogHistory(stranger.home / "logs")
    assert list(history.events()) == []
    history.close()


def test_one_may_read_what_is_ones_own_by_a_link_of_ones_own(tmp_path: Path) -> None:
    leave_logs(secret(tmp_path))
    (tmp_path / "way").symlink_to("secret")
    history = LogHistory(tmp_path / "way")
    history.close()


# Every place that opens a file.

OPENERS = {
    "operations/audit.py": "the id of this boot",
    "operations/lock.py": "a daemon's turn",
    "control/holder.py": "a socket, to ask whether it is served",
    "cli/web.py": "a file of its own",
    "cli/__init__.py": "/dev/null",
    "cli/bundle.py": "the archive that it writes",
    "cli/load.py": "/dev/null",
    "plan/tenants.py": "the looks that the user names",
    "commands.py": "a pipe of its own",
    "config.py": "the user's own configuration, and a new file that takes the place of another",
    "control/channel.py": "a daemon's sockets, held while a command goes to them",
    "system/memory.py": "/proc",
    "daemons/directories.py": "directories",
    "daemons/modes.py": "the modes that it keeps, by open_trusted",
    "daemons/stale.py": "a pipe directory and its lock",
    "daemons/start.py": "a descriptor of open_log's",
    "doctor/program.py": "/proc",
    "export/webconfig.py": "the exporter's own configuration",
    "extras.py": "how mpstui itself was installed",
    "fleet.py": "the user's own list of nodes",
    "history/parser_process.py": "the pipe to the process that parses a log",
    "history/attribution.py": "a descriptor of open_trusted's",
    "history/origin.py": "a simulated node's marks beside its logs, by open_trusted",
    "load/guard.py": "a file of its own",
    "load/programs/lenet.py": "what its own experiment writes for it",
    "load/workloads.py": "the program's own kernels",
    "observe/discovery.py": "the PID file, a daemon's lock and directory",
    "observe/activity.py": "the kernel's counters, and the libraries whose functions are counted",
    "observe/ahead.py": "the pipes to the process that reads NVML",
    "observe/devices.py": "the log of the kernel",
    "system/own.py": "programs of PATH, to see whose they are, and not to read them",
    "system/procfs.py": "/proc",
    "system/trusted.py": "what it is there for",
    "load/experiments.py": "whose turn it is, in a directory of the experiment's own",
    "plan/store.py": "the user's own profiles",
    "ui/terminal.py": "/proc",
    "ui/tours/__init__.py": "the program's own tours, and the user's",
}
"""Where files are opened, and which; a log is opened by ``open_log`` alone."""


_CALLED = re.compile(r"(open|read_text|read_bytes)[\s)]*\(")


def _opens(path: Path) -> Iterator[str]:
    if not _CALLED.search(text := path.read_text()):
        return  # most modules: to parse and to write them as text takes four times what all else here does
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        last = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if not last.endswith(("open", "read_text", "read_bytes")):
            continue
        words = ast.unparse(node.func)
        if words in {"open", "os.open", "io.open", "os.fdopen"} or words.endswith(
            ("read_text", "read_bytes", ").open", "path.open", "_path.open", "file.open", "log.open", "/ name).open")
        ):
            yield words


def test_logs_are_opened_in_one_place() -> None:
    top = Path(mpstui.__file__).parent
    found = {str(path.relative_to(top)): list(_opens(path)) for path in top.rglob("*.py")}
    others = {name: calls for name, calls in found.items() if calls and not name.startswith("sim/")}
    assert set(others) == set(OPENERS), "a file is opened in a new place: if it is a log, use open_log"
    assert found["observe/logs.py"] == [], "and that goes by what open_trusted and open_named say"


def test_discovery_says_whose_logs_are_believed(crowd: Path) -> None:
    (place,) = discover((crowd,))
    assert place.log_owners == owners_of(None) == frozenset((0, os.geteuid()))
