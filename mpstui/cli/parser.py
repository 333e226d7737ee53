"""The options of the command line; stable, others build on them."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NoReturn

from mpstui import __version__
from mpstui.cli.arguments import add_refresh
from mpstui.cli.past import (
    NODES,
    add_activity,
    add_demo,
    add_doctor,
    add_events,
    add_past,
    add_record,
    add_suspects,
    add_why,
)
from mpstui.core.text import printable, typed_count, unprintable

_EPILOG = """\
exit status: 0 done · 1 the daemon refused, or the value read back is not the one set · 2 usage · 3 no daemon there ·
4 the daemon does not answer · 5 not permitted · 6 refused by a safety rule ·
70 a mistake of mpstui's own
"""


def _directory(text: str) -> Path:
    """An empty word is a variable of the shell that was not set, and not the current directory."""
    if not text:
        raise argparse.ArgumentTypeError("the directory has no name")
    try:
        problem = unprintable(os.path.abspath(text))
    except FileNotFoundError:
        problem = "the current directory is gone; give an absolute path"
    if problem is not None:
        raise argparse.ArgumentTypeError(problem)
    return Path(text)


def _fields(text: str) -> dict[str, list[str]]:
    from mpstui.fields import UnknownFieldError, choose

    try:
        return choose(text)
    except UnknownFieldError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


class _Formatter(argparse.HelpFormatter):
    """argparse makes one for each argument that is added, and asks the terminal each time, with a module that brings
    four libraries for compressed files."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns(os.environ.get("COLUMNS", "")) - 2)


@lru_cache
def _columns(told: str) -> int:
    """Of the terminal; ``told``: by the environment, which comes first."""
    if columns := typed_count(told):
        return columns
    with suppress(AttributeError, ValueError, OSError):  # closed, or no terminal
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80  # type: ignore[union-attr]
    return 80


class LateParser(argparse.ArgumentParser):
    """A parser that gets its own arguments when it is chosen: what they are imported from costs the others nothing."""

    partial = False
    """Whether there may be a command that it does not have."""

    def __init__(
        self,
        *arguments: Any,
        fill: Callable[[argparse.ArgumentParser], None] | None = None,
        parents: Sequence[argparse.ArgumentParser] = (),
        **rest: Any,
    ) -> None:
        rest = {"formatter_class": _Formatter, **rest, "parents": [] if fill else parents}
        super().__init__(*arguments, **rest)
        self.set_defaults(words=tuple(self.prog.split()[1:]))  # of a command the innermost parser's
        self._fill = fill
        self._parents = parents if fill else ()
        self._negative_number_matcher = re.compile(r"-[0-9]")  # -1G is a value, and the action layer says what is wrong

    def error(self, message: str) -> NoReturn:
        """As argparse, in words where it has none of its own."""
        if self.partial:
            raise _NotThisOneError
        name = re.search(r"--demo.*ignored explicit argument (.*)", message)
        message = f"there is no simulated node {name[1]}; there are: {', '.join(NODES)}" if name else message
        super().error(printable(message, 2000))  # a shell's pattern, too, makes words of what it finds

    def _print_message(self, message: str, file: Any = None) -> None:
        """argparse would say nothing of help that could not be written."""
        if message:
            (file or sys.stderr).write(message)

    def complete(self) -> None:
        """Get its own arguments now."""
        fill, self._fill = self._fill, None
        if fill is not None:
            for parent in self._parents:
                self._add_container_actions(parent)
            fill(self)

    def parse_known_args(self, *arguments: Any, **rest: Any) -> Any:
        self.complete()
        return super().parse_known_args(*arguments, **rest)


def _node_options() -> LateParser:
    """Options that every command takes, before or behind its name."""
    options = LateParser(add_help=False, argument_default=argparse.SUPPRESS)
    group = options.add_argument_group("node")
    group.add_argument(
        "--pipe-dir",
        action="append",
        type=_directory,
        metavar="DIR",
        help="the daemon's pipe directory; may be repeated. Default: CUDA_MPS_PIPE_DIRECTORY, then discovery",
    )
    group.add_argument(
        "--log-dir",
        action="append",
        type=_directory,
        metavar="DIR",
        help="its log directory, where it cannot be found out; without --pipe-dir, logs to be shown without a daemon",
    )
    add_demo(group)
    return options


