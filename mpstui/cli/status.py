"""``status``: one snapshot as JSON (``schema`` 1) or as text, of now or of the past."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mpstui import api
from mpstui.cli.output import NO_DAEMON, NONE_OF_YOURS, SIMULATED, complain, no_daemon_status, output, state_text
from mpstui.cli.past import wants_past
from mpstui.core.cells import FAULT_CLAIMED
from mpstui.core.gain import IDLE, gain_of
from mpstui.core.model import Daemon, Snapshot
from mpstui.core.text import UNKNOWN, about, owner, path_text, plural
from mpstui.core.trust import anothers_place, in_anothers_place
from mpstui.core.v3 import V3Node
from mpstui.fields import (
    CLIENT,
    DAEMON,
    DEVICE,
    GROUP,
    GROUPED_NODE,
    LIMIT,
    NAMESPACE,
    PROBLEM,
    SERVER,
    SNAPSHOT,
    V3_PARTITION,
    V3_SERVER,
    Chosen,
    GroupedNode,
    Thing,
    View,
    as_json,
    grouped,
    limits_of,
    table,
)
from mpstui.fields.common import user_text
from mpstui.history.times import local_text
from mpstui.operations.types import ExitStatus

if TYPE_CHECKING:
    from rich.console import Console


def print_status(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    """``status``; returns the exit status. Raises Unable."""
    with api.open(pipe_dirs, log_dirs=getattr(options, "log_dir", None) or ()) as node:
        snapshot = node.snapshot()
    _print(snapshot, options)
    named = bool(pipe_dirs or os.environ.get("CUDA_MPS_PIPE_DIRECTORY"))
    status = exit_status(snapshot, named=named)
    if status is not ExitStatus.DONE:
        meant = [daemon for daemon in snapshot.daemons if named or counts(daemon)]
        for daemon in (d for d in meant if not d.answers):
            complain(state_text(daemon), status)
        for problem in (each for each in snapshot.problems if each.code == "daemon_usurped"):
            complain(f"{problem.subject}: {problem.text}", status)
        for daemon in (d for d in meant if d.runs and d.answers):
            if (other := in_anothers_place(daemon, os.geteuid())) is not None:
                whose = owner(daemon.user if other == daemon.uid else None, other)
                complain(anothers_place(daemon, whose), status)
        if not meant:
            complain(NONE_OF_YOURS if snapshot.daemons else NO_DAEMON, status)
    return status


def _print(snapshot: Snapshot, options: argparse.Namespace) -> None:
    if options.json:
        node = GroupedNode(snapshot, options.group_by)
        told = as_json(GROUPED_NODE, node, View.of(snapshot)) if options.group_by else to_json(snapshot, options.fields)
        print(json.dumps(told, ensure_ascii=False))
    elif options.group_by:
        _print_groups(snapshot, output(), options.group_by)
    else:
        print_text(snapshot, output(), options.fields)


def print_health(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    """``status --health`` where the short way of ``__main__`` did not take it; returns the exit status."""
    if options.json or options.fields or options.group_by or wants_past(options):
        return complain(
            "--health prints nothing and looks at the present only: leave out --json, --fields, --group-by and times", 2
        )
    found = api.health(pipe_dirs, getattr(options, "log_dir", None) or ())
    return complain(f"{found.reason} (exit status {found.status})", found.status) if found.status else 0


def print_past(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    """``status`` of the past; returns the exit status."""
    try:
        with api.open(pipe_dirs, log_dirs=getattr(options, "log_dir", None) or ()) as node:
            snapshots = node.past(options.at)
    except api.UnreadableNodeError as error:
        return unreadable(error)
    for snapshot in snapshots:
        if not options.json:
            when = "time not known" if snapshot.moment is None else local_text(snapshot.moment)
            print(f"{when}, from the logs alone")
        _print(snapshot, options)
    return max(exit_status(snapshot) for snapshot in snapshots)


_NO_LOGS: Final = (
    "no log directory is known; give one with --log-dir. Of a daemon that was started with -f the log is its standard "
    "output: “mpstui events --journal UNIT” or “mpstui events -” reads it"
)


def unreadable(error: api.UnreadableNodeError) -> int:
    """Says why no log can be read; the exit status."""
    if not error.errors:
        return complain(_NO_LOGS, ExitStatus.NO_DAEMON)
    status = ExitStatus.NOT_PERMITTED if any(e.not_permitted for e in error.errors) else ExitStatus.NO_DAEMON
    if any(e.not_believed for e in error.errors):
        status = ExitStatus.REFUSED_BY_SAFETY_RULE
    for each in error.errors:
        complain(str(each), status)
    return status


def exit_status(snapshot: Snapshot, *, named: bool = True) -> ExitStatus:
    """4 where a daemon does not answer or cannot be asked, or a directory of root's or of one's own that was ``named``
    has another user's; 0 where one does or is shown read-only, otherwise 5 where a directory is closed to who asks, and
    3. Where none was named, those of others, who
    start and stop what they like, count only where there is no other, and one that does not answer is none then."""
    running = [daemon for daemon in snapshot.daemons if daemon.runs and (named or counts(daemon))]
    running = running or [daemon for daemon in snapshot.daemons if daemon.runs and daemon.health == "ok"]
    euid = os.geteuid()
    misplaced = named and any(in_anothers_place(daemon, euid) is not None for daemon in running)
    if misplaced or any(daemon.health != "ok" or daemon.usurped(euid) for daemon in running):
        return ExitStatus.NO_ANSWER
    return ExitStatus.DONE if running else no_daemon_status(d for d in snapshot.daemons if named or counts(d))


def counts(daemon: Daemon) -> bool:
    """Whether its state is something of the node's, for who looks."""
    return daemon.counts_for(os.geteuid()) or daemon.usurped(os.geteuid())


