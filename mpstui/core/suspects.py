"""Who may make a node's faults: whoever was there each time, by user and command. Pure.

The log names the wrong client among busy neighbours, the kernel too, all lost clients get their error at the same
moment, and core dumps are written by the innocent ones (facts 36, 37, 39). What remains is to compare faults, and to
run the suspects apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from mpstui.core.model import EMPTY, Event, Source, Suspect
from mpstui.core.text import MASKED, client_pids, listed, owner, plural

START: Final = "mpstui daemon start --pipe-dir /run/mps-suspect --log-dir /var/log/mps-suspect"
"""Starts a daemon of its own for a suspect."""
RUN: Final = "CUDA_MPS_PIPE_DIRECTORY=/run/mps-suspect COMMAND"
ADVICE: Final = (
    "Run the suspects one at a time, each alone in a daemon of its own: a fault there takes nobody else, and "
    "nobody else can have made it.",
    "Or run a suspect alone under compute-sanitizer: it tells which kernel makes an illegal access, and is slow.",
    "Core dumps do not help: the innocent clients write them, and the one that made the fault does not.",
)
_LEADERS: Final = 4


class Ranked(NamedTuple):
    """A user's program, and at how many faults it was."""

    uid: int | None
    user: str | None
    program: str | None
    """The command up to its first option; None where no command of this user is known."""
    seen: int
    """Faults at which it was."""
    perhaps: int
    """More faults at which this user had a client whose command is not known."""
    faults: int
    """That were compared."""
    named: int
    """Faults at which server.log named it; no proof, and no part of the order."""
    pids: tuple[int, ...]
    """The clients, in the order of the faults."""

    @property
    def most(self) -> int:
        return self.seen + self.perhaps

    @property
    def presence(self) -> str:
        """``in 3 of 3``; ``in 1 to 3 of 3`` where of some of its user's clients the command is not known."""
        return f"in {self.seen}{f' to {self.most}' if self.perhaps else ''} of {self.faults}"

    @property
    def owner(self) -> str:
        return owner(self.user, self.uid)

    @property
    def text(self) -> str:
        return f"{self.owner}, {self.program or 'command not known'}"


class Ranking(NamedTuple):
    """All that the faults of a history have in common."""

    faults: tuple[Event, ...]
    ranked: tuple[Ranked, ...]
    """Who was at most faults comes first."""
    strangers: int
    """Faults with a suspect of whom not even the user is known."""
    untold: int = 0
    """The most faults at which one user had a client whose command is not known: another one may have been there."""
    of_users: Mapping[str, int] = EMPTY
    """At how many faults a user had a client, whatever its command."""
    source: Source = "real"
    """Whether one of them is a simulated node's."""

    @property
    def unseen(self) -> int:
        """Faults of which nothing tells who was there."""
        return sum(not fault.suspects for fault in self.faults)

    @property
    def leaders(self) -> tuple[Ranked, ...]:
        """Those that were at most faults; more than one is a tie."""
        best = self.ranked[0].most if self.ranked else 0
        return tuple(each for each in self.ranked if each.most == best)

    @property
    def sentence(self) -> str:
        """What the comparison comes to."""
        count, leaders = len(self.faults), self.leaders
        if not count:
            return "No fatal fault is in the history."
        if not leaders:
            return f"{plural(count, 'fault')}, and neither user nor command of any client there is known."
        who = "; ".join(each.text for each in leaders[:_LEADERS])
        who += f"; and {len(leaders) - _LEADERS} more" if len(leaders) > _LEADERS else ""
        if count == 1:
            return f"One fault so far; any client that was there may have made it: {who}. A second fault can tell more."
        best, second = leaders[0].most, max((e.most for e in self.ranked if e.most < leaders[0].most), default=0)
        text = f"{leaders[0].presence.capitalize()} faults: {who}"
        if len(leaders) > 1:
            least = "up to " if any(each.perhaps for each in leaders) else ""
            text = f"Equal: each was there at {least}{best} of {count} faults: {who}"
        blind = self.strangers or self.unseen  # whoever is not known may have been there
        first = {each.owner for each in leaders}
        others = {user: seen for user, seen in self.of_users.items() if user not in first}
        text += "; no other " + ("command " if max(others.values(), default=0) > second else "user or command ")
        text += "is known to have been there at " if blind or self.untold > second else "was there at "
        text += f"more than {second}." if second else "any of them."
        return text if blind else text + self._of_each_time(best, others)

    def _of_each_time(self, best: int, others: Mapping[str, int]) -> str:
        """Who was there each time beside the leaders, who were at ``best`` faults, by different commands."""
        count = len(self.faults)
        users = self.of_users if best < count else others
        each_time = listed([user for user, seen in users.items() if seen == count], _LEADERS)
        if best == count:
            return f" A client of {each_time} was there each time too." if each_time else ""
        if each_time:
            return f" No command was there each time, but a client of {each_time} was."
        return " Nobody was there each time: there may be more than one cause."

    @property
    def notes(self) -> tuple[str, ...]:
        """What the comparison cannot tell."""
        out = []
        perhaps = sum(each.perhaps > 0 for each in self.leaders)
        if perhaps:
            out.append("Of some clients only the user is known: their faults count for each program of that user.")
        if self.strangers:
            unknown = [
                s.pid for f in self.faults for s in f.suspects if s.uid is None and s.user is None and s.command is None
            ]
            who = client_pids(sorted(dict.fromkeys(unknown)))
            out.append(f"At {plural(self.strangers, 'fault')} neither user nor command of {who} is known.")
        if self.unseen:
            out.append(f"At {plural(self.unseen, 'fault')} nothing tells which clients were there.")
        if self.faults:
            out.append("That a client was there does not prove that it caused the fault.")
        return tuple(out)


