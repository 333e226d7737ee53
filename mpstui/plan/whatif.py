"""A plan beside what is: who has what today, what each would get, who keeps old limits, who would not fit. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from typing import Literal

from mpstui.core.cells import client_line, share_text
from mpstui.core.late import dataclass
from mpstui.core.model import Client, Daemon, Device
from mpstui.core.partition import sm_share
from mpstui.core.text import UNKNOWN, format_size, owner, same_limit, same_percentage
from mpstui.plan.types import Plan, Share

By = Literal["user", "command", "client"]


@dataclass(frozen=True, slots=True)
class PresentTenant:
    """Clients that are looked at as one."""

    label: str
    clients: tuple[Client, ...]


@dataclass(frozen=True, slots=True)
class TenantRow:
    """One tenant today and as planned. SMs and memory are of all its clients together; None: not known, or no limit."""

    label: str
    clients: int
    """How many it has now; 0 for a share that nobody has yet, which is then counted once."""
    sms_today: int | None
    sms_planned: int | None
    memory_used: int
    memory_planned: int | None
    share: Share | None
    """What each of its clients would get; None for a tenant that the plan has no share for."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A comparison on one device."""

    rows: tuple[TenantRow, ...]
    keeps: tuple[str, ...]
    """Clients that keep what they have until they start anew, one line each."""
    misfits: tuple[str, ...]
    """Clients that use more memory than they would get, or for whom there is no share, one line each."""
    sms_planned: int
    sm_count: int
    contexts_free: int | None
    """What is left of the device's contexts with the clients that are there now; None where those are of several
    daemons: whether the limit is for each or for all is not known."""

    @property
    def over_committed(self) -> int:
        """SMs that the clients there are would get beyond those of the device; 0 where it holds."""
        return max(0, self.sms_planned - self.sm_count)


def tenants(daemon: Daemon, device: Device, by: By, patterns: Sequence[str] = ()) -> tuple[PresentTenant, ...]:
    """The clients on ``device`` in groups: of a user, of the first of the shell ``patterns`` that their command matches
    (the others by their program), or each alone. In the order of their labels.
    """
    groups: dict[str, list[Client]] = {}
    for client in daemon.clients():
        if device.uuid in client.device_uuids:
            groups.setdefault(_label(client, by, patterns), []).append(client)
    return tuple(PresentTenant(label, tuple(clients)) for label, clients in sorted(groups.items()))


def what_if(plan: Plan, device: Device, groups: Sequence[PresentTenant], ordinal: str = "0") -> WhatIf:
    """``plan`` beside what ``groups`` have on ``device``: the first share is the first tenant's, and so on.

    ``ordinal``: the daemon's of the device, by which the clients' memory limits go.

    MPS limits each client and not a tenant, so that one with three clients gets its share three times.
    """
    rows, keeps, misfits = [], [], []
    total = 0
    for index in range(max(len(groups), len(plan.shares))):
        tenant = groups[index] if index < len(groups) else None
        share = plan.shares[index] if index < len(plan.shares) else None
        row = _row(tenant, share, device)
        rows.append(row)
        total += row.sms_planned or 0
        for client in tenant.clients if tenant else ():
            if share is None:
                misfits.append(f"{client_line(client)}: the plan has no share for it")
                continue
            used = client.gpu_memory.get(device.uuid, 0)
            if share.memory is not None and used > share.memory:
                wanted = format_size(share.memory)
                misfits.append(f"{client_line(client)}: uses {format_size(used)}, and its limit would be {wanted}")
            if not _has(client, share, ordinal):
                keeps.append(f"{client_line(client)}: keeps {share_text(client)} until it is restarted")
    contexts = device.contexts
    if contexts is None:
        known = (context for group in groups for client in group.clients for context in client.contexts)
        contexts = sum(context.device_uuid == device.uuid for context in known)
    free = None if device.context_daemons > 1 else plan.target.context_limit - contexts
    return WhatIf(tuple(rows), tuple(keeps), tuple(misfits), total, plan.target.sm_count, free)


def _row(tenant: PresentTenant | None, share: Share | None, device: Device) -> TenantRow:
    clients = tenant.clients if tenant else ()
    times = max(1, len(clients))
    # Clients of one static partition share its SMs.
    today = list({client.sm_partition or client.key: _sms(client, device) for client in clients}.values())
    return TenantRow(
        tenant.label if tenant else share.name if share else UNKNOWN,
        len(clients),
        sum(sms for sms in today if sms is not None) if clients and None not in today else None,
        share.sm_count * times if share else None,
        sum(client.gpu_memory.get(device.uuid, 0) for client in clients),
        share.memory * times if share and share.memory is not None else None,
        share,
    )


def _sms(client: Client, device: Device) -> int | None:
    if client.sm_count is not None:
        return client.sm_count
    share = sm_share(client.active_thread_percentage, device)
    return share.count if share else None


def _has(client: Client, share: Share, ordinal: str) -> bool:
    if not same_percentage(share.percentage, client.active_thread_percentage):
        return False
    return share.memory is None or same_limit(share.memory, client.pinned_mem_limits.get(ordinal))


def _label(client: Client, by: By, patterns: Sequence[str]) -> str:
    if by == "user":
        return owner(client.user, client.uid)
    if by == "client":
        return client_line(client)
    command = client.command or UNKNOWN
    return next((p for p in patterns if fnmatch.fnmatchcase(command, p)), command.split(" ", 1)[0])
