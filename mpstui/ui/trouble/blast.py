"""The blast radius: clients and GPUs as a graph, and what a fault of the client under the cursor would take down."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from textual.binding import Binding, BindingType

from mpstui.core.blast import blast_of, blast_radius, bridges, groups, over, server_of, without
from mpstui.core.cells import client_line, gpu_in_text, gpu_label, not_told
from mpstui.core.late import dataclass
from mpstui.core.model import Client, Daemon, ProcessKey, Server, Snapshot
from mpstui.core.text import UNKNOWN, have, listed, owner, plural
from mpstui.operations.registry import operation
from mpstui.ui.bars import KeyHint, unless
from mpstui.ui.box import Para
from mpstui.ui.contract import Runner
from mpstui.ui.keys import own_binding
from mpstui.ui.lines import Line, Span, fit
from mpstui.ui.panel import Panel
from mpstui.ui.screens import ListScreen
from mpstui.ui.stale_target import StaleTarget
from mpstui.ui.typeahead import opens

JOINS: Final = "↔"
_COMMAND: Final = 24
"""Cells that the commands keep beside the graph, as long as its columns are not at their narrowest."""
_SHOWN: Final = 8
"""Clients that a sentence names."""


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One client of the graph."""

    client: Client
    server_pid: int
    group: int
    """Number of those that go down together; 0 where its devices are not known."""
    joins: bool
    over: bool = False
    """Whether its GPU work has ended: it has nothing left to lose."""


def nodes_of(daemon: Daemon) -> list[GraphNode]:
    """All clients, those that go down together beside each other."""
    believed = daemon.claimant(os.geteuid()) is None
    found: list[GraphNode] = []
    number = 0
    for server in daemon.servers:
        ended = over(daemon, server) if believed else frozenset()
        joining = {client.key for client in bridges(without(server, ended))}
        placed: set[ProcessKey] = set()
        for group in groups(server):
            number += 1
            # Those on the same devices stand together, so that the lines of the graph are short.
            for client in sorted(group, key=lambda c: (sorted(c.device_uuids), c.pid)):
                found.append(GraphNode(client, server.pid, number, client.key in joining, client.key in ended))
                placed.add(client.key)
        rest = (client for client in server.clients if client.key not in placed)
        found += (GraphNode(client, server.pid, 0, False, client.key in ended) for client in rest)
    return found


