"""The experiments on clients that serve requests: shares beyond the device, and priorities."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mpstui.cli import experiment
from mpstui.load import experiments
from mpstui.load.experiments import ExperimentResult, oversubscribe, priority
from mpstui.load.measure import Lab
from mpstui.load.types import KernelName, LoadSpec, WorkerReport
from mpstui.load.utilisation import Use
from mpstui.observe.sources import NodeSources
from mpstui.sim.node import SimNode

from .test_cli import run, sources

__all__ = ["sources"]


def lab(said: list[str]) -> Lab:
    return Lab(lambda: None, Path("/x"), said.append, repeats=3)  # type: ignore[arg-type, return-value]


def report(figure: float, p50: float, p99: float) -> WorkerReport:
    return WorkerReport(1, "fma", "running", 0.0, figure=figure, latency_p50=p50, latency_p99=p99)


def stand_in(
    monkeypatch: pytest.MonkeyPatch, measured: Callable[[int, Sequence[LoadSpec]], list[WorkerReport]]
) -> list[tuple[LoadSpec, ...]]:
    asked: list[tuple[LoadSpec, ...]] = []

    async def served(lab: Lab, *specs: LoadSpec, label: str = "") -> list[WorkerReport]:
        asked.append(specs)
        return measured(len(asked), specs)

    monkeypatch.setattr(experiments, "served", served)
    return asked


async def test_shares_of_twice_the_device_are_compared_with_those_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(number: int, specs: Sequence[LoadSpec]) -> list[WorkerReport]:
        share = specs[0].percentages[0]
        return [report(share / 10 + number / 1000, 0.001, 0.002 if share == 25 else 0.005)] * 4

    said: list[str] = []
    asked = stand_in(monkeypatch, measured)
    outcome = await oversubscribe(lab(said))
    assert [(specs[0].clients, specs[0].percentages, specs[0].busy) for specs in asked[:3]] == [
        (4, (25.0,), 50.0), (4, (50.0,), 50.0), (4, (100.0,), 50.0)
    ]  # fmt: skip
    assert len(asked) == len(said) == 9
    assert outcome.verdict == (
        "With 50 % each total throughput is 100% higher than with 25 % each. "
        "p99 of the slowest is 5.0 ms instead of 2.0 ms."
    )
    stand_in(monkeypatch, lambda number, specs: [report(number % 5, 0.001, 0.002)] * 4)
    assert (await oversubscribe(lab([]))).verdict == (
        "No difference seen in total throughput between 25 % each and 50 % each. "
        "No difference seen in p99 of the slowest."
    )
    stand_in(monkeypatch, lambda number, specs: [
        report(number % 5, 0.001, 0.002 * (1 + (specs[0].percentages[0] > 25)) + number / 1e9)
    ] * 4)  # fmt: skip
    assert (await oversubscribe(lab([]))).verdict.endswith("p99 of the slowest is 4.0 ms instead of 2.0 ms.")


async def test_who_waits_is_said_where_the_repeats_are_apart_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(late: float) -> Callable[[int, Sequence[LoadSpec]], list[WorkerReport]]:
        return lambda number, specs: [
            report(10.0, 0.001 + number / 1e7 + (late if spec.priority else 0.0), 0.003) for spec in specs
        ]

    asked = stand_in(monkeypatch, measured(0.004))
    outcome: ExperimentResult = await priority(lab([]))
    assert [[spec.priority for spec in specs] for specs in asked[:3]] == [[0, 0], [0, 1], [0, 1]]
    assert [[spec.stream_priority for spec in specs] for specs in asked[:3]] == [[None] * 2, [None] * 2, [None, -3]]
    assert outcome.verdict == (
        "The client below normal priority waits longer: its p50 is 5.00 ms, the other's 1.00 ms. "
        "No difference seen where the stream of the client below normal has priority -3."
    )
    assert [row[:2] for row in outcome.rows] == [
        ("both normal", "1: normal"),
        ("both normal", "2: normal"),
        ("one below normal", "1: normal"),
        ("one below normal", "2: below normal"),
        ("one below normal, its stream -3", "1: normal"),
        ("one below normal, its stream -3", "2: below normal"),
    ]
    stand_in(monkeypatch, measured(-0.0005))
    assert "The client of normal priority waits longer" in (await priority(lab([]))).verdict
    stand_in(monkeypatch, measured(0.0))
    assert (await priority(lab([]))).verdict.startswith("No difference seen")
    stand_in(
        monkeypatch,
        lambda number, specs: [
            report(10.0, 0.001 + number / 1e7 + (0.004 if spec.priority and not spec.stream_priority else 0.0), 0.003)
            for spec in specs
        ],
    )
    said = "With a stream of priority -3 the p50 of the client below normal is 1.00 ms instead of 5.00 ms."
    assert said in (await priority(lab([]))).verdict


def test_a_knee_is_said_to_be_sure_where_the_next_smaller_share_is_surely_slower_alone() -> None:
    taken: dict[tuple[KernelName, float], Sequence[float]] = {
        ("fma", 12.0): (10, 10.1, 9.9),
        ("fma", 25.0): (19, 21, 20),
        ("fma", 37.0): (20, 21, 22),
        ("fma", 50.0): (21, 21, 21),
    }
    assert experiments.unsure_from(taken, "fma", 25.0) == ""
    assert experiments.unsure_from(taken, "fma", 50.0) == " (no difference seen from 25 % on)"
    assert experiments.unsure_from({("fma", 6.0): (1,), ("fma", 50.0): (9,)}, "fma", 50.0).endswith("from 6 % on)")


async def test_a_metric_says_how_much_better_the_device_was_used_and_which_program_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def rates(lab: Lab, spec: LoadSpec, label: str = "") -> list[float]:
        value = 40.0 if spec.mps else 20.0
        lab.meter.uses.setdefault(label, Use(label)).blocks.append({"sm_utilization": [value]})
        return [100.0] * spec.clients

    monkeypatch.setattr(experiments, "rates", rates)
    outcome = await experiments.metric(lab([]), ("python3", "my train.py"), "x: (.*)", (1, 2))
    assert "python3 'my train.py'" in outcome.title
    assert outcome.verdict.endswith("With MPS SM activity was 40 % instead of 20 % (2 clients).")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["priority", "oversubscribe"])
async def test_they_run_on_the_simulated_node(
    sources: NodeSources, node: SimNode, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert await run(experiment, sources, node, name, "--repeats", "1", "--seconds", "0.8", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["verdict"].startswith("SIMULATED: No difference seen")
    assert result["data"]
    assert len(result["notes"]) == (4 if name == "priority" else 3)
    assert result["notes"][-1].startswith("One repeat does not show how much is chance")
