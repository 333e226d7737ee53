"""What the screen says in each state of a node, at each size, and that a daemon comes back by itself."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from textual.app import ComposeResult
from textual.color import Color
from textual.events import Resize
from textual.geometry import Size
from textual.screen import Screen
from textual.strip import Strip
from textual.widgets import Static

from mpstui.core.model import Condition, Event, Health, Problem, ProcessKey, Snapshot, StartFailures
from mpstui.ui.app import MpsTuiApp, NewSnapshot
from mpstui.ui.bars import Header
from mpstui.ui.lines import StyledScreen
from mpstui.ui.private import Update
from mpstui.ui.theme import contrast

from .screen import make_app, push, text_of, until
from .snapshots import (
    NOW,
    PIPE,
    client,
    daemon,
    events,
    fault,
    no_daemon,
    one_daemon,
    rich,
    server,
    simulated,
    unhealthy,
    unknown,
)

SIZE = (160, 48)


async def screen_of(snapshot, size=SIZE, **options) -> str:
    app = make_app(snapshot, **options)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        return text_of(app)


async def test_a_rich_node_shows_everything_an_admin_needs() -> None:
    text = await screen_of(rich())
    for part in (
        "mpstui  gpu-07  driver 580.159.04 · MPS 13000", "/tmp/mps_0 ● ok · 1 server · 46 clients  12:04",
        "● ok /run/mps/team-b", "H100 80GB HBM3  132 SM  Default", "46/48 contexts   2 left ▲",
        "7/48 contexts  41 left",
        "87 %  occupancy  41 %  DRAM  22 %", "24.4/79.6 GiB", "341 W   46 °C", "100 %  132 SM", "25 %  32 SM",
        "0: 2.0 GiB  1: 4.0 GiB", "normal", "⟳ 2 with outdated limits", "● ACTIVE",
        "✕ TERMINATED", "○ INACTIVE", "◌ ENDING",
        "500 MiB / 2.0 GiB", "1.9 GiB / 2.0 GiB ▲", "≈ 128 SM", "0,1", "job-4711",
        "[bold red]x[/] \\x1b",
        "12:03:51  · client 2315 (alice) opened context 3 on GPU 1", "✕ a client was refused: 48 clients is the most",
    ):  # fmt: skip
        assert part in text, part
    assert re.search(r"50 %  66 SM +⟳", text)
    assert "SIMULATED" not in text


async def test_a_snapshot_that_is_under_way_when_the_program_ends_harms_nothing() -> None:
    app = make_app(rich())
    async with app.run_test(size=SIZE):
        pass
    app.on_new_snapshot(NewSnapshot(fault()))


async def test_a_screen_that_is_being_taken_down_is_not_brought_up_to_date() -> None:
    """Its widgets go before it does."""
    shown: list[object] = []

    class Part(Static):
        def on_unmount(self) -> None:
            app.on_new_snapshot(NewSnapshot(fault()))

    class Front(Screen[None]):
        def compose(self) -> ComposeResult:
            yield Part()

        def update_snapshot(self, snapshot: Snapshot) -> None:
            shown.append(snapshot)

    app = make_app(rich())
    async with app.run_test() as pilot:
        await app.push_screen(Front())
        app.on_new_snapshot(NewSnapshot(rich()))
        await pilot.pause()
        before = len(shown)
    assert before
    assert len(shown) == before


@pytest.mark.slow
async def test_simulated_is_always_said() -> None:
    by_source = rich(source="simulated", daemons=(daemon(),))
    nodes = simulated(), by_source, rich(daemons=(daemon(simulated=True),))
    app = make_app(nodes[0])
    async with app.run_test(size=SIZE) as pilot:
        for size in (SIZE, (80, 24), (60, 15), (44, 10)):
            await pilot.resize_terminal(*size)
            for number, snapshot in enumerate(nodes):
                assert "SIMULATED" not in await push(pilot, rich())
                assert "SIMULATED" in await push(pilot, snapshot), (size, number)


async def test_a_fault_is_a_word_a_symbol_and_a_problem() -> None:
    text = await screen_of(fault())
    assert "✕ FAULT" in text
    assert "✕ server 1402: a client faulted; new clients are refused  → end clients 2000, 2014" in text
    assert "(and 1 more)" in text
    text = await screen_of(fault(), (260, 60))
    assert "clients 2000, 2007, 2014 lost; no proof: server.log names client 2007" in text


def unread(health: Health | None, broken: str) -> tuple[Snapshot, str | None]:
    """A node whose daemon is not well, with something that cannot be read; what is said to be live all the same."""
    shot = unhealthy(health) if health is not None else replace(no_daemon(), nvml_detail=None, devices=rich().devices)
    runs = health in {"held", "blocked"}
    if broken == "no logs":
        polled = (replace(each, watch="polling") for each in shot.daemons)
        shot = replace(shot, daemons=tuple(polled))
        live = "Devices are live." if runs else "The values of the devices, from NVML, are live."
    else:
        devices, detail = ((), None) if broken == "no devices" else (shot.devices, "NVML has not answered for 5 s")
        shot = replace(shot, devices=devices, nvml_detail=detail)
        live = "Events are live." if runs else None
    return shot, live


@pytest.mark.slow
async def test_nothing_is_said_to_be_live_that_is_not_read() -> None:
    """Devices by NVML, and events by the logs of a daemon that is there."""
    app = make_app(rich())
    async with app.run_test(size=(160, 60)) as pilot:
        for health in ("held", "blocked", "stale", "absent", None):
            for broken in ("no devices", "NVML hangs", "no logs"):
                shot, live = unread(health, broken)
                text = " ".join((await push(pilot, shot)).replace("│", " ").split())
                assert "by itself" in text, (health, broken)
                assert ("live" in text) == (live is not None), (health, broken)
                assert live is None or live in text, (health, broken)
                assert "run on" in text or health not in {"held", "blocked"}, (health, broken)


@pytest.mark.parametrize("health", ["held", "blocked", "stale", "absent"])
async def test_a_daemon_that_is_not_well_is_explained_and_comes_back_by_itself(health) -> None:
    app = make_app(unhealthy(health))
    async with app.run_test(size=SIZE) as pilot:
        text = text_of(app)
        assert health.upper() in text
        for label in ("where", "what", "since", "remedy", "still works", "12:03:16, 1m ago", "Devices", "Events"):
            assert label in text, label
        assert "COMMAND" not in text
        if health == "held":
            assert "alice keeps a control session open on pts/3 (process 4242)" in text
            assert "by whom" not in text, "that is said once"
            assert "Close that session, or end process 4242" in text
        if health == "blocked":
            assert "client 2028, user eve: julia --project run.jl" in text
        app.collector.push(one_daemon())
        await pilot.pause()
        text = text_of(app)
        assert "still works" not in text
        assert "COMMAND" in text
        assert app.focused.id == "clients", "the focus is back where it was"


async def test_no_daemon_and_no_nvml_are_said() -> None:
    text = await screen_of(no_daemon())
    assert "No daemon" in text
    assert "--pipe-dir" in text
    assert "no readings: libnvidia-ml.so.1 is not there" in text


async def test_before_the_first_snapshot() -> None:
    text = await screen_of(None)
    assert "looking for daemons" in text
    assert "no device found" not in text


async def test_what_is_known_already_is_on_the_screen_before_anything_more_is_read() -> None:
    """The readings took a fifth of the time until the first picture, which they are not in."""
    app, seen = make_app(rich()), []

    async def start() -> None:
        seen.append(text_of(app))

    app.collector.start = start
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: seen)
        await pilot.pause()
    assert len(seen) == 1
    assert "job-4711" in seen[0]


async def test_what_the_terminal_shows_stays_until_everything_has_its_place() -> None:
    """The first picture was a blank one, and the second had no clients."""
    app, early = make_app(rich()), []
    subscribe = app.collector.subscribe

    def mounting(callback):
        early.append((app.begun(), app.written_instead(Update(app.size, [(0, 0, [Strip.blank(5)])]), app.overview)))
        return subscribe(callback)

    app.collector.subscribe = mounting
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, app.begun)
        assert early == [(False, "")]
        assert "job-4711" in str(app.written_instead(app.whole(app.overview), app.overview))


async def test_before_nvml_was_read_no_device_is_said_to_be_missing() -> None:
    unread = replace(one_daemon(), devices=(), driver_version=None, nvml_detail=None)
    assert "… looking for devices" in await screen_of(unread)
    assert "— no device found" in await screen_of(replace(unread, driver_version="580.159.04"))


async def test_before_it_has_been_looked_nothing_is_said_to_be_missing() -> None:
    text = await screen_of(replace(no_daemon(), looked=False))
    assert "Looking for daemons" in text
    assert "Looking…" in text
    assert "No daemon" not in text
    assert "No MPS control daemon" not in text


async def test_not_known_is_a_dash_and_never_a_zero() -> None:
    text = await screen_of(unknown())
    assert "—/48 contexts" in text
    assert "none" not in text
    assert " 0 " not in text
    assert "▲ /tmp/mps_0: watched by asking it again and again: control.log may not be read" in text


async def test_a_daemon_that_cannot_be_asked_is_not_ok_and_has_not_no_clients() -> None:
    detail, remedy = "The answer cannot be read: “hello”", "What was run is not this driver's nvidia-cuda-mps-control"
    unread = replace(daemon(servers=()), condition=Condition("ok", "not_asked", detail=detail, remedy=remedy))
    shot = replace(one_daemon(), daemons=(unread,))
    text = await screen_of(shot)
    assert "▲ UNREAD" in text
    assert "0 clients" not in text
    assert "no clients" not in text
    assert "Clients —" in text
    assert text.count("not known: the daemon cannot be asked") == 2


async def test_a_full_device_and_no_server() -> None:
    full = replace(rich().devices[0], contexts=48)
    text = await screen_of(rich(devices=(full,), daemons=(daemon(servers=()),)))
    assert "48/48 contexts     full ✕" in text
    assert "no server: the daemon starts one with the first client" in text
    assert "no clients" in text


async def test_where_no_server_starts_none_is_promised() -> None:
    text = await screen_of(rich(daemons=(daemon(servers=(), start_failures=StartFailures(24)),)))
    assert "no server: 24 servers ended before they were ready" in text
    assert "starts one with the first client" not in text


SIZES = ((200, 60), (160, 48), (120, 40), (100, 30), (80, 24), (60, 15), (40, 10), (39, 9), (20, 5), (3, 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [rich, fault, unknown, no_daemon, lambda: unhealthy("held")],
    ids=["rich", "fault", "unknown", "none", "held"],
)
async def test_every_size_and_every_panel_without_a_crash(make) -> None:
    app = make_app(make())
    async with app.run_test(size=SIZE) as pilot:
        for width, height in SIZES:
            await pilot.resize_terminal(width, height)
            for key in ("1", "2", "3", "4", "5", "j", "G"):
                await pilot.press(key)
            await pilot.pause()
            lines = text_of(app).split("\n")
            assert len(lines) == height
            assert "mpstui" in text_of(app) or width < 8
            assert all(line[-1] in "│┃╮╯" for line in lines if line.startswith(("│", "╭", "╰")))


@pytest.mark.slow
async def test_a_terminal_that_shrinks_and_grows() -> None:
    app = make_app(rich())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("j", "j", "j")
        row = app.overview.clients.cursor_row
        for size in ((20, 5), (80, 24), (10, 2), (160, 48)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert ("terminal too small" in text_of(app)) is (size == (20, 5))
        assert app.overview.clients.cursor_row == row
        assert "COMMAND" in text_of(app)


@pytest.mark.slow
async def test_a_digit_brings_a_panel_and_hides_the_one_that_the_user_is_in() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        assert "MEMORY/DEVICE" not in text_of(app)
        await pilot.press("2")
        await pilot.pause()
        assert "MEMORY/DEVICE" in text_of(app)
        assert "100 %  132 SM" in text_of(app)
        await pilot.press("4")
        await pilot.pause()
        assert "MEMORY/DEVICE" in text_of(app), "it was asked for, and stays"
        await pilot.press("2", "2")
        await pilot.pause()
        assert "MEMORY/DEVICE" not in text_of(app)
        assert app.focused.id == "clients"
        await pilot.press("1", "1")
        await pilot.pause()
        assert "H100" not in text_of(app)
        await pilot.press("4", "4")
        await pilot.pause()
        assert "COMMAND" in text_of(app), "the clients are what the screen is for"


@pytest.mark.slow
async def test_a_panel_that_is_only_looked_at_on_a_small_screen_is_not_hidden_on_a_large_one() -> None:
    """Seen: 3 3 at 80x24, where the servers have no place of their own, hid them at 160x48 for ever."""
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("3", "3", "5", "5")
        await pilot.pause()
        shown = {each.id for each in app.screen.query("Panel") if each.display}
        assert shown == {"devices", "clients"}
        await pilot.resize_terminal(*SIZE)
        await pilot.pause()
        shown = {each.id for each in app.screen.query("Panel") if each.display}
        assert shown == {"devices", "limits", "servers", "clients"}


@pytest.mark.parametrize("size", [(80, 24), SIZE])
async def test_a_panel_that_goes_says_which_key_brings_it_back(size) -> None:
    """Seen: with frames, or without the events, nothing on the screen said that there are more panels."""
    app = make_app(one_daemon())
    async with app.run_test(size=size) as pilot:
        await pilot.press("5", "5")
        await pilot.pause()
        assert [(each.title, each.message) for each in app._notifications] == [("Events", "hidden; 5 shows it again")]
        await pilot.press("5")
        await pilot.pause()
        assert app.overview.log_panel.display


@pytest.mark.slow
@pytest.mark.parametrize("size", [(60, 15), (80, 24), (120, 40), (160, 48), (200, 60)])
async def test_z_gives_the_panel_that_the_user_is_in_the_whole_screen_and_back(size) -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=size) as pilot:
        for digit in "41235":  # the clients have the focus already
            await pilot.press(digit)
            await pilot.pause()
            panel, before = app.focused, text_of(app)
            await pilot.press("z")
            await pilot.pause()
            assert app.focused is panel, digit
            assert panel.size == (size[0], size[1] - 2), digit
            assert [each.id for each in app.screen.query("Panel") if each.display] == [panel.id], digit
            await pilot.press("z" if digit in "135" else "escape")
            await pilot.pause()
            assert text_of(app) == before, digit


class Memory(dict):
    put = dict.__setitem__


@pytest.mark.slow
async def test_a_view_that_was_left_is_told_at_the_start_and_reset_brings_the_usual_one_back() -> None:
    memory = Memory()
    told: dict[str, list[str]] = {}
    usual = ""
    for start in ("first", "changed", "reset"):
        app = make_app(one_daemon(), memory=memory)
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.pause()
            told[start] = [each.title for each in app._notifications]
            usual = text_of(app) if start == "first" else usual
            if start == "first":
                await pilot.press("2", "f2", "space", "escape", "4", "i", "s", "z")
            elif start == "changed":
                assert text_of(app) != usual
                app.overview.show_view("reset", "view")
                await pilot.pause()
                clients = app.overview.clients
                assert (clients.sort, clients.pinned, clients.chosen_columns) == (("pid", False), frozenset(), ())
            if start != "first":
                app.clear_notifications()
                await until(pilot, lambda app=app, usual=usual: text_of(app)[:800] == usual[:800])
    assert told == {"first": [], "changed": ["The view is as you left it"], "reset": []}


@pytest.mark.slow
async def test_the_layout_is_there_again_at_the_next_start() -> None:
    memory = Memory()
    for start in range(2):
        app = make_app(one_daemon(), memory=memory)
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.pause()
            assert ("MEMORY/DEVICE" in text_of(app)) is (start == 1)
            assert ("H100" in text_of(app)) is (start == 0)
            if not start:
                await pilot.press("2", "1", "1")
    assert memory == {"panels": {"limits": True, "devices": False}, "zoomed": False}
    for digit, panel in ("1", "devices"), ("3", "servers"):
        memory = Memory()
        for start in range(2):
            app = make_app(one_daemon(), memory=memory)
            async with app.run_test(size=(80, 24)) as pilot:
                if not start:
                    await pilot.press(digit, "z")
                await pilot.pause()
                assert [each.id for each in app.overview.query("Panel") if each.display] == [panel]
                assert app.focused.id == panel
    for nonsense in ({"panels": [1], "zoomed": 3}, {"panels": {"limits": "yes", "x": True}, "zoomed": ["z"]}):
        app = make_app(one_daemon(), memory=Memory(nonsense))
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.pause()
            assert "COMMAND" in text_of(app)


async def test_eighty_by_twenty_four_shows_twelve_clients_with_what_mps_is_about() -> None:
    problem = Problem("warning", "x", "server 1402", "something is wrong " * 8, "do this about it")
    app = make_app(replace(one_daemon(), problems=(problem,)))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        lines = text_of(app).splitlines()
    rows = [line for line in lines if re.match(r"[ ▸] {2}2\d\d\d ", line)]
    assert len(rows) >= 12
    assert rows[0].replace("┃", " ").split() == [
        "▸",
        "2000",
        "alice",
        "0",
        "●",
        "ACTIVE",
        "500M/2.0G",
        "25%",
        "32SM",
        "python",
        "train.p…",
    ]
    assert re.search(r"66SM +⟳", rows[1])
    assert "1.9G/2.0G▲" in rows[3]
    assert sum("H100" in line for line in lines) == 2
    assert "gpu-07" in lines[0], "which host it is"
    assert lines[-2].strip() == "→ do this about it"


async def test_cells_of_a_small_screen_are_whole_or_marked_as_cut() -> None:
    text = await screen_of(rich(), (80, 24))
    assert re.search(r"2000 +alice +0 +● ACTIVE +500M/2.0G +25% 32SM +python", text)
    assert "ctx 46/48▲" in text
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("3")
        await pilot.pause()
        assert "by device" in text_of(app), "limits that do not fit are not cut"


@pytest.mark.slow
async def test_events_follow_the_end_until_the_user_looks_back() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:

        async def happen(pid: int) -> None:
            snapshot = app.collector.snapshot
            event = Event("client_connected", NOW, PIPE, 1402, pid, detail=f"client {pid} connected", raw=str(pid))
            app.collector.push(replace(snapshot, events=(*snapshot.events, event)))
            await pilot.pause()

        for pid in range(7000, 7020):
            await happen(pid)
        assert "client 7019 connected" in text_of(app)
        await pilot.press("5", "g")
        await happen(7100)
        assert "client 7100 connected" not in text_of(app)
        assert "control daemon started" in text_of(app)
        await pilot.press("G")
        await happen(7200)
        assert "client 7200 connected" in text_of(app)


async def test_events_of_another_daemon_and_noise_are_not_shown() -> None:
    other = Event("client_connected", NOW, PIPE.parent / "other", 1, 31337, raw="x")
    noise = Event("command", NOW, PIPE, detail="get_server_list", raw="y")
    text = await screen_of(one_daemon(events=(*events(), other, noise)))
    assert "31337" not in text
    assert "get_server_list" not in text


@pytest.mark.slow
async def test_five_thousand_clients_are_as_quick_as_the_rows_that_are_seen() -> None:
    many = tuple(client(n % 46, key=ProcessKey(n + 1, n)) for n in range(5000))
    app = make_app(rich(daemons=(daemon(servers=(server(clients=many),)),)))
    async with app.run_test(size=SIZE) as pilot:
        built = []
        table = app.overview.clients
        original = table.row_lines
        table.row_lines = lambda row, width: built.append(row) or original(row, width)
        await pilot.press("G")
        await pilot.pause()
        assert table.cursor_row.pid == 5000
        assert 0 < len(built) <= 48
        table.row_lines = original


async def test_nothing_is_refreshed_when_nothing_changed() -> None:
    app = make_app(rich())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        refreshed = []
        for widget in app.screen.walk_children():
            original = widget.refresh
            widget.refresh = lambda *regions, _w=widget, _o=original, **k: (
                refreshed.append((_w, regions)) or _o(*regions, **k)
            )
        app.collector.push(replace(rich(), time=NOW + 0.5))
        await pilot.pause()
        assert refreshed == []
        device = replace(rich().devices[0], sm_utilization=12.0)
        app.collector.push(replace(rich(), devices=(device, rich().devices[1])))
        await pilot.pause()
        assert [(widget.id, [r.height for r in regions]) for widget, regions in refreshed] == [("devices", [1])]


@pytest.mark.parametrize("theme", ["mpstui-dark", "mpstui-light", "mpstui-contrast", "terminal"])
async def test_every_theme_draws_and_can_be_changed(theme) -> None:
    app = make_app(rich(), theme=theme)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("v", "F")
        assert "✓ 1 chosen" in text_of(app)
        app.theme = "terminal"
        await pilot.pause()
        colors = {
            segment.style.color.name
            for strip in app.screen._compositor.render_strips()
            for segment in strip
            if segment.style is not None and segment.style.color is not None
        }
        assert not any(name.startswith("#") for name in colors), "the terminal's own theme sends no colour of its own"


def test_resize_is_an_event_the_app_listens_to() -> None:
    app = make_app(rich())
    app._diff._chars = [["x"]]
    app.on_resize(Resize(Size(1, 1), Size(1, 1)))
    assert app._diff._chars == [], "after a resize the terminal's content is not known"


_INKS = {each.removeprefix("ui--") for each in StyledScreen.COMPONENT_CLASSES}
_BANDS = {"cursor", "cursor-blur", "marked", "bar", "tab", "badge", "badge-loud"}
_LINES = {"border", "border-focus", "track", "meter", "meter-high", "meter-memory"}


@pytest.mark.slow
async def test_whatever_is_painted_on_whatever_band_can_be_read() -> None:
    """Each ink on the ground, under the cursor, chosen, both, and in a heading: as WCAG 2 asks for text (AA), and for
    lines and bars. What does nothing now is in brackets, and only the high contrast's is asked to be text."""
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        for theme in ("mpstui-contrast", "mpstui-dark", "mpstui-light"):
            app.theme = theme
            await pilot.pause()
            high, low = theme == "mpstui-contrast", {}
            pairs = [
                ink + band for ink in _INKS - _BANDS for band in ("", "+cursor", "+cursor-blur", "+marked", "+bar")
            ]
            pairs += [f"{ink}+marked+cursor" for ink in _INKS - _BANDS]
            for names in (*pairs, "tab", "badge", "badge-loud"):
                ink = names.partition("+")[0]
                least = 3.0 if ink in _LINES else 4.5
                if ink in {"border", "track", "key-off"} and not high:
                    continue
                style = app.overview.clients._resolve(names)
                found = contrast(Color.from_rich_color(style.color), Color.from_rich_color(style.bgcolor))
                if found < least:
                    low[names] = round(found, 2)
            assert low == {}, theme


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (160, 48)], ids=str)
async def test_the_line_at_the_top_is_read_behind_a_dialog_as_before_it(size: tuple[int, int]) -> None:
    """It says what is asked about. Shaded with the rest, node, SIMULATED and health had a contrast of 2.5 to 3.4."""
    app = make_app(simulated())
    async with app.run_test(size=size) as pilot:
        for theme in ("mpstui-contrast", "mpstui-dark", "mpstui-light"):
            app.theme = theme
            await pilot.pause()
            before = _inks_of_row(app, 0)
            await pilot.press("question_mark")
            await until(pilot, lambda: app.screen is not app.overview)
            behind = _inks_of_row(app, 0)
            await pilot.press("escape")
            await until(pilot, lambda: app.screen is app.overview)
            assert "SIMULATED" in "".join(each for each, _, _ in behind)
            assert behind == before, theme
            low = {
                character: round(found, 2)
                for character, ink, ground in behind
                if character.strip() and (found := contrast(Color.parse(ink), Color.parse(ground))) < 4.5
            }
            assert low == {}, theme


