"""Several admins at once: terminate_client is sent once for a client, and nobody else can be in the way (attack F)."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import warm

from mpstui.core.model import Client, ProcessKey
from mpstui.core.trust import Speaker
from mpstui.observe.discovery import find_speaker
from mpstui.operations import lock
from mpstui.operations.lock import FILE, DaemonTurn, NoTurn, Run, Sent, TurnPlace, same_run, turn
from mpstui.operations.signals import Guard
from mpstui.sim.node import SimNode
from mpstui.system.procfs import process_key, user_name

from .conftest import Stranger
from .programs import BINARY, ROOT, lying_daemon, mpstui

AT_ONCE = 8


@pytest.fixture(autouse=True)
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Root's own place, for this test."""
    monkeypatch.setattr(lock, "_SHARED", tmp_path / "run")
    return tmp_path / "run"


async def test_a_directory_on_the_way_that_is_gone_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reaped meanwhile, or behind another mount: it was a traceback."""
    gone = tmp_path / "gone" / "p"
    monkeypatch.setattr(lock, "places", lambda *_: [TurnPlace(gone / FILE, os.geteuid())])
    with pytest.raises(NoTurn, match=r"^this daemon cannot be locked: gone: No such file"):
        async with turn(gone, Speaker(os.geteuid())):
            raise AssertionError


async def test_a_file_with_another_name_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever made that name may have it in a place where others can lock it, or write to it."""
    (tmp_path / FILE).touch(0o600)
    (tmp_path / "second").hardlink_to(tmp_path / FILE)
    monkeypatch.setattr(lock, "places", lambda *_: [TurnPlace(tmp_path / FILE, os.geteuid())])
    with pytest.raises(NoTurn, match="is not a regular file, or has several names"):
        async with turn(tmp_path, Speaker(os.geteuid()), wait=0):
            raise AssertionError


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SimNode]:
    with SimNode.start(tmp_path / "p") as started:
        yield started


def at_once(start: Callable[[int], subprocess.Popen[str]]) -> list[tuple[int, str]]:
    """Exit status and output of all of them."""
    running = [start(number) for number in range(AT_ONCE)]
    said = [process.communicate(timeout=170) for process in running]
    return [(p.returncode, out + (err or "")) for p, (out, err) in zip(running, said, strict=True)]


