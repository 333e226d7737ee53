"""The plan screen: fields, bars of shares moved by keys, the device as a whole, and what it means for who is there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from mpstui.core.cells import no_daemon
from mpstui.core.model import Snapshot
from mpstui.core.text import plural
from mpstui.operations.apply import ApplyProfile, ApplyStep
from mpstui.operations.registry import operation
from mpstui.plan.amounts import PlanError
from mpstui.plan.profile import DaemonProfile
from mpstui.ui.bars import KeyHint, unless
from mpstui.ui.box import Box, wrapped
from mpstui.ui.contract import Runner
from mpstui.ui.keys import own_binding
from mpstui.ui.layout import room_of
from mpstui.ui.lines import Line
from mpstui.ui.panel import Panel
from mpstui.ui.plan.applying import ApplyDialog, Misfits, Targets, steps_of
from mpstui.ui.plan.bars import SharesPanel
from mpstui.ui.plan.comparison import ComparisonPanel, DeviceBar, notes_of
from mpstui.ui.plan.contract import PlanBackend
from mpstui.ui.plan.draft import (
    Draft,
    Picture,
    draft_of,
    nudge_memory,
    nudge_sms,
    picture,
    settings_of,
    wanted,
)
from mpstui.ui.plan.exporting import ExportDialog
from mpstui.ui.plan.fields import FIELDS, PlanFields
from mpstui.ui.plan.profiles import OpenDialog, SaveDialog, profile_of
from mpstui.ui.screens import SideScreen
from mpstui.ui.typeahead import opens

WIDE: Final = 118
"""Cells from which fields and bars stand side by side."""
_LEFT: Final = 46
_LEFT_MOST: Final = 72
"""Cells of the fields: for the longest names of devices."""
_RIGHT: Final = 114
"""Cells of the bars from which on the fields get more."""
_ALLOWED: Final = "the daemon's limits allow the plan already: there is nothing to set"


class AboutField(Box):
    """What the field under the cursor is for."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._text = ""

    def show(self, text: str) -> None:
        self._text = text
        self.repaint()

    def title(self) -> Line:
        return (("About", "title"),)

    def body(self, width: int, height: int) -> list[Line]:
        return wrapped(self._text, width, "text")


