"""The screen of the static partitions, on a simulated daemon with them and on snapshots that lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from ui.screen import make_app as plain_app
from ui.screen import text_of, until
from ui.snapshots import GPU0, rich

from mpstui.core.model import Chunks, PartitionTable, SmPartition
from mpstui.ui.partitions.screen import PartitionsScreen

from .fakes import applied, opened, press, served, text_in, typed


@pytest.fixture
def folder() -> Iterator[Path]:
    with served("static") as place:
        yield place


@pytest.mark.slow
async def test_one_is_added_and_removed_by_keys(folder: Path) -> None:
    collector, app = opened(folder)

    def table() -> PartitionTable | None:
        return collector.snapshot.daemons[0].partitions if collector.snapshot and collector.snapshot.daemons else None

    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: table() is not None and len(list(collector.snapshot.daemons[0].clients())) == 4)
        await press(pilot, "P")
        assert isinstance(app.screen, PartitionsScreen)
        await until(pilot, lambda: "3 of 15 chunks free" in text_of(app))
        text = text_of(app)
        assert "111111122223···" in text
        assert "7 of 15 chunks free" in text
        assert "free, " not in text, "SMs that are in no chunk are no free ones"
        who = [str(client.pid) for client in collector.snapshot.daemons[0].clients()]
        assert all(pid in text for pid in who)
        await press(pilot, "j", "x")
        assert "clients compute in it" in text_of(app), "one in use is refused, and its clients are named"
        await press(pilot, "escape", "k", "S")
        await typed(pilot, "16 sm")
        await applied(pilot)
        assert "2 chunks, 16 SMs" in text_in(app, "#outcome")
        assert "export CUDA_MPS_SM_PARTITION=" in text_in(app, "#outcome")
        await press(pilot, "escape")
        await until(pilot, lambda: "1 of 15 chunks free" in text_of(app))
        await press(pilot, *"jjj", "x")
        await applied(pilot)
        assert "is gone" in text_in(app, "#outcome")
        await press(pilot, "escape")
        await until(pilot, lambda: "2 of 15 chunks free" in text_of(app))


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (40, 10)])
async def test_a_table_that_lies_is_shown_as_it_is(size: tuple[int, int]) -> None:
    odd = PartitionTable(
        (Chunks(GPU0, 0, 4000, None, 7), Chunks("GPU-x", 3, 0)),
        (SmPartition(GPU0, "a" * 128), SmPartition(GPU0, "b", 4000, 99999, True), SmPartition("GPU-none", "c", 1, 8)),
        ("what is this",),
    )
    snapshot = rich()
    daemon = replace(snapshot.daemons[0], static_partitioning=True, partitions=odd)
    app = plain_app(replace(snapshot, daemons=(daemon, *snapshot.daemons[1:])))
    async with app.run_test(size=size) as pilot:
        await pilot.press("P")
        await pilot.press("j", "j", "y", "j")
        assert "S Add" in text_of(app) or size[0] < 80
        if size[0] >= 120:
            assert "not understood: what is this" in text_of(app)


async def test_a_daemon_without_them_says_so() -> None:
    app = plain_app(rich())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("P", "y")
        assert isinstance(app.screen, PartitionsScreen)
        assert "mpstui daemon start --static" in text_of(app)
