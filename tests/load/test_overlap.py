"""The experiments ``streams`` and ``copies``, and what simulated clients make of streams and copies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mpstui.cli import experiment, load
from mpstui.load import measure, overlap
from mpstui.load.measure import ExperimentError, Lab
from mpstui.load.overlap import Taken, copies, copies_verdict, streams, streams_verdict
from mpstui.load.types import LoadSpec, WorkerReport
from mpstui.observe.sources import NodeSources
from mpstui.sim.load import launch_seconds, streamed, with_copies
from mpstui.sim.node import SimNode

from .fakes import MIB, order
from .test_cli import parse, run, sources

__all__ = ["sources"]


class Bench:
    """Stands for the device: what each client of a situation does in each of three windows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rates: Any) -> None:
        self.said: list[str] = []
        self.specs: list[LoadSpec] = []

        @asynccontextmanager
        async def running(lab: Lab, spec: LoadSpec) -> Any:
            self.specs.append(spec)
            yield self, list(range(spec.clients))

        async def windows(lab: Lab, supervisor: Any, workers: Sequence[int], label: str) -> list[list[float]]:
            rate = rates(self.specs[-1])
            if rate is None:
                raise ExperimentError("CUDA error 2: out of device memory")
            return [[rate * wave for wave in (0.999, 1.0, 1.001)] for _ in workers]

        monkeypatch.setattr(overlap, "running", running)
        monkeypatch.setattr(overlap, "windows", windows)
        self.lab = Lab(lambda: None, Path("/x"), self.said.append, repeats=3)  # type: ignore[arg-type, return-value]

    def report(self, worker: int) -> WorkerReport:
        return WorkerReport(worker, "fma", "running", 0.0, running_seconds=2.0, copied=4_000_000_000)


def hyper_q(spec: LoadSpec) -> float | None:
    """As a device with 8 queues that knows no time slices of less than all."""
    if spec.clients > 1:
        return 100.0 if spec.mps else 100.0 / spec.clients
    side_by_side = 1 if spec.default_stream == "legacy" else min(spec.streams or 1, spec.connections or 8)
    return 100.0 * side_by_side


async def test_streams_processes_queues_and_the_default_stream_each_have_their_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(monkeypatch, hyper_q)
    outcome = await streams(bench.lab)
    assert outcome.verdict == (
        "32 streams of one process compared with one stream: ×8.00. 32 processes with MPS compared with as many "
        "without it: ×32.00. 32 streams, by CUDA_DEVICE_MAX_CONNECTIONS: no difference seen with 1, ×8.00 with 8, "
        "×32.00 with 32. 32 streams with launches in the default stream between them: no difference seen in the "
        "legacy one, ×8.00 in the per-thread one."
    )
    rows = {row[0]: row[1:] for row in outcome.rows}
    assert rows["1 stream"] == ("100.0 (99.9–100.1)", "×1.00")
    assert rows["16 processes, MPS off"][1] == "×1.00"
    assert rows["16 processes, MPS on"][1] == "×16.00"
    assert len(rows) == len(outcome.data) == len(bench.said) == 15
    assert "15 of 15" in bench.said[-1]
    assert {spec.steps for spec in bench.specs} == {overlap.STEPS}
    assert all(spec.clients == 1 or spec.streams is None for spec in bench.specs)


async def test_what_a_device_has_no_room_for_leaves_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, lambda spec: None if spec.clients == 4 and not spec.mps else hyper_q(spec))
    outcome = await streams(bench.lab, (1, 4))
    assert "with MPS compared with as many without it: not measured." in outcome.verdict
    assert ("4 processes, MPS off", "—", "—") in outcome.rows
    assert outcome.notes[-1] == "4 processes, MPS off could not be measured: CUDA error 2: out of device memory"
    gone = next(entry for entry in outcome.data if entry["error"])
    assert (gone["totals"], "median" in gone) == ([], False)
    with pytest.raises(ExperimentError, match="out of device memory"):
        await streams(Bench(monkeypatch, lambda _: None).lab)
    with pytest.raises(ExperimentError, match="nothing beside it"):
        await streams(bench.lab, (1,))


async def test_copies_in_turn_and_overlapped_by_one_process_and_by_several(monkeypatch: pytest.MonkeyPatch) -> None:
    def rate(spec: LoadSpec) -> float:
        assert spec.copies == 32 * MIB
        one = 20.0 if spec.streams else 10.0
        return one / spec.clients * (1.5 if spec.mps else 1.0)

    outcome = await copies(Bench(monkeypatch, rate).lab)
    assert outcome.verdict == (
        "One process, overlapped, compared with in turn: ×2.00. Step by step over all streams compared with one "
        "stream after the other: no difference seen. 4 processes, in turn, with MPS compared with no MPS: ×1.50. "
        "4 processes, overlapped, with MPS compared with no MPS: ×1.50."
    )
    rows = {row[0]: row[1:] for row in outcome.rows}
    assert rows["1 process, in turn"] == ("10.0", "2.0", "×1.00")
    assert rows["4 processes, overlapped, MPS on"] == ("30.0", "8.0", "×3.00")
    assert len(outcome.notes) == 2
    alone = await copies(Bench(monkeypatch, rate).lab, (1,))
    assert alone.verdict.startswith("One process, overlapped, compared with in turn: ×2.00. Step by step")
    assert [entry["by_step"] for entry in alone.data] == [False, False, True]


