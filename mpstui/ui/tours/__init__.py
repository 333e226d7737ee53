"""Guided tours: files that lead through the screen, step by step; read and checked. No terminal, no Textual.

A step is a caption, keys that are pressed for the reader, and a condition to wait for, in the words of the filter.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, get_args

from mpstui.core.late import dataclass
from mpstui.core.model import Snapshot
from mpstui.core.requests import Unable
from mpstui.core.text import error_text, path_text, printable, unprintable
from mpstui.fields import CLIENT, DAEMON, DEVICE, EVENT, SERVER, Thing, View
from mpstui.load.types import WorkerState
from mpstui.plan.profile import line_of
from mpstui.ui.filter import Filter

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER: Final = Path(__file__).parent
_LIMIT: Final = 64 << 10
_STEPS: Final = 60
_KEYS: Final = 60
_CAPTION: Final = 400
_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,40}")
_BINDING: Final = re.compile(r"@[a-z][a-z0-9_.]{0,60}")
_PLAIN: Final = [
    "up",
    "down",
    "left",
    "right",
    "enter",
    "escape",
    "tab",
    "space",
    "backspace",
    "delete",
    "home",
    "end",
    "pageup",
    "pagedown",
    "backtab",
]
_SPECIAL: Final = re.compile(rf"(?:(?:shift|ctrl)\+)?(?:{'|'.join(_PLAIN)}|f[1-9]|f1[0-2])|ctrl\+[a-z]")
_TAKEN: Final = {
    "f7": "ends the tour",
    "f8": "is the next step",
    "ctrl+c": "ends the program",
    "ctrl+q": "ends the program",
}
LOAD: Final = "load"
NONE: Final = "none"
"""Of the load: no client of it is there any more, or none was started."""
_OF_LOAD: Final = {
    NONE: "the end of all test clients",
    "running": "a test client that runs",
    "failed": "a test client that has failed",
    "ended": "a test client that has ended",
}
"""What a tour waits for that names a state of the load."""
ENDED_STATES: Final = frozenset({"ended", "failed"})
_THINGS: Final[Mapping[str, Thing[Any]]] = {
    "client": CLIENT, "server": SERVER, "daemon": DAEMON, "device": DEVICE, "event": EVENT,
}  # fmt: skip


class TourError(Unable):
    """What is wrong with a tour, where, and what may stand there."""


@dataclass(frozen=True)
class TourCondition:
    """``client user:alice``, ``load running``: that there is one such thing."""

    text: str
    kind: str
    terms: str
    filter: Filter[Any] | None = None

    @property
    def words(self) -> str:
        """What there has to be, for a reader: ``a test client that has failed`` for ``load failed``."""
        if self.filter is not None:
            return self.text
        return _OF_LOAD.get(self.terms, f"a test client that is {self.terms}")

    def holds(self, snapshot: Snapshot, load: Collection[str] = ()) -> bool:
        """Whether the node has one now. ``load``: the states of the load's clients."""
        if self.filter is None:
            return ENDED_STATES.issuperset(load) if self.terms == NONE else self.terms in load
        return any(self.filter.matches(item, view) for item, view in _items(self.kind, snapshot))


def _items(kind: str, snapshot: Snapshot) -> Iterable[tuple[Any, View]]:
    whole = View.of(snapshot)
    if kind == "device":
        yield from ((device, whole) for device in snapshot.devices)
    elif kind == "event":
        yield from ((event, whole) for event in snapshot.events)
    else:
        for daemon in snapshot.daemons:
            view = View.of(snapshot, daemon)
            found: Sequence[Any] = (daemon,)
            if kind != "daemon":
                found = daemon.servers if kind == "server" else tuple(daemon.clients())
            yield from ((item, view) for item in found)


@dataclass(frozen=True)
class TourStep:
    """One key of the reader's."""

    caption: str
    keys: tuple[str, ...] = ()
    """As Textual calls them, a single character, or ``@`` and the id of a binding (docs/keys.md)."""
    wait: TourCondition | None = None
    seconds: float = 8.0
    """How long it stands where nobody presses a key."""
    holds: TourCondition | None = None
    """When the caption is so."""
    otherwise: str = ""
    """What is said in its place as long as it is not."""


@dataclass(frozen=True)
class Tour:
    """What a file says."""

    name: str
    title: str
    steps: tuple[TourStep, ...]
    demo: str | None = None
    """The simulated node that it is made for."""


def shipped() -> dict[str, Path]:
    """The tours of the package, by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}


def read(name: str, bindings: Callable[[], Collection[str]] | None = None) -> Tour:
    """A shipped tour by its name, or a file that ends in ``.toml``. Raises TourError.

    ``bindings``: the ids that a file's ``@`` may name, asked where it names one.
    """
    known = shipped()
    if not name.endswith(".toml"):
        if name not in known:
            there = ", ".join(known)
            raise TourError(f"there is no tour “{printable(name, 60)}”; there are: {there}; a file of yours: FILE.toml")
        return parse(known[name].read_text("utf-8"), name)
    path = Path(name)
    if (problem := unprintable(path)) is not None:
        raise TourError(problem)
    where = path_text(path, 200)
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise TourError(f"{where}: is not a file")
            raw = file.read(_LIMIT + 1).removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise TourError(f"{where}: {error_text(error)}") from None
    if len(raw) > _LIMIT:
        raise TourError(f"{where}: is larger than {_LIMIT >> 10} KiB")
    try:
        return parse(raw.decode("utf-8"), printable(path.stem, 40), bindings)
    except UnicodeDecodeError as error:
        raise TourError(f"{where}: line {raw[: error.start].count(10) + 1}: is not UTF-8") from None
    except TourError as error:
        raise TourError(f"{where}: {error}") from None


class _TourError(Exception):
    def __init__(self, message: str, *key: str | int) -> None:
        super().__init__(message)
        self.key = key


def parse(text: str, name: str, bindings: Callable[[], Collection[str]] | None = None) -> Tour:
    """The tour in ``text``. Raises TourError with the line of the first thing that is wrong. ``bindings``: see read."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TourError(f"is not TOML: {printable(str(error), 160)}") from None
    except RecursionError:
        raise TourError("is nested too deeply") from None
    try:
        tour = _tour(data, name)
        if bindings is not None:
            _known(tour, bindings)
        return tour
    except _TourError as wrong:
        line = line_of(text, wrong.key)
        raise TourError(f"line {line}: {wrong}" if line else str(wrong)) from None


