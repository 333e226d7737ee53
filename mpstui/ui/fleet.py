"""The screens of many nodes: a row for each, the worst first, and their problems; Enter opens the node's own mpstui,
and comes back."""

from __future__ import annotations

import shlex
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Final, cast

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.theme import Theme

from mpstui.commands import Ended, Filled, run_in_terminal
from mpstui.core.cells import number
from mpstui.core.text import UNKNOWN, format_age, format_size, plural, printable
from mpstui.fields import Thing
from mpstui.fleet import (
    NODE,
    NODE_PROBLEM,
    STATE_STYLES,
    Fleet,
    FleetError,
    FleetNode,
    FleetProblem,
    NodeProblem,
    by_state,
    clients_in,
    in_thread,
    severity_mark,
    told_problems,
)
from mpstui.system.own import ProgramError, find_program
from mpstui.ui.bars import KeyHint, unless
from mpstui.ui.box import Para, wrapped
from mpstui.ui.fleet_filter import NODE_TERMS, NodeFilter
from mpstui.ui.layout import room_of
from mpstui.ui.lines import Line, LineWidget, justify
from mpstui.ui.panel import Panel
from mpstui.ui.panels.table import TablePanel
from mpstui.ui.plots import FEW, spark
from mpstui.ui.program import ScreenProgram
from mpstui.ui.screens import RowsScreen
from mpstui.ui.typeahead import opens

Look = Callable[[Callable[[FleetNode], None]], Awaitable[Fleet]]
Follow = Callable[[Callable[[FleetNode], None]], Coroutine[Any, Any, None]]
History = Callable[[str, float], Mapping[str, Sequence[float | None]]]
_WHY: Final = {127: ": is mpstui there, and on PATH?", 255: ": ssh did not reach it, or was cut off"}
"""What a status of ssh means; its own words are gone with its screen."""
_HOURS: Final = 6
_DAEMONS: Final = 64
"""Of a node, each with a line: anybody there can start one."""
_LIST: Final = 9
"""Lines that the list, header and keys have at least."""
_NONE: Final = "there is no node under the cursor"
_NO_HISTORY: Final = "there is a history from Prometheus only"
_ENTER: Final = "Open the node's own mpstui. Esc on its overview, or q, comes back here."


class FleetHeader(LineWidget):
    """How many nodes are in which state, and the badge that must never be missed."""

    DEFAULT_CSS = "FleetHeader { height: 1; background: $surface; }"

    def __init__(self) -> None:
        super().__init__(id="header")
        self._shown: Sequence[FleetNode] = ()
        self._looked: float | None = None

    def show(self, nodes: Sequence[FleetNode], looked: float | None) -> None:
        self._shown, self._looked = nodes, looked
        self.repaint()

    def lines(self, width: int, height: int) -> list[Line]:
        line: list[tuple[str, str]] = [(" mpstui fleet", "brand")]
        if simulated := sum(node.simulated for node in self._shown):
            line += [(" ", "text"), (f" {simulated} SIMULATED ", "badge-loud")]
        for at, (state, many) in enumerate(by_state(self._shown)):
            line += [(" · " if at else "  ", "dim"), (f"{many} {state}", STATE_STYLES.get(state, "text"))]
        clock = "" if self._looked is None else time.strftime("  %H:%M:%S ", time.localtime(self._looked))
        right: Line = ((clock, "text"),) if sum(len(text) for text, _ in line) + len(clock) <= width else ()
        return [justify(tuple(line), right, width)]


class TroubleLine(LineWidget):
    """What the source has in vain been asked for."""

    DEFAULT_CSS = "TroubleLine { height: 0; }"
    _MOST: ClassVar[int] = 5
    text: str = ""

    def show(self, text: str) -> None:
        self.text = text
        self.styles.height = min(self._MOST, len(wrapped(text, self.app.size.width, "bad")))
        self.repaint()

    def lines(self, width: int, height: int) -> list[Line]:
        return wrapped(self.text, width, "bad")


