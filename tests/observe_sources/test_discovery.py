"""Pipe directories in every state, with real processes that carry a control daemon's name."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest

from mpstui.control.answer import Outcome
from mpstui.core.model import ProcessKey
from mpstui.core.trust import Speaker
from mpstui.daemons import stale
from mpstui.daemons.stale import clean
from mpstui.observe import discovery
from mpstui.observe.discovery import (
    DaemonProcess,
    Place,
    binary_version,
    daemon_process,
    discover,
    file_id,
    find_speaker,
    how_to_start,
    running_daemons,
    settled,
)
from mpstui.observe.problems import Probe, condition_of
from mpstui.observe.state import DaemonState
from mpstui.system.procfs import process_key
from mpstui.system.trusted import owners_of
from tests.observe_sources.places import control_log

DATA = Path(__file__).parents[1] / "data"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")

STAND_IN = """
import os, socket, sys
directory = os.environ.get("MAKE", "")
if directory:
    os.makedirs(directory, exist_ok=True)
    for name in ("control", "control_privileged"):
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        os.chdir(directory)
        listening.bind(name if len(directory) > 80 else directory + "/" + name)
        listening.listen()
        globals()[name] = listening
    open("control_lock", "w").close()
    os.mkfifo("log")
    with open("nvidia-cuda-mps-control.pid", "w") as file:
        file.write(str(os.getpid()))
if uid := os.environ.get("BECOME"):
    os.setuid(int(uid))
print("ready", flush=True)
sys.stdin.read()
"""
Start = Callable[..., "Popen[bytes]"]


@pytest.fixture(autouse=True)
def with_others_on_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever daemons run beside the tests crowd out none of theirs."""
    monkeypatch.setattr(discovery, "_PLACES_LIMIT", 10_000)


