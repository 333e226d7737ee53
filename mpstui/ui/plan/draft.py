"""The plan on the screen: what was chosen, and what comes of it on the node as it is. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final, Literal, TypeVar

from mpstui.core.late import dataclass
from mpstui.core.model import Daemon, Device
from mpstui.core.partition import sms_of
from mpstui.plan.amounts import PlanError
from mpstui.plan.exports import ShareSettings
from mpstui.plan.planner import MemoryRule, make_plan
from mpstui.plan.profile import DaemonProfile
from mpstui.plan.settings import limits_of_plan
from mpstui.plan.types import Plan, PlanTarget, Strategy, target_of
from mpstui.plan.whatif import By, PresentTenant, WhatIf, tenants, what_if

MemoryChoice = Literal["even", "weight", "none", "own"]
MEMORY_STEP: Final = 512 << 20
BIG_STEP: Final = 4
"""Steps of a key with Shift."""
_NAME: Final = 40
_NOBODY: Final = 2
"""Shares to begin with where there is no client yet."""
Number = TypeVar("Number", int, Fraction)


@dataclass(frozen=True, slots=True)
class Draft:
    """What the user has chosen. Amounts are by share, in the order of :func:`share_names`."""

    device: str | None = None
    """UUID."""
    by: By = "user"
    patterns: tuple[str, ...] = ()
    strategy: Strategy = "uniform"
    labels: tuple[str, ...] = ()
    """The tenants that the plan is for: it does not change under one's hands when clients come and go."""
    clients: int = 1
    """Shares: the tenants' and those of clients to come."""
    weights: tuple[Fraction, ...] = ()
    sm_counts: tuple[int, ...] = ()
    memory: MemoryChoice = "even"
    limits: tuple[int, ...] = ()
    """Bytes, for ``own``."""
    contexts: int = 1
    problem: str = ""
    """What was typed and cannot be."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A draft on the node as it is."""

    draft: Draft
    device: Device | None
    target: PlanTarget | None
    plan: Plan | None
    shown: WhatIf | None
    problem: str
    """Why there is no plan; empty where there is one."""


def share_names(labels: Sequence[str], clients: int) -> tuple[str, ...]:
    """Names that profiles and exports can have, one for each share: of the tenants first, then of clients to come."""
    found: list[str] = []
    for index in range(clients):
        label = labels[index] if index < len(labels) else f"client{index + 1}"
        base = re.sub(r"[^A-Za-z0-9._-]+", "-", label).strip("-._")[:_NAME] or f"client{index + 1}"
        name, number = base, 2
        while name in found:
            name, number = f"{base}-{number}", number + 1
        found.append(name)
    return tuple(found)


def picture(draft: Draft, daemon: Daemon | None, devices: Sequence[Device]) -> Picture:
    """What comes of the draft."""
    device = next((d for d in devices if d.uuid == draft.device), None)
    target = target_of(device) if device else None
    if device is None:
        return Picture(draft, None, None, None, None, "no GPU is known here: there is nothing to divide")
    if target is None:
        return Picture(draft, device, None, None, None, "how many SMs the GPU has is not known")
    if draft.problem:
        return Picture(draft, device, target, None, None, draft.problem)
    try:
        plan = _plan(draft, target)
    except PlanError as error:
        return Picture(draft, device, target, None, None, str(error))
    known = daemon.ordinals if daemon else {}
    ordinal = next((ordinal for ordinal, uuid in known.items() if uuid == device.uuid), "0")
    return Picture(draft, device, target, plan, what_if(plan, device, _groups(draft, daemon, device), ordinal), "")


def _plan(draft: Draft, target: PlanTarget) -> Plan:
    memory: MemoryRule | Sequence[int] = draft.limits if draft.memory == "own" else draft.memory
    return make_plan(
        target,
        draft.strategy,
        clients=draft.clients,
        weights=draft.weights if draft.strategy == "weighted" else (),
        sm_counts=draft.sm_counts if draft.strategy == "exact" else (),
        memory=memory,
        contexts=draft.contexts,
        names=share_names(draft.labels, draft.clients),
    )


def _groups(draft: Draft, daemon: Daemon | None, device: Device) -> list[PresentTenant]:
    """The plan's tenants in its order, places for clients to come, then who has come since."""
    here = {t.label: t for t in tenants(daemon, device, draft.by, draft.patterns)} if daemon else {}
    found = [here.pop(label, PresentTenant(label, ())) for label in draft.labels]
    names = share_names(draft.labels, draft.clients)
    found += [PresentTenant(name, ()) for name in names[len(found) :]]
    return [*found, *here.values()]


def regroup(draft: Draft, daemon: Daemon | None, devices: Sequence[Device]) -> Draft:
    """Take in the tenants that there are now; amounts stay with those who had one."""
    device = next((d for d in devices if d.uuid == draft.device), None)
    found = tenants(daemon, device, draft.by, draft.patterns) if daemon and device else ()
    labels = tuple(tenant.label for tenant in found)
    names = share_names(draft.labels, draft.clients)
    fresh = replace(draft, labels=labels, clients=len(labels) or _NOBODY, problem="")
    return _fill(fresh, device, names)


def with_clients(draft: Draft, clients: int, devices: Sequence[Device]) -> Draft:
    """As many shares."""
    device = next((d for d in devices if d.uuid == draft.device), None)
    return _fill(replace(draft, clients=max(1, clients), problem=""), device, share_names(draft.labels, draft.clients))


