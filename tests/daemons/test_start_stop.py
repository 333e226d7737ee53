"""Start and stop of daemons on the simulated stand-in: readiness, refusals in words, clients that go, stale files."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
import stat
import subprocess
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from contract.harness import eventually
from folders import daemons_below

from mpstui.control.channel import ControlChannel
from mpstui.control.mps import MpsControl
from mpstui.core import condition
from mpstui.core.model import Client, Condition, Daemon, ProcessKey, Server, Snapshot
from mpstui.core.trust import Speaker
from mpstui.daemons.directories import DaemonError, check_length, prepare
from mpstui.daemons.spec import DaemonSpec, Started
from mpstui.daemons.stale import clean
from mpstui.daemons.start import _launch, environment_of, place_of
from mpstui.observe.discovery import find_speaker
from mpstui.operations import daemons as stopping
from mpstui.operations.audit import AuditLog
from mpstui.operations.daemons import preview_stop
from mpstui.operations.lock import FILE, turn
from mpstui.operations.types import ExitStatus
from mpstui.sim.client import SimClient
from mpstui.sim.marker import control_binary
from mpstui.system.procfs import process_key, read_environment

from .carried_out import start, stop

SILENT = Condition("blocked", "silent")
BINARY = control_binary()
LIVING = {"control", "control_lock", "control_privileged", "log", "nvidia-cuda-mps-control.pid"}


def spec_in(place: Path, **fields: object) -> DaemonSpec:
    return replace(DaemonSpec(place / "mps_0", place / "mps_log_0"), **fields)


def test_a_name_in_the_directory_that_its_user_lets_nobody_look_at_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system in user space in the FIFO's place: it was a traceback, and a compute mode was not given back."""
    look = os.stat

    def closed(path: str | Path, **more: object) -> os.stat_result:
        if path == "log":
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return look(path, **more)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(os, "stat", closed)
    with pytest.raises(DaemonError, match="cannot be made or opened: Permission denied"):
        prepare(tmp_path / "p", 0o755)


def files(pipe_dir: Path) -> set[str]:
    """What MPS has there; beside it are a mark of the simulation and the file of mpstui's own turns."""
    return {path.name for path in pipe_dir.iterdir() if "simulated" not in path.name} - {FILE}


def control_of(spec: DaemonSpec, deadline: float = 120.0) -> MpsControl:
    return MpsControl(ControlChannel(spec.pipe_dir, BINARY, deadline=deadline))


def daemon_of(started: Started, *clients: SimClient) -> Daemon:
    """The daemon as a snapshot would tell of it."""
    assert started.pid
    key = process_key(started.pid)
    known = tuple(Client(process_key(c.pid) or ProcessKey(c.pid), user="alice", command="job") for c in clients)
    return Daemon(
        started.spec.pipe_dir,
        key=key,
        uid=os.geteuid(),
        condition=condition.ok(),
        servers=(Server(ProcessKey(1), clients=known),),
    )


async def killed(place: Path, started: Started) -> None:
    """kill -9, and wait until it is gone."""
    assert started.pid, "0 is the group of the tests"
    os.kill(started.pid, signal.SIGKILL)

    async def left() -> list[object]:
        # A process that ends has no command line before it lets go of its lock.
        holds = place_of(started.spec.pipe_dir).state == "running"
        return [*daemons_below(place), *(["its lock"] if holds else [])]

    await eventually(left, lambda found: not found)


