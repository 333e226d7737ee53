"""Finding rows, whose are shown, pinned rows, and the commands that change what is shown."""

from __future__ import annotations

import dataclasses
import re

import pytest
from textual.widgets import OptionList

from mpstui.cli.parser import LOOKS
from mpstui.core.model import ProcessKey
from mpstui.fields import Shown, View, groups_of
from mpstui.operations.registry import ON_OVERVIEW
from mpstui.ui.dialogs.command_words import VIEWS, names, views
from mpstui.ui.dialogs.commands import IN_A_SHELL, ActionCommands, Palette, rank
from mpstui.ui.filter import ClientFilter

from .screen import make_app, push, text_of, until
from .snapshots import GPU0, GPU1, client, daemon, one_daemon, rich, server
from .test_ui_states import Memory

SIZE = (120, 40)


def node(*clients):
    return rich(daemons=(daemon(servers=(server(clients=clients),)),))


@pytest.mark.parametrize(
    ("text", "name", "uid", "made"),
    [
        ("", "bob", 7, "user=bob"),
        ("gpu:0 user:=alice !uid:3 train", "bob", 7, "user=bob gpu:0 train"),
        ("gpu:0 user!=alice uid=3 train", "bob", 7, "user=bob gpu:0 train"),
        ("user:al", None, None, ""),
        ("", "EXAMPLE\\john doe", 1234, "uid=1234"),
        ("", "a\u202eb", 1234, "uid=1234"),
        ("", None, 1234, "uid=1234"),
        ("", "two words", None, "user:two"),
        ("", "—", None, "user=—"),
    ],
)
def test_a_user_is_a_term_of_the_filter(text, name, uid, made) -> None:
    assert ClientFilter(text).of_user(name, uid) == made


def test_exactly_is_not_as_part_of_it_and_each_user_finds_the_own_clients_alone() -> None:
    view = View.of(one_daemon(), daemon())
    bobby = client(1, user="bobby")
    assert ClientFilter("user:bob").matches(bobby, view)
    assert not ClientFilter("user:=bob").matches(bobby, view)
    assert ClientFilter("!user:=bob").matches(bobby, view)
    clients = list(daemon().clients())
    for group in groups_of(clients, "user", view):
        first = group.clients[0]
        term = ClientFilter().of_user(group.name or "—", first.uid)
        assert [c.key for c in clients if ClientFilter(term).matches(c, view)] == [c.key for c in group.clients]


def test_what_is_shown_can_be_said_by_name() -> None:
    words = {"group": [("none", "one list"), ("user", "5 groups")], "user": [("Bob", ""), ("bobby", "")], "find": ()}
    assert [t.view for t in views("group us", words)] == [("group", "user")]
    assert [t.view for t in views("user bob", words)] == [("user", "Bob"), ("user", "bobby")]
    assert [t.view for t in views("find two words", words)] == [("find", "two words")]
    assert [t.text for t in views("gr", words)] == ["group "]
    assert [*views("", words)] == []
    assert [(t.text, t.view) for t in views("find ", words)] == [("find ", None)], "a text has to come"
    assert [t.view for t in views("group nothing", words)] == [None], "it is told which there are, and does nothing"


@pytest.mark.slow
async def test_found_rows_are_walked_round_in_folded_groups_too_and_nothing_is_hidden() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        table = app.overview.clients

        def at() -> int:
            return table.cursor_row.pid

        await pilot.press("n")
        assert "no text to look for" in [n.message for n in app._notifications][-1]
        await pilot.press("j", "j", "f", *"user:=bob")
        assert (at(), len(table.rows)) == (2042, 46), "the first from the cursor on, while it is typed"
        await pilot.press("enter")
        assert "user:=bob  2 of 9" in text_of(app)
        await pilot.press("n")
        assert at() == 2077
        await pilot.press("N", "N", "N")
        assert at() == 2287, "round the end"
        table.group("user", ["bob", "alice"])
        assert table.cursor_group.name == "bob", "folded"
        await pilot.press("n")
        assert (table.folded, at()) == ({"alice"}, 2007), "a group is unfolded for what is in it"
        await pilot.press("escape")
        assert not table.search
        await pilot.press("f", *"zz")
        assert (at(), "zz  none" in text_of(app)) == (2007, True)
        await pilot.press("escape")
        assert (app.focused.id, at()) == ("clients", 2007)
        await pilot.press("f", *"bad:xy", "enter")
        assert "no field “bad”" in text_of(app)
        await pilot.press("escape", "slash", *"user:=eve", "enter", "n")
        assert at() == 2028, "without a search through what the filter leaves"