class GraphPanel(Panel[GraphNode]):
    """A row for a client, a column for a GPU; heavy lines and crosses are what would be lost."""

    KIND: ClassVar[str] = "client"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._devices: Sequence[str] = ()
        self._indices: Mapping[str, int | None] = {}
        self._lost: frozenset[ProcessKey] = frozenset()
        self._hit: frozenset[str] = frozenset()
        self.unread = ""
        """Why it is not known which clients there are."""

    def take(self, daemon: Daemon | None, snapshot: Snapshot) -> None:
        self._indices = snapshot.indices
        self.unread = not_told(snapshot, daemon, clients=True)
        rows = nodes_of(daemon) if daemon else []
        used = {uuid for row in rows for uuid in row.client.device_uuids}
        serves = set(daemon.ordinals.values()) if daemon else set()
        last = len(self._indices)
        self._devices = sorted(
            used | serves, key=lambda u: (self._indices.get(u) or 0, u not in self._indices, last, u)
        )
        self.set_rows(rows)

    def mark(self, lost: frozenset[ProcessKey], hit: frozenset[str]) -> None:
        """What would be lost."""
        if (lost, hit) != (self._lost, self._hit):
            self._lost, self._hit = lost, hit
            self.repaint()

    def key(self, row: GraphNode) -> ProcessKey:
        return row.client.key

    def title(self) -> Line:
        return (("Clients × GPUs", "title"), (f" {len(self.rows)}", "dim"))

    def empty(self) -> str:
        return f"not known: {self.unread}" if self.unread else "no client: nothing can be lost"

    def _column(self, width: int) -> int:
        """Cells of a GPU's column, odd so that its line is in the middle."""
        room = (width - 24 - _COMMAND) // max(1, len(self._devices))
        return max(3, min(9, room - (room + 1) % 2))

    def head(self, width: int) -> Line | None:
        cells = self._column(width)
        spans: list[Span] = [(fit("    PID      USER      ", 24), "head")]
        for uuid in self._devices:
            hit = uuid in self._hit
            label = gpu_label(uuid, self._indices)
            text = f"GPU {label}" if cells >= 7 and label != UNKNOWN else label
            spans.append((f"{text + ('✕' if hit else ''):^{cells}}", "bad" if hit else "head"))
        return (*spans, ("  COMMAND", "head"))

    def row_lines(self, row: GraphNode, width: int) -> list[Line]:
        client = row.client
        lost = client.key in self._lost
        style = "bad" if lost else "dim" if row.over else "good"
        mark = "✕" if lost else "·" if row.over else "✓"
        spans: list[Span] = [
            (" ", "text"),
            (f" {mark} " if self._lost else "   ", style),
            (fit(str(client.pid), 9), "bold"),
            (fit(owner(client.user, client.uid), 10) + " ", "user"),
        ]
        return [
            (
                *spans,
                *self._edges(row, width, lost),
                ("  ", "text"),
                self._tail(row),
                (client.command or UNKNOWN, "text"),
            )
        ]

    def _tail(self, row: GraphNode) -> Span:
        return (f"{JOINS} connects  ", "warn") if row.joins else ("no GPU work  " if row.over else "", "dim")

    def _edges(self, row: GraphNode, width: int, lost: bool) -> list[Span]:
        """Its GPUs as dots on the columns' lines, joined by a line of its own."""
        cells = self._column(width)
        mine = [n for n, uuid in enumerate(self._devices) if uuid in row.client.device_uuids]
        first, last = (mine[0], mine[-1]) if mine else (0, -1)
        spans: list[Span] = []
        side = cells // 2
        for number, uuid in enumerate(self._devices):
            hit = uuid in self._hit
            own = "bad" if lost else "accent"
            left = ("━" if lost else "─") if first < number <= last else " "
            right = ("━" if lost else "─") if first <= number < last else " "
            if number in mine:
                dot, style = "●", own
            elif not mine:
                dot, style = "?", "warn"
            elif first < number < last:
                dot, style = "┿" if hit else "┼", own
            else:
                dot, style = ("┃", "bad") if hit else ("│", "track")
            spans += [(left * side, own), (dot, style), (right * side, own)]
        return spans


