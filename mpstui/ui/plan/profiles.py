"""Profiles from the screen: keep a plan or what is in force, look at one, what differs, put it into the plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Input

from mpstui.core.model import Snapshot
from mpstui.core.text import path_text, plural
from mpstui.operations.types import Progress
from mpstui.plan.amounts import PlanError
from mpstui.plan.profile import NAME, DaemonProfile, Profile, ProfileError
from mpstui.plan.settings import WAITS, drift, unsaid, waits_for_a_server
from mpstui.ui.dialogs.progress import DialogOutcome, ProgressDialog
from mpstui.ui.dialogs.widgets import Choice, Chooser, DetailRow, Lines, Listing, Push, Sheet, labelled, marked, plain
from mpstui.ui.form import TypedLine
from mpstui.ui.plan.applying import Targets
from mpstui.ui.plan.contract import Entry, PlanBackend


class SaveDialog(ProgressDialog):
    """A name, and what is kept: the plan, or what the daemon has now. Replacing a profile is said beforehand."""

    AUTO_FOCUS: ClassVar[str] = "#name"
    ASKS_AGAIN = True

    def __init__(
        self,
        backend: PlanBackend,
        snapshot: Snapshot,
        pipe_dir: Path | None,
        plan: Profile | None,
        name: str,
        kept: Callable[[str], None],
        why: str = "",
    ) -> None:
        """``plan``: None where there is none to keep, ``why`` not. ``kept``: told the name under which the plan is
        kept."""
        super().__init__(snapshot, "Save")
        self._backend = backend
        self._pipe_dir = pipe_dir
        self._plan = plan
        self._proposed = name
        self._kept = kept
        self._why = why
        self._entries: dict[str, Entry] | None = None
        self._trouble: str | None = None

    def compose(self) -> ComposeResult:
        entry = TypedLine(self._proposed, id="name", max_length=64, placeholder="letters, digits, . _ and -")
        choices = [Choice("plan", "the plan", "the daemon's limits and the shares")] if self._plan else []
        daemon = self.snapshot.daemon(self._pipe_dir) if self._pipe_dir else None
        if daemon is not None and daemon.answers:
            choices.append(
                Choice("now", "what is in force", f"the limits of the daemon in {path_text(self._pipe_dir)}")
            )
        yield self.frame(
            "Save as a profile" if self._plan else "Save what is in force as a profile, not the plan",
            "Enter next · Tab move · ↑↓ choose · Esc close",
            labelled("Name", entry, classes="field entry"),
            labelled("What", Chooser(choices, id="what"), classes="field entry"),
            Lines(id="note", classes="entry"),
            Lines(id="problem"),
            *self.outcome_parts(),
            foot=self.foot("Save"),
        )

    async def look(self) -> None:
        try:
            self._entries, self._trouble = {entry.name: entry for entry in await self._backend.profiles()}, None
        except ProfileError as error:
            self._trouble = str(error)
        if self.is_attached:
            self.show()

    def show(self) -> None:
        name = self.query_one("#name", Input).value.strip()
        there = name in (self._entries or {})
        if self.settled:
            self.show_foot("Save", ready=False)
            return
        problem = self._trouble
        if name and not NAME.fullmatch(name):
            problem = "a name is letters, digits, . _ and - only, at most 64"
        elif self.query_one("#what", Chooser).chosen is None:
            problem = "there is neither a plan nor a daemon to keep"
        note = [marked("▲", f"there is a profile “{name}” already; it would be replaced", "$text-warning")]
        no_plan = [marked("▲", f"the plan is not kept: {self._why}", "$text-warning")] if self._why else []
        self.query_one("#note", Lines).show(*no_plan, *(note if there and not problem else []))
        self.show_problem(problem)
        self.show_foot("Replace" if there else "Save", ready=bool(name) and not problem and self._entries is not None)

    @on(Input.Submitted)
    def _next(self) -> None:
        apply = self.query_one("#apply", Push)
        if not apply.disabled:
            apply.focus()
        elif self.state == "asking":
            self.say_refused()

    def pressed(self, button: str) -> None:
        self.begin(self._save)

    async def _save(self, progress: Progress) -> DialogOutcome:
        name = self.query_one("#name", Input).value.strip()
        chosen = self.query_one("#what", Chooser).chosen
        old = (self._entries or {}).get(name)
        plan = self._plan if chosen is not None and chosen.value == "plan" else None
        try:
            profile = plan
            if profile is None:
                assert self._pipe_dir is not None  # otherwise it cannot be chosen  # noqa: S101
                profile = await self._backend.in_force(self.snapshot, self._pipe_dir, old.profile if old else None)
            path = await self._backend.save(name, profile, replace=old is not None)
        except ProfileError as error:
            await self.look()  # perhaps somebody else has just kept one by that name
            return DialogOutcome(False, str(error))
        self._kept(name if plan is not None else "")
        return DialogOutcome(
            True,
            f"{'what is in force' if plan is None else 'the plan'} is kept as {path_text(path)}",
            _unsaid(self.snapshot, profile) if plan is None else (),
        )


def _unsaid(snapshot: Snapshot, profile: Profile) -> tuple[str, ...]:
    """What of a daemon a profile cannot say."""
    found: list[str] = []
    for one in profile.daemons:
        daemon = snapshot.daemon(one.pipe_dir) if one.pipe_dir else None
        if daemon is not None:
            found += unsaid(daemon, one)
    return tuple(found)


def targets_of(profile: Profile, pipe_dir: Path | None) -> Targets:
    """The daemons that a profile is for; one without a directory is for the daemon on the screen."""
    daemons = profile.daemons
    if len(daemons) == 1 and daemons[0].pipe_dir is None:
        return ((pipe_dir, daemons[0]),) if pipe_dir is not None else ()
    return tuple((one.pipe_dir, one) for one in daemons if one.pipe_dir is not None)


def differences(snapshot: Snapshot, targets: Targets) -> tuple[list[Content], str]:
    """What is not as a profile says, one line each, and why that cannot be told."""
    lines: list[Content] = []
    for pipe_dir, one in targets:
        daemon = snapshot.daemon(pipe_dir)
        if daemon is None or not daemon.answers:
            state = (
                "not on this screen" if daemon is None else "not to be asked" if daemon.unread else daemon.state_word
            )
            return [], f"its daemon in {path_text(pipe_dir)} is {state}"
        try:
            found = drift(daemon, one)
        except PlanError as error:
            return [], str(error)
        head = f"{path_text(pipe_dir)}: " if len(targets) > 1 else ""
        lines += [marked("≠", f"{head}{d.what}: is {d.found}, should be {d.wanted}") for d in found]
        if waits_for_a_server(daemon, one):
            lines.append(marked("▲", WAITS, "$text-warning"))
    return lines, ""


class OpenDialog(ProgressDialog):
    """The profiles; for the chosen one what it says and what differs from what is in force."""

    AUTO_FOCUS: ClassVar[str] = "#which"

    def __init__(
        self,
        backend: PlanBackend,
        snapshot: Snapshot,
        pipe_dir: Path | None,
        into: Callable[[str, DaemonProfile], str | None] | None,
        apply: Callable[[str, Targets], None],
    ) -> None:
        """``into``: takes a profile's shares into the plan, or answers why not. ``apply``: asks and applies."""
        super().__init__(snapshot, "Open")
        self._backend = backend
        self._pipe_dir = pipe_dir
        self._into = into
        self._apply = apply
        self._entries: Sequence[Entry] | None = None
        self._trouble: str | None = None

    def compose(self) -> ComposeResult:
        yield self.frame(
            "Profiles",
            "↑↓ choose · Tab move · Esc close",
            labelled("Profile", Chooser((), id="which")),
            Sheet(id="facts", label_width=13),
            Listing(id="diff"),
            Lines(id="same"),
            Lines(id="problem"),
            foot=(*self.foot("Into the plan"), Push("Apply …", id="set", classes="-go")),
        )

    async def look(self) -> None:
        try:
            self._entries = await self._backend.profiles()
        except ProfileError as error:
            self._entries, self._trouble = (), str(error)
        if not self.is_attached:
            return
        choices = [
            Choice(e.name, e.name, e.profile.description if e.profile else "✕ cannot be read") for e in self._entries
        ]
        self.query_one("#which", Chooser).show(choices)
        self.show()

    @property
    def entry(self) -> Entry | None:
        """The chosen one."""
        chosen = self.query_one("#which", Chooser).chosen
        return next((e for e in self._entries or () if chosen is not None and e.name == chosen.value), None)

    def show(self) -> None:
        entry = self.entry
        profile = entry.profile if entry else None
        problem = self._trouble or (entry.problem if entry else None)
        lines: list[Content] = []
        if self._entries is not None and not self._entries and problem is None:
            problem = "there are no profiles yet; w on the screen Plan saves one"
        rows: list[DetailRow] = []
        if profile is not None:
            rows = _rows(profile)
            lines, why = differences(self.snapshot, targets_of(profile, self._pipe_dir))
            problem = problem or why or None
        same = profile is not None and not lines and problem is None
        self.query_one("#facts", Sheet).show(rows)
        self.query_one("#diff", Listing).show(f"Differs from the profile: {plural(len(lines), 'setting')}", lines)
        self.query_one("#same", Lines).show(
            *([marked("✓", "Everything is as the profile says.", "$text-success")] if same else [])
        )
        self.show_problem(problem)
        shares = bool(profile and any(one.shares for one in profile.daemons))
        self.show_foot("Into the plan", ready=shares and self._into is not None)
        can_set = bool(lines) and problem is None
        button = self.query_one("#set", Push)
        if button.has_focus and not can_set:
            self.query_one("#cancel").focus()
        button.disabled = not can_set

    def pressed(self, button: str) -> None:
        entry = self.entry
        if entry is None or entry.profile is None:
            return
        if button == "set":
            targets = targets_of(entry.profile, self._pipe_dir)
            self.dismiss(None)
            self._apply(entry.name, targets)
            return
        with_shares = next(one for one in entry.profile.daemons if one.shares)
        if self._into is not None:
            refusal = self._into(entry.name, with_shares)
            if refusal is not None:
                self.show_problem(refusal)
                return
        self.dismiss(None)


def _rows(profile: Profile) -> list[DetailRow]:
    rows = [DetailRow("about", profile.description)] if profile.description else []
    for one in profile.daemons:
        limits = one.limits
        text = [f"{limits.active_thread_percentage:g} %"] if limits.active_thread_percentage is not None else []
        text += [plural(len(limits.pinned_mem_limits), "memory limit")] * bool(limits.pinned_mem_limits)
        where = path_text(one.pipe_dir) if one.pipe_dir is not None else "whichever is on the screen"
        rows.append(DetailRow("daemon", f"{where}{'  ' if text else ''}{', '.join(text)}"))
        if one.shares:
            rows.append(DetailRow("shares", plain(", ".join(share.name for share in one.shares))))
    return rows


def profile_of(daemon: DaemonProfile, pipe_dir: Path | None, description: str) -> Profile:
    """A plan's daemon as a profile of its own."""
    return Profile((replace(daemon, pipe_dir=pipe_dir),), description)
