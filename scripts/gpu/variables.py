"""The parts of gpu-plan about a client's limits and whereabouts: what variables really do, and PID namespaces."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from planning import MIB, Seen, Setting, daemon

from mpstui import api
from mpstui.core.model import Client
from mpstui.core.partition import sms_of
from mpstui.plan.chain import Chain, limit_chains

SHARE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MEMORY = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
VISIBLE = "CUDA_VISIBLE_DEVICES"
PRIORITY = "CUDA_MPS_CLIENT_PRIORITY"
CONTEXT = 1200
"""MiB that a context may take of a limit before a client has asked for anything."""

DAEMONS: dict[str, dict[str, str]] = {
    "nothing": {},
    "50 %, 6G": {SHARE: "50", MEMORY: "0=6G"},
    "priority 1": {PRIORITY: "1"},
}
"""What a daemon is started with."""
CLIENTS: dict[str, dict[str, str]] = {
    "nothing": {},
    "25 %": {SHARE: "25"},
    "80 %": {SHARE: "80"},
    "0 %": {SHARE: "0"},
    "2G": {MEMORY: "0=2G"},
    "9G": {MEMORY: "0=9G"},
    "2G and a device that is not there": {MEMORY: "0=2G,7=1G"},
    "its device by UUID, 25 %, 2G": {VISIBLE: "UUID", SHARE: "25", MEMORY: "0=2G"},
    "priority 1": {PRIORITY: "1"},
}
"""What a client is started with; UUID stands for the device's."""


@contextlib.contextmanager
def _daemon(setting: Setting, name: str, variables: Mapping[str, str]) -> Iterator[Path]:
    """A daemon with these variables: `mpstui daemon start` would leave them out, so it is started by hand."""
    pipe_dir = setting.folder / name
    log_dir = pipe_dir.with_name(f"{name}-log")
    for folder in (pipe_dir, log_dir):
        folder.mkdir(mode=0o755)
    binary = setting.environment.get("MPSTUI_CONTROL_BINARY") or "nvidia-cuda-mps-control"
    places = {"CUDA_MPS_PIPE_DIRECTORY": str(pipe_dir), "CUDA_MPS_LOG_DIRECTORY": str(log_dir)}
    environment = {**setting.environment, **places, **variables}
    if setting.simulated:
        from mpstui.sim.simd.config import default_gpus, write_marker

        write_marker(pipe_dir, default_gpus(1))
    subprocess.run([binary, "-d"], env=environment, timeout=setting.left(), check=True, stdout=subprocess.DEVNULL)
    try:
        yield pipe_dir
    finally:
        setting.ends = max(setting.ends, time.monotonic() + 20)
        setting.mpstui("daemon", "stop", "--pipe-dir", pipe_dir, "--force", "--yes")


def _told(setting: Setting, pipe_dir: Path, pid: int) -> tuple[Client, tuple[Chain, ...]]:
    """The client as mpstui has it, and its chains, as the details and `?` of a limit show them."""
    os.environ.update({name: setting.environment[name] for name in ("MPSTUI_AUDIT_LOG", "XDG_CONFIG_HOME")})
    with api.open((pipe_dir,)) as node:
        snapshot = node.snapshot(complete=True)
        found = snapshot.daemons[0]
        client = next(client for client in found.clients() if client.pid == pid)
        environment = node.wait_for(node.asynchronous.environment(client.key))
    return client, limit_chains(client, found, snapshot.events, environment, snapshot.devices)


def variables(setting: Setting) -> None:
    """Each variable in the daemon, on its server and in the client: what a client gets, and what mpstui says it has."""
    report, total = setting.report, setting.target
    rows: list[dict[str, Any]] = []
    for number, (of_daemon, daemons) in enumerate(DAEMONS.items()):
        with _daemon(setting, f"mps_v{number}", daemons) as pipe_dir:
            for server in ("nothing", "40 %"):
                if server != "nothing":  # of the server that runs now
                    status = json.loads(setting.must("status", "--pipe-dir", pipe_dir, "--json"))
                    pid = status["daemons"][0]["servers"][0]["pid"]
                    words = ("set", "active-thread-percentage", 40, "--server", pid, "--pipe-dir", pipe_dir)
                    setting.must(*words)
                for of_client, asked in CLIENTS.items():
                    given = {
                        name: setting.device["uuid"] if value == "UUID" else value for name, value in asked.items()
                    }
                    with setting.started(pipe_dir, "idle", 60, **given) as process:
                        seen = setting.read(process)
                        case = {"daemon": of_daemon, "server": server, "client": of_client}
                        if seen.sms is None:
                            rows.append({**case, "a client gets": seen.end or "no context"})
                            continue
                        client, chains = _told(setting, pipe_dir, seen.pid)
                    rows.append({**case, **_compare(setting, case, seen, client, chains)})
    report.value("variables: what a client gets, and what mpstui says", rows)
    report.check("every combination was tried", len(rows) == 2 * len(DAEMONS) * len(CLIENTS), len(rows))
    report.check("a share was seen to come from a variable", any(row.get("SMs seen") != total.sm_count for row in rows))


