"""What a daemon, server, client, device, limit, event and problem has: one row for each thing that is shown of it.

From these rows alone come the overview's columns with their order and filter, the details, the text and the JSON of
``status``, the JSON of ``events``, and the JSON Schemas. A row that is added here is shown in all of them; what is not
said of it follows from its type. Pure: a value of the model in, text out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime, timezone
from functools import lru_cache, partial
from operator import add
from time import localtime, strftime
from typing import Any, Final, Generic, NamedTuple, TypeVar, get_args

from mpstui.core.activity import (
    ELSEWHERE,
    FULLY_WATCHED,
    ActivityLook,
    Launcher,
    Trends,
    rate_text,
    short_rate,
    sparkline,
)
from mpstui.core.cells import (
    OUTDATED,
    devices_of,
    gpu_label,
    gpus_text,
    health_word,
    limits_text,
    memory_of,
    meter,
    number,
    on_device,
    sm_text,
    state_mark,
    status_mark,
    threads_text,
    told_to_end,
    with_indices,
    with_short_uuids,
)
from mpstui.core.cells import SEVERITY as SEVERITY_MARKS
from mpstui.core.gain import gain_of
from mpstui.core.late import dataclass
from mpstui.core.limits import in_doubt
from mpstui.core.model import (
    EMPTY,
    Cause,
    Chunks,
    Client,
    ClientState,
    Context,
    Daemon,
    Device,
    Event,
    EventKind,
    KnownHealth,
    PartitionTable,
    PendingClient,
    Problem,
    ProcessKey,
    Server,
    SessionHolder,
    Severity,
    SmPartition,
    Snapshot,
    Source,
    StartFailures,
    Suspect,
    Watched,
)
from mpstui.core.suspects import ADVICE, RUN, START, Ranked, Ranking
from mpstui.core.text import (
    PRIORITIES,
    PRIORITY_WORDS,
    UNKNOWN,
    Line,
    by_device,
    format_age,
    format_percentage,
    format_size,
    owner,
    path_text,
    printable,
    short_size,
)
from mpstui.core.v3 import Namespace, V3Device, V3Node, V3Partition, V3Server
from mpstui.core.where import KINDS, Kind
from mpstui.core.xid import meaning
from mpstui.history.times import local_text
from mpstui.operations.types import Result
from mpstui.system.procfs import user_name

SCHEMA: Final = 1
"""Of everything that is printed as JSON: keys may come, none goes or changes its meaning."""
_IDLE: Final = 600
"""Seconds without a launch from which the exporter counts a client's memory as idle."""
NEAR_LIMIT: Final = 90
"""Percent of its memory limit at which a client is marked."""
_MEMORY_LIMIT: Final = "get_device_pinned_mem_limit"
_FULL_MEMORY: Final = 20
_FULL_THREADS: Final = 16
"""Cells from which memory and threads are written with their units apart."""
_DEFAULT_PRIORITY: Final = "get_default_client_priority"
_NO_EFFECT: Final = "no effect"
"""In the place of a percentage, on a daemon with static partitions."""
_NOTHING: Final = frozenset((UNKNOWN, "none", "none known"))
_WIDE: Final = 72
"""Cells of a list from which its columns get their wide form."""
_NARROW: Final = 96
"""Cells of a list below which its columns get their narrow form."""
_SHORTEST: Final = 7
"""Cells that a text keeps where it gives way to a column that was asked for."""
_ROOMY: Final = 156
"""Cells of a list from which its columns show what was before, too."""
_MEMORY_TEXT: Final = 22
_CPU_TEXT: Final = 7
"""Cells that memory and CPU take without what was before."""
_SHORT_UUID: Final = len("GPU-130f1685")
"""As much of a UUID as ``ps`` and people use; logs alone tell no index."""

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
        indices = {device.uuid: device.index for device in snapshot.devices}
        servers = daemon.servers if daemon is not None else ()
        lost = frozenset(key for server in servers if server.fault for key in server.fault.affected)
        return cls(snapshot, daemon, None, indices, lost, own)

    @property
    def steady(self) -> tuple[object, ...]:
        """What is no part of the snapshot or of the daemon, and so mostly the same in the next view."""
        return (
            self.place,
            self.indices,
            self.lost,
            self.own,
            self.beside,
            self.with_limits,
            self.users,
            self.device,
            self.trends and self.trends.step,
        )

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
        for name in ("place", "indices", "lost", "own", "beside", "with_limits", "users", "device", "trends"):
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


def _added(of: Callable[[Client], float | None]) -> Callable[[Group], tuple[float | None, bool]]:
    """The sum over a group of what may not be known of each."""

    def add_up(group: Group) -> tuple[float | None, bool]:
        values = [of(client) for client in group.clients]
        known = [value for value in values if value is not None]
        return (sum(known) if known else None), len(known) == len(values)

    return add_up


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
    """Its width where the list has 72 cells or more."""
    roomy: int = 0
    """Its width where the list has 156 cells or more, and no column has to go for it."""
    narrow: int = 0
    """Its width where the list has fewer than 96 cells: its cell is told how many it has, and says it shorter."""
    when: Callable[[View], bool] | None = None
    mark: Callable[[T], str] | None = None
    """One character, behind the text, that says something more, and is never cut."""
    falling: bool = False
    """Whether the largest comes first."""
    hidden: bool = False
    """Whether it is only shown where it was asked for."""
    least: int = 0
    """Cells of the list below which it is only shown where it was asked for."""
    total: Total | None = None
    """What it comes to over several of them; None: nothing can be added up."""

    def width_in(self, cells: int, *, roomy: bool = False) -> int:
        """Its width in a list of so many cells."""
        if roomy and self.roomy and cells >= _ROOMY:
            return self.roomy
        if self.narrow and cells < _NARROW:
            return self.narrow
        return self.wide if self.wide and cells >= _WIDE else self.width


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
        if not self.command or view.daemon is None or text.strip() not in _NOTHING:
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


# What several of them say.


def _when(moment: float | None, view: View) -> str:
    return UNKNOWN if moment is None else f"{clock_text(moment)}  ({view.age(moment)} ago)"


def _started(label: str, thing: Any, view: View) -> Iterable[Fact]:
    return (Fact(label, _when(thing.start_time, view)),)


def _who(thing: Any, view: View) -> Iterable[Fact]:
    user, uid = thing.user, thing.uid
    return (Fact("user", owner(user, uid) if user is None or uid is None else f"{user} (UID {uid})"),)


def _user_cell(thing: Any, view: View, cells: int) -> Line:
    number = UNKNOWN if thing.uid is None else "root" if thing.uid == 0 else str(thing.uid)
    return ((thing.user or number, "user"),)


def _age_cell(thing: Any, view: View, cells: int) -> Line:
    return ((view.age(thing.start_time), "plain"),)


def gpu_name(view: View, uuid: str | None) -> str:
    """``GPU 0 NVIDIA H100``; the UUID where NVML does not know the device."""
    device = view.snapshot.device(uuid) if uuid else None
    if device is None:
        return uuid or UNKNOWN
    return f"GPU {UNKNOWN if device.index is None else device.index} {device.name or ''}".rstrip()


def _priority(value: int | None) -> str:
    return UNKNOWN if value is None else f"{PRIORITIES[value]} ({value})" if value in PRIORITIES else str(value)


def _priority_word(value: int | None) -> str:
    return UNKNOWN if value is None else PRIORITIES.get(value, str(value))


def _memory_facts(
    view: View, limits: Mapping[str, int], used: Mapping[str, int] | None, none: str = "none"
) -> list[Fact]:
    """Memory for each device: what is used of what may be; without ``used``, what may be on each device of the
    daemon's."""
    known = view.daemon.ordinals if view.daemon is not None else EMPTY
    ordinals = {uuid: ordinal for ordinal, uuid in known.items()}
    facts: list[Fact] = []
    label = "memory, " if used is None else ""
    devices = {device.uuid: device.index for device in view.snapshot.devices if device.index is not None}
    named = known if used is None and limits else limits
    for uuid in dict.fromkeys([*(used or ()), *(known[o] for o in named if o in known)]):
        limit = limits.get(ordinals.get(uuid, ""))
        text = none if limit is None else format_size(limit)
        if used is not None:
            of = f"of {text}" if limit is not None else "no limit" if none == "none" else f"limit {none}"
            text = f"{format_size(used.get(uuid))}{',' if limit is None else ''} {of}"
        full = used is not None and limit is not None and used.get(uuid, 0) > 0.9 * limit
        text += "  ▲ nearly full" if full else ""
        short = used is None and uuid in devices  # beside other limits its number tells which it is
        name = f"GPU {devices[uuid]}" if short else gpu_name(view, uuid)
        facts.append(Fact(f"{label}{name}", text, "warn" if full else ""))
    facts += [Fact(f"{label}device {o}", format_size(size)) for o, size in limits.items() if o not in known]
    return facts or [Fact("memory", "none known")]


def _inherited_facts(daemon: Daemon | None, view: View) -> list[Fact]:
    """What the daemon's environment names, and no command reads back."""
    if daemon is None:
        return []
    doubt = in_doubt(daemon.inherited_mem_limits, daemon.driver)
    held = "not known whether clients get it" if doubt else "no client gets it (driver 580)"
    return [
        Fact("", f"{format_size(size)} on {on} in the daemon's environment: {held}")
        for o, size in by_device(daemon.inherited_mem_limits)
        for on in [gpu_name(view, daemon.ordinals[o]) if o in daemon.ordinals else f"device {o}"]
    ]


def default_facts(daemon: Daemon, view: View) -> list[Fact]:
    """The limits of servers that start from now on."""
    share = format_percentage(daemon.default_active_thread_percentage)
    return [
        Fact("threads", _NO_EFFECT if daemon.static_partitioning else share),
        Fact("priority", daemon.lacking("get_default_client_priority") or _priority(daemon.default_client_priority)),
        *(
            [Fact("memory", why)]
            if (why := daemon.lacking("get_default_device_pinned_mem_limit"))
            else _memory_facts(view, daemon.default_pinned_mem_limits, None)
        ),
        *_inherited_facts(daemon, view),
    ]


def _heading(text: str) -> Callable[[Any, View], str]:
    return lambda thing, view: text


# A client.


def _sms(client: Client, between: str) -> str:
    """``≈ 32 SM``; with ``between`` after the mark of an estimate."""
    return (
        "" if client.sm_count is None else f"{'≈' + between if client.sm_count_estimated else ''}{client.sm_count} SM"
    )


def _state_cell(client: Client, view: View, cells: int) -> Line:
    word, style = state_mark(client, lost=client.key in view.lost)
    outdated = client.outdated_limits and "active_thread_percentage" not in view.beside
    return ((f"{word} {OUTDATED}" if outdated else word, style),)


def _state_row(client: Client, view: View) -> str:
    return ("LOST" if client.key in view.lost else client.state) + (f" {OUTDATED}" if client.outdated_limits else "")


def _client_word(client: Client, view: View) -> str:
    return "LOST" if client.key in view.lost else client.state


def _state_facts(client: Client, view: View) -> Iterable[Fact]:
    if client.key in view.lost:
        return (Fact("state", f"LOST: a fault took its contexts; the daemon says {client.state}", "bad"),)
    return (Fact("state", client.state, "warn" if client.state == "TERMINATED" else ""),)


def _state_hit(client: Client, view: View, text: str) -> bool:
    words = [client.state.lower(), *(["outdated"] if client.outdated_limits else ())]
    return any(word.startswith(text) for word in words)


def _gpus_row(client: Client, view: View) -> str:
    names = (
        uuid[:_SHORT_UUID] if (index := view.indices.get(uuid)) is None else str(index) for uuid in client.device_uuids
    )
    return ",".join(sorted(names)) or UNKNOWN


def _memory_cell(client: Client, view: View, cells: int) -> Line:
    """What it uses and of what, and what it used before where there is room: one time stands below the other."""
    line = _memory_text(client, view, cells)
    room = cells - _MEMORY_TEXT - 2
    bars = view.trends.memory(client.key, room) if view.trends is not None else ""
    if not bars:
        return line
    gap = _MEMORY_TEXT + room - len(bars) - sum(len(text) for text, _ in line)
    return (*line, (" " * max(1, gap), "plain"), (bars, "meter-memory"))


def _cpu_cell(client: Client, view: View, cells: int) -> Line:
    text = UNKNOWN if client.cpu_percent is None else LOAD.text(client.cpu_percent)
    bars = view.trends.cpu(client.key, cells - _CPU_TEXT - 2) if view.trends is not None else ""
    return ((f"{bars} ", "meter"), (f"{text:>5}", "plain")) if bars else ((text, "plain"),)


def _memory_text(client: Client, view: View, cells: int) -> Line:
    """What it uses in all, and of what; on several devices how full the fullest is, because a limit is a device's."""
    ordinals = view.daemon.ordinals if view.daemon is not None else EMPTY
    total, limit, percent, device = memory_of(client, ordinals, view.device)
    there = f"{gpu_label(view.device, view.indices)}:" if view.device is not None and len(client.gpu_memory) > 1 else ""
    if cells < _FULL_MEMORY:
        short = _short_memory(total, limit, percent, device and gpu_label(device, view.indices))
        return ((there + short[0][0].lstrip(), short[0][1]),) if there else short
    text = f"{there + format_size(total):>9}"
    if limit is None:
        none = client.memory_limit_known or (view.daemon is not None and view.daemon.lacking(_MEMORY_LIMIT))
        unknown = f" / {UNKNOWN}" if total is not None and not none else ""
        return ((text + unknown, "plain"),)
    style, mark = ("warn", " ▲") if percent is not None and percent >= NEAR_LIMIT else ("plain", "")
    if device is not None and percent is not None:
        return ((f"{text} GPU{gpu_label(device, view.indices)} {percent:.0f} %{mark}", style),)
    return ((f"{text} / {format_size(limit)}{mark}", style),)


def _short_memory(total: int | None, limit: int | None, percent: float | None, gpu: str | None) -> Line:
    """``500M/2.0G``; on several devices ``4.3G 0:13%``."""
    text = f"{short_size(total):>5}"
    if limit is None:
        return ((text, "plain"),)
    style, mark = ("warn", "▲") if percent is not None and percent >= NEAR_LIMIT else ("plain", "")
    if gpu is not None and percent is not None:
        return ((f"{text} {gpu}:{percent:.0f}%{mark}", style),)
    return ((f"{text}/{short_size(limit)}{mark}", style),)