def terminate(pid: int, pipe_dir: Path, home: Path) -> subprocess.Popen[str]:
    """Each with an audit log of its own, as of another admin."""
    env = {**os.environ, "MPSTUI_AUDIT_LOG": str(home / "audit.jsonl"), "MPSTUI_CONTROL_BINARY": str(BINARY)}
    return warm.Popen(
        ["terminate", pid, "--yes", "--pipe-dir", os.fspath(pipe_dir)],
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def sent(node: SimNode, pid: int) -> int:
    words = f" {pid}".encode()
    lines = (node.log_dir / "control.log").read_bytes().splitlines()
    return sum(b"Cmd:terminate_client " in line and line.endswith(words) for line in lines)


def test_of_many_at_once_one_sends_it(node: SimNode, tmp_path: Path) -> None:
    client = node.spawn("busy")
    ends = at_once(lambda number: terminate(client.pid, node.pipe_dir, tmp_path / str(number)))
    told = "\n".join(f"{status} {words}" for status, words in ends)
    assert sent(node, client.pid) == 1, told
    done, *others = sorted(status for status, _ in ends)
    # On a machine with more work than processors one may find the daemon held by another's session: not answered, 4.
    assert (done, set(others) - {4}) == (0, {6}), told


SEND = """
import asyncio, os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from mpstui.operations import lock
from mpstui.operations.lock import turn
from mpstui.core.model import Client, ProcessKey
from mpstui.observe.discovery import find_speaker

lock._SHARED = Path(os.environ.get("SHARED", "/none"))
lock.WAIT = float(os.environ.get("WAIT", lock.WAIT))

async def main():
    client = Client(ProcessKey(int(sys.argv[3]), 5 if len(sys.argv) < 5 else None), 7, 1)
    async with turn(Path(sys.argv[2]), find_speaker(Path(sys.argv[2]))) as mine:
        if mine.was_sent(client) is None and mine.note(client, sent=True) is None:
            print("sent")

asyncio.run(main())
"""


@pytest.mark.slow
def test_root_and_the_daemons_user_at_once(stranger: Stranger) -> None:
    """The file is the daemon's user's, whoever makes it, and each believes what the other has written into it."""
    lying_daemon(stranger, stranger.home / "p", clients=[])
    arguments = ["-c", SEND, os.fspath(ROOT), os.fspath(stranger.home / "p"), "4711"]

    def start(number: int) -> subprocess.Popen[str]:
        if number % 2:
            return stranger.start(stranger.interpreter, *arguments)
        return subprocess.Popen(
            [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    ends = at_once(start)
    assert [status for status, _ in ends] == [0] * AT_ONCE, ends
    assert sum(said == "sent\n" for _, said in ends) == 1, ends


def test_the_daemons_user_waits_until_root_has_given_the_file_away(stranger: Stranger) -> None:
    """Root makes it, and gives it away a moment later: whoever comes between the two waits."""
    lying_daemon(stranger, stranger.home / "p", clients=[])
    path = stranger.home / "p" / lock.FILE
    path.touch(0o600)
    sends = stranger.start(stranger.interpreter, "-c", SEND, os.fspath(ROOT), os.fspath(stranger.home / "p"), "4711")
    waits_in = Path(f"/proc/{sends.pid}/wchan")
    end = time.monotonic() + 120
    while sends.poll() is None and "poll" not in waits_in.read_text() and time.monotonic() < end:
        os.sched_yield()  # it sleeps between two looks
    assert sends.poll() is None, sends.communicate()
    os.chown(path, stranger.uid, -1)
    assert sends.communicate(timeout=120)[0] == "sent\n"


def test_only_a_file_that_root_is_making_is_waited_for(stranger: Stranger) -> None:
    """Of another one that may not be opened it is told at once."""
    lying_daemon(stranger, stranger.home / "p", clients=[])
    path = stranger.home / "p" / FILE
    path.write_text("{}\n")
    path.chmod(0o600)
    done = stranger.run(stranger.interpreter, "-c", SEND, ROOT, stranger.home / "p", "4711", check=False)
    assert f"this daemon cannot be locked: {path}: Permission denied" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("mode", [0o755, 0o777])
@pytest.mark.parametrize("held", ["", "{}\n"])
def test_a_file_of_roots_daemon_before_is_the_users_once_root_has_come(
    stranger: Stranger, roots: Stranger, shared: Path, mode: int, held: str
) -> None:
    """Where root's daemon ran, a service user's does: his terminates were refused for ever, and root's and his had two
    turns."""
    (pipe_dir := roots.home / "p").mkdir()
    os.chown(pipe_dir, stranger.uid if mode == 0o755 else 0, -1)
    pipe_dir.chmod(mode)
    (pipe_dir / FILE).write_text(held)
    (pipe_dir / FILE).chmod(0o600)
    lying_daemon(stranger, pipe_dir, clients=[], mode=0)
    words = ("-c", SEND, ROOT, pipe_dir, "4711")
    if mode == 0o755:
        done = stranger.run(stranger.interpreter, *words, check=False, env={"WAIT": "0"})
        assert (
            f"{FILE}: Permission denied; the file is root's, left from an earlier daemon: rm {pipe_dir}/{FILE}"
            in done.stderr
        )
    assert send(pipe_dir, shared=shared)
    assert stranger.run(stranger.interpreter, *words).stdout == ""
    assert (pipe_dir / FILE).stat().st_uid == stranger.uid


@pytest.mark.slow
def test_a_user_whose_daemon_is_in_a_directory_of_roots_is_told_what_lets_him_take_his_turn(
    stranger: Stranger, roots: Stranger
) -> None:
    """Closed since the daemon was started there: he cannot make the file. A list in his home would not be known to
    root."""
    (pipe_dir := roots.home / "p").mkdir()
    pipe_dir.chmod(0o777)
    lying_daemon(stranger, pipe_dir, clients=[], mode=0)
    pipe_dir.chmod(0o755)
    words = ("-c", SEND, ROOT, pipe_dir, "4711")
    done = stranger.run(stranger.interpreter, *words, check=False)
    assert f"{FILE}: Permission denied; as root: chown {stranger.uid} {pipe_dir}" in done.stderr
    os.chown(pipe_dir, stranger.uid, -1)
    assert stranger.run(stranger.interpreter, *words).stdout == "sent\n"


@pytest.mark.parametrize(("held", "counts"), [(None, True), ("", False), ("[4711]\n", False), ('{"a": 1}\n', False)])
async def test_a_list_that_an_admin_has_opened_to_readers_still_counts(
    node: SimNode, shared: Path, held: str | None, counts: bool
) -> None:
    """As by chmod -R: it was left, and what had been sent was not known. Any other file may be one that a stranger has
    moved there, and has open."""
    path, client = node.pipe_dir / FILE, Client(ProcessKey(os.getpid(), 5))
    async with turn(node.pipe_dir, find_speaker(node.pipe_dir), wait=0) as mine:
        mine.note(client, sent=True)
    if held is not None:
        path.write_text(held)
    for name in os.listdir(shared) if os.geteuid() == 0 else []:
        os.unlink(shared / name)  # as of a container with a /run of its own
    path.chmod(0o644)
    async with turn(node.pipe_dir, find_speaker(node.pipe_dir), wait=0) as mine:
        assert (mine.was_sent(client) is not None) is counts
    assert stat.S_IMODE(path.stat().st_mode) == (0o600 if counts else 0o644)


async def test_whoever_waits_is_told_who_has_it_and_not_for_ever(node: SimNode) -> None:
    speaker = find_speaker(node.pipe_dir)
    async with turn(node.pipe_dir, speaker):
        with pytest.raises(NoTurn, match=f"process {os.getpid()} of "):
            async with turn(node.pipe_dir, speaker, wait=0):
                pass
    async with turn(node.pipe_dir, speaker, wait=0):
        pass


async def test_one_that_was_killed_in_its_turn_leaves_no_lock(node: SimNode) -> None:
    speaker = find_speaker(node.pipe_dir)
    (path := node.pipe_dir / FILE).touch(0o600)
    code = f"import fcntl, sys; f = open({os.fspath(path)!r}, 'a'); fcntl.flock(f, 2); print(1, flush=True); input()"
    with subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(NoTurn, match=f"process {process.pid} of "):
            async with turn(node.pipe_dir, speaker, wait=0):
                pass
        process.kill()
        process.wait(60)
    async with turn(node.pipe_dir, speaker, wait=0):
        pass


RUN: Run = {"control": [5, None], "control_privileged": [6, 77]}


@pytest.fixture
def take(tmp_path: Path) -> Iterator[Callable[..., DaemonTurn]]:
    """A turn of this run, in one file; where no daemon runs any more."""
    with (tmp_path / FILE).open("w+b") as file:
        yield lambda run=RUN: DaemonTurn(tmp_path / "none", [file.fileno()], run)


def test_what_was_sent_is_known_to_the_next_one_and_not_taken_for_anybody_else(take: Callable[..., DaemonTurn]) -> None:
    key = ProcessKey(os.getpid(), 5)
    assert take().was_sent(Client(key)) is None
    assert take().note(Client(key), sent=True) is None
    assert take().was_sent(Client(key))
    assert not take().was_answered(Client(key)), "that it was sent does not say that it was carried out"
    assert take().was_sent(Client(ProcessKey(key.pid, 6))) is None, "a successor of the PID"
    assert take().note(Client(key), sent=True, answered=True) is None
    assert take().was_answered(Client(key))
    assert take().note(Client(key), sent=False) is None
    assert not take().was_answered(Client(key))
    assert take().was_sent(Client(key)) is None
    elsewhere = Client(ProcessKey(3), 7, 1, local=False)
    take().note(elsewhere, sent=True)
    assert take().was_sent(elsewhere) == Sent(user_name(os.geteuid()), surely=True)
    assert take().was_sent(Client(ProcessKey(3), 7, 2, local=False)) is None, "another client of that number"
    assert take().was_sent(Client(ProcessKey(3), 8, 1, local=False)) is None, "another server's"
    for run in ({**RUN, "control_privileged": [6, 78]}, {**RUN, "control_privileged": [8, 77]}, {"control": [4, None]}):
        assert take(run).was_sent(elsewhere) is None, "of the daemon that was started here after it"
    assert take({**RUN, "control": [9, None]}).was_sent(elsewhere), "root's commands go to the privileged one"
    for unsure, run in ((elsewhere, {}), (replace(elsewhere, id=None), RUN), (elsewhere, {"control": [5, None]})):
        before = take(run).was_sent(unsure)
        assert before is not None
        assert not before.surely, "whether it was this one is not known"
    seen_inside = Client(ProcessKey(3, 12), 7, 1)  # its process is seen from its own namespace alone
    assert take().was_sent(seen_inside), "a second one, from elsewhere, would block the daemon"
    assert take().was_sent(replace(seen_inside, id=2)) is None
    take().note(replace(elsewhere, id=None), sent=False)
    assert take().was_sent(elsewhere), "what was not taken was another one"


@pytest.mark.parametrize("started", [12, 1012])
def test_a_start_counts_where_it_was_counted_from_the_same_moment(
    take: Callable[..., DaemonTurn], monkeypatch: pytest.MonkeyPatch, started: int
) -> None:
    """A container may have a time of its own, by which the same process was started at another one."""
    take().note(Client(ProcessKey(3, 12), 7, 1), sent=True)
    monkeypatch.setattr(lock, "_namespaces", lambda: [1, 2])
    assert take().was_sent(Client(ProcessKey(3, started), 7, 1))
    assert take().was_sent(Client(ProcessKey(3, started), 7, 2)) is None


@pytest.mark.parametrize("entry", [{}, {"run": 1}, {"run": {"control": 7}}, {"run": {"control": ["a"], "x": []}}])
def test_a_run_that_makes_no_sense_is_not_known(entry: dict[str, object]) -> None:
    assert same_run(entry.get("run"), RUN) is None


async def test_a_torn_line_and_garbage_hide_nothing(node: SimNode) -> None:
    speaker = find_speaker(node.pipe_dir)
    client = Client(ProcessKey(os.getpid(), 5))
    async with turn(node.pipe_dir, speaker) as mine:
        mine.note(client, sent=True)
    path = node.pipe_dir / FILE
    with path.open("ab") as file:
        file.write(b'[1]\n{"pid": {"a": \xff\n' + b"[" * 100_000 + b'\n{"pid": 1')
    async with turn(node.pipe_dir, speaker) as mine:
        assert mine.was_sent(client)
        assert mine.note(Client(ProcessKey(1, 1)), sent=True) is None
        assert mine.was_sent(Client(ProcessKey(1, 1)))


async def test_long_files_are_shortened_and_forget_nobody_who_lives(node: SimNode, monkeypatch) -> None:
    monkeypatch.setattr(lock, "_LONG", 2000)
    speaker = find_speaker(node.pipe_dir)
    client = node.spawn("idle")
    key = process_key(client.pid)
    assert key is not None
    async with turn(node.pipe_dir, speaker) as mine:
        mine.note(Client(key), sent=True)
        for number in range(100):
            mine.note(Client(ProcessKey(1 << 22, number)), sent=True)
        assert mine.was_sent(Client(key))
    path = node.pipe_dir / FILE
    assert path.stat().st_size < 4000


@pytest.fixture
def open_to_all(roots: Stranger) -> Path:
    """The pipe directory of a daemon of root's that has made it itself."""
    lying_daemon(roots, roots.home / "p", clients=[], mode=0o777)
    return roots.home / "p"


async def hold(pipe_dir: Path, wait: float = 0) -> None:
    async with turn(pipe_dir, find_speaker(pipe_dir), wait=wait):
        pass


def send(pipe_dir: Path, *start: str, shared: Path | None = None, unseen: bool = False) -> bool:
    """Whether an mpstui of root's sends it: one that begins so, in a process of its own, else this one. ``unseen``: the
    client's process is not of its namespace."""
    place = shared or Path("/none")
    if not start:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lock, "_SHARED", place)
            return asyncio.run(_sends(pipe_dir))
    command = [*start, sys.executable, "-c", SEND, ROOT, pipe_dir, "4711", *(["unseen"] if unseen else [])]
    env = {**os.environ, "SHARED": os.fspath(place)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=env)
    return {"sent\n": True, "": False}[done.stdout]


async def _sends(pipe_dir: Path) -> bool:
    """As ``SEND`` does."""
    client = Client(ProcessKey(4711, 5), 7, 1)
    async with turn(pipe_dir, find_speaker(pipe_dir)) as mine:
        return mine.was_sent(client) is None and mine.note(client, sent=True) is None


CONTAINERS = {
    "a /run of its own": ["--mount", "sh", "-c", 'mount -t tmpfs none /run && exec "$@"'],
    "other processes": ["--pid", "--fork", "--mount-proc", "sh", "-c", '"$@"'],
    "a start of its own": [
        "--mount", "sh", "-c",
        "mount -t tmpfs none /mnt && echo other > /mnt/b && mount --bind /mnt/b /proc/sys/kernel/random/boot_id"
        ' && exec "$@"',
    ],
    "another name": ["--mount", "sh", "-c", 'mount -t tmpfs none /mnt && mkdir /mnt/p && mount --bind "$5" /mnt/p'
                     ' && exec "$1" "$2" "$3" "$4" /mnt/p "$6" "$7"'],
    "a time of its own": ["--time", "--boottime", "1000", "--fork", "sh", "-c", '"$@"'],
}  # fmt: skip
"""What the mpstui of another admin has in there."""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare")
@pytest.mark.parametrize(("has", "mode"), [("a /run of its own", 0o777), *((each, 0o755) for each in CONTAINERS)])
def test_who_comes_from_a_container_does_not_send_it_again(roots: Stranger, shared: Path, has: str, mode: int) -> None:
    """There is nothing but the pipe directory that both have for sure."""
    lying_daemon(roots, roots.home / "p", clients=[], mode=mode)
    assert send(roots.home / "p", shared=shared)
    start = ["unshare", *CONTAINERS[has], "-"]
    if subprocess.run([*start[: start.index("sh")], "true"], check=False).returncode:
        pytest.skip("not on this kernel")
    assert not send(roots.home / "p", *start, unseen=has in {"other processes", "a time of its own"})


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare")
def test_sockets_that_are_mounted_into_another_directory_are_of_the_same_turn(roots: Stranger, shared: Path) -> None:
    lying_daemon(roots, roots.home / "p", clients=[])
    (there := roots.home / "there").mkdir()
    names = ("control", "control_privileged")
    for name in names:
        (there / name).touch()
    mounts = " && ".join(f"mount --bind {roots.home}/p/{name} {there}/{name}" for name in names)
    start = ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "-"]
    assert send(there, *start, shared=shared)
    assert not send(roots.home / "p", shared=shared)
    assert not send(there, *start, shared=shared)


async def test_what_the_daemon_before_was_sent_is_no_matter(roots: Stranger, shared: Path) -> None:
    """A file system gives its inode again, and a container its clients' numbers."""
    pipe_dir, client = roots.home / "p", Client(ProcessKey(3), 7, 1, local=False)
    for _ in range(2):
        lying_daemon(roots, pipe_dir, clients=[])
        for sent in (False, True):
            async with turn(pipe_dir, find_speaker(pipe_dir), wait=0) as mine:
                assert (mine.was_sent(client) is not None) is sent
                mine.note(client, sent=True)
        roots.end()


FULL = {
    "no room": ("size=64k", "make room in"),
    "no inodes": ("nr_inodes=8", "make room in"),
    "read-only": ("size=64k", "can be written to, as on the host"),
}


def fill(folder: Path, size: int) -> None:
    with suppress(OSError):
        for number in range(1000):
            (folder / f"fill-{number}").write_bytes(b"x" * size)
    there = os.statvfs(folder)
    assert 0 in {there.f_bavail, there.f_favail}


@pytest.mark.parametrize("how", FULL)
def test_a_directory_that_takes_no_file_is_named_with_what_there_is_to_do(stranger: Stranger, how: str) -> None:
    """Anybody fills /tmp: a terminate was refused for mpstui.lock, of which nobody was told where it is."""
    options, remedy = FULL[how]
    (mounted := stranger.home / "m").mkdir()
    (pipe_dir := mounted / "p").mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"{options},uid={stranger.uid}", "none", pipe_dir], check=False
    )
    if mount.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        (pipe_dir / "heard").symlink_to("/dev/null")
        client = stranger.start("sleep", "600").pid
        daemon = lying_daemon(stranger, pipe_dir, clients=[client], server=stranger.start("sleep", "600").pid)
        if how == "read-only":
            for words in (["--bind", pipe_dir], ["-o", "remount,bind,ro"]):
                subprocess.run(["mount", *words, pipe_dir], check=True)
        else:
            fill(pipe_dir, 0 if how == "no inodes" else 4096)
        done = mpstui("terminate", str(client), "--yes", "--pipe-dir", pipe_dir)
        assert (done.returncode, "nothing was sent" in done.stderr) == (6, True), done
        assert f"{pipe_dir}/{FILE}: " in done.stderr
        assert remedy in done.stderr
        daemon.kill()
        daemon.wait(120)
    finally:
        subprocess.run(["umount", "-l", pipe_dir, *[pipe_dir] * (how == "read-only")], check=True)


