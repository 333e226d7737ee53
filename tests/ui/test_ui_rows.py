"""What the rows of the panels say of faults, limits and memory."""

from __future__ import annotations

import re
import time
import unicodedata
from dataclasses import replace

import pytest

from mpstui.core.model import Event, OldLimit, ServerFault, Snapshot
from mpstui.fields import Shown

from .screen import make_app, push, text_of
from .snapshots import GIB, GPU0, GPU1, NOW, PIPE, client, daemon, rich, server

LARGE = (160, 48)


def node(*series, **changes) -> Snapshot:
    return rich(daemons=(daemon(servers=(server(clients=series, **changes),)),))


def line_of(app, pid: int) -> str:
    """The row of the clients' table."""
    return next(line for line in text_of(app).splitlines() if re.match(rf"│?[▸ ] +{pid} ", line))


async def test_a_fault_on_devices_named_by_ordinal_leaves_the_pids_as_they_are() -> None:
    detail = "fatal GPU fault on server devices 0, 1; clients 29150, 20556 lost"
    event = Event("fatal_fault", NOW - 1, PIPE, 1402, devices=("0", "1"), detail=detail, raw="fault")
    app = make_app(replace(node(client(0)), events=(event,)))
    async with app.run_test(size=LARGE):
        assert detail in text_of(app)


async def test_clients_that_a_fault_hit_are_lost_and_no_longer_green() -> None:
    hit, unhurt = client(0), client(3)
    app = make_app(node(hit, unhurt, status="FAULT", fault=ServerFault(NOW - 5, (hit.pid,), (hit.key,))))
    async with app.run_test(size=LARGE):
        assert "✕ LOST" in line_of(app, hit.pid)
        assert "● ACTIVE" in line_of(app, unhurt.pid)
        table = app.overview.clients
        for columns in ([Shown("pid")], [Shown("user"), Shown("command")]):  # where no column has a word for it
            table.choose_columns(columns)
            signs = {row.pid: "".join(text for text, _ in table.row_lines(row, 70)[0])[2] for row in table.rows}
            assert signs == {hit.pid: "✕", unhurt.pid: " "}
        table.group("server", [str(row.server_pid) for row in table.rows])
        label = "".join(text for text, _ in table.row_lines(table.rows[0], 70)[0])
        assert label[2:].startswith("✕[+] server"), "where their rows are folded away, too"


@pytest.mark.parametrize("size", [LARGE, (120, 40), (80, 24)])
async def test_the_mark_stands_at_the_limit_that_is_old(size) -> None:
    """A memory limit alone is no old share: the mark says which of the two the client keeps."""
    threads = OldLimit("active_thread_percentage", 100.0, 50.0)
    memory = OldLimit("pinned_mem_limits", 16 * GIB, 4 * GIB, "0")
    full = {"gpu_memory": {GPU0: int(15.8 * GIB)}, "pinned_mem_limits": {"0": 16 * GIB}}
    app = make_app(
        node(
            client(0, old_limits=(threads,)),
            client(3, old_limits=(memory,), **full),
            client(6, old_limits=(threads, memory), **full),
            client(9),
        )
    )
    async with app.run_test(size=size):
        text = text_of(app)
        heading = next(line for line in text.splitlines() if "THREADS" in line and " PID" in line)
        assert "THREADS ⟳old" in heading
        assert re.search("LIMIT ⟳(old)? ", heading), "the word where there is room for both"
        start, end = heading.index("THREADS"), heading.index("THREADS") + 18
        marks = [
            [start <= at for at, sign in enumerate(line_of(app, 2000 + 7 * number)) if sign == "⟳"]
            for number in (0, 3, 6, 9)
        ]
        assert marks == [[True], [False], [False, True], []]
        for number in (3, 6):
            row = line_of(app, 2000 + 7 * number)
            assert "▲" in row
            assert "…" not in row[:end], "neither the limit nor a mark is cut"


@pytest.mark.parametrize("size", [LARGE, (80, 24)])
async def test_a_share_with_a_digit_after_the_point_stands_below_the_others(size) -> None:
    shares = {0: (100.0, 132, False), 3: (33.3, 42, False), 6: (10.0, 12, False), 9: (100.0, 132, True)}
    rows = [
        client(number, active_thread_percentage=share, sm_count=sms, sm_count_estimated=estimated)
        for number, (share, sms, estimated) in shares.items()
    ]
    app = make_app(node(*rows))
    async with app.run_test(size=size):
        lines = [line_of(app, 2000 + 7 * number) for number in shares]
        assert len({line.index("%") for line in lines}) == 1, lines
        assert all("SM" in line for line in lines)


async def test_memory_on_several_devices_is_the_sum_and_how_full_the_fullest_is() -> None:
    both = client(0, gpu_memory={GPU0: 2 * GIB, GPU1: 2 * GIB}, pinned_mem_limits={"0": 20 * GIB, "1": 4 * GIB})
    app = make_app(node(both))
    async with app.run_test(size=LARGE):
        assert "4.0 GiB GPU1 50 %" in line_of(app, both.pid)