def program(command: str | None) -> str | None:
    """The command up to its first option, as a job is started again with others; ``-m module`` is kept. None where it
    is not known, as in a recording that masks all of them alike."""
    if not command or command == MASKED:
        return None
    words: list[str] = []
    for word in command.split():
        if words[-1:] == ["-m"]:
            words.append(word)
            break
        if word.startswith("-") and word != "-m" and words:
            break
        words.append(word)
    return " ".join(words) or None


def rank(events: Iterable[Event], users: Mapping[int | None, str | None] = EMPTY) -> Ranking:
    """Compares the fatal faults among the events, each told once. ``users``: names by UID, where an event has none."""
    faults = tuple({event.key: event for event in events if event.kind == "fatal_fault"}.values())
    found: dict[tuple[object, str | None], list[tuple[int, Suspect]]] = {}
    of_users: dict[object, set[int]] = {}
    strangers: set[int] = set()
    for number, fault in enumerate(faults):
        for suspect in fault.suspects:
            if suspect.uid is None and suspect.user is None and suspect.command is None:
                strangers.add(number)
                continue
            found.setdefault((_owner(suspect), program(suspect.command)), []).append((number, suspect))
            of_users.setdefault(_owner(suspect), set()).add(number)
    ranked = []
    for (whose, name), there in found.items():
        if name is None and any(other == whose and what is not None for other, what in found):
            continue  # counts for the user's programs
        numbers = {number for number, _ in there}
        unknown = {number for number, _ in found.get((whose, None), ())} if name is not None else set()
        named = {number for number, suspect in there if suspect.pid in faults[number].named}
        ranked.append(
            Ranked(
                uid=next((s.uid for _, s in there if s.uid is not None), None),
                user=next((s.user for _, s in there if s.user is not None), None) or users.get(there[0][1].uid),
                program=name,
                seen=len(numbers),
                perhaps=len(unknown - numbers),
                faults=len(faults),
                named=len(named),
                pids=tuple(dict.fromkeys(suspect.pid for _, suspect in there)),
            )
        )
    ranked.sort(key=lambda each: (-each.most, -each.seen, each.owner, each.program or ""))
    untold = max((len({n for n, _ in there}) for (_, name), there in found.items() if name is None), default=0)
    return Ranking(faults, tuple(ranked), len(strangers), untold, {e.owner: len(of_users[_owner(e)]) for e in ranked})


def faults_of(each: Ranked, faults: Sequence[Event]) -> list[tuple[Event, tuple[Suspect, ...]]]:
    """The faults at which it was, or perhaps was, with its clients."""
    found = []
    for fault in faults:
        mine = [s for s in fault.suspects if _owner(s) == _owner(each) and program(s.command) in {each.program, None}]
        if mine:
            found.append((fault, tuple(mine)))
    return found


def _owner(of: Suspect | Ranked) -> object:
    return of.uid if of.uid is not None else of.user
