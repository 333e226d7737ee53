"""``load`` and ``experiment`` from their options to their exit status, on the simulated node."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest
from deadline import usual

from mpstui import api
from mpstui.cli import experiment, load, loadoptions
from mpstui.cli.output import complain
from mpstui.core.requests import Unable
from mpstui.load import stopping
from mpstui.node import open_node
from mpstui.observe.sources import NodeSources
from mpstui.observe.watcher import NodeWatcher
from mpstui.sim.node import SimNode

from .conftest import DEADLINE, processes_with


def parse(module: Any, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="x")
    (loadoptions if module is load else module).add_arguments(parser)
    return parser.parse_args(words)


@pytest.fixture
def sources(node: SimNode) -> NodeSources:
    return open_node((node.pipe_dir,))[0]


async def run(module: Any, sources: NodeSources, node: SimNode, *words: str) -> int:
    async with api.open((node.pipe_dir,), read_only=False) as opened:
        return await said(module, opened, *words)


async def said(module: Any, opened: api.AsyncNode, *words: str) -> int:
    """As the command line's front door says what is not done."""
    try:
        return int(await module.run(parse(module, *words), opened))
    except Unable as why:
        return complain(str(why), why.status, why.remedy)


@pytest.mark.slow
async def test_a_table_says_simulated(sources: NodeSources, node: SimNode, capsys: pytest.CaptureFixture[str]) -> None:
    assert await run(load, sources, node, "fma", "--clients", "2", "--seconds", "0.5") == 0
    out, err = capsys.readouterr()
    assert "SIMULATED · fma, MPS on" in out
    assert "TFLOP/s" in out
    assert err == ""


@pytest.mark.slow
async def test_json_has_a_line_while_it_runs_and_a_final_one(
    sources: NodeSources, node: SimNode, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("triad", "--clients", "2", "--active-thread-percentage", "30,70", "--seconds", "1.5", "--json")
    assert await run(load, sources, node, *words) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["final"] for line in lines] == [False] * (len(lines) - 1) + [True]
    assert len(lines) >= 2
    assert all(line["simulated"] for line in lines)
    assert [worker["sms"] for worker in lines[-1]["workers"]] == [38, 92]
    assert [worker["state"] for worker in lines[-1]["workers"]] == ["ended", "ended"]


@pytest.mark.slow
async def test_ctrl_c_shows_what_was_measured_until_then(
    sources: NodeSources, node: SimNode, capsys: pytest.CaptureFixture[str]
) -> None:
    running = asyncio.create_task(run(load, sources, node, "fma", "--clients", "2", "--seconds", "60", "--json"))
    said = ""
    end = asyncio.get_running_loop().time() + DEADLINE
    while not re.search(r'"mean": \d', said) and asyncio.get_running_loop().time() < end:
        await asyncio.wait([running], timeout=0.05)
        said += capsys.readouterr().out
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["final"] is True
    assert last["simulated"] is True
    assert [worker["state"] for worker in last["workers"]] == ["ended", "ended"]
    assert last["total"] > 0
    assert not processes_with(f"mpstui.sim.load\0{node.pipe_dir}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nohup", "sent", "status"),
    [(False, [signal.SIGHUP], 129), (True, [signal.SIGHUP, signal.SIGTERM], 143)],
    ids=["HUP", "TERM under nohup"],
)
def test_hup_and_term_show_it_as_well(node: SimNode, nohup: bool, sent: list[int], status: int) -> None:
    words = ("load", "fma", "--clients", "2", "--seconds", "600", "--json", "--pipe-dir", str(node.pipe_dir))
    program = "import signal, sys; from mpstui.cli import main;"
    # Said in both cases: a suite that was started under nohup hands its own on.
    program += f"signal.signal(signal.SIGHUP, signal.{'SIG_IGN' if nohup else 'SIG_DFL'});"
    program += "sys.exit(main(sys.argv[1:]))"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program, *words], stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert any('"running"' in line for line in process.stdout)
        for number in sent:
            process.send_signal(number)
        out, err = process.communicate(timeout=DEADLINE)
    last = json.loads(out.splitlines()[-1])
    assert last["final"] is True
    assert last["total"] > 0
    assert (process.returncode, err) == (status, "")
    assert not processes_with(f"mpstui.sim.load\0{node.pipe_dir}")