def _fill_exporter(parser: argparse.ArgumentParser) -> None:
    from mpstui.cli.exporter import add_arguments

    add_arguments(parser)


def _fill_web(parser: argparse.ArgumentParser) -> None:
    from mpstui.cli.web import add_arguments

    add_arguments(parser)


def _fill_config(parser: argparse.ArgumentParser) -> None:
    from mpstui.cli.config import add_arguments

    add_arguments(parser)


def _fill_fleet(parser: argparse.ArgumentParser) -> None:
    from mpstui.cli.fleet import add_arguments

    add_arguments(parser)


class _Only:
    """The commands, of which one is added. The others' parsers take what they are told, and keep nothing."""

    def __init__(self, commands: Any, name: str) -> None:
        self._commands, self._name = commands, name

    def add_parser(self, name: str, **rest: Any) -> Any:
        return self._commands.add_parser(name, **rest) if name == self._name else _Nobody()


class _Nobody:
    def __getattr__(self, name: str) -> Callable[..., _Nobody]:
        return lambda *arguments, **rest: self


def _add_status(commands: Any, node: LateParser) -> None:
    status = commands.add_parser(
        "status",
        parents=[node],
        help="one snapshot of the node",
        epilog="example: mpstui status --fields pid,user,gpu_memory",
    )
    status.add_argument("--json", action="store_true", help="print JSON, schema 1")
    shown = status.add_mutually_exclusive_group()
    shown.add_argument(
        "--fields",
        type=_fields,
        metavar="A,B,C",
        help="show these, in this order: pid,user,gpu_memory or server.pid,device.name; “mpstui schema status” has all",
    )
    status.add_argument(
        "--health",
        action="store_true",
        help="a liveness probe that sends no command. Exit status 0: every daemon runs; 3: one does not run; 4: one is "
        "stopped, is told to quit, has had one session open for 10 s, has no sockets, or another user's sockets are in "
        "a directory of root's or of your own; 5: its directory is closed to you",
    )
    shown.add_argument(
        "--group-by",
        choices=("pod", "job", "unit", "container", "user", "gpu", "server"),
        metavar="NAME",
        help="the clients in groups with sums of memory and limits: pod, job, unit, container, user, gpu, server",
    )
    status.add_argument(
        "--watch",
        action="store_true",
        help="go on, and print a line for each thing that comes, goes or changes: for a screen reader, or a log",
    )
    add_past(status)


def _add_changes(commands: Any, node: LateParser) -> None:
    from mpstui.cli.planning import add_commands
    from mpstui.cli.verbs import add_verbs

    add_commands(commands, node, add_verbs(commands, node))


def _add_exporter(commands: Any, node: LateParser) -> None:
    commands.add_parser(
        "exporter",
        parents=[node],
        fill=_fill_exporter,
        help="metrics for Prometheus, by HTTP or as a file",
        epilog="example: mpstui exporter --listen 127.0.0.1:9936",
    )


def _add_fleet(commands: Any, node: LateParser) -> None:
    commands.add_parser(
        "fleet",
        fill=_fill_fleet,
        help="many nodes, the worst first: from Prometheus, or over ssh",
        epilog="example: mpstui fleet --hosts gpu-01,gpu-02",
    )


def _add_web(commands: Any, node: LateParser) -> None:
    commands.add_parser(
        "web",
        parents=[node],
        fill=_fill_web,
        help="the screen in a browser. Default: this machine only, read-only, with a token",
        epilog="example: mpstui web --listen 127.0.0.1:8037",
    )


def _add_tour(commands: Any, node: LateParser) -> None:
    tour = commands.add_parser(
        "tour",
        parents=[node],
        help="the screen with a guide: partitioning, limits, fault, who; or a tour of your own",
        epilog="example: mpstui tour partitioning --demo",
    )
    tour.add_argument("name", nargs="?", metavar="NAME|FILE.toml", help="without it: which tours there are")
    tour.add_argument("--auto", action="store_true", help="go on by itself; F8 goes on sooner")


def _add_config(commands: Any, node: LateParser) -> None:
    commands.add_parser("config", fill=_fill_config, help="what is configured, and where")


def _add_schema(commands: Any, node: LateParser) -> None:
    schema = commands.add_parser(
        "schema",
        help="the JSON Schema of what a command prints with --json",
        epilog="example: mpstui schema status",
    )
    schema.add_argument("name", nargs="?", metavar="NAME", help="status, events, …; without it: which there are")


