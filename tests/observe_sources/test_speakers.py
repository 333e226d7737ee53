"""Whose word a daemon's is, and which process it is, case by case: by files and by what the kernel is made to say here;
nothing is started. test_discovery.py and tests/attacks do it with processes."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mpstui.control import holder
from mpstui.control.holder import listening_at
from mpstui.core.model import ProcessKey
from mpstui.core.trust import ANYBODY, Speaker
from mpstui.observe import discovery
from mpstui.observe.discovery import (
    DEFAULT_PIPE_DIR,
    DEFAULT_V3_PIPE_DIR,
    DaemonProcess,
    Place,
    daemon_process,
    discover,
    find_speaker,
    listening_dirs,
    lock_holder,
    not_its_daemon,
    pids_are_ours,
    steady_speaker,
)
from mpstui.system.procfs import Stat, process_key

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files to others")
ROOTS, ALICES = Speaker(0, "root's daemon"), Speaker(2001, "a daemon of alice's")
HERE, THERE = (1, 10), (1, 20)
P = Path("/p")


def says(monkeypatch: pytest.MonkeyPatch, **answers: object) -> None:
    """What these functions of the module answer to anybody."""
    for name, answer in answers.items():
        monkeypatch.setattr(discovery, name, answer if callable(answer) else lambda *_, answer=answer: answer)


@pytest.fixture
def sockets(room: Path) -> Callable[..., Path]:
    """A directory and what is in the place of its two sockets, by their owners."""

    def make(folder: int, *owners: int, kind: int = stat.S_IFSOCK, mode: int = 0o755, above: int = 0) -> Path:
        pipe_dir = room / "p"
        pipe_dir.mkdir()
        for name, owner in zip(discovery.SOCKETS, owners, strict=False):
            os.mknod(pipe_dir / name, 0o666 | kind)
            os.chown(pipe_dir / name, owner, -1)
        pipe_dir.chmod(mode)
        os.chown(pipe_dir, folder, -1)
        os.chown(room, above, -1)
        return pipe_dir

    return make


@needs_root
@pytest.mark.parametrize(
    ("folder", "owners", "uid", "by"),
    [
        (0, (0, 0), 0, None),
        (70001, (70001, 70001), 70001, None),
        (70001, (0, 0), 70001, None),  # who may put other ones there
        (0, (70001, 0), 70001, None),
        (0, (0, 70001), 70001, None),
        (0, (70001,), 70001, None),
        (70001, (70002, 0), None, 70001),
        (70002, (0, 70001), None, 70001),
        (0, (70002, 70001), None, 70001),
    ],
)
def test_a_daemon_is_of_the_one_user_who_has_any_of_it(
    sockets: Callable[..., Path], folder: int, owners: tuple[int, ...], uid: int | None, by: int | None
) -> None:
    speaker = find_speaker(sockets(folder, *owners))
    assert (speaker.uid, speaker.by, speaker.sockets) == (uid, by, tuple(sorted({*owners})))
    assert (speaker.why == "root's daemon") is (uid == 0)


@needs_root
def test_of_a_directory_that_others_may_write_to_it_is_so_as_long_as_it_stays_what_it_is(
    sockets: Callable[..., Path],
) -> None:
    pipe_dir = sockets(0, 0, 0, mode=0o777)
    speaker = find_speaker(pipe_dir)
    found = [os.stat(path) for path in (pipe_dir, pipe_dir / "control", pipe_dir / "control_privileged")]
    assert (speaker.uid, speaker.stamp[:2]) == (0, (found[0].st_dev, found[0].st_ino))
    assert speaker.stamp[4:] == tuple(number for each in found[1:] for number in (each.st_ino, each.st_ctime_ns))


@needs_root
def test_whoever_has_the_way_may_have_put_it_there(sockets: Callable[..., Path]) -> None:
    speaker = find_speaker(sockets(0, 0, 0, above=70001))
    assert (speaker.uid, speaker.by) == (None, 70001)


@needs_root
def test_what_is_no_socket_is_no_daemons(sockets: Callable[..., Path]) -> None:
    speaker = find_speaker(sockets(70001, 70001, 70001, kind=stat.S_IFREG))
    assert (speaker.uid, speaker.by, "no sockets" in speaker.why) == (None, 70001, True)
    assert find_speaker(Path("/p/none")) == Speaker(None, "its sockets cannot be looked at", steered=True)


@pytest.mark.parametrize(("uid", "by"), [(0, ANYBODY), (2001, 2001)])
def test_a_directory_that_is_changed_all_the_time_is_nobodys(
    monkeypatch: pytest.MonkeyPatch, uid: int, by: int
) -> None:
    monkeypatch.setattr(discovery, "_PAUSE", 0.0)
    just_now = time.time_ns() + 10**12
    speaker = steady_speaker(P, lambda path: Speaker(uid, "somebody's", (1, 2, just_now, just_now), sockets=(uid,)))
    assert (speaker.uid, speaker.by, speaker.sockets) == (None, by, (uid, ANYBODY))


@pytest.mark.parametrize(
    ("holder", "theirs", "ours", "uids", "speaker", "same"),
    [
        (480, 1, 1, {0}, ROOTS, True),
        (480, 1, 1, {2001}, ROOTS, True),
        (480, 1, 1, {2001}, ALICES, True),
        (480, 1, 1, {0}, ALICES, None),  # whose process it is, and whose word, differ
        (480, 1, 1, {2001, 0}, ALICES, None),
        (480, 1, 1, None, ROOTS, None),
        (480, 2, 1, {0}, ROOTS, False),
        (480, 1, 2, {0}, ROOTS, False),
        (480, None, 1, {0}, ROOTS, None),
        (480, 1, None, {0}, ROOTS, None),
        (480, None, None, {0}, ROOTS, None),
        (0, 1, 1, {0}, ROOTS, False),  # it has no PID here
        (1, 1, 1, {0}, ROOTS, True),
        (None, 1, 1, {0}, ROOTS, None),
    ],
)
def test_a_daemon_counts_as_we_do_where_the_holder_of_its_lock_is_in_our_namespace(
    monkeypatch: pytest.MonkeyPatch,
    holder: int | None,
    theirs: int | None,
    ours: int | None,
    uids: set[int] | None,
    speaker: Speaker,
    same: bool | None,
) -> None:
    says(
        monkeypatch,
        lock_holder=holder,
        pid_namespace=lambda pid: ours if pid == "self" else theirs,
        process_uids=uids,
    )
    assert pids_are_ours(P, speaker) is same


@pytest.mark.parametrize(
    ("listener", "daemon", "may_end"),
    [
        (480, None, True),
        (480, False, True),
        (479, True, False),
        (481, True, False),
        (0, True, False),
        (None, True, True),
        (None, False, False),
        (None, None, False),
    ],
)
def test_only_the_process_that_listens_is_ended_as_the_daemon(
    monkeypatch: pytest.MonkeyPatch, listener: int | None, daemon: bool | None, may_end: bool
) -> None:
    says(monkeypatch, _listener=listener, is_daemon_of=daemon)
    assert (not_its_daemon(P, 480) is None) is may_end


@pytest.mark.parametrize(
    ("kind", "pid", "is_daemon", "names", "holder"),
    [
        (fcntl.F_WRLCK, 480, True, 1, 480),
        (fcntl.F_WRLCK, 480, True, 2, 480),
        (fcntl.F_WRLCK, 480, None, 1, 480),
        (fcntl.F_WRLCK, 480, None, 2, None),  # it may be the lock of another directory's daemon
        (fcntl.F_WRLCK, 480, False, 1, None),
        (fcntl.F_WRLCK, 1, None, 1, 1),
        (fcntl.F_WRLCK, 0, None, 1, 0),  # the kernel says so of one in another namespace, or -1
        (fcntl.F_WRLCK, -1, None, 1, 0),
        (fcntl.F_UNLCK, 480, True, 1, None),
    ],
)
def test_who_holds_the_lock(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kind: int,
    pid: int,
    is_daemon: bool | None,
    names: int,
    holder: int | None,
) -> None:
    (tmp_path / "control_lock").touch()
    if names == 2:
        os.link(tmp_path / "control_lock", tmp_path / "second")
    says(monkeypatch, is_daemon_of=is_daemon, process_uids={0})
    monkeypatch.setattr(fcntl, "fcntl", lambda *_: struct.pack("hhqqi4x", kind, 0, 0, 0, pid))
    assert lock_holder(tmp_path) == holder
    if pid > 0:
        says(monkeypatch, process_uids={70001})
        assert lock_holder(tmp_path) is None, "another user's, who cannot have made what is there"


@pytest.mark.parametrize(
    ("text", "pid"),
    [
        ("480", 480), (" 480\n", 480), ("9" * 9, 999_999_999), ("9" * 10, None), ("9" * 400, None), ("", None),
        ("-1", None), ("4 80", None), ("../tmp/evil", None),
    ],
)  # fmt: skip
def test_a_pid_file_that_anybody_may_have_written_to_tells_a_number_or_nothing(
    tmp_path: Path, text: str, pid: int | None
) -> None:
    (tmp_path / "nvidia-cuda-mps-control.pid").write_text(text)
    assert discovery._read_pid_file(tmp_path) == pid


@pytest.mark.parametrize(
    ("own", "there", "now", "anothers"),
    [
        ({7, 8}, {7}, 1, False),
        ({7, 8}, {7, 9}, 1, False),
        ({7, 8}, {9}, 1, True),
        ({7, 8}, {9}, 2, False),  # it has ended meanwhile, and its number is another process's
        ({7, 8}, set(), 1, False),  # nobody listens there, or somebody in another network namespace
        (set(), {9}, 1, False),
        (None, {9}, 1, False),  # its descriptors may not be looked at
    ],
)
def test_whose_socket_it_is_tells_who_listens_there(
    monkeypatch: pytest.MonkeyPatch, own: set[int] | None, there: set[int], now: int, anothers: bool
) -> None:
    says(monkeypatch, sockets_of=own, listening={}, listening_at=there, process_key=ProcessKey(480, now))
    why = discovery._anothers_socket(P, ProcessKey(480, 1))
    assert why == (("its socket control is another process's", True) if anothers else None)


def test_a_daemon_that_has_no_number_here_is_one_of_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = discovery.process_key(os.getpid())
    for served, lock, found in (
        (True, 0, ProcessKey(0)),
        (True, None, ProcessKey(0)),  # an old driver's, or a server's of protocol 3
        (True, os.getpid(), mine),
        (None, os.getpid(), mine),
        (None, None, None),
        (False, 0, None),  # whoever holds the lock of one that has ended
        (False, os.getpid(), None),
    ):
        says(monkeypatch, is_served=served, lock_holder=lock)
        assert discovery._unseen_daemon(P, doubted=False) == found
        assert discovery._unseen_daemon(P, doubted=True) == (None if lock is None else found)


@pytest.mark.parametrize(
    ("listens", "own", "may"),
    [({7}, {7, 8}, True), ({7}, {8}, False), ({7}, None, True), (set(), {8}, True), (set(), set(), True)],
)
def test_who_holds_the_lock_and_does_not_listen_is_not_the_daemon(
    monkeypatch: pytest.MonkeyPatch, listens: set[int], own: set[int] | None, may: bool
) -> None:
    says(monkeypatch, is_served=True, lock_holder=1, listening_at=listens, sockets_of=own)
    assert (discovery._unseen_daemon(P, doubted=True) is not None) is may


def process(pid: int, uid: int = 0, pipe_dir: Path | None = P, pipe_id: tuple[int, int] | None = HERE) -> DaemonProcess:
    return DaemonProcess(ProcessKey(pid, 1), uid, 1.0, False, "legacy", pipe_dir, None, pipe_id)


@pytest.mark.parametrize(
    ("daemons", "pid", "owner", "holder", "found"),
    [
        ([process(1), process(2)], None, 0, None, 1),  # the oldest
        ([process(1), process(2)], 2, 0, None, 2),  # the one in the PID file
        ([process(1), process(2)], 1, 0, 2, 2),  # the one that holds the lock
        ([process(1), process(2)], 3, 0, None, 1),
        ([process(1), process(2)], 1, 0, 3, None),
        ([process(2), process(4)], None, 0, 3, None),
        ([process(1, 2001)], 1, 0, None, None),  # the socket is root's
        ([process(1, 2001)], 1, 2002, None, None),
        ([process(1, 2001)], 1, 2000, None, None),
        ([process(1, 2001)], 1, None, None, 1),
        ([process(1, pipe_id=THERE)], 1, 0, None, None),  # what it calls so is another directory
        ([process(1, pipe_id=None)], 1, 0, None, 1),
        ([process(1, pipe_dir=Path("/q"), pipe_id=None)], 1, 0, None, None),
        ([process(1, pipe_dir=Path("/q"))], 1, 0, None, 1),
        # Where its environment is closed: its PID in the file and its socket.
        ([process(1, 2001, None)], 1, 2001, None, 1),
        ([process(1, 2001, None)], 2, 2001, None, None),
        ([process(1, 2001, None)], 1, 2002, None, None),
        ([process(1, 2001, None)], 1, 2000, None, None),
        ([process(1, 2001, None)], 1, None, None, None),
    ],
)
def test_which_of_those_that_claim_a_directory_is_its_daemon(
    monkeypatch: pytest.MonkeyPatch,
    daemons: Sequence[DaemonProcess],
    pid: int | None,
    owner: int | None,
    holder: int | None,
    found: int | None,
) -> None:
    says(monkeypatch, file_id=HERE, _read_pid_file=pid, _owner=owner, lock_holder=holder, process_uids={0})
    daemon = discovery._daemon_of(P, daemons)
    assert (None if daemon is None else daemon.key.pid) == found


def test_a_lock_that_another_user_holds_takes_no_daemon_of_root_s_from_its_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    says(monkeypatch, file_id=HERE, _read_pid_file=1, _owner=0, lock_holder=3, process_uids={70001})
    daemon = discovery._daemon_of(P, [process(1), process(2)])
    assert daemon is not None
    assert daemon.key.pid == 1


COMMAND = b"nvidia-cuda-mps-control\0-d\0"


@pytest.mark.parametrize(
    ("words", "state", "uids", "uid", "pipe_dir"),
    [
        (COMMAND, "S", {0}, 0, DEFAULT_PIPE_DIR),
        (COMMAND + b"-p\x003\0", "S", {0}, 0, DEFAULT_V3_PIPE_DIR),
        (COMMAND + b"-p\x003\0", "S", {2001}, 2001, DEFAULT_PIPE_DIR),
        (COMMAND, "S", {2001}, 2001, DEFAULT_PIPE_DIR),
        (COMMAND, "S", None, 2001, DEFAULT_PIPE_DIR),
        (COMMAND, "S", {0, 2001}, 0, None),  # a setuid program under that name
        (COMMAND, "Z", {0}, 0, None),
        (b"nvidia-cuda-mps-control\0", "S", {0}, 0, None),  # a session
        (b"python\0-c\0print('nvidia-cuda-mps-control -d')\0", "S", {0}, 0, None),
    ],
)
def test_what_is_a_control_daemon(
    monkeypatch: pytest.MonkeyPatch, words: bytes, state: str, uids: set[int] | None, uid: int, pipe_dir: Path | None
) -> None:
    says(
        monkeypatch,
        read_proc=words,
        read_stat=Stat(480, b"nvidia-cuda-mps", state, 0, 0, 1, 7, 0),
        read_environment={},
        effective_uid=uid,
        process_uids=uids,
        seen_by=None,
        namespace_pids=(480,),
    )
    daemon = daemon_process(480)
    assert (None if daemon is None else daemon.pipe_dir) == pipe_dir
    if daemon is not None:
        assert (daemon.key, daemon.uid, daemon.pid_there) == (ProcessKey(480, 7), uid, None)
        for pids in ((480, 3), (480, 12, 3)):
            says(monkeypatch, namespace_pids=pids)
            assert daemon_process(480).pid_there == 3  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("line", "listed"),
    [
        ("ffff: 00000002 00000000 00010000 0005 01 100 /p/control_privileged", True),
        ("ffff: 00000003 00000000 00000000 0005 03 100 /p/control_privileged", False),  # somebody's connection
        ("ffff: 00000003 00000000 00010001 0005 03 100 /p/control_privileged", False),
        ("ffff: 00000002 00000000 00010000 0005 01 100 @/p/control_privileged", False),
        ("ffff: 00000002 00000000 00010000 0005 01 100 /p/control", False),
        ("ffff: 00000002 00000000 00010000 0005 01 100", False),
    ],
)
def test_where_somebody_listens(monkeypatch: pytest.MonkeyPatch, line: str, listed: bool) -> None:
    says(monkeypatch, read_proc=f"Num RefCount\n{line}\n".encode(), _may_be_socket=True)
    assert listening_dirs() == [P] * listed
    says(monkeypatch, _may_be_socket=False)
    assert listening_dirs() == []


def test_roots_and_ones_own_are_looked_at_before_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """By whose word it is where one runs, and by whose directory it is where none does."""
    says(monkeypatch, running_daemons=[])
    monkeypatch.setattr(os, "geteuid", lambda: 2002)
    made = (
        Place(Path("/others"), "running", uid=2002, speaker=ALICES),
        Place(Path("/left-by-others"), "stale", uid=2001, speaker=ROOTS),
        Place(Path("/of-one"), "running", uid=1, speaker=Speaker(1, "of user 1")),
        Place(Path("/roots"), "running", uid=2001, speaker=ROOTS),
        Place(Path("/left"), "stale", uid=2002, speaker=ALICES),
        Place(Path("/mine"), "running", uid=2001, speaker=Speaker(2002, "mine")),
    )
    of = {place.pipe_dir: place for place in made}
    says(monkeypatch, _discovered=list(of), _place=lambda pipe_dir, *_: of[pipe_dir])
    assert [place.pipe_dir.name for place in discover(env={})] == [
        "roots", "left", "mine", "others", "left-by-others", "of-one",
    ]  # fmt: skip


def test_other_users_daemons_crowd_out_none_of_roots_that_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose sockets somebody else has taken was among the others, of whom some are left out."""
    names = [Path(f"/p{number}") for number in range(40)]
    taken = Speaker(2001, "a daemon of mallory's", sockets=(2001, 2001))

    def place(pipe_dir: Path, *_: object) -> Place:
        number = int(pipe_dir.name[1:])
        uid, speaker = (0, taken) if number == 39 else (2001, ALICES)
        return Place(pipe_dir, "running", daemon=ProcessKey(500 + number, 1), uid=uid, speaker=speaker)

    says(monkeypatch, running_daemons=(), _discovered=names, _place=place, _mine=frozenset((0,)))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    found = discover(env={})
    assert (found[0].pipe_dir, len(found)) == (names[39], 1 + 31)