class BlastScreen(ListScreen):
    """The cursor asks: what if this one faults, or is killed while busy?"""

    panel: GraphPanel
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ampersand", "bridge", "Next client that connects groups", show=False, id="blast.bridge"),
        own_binding(operation("terminate_client"), "act('terminate_client')"),
        own_binding(operation("terminate_and_kill"), "act('terminate_and_kill')"),
        Binding("y", "copy", "Copy the text", show=False, id="copy"),
    ]
    DEFAULT_CSS = """
    BlastScreen {
        & #list { width: 3fr; }
        & #text { width: 2fr; }
        &.-narrow #list { height: 1fr; }
        &.-narrow #text { height: 1fr; }
    }
    """

    def __init__(
        self, runner: Runner, snapshot: Snapshot | None, pipe_dir: Path | None, start: ProcessKey | None = None
    ) -> None:
        """``start`` is the client to begin at."""
        super().__init__(runner, snapshot, pipe_dir)
        self._start = start
        self._stale = StaleTarget()

    def make_list(self) -> Panel[GraphNode]:
        return GraphPanel(id="list")

    @property
    def graph(self) -> GraphPanel:
        return self.panel

    def fill(self, snapshot: Snapshot) -> None:
        daemon = self.daemon
        if daemon is not None:
            self._stale.watch((self.client.key,) if self.client is not None else (), daemon)
        self.graph.take(daemon, snapshot)
        if self._start is not None:
            self._go_to(self._start)
            self._start = None

    def _go_to(self, key: ProcessKey) -> None:
        index = next((n for n, row in enumerate(self.graph.rows) if row.client.key == key), None)
        if index is not None:
            self.graph.move_to(index)

    @property
    def client(self) -> Client | None:
        """The one that is asked about."""
        row = self.graph.cursor_row
        return row.client if row is not None else None

    def describe(self, snapshot: Snapshot) -> tuple[str, list[Para]]:
        daemon, client = self.daemon, self.client
        whose = daemon.claimant(os.geteuid()) if daemon is not None else None
        believed = whose is None
        if daemon is None or client is None or (radius := blast_of(daemon, client.key, believed=believed)) is None:
            self.graph.mark(frozenset(), frozenset())
            if why := not_told(snapshot, daemon, clients=True):
                return "What if", [Para(f"Which clients there are is not known: {why}.", "text", UNKNOWN)]
            return "What if", [Para("There is no client that could fault.", "dim")]
        server = server_of(daemon, client.key)
        if believed and server is not None and client.key in over(daemon, server):
            self.graph.mark(frozenset(), frozenset())
            lost = client.state != "TERMINATED" and client.key != daemon.blocked_by
            by = "A fault" if lost else "terminate_client"
            text = f"{by} has ended its GPU work: it can fault no more. Its process still runs."
            return f"Client {client.pid} is {'lost' if lost else 'terminated'}", [
                Para(client_line(client), "bold"), Para(), Para(text, "good", "✓"),
            ]  # fmt: skip
        hit = {client.key, *(other.key for other in radius.lost)}
        self.graph.mark(frozenset(hit), radius.devices)
        out = [Para(client_line(client), "bold"), Para()]
        if whose is not None:
            out += [Para(f"Only {whose}'s daemon says so. mpstui has not confirmed it.", "warn", "▲"), Para()]
        out += _lost(client, radius.lost, radius.devices, snapshot.indices)
        if radius.unhurt:
            out += [
                Para(
                    f"{plural(len(radius.unhurt), 'client')} of the server would run on: {_names(radius.unhurt)}.",
                    "good",
                    "✓",
                )
            ]
        if radius.over:
            out.append(Para(f"{_names(radius.over)} {have(len(radius.over))} no GPU work left to lose.", "dim", "·"))
        where = f"server {server.pid}" if server else "the server"
        out.append(Para())
        out.append(
            Para(
                f"Until {'the last of them' if radius.lost else 'it'} has ended, {where} would refuse new clients, "
                f"on {'the other GPUs too' if radius.unhurt else 'every GPU'}.",
                "warn",
                "▲",
            )
        )
        if radius.refused:
            pids = ", ".join(f"{p.pid or UNKNOWN} ({owner(p.user, p.uid)})" for p in radius.refused[:_SHOWN])
            out.append(Para(f"Waiting now, and refused then: {pids}.", "warn", "▲"))
        if server is not None:
            out += _joining(without(server, {each.key for each in radius.over}), client, radius.bridges)
        if server is not None and (fault := server.fault) is not None:
            key = f"{self.k('fault', '!')} in the overview"
            said = f"Server {server.pid} is in FAULT now: {key} says what to do."
            claimed = f"server.log reports a fault of server {server.pid}: {key} shows it."
            out += [Para(), Para(said, "bad", "✕") if fault.confirmed else Para(claimed, "warn", "▲")]
        return f"If client {client.pid} faults", out

    def own_hints(self) -> list[KeyHint]:
        nobody = unless(self.client, "there is no client")
        joins = unless(any(row.joins for row in self.graph.rows), "no client connects two groups")
        return [
            KeyHint("↑↓", "What if", "none", 8, nobody),
            KeyHint(self.k("blast.bridge", "&"), "Next that connects", "bridge", 6, joins),
            KeyHint(
                self.k("action.terminate_client", "t"),
                "Terminate",
                "act('terminate_client')",
                5,
                self._refused("terminate_client"),
            ),
            KeyHint(
                self.k("action.terminate_and_kill", "K"),
                "Terminate + kill",
                "act('terminate_and_kill')",
                5,
                self._refused("terminate_and_kill"),
            ),
            KeyHint(self.k("copy", "y"), "Copy", "copy", 3, nobody),
        ]

    def _refused(self, action_id: str) -> str | None:
        return self.refusal(action_id, (self.client.key,)) if self.client is not None else "there is no client"

    @opens
    def action_act(self, action_id: str) -> None:
        if self.why_past is None and (refusal := self._stale.refusal(self.client)) is not None:
            self.app.notify(refusal, severity="warning", markup=False)
        elif (client := self.client) is not None:
            self.act(action_id, (client.key,))

    def action_bridge(self) -> None:
        """To the next client that makes one group of two."""
        rows, at = self.graph.rows, self.client
        joining = [row.client.key for row in rows if row.joins]
        if not joining:
            self.app.notify("no client connects two groups", markup=False, timeout=3)
            return
        here = next((n for n, row in enumerate(rows) if at is not None and row.client.key == at.key), 0)
        later = (row.client.key for row in (*rows[here + 1 :], *rows[: here + 1]) if row.joins)
        self._go_to(next(later))
        self.show_text()

    def action_none(self) -> None:
        """For a hint that no click does."""

    def action_copy(self) -> None:
        if self.snapshot is not None:
            title, said = self.describe(self.snapshot)
            self.copy("\n".join([title, *(para.text for para in said if para.text)]), title)


