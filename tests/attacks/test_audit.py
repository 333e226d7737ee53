"""The audit log in strange places: whose it is, whether a line is whole, and what is done when it cannot be written."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import warm

from mpstui.core import condition
from mpstui.core.model import Daemon, Event, ProcessKey, Snapshot
from mpstui.history.attribution import AuditTrail
from mpstui.operations import audit as audit_module
from mpstui.operations.audit import AuditLog, default_path
from mpstui.operations.runner import OperationRunner
from mpstui.operations.types import ExitStatus, Request
from mpstui.sim.node import SimNode
from mpstui.system.procfs import process_key
from tests.attacks.conftest import Stranger
from tests.daemons.carried_out import stop
from tests.operations import fakes
from tests.operations.fakes import FakeNode

PIPE = Path("/tmp/mps_0")
KEY = (4711, 1)


def sent(log: AuditLog) -> str | None:
    return log.write(action="x", command="terminate_client 1 4711", client=[4711, 1], boot_id="b", sent=True)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def busy() -> Iterator[ProcessKey]:
    """A process that a test would see ended."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    key = process_key(process.pid)
    assert key is not None
    yield key
    assert process.poll() is None, "nothing was signalled"
    process.kill()
    process.wait()


def a_fifo(path: Path) -> None:
    os.mkfifo(path, 0o600)


def a_fifo_with_a_reader(path: Path) -> None:
    os.mkfifo(path, 0o600)
    KEPT.append(os.open(path, os.O_RDONLY | os.O_NONBLOCK))


def a_directory(path: Path) -> None:
    path.mkdir()


def a_socket(path: Path) -> None:
    short = socket.socket(socket.AF_UNIX)
    here = os.open(path.parent, os.O_RDONLY)
    short.bind(f"/proc/self/fd/{here}/{path.name}")
    os.close(here)
    short.close()


def a_link(path: Path) -> None:
    (path.parent / "target").write_text("kept\n")
    path.symlink_to(path.parent / "target")


def a_link_to_nowhere(path: Path) -> None:
    path.symlink_to(path.parent / "made-by-nobody")


def a_second_name(path: Path) -> None:
    path.write_text("")
    os.link(path, path.parent / "other")


def for_all_to_write(path: Path) -> None:
    path.write_text("")
    path.chmod(0o666)


def for_a_group_to_write(path: Path) -> None:
    path.write_text("")
    path.chmod(0o660)


def below_what_all_may_write(path: Path) -> None:
    path.parent.chmod(0o777)


def the_full_device(path: Path) -> None:
    os.mknod(path, 0o600 | 0o020000, os.makedev(1, 7))


