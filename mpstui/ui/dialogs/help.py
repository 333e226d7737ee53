"""The help screen: keys as they are bound now, what the marks mean, and how nothing gets hurt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

from textual.app import ComposeResult
from textual.binding import ActiveBinding
from textual.dom import DOMNode
from textual.keys import key_to_character
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

from mpstui.core.cells import KEEPS_OLD, OUTDATED, OUTDATED_LEGEND
from mpstui.core.model import Snapshot
from mpstui.fields import CLIENT, DAEMON, DEVICE, SERVER, Field, Thing
from mpstui.operations.operation import Operation
from mpstui.ui.bars import KeyBar
from mpstui.ui.contract import Runner, none_now
from mpstui.ui.dialogs.base import Dialog
from mpstui.ui.dialogs.details import Reader
from mpstui.ui.dialogs.widgets import DetailRow, Heading
from mpstui.ui.filter import CLIENT_TERMS
from mpstui.ui.form import TypedLine
from mpstui.ui.keys import ACTION_PREFIX, written

MARKS = (
    DetailRow(OUTDATED, f"outdated limits: {KEEPS_OLD}"),
    DetailRow("▲", "nearly full, or needs attention"),
    DetailRow("✕", "terminate was asked for, or something has ended"),
    DetailRow("≈", "estimated: not measured on this kind of device; before a share of launches: rounded"),
    DetailRow("—", "not known; never zero"),
    DetailRow("≥", "before a sum: at least this much; the value of one client or more is not known"),
    DetailRow("↑", "pinned: stays on top"),
    DetailRow("?", "behind a limit, as in ctx 3/60?: nobody has measured that the device takes so many"),
)
SAFETY = (
    DetailRow(
        "1", "Every change shows its effect and asks. Enter there is Cancel: Tab goes to the button that does it."
    ),
    DetailRow("2", "terminate_client is sent once for a client: a second one blocks the whole daemon."),
    DetailRow(
        "3", "A kill comes only after terminate_client has answered; without it the neighbours can lose their work too."
    ),
    DetailRow("4", "Values are checked before they are sent, and read back after."),
    DetailRow("5", "A client is its PID and start time: a reused PID is never hit. Every change is in the audit log."),
)
ABOUT_MPS = (
    DetailRow("utilisation", "NVML counts the clients' work for the server: no client has a figure of its own."),
    DetailRow("compute mode", "Exclusive_Process lets in one process, the server: all its clients come with it."),
    DetailRow("limits", "A limit reserves nothing: several clients may use the same SM."),
    DetailRow("priority", "A hint: no order is promised."),
    DetailRow(
        "ending",
        "A busy client must finish its GPU work (cudaDeviceSynchronize) before it ends, or be terminated here first. "
        "Ctrl-C, a signal or a crash in the middle of a kernel can end the GPU work of other clients.",
    ),
    DetailRow("trust", "Clients of one server share its faults: MPS is for programs that belong together."),
    DetailRow("not under MPS", "Dynamic parallelism (its modules cannot be loaded) and 32-bit programs."),
    DetailRow("CUDA IPC", "Works between clients and programs outside MPS; not on Tegra."),
    DetailRow(
        "debuggers",
        "A program under cuda-gdb waits in cuInit until all clients have ended, and runs without MPS. Core dumps, "
        "memcheck, Nsight Systems and CUPTI work in clients.",
    ),
    DetailRow(
        "no memory",
        "An error at a client's first context, though memory is free: call cuInit first; build it as PIC and PIE.",
    ),
    DetailRow("before Volta", "16 contexts, no limits, one address space for all clients: doctor names such GPUs."),
)
"""What the vendor's guide says that no column shows."""
_FAULT = DetailRow(
    "FAULT",
    "A fatal GPU error. All clients that share a GPU with the faulting one lose their work, on every GPU they use.",
)
GLOSSARY = (
    DetailRow("daemon", "nvidia-cuda-mps-control. It starts servers, and takes commands in its pipe directory."),
    DetailRow(
        "server", "nvidia-cuda-mps-server. Its clients share GPUs through it. Usually one user has it at a time."
    ),
    DetailRow("client", "A process that computes through a server."),
    DetailRow("context", "What a client opens on a GPU. A GPU takes a limited number; the next client gets an error."),
    DetailRow("context pool", "The contexts of a GPU that are still free."),
    DetailRow("SM", "Streaming multiprocessor: the part of a GPU that runs kernels."),
    DetailRow(
        "active thread percentage",
        "The share of the SMs that a client may use, on every GPU of its server. Shown as THREADS.",
    ),
    DetailRow("execution affinity", "The same share as a number of SMs, which a program sets for itself in its code."),
    DetailRow("pinned memory limit", "The device memory that a client may take. More gives it an out-of-memory error."),
    DetailRow("outdated limits", f"The client {KEEPS_OLD}. Shown as {OUTDATED_LEGEND}."),
    DetailRow(
        "server device", "A GPU by the server's own number, which CUDA_VISIBLE_DEVICES changes; GPU 0 is NVML's."
    ),
    DetailRow("group", "The clients of one user, GPU, server, pod or job (F5)."),
    DetailRow("pending", "The client waits for a server: it is starting, or the clients of another user have it."),
    _FAULT,
    DetailRow(
        "LAUNCH/s",
        "Kernel launches of a client each second, counted from outside. They are not SM time: one long kernel keeps a "
        "GPU as busy as a thousand short ones.",
    ),
    DetailRow(
        "NO LAUNCH",
        "Where launches are counted (--activity): a client that has launched no kernel in the last seconds. LAUNCHES: "
        "one that has. ACTIVE says only that it has a context.",
    ),
    DetailRow("blast radius", "The clients that lose their GPU work if one client faults."),
    DetailRow("held", "Somebody keeps a control session open. The daemon answers nobody else."),
    DetailRow("blocked", "The daemon answers nobody. Its clients keep running."),
    DetailRow("stale", "The files of a daemon that has ended."),
    DetailRow("cut off", "A daemon's socket is missing or another user's: programs may not reach the daemon."),
)
FILTER = tuple(DetailRow(text, meaning, label_style="bold") for text, meaning in CLIENT_TERMS)


