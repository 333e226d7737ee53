"""The parts of gpu-plan about daemons: two on one GPU, one for each GPU, and those of a batch system's scripts."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from planning import Seen, Setting, daemon

from mpstui.core.partition import sms_of


def daemons(setting: Setting) -> None:
    """Two daemons on one GPU, each on its own CPU; a second start; a stop with a client."""
    report = setting.report
    cpus = sorted(os.sched_getaffinity(0))[:2]
    uuid = setting.device["uuid"]
    started = time.monotonic()
    with (
        daemon(setting, "mps_0", "--device", uuid, "--cpu", cpus[0]) as one,
        daemon(setting, "mps_1", "--device", uuid, "--cpu", cpus[-1], "--multi-user") as two,
    ):
        report.value("seconds to start two daemons", round(time.monotonic() - started, 2))
        with setting.started(one, "idle", 60) as first, setting.started(two, "idle", 60) as second:
            seen = [setting.read(first), setting.read(second)]
            report.check("a client on each sees the whole device", all(s.sms == setting.target.sm_count for s in seen))
            for pipe_dir, cpu in ((one, cpus[0]), (two, cpus[-1])):
                found = json.loads(setting.must("status", "--pipe-dir", pipe_dir, "--json"))["daemons"][0]
                pids = [found["pid"], *(s["pid"] for s in found["servers"])]
                on = {pid: sorted(os.sched_getaffinity(pid)) for pid in pids}
                report.check(
                    f"{pipe_dir.name}: daemon and server on CPU {cpu}", all(c == [cpu] for c in on.values()), on
                )
            status, _, err = setting.mpstui("daemon", "start", "--pipe-dir", one)
            report.check("a second start is refused in words", status == 6 and "already" in err, err)
            status, _, err = setting.mpstui("daemon", "stop", "--pipe-dir", one)
            report.check("a stop without --yes names the client", status == 6 and str(seen[0].pid) in err, err)
            started = time.monotonic()
            status, out, err = setting.mpstui("daemon", "stop", "--pipe-dir", one, "--yes", "--timeout", 2)
            report.value("seconds of a stop with --timeout 2", round(time.monotonic() - started, 2))
            report.check("a stop with a limit ends it", status == 0, err or out)
            report.check("the other daemon runs on", second.poll() is None)
    mode = json.loads(setting.must("plan", "--sm-count-total", 2, "--clients", 1, "--json"))["schema"]
    report.check("a plan without a node still works", mode == 1)


def per_gpu(setting: Setting) -> None:
    """One daemon for each GPU, each on its own CPU, a client on each, and all of them stopped."""
    report, devices = setting.report, setting.devices
    cpus = sorted(os.sched_getaffinity(0))[: len(devices)]
    if len(devices) < 2 or len(cpus) < len(devices):
        report.value("one daemon per GPU", f"left out: {len(devices)} GPU, {len(cpus)} CPUs")
        return
    base = setting.folder / "mps_g"
    places = [base.with_name(f"{base.name}_{device['index']}") for device in devices]
    started = time.monotonic()
    words = ("--per-gpu", "--pipe-dir", base, "--cpu", ",".join(map(str, cpus)), "--json")
    # The simulated GPUs are known from a directory of the simulated node alone.
    known = daemon(setting, base.name) if setting.simulated else contextlib.nullcontext()
    try:
        with known:
            found = json.loads(setting.must("daemon", "start", *words))["daemons"]
        report.value(f"seconds to start {len(devices)} daemons", round(time.monotonic() - started, 2))
        report.check("one daemon for each GPU", [entry["pipe_dir"] for entry in found] == [*map(str, places)], found)
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(setting.started(place, "idle", 60)) for place in places]
            seen = [setting.read(client) for client in clients]
            _each_on_its_own(setting, places, cpus, seen)
        started = time.monotonic()
        for place in places:
            setting.must("daemon", "stop", "--pipe-dir", place, "--yes")
        report.value(f"seconds to stop {len(devices)} daemons", round(time.monotonic() - started, 2))
        left = [str(file) for place in places for file in place.glob("control*") if file.name != "control_lock"]
        report.check("what the daemons left is cleaned", not left, left or "")
    finally:
        setting.ends = max(setting.ends, time.monotonic() + 30)
        for place in places:
            setting.mpstui("daemon", "stop", "--pipe-dir", place, "--force", "--yes")
    pids = [entry["pid"] for entry in found]
    alive = [pid for pid in pids if b"nvidia-cuda-mps" in _command_line(pid)]
    report.check("no daemon is left", not alive, alive or "")


def _each_on_its_own(setting: Setting, places: Sequence[Path], cpus: Sequence[int], seen: Sequence[Seen]) -> None:
    """Each client is seen under its daemon alone, on that daemon's GPU, and the daemon is on its CPU."""
    report = setting.report
    named = [word for place in places for word in ("--pipe-dir", str(place))]
    status = json.loads(setting.must("status", *named, "--json"))
    by_dir = {entry["pipe_dir"]: entry for entry in status["daemons"]}
    rows = []
    for place, device, cpu, client in zip(places, setting.devices, cpus, seen, strict=True):
        found = by_dir[str(place)]
        servers = found["servers"]
        inside = {c["pid"]: sorted(c["gpu_memory"]) for server in servers for c in server["clients"]}
        on = {pid: sorted(os.sched_getaffinity(pid)) for pid in [found["pid"], *(s["pid"] for s in servers)]}
        rows.append(
            {
                "GPU": device["index"],
                "health": found["health"],
                "daemon": found["pid"],
                "CPU": cpu,
                "client": client.pid,
                "SMs": client.sms,
            }
        )
        report.check(f"{place.name}: it answers", found["health"] == "ok", found["health"])
        report.check(f"{place.name}: daemon and server on CPU {cpu}", all(c == [cpu] for c in on.values()), on)
        right = client.sms == device["sm_count"] and list(inside) == [client.pid]
        report.check(f"{place.name}: its client alone, with the whole GPU", right, (client.sms, inside))
        report.check(
            f"{place.name}: its memory is on GPU {device['index']}", inside.get(client.pid) == [device["uuid"]], inside
        )
    report.value("one daemon per GPU", rows)


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


