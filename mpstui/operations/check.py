"""Checks and previews, pure: from a request and a snapshot, what it would do or why it must not be done."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal

from mpstui.core.blast import blast_radius, server_of
from mpstui.core.model import Client, Daemon, Device, Server, Snapshot
from mpstui.core.partition import sm_share
from mpstui.core.text import UNKNOWN, format_percentage, format_size, parse_size, path_text
from mpstui.core.trust import ANOTHER_NAMESPACE, NOT_PROVED, is_lying, why_not
from mpstui.operations.registry import action
from mpstui.operations.types import ExitStatus, Others, Preview, Request

_PERCENTAGE = re.compile(r"[0-9]{1,3}(\.[0-9]{1,6})?")
_MEMORY = re.compile(r"[0-9]{1,9}[MG]")
_SMALL_LIMIT = 1 << 30
"""A context alone took 518 MiB on an H100 (fact 9) and counts against the limit (fact 25)."""
PRIORITIES = {0: "normal", 1: "below normal"}


class Refused(Exception):
    """Why a request cannot be done as asked, and the exit status that says so."""

    def __init__(self, message: str, status: ExitStatus) -> None:
        super().__init__(message)
        self.status = status


def parse_percentage(text: str) -> float:
    """A percentage as MPS takes it: more than 0, at most 100. The daemon ignores others in silence (fact 5)."""
    text = text.strip().removesuffix("%").strip()
    if not _PERCENTAGE.fullmatch(text) or not 0 < Decimal(text) <= 100:
        raise Refused(
            f"{text or 'nothing'!r} is no percentage: a number above 0 and at most 100 is needed", ExitStatus.USAGE
        )
    return float(text)


def parse_memory(text: str) -> int | None:
    """Bytes of a limit as MPS takes it, ``900M`` or ``10G``; None for ``none``.

    The daemon makes another limit, or none, of every other form, in silence (fact 26).
    """
    text = text.strip()
    if text.upper() == "NONE":
        return None
    size = parse_size(text.upper()) if _MEMORY.fullmatch(text.upper()) else None
    if size is None:
        raise Refused(
            f"{text or 'nothing'!r} is no memory limit: "
            "a whole number above 0 with M or G is needed, as 900M or 10G; or none",
            ExitStatus.USAGE,
        )
    return size


def memory_text(size: int | None) -> str:
    """What is sent for a limit: ``0`` takes it away (fact 26)."""
    return "0" if size is None else f"{size >> 30}G" if size % (1 << 30) == 0 else f"{size >> 20}M"


def parse_priority(text: str) -> int:
    """0 normal or 1 below normal; the words are taken too."""
    words = {"normal": 0, "below normal": 1, "below_normal": 1, "below-normal": 1, "low": 1}
    text = text.strip().lower()
    if text not in words and text not in {"0", "1"}:
        raise Refused(
            f"{text or 'nothing'!r} is no priority: 0 (normal) or 1 (below normal) is needed", ExitStatus.USAGE
        )
    return words.get(text, int(text) if text.isdecimal() else 0)


def parse_uid(text: str) -> int:
    """A user name or number to a UID."""
    text = text.strip()
    if text.isdecimal() and text.isascii() and int(text) < 1 << 32:
        return int(text)
    try:
        return pwd.getpwnam(text).pw_uid
    except (KeyError, ValueError):
        raise Refused(f"there is no user {text!r} on this node", ExitStatus.USAGE) from None


def device_ordinal(daemon: Daemon, device: str | None) -> str:
    """The daemon's ordinal of a device given by ordinal or UUID; MPS itself would accept an unknown one (fact 5)."""
    known = ", ".join(f"{ordinal} ({uuid})" for ordinal, uuid in daemon.ordinals.items()) or "none known"
    if device is None or not device.strip():
        raise Refused(f"a device is needed: {known}", ExitStatus.USAGE)
    device = device.strip()
    if device in daemon.ordinals:
        return device
    for ordinal, uuid in daemon.ordinals.items():
        if uuid == device:
            return ordinal
    raise Refused(f"the daemon has no device {device!r}; it has: {known}", ExitStatus.USAGE)


def client_line(client: Client) -> str:
    """``4711 alice python train.py``: how confirmations name a client."""
    return f"{client.pid} {client.user or UNKNOWN} {client.command or UNKNOWN}"


def find_server(daemon: Daemon, pid: int) -> Server:
    """The daemon's server of that PID."""
    server = daemon.find_server(pid)
    if server is None:
        present = ", ".join(str(s.pid) for s in daemon.servers) or "none"
        raise Refused(f"no server {pid} there; running: {present}", ExitStatus.REFUSED_BY_DAEMON)
    return server


