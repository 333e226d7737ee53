"""A user's own program measured by what it prints of its throughput, and the report of an experiment."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.cells import cell_len
from rich.console import Console

from mpstui.cli import experiment, load
from mpstui.cli.report import ReportError, _ticks, check_report, page, write_report
from mpstui.core.text import four_digits
from mpstui.load.experiments import metric_verdict
from mpstui.load.protocol import fold
from mpstui.load.results import ExperimentResult, Plot, PlotPoint
from mpstui.load.runner import LoadRun
from mpstui.load.spread import Spread
from mpstui.load.types import LoadSpec, WorkerReport
from mpstui.load.utilisation import Use
from mpstui.observe.sources import NodeSources
from mpstui.sim.node import SimNode

from .conftest import gone, processes_with
from .test_cli import run, sources

__all__ = ["sources"]

PRINTS = """
import os, sys, time
place = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "")
rate = 200 if place and os.path.isdir(place) else 100
sys.stdout.write("starting <b>\\nimages/s: 1.0\\n")
for n in range(4):
    sys.stdout.write(f"step {n} images/s: {rate + n},000.5\\r")
    sys.stdout.flush()
    time.sleep(0.02)
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(PRINTS)
    return f"{sys.executable} {path}"


@pytest.mark.slow
async def test_the_metric_is_read_from_what_the_program_prints_and_its_start_left_out(
    sources: NodeSources, node: SimNode, program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.html"
    words = ("command", "--command", program, "--metric", r"images/s: ([0-9.,]+)", "--clients", "1,2", "--repeats", "2")
    words += ("--percentages", "50,50", "--report", str(report), "--json")
    assert await run(experiment, sources, node, *words) == 0
    result = json.loads(capsys.readouterr().out)
    by = {(entry["clients"], entry["setting"]): entry for entry in result["data"]}
    assert set(by) == {(n, s) for n in (1, 2) for s in ("without MPS", "with MPS", "with MPS, 50 % each")}
    for (count, setting), entry in by.items():
        one = 101_500.5 if setting == "without MPS" else 201_500.5
        assert entry["totals"] == [pytest.approx(count * one)] * 2, (count, setting)
    assert "MPS helps: " in result["verdict"]
    assert "99% more than without" in result["verdict"]
    html = report.read_text()
    assert "SIMULATED" in html
    assert "<svg" in html
    assert "2 clients, with MPS, 50 % each" in html


@pytest.mark.slow
async def test_a_program_that_says_nothing_of_it_is_told_so(
    sources: NodeSources, node: SimNode, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("command", "--command", "echo hello", "--metric", "([0-9]+) images", "--clients", "1", "--repeats", "1")
    assert await run(experiment, sources, node, *words) == 1
    assert "printed no line that the metric matches" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "metric", "said"),
    [
        ("images/s: nan", r"images/s: (\S+)", "nan"),
        ("images/s: 1e999", r"images/s: (\S+)", "1e999"),
        ("images/s: fast", r"images/s: (\S+)", "fast"),
        ("images/s: none", r"images/s: (?:none|([0-9]+))", "nothing"),
    ],
)
def test_a_metric_that_is_no_finite_number_is_no_metric(line: str, metric: str, said: str) -> None:
    runner = LoadRun(SimpleNamespace(order=SimpleNamespace(metric=metric)))
    runner._measure(f"{line}\n".encode())
    assert (list(runner.metrics), runner.no_metric) == ([], said)
    runner._measure(f"images/s: 12\n{line}\n".encode())
    assert (list(runner.metrics), runner.no_metric) == ([12.0], said)


