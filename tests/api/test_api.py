"""The Python interface: what it gives on a simulated node, and what importing it does not bring."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing, closing
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from folders import simulated_node
from halfway import HalfStarted, start_slowly

import mpstui.api
from mpstui.core import condition
from mpstui.core.model import Daemon, Snapshot
from mpstui.fields.common import DEFAULT_PRIORITY
from mpstui.operations.registry import OPERATIONS
from mpstui.sim.node import SimNode

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
RECIPES = PAGE.with_name("recipes.md")
EXAMPLES = [
    each for page in (PAGE, RECIPES) for each in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
]


SECTIONS = {text.partition("\n")[0]: text for text in RECIPES.read_text().split("\n## ")[1:]}
SAYS = {
    "An exporter of one's own": r'gpu_user_memory_bytes\{user="alice"\} [1-9]',
    "A message when a fault happens": r"fatal GPU fault .* There were: \d+ \(",
    "End the idle clients of a user": r"1 client terminated\n1 idle clients of alice",
    "Check in CI that a node is as a profile says": "as wanted",
    "Plot the clients of the last day in a notebook": r"clients: .*█.* at most 1[0-9]",
}
"""What a recipe comes to in the demo."""


@pytest.fixture(autouse=True)
def audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MPSTUI_AUDIT_LOG", str(tmp_path / "audit.jsonl"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "audit.jsonl"


@pytest.fixture
def simulated() -> Iterator[SimNode]:
    with simulated_node() as running:
        yield running


def test_importing_it_brings_nothing_of_a_screen() -> None:
    program = (
        "import sys, mpstui.api; "
        "print(*sorted(m for m in sys.modules if m.split('.')[0] in {'textual', 'rich', 'mpstui'}))"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    modules = told.stdout.split()
    assert "mpstui.api" in modules
    assert not [m for m in modules if m.startswith(("textual", "rich", "mpstui.ui", "mpstui.cli"))]


def test_using_it_brings_nothing_of_a_screen_either(simulated: SimNode, tmp_path: Path) -> None:
    program = f"""
import sys, mpstui.api
with mpstui.api.open([{str(simulated.pipe_dir)!r}]) as node:
    snapshot = node.snapshot()
    mpstui.api.to_json(snapshot)
    list(node.events())
    node.past()
    next(node.watch())
    request = mpstui.api.Request("set_client_priority", snapshot.daemons[0].pipe_dir, "1")
    assert node.do(request).done
print(*[m for m in sys.modules if m.split('.')[0] in {{'textual', 'rich'}}])
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (told.returncode, told.stdout.split()) == (0, []), told.stderr


def test_every_name_is_there_and_told_of() -> None:
    assert mpstui.api.__all__ == sorted(mpstui.api.__all__, key=lambda name: (not name.isupper(), name))
    for name in mpstui.api.__all__:
        assert getattr(mpstui.api, name).__doc__
    assert not hasattr(mpstui.api, "__getattr__"), "what it hands on has a name and a docstring here"


def test_what_commands_and_screen_take_from_it_is_on_its_page() -> None:
    top, page = Path(mpstui.api.__file__).parent, PAGE.read_text()
    above = [*top.glob("cli/**/*.py"), *top.glob("ui/**/*.py"), *top.glob("export/*.py"), *top.glob("[cfw]*.py")]
    taken: set[str] = set()
    for text in map(Path.read_text, above):
        taken.update(re.findall(r"\bapi\.(\w+)", text))
        for names in re.findall(r"^ *from mpstui\.api import (\([^)]*\)|.*)$", text, re.MULTILINE):
            taken.update(re.findall(r"\w+", names.replace(" as ", ", ")))
    there = {name for name in taken if hasattr(mpstui.api, name)}
    assert "open" in there
    assert {name for name in there - {*mpstui.api.__all__} if f"`{name}`" not in page} == set()


