"""The filters of the clients and of the events: ``user:alice gpu:0 state:term train``, every term must match."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final, Generic, TypeVar

from mpstui.core.cells import gpu_label
from mpstui.core.model import Client, Event
from mpstui.core.text import as_shown, printable, typed_size
from mpstui.fields import CLIENT, EVENT, FLAG, SIZE, SIZES, TEXTS, TIME, Field, Thing, View, searched
from mpstui.history.times import parse_time

T = TypeVar("T")
_CLIENTS: Final = {"user", "gpu", "state", "cmd", "mem", "threads", "server", "pid", "container"}
_USUAL: Final = _CLIENTS | {"client", "kind", "severity", "since", "until"}
"""Fields that are named where none like the one asked for exists."""
_TELLING: Final = 3
"""Letters from which the beginning of a field's name is one."""
_COMPARED: Final = re.compile(r"([A-Za-z_]+)([<>]=?|!?=)(.*)", re.DOTALL)
_IS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.eq,
}
_SPAN: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])")
_PLAIN: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)%?")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
CLIENT_TERMS: Final = (
    ("train", "rows with this text in what they show"),
    ("user:alice", "rows with this text in that field"),
    ("user=alice  user!=bob", "rows where the field is exactly this, or is not"),
    ("mem>4G  cpu<=10", "rows with more, or less: mem>4G, threads<50, age>1h"),
    ("!train  !user:bob", "rows without it"),
    ("user:bob gpu:1", "several: rows with all of them"),
    ("old:yes", "clients with outdated limits, marked ⟳"),
    ("fields", ", ".join(sorted({each.word or each.id for each in CLIENT.fields if each.of is None}))),
)
"""What may be typed for clients, and what it leaves."""
EVENT_SYNTAX: Final = (
    ("fault", "events with this text, in the log's line too"),
    ("client:1877", "events of that client; server:1402, gpu:0, user:alice"),
    ("kind:fault", "events of that kind"),
    ("since:10m  until:21:30", "from then on, until then"),
    ("!connected", "events without it"),
    ("fields", ", ".join(sorted({each.word or each.id for each in EVENT.fields if each.of is None}))),
)
"""What may be typed for events, and what it leaves."""
EVENT_TERMS: Final = "text  client:1877  kind:fault  since:10m  until:21:30  server:1402  !text"


