"""A daemon of MPS protocol 3, as documented: servers, namespaces, clients and what holds for them."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpstui.sim import SimNode

from .conftest import Mpstui


@pytest.fixture
def v3() -> Iterator[SimNode]:
    directory = Path(tempfile.mkdtemp(prefix="mpstui-v3-"))
    node = SimNode.start(directory, options=("--protocol=3",), multiuser=True)
    try:
        yield node
    finally:
        node.stop()
        shutil.rmtree(directory, ignore_errors=True)


def daemon(mpstui: Mpstui, node: SimNode) -> dict:
    told = mpstui("status", "--json", "--pipe-dir", node.pipe_dir)
    assert told.status == 0, told
    return told.json["daemons"][0]


def log(node: SimNode) -> str:
    return (node.log_dir / "control.log").read_text("utf-8", "replace")


def test_servers_namespaces_and_clients_are_read(v3: SimNode, mpstui: Mpstui) -> None:
    for words in (
        ("server", "create", "training", "--uid=0"),
        ("server", "set", "training", "--active-thread-percentage=50"),
        ("namespace", "create", "small", "--server=training", "--active-thread-percentage=25"),
        ("namespace", "create", "open", "--server=training"),
        ("sm-partition", "create", "part", "--server=training", "--device=1", "--chunks=4"),
    ):
        v3.call(*words)
    evil = "x, y\n99,training,0,default,forged \x1b[2J"
    named = v3.spawn(at=v3.pipe_dir / "training" / "small", env={"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "80"})
    free = v3.spawn(at=v3.pipe_dir / "training" / "open", env={"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "10"})
    other = v3.spawn(at=v3.pipe_dir / "training", command=evil)
    assert [c.status() for c in (named, free, other)] == ["connected"] * 3
    found = daemon(mpstui, v3)
    assert (found["protocol"], found["read_only"], found["health"]) == ("v3", None, "ok")
    (server,) = found["v3"]["servers"]
    assert (server["name"], server["uid"], server["status"]) == ("training", 0, "Ready")
    assert server["allowed_devices"].count("GPU-") == 2
    spaces = {s["name"]: s for s in found["v3"]["namespaces"]}
    assert spaces["small"]["active_thread_percentage"] == 25
    assert spaces["small"]["pipe_dir"] == str(v3.pipe_dir / "training" / "small")
    assert (spaces["open"]["active_thread_percentage"], spaces["open"]["clients"]) == (None, 1)
    parts = found["v3"]["sm_partitions"]
    assert [(p["name"], p["chunks"], p["sm_count"]) for p in parts if p["status"] == "created"] == [("part", 4, 32)]
    assert found["v3"]["not_understood"] == []
    assert found["v3"]["features"] == ["memacct: disabled", "context-share: disabled"]
    (running,) = found["servers"]
    assert (running["name"], running["pid"], running["status"]) == ("training", server["pid"], "ACTIVE")
    clients = {c["pid"]: c for c in running["clients"]}
    assert clients[named.pid]["namespace"] == "small"
    assert clients[named.pid]["active_thread_percentage"] == 25, "the namespace's comes before the client's own"
    assert clients[named.pid]["limit_source"]["active_thread_percentage"] == "namespace"
    assert clients[free.pid]["active_thread_percentage"] == 10, "a namespace without limits has none of its server's"
    assert clients[other.pid]["namespace"] == "default"
    assert all((c["command"] or "").isprintable() for c in clients.values())
    assert all(c["gpu_memory"] for pid, c in clients.items() if pid != 99)
    (problem,) = [
        p
        for p in mpstui("status", "--json", "--pipe-dir", v3.pipe_dir).json["problems"]
        if p["code"] == "namespace_unlimited"
    ]
    assert problem["subject"] == "training/open"
    text = mpstui("status", "--pipe-dir", v3.pipe_dir).out
    assert "\x1b" not in text
    assert "NAMESPACE" in text
    assert "Cmd:" not in log(v3), "nothing of the older protocol is sent"
    assert "Call:" not in log(v3).split("Call:sm-partition", 1)[1].split("\n", 1)[1], "to look changes nothing"


def test_a_client_is_terminated_by_its_number_and_a_forged_one_is_not(v3: SimNode, mpstui: Mpstui) -> None:
    v3.call("server", "create", "training", "--uid=0")
    good = v3.spawn(at=v3.pipe_dir / "training")
    evil = v3.spawn(at=v3.pipe_dir / "training", command="x\n1,training,0,default,init")
    at = ("--pipe-dir", v3.pipe_dir)
    told = mpstui("terminate", "1", "--yes", *at)
    assert told.status != 0
    assert "client terminate 1" not in log(v3)
    told = mpstui("terminate", good.pid, "--yes", *at)
    assert told.status == 0, told
    assert f"Call:client terminate {good.pid}" in log(v3)
    again = mpstui("terminate", good.pid, "--yes", *at)
    assert again.status == 6, "never twice"
    assert evil.status() == "connected"


@pytest.mark.parametrize(
    "arguments",
    [
        ("set", "active-thread-percentage", "50", "--default"),
        ("set", "client-priority", "1"),
        ("start-server", "root"),
        ("daemon", "stop", "--yes"),
        ("daemon", "stop", "--yes", "--force"),
        ("partition", "add", "--device", "0", "--chunks", "1"),
        ("load", "fma", "--seconds", "1"),
    ],
)
def test_what_it_does_not_have_is_refused_and_nothing_is_sent(
    v3: SimNode, mpstui: Mpstui, arguments: tuple[str, ...]
) -> None:
    told = mpstui(*arguments, "--pipe-dir", v3.pipe_dir)
    assert told.status == 6, told
    assert "Cmd:" not in log(v3)
    assert v3.daemon_pid is not None


def test_a_server_without_its_gpu_vanishes_and_is_not_shown(v3: SimNode, mpstui: Mpstui) -> None:
    v3.call("server", "create", "ghost", "--allowed-devices=GPU-not-there")
    found = daemon(mpstui, v3)
    assert (found["v3"]["servers"], found["servers"]) == ([], [])
    assert json.dumps(found["v3"]["namespaces"]) == "[]"
