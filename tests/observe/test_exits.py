"""The end of a process is told at once and once, and of the watched ones alone."""

from __future__ import annotations

import asyncio
import os
import subprocess

import pytest

from mpstui.core.model import ProcessKey
from mpstui.observe.discovery import Place
from mpstui.system.procfs import Exits
from tests.observe.fakes import Node


@pytest.fixture
def sleeper():
    process = subprocess.Popen(["sleep", "300"])
    yield process
    process.kill()
    process.wait()


def has_ended(process) -> None:
    """Waits for its end and leaves it unreaped."""
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_the_end_of_a_process_is_told_once_though_nobody_has_reaped_it(sleeper):
    ended = asyncio.Event()
    told = []
    exits = Exits(lambda: (told.append(1), ended.set()))
    exits.watch({sleeper.pid})
    sleeper.kill()
    await asyncio.wait_for(ended.wait(), 120)
    for _ in range(3):
        exits.watch({sleeper.pid})
        await asyncio.sleep(0)
    assert told == [1]
    exits.close()


async def test_who_is_watched_no_more_is_not_told_of_and_no_descriptor_stays(sleeper):
    before = descriptors()
    told = []
    exits = Exits(lambda: told.append(1))
    exits.watch({sleeper.pid})
    exits.watch({sleeper.pid})
    assert descriptors() == before + 1
    exits.watch(())
    assert descriptors() == before
    sleeper.kill()
    has_ended(sleeper)
    await asyncio.sleep(0)
    assert told == []


async def test_what_cannot_be_watched_is_left_alone(monkeypatch):
    exits = Exits(lambda: None)
    exits.watch({-1, 0, 2**31 - 1, 2**80})
    monkeypatch.delattr(os, "pidfd_open")
    before = descriptors()
    exits.watch({os.getpid()})
    assert descriptors() == before
    exits.close()


@pytest.mark.parametrize("under_way", [False, True])
async def test_a_killed_daemon_is_noticed_before_the_next_reading(tmp_path, sleeper, under_way):
    node = Node(tmp_path)
    node.place = node.place._replace(daemon=ProcessKey(sleeper.pid, 1))
    node.processes.living = {sleeper.pid, 634}
    await node.collector.start()
    await node.settled()
    await node.until(lambda: node.daemon.health == "ok" and node.daemon.user == "alice")
    sleeper.kill()
    has_ended(sleeper)
    if under_way:  # a reading that has been to /proc before
        reading = asyncio.get_running_loop().create_future()
        node.collector._jobs["facts"] = asyncio.ensure_future(reading)
        await asyncio.sleep(0)
        reading.set_result(None)
    node.processes.living = {634}
    node.place = Place(tmp_path, "stale", tmp_path, None, detail="its files were left behind")
    begin = node.clock.now
    await node.until(lambda: node.daemon.health == "stale")
    assert node.clock.now - begin < 0.5
    await node.collector.stop()
