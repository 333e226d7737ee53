"""The one-line bars of the overview: header, daemon tabs, problems, keys."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from textual import events
from textual.message import Message

from mpstui.core.cells import SEVERITY, client_count, health_word
from mpstui.core.late import dataclass
from mpstui.core.model import Daemon, Past, Problem, Snapshot
from mpstui.core.text import UNKNOWN, about, path_text, plural
from mpstui.ui.lines import Line, LineWidget, fit, hung, justify, width_of

_WORDY = 100
"""Cells from which a key says at length what it does."""
_SWITCH: Final[Line] = ((" ", "text"), (" [ ]", "key"), (" switch", "dim"))


def badge(past: Past) -> str:
    """What the header says all the time while the past is shown; with milliseconds where it stands at an event, as two
    of them may lie in one second."""
    part = "" if past.playing or past.at == int(past.at) else f".{int(past.at % 1 * 1000):03d}"
    return f" {past.what} {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(past.at))}{part} "


class Header(LineWidget):
    """Program, host, versions, the daemon's health, and the badges that must never be missed."""

    DEFAULT_CSS = "Header { height: 1; background: $surface; }"

    def __init__(self, *, read_only: bool) -> None:
        super().__init__(id="header")
        self._read_only = read_only
        self._snapshot: Snapshot | None = None
        self._daemon: Daemon | None = None
        self._paused: float | None = None

    def show(self, snapshot: Snapshot | None, daemon: Daemon | None, paused: float | None) -> None:
        self._snapshot, self._daemon, self._paused = snapshot, daemon, paused
        self.repaint()

    def lines(self, width: int, height: int) -> list[Line]:
        snapshot, daemon = self._snapshot, self._daemon
        badges: list[tuple[str, str]] = []
        if snapshot and snapshot.past:
            badges += [(" ", "text"), (badge(snapshot.past), "badge-loud")]
        if (snapshot and snapshot.source == "simulated") or (daemon and daemon.simulated):
            badges += [(" ", "text"), (" SIMULATED ", "badge-loud")]
        if self._read_only:
            badges += [(" ", "text"), (" READ-ONLY ", "badge")]
        if self._paused is not None:
            since = time.strftime("%H:%M:%S", time.localtime(self._paused))
            badges += [(" ", "text"), (f" FROZEN {since} ", "badge")]
        left: Line = ((" mpstui", "brand"), *badges)
        if snapshot is None:
            return [(*left, ("  looking for daemons …", "dim"))]
        clock = time.strftime("%H:%M", time.localtime(snapshot.time))
        host: Line = ((f"  {snapshot.host or UNKNOWN}", "bold"),)
        driver = f"  driver {snapshot.driver_version or UNKNOWN}"
        facts: list[Line] = [(*host, (driver, "dim"))]
        right: dict[str, Line] = {"clock": ((f"  {clock} ", "text"),)}
        if daemon is not None:
            version = f"MPS {daemon.version or UNKNOWN}"
            facts = [(*host, (f"{driver} · {version}", "dim")), (*host, (f"  {version}", "dim"))]
            word, style = _health(daemon, snapshot.past)
            errors = _errors(snapshot) if word.endswith(" ok") else ()
            known = not daemon.explained and daemon.servers_known
            ending = sum(server.ending for server in daemon.servers)
            told = f", {ending} ending" if 0 < ending < len(daemon.servers) else " ending" if ending else ""
            counts = f" · {plural(len(daemon.servers), 'server')}{told} · {client_count(daemon)}"
            if daemon.pending:
                counts += f" · {len(daemon.pending)} {'waits' if len(daemon.pending) == 1 else 'wait'}"
            right = {
                "directory": ((f"  {_shorten(path_text(daemon.pipe_dir), max(12, width // 4))}", "label"),),
                "health": ((f" {_daemon_alone(word) if errors else word}", style),),
                "errors": errors,
                "counts": ((counts if known else "", "text"),),
                **right,
            }
        return [_arrange(left, [*facts, host, ()], right, width)]


