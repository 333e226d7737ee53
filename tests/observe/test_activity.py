"""Windows in which launches are counted: what they come to, what watching costs, and that nothing stays attached."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from mpstui.core.activity import activity_look, launching_words, rate_text, short_rate, sparkline
from mpstui.core.model import Activity, Client, Daemon, OutsideClient, Past, ProcessKey, Server, Snapshot
from mpstui.core.trust import Speaker
from mpstui.fields import CLIENT, LAUNCHER, View
from mpstui.observe.activity import BUDGET, ActivityLog, ActivityWatch, ActivityWindow
from mpstui.observe.problems import idle_clients
from mpstui.observe.sources import LaunchReading
from tests.observe.fakes import FakeClock

A, B, C = ProcessKey(1, 10), ProcessKey(2, 20), ProcessKey(3, 30)


class FakeLaunches:
    """Counters that run with the clock while they are attached."""

    how = "a counter of the test"
    launch_seconds = 0.6e-6

    def __init__(self, clock: FakeClock, rates: dict[ProcessKey, float]) -> None:
        self.clock, self.rates = clock, rates
        self.counts: dict[ProcessKey, float] = {}
        self.attached = False
        self.at = clock()
        self.attached_seconds = 0.0
        self.closed = 0

    def _pass(self) -> None:
        passed, self.at = self.clock() - self.at, self.clock()
        if self.attached:
            self.attached_seconds += passed
            for key in self.counts:
                self.counts[key] += passed * self.rates.get(key, 0.0)

    def attach(self, keys: Collection[ProcessKey]) -> Mapping[ProcessKey, str]:
        self._pass()
        self.attached = True
        self.counts = {key: self.counts.get(key, 0.0) for key in keys if key in self.rates}
        return {key: "it has no libcuda.so mapped" for key in keys if key not in self.rates}

    def read(self) -> LaunchReading:
        self._pass()
        return LaunchReading(self.clock(), {key: int(count) for key, count in self.counts.items()})

    def detach(self) -> None:
        self._pass()
        self.attached = False

    def close(self) -> None:
        self.detach()
        self.closed += 1


class Threaded(FakeClock):
    """Also lets what a thread answers come back."""

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


def watching(rates: dict[ProcessKey, float]) -> tuple[ActivityWatch, FakeLaunches, FakeClock]:
    clock = Threaded()
    source = FakeLaunches(clock, rates)
    return (
        ActivityWatch(lambda: source, lambda: (A, B, C), clock=clock, monotonic=clock, sleep=clock.sleep),
        source,
        clock,
    )


async def settle(holds: object) -> None:
    for _ in range(100_000):
        if holds():  # type: ignore[operator]
            return
        await asyncio.sleep(0.001)
    raise AssertionError("never")


async def test_a_look_counts_for_so_long_and_detaches() -> None:
    watch, source, _clock = watching({A: 100.0, B: 0.0})
    window = await watch.look(2.0)
    assert (window.seconds, window.launches, window.how) == (2.0, {A: 200, B: 0}, source.how)
    assert window.refused == {C: "it has no libcuda.so mapped"}
    await settle(lambda: not source.attached)
    watch.close()
    await settle(lambda: source.closed == 1)


async def test_a_look_at_nobody_takes_no_time_and_attaches_nothing() -> None:
    watch = ActivityWatch(lambda: pytest.fail("a counter"), tuple, sleep=FakeClock().sleep)
    window = await watch.look(2.0)
    assert (window.seconds, window.launches, window.refused) == (0.0, {}, {})
    watch.close()


async def test_where_counting_costs_nothing_it_goes_on_and_no_launch_is_missed() -> None:
    watch, source, clock = watching({A: 1000.0, B: 0.0})
    windows: list[ActivityWindow] = []
    task = asyncio.create_task(watch.watch(windows.append))
    await settle(lambda: len(windows) > 50)
    assert source.attached
    assert source.attached_seconds == pytest.approx(clock() - 1000.0, abs=3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await settle(lambda: not source.attached)
    watch.close()


@pytest.mark.parametrize("rate", [20_000.0, 150_000.0, 208_000.0, 1e7])
async def test_the_busiest_client_loses_no_more_than_the_budget(rate: float) -> None:
    watch, source, clock = watching({A: rate, B: 10.0})
    windows: list[ActivityWindow] = []
    task = asyncio.create_task(watch.watch(windows.append))
    await settle(lambda: len(windows) > 20)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    cost = source.attached_seconds / (clock() - 1000.0) * rate * source.launch_seconds
    assert cost <= (BUDGET * 1.3 if rate < 1e6 else 0.06)  # 1e7 nobody launches: a window each two minutes is the least
    assert windows[0].launches[A] / windows[0].seconds == pytest.approx(rate, rel=0.01)
    watch.close()


async def test_a_look_while_it_is_watched_shares_the_counters() -> None:
    watch, source, _clock = watching({A: 208_000.0})
    windows: list[ActivityWindow] = []
    task = asyncio.create_task(watch.watch(windows.append))
    looked = await watch.look(1.0)
    assert looked.launches[A] == pytest.approx(208_000 * looked.seconds, rel=0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await settle(lambda: not source.attached)
    watch.close()


async def test_a_kernel_that_refuses_is_told_and_raises_nothing_in_a_look() -> None:
    def broken() -> FakeLaunches:
        raise OSError(errno.ENOTSUP, "launches are not counted on this node")

    watch = ActivityWatch(broken, lambda: (A,), sleep=FakeClock().sleep)
    assert (await watch.look(1.0)).refused == {A: "launches are not counted on this node"}
    watch.close()


def test_idle_is_told_from_the_last_launch_or_from_the_first_look() -> None:
    log = ActivityLog()
    assert log.add(ActivityWindow(100.0, 2.0, {A: 20, B: 0}, {C: "why not"})) == {
        A: Activity(10.0, (10.0,), None, True, None),
        B: Activity(0.0, (0.0,), 98.0, False, 1.0),
        C: Activity(why="why not"),
    }
    later = log.add(ActivityWindow(120.0, 2.0, {A: 0, B: 0}, {}))
    assert later[A] == Activity(0.0, (10.0, 0.0), 100.0, True, 0.1)
    assert later[B].watched == pytest.approx(4 / 22, abs=0.01)
    assert log.add(ActivityWindow(130.0, 1.0, {B: 1}, {}))[B].idle_since is None
    assert log.add(ActivityWindow(140.0, 1.0, {A: 0}, {}))[A].idle_since == 139.0, "it was forgotten meanwhile"


def test_an_idle_client_that_holds_memory_is_a_problem_after_the_threshold_alone() -> None:
    def node(activity: Activity | None, memory: int) -> list[Daemon]:
        client = Client(A, user="bob", gpu_memory={"GPU-1": memory} if memory else {}, activity=activity)
        return [Daemon(None, servers=(Server(ProcessKey(9), clients=(client,)),))]  # type: ignore[arg-type]

    idle = Activity(0.0, (0.0,), 1000.0, True, 0.08)
    (found,) = idle_clients(node(idle, 30 << 30), 2400, 3500.0)
    assert (found.code, found.severity) == ("idle", "info")
    assert found.text.startswith("Client 1 (bob) holds 30.0 GiB and has launched no kernel since ")
    assert "watched for 8% of that time" in found.text
    for activity, memory, now in (
        (idle, 30 << 30, 3000.0),
        (idle, 0, 9e9),
        (None, 1, 9e9),
        (Activity(why="x"), 1, 9e9),
    ):
        assert list(idle_clients(node(activity, memory), 2400, now)) == []


def test_a_look_has_everybody_in_the_order_of_their_launches_and_why_not() -> None:
    clients = (Client(A, user="a"), Client(B), Client(C), Client(ProcessKey(7), local=False))
    daemon = Daemon(Path("/x"), servers=(Server(ProcessKey(9), clients=clients),))
    outside = OutsideClient(ProcessKey(5), ())
    shown = Snapshot(1.0, daemons=(daemon,), outside=(outside,))
    look = activity_look(shown, 2.0, "x", {A: 30, B: 0, ProcessKey(5): 90, ProcessKey(7): 4}, {C: "why not"})
    assert [(each.pid, each.launches, each.per_second) for each in look.launchers[:3]] == [
        (5, 90, 45.0), (1, 30, 15.0), (2, 0, 0.0)
    ]  # fmt: skip
    assert [(each.pid, each.launches) for each in look.launchers[3:]] == [(3, None), (7, None)]
    assert look.launchers[3].why == "why not"
    assert "another PID namespace" in look.launchers[4].why
    assert look.sentence == "In 2.0 s 1 of 2 clients launched kernels, 1 of 1 without MPS; 2 could not be counted."
    words = [launching_words(some, "launch", "launches") for some in (look.launchers[1:2], look.launchers[:1])]
    assert words == ["1 of 1 client launches", "1 of 1 process without MPS launches"]


def test_a_share_of_all_is_rounded_once_and_says_so() -> None:
    """7.49 % was 8 %, and the shares of one look came to 102 %."""
    keys = [ProcessKey(pid) for pid in range(1, 6)]
    daemon = Daemon(Path("/x"), servers=(Server(ProcessKey(9), clients=tuple(map(Client, keys))),))
    counts = dict(zip(keys, (7_490, 20, 50_000, 42_490, 0), strict=True))
    look = activity_look(Snapshot(1.0, daemons=(daemon,)), 2.0, "x", counts, {})
    share = LAUNCHER["share"]
    shown = {each.pid: share.text(each, View()) for each in look.launchers}
    assert shown == {3: "50 %", 4: "≈42 %", 1: "≈7 %", 2: "<1 %", 5: "0 %"}
    assert [share.type.json(share.value(each, View())) for each in look.launchers] == [50.0, 42.5, 7.5, 0.0, 0.0]
    column = share.column
    for each in look.launchers:
        cells = column.width - column.gap
        assert sum(len(text) for text, _ in column.cell(each, View(), cells)) <= cells


def test_a_users_daemon_makes_no_client_of_another_users_process() -> None:
    """They stood in the list as clients of MPS, root's among them."""
    clients = tuple(Client(ProcessKey(pid, 1), uid=uid) for pid, uid in ((1, 0), (7, 1000), (8, 1001)))
    speaker = Speaker(1000, "a daemon of bob")
    server = Server(ProcessKey(5, 1), uid=1000, user="bob", clients=clients)
    daemon = Daemon(Path("/tmp/p"), key=ProcessKey(4, 1), uid=1000, user="bob", speaker=speaker, servers=(server,))
    look = activity_look(Snapshot(0.0, daemons=(daemon,)), 2.0, "", dict.fromkeys((c.key for c in clients), 5), {})
    assert [each.pid for each in look.launchers] == [7]
    assert "bob's daemon in /tmp/p names 2 processes of other users as its clients, which cannot be so" in look.sentence


