"""The form of the actions that change a limit: what it is today, what it becomes, and whom it will not reach."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Button, Input, Static

from mpstui.core.model import ProcessKey, Server, Snapshot
from mpstui.core.text import UNKNOWN, owner, plural
from mpstui.operations.check import Refused
from mpstui.operations.limits import MORE_FROM, SetLimit
from mpstui.operations.operation import Operation
from mpstui.operations.types import Argument, ExitStatus, Preview, Request
from mpstui.ui.contract import Runner
from mpstui.ui.dialogs.progress import ActionDialog
from mpstui.ui.dialogs.widgets import (
    LIST_ROWS,
    Choice,
    Chooser,
    DetailRow,
    Lines,
    Listing,
    Sheet,
    in_columns,
    labelled,
    marked,
    plain,
)
from mpstui.ui.form import TypedLine


def _option(argument: Argument) -> str:
    return argument.option.lstrip("-")


class FieldChooser(Chooser):
    """A choice in the form: Enter goes on to the next field, after the last one to Cancel, past the list."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "on", "", show=False)]

    def action_on(self) -> None:
        self.screen.focus_next("Input, FieldChooser, #cancel")


class ChangeForm(ActionDialog):
    """Asks for what an action has to be told, and shows at each keystroke what would come of it."""

    AUTO_FOCUS = "Input, #choice, #cancel"
    ASKS_AGAIN = True
    TIGHT = ActionDialog.TALL
    DEFAULT_CSS = """
    ChangeForm {
        .field > Input { width: 24; }
        .field > .hint { width: 1fr; height: auto; padding-left: 2; color: $text-muted; }
        .field.-last { margin-bottom: 0; }
        #problem { margin: 0 0 1 0; padding-left: 14; min-height: 1; display: block; }
        #facts { min-height: 3; }
        #warnings { margin-top: 1; }
        .-short Listing { margin-top: 0; }
        .-short .field { margin-bottom: 0; }
        .-short #problem { margin: 0; }
    }
    """

    def __init__(
        self,
        runner: Runner,
        action: Operation,
        pipe_dir: Path,
        snapshot: Snapshot,
        *,
        server: ProcessKey | None = None,
        device: str | None = None,
        value: str = "",
        asked: Request | None = None,
    ) -> None:
        """``asked``: what is settled, and not asked for again. ``server`` and ``device`` (a UUID) are chosen at the
        start; without them the default and the first device. ``value``: what has been typed already."""
        super().__init__(runner, action, pipe_dir, snapshot)
        self._asked = asked or Request(action.id, pipe_dir)
        self._start: dict[str, Hashable] = {"scope": server, "device": device}
        self._value = value
        self._preview: Preview | None = None
        self._problem: str | None = None
        self._was = ""
        """What was in force before the value that was sent last."""

    @on(Button.Pressed, "#cancel")
    def _say_that_nothing_was_sent(self) -> None:
        """Enter in the last field leads to Cancel, and Enter again closes: said, where a value had been typed."""
        if self.state == "asking" and any(line.value.strip() for line in self.query(Input)):
            self.app.notify("cancelled: nothing was sent", title=self.action.title, markup=False, timeout=4)

    def compose(self) -> ComposeResult:
        fields = [self._field(argument) for argument in self.action.arguments if not self._settled(argument)]
        for last in fields[-1:]:
            last.add_class("-last")
        yield self.frame(
            self.action.title,
            "Enter next · Tab move · ↑↓ choose · Esc close",
            self.help_line(),
            *([Sheet(settled, label_width=13, id="settled")] if (settled := self._settled_rows()) else ()),
            *fields,
            Lines(id="problem"),
            Sheet(id="facts", label_width=14),
            Lines(id="warnings"),
            Listing(id="kept", classes="question"),
            *self.outcome_parts(),
            foot=self.foot("Apply"),
        )

    def _settled(self, argument: Argument) -> bool:
        """Whether it is not to be asked for."""
        given = argument.kind == "value" and bool(self._asked.value)
        named = argument.kind == "setting" and self._asked.setting(_option(argument)) is not None
        return argument.kind == "clients" or given or named

    def _settled_rows(self) -> list[DetailRow]:
        """What it acts on, where that is not asked for."""
        given = [
            (argument.label, self._asked.value if argument.kind == "value" else self._asked.setting(_option(argument)))
            for argument in self.action.arguments
            if self._settled(argument) and argument.kind != "clients"
        ]
        return [DetailRow(label, value, "bold") for label, value in given if value]

    def _field(self, argument: Argument) -> Widget:
        label = argument.label
        if argument.kind in {"value", "size"}:
            hint = Static(Content(plain(argument.hint)), classes="hint", markup=False)
            return labelled(label, TypedLine(self._value, id="value", max_length=64), hint)
        if argument.kind == "setting":
            hint = Static(Content(plain(argument.help)), classes="hint", markup=False)
            return labelled(label, TypedLine(id=f"set{argument.option}", max_length=200, classes="setting"), hint)
        if argument.kind == "scope":
            return labelled(label, FieldChooser(self._scopes(), self._start["scope"], id="scope"))
        if argument.kind == "device":
            return labelled(label, FieldChooser(self._devices(), self._start["device"], id="device"))
        choices = [Choice(value, words, value) for value, words in argument.choices]
        daemon = self.snapshot.daemon(self.pipe_dir)
        before = daemon and self.action.undo(Request(self.action.id, self.pipe_dir), daemon)
        return labelled(label, FieldChooser(choices, self._value or (before.value if before else None), id="choice"))

    def _scopes(self) -> list[Choice]:
        daemon = self.snapshot.daemon(self.pipe_dir)
        choices = [Choice(None, "default", self._about("new servers", None))]
        for server in daemon.servers if daemon else ():
            count = plural(len(server.clients), "client")
            text = f"{owner(server.user, server.uid)} · {count}"
            choices.append(Choice(server.key, f"server {server.pid}", self._about(text, server)))
        return choices

    def _about(self, text: str, server: Server | None) -> str:
        """With what it is now, where that is another one of each; of the device that is chosen."""
        daemon = self.snapshot.daemon(self.pipe_dir)
        if daemon is None or not isinstance(self.action, SetLimit):
            return text
        device = self._chosen("device")
        named = (
            device.value if device is not None else self._start["device"] or next(iter(daemon.ordinals.values()), None)
        )
        wish = Request(self.action.id, self.pipe_dir, device=str(named) if named is not None else None)
        with suppress(Refused):
            return f"{text} · {self.action.today(wish, self.snapshot, daemon, server)}"
        return text

    def _devices(self) -> list[Choice]:
        daemon = self.snapshot.daemon(self.pipe_dir)
        if daemon is not None and daemon.own_numbers:
            counted = range(len(self.snapshot.devices) or 1)
            return [Choice(str(number), str(number), "as the daemon counts") for number in counted]
        choices = []
        for ordinal, uuid in (daemon.ordinals if daemon else {}).items():
            device = self.snapshot.device(uuid)
            choices.append(Choice(uuid, f"{ordinal}  {(device and device.name) or UNKNOWN}", uuid[:12]))
        return choices

    def request(self) -> Request:
        scope, device = self._chosen("scope"), self._chosen("device")
        choice = self._chosen("choice")
        value = self.query("#value").first(Input).value if self.query("#value") else ""
        typed = ((found.id or "", found.value.strip()) for found in self.query(".setting").results(Input))
        settings = tuple((name.removeprefix("set").lstrip("-"), text) for name, text in typed if text)
        return Request(
            self.action.id,
            self.pipe_dir,
            settings=(*self._asked.settings, *settings),
            value=str(choice.value) if choice else value.strip() or self._asked.value,
            server_pid=scope.value.pid if scope and isinstance(scope.value, ProcessKey) else None,
            device=str(device.value) if device else None,
        )

    def _chosen(self, name: str) -> Choice | None:
        found = self.query(f"#{name}")
        return found.first(Chooser).chosen if found else None

    def show(self) -> None:
        if self.state == "running":
            self.show_foot("Apply", ready=False)
            return
        for name, choices in (("scope", self._scopes), ("device", self._devices)):
            if found := self.query(f"#{name}"):
                found.first(Chooser).show(choices())
        request = self.request()
        preview = self.runner.preview(request, self.snapshot)
        self._problem = self._gone() or self.unavailable(()) or preview.error
        self._show_problem(request, preview)
        facts = (*self._told(preview), *self._of_gpu())
        self.query_one("#facts", Sheet).show([DetailRow(k, v, "bold" if k == "new value" else "") for k, v in facts])
        if preview != self._preview:
            self._preview = preview
            self.say_title(preview.title)
            self.query_one("#warnings", Lines).show(*(marked("▲", line, "$text-warning") for line in preview.warnings))
            count = len(preview.not_reached)
            self.query_one("#kept", Listing).show(
                f"{plural(count, 'client')} already connected {'keeps its' if count == 1 else 'keep their'} limits",
                [Content(plain(line)) for line in in_columns(preview.not_reached)],
            )
        self.show_foot("Apply", ready=self._problem is None and not self.settled)  # what is in force, not once more
        self._give_the_rest()

    def pressed(self, button: str) -> None:
        self._was = dict(self._preview.facts if self._preview else ()).get("now", "")
        super().pressed(button)

    def _told(self, preview: Preview) -> list[tuple[str, str]]:
        """Once it is done, what it was and what it is: there is no new value then."""
        done = self.state == "ended" and self.settled
        if not done or "new value" not in dict(preview.facts):
            return list(preview.facts)
        names = {"new value": "now"}
        told = [(names.get(name, name), text) for name, text in preview.facts if name not in {"now", MORE_FROM}]
        return [("before", self._was), *told] if self._was else told

    def _fit(self, height: int) -> None:
        super()._fit(height)
        self._give_the_rest()

    def _give_the_rest(self) -> None:
        """Where there are few lines, a long list of those who keep what they have, which stands last, gets all that
        nothing else needs."""
        body, kept = self.query_one("#body"), self.query_one("#kept", Listing)
        fills = self.query_one("#box").has_class("-short") and self.state == "asking" and kept.count > LIST_ROWS
        body.styles.height = body.styles.max_height if fills else "auto"
        kept.fill(fills)

    def _of_gpu(self) -> list[tuple[str, str]]:
        """For whoever wants a share of one GPU, and sets what no GPU has of its own."""
        if any(argument.kind == "device" for argument in self.action.arguments):
            return []
        if self.action.id == "set_active_thread_percentage" and len(self.snapshot.devices) > 1:
            plan = f"{self.k('plan', 'p')} on the overview (plan) divides one GPU"
            return [("GPUs", f"all that the server has: a percentage cannot be set for one GPU. {plan}")]
        return [] if self._start["device"] is None else [("GPUs", "all: this cannot be set for one GPU alone")]

    def _show_problem(self, request: Request, preview: Preview) -> None:
        lines = self.query_one("#problem", Lines)
        typed = (request.value, request.settings) != (self._asked.value, self._asked.settings)
        untouched = not typed and preview.error_status is ExitStatus.USAGE and self._problem == preview.error
        if self.settled:
            lines.show()
        elif untouched:
            lines.show(Content.styled("Nothing is sent before Apply.", "$text-muted"))
        elif self._problem is not None:
            lines.show(marked("✕", self._problem, "$text-error"))
        else:
            lines.show()
        if found := self.query("#value"):
            found.first(Input).set_class(self._problem is not None and not untouched, "-wrong")

    def _gone(self) -> str | None:
        """A choice that is no longer there must not be taken for another one that has its number."""
        for name in ("scope", "device"):
            chosen = self._chosen(name)
            if chosen is not None and chosen.gone:
                return f"{chosen.label} is gone; choose another"
        return None

    @on(Input.Submitted)
    def _next(self) -> None:
        """On to Cancel; what is refused keeps the focus."""
        if self.state == "running":
            return
        if self._problem is None:
            self.query_one("#cancel").focus()
        else:
            self.say_refused()