RUN_EACH = """
import os, runpy, sys, mpstui.api
from pathlib import Path
(there, ready), (ended, ends) = os.pipe(), os.pipe()
if (demo := os.fork()) == 0:
    os.close(ends)
    with mpstui.api.open(demo=True) as node:
        os.write(ready, os.fsencode(node.snapshot().daemons[0].pipe_dir))
        os.read(ended, 1)
    sys.exit()
os.close(ready)
place, opened = Path(os.fsdecode(os.read(there, 4096))), mpstui.api.open
statuses = []
for program in sys.argv[1:]:
    if (pid := os.fork()) == 0:
        os.close(ends)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{program}.{name}", os.O_WRONLY | os.O_CREAT, 0o600), number)
        if Path(program).stem.endswith("looks"):
            mpstui.api.open = lambda *, demo: opened([place])
        sys.argv = [program]
        runpy.run_path(program, run_name="__main__")
        sys.exit()
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
os.close(ends)
statuses.append(os.waitstatus_to_exitcode(os.waitpid(demo, 0)[1]))
print(*statuses)
"""
"""Each program in a process of its own, which need not import the interface first. Those that only look at a demo look
at the same one."""


@pytest.mark.slow
def test_each_example_of_the_page_runs(tmp_path: Path) -> None:
    programs = []
    for number, text in enumerate(EXAMPLES):
        looks = "open(demo=True)" in text and ".do(" not in text
        programs.append(tmp_path / f"example_{number}{'_looks' * looks}.py")
        programs[-1].write_text(text)
    assert 0 < sum("looks" in program.stem for program in programs) < len(programs), "some have a node of their own"
    command = [sys.executable, "-c", RUN_EACH, *programs]
    environment = {**os.environ, "YES": "1"}
    told = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert told.returncode == 0, told.stderr
    *statuses, of_demo = told.stdout.split()
    assert of_demo == "0", told.stderr
    for program, text, status in zip(programs, EXAMPLES, statuses, strict=True):
        out, err = (Path(f"{program}.{name}").read_text() for name in ("out", "err"))
        assert status == "0", f"{text}\n{err}"
        assert out.strip(), text
        says = next((words for title, words in SAYS.items() if text in SECTIONS[title]), None)
        assert says is None or re.search(says, out), f"{text}\n{out}"


def test_there_are_examples_of_everything() -> None:
    text = "".join(EXAMPLES)
    assert all(
        f".{name}(" in text for name in ("open", "snapshot", "watch", "events", "preview", "do", "select", "to_json")
    )


def test_a_client_that_comes_is_seen(simulated: SimNode) -> None:
    with mpstui.api.open([simulated.pipe_dir]) as node:
        assert not list(node.snapshot().daemons[0].clients())
        client = simulated.spawn("busy", user="alice")
        (found,) = node.snapshot().daemons[0].clients()
        assert (found.pid, found.user) == (client.pid, "alice")
        client.tell("exit")


def test_what_changes_is_told_to_who_watches(simulated: SimNode) -> None:
    with mpstui.api.open([simulated.pipe_dir], refresh=0.1) as node, closing(node.watch()) as seen:
        next(s for s in seen if s.daemons and s.daemons[0].health == "ok")
        client = simulated.spawn("busy", user="alice")
        after = next(s for s in seen if any(c.pid == client.pid for d in s.daemons for c in d.clients()))
        assert after.source == "simulated"
        client.tell("exit")


class _Telling:
    """A collector that tells what it is given, one after the other."""

    def __init__(self, *told: Snapshot) -> None:
        self.told = told

    def subscribe(self, callback) -> None:
        self.callback = callback

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        for snapshot in self.told:
            loop.call_soon(self.callback, snapshot)

    async def stop(self) -> None:
        pass