@pytest.fixture(autouse=True)
def no_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the kernel would tell its version, whatever GPUs this machine has."""
    monkeypatch.setattr(discovery, "_KERNEL_DRIVER", os.fspath(tmp_path / "version"))
    return tmp_path / "version"


@pytest.fixture
def script(room: Path) -> Path:
    path = room / "bin" / "nvidia-cuda-mps-control"
    path.parent.mkdir()
    path.write_text(f"#!{sys.executable} -IS\n{STAND_IN}")
    path.chmod(0o755)
    return path


@pytest.fixture
def start(spawn: Start, script: Path) -> Start:
    """Starts a stand-in on a directory, by its own name or through an interpreter."""

    def begin(
        pipe_dir: Path | None, *options: str, log_dir: Path | None = None, make: bool = True, become: int = 0
    ) -> Popen[bytes]:
        environment = {"PATH": os.environ["PATH"]}
        if pipe_dir is not None:
            environment["CUDA_MPS_PIPE_DIRECTORY"] = str(pipe_dir)
            if make:
                environment["MAKE"] = str(pipe_dir)
        if log_dir is not None:
            environment["CUDA_MPS_LOG_DIRECTORY"] = str(log_dir)
        if become:
            environment["BECOME"] = str(become)
        return spawn([sys.executable, "-I", "-S", script, *(options or ("-d",))], env=environment)

    return begin


def one(pipe_dir: Path, *log_dirs: Path) -> Place:
    (place,) = discover([pipe_dir], log_dirs, env={})
    assert place.pipe_dir == pipe_dir
    return place


def test_a_running_daemon(room: Path, start: Start) -> None:
    logs = control_log(room / "elsewhere")
    daemon = start(room / "p", "-d", "-M", log_dir=logs)
    (logs / "control.log").write_text(
        "[2026-11-20 21:24:23.049 Control     1] CUDA MPS Control binary version: 12080\n"
        f"[2026-11-20 21:24:23.049 Control {daemon.pid:5}] CUDA MPS Control binary version: 13000\n"
        "[2026-11-20 21:24:23.049 Control     1] CUDA MPS Control binary version: 12090\n"
    )
    place = one(room / "p")
    assert (place.state, place.daemon, place.uid) == ("running", process_key(daemon.pid), os.geteuid())
    assert (place.protocol, place.multiuser, place.version) == ("legacy", True, "13000")
    assert place.log_dir == logs
    assert place.start_time == pytest.approx(time.time(), abs=600)
    assert (place.detail, place.remedy) == ("", "")
    assert one(room / "p") == place, "nothing changes while nothing happens"


def test_it_is_found_by_its_environment_and_by_its_own_name(room: Path, script: Path, spawn: Start) -> None:
    pipe_dir = room / "p"
    pipe_dir.mkdir()
    daemon = spawn([script, "-f"], env={"CUDA_MPS_PIPE_DIRECTORY": str(pipe_dir), "CUDA_MPS_PROTOCOL_VERSION": "3"})
    place = next(p for p in discover(env={}, well_known=()) if p.pipe_dir == pipe_dir)
    assert (place.state, place.daemon, place.protocol) == ("running", process_key(daemon.pid), "v3")


@pytest.mark.parametrize(
    ("given", "kernel", "logged", "protocol"),
    [
        ("3", "580.159.04", None, "legacy"),
        ("three", "470.256.02", None, "legacy"),
        ("3", None, "13000", "legacy"),
        ("4", "580.159.04", "13000", "legacy"),
        ("3", None, None, "v3"),
        ("4", None, None, "unknown"),
        ("4", None, "13040", "unknown"),
        ("3", "580.159.04", "13040", "v3"),
        ("3", "615.71", "13000", "v3"),
        ("3", "unheard of", None, "v3"),
    ],
)
def test_a_driver_before_protocol_3_does_not_know_its_variable(
    room: Path,
    script: Path,
    spawn: Start,
    no_driver: Path,
    given: str,
    kernel: str | None,
    logged: str | None,
    protocol: str,
) -> None:
    """A stray one made mpstui show such a daemon read-only. It is passed over where a version is known, and no other
    one says that it may be right."""
    if kernel is not None:
        no_driver.write_text(f"{kernel}\n")
    logs = control_log(room / "logs")
    directories = {"CUDA_MPS_PIPE_DIRECTORY": str(room / "p"), "CUDA_MPS_LOG_DIRECTORY": str(logs)}
    daemon = spawn([script, "-d"], env={**directories, "MAKE": str(room / "p"), "CUDA_MPS_PROTOCOL_VERSION": given})
    if logged is not None:
        control_log(
            logs, f"[2026-11-20 21:24:23.049 Control {daemon.pid:5}] CUDA MPS Control binary version: {logged}\n"
        )
    assert one(room / "p").protocol == protocol


def test_where_such_a_daemon_has_no_directory_it_has_that_of_its_protocol(
    room: Path, start: Start, no_driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_driver.write_text("580.159.04\n")
    daemon = start(room / "p")  # of its own: others on the machine look in the usual one
    monkeypatch.setattr(discovery, "read_environment", lambda _pid: {"CUDA_MPS_PROTOCOL_VERSION": "3"})
    found = daemon_process(daemon.pid)
    assert found is not None
    assert found.pipe_dir == discovery.DEFAULT_PIPE_DIR
    no_driver.unlink()
    found = daemon_process(daemon.pid)
    assert found is not None
    assert found.pipe_dir == (discovery.DEFAULT_V3_PIPE_DIR if os.geteuid() == 0 else discovery.DEFAULT_PIPE_DIR)


def test_a_session_is_no_daemon_and_neither_is_a_zombie(room: Path, start: Start) -> None:
    session = start(room / "p", "ps")
    assert daemon_process(session.pid) is None
    place = one(room / "p")
    assert (place.state, place.daemon) == ("running", None), "somebody has its sockets, and who that is is not seen"
    session.kill()
    session.wait()
    assert one(room / "p").state == "stale"
    begun = time.strftime("%Y-%m-%d ")
    daemon = start(room / "q")
    key = process_key(daemon.pid)
    assert key in [found.key for found in running_daemons()]
    daemon.kill()
    os.waitid(os.P_PID, daemon.pid, os.WEXITED | os.WNOWAIT)
    assert key not in [found.key for found in running_daemons()]
    place = one(room / "q")
    assert (place.state, place.daemon) == ("stale", None)
    assert "control, control_privileged, control_lock, log, nvidia-cuda-mps-control.pid left behind" in place.detail
    assert any(day in place.detail for day in (begun, time.strftime("%Y-%m-%d "))), "it may be midnight"
    assert f"killed or crashed (process {daemon.pid} is no control daemon)" in place.detail
    assert f"CUDA_MPS_PIPE_DIRECTORY={room}/q nvidia-cuda-mps-control -d" in place.remedy


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives a directory away")
@pytest.mark.parametrize("files", [(), ("control",), ("control", "control_lock", "nvidia-cuda-mps-control.pid")])
def test_what_lies_in_a_strangers_directory_is_no_daemons_trace(room: Path, files: tuple[str, ...]) -> None:
    """Everybody can put an empty file there; root was told of a daemon that had ended, with a command to start one."""
    (room / "control").unlink(missing_ok=True)
    for name in files:
        (room / name).touch()
    os.chown(room, 64101, -1)
    try:
        place = one(room)
    finally:
        os.chown(room, 0, -1)
    assert (place.state, place.uid, place.daemon) == ("stale" if files else "absent", 64101, None)
    assert "belongs to UID 64101" in place.detail
    assert "started" not in place.detail
    assert "killed" not in place.detail
    assert "nvidia-cuda-mps-control -d" not in place.remedy
    assert "others could take its place" in place.remedy


def test_what_quit_leaves_is_stale_but_no_crash(room: Path) -> None:
    for name in ("control", "control_privileged"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as bound:
            bound.bind(str(room / name))
    (room / "control_lock").touch()
    control_log(room.with_name(room.name + "_log"))
    try:
        place = one(room)
    finally:
        shutil.rmtree(room.with_name(room.name + "_log"))
    assert place.state == "stale"
    assert "control, control_privileged, control_lock left behind by one started" in place.detail
    assert "last heard of" in place.detail
    assert "killed" not in place.detail


def test_a_pid_file_that_names_another_process_proves_nothing(room: Path, waiter: Start) -> None:
    (room / "nvidia-cuda-mps-control.pid").write_text(str(waiter().pid))
    assert one(room).state == "stale"


@pytest.mark.parametrize("text", [b"", b"x" * 5000, b"-1", b"99999999999999999999", b"\xff\xfe", "²".encode(), b"0"])
def test_a_pid_file_of_garbage(room: Path, text: bytes) -> None:
    (room / "nvidia-cuda-mps-control.pid").write_bytes(text)
    assert one(room).state == "stale"


def test_files_that_would_hang_or_lead_elsewhere(room: Path, tmp_path: Path) -> None:
    os.mkfifo(room / "nvidia-cuda-mps-control.pid")
    os.mkfifo(room / "control_lock")
    os.mkfifo(room / "control.log")
    assert one(room).state == "stale"
    assert one(room).log_dir is None
    (room / "control_lock").unlink()
    (room / "control_lock").symlink_to("/dev/zero")
    assert binary_version(room, None, owners_of(None)) is None
    assert one(room).state == "stale"


def test_a_place_that_is_not_there(room: Path) -> None:
    place = one(room / "none")
    assert (place.state, place.detail) == ("absent", f"{room}/none does not exist")
    assert "nvidia-cuda-mps-control -d" in place.remedy
    (room / "link").symlink_to(room / "none")
    assert "symbolic link to nowhere" in one(room / "link").detail
    (room / "loop").symlink_to(room / "loop")
    assert (one(room / "loop").state, os.strerror(errno.ELOOP) in one(room / "loop").detail) == ("unusable", True)


def test_a_place_that_is_no_directory(room: Path) -> None:
    (room / "file").touch()
    assert (one(room / "file").state, one(room / "file").detail) == ("unusable", f"{room}/file is not a directory")
    assert one(room / "file" / "below").state == "unusable"


def test_a_place_that_holds_nothing_of_mps(room: Path) -> None:
    (room / "something").touch()
    assert (one(room).state, one(room).detail) == ("absent", f"{room} has no files of MPS")


def test_a_path_that_is_too_long(room: Path, start: Start) -> None:
    assert one(Path("/tmp/" + "a" * 78)).state == "absent"
    place = one(Path("/tmp/" + "a" * 79))
    assert place.state == "unusable"
    assert "84 bytes" in place.detail
    assert "too long" in one(Path("/tmp/" + "ü" * 2500)).detail
    long = room / ("l" * (84 - len(str(room)) - 1))
    start(long)
    assert one(long).state == "running", "one that runs proves that it fits"


def test_a_hostile_path_is_shown_as_text(room: Path) -> None:
    place = one(room / "\x1b[2J\n[red]")
    assert "\\x1b[2J\\n[red]" in place.detail
    assert (place.detail + place.remedy).isprintable()
    assert one(room / "a\0b").state == "unusable"


@needs_root
def test_a_place_of_somebody_else_is_named_as_such(room: Path, waiter: Start) -> None:
    closed = room / "closed"
    closed.mkdir(mode=0o700)
    (closed / "below").mkdir()
    root = Path(discovery.__file__).parents[2]
    code = f"""
