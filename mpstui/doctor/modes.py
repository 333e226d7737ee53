"""What goes wrong with static SM partitions and with namespaces, of which no error speaks."""

from __future__ import annotations

from collections.abc import Iterator

from mpstui.core.model import PERCENTAGE_VARIABLE, Daemon
from mpstui.core.text import path_text, plural, printable
from mpstui.doctor.types import Facts, Finding

_CHECK = "partitions"


def partitions(facts: Facts) -> Iterator[Finding]:
    """Clients and their partitions, percentages that do nothing, SMs that nobody can have."""
    for daemon in facts.snapshot.daemons:
        if daemon.static_partitioning and not daemon.explained:
            yield from _static(daemon)


def _static(daemon: Daemon) -> Iterator[Finding]:
    where, table = path_text(daemon.pipe_dir), daemon.partitions
    if table is None:
        why = daemon.partitions_detail or "they have not been read"
        yield Finding(_CHECK, "unknown", where, f"which static partitions it has is not known: {why}")
        return
    if value := (daemon.environment or {}).get(PERCENTAGE_VARIABLE):
        text = f"the daemon's environment has {PERCENTAGE_VARIABLE}={printable(value, 40)}, which has no effect with -S"
        yield Finding(_CHECK, "warning", where, text, "Leave it out; a client has the SMs of its partition.")
    for client in daemon.clients():
        if client.sm_partition is not None and table.find(client.sm_partition) is None:
            text = f"its environment names partition {client.sm_partition}, which the daemon does not list"
            remedy = "Names hold until the daemon ends: start it again with one of mpstui partition list."
            yield Finding(_CHECK, "warning", f"client {client.pid}", text, remedy)
    for device in table.devices:
        per = table.sms_per_chunk(device.device)
        if device.free == 0 and device.free_sms:
            text = (
                f"all {plural(device.total, 'chunk')} are in partitions; "
                f"{plural(device.free_sms, 'SM')} are in no chunk"
            )
            yield Finding(_CHECK, "ok", device.device, f"{text}, and nobody can have them")
        elif per is None and device.used:
            text = "its partitions do not agree on how many SMs a chunk has"
            yield Finding(_CHECK, "unknown", device.device, text, "Look at mpstui partition list.")
    for line in table.not_understood:
        yield Finding(_CHECK, "unknown", where, f"a line of lspart is not understood: {line}")
    if not table.partitions:
        text = "it has no partition, so no client can start (CUDA error 915)"
        yield Finding(_CHECK, "warning", where, text, "Add one: mpstui partition add --device UUID --chunks N.")
    else:
        used = sum(partition.in_use is True for partition in table.partitions)
        text = f"{plural(len(table.partitions), 'static partition')}, {used} in use"
        yield Finding(_CHECK, "ok", where, text)


def namespaces(facts: Facts) -> Iterator[Finding]:
    """Clients whose own percentage a namespace overrides."""
    for daemon in facts.snapshot.daemons:
        for client in daemon.clients() if daemon.v3 is not None else ():
            own = (facts.client_environments.get(client.pid) or {}).get(PERCENTAGE_VARIABLE)
            if own and client.limit_source.get("active_thread_percentage") == "namespace":
                text = f"its {PERCENTAGE_VARIABLE}={printable(own, 40)} has no effect"
                text += f": namespace {client.namespace} has its own"
                remedy = "Use a namespace with the share that is wanted; the variable only counts where it has none."
                yield Finding("namespaces", "warning", f"client {client.pid}", text, remedy)
