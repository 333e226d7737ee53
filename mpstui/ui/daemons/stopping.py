"""The question before a control daemon is stopped: who is hit, how long it may wait, and the clients going."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from textual.app import ComposeResult
from textual.content import Content

from mpstui.core.cells import client_line
from mpstui.core.model import Client, Daemon, ProcessKey, Snapshot
from mpstui.core.text import path_text, plural
from mpstui.operations.daemons import FORCE_AFTER, StopPreview, preview_stop
from mpstui.operations.types import Progress
from mpstui.ui.daemons.contract import DaemonBackend
from mpstui.ui.dialogs.base import ConfirmDialog
from mpstui.ui.dialogs.progress import DialogOutcome, ProgressDialog
from mpstui.ui.dialogs.widgets import Choice, Chooser, Lines, Listing, Push, in_columns, labelled, marked, plain

FORCE = "force"
WAITS = (
    Choice(None, "until its clients end", "sends quit"),
    Choice(10, "at most 10 s", "then error 806: sends quit -t 10"),
    Choice(60, "at most 60 s", "sends quit -t 60"),
    Choice(600, "at most 10 min", "sends quit -t 600"),
    Choice(FORCE, "force", "even if it does not answer"),
)
WAITS_V3 = (
    Choice(None, "until its clients end", "then server delete"),
    *(Choice(each.value, each.label, "then server delete --force") for each in WAITS[1:-1]),
    WAITS[-1],
)
"""The same of protocol 3, which has no quit."""


class StopDialog(ProgressDialog):
    """Names each client that is hit; while it waits, shows those that are left."""

    DEFAULT_CSS = "StopDialog #effect { margin-top: 1; }"

    def __init__(self, backend: DaemonBackend, snapshot: Snapshot, daemon: Daemon) -> None:
        super().__init__(snapshot, "Stop the daemon")
        self._backend = backend
        self._daemon = daemon
        self._whose = daemon.speaker
        """When it was opened: a yes is for the daemon of that user."""
        self._forced = False

    def compose(self) -> ComposeResult:
        yield self.frame(
            f"Stop the daemon in {path_text(self._daemon.pipe_dir)}",
            "Enter presses the marked button · Tab move · ↑↓ choose · Esc cancel",
            labelled("It may wait", Chooser(self._waits(), None, id="wait"), classes="field question"),
            Lines(id="effect", classes="question"),
            Listing(id="hits"),
            Lines(id="problem"),
            *self.outcome_parts(),
            foot=(*self.foot("Stop", "-harm"), Push("Force …", id="force", classes="-harm")),
            harm=True,
        )

    def _waits(self) -> tuple[Choice, ...]:
        return WAITS_V3 if self._daemon.named_servers else WAITS

    @property
    def daemon(self) -> Daemon | None:
        """The same daemon, not another one in the same directory."""
        found = self.snapshot.daemon(self._daemon.pipe_dir)
        return found if found is not None and found.key == self._daemon.key else None

    @property
    def wait(self) -> int | None:
        """Seconds; None: as long as it takes, or by force."""
        chosen = self.query_one("#wait", Chooser).chosen
        return chosen.value if chosen is not None and isinstance(chosen.value, int) else None

    @property
    def forcing(self) -> bool:
        chosen = self.query_one("#wait", Chooser).chosen
        return chosen is not None and chosen.value == FORCE

    def preview(self) -> StopPreview:
        """What the choice would do."""
        return preview_stop(self.snapshot, self._daemon.pipe_dir, self.wait, self.forcing)

    def show(self) -> None:
        force = self.query_one("#force", Push)
        force.display = self.state == "running" and not self._forced
        self._show_clients()
        if self.state != "asking":
            self.show_foot("Stop", ready=False)
            self.hint_meanwhile()
            self.query_one("#apply").display = False
            return
        shown = self.preview()
        problem = shown.error.replace("; --force ends its process", "; force ends its process") if shown.error else None
        if self.daemon is None:
            problem = "the daemon has ended, or another one is there now; nothing will be done"
        waits = shown.hits or (self.daemon is not None and not self.daemon.servers_known)
        lines = [marked("▲" if waits else "·", shown.effect, "$text-warning" if waits else "")]
        lines += [marked("▲", shown.limits, "$text-warning")] if shown.limits else []
        self.query_one("#effect", Lines).show(*lines)
        self.show_problem(problem)
        self.show_foot("Force …" if self.forcing else "Stop", ready=problem is None)

    def _show_clients(self) -> None:
        """Everybody who was there; who has gone is struck out."""
        daemon = self.daemon
        if self.state == "asking" and daemon is not None:
            self._daemon = daemon
        self.query_one("#hits", Listing).display = not self._daemon.usurped(os.geteuid())
        here = {client.key for client in daemon.clients()} if daemon is not None else set[ProcessKey]()
        were = list(self._daemon.clients())
        lines = _client_lines(were, here)
        left = sum(client.key.among(here) is not None for client in were)
        title = f"Hit: {plural(len(were), 'client')}" if self.state == "asking" else f"{left} of {len(were)} are left"
        self.query_one("#hits", Listing).show(title, lines)

    def pressed(self, button: str) -> None:
        daemon = self.daemon or self._daemon
        if button == "force" or self.forcing:
            self.app.push_screen(ForceConfirm(self.snapshot, daemon, self._force))
        else:
            wait = self.wait
            self.begin(lambda progress: self._stop(daemon, wait, False, progress))

    def _force(self) -> None:
        """After its own confirmation; a stop that still waits is given up first."""
        daemon = self.daemon or self._daemon
        if self.state == "ended":
            return
        self._forced = True
        self.give_up()
        self.begin(lambda progress: self._stop(daemon, None, True, progress))

    async def _stop(self, daemon: Daemon, timeout: int | None, force: bool, progress: Progress) -> DialogOutcome:
        asked = replace(daemon, speaker=self._whose)
        result = await self._backend.stop(asked, timeout=timeout, force=force, progress=progress)
        refresh = getattr(self.app, "refresh_now", None)
        if refresh is not None:
            refresh(daemon.pipe_dir)
        return DialogOutcome(result.done, result.message, result.details)


def _client_lines(clients: Sequence[Client], here: Collection[ProcessKey]) -> list[Content]:
    """One for each; struck out where it has gone."""
    texts = in_columns([client_line(client) for client in clients])
    return [
        Content.assemble(("● ", "$text-error"), plain(text))
        if client.key.among(here) is not None
        else Content.assemble(("– ", "$text-muted"), (f"{plain(text)}  gone", "$text-muted strike"))
        for client, text in zip(clients, texts, strict=True)
    ]


class ForceConfirm(ConfirmDialog):
    """A second question: force ends everybody's GPU work."""

    DEFAULT_CSS = "ForceConfirm #hits { margin-top: 1; }"

    def __init__(self, snapshot: Snapshot, daemon: Daemon, go: Callable[[], None]) -> None:
        super().__init__(snapshot)
        self._daemon = daemon
        self._go = go

    def compose(self) -> ComposeResult:
        yield self.frame(
            "Force the daemon to end",
            "↑↓ scroll lists · Enter presses the marked button · Tab move · Esc cancel",
            Lines(id="what"),
            Listing(id="hits"),
            foot=(Push("Cancel", id="cancel"), Push("Force", id="apply", classes="-harm")),
            harm=True,
        )

    def show(self) -> None:
        found = self.snapshot.daemon(self._daemon.pipe_dir)
        if found is not None and found.key == self._daemon.key:
            self._daemon = found  # who has come meanwhile is hit too
        if self._daemon.usurped(os.geteuid()):
            shown = preview_stop(self.snapshot, self._daemon.pipe_dir, None, True)
            self.query_one("#what", Lines).show(marked("▲", shown.effect, "$text-warning"))
            self.query_one("#hits", Listing).display = False
            return
        hits = tuple(self._daemon.clients())
        number = plural(len(hits), "client")
        error = "with an error" if self._daemon.named_servers else "with error 806"
        self.query_one("#what", Lines).show(
            marked("▲", f"After {FORCE_AFTER} s the GPU work of {number} is ended {error}.", "$text-warning"),
            marked(
                "▲",
                f"If the daemon (process {self._daemon.pid or '—'}) does not answer, it gets SIGTERM, then SIGKILL.",
                "$text-warning",
            ),
        )
        self.query_one("#hits", Listing).show(f"Hit: {number}", _client_lines(hits, {client.key for client in hits}))

    def pressed(self, button: str) -> None:
        self.dismiss(None)
        self._go()
