"""The supervisor with simulated workers on the simulated node, and with programs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from mpstui.control.channel import ControlChannel
from mpstui.control.mps import MpsControl
from mpstui.core.partition import even_levels, shorten
from mpstui.extras import how_to_install
from mpstui.load.client import NO_DAEMON_DIRECTORY, HeldName, WorkerProcess, client_environment, worker_order
from mpstui.load.runner import LoadRun
from mpstui.load.supervisor import Supervisor, memory_of
from mpstui.load.types import Computation, LoadSpec, WorkerError, WorkerReport
from mpstui.observe.sources import NvmlSample
from mpstui.sim.marker import control_binary
from mpstui.sim.node import SimNode
from mpstui.sim.sources import SimNvml

from .conftest import gone, until


class Told:
    """A worker's channel that keeps what it is told."""

    stopping = False

    def __init__(self, command: tuple[str, ...]) -> None:
        self.order = SimpleNamespace(command=command, seconds=None, metric="")
        self.failed: list[WorkerError] = []
        self.poked = threading.Event()

    def say(self, kind: str, **fields: object) -> None:
        pass

    def wait_for_go(self) -> bool:
        return True

    def poke(self) -> None:
        self.poked.set()

    def wait(self, seconds: float) -> None:
        self.poked.wait(seconds)

    def fail(self, error: WorkerError) -> None:
        self.failed.append(error)

    def end(self, **fields: object) -> None:
        pass


def states(reports: tuple[WorkerReport, ...]) -> list[str]:
    return [report.state for report in reports]


def all_measured(reports: tuple[WorkerReport, ...]) -> bool:
    return all(report.state == "running" and report.running_seconds > 0.2 for report in reports)


@pytest.mark.slow
async def test_two_clients_share_the_device_as_measured_and_move(node: SimNode, supervisor: Supervisor) -> None:
    spec = LoadSpec("fma", clients=2, pipe_dir=node.pipe_dir, pool=even_levels(132, 12))
    try:
        first, second = await supervisor.start(spec)
        await until(supervisor, all_measured)
        shared = pytest.approx(59.5, rel=0.02)  # the first one may have been measured while it was alone
        await until(supervisor, lambda seen: sum(report.figure or 0 for report in seen) == shared)
        reports = supervisor.workers
        assert all(report.simulated and report.mps and report.affinity for report in reports)
        assert reports[0].levels[0] == 8
        assert reports[0].levels[-1] == 132
        assert reports[0].pool_seconds > 1
        await supervisor.set_share(first, 9)
        await until(supervisor, lambda seen: seen[0].sms == 8 and seen[0].switch_seconds is not None)
        moved = supervisor.report(first)
        assert moved.figure == pytest.approx(3.59, rel=0.1)
        assert (moved.switch_seconds or 9) < 1
        assert moved.pid == reports[0].pid, "moved without a restart"
        await until(supervisor, lambda seen: (seen[1].figure or 0) > 50)
        assert supervisor.report(second).sms == 132
    finally:
        await supervisor.stop()
    assert states(supervisor.workers) == ["ended", "ended"]
    await gone([report.pid for report in supervisor.workers if report.pid])


@pytest.mark.slow
async def test_without_a_pool_a_change_of_share_restarts_the_worker(node: SimNode, supervisor: Supervisor) -> None:
    try:
        [worker] = await supervisor.start(LoadSpec("fma", pipe_dir=node.pipe_dir))
        await until(supervisor, all_measured)
        before = supervisor.report(worker)
        await supervisor.set_share(worker, 66)
        await until(supervisor, all_measured)
        after = supervisor.report(worker)
    finally:
        await supervisor.stop()
    assert after.pid != before.pid
    assert after.percentage == 50.0
    assert after.sms == 66
    assert "restarted" in after.notes[0]
    await gone([pid for pid in (before.pid, after.pid) if pid])


