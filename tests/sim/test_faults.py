"""What ends clients, and whom it takes along, line for line as recorded (facts 13 and 15 to 18)."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable

import pytest

from mpstui.sim.client import SimClient
from mpstui.sim.marker import control_binary
from mpstui.sim.node import SimNode
from mpstui.sim.simd.config import Gpu

from .recorded import DATA, between, eventually, log_lines, one_shot

FIRST = "encountered a fatal GPU error"


def server_pid(node: SimNode) -> int:
    return int(node.control("get_server_list"))


def status(node: SimNode) -> str:
    return node.control(f"get_server_status {server_pid(node)}").strip()


def server_log(node: SimNode, clients: dict[int, SimClient], server: int) -> list[str]:
    names = {client.pid: recorded for recorded, client in clients.items()} | {server_pid(node): server}
    return log_lines((node.log_dir / "server.log").read_text(), names)


def recorded_log(path: str) -> list[str]:
    return [line for line in log_lines((DATA / path).read_text()) if line.startswith("Server ")]


@pytest.mark.slow
def test_a_fault_reaches_as_far_as_shared_devices_do(start: Callable[..., SimNode]) -> None:
    node = start(gpus=[Gpu(i, f"GPU-{i}", "NVIDIA H200") for i in range(4)])
    devices = {904: (2,), 901: (0,), 903: (1,), 902: (0, 1)}
    clients = {pid: node.spawn("idle", devices=devices[pid]) for pid in devices}
    clients[901].tell("fault")
    assert all(clients[pid].wait_status("lost") for pid in (901, 902, 903))
    assert [clients[pid].error for pid in (901, 902, 903)] == [700, 700, 719]
    assert clients[904].status() == "connected"
    assert status(node) == "FAULT"
    refused = node.spawn("idle", devices=(2,))
    assert (refused.status(), refused.error) == ("refused", 807)

    recorded = recorded_log("h200x4/containment.txt")
    for first, last in ((FIRST, " 903"), ("Server teardown in progress", "with status 807")):
        ours = between(server_log(node, clients | {1068: refused}, 910), first, last)
        assert ours == between(recorded, first, last)

    for pid in (901, 902, 903):
        assert status(node) == "FAULT"
        clients[pid].tell("exit")
        assert clients[pid].wait(120) == str(clients[pid].error)
    assert status(node) == "ACTIVE"
    ours = server_log(node, clients, 910)
    assert [x for x in ours if "Destroy" in x] == [x for x in recorded if "Destroy" in x]
    after = node.spawn("idle")
    assert after.status() == "connected"
    made = "Creating server context on device"
    ours = [x for x in server_log(node, clients, 910) if made in x]
    assert ours == [x for x in recorded if made in x]
    assert clients[904].status() == "connected"


def test_a_fault_on_one_device_is_logged_as_recorded(start: Callable[..., SimNode]) -> None:
    node = start(gpus=1)
    clients = {1133: node.spawn("busy"), 1135: node.spawn("faulting"), 1134: node.spawn("idle")}
    clients[1135].tell("fault")  # the log named the busy neighbour, not the one that faulted
    assert clients[1135].wait(120) == "700"
    ours = between(server_log(node, clients, 1140), FIRST, "sticky error")
    theirs = between(recorded_log("h100/faults-server.log"), f"1133, Context: 1}} {FIRST}", "sticky error")
    assert sorted(ours) == sorted(theirs)  # clients come in no order


def test_among_busy_neighbours_the_wrong_one_is_named_and_among_idle_ones_the_right_one(
    start: Callable[..., SimNode],
) -> None:
    """Facts 36 and 37, by the log and by the kernel."""
    node = start(gpus=2)
    for number, behaviour in enumerate(("busy", "idle"), 1):
        neighbours = {node.spawn(behaviour).pid for _ in range(2)}
        elsewhere = node.spawn("busy", devices=(1,))
        faulty = node.spawn("busy")
        faulty.tell("fault")
        assert faulty.wait_status("lost")
        named = int(re.findall(r"PID: (\d+), Context: 1} encountered", (node.log_dir / "server.log").read_text())[-1])
        eventually(lambda number=number: len(node.state()["xids"]) == number)
        xid = node.state()["xids"][-1]
        assert xid["number"] == 31
        kernels = int(re.search(r"pid=(\d+)", xid["line"])[1])
        assert {named, kernels} <= (neighbours if behaviour == "busy" else {faulty.pid})
        assert elsewhere.status() == "connected"
        for client in node.clients:
            client.tell("exit")
            client.wait(120)
        node.reap()


def test_after_a_trap_nobody_is_named(start: Callable[..., SimNode]) -> None:
    node = start(gpus=1)
    clients = [node.spawn("busy") for _ in range(3)]
    clients[1].tell("trap")
    assert all(client.wait_status("lost") for client in clients)
    assert [client.error for client in clients] == [719, 719, 719]
    assert "encountered a fatal" not in (node.log_dir / "server.log").read_text()
    eventually(lambda: node.state()["xids"])
    (xid,) = node.state()["xids"]
    assert (xid["number"], f"pid={server_pid(node)}," in xid["line"]) == (43, True)


def test_kill_of_a_busy_client_takes_its_neighbour(start: Callable[..., SimNode]) -> None:
    node = start(gpus=1)
    clients = {1069: node.spawn("endless"), 1067: node.spawn("busy")}
    clients[1069].kill()
    assert clients[1069].wait(120) == "-9"
    assert clients[1067].wait_status("lost")
    assert clients[1067].error == 700
    assert status(node) == "FAULT"
    assert str(clients[1067].pid) in node.control("ps")
    clients[1067].tell("exit")
    clients[1067].wait(120)
    eventually(lambda: status(node) == "ACTIVE")
    recorded = recorded_log("h100/faults-server.log")
    for first, last in (
        ("1069, Context ID: 1} exiting", "1069 disconnected"),
        ("1067, Context ID: 1} exiting", "1067 disconnected"),
    ):
        assert between(server_log(node, clients, 1073), first, last) == between(recorded, first, last)


def test_kills_that_harm_nobody(start: Callable[..., SimNode]) -> None:
    node = start()
    neighbour = node.spawn("busy")
    elsewhere = node.spawn("endless", devices=(1,))
    idle = node.spawn("idle")
    short = node.spawn("busy")  # its kernels take milliseconds: over when the signal comes
    terminated = node.spawn("endless")
    node.control(f"terminate_client {server_pid(node)} {terminated.pid}")
    for client in (elsewhere, idle, short, terminated):
        client.kill()
        client.wait(120)
    eventually(lambda: node.control(f"get_client_list {server_pid(node)}").split() == [str(neighbour.pid)])
    assert status(node) == "ACTIVE"
    assert neighbour.status() == "connected"


def test_a_second_terminate_blocks_everybody_until_the_process_ends(start: Callable[..., SimNode]) -> None:
    node = start(gpus=1)
    client = node.spawn("hostile")
    server = server_pid(node)
    assert node.control(f"terminate_client {server} {client.pid}") == "0\n"
    assert client.wait_status("lost")
    assert client.error == 810
    assert node.control(f"get_client_list {server}") == f"{client.pid}\n"

    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(node.pipe_dir)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": environment}
    second = subprocess.Popen(control_binary(), **pipes)
    second.stdin.write(f"terminate_client {server} {client.pid}\n".encode())
    second.stdin.close()
    second.stdin = None
    log = node.log_dir / "server.log"
    eventually(lambda: log.read_text().count("requesting client") == 2)
    given_up = subprocess.Popen(control_binary(), **pipes)
    waiting = node.spawn("idle", wait=False)
    os.kill(client.pid, 15)  # it ignores that
    deadline = time.monotonic() + 0.3
    while time.monotonic() < deadline:
        assert waiting.status() == "starting"
        assert second.poll() is None
        select_pause(second)
    given_up.kill()
    given_up.communicate()

    client.kill()
    assert second.communicate(timeout=120)[0] == b"0\n"
    assert waiting.wait_settled() == "connected"
    assert node.control("get_server_list") == f"{server}\n"
    recorded = between(recorded_log("h100/faults-server.log"), "requesting client {PID: 992", "992 disconnected")
    assert between(server_log(node, {992: client}, 453), "requesting client", "992 disconnected") == recorded
    assert "Unable to accept connection" in (node.log_dir / "control.log").read_text()


def select_pause(process: subprocess.Popen[bytes]) -> None:
    """Lets 20 ms go by, less where the process says something."""
    import select

    select.select([process.stdout], [], [], 0.02)


def test_the_49th_context_on_a_device_is_refused(start: Callable[..., SimNode]) -> None:
    node = start()
    pool = node.spawn("idle", contexts=47)
    both = node.spawn("idle", devices=(0, 1))
    refused = node.spawn("idle")
    assert (pool.status(), both.status()) == ("connected", "connected")
    assert (refused.status(), refused.error) == ("refused", 46)
    assert (
        "Failed to accept new client. Maximum number of clients (48) reached."
        in (node.log_dir / "server.log").read_text()
    )
    assert node.spawn("idle", devices=(1,)).status() == "connected"
    pool.tell("exit")
    pool.wait(120)
    eventually(lambda: str(pool.pid) not in node.control("ps"))
    assert node.spawn("idle").status() == "connected"


def test_a_reset_gives_the_contexts_back_before_the_process_ends(start: Callable[..., SimNode]) -> None:
    node = start(gpus=1)
    client = node.spawn("endless")
    server = server_pid(node)
    node.control(f"terminate_client {server} {client.pid}")
    client.tell("reset")
    eventually(lambda: node.control("ps") == "")
    client.tell("exit")
    assert client.wait(120) == "810"
    eventually(lambda: "disconnected" in (node.log_dir / "server.log").read_text())
    recorded = between(recorded_log("h100/faults-server.log"), "requesting client {PID: 936", "936 disconnected")
    assert between(server_log(node, {936: client}, 453), "requesting client", "936 disconnected") == recorded


def test_percentages_become_the_recorded_number_of_sms(start: Callable[..., SimNode]) -> None:
    from mpstui.sim.simd.clients import sm_share

    text = (DATA / "h100" / "faults-kills-limits.txt").read_text()
    recorded = {int(p): int(sms) for p, sms in re.findall(r"(\d+) sm (\d+);", text)}
    assert len(recorded) == 100
    assert {p: sm_share(p, Gpu(0, "")) for p in recorded} == recorded


def test_a_device_limit_leaves_what_it_left_on_the_real_one(start: Callable[..., SimNode]) -> None:
    node = start(gpus=1)
    one_shot(node, f"start_server -uid {os.getuid()}")
    eventually(lambda: node.control("get_server_list"))
    server = server_pid(node)
    node.control(f"set_active_thread_percentage {server} 0.1\nset_device_pinned_mem_limit {server} 0 2G")
    client = node.spawn("idle")
    assert (client.sm_count, client.free_memory) == (8, 1990 << 20)
    greedy = node.spawn("idle", memory=2 << 30)
    assert greedy.wait_status("failed")
    greedy.tell("exit")
    assert greedy.wait(120) == "2"
