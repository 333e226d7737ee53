"""The worker's pool and loop on a device without hardware."""

from __future__ import annotations

import math
import struct
from typing import Any, cast

import pytest

from mpstui.load.driver import CudaError
from mpstui.load.worker import KernelWorker, explain
from mpstui.load.workloads import ContextShare, NBody, Triad, sphere

from .fakes import MIB, Ended, FakeChannel, FakeDriver, order


def work(driver: FakeDriver, channel: FakeChannel, **values: Any) -> KernelWorker:
    """Run a worker to its end."""
    worker = KernelWorker(cast(Any, driver), cast(Any, channel), order(**values))
    with pytest.raises(Ended):
        worker.run()
    return worker


def stop_after(looks: int) -> FakeChannel:
    def script(channel: FakeChannel) -> None:
        channel.stopping = channel.looks >= looks

    return FakeChannel(script)


@pytest.mark.parametrize("kernel", ["fma", "triad", "nbody", "small"])
def test_a_kernel_runs_until_stopped_and_gives_everything_back(kernel: str) -> None:
    driver, channel = FakeDriver(), stop_after(5)
    work(driver, channel, kernel=kernel)
    assert driver.launched
    assert not driver.contexts
    assert not driver.blocks
    [ready], [end] = channel.of("ready"), channel.of("end")
    assert ready["sms"] == 132
    assert end["done"] > 0
    assert end["launches"] <= len(driver.launched)


def test_an_amount_is_done_and_no_more_than_a_launch_above_it() -> None:
    driver, channel = FakeDriver(), FakeChannel()
    work(driver, channel, kernel="small", amount=100.0)
    assert channel.of("end")[0]["done"] == 100.0
    assert len(driver.launched) == 100


def test_the_pool_has_the_levels_that_the_hardware_rounds_to() -> None:
    driver, channel = FakeDriver(), stop_after(1)
    work(driver, channel, kernel="fma", pool=(1, 8, 33, 34, 132))
    [ready] = channel.of("ready")
    assert ready["levels"] == [8, 34, 132]
    assert [entry["sms"] for entry in ready["pool"]] == [132, 8, 34]
    assert ready["sms"] == 132


def test_a_share_moves_at_the_next_launch_with_its_memory() -> None:
    def script(channel: FakeChannel) -> None:
        if channel.looks == 5:
            channel.commands.append({"type": "share", "sms": 10, "asked": 0.0})
        channel.stopping = bool(channel.of("report")) and channel.looks > 10

    driver, channel = FakeDriver(), FakeChannel(script)
    worker = work(driver, channel, kernel="triad", pool=(8, 66, 132))
    contexts = [context for _, _, context in driver.launched]
    assert contexts == sorted(contexts), "back and forth"
    assert len(set(contexts)) == 2
    assert worker.share is not None
    assert worker.share.sms == 8
    first = channel.of("report")[0]
    assert first["sms"] == 8
    assert first["switch_seconds"] > 0
    assert not driver.blocks


def test_a_pool_ends_where_the_device_takes_no_more_contexts() -> None:
    channel = stop_after(1)
    work(FakeDriver(contexts=2), channel, kernel="fma", pool=(8, 66, 132))
    assert channel.of("ready")[0]["levels"] == [8, 132]
    assert "no more clients" in channel.of("note")[0]["note"]


def test_a_pool_leaves_memory_for_the_others() -> None:
    channel = stop_after(1)
    work(FakeDriver(memory=1000 * MIB, context_size=400 * MIB), channel, kernel="fma", pool=(8, 66, 132))
    assert channel.of("ready")[0]["levels"] == [132]
    assert "memory" in channel.of("note")[0]["note"]


def test_without_affinity_there_is_one_level_and_a_word_about_it() -> None:
    channel = stop_after(1)
    work(FakeDriver(affinity=False), channel, kernel="fma", pool=(8, 132), sms=8)
    [ready] = channel.of("ready")
    assert ready["levels"] == [132]
    assert ready["affinity"] is False
    assert "restarts" in channel.of("note")[0]["note"]


def test_the_memory_filler_ends_at_its_limit_and_says_which_error_it_got() -> None:
    def script(channel: FakeChannel) -> None:
        channel.stopping = bool(channel.of("note"))

    driver, channel = FakeDriver(memory=1100 * MIB), FakeChannel(script)
    work(driver, channel, kernel="memory")
    assert channel.of("end")[0]["done"] == 1000 * MIB
    assert "refused after 1,000 MiB: CUDA error 2: out of device memory" in channel.of("note")[0]["note"]


def test_the_endless_kernel_ends_on_request() -> None:
    driver, channel = FakeDriver(), stop_after(2)
    work(driver, channel, kernel="endless")
    assert driver.word.value == 1, "the kernel was told to end"
    assert not driver.contexts


def test_the_illegal_store_comes_when_asked_for() -> None:
    def script(channel: FakeChannel) -> None:
        if channel.looks == 3:
            channel.commands.append({"type": "fault"})

    worker = KernelWorker(cast(Any, FakeDriver()), cast(Any, FakeChannel(script)), order("illegal"))
    with pytest.raises(CudaError) as raised:
        worker.run()
    assert raised.value.code == 700


def test_a_limit_too_small_for_a_context_is_told_as_such() -> None:
    driver = FakeDriver(memory=50 * MIB)
    asked = order("fma", memory_limited=True)
    worker = KernelWorker(cast(Any, driver), cast(Any, FakeChannel()), asked)
    with pytest.raises(CudaError) as raised:
        worker.run()
    said = explain(raised.value, asked, bool(worker.shares))
    assert "too small for a context" in said.text
    assert said.code == 2
    assert "too small" not in explain(raised.value, asked, True).text


def test_arrays_of_the_triad_fit_into_the_budget() -> None:
    driver = FakeDriver(memory=700 * MIB)
    driver.create_context(None)
    load = Triad(cast(Any, driver), budget=600 * MIB)
    load.enter(ContextShare(1, 132, {"triad": ("triad", 1)}))
    assert load.memory == 600 * MIB
    assert load.launch() == 600 * MIB
    load.leave()
    assert driver.free_bytes == 600 * MIB


def test_every_body_is_accelerated_once_a_step() -> None:
    driver = FakeDriver()
    driver.create_context(None)
    load = NBody(cast(Any, driver), bodies=4096)
    load.enter(ContextShare(1, 6, {name: (name, 1) for name in ("accelerate", "advance")}))
    done = [load.launch() for _ in range(2)]
    assert sum(done) == 4096.0 * 4096
    assert [name for name, _, _ in driver.launched] == ["accelerate", "accelerate", "advance"]
    assert sum(blocks for name, blocks, _ in driver.launched if name == "accelerate") == 4096 // NBody.TILE


def test_the_sphere_is_one_and_the_same_each_time() -> None:
    bodies = list(struct.iter_unpack("<4f", sphere(500)))
    assert sphere(500) == sphere(500)
    assert all(math.hypot(x, y, z) <= 1.001 for x, y, z, _ in bodies)
    assert math.isclose(sum(mass for *_, mass in bodies), 1.0, rel_tol=1e-5)