def _compare(
    setting: Setting, case: Mapping[str, str], seen: Seen, client: Client, chains: tuple[Chain, ...]
) -> dict[str, Any]:
    report, target = setting.report, setting.target
    name = ", ".join(f"{where} {what}" for where, what in case.items())
    share, limit = client.active_thread_percentage, client.pinned_mem_limits.get("0")
    planned = target.sm_count if share is None else sms_of(share, target.sm_count, target.rounding)
    report.check(f"{name}: the SMs", seen.sms == planned, f"client {seen.sms}, mpstui {planned} ({share} %)")
    free, whole = seen.free or 0, target.memory_total or 0
    if limit is not None:
        fits = limit // MIB - CONTEXT <= free <= limit // MIB
        report.check(f"{name}: the memory limit", fits, f"client {free} MiB free, mpstui {limit // MIB} MiB")
    elif client.memory_limit_known:
        report.check(f"{name}: no memory limit", free * MIB > whole / 2, f"client {free} MiB free of {whole // MIB}")
    by_limit = {chain.limit: chain for chain in chains}
    return {
        "SMs seen": seen.sms,
        "mpstui's": planned,
        "MiB free": free,
        "mpstui's limit": by_limit["pinned_mem_limit"].effective if "pinned_mem_limit" in by_limit else "—",
        "priority": by_limit["client_priority"].effective,
        "chain of the share": " → ".join(f"{link.value}" for link in by_limit["active_thread_percentage"].links),
    }


def namespaces(setting: Setting) -> None:
    """Two clients in PID namespaces of their own beside a usual one, on a daemon of this one: seen, named, ended."""
    report = setting.report
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        report.value("clients in namespaces", "left out: needs root and unshare")
        return
    apart = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    with daemon(setting, "mps_ns") as pipe_dir, contextlib.ExitStack() as stack:
        usual = stack.enter_context(setting.started(pipe_dir, "idle", 120))
        boxes = [stack.enter_context(setting.started(pipe_dir, "idle", 120, before=apart)) for _ in range(2)]
        inside = [setting.read(process) for process in (usual, *boxes)]
        report.value("what the clients call themselves", [seen.pid for seen in inside])
        report.check("all of them are clients", all(seen.sms for seen in inside), [seen.end for seen in inside])
        here = {pid for box in boxes for pid in _below(box.pid)}
        found = _clients(setting, pipe_dir)
        report.value("what mpstui says of them", [{k: c[k] for k in _SAID} for c in found])
        report.value("ps, as the daemon answers", _control(setting, pipe_dir, "ps"))
        report.check("three clients are seen", len(found) == 3, [c["pid"] for c in found])
        pids = {c["pid_here"] or c["pid"] for c in found}
        usual_pids = {usual.pid, *_below(usual.pid)}
        told = (sorted(pids), sorted(usual_pids), sorted(here))
        report.check("by the PIDs that they have here", pids <= usual_pids | here and len(pids & here) == 2, told)
        named = [c for c in found if (c["pid_here"] or c["pid"]) in here and c["command"]]
        report.check("those in namespaces have a command", len(named) == 2, [c["command"] for c in found])
        for client in (c for c in found if (c["pid_here"] or c["pid"]) in here):
            pid = client["pid"]
            status, out, err = setting.mpstui("terminate", pid, "--yes", "--pipe-dir", pipe_dir)
            report.check(f"client {pid} is terminated through the daemon", status == 0, out + err)
        for pid in here if not setting.simulated else ():  # one that does nothing looks when it is asked to end
            os.kill(pid, signal.SIGTERM)
        ends = [setting.read(box, to_the_end=True).end for box in boxes]
        report.check("they were told so (810)", all(end.startswith("end 810") for end in ends), ends)
        report.check("the usual one runs on", usual.poll() is None)
        left = [c["pid"] for c in _clients(setting, pipe_dir)]
        report.check("and is the only one left", len(left) == 1 and left[0] in usual_pids, left)


_SAID = ("pid", "pid_proved", "pid_here", "user", "command")


def _clients(setting: Setting, pipe_dir: Path) -> list[dict[str, Any]]:
    status = json.loads(setting.must("status", "--json", "--pipe-dir", pipe_dir))
    return [client for server in status["daemons"][0]["servers"] for client in server["clients"]]


def _below(pid: int) -> list[int]:
    """The processes below one, by their PIDs here."""
    with contextlib.suppress(OSError):
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return children + [below for child in children for below in _below(child)]
    return []


def _control(setting: Setting, pipe_dir: Path, command: str) -> str:
    binary = setting.environment.get("MPSTUI_CONTROL_BINARY") or "nvidia-cuda-mps-control"
    done = subprocess.run(
        [binary], input=f"{command}\n", env={**setting.environment, "CUDA_MPS_PIPE_DIRECTORY": str(pipe_dir)},
        capture_output=True, text=True, timeout=setting.left(20), check=False,
    )  # fmt: skip
    return done.stdout.strip()
