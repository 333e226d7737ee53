"""A plan or a profile applied: the least commands from what a daemon has to what it should have, one by one, each a
change of its own that is read back; what is in force when one of them fails; and the way back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from mpstui.core.cells import client_line
from mpstui.core.late import dataclass
from mpstui.core.model import Client, Daemon, SmPartition, Snapshot
from mpstui.core.text import listed, nouns, path_text, plural
from mpstui.operations.limits import LIMITS
from mpstui.operations.operation import Executes, Operation, Work
from mpstui.operations.partitions import AddPartition, RemovePartition
from mpstui.operations.types import LATER, Argument, ExitStatus, Preview, Progress, Request, Result, Verb
from mpstui.operations.v3 import V3_OPERATIONS

# Imported by what runs: the table of operations costs every command as little as it can.
if TYPE_CHECKING:
    from mpstui.plan.profile import DaemonProfile
    from mpstui.plan.settings import Difference

_OF: Final[Mapping[str, Operation]] = {each.id: each for each in (*LIMITS, AddPartition(), *V3_OPERATIONS)}
"""What a step may be."""


@dataclass(frozen=True, slots=True)
class ApplyStep:
    """One command of an apply, and the one that takes it back."""

    difference: Difference
    undo: Request | None
    """None where what was before is not known."""
    undo_note: str = ""
    """Why going back is not quite what was before; empty where it is."""


def steps(snapshot: Snapshot, pipe_dir: Path, wanted: DaemonProfile) -> tuple[ApplyStep, ...]:
    """The least commands that bring the daemon from what it has to ``wanted``; none where nothing differs.

    Raises PlanError.
    """
    from mpstui.plan.amounts import PlanError
    from mpstui.plan.settings import drift

    daemon = snapshot.daemon(pipe_dir)
    if daemon is None:
        raise PlanError(f"no daemon at {path_text(pipe_dir)}")
    return tuple(_step(daemon, difference) for difference in drift(daemon, wanted))


def _step(daemon: Daemon, difference: Difference) -> ApplyStep:
    request = difference.request
    undo = _OF[request.action].undo(request, daemon)
    if undo is not None and request.subject is LATER:
        undo = undo._replace(subject=LATER)
    return ApplyStep(difference, undo, "" if undo is not None else "what it was is not known")


class Beside(NamedTuple):
    """Devices that a plan or a profile does not mean, and whom its commands reach there all the same."""

    devices: tuple[str, ...]
    """UUIDs."""
    clients: tuple[Client, ...]
    """Those with a context there now; they get it when they start anew, and so does whoever comes later."""


def reached_beside(daemon: Daemon, wanted: DaemonProfile, planned: Sequence[ApplyStep]) -> Beside | None:
    """A percentage holds for all devices of the daemon, whichever ``wanted`` is for; None where it is for all of them,
    and where no percentage is set."""
    known = {**daemon.ordinals, **{uuid: uuid for uuid in daemon.ordinals.values()}}
    meant = {known[device] for device in wanted.devices if device in known}
    others = tuple(uuid for uuid in daemon.ordinals.values() if uuid not in meant)
    if (
        not meant
        or not others
        or not any(step.difference.request.action == "set_active_thread_percentage" for step in planned)
    ):
        return None
    return Beside(others, tuple(c for c in daemon.clients() if not c.device_uuids.isdisjoint(others)))


def beside_words(beside: Beside, snapshot: Snapshot) -> tuple[str, tuple[str, ...]]:
    """A sentence, and one line for each client."""
    found = [device for uuid in beside.devices if (device := snapshot.device(uuid)) is not None]
    names = [str(device.index) for device in found if device.index is not None]
    if len(names) < len(beside.devices):
        names = list(beside.devices)
    where = f"{nouns(len(names), 'GPU')} {listed(names)}"
    count = len(beside.clients)
    who = f"{plural(count, 'client')} there now" if count else "no client is there now"
    return f"The percentage applies to all GPUs of the daemon: new clients on {where} get it too ({who}).", tuple(
        client_line(client) for client in beside.clients
    )


@dataclass(frozen=True, slots=True)
class Report:
    """What came of an apply."""

    done: tuple[ApplyStep, ...] = ()
    failed: ApplyStep | None = None
    result: Result | None = None
    """Of the step that failed."""
    not_tried: tuple[ApplyStep, ...] = ()

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
            doubt = "not known whether in force" if self.result.status is ExitStatus.NO_ANSWER else "not in force"
            found.append(f"{doubt}: {_says(self.failed)}: {self.result.message}")
            found += [f"  {detail}" for detail in self.result.details]
        return (*found, *(f"not tried: {_says(step)}" for step in self.not_tried))


def came_of(reports: Sequence[Report]) -> str:
    """How much of what was to be applied is in force, of all daemons together."""
    if all(report.complete for report in reports):
        return "all of it is in force"
    if any(report.done for report in reports):
        return "only a part is in force"
    unknown = any(report.status is ExitStatus.NO_ANSWER for report in reports)
    return "nothing of it is known to be in force" if unknown else "nothing of it was set"


async def apply(
    runner: Executes, snapshot: Snapshot, steps: Sequence[ApplyStep], progress: Progress = lambda text: None
) -> Report:
    """Carry out ``steps`` in order, each read back before the next one; stops at the first that fails."""
    done: list[ApplyStep] = []
    for index, step in enumerate(steps):
        progress(_says(step))
        result = await runner.execute(step.difference.request, snapshot)
        if not result.done:
            return Report(tuple(done), step, result, tuple(steps[index + 1 :]))
        if isinstance(result.outcome, SmPartition):  # only now it has a name
            gone = Request(RemovePartition.id, step.difference.request.pipe_dir, result.outcome.name, subject=LATER)
            step = replace(step, undo=gone, undo_note="")
        done.append(step)
    return Report(tuple(done))


def can_go_back(reports: Sequence[Report]) -> bool:
    """Whether one of several daemons failed, and something on any of them is in force that can be taken back."""
    failed = any(not report.complete for report in reports)
    return failed and any(step.undo is not None for report in reports for step in report.done)


@dataclass(frozen=True, slots=True)
class WayBack:
    """What came of going back."""

    undone: tuple[ApplyStep, ...]
    stays: tuple[tuple[ApplyStep, str], ...]
    """What is still in force, and why."""

    def lines(self) -> tuple[str, ...]:
        """One line for each step."""
        return (
            *(f"undone: {_says(s)}" for s in self.undone),
            *(f"still in force: {_says(step)}: {why}" for step, why in self.stays),
        )


async def go_back(
    runner: Executes, snapshot: Snapshot, report: Report, progress: Progress = lambda text: None
) -> WayBack:
    """Take back what an apply has done, the last one first. One that cannot be taken back does not stop the others."""
    undone: list[ApplyStep] = []
    stays: list[tuple[ApplyStep, str]] = []
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


def _says(step: ApplyStep) -> str:
    return f"{step.difference.what} {step.difference.wanted}"


def report_of(result: Result, planned: Sequence[ApplyStep]) -> Report:
    """What an apply came to; one that was refused as a whole has failed at its first step."""
    if isinstance(result.outcome, Report):
        return result.outcome
    return Report((), planned[0], result, tuple(planned[1:])) if planned else Report()


def way_of(result: Result, report: Report) -> WayBack:
    """What going back came to; where it was refused as a whole, everything stays."""
    if isinstance(result.outcome, WayBack):
        return result.outcome
    return WayBack((), tuple((step, result.message) for step in report.done))


class _Several(Operation):
    """Several changes in a row, each carried out by the runner as if it were asked for alone."""

    place = "plan"
    in_turn = False
    """Each step takes its own."""

    async def run(self, work: Work) -> Result:
        return await self.carry_out(work.runner, work.request, work.snapshot, work.progress)

    async def carry_out(self, runner: Executes, request: Request, snapshot: Snapshot, progress: Progress) -> Result:
        """Through ``runner``, on the newest snapshot."""
        raise NotImplementedError


class ApplyProfile(_Several):
    """A daemon brought to what a plan or a profile says of it: ``Request.subject`` is its DaemonProfile."""

    id = "apply_profile"
    subject = "a DaemonProfile"
    title = "Apply"
    key = "A"
    key_id = "plan.apply"
    help = "Apply the plan"
    verb = Verb(
        ("profile", "apply"), "bring the daemons to what a profile says", example="mpstui profile apply day --dry-run"
    )
    arguments = (
        Argument("name", "Profile", help="of the profile", metavar="NAME"),
        Argument("flag", "", help="only show what would be sent", option="--dry-run"),
    )

    def request(self, pipe_dir: Path, wanted: DaemonProfile) -> Request:
        """For one daemon."""
        return Request(self.id, pipe_dir, subject=wanted)

    def preview(self, request: Request, snapshot: Snapshot) -> Preview:
        """Each command with what it is today. What stands against one of them is told when it is its turn."""
        from mpstui.plan.amounts import PlanError
        from mpstui.plan.profile import DaemonProfile

        if not isinstance(request.subject, DaemonProfile):
            return Preview(self.title, error="say what is to be applied", error_status=ExitStatus.USAGE)
        try:
            planned = steps(snapshot, request.pipe_dir, request.subject)
        except PlanError as error:
            return Preview(self.title, error=str(error), error_status=ExitStatus.USAGE)
        daemon = snapshot.daemon(request.pipe_dir)
        beside = reached_beside(daemon, request.subject, planned) if daemon is not None else None
        facts = tuple((command_text(s), f"{s.difference.found} → {s.difference.wanted}") for s in planned)
        warnings = (beside_words(beside, snapshot)[0],) if beside is not None else ()
        kept = tuple(client_line(client) for client in daemon.clients()) if daemon is not None and planned else ()
        return Preview(self.title, facts, kept, warnings=warnings)

    async def carry_out(self, runner: Executes, request: Request, snapshot: Snapshot, progress: Progress) -> Result:
        from mpstui.plan.profile import DaemonProfile

        wanted = request.subject
        if not isinstance(wanted, DaemonProfile):
            raise AssertionError("checked by the preview")
        report = await apply(runner, snapshot, steps(snapshot, request.pipe_dir, wanted), progress)
        return Result(request, report.status, came_of((report,)), report.lines(), outcome=report)


class GoBack(_Several):
    """What an apply has done taken back: ``Request.subject`` is its Report."""

    id = "go_back"
    subject = "the Report of an apply"
    title = "Go back"
    key = ""
    help = "Undo the changes that a failed apply made before it failed"
    verb = Verb(("profile", "apply"), "if a step fails, undo the others without asking", flag="--go-back")

    def request(self, report: Report) -> Request:
        """Of one daemon."""
        step = next(iter(report.done), report.failed)
        return Request(self.id, step.difference.request.pipe_dir if step is not None else Path(), subject=report)

    def preview(self, request: Request, snapshot: Snapshot) -> Preview:
        report = request.subject
        if not isinstance(report, Report) or not report.done:
            return Preview(self.title, error="nothing was set", error_status=ExitStatus.USAGE)
        facts = tuple((step.difference.what, step.undo_note or step.difference.found) for step in reversed(report.done))
        return Preview(self.title, facts)

    async def carry_out(self, runner: Executes, request: Request, snapshot: Snapshot, progress: Progress) -> Result:
        if not isinstance(request.subject, Report):
            raise AssertionError("checked by the preview")
        way = await go_back(runner, snapshot, request.subject, progress)
        failed = bool(way.stays)
        message = "not all of it could be undone" if failed else "everything is as it was before"
        status = ExitStatus.REFUSED_BY_DAEMON if failed else ExitStatus.DONE
        return Result(request, status, message, way.lines(), outcome=way)


def command_text(step: ApplyStep) -> str:
    """The control command of a step, for a person to read."""
    return _OF[step.difference.request.action].command(step.difference.request)


def undo_line(step: ApplyStep) -> str:
    """The command line that takes a step back, or why there is none."""
    if step.undo is None:
        return f"{step.difference.what}: {step.undo_note}"
    return {**_OF, RemovePartition.id: RemovePartition()}[step.undo.action].command_line(step.undo)