async def test_nothing_is_noted_for_a_daemon_that_came_meanwhile(roots: Stranger, shared: Path) -> None:
    lying_daemon(roots, roots.home / "p", clients=[])
    async with turn(roots.home / "p", find_speaker(roots.home / "p"), wait=0) as mine:
        lying_daemon(roots, roots.home / "p", clients=[], lock=False)
        assert mine.note(Client(ProcessKey(3), 7, 1), sent=True) == "another daemon has been started there meanwhile"
        assert mine.was_sent(Client(ProcessKey(3), 7, 1)) is None


def test_a_stranger_who_touches_the_socket_does_not_make_it_another_daemon(
    roots: Stranger, stranger: Stranger, shared: Path
) -> None:
    """Everybody may write to it, and so set its time."""
    lying_daemon(roots, roots.home / "p", clients=[])
    before = (roots.home / "p" / "control").stat().st_mtime_ns
    assert send(roots.home / "p")
    stranger.run("touch", roots.home / "p" / "control")
    assert (roots.home / "p" / "control").stat().st_mtime_ns != before
    assert not send(roots.home / "p")


@pytest.mark.parametrize(
    ("mode", "own", "exposed"), [(0o755, True, False), (0o775, True, True), (0o757, True, True), (0o755, False, True)]
)
def test_a_directory_that_was_opened_after_it_was_judged_is_open(
    stranger: Stranger, tmp_path: Path, mode: int, own: bool, exposed: bool
) -> None:
    """Or has another owner by then: what is there and is not root's is left then, and keeps nobody from his turn."""
    tmp_path.chmod(mode)
    if not own:
        os.chown(tmp_path, stranger.uid, stranger.uid)
    first, *others = lock.places(tmp_path, Speaker(0), {"control": [1, 1]})
    assert (first.path, first.exposed, [each.exposed for each in others]) == (tmp_path / FILE, exposed, [False, False])


