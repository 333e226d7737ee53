"""The screen of many nodes: a row for each, the worst first; Enter opens the node's own mpstui, and comes back."""

from __future__ import annotations

import asyncio
import shlex
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, ClassVar, Final

from rich.style import Style
from rich.text import Text
from textual import constants, on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import Screen
from textual.strip import Strip
from textual.theme import Theme
from textual.widgets import DataTable, Input, Static

from mpstui.commands import Filled, run_in_terminal
from mpstui.core.cells import number
from mpstui.core.text import UNKNOWN, format_age, format_size, printable
from mpstui.fields import View
from mpstui.fleet import NODE, Fleet, FleetError, FleetNode, in_thread, matches, summary
from mpstui.ui.bars import KeyBar, KeyHint
from mpstui.ui.lines import StyledScreen, pointed
from mpstui.ui.plots import FEW, spark
from mpstui.ui.terminal import TerminalDriver, can_come_back
from mpstui.ui.theme import variable_defaults
from mpstui.ui.typeahead import Typeahead, TypedApp, opens

Look = Callable[[Callable[[FleetNode], None]], Awaitable[Fleet]]
Follow = Callable[[Callable[[FleetNode], None]], Coroutine[Any, Any, None]]
History = Callable[[str, float], Mapping[str, Sequence[float | None]]]
_STYLES: Final = {
    "FAULT": "bad", "BLOCKED": "bad", "NO ANSWER": "bad", "NOT STARTING": "bad",
    "HELD": "warn", "STALE": "warn", "OLD": "warn", "WARNING": "warn", "NOT KNOWN": "dim", "ABSENT": "dim",
    "ok": "good",
}  # fmt: skip
_WHY: Final = {127: ": is mpstui there, and on PATH?", 255: ": ssh did not get there, or was cut off"}
"""What a status of ssh means; its own words are gone with its screen."""
_HOURS: Final = 6
_BAR: Final = 2
"""Cells of the bar beside a list that is longer than the screen."""
_REASON: Final = 20
"""Cells that the reason has at least, for which these columns go below the list:"""
_GO_FIRST: Final = ("memory_used", "contexts", "outside_processes")
_CODE: Final = 2
"""Where the code of a problem stands."""
_NAME: Final = 16
"""Cells that a node's name may have in any case."""
_SHARE: Final = 0.6
"""Of the screen's height, for what is known of a node: as in the style."""


class NodeTable(DataTable[Any]):
    """Textual's, with a sign before the row of the cursor, as in all lists."""

    def render_line(self, y: int) -> Strip:
        strip, row = super().render_line(y), y - self.header_height
        return pointed(strip) if row >= 0 and row + self.scroll_offset.y == self.cursor_row else strip


