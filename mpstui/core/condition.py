"""How a daemon is: the cause, since when, by whom, what follows, what frees it. Made here alone, shown everywhere.

The words are complete sentences or clauses of one: whoever shows a condition adds none of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from mpstui.core.model import NOT_SPOKEN, Cause, Condition, Daemon, Health, ProcessKey, SessionHolder, Snapshot
from mpstui.core.text import UNKNOWN, client_pids, format_age, listed, owner, printable


class _Words(NamedTuple):
    health: Health
    title: str = ""
    meaning: str = ""
    works: str = ""


_BLOCKED: Final = _Words(
    "blocked",
    "The daemon does not answer",
    "A command sent to it earlier has not come back. Until it does, every other command waits, and so does every "
    "new CUDA client.",
    "Clients that are connected run on.",
)
_WORDS: Final[Mapping[Cause, _Words]] = {
    "none": _Words("ok"),
    "unasked": _Words("unknown"),
    "starting": _Words("unknown"),
    "busy": _Words("unknown"),
    "not_asked": _Words("unknown"),
    "not_found": _Words("unknown"),
    "not_spoken": _Words("ok"),
    "held": _Words(
        "held",
        "Somebody keeps a control session open",
        "The daemon serves one session at a time, so every other command to it fails until that session ends.",
        "Clients run on and new ones connect.",
    ),
    "terminated_twice": _BLOCKED,
    "quitting": _Words(
        "blocked",
        "The daemon is told to quit",
        "It ends when its servers have ended. Until then it takes no command, and every new CUDA client waits.",
        "Clients that are connected run on.",
    ),
    "silent": _BLOCKED,
    "gone": _Words(
        "stale",
        "Files of a daemon, and no daemon",
        "The directory has files of a control daemon, but no daemon serves them. A CUDA program that "
        "starts runs without MPS, and no error says so.",
    ),
    "closed": _Words(
        "unknown",
        "The directory is closed to you",
        "It is not known if a control daemon runs there, and how it is.",
    ),
    "absent": _Words(
        "absent",
        "There is no control daemon here",
        "A CUDA program that starts runs without MPS, and no error says so.",
    ),
}


def meaning_of(health: Health) -> str:
    """What such a daemon's state is and what follows, where its cause is not known; sentences."""
    words = next(words for words in _WORDS.values() if words.health == health)
    return f"{words.title}. {words.meaning}"


_UNASKED: Final = "whether it answers is not known yet: it has answered no question so far"
NOT_FOUND: Final = "it runs, but nvidia-cuda-mps-control does not find it"
STARTING: Final = "it does not have its sockets yet"
_NOT_ALONE: Final = "End no process only because this daemon names it."
_ASK: Final = "Ask the daemon's user, or start a new daemon in another directory."


class Moment(NamedTuple):
    """When a daemon was last tried, and when it last answered; seconds since the epoch."""

    tried: float | None = None
    answered: float | None = None

    @property
    def age(self) -> str:
        """How old what is shown of it is, as the end of a clause; nothing where it is of now."""
        if self.tried is None or self.answered is None or self.tried - self.answered < 1:
            return ""
        return f"; the values shown are at least {format_age(self.tried - self.answered)} old"


_NOW: Final = Moment()


def _condition(cause: Cause, detail: str | None, remedy: str | None, moment: Moment = _NOW) -> Condition:
    words = _WORDS[cause]
    return Condition(
        words.health,
        cause,
        words.title,
        detail,
        words.meaning,
        remedy,
        works=words.works,
        answered_at=moment.answered if words.health != "ok" else None,
    )


def ok(detail: str | None = None) -> Condition:
    """It answers."""
    return _condition("none", detail or None, None)


def unasked(detail: str, moment: Moment) -> Condition:
    """It runs, and no command has come back from it yet: nothing is known of whether it answers."""
    return _condition("unasked", "; ".join(filter(None, (detail, _UNASKED))), None, moment)


def starting() -> Condition:
    """It runs since a moment ago, and nobody can come to it yet."""
    return _condition("starting", STARTING, None)