def test_a_time_that_everybody_can_set_is_none_of_a_runs(tmp_path: Path) -> None:
    """Of protocol 3 there is this socket alone."""
    with socket.socket(socket.AF_UNIX) as own:
        own.bind(os.fspath(path := tmp_path / "control"))
    inode = path.stat().st_ino & 0xFFFFFFFF
    for mode, made in ((0o666, None), (0o664, None), (0o644, path.stat().st_mtime_ns)):
        path.chmod(mode)
        assert lock.find_run(tmp_path) == {"control": [inode, made]}


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_a_stranger_gets_at_neither_lock_nor_list(stranger: Stranger, roots: Stranger, shared: Path, mode: int) -> None:
    """Root's daemon; with 0777 as one makes its directory itself. Then they are in root's own place too."""
    lying_daemon(roots, roots.home / "p", clients=[], mode=mode)
    asyncio.run(hold(roots.home / "p"))
    paths = [roots.home / "p" / FILE]
    if mode == 0o777:
        assert send(roots.home / "p", shared=shared)
        paths = [*shared.iterdir()]
    assert len(paths) == 1
    for path in paths:
        for attempt in (
            f"open({os.fspath(path)!r})",
            f"os.unlink({os.fspath(path)!r})",
            f"os.rename({os.fspath(path)!r}, '/tmp/x')",
            f"os.open({os.fspath(path)!r}, os.O_RDONLY)",
            f"os.link({os.fspath(path)!r}, 'mine')",
        ):
            assert stranger.python(f"import os; {attempt}", check=False).returncode != 0, attempt
    asyncio.run(hold(roots.home / "p"))
    if mode == 0o777:
        stranger.run("rm", "-f", roots.home / "p" / FILE)
        assert not send(roots.home / "p", shared=shared)