@pytest.mark.parametrize("other", [False, True])
def test_where_the_kernels_list_has_other_numbers_nobody_is_said_not_to_listen(
    monkeypatch: pytest.MonkeyPatch, room: Path, other: bool
) -> None:
    """A file of an overlay whose layers are on several file systems has another device in the list than for who looks:
    as in many containers, where an honest daemon was called cut off."""
    dead = room / "dead"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one, socket.socket(socket.AF_UNIX) as two:
        for listener, name in zip((one, two), discovery.SOCKETS, strict=True):
            listener.bind(str(room / name))
            listener.listen()
        (room / "control").chmod(0o666)
        with socket.socket(socket.AF_UNIX) as nobodys:
            nobodys.bind(str(dead))
        mine = process_key(os.getpid())
        assert mine is not None
        assert (
            discovery._anothers_socket(room, mine),
            discovery._is_reached(room / "control", mine, os.geteuid()),
        ) == (
            None,
            True,
        )
        if other:
            real = holder._vfs
            monkeypatch.setattr(holder, "_vfs", lambda found: (real(found)[0], real(found)[1] + 1))
        else:
            for name in discovery.SOCKETS:
                dead.replace(room / name) if dead.exists() else None
        said = discovery._anothers_socket(room, mine)
        reached = discovery._is_reached(room / "control", mine, os.geteuid())
        assert (said, reached) == ((None, None) if other else (("nobody listens at its socket control", False), False))


