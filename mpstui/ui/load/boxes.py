"""The boxes that explain: what a field does, what all clients do together, and what the device says of it."""

from __future__ import annotations

from collections.abc import Sequence

from mpstui.core.cells import meter, outdated_text, whole
from mpstui.core.model import Device, Server
from mpstui.core.partition import rounding_of, sms_of
from mpstui.core.text import format_percentage, format_size, plural, printable
from mpstui.fields.device import contexts_text
from mpstui.ui.box import Box, wrapped
from mpstui.ui.lines import Line, fit, fit_line, justify, width_of
from mpstui.ui.load.bars import figure_text, milliseconds
from mpstui.ui.load.session import LoadSession, Member
from mpstui.ui.load.setup import Setup, Where, about_kernel, device_for, live, pool_cost
from mpstui.ui.load.share import about_share, facts_of


class AboutBox(Box):
    """The field under the cursor in words, what the shares come to, what it will cost, and what stands in the way."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._text = ""
        self._lines_about: list[tuple[str, str]] = []
        self._verdict: tuple[str, str, str] = ("", "", "text")

    def show(
        self,
        setup: Setup,
        about: str,
        counts: Sequence[int],
        devices: Sequence[Device],
        limit: float | None,
        verdict: tuple[str, str, str],
        more: bool,
    ) -> None:
        """What the fields say. ``limit``: the server's percentage. ``verdict``: a mark, the sentence and its style.
        ``more``: clients run already, and these would come to them."""
        facts: list[tuple[str, str]] = [(name, about_kernel(name)) for name in setup.kernels]
        if counts and setup.where != "off":
            shown = f"{counts[0]} SM each" if len(set(counts)) == 1 and len(counts) > 1 else _joined(counts)
            total = next((d.sm_count for d in devices if d.uuid in setup.devices), None)
            facts.append(("shares", f"{shown}, of {total}" if total else shown))
        if limit is not None and limit < 100 and live(setup) and (top := self._top(setup, devices, limit)):
            facts.append(("limit", f"the server's {format_percentage(limit)}: shares move up to {top} SM, l raises it"))
        cost = pool_cost(setup, devices, limit)
        these = f"for {plural(setup.clients, 'more client')}: " if more else ""
        if cost is not None and cost.contexts > cost.clients:
            made = pool_text(cost.contexts, cost.clients)
            facts.append(("pool", f"{these}{made}, about {format_size(cost.size)}, {cost.seconds:.1f} s"))
        elif cost is not None:
            full = "none, the device has no contexts to spare: a change of share restarts a client"
            facts.append(("pool", f"{these}{full}"))
        self._set(about, facts, verdict)

    @staticmethod
    def _top(setup: Setup, devices: Sequence[Device], limit: float) -> int | None:
        device = device_for(setup, 0, devices)
        return sms_of(limit, device.sm_count, rounding_of(device)) if device and device.sm_count else None

    def show_client(self, session: LoadSession, member: Member) -> None:
        """The client under the cursor: how its share moves, and how far."""
        report, mps = member.report, member.spec.mps
        total = session.total_sms(report.device_uuid)
        about = about_share(report, mps, member.stopped, total, *session.limit_of(member))
        verdict = ("↹", "Tab goes to the fields, to start more.", "dim")
        self._set(about, facts_of(report, mps, total), verdict)

    def _set(self, about: str, facts: list[tuple[str, str]], verdict: tuple[str, str, str]) -> None:
        self._text, self._lines_about, self._verdict = about, facts, verdict
        self.repaint()

    def title(self) -> Line:
        return (("About", "title"),)

    def body(self, width: int, height: int) -> list[Line]:
        mark, sentence, style = self._verdict
        verdict = wrapped(sentence, width, style, f"{mark} ")
        about = wrapped(self._text, width, "text")
        facts: list[Line] = []
        for label, text in self._lines_about:
            for number, line in enumerate(wrapped(text, width - 9, "dim", indent="")):
                facts.append(((fit(f" {label}" if number == 0 else "", 9), "label"), *line))
        room = height - len(verdict) - 1
        body = [*about, (), *facts] if about and len(about) + len(facts) + 1 <= room else [*about, *facts]
        body = body[: max(0, room)]
        gap = height - len(body) - len(verdict)
        return [*body, *([()] * max(0, gap)), *verdict]


def pool_text(contexts: int, clients: int) -> str:
    """``32 contexts in 4 clients``."""
    return f"{plural(contexts, 'context')} in {plural(clients, 'client')}"


def _joined(counts: Sequence[int]) -> str:
    """``40 + 92 SM``; a long row is cut."""
    return " + ".join(map(str, counts[:6])) + (" + …" if len(counts) > 6 else "") + " SM"


class TogetherBox(Box):
    """The sum of all clients, what their shares and pools come to, and the server's limit."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._session: LoadSession | None = None
        self._server: Server | None = None
        self._where: Where = "on"
        self._outdated = 0

    def show(self, session: LoadSession, server: Server | None, where: Where, outdated: int) -> None:
        """``server``: the one that clients would have with ``where`` on."""
        self._session, self._server, self._where, self._outdated = session, server, where, outdated
        self.repaint()

    def title(self) -> Line:
        return (("Together", "title"),)

    def body(self, width: int, height: int) -> list[Line]:
        session = self._session
        if session is None:
            return []
        lines = [self._sum(session, width), self._pool(session.live), self._limit(width)]
        if session.message:
            style = "bad" if session.failed else "warn"
            said: Line = ((f" {'✕' if session.failed else '·'} ", style), (printable(session.message, 300), style))
            lines.insert(1 if height < 4 else 3, said)
        return [fit_line(line, width) for line in lines]

    def _sum(self, session: LoadSession, width: int) -> Line:
        totals = session.totals()
        line: list[tuple[str, str]] = [(" all   ", "label")]
        if not totals:
            line.append(("  nothing runs" if not session.live else "  —", "dim"))
        if not session.live and (means := session.means()):
            totals = means
            line.append(("; means of the run:", "dim"))
        for number, (unit, total) in enumerate(totals.items()):
            line += [("  +  " if number else "  ", "dim"), (figure_text(total), "accent+bold"), (f" {unit}", "text")]
        if (slowest := session.slowest) is not None:
            line += [("  ·  p99 up to ", "dim"), (milliseconds(slowest), "accent+bold"), (" ms", "text")]
        left, shares = tuple(line), self._shares(session)
        right: Line = ((f"  {shares} ", "dim"),)
        # What they do goes before what they may, which each bar says too.
        return justify(left, right, width) if shares and width_of(left) + width_of(right) <= width else left

    def _shares(self, session: LoadSession) -> str:
        under_mps = [m for m in session.live if m.report.sms and m.spec.mps]
        devices = {m.report.device_uuid for m in under_mps}
        if len(devices) != 1:
            return ""
        total = session.total_sms(devices.pop()) or 0
        asked = sum(m.report.sms or 0 for m in under_mps)
        overlap = ", overlapping" if asked > total else ""
        return f"shares {asked} of {total} SM{overlap}"

    def _pool(self, live: Sequence[Member]) -> Line:
        pooled = [member for member in live if member.pooled]
        if not pooled:
            return ((" pool  ", "label"), ("  no contexts made ahead", "dim"))
        contexts = sum(len(m.report.pool) for m in pooled)
        size = sum(m.report.pool_bytes for m in pooled)
        seconds = max(m.report.pool_seconds for m in pooled)
        made = pool_text(contexts, len(pooled))
        return ((" pool  ", "label"), (f"  {made}, made ahead in {seconds:.1f} s · {format_size(size)}", "text"))

    def _limit(self, width: int) -> Line:
        server = self._server
        if self._where == "private":
            return ((" server", "label"), ("  of a daemon of its own: other daemons' limits do not reach it", "dim"))
        if self._where == "off":
            return ((" MPS off", "label"), (": no limit reaches these clients, they take turns on the GPU", "dim"))
        if server is None:
            return ((" server", "label"), ("  a change of its limits reaches new clients only; R restarts one", "dim"))
        now = format_percentage(server.active_thread_percentage)
        line: Line = ((" server", "label"), (f"  {server.pid}: {now} for clients that start now", "text"))
        if self._outdated:
            return (*line, (f"; {outdated_text(self._outdated, short=True)}: R restarts one", "warn"))
        return (
            *line,
            ("; R restarts a client with this limit, l changes it" if width >= 95 else "; R restarts one", "dim"),
        )


