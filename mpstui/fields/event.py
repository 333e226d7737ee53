"""What a problem and an event have, and whom a fault is put down to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import localtime, strftime
from typing import Final

from mpstui.core.cells import SEVERITY as SEVERITY_MARKS
from mpstui.core.cells import (
    gpu_label,
    with_indices,
    with_short_uuids,
)
from mpstui.core.model import (
    Event,
    EventKind,
    Problem,
    Severity,
    Source,
    Suspect,
    server_devices,
)
from mpstui.core.suspects import ADVICE, RUN, START, Ranked, Ranking
from mpstui.core.text import (
    UNKNOWN,
    Line,
    owner,
    path_text,
    printable,
)
from mpstui.core.xid import meaning
from mpstui.fields.common import gpu_name, heading, user_cell, when
from mpstui.fields.rows import (
    FLAG,
    INTEGER,
    INTEGERS,
    OBJECTS,
    SCHEMA,
    TEXT,
    TEXTS,
    TIME,
    Column,
    Detail,
    Fact,
    Field,
    Metric,
    Text,
    Thing,
    Type,
    View,
    enum,
)
from mpstui.history.times import local_text

PROBLEM: Final[Thing[Problem]] = Thing(
    "problem",
    "Something an admin should know, and what to do about it.",
    (
        Field("severity", "severity", enum(Severity), lambda p, v: p.severity),
        Field(
            "code", "code", TEXT, lambda p, v: p.code, about="What kind of problem it is; stable.",
            metric=Metric("problems", "Problems that mpstui shows, by severity and code.", lambda p, v: 1),
        ),
        Field("subject", "subject", TEXT, lambda p, v: p.subject),
        Field("text", "text", TEXT, lambda p, v: p.text),
        Field("remedy", "remedy", TEXT, lambda p, v: p.remedy),
        Field(
            "uid", "UID", INTEGER, lambda p, v: p.uid, null=True,
            about="Of another user's daemon: that user, who may have made it up; -1: an unknown user, who is not root; "
            "null: it is about root's daemon, your own or the node.",
        ),
    ),
)  # fmt: skip


SUSPECT: Final[Thing[Suspect]] = Thing(
    "suspect",
    "A client that may have caused a fault, as far as was known at the time.",
    (
        Field("pid", "PID", INTEGER, lambda s, v: s.pid),
        Field("uid", "UID", INTEGER, lambda s, v: s.uid, null=True),
        Field("user", "user", TEXT, lambda s, v: s.user, null=True),
        Field("command", "command", TEXT, lambda s, v: s.command, null=True),
    ),
)


RANKED: Final[Thing[Ranked]] = Thing(
    "ranked",
    "A user's program, and the number of faults at which it had a client.",
    (
        Field("uid", "UID", INTEGER, lambda r, v: r.uid, null=True),
        Field("user", "user", TEXT, lambda r, v: r.user, null=True, column=Column(20, 11, 2, cell=user_cell)),
        Field(
            "command", "command", TEXT, lambda r, v: r.program, null=True, about="The command up to its first option.",
            column=Column(30, 16, 3, style="text"),
        ),
        Field(
            "faults", "faults", INTEGER, lambda r, v: r.seen, about="The faults at which it had a client.",
            column=Column(10, 13, 1, cell=lambda r, v, cells: ((r.presence.removeprefix("in "), "plain"),)),
        ),
        Field(
            "perhaps", "perhaps", INTEGER, lambda r, v: r.perhaps,
            about="More faults at which this user had a client whose command is not known.",
        ),
        Field(
            "named", "named", INTEGER, lambda r, v: r.named,
            about="Faults at which server.log named it. That is no proof, and the order does not use it.",
        ),
        Field("pids", "PIDs", INTEGERS, lambda r, v: r.pids, about="The clients, in the order of the faults."),
    ),
)  # fmt: skip


SUSPECTS: Final[Thing[Ranking]] = Thing(
    "suspects",
    "Who had a client at each fatal fault, the most frequent first.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda r, v: SCHEMA),
        Field("source", "source", enum(Source), lambda r, v: r.source),
        Field("faults", "faults", INTEGER, lambda r, v: len(r.faults)),
        Field(
            "tied", "tied", INTEGER, lambda r, v: len(r.leaders), about="How many were at as many faults as the first."
        ),
        Field("suspects", "suspects", OBJECTS, lambda r, v: r.ranked, of=RANKED),
        Field("text", "text", TEXT, lambda r, v: r.sentence),
        Field("notes", "notes", TEXTS, lambda r, v: r.notes),
        Field("advice", "advice", TEXTS, lambda r, v: [*ADVICE, START, RUN] if r.ranked else []),
    ),
)


EVENT_SEVERITY: Final[Mapping[EventKind, Severity]] = {
    "daemon_exited": "error",
    "server_exited": "warning",
    "server_failed": "error",
    "server_error": "error",
    "daemon_error": "error",
    "connection_failed": "warning",
    "debuggee": "warning",
    "client_evicted": "error",
    "limit_ignored": "warning",
    "server_shutdown_waiting": "warning",
    "client_pending": "warning",
    "client_refused": "error",
    "terminate_requested": "warning",
    "terminate_succeeded": "warning",
    "fatal_fault": "error",
    "xid": "warning",
}
"""How bad an event is, by its kind; ``info`` where it is not listed."""
NOISE: Final[frozenset[EventKind]] = frozenset(("session_opened", "session_closed", "command", "client_admitted"))
"""Kinds that each look at the daemon writes, ours or another monitor's (fact 8)."""
_COMMAND_IN_EVENT: Final = 20
"""Characters of a command in a line of the screen: what happened comes behind it. More where the line is longer than
what is usually said besides."""
_BESIDE_COMMAND: Final = 56
_WITH_MILLISECONDS: Final = 14
"""Cells from which the time of an event is told to the millisecond."""