def to_json(snapshot: Snapshot, chosen: Chosen | None = None) -> dict[str, Any]:
    """The snapshot in the stable keys of ``status --json``; what is not known is None. ``chosen``: of these alone."""
    return as_json(SNAPSHOT, snapshot, View.of(snapshot), chosen)


def print_text(snapshot: Snapshot, console: Console, chosen: Chosen | None = None) -> None:
    """The snapshot for a person. Everything from outside is printed as text, never as markup. ``chosen``: tables of
    those fields alone, one for each kind of thing."""
    from rich.text import Text

    if snapshot.source == "simulated":
        console.print(Text(SIMULATED, style="bold reverse"))
    if chosen is not None:
        _print_chosen(snapshot, console, chosen)
        return
    for daemon in snapshot.daemons:
        console.print(Text(_headline(daemon), style="bold"))
        if not daemon.answers:
            console.print(Text(f"  {daemon.health_detail or UNKNOWN}"))
            if daemon.remedy:
                console.print(Text(f"  → {daemon.remedy}"))
    if snapshot.devices:
        print_table(console, table(DEVICE, snapshot.devices, View.of(snapshot)))
        for line in _gain_lines(snapshot):
            console.print(Text(line))
    elif snapshot.nvml_detail:
        console.print(Text(snapshot.nvml_detail))
    for daemon in snapshot.daemons:
        _print_daemon(snapshot, daemon, console)
    for problem in snapshot.problems:
        remedy = f"  → {problem.remedy}" if problem.remedy else ""
        console.print(Text(f"{problem.severity}: {about(problem.subject, problem.text)}{remedy}"))


def _print_daemon(snapshot: Snapshot, daemon: Daemon, console: Console) -> None:
    """Its limits and clients; of several daemons with whose they are."""
    from rich.text import Text

    view = View.of(snapshot, daemon)
    if len(snapshot.daemons) > 1 and daemon.runs:
        console.print(Text(path_text(daemon.pipe_dir), style="bold"))
    if daemon.runs and daemon.v3 is None:
        print_table(console, table(LIMIT, limits_of(daemon), view))
    if daemon.v3 is not None:
        _print_v3(daemon.v3, console, view)
    if daemon.servers:
        print_table(console, table(CLIENT, daemon.clients(), view))