async def test_a_daemon_is_started_where_it_answers_and_stopped_without_a_trace(place: Path, audit: AuditLog) -> None:
    spec = spec_in(place, multi_user=True, devices=("GPU-1", "GPU-2"), cpus=frozenset({min(os.sched_getaffinity(0))}))
    before = os.sched_getaffinity(0)
    started = await start(spec, BINARY, audit)
    assert (started.status, started.pid) == (ExitStatus.DONE, place_of(spec.pipe_dir).daemon.pid)
    assert files(spec.pipe_dir) == LIVING
    assert (await control_of(spec).get_server_list()).ok
    # What it was started with, and what mpstui kept of it.
    (process,) = daemons_below(place)
    assert process.multiuser
    assert os.sched_getaffinity(process.key.pid) == spec.cpus
    assert os.sched_getaffinity(0) == before
    assert os.getsid(process.key.pid) != os.getsid(0)
    assert stat.S_IMODE(spec.log_dir.stat().st_mode) == 0o755
    stopped = await stop(daemon_of(started), control_of(spec), audit)
    assert stopped.done
    assert stopped.details == ("stale files were removed: control, control_privileged",)
    assert files(spec.pipe_dir) == {"control_lock"}
    assert not daemons_below(place)
    entries = [json.loads(line) for line in audit.path.read_text().splitlines()]
    assert [(e["action"], e.get("status")) for e in entries] == [
        ("start_daemon", None),
        ("start_daemon", 0),
        ("stop_daemon", None),
        ("stop_daemon", 0),
    ]
    assert (entries[-1]["command"], entries[-1]["sent"]) == ("quit", True)


async def test_it_starts_again_where_it_was_stopped_or_killed(place: Path, audit: AuditLog) -> None:
    spec = spec_in(place)
    first = await start(spec, BINARY, audit)
    await killed(place, first)
    again = await start(spec, BINARY, audit)
    assert again.done
    assert "taken over" in again.details[0]


async def test_a_second_start_names_the_daemon_that_is_there(place: Path, audit: AuditLog) -> None:
    first = await start(spec_in(place), BINARY, audit)
    second = await start(spec_in(place), BINARY, audit)
    assert second.status is ExitStatus.REFUSED_BY_SAFETY_RULE
    assert f"as process {first.pid} in" in second.message


async def test_two_daemons_beside_each_other(place: Path, audit: AuditLog) -> None:
    specs = [DaemonSpec(place / f"mps_{i}", place / f"mps_log_{i}") for i in range(2)]
    results = await asyncio.gather(*(start(spec, BINARY, audit) for spec in specs))
    assert all(result.done for result in results)
    assert len({result.pid for result in results}) == 2


def test_the_environment_is_the_daemons_alone() -> None:
    inherited = {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "0", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "3"}
    spec = DaemonSpec(Path("/tmp/p"), Path("/tmp/l"), ("GPU-1", "GPU-2"))
    assert environment_of(spec, inherited) == {
        "PATH": "/bin",
        "CUDA_MPS_PIPE_DIRECTORY": "/tmp/p",
        "CUDA_MPS_LOG_DIRECTORY": "/tmp/l",
        "CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2",
    }
    assert "CUDA_VISIBLE_DEVICES" not in environment_of(replace(spec, devices=()), inherited)


async def test_what_of_the_environment_a_daemon_does_not_get_is_said(
    place: Path, audit: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control binary would take them as the daemon's defaults."""
    monkeypatch.setenv("CUDA_MPS_CLIENT_PRIORITY", "1")
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "30")
    started = await start(spec_in(place), BINARY, audit)
    assert [line for line in started.details if "environment" in line] == [
        "ignored from your environment: CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, CUDA_MPS_CLIENT_PRIORITY; "
        "to set limits, use mpstui set or a profile"
    ]


async def test_the_daemon_gets_the_devices_by_uuid(place: Path, audit: AuditLog) -> None:
    started = await start(spec_in(place, devices=("GPU-abc",)), BINARY, audit)
    assert (read_environment(started.pid) or {})["CUDA_VISIBLE_DEVICES"] == "GPU-abc"


def script(place: Path, text: str) -> tuple[str, ...]:
    path = place / "control-binary"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return (str(path),)


async def refused(
    place: Path, audit: AuditLog, binary: tuple[str, ...] = BINARY, deadline: float = 120.0, **fields: object
) -> Started:
    result = await start(spec_in(place, **fields), binary, audit, deadline=deadline)
    assert not result.done
    assert result.message.isprintable()
    assert not daemons_below(place)
    return result


@pytest.mark.parametrize(("name", "fits"), [("a" * 78, True), ("a" * 79, False), ("ü" * 39, True), ("ü" * 40, False)])
def test_a_daemon_takes_a_directory_of_83_bytes(name: str, fits: bool) -> None:
    with nullcontext() if fits else pytest.raises(DaemonError, match=r": 8[45] bytes, and MPS takes 83"):
        check_length(Path("/tmp", name))