@pytest.mark.slow
async def test_a_restart_takes_the_shares_that_are_open_now(node: SimNode, supervisor: Supervisor) -> None:
    spec = LoadSpec("fma", pipe_dir=node.pipe_dir, sm_counts=(32,), pool=even_levels(32, 4))
    try:
        [worker] = await supervisor.start(spec, contexts=6)
        await until(supervisor, all_measured)
        assert supervisor.report(worker).levels == (8, 16, 24, 32)
        await supervisor.restart(worker, pool=even_levels(132, 12))
        await until(supervisor, all_measured)
        report = supervisor.report(worker)
        assert report.levels == (8, 32, 54, 88, 110, 132), "six contexts are left on the device"
        assert report.sms == 32, "where it was"
        await supervisor.set_share(worker, 8)
        await until(supervisor, lambda seen: seen[0].sms == 8)
        await until(supervisor, lambda _: (SimNvml(node.pipe_dir).sample().devices[0].sm_utilization or 99) < 10)
        assert SimNvml(node.pipe_dir).sample().devices[0].gpu_utilization == 100, "what the panel teaches"
    finally:
        await supervisor.stop()


@pytest.mark.slow
async def test_stop_during_a_restart_leaves_nothing(node: SimNode, supervisor: Supervisor) -> None:
    [worker] = await supervisor.start(LoadSpec("fma", pipe_dir=node.pipe_dir))
    await until(supervisor, all_measured)
    pid = supervisor.report(worker).pid
    restarting = asyncio.create_task(supervisor.restart(worker))
    await until(supervisor, lambda seen: seen[0].state == "restarting")
    await supervisor.stop()
    await restarting
    assert states(supervisor.workers) == ["ended"]
    assert supervisor.report(worker).pid is None
    await gone([pid or 0])


@pytest.mark.slow
async def test_the_49th_client_is_told_that_the_device_is_full(node: SimNode, supervisor: Supervisor) -> None:
    assert node.spawn("idle", contexts=48).status() == "connected"
    try:
        await supervisor.start(LoadSpec("small", pipe_dir=node.pipe_dir))
        await supervisor.wait()
    finally:
        await supervisor.stop()
    [report] = supervisor.workers
    assert report.error is not None
    assert report.error.code == 46
    assert "takes no more clients" in report.error.text
    assert "48" in report.error.remedy


@pytest.mark.slow
async def test_a_terminated_client_and_one_whose_daemon_dies_say_so(node: SimNode, supervisor: Supervisor) -> None:
    control = MpsControl(ControlChannel(node.pipe_dir, control_binary()))
    try:
        first, second = await supervisor.start(LoadSpec("fma", clients=2, pipe_dir=node.pipe_dir))
        await until(supervisor, all_measured)
        servers = (await control.get_server_list()).value or ()
        assert (await control.terminate_client(servers[0], supervisor.report(first).pid or 0)).ok
        await until(supervisor, lambda seen: seen[0].over)
        assert supervisor.report(second).state == "running"
        await asyncio.to_thread(node.stop)
        await until(supervisor, lambda seen: seen[1].over)
    finally:
        await supervisor.stop()
    errors = [report.error for report in supervisor.workers]
    assert [error.code for error in errors if error] == [810, 806]
    assert "terminated through MPS" in (errors[0].text if errors[0] else "")


@pytest.mark.slow
async def test_without_a_daemon_a_worker_that_should_run_under_mps_is_ended(
    node: SimNode, supervisor: Supervisor, tmp_path: Path
) -> None:
    await supervisor.start(LoadSpec("fma", pipe_dir=tmp_path / "nobody"))
    await supervisor.wait()
    [report] = supervisor.workers
    assert report.state == "failed"
    assert report.error is not None
    assert report.error.kind == "no_mps"
    assert "runs without MPS" in report.error.text


@pytest.mark.slow
async def test_a_worker_killed_from_outside_is_reported_with_the_signal(node: SimNode, supervisor: Supervisor) -> None:
    try:
        await supervisor.start(LoadSpec("fma", pipe_dir=node.pipe_dir))
        await until(supervisor, all_measured)
        pid = supervisor.workers[0].pid
        assert pid, "0 is the group of the tests"
        os.kill(pid, signal.SIGKILL)
        await until(supervisor, lambda seen: seen[0].over)
    finally:
        await supervisor.stop()
    assert supervisor.workers[0].error is not None
    assert "SIGKILL" in supervisor.workers[0].error.text


