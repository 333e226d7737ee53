"""The process that keeps a session is found by its name, its arguments and its connection."""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from mpstui.control import holder
from mpstui.control.holder import (
    HELD_AFTER,
    HeldSession,
    SessionWatch,
    file_at,
    find_sessions,
    is_served,
    listening,
    listening_at,
    sockets_of,
)
from mpstui.core.condition import describe_holder
from mpstui.core.model import SessionHolder
from mpstui.system.procfs import process_key

SESSION = """
import socket, sys
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
while connection is not None:
    connection.connect(sys.argv[1])
    connection.recv(1)
    print("connected", flush=True)
    if sys.stdin.readline() != "again\\n":
        break
    connection.close()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
"""
Start = Callable[..., subprocess.Popen[bytes]]


class Pipe:
    """A pipe directory with listening sockets, as a daemon has them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(exist_ok=True)
        self.listeners: list[socket.socket] = []
        self.accepted: list[socket.socket] = []
        for name in ("control", "control_privileged"):
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            listener.bind(str(path / name))
            listener.listen(16)
            self.listeners.append(listener)
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                self.accepted.append(listener.accept()[0])
                self.accepted[-1].send(b"+")

    def close(self) -> None:
        for one in (*self.listeners, *self.accepted):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Callable[[str], Pipe]]:
    made: list[Pipe] = []

    def make(name: str) -> Pipe:
        made.append(Pipe(tmp_path / name))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process under any argv and with any pipe directory in its environment, that connects to ``to``."""
    started: list[subprocess.Popen[bytes]] = []

    def run(to: Path, named: Path | None = None, argv: Sequence[str] = ("nvidia-cuda-mps-control",)):
        environment = {"PATH": os.environ["PATH"]}
        if named is not None:
            environment["CUDA_MPS_PIPE_DIRECTORY"] = str(named)
        process = subprocess.Popen(
            [argv[0], "-I", "-S", "-c", SESSION, str(to), *argv[1:]],
            executable=os.path.realpath(sys.executable),
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"connected\n"
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


class Clock:
    """Seconds that a test lets pass."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def holders(pipe_dir: Path) -> list[SessionHolder]:
    return [session.holder for session in find_sessions(pipe_dir)]


@pytest.mark.slow
def test_the_holder_is_the_process_that_is_connected(tmp_path: Path, pipe: Callable[[str], Pipe], start: Start) -> None:
    mine, other = pipe("a"), pipe("b")
    (tmp_path / "alias").symlink_to(mine.path)
    session = start(mine.path / "control_privileged", tmp_path / "elsewhere")  # whatever its environment says
    start(other.path / "control", mine.path)  # names our directory, and is connected to another daemon
    key, terminal = process_key(session.pid), psutil.Process(session.pid).terminal()
    assert key is not None
    expected = SessionHolder(session.pid, getpass.getuser(), terminal, True, key.start_ticks, os.getuid())
    assert holders(mine.path) == [expected]
    assert holders(tmp_path / "alias") == [expected]
    for socket_file in mine.path.iterdir():
        socket_file.unlink()  # a cleaner of /tmp does that: the connection has its name all the same
    assert holders(mine.path) == [expected]


def test_daemons_and_clients_are_no_holders(pipe: Callable[[str], Pipe], start: Start) -> None:
    """A CUDA program that waits for a server is connected too, and so is the server."""
    mine = pipe("a")
    for argv in (("nvidia-cuda-mps-control", "-d"), ("python3", "train.py"), ("nvidia-cuda-mps-server",)):
        start(mine.path / "control", mine.path, argv)
    assert holders(mine.path) == []


def test_where_the_kernel_lists_no_sockets_the_environment_counts(
    monkeypatch: pytest.MonkeyPatch, pipe: Callable[[str], Pipe], start: Start
) -> None:
    monkeypatch.setattr(holder, "connections", lambda pipe_dir: None)
    mine = pipe("a")
    session = start(mine.path / "control", mine.path)
    start(mine.path / "control", mine.path.parent / "b")
    own = [found for found in holders(mine.path) if found.uid == os.getuid()]  # of others' a user cannot tell here
    assert [(found.pid, found.certain) for found in own] == [(session.pid, True)]


def test_the_default_directory_is_meant_without_the_variable(
    monkeypatch: pytest.MonkeyPatch, pipe: Callable[[str], Pipe], start: Start
) -> None:
    monkeypatch.setattr(holder, "connections", lambda pipe_dir: None)
    session = start(pipe("a").path / "control")
    assert session.pid in {found.pid for found in holders(Path("/tmp/nvidia-mps"))}


def test_a_process_that_ends_while_it_is_looked_at_holds_nothing(
    monkeypatch: pytest.MonkeyPatch, pipe: Callable[[str], Pipe], start: Start
) -> None:
    """Neither its connections nor its environment can be seen then, which is not the same as that they may not."""
    mine = pipe("a")
    session, other = start(mine.path / "control"), start(pipe("b").path / "control", mine.path.parent / "b")
    read, pids = holder.read_each, {session.pid, other.pid}

    def ends(paths: Sequence[str], limit: int) -> list[bytes | None]:
        found = read(paths, limit)
        other.kill()
        other.wait()
        return found

    monkeypatch.setattr(holder, "read_each", ends)
    assert [found.pid for found in holders(mine.path) if found.pid in pids] == [session.pid]


@pytest.mark.slow
def test_a_session_is_held_after_some_seconds(pipe: Callable[[str], Pipe], start: Start) -> None:
    mine, clock = pipe("a"), Clock()
    session = start(mine.path / "control")
    watch = SessionWatch(mine.path, clock=clock)
    assert watch.look() == (False, None)
    clock.now += HELD_AFTER - 0.1
    assert watch.look() == (False, None)
    clock.now += 0.1
    held, found = watch.look()
    assert (held, found.pid if found else None) == (True, session.pid)
    session.kill()
    session.wait()
    assert watch.look() == (False, None)


@pytest.mark.slow
def test_a_process_that_opens_one_session_after_the_other_holds_none(pipe: Callable[[str], Pipe], start: Start) -> None:
    mine, clock = pipe("a"), Clock()
    session = start(mine.path / "control")
    watch = SessionWatch(mine.path, clock=clock)
    for _ in range(5):
        assert watch.look() == (False, None)
        assert session.stdin is not None
        assert session.stdout is not None
        session.stdin.write(b"again\n")
        assert session.stdout.readline() == b"connected\n"
        clock.now += HELD_AFTER + 1


def test_one_shot_commands_of_others_are_no_held_session(tmp_path: Path) -> None:
    clock = Clock()
    shots = iter(range(100, 200))
    watch = SessionWatch(
        tmp_path, clock=clock, find=lambda *_: [HeldSession(SessionHolder(pid := next(shots)), frozenset({pid}))]
    )
    for _ in range(20):
        assert watch.look() == (False, None)
        clock.now += HELD_AFTER


@pytest.mark.slow
def test_the_log_s_word_needs_a_process_that_is_as_old(pipe: Callable[[str], Pipe], start: Start) -> None:
    """The log may be behind: that of a session which has gone is read, and a one-shot of somebody else refuses us."""
    mine = pipe("a")
    assert SessionWatch(mine.path).look(logged=True) == (True, None), "in a container, say"
    session = start(mine.path / "control")
    assert SessionWatch(mine.path).look(logged=True) == (False, None)
    end = time.monotonic() + 60
    while (found := SessionWatch(mine.path).look(logged=True))[1] is None:
        assert time.monotonic() < end
    assert found[0]
    assert found[1].pid == session.pid
    assert time.time() - psutil.Process(session.pid).create_time() >= HELD_AFTER - 0.1


@pytest.mark.parametrize(
    ("who", "text"),
    [
        (SessionHolder(543, "root", "/dev/pts/0"), "is kept open by PID 543, user root on /dev/pts/0."),
        (SessionHolder(543, None, None, certain=False), "is most likely kept open by PID 543, user unknown."),
    ],
)
def test_the_sentence_that_names_it(who: SessionHolder, text: str) -> None:
    assert describe_holder(who).endswith(text)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to run as another user")
def test_to_another_user_it_is_only_likely(pipe: Callable[[str], Pipe], start: Start) -> None:
    """Who may read neither its environment nor its descriptors."""
    mine = pipe("a")
    session = start(mine.path / "control")
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.setgid(2001)
            os.setuid(2001)
            found = [one.holder for one in find_sessions(mine.path) if one.holder.pid == session.pid]
            os.write(write, f"{[one.certain for one in found]}".encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100) == b"[False]"
    os.close(read)
    os.close(write)


@pytest.fixture
def hide(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes a process one of another user's, whose descriptors, environment and namespaces cannot be read."""
    hidden: set[int] = set()
    users: dict[int, int] = {}
    for name, nothing in (("sockets_of", None), ("_pipe_directory", None), ("same_network", False)):
        real = getattr(holder, name)
        monkeypatch.setattr(
            holder, name, lambda pid, real=real, nothing=nothing: nothing if pid in hidden else real(pid)
        )
    monkeypatch.setattr(holder, "effective_uid", users.get)

    def make(process: subprocess.Popen[bytes], uid: int = 0) -> None:
        hidden.add(process.pid)
        users[process.pid] = uid

    return make


@pytest.mark.parametrize("uid", [0, 2001])
def test_a_client_of_another_user_beside_a_session_elsewhere_is_no_held_session(
    uid: int, pipe: Callable[[str], Pipe], start: Start, hide: Callable[..., None]
) -> None:
    """Its connection lasts, and was taken for the session's, as both are of users whose processes cannot be looked
    into. Root's commands come to another socket than clients (facts 59, 60); of any other session the log tells."""
    mine, theirs, clock = pipe("a"), pipe("b"), Clock()
    session, client = start(theirs.path / "control_privileged"), start(mine.path / "control", argv=("python",))
    hide(session, uid)
    hide(client, 2002)

    def find(*words: Any) -> list[HeldSession]:
        return [found for found in find_sessions(*words) if found.holder.pid == session.pid]

    watch = SessionWatch(mine.path, clock=clock, find=find)
    for _ in range(3):
        assert watch.look() == (False, None)
        clock.now += HELD_AFTER
    held, named = watch.look(logged=True)
    assert held
    assert (named is not None) is (uid != 0), "root's has no connection here"


def test_a_session_of_another_user_with_another_daemon_holds_none_here(
    pipe: Callable[[str], Pipe], start: Start, hide: Callable[[subprocess.Popen[bytes]], None]
) -> None:
    """Root's session with root's daemon, while the daemon of a user is busy with commands of others."""
    mine, theirs, clock = pipe("a"), pipe("b"), Clock()
    elsewhere = start(theirs.path / "control_privileged")
    hide(elsewhere)

    def find(*words: Any) -> list[HeldSession]:
        return [session for session in find_sessions(*words) if session.holder.pid == elsewhere.pid]

    watch = SessionWatch(mine.path, clock=clock, find=find)
    for hidden in (False, True) * 3:
        shot = start(mine.path / "control_privileged")
        if hidden:
            hide(shot)
        assert watch.look() == (False, None)
        assert watch.seen is hidden, "it may be who has the connection"
        shot.kill()
        shot.wait()
        clock.now += HELD_AFTER
    assert watch.look(logged=True) == (True, None), "it is not named for what the log alone shows"
    watch = SessionWatch(theirs.path, clock=clock, find=find)
    assert watch.look() == (False, None)
    clock.now += HELD_AFTER
    held, found = watch.look()
    assert held
    assert found is not None
    assert (found.pid, found.certain) == (elsewhere.pid, False)


def test_of_a_daemon_whose_connections_are_not_listed_another_users_session_may_be(
    monkeypatch: pytest.MonkeyPatch,
    pipe: Callable[[str], Pipe],
    start: Start,
    hide: Callable[..., None],
) -> None:
    """In a container with a network of its own: there any session that nothing is known of may be the one."""
    mine, session = pipe("a"), start(pipe("b").path / "control")
    hide(session)
    for name, nothing in (("listening_at", frozenset[int]()), ("connections", None)):
        with monkeypatch.context() as here:
            here.setattr(holder, name, lambda path, *_, nothing=nothing: nothing)
            found = [one for one in find_sessions(mine.path) if one.holder.pid == session.pid]
            assert [(one.holder.certain, one.sockets) for one in found] == [(False, None)]
    assert session.pid not in {found.pid for found in holders(mine.path)}


def test_who_listens_at_a_file_is_known_by_what_it_is_and_not_by_its_name() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, tempfile.TemporaryDirectory() as folder:
        bound, moved = Path(folder, "bound"), Path(folder, "moved")
        listener.bind(os.fspath(bound))
        assert listening_at(bound) == frozenset(), "it does not listen yet"
        listener.listen()
        inode = os.fstat(listener.fileno()).st_ino
        assert listening_at(bound) == {inode}
        assert inode in (sockets_of(os.getpid()) or ())
        bound.rename(moved)
        bound.symlink_to("moved")
        assert (listening_at(moved), listening_at(bound)) == ({inode}, {inode}), "as who connects comes there"
        assert listening_at(Path(folder, "no")) == set()


@pytest.mark.parametrize("kind", [socket.SOCK_SEQPACKET, socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_whether_a_socket_is_served_is_asked_without_a_word_to_who_serves_it(kind: int) -> None:
    with socket.socket(socket.AF_UNIX, kind) as listener, tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "control")
        assert is_served(path) is False
        listener.bind(os.fspath(path))
        if kind != socket.SOCK_DGRAM:
            listener.listen(1)
        Path(folder, "link").symlink_to("control")
        (deep := Path(folder, "d" * 120)).mkdir()
        (deep / "moved").symlink_to("../control")
        assert [is_served(each) for each in (path, Path(folder, "link"), deep / "moved")] == [True] * 3
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept() if kind != socket.SOCK_DGRAM else listener.recv(1)
        listener.close()
        assert [is_served(each) for each in (path, Path(folder, "link"), deep / "moved")] == [False] * 3
        Path(folder, "file").touch()
        os.mkfifo(Path(folder, "pipe"))
        assert [is_served(Path(folder, each)) for each in ("file", "pipe", "", "no\0ne")] == [False] * 4


def test_whether_one_is_served_that_may_not_be_asked_the_list_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(socket.socket):
        def connect(self, address: object) -> None:
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(holder.socket, "socket", Closed)
    for listed, served in ((frozenset({7}), True), (frozenset[int](), None)):
        monkeypatch.setattr(holder, "listening_at", lambda path, listed=listed: listed)
        assert is_served(Path("/dev/null")) is served
    monkeypatch.setattr(holder.os, "open", lambda *_: Closed.connect(None, None))  # type: ignore[arg-type]
    assert is_served(Path("/dev/null")) is None


def test_sockets_are_asked_for_one_by_one_by_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = (socket.AF_UNIX, socket.SOCK_SEQPACKET), (socket.AF_UNIX, socket.SOCK_STREAM), (socket.AF_INET,)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        at, bound, other, nameless = (stack.enter_context(socket.socket(*kind)) for kind in (*kinds, (socket.AF_UNIX,)))
        at.bind(os.path.join(folder, "at"))
        bound.bind(os.path.join(folder, "bound"))
        nameless.bind("\0" + folder)
        for each in (at, nameless):
            each.listen()
        inodes = [os.fstat(each.fileno()).st_ino for each in (at, bound, other, nameless)]
        assert listening((*inodes, 1, 0xFFFFFFFF)) == {inodes[0]: file_at(Path(folder, "at"))}
        assert listening((*inodes, 1 << 32)) is None, "nothing is concluded from a half of it"
        monkeypatch.setattr(holder, "_ASKED_FOR", 1)
        assert listening((inodes[0], inodes[0] + (1 << 32))) == {inodes[0]: file_at(Path(folder, "at"))}, "the oldest"
    assert file_at(Path(folder, "at")) is None
    monkeypatch.setattr(holder, "_SOCK_DIAG", 1 << 20)
    assert listening(inodes) is None


def test_a_session_that_the_kernels_list_has_lost_is_looked_for_again(
    monkeypatch: pytest.MonkeyPatch, pipe: Callable[[str], Pipe], start: Start
) -> None:
    mine, real = pipe("a"), holder.connections
    session = start(mine.path / "control")
    start(pipe("b").path / "control")
    looks = iter([frozenset[int](), real(mine.path)])

    def connections(pipe_dir: Path, *names: Sequence[str]) -> frozenset[int] | None:
        # With names: of another test's session that ends meanwhile.
        return real(pipe_dir, *names) if names else next(looks)

    monkeypatch.setattr(holder, "connections", connections)
    assert [found.pid for found in holders(mine.path)] == [session.pid]


def test_of_a_process_that_has_ended_no_network_is_ours() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait(120)
    assert [holder.same_network(pid) for pid in (os.getpid(), ended.pid)] == [True, False]


def test_a_process_that_is_connected_for_sure_is_named_before_an_older_one_that_may_be() -> None:
    likely = HeldSession(SessionHolder(11, certain=False), frozenset({1}))
    certain = HeldSession(SessionHolder(12), frozenset({2}))
    now = 0.0
    for found in ([likely, certain], [certain, likely]):
        watch = SessionWatch(Path("/p"), (), lambda: now, lambda *asked, found=found: found)
        watch._since = {(11, None, 1): now - 2 * HELD_AFTER, (12, None, 2): now - HELD_AFTER}
        assert watch.look() == (True, certain.holder)