def _threads_cell(client: Client, view: View, cells: int) -> Line:
    share, sms = client.active_thread_percentage, _sms(client, " ")
    if cells < _FULL_THREADS:
        text = UNKNOWN if share is None else f"{share:g}%"
        return ((f"{text:>4} {_sms(client, '').replace(' ', '')}", "plain"),)
    return ((threads_text(share, sms), "plain"),)


def _memory_row(client: Client, view: View) -> str:
    return format_size(_used(client, view.device))


def _threads_row(client: Client, view: View) -> str:
    if client.active_thread_percentage is None:
        return _sms(client, "") or UNKNOWN
    return f"{format_percentage(client.active_thread_percentage)}  {_sms(client, '') or UNKNOWN}"


def _threads_facts(client: Client, view: View) -> Iterable[Fact]:
    by, sms = client.limit_source.get("active_thread_percentage"), _sms(client, " ")
    text = format_percentage(client.active_thread_percentage) + (f"  {sms}" if sms else "")
    return (Fact("threads", f"{text}  set by {by}" if by else text),)


def _unlimited(client: Client) -> str:
    return "none" if client.memory_limit_known else UNKNOWN


def _memory_limit_facts(client: Client, view: View) -> Iterable[Fact]:
    by = client.limit_source.get("pinned_mem_limits")
    return (Fact("memory limit", f"set by {by}" if by is not None else _unlimited(client)),)


def _outdated_facts(client: Client, view: View) -> Iterable[Fact]:
    if not client.outdated_limits:
        return ()
    why = "connected before the server's present limits were set, and keeps the old ones"
    return (Fact("outdated", f"{OUTDATED} {why}", "warn"),)


def _terminate_facts(client: Client, view: View) -> Iterable[Fact]:
    if not client.terminate_requested:
        return ()
    return (Fact("terminate", "✕ asked for; a second one would block the daemon", "bad"),)


def _where_facts(thing: Client | Daemon, view: View) -> Iterable[Fact]:
    """One line for each thing that it is in."""
    where = thing.where
    if where is None:
        return
    if where.pod_uid is not None:
        pod = where.name("pod") or UNKNOWN
        yield Fact("pod", pod if where.pod is None else f"{pod}  (UID {where.pod_uid})")
        if where.container_name is not None:
            yield Fact("container's name", where.container_name)
    if where.job is not None:
        yield Fact("job", (where.name("job") or UNKNOWN) + (f"  step {where.step}" if where.step else ""))
    if where.unit is not None:
        yield Fact("unit", where.name("unit") or UNKNOWN)
    if where.claimed:
        claimed = ", ".join(kind for kind in KINDS if kind in where.claimed)
        yield Fact("", f"{claimed}: a claim, which its user or its container may have made up", "warn")


def _here_facts(client: Client, view: View) -> Iterable[Fact]:
    if client.pid_here is not None:
        yield Fact("PID here", f"{client.pid_here}, by the kernel's word; the daemon calls it {client.pid}")


def _in(kind: Kind) -> Callable[[Client, View], str | None]:
    """The name of what the client is in."""
    return lambda client, view: None if client.where is None else client.where.name(kind)


def _is_in(kind: Kind) -> Callable[[Client, View, str], bool]:
    return lambda client, view, text: client.where is not None and client.where.matches(kind, text)


def _command_cell(client: Client, view: View, cells: int) -> Line:
    box, own = client.container, view.own.get(client.key)
    where: Line = ((f"[{box if len(box) <= 20 else box[:19].rstrip() + '…'}] ", "label"),) if box else ()
    mine: Line = ((f"◆ load {own} ", "accent"),) if own is not None else ()
    return (*mine, *where, (client.command or UNKNOWN, "plain"))


def _launches(client: Client) -> float | None:
    return client.activity.launches_per_second if client.activity is not None else None


def _idle_memory(client: Client, view: View) -> int | None:
    found = client.activity
    if found is None or found.launches_per_second is None:
        return None
    idle = found.idle_since is not None and view.snapshot.time - found.idle_since >= _IDLE
    return sum(client.gpu_memory.values()) if idle else 0


_WHOLE_RATE: Final = 16
"""Cells from which the rate of launches is written out."""


def _launch_text(rate: float | None, cells: int) -> str:
    """With the same width for every rate: the figure, or below that many cells ``13.7k``."""
    return f"{rate_text(rate):>8}" if cells >= _WHOLE_RATE else f"{short_rate(rate):>5}"


def _launch_cell(client: Client, view: View, cells: int) -> Line:
    rate = _launches(client)
    text = _launch_text(rate, cells)
    bars = sparkline(client.activity.rates, cells - len(text) - 2) if client.activity is not None else ""
    return ((f"{text} ", "plain" if rate else "dim"), (bars, "meter"))


def _activity_facts(client: Client, view: View) -> Iterable[Fact]:
    found = client.activity
    if found is None:
        if view.snapshot.watches_activity:
            yield Fact("launches/s", f"{UNKNOWN}  {'not looked at yet' if client.local else ELSEWHERE}", "dim")
        return
    if found.launches_per_second is None:
        yield Fact("launches/s", f"{UNKNOWN}  {found.why}", "dim")
        return
    bars = sparkline(found.rates, len(found.rates))
    yield Fact("launches/s", f"{rate_text(found.launches_per_second)}  {bars}".rstrip())
    if found.idle_since is not None:
        text = _when(found.idle_since, view)
        text += "" if found.seen_launching else ", when it was first watched"
        if found.watched is not None and found.watched < FULLY_WATCHED:
            text += f"; watched for {found.watched:.0%} of that time"
        yield Fact("idle since", text)


def _used(client: Client, device: str | None = None) -> int | None:
    """Memory, of that device alone where one is named."""
    used = on_device(client.gpu_memory, device)
    return sum(used.values()) if used else None


def _group_used(group: Group) -> tuple[float | None, bool]:
    return _added(lambda client: _used(client, group.device))(group)


def _total_memory(group: Group, value: float, cells: int) -> str:
    """With the sum of their limits, where each has one on each of its devices."""
    limits = group.limits
    limit = sum(limits.values()) if limits and not group.unlimited else None
    if cells < _FULL_MEMORY:
        return f"{short_size(int(value)):>5}" + (f"/{short_size(limit)}" if limit is not None else "")
    return f"{format_size(int(value)):>9}" + (f" / {format_size(limit)}" if limit is not None else "")


def _total_threads(group: Group, value: float, cells: int) -> str:
    return f"{value:g}%".rjust(4) if cells < _FULL_THREADS else f"{value:g} %".rjust(5)


CONTEXT: Final[Thing[Context]] = Thing(
    "context",
    "A CUDA context of a client.",
    (
        Field("id", "id", INTEGER, lambda c, v: c.id),
        Field("device_uuid", "device", TEXT, lambda c, v: c.device_uuid, null=True),
    ),
)

CLIENT: Final[Thing[Client]] = Thing(
    "client",
    "A process that computes through a server.",
    (
        Field(
            "pid", "PID", INTEGER, lambda c, v: c.pid,
            about="Its process ID. Where pid_proved is false: the daemon's number for it, and no process here.",
            column=Column(10, 8, 99, style="bold"), row=Text(10, "PID"), detail=Detail("process", 20), searched=True,
        ),
        Field(
            "id", "id", INTEGER, lambda c, v: c.id, null=True, about="The running number that ps prints.",
            detail=Detail("mps", 30, "number in ps"), command="ps",
        ),
        Field(
            "start_time", "started", TIME, lambda c, v: c.start_time, null=True,
            about="When its process was started.",
            column=Column(100, 6, 30, "AGE", cell=_age_cell, align=">", falling=True),
            row=Text(80, "AGE", lambda c, v: v.age(c.start_time)),
            detail=Detail("process", 40, facts=partial(_started, "started")), word="age",
        ),
        Field(
            "user", "user", TEXT, lambda c, v: c.user, null=True,
            about="Whose process it is.",
            column=Column(20, 11, 90, cell=_user_cell, narrow=9), row=Text(20, "USER"),
            detail=Detail("process", 30, facts=_who),
            matches=lambda c, v, t: t in (c.user or "").lower() or t == str(c.uid), searched=True,
        ),
        Field("uid", "UID", INTEGER, lambda c, v: c.uid, null=True, about="That user's number."),
        Field(
            "command", "command", TEXT, lambda c, v: c.command, null=True,
            about="Its arguments, printable; a client chooses them itself.",
            column=Column(110, 16, 85, short="CMD", narrow=14, cell=_command_cell), row=Text(90, "COMMAND"),
            detail=Detail("process", 10, style="bold"), word="cmd", searched=True,
        ),
        Field(
            "pid_namespace", "PID namespace", INTEGER, lambda c, v: c.pid_namespace, null=True,
            about="The inode of its PID namespace.", detail=Detail("process", 60),
        ),
        Field(
            "pid_proved", "PID proved", FLAG, lambda c, v: c.local,
            about="Whether its number is proved to be a PID of this PID namespace. Where not, nothing here may be "
            "signalled for it.",
        ),
        Field(
            "pid_here", "PID here", INTEGER, lambda c, v: c.pid_here, null=True,
            about="Its PID here, where the daemon's number for it is no process here. The kernel joins it with that "
            "number and namespace; nothing is signalled for it.",
            detail=Detail("process", 25, facts=_here_facts),
        ),
        Field(
            "container", "container", TEXT, lambda c, v: c.container, null=True, detail=Detail("process", 50),
            about="The container that it runs in.",
            matches=lambda c, v, t: t in (c.container or "").lower() or _is_in("container")(c, v, t), searched=True,
        ),
        Field(
            "where", "where", TEXT, lambda c, v: (c.where.text() or None) if c.where else None, null=True,
            about="Its batch job, pod, container or systemd unit, by its cgroups. Where its user or a container may "
            "have made the name up, it begins with “claims”.",
            column=Column(105, 22, 5, "WHERE", least=180),
            detail=Detail("process", 55, facts=_where_facts), searched=True,
        ),
        Field(
            "pod", "pod", TEXT, _in("pod"), null=True, matches=_is_in("pod"),
            about="Its pod: NAMESPACE/NAME, or “pod UID”.",
        ),
        Field(
            "pod_uid", "pod UID", TEXT, lambda c, v: c.where and c.where.pod_uid, null=True,
            about="The UID of its pod, as the cgroup has it.",
        ),
        Field(
            "pod_namespace", "pod's namespace", TEXT, lambda c, v: c.where and c.where.namespace, null=True,
            about="The namespace of its pod in Kubernetes.",
        ),
        Field(
            "pod_name", "pod's name", TEXT, lambda c, v: c.where and c.where.pod, null=True,
            about="The name of its pod, without the namespace.",
        ),
        Field(
            "container_name", "container's name", TEXT, lambda c, v: c.where and c.where.container_name, null=True,
            about="The name of its container within the pod.",
        ),
        Field(
            "container_id", "container's id", TEXT, lambda c, v: c.where and c.where.container_id, null=True,
            about="The ID of its container, as the cgroup has it.",
        ),
        Field(
            "job", "job", TEXT, _in("job"), null=True, matches=_is_in("job"),
            about="Its batch job: slurm:123, pbs:4711.server, torque:4711.server.",
        ),
        Field(
            "job_step", "job step", TEXT, lambda c, v: c.where and c.where.step, null=True,
            about="The step of its batch job.",
        ),
        Field(
            "unit", "systemd unit", TEXT, _in("unit"), null=True, about="The systemd unit that it belongs to.",
            matches=_is_in("unit"),
        ),
        Field(
            "claimed", "claimed", TEXTS, lambda c, v: sorted(c.where.claimed) if c.where else [],
            about="Which of pod, container, job, unit its user or a container may have made up.",
        ),
        Field(
            "state", "state", enum(ClientState), lambda c, v: c.state,
            about="INACTIVE: connected without a context. TERMINATED: its contexts were ended, its process lives.",
            column=Column(50, 13, 95, cell=_state_cell, gap=0), row=Text(50, "STATE", _state_row),
            detail=Detail("mps", 10, facts=_state_facts), matches=_state_hit, searched=True,
            metric=Metric(
                "clients", "Clients by state; LOST: a fault took the contexts.", _client_word,
                (*get_args(ClientState), "LOST"),
            ),
        ),
        Field(
            "contexts", "contexts", OBJECTS, lambda c, v: c.contexts, of=CONTEXT,
            detail=Detail(
                "contexts", 10,
                facts=lambda c, v: [Fact(str(each.id), gpu_name(v, each.device_uuid)) for each in c.contexts],
            ),
        ),
        Field(
            "gpu_memory", "GPU memory", SIZES, lambda c, v: on_device(c.gpu_memory, v.device),
            about="The device memory that it uses; in JSON by the UUID of the device.",
            column=Column(
                60, _MEMORY_TEXT, 80, "GPU MEM / LIMIT", "MEM/LIMIT", _memory_cell, falling=True,
                roomy=_MEMORY_TEXT + 12, narrow=13,
                total=Total(_group_used, _total_memory),
            ),
            row=Text(60, "GPU MEM", _memory_row),
            detail=Detail(
                "memory", 10,
                facts=lambda c, v: _memory_facts(v, c.pinned_mem_limits, c.gpu_memory, _unlimited(c)),
            ),
            word="mem",
            metric=Metric("client_memory_used_bytes", "Device memory of clients, as NVML counts it."),
        ),
        Field(
            "active_thread_percentage", "threads", SHARE, lambda c, v: c.active_thread_percentage, null=True,
            about="The share of the SMs that it may use.",
            column=Column(
                70, 18, 60, falling=True,
                cell=_threads_cell, narrow=13, gap=2, mark=lambda c: OUTDATED if c.outdated_limits else "",
                total=Total(_added(lambda c: c.active_thread_percentage), _total_threads),
            ),
            row=Text(70, "THREADS", _threads_row), detail=Detail("mps", 40, facts=_threads_facts), word="threads",
            metric=Metric("client_active_thread_ratio", "Shares of the SMs, added up: over 1 they share SMs."),
        ),
        Field(
            "namespace", "namespace", TEXT, lambda c, v: c.namespace, null=True,
            about="The namespace of its server that it connected to, of a daemon of MPS protocol 3.",
            detail=Detail(
                "mps", 44, facts=lambda c, v: (Fact("namespace", c.namespace),) if c.namespace is not None else ()
            ),
            searched=True,
        ),
        Field(
            "sm_partition", "SM partition", TEXT, lambda c, v: c.sm_partition, null=True,
            about="The static partition that its own environment names, of a daemon that has such: a claim.",
            detail=Detail(
                "mps", 45,
                facts=lambda c, v: (Fact("SM partition", c.sm_partition),) if c.sm_partition is not None else (),
            ),
            searched=True,
        ),
        Field(
            "sm_count", "SMs", INTEGER, lambda c, v: c.sm_count, null=True,
            about="What that share comes to, or its static partition has.",
            metric=Metric("client_sms", "SMs that clients may use, added up."),
        ),
        Field(
            "sm_count_estimated", "SMs estimated", FLAG, lambda c, v: c.sm_count_estimated,
            about="Whether the rounding of this kind of device has not been measured.",
        ),
        Field(
            "pinned_mem_limits", "memory limits", SIZES, lambda c, v: c.pinned_mem_limits,
            about="Its memory limits, by the server's device ordinal.",
            detail=Detail("mps", 60, facts=_memory_limit_facts), command=_MEMORY_LIMIT,
            metric=Metric("client_memory_limit_bytes", "Limits of device memory, added up."),
        ),
        Field(
            "client_priority", "priority", INTEGER, lambda c, v: c.client_priority, null=True,
            about=f"{PRIORITY_WORDS}.",
            column=Column(80, 6, 10, "PRIO", when=lambda v: not (v.daemon and v.daemon.lacking(_DEFAULT_PRIORITY))),
            detail=Detail("mps", 50, facts=lambda c, v: (Fact("priority", _priority(c.client_priority)),)), word="prio",
            command=_DEFAULT_PRIORITY,
        ),
        Field(
            "limit_source", "limits set by", WORDS, lambda c, v: c.limit_source,
            about="The name of a limit to where it came from: server, client, default.",
        ),
        Field(
            "outdated_limits", "outdated limits", FLAG, lambda c, v: c.outdated_limits,
            about="Whether it connected before the server's present limits were set, and so keeps the old ones.",
            detail=Detail("mps", 70, facts=_outdated_facts),
            metric=Metric("clients_outdated", "Clients that connected before the present limits and keep older ones."),
        ),
        Field(
            "server_pid", "server", INTEGER, lambda c, v: c.server_pid, null=True,
            about="The server it computes through.",
            column=Column(30, 8, 20, style="dim"), row=Text(30, "SERVER"), detail=Detail("mps", 20), word="server",
        ),
        Field(
            "device_uuids", "GPU", TEXTS, lambda c, v: sorted(c.device_uuids),
            about="Every device that it is known to be on, by context or by memory.",
            column=Column(40, 5, 70, cell=lambda c, v, n: ((gpus_text(c, v.indices), "plain"),)),
            row=Text(40, "GPU", _gpus_row), word="gpu",
            matches=lambda c, v, t: t in gpus_text(c, v.indices).split(","),
        ),
        Field(
            "cpu_percent", "CPU", LOAD, lambda c, v: c.cpu_percent, null=True,
            about="Its CPU use; 100 % is one core.",
            column=Column(
                90, _CPU_TEXT, 40, align=">", falling=True, cell=_cpu_cell, roomy=_CPU_TEXT + 12,
                total=Total(_added(lambda c: c.cpu_percent), lambda g, value, cells: LOAD.text(value)),
            ),
            detail=Detail("process", 70), word="cpu",
            metric=Metric("client_cpu_ratio", "CPU use of clients; 1 is one core. Who launches kernels uses some."),
        ),
        Field(
            "terminate_requested", "terminate requested", FLAG, lambda c, v: c.terminate_requested,
            about="Whether anybody has sent terminate_client for this process: a second one would block the daemon.",
            detail=Detail("mps", 80, facts=_terminate_facts),
        ),
        Field(
            "launches_per_second", "launches/s", NUMBER, lambda c, v: _launches(c), null=True,
            about="Only with --activity: kernel launches a second, counted from outside; a graph counts once. "
            "Launches are not SM time. null: not counted.",
            column=Column(
                95, 18, 82, "LAUNCH/s", cell=_launch_cell, narrow=13, falling=True,
                when=lambda v: v.snapshot.watches_activity,
                total=Total(_added(_launches), lambda g, value, cells: _launch_text(value, cells)),
            ),
            detail=Detail("activity", 10, facts=_activity_facts), word="launch",
            metric=Metric("client_launches_per_second", "Kernel launches a second, where watched; no SM time."),
        ),
        Field(
            "idle_since", "idle since", TIME, lambda c, v: c.activity.idle_since if c.activity else None, null=True,
            metric=Metric(
                "client_idle_memory_used_bytes",
                "Device memory of clients that have launched nothing for 10 minutes, where launches are watched.",
                _idle_memory,
            ),
            about="The end of the last window in which it was seen to launch, or when watching it began. null: it "
            "launches, or is not counted.",
        ),
        Field(
            "not_counted", "not counted", TEXT, lambda c, v: (c.activity.why or None) if c.activity else None,
            null=True, about="Why its launches are not counted.",
        ),
    ),
    {
        "process": _heading("Process"),
        "mps": _heading("MPS"),
        "memory": _heading("GPU memory, used of the limit"),
        "activity": _heading("Activity: kernel launches, which are not SM time"),
        "contexts": lambda c, v: f"Contexts: {len(c.contexts)}",
    },
)  # fmt: skip


