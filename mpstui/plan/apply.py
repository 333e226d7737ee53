"""Carries the steps of a plan or a profile out, one by one, and tells what is in force when one of them fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mpstui.core.model import Snapshot
from mpstui.operations.types import ExitStatus, Progress, Request, Result
from mpstui.plan.settings import Step


class Executes(Protocol):
    """What is needed of the action layer: each request is validated, sent, read back and written to the audit log."""

    async def execute(self, request: Request, snapshot: Snapshot, progress: Progress = ..., /) -> Result: ...


@dataclass(frozen=True, slots=True)
class Report:
    """What came of an apply."""

    done: tuple[Step, ...] = ()
    failed: Step | None = None
    result: Result | None = None
    """Of the step that failed."""
    not_tried: tuple[Step, ...] = ()

    @property
    def complete(self) -> bool:
        return self.failed is None

    @property
    def status(self) -> ExitStatus:
        return ExitStatus.DONE if self.result is None else self.result.status

    def lines(self) -> tuple[str, ...]:
        """What is in force and what is not, one line each."""
        found = [f"in force: {_says(step)}" for step in self.done]
        if self.failed is not None and self.result is not None:
            doubt = "perhaps in force" if self.result.status is ExitStatus.NO_ANSWER else "not in force"
            found.append(f"{doubt}: {_says(self.failed)}: {self.result.message}")
            found += [f"  {detail}" for detail in self.result.details]
        return (*found, *(f"not tried: {_says(step)}" for step in self.not_tried))


async def apply(
    runner: Executes, snapshot: Snapshot, steps: Sequence[Step], progress: Progress = lambda text: None
) -> Report:
    """Carry out ``steps`` in order, each read back before the next one; stops at the first that fails."""
    done: list[Step] = []
    for index, step in enumerate(steps):
        progress(_says(step))
        result = await runner.execute(step.difference.request, snapshot)
        if not result.done:
            return Report(tuple(done), step, result, tuple(steps[index + 1 :]))
        done.append(step)
    return Report(tuple(done))


def can_go_back(reports: Sequence[Report]) -> bool:
    """Whether one of several daemons failed, and something on any of them is in force that can be taken back."""
    failed = any(not report.complete for report in reports)
    return failed and any(step.undo is not None for report in reports for step in report.done)


@dataclass(frozen=True, slots=True)
class WayBack:
    """What came of going back."""

    undone: tuple[Step, ...]
    stays: tuple[tuple[Step, str], ...]
    """What is still in force, and why."""

    def lines(self) -> tuple[str, ...]:
        """One line for each step."""
        return (
            *(f"taken back: {_says(s)}" for s in self.undone),
            *(f"still in force: {_says(step)}: {why}" for step, why in self.stays),
        )


async def go_back(
    runner: Executes, snapshot: Snapshot, report: Report, progress: Progress = lambda text: None
) -> WayBack:
    """Take back what an apply has done, the last one first. One that cannot be taken back does not stop the others."""
    undone: list[Step] = []
    stays: list[tuple[Step, str]] = []
    for step in reversed(report.done):
        if step.undo is None:
            stays.append((step, step.undo_note))
            continue
        progress(f"back to {step.difference.found}: {step.difference.what}")
        result = await runner.execute(step.undo, snapshot)
        if result.done:
            undone.append(step)
        else:
            stays.append((step, result.message))
    return WayBack(tuple(undone), tuple(stays))


def _says(step: Step) -> str:
    return f"{step.difference.what} {step.difference.wanted}"
