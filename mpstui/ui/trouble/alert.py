"""The alert over the panels while a fatal fault lasts, and the word that it is over."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Final, cast

from mpstui.core.faults import FaultReport, fault_reports
from mpstui.core.model import Client, Daemon, Event, ServerFault, Snapshot
from mpstui.core.text import UNKNOWN, format_age, listed, nouns, owner
from mpstui.ui.contract import Host
from mpstui.ui.keys import shown_key
from mpstui.ui.layout import room_of
from mpstui.ui.lines import Line, LineWidget, justify, width_of

RECOVERY_SHOWN: Final = 60.0
"""Seconds for which a recovery is told."""
_NAMED: Final = 6
"""Processes that still have to end, named at most."""
_FEW: Final = 2
"""Clients that the log names, told on a line of 80 cells."""
_INDENT: Final = " " * 9
_WORTH: Final = ", which is not proof"
_TALL: Final = 30
"""Lines of the screen from which the alert has two."""


def recovery(snapshot: Snapshot, daemon: Daemon) -> Event | None:
    """The newest recovery of one of the daemon's servers, while it is news, and the server is there."""
    for event in reversed(snapshot.events):
        if event.time is not None and snapshot.time - event.time > RECOVERY_SHOWN:
            return None
        if event.kind == "server_recovered" and event.pipe_dir in {None, daemon.pipe_dir}:
            return event if any(server.pid == event.server_pid for server in daemon.servers) else None
    return None


def recovery_text(snapshot: Snapshot, event: Event, *, brief: bool = False) -> str:
    """``server 1881 takes new clients again, since 01:46:12, 22s after the fault``; ``brief``: without the time."""
    text = f"server {event.server_pid} takes new clients again"
    if event.time is None:
        return text
    fault = next(
        (e for e in reversed(snapshot.events) if e.kind == "fatal_fault" and e.server_pid == event.server_pid), None
    )
    if not brief:
        text += f", since {time.strftime('%H:%M:%S', time.localtime(event.time))}"
    if fault is not None and fault.time is not None and fault.time <= event.time:
        text += f", {format_age(event.time - fault.time)} after the fault"
    return text


def named_by_log(fault: ServerFault, clients: tuple[Client, ...], most: int | None = None) -> str:
    """Whom the log names, ``most`` of them, with user and command where they are known; no proof (fact 36)."""
    return _whom(fault, clients, most) + (_WORTH if fault.named else "")


def _whom(fault: ServerFault, clients: tuple[Client, ...], most: int | None) -> str:
    if not fault.named:
        return "whom server.log names is not known" if fault.cut else "server.log names no client"
    known = {client.pid: client for client in clients}
    named = []
    for pid in fault.named:
        client = known.get(pid)
        whose = owner(client.user, client.uid) if client else UNKNOWN
        about = ", ".join(part for part in (whose, client.command if client else "") if part and part != UNKNOWN)
        named.append(f"{pid} ({about})" if about else str(pid))
    return f"server.log names {nouns(len(named), 'client')} {listed(named, most)}"


def _who(report: FaultReport, width: int) -> Line:
    """Who still has to end, and whom the log names: what is cut is never what the name is worth."""
    fault, clients = report.fault, (*report.left, *report.unhurt)
    pids = [affected.pid for affected in fault.affected] if fault.confirmed else []
    still = f"still to end: {listed(pids, _NAMED)}; " if pids else ""
    users = tuple(replace(client, command=None) for client in clients)
    known = named_by_log(fault, clients), named_by_log(fault, users), named_by_log(fault, ())
    few = named_by_log(fault, (), _FEW)
    said = [(still, each) for each in known] + [("", known[2]), ("", few), ("", f"no proof: {_whom(fault, (), _FEW)}")]
    room = width - len(_INDENT)
    fits = (each for each in said if width_of(((each[0], ""), (each[1], ""))) <= room)
    first, why = next(fits, said[-1] if fault.named else said[-2])
    return (_INDENT, "text"), (first, "text"), (why, "warn")


def alert_lines(snapshot: Snapshot, daemon: Daemon, width: int, most: int, key: str = "!") -> list[Line]:
    """At most ``most`` lines; none where there is nothing to say. ``key`` opens what to do."""
    out: list[Line] = []
    if (whose := daemon.claimant(os.geteuid())) is not None:  # he may say it of whomever he likes
        failed = next((server for server in daemon.servers if "FAULT" in (server.status or "")), None)
        if failed is not None and most > 0:
            out.append(((" ? ", "dim"), (f"{whose}'s daemon says that server {failed.pid} is in FAULT", "dim")))
        return out
    for report in fault_reports(daemon, snapshot):
        said = report.fault.confirmed
        right: Line = (("  ", "text"), (key, "key"), (" what to do " if said else " more ", "text"))
        mark = (" ✕ FAULT ", "bad") if said else (" ▲ FAULT? ", "warn")
        left: Line = (mark, (report.summary, mark[1]))
        if most < 2 or width_of(left) + width_of(right) > width:
            left = (mark, (report.brief, mark[1]))
        out.append(justify(left, right, width))
        out.append(_who(report, width))
    for server in daemon.servers:
        if server.fault is None and "FAULT" in (server.status or ""):
            text = f"server {server.pid} is in FAULT and takes no new clients; no log says since when or why"
            out.append(((" ✕ FAULT ", "bad"), (text, "bad")))
    if not out and (event := recovery(snapshot, daemon)) is not None:
        out.append(((" ✓ RECOVERED ", "good"), (recovery_text(snapshot, event, brief=width < 100), "good")))
    return out[:most]


class Alert(LineWidget):
    """Takes no room while there is nothing to say."""

    DEFAULT_CSS = "Alert { height: 1; display: none; background: $surface; }"

    def __init__(self) -> None:
        super().__init__(id="alert")
        self._snapshot: Snapshot | None = None
        self._daemon: Daemon | None = None

    def take(self, snapshot: Snapshot | None, daemon: Daemon | None) -> int:
        """What to show from now on; returns how many lines it takes."""
        self._snapshot, self._daemon = snapshot, daemon
        width, height = room_of(self.screen)
        if snapshot is None or daemon is None:
            return 0
        return len(alert_lines(snapshot, daemon, width, 2 if height >= _TALL else 1))

    def lines(self, width: int, height: int) -> list[Line]:
        if self._snapshot is None or self._daemon is None:
            return []
        key = shown_key(cast("Host", self.app).keymap, "fault", "!")
        return alert_lines(self._snapshot, self._daemon, width, height, key)