# Clients that belong together: to a job, a pod, a unit, a user, a GPU, a server.


class Group(NamedTuple):
    """The clients of one daemon that belong to the same job, pod, container, unit, user or server, or are on the same
    GPUs."""

    by: str
    """One of ``GROUPS``."""
    name: str | None
    """None: those that belong to none."""
    clients: tuple[Client, ...]
    ordinals: Mapping[str, str]
    """The daemon's device ordinal to UUID."""
    device: str | None = None
    """The one that memory and limits are told of, where that is not all of them."""

    @property
    def title(self) -> str:
        """``user alice``, ``GPU 0,1``, ``in no job``."""
        if self.name is None and self.by in KINDS:
            return f"in no {self.by}"
        return f"{'GPU' if self.by == 'gpu' else self.by} {self.name or UNKNOWN}"

    @property
    def order(self) -> tuple[bool, list[tuple[int, str]]]:
        """By name, numbers in names by their value; the nameless last."""
        parts = re.findall(r"\d+|\D+", self.name or "")
        return self.name is None, [(int(part), "") if part.isdecimal() else (-1, part.lower()) for part in parts]

    @property
    def memory(self) -> Mapping[str, int]:
        """Bytes used, by device."""
        found: dict[str, int] = {}
        for client in self.clients:
            for uuid, size in on_device(client.gpu_memory, self.device).items():
                found[uuid] = found.get(uuid, 0) + size
        return found

    @property
    def limits(self) -> Mapping[str, int] | None:
        """Bytes that they may use together, by device, of every device that one of them is on and on which each of
        those has a limit; None where the limits of one of them are not known."""
        devices = self.ordinals
        sums: dict[str, int] = {}
        endless: set[str] = set()
        for client in self.clients:
            limits = {devices.get(ordinal, ordinal): size for ordinal, size in client.pinned_mem_limits.items()}
            for uuid in client.device_uuids:
                if self.device not in {None, uuid}:
                    continue
                if uuid in limits:
                    sums[uuid] = sums.get(uuid, 0) + limits[uuid]
                elif not client.memory_limit_known:
                    return None
                else:
                    endless.add(uuid)
        return {uuid: size for uuid, size in sums.items() if uuid not in endless}

    @property
    def unlimited(self) -> int:
        """Clients that have no limit on some device of theirs, as far as that is known."""
        devices = {uuid: ordinal for ordinal, uuid in self.ordinals.items()}
        return sum(
            client.memory_limit_known
            and any(
                devices.get(uuid) not in client.pinned_mem_limits
                for uuid in client.device_uuids
                if self.device in {None, uuid}
            )
            for client in self.clients
        )

    @property
    def threads(self) -> float | None:
        """The sum of their percentages; None where one is not known."""
        shares = [client.active_thread_percentage for client in self.clients]
        return None if None in shares else sum(share for share in shares if share is not None)


GROUPS: Final[Mapping[str, Callable[[Client, View], str | None]]] = {
    "pod": _in("pod"),
    "job": _in("job"),
    "unit": _in("unit"),
    "container": _in("container"),
    "user": lambda client, view: client.user or (None if client.uid is None else str(client.uid)),
    "gpu": lambda client, view: gpus_text(client, view.indices) if client.device_uuids else None,
    "server": lambda client, view: None if client.server_pid is None else str(client.server_pid),
}
"""What clients are grouped by, and the name of a client's group. One that is on several GPUs is in a group of its own
with those that are on the same ones: no byte is counted twice."""


def groups_of(clients: Iterable[Client], by: str, view: View) -> list[Group]:
    """Clients by ``GROUPS``, in the order in which they come; a group stands where its first one does."""
    found: dict[str | None, list[Client]] = {}
    name, ordinals = GROUPS[by], view.daemon.ordinals if view.daemon is not None else EMPTY
    for client in clients:
        found.setdefault(name(client, view), []).append(client)
    return [Group(by, name, tuple(clients), ordinals, view.device) for name, clients in found.items()]


def grouped(daemon: Daemon, by: str, view: View) -> list[Group]:
    """The clients of a daemon, by ``GROUPS``: the group that uses most memory first, and last those in none."""
    return sorted(
        groups_of(daemon.clients(), by, replace(view, daemon=daemon)),
        key=lambda each: (each.name is None, -sum(each.memory.values()), each.name or ""),
    )


def _by_gpu(sizes: Mapping[str, int], view: View) -> str:
    return "  ".join(f"GPU{gpu_label(uuid, view.indices)} {format_size(size)}" for uuid, size in sorted(sizes.items()))


def _group_limits(group: Group, view: View) -> str:
    limits = group.limits
    if limits is None:
        return UNKNOWN
    parts = [_by_gpu(limits, view)] if limits else []
    if group.unlimited:
        parts.append("none" if group.unlimited == len(group.clients) else f"{group.unlimited} without a limit")
    return ", ".join(parts) or UNKNOWN


GROUP: Final[Thing[Group]] = Thing(
    "group",
    "Clients of one daemon that belong together.",
    (
        Field(
            "name", "name", TEXT, lambda g, v: g.name, null=True,
            about="Of the job, pod, unit, container or user, the PID of the server, the indices of the GPUs, 0,1. "
            "null: of clients that belong to none. With “claims” before it, it is a name that its user or a container "
            "may have made up: never the same group as the real one.",
            row=Text(10, "GROUP"),
        ),
        Field(
            "pids", "clients", INTEGERS, lambda g, v: sorted(client.pid for client in g.clients),
            row=Text(20, "CLIENTS", lambda g, v: str(len(g.clients))),
        ),
        Field(
            "users", "users", TEXTS,
            lambda g, v: sorted({client.user for client in g.clients if client.user}), row=Text(30, "USERS"),
        ),
        Field(
            "gpu_memory", "GPU memory", SIZES, lambda g, v: g.memory, about="Used, by the UUID of the device.",
            row=Text(40, "GPU MEM", lambda g, v: _by_gpu(g.memory, v) or UNKNOWN),
        ),
        Field(
            "pinned_mem_limits", "memory limits", SIZES, lambda g, v: g.limits, null=True,
            about="The sum of their limits, by the UUID of each device on which every one of them has a limit. null: "
            "the limits of one of them are not known.",
            row=Text(50, "LIMITS", _group_limits),
        ),
        Field(
            "without_limit", "without a limit", INTEGER, lambda g, v: g.unlimited,
            about="Clients that have no limit on some device of theirs.",
        ),
        Field(
            "active_thread_percentage", "threads", SHARE, lambda g, v: g.threads, null=True,
            about="The sum of their shares of the SMs, which may be more than 100.", row=Text(60, "THREADS"),
        ),
    ),
)  # fmt: skip


class GroupedDaemon(NamedTuple):
    """A daemon, and what its clients are grouped by."""

    daemon: Daemon
    by: str


GROUPED: Final[Thing[GroupedDaemon]] = Thing(
    "grouped",
    "A daemon's clients in groups.",
    (
        Field("pipe_dir", "pipe directory", PATH, lambda d, v: d.daemon.pipe_dir),
        Field("groups", "groups", OBJECTS, lambda d, v: grouped(d.daemon, d.by, v), of=GROUP),
    ),
)


class GroupedNode(NamedTuple):
    """A snapshot, and what its clients are grouped by."""

    snapshot: Snapshot
    by: str


GROUPED_NODE: Final[Thing[GroupedNode]] = Thing(
    "groups",
    "mpstui status --group-by NAME --json: the clients of each daemon in groups, with what they use and may use.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda n, v: SCHEMA),
        Field("time", "time", TIME, lambda n, v: n.snapshot.time),
        Field("source", "source", enum(Source), lambda n, v: n.snapshot.source),
        Field("by", "by", Type({"enum": list(GROUPS)}), lambda n, v: n.by),
        Field(
            "daemons", "daemons", OBJECTS, lambda n, v: [GroupedDaemon(d, n.by) for d in n.snapshot.daemons],
            of=GROUPED,
        ),
    ),
)  # fmt: skip


# A server.


def _status_cell(server: Server, view: View, cells: int) -> Line:
    return (status_mark(server),)


def _status_row(server: Server, view: View) -> str:
    return f"{server.status or UNKNOWN}{' ending' * server.ending}"


def _status_facts(server: Server, view: View) -> Iterable[Fact]:
    yield Fact("status", server.status or UNKNOWN, "bold" if server.status == "ACTIVE" else "bad bold")
    if (told := told_to_end(server)) is not None:
        yield Fact("ending", told, "warn")


def _server_memory(server: Server, view: View, cells: int) -> Line:
    daemon = view.daemon
    known = server.active_thread_percentage is not None
    devices = len(daemon.ordinals) if daemon is not None else 0
    return ((limits_text(server.pinned_mem_limits, known, cells - 1, devices), "plain"),)


