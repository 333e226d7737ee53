"""The confirmation before a plan or a profile is applied: every command, the report, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from textual.app import ComposeResult
from textual.content import Content

from mpstui.core.model import Snapshot
from mpstui.core.text import path_text, plural
from mpstui.operations.apply import (
    ApplyProfile,
    ApplyStep,
    GoBack,
    Report,
    WayBack,
    beside_words,
    came_of,
    can_go_back,
    command_text,
    reached_beside,
    report_of,
    steps,
    way_of,
)
from mpstui.operations.types import Progress
from mpstui.plan.amounts import PlanError
from mpstui.plan.profile import DaemonProfile
from mpstui.plan.settings import WAITS, waits_for_a_server
from mpstui.ui.contract import Runner
from mpstui.ui.dialogs.progress import DialogOutcome, ProgressDialog
from mpstui.ui.dialogs.widgets import Lines, Listing, Push, in_columns, marked, plain

_NAMED = 6
"""Clients of one kind that are named; there is little room."""
Targets = Sequence[tuple[Path, DaemonProfile]]
Misfits = Callable[[Snapshot], Sequence[str]]
"""The clients that do not fit what is applied, one line each, and why."""


def steps_of(snapshot: Snapshot, targets: Targets) -> tuple[list[tuple[Path, tuple[ApplyStep, ...]]], str]:
    """The commands for each daemon, and why there are none as asked; empty where there is nothing wrong."""
    found: list[tuple[Path, tuple[ApplyStep, ...]]] = []
    for pipe_dir, wanted in targets:
        daemon = snapshot.daemon(pipe_dir)
        if daemon is None or not daemon.answers:
            state = "absent" if daemon is None else "not to be asked" if daemon.unread else daemon.state_word
            return [], f"the daemon in {path_text(pipe_dir)} is {state}"
        try:
            found.append((pipe_dir, steps(snapshot, pipe_dir, wanted)))
        except PlanError as error:
            return [], str(error)
    return found, ""


def _named(mark: str, sentence: str, clients: Sequence[str]) -> list[Content]:
    """What is so of some clients, and which."""
    more = [f"and {len(clients) - _NAMED} more"] if len(clients) > _NAMED else []
    lines = (*in_columns(clients[:_NAMED]), *more)
    return [marked(mark, sentence, "$text-warning"), *(marked(" ", line) for line in lines)]


class ApplyDialog(ProgressDialog):
    """Lists the commands; where one fails, says what is in force and offers to take it back."""

    DEFAULT_CSS = "ApplyDialog #after { margin-top: 1; }"

    def __init__(
        self, runner: Runner, what: str, targets: Targets, snapshot: Snapshot, misfits: Misfits | None = None
    ) -> None:
        super().__init__(snapshot, "Apply")
        self._runner = runner
        self._what = what
        self._targets = tuple(targets)
        self._misfits = misfits
        self._reports: list[Report] = []
        self._back: list[WayBack] | None = None

    def compose(self) -> ComposeResult:
        yield self.frame(
            f"Apply {self._what}",
            "Enter presses the marked button · Tab move · Esc cancel",
            Listing(id="commands", classes="question"),
            Lines(id="after", classes="question"),
            Lines(id="problem"),
            *self.outcome_parts(),
            foot=(*self.foot("Apply"), Push("Go back", id="back", classes="-harm")),
        )

    def show(self) -> None:
        back = self.query_one("#back", Push)
        back.display = self.state == "ended" and self._back is None and can_go_back(self._reports)
        if self.state != "asking":
            self.show_foot("Apply", ready=False)
            self.query_one("#apply").display = False
            self.hint_meanwhile()
            if back.display and self.focused is None:
                self.query_one("#cancel").focus()
            return
        found, problem = steps_of(self.snapshot, self._targets)
        lines: list[Content] = []
        commands = [command_text(step) for _, planned in found for step in planned]
        width = max(map(len, commands), default=0) + 2
        for pipe_dir, planned in found:
            if len(found) > 1:
                lines.append(Content.styled(plain(path_text(pipe_dir)), "$text-primary bold"))
            for step in planned:
                difference = step.difference
                lines.append(
                    Content.assemble(
                        (plain(command_text(step)).ljust(width), "bold"),
                        (plain(f"{difference.found} → {difference.wanted}"), "$text-muted"),
                    )
                )
        number = sum(len(planned) for _, planned in found)
        self.query_one("#commands", Listing).show(f"{plural(number, 'command')}, each read back", lines)
        notes = self._unfit() if number else []
        notes += [marked("⟳", "Connected clients keep what they have until they are restarted.")] if number else []
        for pipe_dir, wanted in self._targets:
            daemon = self.snapshot.daemon(pipe_dir)
            planned = next((planned for path, planned in found if path == pipe_dir), ())
            beside = reached_beside(daemon, wanted, planned) if daemon is not None else None
            if beside is not None:
                sentence, clients = beside_words(beside, self.snapshot)
                notes += _named("▲", sentence, clients)
            if daemon is not None and waits_for_a_server(daemon, wanted):
                notes.append(marked("▲", WAITS, "$text-warning"))
        if not number and not problem:
            notes.append(marked("✓", "Nothing differs: there is nothing to send.", "$text-success"))
        self.query_one("#after", Lines).show(*notes)
        requests = [step.difference.request for _, planned in found for step in planned]
        refused = next((e for r in requests if (e := self._runner.preview(r, self.snapshot).error)), None)
        refusal = problem or refused
        self.show_problem(refusal)
        self.show_foot("Apply", ready=refusal is None and number > 0)

    def _unfit(self) -> list[Content]:
        """Who does not fit it, with the figures of now."""
        found = self._misfits(self.snapshot) if self._misfits is not None else ()
        if not found:
            return []
        do = "does" if len(found) == 1 else "do"
        return _named("✕", f"{plural(len(found), 'client')} {do} not fit when restarted:", found)

    def pressed(self, button: str) -> None:
        self.begin(self._go_back if button == "back" else self._apply)

    async def _apply(self, progress: Progress) -> DialogOutcome:
        found, problem = steps_of(self.snapshot, self._targets)
        if problem:
            return DialogOutcome(False, problem)
        self._reports = []
        for (pipe_dir, wanted), (_, planned) in zip(self._targets, found, strict=True):
            request = ApplyProfile().request(pipe_dir, wanted)
            result = await self._runner.execute(request, self.asked, progress) if planned else None
            self._reports.append(report_of(result, planned) if result is not None else Report())
            if not self._reports[-1].complete:
                break
        lines = tuple(line for report in self._reports for line in report.lines())
        good = all(report.complete for report in self._reports)
        remedy = "Go back undoes what was set." if can_go_back(self._reports) else ""
        return DialogOutcome(good, f"{self._what}: {came_of(self._reports)}", lines, remedy)

    async def _go_back(self, progress: Progress) -> DialogOutcome:
        self._back = [
            way_of(await self._runner.execute(GoBack().request(report), self.asked, progress), report)
            for report in reversed(self._reports)
            if report.done
        ]
        lines = tuple(line for way in self._back for line in way.lines())
        stays = any(way.stays for way in self._back)
        return DialogOutcome(
            not stays, "not all of it could be undone" if stays else "everything is as it was before", lines
        )
