"""Kernels in several streams, and copies around them: what the worker enqueues, and what the driver is called with."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mpstui.load import worker as worker_module
from mpstui.load.client import client_environment
from mpstui.load.driver import Arguments, CudaDriver, CudaError
from mpstui.load.worker import KernelWorker, explain

from .fakes import MIB, FakeChannel, FakeDriver, order
from .test_worker import stop_after, work

KERNELS = {"accelerate", "advance", "fma_chains", "triad", "tick"}


def kernels(driver: FakeDriver) -> list[tuple[str, int]]:
    return [entry for entry in driver.enqueued if entry[0] in KERNELS]


@pytest.mark.parametrize("kernel", ["fma", "triad", "nbody", "small"])
def test_each_stream_has_launches_one_after_the_other_and_an_event_behind_them(kernel: str) -> None:
    driver, channel = FakeDriver(), stop_after(6)
    work(driver, channel, kernel=kernel, streams=4)
    own = [number for number, (context, _) in driver.streams.items() if context]
    assert len(own) == 4
    assert {driver.streams[number] for number in own} == {(1, False)}, "none waits for the default stream"
    assert {stream for _, stream in kernels(driver)} == set(own)
    order = [stream for _, stream in driver.enqueued[: driver.enqueued.index(("event", own[-1]))]]
    assert order[: -len(own)] == sorted(order[: -len(own)]), "depth first: all of a stream, then the next one's"
    assert [stream for what, stream in driver.enqueued if what == "event"][:4] == own
    assert channel.of("end")[0]["launches"] > 0
    assert not driver.blocks


def test_streams_belong_to_each_context_of_the_pool() -> None:
    def script(channel: FakeChannel) -> None:
        if channel.looks == 4:
            channel.commands.append({"type": "share", "sms": 8})
        channel.stopping = channel.looks > 12

    driver = FakeDriver()
    work(driver, FakeChannel(script), kernel="small", streams=3, pool=(8, 132))
    assert len(driver.streams) == 2 + 2 * 3
    assert len({stream for _, stream in kernels(driver)}) == 6


@pytest.mark.parametrize(("name", "handle"), [("legacy", 0), ("per-thread", 2)])
def test_a_launch_in_the_default_stream_comes_behind_each_stream(name: str, handle: int) -> None:
    driver, channel = FakeDriver(), stop_after(3)
    work(driver, channel, kernel="small", streams=2, default_stream=name)
    first, second = (number for number, (context, _) in driver.streams.items() if context)
    assert driver.streams[first][1], "a blocking stream: only those wait for the legacy one"
    assert [stream for _, stream in kernels(driver)[:4]] == [first, handle, second, handle]
    assert channel.of("end")[0]["done"] == sum(stream != handle for _, stream in kernels(driver)), "it does no work"


@pytest.mark.parametrize("streams", [None, 2])
def test_each_launch_has_a_copy_before_and_after_it_in_its_stream(streams: int | None) -> None:
    driver, channel = FakeDriver(), stop_after(8)
    work(driver, channel, kernel="fma", streams=streams, copies=3 * MIB)
    by_stream: dict[int, list[str]] = {}
    for what, stream in driver.enqueued:
        if what != "event":
            by_stream.setdefault(stream, []).append(what)
    assert len(by_stream) == (streams or 1)
    for said in by_stream.values():
        assert said == ["in", "fma_chains", "out"] * (len(said) // 3)
    last = channel.of("report")[-1]
    assert last["copied"] == 2 * 3 * MIB * last["launches"] > 0
    assert max(report["memory"] for report in channel.of("report")) >= (streams or 1) * 3 * MIB
    assert not driver.hosts, "the pinned memory is given back"
    assert not driver.blocks


def test_step_by_step_all_streams_get_their_data_before_the_first_kernel() -> None:
    driver, channel = FakeDriver(), stop_after(8)
    work(driver, channel, kernel="fma", streams=2, copies=MIB, by_step=True)
    first, second = (number for number, (context, _) in driver.streams.items() if context)
    launched = [entry for entry in driver.enqueued if entry[0] != "event"]
    once = [(what, stream) for what in ("in", "fma_chains", "out") for stream in (first, second)]
    assert launched == once * (len(launched) // 6)
    last = channel.of("report")[-1]
    assert last["copied"] == 2 * MIB * last["launches"] > 0


def test_a_stream_gets_the_priority_that_was_asked_for_and_requests_go_there() -> None:
    driver, channel = FakeDriver(), stop_after(300)
    work(driver, channel, kernel="fma", busy=100.0, stream_priority=-3)
    (own,) = (number for number, (context, _) in driver.streams.items() if context)
    assert driver.priorities == {own: -3}
    assert {stream for what, stream in driver.enqueued if what == "fma_chains"} == {own}


def test_a_request_is_copied_in_and_its_answer_out() -> None:
    driver, channel = FakeDriver(), stop_after(300)
    work(driver, channel, kernel="small", copies=MIB, busy=100.0)
    assert [what for what, _ in driver.enqueued[:4]] == ["in", "tick", "out", "event"]
    assert channel.of("report")[-1]["copied"] > 0


def test_no_room_for_pinned_memory_is_told_as_such() -> None:
    class Full(FakeDriver):
        def pinned(self, size: int) -> int:
            raise CudaError(2, "CUDA_ERROR_OUT_OF_MEMORY", "cuMemHostAlloc")

    asked = order("fma", copies=MIB)
    with pytest.raises(CudaError) as raised:
        KernelWorker(cast(Any, Full()), cast(Any, FakeChannel()), asked).run()
    said = explain(raised.value, asked, has_context=True)
    assert said.text == "CUDA error 2: no pinned memory of the host (cuMemHostAlloc)"
    assert "/dev/shm" in said.remedy


def test_steps_make_a_small_grid_last(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    launch = FakeDriver.launch

    def watch(
        self: FakeDriver, function: Any, blocks: int, threads: int, arguments: Arguments, stream: int = 0
    ) -> None:
        seen.append(arguments.values[1].value or 0)
        launch(self, function, blocks, threads, arguments, stream)

    monkeypatch.setattr(FakeDriver, "launch", watch)
    work(FakeDriver(), stop_after(2), kernel="small", steps=200_000)
    work(FakeDriver(), stop_after(2), kernel="small")
    assert {seen[0], seen[-1]} == {200_000, 256}


def test_after_a_change_of_share_the_latency_is_of_what_came_since(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of its own: a request takes 2 ms on all SMs and 40 ms on few, and within a second that is told."""
    clock = SimpleNamespace(now=100.0)
    asked: list[float] = []

    class Slow(FakeDriver):
        def wait(self, event: object) -> None:
            super().wait(event)
            clock.now += 0.040 if self.contexts[self.current] == 8 else 0.002

    def script(channel: FakeChannel) -> None:
        if not asked and clock.now >= 108.0:
            asked.append(clock.now)
            channel.commands.append({"type": "share", "sms": 8})
        channel.stopping = clock.now >= 110.0

    channel = FakeChannel(script)
    monkeypatch.setattr(worker_module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    work(Slow(), channel, kernel="fma", pool=(8, 132), busy=100.0)
    reports = channel.of("report")
    before = [report for report in reports if report["time"] <= asked[0]]
    after = [report for report in reports if asked[0] < report["time"] <= asked[0] + 1.0 and report["sms"] == 8]
    assert before[-1]["latency_p99"] == pytest.approx(0.002)
    assert after[0]["latency_p50"] == after[0]["latency_p99"] == pytest.approx(0.040)
    assert after[0]["time"] - asked[0] < 0.2
    assert after[1]["figure"] < before[-1]["figure"] / 10


SIGNATURES: dict[str, tuple[type, ...]] = {
    "cuStreamCreate": (int,),
    "cuMemHostAlloc": (int, int),
    "cuMemFreeHost": (int,),
    "cuMemcpyHtoDAsync": (int, int, int, int),
    "cuMemcpyDtoHAsync": (int, int, int, int),
    "cuEventRecord": (int, int),
    "cuLaunchKernel": (int, *(int,) * 10),
}
"""As cuda-bindings 12.8 and 13.5 have them."""


def test_the_driver_is_called_as_the_bindings_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, tuple[int, ...]]] = []

    def function(name: str) -> Any:
        def call(*values: int) -> tuple[int, int]:
            assert tuple(map(type, values)) == SIGNATURES[name], name
            said.append((name, values))
            return (0, 77)

        return call

    bindings = SimpleNamespace(
        cuInit=lambda _flags: (0,),
        cuDriverGetVersion=lambda: (0, 12080),
        cuDeviceGet=lambda _number: (0, 0),
        **{name: function(name) for name in SIGNATURES},
    )
    monkeypatch.setattr("mpstui.load.driver.importlib.import_module", lambda _name: bindings)
    driver = CudaDriver()
    assert driver.stream() == 77
    assert driver.stream(blocking=True) == 77
    host = driver.pinned(4096)
    driver.copy_in(0x10, host, 4096, 9)
    driver.copy_out(host, 0x10, 4096, 9)
    driver.free_pinned(host)
    driver.record(5, 9)
    arguments = Arguments(ctypes.c_int(1))
    driver.launch(5, 2, 64, arguments, 9)
    assert said == [
        ("cuStreamCreate", (1,)),  # CU_STREAM_NON_BLOCKING
        ("cuStreamCreate", (0,)),
        ("cuMemHostAlloc", (4096, 1)),  # CU_MEMHOSTALLOC_PORTABLE
        ("cuMemcpyHtoDAsync", (0x10, 77, 4096, 9)),
        ("cuMemcpyDtoHAsync", (77, 0x10, 4096, 9)),
        ("cuMemFreeHost", (77,)),
        ("cuEventRecord", (5, 9)),
        ("cuLaunchKernel", (5, 2, 1, 1, 64, 1, 1, 0, 9, arguments.address, 0)),
    ]


def test_the_queues_of_a_client_are_what_was_asked_for_and_never_inherited() -> None:
    base = {"CUDA_DEVICE_MAX_CONNECTIONS": "4"}
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in client_environment(base, pipe_dir=None)
    for place in (None, "/pipe"):
        assert client_environment(base, pipe_dir=place, connections=1)["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
