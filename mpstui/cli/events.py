"""``events``: what the logs tell, from a daemon's or from a directory of logs alone; and a past state from them."""

from __future__ import annotations

import argparse
import heapq
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from json.encoder import encode_basestring as _quoted
from pathlib import Path
from typing import Any, Final

from mpstui.cli.past import logs_alone
from mpstui.cli.say import complain, output
from mpstui.core.faults import xids_of
from mpstui.core.model import Event
from mpstui.core.suspects import ADVICE, RUN, START, Ranked, Ranking, presence, rank
from mpstui.core.text import UNKNOWN, path_text
from mpstui.fields import (
    EVENT,
    INTEGER,
    INTEGERS,
    OBJECTS,
    SCHEMA,
    TEXT,
    TEXTS,
    Field,
    Thing,
    Type,
    View,
    as_json,
    iso_time,
)
from mpstui.history.bywhom import AuditTrail
from mpstui.history.postmortem import state_at
from mpstui.history.reader import LogHistory, People
from mpstui.history.when import local_text
from mpstui.node import UnusableNode, open_node
from mpstui.observe.discovery import discover
from mpstui.observe.logs import Owners, UnreadableLogError
from mpstui.observe.sources import NodeSources, ProcessSource
from mpstui.observe.state import with_xids
from mpstui.observe.xid import XidSource
from mpstui.operations.audit import default_path
from mpstui.operations.types import ExitStatus

_NOISE = frozenset(("session_opened", "session_closed", "command", "client_admitted"))
"""Kinds that are printed only where they are asked for: every question of every tool leaves three of them."""
_PIDS = 6
"""Of a suspect's clients, shown at most."""
_LOOK = 0.2
"""Seconds between two looks at logs in which nothing happens."""


