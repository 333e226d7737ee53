"""Tails that start at the end, survive what happens to log files, and cost little."""

from __future__ import annotations

import errno
import os

import pytest

from mpstui.control.protocol import protocol_of
from mpstui.observe import logs
from mpstui.observe.logs import HISTORY_BYTES, LINE_BYTES, LogTail, LogWatch, server_logs
from mpstui.system.trusted import owners_of


def test_whole_lines_only(tmp_path):
    path = tmp_path / "server.log"
    path.write_bytes(b"one\ntwo\nthr")
    tail = LogTail(path)
    assert tail.poll() == [b"one", b"two"]
    assert tail.poll() == []
    with path.open("ab") as log:
        log.write(b"ee\n")
    assert tail.poll() == [b"three"]


def test_rotation_finishes_the_old_file_first(tmp_path):
    path = tmp_path / "server.log"
    path.write_bytes(b"one\n")
    tail = LogTail(path)
    assert tail.poll() == [b"one"]
    with path.open("ab") as log:
        log.write(b"two\n")
    path.rename(tmp_path / "server.log.1")
    path.write_bytes(b"three\n")
    assert tail.poll() == [b"two"]
    assert tail.poll() == [b"three"]
    assert tail.poll() == []


def test_truncation_in_place(tmp_path):
    path = tmp_path / "server.log"
    path.write_bytes(b"one\ntwo\npart")
    tail = LogTail(path)
    tail.poll()
    os.truncate(path, 0)
    assert tail.poll() == []
    with path.open("ab") as log:
        log.write(b"new\n")
    assert tail.poll() == [b"new"]


def rewritten(path, text, like=None):
    """In place, by the same name and inode; ``like``: with the times that it had then, as far as they can be set."""
    with path.open("r+b") as log:
        log.truncate(0)
        log.write(text)
    if like is not None:
        os.utime(path, ns=(like.st_atime_ns, like.st_mtime_ns))


@pytest.mark.parametrize("kept", [False, True], ids=["", "with the time it had"])
@pytest.mark.parametrize(
    ("before", "after", "new"),
    [
        (b"one\ntwo\n", b"six\nten\n", [b"six", b"ten"]),
        (b"one\ntwo\n", b"six\nseven\n", [b"six", b"seven"]),
        (b"one\ntwo\npart", b"six\nten\nrest", [b"six", b"ten"]),
        (b"old\n" + b"same\n" * 999, b"new\n" + b"same\n" * 999, [b"new", *[b"same"] * 999]),
        (b"same\n" * 999 + b"old\n", b"same\n" * 999 + b"new\n", [*[b"same"] * 999, b"new"]),
    ],
    ids=["as long", "longer", "half a line", "its end is the same", "its begin is the same"],
)
def test_a_log_that_is_written_anew_is_read_anew(tmp_path, before, after, new, kept):
    path = tmp_path / "server.log"
    path.write_bytes(before)
    tail = LogTail(path)
    tail.poll()
    rewritten(path, after, path.stat() if kept else None)
    assert tail.poll() == new
    assert tail.poll() == []
    rewritten(path, before)
    with path.open("ab") as log:
        log.write(b"x\n")
    assert tail.poll()[-1].endswith(b"x")


def test_nothing_is_read_where_nothing_was_written_for_a_while(tmp_path, monkeypatch):
    path = tmp_path / "server.log"
    path.write_bytes(b"one\n" * 999)
    tail = LogTail(path)
    tail.poll()
    monkeypatch.setattr(logs.time, "time_ns", lambda: path.stat().st_ctime_ns + 10**9)
    tail.poll()
    monkeypatch.setattr(os, "pread", lambda *_: pytest.fail("read"))
    assert tail.poll() == []


def test_deleted_and_made_again(tmp_path):
    path = tmp_path / "server.log"
    path.write_bytes(b"one\n")
    tail = LogTail(path)
    tail.poll()
    path.unlink()
    assert tail.poll() == []
    assert "No such file" in (tail.error or "")
    path.write_bytes(b"again\n")
    assert tail.poll() == [b"again"]
    assert tail.error is None


def test_a_file_that_comes_later_is_read_from_its_start(tmp_path):
    path = tmp_path / "server.log"
    tail = LogTail(path, marker=b"Startup")
    assert tail.poll() == []
    path.write_bytes(b"one\nStartup\n")
    assert tail.poll() == [b"one", b"Startup"]


