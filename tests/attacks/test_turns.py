"""Several admins at once: terminate_client is sent once for a client, and nobody else can be in the way (attack F)."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import warm

from mpstui.core.model import Client, ProcessKey
from mpstui.core.trust import Speaker
from mpstui.observe.discovery import find_speaker
from mpstui.operations import lock
from mpstui.operations.lock import FILE, NoTurn, Sent, turn
from mpstui.sim.node import SimNode
from mpstui.system.procfs import process_key, user_name

from .conftest import Stranger
from .programs import BINARY, ROOT, lying_daemon

AT_ONCE = 8
RUN = ProcessKey(99, 77)
"""A run of a daemon, as its process is numbered in one namespace; its start is the same in each."""


async def test_a_directory_on_the_way_that_is_gone_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reaped meanwhile, or behind another mount: it was a traceback."""
    gone = tmp_path / "gone" / "p"
    monkeypatch.setattr(lock, "place", lambda pipe_dir, speaker: (gone / FILE, os.geteuid()))
    with pytest.raises(NoTurn, match=r"^this daemon cannot be locked: gone: No such file"):
        async with turn(gone, Speaker(os.geteuid())):
            raise AssertionError


@pytest.mark.parametrize(("content", "waits"), [("", True), ("{}\n", False)])
@pytest.mark.skipif(os.geteuid() != 0, reason="root alone has a file that is root's")
async def test_only_a_file_that_root_is_making_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, waits: bool
) -> None:
    """Of another one that may not be opened it is told at once."""

    def closed(*what: object) -> int:
        raise PermissionError(13, "Permission denied", str(tmp_path / FILE))

    async def sleep(seconds: float) -> None:
        raise InterruptedError

    (tmp_path / FILE).write_text(content)
    monkeypatch.setattr(lock, "place", lambda pipe_dir, speaker: (tmp_path / FILE, 64101))
    monkeypatch.setattr(lock, "_open_in", closed)
    monkeypatch.setattr(lock.asyncio, "sleep", sleep)
    for wait, refused in ((60.0, InterruptedError if waits else NoTurn), (0.0, NoTurn)):
        with pytest.raises(refused):
            async with turn(tmp_path, Speaker(64101), wait=wait):
                raise AssertionError


async def test_a_file_with_another_name_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever made that name may have it in a place where others can lock it, or write to it."""
    (tmp_path / FILE).touch(0o600)
    (tmp_path / "second").hardlink_to(tmp_path / FILE)
    monkeypatch.setattr(lock, "place", lambda pipe_dir, speaker: (tmp_path / FILE, os.geteuid()))
    with pytest.raises(NoTurn, match="is no file with one name"):
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
from mpstui.operations.lock import turn
from mpstui.core.model import Client, ProcessKey
from mpstui.observe.discovery import find_speaker

async def main():
    client = Client(ProcessKey(int(sys.argv[3]), 5))
    async with turn(Path(sys.argv[2]), find_speaker(Path(sys.argv[2]))) as mine:
        if mine.was_sent(client, None) is None and mine.note(client, None, sent=True) is None:
            print("sent")

asyncio.run(main())
"""


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
    path, _ = lock.place(node.pipe_dir, speaker)
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


async def test_what_was_sent_is_known_to_the_next_one_and_not_taken_for_anybody_else(node: SimNode) -> None:
    speaker = find_speaker(node.pipe_dir)
    key = ProcessKey(os.getpid(), 5)
    async with turn(node.pipe_dir, speaker) as mine:
        assert mine.was_sent(Client(key), RUN) is None
        assert mine.note(Client(key), RUN, sent=True) is None
    async with turn(node.pipe_dir, speaker) as mine:
        assert mine.was_sent(Client(key), RUN)
        assert not mine.was_answered(Client(key), RUN), "that it was sent does not say that it was carried out"
        assert mine.was_sent(Client(ProcessKey(key.pid, 6)), RUN) is None, "a successor of the PID"
        assert mine.note(Client(key), RUN, sent=True, answered=True) is None
        assert mine.was_answered(Client(key), RUN)
        assert mine.note(Client(key), RUN, sent=False) is None
        assert not mine.was_answered(Client(key), RUN)
        assert mine.was_sent(Client(key), RUN) is None
    elsewhere = Client(ProcessKey(3), 7, 1, local=False)
    async with turn(node.pipe_dir, speaker) as mine:
        mine.note(elsewhere, RUN, sent=True)
        assert mine.was_sent(elsewhere, RUN)
        assert mine.was_sent(Client(ProcessKey(3), 7, 2, local=False), RUN) is None, "another client of that number"
        assert mine.was_sent(Client(ProcessKey(3), 8, 1, local=False), RUN) is None, "another server's"
        assert mine.was_sent(elsewhere, ProcessKey(9, 78)) is None, "of the daemon that was started here after it"
        assert mine.was_sent(elsewhere, ProcessKey(1, 77)) == Sent(user_name(os.geteuid()), surely=True)
        for unsure, run in ((elsewhere, None), (replace(elsewhere, id=None), RUN)):
            before = mine.was_sent(unsure, run)
            assert before is not None
            assert not before.surely, "whether it was this one is not known"
        seen_inside = Client(ProcessKey(3, 12), 7, 1)  # its process is seen from its own namespace alone
        assert mine.was_sent(seen_inside, RUN), "a second one, from elsewhere, would block the daemon"
        assert mine.was_sent(replace(seen_inside, id=2), RUN) is None