class DeviceBox(Box):
    """GPU-Util beside what GPM measures, and the difference in one line."""

    ROWS = (
        ("GPU-Util", "gpu_utilization", "time in which some kernel ran, however small"),
        ("SMs busy", "sm_utilization", "SMs that had work, over time"),
        ("occupancy", "sm_occupancy", "warps on the SMs, of the most that fit"),
        ("DRAM", "dram_utilization", "time in which the memory moved data"),
    )

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._device: Device | None = None
        self._simulated = False
        self._private = 0

    def show(self, device: Device | None, *, simulated: bool, private: int) -> None:
        """``private``: contexts that it has besides, in the load's own daemon."""
        self._device, self._simulated, self._private = device, simulated, private
        self.repaint()

    def title(self) -> Line:
        device = self._device
        if device is None:
            return (("Device", "title"),)
        index = "?" if device.index is None else device.index
        return ((f"GPU {index}", "title"), (f"  {(device.name or '').removeprefix('NVIDIA ')}", "dim"))

    def corner(self) -> Line:
        device = self._device
        if device is None:
            return ()
        told = [] if device.contexts is None else [f"{contexts_text(device)} contexts"]
        told += [f"{self._private} in the load's daemon"] if self._private else []
        return ((" · ".join(told), "dim"),) if told else ()

    def body(self, width: int, height: int) -> list[Line]:
        lesson = self.lesson(width - 2)
        if height >= 5:
            cells = max(8, min(60, width - 66))
            wide = width >= 90
            lines = [self._row(row, cells if wide else max(8, width - 22), wide) for row in self.ROWS]
            return [*lines, ((f" {lesson}", "accent"),)]
        cells = max(4, (width - 38) // 2)
        pairs = [self._row(row, cells, False) for row in self.ROWS]
        return [(*pairs[0], *pairs[1]), (*pairs[2], *pairs[3]), ((f" {lesson}", "accent"),)][:height]

    def _row(self, row: tuple[str, str, str], cells: int, wide: bool) -> Line:
        label, name, text = row
        value: float | None = getattr(self._device, name) if self._device else None
        style = "meter-high" if name == "gpu_utilization" else "meter"
        line: Line = ((fit(f" {label}", 12), "label"), *meter(value, cells, style), (f"{whole(value):>6} ", "bold"))
        return (*line, (f"  {text}", "dim")) if wide else line

    def lesson(self, width: int) -> str:
        """The difference between the first meter and the others, with their present figures."""
        device = self._device
        util = device.gpu_utilization if device else None
        busy = device.sm_utilization if device else None
        if busy is None:
            full = "GPU-Util: some kernel ran, not how much of the GPU it used. NVML has no SM activity for this GPU."
            short = "GPU-Util: some kernel ran, not how much it used."
        elif util and util >= 90 and busy < 60:
            full = f"GPU-Util says {util:.0f} %, yet only {busy:.0f} % of the SMs had work: room for more clients."
            short = f"GPU-Util {util:.0f} %, SMs busy {busy:.0f} %: there is room for more."
        elif util:
            full = "GPU-Util goes to 100 % with one small kernel as with this load: the three below it tell them apart."
            short = "GPU-Util is 100 % with any kernel: look at the others."
        else:
            full = (
                "GPU-Util goes to 100 % as soon as any kernel runs; the three below it say how much of the GPU that is."
            )
            short = "GPU-Util: any kernel ran. The others: how much it used."
        return full if len(full) <= width else short
