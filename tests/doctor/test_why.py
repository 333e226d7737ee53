"""Why a process is no client of MPS: reasons by what is known, and processes with roots and users of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mpstui.core.model import (
    Client,
    Condition,
    Daemon,
    Device,
    PartitionTable,
    PendingClient,
    ProcessKey,
    Server,
    ServerFault,
    Snapshot,
)
from mpstui.core.trust import Speaker
from mpstui.core.v3 import Namespace, V3Node, V3Server
from mpstui.doctor import program
from mpstui.doctor.program import Inside, Program, Shm, read_program, within
from mpstui.doctor.why import Diagnosis, Neighbour, _inner, answer
from mpstui.observe.discovery import file_id

OK = Condition("ok", "none")
HERE = (1, 2)
DAEMON = Daemon(
    Path("/tmp/mps"),
    key=ProcessKey(50, 50),
    uid=0,
    user="root",
    start_time=100.0,
    condition=OK,
    ordinals={"0": "GPU-0"},
)
GPU = Device("GPU-0", 0, compute_capability=(9, 0), compute_mode="Default", contexts=3)
PIPE = Inside("/tmp/mps", True, "there", HERE, True)
FIT = Program(
    ProcessKey(70, 70), 200.0, 2001, "alice", "./train", {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps"},
    {"pid": 1, "ipc": 1, "mnt": 1, "user": 1}, (70,), None, "", 64, True, ("nvidia0", "nvidiactl"),
    Shm((5, 5), 1 << 30), PIPE,
)  # fmt: skip
NAMES = {"pid": 1, "ipc": 1, "mnt": 1, "user": 1}


def told(
    changed: dict[str, Any] | None = None,
    daemon: dict[str, Any] | None = None,
    gpu: dict[str, Any] | None = None,
    near: dict[str, Any] | None = None,
) -> Diagnosis:
    """Of a process that could be a client, and a daemon that would take it, but for what is changed."""
    one = replace(DAEMON, **(daemon or {}))
    beside = Neighbour(one, **{"id": HERE, "namespaces": NAMES, "shm": Shm((5, 5)), **(near or {})})
    snapshot = Snapshot(300.0, daemons=(one,), devices=(replace(GPU, **(gpu or {})),))
    return answer(replace(FIT, **(changed or {})), [beside], snapshot)


def test_nothing_keeps_it_from_becoming_one() -> None:
    found = told()
    assert (found.reasons, found.is_client) == ((), False)
    assert found.sentence == (
        "Process 70 (alice, ./train) is not a client of MPS. mpstui sees nothing that prevents it."
    )


def test_who_waits_is_a_client_that_waits_and_not_no_client() -> None:
    """A problem said that client 70 waits, and a closer look at it that it is no client of MPS."""
    found = told(daemon={"pending": (PendingClient(ProcessKey(70, 70), server_pid=60),)})
    assert found.sentence.startswith("Client 70 (alice, ./train) waits in the daemon in ")
    assert found.sentence.endswith(" behind server 60.")


SERVER = Server(ProcessKey(60), uid=2002, user="bob", clients=(Client(ProcessKey(61, 61)),))
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "another directory": (
        "no_daemon", "sure", {"changed": {"pipe": Inside("/x", True, "absent", detail="there is no /x")}},
    ),
    "no variable": (
        "no_variable", "sure", {"changed": {"pipe": Inside("/tmp/nvidia-mps", False, "absent")}},
    ),
    "no daemon runs": ("no_daemon", "sure", {"daemon": {"condition": Condition("stale", "gone")}}),
    "the same name in another mount": (
        "mount", "sure", {"changed": {"pipe": Inside("/tmp/mps/", True, "there", (9, 9), False)}},
    ),
    "closed": ("closed", "sure", {"changed": {"pipe": PIPE._replace(socket=False, detail="may not write")}}),
    "before the daemon": ("before_daemon", "likely", {"changed": {"start_time": 99.0}}),
    "a daemon of bob's": ("user", "sure", {"daemon": {"uid": 2002, "user": "bob"}}),
    "a server of bob's": ("server_user", "likely", {"daemon": {"servers": (SERVER,)}}),
    "a fault": (
        "fault", "likely", {"daemon": {"servers": (Server(ProcessKey(60), uid=2001, status="FAULT"),)}},
    ),
    "static partitions": ("partition", "sure", {"daemon": {"static_partitioning": True}}),
    "full": ("full", "likely", {"gpu": {"contexts": 48}}),
    "exclusive": ("exclusive", "possible", {"gpu": {"compute_mode": "Exclusive_Process"}}),
    "prohibited": ("compute_mode", "sure", {"gpu": {"compute_mode": "Prohibited"}}),
    "pre-Volta": ("pre_volta", "possible", {"gpu": {"compute_capability": (6, 0)}}),
    "too old": ("architecture", "sure", {"gpu": {"compute_capability": (3, 0)}}),
    "MIG": ("mig", "possible", {"gpu": {"mig": True}}),
    "IPC": ("ipc", "likely", {"changed": {"namespaces": NAMES | {"ipc": 2}, "shm": Shm((6, 6), 1 << 30)}}),
    "another /dev/shm": ("other_shm", "possible", {"changed": {"shm": Shm((6, 6), 1 << 30)}}),
    "no /dev/shm": ("shm", "likely", {"changed": {"shm": Shm(None)}}),
    "little /dev/shm": ("shm", "likely", {"changed": {"shm": Shm((5, 5), 1 << 20)}}),
    "no GPU": ("no_device", "sure", {"changed": {"devices": ()}}),
    "hidden GPUs": ("no_visible", "sure", {"changed": {"environment": {"CUDA_VISIBLE_DEVICES": "-1"}}}),
    "32 bits": ("32_bit", "sure", {"changed": {"bits": 32}}),
    "no CUDA": ("no_cuda", "likely", {"changed": {"cuda": False}}),
    "a debugger": ("debugger", "likely", {"changed": {"tracer": "cuda-gdb (12)"}}),
    "strace": ("debugger", "possible", {"changed": {"tracer": "strace (12)"}}),
    "numbered twice": (
        "remap", "possible",
        {"changed": {"environment": {"CUDA_VISIBLE_DEVICES": "1,0"}}, "near": {"visible": "1,0"}},
    ),
    "beyond the daemon's": (
        "remap", "sure", {"changed": {"environment": {"CUDA_VISIBLE_DEVICES": "2"}}, "near": {"visible": "3,4"}},
    ),
    "beyond the node's": (
        "not_visible", "sure", {"changed": {"environment": {"CUDA_VISIBLE_DEVICES": "7"}}},
    ),
    "half beyond the node's": (
        "not_visible", "possible", {"changed": {"environment": {"CUDA_VISIBLE_DEVICES": "0,7"}}},
    ),
    "no device of the daemon's": (
        "not_visible", "sure", {"changed": {"environment": {"CUDA_VISIBLE_DEVICES": "GPU-deadbeef"}}},
    ),
    "a device named twice": (
        "not_visible", "possible", {"changed": {"environment": {"CUDA_VISIBLE_DEVICES": "0, +0"}}},
    ),
    "a device named by its UUID and the beginning of it": (
        "not_visible", "possible", {"changed": {"environment": {"CUDA_VISIBLE_DEVICES": "GPU-0,GPU-"}}},
    ),
    "a beginning of several": (
        "not_visible", "sure",
        {
            "changed": {"environment": {"CUDA_VISIBLE_DEVICES": "GPU-"}},
            "daemon": {"ordinals": {"0": "GPU-0", "1": "GPU-1"}},
        },
    ),
    "no number and no UUID": (
        "not_visible", "sure", {"changed": {"environment": {"CUDA_VISIBLE_DEVICES": "cuda:0"}}},
    ),
    "a partition that is not there": (
        "partition", "sure",
        {
            "changed": {"environment": {"CUDA_MPS_SM_PARTITION": "GPU-0/gone"}},
            "daemon": {"static_partitioning": True, "partitions": PartitionTable((), ())},
        },
    ),
    "a limit below a context": (
        "small_limit", "possible", {"changed": {"environment": {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=512M"}}},
    ),
    "a debugger itself": ("is_debugger", "likely", {"changed": {"command": "/usr/bin/cuda-gdb ./train"}}),
    "the daemon itself": ("is_mps", "sure", {"daemon": {"key": ProcessKey(70, 70)}}),
    "a server": ("is_mps", "sure", {"daemon": {"servers": (Server(ProcessKey(70, 70)),)}}),
    "waits": (
        "pending", "sure", {"daemon": {"pending": (PendingClient(ProcessKey(70, 70), server_pid=60),)}},
    ),
    "not to be read": ("unreadable", "possible", {"changed": {"environment": None, "pipe": None}}),
}  # fmt: skip


@pytest.mark.parametrize(("code", "certainty", "change"), CASES.values(), ids=CASES)
def test_one_reason(code: str, certainty: str, change: dict[str, Any]) -> None:
    found = told(**change)
    assert [(reason.code, reason.certainty) for reason in found.reasons] == [(code, certainty)]
    (reason,) = found.reasons
    assert reason.text.removeprefix("it ") in found.sentence
    assert all(reason.evidence)
    assert reason.remedy


def test_who_looks_in_a_server_s_or_a_namespace_s_directory_looks_for_its_daemon(tmp_path: Path) -> None:
    """Protocol 3: a client's pipe directory is PIPE/SERVER or PIPE/SERVER/NAMESPACE, and not the daemon's."""
    (tmp_path / "training" / "small").mkdir(parents=True)
    (tmp_path / "stolen").symlink_to("/tmp")
    node = V3Node(
        (V3Server("training"), V3Server("stolen"), V3Server("..")),
        (Namespace("default", "training"), Namespace("small", "training"), Namespace("gone", "training")),
    )
    known = set(_inner(replace(DAEMON, pipe_dir=tmp_path, v3=node)))
    assert known == {file_id(tmp_path / "training"), file_id(tmp_path / "training" / "small")}
    for inner in known:
        pipe = PIPE._replace(path="/d/training", id=inner)
        assert told({"pipe": pipe}, near={"inner": known}).reasons == ()
        assert [reason.code for reason in told({"pipe": pipe}).reasons] == ["no_daemon"]


@pytest.mark.parametrize("visible", ["0", "GPU-0", "GPU", "MIG-1/2/3", "0,", "+0", "00", "0gpu2"])
def test_a_device_that_may_be_there_is_no_reason(visible: str) -> None:
    """``GPU-0`` may be no UUID's beginning alone; of a MIG instance nothing is known; an empty word ends the list; of
    a word that begins with a number CUDA is said to read that."""
    found = told(changed={"environment": {"CUDA_VISIBLE_DEVICES": visible}}, gpu={"mig": False})
    assert [reason.code for reason in found.reasons if reason.certainty == "sure"] == (
        ["not_visible"] if visible == "GPU" else []
    )


def test_a_misspelt_directory_is_said_where_none_is_found() -> None:
    pipe = Inside("/tmp/nvidia-mps", False, "absent")
    (reason,) = told(changed={"pipe": pipe, "environment": {"CUDA_MPS_PIPE_DIR": "/tmp/mps"}}).reasons
    assert "it has CUDA_MPS_PIPE_DIR, which is no variable of MPS: CUDA_MPS_PIPE_DIRECTORY is" in reason.evidence


def test_what_is_numbered_twice_and_comes_out_the_same_is_no_reason() -> None:
    for own, theirs in (("0,1", "0,1"), ("0", "0,1"), ("GPU-3,0", "1,0")):
        found = told(changed={"environment": {"CUDA_VISIBLE_DEVICES": own}}, near={"visible": theirs})
        assert found.reasons == (), own
    (reason,) = told(changed={"environment": {"CUDA_VISIBLE_DEVICES": "1,0"}}, near={"visible": "1,0"}).reasons
    assert "so it gets: 0, 1" in reason.evidence


def test_the_host_s_ipc_through_its_shm_is_no_reason() -> None:
    assert told(changed={"namespaces": NAMES | {"ipc": 2}}).reasons == ()


def test_a_simulated_process_is_named_as_whom_it_stands_for() -> None:
    daemon = replace(DAEMON, pending=(PendingClient(ProcessKey(70, 70), user="bob", command="vllm serve"),))
    snapshot = Snapshot(300.0, source="simulated", daemons=(daemon,))
    assert answer(FIT, [Neighbour(daemon, HERE)], snapshot).sentence.startswith("Client 70 (bob, vllm serve) waits")


def test_a_stranger_s_daemon_is_not_recommended() -> None:
    pipe = Inside("/x", True, "absent", detail="there is no /x")
    remedies = [
        told(changed={"pipe": pipe}, daemon={"speaker": speaker}).remedy or ""
        for speaker in (Speaker(0, "root's"), Speaker(2001, "alice's"), Speaker(2002, "eve's"), Speaker(None, "?"))
    ]
    assert ["/tmp/mps" in remedy for remedy in remedies] == [True, True, False, False]


def test_the_surest_comes_first() -> None:
    found = told(changed={"cuda": False, "bits": 32}, gpu={"mig": True})
    assert [reason.certainty for reason in found.reasons] == ["sure", "likely", "possible"]


def test_who_lies_of_others_is_not_believed_of_his_own_and_a_logs_fault_is_none() -> None:
    """It waited, surely, for a client of root's; and every affected client had to end."""
    client, roots = Client(ProcessKey(70, 70), 60, uid=2001), Client(ProcessKey(71, 71), 60, uid=0)
    alices = {"speaker": Speaker(2001, "alice's"), "uid": 2001}
    for named in ((client,), (client, roots)):
        server = Server(ProcessKey(60), status="ACTIVE", clients=named)
        assert told(daemon={**alices, "servers": (server,)}).is_client is (roots not in named)
    server = Server(ProcessKey(60), status="FAULT", clients=(client,))
    claimed = ServerFault(1.0, (), (client.key,), confirmed=False)
    for fault, told_as in ((None, ("fault", "sure")), (claimed, ("fault_claimed", "possible"))):
        found = told(daemon={"servers": (replace(server, fault=fault),)})
        assert [(reason.code, reason.certainty) for reason in found.reasons] == [told_as]