def test_what_a_daemon_prints_needs_no_place_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """``daemon start`` was a traceback where /tmp was full, or read-only."""
    monkeypatch.setattr(tempfile, "_get_default_tempdir", lambda *_: pytest.fail("a place for files was looked for"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert _launch(("/bin/sh", "-c", "echo no GPU; exit 3"), {}, None, 300.0) == (3, "no GPU")


async def test_why_it_does_not_start(place: Path, audit: AuditLog) -> None:
    long = await refused(place, audit, pipe_dir=place / ("x" * 80))
    assert (long.status, "too long" in long.message) == (ExitStatus.USAGE, True)
    (place / "file").write_text("")
    assert "is not a directory" in (await refused(place, audit, pipe_dir=place / "file")).message
    assert "is not a directory" in (await refused(place, audit, pipe_dir=place / "file" / "sub")).message
    os.symlink(place, place / "link")
    assert "symbolic link" in (await refused(place, audit, pipe_dir=place / "link")).message
    assert "not be the same" in (await refused(place, audit, log_dir=place / "mps_0")).message
    nothing = await refused(place, audit, ("/nonexistent/mps",))
    assert (nothing.status, "cannot be run: it is not there" in nothing.message) == (ExitStatus.NO_DAEMON, True)
    assert "not to be had" in (await refused(place, audit, cpus=frozenset({4000}))).message
    failed = await refused(place, audit, script(place, "echo 'no\033[31m GPU' >&2; exit 3"))
    assert "did not start: no\\x1b[31m GPU" in failed.message
    silent = await refused(place, audit, script(place, "exit 3"))
    assert "exit status 3" in silent.message
    entries = [json.loads(line) for line in audit.path.read_text().splitlines()]
    assert len([e for e in entries if e["status"] is None]) == len([e for e in entries if e["status"]]) == 9


@pytest.mark.slow
async def test_a_binary_that_hangs_or_starts_nothing(place: Path, audit: AuditLog) -> None:
    hangs = await refused(place, audit, script(place, "exec sleep 100"), 0.5)
    assert "did not return in time" in hangs.message
    nothing = await refused(place, audit, script(place, "exit 0"), 2.0)
    assert (nothing.status, "does not answer" in nothing.message) == (ExitStatus.NO_ANSWER, True)


async def test_what_the_log_says_is_told(place: Path, audit: AuditLog) -> None:
    binary = script(place, 'echo "[x] Failed to bind" > "$CUDA_MPS_LOG_DIRECTORY/control.log"; exit 1')
    assert "Failed to bind" in (await refused(place, audit, binary)).message


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make directories of others")
async def test_directories_of_others_are_refused(place: Path, audit: AuditLog) -> None:
    (place / "mps_0").mkdir()
    os.chown(place / "mps_0", 12345, 12345)
    theirs = await refused(place, audit)
    assert (theirs.status, "belongs to UID 12345" in theirs.message) == (ExitStatus.NOT_PERMITTED, True)
    (place / "theirs").mkdir()
    os.chown(place / "theirs", 12345, 12345)
    assert "belongs to UID 12345" in (await refused(place, audit, pipe_dir=place / "theirs" / "p")).message


async def test_directories_open_to_others_are_closed(place: Path, audit: AuditLog) -> None:
    (place / "mps_0").mkdir()
    (place / "mps_0").chmod(0o777)
    started = await start(spec_in(place), BINARY, audit)
    assert started.done
    assert "no longer" in started.details[0]
    assert stat.S_IMODE((place / "mps_0").stat().st_mode) == 0o755
    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    result = await start(spec_in(place, pipe_dir=place / "open" / "p"), BINARY, audit)
    assert "changed by everybody" in result.message
    (place / "safe").mkdir()
    (place / "open" / "link").symlink_to(place / "safe")
    (place / "chain").symlink_to("open/link")
    for link in (place / "open" / "link", place / "chain"):  # whoever exchanges the link has the daemon elsewhere
        result = await start(spec_in(place, pipe_dir=link / "p"), BINARY, audit)
        assert f"{place}/open can be changed by everybody" in result.message
    (place / "fine").symlink_to("safe")
    assert (await start(spec_in(place, pipe_dir=place / "fine" / "p"), BINARY, audit)).done


async def test_directories_that_others_need_are_left_as_they_are(place: Path, audit: AuditLog) -> None:
    (place / "mps_0").mkdir()
    (place / "mps_0").chmod(0o1777)  # as /tmp
    shared = await refused(place, audit)
    assert (shared.status, "shared with others" in shared.message) == (ExitStatus.REFUSED_BY_SAFETY_RULE, True)
    assert stat.S_IMODE((place / "mps_0").stat().st_mode) == 0o1777
    root = await refused(place, audit, pipe_dir=Path("/"))
    assert (root.status, root.message) == (ExitStatus.USAGE, "/ is no directory for a daemon alone: choose another")
    if os.geteuid() == 0:
        (place / "mps_0").chmod(0o775)  # as /var/log
        (place / "mps_0" / "syslog").touch()
        os.chown(place / "mps_0" / "syslog", 12345, 12345)
        assert "shared with others" in (await refused(place, audit)).message
        assert stat.S_IMODE((place / "mps_0").stat().st_mode) == 0o775


async def test_read_only_starts_and_stops_nothing(place: Path, audit: AuditLog) -> None:
    spec = spec_in(place)
    assert (await start(spec, BINARY, audit, read_only=True)).status is ExitStatus.REFUSED_BY_SAFETY_RULE
    assert not spec.pipe_dir.exists()
    daemon = Daemon(spec.pipe_dir)
    result = await stop(daemon, control_of(spec), audit, read_only=True)
    assert result.status is ExitStatus.REFUSED_BY_SAFETY_RULE
    entries = [json.loads(line) for line in audit.path.read_text().splitlines()]
    assert [(e["action"], e["status"]) for e in entries] == [("start_daemon", 6), ("stop_daemon", 6)]


async def connected(spec: DaemonSpec, count: int) -> list[SimClient]:
    clients = [SimClient(spec.pipe_dir, "busy") for _ in range(count)]
    for client in clients:
        assert await asyncio.to_thread(client.wait_settled) == "connected"
    return clients


async def test_stop_waits_for_the_clients_and_shows_them_going(place: Path, audit: AuditLog) -> None:
    started = await start(spec_in(place), BINARY, audit)
    clients = await connected(started.spec, 2)
    told: list[str] = []
    try:
        daemon = daemon_of(started, *clients)
        shown = preview_stop(Snapshot(0.0, daemons=(daemon,)), daemon.pipe_dir, None, False)
        assert len(shown.hits) == 2
        assert "waits until 2 clients have ended" in shown.effect
        leaving = asyncio.create_task(stop(daemon, control_of(started.spec), audit, progress=told.append))
        clients[0].tell("exit")
        while not any(line.startswith("1 left: ") for line in told):
            assert not leaving.done()
            await asyncio.sleep(0.01)
        clients[1].tell("exit")
        result = await asyncio.wait_for(leaving, 120)
    finally:
        for client in clients:
            client.close()
    assert result.done
    assert told[0] == "quit"
    assert f"1 left: {clients[1].pid} alice job" in told


@pytest.mark.parametrize("options", [{"timeout": 1}, {"force": True}])
async def test_stop_with_a_limit_ends_the_work_of_clients(place: Path, audit: AuditLog, options: dict) -> None:
    started = await start(spec_in(place), BINARY, audit)
    clients = await connected(started.spec, 1)
    try:
        daemon = daemon_of(started, *clients)
        shown = preview_stop(
            Snapshot(0.0, daemons=(daemon,)), daemon.pipe_dir, options.get("timeout"), "force" in options
        )
        assert shown.effect == "1 client has at most 1 s to end; then their GPU work is ended with error 806"
        result = await stop(daemon, control_of(started.spec), audit, **options)
        assert result.done
        assert await asyncio.to_thread(clients[0].wait_status, "lost")
        assert clients[0].error == 806
    finally:
        clients[0].close()


@pytest.mark.slow
async def test_a_daemon_that_answers_nobody_is_ended_only_by_force(
    place: Path, audit: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "mpstui.operations.daemons._LEAVING", 4.0
    )  # half of it for SIGTERM, which a stopped process keeps
    started = await start(spec_in(place), BINARY, audit)
    daemon = daemon_of(started)
    os.kill(started.pid, signal.SIGSTOP)
    control = MpsControl(ControlChannel(started.spec.pipe_dir, BINARY, deadline=0.3, terminate_deadline=0.3))
    assert (await stop(daemon, control, audit, timeout=0)).status is ExitStatus.NO_ANSWER
    blocked = Snapshot(0.0, daemons=(replace(daemon, condition=SILENT),))
    assert "--force ends" in (preview_stop(blocked, daemon.pipe_dir, None, False).error or "")
    forced = preview_stop(blocked, daemon.pipe_dir, None, True)
    assert (forced.error, "the clients are not known" in forced.effect) == (None, False)  # it has a server
    unread = Snapshot(0.0, daemons=(replace(daemon, condition=SILENT, servers=()),))
    assert "the clients are not known" in preview_stop(unread, daemon.pipe_dir, None, True).effect
    logged = Snapshot(0.0, daemons=(replace(daemon, condition=SILENT, servers=(), watch="logs"),))
    assert "no client is connected" in preview_stop(logged, daemon.pipe_dir, None, True).effect
    result = await stop(daemon, control, audit, force=True)
    assert result.done
    assert "ended by SIGKILL" in result.message
    assert not daemons_below(place)
    assert files(started.spec.pipe_dir) == {"control_lock"}


async def unanswering(place: Path, audit: AuditLog) -> tuple[Started, MpsControl]:
    started = await start(spec_in(place), BINARY, audit)
    assert started.pid, "0 is the group of the tests"
    os.kill(started.pid, signal.SIGSTOP)
    return started, MpsControl(ControlChannel(started.spec.pipe_dir, BINARY, deadline=0.3, terminate_deadline=0.3))


@pytest.mark.slow
async def test_force_waits_for_whoever_changes_the_daemon(
    place: Path, audit: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mpstui.operations.lock.WAIT", 0.0)
    started, control = await unanswering(place, audit)
    async with turn(started.spec.pipe_dir, find_speaker(started.spec.pipe_dir)):
        result = await stop(daemon_of(started), control, audit, force=True)
        assert result.status is ExitStatus.NO_ANSWER
        assert "is changing this daemon" in result.message
    assert process_key(started.pid or 0) == daemon_of(started).key, "it lives"
    assert (await stop(daemon_of(started), control, audit, force=True)).done


async def test_force_ends_no_process_on_the_word_of_a_directory_that_anybody_can_exchange(
    place: Path, audit: AuditLog
) -> None:
    started, control = await unanswering(place, audit)
    nobody = Speaker(None, "its sockets belong to mallory")
    result = await stop(daemon_of(started), control, audit, force=True, speaker=lambda _: nobody)
    assert result.status is ExitStatus.REFUSED_BY_SAFETY_RULE
    assert "the process lives" in result.message
    assert "mpstui ends no process for this daemon: its sockets belong to mallory" in result.message
    assert process_key(started.pid or 0) == daemon_of(started).key, "it lives"


async def test_force_ends_the_process_that_listens_there_and_no_other(place: Path, audit: AuditLog) -> None:
    started, control = await unanswering(place, audit)
    with await asyncio.to_thread(subprocess.Popen, ["sleep", "600"]) as other:
        try:
            named = replace(daemon_of(started), key=process_key(other.pid))
            result = await stop(named, control, audit, force=True)
            assert result.status is ExitStatus.REFUSED_BY_SAFETY_RULE
            assert f"process {other.pid} is not the one that listens" in result.message
            assert other.poll() is None
        finally:
            other.kill()


async def test_nothing_is_cleaned_while_somebody_owns_it(place: Path, audit: AuditLog) -> None:
    started = await start(spec_in(place), BINARY, audit)
    pipe_dir = started.spec.pipe_dir
    assert "a daemon runs there" in clean(pipe_dir)[0]
    assert files(pipe_dir) == LIVING
    await killed(place, started)
    assert clean(pipe_dir)[0].startswith("stale files were removed")
    assert clean(pipe_dir) == ()
    assert files(pipe_dir) == {"control_lock"}


def test_only_what_a_daemon_leaves_is_cleaned(place: Path) -> None:
    pipe_dir = place / "mps_0"
    pipe_dir.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(pipe_dir / "control_privileged"))
    (pipe_dir / "control").write_text("a file, not a socket")
    os.symlink("/etc/passwd", pipe_dir / "nvidia-cuda-mps-control.pid")
    (pipe_dir / "notes.txt").write_text("mine")
    removed, left = clean(pipe_dir)
    assert removed == "stale files were removed: control_privileged"
    assert left == "nvidia-cuda-mps-control.pid is a link to /etc/passwd, which is left"
    assert files(pipe_dir) == {"control", "nvidia-cuda-mps-control.pid", "notes.txt"}
    assert clean(place / "none") == ()


def test_the_question_names_the_limits_that_go_with_the_daemon() -> None:
    from mpstui.core.model import Daemon, ProcessKey, Server
    from mpstui.operations.daemons import limits_lost

    plain = Daemon(Path("/tmp/mps_0"), ProcessKey(480, 1), default_active_thread_percentage=100.0)
    assert limits_lost(plain) == ""
    server = Server(ProcessKey(7, 1), active_thread_percentage=25.0, pinned_mem_limits={"0": 2 << 30, "1": 1 << 30})
    limited = replace(
        plain,
        default_active_thread_percentage=50.0,
        default_pinned_mem_limits={"0": 2 << 30},
        default_client_priority=1,
        servers=(server,),
    )
    assert limits_lost(limited) == (
        "its limits are lost (the default: 50 %, 2.0 GiB on device 0, priority below normal; "
        "server 7: 25 %, 1.0 GiB on device 1); mpstui profile save NAME saves them for the next daemon"
    )
    assert limits_lost(replace(limited, servers=(), default_client_priority=None)).count(";") == 1


def test_with_static_partitions_it_names_them_and_no_percentage_which_has_no_effect() -> None:
    from mpstui.core.model import Daemon, PartitionTable, ProcessKey, Server, SmPartition
    from mpstui.operations.daemons import limits_lost

    made = PartitionTable(partitions=(SmPartition("GPU-1", "a", 3), SmPartition("GPU-1", "b")))
    static = Daemon(
        Path("/tmp/mps_0"),
        ProcessKey(480, 1),
        default_active_thread_percentage=50.0,
        servers=(Server(ProcessKey(7, 1), active_thread_percentage=25.0),),
        static_partitioning=True,
        partitions=made,
    )
    assert limits_lost(static).startswith("its partitions are lost (2 static partitions of 3, — chunks); ")
    limited = limits_lost(replace(static, default_client_priority=1))
    assert limited.startswith("its limits and partitions are lost (the default: priority below normal; 2 static ")
    assert limits_lost(replace(static, partitions=None)) == ""


async def test_of_many_that_are_left_some_are_named_and_the_others_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = tuple(Client(ProcessKey(pid, 1), user="alice", command="train") for pid in range(1, 9))
    away = (Client(ProcessKey(70), local=False), Client(ProcessKey(71), local=False, pid_here=6))
    daemon = Daemon(Path("/p"), servers=(Server(ProcessKey(100, 1), clients=clients + away),))
    living, told = {1, 2, 3, 4, 5, 6, 7}, []
    monkeypatch.setattr(stopping, "_LOOK", 0)
    monkeypatch.setattr(stopping, "process_key", lambda pid: ProcessKey(pid, 1) if pid in living else None)
    quit_ = asyncio.create_task(asyncio.Event().wait())

    def progress(text: str) -> None:
        told.append(text)
        living.difference_update({6, 7})
        if len(told) == 2:
            quit_.cancel()

    await stopping._watch(quit_, daemon, progress)
    assert [text[:7] for text in told] == ["9 left:", "6 left:"], "whose end cannot be seen is not said to have ended"
    assert [text.count("alice") for text in told] == [5, 5]
    assert [text.rpartition(" and ")[2] for text in told] == ["4 more", "1 more"]
