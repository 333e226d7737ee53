"""The events screen: filter by kind, client and time, search, follow, and further back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpstui.core.model import Event, Past
from mpstui.core.trust import Speaker
from mpstui.fields import EVENT, View, pids_of
from mpstui.ui.dialogs import DetailsScreen
from mpstui.ui.filter import EventFilter
from mpstui.ui.trouble.events import EventsScreen
from tests.ui.screen import make_app, push, text_of
from tests.ui.snapshots import NOW, OTHER_PIPE

from .nodes import FATAL, FakeTrouble, event, history, node, trouble_app

SIZE = (160, 48)


def kinds(app) -> list[str]:
    return [row.kind for row in app.screen.timeline.rows]


def with_events(*more: Event):
    return node(events=(*history(), *more))


PLAIN = ["daemon_started", "client_connected", "limit_set", "client_refused", "client_connected", "fatal_fault"]


async def test_noise_is_hidden_but_counted_and_shown_on_request() -> None:
    app = trouble_app(with_events())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("E")
        assert kinds(app) == PLAIN
        assert "Events 6 of 8" in text_of(app)
        assert "[ ] unknown" in text_of(app)
        assert "2026-" in text_of(app), "the day where it changes"
        await pilot.press("H")
        assert kinds(app) == ["client_refused", "fatal_fault"]
        await pilot.press("H")
        assert len(kinds(app)) == 8
        assert "something [/bad] new" in text_of(app)
        await pilot.press("H")
        assert kinds(app) == PLAIN


async def test_of_another_users_daemon_they_are_said_to_be_that_users_word() -> None:
    told = with_events()
    theirs = replace(told.daemons[0], uid=64101, user="mallory", speaker=Speaker(64101, "a daemon of mallory"))
    app = trouble_app(replace(told, daemons=(theirs,)))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("E")
        assert "▲ only mallory's daemon says so" in text_of(app)


@pytest.mark.slow
async def test_kinds_are_marked_one_by_one() -> None:
    app = trouble_app(with_events())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("E", "tab")
        assert app.focused.id == "kinds"
        await pilot.press("space", "tab")
        assert kinds(app) == PLAIN[1:]
        await pilot.press("tab", "asterisk", "tab")
        assert len(kinds(app)) == 8
        await pilot.press("tab", "asterisk", "tab")
        assert kinds(app) == []
        assert "no event passes the filter" in text_of(app)


FILTERS = [
    ("client:3001", ["client_connected", "fatal_fault"]),
    ("kind:fault", ["fatal_fault"]),
    ("since:10m", ["client_refused", "client_connected", "fatal_fault"]),
    ("since:10m until:1m", ["client_refused"]),
    ("connected", ["client_connected", "client_connected"]),
    ("!connected !kind:fault since:1h", ["limit_set", "client_refused"]),
    ("[/bad]", []),
    ("since:never", []),
]


@pytest.mark.slow
async def test_the_filter_takes_client_kind_time_and_text() -> None:
    app = trouble_app(with_events())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("E")
        for typed, left in FILTERS:
            await pilot.press("slash", *typed)
            await pilot.pause()
            assert kinds(app) == left, typed
            if typed == "since:never":
                assert "never is no time" in text_of(app)
                await pilot.press("enter", "B")
                assert (app.focused.id, app.focused.value) == ("filter", "since:neverB"), "it is no command"
            else:
                await pilot.press("enter")
                assert app.focused.id == "list", typed
                assert kinds(app) == left, typed
            await pilot.press("escape")
            assert kinds(app) == PLAIN, f"escape clears a filter before it leaves: {typed}"
        await pilot.press("escape")
        assert app.screen is app.overview


@pytest.mark.parametrize(("key", "enter"), [("slash", "Enter Keep the filter"), ("f", "Enter Keep the place")])
async def test_the_line_that_is_typed_into_has_the_footer(key: str, enter: str) -> None:
    app = trouble_app(with_events())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("E")
        await pilot.pause()
        assert text_of(app).splitlines()[-1].rstrip().endswith("Esc Back  ? Help"), "the way out, and what there is"
        await pilot.press(key)
        await pilot.pause()
        footer = text_of(app).splitlines()[-1]
        assert enter in footer
        assert "H Warnings" not in footer, "a letter is text here"
        await pilot.press("x")
        await pilot.pause()
        assert enter in text_of(app).splitlines()[-1]
        await pilot.click(app.screen.keys, offset=(text_of(app).splitlines()[-1].index("Enter"), 0))
        await pilot.pause()
        assert "H " in text_of(app).splitlines()[-1]
        assert app.focused is app.screen.panel


@pytest.mark.slow
async def test_this_client_and_how_far_back_by_one_key_each() -> None:
    app = trouble_app(with_events())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("E", "c")
        assert app.screen.filter.value == "client:3000"
        assert kinds(app) == ["client_connected", "fatal_fault"]
        await pilot.press("h", "h")
        assert app.screen.filter.value == "client:3000 since:10m"
        assert kinds(app) == ["fatal_fault"]
        await pilot.press("c", "h", "h", "h")
        assert app.screen.filter.value == ""
        assert kinds(app) == PLAIN


@pytest.mark.slow
async def test_search_goes_from_one_to_the_next_and_marks_it() -> None:
    app = trouble_app(with_events())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("E", "f", *"connected")
        (row,) = [line for line in text_of(app).splitlines() if "▹" in line]
        assert "3001" in row, "marked while it is typed, and not in colour alone"
        count = len(app.screen.timeline._hits)
        assert f"f connected  {count} of {count} " in text_of(app), "the newest"
        await pilot.press("enter")
        at = app.screen.timeline.cursor_row
        assert (at.kind, at.pid) == ("client_connected", 3001)
        await pilot.press("n")
        assert app.screen.timeline.cursor_row.pid == 3000
        await pilot.press("N")
        assert app.screen.timeline.cursor_row.pid == 3001
        assert kinds(app) == PLAIN, "a search hides nothing"
        assert any(name.startswith("chosen") for line in app.screen.timeline._lines for _, name in line)
        await pilot.press("f", *"zzz", "enter")
        assert any("no event shown has" in note.message for note in app._notifications)
        assert "f zzz  none" in text_of(app)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
async def test_a_filter_that_is_not_understood_is_told_whole(size) -> None:
    app = trouble_app(with_events())
    async with app.run_test(size=size) as pilot:
        await pilot.press("E", "slash", *"bad:xy")
        text = " ".join(text_of(app).replace("│", " ").split())
        assert "✕ not understood" in text
        assert "no field “bad”; fields: client, cmd, gpu, kind, pid, server, severity, since, until, user …" in text


@pytest.mark.slow
async def test_it_follows_until_the_user_moves_up_and_counts_what_is_new() -> None:
    app = trouble_app(with_events())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("E")
        new = [event(10 - n, "client_connected", f"client {5000 + n} connected", pid=5000 + n) for n in range(4)]
        await push(pilot, with_events(new[0]))
        assert app.screen.timeline.cursor_row.pid == 5000
        await pilot.press("k")
        assert "‖ frozen" in text_of(app)
        mine = app.screen.timeline.cursor_row
        await push(pilot, with_events(*new[:2]))
        await push(pilot, with_events(*new))
        assert app.screen.timeline.cursor_row == mine
        assert "↓ 3 new" in text_of(app)
        await pilot.press("F")
        assert app.screen.timeline.cursor_row.pid == 5003
        assert "● following" in text_of(app)
        over = Past("PAST", 5.0, 0.0, 9.0, playing=False, speed=1.0, why="this is over")
        assert "following" not in await push(pilot, replace(with_events(*new), past=over)), "nothing comes any more"
        await push(pilot, with_events(*new))
        await pilot.press("F")
        await push(pilot, with_events(*new, event(1, "limit_set", "x")))
        assert app.screen.timeline.cursor_row.pid == 5003


async def test_events_that_fall_out_of_the_snapshot_stay_while_the_screen_is_open() -> None:
    app = trouble_app(with_events())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("E")
        await push(pilot, node(events=(event(1, "limit_set", "x"),)))
        assert kinds(app) == [*PLAIN, "limit_set"]


async def test_older_events_come_from_the_logs_once() -> None:
    backend = FakeTrouble([event(100_000, "daemon_exited", "an older daemon ended"), history()[0]])
    backend.gate.clear()
    app = trouble_app(with_events(), backend)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("E", "g", "O", "O")
        assert "reading the logs" in text_of(app)
        backend.gate.set()
        await pilot.pause()
        await pilot.pause()
        assert kinds(app) == ["daemon_exited", *PLAIN]
        assert backend.asked == [NOW - 90_000]
        assert app.screen.timeline.cursor_row.kind == "daemon_started", "the cursor stays"
        await pilot.press("O")
        await pilot.pause()
        await pilot.pause()
        assert any("the logs begin here" in note.message for note in app._notifications)


async def test_logs_that_cannot_be_read_are_a_sentence() -> None:
    app = trouble_app(with_events(), FakeTrouble(broken="/var/log/x: Permission denied"))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("E", "O")
        await pilot.pause()
        await pilot.pause()
        assert any("Permission denied" in note.message for note in app._notifications)
        assert kinds(app) == PLAIN


@pytest.mark.slow
async def test_without_a_backend_the_snapshot_is_all_there_is() -> None:
    app = make_app(with_events())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("E", "O")
        assert kinds(app) == PLAIN
        await pilot.press("escape", "D")
        assert "no problem is known" in text_of(app)


@pytest.mark.slow
async def test_enter_on_the_events_panel_opens_it_there_and_enter_again_the_details() -> None:
    app = trouble_app(with_events())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("5", "k", "k", "enter")
        assert isinstance(app.screen, EventsScreen)
        assert app.screen.timeline.cursor_row.kind == "client_refused"
        assert not app.screen.timeline.follows
        await pilot.press("y")
        assert app.clipboard == history()[4].raw
        await pilot.press("enter")
        assert isinstance(app.screen, DetailsScreen)
        assert "48 clients is the most" in text_of(app)
        await pilot.press("escape", "escape")
        assert app.screen is app.overview


async def test_another_daemons_events_are_not_among_them() -> None:
    other = event(1, "limit_set", "elsewhere")._replace(pipe_dir=OTHER_PIPE)
    app = trouble_app(with_events(other))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("E")
        assert kinds(app) == PLAIN


@pytest.mark.slow
async def test_hostile_lines_are_text() -> None:
    app = trouble_app(node(events=(event(1, "client_connected", "[bold]\x1b[2J‮[/bad]" + "x" * 5000, pid=1),)))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("E", "c", "f", *"[bo", "enter", "n", "y")
        assert "[bold]\\x1b[2J\\u202e[/bad]" in text_of(app)


@pytest.mark.slow
async def test_it_survives_every_size_and_comes_back() -> None:
    app = trouble_app(with_events())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("E", "tab")
        for size in ((80, 24), (30, 8), (20, 5), (80, 24), (160, 48)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        assert "Kinds" in text_of(app)
        assert "fatal GPU fault" in text_of(app)


def test_who_an_event_is_about() -> None:
    assert pids_of(FATAL) == {"3000", "3001", "3002"}
    assert pids_of(FATAL._replace(values={**FATAL.values, "named": "99"})) == {"99", "3000", "3001", "3002"}
    assert pids_of(event(1, "daemon_started")) == set()


def test_a_faults_details_tell_whom_it_took_and_what_its_xids_mean() -> None:
    seen = FATAL._replace(values={"named": "3000", "clients": "3000 3001", "xid": "31 7777"})
    facts = {fact.label: fact.text for _, _, found in EVENT.details(seen, View()) for fact in found}
    assert (facts["named by server.log"], facts["clients lost"]) == ("3000, not proof", "3000 3001")
    assert facts["Xid"].startswith("31: memory page fault")
    assert facts["Xid"].endswith("7777: see NVIDIA's Xid catalogue")


def test_a_time_is_fixed_when_the_filter_is_made() -> None:
    chosen = EventFilter("since:10m", NOW)
    assert chosen.matches(FATAL._replace(time=NOW - 600), View(), "")
    assert not chosen.matches(FATAL._replace(time=NOW - 601), View(), "")
    assert not chosen.matches(FATAL._replace(time=None), View(), "")


@pytest.mark.parametrize("name", [each.word or each.id for each in EVENT.fields if each.of is None])
def test_each_field_of_an_event_is_a_word_of_the_filter(name: str) -> None:
    """A word of the table is one: nothing is looked for as text, and an event that has no such thing is not found."""
    chosen, bare = EventFilter(f"{name}:no-such-text", NOW), event(1, "daemon_started")
    assert not chosen.complaint()
    assert not chosen.matches(bare, View(), f"{name}:no-such-text")
    assert EventFilter(f"!{name}:no-such-text", NOW).matches(bare, View(), "")


def test_events_are_found_by_their_fields() -> None:
    mine = event(1, "client_refused", "client 7 of user 2001", pid=7)._replace(devices=("GPU-a1",), user="Alice")
    view = View(indices={"GPU-a1": 3}, users={8: "bob"})
    for text in ("severity:err", "gpu:3", "gpu:gpu-a", "user:ali", "client:7", "kind:refused", "REFUSED", "!client:8"):
        assert EventFilter(text, NOW).matches(mine, view, "client refused"), text
    for text in ("severity:warn", "gpu:1", "gpu:gpu-b", "user:bob", "client:8", "client:77", "xid:79", "colour:red"):
        assert not EventFilter(text, NOW).matches(mine, view, "client refused"), text
    assert EventFilter("user:bob", NOW).matches(mine._replace(pid=8, user=None), view, ""), "as its client's list says"
    assert "did you mean severity:?" in EventFilter("severty:error", NOW).complaint()
    assert "is no time" in EventFilter("since:yesterday", NOW).complaint()
