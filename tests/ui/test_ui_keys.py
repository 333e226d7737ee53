"""Every key of the overview, and that the cursor stays with its client whatever happens around it."""

from __future__ import annotations

import gc
import re
import time
from dataclasses import replace

import pytest
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input, OptionList

from mpstui.core import condition
from mpstui.core.model import Past, ProcessKey, ServerFault, Snapshot
from mpstui.core.trust import Speaker
from mpstui.fields import Shown
from mpstui.operations.types import Request
from mpstui.ui.app import MpsTuiApp
from mpstui.ui.dialogs import ChangeForm, DetailsScreen, HarmConfirm, HelpScreen
from mpstui.ui.dialogs.commands import Palette
from mpstui.ui.dialogs.widgets import DetailRow, Heading
from mpstui.ui.overview import Overview

from .fakes import ON_OVERVIEW
from .screen import make_app, push, text_of, until
from .snapshots import OTHER_PIPE, PIPE, client, clients, daemon, one_daemon, rich, server, unhealthy

SIZE = (160, 48)
CHOSEN = tuple(action for action in ON_OVERVIEW if action.key and not action.finds_clients)
"""The actions with a key for what the cursor is on; the others show only where there is something to rescue."""


def with_clients(*series) -> Snapshot:
    return rich(daemons=(daemon(servers=(server(clients=tuple(series)),)),))


def pids(app: MpsTuiApp) -> list[int]:
    return [row.pid for row in app.overview.clients.rows]


def cursor(app: MpsTuiApp) -> int:
    return app.overview.clients.cursor_row.pid


async def press(pilot: Pilot, *keys: str) -> None:
    await pilot.press(*keys)
    await pilot.pause()


@pytest.mark.slow
async def test_digits_jump_to_panels_and_tab_walks_them() -> None:
    app = make_app(rich())
    async with app.run_test(size=SIZE) as pilot:
        assert app.focused.id == "clients"
        for digit, name in enumerate(("devices", "limits", "servers", "clients", "events"), 1):
            await press(pilot, str(digit))
            assert app.focused.id == name
        await press(pilot, "1", "tab")
        assert app.focused.id == "limits"
        await press(pilot, "shift+tab")
        assert app.focused.id == "devices"


async def test_tab_goes_by_the_panels_also_from_a_line_that_has_no_place_yet() -> None:
    app = make_app(rich())
    async with app.run_test(size=SIZE) as pilot:
        panels = ["devices", "limits", "servers", "clients", "events"]
        assert [each.id for each in app.overview.focus_chain] == panels
        await app.overview.run_action("filter")
        assert [each.id for each in app.overview.focus_chain] == [*panels, "filter"]
        await pilot.pause()
        assert [each.id for each in app.overview.focus_chain] == [*panels, "filter"]


@pytest.mark.slow
async def test_movement() -> None:
    app = make_app(rich())
    async with app.run_test(size=SIZE) as pilot:
        order = pids(app)
        for keys, index in (
            (["j"], 1), (["down"], 2), (["k"], 1), (["up"], 0), (["k"], 0), (["G"], 45), (["j"], 45), (["g"], 0),
            (["end"], 45), (["home"], 0), (["pagedown", "pageup"], 0),
        ):  # fmt: skip
            await press(pilot, *keys)
            assert cursor(app) == order[index], keys
        await press(pilot, "pagedown")
        assert order.index(cursor(app)) > 10


@pytest.mark.slow
async def test_the_cursor_stays_with_its_client_through_sorting_insertion_and_removal() -> None:
    series = list(clients()[:20])
    app = make_app(with_clients(*series))
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, "j", "j", "j", "j", "j")
        mine = cursor(app)
        for _ in range(11):
            await press(pilot, "s")
            assert cursor(app) == mine
            await press(pilot, "I")
            assert cursor(app) == mine
        await push(pilot, with_clients(client(44, key=ProcessKey(1, 1)), *series))
        assert cursor(app) == mine
        await push(pilot, with_clients(*series[3:]))
        assert cursor(app) == mine
        await push(pilot, with_clients(*reversed(series)))
        assert cursor(app) == mine


async def test_a_client_that_goes_leaves_the_cursor_near_and_a_pid_used_again_is_another_client() -> None:
    series = list(clients()[:6])
    app = make_app(with_clients(*series))
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, "j", "v", "v")
        assert app.overview.clients.chosen == {series[1].key, series[2].key}
        assert cursor(app) == series[3].pid
        again = replace(series[2], key=ProcessKey(series[2].pid, 999_999))
        await push(pilot, with_clients(series[0], series[1], again, *series[4:]))
        assert app.overview.clients.chosen == {series[1].key}, "the process that has the PID now was never chosen"
        assert cursor(app) == series[4].pid
        await push(pilot, with_clients(series[0]))
        assert (cursor(app), app.overview.clients.chosen) == (series[0].pid, frozenset())
        await push(pilot, with_clients())
        assert app.overview.clients.cursor_row is None
        assert app.overview.clients.targets() == ()


