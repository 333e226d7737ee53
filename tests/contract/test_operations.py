"""Operations on servers, on the simulated node and on a real daemon: what is read back is what the daemon has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from contract.commands import Commands
from contract.harness import Node, eventually, only_server
from mpstui.core.model import Snapshot
from mpstui.node import open_node
from mpstui.observe.watcher import NodeWatcher
from mpstui.operations.audit import AuditLog
from mpstui.operations.daemons import StopDaemon
from mpstui.operations.runner import OperationRunner
from mpstui.operations.types import ExitStatus, Request, Result
from mpstui.plan.profile import DaemonProfile, Limits
from mpstui.plan.settings import drift, in_force


class Acting:
    """A node with its runner; each request is made on a fresh look at it."""

    def __init__(self, node: Node, folder: Path) -> None:
        sources, dirs = open_node((node.pipe_dir,))
        self.collector = NodeWatcher(dirs, sources, log_dirs=(node.log_dir,))
        self.runner = OperationRunner(self.collector, AuditLog(folder / "audit.jsonl"))
        self.pipe_dir = node.pipe_dir

    async def look(self) -> Snapshot:
        return await self.collector.once()

    async def do(self, request: Request) -> Result:
        return await self.runner.execute(request, await self.look())


@pytest.mark.slow
@pytest.mark.no_server
async def test_defaults_are_set_by_a_profile_and_the_daemon_is_stopped(
    node: Node, control: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a server, and so without a GPU: what is saved is what was set, and the question of a stop names it."""
    if node.real:
        monkeypatch.setenv("MPSTUI_CONTROL_BINARY", node.binary[0])
    acting = Acting(node, tmp_path)
    known = node.knows("set_default_client_priority")
    wanted = DaemonProfile(limits=Limits(40.0, 1 if known else None))
    applied = await acting.do(Request("apply_profile", node.pipe_dir, subject=wanted))
    assert applied.status is ExitStatus.DONE, applied
    assert (await control.get_default_active_thread_percentage()).value == 40.0
    snapshot = await acting.look()
    (daemon,) = snapshot.daemons
    assert in_force(daemon).limits == wanted.limits
    assert drift(daemon, wanted) == ()
    shown = dict(StopDaemon().preview(StopDaemon().request(daemon), snapshot).facts)
    assert "40 %" in shown["limits"]
    assert "mpstui profile save" in shown["limits"]
    stopped = await acting.do(StopDaemon().request(daemon))
    assert stopped.status is ExitStatus.DONE, stopped
    assert not (await control.get_server_list()).ok


@pytest.mark.slow
async def test_a_server_is_shut_down_and_read_back(node: Node, control: Commands, tmp_path: Path) -> None:
    client = await node.spawn("busy")
    server = await only_server(control)
    acting = Acting(node, tmp_path)
    request = Request("shutdown_server", node.pipe_dir, server_pid=server)
    waits = await acting.do(request)
    assert waits.status is ExitStatus.REFUSED_BY_DAEMON, waits
    assert waits.message == f"server {server} was told to end, and waits for 1 client"
    assert client.running
    unnamed = await acting.do(request._replace(force=True))
    assert (unnamed.status, str(client.pid) in unnamed.message) == (ExitStatus.REFUSED_BY_SAFETY_RULE, True)
    assert (await control.get_server_list()).value == (server,)
    (found,) = (await acting.look()).daemons[0].servers
    named = tuple(one.key for one in found.clients)
    done = await acting.do(request._replace(force=True, clients=named, subject=found.key))
    assert (done.status, done.message) == (ExitStatus.DONE, f"server {server} has ended"), done
    assert (await control.get_server_list()).value == ()
    assert (await client.ended()).error


@pytest.mark.slow
async def test_a_server_is_started_and_shut_down_without_clients(node: Node, control: Commands, tmp_path: Path) -> None:
    acting = Acting(node, tmp_path)
    started = await acting.do(Request("start_server", node.pipe_dir, str(os.getuid())))
    assert started.status is ExitStatus.DONE, started
    server = await only_server(control)
    if not node.real:  # a real daemon may list it a little later
        assert started.details == (f"server {server} has started; it takes clients once it is ready",)
    await eventually(lambda: control.get_server_status(server), lambda answer: answer.value == "ACTIVE")
    done = await acting.do(Request("shutdown_server", node.pipe_dir, server_pid=server))
    assert (done.status, done.message) == (ExitStatus.DONE, f"server {server} has ended"), done
    gone = await acting.do(Request("shutdown_server", node.pipe_dir, server_pid=server))
    assert gone.status is ExitStatus.REFUSED_BY_DAEMON
