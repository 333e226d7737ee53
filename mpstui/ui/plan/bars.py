"""The shares of a plan as bars, today's above the planned one; keys move the one under the cursor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, Literal

from textual.binding import BindingType

from mpstui.core.late import dataclass
from mpstui.core.text import UNKNOWN, format_percentage, format_size, plural, printable
from mpstui.plan.types import PlanTarget, Share
from mpstui.plan.whatif import TenantRow
from mpstui.ui.form import share_bindings
from mpstui.ui.lines import Line, fit, fit_line
from mpstui.ui.panel import Panel
from mpstui.ui.plan.draft import BIG_STEP, Picture

Kind = Literal["sm", "memory"]
_LABEL: Final = 26
_NUMBERS: Final = 34
_SHORT_LABEL: Final = 16
_SHORT_NUMBERS: Final = 32
_WIDE: Final = 84
"""Cells from which labels and numbers have all their room."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: the SMs or the memory of a tenant."""

    index: int
    kind: Kind
    tenant: TenantRow
    share: Share | None
    total: int | None
    """Of the device."""

    @property
    def today(self) -> int | None:
        return self.tenant.sms_today if self.kind == "sm" else self.tenant.memory_used

    @property
    def planned(self) -> int | None:
        return self.tenant.sms_planned if self.kind == "sm" else self.tenant.memory_planned


def bars_of(now: Picture) -> list[Bar]:
    """Two for each tenant, SMs and memory, in the plan's order; memory only where the device's is known."""
    if now.plan is None or now.shown is None or now.target is None:
        return []
    found: list[Bar] = []
    for index, row in enumerate(now.shown.rows):
        found.append(Bar(index, "sm", row, row.share, now.target.sm_count))
        if now.target.memory_total:
            found.append(Bar(index, "memory", row, row.share, now.target.memory_total))
    return found


class SharesPanel(Panel[Bar]):
    """One bar or two lines a bar, as there is room."""

    KIND: ClassVar[str] = "share"
    WHOLE_BAND: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = share_bindings("plan", BIG_STEP, " by the hardware's step")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._target: PlanTarget | None = None
        self._problem = ""

    def show(self, now: Picture) -> None:
        self._target, self._problem = now.target, now.problem
        bars = bars_of(now)
        room = max(1, self.size.height - 2)
        self.set_rows(bars, 2 if 2 * len(bars) <= room else 1)

    # What the list needs.

    def key(self, row: Bar) -> tuple[int, str]:
        return row.index, row.kind

    def title(self) -> Line:
        shares = sum(bar.kind == "sm" and bar.share is not None for bar in self.rows)
        return (("Shares", "title"), (f" {shares}", "dim")) if shares else (("Shares", "title"),)

    def corner(self) -> Line:
        target = self._target
        if target is None:
            return ()
        rounding = target.rounding
        measured = "" if rounding.measured else "≈ "
        steps = f"{measured}steps of {rounding.step} from {rounding.floor}"
        return ((f"{target.sm_count} SM, {steps} · {format_size(target.memory_total)}", "dim"),)

    def empty(self) -> str:
        return self._problem

    # Painting.

    def row_lines(self, row: Bar, width: int) -> list[Line]:
        wide = width >= _WIDE
        label = _LABEL if wide else _SHORT_LABEL
        numbers = _NUMBERS if wide else _SHORT_NUMBERS
        if self._lines_per_row == 1:
            cells = max(6, width - label - 4 - numbers)
            text = fit(f"{_amount(row, row.today)} → {_planned(row)}", numbers, ">")
            return [
                (
                    *_name(row, label),
                    (_UNIT[row.kind], "label"),
                    *_bar(row.planned, row.total, cells, _STYLE[row.kind], row.today),
                    (text, _number_style(row)),
                )
            ]
        cells = max(6, width - label - 10 - numbers)
        first, second = _WORDS[row.kind]
        return [
            (
                *_name(row, label),
                (_UNIT[row.kind], "label"),
                (f"{first} ", "dim"),
                *_thin(row.today, row.total, cells),
                (fit(_amount(row, row.today), numbers, ">"), "dim"),
            ),
            (
                *_below(row, label),
                ("    ", "text"),
                (f"{second} ", "label"),
                *_bar(row.planned, row.total, cells, _STYLE[row.kind], None),
                (fit(_planned(row), numbers, ">"), _number_style(row)),
            ),
        ]


_UNIT: Final = {"sm": "SM  ", "memory": "mem "}
_WORDS: Final = {"sm": ("today", "plan "), "memory": ("used ", "limit")}
_STYLE: Final = {"sm": "meter", "memory": "meter-memory"}