@pytest.mark.slow
async def test_choosing_several_all_of_a_filter_and_none() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        table = app.overview.clients
        assert table.targets() == (table.cursor_row.key,), "without a choice it is the one under the cursor"
        await press(pilot, "v", "space", "insert")
        assert [key.pid for key in table.targets()] == [2000, 2007, 2014]
        assert "✓ 3 chosen" in text_of(app)
        await press(pilot, "k", "v")
        assert [key.pid for key in table.targets()] == [2000, 2007]
        await press(pilot, "escape")
        assert table.chosen == frozenset()
        await press(pilot, "slash", *"user:eve", "enter", "asterisk")
        assert len(table.chosen) == len(table.rows) == 8
        await press(pilot, "asterisk")
        assert table.chosen == frozenset()
        await press(pilot, "escape", "v")
        marked = table.targets()
        await press(pilot, "slash", *"zzz", "enter")
        assert (table.targets(), table.chosen) == ((), frozenset(marked)), "no key is for whom the filter hides"
        await press(pilot, "escape")
        assert table.targets() == marked, "as soon as they are seen again"
        app.overview.show_view("user", "bob")
        await press(pilot, "j")
        assert (table.targets(), table.cursor_row.user) == ((table.cursor_row.key,), "bob")
        assert "✓ 0 chosen, 1 hidden by the filter" in text_of(app)
        await press(pilot, "2", "t")
        assert app.screen is app.overview, "nobody is seen to be chosen"
        await press(pilot, "4", "escape", "escape")
        assert (table.chosen, table.filter.text) == (frozenset(), "")


@pytest.mark.slow
async def test_the_filter_is_live_shows_how_many_and_is_cleared_by_escape() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, "slash", *"user:bob gpu:0")
        assert "Clients 8/46" in text_of(app)
        assert app.focused.id == "filter"
        await press(pilot, "enter")
        assert app.focused.id == "clients"
        assert len(pids(app)) == 8
        await press(pilot, "j")
        assert cursor(app) == pids(app)[1]
        await press(pilot, "slash", *" zzz")
        assert "no client matches the filter" in text_of(app)
        await press(pilot, "escape")
        assert (app.focused.id, len(pids(app))) == ("clients", 46)
        await press(pilot, "slash", *"[/bad]", "enter")
        assert len(pids(app)) == 1, "markup is text"
        await press(pilot, "escape")
        assert len(pids(app)) == 46, "escape clears a filter that is not being edited too"


async def test_sorting_by_each_column_and_back() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        by_pid = pids(app)
        assert by_pid == sorted(by_pid)
        await press(pilot, "I")
        assert pids(app) == by_pid[::-1]
        await press(pilot, "s")
        assert "USER ▲" in text_of(app)
        users = [c.user for c in app.overview.clients.rows]
        assert users[-1] is None, "what is not known comes last"
        assert users[:-1] == sorted(users[:-1])
        await press(pilot, "s")
        assert "SERVER▲ GPU" in text_of(app), "a heading is not grown into the next one"
        await press(pilot, "s", "s", "s")
        memory = [sum(c.gpu_memory.values()) for c in app.overview.clients.rows]
        assert memory == sorted(memory, reverse=True), "the largest first"
        await press(pilot, *"ssssss")
        assert pids(app) == by_pid


async def test_pause_keeps_the_screen_and_goes_on_with_the_newest() -> None:
    app = make_app(with_clients(client(1)))
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, "F")
        assert "FROZEN 12:04:31" in text_of(app)
        await push(pilot, with_clients(client(1), client(2)))
        assert len(pids(app)) == 1
        await press(pilot, "F")
        assert "FROZEN" not in text_of(app)
        assert len(pids(app)) == 2


async def test_refresh_asks_the_daemon_of_the_open_tab() -> None:
    app = make_app(rich())
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, "r")
        assert app.collector.refreshes == [PIPE]
        await press(pilot, "right_square_bracket", "r")
        assert app.collector.refreshes == [PIPE, OTHER_PIPE]


@pytest.mark.slow
async def test_tabs_switch_daemons_and_drop_the_choice() -> None:
    app = make_app(rich())
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, "v")
        for key, place in (
            ("right_square_bracket", OTHER_PIPE), ("right_square_bracket", PIPE), ("left_square_bracket", OTHER_PIPE),
            ("ctrl+right", PIPE), ("ctrl+left", OTHER_PIPE),
        ):  # fmt: skip
            await press(pilot, key)
            assert app.overview.daemon.pipe_dir == place
        assert app.overview.clients.chosen == frozenset()
        assert "no clients" in text_of(app)
        await push(pilot, one_daemon())
        assert app.overview.daemon.pipe_dir == PIPE, "a daemon that has gone leaves its tab"
        await press(pilot, "left_square_bracket")
        told = [n.message for n in app._notifications][-1]
        assert told == "no other daemon is known", "a key does not do nothing in silence"
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        own, other = rich().daemons
        await push(pilot, replace(rich(), daemons=(other, own)))
        assert app.overview.daemon.pipe_dir == PIPE, "one that comes later does not take its place"


@pytest.mark.slow
@pytest.mark.parametrize("action", CHOSEN, ids=lambda action: action.id)
async def test_the_key_of_each_action_opens_its_dialog(action) -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, action.key)
        assert isinstance(app.screen, HarmConfirm | ChangeForm)
        assert app.screen.action is action