def _clients_facts(server: Server, view: View) -> Iterable[Fact]:
    outdated = sum(client.outdated_limits for client in server.clients)
    kept = f"  {OUTDATED} {outdated} keep older limits" if outdated else ""
    yield Fact("clients", f"{len(server.clients)}{kept}")
    yield Fact("contexts", str(sum(len(client.contexts) for client in server.clients)))
    if view.daemon is not None:
        yield Fact("daemon", path_text(view.daemon.pipe_dir))


def _server_limit_facts(server: Server, view: View) -> Iterable[Fact]:
    return [*_memory_facts(view, server.pinned_mem_limits, None), *_inherited_facts(view.daemon, view)]


def _server_uuids(server: Server) -> list[str]:
    return sorted({uuid for client in server.clients for uuid in client.device_uuids})


def _server_gpus(server: Server, view: View, cells: int) -> Line:
    return ((",".join(sorted({gpu_label(uuid, view.indices) for uuid in _server_uuids(server)})) or UNKNOWN, "plain"),)


def _v3_facts(server: Server, view: View) -> Iterable[Fact]:
    if server.v3 is not None:
        yield Fact("name", server.v3.name)
        yield Fact("pipe directory", server.v3.pipe_dir or UNKNOWN)
        yield Fact("allowed devices", server.v3.allowed_devices or UNKNOWN)


def _server_threads_row(server: Server, view: View) -> str:
    static = view.daemon is not None and view.daemon.static_partitioning
    return _NO_EFFECT if static else format_percentage(server.active_thread_percentage)


SERVER: Final[Thing[Server]] = Thing(
    "server",
    "An nvidia-cuda-mps-server, through which clients of one user compute.",
    (
        Field(
            "pid", "PID", INTEGER, lambda s, v: s.pid,
            column=Column(10, 9, 99, style="bold"), row=Text(10, "SERVER"), detail=Detail("server", 10),
        ),
        Field("uid", "UID", INTEGER, lambda s, v: s.uid, null=True),
        Field(
            "name", "name", TEXT, lambda s, v: s.v3.name if s.v3 else None, null=True,
            about="Of a daemon of MPS protocol 3.", detail=Detail("server", 12, facts=_v3_facts),
        ),
        Field(
            "user", "user", TEXT, lambda s, v: s.user, null=True,
            column=Column(20, 11, 90, cell=_user_cell), row=Text(20, "USER"),
            detail=Detail("server", 20, facts=_who),
        ),
        Field(
            "status", "status", TEXT, lambda s, v: s.status, null=True,
            about="What the daemon says: ACTIVE, FAULT, INITIALIZING, …",
            column=Column(30, 16, 95, cell=_status_cell, wide=18), row=Text(30, "STATUS", _status_row),
            detail=Detail("server", 30, facts=_status_facts), command="get_server_status",
            metric=Metric("servers", "MPS servers by status.", words=("ACTIVE", "INITIALIZING", "FAULT")),
        ),
        Field(
            "active_thread_percentage", "threads", SHARE, lambda s, v: s.active_thread_percentage, null=True,
            about="The share of the SMs that new clients may use.",
            column=Column(50, 9, 60, when=lambda v: v.with_limits), row=Text(50, "THREADS", _server_threads_row),
            detail=Detail("limits", 10),
            metric=Metric(
                "server_active_thread_ratio", "Share of the SMs that new clients may use; the least of several.",
                fold=min,
            ),
        ),
        Field(
            "pinned_mem_limits", "memory limits", SIZES, lambda s, v: s.pinned_mem_limits,
            about="Of new clients, by the server's device ordinal.",
            column=Column(60, 13, 50, "MEM/DEVICE", cell=_server_memory, roomy=27, when=lambda v: v.with_limits, gap=0),
            row=Text(60, "MEMORY"), detail=Detail("limits", 20, facts=_server_limit_facts), command=_MEMORY_LIMIT,
            metric=Metric("server_memory_limit_bytes", "Device memory that a new client may use.", fold=min),
        ),
        Field(
            "clients", "clients", OBJECTS, lambda s, v: s.clients, of=CLIENT,
            column=Column(40, 9, 80, cell=lambda s, v, n: ((str(len(s.clients)), "plain"),)),
            row=Text(40, "CLIENTS", lambda s, v: str(len(s.clients))),
            detail=Detail("server", 50, facts=_clients_facts),
        ),
        Field(
            "clients_elsewhere", "clients elsewhere", INTEGER, lambda s, v: s.clients_elsewhere,
            about="Clients in PID namespaces that the daemon does not see: they have no PID, and are not listed here.",
            metric=Metric(
                "clients_elsewhere", "Clients in PID namespaces that the daemon does not see; not among mps_clients."
            ),
        ),
        Field(
            "start_time", "started", TIME, lambda s, v: s.start_time, null=True,
            column=Column(80, 6, 40, "UP", cell=_age_cell, gap=0),
            row=Text(80, "UP", lambda s, v: v.age(s.start_time)),
            detail=Detail("server", 40, facts=partial(_started, "started")),
            metric=Metric(
                "server_start_time_seconds", "When the server was started; of several servers the first.", fold=min
            ),
        ),
        Field(
            "ending", "ending", FLAG, lambda s, v: s.ending,
            about="The daemon's logs say that it was told to end, and it waits for its clients.",
        ),
        Field(
            "ending_since", "ending since", TIME, lambda s, v: s.ending_since, null=True,
            about="When the logs first said so.",
        ),
        Field(
            "device_uuids", "GPUs", TEXTS, lambda s, v: _server_uuids(s), about="The devices that its clients are on.",
            column=Column(70, 10, 70, cell=_server_gpus, when=lambda v: not v.with_limits),
        ),
    ),
    {"server": _heading("Server"), "limits": _heading("Limits of new clients")},
)  # fmt: skip


# The limits in force: the daemon's default for servers to come, and each server's.


class Limit(NamedTuple):
    """The limits of new clients of one server, or of servers that start from now on."""

    daemon: Daemon
    server: Server | None = None

    @property
    def percentage(self) -> float | None:
        return self.server.active_thread_percentage if self.server else self.daemon.default_active_thread_percentage

    @property
    def memory(self) -> Mapping[str, int]:
        return self.server.pinned_mem_limits if self.server else self.daemon.default_pinned_mem_limits

    @property
    def outdated(self) -> int:
        """Clients that keep older ones."""
        return sum(client.outdated_limits for client in self.server.clients) if self.server else 0


def limits_of(daemon: Daemon) -> tuple[Limit, ...]:
    """The default, and each server's."""
    return (Limit(daemon), *(Limit(daemon, server) for server in daemon.servers))


def _limit_name(limit: Limit, view: View, cells: int) -> Line:
    if limit.server is None:
        return (("default", "plain"),)
    named = limit.server.v3
    return ((f"server {limit.server.pid}" if named is None else named.name, "bold"),)


def _limit_row(limit: Limit, view: View) -> str:
    return "default" if limit.server is None else f"server {limit.server.pid} {limit.server.user or UNKNOWN}"


def _limit_threads(limit: Limit, view: View, cells: int) -> Line:
    if limit.daemon.static_partitioning:
        return ((_NO_EFFECT, "dim"),)
    return (
        (threads_text(limit.percentage, sm_text(limit.percentage, devices_of(limit.daemon, view.snapshot))), "plain"),
    )


def _limit_threads_row(limit: Limit, view: View) -> str:
    return _NO_EFFECT if limit.daemon.static_partitioning else format_percentage(limit.percentage)


def _limit_memory(limit: Limit, view: View, cells: int) -> Line:
    known = limit.percentage is not None
    return ((limits_text(limit.memory, known, cells - 1, len(limit.daemon.ordinals)), "plain"),)


def _limit_memory_row(limit: Limit, view: View) -> str:
    """No limit is only "none" where the limits have been read."""
    shown = "  ".join(f"{ordinal}: {format_size(size)}" for ordinal, size in by_device(limit.memory))
    return shown or ("none" if limit.percentage is not None else UNKNOWN)


def _limit_priority(limit: Limit, view: View) -> str:
    return "" if limit.server else _priority_word(limit.daemon.default_client_priority)


LIMIT: Final[Thing[Limit]] = Thing(
    "limit",
    "The limits of new clients: of one server, or of servers that start from now on.",
    (
        Field(
            "server_pid", "server", INTEGER, lambda x, v: x.server.pid if x.server else None, null=True,
            about="null: the daemon's default, for servers that start from now on.",
            column=Column(10, 15, 99, " ", cell=_limit_name, gap=0), row=Text(10, "LIMITS", _limit_row),
        ),
        Field(
            "active_thread_percentage", "threads", SHARE, lambda x, v: x.percentage, null=True,
            column=Column(20, 18, 90, cell=_limit_threads, mark=lambda x: OUTDATED if x.outdated else ""),
            row=Text(30, "THREADS", _limit_threads_row),
        ),
        Field(
            "pinned_mem_limits", "memory limits", SIZES, lambda x, v: x.memory, about="By the daemon's device ordinal.",
            column=Column(30, 16, 80, "MEMORY/DEVICE", cell=_limit_memory, wide=26),
            row=Text(40, "MEMORY", _limit_memory_row), command=_MEMORY_LIMIT,
        ),
        Field(
            "client_priority", "priority", INTEGER,
            lambda x, v: None if x.server else x.daemon.default_client_priority, null=True,
            about=f"{PRIORITY_WORDS}; the daemon has one for all, so that a server has null.",
            column=Column(40, 8, 70, cell=lambda x, v, n: ((_limit_priority(x, v), "plain"),), gap=0),
            row=Text(50, "PRIORITY", _limit_priority), command=_DEFAULT_PRIORITY,
        ),
        Field(
            "outdated_clients", "outdated clients", INTEGER, lambda x, v: x.outdated,
            about="Clients that connected before these limits were set, and keep older ones.",
        ),
        Field(
            "status", "status", TEXT, lambda x, v: x.server.status if x.server else None, null=True,
            about="The server's.",
            row=Text(20, "STATUS", lambda x, v: _status_row(x.server, v) if x.server else ""),
        ),
        Field(
            "clients", "clients", INTEGER, lambda x, v: len(x.server.clients) if x.server else None, null=True,
            about="The number of the server's clients.",
            row=Text(60, "CLIENTS", lambda x, v: str(len(x.server.clients)) if x.server else ""),
        ),
    ),
)  # fmt: skip


# A daemon.


def speaks_for(daemon: Daemon) -> str | None:
    """Whose processes may be ended on this daemon's word; None: nobody's."""
    if daemon.speaker.uid is None:
        return None
    return "everybody" if daemon.speaker.uid == 0 else user_name(daemon.speaker.uid)


HEALTH_STYLE: Final[Mapping[str, str]] = {"ok": "good", "held": "warn", "stale": "warn", "unknown": "warn"}


def _health_facts(daemon: Daemon, view: View) -> Iterable[Fact]:
    detail = f": {daemon.health_detail}" if daemon.health_detail else ""
    style = "bad" if daemon.serves_nobody else HEALTH_STYLE.get(daemon.health, "bad")
    yield Fact("health", f"{daemon.state_word}{detail}", f"{style} bold")


def _holder_facts(daemon: Daemon, view: View) -> Iterable[Fact]:
    holder = daemon.holder
    held = UNKNOWN if holder is None else f"{holder.pid}, {holder.user or UNKNOWN}, {holder.terminal or UNKNOWN}"
    yield Fact("session held by", held if holder is None or holder.certain else f"{held}  (likely)")


def _there_facts(daemon: Daemon, view: View) -> Iterable[Fact]:
    if daemon.pid_there is not None:
        yield Fact("PID there", f"{daemon.pid_there}, in its own PID namespace")


def _serves_facts(daemon: Daemon, view: View) -> Iterable[Fact]:
    whom = {True: "several users at once (-M)", False: "one user's clients at a time", None: UNKNOWN}
    yield Fact("serves", whom[daemon.multiuser])


def _client_count(daemon: Daemon) -> str:
    """``—`` where no daemon runs too: none was asked, and who computes there is not known."""
    return str(sum(1 for _ in daemon.clients())) if daemon.runs and daemon.servers_known else UNKNOWN


def _servers_facts(daemon: Daemon, view: View) -> Iterable[Fact]:
    none = "none" if daemon.runs and daemon.servers_known else UNKNOWN
    yield Fact("servers", ", ".join(str(server.pid) for server in daemon.servers) or none)
    yield Fact("clients", _client_count(daemon))


def _run_by_cell(daemon: Daemon, view: View, cells: int) -> Line:
    return _user_cell(daemon, view, cells) if daemon.runs else ((UNKNOWN, "dim"),)


def _clients_cell(daemon: Daemon, view: View, cells: int) -> Line:
    return ((_client_count(daemon), "plain"),)


def _ordinals_facts(daemon: Daemon, view: View) -> Iterable[Fact]:
    found = [Fact(ordinal, f"{gpu_name(view, uuid)}  {uuid}") for ordinal, uuid in daemon.ordinals.items()]
    return found or [Fact("", daemon.lacking("device_query") or "none known")]


def _lacks_facts(daemon: Daemon, view: View) -> Iterable[Fact]:
    if daemon.lacks:
        yield Fact("does not know", ", ".join(sorted(daemon.lacks)))


def _watch_facts(daemon: Daemon, view: View) -> Iterable[Fact]:
    yield Fact("watched by", f"{daemon.watch}{f': {daemon.watch_detail}' if daemon.watch_detail else ''}")


START_FAILURES: Final[Thing[StartFailures]] = Thing(
    "start_failures",
    "Servers that have ended before they were ready, one after the other; over when one is ready.",
    (
        Field("count", "count", INTEGER, lambda s, v: s.count),
        Field("since", "since", TIME, lambda s, v: s.since, null=True),
        Field("last", "last", TIME, lambda s, v: s.last, null=True),
        Field("server_pid", "server", INTEGER, lambda s, v: s.server_pid, null=True, about="The latest one."),
        Field("uid", "UID", INTEGER, lambda s, v: s.uid, null=True, about="Whom it was for."),
        Field("reason", "reason", TEXT, lambda s, v: s.reason, null=True, about="The server's own words."),
    ),
)

