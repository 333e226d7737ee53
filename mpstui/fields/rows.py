"""What a row of the tables of fields is, and what is made of it: columns, filters, details, JSON. Knows no client."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime, timezone
from functools import lru_cache
from operator import add
from time import localtime, strftime
from typing import Any, Final, Generic, NamedTuple, TypeVar, get_args

from mpstui.core.activity import (
    Trends,
)
from mpstui.core.late import dataclass
from mpstui.core.model import (
    EMPTY,
    Daemon,
    ProcessKey,
    Snapshot,
)
from mpstui.core.text import (
    UNKNOWN,
    Line,
    by_device,
    format_age,
    format_percentage,
    format_size,
    path_text,
)

SCHEMA: Final = 1
"""Of everything that is printed as JSON: keys may come, none goes or changes its meaning."""
_NOTHING: Final = frozenset((UNKNOWN, "none", "none known"))
_SHORTEST: Final = 7
"""Cells that a text keeps where it gives way to a column that was asked for."""
_SECOND: Final = 20
"""Columns with no higher ``keep`` are of second rank: they come after the usual widths of the others, and after their
comfort."""
_VITAL: Final = 90
"""Columns with such a ``keep`` give way to none, also where others were asked for."""
_NO_PLACE: Final = 1000
"""The place of a column that is not among the usual ones."""
_LAST: Final = 5
"""Those with no higher one come after the roomy widths too."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class View:
    """What a value is looked at in: the snapshot and daemon that it is of, and what the screen knows besides."""

    snapshot: Snapshot = field(default_factory=lambda: Snapshot(0.0))
    daemon: Daemon | None = None
    place: str | None = None
    """The daemon's pipe directory as text, for an event."""
    indices: Mapping[str, int | None] = field(default_factory=lambda: EMPTY)
    """NVML's index by UUID."""
    lost: frozenset[ProcessKey] = frozenset()
    """Clients whose contexts a fault took."""
    claimed: frozenset[ProcessKey] = frozenset()
    """Those of them of whom server.log alone says so."""
    own: Mapping[ProcessKey, int] = field(default_factory=lambda: EMPTY)
    """Test clients of this program, with their numbers."""
    beside: frozenset[str] = frozenset()
    """The ids of the columns that are shown."""
    trends: Trends | None = None
    """What clients had before, where somebody keeps it."""
    with_limits: bool = False
    """Whether the servers show their limits: there is no room for a panel of limits."""
    users: Mapping[int, str] = field(default_factory=lambda: EMPTY)
    """Whose a client's process is, by its PID: for events that do not say it."""
    device: str | None = None
    """The UUID of the one device that is looked at: a client's memory is what it has there."""

    @classmethod
    def of(cls, snapshot: Snapshot, daemon: Daemon | None = None, own: Mapping[ProcessKey, int] = EMPTY) -> View:
        """A snapshot, and one of its daemons."""
        servers = daemon.servers if daemon is not None else ()
        faults = [server.fault for server in servers if server.fault]
        lost = frozenset(key for fault in faults for key in fault.affected)
        claimed = frozenset(key for fault in faults if not fault.confirmed for key in fault.affected)
        return cls(snapshot, daemon, None, snapshot.indices, lost, claimed, own)

    @property
    def steady(self) -> tuple[object, ...]:
        """What is no part of the snapshot or of the daemon, and so mostly the same in the next view."""
        return (
            self.place,
            self.indices,
            self.lost,
            self.claimed,
            self.own,
            self.beside,
            self.with_limits,
            self.users,
            self.device,
            self.ordinals,
            self.lacks,
            self.trends and self.trends.step,
        )

    @property
    def ordinals(self) -> Mapping[str, str]:
        """The daemon's own numbers of its devices, which seldom change."""
        return self.daemon.ordinals if self.daemon is not None else EMPTY

    @property
    def lacks(self) -> frozenset[str]:
        """The commands that the daemon does not know."""
        return self.daemon.lacks if self.daemon is not None else frozenset()

    @property
    def claimant(self) -> str | None:
        """By name the other user whose word alone it is what the daemon says."""
        return self.daemon.claimant(os.geteuid()) if self.daemon is not None else None

    def age(self, since: float | None) -> str:
        """``8s``, ``4m``: from then to the time of the snapshot."""
        return format_age(None if since is None else self.snapshot.time - since)


