"""Launches counted from outside: what is loaded into the kernel, what is read of a library, and real counters where
this machine permits them."""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import fakecuda
import pytest
from folders import others_memory

from mpstui.core.model import ProcessKey
from mpstui.observe import activity
from mpstui.observe.activity import (
    LaunchCounter,
    UncountedError,
    launch_offsets,
    mapped_libraries,
    open_library,
    own_namespace,
    program,
)
from mpstui.system.procfs import process_key

HERE = fakecuda.MACHINE.get(os.uname().machine, 62)
HOW, WHY = activity.trouble()
if os.geteuid() == 0:

    @pytest.fixture(autouse=True)
    def memory() -> Iterator[None]:
        """Another test may keep a process's memory at the same time, beside which nothing is attached."""
        with others_memory(kept=False):
            yield


by_program = pytest.mark.skipif(HOW != "one BPF program", reason=f"needs root and BPF: {WHY}")
by_counters = pytest.mark.skipif(os.geteuid() != 0 or not HOW, reason=f"needs root and uprobes: {WHY}")
NAMES = ("cuInit", "cuLaunchKernel", "cuLaunchKernelEx_ptsz", "cuGraphLaunch", "cuMemAlloc_v2")

CLIENT = """
import ctypes, sys, threading
library = ctypes.CDLL(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    number = int(line)
    def work(function):
        for _ in range(number):
            function()
    work(library.cuLaunchKernel)
    work(library.cuInit)
    thread = threading.Thread(target=work, args=(library.cuGraphLaunch,))
    thread.start()
    thread.join()
    print("done", flush=True)
"""