def _gain_lines(snapshot: Snapshot) -> list[str]:
    """Whether each device would gain from MPS; those without enough work to tell share a line."""
    lines, idle = [], []
    for device in snapshot.devices:
        found, name = gain_of(device, snapshot), device.called
        if found.at_work:
            word = "yes" if found.would else "not known"
            remedy = f"  → {found.remedy}" if found.remedy else ""
            lines.append(f"{name}: gain from MPS: {word}. {found.text}{remedy}")
        elif device.gpu_utilization is not None:
            idle.append(name)
    return lines + ([f"{', '.join(idle)}: {IDLE}"] if idle else [])


def _print_groups(snapshot: Snapshot, console: Console, by: str) -> None:
    """The clients of each daemon in groups; those in none come last, under “—”."""
    from rich.text import Text

    if snapshot.source == "simulated":
        console.print(Text(SIMULATED, style="bold reverse"))
    for daemon in snapshot.daemons:
        console.print(Text(_headline(daemon), style="bold"))
        view = View.of(snapshot, daemon)
        rows = table(GROUP, grouped(daemon, by, view), view)
        print_table(console, [(by.upper(), *rows[0][1:]), *rows[1:]])


def _print_v3(node: V3Node, console: Console, view: View) -> None:
    """Servers and their namespaces with limits, and what is odd about them."""
    from rich.text import Text

    print_table(console, table(V3_SERVER, node.servers, view))
    if node.namespaces:
        print_table(console, table(NAMESPACE, node.namespaces, view))
    if node.partitions:
        print_table(console, table(V3_PARTITION, node.partitions, view))
    for line in node.not_understood:
        console.print(Text(f"not understood: {line}"))
    for what, why in node.not_read.items():
        console.print(Text(f"{what} list not read: {why}"))


def _print_chosen(snapshot: Snapshot, console: Console, chosen: Chosen) -> None:
    from rich.text import Text

    whole = View.of(snapshot)
    of_node: dict[str, tuple[Thing[Any], Sequence[Any]]] = {
        DAEMON.name: (DAEMON, snapshot.daemons),
        DEVICE.name: (DEVICE, snapshot.devices),
        PROBLEM.name: (PROBLEM, snapshot.problems),
    }
    for name, ids in chosen.items():
        if name in of_node:
            thing, items = of_node[name]
            print_table(console, table(thing, items, whole, ids))
            continue
        for daemon in snapshot.daemons:
            if len(snapshot.daemons) > 1:
                console.print(Text(_headline(daemon), style="bold"))
            of_daemon: dict[str, tuple[Thing[Any], Sequence[Any]]] = {
                SERVER.name: (SERVER, daemon.servers),
                CLIENT.name: (CLIENT, tuple(daemon.clients())),
                LIMIT.name: (LIMIT, limits_of(daemon)),
            }
            thing, items = of_daemon[name]
            print_table(console, table(thing, items, View.of(snapshot, daemon), ids))


def _headline(daemon: Daemon) -> str:
    claimed = daemon.fault_word and not daemon.cut_off and daemon.claimant(os.geteuid()) is not None
    parts = [path_text(daemon.pipe_dir), FAULT_CLAIMED[0] if claimed else daemon.state_word]
    if daemon.pid:
        there = "" if daemon.pid_there is None else f" ({daemon.pid_there} in its own PID namespace)"
        parts.append(f"daemon {daemon.pid}{there} of {user_text(daemon)}")
        if daemon.servers_known:
            servers, clients = len(daemon.servers), sum(1 for _ in daemon.clients())
            known = plural(clients, "client")
            if not daemon.clients_known:
                known = f"at least {known}" if clients else "clients not known"
            parts.append(f"{plural(servers, 'server')}, {known}")
        else:
            parts.append("servers and clients not known")
    return " · ".join(parts)


def print_table(console: Console, rows: Sequence[Sequence[str]]) -> None:
    """Aligned columns under their headings. No number is cut; on a terminal the last column is, at the edge."""
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    widths = [max(cell_len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        line = "  ".join(set_cell_size(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()
        console.print(Text(line, style="dim" if number == 0 else ""), no_wrap=True, overflow="ellipsis", crop=False)