HOLDER: Final[Thing[SessionHolder]] = Thing(
    "holder",
    "The process that keeps a control session open and so shuts everybody else out.",
    (
        Field("pid", "PID", INTEGER, lambda h, v: h.pid),
        Field("user", "user", TEXT, lambda h, v: h.user, null=True),
        Field("terminal", "terminal", TEXT, lambda h, v: h.terminal, null=True),
        Field("certain", "certain", FLAG, lambda h, v: h.certain, about="false: it is only the likely one."),
    ),
)


def partition_clients(partition: SmPartition, daemon: Daemon | None) -> list[Client]:
    """Those whose own environment names it: their claim."""
    clients = daemon.clients() if daemon is not None else ()
    return [c for c in clients if c.sm_partition is not None and partition.is_named(c.sm_partition)]


def _in_use_row(partition: SmPartition, view: View) -> str:
    return UNKNOWN if partition.in_use is None else "yes" if partition.in_use else "no"


def _client_row(partition: SmPartition, view: View) -> str:
    return ", ".join(f"{c.pid} {c.user or UNKNOWN}" for c in partition_clients(partition, view.daemon)) or UNKNOWN


def _device_row(uuid: str, view: View) -> str:
    index = view.indices.get(uuid)
    return uuid if index is None else f"{index} {uuid}"


CHUNKS: Final[Thing[Chunks]] = Thing(
    "chunks",
    "A device as a daemon with static SM partitions divides it.",
    (
        Field(
            "device_uuid", "device", TEXT, lambda c, v: c.device, about="As printed, where no one device begins so.",
            row=Text(10, "DEVICE", lambda c, v: _device_row(c.device, v)),
        ),
        Field("chunks_free", "free chunks", INTEGER, lambda c, v: c.free, row=Text(20, "FREE CHUNKS")),
        Field("chunks_used", "used chunks", INTEGER, lambda c, v: c.used, row=Text(30, "USED")),
        Field(
            "sms_free", "SMs in no partition", INTEGER, lambda c, v: c.free_sms, null=True,
            row=Text(40, "SMS IN NO PARTITION"),
            about="The free SMs of lspart: those that are in no chunk are among them, and can be given to nobody.",
        ),
        Field("sms_used", "used SMs", INTEGER, lambda c, v: c.used_sms, null=True, row=Text(50, "USED")),
        Field(
            "sms_per_chunk", "SMs a chunk", INTEGER,
            lambda c, v: t.sms_per_chunk(c.device) if v.daemon and (t := v.daemon.partitions) else None, null=True,
            row=Text(60, "SMS A CHUNK"), about="Read from what is in partitions; null: nothing is, or it differs.",
        ),
    ),
)  # fmt: skip

PARTITION: Final[Thing[SmPartition]] = Thing(
    "partition",
    "SMs of a device that are set aside for the clients that name them.",
    (
        Field(
            "name", "partition", TEXT, lambda p, v: p.name, row=Text(10, "PARTITION"),
            about="What a client has in CUDA_MPS_SM_PARTITION; good until the daemon ends.",
        ),
        Field("id", "id", TEXT, lambda p, v: p.id),
        Field("device_uuid", "device", TEXT, lambda p, v: p.device),
        Field("chunks", "chunks", INTEGER, lambda p, v: p.chunks, null=True, row=Text(20, "CHUNKS")),
        Field("sm_count", "SMs", INTEGER, lambda p, v: p.sm_count, null=True, row=Text(30, "SMS")),
        Field(
            "in_use", "in use", FLAG, lambda p, v: p.in_use, null=True, row=Text(40, "IN USE", _in_use_row),
            about="Whether it has clients, by the daemon's word.",
        ),
        Field(
            "clients", "clients", INTEGERS, lambda p, v: [c.pid for c in partition_clients(p, v.daemon)],
            row=Text(50, "CLIENTS", _client_row), about="PIDs of those whose own environment names it: their claim.",
        ),
    ),
)  # fmt: skip

PARTITIONS: Final[Thing[PartitionTable]] = Thing(
    "partitions",
    "The static SM partitions of a daemon.",
    (
        Field("devices", "devices", OBJECTS, lambda t, v: t.devices, of=CHUNKS),
        Field("partitions", "partitions", OBJECTS, lambda t, v: t.partitions, of=PARTITION),
        Field(
            "not_understood",
            "not understood",
            TEXTS,
            lambda t, v: list(t.not_understood),
            about="Lines of the daemon's answer that are none of the known forms.",
        ),
    ),
)


def _owner_name(thing: V3Server | Namespace, view: View) -> str:
    node = view.daemon.v3 if view.daemon is not None else None
    if isinstance(thing, Namespace):
        return str(len(node.clients_of(thing.server, thing.name))) if node is not None else UNKNOWN
    return str(len(node.clients_of(thing.name))) if node is not None else UNKNOWN


def _space_limit(space: Namespace, text: str | None) -> str:
    return text if text is not None else "none"


def _space_threads(space: Namespace, view: View) -> str:
    value = space.active_thread_percentage
    return _space_limit(space, None if value is None else format_percentage(value))


NAMESPACE: Final[Thing[Namespace]] = Thing(
    "namespace",
    "A part of a server of a daemon of MPS protocol 3, with limits of its own and nothing of the server's.",
    (
        Field("server", "server", TEXT, lambda n, v: n.server, row=Text(10, "SERVER")),
        Field("name", "namespace", TEXT, lambda n, v: n.name, row=Text(20, "NAMESPACE")),
        Field("server_status", "server's status", TEXT, lambda n, v: n.server_status, null=True),
        Field(
            "active_thread_percentage", "threads", SHARE, lambda n, v: n.active_thread_percentage, null=True,
            about="Comes before the client's own variable, higher or lower. null: none is set.",
            row=Text(
                30, "THREADS",
                _space_threads,
            ),
        ),
        Field(
            "pinned_mem_limit", "memory limit", TEXT, lambda n, v: n.pinned_mem_limit, null=True,
            about="As the daemon prints it; a client's own variable lowers it. null: none is set.",
            row=Text(40, "MEMORY", lambda n, v: _space_limit(n, n.pinned_mem_limit)),
        ),
        Field(
            "client_priority", "priority", INTEGER, lambda n, v: n.client_priority, null=True,
            row=Text(50, "PRIORITY", lambda n, v: "" if n.client_priority is None else _priority(n.client_priority)),
        ),
        Field(
            "clients", "clients", INTEGER,
            lambda n, v: len(v.daemon.v3.clients_of(n.server, n.name)) if v.daemon and v.daemon.v3 else None, null=True,
            row=Text(60, "CLIENTS", _owner_name),
        ),
        Field(
            "pipe_dir", "pipe directory", TEXT, lambda n, v: n.pipe_dir, null=True, row=Text(70, "PIPE DIRECTORY"),
            about="What its clients have in CUDA_MPS_PIPE_DIRECTORY.",
        ),
        Field("more", "more", WORDS, lambda n, v: n.more, about="Columns that this mpstui does not know."),
    ),
)  # fmt: skip

V3_SERVER: Final[Thing[V3Server]] = Thing(
    "v3_server",
    "A server of a daemon of MPS protocol 3, by its name; it may be without a process.",
    (
        Field("name", "name", TEXT, lambda s, v: s.name, row=Text(10, "SERVER")),
        Field("uid", "UID", INTEGER, lambda s, v: s.uid, null=True, row=Text(20, "UID")),
        Field("pid", "PID", INTEGER, lambda s, v: s.pid, null=True, row=Text(30, "PID")),
        Field("status", "status", TEXT, lambda s, v: s.status, null=True, row=Text(40, "STATUS")),
        Field(
            "allowed_devices", "allowed devices", TEXT, lambda s, v: s.allowed_devices, null=True,
            row=Text(50, "DEVICES"),
        ),
        Field("pipe_dir", "pipe directory", TEXT, lambda s, v: s.pipe_dir, null=True, row=Text(60, "PIPE DIRECTORY")),
        Field("more", "more", WORDS, lambda s, v: s.more, about="Columns that this mpstui does not know."),
    ),
)  # fmt: skip

V3_DEVICE: Final[Thing[V3Device]] = Thing(
    "v3_device",
    "A device of a server of a daemon of MPS protocol 3.",
    (
        Field("ordinal", "ordinal", TEXT, lambda d, v: d.ordinal, null=True, row=Text(10, "ORDINAL")),
        Field("server", "server", TEXT, lambda d, v: d.server, null=True, row=Text(20, "SERVER")),
        Field("uuid", "UUID", TEXT, lambda d, v: d.uuid, null=True, row=Text(30, "DEVICE")),
        Field("name", "name", TEXT, lambda d, v: d.name, null=True, row=Text(40, "NAME")),
        Field("sm_count", "SMs", INTEGER, lambda d, v: d.sm_count, null=True, row=Text(50, "SMS")),
        Field("chunks", "chunks", INTEGER, lambda d, v: d.chunks, null=True, row=Text(60, "CHUNKS")),
        Field("attributes", "attributes", TEXT, lambda d, v: d.attributes, null=True),
        Field("more", "more", WORDS, lambda d, v: d.more, about="Columns that this mpstui does not know."),
    ),
)  # fmt: skip

V3_PARTITION: Final[Thing[V3Partition]] = Thing(
    "v3_partition",
    "SMs of a device that are set aside, of a daemon of MPS protocol 3.",
    (
        Field("server", "server", TEXT, lambda p, v: p.server, null=True, row=Text(10, "SERVER")),
        Field("name", "name", TEXT, lambda p, v: p.name, null=True, row=Text(20, "PARTITION")),
        Field("device", "device", TEXT, lambda p, v: p.device, null=True, row=Text(30, "DEVICE")),
        Field("chunks", "chunks", INTEGER, lambda p, v: p.chunks, null=True, row=Text(40, "CHUNKS")),
        Field("sm_count", "SMs", INTEGER, lambda p, v: p.sm_count, null=True, row=Text(50, "SMS")),
        Field("include_remainder", "with the remainder", FLAG, lambda p, v: p.include_remainder, null=True),
        Field("status", "status", TEXT, lambda p, v: p.status, null=True, row=Text(60, "STATUS")),
        Field(
            "visible_uuid", "visible UUID", TEXT, lambda p, v: p.visible_uuid, null=True,
            about="What a client has in CUDA_MPS_SM_PARTITION.", row=Text(70, "CUDA_MPS_SM_PARTITION"),
        ),
        Field("more", "more", WORDS, lambda p, v: p.more, about="Columns that this mpstui does not know."),
    ),
)  # fmt: skip

V3: Final[Thing[V3Node]] = Thing(
    "v3",
    "What a daemon of MPS protocol 3 tells, as documented.",
    (
        Field("servers", "servers", OBJECTS, lambda n, v: n.servers, of=V3_SERVER),
        Field("namespaces", "namespaces", OBJECTS, lambda n, v: n.namespaces, of=NAMESPACE),
        Field("devices", "devices", OBJECTS, lambda n, v: n.devices, of=V3_DEVICE),
        Field("sm_partitions", "SM partitions", OBJECTS, lambda n, v: n.partitions, of=V3_PARTITION),
        Field("features", "features", TEXTS, lambda n, v: list(n.features), about="As the daemon prints them."),
        Field("not_read", "not read", WORDS, lambda n, v: n.not_read, about="Lists that could not be read, and why."),
        Field(
            "not_understood",
            "not understood",
            TEXTS,
            lambda n, v: list(n.not_understood),
            about="Rows that are none of the known forms.",
        ),
    ),
)


def _v3_daemon_facts(daemon: Daemon, view: View) -> Iterable[Fact]:
    if daemon.v3 is not None:
        yield Fact("namespaces", ", ".join(f"{n.server}/{n.name}" for n in daemon.v3.namespaces) or "none")


def _partition_facts(daemon: Daemon, view: View) -> Iterable[Fact]:
    if not daemon.static_partitioning:
        return
    if daemon.partitions is None:
        yield Fact("static partitions", f"not known: {daemon.partitions_detail or 'not read yet'}", "warn")
        return
    used, free = sum(d.used for d in daemon.partitions.devices), sum(d.free for d in daemon.partitions.devices)
    yield Fact("static partitions", f"{len(daemon.partitions.partitions)}  {used} chunks used, {free} free")


PENDING: Final[Thing[PendingClient]] = Thing(
    "pending",
    "A process that waits for a server.",
    (
        Field(
            "pid", "PID", INTEGER, lambda p, v: p.pid, null=True,
            about="null: it is in a PID namespace that the daemon does not see.",
            metric=Metric("clients_pending", "Processes that wait for a server.", lambda p, v: 1),
        ),
        Field("uid", "UID", INTEGER, lambda p, v: p.uid, null=True),
        Field("user", "user", TEXT, lambda p, v: p.user, null=True),
        Field("command", "command", TEXT, lambda p, v: p.command, null=True),
        Field(
            "since", "since", TIME, lambda p, v: p.since, null=True,
            metric=Metric(
                "clients_pending_since_timestamp_seconds", "Since when the one that has waited longest waits.", fold=min
            ),
        ),
        Field(
            "server_pid", "server", INTEGER, lambda p, v: p.server_pid, null=True,
            about="The server that has to end first; null: one is being started.",
        ),
    ),
)  # fmt: skip

_DAEMON_INFO: Final = Metric("daemon_info", "What the control daemon is.", info=True)