def test_a_client_is_one() -> None:
    client = Client(ProcessKey(70, 70), server_pid=60)
    found = told(daemon={"servers": (Server(ProcessKey(60), status="ACTIVE", clients=(client,)),)})
    assert (found.is_client, found.sentence) == (
        True, "Process 70 (alice, ./train) is a client of server 60 of the daemon in /tmp/mps.",
    )  # fmt: skip
    ended = Client(ProcessKey(70, 70), server_pid=60, state="TERMINATED")
    found = told(daemon={"servers": (Server(ProcessKey(60), status="ACTIVE", clients=(ended,)),)})
    assert found.sentence.endswith(", but its contexts were ended by terminate_client.")
    successor = Client(ProcessKey(70, 69), server_pid=60)
    assert not told(daemon={"servers": (Server(ProcessKey(60), uid=2001, clients=(successor,)),)}).is_client


# Real processes.

needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="root alone may make namespaces"
)


@contextmanager
def running(*argv: str | Path, env: dict[str, str] | None = None, **more: Any) -> Iterator[int]:
    """The PID of a process that waits; ``argv`` runs a Python that says its PID here."""
    code = "import sys; print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [*argv, sys.executable, "-S", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
        **more,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield process.pid
        finally:
            process.stdin.close()  # type: ignore[union-attr]


