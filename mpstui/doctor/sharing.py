"""Checks of how the node is shared: users, numbering of devices, limits that fit, processes past MPS."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from mpstui.core.blast import over, without
from mpstui.core.limits import own_numbers
from mpstui.core.model import DEVICES_VARIABLE, Client, Daemon, Device, Problem, Server, Snapshot
from mpstui.core.problems import MULTI_USER
from mpstui.core.text import client_pids, format_size, nouns, owner, path_text, plural, printable
from mpstui.core.trust import is_lying
from mpstui.core.v3 import Namespace
from mpstui.doctor.types import Facts, Finding, Verdict
from mpstui.history.times import local_text
from mpstui.observe.problems import OF_A_LIAR, shared_devices
from mpstui.plan.variables import CONTEXT_BYTES, Variable, variables_of

_MUCH: Final = 200.0
"""Percent in all, of clients that are all limited, from which on the limits divide little."""
_LITTLE: Final = 50.0
_ORDINALS: Final = re.compile(r"\s*\d+\s*(?:,\s*\d+\s*)*(?:,\s*)?")
_VERDICT: Final[Mapping[str, Verdict]] = {"error": "error", "warning": "warning", "info": "warning"}
_FROM_STATUS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "answering": (
        (
            "daemon_held",
            "daemon_blocked",
            "daemon_quitting",
            "daemon_stale",
            "daemon_absent",
            "daemon_unread",
            "daemon_usurped",
            "daemon_read_only",
            "not_understood",
        ),
        "daemons answer",
    ),
    "starting": (("server_start",), "no server is seen to fail to start"),
    "faults": (("fault", "lost", "terminated"), "no client that is there has lost its contexts"),
    "contexts": (("device_full", "device_nearly_full"), "each device has contexts left"),
    "outside": (("outside",), "no process computes without MPS"),
    "watching": (("polling",), "changes are seen in the logs"),
    "environment": (("daemon_environment",), "every limit in a daemon's environment has an effect"),
    "namespaces": (("namespace_unlimited",), "every namespace on a limited server has limits of its own"),
}
"""Checks that are problems of the status: their codes, and what is so where there is none."""


def from_status(facts: Facts) -> Iterator[Finding]:
    """The status' own problems, in the words of the status."""
    problems = facts.snapshot.problems
    for check, (codes, well) in _FROM_STATUS.items():
        found = [problem for problem in problems if problem.code in codes]
        yield from (_finding(check, problem, facts.snapshot) for problem in found)
        if not found:
            why = _not_known(check, facts.snapshot)
            yield Finding(check, "unknown", "node", why) if why else Finding(check, "ok", "node", well, codes=codes)


def past_faults(times: Sequence[float], logs: str) -> Iterator[Finding]:
    """The fatal faults that logs tell of, whether or not they are over."""
    if times:
        number = plural(len(times), "fatal GPU fault")
        text = f"{number}, the last on {local_text(max(times))}"
        yield Finding("faults", "warning", logs, text, "See mpstui events --kind fatal_fault with this --log-dir.")


def _not_known(check: str, snapshot: Snapshot) -> str:
    """Why no problem does not mean that there is none; empty where it does."""
    if not snapshot.daemons:
        usurped = any(problem.code == "daemon_usurped" for problem in snapshot.problems)
        return (
            "what answers in the daemon's place may be another user's"
            if usurped
            else "no daemon of root's, or of your own, is there"
        )
    if check in {"contexts", "outside"} and not snapshot.devices:
        return "NVML gives no reading of the devices"
    if check == "contexts" and all(device.contexts is None for device in snapshot.devices):
        return "how many contexts each GPU has is not known"
    if check == "environment" and any(daemon.environment is None for daemon in snapshot.daemons):
        return "a daemon's environment cannot be read"
    if check == "faults" and not all(daemon.clients_known for daemon in snapshot.daemons):
        return "a daemon has not told of its clients"
    return ""


