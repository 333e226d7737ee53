"""What the scripts for a GPU machine do without one: end what they started, and judge what they measured."""

from __future__ import annotations

import itertools
import math
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from terminal import until

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
sys.path.insert(0, str(SCRIPTS / "gpu"))
import slices  # noqa: E402

STARTER = """
import subprocess, sys
sys.path.insert(0, sys.argv[1])
from ending import nothing_left
with nothing_left():
    child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    try:
        print(child.pid, flush=True)
        sys.stdin.read()
    finally:
        print("on the way out", flush=True)
"""


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, None])
def test_what_a_script_started_ends_with_it_however_it_ends(end: signal.Signals | None) -> None:
    script = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(SCRIPTS / "gpu")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert script.stdout is not None
    child = int(script.stdout.readline())
    try:
        assert _lives(child)
        if end is not None:
            script.send_signal(end)
        said, _ = script.communicate(timeout=120)
        assert script.returncode == {None: 0, signal.SIGKILL: -signal.SIGKILL}.get(end, 128 + int(end or 0))
        assert ("on the way out" in said) == (end != signal.SIGKILL)
        until(lambda: not _lives(child), 120, "the process of its own session is gone")
    finally:
        if _lives(child):
            os.kill(child, signal.SIGKILL)


def test_a_way_out_that_does_not_end_is_cut_off() -> None:
    stuck = STARTER.replace('print("on the way out", flush=True)', "threading.Event().wait()")
    script = subprocess.Popen(
        [sys.executable, "-c", "import threading" + stuck, str(SCRIPTS / "gpu")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "GPU_SCRIPT_GRACE": "1"},
    )
    assert script.stdout is not None
    child = int(script.stdout.readline())
    try:
        script.send_signal(signal.SIGTERM)
        script.communicate(timeout=120)
        assert script.returncode == -signal.SIGALRM
        until(lambda: not _lives(child), 120, "the process of its own session is gone")
    finally:
        if _lives(child):
            os.kill(child, signal.SIGKILL)


WAITS_ON_ITS_WAY_OUT = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from ending import nothing_left, run_to_its_end

async def main():
    last = asyncio.get_running_loop().create_future()

    closing = asyncio.Event()

    async def listens():
        await closing.wait()
        last.set_result("the last word")

    task = asyncio.create_task(listens())
    try:
        print("at work", flush=True)
        await asyncio.Event().wait()
    finally:
        closing.set()
        print(await last, flush=True)

with nothing_left():
    run_to_its_end(main())
"""


@pytest.mark.slow
def test_a_script_hears_the_last_word_of_those_it_ends() -> None:
    """A signal that left the loop cancelled who was to say it: the script stood until it was cut off."""
    script = subprocess.Popen(
        [sys.executable, "-c", WAITS_ON_ITS_WAY_OUT, str(SCRIPTS / "gpu")], stdout=subprocess.PIPE, text=True
    )
    assert script.stdout is not None
    assert script.stdout.readline() == "at work\n"
    script.send_signal(signal.SIGTERM)
    said, _ = script.communicate(timeout=120)
    assert (said, script.returncode) == ("the last word\n", 128 + signal.SIGTERM)


def test_every_script_for_a_gpu_machine_leaves_nothing() -> None:
    scripts = [path for path in SCRIPTS.glob("gpu-*") if b"python" in path.read_bytes().splitlines()[0]]
    assert len(scripts) > 5
    assert [path.name for path in scripts if "with nothing_left()" not in path.read_text()] == []
    assert [path.name for path in scripts if "asyncio.run(" in path.read_text()] == []


def _traced(lost: float, windows: list[tuple[float, float]], seconds: float = 72.0) -> tuple[list[float], list[float]]:
    """A client on a machine that becomes faster and slower by a tenth as it likes, and loses so much in each window."""
    chance, times, done, total, drift = random.Random(4), [], [], 0.0, 0.0
    for number in range(int(seconds / 0.005)):
        times.append(100.0 + 0.005 * number)
        done.append(total)
        drift = 0.999 * drift + chance.gauss(0, 0.002)
        inside = any(begin <= times[-1] < end for begin, end in windows)
        rate = 280_000 * (1 + 0.05 * math.sin(number / 1700) + drift) * (1 - lost * inside)
        total += 0.005 * max(0.0, rate)
    return times, done


@pytest.mark.parametrize("lost", [0.12, 0.0, 0.4])
def test_what_watching_costs_is_told_from_the_noise_of_the_machine(lost: float) -> None:
    windows = [(101.0 + 8.4 * number, 101.7 + 8.4 * number) for number in range(9)]
    times, done = _traced(lost, windows)
    rates = [(b - a) / 0.005 for a, b in itertools.pairwise(done[::400])]
    assert max(rates) / min(rates) > 1.1  # turns of some seconds differ by more than what is to be seen
    found = slices.pairs(times, done, windows, windows)
    cost = slices.average(found, windows)
    assert cost is not None
    assert len(found.lost) >= 7
    truth = 100 * lost * 0.7 / 8.4
    assert cost["low"] <= truth + 0.05
    assert cost["high"] >= truth - 0.05
    assert cost["high"] - cost["low"] < 0.8
    assert abs(cost["percent"] - truth) < 0.25
    nobody = slices.pairs(times, done, slices.between(windows), windows)
    assert len(nobody.lost) >= 7
    assert abs(nobody.data()["median"]) < 2


def test_windows_at_the_edges_and_beside_others_are_no_pairs_and_few_are_no_average() -> None:
    windows = [(100.1, 100.8), (110.0, 110.7), (111.0, 111.7), (130.0, 130.7)]
    times, done = _traced(0.1, windows)
    found = slices.pairs(times, done, windows, windows)
    assert len(found.lost) == 1
    assert slices.average(found, windows) is None
    assert found.data()["low"] is None


@pytest.mark.parametrize(("count", "low"), [(6, 0), (9, 1), (20, 5)])
def test_the_interval_of_a_median_is_that_of_the_sign_test(count: int, low: int) -> None:
    assert slices.median_interval(list(range(count))) == (low, count - 1 - low)