def _add_sim(commands: Any, node: LateParser) -> None:
    sim = commands.add_parser("sim", help="the simulated node")
    simulations = sim.add_subparsers(metavar="COMMAND", required=True)
    serve = simulations.add_parser(
        "serve", help="run a simulated node until interrupted", epilog="example: mpstui sim serve /tmp/node"
    )
    serve.add_argument("directory", type=_directory, metavar="DIR", help="its pipe directory, for --pipe-dir")
    serve.add_argument(
        "--scenario", metavar="NAME", help=f"which clients there are: {', '.join(NODES)} (default: demo)"
    )
    serve.add_argument(
        "--static", action="store_true", help="with static SM partitions, as documented (the scenario “static”)"
    )
    serve.add_argument(
        "--protocol", choices=("2", "3"), default="2", help="3: MPS protocol 3, as documented (the scenario “v3”)"
    )
    serve.add_argument(
        "--driver",
        metavar="N",
        help="behave as this driver: 470, 535, 550, 555, 580 as recorded; 590, 615 as documented (default: 580)",
    )


_COMMANDS: Final[tuple[tuple[frozenset[str], Callable[[Any, LateParser], None]], ...]] = (
    (frozenset({"status"}), _add_status),
    (frozenset({"events"}), add_events),
    (frozenset({"suspects"}), add_suspects),
    (frozenset({"activity"}), add_activity),
    (frozenset({"doctor"}), add_doctor),
    (frozenset({"why", "explain"}), add_why),
    (frozenset({"record", "replay"}), add_record),
    (frozenset(), _add_changes),
    (frozenset({"exporter"}), _add_exporter),
    (frozenset({"fleet"}), _add_fleet),
    (frozenset({"web"}), _add_web),
    (frozenset({"tour"}), _add_tour),
    (frozenset({"config"}), _add_config),
    (frozenset({"schema"}), _add_schema),
    (frozenset({"sim"}), _add_sim),
)
"""All commands in their order, with what adds them. Those of the operations are known to their table, without names
here: who only looks does not import it."""
LOOKS: Final = frozenset[str]().union(*(names for names, _ in _COMMANDS))
"""Commands that change nothing on a daemon, whatever stands behind them."""


class _NotThisOneError(Exception):
    """A parser that has not all commands does not understand the line."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command line, by a parser that has what it names, and by the whole one where that does not do.

    Behind options, as in ``mpstui --pipe-dir DIR``, there is mostly no command: to add all of them is 15 ms of
    processor time (2026-11-22).
    """
    first = next(iter(arguments), "")
    if not first.startswith("-"):
        return build_parser(first).parse_args(arguments)
    if not any(word.startswith(("-h", "--h")) for word in arguments):  # help names them all
        try:
            named = next((word for word in arguments if word in LOOKS), "")
            return build_parser(named, partial=True).parse_args(arguments)
        except _NotThisOneError:
            pass
    return build_parser().parse_args(arguments)


def build_parser(first: str | None = None, *, partial: bool = False) -> argparse.ArgumentParser:
    """The command line. ``first``: its first word, where it is known, empty where there is none: if that is a command,
    the parser has this one alone, which is a third of the processor time. ``partial``: it tells the caller of what it
    does not understand."""
    node = _node_options()
    parser = LateParser(
        prog="mpstui",
        description="Watch and run NVIDIA MPS on this node. Without a command: the screen.",
        epilog=_EPILOG,
        parents=[node],
    )
    parser.add_argument("--version", action="version", version=f"mpstui {__version__}")
    parser.add_argument("--read-only", action="store_true", help="show everything, change nothing")
    add_refresh(parser)
    parser.add_argument(
        "--fresh", action="store_true", help="begin with the default view, and leave yours as it was kept"
    )
    parser.add_argument("--no-mouse", action="store_true", help="leave the mouse to the terminal, to select text")
    parser.add_argument("--theme", metavar="NAME", help="a theme of the package or of the config folder")
    parser.add_argument(
        "--activity", action="store_true", help="watch how often each client launches kernels (a column of the screen)"
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=LateParser)
    parser.partial = partial
    if first in LOOKS:
        next(add for names, add in _COMMANDS if first in names)(commands, node)
        return parser
    if first:
        _add_changes(_Only(commands, first), node)
    if first is None or (first and not commands.choices):
        for _, add in _COMMANDS:
            add(commands, node)
    return parser
