"""Nodes of older drivers: what a daemon does not know is asked once in its life, and everything else goes on."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path

import pytest

from mpstui.control.drivers import COMMANDS, absent_from
from mpstui.operations.rescue import left_out, targets
from mpstui.sim.node import SimNode
from mpstui.sim.simd.config import SIM_DRIVER
from tests.observe.test_simulated import Watched


def unknown(node: SimNode) -> Counter[str]:
    """How often the daemon has said that it does not know a command."""
    return Counter(re.findall(r'Unknown command "(\w+)"', (node.log_dir / "control.log").read_text()))


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["470.256.02", "535.261.03", "555.58.02"])
@pytest.mark.parametrize("gpus", [1, 2])
async def test_each_is_asked_once_by_all_who_watch_it(
    driver: str, gpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SIM_DRIVER, driver)
    node = await asyncio.to_thread(lambda: SimNode.start(tmp_path / "node", gpus=gpus))
    lacks = absent_from(driver)
    try:
        first = Watched(node)
        await first.collector.start()
        await first.spawn("busy")
        daemon = await first.until(
            lambda d: (
                [client.command for client in d.clients() if client.command]
                and d.lacks == lacks
                and d.default_active_thread_percentage is not None
                and len(d.ordinals) == (1 if gpus == 1 else 0)  # with one device its ordinal needs no telling
            )
        )
        assert daemon.driver == driver
        assert daemon.lacking("device_query") == f"not in driver {driver[:3]}"
        assert daemon.lacking("get_server_list") is None
        before = unknown(node)
        assert set(before) <= lacks & COMMANDS
        assert set(before.values()) <= {1}
        again = await first.spawn("busy")
        await first.until(lambda d: len(list(d.clients())) == 2)
        again.tell("exit")
        await first.until(lambda d: len(list(d.clients())) == 1)
        await first.collector.stop()
        for _ in range(2):  # another program, and yet another
            second = Watched(node)
            snapshot = await second.collector.once()
            assert snapshot.daemons[0].lacks == lacks
            assert snapshot.daemons[0].default_active_thread_percentage == 100.0
            await second.collector.stop()
        told = unknown(node)
        assert "device_query" in told
        assert set(told.values()) == {1}, told
    finally:
        await asyncio.to_thread(node.stop)


async def test_a_fault_that_no_command_can_bear_out_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SIM_DRIVER, "535.261.03")
    node = await asyncio.to_thread(lambda: SimNode.start(tmp_path / "node", gpus=1))
    try:
        watched = Watched(node)
        await watched.collector.start()
        client = await watched.spawn("idle")
        await watched.until(lambda d: [c for c in d.clients() if c.contexts])
        client.tell("fault")
        daemon = await watched.until(lambda d: d.servers and d.servers[0].fault)
        assert not daemon.servers[0].fault.confirmed
        (problem,) = [p for p in watched.collector.snapshot.problems if p.code == "fault"]
        assert "get_server_status, which would confirm it, is not in driver 535" in problem.remedy
        assert "not in driver 535" in (left_out("end_lost_clients", daemon) or "")
        assert targets("end_lost_clients", daemon) == ()
        await watched.collector.stop()
    finally:
        await asyncio.to_thread(node.stop)