def test_history_begins_at_the_newest_marker(tmp_path):
    path = tmp_path / "control.log"
    path.write_bytes(b"x\n[t] Starting A\ny\n" + b"z" * 99 + b"\n[t] Starting B\nq\n")
    assert LogTail(path, marker=b"Starting").poll() == [b"[t] Starting B", b"q"]


def test_marker_across_a_block_border(tmp_path):
    path = tmp_path / "control.log"
    block = 256 << 10
    for extra in (0, 3, 7, 20):
        path.write_bytes(b"old\n" * 1000 + b"[t] Starting\n" + b"r" * (block - extra) + b"\n")
        assert LogTail(path, marker=b"Starting").poll()[0] == b"[t] Starting"


def test_gigabytes_are_not_read(tmp_path, monkeypatch):
    sizes, pread = [], os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: sizes.append(size) or pread(fd, size, at))
    path = tmp_path / "control.log"
    with path.open("wb") as log:
        log.truncate(4 << 30)
        log.seek(0, os.SEEK_END)
        log.write(b"\nlast\n")
    tail = LogTail(path, marker=b"Starting", history=1 << 20)
    found = []
    for _ in range(3):
        found += tail.poll()
    assert sum(sizes) < 4 << 20
    assert found[-1] == b"last"
    assert not tail.from_start


def test_a_monitor_s_looks_take_no_room_in_the_history(tmp_path):
    """A ps each second: of thousands of sessions the last one alone is told, and whoever set something."""
    at = b"[2026-11-20 21:2%d:%02d.000 Control   443] "
    looks = [at % divmod(second, 60) for second in range(300)]
    ask = (b"Accepting connection...", b"NEW UI", b"Cmd:ps", b"PID  ID", b"UI closed")
    lines = [at % (0, 0) + b"Starting control daemon using socket /tmp/mps/control"]
    lines += [look + text for look in looks for text in ask]
    lines[2:2] = [at % (0, 0) + text for text in (b"NEW UI", b"Cmd:set_default_client_priority 1", b"UI closed")]
    (tmp_path / "control.log").write_bytes(b"\n".join(lines) + b"\n")
    watch = LogWatch(tmp_path, owners_of(None))
    told = [event.kind for _, event in watch.history()]
    assert told == ["daemon_started", "limit_set", "session_closed"]
    watch.close()


