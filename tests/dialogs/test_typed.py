"""Commands typed by name: what they mean, what may come next, and that nothing is done before the dialog has asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ui.screen import make_app, text_of, until
from ui.snapshots import GPU1, OTHER_PIPE, clients, rich, server

from mpstui.operations.registry import ON_OVERVIEW
from mpstui.ui.dialogs import ChangeForm, HarmConfirm
from mpstui.ui.dialogs.command_words import commands, names, views

PERCENT = "set_active_thread_percentage"


def meant(text: str, **changes: Any):
    snapshot = rich()
    return list(commands(text, ON_OVERVIEW, snapshot, replace(snapshot.daemons[0], **changes)))


def test_a_client_is_named_by_its_pid_and_said_again() -> None:
    first = next(each for each in meant("terminate 2007") if each.operation)
    assert (first.operation.id, first.clients) == ("terminate_client", (clients()[1].key,))
    assert "2007 bob python -m vllm" in first.help
    kill = next(each for each in meant("terminate kill 2007 2014") if each.operation)
    assert kill.operation.id == "terminate_and_kill"
    assert [key.pid for key in kill.clients] == [2007, 2014]


def test_a_limit_is_set_by_its_short_name_and_by_the_commands_words() -> None:
    for text in ("set threads 25 server", "set threads 25 1402", "set active-thread-percentage 25 server 1402"):
        first = next(each for each in meant(text) if each.operation)
        assert (first.operation.id, first.value, first.server) == (
            "set_active_thread_percentage",
            "25",
            server().key,
        ), text
    memory = next(each for each in meant("set memory 4g gpu1 default") if each.operation)
    assert (memory.operation.id, memory.value, memory.device, memory.server) == (
        "set_pinned_mem_limit",
        "4g",
        GPU1,
        None,
    )
    old = {"ordinals": {}, "lacks": frozenset({"device_query"})}  # driver 550 goes by its own numbers
    found = [each for each in meant("set memory 4g gpu1 default", **old) if each.operation]
    assert [(each.value, each.device) for each in found] == [("4g", "1")]


def test_what_may_come_next_is_offered_word_by_word() -> None:
    typed_on = {each.text: each.shown for each in meant("ter")}
    assert typed_on == {"terminate ": "terminate …", "terminate kill ": "terminate kill …"}, "not as what is run"
    assert "terminate 2007" in [each.text for each in meant(next(iter(typed_on)) + "2007")], "its PID can be typed on"
    assert "terminate 2007 " in [each.text for each in meant("terminate 200")]
    assert {"set threads 25 1402 ", "set threads 25 default "} <= {each.text for each in meant("set threads 25 ")}
    assert [each.text for each in meant("set threads 25 ser")] == ["set threads 25 server "], "there is one"
    assert "set memory 4g gpu1 " in [each.text for each in meant("set memory 4g gp")]


@pytest.mark.parametrize(
    "text", ["terminate 99999 ", "terminate 99999", "terminate 2007 99999 ", "terminate x y", "unblock 7"]
)
def test_what_is_not_understood_opens_nothing_and_is_named(text: str) -> None:
    found = [each for each in meant(text) if each.operation and each.text.startswith(text.strip())]
    assert found == []
    assert any("“" in each.help for each in meant(text))


def test_a_daemon_and_a_view_that_are_not_there_are_named_with_those_that_are() -> None:
    (told,) = meant("daemon nowhere")
    assert told.pipe_dir is None
    assert told.help.startswith("no daemon has “nowhere” in its directory; there are: /")
    choices = {"sort": [("pid", "its process"), ("mem", "its memory")], "find": []}
    (wrong,) = views("sort colour", choices)
    assert (wrong.view, wrong.help) == (None, "“colour” is not known here; there are: pid, mem")
    assert [each.view for each in views("sort m", choices)] == [("sort", "mem")]


def test_every_operation_of_the_overview_has_a_name_and_none_has_anothers() -> None:
    told = [name for each in ON_OVERVIEW for name in names(each)]
    assert len(told) == len(set(told))
    for each in ON_OVERVIEW:
        assert list(meant(names(each)[0])) or any(a.kind == "value" for a in each.arguments), each.id


@pytest.mark.slow
async def test_the_dialogs_ask_and_a_daemon_is_shown() -> None:
    app = make_app(rich())
    async with app.run_test(size=(120, 40)) as pilot:
        keys = {" ": "space", "-": "minus"}
        for text, kind in (("terminate 2007", HarmConfirm), ("set threads 25 server", ChangeForm)):
            await pilot.press("colon", *(keys.get(char, char) for char in text))
            await until(pilot, lambda: "asks before anything" in " ".join(text_of(app).split()))
            await pilot.press("enter")
            await until(pilot, lambda kind=kind: isinstance(app.screen, kind))
            if kind is HarmConfirm:
                assert [key.pid for key in app.screen.clients] == [2007]
            else:
                assert (app.screen.request().value, app.screen.request().server_pid) == ("25", 1402)
            await pilot.press("escape")
        await pilot.press("colon", *(keys.get(char, char) for char in "daemon team"))
        await until(pilot, lambda: "show this daemon" in text_of(app))
        await pilot.press("enter")
        await until(pilot, lambda: app.overview.daemon.pipe_dir == OTHER_PIPE)


def test_what_is_typed_stays_as_it_is_typed_and_whom_it_is_for_is_said() -> None:
    first = next(each for each in meant("SET Memory 10G gpu1 Server") if each.operation)
    assert (first.value, first.device, first.server) == ("10G", GPU1, server().key)
    assert first.help.startswith("10G · GPU 1 · server "), first.help


@pytest.mark.parametrize(
    ("text", "wrong", "says"),
    [("terminate alice", "alice", "2007"), ("set memory 10G 9", "9", "gpu1"), ("set threads 25 9999", "9999", "1402")],
)
def test_a_word_that_is_not_understood_is_answered_with_one_that_would_be(text: str, wrong: str, says: str) -> None:
    told = [each.help for each in meant(text) if f"“{wrong}”" in each.help]
    assert len(told) == 1
    assert says in told[0].partition("Understood here: ")[2]


async def test_a_time_can_be_gone_to_by_name(monkeypatch) -> None:
    app = make_app(rich())
    async with app.run_test(size=(80, 24)) as pilot:
        went: list[object] = []
        monkeypatch.setattr(app, "travel", lambda how, *values, **rest: went.append((how, *values)))
        found = next(each for each in views("time 1m", app.overview.views()) if each.view)
        app.overview.show_view(*found.view)
        await pilot.pause()
        assert went == [("jump", "1m")]