def _daemon_alone(word: str) -> str:
    """``● daemon ok``: beside errors ``ok`` says of whom it is said."""
    return word.replace(" ok", " daemon ok")


def _errors(snapshot: Snapshot) -> Line:
    """How many errors there are beside a daemon that answers: ``ok`` is said of that alone."""
    many = sum(problem.severity == "error" for problem in snapshot.problems)
    return ((f" ✕ {plural(many, 'error')}", "bad"),) if many else ()


def _health(daemon: Daemon, past: Past | None) -> tuple[str, str]:
    """Mark, word and style; of the past what was known then."""
    word, style = health_word(daemon, claimant=daemon.claimant(os.geteuid()))
    if past is not None and daemon.health == "unknown":  # nobody looks any more
        word = f"{UNKNOWN} {'by its log' if daemon.servers else 'not known at that time'}"
    if past is not None and past.gap is not None:
        word, style = f"{UNKNOWN} not recorded", "warn"
    return word, style


def _shorten(path: str, width: int) -> str:
    """The end of a path tells more than its beginning."""
    return path if len(path) <= width else "…" + path[-(width - 1) :]


def _arrange(left: Line, facts: list[Line], right: dict[str, Line], width: int) -> Line:
    """The longest of ``facts`` that there is room for, the host at least; then directory, clock and counts give way,
    then the host. Badges never do."""
    facts, right = list(facts), dict(right)
    give_way = ["directory", "clock", "counts", "host", "health"]
    while width_of(left) + width_of(facts[0]) + sum(map(width_of, right.values())) > width and (
        len(facts) > 2 or give_way
    ):
        if len(facts) > 2 or (spare := give_way.pop(0)) == "host":
            facts.pop(0)
        else:
            right.pop(spare, None)
    return justify((*left, *facts[0]), tuple(span for line in right.values() for span in line), width)


def brief_state(state: str) -> str:
    """A state's mark and one word, or two in capitals: ``✕ FAULT``, ``✕ CUT OFF``, ``— unknown``."""
    mark, word, *more = state.split()
    beside = "".join(f" {each}" for each in more[:1] if each.isupper())
    return f"{UNKNOWN} unknown" if mark == UNKNOWN else f"{mark} {word}{beside}"


class DaemonTabs(LineWidget):
    """One tab for each daemon, with its health, and a sign before the one in front."""

    DEFAULT_CSS = "DaemonTabs { height: 1; }"

    @dataclass
    class Picked(Message):
        pipe_dir: Path

    def __init__(self) -> None:
        super().__init__(id="tabs")
        self._daemons: Sequence[Daemon] = ()
        self._current: Path | None = None
        self._load: Path | None = None
        self._past: Past | None = None
        self._words: dict[Path, tuple[Daemon, Past | None, tuple[str, str]]] = {}
        """Of which daemon it was said how it is, and what."""

    def show(
        self, daemons: Sequence[Daemon], current: Path | None, load: Path | None, past: Past | None = None
    ) -> None:
        """``load``: the pipe directory of the daemon that was started for the load alone."""
        self._daemons, self._current, self._load, self._past = daemons, current, load, past
        self.repaint()

    def _tabs(self, width: int) -> list[tuple[Daemon, str]]:
        """The state in its words where there is room for those beside each whole name, otherwise in one word beside as
        much of the names as there is room for."""
        states = [self._said(daemon)[0] for daemon in self._daemons]
        whole = [f" {state} {self._label_of(d, width)} " for d, state in zip(self._daemons, states, strict=True)]
        if width_of(tuple((f" {text}", "") for text in whole)) + width_of(_SWITCH) <= width:
            return list(zip(self._daemons, whole, strict=True))
        briefs = [brief_state(state) for state in states]
        free = width - width_of(_SWITCH) - sum(width_of(((f"  {brief}  ", ""),)) for brief in briefs)
        room = free // max(1, len(briefs))
        return [(d, f" {brief} {self._label_of(d, room)} ") for d, brief in zip(self._daemons, briefs, strict=True)]

    def _said(self, daemon: Daemon) -> tuple[str, str]:
        """Word and style of its health; a daemon of which nothing new is known is the same object in each snapshot."""
        known = self._words.get(daemon.pipe_dir)
        if known is None or known[0] is not daemon or known[1] != self._past:
            known = self._words[daemon.pipe_dir] = daemon, self._past, _health(daemon, self._past)
        return known[2]

    def _label_of(self, daemon: Daemon, room: int) -> str:
        own = "◆ load " if daemon.pipe_dir == self._load else ""
        return own + _shorten(path_text(daemon.pipe_dir), max(8, room - len(own)))

    def lines(self, width: int, height: int) -> list[Line]:
        line: list[tuple[str, str]] = []
        there = {daemon.pipe_dir for daemon in self._daemons}
        self._words = {place: said for place, said in self._words.items() if place in there}
        for daemon, text in self._tabs(width):
            style, front = self._said(daemon)[1], daemon.pipe_dir == self._current
            line += [("▸" if front else " ", "accent"), (text, f"{style}+tab" if front else style)]
        return [(*line, *_SWITCH)]

    def on_click(self, event: events.Click) -> None:
        x = 1
        for daemon, text in self._tabs(self.size.width):
            if x <= event.x < x + width_of(((text, ""),)):
                self.post_message(self.Picked(daemon.pipe_dir))
            x += width_of(((text, ""),)) + 1


