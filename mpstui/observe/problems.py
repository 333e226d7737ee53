"""What an admin should know now, and what to do about it; pure."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final

from mpstui.core.blast import bridges
from mpstui.core.faults import NOT_SAID, caveat_text
from mpstui.core.model import Client, Daemon, Device, OutsideClient, PendingClient, Problem, Server, Severity
from mpstui.core.text import client_pids, path_text, printable
from mpstui.core.trust import is_lying
from mpstui.observe.limits import (
    MEMORY_VARIABLE,
    PERCENTAGE_VARIABLE,
    PRIORITY_VARIABLE,
    inherited_memory,
    own_percentage,
    own_priority,
)
from mpstui.observe.logline import ELSEWHERE
from mpstui.observe.overlap import shared_devices

_NEARLY = 0.9
_SEVERITY: dict[str, Severity] = {"held": "error", "blocked": "error", "stale": "warning", "absent": "warning"}


def find_problems(
    daemons: Sequence[Daemon],
    devices: Sequence[Device],
    nvml_detail: str | None,
    outside: Sequence[OutsideClient] = (),
) -> tuple[Problem, ...]:
    """All problems, the worst first."""
    found: list[Problem] = []
    for daemon in daemons:
        found += _of_daemon(daemon)
    found += _of_devices(devices)
    found += _of_outside(outside)
    found += shared_devices(daemons)
    if nvml_detail:
        remedy = "Install the NVIDIA driver's libnvidia-ml, or run mpstui where the GPUs are visible."
        found.append(Problem("warning", "nvml", "NVML", nvml_detail[0].upper() + nvml_detail[1:], remedy))
    order = {"error": 0, "warning": 1, "info": 2}
    return tuple(sorted(found, key=lambda problem: order[problem.severity]))


def _of_daemon(daemon: Daemon) -> Iterable[Problem]:
    subject = path_text(daemon.pipe_dir)
    if daemon.health != "ok":
        yield Problem(
            _SEVERITY[daemon.health],
            f"daemon_{daemon.health}",
            subject,
            daemon.health_detail or daemon.health,
            daemon.remedy or "",
        )
    elif daemon.unspoken is not None:
        text = daemon.unspoken[0].upper() + daemon.unspoken[1:] + "."
        yield Problem("warning", "daemon_read_only", subject, text, daemon.remedy or "")
    elif daemon.unread:
        yield Problem("warning", "daemon_unread", subject, daemon.health_detail or "", daemon.remedy or "")
    if daemon.watch == "polling":
        remedy = daemon.watch_remedy or (
            "Let this user read control.log and server.log, or name their directory with --log-dir."
        )
        yield Problem("info", "polling", subject, daemon.watch_detail or "The daemon is asked again and again.", remedy)
    yield from _of_environment(daemon)
    yield from _of_start(daemon)
    yield from _of_pending(daemon)
    if daemon.lost:
        who = client_pids([client.pid for client in daemon.lost]).capitalize()
        text = f"{who} lost the server; each CUDA call of theirs gives error 806."
        yield Problem("warning", "lost", subject, text, "Let their owners end them and start them again.")
    yield from _of_lies(daemon)
    for server in daemon.servers:
        yield from _of_server(server, daemon)


def _of_lies(daemon: Daemon) -> Iterable[Problem]:
    """What cannot be: a user's daemon has that user's processes as clients alone."""
    claimed: list[tuple[str, Server | Client]] = []
    claimed += [("client", client) for client in daemon.clients() if client.local]
    claimed += [("server", server) for server in daemon.servers if server.user is not None]
    false = [(what, of) for what, of in claimed if is_lying(daemon.speaker, of.uid, daemon.multiuser)]
    if false and not daemon.simulated:
        what, first = false[0]
        whose = f"process {first.pid} of {first.user or first.uid}"
        more = f" and {len(false) - 1} more of others" if len(false) > 1 else ""
        text = f"{daemon.speaker.why[0].upper()}{daemon.speaker.why[1:]} names {whose}{more} as its {what}."
        text += " It can have a server and clients of its own user alone, so that is not true."
        remedy = "Believe nothing of what it says. mpstui ends no process of another user on its word."
        yield Problem("warning", "daemon_lies", path_text(daemon.pipe_dir), text, remedy)


def _of_environment(daemon: Daemon) -> Iterable[Problem]:
    """Variables of the daemon that do not do what they were meant to."""
    wrong = []
    environment = daemon.environment or {}
    if (text := environment.get(PERCENTAGE_VARIABLE)) and own_percentage(text) is None:
        wrong.append(f"{PERCENTAGE_VARIABLE}={printable(text, 60)}: a number above 0 and at most 100 is needed")
    if (text := environment.get(PRIORITY_VARIABLE)) and own_priority(text) is None:
        wrong.append(f"{PRIORITY_VARIABLE}={printable(text, 60)}: 0 or 1 is needed")
    if (text := environment.get(MEMORY_VARIABLE)) and inherited_memory(environment, daemon.ordinals) == {}:
        reason = "an entry names no device of the daemon, which drops the others"
        wrong.append(f"{MEMORY_VARIABLE}={printable(text, 60)}: {reason}")
    for text in wrong:
        yield Problem(
            "warning",
            "daemon_environment",
            path_text(daemon.pipe_dir),
            f"The daemon's environment sets no limit with {text}. The default holds.",
            "Correct the variable where the daemon is started, or set the limit with mpstui set.",
        )


def _of_start(daemon: Daemon) -> Iterable[Problem]:
    """Servers that end before they are ready: nobody is served, though the daemon is well."""
    found = daemon.start_failures
    if found is None:
        return
    last = f"at {_clock(found.last)}" if found.last is not None else "at a time that is not known"
    which = f" (server {found.server_pid})" if found.server_pid is not None else ""
    if found.count > 1:
        since = f" since {_clock(found.since)}" if found.since is not None else ""
        text = f"No server starts: {found.count} ended before they were ready{since}, the last one {last}{which}."
    else:
        text = f"A server ended before it was ready, {last}{which}."
    text += f" Its reason: “{found.reason}”." if found.reason else " server.log gives no reason."
    yield Problem(
        "error", "server_start", path_text(daemon.pipe_dir), text, _START_REMEDY.get(found.reason or "", _LIKELY)
    )


_LIKELY: Final = (
    "Likely causes: no GPU or no driver where the daemon runs (try nvidia-smi there), nvidia-cuda-mps-server is "
    "missing, the driver's libraries and its kernel module differ, or a container without /dev/shm or the GPUs."
)
_START_REMEDY: Final = {
    "operation not supported": (
        "Likely cause: a sandbox that does not let an MPS server run, such as gVisor. Run the daemon outside of it."
    ),
}


def _clock(when: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))
    except (OverflowError, ValueError, OSError):
        return "a time beyond the calendar"


def _of_pending(daemon: Daemon) -> Iterable[Problem]:
    """One for all that wait for the same server: it is one stoppage, however many stand in it."""
    waiting: dict[int | None, list[PendingClient]] = {}
    for pending in daemon.pending:
        waiting.setdefault(pending.server_pid, []).append(pending)
    for server, group in waiting.items():
        users = ", ".join(dict.fromkeys(p.user or f"UID {p.uid}" for p in group))
        many = len(group) > 1
        who = f"{_waiting(group)} ({users})"
        they = "they get" if many else "it gets"
        subject = path_text(daemon.pipe_dir) if many or group[0].pid is None else f"client {group[0].pid}"
        unseen = " Whether it still waits cannot be seen from here." if group[-1].pid is None else ""
        if server is None:
            text = f"{who} wait{'' if many else 's'} for a server.{unseen}"
            remedy = f"{they.capitalize()} one when the server that is being started is ready."
            if daemon.start_failures is not None:
                remedy = f"No server starts, which is a problem of its own: until that is mended {they} error 805."
            yield Problem("info", "pending", subject, text, remedy)
            continue
        remedy = (
            f"{they.capitalize()} one when the present server has no clients left, "
            "or the daemon runs with -multiuser-server."
        )
        ahead = client_pids(group[0].waits_for) if group[0].waits_for else "its last client"
        text = f"{who} wait{'' if many else 's'} for server {server} to end, which waits for {ahead}.{unseen}"
        yield Problem("warning", "pending", subject, text, remedy)


def _waiting(group: Sequence[PendingClient]) -> str:
    """``Clients 11, 12 and a client in another PID namespace``."""
    pids = [p.pid for p in group if p.pid is not None]
    unseen = len(group) - len(pids)
    parts = [client_pids(pids)] if pids else []
    if unseen:
        parts.append(ELSEWHERE if unseen == 1 else f"{unseen} clients in other PID namespaces")
    text = " and ".join(parts)
    return text[0].upper() + text[1:]


def _of_outside(outside: Sequence[OutsideClient]) -> Iterable[Problem]:
    for process in outside:
        text = f"Process {process.pid} of {process.user or process.uid} computes without MPS: {process.detail}."
        remedy = "Start it again with the daemon's CUDA_MPS_PIPE_DIRECTORY; it takes turns with the clients until then."
        yield Problem("warning", "outside", f"process {process.pid}", text, remedy)


def _of_server(server: Server, daemon: Daemon) -> Iterable[Problem]:
    subject = f"server {server.pid}"
    if server.status == "FAULT":
        fault = server.fault
        text = "A fatal GPU fault"
        text += "; new clients are refused until the last client hit has ended."
        if fault:
            text = (
                f"{text[:-1]}; server.log names {f'{client_pids(fault.named)}, no proof' if fault.named else 'nobody'}."
            )
        if fault and fault.ended_nearby:
            text += " " + caveat_text(fault)
        hit = [key.pid for key in fault.affected if daemon.covers(daemon.find_client(key))] if fault else []
        whom = " " + ", ".join(map(str, hit)) if hit else ""
        remedy = f"End the clients hit by it{whom}: their work is lost already."
        if fault and not fault.confirmed:
            text = f"server.log tells of a{text[1:]} {NOT_SAID[0].upper()}{NOT_SAID[1:]}."
            remedy = "End nobody for it before the daemon itself says FAULT: it is asked when its log tells of one."
        yield Problem("error" if not fault or fault.confirmed else "warning", "fault", subject, text, remedy)
    for client in bridges(server):
        text = f"Client {client.pid} joins clients on {len(client.device_uuids)} devices that are separate without it."
        remedy = "A fault on either side takes both. Keep it to one device, or the others off its devices."
        yield Problem("info", "bridge", f"client {client.pid}", text, remedy)
    for client in server.clients:
        if client.state == "TERMINATED":
            yield Problem(
                "warning",
                "terminated",
                f"client {client.pid}",
                f"Client {client.pid} was terminated and its process lives.",
                f"End {'process' if daemon.covers(client) else 'client'} {client.pid}. Never terminate it again: "
                "that blocks the daemon.",
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