class Client:
    """A process that launches as often as it is told: half of it from a thread that it starts for that."""

    def __init__(self, library: Path, *before: str) -> None:
        command = [*before, sys.executable, "-c", CLIENT, str(library)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        key = process_key(self.process.pid)
        assert key is not None
        self.key = key

    def launch(self, number: int) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n", "the client has lost a thread or its life"

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return fakecuda.write(tmp_path / "libcuda.so.1", NAMES)


@pytest.fixture
def client(library: Path) -> Iterator[Client]:
    made = Client(library)
    yield made
    made.end()


@pytest.fixture
def counter() -> Iterator[LaunchCounter]:
    made = LaunchCounter()
    yield made
    made.close()


def code_of(pid: int, library: Path) -> bytes:
    """The first byte of cuLaunchKernel as the process has it now: the kernel puts a breakpoint there."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    start = next(int(line.split("-")[0], 16) for line in maps.splitlines() if str(library) in line)
    with open(f"/proc/{pid}/mem", "rb") as memory:
        memory.seek(start + 0x810)
        return memory.read(1)


# The program.


def test_the_program_is_what_it_was_written_as_and_jumps_stay_within_it() -> None:
    assert program(7).hex(" ", 8) == (
        "850000000e000000 7700000020000000 630afcff00000000 bfa2000000000000 07020000fcffffff "
        "1811000007000000 0000000000000000 8500000001000000 1500020000000000 b701000001000000 "
        "db10000000000000 b700000000000000 9500000000000000"
    )
    for made in (program(7), program(7, (4, 4026532000))):
        codes = list(struct.iter_unpack("<BBhi", made))
        for at, (code, _, offset, _) in enumerate(codes):
            if code in {0x15, 0x55}:
                assert codes[at + 1 + offset][0] == 0xB7, "jumps to r0 = 0"
                assert codes[at + 2 + offset][0] == 0x95, "and the end"


def test_a_namespace_of_ones_own_is_asked_for_by_device_and_inode() -> None:
    codes = list(struct.iter_unpack("<BBhi", program(3, (0x12345, 4026532000))))
    loads = [(codes[n][3] & 0xFFFFFFFF) | codes[n + 1][3] << 32 for n, c in enumerate(codes) if c[0] == 0x18]
    assert loads == [0x12345, 4026532000, 3]
    assert [value for code, _, _, value in codes if code == 0x85] == [120, 1]


@pytest.mark.parametrize(
    ("instruction", "simple"),
    [("55 48", True), ("41 57", True), ("e9 00", True), ("90 90", True), ("31 c0", False), ("48 83", False),
     ("41 89", False), ("f3 0f", False), ("", False)],
)  # fmt: skip
def test_an_instruction_that_the_kernel_carries_out_itself_is_cheap(instruction: str, simple: bool) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("known of x86 alone")
    assert activity.is_simple(bytes.fromhex(instruction)) == simple


@pytest.mark.parametrize(
    ("release", "code"), [("4.19.300-generic", 0x0413FF), ("6.18.44-x", 0x06122C), ("5", 0x050000)]
)
def test_a_kernel_is_told_its_version_as_its_headers_have_it(release: str, code: int) -> None:
    assert activity._version_code(release) == code


# The library.


def test_the_offsets_of_a_library_are_those_of_its_launch_functions(library: Path) -> None:
    with library.open("rb") as file:
        assert launch_offsets(file.fileno(), HERE) == (0x810, 0x820, 0x830)
    assert ctypes.CDLL(str(library)).cuGraphLaunch() == 0  # it is a library indeed


def test_a_library_without_them_or_of_another_machine_is_said(tmp_path: Path) -> None:
    other = 183 if HERE == 62 else 62
    for names, machine, said in ((("cuInit",), HERE, "no launch function"), (NAMES, other, "not a library")):
        path = tmp_path / "libcuda.so"
        path.write_bytes(fakecuda.library(names, machine))
        with path.open("rb") as file, pytest.raises(UncountedError, match=said):
            launch_offsets(file.fileno(), HERE)


def test_whatever_a_stranger_has_written_there_is_refused_or_read_in_bounds(tmp_path: Path) -> None:
    whole, chance = fakecuda.library(NAMES, HERE), random.Random(41)
    path = tmp_path / "libcuda.so"
    for number in range(600):
        data = bytearray(whole if number % 3 else whole[: chance.randrange(len(whole))])
        for _ in range(number % 7):
            at = chance.randrange(64) if chance.random() < 0.4 else chance.randrange(max(1, len(data)))
            if at < len(data):
                data[at] = chance.randrange(256)
        path.write_bytes(data)
        with path.open("rb") as file, contextlib.suppress(UncountedError):
            for place in launch_offsets(file.fileno(), HERE):
                assert place >= 0


MAPS = b"""\
7f0000000000-7f0000100000 r--p 00000000 fd:01 1234                       /usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04
7f0000100000-7f0000200000 r-xp 00100000 fd:01 1234                       /usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04
7f0000300000-7f0000400000 r-xp 00000000 00:4b 77                         /compat/lib dir/libcuda.so.1 (deleted)
7f0000500000-7f0000600000 r-xp 00000000 fd:01 99                         /usr/lib/libcudart.so.12
7f0000700000-7f0000800000 r-xp 00000000 fd:01 98                         /tmp/libcuda.so.1.evil
7f0000700000-7f0000800000 r-xp 00000000 00:00 0                          [libcuda.so]
"""


def test_each_libcuda_is_found_once_and_nothing_that_is_only_called_like_it() -> None:
    found = mapped_libraries(MAPS)
    assert [(each.device, each.inode, each.range) for each in found] == [
        (b"fd:01", 1234, "7f0000000000-7f0000100000"),
        (b"00:4b", 77, "7f0000300000-7f0000400000"),
    ]
    many = b"".join(b"1-2 r-xp 0 fd:01 %d /tmp/libcuda.so.%d\n" % (n, n) for n in range(1, 1000))
    assert len(mapped_libraries(many)) == activity.LIBRARIES, "nobody is held up by a stranger who maps a thousand"
    assert mapped_libraries(b"\0 libcuda.so\n- - libcuda.so libcuda.so x libcuda.so\n") == []


@pytest.mark.parametrize(
    "mounts",
    [
        b"36 25 0:75 / /compat rw - fuse.sshfs me@there: rw\n37 25 253:1 / / rw - ext4 /dev/vda1 rw\n",
        b"36 25 0:75 / /compat rw - fuseblk me rw\n37 25 0:75 / /x rw - ext4 it rw\n",
        b"37 25 253:1 / / rw - ext4 /dev/vda1 rw\n",
        b"",
    ],
    ids=["FUSE", "FUSE that is two", "taken off its mount", "nothing is seen"],
)
def test_a_file_system_that_a_user_answers_for_is_not_read(monkeypatch: pytest.MonkeyPatch, mounts: bytes) -> None:
    """One that was taken off its mount serves those on who have a file of it mapped: root hung there, unkillable."""
    monkeypatch.setattr(activity, "read_proc", lambda path: mounts)
    monkeypatch.setattr(os, "open", lambda *words: pytest.fail("it was opened"))
    compat = mapped_libraries(MAPS)[1]
    with pytest.raises(UncountedError, match="FUSE"):
        open_library(os.getpid(), compat)


@pytest.mark.parametrize("here", [True, False], ids=["mounted here too", "mounted there alone"])
@pytest.mark.parametrize("own", [True, False], ids=["a user's namespace", "root's"])
def test_an_overlay_that_a_user_has_mounted_is_not_read(monkeypatch: pytest.MonkeyPatch, own: bool, here: bool) -> None:
    """It may be over a FUSE of his."""
    overlay, other = b"36 25 0:75 / /x rw - overlay it rw\n", b"37 25 253:1 / / rw - ext4 /dev/vda1 rw\n"
    monkeypatch.setattr(activity, "read_proc", lambda path: overlay if here or "self" not in path else other)
    monkeypatch.setattr(activity, "mounts_of_its_own", lambda pid: own)
    opened = opening(monkeypatch)
    with pytest.raises(UncountedError):
        open_library(1, mapped_libraries(MAPS)[1])
    assert bool(opened) == (here or not own)


def test_what_is_mapped_after_the_look_is_looked_at_before_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Another file, with the number of the first one, at the same address: on a file system that a user answers for."""
    real, file = activity.read_proc, tmp_path / "libcuda.so.1"
    file.write_bytes(b"of nobody's CUDA")
    with file.open("rb") as opened:
        request.addfinalizer(mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ).close)
    mapped = (real("/proc/self/maps") or b"").splitlines()
    (library,) = mapped_libraries(b"\n".join(line for line in mapped if os.fsencode(file) in line))
    with open(open_library(os.getpid(), library)) as found:
        assert os.fstat(found.fileno()).st_ino == library.inode
    place = os.open(file, os.O_PATH)
    mount = activity._mount_of(place)
    os.close(place)
    device = b"%d:%d" % tuple(int(part, 16) for part in library.device.split(b":"))
    mounts = b"1%s 1 %s / / rw - ext4 /dev/vda1 rw\n%s 1 0:77 / /his rw - fuse him rw\n" % (mount, device, mount)
    monkeypatch.setattr(
        activity, "read_proc", lambda path, *rest: mounts if path.endswith("/mountinfo") else real(path, *rest)
    )
    monkeypatch.setattr(os, "fstat", lambda fd: pytest.fail("its file system was asked"))
    with pytest.raises(UncountedError, match="FUSE"):
        open_library(os.getpid(), library)