async def test_who_watches_for_changes_begins_with_all_that_was_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML is asked, and each daemon that answers for its limits too; one that is never asked keeps nobody waiting
    beyond his time."""
    unasked = Daemon(Path("/p"), condition=condition.unasked("", condition.Moment()))
    answers = replace(unasked, condition=condition.ok())
    whole = Snapshot(5.0, daemons=(replace(answers, default_client_priority=0),), driver_version="580.1")
    parts = [
        replace(whole, time=1.0, looked=False),
        replace(whole, time=2.0, driver_version=None),
        replace(whole, time=3.0, daemons=(unasked,)),
        replace(whole, time=4.0, daemons=(answers,)),
    ]
    node = mpstui.api.AsyncNode((), (), 1.0, None)

    async def first(told: list[Snapshot], seconds: float) -> float:
        monkeypatch.setattr(node, "_make", lambda: _Telling(*told))
        async with aclosing(node.watch(whole_within=seconds)) as seen:
            return (await anext(seen)).time

    for number in range(len(parts)):
        assert await first([parts[number], whole], 600) == 5.0, number
    assert await first(parts[2:3], 0.01) == 3.0, "what is known then"
    assert await first(parts[3:], 0.0) == 4.0
    for enough in (
        replace(answers, lacks=frozenset({DEFAULT_PRIORITY})),
        replace(answers, condition=condition.gone("", "")),
    ):
        assert await first([replace(whole, daemons=(enough,))], 600) == 5.0


def test_events_are_told_once_with_their_daemon(simulated: SimNode) -> None:
    client = simulated.spawn("busy", user="alice")
    with mpstui.api.open([simulated.pipe_dir]) as node:
        events = list(node.events())
        came = [e for e in events if e.kind == "client_connected" and e.pid == client.pid]
        assert len(came) == 1
        assert came[0].pipe_dir == simulated.pipe_dir
        assert mpstui.api.to_json(came[0])["daemon"] == str(simulated.pipe_dir)
        with closing(node.events(follow=True)) as following:
            client.tell("exit")
            gone = next(e for e in following if e.kind == "client_disconnected")
            assert gone.pid == client.pid


def test_logs_alone_are_read_of_whatever_node(simulated: SimNode) -> None:
    log_dir = simulated.log_dir
    with mpstui.api.open(log_dirs=[log_dir]) as node:
        assert any(e.kind == "daemon_started" for e in node.events())
        (past,) = node.past()
        assert past.daemons[0].pipe_dir == simulated.pipe_dir


def test_a_change_is_read_back_and_written_down(simulated: SimNode, audit: Path) -> None:
    request = mpstui.api.Request("set_active_thread_percentage", simulated.pipe_dir, "25")
    steps: list[str] = []
    with mpstui.api.open([simulated.pipe_dir]) as node:
        assert node.preview(request).error is None
        result = node.do(request, steps.append)
        assert result.done, result
        assert node.snapshot().daemons[0].default_active_thread_percentage == 25.0
    assert "set_active_thread_percentage" in audit.read_text()


def test_a_wrong_value_is_a_result_and_sends_nothing(simulated: SimNode) -> None:
    request = mpstui.api.Request("set_active_thread_percentage", simulated.pipe_dir, "250")
    with mpstui.api.open([simulated.pipe_dir]) as node:
        result = node.do(request)
        assert (result.done, result.status) == (False, mpstui.api.ExitStatus.USAGE)


def test_what_can_be_asked_for_is_told(simulated: SimNode) -> None:
    assert mpstui.api.operations().keys() == {each.id for each in OPERATIONS if not each.subject}
    with mpstui.api.open([simulated.pipe_dir]) as node:
        for ask in (node.do, node.preview):
            with pytest.raises(ValueError, match="there is no operation 'nonsense'"):
                ask(mpstui.api.Request("nonsense", simulated.pipe_dir))


def test_a_change_costs_what_it_costs_from_the_command_line(simulated: SimNode) -> None:
    def sent() -> int:
        return (simulated.log_dir / "control.log").read_text(errors="replace").count("Cmd:")

    client, before = simulated.spawn("busy", user="alice"), sent()
    with mpstui.api.open([simulated.pipe_dir]) as node:
        assert node.do(mpstui.api.Request("set_active_thread_percentage", simulated.pipe_dir, "25")).done
    assert 2 <= sent() - before <= 4
    client.tell("exit")


@pytest.mark.parametrize("limited", [False, True])
def test_a_snapshot_asks_for_no_memory_limit_where_none_was_set(
    simulated: SimNode, monkeypatch: pytest.MonkeyPatch, limited: bool
) -> None:
    """The daemon's start lies further back in control.log than is read; whether a limit was set there is seen."""
    for name in ("HISTORY_BYTES", "CONTROL_BYTES"):
        monkeypatch.setattr(f"mpstui.observe.logs.{name}", 2000)
    log = simulated.log_dir / "control.log"
    if limited:
        simulated.control("set_default_device_pinned_mem_limit 1 20G")
    client = simulated.spawn("busy")
    with log.open("ab") as out:
        out.write(b"[2026-11-22 11:00:00.000 Control     7] Accepting connection..." + b"." * 2000 + b"\n")
    before = log.read_bytes().count(b"Cmd:")
    with mpstui.api.open([simulated.pipe_dir]) as node:
        (daemon,) = node.snapshot().daemons
    sent = log.read_bytes().count(b"Cmd:") - before
    (server,) = daemon.servers
    assert dict(daemon.default_pinned_mem_limits or {}) == ({"1": 20 << 30} if limited else {})
    assert (daemon.default_active_thread_percentage, daemon.default_client_priority) == (100.0, 0)
    assert (server.status, server.active_thread_percentage, server.pinned_mem_limits) == (
        "ACTIVE",
        100.0,
        {"1": 20 << 30} if limited else {},
    )
    assert [(each.pid, each.id is None, len(each.contexts)) for each in server.clients] == [(client.pid, False, 1)]
    assert sent > 8 if limited else 2 <= sent <= 8
    client.tell("exit")


