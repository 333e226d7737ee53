"""``mpstui activity`` on the simulated node, and launches that are watched there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mpstui.config import load_config
from mpstui.core.activity import activity_look
from mpstui.core.model import Condition, Daemon, Health, Snapshot
from mpstui.fields import CLIENT, View, lay_out
from mpstui.node import open_node
from mpstui.observe.watcher import NodeWatcher
from mpstui.sim.node import SimNode

from .conftest import Mpstui
from .test_schema import check


def test_a_look_says_who_launches_and_that_it_is_simulated(node: SimNode, mpstui: Mpstui) -> None:
    busy, idle = node.spawn("busy", user="alice"), node.spawn("idle", user="bob")
    told = mpstui("activity", "--seconds", "0.3", "--json", "--pipe-dir", node.pipe_dir)
    assert told.status == 0, told
    check("activity", told.json)
    assert "SIMULATED" in told.json["how"]
    rows = {row["pid"]: row for row in told.json["processes"]}
    assert rows[busy.pid]["launches_per_second"] > 100
    assert rows[busy.pid]["share"] == 100.0
    assert rows[idle.pid]["launches_per_second"] == 0
    text = mpstui("activity", "--seconds", "0.3", "--pipe-dir", node.pipe_dir).out
    assert text.startswith("SIMULATED")
    assert "Launches are not SM time" in text
    for client in (busy, idle):
        client.tell("exit")


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "1e9", "inf", "x"])
def test_a_time_that_cannot_be_is_refused(mpstui: Mpstui, seconds: str) -> None:
    told = mpstui("activity", f"--seconds={seconds}", "--demo")
    assert told.status == 2
    assert "0.1 to 600 seconds" in told.err


def test_without_a_daemon_that_is_the_answer(mpstui: Mpstui, tmp_path: Path) -> None:
    told = mpstui("activity", "--json", "--pipe-dir", tmp_path)
    assert told.status == 3
    check("activity", told.json)
    assert told.json["processes"] == []
    for where in (tmp_path, tmp_path / "none"):
        text = mpstui("activity", "--pipe-dir", where)
        assert (text.status, text.out) == (3, "")
        assert f"No daemon to ask: {where} is absent: {where} " in text.err


def test_what_a_look_cannot_know_it_does_not_deny() -> None:
    def said(*daemons: Daemon, nvml: str | None = None) -> str:
        return activity_look(Snapshot(0.0, daemons=daemons, nvml_detail=nvml), 2.0, "", {}, {}).sentence

    def daemon(health: Health, **more: float) -> Daemon:
        return Daemon(Path("/run/mps"), condition=Condition(health, detail="why.", **more))

    well = daemon("ok", answered_at=1.0)
    assert said(well) == "There is no client, and nobody computes without MPS."
    assert said(well, nvml="no NVML") == "Who computes without MPS is not known: no NVML."
    assert said() == "No MPS daemon runs here, so that there is no client to count."
    assert said(daemon("stale")) == "No daemon to ask: /run/mps is stale: why."
    assert said(well, daemon("stale")) == said(well)
    for health in ("held", "blocked"):
        assert said(well, daemon(health)) == f"The clients are not known: /run/mps is {health}: why."


async def test_watched_launches_come_into_the_snapshot_with_a_column_and_an_idle_problem(own_node: SimNode) -> None:
    busy, idle = own_node.spawn("busy", user="alice"), own_node.spawn("idle", user="bob")
    sources, dirs = open_node((own_node.pipe_dir,))
    collector = NodeWatcher(dirs, sources, refresh=0.2)
    seen: asyncio.Queue[Snapshot] = asyncio.Queue()
    collector.subscribe(seen.put_nowait)
    await collector.start()
    try:
        first = await asyncio.wait_for(seen.get(), 120)
        assert not first.watches_activity
        assert "launches_per_second" not in columns(first)
        collector.watch_activity(idle_after=0.1)
        while True:
            shown = await asyncio.wait_for(seen.get(), 120)
            clients = {client.pid: client for daemon in shown.daemons for client in daemon.clients()}
            if {busy.pid, idle.pid} <= clients.keys() and all(
                client.activity and client.activity.rates for client in clients.values()
            ):
                break
        assert clients[busy.pid].activity.launches_per_second > 100
        assert clients[busy.pid].activity.idle_since is None
        assert clients[idle.pid].activity.launches_per_second == 0
        assert clients[idle.pid].activity.idle_since is not None
        assert "launches_per_second" in columns(shown)
        problems = [problem for problem in shown.problems if problem.code == "idle"]
        assert [problem.subject for problem in problems] == [f"client {idle.pid}"]
        details = " ".join(
            fact.text for _, _, facts in CLIENT.details(clients[idle.pid], View.of(shown)) for fact in facts
        )
        assert "when it was first watched" in details
    finally:
        await collector.stop()
        for client in (busy, idle):
            client.tell("exit")


def columns(snapshot: Snapshot) -> list[str]:
    return [each.id for each, _ in lay_out(CLIENT, View.of(snapshot), 200, 3, stretch=False)]


def test_the_configuration_asks_for_it_and_says_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    assert not load_config(path)[0].activity
    path.write_text("activity = true\nidle_minutes = 40\n")
    config, messages = load_config(path)
    assert (config.activity, config.idle_minutes, messages) == (True, 40.0, [])
    path.write_text('activity = "yes"\nidle_minutes = -1\n')
    config, messages = load_config(path)
    assert (config.activity, config.idle_minutes) == (False, 0.0)
    assert len(messages) == 2
    assert not config.read_only