sys.path.insert(0, {str(root)!r})
import pwd
from pathlib import Path
from mpstui.observe.discovery import discover
discover([Path({str(room)!r}) / "\\n"], env={{}})  # the interpreter's own files may be out of reach afterwards
os.setgid(65534)
os.setuid(65534)
place, = discover([Path({str(closed)!r})], env={{}})
assert place.state == "closed" and place.uid == 0, place
assert "belongs to root and is closed to you (mode 0700)" in place.detail, place
assert place.remedy == "run mpstui as root", place
place, = discover([Path({str(closed / "below")!r})], env={{}})
assert place.state == "closed" and "a directory above it" in place.detail, place
"""
    waiter(code)


@pytest.mark.slow
@needs_root
def test_another_user_finds_the_daemon_whose_environment_is_closed(room: Path, start: Start, waiter: Start) -> None:
    pipe_dir = room / "p"
    daemon = start(pipe_dir)
    logs = control_log(room / "p_log")
    root = Path(discovery.__file__).parents[2]
    code = f"""
sys.path.insert(0, {str(root)!r})
import pwd
from pathlib import Path
from mpstui.observe.discovery import daemon_process
from mpstui.observe.discovery import discover
discover([Path({str(room)!r}) / "\\n"], env={{}})
os.setgid(65534)
os.setuid(65534)
assert daemon_process({daemon.pid}).pipe_dir is None
for places in (discover([Path({str(pipe_dir)!r})], env={{}}), discover(env={{}}, well_known=())):
    place, = [p for p in places if p.pipe_dir == Path({str(pipe_dir)!r})]
    assert place.state == "running" and place.daemon.pid == {daemon.pid} and place.uid == 0, place
    assert place.detail == "run by root: only root may change its settings", place
    assert place.log_dir == Path({str(logs)!r}), place
