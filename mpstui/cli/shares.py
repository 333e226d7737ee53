"""The plan that options ask for, and clients' shares for other programs: ``--export`` of ``plan`` and ``profile``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Final

from mpstui.core.model import Device, device_named
from mpstui.core.text import printable
from mpstui.plan import amounts
from mpstui.plan.amounts import PlanError
from mpstui.plan.exports import CLUSTER_EXPORTS, ShareSettings, cluster_text, environment, export_text
from mpstui.plan.planner import MemoryRule, make_plan
from mpstui.plan.profile import NAME
from mpstui.plan.types import Plan, PlanTarget, Strategy

_RULES: Final[Mapping[str, MemoryRule]] = {"even": "even", "weight": "weight", "none": "none"}


def export(
    options: argparse.Namespace,
    shares: Sequence[ShareSettings],
    pipe_dir: Path | None,
    devices: Sequence[str],
    profile: str | None,
) -> int:
    """Print the text of each share, or of the one asked for. Raises PlanError."""
    chosen = [share for share in shares if options.share in {None, share.name}]
    if not chosen:
        raise PlanError(
            f"there is no share {options.share!r}; there are: {', '.join(s.name for s in shares) or 'none'}"
        )
    if options.export in CLUSTER_EXPORTS:
        if options.share is not None:
            raise PlanError(f"--export {options.export} is for all shares: leave out --share")
        print(cluster_text(options.export, chosen), end="")
        return 0
    for position, share in enumerate(chosen):
        text = export_text(options.export, share, environment(share, pipe_dir, devices), profile)
        if len(chosen) > 1:
            print(f"{chr(10) if position else ''}# {share.name}")
        print(text, end="")
    return 0


def plan_of(
    options: argparse.Namespace,
    target: PlanTarget,
    measured: Sequence[int] = (),
    labels: Sequence[str] = (),
    proposed: Sequence[Fraction] = (),
    limits: Sequence[int] = (),
) -> Plan:
    """The plan that the options ask for, or that of the SM counts ``measured``, or of the weights ``proposed`` with
    memory ``limits``, named ``labels`` where the options do not name them. Raises PlanError.
    """
    weights = proposed if options.weights is None else amounts.weights(options.weights, "--weights")
    counts = measured if options.sm_count is None else amounts.counts(options.sm_count, "--sm-count")
    given: Strategy = "weighted" if weights else "exact" if counts else "uniform"
    rule = "even" if options.mem is None else options.mem.strip()
    memory: MemoryRule | Sequence[int]
    if proposed and options.mem is None:
        memory = limits or "none"
    elif rule in _RULES:
        memory = _RULES[rule]
    else:
        memory = amounts.sizes(rule, "--mem")
    names = tuple(name.strip() for name in options.names.split(",")) if options.names else ()
    if wrong := next((name for name in names if not NAME.fullmatch(name)), None):
        raise PlanError(f"--names: “{printable(wrong, 40)}” must be letters, digits, . _ and - only")
    return make_plan(
        target,
        options.strategy or given,
        clients=None if options.clients is None or measured else amounts.count(options.clients, "--clients"),
        weights=weights,
        sm_counts=counts,
        memory=memory,
        contexts=amounts.count(options.contexts, "--contexts"),
        names=names or labels,
    )


def choose_device(devices: Sequence[Device], wanted: str | None, binding: bool = False) -> Device:
    """The device asked for, otherwise the only one, or the first of several that are alike. Raises PlanError.

    ``binding``: the plan is to be set or kept, so that which one it is must be said.
    """
    known = ", ".join(f"{device.index} ({device.uuid})" for device in devices)
    if wanted is not None:
        try:
            return device_named(wanted, devices)
        except LookupError as error:
            raise PlanError(str(error)) from None
    if not devices:
        raise PlanError("no GPU is known here; give its size: --sm-count-total 132 --memory-total 80GiB")
    if binding and len(devices) > 1:
        raise PlanError(f"a plan is for one GPU; choose it with --device: {known}")
    if len({(d.sm_count, d.memory_total, d.compute_capability) for d in devices}) > 1:
        raise PlanError(f"the GPUs differ; choose one with --device: {known}")
    return devices[0]