class ProblemBar(LineWidget):
    """The worst problem and what to do about it, and how many more there are: in one line where both have room in it,
    otherwise the remedy in one of its own."""

    DEFAULT_CSS = "ProblemBar { height: 1; }"

    def __init__(self) -> None:
        super().__init__(id="problems")
        self._problems: list[Problem] = []

    def take(self, problems: Sequence[Problem], width: int, most: int) -> int:
        """From now on these; how many lines they take, at most ``most``: two, and with more what there is no room for
        in those goes on."""
        order = ("error", "warning", "info")
        self._problems = sorted(problems, key=lambda p: order.index(p.severity))
        if not problems:
            return 0
        usual = 1 if most < 2 or self._fits(width) else 2
        lines = usual if most <= 2 else min(most, len(self._whole(width)))
        self.styles.height = lines
        return lines

    @property
    def _worst(self) -> tuple[str, str]:
        """What is wrong, and the remedy."""
        worst = self._problems[0]
        return about(worst.subject, worst.text), f"→ {worst.remedy}" if worst.remedy else ""

    @property
    def _more(self) -> str:
        return f" (and {len(self._problems) - 1} more) " if len(self._problems) > 1 else " "

    def _fits(self, width: int) -> bool:
        text, remedy = self._worst
        return not remedy or width_of(((f"    {text}  {remedy}{self._more}", ""),)) <= width

    def _whole(self, width: int) -> list[Line]:
        """In as many lines as it takes."""
        symbol, style = SEVERITY[self._problems[0].severity]
        text, remedy = self._worst
        mark, more = ((f"  {symbol} ", style),), (self._more, "dim")
        if not remedy or self._fits(width):
            return hung(mark, ((f"{text}  {remedy}".rstrip(), style), more), width)
        return [*hung(mark, ((text, style),), width), *hung((("    ", style),), ((remedy, style), more), width)]

    def lines(self, width: int, height: int) -> list[Line]:
        if not self._problems:
            return []
        if len(whole := self._whole(width)) <= height:
            return whole
        symbol, style = SEVERITY[self._problems[0].severity]
        text, remedy = self._worst
        mark, more = (f"  {symbol} ", style), (self._more, "dim")
        if height < 2 or self._fits(width):
            room = width - len(self._more) - 4
            return [(mark, (fit(f"{text}  {remedy}" if remedy else text, room), style), more)]
        return [
            (mark, (fit(text, width - 4), style)),
            (("    ", style), (fit(remedy, width - 4 - len(self._more)), style), more),
        ]


