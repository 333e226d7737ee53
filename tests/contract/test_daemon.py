"""Contract: the end of a daemon or a server, and what is left behind (facts 3, 19, 20)."""

from __future__ import annotations

import asyncio
import contextlib
import os

import psutil
import pytest

from contract.commands import Commands
from contract.harness import WAIT, End, Node, eventually, only_server
from mpstui.control.answer import Outcome

RPC_FAILURE = 806


def left_behind(node: Node) -> set[str]:
    """The daemon's own files in its pipe directory."""
    return {path.name for path in node.pipe_dir.iterdir() if not path.name.startswith((".", "mpstui-"))}


LIVING = {"control", "control_lock", "control_privileged", "log", "nvidia-cuda-mps-control.pid"}


async def ended(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    return True


async def absent(control: Commands) -> None:
    answer = await eventually(control.get_server_list, lambda answer: not answer.ok)
    assert (answer.outcome, answer.exit_status, answer.stdout) == (Outcome.ABSENT, 1, b"")
    assert answer.stderr == b"Cannot find MPS control daemon process\n"


@pytest.mark.every_driver
async def test_a_living_daemon_has_its_files(node: Node, control: Commands) -> None:
    if node.driver is not None and not node.driver.pid_file:
        assert left_behind(node) == LIVING - {"nvidia-cuda-mps-control.pid"}
        return
    assert left_behind(node) == LIVING
    assert (node.pipe_dir / "nvidia-cuda-mps-control.pid").read_text().strip() == str(node.daemon_pid)


@pytest.mark.every_driver
async def test_quit_without_clients(node: Node, control: Commands) -> None:
    assert (await control.quit()).ok
    await absent(control)
    assert left_behind(node) == {"control", "control_lock", "control_privileged"}


async def test_quit_waits_for_the_clients(node: Node, control: Commands) -> None:
    client = await node.spawn("busy")
    await only_server(control)
    leaving = asyncio.create_task(control.quit())
    done, _ = await asyncio.wait({leaving}, timeout=1.0)
    assert not done
    assert await client.stop() == End(0, 0)
    assert (await asyncio.wait_for(leaving, WAIT)).ok
    await absent(control)


async def test_quit_with_a_time_limit_ends_the_clients(node: Node, control: Commands) -> None:
    client = await node.spawn("busy")
    await only_server(control)
    answer = await control.quit(1)
    assert answer.ok
    assert answer.seconds > 0.9
    assert await client.ended() == End(10, RPC_FAILURE)
    await absent(control)


async def test_shutdown_server_waits_and_force_does_not(node: Node, control: Commands) -> None:
    client = await node.spawn("busy")
    server = await only_server(control)
    assert (await control.shutdown_server(server)).ok
    assert (await control.get_server_list()).value == (server,)
    assert client.running
    assert (await control.shutdown_server(server, force=True)).ok
    await eventually(control.get_server_list, lambda answer: answer.value == ())
    assert (await client.ended()).error


@pytest.mark.every_driver
@pytest.mark.ready_server
async def test_shutdown_server_without_clients(node: Node, control: Commands) -> None:
    assert (await control.start_server(os.getuid())).ok
    server = await only_server(control)
    assert (await control.shutdown_server(server)).ok
    await eventually(control.get_server_list, lambda answer: answer.value == ())


async def test_a_killed_daemon_leaves_its_files_and_ends_its_clients(node: Node, control: Commands) -> None:
    client = await node.spawn("busy")  # one that does nothing may end well before it hears of it, as on an H200
    server = await only_server(control)
    await node.kill_daemon()
    await absent(control)
    assert left_behind(node) == LIVING
    await eventually(lambda: ended(server), bool)
    assert await client.ended() == End(10, RPC_FAILURE)


@pytest.mark.every_driver
async def test_a_daemon_can_be_started_again_where_one_was_killed(node: Node, control: Commands) -> None:
    await node.kill_daemon()
    await absent(control)
    assert (await node.start_daemon())[0] == 0
    assert (await control.get_server_list()).ok


@pytest.mark.every_driver
async def test_a_second_daemon_in_the_same_directory(node: Node, control: Commands) -> None:
    status, text = await node.start_daemon()
    assert (status, text.strip()) == (1, "An instance of this daemon is already running")
    assert (await control.get_server_list()).ok
