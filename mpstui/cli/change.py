"""``set`` and ``terminate``: one request through the action layer."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from mpstui.cli.say import NO_DAEMON, complain, meant, print_json, state_text
from mpstui.core.model import Snapshot
from mpstui.core.text import path_text
from mpstui.core.trust import NotNamedError
from mpstui.observe.poll import Need
from mpstui.observe.watcher import Collector
from mpstui.operations.audit import AuditLog, default_path
from mpstui.operations.check import Refused, owner_typed, wrong_value
from mpstui.operations.runner import Runner
from mpstui.operations.types import ActionId, ExitStatus, Preview, Request, Result


def refuse_value(options: argparse.Namespace, collector: Collector, pipe_dirs: Sequence[Path]) -> int | None:
    """The exit status where ``set`` has a value that is wrong on whatever node: said before anything is asked."""
    if options.command != "set" or options.read_only:
        return None
    request = _set_request(options, pipe_dirs[0] if pipe_dirs else Path())
    wrong = wrong_value(request)
    if wrong is None:
        return None
    result = Runner(collector, AuditLog(default_path())).refuse(request, str(wrong), wrong.status)
    _print_result(options, result)
    return result.status


async def change(options: argparse.Namespace, collector: Collector, named: Sequence[Path]) -> int:
    """Carry out what the options ask for, on one of the directories that were ``named``; returns the exit status."""
    runner = Runner(collector, AuditLog(default_path()), read_only=getattr(options, "read_only", False))
    need = _need(options)
    snapshot = await collector.once(need=need)
    try:
        try:
            request = _request(options, snapshot, named)
            shown = runner.preview(request, snapshot)
        except Refused:
            shown = None
        if (shown is None or shown.error is not None) and _may_know_more(snapshot):
            snapshot = await collector.once()  # no refusal on the word of the logs alone
        request = _request(options, snapshot, named)
        shown = runner.preview(request, snapshot)
        if shown.error is None and options.command == "set":
            _tell(shown)
        if options.command == "terminate" and not options.yes:
            if shown.type_in and not request.owner and sys.stdin.isatty():
                request = request._replace(owner=_typed_owner(shown))
                shown = runner.preview(request, snapshot)
            elif shown.error is None and not _confirmed(shown):
                raise Refused("nothing was sent", ExitStatus.REFUSED_BY_SAFETY_RULE)
        if shown.error is None and options.command == "terminate" and not options.yes:
            snapshot = await collector.once(
                need=need
            )  # the answer may have taken its time; somebody else may have been quicker
    except Refused as refused:
        if options.json:
            print_json(done=False, exit_status=int(refused.status), message=str(refused))
        return complain(str(refused), refused.status)
    result = await runner.execute(request, snapshot, lambda text: print(text, file=sys.stderr))
    _print_result(options, result)
    return result.status


def _need(options: argparse.Namespace) -> Need:
    """What has to be asked before the change can be shown: what it was, and on which devices."""
    if options.command == "terminate":
        return Need(clients=True)
    if options.limit == "client-priority":
        return Need(priority=True)
    default = options.limit == "active-thread-percentage" and options.server is None
    return Need(percentage=default, devices=True)


def _may_know_more(snapshot: Snapshot) -> bool:
    """Whether a complete reading may tell more than the one of what was needed."""
    return any(daemon.health == "ok" and daemon.unspoken is None and not daemon.unread for daemon in snapshot.daemons)


def _request(options: argparse.Namespace, snapshot: Snapshot, named: Sequence[Path]) -> Request:
    if not snapshot.daemons:
        raise Refused(NO_DAEMON, ExitStatus.NO_DAEMON)
    if options.command == "terminate":
        return _terminate_request(options, snapshot)
    return _set_request(options, _one_daemon(options, snapshot, named))


def _terminate_request(options: argparse.Namespace, snapshot: Snapshot) -> Request:
    action: ActionId = "terminate_and_kill" if options.kill else "terminate_client"
    found = [(d, c) for d in snapshot.daemons for c in d.clients() if c.pid == options.client_pid]
    # What a user's daemon says of others does not come before the word of the daemon whose client it is.
    sure = [(daemon, client) for daemon, client in found if client.local and daemon.covers(client)]
    if len(found) > 1 and len(sure) != 1:
        names = ", ".join(path_text(daemon.pipe_dir) for daemon, _ in found)
        raise Refused(
            f"several daemons name a client {options.client_pid}; choose one with --pipe-dir: {names}", ExitStatus.USAGE
        )
    if found:
        daemon, client = (sure or found)[0]
        return Request(action, daemon.pipe_dir, clients=(client.key,), owner=getattr(options, "owner", None) or "")
    for daemon in snapshot.daemons:
        if daemon.unspoken is not None:
            raise Refused(daemon.unspoken, ExitStatus.REFUSED_BY_SAFETY_RULE)
        if daemon.health != "ok" or daemon.unread:
            status = ExitStatus.NO_ANSWER if daemon.health in {"ok", "held", "blocked"} else ExitStatus.NO_DAEMON
            raise Refused(state_text(daemon), status)
    places = ", ".join(path_text(d.pipe_dir) for d in snapshot.daemons)
    raise Refused(
        f"process {options.client_pid} is not a client of {places}; nothing was sent",
        ExitStatus.REFUSED_BY_SAFETY_RULE,
    )


def _one_daemon(options: argparse.Namespace, snapshot: Snapshot, named: Sequence[Path]) -> Path:
    server = getattr(options, "server", None)
    try:
        there = meant(snapshot.daemons, named)
    except NotNamedError as error:
        raise Refused(str(error), ExitStatus.REFUSED_BY_SAFETY_RULE) from None
    daemons = [d for d in there if server is not None and d.find_server(server)] or there
    if len(daemons) > 1:
        names = ", ".join(path_text(d.pipe_dir) for d in daemons)
        raise Refused(f"there are several daemons; choose one with --pipe-dir: {names}", ExitStatus.USAGE)
    return daemons[0].pipe_dir


def _set_request(options: argparse.Namespace, pipe_dir: Path) -> Request:
    if options.limit == "active-thread-percentage":
        return Request("set_active_thread_percentage", pipe_dir, options.value, options.server)
    if options.limit == "pinned-mem-limit":
        return Request("set_pinned_mem_limit", pipe_dir, options.value, options.server, options.device)
    return Request("set_client_priority", pipe_dir, options.value)


def _tell(shown: Preview) -> None:
    """What a new limit comes to, and what is odd about it."""
    width = max((len(label) for label, _ in shown.facts), default=0)
    for label, text in shown.facts:
        print(f"  {label:<{width}}  {text}", file=sys.stderr)
    for warning in shown.warnings:
        print(f"  ▲ {warning}", file=sys.stderr)


def _confirmed(shown: Preview) -> bool:
    """Ask on the terminal, with no as the default; without a terminal the answer is no."""
    lines = [shown.title, *(f"  ends: {hit}" for hit in shown.hits)]
    for group in shown.others:
        lines.append(f"  {group.title}: {len(group.clients)}")
        lines += (f"    {client}" for client in group.clients)
    for line in (*lines, *(f"  ▲ {warning}" for warning in shown.warnings)):
        print(line, file=sys.stderr)
    if not sys.stdin.isatty():
        print("this ends work: add --yes, or answer at a terminal", file=sys.stderr)
        return False
    print("end it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _typed_owner(shown: Preview) -> str:
    """Ask for PID and owner of a process that the daemon does not speak for. Raises Refused without them."""
    print(f"{shown.error}", file=sys.stderr)
    print("PID and owner: ", end="", file=sys.stderr, flush=True)
    if not (owner := owner_typed(shown, sys.stdin.readline())):
        raise Refused("nothing was sent", ExitStatus.REFUSED_BY_SAFETY_RULE)
    return owner


def _print_result(options: argparse.Namespace, result: Result) -> None:
    if options.json:
        print_json(
            done=result.done,
            exit_status=int(result.status),
            message=result.message,
            action=result.request.action,
            pipe_dir=path_text(result.request.pipe_dir),
            details=list(result.details),
            remedy=result.remedy,
        )
        return
    stream = sys.stdout if result.done else sys.stderr
    print(result.message, file=stream)
    for line in result.details:
        print(f"  {line}", file=stream)
    if result.remedy:
        print(f"  → {result.remedy}", file=stream)
