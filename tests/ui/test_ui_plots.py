"""The history of the devices: what is kept, for how long, in how much memory, and what is drawn of it."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from mpstui.core.activity import Trends, sparkline
from mpstui.core.model import Activity, Client, Past, Snapshot
from mpstui.fields import CLIENT, View, lay_out
from mpstui.ui.panels.devices import metrics_of
from mpstui.ui.plots import DeviceHistory, begin, rows_of, spark

from .screen import make_app, push, text_of
from .snapshots import GIB, GPU0, NOW, client, daemon, device, one_daemon

START = 1_800_000_000.0


def at(seconds: float, sm: float | None, **changes) -> object:
    made = replace(device(0, 3), sm_utilization=sm, **changes)
    return replace(one_daemon(), time=START + seconds, devices=(made,))


@pytest.mark.slow
def test_an_hour_is_kept_in_bounded_memory() -> None:
    history = DeviceHistory()
    made = device(0, 3)
    for second in range(4 * 3600):
        shown = replace(made, sm_utilization=second / 144)
        history.take(Snapshot(START + second, devices=(shown,)))
    known = history._devices[GPU0]
    assert len(known.fine) + len(known.coarse) + len(known.gathered) <= 700
    assert sum(map(len, known.coarse)) <= 36_000, "bytes"
    now = START + 4 * 3600
    values = [reading.sm_utilization for reading in history.columns(GPU0, 3600, 60, now)]
    assert values == sorted(values)
    assert values[0] == pytest.approx(3 * 3600 / 144, abs=1)
    assert values[-1] == pytest.approx(100, abs=1)


def test_a_cell_does_not_change_once_it_is_shown_and_what_was_not_read_is_empty() -> None:
    history = DeviceHistory()
    for second in (0, 1, 2, 30, 31):
        history.take(at(second, 50.0))
    columns = history.columns(GPU0, 60, 60, START + 40)
    assert [n for n, reading in enumerate(columns) if reading is not None] == [20, 21, 22, 50, 51]
    later = history.columns(GPU0, 60, 60, START + 40.7)
    assert later == columns, "nothing moves between two cells"
    assert history.columns("GPU-none", 60, 5, START) == [None] * 5


@pytest.mark.parametrize(("cells", "every"), [(74, 1.0), (74, 1.05), (121, 1.0), (74, 5.0)])
def test_a_cell_between_two_readings_is_not_empty(cells: int, every: float) -> None:
    """There are more cells than readings; what is empty was not read."""
    history, times = DeviceHistory(), [number * every for number in range(int(90 / every))]
    for second in times:
        history.take(at(second, second))
    now = START + times[-1]
    columns = history.columns(GPU0, 60, cells, now)
    assert None not in columns
    values = [reading.sm_utilization for reading in columns if reading]
    assert values == sorted(values), "the earlier one of two"
    history.take(at(times[-1] + every, 91.0))
    later = history.columns(GPU0, 60, cells, now + every)
    over = round((begin(60, cells, now + every) - begin(60, cells, now)) * cells / 60)
    assert later[: cells - over] == columns[over:], "none changes once it is shown"
    history.take(at(times[-1] + every + 20, 50.0))
    late = history.columns(GPU0, 60, cells, now + every + 20)
    assert late.count(None) > 14 / 60 * cells, "a gap stays one"


@pytest.mark.slow
def test_a_cell_between_two_that_are_kept_as_ten_seconds_is_not_empty() -> None:
    history = DeviceHistory()
    for second in range(1000):
        if not 500 <= second < 600:
            history.take(at(second, 50.0))
    columns = history.columns(GPU0, 900, 150, START + 999)
    empty = [number for number, reading in enumerate(columns) if reading is None]
    assert 15 <= len(empty) <= 18, "of 100 s"
    assert empty == list(range(empty[0], empty[-1] + 1))


@pytest.mark.slow
def test_the_largest_is_that_of_the_readings_also_after_a_while_and_of_what_came_in_between() -> None:
    history = DeviceHistory()
    for second in range(400):
        history.take(at(second, 90.0 if second == 7 else 50.0, power_watts=None))
    history.take(at(399.5, 95.0))
    for seconds, since, largest in ((3600, 0, 95.0), (3600, 100, 95.0), (300, 100, 95.0)):
        most = history.most(GPU0, seconds, START + since)
        assert most is not None
        assert most.sm_utilization == largest
    history.take(at(400.5, None, power_watts=None))
    most = history.most(GPU0, 3600, START + 400)
    assert most is not None
    assert (most.sm_utilization, most.power) == (None, None), "not known"
    assert history.most(GPU0, 60, START + 500) is None
    early = DeviceHistory()
    for second in range(40):
        early.take(at(second, 90.0 if second == 7 else 50.0))
    most = early.most(GPU0, 3600, START)
    assert most is not None
    assert most.sm_utilization == 90.0, "of ten seconds that are kept as one"


@pytest.mark.parametrize(
    ("watts", "limit", "drawn"),
    [(71.0, 700.0, "▁"), (71.0, None, "▂"), (650.0, 700.0, "▇"), (650.0, None, "▇"), (40.0, 70.0, "▄")],
)
def test_what_an_idle_gpu_draws_is_held_against_its_power_limit(watts, limit, drawn) -> None:
    """Where that is not known, against 300 W, or the most that was drawn."""
    plots = {plot.field: plot for plot in metrics_of(device(0, 3, power_limit_watts=limit))}
    assert spark([watts], plots["power"].full(watts)) == [drawn]
    clients = plots["clients"]
    assert [spark([count], clients.full(count)) for count in (1.0, 9.0)] == [["▁"], ["▇"]], "one client is few"


@pytest.mark.slow
async def test_in_the_past_the_plots_end_with_the_time_of_the_header() -> None:
    shown = Past("PAST", START + 122.0, START, START + 500, playing=False, speed=1.0, why="it is over")
    app = make_app(at(0, 10.0))
    async with app.run_test(size=(200, 60)) as pilot:
        app.past = SimpleNamespace(earlier=[at(second, 20.0) for second in range(122)])
        text = await push(pilot, replace(at(122, 100.0), past=shown))
        clock = time.strftime("%H:%M:%S", time.localtime(START + 122))
        assert f" {clock} " in next(line for line in text.splitlines() if "PAST" in line)
        (axis,) = [line for line in text.splitlines() if "5 min before" in line]
        assert clock in axis
        last = app.history.columns(GPU0, 60, 60, START + 122, over=False)[-1]
        assert last is not None
        assert last.sm_utilization == 100.0, "what was read then is drawn"


def test_gpu_util_is_no_sm_activity_and_what_is_not_known_is_none() -> None:
    history = DeviceHistory()
    history.take(at(0, None, gpu_utilization=77.0, power_watts=None, memory_used=None))
    (reading,) = [each for each in history.columns(GPU0, 60, 60, START + 5) if each]
    assert (reading.sm_utilization, reading.gpu_utilization) == (None, 77.0)
    assert (reading.memory, reading.power) == (None, None)
    assert reading.clients == sum(GPU0 in client.device_uuids for client in one_daemon().daemons[0].clients())


@pytest.mark.parametrize(
    ("values", "top", "drawn"),
    [
        ([0, 50, 100], 100.0, "▁▄▇"),
        ([None, 5, 10], None, " ▄▇"),
        ([0, 0], None, "▁▁"),
        ([200], 100.0, "▇"),
        ([], None, ""),
    ],
)
def test_blocks(values, top, drawn) -> None:
    assert spark(values, top) == [drawn]


def test_taller_blocks_say_the_same_in_finer_steps() -> None:
    assert spark([0, 25, 50, 75, 100, None], 100.0, 3) == ["   ▂▇ ", "  ▄██ ", "▁▆███ "]
    assert spark([0, 100], 100.0, 2) == [" ▇", "▁█"]
    for rows in (1, 2, 5):
        assert [len(line) for line in spark([1, None, 3], None, rows)] == [3] * rows
    assert [rows_of(lines) for lines in (0, 1, 4, 7, 12)] == [
        [0, 0, 0, 0],
        [1, 0, 0, 0],
        [1, 1, 1, 1],
        [2, 2, 2, 1],
        [3, 3, 3, 3],
    ]


@pytest.mark.slow
async def test_where_there_is_room_the_history_is_shown_and_its_length_chosen(monkeypatch) -> None:
    app = make_app(at(0, 10.0))
    async with app.run_test(size=(200, 60)) as pilot:
        for second in range(1, 120):
            app.history.take(at(second, float(second % 100)))
        text = await push(pilot, at(121, 40.0))
        assert "5 min" in text
        assert " max 99 %" in text, "the largest reading"
        for label in ("power", "clients"):
            assert label in text
        assert "█" in text
        await pilot.press("1", "minus")
        await pilot.pause()
        assert "- + 1 min" in text_of(app)
        await pilot.press("plus", "plus", "plus", "plus", "plus")
        await pilot.pause()
        assert "- + 1 h" in text_of(app)
        drawn, columns = [], app.history.columns
        monkeypatch.setattr(app.history, "columns", lambda *of, **more: (drawn.append(of), columns(*of, **more))[1])
        for seconds, sm, times in (
            (121.3, 41.0, 0),
            (122.0, 99.0, 0),
            (122.2, 99.7, 1),
            (123.0, 99.6, 1),
            (721, 1.0, 2),
        ):
            text = await push(pilot, at(seconds, sm))
            assert len(drawn) == times, "what does not move is not drawn anew"
            assert f" max {99 if seconds <= 122 else 100} %" in text, "never below the present reading"
        await pilot.press("4")
        await pilot.pause()
        panel = app.overview.devices
        shown = list(panel._lines)
        await push(pilot, at(722, 2.0))
        others = [y for y, line in enumerate(panel._lines) if line is not shown[y]]
        assert 0 < len(others) <= 6 < len(shown) - 6, "lines of plots that have not moved are not gone through again"


@pytest.mark.slow
async def test_the_largest_stays_when_ten_seconds_that_began_before_the_cell_are_kept_as_one() -> None:
    app = make_app(at(0, 10.0))
    async with app.run_test(size=(200, 60)) as pilot:
        await pilot.press("1", *["plus"] * 5)
        await push(pilot, at(0, 10.0))
        drawn = app.overview.devices._plotted[GPU0][0]
        step = drawn.window / drawn.cells
        cell = next(end for n in range(1000) if 3 < (end := drawn.since + 3600 + n * step) % 10 < 7)
        for second, sm in ((-2.0, 10.0), (0.1, 10.0), (1.5, 90.0), (10.0, 10.0), (11.0, 10.0)):
            text = await push(pilot, at(cell + second - START, sm))
            assert f" max {10 if second < 1 else 90} %" in text


async def test_on_a_small_screen_the_history_is_there_where_the_devices_are_zoomed() -> None:
    app = make_app(replace(one_daemon(), time=NOW))
    async with app.run_test(size=(80, 24)) as pilot:
        assert "clients  " not in text_of(app).split("PID")[0].split("\n", 1)[1]
        await pilot.press("1", "z")
        await pilot.pause()
        text = text_of(app)
        assert text.count("power") == 2
        times = [line.split() for line in text.splitlines() if "min ago" in line]
        assert times == [["time", "5", "min", "ago", "now", "-", "+"]] * 2, "which time it is, where no frame says so"
        await pilot.press("minus")
        await pilot.pause()
        assert "1 min ago" in text_of(app)
        await pilot.press("z", "2")
        await pilot.pause()
        (head,) = [line for line in text_of(app).splitlines() if "MEMORY/DEVICE" in line]
        assert head.split() == ["²", "LIMITS", "THREADS", "⟳old", "MEMORY/DEVICE", "PRIORITY", "⟳", "2"], (
            "no heading goes"
        )


def test_what_a_client_had_is_kept_by_tens_of_seconds_and_not_for_ever() -> None:
    trends, one, two = Trends(), client(0, cpu_percent=50.0), client(1, gpu_memory={}, cpu_percent=None)
    trends.take(0.0, [one, two])
    trends.take(9.0, [client(0, cpu_percent=99.0)])
    assert (trends.cpu(one.key, 9), trends.cpu(two.key, 9), trends.memory(two.key, 9)) == ("▄", "", "")
    for at in range(1, 200):
        trends.take(at * 10.0, [client(0, gpu_memory={GPU0: at << 20})])
    assert len(trends.memory(one.key, 99)) == 60
    assert trends.memory(one.key, 3) == "▃▃▃", "200 MiB, of which a full bar is a GiB at least"
    trends.take(1e6, (one,), 80 << 30)
    assert trends.memory(one.key, 1) == "▂", "of the largest device"
    assert (len(trends._of), len(trends._drawn)) == (1, 1), "who has ended is forgotten"
    assert sparkline([None, 0.0, 50.0, 100.0, 1.0], 9, 100.0) == " ▁▄▇▂"
    assert sparkline([25.0], 9, 100.0) == "▃"
    assert sparkline([None, 0.0], 9, 100.0) == " ▁", "known to be nothing"
    assert sparkline([None, 0.0], 9) == ""


def test_bars_of_the_rows_have_one_scale() -> None:
    """Of memory it is the largest device; of CPU and launches the most that any client has. Each by itself was full."""
    many = [
        client(0, gpu_memory={GPU0: 10 * GIB}, cpu_percent=50.0, activity=Activity(rates=(100.0, 9000.0))),
        client(1, gpu_memory={GPU0: 40 * GIB}, cpu_percent=400.0, activity=Activity(rates=(900.0,))),
        client(2, gpu_memory={GPU0: 80 * GIB}, pinned_mem_limits={"0": 80 * GIB}, cpu_percent=200.0),
    ]
    trends = Trends()
    trends.take(0.0, many, 80 * GIB)
    view = replace(View.of(one_daemon(), daemon(ordinals={"0": GPU0})), trends=trends)

    def bars(name: str, each: Client) -> str:
        return "".join(text for text, style in CLIENT[name].cell(each, view, 40) if style.startswith("meter")).strip()

    assert [bars("gpu_memory", each) for each in many] == ["▂", "▄", "▇"]
    assert [bars("cpu_percent", each) for each in many] == ["▂", "▇", "▄"]
    assert [bars("launches_per_second", each) for each in many[:2]] == ["▂▇", "▂"]
    trends.take(10.0, many[:1])
    assert trends.memory(many[0].key, 1) == "▇", "the size of the devices is not known"


@pytest.mark.parametrize(("width", "shown"), [(120, False), (160, True), (200, True)])
def test_where_there_is_room_the_rows_show_what_was_before(width: int, shown: bool) -> None:
    trends, one = Trends(), client(0, gpu_memory={GPU0: 2 << 30}, cpu_percent=50.0)
    for at, size in enumerate((1, 2, 4)):
        trends.take(at * 10.0, [client(0, gpu_memory={GPU0: size << 30}, cpu_percent=25.0 * size)])
    view = replace(View.of(one_daemon(), daemon()), trends=trends)
    columns = {each.id: room for each, room in lay_out(CLIENT, view, width - 2, 3, stretch=True)}
    assert len(columns) == 9 + 2 * shown + (width == 200), "no column goes for it"
    assert ("where" in columns) is (width == 200)
    for name, bars in (("gpu_memory", "▃▄▇"), ("cpu_percent", "▃▄▇")):
        line = CLIENT[name].cell(one, view, columns[name])
        assert (bars in "".join(text for text, _ in line)) is shown, name
    other = CLIENT["cpu_percent"].cell(client(1, cpu_percent=None), view, columns["cpu_percent"])
    assert other == (("—", "plain"),)