class NotingView(View):
    """A view that notes whether the snapshot or the daemon was looked at: what was made without them is the same in
    every view whose :attr:`View.steady` is."""

    __slots__ = ("_of", "looked")
    _of: View
    looked: bool

    def __init__(self, view: View) -> None:
        known = ("place", "indices", "lost", "claimed", "own", "beside", "with_limits", "users", "device", "trends")
        for name in known:
            object.__setattr__(self, name, getattr(view, name))
        self._note(view, False)

    def _note(self, view: View, looked: bool) -> None:
        object.__setattr__(self, "_of", view)
        object.__setattr__(self, "looked", looked)

    def begin(self) -> None:
        """Nothing was looked at so far."""
        object.__setattr__(self, "looked", False)

    @property
    def snapshot(self) -> Snapshot:
        self._note(self._of, True)
        return self._of.snapshot

    @property
    def daemon(self) -> Daemon | None:
        self._note(self._of, True)
        return self._of.daemon

    @property
    def ordinals(self) -> Mapping[str, str]:
        return self._of.ordinals

    @property
    def lacks(self) -> frozenset[str]:
        return self._of.lacks


# Types: how a value is written, in JSON and as text, and what JSON Schema says of it.


class Type(NamedTuple):
    """How a value that is known is written; what is not known is null and ``—``."""

    schema: Mapping[str, Any]
    text: Callable[[Any], str] = str
    json: Callable[[Any], Any] = lambda value: value
    unit: str | None = None


@lru_cache(maxsize=64)
def _iso_minute(minute: int) -> str:
    return datetime.fromtimestamp(60 * minute, timezone.utc).isoformat()[:17]


_SECONDS: Final = tuple(f"{second:02d}" for second in range(60))


def iso_time(when: float) -> str:
    """``2026-11-20T21:29:12.195+00:00``, as ``isoformat`` writes it, but fast: a log has millions of events."""
    whole = int(when)
    millis = round((when - whole) * 1e6) // 1000  # as fromtimestamp rounds, and isoformat cuts
    if when < 0 or millis > 999:
        return datetime.fromtimestamp(when, timezone.utc).isoformat(timespec="milliseconds")
    minute, second = divmod(whole, 60)
    return f"{_iso_minute(minute)}{_SECONDS[second]}.{millis:03d}+00:00"


def clock_text(when: float) -> str:
    """Date and time of this place, to the second."""
    return strftime("%Y-%m-%d %H:%M:%S", localtime(when))


def _sizes(sizes: Mapping[str, int]) -> str:
    return "  ".join(f"{device}: {format_size(size)}" for device, size in by_device(sizes)) or "none"


def _words(words: Mapping[str, str]) -> str:
    return "  ".join(f"{name}: {word}" for name, word in words.items()) or "none"


def enum(literal: Any) -> Type:
    """One of the words of a ``Literal``."""
    return Type({"enum": list(get_args(literal))})


TEXT: Final = Type({"type": "string"})
INTEGER: Final = Type({"type": "integer"})
NUMBER: Final = Type({"type": "number"}, lambda value: f"{value:g}")
SECONDS: Final = Type({"type": "number"}, lambda value: f"{value:.1f} s", unit="seconds")
FLAG: Final = Type({"type": "boolean"}, lambda value: "yes" if value else "no")
TIME: Final = Type({"type": "string", "format": "date-time"}, clock_text, iso_time)
PATH: Final = Type({"type": "string"}, path_text, path_text)
SIZE: Final = Type({"type": "integer", "minimum": 0}, format_size, unit="bytes")
SHARE: Final = Type({"type": "number"}, format_percentage, unit="percent")
LOAD: Final = Type({"type": "number"}, lambda value: f"{value:.0f} %", unit="percent")
WATTS: Final = Type({"type": "number"}, lambda value: f"{value:.0f} W", unit="watts")
DEGREES: Final = Type({"type": "number"}, lambda value: f"{value:.0f} °C", unit="degrees Celsius")
SIZES: Final = Type(
    {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}}, _sizes, dict, unit="bytes"
)
WORDS: Final = Type({"type": "object", "additionalProperties": {"type": "string"}}, _words, dict)
TEXTS: Final = Type({"type": "array", "items": {"type": "string"}}, lambda texts: ", ".join(texts) or UNKNOWN, list)
INTEGERS: Final = Type(
    {"type": "array", "items": {"type": "integer"}}, lambda numbers: ", ".join(map(str, numbers)) or UNKNOWN, list
)
OBJECT: Final = Type({"type": "object"}, lambda value: "yes")
"""One of the field's ``of``."""
OBJECTS: Final = Type({"type": "array"}, lambda values: str(len(values)))
"""Several of them."""


