"""``set`` and ``terminate`` on a simulated node, checked from outside by the control binary."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from mpstui.cli import change
from mpstui.core.model import Client, Condition, Daemon, ProcessKey, Server, Snapshot
from mpstui.operations.clients import TerminateAndKill
from mpstui.operations.operation import refused_result
from mpstui.operations.types import ExitStatus, Request, Result
from mpstui.sim.node import SimNode
from mpstui.sim.simd.config import TERMINATE_FAULTS

from .conftest import Mpstui

JOB = " /system.slice/slurmstepd.scope/job_7/step_0/user/task_0"


@pytest.fixture
def faulting() -> Iterator[SimNode]:
    """A node whose server has a fault whenever a client in a long kernel is terminated beside busy ones."""
    directory = Path(tempfile.mkdtemp(prefix="mpstui-cli-"))
    node = SimNode.start(directory, daemon=False)
    try:
        node.start_daemon(env={TERMINATE_FAULTS: "1"})
        yield node
    finally:
        node.stop()
        shutil.rmtree(directory, ignore_errors=True)


def test_a_percentage_is_set_and_read_back(node: SimNode, mpstui: Mpstui, tmp_path: Path) -> None:
    told = mpstui("set", "active-thread-percentage", "33.3", "--default", "--json", "--pipe-dir", node.pipe_dir)
    assert (told.status, told.json["done"], told.json["message"]) == (0, True, "in force: 33.3 %")
    assert node.control("get_default_active_thread_percentage").strip() == "33.3"
    _, entry = map(json.loads, (tmp_path / "audit.jsonl").read_text().splitlines())
    assert (entry["command"], entry["status"]) == ("set_default_active_thread_percentage 33.3", 0)


def test_a_change_of_a_simulated_node_says_so_in_words_in_json_and_in_the_audit_log(
    node: SimNode, mpstui: Mpstui, tmp_path: Path
) -> None:
    words = ("set", "active-thread-percentage", "33.3", "--default", "--pipe-dir", node.pipe_dir)
    assert mpstui(*words).out.startswith("SIMULATED: in force: 33.3 %\n")
    assert mpstui(*words, "--json").json["source"] == "simulated"
    asked = ("why", os.getpid(), "--pipe-dir", node.pipe_dir)
    assert mpstui(*asked).out.startswith("SIMULATED — no GPU, no real daemon\n")
    assert mpstui(*asked, "--json").json["source"] == "simulated"
    lines = (tmp_path / "audit.jsonl").read_text().splitlines()
    assert {json.loads(line)["simulated"] for line in lines} == {True}


def test_a_server_gets_its_own(node: SimNode, mpstui: Mpstui) -> None:
    client = node.spawn("idle")
    server = node.control("get_server_list").strip()
    at = ("--pipe-dir", node.pipe_dir)
    assert mpstui("set", "active-thread-percentage", "25", "--server", server, *at).status == 0
    assert node.control(f"get_active_thread_percentage {server}").strip() == "25.0"
    assert mpstui("set", "pinned-mem-limit", "2G", "--device", "1", "--server", server, *at).status == 0
    assert node.control(f"get_device_pinned_mem_limit {server} 1").strip() == "2G"
    client.tell("exit")


def test_memory_limit_and_priority(node: SimNode, mpstui: Mpstui) -> None:
    at = ("--pipe-dir", node.pipe_dir)
    assert mpstui("set", "pinned-mem-limit", "900M", "--device", "0", "--default", *at).status == 0
    assert node.control("get_default_device_pinned_mem_limit 0").strip() == "900M"
    assert mpstui("set", "pinned-mem-limit", "none", "--device", "0", "--default", *at).status == 0
    assert node.control("get_default_device_pinned_mem_limit 0") == ""
    assert mpstui("set", "client-priority", "1", *at).status == 0
    assert node.control("get_default_client_priority").strip() == "1"
    assert mpstui("set", "client-priority", "0", *at).status == 0


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("active-thread-percentage", "0", "--default"), 2),
        (("active-thread-percentage", "101", "--default"), 2),
        (("active-thread-percentage", "-5", "--default"), 2),
        (("active-thread-percentage", "abc", "--default"), 2),
        (("active-thread-percentage", "50", "--server", "999999"), 1),
        (("active-thread-percentage", "50"), 2),
        (("pinned-mem-limit", "512MB", "--device", "0", "--default"), 2),
        (("pinned-mem-limit", "-1G", "--device", "0", "--default"), 2),
        (("pinned-mem-limit", "0G", "--device", "0", "--default"), 2),
        (("pinned-mem-limit", "abc", "--device", "0", "--default"), 2),
        (("pinned-mem-limit", "1G", "--device", "5", "--default"), 2),
        (("client-priority", "7"), 2),
    ],
)
def test_wrong_values_are_refused_and_change_nothing(
    node: SimNode, mpstui: Mpstui, arguments: tuple[str, ...], status: int
) -> None:
    ask = "get_default_active_thread_percentage\nget_default_device_pinned_mem_limit 0\nget_default_client_priority"
    before = node.control(ask)
    told = mpstui("set", *arguments, "--pipe-dir", node.pipe_dir)
    assert told.status == status, told
    assert told.err
    assert node.control(ask) == before


def test_a_new_limit_tells_what_it_comes_to_and_what_is_odd_about_it(node: SimNode, mpstui: Mpstui) -> None:
    client = node.spawn("idle")
    server = node.control("get_server_list").strip()
    at = ("--default", "--pipe-dir", node.pipe_dir)
    told = mpstui("set", "active-thread-percentage", "0.1", *at)
    assert "new value   0.1 %" in told.err
    assert "less than the smallest share" in told.err
    assert f"server {server} keeps its own:" in told.out
    told = mpstui("set", "pinned-mem-limit", "100M", "--device", "0", *at)
    assert "a CUDA context counts against the limit" in told.err
    assert mpstui("set", "pinned-mem-limit", "none", "--device", "0", *at).status == 0
    assert mpstui("set", "active-thread-percentage", "100", *at).status == 0
    client.tell("exit")


def test_terminate_names_who_shares_the_gpu(node: SimNode, mpstui: Mpstui) -> None:
    victim, neighbour = node.spawn("busy"), node.spawn("busy")
    told = mpstui("terminate", victim.pid, "--pipe-dir", node.pipe_dir)
    shared = told.err.partition("Share a GPU with it, and run on as a rule: ")[2]
    assert f" {neighbour.pid} " in shared
    for client in (victim, neighbour):
        assert client.status() == "connected"
        client.tell("exit")


def test_terminate_needs_a_yes(node: SimNode, mpstui: Mpstui) -> None:
    client = node.spawn("busy", user="bob")
    told = mpstui("terminate", client.pid, "--pipe-dir", node.pipe_dir)
    assert told.status == 6
    assert f"{client.pid} bob" in told.err
    assert client.status() == "connected"
    client.tell("exit")


def test_terminate_and_never_twice(node: SimNode, mpstui: Mpstui) -> None:
    victim, neighbour = node.spawn("endless"), node.spawn("busy")
    at = ("--pipe-dir", node.pipe_dir)
    assert mpstui("terminate", victim.pid, "--yes", *at).status == 0
    again = mpstui("terminate", victim.pid, "--yes", "--json", *at)
    assert (again.status, again.json["done"]) == (6, False)
    assert "block the whole daemon" in again.json["message"]
    os.kill(victim.pid, signal.SIGKILL)
    assert neighbour.status() == "connected"
    neighbour.tell("exit")


def test_safe_kill_leaves_the_neighbours_alone(node: SimNode, mpstui: Mpstui) -> None:
    neighbours = [node.spawn("busy") for _ in range(3)]
    victim = node.spawn("endless")
    server = node.control("get_server_list").strip()
    told = mpstui("terminate", victim.pid, "--kill", "--yes", "--pipe-dir", node.pipe_dir)
    assert told.status == 0, told
    assert node.control(f"get_server_status {server}").strip() == "ACTIVE"
    assert str(victim.pid) not in node.control(f"get_client_list {server}").split()
    for neighbour in neighbours:
        assert neighbour.status() == "connected"
        neighbour.tell("exit")


@pytest.mark.parametrize("how", [(), ("--kill",)])
@pytest.mark.parametrize("neighbours", [1, 2])
def test_a_fault_that_comes_with_a_terminate_is_told_with_whom_it_hit(
    faulting: SimNode, mpstui: Mpstui, how: tuple[str, ...], neighbours: int
) -> None:
    """Answered with 0, and the neighbours lost all the same (fact 61)."""
    hit = [faulting.spawn("busy", user="bob") for _ in range(neighbours)]
    victim = faulting.spawn("endless")
    server = faulting.control("get_server_list").strip()
    told = mpstui("terminate", victim.pid, *how, "--yes", "--json", "--pipe-dir", faulting.pipe_dir)
    assert (told.status, told.json["done"]) == (0, True), told
    other = "1 other client" if neighbours == 1 else "2 other clients"
    said = f"server.log tells of a fatal fault of server {server} that came with it, which hit {other}"
    assert told.json["message"].endswith(f"; but {said}")
    lost = [line for line in told.json["details"] if line.startswith("hit by the fault: ")]
    for client in hit:
        assert client.wait_status("lost"), "it was so"
        assert [f": {client.pid} bob" in line for line in lost].count(True) == 1
    assert len(lost) == neighbours
    assert "end-lost" in told.json["remedy"]


def test_a_fault_that_comes_with_the_first_of_several_is_told(faulting: SimNode, mpstui: Mpstui) -> None:
    hit = faulting.spawn("busy", user="bob", container=JOB, linger=None)
    victims = [faulting.spawn("endless", container=JOB, linger=None) for _ in range(2)]
    bystander = faulting.spawn("busy", user="carol")
    told = mpstui("terminate", "--job", "7", "--yes", "--kill", "--json", "--pipe-dir", faulting.pipe_dir)
    for client in (hit, bystander):
        client.wait_settled(120)
    assert victims
    assert "that came with it" in "".join(told.json["details"]), told
    assert f"hit by the fault: {bystander.pid} carol" in "".join(told.json["details"])


def test_of_several_it_is_said_for_whom_nothing_was_sent(tmp_path: Path) -> None:
    """“nothing was sent” stood alone below the first one's terminate_client."""
    clients = tuple(Client(ProcessKey(pid), state="ACTIVE") for pid in (101, 102))
    daemon = Daemon(
        tmp_path, key=ProcessKey(9), condition=Condition("ok"), servers=(Server(ProcessKey(10), clients=clients),)
    )
    file = tmp_path / "pids"
    file.write_text("101 102\n")
    file.chmod(0o600)

    def do(request: Request, *_: object, **__: object) -> Result:
        if request.clients[0].pid == 102:
            return refused_result(request, "process 102 is no client", ExitStatus.REFUSED_BY_SAFETY_RULE)
        return Result(request, ExitStatus.DONE, "1 client ended", ("101: terminated",))

    shown = Snapshot(0.0, daemons=(daemon,))
    node = SimpleNamespace(simulated=True, named=[tmp_path], snapshot=lambda **_: shown, preview=lambda *_: None, do=do)
    options = argparse.Namespace(
        client_pid=None, owner=None, pid_file=str(file), yes=True, kill=True, pipe_dir=None, json=False
    )
    result = change._end_each(TerminateAndKill(), options, node, ["pid_file"])  # type: ignore[arg-type]
    assert result.details == ("101: terminated", "process 102 is no client; nothing was sent for it")
    assert result.status is ExitStatus.REFUSED_BY_SAFETY_RULE
    assert result.message.endswith(" were ended: process 102 is no client")


