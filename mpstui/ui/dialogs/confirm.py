"""The question before an action that ends somebody's work: whose it is, and who else would be hit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.cells import cell_len, set_cell_size
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Input

from mpstui.core.model import Client, ProcessKey, Snapshot
from mpstui.core.text import UNKNOWN, format_age, format_size, owner, plural
from mpstui.operations.check import owner_typed
from mpstui.operations.operation import Operation
from mpstui.operations.rescue import processes
from mpstui.operations.types import Others, Preview, Request
from mpstui.ui.contract import Runner
from mpstui.ui.dialogs.progress import ActionDialog
from mpstui.ui.dialogs.widgets import (
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

_HINT = "↑↓ scroll lists · Enter marked button · Tab move · Esc cancel"
_TYPE_HINT = "↑↓ scroll lists · Tab to the field, then type · Enter marked button · Esc cancel"
_FORCE = (
    Choice("", "wait for them", "it ends when its clients have ended"),
    Choice("force", "by force", "it ends now, and their GPU work with it"),
)
_OTHERS = 4
"""Groups of clients beside those meant, at most (``Preview.others``)."""


class HarmConfirm(ActionDialog):
    """Names each client by PID, user and command. Cancel has the focus; a client that has gone is left alone.

    A process that the daemon does not speak for is ended only where PID and owner are typed in (``Preview.type_in``).
    """

    DEFAULT_CSS = """
    HarmConfirm {
        #targets { margin-top: 0; }
        #facts { margin-top: 1; }
        #warnings { margin-top: 1; }
        #typed { display: none; margin: 1 0 0 0; }
        #typed.-wanted { display: block; }
        .-outcome #typed, .-outcome #facts { display: none; }
    }
    """

    def __init__(
        self,
        runner: Runner,
        action: Operation,
        pipe_dir: Path,
        snapshot: Snapshot,
        clients: Sequence[ProcessKey],
        server: ProcessKey | None = None,
        asked: Request | None = None,
    ) -> None:
        """``server`` is chosen at the start, where the operation is for one; ``asked``: for one that is neither for
        clients nor for a server, the whole request."""
        super().__init__(runner, action, pipe_dir, snapshot)
        # What is settled is not asked for again.
        self._kinds = {argument.kind for argument in action.arguments} if asked is None else set[str]()
        # Those of a server follow from it, whoever the cursor is on.
        self.clients = tuple(dict.fromkeys(clients)) if "clients" in self._kinds else ()
        self._server = server
        self._asked = asked
        self._seen: dict[ProcessKey, Client] = {}
        self._preview: Preview | None = None
        self._problem: str | None = None

    def compose(self) -> ComposeResult:
        yield self.frame(
            self.action.title,
            _HINT,
            self.help_line(),
            *self._choosers(),
            Listing(id="targets"),
            Sheet(id="facts"),
            Lines(id="warnings", classes="question"),
            Listing(id="hits", classes="question"),
            *(Listing(id=f"others-{number}", classes="question") for number in range(_OTHERS)),
            Lines(id="problem"),
            labelled("PID, owner", TypedLine(id="owner", max_length=128), id="typed"),
            *self.outcome_parts(),
            foot=self.foot(self._label(), "-harm"),
            harm=True,
        )

    def _choosers(self) -> Iterator[Horizontal]:
        """For an operation on a server: which one, and whether its clients are waited for."""
        if "server" in self._kinds:
            choices = self._servers()
            yield labelled("Server", Chooser(choices, self._server, id="server"), classes="field question")
        if "force" in self._kinds:
            yield labelled("Clients", Chooser(_FORCE, "", id="force"), classes="field question")

    def _servers(self) -> list[Choice]:
        daemon = self.snapshot.daemon(self.pipe_dir)
        return [
            Choice(s.key, f"{s.pid}  {owner(s.user, s.uid)}", plural(len(s.clients) + s.clients_elsewhere, "client"))
            for s in (daemon.servers if daemon else ())
        ]

    def _server_request(self) -> Request:
        """For the server that is chosen: those of its clients that are named here are hit, and no others."""
        chosen, daemon = self.query_one("#server", Chooser).chosen, self.snapshot.daemon(self.pipe_dir)
        here = chosen is not None and not chosen.gone and isinstance(chosen.value, ProcessKey)
        pid = chosen.value.pid if here and chosen is not None and isinstance(chosen.value, ProcessKey) else None
        server = daemon.find_server(pid) if daemon and pid is not None else None
        force = bool(self._kinds & {"force"}) and self.query_one("#force", Chooser).chosen == _FORCE[1]
        clients = tuple(client.key for client in server.clients) if server else ()
        return Request(self.action.id, self.pipe_dir, server_pid=pid, clients=clients, force=force, subject=server)

    def changed(self) -> None:
        self.take_newest()
        super().changed()

    def present(self) -> tuple[ProcessKey, ...]:
        """The chosen clients that are still there: the same processes, not the same numbers. Of one whose start was not
        known when it was chosen, the number is all that there was: from when it is known, it is meant by that too."""
        daemon = self.snapshot.daemon(self.pipe_dir)
        there = processes(daemon) if daemon is not None else {}
        self.clients = tuple(key if key.start_ticks else key.among(there) or key for key in self.clients)
        return tuple(key for key in self.clients if key in there)

    def request(self) -> Request:
        if self._asked is not None:
            return self._asked
        if "server" in self._kinds:
            return self._server_request()
        request = Request(self.action.id, self.pipe_dir, clients=self.present())
        typed = self.query_one("#owner", Input).value
        return request._replace(owner=owner_typed(self.runner.preview(request, self.snapshot), typed))

    def show(self) -> None:
        if self.state != "asking":
            self.show_foot(self._label(), ready=False)
            self.hint_meanwhile()
            return
        if "server" in self._kinds:
            self.query_one("#server", Chooser).show(self._servers())
        request = self.request()
        if "server" not in self._kinds and self._asked is None:
            self._show_targets(request.clients)
        preview = self.runner.preview(request, self.snapshot)
        if not request.clients and "server" not in self._kinds and self._asked is None:
            self._problem = "none of the chosen clients is there any more; nothing will be done"
        else:
            self._problem = self.unavailable(request.clients) or preview.error
        self.show_problem(self._problem)
        self._ask_for(preview.type_in)
        if preview != self._preview:
            self._preview = preview
            self.query_one("#facts", Sheet).show([DetailRow(label, value) for label, value in preview.facts])
            self.query_one("#warnings", Lines).show(*(marked("▲", line, "$text-warning") for line in preview.warnings))
            self._show_others(preview)
        self.show_foot(self._label(), ready=self._problem is None)
        self.say_hint(_TYPE_HINT if preview.type_in and self._problem is not None else _HINT)

    def _ask_for(self, wanted: str) -> None:
        """The field is there only while something has to be typed."""
        field = self.query_one("#typed")
        if not wanted and field.has_class("-wanted") and self.query_one("#owner").has_focus:
            self.query_one("#cancel").focus()
        field.set_class(bool(wanted), "-wanted")

    @on(Input.Submitted, "#owner")
    def _next(self) -> None:
        if self.state == "asking" and self._problem is None:
            self.query_one("#apply").focus()
        elif self.state == "asking":
            self.say_refused()

    def _show_others(self, preview: Preview) -> None:
        """Who else is on it: the chosen ones are named above already."""
        chosen = {str(key.pid) for key in self.clients}
        hits = [line for line in preview.hits if line.partition(" ")[0] not in chosen]
        title = "Also hit" if self.clients else "Hit"
        self.query_one("#hits", Listing).show(f"{title}: {len(hits)}", [marked("✕", line) for line in in_columns(hits)])
        for number in range(_OTHERS):
            group = preview.others[number] if number < len(preview.others) else Others("", ())
            self.query_one(f"#others-{number}", Listing).show(
                f"{group.title}: {len(group.clients)}", [Content(plain(line)) for line in in_columns(group.clients)]
            )

    def _show_targets(self, present: Sequence[ProcessKey]) -> None:
        daemon = self.snapshot.daemon(self.pipe_dir)
        there = processes(daemon) if daemon is not None else {}
        self._seen |= {key: there[key] for key in self.clients if key in there}
        width = max((cell_len(plain(owner(c.user, c.uid))) for c in self._seen.values()), default=1)
        gone = {key for key in self.clients if key.among(there) is None}
        lines = [self._target(key, width, here=key in present, gone=key in gone) for key in self.clients]
        what, many = ("process", "es") if self.action.finds_clients else ("client", "s")
        title = f"{len(present)} {what}{'' if len(present) == 1 else many}" + (f" · {len(gone)} gone" if gone else "")
        self.query_one("#targets", Listing).show(title, lines)

    def _target(self, key: ProcessKey, width: int, *, here: bool, gone: bool) -> Content:
        client = self._seen.get(key)
        whose = owner(client.user, client.uid) if client else UNKNOWN
        pid, user = f"{key.pid:<8}", set_cell_size(plain(whose), width)
        command = plain((client and client.command) or UNKNOWN)
        if not here:
            why = "gone" if gone else "not known to be the same process"
            return Content.assemble(
                (f"– {pid}{user}  {why}; left alone  ", "$text-muted"), (command, "$text-muted strike")
            )
        memory = format_size(sum(client.gpu_memory.values()) if client and client.gpu_memory else None)
        age = format_age(self.snapshot.time - client.start_time if client and client.start_time else None)
        return Content.assemble(
            ("● ", "$text-error"),
            (pid, "bold"),
            f"{user}  ",
            (f"{memory:>8} {age:>4}  ", "$text-muted"),
            (command, "bold"),
        )

    def _label(self) -> str:
        if "clients" not in self._kinds:
            return self.action.title
        count = len(self.present() if self.state == "asking" or self.sent is None else self.sent.clients)
        if count <= 1:
            return self.action.title
        return f"{self.action.title}{f': {count}' if self.action.finds_clients else f' {count} clients'}"