@pytest.mark.slow
async def test_times_of_programs_are_not_added_up(
    sources: NodeSources, node: SimNode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(load, sources, node, "--command", "sleep 0.1", "--clients", "2", "--json") == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["total"] is None
    assert all(worker["figure"] >= 0.1 for worker in last["workers"])


REFUSED = (
    ((), 2, "name a kernel"),
    (("fma", "--command", "sleep 1"), 2, "one of the two"),
    (("fma", "--clients", "3", "--active-thread-percentage", "30,70"), 2, "2 values for 3 clients"),
    (("fma", "--mps", "off", "--active-thread-percentage", "30"), 2, "limits and --private need MPS"),
    (("fma", "--mps", "off", "--client-priority", "0"), 2, "limits and --private need MPS"),
    (("endless", "--busy", "50"), 2, "endless does not serve requests"),
    (("fma", "--device", "7"), 2, "there is no GPU “7”"),
    (("illegal",), 6, "takes down every client"),
    (("memory",), 6, "takes all memory"),
    (("--command", "sleep 1", "--sm-count", "8"), 2, "does not reach it"),
)
"""Options, the exit status, and what is said."""


async def test_what_is_refused_says_why_and_what_to_do(
    sources: NodeSources, node: SimNode, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, status, said in REFUSED:
        assert await run(load, sources, node, *words) == status, words
        err = capsys.readouterr().err
        assert said in err, words
        assert "→" in err, words


@pytest.mark.parametrize(
    "words",
    [
        ("dgemm",),
        ("fma", "--clients", "0"),
        ("fma", "--clients", "65"),
        ("fma", "--clients", "x"),
        ("fma", "--active-thread-percentage", "0"),
        ("fma", "--active-thread-percentage", "101"),
        ("fma", "--active-thread-percentage", "-5"),
        ("fma", "--active-thread-percentage", "nan"),
        ("fma", "--active-thread-percentage", "1,,2"),
        ("fma", "--sm-count", "0"),
        ("fma", "--sm-count", "8", "--active-thread-percentage", "5"),
        ("fma", "--pinned-mem-limit", "512MB"),
        ("fma", "--pinned-mem-limit", "0G"),
        ("fma", "--seconds", "0"),
        ("fma", "--seconds", "inf"),
        ("--command", ""),
        ("--command", "'unbalanced"),
    ],
)
def test_wrong_words_are_usage_errors(words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as raised:
        parse(load, *words)
    assert raised.value.code == 2


async def test_without_a_daemon_it_offers_to_start_one(
    sources: NodeSources, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPSTUI_CONTROL_BINARY", sources.control_binary[-1])
    async with api.open((tmp_path,), read_only=False) as opened:
        assert await said(load, opened, "fma") == 3
    assert "--private" in capsys.readouterr().err


@pytest.mark.slow
async def test_the_illegal_store_in_a_daemon_of_its_own_leaves_the_node_alone(
    sources: NodeSources, node: SimNode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(load, sources, node, "illegal", "--private", "--clients", "2") == 1
    out, err = capsys.readouterr()
    assert out.count("error 700") == 2
    assert "illegal memory access" in err


@pytest.mark.slow
async def test_a_limit_that_is_too_small_for_a_context_is_told(
    sources: NodeSources, node: SimNode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(load, sources, node, "fma", "--pinned-mem-limit", "10M", "--seconds", "1") == 1
    out, err = capsys.readouterr()
    assert "SIMULATED" in out
    assert "the memory limit is too small for a context alone" in err
    assert "a context takes 70 to 520 MiB" in err


@pytest.mark.slow
async def test_a_program_that_fails_is_told_and_counted(
    sources: NodeSources, node: SimNode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(load, sources, node, "--command", "sh -c 'echo no data; exit 2'") == 1
    assert "exit status 2: no data" in capsys.readouterr().err


@pytest.mark.slow
async def test_requests_have_latencies_in_the_table_and_as_data(
    sources: NodeSources, node: SimNode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(load, sources, node, "fma", "--seconds", "0.5", "--arrivals", "100") == 0
    out = capsys.readouterr().out
    assert "p50 ms" in out
    assert "from when a request came to when it was done" in out
    assert await run(load, sources, node, "fma", "--seconds", "0.5", "--busy", "50%", "--json") == 0
    (worker,) = json.loads(capsys.readouterr().out.splitlines()[-1])["workers"]
    assert 0 < worker["latency_p50"] <= worker["latency_p99"]
    assert await run(load, sources, node, "fma", "--seconds", "0.3", "--json") == 0
    (worker,) = json.loads(capsys.readouterr().out.splitlines()[-1])["workers"]
    assert worker["latency_p50"] is None


@pytest.mark.slow
async def test_nbody_times_a_fixed_amount_of_work_with_and_without_mps(
    sources: NodeSources, node: SimNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mpstui.load.measure.SETTLE_SECONDS", 0.0)
    monkeypatch.setattr("mpstui.load.experiments.WORK_WINDOWS", 2)
    monkeypatch.setattr("mpstui.load.utilisation.INTERVAL", 0.05)
    words = ("nbody", "--clients", "1,2", "--repeats", "1", "--seconds", "0.3", "--bodies", "16384", "--json")
    assert await run(experiment, sources, node, *words) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["simulated"] is True
    assert result["verdict"].startswith("SIMULATED: ")
    assert "No difference seen" in result["verdict"]
    assert re.search(r" for \d\.\d\d×10[¹²]+ interactions of 16,384 bodies$", result["title"]), result["title"]
    used = {entry["situation"]: entry for entry in result["utilisation"]}
    assert used.keys() == {"1 client, MPS off", "1 client, MPS on", "2 clients, MPS off", "2 clients, MPS on"}
    read = [entry["sm_utilization"] for entry in used.values() if entry["readings"]]  # none in time on a busy machine
    assert read, used
    assert all(meter["median"] > 10 for meter in read), used
    median = {(entry["clients"], entry["mps"]): entry["median"] for entry in result["data"]}
    alone = 600
    """Milliseconds at the simulated rate. A busy machine takes longer, or lets two work one after the other."""
    assert median.keys() == {(1, False), (1, True), (2, True), (2, False)}
    assert all(time > 0.95 * alone for time in median.values()), median


@pytest.mark.slow
@pytest.mark.parametrize(("ways", "watch"), [(slice(0, 4), 0.4), (slice(4, 10), 2.0)], ids=["safe", "others"])
async def test_stop_tells_the_safe_ways_from_the_others(
    sources: NodeSources,
    node: SimNode,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    ways: slice,
    watch: float,
) -> None:
    assert len(stopping.WAYS) == 10
    monkeypatch.setattr(stopping, "WAYS", stopping.WAYS[ways])
    monkeypatch.setattr(stopping, "WATCH_SECONDS", watch * float(usual()) / 5.0)
    monkeypatch.setattr(stopping, "_BEFORE_SECONDS", 0.3)
    assert await run(experiment, sources, node, "stop", "--repeats", "1") == 0
    out = capsys.readouterr().out
    said = " ".join(out.split())
    if stopping.WAYS[0] == "graceful":
        assert "SIMULATED · The neighbours ran on after: graceful; terminate_client; " in said
        assert "kill -9, between short kernels. They were lost after: none." in said
        assert "error 810" in out
    else:
        assert (
            "ran on after: none. They were lost after: kill -9, in a long kernel; Ctrl-C, in a long kernel; SIGTERM"
            in said
        )
        for name in ("SIGKILL", "SIGINT", "SIGTERM", "SIGSEGV", "SIGABRT"):
            assert f"ended by {name}" in said, "it has ended as it was to"
        assert "on the device meanwhile" in out
    assert "A new client could connect after each." in said or "A new client was not let in after:" in said


@pytest.mark.slow
async def test_one_thread_keeps_gpu_util_up_and_the_sms_idle(
    sources: NodeSources, node: SimNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mpstui.load.experiments.UTIL_SETTLE", 0.1)
    assert await run(experiment, sources, node, "gpu-util", "--repeats", "1", "--seconds", "1", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    one, all_ = result["data"]
    assert one["gpu_utilization"]["median"] == all_["gpu_utilization"]["median"] == 100
    assert one["sm_utilization"]["median"] < 5 < 30 < all_["sm_utilization"]["median"]
    assert "One thread is enough for a GPU-Util of 100 %" in result["verdict"]
    busy = node.spawn("busy")
    assert await run(experiment, sources, node, "gpu-util", "--repeats", "1", "--seconds", "0.5", "--json") == 0
    assert "Others work on this device" in json.loads(capsys.readouterr().out)["verdict"]
    busy.tell("exit")


@pytest.mark.slow
async def test_command_compares_start_to_end(
    sources: NodeSources, node: SimNode, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("command", "--command", "sleep 0.2", "--clients", "1", "--repeats", "1")
    assert await run(experiment, sources, node, *words) == 0
    out = capsys.readouterr().out
    assert "SIMULATED · No difference seen" in out
    assert "one run of 1 client without and one with MPS came first and are not counted" in out


async def test_experiments_that_make_no_sense_are_refused(sources: NodeSources, node: SimNode) -> None:
    for words, status in (
        (("command",), 2),
        (("nbody", "--command", "x"), 2),
        (("sweep", "--bodies", "512000"), 2),
        (("copies", "--divide"), 2),
        (("sweep", "--clients", "2"), 2),
        (("stop", "--shared"), 6),
        (("nbody", "--metric", "(x)"), 2),
        (("command", "--command", "x", "--percentages", "50"), 2),
    ):
        assert await run(experiment, sources, node, *words) == status, words


@pytest.fixture
def full_disk() -> Iterator[TextIO]:
    with open("/dev/full", "w") as file:
        yield file


@pytest.mark.slow
async def test_a_full_disk_is_told_and_nothing_is_left(
    sources: NodeSources,
    node: SimNode,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    full_disk: TextIO,
) -> None:
    monkeypatch.setattr("sys.stdout", full_disk)
    assert await run(load, sources, node, "fma", "--clients", "2", "--json") == 1
    assert "No space left on device" in capsys.readouterr().err
    assert not processes_with(f"mpstui.sim.load\0{node.pipe_dir}")


@pytest.mark.slow
async def test_programs_that_cannot_be_started_are_told_for_each_reason(
    sources: NodeSources, node: SimNode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(load, sources, node, "--command", "/nonexistent/train --x", "--clients", "2") == 1
    err = capsys.readouterr().err
    assert err.count("cannot be started: No such file or directory") == 1


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="another user takes a node of root's alone for a simulated one")
async def test_beside_others_clients_it_wants_a_yes(
    sources: NodeSources, node: SimNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    node.spawn(user="alice", command="python train.py")
    await shown_by(node, sources)
    monkeypatch.setattr("os.geteuid", lambda: 4242)
    words = ("fma", "--clients", "2", "--seconds", "0.5")
    assert await run(load, sources, node, *words) == 6
    out, err = capsys.readouterr()
    assert out == ""
    assert "2 clients of the load would run beside 1 client of alice" in err, err
    assert re.search(
        r"They take 2 contexts and about 118 MiB of device memory \(GPU 0: \d+ of 48 contexts in use\), and", err
    ), err
    assert "--yes" in err
    assert await run(load, sources, node, *words, "--yes") == 0
    assert await run(experiment, sources, node, "priority", "--shared") == 6
    out, err = capsys.readouterr()
    assert "2 clients of the load would run beside 1 client of alice" in err, err
    assert "add --yes, answer at a terminal, or leave out --shared" in err
    words = ("command", "--command", "true", "--shared", "--clients", "1", "--repeats", "1")
    assert await run(experiment, sources, node, *words, "--yes") == 0


@pytest.mark.slow
async def test_beside_ones_own_clients_it_does_not_ask(
    sources: NodeSources, node: SimNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    node.spawn(user="alice", command="python train.py")
    uid = await shown_by(node, sources)
    monkeypatch.setattr("os.geteuid", lambda: uid)
    assert await run(load, sources, node, "fma", "--seconds", "0.5") == 0
    assert "beside" not in capsys.readouterr().err


async def shown_by(node: SimNode, sources: NodeSources) -> int | None:
    """Wait until the daemon tells of a client; its user's number."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        snapshot = await NodeWatcher((node.pipe_dir,), sources).once()
        if snapshot.daemons and (there := list(snapshot.daemons[0].clients())):
            return there[0].uid
    raise TimeoutError("the daemon tells of no client")


async def test_read_only_is_said_before_anybody_is_asked(
    node: SimNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def asked(*_: object) -> None:
        raise AssertionError("asked")

    monkeypatch.setattr(load, "ask_beside", asked)
    async with api.open((node.pipe_dir,), read_only=True) as opened:
        assert await said(load, opened, "fma") == 6
    assert "mpstui runs read-only" in capsys.readouterr().err
