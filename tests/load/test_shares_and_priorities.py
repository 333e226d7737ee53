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
from mpstui.load.types import LoadSpec, WorkerReport
from mpstui.observe.sources import NodeSources
from mpstui.sim import SimNode

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
        "With 50 % each they do 100% more in all than with 25 % each; p99 of the slowest is 5.0 ms instead of 2.0 ms."
    )
    stand_in(monkeypatch, lambda number, specs: [report(number % 5, 0.001, 0.002)] * 4)
    assert (await oversubscribe(lab([]))).verdict.startswith("No difference seen")


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
        "The one below normal waits: p50 is 5.00 ms beside 1.00 ms. "
        "No difference seen where its stream has priority -3."
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
    assert "of normal priority waits" in (await priority(lab([]))).verdict
    stand_in(monkeypatch, measured(0.0))
    assert (await priority(lab([]))).verdict.startswith("No difference seen")
    stand_in(
        monkeypatch,
        lambda number, specs: [
            report(10.0, 0.001 + number / 1e7 + (0.004 if spec.priority and not spec.stream_priority else 0.0), 0.003)
            for spec in specs
        ],
    )
    assert "With a stream of priority -3 its p50 is 1.00 ms instead of 5.00 ms." in (await priority(lab([]))).verdict


@pytest.mark.parametrize("name", ["priority", "oversubscribe"])
async def test_they_run_on_the_simulated_node(
    sources: NodeSources, node: SimNode, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert await run(experiment, sources, node, name, "--repeats", "1", "--seconds", "0.8", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["verdict"].startswith("SIMULATED: No difference seen")
    assert result["data"]
    assert len(result["notes"]) == (3 if name == "priority" else 2)
