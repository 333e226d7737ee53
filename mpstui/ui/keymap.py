"""The user's own keys: ids checked, clashes settled. It knows all screens, so no screen may know it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widget import Widget

from mpstui.ui.app import MpsTuiApp
from mpstui.ui.box import TextBox
from mpstui.ui.daemons.screen import DaemonScreen
from mpstui.ui.keys import ACTION_PREFIX
from mpstui.ui.load.bars import BarsPanel
from mpstui.ui.load.fields import FieldsPanel
from mpstui.ui.load.screen import LoadScreen
from mpstui.ui.overview import Overview
from mpstui.ui.panel import Panel
from mpstui.ui.panels import ClientsPanel
from mpstui.ui.partitions.namespaces import LevelsPanel, NamespacesScreen
from mpstui.ui.partitions.screen import PartitionsScreen, PartsPanel
from mpstui.ui.plan.bars import SharesPanel
from mpstui.ui.plan.fields import PlanFields
from mpstui.ui.plan.screen import PlanScreen
from mpstui.ui.trouble.activity import ActivityScreen
from mpstui.ui.trouble.base import TroubleScreen
from mpstui.ui.trouble.blast import BlastScreen
from mpstui.ui.trouble.eventlist import EventList, KindsPanel
from mpstui.ui.trouble.events import EventsScreen
from mpstui.ui.trouble.fault import FaultScreen
from mpstui.ui.trouble.problems import ProblemsScreen
from mpstui.ui.trouble.suspects import SuspectsScreen
from mpstui.ui.trouble.users import UsersScreen

Places = Mapping[str, Mapping[str, tuple[str, ...]]]
"""A screen, or a part of one that takes keys of its own, to id of a binding to its keys."""


def places() -> Places:
    """Every binding that can be given another key, by the screen that it is on."""
    return {
        "overview": _keys(Overview, ClientsPanel),
        "plan: fields": _keys(PlanScreen, PlanFields),
        "plan: bars": _keys(PlanScreen, SharesPanel),
        "daemons": _keys(DaemonScreen, Panel),
        "partitions": _keys(PartitionsScreen, PartsPanel),
        "namespaces": _keys(NamespacesScreen, LevelsPanel),
        "load: fields": _keys(LoadScreen, FieldsPanel),
        "load: clients": _keys(LoadScreen, BarsPanel),
        "events": _keys(EventsScreen, EventList),
        "events: kinds": _keys(EventsScreen, KindsPanel),
        "activity": _keys(ActivityScreen, Panel),
        "blast radius": _keys(BlastScreen, Panel),
        "fault": _keys(FaultScreen, Panel),
        "suspects": _keys(SuspectsScreen, Panel),
        "waiting": _keys(UsersScreen, Panel),
        "problems": _keys(ProblemsScreen, Panel),
        "text": _keys(TroubleScreen, TextBox),
    }


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