def read(pid: int) -> Program:
    found = read_program(pid, 120.0)
    assert found is not None
    return found


def pipe_of(folder: Path) -> dict[str, str]:
    return {"CUDA_MPS_PIPE_DIRECTORY": os.fspath(folder)}


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[Path]:
    """A directory with a socket ``control``."""
    import socket

    (folder := tmp_path / "mps").mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(os.path.relpath(folder / "control"))
        os.chmod(folder / "control", 0o666)
        yield folder


def test_what_a_process_here_sees(listening: Path) -> None:
    with running(env=pipe_of(listening)) as pid:
        found = read(pid)
    assert found.pipe is not None
    here = os.stat(listening)
    assert (found.pipe.state, found.pipe.id, found.pipe.socket) == ("there", (here.st_dev, here.st_ino), True)
    assert (found.uid, found.bits, found.cuda, found.tracer, found.pids) == (os.geteuid(), 64, False, "", (pid,))
    assert found.namespaces["ipc"] == os.stat("/proc/self/ns/ipc").st_ino
    assert found.shm is not None


def test_links_are_followed_within_its_root_and_not_out_of_bounds(tmp_path: Path, listening: Path) -> None:
    (tmp_path / "link").symlink_to(listening)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with running(env=pipe_of(tmp_path / "link")) as pid:
        found = read(pid)
    assert found.pipe is not None
    assert found.pipe.state == "there"
    with running(env=pipe_of(tmp_path / "loop")) as pid:
        found = read(pid)
    assert found.pipe is not None
    assert (found.pipe.state, found.pipe.detail.endswith("too many links")) == ("unknown", True)


