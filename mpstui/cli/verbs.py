"""The commands that change a node: their options are made from the table of operations, each in one loop over it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from mpstui.cli.arguments import pid, whole
from mpstui.operations.operation import Operation
from mpstui.operations.registry import VERBS
from mpstui.operations.types import Argument, Danger, Request, Verb

_GROUPS: Final = {
    "set": ("set a limit of new clients", "LIMIT"),
    "daemon": ("start and stop control daemons, remove what one has left", "COMMAND"),
    "partition": ("static SM partitions of a daemon that was started for them", "COMMAND"),
    "server": ("named servers of a daemon of MPS protocol 3", "COMMAND"),
    "namespace": ("namespaces of a daemon of MPS protocol 3", "COMMAND"),
    "sm-partition": ("SM partitions of a daemon of MPS protocol 3", "COMMAND"),
    "feature": ("features of a daemon of MPS protocol 3", "COMMAND"),
    "profile": ("daemon settings and shares kept as files", "COMMAND"),
}
"""First words of several verbs: help, and what stands for the second word."""
_CHANGE_ALWAYS: Final = "set"
"""A first word behind which nothing but a change can stand."""


def _fill_load(parser: argparse.ArgumentParser) -> None:
    from mpstui.cli.loadoptions import add_arguments

    add_arguments(parser)


def _fill_experiment(parser: argparse.ArgumentParser) -> None:
    from mpstui.cli.experiment import add_arguments

    add_arguments(parser)


_LATE: Final[dict[tuple[str, ...], Callable[[argparse.ArgumentParser], None]]] = {
    ("load",): _fill_load,
    ("experiment",): _fill_experiment,
}
"""Verbs with many options of their own, which only they pay for."""


def add_verbs(commands: Any, node: argparse.ArgumentParser) -> Mapping[str, Any]:
    """Add them to the command line; answers the parsers of first words that have several. ``node``: the options that
    every command takes."""
    groups: dict[str, Any] = {}
    told: dict[tuple[str, ...], list[tuple[Verb, Operation]]] = {}
    for verb, each in VERBS:
        words = verb.words
        if words in told:  # the same with another option
            told[words].append((verb, each))
            continue
        told[words] = [(verb, each)]
        parent = commands
        if len(words) > 1:
            if words[0] not in groups:
                help_text, metavar = _GROUPS[words[0]]
                group = commands.add_parser(words[0], help=help_text)
                groups[words[0]] = group.add_subparsers(metavar=metavar, required=True)
            parent = groups[words[0]]
        example, fill = (
            f"example: {verb.example}" if verb.example else None,
            _LATE.get(words, partial(_fill, told[words])),
        )
        parent.add_parser(words[-1], parents=[node], help=verb.help, epilog=example, fill=fill)
    return groups


def _fill(told: Sequence[tuple[Verb, Operation]], parser: argparse.ArgumentParser) -> None:
    """The options of a command: of its operation, and of those that it is with a flag."""
    (_, each), *others = told
    add_arguments(parser, each)
    if each.danger is Danger.HARM:
        parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    for verb, _ in others:
        parser.add_argument(verb.flag, action="store_true", help=verb.help)


def add_arguments(parser: argparse.ArgumentParser, each: Operation) -> None:
    """What the operation has to be told."""
    for argument in each.arguments:
        _ADD[argument.kind](parser, each, argument)


def _value(parser: argparse.ArgumentParser, each: Operation, argument: Argument) -> None:
    parser.add_argument("value", metavar=argument.metavar, help=argument.help)


def _device(parser: argparse.ArgumentParser, each: Operation, argument: Argument) -> None:
    parser.add_argument("--device", required=True, metavar=argument.metavar, help=argument.help)


def _scope(parser: argparse.ArgumentParser, each: Operation, argument: Argument) -> None:
    scope = parser.add_mutually_exclusive_group(required=True)
    scope.add_argument("--default", action="store_true", help="for servers that start from now on")
    scope.add_argument("--server", type=pid, metavar="PID", help="for new clients of this server")


def _clients(parser: argparse.ArgumentParser, each: Operation, argument: Argument) -> None:
    if each.finds_clients:
        parser.add_argument("pids", nargs="*", type=pid, metavar=argument.metavar, help=argument.help)
    else:
        parser.add_argument("client_pid", type=pid, nargs="?", metavar=argument.metavar, help=argument.help)


def _owner(parser: argparse.ArgumentParser, each: Operation, argument: Argument) -> None:
    parser.add_argument("--owner", metavar=argument.metavar, help=argument.help)


def _server(parser: argparse.ArgumentParser, each: Operation, argument: Argument) -> None:
    parser.add_argument("server", type=pid, metavar=argument.metavar, help=argument.help)


def _force(parser: argparse.ArgumentParser, each: Operation, argument: Argument) -> None:
    parser.add_argument("-f", "--force", action="store_true", help=argument.help)


def _name(parser: argparse.ArgumentParser, each: Operation, argument: Argument) -> None:
    parser.add_argument("name", metavar=argument.metavar, help=argument.help)


def _text(parser: argparse.ArgumentParser, each: Operation, argument: Argument) -> None:
    parser.add_argument(argument.option, metavar=argument.metavar, help=argument.help)


def _list(parser: argparse.ArgumentParser, each: Operation, argument: Argument) -> None:
    parser.add_argument(argument.option, action="append", default=[], metavar=argument.metavar, help=argument.help)


def _flag(parser: argparse.ArgumentParser, each: Operation, argument: Argument) -> None:
    parser.add_argument(argument.option, action="store_true", help=argument.help)


def _option(parser: argparse.ArgumentParser, each: Operation, argument: Argument) -> None:
    choices = [value for value, _ in argument.choices]
    parser.add_argument(argument.option, choices=choices, help=argument.help)


def _seconds(parser: argparse.ArgumentParser, each: Operation, argument: Argument) -> None:
    parser.add_argument(argument.option, type=whole(0, 86400), metavar=argument.metavar, help=argument.help)


def _size(parser: argparse.ArgumentParser, each: Operation, argument: Argument) -> None:
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--chunks", dest="value", metavar=argument.metavar, help="in chunks, the units of a device")
    size.add_argument(
        "--sms", dest="value", type=lambda text: f"{text} SM", metavar=argument.metavar, help="in SMs, whole chunks"
    )


def _setting(parser: argparse.ArgumentParser, each: Operation, argument: Argument) -> None:
    name = f"setting_{argument.option.lstrip('-')}"
    parser.add_argument(argument.option, dest=name, metavar=argument.metavar, help=argument.help)


_ADD: Final[dict[str, Callable[[argparse.ArgumentParser, Operation, Argument], None]]] = {
    "value": _value,
    "choice": _value,
    "device": _device,
    "scope": _scope,
    "clients": _clients,
    "owner": _owner,
    "server": _server,
    "force": _force,
    "name": _name,
    "text": _text,
    "list": _list,
    "flag": _flag,
    "option": _option,
    "seconds": _seconds,
    "size": _size,
    "setting": _setting,
}


def is_operation(words: tuple[str, ...]) -> bool:
    """Whether a command is one of them."""
    return any(verb.words == words for verb, _ in VERBS)


def chosen(options: argparse.Namespace) -> Operation:
    """The operation that the command line asks for."""
    (_, plain), *others = ((verb, each) for verb, each in VERBS if verb.words == options.words)
    flags = ((verb.flag.lstrip("-").replace("-", "_"), each) for verb, each in others)
    return next((each for flag, each in flags if getattr(options, flag)), plain)


def names_one(words: Collection[str]) -> bool:
    """Whether the words of a command line, which may be wrong in other ways, ask for one of them."""
    return _CHANGE_ALWAYS in words or any(set(verb.words) <= set(words) for verb, _ in VERBS)


def draft(operation: Operation, options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> Request:
    """What is asked for, as far as the options alone tell: clients are found on the node."""
    return Request(
        operation.id,
        pipe_dirs[0] if pipe_dirs else Path(),
        getattr(options, "value", ""),
        getattr(options, "server", None),
        getattr(options, "device", None),
        owner=getattr(options, "owner", None) or "",
        force=getattr(options, "force", False),
        settings=tuple(
            (name.removeprefix("setting_"), value)
            for name, value in vars(options).items()
            if name.startswith("setting_") and value is not None
        ),
    )