def opening(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is opened from now on; nothing is there."""
    opened: list[bytes] = []

    def refused(path: bytes, *flags: int) -> int:
        opened.append(path)
        raise FileNotFoundError(2, "it maps another one by now")

    monkeypatch.setattr(os, "open", refused)
    return opened


def test_root_takes_no_way_through_what_a_user_has_mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = opening(monkeypatch)
    monkeypatch.setattr(activity, "_is_answered_by_the_kernel", lambda device, pid: True)
    for euid, ways in ((0, 1), (1000, 2)):
        monkeypatch.setattr(os, "geteuid", lambda euid=euid: euid)
        opened.clear()
        with pytest.raises(UncountedError):
            open_library(1, mapped_libraries(MAPS)[1])
        assert len(opened) == ways
        assert all(b"/map_files/" in path for path in opened[:1])


def test_a_process_without_a_library_is_not_read_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = activity.read_proc
    monkeypatch.setattr(activity, "read_proc", lambda path, *rest: read.append(path) or real(path, *rest))
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        key, counter = process_key(process.pid), LaunchCounter()
        assert key is not None
        for _ in range(3):
            with pytest.raises(UncountedError, match=r"no libcuda\.so mapped"):
                counter._find(key)
        assert read == [f"/proc/{key.pid}/maps"]
        counter._without[key] = 0.0, "long ago"
        with pytest.raises(UncountedError, match=r"no libcuda\.so mapped"):
            counter._find(key)
        assert len(read) == 2


# Real counters.


@by_program
def test_one_program_counts_each_process_and_its_new_threads_to_the_last_launch(
    client: Client, library: Path, counter: LaunchCounter
) -> None:
    second, uncounted = Client(library), Client(library)
    try:
        stranger = ProcessKey(os.getpid(), 1)
        refused = counter.attach([client.key, second.key, stranger])
        assert refused == {stranger: "it has ended"}
        assert counter.how == "one BPF program"
        for each, number in ((client, 500), (second, 7), (uncounted, 100)):
            each.launch(number)
        assert counter.read().counts == {client.key: 1000, second.key: 14}
        counter.detach()
        client.launch(100)
        assert counter.read().counts[client.key] == 1000
        assert counter.attach([client.key]) == {}
        client.launch(1)
        assert counter.read().counts == {client.key: 1002}
    finally:
        second.end()
        uncounted.end()


@by_program
def test_attached_one_by_one_it_counts_the_same_as_all_at_once(
    client: Client, counter: LaunchCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def old(self: activity._OneProgram, attached: int, load=activity._OneProgram._load) -> int:
        if attached:
            raise OSError(22, "an older kernel")
        return load(self, attached)

    monkeypatch.setattr(activity._OneProgram, "_load", old)
    assert counter.attach([client.key]) == {}
    client.launch(50)
    assert counter.read().counts == {client.key: 100}


def test_a_function_is_called_often_to_know_how_long_it_takes() -> None:
    calls: list[None] = []
    assert 0 < activity._seconds_a_call(lambda: calls.append(None)) < math.inf
    assert len(calls) == 1000


@by_program
def test_what_a_hit_costs_is_measured_on_this_machine(client: Client, counter: LaunchCounter) -> None:
    assert counter.launch_seconds == 0.0
    counter.attach([client.key])
    assert 1e-7 <= counter.launch_seconds < 1e-3
    assert counter.launch_seconds != activity.LAUNCH_SECONDS
    client.launch(3)
    assert counter.read().counts == {client.key: 6}, "and nobody is counted for it"


@by_counters
def test_without_bpf_threads_are_counted_and_new_ones_are_not_hindered(
    client: Client, library: Path, counter: LaunchCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activity._OneProgram, "__init__", _forbidden)
    assert counter.attach([client.key]) == {}
    assert counter.how == "a counter for each thread"
    client.launch(100)  # its new thread is not counted, and starts all the same
    assert counter.read().counts == {client.key: 100}
    assert counter.attach([client.key]) == {}
    client.launch(5)
    assert counter.read().counts == {client.key: 105}
    monkeypatch.setattr(activity, "COUNTERS", 4)
    second = Client(library)
    try:
        assert "too many" in counter.attach([client.key, second.key])[second.key]
        client.launch(5)
        assert counter.read().counts == {client.key: 110}
    finally:
        second.end()


def _forbidden(self: object, kernel: object) -> None:
    raise PermissionError(1, "Operation not permitted")


@by_program
def test_a_library_of_another_namespace_and_one_whose_name_is_gone_are_counted(
    library: Path, counter: LaunchCounter
) -> None:
    inside = Client(library, "unshare", "--mount", "--")
    library.unlink()
    library.write_bytes(b"another file of that name")
    try:
        assert counter.attach([inside.key]) == {}
        inside.launch(3)
        assert counter.read().counts == {inside.key: 6}
    finally:
        inside.end()


OTHER_NAMESPACE = """
import sys
sys.path[:0] = sys.argv[2:4]
from pathlib import Path
from observe_sources.test_launches import Client, LaunchCounter, own_namespace
assert own_namespace() is not None
client, counter = Client(Path(sys.argv[1])), LaunchCounter()
refused = counter.attach([client.key])
client.launch(21)
print(client.key.pid < 1000, refused, list(counter.read().counts.values()))
client.end()
"""


@pytest.mark.slow
@by_program
def test_in_a_pid_namespace_of_its_own_the_numbers_of_that_one_count(library: Path) -> None:
    tests = Path(__file__).parents[1]
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", OTHER_NAMESPACE]
    done = subprocess.run(
        [*command, str(library), str(tests), str(tests.parent)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "True {} [42]\n", done.stderr


ATTACHER = """
import sys
sys.path.insert(0, sys.argv[1])
from mpstui.core.model import ProcessKey
from mpstui.observe.activity import LaunchCounter
counter = LaunchCounter()
print(counter.attach([ProcessKey(int(sys.argv[2]), int(sys.argv[3]))]), flush=True)
sys.stdin.read()
"""


@by_program
def test_a_kill_leaves_nothing_attached(client: Client, library: Path) -> None:
    before = code_of(client.key.pid, library)
    project = str(Path(__file__).parents[2])
    arguments = [project, str(client.key.pid), str(client.key.start_ticks)]
    attacher = subprocess.Popen(
        [sys.executable, "-c", ATTACHER, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert attacher.stdout is not None
    assert attacher.stdout.readline() == "{}\n"
    assert code_of(client.key.pid, library) != before
    attacher.send_signal(signal.SIGKILL)
    attacher.communicate()
    deadline = time.monotonic() + 120
    while code_of(client.key.pid, library) != before:
        assert time.monotonic() < deadline, "the breakpoint has stayed"
    client.launch(10)


@pytest.mark.slow
def test_without_privileges_it_says_why(library: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to be somebody else")
    text = "from mpstui.observe.activity import trouble; print(trouble())"
    rest = ["--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c", text]
    done = subprocess.run(
        ["setpriv", *rest], capture_output=True, text=True, timeout=120, check=False, cwd=Path(__file__).parents[2]
    )
    if done.returncode != 0:
        pytest.skip(f"nobody may not run this Python: {done.stderr[-80:]}")
    assert "CAP_BPF" in done.stdout or "uprobe" in done.stdout


def test_its_own_namespace_is_told_from_the_machines() -> None:
    found = own_namespace()
    assert found is None or found[1] == os.stat("/proc/self/ns/pid").st_ino


def test_what_a_thread_had_launched_that_has_ended_goes_on_to_count(tmp_path: Path) -> None:
    def value(number: int) -> int:
        (tmp_path / str(number)).write_bytes(struct.pack("<Q", number) * 8)  # one for each look
        return os.open(tmp_path / str(number), os.O_RDONLY)

    counters, pid, ended = activity._ThreadCounters(None), os.getpid(), 1 << 30  # type: ignore[arg-type]
    gone = [value(5), value(7)]
    try:
        counters._counters[pid] = {pid: [value(30)], ended: gone}
        assert counters.counts() == {pid: 42}
        assert {pid, ended}.isdisjoint(counters.missing(pid))
        assert counters.counts() == {pid: 42}
        assert [os.path.exists(f"/proc/self/fd/{fd}") for fd in gone] == [False, False], "closed"
    finally:
        counters.close()