def reachable_daemon(request: Request, snapshot: Snapshot) -> Daemon:
    """The daemon of the request, provided that it answers and that this user may change it (facts 2, 3, 16, 21)."""
    daemon = snapshot.daemon(request.pipe_dir)
    if daemon is None or daemon.health in {"absent", "stale"}:
        detail = daemon.health_detail if daemon else None
        raise Refused(
            f"no daemon at {path_text(request.pipe_dir)}" + (f": {detail}" if detail else ""), ExitStatus.NO_DAEMON
        )
    if daemon.health in {"held", "blocked"}:
        raise Refused(f"the daemon is {daemon.health}: {daemon.health_detail or UNKNOWN}", ExitStatus.NO_ANSWER)
    if daemon.unspoken is not None:
        raise Refused(daemon.unspoken, ExitStatus.REFUSED_BY_SAFETY_RULE)
    if daemon.uid is not None and os.geteuid() not in {0, daemon.uid}:
        raise Refused(
            f"the daemon belongs to {daemon.user or daemon.uid}; only that user and root may change it",
            ExitStatus.NOT_PERMITTED,
        )
    return daemon


def preview(request: Request, snapshot: Snapshot) -> Preview:
    """What ``request`` would do to the node as it is in ``snapshot``; never asks the daemon, never raises."""
    title = action(request.action).title
    try:
        daemon = reachable_daemon(request, snapshot)
    except Refused as refused:
        refused = wrong_value(request) or refused
        return Preview(title, error=str(refused), error_status=refused.status)
    try:
        if request.action == "set_active_thread_percentage":
            return _percentage(request, snapshot, daemon)
        if request.action == "set_pinned_mem_limit":
            return _memory(request, snapshot, daemon)
        if request.action == "set_client_priority":
            return _priority(request, daemon)
        if request.action == "start_server":
            return _start_server(request, daemon)
        return _end_clients(request, daemon)
    except Refused as refused:
        return Preview(title, error=str(refused), error_status=refused.status)


def refusal(request: Request, snapshot: Snapshot) -> str | None:
    """Why clients cannot be ended now; None where they can. The same as ``preview`` says, at a tenth of its cost."""
    try:
        _chosen(request, reachable_daemon(request, snapshot))
    except Refused as refused:
        return str(refused)
    return None


def wrong_value(request: Request) -> Refused | None:
    """Why the value is wrong on whatever node; None where it may be right. To be said before anybody is asked."""
    try:
        if request.action == "set_active_thread_percentage":
            parse_percentage(request.value)
        elif request.action == "set_pinned_mem_limit":
            parse_memory(request.value)
        elif request.action == "set_client_priority":
            parse_priority(request.value)
        elif request.action == "start_server":
            parse_uid(request.value)
    except Refused as refused:
        return refused
    return None


def _share(value: float | None, devices: Iterable[Device]) -> str:
    """``25 %  32 SM``; where the devices differ, each one's SMs."""
    shares = [share for device in devices if (share := sm_share(value, device))]
    counts = dict.fromkeys(f"{'≈' if share.estimated else ''}{share.count} SM" for share in shares)
    return "  ".join([format_percentage(value), " / ".join(counts)]).rstrip()


def _devices(daemon: Daemon, snapshot: Snapshot) -> tuple[Device, ...]:
    return tuple(device for uuid in daemon.ordinals.values() if (device := snapshot.device(uuid)))


def _reached(daemon: Daemon, server: Server | None) -> tuple[tuple[str, str], tuple[str, ...]]:
    """Who gets a new limit, and the clients that keep the old one."""
    if server is not None:
        return ("applies to", f"clients that connect to server {server.pid} from now on"), tuple(
            client_line(c) for c in server.clients
        )
    return ("applies to", "servers that start from now on, and their clients"), tuple(
        client_line(c) for c in daemon.clients()
    )


def _percentage(request: Request, snapshot: Snapshot, daemon: Daemon) -> Preview:
    server = None if request.server_pid is None else find_server(daemon, request.server_pid)
    today = server.active_thread_percentage if server else daemon.default_active_thread_percentage
    devices = _devices(daemon, snapshot)
    reaches, not_reached = _reached(daemon, server)
    scope = f"server {server.pid}" if server else "default"
    title = f"Active thread percentage · {scope}"
    facts = [("today", _share(today, devices))]
    try:
        value = parse_percentage(request.value)
    except Refused as refused:
        return Preview(title, tuple(facts), not_reached, error=str(refused), error_status=refused.status)
    facts += [("new value", _share(value, devices)), reaches]
    warnings = []
    for device in devices:
        share = sm_share(value, device)
        if share and device.sm_count and share.count > device.sm_count * value / 100:
            warnings.append(
                f"{value:g} % of {device.name or device.uuid} is less than the smallest share, {share.count} SM"
            )
    return Preview(title, tuple(facts), not_reached, warnings=tuple(dict.fromkeys(warnings)))