class FleetApp(TypedApp[int]):
    """``look`` asks once. ``every``: seconds between two looks. ``opened``: the words of the command that opens a node;
    raises FleetError. ``history``: of a node, over so many seconds; None where there is none. Returns the exit status:
    0, or 128 and the number of the signal that ended it."""

    TITLE = "mpstui fleet"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #summary { height: auto; max-height: 2; padding: 0 1; text-style: bold; }
    #trouble { height: auto; max-height: 5; padding: 0 1; color: $error; display: none; }
    #filter { display: none; border: none; height: 1; padding: 0 1; }
    #nodes { height: 1fr; scrollbar-size-horizontal: 0; }
    #nodes > .datatable--cursor { background: $mps-cursor; color: $foreground; text-style: bold; }
    #nodes:ansi > .datatable--cursor { background: ansi_default; color: ansi_default; text-style: reverse; }
    #detail { height: auto; max-height: 60%; padding: 0 1; border-top: solid $primary; }
    """
    BINDINGS: ClassVar[list[Any]] = [
        Binding("enter", "open", "Open the node's own mpstui", id="open"),
        Binding("slash", "filter", "Filter", id="filter"),
        Binding("D", "problems", "Problems of all nodes, and back", id="problems"),
        Binding("h", "history", "History of a node", id="fleet.history"),
        Binding("r", "look", "Look now", id="refresh"),
        Binding("j", "down", "Down", id="move.down"),
        Binding("k", "up", "Up", id="move.up"),
        Binding("g", "first", "First", id="move.first"),
        Binding("G", "last", "Last", id="move.last"),
        Binding("escape", "leave", "Back from the problems; filter off", id="back"),
        Binding("question_mark,f1", "show_help", "Help", id="help"),
        Binding("q", "quit", "Quit", id="quit"),
        Binding("ctrl+c,ctrl+backslash", "quit", priority=True),
        Binding("ctrl+z", "suspend_process", priority=True),
    ]

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
    ) -> None:
        ansi = any(each.ansi and each.name == theme for each in themes)
        super().__init__(driver_class=None if constants.DRIVER else TerminalDriver, ansi_color=ansi)
        for each in themes:
            self.register_theme(each)
        if theme in self.available_themes:
            self.theme = theme
        self._look, self._every, self._opened, self._history, self._filter = look, every, opened, history, text
        self._follow = follow
        self._call = run_in_terminal
        self.typeahead = Typeahead(self, lambda: True)
        self._fleet: list[FleetNode] = []
        self._shown: list[tuple[str, FleetNode]] = []
        self._looked: float | None = None
        self._problems = False
        self._left_out: dict[str, str] = {}
        """The columns that stand below the list: field and head."""
        self._plots: tuple[str, Mapping[str, Sequence[float | None]]] = ("", {})
        """Of the node that was asked for last: its name, and values by title."""

    def compose(self) -> ComposeResult:
        yield Static("", id="summary", markup=False)
        yield Static("", id="trouble", markup=False)
        yield Input(self._filter, placeholder="words; !word: without it", id="filter")
        yield NodeTable(id="nodes", cursor_type="row", zebra_stripes=False)
        yield Static("", id="detail", markup=False)
        self.keys = KeyBar()
        yield self.keys

    def get_default_screen(self) -> Screen[None]:
        return StyledScreen(id="_default")

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return variable_defaults(self.current_theme)

    def on_load(self) -> None:
        """Before the terminal is taken: from then on whoever ends the program must give it back."""
        if not self.is_headless:
            for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
                asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        self.exit(128 + number, return_code=128 + number)

    def action_suspend_process(self) -> None:
        if can_come_back():
            super().action_suspend_process()
        else:
            self.notify("There is no shell here that could bring mpstui back (fg); q quits.", severity="warning")

    def terminal_lost(self) -> None:
        """Nobody reads or writes any more: leave, as on a hangup."""
        self._on_signal(signal.SIGHUP)

    def written_instead(self, update: object, screen: Screen[Any]) -> None:
        """Always what Textual writes."""

    def on_unmount(self) -> None:
        self.typeahead.close()

    def on_mount(self) -> None:
        self.app_resume_signal.subscribe(self, lambda _app: self.refresh(layout=True))
        self.query_one("#summary", Static).update("asking …")
        self.call_after_refresh(self._hint)
        self.table.focus()
        self.action_look()
        self.set_interval(self._every, self.action_look)
        if self._follow is not None:
            self.run_worker(self._follow(self._heard), group="follow")

    def on_resize(self) -> None:
        if self._fleet:
            self.call_later(self._paint)  # as much of the reason as there is room for, once the size is the new one

    @property
    def table(self) -> DataTable[Any]:
        return self.query_one("#nodes", DataTable)

    # Looking.

    def action_look(self) -> None:
        self._ask()

    @work(exclusive=False, group="look")
    async def _ask(self) -> None:
        if any(worker.group == "look" and worker.is_running for worker in self.workers if worker is not self._own()):
            return  # the one before has not ended: a slow server is asked once at a time
        told: dict[str, FleetNode] = {node.name: node for node in self._fleet}

        def tell(node: FleetNode) -> None:
            told[node.name] = node
            self._take(list(told.values()))

        try:
            found = await self._look(tell)
            self._take(list(found.nodes))
            self._looked = time.time()
            self._say(" ".join(found.notes))
        except FleetError as error:
            old = "" if self._looked is None else f"; this is from {format_age(time.time() - self._looked)} ago"
            self._say(f"{error}{old}")

    def _say(self, text: str) -> None:
        """What the source has in vain been asked for; nothing takes the line away."""
        trouble = self.query_one("#trouble", Static)
        trouble.update(text)
        trouble.display = bool(text)

    def _heard(self, node: FleetNode) -> None:
        self._take([*(each for each in self._fleet if each.name != node.name), node])

    def _own(self) -> object:
        from textual.worker import get_current_worker

        return get_current_worker()

    def _take(self, nodes: list[FleetNode]) -> None:
        self._fleet = sorted(nodes, key=lambda node: node.rank)
        self._paint()

    # Showing.

    def _paint(self) -> None:
        table = self.table
        kept = self._current() if table.cursor_row else None  # who looks at the worst goes on doing so
        shown = [node for node in self._fleet if matches(node, self._filter)]
        told = f"   /{printable(self._filter, 40)}: {len(shown)} of {len(self._fleet)}" if self._filter else ""
        self.query_one("#summary", Static).update(summary(shown) + told)
        if self._problems:
            heads = ["NODE", "SEVERITY", "CODE", "WHAT", "REMEDY"]
            self._shown = [(f"{node.name} {n}", node) for node in shown for n, _ in enumerate(node.problems)]
            rows = [
                [Text(cell) for cell in (node.name, each.severity, each.code, each.text, each.remedy)]
                for node in shown
                for each in node.problems
            ]
            self._shorten(heads, rows)
        else:
            self._shown = [(node.name, node) for node in shown]
            columns = {
                each.id: [
                    Text(each.text(node, View()), style=self._style(node.state) if each.id == "state" else "")
                    for node in shown
                ]
                for each in NODE.rows()
            }
            heads, rows = self._fitted(columns)
        table.clear(columns=True)
        for at, head in enumerate(heads):
            table.add_column(head, width=max((len(head), *(row[at].cell_len for row in rows))))
        for (key, _), row in zip(self._shown, rows, strict=True):
            table.add_row(*row, key=key)
        if kept is not None:
            place = next((n for n, (_, node) in enumerate(self._shown) if node.name == kept), None)
            if place is not None:
                table.move_cursor(row=place, animate=False)
        self._detail()

    def _fitted(self, columns: dict[str, list[Text]]) -> tuple[list[str], list[list[Text]]]:
        """Heads and rows of the cells by field. The last column is the reason: it is cut where there is no room, with a
        sign, and others go below the list before it is cut to a word."""
        heads = {each.id: each.row.name for each in NODE.rows() if each.row}
        for cell in columns[next(iter(columns))]:
            cell.truncate(self._most_of_a_name, overflow="ellipsis")
        widths = {name: 2 + max((len(heads[name]), *(c.cell_len for c in cells))) for name, cells in columns.items()}
        last = list(columns)[-1]
        room = self.size.width - _BAR - sum(widths.values()) + widths[last]
        self._left_out = {}
        for name in _GO_FIRST:
            if room < min(widths[last], _REASON):
                del columns[name]
                self._left_out[name] = heads[name]
                room += widths[name]
        for cell in columns[last]:
            cell.truncate(max(len(heads[last]), room - 2), overflow="ellipsis")
        return [heads[name] for name in columns], [list(row) for row in zip(*columns.values(), strict=True)]

    @property
    def _most_of_a_name(self) -> int:
        """Cells of the list; below it a name is whole."""
        return max(_NAME, self.size.width // 3)

    def _shorten(self, heads: list[str], rows: Sequence[list[Text]]) -> None:
        """What and remedy have the room beside the other columns, for which the code gives way, and a sign where they
        are cut: below the list all is told in full."""
        for row in rows:
            row[0].truncate(self._most_of_a_name, overflow="ellipsis")
        whole = [2 + max((len(head), *(row[at].cell_len for row in rows))) for at, head in enumerate(heads)]
        room = self.size.width - _BAR - sum(whole[:-2])
        if room < min(sum(whole[-2:]), 2 * _REASON):
            room += whole.pop(_CODE)
            del heads[_CODE]
            for row in rows:
                del row[_CODE]
        what = min(whole[-2], max(_REASON, room * 2 // 3))
        for row in rows:
            row[-2].truncate(what - 2, overflow="ellipsis")
            row[-1].truncate(max(len(heads[-1]), room - what - 2), overflow="ellipsis")

    def _style(self, state: str) -> Style:
        """That of the theme."""
        return self.screen_stack[0].get_component_rich_style(f"ui--{_STYLES.get(state, 'text')}", partial=True)

    def _current(self) -> str | None:
        row = self.table.cursor_row
        return self._shown[row][1].name if 0 <= row < len(self._shown) else None

    @on(DataTable.RowHighlighted)
    def _detail(self) -> None:
        node = next((node for node in self._fleet if node.name == self._current()), None)
        if node is None:
            none = "no node passes the filter" if self._filter and self._fleet else "no node"
            self.query_one("#detail", Static).update(none if self._looked else "")
            return
        width = max(20, self.size.width - 2)
        room = int(self.size.height * _SHARE) - 1  # less the line above it
        read = UNKNOWN if node.read_at is None else f"{format_age(time.time() - node.read_at)} ago"
        text = Text()
        text.append(node.name, "bold")
        text.append(f"  {node.state}", self._style(node.state))
        text.append(f"  read {read}")
        for field in NODE.rows():
            if field.id in self._left_out:
                text.append(f"  {self._left_out[field.id]} {field.text(node, View())}")
        if node.detail and node.detail not in (each.text for each in node.problems[:1]):
            text.append(f"\n{node.detail}")
        name, lines = self._plots
        for title, line in lines.items() if name == node.name else ():
            text.append("\n" + plot(title, line, width))
        # A node in FAULT has a daemon that answers: that is all that its “ok” says.
        daemons = {place: "answers" if state == "ok" else state for place, state in node.daemons.items()}
        places = [f"\n{place}: {state}" for place, state in daemons.items()]
        if len(places) > max(1, room // 4):
            states = Counter(daemons.values()).most_common()
            places = [f"\n{len(places)} daemons: {', '.join(f'{number} {state}' for state, number in states)}"]

        def high(*parts: str) -> int:
            return len(Text(text.plain + "".join(parts)).wrap(self.console, width))

        for at, each in enumerate(node.problems):
            told = f"\n{each.severity} {each.code}  {each.text}" + (f"\n  → {each.remedy}" if each.remedy else "")
            left = len(node.problems) - at
            if at and high(told, *places, "\n" * (left > 1)) > room:
                text.append(f"\nand {left} more: D")
                break
            text.append(told)
        text.append("".join(places))
        self.query_one("#detail", Static).update(text)

    # Keys.

    def _hint(self) -> None:
        """The keys of what has the focus."""
        if self.query_one("#filter", Input).has_focus:
            self.keys.show([KeyHint("Enter", "Keep the filter", "keep", 8), KeyHint("Esc", "Clear it", "leave", 8)])
            return
        self.keys.show(
            [
                KeyHint("Enter", "Open", "open", 9),
                KeyHint("/", "Filter", "filter", 6),
                KeyHint("Esc", "Nodes", "leave", 7) if self._problems else KeyHint("D", "Problems", "problems", 5),
                *([KeyHint("h", "History", "history", 4)] if self._history is not None else []),
                KeyHint("r", "Look now", "look", 3),
                *([KeyHint("Esc", "Filter off", "leave", 7)] if self._filter and not self._problems else []),
                KeyHint("?", "Help", "show_help", 8),
                KeyHint("q", "Quit", "quit", 8),
            ]
        )

    @on(KeyBar.Pressed)
    async def _pressed(self, message: KeyBar.Pressed) -> None:
        await self.run_action(message.action)

    @opens
    def action_show_help(self) -> None:
        from mpstui.ui.dialogs.help import FleetHelp, HelpScreen

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(FleetHelp(history=self._history is not None))

    def action_problems(self) -> None:
        self._problems = not self._problems
        self._paint()
        self._hint()

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.display = True
        field.focus()
        self.call_after_refresh(self._hint)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self._filter = event.value
        self._paint()

    @on(Input.Submitted)
    def action_keep(self) -> None:
        self.query_one("#filter", Input).display = bool(self._filter)
        self.table.focus()
        self.call_after_refresh(self._hint)

    def action_leave(self) -> None:
        field = self.query_one("#filter", Input)
        if self._problems and not field.has_focus:
            self.action_problems()
            return
        field.value = ""
        field.display = False
        self.table.focus()
        self.call_after_refresh(self._hint)

    def action_down(self) -> None:
        self.table.action_cursor_down()

    def action_up(self) -> None:
        self.table.action_cursor_up()

    def action_first(self) -> None:
        self.table.move_cursor(row=0)

    def action_last(self) -> None:
        self.table.move_cursor(row=self.table.row_count - 1)

    @on(DataTable.RowSelected)
    @opens
    def action_open(self) -> None:
        """What was typed for the node's own mpstui, and read here before it ran, is dropped."""
        name = self._current()
        if name is None:
            return
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
        self.action_look()

    def action_history(self) -> None:
        name = self._current()
        if self._history is None:
            self.notify("there is a history from Prometheus only", markup=False)
        elif name is not None:
            self._ask_history(name)

    @work(exclusive=True, group="history")
    async def _ask_history(self, name: str) -> None:
        history = self._history
        if history is None:
            return
        try:
            lines = await in_thread(lambda: history(name, _HOURS * 3600.0))
        except FleetError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        self._plots = name, lines
        self._detail()


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