def _lost(
    client: Client, lost: Sequence[Client], devices: frozenset[str], indices: Mapping[str, int | None]
) -> list[Para]:
    gpus = listed(sorted(gpu_in_text(uuid, indices) for uuid in devices))
    out = []
    if lost:
        text = f"{plural(len(lost), 'other client')} would lose {'their' if len(lost) > 1 else 'its'} GPU work"
        out.append(Para(f"{text}: {_names(lost, owners=True)}.", "bad", "✕"))
    else:
        out.append(Para("No other client would lose its GPU work.", "good", "✓"))
    if gpus:
        out.append(Para(f"Contexts lost on {gpus}{'.' * (gpus[-1] != '…')}", "bad" if lost else "text", "✕"))
    if not client.device_uuids:
        text = "Its GPUs are not known, so all clients of the server are counted."
        out.append(Para(text, "warn", "▲"))
    return [*out, Para("The same holds when it is killed while busy, without terminate_client.", "dim", "·")]


def _joining(server: Server, client: Client, joining: Sequence[Client]) -> list[Para]:
    """How much smaller it would be without each client that joins what would be apart."""
    out: list[Para] = []
    for bridge in joining:
        if not out:
            out.append(Para())
        if bridge.key == client.key:
            rest = [c for c in server.clients if c.key != client.key and c.device_uuids & client.device_uuids]
            text = f"It connects groups that share no GPU without it: {_names(rest)}."
            text += " Keep it to one GPU: then a fault in one group does not reach the other."
        else:
            others = tuple(c for c in server.clients if c.key != bridge.key)
            hit = blast_radius(Server(server.key, clients=others), [client.key])
            left = f"only {_names(hit)} would be lost with it" if hit else f"{client.pid} would be lost alone"
            text = f"Client {bridge.pid} connects groups: without it {left}."
        out.append(Para(text, "warn", JOINS))
    return out


def _names(clients: Sequence[Client], *, owners: bool = False) -> str:
    return listed((f"{c.pid} {owner(c.user, c.uid)}" if owners else c.pid for c in clients), _SHOWN)