def _memory(request: Request, snapshot: Snapshot, daemon: Daemon) -> Preview:
    server = None if request.server_pid is None else find_server(daemon, request.server_pid)
    reaches, not_reached = _reached(daemon, server)
    title = f"Pinned memory limit · {f'server {server.pid}' if server else 'default'}"
    facts: list[tuple[str, str]] = []
    try:
        ordinal = device_ordinal(daemon, request.device)
        limits = server.pinned_mem_limits if server else daemon.default_pinned_mem_limits
        facts.append(("today", limit_words(limits.get(ordinal), server or daemon)))
        size = parse_memory(request.value)
    except Refused as refused:
        return Preview(title, tuple(facts), not_reached, error=str(refused), error_status=refused.status)
    if size is None:
        facts += [("new value", f"none on device {ordinal}"), reaches]
        return Preview(title, tuple(facts), not_reached)
    device = snapshot.device(daemon.ordinals[ordinal])
    of = f" of {format_size(device.memory_total)}" if device and device.memory_total else ""
    facts += [("new value", f"{format_size(size)}{of} a client on device {ordinal}"), reaches]
    warnings = []
    if device and device.memory_total and size > device.memory_total:
        warnings.append(f"more than the device has: {format_size(device.memory_total)}")
    if size < _SMALL_LIMIT:
        warnings.append("a CUDA context counts against the limit, and one alone took 518 MiB on an H100")
    return Preview(title, tuple(facts), not_reached, warnings=tuple(warnings))


def limit_words(limit: int | None, of: Server | Daemon) -> str:
    """A memory limit; "none" only where the limits have been read."""
    percentage = of.active_thread_percentage if isinstance(of, Server) else of.default_active_thread_percentage
    return format_size(limit) if limit is not None or percentage is None else "none"


def _priority(request: Request, daemon: Daemon) -> Preview:
    today = daemon.default_client_priority
    facts = [("today", UNKNOWN if today is None else PRIORITIES.get(today, str(today)))]
    not_reached = tuple(client_line(c) for c in daemon.clients())
    title = "Client priority · default"
    try:
        value = parse_priority(request.value)
    except Refused as refused:
        return Preview(title, tuple(facts), not_reached, error=str(refused), error_status=refused.status)
    facts += [("new value", PRIORITIES[value]), ("applies to", "clients that connect from now on")]
    return Preview(title, tuple(facts), not_reached)


def _start_server(request: Request, daemon: Daemon) -> Preview:
    uid = parse_uid(request.value)
    facts = (("user", f"{request.value.strip()} (UID {uid})"), ("running", str(len(daemon.servers))))
    warnings: tuple[str, ...] = ()
    if same := next((s for s in daemon.servers if s.uid == uid), None):
        raise Refused(f"server {same.pid} of UID {uid} is running already", ExitStatus.REFUSED_BY_SAFETY_RULE)
    if daemon.servers:
        warnings = (
            "a server of another user waits until the present one has no clients, and its clients wait with it",
        )
    return Preview("Start a server", facts, warnings=warnings)


def _chosen(request: Request, daemon: Daemon) -> list[Client]:
    """The clients to end, provided that all of them may be; raises Refused."""
    if not request.clients:
        raise Refused("choose a client first", ExitStatus.USAGE)
    chosen: list[Client] = []
    for key in request.clients:
        client = daemon.find_client(key)
        if client is None:
            raise Refused(
                f"process {key.pid} is not, or no longer, a client of this daemon", ExitStatus.REFUSED_BY_SAFETY_RULE
            )
        chosen.append(client)
    asked = [c for c in chosen if c.terminate_requested or c.state == "TERMINATED"]
    if request.action == "terminate_and_kill":
        asked = [c for c in asked if c.state != "TERMINATED"]
    if request.action == "terminate_and_kill":
        for client in chosen:
            if not client.local:
                raise Refused(
                    f"client {client.pid} is {namespace_words(client)}: no process here is known to be it, so none is "
                    "signalled. Without the kill it can be terminated, by the daemon's own number",
                    ExitStatus.REFUSED_BY_SAFETY_RULE,
                )
    if any(client.pid <= 0 for client in chosen):
        raise Refused("client 0 has no number here, so the daemon cannot be told which one", ExitStatus.NOT_PERMITTED)
    if asked:
        pids = ", ".join(str(c.pid) for c in asked)
        raise Refused(
            f"terminate_client was already sent for {pids}; "
            "a second one would block the whole daemon until the process ends",
            ExitStatus.REFUSED_BY_SAFETY_RULE,
        )
    return chosen


