"""All that is known of a client, a server, a device, a daemon or an event, as rows. Pure: a snapshot in, rows out."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence

from mpstui.core.cells import no_readings, with_indices
from mpstui.core.model import Client, Daemon, Device, Event, ProcessKey, Server, Snapshot
from mpstui.core.text import UNKNOWN, by_device, format_age, format_percentage, format_size, path_text
from mpstui.ui.dialogs.parts import Heading, Row

Rows = list[Row | Heading]
LAST_EVENTS = 8
PRIORITY = {0: "normal (0)", 1: "below normal (1)"}
HEALTH_STYLE = {"ok": "$text-success", "held": "$text-warning", "stale": "$text-warning"}


def rows_of(
    snapshot: Snapshot, kind: str, identity: Hashable, environment: Mapping[str, str] | None = None
) -> tuple[str, Rows] | None:
    """Title and rows of one thing; None where it is not in the snapshot.

    ``kind`` and ``identity``: ``client`` and ``server`` by ProcessKey, ``device`` by UUID, ``daemon`` by pipe
    directory, ``limit`` by server PID or None for the defaults, ``event`` by itself or by (time, kind, pid, server PID,
    context id, raw line). ``environment``: a client's own CUDA_* variables, None where they are not known.
    """
    for daemon in snapshot.daemons:
        if kind == "client" and isinstance(identity, ProcessKey) and (client := daemon.find_client(identity)):
            return f"Client {client.pid}", _client(snapshot, daemon, client, environment)
        if kind == "server" and (server := next((s for s in daemon.servers if s.key == identity), None)):
            return f"Server {server.pid}", _server(snapshot, daemon, server)
        if kind == "limit" and isinstance(identity, int) and (server := daemon.find_server(identity)):
            return f"Server {server.pid}", _server(snapshot, daemon, server)
        if kind == "daemon" and daemon.pipe_dir == identity:
            return "Control daemon", _daemon(snapshot, daemon)
    if kind == "device" and (device := snapshot.device(str(identity))):
        return f"Device {_known(device.index)}", _device(snapshot, device)
    if kind == "limit" and identity is None and snapshot.daemons:
        rows: Rows = []
        for daemon in snapshot.daemons:
            rows += [Heading(path_text(daemon.pipe_dir)), *_defaults(snapshot, daemon)]
        return "Default limits", rows
    if isinstance(identity, Event):
        return "Event", _event(snapshot, identity)
    if kind == "event":
        found = next((e for e in reversed(snapshot.events) if e.key == identity), None)
        return ("Event", _event(snapshot, found)) if found else None
    return None


def _known(value: object) -> str:
    return UNKNOWN if value is None or value == "" else str(value)


def _yes(value: bool | None) -> str:
    return UNKNOWN if value is None else "yes" if value else "no"


def _number(value: float | None, unit: str) -> str:
    return UNKNOWN if value is None else f"{value:.0f} {unit}"


def _when(moment: float | None, now: float | None = None) -> str:
    if moment is None:
        return UNKNOWN
    text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))
    return text if now is None else f"{text}  ({format_age(now - moment)} ago)"


def _user(user: str | None, uid: int | None) -> str:
    if user is None:
        return UNKNOWN if uid is None else f"UID {uid}"
    return user if uid is None else f"{user} (UID {uid})"


def _pid(key: ProcessKey | None) -> str:
    return UNKNOWN if key is None else str(key.pid)


def _priority(value: int | None) -> str:
    return UNKNOWN if value is None else PRIORITY.get(value, str(value))


def _gpu(snapshot: Snapshot, uuid: str | None) -> str:
    device = snapshot.device(uuid) if uuid else None
    if device is None:
        return uuid or UNKNOWN
    return f"GPU {_known(device.index)} {device.name or ''}".rstrip()


def _limit_rows(
    snapshot: Snapshot, daemon: Daemon, limits: Mapping[str, int], used: Mapping[str, int] | None, none: str = "none"
) -> Rows:
    """Memory for each device: what is used of what may be."""
    ordinals = {uuid: ordinal for ordinal, uuid in daemon.ordinals.items()}
    rows: Rows = []
    for uuid in dict.fromkeys([*(used or ()), *(daemon.ordinals[o] for o in limits if o in daemon.ordinals)]):
        limit = limits.get(ordinals.get(uuid, ""))
        text = none if limit is None else format_size(limit)
        shown = text if used is None else f"{format_size(used.get(uuid))} of {text}"
        full = used is not None and limit is not None and used.get(uuid, 0) > 0.9 * limit
        rows.append(
            Row(_gpu(snapshot, uuid), f"{shown}{'  ▲ nearly full' if full else ''}", "$text-warning" if full else "")
        )
    rows += [Row(f"device {o}", format_size(size)) for o, size in limits.items() if o not in daemon.ordinals]
    return rows or [Row("memory", "none known")]


def _client(snapshot: Snapshot, daemon: Daemon, client: Client, environment: Mapping[str, str] | None) -> Rows:
    from mpstui.ui.dialogs.chains import chain_rows  # imported when a client's details are opened

    source = client.limit_source
    sms = "" if client.sm_count is None else f"  {'≈ ' if client.sm_count_estimated else ''}{client.sm_count} SM"
    by = source.get("active_thread_percentage")
    unlimited = "none" if client.memory_limit_known else UNKNOWN
    outdated = "connected before the server's present limits were set, and keeps the old ones"
    rows: Rows = [
        Heading("Process"),
        Row("command", _known(client.command), "bold"),
        Row("PID", _pid(client.key)),
        Row("user", _user(client.user, client.uid)),
        Row("started", _when(client.start_time, snapshot.time)),
        Row("container", _known(client.container)),
        Row("PID namespace", _known(client.pid_namespace)),
        Row("CPU", _number(client.cpu_percent, "%")),
        Row(),
        Heading("MPS"),
        Row("state", client.state, "$text-warning" if client.state == "TERMINATED" else ""),
        Row("server", _known(client.server_pid)),
        Row("number in ps", _known(client.id)),
        Row("threads", f"{format_percentage(client.active_thread_percentage)}{sms}{f'  set by {by}' if by else ''}"),
        Row("priority", _priority(client.client_priority)),
        Row("memory limit", f"set by {source['pinned_mem_limits']}" if "pinned_mem_limits" in source else unlimited),
    ]
    if client.outdated_limits:
        rows.append(Row("outdated", f"⟳ {outdated}", "$text-warning"))
    if client.terminate_requested:
        rows.append(Row("terminate", "✕ asked for; a second one would block the daemon", "$text-error"))
    rows += [Row(), Heading("GPU memory, used of the limit")]
    rows += _limit_rows(snapshot, daemon, client.pinned_mem_limits, client.gpu_memory, unlimited)
    rows += chain_rows(snapshot, daemon, client, environment)
    rows += [Row(), Heading(f"Contexts: {len(client.contexts)}")]
    rows += [Row(str(context.id), _gpu(snapshot, context.device_uuid)) for context in client.contexts]
    return rows + _last_events(snapshot, [e for e in snapshot.events if e.pid == client.pid])


def _server(snapshot: Snapshot, daemon: Daemon, server: Server) -> Rows:
    outdated = sum(client.outdated_limits for client in server.clients)
    rows: Rows = [
        Heading("Server"),
        Row("PID", _pid(server.key)),
        Row("user", _user(server.user, server.uid)),
        Row("status", _known(server.status), "bold" if server.status == "ACTIVE" else "$text-error bold"),
        Row("started", _when(server.start_time, snapshot.time)),
        Row("clients", f"{len(server.clients)}{f'  ⟳ {outdated} keep older limits' if outdated else ''}"),
        Row("contexts", str(sum(len(client.contexts) for client in server.clients))),
        Row("daemon", path_text(daemon.pipe_dir)),
        Row(),
        Heading("Limits of new clients"),
        Row("threads", format_percentage(server.active_thread_percentage)),
        *_limit_rows(snapshot, daemon, server.pinned_mem_limits, None),
        *_inherited(snapshot, daemon),
    ]
    return rows + _last_events(snapshot, [e for e in snapshot.events if e.server_pid == server.pid])


def _device(snapshot: Snapshot, device: Device) -> Rows:
    cc = device.compute_capability
    contexts = f"{_known(device.contexts)} of {_known(device.context_limit)}"
    ordinals = [(o, d.pipe_dir) for d in snapshot.daemons for o, uuid in d.ordinals.items() if uuid == device.uuid]
    here = [c for d in snapshot.daemons for c in d.clients() if device.uuid in c.device_uuids]
    return [
        Heading("Device"),
        Row("name", _known(device.name), "bold"),
        Row("UUID", device.uuid),
        Row("NVML index", _known(device.index)),
        *(Row("daemon's ordinal", f"{ordinal} at {path_text(pipe_dir)}") for ordinal, pipe_dir in ordinals),
        Row("compute capability", f"{cc[0]}.{cc[1]}" if cc else UNKNOWN),
        Row("SMs", _known(device.sm_count)),
        Row("compute mode", _known(device.compute_mode)),
        Row("MIG", _yes(device.mig)),
        Row(),
        Heading("Now"),
        Row("contexts", contexts),
        Row("clients", str(len(here))),
        Row("memory", f"{format_size(device.memory_used)} of {format_size(device.memory_total)}"),
        Row("SM utilisation", _number(device.sm_utilization, "%")),
        Row("SM occupancy", _number(device.sm_occupancy, "%")),
        Row("DRAM bandwidth", _number(device.dram_utilization, "%")),
        Row("GPU utilisation", _number(device.gpu_utilization, "%")),
        Row("power", _number(device.power_watts, "W")),
        Row("temperature", _number(device.temperature, "°C")),
        *([Row("no readings", no_readings(snapshot.nvml_detail))] if snapshot.nvml_detail else []),
    ]


def _daemon(snapshot: Snapshot, daemon: Daemon) -> Rows:
    holder = daemon.holder
    held = UNKNOWN if holder is None else f"{holder.pid}, {_known(holder.user)}, {_known(holder.terminal)}"
    if holder is not None and not holder.certain:
        held += "  (likely)"
    health = HEALTH_STYLE.get(daemon.health, "$text-error")
    rows: Rows = [
        Heading("Simulated" if daemon.simulated else "Daemon"),
        Row(
            "health", f"{daemon.health}{f': {daemon.health_detail}' if daemon.health_detail else ''}", f"{health} bold"
        ),
    ]
    if daemon.remedy:
        rows.append(Row("remedy", daemon.remedy, "$text-warning"))
    rows += [
        Row("session held by", held),
        Row("pipe directory", path_text(daemon.pipe_dir)),
        Row("log directory", _known(daemon.log_dir)),
        Row("PID", _pid(daemon.key)),
        Row("user", _user(daemon.user, daemon.uid)),
        Row("started", _when(daemon.start_time, snapshot.time)),
        Row("version", _known(daemon.version)),
        Row("protocol", _known(daemon.protocol)),
        Row("static partitions", _yes(daemon.static_partitioning)),
        Row("several users", _yes(daemon.multiuser)),
        Row("watched by", f"{daemon.watch}{f': {daemon.watch_detail}' if daemon.watch_detail else ''}"),
        Row("servers", ", ".join(str(server.pid) for server in daemon.servers) or "none"),
        Row("clients", str(sum(1 for _ in daemon.clients()))),
        Row(),
        Heading("Defaults for new servers"),
        *_defaults(snapshot, daemon),
        Row(),
        Heading("Devices, by the daemon's ordinal"),
    ]
    rows += [Row(o, f"{_gpu(snapshot, uuid)}  {uuid}") for o, uuid in daemon.ordinals.items()] or [
        Row("", "none known")
    ]
    mine = [e for e in snapshot.events if e.pipe_dir == daemon.pipe_dir]
    return rows + _last_events(snapshot, mine)


def _defaults(snapshot: Snapshot, daemon: Daemon) -> Rows:
    return [
        Row("threads", format_percentage(daemon.default_active_thread_percentage)),
        Row("priority", _priority(daemon.default_client_priority)),
        *_limit_rows(snapshot, daemon, daemon.default_pinned_mem_limits, None),
        *_inherited(snapshot, daemon),
    ]


def _inherited(snapshot: Snapshot, daemon: Daemon) -> Rows:
    """Limits that no command reads back."""
    return [
        Row("", f"{format_size(size)} on {_gpu(snapshot, daemon.ordinals.get(ordinal))}, from the daemon's environment")
        for ordinal, size in by_device(daemon.inherited_mem_limits)
    ]


def _event(snapshot: Snapshot, event: Event) -> Rows:
    return [
        Row("time", _when(event.time, snapshot.time)),
        Row("kind", event.kind.replace("_", " "), "bold"),
        Row("what", _known(with_indices(event.detail, _indices(snapshot)))),
        Row("daemon", _known(event.pipe_dir)),
        Row("server", _known(event.server_pid)),
        Row("client", _known(event.pid)),
        Row("user", _known(event.user if event.user is not None else event.uid)),
        Row("command", _known(event.command)),
        Row("context", _known(event.context_id)),
        Row("devices", ", ".join(_gpu(snapshot, uuid) for uuid in event.devices) or UNKNOWN),
        *(Row(name, value or UNKNOWN) for name, value in event.values.items()),
        *_suspects(event),
        Row(),
        Heading("The line of the log"),
        Row("", _known(event.raw)),
    ]


def _suspects(event: Event) -> Rows:
    """Who may have made a fault; what the log names is no proof (fact 36)."""
    if not event.suspects:
        return []
    rows: Rows = [Row(), Heading("Suspects: each client with a context on these GPUs then")]
    for suspect in event.suspects:
        who = suspect.user or (UNKNOWN if suspect.uid is None else f"UID {suspect.uid}")
        named = "  ◀ named by server.log, not proof" if suspect.pid in event.named else ""
        rows.append(Row(str(suspect.pid), f"{who}  {suspect.command or UNKNOWN}{named}"))
    return [*rows, Row("", "The screen Suspects tells which of them were at the other faults too.")]


def _indices(snapshot: Snapshot) -> Mapping[str, int | None]:
    return {device.uuid: device.index for device in snapshot.devices}


def _named(snapshot: Snapshot, event: Event) -> str:
    return with_indices(event.detail or event.raw, _indices(snapshot))


def _last_events(snapshot: Snapshot, events: Sequence[Event]) -> Rows:
    rows: Rows = [Row(), Heading("Last events")]
    for event in events[-LAST_EVENTS:]:
        clock = UNKNOWN if event.time is None else time.strftime("%H:%M:%S", time.localtime(event.time))
        rows.append(Row(clock, f"{event.kind.replace('_', ' ')}  {_named(snapshot, event)}"))
    return rows if len(rows) > 2 else [*rows, Row("", "none seen")]