def untold(detail: str) -> Condition:
    """Whether one runs is not known, nor how it is: nobody can be asked, and no log tells."""
    return _condition("unasked", detail, None)


def closed(detail: str, remedy: str) -> Condition:
    """Who asks may not look whether one runs there."""
    return _condition("closed", detail, remedy)


def absent(detail: str, remedy: str, since: float | None = None) -> Condition:
    """Nothing there. ``remedy``: how one is started. ``since``: when the last one ended, where that is known."""
    found = _condition("absent", detail or "no control daemon there", remedy)
    return replace(found, since=since, frees="daemon_start")


def gone(detail: str, remedy: str, since: float | None = None, moment: Moment = _NOW) -> Condition:
    """Files of a daemon that is no more (fact 3)."""
    text = detail or "the files of a control daemon that is gone"
    return replace(_condition("gone", text, remedy, moment), since=since, frees="daemon_start")


def terminated_twice(client: ProcessKey, since: float | None, moment: Moment) -> Condition:
    """Blocked by a second terminate_client for one process (fact 16)."""
    detail = f"a second terminate_client waits for client {client.pid}, whose process still lives"
    remedy = f"End process {client.pid}, with mpstui unblock or, on the screen, u. The daemon goes on at once."
    found = _condition("terminated_twice", detail + moment.age, remedy, moment)
    return replace(found, since=since, ends=(client,), frees="unblock")


def cut_off(found: Condition, by: str) -> Condition:
    """The same of a daemon whose sockets are not, or not all, its own; ``by``: what is in their place, one clause.
    It is said beside whatever else is known of how it is; that a command came to nobody is :func:`unreached`."""
    known = found.detail or ""
    told = known if by in known or found.health not in {"ok", "unknown"} else "; ".join(filter(None, (by, known)))
    return replace(found, cut_off=True, detail=told)


def as_claimed(found: Condition) -> Condition:
    """The same where the daemon's word is not enough to end a process, or nothing proves that it is the one that the
    daemon's log accuses: no remedy asks for the end of a process on a log's word."""
    if found.cause == "held":
        return replace(found, remedy="Ask its user to close that session; clients still connect meanwhile.")
    if found.cause == "silent":
        return replace(found, remedy=f"{_NOT_ALONE} {_ASK}")
    pid = found.ends[0].pid
    claim = f"it answers nobody; its log says that client {pid} was told to end twice"
    return replace(
        found,
        detail=f"{claim}, and nothing proves that process {pid} here is that client or its user's",
        remedy=f"{_NOT_ALONE} {_ASK}",
    )


def quitting(waits_for: Sequence[ProcessKey], since: float | None, moment: Moment) -> Condition:
    """Told to quit. With its last client a daemon is not gone yet: it looks at its servers again after 12.8 s at most
    (fact 19)."""
    detail = "told to quit, and its last client has ended; it takes no command"
    remedy = "It ends its servers when it looks at them again, in some seconds. Then start a new daemon."
    if waits_for:
        pids = [key.pid for key in waits_for]
        detail = f"told to quit; it waits for {client_pids(pids)} and takes no command"
        remedy = "The daemon ends when they have ended. To use MPS here again, start a new daemon then."
    found = _condition("quitting", detail + moment.age, remedy, moment)
    return replace(found, since=since, ends=tuple(waits_for))


def silent(message: str, terminated: Sequence[int], ending: bool, moment: Moment) -> Condition:
    """It answers nobody, and why is not known. ``terminated``: clients that were told to end and whose processes live;
    ``ending``: a server was told to end."""
    remedy = (
        "See control.log for the command that it runs. If it waits for a client, end that client: it answers again."
    )
    if terminated:
        remedy = f"A terminated client whose process lives is the likely cause: end process {listed(terminated)}."
    elif ending:
        remedy = "It is told to quit and waits for its clients to end."
    return _condition("silent", (message or "it does not answer").rstrip(".") + moment.age, remedy, moment)


