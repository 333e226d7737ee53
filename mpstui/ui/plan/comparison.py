"""The device as a whole under a plan, and what the plan means for who is there: numbers, warnings, who keeps what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from mpstui.core.late import dataclass
from mpstui.core.text import UNKNOWN, are, format_size, plural, printable
from mpstui.operations.apply import ApplyStep
from mpstui.ui.box import Box, parts
from mpstui.ui.lines import Line, fit, justify
from mpstui.ui.panel import Panel
from mpstui.ui.plan.bars import stacked
from mpstui.ui.plan.draft import Picture

_LABEL: Final = 16


@dataclass(frozen=True, slots=True)
class ComparisonLine:
    """One line of the comparison; ``mark`` is empty where it goes on from the one above."""

    number: int
    mark: str
    text: str
    style: str


def notes_of(
    now: Picture, steps: Sequence[ApplyStep] | None, trouble: str, partitions: str = ""
) -> list[tuple[str, str, str]]:
    """Mark, text and style, the worst first. ``steps``: what an apply would send; None and ``trouble``: it cannot.
    ``partitions``: where those are, of a daemon on which percentages have no effect."""
    if now.plan is None or now.shown is None:
        return [("✕", now.problem, "bad")]
    plan, shown = now.plan, now.shown
    found = [("✕", f"would not fit: {line}", "bad") for line in shown.misfits]
    if partitions:
        found.append(("▲", f"percentages have no effect on a daemon with static partitions: {partitions}", "warn"))
    elif shown.over_committed:
        found.append(
            (
                "▲",
                f"with the present clients: {shown.sms_planned} of {shown.sm_count} SMs,"
                f" {shown.over_committed} more than the device has; clients that are busy together share them",
                "warn",
            )
        )
    if shown.contexts_free is not None and shown.contexts_free < 0:
        found.append(
            ("▲", f"{plural(-shown.contexts_free, 'context')} too many for the device, with those there now", "warn")
        )
    grouped: dict[str, list[str]] = {}
    for share in plan.shares:
        for warning in share.warnings:
            grouped.setdefault(warning, []).append(share.name)
    every = len(plan.shares)
    for text, names in grouped.items():
        whose = "each client" if len(names) == every > 1 else ", ".join(names)
        found.append(("▲", f"{whose}: {text}", "warn"))
    found += [("▲", warning, "warn") for warning in plan.warnings]
    if steps is None:
        found.append(("·", f"cannot be applied now: {trouble}", "dim"))
    elif not steps:
        found.append(("✓", "the daemon's limits allow the plan already: there is nothing to set", "good"))
    else:
        sets = "; ".join(f"{s.difference.what} {s.difference.wanted}" for s in steps)
        found.append(("→", f"Apply sets, with {plural(len(steps), 'command')}: {sets}", "accent"))
    if len({(s.percentage, s.memory) for s in plan.shares}) > 1:
        found.append(("→", "a client sets its smaller share itself: Export writes the lines for it", "accent"))
    if shown.keeps and steps is not None and not partitions:
        found.append(("⟳", f"{plural(len(shown.keeps), 'client')} must be restarted to get a share:", "warn"))
        found += [(" ", line, "text") for line in shown.keeps]
    return found


class ComparisonPanel(Panel[ComparisonLine]):
    """The comparison with what is, as long as it takes; it scrolls."""

    KIND: ClassVar[str] = "note"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._notes: list[tuple[str, str, str]] = []

    def show(self, notes: list[tuple[str, str, str]]) -> None:
        self._notes = notes
        width = max(20, self.size.width - 6)
        rows: list[ComparisonLine] = []
        for mark, text, style in notes:
            for number, part in enumerate(parts(printable(text, 600), width) or [""]):
                rows.append(ComparisonLine(len(rows), mark if number == 0 else "", part, style))
        self.set_rows(rows)

    def key(self, row: ComparisonLine) -> int:
        return row.number

    def title(self) -> Line:
        return (("Compared with today", "title"),)

    def corner(self) -> Line:
        marks = [mark for mark, _, _ in self._notes]
        worst, warnings = marks.count("✕"), marks.count("▲")
        line: list[tuple[str, str]] = []
        if worst:
            line.append((f"✕ {worst}  ", "bad"))
        if warnings:
            line.append((f"▲ {warnings}", "warn"))
        return tuple(line)

    def row_lines(self, row: ComparisonLine, width: int) -> list[Line]:
        style = row.style if row.mark or row.style != "accent" else "text"
        return [((f" {row.mark or ' '} ", row.style), (row.text, style if row.style in {"bad", "dim"} else "text"))]


class DeviceBar(Box):
    """The device today and under the plan, all tenants side by side."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._now: Picture | None = None
        self._simulated = False

    def show(self, now: Picture, *, simulated: bool) -> None:
        self._now, self._simulated = now, simulated
        self.repaint()

    def title(self) -> Line:
        device = self._now.device if self._now else None
        if device is None:
            return (("Device", "title"),)
        index = "?" if device.index is None else device.index
        return ((f"GPU {index}", "title"), (f"  {(device.name or '').removeprefix('NVIDIA ')}", "dim"))

    def corner(self) -> Line:
        return ((" SIMULATED ", "badge-loud"),) if self._simulated else ()

    def body(self, width: int, height: int) -> list[Line]:
        now = self._now
        if now is None or now.plan is None or now.shown is None or now.target is None:
            return []
        numbers = 34 if width >= 84 else 24
        cells = max(8, width - _LABEL - numbers - 2)
        rows, left, target = now.shown.rows, now.plan.left, now.target
        wide = numbers > 24
        today = [row.sms_today for row in rows]
        lines = [
            self._line("SM today", stacked(today, target.sm_count, cells, "text"), _sms_today(today), numbers, "dim"),
            self._line(
                "SM plan",
                stacked([row.sms_planned for row in rows], target.sm_count, cells, "meter"),
                f"{now.shown.sms_planned} of {target.sm_count} SM"
                + (f", plan leaves {left.sm_count}" if wide and not left.over_sm_count else ""),
                numbers,
                "warn" if now.shown.over_committed else "bold",
            ),
        ]
        if target.memory_total:
            usable = target.usable_memory or target.memory_total
            used, planned = [row.memory_used for row in rows], [row.memory_planned for row in rows]
            whole = sum(value or 0 for value in planned)
            without = any(row.share and row.share.memory is None for row in rows)
            lines += [
                self._line(
                    "memory used",
                    stacked(used, target.memory_total, cells, "text"),
                    f"{format_size(sum(used))} of {format_size(target.memory_total)}",
                    numbers,
                    "dim",
                ),
                self._line(
                    "memory limits",
                    stacked(planned, target.memory_total, cells, "meter-memory"),
                    "no limits"
                    if without
                    else f"{format_size(whole)} of {format_size(usable)}" + (" usable" if wide else ""),
                    numbers,
                    "warn" if whole > usable else "bold",
                ),
            ]
        free = now.shown.contexts_free
        contexts = " several daemons have contexts: how many are free is not known"
        if free is not None:
            contexts = f" {free} of {target.context_limit} contexts {are(free)} free now"
        plan = f"the plan itself takes {target.context_limit - left.contexts} "
        return [*lines, justify(((contexts, "dim"),), ((plan, "dim"),) if wide else (), width)][:height]

    @staticmethod
    def _line(label: str, bar: Line, text: str, numbers: int, style: str) -> Line:
        return ((fit(f" {label}", _LABEL), "label"), *bar, (fit(text, numbers, ">"), style), (" ", "text"))


def _sms_today(today: Sequence[int | None]) -> str:
    known = [value for value in today if value is not None]
    if not known:
        return UNKNOWN
    more = "" if len(known) == len(today) else " known"
    return f"{sum(known)} SM{more}"