PUTS = {
    "a pipe": "os.mkfifo(path)",
    "a link": "os.symlink('/etc/passwd', path)",
    "a link to nowhere": "os.symlink('/etc/mpstui-none', path)",
    "a file": "open(path, 'w')",
    "a directory": "os.mkdir(path)",
    "a socket": "import socket; socket.socket(socket.AF_UNIX).bind(path)",
    "a file of root's": "os.rename(path.replace('mpstui.lock', 'control_lock'), path)",
}


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("what", PUTS)
def test_what_a_stranger_has_put_in_its_place_is_left(
    stranger: Stranger, open_to_all: Path, shared: Path, what: str, closed: bool
) -> None:
    """Nobody waits for it or believes it; before, it was enough that he made a directory in /tmp first. It is still
    there once the directory was closed to others, as doctor advises: then it refused terminates for ever."""
    path, before, client = open_to_all / FILE, Path("/etc/passwd").read_bytes(), Client(ProcessKey(3), 7, 1)
    (open_to_all / "control_lock").chmod(0o666)
    stranger.python(f"import os, sys; path = sys.argv[1]; {PUTS[what]}", path)
    found = path.lstat()
    if closed:
        open_to_all.chmod(0o755)

    async def take() -> list[bool]:
        there = []
        for _ in range(2):
            async with turn(open_to_all, find_speaker(open_to_all), wait=0) as mine:
                there.append(mine.was_sent(client) is not None)
                mine.note(client, sent=True)
        return there

    assert asyncio.run(take()) == [False, True]
    assert (Path("/etc/passwd").read_bytes(), path.lstat()[:4]) == (before, found[:4])
    assert not os.path.exists("/etc/mpstui-none")


