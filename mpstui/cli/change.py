"""One operation from the command line: what it would do is told, and asked where it harms; then it is carried out."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from mpstui import api
from mpstui.cli.output import (
    NO_DAEMON,
    agreed,
    meant,
    no_answer,
    no_daemon_status,
    only_one,
    print_json,
    print_result,
    state_text,
    tell,
)
from mpstui.cli.verbs import chosen, draft
from mpstui.core.cells import client_line
from mpstui.core.model import Daemon, ProcessKey, Snapshot
from mpstui.core.text import path_text, path_word, plural
from mpstui.operations.check import Refused, owner_typed
from mpstui.operations.operation import NOTHING_SENT, Operation
from mpstui.operations.rescue import targets
from mpstui.operations.types import SELECTORS, Danger, ExitStatus, Preview, Request, Result, Unable


def change(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    """Carry out what the options ask for; returns the exit status. Raises Unable."""
    operation = chosen(options)
    log_dirs, read_only = getattr(options, "log_dir", None) or (), getattr(options, "read_only", False)
    with api.open(pipe_dirs, log_dirs=log_dirs, read_only=read_only) as node:
        asked = draft(operation, options, node.named)
        if not read_only and operation.wrong_value(asked) is not None:
            return _told(options, node.do(asked))  # wrong on whatever node: said before anything is asked
        named_by = [name for name in SELECTORS if getattr(options, name, None) is not None]
        if named_by:
            return end_each(operation, options, node, named_by)
        if hasattr(options, "client_pid") and options.client_pid is None:
            ways = ", ".join(f"--{name.replace('_', '-')}" for name in SELECTORS)
            raise Unable(f"no client is named: give a client's PID, or one of {ways}")
        return carry_out(operation, options, node)


def carry_out(operation: Operation, options: argparse.Namespace, node: api.Node) -> int:
    """On one of the directories that were named, or the one that is meant; returns the exit status."""
    asked, harm = draft(operation, options, ()), operation.danger is Danger.HARM
    snapshot = node.snapshot(request=asked)
    refused: ExitStatus | None = None
    try:
        try:
            request = _request(operation, options, snapshot, node.named)
            shown = node.preview(request, snapshot)
            refused = shown.error_status if shown.error is not None else None
        except Unable as error:
            refused = error.status
        if refused is not None:
            snapshot = node.confirmed(asked, snapshot, refused)
        request = _request(operation, options, snapshot, node.named)
        shown = node.preview(request, snapshot)
        if shown.error is None and not harm:
            _tell_of(shown)
        if harm and not options.yes:
            if shown.type_in and not request.owner and sys.stdin.isatty():
                request = request._replace(owner=_typed_owner(shown))
                shown = node.preview(request, snapshot)
            elif shown.error is None and not _confirmed(operation, request, shown):
                raise Refused("nothing was sent", ExitStatus.REFUSED_BY_SAFETY_RULE)
            if shown.error is None:
                # The answer may have taken its time; somebody else may have been quicker. What was shown stays what
                # the answer was to.
                node.snapshot(request=asked)
    except Unable as error:
        if options.json:
            _print_json(error)
        raise
    return _told(options, node.do(request, tell, snapshot=snapshot))


def end_each(operation: Operation, options: argparse.Namespace, node: api.Node, named_by: Sequence[str]) -> int:
    """The clients of a job, a pod, a unit, a cgroup or a file of PIDs, one after the other, on all daemons that are
    meant; the exit status of the first that could not be ended, 0 where there is none."""
    try:
        result = _end_each(operation, options, node, named_by)._replace(simulated=node.simulated)
    except Unable as error:
        if options.json:
            _print_json(error)
        raise
    return _told(options, result)


def _end_each(operation: Operation, options: argparse.Namespace, node: api.Node, named_by: Sequence[str]) -> Result:
    if len(named_by) > 1 or options.client_pid is not None or options.owner:
        raise Refused("name either one client, or one job, pod, unit, cgroup or file of PIDs", ExitStatus.USAGE)
    (option,) = named_by
    selection = api.select(option, getattr(options, option))
    snapshot = node.snapshot(complete=True)
    if not snapshot.daemons:
        raise Refused(NO_DAEMON, ExitStatus.NO_DAEMON)
    daemons = meant(snapshot.daemons, node.named)
    draft_of = draft(operation, options, ())._replace(within=selection.within)
    requests = [
        draft_of._replace(pipe_dir=daemon.pipe_dir, clients=(client.key,))
        for daemon in daemons
        for client in selection.clients(daemon)
    ]
    others = tuple(
        f"{client_line(client)} started after the file was written and has the PID of an ended client; not touched"
        for daemon in daemons
        for client in selection.reused(daemon)
    )
    silent = [d for d in daemons if d.runs and not d.answers]
    if not requests:
        if silent or not any(daemon.runs for daemon in daemons):
            status = ExitStatus.NO_ANSWER if silent else no_daemon_status(daemons)
            raise Refused(state_text((silent or daemons)[0]), status)
        for count, why in map(selection.unknown, daemons):
            if count:  # that nobody is left cannot be said then, and whoever is gets killed next
                text = f"mpstui cannot tell for {plural(count, 'client')} if {selection} includes them"
                raise Refused(f"{text}: {why}; nothing was sent", ExitStatus.NO_ANSWER)
        asked = draft_of._replace(pipe_dir=daemons[0].pipe_dir)
        return Result(asked, ExitStatus.DONE, f"no client is in {selection}: nothing was sent", others)
    if not options.yes:
        _ask_for_all(operation, requests, node, snapshot)
    details = [*others]
    worst, left_over, remedy = None, len(requests), None
    for request in requests:
        left_over -= 1
        node.preview(request)  # on a fresh reading: each end takes its time
        result = node.do(request, tell, snapshot=snapshot)
        remedy = remedy or result.remedy
        as_planned = result.done and result.remedy is None
        if result.details == NOTHING_SENT:
            details.append(f"{result.message}; nothing was sent for it")
        else:
            details += result.details if as_planned else (result.message, *result.details)
        worst = worst if worst is not None or result.done else result
        if result.status is ExitStatus.NO_ANSWER:
            break  # a daemon that does not answer is not asked to end one more
    count = len(requests)
    ended = "ended" if options.kill else "terminated"
    if worst is not None:
        text = f"not all clients in {selection} were {ended}: {worst.message}"
        more = (f"{left_over} more not touched",) if left_over > 0 else ()
        return Result(worst.request, worst.status, text, (*details, *more), worst.remedy or remedy)
    text = f"{plural(count, 'client')} in {selection} {ended}"
    return Result(requests[0], ExitStatus.DONE, text, tuple(details), remedy)


def _ask_for_all(operation: Operation, requests: Sequence[Request], node: api.Node, snapshot: Snapshot) -> None:
    """Raises Refused where the answer is no."""
    for request in requests:
        shown = node.preview(request, snapshot)
        for line in shown.hits or (f"client {request.clients[0].pid}",):
            tell(f"  ends: {line}" + (f"  ▲ {shown.error}" if shown.error else ""))
    if not sys.stdin.isatty():
        tell(f"{operation.harms}: add --yes, or answer at a terminal")
        raise Refused("nothing was sent", ExitStatus.REFUSED_BY_SAFETY_RULE)
    if not agreed(f"end {len(requests)} of them?"):
        raise Refused("nothing was sent", ExitStatus.REFUSED_BY_SAFETY_RULE)


def _request(operation: Operation, options: argparse.Namespace, snapshot: Snapshot, named: Sequence[Path]) -> Request:
    """Raises Refused where the node does not have what is named."""
    if not snapshot.daemons:
        raise Refused(NO_DAEMON, ExitStatus.NO_DAEMON)
    request = draft(operation, options, ())
    if hasattr(options, "client_pid"):
        return _client_of(options.client_pid, request, snapshot, named)
    if operation.finds_clients:
        daemon = _one_daemon(snapshot, named, lambda found: bool(targets(operation.id, found)))
        found = targets(operation.id, daemon)
        known = {key.pid: key for key in found}
        keys = tuple(known.get(pid, ProcessKey(pid)) for pid in options.pids) or found
        return request._replace(pipe_dir=daemon.pipe_dir, clients=keys)
    pid = request.server_pid
    daemon = _one_daemon(snapshot, named, lambda found: operation.belongs(request, found))
    if hit := operation.hit(request, daemon):
        return request._replace(pipe_dir=daemon.pipe_dir, clients=hit)
    server = None if pid is None else daemon.find_server(pid)
    if server is None or operation.danger is not Danger.HARM:
        return request._replace(pipe_dir=daemon.pipe_dir)
    hit = tuple(client.key for client in server.clients)
    return request._replace(pipe_dir=daemon.pipe_dir, clients=hit, subject=server)


def _client_of(pid: int, request: Request, snapshot: Snapshot, named: Sequence[Path]) -> Request:
    every = [(d, c) for d in snapshot.daemons for c in d.clients() if c.pid == pid]
    # What a user's daemon says of others does not come before the word of the daemon whose client it is.
    sure = [(daemon, client) for daemon, client in every if client.local and daemon.covers(client)]
    try:
        there = meant(snapshot.daemons, named)
    except Unable:
        if not sure:
            raise
        there = []
    found = [each for each in every if each in sure or each[0] in there]
    if len(found) > 1 and len(sure) != 1:
        names = ", ".join(path_text(daemon.pipe_dir) for daemon, _ in found)
        text = f"several daemons name a client {pid}; choose one with --pipe-dir: {names}"
        raise Refused(text, ExitStatus.USAGE)
    if found:
        daemon, client = (sure or found)[0]
        return request._replace(pipe_dir=daemon.pipe_dir, clients=(client.key,))
    for daemon in there:
        if daemon.unspoken is not None:
            raise Refused(daemon.unspoken, ExitStatus.REFUSED_BY_SAFETY_RULE)
        if not daemon.answers:
            raise no_answer(daemon)
    joined = next(((d, c) for d in there for c in d.clients() if c.pid_here == pid), None)
    if joined is not None:
        daemon, client = joined
        text = (
            f"nothing was sent: process {pid} is in another PID namespace, and the daemon knows it as client "
            f"{client.pid}. To terminate it: mpstui terminate {client.pid} --pipe-dir "
            f"{path_word(daemon.pipe_dir)}"
        )
        raise Refused(text, ExitStatus.REFUSED_BY_SAFETY_RULE)
    places = ", ".join(path_text(d.pipe_dir) for d in there)
    text = f"process {pid} is not a client of {places}; nothing was sent"
    raise Refused(text, ExitStatus.REFUSED_BY_SAFETY_RULE)


def _one_daemon(snapshot: Snapshot, named: Sequence[Path], has: Callable[[Daemon], bool]) -> Daemon:
    """The one that has what is asked for, or the only one there. Raises Unable."""
    there = meant(snapshot.daemons, named)
    return only_one([daemon for daemon in there if has(daemon)] or there)


def _tell_of(shown: Preview) -> None:
    """What it comes to, and what is odd about it."""
    _print_facts(shown)
    for warning in shown.warnings:
        tell(f"  ▲ {warning}")


def _print_facts(shown: Preview) -> None:
    width = max((len(label) for label, _ in shown.facts), default=0)
    for label, text in shown.facts:
        tell(f"  {label:<{width}}  {text}")


def _confirmed(operation: Operation, request: Request, shown: Preview) -> bool:
    """Ask on the terminal, with no as the default; without a terminal the answer is no."""
    tell(shown.title)
    if operation.finds_clients or request.server_pid is not None or not shown.hits:
        _print_facts(shown)
    lines = [f"  ends: {hit}" for hit in shown.hits]
    for group in shown.others:
        lines.append(f"  {group.title}: {len(group.clients)}")
        lines += (f"    {client}" for client in group.clients)
    for line in (*lines, *(f"  ▲ {warning}" for warning in shown.warnings)):
        tell(line)
    if not sys.stdin.isatty():
        tell(f"{operation.harms}: add --yes, or answer at a terminal")
        return False
    return agreed(operation.question)


def _typed_owner(shown: Preview) -> str:
    """Ask for PID and owner of a process that the daemon does not speak for. Raises Refused without them."""
    tell(f"{shown.error}")
    print("PID and owner: ", end="", file=sys.stderr, flush=True)
    if not (owner := owner_typed(shown, sys.stdin.readline())):
        raise Refused("nothing was sent", ExitStatus.REFUSED_BY_SAFETY_RULE)
    return owner


def _told(options: argparse.Namespace, result: Result) -> int:
    """Prints what came of it; returns the exit status."""
    if options.json:
        _print_json(result)
    else:
        print_result(result)
    return result.status


def _print_json(result: Result | Unable) -> None:
    from mpstui.fields import RESULT  # the table is a seventh of what ``set`` imports

    print_json(RESULT, result)
