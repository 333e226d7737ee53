"""The JSON Schemas: real output of the simulated node holds them, to the last key, and the files are those of today."""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
from jsonschema import Draft202012Validator, FormatChecker

from mpstui.cli.parser import LateParser, build_parser
from mpstui.cli.schema import RECORDING, SCHEMAS, schema_of, text_of
from mpstui.core.codec import codec
from mpstui.core.model import Daemon
from mpstui.history.recording import line_schema
from mpstui.sim.marker import control_binary
from mpstui.sim.node import SimNode

from .conftest import Mpstui

KEPT = Path(__file__).parents[2] / "docs" / "schema"


def closed(part: Any) -> Any:
    """The same with no key but those that it names: nothing may be printed that no schema tells of."""
    if isinstance(part, list):
        return [closed(each) for each in part]
    if not isinstance(part, Mapping):
        return part
    made = {key: closed(value) for key, value in part.items()}
    if "properties" in made and made.get("type") == "object":
        made.setdefault("additionalProperties", False)
    return made


@functools.cache
def validator(name: str) -> Draft202012Validator:
    schema = closed(schema_of(name))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema, format_checker=FormatChecker())


def check(name: str, told: Any) -> None:
    errors = [f"{'/'.join(map(str, error.path))}: {error.message}" for error in validator(name).iter_errors(told)]
    assert not errors, errors


@pytest.mark.parametrize("name", [*SCHEMAS, RECORDING])
def test_the_file_is_that_of_today(name: str) -> None:
    kept = (KEPT / f"{name}.json").read_text()
    assert kept == text_of(name), f"docs/schema/{name}.json: make manual"
    assert {path.stem for path in KEPT.glob("*.json")} == {*SCHEMAS, RECORDING}