def test_nothing_is_said_of_a_fault_that_was_there_before(faulting: SimNode, mpstui: Mpstui) -> None:
    at = ("--pipe-dir", faulting.pipe_dir)
    clients = [faulting.spawn("busy") for _ in range(2)]
    clients[0].tell("fault")
    assert [client.wait_status("lost") for client in clients] == [True, True]
    told = mpstui("terminate", clients[1].pid, "--kill", "--yes", "--json", *at)
    assert "that came with it" not in json.dumps(told.json)


def test_a_process_that_is_no_client(node: SimNode, mpstui: Mpstui) -> None:
    told = mpstui("terminate", os.getpid(), "--kill", "--yes", "--json", "--pipe-dir", node.pipe_dir)
    assert (told.status, told.json["done"]) == (6, False)
    assert "not a client" in told.json["message"]


def test_read_only_changes_nothing(node: SimNode, mpstui: Mpstui) -> None:
    before = node.control("get_default_active_thread_percentage")
    at = ("--pipe-dir", node.pipe_dir)
    told = mpstui("--read-only", "set", "active-thread-percentage", "77", "--default", *at)
    assert told.status == 6
    assert node.control("get_default_active_thread_percentage") == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("active-thread-percentage", "0", "--default"), "'0' is no percentage"),
        (("active-thread-percentage", "100.1", "--server", "4711"), "'100.1' is no percentage"),
        (("pinned-mem-limit", "512MB", "--device", "0", "--default"), "'512MB' is no memory limit"),
        (("client-priority", "7"), "'7' is no priority"),
    ],
)
def test_a_wrong_value_is_refused_before_anything_is_asked(
    node: SimNode, mpstui: Mpstui, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    """Beside a session that somebody held it said "held", and nothing of the value."""
    log = node.log_dir / "control.log"
    node.control("get_server_list")  # comes behind what a command of before has left with the daemon
    before = log.read_text().count("NEW UI")  # the end of a session is written after its answer
    told = mpstui("set", *arguments, "--json", "--pipe-dir", node.pipe_dir)
    assert (told.status, told.json["done"], told.json["exit_status"]) == (2, False, 2)
    assert words in told.json["message"]
    assert log.read_text().count("NEW UI") == before
    (entry,) = map(json.loads, (tmp_path / "audit.jsonl").read_text().splitlines())
    assert (entry["status"], words in entry["result"]) == (2, True)
    assert mpstui("set", *arguments, "--pipe-dir", tmp_path / "nowhere").status == 2