class NodesPanel(TablePanel[FleetNode]):
    """The worst comes first; who looks at the worst goes on doing so."""

    KIND: ClassVar[str] = "node"
    THING: ClassVar[Thing[FleetNode]] = NODE
    STRETCH: ClassVar[bool] = True
    FITS: ClassVar[tuple[str, ...]] = ("name", "state", "memory_used")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.open", "Open", show=False, id="open", tooltip=_ENTER)
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.asked = False
        """Whether somebody has answered."""

    def set_rows(self, rows: Sequence[FleetNode], lines_per_row: int = 1, context: object = None) -> None:
        if self.cursor_index == 0:
            self._cursor = None
        super().set_rows(rows, lines_per_row, context)

    def key(self, row: FleetNode) -> Hashable:
        return row.name

    def title(self) -> Line:
        return (("Nodes", "title"), (f" {len(self.rows)}" if self.rows else "", "dim"))

    def corner(self) -> Line:
        return ((clients_in(self.rows), "dim"),) if self.rows else ()

    def empty(self) -> str:
        return "no node" if self.asked else "asking …"

    def _passing(self, rows: Sequence[FleetNode]) -> Sequence[FleetNode]:
        wanted = NodeFilter(self.wanted)
        return [row for row in rows if wanted.leaves(row)]

    @property
    def below(self) -> Line:
        """Of the node under the cursor, what there is no room for in its row."""
        shown = {each.id for each, _ in self.columns(self.inner)}
        row = self.cursor_row
        left = [each for each in self.THING.columns() if each.id not in shown] if row is not None else []
        return tuple((f" · {each.heading()} {each.text(row, self.view)}", "text") for each in left if row is not None)


class NodeProblemsPanel(TablePanel[NodeProblem]):
    """The problems of all nodes, those of the worst first."""

    KIND: ClassVar[str] = "node"
    THING: ClassVar[Thing[NodeProblem]] = NODE_PROBLEM
    STRETCH: ClassVar[bool] = True
    FITS: ClassVar[tuple[str, ...]] = ("name", "severity", "code")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.open", "Open", show=False, id="open", tooltip=_ENTER)
    ]

    def key(self, row: NodeProblem) -> Hashable:
        return row.node.name, row.number

    def title(self) -> Line:
        nodes = plural(len({row.node.name for row in self.rows}), "node")
        return (("Problems", "title"), (f" {len(self.rows)} · {nodes}", "dim"))

    def empty(self) -> str:
        return "no problem is known"