@pytest.mark.parametrize("past", [None, Past("REPLAY", 0.0, 0.0, 0.0, False, 1.0, "it is past")])
def test_who_is_a_client_by_nobodys_known_word_is_not_counted(past: Past | None) -> None:
    """A plan gave each of them a share. What another user has recorded is said to be his word as a whole."""
    clients = (Client(ProcessKey(1, 1), uid=0),)
    server = Server(ProcessKey(5, 1), uid=0, clients=clients)
    speaker = Speaker(None, "its sockets and its directory belong to bob and eve", by=1000)
    daemon = Daemon(Path("/tmp/p"), key=ProcessKey(4, 1), uid=0, speaker=speaker, servers=(server,))
    look = activity_look(Snapshot(0.0, daemons=(daemon,), past=past), 2.0, "", {ProcessKey(1, 1): 5}, {}, 0)
    assert [each.pid for each in look.launchers] == ([] if past is None else [1])
    said = "claims 1 client, not counted: its owner is not known (its sockets and its directory belong to bob"
    assert (said in look.sentence) is (past is None), look


def test_rates_are_never_nothing_where_there_was_a_launch() -> None:
    assert [rate_text(rate) for rate in (None, 0.0, 0.5, 9.96, 12830.4)] == ["—", "0", "0.5", "10.0", "12,830"]
    assert sparkline((0.0, 1.0, 1000.0, 500.0), 8) == "▁▂▇▄"
    assert sparkline((1.0, 2.0, 4.0), 2) == "▄▇"
    assert sparkline((), 8) == sparkline((0.0, 0.0), 8) == ""


def test_a_narrow_column_has_the_rate_in_five_cells_and_its_sparkline_beside_it() -> None:
    rates = (None, 0.0, 0.5, 999.0, 9342.4, 9999.6, 13_721.0, 99_960.0, 273_815.0, 999_600.0, 1.24e6, 3e8)
    told = [short_rate(rate) for rate in rates]
    assert told == ["—", "0", "0.5", "999", "9,342", "10.0k", "13.7k", "100k", "274k", "1.0M", "1.2M", "300M"]
    assert max(map(len, told)) == 5
    column = next(field.column for field in CLIENT.fields if field.id == "launches_per_second")
    activity = Activity(launches_per_second=273_815.0, rates=tuple(float(n) for n in range(30)))
    for width in (column.narrow, column.width):
        (text, _), (bars, style) = column.cell(Client(A, activity=activity), View(), width)
        assert len(text + bars) == width - column.gap, (text, bars)
        assert (len(bars) >= 5, style) == (True, "meter")
        assert text.strip() == ("274k" if width == column.narrow else "273,815")