@pytest.mark.slow
async def test_what_the_metric_matches_and_is_no_number_is_told_so(
    sources: NodeSources, node: SimNode, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("command", "--command", "echo images/s: nan", "--metric", r"images/s: (\S+)", "--clients", "1")
    assert await run(experiment, sources, node, *words, "--repeats", "1") == 1
    assert "not a finite number: nan" in capsys.readouterr().err


ODD = {
    "a burst at the end": ("print('images/s: 5\\n' * 20000)", "", (5.0, 5.0)),
    "endless without a line": ("import os\nfor _ in range(400): os.write(1, b'x' * 65536)", "no line that", ()),
    "a line that ends never and a number": ("print('x' * 9000 + 'images/s: 7', end='')", "", (7.0,)),
}
"""A program, what is said of it, and the first of its values."""


@pytest.mark.slow
async def test_odd_programs_are_measured_or_told_and_nothing_stays(
    sources: NodeSources, node: SimNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.py"
    program = f"{sys.executable} -S {path}"
    words = ("command", "--command", program, "--metric", "images/s: ([0-9.]+)", "--clients", "1", "--repeats", "1")
    for name, (text, said, values) in ODD.items():
        path.write_text(text)
        status = await run(experiment, sources, node, *words, "--json")
        out, err = capsys.readouterr()
        assert said in err, name
        assert status == (1 if said else 0), name
        assert not said or not out, name
        assert not values or json.loads(out)["data"][0]["totals"] == [values[-1]], name
        await gone(processes_with(str(path)))


@pytest.mark.slow
async def test_an_expression_that_never_comes_to_an_end_is_told_so(
    sources: NodeSources, node: SimNode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        "command",
        "--command",
        "sh -c 'echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!; exec sleep 600'",
    )
    words += ("--metric", "(a+)+$", "--clients", "1", "--repeats", "1")
    assert await asyncio.wait_for(run(experiment, sources, node, *words), 120) == 1
    assert "the metric takes more than 1 s of CPU" in capsys.readouterr().err


@pytest.mark.parametrize("width", [40, 80])
def test_progress_keeps_to_one_line_and_says_the_time(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    bar = load._progress(LoadSpec(seconds=60.0), False, console)
    bar.add_task("SIMULATED nbody: 32 of 32 running  1,234.5 Ginteractions/s", total=60.0)
    console.print(bar.get_renderable())
    (line,) = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert line.rstrip().endswith("-:--:--")
    said: list[str] = []
    terminal = SimpleNamespace(isatty=lambda: True, fileno=lambda: 2, write=said.append, flush=lambda: None)
    monkeypatch.setattr(experiment.sys, "stderr", terminal)
    monkeypatch.setattr(experiment.os, "get_terminal_size", lambda _fd: os.terminal_size((width, 24)))
    experiment.progress("14 of 15, about 40 s left: 32 streams, per-thread default stream between \u4e2d\u4e2d")
    (text,) = said[:1]
    assert cell_len(text.removeprefix("\r\x1b[K")) < width
    assert text.startswith("\r\x1b[K14 of 15, about 40 s left: ")


@pytest.mark.parametrize("text", ["images", "(", "(?P<x", "*"])
def test_an_expression_that_cannot_be_is_refused(text: str) -> None:
    import argparse

    with pytest.raises(argparse.ArgumentTypeError):
        experiment.expression(text)
    assert experiment.expression("x ([0-9]+)") == "x ([0-9]+)"


def test_what_a_program_says_is_folded_with_care() -> None:
    report = WorkerReport(1, "command", "running", 0.0)
    said = {"type": "end", "metrics": [1, 2.5, "x", None, float("nan"), float("inf")]}
    assert fold(report, said).metrics == (1.0, 2.5)
    assert fold(report, {"type": "end", "metrics": "all"}).metrics == ()


def test_a_gain_counts_where_the_repeats_are_apart() -> None:
    def said(without: list[float], with_: list[float]) -> str:
        return metric_verdict({(4, "without MPS"): without, (4, "with MPS"): with_})

    assert said([100, 101, 100], [150, 151, 150]) == "MPS helps: 4 clients with MPS do 50% more than without."
    assert said([100, 101, 100], [80, 81, 80]) == "MPS does not help here: 4 clients with MPS do 20% less than without."
    assert said([100, 101, 100], [101.8, 101.81, 101.8]).startswith("MPS makes no difference here")
    assert said([90, 130, 100], [100, 150, 120]).startswith("No difference seen")
    assert said([100.0], [900.0]).startswith("No difference seen")


def test_a_gain_of_many_is_told_beside_what_one_loses() -> None:
    same, less, more = [100.0, 101.0, 100.0], [80.0, 81.0, 80.0], [150.0, 151.0, 150.0]
    taken = {(1, "without MPS"): same, (1, "with MPS"): less, (4, "without MPS"): same, (4, "with MPS"): more}
    assert metric_verdict(taken) == (
        "It depends: 4 clients with MPS do 50% more than without, but 1 client with MPS does 20% less."
    )
    # What a small share costs is no word against MPS.
    taken |= {(1, "with MPS"): same, (1, "with MPS, 20 % each"): less}
    assert metric_verdict(taken) == "MPS helps: 4 clients with MPS do 50% more than without."


USE = Use("<s>", [{"sm_utilization": [40.0], "power_watts": [300.0]}, {"sm_utilization": [60.0]}])
RESULT = ExperimentResult(
    "x",
    "<script>alert(1)</script>",
    ("<x>",),
    (("</td><img src=x>",),),
    (),
    "a & b",
    ("<note>",),
    (USE,),
    (
        Plot(
            "<ms>", (PlotPoint("<a>", Spread(2.0, 1.0, 3.0), "<with>"), PlotPoint("<a>", Spread(4.0, 4.0, 4.0), "off"))
        ),
        Plot(
            "TFLOP/s",
            (PlotPoint(6.0, Spread(3.0, 3.0, 3.0)), PlotPoint(100.0, Spread(65.0, 60.0, 66.0))),
            "threads (%)",
        ),
        Plot("nothing", (PlotPoint("a", Spread(0.0, 0.0, 0.0)),)),
        Plot("nobody", ()),
    ),
)
ABOUT = {"gpu": "<gpu>", "driver": None, "time": "now", "simulated": False, "other_clients": 3}


def test_everything_in_a_report_is_text_and_it_loads_nothing() -> None:
    html = page(RESULT, ABOUT)
    for text in ("<script>", "<img", "<x>", "<s>", "<note>", "<ms>", "<a>", "<with>", "<gpu>"):
        assert text not in html
    assert "&lt;script&gt;" in html
    assert not re.search(r"<[^>]*(src|href)\s*=", html)
    assert "SIMULATED" not in html
    assert "SIMULATED" in page(RESULT, {**ABOUT, "simulated": True})


def test_a_report_says_what_the_terminal_says_and_names_the_axes_of_its_plots() -> None:
    html = page(RESULT, ABOUT)
    for text in (
        "a &amp; b",
        "&lt;gpu&gt; · driver unknown · now · 3 other MPS clients on the device when it began",
        "median (smallest–largest) of the repeats",
        "on the device: the median reading of each repeat",
        "<th>SM activity</th><th>power</th>",
        "<td>50 (40–60) %</td><td>300 W</td>",
        "<p>&lt;note&gt;</p>",
    ):
        assert text in html
    axes = re.findall(r'class="axis">([^<]*)<', html)
    assert axes == ["&lt;ms&gt;", "TFLOP/s", "threads (%)", "of the device, or of the time (%)"]
    bars, curve, shares = re.findall(r"<svg.*?</svg>", html)
    assert re.findall(r'width="([\d.]+)" height="17"', bars) == ["210.0", "420.0"]
    assert [text for text in re.findall(r">([^<]*)</text>", bars) if text[0].isdigit()] == [
        "0",
        "1",
        "2",
        "3",
        "4",
        "2",
        "4",
    ]
    assert curve.count("<circle") == 2
    assert "&lt;s&gt;, SM activity" in shares


@pytest.mark.parametrize(
    ("value", "text"), [(12_904.4, "12,904"), (2.5e6, "2,500,000"), (999.96, "1,000"), (57.224, "57.22"), (0.0, "0")]
)
def test_a_plots_figures_are_written_as_in_its_table(value: float, text: str) -> None:
    assert four_digits(value) == text
    plot = Plot("runs/min", (PlotPoint("a", Spread.of([value or 1.0])),))
    assert not re.search(r">[0-9.]+e[+][0-9]+<", page(replace(RESULT, plots=(plot,)), ABOUT))


@pytest.mark.parametrize("top", [1e-9, 0.3, 1.0, 7.1, 99.0, 100.0, 13_308.0, 4.4e12])
def test_an_axis_has_few_round_numbers_and_room_for_all(top: float) -> None:
    ticks = _ticks(top)
    assert 3 <= len(ticks) <= 6
    assert ticks[0] == 0
    assert ticks[-2] < top <= ticks[-1] * (1 + 1e-9)


def test_a_report_does_not_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    os.symlink(tmp_path / "victim", tmp_path / "report.html")
    for write in (check_report, lambda path: write_report(path, RESULT, ABOUT)):
        with pytest.raises(ReportError, match="a symbolic link"):
            write(tmp_path / "report.html")
    assert (tmp_path / "victim").read_text() == "mine"


async def test_a_report_that_cannot_be_written_is_told_before_the_first_run(
    sources: NodeSources, node: SimNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place := tmp_path / "reports").mkdir()
    (place / "file").write_text("mine")
    (place / "folder").mkdir()
    os.mkfifo(place / "fifo")
    before = sorted(os.listdir(place))
    for name in ("no/such/r.html", "file/r.html", "folder", "fifo", "nul\0.html", "", "."):
        where = f"{place}/{name}" if name else ""
        words = ("command", "--command", f"touch {place}/ran", "--clients", "1", "--repeats", "1", "--report", where)
        assert await run(experiment, sources, node, *words) in {1, 6}, name
        out, err = capsys.readouterr()
        assert (out, "nothing was measured" in err) == ("", True), name
        assert sorted(os.listdir(place)) == before, name


@pytest.mark.slow
async def test_a_report_that_fails_at_the_end_does_not_cost_the_result(
    sources: NodeSources, node: SimNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "there" / "r.html"
    report.parent.mkdir()
    words = ("command", "--command", f"rm -rf {report.parent}", "--clients", "1", "--repeats", "1", "--json")
    assert await run(experiment, sources, node, *words, "--report", str(report)) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["data"]
    assert "the result is printed above" in err


def test_a_report_takes_the_place_of_the_one_before_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "r.html"
    write_report(report, RESULT, ABOUT)
    first = report.read_text()
    assert report.stat().st_mode & 0o777 == 0o644
    check_report(report)
    assert report.read_text() == first
    monkeypatch.setattr("mpstui.cli.report.os.fsync", lambda _fd: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(ReportError, match="No space left"):
        write_report(report, replace(RESULT, title="another"), ABOUT)
    assert report.read_text() == first
    assert os.listdir(tmp_path) == ["r.html"]


TORCH = """
import sys
from unittest.mock import MagicMock
sys.modules["torch"] = MagicMock()
"""


@pytest.mark.slow
async def test_training_starts_its_programs_once_and_compares_batches_by_turns(
    sources: NodeSources,
    node: SimNode,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "torch.py").write_text(TORCH)
    starts, python = tmp_path / "starts", tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho x >> {starts}\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr("mpstui.load.experiments.TURN_SECONDS", 0.02)
    words = ("training", "--python", str(python), "--clients", "1,2", "--repeats", "2", "--json")
    assert await run(experiment, sources, node, *words) == 0
    told = capsys.readouterr()
    result = json.loads(told.out)
    assert starts.read_text().count("x") == 4  # two clients without MPS, two with it, whatever is compared
    assert "17 of 17" in told.err
    assert result["verdict"].startswith("SIMULATED: Batch 64: ")
    by = {(entry["batch"], entry["clients"], entry["setting"]): entry for entry in result["data"]}
    assert set(by) == {(b, n, f"{s} MPS") for b in (64, 2048) for n in (1, 2) for s in ("without", "with")}
    for (_, count, _), entry in by.items():
        assert len(entry["totals"]) == 2
        assert len(entry["each"]) == 2 * count
        assert min(entry["each"]) > 0
        assert sum(entry["totals"]) == pytest.approx(sum(entry["each"]))
    assert {row[0] for row in result["rows"]} == {"64", "2,048"}


@pytest.mark.slow
async def test_training_without_pytorch_says_what_is_missing(
    sources: NodeSources, node: SimNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    assert await run(experiment, sources, node, "training", "--python", str(bare), "--clients", "1") == 1
    told = capsys.readouterr().err
    assert "PyTorch is not installed for" in told
    assert "→ --python PATH" in told
    assert "by hand" not in told