IN_USE = {
    "a file with a lease": "signal.signal(signal.SIGIO, signal.SIG_IGN)\n"
    "f = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)\nfcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)",
    "a program that runs": "shutil.copy(shutil.which('sleep'), path)\nos.chmod(path, 0o700)\n"
    "subprocess.Popen([path, '600'])",
}


@pytest.mark.parametrize("what", IN_USE)
def test_what_a_stranger_has_in_use_keeps_nobody_from_his_turn(
    stranger: Stranger, open_to_all: Path, shared: Path, what: str
) -> None:
    """Whoever opens it is told to come again, for as long as he likes."""
    source = f"import fcntl, os, shutil, signal, subprocess, sys\npath = sys.argv[1]\n{IN_USE[what]}\n"
    source += "print('ready', flush=True); sys.stdin.read()"
    has = stranger.start_python(source, open_to_all / FILE, stdin=subprocess.PIPE)
    assert has.stdout is not None
    assert has.stdout.readline() == "ready\n"
    assert send(open_to_all, shared=shared)
    assert not send(open_to_all, shared=shared)


@pytest.mark.parametrize("closed", [False, True])
def test_what_a_stranger_wrote_into_a_file_of_roots_is_not_believed(
    stranger: Stranger, open_to_all: Path, shared: Path, closed: bool
) -> None:
    """The file of the daemon's PID is root's, and everybody may write to it (fact 42): it had a lock of his then, and
    a list."""
    (file := open_to_all / "nvidia-cuda-mps-control.pid").touch()
    file.chmod(0o666)
    run = lock.find_run(open_to_all)
    entry = {"pid": 4711, "start_ticks": None, "run": run, "server": 7, "number": 1, "sent": True, "uid": 0}
    holds = stranger.start_python(
        "import fcntl, os, sys\nf = open(sys.argv[1], 'w'); f.write(sys.argv[2]); f.flush(); fcntl.flock(f, 2)\n"
        "os.rename(sys.argv[1], sys.argv[3]); print('ready', flush=True); sys.stdin.read()",
        file, json.dumps(entry), open_to_all / FILE, stdin=subprocess.PIPE,
    )  # fmt: skip
    assert holds.stdout is not None
    assert holds.stdout.readline() == "ready\n"
    if closed:
        open_to_all.chmod(0o755)
    assert send(open_to_all, shared=shared)
    assert not send(open_to_all, shared=shared)
    assert (open_to_all / FILE).read_text() == json.dumps(entry)