place, = discover([Path({str(room / "none")!r})], env={{}})
assert "(one runs " in place.remedy, place
"""
    waiter(code)


@needs_root
def test_a_pid_file_cannot_claim_the_daemon_of_somebody_else(room: Path, start: Start, waiter: Start) -> None:
    """The directory's privileged socket is not the daemon's user's, so that daemon is not here."""
    daemon = start(room / "p")
    trap = room / "trap"
    start(trap, "ps")
    (trap / "nvidia-cuda-mps-control.pid").write_text(str(daemon.pid))
    os.chown(trap / "control_privileged", 65534, 65534)
    found = daemon_process(daemon.pid)
    assert found is not None
    closed = discovery.DaemonProcess(found.key, found.uid, found.start_time, False, "legacy", None, None)
    assert discovery._daemon_of(trap, [closed]) is None
    os.chown(trap / "control_privileged", 0, 0)
    assert discovery._daemon_of(trap, [closed]) is closed
    assert discovery._elsewhere(room / "none", [closed, found]) == (
        f" (one runs as process {daemon.pid}, whose directory only its user and root may know, another in {room}/p)"
    )


@needs_root
def test_of_two_that_claim_a_directory_the_owner_of_its_socket_counts(room: Path, start: Start) -> None:
    impostor = start(room / "p", make=False, become=65534)
    owner = start(room / "p")
    (room / "p" / "nvidia-cuda-mps-control.pid").write_text(str(impostor.pid))
    assert one(room / "p").daemon == process_key(owner.pid)


def test_a_removed_directory_under_a_running_daemon(room: Path, start: Start) -> None:
    daemon = start(room / "p")
    shutil.rmtree(room / "p")
    place = one(room / "p")
    assert (place.state, place.daemon) == ("unusable", process_key(daemon.pid))
    assert f"was removed, or cannot be seen from here; process {daemon.pid} runs on" in place.detail
    assert f"end process {daemon.pid} once its clients are done" in place.remedy