def commands_with_json(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Each command of the parser that takes ``--json``, with the options that it only gets when it is chosen."""
    if isinstance(parser, LateParser):
        parser.complete()
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if any("--json" in action.option_strings for action in parser._actions):
        yield " ".join(words)
    for action in below:
        for name, each in action.choices.items():
            yield from commands_with_json(each, (*words, name))


def test_every_command_with_json_has_a_schema() -> None:
    there = set(commands_with_json(build_parser()))
    assert {"status", "load", "set client-priority", "profile apply", "config show"} <= there, "the walk finds them"
    told = {words for each in SCHEMAS.values() for words in each.commands}
    assert there - told == set(), "a table of fields, and a row of SCHEMAS in mpstui/cli/schema.py"
    assert told - there == set(), "no such command"


def test_a_schema_that_is_not_held_is_seen() -> None:
    told = {"schema": 1, "time": "2026-11-20T21:29:12.195+00:00", "source": "real", "host": "",
            "driver_version": None, "daemons": [], "devices": []}  # fmt: skip
    check("status", told | {"problems": []})
    for wrong in (told, told | {"problems": [], "more": 1}, told | {"problems": [{}]}, told | {"problems": None}):
        with pytest.raises(AssertionError):
            check("status", wrong)


@pytest.mark.parametrize("demo", ["demo", "fault", "blocked", "held", "pending", "full", "stale", "nostart"])
def test_status_of_every_simulated_node(mpstui: Mpstui, demo: str) -> None:
    told = mpstui("status", "--json", f"--demo={demo}")
    assert told.json["source"] == "simulated"
    check("status", told.json)


def test_status_with_clients(node: SimNode, mpstui: Mpstui) -> None:
    client = node.spawn("busy", user="alice", devices=(0, 1))
    mpstui("set", "pinned-mem-limit", "10G", "--device", "0", "--default", "--pipe-dir", node.pipe_dir)
    told = mpstui("status", "--json", "--pipe-dir", node.pipe_dir).json
    assert told["daemons"][0]["servers"][0]["clients"]
    check("status", told)
    client.tell("exit")


@pytest.mark.parametrize("demo", ["demo", "fault"])
def test_every_event(mpstui: Mpstui, demo: str) -> None:
    lines = mpstui("events", "--json", "--all", f"--demo={demo}").out.splitlines()
    assert lines
    for line in lines:
        check("events", json.loads(line))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("suspects", ("suspects", "--json", "--demo=fault")),
        ("doctor", ("doctor", "--json", "--demo")),
        ("plan", ("plan", "--clients", "3", "--json", "--demo")),
        ("plan", ("plan", "--clients", "3", "--json", "--sm-count-total", "132")),
        ("plan", ("plan", "--sm-count", "24,60", "--json", "--sm-count-total", "132", "--memory-total", "80GiB")),
    ],
)
def test_what_other_commands_print(mpstui: Mpstui, name: str, arguments: tuple[str, ...]) -> None:
    check(name, mpstui(*arguments).json)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (("set", "client-priority", "1"), 0),
        (("set", "active-thread-percentage", "250", "--default"), 2),
        (("terminate", "1", "--yes"), 6),
    ],
)
def test_what_came_of_a_change(node: SimNode, mpstui: Mpstui, change: tuple[str, ...], status: int) -> None:
    told = mpstui(*change, "--json", "--pipe-dir", node.pipe_dir)
    assert told.status == status, told
    assert told.json["exit_status"] == status
    check("result", told.json)


@pytest.mark.slow
def test_each_line_of_a_load(mpstui: Mpstui) -> None:
    told = mpstui("load", "fma", "--clients", "2", "--seconds", "1", "--json", "--yes", "--demo")
    lines = [json.loads(line) for line in told.out.splitlines()]
    assert lines, told
    assert lines[-1]["final"]
    for line in lines:
        check("load", line)


def test_schema_prints_one_or_says_which_there_are(mpstui: Mpstui) -> None:
    assert mpstui("schema", "status").json == schema_of("status")
    assert all(name in mpstui("schema").out for name in SCHEMAS)
    wrong = mpstui("schema", "nonsense")
    assert (wrong.status, wrong.out) == (2, "")
    assert "status" in wrong.err


def test_profiles_and_daemons_stopped_and_started(own_node: SimNode, mpstui: Mpstui, tmp_path: Path) -> None:
    where, config = ("--pipe-dir", own_node.pipe_dir), {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    check("profile-save", mpstui("profile", "save", "day", "--json", *where, **config).json)
    (tmp_path / "config" / "mpstui" / "profiles" / "bad.toml").write_text("schema = 2")
    profiles = mpstui("profile", "list", "--json", **config).json
    assert [(each["name"], each["error"] is None) for each in profiles["profiles"]] == [("bad", False), ("day", True)]
    check("profiles", profiles)
    half = "schema = 1\n[[daemon]]\n[daemon.limits]\nactive_thread_percentage = 50\n"
    (tmp_path / "config" / "mpstui" / "profiles" / "half.toml").write_text(half)
    for words, status in ((("profile", "diff", "half"), 1), (("profile", "apply", "half", "--dry-run"), 0)):
        told = mpstui(*words, "--json", *where, **config)
        assert (told.status, told.json["differences"][0]["wanted"]) == (status, "50 %"), told
        check("profile-diff", told.json)
    for place, status in (own_node.pipe_dir, 0), ("/tmp/mpstui-none", 3):
        told = mpstui("profile", "apply", "half", "--json", "--pipe-dir", place, **config)
        assert (told.status, told.json["done"]) == (status, status == 0), told
        check("profile-apply", told.json)
    for status in (0, 3):  # the second time nothing runs there
        told = mpstui("daemon", "stop", "--json", "--yes", *where)
        assert (told.status, told.json["exit_status"]) == (status, status), told
        check("daemon-stop", told.json)
    binary = {"MPSTUI_CONTROL_BINARY": control_binary()[-1]}
    refused = mpstui("--read-only", "daemon", "start", "--json", "--pipe-dir", "/tmp/mpstui-none", **binary)
    assert refused.json["daemons"][0]["pid"] is None
    check("daemon-start", refused.json)


def test_what_is_configured(mpstui: Mpstui, tmp_path: Path) -> None:
    (tmp_path / "mpstui").mkdir()
    (tmp_path / "mpstui" / "config.toml").write_text('theme = "nord"\nread_only = true\n')
    told = mpstui("config", "show", "--json", XDG_CONFIG_HOME=str(tmp_path), MPSTUI_CONTROL_DEADLINE="60").json
    assert {"name": "theme", "value": "nord", "from": told["files"][1]} in told["values"]
    assert told["variables"]["MPSTUI_CONTROL_DEADLINE"] == "60"
    check("config", told)


@pytest.mark.slow
def test_an_experiment(mpstui: Mpstui) -> None:
    words = ("--clients", "1,2", "--repeats", "1", "--seconds", "0.3", "--json", "--demo")
    check("experiment", mpstui("experiment", "nbody", *words).json)


def test_the_schema_of_a_recording_has_what_it_names_and_nothing_else() -> None:
    """Whatever else of the program had a way to JSON before it was asked for."""
    before = line_schema()
    codec(Daemon)
    assert line_schema() == before
    assert {"ProcessFacts", "Event"} <= before["$defs"].keys()


def test_the_order_in_which_a_set_of_words_is_written_down_does_not_matter() -> None:
    """On Python 3.10 a type came with the order in which something else had written it."""
    codec.cache_clear()
    assert codec(Literal["later", "earlier"]).schema == {"enum": ["earlier", "later"]}
