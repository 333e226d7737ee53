"""``fleet``: many nodes, the worst first; as a screen, as text, or as JSON."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import sys
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from mpstui.cli.arguments import FLEET_VARIABLE, between
from mpstui.cli.output import complain, output, print_json
from mpstui.fields import View, table
from mpstui.fleet import (
    FLEET,
    NODE,
    Fleet,
    FleetError,
    FleetNode,
    Prometheus,
    follow_over_ssh,
    hosts_in_config,
    hosts_of,
    in_thread,
    opening,
    over_ssh,
    summary,
)
from mpstui.operations.types import ExitStatus

OPEN: Final = f"ssh -t {{host}} env {FLEET_VARIABLE}=1 mpstui"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``fleet``."""
    source = parser.add_argument_group("where from").add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--prometheus", metavar="URL", help="a Prometheus that asks the exporters, for hundreds of nodes"
    )
    source.add_argument("--hosts", metavar="A,B,C", help="for a few nodes: asked over ssh, without password or agent")
    source.add_argument(
        "--ssh-config-pattern", metavar="PATTERN", help="hosts of ssh's configuration that match, as gpu-*"
    )
    parser.add_argument(
        "--job", default="mpstui", metavar="NAME", help="the name of the exporters' job in Prometheus (default mpstui)"
    )
    parser.add_argument("--ssh", default="ssh", metavar="COMMAND", help="default ssh; or “ssh -F FILE”")
    parser.add_argument(
        "--command", dest="remote", default="mpstui status --json", metavar="COMMAND",
        help="what is run on each host (default “mpstui status --json”)",
    )  # fmt: skip
    parser.add_argument("--open", default=OPEN, metavar="COMMAND", help=f"what Enter runs (default “{OPEN}”)")
    parser.add_argument(
        "--every", type=between(1, 3600), metavar="S", help="seconds between two looks (default 15; 30 over ssh)"
    )
    parser.add_argument(
        "--deadline", type=between(1, 3600), default=20.0, metavar="S", help="for each answer (default 20)"
    )
    parser.add_argument(
        "--filter",
        default="",
        metavar="TEXT",
        help="only nodes with these words; !WORD: without; state:fault, clients>10: by a field",
    )
    parser.add_argument("--json", action="store_true", help="print JSON once")
    parser.add_argument("--once", action="store_true", help="print a table once, on a terminal too")


def fleet(options: argparse.Namespace) -> int:
    """Shows it; the exit status. Raises FleetError."""
    opening(options.open, "host")
    prometheus = (
        None if options.prometheus is None else Prometheus(options.prometheus, options.job, deadline=options.deadline)
    )
    look = _look(options, prometheus)
    if not options.json and not options.once and sys.stdin.isatty() and sys.stdout.isatty():
        from mpstui.cli.screen import settled, theme_wish
        from mpstui.config import load_config, load_themes
        from mpstui.ui.fleet import FleetApp
        from mpstui.ui.theme import build_themes, choose_theme

        specs = load_themes()[0]
        config = load_config()[0]
        wanted, _ = theme_wish(None, config.theme, [spec.name for spec in specs])
        themes, theme = build_themes(specs), choose_theme(wanted, os.environ)
        every = options.every or (15.0 if prometheus else 30.0)
        history = None if prometheus is None else prometheus.history
        follow = None if prometheus else _follow(options, every)
        opened = partial(opening, options.open)
        app = FleetApp(look, every, opened, history, options.filter, follow, themes, theme, settled(config)[0])
        return app.finish() or ExitStatus.DONE
    found = asyncio.run(look(lambda node: None))
    from mpstui.ui.fleet_filter import NodeFilter

    shown = NodeFilter(options.filter)
    nodes = [node for node in found.nodes if shown.leaves(node)]
    if not nodes and (why := shown.complaint()):
        complain(f"--filter: {why}", ExitStatus.DONE)
    for note in found.notes:
        complain(note, ExitStatus.DONE)
    if options.json:
        print_json(FLEET, found._replace(nodes=nodes))
    else:
        from mpstui.cli.status import print_table

        print_table(output(), table(NODE, nodes, View()))
        print(summary(nodes))
    answered = any(node.state != "NO ANSWER" for node in found.nodes)
    return ExitStatus.DONE if answered else complain("no node answers", ExitStatus.NO_ANSWER)


Look = Callable[[Callable[[FleetNode], None]], Coroutine[Any, Any, Fleet]]
Follow = Callable[[Callable[[FleetNode], None]], Coroutine[Any, Any, None]]
_STATUS: Final = "status --json"


def _follow(options: argparse.Namespace, again: float) -> Follow | None:
    """Keeps an ear to each host, by the same command with events in the place of status; None where it is another."""
    if not options.remote.endswith(_STATUS):
        return None
    hosts, ssh = _hosts(options)
    events = options.remote.removesuffix(_STATUS) + "events --follow --json"
    return lambda tell: follow_over_ssh(
        hosts, tell, ssh=ssh, command=options.remote, events=events, deadline=options.deadline, again=again
    )


def _hosts(options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Who is asked, and the words of ssh. Raises FleetError."""
    try:
        ssh = shlex.split(options.ssh)
    except ValueError as error:
        raise FleetError(f"--ssh: {error}") from None
    if not ssh:
        raise FleetError("--ssh has no command")
    return hosts_of(options.hosts) if options.hosts is not None else hosts_in_config(
        options.ssh_config_pattern, ssh
    ), ssh


def _look(options: argparse.Namespace, prometheus: Prometheus | None) -> Look:
    """Asks once; what it is given is told of each node as it answers. Raises FleetError."""
    if prometheus is not None:
        return lambda tell: in_thread(lambda: prometheus.look(time.time()))
    hosts, ssh = _hosts(options)

    asked: dict[str, None] = {}

    async def ask(tell: Callable[[FleetNode], None]) -> Fleet:
        for host in (host for host in hosts if host not in asked):
            tell(FleetNode(host, "NOT KNOWN", "no answer yet"))
            asked[host] = None
        found: list[FleetNode] = []

        def both(node: FleetNode) -> None:
            found.append(node)
            tell(node)

        await over_ssh(hosts, both, ssh=ssh, command=options.remote, deadline=options.deadline)
        return Fleet(time.time(), sorted(found, key=lambda node: node.rank))

    return ask