async def test_a_worker_is_not_killed_by_what_holds_it_only_because_that_goes() -> None:
    """Python 3.14 lets go of it where the program ends by an exception; a killed client takes its neighbours along."""
    worker = WorkerProcess(WorkerReport(0, "fma", "starting", 0.0), lambda report: None)
    await worker.start(
        ("sh", "-c", "read line; read line; exit 7"), os.environ, worker_order(Computation("fma")), HeldName()
    )
    process = worker._process
    assert process is not None
    process._transport.close()
    assert await process.wait() == 7, "it has seen that nobody is there, and has ended by itself"


async def test_a_worker_without_cuda_bindings_says_what_to_install() -> None:
    blocked = "import sys; sys.modules['cuda'] = None; from mpstui.load.worker import main; main()"
    supervisor = Supervisor(worker_command=(sys.executable, "-c", blocked))
    await supervisor.start(LoadSpec("fma", mps=False))
    await supervisor.wait()
    [report] = supervisor.workers
    assert report.error is not None
    assert report.error.kind == "no_bindings"
    assert how_to_install("load") in report.error.remedy


async def test_a_worker_that_cannot_be_started_and_one_that_talks_nonsense() -> None:
    supervisor = Supervisor(worker_command=("/nonexistent/worker",))
    await supervisor.start(LoadSpec("fma", mps=False))
    await supervisor.wait()
    error = supervisor.workers[0].error
    assert error is not None
    assert "cannot be started" in error.text
    nonsense = "print('[[[[', chr(27)); print('{\"type\": \"ready\", \"sms\": []}'); raise SystemExit('oh \\x1b no')"
    supervisor = Supervisor(worker_command=(sys.executable, "-c", nonsense))
    await supervisor.start(LoadSpec("fma", mps=False))
    await supervisor.wait()
    error = supervisor.workers[0].error
    assert error is not None
    assert "oh" in error.text
    assert "\x1b" not in error.text


def test_last_words_that_are_read_after_the_end_are_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(("sh", "-c", "echo last words; exit 3"))
    awaited = threading.Event()

    class Late(threading.Thread):
        """Reads no sooner than somebody waits for it."""

        def run(self) -> None:
            if self._target.__name__ == "_drain":  # type: ignore[attr-defined]
                awaited.wait()
            super().run()

        def join(self, timeout: float | None = None) -> None:
            awaited.set()
            super().join(timeout)

    monkeypatch.setattr("mpstui.load.runner.threading", SimpleNamespace(Thread=Late))
    monkeypatch.setattr("mpstui.load.runner.descendants", list)  # of this process, which has others than the command
    LoadRun(told).run()  # type: ignore[arg-type]
    awaited.set()
    assert [error.text for error in told.failed] == ["the command ended with exit status 3: last words"]


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (("/nonexistent/program",), "cannot be started"),
        (("/etc/passwd",), "cannot be started"),
        (("sh", "-c", "echo last words; exit 3"), "exit status 3: last words"),
        (("sh", "-c", "kill -9 $$"), "SIGKILL"),
    ],
)
async def test_programs_that_fail_say_how(program: tuple[str, ...], words: str) -> None:
    supervisor = Supervisor()
    await supervisor.start(LoadSpec("command", command=program, mps=False))
    await supervisor.wait()
    [report] = supervisor.workers
    assert report.state == "failed"
    assert report.error is not None
    assert words in report.error.text


@pytest.mark.slow
async def test_a_program_is_timed(tmp_path: Path) -> None:
    supervisor = Supervisor()
    await supervisor.start(LoadSpec("command", command=("sleep", "0.3"), clients=2, mps=False))
    await supervisor.wait()
    assert states(supervisor.workers) == ["ended", "ended"]
    for report in supervisor.workers:
        assert report.running_seconds >= 0.3
        assert report.figure == report.running_seconds


