"""``config show`` and ``config check``: what is in force and from where, and what is wrong in the files."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, NamedTuple

import mpstui.config
from mpstui.cli.output import complain, print_json
from mpstui.config import Config, config_dir, knows_root, load_config, load_themes, may_see_commands
from mpstui.core.text import path_text, printable
from mpstui.fields import OBJECTS, SCHEMA, TEXT, TEXTS, WORDS, Field, Thing, Type
from mpstui.operations.types import ExitStatus

DEFAULT: Final = "default"
_VARIABLES: Final = (
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_LOG_DIRECTORY",
    "MPSTUI_AUDIT_LOG",
    "MPSTUI_CONTROL_BINARY",
    "MPSTUI_CONTROL_DEADLINE",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``config``."""
    parser.description = (
        f"The configuration: {path_text(mpstui.config.SYSTEM)}, which is root's, above it config.toml of the user's "
        "config folder, then variables, then options. Nothing overrides a policy in root's file."
    )
    parser.epilog = "example: mpstui config check"
    actions = parser.add_subparsers(metavar="COMMAND", required=True)
    show = actions.add_parser(
        "show", help="each value, and the file that it is from", epilog="example: mpstui config show --json"
    )
    show.add_argument("--json", action="store_true", help="print JSON")
    actions.add_parser(
        "check", help="what is wrong in the files; exit status 1 if anything", epilog="example: mpstui config check"
    )


def check(options: argparse.Namespace) -> int:
    """``config check``: what is wrong in the files; the exit status."""
    found, messages = _loaded()
    messages += load_themes()[1]
    if found.keys or found.commands:
        from mpstui.ui.keymap import places, resolve, usable  # only where it has keys: the screen is large

        keys, unheeded = resolve(found.keys, places())
        messages += [*unheeded, *usable(found.commands, keys, places())[1]]
    for message in messages:
        complain(message, 1)
    return 1 if messages else ExitStatus.DONE


def show(options: argparse.Namespace) -> int:
    """``config show``: each value, and where it is from; the exit status."""
    found, messages = _loaded()
    values, variables = told(found), {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    if options.json:
        print_json(CONFIG, PrintedConfig(values, variables))
    else:
        width = max(len(name) for name, _, _ in values)
        for name, value, origin in values:
            print(f"{name:<{width}}  {_text(value):<20}  {origin}")
        for name, value in variables.items():
            print(f"{name}={printable(value)}  the environment")
    for message in messages:
        complain(message, 0)
    return ExitStatus.DONE


def _loaded() -> tuple[Config, list[str]]:
    """It, and what is wrong in it; whose root's file is, where that cannot be told, is said."""
    found, messages = load_config()
    if not knows_root() and os.path.exists(mpstui.config.SYSTEM):
        complain(
            f"root of the host has no UID in this user namespace, so {path_text(mpstui.config.SYSTEM)} seems to belong "
            "to nobody. mpstui treats it as root's: its policy applies to all users here, also to UID 0. Its "
            "[[commands]] are not used",
            0,
        )
    return found, messages


class PrintedConfig(NamedTuple):
    """What is printed of it."""

    values: list[tuple[str, Any, str]]
    """Name, value, and the file that it is from."""
    variables: Mapping[str, str]


VALUE: Final[Thing[tuple[str, Any, str]]] = Thing(
    "config_value",
    "A value that is in force.",
    (
        Field("name", "name", TEXT, lambda c, v: c[0]),
        Field("value", "value", Type({}), lambda c, v: c[1], null=True),
        Field("from", "from", TEXT, lambda c, v: c[2], about="The file; default: none."),
    ),
)

CONFIG: Final[Thing[PrintedConfig]] = Thing(
    "config",
    "What is configured, and where.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda c, v: SCHEMA),
        Field(
            "files", "files", TEXTS,
            lambda c, v: map(path_text, (mpstui.config.SYSTEM, config_dir() / "config.toml")),
            about="That are read, the system's first.",
        ),
        Field("values", "values", OBJECTS, lambda c, v: c.values, of=VALUE),
        Field(
            "variables", "variables", WORDS,
            lambda c, v: {name: printable(value) for name, value in c.variables.items()},
            about="Of the environment, those that are set.",
        ),
    ),
)  # fmt: skip


def told(found: Config) -> list[tuple[str, Any, str]]:
    """Name, value and the file that it is from; ``default`` where it is from none."""
    values: list[tuple[str, Any, str]] = []
    for each in fields(Config):
        if each.name in {"origins", "policy", "commands"}:
            continue
        value, origin = getattr(found, each.name), found.origins.get(each.name, DEFAULT)
        if isinstance(value, Mapping):
            values += [(f"{each.name}.{name}", inner, origin) for name, inner in value.items()]
        else:
            values.append((each.name, value, origin))
    values += [(f"commands.{each.name}", f"{each.key}  {shlex.join(each.run)}", each.origin) for each in found.commands]
    policy = found.origins.get("policy", DEFAULT)
    values.append(("policy.read_only", found.policy.read_only, policy))
    values.append(("policy.idle_minutes", found.policy.idle_minutes, policy))
    values.append(("policy.commands", found.policy.commands, policy))
    values.append(("policy.sees_commands", may_see_commands(found.policy), policy))
    return values


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "—" if value is None else f"{value:g}" if isinstance(value, float) else printable(str(value))