@needs_root
def test_of_a_process_of_anothers_that_names_no_directory_nobody_is_told_to_end_it(room: Path, start: Start) -> None:
    start(room / "p", make=False, become=12345)
    assert one(room / "p").remedy == "leave it to its owner, UID 12345"


def test_a_daemon_in_a_container_is_known_by_the_directory_itself(
    room: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its names for the directories are the container's; here they are known by device and inode."""
    (host := room / "mps_0" / "pipe").mkdir(parents=True)
    logs = control_log(room / "mps_0" / "log")
    pipe, log = Path("/", room.name, "pipe"), Path("/", room.name, "log")  # the same test may run twice on a machine
    daemon = start(pipe, make=False, log_dir=log)
    inside = {pipe: discovery.file_id(host), log: discovery.file_id(logs)}
    monkeypatch.setattr(discovery, "seen_by", lambda pid, path: inside.get(path))
    mine = [p for p in discover(env={}, well_known=[f"{room}/mps_*/pipe"]) if p.daemon == process_key(daemon.pid)]
    assert [(p.pipe_dir, p.state, p.log_dir) for p in mine] == [(host, "running", logs)]
    mine = [p for p in discover(env={}, well_known=()) if p.daemon == process_key(daemon.pid)]
    assert [(p.pipe_dir, p.state) for p in mine] == [(pipe, "unusable")]
    assert "in a container" in mine[0].detail


def test_a_held_lock_tells_who_it_is_that_listens(room: Path, waiter: Start) -> None:
    (room / "control_lock").touch()
    bind = f"import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.bind({str(room / 'control')!r})"
    hold = f"import fcntl; f = open({str(room / 'control_lock')!r}, 'w'); fcntl.lockf(f, fcntl.LOCK_EX)"
    listener = waiter(f"{bind}; s.listen(5)")
    place = one(room)
    assert (place.state, place.daemon) == ("running", None)
    listener.kill()
    listener.wait()
    only = waiter(hold)
    assert one(room).state == "stale", "the lock alone proves nothing"
    only.kill()
    only.wait()
    (room / "control").unlink()
    holder = waiter(f"{bind}; s.listen(5); {hold}")
    place = one(room)
    assert (place.state, place.daemon) == ("running", process_key(holder.pid))
    assert "not called nvidia-cuda-mps-control" in place.detail
    with open(room / "control_lock") as mine, pytest.raises(BlockingIOError):
        fcntl.lockf(mine, fcntl.LOCK_SH | fcntl.LOCK_NB)
    if os.geteuid() == 0:
        os.chown(room, 64101, -1)  # root's daemon in a user's directory, as a job has it
        assert discovery.lock_holder(room) == holder.pid
        os.chown(room / "control_lock", 64102, -1)
        assert discovery.lock_holder(room) is None, "the lock of a user who has nothing to do with it tells nothing"


def test_a_server_s_directory_in_a_daemon_s_of_protocol_3_is_not_stale(
    room: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server listens there, and the daemon's lock is in the directory above."""
    daemon = start(room / "d", "-d", "-p", "3")
    if one(room / "d").protocol != "v3":
        pytest.fail("the stand-in is to be one of protocol 3")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        (room / "d" / "training" / "small").mkdir(parents=True)
        server.bind(str(room / "d" / "training" / "control"))
        server.listen()
        (room / "link").symlink_to(room / "d" / "training")
        for path, what in (
            (room / "d" / "training", "server training"),
            (room / "link", "server training"),
            (room / "d" / "training" / "small", "namespace small of server training"),
            (room / "d" / "training" / "later", "namespace later of server training"),
            (room / "d" / "later", "server later"),
        ):
            place = one(path)
            assert (place.state, place.within) == ("unusable", room / "d"), place
            assert place.detail.endswith(f"is the directory of {what} of the daemon in {room / 'd'}")
            assert clean(path)[:1] in {(), (f"nothing was removed: {place.detail}",)}
        assert one(room / "d" / "a" / "b" / "c").within is None
        daemon.kill()
        daemon.wait()
        place = one(room / "d" / "training")
        assert (place.state, place.daemon, place.within) == ("running", None, None), "somebody listens there"
        assert "a daemon runs that is hidden" in clean(room / "d" / "training")[0]
        monkeypatch.setattr(stale, "discover", lambda *_, **__: (Place(room, "stale"),))
        assert "somebody listens at its control" in clean(room / "d" / "training")[0], "the kernel is asked once more"
        monkeypatch.undo()
    assert one(room / "d" / "training").state == "stale"
    assert clean(room / "d" / "training") == ("stale files were removed: control",)


@needs_root
def test_a_stranger_s_daemon_in_a_directory_of_root_s_takes_nothing_below_it(room: Path, start: Start) -> None:
    start(room, "-d", "-p", "3", make=False, become=12345)
    (room / "mine").mkdir()
    assert one(room / "mine").state == "absent"


def test_the_environment_comes_before_discovery_and_the_option_before_both(
    room: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(room / "running")
    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(room / "env"), "CUDA_MPS_LOG_DIRECTORY": str(room / "env_logs")}
    (place,) = discover(env=environment)
    assert (place.pipe_dir, place.log_dir, place.state) == (room / "env", room / "env_logs", "absent")
    assert "(one runs " in place.remedy
    asked = [room / "b", room / "a", room / "running"]
    places = discover(asked, [room / "logs_b"], env=environment)
    assert [p.pipe_dir for p in places] == asked
    assert [p.log_dir for p in places] == [room / "logs_b", None, None]
    assert [p.state for p in places] == ["absent", "absent", "running"]
    worded = list[Path]()
    monkeypatch.setattr(discovery, "_start", lambda path, _: worded.append(path) or "")
    discover(asked, env={})
    assert worded == asked[:2], "of a daemon that runs it is not said how one is started, nor where others run"


def test_a_relative_directory_is_the_user_s_own(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(room)
    (place,) = discover([Path("p/../q/")], env={})
    assert place.pipe_dir == room / "q"


def test_the_well_known_places(room: Path) -> None:
    for name in ("mps_10", "mps_9", "mps_x", "other_1", "mps_empty"):
        (room / name).mkdir()
        (room / name / "control").touch()
    (room / "mps_empty" / "control").unlink()
    (room / "mps_same").symlink_to(room / "mps_9")
    (room / "mps_file").touch()
    places = discover(env={}, well_known=[f"{room}/mps_*", f"{room}/mps_9", f"{room}/*/none", "/none/*/x"])
    found = [p.pipe_dir.name for p in places if p.pipe_dir.parent == room]
    assert found == ["mps_9", "mps_10", "mps_x"]
    assert {p.state for p in places if p.pipe_dir.parent == room} == {"stale"}


def test_interpreters_that_run_something_else_are_read_twice_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until one of them may be another program by now; a daemon, and a process that has just been forked, always."""
    there = {1: b"python3\0train.py", 2: b"python3\0"}
    inodes, asked, now = {1: 100, 2: 200, 3: 300}, list[list[int]](), [1000.0]
    monkeypatch.setattr(discovery, "_others", discovery._Others())
    monkeypatch.setattr(discovery.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(discovery, "_candidates", lambda: ((pid, inodes.get(pid)) for pid in there))

    def read(paths: list[str], _limit: int) -> list[bytes]:
        asked.append([int(path.split("/")[2]) for path in paths])
        return [there[pid] for pid in asked[-1]]

    monkeypatch.setattr(discovery, "read_each", read)
    monkeypatch.setattr(discovery, "daemon_process", lambda pid: None)

    def look() -> list[int]:
        running_daemons()
        return asked[-1]

    assert [look(), look(), look(), look()] == [[1, 2], [1, 2], [], []]
    inodes[2] = 201
    assert [look(), look(), look()] == [[2], [2], []], "another process of the same number"
    there[3] = b"python3\0/bin/nvidia-cuda-mps-control\0-d"
    assert [look(), look(), look()] == [[3], [3], [3]]
    del there[1]
    look()
    there[1] = b"python3\0other.py"
    assert sorted(look()) == [1, 3]
    now[0] += discovery._OTHERS_S
    assert sorted(look()) == [1, 2, 3]


def test_many_well_known_places_are_cut_short(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_PLACES_LIMIT", 32)
    monkeypatch.setattr(discovery, "running_daemons", list)  # those of other tests come and go meanwhile
    for number in range(40):
        (room / f"mps_{number}").mkdir()
        (room / f"mps_{number}" / "control").touch()
    places = discover(env={}, well_known=[f"{room}/mps_*"])
    mine = [place for place in places if place.pipe_dir.parent == room]
    assert (len(mine), len(places)) == (32, 32)


@pytest.mark.slow
def test_of_many_daemons_that_run_none_is_cut_off(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each container has one there are many."""
    made = [room / f"run_{number}" for number in range(40)]
    for path in made:
        path.mkdir()
    daemon = discovery.DaemonProcess(ProcessKey(1, 1), 0, None, False, "legacy", made[0], None)
    running = [daemon._replace(pipe_dir=path, pipe_id=discovery.file_id(path)) for path in made]
    monkeypatch.setattr(discovery, "running_daemons", lambda: running)
    monkeypatch.setattr(discovery, "_trouble", lambda pipe_dir, start: None)
    monkeypatch.setattr(discovery, "_daemon_of", lambda path, all_: next((d for d in all_ if d.pipe_dir == path), None))
    monkeypatch.setattr(discovery, "find_speaker", lambda path: Speaker(os.geteuid(), "its own"))
    found = [place.pipe_dir for place in discover(env={}, well_known=())]
    assert found == made


def test_a_daemon_whose_directory_is_not_known_hides_none_of_the_others(
    room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its user's environment is closed to whoever is not root."""
    monkeypatch.setattr(discovery, "listening_dirs", list)
    hidden = DaemonProcess(ProcessKey(1, 1), 70123, None, False, "legacy", None, None)
    seen = hidden._replace(key=ProcessKey(2, 1), uid=os.geteuid(), pipe_dir=room, pipe_id=file_id(room))
    assert discovery._discovered([hidden, seen, hidden], ()) == [room]


def test_nothing_at_all_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "running_daemons", list)
    monkeypatch.setattr(discovery, "DEFAULT_PIPE_DIR", Path("/tmp/no-such-mps"))
    (place,) = discover(env={"CUDA_MPS_PIPE_DIRECTORY": ""}, well_known=())
    assert (place.state, place.pipe_dir) == ("absent", Path("/tmp/no-such-mps"))
    assert "does not exist" in place.detail


def test_the_command_that_starts_a_daemon_is_one_for_a_shell():
    told = how_to_start(Path("/tmp/a b;c"))
    assert "mpstui daemon start --pipe-dir '/tmp/a b;c'" in told
    assert "CUDA_MPS_PIPE_DIRECTORY='/tmp/a b;c' nvidia-cuda-mps-control -d" in told


def test_of_a_daemon_that_has_just_ended_nothing_is_advised_that_does_not_look_where_it_starts_one():
    """Its directory may be everybody's, or a link of somebody's: the control program starts there whatever it is."""
    place = Place(Path("/tmp/mps"), "stale")
    for found, probe in ((place, Probe(2.0, Outcome.ABSENT, "No daemon.")), (None, None)):
        told = condition_of(found, probe, DaemonState(place.pipe_dir), {}, None, 0)
        assert told.remedy == "Start one: mpstui daemon start --pipe-dir /tmp/mps"


@pytest.mark.parametrize(("length", "state"), [(83, "absent"), (84, "unusable")])
def test_a_pipe_directory_may_have_83_bytes(length: int, state: str) -> None:
    assert one(Path("/" + "d" * (length - 1))).state == state


def test_of_any_other_program_no_more_than_its_command_line_is_read(monkeypatch):
    """Counted: this very process is one of Python, as a daemon's stand-in could be."""
    read = []
    monkeypatch.setattr(discovery, "read_environment", read.append)
    monkeypatch.setattr(discovery, "read_stat", read.append)
    assert discovery.daemon_process(os.getpid()) is None
    assert read == []


def test_ones_own_daemons_that_run_are_listed_and_of_all_others_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_PLACES_LIMIT", 32)
    mine, theirs = os.geteuid(), 70123
    made = [Place(Path(f"/theirs/{n}"), "running", uid=theirs, speaker=Speaker(theirs, "")) for n in range(99)]
    made += [Place(Path(f"/left/{n}"), "stale", uid=mine, speaker=Speaker(mine, "")) for n in range(99)]
    made += [Place(Path(f"/mine/{n}"), "running", uid=mine, speaker=Speaker(mine, "")) for n in range(300)]
    made += [Place(Path("/none"), "absent", uid=mine, speaker=Speaker(mine, ""))]
    of = {place.pipe_dir: place for place in made}
    monkeypatch.setattr(discovery, "running_daemons", list)
    monkeypatch.setattr(discovery, "_discovered", lambda daemons, known: list(of))
    monkeypatch.setattr(discovery, "_place", lambda pipe_dir, *_: of[pipe_dir])
    shown = [path.parts[1] for path in (place.pipe_dir for place in discover(env={}))]
    assert (shown.count("mine"), shown.count("left"), shown.count("theirs"), shown.count("none")) == (256, 8, 0, 0)
    few = [place for place in made if place.pipe_dir.parts[1] != "mine"]
    monkeypatch.setattr(discovery, "_discovered", lambda daemons, known: [place.pipe_dir for place in few])
    shown = [path.parts[1] for path in (place.pipe_dir for place in discover(env={}))]
    assert shown == ["left"] * 32, "one's own come first"


@pytest.mark.parametrize(
    ("uid", "stamp", "seen"),
    [
        (None, (1, 2, 1000.0, 1000.0), True),  # nobody's, whatever becomes of it
        (0, (), True),  # nobody else may change it
        (0, (1, 2, 999.89, 999.89), True),
        (0, (1, 2, 999.95, 999.0), False),
        (0, (1, 2, 999.0, 999.95), False),
        (0, (1, 2, 999.0, 999.0, 2000.0, 2000.0), True),  # its sockets' times are no changes of the directory
    ],
)
def test_a_change_of_a_directory_is_seen_once_the_last_one_is_past(monkeypatch, uid, stamp, seen) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    stamp = (*stamp[:2], *(int(seconds * 10**9) for seconds in stamp[2:]))
    assert settled(Speaker(uid, "", stamp)) is seen


def test_a_daemon_whose_number_another_process_has_by_now_is_not_in_its_directory(tmp_path: Path) -> None:
    ended = DaemonProcess(ProcessKey(os.getpid(), 1), 0, 1.0, False, "legacy", tmp_path, None, file_id(tmp_path))
    assert discovery.is_daemon_of(tmp_path, os.getpid(), [ended]) is None
    lives = ended._replace(key=process_key(os.getpid()))
    assert discovery.is_daemon_of(tmp_path, os.getpid(), [lives]) is True
    assert discovery.is_daemon_of(tmp_path.parent, os.getpid(), [lives]) is False
    assert discovery.is_daemon_of(tmp_path, os.getppid(), [lives]) is None


def test_a_directory_that_nobody_else_may_change_needs_no_stamp(room: Path) -> None:
    for name in ("control", "control_privileged"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(os.fspath(room / name))
    room.chmod(0o755)
    speaker = find_speaker(room)
    assert (speaker.uid, speaker.stamp, speaker.sockets) == (os.geteuid(), (), (os.geteuid(),))
    room.chmod(0o777)
    assert find_speaker(room).stamp


@pytest.mark.parametrize(
    ("links", "words"),
    [
        (("control",), "socket control"),
        (("control_privileged",), "socket control_privileged"),
        (("control", "control_privileged"), "sockets control and control_privileged"),
    ],
)
def test_which_sockets_are_links_is_said(room: Path, links: tuple[str, ...], words: str) -> None:
    for name in ("control", "control_privileged"):
        if name in links:
            (room / name).symlink_to("elsewhere")
        else:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
                listening.bind(os.fspath(room / name))
    speaker = find_speaker(room)
    assert (speaker.uid, speaker.why) == (None, f"a link is in the place of its {words}")


@pytest.mark.parametrize(
    ("modes", "exchanged"), [((0o666, 0o755), False), ((0o755, 0o666), True), ((0o666, 0o666), False)]
)
def test_which_socket_is_which_is_told_by_their_modes(room: Path, modes: tuple[int, int], exchanged: bool) -> None:
    for name, mode in zip(discovery.SOCKETS, modes, strict=True):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(os.fspath(room / name))
        (room / name).chmod(mode)
    why = "its sockets control and control_privileged were exchanged" if exchanged else None
    assert discovery._not_there(room, discovery.SOCKETS) == why