@pytest.mark.slow
@pytest.mark.parametrize("key", ["u", "e"])
async def test_a_rescue_names_the_processes_that_it_would_end(key) -> None:
    hit = client(5)
    fault = ServerFault(1.0, (hit.pid,), (hit.key,))
    broken = server(clients=(hit, client(6)), fault=fault, status="FAULT")
    blocked = {"condition": condition.terminated_twice(hit.key, None, condition.Moment())} if key == "u" else {}
    made = one_daemon()
    app = make_app(replace(made, daemons=(replace(made.daemons[0], servers=(broken,), **blocked),)))
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, key)
        assert isinstance(app.screen, HarmConfirm)
        assert app.screen.clients == (hit.key,)
        assert str(hit.pid) in text_of(app)


@pytest.mark.slow
async def test_a_dialog_keeps_the_clients_it_was_opened_for() -> None:
    series = clients()[:5]
    app = make_app(with_clients(*series))
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, "v", "v", "t")
        dialog = app.screen
        assert dialog.clients == (series[0].key, series[1].key)
        await push(pilot, with_clients(*series[2:]))
        assert dialog.clients == (series[0].key, series[1].key)
        assert dialog.snapshot is app.collector.snapshot, "it is told what is true now"
        await press(pilot, "escape")
        assert isinstance(app.screen, Overview)
        assert pids(app) == [c.pid for c in series[2:]], "the overview has caught up"


async def test_read_only_dims_all_actions_says_why_and_opens_nothing() -> None:
    app = make_app(one_daemon(), read_only=True)
    async with app.run_test(size=SIZE) as pilot:
        assert "READ-ONLY" in text_of(app)
        off = [text.strip() for text, style in app.overview.keys.lines(400, 1)[0] if style == "key-off"]
        assert [hint for hint in off if hint in {a.title for a in CHOSEN}] == [a.title for a in CHOSEN]
        for action in CHOSEN:
            await press(pilot, action.key)
            assert isinstance(app.screen, Overview)
        assert [(n.title, n.message) for n in app._notifications] == [(CHOSEN[-1].title, "mpstui runs read-only")], (
            "the refusal of each key takes the place of the one before"
        )
        app.notify("what has to be read", severity="warning", timeout=30)
        await press(pilot, CHOSEN[0].key)
        assert [n.title for n in app._notifications] == ["", CHOSEN[0].title]
        await press(pilot, "j")
        assert [n.title for n in app._notifications] == [""], "a refusal goes with the next key, whatever that is"


@pytest.mark.slow
@pytest.mark.parametrize(("panel", "kind"), [("1", "device"), ("2", "limit"), ("3", "server"), ("4", "client")])
async def test_enter_opens_the_details_of_the_row(panel: str, kind: str) -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, panel, "j", "enter")
        assert isinstance(app.screen, DetailsScreen)
        assert app.screen.kind == kind
        await press(pilot, "escape")
        assert isinstance(app.screen, Overview)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["pageup", "pagedown"])
async def test_a_page_of_commands_that_have_no_room_is_none(key: str) -> None:
    """Found by the monkey: a traceback, where the terminal had become too small for the list."""
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, "colon")
        entries = app.screen.query_one(OptionList)
        await until(pilot, lambda: entries.option_count > 0 and entries.highlighted is not None)
        await pilot.resize_terminal(300, 3)
        await until(pilot, lambda: not entries.scrollable_content_region)
        await press(pilot, *"set", "down", key)
        await pilot.resize_terminal(*SIZE)
        await press(pilot, "down", key)
        assert isinstance(app.screen, Palette)


async def test_help_palette_and_quit() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, "question_mark")
        assert isinstance(app.screen, HelpScreen)
        await press(pilot, "escape", "ctrl+p")
        assert isinstance(app.screen, Palette)
        await press(pilot, "escape", "colon")
        assert isinstance(app.screen, Palette)
        await until(
            pilot, lambda: text_of(app).splitlines()[-1].strip() == "Enter run it  ↑↓ choose  Esc close  F1 Help"
        )
        await press(pilot, "f1")
        assert isinstance(app.screen, HelpScreen)
        await press(pilot, "escape", *"sort", "question_mark")
        assert app.screen.query_one(Input).value == "sort?", "which a regular expression may have"
        await press(pilot, "escape", "colon", "question_mark")
        assert isinstance(app.screen, HelpScreen), "with nothing typed, as :? of k9s"
        await press(pilot, "escape")
        await pilot.click("#keys", offset=(26, 0))
        assert isinstance(app.screen, Overview)
        await press(pilot, "q")
    assert app.return_value == 0
    assert app.collector.started
    assert app.collector.stopped


@pytest.mark.slow
@pytest.mark.parametrize("key", ["ctrl+q", "ctrl+backslash"])
async def test_what_ends_other_programs_ends_this_one(key: str) -> None:
    """Ctrl-\\ is no signal while the terminal is the program's, and did nothing."""
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "question_mark", key)
    assert app.return_value == 0
    assert app.collector.stopped


@pytest.mark.slow
async def test_the_palettes_foot_says_what_enter_does_with_what_the_cursor_is_on() -> None:
    """Seen: “Enter run it” below a command that is refused, and below one of which more has to be typed."""
    app = make_app(one_daemon(), read_only=True)
    async with app.run_test(size=(80, 24)) as pilot:
        for typed, foot in (
            ("unpi", "Enter run it"),
            ("set thr", "Enter type on"),
            ("terminate 2000", "(Enter run it)"),
        ):
            await press(pilot, "colon", *typed)
            await until(pilot, lambda foot=foot: text_of(app).splitlines()[-1].strip().startswith(f"{foot}  ↑↓"))
            assert ("not now: mpstui runs read-only" in text_of(app)) is foot.startswith("("), typed
            await press(pilot, "escape")