# The rows of the table.


class Fact(NamedTuple):
    """A line of the details."""

    label: str
    text: str
    style: str = ""
    """``bold``, ``good``, ``warn``, ``bad``, or two of them."""


class Total(NamedTuple):
    """What a column comes to over a group of clients."""

    value: Callable[[Any], tuple[float | None, bool]]
    """Of a group: the sum of what is known, None where nothing is; and whether that is all of it."""
    text: Callable[[Any, float, int], str]
    """The sum in so many cells."""

    def cell(self, group: Any, cells: int) -> Line:
        """``≥`` before the sum of a part."""
        value, whole = self.value(group)
        if value is None:
            return ((UNKNOWN, "dim"),)
        text = self.text(group, value, cells)
        told = text if whole else _at_least(text)
        if len(told) > cells - 2:  # a number without its unit, or without its last digit, is another one
            told = told.replace(" %", "%")
        return ((told, "bold"),)


def _at_least(text: str) -> str:
    """In the place of a blank before it, where there is one, so that the numbers of a column stay below each other."""
    bare = text.lstrip()
    return f"≥{bare}".rjust(len(text))


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """How the overview shows a field."""

    at: int
    """Its place: columns stand in the order of these numbers."""
    width: int
    keep: int
    """The higher, the longer it stays on a screen that is too narrow for all: columns of the lowest go first."""
    name: str = ""
    """Its heading; otherwise the field's title."""
    short: str = ""
    """The heading where that one has no room."""
    cell: Callable[[T, View, int], Line] | None = None
    """What it shows in so many cells; otherwise the field's text. A style ``plain`` is the row's own."""
    style: str = "plain"
    """Of the field's text."""
    align: str = "<"
    gap: int = 1
    """Cells at its end that stay free, so that a text that is cut does not touch the next one."""
    wide: int = 0
    """Its usual width, where that is more: it has it as soon as all columns of the first rank are there."""
    roomy: int = 0
    """Its width where there is room to show what was before."""
    comfort: int = 0
    """Cells that it has before columns of second rank and roomy widths come."""
    narrow: int = 0
    """Its least width, where that is less: its cell is told how many it has, and says it shorter."""
    when: Callable[[View], bool] | None = None
    mark: Callable[[T], str] | None = None
    """One character, behind the text, that says something more, and is never cut."""
    legend: str = ""
    """That character and a word, for the heading: nothing is told by a sign alone."""
    falling: bool = False
    """Whether the largest comes first."""
    hidden: bool = False
    """Whether it is only shown where it was asked for."""
    total: Total | None = None
    """What it comes to over several of them; None: nothing can be added up."""


class Text(NamedTuple):
    """How the tables of ``status`` show a field."""

    at: int
    name: str
    """Its heading."""
    text: Callable[[Any, View], str] | None = None
    """Otherwise the field's own."""
    width: int = 0
    """Its cells where rows are printed as they come, before the width of the longest is known."""


class Detail(NamedTuple):
    """How the details show a field."""

    group: str
    """The id of a heading of its thing."""
    at: int
    label: str = ""
    """Otherwise the field's title."""
    facts: Callable[[Any, View], Iterable[Fact]] | None = None
    """All lines, where it is not one with the field's text."""
    style: str = ""


class Metric(NamedTuple):
    """How the exporter tells a field: in bytes, ratios and seconds; percent are divided by 100. What is not known is
    left out. Of an enumeration each word is a sample with 0 or 1, of sizes each device is one; samples with the same
    labels are folded into one."""

    name: str
    """Behind ``mps_``."""
    help: str
    value: Callable[[Any, View], Any] | None = None
    """Otherwise the field's."""
    words: tuple[str, ...] = ()
    """The states of a text; any other word is ``other``."""
    untold: Callable[[Any, View], Collection[str]] | None = None
    """Those of ``words`` of which it is not known whether the thing is in them, unless it is."""
    fold: Callable[[float, float], float] = add
    info: bool = False
    """The value is a label, named as the field, of one sample that is 1."""


