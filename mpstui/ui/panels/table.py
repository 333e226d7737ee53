"""A list whose columns are the fields of its things: heads, cells, and what makes a row be drawn again."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

from rich.cells import cell_len

from mpstui.core.text import Line, Span
from mpstui.fields import Field, Group, NotingView, Shown, Thing, Total, View, fitted, lay_out
from mpstui.ui.lines import fit, fit_line, hung, justify, width_of
from mpstui.ui.panel import SUPERSCRIPT, Panel

T = TypeVar("T")
_LABEL = 14
"""Cells that the name of a group has at least."""
_UNCUT = 1000
"""Cells of a column in which nothing is cut."""
_SPARE = 16
"""Rows that are remembered beyond twice as many as there is room for."""


class TablePanel(Panel[T]):
    """A row shows what its fields say now: it is drawn again when one of its cells, or a note, has changed."""

    THING: ClassVar[Thing[Any]]
    STRETCH: ClassVar[bool] = False
    """Whether the last column takes what is left of the width."""
    HEADED: ClassVar[bool] = True
    """Whether the titles of its columns stand over them."""
    GUTTER: ClassVar[int] = 1
    FITS: ClassVar[tuple[str, ...]] = ()
    """The columns that are no wider than their longest text."""
    NOTE_AT_RIGHT: ClassVar[bool] = False
    """Whether a row's note stands at the right border, over empty cells, and not behind the last of them."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = View()
        self.chosen_columns: tuple[Shown, ...] = ()
        """Those that the user wants; without them the usual ones."""
        self._thing = self.THING
        self._longest: dict[str, int] = {}
        self._laid: tuple[int, View, View, list[tuple[Field[T], int]]] | None = None
        self._steady: tuple[object, ...] = ()
        self._titled: tuple[list[tuple[Field[T], int, str, str]], Line] | None = None
        self._noting = NotingView(self.view)
        self._changing: dict[Hashable, tuple[T, list[int], list[Line]]] = {}
        """Of each row that is in view, the columns that go by the snapshot or the daemon, and what stands in all."""

    def columns(self, width: int) -> list[tuple[Field[T], int]]:
        """The columns that there is room for, with their cells."""
        return self._lay(width)[1]

    def _lay(self, width: int) -> tuple[View, list[tuple[Field[T], int]]]:
        laid = self._laid
        if laid is None or laid[0] != width or laid[1] is not self.view:
            shown = lay_out(
                self._thing, self.view, width, self.GUTTER, stretch=self.STRETCH, chosen=self.chosen_columns
            )
            beside = replace(self.view, beside=frozenset(each.id for each, _ in shown))
            laid = self._laid = width, self.view, beside, shown
            self._noting = NotingView(beside)
            if self._steady != (width, *beside.steady):
                self._steady = (width, *beside.steady)
                self._changing.clear()
        return laid[2], laid[3]

    def set_rows(self, rows: Sequence[T], lines_per_row: int = 1, context: object = None) -> None:
        longest = self._fits(rows)
        if longest != self._longest:
            self._longest, self._thing = longest, fitted(self.THING, longest)
            self._lay_anew()
        super().set_rows(rows, lines_per_row, context)

    def _fits(self, rows: Sequence[T]) -> dict[str, int]:
        """The columns that go by their texts, and how long the longest of these is."""
        fields = [self.THING[name] for name in self.FITS]
        return {each.id: max((cell_len(each.text(row, self.view)) for row in rows), default=0) for each in fields}

    def _lay_anew(self) -> None:
        """The columns are other ones."""
        self._laid, self._steady = None, ()
        self._changing.clear()
        self._drawn.clear()

    def choose_columns(self, chosen: Sequence[Shown]) -> None:
        """Show these, in this order, with these widths; none: the usual ones."""
        self.chosen_columns = tuple(chosen)
        self._lay_anew()
        self.repaint()

    # What a subclass may give besides.

    def plain(self, row: T) -> str:
        """The style of cells that have none of their own."""
        return "text"

    def lead(self, row: T) -> Line:
        """The gutter."""
        return ((" " * self.GUTTER, "text"),)

    def note(self, row: T, width: int) -> Line:
        """What is said behind its cells, as far as there is room."""
        return ()

    def marked(self) -> Iterable[T]:
        """The rows that may have a column's mark."""
        return self.rows

    def sorted_by(self, each: Field[T]) -> str:
        """The mark behind its heading, if the rows are in its order."""
        return ""

    # Painting.

    def summed(self, group: Group, label: Line, width: int) -> Line:
        """A line with what its columns come to over a group. The columns before the first sum are the label's room."""
        rest = list(self.columns(width))
        room = 0
        while rest and (_total(rest[0][0]) is None or room < _LABEL):
            room += rest.pop(0)[1]
        sums = ((_total(each), cells) for each, cells in rest)
        found = [(("", "dim"),) if total is None else total.cell(group, cells) for total, cells in sums]
        return (*fit_line(label, room - 1, "text"), (" ", "text"), *_placed(rest, found, "text", stretch=self.STRETCH))

    def stamp(self, row: T, width: int) -> Hashable:
        view, columns = self._lay(width)
        key = self.key(row)
        known = self._changing.get(key)
        if known is None or known[0] is not row:
            if len(self._changing) > _SPARE and len(self._changing) > 2 * self._rows_fit + _SPARE:
                self._changing.clear()
            known = self._changing[key] = row, *self._look(row, columns)
        else:
            for at in known[1]:
                each, room = columns[at]
                known[2][at] = each.cell(row, view, room)
        marks = [each.column.mark(row) for each, _ in columns if each.column is not None and each.column.mark]
        return self._steady, self.lead(row), self.plain(row), tuple(known[2]), marks, self.note(row, width)

    def _look(self, row: T, columns: Sequence[tuple[Field[T], int]]) -> tuple[list[int], list[Line]]:
        """Which cells go by the snapshot or the daemon, which are others the next time; and all cells."""
        changing, cells = [], []
        for at, (each, room) in enumerate(columns):
            self._noting.begin()
            cells.append(each.cell(row, self._noting, room))
            if self._noting.looked:
                changing.append(at)
        return changing, cells

    def head(self, width: int) -> Line | None:
        return self._titles(width) if self.HEADED else None

    def _titles(self, width: int) -> Line:
        """The same until the columns, their cells or the order of the rows are others."""
        columns = self.columns(width)
        of = [(each, room, self.sorted_by(each), self._legend(each)) for each, room in columns]
        if self._titled is None or self._titled[0] != of:
            self._titled = of, self._make_titles(of)
        return self._titled[1]

    def _legend(self, each: Field[T]) -> str:
        """What the mark in a column says, in a word, where a row has it."""
        column = each.column
        if column is None or column.mark is None:
            return ""
        return next((said for row in self.marked() if (said := column.mark(row))), "") and column.legend

    def _make_titles(self, columns: Sequence[tuple[Field[T], int, str, str]]) -> Line:
        line: list[tuple[str, str]] = [(" " * self.GUTTER, "head")]
        for each, room, mark, legend in columns:
            name = each.heading(room)
            short = name.partition("/")[0].rstrip()
            for said, of_it in ((name, legend), (name, legend[:1]), (short, legend)) if legend else ():
                if len(said) + len(mark or " ") + len(of_it) < room:
                    name, mark = f"{said}{mark or ' '}{of_it}", ""
                    break
            if mark:  # it is never what gives way, and one cell stays free before the next heading
                gap = " " if len(name) + 2 < room else ""
                name = f"{name[: room - 2]}{gap}{mark}"
            stretched = self.STRETCH and each is columns[-1][0]  # its cells begin at its left
            right = each.column is not None and each.column.align == ">" and not stretched
            free = 2 if right and len(name) <= room - 2 else 1
            text = (
                fit(name, room - free, ">") + " " * free
                if right
                else fit(fit(name, room - (each is not columns[-1][0])), room)
            )
            line.append((text, "accent" if self.sorted_by(each) else "head"))
        return tuple(line)

    def bar(self, width: int) -> Line | None:
        """The headings are enough: the number in the gutter, and whose list it is at the right."""
        if not self.HEADED:
            return super().bar(width)
        style = "title" if self.has_focus_within else "head"
        number = SUPERSCRIPT[self.NUMBER] if self.GUTTER < 3 else f" {SUPERSCRIPT[self.NUMBER]} "
        corner: Line = (("  ", "text"), *self.corner()) if self.tells else ()
        named: Line = ((" ", style), *self.named(), *corner, (" ", style))
        titles = self._titles(width)[1:]
        left: Line = ((number, "key"), *titles)
        heading = titles[-1][0].rstrip()
        free = width - width_of(left[:-1]) - 2  # behind the last heading but one; two cells stay between them
        if len(heading) > free - width_of(named):
            shown = self.columns(width)[-1][0].column
            short = (shown and shown.short and heading == titles[-1][0].strip() and shown.short) or heading
            said = self.brief(free - len(short), free)
            named = (("  ", style), *said) if said else ()
            if width_of(named) > width - width_of(left[:-1]) - len(heading):
                left = (*left[:-1], (short, titles[-1][1]))
            left = _whole(left, width - width_of(named))
        return tuple((text, f"{name}+bar") for text, name in justify(left, named, width))

    def named(self) -> Line:
        """Whose list it is, beside the headings."""
        return self.title()

    def brief(self, free: int, most: int) -> Line:
        """What is said beside the headings where there is no room for all of it, in ``free`` cells; in ``most`` the
        last heading gives way, which is for what is told nowhere else. Its number tells whose list it is."""
        return self.corner() if self.tells else ()

    @property
    def tells(self) -> bool:
        """Whether what stands at the right of its border is of now, and not how to use it."""
        return False

    def whole(self, row: T, width: int) -> list[Line]:
        """Its last column in as many lines as that takes, where that is what has the rest of the width."""
        view, columns = self._lay(width)
        if not self.STRETCH or not columns or self.note(row, width):
            return self.row_lines(row, width)
        each, room = columns[-1]
        told = _styled(each.cell(row, view, _UNCUT), self.plain(row))
        if width_of(told) <= room:
            return self.row_lines(row, width)
        cells = [column.cell(row, view, cells) for column, cells in columns[:-1]]
        placed = _placed(columns[:-1], cells, self.plain(row), row, stretch=False)
        return hung((*self.lead(row), *placed), told, width)

    def cells_of(self, row: T, width: int) -> list[Line]:
        """What stands in each column of that width, with its mark; the PID first."""
        view, columns = self._lay(width)
        found = list[Line]()
        for each, room in sorted(columns, key=lambda pair: pair[0].id != "pid"):
            mark = each.column.mark(row) if each.column is not None and each.column.mark is not None else ""
            found.append((*each.cell(row, view, room), (f" {mark}", "warn")))
        return found

    def row_lines(self, row: T, width: int) -> list[Line]:
        view, columns = self._lay(width)
        plain = self.plain(row)
        line: list[tuple[str, str]] = [*self.lead(row)]
        known = self._changing.get(self.key(row)) if self._steady and self._steady[0] == width else None
        if known is not None and known[0] is row:  # as its stamp has just found them
            cells = known[2]
        else:
            cells = [each.cell(row, view, room) for each, room in columns]
        line += _placed(columns, cells, plain, row, stretch=self.STRETCH)
        note = self.note(row, width)
        if note and self.NOTE_AT_RIGHT:
            while not line[-1][0].strip():
                line.pop()
            return [justify(tuple(line), note, width)]
        return [(*line, *note) if note and width_of((*line, *note)) <= width else tuple(line)]