@pytest.mark.slow
async def test_the_palette_lives_in_a_terminal_of_any_width() -> None:
    """Seen: at 4 and 6 columns the program ended with a traceback: its entries had no cell to be wrapped in."""
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        for typed in ("", "ter", "nothing is called so"):
            await press(pilot, "colon", *typed)
            for columns in range(1, 13):
                for lines in (9, 24, 3):
                    await pilot.resize_terminal(columns, lines)
                    await until(pilot, lambda size=(columns, lines): app.screen.outer_size == size)
            await pilot.resize_terminal(80, 24)
            await until(pilot, lambda: "Esc close" in text_of(app))
            await press(pilot, "escape")


@pytest.mark.slow
async def test_tab_takes_a_command_into_the_line_as_a_shell_does_and_runs_nothing() -> None:
    """Seen: Tab did nothing in the palette."""
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "colon", *"ter")
        line = app.screen.query_one(Input)
        for shown, taken in (("terminate …", "terminate "), ("terminate 2000", "terminate 2000 ")):
            await until(pilot, lambda shown=shown: f"▸ {shown}" in text_of(app))
            await press(pilot, "tab")
            assert (line.value, line.cursor_position) == (taken, len(taken))
        await until(pilot, lambda: "asks before anything" in " ".join(text_of(app).split()))
        assert "Tab complete" in text_of(app).splitlines()[-1]
        await press(pilot, "escape", "colon", *"unpi")
        await until(pilot, lambda: "Enter run it" in text_of(app))
        await press(pilot, "tab")
        assert app.screen.query_one(Input).value == "unpi", "the name of a key is nothing that is typed"


@pytest.mark.slow
async def test_copy_puts_the_row_on_the_clipboard() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, "j", "y")
        cells = app.clipboard.split("\t")
        assert cells[:5] == ["2007", "bob", "1402", "0", "● ACTIVE"], "a cell for each column of a sheet"
        heads = [each.id for each, _ in app.overview.clients.columns(4000)]
        assert len(cells) == len(heads), "those that are empty too"
        assert cells[-1].endswith("python -m vllm.entrypoints.openai.api_server --model llama"), "whole, not as cut"
        await press(pilot, "f2")
        app.screen.panel.move_to(next(n for n, row in enumerate(app.screen.panel.rows) if row.field.id == "uid"))
        await press(pilot, "space", "escape", "y")
        assert app.clipboard.split("\t")[0] == "2007"
        assert "openai.api_server --model llama" in app.clipboard, "a column that was chosen cuts nothing either"
        app.overview.clients.choose_columns([Shown("user", 10), Shown("pid", 8)])
        await press(pilot, "y")
        assert app.clipboard.split("\t")[:2] == ["2007", "bob"], "the PID stands first wherever its column is"
        app.overview.clients.group("user")
        await press(pilot, "g", "y")
        assert app.clipboard.startswith("[-] user alice · 10 clients")
        await press(pilot, "1", "y")
        assert app.clipboard.startswith("0 ")
        assert "SM" in app.clipboard
        assert not set("━╾─┄▁▂▃▄▅▆▇█") & set(app.clipboard), "what is drawn is no text"


@pytest.mark.slow
async def test_on_a_gpu_the_percentage_is_the_servers_and_says_that_it_is_for_all_gpus() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, "1", "l")
        said = (
            "all that the server has: a percentage cannot be set for one GPU. p on the overview (plan) divides one GPU"
        )
        assert said in " ".join(app.screen.query_one("#facts").text.split())
        assert app.screen.request().server_pid == 1402
        await press(pilot, "escape", "m")
        assert "divides one GPU" not in text_of(app)
        assert app.screen.request().device is not None
        await press(pilot, "escape", "4", "l")
        assert said in " ".join(app.screen.query_one("#facts").text.split()), (
            "whoever wants a share of one GPU looks here"
        )
        await press(pilot, "escape", "1", "enter")
        assert "p on the overview (plan) divides it" in " ".join(app.screen.query_one("#facts").text.split())


@pytest.mark.slow
async def test_the_mouse_selects_sorts_chooses_scrolls_and_presses_keys() -> None:
    app = make_app(rich())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.click("#clients", offset=(20, 4))
        assert cursor(app) == 2014
        await pilot.click("#clients", offset=(20, 5), control=True)
        assert [key.pid for key in app.overview.clients.targets()] == [2021]
        await pilot.click("#clients", offset=(13, 1))
        await pilot.pause()
        assert "USER ▲" in text_of(app)
        assert "▸ ● ok /" in text_of(app)
        await pilot.click("#tabs", offset=(30, 0))
        await pilot.pause()
        assert app.overview.daemon.pipe_dir == OTHER_PIPE
        await pilot.click("#tabs", offset=(3, 0))
        await pilot.click("#keys", offset=(2, 0))
        await pilot.pause()
        assert isinstance(app.screen, HarmConfirm)