def _inks_of_row(app: MpsTuiApp, row: int) -> list[tuple[str, str, str]]:
    """What is painted there: characters, each with its ink and its ground."""
    strip = app.screen._compositor.render_strips()[row]
    painted = [(segment.text, segment.style) for segment in strip if segment.style is not None]
    return [
        (character, style.color.get_truecolor().hex, style.bgcolor.get_truecolor().hex)
        for text, style in painted
        if style.color is not None and style.bgcolor is not None
        for character in text
    ]


async def test_what_does_nothing_now_is_in_brackets_and_where_the_keys_go_is_a_sign() -> None:
    app = make_app(one_daemon(), read_only=True)
    async with app.run_test(size=(240, 60)) as pilot:
        last = text_of(app).splitlines()[-1]
        assert "(t Terminate)" in last
        assert " / Filter " in last
        assert "▸  2000" in text_of(app)
        await pilot.press("1")
        assert "▹  2000" in text_of(app)


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_a_header_that_is_ok_counts_the_errors_that_are_in_problems(width: int) -> None:
    """All contexts were in use: ✕ among the problems, and ● ok above them."""
    snapshot = one_daemon()
    bad = Problem("error", "contexts", "", "GPU 0: 48 of 48 contexts are in use", "")
    for problems, said in (((), ""), ((bad,), "● daemon ok ✕ 1 error"), ((bad, bad), "● daemon ok ✕ 2 errors")):
        header = Header(read_only=False)
        header._snapshot, header._daemon = replace(snapshot, problems=problems), snapshot.daemons[0]
        (line,) = header.lines(width, 1)
        text = "".join(part for part, _ in line)
        assert said in text
        assert ("✕" in text) is bool(said)


