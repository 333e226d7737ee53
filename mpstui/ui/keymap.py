"""The user's own keys: ids checked, clashes settled. It knows all screens, so no screen may know it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from textual.binding import Binding, BindingType
from textual.keys import KEY_ALIASES, Keys
from textual.screen import Screen
from textual.widget import Widget

from mpstui.commands import problems
from mpstui.config import CommandSpec
from mpstui.ui.app import MpsTuiApp
from mpstui.ui.box import TextBox
from mpstui.ui.daemons.screen import DaemonScreen
from mpstui.ui.dialogs.columns import ColumnList, ColumnsDialog
from mpstui.ui.fleet import NodeProblemsPanel, NodeProblemsScreen, NodesPanel, NodesScreen
from mpstui.ui.keys import ACTION_PREFIX
from mpstui.ui.load.bars import BarsPanel
from mpstui.ui.load.fields import FieldsPanel
from mpstui.ui.load.screen import LoadScreen
from mpstui.ui.overview import Overview
from mpstui.ui.panel import Panel
from mpstui.ui.panels import ClientsPanel, DevicesPanel
from mpstui.ui.partitions.namespaces import LevelsPanel, NamespacesScreen
from mpstui.ui.partitions.screen import PartitionsScreen, PartsPanel
from mpstui.ui.plan.bars import SharesPanel
from mpstui.ui.plan.fields import PlanFields
from mpstui.ui.plan.screen import PlanScreen
from mpstui.ui.screens import ListScreen
from mpstui.ui.trouble.activity import ActivityScreen
from mpstui.ui.trouble.blast import BlastScreen
from mpstui.ui.trouble.eventlist import EventList, KindsPanel
from mpstui.ui.trouble.events import EventsScreen
from mpstui.ui.trouble.fault import FaultScreen
from mpstui.ui.trouble.problems import ProblemsScreen
from mpstui.ui.trouble.suspects import SuspectsScreen
from mpstui.ui.trouble.users import UsersScreen

Places = Mapping[str, Mapping[str, tuple[str, ...]]]
"""A screen, or a part of one that takes keys of its own, to id of a binding to its keys."""


_SCREENS: Final[Mapping[str, tuple[type[Screen[Any]], type[Widget]]]] = {
    "overview": (Overview, ClientsPanel),
    "overview: devices": (Overview, DevicesPanel),
    "plan: fields": (PlanScreen, PlanFields),
    "plan: bars": (PlanScreen, SharesPanel),
    "daemons": (DaemonScreen, Panel),
    "partitions": (PartitionsScreen, PartsPanel),
    "namespaces": (NamespacesScreen, LevelsPanel),
    "load: fields": (LoadScreen, FieldsPanel),
    "load: clients": (LoadScreen, BarsPanel),
    "events": (EventsScreen, EventList),
    "events: kinds": (EventsScreen, KindsPanel),
    "activity": (ActivityScreen, Panel),
    "blast radius": (BlastScreen, Panel),
    "fault": (FaultScreen, Panel),
    "suspects": (SuspectsScreen, Panel),
    "waiting": (UsersScreen, Panel),
    "problems": (ProblemsScreen, Panel),
    "fleet": (NodesScreen, NodesPanel),
    "fleet: problems": (NodeProblemsScreen, NodeProblemsPanel),
    "columns": (ColumnsDialog, ColumnList),
    "text": (ListScreen, TextBox),
}
"""The screens, and the part of each that has the focus."""


def places() -> Places:
    """Every binding that can be given another key, by the screen that it is on."""
    return {name: _keys(*pair) for name, pair in _SCREENS.items()}


def _keys(screen: type[Screen[Any]], focused: type[Widget]) -> dict[str, tuple[str, ...]]:
    """What the app, a screen and the part of it that has the focus bind, what they inherit from each other included."""
    bases = [base for owner in (MpsTuiApp, screen, focused) for base in reversed(owner.__mro__)]
    ours = [base for base in bases if base.__module__.startswith("mpstui.")]
    return _ids(binding for base in ours for binding in vars(base).get("BINDINGS", ()))


def _ids(bindings: Iterable[BindingType]) -> dict[str, tuple[str, ...]]:
    return {b.id: tuple(b.key.split(",")) for b in bindings if isinstance(b, Binding) and b.id}


def resolve(wanted: Mapping[str, str], where: Places) -> tuple[dict[str, str], list[str]]:
    """Textual's keymap of what the user wants, and a message for each wish that is not or not wholly granted.

    A key that another binding of the same screen has is taken from it, unless it is that one's only key: then the wish
    is refused, so that nothing becomes unreachable. An action's id may be written without ``action.``.
    """
    known = {name for bindings in where.values() for name in bindings}
    keymap: dict[str, str] = {}
    messages: list[str] = []
    for name, key in wanted.items():
        full = name if name in known else ACTION_PREFIX + name
        if full in known:
            keymap[full] = key
        else:
            near = get_close_matches(name, known, 3, 0.5)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            messages.append(f"keys: there is no {name}; {hint}docs/keys.md lists all")
    for name, key in list(keymap.items()):
        again = [
            other
            for bindings in where.values()
            if name in bindings
            for other in bindings
            if other != name and keymap.get(other) == key and list(keymap).index(other) < list(keymap).index(name)
        ]
        if again and name in keymap:
            del keymap[name]
            messages.append(f"keys: {key} is given to {again[0]} already, on the same screen; {name} keeps its own")
            continue
        owners = {
            other: keys
            for bindings in where.values()
            if name in bindings
            for other, keys in bindings.items()
            if other != name and other not in keymap and key in keys
        }
        if only := [other for other, keys in owners.items() if len(keys) == 1]:
            del keymap[name]
            messages.append(
                f"keys: {key} is the only key of {only[0]}, so {name} keeps its own; give {only[0]} another"
            )
            continue
        for other, keys in owners.items():
            keymap[other] = ",".join(k for k in keys if k != key)
            messages.append(f"keys: {key} is now {name}; {other} keeps {keymap[other].replace(',', ', ')}")
    return keymap, messages


def _unnamed() -> Iterator[str]:
    """The keys of bindings that have no id, Textual's own among them."""
    owners = {base for pair in _SCREENS.values() for owner in (MpsTuiApp, *pair) for base in owner.__mro__}
    for binding in (each for owner in owners for each in vars(owner).get("BINDINGS", ())):
        if not (isinstance(binding, Binding) and binding.id):
            keys = binding.key if isinstance(binding, Binding) else binding[0]
            yield from (key.strip() for key in keys.split(","))