async def test_a_torn_line_and_garbage_hide_nothing(node: SimNode) -> None:
    speaker = find_speaker(node.pipe_dir)
    client = Client(ProcessKey(os.getpid(), 5))
    async with turn(node.pipe_dir, speaker) as mine:
        mine.note(client, RUN, sent=True)
    path, _ = lock.place(node.pipe_dir, speaker)
    with path.open("ab") as file:
        file.write(b'[1]\n{"pid": {"a": \xff\n' + b"[" * 100_000 + b'\n{"pid": 1')
    async with turn(node.pipe_dir, speaker) as mine:
        assert mine.was_sent(client, RUN)
        assert mine.note(Client(ProcessKey(1, 1)), RUN, sent=True) is None
        assert mine.was_sent(Client(ProcessKey(1, 1)), RUN)


async def test_long_files_are_shortened_and_forget_nobody_who_lives(node: SimNode, monkeypatch) -> None:
    monkeypatch.setattr(lock, "_LONG", 2000)
    speaker = find_speaker(node.pipe_dir)
    client = node.spawn("idle")
    key = process_key(client.pid)
    assert key is not None
    async with turn(node.pipe_dir, speaker) as mine:
        mine.note(Client(key), RUN, sent=True)
        for number in range(100):
            mine.note(Client(ProcessKey(1 << 22, number)), RUN, sent=True)
        assert mine.was_sent(Client(key), RUN)
    path, _ = lock.place(node.pipe_dir, speaker)
    assert path.stat().st_size < 4000


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_a_stranger_gets_at_neither_lock_nor_list(stranger: Stranger, tmp_path: Path, mode: int) -> None:
    """Root's daemon; with 0777 as one makes its directory itself. Then they are elsewhere, in root's own place."""
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents:
        if folder.stat().st_uid == 0 and folder != Path("/") and folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o055)
    with SimNode.start(tmp_path / "p") as node:
        node.pipe_dir.chmod(mode)
        speaker = find_speaker(node.pipe_dir)
        assert speaker.uid == 0
        path, user = lock.place(node.pipe_dir, speaker)
        assert user == 0
        assert (path.parent == node.pipe_dir) == (mode == 0o755)

        async def take() -> None:
            async with turn(node.pipe_dir, speaker, wait=0):
                pass

        asyncio.run(take())
        try:
            for attempt in (
                f"open({os.fspath(path)!r})",
                f"os.unlink({os.fspath(path)!r})",
                f"os.rename({os.fspath(path)!r}, '/tmp/x')",
                f"os.open({os.fspath(path)!r}, os.O_RDONLY)",
                f"os.link({os.fspath(path)!r}, 'mine')",
            ):
                assert stranger.python(f"import os; {attempt}", check=False).returncode != 0, attempt
            asyncio.run(take())
        finally:
            if path.parent != node.pipe_dir:
                path.unlink()


@pytest.mark.parametrize(
    "make", ["os.mkfifo(path)", "os.symlink('/etc/passwd', path)", "open(path, 'w')", "os.mkdir(path)"]
)
def test_what_a_stranger_has_put_in_its_place_is_not_used(
    stranger: Stranger, crowd: Path, monkeypatch: pytest.MonkeyPatch, make: str
) -> None:
    """In a directory that everybody may write to: refused with the reason, and never waited for."""
    path = crowd / FILE
    stranger.python(f"import os, sys; path = sys.argv[1]; {make}", path)
    before = Path("/etc/passwd").read_bytes()
    monkeypatch.setattr(lock, "place", lambda pipe_dir, speaker: (path, 0))

    async def take() -> None:
        async with turn(crowd, Speaker(0, ""), wait=0):
            pass

    with pytest.raises(NoTurn) as refused:
        asyncio.run(take())
    assert not refused.value.busy
    assert Path("/etc/passwd").read_bytes() == before


def test_a_users_daemon_has_its_file_as_the_users_own_whoever_comes_first(stranger: Stranger) -> None:
    lying_daemon(stranger, stranger.home / "p", clients=[])
    speaker = find_speaker(stranger.home / "p")

    async def take() -> None:
        async with turn(stranger.home / "p", speaker, wait=0) as mine:
            mine.note(Client(ProcessKey(1, 1)), RUN, sent=True)

    asyncio.run(take())
    found = (stranger.home / "p" / FILE).stat()
    assert (found.st_uid, found.st_mode & 0o777) == (stranger.uid, 0o600)
    (line,) = (stranger.home / "p" / FILE).read_text().splitlines()
    assert json.loads(line)["pid"] == 1
    stranger.python(f"import fcntl; f = open({os.fspath(stranger.home / 'p' / FILE)!r}, 'a'); fcntl.flock(f, 6)")
