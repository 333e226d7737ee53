"""``events`` and ``suspects``: what the logs tell, from a daemon's or from a directory of logs alone."""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from json.encoder import encode_basestring as _quoted
from pathlib import Path
from typing import Any, Final

from mpstui import api
from mpstui.cli.output import SIMULATED, complain, print_json
from mpstui.cli.status import unreadable
from mpstui.core.late import pattern
from mpstui.core.model import Event, Source
from mpstui.core.suspects import ADVICE, RUN, START, rank
from mpstui.core.text import error_text, listed, path_text, printable
from mpstui.fields import (
    EVENT,
    EVENT_SEVERITY,
    NOISE,
    SUSPECTS,
    View,
    as_json,
    iso_time,
    pids_of,
)
from mpstui.operations.types import ExitStatus
from mpstui.system.own import find_program, own_path

_Filter = Callable[[Sequence[Event]], Sequence[Event]]
"""Leaves those that are to be shown."""
_Lines = Callable[[Iterable[Event], str | None], str]
"""Of events, with their daemon as it is shown."""
_PIDS = 6
"""Of a suspect's clients, shown at most."""


def print_events(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    """``events``; returns the exit status."""
    lines, wanted = _json_lines if options.json else _text_lines, _filter(options)
    if options.stream or options.journal is not None:
        return _print_stream(options, lines, wanted)
    with api.open(pipe_dirs, log_dirs=getattr(options, "log_dir", None) or ()) as node:
        events = _events(node, options.since, options.follow)
        if not isinstance(events, api.Events):
            return events
        if not options.json:
            _say_simulated(events)
        write, place, shown = sys.stdout.write, None, None
        for told in events.told():
            if told is None:
                sys.stdout.flush()
                if not _is_read():
                    break
                continue
            batch, daemon = told
            if daemon is not place:
                place, shown = daemon, None if daemon is None else path_text(daemon)
            write(lines(wanted(batch), shown))
    return ExitStatus.DONE


def _say_simulated(events: api.Events) -> None:
    if events.all_simulated:
        print(SIMULATED)
    elif events.simulated:
        print(f"{SIMULATED}: what is from {listed(events.simulated_parts)}")


def _is_read() -> bool:
    """Whether anybody still has the other end of our output, a pipe or a socket as ssh gives: who follows a quiet node
    would not learn of it by writing."""
    poller = select.poll()
    try:
        poller.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        return True
    return not any(events & (select.POLLERR | select.POLLHUP) for _, events in poller.poll(0))


_UNIT: Final = pattern(r"[A-Za-z0-9_@:.\\-]{1,255}")
_CHUNK: Final = 1 << 16
_LEAVING: Final = 5.0
"""Seconds that journalctl may take to end."""


def _print_stream(options: argparse.Namespace, lines: _Lines, wanted: _Filter) -> int:
    """The events of a daemon's standard output, from ours or from the journal; returns the exit status."""
    if getattr(options, "log_dir", None) or (options.stream and options.journal is not None):
        return complain("one source only: -, --journal or --log-dir", ExitStatus.USAGE)
    if options.journal is None:
        return _print_chunks(iter(lambda: os.read(0, _CHUNK), b""), options, lines, wanted)
    unit = options.journal
    if not _UNIT.fullmatch(unit) or unit.startswith("-"):
        return complain(f"“{printable(unit, 60)}” is no name of a systemd unit", ExitStatus.USAGE)
    command = ["journalctl", f"--unit={unit}", "--output=cat", "--all", "--no-pager", "--quiet"]
    since = [] if options.since is None else [f"--since=@{options.since:.0f}"]
    follow = ["--follow", "--lines=all"] if options.follow else []
    try:
        told, said = _of_journal(
            [*command, *since, *follow], lambda chunks: _print_chunks(chunks, options, lines, wanted)
        )
        if not told and since:  # a unit that was quiet since then has said something before
            told, said = _of_journal([*command, "--lines=1"], lambda chunks: [None for _ in chunks])
    except OSError as error:
        text = f"the journal cannot be read: journalctl cannot be run: {error_text(error)}"
        return complain(text, ExitStatus.NO_DAEMON)
    except _Unread as error:
        return complain(f"the journal cannot be read: {error}", ExitStatus.NO_DAEMON)
    if not told:
        text = f"the journal has no line of the unit “{unit}”: see systemctl list-units"
        return complain(f"{text}; journalctl says: {said}" if said else text, ExitStatus.NO_DAEMON)
    return ExitStatus.DONE


class _Unread(Exception):
    """Why journalctl gave up, in its own words."""


def _of_journal(command: Sequence[str], take: Callable[[Iterable[bytes]], object]) -> tuple[bool, str]:
    """Whether it told anything, and what it has complained of. Raises OSError, and _Unread."""
    said = bytearray()

    def listen(fd: int) -> None:
        while data := os.read(fd, _CHUNK):  # a pipe that nobody reads holds up who writes to it
            said.extend(data[: _CHUNK - len(said)])

    told = False

    def chunks(fd: int) -> Iterator[bytes]:
        nonlocal told
        while data := os.read(fd, _CHUNK):
            told = True
            yield data

    with subprocess.Popen(
        command,
        executable=find_program(command[0]),
        env={**os.environ, "PATH": own_path()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as journal:
        if journal.stdout is None or journal.stderr is None:
            raise AssertionError("both are pipes")
        listener = threading.Thread(target=listen, args=(journal.stderr.fileno(),), daemon=True)
        listener.start()
        try:
            take(chunks(journal.stdout.fileno()))
        finally:
            _end(journal)
        listener.join(_LEAVING)
    words = printable(bytes(said).strip(), 200)
    if journal.returncode not in {0, -signal.SIGTERM, -signal.SIGKILL}:
        raise _Unread(words or f"exit status {journal.returncode}")
    return told, words


def _end(journal: subprocess.Popen[bytes]) -> None:
    """One that has closed its output ends by itself; one that is still at it is ended."""
    try:
        journal.wait(0 if sys.exc_info()[0] is not None else _LEAVING)
    except subprocess.TimeoutExpired:
        journal.terminate()
        try:
            journal.wait(_LEAVING)
        except subprocess.TimeoutExpired:
            journal.kill()


def _print_chunks(
    chunks: Iterable[bytes],
    options: argparse.Namespace,
    lines: _Lines,
    wanted: _Filter,
) -> int:
    for event in api.read_stream(chunks, options.since):
        if event is None:
            sys.stdout.flush()
        else:
            place = None if event.pipe_dir is None else path_text(event.pipe_dir)
            sys.stdout.write(lines(wanted((event,)), place))
    return ExitStatus.DONE


def _events(node: api.Node, since: float | None, follow: bool = False) -> api.Events | int:
    """The events; the exit status where no log can be read. Says which cannot, and which
    another user has written."""
    try:
        events = node.events(since, follow=follow)
    except api.UnreadableNodeError as error:
        return unreadable(error)
    for text in (*events.trouble, *events.claims):
        complain(text, 0)
    return events


def print_suspects(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    """``suspects``; returns the exit status."""
    with api.open(pipe_dirs, log_dirs=getattr(options, "log_dir", None) or ()) as node:
        events = _events(node, options.since)
        if not isinstance(events, api.Events):
            return events
        if not options.json:
            _say_simulated(events)
        source: Source = "simulated" if events.simulated else "real"
        found: list[Event] = []
        users: dict[int | None, str | None] = {}
        for event in chain.from_iterable(batch for batch, _ in filter(None, events.told())):
            if event.kind == "fatal_fault":
                found.append(event)
            elif event.user is not None and event.uid is not None:
                users[event.uid] = event.user
    ranking = rank(sorted(found, key=lambda event: event.time or 0.0), users)
    if options.json:
        print_json(SUSPECTS, ranking._replace(source=source))
        return ExitStatus.DONE
    print(ranking.sentence)
    total = len(ranking.faults)
    for each in ranking.ranked:
        named = f"; no proof: server.log named it in {each.named}" if each.named else ""
        pids = ", ".join(map(str, each.pids[:_PIDS])) + (" …" if len(each.pids) > _PIDS else "")
        print(f"  {each.presence}: {each.text} ({pids}){named}")
    for note in ranking.notes:
        print(note)
    if total:
        print("", *ADVICE[:1], f"  {START}", f"  {RUN}", *ADVICE[1:], sep="\n")
    return ExitStatus.DONE


def to_json(event: Event, daemon: str | None) -> dict[str, Any]:
    """The stable keys of ``events --json``; what is not known is None."""
    return as_json(EVENT, event, View(place=daemon))


def _filter(options: argparse.Namespace) -> _Filter:
    kinds = frozenset(options.kind or ())
    client = None if options.client is None else str(options.client)

    def wanted(events: Sequence[Event]) -> Sequence[Event]:
        if kinds:
            events = [event for event in events if event[0] in kinds]
        elif not options.all:
            events = [event for event in events if event[0] not in NOISE]
        return events if client is None else [event for event in events if client in pids_of(event)]

    return wanted


def _json_lines(events: Iterable[Event], daemon: str | None) -> str:
    """:func:`to_json` on a line for each; what most events have is written without making an object of it first."""
    lines: list[str] = []
    # Neighbours in a log share most of what they tell.
    last: float | None = None
    moment, begins, ends = "", dict[Any, str](), dict[Any, str]()
    for event in events:
        kind, when, _, server, pid, context, devices, detail, raw, uid, values, user, command, _ = event
        if kind in _WITH_MORE or when is None or "claimed_by" in values or "simulated" in values:
            lines.append(json.dumps(to_json(event, daemon), ensure_ascii=False) + "\n")
            continue
        if when != last:
            last, moment = when, iso_time(when)
        if (begin := begins.get((kind, server))) is None:
            begin = begins[kind, server] = (
                f'"kind": "{kind}", "daemon": {_value(daemon)}, "server_pid": {_value(server)}, "pid": '
            )
        known = "false" if "unmarked" in values else "true"
        if (end := ends.get((kind, uid, user, command, known))) is None:
            end = ends[kind, uid, user, command, known] = (
                f'"uid": {_value(uid)}, "user": {_value(user)}, "command": {_value(command)}, '
                f'"severity": "{_severity(kind, "info")}", "claimed_by": null, "source": "real", '
                f'"source_known": {known}}}\n'
            )
        lines.append(
            f'{{"time": "{moment}", {begin}{"null" if pid is None else pid}, '
            f'"context_id": {"null" if context is None else context}, '
            f'"devices": [{_names(devices) if devices else ""}], '
            f'"detail": {_quoted(detail)}, "raw": {_quoted(raw)}, {end}'
        )
    return "".join(lines)


_severity = EVENT_SEVERITY.get
_WITH_MORE: Final = frozenset(("fatal_fault", "xid"))


def _value(value: str | int | None) -> str:
    return "null" if value is None else _quoted(value) if isinstance(value, str) else str(value)


@lru_cache(maxsize=64)
def _names(devices: tuple[str, ...]) -> str:
    return ", ".join(map(_quoted, devices))


_NOTHING: Final = View()
_ROWS: Final = tuple((each, each.row.width) for each in EVENT.rows() if each.row is not None)


def _text_lines(events: Iterable[Event], daemon: str | None) -> str:
    rows = (" ".join([each.text(event, _NOTHING).ljust(width) for each, width in _ROWS]) for event in events)
    return "".join([row + "\n" for row in rows])