@pytest.mark.parametrize("what", ["fifo", "file", "nothing", "relative"])
def test_a_trap_in_its_way_is_no_directory(tmp_path: Path, what: str) -> None:
    """A FIFO would hold up whoever opens it."""
    place = tmp_path / "place"
    if what == "fifo":
        os.mkfifo(place)
    elif what == "file":
        place.touch()
    with running(env={"CUDA_MPS_PIPE_DIRECTORY": "place" if what == "relative" else str(place)}) as pid:
        found = read(pid)
    assert found.pipe is not None
    assert found.pipe.state == "absent"
    assert found.pipe.detail


def test_a_fifo_in_the_place_of_the_socket_is_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "control")
    with running(env=pipe_of(tmp_path)) as pid:
        found = read(pid)
    assert found.pipe is not None
    assert (found.pipe.state, found.pipe.socket) == ("there", False)


def test_a_root_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    held = threading.Event()

    def hang(*_: Any) -> Any:
        held.wait(120)

    monkeypatch.setattr(program, "_look", hang)
    with running() as pid:
        found = read_program(pid, 0.01) or read_program(pid, 0.01)
    held.set()
    assert found is not None
    assert "takes longer than 0.01 s" in found.trouble


@pytest.mark.parametrize(
    ("head", "bits"),
    [
        (b"\x7fELF\x01", 32),
        (b"\x7fELF\x02", 64),
        (b"\x7fELF\x03", None),
        (b"\x7fELF", None),
        (b"#!/bi", None),
        (None, None),
    ],
)
def test_a_program_has_the_bits_of_its_file(
    monkeypatch: pytest.MonkeyPatch, head: bytes | None, bits: int | None
) -> None:
    monkeypatch.setattr(program, "read_proc", lambda path, limit: head)
    assert program._bits(1) == bits