async def test_a_click_is_for_the_row_that_was_pressed() -> None:
    """The rows move by themselves: a client that came between press and release had another one chosen, and the second
    of two clicks opened the one that had come to its place."""
    before, after = (
        rich(daemons=(daemon(servers=(server(clients=tuple(map(client, numbers))),)),))
        for numbers in (range(1, 6), range(6))
    )
    app = make_app(before)
    async with app.run_test(size=SIZE) as pilot:
        table = app.overview.clients
        x, y, now = table.region.x + 20, table.region.y + table.above + 2, time.monotonic()

        async def mouse(*kinds: type[events.MouseEvent], control: bool = False) -> None:
            at = x + control  # two at one place are a double click
            for kind in kinds:
                event = kind(None, at, y, 0, 0, 1, False, False, control, screen_x=at, screen_y=y)
                event.time = now
                app.post_message(event)
            await pilot.pause()

        pressed = table.rows[2].pid
        await mouse(events.MouseDown, control=True)
        await push(pilot, after)
        assert table.rows[2].pid != pressed
        await mouse(events.MouseUp, control=True)
        assert [key.pid for key in table.targets()] == [pressed]
        await push(pilot, before)
        await mouse(events.MouseDown, events.MouseUp)
        await push(pilot, after)
        await mouse(events.MouseDown, events.MouseUp)
        assert (app.screen, cursor(app)) == (app.overview, table.rows[2].pid)
        await mouse(events.MouseDown, events.MouseUp)
        assert isinstance(app.screen, DetailsScreen), "two on one row open it"


@pytest.mark.slow
async def test_keys_can_be_changed() -> None:
    app = make_app(one_daemon(), keys={"quit": "f10", "move.down": "n", "action.terminate_client": "T"})
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, "q", "n")
        assert cursor(app) == 2007
        await press(pilot, "T")
        assert isinstance(app.screen, HarmConfirm)


async def test_messages_of_the_start_are_shown_as_text() -> None:
    app = make_app(one_daemon(), messages=["theme [/bad] is broken"])
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.pause()
        assert "theme [/bad] is broken" in text_of(app)


@pytest.mark.slow
async def test_actions_are_for_the_row_that_the_user_is_in() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, "3", "l")
        assert app.screen._start["scope"] == server().key
        await press(pilot, "escape")
        await press(pilot, "1", "j", "m")
        assert app.screen._start["device"] == one_daemon().devices[1].uuid
        await press(pilot, "escape", "5", "l")
        assert app.screen._start["scope"] == server().key, "of an event, and where there is one server alone, that one"
        await press(pilot, "escape", "2", "g", "l")
        assert app.screen._start["scope"] is None, "the default, which reaches no running server, is pointed at"


async def test_a_daemon_that_is_not_well_takes_no_action() -> None:
    app = make_app(unhealthy("held"))
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, "t")
        assert isinstance(app.screen, Overview)
        assert app.focused.id == "devices"


@pytest.mark.slow
async def test_a_field_that_does_not_exist_is_said_and_what_may_stand_there() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, "slash", *"bad:xy")
        assert text_of(app).count("no field “bad”; fields: ") == 1
        assert "▲ bad:xy" in text_of(app)
        await press(pilot, "escape", "slash", *"usr:bob")
        assert "no field “usr”; did you mean user:?" in text_of(app)
        await press(pilot, "escape", "slash", *"outdated:yes")
        assert "no field “outdated”; did you mean outdated_limits:?" in text_of(app), "what begins so"
        await press(pilot, "escape", "slash", *"limits:yes")
        assert "did you mean old_limits:?" in text_of(app), "or a part of it"
        await press(pilot, "escape", "slash", *"outdated")
        assert "no client matches the filter; Esc clears it. A field has a colon: outdated_limits:yes" in text_of(app)
        await press(pilot, "escape", "slash", *"user:bob")
        assert "no field" not in text_of(app)
        await press(pilot, "enter", "escape")
        assert not app._notifications
        await pilot.resize_terminal(80, 24)
        await press(pilot, "slash", *"mem>abc", "enter")
        assert not app.overview.clients.rows, "nobody is there to be chosen by a term that is not understood"
        assert "Esc clears the filter: “mem>abc”: write it as mem>4G" in text_of(app)
        assert [each.message for each in app._notifications] == ["“mem>abc”: write it as mem>4G"]
        await press(pilot, *["backspace"] * 3, *"4G", "enter")
        assert app.overview.clients.filter.text == "mem>4G", "what is typed next corrects it, and is no command"
        assert app.focused is app.overview.clients
        await press(pilot, "f", *"mem>abc", "enter")
        assert [each.title for each in app._notifications] == ["Find"]
        assert app.focused is not app.overview.clients
        await press(pilot, "escape", "escape", "slash", *"bad:xy")
        assert "no field “bad”; fields: cmd, container, gpu, mem, pid, server, state," in " ".join(text_of(app).split())


@pytest.mark.slow
@pytest.mark.parametrize("keys", [("question_mark",), ("E", "question_mark")], ids=str)
async def test_what_is_seen_under_a_window_goes_on_with_it(keys) -> None:
    """A question counted the clients of now, over a list of those that were there when it opened."""
    app = make_app(one_daemon())
    async with app.run_test(size=(160, 48)) as pilot:
        await press(pilot, *keys)
        later = replace(one_daemon(), time=one_daemon().time + 120)
        app.collector.push(replace(later, daemons=(replace(later.daemons[0], servers=()),)))
        await pilot.pause()
        header = text_of(app).splitlines()[0]
        assert header.rstrip().endswith(time.strftime("%H:%M", time.localtime(later.time)))
        assert "0 clients" in header
        below = app.screen_stack[-2]
        if below is app.overview:
            assert "⁴Clients 0" in text_of(app), "in the picture, not only in what it is drawn from"
        else:
            assert below.snapshot is app.collector.snapshot


