"""The keys of the actions, and the names that the key bar shows for keys that the user chose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from textual.binding import Binding
from textual.keys import key_to_character

from mpstui.core.model import Past
from mpstui.operations.operation import Operation
from mpstui.ui.bars import KeyHint

ACTION_PREFIX = "action."
"""Bindings of the registry's actions have this before the action's id as their own id."""

_PLAN: Final = ("plan", "p", "Plan")
_EVENTS: Final = ("events", "E", "Events")
_LOAD: Final = ("load", "L", "Load")
_STOPS: Final = (("daemons", "d", "Daemons"), _LOAD, ("partitions", "P", "Partitions"))
_COPIES: Final = (("problems", "D", "Problems"), ("fault", "exclamation_mark", "What to do"))
ON_OTHER_SCREENS: Final[Mapping[str, tuple[tuple[str, str, str], ...]]] = {
    **dict.fromkeys("ACV", (_PLAN,)),
    **dict.fromkeys("HOch", (_EVENTS,)),
    **dict.fromkeys("JRX", (_LOAD,)),
    "x": _STOPS,
    "Y": _COPIES,
}
"""The letters of the keymap that do nothing on the overview, with the screens on which they do something, each with the
id and key that lead there from the overview."""


def where_it_works(keymap: Mapping[str, str], letter: str) -> str:
    """``h is for Events (E)``; empty where the letter is nowhere for anything."""
    screens = [
        f"{title} ({shown_key(keymap, name, key_name(key))})" for name, key, title in ON_OTHER_SCREENS.get(letter, ())
    ]
    return f"{letter} is for {', '.join(screens)}" if screens else ""


_ENDS: Final = (("action.terminate_client", "t", "Terminate"), ("action.terminate_and_kill", "K", "Terminate + kill"))
OF_OTHER_PROGRAMS: Final[Mapping[str, tuple[tuple[str, str, str], ...]]] = {
    **dict.fromkeys(("f9", "ctrl+k", "delete"), _ENDS),
    "f3": (("clients.find", "f", "Find"),),
    "f10": (("quit", "q", "Quit"),),
}
"""Keys of htop and k9s that do nothing here, with those that do what they do there: id, key, title."""


def here_it_is(keymap: Mapping[str, str], key: str) -> str:
    """``here q (Quit)``, for F10; empty where the key is none of another program's."""
    ours = [f"{shown_key(keymap, name, default)} ({title})" for name, default, title in OF_OTHER_PROGRAMS.get(key, ())]
    return f"here {', '.join(ours)}" if ours else ""


def action_binding(action: Operation) -> Binding:
    """The binding of an operation on the overview."""
    return Binding(
        action.key, f"act('{action.id}')", action.title, id=f"{ACTION_PREFIX}{action.id}", tooltip=action.help
    )


def own_binding(action: Operation, does: str) -> Binding:
    """The binding of an operation on a screen beside the overview; ``does`` is what that screen calls it."""
    name = action.key_id or f"{ACTION_PREFIX}{action.id}"
    return Binding(action.key, does, action.title, show=False, id=name, tooltip=action.help)


def shown_key(keymap: Mapping[str, str], name: str, default: str) -> str:
    """How the key bar writes the key of a binding; ``default`` where the user has not changed it."""
    if name not in keymap:
        return default
    return key_name(keymap[name].split(",")[0])


def key_name(key: str) -> str:
    """How a key is written that a binding calls so."""
    character = key_to_character(key)
    return character if character and character.isprintable() and character != " " else key.replace("ctrl+", "^")


_WRITTEN: Final = {
    "⏎": "Enter",
    "esc": "Esc",
    "pgup": "PgUp",
    "pgdn": "PgDn",
    "del": "Del",
    "insert": "Ins",
    "⌫": "Backspace",
}


def written(display: str) -> str:
    """A key that Textual displays so, as the key bar writes it: ``Enter``, ``Space``, ``F2``, ``Shift+Tab``."""
    if display in _WRITTEN:
        return _WRITTEN[display]
    parts = display.split("+") if len(display) > 1 else [display]
    return "+".join(part[:1].upper() + part[1:] if len(part) > 1 and part.isalnum() else part for part in parts)


def typing_hints(enter: str, escape: str, help_action: str) -> list[KeyHint]:
    """The keys of a line that is typed into: letters are text meanwhile."""
    return [
        KeyHint("Enter", enter, "end_typing", 8),
        KeyHint("Esc", escape, "back", 8),
        KeyHint("?", "Help", help_action, 9),
    ]


FILTERING: Final = ("Keep the filter", "Clear it")
FINDING: Final = ("Keep the place", "Stop the search")
"""What Enter and Esc do in the line of a filter, and of a search."""


def program_hints(
    keymap: Mapping[str, str],
    *,
    unknown: str | None,
    silent: str | None,
    paused: bool,
    fleet: bool,
    past: Past | None = None,
    zoomed: bool = False,
) -> list[KeyHint]:
    """The key bar's entries beside the actions. ``unknown``: why the node is not known; ``silent``: why its daemon does
    not answer; None where it is, or does. ``fleet``: whether the way out leads back to ``mpstui fleet``. ``past``: what
    is shown of it. ``zoomed``: whether one panel has the whole screen."""

    def key(name: str, default: str) -> str:
        return shown_key(keymap, name, default)

    return [
        *([KeyHint(key("zoom", "z"), "All panels", "zoom", 8)] if zoomed else ()),
        KeyHint(key("filter", "/"), "Filter", "filter", 6, silent),
        KeyHint(key("daemons", "d"), "Daemon", "daemons", 3, unknown),
        KeyHint(key("plan", "p"), "Plan", "plan", 4, unknown),
        KeyHint(key("load", "L"), "Load", "load", 4, unknown),
        KeyHint(key("clients.user", "U"), "User", "users_of", 2, silent),
        KeyHint(key("order", "F6"), "Sort", "order", 2, silent),
        KeyHint(key("group", "F5"), "Group", "group", 2, silent),
        KeyHint(key("clients.choose", "v"), "Choose", "choose", 2, silent),
        KeyHint(key("columns", "F2"), "Columns", "columns", 1, silent),
        KeyHint(key("clients.find", "f"), "Find", "find", 1, silent),
        *_of_time(keymap, past, paused=paused),
        KeyHint(key("help", "?"), "Help", "show_help", 9),
        KeyHint("^p", "Palette", "command_palette", 3),
        KeyHint(key("back", "Esc"), "Back to fleet", "back", 8)
        if fleet
        else KeyHint(key("quit", "q"), "Quit", "quit_app", 8),
    ]


def _of_time(keymap: Mapping[str, str], past: Past | None, *, paused: bool) -> list[KeyHint]:
    """How to go on: named for sure where the screen does not show what is now."""
    freeze = shown_key(keymap, "pause", "F")
    if past is None:
        return [KeyHint(freeze, "Go on", "pause", 9) if paused else KeyHint(freeze, "Freeze", "pause", 3)]
    back = "Now" if past.what == "PAST" else "Last"
    return [
        KeyHint(freeze, "Stop" if past.playing else "Play", "pause", 3),
        KeyHint(shown_key(keymap, "past.now", "End"), back, "now", 9),
    ]
