"""The form that starts a control daemon, or one for each GPU: what would be run is shown before anything is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Input

from mpstui.core.model import Daemon, Snapshot
from mpstui.core.text import UNKNOWN, path_text, plural
from mpstui.daemons.spec import DaemonSpec, Wish, for_driver, newer_modes
from mpstui.operations.types import Progress
from mpstui.plan.amounts import PlanError
from mpstui.plan.cpus import cpu_list
from mpstui.plan.profile import Profile, ProfileError
from mpstui.ui.contract import Runner
from mpstui.ui.daemons.contract import DaemonBackend
from mpstui.ui.dialogs.progress import DialogOutcome, ProgressDialog
from mpstui.ui.dialogs.widgets import Choice, Chooser, Lines, Listing, Toggles, labelled, plain
from mpstui.ui.form import TypedLine
from mpstui.ui.plan.contract import Entry, PlanBackend

_COLUMNS: Final = 70
"""Of a command, so that all of it can be read in the smallest dialog."""


class StartDialog(ProgressDialog):
    """A profile says everything itself; without one the fields do."""

    AUTO_FOCUS: ClassVar[str] = "#devices"
    ASKS_AGAIN = True
    DEFAULT_CSS = "StartDialog Listing { margin-top: 0; } StartDialog .-short .field { margin-bottom: 0; }"

    def __init__(
        self,
        backend: DaemonBackend,
        plans: PlanBackend,
        runner: Runner,
        snapshot: Snapshot,
        gone: Daemon | None = None,
    ) -> None:
        """``gone``: a daemon that was there; its place is what an empty field for the directory means."""
        super().__init__(snapshot, "Start a daemon")
        self._gone = gone
        self._backend = backend
        self._plans = plans
        self._runner = runner
        self._entries: dict[str, Entry] = {}
        self._specs: tuple[DaemonSpec, ...] = ()
        self._started: tuple[DaemonSpec, ...] = ()

    def compose(self) -> ComposeResult:
        devices = [
            Choice(d.uuid, f"GPU {UNKNOWN if d.index is None else d.index}", f"{d.name or ''}  {d.uuid[:12]}")
            for d in self.snapshot.devices
        ]
        modes = [
            Choice("per_gpu", "one daemon for each GPU", "each with its own directories"),
            Choice("multi_user", "several users at the same time", "-M"),
        ]
        more = (
            Choice("static", "static SM partitions", "-S"),
            Choice("protocol_3", "named servers and namespaces", "-p 3"),
        )
        modes += [choice for choice in more if choice.value in newer_modes(self.snapshot.driver_version)]
        cpus = TypedLine(id="cpus", max_length=120, placeholder="any, or 0-3,8; one daemon for each GPU: one CPU each")
        usual = "the usual one, e.g. /tmp/mps_0" if self._gone is None else path_text(self._gone.pipe_dir)
        where = TypedLine(id="where", max_length=120, placeholder=usual)
        none = [Choice(None, "none", "the fields below")]
        yield self.frame(
            "Start a control daemon",
            "Space on/off · Tab move · Enter next · Esc close",
            labelled("Profile", Chooser(none, id="profile"), classes="field entry"),
            labelled("Devices", Toggles(devices, id="devices"), classes="field entry"),
            labelled("", Toggles(modes, id="modes"), classes="field entry"),
            labelled("CPUs", cpus, classes="field entry"),
            labelled("Directory", where, classes="field entry"),
            Listing(id="specs", classes="question"),
            Lines(id="problem"),
            *self.outcome_parts(),
            foot=self.foot("Start"),
        )

    async def look(self) -> None:
        try:
            found = await self._plans.profiles()
        except ProfileError:
            return  # without profiles the fields are enough; the plan screen tells what is wrong
        if not self.is_attached:
            return
        self._entries = {entry.name: entry for entry in found if entry.profile is not None}
        choices = [Choice(None, "none", "the fields below")]
        choices += [Choice(e.name, e.name, e.profile.description if e.profile else "") for e in self._entries.values()]
        self.query_one("#profile", Chooser).show(choices)
        self.show()

    @property
    def profile(self) -> Profile | None:
        """The chosen one."""
        chosen = self.query_one("#profile", Chooser).chosen
        entry = self._entries.get(str(chosen.value)) if chosen is not None and chosen.value is not None else None
        return entry.profile if entry else None

    def specs(self) -> tuple[DaemonSpec, ...]:
        """The daemons as the fields stand, and as this driver has them. Raises PlanError."""
        return for_driver(self._wanted(), self.snapshot.driver_version)

    def _wanted(self) -> tuple[DaemonSpec, ...]:
        if (profile := self.profile) is not None:
            return self._backend.specs_of_profile(profile)
        modes = self.query_one("#modes", Toggles).on
        cpus = self.query_one("#cpus", Input).value.strip()
        where = self.query_one("#where", Input).value.strip()
        if where and not (where.startswith("/") and Path(where).name):
            raise PlanError("the directory must be an absolute path, as /tmp/mps_0")
        chosen = self.query_one("#devices", Toggles)
        devices = tuple(str(choice.value) for choice in chosen.choices if choice.value in chosen.on)
        again = None if where or "per_gpu" in modes else self._gone
        if self.snapshot.source == "simulated" and not where and again is None:
            raise PlanError("type a directory: in the usual one programs look for a real daemon, not a simulated one")
        wish = Wish(
            devices,
            "per_gpu" in modes,
            "multi_user" in modes,
            cpu_list(cpus) if cpus else None,
            Path(where) if where else again.pipe_dir if again is not None else None,
            again.log_dir if again is not None else None,
            "static" in modes,
            3 if "protocol_3" in modes else 2,
        )
        return self._backend.specs(wish, self.snapshot.devices)

    def show(self) -> None:
        if self.settled:
            self.show_foot("Start", ready=False)
            return
        for name in ("devices", "modes", "cpus", "where"):
            self.query_one(f"#{name}").disabled = self.profile is not None
        problem = self._backend.cannot_start
        try:
            self._specs = self.specs()
        except PlanError as error:
            self._specs, problem = (), problem or str(error)
        lines: list[Content] = []
        for spec in self._specs:
            there = self.snapshot.daemon(spec.pipe_dir)
            if there is not None and there.runs:
                problem = problem or f"a daemon runs in {path_text(spec.pipe_dir)} already"
            parts = wrap(plain(self._backend.command(spec)), _COLUMNS, break_long_words=False, break_on_hyphens=False)
            lines += [Content.styled(f"{'  ' if part is not parts[0] else ''}{part}", "bold") for part in parts]
        self.query_one("#specs", Listing).show(f"Would be run: {plural(len(self._specs), 'daemon')}", lines)
        self.show_problem(problem)
        self.show_foot("Start", ready=problem is None and bool(self._specs))

    @on(Input.Submitted)
    def _next(self) -> None:
        self.app.action_focus_next()

    def pressed(self, button: str) -> None:
        specs, profile = self._specs, self.profile
        self.begin(lambda progress: self._start(specs, profile, progress))

    async def _start(self, specs: Sequence[DaemonSpec], profile: Profile | None, progress: Progress) -> DialogOutcome:
        details: list[str] = []
        for position, spec in enumerate(specs):
            result = await self._backend.start(spec, progress)
            if not result.done:
                missing = [path_text(other.pipe_dir) for other in specs[position + 1 :]]
                not_tried = (f"not tried: {', '.join(missing)}",) if missing else ()
                return DialogOutcome(False, result.message, (*details, *result.details, *not_tried))
            details += [result.message, *result.details] if len(specs) > 1 else list(result.details)
            self._backend.watch(spec.pipe_dir)
        message = result.message if len(specs) == 1 else f"{len(specs)} daemons run"
        remedy = ""
        if profile is not None and any(one.limits != type(one.limits)() for one in profile.daemons):
            remedy = "Its limits are not set yet: V on the screen Plan (p) opens the profile, and applies it."
        return DialogOutcome(True, message, tuple(details), remedy)
