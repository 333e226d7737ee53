"""``mpstui plan --measure`` on the simulated node, from its options to the plan."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from cli_plan.conftest import Run
from mpstui.cli.planning import MEASURABLE
from mpstui.load import advising, measure
from mpstui.load.experiments import NEIGHBOURS
from mpstui.load.measure import ExperimentError
from mpstui.node import open_node

QUICK = ("--repeats", 1, "--seconds", 0.8)


@pytest.fixture
def node(mpstui: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(measure, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(advising, "PERCENTAGES", (37.0, 100.0))
    status, _, err = mpstui("daemon", "start", "--pipe-dir", place / "mps")
    assert status == 0, err
    return place / "mps"


@pytest.mark.slow
def test_a_kernel_and_a_program_are_measured_alone_and_together(mpstui: Run, node: Path) -> None:
    words = ("plan", "--pipe-dir", node, "--device", 0, "--command", "sleep 0.8", "--measure", "triad", *QUICK)
    status, out, err = mpstui(*words, "--json", "--shared")
    assert status == 0, err
    found = json.loads(out)
    assert found["source"] == "simulated"
    measured = found["measured"]
    assert measured["simulated"] is True
    triad, program = measured["loads"]
    assert [point["sm_count"] for point in triad["curve"]] == [48, 132]
    assert (triad["saturates"], triad["advised"]["sm_count"], triad["unit"]) == (True, 48, "GB/s")
    assert (program["command"], program["unit"]) == (["sleep", "0.8"], "runs/min")
    assert 0 < program["curve"][0]["median"] < 75.1
    # How many SMs the program gets depends on how busy this machine is: its runs take the time they take.
    assert [client["name"] for client in found["clients"]] == ["triad", "command"]
    counts = [client["sm_count"] for client in found["clients"]]
    assert counts[0] == 48
    assert [cost["with_shares"]["sm_count"] for cost in measured["together"]] == counts
    beside = measured["together"][0]
    assert beside["beside"]["median"] > 0.9 * beside["alone"]["median"], "a program without a GPU costs it nothing"


@pytest.mark.slow
def test_in_words_and_kept(mpstui: Run, node: Path) -> None:
    words = ("--measure", "fma", "--clients", 2, *QUICK, "--save", "kept")
    status, out, err = mpstui("plan", "--pipe-dir", node, "--device", 0, *words)
    assert status == 0, err
    assert "SIMULATED fma, one client in a daemon of its own: throughput in TFLOP/s over SMs" in out
    assert "<- advised" in out
    assert "SIMULATED Each SM adds 0.4" in out
    assert "give two loads" in out
    assert out.count("*") >= 2
    text = mpstui("profile", "show", "kept")[1]
    assert text.count("active_thread_percentage = 50") == 3  # the daemon's limit and two shares


NOT_MEASURED = (
    (("--measure", "memory"), 2, "invalid choice: 'memory'"),
    (("--command", "/no/such/program"), 2, "no program /no/such/program"),
    (("--command", "a 'b"), 2, "cannot be split into words"),
    (("--measure", "fma", "--clients", "49"), 2, "more than the 48 contexts"),
    (("--measure", "fma", "--measure", "fma", "--clients", "3"), 2, "one client each"),
    (("--measure", "fma", "--measure", "fma", "--command", "true"), 2, "3 loads were given"),
    (("--measure", "fma", "--weights", "1,2"), 2, "leave out --strategy, --weights and --sm-count"),
    (("--measure", "fma", "--seconds", "nan"), 2, "0.3 to 600 seconds"),
    (("--measure", "fma", "--repeats", "0"), 2, "from 1 to 100"),
    (("--clients", "2", "--shared"), 2, "go with --measure"),
    (("--command", "false", "--repeats", "1"), 1, "exit status 1"),
    (("--measure", "fma", "--apply"), 2, "choose it with --device"),
)
"""Options of a plan, the exit status, and what is said."""


@pytest.mark.slow
def test_what_cannot_be_measured_is_told(mpstui: Run, node: Path) -> None:
    for words, status, said in NOT_MEASURED:
        found, out, err = mpstui("plan", "--pipe-dir", node, *words)
        assert (found, out) == (status, ""), words
        assert said in err, words


def _no_library() -> None:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)


def test_without_a_gpu_or_a_daemon_it_says_so(
    mpstui: Run, node: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", _no_library)  # where this runs there may be one
    assert mpstui("plan", "--measure", "fma", "--sm-count-total", 132)[0] == 2
    status, _, err = mpstui("plan", "--pipe-dir", place / "nothing", "--measure", "fma")
    assert (status, "there is no GPU to measure on" in err) == (3, True)
    assert mpstui("daemon", "stop", "--pipe-dir", node, "--yes")[0] == 0
    status, _, err = mpstui("plan", "--pipe-dir", node, "--measure", "fma", "--shared")
    assert status == 3


@pytest.mark.parametrize(("mode", "told"), [("Exclusive_Process", True), ("Default", False)])
def test_in_exclusive_mode_a_failure_hints_at_the_daemon_that_runs(
    mpstui: Run, node: Path, monkeypatch: pytest.MonkeyPatch, mode: str, told: bool
) -> None:
    sample = open_node((node,))[0].nvml.sample()
    sample = replace(sample, devices=tuple(replace(device, compute_mode=mode) for device in sample.devices))

    async def hardware(_: object) -> object:
        return sample

    monkeypatch.setattr("mpstui.api.AsyncNode.hardware", hardware)

    async def fails(*_: object) -> None:
        raise ExperimentError("CUDA error 46: the device is busy exclusively", "end some clients")

    monkeypatch.setattr("mpstui.load.experiment_daemon.perform", fails)
    status, _, err = mpstui("plan", "--pipe-dir", node, "--device", 0, "--measure", "fma")
    assert (status, "busy exclusively" in err, "end some clients" in err) == (1, True, True)
    assert ("with --shared" in err) is told


@pytest.mark.slow
def test_a_curve_that_ends_at_the_servers_limit_says_so(mpstui: Run, node: Path) -> None:
    assert mpstui("set", "active-thread-percentage", 25, "--default", "--pipe-dir", node)[0] == 0
    words = ("plan", "--pipe-dir", node, "--device", 0, "--measure", "fma", *QUICK, "--shared")
    status, out, err = mpstui(*words)
    assert status == 0, err
    assert "The curve ends at 32 of 132 SMs: this is the server's limit." in out


def test_the_kernels_offered_are_those_with_a_throughput() -> None:
    assert set(MEASURABLE) == set(NEIGHBOURS)
