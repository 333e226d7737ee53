"""JSON Schemas of what is printed with ``--json``, made from the tables of fields; ``mpstui schema``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from mpstui.cli.say import complain
from mpstui.fields import EVENT, GROUPED_NODE, OBJECT, SNAPSHOT, Field, Thing
from mpstui.operations.types import ExitStatus

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"


def _plan() -> Thing[Any]:
    from mpstui.cli.plan import PLAN

    return PLAN


def _doctor() -> Thing[Any]:
    from mpstui.cli.doctor import DOCTOR

    return DOCTOR


def _suspects() -> Thing[Any]:
    from mpstui.cli.events import SUSPECTS

    return SUSPECTS


def _activity() -> Thing[Any]:
    from mpstui.fields import ACTIVITY

    return ACTIVITY


def _load() -> Thing[Any]:
    from mpstui.cli.load import LOAD

    return LOAD


def _why() -> Thing[Any]:
    from mpstui.cli.why import WHY

    return WHY


def _error() -> Thing[Any]:
    from mpstui.cli.why import ERROR

    return ERROR


def _result() -> Thing[Any]:
    from mpstui.cli.change import RESULT

    return RESULT


def _partitions() -> Thing[Any]:
    from mpstui.cli.partition import LISTED

    return LISTED


def _static_plan() -> Thing[Any]:
    from mpstui.cli.partition import STATIC_PLAN

    return STATIC_PLAN


def _fleet() -> Thing[Any]:
    from mpstui.fleet import FLEET

    return FLEET


def _experiment() -> Thing[Any]:
    from mpstui.cli.experiment import EXPERIMENT

    return EXPERIMENT


def _profiles() -> Thing[Any]:
    from mpstui.cli.profile import PROFILES

    return PROFILES


def _profile_saved() -> Thing[Any]:
    from mpstui.cli.profile import SAVED

    return SAVED


def _daemon_start() -> Thing[Any]:
    from mpstui.cli.daemon import ALL_STARTED

    return ALL_STARTED


def _daemon_stop() -> Thing[Any]:
    from mpstui.cli.daemon import STOPPED

    return STOPPED


SCHEMAS: Final[Mapping[str, tuple[str, Callable[[], Thing[Any]]]]] = {
    "status": ("mpstui status --json: one snapshot of the node.", lambda: SNAPSHOT),
    "groups": ("mpstui status --group-by NAME --json.", lambda: GROUPED_NODE),
    "events": ("mpstui events --json: each line.", lambda: EVENT),
    "suspects": ("mpstui suspects --json.", _suspects),
    "activity": ("mpstui activity --json.", _activity),
    "why": ("mpstui why PID --json.", _why),
    "error": ("mpstui explain CODE --json.", _error),
    "doctor": ("mpstui doctor --json.", _doctor),
    "partitions": ("mpstui partition list --json.", _partitions),
    "plan-static": ("mpstui plan --static --json.", _static_plan),
    "plan": ("mpstui plan --json.", _plan),
    "result": ("mpstui set, terminate and the other commands that change a daemon, with --json.", _result),
    "fleet": ("mpstui fleet --json: many nodes.", _fleet),
    "experiment": ("mpstui experiment NAME --json.", _experiment),
    "profiles": ("mpstui profile list --json.", _profiles),
    "profile-save": ("mpstui profile save NAME --json.", _profile_saved),
    "daemon-start": ("mpstui daemon start --json.", _daemon_start),
    "daemon-stop": ("mpstui daemon stop --json: each line, one for each daemon.", _daemon_stop),
    "load": ("mpstui load --json: each line; the last one is final.", _load),
}
"""What each is about, and whose fields it has."""


def schema_of(name: str) -> dict[str, Any]:
    """The schema of one of ``SCHEMAS``, draft 2020-12. Keys may come: none but those that are there is ruled out."""
    title, thing = SCHEMAS[name]
    definitions: dict[str, Any] = {}
    whole = _object(thing(), definitions)
    return {
        "$schema": DRAFT,
        "title": title,
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
    return {"anyOf": [dict(made), {"type": "null"}]}


def text_of(name: str) -> str:
    """As ``docs/schema`` keeps it."""
    return json.dumps(schema_of(name), ensure_ascii=False, indent=2) + "\n"


def schema(options: argparse.Namespace) -> int:
    """Print one schema, or which there are."""
    if options.name is None:
        for name, (about, _) in SCHEMAS.items():
            print(f"{name:<10} {about}")
        return ExitStatus.DONE
    if options.name not in SCHEMAS:
        return complain(f"there is no schema {options.name!r}; there are: {', '.join(SCHEMAS)}", ExitStatus.USAGE)
    print(text_of(options.name), end="")
    return ExitStatus.DONE
