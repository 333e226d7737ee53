"""Each drill of the simulated node is seen for what it is and put right with what mpstui offers."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mpstui.cli.past import DRILLS
from mpstui.core.faults import fault_reports
from mpstui.node import open_node
from mpstui.observe.watcher import NodeWatcher
from mpstui.operations.audit import AuditLog
from mpstui.operations.runner import OperationRunner
from mpstui.operations.types import Request
from mpstui.sim import drills, modes, serving
from mpstui.sim.node import SimNode
from mpstui.system.procfs import process_key

PATIENCE = 120.0


class Drill:
    """A collector and a runner on a drill's node."""

    def __init__(self, folder: Path, collector: NodeWatcher) -> None:
        self.pipe_dir = folder
        self.collector = collector
        self.runner = OperationRunner(collector, AuditLog(folder / "audit.jsonl"), grace=2.0)

    async def until(self, condition):
        """Waits until the newest snapshot has what is asked for, and gives it."""
        found: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        def look(snapshot):
            if snapshot.daemons and not found.done() and (value := condition(snapshot, snapshot.daemons[0])):
                found.set_result(value)

        unsubscribe = self.collector.subscribe(look)
        try:
            if self.collector.snapshot is not None:
                look(self.collector.snapshot)
            return await asyncio.wait_for(found, PATIENCE)
        except asyncio.TimeoutError:
            raise AssertionError(f"it never came to that: {self.collector.snapshot}") from None
        finally:
            unsubscribe()

    async def act(self, action, *clients):
        snapshot = self.collector.snapshot
        return await self.runner.execute(Request(action, self.pipe_dir, clients=clients), snapshot)


@asynccontextmanager
async def drill(name):
    folder = Path(tempfile.mkdtemp(prefix="mpstui-"))
    node = await asyncio.to_thread(SimNode.start, folder, scenario=name)
    try:
        sources, dirs = open_node([folder])
        collector = NodeWatcher(dirs, sources)
        await collector.start()
        try:
            yield Drill(folder, collector)
        finally:
            await collector.stop()
    finally:
        await asyncio.to_thread(node.stop)
        shutil.rmtree(folder, ignore_errors=True)


def test_the_command_line_offers_each_of_them():
    assert set(DRILLS) == set(drills.DRILLS)
    assert set(serving.ALL) == {"demo", "crowd", *DRILLS, *modes.MODES}


@pytest.mark.slow
async def test_fault_is_ended_with_its_clients():
    async with drill("fault") as node:
        users = {"alice", "bob", "carol"}

        def told(snapshot, daemon):
            """The report of the fault, once it is known whose the processes are and the daemon has said FAULT."""
            for report in fault_reports(daemon, snapshot):
                if (
                    report.fault.confirmed
                    and {client.user for client in report.left} == users
                    and all(c.user for c in report.unhurt)
                ):
                    return report
            return None

        report = await node.until(told)
        assert {client.user for client in report.unhurt} == {"dave"}
        assert {note.user for note in report.notes} == users
        await node.until(lambda s, d: d.servers[0].fault and d.servers[0].fault.refused)
        await node.until(lambda s, d: all(key.start_ticks for key in d.servers[0].fault.affected))
        result = await node.act("end_lost_clients")
        assert result.done, result
        await node.until(lambda s, d: d.servers and d.servers[0].status == "ACTIVE")
        await node.until(lambda s, d: [e for e in s.events if e.kind == "server_recovered"])

        def only_the_unhurt(snapshot, daemon):
            left = {client.user for client in daemon.clients()}
            return "dave" in left and not left & users

        await node.until(only_the_unhurt)


@pytest.mark.slow
@pytest.mark.usefixtures("usual_deadline")
async def test_blocked_is_freed_by_ending_one_process():
    async with drill("blocked") as node:
        found = await node.until(lambda s, d: d.blocked_by and d.blocked_by.start_ticks and d.condition)
        assert found.frees == "unblock"
        result = await node.act("unblock")
        assert result.done, result
        await node.until(lambda s, d: d.health == "ok" and d.find_client(found.ends[0]) is None)


@pytest.mark.slow
async def test_held_names_the_process_that_has_to_end():
    async with drill("held") as node:
        holder = await node.until(lambda s, d: d.health == "held" and d.holder)
        os.kill(holder.pid, signal.SIGTERM)
        await node.until(lambda s, d: d.health == "ok")


@pytest.mark.slow
async def test_pending_gets_in_when_the_others_have_ended():
    async with drill("pending") as node:
        waiting = await node.until(
            lambda s, d: d.pending and d.pending[0].waits_for and d.pending[0].user and d.pending[0]
        )
        assert waiting.user == "bob"

        def all_of_them(snapshot, daemon):
            keys = [c.key for c in daemon.clients() if c.key.start_ticks and c.pid in waiting.waits_for]
            return keys if len(keys) == len(waiting.waits_for) else None

        keys = await node.until(all_of_them)
        result = await node.act("terminate_and_kill", *keys)
        assert result.done, result
        await node.until(lambda s, d: not d.pending and d.find_client(waiting.key))


@pytest.mark.slow
async def test_full_takes_the_next_one_when_one_has_ended():
    async with drill("full") as node:
        await node.until(lambda s, d: [e for e in s.events if e.kind == "client_refused"])
        await node.until(lambda s, d: "device_full" in {problem.code for problem in s.problems})
        key = await node.until(  # one with a context: who was refused is listed for a moment too
            lambda s, d: next((c.key for c in d.clients() if c.key.start_ticks and c.contexts), None)
        )
        result = await node.act("terminate_and_kill", key)
        assert result.done, result
        await node.until(lambda s, d: any(c.user == "erin" for c in d.clients()))


@pytest.mark.slow
async def test_stale_names_those_who_lost_their_server_and_a_new_daemon_is_seen():
    async with drill("stale") as node:
        found = await node.until(
            lambda s, d: d.health == "stale" and len(d.lost) == 3 and all(c.user for c in d.lost) and d
        )
        assert found.condition.cause == "gone"
        assert {client.user for client in found.lost} == {"alice", "carol", "dave"}
        again = SimNode(node.pipe_dir, node.pipe_dir / "logs")
        await asyncio.to_thread(again.start_daemon)
        try:
            await node.until(lambda s, d: d.health == "ok")
        finally:
            await asyncio.to_thread(again.stop)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fault", "stale"])
async def test_nothing_of_a_drill_outlives_it(name):
    async with drill(name) as node:
        pids = await node.until(
            lambda s, d: {c.pid for c in d.clients()} | {c.pid for c in d.lost} | {d.pid} - {None} or None
        )
    deadline = asyncio.get_running_loop().time() + 120
    while any(process_key(pid) for pid in pids):
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_nostart_is_a_problem_of_its_own_and_says_why():
    async with drill("nostart") as node:
        found = await node.until(lambda s, d: d.start_failures and d.start_failures.count >= 6 and d.start_failures)
        assert (found.reason, found.uid) == ("operation not supported", 0)
        problem = await node.until(lambda s, d: next((p for p in s.problems if p.code == "server_start"), None))
        assert "No server starts: " in problem.text
        assert "operation not supported" in problem.text
        assert "gVisor" in problem.remedy
        more = await node.until(lambda s, d: d.start_failures.count > found.count and d.start_failures)
        assert (more.since, more.reason) == (found.since, found.reason)