DAEMON: Final[Thing[Daemon]] = Thing(
    "daemon",
    "A control daemon, or the place where one is expected.",
    (
        Field(
            "pid", "PID", INTEGER, lambda d, v: d.pid, null=True, detail=Detail("daemon", 60),
            column=Column(20, 10, 50),
            metric=Metric(
                "daemon_up", "Whether a control daemon runs there; mps_daemon_state tells whether it answers.",
                lambda d, v: d.pid is not None,
            ),
        ),
        Field("uid", "UID", INTEGER, lambda d, v: d.uid, null=True),
        Field(
            "pipe_dir", "pipe directory", PATH, lambda d, v: d.pipe_dir, detail=Detail("daemon", 40),
            column=Column(60, 24, 100, "DIRECTORY"),
        ),
        Field("log_dir", "log directory", PATH, lambda d, v: d.log_dir, null=True, detail=Detail("daemon", 50)),
        Field(
            "protocol", "protocol", TEXT, lambda d, v: d.protocol, null=True,
            about="legacy (commands on standard input) or v3.", detail=Detail("daemon", 100),
            metric=_DAEMON_INFO,
        ),
        Field(
            "version", "version", TEXT, lambda d, v: d.version, null=True, detail=Detail("daemon", 90),
            metric=_DAEMON_INFO,
        ),
        Field(
            "lacks", "does not know", TEXTS, lambda d, v: sorted(d.lacks),
            about="Commands that it does not know, because its driver is older than they are.",
            detail=Detail("daemon", 95, facts=_lacks_facts),
        ),
        Field(
            "multiuser", "several users", FLAG, lambda d, v: d.multiuser, null=True,
            detail=Detail("daemon", 120, facts=_serves_facts),
            metric=_DAEMON_INFO,
        ),
        Field(
            "speaks_for", "speaks for", TEXT, lambda d, v: speaks_for(d), null=True,
            about="Whose processes may be ended on this daemon's word: a user, or everybody; null: nobody's.",
        ),
        Field(
            "static_partitioning", "static partitions", FLAG, lambda d, v: d.static_partitioning, null=True,
            about="Whether it was started with -S; then percentages have no effect, and each client names a partition.",
            detail=Detail("daemon", 110),
        ),
        Field(
            "v3", "protocol 3", OBJECT, lambda d, v: d.v3, null=True, of=V3,
            about="Servers, namespaces, devices and partitions by their names; null: it runs another protocol.",
            detail=Detail("daemon", 115, facts=_v3_daemon_facts),
        ),
        Field(
            "sm_partitions", "SM partitions", OBJECT, lambda d, v: d.partitions, null=True, of=PARTITIONS,
            about="null: it has none, or they are not known.", detail=Detail("daemon", 112, facts=_partition_facts),
        ),
        Field(
            "sm_partitions_detail", "why not known", TEXT, lambda d, v: d.partitions_detail, null=True,
            about="Why its partitions are not known.",
        ),
        Field(
            "read_only", "read-only", TEXT, lambda d, v: d.unspoken, null=True,
            about="Why it is shown and sent no command; null: it is sent commands.",
        ),
        Field(
            "health", "health", enum(KnownHealth), lambda d, v: None if d.health == "unknown" else d.health, null=True,
            about="ok: it answers. held: somebody keeps a control session open. blocked: the daemon answers nobody. "
            "stale: files of a daemon that is gone. absent: nothing there. null: it runs, and whether it answers is "
            "not known.",
            detail=Detail("daemon", 10, facts=_health_facts),
            column=Column(10, 13, 90, cell=lambda d, v, cells: (health_word(d),)),
            metric=Metric(
                "daemon_state", "The state of the control daemon is 1, the others are 0; no sample while whether it "
                "answers is not known.",
            ),
        ),
        Field(
            "cause", "cause", enum(Cause), lambda d, v: d.condition.cause,
            about="Why its health is so. none: it is well.",
        ),
        Field(
            "since", "since", TIME, lambda d, v: d.condition.since, null=True,
            about="Since when it is held or blocked, as far as its logs tell.",
            metric=Metric("daemon_state_since_timestamp_seconds", "Since when it is held or blocked."),
        ),
        Field(
            "freed_by", "freed by", TEXT, lambda d, v: d.condition.frees or None, null=True,
            about="The operation that makes it answer again: unblock, daemon_start.",
        ),
        Field(
            "ends", "has to end", INTEGERS, lambda d, v: [key.pid for key in d.condition.ends],
            about="The processes that have to end before it answers again.",
        ),
        Field("health_detail", "health in words", TEXT, lambda d, v: d.health_detail, null=True),
        Field(
            "watch", "watched by", enum(Watched), lambda d, v: d.watch,
            about="How changes are noticed.", detail=Detail("daemon", 130, facts=_watch_facts),
        ),
        Field("watch_detail", "why watched so", TEXT, lambda d, v: d.watch_detail, null=True),
        Field(
            "default_active_thread_percentage", "default threads", SHARE,
            lambda d, v: d.default_active_thread_percentage, null=True,
            detail=Detail("defaults", 10, facts=default_facts),
            metric=Metric("daemon_default_active_thread_ratio", "Share of the SMs for clients of servers to come."),
        ),
        Field(
            "default_client_priority", "default priority", INTEGER, lambda d, v: d.default_client_priority, null=True,
            about=f"{PRIORITY_WORDS}.", command=_DEFAULT_PRIORITY,
        ),
        Field(
            "default_pinned_mem_limits", "default memory limits", SIZES, lambda d, v: d.default_pinned_mem_limits,
            about="By the daemon's device ordinal.", command=_MEMORY_LIMIT,
            metric=Metric("daemon_default_memory_limit_bytes", "Memory limit for clients of servers to come."),
        ),
        Field(
            "inherited_pinned_mem_limits", "inherited memory limits", SIZES, lambda d, v: d.inherited_mem_limits,
            about="Named by the daemon's environment: no client of driver 580 gets them.",
        ),
        Field(
            "start_failures", "start failures", OBJECT, lambda d, v: d.start_failures, null=True, of=START_FAILURES,
            row=Text(20, "START FAILURES", lambda d, v: str(d.start_failures.count if d.start_failures else 0)),
            about="null: the latest server became ready, or none was started.",
            metric=Metric(
                "server_consecutive_start_failures", "Servers that ended before they were ready, one after the other.",
                lambda d, v: d.start_failures.count if d.start_failures else 0,
            ),
        ),
        Field(
            "servers", "servers", OBJECTS, lambda d, v: d.servers, of=SERVER,
            detail=Detail("daemon", 140, facts=_servers_facts),
            column=Column(50, 9, 40, "CLIENTS", cell=_clients_cell, align=">"),
        ),
        Field(
            "user", "user", TEXT, lambda d, v: d.user, null=True, detail=Detail("daemon", 70, facts=_who),
            column=Column(30, 12, 60, cell=_run_by_cell),
            metric=_DAEMON_INFO,
        ),
        Field(
            "pid_there", "PID in its namespace", INTEGER, lambda d, v: d.pid_there, null=True,
            about="null: it is in this PID namespace.", detail=Detail("daemon", 65, facts=_there_facts),
        ),
        Field(
            "where", "where", TEXT, lambda d, v: (d.where.text() or None) if d.where else None, null=True,
            about="As of a client.", detail=Detail("daemon", 75, facts=_where_facts),
        ),
        Field(
            "start_time", "started", TIME, lambda d, v: d.start_time, null=True,
            detail=Detail("daemon", 80, facts=partial(_started, "started")),
            column=Column(40, 7, 30, "UP", cell=_age_cell),
            metric=Metric("daemon_start_time_seconds", "When the control daemon was started."),
        ),
        Field(
            "remedy", "remedy", TEXT, lambda d, v: d.remedy, null=True, about="What to do where its health is not ok.",
            detail=Detail("daemon", 20, facts=lambda d, v: (Fact("remedy", d.remedy, "warn"),) if d.remedy else ()),
        ),
        Field(
            "holder", "session held by", OBJECT, lambda d, v: d.holder, null=True, of=HOLDER,
            row=Text(30, "HOLDER", lambda d, v: str(d.holder.pid) if d.holder else UNKNOWN),
            detail=Detail("daemon", 30, facts=_holder_facts),
        ),
        Field(
            "ordinals", "devices", WORDS, lambda d, v: d.ordinals, about="The daemon's device ordinal to UUID.",
            detail=Detail("devices", 10, facts=_ordinals_facts),
        ),
        Field(
            "limits", "limits", OBJECTS, lambda d, v: limits_of(d), of=LIMIT,
            about="The default first, then each server's.",
        ),
        Field(
            "pending", "pending", OBJECTS, lambda d, v: d.pending, of=PENDING,
            about="Who waits for a server, in the order in which they came.",
        ),
    ),
    {
        "daemon": lambda d, v: "Simulated" if d.simulated else "Daemon",
        "defaults": _heading("Defaults for new servers"),
        "devices": _heading("Devices, by the daemon's ordinal"),
    },
    view=lambda daemon, view: View.of(view.snapshot, daemon),
)  # fmt: skip


# A device.


def _index_facts(device: Device, view: View) -> Iterable[Fact]:
    yield Fact("NVML index", UNKNOWN if device.index is None else str(device.index))
    for daemon in view.snapshot.daemons:
        for ordinal, uuid in daemon.ordinals.items():
            if uuid == device.uuid:
                yield Fact("daemon's ordinal", f"{ordinal} at {path_text(daemon.pipe_dir)}")


def _contexts_row(device: Device, view: View) -> str:
    claim = "?" if device.limit_is_claim else ""
    return f"{UNKNOWN if device.contexts is None else device.contexts}/{device.context_limit or UNKNOWN}{claim}"


def _contexts_facts(device: Device, view: View) -> Iterable[Fact]:
    used, most = ("" if n is None else str(n) for n in (device.contexts, device.context_limit))
    yield Fact("contexts", f"{used or UNKNOWN} of {most or UNKNOWN}")
    if device.context_limit_source is not None:
        yield Fact("context limit", f"{most}, {device.context_limit_source}")
    here = sum(device.uuid in c.device_uuids for daemon in view.snapshot.daemons for c in daemon.clients())
    yield Fact("clients", str(here) if here or used else UNKNOWN)


def _used_row(device: Device, view: View) -> str:
    return f"{format_size(device.memory_used)} / {format_size(device.memory_total)}"


def _used_facts(device: Device, view: View) -> Iterable[Fact]:
    yield Fact("memory", f"{format_size(device.memory_used)} of {format_size(device.memory_total)}")


def _sm_row(device: Device, view: View) -> str:
    """Of a GPU of which NVML does not tell it, what NVML does tell, by its name."""
    if device.sm_utilization is not None or device.tells_sm or device.gpu_utilization is None:
        return UNKNOWN if device.sm_utilization is None else LOAD.text(device.sm_utilization)
    return f"GPU-Util {LOAD.text(device.gpu_utilization)}"


NEAR_FULL: Final = 5
"""Contexts left at which a device is marked: the client after the last one gets an error (fact 13)."""
_IN_WORDS: Final = 20
"""Cells from which the contexts of a device are told in words."""
_GIB: Final = 1 << 30


def device_load(device: Device) -> tuple[str, str, float | None]:
    """The id of the field that tells how busy it is, what the screen calls that, and its value: SM activity, or what
    NVML tells of a GPU without it, by its name."""
    if device.tells_sm or device.sm_utilization is not None:
        return "sm_utilization", "SM", device.sm_utilization
    return "gpu_utilization", "GPU-Util", device.gpu_utilization


def memory_percent(device: Device) -> float | None:
    """How full it is."""
    if device.memory_used is None or not device.memory_total:
        return None
    return device.memory_used / device.memory_total * 100


def _contexts_cell(device: Device, view: View, cells: int) -> Line:
    """``46/48 contexts  2 left ▲``: used, the most there can be, and what is left; ▲ when near full, ✕ when full, ?
    where the most is a claim that nobody has measured."""
    wide = cells >= _IN_WORDS
    if device.contexts is None or device.context_limit is None:
        used = f"{UNKNOWN}/{number(device.context_limit)}"
        return ((f"{used} contexts " if wide else f"{used:>5} ", "dim"),)
    left = max(0, device.context_limit - device.contexts)
    style, mark = ("bad", "✕") if left == 0 else ("warn", "▲") if left <= NEAR_FULL else ("text", " ")
    used = f"{device.contexts}/{device.context_limit}"
    claim = "?" if device.limit_is_claim else " "
    if not wide:
        return ((f"{used:>5}{mark if mark.strip() else claim}", style),)
    rest = "full" if left == 0 else f"{left} left"
    return ((used, style), (f" contexts{claim} ", "dim"), (f"{rest:>7} {mark} ", style))


def _device_memory_cell(device: Device, view: View, cells: int) -> Line:
    """``18.2/79.6 GiB``, the one aligned with that of other devices."""
    used = UNKNOWN if device.memory_used is None else f"{device.memory_used / _GIB:.1f}"
    total = UNKNOWN if device.memory_total is None else f"{device.memory_total / _GIB:.1f}"
    return ((f"{used:>5}/{total} GiB", "text"),)


def _rounded(name: str, unit: str = "") -> Callable[[Device, View, int], Line]:
    """A whole number with its unit; ``—`` where not known."""
    return lambda device, view, cells: ((number(getattr(device, name), unit), "text"),)


def _memory_utilization_facts(device: Device, view: View) -> Iterable[Fact]:
    if not device.tells_sm:
        value = device.memory_utilization
        yield Fact("memory utilisation", UNKNOWN if value is None else LOAD.text(value))
        yield Fact(
            "",
            "NVML tells no SM activity of this GPU (Hopper and later have it): GPU-Util is the part of the "
            "time in which some kernel ran, however small",
            "dim",
        )


def _sm_source_facts(device: Device, view: View) -> Iterable[Fact]:
    if device.sm_source is not None:
        yield Fact("SM activity by", f"{device.sm_source}, some seconds ago")


def _capability(device: Device) -> str | None:
    return None if device.compute_capability is None else ".".join(map(str, device.compute_capability))


def _outside(device: Device, view: View) -> int | None:
    if view.snapshot.nvml_detail is not None:
        return None
    return sum(device.uuid in each.device_uuids for each in view.snapshot.outside)


_GPU_INFO: Final = Metric("gpu_info", "What the device is.", info=True)