def _tour(data: Mapping[str, Any], name: str) -> Tour:
    _only(data, {"title", "demo", "step"})
    steps = data.get("step")
    if not isinstance(steps, list) or not steps or not all(isinstance(step, dict) for step in steps):
        raise _TourError("there is no step in it: each one is a table, [[step]]", *(["step"] if "step" in data else []))
    if len(steps) > _STEPS:
        raise _TourError(f"{len(steps)} steps are more than {_STEPS}", "step", _STEPS)
    demo = data.get("demo")
    if demo is not None and not (isinstance(demo, str) and _NAME.fullmatch(demo)):
        raise _TourError('demo must be the name of a simulated node, as "fault"', "demo")
    title = _text(data, "title", 60) if "title" in data else name
    return Tour(name, title, tuple(_step(step, ("step", index)) for index, step in enumerate(steps)), demo)


def _step(data: Mapping[str, Any], at: tuple[str | int, ...]) -> TourStep:
    _only(data, {"caption", "keys", "wait", "seconds", "if", "otherwise"}, *at)
    if "caption" not in data:
        raise _TourError('it has no caption: caption = "What is seen. What it means."', *at)
    keys = data.get("keys", [])
    if not isinstance(keys, list) or len(keys) > _KEYS:
        raise _TourError(f'keys must be a list of at most {_KEYS}, as ["L", "right", "enter"]', *at, "keys")
    for index, key in enumerate(keys):
        _key(key, (*at, "keys", index))
    seconds = data.get("seconds", 8)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 1 <= seconds <= 600:
        raise _TourError("seconds must be a number from 1 to 600", *at, "seconds")
    if ("if" in data) != ("otherwise" in data):
        raise _TourError("if and otherwise go together: the caption is said where if holds, else otherwise", *at)
    wait, holds = (_condition(data, name, at) if name in data else None for name in ("wait", "if"))
    otherwise = _text(data, "otherwise", _CAPTION, *at) if "otherwise" in data else ""
    return TourStep(_text(data, "caption", _CAPTION, *at), tuple(keys), wait, float(seconds), holds, otherwise)


def _key(key: object, at: tuple[str | int, ...]) -> None:
    shape = 'a key is a single character, a name as "enter", "right", "f5" or "ctrl+l", or a binding as "@load"'
    if not isinstance(key, str):
        raise _TourError(f"{key!r:.40} is no key: {shape}", *at)
    if key in _TAKEN:
        raise _TourError(f"{key} {_TAKEN[key]}: leave it out", *at)
    single = len(key) == 1 and key.isprintable() and key != " "
    if not (single or _SPECIAL.fullmatch(key) or _BINDING.fullmatch(key)):
        raise _TourError(f"“{printable(key, 40)}” is no key: {shape}", *at)


def _known(tour: Tour, bindings: Callable[[], Collection[str]]) -> None:
    for number, step in enumerate(tour.steps):
        for index, key in enumerate(step.keys):
            if len(key) > 1 and key[0] == "@" and key[1:] not in (ids := bindings()):
                near = get_close_matches(key[1:], ids, 2, 0.5)
                hint = f"did you mean {' or '.join(f'@{each}' for each in near)}? " if near else ""
                told = f"there is no binding “{printable(key, 40)}”; {hint}docs/keys.md has all ids"
                raise _TourError(told, "step", number, "keys", index)


def _condition(data: Mapping[str, Any], name: str, step: tuple[str | int, ...]) -> TourCondition:
    text, at = _text(data, name, 200, *step), (*step, name)
    kind, _, terms = text.strip().partition(" ")
    if kind == LOAD:
        if terms not in (*get_args(WorkerState), NONE):
            states = ", ".join(get_args(WorkerState))
            raise _TourError(f"{name}: unknown state; after “{LOAD}” use one of {states}, or {NONE}", *at)
        return TourCondition(text.strip(), kind, terms)
    if kind not in _THINGS or not terms.strip():
        what = f"begin with {', '.join(_THINGS)} or load, then a filter: “client user:alice”, “load running”"
        raise _TourError(f"{name} must {what}", *at)
    found = Filter(_THINGS[kind], terms)
    if complaint := found.complaint():
        raise _TourError(f"{name}: {complaint}", *at)
    return TourCondition(text.strip(), kind, terms, found)


def _text(data: Mapping[str, Any], name: str, most: int, *at: str | int) -> str:
    value = data[name]
    if not isinstance(value, str) or not value.strip() or len(value) > most:
        raise _TourError(f"{name} must be text of at most {most} characters", *at, name)
    return printable(" ".join(value.split()), most)


def _only(data: Mapping[str, Any], known: set[str], *at: str | int) -> None:
    for name in data:
        if name not in known:
            told = f"“{printable(name, 40)}” is not known; known: {', '.join(sorted(known))}"
            raise _TourError(told, *at, name)