def _about(field: Field[Any]) -> str:
    """What a field is, and its heading, where that is not its title."""
    shown = field.column.name if field.column is not None else ""
    return ". ".join(filter(None, (field.brief if field.about else "", shown and f"Shown as {shown}.")))


def _fields() -> Iterator[DetailRow | Heading]:
    things: tuple[tuple[Thing[Any], str], ...] = (
        (CLIENT, "Fields of a client: F2 has them as columns"),
        (SERVER, "Fields of a server: Enter on it has them"),
        (DEVICE, "Fields of a device: Enter on it has them"),
        (DAEMON, "Fields of a daemon: Enter on the screen of daemons has them"),
    )
    for thing, where in things:
        yield Heading(where)
        yield from (DetailRow(each.title, _about(each)) for each in thing.fields if each.column or each.detail)


FIELDS = tuple(_fields())
"""Every value that the screen may show, by its title."""
NOT_HERE = frozenset({"screen.copy_text"})
"""Textual's own keys that do nothing in this program."""
KEY = "$text-accent bold"
_PLAIN = {
    "Focus Next": "Next panel or field",
    "Focus Previous": "Previous panel or field",
    "Scroll Up": "Scroll up",
    "Scroll Down": "Scroll down",
    "Page Up": "Page up",
    "Page Down": "Page down",
    "Scroll Left": "Scroll to the left",
    "Scroll Right": "Scroll to the right",
    "Page Left": "",
    "Page Right": "",
    "Open the command palette": "Commands by name",
    "Submit": "",  # the foot says what Enter does
    "Move cursor left": "Cursor to the left",
    "Move cursor right or accept the completion suggestion": "Cursor to the right",
    "Move cursor left a word": "A word to the left",
    "Move cursor right a word": "A word to the right",
    "Move cursor left and select": "Select to the left",
    "Move cursor right and select": "Select to the right",
    "Move cursor left a word and select": "Select a word to the left",
    "Move cursor right a word and select": "Select a word to the right",
    "Go to start": "To the start",
    "Go to end": "To the end",
    "Select line start": "Select to the start",
    "Select line end": "Select to the end",
    "Delete character left": "Delete the character before the cursor",
    "Delete character right": "Delete the character at the cursor",
    "Delete left to start of word": "Delete the word before the cursor",
    "Delete right to start of word": "Delete the word behind the cursor",
    "Delete all to the left": "Delete all before the cursor",
    "Delete all to the right": "Delete all behind the cursor",
    "Exit the command palette": "Close",
    "Go to bottom": "Last",
    "Go to top": "First",
    "Next command": "Next",
    "Previous command": "Previous",
    "Next page": "Page down",
    "Previous page": "Page up",
}
"""Textual's own words for keys, in ours; none for a key that has no use here or that the foot names."""