@dataclass(frozen=True, slots=True)
class Field(Generic[T]):
    """One thing that is known of something."""

    id: str
    """The JSON key; stable."""
    title: str
    type: Type
    value: Callable[[T, View], Any]
    """None: not known."""
    null: bool = False
    """Whether it may be null in JSON."""
    about: str = ""
    of: Thing[Any] | None = None
    """What its values are, where they have fields of their own."""
    column: Column[T] | None = None
    row: Text | None = None
    detail: Detail | None = None
    metric: Metric | None = None
    word: str = ""
    """Its short name in a filter; its id is one too."""
    matches: Callable[[T, View, str], bool] | None = None
    """Whether the filter ``word:text`` leaves the thing, the text in lower case; otherwise by its value."""
    searched: bool = False
    """Whether a filter without a word looks here too."""
    only: Callable[[T], bool] | None = None
    """Whether the JSON has the key at all; it always has where this is not given."""
    command: str = ""
    """The control command that tells it: where the driver has none, that is said in the place of ``—``."""

    def lacking(self, text: str, view: View) -> str | None:
        """``not in driver 470``, in place of a ``text`` that says that there is nothing; None where it says something,
        and where the daemon has the command."""
        if not self.command or text.strip() not in _NOTHING or view.daemon is None:  # who is asked last is seldom asked
            return None
        return view.daemon.lacking(self.command)

    def text(self, thing: T, view: View) -> str:
        """Its value in words, ``—`` where it is not known."""
        if self.row is not None and self.row.text is not None:
            text = self.row.text(thing, view)
        else:
            value = self.value(thing, view)
            text = UNKNOWN if value is None else self.type.text(value)
        return self.lacking(text, view) or text

    @property
    def brief(self) -> str:
        """What it is, for the screen: the first sentence, without what JSON makes of it."""
        return re.split(r"\. |; in JSON", self.about or self.title)[0].rstrip(".")

    def heading(self, cells: int = 100) -> str:
        """Over its column of the screen, in so many cells."""
        name = (self.column.name if self.column else "") or self.title.upper()
        return self.column.short if self.column and self.column.short and len(name) > cells - 2 else name

    def cell(self, thing: T, view: View, cells: int) -> Line:
        """What its column shows."""
        column = self.column
        if column is not None and column.cell is not None:
            line = column.cell(thing, view, cells)
        else:
            value = self.value(thing, view)
            line = ((UNKNOWN if value is None else self.type.text(value), column.style if column else "plain"),)
        if self.command and (why := self.lacking("".join(text for text, _ in line), view)) is not None:
            short = why.replace("driver ", "").replace("this driver", "it")
            forms = (why, short, short.replace(" in ", " "))
            return ((next((text for text in forms if len(text) < cells), UNKNOWN), "dim"),)
        return line

    def order(self, thing: T, view: View) -> tuple[bool, Any]:
        """What it sorts by; what is not known comes after the rest."""
        value = self.value(thing, view)
        if isinstance(value, Mapping):
            value = sum(value.values()) if value else None
        if value is None:
            return True, 0
        if isinstance(value, str):
            return False, value.lower()
        if isinstance(value, Collection):
            return False, sorted(value)
        return False, -value if self.column is not None and self.column.falling else value

    def hit(self, thing: T, view: View, text: str) -> bool:
        """Whether ``text``, in lower case, is what a filter finds here."""
        if self.only is not None and not self.only(thing):
            return False
        if self.matches is not None:
            return self.matches(thing, view, text)
        value = self.value(thing, view)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value).startswith(text)
        return value is not None and text in self.type.text(value).lower()

    def facts(self, thing: T, view: View) -> Iterable[Fact]:
        """Its lines of the details."""
        detail = self.detail
        if detail is not None and detail.facts is not None:
            return [
                fact._replace(text=self.lacking(fact.text, view) or fact.text) for fact in detail.facts(thing, view)
            ]
        value = self.value(thing, view)
        text = UNKNOWN if value is None or value == "" else self.type.text(value)
        text = self.lacking(text, view) or text
        return (Fact((detail.label if detail else "") or self.title, text, detail.style if detail else ""),)