def test_a_snapshot_asks_where_the_clients_are_of_whom_server_log_is_too_long_to_tell(
    simulated: SimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight commands, and the same servers and clients as where both logs are read whole."""
    monkeypatch.setattr("mpstui.observe.logs.HISTORY_BYTES", 2000)
    simulated.control("set_default_device_pinned_mem_limit 1 20G")
    clients = [simulated.spawn("busy") for _ in range(2)]
    simulated.control(f"set_active_thread_percentage {simulated.control('get_server_list').strip()} 25")
    found, log = [], simulated.log_dir / "control.log"
    for behind in (False, True):
        if behind:
            with (simulated.log_dir / "server.log").open("ab") as out:
                out.write(b"[2026-11-22 11:00:00.000 Server     7] Accepting connection..." + b"." * 2000 + b"\n")
        before = log.read_bytes().count(b"Cmd:")
        with mpstui.api.open([simulated.pipe_dir]) as node:
            (daemon,) = node.snapshot().daemons
        assert 2 <= log.read_bytes().count(b"Cmd:") - before <= 8
        (server,) = daemon.servers
        seen = {each.pid: (each.key, each.id, each.state, each.contexts, each.user) for each in server.clients}
        found.append(
            (daemon.default_pinned_mem_limits, server.pinned_mem_limits, server.active_thread_percentage, seen)
        )
    assert found[0] == found[1]
    assert seen.keys() == {each.pid for each in clients}
    for each in clients:
        each.tell("exit")


def test_read_only_changes_nothing(simulated: SimNode, tmp_path: Path) -> None:
    request = mpstui.api.Request("set_active_thread_percentage", simulated.pipe_dir, "25")
    with mpstui.api.open([simulated.pipe_dir], read_only=True) as node:
        assert node.do(request).status == mpstui.api.ExitStatus.REFUSED_BY_SAFETY_RULE
    (tmp_path / "config" / "mpstui").mkdir(parents=True)
    (tmp_path / "config" / "mpstui" / "config.toml").write_text("read_only = true\n")
    with mpstui.api.open([simulated.pipe_dir]) as node:
        assert node.do(request).status == mpstui.api.ExitStatus.REFUSED_BY_SAFETY_RULE
        assert node.snapshot().daemons[0].default_active_thread_percentage == 100.0


async def test_the_same_with_an_event_loop(simulated: SimNode) -> None:
    client = simulated.spawn("busy", user="alice")
    async with mpstui.api.open([simulated.pipe_dir]) as node:
        (found,) = (await node.snapshot()).daemons[0].clients()
        assert found.pid == client.pid
        async with aclosing(node.watch()) as seen:
            assert (await anext(seen)).daemons
        assert [e.pid async for e in node.events() if e.kind == "client_connected"] == [client.pid]
        assert (await node.past())[0].daemons
        request = mpstui.api.Request("set_client_priority", simulated.pipe_dir, "1")
        assert (await node.do(request)).done
    client.tell("exit")


@pytest.fixture
def half_started(monkeypatch: pytest.MonkeyPatch) -> HalfStarted:
    return start_slowly(monkeypatch)


@pytest.mark.parametrize("turns", [0, 10])
def test_a_node_waits_at_its_end_for_what_a_watch_that_was_left_has_half_started(
    simulated: SimNode, half_started: HalfStarted, turns: int
) -> None:
    async def leave() -> None:
        async with mpstui.api.open([simulated.pipe_dir]) as node:
            async for _ in node.watch():
                await half_started.begun.wait()
                break
            for _ in range(turns):
                await asyncio.sleep(0)

    asyncio.run(leave())
    assert not half_started.cancelled


def test_a_node_waits_at_its_end_for_what_somebody_else_has_half_started(
    simulated: SimNode, half_started: HalfStarted
) -> None:
    async def leave() -> None:
        async with mpstui.api.open([simulated.pipe_dir]) as node:
            asking = asyncio.create_task(node.one_daemon())
            await half_started.begun.wait()
        assert not asking.cancelled()

    asyncio.run(leave())
    assert not half_started.cancelled


async def test_who_follows_events_can_be_ended(simulated: SimNode) -> None:
    came = asyncio.Event()

    async def follow(node: mpstui.api.AsyncNode) -> None:
        async for event in node.events(0, follow=True):
            if event.kind == "client_connected":
                came.set()

    async with mpstui.api.open([simulated.pipe_dir]) as node:
        following = asyncio.create_task(follow(node))
        await asyncio.to_thread(lambda: simulated.spawn("busy", user="alice").tell("exit"))
        await asyncio.wait_for(came.wait(), 120)
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following


def test_what_cannot_be_opened_says_why(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="leave out pipe_dirs"):
        mpstui.api.open([tmp_path], demo=True)
    with pytest.raises(mpstui.api.UnusableNode, match="nonsense"), mpstui.api.open(demo="nonsense"):
        pass
    with mpstui.api.open(log_dirs=[tmp_path]) as node, pytest.raises(mpstui.api.UnreadableNodeError):
        list(node.events())


@pytest.mark.slow
def test_a_demo_ends_with_its_block() -> None:
    with mpstui.api.open(demo=True) as node:
        place = node.snapshot().daemons[0].pipe_dir
        assert place.exists()
    assert not place.exists()


@pytest.mark.slow
def test_ctrl_c_before_it_is_listened_for_leaves_nothing_half_done(monkeypatch: pytest.MonkeyPatch) -> None:
    with mpstui.api.open(demo=True) as node:
        place, loop = node.snapshot().daemons[0].pipe_dir, node._loop
        stream = node.watch()
        next(stream)
        with monkeypatch.context() as patched:
            patched.setattr(signal, "getsignal", lambda number: signal.default_int_handler)
            patched.setattr(loop, "add_signal_handler", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                node.snapshot()
            with pytest.raises(KeyboardInterrupt):
                next(stream)
        left = loop.create_task(asyncio.sleep(3600))
    assert left.cancelled()
    assert not asyncio.all_tasks(loop)
    assert not place.exists()


@pytest.mark.slow
def test_ctrl_c_ends_what_is_under_way_and_then_the_node(tmp_path: Path) -> None:
    program = """
import mpstui.api
try:
    with mpstui.api.open(demo=True) as node:
        place = node.snapshot().daemons[0].pipe_dir
        print("watching", flush=True)
        for snapshot in node.watch():
            pass
except KeyboardInterrupt:
    print("interrupted", place.exists(), flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "watching\n"
        running.send_signal(signal.SIGINT)
        assert running.stdout.readline() == "interrupted False\n"
        assert running.wait(120) == 0


def test_ctrl_c_in_the_moment_in_which_a_work_is_done_is_not_lost() -> None:
    """It used to be: who watched a node that changes all the time watched on."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever another test has left there
    pressed: list[None] = []

    async def work() -> None:
        if not pressed:
            pressed.append(asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT))

    with mpstui.api.open() as node:
        node._run(work())
        with pytest.raises(KeyboardInterrupt):
            node._run(work())
        node._run(work())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_what_the_screen_and_the_commands_read_is_there_for_a_program_too(simulated: SimNode) -> None:
    """The devices without a word to a daemon, the check-up, the profile that is in force, a client's environment, and
    what its logs tell of the past."""
    client = simulated.spawn("busy", user="alice")
    with mpstui.api.open([simulated.pipe_dir]) as node:
        assert node.simulated
        before = (simulated.log_dir / "control.log").read_bytes()
        hardware = node.hardware()
        assert hardware.devices[0].uuid
        assert hardware.error is None
        assert (simulated.log_dir / "control.log").read_bytes() == before
        snapshot = node.snapshot(complete=True)
        assert {finding.check for finding in node.findings(snapshot)} >= {"binary", "logs"}
        daemon = snapshot.daemons[0]
        assert node.in_force(daemon, snapshot).limits.active_thread_percentage == 100.0
        alone = node.asynchronous
        assert asyncio.run(alone.faults(daemon)) == ((), ())
        assert asyncio.run(alone.older_events(daemon, snapshot.time, 1)).events
        (simulated.log_dir / "server.log.2.gz").touch()
        (missing,) = asyncio.run(alone.faults(daemon)).missing
        assert missing.endswith("what was compressed is not read, and its events are missing: server.log.2.gz")
        assert asyncio.run(alone.older_events(daemon, snapshot.time, 10_000)).missing == (missing,)
        assert asyncio.run(alone.older_events(daemon, snapshot.time, 1)).missing == (), "there is enough without"
        assert asyncio.run(alone.environment(daemon.servers[0].clients[0].key)) is not None
        with pytest.raises(mpstui.api.Unavailable, match="--log-dir"):
            asyncio.run(alone.faults(replace(daemon, log_dir=None)))
    client.tell("exit")


def test_what_a_dead_daemon_left_is_removed_once_and_written_down(simulated: SimNode, audit: Path) -> None:
    request = mpstui.api.Request("remove_stale_files", simulated.pipe_dir)
    with mpstui.api.open([simulated.pipe_dir]) as node:
        assert node.do(request).status is mpstui.api.ExitStatus.NO_DAEMON
        assert (simulated.pipe_dir / "control").exists()
    simulated.kill_daemon()
    deadline = time.monotonic() + 120
    with mpstui.api.open([simulated.pipe_dir], read_only=True) as node:
        while node.snapshot().daemons[0].health != "stale":
            assert time.monotonic() < deadline
        assert node.do(request).status is mpstui.api.ExitStatus.REFUSED_BY_SAFETY_RULE
        assert (simulated.pipe_dir / "control").exists()
    with mpstui.api.open([simulated.pipe_dir]) as node:
        result = node.do(request)
        assert result.done, result.message
        assert "stale files were removed" in result.details[0]
        assert not (simulated.pipe_dir / "control").exists()
        again = node.do(request)
        assert not again.done
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert {line["action"] for line in lines} == {"remove_stale_files"}
    assert any("stale files were removed" in line["result"] for line in lines)