@pytest.mark.slow
async def test_a_question_mark_is_help_where_text_is_typed_too() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, "slash", "a", "question_mark")
        assert isinstance(app.screen, HelpScreen)
        await press(pilot, "escape", "b", "enter")
        assert app.overview.clients.filter.text == "ab"
        await press(pilot, "escape", "l", "question_mark")
        assert isinstance(app.screen, HelpScreen)
        keys = app.screen.query_one("#facts").text.partition("Safety")[0]
        assert not re.search("suggestion|Submit|Enter +(On|Next)|A page to|Move cursor", keys), (
            "in this program's words"
        )
        assert re.search(r"\bTo the start$", keys, re.MULTILINE)
        await press(pilot, "q")
        assert isinstance(app.screen, ChangeForm)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "does"),
    [
        (("f2",), "Enter Space v +Show or hide|Space v Enter +Show or hide"),
        (("f6",), "Enter +Choose"),
    ],
)
async def test_help_says_of_enter_what_it_does_in_the_list_in_front(keys: tuple[str, ...], does: str) -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, *keys, "question_mark")
        told = app.screen.query_one("#facts").text.partition("Safety")[0]
        assert re.search(does, told)
        assert "Details" not in told


@pytest.mark.slow
async def test_behind_a_dialog_the_overviews_keys_are_not_shown() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        assert "Terminate" in text_of(app).splitlines()[-1]
        await press(pilot, "enter")
        assert "t Terminate" not in text_of(app)
        assert "Esc close" in text_of(app).splitlines()[-1]
        await press(pilot, "escape", "colon")
        assert "t Terminate" not in text_of(app).splitlines()[-1]
        await press(pilot, "escape")
        assert "t Terminate" in text_of(app).splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 120, 160, 200])
async def test_no_heading_touches_the_next_one_and_the_arrow_is_never_cut(width: int) -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=(width, 40)) as pilot:
        for _ in range(11):
            await press(pilot, "s")
            table = app.overview.clients
            texts = [text for text, _ in table.head(table.inner)]
            assert all(text.endswith(" ") for text in texts[:-1]), texts
            assert sum(any(mark in text for mark in "▲▼—") for text in texts) == 1  # —: known of none
            assert "…" not in "".join(texts)


@pytest.mark.slow
async def test_the_line_that_is_typed_into_has_the_footer() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        for key, enter in (("slash", "Enter Keep the filter"), ("f", "Enter Keep the place"), ("T", "Enter Go to")):
            await press(pilot, key)
            footer = text_of(app).splitlines()[-1]
            assert enter in footer
            assert "Esc " in footer
            assert "Terminate" not in footer
            await press(pilot, "escape")
            assert "t Terminate" in text_of(app).splitlines()[-1]


@pytest.mark.slow
async def test_help_over_a_dialog_is_the_dialogs_and_help_can_be_searched() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, "l", "question_mark")
        shown = app.screen.query_one("#facts").text
        assert "Enter" in shown
        assert "Terminate: " not in shown
        await press(pilot, "escape", "escape", "question_mark")
        assert "Terminate: " in app.screen.query_one("#facts").text
        await press(pilot, "slash", *"sort")
        shown = app.screen.query_one("#facts").text
        assert "f6" in shown.lower()
        assert "Terminate: " not in shown
        await press(pilot, "escape")
        assert "Terminate: " in app.screen.query_one("#facts").text
        for wanted, has in (
            ("limits memory pinned", "pinned memory limit"),
            ("DRAM", "DRAM"),
            ("compute mode", "compute mode"),
            ("gpu memory", "GPU memory"),
        ):
            await press(pilot, "slash", *wanted)
            assert has in app.screen.query_one("#facts").text, wanted
            await press(pilot, "escape")
        await press(pilot, "escape")
        assert isinstance(app.screen, Overview)


@pytest.mark.slow
async def test_help_over_a_line_that_is_typed_into_says_what_may_be_typed_and_offers_no_letters() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        for key, says in (("slash", "mem>4G"), ("f", "old:yes"), ("T", "2026-11-20 21:29")):
            await press(pilot, key, "question_mark")
            shown = app.screen.query_one("#facts").text
            first = shown.splitlines()[:14]
            assert first[0].startswith("What may be typed here")
            assert says in "\n".join(first)
            assert "Terminate" not in shown.partition("Safety")[0], "letters are text here"
            assert not re.search("[Ss]croll|[Pp]age (Up|up)", shown.partition("Safety")[0]), "nothing scrolls here"
            await press(pilot, "escape", "escape")
        await press(pilot, "question_mark", "slash", *"filter")
        assert "user=alice" in app.screen.query_one("#facts").text, "the search finds it too"


async def test_a_panel_of_devices_without_a_frame_says_its_key() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        lines = text_of(app).splitlines()
        assert sum("¹" in line for line in lines) == 1
        assert next(line for line in lines if "¹" in line).startswith(" ¹ 0 H100")
        await press(pilot, "1")
        assert "▸¹ 0 H100" in text_of(app)


