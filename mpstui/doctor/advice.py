"""Checks of what the vendor's documents say of GPUs, platforms, debuggers and CPUs, where it matters on this node.

Nothing here was measured by this project unless a fact is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mpstui.core.gain import gain_of
from mpstui.core.model import Daemon, Device
from mpstui.core.suspects import rank
from mpstui.core.text import client_pids, have, plural, printable
from mpstui.doctor.types import Facts, Finding, Verdict

_LEAST: Final = (3, 5)
_VOLTA: Final = (7, 0)
_OLD: Final = (
    "a GPU before Volta: 16 contexts, no limits of SMs or memory; all work goes through the server, and clients share "
    "one address space, so that a read or a write out of bounds reaches another client's data and no error says so; a "
    "fault is told to all clients and ends the server; stream callbacks, graphs with host nodes and the Video Codec "
    "SDK fail"
)
_TEGRA: Final = (
    "a Tegra board: MPS has no default directories there, no multi-user mode and no terminate_client; GPUs have no "
    "compute modes; CUDA IPC and cooperative launches fail in clients"
)
REPEATED: Final = 2
"""Fatal faults from which on a program that was there each time is named."""


def architecture(facts: Facts) -> Iterator[Finding]:
    """What the GPUs' age allows: no server before 3.5, another MPS before Volta, and not both in one server."""
    for device in facts.snapshot.devices:
        found, subject = device.compute_capability, device.called
        if found is None:
            yield Finding("architecture", "unknown", subject, "NVML does not tell its compute capability")
            continue
        version = f"compute capability {found[0]}.{found[1]}"
        if found < _LEAST:
            text = f"{version}: no MPS server starts while it is visible to the daemon; 3.5 is needed"
            remedy = "Name the daemon's other devices in its CUDA_VISIBLE_DEVICES, by UUID."
            yield Finding("architecture", "error", subject, text, remedy)
        elif found < _VOLTA:
            remedy = "Let only processes of one application share it."
            yield Finding("architecture", "warning", subject, f"{version}, {_OLD}", remedy)
        else:
            text = f"{version}: clients submit work directly, each has an address space of its own, and limits hold"
            yield Finding("architecture", "ok", subject, text)
    for daemon in facts.snapshot.daemons:
        yield from _mixed(daemon, facts.snapshot.devices)


def _mixed(daemon: Daemon, devices: Sequence[Device]) -> Iterator[Finding]:
    """A server that sees a GPU of Volta or later leaves out the older ones."""
    if daemon.pid is None:
        return
    seen = set(daemon.ordinals.values())
    here = [d for d in devices if d.compute_capability is not None and (not seen or d.uuid in seen)]
    old = [d for d in here if d.compute_capability is not None and d.compute_capability < _VOLTA]
    if old and len(old) < len(here):
        names = ", ".join(device.called for device in old)
        text = f"the server does not use {names} (older than Volta), because the daemon also sees newer GPUs"
        remedy = "Start a daemon of its own for the older GPUs: mpstui daemon start --device."
        yield Finding("architecture", "warning", f"daemon {daemon.pid}", text, remedy)


def platform(facts: Facts) -> Iterator[Finding]:
    """MPS runs on Linux and QNX, for programs of 64 bits; on Tegra much of it is missing."""
    found = facts.platform
    if found is None:
        return
    named = f"{found.system}, {found.bits} bits"
    if found.system not in {"Linux", "QNX"}:
        yield Finding("platform", "error", "node", f"{named}: the MPS server starts on Linux and QNX alone")
    elif found.bits != 64:
        yield Finding("platform", "error", "node", f"{named}: only programs of 64 bits can be clients")
    elif found.tegra:
        remedy = "Set CUDA_MPS_PIPE_DIRECTORY and CUDA_MPS_LOG_DIRECTORY for the daemon and for each client."
        yield Finding("platform", "warning", "node", _TEGRA, remedy)
    else:
        yield Finding("platform", "ok", "node", named)


def cpus(facts: Facts) -> Iterator[Finding]:
    """More clients than CPUs wait for each other's threads before they wait for the GPU."""
    for daemon in facts.snapshot.daemons:
        for server in (server for server in daemon.servers if server.pid in facts.server_cpus):
            number, subject = facts.server_cpus.get(server.pid), f"server {server.pid}"
            clients, said = len(server.clients), plural(len(server.clients), "client")
            said = said if server.clients_known else f"at least {said}"
            if number is None:
                yield Finding("cpus", "unknown", subject, "which CPUs it may use cannot be read")
            elif clients <= number and not server.clients_known:
                text = f"its clients are not known, and it may use {plural(number, 'CPU')}"
                yield Finding("cpus", "unknown", subject, text)
            elif clients > number:
                text = f"{said}, and it may use {plural(number, 'CPU')}: launches take longer"
                remedy = "Run fewer clients, or give the daemon more CPUs (mpstui daemon start --cpu, or taskset)."
                yield Finding("cpus", "warning", subject, text, remedy)
            else:
                yield Finding("cpus", "ok", subject, f"{said} on {plural(number, 'CPU')}")


def debuggers(facts: Facts) -> Iterator[Finding]:
    """A program under a CUDA debugger waits in cuInit until no client is left, and then runs without MPS."""
    clients = {client.pid for daemon in facts.snapshot.daemons for client in daemon.clients() if client.local}
    for each in facts.debugged:
        subject, by = f"process {each.pid}", f"runs under {printable(each.debugger, 40)} (process {each.by})"
        others = sorted(clients - {each.pid})
        if each.pid in clients:
            text = f"{by}, as a client of MPS: while it is stopped, its kernels stay on the GPU that it shares"
            yield Finding("debuggers", "warning", subject, text, "Debug on a GPU that nobody shares.")
        elif others:
            ended = f"{client_pids(others)} {have(len(others))} ended"
            text = f"{by}: the program waits in cuInit until {ended}, then runs without MPS"
            remedy = "Wait for them, or debug on a GPU without a daemon. Core dumps and memcheck work under MPS."
            yield Finding("debuggers", "warning", subject, text, remedy)
        else:
            yield Finding("debuggers", "ok", subject, f"{by}; no client blocks it; it runs without MPS")


def repeated_faults(facts: Facts) -> Iterator[Finding]:
    """Who was there at each of several fatal faults: with busy neighbours the log's own word is none (fact 36)."""
    faults = [event for event in facts.snapshot.events if event.kind == "fatal_fault"]
    for pipe_dir in dict.fromkeys(event.pipe_dir for event in faults):
        ranking = rank(event for event in faults if event.pipe_dir == pipe_dir)
        if len(ranking.faults) < REPEATED:
            continue
        daemon = next((d for d in facts.snapshot.daemons if d.pipe_dir == pipe_dir), None)
        subject = "daemon" if daemon is None or daemon.pid is None else f"daemon {daemon.pid}"
        text = f"{len(ranking.faults)} fatal faults are in its history. {ranking.sentence}"
        remedy = "See mpstui suspects; run those that it names one at a time, each alone in a daemon of its own."
        yield Finding("repeated", "warning", subject, text, remedy)


def gain(facts: Facts) -> Iterator[Finding]:
    """Whether a device would gain from MPS, or from more clients of it, by what its meters say at this moment."""
    for device in facts.snapshot.devices:
        found = gain_of(device, facts.snapshot)
        known = found.would is not None or found.in_use or (device.gpu_utilization is not None and not found.at_work)
        verdict: Verdict = "warning" if found.remedy else "ok" if known else "unknown"
        yield Finding("gain", verdict, device.called, found.text, found.remedy)