def test_who_is_gone_is_none_and_who_ends_meanwhile_too() -> None:
    with running() as pid:
        pass
    assert read_program(pid) is None
    assert read_program(0) is None


def test_within_gives_what_raises_up() -> None:
    def fail() -> int:
        raise OSError

    assert within(fail, 120) is None
    assert within(lambda: 3, 120) == 3


@needs_namespaces
def test_another_user_and_a_way_that_is_closed_to_him(listening: Path) -> None:
    for folder in (listening, *listening.parents):
        if folder.stat().st_mode & 0o005 != 0o005 and os.fspath(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    as_him = ["setpriv", "--reuid=64101", "--regid=64101", "--clear-groups"]
    with running(*as_him, env=pipe_of(listening)) as pid:
        opened = read(pid)
        (listening / "control").chmod(0o644)
        not_his = read(pid)
        listening.chmod(0o700)
        closed = read(pid)
    assert opened.pipe is not None
    assert not_his.pipe is not None
    assert closed.pipe is not None
    assert (opened.uid, opened.pipe.state, opened.pipe.socket) == (64101, "there", True)
    assert (not_his.pipe.state, not_his.pipe.socket) == ("there", False)
    assert closed.pipe.state == "closed"


@needs_namespaces
def test_its_own_root_counts_and_not_ours(tmp_path: Path, listening: Path) -> None:
    """In its mount namespace another file system is over the directory; here a daemon would listen there."""
    inside = f'mount -t tmpfs none {listening} && exec "$@"'
    apart = ["unshare", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "sh", "-c", inside, "-"]
    with running(*apart, env=pipe_of(listening)) as outer:
        children = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
        found = read(int(children[0]))
    assert found.pipe is not None
    assert (found.pipe.state, found.pipe.socket) == ("there", False)
    here = os.stat(listening)
    assert found.pipe.id != (here.st_dev, here.st_ino)
    assert found.namespaces["ipc"] != os.stat("/proc/self/ns/ipc").st_ino
    assert len(found.pids) == 2
    near = Neighbour(DAEMON.__class__(listening, key=ProcessKey(1, 1), condition=OK), (here.st_dev, here.st_ino))
    told = answer(found, [near], Snapshot(time.time(), source="simulated", daemons=(near.daemon,)))
    assert "mount" in [reason.code for reason in told.reasons]


@needs_namespaces
@pytest.mark.parametrize("target", ["{}", "../../../../../../../..{}"])
def test_a_link_in_its_root_does_not_lead_into_ours(tmp_path: Path, listening: Path, target: str) -> None:
    """It means a directory of its own root, where there is none of that name."""
    (root := tmp_path / "root").mkdir()
    (root / "trap").symlink_to(target.format(listening))
    code = "import os, sys; os.chroot(sys.argv[1]); os.chdir('/'); print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", code, root],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **pipe_of(Path("/trap"))},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        found = read(process.pid)
        process.stdin.close()  # type: ignore[union-attr]
    assert found.pipe is not None
    assert (found.pipe.state, found.pipe.id) == ("absent", None)
    assert found.shm == Shm(None)
