"""The planner: from a device, a strategy and amounts to one share a client. Pure; raises PlanError in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

from mpstui.core.partition import smallest_percentage, sms_of
from mpstui.core.text import are, format_size, plural
from mpstui.plan.amounts import PlanError, given_for, spread, times_given, whole_mebibytes
from mpstui.plan.types import RESERVED, Plan, PlanTarget, Rest, Share, Strategy

MemoryRule = Literal["even", "weight", "none"]


def make_plan(
    target: PlanTarget,
    strategy: Strategy,
    *,
    clients: int | None = None,
    weights: Sequence[Fraction] = (),
    sm_counts: Sequence[int] = (),
    memory: MemoryRule | Sequence[int] = "even",
    contexts: int = 1,
    names: Sequence[str] = (),
) -> Plan:
    """Divide ``target``.

    ``clients``: how many; for ``weighted`` and ``exact`` as many as there are ``weights`` or ``sm_counts``.
    ``memory``: ``even``, by ``weight`` (the weights, otherwise the SMs), ``none``, or bytes for each client or all.
    ``contexts``: on this device, of each client. Raises PlanError for what cannot be.
    """
    number = _number(strategy, clients, weights, sm_counts)
    if number * contexts > target.context_limit:
        each = f" with {contexts} contexts each" if contexts > 1 else ""
        limit = f"the {target.context_limit} contexts of a device"
        raise PlanError(f"{plural(number, 'client')}{each} {are(number)} more than {limit}")
    parts = [_by_count(target, count) for count in sm_counts] if strategy == "exact" else []
    fractions = _fractions(strategy, number, weights)
    parts = parts or [_by_fraction(target, fraction) for fraction in fractions]
    limits = _limits(target, memory, weights or [Fraction(part.sm_count) for part in parts], number)
    labels = tuple(names) or tuple(f"client{index}" for index in range(1, number + 1))
    if len(labels) != number:
        need = "1 client needs one name" if number == 1 else f"{number} clients need a name each"
        raise PlanError(f"{need}, and {times_given(len(labels))}")
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise PlanError(f"the name {twice} is given twice: each client needs its own")
    shares = tuple(
        _with_memory(target, part, label, limit, contexts)
        for part, label, limit in zip(parts, labels, limits, strict=True)
    )
    left = _rest(target, shares, contexts)
    return Plan(target, strategy, shares, left, _warnings(target, strategy, shares, left))


def _number(strategy: Strategy, clients: int | None, weights: Sequence[Fraction], sm_counts: Sequence[int]) -> int:
    given = {"weighted": len(weights), "exact": len(sm_counts)}.get(strategy)
    if given is None:
        if weights or sm_counts:
            raise PlanError(f"the strategy {strategy} takes neither weights nor SM counts")
        if clients is None:
            raise PlanError("how many clients? Give --clients N")
        return clients
    what, option = ("weights", "--weights 30,70") if strategy == "weighted" else ("SM counts", "--sm-count 24,60")
    if (sm_counts if strategy == "weighted" else weights) or not given:
        raise PlanError(f"the strategy {strategy} needs {what} and nothing else: {option}")
    if clients not in {None, given}:
        raise PlanError(f"{what}: {given_for(given, clients or 0)}")
    return given


def _fractions(strategy: Strategy, number: int, weights: Sequence[Fraction]) -> list[Fraction]:
    if strategy == "half":  # the vendor's advice where clients are not always busy: 100 / 0.5 n
        return [min(Fraction(1), Fraction(2, number))] * number
    total = sum(weights, Fraction(0))
    return [weight / total for weight in weights] if strategy == "weighted" else [Fraction(1, number)] * number


def _by_fraction(target: PlanTarget, fraction: Fraction) -> Share:
    """A percentage with one decimal. Rounded down, unless that costs SMs: 33.3 % of 132 is 42, and 33.4 % the 44 that
    a third is.
    """
    exact = fraction * 100
    down = Fraction(max(1, math.floor(exact * 10)), 10)
    wanted = sms_of(exact, target.sm_count, target.rounding)
    up = down + Fraction(1, 10)
    fits = sms_of(down, target.sm_count, target.rounding) == wanted or up > 100
    percentage = float(down if fits else up)
    share = fraction * target.sm_count
    return Share("", percentage, wanted, float(share), warnings=_rounding_warnings(target, float(exact), share, wanted))


def _by_count(target: PlanTarget, count: int) -> Share:
    if count > target.sm_count:
        raise PlanError(f"{count} SMs are more than the {target.sm_count} that the device has")
    percentage = smallest_percentage(count, target.sm_count, target.rounding)
    comes_to = sms_of(percentage, target.sm_count, target.rounding)
    warnings: tuple[str, ...] = ()
    if comes_to != count:
        warnings = (f"{plural(count, 'SM')} {are(count)} not possible: {_steps(target)}; it gets {comes_to}",)
    affinity = max(target.rounding.floor, math.ceil(count / target.rounding.step) * target.rounding.step)
    return Share("", percentage, comes_to, float(count), affinity_sms=min(target.sm_count, affinity), warnings=warnings)


def _rounding_warnings(target: PlanTarget, percentage: float, share: Fraction, comes_to: int) -> tuple[str, ...]:
    said = f"{percentage:.3g} % of {target.sm_count} SMs is {float(share):.4g}"
    if comes_to > share:
        return (f"{said}, and {comes_to} is the least: it gets more than its share",)
    if share - comes_to >= 1:
        return (f"{said}, rounded down to {comes_to}: {_steps(target)}",)
    return ()


def _steps(target: PlanTarget) -> str:
    return f"SMs come in steps of {target.rounding.step} from {target.rounding.floor} on"


def _limits(
    target: PlanTarget, memory: MemoryRule | Sequence[int], weights: Sequence[Fraction], number: int
) -> tuple[int | None, ...]:
    usable = target.usable_memory
    if memory == "none" or (usable is None and isinstance(memory, str)):
        return (None,) * number
    if isinstance(memory, str):
        parts = weights if memory == "weight" else [Fraction(1)] * number
        whole = sum(parts, Fraction(0))
        found = [whole_mebibytes(int((usable or 0) * part / whole)) for part in parts]
        if not all(found):
            raise PlanError(f"{format_size(usable)} are too little for {plural(number, 'client')}")
        return tuple(found)
    given = spread([whole_mebibytes(value) for value in memory], number, "memory limits")
    if target.memory_total is not None and (large := max(given)) > target.memory_total:
        raise PlanError(
            f"a limit of {format_size(large)} is more than the {format_size(target.memory_total)} that the device has"
        )
    return given


def _with_memory(target: PlanTarget, share: Share, name: str, limit: int | None, contexts: int) -> Share:
    needed = contexts * target.context_memory(share.sm_count)
    warnings = share.warnings
    if limit is not None and limit <= needed:
        what = f"{contexts} contexts" if contexts > 1 else "a context"
        warnings += (
            f"the limit of {format_size(limit)} is too small: {what} on {share.sm_count} SMs"
            f" {'take' if contexts > 1 else 'takes'} about {format_size(needed)}, so the client could not start",
        )
    elif limit is not None and limit < 2 * needed:
        warnings += (f"the context itself takes about {format_size(needed)} of the {format_size(limit)} limit",)
    return Share(
        name,
        share.percentage,
        share.sm_count,
        share.wanted_sms,
        limit,
        needed,
        share.affinity_sms,
        warnings,
    )


def _rest(target: PlanTarget, shares: Sequence[Share], contexts: int) -> Rest:
    sms = target.sm_count - sum(share.sm_count for share in shares)
    limits = [share.memory for share in shares if share.memory is not None]
    memory = None
    if target.usable_memory is not None and len(limits) == len(shares):
        memory = target.usable_memory - sum(limits)
    return Rest(
        max(0, sms),
        None if memory is None else max(0, memory),
        target.context_limit - contexts * len(shares),
        max(0, -sms),
        max(0, -(memory or 0)),
    )


def _warnings(target: PlanTarget, strategy: Strategy, shares: Sequence[Share], left: Rest) -> tuple[str, ...]:
    found = []
    total = sum(share.sm_count for share in shares)
    wanted = sum(share.wanted_sms for share in shares)
    if not target.rounding.measured:
        found.append("how this device rounds has not been measured: the SM counts are estimates")
    if left.over_sm_count:
        purpose = ", as this strategy means it" if strategy == "half" else ""
        found.append(
            f"over-committed{purpose}: {total} of {target.sm_count} SMs, so that clients that are busy at the same"
            " time share some of them"
        )
    elif left.sm_count and wanted > total:
        found.append(f"rounding leaves {left.sm_count} of {target.sm_count} SMs in no share")
    if left.over_memory:
        found.append(
            f"over-committed: the limits come to {format_size(left.over_memory)} more than the"
            f" {format_size(target.usable_memory)} that the driver and the MPS server leave of the device"
            f" (they take about {format_size(RESERVED)})"
        )
    if any(share.memory is None for share in shares):
        found.append("without a memory limit one client can take all of the memory")
    return tuple(found)