def test_a_list_of_roots_that_was_open_to_readers_is_left_where_others_may_exchange_it(
    open_to_all: Path, shared: Path
) -> None:
    """Any of them may have it open, and locked."""
    entry = {"pid": 4711, "start_ticks": None, "run": lock.find_run(open_to_all), "server": 7, "number": 1}
    (path := open_to_all / FILE).write_text(json.dumps({**entry, "sent": True, "uid": 0}) + "\n")
    path.chmod(0o644)
    assert send(open_to_all, shared=shared)
    assert (stat.S_IMODE(path.stat().st_mode), json.loads(path.read_text())["pid"]) == (0o644, 4711)


async def test_one_that_is_exchanged_before_it_is_locked_is_not_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else would lock the one that is there then."""
    take, path = lock._lock, tmp_path / FILE
    (tmp_path / "control").touch()
    monkeypatch.setattr(lock, "places", lambda *_: [TurnPlace(path, os.geteuid())])

    def late(file: int) -> None:
        if not (tmp_path / "before").exists():
            path.rename(tmp_path / "before")
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        take(file)

    monkeypatch.setattr(lock, "_lock", late)
    async with turn(tmp_path, Speaker(os.geteuid())):
        with pytest.raises(NoTurn, match="is changing this daemon"):
            async with turn(tmp_path, Speaker(os.geteuid()), wait=0):
                raise AssertionError


async def test_whoever_exchanges_it_again_and_again_is_in_nobodys_way(
    open_to_all: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = lock._is_there
    monkeypatch.setattr(lock, "_LOOK", 0)
    monkeypatch.setattr(lock, "_is_there", lambda folder, name, file: name != FILE and there(folder, name, file))
    async with turn(open_to_all, find_speaker(open_to_all)) as mine:
        assert mine.note(Client(ProcessKey(3), 7, 1), sent=True) is None
    assert len(os.listdir(shared)) == 1


async def test_where_root_has_no_place_of_its_own_either_it_is_in_its_home(
    stranger: Stranger, open_to_all: Path, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose /run may not be written to; a name in /tmp is anybody's."""
    stranger.run("touch", open_to_all / FILE)
    os.symlink("/nowhere", shared)
    monkeypatch.setenv("XDG_STATE_HOME", os.fspath(tmp_path / "state"))
    async with turn(open_to_all, find_speaker(open_to_all), wait=0) as mine:
        assert mine.note(Client(ProcessKey(3), 7, 1), sent=True) is None
    assert len(os.listdir(tmp_path / "state" / "mpstui" / "turns")) == 1
    os.chmod(tmp_path / "state", 0o777)
    with pytest.raises(NoTurn, match="belongs to"):
        await hold(open_to_all)


async def test_what_is_empty_does_not_stay_beside_the_pipe_directory(open_to_all: Path, shared: Path) -> None:
    await hold(open_to_all)
    assert os.listdir(shared) == []