def _whole(headings: Line, room: int) -> Line:
    """Those that there is room for as a whole, and a mark where others are left out."""
    kept = list(headings)
    while kept and width_of(tuple(kept[:-1])) + len(kept[-1][0].rstrip()) > room - (len(kept) < len(headings)):
        kept.pop()
    return tuple(kept) if len(kept) == len(headings) else (*kept, ("…", "head"))


def _total(each: Field[Any]) -> Total | None:
    return None if each.column is None else each.column.total


def _placed(
    columns: Sequence[tuple[Field[T], int]], cells: Sequence[Line], plain: str, row: T | None = None, *, stretch: bool
) -> Iterator[Span]:
    """Each cell in its column, in exactly its room, with the mark of the ``row`` where that has one. ``stretch``: the
    last one has what is left."""
    for number, ((each, room), cell) in enumerate(zip(columns, cells, strict=True), 1):
        column = each.column
        assert column is not None  # noqa: S101 - lay_out gives fields that have one
        if stretch and number == len(columns):
            yield from fit_line(_styled(cell, plain), room)
        else:
            mark = None if row is None or column.mark is None else column.mark(row)
            yield from _fit_cell(tuple(cell), room, column.gap, column.align == ">", mark, plain)


def _styled(cell: Line, plain: str) -> Line:
    return tuple((text, plain if style == "plain" else style) for text, style in cell)


@lru_cache(maxsize=512)
def _fit_cell(cell: Line, room: int, gap: int, right: bool, mark: str | None, plain: str) -> Line:
    spans = _styled(cell, plain)
    style = spans[-1][1]
    if right and len(spans) > 1 and (spare := room - 2 - width_of(spans)) >= 0:
        return ((" " * spare, style), *spans, ("  ", style))
    if right:
        return ((fit("".join(text for text, _ in spans), room - 2, ">") + "  ", style),)
    if mark:
        return (*fit_line(spans, room - 2, style), (f"{mark} ", "warn"))
    if len(spans) == 1:
        return ((fit(spans[0][0], room - gap) + " " * gap, style),)
    return (*fit_line(spans, room - gap, style), (" " * gap, style))