def print_past(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    """``status`` of the past; returns the exit status."""
    from mpstui.cli.status import exit_status, print_text, to_json

    places = [(log_dir, owners) for log_dir, _, owners, _ in _places(options, pipe_dirs, None)]
    if not places:
        return complain("no log directory is known; give one with --log-dir", ExitStatus.NO_DAEMON)
    try:
        snapshots = [state_at(log_dir, options.at, owners) for log_dir, owners in places]
    except UnreadableLogError as error:
        return complain(str(error), _status((error,)))
    for snapshot in snapshots:
        if options.json:
            print(json.dumps(to_json(snapshot, options.fields), ensure_ascii=False))
            continue
        print(f"{local_text(snapshot.time)}, from the logs alone")
        print_text(snapshot, output(), options.fields)
    return max(exit_status(snapshot) for snapshot in snapshots)


def print_events(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    """``events``; returns the exit status."""
    sources = _sources(options, pipe_dirs)
    histories = _open(options, pipe_dirs, sources)
    if not isinstance(histories, list):
        return histories
    driver = sources.xids() if sources is not None and sources.xids is not None else None
    line = _json_line if options.json else _text_line
    wanted = _filter(options)
    trail = AuditTrail(default_path())
    # Without --since what was there before is not of interest to who follows, but it explains what comes.
    since = options.since if options.since is not None or not options.follow else time.time()
    try:
        xids = [xid.event() for xid in driver.past()] if driver is not None else []

        def write(event: Event, daemon: str | None) -> None:
            if event.kind == "xid":
                xids.append(event)  # the fault that it is about may be told after it
            if wanted(event):
                if event.kind == "fatal_fault":
                    event = with_xids(event, (xid.values["xid"] for xid in xids_of(event.time, xids)))
                sys.stdout.write(line(trail.named(event), daemon))

        told = ((xid, None) for xid in tuple(xids) if since is None or (xid.time or 0.0) >= since)
        streams: list[Iterator[tuple[Event, str | None]]] = [_named(history, since) for history in histories]
        for event, daemon in heapq.merge(*streams, told, key=lambda told: told[0].time or 0.0):
            write(event, daemon)
        sys.stdout.flush()
        if options.follow:
            _follow(histories, driver, write)
    finally:
        for history in histories:
            history.close()
        if driver is not None:
            driver.close()
    return ExitStatus.DONE


def print_suspects(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    """``suspects``; returns the exit status."""
    histories = _open(options, pipe_dirs, _sources(options, pipe_dirs))
    if not isinstance(histories, list):
        return histories
    try:
        found = [event for history in histories for event in history.events(options.since)]
    finally:
        for history in histories:
            history.close()
    ranking = rank(sorted(found, key=lambda event: event.time or 0.0))
    if options.json:
        print(json.dumps(as_json(SUSPECTS, ranking, View()), ensure_ascii=False))
        return ExitStatus.DONE
    print(ranking.sentence)
    total = len(ranking.faults)
    for each in ranking.ranked:
        named = f"; server.log named it in {each.named}, no proof" if each.named else ""
        pids = ", ".join(map(str, each.pids[:_PIDS])) + (" …" if len(each.pids) > _PIDS else "")
        print(f"  {presence(each, total)}: {each.text} ({pids}){named}")
    for note in ranking.notes:
        print(note)
    if total:
        print("", *ADVICE[:1], f"  {START}", f"  {RUN}", *ADVICE[1:], sep="\n")
    return ExitStatus.DONE


RANKED: Final[Thing[Ranked]] = Thing(
    "ranked",
    "A user's program, and at how many faults it was.",
    (
        Field("uid", "UID", INTEGER, lambda r, v: r.uid, null=True),
        Field("user", "user", TEXT, lambda r, v: r.user, null=True),
        Field("command", "command", TEXT, lambda r, v: r.program, null=True, about="Up to its first option."),
        Field("faults", "faults", INTEGER, lambda r, v: r.seen, about="At which it was."),
        Field(
            "perhaps", "perhaps", INTEGER, lambda r, v: r.perhaps,
            about="More faults at which this user had a client whose command is not known.",
        ),
        Field(
            "named", "named", INTEGER, lambda r, v: r.named,
            about="Faults at which server.log named it; no proof, and no part of the order.",
        ),
        Field("pids", "PIDs", INTEGERS, lambda r, v: r.pids, about="The clients, in the order of the faults."),
    ),
)  # fmt: skip

SUSPECTS: Final[Thing[Ranking]] = Thing(
    "suspects",
    "Who was there at each fatal fault; the first was at most of them.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda r, v: SCHEMA),
        Field("faults", "faults", INTEGER, lambda r, v: len(r.faults)),
        Field("tied", "tied", INTEGER, lambda r, v: len(r.leaders), about="How many were at as many as the first."),
        Field("suspects", "suspects", OBJECTS, lambda r, v: r.ranked, of=RANKED),
        Field("text", "text", TEXT, lambda r, v: r.sentence),
        Field("notes", "notes", TEXTS, lambda r, v: r.notes),
        Field("advice", "advice", TEXTS, lambda r, v: [*ADVICE, START, RUN]),
    ),
)


def _open(
    options: argparse.Namespace, pipe_dirs: Sequence[Path], sources: NodeSources | None
) -> list[LogHistory] | int:
    """The logs asked for, to be closed; the exit status where there are none."""
    histories: list[LogHistory] = []
    failures: list[UnreadableLogError] = []
    for log_dir, pipe_dir, owners, people in _places(options, pipe_dirs, sources):
        try:
            histories.append(LogHistory(log_dir, pipe_dir, owners, people))
        except UnreadableLogError as error:
            failures.append(error)
    for text in (*failures, *(trouble for history in histories for trouble in history.trouble)):
        complain(str(text), 0)
    if not histories:
        if not failures:
            complain("no log directory is known; give one with --log-dir", ExitStatus.NO_DAEMON)
        return _status(failures)
    return histories


def to_json(event: Event, daemon: str | None) -> dict[str, Any]:
    """The stable keys of ``events --json``; what is not known is None."""
    return as_json(EVENT, event, View(place=daemon))


def _status(errors: Sequence[UnreadableLogError]) -> ExitStatus:
    """The exit status where no log could be read."""
    if any(error.not_believed for error in errors):
        return ExitStatus.REFUSED_BY_SAFETY_RULE
    denied = any(error.not_permitted for error in errors)
    return ExitStatus.NOT_PERMITTED if denied else ExitStatus.NO_DAEMON


def _sources(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> NodeSources | None:
    """The node's; None where logs alone are read, which may be of another node."""
    try:
        return None if logs_alone(options) else open_node(pipe_dirs)[0]
    except UnusableNode:
        return None


def _places(
    options: argparse.Namespace, pipe_dirs: Sequence[Path], sources: NodeSources | None
) -> list[tuple[Path, Path | None, Owners | None, People | None]]:
    """Log directories, each with the pipe directory of its daemon, whose logs are believed, and whom to ask for
    processes, where that is known. What somebody asks to have read alone is read, whosever it is."""
    if alone := logs_alone(options):
        return [(path, None, None, None) for path in alone]
    log_dirs = [Path(path).absolute() for path in getattr(options, "log_dir", None) or ()]
    places = [place for place in discover(pipe_dirs, log_dirs) if place.log_dir is not None]
    here: frozenset[int] = frozenset()
    if sources is not None:
        here = _namespaces(sources.processes, [place.daemon.pid for place in places if place.daemon is not None])
    people = sources.processes.facts if sources is not None else None
    return [
        (
            place.log_dir,
            place.pipe_dir,
            place.log_owners,
            people
            if place.daemon is not None and place.daemon.pid in here and place.pids_are_ours is not False
            else None,
        )
        for place in places
        if place.log_dir is not None
    ]


def _namespaces(processes: ProcessSource, daemons: Sequence[int]) -> frozenset[int]:
    """Those of the daemons whose PIDs are those of this PID namespace; in a log of any other one, a number is somebody
    else here (fact 14)."""
    facts = processes.facts([*daemons, os.getpid()])
    own = facts.get(os.getpid())
    mine = own.pid_namespace if own is not None else None
    return frozenset(pid for pid in daemons if mine is not None and pid in facts and facts[pid].pid_namespace == mine)


def _named(history: LogHistory, since: float | None) -> Iterator[tuple[Event, str | None]]:
    daemon, shown = None, ""
    for event in history.events(since):
        if history.daemon is not daemon:
            daemon = history.daemon
            shown = path_text(daemon)
        yield event, shown


def _follow(histories: list[LogHistory], driver: XidSource | None, write: Callable[[Event, str | None], None]) -> None:
    tails = [(history, history.follow()) for history in histories]
    while True:
        for history, tail in tails:
            for event in tail:
                if event is None:
                    break
                write(event, path_text(history.daemon))
        sys.stdout.flush()
        if driver is None:
            time.sleep(_LOOK)
            continue
        for xid in driver.wait(_LOOK):
            write(xid.event(), None)


def _filter(options: argparse.Namespace) -> Callable[[Event], bool]:
    kinds, client = frozenset(options.kind or ()), options.client

    def wanted(event: Event) -> bool:
        if event.kind not in kinds if kinds else event.kind in _NOISE and not options.all:
            return False
        return client is None or event.pid == client or any(client == suspect.pid for suspect in event.suspects)

    return wanted


def _json_line(event: Event, daemon: str | None) -> str:
    """:func:`to_json` on one line; what most events have is written without making an object of it first."""
    kind, when, _, server, pid, context, devices, detail, raw, uid, _, user, command, _ = event
    if kind in {"fatal_fault", "xid"} or when is None:
        return json.dumps(to_json(event, daemon), ensure_ascii=False) + "\n"
    return (
        f'{{"time": "{iso_time(when)}", "kind": "{kind}", "daemon": {"null" if daemon is None else _quoted(daemon)}, '
        f'"server_pid": {"null" if server is None else server}, "pid": {"null" if pid is None else pid}, '
        f'"context_id": {"null" if context is None else context}, '
        f'"devices": [{", ".join(map(_quoted, devices)) if devices else ""}], '
        f'"detail": {_quoted(detail)}, "raw": {_quoted(raw)}, "uid": {"null" if uid is None else uid}, '
        f'"user": {"null" if user is None else _quoted(user)}, '
        f'"command": {"null" if command is None else _quoted(command)}}}\n'
    )


def _text_line(event: Event, daemon: str | None) -> str:
    return f"{local_text(event.time)}  {event.kind:<24} {event.sentence() or event.raw or UNKNOWN}\n"