async def test_a_client_that_was_there_before_the_fault_is_lost_with_it() -> None:
    hit = client(0)
    app = make_app(node(hit))
    async with app.run_test(size=LARGE) as pilot:
        assert "● ACTIVE" in line_of(app, hit.pid)
        app.collector.push(node(hit, status="FAULT", fault=ServerFault(NOW, (hit.pid,), (hit.key,))))
        await pilot.pause()
        assert "✕ LOST" in line_of(app, hit.pid)


@pytest.mark.parametrize("size", [LARGE, (80, 24), (60, 15)])
async def test_outdated_limits_are_marked_at_every_size(size) -> None:
    app = make_app(node(client(0, old_limits=(OldLimit("active_thread_percentage", 100.0, 50.0),)), client(5)))
    async with app.run_test(size=size) as pilot:
        assert line_of(app, 2000).count("⟳") == 1
        assert "⟳" not in line_of(app, 2035)
        assert size[0] < 80 or "THREADS ⟳old " in text_of(app), "a sign alone says nothing"
        app.collector.push(node(client(0), client(5)))
        await pilot.pause()
        assert "old" not in next(line for line in text_of(app).splitlines() if "PID" in line)


async def test_the_container_is_told_from_the_command() -> None:
    app = make_app(node(client(0, container="embed", command="python embed.py")))
    async with app.run_test(size=(180, 48)):
        assert "[embed] python embed.py" in text_of(app)


async def test_that_there_are_no_readings_is_said_once() -> None:
    app = make_app(replace(node(), devices=(), nvml_detail="no device readings: NVML sees no device"))
    async with app.run_test(size=LARGE):
        assert "no readings: NVML sees no device" in text_of(app)


def clock(event: Event) -> str:
    return time.strftime("%H:%M:%S  ·", time.localtime(event.time))


@pytest.mark.slow
async def test_events_move_by_several_rows_at_a_time_and_the_newest_is_always_there() -> None:
    """Each move writes all rows of the panel again, over a slow line too."""
    told = [Event("client_connected", NOW + n, PIPE, raw=f"{n}") for n in range(200)]
    app = make_app(replace(node(client(0)), events=tuple(told[:100])))
    async with app.run_test(size=LARGE) as pilot:
        panel = app.overview.log_panel
        room = panel._rows_fit
        assert room >= 10
        assert panel.rows[panel._top] is told[100 - room], "it is full to begin with"
        moves, tops = 0, [told[100 - room]]
        for end in range(101, 160):
            shown = told[end - 100 : end] if end > 120 else told[:end]  # from then on the oldest are dropped
            text = await push(pilot, replace(node(client(0)), events=tuple(shown)))
            top = panel.rows[panel._top]
            moves += top is not tops[-1]
            tops.append(top)
            last = panel.rows[-1]
            assert last is told[end - 1]
            assert clock(last) in text
            assert 0 <= room - (len(panel.rows) - panel._top) <= panel.spare
        assert 59 // (panel.spare + 1) <= moves <= 59 // (panel.spare + 1) + 1
        assert panel.spare == room // 5
        panel.action_edge(-1)
        text = await push(pilot, replace(node(client(0)), events=tuple(told[60:161])))
        assert panel._top == 0
        assert clock(told[160]) not in text, "whoever looks at old ones is left there"


@pytest.mark.slow
async def test_where_panels_have_no_room_the_line_of_the_events_says_their_keys() -> None:
    app = make_app(rich())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        line = next(line for line in text_of(app).splitlines() if "⁵Events" in line)
        assert "2 Limits  3 Servers  a Activity  T Back in time" in line
        await pilot.press("2")
        await pilot.press("5")
        await pilot.pause()
        line = next(line for line in text_of(app).splitlines() if "⁵Events" in line)
        assert "Limits" not in line, "it is there"
        assert "3 Servers" in line
    app = make_app(rich())
    async with app.run_test(size=LARGE) as pilot:
        await pilot.pause()
        assert "Back in time" not in next(line for line in text_of(app).splitlines() if "⁵Events" in line)


async def test_where_a_window_cuts_a_line_a_mark_stays_with_its_letter() -> None:
    """The marks of a letter in a command were drawn over the frame of the dialog that lay beside it."""
    odd = "e\u0301\u0302" * 40 + "a\u0308日e\u0301" * 20
    app = make_app(rich(daemons=(daemon(servers=(server(clients=(client(0, command=odd),)),)),)))
    async with app.run_test(size=(160, 48)):
        clients = app.overview.clients
        (line,) = [each for each in clients.render_lines(clients.size.region) if "\u0301" in each.text]
        assert line.cell_length == clients.size.width
        for at in range(line.cell_length):
            left, right = line.crop(0, at), line.crop(at)
            assert not unicodedata.combining(right.text[0]), at
            wide = left.text + right.text != line.text  # a wide letter that is cut is two blanks
            assert not wide or (left.text[-1], right.text[0]) == (" ", " "), at