class KeyHint(NamedTuple):
    """One entry of the key bar."""

    key: str
    text: str
    action: str
    keep: int
    """The higher, the longer it stays where there is no room for all."""
    why: str | None = None
    """Why it does nothing now; None where it does something."""
    brief: str = ""
    """The text of a narrow screen, where that is another one."""

    @property
    def available(self) -> bool:
        return self.why is None

    @property
    def cells(self) -> int:
        """Its cells in the bar: a blank or a bracket on both sides, and a blank behind what is in brackets."""
        return len(self.key) + len(self.text) + (3 if self.available else 4)


def unless(holds: object, why: str) -> str | None:
    """The reason of a key that does something where this holds alone."""
    return None if holds else why


class KeyBar(LineWidget):
    """The keys at the foot, actions first; what cannot be used now is in brackets. A click does what the key does."""

    DEFAULT_CSS = "KeyBar { height: 1; background: $surface; }"

    @dataclass
    class Pressed(Message):
        action: str

    def __init__(self) -> None:
        super().__init__(id="keys")
        self._hints: Sequence[KeyHint] = ()
        self._hushed = False

    def hush(self, hushed: bool) -> None:
        """Show nothing while another screen is in front: its keys are other ones."""
        self._hushed = hushed
        self.repaint()

    def show(self, hints: Sequence[KeyHint]) -> None:
        if hints != self._hints:
            self._hints = hints
            self.repaint()

    @property
    def hints(self) -> Sequence[KeyHint]:
        """All of them, also those that do not fit."""
        return self._hints

    @property
    def seen(self) -> Sequence[KeyHint]:
        """Those that have room, in the order in which they stand: a click is on one of them."""
        return tuple(self._shown(self.size.width))

    @property
    def unseen(self) -> Sequence[KeyHint]:
        """Those that do something and have no room, the most useful first."""
        shown = {hint.action for hint in self._shown(self.size.width)}
        left = [hint for hint in self._hints if hint.available and hint.action not in shown]
        return sorted(left, key=lambda hint: -hint.keep)

    def _shown(self, width: int) -> list[KeyHint]:
        """What fits whole: keys that do nothing now go first, then those that matter least; what is short comes back
        into the room that a long one has left."""
        every = list(self._hints)
        if width < _WORDY:
            every = [hint._replace(text=hint.brief or hint.text) for hint in every]
        hints, left = list(every), list[KeyHint]()

        def free() -> int:
            return width - 1 - sum(h.cells for h in hints)

        while len(hints) > 2 and free() < 0:
            spare = [h for h in hints if not h.available] or hints
            left.insert(0, min(reversed(spare), key=lambda h: h.keep))
            hints.remove(left[0])
        for hint in left:
            if hint.available and hint.cells <= free():
                hints.append(hint)
        return [hint for hint in every if hint in hints]

    def lines(self, width: int, height: int) -> list[Line]:
        line: list[tuple[str, str]] = []
        last = ""
        for hint in () if self._hushed else self._shown(width):
            line.append((f"{last} " if hint.available else f"{last}(", "key-off"))
            line.append((hint.key, "key" if hint.available else "key-off"))
            line.append((f" {hint.text}", "text" if hint.available else "key-off"))
            last = " " if hint.available else ") "
        return [(*line, (last, "key-off"))]

    def on_click(self, event: events.Click) -> None:
        x = 1
        for hint in self._shown(self.size.width):
            if x <= event.x < x + hint.cells:
                self.post_message(self.Pressed(hint.action))
            x += hint.cells


class TooSmall(LineWidget):
    """What is shown where nothing else fits."""

    def lines(self, width: int, height: int) -> list[Line]:
        lines: list[Line] = [((" mpstui", "brand"),), ((" terminal too small", "warn"),), ((" q quits", "dim"),)]
        return lines[:height]