async def test_a_stopped_screen_says_how_it_goes_on_at_eighty_columns() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "F")
        assert "F Go on" in text_of(app).splitlines()[-1]


@pytest.mark.slow
async def test_cancel_says_that_a_typed_limit_was_not_sent() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, "l", "4", "enter", "enter")
        assert isinstance(app.screen, Overview)
        assert any("nothing was sent" in each.message for each in app._notifications)


@pytest.mark.slow
async def test_a_change_of_a_limit_is_taken_back_by_a_key_that_its_outcome_names() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, "f4")
        assert [each.message for each in app._notifications] == ["nothing was changed here that can be undone"]
        assert "Undo" not in text_of(app).splitlines()[-1]
        before = app.snapshot.daemons[0].servers[0].active_thread_percentage
        await press(pilot, "3", "l", "4", "tab", "tab", "enter")
        await until(pilot, lambda: app.screen.state == "ended")
        assert f"the value before was {before:g} %: F4 on the overview sets it again, after asking" in text_of(app)
        await press(pilot, "escape")
        assert "F4 Undo" in text_of(app).splitlines()[-1]
        then = Past("PAST", app.snapshot.time, 0.0, app.snapshot.time, False, 1.0, "this is the past")
        app.overview.apply(replace(app.snapshot, past=then), None)
        await pilot.pause()
        assert "Undo" not in text_of(app).splitlines()[-1], "the past is not changed"
        app.overview.apply(app.snapshot, None)
        await press(pilot, "f4")
        assert isinstance(app.screen, ChangeForm), "it asks"
        asked = app.screen.request()
        assert (asked.action, asked.server_pid, asked.value) == ("set_active_thread_percentage", 1402, f"{before:g}")
        await press(pilot, "escape")
        app.collector.push(rich(daemons=(daemon(servers=(server(key=ProcessKey(1402, 1)),)),)))
        await press(pilot, "f4")
        assert isinstance(app.screen, Overview)
        assert "server 1402 has ended, and its limits with it" in [each.message for each in app._notifications]
        assert "Undo" not in text_of(app).splitlines()[-1], "the keys do not offer what is refused"


OTHER_DAEMONS = {
    "another": {"key": ProcessKey(2001, 7)},
    "same number": {"key": ProcessKey(1200, 7), "start_time": None},
    "gone": {"key": None, "condition": condition.gone("", "")},
    "nobody knows": {"key": None},
    "a stranger's": {"speaker": Speaker(2001, "a daemon of mallory")},
    "other sockets": {"speaker": Speaker(0, "root's daemon", (1, 2, 3, 4, 5, 6))},
}


@pytest.mark.slow
async def test_nothing_is_taken_back_on_another_daemon_of_that_directory() -> None:
    """A default is the daemon's: whoever starts there next has its own."""
    first = daemon(key=ProcessKey(1200, 6), speaker=Speaker(0, "root's daemon", (1, 2, 3, 4, 5, 5)))
    back = Request("set_active_thread_percentage", PIPE, "50")
    app = make_app(rich(daemons=(first,)))
    async with app.run_test(size=SIZE) as pilot:
        for name, since in OTHER_DAEMONS.items():
            await push(pilot, rich(daemons=(replace(first, servers=()),)))
            app.keep_way_back(back, first)
            app.clear_notifications()
            if name == "another":
                await press(pilot, "f4")
                assert isinstance(app.screen, ChangeForm), "without its server it is still the same daemon"
                assert app.screen.request() == back
                await press(pilot, "escape")
            assert "Undo" in text_of(app).splitlines()[-1], name
            await push(pilot, rich(daemons=(replace(first, **since),)))
            assert "Undo" not in text_of(app).splitlines()[-1], name
            await press(pilot, "f4")
            assert isinstance(app.screen, Overview), name
            text = "the daemon that was changed is not there any more, so nothing can be undone"
            assert text in [each.message for each in app._notifications], name
            app.collector.push(rich(daemons=()))
            await press(pilot, "f4")
            assert isinstance(app.screen, Overview), name


@pytest.mark.parametrize("panel", ["1", "4"])
async def test_m_sorts_by_memory_as_in_htop_from_any_panel_and_leaves_the_mouse_alone(panel: str) -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        await press(pilot, panel, "M")
        assert app.overview.clients.sort == ("gpu_memory", False)
        used = [sum(row.gpu_memory.values()) for row in app.overview.clients.rows]
        assert used == sorted(used, reverse=True)
        assert app.focused is app.overview.clients
        await press(pilot, "M")
        assert app.overview.clients.sort == ("gpu_memory", False), "the same key, the same order"
        assert app.mouse


@pytest.mark.slow
async def test_what_was_said_in_passing_does_not_stand_over_the_next_dialog_and_a_warning_does() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "y")
        assert len(app._notifications) == 1
        await press(pilot, "K")
        assert len(app._notifications) == 0
        assert "Copied" not in text_of(app)
        await press(pilot, "escape")
        app.notify("something is wrong", severity="error", timeout=30)
        await press(pilot, "y", "K")
        assert "something is wrong" in [each.message for each in app._notifications]