def with_strategy(draft: Draft, strategy: Strategy, now: Picture) -> Draft:
    """Another strategy, that begins with what the present one comes to."""
    draft = replace(draft, strategy=strategy, problem="")
    plan = now.plan
    if strategy == "exact" and plan is not None:
        return replace(draft, sm_counts=tuple(share.sm_count for share in plan.shares))
    if strategy == "weighted":
        counts = [share.sm_count for share in plan.shares] if plan is not None else [1] * draft.clients
        least = counts[0] if len(set(counts)) == 1 else 1
        return replace(draft, weights=tuple(Fraction(count, least) for count in counts))
    return draft


def nudge_sms(draft: Draft, now: Picture, index: int, steps: int) -> Draft:
    """Move one share by steps of the hardware; from then on the plan is one of exact counts."""
    if now.plan is None or now.target is None or index >= len(now.plan.shares):
        return draft
    rounding, total = now.target.rounding, now.target.sm_count
    counts = [share.sm_count for share in now.plan.shares]
    counts[index] = max(rounding.floor, min(total, counts[index] + steps * rounding.step))
    return replace(draft, strategy="exact", sm_counts=tuple(counts), problem="")


def nudge_memory(draft: Draft, now: Picture, index: int, steps: int) -> Draft:
    """Move one limit by steps of 512 MiB; from then on each has a limit of its own."""
    if now.plan is None or now.target is None or index >= len(now.plan.shares) or not now.target.memory_total:
        return draft
    even = _even(now.target, len(now.plan.shares))
    limits = [even if share.memory is None else share.memory for share in now.plan.shares]
    # To the next whole step first, so that the figures are round ones.
    at = limits[index] // MEMORY_STEP if steps > 0 else -(-limits[index] // MEMORY_STEP)
    most = now.target.memory_total // MEMORY_STEP * MEMORY_STEP
    limits[index] = max(MEMORY_STEP, min(most, (at + steps) * MEMORY_STEP))
    return replace(draft, memory="own", limits=tuple(limits), problem="")


def with_memory(draft: Draft, memory: MemoryChoice, now: Picture) -> Draft:
    """Another rule for the memory; limits of one's own begin with what there is."""
    draft = replace(draft, memory=memory, problem="")
    if memory != "own" or now.plan is None or now.target is None:
        return draft
    even = _even(now.target, len(now.plan.shares))
    return replace(draft, limits=tuple(even if s.memory is None else s.memory for s in now.plan.shares))


def wanted(plan: Plan, with_device: bool = False) -> DaemonProfile:
    """What the daemon must allow for the plan, and the shares that clients set for themselves.

    ``with_device``: with the device's UUID, as a profile keeps it.
    """
    uuid = plan.target.uuid
    devices = (uuid,) if with_device and uuid is not None else ()
    return DaemonProfile(devices=devices, limits=limits_of_plan(plan), shares=settings_of(plan))


def settings_of(plan: Plan) -> tuple[ShareSettings, ...]:
    """The shares as a client's environment can say them."""
    return tuple(ShareSettings(share.name, share.percentage, share.memory) for share in plan.shares)


def draft_of(profile: DaemonProfile, draft: Draft, target: PlanTarget) -> Draft:
    """The shares of a profile as a draft on the same device and tenants. Raises PlanError where it has none."""
    if not profile.shares:
        raise PlanError("it has no shares to plan with, only limits of the daemon")
    percentage = profile.limits.active_thread_percentage or 100.0
    counts = tuple(
        sms_of(share.active_thread_percentage or percentage, target.sm_count, target.rounding)
        for share in profile.shares
    )
    limits = tuple(share.pinned_mem_limit for share in profile.shares)
    known = tuple(limit for limit in limits if limit is not None)
    own = len(known) == len(limits)
    return replace(
        draft,
        labels=tuple(share.name for share in profile.shares),
        clients=len(profile.shares),
        strategy="exact",
        sm_counts=counts,
        memory="own" if own else "none",
        limits=known if own else (),
        problem="",
    )


def _fill(draft: Draft, device: Device | None, before: Sequence[str]) -> Draft:
    """Amounts for exactly the shares there are: the ones they had, or an even one."""
    target = target_of(device) if device else None
    names = share_names(draft.labels, draft.clients)
    step = target.rounding.step if target else 1
    even_sms = max(step, (target.sm_count // draft.clients) // step * step) if target else 1
    counts = _by_name(draft.sm_counts, before, names, even_sms)
    weights = _by_name(draft.weights, before, names, Fraction(1))
    limits = _by_name(draft.limits, before, names, _even(target, draft.clients) if target else MEMORY_STEP)
    return replace(draft, sm_counts=counts, weights=weights, limits=limits)


def _by_name(
    values: Sequence[Number], before: Sequence[str], names: Sequence[str], other: Number
) -> tuple[Number, ...]:
    known: Mapping[str, Number] = dict(zip(before, values, strict=False))
    return tuple(known.get(name, other) for name in names)


def _even(target: PlanTarget, clients: int) -> int:
    """An even limit in whole MiB."""
    usable = target.usable_memory or MEMORY_STEP * clients
    return max(1, (usable // max(1, clients)) >> 20) << 20
