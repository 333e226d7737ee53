"""The clients of the load, each a bar of SMs with its throughput and its last minute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from textual.binding import BindingType

from mpstui.core.cells import OUTDATED, meter
from mpstui.core.model import ProcessKey
from mpstui.core.text import UNKNOWN, printable
from mpstui.load.errors import remedy_of
from mpstui.load.types import WorkerError, WorkerReport
from mpstui.ui.box import wrapped
from mpstui.ui.form import share_bindings
from mpstui.ui.lines import Line, fit, fit_line, justify, width_of
from mpstui.ui.load.plot import COLUMNS, plot, round_up
from mpstui.ui.load.session import BIG_STEP, LoadSession, Member
from mpstui.ui.load.setup import Setup
from mpstui.ui.panel import Panel

STATE: Final = {
    "starting": ("◌ starting", "dim"),
    "ready": ("◌ ready", "dim"),
    "running": ("● running", "good"),
    "restarting": ("◌ restarting", "warn"),
    "stopping": ("◌ stopping", "warn"),
    "ended": ("○ ended", "dim"),
    "failed": ("✕ failed", "bad"),
}
MOST_LINES: Final = 6
"""For a client: its name, its bar, where the bar can go, a plot as high as there is room, and air."""
_BLANK: Final[Line] = (("", "text"),)
_SMS: Final = 15
"""Cells of ``132 → 100 SM``."""
_LEAST_BAR: Final = 4
_FIGURE: Final = 8
"""Cells of ``  2,723 `` before its unit, so that a plot does not come and go with a figure's digits."""


