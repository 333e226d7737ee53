"""The channel beside binaries that misbehave: an outcome each time, never an exception, a hang or a process left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from contract.commands import Commands

from mpstui.api import _end_the_rest
from mpstui.control import channel as channel_module
from mpstui.control import holder as holder_module
from mpstui.control.answer import Outcome
from mpstui.control.binary import look
from mpstui.control.channel import MEANT, OUTPUT_LIMIT, ControlChannel, ExchangedError, RawReply
from mpstui.control.commandline import PROOF
from mpstui.control.holder import HeldSession
from mpstui.control.mps import MpsControl
from mpstui.control.protocol import LEGACY
from mpstui.core.model import SessionHolder
from mpstui.core.trust import Meant, Speaker
from mpstui.sim.marker import control_binary
from mpstui.sim.node import SimNode

Script = Callable[[str], tuple[str, ...]]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Makes an executable shell script of the given lines."""

    def make(text: str) -> tuple[str, ...]:
        path = tmp_path / f"fake-{len(list(tmp_path.iterdir()))}"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return (str(path),)

    return make


DEADLINES = (0.3, 3.0, 30.0)
"""For a binary that is to have done something before it is ended: the next one where the machine was too busy."""


def channel(tmp_path: Path, binary: tuple[str, ...], deadline: float = 120.0) -> ControlChannel:
    return ControlChannel(tmp_path / "pipe", binary, deadline=deadline, log_dir=tmp_path / "log")


async def until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait for a condition; fails after ``seconds``."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        await asyncio.sleep(0.005)


async def gone(pid_file: Path) -> None:
    """Wait until the process whose PID a script wrote down is no more."""

    def over() -> bool:
        if not (pid := pid_file.read_text().strip() if pid_file.exists() else ""):
            return False
        try:
            return psutil.Process(int(pid)).status() in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
        except psutil.NoSuchProcess:
            return True

    await until(over)


async def test_the_command_and_the_environment_reach_the_binary(tmp_path: Path, script: Script) -> None:
    binary = script('cat; echo "$CUDA_MPS_PIPE_DIRECTORY|$CUDA_MPS_LOG_DIRECTORY|$LC_ALL|$HOME"')
    one = channel(tmp_path, binary)
    reply = await one.run("get_server_list")
    home = os.environ.get("HOME", "")
    assert reply.stdout.decode() == f"{PROOF}\nget_server_list\n{tmp_path}/pipe|{tmp_path}/log|C|{home}\n"
    assert (reply.failure, reply.exit_status, reply.stderr, one.sent) == (None, 0, b"", 1)


async def test_a_second_line_is_never_sent(tmp_path: Path, script: Script) -> None:
    one = channel(tmp_path, script("cat"))
    for command in ("ps\nquit", "ps\r", "ps\x00", "ps\x1b[2J", "ps\u2028quit", "ps\udcff"):
        reply = await one.run(command)
        assert reply.failure is Outcome.REFUSED
    assert one.sent == 0


async def test_a_hanging_binary_is_killed_with_its_children(tmp_path: Path, script: Script) -> None:
    child = tmp_path / "child"
    binary = script(f"sleep 300 & echo $! > {child}; wait")
    for deadline in DEADLINES:
        answer = await MpsControl(channel(tmp_path, binary, deadline=deadline)).get_server_list()
        assert answer.outcome is Outcome.BLOCKED
        assert answer.message == f"The control daemon did not answer within {deadline:g} s."
        assert answer.seconds >= deadline
        if child.exists() and child.read_text().strip():
            break
    await gone(child)


async def test_output_that_came_before_the_deadline_is_kept(tmp_path: Path, script: Script) -> None:
    binary = script("echo half; exec sleep 300")
    for deadline in DEADLINES:
        answer = await MpsControl(channel(tmp_path, binary, deadline=deadline)).get_server_list()
        if answer.stdout:
            break
    assert (answer.outcome, answer.stdout, answer.value) == (Outcome.BLOCKED, b"half\n", None)


async def test_a_cancelled_command_leaves_no_process(tmp_path: Path, script: Script) -> None:
    mine = tmp_path / "mine"
    task = asyncio.create_task(channel(tmp_path, script(f"echo $$ > {mine}; exec sleep 300")).run("ps"))
    await until(lambda: mine.exists() and mine.read_text() != "")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await gone(mine)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("cancels", range(3))