@pytest.mark.parametrize("lost", discovery.SOCKETS)
def test_an_entry_that_the_kernels_list_has_lost_takes_no_daemon_its_socket(
    monkeypatch: pytest.MonkeyPatch, room: Path, lost: str
) -> None:
    """The list comes in pieces, and leaves some out while sockets come and go elsewhere, without a word."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one, socket.socket(socket.AF_UNIX) as two:
        for listener, name in zip((one, two), discovery.SOCKETS, strict=True):
            listener.bind(str(room / name))
            listener.listen()
        (room / "control").chmod(0o666)
        mine, gone, real = process_key(os.getpid()), (room / lost).stat().st_ino & 0xFFFFFFFF, holder._listening
        assert mine is not None
        monkeypatch.setattr(holder, "_listening", lambda: (each for each in real() if each[1][0] != gone))
        assert listening_at(room / lost) == frozenset()
        assert discovery._anothers_socket(room, mine) is None
        assert discovery._is_reached(room / "control", mine, os.geteuid())
        monkeypatch.setattr(
            discovery, "sockets_of", lambda pid: {os.fstat(each.fileno()).st_ino for each in (one, two)}
        )
        assert not discovery.is_starting(mine, 1000.0, 1001.0), "it listens at both"


def test_somebody_elses_socket_that_the_kernels_list_has_lost_once_is_not_nobodys(
    monkeypatch: pytest.MonkeyPatch, room: Path
) -> None:
    looks = iter([(), ((9, (1, 2)),)])
    monkeypatch.setattr(holder, "_listening", lambda: next(looks))
    monkeypatch.setattr(holder, "_vfs", lambda found: (1, 2))
    assert listening_at(room) == {9}


@needs_root
def test_between_its_two_sockets_a_daemon_is_starting_and_a_link_to_its_own_may_be_followed(
    monkeypatch: pytest.MonkeyPatch, room: Path
) -> None:
    mine = process_key(os.getpid())
    assert mine is not None
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one, socket.socket(socket.AF_UNIX) as two:
        own = frozenset(os.fstat(each.fileno()).st_ino for each in (one, two))
        says(monkeypatch, sockets_of=own)
        one.bind(str(room / "control_privileged"))
        one.listen()
        assert discovery.is_starting(mine, 1000.0, 1001.0)
        two.bind(str(room / "moved"))
        two.listen()
        assert not discovery.is_starting(mine, 1000.0, 1001.0), "its control was taken away"
        (room / "control").symlink_to("moved")
        os.chown(room / "control", 70001, -1, follow_symlinks=False)
        (room / "moved").chmod(0o666)
        assert discovery._is_reached(room / "control", mine, os.geteuid())
        assert discovery._anothers_socket(room, mine) is None
        assert discovery._not_there(room, discovery.SOCKETS) is None


@pytest.mark.parametrize("protocol", ["legacy", "v3", None])
@pytest.mark.parametrize(
    "found", [("process 7 listens at its socket “control”", True), ("nobody listens there", False), None]
)
def test_whose_socket_is_in_the_place_of_a_daemons_own_is_asked_of_legacy_daemons(
    monkeypatch: pytest.MonkeyPatch, protocol: Any, found: tuple[str, bool] | None
) -> None:
    says(monkeypatch, _anothers_socket=found, _without_socket=lambda pipe_dir, protocol, speaker: speaker)
    open_to_all = ROOTS._replace(stamp=(1, 2, 0, 0, 5, 0, 6, 0))
    daemon = ProcessKey(480, 1)
    judged = discovery._cut_off(P, protocol, daemon, open_to_all)
    if found is None or protocol != "legacy":
        assert judged == open_to_all
    else:
        assert (judged.uid, judged.why, judged.by, judged.listens) == (None, found[0], ANYBODY, found[1])
        assert judged.sockets == (*open_to_all.sockets, ANYBODY)
    assert discovery._cut_off(P, protocol, daemon, ROOTS) == ROOTS, "nobody else can put one there"


@pytest.mark.parametrize(("name", "served"), [("control", True), ("control_privileged", False), ("log", False)])
def test_a_directory_is_served_by_whoever_listens_at_its_socket_control(
    monkeypatch: pytest.MonkeyPatch, name: str, served: bool
) -> None:
    daemon = DaemonProcess(ProcessKey(480, 1), 0, None, False, "legacy", Path("/other"), None)
    says(monkeypatch, listening_at=lambda path: frozenset({9} if path == P / name else ()), sockets_of={9, 10})
    assert discovery._served_from(P, [daemon], ours=True) == (Path("/other") if served else None)
    stranger = daemon._replace(uid=os.geteuid() + 2001)
    assert discovery._served_from(P, [stranger], ours=True) is None