def figure_text(value: float | None) -> str:
    """Three digits or more: ``3.59``, ``57.2``, ``2,723``."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 200 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def milliseconds(seconds: float) -> str:
    """``1.20``, ``34.5``, ``1,204``."""
    return figure_text(1000 * seconds)


class BarsPanel(Panel[Member]):
    """One to three lines for a client, as there is room. Keys grow and shrink the share of the one under the cursor."""

    KIND: ClassVar[str] = "load"
    WHOLE_BAND: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = share_bindings("load", BIG_STEP)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._session: LoadSession | None = None
        self._now = 0.0
        self._tops: dict[str, float] = {}
        self._outdated: frozenset[ProcessKey] = frozenset()
        self._plan: tuple[Setup, Sequence[int], int | None] = (Setup(), (), None)

    def show(self, session: LoadSession, outdated: frozenset[ProcessKey]) -> None:
        """``outdated`` connected before their server's present limits."""
        self._session, self._outdated = session, outdated
        self._now = session.clock()
        highest: dict[str, float] = {}
        for member in session.members:
            unit = member.report.unit
            highest[unit] = max(highest.get(unit, 0.0), member.history.highest)
        # One scale for all that measure the same, so that they can be compared by eye.
        self._tops = {unit: round_up(top) for unit, top in highest.items()}
        room = max(1, self.size.height - 2)
        self.set_rows(session.members, max(1, min(MOST_LINES, room // max(1, len(session.members)))))

    def show_plan(self, setup: Setup, counts: Sequence[int], total: int | None) -> None:
        """What Enter would start, as long as there is nothing else to show."""
        self._plan = (setup, counts, total)
        if not self.rows:
            self.repaint()

    # What the list needs.

    def key(self, row: Member) -> int:
        return row.number

    def title(self) -> Line:
        running = sum(member.report.state == "running" for member in self.rows)
        failed = sum(member.report.state == "failed" for member in self.rows)
        line: Line = (("Clients", "title"), (f" {len(self.rows)}", "dim")) if self.rows else (("Clients", "title"),)
        if self.rows:
            line = (*line, (f"  {running} running", "good" if running else "dim"))
        return (*line, (f"  {failed} failed", "bad")) if failed else line

    def corner(self) -> Line:
        if not self.rows:
            return ()
        badge: Line = (
            ((" SIMULATED ", "badge-loud"), (" ", "border"))
            if self._session and self._session.backend.simulated
            else ()
        )
        keys = "←→ move the share" if self.has_focus else "Tab: move shares"
        where: Line = ((keys, "key" if self.has_focus else "dim"), ("  ", "border")) if self._movable else ()
        return (*badge, *where, ("last minute", "dim"))

    @property
    def _movable(self) -> bool:
        return any(member.spec.mps and not member.report.over for member in self.rows)

    # Painting.

    def lines(self, width: int, height: int) -> list[Line]:
        lines = super().lines(width, height)
        if self.rows or len(lines) < 3:
            return lines
        edge = lines[1][0][1]
        for y, line in enumerate(self._preview(width - 2, height - 2), 1):
            lines[y] = (("│", edge), *fit_line(line, width - 2), ("│", edge))
        return lines

    def _preview(self, width: int, height: int) -> list[Line]:
        """The bars of the clients that would be started."""
        setup, counts, total = self._plan
        out: list[Line] = [(), ((" Nothing runs. Enter would start:", "dim"),), ()]
        each = 2 if height >= 2 * setup.clients + 4 else 1
        for index in range(setup.clients):
            sms = counts[index] if index < len(counts) and setup.where != "off" else total
            cells = max(4, width - self._columns(width) - 8 - _SMS)
            text = fit(UNKNOWN if sms is None else f"{sms} SM", _SMS, ">")
            share = sms / total * 100 if sms and total else None
            bar = (*_thick(share, cells, "track"), (text, "dim"), (f"   {setup.kernel_of(index)}", "user"))
            out += [((f" {index + 1:>2}  ", "dim"), *bar)] + [()] * (each - 1)
        return out[:height]

    def row_lines(self, row: Member, width: int) -> list[Line]:
        lines = self._lines_per_row
        if lines == 1:
            return [self._row_line(row, width)]
        report = row.report
        columns = self._columns(width)
        charts = self._chart(row, columns, lines - (lines > 3))
        left = width - columns - 3
        name = self._number(row)
        note, short, style = self._note(row)
        state, figure = self._fitting(row, name, left)
        room = left - width_of(state) - width_of(figure) - 2
        shown = next((text for text in (note, short) if text and len(text) <= room), "")
        first = justify((*state, (f"  {shown}", style)), figure, left)
        if report.error is not None:
            remedy = remedy_of(report.error, private=row.spec.private)
            return self._failure(first, report.error, remedy, width, lines)
        out: list[Line] = [first, ((" " * 5, "text"), *self._bar(row, left - 5, thick=lines > 2))]
        if lines > 2:
            out.append(((" " * 5, "text"), *self._below(row, left - 5)))
        if lines > 3 and shown != note:
            out.append(((fit(f"     {note}", left), style),))
        out += [_BLANK] * (lines - len(out))
        charts += [_BLANK] * (lines - len(charts))
        return [(*fit_line(line, left), *chart) for line, chart in zip(out, charts, strict=True)]

    @staticmethod
    def _number(row: Member) -> Line:
        return ((f" {row.report.worker:>2}", "bold"), (f"  {row.report.pid or UNKNOWN:<8}", "text"))

    def _row_line(self, row: Member, width: int) -> Line:
        """All of a client in one line: its GPU and its figure before the plot, which is what gives way."""
        report, gpu = row.report, self._gpu(row)
        name = (*self._number(row), *(((f"{gpu} ", "text"),) if gpu else ()))
        if report.key in self._outdated:
            name = (*name, (f"{OUTDATED} ", "warn"))
        if report.error is not None:
            return fit_line((*name, (f"✕ {printable(report.error.text, 300)}", "bad")), width)
        columns = self._columns(width)
        needed = width_of(name) + _LEAST_BAR + _SMS + self._widest_figure
        left = width - (columns + 3 if needed <= width - columns - 3 else 1)
        line = fit_line((*name, *self._short(row, left - width_of(name))), left)
        return (*line, *self._chart(row, columns, 1)[0]) if left < width - 1 else (*line, (" ", "text"))

    @property
    def _widest_figure(self) -> int:
        """Cells of the widest figure, of which each line has as many, so that they stand below each other."""
        running = [member.report for member in self.rows if member.report.state == "running"]
        return max(
            (max(_FIGURE + len(each.unit), width_of(self._figure(each))) for each in running if each.unit), default=0
        )

    def _gpu(self, member: Member) -> str:
        """``GPU 1`` where the clients are on several."""
        if self._session is None or len({m.report.device_uuid for m in self.rows}) < 2:
            return ""
        return f"GPU {self._session.index(member.report.device_uuid)}"

    @staticmethod
    def _failure(first: Line, error: WorkerError, remedy: str, width: int, lines: int) -> list[Line]:
        """Name and state, then the CUDA error in words and the remedy, over the whole width."""
        if lines == 2:
            return [first, ((fit(f"     {printable(error.text, 300)}", width), "bad"),)]
        out = [first, *wrapped(printable(error.text, 300), width - 4, "bad", indent=" " * 5)]
        if remedy:
            out += wrapped(printable(remedy, 300), width - 4, "warn", "→ ", indent=" " * 5)
        return (out + [_BLANK] * lines)[:lines]

    @staticmethod
    def _columns(width: int) -> int:
        """Cells of a plot."""
        return max(8, min(COLUMNS, width * 36 // 100))

    def _chart(self, member: Member, columns: int, height: int) -> list[Line]:
        unit = member.report.unit
        if not unit:
            return [((" " * (columns + 3), "text"),)] * height
        points = member.history.points(self._now, columns)
        rows = plot(points, self._tops.get(unit, 1.0), height)
        style = "track" if member.report.over else "meter-memory"
        return [(("  ", "text"), (row, style), (" ", "text")) for row in rows]

    def _state(self, member: Member, *, symbol_only: bool = False) -> Line:
        report = member.report
        word, style = STATE[report.state]
        word = word[0] if symbol_only else word
        line: Line = ((word, style), (f"  {report.kernel}", "user"))
        return (*line, (f"  {gpu}", "text")) if (gpu := self._gpu(member)) else line

    def _note(self, member: Member) -> tuple[str, str, str]:
        """What else there is to say of it: in full, in short, and the style."""
        report = member.report
        if report.error is not None:
            return "", "", "dim"
        if report.key in self._outdated:
            return f"{OUTDATED} outdated limits: R restarts it", f"{OUTDATED} R", "warn"
        if report.affinity is False and member.spec.mps and report.state == "running":
            return "no affinity here: choose with ←→, R restarts", "no affinity", "warn"
        if report.switch_seconds is not None and report.state == "running":
            moved = f"moved in {report.switch_seconds * 1000:.0f} ms"
            return moved, moved.removeprefix("moved in "), "dim"
        return (printable(report.notes[-1], 160), "", "dim") if report.notes else ("", "", "dim")

    def _fitting(self, member: Member, name: Line, width: int) -> tuple[Line, Line]:
        """State and figures of a line, as much of them as there is room for: latencies before words."""
        figure = self._figure(member.report)
        state: Line = ()
        for latency in (*_latencies(member.report), ()):
            words, symbol = (self._state(member, symbol_only=only) for only in (False, True))
            for shown in (words, symbol, *((symbol[:1],) if latency else ())):
                state = (*name, *shown)
                if width_of(state) + width_of(latency) + width_of(figure) <= width:
                    return state, (*latency, *figure)
        return state, figure

    def _figure(self, report: WorkerReport) -> Line:
        if report.over and report.mean is not None:
            return ((" mean ", "dim"), (figure_text(report.mean), "text"), (f" {report.unit}", "dim"))
        if not report.unit or report.over:
            return ()
        return ((f"  {figure_text(report.figure)}", "bold"), (f" {report.unit}", "dim"))

    def _short(self, member: Member, width: int) -> Line:
        """One line: the bar with its figure, or its state."""
        report = member.report
        if report.state != "running":
            word, style = STATE[report.state]
            return ((fit(word, width), style),)
        figure = self._figure(report)
        if latency := next((each for each in _latencies(report) if width_of(each) + 34 <= width), ()):
            sms: Line = ((fit(f"{report.sms or UNKNOWN} SM", 8, ">"), "bold"),)
            return justify(sms, (*latency, *figure), width)
        # Where there is room, the bars end in the same place whatever the unit is.
        room = 24 if width >= 24 + _LEAST_BAR + _SMS else self._widest_figure
        return justify(self._bar(member, width - room, thick=False), figure, width)

    def _bar(self, member: Member, width: int, *, thick: bool) -> Line:
        report = member.report
        total = self._total(member)
        cells = max(4, width - _SMS)
        if report.sms is None or not total:
            return ()
        wanted = member.target
        moved = f"{report.sms} → {wanted}" if wanted is not None and wanted != report.sms else str(report.sms)
        style = "track" if report.over else "meter" if member.spec.mps else "meter-high"
        bar = (_thick if thick else meter)(report.sms / total * 100, cells, style)
        return (*bar, (fit(f"{moved} SM", _SMS, ">"), "bold"))

    def _below(self, member: Member, width: int) -> Line:
        """Under the bar: where its share can go."""
        report = member.report
        total = self._total(member)
        cells = max(4, width - _SMS)
        if not member.spec.mps:
            return ((" " * cells, "text"), (fit("takes turns", _SMS, ">"), "dim")) if not report.over else ()
        if not total or report.sms is None or report.over:
            return ()
        marks = [" "] * cells
        for level in report.levels if member.pooled else ():
            marks[max(0, min(cells - 1, round(level / total * cells) - 1))] = "╵"
        if member.target is not None:
            marks[max(0, min(cells - 1, round(member.target / total * cells) - 1))] = "▴"
        if member.pooled and report.levels[-1] < total:
            # Where the bar ends although the device does not: its server's limit when it started.
            last, end = round(report.levels[-1] / total * cells), f"◂ limit {report.levels[-1]} SM"
            marks[last : last + len(end)] = end if last + len(end) <= cells else "◂"[: cells - last]
        share = f"{report.sms / total * 100:.0f} % of {total}"
        return (("".join(marks), "dim"), (fit(share, _SMS, ">"), "dim"))

    def _total(self, member: Member) -> int | None:
        return self._session.total_sms(member.report.device_uuid) if self._session else None


def _latencies(report: WorkerReport) -> tuple[Line, ...]:
    """p50 and p99 of its requests, in full and in short; nothing where it gets none."""
    if report.latency_p50 is None or report.latency_p99 is None or report.over:
        return ()
    middle, late = milliseconds(report.latency_p50), milliseconds(report.latency_p99)
    short: Line = ((" p99 ", "dim"), (late, "bold"), (" ms", "dim"))
    return ((" p50 ", "dim"), (middle, "bold"), *short), short


def _thick(percent: float | None, width: int, style: str) -> Line:
    """A bar that stands on its track."""
    filled = 0 if percent is None else max(1, min(width, round(percent / 100 * width)))
    return (("▆" * filled, style), ("▁" * (width - filled), "track"))