def usable(
    specs: Sequence[CommandSpec], keymap: Mapping[str, str], where: Places
) -> tuple[list[CommandSpec], list[str]]:
    """The user's own commands that have a key of their own and can be filled in, and a message for each other one.
    ``keymap``: of :func:`resolve`."""
    taken = {key: name for bindings in where.values() for name, keys in bindings.items() for key in keys}
    taken = {key: name for key, name in taken.items() if name not in keymap}
    taken |= {key: name for name, keys in keymap.items() for key in keys.split(",")}
    for key in _unnamed():
        taken.setdefault(key, "Textual")
    taken["ctrl+p"] = "palette"
    taken |= {alias: taken[key] for key, names in KEY_ALIASES.items() for alias in names if key in taken}
    taken |= {key: letter.meaning for key, letter in LETTERS.items()}
    good, messages = list[CommandSpec](), list[str]()
    for spec in specs:
        why = next(problems(spec), None)
        if spec.key in taken:
            why = f"the key {spec.key} is taken: {taken[spec.key]}"
        elif len(spec.key) > 1 and spec.key not in {each.value for each in Keys}:
            why = f"there is no key {spec.key}; a key is called f9, ctrl+t or Q"
        if why is None:
            good.append(spec)
        else:
            messages.append(f"commands: “{spec.name}” has no key: {why}")
    return good, messages


# One map of letters for all screens: what each means wherever it does something.


class Letter(NamedTuple):
    """A key that is a letter."""

    meaning: str
    ids: frozenset[str]
    """The bindings that may have it: they do the same thing, each on its screen."""
    harms: bool = False
    """Whether it ends somebody's work, a server or a daemon: such a letter does nothing else on any screen."""


def _letter(meaning: str, *ids: str, harms: bool = False) -> Letter:
    return Letter(meaning, frozenset(ids), harms)