def namespace_words(client: Client) -> str:
    """Why nothing here is taken for a client's process."""
    return NOT_PROVED if client.pid_namespace is None else ANOTHER_NAMESPACE


def owner_needed(request: Request, chosen: Sequence[Client], daemon: Daemon) -> tuple[str, str] | None:
    """What has to be typed before the process of a client is ended whom the daemon does not speak for, and why; None
    where nothing has. Raises Refused where several were chosen, and where another owner was typed."""
    others = [client for client in chosen if not daemon.covers(client)]
    if request.action != "terminate_and_kill" or not others:
        return None
    client = others[0]
    owner = client.user or (UNKNOWN if client.uid is None else str(client.uid))
    why = why_not(daemon.speaker, client.pid, owner)
    if is_lying(daemon.speaker, client.uid, daemon.multiuser):
        why += "; it cannot have clients of other users, so what it says of this one is not true"
    if len(chosen) > 1:
        raise Refused(f"{why}; choose it alone", ExitStatus.REFUSED_BY_SAFETY_RULE)
    if client.uid is None:
        raise Refused(f"{why}; whose it is cannot be seen from here", ExitStatus.NOT_PERMITTED)
    if request.owner and parse_uid(request.owner) != client.uid:
        raise Refused(
            f"process {client.pid} belongs to {owner}, not to {request.owner}", ExitStatus.REFUSED_BY_SAFETY_RULE
        )
    return f"{client.pid} {owner}", why


def owner_typed(shown: Preview, text: str) -> str:
    """The owner for ``Request.owner``, where the text is what this preview wants typed in; otherwise empty."""
    wanted = shown.type_in.split()
    return wanted[1] if len(wanted) == 2 and text.split() == wanted else ""


def _end_clients(request: Request, daemon: Daemon) -> Preview:
    kill = request.action == "terminate_and_kill"
    chosen = _chosen(request, daemon)
    needed = owner_needed(request, chosen, daemon)
    others = _others(chosen, daemon)
    endangered = sum(len(group.clients) for group in others)
    facts = (
        (
            "ends",
            f"the GPU work{' and the process' if kill else ''} of {len(chosen)} client{'s' if len(chosen) > 1 else ''}",
        ),
        *(
            (("others", "; ".join(f"{len(group.clients)} {_lowered(group.title)}" for group in others)),)
            if others
            else ()
        ),
    )
    warnings: tuple[str, ...] = ()
    if endangered and kill:
        warnings = (
            "the kill follows only after terminate_client has answered 0; "
            f"without it {endangered} other{'s' if endangered > 1 else ''} would be lost",
        )
    elif not kill:
        warnings = ("the client still counts as a client until its process ends",)
    if daemon.watch == "polling":
        warnings += (
            "the daemon's logs cannot be read: if somebody has terminated it before, this blocks the whole daemon "
            "until its process ends",
        )
    title = action(request.action).title
    hits = tuple(client_line(c) for c in chosen)
    if needed is None:
        return Preview(title, facts, (), hits, others, warnings)
    what, why = needed
    if request.owner:
        return Preview(title, facts, (), hits, others, (why, *warnings), type_in=what)
    error = f"{why}. To end it all the same, name its PID and its owner: {what}"
    return Preview(title, facts, (), hits, others, warnings, error, ExitStatus.REFUSED_BY_SAFETY_RULE, type_in=what)


def _others(chosen: Sequence[Client], daemon: Daemon) -> tuple[Others, ...]:
    """Who would be hit if one of ``chosen`` faulted or were killed while busy (facts 17, 18), by how it is reached."""
    mine = {client.key for client in chosen}
    them = "them" if len(chosen) > 1 else "it"
    beside: dict[int, Client] = {}
    further: dict[int, Client] = {}
    unknown: dict[int, Client] = {}
    for client in chosen:
        server = server_of(daemon, client.key)
        for other in blast_radius(server, [client.key]) if server else ():
            if other.key in mine:
                continue
            if not client.device_uuids or not other.device_uuids:
                unknown[other.pid] = other
            elif client.device_uuids & other.device_uuids:
                beside[other.pid] = other
            else:
                further[other.pid] = other
    further = {pid: client for pid, client in further.items() if pid not in beside}
    unknown = {pid: client for pid, client in unknown.items() if pid not in beside and pid not in further}
    groups = (
        (f"Share a GPU with {them}, and run on", beside),
        (
            f"More clients on other GPUs would be lost if {'one of them' if len(chosen) > 1 else 'it'} faults",
            further,
        ),
        (f"May share a GPU with {them}: not all GPUs are known", unknown),
    )
    return tuple(Others(title, tuple(client_line(c) for c in group.values())) for title, group in groups if group)


def _lowered(title: str) -> str:
    return title[0].lower() + title[1:]