_SCROLLS: Final = frozenset({"scroll_up", "scroll_down", "page_up", "page_down"})
"""Keys that Textual gives to each widget, those that have nothing to scroll too, which hand them on."""


def _scrolls(node: DOMNode) -> bool:
    return isinstance(node, Widget) and node.allow_vertical_scroll


class HelpScreen(Reader):
    """Made from the bindings of the screen below it and from the registry of actions."""

    HELPED: ClassVar[bool] = False
    FIXED: ClassVar[Sequence[tuple[str, Sequence[DetailRow]]]] = (
        ("Filter: / hides the other rows, f goes to the next one", FILTER),
        ("Marks", MARKS),
        ("Safety", SAFETY),
        ("Glossary: the words", GLOSSARY),
        ("About MPS", ABOUT_MPS),
    )
    """What it says beside the keys."""
    MORE: ClassVar[Sequence[DetailRow | Heading]] = FIELDS
    """What is only looked through for what is searched."""
    LOOK_FOR: ClassVar[str] = "what to look for, as sort or memory"

    def __init__(self, actions: tuple[Operation, ...] | None = None) -> None:
        """``actions``: the registry's; those of the app's runner when not given."""
        super().__init__(Snapshot(0.0))
        self._actions = actions

    def compose(self) -> ComposeResult:
        yield self.reader("Help")

    def show(self) -> None:
        runner: Runner | None = getattr(self.app, "runner", None)
        actions = self._actions or (runner.actions if runner else ())
        below = self.app.screen_stack[-2]
        self.fill(list(self._rows(below, actions)), self.MORE)

    def _rows(self, below: Screen[object], actions: tuple[Operation, ...]) -> Iterator[DetailRow | Heading]:
        types = isinstance(below.focused, Input)
        active = {key: each for key, each in below.active_bindings.items() if not (types and _is_text(each))}
        keys = {b.binding.id: written(self.app.get_key_display(b.binding)) for b in active.values() if b.binding.id}
        sections: list[tuple[str, list[DetailRow]]] = []
        if isinstance(below.focused, TypedLine) and below.focused.about:
            yield Heading("What may be typed here")
            yield from (DetailRow(text, meaning, label_style="bold") for text, meaning in below.focused.about)
            yield DetailRow()
        if isinstance(below, Dialog):
            here = [DetailRow(hint.key, hint.text, label_style=KEY) for hint in below.keys.hints if hint.key != "?"]
            sections.append(("Here", here))
        if getattr(below, "OFFERS_ACTIONS", True) and not types:
            named = [(keys.get(ACTION_PREFIX + a.id, a.key or "^p"), f"{a.title}: {a.help}") for a in actions]
            rows = [DetailRow(key, text, label_style=KEY) for key, text in named]
            why = none_now(bool(getattr(self.app, "read_only", False)), self.snapshot)
            sections.append(
                ("Actions: none can be used now", [DetailRow("", why), *rows]) if why else ("Actions", rows)
            )
        for title, wanted in (("Typing" if types else "Rows and panels", True), ("Screens and views", False)):
            sections.append((title, self._keys([b for b in active.values() if _about_rows(b) is wanted], actions)))
        if not isinstance(below, Dialog):
            bar = below.query(KeyBar)
            said = {key: row for _, rows in sections for row in rows for key in row.label.split()}
            rows = [
                said.get(hint.key.split()[0], DetailRow(hint.key, hint.text, label_style=KEY))
                for hint in (bar.first().unseen if bar else ())
            ]
            unseen = list(dict.fromkeys(rows))
            sections = [(title, [row for row in rows if row not in unseen]) for title, rows in sections]
            sections.insert(0, ("More keys: the line at the foot has no room for them", unseen))
        for number, (title, rows) in enumerate(section for section in sections if section[1]):
            if number:
                yield DetailRow()
            yield Heading(title)
            yield from rows
        for title, fixed in self.FIXED:
            own = getattr(below, "filter", None)
            if fixed is FILTER and isinstance(own, TypedLine):  # what this screen's line takes, and not the clients'
                fixed = tuple(DetailRow(text, meaning, label_style="bold") for text, meaning in own.about)
                if not fixed:
                    continue
            yield DetailRow()
            yield Heading(title)
            yield from fixed

    def _keys(self, bindings: list[ActiveBinding], actions: tuple[Operation, ...]) -> list[DetailRow]:
        """One row for each thing that can be done, with all its keys."""
        own = {ACTION_PREFIX + action.id for action in actions} | {f"act('{action.id}')" for action in actions}
        keys: dict[str, list[str]] = {}
        for node, binding, _enabled, tooltip in bindings:
            if (
                not binding.description
                or (binding.action in _SCROLLS and not any(_scrolls(each) for each in node.ancestors_with_self))
                or binding.system
                or binding.action in NOT_HERE
                or binding.id in own
                or binding.action in own
            ):
                continue
            if not (does := tooltip or _PLAIN.get(binding.description, binding.description)):
                continue
            shown = keys.setdefault(does, [])
            key = written(self.app.get_key_display(binding))
            if key not in shown:
                shown.append(key)
        return [DetailRow(" ".join(shown), description, label_style=KEY) for description, shown in keys.items()]