def severity(event: Event) -> Severity:
    """How bad it is."""
    return EVENT_SEVERITY.get(event.kind, "info")


def pids_of(event: Event) -> set[str]:
    """Every process that the event is about: the one that did or suffered it, those that a fault took, and whom the
    log names."""
    found = {*event.values.get("clients", "").split(), *(str(suspect.pid) for suspect in event.suspects)}
    found |= {*map(str, event.named)}
    return found | ({str(event.pid)} if event.pid is not None else set())


def _severity_cell(event: Event, view: View, cells: int) -> Line:
    return (SEVERITY_MARKS[severity(event)],)


def _clock_cell(event: Event, view: View, cells: int) -> Line:
    """The time of day; what has another date says so beside its row."""
    if event.time is None:
        return ((UNKNOWN, "dim"),)
    seconds, thousandths = divmod(round(event.time * 1000), 1000)  # .112 is .1119999 as a float
    clock = strftime("%H:%M:%S", localtime(seconds))
    return ((f"{clock}.{thousandths:03d}" if cells >= _WITH_MILLISECONDS else clock, "dim"),)


def _sentence_cell(event: Event, view: View, cells: int) -> Line:
    """The log's sentence with the user's name, and with indices in place of UUIDs. Where the cells are few it has less
    of a UUID that NVML does not know, and of the command, before what happened is cut."""
    user = view.users.get(event.pid) if event.pid is not None else None

    def told(most: int) -> str:
        text = printable(event.sentence(user, most) or event.kind.replace("_", " "))
        return with_indices(text, view.indices)

    usual = max(_COMMAND_IN_EVENT, cells - _BESIDE_COMMAND)
    text = told(usual)
    if len(text) > cells and (shorter := with_short_uuids(text)) != text:
        over = len(shorter) - cells
        text = with_short_uuids(told(min(len(event.command or ""), usual) - max(0, over)))
    elif event.command and (over := len(text) - cells) > 0:
        text = told(min(len(event.command), usual) - over)
    return ((text, "plain"),)


