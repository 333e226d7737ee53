"""The small widgets of the dialogs. All text is taken as text from outside: never markup, always printable."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar, Final

from rich.cells import cell_len, set_cell_size
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Button, Static

from mpstui.core.late import dataclass
from mpstui.core.text import printable
from mpstui.ui.box import parts

TEXT_LIMIT = 4000
"""Characters of one text that are shown at most; longer than any line of a log of a real daemon."""
_NARROWEST = 16
"""Cells in which a text goes on below itself at least."""
_WIDTHS = 4
"""For how many a sheet keeps its lines: with and without a bar, and before a change of size."""
MARK_STYLE = {"▲": "$text-warning", "✓": "$text-success", "✕": "$text-error", "·": "$text-muted"}


def plain(text: str) -> str:
    """One printable line."""
    return printable(text, TEXT_LIMIT)


def marked(mark: str, text: str, style: str = "") -> Content:
    """A line that begins with a mark, which says without colour what it is."""
    return Content.assemble((f"{mark} ", f"{MARK_STYLE.get(mark, '')} bold"), (plain(text), style))


@dataclass(frozen=True, slots=True)
class DetailRow:
    """One labelled value; without a label and a value, an empty line."""

    label: str = ""
    value: str = ""
    style: str = ""
    label_style: str = "$text-muted"
    hang: int = 0
    """Characters of the value under which nothing of it goes on: its own columns."""


@dataclass(frozen=True, slots=True)
class Heading:
    """A line above the rows that belong together."""

    text: str


def labelled(label: str, *widgets: Widget, classes: str = "field", id: str | None = None) -> Horizontal:
    """A line of a form: what it is called, and what it is chosen or typed with."""
    name = Static(Content(plain(label)), classes="label", markup=False)
    return Horizontal(name, *widgets, classes=classes, id=id)


_HANGS: Final = 20
"""Cells that a text has at least beside what it hangs on."""


def _wrapped(row: DetailRow, width: int) -> list[Content]:
    """The value in lines; what goes on stands below its own beginning, where there is room for that."""
    text = plain(row.value)
    before = cell_len(text[: row.hang])
    if width - before < _HANGS:
        return Content.styled(text, row.style).wrap(width)
    lines = Content.styled(text[row.hang :], row.style).wrap(width - before) or [Content("")]
    lead = Content.styled(text[: row.hang], row.style)
    return [Content.assemble(lead if number == 0 else " " * before, line) for number, line in enumerate(lines)]


class Sheet(Widget):
    """Labelled values in two columns; a long value goes on below itself."""

    DEFAULT_CSS = "Sheet { height: auto; width: 1fr; }"

    def __init__(
        self, rows: Sequence[DetailRow | Heading] = (), *, label_width: int = 0, id: str | None = None
    ) -> None:
        """``label_width``: cells of the first column at least."""
        super().__init__(id=id)
        self.rows: tuple[DetailRow | Heading, ...] = tuple(rows)
        self._label_width = label_width
        self._laid: tuple[tuple[DetailRow | Heading, ...], dict[int, list[Content]]] = (self.rows, {})
        """Rows, and their lines by width: Textual asks for the height three times before it paints."""

    def show(self, rows: Sequence[DetailRow | Heading]) -> None:
        """Replace the rows; nothing is painted where nothing differs."""
        if self.rows != tuple(rows):
            self.rows = tuple(rows)
            self.refresh(layout=True)

    @property
    def text(self) -> str:
        """The rows as plain text, as they are copied."""
        return "\n".join(line.plain.rstrip() for line in self.lines(1000))

    def lines(self, width: int) -> list[Content]:
        """What is shown at ``width`` cells."""
        rows, laid = self._laid
        if rows is not self.rows or len(laid) > _WIDTHS:
            laid = {}
            self._laid = (self.rows, laid)
        if width not in laid:
            laid[width] = self._lay(width)
        return laid[width]

    def _lay(self, width: int) -> list[Content]:
        longest = max((cell_len(plain(row.label)) for row in self.rows if isinstance(row, DetailRow)), default=0)
        label_width = max(self._label_width, longest + 2)
        lines: list[Content] = []
        for row in self.rows:
            if isinstance(row, Heading):
                lines += Content.styled(plain(row.text), "$text-primary bold").wrap(max(1, width))
                continue
            label = Content.styled(plain(row.label), row.label_style)
            if width - label_width < _HANGS:
                lines += label.wrap(width) if row.label else []
                lines += [Content.assemble("  ", part) for part in _wrapped(row, max(1, width - 2))]
                continue
            label = label.pad_right(label_width - cell_len(plain(row.label)))
            value = _wrapped(row, max(8, width - label_width))
            lines += [
                Content.assemble(label if number == 0 else " " * label_width, part)
                for number, part in enumerate(value or [Content("")])
            ]
        return lines

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self.lines(width))

    def render(self) -> Content:
        return Content("\n").join(self.lines(self.content_size.width))


def _hanging(line: Content, width: int) -> list[Content]:
    """The line in its width; what goes on stands below its text, not below its mark."""
    text = line.plain
    at = next((n for n, char in enumerate(text) if char.isalnum()), 0)
    before = at if at == 2 and text[1] == " " else 0
    if width - before < _HANGS:
        return line.wrap(width)
    parts = line[before:].wrap(width - before) or [Content("")]
    return [Content.assemble(line[:before] if n == 0 else " " * before, part) for n, part in enumerate(parts)]


class Lines(Widget):
    """Lines that come and go; takes no room while there are none."""

    DEFAULT_CSS = "Lines { height: auto; display: none; &.-some { display: block; } }"

    def __init__(self, *, id: str | None = None, classes: str = "") -> None:
        super().__init__(id=id, classes=classes)
        self._lines: tuple[Content, ...] = ()

    def show(self, *lines: Content) -> None:
        """Replace the lines; nothing is painted where nothing differs."""
        if len(lines) == len(self._lines) and all(a.is_same(b) for a, b in zip(lines, self._lines, strict=True)):
            return
        self._lines = lines
        self.set_class(bool(lines), "-some")
        self.refresh(layout=True)

    @property
    def text(self) -> str:
        return "\n".join(line.plain for line in self._lines)

    def _folded(self, width: int) -> list[Content]:
        return [part for line in self._lines for part in _hanging(line, max(1, width))]

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._folded(width))

    def render(self) -> Content:
        return Content("\n").join(self._folded(self.content_size.width))


def _hung(line: Content, width: int) -> list[Content]:
    """In lines of so many cells, those below the first a little further in."""
    if line.cell_length <= width:
        return [line]
    first, *more = line.wrap(width - 4)
    return [first, *(Content.assemble("    ", each) for each in more)]


class Scroll(VerticalScroll):
    """What is in it scrolls where it has no room, by a bar that leaves it some.

    At one cell a bar would leave none. What has no width has no height, so nothing is left to scroll: the bar goes,
    what it scrolled is back, the bar comes, and the screen is laid out for ever.
    """

    def validate_show_vertical_scrollbar(self, show: bool) -> bool:
        return show and self.container_size.width > self.styles.scrollbar_size_vertical

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        for each in self.query_children(Listing):
            each.entitle()


LIST_ROWS = 6
"""Lines of a list that there is always room for."""
_USUAL_HEIGHT = 24


def in_columns(lines: Sequence[str]) -> list[str]:
    """``4711 alice python train.py`` and others like it, with the users and the commands each below the other; lines of
    another kind as they are."""
    words = [line.split(None, 2) for line in lines]
    if not all(len(parts) == 3 and parts[0].isdigit() for parts in words):
        return list(lines)
    pid, user = (max((cell_len(plain(parts[at])) for parts in words), default=0) for at in (0, 1))
    return [f"{parts[0]:<{pid}}  {set_cell_size(plain(parts[1]), user)}  {parts[2]}" for parts in words]


class Listing(Scroll):
    """A list under a title, which says how many lines are out of view; takes the keyboard only while it is too long for
    its room, and has an arrow then."""

    DEFAULT_CSS = """
    Listing {
        height: auto; max-height: 7; display: none; scrollbar-size-vertical: 1;
        border-top: solid $border-blurred; border-title-color: $text-muted; border-title-style: none;
        & > Static { height: auto; text-wrap: nowrap; text-overflow: ellipsis; }
        &.-some { display: block; }
        &:focus { border-top: solid $border; border-title-color: $text-primary; border-title-style: bold; }
    }
    """

    def __init__(self, *, id: str | None = None, classes: str = "") -> None:
        super().__init__(id=id, classes=classes, can_focus=False)
        self._lines: tuple[Content, ...] = ()
        self._shown: tuple[Content, ...] = ()
        """In as many lines as they take, where there is always room for those."""
        self._title = ""
        self._rows = self._room = LIST_ROWS
        self._fills = False
        self._static = Static(markup=False)

    def compose(self) -> ComposeResult:
        yield self._static

    def show(self, title: str, lines: Sequence[Content], *, follow: bool = False) -> None:
        """Replace title and lines; ``follow`` keeps the last line in view."""
        self._title = plain(title)
        if len(lines) == len(self._lines) and all(a.is_same(b) for a, b in zip(lines, self._lines, strict=True)):
            self._folded_anew()
            self.call_after_refresh(self.entitle)
            return
        self._lines = tuple(lines)
        self.set_class(bool(lines), "-some")
        self._fold()
        self.can_focus = self.long
        self.entitle()
        self.call_after_refresh(self.entitle)  # others above it may have changed too
        if follow:
            self.scroll_end(animate=False)

    def _fold(self) -> None:
        width = self._static.size.width
        shown = self._lines
        if width >= _NARROWEST and any(line.cell_length > width for line in shown):
            folded = [part for line in self._lines for part in _hung(line, width)]
            most = min(self._rows, len(shown) + self._free())
            shown = tuple(folded) if len(folded) <= most else shown
        if shown is not self._shown:
            self._shown = shown
            self._static.update(Content("\n").join(shown))

    def _free(self) -> int:
        """Lines of the dialog that nothing stands in."""
        body = self.parent
        if not isinstance(body, Scroll) or body.styles.max_height is None or not body.virtual_size.height:
            return 0
        return round(body.styles.max_height.value) - body.virtual_size.height + self.count - len(self._lines)

    def fit(self, height: int) -> None:
        """Take more lines where the screen has more than the usual ones: three lists may stand in one dialog."""
        self._rows = max(LIST_ROWS, (height - _USUAL_HEIGHT) // 3)
        self._take()

    def fill(self, fills: bool) -> None:
        """Take what nothing else in its box needs, and the usual lines at least; or go back to those."""
        self._fills = fills
        self._take()

    def _take(self) -> None:
        self.styles.height = "1fr" if self._fills else "auto"
        self.styles.min_height = self._rows + 1 if self._fills else None
        self.styles.max_height = self.count + 1 if self._fills else self._rows + 1
        if not self._fills:
            self._room = self._rows
        self.can_focus = self.long

    def on_resize(self, event: events.Resize) -> None:
        """In what nothing else needs there may be room for all of it; and how many are out of view may differ."""
        if self._fills:
            self._room = self.size.height  # without the title
            self.can_focus = self.long
        self._folded_anew()

    def _folded_anew(self) -> None:
        before = self.count
        self._fold()
        if self.count != before:
            self._take()
        self.entitle()

    @property
    def count(self) -> int:
        """How many lines it has."""
        return len(self._shown)

    def entitle(self) -> None:
        """Say in the title how many lines are out of view."""
        above, seen = round(self.scroll_y), self.size.height
        below = self.count - above - seen + self._cut() if seen else 0  # no height: not laid out yet
        more = [f"  {arrow} {number} more" for arrow, number in (("↑", above), ("↓", below)) if number > 0]
        self.border_title = Content(f" {'▸ ' if self.has_focus else ''}{self._title}{''.join(more)} ")

    def _cut(self) -> int:
        """Of its lines those that are below the end of what it stands in, which scrolls too."""
        body = self.parent
        if not isinstance(body, Scroll) or not body.size.height:
            return 0
        end = self.virtual_region.y + self.outer_size.height - round(body.scroll_y)
        return max(0, min(self.size.height, end - body.size.height))

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.entitle()

    def watch_has_focus(self, _has_focus: bool) -> None:
        super().watch_has_focus(_has_focus)
        self.entitle()

    @property
    def long(self) -> bool:
        """Whether not all of it is in view at once."""
        return self.count > self._room

    @property
    def text(self) -> str:
        return "\n".join(line.plain for line in self._lines)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several; ``value`` is its identity."""

    value: Hashable
    label: str
    detail: str = ""
    gone: bool = False