@pytest.mark.slow
async def test_pins_user_and_filter_are_there_again_and_the_end_of_a_pinned_client_is_told() -> None:
    memory = Memory()
    series = [client(n) for n in range(8)]
    app = make_app(node(*series), memory=memory)
    async with app.run_test(size=SIZE) as pilot:
        table = app.overview.clients
        await pilot.press("G", "i")
        assert (table.rows[0].pid, table.cursor_row.pid) == (2049, 2049), "the cursor stays with its row"
        assert "↑2049" in text_of(app)
        table.group("user")
        assert [table.rows[0].title, table.rows[1].pid] == ["user carol", 2049], "its group is first, and it in that"
        table.group(None)
        await pilot.press("1", "U", "j", "j", "enter")
        assert app.focused is table, "the next keys are for the list that was just filtered"
        assert (table.filter.text, [row.pid for row in table.rows]) == ("user=bob", [2007, 2042])
        await pilot.press("U")
        assert app.screen.panel.cursor_row.label == "bob"
        assert "2 clients · GPU memory 1.2 GiB" in text_of(app)
        await pilot.press("escape")
    again = make_app(node(*series), memory=memory)
    async with again.run_test(size=SIZE) as pilot:
        table = again.overview.clients
        await pilot.pause()
        assert (table.filter.text, table.pinned) == ("user=bob", {series[7].key})
        assert "Esc shows all" in [n.message for n in again._notifications][-1], "nobody is hidden without a word"
        await pilot.press("escape")
        assert (len(table.rows), memory["filter"]) == (8, "")
        doubted = dataclasses.replace(series[7], key=ProcessKey(series[7].pid))
        await push(pilot, node(*series[:7], doubted))
        assert table.pinned == {doubted.key}, "it has not ended, whatever is known of its start"
        await push(pilot, node(*series))
        assert table.pinned == {series[7].key}
        assert not any("2049" in n.message for n in again._notifications)
        await push(pilot, node(*series[:7]))
        await until(pilot, lambda: any("2049 carol" in n.message for n in again._notifications))
        assert (table.pinned, memory["pinned"]) == (frozenset(), [])
        for name in VIEWS:
            assert name in again.overview.views()
        again.overview.show_view("user", "alice")
        assert {row.user for row in table.rows} == {"alice"}
        again.overview.show_view("user", "everybody")
        again.overview.show_view("sort", "mem")
        again.overview.show_view("find", "train")
        assert (len(table.rows), table.sort, table.cursor_row.user) == (7, ("gpu_memory", False), "alice")


@pytest.mark.slow
async def test_what_is_typed_by_name_stands_above_what_its_letters_are_found_in() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("colon", *"group", "space", *"us")
        await until(pilot, lambda: "group user" in text_of(app))
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is app.overview)
        assert app.overview.clients.by == "user"


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ((), ()),
        (("space", "space"), ("✓ 2 chosen",)),
        (("slash", *"user:alice", "enter"), ("10/46", "  / user:alice  ")),
        (("f", *"alice", "enter"), ("/10", "  f alice  ")),
        (("space", "slash", *"user:alice", "enter"), ("✓ 1", "10/46")),
    ],
)
async def test_at_80_columns_the_headings_stay_whatever_is_said_beside_them(keys, told) -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("4", *keys)
        line = next(line for line in text_of(app).splitlines() if " PID ▲ " in line)
        assert re.search(r"PID ▲ +USER +GPU +STATE +MEM/LIMIT +THREADS +(⟳old +)?(COMMAND|CMD)\b", line), line
        assert all(word in line for word in told[:1]), line
        assert all(word in text_of(app).splitlines()[-1] or word in line for word in told[1:]), "whole, at the foot"
        table = app.overview.clients
        usual = [Shown(each.id) for each, _ in table.columns(table.inner)]
        table.choose_columns([*usual[:-1], Shown("cpu_percent"), usual[-1]])
        table.group("user")
        await pilot.pause()
        line = next(line for line in text_of(app).splitlines() if " PID ▲ " in line)
        assert re.search(r"PID ▲ +USER +GPU +STATE +MEM/LIMIT +THREADS +(⟳old +)?CPU", line), line
        assert all(word[:3] in line for word in told[:1]), line
        table.group(None)
        for last in "cpu_percent", "client_priority":  # one that is right of its cells elsewhere, and a narrow one
            table.choose_columns([*usual[:-1], Shown(last)])
            await pilot.pause()
            line = next(line for line in text_of(app).splitlines() if " PID ▲ " in line)
            assert re.search(r"MEM/LIMIT +THREADS +(⟳old +)?(CPU|PRIO)\b", line), line
            assert all(word[:3] in line for word in told[:1]), line


