"""The clients of a daemon: filter, sort, choose; identity is the process, never the position."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from mpstui.core.activity import Trends
from mpstui.core.cells import gpus_text, state_mark
from mpstui.core.late import dataclass
from mpstui.core.model import Client, Daemon, ProcessKey, Snapshot
from mpstui.core.text import UNKNOWN, Line, at_least, plural, printable
from mpstui.fields import CLIENT, GROUPS, Field, Group, Thing, View, groups_of, possible_columns
from mpstui.ui.filter import ClientFilter
from mpstui.ui.lines import fit, fit_line, width_of
from mpstui.ui.panels.table import TablePanel

PIN = "↑"
_BRIEF = 8
"""Cells in which a filter is told beside all headings; where there are fewer, the last heading gives way."""
_OPEN, _FOLDED = "[-]", "[+]"
_FIELD_OF = {"gpu": "device_uuids", "server": "server_pid"}
"""The column that a way of grouping goes by, where its name is another one."""
_COUNTED = frozenset({"launches_per_second", "idle_since", "not_counted"})
"""What is known only where launches are counted."""


_GPUS = 11
"""Cells of the GPUs' names at most, where no command is known: no other column gives any for them."""


class ClientsPanel(TablePanel[Client | Group]):
    """All clients of the daemon on the screen, those that the filter leaves, in the chosen order, also in groups."""

    NUMBER: ClassVar[int] = 4
    TITLE: ClassVar[str] = "Clients"
    KIND: ClassVar[str] = "client"
    THING: ClassVar[Thing[Client]] = CLIENT
    STRETCH: ClassVar[bool] = True
    WRAPS: ClassVar[bool] = False  # they come and go, and the rows below would move; Enter has all of it
    GUTTER: ClassVar[int] = 3
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v,space,insert", "choose", "Choose", show=False, id="clients.choose"),
        Binding("asterisk", "choose_all", "Choose all", show=False, id="clients.choose_all"),
        Binding("s", "sort", "Sort by the next column", show=False, id="clients.sort"),
        Binding("I", "invert", "Invert the order", show=False, id="clients.invert"),
        Binding(
            "i", "pin", "Pin: keep the row on top, and be told when it ends; again: unpin", show=False, id="clients.pin"
        ),
        Binding("left", "fold(True)", "Fold this group", show=False, id="clients.fold"),
        Binding("right", "fold(False)", "Unfold this group", show=False, id="clients.unfold"),
        Binding("minus", "fold_all(True)", "Fold all groups", show=False, id="clients.fold_all"),
        Binding("plus", "fold_all(False)", "Unfold all groups", show=False, id="clients.unfold_all"),
    ]

    ON_ROWS: ClassVar[frozenset[str]] = frozenset({"open", "choose", "choose_all", "pin"})

    class Chosen(Message):
        """The set of chosen clients changed."""

    @dataclass
    class Ended(Message):
        """These, which were pinned, are no longer clients."""

        clients: Sequence[Client]

    class Arranged(Message):
        """The order of the rows, their groups, or which of those are folded, is another one."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.filter = ClientFilter()
        self.chosen: frozenset[ProcessKey] = frozenset()
        self._all: Sequence[Client] = ()
        self._known = self._whole = True
        self._sort = CLIENT["pid"]
        self._reverse = False
        self._unordered = False
        """Whether what they are sorted by is known of none of them."""
        self._anchor: Hashable | None = None
        self._left: Sequence[Client] = ()
        """Those that the filter leaves, in their order."""
        self.by: str | None = None
        """What they are grouped by, one of ``GROUPS``."""
        self.folded: frozenset[str | None] = frozenset()
        """The names of the groups of which only the first line is shown."""
        self._groups: Mapping[str | None, Group] = {}
        self.pinned: frozenset[ProcessKey] = frozenset()
        """Those that stand above the others, of whichever daemon."""
        self.search = ClientFilter()
        """What ``n`` goes on to; without it to every row that the filter leaves."""

    def show(
        self,
        snapshot: Snapshot,
        daemon: Daemon,
        own: Mapping[ProcessKey, int] = MappingProxyType({}),
        trends: Trends | None = None,
    ) -> None:
        """``own``: test clients of this program, which are marked with their numbers; ``trends``: what clients had
        before."""
        before = self._all if self.view.daemon is not None and self.view.daemon.pipe_dir == daemon.pipe_dir else ()
        self.view = replace(View.of(snapshot, daemon, own), trends=trends)
        self._all = tuple(daemon.clients())
        self._known = daemon.servers_known
        self._whole = daemon.clients_known
        alive = frozenset(client.key for client in self._all)
        self._follow({client.key for client in before} - alive, alive)
        if not self.chosen <= alive:
            self.chosen &= alive
            self.post_message(self.Chosen())
        if self._known and self.pinned:
            ended = [client for client in before if client.key in self.pinned and client.key not in alive]
            if ended:
                self.pinned -= {client.key for client in ended}
                self.post_message(self.Ended(ended))
        self._arrange()

    def _follow(self, missing: Collection[ProcessKey], alive: Collection[ProcessKey]) -> None:
        """Whoever is pinned or under the cursor stays it when more, or less, is known of its start. Who is chosen, for
        an action, stays it only when more is: behind a number alone may be another process."""
        now = {key: found for key in missing if (found := key.among(alive)) is not None}
        if now:
            self.chosen = frozenset(now.get(key, key) if key.start_ticks is None else key for key in self.chosen)
            self.pinned = frozenset(now.get(key, key) for key in self.pinned)
            if isinstance(self._cursor, ProcessKey):
                self._cursor = now.get(self._cursor, self._cursor)

    def _arrange(self) -> None:
        view = self.view = replace(self.view, device=self.filter.device(self.view))
        shown = [c for c in self._all if self.filter.matches(c, view)] if self.filter else self._all
        ordered = sorted(shown, key=lambda c: c.pid)
        self._unordered = False
        if self._sort.id != "pid" or self._reverse:
            keyed = [(self._sort.order(c, view), c) for c in ordered]
            known = [pair for pair in keyed if not pair[0][0]]
            known.sort(key=lambda pair: pair[0], reverse=self._reverse)
            ordered = [c for _, c in known] + [c for order, c in keyed if order[0]]
            self._unordered = bool(keyed) and not known
        if self.pinned:
            ordered.sort(key=lambda c: c.key not in self.pinned)
        self._left = ordered
        self.set_rows(ordered if self.by is None else self._in_groups(self.by))

    def _fits(self, rows: Sequence[Client | Group]) -> dict[str, int]:
        """Where no command is known, as from logs alone, its column leaves its room to the GPUs, whose names are long
        then."""
        if not self._left or any(client.command for client in self._left):
            return {}
        gpus = max(cell_len(gpus_text(client, self.view.indices)) for client in self._left)
        return {"command": 0, "device_uuids": min(gpus, _GPUS)}

    def _in_groups(self, by: str) -> list[Client | Group]:
        """Each group's line, and under it its clients. A cursor that would be on one that is folded away is on the
        line of its group."""
        known, rows = self._groups, list[Client | Group]()
        made = groups_of(self._left, by, self.view)
        self._groups = {each.name: old if (old := known.get(each.name)) == each else each for each in made}
        for group in self._ordered(self._groups.values(), by):
            rows.append(group)
            if group.name not in self.folded:
                rows += group.clients
            elif any(client.key == self._cursor for client in group.clients):
                self._cursor = self.key(group)
        return rows

    def _ordered(self, groups: Iterable[Group], by: str) -> list[Group]:
        """By their sums, where the clients are in the order of something that can be added up, otherwise by name."""
        named = sorted(groups, key=lambda each: each.order)
        if self.pinned and any(each.clients[0].key in self.pinned for each in named):
            first = [each for each in named if each.clients[0].key in self.pinned]
            return first + self._by_sum([each for each in named if each not in first], by)
        return self._by_sum(named, by)

    def _by_sum(self, named: list[Group], by: str) -> list[Group]:
        column, backwards = self._sort.column, self._reverse
        if column is None or column.total is None:
            nameless = [each for each in named if each.name is None]
            turned = backwards and self._sort.id == _FIELD_OF.get(by, by)
            return [each for each in named if each.name is not None][:: -1 if turned else 1] + nameless
        sums = [(column.total.value(each)[0], each) for each in named]
        first = [(size, each) for size, each in sums if size is not None]
        first.sort(key=lambda pair: pair[0], reverse=column.falling is not backwards)
        return [each for _, each in first] + [each for size, each in sums if size is None]

    def group(self, by: str | None, folded: Iterable[str | None] = ()) -> None:
        """Put the clients in groups by one of ``GROUPS``; None, or another name: in none."""
        self.by, self.folded = by if by in GROUPS else None, frozenset(folded)
        self._groups = {}
        self._arrange()
        self.post_message(self.Arranged())

    def groups_by(self, by: str) -> int:
        """How many groups there would be."""
        return len(groups_of(self._left, by, self.view))

    def laid_out(self) -> Mapping[str, int]:
        """The ids of the columns that there is room for, with their cells."""
        return {each.id: cells for each, cells in self.columns(self.inner)}

    @property
    def cursor_group(self) -> Group | None:
        """The group whose line the cursor is on."""
        row = self.cursor_row
        return row if isinstance(row, Group) else None

    def action_fold(self, fold: bool) -> None:
        """On a client, folding goes to the line of its group first."""
        row = self.cursor_row
        if self.by is None or row is None:
            return
        if isinstance(row, Group):
            self._fold(self.folded | {row.name} if fold else self.folded - {row.name})
        elif fold:
            at = next(i for i in range(self.cursor_index, -1, -1) if isinstance(self.rows[i], Group))
            self.move_to(at)

    def action_fold_all(self, fold: bool) -> None:
        if self.by is not None:
            self._fold(frozenset(self._groups) if fold else frozenset())

    def _fold(self, folded: frozenset[str | None]) -> None:
        if folded != self.folded:
            self.folded = folded
            self._arrange()
            self.post_message(self.Arranged())
            self.post_message(self.Moved(self))

    def action_open(self) -> None:
        """Details of a client; a group is folded, or unfolded."""
        if (group := self.cursor_group) is not None:
            self.action_fold(group.name not in self.folded)
        else:
            super().action_open()

    # What actions are for.

    def is_at(self, before: Hashable | None) -> bool:
        """Whether the cursor is on the row that it was on ``before``; a process may have another key by now."""
        now = self.cursor
        if isinstance(now, ProcessKey) and isinstance(before, ProcessKey):
            return now.may_be(before)
        return now == before

    def targets(self) -> tuple[ProcessKey, ...]:
        """The chosen clients in the order of the daemon, or the one under the cursor; on the line of a group all of it
        that the filter leaves, each of whom the question names."""
        return self.in_view or tuple(client.key for client in self._under_cursor())

    @property
    def in_view(self) -> tuple[ProcessKey, ...]:
        """Those of the chosen ones that the filter leaves: no key is for one that it hides, who is chosen again as soon
        as it is seen again."""
        left = self.chosen.intersection(client.key for client in self._left) if self.chosen else self.chosen
        return tuple(client.key for client in self._all if client.key in left) if left else ()

    def _under_cursor(self) -> Sequence[Client]:
        row = self.cursor_row
        if isinstance(row, Group):
            return row.clients
        return () if row is None else (row,)

    @property
    def cursor_server(self) -> int | None:
        """The PID of the server that all clients under the cursor are of."""
        servers = {client.server_pid for client in self._under_cursor()}
        return servers.pop() if len(servers) == 1 else None

    # What is looked for.

    def marked(self) -> Iterable[Client | Group]:
        """No line of a group."""
        return self._left

    def _in_order(self) -> list[Client]:
        """All that the filter leaves, in the order of the rows, those in folded groups too."""
        if self.by is None:
            return list(self._left)
        return [client for group in self._ordered(self._groups.values(), self.by) for client in group.clients]

    def find(self, text: str) -> None:
        """Look for this from where the search began, or else from the cursor: the first that is it gets the cursor."""
        self.search = ClientFilter(text)
        if self._anchor is not None and any(self.key(row) == self._anchor for row in self.rows):
            self.move_to(next(at for at, row in enumerate(self.rows) if self.key(row) == self._anchor))
        if self.search:
            self.go_on(1, here=True)
        self.repaint()

    def go_on(self, step: int, *, here: bool = False) -> bool:
        """To the next one that is looked for, or the one before, round the end too; whether there is one. ``here``: the
        one under the cursor counts."""
        order = self._in_order()
        hits = [at for at, c in enumerate(order) if not self.search or self.search.matches(c, self.view)]
        if not hits:
            return False
        under = self._under_cursor()
        at = next((n for n, client in enumerate(order) if under and client.key == under[0].key), 0)
        on_line = isinstance(self.cursor_row, Group)
        if step > 0:
            from_here = at if here or on_line else at + 1
            found = next((n for n in hits if n >= from_here), hits[0])
        else:
            found = next((n for n in reversed(hits) if n < at), hits[-1])
        target = order[found]
        if self.by is not None and target not in self.rows:
            group = next(each for each in self._groups.values() if target in each.clients)
            self._fold(self.folded - {group.name})
        self.move_to(next(n for n, row in enumerate(self.rows) if self.key(row) == target.key))
        return True

    def _found(self) -> str:
        """``2 of 5``: which of those that are looked for the cursor is on."""
        hits = [c.key for c in self._in_order() if self.search.matches(c, self.view)]
        at = hits.index(self._cursor) + 1 if self._cursor in hits else 0
        return f"{at or UNKNOWN} of {len(hits)}" if hits else "none"

    def action_pin(self) -> None:
        """On the line of a group, all of it."""
        keys = frozenset(client.key for client in self._under_cursor())
        if keys:
            self.pinned = self.pinned - keys if keys <= self.pinned else self.pinned | keys
            self._arrange()
            self.post_message(self.Arranged())

    def begin_filter(self) -> None:
        """From here on the cursor comes back to this row whenever the filter leaves it."""
        self._anchor = self._cursor

    def set_filter(self, text: str) -> None:
        self.filter = ClientFilter(text)
        if self._anchor is not None:
            self._cursor, self._index = self._anchor, 0
        self._arrange()

    def end_filter(self) -> None:
        self._anchor = None

    def clear_chosen(self) -> None:
        """Choose nothing, of those that the filter hides neither."""
        self._choose(frozenset())

    def _choose(self, keys: frozenset[ProcessKey]) -> None:
        if keys != self.chosen:
            self.chosen = keys
            self.repaint()
            self.post_message(self.Chosen())

    def action_choose(self) -> None:
        if self.rows:
            self._switch(self._under_cursor())
            self.action_move(1)

    def action_choose_all(self) -> None:
        """All that the filter leaves; none, where they already are."""
        self._switch(self._left)

    def _switch(self, clients: Iterable[Client]) -> None:
        """Choose all of these; where they all are, none of them."""
        keys = frozenset(client.key for client in clients)
        self._choose(self.chosen - keys if keys <= self.chosen else self.chosen | keys)

    def action_sort(self) -> None:
        visible = self.columns(self.inner)
        following = [c.id for c, _ in visible]
        at = following.index(self._sort.id) if self._sort.id in following else -1
        self.sort_by(following[(at + 1) % len(following)])

    def action_invert(self) -> None:
        self.sort_by(self._sort.id, not self._reverse)

    def on_click(self, event: events.Click) -> None:
        if event.y == self.above - 1:
            x = self.GUTTER + self._framed
            for column, width in self.columns(self.inner):
                if x <= event.x < x + width:
                    self.sort_by(column.id, not self._reverse if column.id == self._sort.id else False)
                x += width
            return
        super().on_click(event)
        if self.clicked() is None:
            return
        if event.ctrl:
            self._switch(self._under_cursor())
        elif event.chain == 1 and self.cursor_group is not None:
            x = event.x - self._framed - self.GUTTER
            if 0 <= x < len(_OPEN):
                self.action_open()

    # Painting.

    def key(self, row: Client | Group) -> Hashable:
        return ("group", row.by, row.name) if isinstance(row, Group) else row.key

    def title(self) -> Line:
        total = len(self._all)
        text = f" {len(self._left)}/{total}" if self.filter else f" {at_least(total, self._whole)}"
        seen = len(self.in_view)
        hidden = f", {len(self.chosen) - seen} hidden by the filter" if len(self.chosen) > seen else ""
        chosen: Line = ((f"  ✓ {seen} chosen{hidden}", "chosen"),) if self.chosen else ()
        return ((self.TITLE, "title"), (text, "accent" if self.filter else "dim"), *self._by, *self._order, *chosen)

    @property
    def _order(self) -> Line:
        """By what the rows are sorted, where no heading says it."""
        shown = self._sort.id in {each.id for each, _ in self.columns(self.inner)} or self._sort.id == "pid"
        return () if shown else ((f"  {self.arrow} {self._sort.heading()}", "accent"),)

    @property
    def _by(self) -> Line:
        """By what they are in groups."""
        return ((f" by {'GPU' if self.by == 'gpu' else self.by}", "accent"),) if self.by is not None else ()

    def corner(self) -> Line:
        for each in (self.filter, self.search):
            if complaint := each.complaint():
                said_below = each is self.filter and not self.rows
                return (("▲ ", "warn"), (_at_most(each.text, 40) if said_below else complaint, "warn"))
        if self.search:
            return (("find ", "key"), (_at_most(self.search.text, 30), "accent"), (f"  {self._found()}", "dim"))
        if self.filter:
            return (("/ ", "key"), (_at_most(self.filter.text, 40), "accent"))
        return (("/ ", "key"), ("filter", "dim"))

    def named(self) -> Line:
        """The main list: how many there are is enough."""
        return self.title()[1:]

    def brief(self, free: int, most: int) -> Line:
        """That rows are chosen, looked for or filtered is told in any case; by what, where there is room for all of
        that, as the keys at the foot tell it too; and so what the rows show."""
        total, text = len(self._all), (self.search or self.filter).text
        complaint = self.filter.complaint() or self.search.complaint()
        told = [(f"✓ {seen}", "chosen")] if (seen := len(self.in_view)) else []
        counted = told.copy()
        if complaint:
            told.append((f"▲ {printable(text)}", "warn"))
            counted.append(told[-1])
        elif self.search:
            counted.append((self._found().replace(" of ", "/"), "accent"))
            told.append((f"{counted[-1][0]} {printable(text)}", "accent"))
        elif self.filter:
            counted.append((f"{len(self._left)}/{total}", "accent"))
            told.append((f"{counted[-1][0]} /{printable(text)}", "accent"))
        needed = len(told)
        told += [(text.strip(), style) for text, style in (*self._by, *self._order)]
        while len(told) > needed and width_of(_apart(told)) > free:
            told.pop()
        if not told:
            text = at_least(total, self._whole)
            return ((text, "dim"),) if len(text) <= free and self._known else ()
        line = _apart(told)
        if len(told) == 1 and seen and width_of(line) + len(" chosen") <= free:
            line = (*line, (" chosen", "chosen"))
        room = free if free >= _BRIEF else most
        if counted and width_of(line) > room:
            line, room = _apart(counted), max(free, room)
        return fit_line(line, min(width_of(line), room))

    @property
    def tells(self) -> bool:
        return bool(self.filter or self.search)

    def empty(self) -> str:
        if not self._all and not self._known:
            return f"{UNKNOWN} not known: the daemon cannot be asked"
        if not self._all and not self._whole:
            return f"{UNKNOWN} not known: the daemon has not told of its clients"
        if complaint := self.filter.complaint():
            return f"Esc clears the filter: {complaint}"
        if not (self.filter and self._all):
            return "no clients"
        named = f". A field has a colon: {name}" if (name := self.filter.field_meant()) else ""
        return f"no client matches the filter; Esc clears it{named}"

    def sorted_by(self, each: Field[Client | Group]) -> str:
        return self.arrow if each.id == self._sort.id else ""

    @property
    def arrow(self) -> str:
        """▲ where the smallest comes first, ▼ where the largest does, — where none is known to be either."""
        if self._unordered:
            return UNKNOWN
        falling = self._sort.column is not None and self._sort.column.falling
        return "▼" if falling is not self._reverse else "▲"

    @property
    def sort(self) -> tuple[str, bool]:
        """The field that the rows are in the order of, and whether it is the other way round than usual."""
        return self._sort.id, self._reverse

    def sort_by(self, name: str, reverse: bool = False) -> None:
        """Put the rows in the order of that field; one that does not exist changes nothing, and where it is known of
        none of them that is said."""
        found = next((each for each in possible_columns(self.THING) if each.id == name), None)
        if found is None:
            return
        self._sort, self._reverse = found, reverse
        self._arrange()
        if self._unordered:
            name = found.heading()
            text = f"{name} is {UNKNOWN} for all clients here: they are in the order of their PIDs. {self._why(found)}"
            self.app.notify(text, title="Sort", markup=False)  # no warning: what is typed behind it is not dropped
        self.post_message(self.Arranged())

    def _why(self, each: Field[Client]) -> str:
        """Why it is known of none, and how it can be had."""
        if each.id in _COUNTED and not self.view.snapshot.watches_activity:
            return "Launches are counted where mpstui is started with --activity."
        if each.id == "launches_per_second":
            why = next((c.activity.why for c in self._left if c.activity is not None and c.activity.why), "")
            return f"They are not counted: {printable(why)}." if why else "None of them is counted yet."
        lacking = each.lacking(UNKNOWN, self.view)
        return f"It is {lacking}." if lacking else f"What it is: {each.brief}."

    def plain(self, row: Client | Group) -> str:
        if isinstance(row, Group):
            return "text"
        return "dim" if row.state == "TERMINATED" or row.key in self.view.lost else "text"

    def _is_chosen(self, row: Client | Group) -> bool:
        clients = row.clients if isinstance(row, Group) else (row,)
        return bool(self.chosen) and all(client.key in self.chosen for client in clients)

    def lead(self, row: Client | Group) -> Line:
        pinned = not isinstance(row, Group) and row.key in self.pinned
        last = (PIN if pinned else " ", "key")
        told: Sequence[Client] = ()  # whose state no cell says: their rows are folded away, or have no such column
        if isinstance(row, Group):
            told = row.clients if row.name in self.folded else ()
        elif self._laid is not None and "state" not in self._laid[2].beside:
            told = (row,)
        lost, claimed = self.view.lost, self.view.claimed
        marks = [state_mark(each, lost=each.key in lost, claimed=each.key in claimed) for each in told]
        for bad in ("warn", "bad"):
            word = next((word for word, style in marks if style == bad), "")
            last = (word[0], bad) if word else last  # a row that is pinned stands on top, too
        return ((" ", "text"), ("✓" if self._is_chosen(row) else " ", "chosen"), last)

    def stamp(self, row: Client | Group, width: int) -> Hashable:
        if not isinstance(row, Group):
            return super().stamp(row, width)
        self._lay(width)
        return self._steady, self.lead(row), self._label(row), id(row)  # kept as long as what is drawn of it

    def _label(self, group: Group) -> Line:
        """``[-] user alice · 3 clients``"""
        among = sum(client.key in self.chosen for client in group.clients) if self.chosen else 0
        some = f", {among} chosen" if 0 < among < len(group.clients) else ""
        return (
            (_FOLDED if group.name in self.folded else _OPEN, "key"),
            (f" {printable(group.title)}", "bold"),
            (f" · {plural(len(group.clients), 'client')}{some}", "dim"),
        )

    def row_lines(self, row: Client | Group, width: int) -> list[Line]:
        if isinstance(row, Group):
            lines: list[Line] = [(*self.lead(row), *self.summed(row, self._label(row), width))]
        else:
            lines = super().row_lines(row, width)
        if not self._is_chosen(row):
            return lines
        return [tuple((text, f"{name}+marked") for text, name in fit_line(lines[0], width))]


def _apart(told: Sequence[tuple[str, str]]) -> Line:
    """With a space between two of them."""
    return tuple((text if n == 0 else f" {text}", style) for n, (text, style) in enumerate(told))


def _at_most(text: str, cells: int) -> str:
    """What was typed, cut to so many cells."""
    shown = printable(text)
    return fit(shown, min(cells, cell_len(shown)))