class Filter(Generic[T]):
    """A filter. A term ``name:text`` looks in one field, ``name=text`` for exactly that, ``!term`` excludes, other
    text is looked for in all."""

    def __init__(self, thing: Thing[T], text: str = "") -> None:
        self.text = text
        self._thing = thing
        self._fields: dict[str, Field[T]] = {
            name: each for each in thing.fields for name in (each.id, each.word) if name
        }
        self._terms: list[tuple[bool, str, str]] = []
        """Whether it is wanted, the name of a field or none, and what is looked for."""
        self._unknown: list[str] = []
        self._bounds: list[tuple[bool, Field[T], Callable[[float, float], bool], float]] = []
        """Whether it is wanted, the field, how it is compared, and with what."""
        self._trouble = ""
        """What is wrong with a term that can be nothing but a comparison: it leaves nothing, as what is chosen by a
        filter is acted on."""
        for word in map(as_shown, text.split()):
            wanted, term = not word.startswith("!"), word.removeprefix("!")
            if not self._compare(wanted, term):
                self._take(wanted, *term.partition(":"))

    def _take(self, wanted: bool, name: str, colon: str, value: str) -> None:
        """One term, as it was typed."""
        low = name.lower()
        known = bool(colon) and low in self._fields
        if colon and not known and low.isidentifier():
            self._unknown.append(low)
        name, value = (low, value) if known else ("", f"{name}{colon}{value}")
        if value:
            self._terms.append((wanted, name, value.lower()))

    def _compare(self, wanted: bool, term: str) -> bool:
        """Take a term like ``mem>4G``; whether it is one. A field that does not exist is complained about; one that is
        no number, or a number that is none, too, and leaves nothing."""
        found = _COMPARED.fullmatch(term)
        if found is None:
            return False
        name, sign, text = found[1].lower(), found[2], found[3]
        each = self._fields.get(name)
        equal = sign in {"=", "!="}
        if each is None:
            if not equal:  # lr=0.1 is a part of a command
                self._unknown.append(name)
            return False
        wanted = wanted is (sign != "!=")
        read, example = _reader_of(each)
        if equal and read is None:
            if text:
                self._terms.append((wanted, name, f"={text.lower()}"))
            return True
        value = read(text) if read is not None else None
        if value is None:
            what = f"write it as {name}{sign}{example}" if read is not None else f"{name} is no number"
            self._trouble = f"“{printable(term, 30)}”: {what}"
            return True
        self._bounds.append((wanted, each, _IS[sign], value))
        return True

    def _names(self) -> set[str]:
        """What a term may begin with."""
        return set(self._fields)

    def __bool__(self) -> bool:
        return bool(self.text.strip())

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names before a colon that are none of a field: the term is looked for as text."""
        return tuple(self._unknown)

    def complaint(self) -> str:
        """What is wrong with it, and what may stand there; empty where nothing is."""
        if self._trouble:
            return self._trouble
        if not self._unknown:
            return ""
        name, names = self._unknown[0], self._names()
        near = self._begun(name) or next(iter(get_close_matches(name, names, 1)), "")
        hint = f"did you mean {near}:?" if near else f"fields: {', '.join(sorted(names & _USUAL))} …"
        return f"no field “{printable(name, 20)}”; {hint}"

    def _begun(self, text: str) -> str:
        """The field whose name begins so, or a part of it; empty where it is none."""
        names = sorted(self._names()) if len(text) >= _TELLING else []
        whole = (name for name in names if name.startswith(text))
        return next(whole, next((name for name in names if f"_{text}" in name), ""))

    def field_meant(self) -> str:
        """The field that a word without a colon is the name of, as it is typed; empty where there is none."""
        words = (value for wanted, name, value in self._terms if wanted and not name)
        name = next(filter(None, map(self._begun, words)), "")
        each = self._fields.get(name)
        return f"{name}:{'yes' if each is not None and each.type is FLAG else ''}" if name else ""

    def matches(self, item: T, view: View, line: str | None = None) -> bool:
        """Whether it is shown. Text without a name is looked for in ``line``, where that is given."""
        if self._trouble:
            return False
        low = None if line is None or all(name for _, name, _ in self._terms) else line.lower()
        for wanted, name, value in self._terms:
            if name and value.startswith("="):
                text = self._fields[name].text(item, view).lower()
                hit = text == value[1:] or (self._fields[name].type is TEXTS and value[1:] in re.split(", ?", text))
            elif name:
                hit = self._fields[name].hit(item, view, value)
            else:
                hit = value in low if low is not None else searched(self._thing, item, view, value)
            if hit is not wanted:
                return False
        for wanted, each, compared, bound in self._bounds:
            number = _number(each, item, view)
            if number is None or compared(number, bound) is not wanted:
                return False
        return True


def _reader_of(each: Field[Any]) -> tuple[Callable[[str], float | None] | None, str]:
    """What reads a number that it is compared with, and an example; None where it is no number."""
    if each.type in (SIZE, SIZES):
        return typed_size, "4G"
    if each.type is TIME:
        return _seconds, "10m"
    if each.type.schema.get("type") in {"integer", "number"}:
        return _plain, "50"
    return None, ""


def _seconds(text: str) -> float | None:
    match = _SPAN.fullmatch(text)
    return float(match[1]) * _SECONDS[match[2]] if match is not None else None


def _plain(text: str) -> float | None:
    match = _PLAIN.fullmatch(text)
    return float(match[1]) if match is not None else None


def _number(each: Field[Any], item: object, view: View) -> float | None:
    """What is compared: the sum of sizes, how long ago a time is; None where it is not known."""
    value = each.value(item, view)
    if isinstance(value, Mapping):
        return float(sum(value.values())) if value else None
    if value is None or not isinstance(value, int | float):
        return None
    return view.snapshot.time - value if each.type is TIME else float(value)


class ClientFilter(Filter[Client]):
    """The filter of the clients."""

    def __init__(self, text: str = "") -> None:
        super().__init__(CLIENT, text)

    def device(self, view: View) -> str | None:
        """The UUID of the one device whose clients it leaves; None where it names none, or several."""
        wanted = {value.lstrip("=") for wants, name, value in self._terms if wants and name in {"gpu", "device_uuids"}}
        found = [uuid for uuid in view.indices if gpu_label(uuid, view.indices) in wanted]
        return found[0] if len(wanted) == len(found) == 1 else None

    def of_user(self, name: str | None, uid: int | None) -> str:
        """Its text, with this user's clients in place of whose it was for; None and None: everybody's."""
        words = [w for w in self.text.split() if re.split("!?[:=]", w.lstrip("!"))[0].lower() not in {"user", "uid"}]
        plain = name is not None and name.isprintable() and not set(name) & set(" ?")
        if plain:
            words.insert(0, f"user={name}")
        elif uid is not None:
            words.insert(0, f"uid={uid}")
        elif name is not None:
            words.insert(0, f"user:{name.split()[0]}")
        return " ".join(words)


class EventFilter(Filter[Event]):
    """The filter of the events. Times are as on the command line; they are fixed when the filter is made, so that
    ``since:10m`` stays put; ``now`` is what it counts from. Text is looked for in the log's line too."""

    def __init__(self, text: str = "", now: float = 0.0) -> None:
        self._now = now
        self._times: dict[str, float] = {}
        super().__init__(EVENT, text)

    def _take(self, wanted: bool, name: str, colon: str, value: str) -> None:
        if not colon or name.lower() not in {"since", "until"}:
            super()._take(wanted, name, colon, value)
        elif value:
            try:
                self._times[name.lower()] = parse_time(value, self._now)
            except ValueError:
                self._trouble = f"{value} is no time; type 10m, 21:29:12 or 2026-11-20T21:29"

    def _names(self) -> set[str]:
        return super()._names() | {"since", "until"}

    def matches(self, item: Event, view: View, line: str | None = None) -> bool:
        since, until = self._times.get("since"), self._times.get("until")
        if since is not None and (item.time is None or item.time < since):
            return False
        if until is not None and (item.time is None or item.time > until):
            return False
        return super().matches(item, view, f"{line or ''}\n{item.raw}")