class Chooser(Widget, can_focus=True):
    """One of several, by arrow keys or the mouse. The choice is held by identity while the choices change.

    An arrow before the line that the keys would move from says without colour that it has the focus."""

    ROOM = 6
    LEAD = len("▸● ")
    ALIGNED: ClassVar[bool] = True
    """Whether the details stand below each other."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Previous", show=False),
        Binding("down,j", "move(1)", "Next", show=False),
        Binding("home,g", "move(-1000)", "First", show=False),
        Binding("end,G", "move(1000)", "Last", show=False),
        Binding("enter", "app.focus_next", "", show=False),  # the foot names it
    ]
    DEFAULT_CSS = """
    Chooser {
        height: auto; width: 1fr; padding: 0 1 0 0; pointer: pointer;
        &:focus { background: $panel; }
        &:disabled { color: $text-muted; }
    }
    """

    @dataclass
    class Changed(Message):
        """Another one is chosen, or one is switched."""

        chooser: Chooser

        @property
        def control(self) -> Chooser:
            return self.chooser

    def __init__(self, choices: Sequence[Choice], chosen: Hashable = None, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.choices = tuple(choices)
        found = next((c for c in choices if c.value == chosen), None)
        self.chosen: Choice | None = found or (self.choices[0] if self.choices else None)

    def show(self, choices: Sequence[Choice]) -> None:
        """Replace the choices. One that is chosen and no longer among them stays, as gone."""
        if self.chosen is None:
            self.chosen = choices[0] if choices else None
        else:
            value = self.chosen.value
            here = next((c for c in choices if c.value == value), None)
            self.chosen = here or Choice(value, self.chosen.label, "is gone", gone=True)
            if here is None:
                choices = [*choices, self.chosen]
        if self.choices != tuple(choices):
            self.choices = tuple(choices)
            self.refresh(layout=True)

    def watch_has_focus(self, _has_focus: bool) -> None:
        super().watch_has_focus(_has_focus)
        self.refresh()

    def action_move(self, step: int) -> None:
        if self.choices and self.chosen is not None:
            self._choose(max(0, min(self.choices.index(self.chosen) + step, len(self.choices) - 1)))

    def on_click(self, event: events.Click) -> None:
        y = event.get_content_offset_capture(self).y
        rows = [at for at, told in enumerate(self._laid(self.content_size.width)) for _ in told]
        if 0 <= y + self._first() < len(rows) and not self.disabled:
            self.picked(rows[y + self._first()])

    def picked(self, index: int) -> None:
        """It was clicked."""
        self._choose(index)

    def mark(self, choice: Choice) -> tuple[str, bool]:
        """What stands before a choice, and whether it stands out."""
        on = choice == self.chosen
        return "●" if on else "○", on

    def _choose(self, index: int) -> None:
        if self.chosen != self.choices[index]:
            self.chosen = self.choices[index]
            self.refresh()
            self.post_message(self.Changed(self))
            self.call_after_refresh(self._bring_into_view)

    def _bring_into_view(self) -> None:
        """The chosen one, in a body that has no room for all of them."""
        bodies = (each for each in self.ancestors if isinstance(each, Scroll))
        if self.chosen in self.choices and (body := next(bodies, None)) is not None:
            laid, at = self._laid(self.content_size.width), self.choices.index(self.chosen)
            above = sum(map(len, laid[self._first() : at]))
            y = self.content_region.y - body.content_region.y + round(body.scroll_y) + above
            body.scroll_to_region(Region(0, y, 1, len(laid[at])), animate=False)

    def _laid(self, width: int) -> list[list[tuple[str, str]]]:
        """Each choice in lines, of its name and of what is said of it: beside the names where there is room for that,
        else behind each, or below it. Of more than there is room for each has one line, and they scroll."""
        names = [plain(choice.label) for choice in self.choices]
        told = [plain(choice.detail) for choice in self.choices]
        column = max(map(cell_len, names), default=0)
        beside = width - self.LEAD - column - 2
        if len(self.choices) > self.ROOM:
            width = column if self.ALIGNED else 0
            return [
                [(set_cell_size(name, max(width, cell_len(name))), detail)]
                for name, detail in zip(names, told, strict=True)
            ]
        if self.ALIGNED and beside >= min(_NARROWEST, max(map(cell_len, told), default=0)):
            blank = " " * column
            return [
                [
                    (set_cell_size(name, column) if n == 0 else blank, part)
                    for n, part in enumerate(parts(detail, max(1, beside)) or [""])
                ]
                for name, detail in zip(names, told, strict=True)
            ]
        width = max(1, width - self.LEAD)
        return [self._below(name, detail, width) for name, detail in zip(names, told, strict=True)]

    @staticmethod
    def _below(name: str, detail: str, width: int) -> list[tuple[str, str]]:
        if cell_len(name) + 2 + cell_len(detail) <= width:
            return [(name, detail)]
        return [
            *((part, "") for part in parts(name, width)),
            *(("", part) for part in parts(detail, max(1, width - 2))),
        ]

    def _first(self) -> int:
        """The first choice in view: the chosen one stays in the middle where it can."""
        if self.chosen is None:
            return 0
        return max(0, min(self.choices.index(self.chosen) - self.ROOM // 2, len(self.choices) - self.ROOM))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(1, sum(map(len, self._laid(width)[: self.ROOM])))

    def render(self) -> Content:
        if self.chosen is None:
            return Content.styled(f"{'▸' if self.has_focus else ' '}— none known", "$text-muted")
        first, lines = self._first(), list[Content]()
        laid = self._laid(self.content_size.width)
        for choice, told in list(zip(self.choices, laid, strict=True))[first : first + self.ROOM]:
            mark, on = self.mark(choice)
            style = "$text-error" if choice.gone else "$text-primary bold" if on else ""
            if choice == self.chosen and self.has_focus:
                style += " reverse"
            muted = "$text-error" if choice.gone else "$text-muted"
            focus = "▸" if choice == self.chosen and self.has_focus else " "
            for number, (name, detail) in enumerate(told):
                lead = f"{focus}{mark} " if number == 0 else " " * (len(mark) + 2)
                bare = name.rstrip()
                gap = " " * (len(name) - len(bare) + 2)
                label = Content.assemble(lead[:1], (lead[1:] + bare, style)) if bare else Content(lead)
                lines.append(Content.assemble(label, gap, (detail, muted)) if detail else label)
        below = len(self.choices) - first - self.ROOM
        if below > 0:
            lines[-1] = Content.assemble(lines[-1], (f"  ↓ {below} more", "$text-muted"))
        if first > 0:
            lines[0] = Content.assemble(lines[0], (f"  ↑ {first} more", "$text-muted"))
        return Content("\n").join(line.truncate(self.content_size.width, ellipsis=True) for line in lines)


class Toggles(Chooser):
    """Several things of which each is on or off, by the space bar or the mouse; what is on has a cross."""

    ROOM = 16
    LEAD = len("▸[x] ")
    ALIGNED: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [Binding("space", "switch", "On or off", show=False)]

    def __init__(self, choices: Sequence[Choice], *, id: str | None = None) -> None:
        super().__init__(choices, id=id)
        self.on: frozenset[Hashable] = frozenset()

    def action_switch(self) -> None:
        if self.chosen is not None:
            self.on = self.on ^ {self.chosen.value}
            self.refresh()
            self.post_message(self.Changed(self))

    def picked(self, index: int) -> None:
        self._choose(index)
        self.action_switch()

    def _choose(self, index: int) -> None:
        self.chosen = self.choices[index]
        self.refresh()

    def mark(self, choice: Choice) -> tuple[str, bool]:
        on = choice.value in self.on
        return "[x]" if on else "[ ]", on


class Push(Button, inherit_css=False):
    """A button of one line; its focus can be seen without colour, by its arrows."""

    DEFAULT_CSS = """
    Push {
        width: auto; height: 1; min-width: 12; padding: 0 2; margin-left: 2;
        background: $panel; color: $foreground; text-align: center; pointer: pointer;
        &.-harm { color: $text-error; }
        &.-go { color: $text-primary; }
        &:hover { background: $border-blurred; }
        &:focus { background: $primary; color: $background; text-style: bold; }
        &.-harm:focus { background: $error; color: $background; }
        &:disabled { color: $text-muted; background: $surface; text-style: none; text-opacity: 100%; }
        &:ansi { background: ansi_default; text-style: none; }
        &:ansi:focus { background: ansi_default; color: ansi_default; text-style: bold reverse; }
        &.-harm:ansi:focus { background: ansi_default; color: ansi_red; text-style: bold reverse; }
        &:ansi:disabled { text-style: dim; }
    }
    """

    def __init__(self, label: str, *, id: str, classes: str = "") -> None:
        super().__init__("", id=id, classes=classes)
        self.active_effect_duration = 0
        self.text = label
        self._show()

    def say(self, label: str) -> None:
        """Replace the label."""
        if label != self.text:
            self.text = label
            self._show()

    def _show(self) -> None:
        self.label = Content(f"▸ {self.text} ◂" if self.has_focus else f"  {self.text}  ")

    def watch_has_focus(self, _has_focus: bool) -> None:
        super().watch_has_focus(_has_focus)
        self._show()
