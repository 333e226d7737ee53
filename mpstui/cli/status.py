"""One snapshot as JSON (``schema`` 1) or as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from mpstui.core.model import Client, Daemon, Device, Problem, Server, Snapshot, StartFailures
from mpstui.core.text import UNKNOWN, by_device, format_age, format_percentage, format_size, lower_sizes, path_text
from mpstui.observe.procfs import user_name
from mpstui.operations.check import PRIORITIES
from mpstui.operations.types import ExitStatus

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = 1


def exit_status(snapshot: Snapshot) -> ExitStatus:
    """4 where a daemon does not answer or cannot be asked, 0 where one does or is shown read-only, otherwise 3."""
    health = {daemon.health for daemon in snapshot.daemons}
    if health & {"held", "blocked"} or any(daemon.unread and not daemon.unspoken for daemon in snapshot.daemons):
        return ExitStatus.NO_ANSWER
    return ExitStatus.DONE if "ok" in health else ExitStatus.NO_DAEMON


def to_json(snapshot: Snapshot) -> dict[str, Any]:
    """The snapshot in the stable keys of ``status --json``; what is not known is None."""
    return {
        "schema": SCHEMA,
        "time": _time(snapshot.time),
        "source": snapshot.source,
        "daemons": [_daemon(d) for d in snapshot.daemons],
        "devices": [_device(d) for d in snapshot.devices],
        "problems": [_problem(p) for p in snapshot.problems],
    }


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")


def _daemon(daemon: Daemon) -> dict[str, Any]:
    return {
        "pid": daemon.pid,
        "uid": daemon.uid,
        "pipe_dir": path_text(daemon.pipe_dir),
        "log_dir": None if daemon.log_dir is None else path_text(daemon.log_dir),
        "protocol": daemon.protocol,
        "version": daemon.version,
        "multiuser": daemon.multiuser,
        "speaks_for": _speaks_for(daemon),
        "static_partitioning": daemon.static_partitioning,
        "read_only": daemon.unspoken,
        "health": daemon.health,
        "health_detail": daemon.health_detail,
        "watch": daemon.watch,
        "watch_detail": daemon.watch_detail,
        "default_active_thread_percentage": daemon.default_active_thread_percentage,
        "default_client_priority": daemon.default_client_priority,
        "default_pinned_mem_limits": dict(daemon.default_pinned_mem_limits),
        "inherited_pinned_mem_limits": dict(daemon.inherited_mem_limits),
        "start_failures": _start_failures(daemon.start_failures),
        "servers": [_server(s) for s in daemon.servers],
    }


def _start_failures(found: StartFailures | None) -> dict[str, Any] | None:
    return (
        None
        if found is None
        else {
            "count": found.count,
            "since": _time(found.since),
            "last": _time(found.last),
            "server_pid": found.server_pid,
            "uid": found.uid,
            "reason": found.reason,
        }
    )


def _speaks_for(daemon: Daemon) -> str | None:
    """Whose processes may be ended on this daemon's word; null: nobody's."""
    if daemon.speaker.uid is None:
        return None
    return "everybody" if daemon.speaker.uid == 0 else user_name(daemon.speaker.uid)


def _server(server: Server) -> dict[str, Any]:
    return {
        "pid": server.pid,
        "uid": server.uid,
        "user": server.user,
        "status": server.status,
        "active_thread_percentage": server.active_thread_percentage,
        "pinned_mem_limits": dict(server.pinned_mem_limits),
        "clients": [_client(c) for c in server.clients],
        "clients_elsewhere": server.clients_elsewhere,
    }


def _client(client: Client) -> dict[str, Any]:
    return {
        "pid": client.pid,
        "id": client.id,
        "start_time": _time(client.start_time),
        "user": client.user,
        "uid": client.uid,
        "command": client.command,
        "pid_namespace": client.pid_namespace,
        "pid_proved": client.local,
        "container": client.container,
        "state": client.state,
        "contexts": [{"id": c.id, "device_uuid": c.device_uuid} for c in client.contexts],
        "gpu_memory": dict(client.gpu_memory),
        "active_thread_percentage": client.active_thread_percentage,
        "sm_count": client.sm_count,
        "sm_count_estimated": client.sm_count_estimated,
        "pinned_mem_limits": dict(client.pinned_mem_limits),
        "client_priority": client.client_priority,
        "limit_source": dict(client.limit_source),
        "outdated_limits": client.outdated_limits,
    }


def _device(device: Device) -> dict[str, Any]:
    return {
        "index": device.index,
        "uuid": device.uuid,
        "name": device.name,
        "sm_count": device.sm_count,
        "memory_total": device.memory_total,
        "memory_used": device.memory_used,
        "compute_mode": device.compute_mode,
        "mig": device.mig,
        "contexts": device.contexts,
        "context_limit": device.context_limit,
        "sm_utilization": device.sm_utilization,
        "sm_occupancy": device.sm_occupancy,
        "dram_utilization": device.dram_utilization,
        "gpu_utilization": device.gpu_utilization,
        "power_watts": device.power_watts,
        "temperature": device.temperature,
    }


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "severity": problem.severity,
        "code": problem.code,
        "subject": problem.subject,
        "text": problem.text,
        "remedy": problem.remedy,
    }


def print_text(snapshot: Snapshot, console: Console) -> None:
    """The snapshot for a person. Everything from outside is printed as text, never as markup."""
    from rich.text import Text

    if snapshot.source == "simulated":
        console.print(Text("SIMULATED — no GPU, no real daemon", style="bold reverse"))
    for daemon in snapshot.daemons:
        console.print(Text(_headline(daemon), style="bold"))
        if daemon.health != "ok" or daemon.unread:
            console.print(Text(f"  {daemon.health_detail or UNKNOWN}"))
            if daemon.remedy:
                console.print(Text(f"  → {daemon.remedy}"))
    if snapshot.devices:
        _print_table(console, list(_device_rows(snapshot)))
    elif snapshot.nvml_detail:
        console.print(Text(snapshot.nvml_detail))
    for daemon in snapshot.daemons:
        if daemon.health in {"ok", "held", "blocked"}:
            _print_table(console, list(_limit_rows(daemon)))
        if daemon.servers:
            _print_table(console, list(_client_rows(daemon, snapshot)))
    for problem in snapshot.problems:
        console.print(Text(f"{problem.severity}: {problem.text}  → {problem.remedy}"))


def _headline(daemon: Daemon) -> str:
    parts = [path_text(daemon.pipe_dir), daemon.state_word]
    if daemon.pid:
        parts.append(f"daemon {daemon.pid} of {daemon.user or UNKNOWN}")
        if daemon.servers_known:
            servers, clients = len(daemon.servers), sum(1 for _ in daemon.clients())
            parts.append(
                f"{servers} server{'' if servers == 1 else 's'}, {clients} client{'' if clients == 1 else 's'}"
            )
        else:
            parts.append("servers and clients not known")
    return " · ".join(parts)


def _print_table(console: Console, rows: Sequence[Sequence[str]]) -> None:
    """Aligned columns under their headings. No number is cut; on a terminal the last column is, at the edge."""
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    widths = [max(cell_len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        line = "  ".join(set_cell_size(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()
        console.print(Text(line, style="dim" if number == 0 else ""), no_wrap=True, overflow="ellipsis", crop=False)


def _device_rows(snapshot: Snapshot) -> Iterator[tuple[str, ...]]:
    yield "GPU", "NAME", "SM", "CONTEXTS", "MEMORY", "SM UTIL", "OCCUPANCY", "DRAM", "POWER", "TEMP", "MODE"
    for d in snapshot.devices:
        number = [
            UNKNOWN if v is None else f"{v:.0f} %" for v in (d.sm_utilization, d.sm_occupancy, d.dram_utilization)
        ]
        yield (
            UNKNOWN if d.index is None else str(d.index),
            d.name or d.uuid,
            UNKNOWN if d.sm_count is None else str(d.sm_count),
            f"{UNKNOWN if d.contexts is None else d.contexts}/{d.context_limit or UNKNOWN}",
            f"{format_size(d.memory_used)} / {format_size(d.memory_total)}",
            *number,
            UNKNOWN if d.power_watts is None else f"{d.power_watts:.0f} W",
            UNKNOWN if d.temperature is None else f"{d.temperature:.0f} °C",
            d.compute_mode or UNKNOWN,
        )


def _limit_rows(daemon: Daemon) -> Iterator[tuple[str, ...]]:
    yield "LIMITS", "STATUS", "THREADS", "MEMORY", "PRIORITY", "CLIENTS"
    priority = daemon.default_client_priority
    yield (
        "default",
        "",
        format_percentage(daemon.default_active_thread_percentage),
        _memory(daemon.default_pinned_mem_limits, daemon.default_active_thread_percentage is not None, daemon),
        UNKNOWN if priority is None else PRIORITIES.get(priority, str(priority)),
        "",
    )
    for server in daemon.servers:
        yield (
            f"server {server.pid} {server.user or UNKNOWN}",
            server.status or UNKNOWN,
            format_percentage(server.active_thread_percentage),
            _memory(server.pinned_mem_limits, server.active_thread_percentage is not None, daemon),
            "",
            str(len(server.clients)),
        )


def _memory(limits: Mapping[str, int], known: bool, daemon: Daemon) -> str:
    """No limit is only "none" where the limits have been read and the daemon's environment sets none."""
    lowered = lower_sizes(limits, daemon.inherited_mem_limits)
    told = {o: "" if limits.get(o) == size else " (from the daemon's environment)" for o, size in lowered.items()}
    shown = "  ".join(f"{ordinal}: {format_size(size)}{told[ordinal]}" for ordinal, size in by_device(lowered))
    return shown or ("none" if known else UNKNOWN)