async def test_a_program_that_forks_away_is_ended_with_all_that_it_left(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    program = ("sh", "-c", f"setsid sh -c 'echo $$ > {marker}; exec sleep 600' & while [ ! -s {marker} ]; do :; done")
    supervisor = Supervisor()
    await supervisor.start(LoadSpec("command", command=program, mps=False))
    await supervisor.wait()
    [report] = supervisor.workers
    assert report.error is not None
    assert "left 1 process running" in report.error.text
    assert "foreground" in report.error.remedy
    await gone([int(marker.read_text())])


async def test_a_program_that_ignores_sigterm_is_stopped_with_its_children(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    script = f"echo $$ > {marker}; exec sleep 600"
    supervisor = Supervisor()
    await supervisor.start(LoadSpec("command", command=("sh", "-c", f"setsid sh -c '{script}'; :"), mps=False))
    await until(supervisor, lambda seen: seen[0].state == "running" and marker.exists() and marker.read_text() != "")
    await supervisor.stop()
    assert states(supervisor.workers) == ["ended"]
    await gone([int(marker.read_text())])


def test_the_environment_of_a_client_has_its_limits_and_none_of_ours() -> None:
    base = {"PATH": "/bin", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "5", "CUDA_MPS_PIPE_DIRECTORY": "/other"}
    base["CUDA_DEVICE_MAX_CONNECTIONS"] = "32"  # it would leave room for fewer clients
    limits = client_environment(
        base, pipe_dir="/tmp/x", percentage=33.33, memory_limit="2G", priority=1, device_uuid="GPU-1"
    )
    assert limits == {
        "PATH": "/bin",
        "CUDA_MPS_PIPE_DIRECTORY": "/tmp/x",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "33.33",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2G",
        "CUDA_MPS_CLIENT_PRIORITY": "1",
        "CUDA_VISIBLE_DEVICES": "GPU-1",
    }
    off = client_environment(base, pipe_dir=None, percentage=33.0)
    assert off == {"PATH": "/bin", "CUDA_MPS_PIPE_DIRECTORY": NO_DAEMON_DIRECTORY}


def test_a_pool_is_shortened_to_the_contexts_that_are_left() -> None:
    levels = even_levels(132, 12)
    assert len(levels) == 12
    assert levels[0] == 8
    assert levels[-1] == 132
    assert all(level % 2 == 0 for level in levels)
    assert shorten(levels, 3) == (8, levels[6], 132)
    assert shorten(levels, 1) == (132,)
    assert shorten(levels, 2, keep=20) == (20, 132)
    assert shorten(levels, 12, keep=None) == levels
    assert shorten((), 5, keep=10) == (10,)
    assert shorten(levels, 0) == ()


def test_memory_of_a_program_is_that_of_all_its_processes() -> None:
    sample = NvmlSample(0.0, mps_clients={"a": {1: 10}}, processes={"a": {1: 10, 2: 5, 9: 99}, "b": {2: None}})
    assert memory_of(sample, (1, 2)) == 15
    assert memory_of(sample, (7,)) is None
    assert memory_of(replace(sample, processes={}), (1,)) == 10


async def test_without_mps_there_are_no_shares_to_move(node: SimNode, supervisor: Supervisor) -> None:
    try:
        [worker] = await supervisor.start(LoadSpec("fma", mps=False))
        await until(supervisor, all_measured)
        pid = supervisor.report(worker).pid
        await supervisor.set_share(worker, 8)
        assert supervisor.report(worker).pid == pid
        assert supervisor.report(worker).levels == (132,)
    finally:
        await supervisor.stop()


def test_nothing_is_no_memory_of_a_process_that_is_on_another_device() -> None:
    """NVML lists an MPS client under each device of its server, with 0 where it is not (fact 34)."""
    here = NvmlSample(1.0, mps_clients={"GPU-a": {7: 5 << 20}, "GPU-b": {7: 0}}, processes={"GPU-a": {7: 5 << 20}})
    assert memory_of(here, [7]) == 5 << 20
    assert memory_of(replace(here, mps_clients={"GPU-b": {7: 0}}, processes={}), [7]) is None
