"""Facts of real child processes, and the handle through which one is killed."""

from __future__ import annotations

import asyncio
import os
import platform
import pty
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from mpstui.core.model import ProcessKey
from mpstui.system import procfs
from mpstui.system.procfs import (
    PidFd,
    ProcessFacts,
    ProcProcesses,
    Stat,
    Trouble,
    is_alive,
    login_name,
    open_pidfd,
    process_key,
    read_arguments,
    read_stat,
    start_time,
    terminal_name,
    user_name,
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
Waiter = Callable[..., "Popen[bytes]"]
NO_PID = 2**22 + 5
"""Above the largest pid_max."""


def one(source: ProcProcesses, pid: int) -> ProcessFacts:
    return source.facts([pid])[pid]


def key_of(process: Popen[bytes]) -> ProcessKey:
    key = process_key(process.pid)
    assert key is not None
    assert key.start_ticks is not None
    return key


def end(process: Popen[bytes]) -> None:
    """Kill, and wait until it is a zombie; it is not reaped."""
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def test_facts_of_a_child(waiter: Waiter) -> None:
    before = time.time()
    child = waiter(env={"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps_0", "CUDA_": "x", "SECRET": "1", "XCUDA_A": "2"})
    facts = one(ProcProcesses(), child.pid)
    assert facts.key == key_of(child)
    assert facts.start_time == pytest.approx(before, abs=5)
    assert (facts.uid, facts.user) == (os.geteuid(), login_name(os.geteuid()))
    assert facts.command is not None
    assert facts.command.startswith(f"{sys.executable} -S -c import os, sys\\n")
    assert facts.cpu_seconds is not None
    assert 0 <= facts.cpu_seconds < 20
    assert facts.cgroup is not None
    assert facts.cgroup.startswith("/")
    assert facts.pid_namespace == os.stat("/proc/self/ns/pid").st_ino
    assert facts.environment == {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps_0", "CUDA_": "x"}


def test_start_ticks_and_cpu_time_are_the_kernel_s(waiter: Waiter) -> None:
    child = waiter("import time\nwhile time.process_time() < 0.1: pass")
    facts = one(ProcProcesses(), child.pid)
    with open(f"/proc/{child.pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    assert facts.key.start_ticks == int(fields[19])
    assert facts.cpu_seconds is not None
    assert facts.cpu_seconds >= 0.08
    assert facts.start_time == pytest.approx(start_time(int(fields[19])), abs=1)


def test_cpu_time_moves_and_an_idle_process_gives_the_very_same_facts(waiter: Waiter) -> None:
    child = waiter("import time")
    source = ProcProcesses()
    first = one(source, child.pid)
    assert one(source, child.pid) is first
    own = [one(source, os.getpid())]
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    own.append(one(source, os.getpid()))
    assert own[1].cpu_seconds is not None
    assert own[0].cpu_seconds is not None
    assert own[1].cpu_seconds > own[0].cpu_seconds
    assert own[1].command == own[0].command


def test_an_exec_is_noticed_though_pid_and_start_time_stay(waiter: Waiter) -> None:
    code = "print('ready', flush=True); sys.stdin.readline()\n"
    code += "os.execv(sys.executable, ['other', '-S', '-c', 'print(\"again\", flush=True); input()'])"
    child = waiter(code)
    source = ProcProcesses()
    first = one(source, child.pid)
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(b"\n")
    child.stdin.flush()
    assert child.stdout.readline() == b"again\n"
    second = one(source, child.pid)
    assert second.key == first.key
    assert second.command is not None
    assert second.command.startswith("other -S")


def test_one_that_let_nobody_read_its_memory_is_read_when_it_does(
    waiter: Waiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    child, source = waiter("import time"), ProcProcesses()
    with monkeypatch.context() as kept:
        kept.setattr(procfs, "read_each", lambda paths, limit: [None] * len(paths))
        assert one(source, child.pid).command is None
    found = one(source, child.pid)
    assert found.command is not None
    assert found.environment is not None
    assert one(source, child.pid) is found


@pytest.mark.parametrize("name", [b"x) R 1 (y", b")", b"(((", b"a b\n7"])
def test_a_name_cannot_forge_stat(waiter: Waiter, name: bytes) -> None:
    code = f"open('/proc/self/comm', 'wb').write({name!r})"
    child = waiter(code)
    stat = read_stat(child.pid)
    assert stat is not None
    assert stat.comm == name
    assert stat.start_ticks == pytest.approx(time.clock_gettime(time.CLOCK_BOOTTIME) * 100, abs=6000)
    assert is_alive(stat.key)


def test_a_hostile_command_line_is_printable_and_bounded(waiter: Waiter, spawn: Callable[..., Popen[bytes]]) -> None:
    code = b"print('ready', flush=True); input()"
    child = spawn([sys.executable, "-S", "-c", code, b"\x1b[2J\n\xff[red]", b"A" * 100_000])
    command = one(ProcProcesses(), child.pid).command
    assert command is not None
    assert "\\x1b[2J\\n\\xff[red]" in command
    assert command.isprintable()
    assert len(command) == 1000


def test_an_empty_command_line_shows_the_name_in_brackets() -> None:
    """As a thread of the kernel has it, of which a container sees none."""
    with Popen([""], executable="/bin/sh", stdin=PIPE, stdout=PIPE, start_new_session=True) as child:  # not posix_spawn
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"echo ready; read word\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"ready\n"
        assert read_arguments(child.pid) == []
        assert one(ProcProcesses(), child.pid).command == "[sh]"


def test_who_is_gone_is_missing(waiter: Waiter) -> None:
    child = waiter()
    source = ProcProcesses()
    assert set(source.facts([child.pid, NO_PID, 0, -1, os.getpid()])) == {child.pid, os.getpid()}
    end(child)
    assert source.facts([child.pid]) == {}
    child.wait()
    assert source.facts([child.pid]) == {}


def test_is_alive(waiter: Waiter) -> None:
    child = waiter()
    key = key_of(child)
    assert key.start_ticks is not None
    assert is_alive(key)
    assert is_alive(ProcessKey(child.pid))
    assert not is_alive(ProcessKey(child.pid, key.start_ticks - 1)), "a successor of the PID is somebody else"
    end(child)
    assert not is_alive(key), "a zombie is dead"
    assert not is_alive(ProcessKey(child.pid))
    child.wait()
    assert not is_alive(key)


@pytest.mark.skipif(platform.machine() not in {"x86_64", "aarch64"}, reason="needs the number of exit(2)")
def test_a_zombie_with_living_threads_is_alive(waiter: Waiter) -> None:
    number = {"x86_64": 60, "aarch64": 93}[platform.machine()]
    code = "import ctypes, threading, select\n"
    code += "def rest():\n    while open('/proc/self/stat').read().split()[2] != 'Z': pass\n"
    code += "    print('ready', flush=True)\n    os.read(0, 1)\n"
    code += f"threading.Thread(target=rest).start()\nctypes.CDLL(None).syscall({number}, 0)"
    child = waiter(code)
    stat = read_stat(child.pid)
    assert stat is not None
    assert stat.state == "Z"
    assert is_alive(stat.key)
    with _opened(stat.key):
        pass


@needs_root
def test_what_may_not_be_read_is_none(waiter: Waiter) -> None:
    mine = waiter(env={"CUDA_VISIBLE_DEVICES": "0"})
    code = f"""
sys.path.insert(0, {str(Path(procfs.__file__).parents[2])!r})
from mpstui.system.procfs import ProcProcesses, open_pidfd, process_key
import signal
open_pidfd(process_key(os.getpid())).close()
"\\n".encode("unicode_escape")  # the interpreter's own files may be out of reach afterwards
os.setgid(65534)
os.setuid(65534)
facts = ProcProcesses().facts([{mine.pid}])[{mine.pid}]
assert facts.environment is None, facts
assert facts.uid == 0 and facts.user == "root" and facts.key.start_ticks, facts
assert facts.command.endswith("sys.stdin.read()") and facts.cpu_seconds is not None, facts
process = open_pidfd(facts.key)
trouble = process.send(signal.SIGTERM)
assert trouble.not_permitted and "{mine.pid}" in trouble.message, trouble
"""
    waiter(code)
    assert is_alive(key_of(mine))


@needs_root
def test_the_effective_user_counts(waiter: Waiter) -> None:
    facts = one(ProcProcesses(), waiter("os.setreuid(0, 12345)").pid)
    assert (facts.uid, facts.user) == (12345, "12345")


def test_a_process_that_proc_hides_is_there_with_nothing_known(monkeypatch: pytest.MonkeyPatch, waiter: Waiter) -> None:
    child = waiter()
    key = key_of(child)

    def hidden(path: str, flags: int) -> int:
        raise FileNotFoundError(path)

    def not_mine(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "open", hidden)
    monkeypatch.setattr(os, "kill", not_mine)
    facts = ProcProcesses().facts([child.pid])
    alive, handle = is_alive(key), open_pidfd(key)
    monkeypatch.undo()
    assert facts == {child.pid: ProcessFacts(ProcessKey(child.pid))}
    assert alive
    assert isinstance(handle, Trouble)
    assert handle.not_permitted


def test_the_terminal_is_named_as_ps_names_it(waiter: Waiter) -> None:
    master, slave = pty.openpty()
    try:
        child = waiter(
            "import fcntl, termios\n" + f"fcntl.ioctl({slave}, termios.TIOCSCTTY, 0)",
            start_new_session=True,
            pass_fds=[slave],
        )
        assert one(ProcProcesses(), child.pid).terminal == os.ttyname(slave).removeprefix("/dev/")
    finally:
        os.close(master)
        os.close(slave)


@pytest.mark.parametrize(
    ("device", "name"),
    [((136, 3), "pts/3"), ((137, 4), "pts/260"), ((136, 300), "pts/300"), ((4, 1), "tty1"), ((4, 64), "ttyS0")],
)
def test_terminal_names(device: tuple[int, int], name: str) -> None:
    assert terminal_name(os.makedev(*device)) == name


def test_no_terminal() -> None:
    assert terminal_name(0) is None


def test_a_user_without_a_name_is_a_number() -> None:
    assert user_name(0) == "root"
    assert login_name(3_999_999_999) == "3999999999", "in a column of users"
    assert user_name(3_999_999_999) == "UID 3999999999", "in a sentence"


def test_the_clock_may_be_set(monkeypatch: pytest.MonkeyPatch, waiter: Waiter) -> None:
    child = waiter()
    source = ProcProcesses()
    first = one(source, child.pid)
    real = time.time
    assert first.start_time is not None
    monkeypatch.setattr(time, "time", lambda: real() + 0.2)
    assert one(source, child.pid) is first, "a small correction moves nothing on the screen"
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    second = one(source, child.pid)
    assert second.key == first.key
    assert second.start_time == pytest.approx(first.start_time + 3600, abs=2)


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch, waiter: Waiter) -> None:
    monkeypatch.setattr(procfs, "_SPARE", 0)
    children = [waiter() for _ in range(3)]
    source = ProcProcesses()
    for child in children:
        source.facts([child.pid])
    assert set(source._known) == {child.pid for child in children[-2:]}, "twice as many as are asked for"


def _opened(key: ProcessKey) -> PidFd:
    handle = open_pidfd(key)
    assert isinstance(handle, PidFd), handle
    return handle


async def test_a_handle_signals_and_waits(waiter: Waiter) -> None:
    child = waiter()
    with _opened(key_of(child)) as process:
        assert not await process.wait(0.01)
        assert process.send(signal.SIGTERM) is None
        assert await asyncio.gather(process.wait(120), process.wait(120)) == [True, True]
        child.wait()
        assert child.returncode == -signal.SIGTERM
        assert process.send(signal.SIGKILL) is None, "nobody to reach is no trouble"
        assert await process.wait(0.0001)


async def test_who_has_ended_is_known_to_have_where_the_time_for_it_is_over_at_once(
    waiter: Waiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a busy machine: the loop does not come to look before the time is over."""
    child = waiter()

    async def over(ended: Coroutine[object, object, object], timeout: float) -> None:
        ended.close()
        raise asyncio.TimeoutError

    with _opened(key_of(child)) as process:
        monkeypatch.setattr(asyncio, "wait_for", over)
        assert not await process.wait(0.01)
        child.terminate()
        child.wait()
        assert await process.wait(0.01)


async def test_a_wait_that_is_cancelled_leaves_nothing_behind(waiter: Waiter) -> None:
    child = waiter()
    with _opened(key_of(child)) as process:
        before = set(os.listdir("/proc/self/fd"))
        task = asyncio.ensure_future(process.wait(120))
        await asyncio.sleep(0)
        assert set(os.listdir("/proc/self/fd")) != before, "it waits"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert set(os.listdir("/proc/self/fd")) == before
    process.close()


def test_no_handle_on_who_is_gone_or_on_a_successor(waiter: Waiter) -> None:
    child = waiter()
    key = key_of(child)
    assert key.start_ticks is not None
    before = len(os.listdir("/proc/self/fd"))
    for other in (ProcessKey(child.pid, key.start_ticks + 1), ProcessKey(NO_PID, 1), ProcessKey(-1, 1)):
        handle = open_pidfd(other)
        assert isinstance(handle, Trouble)
        assert handle.gone
        assert str(other.pid) in handle.message
    end(child)
    zombie = open_pidfd(key)
    assert isinstance(zombie, Trouble)
    assert zombie.gone
    assert len(os.listdir("/proc/self/fd")) == before


def test_no_handle_without_a_start_time() -> None:
    handle = open_pidfd(ProcessKey(os.getpid()))
    assert isinstance(handle, Trouble)
    assert "start time" in handle.message
    assert not handle.gone


@pytest.mark.parametrize(("number", "word"), [(38, "kernel"), (1, "forbidden"), (24, "Too many open files")])
def test_a_kernel_without_pidfds_is_said_in_words(monkeypatch: pytest.MonkeyPatch, number: int, word: str) -> None:
    def refuse(pid: int, flags: int = 0) -> int:
        raise OSError(number, "")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    handle = open_pidfd(ProcessKey(os.getpid(), 1))
    assert isinstance(handle, Trouble)
    assert word in handle.message
    assert not handle.gone


def test_a_python_without_pidfds_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    handle = open_pidfd(ProcessKey(os.getpid(), 1))
    assert isinstance(handle, Trouble)
    assert "pidfds" in handle.message


def test_processes_that_nobody_asks_for_any_more_are_forgotten(monkeypatch):
    """Counted in objects; one that is asked for now and then is not read anew."""
    read = []
    stats = {}

    def stat_of(pid):
        return stats.setdefault(pid, Stat(pid, b"train", "S", 0, 1, 1, pid, 7))

    monkeypatch.setattr(procfs, "_raw_stat", lambda pid: b"%d" % pid)
    monkeypatch.setattr(procfs, "_stat", lambda pid, raw: stat_of(pid))
    monkeypatch.setattr(procfs, "process_key", lambda pid: stat_of(pid).key)
    monkeypatch.setattr(
        ProcProcesses, "_read_all", lambda self, stat: (read.append(stat.pid), ProcessFacts(stat.key, command="x"))[1]
    )
    processes = ProcProcesses()
    for number in range(2000):
        processes.facts([10_000 + number, 5] if number % 10 == 0 else [10_000 + number])
    assert len(processes._known) <= 100
    assert read.count(5) == 1


def test_a_process_that_has_done_nothing_is_not_taken_apart_again(monkeypatch, waiter: Waiter) -> None:
    """Of one that has, or that another has the number of now, what has changed is told."""
    child = waiter()
    processes = ProcProcesses()
    before, raw = processes.facts([child.pid])[child.pid], procfs._raw_stat(child.pid)
    while processes._known[child.pid][0] != raw:  # it is still starting
        before, raw = processes.facts([child.pid])[child.pid], procfs._raw_stat(child.pid)
    assert raw is not None
    told = [raw]
    monkeypatch.setattr(procfs, "_raw_stat", lambda pid: told[-1])
    taken = []
    stat = procfs._stat
    monkeypatch.setattr(procfs, "_stat", lambda pid, line: (taken.append(line), stat(pid, line))[1])
    assert processes.facts([child.pid])[child.pid] is before
    assert not taken
    begin, _, rest = raw.rpartition(b") ")
    fields = rest.split()

    def but(at: int, more: int) -> bytes:
        return begin + b") " + b" ".join([*fields[:at], b"%d" % (int(fields[at]) + more), *fields[at + 1 :]])

    told.append(but(11, 100))
    after = processes.facts([child.pid])[child.pid]
    assert after.cpu_seconds == (before.cpu_seconds or 0) + 100 / os.sysconf("SC_CLK_TCK")
    told.append(but(19, 5))
    assert processes.facts([child.pid])[child.pid].key == ProcessKey(child.pid, (before.key.start_ticks or 0) + 5)