@dataclass(frozen=True, slots=True)
class Thing(Generic[T]):
    """Something that has fields, in the order of its JSON keys."""

    name: str
    about: str
    fields: tuple[Field[T], ...]
    groups: Mapping[str, Callable[[T, View], str]] = field(default_factory=lambda: EMPTY)
    """The headings of its details, in their order."""
    view: Callable[[T, View], View] | None = None
    """What its fields are looked at in, where that is not what the thing that holds it is."""
    whole: bool = False
    """Whether its own values are told whichever fields of what it holds are chosen."""
    _possible: list[Field[T]] = field(default_factory=list, init=False, repr=False, compare=False)
    _usual: list[Shown] = field(default_factory=list, init=False, repr=False, compare=False)
    _laid: dict[object, list[tuple[Field[T], int]]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What :func:`possible_columns`, :func:`wished` and :func:`lay_out` have made of it, as each list is laid out anew
    with each snapshot."""

    def __getitem__(self, name: str) -> Field[T]:
        return next(each for each in self.fields if each.id == name)

    def columns(self) -> list[Field[T]]:
        """Those that the overview shows, from the left."""
        return sorted((each for each in self.fields if each.column), key=lambda each: each.column.at)  # type: ignore[union-attr]

    def rows(self) -> list[Field[T]]:
        """Those that the tables of ``status`` show, from the left."""
        return sorted((each for each in self.fields if each.row), key=lambda each: each.row.at)  # type: ignore[union-attr]

    def details(self, thing: T, view: View) -> Iterator[tuple[str, str, list[Fact]]]:
        """The details: the id of each group, its heading, its lines."""
        shown = sorted((each for each in self.fields if each.detail), key=lambda each: each.detail.at)  # type: ignore[union-attr]
        for group, heading in self.groups.items():
            lines = [
                fact
                for each in shown
                if each.detail is not None and each.detail.group == group
                for fact in each.facts(thing, view)
            ]
            yield group, heading(thing, view), lines


Chosen = Mapping[str, Sequence[str]]
"""The ids of the fields to show, in order, by the name of their thing; things that are not in it are not shown."""


# What is made of the rows.


def as_json(thing: Thing[Any], value: Any, view: View, chosen: Chosen | None = None) -> dict[str, Any]:
    """An object with its stable keys; of ``chosen`` alone, where that is given."""
    out: dict[str, Any] = {}
    for each in _shown(thing, chosen):
        if each.only is None or each.only(value):
            within = None if chosen is not None and each.id in chosen.get(thing.name, ()) else chosen
            if each.of is not None and chosen is not None and leads(each.of, chosen):
                within = chosen
            out[each.id] = _json(each, each.value(value, view), view, within)
    return out


def _json(each: Field[Any], found: Any, view: View, chosen: Chosen | None) -> Any:
    if found is None:
        return None
    if each.of is None:
        return each.type.json(found)
    if each.type is OBJECT:
        return as_json(each.of, found, view, chosen)
    within = each.of.view
    return [as_json(each.of, item, view if within is None else within(item, view), chosen) for item in found]


def _shown(thing: Thing[Any], chosen: Chosen | None) -> Iterable[Field[Any]]:
    """Its chosen fields, and those that hold others that are chosen."""
    if chosen is None:
        return thing.fields
    own = [thing[name] for name in chosen.get(thing.name, ())]
    head = [each for each in thing.fields if each.of is None] if thing.whole else []
    return [*head, *own, *(f for f in thing.fields if f.of is not None and f not in own and leads(f.of, chosen))]


def leads(thing: Thing[Any], chosen: Chosen) -> bool:
    """Whether it, or what it holds, has a chosen field."""
    return thing.name in chosen or any(each.of is not None and leads(each.of, chosen) for each in thing.fields)


def table(
    thing: Thing[T], items: Iterable[T], view: View, chosen: Sequence[str] | None = None
) -> list[tuple[str, ...]]:
    """Headings and rows, as ``status`` prints them."""
    shown = thing.rows() if chosen is None else [thing[name] for name in chosen]
    head = tuple(each.row.name if each.row is not None else each.heading() for each in shown)
    return [head, *(tuple(each.text(item, view) for each in shown) for item in items)]


class Shown(NamedTuple):
    """A column that the user has chosen."""

    id: str
    width: int = 0
    """Cells; 0: as many as it usually has."""
    asked: bool | None = True
    """Whether it was asked for; None: as usual, where there is room. False: it is hidden."""


def possible_columns(thing: Thing[T]) -> Sequence[Field[T]]:
    """Each field that can be a column, those that usually are first; a field without a column of its own is as wide as
    its heading."""
    if not thing._possible:
        other = (
            replace(each, column=Column(_NO_PLACE, max(10, len(each.title) + 2), 1))
            for each in thing.fields
            if each.column is None and each.of is None and each.type not in (WORDS, OBJECT, OBJECTS)
        )
        thing._possible[:] = [*thing.columns(), *other]
    return thing._possible


def wished(thing: Thing[T], changes: Sequence[Shown]) -> Sequence[Shown]:
    """What the user's ``changes`` make of the usual columns: those that are no part of them come at their usual places,
    so that a list that was kept says nothing of a column that it does not name."""
    if changes:
        return _wished(thing, changes)
    if not thing._usual:
        thing._usual[:] = _wished(thing, ())
    return thing._usual


def _wished(thing: Thing[T], changes: Sequence[Shown]) -> list[Shown]:
    known = {each.id: each for each in possible_columns(thing)}
    wishes = list({one.id: one for one in changes if one.id in known}.values())
    for each in thing.columns():
        if each.column is not None and not each.column.hidden and each.id not in {one.id for one in wishes}:
            wishes.insert(place_of(each, [known[one.id] for one in wishes]), Shown(each.id, asked=None))
    return wishes


def place_of(new: Field[Any], among: Sequence[Field[Any]]) -> int:
    """Where a column comes: before the first whose usual place is behind its own; a field that is none by itself comes
    before the last of those, which takes what is left of the width."""
    last = max((_at(each) for each in among if _at(each) < _NO_PLACE), default=0)
    place = min(_at(new), last) if _at(new) >= _NO_PLACE else _at(new)
    return next((n for n, each in enumerate(among) if _at(each) >= place), len(among))


def _at(each: Field[Any]) -> int:
    """Its place among the usual columns."""
    return each.column.at if each.column is not None else 0


def fitted(thing: Thing[T], longest: Mapping[str, int]) -> Thing[T]:
    """The same with these columns no wider than their headings and so many cells, one of several texts no narrower."""

    def fit(each: Field[T]) -> Field[T]:
        column = each.column
        if column is None or each.id not in longest:
            return each
        most = max(longest[each.id], len(each.heading())) + (2 if column.align == ">" else 1)
        sizes = {name: min(most, getattr(column, name)) for name in ("width", "narrow", "wide", "roomy", "comfort")}
        if each.type is TEXTS:
            sizes = {"width": max(most, column.width)}
        return replace(each, column=replace(column, **sizes))

    return replace(thing, fields=tuple(map(fit, thing.fields)))


def lay_out(
    thing: Thing[T], view: View, width: int, gutter: int, *, stretch: bool, chosen: Sequence[Shown] = ()
) -> list[tuple[Field[T], int]]:
    """The columns that there is room for, with their cells; ``stretch``: the last one takes what is left. ``chosen``:
    those that the user wants, in this order; without them the usual ones. A usual column that has no room here without
    those that were asked for takes none from them."""
    if width < 0:  # the panel is not shown
        return []
    fields = {each.id: each for each in possible_columns(thing)}
    columns = [
        _Asked(each, column, one.width, one.asked is True)
        for one in chosen or wished(thing, ())
        if one.asked is not False and (each := fields.get(one.id)) is not None and (column := each.column) is not None
        if one.asked or column.when is None or column.when(view)
    ]
    # The view says which columns there are; how wide they are goes by them alone.
    of = width - gutter, stretch, tuple([(one.field.id, one.own, one.asked) for one in columns])
    if of not in thing._laid:
        if len(thing._laid) >= _REMEMBERED:
            thing._laid.clear()
        thing._laid[of] = _sized(columns, width - gutter, stretch=stretch)
    return thing._laid[of]


def _sized(columns: list[_Asked], width: int, *, stretch: bool) -> list[tuple[Field[Any], int]]:
    """Those of ``columns`` that there is room for, with their cells."""
    usual = [one for one in columns if not one.asked]
    sizes, left = _shared(_steps(usual), width)
    if usual != columns:
        columns = [one for one in columns if one.asked or one.field.id in sizes]
        sizes, left = _shared(_steps(columns), width)
    cells = [(each, sizes[each.id]) for each, *_ in columns if each.id in sizes]
    if stretch and cells and left > 0:
        at = _stretched(cells)
        each, room = cells[at]
        cells[at] = each, room + left
    return cells


class _Asked(NamedTuple):
    """A column that there shall be, if there is room."""

    field: Field[Any]
    column: Column[Any]
    own: int
    """Cells that the user has given it; 0: none."""
    asked: bool

    @property
    def least(self) -> int:
        return self.own or self.column.narrow or self.column.width

    @property
    def usual(self) -> int:
        return self.own or self.column.wide or self.column.width


class _Step(NamedTuple):
    """What is given cells next."""

    more: tuple[tuple[str, int], ...]
    """Ids of columns, and how many cells more each gets at most."""
    whole: bool = True
    """Whether less of it is of no use; otherwise each gets what there is, as evenly as can be."""


def _steps(columns: Sequence[_Asked]) -> Iterator[_Step]:
    """In which order cells are given out: first each column in its least width, those that stay longest first; then
    their usual widths, and the comfort of those that have one; then columns of second rank, what was before, and those
    of the last rank. Those that were asked for come before the others, and before the end of the longest text."""
    some = any(one.asked for one in columns)
    ranked = sorted(columns, key=lambda one: (not one.asked and one.column.keep < _VITAL, -one.column.keep))
    first = [one for one in ranked if one.asked or one.column.keep > _SECOND]
    longest = max(columns, key=lambda one: (one.field.type is TEXT, one.usual), default=None) if some else None
    begun = {one.field.id: one.least for one in columns}
    if longest is not None and longest.field.type is TEXT:
        begun[longest.field.id] = min(_SHORTEST, longest.least)

    def grow(one: _Asked, to: int) -> Iterator[_Step]:
        if (more := to - begun[one.field.id]) > 0:
            begun[one.field.id] = to
            yield _Step(((one.field.id, more),), whole=one.field.type is not TEXT and not some)

    for one in first:
        yield _Step(((one.field.id, begun[one.field.id]),))
    if longest is not None:
        yield from grow(longest, longest.least)
        if columns[-1].field.type not in (TEXT, PATH):  # what is told of the list stands behind the last heading
            yield _Step(((columns[-1].field.id, _TOLD),), whole=False)
    for one in first:
        yield from grow(one, one.usual)
    for one in first:
        yield from grow(one, 0 if one.own else one.column.comfort)
    rest = [one for one in ranked if one not in first]
    for one in rest:
        if one.column.keep > _LAST:
            yield _Step(((one.field.id, one.least),))
    roomy = [one for one in columns if one.column.roomy and not one.own]
    yield _Step(tuple((one.field.id, one.column.roomy - one.usual) for one in roomy), whole=False)
    for one in rest:
        if one.column.keep <= _LAST:
            yield _Step(((one.field.id, one.least),))
        yield from grow(one, one.usual)


def _shared(steps: Iterable[_Step], room: int) -> tuple[dict[str, int], int]:
    """The cells of each column that has any, and how many are left. Nothing is taken out of its turn, however much room
    is left: what a narrower list shows is so what a wider one begins with, and no column ever gives a cell away."""
    sizes: dict[str, int] = {}
    for step in steps:
        wanted = sum(most for _, most in step.more)
        if (step.whole and wanted > room and len(sizes) >= _FEWEST) or (room <= 0 and len(sizes) >= _FEWEST):
            return sizes, 0
        for at, (name, most) in enumerate(step.more):
            taken = most if step.whole else min(most, room // (len(step.more) - at))
            sizes[name] = sizes.get(name, 0) + taken
            room -= taken
    return sizes, room


_REMEMBERED: Final = 16
"""Ways in which a thing's columns are laid out that are remembered."""
_FEWEST: Final = 2
"""Columns that there are in any case."""
_TOLD: Final = 8
"""Cells behind the last heading in which a filter, or how many are chosen, is told."""


def _stretched(cells: Sequence[tuple[Field[Any], int]]) -> int:
    """Which column takes what is left of the width: the last one, or a text before it that is wider than its heading;
    numbers need no more."""
    texts = [at for at, (each, room) in enumerate(cells) if each.type is TEXT and room > len(each.heading()) + 4]
    return texts[-1] if texts and cells[-1][0].type not in (TEXT, PATH) else len(cells) - 1


def searched(thing: Thing[T], item: T, view: View, text: str) -> bool:
    """Whether ``text``, in lower case, is found in one of the fields that are searched."""
    values = (each.value(item, view) for each in thing.fields if each.searched)
    return text in " ".join("" if value is None else str(value) for value in values).lower()