class FleetScreen(RowsScreen):
    """What both lists have: what the source says, the text about a node, and the keys."""

    BELOW = True
    header: FleetHeader
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("h", "history", "History of a node: six hours of clients, contexts and memory", show=False,
                id="fleet.history"),
        Binding("r", "app.look", "Look now", show=False, id="refresh"),
    ]  # fmt: skip
    DEFAULT_CSS = """
    FleetScreen {
        &.-below #text { max-height: 60%; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self.header = FleetHeader()
        self.trouble = TroubleLine(id="trouble")

    def parts(self) -> ComposeResult:
        yield self.trouble
        yield from super().parts()

    @property
    def fleet(self) -> FleetApp:
        return cast("FleetApp", self.app)

    @property
    def node(self) -> FleetNode | None:
        """The one under the cursor."""
        raise NotImplementedError

    def fill(self, nodes: Sequence[FleetNode]) -> None:
        """Bring the list up to what is known."""
        raise NotImplementedError

    def show(self) -> None:
        if self.is_mounted:
            with self.app.batch_update():
                self.fill(self.fleet.nodes)
                self.header.show(self.fleet.nodes, self.fleet.looked)
                self.trouble.show(self.fleet.trouble)
                self.show_text()

    def show_text(self) -> None:
        super().show_text()
        self._arrange()

    def told(self) -> tuple[str, list[Para]]:
        node = self.node
        if node is None:
            return "No node", [Para(self.panel.empty(), "dim")]
        name, lines = self.fleet.plots
        width = max(20, self.text.size.width - 4)
        plots = [plot(title, line, width) for title, line in lines.items()] if name == node.name else []
        return node.name, about(node, self.problems_of(node), self.left_out(), plots)

    def problems_of(self, node: FleetNode) -> Sequence[FleetProblem]:
        """In the order in which they are told."""
        return node.problems

    def left_out(self) -> Line:
        """What of the node there is no room for in the list."""
        return ()

    def _arrange(self) -> None:
        super()._arrange()
        self._hide_where_too_small("#body", "#trouble")
        width, height = room_of(self)
        self.text.styles.height = min(height * 3 // 5, max(3, height - _LIST), self.text.needs(width))

    def own_hints(self) -> list[KeyHint]:
        none = unless(self.node, _NONE)
        return [
            KeyHint(self.k("open", "Enter"), "Open", "open", 9, none),
            KeyHint(
                self.k("fleet.history", "h"), "History", "history", 4,
                none or unless(self.fleet.history, _NO_HISTORY),
            ),
            KeyHint(self.k("refresh", "r"), "Look now", "app.look", 3),
        ]  # fmt: skip

    def open_row(self, message: Panel.Opened) -> None:
        self.action_open()

    @opens
    def action_open(self) -> None:
        """What was typed for the node's own mpstui, and read here before it ran, is dropped."""
        if self.node is None:
            self.say(self.why_not("open") or _NONE)
        else:
            self.fleet.open_node(self.node.name)

    def action_history(self) -> None:
        if self.node is not None:
            self.fleet.ask_history(self.node.name)


class NodesScreen(FleetScreen):
    """All nodes."""

    panel: NodesPanel
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("D", "problems", "Problems of all nodes", show=False, id="problems"),
        Binding("q", "app.quit_app", "Quit", show=False, id="quit"),
    ]

    def __init__(self, text: str) -> None:
        """``text``: the filter at first."""
        super().__init__()
        self.filter.about = NODE_TERMS
        self.filter.placeholder = "filter: words  state:fault  clients>10  !word    Enter keep  Esc all  ? fields"
        self.filter.value = text
        self.panel.want(text)

    def make_list(self) -> NodesPanel:
        return NodesPanel(id="list")

    @property
    def node(self) -> FleetNode | None:
        return self.panel.cursor_row

    @property
    def filter_trouble(self) -> str:
        """A name that has a colon in it is no field, and finds its node."""
        return NodeFilter(self.filter.value).complaint() if self.panel.hides_all else ""

    def fill(self, nodes: Sequence[FleetNode]) -> None:
        self.panel.asked = bool(nodes) or self.fleet.looked is not None
        self.panel.set_rows(nodes)

    def left_out(self) -> Line:
        return self.panel.below

    def own_hints(self) -> list[KeyHint]:
        return [*super().own_hints(), KeyHint(self.k("problems", "D"), "Problems", "problems", 5)]

    def way_back(self) -> list[KeyHint]:
        leave = KeyHint(self.k("quit", "q"), "Quit", "app.quit_app", 10)
        return [*(super().way_back() if self.filter.value else ()), leave]

    def action_back(self) -> None:
        """There is nothing behind it."""
        if self.filter.value or self.filter.has_focus:
            super().action_back()

    @opens
    def action_problems(self) -> None:
        """Of the nodes that the filter leaves."""
        self.app.push_screen(NodeProblemsScreen(self.panel))


