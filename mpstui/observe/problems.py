"""What an admin should know now, and what to do about it; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mpstui.model import Daemon, Device, Problem, Server, Severity
from mpstui.observe.state import DaemonState

_NEARLY = 0.9
_SEVERITY: dict[str, Severity] = {"held": "error", "blocked": "error", "stale": "warning", "absent": "warning"}


def find_problems(
    daemons: Sequence[Daemon], devices: Sequence[Device], states: Sequence[DaemonState], nvml_detail: str | None
) -> tuple[Problem, ...]:
    """All problems, the worst first."""
    found: list[Problem] = []
    for daemon, state in zip(daemons, states, strict=True):
        found += _of_daemon(daemon, state)
    found += _of_devices(devices)
    if nvml_detail is not None:
        remedy = "Install the NVIDIA driver's libnvidia-ml, or run mpstui where the GPUs are visible."
        found.append(Problem("warning", "nvml", "NVML", f"No device readings: {nvml_detail}", remedy))
    order = {"error": 0, "warning": 1, "info": 2}
    return tuple(sorted(found, key=lambda problem: order[problem.severity]))


def _of_daemon(daemon: Daemon, state: DaemonState) -> Iterable[Problem]:
    subject = str(daemon.pipe_dir)
    if daemon.health != "ok":
        yield Problem(
            _SEVERITY[daemon.health],
            f"daemon_{daemon.health}",
            subject,
            daemon.health_detail or daemon.health,
            daemon.remedy or "",
        )
    elif daemon.health_detail and daemon.remedy:
        yield Problem("warning", "daemon_unread", subject, daemon.health_detail, daemon.remedy)
    if daemon.watch == "polling":
        remedy = "Let this user read control.log and server.log, or name their directory with --log-dir."
        yield Problem("info", "polling", subject, daemon.watch_detail or "The daemon is asked again and again.", remedy)
    for pending in state.pending.values():
        remedy = "It gets one when the present server has no clients left, or the daemon runs with -multiuser-server."
        yield Problem("info", "pending", f"client {pending.pid}", f"{pending.detail}.", remedy)
    for server in daemon.servers:
        yield from _of_server(server, state)


def _of_server(server: Server, state: DaemonState) -> Iterable[Problem]:
    subject = f"server {server.pid}"
    record = state.servers.get(server.pid)
    if server.status == "FAULT":
        affected = sorted(record.fault.affected & record.clients.keys()) if record and record.fault else []
        culprits = record.fault.culprits if record and record.fault else ()
        text = "A fatal GPU fault"
        if culprits:
            text += f", raised in client {', '.join(map(str, culprits))}"
        text += "; new clients are refused until the last client hit has ended."
        whom = f" {', '.join(map(str, affected))}" if affected else ""
        yield Problem("error", "fault", subject, text, f"End the clients hit by it{whom}: their work is lost already.")
    for client in server.clients:
        if client.state == "TERMINATED":
            yield Problem(
                "warning",
                "terminated",
                f"client {client.pid}",
                f"Client {client.pid} was terminated and its process lives.",
                f"End process {client.pid}. Never terminate it again: that blocks the daemon.",
            )
    outdated = [client for client in server.clients if client.outdated_limits]
    if outdated:
        who = f"{len(outdated)} clients keep" if len(outdated) > 1 else f"Client {outdated[0].pid} keeps"
        text = f"{who} the limits that held at the time of connecting, not the present ones."
        yield Problem("info", "outdated", subject, text, "Restart the clients that are to get the new limits.")


def _of_devices(devices: Sequence[Device]) -> Iterable[Problem]:
    for device in devices:
        used, limit = device.contexts, device.context_limit
        if used is None or limit is None or used < _NEARLY * limit:
            continue
        subject = f"device {device.index if device.index is not None else device.uuid}"
        remedy = "Start further clients on another device, or let some end."
        if used >= limit:
            yield Problem(
                "error",
                "device_full",
                subject,
                f"It holds {used} of {limit} contexts; the next client gets error 46.",
                remedy,
            )
        else:
            yield Problem("warning", "device_nearly_full", subject, f"It holds {used} of {limit} contexts.", remedy)