class FleetHelp(HelpScreen):
    """Help of the screens of many nodes."""

    FIXED = (
        (
            "This screen",
            (DetailRow("", "Nothing is changed from here: set limits and end clients on the node itself."),),
        ),
        ("Filter: / hides the other nodes", FILTER),
        (
            "States, the worst first",
            (
                _FAULT,
                DetailRow("BLOCKED", "A daemon answers nobody. Its clients keep running."),
                DetailRow("NO ANSWER", "The node, or its exporter, does not answer."),
                DetailRow("NOT STARTING", "Servers end before they are ready."),
                DetailRow("HELD", "Somebody keeps a control session open. The daemon answers nobody else."),
                DetailRow("STALE", "The files of a daemon that has ended."),
                DetailRow("OLD", "The exporter answers, and NVML has not for two minutes."),
                DetailRow("ERROR", "mpstui there shows an error: D lists the problems."),
                DetailRow("WARNING", "mpstui there shows a problem, and no error: D lists them."),
                DetailRow(
                    "NOT KNOWN",
                    "The host has not answered yet; or a daemon runs there, and whether it answers is not known.",
                ),
                DetailRow("ABSENT", "No daemon runs."),
            ),
        ),
        ("Glossary: the words", GLOSSARY),
    )

    MORE = ()


def _is_text(active: ActiveBinding) -> bool:
    """Whether its key is a letter that is typed; a question mark never is."""
    character = key_to_character(active.binding.key)
    return character is not None and character.isprintable() and character != "?"


def _about_rows(active: ActiveBinding) -> bool:
    return (not isinstance(active.node, Screen) and active.node is not active.node.app) or (
        (active.binding.id or "").startswith("jump.")
    )