def _name(row: Bar, width: int) -> Line:
    """Number and label above the SMs; the memory below belongs to it."""
    if row.kind == "memory":
        return ((" " * width, "text"),)
    times = f" ×{row.tenant.clients}" if row.tenant.clients > 1 else ""
    label = fit(printable(row.tenant.label, 60), width - 5 - len(times)).rstrip()
    return ((f" {row.index + 1:>2} ", "dim"), (fit(label + times, width - 4), "bold"))


def _below(row: Bar, width: int) -> Line:
    """What the tenant is, under its label."""
    if row.kind == "memory":
        return ((" " * width, "text"),)
    here = plural(row.tenant.clients, "client") if row.tenant.clients else "nobody yet"
    return (("    ", "text"), (fit(here if row.share else f"{here}, no share", width - 4), "dim"))


def _amount(row: Bar, value: int | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value} SM" if row.kind == "sm" else format_size(value)


def _planned(row: Bar) -> str:
    """What all clients of the tenant come to, and what one of them is to be told."""
    share, times = row.share, row.tenant.clients
    if share is None:
        return "no share"
    if row.kind == "sm":
        each = f"{share.sm_count} SM" if times < 2 else f"{times} × {share.sm_count} = {times * share.sm_count} SM"
        return f"{format_percentage(share.percentage)}  {each}"
    if share.memory is None:
        return "no limit"
    if times < 2:
        return format_size(share.memory)
    one, unit = format_size(share.memory).split(" ")
    whole = format_size(times * share.memory)
    return f"{times} × {one if whole.endswith(f' {unit}') else f'{one} {unit}'} = {whole}"


def _number_style(row: Bar) -> str:
    if row.share is None:
        return "warn"
    over = row.planned is not None and row.total is not None and row.planned > row.total
    used = row.kind == "memory" and row.planned is not None and row.tenant.memory_used > row.planned
    return "warn" if over or used else "bold"


def _cells(value: int | None, total: int | None, width: int) -> int:
    if not value or not total:
        return 0
    return max(1, min(width, round(value / total * width)))


def _thin(value: int | None, total: int | None, width: int) -> Line:
    filled = _cells(value, total, width)
    return (("━" * filled, "text"), ("─" * (width - filled), "track"))


def _bar(value: int | None, total: int | None, width: int, style: str, today: int | None) -> Line:
    """A bar that stands on its track; ``▸`` at its end where it is longer than the device; ``│`` marks today."""
    filled = _cells(value, total, width)
    over = bool(value and total and value > total)
    text = "▆" * filled + "▁" * (width - filled)
    if over:
        text = text[:-1] + "▸"
    styles = [style] * filled + ["track"] * (width - filled)
    if today is not None and total:
        at = max(0, _cells(today, total, width) - 1)
        text = text[:at] + "│" + text[at + 1 :]
        styles[at] = "bold"
    return _spans(text, styles)


def _spans(text: str, styles: Sequence[str]) -> Line:
    out: list[tuple[str, str]] = []
    for char, style in zip(text, styles, strict=True):
        if out and out[-1][1] == style:
            out[-1] = (out[-1][0] + char, style)
        else:
            out.append((char, style))
    return tuple(out)


def stacked(values: Sequence[int | None], total: int, width: int, style: str) -> Line:
    """Parts side by side, each begun by its number, so that they read without colour; ``┊`` where the device ends. Of
    parts that have room for their number alone the first and the last have one, ``2…5``: side by side they would read
    as another number."""
    known = [value or 0 for value in values]
    whole = max(total, sum(known))
    parts, done, ends = list[tuple[str, int]](), 0, 0
    behind = sum(1 for value in known if value)
    least = 1 if behind <= width else 0  # cells of a part that is too small to draw
    for index, value in enumerate(known):
        done += value
        behind -= value > 0
        cells = max(least * (value > 0), min(round(done / whole * width), width - least * behind) - ends)
        if cells > 0:
            parts.append((str(index + 1), cells))
            ends += cells
    text, styles = "", []
    for at, (number, cells) in enumerate(parts):
        label = _begun(number, cells, text, last=at + 1 == len(parts))
        text += label + "▆" * (cells - len(label))
        styles += ["bold"] * len(label) + [style] * (cells - len(label))
    styles += ["track"] * (width - len(text))
    text += "▁" * (width - len(text))
    if whole > total:
        end = min(width - 1, round(total / whole * width))
        while end and text[end].isdigit():  # a part begins there, by its number
            end -= 1
        text = text[:end] + "┊" + text[end + 1 :]
        styles[end] = "warn"
    return fit_line(_spans(text, styles), width)


def _begun(number: str, cells: int, before: str, *, last: bool) -> str:
    """How a part of so many cells begins behind these."""
    if cells < len(number):
        return "…"
    if not before or before[-1] == "▆":
        return number
    if cells == len(number) and not last:
        return "…" * cells
    if before[-1] == "…":
        return number
    return f"▆{number}" if cells > len(number) else "…" * cells