async def test_under_a_filter_for_one_gpu_the_memory_is_what_clients_have_there() -> None:
    """In the rows, their order, what is compared and the sums of groups; of several devices it stays the whole."""
    app = make_app(one_daemon())
    here, there = GPU0, GPU1
    both = client(1, user="alice", contexts=(), gpu_memory={here: 9 << 30, there: 1 << 30})
    one = client(2, user="alice", contexts=(), gpu_memory={there: 2 << 30})
    async with app.run_test(size=(160, 48)) as pilot:
        app.collector.push(rich(daemons=(daemon(servers=(server(clients=(both, one)),)),)))
        await pilot.pause()
        clients = app.overview.clients
        clients.sort_by("gpu_memory")

        def pids() -> list[int]:
            return [row.pid for row in clients.rows]

        assert pids() == [both.pid, one.pid]
        for text in ("gpu:1", "GPU:1 user:alice"):
            clients.set_filter(text)
            await pilot.pause()
            assert pids() == [one.pid, both.pid]
            assert "1:1.0 GiB" in text_of(app)
        clients.set_filter("gpu:1 mem>1.5G")
        assert pids() == [one.pid]
        clients.set_filter("gpu:1")
        clients.group("user")
        await pilot.pause()
        assert "3.0 GiB" in text_of(app)
        clients.group(None)
        for text in ("gpu:0 gpu:1", "!gpu:5", ""):
            clients.set_filter(text)
            await pilot.pause()
            assert "10.0 GiB" in text_of(app), text


def test_the_palette_finds_words_and_not_letters_that_are_strewn_about() -> None:
    """Seen: ``thr`` found “Pin: keep the row on top” and 16 others, and Threads among them."""
    titles = {
        "Threads": "l  Set the active thread percentage: the share of the SMs that a new client may use",
        "Pin: keep the row on top, and be told when it ends; again: unpin": "i",
        "Find: go to the next row with the text": "f",
        "Copy the row": "y",
        "Terminate + kill": "K  Terminate, then end the process",
        "Activity: count kernel launches": "a  of all threads at once",
    }

    def found(query: str) -> list[str]:
        ranks = {title: rank(query, title, about) for title, about in titles.items()}
        return [title.split(":")[0] for title, _ in sorted(ranks.items(), key=lambda one: -one[1]) if ranks[title]]

    assert found("thr") == ["Threads"]
    assert found("threads") == ["Threads", "Activity"], "the name before what is said of it"
    assert found("kill") == ["Terminate + kill"]
    assert found("row copy") == ["Copy the row"], "words in any order, each as far as it is typed"
    assert found("ROW") == ["Pin", "Find", "Copy the row"]
    assert found("percentage") == ["Threads"]
    assert found("t+") == found("xq") == found(" ") == []


@pytest.mark.slow
async def test_a_text_that_is_typed_behind_a_command_stands_once_in_the_palette() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("w")
        await until(pilot, lambda: "write what is kept of the past" in text_of(app))
        assert text_of(app).count(".mps") == 1


@pytest.mark.slow
async def test_which_entry_enter_takes_has_a_sign_in_the_palette() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("colon", *"ter")

        def signs() -> list[int]:
            place = app.screen.query_one(OptionList).region
            lines = text_of(app).splitlines()[place.y : place.bottom]
            return [at for at, line in enumerate(lines) if line.lstrip().startswith("▸")]

        await until(pilot, lambda: len(signs()) == 1)
        before = signs()
        await pilot.press("down")
        await until(pilot, lambda: len(signs()) == 1 and signs() > before)


