"""What an operation says is to be typed for a request is that request, whatever it is told."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from mpstui.cli.parser import parse
from mpstui.cli.verbs import chosen, draft
from mpstui.core.model import ProcessKey
from mpstui.operations.operation import Operation
from mpstui.operations.registry import OPERATIONS
from mpstui.operations.types import Argument, Request

PIPE = Path("/tmp/mps 0")
SAYS = [each for each in OPERATIONS if each.verb is not None and not each.subject]


def told(argument: Argument) -> dict[str, Any]:
    """What a request has of it."""
    values: dict[str, dict[str, Any]] = {
        "value": {"value": "a b"},
        "choice": {"value": "1"},
        "size": {"value": "56 SM"},
        "scope": {"server_pid": 634},
        "server": {"server_pid": 634},
        "device": {"device": "GPU-1"},
        "clients": {"clients": (ProcessKey(643),)},
        "owner": {"owner": "mallory"},
        "force": {"force": True},
        "setting": {"settings": ((argument.option.lstrip("-"), "x y"),)},
        "text": {},
    }
    return values[argument.kind]


def whole(each: Operation) -> Request:
    made = Request(each.id, PIPE)
    for argument in each.arguments:
        more = told(argument)
        made = made._replace(**more | {"settings": (*made.settings, *more.get("settings", ()))})
    return made


@pytest.mark.parametrize("each", SAYS, ids=lambda each: each.id)
def test_what_is_said_to_be_typed_is_what_was_asked(each: Operation) -> None:
    request = whole(each)
    options = parse(shlex.split(each.command_line(request))[1:])
    assert chosen(options) is each
    assert options.pipe_dir == [PIPE]
    pids = [options.client_pid] if hasattr(options, "client_pid") else getattr(options, "pids", [])
    assert draft(each, options, options.pipe_dir)._replace(clients=tuple(map(ProcessKey, pids))) == request


@pytest.mark.parametrize("each", [each for each in OPERATIONS if each not in SAYS], ids=lambda each: each.id)
def test_what_a_command_line_cannot_say_is_not_said_in_part(each: Operation) -> None:
    assert each.command_line(Request(each.id, PIPE)) == ""