DEVICE: Final[Thing[Device]] = Thing(
    "device",
    "A GPU as NVML sees it. Utilisations are percent of the whole device.",
    (
        Field(
            "index", "GPU", INTEGER, lambda d, v: d.index, null=True, about="NVML's.",
            row=Text(10, "GPU"), column=Column(10, 3, 99, cell=_rounded("index")),
            detail=Detail("device", 30, facts=_index_facts),
        ),
        Field("uuid", "UUID", TEXT, lambda d, v: d.uuid, detail=Detail("device", 20)),
        Field(
            "name", "name", TEXT, lambda d, v: d.name, null=True,
            row=Text(20, "NAME", lambda d, v: d.name or d.uuid),
            column=Column(
                20, 22, 60, cell=lambda d, v, cells: (((d.name or UNKNOWN).removeprefix("NVIDIA "), "bold"),)
            ),
            detail=Detail("device", 10, style="bold"),
            metric=_GPU_INFO,
        ),
        Field(
            "sm_count", "SMs", INTEGER, lambda d, v: d.sm_count, null=True,
            row=Text(30, "SM"), column=Column(30, 7, 40, cell=_rounded("sm_count", " SM")), detail=Detail("device", 50),
            metric=Metric("gpu_sms", "SMs of the device."),
        ),
        Field(
            "memory_total", "memory", SIZE, lambda d, v: d.memory_total, null=True,
            metric=Metric("gpu_memory_total_bytes", "Memory of the device."),
        ),
        Field(
            "memory_used", "memory used", SIZE, lambda d, v: d.memory_used, null=True,
            row=Text(50, "MEMORY", _used_row), column=Column(70, 14, 95, "MEMORY", cell=_device_memory_cell),
            detail=Detail("now", 20, facts=_used_facts),
            metric=Metric("gpu_memory_used_bytes", "Memory of the device in use, by whomever."),
        ),
        Field(
            "compute_mode", "compute mode", TEXT, lambda d, v: d.compute_mode, null=True,
            row=Text(110, "MODE"), column=Column(40, 18, 30, "MODE", style="dim"), detail=Detail("device", 60),
            metric=_GPU_INFO,
        ),
        Field(
            "mig", "MIG", FLAG, lambda d, v: d.mig, null=True, detail=Detail("device", 70),
            column=Column(45, 5, 35, cell=lambda d, v, cells: (("MIG", "warn"),) if d.mig else ()),
        ),
        Field(
            "contexts", "contexts", INTEGER, lambda d, v: d.contexts, null=True, about="In use.",
            row=Text(40, "CONTEXTS", _contexts_row), column=Column(50, 6, 97, cell=_contexts_cell, wide=29),
            detail=Detail("now", 10, facts=_contexts_facts),
            metric=Metric("gpu_contexts", "Contexts in use."),
        ),
        Field(
            "context_limit", "context limit", INTEGER, lambda d, v: d.context_limit, null=True,
            about="The client after the last one gets an error. Whose number it is: context_limit_source.",
            metric=Metric("gpu_contexts_limit", "Contexts that the device takes."),
        ),
        Field(
            "context_limit_source", "context limit by", TEXT, lambda d, v: d.context_limit_source, null=True,
            about="Whose number the limit is: said by the daemon, measured with a driver, documented, or claimed.",
        ),
        Field(
            "sm_utilization", "SM utilisation", LOAD, lambda d, v: d.sm_utilization, null=True,
            row=Text(60, "SM UTIL", _sm_row), column=Column(60, 6, 96, "SM", cell=_rounded("sm_utilization", " %")),
            detail=Detail("now", 30),
        ),
        Field(
            "sm_source", "SM activity by", TEXT, lambda d, v: d.sm_source, null=True,
            about="DCGM, where the configuration has dcgm = true and NVML tells none; null: NVML. Some seconds old.",
            detail=Detail("now", 35, facts=_sm_source_facts),
        ),
        Field(
            "sm_occupancy", "SM occupancy", LOAD, lambda d, v: d.sm_occupancy, null=True,
            row=Text(70, "OCCUPANCY"), column=Column(62, 6, 20, "occupancy", cell=_rounded("sm_occupancy", " %")),
            detail=Detail("now", 40),
        ),
        Field(
            "dram_utilization", "DRAM bandwidth", LOAD, lambda d, v: d.dram_utilization, null=True,
            row=Text(80, "DRAM"), column=Column(64, 6, 20, "DRAM", cell=_rounded("dram_utilization", " %")),
            detail=Detail("now", 50),
        ),
        Field(
            "gpu_utilization", "GPU utilisation", LOAD, lambda d, v: d.gpu_utilization, null=True,
            about="Percent of the time in which some kernel ran, however small: no measure of how busy the SMs are.",
            detail=Detail("now", 60, "GPU-Util"),
            column=Column(61, 6, 96, "GPU-Util", cell=_rounded("gpu_utilization", " %")),
        ),
        Field(
            "memory_utilization", "memory utilisation", LOAD, lambda d, v: d.memory_utilization, null=True,
            about="Percent of the time in which its memory was read or written, however little: no bandwidth.",
            detail=Detail("now", 65, facts=_memory_utilization_facts),
            column=Column(63, 6, 20, "memory utilisation", cell=_rounded("memory_utilization", " %")),
        ),
        Field(
            "power_watts", "power", WATTS, lambda d, v: d.power_watts, null=True,
            row=Text(90, "POWER"), column=Column(80, 5, 50, cell=_rounded("power_watts", " W")),
            detail=Detail("now", 70),
        ),
        Field(
            "temperature", "temperature", DEGREES, lambda d, v: d.temperature, null=True,
            row=Text(100, "TEMP"), column=Column(90, 6, 50, cell=_rounded("temperature", " °C")),
            detail=Detail("now", 80),
        ),
        Field(
            "compute_capability", "compute capability", TEXT, lambda d, v: _capability(d), null=True, about="9.0",
            detail=Detail("device", 40),
        ),
        Field(
            "outside_processes", "processes outside MPS", INTEGER, _outside, null=True,
            about="That compute on it beside the clients of MPS; null: NVML does not tell.",
            metric=Metric("gpu_outside_processes", "Processes that compute on the device without MPS."),
        ),
        Field(
            "would_gain", "would gain from MPS", FLAG, lambda d, v: gain_of(d, v.snapshot).would, null=True,
            about="From MPS, or from more clients of it, by its meters at this moment; null: they do not tell.",
        ),
        Field(
            "gain", "gain from MPS", TEXT, lambda d, v: gain_of(d, v.snapshot).text,
            about="The figures behind would_gain, and what follows from them.",
            detail=Detail("now", 90),
        ),
    ),
    {"device": _heading("Device"), "now": _heading("Now")},
)  # fmt: skip


# A look at who launches kernels.


def _rate_cell(launcher: Launcher, view: View, cells: int) -> Line:
    return ((rate_text(launcher.per_second), "text" if launcher.launches else "dim"),)


def _of_all_cell(launcher: Launcher, view: View, cells: int) -> Line:
    share = UNKNOWN if launcher.share is None else LOAD.text(launcher.share)
    return ((f"{share:>5} ", "text" if launcher.launches else "dim"), *meter(launcher.share, cells - 7))


def _launcher_cell(launcher: Launcher, view: View, cells: int) -> Line:
    command = (launcher.command or UNKNOWN, "text" if launcher.command else "dim")
    return (command,) if launcher.pipe_dir is not None else (("▲ no MPS  ", "bad"), command)


LAUNCHER: Final[Thing[Launcher]] = Thing(
    "launcher",
    "A client, or a process that computes without MPS, and the kernels that it launched during a look.",
    (
        Field(
            "pid", "PID", INTEGER, lambda a, v: a.pid, row=Text(10, "PID"), column=Column(10, 9, 100, style="bold"),
        ),
        Field("uid", "UID", INTEGER, lambda a, v: a.uid, null=True),
        Field(
            "user", "user", TEXT, lambda a, v: a.user, null=True, row=Text(20, "USER"),
            column=Column(20, 11, 60, cell=lambda a, v, cells: ((owner(a.user, a.uid), "user"),)),
        ),
        Field("mps", "MPS", FLAG, lambda a, v: a.pipe_dir is not None, about="Whether it is a client of MPS.",
              row=Text(30, "MPS")),
        Field("daemon", "daemon", PATH, lambda a, v: a.pipe_dir, null=True, about="Its pipe directory."),
        Field("server_pid", "server", INTEGER, lambda a, v: a.server_pid, null=True),
        Field(
            "launches_per_second", "launches/s", NUMBER, lambda a, v: a.per_second, null=True,
            about="A graph counts once. Launches are not SM time. null: not counted.",
            row=Text(40, "LAUNCH/s", lambda a, v: rate_text(a.per_second)),
            column=Column(30, 10, 90, "LAUNCH/s", cell=_rate_cell, align=">"),
        ),
        Field("launches", "launches", INTEGER, lambda a, v: a.launches, null=True, about="During the look."),
        Field(
            "share", "share", LOAD, lambda a, v: a.share, null=True, about="Of all launches that were counted.",
            row=Text(50, "OF ALL"), column=Column(40, 14, 50, "OF ALL", cell=_of_all_cell),
        ),
        Field("gpu_memory", "GPU memory", SIZE, lambda a, v: a.gpu_memory, null=True, row=Text(60, "GPU MEM")),
        Field(
            "device_uuids", "devices", TEXTS, lambda a, v: a.devices or None, null=True,
            about="That it has a context on; null: nobody tells. Launches are those on all of them together.",
        ),
        Field(
            "gpu_memory_by_device", "memory by device", SIZES, lambda a, v: a.memory_by_device, null=True,
            about="By UUID; null: not told apart.",
        ),
        Field("container", "container", TEXT, lambda a, v: a.container, null=True),
        Field("not_counted", "not counted", TEXT, lambda a, v: a.why or None, null=True, about="Why not."),
        Field(
            "command", "command", TEXT, lambda a, v: a.command, null=True, row=Text(70, "COMMAND"),
            column=Column(50, 10, 80, cell=_launcher_cell),
        ),
    ),
)  # fmt: skip

ACTIVITY: Final[Thing[ActivityLook]] = Thing(
    "activity",
    "One look at who launches kernels; who launched most comes first.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda a, v: SCHEMA),
        Field("time", "time", TIME, lambda a, v: a.time),
        Field("source", "source", enum(Source), lambda a, v: a.source),
        Field("seconds", "seconds", SECONDS, lambda a, v: round(a.seconds, 3), about="How long was counted."),
        Field("how", "how", TEXT, lambda a, v: a.how or None, null=True, about="What counted, in words."),
        Field("processes", "processes", OBJECTS, lambda a, v: a.launchers, of=LAUNCHER),
        Field("text", "text", TEXT, lambda a, v: a.sentence),
    ),
)


# A problem, an event, and the whole.

PROBLEM: Final[Thing[Problem]] = Thing(
    "problem",
    "Something an admin should know, and what to do about it.",
    (
        Field("severity", "severity", enum(Severity), lambda p, v: p.severity),
        Field(
            "code", "code", TEXT, lambda p, v: p.code, about="What kind of problem it is; stable.",
            metric=Metric("problems", "Problems that mpstui shows, by severity and code.", lambda p, v: 1),
        ),
        Field("subject", "subject", TEXT, lambda p, v: p.subject),
        Field("text", "text", TEXT, lambda p, v: p.text),
        Field("remedy", "remedy", TEXT, lambda p, v: p.remedy),
    ),
)  # fmt: skip

SUSPECT: Final[Thing[Suspect]] = Thing(
    "suspect",
    "A client that may have made a fault, as far as it was known at the time.",
    (
        Field("pid", "PID", INTEGER, lambda s, v: s.pid),
        Field("uid", "UID", INTEGER, lambda s, v: s.uid, null=True),
        Field("user", "user", TEXT, lambda s, v: s.user, null=True),
        Field("command", "command", TEXT, lambda s, v: s.command, null=True),
    ),
)

RANKED: Final[Thing[Ranked]] = Thing(
    "ranked",
    "A user's program, and at how many faults it was.",
    (
        Field("uid", "UID", INTEGER, lambda r, v: r.uid, null=True),
        Field("user", "user", TEXT, lambda r, v: r.user, null=True, column=Column(20, 11, 2, cell=_user_cell)),
        Field(
            "command", "command", TEXT, lambda r, v: r.program, null=True, about="Up to its first option.",
            column=Column(30, 16, 3, style="text"),
        ),
        Field(
            "faults", "faults", INTEGER, lambda r, v: r.seen, about="At which it was.",
            column=Column(10, 13, 1, cell=lambda r, v, cells: ((r.presence.removeprefix("in "), "plain"),)),
        ),
        Field(
            "perhaps", "perhaps", INTEGER, lambda r, v: r.perhaps,
            about="More faults at which this user had a client whose command is not known.",
        ),
        Field(
            "named", "named", INTEGER, lambda r, v: r.named,
            about="Faults at which server.log named it; no proof, and no part of the order.",
        ),
        Field("pids", "PIDs", INTEGERS, lambda r, v: r.pids, about="The clients, in the order of the faults."),
    ),
)  # fmt: skip

SUSPECTS: Final[Thing[Ranking]] = Thing(
    "suspects",
    "Who was there at each fatal fault; the first was at most of them.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda r, v: SCHEMA),
        Field("faults", "faults", INTEGER, lambda r, v: len(r.faults)),
        Field("tied", "tied", INTEGER, lambda r, v: len(r.leaders), about="How many were at as many as the first."),
        Field("suspects", "suspects", OBJECTS, lambda r, v: r.ranked, of=RANKED),
        Field("text", "text", TEXT, lambda r, v: r.sentence),
        Field("notes", "notes", TEXTS, lambda r, v: r.notes),
        Field("advice", "advice", TEXTS, lambda r, v: [*ADVICE, START, RUN]),
    ),
)


EVENT_SEVERITY: Final[Mapping[EventKind, Severity]] = {
    "daemon_exited": "error",
    "server_exited": "warning",
    "server_failed": "error",
    "server_error": "error",
    "daemon_error": "error",
    "connection_failed": "warning",
    "debuggee": "warning",
    "client_evicted": "error",
    "limit_ignored": "warning",
    "server_shutdown_waiting": "warning",
    "client_pending": "warning",
    "client_refused": "error",
    "terminate_requested": "warning",
    "terminate_succeeded": "warning",
    "fatal_fault": "error",
    "xid": "warning",
}
"""How bad an event is, by its kind; ``info`` where it is not listed."""
NOISE: Final[frozenset[EventKind]] = frozenset(("session_opened", "session_closed", "command", "client_admitted"))
"""Kinds that each look at the daemon writes, ours or another monitor's (fact 8)."""
_COMMAND_IN_EVENT: Final = 20
"""Characters of a command in a line of the screen: what happened comes behind it. More where the line is longer than
what is usually said besides."""
_BESIDE_COMMAND: Final = 56
_WITH_MILLISECONDS: Final = 14
"""Cells from which the time of an event is told to the millisecond."""


def severity(event: Event) -> Severity:
    """How bad it is."""
    return EVENT_SEVERITY.get(event.kind, "info")


def pids_of(event: Event) -> set[str]:
    """Every process that the event is about: the one that did or suffered it, those that a fault took, and whom the
    log names."""
    found = {*event.values.get("clients", "").split(), *(str(suspect.pid) for suspect in event.suspects)}
    found |= {*map(str, event.named)}
    return found | ({str(event.pid)} if event.pid is not None else set())


