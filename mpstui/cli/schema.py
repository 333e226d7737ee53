"""JSON Schemas of what is printed with ``--json``, made from the tables of fields; ``mpstui schema``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

from mpstui.cli.output import complain
from mpstui.fields import OBJECT, Field, Thing
from mpstui.operations.registry import VERBS
from mpstui.operations.types import ExitStatus

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"


class Schema(NamedTuple):
    """Of one object that is printed."""

    commands: tuple[str, ...]
    """The words of the commands that print it."""
    about: str
    where: str
    """``module:NAME`` of the table that it is made from; read when it is asked for."""

    @property
    def thing(self) -> Thing[Any]:
        module, _, name = self.where.partition(":")
        found: Thing[Any] = getattr(import_module(f"mpstui.{module}"), name)
        return found


SCHEMAS: Final[Mapping[str, Schema]] = {
    "status": Schema(("status",), "mpstui status --json: one snapshot of the node.", "fields:SNAPSHOT"),
    "groups": Schema(("status",), "mpstui status --group-by NAME --json.", "fields:GROUPED_NODE"),
    "events": Schema(("events",), "mpstui events --json: each line.", "fields:EVENT"),
    "suspects": Schema(("suspects",), "mpstui suspects --json.", "fields:SUSPECTS"),
    "activity": Schema(("activity",), "mpstui activity --json.", "fields:ACTIVITY"),
    "why": Schema(("why",), "mpstui why PID --json.", "cli.why:WHY"),
    "error": Schema(("explain",), "mpstui explain CODE --json.", "cli.why:ERROR"),
    "doctor": Schema(("doctor",), "mpstui doctor --json.", "cli.doctor:DOCTOR"),
    "config": Schema(("config show",), "mpstui config show --json.", "cli.config:CONFIG"),
    "partitions": Schema(("partition list",), "mpstui partition list --json.", "cli.partition:LISTED"),
    "plan-static": Schema(("plan",), "mpstui plan --static --json.", "cli.partition:STATIC_PLAN"),
    "plan": Schema(("plan",), "mpstui plan --json.", "cli.plan:PLAN"),
    "result": Schema(
        tuple(" ".join(verb.words) for verb, _ in VERBS),
        "mpstui set, terminate and the other commands that change a daemon, with --json.",
        "fields:RESULT",
    ),
    "fleet": Schema(("fleet",), "mpstui fleet --json: many nodes.", "fleet:FLEET"),
    "experiment": Schema(("experiment",), "mpstui experiment NAME --json.", "cli.experiment:EXPERIMENT"),
    "profiles": Schema(("profile list",), "mpstui profile list --json.", "cli.profile:PROFILES"),
    "profile-save": Schema(("profile save",), "mpstui profile save NAME --json.", "cli.profile:SAVED"),
    "profile-apply": Schema(
        ("profile apply", "plan"), "mpstui profile apply NAME --json, mpstui plan --apply --json.", "cli.apply:APPLIED"
    ),
    "profile-diff": Schema(
        ("profile diff", "profile apply", "plan"),
        "mpstui profile diff NAME --json, and profile apply and plan --apply with --dry-run.",
        "cli.apply:DRIFT",
    ),
    "daemon-start": Schema(("daemon start",), "mpstui daemon start --json.", "cli.daemon:ALL_STARTED"),
    "daemon-stop": Schema(
        ("daemon stop",), "mpstui daemon stop --json: each line, one for each daemon.", "cli.daemon:STOPPED"
    ),
    "load": Schema(("load",), "mpstui load --json: each line; the last one is final.", "cli.load:LOAD"),
}
"""Each object that a command prints with ``--json``."""


RECORDING: Final = "recording"
"""Of what is no table of fields: the lines of a recording, by the types of what is written down."""


def schema_of(name: str) -> dict[str, Any]:
    """The schema of one of ``SCHEMAS``, draft 2020-12. Keys may come: none but those that are there is ruled out."""
    if name == RECORDING:
        from mpstui.api import recording_schema

        return recording_schema()
    definitions: dict[str, Any] = {}
    whole = _object(SCHEMAS[name].thing, definitions)
    return {
        "$schema": DRAFT,
        "title": SCHEMAS[name].about,
        **whole,
        **({"$defs": dict(sorted(definitions.items()))} if definitions else {}),
    }


def _object(thing: Thing[Any], definitions: dict[str, Any]) -> dict[str, Any]:
    return {
        "description": thing.about,
        "type": "object",
        "properties": {each.id: _property(each, definitions) for each in thing.fields},
        "required": [each.id for each in thing.fields if each.only is None],
    }


def _property(each: Field[Any], definitions: dict[str, Any]) -> dict[str, Any]:
    made = dict(each.type.schema)
    if each.of is not None:
        if each.of.name not in definitions:
            definitions[each.of.name] = {}  # one that holds itself would not end
            definitions[each.of.name] = _object(each.of, definitions)
        one = {"$ref": f"#/$defs/{each.of.name}"}
        made = one if each.type is OBJECT else {"type": "array", "items": one}
    if each.null:
        made = _or_null(made)
    told = {"title": each.title, **({"description": each.about} if each.about else {})}
    return {**told, **made, **({"unit": each.type.unit} if each.type.unit else {})}


def _or_null(made: Mapping[str, Any]) -> dict[str, Any]:
    if "enum" in made:
        return {**made, "enum": [*made["enum"], None]}
    if "type" in made:
        return {**made, "type": [made["type"], "null"]}
    if not made:  # whatever it is
        return {}
    return {"anyOf": [dict(made), {"type": "null"}]}


def text_of(name: str) -> str:
    """As ``docs/schema`` keeps it."""
    return json.dumps(schema_of(name), ensure_ascii=False, indent=2) + "\n"


def schema(options: argparse.Namespace) -> int:
    """Print one schema, or which there are."""
    if options.name is None:
        for name, each in SCHEMAS.items():
            print(f"{name:<14} {each.about}")
        print(f"{RECORDING:<14} mpstui record: each line of what zcat prints of its file.")
        return ExitStatus.DONE
    if options.name not in (*SCHEMAS, RECORDING):
        known = ", ".join((*SCHEMAS, RECORDING))
        return complain(f"there is no schema {options.name!r}; there are: {known}", ExitStatus.USAGE)
    print(text_of(options.name), end="")
    return ExitStatus.DONE