def _event_user_hit(event: Event, view: View, text: str) -> bool:
    user = event.user or (view.users.get(event.pid) if event.pid is not None else None)
    return text in (user or "").lower()


def _event_gpu_hit(event: Event, view: View, text: str) -> bool:
    """By NVML's index, by the first characters of a UUID, or by the ordinal where the log tells that alone."""
    if text.startswith(("gpu-", "mig-")):
        return any(uuid.lower().startswith(text) for uuid in event.devices)
    return any(text in {gpu_label(uuid, view.indices), uuid} for uuid in event.devices)


def _is_fault(event: Event) -> bool:
    return event.kind == "fatal_fault"


def _suspect_facts(event: Event, view: View) -> Iterable[Fact]:
    """Who may have made a fault; what the log names is no proof (fact 36)."""
    for suspect in event.suspects:
        named = "  ◀ no proof: named by server.log" if suspect.pid in event.named else ""
        yield Fact(str(suspect.pid), f"{owner(suspect.user, suspect.uid)}  {suspect.command or UNKNOWN}{named}")
    if event.suspects:
        yield Fact("", "The screen Suspects shows which of them were at the other faults too.")


_VALUES: Final = {
    "command": "control command",
    "named": "named by server.log",
    "clients": "clients lost",
    "xid": "Xid",
    "claimed_by": "claimed by",
    "cut": "begin not in the log",
}
"""What a value of an event is called in its details, where its name alone does not tell."""


def _value_words(name: str, value: str) -> str:
    if name == "claimed_by":
        return owner(None, int(value))
    if name in {"cut", "simulated", "unmarked"}:
        return "yes"
    if name == "named" and value:
        return f"{value}, not proof"
    if name == "xid":
        numbers = [number for number in value.split() if number.isdecimal() and len(number) < 10]
        return "; ".join(f"{number}: {meaning(int(number))}" for number in numbers) or UNKNOWN
    return value or UNKNOWN


def _known(label: str, value: object) -> tuple[Fact]:
    return (Fact(label, UNKNOWN if value is None or value == "" else str(value)),)


def _device_name(view: View, device: str) -> str:
    """The server's own numbers are not NVML's (fact 11)."""
    return server_devices((device,)) if device.isdecimal() else gpu_name(view, device)