@pytest.mark.slow
async def test_whatever_is_typed_behind_a_colon_is_answered() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        provider = ActionCommands(app.screen)

        async def first(text: str) -> tuple[str, str]:
            hits = [hit async for hit in provider.search(text)]
            assert hits, f"{text!r} is met with silence"
            best = max(hits, key=lambda hit: hit.score)
            assert all(f"{hit.text}{hit.help}".isprintable() for hit in hits), text
            return str(best.text), best.help or ""

        called = [*(names(each)[-1] for each in ON_OVERVIEW), *VIEWS, "daemon", "load", "help"]
        for name in called:
            said = await first(f"{name} 5 \u202e\x1b[2J")
            assert said[1], said
        for text in "filter ", "help ", "set memory ", "terminate 99999999":
            assert (await first(text))[1], text
        assert (await first("start-server"))[1].endswith("Type more: user, a user name or a number")
        assert "“5 abc” is not understood: “Load: test clients” takes nothing more" in await first("load 5 abc")
        for typed in ("terminat 2000", "term 99", "ter 94"):
            assert "did you mean terminate?" in (await first(typed))[1], "what begins so, and nothing beside it"
        assert set(IN_A_SHELL) <= LOOKS, "they are commands there"
        for text in ("record", "Record x.mps"):
            assert "type  mpstui record FILE  in a shell" in (await first(text))[1]
        said = "2000 alice python train.py --config resnet50.yaml · asks before anything is done"
        assert await first("terminate kill 2000 2000") == ("terminate kill 2000 2000", said)
        await pilot.press("colon", *"load 5", "enter")
        await until(pilot, lambda: "load" in text_of(app))
        assert isinstance(app.screen, Palette), "what cannot be done can be typed on"


async def test_a_picker_says_what_is_there_now_and_its_rows_stay_in_their_places() -> None:
    """As the list behind it goes on: who chooses reads the rows."""
    series = [client(n) for n in range(8)]
    app = make_app(node(*series))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("U", "j", "j")
        picker = app.screen.panel
        before = [(row.label, row.detail.partition(" · ")[0]) for row in picker.rows]
        assert before[:1] == [("everybody", "8 clients")]
        assert picker.cursor_row.label == "bob"
        fresh = [dataclasses.replace(client(100 + n), user="aaron", uid=77) for n in range(3)]
        await push(pilot, node(*(each for each in series if each.user != "bob"), *fresh))
        after = [(row.label, row.detail.partition(" · ")[0]) for row in picker.rows]
        left = len(series) + 3 - sum(each.user == "bob" for each in series)
        assert after == [("everybody", f"{left} clients"), *((n, "gone" if n == "bob" else d) for n, d in before[1:]),
                         ("aaron", "3 clients")]  # fmt: skip
        assert picker.cursor_row.label == "bob"
        assert picker.size.height >= len(after), "it grows with its rows"
        await push(pilot, node(*series))
        assert [(row.label, row.detail.partition(" · ")[0]) for row in picker.rows] == [*before, ("aaron", "gone")]


async def test_the_picker_of_groups_counts_the_groups_of_now() -> None:
    app = make_app(node(*(client(n) for n in range(8))))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f5")
        row = next(at for at, row in enumerate(app.screen.panel.rows) if row.value == "user")
        assert app.screen.panel.rows[row].detail != "1 group"
        await push(pilot, node(client(0)))
        assert app.screen.panel.rows[row].detail == "1 group"


@pytest.mark.parametrize(("keys", "said"), [(("U", "j", "enter"), "user=alice"), (("f", *"vllm", "enter"), "vllm")])
async def test_the_foot_forgets_a_filter_and_a_search_with_the_list(keys: tuple[str, ...], said: str) -> None:
    """Seen: all clients, and ``/ user=alice`` at the foot until the next snapshot, which a frozen screen never gets."""
    app = make_app(one_daemon())
    async with app.run_test(size=(120, 24)) as pilot:
        await pilot.press(*keys)
        await pilot.pause()
        assert said in text_of(app).splitlines()[-1]
        await pilot.press("escape")
        await pilot.pause()
        assert said not in text_of(app).splitlines()[-1]
