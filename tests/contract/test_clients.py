"""Contract: clients as the daemon lists them, and what happens when one ends (facts 9–11, 15–18)."""

from __future__ import annotations

import asyncio
import os

import pytest

from contract.commands import Commands
from contract.harness import (
    WAIT,
    ClientRefused,
    End,
    Node,
    control_of,
    eventually,
    logged,
    only_server,
    raw_session,
    status_becomes,
)
from mpstui.control.answer import Outcome
from mpstui.control.wire import ClientContext
from mpstui.node import open_node as open_sources

TERMINATED = 810
NOT_READY = 807
CLEAN = End(0, 0)


async def test_clients_are_listed_alike_everywhere(node: Node, control: Commands) -> None:
    clients = [await node.spawn() for _ in range(2)]
    pids = {client.pid for client in clients}
    server = await only_server(control)
    assert set((await control.get_client_list(server)).value or ()) == pids
    rows = (await control.ps()).value or ()
    assert {row.pid for row in rows} == pids
    assert {row.server for row in rows} == {server}
    assert {row.namespace for row in rows} == {os.stat("/proc/self/ns/pid").st_ino}
    query = (await control.device_query()).value
    assert query is not None
    assert all(query.default[0].uuid.startswith(row.device) and row.device for row in rows)
    (device,) = (await control.get_device_client_list(server)).value or ()
    assert (device.ordinal, device.name) == (0, query.default[0].name)
    assert set(device.contexts) == {ClientContext(pid, 1) for pid in pids}
    assert await clients[0].stop() == CLEAN
    await eventually(lambda: control.get_client_list(server), lambda answer: answer.value == (clients[1].pid,))
    assert [row.pid for row in (await control.ps(server)).value or ()] == [clients[1].pid]


async def test_a_client_on_two_devices_has_one_row_and_two_contexts(node: Node, control: Commands) -> None:
    if node.device_count < 2:
        pytest.skip("needs two GPUs")
    client = await node.spawn(devices=(0, 1))
    assert [row.pid for row in (await control.ps()).value or ()] == [client.pid]
    devices = (await control.get_device_client_list()).value or ()
    found = {device.ordinal: device.contexts for device in devices}
    assert found == {0: (ClientContext(client.pid, 1),), 1: (ClientContext(client.pid, 2),)}


async def test_nvml_lists_a_client_under_each_device_with_nothing_where_it_is_not(node: Node) -> None:
    """Only bytes tell that a client is on a device; the list of all that compute names it there alone (fact 34)."""
    if node.device_count < 2:
        pytest.skip("needs two GPUs")
    first, second = await asyncio.gather(node.spawn(devices=(0,)), node.spawn(devices=(1,)))
    nvml = open_sources([node.pipe_dir])[0].nvml
    try:

        async def reading() -> dict[int, list[int]]:
            sample = await asyncio.to_thread(nvml.sample)
            lists = [sample.mps_clients[device.uuid] for device in sample.devices[:2]]
            return {client.pid: [found.get(client.pid) or 0 for found in lists] for client in (first, second)}

        seen = await eventually(reading, lambda seen: seen[first.pid][0] > 0 and seen[second.pid][1] > 0)
        assert (seen[first.pid][1], seen[second.pid][0]) == (0, 0)
        sample = await asyncio.to_thread(nvml.sample)
        where = [{first.pid, second.pid} & sample.processes[device.uuid].keys() for device in sample.devices[:2]]
        assert where == [{first.pid}, {second.pid}]
        assert {first.pid, second.pid} <= sample.mps_clients[sample.devices[0].uuid].keys()
    finally:
        nvml.close()


@pytest.mark.parametrize(
    ("argv0", "shown"),
    [
        (b"train\nevil", "train\\nevil"),
        (b"\x1b[2J\x1b]0;x\x07", "\\x1b[2J\\x1b]0;x\\x07"),
        (b"\xff\xfe", "\\xff\\xfe"),
        (b"[red]x[/]", "[red]x[/]"),
        (b"Server 1 not found", "Server 1 not found"),
        (b"n" * 4000, "n" * 299 + "…"),
    ],
    ids=["line break", "escapes", "no UTF-8", "markup", "an error's text", "long"],
)
async def test_a_hostile_name_is_shown_as_text(node: Node, control: Commands, argv0: bytes, shown: str) -> None:
    client = await node.spawn(argv0=argv0)
    answer = await control.ps()
    assert answer.ok, answer
    assert argv0 in answer.stdout
    assert [(row.pid, row.command) for row in answer.value or ()] == [(client.pid, shown)]


async def test_a_forged_row_is_not_in_the_client_list(node: Node, control: Commands) -> None:
    forged = b"x\n1         9         1              GPU-00000000-0000-0000    4026531836     init"
    client = await node.spawn(argv0=forged)
    server = await only_server(control)
    rows = (await control.ps()).value or ()
    assert [(row.pid, row.command) for row in rows] == [(client.pid, "x"), (1, "init")]
    assert (await control.get_client_list(server)).value == (client.pid,)