def users(facts: Facts) -> Iterator[Finding]:
    """Whether those who are there can be served: one user at a time, unless multi-user mode is on (fact 21)."""
    for daemon in facts.snapshot.daemons:
        if daemon.pid is None:
            continue
        subject = f"daemon {daemon.pid}"
        waiting = {pending.uid for pending in daemon.pending if pending.uid is not None}
        served = {client.uid for client in daemon.clients() if client.uid is not None}
        if lied := list(_lies(daemon)):
            text = f"it runs as UID {daemon.uid} and names {' and '.join(lied)}"
            text += ", which it cannot have: its answers are false"
            yield Finding("users", "warning", subject, text, OF_A_LIAR)
        elif daemon.multiuser:
            one = "each server takes clients" if daemon.named_servers else "one server for the clients"
            text = f"multi-user mode is on: {one} of all users, who share its faults too"
            yield Finding("users", "ok", subject, f"{text}: for users who trust each other")
        elif daemon.uid not in {0, None} and (others := (waiting | served) - {daemon.uid}):
            text = f"it runs as {owner(daemon.user, daemon.uid)} and has clients of {_named(daemon, others)}"
            yield Finding("users", "warning", subject, text, "Run it as root, or one daemon for each user.")
        elif waiting - served and any(True for _ in daemon.clients()):
            behind, verb = waiting - served, "waits" if len(waiting - served) == 1 else "wait"
            text = f"{_named(daemon, behind)} {verb} until the clients of {_named(daemon, served)} have ended"
            remedy = f"To serve them together, start the daemon in {MULTI_USER}: mpstui daemon start --multi-user"
            remedy += " (they then share one server's faults)."
            yield Finding("users", "warning", subject, text, remedy)
        elif daemon.multiuser is None:
            yield Finding("users", "unknown", subject, "whether multi-user mode is on is not known")
        elif daemon.named_servers:  # who waits for one is not told: the format of its logs is not known
            text = "multi-user mode is off: each server takes the clients of its own user"
            yield Finding("users", "ok", subject, text)
        else:
            who = "nobody waits"
            if daemon.pending:
                who = f"{_named(daemon, waiting) if waiting else 'a client'} waits for a server"
            yield Finding("users", "ok", subject, f"multi-user mode is off: one user at a time, and {who}")


def _lies(daemon: Daemon) -> Iterator[str]:
    """What a user's daemon says it has of other users."""
    servers = () if daemon.simulated else [server for server in daemon.servers if server.user is not None]
    named: dict[str, Iterable[Client | Server]] = {"clients": daemon.clients(), "a server": servers}
    for what, found in named.items():
        if uids := {one.uid for one in found if is_lying(daemon, one.uid)}:
            yield f"{what} of UID {_list(uids)}"