def test_a_difference_counts_where_the_windows_are_apart_alone() -> None:
    labels = ["1 stream", "4 streams", "4 processes, MPS off", "4 processes, MPS on", "4 streams, 1 connection"]
    labels += ["4 streams, 8 connections", "4 streams, 32 connections"]
    labels += [f"4 streams, {name} default stream between" for name in ("legacy", "per-thread")]
    noisy = dict.fromkeys(labels, Taken((10.0, 30.0)))
    assert "×" not in streams_verdict(noisy, 4)
    assert streams_verdict(noisy, 4).count("no difference seen") == 7
    once = {overlap.IN_TURN: Taken((10.0,)), overlap.OVERLAPPED: Taken((20.0,))}
    once[overlap.BY_STEP] = Taken((20.0,))
    assert "×" not in copies_verdict(once, 0)
    assert copies_verdict(once, 0).count("no difference seen") == 2


async def test_windows_last_longer_where_many_processes_report_late(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    state = {"over": False}

    def report(worker: int) -> WorkerReport:
        done = len(slept) * 10.0
        kind: Any = "ended" if state["over"] else "running"
        return WorkerReport(worker, "small", kind, float(len(slept)), unit="launches/s", done=done)

    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        for callback in told:
            callback(report(1))

    def subscribe(callback: Any) -> Any:
        told.append(callback)
        return lambda: None

    supervisor: Any = SimpleNamespace(subscribe=subscribe, report=report)
    monkeypatch.setattr(measure.asyncio, "sleep", sleep)
    lab = Lab(lambda: supervisor, Path("/x"), print, repeats=3)
    assert await measure.windows(lab, supervisor, [1]) == [[10.0, 10.0, 10.0]]
    assert len(slept) == 7, "as late as the sixth report came"
    slept.clear()
    state["over"] = True
    with pytest.raises(ExperimentError, match="too seldom"):
        await measure.windows(lab, supervisor, [1])
    assert len(slept) == 2, "nobody is waited for who has ended"


@pytest.mark.slow
async def test_copies_run_on_the_simulated_node(
    sources: NodeSources, node: SimNode, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("copies", "--clients", "1", "--repeats", "1", "--seconds", "0.3", "--json")
    assert await run(experiment, sources, node, *words) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["verdict"].startswith(
        "SIMULATED: One process, overlapped, compared with in turn: no difference seen."
    )
    in_turn, overlapped, by_step = (entry["median"] for entry in result["data"])
    assert min(overlapped, by_step) > 1.5 * in_turn
    assert [use["situation"] for use in result["utilisation"]] == [overlap.IN_TURN, overlap.OVERLAPPED, overlap.BY_STEP]


# Simulated clients.


@pytest.mark.parametrize(
    ("asked", "queues", "side_by_side"),
    [
        ({}, 8, 1),
        ({"streams": 4}, 8, 4),
        ({"streams": 32}, 8, 8),
        ({"streams": 32}, 1, 1),
        ({"streams": 32}, 32, 32),
        ({"streams": 32, "default_stream": "legacy"}, 32, 1),
        ({"streams": 32, "default_stream": "per-thread"}, 32, 32),
    ],
)
def test_simulated_streams_run_side_by_side_as_far_as_there_are_queues(
    asked: dict[str, Any], queues: int, side_by_side: int
) -> None:
    assert streamed(order("small", **asked), queues) == side_by_side


def test_simulated_copies_take_turns_in_one_stream_and_overlap_in_several() -> None:
    size = int(1.2e-3 * 50e9)  # as long on its way as a launch of fma lasts
    alone = 57.4e12
    assert with_copies(order("fma"), alone, 1) == alone
    assert with_copies(order("fma", copies=size), alone, 1) == pytest.approx(alone / 3, rel=0.01)
    assert with_copies(order("fma", copies=size, streams=4), alone, 1) == pytest.approx(alone, rel=0.01)
    assert with_copies(order("fma", copies=size, streams=4), alone, 4) == pytest.approx(alone / 4, rel=0.01)
    assert launch_seconds(order("small")) < 1e-5 < launch_seconds(order("small", steps=200_000)) < 1e-3


# From the command line.


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("endless", "--streams", "4"), "endless has no streams and no copies to choose"),
        (("memory", "--copies", "--pinned-mem-limit", "1G"), "memory has no streams and no copies to choose"),
        (("fma", "--streams", "4", "--busy", "50"), "requests are served one after the other, in one stream"),
        (("fma", "--default-stream", "legacy"), "--default-stream is for launches behind those of other streams"),
        (("fma", "--steps", "1000"), "fma has no steps to choose"),
    ],
)
async def test_what_does_not_fit_together_is_refused(
    sources: NodeSources, node: SimNode, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert await run(load, sources, node, *words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [("--streams", "0"), ("--streams", "129"), ("--copies", "2G"), ("--copies", "fma"), ("--copies", "0M"),
              ("--device-max-connections", "33"), ("--steps", "-1"), ("--default-stream", "x")]
)  # fmt: skip
def test_values_that_nothing_takes_are_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(load, "small", *words)
    assert "error:" in capsys.readouterr().err


@pytest.mark.slow
async def test_streams_and_copies_of_a_load_reach_its_clients_and_are_told(
    sources: NodeSources, node: SimNode, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("fma", "--streams", "4", "--copies", "--seconds", "0.5", "--mps", "off")
    assert await run(load, sources, node, *words) == 0
    said = capsys.readouterr().out
    assert "copied GB/s" in said
    assert "copied: 32.0 MiB to the device before each launch and back after it" in said
    words = ("small", "--steps", "200000", "--streams", "32", "--device-max-connections", "1", "--seconds", "0.4")
    assert await run(load, sources, node, *words, "--json") == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["workers"][0]["copied_bytes"] is None
    assert last["total"] == pytest.approx(1 / (200_000 * 2.2e-9), rel=0.05), "one queue: one at a time"