async def test_terminate_ends_an_endless_kernel_and_nothing_else(node: Node, control: Commands) -> None:
    neighbours = [await node.spawn("busy"), await node.spawn("busy"), await node.spawn("idle")]
    endless = await node.spawn("endless")
    server = await only_server(control)
    answer = await control.terminate_client(server, endless.pid)
    assert (answer.outcome, answer.stdout) == (Outcome.OK, b"0\n")
    assert await endless.ended() == End(10, TERMINATED)
    await status_becomes(control, server, "ACTIVE")  # once, on a busy machine, it was FAULT a moment before
    for neighbour in neighbours:
        assert neighbour.running
        assert await neighbour.stop() == CLEAN


async def test_a_terminated_client_can_be_killed_without_harm(node: Node, control: Commands) -> None:
    neighbour, client = await node.spawn("busy"), await node.spawn("busy")
    server = await only_server(control)
    assert (await control.terminate_client(server, client.pid)).ok
    await client.kill()
    await eventually(lambda: control.get_client_list(server), lambda answer: answer.value == (neighbour.pid,))
    assert (await control.get_server_status(server)).value == "ACTIVE"
    assert await neighbour.stop() == CLEAN


async def test_a_terminated_client_is_listed_until_its_process_ends(node: Node, control: Commands) -> None:
    client = await node.spawn("idle")
    server = await only_server(control)
    assert (await control.terminate_client(server, client.pid)).ok
    assert (await control.get_client_list(server)).value == (client.pid,)
    assert [row.pid for row in (await control.ps()).value or ()] == [client.pid]
    assert client.running
    assert await client.stop() == End(10, TERMINATED)
    await eventually(lambda: control.get_client_list(server), lambda answer: answer.value == ())


async def test_terminating_what_is_no_client(node: Node, control: Commands) -> None:
    staying, gone = await node.spawn(), await node.spawn()
    server = await only_server(control)
    assert await gone.stop() == CLEAN
    await eventually(lambda: control.get_client_list(server), lambda answer: answer.value == (staying.pid,))
    for pid in (gone.pid, os.getpid(), 999999):
        answer = await control.terminate_client(server, pid)
        assert answer.outcome is Outcome.REFUSED
        lives = pid == os.getpid()  # a process that is no client has no context: CUDA error 201 (fact 28)
        assert answer.stdout == (b"201\n" if lives else f"Invalid process {pid}!\n1\n".encode())
    assert await staying.stop() == CLEAN


async def test_a_second_terminate_blocks_the_daemon_until_the_process_ends(node: Node, control: Commands) -> None:
    """Sent raw, around every safety rule, in this test's own daemon (fact 16)."""
    client = await node.spawn("idle")
    server = await only_server(control)
    assert (await control.terminate_client(server, client.pid)).ok
    with raw_session(node) as second:
        assert second.stdin is not None
        second.stdin.write(f"terminate_client {server} {client.pid}\n".encode())
        second.stdin.close()
        second.stdin = None  # communicate() below would flush what is closed
        await logged(node, f"Cmd:terminate_client {server} {client.pid}\n", times=2)
        hurried = control_of(node, deadline=1.0)
        blocked = await hurried.get_server_list()
        assert (blocked.outcome, blocked.value) == (Outcome.BLOCKED, None)
        assert blocked.message == "The control daemon did not answer within 1 s."
        assert second.poll() is None
        await client.kill()
        assert (await eventually(control.get_server_list, lambda answer: answer.ok)).value == (server,)
        assert (await asyncio.to_thread(second.communicate, timeout=WAIT))[0] == b"0\n"
        assert second.returncode == 0


async def test_a_fault_takes_the_neighbours_and_the_server_recovers(node: Node, control: Commands) -> None:
    neighbour, faulty = await node.spawn("idle"), await node.spawn("fault")
    server = await only_server(control)
    await faulty.fault()
    assert await faulty.ended() == End(10, 700)
    await status_becomes(control, server, "FAULT")
    assert neighbour.pid in ((await control.get_client_list(server)).value or ())
    with pytest.raises(ClientRefused) as refused:
        await node.spawn()
    assert refused.value.error == NOT_READY
    end = await neighbour.stop()
    assert (end.exit_status, bool(end.error)) == (10, True)
    await status_becomes(control, server, "ACTIVE")
    later = await node.spawn()
    assert await later.stop() == CLEAN


async def test_a_fault_leaves_clients_of_other_devices_alone(node: Node, control: Commands) -> None:
    if node.device_count < 2:
        pytest.skip("needs two GPUs")
    far, faulty = await node.spawn(devices=(1,)), await node.spawn("fault")
    server = await only_server(control)
    await faulty.fault()
    assert await faulty.ended() == End(10, 700)
    await status_becomes(control, server, "ACTIVE")
    assert await far.stop() == CLEAN


async def test_a_kill_without_terminate_takes_the_neighbour(node: Node, control: Commands) -> None:
    neighbour, endless = await node.spawn("idle"), await node.spawn("endless")
    server = await only_server(control)
    await endless.kill()
    await status_becomes(control, server, "FAULT")
    end = await neighbour.stop()
    assert (end.exit_status, bool(end.error)) == (10, True)
    await status_becomes(control, server, "ACTIVE")
    later = await node.spawn()
    assert await later.stop() == CLEAN