def visible_devices(facts: Facts) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES of a client counts the daemon's devices, not the machine's (fact 11)."""
    environments = {process.pid: process.environment for process in facts.processes}
    for daemon in facts.snapshot.daemons:
        if daemon.pid is None:
            continue
        subject, own = f"daemon {daemon.pid}", environments.get(daemon.pid)
        if own is None:
            yield Finding(
                "visible_devices", "unknown", subject, "its environment cannot be read", "Run mpstui as root."
            )
            continue
        set_to = own.get("CUDA_VISIBLE_DEVICES")
        found = list(_confused(facts, daemon, set_to))
        yield from found
        if not found:
            text = "it has no CUDA_VISIBLE_DEVICES" if set_to is None else f"its devices are {printable(set_to, 120)}"
            yield Finding("visible_devices", "ok", subject, f"{text}; no client has one that contradicts it")


def _confused(facts: Facts, daemon: Daemon, set_to: str | None) -> Iterator[Finding]:
    count = len(daemon.ordinals)
    by_uuid = "Name devices by UUID for the daemon, and leave CUDA_VISIBLE_DEVICES of clients unset, or by UUID too."
    for client in daemon.clients():
        wanted = (facts.client_environments.get(client.pid) or {}).get("CUDA_VISIBLE_DEVICES")
        if wanted is None or not _ORDINALS.fullmatch(wanted):
            continue
        numbers = _numbers(wanted)
        subject, shown = f"client {client.pid}", printable(wanted, 60)
        if count and any(number >= count for number in numbers):
            text = f"its CUDA_VISIBLE_DEVICES is {shown}, and the daemon has {plural(count, 'device')}"
            yield Finding("visible_devices", "error", subject, text, by_uuid)
        elif set_to is not None and not _same_on_the_machine(numbers, set_to):
            of = f"the daemon's devices ({printable(set_to, 60)})"
            text = f"its CUDA_VISIBLE_DEVICES={shown} counts {of}, not the node's"
            yield Finding("visible_devices", "warning", subject, text, by_uuid)


def _numbers(devices: str) -> list[int]:
    """Of what ``_ORDINALS`` matches; of a number that no device has the beginning, which none has either."""
    return [int(word.strip().lstrip("0")[:9] or 0) for word in devices.split(",") if word.strip()]


def _same_on_the_machine(numbers: Sequence[int], set_to: str) -> bool:
    """Whether a client's numbers mean the same devices counted among the daemon's as counted on the machine: "1,0" in
    both is remapped twice, and comes to 0,1."""
    if not _ORDINALS.fullmatch(set_to):
        return False
    daemons = _numbers(set_to)
    return all(number < len(daemons) and daemons[number] == number for number in numbers)


def memory_limits(facts: Facts) -> Iterator[Finding]:
    """Limits that are smaller than a context, or that promise more than the device has."""
    found = [*_small_limits(facts), *_beyond_the_device(facts), *_promised(facts), *_past_a_limit(facts)]
    limited = any(_limits_on(device, facts)[0] for device in facts.snapshot.devices) or any(
        limits
        for daemon in facts.snapshot.daemons
        for limits in (
            daemon.default_pinned_mem_limits,
            *(s.pinned_mem_limits for s in daemon.servers),
            *(limits for _, limits in _of_namespaces(daemon)),
        )
    )
    if not found and not limited and any(map(_limits_unread, facts.snapshot.daemons)):
        found = [Finding("memory_limits", "unknown", "limits", "a daemon has not told whether a memory limit is set")]
    text = "the memory limits fit the devices" if limited else "no memory limit is set"
    yield from found or [Finding("memory_limits", "ok", "limits", text)]


def _limits_unread(daemon: Daemon) -> bool:
    """Whether it may have memory limits that nobody has read: they are read along with the percentage, which is always
    set; logs tell of what was set alone."""
    if not daemon.runs or daemon.v3 is not None or daemon.lacking("get_device_pinned_mem_limit") is not None:
        return daemon.closed
    return daemon.by_logs or daemon.default_active_thread_percentage is None


def _small_limits(facts: Facts) -> Iterator[Finding]:
    for daemon in facts.snapshot.daemons:
        scopes = [("default", daemon.default_pinned_mem_limits)]
        scopes += [(f"server {server.pid}", server.pinned_mem_limits) for server in daemon.servers]
        scopes += [(f"namespace {space.server}/{space.name}", limits) for space, limits in _of_namespaces(daemon)]
        for subject, limits in scopes:
            for device, size in limits.items():
                if size < CONTEXT_BYTES:
                    text = f"{format_size(size)} on device {device} is hardly more than a CUDA context takes, or less"
                    yield Finding("memory_limits", "warning", subject, text, "Set 1G or more.")


def _of_namespaces(daemon: Daemon) -> list[tuple[Namespace, Mapping[str, int]]]:
    """The memory limits of each namespace that has some, in bytes by the daemon's number of the device."""
    spaces = daemon.v3.namespaces if daemon.v3 is not None else ()
    return [(space, limits) for space in spaces if (limits := space.memory_limits(daemon.ordinals))]


def _beyond_the_device(facts: Facts) -> Iterator[Finding]:
    """Namespaces that let one client have more than a device has, which limits nothing."""
    total = {device.uuid: device.memory_total for device in facts.snapshot.devices}
    for daemon in facts.snapshot.daemons:
        for space, limits in _of_namespaces(daemon):
            for device, size in limits.items():
                has = total.get(daemon.ordinals.get(device, ""))
                if has is not None and size > has:
                    text = f"{format_size(size)} on device {device} limits nothing: it has {format_size(has)}"
                    subject = f"namespace {space.server}/{space.name}"
                    yield Finding("memory_limits", "warning", subject, text, f"Set {format_size(has)} or less.")


def _past_a_limit(facts: Facts) -> Iterator[Finding]:
    """The server's limits go by the numbers that a client has for its devices: another one than was meant (fact 35)."""
    for daemon in facts.snapshot.daemons:
        for server in daemon.servers:
            for client in server.clients:
                visible = (facts.client_environments.get(client.pid) or {}).get(DEVICES_VARIABLE)
                for ordinal, number in own_numbers(daemon.ordinals, visible).items():
                    meant, bound = server.pinned_mem_limits.get(ordinal), server.pinned_mem_limits.get(number)
                    if daemon.ordinals[ordinal] not in client.device_uuids or meant == bound:
                        continue
                    text = (
                        f"its CUDA_VISIBLE_DEVICES makes device {ordinal} its device {number}: the limit of device "
                        f"{number} applies, {_said(bound)}, not the limit of device {ordinal}, {_said(meant)}"
                    )
                    remedy = "Limit it in its own environment by UUID, or give each GPU a daemon of its own."
                    yield Finding("memory_limits", "warning", f"client {client.pid}", text, remedy)


