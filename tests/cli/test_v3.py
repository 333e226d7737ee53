"""A daemon of MPS protocol 3, as documented: servers, namespaces, clients and what holds for them."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from folders import daemons_below

from mpstui.core.model import Daemon
from mpstui.core.v3 import Namespace, V3Node
from mpstui.operations.types import Request
from mpstui.operations.v3 import SetNamespace
from mpstui.sim.marker import control_binary
from mpstui.sim.node import SimNode

from .conftest import Mpstui, Run

BINARY = control_binary()[-1]


@contextmanager
def v3_node() -> Iterator[SimNode]:
    directory = Path(tempfile.mkdtemp(prefix="mpstui-v3-"))
    node = SimNode.start(directory, options=("--protocol=3",), multiuser=True)
    try:
        yield node
    finally:
        node.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def v3() -> Iterator[SimNode]:
    with v3_node() as node:
        yield node


@pytest.fixture(scope="module")
def unchanged() -> Iterator[SimNode]:
    """With a server ``training``; for tests that send nothing."""
    with v3_node() as node:
        node.call("server", "create", "training", "--uid=0")
        yield node


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
        ("namespace", "create", "small", "--server=training"),
        ("namespace", "set", "small", "--server=training", "--active-thread-percentage=25", "--pinned-memory-limit=8G"),
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
    assert running["active_thread_percentage"] == 50, "its default namespace's, whatever a log says"
    clients = {c["pid"]: c for c in running["clients"]}
    assert clients[named.pid]["namespace"] == "small"
    assert clients[named.pid]["active_thread_percentage"] == 25, "the namespace's comes before the client's own"
    assert clients[named.pid]["limit_source"]["active_thread_percentage"] == "namespace"
    assert clients[named.pid]["pinned_mem_limits"] == {"0": 8 << 30, "1": 8 << 30}
    assert (clients[free.pid]["pinned_mem_limits"], clients[other.pid]["pinned_mem_limits"]) == ({}, {})
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
    told = mpstui("load", "fma", "--seconds", "1", "--yes", "--pipe-dir", v3.pipe_dir / "training")
    assert (told.status, "is the directory of server training" in told.err) == (6, True), told
    assert "Call:" not in log(v3).split("Call:sm-partition", 1)[1].split("\n", 1)[1], "to look changes nothing"


def test_a_client_is_terminated_by_its_number_and_a_forged_one_is_not(v3: SimNode, mpstui: Mpstui) -> None:
    v3.call("server", "create", "training", "--uid=0")
    good = v3.spawn(at=v3.pipe_dir / "training")
    evil = v3.spawn(at=v3.pipe_dir / "training", command="x\n1,training,0,default,init")
    at = ("--pipe-dir", v3.pipe_dir)
    told = mpstui("terminate", "1", "--yes", *at)
    assert told.status != 0
    assert "client terminate 1" not in log(v3)
    # From a server's start on the log is read: who was there before is known by the daemon's answer alone.
    v3.call("server", "create", "zz", "--uid=0")
    told = mpstui("terminate", good.pid, "--yes", *at)
    assert told.status == 0, told
    assert f"Call:client terminate {good.pid}" in log(v3)
    assert f"client terminate {good.pid}" in told.err
    assert "terminate_client" not in told.err, "what is told is what is sent"
    again = mpstui("terminate", good.pid, "--yes", *at)
    assert again.status == 6, "never twice"
    v3.call("server", "create", "yy", "--uid=0")  # another one's start is no beginning of history
    states = {c["pid"]: c["state"] for server in daemon(mpstui, v3)["servers"] for c in server["clients"]}
    assert (states[good.pid], states[evil.pid]) == ("TERMINATED", "ACTIVE")
    assert b"Client termination succeeded" in (v3.log_dir / "training" / "server.log").read_bytes()
    told = mpstui("terminate", good.pid, "--kill", "--yes", *at)
    assert told.status == 0, told
    assert log(v3).count("Call:client terminate") == 1
    assert evil.status() == "connected"


@pytest.mark.parametrize(
    "arguments",
    [
        ("set", "active-thread-percentage", "50", "--default"),
        ("set", "client-priority", "1"),
        ("start-server", "root"),
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


def spaces(mpstui: Mpstui, node: SimNode) -> dict[str, dict]:
    return {f"{s['server']}/{s['name']}": s for s in daemon(mpstui, node)["v3"]["namespaces"]}


def test_servers_and_namespaces_are_made_set_and_deleted(v3: SimNode, mpstui: Mpstui, tmp_path: Path) -> None:
    at = ("--pipe-dir", v3.pipe_dir)
    told = mpstui("server", "create", "training", "--uid", "root", *at)
    assert told.status == 0, told
    assert f"CUDA_MPS_PIPE_DIRECTORY={v3.pipe_dir / 'training'}" in told.out
    told = mpstui("namespace", "create", "small", "--server", "training", *at)
    assert told.status == 0, told
    assert "whole GPU" in told.err, "a namespace without limits is warned of"
    of = ("namespace", "set", "small", "--server", "training", *at, "--pinned-memory-limit")
    for size, why in (("64M", "a CUDA context counts against the limit"), ("100G", "more than any device has: 79.6 G")):
        assert why in mpstui(*of, size).err
    told = mpstui(
        "namespace", "set", "small", "--server", "training",
        "--active-thread-percentage", "25", "--pinned-memory-limit", "8g", "--client-priority", "1", "--json", *at,
    )  # fmt: skip
    assert (told.status, told.json["done"]) == (0, True), told
    small = spaces(mpstui, v3)["training/small"]
    limits = (small["active_thread_percentage"], small["pinned_mem_limit"], small["client_priority"])
    assert limits == (25, "8G", 1)
    told = mpstui("server", "set", "training", "--active-thread-percentage", "60", *at)
    assert told.status == 0, told
    assert "these limits do not apply to namespaces small" in told.err
    assert spaces(mpstui, v3)["training/default"]["active_thread_percentage"] == 60
    client = v3.spawn(at=v3.pipe_dir / "training" / "small")
    assert client.sm_count == 32
    for words in (("namespace", "delete", "small", "--server", "training"), ("server", "delete", "training")):
        refused = mpstui(*words, "--yes", *at)
        assert refused.status == 6
        assert "1 client would lose" in refused.err
        asked = mpstui(*words, "-f", *at)
        assert asked.status == 6
        assert f"ends: {client.pid}" in asked.err, "whom it hits is named"
    assert client.status() == "connected"
    told = mpstui("namespace", "delete", "small", "--server", "training", "-f", "--yes", *at)
    assert told.status == 0, told
    assert "training/small" not in spaces(mpstui, v3)
    told = mpstui("server", "delete", "training", "-f", "--yes", *at)
    assert told.status == 0, told
    assert spaces(mpstui, v3) == {}
    entries = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert "server delete training --force" in [e["command"] for e in entries if e.get("sent")]
    assert "Cmd:" not in log(v3)


def test_a_limit_that_had_a_value_can_be_taken_back_and_one_that_had_none_cannot() -> None:
    before = Namespace("small", "training", "Ready", "8G", 30.0, None, "/p/training/small")
    at = Daemon(Path("/p"), v3=V3Node(namespaces=(before,)))
    asked = (("server", "training"), ("active-thread-percentage", "50"), ("pinned-memory-limit", "4G"))
    request = Request(SetNamespace.id, at.pipe_dir, "small", settings=asked)
    back = SetNamespace().undo(request, at)
    assert back is not None
    assert back.settings == (
        ("server", "training"), ("active-thread-percentage", "30"), ("pinned-memory-limit", "8G")
    )  # fmt: skip
    assert SetNamespace().undo(request._replace(settings=(*asked, ("client-priority", "1"))), at) is None
    assert SetNamespace().undo(request, Daemon(at.pipe_dir)) is None


def test_a_partition_of_it_is_made_and_deleted(v3: SimNode, mpstui: Mpstui) -> None:
    at = ("--pipe-dir", v3.pipe_dir)
    v3.call("server", "create", "training", "--uid=0")
    (device, _) = daemon(mpstui, v3)["v3"]["devices"]
    make = ("sm-partition", "create", "large", "--server", "training", "--device", device["uuid"][:8], "--chunks")
    told = mpstui("server", "create", "one", "--allowed-devices", device["uuid"][:8], *at)
    assert told.status == 0, told
    assert [s["allowed_devices"] for s in daemon(mpstui, v3)["v3"]["servers"] if s["name"] == "one"] == [device["uuid"]]
    several = mpstui("server", "create", "two", "--allowed-devices", "GPU-", *at)
    assert several.status == 2, several
    told = mpstui(*make, "4", *at)
    assert told.status == 0, told
    assert "32 SMs" in told.out
    assert "export CUDA_MPS_SM_PARTITION=GPU-" in told.out
    assert mpstui(*make, "4", *at).status == 6
    told = mpstui("sm-partition", "delete", "large", "--server", "training", "--yes", *at)
    assert told.status == 0, told
    told = mpstui(*make, "400", *at)
    assert told.status == 1, "the daemon's own no"
    v3.spawn(at=v3.pipe_dir / "training")
    assert mpstui(*make, "4", *at).status == 1


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("server", "create", "Bad-Name"), 2),
        (("server", "create", "x;quit"), 2),
        (("server", "create", "-q"), 2),
        (("server", "create", "a\n-q"), 2),
        (("server", "create", "training"), 6),
        (("server", "create", "new", "--allowed-devices", "GPU-not-there"), 2),
        (("server", "create", "new", "--allowed-devices", "0 --force"), 2),
        (("server", "create", "new", "--uid", "nosuchuser"), 2),
        (("server", "set", "training"), 2),
        (("server", "set", "none", "--client-priority", "1"), 1),
        (("server", "set", "training", "--active-thread-percentage", "0"), 2),
        (("server", "set", "training", "--active-thread-percentage", "nan"), 2),
        (("server", "set", "training", "--pinned-memory-limit", "8GB"), 2),
        (("server", "set", "training", "--client-priority", "2"), 2),
        (("server", "delete", "none", "--yes"), 1),
        (("namespace", "create", "small"), 2),
        (("namespace", "create", "default", "--server", "training"), 6),
        (("namespace", "set", "none", "--server", "training", "--client-priority", "1"), 1),
        (("namespace", "delete", "default", "--server", "training", "--yes"), 6),
        (("sm-partition", "create", "p", "--server", "training", "--device", "9", "--chunks", "1"), 2),
        (("sm-partition", "create", "p", "--server", "training", "--device", "0", "--chunks", "0"), 2),
        (("sm-partition", "delete", "p", "--server", "training", "--yes"), 1),
    ],
)
def test_what_cannot_be_is_said_and_not_sent(
    unchanged: SimNode, mpstui: Mpstui, arguments: tuple[str, ...], status: int
) -> None:
    before = log(unchanged).count("Call:")
    told = mpstui(*arguments, "--pipe-dir", unchanged.pipe_dir)
    assert told.status == status, told
    assert log(unchanged).count("Call:") == before
    assert unchanged.daemon_pid is not None


def test_a_daemon_of_another_protocol_has_no_namespaces(node: SimNode, mpstui: Mpstui) -> None:
    told = mpstui("namespace", "create", "small", "--server", "training", "--pipe-dir", node.pipe_dir)
    assert told.status == 6
    assert "protocol 3" in told.err


def test_all_of_it_is_exported_as_a_file(v3: SimNode, node: SimNode, mpstui: Mpstui) -> None:
    v3.call("server", "create", "training", "--uid=0")
    told = mpstui("server", "export", "--pipe-dir", v3.pipe_dir)
    assert told.status == 0, told
    assert "[servers.training]\nuid = 0" in told.out
    assert ("uid = 0  # a guess" in told.out, "tried on no daemon" in told.err) == (True, True)
    assert mpstui("server", "export", "--pipe-dir", node.pipe_dir).status == 6


@pytest.mark.slow
def test_what_it_has_is_saved_as_a_profile_and_made_again(v3: SimNode, mpstui: Mpstui, tmp_path: Path) -> None:
    at, config = ("--pipe-dir", v3.pipe_dir), {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    server = ("--server", "training")
    for words in (
        ("server", "create", "training", "--uid", "0", "--allowed-devices", "0"),
        ("server", "set", "training", "--active-thread-percentage", "50"),
        ("namespace", "create", "small", *server, "--pinned-memory-limit", "8G", "--client-priority", "1"),
        ("namespace", "create", "open", *server),
        ("sm-partition", "create", "large", *server, "--device", "0", "--chunks", "4", "--include-remainder", "true"),
        ("feature", "enable", "memacct"),
    ):
        told = mpstui(*words, *at)
        assert told.status == 0, told
    before = daemon(mpstui, v3)["v3"]
    (part,) = [p for p in before["sm_partitions"] if p["name"] == "large"]
    assert (part["include_remainder"], part["sm_count"]) == (True, 44), "12 of 132 SMs are in no chunk"
    saved = mpstui("profile", "save", "day", *at, **config)
    assert (saved.status, saved.err) == (0, ""), saved
    assert mpstui("profile", "diff", "day", *at, **config).status == 0
    assert mpstui("server", "delete", "training", "--yes", *at).status == 0
    assert mpstui("feature", "disable", "memacct", *at).status == 0
    assert mpstui("profile", "diff", "day", *at, **config).status == 1
    refused = mpstui("--read-only", "profile", "apply", "day", *at, **config)
    assert (refused.status, daemon(mpstui, v3)["v3"]["servers"]) == (6, [])
    told = mpstui("profile", "apply", "day", *at, **config)
    assert told.status == 0, told

    def lasting(found: dict) -> dict:
        """Without what is another one after each start."""
        gone = {"pid", "visible_uuid", "server_status"}
        return {
            name: [{k: v for k, v in each.items() if k not in gone} for each in found[name]]
            for name in ("servers", "namespaces", "sm_partitions")
        } | {"features": found["features"]}

    assert lasting(daemon(mpstui, v3)["v3"]) == lasting(before)
    assert "nothing had to be changed" in mpstui("profile", "apply", "day", *at, **config).out
    assert "Cmd:" not in log(v3)

    # Where one of them fails, what was made is taken back, but where clients have come.
    text = (tmp_path / "config" / "mpstui" / "profiles" / "day.toml").read_text()
    other = text.replace('"training"', '"other"').replace("chunks = 4", "chunks = 400")
    (tmp_path / "config" / "mpstui" / "profiles" / "other.toml").write_text(other)
    failed = mpstui("profile", "apply", "other", "--go-back", *at, **config)
    assert (failed.status, "undone: server other" in failed.err) == (1, True), failed
    assert [s["name"] for s in daemon(mpstui, v3)["v3"]["servers"]] == ["training"]

    # Stopped and started by the profile, it is as it was.
    kept = tmp_path / "audit"
    binary = {"MPSTUI_CONTROL_BINARY": BINARY, "MPSTUI_SIM_DRIVER": "615", "MPSTUI_AUDIT_LOG": str(kept)}
    _gone(v3, mpstui("daemon", "stop", "--yes", *at))
    started = mpstui("daemon", "start", "--profile", "day", **config, **binary)
    try:
        assert started.status == 0, started
        assert lasting(daemon(mpstui, v3)["v3"]) == lasting(before)
        assert [
            e["protocol"] for e in map(json.loads, kept.read_text().splitlines()) if e["action"] == "start_daemon"
        ] == [3, 3]
    finally:
        _gone(v3, mpstui("daemon", "stop", "--force", "--yes", *at))


def _gone(node: SimNode, stopped: Run) -> None:
    assert (stopped.status, "has ended" in stopped.out) == (0, True), stopped
    assert not daemons_below(node.pipe_dir)
    assert not (node.pipe_dir / "control").exists()


def test_stop_deletes_servers_without_clients_and_others_by_force(v3: SimNode, mpstui: Mpstui) -> None:
    """-q is never sent: to an older binary it means something else. Made by the daemon itself, the directory is open to
    others; the daemon removes its servers' directories from it meanwhile."""
    at = ("--pipe-dir", v3.pipe_dir)
    for name in ("idle", "busy"):
        v3.call("server", "create", name, "--uid=0")
    client = v3.spawn(at=v3.pipe_dir / "busy")
    assert client.status() == "connected"
    asked = mpstui("daemon", "stop", *at)
    assert asked.status == 6, asked
    assert str(client.pid) in asked.err
    assert "its servers are deleted, and its process gets SIGTERM" in asked.err
    assert "(idle, busy)" in asked.err
    assert mpstui("--read-only", "daemon", "stop", "--yes", *at).status == 6
    assert len(daemon(mpstui, v3)["servers"]) == 2
    v3.pipe_dir.chmod(0o777)  # as a simulated node it is believed no more, and is taken for a real one
    binary = {"MPSTUI_CONTROL_BINARY": BINARY, "MPSTUI_SIM_DRIVER": "615"}
    _gone(v3, mpstui("daemon", "stop", "--timeout", "0", "--yes", *at, **binary))
    calls = [line.partition("Call:")[2] for line in log(v3).splitlines() if "Call:" in line]
    assert calls[2:] == ["server delete idle --force", "server delete busy --force"]
    assert "Cmd:" not in log(v3)


@pytest.mark.parametrize(("driver", "words", "status", "said"), [
    ("580", ("--protocol", "3"), 1, "no MPS protocol 3"),
    ("470", ("--protocol", "3"), 1, "no MPS protocol 3"),
    ("615", ("--protocol", "3", "--static"), 2, "has no -S"),
    ("615", ("--protocol", "4"), 2, "invalid choice"),
])  # fmt: skip
def test_protocol_3_is_started_where_the_binary_knows_it(
    mpstui: Mpstui, tmp_path: Path, driver: str, words: tuple[str, ...], status: int, said: str
) -> None:
    at = ("--pipe-dir", tmp_path / "mps")
    told = mpstui("daemon", "start", *words, *at, MPSTUI_CONTROL_BINARY=BINARY, MPSTUI_SIM_DRIVER=driver)
    assert (told.status, said in told.err) == (status, True), told
    assert not (tmp_path / "mps").exists()