LETTERS: Final[Mapping[str, Letter]] = {
    "A": _letter("apply a plan, add a namespace", "plan.apply", "namespace.create"),
    "B": _letter("suspects", "suspects"),
    "C": _letter("export as configuration", "plan.export"),
    "D": _letter("problems and doctor", "problems"),
    "E": _letter("events", "events"),
    "F": _letter("freeze the screen, or follow again", "pause", "events.follow"),
    "G": _letter("to the end", "move.last", "text.end"),
    "H": _letter("hide less or more kinds of events", "events.trouble"),
    "I": _letter("reverse the order", "clients.invert"),
    "J": _letter("make a test client fault", "load.fault", harms=True),
    "K": _letter("terminate, then end the process", "action.terminate_and_kill", harms=True),
    "L": _letter("load: test clients", "load"),
    "M": _letter("sort by GPU memory, as in htop", "clients.by_memory"),
    "N": _letter("the previous match", "events.previous", "clients.previous"),
    "O": _letter("older events", "events.older"),
    "P": _letter("partitions", "partitions", "namespace.partition"),
    "R": _letter("restart a test client", "load.restart"),
    "S": _letter(
        "start a server, a daemon, a partition",
        "action.start_server",
        "daemon.start",
        "partition.add",
        "namespace.create_server",
    ),
    "T": _letter("to a time", "past.time"),
    "V": _letter("view profiles", "plan.open"),
    "W": _letter("waiting, and not served", "users"),
    "X": _letter("stop all", "load.stop_all", harms=True),
    "Y": _letter("copy all", "fault.copy_all", "problems.copy_all"),
    "U": _letter("user: whose clients are shown", "clients.user"),
    "Z": _letter("shut a server down", "action.shutdown_server", harms=True),
    "a": _letter("activity: who launches kernels", "activity", "activity.again"),
    "b": _letter("blast radius", "blast"),
    "c": _letter("this client only", "events.client"),
    "d": _letter("daemons", "daemons"),
    "e": _letter("end the clients that a fault has hit", "action.end_lost_clients", harms=True),
    "f": _letter("find", "events.search", "clients.find"),
    "g": _letter("to the beginning", "move.first", "text.begin"),
    "h": _letter("how far back", "events.window", "fleet.history"),
    "i": _letter("pin a row", "clients.pin"),
    "j": _letter("down", "move.down", "text.down"),
    "k": _letter("up", "move.up", "text.up"),
    "l": _letter(
        "limits: the active thread percentage", "action.set_active_thread_percentage", "load.limit", "namespace.limits"
    ),
    "m": _letter("memory limit", "action.set_pinned_mem_limit"),
    "n": _letter("the next match", "events.next", "clients.next"),
    "o": _letter("priority", "action.set_client_priority"),
    "p": _letter("plan", "plan"),
    "q": _letter("back; from the overview, out of the program", "quit"),
    "r": _letter("read again", "refresh", "plan.again", "activity.again"),
    "s": _letter("sort", "clients.sort", "columns.sort"),
    "t": _letter("terminate", "action.terminate_client", "namespace.terminate", harms=True),
    "u": _letter("unblock the daemon", "action.unblock", harms=True),
    "v": _letter("choose", "clients.choose", "kinds.toggle", "columns.switch"),
    "w": _letter("write a file: a profile, the past", "plan.save", "past.save"),
    "x": _letter(
        "stop or end this one",
        "daemon.stop",
        "fault.end_one",
        "load.stop",
        "partition.remove",
        "namespace.delete",
        harms=True,
    ),
    "y": _letter("copy", "copy", "daemon.copy"),
    "z": _letter("zoom", "zoom"),
}
"""A new binding with a letter has its place here; ``docs/keys.md`` is made from it (``make manual``)."""


def document(where: Places, about: Mapping[str, str]) -> str:
    """The tables of ``docs/keys.md``: the letters, then each place's bindings. ``about``: what each id does."""
    lines = [
        "## Letters",
        "",
        "A letter means the same on every screen. Those marked ▲ end work, and do nothing else.",
        "",
    ]
    lines += ["| key | means |", "|---|---|"]
    order = sorted(LETTERS, key=lambda letter: (letter.lower(), letter.isupper()))
    lines += [f"| `{key}` | {LETTERS[key].meaning}{' ▲' if LETTERS[key].harms else ''} |" for key in order]
    told: set[str] = set()
    for place, bindings in where.items():
        new = {name: keys for name, keys in bindings.items() if name not in told}
        told |= new.keys()
        if new:
            lines += ["", f"## {place[0].upper()}{place[1:]}", "", "| id | keys | what |", "|---|---|---|"]
            lines += [
                f"| `{name}` | {' '.join(f'`{key}`' for key in keys)} | {about[name]} |" for name, keys in new.items()
            ]
    return "\n".join(lines) + "\n"


def descriptions() -> Mapping[str, str]:
    """What each binding does, by its id; of several with one id, as the screen says that comes first."""
    told: dict[str, str] = {}
    owners: list[type[Any]] = [MpsTuiApp, *(owner for pair in _SCREENS.values() for owner in pair)]
    for owner in owners:
        for base in owner.__mro__:
            for each in vars(base).get("BINDINGS", ()):
                if isinstance(each, Binding) and each.id:
                    told.setdefault(each.id, each.tooltip or each.description)
    return told