def _said(limit: int | None) -> str:
    return format_size(limit) if limit else "none"


def _promised(facts: Facts) -> Iterator[Finding]:
    for device in facts.snapshot.devices:
        promised, known = _limits_on(device, facts)
        if device.memory_total is not None and sum(promised) > device.memory_total:
            text = (
                f"the limits of {plural(len(promised), 'client')} come to {format_size(sum(promised))}"
                f"{'' if known else ' at most'}, "
                f"and it has {format_size(device.memory_total)}"
            )
            remedy = (
                "Lower the limit for new clients, or put some of them elsewhere; mpstui plan works out limits that fit."
            )
            yield Finding("memory_limits", "warning", device.called, text, remedy)


def _limits_on(device: Device, facts: Facts) -> tuple[list[int], bool]:
    """Of each client on it that has one; and whether no client's own, which can only be lower, is unknown."""
    found, known = [], True
    for daemon in facts.snapshot.daemons:
        ordinal = next((number for number, uuid in daemon.ordinals.items() if uuid == device.uuid), None)
        if ordinal is None:
            continue
        spaces = {(space.server, space.name): limits for space, limits in _of_namespaces(daemon)}
        for server in daemon.servers:
            for client in server.clients:
                name = server.v3.name if server.v3 is not None else ""
                limit = spaces.get((name, client.namespace or ""), client.pinned_mem_limits).get(ordinal)
                if limit is not None and device.uuid in client.device_uuids:
                    found.append(limit)
                    known &= client.memory_limit_known
    return found, known


def percentages(facts: Facts) -> Iterator[Finding]:
    """Shares of the SMs that leave much of a device idle, or that overlap so far that they divide nothing."""
    servers = [(daemon, server) for daemon in facts.snapshot.daemons for server in daemon.servers]
    if not all(server.clients_known for _, server in servers):
        return
    at_work = [c for daemon, server in servers for c in without(server, over(daemon, server)).clients]
    for device in facts.snapshot.devices:
        clients = [client for client in at_work if device.uuid in client.device_uuids]
        shares = [s for c in clients if (s := c.active_thread_percentage) is not None and not c.percentage_at_most]
        if not shares or len(shares) < len(clients):
            continue
        total, subject = sum(shares), device.called
        text = f"{plural(len(shares), 'client')} may use {total:g} % of its SMs in all"
        limited = all(share < 100 for share in shares)
        if limited and total > _MUCH:
            remedy = (
                "Those that are busy together share SMs. Lower the percentage for new clients to about 100 divided "
            )
            remedy += "by their number."
            yield Finding("percentages", "warning", subject, text, remedy)
        elif limited and len(shares) > 1 and total < _LITTLE:
            remedy = "The rest of the device stays idle. Raise the percentage for new clients."
            yield Finding("percentages", "warning", subject, text, remedy)
        else:
            yield Finding("percentages", "ok", subject, text)


def variables(facts: Facts) -> Iterator[Finding]:
    """The variables of MPS that clients and daemons were started with: a claim of theirs, which explains much."""
    told: dict[str, list[int]] = {}
    hidden: list[int] = []
    for daemon in facts.snapshot.daemons:
        own = next((p.environment for p in facts.processes if p.pid == daemon.pid), None)
        if own is not None:
            found, _ = variables_of(own, daemon)
            yield from (_of_variable(f"daemon {daemon.pid}", each) for each in found if not each.does)
        for client in daemon.clients():
            environment = facts.client_environments.get(client.pid) if client.local else None
            if environment is None:
                hidden.append(client.pid)
                continue
            found, more = variables_of(environment, daemon, client.active_thread_percentage)
            yield from (_of_variable(f"client {client.pid}", each) for each in found if each.trouble)
            names = [f"{each.name}={each.value} ({each.does})" for each in found if each.does and not each.trouble]
            names += [f"{more} more"] if more else []
            told.setdefault("; ".join(names), []).append(client.pid)
    for text, pids in told.items():
        said = f"started with {text}" if text else "started without a variable of MPS"
        yield Finding("variables", "ok", client_pids(pids), said)
    if hidden:
        text = "their environment cannot be read: the MPS variables that they were started with are not known"
        yield Finding("variables", "unknown", client_pids(hidden), text, "Run mpstui as root, on the node itself.")


