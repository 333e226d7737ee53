"""A process is not left half started, whoever gives it up, and not left at all."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from typing import Any

import psutil
import pytest
from folders import simulated_node
from halfway import HalfStarted, start_slowly

import mpstui.api
from mpstui.commands import Filled, run
from mpstui.load.private_daemon import PrivateDaemon
from mpstui.load.supervisor import Supervisor
from mpstui.load.types import LoadSpec
from mpstui.sim.marker import control_binary
from mpstui.sim.node import SimNode
from mpstui.system import starts

_SLEEPS = ("sleep", "86399")


def own_command() -> Coroutine[Any, Any, object]:
    return run(Filled("/bin/sleep", _SLEEPS, "", ()), 86_400, lambda _: None)


def worker() -> Coroutine[Any, Any, object]:
    return Supervisor(worker_command=_SLEEPS).start(LoadSpec("fma", mps=False))


def private_daemon() -> Coroutine[Any, Any, object]:
    return PrivateDaemon(control_binary()).__aenter__()


@pytest.fixture
def half_started(monkeypatch: pytest.MonkeyPatch) -> HalfStarted:
    return start_slowly(monkeypatch)


@pytest.mark.parametrize("begin", [own_command, worker, private_daemon])
def test_what_is_given_up_half_started_starts_and_ends(begin: Any, half_started: HalfStarted) -> None:
    async def give_up() -> None:
        starting = asyncio.create_task(begin())
        await half_started.begun.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    before = {child.pid for child in psutil.Process().children()}
    asyncio.run(give_up())
    assert not half_started.cancelled
    left = [child for child in psutil.Process().children() if child.pid not in before]
    assert not psutil.wait_procs(left, timeout=120)[1]


def test_a_loop_that_is_told_to_end_twice_waits_for_them_all_the_same(half_started: HalfStarted) -> None:
    async def give_up() -> None:
        starting = asyncio.create_task(own_command())
        await half_started.begun.wait()
        ending = asyncio.create_task(starts.done())
        await asyncio.sleep(0)
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending
        starting.cancel()

    asyncio.run(give_up())
    assert not half_started.cancelled


@pytest.fixture
def simulated() -> Iterator[SimNode]:
    with simulated_node() as running:
        yield running


def test_a_watcher_that_is_not_waited_for_leaves_nothing_half_started(
    simulated: SimNode, half_started: HalfStarted
) -> None:
    """A screen waits for it some seconds at its end; then asyncio.run cancels all there is."""

    async def leave() -> None:
        collector = mpstui.api.open([simulated.pipe_dir]).unentered().live(0.0)
        await collector.start()
        await half_started.begun.wait()
        stopping = asyncio.create_task(collector.stop())
        for _ in range(10):
            await asyncio.sleep(0)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping

    asyncio.run(leave())
    assert not half_started.cancelled


_STARTING_OTHERS = """
import contextlib, os, signal, subprocess, sys, threading
import mpstui.cli

with contextlib.suppress(SystemExit):
    mpstui.cli.main(["--version"])

def start_others():
    while True:
        subprocess.run(["true"], check=True)

for _ in range(4):
    threading.Thread(target=start_others, daemon=True).start()
for _ in sys.stdin:
    os.killpg(0, signal.SIGSTOP)
os._exit(0)
"""


def test_a_stop_while_others_are_started_is_told_to_the_shell() -> None:
    """A child of vfork that is stopped before it has become its program holds the thread that waits for it, and with
    it the whole stop: of 40 stops 11 came to nobody's ears, and no ``fg`` brought the program back."""
    with subprocess.Popen(
        [sys.executable, "-c", _STARTING_OTHERS],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        bufsize=1,
        start_new_session=True,
    ) as program:
        try:
            for number in range(30):
                print(file=program.stdin)
                until = time.monotonic() + 60
                while not (told := os.waitid(os.P_PID, program.pid, os.WSTOPPED | os.WEXITED | os.WNOHANG)):
                    assert time.monotonic() < until, f"stop {number} is told to nobody"
                    time.sleep(0.002)
                assert told.si_code == os.CLD_STOPPED
                os.killpg(program.pid, signal.SIGCONT)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