_SHORT_UUID = len("GPU-130f1685")
"""As much of a UUID as ``ps`` and people use; logs alone tell no index."""


def _client_rows(daemon: Daemon, snapshot: Snapshot) -> Iterator[tuple[str, ...]]:
    yield "PID", "USER", "SERVER", "GPU", "STATE", "GPU MEM", "THREADS", "AGE", "COMMAND"
    lost = {key for server in daemon.servers if server.fault for key in server.fault.affected}
    index = {d.uuid: str(d.index) for d in snapshot.devices if d.index is not None}
    for client in daemon.clients():
        share = (
            UNKNOWN if client.sm_count is None else f"{'≈' if client.sm_count_estimated else ''}{client.sm_count} SM"
        )
        known = client.active_thread_percentage is not None
        age = None if client.start_time is None else snapshot.time - client.start_time
        yield (
            str(client.pid),
            client.user or UNKNOWN,
            str(client.server_pid or UNKNOWN),
            ",".join(sorted(index.get(uuid, uuid[:_SHORT_UUID]) for uuid in client.device_uuids)) or UNKNOWN,
            ("LOST" if client.key in lost else client.state) + (" ⟳" if client.outdated_limits else ""),
            format_size(sum(client.gpu_memory.values()) if client.gpu_memory else None),
            f"{format_percentage(client.active_thread_percentage)}  {share}" if known else UNKNOWN,
            format_age(age),
            client.command or UNKNOWN,
        )
