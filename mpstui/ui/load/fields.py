"""The fields of a load: chosen with the arrow keys, or typed where they are numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from textual.binding import Binding, BindingType
from textual.message import Message

from mpstui.core.late import dataclass
from mpstui.core.model import Device
from mpstui.core.text import PRIORITIES, PRIORITY_WORDS, mps_size, typed_number
from mpstui.load.types import KERNELS
from mpstui.ui.form import Form, FormField, after, value_bindings
from mpstui.ui.lines import Line
from mpstui.ui.load.presets import PRESETS, Preset, apply
from mpstui.ui.load.setup import MOST_CLIENTS, STEADY, WAYS, Setup
from mpstui.ui.typeahead import opens

_TIMES: Final = (None, 10.0, 30.0, 60.0, 300.0, 3600.0)
_MEMORY: Final = ("", "1G", "2G", "4G", "8G", "16G")
_WHERE: Final = ("on", "private", "off")
_HOLD: Final = ("affinity", "percentage")
_PRIORITY: Final = ((), (0,), (1,), (0, 1))

FIELDS: Final = (
    FormField("preset", "preset", "Values for all the fields below; each can be changed afterwards."),
    FormField("kernel", "kernel", ""),
    FormField("clients", "clients", "Processes, each a client of MPS of its own. They begin together.", "0123456789"),
    FormField("device", "device", "The GPU of the clients; several are taken in turn."),
    FormField(
        "shares",
        "shares",
        "Percent of the SMs: none, one for all, or one for each client: 30,70. The hardware rounds them.",
        "0123456789.,",
    ),
    FormField("hold", "method", ""),
    FormField(
        "memory",
        "memory",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT of each client: 900M, 2G. The context itself counts too.",
        "0123456789. KMGTiIB",
    ),
    FormField(
        "priority",
        "priority",
        f"CUDA_MPS_CLIENT_PRIORITY: {PRIORITY_WORDS}; with 0 : 1 the first client is normal. Only a hint.",
    ),
    FormField("seconds", "time", "How long each client runs; stopped earlier with x or X.", "0123456789."),
    FormField("way", "launches", ""),
    FormField("where", "MPS", ""),
)
_MOST_TYPED: Final = 9999
"""Clients that are counted through while a number is typed, before it is refused."""
_ABOUT_HOLD: Final = {
    "affinity": "Execution affinity of a context. A client makes a pool of contexts ahead and changes between them "
    "at its next launch, so its share moves while it runs.",
    "percentage": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE. It is read when a client starts: a change restarts the client.",
}
_ABOUT_WHERE: Final = {
    "on": "Clients of the daemon on this screen, beside those of everybody else.",
    "private": "A control daemon of its own, started for these clients and ended with the last of them: faults hit "
    "nobody else's clients.",
    "off": "Without MPS: processes take turns on the whole GPU, and no limit reaches them.",
}


class FieldsPanel(Form):
    """Holds the :class:`Setup`. ←→ choose, Shift in bigger steps, digits are typed, Enter starts."""

    FIELDS: ClassVar[tuple[FormField, ...]] = FIELDS
    MOST: ClassVar[int] = 120
    BINDINGS: ClassVar[list[BindingType]] = [
        *value_bindings("load", 10),
        Binding("enter", "open", "Start", show=False, id="open"),
    ]

    @dataclass
    class Changed(Message):
        """A field has another value, or the cursor is on another field."""

        setup: Setup

    class Started(Message):
        """Enter was pressed."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.setup = Setup()
        self.chosen: Preset | None = None
        self._devices: Sequence[Device] = ()
        self._has_daemon = True

    def show(self, devices: Sequence[Device], *, has_daemon: bool) -> None:
        """The devices to choose from. A device that has gone gives way to the first one."""
        self._devices, self._has_daemon = devices, has_daemon
        known = [device.uuid for device in devices]
        kept = tuple(uuid for uuid in self.setup.devices if uuid in known) or tuple(known[:1])
        if kept != self.setup.devices:
            self.setup = replace(self.setup, devices=kept)
        self.repaint()

    def take(self, chosen: Preset) -> None:
        """Fill in a preset."""
        self.chosen = chosen
        self._set(apply(chosen, self.setup, [d.uuid for d in self._devices], has_daemon=self._has_daemon))

    @property
    def about(self) -> str:
        """What the field under the cursor is for."""
        match self.field.id:
            case "preset" if self.chosen is not None:
                return self.chosen.text
            case "hold":
                return _ABOUT_HOLD[self.setup.hold]
            case "where":
                return _ABOUT_WHERE[self.setup.where]
            case "way":
                return self.setup.way.text
            case _:
                return self.field.about

    # Values.

    def action_change(self, step: int) -> None:
        """The next or previous value; numbers move by ``step``."""
        self.end()
        setup = self.setup
        match self.field.id:
            case "preset":
                at = PRESETS.index(self.chosen) if self.chosen else -1 if step > 0 else 0
                self.take(PRESETS[(at + (1 if step > 0 else -1)) % len(PRESETS)])
            case "kernel":
                kernels = [(name,) for name in KERNELS]
                self._own(kernels=after(kernels, setup.kernels, step))
            case "clients":
                self._set_clients(max(1, min(MOST_CLIENTS, setup.clients + step)))
            case "device":
                choices = [(d.uuid,) for d in self._devices]
                if len(choices) > 1:
                    choices.append(tuple(d.uuid for d in self._devices))  # type: ignore[arg-type]
                self._own(devices=after(choices, setup.devices, step))
            case "shares":
                moved = tuple(max(1.0, min(100.0, share + step)) for share in setup.shares or (100.0,))
                self._own(shares=moved)
            case "hold":
                self._own(hold=after(_HOLD, setup.hold, step))
            case "memory":
                self._own(memory_limit=after(_MEMORY, setup.memory_limit, step))
            case "priority":
                self._own(priority=after(_PRIORITY, setup.priority, step))
            case "seconds":
                self._own(seconds=after(_TIMES, setup.seconds, step))
            case "way":
                self._own(way=after(WAYS, setup.way, step))
            case _:
                self._own(where=after(_WHERE, setup.where, step))

    def _set_clients(self, clients: int) -> None:
        """A preset's shares follow the number of clients; shares of one's own stay."""
        shares = self.chosen.shares(clients) if self.chosen else self.setup.shares
        self._set(replace(self.setup, clients=clients, shares=shares))

    def _own(self, **changes: Any) -> None:
        """A value of the user's own: from here on it is no preset, where it would be one of its values."""
        if self.chosen is not None and self.chosen.sets(changes.keys()):
            self.chosen = None
        self._set(replace(self.setup, **changes))

    def _set(self, setup: Setup) -> None:
        self.setup = setup
        self.repaint()
        self.post_message(self.Changed(setup))

    # Typing.

    def typed(self, text: str) -> None:
        readers: dict[str, Callable[[str], None]] = {
            "clients": lambda t: self._set_clients(min(_MOST_TYPED, int(t or 0))),
            "shares": lambda t: self._own(shares=tuple(_number(word) for word in t.split(",") if word)),
            "memory": lambda t: self._own(memory_limit=mps_size(t) or t),
            "seconds": lambda t: self._own(seconds=_number(t) if t else None),
        }
        readers[self.field.id](text)

    def move_to(self, index: int) -> None:
        super().move_to(index)
        self.post_message(self.Changed(self.setup))

    @opens
    def action_open(self) -> None:
        self.post_message(self.Started())  # a value that is not taken stays to be corrected

    # Painting.

    def title(self) -> Line:
        return (("Set up", "title"),)

    def arrows(self, row: FormField) -> bool:
        return not row.typed or row.id == "clients"

    def value(self, row: FormField) -> tuple[str, str]:
        setup = self.setup
        free = setup.where != "off"
        match row.id:
            case "preset":
                return (self.chosen.title, "accent+bold") if self.chosen else ("your own", "dim")
            case "kernel":
                return setup.kernel_names, "bold"
            case "clients":
                return str(setup.clients), "bold"
            case "device":
                return self._device_text(), "text" if self._devices else "dim"
            case "shares":
                text = " : ".join(f"{share:g}" for share in setup.shares)
                each = " each" if len(setup.shares) == 1 and setup.clients > 1 else ""
                return (f"{text} %{each}" if text else "all SMs for each", _style(free and bool(text)))
            case "hold":
                text = "affinity: moves live" if setup.hold == "affinity" else "percentage: fixed"
                return text, _style(free)
            case "memory":
                inherited = "the server's" if setup.where == "on" else "no limit"
                return (setup.memory_limit or inherited, _style(free and bool(setup.memory_limit)))
            case "priority":
                each = " : ".join(map(str, setup.priority))
                words = f"{each} {PRIORITIES[setup.priority[-1]]}" if setup.priority else "the server's"
                return words, _style(free and bool(setup.priority))
            case "seconds":
                return ("until stopped" if setup.seconds is None else f"{setup.seconds:g} s", "text")
            case "way":
                return setup.way.name, "text" if setup.way is STEADY else "bold"
            case _:
                return {"on": "on", "private": "private daemon", "off": "off"}[setup.where], "bold"

    def _device_text(self) -> str:
        chosen = [d for d in self._devices if d.uuid in self.setup.devices]
        if not chosen:
            return "none known"
        if len(chosen) > 1:
            return f"GPU {', '.join(str(d.index) for d in chosen)} in turn"
        device = chosen[0]
        return f"GPU {device.index if device.index is not None else '?'} {(device.name or '').removeprefix('NVIDIA ')}"


def _style(on: bool) -> str:
    return "text" if on else "dim"


def _number(text: str) -> float:
    """A number that is being typed; what is none yet is 0, which no field accepts."""
    return typed_number(text) or 0.0