async def test_nor_what_was_sent_to_clients_of_before(
    open_to_all: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There was one file more for each run of each daemon, for as long as the machine ran, and in a home for ever."""
    ended = subprocess.Popen(["true"])  # noqa: ASYNC220
    ended.wait(120)
    dead, mine = Client(ProcessKey(ended.pid, 1)), process_key(os.getpid())
    assert mine is not None
    os.mkdir(shared, 0o700)
    for run, client in ((1, dead), (2, Client(mine)), (3, dead), (4, dead), (5, Client(ProcessKey(3)))):
        with monkeypatch.context() as with_, (shared / f"{run}-1.lock").open("w+b") as file:
            if run == 3:
                with_.setattr(os, "uname", lambda: os.uname_result(("Linux", "elsewhere", "", "", "")))
            assert DaemonTurn(shared, [file.fileno()], {"control": [run, 1]}).note(client, sent=True) is None
    with (shared / "4-1.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        await hold(open_to_all)
    assert sorted(os.listdir(shared)) == ["2-1.lock", "3-1.lock", "4-1.lock", "5-1.lock"]


async def test_a_file_system_that_does_not_let_go_keeps_one_thread_and_no_more(
    open_to_all: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, closed, opened = threading.Event(), threading.Event(), list[int]()

    def attempt(place: TurnPlace) -> int:
        goes_on.wait(120)
        opened.append(os.open("/dev/null", os.O_RDONLY))
        return opened[0]

    monkeypatch.setattr(lock, "_attempt", attempt)
    monkeypatch.setattr(lock, "_HANGS", 0.01)
    close = os.close
    monkeypatch.setattr(lock.os, "close", lambda fd: (close(fd), fd in opened and closed.set()))
    with pytest.raises(NoTurn, match="its file system does not answer"):
        await hold(open_to_all)
    goes_on.set()
    assert await asyncio.to_thread(closed.wait, 120)


async def test_nothing_is_made_in_a_directory_that_took_the_place_of_the_daemons(
    roots: Stranger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (other := tmp_path / "other").mkdir()
    monkeypatch.setattr(lock, "places", lambda *_: [TurnPlace(other / FILE, 0)])
    with pytest.raises(NoTurn, match="No such file"):
        await hold(other)
    assert os.listdir(other) == []


@pytest.mark.parametrize("there", [True, False])
def test_whoever_leads_his_daemons_name_to_roots_gets_no_file_there(
    stranger: Stranger, roots: Stranger, there: bool
) -> None:
    """A file of his in the directory of root's daemon refused terminates there for ever."""
    lying_daemon(stranger, stranger.home / "p", clients=[])
    lying_daemon(roots, roots.home / "p", clients=[])
    link = stranger.home / "link"
    stranger.run("ln", "-s", stranger.home / "p", link)
    speaker = find_speaker(link)
    assert speaker.uid == stranger.uid
    if there:
        asyncio.run(hold(roots.home / "p"))
    stranger.run("ln", "-sfn", roots.home / "p", link)

    async def take() -> None:
        async with turn(link, speaker, wait=0):
            raise AssertionError

    lock.make_ready(link, speaker)
    with pytest.raises(NoTurn, match="its path leads to another directory than a moment ago"):
        asyncio.run(take())
    assert [each.stat().st_uid for each in (roots.home / "p").glob(FILE)] == [0] * there


async def test_a_kill_is_not_refused_because_the_file_was_made(open_to_all: Path, shared: Path) -> None:
    """Who looks whether the directory is changed meanwhile begins once it is there."""
    guard = await Guard.begin(open_to_all, find_speaker)
    assert (open_to_all / FILE).exists()
    await hold(open_to_all)
    assert find_speaker(open_to_all) == guard.speaker


def test_a_users_daemon_has_its_file_as_the_users_own_whoever_comes_first(stranger: Stranger) -> None:
    lying_daemon(stranger, stranger.home / "p", clients=[])
    speaker = find_speaker(stranger.home / "p")

    async def take() -> None:
        async with turn(stranger.home / "p", speaker, wait=0) as mine:
            mine.note(Client(ProcessKey(1, 1)), sent=True)

    asyncio.run(take())
    found = (stranger.home / "p" / FILE).stat()
    assert (found.st_uid, found.st_mode & 0o777) == (stranger.uid, 0o600)
    (line,) = (stranger.home / "p" / FILE).read_text().splitlines()
    assert json.loads(line)["pid"] == 1
    stranger.python(f"import fcntl; f = open({os.fspath(stranger.home / 'p' / FILE)!r}, 'a'); fcntl.flock(f, 6)")


@pytest.mark.parametrize(
    ("busy", "exposed", "beside", "patient"),
    [(True, True, True, True), (True, False, False, True), (False, False, False, True), (False, True, False, False),
     (False, False, True, False)],
)  # fmt: skip
async def test_who_has_the_turn_is_waited_for_and_what_others_exchange_all_the_time_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, busy: bool, exposed: bool, beside: bool, patient: bool
) -> None:
    looks = 0

    async def late(place: TurnPlace, deadline: float) -> int:
        nonlocal looks
        looks += 1
        if looks < 5 * lock._TRIES:
            raise lock._NotYet("not yet", busy=busy)
        return 7

    monkeypatch.setattr(lock, "_LOOK", 0)
    monkeypatch.setattr(lock, "_in_thread", late)
    place = TurnPlace(tmp_path / FILE, os.geteuid(), beside=beside, exposed=exposed)
    if patient:
        assert await lock._take(place, time.monotonic() + 120) == 7
    else:
        with pytest.raises(NoTurn):
            await lock._take(place, time.monotonic() + 120)
    assert looks == (5 * lock._TRIES if patient else lock._TRIES)