def _severity_cell(event: Event, view: View, cells: int) -> Line:
    return (SEVERITY_MARKS[severity(event)],)


def _clock_cell(event: Event, view: View, cells: int) -> Line:
    """The time of day; what has another date says so beside its row."""
    if event.time is None:
        return ((UNKNOWN, "dim"),)
    seconds, thousandths = divmod(round(event.time * 1000), 1000)  # .112 is .1119999 as a float
    clock = strftime("%H:%M:%S", localtime(seconds))
    return ((f"{clock}.{thousandths:03d}" if cells >= _WITH_MILLISECONDS else clock, "dim"),)


def _sentence_cell(event: Event, view: View, cells: int) -> Line:
    """The log's sentence with the user's name, and with indices in place of UUIDs. Where the cells are few it has less
    of a UUID that NVML does not know, and of the command, before what happened is cut."""
    user = view.users.get(event.pid) if event.pid is not None else None

    def told(most: int) -> str:
        text = printable(event.sentence(user, most) or event.kind.replace("_", " "))
        return with_indices(text, view.indices)

    usual = max(_COMMAND_IN_EVENT, cells - _BESIDE_COMMAND)
    text = told(usual)
    if len(text) > cells and (shorter := with_short_uuids(text)) != text:
        over = len(shorter) - cells
        text = with_short_uuids(told(min(len(event.command or ""), usual) - max(0, over)))
    elif event.command and (over := len(text) - cells) > 0:
        text = told(min(len(event.command), usual) - over)
    return ((text, "plain"),)


def _event_user_hit(event: Event, view: View, text: str) -> bool:
    user = event.user or (view.users.get(event.pid) if event.pid is not None else None)
    return text in (user or "").lower()


def _event_gpu_hit(event: Event, view: View, text: str) -> bool:
    """By NVML's index, by the first characters of a UUID, or by the ordinal where the log tells that alone."""
    if text.startswith(("gpu-", "mig-")):
        return any(uuid.lower().startswith(text) for uuid in event.devices)
    return any(text in {gpu_label(uuid, view.indices), uuid} for uuid in event.devices)


def _is_fault(event: Event) -> bool:
    return event.kind == "fatal_fault"


def _suspect_facts(event: Event, view: View) -> Iterable[Fact]:
    """Who may have made a fault; what the log names is no proof (fact 36)."""
    for suspect in event.suspects:
        named = "  ◀ named by server.log, not proof" if suspect.pid in event.named else ""
        yield Fact(str(suspect.pid), f"{owner(suspect.user, suspect.uid)}  {suspect.command or UNKNOWN}{named}")
    if event.suspects:
        yield Fact("", "The screen Suspects tells which of them were at the other faults too.")


_VALUES: Final = {"command": "control command", "named": "named by server.log", "clients": "clients lost", "xid": "Xid"}
"""What a value of an event is called in its details, where its name alone does not tell."""


def _value_words(name: str, value: str) -> str:
    if name == "named" and value:
        return f"{value}, not proof"
    if name == "xid":
        numbers = [number for number in value.split() if number.isdecimal() and len(number) < 10]
        return "; ".join(f"{number}: {meaning(int(number))}" for number in numbers) or UNKNOWN
    return value or UNKNOWN


def _known(label: str, value: object) -> tuple[Fact]:
    return (Fact(label, UNKNOWN if value is None or value == "" else str(value)),)


EVENT: Final[Thing[Event]] = Thing(
    "event",
    "Something that happened, with the line of the log that says so.",
    (
        Field(
            "time", "time", TIME, lambda e, v: e.time, null=True,
            column=Column(10, 10, 90, cell=_clock_cell), row=Text(10, "TIME", lambda e, v: local_text(e.time), 24),
            detail=Detail("event", 10, facts=lambda e, v: (Fact("time", _when(e.time, v)),)),
        ),
        Field(
            "kind", "kind", enum(EventKind), lambda e, v: e.kind,
            column=Column(
                30, 23, 50, hidden=True, cell=lambda e, v, cells: ((e.kind.replace("_", " "), "label"),)
            ),
            row=Text(20, "KIND", width=24),
            detail=Detail("event", 20, facts=lambda e, v: (Fact("kind", e.kind.replace("_", " "), "bold"),)),
        ),
        Field(
            "daemon", "daemon", TEXT, lambda e, v: v.place, null=True, about="Its pipe directory.",
            detail=Detail(
                "event", 40, facts=lambda e, v: _known("daemon", e.pipe_dir and path_text(e.pipe_dir))
            ),
            matches=lambda e, v, text: e.pipe_dir is not None and text in path_text(e.pipe_dir).lower(),
        ),
        Field(
            "server_pid", "server", INTEGER, lambda e, v: e.server_pid, null=True, detail=Detail("event", 50),
            word="server",
        ),
        Field(
            "pid", "client", INTEGER, lambda e, v: e.pid, null=True, about="The process that it is about.",
            detail=Detail("event", 60), word="client", matches=lambda e, v, text: text in pids_of(e),
        ),
        Field("context_id", "context", INTEGER, lambda e, v: e.context_id, null=True, detail=Detail("event", 90)),
        Field(
            "devices", "devices", TEXTS, lambda e, v: e.devices, about="UUIDs, or the server's ordinals.",
            word="gpu", matches=_event_gpu_hit,
            detail=Detail(
                "event", 100,
                facts=lambda e, v: (
                    *_known("devices", ", ".join(gpu_name(v, uuid) for uuid in e.devices)),
                    *(Fact(_VALUES.get(name, name), _value_words(name, value)) for name, value in e.values.items()),
                ),
            ),
        ),
        Field(
            "detail", "what", TEXT, lambda e, v: e.detail,
            column=Column(40, 20, 99, cell=_sentence_cell),
            row=Text(30, "WHAT", lambda e, v: e.sentence() or e.raw or UNKNOWN),
            detail=Detail("event", 30, facts=lambda e, v: _known("what", with_indices(e.detail, v.indices))),
        ),
        Field(
            "raw", "line of the log", TEXT, lambda e, v: e.raw,
            detail=Detail("raw", 10, facts=lambda e, v: _known("", e.raw)),
        ),
        Field(
            "uid", "UID", INTEGER, lambda e, v: e.uid, null=True, about="Of that process, or of whom a server is for."
        ),
        Field(
            "user", "user", TEXT, lambda e, v: e.user, null=True,
            detail=Detail("event", 70, facts=lambda e, v: _known("user", e.user if e.user is not None else e.uid)),
            matches=_event_user_hit,
        ),
        Field(
            "command", "command", TEXT, lambda e, v: e.command, null=True, detail=Detail("event", 80), word="cmd",
        ),
        Field(
            "severity", "severity", enum(Severity), lambda e, v: severity(e), about="How bad such an event is.",
            column=Column(20, 2, 95, cell=_severity_cell),
        ),
        Field(
            "named", "named", INTEGERS, lambda e, v: e.named, only=_is_fault,
            about="Of a fatal_fault: the PIDs that server.log names, which is no proof.",
        ),
        Field(
            "suspects", "suspects", OBJECTS, lambda e, v: e.suspects, of=SUSPECT, only=_is_fault,
            about="Of a fatal_fault: every client that had a context on its devices.",
            detail=Detail("suspects", 10, facts=_suspect_facts),
        ),
        Field(
            "xids", "Xids", INTEGERS, lambda e, v: [int(n) for n in e.values.get("xid", "").split()] or None,
            null=True, only=_is_fault, about="Of a fatal_fault: what the driver reported at that time.",
        ),
        Field(
            "xid", "Xid", INTEGER, lambda e, v: int(e.values["xid"]), only=lambda e: e.kind == "xid",
            about="Of an xid.",
        ),
    ),
    {
        "event": _heading(""),
        "suspects": _heading("Suspects: each client with a context on these GPUs then"),
        "raw": _heading("The line of the log"),
    },
)  # fmt: skip

_NODE_INFO: Final = Metric("node_info", "The node: whether it is real or simulated, and its driver.", info=True)

SNAPSHOT: Final[Thing[Snapshot]] = Thing(
    "status",
    "mpstui status --json: one snapshot of the node.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda s, v: SCHEMA),
        Field("time", "time", TIME, lambda s, v: s.time),
        Field(
            "source", "source", enum(Source), lambda s, v: s.source,
            metric=_NODE_INFO,
        ),
        Field("host", "host", TEXT, lambda s, v: s.host, about="The node's name."),
        Field(
            "driver_version", "driver", TEXT, lambda s, v: s.driver_version, null=True, about="As NVML names it.",
            metric=_NODE_INFO,
        ),
        Field("daemons", "daemons", OBJECTS, lambda s, v: s.daemons, of=DAEMON),
        Field("devices", "devices", OBJECTS, lambda s, v: s.devices, of=DEVICE),
        Field("problems", "problems", OBJECTS, lambda s, v: s.problems, of=PROBLEM),
    ),
    whole=True,
)  # fmt: skip


# What is made of the table.

CHOICES: Final[tuple[Thing[Any], ...]] = (CLIENT, SERVER, DAEMON, DEVICE, LIMIT, PROBLEM)
"""Whose fields ``status --fields`` takes; a bare name is that of the first which has it."""
Chosen = Mapping[str, Sequence[str]]
"""The ids of the fields to show, in order, by the name of their thing; things that are not in it are not shown."""


class UnknownFieldError(Exception):
    """There is no such field; the text is one line, with the nearest names."""


def choose(names: str) -> dict[str, list[str]]:
    """The fields named in ``a,b,c``; ``server.pid`` says whose where several things have one. Raises
    UnknownFieldError."""
    chosen: dict[str, list[str]] = {}
    for name in (part.strip() for part in names.split(",")):
        owner, dot, identity = name.rpartition(".")
        found = next(
            (t for t in CHOICES if owner in ({t.name} if dot else {""}) and any(f.id == identity for f in t.fields)),
            None,
        )
        if found is None:
            raise UnknownFieldError(f"there is no field “{printable(name, 60)}”{_nearest(name)}")
        if identity not in (ids := chosen.setdefault(found.name, [])):
            ids.append(identity)
    return chosen


def _nearest(name: str) -> str:
    """The fields whose names, or headings, look most like it."""
    from difflib import get_close_matches  # only where somebody has mistyped

    known: dict[str, str] = {}
    for thing in reversed(CHOICES):
        for each in thing.fields:
            known[f"{thing.name}.{each.id}"] = f"{thing.name}.{each.id}"
            for word in (each.title.lower(), each.heading().lower(), each.word, each.id):
                if word:
                    known[word] = each.id
    near = dict.fromkeys(known[word] for word in get_close_matches(name.lower()[:60], known, 5, 0.5))
    return f"; nearest: {', '.join(near)}" if near else "; “mpstui schema status” prints all"


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


def _carried_out(result: Any) -> bool:
    return isinstance(result, Result)


RESULT: Final[Thing[Any]] = Thing(
    "result",
    "The result of a change. The later keys are there where it is known on which daemon.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda r, v: SCHEMA),
        Field("done", "done", FLAG, lambda r, v: _carried_out(r) and r.done),
        Field("exit_status", "exit status", INTEGER, lambda r, v: int(r.status)),
        Field("message", "message", TEXT, lambda r, v: r.message if _carried_out(r) else str(r)),
        Field("action", "operation", TEXT, lambda r, v: r.request.action, only=_carried_out),
        Field("pipe_dir", "pipe directory", PATH, lambda r, v: r.request.pipe_dir, only=_carried_out),
        Field(
            "details", "details", TEXTS, lambda r, v: r.details, only=_carried_out,
            about="What is known besides: the value read back, each client's end.",
        ),
        Field("remedy", "remedy", TEXT, lambda r, v: r.remedy, null=True, only=_carried_out),
    ),
)  # fmt: skip
"""Of a ``Result``, or of what refused it before there was one."""


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


def possible_columns(thing: Thing[T]) -> list[Field[T]]:
    """Each field that can be a column, those that usually are first; a field without a column of its own is as wide as
    its heading."""
    known = thing.columns()
    other = [
        replace(each, column=Column(1000, max(10, len(each.title) + 2), 1))
        for each in thing.fields
        if each.column is None and each.of is None and each.type not in (WORDS, OBJECT, OBJECTS)
    ]
    return [*known, *other]


def lay_out(
    thing: Thing[T], view: View, width: int, gutter: int, *, stretch: bool, chosen: Sequence[Shown] = ()
) -> list[tuple[Field[T], int]]:
    """The columns that there is room for, with their cells; ``stretch``: the last one takes what is left. ``chosen``:
    those that the user wants, in this order; without them the usual ones."""
    if chosen:
        fields = {each.id: each for each in possible_columns(thing)}
        wanted = [(fields[one.id], one.width) for one in chosen if one.id in fields]
    else:
        wanted = [
            (each, 0)
            for each in thing.columns()
            if each.column is not None and not each.column.hidden and width >= each.column.least
        ]
    columns = [
        (each, column, cells)
        for each, cells in wanted
        if (column := each.column) is not None and (chosen or column.when is None or column.when(view))
    ]
    for roomy in (True, False):
        cells = [(each, room or column.width_in(width, roomy=roomy)) for each, column, room in columns]
        if sum(room for _, room in cells) + gutter <= width:
            break
    over = sum(room for _, room in cells) + gutter - width
    if chosen and over > 0:  # a column that was asked for comes before the end of a long text
        longest = max(range(len(cells)), key=lambda at: (cells[at][0].type is TEXT, cells[at][1]))
        each, room = cells[longest]
        if each.type is TEXT and over <= room - _SHORTEST:
            cells[longest] = each, room - over
    while len(cells) > 2 and sum(room for _, room in cells) + gutter > width:
        cells.remove(min(cells, key=lambda each: each[0].column.keep if each[0].column else 0))
    if stretch and cells:  # a panel that is not shown has no room for any
        at = _stretched(cells)
        left = width - gutter - sum(room for _, room in cells)
        if at < len(cells) - 1:  # what is told of the list stands behind the last heading
            each, room = cells[-1]
            cells[-1] = each, room + max(0, min(left, _TOLD))
            left -= max(0, min(left, _TOLD))
        each, room = cells[at]
        cells[at] = each, max(2, room + left)
    return cells


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
