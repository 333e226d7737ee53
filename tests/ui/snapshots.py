"""Nodes for the tests of the screen: a rich one, and one for each state that a daemon can be in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from mpstui.core import condition
from mpstui.core.model import (
    Client,
    Context,
    Daemon,
    Device,
    Event,
    Health,
    OldLimit,
    Problem,
    ProcessKey,
    Server,
    SessionHolder,
    Snapshot,
)
from mpstui.core.trust import Speaker

NOW = 1_795_262_671.0
GIB = 1 << 30
GPU0, GPU1 = "GPU-11111111-aaaa", "GPU-22222222-bbbb"
PIPE, OTHER_PIPE = Path("/tmp/mps_0"), Path("/run/mps/team-b")
USERS = ("alice", "bob", "carol", "dmitri", "eve")
COMMANDS = (
    "python train.py --config resnet50.yaml",
    "python -m vllm.entrypoints.openai.api_server --model llama",
    "./simulate -n 4096 --steps 100000",
    "python infer.py --batch 8",
    "julia --project run.jl",
)


def device(index: int, contexts: int | None, **changes: object) -> Device:
    values: dict[str, Any] = {
        "uuid": (GPU0, GPU1)[index],
        "index": index,
        "name": "NVIDIA H100 80GB HBM3",
        "sm_count": 132,
        "compute_capability": (9, 0),
        "memory_total": int(79.6 * GIB),
        "memory_used": int((24.4, 71.9)[index] * GIB),
        "compute_mode": ("Default", "Exclusive_Process")[index],
        "mig": False,
        "contexts": contexts,
        "sm_utilization": (87.0, 34.0)[index],
        "sm_occupancy": (41.0, 12.0)[index],
        "dram_utilization": (22.0, 63.0)[index],
        "gpu_utilization": 100.0,
        "power_watts": (341.0, 298.0)[index],
        "temperature": (46.0, 71.0)[index],
    }
    return Device(**{**values, **changes})


def client(number: int, **changes: object) -> Client:
    """A client in a regular series: every third has limits of its own, users and commands in turn."""
    limited = number % 3 == 0
    uuid = GPU0 if number < 40 else GPU1
    values: dict[str, Any] = {
        "key": ProcessKey(2000 + number * 7, 1_000 + number),
        "server_pid": 1402,
        "id": number + 1,
        "start_time": NOW - 40 - number * 137,
        "uid": 64_201 + number % 5,  # nobody who runs the tests
        "user": USERS[number % 5],
        "command": COMMANDS[number % 5],
        "state": "INACTIVE" if number % 11 == 5 else "ACTIVE",
        "contexts": (Context(number, uuid),),
        "gpu_memory": {uuid: (500 + number * 31) << 20},
        "cpu_percent": float(number * 13 % 101),
        "active_thread_percentage": 25.0 if limited else 100.0,
        "sm_count": 32 if limited else 132,
        "pinned_mem_limits": {"0": 2 * GIB} if limited else {},
        "memory_limit_known": True,
        "client_priority": 0,
    }
    return Client(**{**values, **changes})


def clients() -> tuple[Client, ...]:
    """46 clients, the awkward ones among them."""
    series = {number: client(number) for number in range(46)}
    series[1] = replace(
        series[1],
        old_limits=(OldLimit("active_thread_percentage", 100.0, 50.0),),
        active_thread_percentage=50.0,
        sm_count=66,
    )
    series[2] = replace(
        series[2],
        old_limits=(OldLimit("active_thread_percentage", 100.0, 50.0),),
        active_thread_percentage=50.0,
        sm_count=66,
    )
    series[3] = replace(series[3], gpu_memory={GPU0: int(1.94 * GIB)})
    series[4] = replace(series[4], state="TERMINATED", terminate_requested=True, gpu_memory={}, contexts=())
    series[6] = replace(
        series[6], contexts=(Context(1, GPU0), Context(2, GPU1)), gpu_memory={GPU0: 300 << 20, GPU1: 700 << 20}
    )
    series[7] = replace(series[7], command="[bold red]x[/] \\x1b[2J\\n 99 99 FORGED \\u202e[/bad]")
    series[8] = replace(
        series[8],
        start_time=None, uid=None, user=None, command=None, cpu_percent=None, active_thread_percentage=None,
        sm_count=None, client_priority=None, gpu_memory={}, contexts=(),
    )  # fmt: skip
    series[9] = replace(
        series[9], user="ユーザー名前", command="日本語のコマンド --long " + "y" * 300, container="job-4711"
    )
    series[10] = replace(series[10], sm_count=128, sm_count_estimated=True, terminate_requested=True)
    return tuple(series.values())


def server(**changes: object) -> Server:
    values: dict[str, Any] = {
        "key": ProcessKey(1402, 900),
        "uid": 0,
        "user": "root",
        "status": "ACTIVE",
        "start_time": NOW - 7300,
        "active_thread_percentage": 25.0,
        "pinned_mem_limits": {"0": 2 * GIB, "1": 4 * GIB},
        "clients": clients(),
    }
    return Server(**{**values, **changes})


def daemon(**changes: object) -> Daemon:
    values: dict[str, Any] = {
        "pipe_dir": PIPE,
        "log_dir": Path("/var/log/nvidia-mps"),
        "key": ProcessKey(1300, 800),
        "uid": 0,
        "user": "root",
        "start_time": NOW - 7400,
        "protocol": "legacy",
        "version": "13000",
        "multiuser": False,
        "condition": condition.ok(),
        "default_active_thread_percentage": 100.0,
        "default_client_priority": 0,
        "ordinals": {"0": GPU0, "1": GPU1},
        "servers": (server(),),
        "watch": "logs",
        "speaker": Speaker(0, "root's daemon"),
    }
    return Daemon(**{**values, **changes})


def events() -> tuple[Event, ...]:
    def at(seconds: float, kind: str, **values: object) -> Event:
        return Event(kind=kind, time=NOW - seconds, pipe_dir=PIPE, server_pid=1402, raw=f"{kind} {seconds}", **values)  # type: ignore[arg-type]

    return (
        at(7400, "daemon_started", detail="control daemon started"),
        at(7301, "server_starting", detail="server 1402 is starting for user 0"),
        at(7300, "server_ready", detail="server 1402 is ready"),
        at(900, "client_connected", pid=2007, detail="client 2007 connected"),
        at(899, "context_active", pid=2007, devices=(GPU0,), detail=f"client 2007 opened context 1 on {GPU0}"),
        at(610, "limit_set", detail="server 1402: active thread percentage set to 25 %"),
        at(600, "command", detail="ps"),
        at(500, "client_connected", pid=2042, detail="client 2042 connected"),
        at(300, "client_refused", detail="a client was refused: 48 clients is the most that a device takes"),
        at(200, "terminate_requested", pid=2028, detail="client 2028 is asked to end"),
        at(199, "terminate_succeeded", pid=2028, detail="client 2028 was ended by the server"),
        at(120, "client_disconnected", pid=1999, detail="client 1999 disconnected"),
        at(40, "context_active", pid=2315, devices=(GPU1,), detail=f"client 2315 opened context 3 on {GPU1}"),
    )


def rich(**changes: object) -> Snapshot:
    """Two devices, two daemons, 46 clients."""
    second = daemon(pipe_dir=OTHER_PIPE, key=ProcessKey(5100, 5000), user="bob", uid=1001, servers=())
    values: dict[str, Any] = {
        "time": NOW,
        "host": "gpu-07",
        "driver_version": "580.159.04",
        "daemons": (daemon(), second),
        "devices": (device(0, 46), device(1, 7)),
        "events": events(),
    }
    return Snapshot(**{**values, **changes})


def one_daemon(**changes: object) -> Snapshot:
    return rich(daemons=(daemon(),), **changes)


def simulated() -> Snapshot:
    return rich(source="simulated", daemons=(daemon(simulated=True),))


def fault() -> Snapshot:
    text = f"fatal GPU fault on {GPU0}; clients 2000, 2007, 2014 lost; no proof: server.log names client 2007"
    happened = Event("fatal_fault", NOW - 3, PIPE, 1402, devices=(GPU0,), detail=text, raw="fault")
    refused = Event(
        "client_refused", NOW - 1, PIPE, 1402, detail="client 99 was refused: server 1402 is in FAULT", raw="refused"
    )
    return rich(
        daemons=(daemon(servers=(server(status="FAULT", clients=clients()[:4]),)),),
        events=(*events(), happened, refused),
        problems=(
            Problem(
                "error", "fault", "server 1402", "a client faulted; new clients are refused", "end clients 2000, 2014"
            ),
            Problem("warning", "full", "GPU 0", "2 contexts are left", "end a client"),
        ),
    )


START = "Start one, on the screen Daemon or with mpstui daemon start."


def unhealthy(health: Health) -> Snapshot:
    """Held, blocked, stale or absent."""
    moment, gone = condition.Moment(), {"servers": (), "key": None, "version": None}
    holder = SessionHolder(4242, "alice", "pts/3", start_ticks=1)
    said = "alice keeps a control session open on pts/3 (process 4242)"
    silence = "No answer for 5 s: terminate_client was sent twice for client 2028."
    details: dict[Health, dict[str, Any]] = {
        "held": {"condition": condition.held(holder, said, NOW - 75, moment)},
        "blocked": {
            "condition": replace(condition.terminated_twice(clients()[4].key, NOW - 75, moment), detail=silence)
        },
        "stale": {"condition": condition.gone("", START, NOW - 75), **gone},
        "absent": {"condition": condition.absent("", START, NOW - 75), **gone},
    }
    happened = (Event("daemon_exited", NOW - 75, PIPE, 1402),) if health in {"stale", "absent"} else ()
    return rich(daemons=(daemon(**details[health]),), events=(*events(), *happened))


def unknown() -> Snapshot:
    """A node of which nearly nothing is known."""
    bare = Server(ProcessKey(77), clients=(Client(ProcessKey(78)),))
    return Snapshot(
        time=NOW,
        daemons=(
            Daemon(
                PIPE,
                condition=condition.ok(),
                servers=(bare,),
                watch="polling",
                watch_detail="control.log may not be read",
            ),
        ),
        devices=(Device("GPU-x"),),
        nvml_detail=None,
    )


def no_daemon() -> Snapshot:
    return Snapshot(time=NOW, host="gpu-07", nvml_detail="libnvidia-ml.so.1 is not there")