def held(holder: SessionHolder | None, message: str, since: float | None, moment: Moment) -> Condition:
    """Somebody keeps its one session (fact 2). A process that is only the likely one is not to be ended by a key."""
    who = f"process {holder.pid}" if holder else "the process that does"
    remedy = f"Close that session, or end {who}; clients still connect meanwhile."
    detail = (message or "a control session is kept open").rstrip(".")
    found = replace(_condition("held", detail + moment.age, remedy, moment), since=since, holder=holder)
    certain = holder is not None and holder.certain
    return replace(found, ends=(holder.key,), frees="unblock") if holder is not None and certain else found


def busy(message: str, moment: Moment) -> Condition:
    """Sessions of others, one after the other."""
    text = message.rstrip(".") + moment.age
    return _condition("busy", text, "Wait until they are over; mpstui asks again by itself.")


def not_asked(message: str, moment: Moment, *, unreadable: bool = False) -> Condition:
    """There is no control binary, or what it prints is no answer (``unreadable``)."""
    remedy = "Put nvidia-cuda-mps-control on PATH or its path in MPSTUI_CONTROL_BINARY."
    if unreadable:
        remedy = "What was run is not this driver's nvidia-cuda-mps-control: see MPSTUI_CONTROL_BINARY and PATH."
    return _condition("not_asked", message.rstrip(".") + moment.age, remedy)


def unreached(why: str, remedy: str, moment: Moment) -> Condition:
    """It runs, and the last command came to nobody: ``why``, what is in the place of its sockets. How one is in whose
    place somebody answers is another condition; :func:`cut_off` marks both."""
    return _condition("not_asked", why + moment.age, remedy)


def not_found(detail: str, remedy: str, moment: Moment) -> Condition:
    """It runs, as is seen, and the control program finds none there; ``detail``: what is seen of it, one clause."""
    text = "; ".join(filter(None, (NOT_FOUND, detail)))
    return _condition("not_found", text + moment.age, remedy)


def not_spoken(reason: str) -> Condition:
    """It runs in a mode whose answers this program does not understand, for this ``reason``."""
    such = "" if reason == NOT_SPOKEN else ", such as nvidia-cuda-mps-control server list and … client list"
    return _condition("not_spoken", reason, f"Use the daemon's own commands{such}.")


def describe_holder(holder: SessionHolder) -> str:
    """One sentence that names the process which keeps the session."""
    likely = "" if holder.certain else " most likely"
    on = on_terminal(holder)
    whose = "user unknown" if holder.user is None and holder.uid is None else _user(holder.user, holder.uid)
    return f"A control session is{likely} kept open by PID {holder.pid}, {whose}{on}."


def on_terminal(holder: SessionHolder) -> str:
    """Where to look for it, behind what it is; nothing where it has no terminal."""
    return f" on {printable(holder.terminal)}" if holder.terminal else ""


def still_works(snapshot: Snapshot, daemon: Daemon | None) -> str:
    """What goes on while no daemon can be asked there, and what of the screen is of now; sentences. Nothing is said to
    be live that is not read."""
    live = ["devices"] if snapshot.devices and snapshot.nvml_detail is None else []
    if daemon is None or not daemon.runs:
        return "The values of the devices, from NVML, are live." if live else ""
    live += ["events"] if daemon.watch == "logs" else []
    read = f"{' and '.join(live).capitalize()} are live." if live else ""
    return " ".join(filter(None, (daemon.condition.works, read)))


def by_whom(daemon: Daemon) -> str | None:
    """Who makes it so: the process that holds the session, or the client that was terminated twice."""
    found = daemon.condition
    if (holder := found.holder) is not None:
        likely = "" if holder.certain else " (probably this one: its environment cannot be read)"
        return f"process {holder.pid}, {_user(holder.user, holder.uid)}{on_terminal(holder)}{likely}"
    if found.cause == "terminated_twice":
        client = daemon.find_client(found.ends[0])
        whose = f", {_user(client.user, client.uid)}: {client.command or UNKNOWN}" if client else ""
        return f"client {found.ends[0].pid}{whose}"
    return None


def _user(user: str | None, uid: int | None) -> str:
    known = owner(user, uid)
    return known if known == f"UID {uid}" else f"user {known}"
