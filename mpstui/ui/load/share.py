"""How far the share of a running client goes, and the words for it."""

from __future__ import annotations

from mpstui.core.text import format_percentage
from mpstui.load.types import WorkerReport

Fact = tuple[str, str]
_RAISE = "l raises it, then R restarts it"


def no_further(number: int, at: int, steps: int, total: int, limit: float | None, now: int | None) -> str:
    """Why a share does not go on by ``steps`` from ``at`` SMs.

    ``total``: SMs of the device. ``limit``: the percentage of its server today, ``now`` what that comes to in SMs;
    None where it is not known, or there is none.
    """
    who = f"client {number}"
    if steps < 0:
        return f"{who} has {at} SM: no share is smaller"
    if at >= total:
        return f"{who} has all {total} SM"
    if now is not None and now > at:
        return (
            f"{who} has at most {at} SM: R restarts it with the server's present {format_percentage(limit)}, {now} SM"
        )
    if now is not None:
        return f"{who} has at most {at} SM, the server's {format_percentage(limit)}: {_RAISE}"
    return f"{who} has at most {at} SM of {total}, the limit that it was started with"


def about_share(
    report: WorkerReport, mps: bool, stopped: bool, total: int | None, limit: float | None, now: int | None
) -> str:
    """What the arrow keys do with the client under the cursor."""
    if report.over and stopped:
        return "This client was stopped. Tab goes to the fields, where Enter starts new ones."
    if report.over:
        return "This client has ended. R starts it again; Tab goes to the fields, where Enter starts new ones."
    if not mps:
        return "Without MPS a client has no share: all take turns on the whole GPU."
    if report.sms is None or total is None:
        return "This client is not ready yet."
    if len(report.levels) < 2:
        why = "this device cannot set a context's share" if report.affinity is False else "it has no pool of contexts"
        return f"←→ choose the share of its next start, R restarts it: {why}."
    moved = "←→ move the share while the client runs, also with the key held down; Shift in bigger steps."
    if report.levels[-1] < total:
        return f"{moved} C{no_further(report.worker, report.levels[-1], 1, total, limit, now)[1:]}."
    return moved


def facts_of(report: WorkerReport, mps: bool, total: int | None) -> list[Fact]:
    """The share, the steps that it can go, and what they cost."""
    found: list[Fact] = [("kernel", report.kernel)]
    if report.sms is not None and total and mps:
        found.append(("share", f"{report.sms} of {total} SM, {report.sms / total * 100:.0f} %"))
    if len(report.levels) > 1 and mps and not report.over:
        found.append(("steps", ", ".join(map(str, report.levels)) + " SM"))
    if report.percentage is not None:
        found.append(("started", f"with {report.percentage:g} % of its own"))
    return found