class NodeProblemsScreen(FleetScreen):
    """Their problems."""

    panel: NodeProblemsPanel
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("D", "back", "Back to the nodes", show=False, id="problems"),
    ]

    def __init__(self, nodes: NodesPanel) -> None:
        super().__init__()
        self._below = nodes
        self.panel.set_rows(self._problems())

    def make_list(self) -> NodeProblemsPanel:
        return NodeProblemsPanel(id="list")

    def on_mount(self) -> None:
        """At the node that the cursor is on."""
        at = self._below.cursor
        self.panel.move_to(next((n for n, row in enumerate(self.panel.rows) if row.node.name == at), 0))

    @property
    def node(self) -> FleetNode | None:
        row = self.panel.cursor_row
        return row.node if row is not None else None

    def problems_of(self, node: FleetNode) -> Sequence[FleetProblem]:
        """The one under the cursor first."""
        row = self.panel.cursor_row
        at = row.number if row is not None else 0
        return (*node.problems[at:], *node.problems[:at])

    def fill(self, nodes: Sequence[FleetNode]) -> None:
        self._below.set_rows(nodes)
        self.panel.set_rows(self._problems())

    def _problems(self) -> list[NodeProblem]:
        """Of the nodes that the filter of their list leaves."""
        return [each for node in self._below.rows for each in told_problems(node)]


def about(node: FleetNode, problems: Sequence[FleetProblem], left_out: Line, plots: Sequence[str]) -> list[Para]:
    """What is known of a node."""
    read = UNKNOWN if node.read_at is None else f"{format_age(time.time() - node.read_at)} ago"
    # A node in FAULT has a daemon that answers: that is all that its “ok” says.
    daemons = {place: "answers" if state == "ok" else state for place, state in node.daemons.items()}
    counted = ", ".join(f"{many} {state}" for state, many in Counter(daemons.values()).most_common())
    several = f" · {len(daemons)} daemons: {counted}" if len(daemons) > 1 else ""
    told = "".join(text for text, _ in left_out)
    made_up = "SIMULATED · " if node.simulated else ""
    said = [Para(f"{made_up}{node.state}{several} · read {read}{told}", STATE_STYLES.get(node.state, "text"))]
    if node.detail and node.detail not in (each.text for each in problems):
        said.append(Para(node.detail))
    said += [Para(line) for line in plots]
    for each in problems:
        mark, style = severity_mark(each.severity)
        said.append(Para(f"{each.code}  {each.text}", "text" if style == "dim" else style, mark))
        if each.remedy:
            said.append(Para(each.remedy, "accent", "→"))
    places = sorted(daemons.items(), key=lambda each: each[1] == "answers")
    said += [Para(f"{place}: {state}", "dim") for place, state in places[:_DAEMONS]]
    return said + ([Para(f"and {len(places) - _DAEMONS} more", "dim")] if len(places) > _DAEMONS else [])


