"""Which columns the clients have, their order and widths, what they are sorted by, and that it is remembered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpstui.core.model import Context
from mpstui.fields import CLIENT, possible_columns

from .screen import make_app, push, text_of, until
from .snapshots import one_daemon
from .test_ui_states import Memory

SIZE = (160, 48)


def shown(app) -> list[str]:
    table = app.overview.clients
    return [each.id for each, _ in table.columns(table.inner)]


def test_each_column_that_can_be_chosen_says_what_it_is() -> None:
    for each in possible_columns(CLIENT):
        assert each.about, each.id
        assert each.brief.lower() not in {each.title.lower(), each.heading().lower()}, each.id


@pytest.mark.slow
async def test_columns_come_go_move_and_grow_at_once_and_are_there_at_the_next_start() -> None:
    memory = Memory()
    app = make_app(one_daemon(), memory=memory)
    async with app.run_test(size=SIZE) as pilot:
        usual = shown(app)
        assert usual[:3] == ["pid", "user", "server_pid"]
        await pilot.press("f2", "j", "space", "g", "greater_than_sign", "plus", "plus")
        assert shown(app)[:3] == ["server_pid", "pid", "device_uuids"]
        assert "user" not in shown(app)
        assert app.overview.clients.columns(158)[1][1] == 10, "two cells more than it has by itself"
        await pilot.press("G", "space", "escape")
        assert len(shown(app)) == len(usual)
        left = shown(app)
    again = make_app(one_daemon(), memory=memory)
    async with again.run_test(size=SIZE) as pilot:
        await pilot.pause()
        assert shown(again) == left
        await pilot.press("f2", "0", "escape")
        assert shown(again) == usual
    fresh = make_app(one_daemon(), memory=memory)
    async with fresh.run_test(size=SIZE) as pilot:
        await pilot.pause()
        assert shown(fresh) == usual


@pytest.mark.slow
@pytest.mark.parametrize("size", [(40, 10), (80, 24), (200, 60)])
async def test_every_field_can_be_a_column_at_every_size(size) -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=size) as pilot:
        await pilot.press("f2")
        for _ in app.screen.panel.rows:
            if not app.screen.panel.cursor_row.shown:
                await pilot.press("space")
            await pilot.press("j")
        await pilot.press("escape")
        await pilot.pause()
        assert len(text_of(app).splitlines()) == size[1]


@pytest.mark.slow
async def test_a_column_that_there_is_no_room_for_is_told() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f2")
        await pilot.pause()
        assert "no room" not in text_of(app)
        panel = app.screen.panel
        beyond = [row for row in panel.rows if row.shown and row.field.id not in shown(app)]
        for row in beyond:
            line = next(line for line in text_of(app).splitlines() if f"[·] {row.field.heading()} " in line)
            assert f" wider  {row.field.brief[:30]}" in line, "what it is, before why it is not here"
            panel.move_to(panel.rows.index(row))
            await pilot.pause()
            assert f"{row.field.brief}; on wider screens; Space: here too" in " ".join(
                text_of(app).replace("│", " ").split()
            )
        assert text_of(app).splitlines()[-1].split() == (
            ["Space", "show/hide", "<>", "move", "+-", "width", "s", "sort", "0", "reset", "Esc", "close", "?", "Help"]
        )
        while all(row.field.id in shown(app) for row in panel.rows if row.asked):
            panel.move_to(next(number for number, row in enumerate(panel.rows) if not row.shown))
            await pilot.press("space")
        assert {"pid", "user", "state"} <= set(shown(app)), "who it is gives way to nothing"
        panel.move_to(next(n for n, row in enumerate(panel.rows) if row.asked and row.field.id not in shown(app)))
        await pilot.pause()
        assert "no room: hide or narrow another" in text_of(app)


async def test_a_column_that_is_asked_for_at_eighty_columns_comes_before_the_end_of_the_command() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f2")
        panel = app.screen.panel
        panel.move_to(next(number for number, row in enumerate(panel.rows) if row.field.id == "cpu_percent"))
        await pilot.press("space")
        await pilot.pause()
        assert shown(app)[-2:] == ["cpu_percent", "command"], "the command takes what is left of the width"
        assert "active_thread_percentage" in shown(app)
        assert "no room" not in text_of(app)
        await pilot.press("escape")
        await pilot.pause()
        assert " CPU " in text_of(app).split("PID", 1)[1].splitlines()[0]


@pytest.mark.slow
async def test_the_cursor_of_the_columns_stays_and_widths_that_there_is_no_room_for_are_told() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f2", "j", "j", "j")
        panel = app.screen.panel
        rows = list(panel.rows)
        await pilot.press("space")
        assert (panel.cursor_index, panel.cursor_row.field.id) == (3, rows[3].field.id), "hidden at its place"
        assert (panel.cursor_row.shown, rows[3].field.id in app.overview.clients.laid_out()) == (False, False)
        await pilot.press("space")
        assert (panel.cursor_index, list(panel.rows)) == (3, rows), "the same key takes it back"
        await pilot.press("space", "j", "space")
        panel.move_to([row.field.id for row in panel.rows].index("command"))
        await pilot.press("plus")
        for _ in range(80):
            panel.action_widen(1)
        await pilot.pause()
        width, room = panel.cursor_row.width, app.overview.clients.laid_out()["command"]
        assert width > 80 > room
        assert f"{width}, room for {room} here" in text_of(app)
        for _ in range(width):
            panel.action_widen(-1)
        await pilot.pause()
        assert app.overview.clients.laid_out()["command"] == 4, "the others have what it does not want"
        await pilot.resize_terminal(200, 24)
        await pilot.pause()
        await until(pilot, lambda: app.overview.clients.laid_out()["command"] > 40)
        await push(pilot, one_daemon())  # as each second: whoever is laid out first does not wait for the other
        await until(
            pilot,
            lambda: f"4, and what is left: {app.overview.clients.laid_out()['command']} here" in text_of(app),
        )
        await pilot.press("G", "plus")
        assert "is hidden and has no width to change" in [n.message for n in app._notifications][-1]


async def test_an_order_by_what_is_known_of_nobody_is_told_and_why(monkeypatch) -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        table = app.overview.clients
        said: dict[str, str] = {}
        for each in possible_columns(CLIENT):
            monkeypatch.setattr(app, "notify", lambda text, each=each, **options: said.update({each.id: text}))
            table.sort_by(each.id)
            known = any(not each.order(client, table.view)[0] for client in table.rows)
            assert known is not (each.id in said), each.id
        assert {"launches_per_second", "idle_since"} <= {*said}
        assert not {"pid", "user", "gpu_memory"} & {*said}
        assert "LAUNCH/s is — for all clients here" in said["launches_per_second"]
        assert "started with --activity" in said["launches_per_second"]
        table.sort_by("launches_per_second")
        await pilot.pause()
        assert "— LAUNCH/s" in text_of(app), "as long as it is so"


@pytest.mark.slow
async def test_one_column_stays() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f2", *["space"] * 20)
        assert len(shown(app)) >= 1


async def test_numbers_begin_with_the_largest_and_the_arrow_says_which_way_it_goes() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        for name, arrow in (("pid", "▲"), ("user", "▲"), ("gpu_memory", "▼"), ("active_thread_percentage", "▼")):
            app.overview.clients.sort_by(name)
            await pilot.pause()
            assert arrow in text_of(app), name
            await pilot.press("I")
            await pilot.pause()
            assert {"▲": "▼", "▼": "▲"}[arrow] in text_of(app), name
            rows = app.overview.clients.rows
            missing = [n for n, row in enumerate(rows) if row.user is None]
            if name == "user":
                assert missing == [len(rows) - 1], "what is not known comes last, either way"
        app.overview.clients.sort_by("cpu_percent")
        await pilot.pause()
        assert "▼ CPU" in text_of(app), "also where the column has no room"


@pytest.mark.parametrize(
    "kept",
    [
        {"columns": "x"},
        {"columns": [["pid"], [1, 2], ["pid", -1], ["nothing", 3]]},
        {"sort": ["nothing", True]},
        {"sort": 1},
    ],
)
async def test_nonsense_that_was_kept_is_left_out(kept) -> None:
    app = make_app(one_daemon(), memory=Memory(kept))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        assert shown(app)[:2] == ["pid", "user"]


@pytest.mark.slow
@pytest.mark.parametrize("keys", [("+",), ("<",), ("0",)])
async def test_what_is_kept_of_the_columns_is_the_change_and_not_what_fitted(keys) -> None:
    """Somebody added CPU at 80 columns, and SERVER, PRIO, AGE and WHERE were gone on every other terminal."""
    plain = make_app(one_daemon())
    async with plain.run_test(size=(200, 60)) as pilot:
        await pilot.pause()
        usual = shown(plain)
    memory = Memory()
    app = make_app(one_daemon(), memory=memory)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f2")
        panel = app.screen.panel
        panel.move_to([row.field.id for row in panel.rows].index("user"))
        await pilot.press(*keys)
        panel.move_to([row.field.id for row in panel.rows].index("cpu_percent"))
        await pilot.press("space", "escape")
        await pilot.pause()
        assert {"cpu_percent", "pid", "user"} <= set(shown(app))
    again = make_app(one_daemon(), memory=memory)
    async with again.run_test(size=(200, 60)) as pilot:
        await pilot.pause()
        assert set(shown(again)) == {*usual, "cpu_percent"}
    async with (small := make_app(one_daemon(), memory=memory)).run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert "cpu_percent" in shown(small)


@pytest.mark.slow
async def test_a_column_that_was_hidden_stays_hidden_in_every_size_and_an_older_list_hides_none() -> None:
    memory = Memory()
    app = make_app(one_daemon(), memory=memory)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f2", "j", "space", "escape")
        assert "user" not in shown(app)
    for kept in (memory, Memory({"columns": [["pid", 0], ["command", 0]]})):
        again = make_app(one_daemon(), memory=kept)
        async with again.run_test(size=(200, 60)) as pilot:
            await pilot.pause()
            assert {"server_pid", "start_time", "client_priority"} <= set(shown(again)), "no size decides about another"
            assert ("user" in shown(again)) is (kept is not memory)


@pytest.mark.parametrize("key", ["f2", "f6"])
async def test_what_a_line_cuts_at_eighty_columns_stands_whole_below_the_list(key: str) -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(key)
        panel = app.screen.panel
        named = "gpu_memory" if key == "f2" else CLIENT["gpu_memory"].heading()
        at = next(n for n, row in enumerate(panel.rows) if named in {getattr(row, "label", ""), str(panel.key(row))})
        panel.move_to(at)
        await pilot.pause()
        assert CLIENT["gpu_memory"].brief in " ".join(text_of(app).replace("│", " ").replace("┃", " ").split())
        panel.move_to(0)
        await pilot.pause()
        assert text_of(app).count("Its process ID") == 1, "what is whole is told once"
        lines = text_of(app).splitlines()
        assert lines[-1].strip(), "the keys have their line"


async def test_where_no_command_is_known_its_column_leaves_its_room_to_the_gpus_names() -> None:
    """On a dead node's logs at 80 columns: "bd2…" beside a column of dashes."""
    whole = one_daemon()
    uuids = tuple(f"GPU-{n}bd2e5f3a-3507-69ef-fed3-0090a2cbc745" for n in range(2))
    served = whole.daemons[0].servers
    told = tuple(
        replace(client, command=None, contexts=tuple(Context(n, uuid) for n, uuid in enumerate(uuids)), gpu_memory={})
        for client in served[0].clients[:3]
    )
    logs = replace(whole, devices=(), daemons=(replace(whole.daemons[0], servers=(replace(served[0], clients=told),)),))
    app = make_app(logs)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        cells = {each.id: room for each, room in app.overview.clients.columns(app.overview.clients.inner)}
        assert cells["device_uuids"] >= 11
        assert "command" in cells
        known = (replace(told[0], command="python"), *told[1:])
        servers = (replace(served[0], clients=known),)
        await push(pilot, replace(logs, daemons=(replace(whole.daemons[0], servers=servers),)))
        again = {each.id: room for each, room in app.overview.clients.columns(app.overview.clients.inner)}
        assert again["command"] > cells["command"], "as soon as there is one, it has its room"