EVENT: Final[Thing[Event]] = Thing(
    "event",
    "Something that happened, with its line of the log.",
    (
        Field(
            "time", "time", TIME, lambda e, v: e.time, null=True,
            column=Column(10, 10, 90, cell=_clock_cell), row=Text(10, "TIME", lambda e, v: local_text(e.time), 24),
            detail=Detail("event", 10, facts=lambda e, v: (Fact("time", when(e.time, v)),)),
        ),
        Field(
            "kind", "kind", enum(EventKind), lambda e, v: e.kind,
            column=Column(
                30, 23, 50, hidden=True, cell=lambda e, v, cells: ((e.kind.replace("_", " "), "label"),)
            ),
            row=Text(20, "KIND", width=24),
            detail=Detail("event", 20, facts=lambda e, v: (Fact("kind", e.kind.replace("_", " "), "bold"),)),
        ),
        Field(
            "daemon", "daemon", TEXT, lambda e, v: v.place, null=True, about="Its pipe directory.",
            detail=Detail(
                "event", 40, facts=lambda e, v: _known("daemon", e.pipe_dir and path_text(e.pipe_dir))
            ),
            matches=lambda e, v, text: e.pipe_dir is not None and text in path_text(e.pipe_dir).lower(),
        ),
        Field(
            "server_pid", "server", INTEGER, lambda e, v: e.server_pid, null=True, detail=Detail("event", 50),
            word="server",
        ),
        Field(
            "pid", "client", INTEGER, lambda e, v: e.pid, null=True, about="The process that it is about.",
            detail=Detail("event", 60), word="client", matches=lambda e, v, text: text in pids_of(e),
        ),
        Field("context_id", "context", INTEGER, lambda e, v: e.context_id, null=True, detail=Detail("event", 90)),
        Field(
            "devices", "devices", TEXTS, lambda e, v: e.devices, about="UUIDs, or the server's ordinals.",
            word="gpu", matches=_event_gpu_hit,
            detail=Detail(
                "event", 100,
                facts=lambda e, v: (
                    *_known("devices", ", ".join(_device_name(v, device) for device in e.devices)),
                    *(Fact(_VALUES.get(name, name), _value_words(name, value)) for name, value in e.values.items()),
                ),
            ),
        ),
        Field(
            "detail", "what", TEXT, lambda e, v: e.detail,
            column=Column(40, 20, 99, cell=_sentence_cell),
            row=Text(30, "WHAT", lambda e, v: e.sentence() or e.raw or UNKNOWN),
            detail=Detail("event", 30, facts=lambda e, v: _known("what", with_indices(e.detail, v.indices))),
        ),
        Field(
            "raw", "line of the log", TEXT, lambda e, v: e.raw,
            detail=Detail("raw", 10, facts=lambda e, v: _known("", e.raw)),
        ),
        Field(
            "uid", "UID", INTEGER, lambda e, v: e.uid, null=True,
            about="The user of that process, or the one that the server is for.",
        ),
        Field(
            "user", "user", TEXT, lambda e, v: e.user, null=True,
            detail=Detail("event", 70, facts=lambda e, v: _known("user", e.user if e.user is not None else e.uid)),
            matches=_event_user_hit,
        ),
        Field(
            "command", "command", TEXT, lambda e, v: e.command, null=True, detail=Detail("event", 80), word="cmd",
        ),
        Field(
            "severity", "severity", enum(Severity), lambda e, v: severity(e), about="How bad such an event is.",
            column=Column(20, 2, 95, cell=_severity_cell),
        ),
        Field(
            "claimed_by", "claimed by", INTEGER,
            lambda e, v: int(e.values["claimed_by"]) if "claimed_by" in e.values else None, null=True,
            about="Where another user wrote the logs, and may have made it up: that user's UID; -1: an unknown user, "
            "who is not root. Only “mpstui events” has it.",
        ),
        Field(
            "source", "source", enum(Source), lambda e, v: "simulated" if "simulated" in e.values else "real",
            about="simulated: a simulated node wrote that part of the logs, as the files mpstui-simulated and "
            "mpstui-simulated.starts beside them tell: from its daemon's start on until another daemon starts. "
            "real: there is no such mark, nor can there be one where source_known is false.",
        ),
        Field(
            "source_known", "source known", FLAG, lambda e, v: "unmarked" not in e.values,
            about="false: it is read from standard input or the journal, where nothing tells whether a simulated node "
            "wrote it, and source is real all the same.",
        ),
        Field(
            "named", "named", INTEGERS, lambda e, v: e.named, only=_is_fault,
            about="Of a fatal_fault: the PIDs that server.log names, which is no proof.",
        ),
        Field(
            "suspects", "suspects", OBJECTS, lambda e, v: e.suspects, of=SUSPECT, only=_is_fault,
            about="Of a fatal_fault: every client that had a context on its devices.",
            detail=Detail("suspects", 10, facts=_suspect_facts),
        ),
        Field(
            "xids", "Xids", INTEGERS, lambda e, v: [int(n) for n in e.values.get("xid", "").split()] or None,
            null=True, only=_is_fault, about="Of a fatal_fault: what the driver reported at that time.",
        ),
        Field(
            "xid", "Xid", INTEGER, lambda e, v: int(e.values["xid"]), only=lambda e: e.kind == "xid",
            about="Of an xid.",
        ),
    ),
    {
        "event": heading(""),
        "suspects": heading("Suspects: each client with a context on these GPUs then"),
        "raw": heading("The line of the log"),
    },
)  # fmt: skip