@pytest.mark.parametrize("turns", range(6))
def test_a_loop_can_be_ended_at_any_moment_of_a_start(tmp_path: Path, script: Script, turns: int, cancels: int) -> None:
    """asyncio waited for ever for one that was cancelled before its pipes were connected, and so did a node's close;
    one that was cancelled in the moment in which it had started was left running."""

    async def begun() -> None:
        asked = asyncio.create_task(channel(tmp_path, script("while :; do sleep 600; done")).run("get_server_list"))
        before = len(asyncio.all_tasks())
        while len(asyncio.all_tasks()) == before:  # noqa: ASYNC110 - any wait would pass over the moment
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        for _ in range(cancels):
            asked.cancel()
            await asyncio.sleep(0)

    with contextlib.closing(asyncio.new_event_loop()) as loop:
        loop.run_until_complete(begun())
        loop.run_until_complete(_end_the_rest())
        loop.run_until_complete(loop.shutdown_default_executor())
    left = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # gone by now
            if any(str(tmp_path) in word for word in child.cmdline()):
                left.append(child)
    assert not psutil.wait_procs(left, timeout=60)[1]


async def test_the_channel_works_after_a_cancelled_command(tmp_path: Path, script: Script) -> None:
    started = tmp_path / "started"
    binary = script(f"if [ -e {started} ]; then echo 634; else touch {started}; exec sleep 300; fi")
    one = channel(tmp_path, binary)
    task = asyncio.create_task(one.run("ps"))
    await until(started.exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await MpsControl(one).get_server_list()).value == (634,)


async def test_a_flood_is_cut_off(tmp_path: Path, script: Script) -> None:
    one = channel(tmp_path, script("exec yes"))
    answer = await MpsControl(one).get_server_list()
    assert answer.outcome is Outcome.UNREADABLE
    assert answer.message == "The control binary printed more than 4 MiB."
    assert len(answer.stdout) < OUTPUT_LIMIT + (1 << 20)


async def test_a_flood_on_stderr_is_cut_off(tmp_path: Path, script: Script) -> None:
    answer = await MpsControl(channel(tmp_path, script("exec yes >&2"))).ps()
    assert answer.outcome is Outcome.UNREADABLE


async def test_a_binary_that_never_reads_its_input(tmp_path: Path, script: Script) -> None:
    answer = await MpsControl(channel(tmp_path, script("exec 0<&-; echo 634"))).get_server_list()
    assert answer.value == (634,)


async def test_an_answer_in_small_pieces_is_put_together(tmp_path: Path, script: Script) -> None:
    binary = script("for i in 6 3 4; do printf $i; sleep 0.02; done; echo")
    assert (await MpsControl(channel(tmp_path, binary)).get_server_list()).value == (634,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("echo 634; exit 3", "The control binary exited with status 3: “634”."),
        ("echo oops >&2; exit 1", "The control binary exited with status 1: “oops”."),
        ("kill -SEGV $$", "The control binary was killed by signal 11."),
        ("printf '\\377\\033[2J'", "The answer cannot be read: “\\xff\\x1b[2J”."),
    ],
)
async def test_garbage_is_told_as_it_is(tmp_path: Path, script: Script, text: str, message: str) -> None:
    answer = await MpsControl(channel(tmp_path, script(text))).get_server_list()
    assert (answer.outcome, answer.value, answer.message) == (Outcome.UNREADABLE, None, message)


@pytest.mark.parametrize("name", ["missing", "not-executable", "directory", "no-interpreter", "nul\0"])
async def test_a_binary_that_cannot_be_run(tmp_path: Path, name: str) -> None:
    (tmp_path / "not-executable").write_text("#!/bin/sh\n")
    (tmp_path / "directory").mkdir()
    (tmp_path / "no-interpreter").write_text("#!/nowhere/sh\n")
    (tmp_path / "no-interpreter").chmod(0o755)
    binary = (str(tmp_path / name),)
    answer = await MpsControl(channel(tmp_path, binary)).get_server_list()
    assert answer.outcome is Outcome.NO_BINARY
    assert answer.message.startswith(str(tmp_path))
    assert answer.message.isprintable()
    assert (await look(binary, 120.0)).missing


async def test_no_binary_at_all(tmp_path: Path) -> None:
    assert (await channel(tmp_path, ()).run("ps")).failure is Outcome.NO_BINARY