KEPT: list[int] = []
ODD = [
    a_fifo,
    a_fifo_with_a_reader,
    a_directory,
    a_socket,
    a_link,
    a_link_to_nowhere,
    a_second_name,
    for_all_to_write,
    for_a_group_to_write,
    below_what_all_may_write,
    pytest.param(the_full_device, marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a device")),
]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    yield folder
    while KEPT:
        os.close(KEPT.pop())


@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_file_of_ones_own_is_not_written_or_believed(place: Path, odd: Callable[[Path], None]) -> None:
    path = place / "audit.jsonl"
    odd(path)
    log = AuditLog(path)
    before = {p.name: p.read_text() for p in place.iterdir() if p.is_file() and not p.is_symlink()}
    trouble = sent(log)
    assert trouble is not None
    assert "could not be written" in trouble
    assert {p.name: p.read_text() for p in place.iterdir() if p.is_file() and not p.is_symlink()} == before
    assert log.terminate_was_sent("b", KEY), "where it cannot be read, not to send is the safe side"


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone has a file that is root's")
def test_to_a_user_a_file_of_roots_is_not_his_own(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "audit.jsonl").touch(0o600)
    monkeypatch.setattr(os, "geteuid", lambda: 64101)
    assert "it is not this user's own" in (sent(AuditLog(place / "audit.jsonl")) or "")
    (place / "audit.jsonl").chmod(0o620)
    assert "others may write to it (mode 0620)" in (sent(AuditLog(place / "audit.jsonl")) or "")


@pytest.mark.parametrize("odd", ODD)
async def test_work_is_not_ended_without_a_line_before_it(
    place: Path, busy: ProcessKey, odd: Callable[[Path], None]
) -> None:
    odd(place / "audit.jsonl")
    snapshot = node_with(busy)
    fake = FakeNode(snapshot)
    for name in ("terminate_client", "terminate_and_kill"):
        result = await OperationRunner(fake, AuditLog(place / "audit.jsonl")).execute(
            Request(name, PIPE, clients=(busy,)), snapshot
        )
        assert result.status is ExitStatus.REFUSED_BY_SAFETY_RULE, result
        assert "nothing was sent" in result.message
        assert "could not be written" in result.message
        assert "MPSTUI_AUDIT_LOG" in (result.remedy or "")
    assert not [command for command in fake.control.sent if command.startswith("terminate")]


def node_with(key: ProcessKey) -> Snapshot:
    return fakes.node(fakes.client(key.pid, ticks=key.start_ticks, uid=os.geteuid(), user="root"))


async def test_a_daemon_is_not_stopped_without_a_line_before_it(place: Path) -> None:
    a_directory(place / "audit.jsonl")
    fake = FakeNode(Snapshot(0.0))
    result = await stop(Daemon(PIPE, condition=condition.ok()), fake.control, AuditLog(place / "audit.jsonl"))
    assert (result.status, fake.control.sent) == (ExitStatus.REFUSED_BY_SAFETY_RULE, [])
    assert "nothing was sent" in result.message


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("room", [0, 10])
def test_a_line_is_whole_or_said_to_be_torn_and_the_next_one_stands_alone(
    place: Path, monkeypatch: pytest.MonkeyPatch, error: int, room: int
) -> None:
    log = AuditLog(place / "audit.jsonl")
    assert sent(log) is None
    real, left = os.write, [room]

    def write(descriptor: int, data: bytes) -> int:
        if left[0] == 0:
            raise OSError(error, os.strerror(error))
        data, left[0] = data[: left[0]], 0
        return real(descriptor, data)

    monkeypatch.setattr(audit_module.os, "write", write)
    trouble = log.write(action="second")
    monkeypatch.setattr(audit_module.os, "write", real)
    assert trouble is not None
    assert os.strerror(error) in trouble
    assert ("torn" in trouble) == (room > 0)
    assert log.write(action="third") is None
    found = (place / "audit.jsonl").read_bytes().splitlines()
    assert json.loads(found[-1])["action"] == "third"
    assert len(found) == (3 if room else 2)
    assert log.terminate_was_sent("b", KEY)


def test_a_line_that_takes_several_writes_is_whole(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(audit_module.os, "write", lambda descriptor, data: real(descriptor, data[:7]))
    log = AuditLog(place / "audit.jsonl")
    assert log.write(action="long", result="x" * 500) is None
    assert lines(place / "audit.jsonl")[0]["result"] == "x" * 500


@pytest.fixture
def tiny(place: Path) -> Iterator[Path]:
    """A file system of four pages."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts a file system")
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k,mode=700", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", place], check=True)


async def test_a_full_file_system(tiny: Path, busy: ProcessKey) -> None:
    log = AuditLog(tiny / "audit.jsonl")
    assert sent(log) is None
    with (tiny / "ballast").open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while ballast.write(b"x" * 4096):
            pass
    # What is left of the log's own page is filled, and the line that does not fit any more is torn.
    troubles = [trouble for _ in range(100) if (trouble := log.write(action="fill")) is not None]
    assert "is torn" in troubles[0]
    assert all("No space left" in trouble for trouble in troubles)
    snapshot = node_with(busy)
    fake = FakeNode(snapshot)
    harm = await OperationRunner(fake, log).execute(Request("terminate_client", PIPE, clients=(busy,)), snapshot)
    assert harm.status is ExitStatus.REFUSED_BY_SAFETY_RULE
    assert "No space left" in harm.message
    assert fake.control.sent == []
    change = await OperationRunner(fake, log).execute(Request("set_client_priority", PIPE, "1"), snapshot)
    assert change.status is ExitStatus.DONE
    assert any("No space left" in line for line in change.details), "it goes ahead and says so"
    (tiny / "ballast").unlink()
    assert log.write(action="again") is None
    assert json.loads((tiny / "audit.jsonl").read_bytes().splitlines()[-1])["action"] == "again"
    assert log.terminate_was_sent("b", KEY)


def test_roots_log_is_not_kept_where_a_stranger_could_exchange_it(
    stranger: Stranger, crowd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # ~/.local/state of the user that called sudo, which may leave HOME as it was.
    home = stranger.home
    chosen = default_path({"HOME": str(home)})
    assert home not in chosen.parents
    trouble = AuditLog(home / ".local/state/mpstui/audit.jsonl").write(action="x")
    assert trouble is not None
    assert f"belongs to UID {stranger.uid}" in trouble
    assert not (home / ".local").exists(), "nothing is made there"
    # A file that he has made in time.
    stranger.run("touch", crowd / "audit.jsonl")
    assert f"belongs to UID {stranger.uid}" in (AuditLog(crowd / "audit.jsonl").write(action="x") or "")
    # And one that he wrote: who did it is not taken from it, nor that a terminate was sent.
    event = Event("limit_set", time=1.0, values={"command": "set_x 1"}, detail="x is 1")
    entry = {"time": "1970-01-01T00:00:01+00:00", "login": "bob", "command": "set_x 1"}
    stranger.python("import sys; open(sys.argv[1], 'w').write(sys.argv[2])", crowd / "audit.jsonl", json.dumps(entry))
    assert AuditTrail(crowd / "audit.jsonl").named(event) == event
    os.chown(crowd / "audit.jsonl", 0, 0)
    assert AuditTrail(crowd / "audit.jsonl").named(event).values["by"] == "bob"


# Refusals of the command line.


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimNode]:
    folder = Path("/tmp") / f"mpa-{os.getpid()}"
    folder.mkdir(mode=0o700)
    running = SimNode.start(folder)
    yield running
    running.stop()
    shutil.rmtree(folder, ignore_errors=True)


REFUSED: list[tuple[tuple[str, ...], int]] = [
    (("set", "active-thread-percentage", "fifty", "--default"), 2),
    (("set", "active-thread-percentage"), 2),
    (("set", "nonsense", "1"), 2),
    (("set", "client-priority", "1", "--demo"), 2),
    (("terminate",), 2),
    (("terminate", "x"), 2),
    (("terminate", "1", "--yes"), 6),
    (("terminate", "99999999", "--kill", "--yes"), 6),
    (("--read-only", "set", "client-priority", "1"), 6),
    (("daemon", "stop"), 6),
    (("daemon", "stop", "--timeout", "-1"), 2),
    (("daemon", "start"), 6),
    (("daemon", "start", "--cpu", "x"), 2),
    (("--read-only", "daemon", "start"), 6),
    (("plan", "--clients", "x", "--apply"), 2),
    (("plan", "--apply"), 2),
    (("profile", "apply", "missing"), 2),
]


@pytest.mark.parametrize(("words", "status"), REFUSED)
def test_a_refusal_before_the_action_layer_leaves_a_line(
    node: SimNode, tmp_path: Path, words: tuple[str, ...], status: int
) -> None:
    log = tmp_path / "audit.jsonl"
    environment = {**os.environ, "MPSTUI_AUDIT_LOG": str(log)}
    done = warm.run(*words, "--pipe-dir", node.pipe_dir, env=environment)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    last = lines(log)[-1]
    assert last["status"] == status
    assert last["result"]
    assert last["login"]


def test_what_changes_nothing_leaves_no_line(node: SimNode, tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    environment = {**os.environ, "MPSTUI_AUDIT_LOG": str(log)}
    for words in (["status"], ["status", "--nonsense"], ["set", "--help"], ["plan", "--clients", "x"]):
        warm.run(*words, *([] if "--help" in words else ["--pipe-dir", node.pipe_dir]), env=environment)
    assert not log.exists()