@pytest.mark.parametrize(("some", "counted", "title"), [(0, "clients not known", "—"), (2, "≥ 2 clients", "≥ 2")])
async def test_clients_that_no_log_names_are_not_counted_as_none(some: int, counted: str, title: str) -> None:
    """Logs up to driver 550, and those of a container: “0 clients”, “no clients” beside a server with “—” of them."""
    snapshot = one_daemon()
    found = snapshot.daemons[0]
    made = replace(found.servers[0], clients=found.servers[0].clients[:some], clients_known=False)
    app = make_app(replace(snapshot, daemons=(replace(found, servers=(made,)),)))
    async with app.run_test(size=(160, 50)):
        text = text_of(app)
        assert f"· 1 server · {counted}" in text
        assert f"Clients {title} " in text
        assert "no clients" not in text


def test_a_header_says_that_a_server_is_told_to_end() -> None:
    """``● ok · 1 server`` above one that lets nobody of another user in: no word of it but in its row."""
    snapshot = one_daemon()
    found = snapshot.daemons[0]
    header = Header(read_only=False)
    for count, said in ((1, "· 1 server ending ·"), (2, "· 2 servers, 1 ending ·")):
        servers = (replace(found.servers[0], ending=True), *([found.servers[0]] * (count - 1)))
        header._snapshot, header._daemon = snapshot, replace(found, servers=servers)
        assert said in "".join(part for part, _ in header.lines(160, 1)[0])