@pytest.mark.parametrize("directory", ["/tmp/" + "x" * 90, "/tmp/x\0y"])
async def test_a_pipe_directory_that_no_daemon_can_have(directory: str, script: Script) -> None:
    one = ControlChannel(Path(directory), script("cat"))
    answer = await MpsControl(one).get_server_list()
    assert (answer.outcome, one.sent) == (Outcome.ABSENT, 0)
    assert answer.message.isprintable()


async def test_never_two_commands_at_once_for_a_daemon(tmp_path: Path, script: Script) -> None:
    (tmp_path / "pipe").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "pipe")
    binary = script(f"mkdir {tmp_path}/busy || echo TWO; sleep 0.02; rmdir {tmp_path}/busy; echo 634")
    channels = [ControlChannel(tmp_path / name, binary) for name in ("pipe", "alias", "pipe/../pipe")]
    replies = await asyncio.gather(*(one.run("ps") for one in channels * 3))
    assert [reply.stdout for reply in replies] == [b"634\n"] * 9


async def test_two_daemons_do_not_wait_for_each_other(tmp_path: Path, script: Script) -> None:
    """Each binary ends only when the other has started."""
    binary = script(
        'touch "$CUDA_MPS_PIPE_DIRECTORY-up"\n'
        f"until [ -e {tmp_path}/a-up ] && [ -e {tmp_path}/b-up ]; do sleep 0.01; done; echo 634"
    )
    replies = await asyncio.gather(*(ControlChannel(tmp_path / name, binary).run("ps") for name in "ab"))
    assert [reply.stdout for reply in replies] == [b"634\n"] * 2


CANNOT_SEND = "echo 'Cannot send command to MPS control daemon process' >&2; exit 1"


async def test_a_session_that_is_soon_over_goes_unnoticed(tmp_path: Path, script: Script) -> None:
    once = tmp_path / "once"
    one = channel(tmp_path, script(f"if mkdir {once} 2>/dev/null; then {CANNOT_SEND}; fi; echo 634"))
    assert (await MpsControl(one).get_server_list()).value == (634,)
    assert one.sent == 2