class PlanScreen(SideScreen):
    """Numbers, warnings and what is left follow at each key; nothing is sent before it was asked."""

    AUTO_FOCUS = "#fields"
    NAME = "Plan"
    BACK = "plan.back"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "other(1)", "Fields, bars, comparison", show=False, id="plan.other"),
        Binding("shift+tab", "other(-1)", "Back through them", show=False, id="plan.other_back"),
        own_binding(operation("apply_profile"), "apply"),
        Binding("C", "export", "Export the shares", show=False, id="plan.export"),
        Binding("w", "save", "Save as a profile", show=False, id="plan.save"),
        Binding("V", "open_profile", "Open a profile; what differs", show=False, id="plan.open"),
        Binding("r", "read_again", "Read the present tenants again", show=False, id="plan.again"),
        Binding("escape", "back", "Back", show=False, id="plan.back"),
    ]
    DEFAULT_CSS = """
    PlanScreen {
        & #plan { height: 1fr; layout: horizontal; }
        & #left { height: 100%; layout: vertical; }
        & #right { width: 1fr; height: 100%; layout: vertical; }
        & #fields { height: 10; }
        & #about { height: 1fr; }
        & #shares { height: 1fr; }
        & #device { height: 7; }
        & #notes { height: 11; }
        &.-narrow #plan { layout: vertical; }
        &.-narrow #left { height: auto; }
        &.-narrow #right { width: 100%; height: 1fr; }
        &.-narrow #about { display: none; }
        &.-short #notes { height: 6; }
        &.-short #device { height: 5; }
    }
    """

    def __init__(self, backend: PlanBackend, runner: Runner) -> None:
        super().__init__(runner)
        self._backend = backend
        self._kept = ("", Draft())
        """The profile under which a draft is kept."""
        self._now = picture(PlanFields().draft, None, ())
        self.fields = PlanFields(id="fields")
        self.about = AboutField(id="about")
        self.shares = SharesPanel(id="shares")
        self.device_bar = DeviceBar(id="device")
        self.notes = ComparisonPanel(id="notes")

    def parts(self) -> ComposeResult:
        with Container(id="plan"):
            with Container(id="left"):
                yield self.fields
                yield self.about
            with Container(id="right"):
                yield self.shares
                yield self.device_bar
                yield self.notes

    # What it shows.

    def open_for(self, snapshot: Snapshot | None, pipe_dir: Path | None, device: str | None = None) -> None:
        """The node and the daemon that is planned for, and the device that is meant, where nobody has said before which
        one. Before it is pushed."""
        if pipe_dir != self.pipe_dir:
            self.fields.draft, self.fields.settled = Draft(), False
        self.snapshot, self.pipe_dir = snapshot, pipe_dir
        self.fields.show(self.daemon, self.devices)
        if device is not None and self.fields.undecided:
            self.fields.divide(device)

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self.call_after_refresh(self._repaint)  # how many lines a bar has follows from the size

    @property
    def now(self) -> Picture:
        """The plan on the node as it is."""
        return self._now

    def show(self) -> None:
        """Bring every widget up to date; each paints only what differs."""
        if not self.is_mounted:
            return
        daemon = self.daemon
        self.fields.show(daemon, self.devices)
        self._now = picture(self.fields.draft, daemon, self.devices)
        steps, trouble = self._steps()
        with self.app.batch_update():
            self.header.show(self.snapshot, daemon, None)
            self.about.show(self.fields.about)
            self.shares.show(self._now)
            self.device_bar.show(self._now, simulated=self.snapshot is not None and self.snapshot.source != "real")
            static = daemon is not None and bool(daemon.static_partitioning)
            partitions = f"{self.k('partitions', 'P')} on the overview has the partitions" if static else ""
            self.notes.show(notes_of(self._now, steps, trouble, partitions))
            self._arrange()
            self.show_keys()

    def _steps(self) -> tuple[list[ApplyStep] | None, str]:
        """What an apply would send, or why it cannot."""
        if self.snapshot is None or not (targets := self._targets()):
            return None, no_daemon(self.snapshot)
        refused = self.runner.preview(ApplyProfile().request(*targets[0]), self.snapshot).error
        if refused is not None:
            return None, refused
        found, problem = steps_of(self.snapshot, targets)
        for pipe_dir, planned in found:
            for action in dict.fromkeys(step.difference.request.action for step in planned):
                if (why := self.runner.unavailable(operation(action), self.snapshot, pipe_dir, ())) is not None:
                    return None, why
        return (None, problem) if problem else ([step for _, planned in found for step in planned], "")

    def _targets(self) -> Targets:
        daemon, plan = self.daemon, self._now.plan
        return ((daemon.pipe_dir, wanted(plan, with_device=True)),) if daemon is not None and plan is not None else ()

    def hints(self) -> list[KeyHint]:
        steps, trouble = self._steps()
        none = self._now.problem or "there is no plan yet" if self._now.plan is None else None
        in_bars = self.focused is self.shares
        return [
            *self._own_keys(),
            KeyHint(self.k("plan.apply", "A"), "Apply", "apply", 8, None if steps else none or trouble or _ALLOWED),
            KeyHint(self.k("plan.export", "C"), "Export", "export", 6, none),
            KeyHint(self.k("plan.save", "w"), "Save", "save", 6),
            KeyHint(self.k("plan.open", "V"), "Open", "open_profile", 6),
            KeyHint(self.k("plan.again", "r"), "Read again", "read_again", 4),
            KeyHint(
                self.k("plan.other", "Tab"),
                "Fields" if self.focused is self.notes else "Bars" if not in_bars else "Notes",
                "other",
                7,
            ),
        ]

    def _own_keys(self) -> list[KeyHint]:
        """The keys of the part that has the focus."""
        if self.focused is self.notes:
            return [KeyHint("↑↓", "Scroll", "none", 9)]
        if self.focused is self.shares:
            row = self.shares.cursor_row
            fixed = unless(row and row.share, "it is no share of the plan")
            return [KeyHint("←→", "Move", "none", 9, fixed), KeyHint("⇧←→", "More", "none", 3, fixed)]
        if self.fields.editing:
            return [KeyHint("Enter", "Done", "none", 9)]
        typed = unless(self.fields.arrows(self.fields.field), "it is typed")
        return [KeyHint("←→", "Change", "none", 9, typed), KeyHint("⇧←→", "More", "none", 3, typed)]

    @on(events.DescendantFocus)
    def _focus_moved(self) -> None:
        self.show_keys()

    # Layout.

    def _arrange(self) -> None:
        width, height = room_of(self)
        narrow = width < WIDE
        in_fields = self.focused is None or self.fields.has_focus_within
        roomy = height >= 40
        self.set_class(narrow, "-narrow")
        self.set_class(height < 34, "-short")
        left = self.query_one("#left")
        left.display = not narrow or in_fields or roomy
        if not narrow:  # what is beyond wide bars goes to the names of devices
            left.styles.width = max(_LEFT, min(_LEFT_MOST, width - _RIGHT))
        else:
            left.styles.width = "100%"
        # On a narrow and low screen the fields stand above the comparison, and the bars have a screen of their own.
        cramped = narrow and not roomy
        self.shares.display = not cramped or not in_fields
        self.device_bar.display = not cramped or height >= 20
        self.notes.display = not cramped or in_fields or self.focused is self.notes or height >= 24
        self.fields.styles.height = min(len(FIELDS) + 2, max(4, height - 8)) if cramped else len(FIELDS) + 2
        device = 7 if self._now.target is None or self._now.target.memory_total else 5
        self.device_bar.styles.height = device
        # The comparison takes what the bars, of two lines each, leave of the screen between the header and the keys.
        left_over = height - 2 - device - 2 * len(self.shares.rows) - 2
        usual = 6 if height < 34 else max(13, min(left_over, len(self.notes.rows) + 2))
        self.notes.styles.height = "1fr" if cramped and in_fields else usual
        self._hide_where_too_small("#plan")

    def action_other(self, step: int = 1) -> None:
        """To the bars, the comparison, and back to the fields."""
        panels: tuple[Panel[object], ...] = (self.fields, self.shares, self.notes)  # type: ignore[assignment]
        at = next((i for i, panel in enumerate(panels) if panel.has_focus_within), 0)
        panel = panels[(at + step) % len(panels)]
        # A panel that is not shown takes no focus.
        panel.display = True
        self.query_one("#left" if panel is self.fields else "#right").display = True
        self.set_focus(panel, scroll_visible=False)
        self._arrange()
        self.show()
        self.call_after_refresh(self._repaint)

    # What is done.

    def action_nudge(self, steps: int) -> None:
        """Move the share under the cursor."""
        row = self.shares.cursor_row
        if row is None or row.share is None:
            return
        move = nudge_sms if row.kind == "sm" else nudge_memory
        self.fields.take(move(self.fields.draft, self._now, row.index, steps))
        self.show()

    def action_read_again(self) -> None:
        """The tenants that there are now, and the newest from the daemon."""
        daemon = self.daemon
        self.host.refresh_now(daemon.pipe_dir if daemon else None)
        self.fields.read_again()

    @opens
    def action_apply(self) -> None:
        steps, trouble = self._steps()
        if self._now.plan is None:
            trouble = self._now.problem
        if not steps:
            self.say(trouble or _ALLOWED)
            return
        device = self._now.device
        where = f" on GPU {device.index}" if device is not None and device.index is not None else ""
        shares = plural(len(self._now.plan.shares if self._now.plan else ()), "share")
        draft, pipe_dir = self.fields.draft, self.daemon.pipe_dir if self.daemon else None

        def misfits(snapshot: Snapshot) -> Sequence[str]:
            daemon = snapshot.daemon(pipe_dir) if pipe_dir else None
            shown = picture(draft, daemon, snapshot.devices).shown
            return shown.misfits if shown is not None else ()

        self._ask_to_apply(f"the plan of {shares}{where}", misfits=misfits)

    def _ask_to_apply(self, what: str, targets: Targets | None = None, misfits: Misfits | None = None) -> None:
        if self.snapshot is not None:
            self.app.push_screen(ApplyDialog(self.runner, what, targets or self._targets(), self.snapshot, misfits))

    @opens
    def action_export(self) -> None:
        plan, daemon = self._now.plan, self.daemon
        if plan is None:
            self.say(self._now.problem)
            return
        pipe_dir = daemon.pipe_dir if daemon else None
        self.app.push_screen(ExportDialog(settings_of(plan), pipe_dir, (plan.target.uuid or "0",), self.kept or None))

    @opens
    def action_save(self) -> None:
        if self.snapshot is None:
            return
        plan, daemon = self._now.plan, self.daemon
        pipe_dir = daemon.pipe_dir if daemon else None
        profile = None
        if plan is not None:
            what = f"plan {plan.strategy} for {plural(len(plan.shares), 'client')} on {plan.target.sm_count} SMs"
            profile = profile_of(wanted(plan, with_device=True), pipe_dir, what)
        why = self._now.problem if plan is None else ""
        self.app.push_screen(SaveDialog(self._backend, self.snapshot, pipe_dir, profile, self.kept, self._keep, why))

    @property
    def kept(self) -> str:
        """The profile that holds the plan as it is on the screen; empty where none does."""
        name, draft = self._kept
        return name if draft == self.fields.draft else ""

    def _keep(self, name: str) -> None:
        if name:
            self._kept = (name, self.fields.draft)

    @opens
    def action_open_profile(self) -> None:
        if self.snapshot is None:
            return
        daemon = self.daemon
        self.app.push_screen(
            OpenDialog(
                self._backend,
                self.snapshot,
                daemon.pipe_dir if daemon else None,
                self._take_profile,
                lambda name, targets: self._ask_to_apply(f"the profile {name}", targets),
            )
        )

    def _take_profile(self, name: str, profile: DaemonProfile) -> str | None:
        """The shares of a profile into the plan; answers why not."""
        if self._now.target is None:
            return self._now.problem
        try:
            draft = draft_of(profile, self.fields.draft, self._now.target)
        except PlanError as error:
            return str(error)
        self._kept = (name, draft)
        self.fields.take(draft)
        return None

    def action_back(self) -> None:
        """The overview again; the plan stays as it is until the program ends."""
        if not self.fields.end_typing():
            self.app.pop_screen()

    # Messages of the widgets.

    @on(PlanFields.Changed)
    @on(Panel.Moved)
    def _changed(self) -> None:
        self.show()
