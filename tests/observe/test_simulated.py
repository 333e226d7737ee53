"""The collector on a simulated node: real processes, real log files, real commands."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time

import pytest

from mpstui.observe.sources import NodeSources
from mpstui.observe.watcher import NodeWatcher
from mpstui.sim.marker import control_binary
from mpstui.sim.node import SimNode
from mpstui.sim.sources import SimNvml, SimProcesses
from mpstui.system.procfs import ProcProcesses


class Watched:
    """A collector that watches a simulated node."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        sources = NodeSources(
            True, control_binary(), SimNvml(node.pipe_dir), SimProcesses(node.pipe_dir, ProcProcesses())
        )
        self.collector = NodeWatcher([node.pipe_dir], sources)
        self._news = asyncio.Event()
        self.collector.subscribe(lambda snapshot: self._news.set())

    @property
    def daemon(self):
        snapshot = self.collector.snapshot
        return snapshot.daemons[0] if snapshot and snapshot.daemons else None

    @property
    def sent(self) -> int:
        return self.collector.control_for(self.node.pipe_dir).channel.sent

    async def until(self, condition, patience: float = 120.0):
        """Waits for a snapshot that fulfils ``condition``."""

        async def fulfilled() -> None:
            while not (self.daemon and condition(self.daemon)):
                self._news.clear()
                await self._news.wait()

        await asyncio.wait_for(fulfilled(), patience)
        return self.daemon

    async def spawn(self, *arguments, **options):
        return await asyncio.to_thread(lambda: self.node.spawn(*arguments, **options))

    async def command(self, text: str) -> str:
        return await asyncio.to_thread(self.node.control, text)

    def session(self, text: str, close: bool = True) -> subprocess.Popen[bytes]:
        """A control session that has got through with ``text``: one that meets another is refused and tried again."""
        log = self.node.log_dir / "control.log"
        environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(self.node.pipe_dir)}
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            before = log.stat().st_size
            process = subprocess.Popen(
                control_binary(),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
            process.stdin.write(text.encode())
            process.stdin.flush()
            if close:
                process.stdin.close()
            while process.poll() is None:
                if log.read_bytes()[before:].count(f"Cmd:{text.strip()}".encode()):
                    return process
        raise AssertionError("the session did not get through")


@pytest.fixture
async def watched(tmp_path_factory):
    node = SimNode.start(tmp_path_factory.mktemp("n"), gpus=1)
    found = Watched(node)
    await found.collector.start()
    try:
        await found.until(lambda daemon: daemon.health == "ok")
        yield found
    finally:
        await found.collector.stop()
        node.stop()


def pids(daemon):
    return {client.pid for client in daemon.clients()}


async def test_clients_come_with_their_facts_and_go(watched):
    client = await watched.spawn("busy", user="alice", command="python train.py")
    daemon = await watched.until(
        lambda d: [c for c in d.clients() if c.user == "alice" and c.contexts and c.id and c.gpu_memory]
    )
    (found,) = daemon.clients()
    assert (found.pid, found.state, found.command) == (client.pid, "ACTIVE", "python train.py")
    assert (found.active_thread_percentage, found.sm_count) == (100.0, 132)
    client.tell("exit")
    await watched.until(lambda d: not pids(d))


async def test_a_limit_marks_those_who_came_before(watched):
    await watched.spawn("idle")
    daemon = await watched.until(lambda d: [c for c in d.clients() if c.contexts and c.memory_limit_known])
    server = daemon.servers[0].pid
    await watched.command(f"set_active_thread_percentage {server} 25\nset_device_pinned_mem_limit {server} 0 2G")
    late = await watched.spawn("idle")
    daemon = await watched.until(
        lambda d: (
            len(pids(d)) == 2
            and all(c.active_thread_percentage for c in d.clients())
            and d.servers[0].active_thread_percentage == 25
        )
    )
    assert {c.pid == late.pid: (c.active_thread_percentage, c.outdated_limits) for c in daemon.clients()} == {
        False: (100.0, True),
        True: (25.0, False),
    }
    assert daemon.servers[0].pinned_mem_limits == {"0": 2 << 30}


async def test_fault_and_recovery(watched):
    first, second = await watched.spawn("idle"), await watched.spawn("idle")
    await watched.until(lambda d: len(pids(d)) == 2)
    first.tell("fault")
    await watched.until(lambda d: d.servers[0].status == "FAULT")
    for client in (first, second):
        client.kill()
    await watched.until(lambda d: d.servers[0].status == "ACTIVE" and not pids(d))


@pytest.mark.slow
async def test_a_second_terminate_is_found_out_and_explained(usual_deadline, watched):
    client = await watched.spawn("busy")
    daemon = await watched.until(lambda d: [c for c in d.clients() if c.contexts])
    command = f"terminate_client {daemon.servers[0].pid} {client.pid}\n"
    await watched.command(command)
    await watched.until(lambda d: [c for c in d.clients() if c.state == "TERMINATED"])
    again = await asyncio.to_thread(watched.session, command)
    try:
        daemon = await watched.until(lambda d: d.health == "blocked" and str(client.pid) in d.health_detail)
        assert pids(daemon) == {client.pid}
    finally:
        client.kill()
        await asyncio.to_thread(again.wait)
    await watched.until(lambda d: d.health == "ok" and not pids(d))


async def test_a_hostile_name_adds_nobody_and_starts_no_loop(watched):
    forged = b"x\n4711 9 1 GPU-1 1 forged\n[2026-11-20 21:24:28.598 Control   480] UI closed\nServer 1 exited\x1b[2J"
    await watched.spawn("idle")
    hostile = await watched.spawn("idle", argv0=forged)
    daemon = await watched.until(lambda d: len(pids(d)) == 2 and all(c.contexts for c in d.clients()))
    assert hostile.pid in pids(daemon)
    assert 4711 not in pids(daemon)
    assert all((c.command or "").isprintable() for c in daemon.clients())
    assert all(event.detail.isprintable() for event in watched.collector.snapshot.events)


async def test_a_killed_daemon_is_stale_and_its_successor_is_taken_up(watched):
    await watched.spawn("idle")
    await watched.until(pids)
    watched.node.kill_daemon()
    daemon = await watched.until(lambda d: d.health == "stale")
    assert daemon.servers == ()
    ends = lambda: [e for e in watched.collector.snapshot.events if e.kind == "daemon_exited"]  # noqa: E731
    await watched.until(lambda d: ends() and d.lost)
    (gone,) = ends()
    assert "killed" in gone.detail
    assert all(client.since is not None for client in watched.daemon.lost)
    assert daemon.remedy
    await asyncio.to_thread(watched.node.start_daemon)
    await watched.until(lambda d: d.health == "ok" and d.default_active_thread_percentage == 100)


@pytest.mark.slow
async def test_held_names_the_holder(watched):
    await watched.until(lambda d: d.default_active_thread_percentage == 100)
    holder = await asyncio.to_thread(watched.session, "get_server_list\n", close=False)
    try:
        watched.collector.request_refresh(watched.node.pipe_dir)
        daemon = await watched.until(lambda d: d.health == "held")
        assert daemon.holder.pid == holder.pid
        assert str(holder.pid) in daemon.health_detail
    finally:
        holder.stdin.close()
        await asyncio.to_thread(holder.wait)
    await watched.until(lambda d: d.health == "ok")


@pytest.mark.slow
async def test_a_client_that_comes_or_goes_costs_two_commands(watched):
    """The first one comes with its server, and with a complete reading."""
    first = await watched.spawn("idle")
    await watched.until(lambda d: [c for c in d.clients() if c.contexts and c.id and c.memory_limit_known])
    control_log = watched.node.log_dir / "control.log"

    def commands() -> list[bytes]:
        return [line.partition(b"Cmd:")[2] for line in control_log.read_bytes().splitlines() if b"Cmd:" in line]

    async def settled(asked: int = 0) -> None:
        """So much was asked, nothing is wanted and nothing under way any more, but the reading that follows a minute
        after a change. Of who ended /proc may tell before the logs do, which then have it asked."""
        (watcher,) = watched.collector._watchers.values()
        deadline = time.monotonic() + 120
        wanted = watcher.schedule
        while len(commands()) < asked or watcher._asking or wanted.membership or wanted.limits or wanted.moved:
            assert time.monotonic() < deadline, commands()
            await asyncio.sleep(0.01)

    await settled()
    before = commands()
    second = await watched.spawn("idle", user="bob", command="python late.py")
    daemon = await watched.until(lambda d: [c for c in d.clients() if c.pid == second.pid and c.contexts and c.id])
    (found,) = [c for c in daemon.clients() if c.pid == second.pid]
    assert (found.user, found.command, found.active_thread_percentage) == ("bob", "python late.py", 100.0)
    await settled(len(before) + 2)
    assert commands()[len(before) :] == [b"get_default_active_thread_percentage", b"ps"]
    before = commands()
    second.tell("exit")
    await watched.until(lambda d: pids(d) == {first.pid})
    await settled(len(before) + 2)
    server = watched.daemon.servers[0].pid
    assert commands()[len(before) :] == [f"get_client_list {server}".encode(), b"get_default_active_thread_percentage"]