async def test_refusals_alone_are_no_held_session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Others' one-shots may follow one another; it is tried again, at changing intervals, until the deadline."""
    now, pauses, sleep = 100.0, [], asyncio.sleep
    one = ControlChannel(tmp_path / "pipe", (), deadline=2.0)

    async def refused(command: str, lines: str, deadline: float) -> RawReply:
        one.sent += 1
        return RawReply(command, stderr=b"Cannot send command to MPS control daemon process\n", exit_status=1)

    async def later(seconds: float) -> None:
        nonlocal now
        now += seconds
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(channel_module, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(channel_module.asyncio, "sleep", later)
    one._send = refused  # type: ignore[method-assign]
    one._sessions.look = lambda logged: (False, None)  # type: ignore[method-assign]
    answer = await MpsControl(one).get_server_list()
    assert (answer.outcome, answer.holder) == (Outcome.BUSY, None)
    assert "kept the daemon busy" in answer.message
    assert one.sent == len(pauses) + 1 > 3
    assert len(set(pauses)) == len(pauses)
    assert 1.0 < now - 100 <= 2.0


async def test_a_session_that_stays_is_held(tmp_path: Path, script: Script) -> None:
    one = channel(tmp_path, script(CANNOT_SEND))
    looks = []

    def look(logged: bool) -> tuple[bool, SessionHolder | None]:
        looks.append(logged)
        return len(looks) == 2, SessionHolder(4711, "bob")

    one._sessions.look = look  # type: ignore[method-assign]
    answer = await MpsControl(one).get_server_list()
    assert (answer.outcome, answer.holder) == (Outcome.HELD, SessionHolder(4711, "bob"))
    assert answer.message == "A control session is kept open by PID 4711, user bob."
    assert looks == [False, False]


async def test_a_machine_that_is_slow_is_no_reason_not_to_see_that_a_session_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The deadline is over when a session could be seen for the first time: a later look tells whether it stays."""
    for module in (channel_module, holder_module):
        monkeypatch.setattr(module, "HELD_AFTER", 0.6)
    one = ControlChannel(tmp_path / "pipe", (), deadline=0.3)

    async def refused(command: str, lines: str, deadline: float) -> RawReply:
        return RawReply(command, stderr=b"Cannot send command to MPS control daemon process\n", exit_status=1)

    one._send = refused  # type: ignore[method-assign]
    who = SessionHolder(4711, "bob", start_ticks=1)
    one._sessions._find = lambda *_: [HeldSession(who, frozenset({815}))]
    answer = await MpsControl(one).get_server_list()
    assert (answer.outcome, answer.holder) == (Outcome.HELD, who)
    inodes = iter(range(1000))
    one._sessions._find = lambda *_: [HeldSession(who, frozenset({next(inodes)}))]
    answer = await MpsControl(one).get_server_list()
    assert answer.outcome is Outcome.BUSY, "one after the other"


async def test_a_session_that_is_known_to_stay_is_not_waited_out(tmp_path: Path, script: Script) -> None:
    one = channel(tmp_path, script(CANNOT_SEND))
    control = MpsControl(one)
    control.session_stays(True)
    answer = await control.get_server_list()
    assert (answer.outcome, answer.message) == (Outcome.HELD, "Another process keeps a control session open.")
    assert one.sent == 1


async def test_a_command_needs_nothing_of_us_once_it_is_started(tmp_path: Path, script: Script) -> None:
    """Stopped with Ctrl-Z between the start and the first byte, mpstui would keep the session open for everybody."""
    done, before = tmp_path / "done", set(psutil.Process().children())
    running = asyncio.ensure_future(channel(tmp_path, script(f"cat > /dev/null; touch {done}; echo 100.0")).run("ps"))
    end = time.monotonic() + 120
    while set(psutil.Process().children()) <= before and not done.exists():
        await asyncio.sleep(0)  # one turn of the loop at a time until the process is there, and none after that
        assert time.monotonic() < end
    while not done.exists():
        assert time.monotonic() < end, "it waits for its input"
    await running


SILENT = "cat > /dev/null; exit"


@pytest.mark.parametrize("status", [0, 1])
async def test_a_binary_that_says_nothing_has_delivered_nothing(
    tmp_path: Path, script: Script, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """It is what an empty list and a limit that was set look like, and it is neither (fact 30)."""
    exchange = channel_module.exchange

    async def in_its_time(*words: Any) -> RawReply:
        return await exchange(*words[:3], 120.0, *words[4:])  # the deadline below is that of the tries alone

    monkeypatch.setattr(channel_module, "exchange", in_its_time)
    control = Commands(ControlChannel(tmp_path / "pipe", script(f"{SILENT} {status}"), deadline=0.2))
    for answer in (await control.get_server_list(), await control.set_default_client_priority(1), await control.quit()):
        assert (answer.outcome, answer.value) == (Outcome.BUSY, None)


async def test_what_was_refused_without_a_word_is_sent_again(tmp_path: Path, script: Script) -> None:
    once = tmp_path / "once"
    one = channel(tmp_path, script(f"if mkdir {once} 2>/dev/null; then {SILENT}; fi; echo 100.0; echo 634"))
    assert (await MpsControl(one).get_server_list()).value == (634,)
    assert one.sent == 2


async def test_a_terminate_that_may_have_arrived_is_not_sent_again(tmp_path: Path, script: Script) -> None:
    """A second one would block the daemon (fact 16)."""
    one = channel(tmp_path, script(SILENT))
    answer = await MpsControl(one).terminate_client(634, 645)
    assert (answer.outcome, one.sent) == (Outcome.BUSY, 1)
    assert "printed nothing" in answer.message


async def test_a_quit_that_took_the_binary_s_word_along_is_done(tmp_path: Path, script: Script) -> None:
    """In 28 of 40 tries the binary printed nothing when the daemon ended under it (fact 30)."""
    gone = tmp_path / "gone"
    absent = "echo 'Cannot find MPS control daemon process' >&2; exit 1"
    one = channel(tmp_path, script(f"if [ -e {gone} ]; then {absent}; fi; grep -q quit && touch {gone}; exit 0"))
    assert (await MpsControl(one).quit()).ok
    assert one.sent == 2


async def test_a_quit_that_did_not_arrive_is_sent_again(tmp_path: Path, script: Script) -> None:
    """A daemon that answers a question after it has not heard of it (fact 19)."""
    first = tmp_path / "first"
    one = channel(tmp_path, script(f"grep -q quit || echo 100.0; mkdir {first} 2>/dev/null || echo 100.0"))
    assert (await MpsControl(one).quit()).ok
    assert one.sent == 3


async def test_an_empty_answer_behind_the_proof_is_one(tmp_path: Path, script: Script) -> None:
    one = channel(tmp_path, script("echo 100.0"))
    answer = await MpsControl(one).get_server_list()
    assert (answer.outcome, answer.value, answer.stdout) == (Outcome.OK, (), b"")
    assert one.sent == 1


async def test_terminate_and_quit_have_their_own_deadline(tmp_path: Path, script: Script) -> None:
    one = ControlChannel(tmp_path / "pipe", script("sleep 0.3; echo 0"), deadline=0.1, terminate_deadline=120.0)
    assert (await MpsControl(one).terminate_client(1, 2)).ok
    assert (await MpsControl(one).get_server_list()).outcome is Outcome.BLOCKED


async def test_words_that_would_shift_the_arguments_are_not_sent(tmp_path: Path, script: Script) -> None:
    one = channel(tmp_path, script("cat"))
    for device in ("0 ", "", "0\n", "GPU-x\ty", "-1"):
        sent, read = await MpsControl(one).change(LEGACY.set_memory_limit(None, device, "1G"), LEGACY.priority())
        assert {sent.outcome, read.outcome} == {Outcome.REFUSED}
    assert one.sent == 0


async def test_what_each_method_sends(tmp_path: Path, script: Script) -> None:
    """Against the syntax that was recorded on a real daemon."""
    sent = tmp_path / "sent"
    control = Commands(channel(tmp_path, script(f"cat >> {sent}; echo 100.0")))
    uuid = "GPU-c6233a33-3507-69ef-fed3-0090a2cbc745"
    await control.get_server_list()
    await control.get_server_status(634)
    await control.get_client_list(634)
    await control.get_device_client_list()
    await control.get_device_client_list(634)
    await control.ps()
    await control.ps(634)
    await control.device_query()
    await control.get_default_active_thread_percentage()
    await control.set_default_active_thread_percentage(33.3)
    await control.get_active_thread_percentage(634)
    await control.set_active_thread_percentage(634, 25)
    await control.get_default_device_pinned_mem_limit(0)
    await control.set_default_device_pinned_mem_limit("0", "10G")
    await control.get_device_pinned_mem_limit(634, "0")
    await control.set_device_pinned_mem_limit(634, uuid, "3G")
    await control.get_default_client_priority()
    await control.set_default_client_priority(1)
    await control.start_server(0)
    await control.shutdown_server(634)
    await control.shutdown_server(634, force=True)
    await control.terminate_client(634, 645)
    await control.quit()
    await control.quit(2)
    lines = sent.read_text().splitlines()
    assert set(lines[::2]) == {PROOF}
    assert lines[1::2] == [
        "get_server_list",
        "get_server_status 634",
        "get_client_list 634",
        "get_device_client_list",
        "get_device_client_list 634",
        "ps",
        "ps -p 634",
        "device_query",
        "get_default_active_thread_percentage",
        "set_default_active_thread_percentage 33.3",
        "get_active_thread_percentage 634",
        "get_server_status 634",  # an empty answer: is it starting?
        "set_active_thread_percentage 634 25",
        "get_server_status 634",  # an empty answer: is it starting?
        "get_default_device_pinned_mem_limit 0",
        "set_default_device_pinned_mem_limit 0 10G",
        "get_device_pinned_mem_limit 634 0",
        f"set_device_pinned_mem_limit 634 {uuid} 3G",
        "get_server_status 634",  # an empty answer: is it starting?
        "get_default_client_priority",
        "set_default_client_priority 1",
        "start_server -uid 0",
        "shutdown_server 634",
        "shutdown_server 634 -f",
        "terminate_client 634 645",
        "quit",
        "quit -t 2",
    ]


async def test_the_version_needs_no_daemon(script: Script) -> None:
    modes = "  -M,--multiuser-server  mode\\n  -m,--multiuser  mode\\n"
    lists = 'test "$*" = -h && printf "OPTIONS:\\n  -h,--help   Print this\\n%b" "' + modes + '" && exit;'
    says = 'test "$*" = -v && echo "CUDA MPS Control for Linux/Unix/QNX. Binary version: 13000"; echo; echo "(C)"'
    found = await look(script(f"{lists} {says}"), 120.0)
    assert (found.options, found.version, found.multi_user, found.static_partitions) == ("listed", "13000", "-M", False)
    assert found.multi_user_of(3) == "-m"
    assert "not answered in" in (await look(script("exec sleep 300"), 0.2)).trouble
    assert (await look(script("echo hello"), 120.0)).options == "unknown"
    assert (await look(script("yes"), 120.0)).options == "unknown"


@pytest.mark.parametrize(
    ("driver", "options", "version", "multi_user", "static"),
    [
        ("470.256.02", "none", None, None, False),
        ("550.163.01", "none", None, None, False),
        ("555.58.02", "usage", None, "-multiuser-server", False),
        ("580.159.04", "listed", "13000", "-M", False),
        ("590.44.01", "listed", "13010", "-M", True),
        ("615.71", "listed", "13040", "-M", True),
    ],
)
async def test_what_a_binary_knows_is_asked_without_a_session(
    driver: str, options: str, version: str | None, multi_user: str | None, static: bool, tmp_path: Path
) -> None:
    """Also beside a daemon: an old binary would open a session with it, which is in its log."""
    node = await asyncio.to_thread(lambda: SimNode.start(tmp_path / "n", driver=driver))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(node.pipe_dir))
            found = await look(control_binary(driver), 120.0)
        assert (found.options, found.version) == (options, version)
        assert (found.multi_user, found.static_partitions) == (multi_user, static)
        assert "NEW UI" not in (node.log_dir / "control.log").read_text()
    finally:
        await asyncio.to_thread(node.stop)


async def test_a_command_cancelled_while_it_starts_is_reaped_once(
    tmp_path: Path, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    """`Unknown child process pid N, will report returncode 255` came on the terminal of whoever left at that moment."""
    channel = ControlChannel(tmp_path, script("exit 3"))
    for turns in range(40):
        running = asyncio.ensure_future(channel.run("get_server_list"))
        for _ in range(turns % 8):
            await asyncio.sleep(0)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    assert "Unknown child process" not in caplog.text


@pytest.mark.parametrize(
    ("said", "deadline"),
    [("60", 60.0), ("1", 5.0), ("", 5.0), ("long", 5.0), ("nan", 5.0), ("inf", 3600.0), ("-1", 5.0)],
)
def test_a_longer_deadline_than_usual_can_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, deadline: float
) -> None:
    monkeypatch.setenv("MPSTUI_CONTROL_DEADLINE", said)
    assert ControlChannel(tmp_path, ()).deadline == deadline


@pytest.mark.parametrize(("length", "outcome", "sent"), [(107, Outcome.OK, 1), (108, Outcome.ABSENT, 0)])
async def test_a_socket_path_may_have_107_bytes(tmp_path: Path, script: Script, length: int, outcome, sent) -> None:
    """``sun_path`` has 108, with its NUL."""
    one = ControlChannel(Path("/" + "d" * (length - len("//control_privileged"))), script("echo 100.0"))
    assert (await MpsControl(one).get_server_list()).outcome is outcome
    assert one.sent == sent


@pytest.mark.parametrize(("there", "outcome"), [(True, Outcome.NOT_PERMITTED), (False, Outcome.ABSENT)])
async def test_a_change_is_not_sent_to_a_daemon_of_an_unknown_user_and_not_said_to_be_where_none_is(
    tmp_path: Path, script: Script, there: bool, outcome: Outcome
) -> None:
    folder = tmp_path / "pipe"
    folder.mkdir()
    if there:
        (folder / "control").touch()
    unknown = Speaker(None, "somebody has exchanged its sockets")
    made = ControlChannel(folder, script(f"touch {tmp_path}/sent; cat"), deadline=120.0, speaker=lambda path: unknown)
    before = MEANT.set(Meant(folder, Speaker(0, "root's daemon")))
    try:
        reply = await made._send("quit", "quit\n", 120.0)
    finally:
        MEANT.reset(before)
    assert (reply.failure, reply.asked, made.sent) == (outcome, False, 0)
    assert not (tmp_path / "sent").exists()


async def test_a_change_whose_sockets_are_exchanged_at_its_last_moment_was_not_sent(
    tmp_path: Path, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def exchanged(*judged: object) -> Iterator[Any]:
        raise ExchangedError("its sockets were exchanged")
        yield

    monkeypatch.setattr(channel_module, "as_judged", exchanged)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    roots = Speaker(0, "root's daemon", (1, 2, 0, 0, 5, 0, 6, 0))
    made = ControlChannel(tmp_path, script(f"touch {tmp_path}/sent; cat"), deadline=120.0, speaker=lambda path: roots)
    reply = await made._send("quit", "quit\n", 120.0)
    assert (reply.failure, reply.asked, made.sent) == (Outcome.NOT_PERMITTED, False, 0)
    assert not (tmp_path / "sent").exists()