def _of_variable(subject: str, variable: Variable) -> Finding:
    # What nobody knows may hold what is nobody's business: its value is in the client's details alone.
    shown = f"{variable.name}={variable.value}" if variable.does else variable.name
    text = f"started with {shown}: {variable.trouble}"
    return Finding("variables", "warning", subject, text, variable.remedy)


def cgroup_memory(facts: Facts) -> Iterator[Finding]:
    """Limits of device memory that a cgroup sets, beside those of MPS; they are named, and nothing is done by them."""
    told: dict[str, list[int]] = {}
    for pid, limits in facts.cgroup_memory.items():
        for limit in limits:
            parts = [f"at most {format_size(limit.most)}"] if limit.most is not None else []
            parts += [f"{format_size(limit.least)} kept for it"] if limit.least else []
            if parts:
                told.setdefault(f"{limit.region}: {', '.join(parts)}, by cgroup {limit.cgroup}", []).append(pid)
    for text, pids in told.items():
        text += "; a client that it evicts gets error 810, as after terminate_client"
        yield Finding("cgroup_memory", "ok", client_pids(pids), text)


def parts_of_devices(facts: Facts) -> Iterator[Finding]:
    """Devices of a daemon that NVML does not list: a GPU in parts (MIG, locality domains), or one that is hidden."""
    known = {device.uuid for device in facts.snapshot.devices}
    if not known:
        return
    for daemon in facts.snapshot.daemons:
        others = [(number, uuid) for number, uuid in daemon.ordinals.items() if uuid not in known]
        if not others:
            continue
        shown = ", ".join(f"{printable(number, 8)} ({printable(uuid, 48)})" for number, uuid in others[:8])
        devices = f"{nouns(len(others), 'device')} {shown}"
        if all(uuid.startswith("MIG-") for _, uuid in others):
            text = f"its {devices} {'is a MIG instance' if len(others) == 1 else 'are MIG instances'}"
            yield Finding("parts", "ok", f"daemon {daemon.pid}", text)
            continue
        text = f"NVML does not list its {devices}"
        if any("-mlopart" in e.values.get("command", "") for e in facts.snapshot.events if e.kind == "command"):
            yield Finding("parts", "ok", f"daemon {daemon.pid}", f"{text}: memory-locality parts of a GPU (-mlopart)")
            continue
        text += ": memory-locality parts of a GPU (-mlopart), or a GPU that is hidden here; readings of a whole GPU do "
        text += "not apply to them"
        yield Finding("parts", "unknown", f"daemon {daemon.pid}", text)


def one_daemon_a_device(facts: Facts) -> Iterator[Finding]:
    """Two daemons on one device take turns on it, as if there were no MPS."""
    found = [_finding("shared_device", problem, facts.snapshot) for problem in shared_devices(facts.snapshot.daemons)]
    yield from found or [Finding("shared_device", "ok", "devices", "no device is served by two daemons")]


def _finding(check: str, problem: Problem, snapshot: Snapshot) -> Finding:
    verdict = "unknown" if problem.uid is not None else _VERDICT[problem.severity]  # another user's word is no trouble
    daemon = next((daemon for daemon in snapshot.daemons if path_text(daemon.pipe_dir) == problem.subject), None)
    if check == "watching" and daemon is not None and daemon.named_servers:
        return Finding(check, "ok", problem.subject, problem.text, codes=(problem.code,))  # nothing is to be mended
    return Finding(check, verdict, problem.subject, problem.text, problem.remedy, (problem.code,))


def _named(daemon: Daemon, uids: set[int | None] | set[int]) -> str:
    """``alice, UID 2002``: by name, and by number who has none here."""
    users = {client.uid: client.user for client in daemon.clients() if client.user}
    users |= {pending.uid: pending.user for pending in daemon.pending if pending.user}
    return ", ".join(owner(users.get(uid), uid) for uid in sorted(uid for uid in uids if uid is not None))


def _list(uids: set[int | None] | set[int]) -> str:
    return ", ".join(str(uid) for uid in sorted(uid for uid in uids if uid is not None)) or "somebody"