PROFILE = """\
schema = 1
[[daemon]]
pipe_dir = "{pipe_dir}"
log_dir = "{log_dir}"
[daemon.limits]
active_thread_percentage = 33.4
client_priority = 1
[daemon.limits.pinned_mem_limit]
0 = "56704M"
"""


def units(setting: Setting) -> None:
    """The Slurm prologue and epilogue that mpstui prints, run; without a GPU named, so that no compute mode is set."""
    report = setting.report
    folder = setting.folder / "config" / "mpstui" / "profiles"
    folder.mkdir(parents=True, exist_ok=True)
    pipe_dir, log_dir = setting.folder / "mps_unit", setting.folder / "mps_log_unit"
    (folder / "unit.toml").write_text(PROFILE.format(pipe_dir=pipe_dir, log_dir=log_dir))
    script = setting.must("daemon", "unit", "slurm", "--profile", "unit")
    if any(line.strip().startswith("gpus=") and "gpus=''" not in line for line in script.splitlines()):
        raise RuntimeError("the script would set a compute mode; it was not run")
    path = setting.environment["PATH"]
    if setting.simulated:
        path = f"{Path(setting.environment['MPSTUI_CONTROL_BINARY']).parent}{os.pathsep}{path}"

    def part(name: str) -> tuple[int, str]:
        own = {**setting.environment, "PATH": path, "SLURM_SCRIPT_CONTEXT": name, "SLURM_JOB_UID": str(os.getuid())}
        output = setting.folder / f"{name}.out"  # a file and not a pipe: the daemon keeps its standard output open
        with output.open("w") as file:
            done = subprocess.run(
                ["sh"], input=script, stdout=file, stderr=file, text=True, env=own, timeout=setting.left(), check=False
            )
        return done.returncode, output.read_text()

    try:
        started = part("prolog_slurmd")
        report.check("the prologue starts a daemon with its limits in force", started == (0, ""), started)
        seen = setting.see(pipe_dir, "idle", 0)
        wanted = sms_of(33.4, setting.target.sm_count, setting.target.rounding)
        report.check("a client sees them", seen.sms == wanted and (seen.free or 0) < 56704, (seen.sms, seen.free))
        ended = part("epilog_slurmd")
        report.check("the epilogue ends it", ended == (0, ""), ended)
    finally:
        setting.mpstui("daemon", "stop", "--pipe-dir", pipe_dir, "--force", "--yes")