@pytest.mark.slow
async def test_escape_leads_back_to_the_fleet_that_opened_it_and_the_keys_say_so() -> None:
    app = make_app(one_daemon())
    app.fleet = True
    async with app.run_test(size=(80, 24)) as pilot:
        assert "Esc Back to fleet" in text_of(app).splitlines()[-1]
        await pilot.press("slash", *"bob", "enter", "escape")
        assert (app.is_running, app.overview.clients.filter.text) == (True, ""), "what is open is closed first"
        await pilot.press("question_mark", "escape")
        assert app.is_running
        await pilot.press("escape")
    assert app.return_value == 0


async def test_escape_on_the_overview_stays_there_without_a_fleet() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        assert "fleet" not in text_of(app)
        await pilot.press("escape", "escape")
        assert app.return_value is None


@pytest.mark.slow
async def test_who_is_ended_is_seen_to_be_chosen() -> None:
    """A key for clients is for marked ones, or for the row of a cursor that the user moves: not for a row of a list
    that another panel has taken the keys or the place of."""
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        clients = app.overview.clients

        async def refused(key: str) -> None:
            app.clear_notifications()
            await press(pilot, key)
            assert isinstance(app.screen, Overview), f"{key} was for {clients.targets()}"
            assert "choose a client first: 4 goes" in [n.message for n in app._notifications][-1]
            assert not any(hint.available for hint in app.overview.keys.hints if hint.key == key)

        async def asks(key: str) -> None:
            await press(pilot, key)
            assert isinstance(app.screen, HarmConfirm)
            await press(pilot, "escape")

        for panel in "1", "2", "3", "5":
            await press(pilot, panel)
            for key in "t", "K":
                await refused(key)
        await press(pilot, "1", "z")
        assert not clients.display
        await refused("t")
        app.overview.clients.find("2000")
        await refused("t")
        await press(pilot, "4")
        await asks("t")
        await press(pilot, "space", "1")
        assert not clients.display
        await refused("K")
        await press(pilot, "z")
        assert clients.display
        await asks("K")
        await press(pilot, "4", "escape")
        await asks("t")


@pytest.mark.parametrize("key", ["enter", "y", "v", "space", "asterisk", "i"])
async def test_a_key_for_a_row_says_that_there_is_none(key: str) -> None:
    """In an empty list they did nothing and said nothing; the foot had why beside one of them."""
    whole = one_daemon()
    served = tuple(replace(each, clients=()) for each in whole.daemons[0].servers)
    app = make_app(replace(whole, daemons=(replace(whole.daemons[0], servers=served),)))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("4", key)
        assert [(each.title, each.message) for each in app._notifications] == [("Clients", "there is no row")]
        app.collector.push(whole)
        await pilot.press(key)
        assert "there is no row" not in [each.message for each in app._notifications]


async def test_a_key_of_the_clients_says_in_another_panel_where_it_works() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "1", "s")
        assert [n.message for n in app._notifications] == ["s works in the clients: 4 goes there"]
        await press(pilot, "s", "s")
        assert len(app._notifications) == 1, "once while it stands"
        await press(pilot, "ctrl+t")
        assert len(app._notifications) == 1


@pytest.mark.slow
async def test_at_eighty_columns_the_foot_has_the_keys_of_the_panel_and_help_begins_with_the_others() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        for panel, keys in (("4", "t K l U F6 / ? q"), ("1", "l m Enter ? q"), ("3", "l m S Enter ? q")):
            await press(pilot, panel)
            foot = text_of(app).splitlines()[-1].split()
            assert set(keys.split()) <= set(foot), foot
        await press(pilot, "4")
        foot = text_of(app).splitlines()[-1].split()
        await press(pilot, "question_mark")
        rows = list(app.screen._rows(app.overview, app.runner.actions))
        end = rows.index(DetailRow())
        first = {key for row in rows[1:end] for key in row.label.split()}
        assert not set(foot) & first
        assert {"U", "m", "o", "p", "F5", "F6"} <= set(foot) | first, first
        keys = [row.label for row in rows[: rows.index(Heading("Marks"))] if isinstance(row, DetailRow) and row.label]
        assert len(keys) == len(set(keys)), "each once"
        assert "Memory: Set how much" in next(row.value for row in rows[1:end] if row.label == "m"), "with its sentence"


@pytest.mark.slow
async def test_what_is_told_takes_a_line_of_the_events_and_none_of_the_keys_or_clients() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await press(pilot, "1")
        before = text_of(app).splitlines()
        await press(pilot, "t")
        await until(pilot, lambda: "choose a client" in text_of(app))
        after = text_of(app).splitlines()
        assert after[-2].split()[1:3] == ["Terminate", "choose"]
        assert (after[:-2], after[-1]) == (before[:-2], before[-1])


async def test_the_screen_outlives_the_collection_of_its_garbage(monkeypatch) -> None:
    """Textual asks a timer's function how many arguments it takes, and a built-in one ended the program."""
    whole: list[int] = []

    def seen(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == 2:
            whole.append(1)

    monkeypatch.setattr("mpstui.ui.app._COLLECT_S", 0.01)
    app = make_app(one_daemon())
    given: list[int] = []
    app.give_back = lambda: given.append(len(whole))
    async with app.run_test(size=(80, 24)) as pilot:
        gc.callbacks.append(seen)
        try:
            await until(pilot, lambda: len(whole) > 1 and given[-1:] > [0])
        finally:
            gc.callbacks.remove(seen)
        assert app.is_running
