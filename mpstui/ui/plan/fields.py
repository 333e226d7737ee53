"""The fields of a plan: chosen with the arrow keys, or typed where they are amounts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final

from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.message import Message

from mpstui.core.late import dataclass
from mpstui.core.model import Daemon, Device
from mpstui.core.text import printable
from mpstui.plan import amounts
from mpstui.plan.amounts import PlanError, limit_text
from mpstui.plan.types import STRATEGIES, Strategy
from mpstui.ui.form import Form, FormField, after, value_bindings
from mpstui.ui.lines import Line
from mpstui.ui.plan.draft import Draft, MemoryChoice, picture, regroup, with_clients, with_memory, with_strategy

_BY: Final = ("user", "command", "client")
_MEMORY: Final[tuple[MemoryChoice, ...]] = ("even", "weight", "none", "own")
_MOST_CONTEXTS: Final = 16
_MOST_SHARES: Final = 999
"""More than any device has contexts: what is refused is not counted through first."""
_AMOUNTS: Final = "0123456789.,KMGTkmgtiB "

FIELDS: Final = (
    FormField("device", "device", "The GPU that is divided."),
    FormField("by", "tenants", "Who gets a share: clients of one user, of one command, or each client alone."),
    FormField(
        "patterns",
        "patterns",
        "Commands by shell patterns: Enter, then *train*,*vllm*. What matches none goes by its program.",
        free=True,
    ),
    FormField("strategy", "strategy", ""),
    FormField("clients", "shares", "How many. Shares without a tenant are for new clients.", "0123456789"),
    FormField("amounts", "amounts", "", _AMOUNTS),
    FormField("memory", "memory", "", _AMOUNTS),
    FormField(
        "contexts",
        "contexts",
        "Of each client on this device; each one takes memory, and the device takes a limited number.",
    ),
)
_ABOUT_STRATEGY: Final[dict[Strategy, str]] = {
    "uniform": "Each gets 100 % / n: nobody disturbs anybody.",
    "half": "Each gets 100 % / (0.5 n), the vendor's advice where clients are not always busy.",
    "weighted": "By weights, 30,70, that are typed below.",
    "exact": "By SM counts, 24,60, typed below or moved as bars; the smallest percentage that gives them.",
}
_ABOUT_MEMORY: Final[dict[MemoryChoice, str]] = {
    "even": "The same limit for each. The context itself counts in it.",
    "weight": "Limits by the weights, otherwise by the SMs.",
    "none": "No limits: one client can take all of the memory.",
    "own": "Limits of your own: 10G for all or 10G,20G; moved as bars, too.",
}


class PlanFields(Form):
    """Holds the :class:`Draft`."""

    FIELDS: ClassVar[tuple[FormField, ...]] = FIELDS
    BINDINGS: ClassVar[list[BindingType]] = [
        *value_bindings("plan", 4),
        Binding("enter", "open", "Begin or end typing", show=False, id="open"),
    ]

    @dataclass
    class Changed(Message):
        """The draft, or the field under the cursor, is another one."""

        draft: Draft

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.draft = Draft()
        self._daemon: Daemon | None = None
        self._devices: Sequence[Device] = ()
        self.settled = False
        """Whether the user has said which device is divided."""

    def divide(self, device: str) -> None:
        """The user has said that it is this one."""
        self.draft = regroup(replace(self.draft, device=device), self._daemon, self._devices)
        self.settled = True

    def show(self, daemon: Daemon | None, devices: Sequence[Device]) -> None:
        """The node as it is. A device that has gone gives way to the first one."""
        self._daemon, self._devices = daemon, devices
        known = [device.uuid for device in devices]
        if self.draft.device not in known and known:
            self.draft, self.settled = regroup(replace(self.draft, device=known[0]), daemon, devices), False
        self.repaint()

    def take(self, draft: Draft) -> None:
        """Another draft, from the bars or from a profile."""
        self.end()
        self._set(draft)

    def read_again(self) -> None:
        """Take in the tenants that there are now."""
        self.take(regroup(self.draft, self._daemon, self._devices))

    def takes_text(self, row: FormField) -> bool:
        return bool(row.typed) or (row.free and self.draft.by == "command")

    @property
    def undecided(self) -> bool:
        """Whether there are several devices, and nobody has said which one."""
        return len(self._devices) > 1 and not self.settled

    @property
    def about(self) -> str:
        """What the field under the cursor is for."""
        match self.field.id:
            case "device" if self.undecided:
                return f"{self.field.about} The first of {len(self._devices)} was taken: ← → chooses another."
            case "strategy":
                return _ABOUT_STRATEGY[self.draft.strategy]
            case "memory":
                return _ABOUT_MEMORY[self.draft.memory]
            case "amounts":
                words = {"weighted": "Weights: 30,70.", "exact": "SM counts: 24,60."}
                return words.get(self.draft.strategy, "Weights and SM counts are for the other strategies.")
            case _:
                return self.field.about

    # Values.

    def action_change(self, step: int) -> None:
        """The next or previous value; numbers move by ``step``."""
        self.end()
        draft, one = self.draft, 1 if step > 0 else -1
        now = picture(draft, self._daemon, self._devices)
        match self.field.id:
            case "device":
                chosen = after([device.uuid for device in self._devices], draft.device, one)
                self.settled = True
                self._set(regroup(replace(draft, device=chosen), self._daemon, self._devices))
            case "by":
                self._set(regroup(replace(draft, by=after(_BY, draft.by, one)), self._daemon, self._devices))
            case "strategy":
                self._set(with_strategy(draft, after(STRATEGIES, draft.strategy, one), now))
            case "clients":
                self._set(with_clients(draft, draft.clients + step, self._devices))
            case "memory":
                self._set(with_memory(draft, after(_MEMORY, draft.memory, one), now))
            case "contexts":
                self._set(replace(draft, contexts=max(1, min(_MOST_CONTEXTS, draft.contexts + step)), problem=""))

    def _set(self, draft: Draft) -> None:
        self.draft = draft
        self.repaint()
        self.post_message(self.Changed(draft))

    # Typing.

    def action_open(self) -> None:
        """Enter: begin or end typing into a field that takes anything. What is not taken stays to be corrected."""
        if self.editing and (problem := picture(self.draft, self._daemon, self._devices).problem):
            self.app.notify(problem, title="Plan", severity="warning", markup=False)
            return
        if not self.end() and self.field.free and self.takes_text(self.field):
            self.edit(",".join(self.draft.patterns), told=False)
        self.post_message(self.Changed(self.draft))

    def end_typing(self) -> bool:
        """Escape; False where not every character was going into the field."""
        return self.end() and self.field.free

    def typed(self, text: str) -> None:
        try:
            self._set(self._read(self.field.id, text))
        except PlanError as error:
            self._set(replace(self.draft, problem=str(error)))

    def _read(self, name: str, text: str) -> Draft:
        """The draft with what was typed. Raises PlanError."""
        draft = self.draft
        match name:
            case "patterns":
                patterns = tuple(part.strip() for part in text.split(",") if part.strip())
                return regroup(replace(draft, patterns=patterns), self._daemon, self._devices)
            case "clients":
                if (number := amounts.count(text, "shares")) > _MOST_SHARES:
                    raise PlanError(f"shares: at most {_MOST_SHARES}, and one for each context of the device")
                return with_clients(draft, number, self._devices)
            case "memory":
                limits = amounts.sizes(text, "memory")
                given = limits * draft.clients if len(limits) == 1 else limits
                return replace(draft, memory="own", limits=given, problem="")
            case _ if draft.strategy == "weighted":
                weights = amounts.weights(text)
                return replace(with_clients(draft, len(weights), self._devices), weights=weights)
            case _:
                counts = amounts.counts(text, "SM counts")
                return replace(with_clients(draft, len(counts), self._devices), strategy="exact", sm_counts=counts)

    def move_to(self, index: int) -> None:
        super().move_to(index)
        self.post_message(self.Changed(self.draft))

    # Painting.

    def title(self) -> Line:
        return (("Plan", "title"),)

    def arrows(self, row: FormField) -> bool:
        return row.id not in {"patterns", "amounts"}

    def value(self, row: FormField) -> tuple[str, str]:
        draft = self.draft
        match row.id:
            case "device":
                return self._device()
            case "by":
                return {"user": "by user", "command": "by command", "client": "each client"}[draft.by], "bold"
            case "patterns":
                if draft.by != "command":
                    return "for tenants by command", "dim"
                return printable(",".join(draft.patterns), 100) or "none: by program", "text"
            case "strategy":
                return draft.strategy, "accent+bold"
            case "clients":
                come = draft.clients - len(draft.labels)
                return f"{draft.clients}" + (f", {come} for new clients" if come > 0 else ""), "bold"
            case "amounts":
                if draft.strategy == "weighted":
                    return " : ".join(f"{float(weight):g}" for weight in draft.weights), "text"
                if draft.strategy == "exact":
                    return ", ".join(map(str, draft.sm_counts)) + " SM", "text"
                return "equal", "dim"
            case "memory":
                if draft.memory != "own":
                    return {"even": "even", "weight": "by weight", "none": "no limits"}[draft.memory], "text"
                return ", ".join(limit_text(limit) for limit in draft.limits), "text"
            case _:
                return f"{draft.contexts} each", "text"

    def _device(self) -> tuple[str, str]:
        device = next((d for d in self._devices if d.uuid == self.draft.device), None)
        if device is None:
            return "none known", "dim"
        index, many = "?" if device.index is None else device.index, len(self._devices)
        name = (device.name or "").removeprefix("NVIDIA ")
        named = f"GPU {index}{f' of {many}' if many > 1 else ''}  {name}"
        if not self.undecided:
            return named, "text"
        told = f"▲ {named}, choose: ← →"  # the sign alone where the words would be cut
        return told if cell_len(told) <= self.room else f"▲ {named}", "warn"