def test_far_behind_skips_to_the_newest(tmp_path):
    path = tmp_path / "control.log"
    path.write_bytes(b"one\n")
    tail = LogTail(path)
    tail.poll()
    with path.open("ab") as log:
        log.truncate(1 << 30)
        log.seek(0, os.SEEK_END)
        log.write(b"\nnewest\n")
    found = []
    for _ in range(HISTORY_BYTES // (1 << 20) + 2):
        found += tail.poll()
    assert found == [b"newest"], "the rest of a line is none"
    assert tail.skipped


def test_overlong_line_is_cut_and_the_next_one_whole(tmp_path):
    path = tmp_path / "control.log"
    path.write_bytes(b"a" * (3 << 20) + b"\nnext\n")
    tail = LogTail(path)
    found = [line for _ in range(5) for line in tail.poll()]
    assert [len(line) for line in found] == [LINE_BYTES, 4]
    assert found[1] == b"next"


def test_what_is_no_file_is_an_error(tmp_path):
    fifo = tmp_path / "control.log"
    os.mkfifo(fifo)
    tail = LogTail(fifo)
    assert tail.poll() == []
    assert "not a regular file" in (tail.error or "")
    tail = LogTail(tmp_path)
    assert tail.poll() == []
    assert tail.error
    assert LogTail(tmp_path / "x" / "y").poll() == []


@pytest.mark.parametrize("gone", [False, True])
def test_a_file_whose_server_has_forgotten_it_is_opened_anew(tmp_path, monkeypatch, gone):
    """NFS: the open file was deleted on another host, and each look at it fails (ESTALE)."""
    path = tmp_path / "control.log"
    path.write_bytes(b"old\n")
    tail = LogTail(path)
    assert tail.poll() == [b"old"]
    path.rename(tmp_path / "away")
    if not gone:
        path.write_bytes(b"new\n")
    real, stale = os.fstat, [tail._fd]

    def fstat(fd):
        if stale and fd == stale.pop():
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return real(fd)

    with monkeypatch.context() as patched:
        patched.setattr("os.fstat", fstat)
        first = tail.poll()
    assert [*first, *tail.poll()] == ([] if gone else [b"new"])
    assert (tail.error is None) != gone


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable(tmp_path):
    path = tmp_path / "server.log"
    path.write_bytes(b"one\n")
    path.chmod(0)
    tail = LogTail(path)
    assert tail.poll() == []
    assert "Permission denied" in (tail.error or "")


def test_a_fault_whose_lines_are_read_in_two_looks_is_one(tmp_path):
    """Two looks may come closer together than the server writes the lines of one fault."""
    now = [100.0]
    for kind in ("control", "server"):
        (tmp_path / f"{kind}.log").touch()
    watch = LogWatch(tmp_path, owners_of(None))
    watch.history()
    watch.live(lambda: now[0])
    stamp = b"[2022-04-28 15:56:08.906 Other 11570] Volta MPS: "
    found = []
    with (tmp_path / "server.log").open("ab", buffering=0) as log:
        log.write(stamp + b"Server is handling a fatal GPU error.\n")
        found += watch.poll()
        found += watch.poll()
        assert (found, watch.settled) == ([], False)
        log.write(stamp + b"status of client {11641, 1} is INACTIVE\n")
        found += watch.poll()
        found += watch.poll()
        now[0] += 0.1
        found += watch.poll()
    watch.close()
    ((_, event),) = found
    assert (event.kind, event.values["clients"]) == ("fatal_fault", "11641")


def test_several_servers_of_one_daemon_have_logs_of_their_own(tmp_path):
    """As protocol 3 is documented: in a directory of each one's name; one that comes later is found, a link is none."""
    (tmp_path / "control.log").touch()
    started = b"[2026-11-22 10:00:00.000 Other    70] Startup\n"
    ended = (
        b"[2026-11-22 10:00:01.000 Server    70] MPS server requesting client {PID: 7, Context ID: 1} to exit\n"
        b"[2026-11-22 10:00:01.000 Server    70] Client termination succeeded.\n"
    )
    connected = b"[2026-11-22 10:00:02.000 Server    %d] Client {PID: %d, Context ID: 0} connected\n"
    (tmp_path / "server.log").write_bytes(connected % (70, 7) + started)  # what comes before a start counts too
    for name in ("training", "Training", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "training" / "server.log").write_bytes(ended)
    (tmp_path / "Training" / "server.log").write_bytes(connected % (72, 99))
    (tmp_path / "outside").rename(tmp_path.parent / "outside")
    (tmp_path.parent / "outside" / "server.log").write_bytes(connected % (73, 98))
    (tmp_path / "linked").symlink_to(tmp_path.parent / "outside")
    if os.geteuid() == 0:  # a stranger's in a directory that he may write to is none, and no doubt of the others
        (tmp_path / "strangers").mkdir()
        (tmp_path / "strangers" / "server.log").write_bytes(connected % (74, 97))
        os.chown(tmp_path / "strangers", 4321, 4321)
    watch = LogWatch(tmp_path, owners_of(None), protocol_of("v3", None))
    told = [(event.kind, event.server_pid, event.pid) for _, event in watch.history()]
    assert ("client_connected", 70, 7) in told
    assert ("terminate_succeeded", 70, 7) in told
    assert watch.believed
    assert not {97, 98, 99} & {pid for _, _, pid in told}
    watch.live(lambda: 0.0)
    (tmp_path / "serving").mkdir()
    (tmp_path / "serving" / "server.log").write_bytes(connected % (71, 8))
    assert [(e.kind, e.server_pid, e.pid) for _, e in watch.poll()] == [("client_connected", 71, 8)]
    assert tmp_path / "serving" / "server.log" in watch.paths
    watch.close()


def test_servers_that_are_gone_crowd_out_none_that_runs(tmp_path):
    """Each leaves its directory: by their names alone the first 64 were read, and the others left out in silence."""
    for number in range(80):
        (tmp_path / f"gone{number}").mkdir()
        (tmp_path / f"gone{number}" / "server.log").touch()
        os.utime(tmp_path / f"gone{number}" / "server.log", (1000 + number, 1000 + number))
    for name in ("training", "comes"):
        (tmp_path / name).mkdir()
    (tmp_path / "training" / "server.log").touch()
    found = [log.parent.name for log in server_logs(tmp_path, owners_of(None))]
    assert {"training", "comes", "gone79"} <= set(found)
    assert "gone0" not in found
    assert len(found) == 64


def test_history_is_whole_where_the_newest_marker_is_in_the_first_line(tmp_path):
    path = tmp_path / "control.log"
    path.write_bytes(b"[t] Starting\n" + b"x" * 4000 + b"\nlast\n")
    tail = LogTail(path, marker=b"Starting", history=1000, far=1 << 20)
    assert tail.poll()[0] == b"[t] Starting"
    assert tail.from_start
