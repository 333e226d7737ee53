"""The filter of the events: ``client:1877 since:10m kind:fault text``, every term must match. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from mpstui.core.model import Event
from mpstui.history.when import parse_time

_TIMES = ("since", "until")
TERMS = "text  client:1877  kind:fault  since:10m  until:21:30  server:1402  !text"


def pids_of(event: Event) -> set[str]:
    """Every process that the event is about: the one that did or suffered it, and those that a fault took."""
    found = {*event.values.get("clients", "").split(), *(str(suspect.pid) for suspect in event.suspects)}
    return found | ({str(event.pid)} if event.pid is not None else set())


@dataclass(frozen=True, slots=True)
class EventFilter:
    """A term ``name:text`` looks in one field, ``!term`` excludes, other text is looked for in all.

    Times are as on the command line; they are fixed when the filter is made, so that ``since:10m`` stays put.
    """

    text: str = ""
    since: float | None = None
    until: float | None = None
    trouble: str | None = None
    """What is wrong with a time; the term is then left out."""
    _terms: tuple[tuple[bool, str, str], ...] = field(default=())

    @staticmethod
    def parse(text: str, now: float) -> EventFilter:
        """``now`` is what ``since:10m`` counts from."""
        terms: list[tuple[bool, str, str]] = []
        times: dict[str, float] = {}
        trouble = None
        for word in text.split():
            wanted, term = not word.startswith("!"), word.removeprefix("!")
            name, colon, value = term.partition(":")
            if not colon or name not in {*_TIMES, "client", "kind", "server"}:
                name, value = "", term
            if not value:
                continue
            if name in _TIMES:
                try:
                    times[name] = parse_time(value, now)
                except ValueError:
                    trouble = f"{value} is no time: 10m, 21:29:12 or 2026-11-20T21:29 is one"
                continue
            terms.append((wanted, name, value.lower()))
        return EventFilter(text, times.get("since"), times.get("until"), trouble, tuple(terms))

    def __bool__(self) -> bool:
        return bool(self.text.strip())

    def matches(self, event: Event, shown: str) -> bool:
        """Whether the event passes; ``shown`` is its line on the screen."""
        if self.since is not None and (event.time is None or event.time < self.since):
            return False
        if self.until is not None and (event.time is None or event.time > self.until):
            return False
        for wanted, name, value in self._terms:
            if name == "client":
                hit = value in pids_of(event)
            elif name == "kind":
                hit = value in event.kind
            elif name == "server":
                hit = str(event.server_pid or "").startswith(value)
            else:
                hit = value in shown.lower() or value in event.raw.lower()
            if hit is not wanted:
                return False
        return True