class FleetApp(ScreenProgram):
    """``look`` asks once. ``every``: seconds between two looks. ``opened``: the words of the command that opens a node;
    raises FleetError. ``history``: of a node, over so many seconds; None where there is none."""

    TITLE = "mpstui fleet"
    ENABLE_COMMAND_PALETTE = False

    def __init__(
        self,
        look: Look,
        every: float,
        opened: Callable[[str], list[str]],
        history: History | None = None,
        text: str = "",
        follow: Follow | None = None,
        themes: Sequence[Theme] = (),
        theme: str = "",
        keys: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(themes, theme, keys)
        self._look, self._every, self._opened, self._follow = look, every, opened, follow
        self.history = history
        self._call = in_terminal
        self.nodes: Sequence[FleetNode] = ()
        """The worst first."""
        self.looked: float | None = None
        self.trouble = ""
        """What the source has in vain been asked for; nothing takes it away."""
        self.plots: tuple[str, Mapping[str, Sequence[float | None]]] = ("", {})
        """Of the node that was asked for last: its name, and values by title."""
        self.list = NodesScreen(text)

    def get_default_screen(self) -> Screen[None]:
        return self.list

    def begun(self) -> bool:
        return True

    def action_quit_app(self) -> None:
        self.exit()

    def help_screen(self) -> Screen[None]:
        from mpstui.ui.dialogs.help import FleetHelp

        return FleetHelp()

    async def on_mount(self) -> None:
        self._ask()
        self.set_interval(self._every, self._ask)
        if self._follow is not None:
            self.run_worker(self._follow(self._heard), group="follow")

    # Looking.

    def action_look(self) -> None:
        """As asked for by a key."""
        if self._looking():
            self.notify("Nodes are being asked already; what they answer is shown as it comes.", title="Look now")
        self._ask()

    def _looking(self, but: object = None) -> bool:
        return any(each.group == "look" and each.is_running for each in self.workers if each is not but)

    @work(exclusive=False, group="look")
    async def _ask(self) -> None:
        if self._looking(self._own()):
            return  # the one before has not ended: a slow server is asked once at a time
        told: dict[str, FleetNode] = {node.name: node for node in self.nodes}

        def tell(node: FleetNode) -> None:
            told[node.name] = node
            self.take(list(told.values()))

        try:
            found = await self._look(tell)
            self.looked, self.trouble = time.time(), " ".join(found.notes)
            self.take(list(found.nodes))
        except FleetError as error:
            old = "" if self.looked is None else f"; this is from {format_age(time.time() - self.looked)} ago"
            self.trouble = f"{error}{old}"
            self._show()

    def _heard(self, node: FleetNode) -> None:
        self.take([*(each for each in self.nodes if each.name != node.name), node])

    def _own(self) -> object:
        from textual.worker import get_current_worker

        return get_current_worker()

    def take(self, nodes: list[FleetNode]) -> None:
        """These are all that are known."""
        self.nodes = sorted(nodes, key=lambda node: node.rank)
        self._show()

    def _show(self) -> None:
        """What is seen; the others catch up when they are in front again."""
        if not (self.is_running and self.screen_stack):  # what was asked before the end has come
            return
        for each in self.screen_stack[-2 if self.screen.is_modal else -1 :]:
            if isinstance(each, FleetScreen):
                with self.typeahead.by_itself():
                    each.show()

    # What is done with a node.

    def open_node(self, name: str) -> None:
        """Its own mpstui, until that ends."""
        try:
            words = self._opened(name)
        except FleetError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        with self.suspend():
            print(f"mpstui fleet: {shlex.join(words)} · Ctrl-C gives up", flush=True)
            ended, asked = self._call(Filled(words[0], tuple(words), "", ()))
        if asked is not None:
            self._on_signal(signal.Signals(asked))
        elif not ended.good:
            why = _WHY.get(ended.status or 0, "") if "ssh" in words[0] else ""
            self.notify(f"{' '.join(words)}: {ended.words}{why}", severity="warning", markup=False)
        self._ask()

    @work(exclusive=True, group="history")
    async def ask_history(self, name: str) -> None:
        """Six hours of it, below the list."""
        history = self.history
        if history is None:
            return
        try:
            lines = await in_thread(lambda: history(name, _HOURS * 3600.0))
        except FleetError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        self.plots = name, lines
        self._show()


def in_terminal(filled: Filled) -> tuple[Ended, int | None]:
    """As :func:`run_in_terminal`, for the name of a program."""
    try:
        program = find_program(filled.program)
    except ProgramError as error:
        return Ended(None, f"{printable(filled.program, 60)} cannot be run: {error.why}"), None
    return run_in_terminal(filled._replace(program=program))


def plot(title: str, line: Sequence[float | None], width: int) -> str:
    """``memory   ▁▃█  now 2.0 GiB · most 8.0 GiB in 6 h``, no wider than ``width`` where that is 60 at least."""
    known = [value for value in line if value is not None]
    if not known:
        return f"{title:<9}nothing is known of the last {_HOURS} h"

    def figure(value: float | None) -> str:
        return format_size(None if value is None else int(value)) if title == "memory" else number(value)

    told = f"  now {figure(line[-1])} · most {figure(max(known))} in {_HOURS} h"
    cells = max(1, min(len(line), width - 9 - len(told)))
    top = max(*known, float(8 << 30) if title == "memory" else FEW)  # little stays little
    # a peak stays one: the largest of the values that a cell stands for
    parts = [line[len(line) * n // cells : len(line) * (n + 1) // cells] for n in range(cells)]
    shown = [max((v for v in part if v is not None), default=None) for part in parts]
    return f"{title:<9}{spark(shown, top)[0]}{told}"
