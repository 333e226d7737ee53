"""The commands that change a node: their options are made from the table of operations, each in one loop over it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Final

from mpstui.operations.operation import Operation
from mpstui.operations.registry import OPERATIONS
from mpstui.operations.types import Argument, Danger, Request

_GROUPS: Final = {"set": ("set a limit of new clients", "limit", "LIMIT")}
"""First words of several verbs: help, the option's name, and what stands for the second word."""


def pid(text: str) -> int:
    """A process id. Raises argparse's error."""
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:20]) < 1 << 31):
        raise argparse.ArgumentTypeError(f"{text!r} is no process id: a whole number above 0 is needed")
    return int(text)


def add_verbs(commands: Any, node: argparse.ArgumentParser) -> None:
    """Add them to the command line. ``node``: the options that every command takes."""
    groups: dict[str, Any] = {}
    parsers: dict[tuple[str, ...], argparse.ArgumentParser] = {}
    for each in OPERATIONS:
        words = each.verb.words
        if words in parsers:  # the same with another option
            parsers[words].add_argument(each.verb.flag, action="store_true", help=each.verb.help)
            continue
        parent = commands
        if len(words) > 1:
            if words[0] not in groups:
                help_text, name, metavar = _GROUPS[words[0]]
                group = commands.add_parser(words[0], help=help_text)
                groups[words[0]] = group.add_subparsers(dest=name, metavar=metavar, required=True)
            parent = groups[words[0]]
        example = f"example: {each.verb.example}" if each.verb.example else None
        parser = parent.add_parser(words[-1], parents=[node], help=each.verb.help, epilog=example)
        parser.set_defaults(verb=words)
        parsers[words] = parser
        for argument in each.arguments:
            _ADD[argument.kind](parser, each, argument)
        if each.danger is Danger.HARM:
            parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.add_argument("--json", action="store_true", help="print the result as JSON")


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
        parser.add_argument("client_pid", type=pid, metavar=argument.metavar, help=argument.help)


def _owner(parser: argparse.ArgumentParser, each: Operation, argument: Argument) -> None:
    parser.add_argument("--owner", metavar=argument.metavar, help=argument.help)


def _server(parser: argparse.ArgumentParser, each: Operation, argument: Argument) -> None:
    parser.add_argument("server", type=pid, metavar=argument.metavar, help=argument.help)


def _force(parser: argparse.ArgumentParser, each: Operation, argument: Argument) -> None:
    parser.add_argument("-f", "--force", action="store_true", help=argument.help)


_ADD: Final[dict[str, Callable[[argparse.ArgumentParser, Operation, Argument], None]]] = {
    "value": _value,
    "choice": _value,
    "device": _device,
    "scope": _scope,
    "clients": _clients,
    "owner": _owner,
    "server": _server,
    "force": _force,
}


def chosen(options: argparse.Namespace) -> Operation | None:
    """The operation that the command line asks for; None where the command changes nothing."""
    words = getattr(options, "verb", None)
    found = [each for each in OPERATIONS if each.verb.words == words]
    flagged = (each for each in found if each.verb.flag and getattr(options, each.verb.flag.lstrip("-"), False))
    return next(flagged, None) or (found[0] if found else None)


def names_one(words: Collection[str]) -> bool:
    """Whether the words of a command line, which may be wrong in other ways, ask for one of them."""
    return any(word in words for word in _GROUPS) or any(set(each.verb.words) <= set(words) for each in OPERATIONS)


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
    )
